//! Who has something keeps it; who wants it otherwise than the others says what shall become of it.

use conductor_tests::{House, Score};
use serde_json::{Value, json};

use super::{
    all_leave, asked, db, get, item, leave, made, on, ran, reason, refused, reused, says, stories, template,
    thing, users, wants,
};

fn what_one_has_is_kept_though_a_better_one_appears(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score =
        |application: &str, terms: Value| wants(application, thing("orders", json!({ "matching": terms })));
    let old = made(place, &score("app-a", json!({})));
    assert_eq!(reused(place, &score("app-b", json!({}))), old);
    let new = made(place, &score("app-c", json!({ "maxConsumers": 2 })));
    // For a newcomer the emptier one is the better one; who has the other one stays.
    assert_eq!(reused(place, &score("app-d", json!({}))), new);
    leave(place, "app-c", "dev");
    for application in ["app-a", "app-b"] {
        assert_eq!(db(place, &score(application, json!({}))), ("none".into(), old.clone()));
        let plan = place.plan(&score(application, json!({})));
        assert_eq!(item(&plan, "db")["candidates"][0]["resource"], json!(old), "{plan}");
    }
    ran(place, json!({ "create": 2 }));
    all_leave(house, &["app-a", "app-b", "app-d"]);
}

fn a_change_by_the_only_one_who_uses_it(house: &House) {
    let place = &house.place;
    place.apply_things();
    for way in [json!({ "matching": {} }), json!({ "sharing": "shared" }), json!({ "sharing": "always" })] {
        let score = |application: &str, note: &str| wants(application, thing(note, way.clone()));
        let id = made(place, &score("app-a", "one"));
        let plan = place.plan(&score("app-a", "two"));
        assert_eq!(
            (item(&plan, "db")["action"].as_str(), item(&plan, "db")["resource"].as_str()),
            (Some("update"), Some(id.as_str()))
        );
        says(&reason(&plan, "db"), &["`note` differs"]);
        assert_eq!(db(place, &score("app-a", "two")), ("update".into(), id.clone()), "{way}");
        assert_eq!(place.world.things()[&id]["note"], "two");
        // It is found as what it is by now.
        if way["sharing"] != "always" {
            let other = made(place, &score("app-b", "one"));
            assert_ne!(other, id);
            leave(place, "app-b", "dev");
        }
        assert_eq!(reused(place, &score("app-b", "two")), id);
        leave(place, "app-b", "dev");
        leave(place, "app-a", "dev");
        house.is_empty();
    }
}

fn a_change_with_others_around(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score =
        |application: &str, note: &str| wants(application, thing(note, json!({ "sharing": "shared" })));
    let old = made(place, &score("app-a", "one"));
    reused(place, &score("app-b", "one"));
    let new = made(place, &score("app-a", "two"));
    assert_ne!(new, old);
    assert_eq!((users(house, &old), users(house, &new)), (vec!["app-b".into()], vec!["app-a".into()]));
    assert_eq!(place.world.things()[&old]["note"], "one");
    ran(place, json!({ "create": 2 }));
    // And back: what was there is joined again, and what nobody uses goes.
    assert_eq!(reused(place, &score("app-a", "one")), old);
    house.is_at_rest();
    assert_eq!(place.world.things().len(), 1);
    assert_eq!(get(house, &new)["phase"], "Deleted");
    ran(place, json!({ "create": 2, "delete": 1 }));
    all_leave(house, &["app-a", "app-b"]);
}

/// By name there is only one, so somebody has to say what shall become of it.
fn a_conflict_of_two_files(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = |application: &str, note: &str, word: &str| {
        let mut way = json!({ "reference": { "mode": "shared", "name": "orders" } });
        if !word.is_empty() {
            way["onConflict"] = word.into();
        }
        wants(application, thing(note, way))
    };
    let id = made(place, &score("app-a", "one", ""));
    reused(place, &score("app-b", "one", "fail"));
    let both = ["orders", "`note`", "\"one\" there", "\"two\" here", "app-a", "onConflict: keep"];
    for word in ["", "fail"] {
        refused(house, &score("app-c", "two", word), &both);
    }
    // Kept: it is taken as it is.
    let document = place.deploy(&score("app-c", "two", "keep"));
    assert_eq!(item(&document, "db")["action"], "reuse");
    says(&reason(&document, "db"), &["kept as it is", "app-a", "app-b"]);
    assert_eq!(get(house, &id)["parameters"]["note"], "one");
    ran(place, json!({ "create": 1 }));
    // Updated: for everybody, and the plan says who that is.
    let plan = place.plan(&score("app-c", "three", "update"));
    assert_eq!(item(&plan, "db")["action"], "update");
    says(&reason(&plan, "db"), &["`note` differs", "app-a, app-b use it as well"]);
    let document = place.deploy(&score("app-c", "three", "update"));
    assert_eq!(item(&document, "db")["resource"], json!(id));
    assert_eq!(place.world.things()[&id]["note"], "three");
    assert_eq!(place.outputs("app-a", false)["db"]["note"], "three");
    assert_eq!(users(house, &id), ["app-a", "app-b", "app-c"]);
    ran(place, json!({ "create": 1, "update": 1 }));
    // The others have not changed their minds.
    refused(house, &score("app-a", "one", ""), &["\"three\" there", "\"one\" here", "app-b", "app-c"]);
    assert_eq!(db(place, &score("app-a", "three", "")).0, "none");
    all_leave(house, &["app-a", "app-b", "app-c"]);
}

/// What would have to be made anew is not taken from under the others.
fn a_conflict_that_cannot_be_settled_in_place(house: &House) {
    let place = &house.place;
    template(
        place,
        "disk",
        "    size: { type: string, immutable: true }\n    zone: { type: string, frozen: true }\n",
    );
    let score = |application: &str, params: Value| {
        let way = json!({ "reference": { "mode": "shared", "name": "main" }, "onConflict": "update" });
        wants(application, asked("disk", params, way))
    };
    let params = json!({ "note": "disk", "size": "small", "zone": "north" });
    let id = made(place, &score("app-a", params.clone()));
    reused(place, &score("app-b", params.clone()));
    let larger = json!({ "note": "disk", "size": "large", "zone": "north" });
    refused(house, &score("app-b", larger), &["main", "replaced", "app-a"]);
    let elsewhere = json!({ "note": "disk", "size": "small", "zone": "south" });
    refused(house, &score("app-b", elsewhere), &["zone", "frozen"]);
    assert_eq!(db(place, &score("app-b", params)), ("none".into(), id));
    ran(place, json!({ "create": 1 }));
}

/// One that did not come about is joined, and tried again for both.
fn one_that_failed(house: &House) {
    let place = &house.place;
    let home = place.path("world/home");
    place.write_program(
        "catalog/needy.sh",
        &format!(
            "#!/bin/sh\n[ \"$1\" = create ] || {{ echo '{{}}'; exit 0; }}\n\
             [ -d {0} ] || {{ echo 'no home' >&2; exit 1; }}\necho '{{\"outputs\": {{\"home\": \"{0}\"}}}}'\n",
            home.display()
        ),
    );
    let world = place.world.folder.display();
    place.apply(
        "needy",
        &format!(
            "kind: Template\nname: needy\ntype: needy\nversion: 1.0.0\nmanager: command\n\
             config: {{ program: ./needy.sh, protocol: conductor, allow: {{ read: [\"{world}\"] }} }}\n"
        ),
    );
    let score = |application: &str| wants(application, json!({ "type": "needy", "sharing": "shared" }));
    let failed = place.deploy_in_vain(&score("app-a")).json();
    says(failed["error"]["message"].as_str().unwrap(), &["no home"]);
    let id = item(&failed, "db")["resource"].as_str().unwrap().to_owned();
    assert_eq!(get(house, &id)["phase"], "Failed");
    std::fs::create_dir(&home).unwrap();
    let document = place.deploy(&score("app-b"));
    assert_eq!(
        (item(&document, "db")["resource"].as_str(), &item(&document, "db")["action"]),
        (Some(id.as_str()), &json!("create"))
    );
    assert_eq!(users(house, &id), ["app-a", "app-b"]);
    assert_eq!(db(place, &score("app-a")), ("none".into(), id));
    all_leave(house, &["app-a", "app-b"]);
}

/// Two requirements of one file: what one of them changes is for the other what it will be.
fn two_wishes_and_one_thing(house: &House) {
    let place = &house.place;
    place.apply_things();
    let named = json!({ "sharing": "by-name", "onConflict": "keep" });
    let alike = json!({ "sharing": "shared" });
    let first = Score::new("app-a").with("db", thing("one", named.clone()));
    let id = made(place, &first.text());
    // `db` asks for something else now, and `also` for what it was.
    let score = Score::new("app-a").with("also", thing("one", alike)).with("db", thing("two", named)).text();
    place.deploy(&score);
    let plan = place.plan(&score);
    for requirement in ["db", "also"] {
        assert_eq!(item(&plan, requirement)["action"], "none", "{plan}");
    }
    let also = item(&plan, "also")["resource"].as_str().unwrap().to_owned();
    let notes = place.world.things();
    assert_eq!(
        (&notes[&also]["note"], item(&plan, "db")["resource"].as_str()),
        (&json!("one"), Some(id.as_str()))
    );
    all_leave(house, &["app-a"]);
}

/// Two environments and one thing: the others are those of both.
fn a_conflict_over_two_environments(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let score = |note: &str, word: &str| {
        let way = json!({ "reference": { "mode": "shared", "name": "orders", "scope": "organisation" }, "onConflict": word });
        wants("web", thing(note, way))
    };
    let id = made(place, &score("one", "fail"));
    assert_eq!(item(&on(place, "deploy", "stage", &score("one", "fail")), "db")["resource"], json!(id));
    refused(house, &score("two", "fail"), &["orders", "\"one\" there", "\"two\" here"]);
    let document = on(place, "deploy", "stage", &score("two", "update"));
    assert_eq!(item(&document, "db")["action"], "update");
    assert_eq!(place.world.things()[&id]["note"], "two");
}

stories!(
    embedded: what_one_has_is_kept_though_a_better_one_appears a_change_by_the_only_one_who_uses_it
        a_change_with_others_around a_conflict_of_two_files a_conflict_that_cannot_be_settled_in_place
        a_conflict_over_two_environments one_that_failed two_wishes_and_one_thing
);
