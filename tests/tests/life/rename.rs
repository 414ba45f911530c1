//! Renaming what real terraform made, and ten applications use: nothing is run.

use conductor_tests::{House, Score, quick, shared, tofu};
use serde_json::{Value, json};

use super::{get, served, text};

const MODULE: &str = r#"
variable "note" { default = "none" }
resource "terraform_data" "thing" { input = var.note }
output "note" { value = terraform_data.thing.output }
"#;

fn ten_users(house: &House) {
    let place = &house.place;
    place.write("catalog/noted/main.tf", MODULE);
    place.apply(
        "noted",
        &format!(
            "kind: Template\nname: noted\ntype: noted\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./noted, tool: {} }}\n",
            tofu().display()
        ),
    );
    let uses = |app: usize, requirement: &str, alias: Option<&str>| {
        let mut asked = shared("noted", "notes", json!({ "note": "kept" }));
        if let Some(alias) = alias {
            asked["alias"] = alias.into();
        }
        Score::new(&format!("app-{app}")).with(requirement, asked).text()
    };
    let id = served(&place.deploy(&uses(0, "notes", None)), "notes").1;
    for app in 1..10 {
        assert_eq!(served(&place.deploy(&uses(app, "notes", None)), "notes"), ("reuse".into(), id.clone()));
    }
    let record = || {
        (
            house.count(
                "SELECT count(*) FROM operations o JOIN resources r ON r.id = o.resource_id WHERE r.kind = 'noted'",
            ),
            house.count("SELECT count(*) FROM states"),
            house.count("SELECT coalesce(max(serial), 0) FROM states"),
            text(&get(house, &id), "updatedAt"),
        )
    };
    let before = record();
    assert_eq!(before.0, 1);
    for app in 0..10 {
        let renamed = place.deploy(&uses(app, "journal", Some("notes")));
        assert_eq!(served(&renamed, "journal"), ("rename".into(), id.clone()), "{renamed}");
        assert_eq!(renamed["removals"], json!([]));
    }
    let after = record();
    assert_eq!((before.0, before.1, before.2), (after.0, after.1, after.2), "something was run");
    let seen = get(house, &id);
    let users = seen["consumers"].as_array().unwrap();
    assert_eq!(users.len(), 10);
    assert!(users.iter().all(|user| user["requirement"] == "journal"), "{users:?}");
    for app in 0..10 {
        assert_eq!(place.outputs(&format!("app-{app}"), false), json!({ "journal": { "note": "kept" } }));
    }

    // The name they all know it by is not for one of them to change; the last one left may.
    let elsewhere = |app: usize| {
        let mut asked = shared("noted", "annals", json!({ "note": "kept" }));
        asked["alias"] = "journal".into();
        Score::new(&format!("app-{app}")).with("annals", asked).text()
    };
    let refused = place.deploy_in_vain(&elsewhere(0));
    super::says(&refused.all(), &["know it by the name `notes`", "keep the shared name"]);
    for app in 1..10 {
        place.destroy(&format!("app-{app}"));
    }
    let renamed = place.deploy(&elsewhere(0));
    assert_eq!(served(&renamed, "annals"), ("rename".into(), id.clone()));
    assert_eq!(get(house, &id)["name"], "annals");
    assert_eq!(record().0, before.0, "still nothing was run");
    assert_eq!(record().2, before.2);
    // It is the same thing: its state goes with it when it goes.
    place.destroy("app-0");
    assert_eq!(get(house, &id)["phase"], "Deleted");
    assert_eq!(place.resources(), Vec::<Value>::new());
}

#[test]
fn ten_users_of_what_tofu_made_on_sqlite() {
    if !quick() {
        ten_users(&super::up());
    }
}

#[test]
fn ten_users_of_what_tofu_made_on_postgresql() {
    if !quick() {
        ten_users(&super::fleet());
    }
}
