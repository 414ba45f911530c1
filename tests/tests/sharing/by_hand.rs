//! Uses that no Score file states: added and taken away over HTTP, and worth as much as the others.

use conductor_tests::{House, eventually, seconds};
use serde_json::{Value, json};

use super::{get, leave, made, ran, stories, template, thing, users, wants};

fn consumers(resource: &str) -> String {
    format!("/api/v1/resources/{resource}/consumers")
}

fn shared() -> Value {
    thing("orders", json!({ "reference": { "mode": "shared", "name": "orders" } }))
}

#[track_caller]
fn is_gone(house: &House, resource: &str) {
    eventually("it is destroyed", seconds(20), || (get(house, resource)["phase"] == "Deleted").then_some(()));
    assert!(!house.place.world.things().contains_key(resource));
}

fn the_last_one_out_has_it_destroyed(house: &House) {
    let (place, api) = (&house.place, house.api());
    place.apply_things();
    let id = made(place, &wants("app-a", shared()));
    let added = api.post(&consumers(&id), &json!({ "application": "batch", "requirement": "db" }));
    assert_eq!(added.status, 201, "{}", added.text);
    let consumer = added.json();
    assert_eq!((&consumer["application"], &consumer["requirement"]), (&json!("batch"), &json!("db")));
    assert_eq!((&consumer["environment"], &consumer["state"]), (&json!("dev"), &json!("active")));
    assert_eq!(users(house, &id), ["app-a", "batch"]);
    assert_eq!(place.outputs("batch", false)["db"], place.outputs("app-a", false)["db"]);

    // The one who made it leaves: somebody still uses it.
    assert_eq!(super::served(&leave(place, "app-a", "dev"), "db").0, "release");
    assert_eq!(get(house, &id)["phase"], "Active");
    let left = api.call("DELETE", &format!("{}/batch", consumers(&id)), &[], "");
    assert_eq!((left.status, left.text.as_str()), (204, ""));
    is_gone(house, &id);
    house.is_empty();
    ran(place, json!({ "create": 1, "delete": 1 }));
}

/// Whoever is taken out by hand is out; the next deployment brings them in again.
fn one_use_among_several(house: &House) {
    let (place, api) = (&house.place, house.api());
    place.apply_things();
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let id = made(place, &wants("app-a", shared()));
    for (requirement, environment) in [("db", "dev"), ("copy", "dev"), ("db", "stage")] {
        let body = json!({ "application": "batch", "requirement": requirement, "environment": environment });
        assert_eq!(api.post(&consumers(&id), &body).status, 201);
    }
    assert_eq!(users(house, &id), ["app-a", "batch", "batch", "batch"]);
    let delete = |query: &str| api.call("DELETE", &format!("{}/batch{query}", consumers(&id)), &[], "");
    assert_eq!(delete("?environment=stage").status, 204);
    assert_eq!(delete("?environment=dev&requirement=copy").status, 204);
    assert_eq!(users(house, &id), ["app-a", "batch"]);
    delete("?requirement=copy").problem(404);
    assert_eq!(delete("").status, 204);
    assert_eq!(users(house, &id), ["app-a"]);
    assert_eq!(get(house, &id)["phase"], "Active");
    let out = api.call("DELETE", &format!("{}/app-a", consumers(&id)), &[], "");
    assert_eq!(out.status, 204);
    is_gone(house, &id);
    assert_ne!(made(place, &wants("app-a", shared())), id);
}

fn no_more_than_may_use_it(house: &House) {
    let (place, api) = (&house.place, house.api());
    place.apply_things();
    let way = json!({ "matching": { "maxConsumers": 2 } });
    let id = made(place, &wants("app-a", thing("orders", way)));
    let body = |application: &str| json!({ "application": application, "requirement": "db" });
    assert_eq!(api.post(&consumers(&id), &body("batch")).status, 201);
    let full = api.post(&consumers(&id), &body("third")).problem(409);
    let detail = full["detail"].as_str().unwrap();
    assert!(detail.contains("2 consumers") && detail.contains("at most"), "{detail}");
    assert_eq!(users(house, &id), ["app-a", "batch"]);
    // A use by hand takes a place: the next one by file has one of its own.
    let matching = wants("app-b", thing("orders", json!({ "matching": {} })));
    assert_ne!(made(place, &matching), id);
    assert_eq!(api.call("DELETE", &format!("{}/batch", consumers(&id)), &[], "").status, 204);
    assert_eq!(api.post(&consumers(&id), &body("third")).status, 201);
    assert_eq!(users(house, &id), ["app-a", "third"]);
}

fn what_cannot_be_used_or_left(house: &House) {
    let (place, api) = (&house.place, house.api());
    place.apply_things();
    let id = made(place, &wants("app-a", shared()));
    let body = json!({ "application": "batch", "requirement": "db" });
    let stranger = api.call("DELETE", &format!("{}/batch", consumers(&id)), &[], "").problem(404);
    assert!(stranger["detail"].as_str().unwrap().contains("batch does not use orders"), "{stranger}");
    api.post(&consumers("res_00000000000000000000000000"), &body).problem(404);
    api.post(&consumers(&id), &json!({ "application": "batch", "requirement": "db", "environment": "mars" }))
        .problem(404);
    for wrong in [
        json!({ "application": "batch" }),
        json!({ "application": "", "requirement": "db" }),
        json!({ "application": "Not A Name", "requirement": "db" }),
        json!({ "application": "batch", "requirement": "" }),
        json!({ "application": "batch", "requirement": "db", "colour": "red" }),
    ] {
        let reply = api.post(&consumers(&id), &wrong);
        assert!(matches!(reply.status, 400 | 422), "{wrong}: {} {}", reply.status, reply.text);
    }
    assert_eq!(users(house, &id), ["app-a"]);
    assert!(!place.json(&["apps", "list"]).to_string().contains("Not A Name"));
    leave(place, "app-a", "dev");
    let gone = api.post(&consumers(&id), &body).problem(409);
    assert!(gone["detail"].as_str().unwrap().contains("destroyed"), "{gone}");
}

/// Something depends on it: it stays for as long as that is so, strongly; weakly, nothing is in the way.
fn what_others_depend_on(house: &House) {
    let (place, api) = (&house.place, house.api());
    place.apply_things();
    template(place, "hub", "");
    for (kind, stays) in [("strong", true), ("weak", false)] {
        let application = format!("app-{kind}");
        let score = conductor_tests::Score::new(&application)
            .with("hub", json!({ "type": "hub", "reference": { "mode": "shared", "name": kind } }))
            .with("spoke", json!({ "type": "thing", "dependsOn": [{ "name": "hub", "type": kind }] }));
        let hub = super::served(&place.deploy(&score.text()), "hub").1;
        let path = format!("{}/{application}?requirement=hub", consumers(&hub));
        assert_eq!(api.call("DELETE", &path, &[], "").status, 204);
        match stays {
            true => assert_eq!(get(house, &hub)["phase"], "Active"),
            false => is_gone(house, &hub),
        }
    }
}

stories!(
    up: the_last_one_out_has_it_destroyed one_use_among_several no_more_than_may_use_it what_cannot_be_used_or_left
        what_others_depend_on
);
