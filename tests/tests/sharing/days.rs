//! Day 1: application A makes the thing. Day 7: B uses the same one. Day 14: A goes, the thing stays. Day 21: B goes,
//! and the thing with it. Told for every way of asking.

use conductor_tests::House;
use serde_json::{Value, json};

use super::{
    all_leave, db, get, leave, made, on, ran, refused, reused, served, steps, stories, template, thing,
    users, wants,
};

#[track_caller]
fn tell(house: &House, way: &Value) {
    let place = &house.place;
    let before = place.world.runs().len();
    let score = |application: &str| wants(application, thing("orders", way.clone()));
    let id = made(place, &score("app-a"));
    let name = get(house, &id)["name"].as_str().unwrap().to_owned();
    match way["sharing"] == "by-name" {
        true => assert_eq!(name, "db"),
        false => assert!(name.starts_with("thing-dev-") && name.len() == "thing-dev-".len() + 8, "{name}"),
    }
    assert_eq!(reused(place, &score("app-b")), id, "{way}");
    assert_eq!(users(house, &id), ["app-a", "app-b"]);
    assert_eq!(place.outputs("app-b", false)["db"], place.outputs("app-a", false)["db"]);
    assert_eq!(db(place, &score("app-a")), ("none".into(), id.clone()));

    assert_eq!(served(&leave(place, "app-a", "dev"), "db"), ("release".into(), id.clone()));
    assert_eq!(users(house, &id), ["app-b"]);
    assert_eq!(get(house, &id)["phase"], "Active");
    assert!(place.world.things().contains_key(&id));

    assert_eq!(served(&leave(place, "app-b", "dev"), "db"), ("remove".into(), id));
    house.is_empty();
    assert_eq!(place.world.runs().len() - before, 2, "made once, and taken away once");
}

fn from_the_first_consumer_to_the_last(house: &House) {
    house.place.apply_things();
    for way in [
        json!({ "matching": {} }),
        json!({ "matching": { "scope": "environment", "sharingPolicy": "shared", "matchOn": ["note"] } }),
        json!({ "sharing": "shared" }),
        json!({ "sharing": "by-params" }),
        json!({ "sharing": "by-name" }),
        json!({ "sharing": "always" }),
    ] {
        tell(house, &way);
    }
}

fn dedicated_ones_are_nobody_elses(house: &House) {
    let place = &house.place;
    place.apply_things();
    let mut ids = Vec::new();
    for (application, way) in [
        ("app-a", json!({ "sharing": "dedicated" })),
        ("app-b", json!({ "sharing": "dedicated" })),
        ("app-c", json!({ "matching": { "sharingPolicy": "dedicated" } })),
        ("app-d", json!({ "reference": { "mode": "dedicated" } })),
        ("app-e", json!({})),
        // Somebody who takes anything is not given what is somebody's own.
        ("app-f", json!({ "sharing": "always" })),
    ] {
        let id = made(place, &wants(application, thing("same", way)));
        assert!(!ids.contains(&id), "{application}");
        ids.push(id);
    }
    assert_eq!(get(house, &ids[0])["name"], "app-a-db");
    // In one file as well.
    let two = conductor_tests::Score::new("app-a")
        .with("db", thing("same", json!({ "sharing": "dedicated" })))
        .with("other", thing("same", json!({ "sharing": "dedicated" })));
    let document = place.deploy(&two.text());
    assert_ne!(served(&document, "db").1, served(&document, "other").1);
    all_leave(house, &["app-a", "app-b", "app-c", "app-d", "app-e", "app-f"]);
}

/// Each word of `sharing` goes by something else.
fn what_each_word_goes_by(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = |application: &str, note: &str, word: &str| {
        wants(application, thing(note, json!({ "sharing": word })))
    };
    let blue = made(place, &score("app-a", "blue", "shared"));
    let green = made(place, &score("app-b", "green", "by-params"));
    assert_eq!(reused(place, &score("app-c", "green", "shared")), green);
    assert_eq!(reused(place, &score("app-d", "blue", "by-params")), blue);
    // The oldest, whatever it is like and however many use it.
    assert_eq!(reused(place, &score("app-e", "red", "always")), blue);
    assert_eq!(get(house, &blue)["parameters"]["note"], "blue");
    // A name is a name: what is asked for under it must agree, and Score's `id` says the same.
    let named = made(place, &score("app-f", "blue", "by-name"));
    refused(
        house,
        &score("app-g", "green", "by-name"),
        &["`db`", "\"blue\" there", "\"green\" here", "app-f"],
    );
    let same = json!({ "type": "thing", "id": "db", "params": { "note": "blue" } });
    assert_eq!(reused(place, &wants("app-g", same)), named);
    // What has a name can be found by what it is like, too: it has fewer users than the other blue one.
    assert_eq!(reused(place, &score("app-h", "blue", "shared")), named);
    ran(place, json!({ "create": 3 }));
}

/// Requirements of one file that are alike are served by one resource.
fn alike_in_one_file(house: &House) {
    let place = &house.place;
    place.apply_things();
    let mut score = conductor_tests::Score::new("web");
    for (name, note) in [("aa", "one"), ("bb", "one"), ("cc", "other")] {
        score = score.with(name, thing(note, json!({ "sharing": "shared" })));
    }
    for action in ["create", "none"] {
        let document = place.deploy(&score.text());
        let ids = ["aa", "bb", "cc"].map(|name| served(&document, name).1);
        assert_eq!(ids[0], ids[1], "{document}");
        assert_ne!(ids[0], ids[2], "{document}");
        assert_eq!(served(&document, "cc").0, action);
    }
    ran(place, json!({ "create": 2 }));
    // One of the two is no longer wanted: the resource is.
    let document = place
        .deploy(&wants("web", thing("other", json!({ "sharing": "shared" }))).replace("\"db\"", "\"cc\""));
    assert_eq!(served(&document, "cc").0, "none");
    ran(place, json!({ "create": 2, "delete": 1 }));
    all_leave(house, &["web"]);
}

fn over_two_environments(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let score = |application: &str, scope: &str| {
        wants(application, thing("orders", json!({ "matching": { "scope": scope } })))
    };
    for scope in ["organisation", "global"] {
        let before = steps(place);
        let (action, id) = served(&on(place, "deploy", "dev", &score("app-a", scope)), "db");
        assert_eq!(action, "create");
        let shared = get(house, &id);
        assert_eq!((&shared["scope"], &shared["environment"]), (&json!(scope), &json!("dev")));
        for application in ["app-b", "app-a"] {
            let document = on(place, "deploy", "stage", &score(application, scope));
            assert_eq!(served(&document, "db"), ("reuse".into(), id.clone()), "{document}");
        }
        assert_eq!(users(house, &id), ["app-a", "app-a", "app-b"]);
        // One that is asked for within the environment is another one.
        let (action, near) = served(&on(place, "deploy", "stage", &score("app-c", "environment")), "db");
        assert_eq!(action, "create");
        assert_ne!(near, id);
        assert_eq!(get(house, &near)["scope"], "environment");
        // And the nearer one comes first for somebody who takes either.
        assert_eq!(
            served(&on(place, "deploy", "stage", &score("app-d", scope)), "db"),
            ("reuse".into(), near)
        );
        assert_eq!(
            served(&on(place, "deploy", "dev", &score("app-d", scope)), "db"),
            ("reuse".into(), id.clone())
        );

        for (application, environment) in [("app-a", "dev"), ("app-b", "stage"), ("app-d", "dev")] {
            assert_eq!(served(&leave(place, application, environment), "db").0, "release", "{application}");
            assert!(place.world.things().contains_key(&id));
        }
        assert_eq!(served(&leave(place, "app-a", "stage"), "db"), ("remove".into(), id));
        leave(place, "app-c", "stage");
        leave(place, "app-d", "stage");
        house.is_empty();
        let count = |name: &str| {
            steps(place)[name].as_u64().unwrap_or(0) - before.get(name).and_then(Value::as_u64).unwrap_or(0)
        };
        assert_eq!((count("create"), count("delete")), (2, 2));
    }
}

/// What a template says of sharing holds where a file says nothing.
fn by_default(house: &House) {
    let place = &house.place;
    template(place, "thing", "sharing: { default: shared }\n");
    let id = made(place, &wants("app-a", thing("orders", json!({}))));
    assert_eq!(reused(place, &wants("app-b", thing("orders", json!({})))), id);
    assert_ne!(made(place, &wants("app-c", thing("orders", json!({ "sharing": "dedicated" })))), id);
    assert_ne!(made(place, &wants("app-d", thing("orders", json!({ "sharing": "by-name" })))), id);
    all_leave(house, &["app-a", "app-b", "app-c", "app-d"]);
}

stories!(
    embedded: from_the_first_consumer_to_the_last dedicated_ones_are_nobody_elses what_each_word_goes_by
        alike_in_one_file over_two_environments by_default
);
