//! A new version of a template must still give what somebody uses.

use conductor_tests::{House, Place, Score};
use serde_json::{Value, json};

use super::{get, item, ran, reason, refused, says, stories};

/// Version 1 gives a place and a note, version 2 the place alone.
fn versions(place: &Place) {
    let text = |version: &str, outputs: &str| {
        let text = place.world.template("record", &format!("outputs: {outputs}\n"));
        text.replace("version: 1.0.0", &format!("version: {version}"))
    };
    place.apply("record-1", &text("1.0.0", "{ place: false, note: false }"));
    place.apply("record-2", &text("2.0.0", "{ place: false }"));
}

fn pin(place: &Place, version: &str) {
    place.apply(
        "pin",
        &format!("kind: Rule\nname: pin\ntemplate: record@{version}\nmatch: {{ type: record }}\n"),
    );
}

fn record(on_conflict: &str) -> Value {
    json!({
        "type": "record", "params": { "note": "kept" }, "reference": { "mode": "shared", "name": "book" },
        "onConflict": on_conflict,
    })
}

fn tell(house: &House, uses: impl Fn(Score) -> Score) {
    let place = &house.place;
    versions(place);
    place.apply_things();
    pin(place, "1.0.0");
    let writer = Score::new("app-a").with("db", record("update"));
    let reader = Score::new("app-b").with("db", record("fail"));
    let id = super::made(place, &writer.text());
    place.deploy(&uses(reader.clone()).text());
    assert_eq!(get(house, &id)["templateVersion"], "1.0.0");

    pin(place, "2.0.0");
    refused(house, &writer.text(), &["record@2.0.0", "app-b", "uses `note`", "keep these outputs"]);
    assert_eq!(get(house, &id)["templateVersion"], "1.0.0");
    // Whoever did not ask for the change keeps the version they have, and what it gives.
    let document = place.deploy(&uses(reader.clone()).text());
    assert_eq!(item(&document, "db")["action"], "none", "{document}");

    // Let go of, it may go.
    place.deploy(&reader.text());
    let document = place.deploy(&writer.text());
    assert_eq!(item(&document, "db")["action"], "update", "{document}");
    says(&reason(&document, "db"), &["template version becomes 2.0.0", "app-b use"]);
    let now = get(house, &id);
    assert_eq!((&now["templateVersion"], &now["id"]), (&json!("2.0.0"), &json!(id)));
    // And nobody can begin to use it again.
    refused(house, &uses(reader).text(), &["`db` has no output `note`"]);
}

fn what_another_resource_is_fed_with(house: &House) {
    tell(house, |score| score.thing("copy", json!({ "note": "copy of ${resources.db.note}" })));
    ran(&house.place, json!({ "create": 2, "delete": 1, "update": 1 }));
}

fn what_a_container_is_given(house: &House) {
    tell(house, |score| score.variable("NOTE", "${resources.db.note}"));
    ran(&house.place, json!({ "create": 1, "update": 1 }));
}

stories!(embedded: what_another_resource_is_fed_with what_a_container_is_given);
