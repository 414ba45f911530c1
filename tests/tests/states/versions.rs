//! Looking back at a resource's state.

use std::path::Path;

use conductor_tests::{House, Shape, eventually, quick, seconds, terraform, tofu};
use serde_json::{Value, json};

use super::{POSTGRES, SQLITE, catalogue, deploy, note, score};

fn token(house: &House, role: &str) -> String {
    let made = house.place.json(&["tokens", "create", "--role", role, "--name", role]);
    made["token"].as_str().expect("a token").to_owned()
}

fn look_back(shape: Shape, tool: &Path) {
    let house = House::new(shape);
    let place = &house.place;
    catalogue(&house, tool);
    let id = deploy(&house, json!({ "note": "one", "hush": "first-secret" }));
    deploy(&house, json!({ "note": "two", "hush": "second-secret" }));
    let shown = place.json(&["resources", "get", &id]);
    assert_eq!(shown["stateLocation"], json!({ "backend": "conductor", "location": "database" }));

    let versions = place.json(&["states", "list", &id]);
    let versions = versions.as_array().unwrap().clone();
    assert!(versions.len() >= 2, "{versions:?}");
    let (newest, oldest) = (&versions[0], &versions[versions.len() - 1]);
    assert_eq!(oldest["number"], 1);
    assert!(newest["serial"].as_i64() > oldest["serial"].as_i64() && newest["lineage"] == oldest["lineage"]);
    assert!(newest["size"].as_i64() > Some(100) && newest["fence"].as_i64() > oldest["fence"].as_i64());
    assert!(newest["operation"].as_str().unwrap().starts_with("op_") && newest["createdAt"].is_string());

    let told = place.ok(&["states", "get", &id]);
    let state: Value = serde_json::from_str(&told.stdout).expect("terraform's own document");
    assert_eq!(state["outputs"]["note"]["value"], "two");
    assert_eq!(state["serial"], newest["serial"]);
    let first = versions.iter().rev().find(|version| {
        let number = version["number"].to_string();
        place.json(&["states", "get", &id, &number])["outputs"]["note"]["value"] == "one"
    });
    let first = first.expect("a version with the first note")["number"].to_string();
    let last = newest["number"].to_string();

    let told = place.ok(&["states", "diff", &id, &first, &last, "-o", "json"]);
    assert!(!told.stdout.contains("-secret"), "{}", told.stdout);
    let diff = told.json();
    let thing =
        diff["resources"].as_array().unwrap().iter().find(|one| one["address"] == "terraform_data.thing");
    let thing = thing.expect("what differs");
    assert_eq!(thing["change"], "changed");
    let paths: Vec<&Value> = thing["attributes"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert!(paths.iter().any(|path| path.as_str().unwrap().starts_with("input")), "{diff}");
    let outputs = diff["outputs"].as_array().unwrap();
    assert!(outputs.iter().any(|one| one["path"] == "hush" && one["after"] == "(sensitive)"), "{diff}");
    let text = place.ok(&["states", "diff", &id, &first, &last]).stdout;
    assert!(text.contains("~ terraform_data.thing") && text.contains("note: \"one\" → \"two\""), "{text}");

    let made = place.json(&["states", "rollback", &id, &first]);
    assert_eq!(made["number"].as_i64(), newest["number"].as_i64().map(|number| number + 1));
    assert_eq!(made["serial"].as_i64(), newest["serial"].as_i64().map(|serial| serial + 1));
    assert!(made["actor"].is_string() && made["operation"].is_null());
    assert_eq!(place.json(&["states", "get", &id])["outputs"]["note"]["value"], "one");
    let events = place.json(&["events", "list", "--resource", &id]);
    let told: Vec<&str> =
        events.as_array().unwrap().iter().filter_map(|event| event["kind"].as_str()).collect();
    assert!(told.contains(&"state.rolled_back") && told.contains(&"state.read"), "{told:?}");

    // Terraform goes on from there.
    deploy(&house, note("three"));
    assert_eq!(place.outputs("web", true)["notes"]["note"], "three");
    let told = place.run(&["states", "get", &id, "999"]);
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.stderr.contains("there is no version 999"), "{}", told.stderr);
    let told = place.run(&["states", "unlock", &id]);
    assert!(told.code == 6 && told.stderr.contains("nobody holds the lock"), "{told:?}");
    place.destroy("web");
    let told = place.run(&["states", "rollback", &id, &first]);
    assert!(told.code == 1 && told.stderr.contains("is gone"), "{told:?}");
}

#[test]
fn versions_are_kept_compared_and_gone_back_to() {
    if !quick() {
        look_back(Shape::Embedded, &tofu());
    }
}

#[test]
fn versions_are_kept_compared_and_gone_back_to_on_postgresql() {
    if !quick() {
        look_back(POSTGRES, &terraform());
    }
}

#[test]
fn only_administrators_see_what_is_in_a_state() {
    if quick() {
        return;
    }
    let house = House::new(SQLITE);
    catalogue(&house, &tofu());
    let id = deploy(&house, note("one"));
    let api = house.api();
    let path = |rest: &str| format!("/api/v1/resources/{id}/states{rest}");
    let (read, write) = (api.with_token(&token(&house, "read")), api.with_token(&token(&house, "write")));
    assert_eq!(read.get(&path("")).status, 200);
    read.get(&path("/1/diff/1")).problem(403);
    assert_eq!(write.get(&path("/1/diff/1")).status, 200);
    for caller in [&read, &write] {
        caller.get(&path("/1")).problem(403);
        caller.post(&path("/rollback"), &json!({ "number": 1 })).problem(403);
        caller.call("DELETE", &path("/lock"), &[], "").problem(403);
    }
    assert_eq!(api.get(&path("/1")).status, 200);
    api.post(&path("/rollback"), &json!({ "number": 99 })).problem(404);
    api.post(&path("/rollback"), &json!({ "to": 1 })).problem(422);
}

/// While terraform runs, its state is its own.
fn nobody_meddles(shape: Shape, tool: &Path) {
    let house = House::new(shape);
    catalogue(&house, tool);
    let id = deploy(&house, note("one"));
    let api = house.api();
    let running = api.deploy(&score(json!({ "note": "two", "pause": 4 })));
    let lock = format!("/api/v1/resources/{id}/states/lock");
    // By the apply, which takes a while; the plan before it has a lock of its own.
    let locked = "SELECT count(*) FROM state_locks WHERE document LIKE '%OperationTypeApply%'";
    eventually("the state is locked", seconds(30), || (house.count(locked) == 1).then_some(()));
    let told = house.place.run(&["states", "rollback", &id, "1"]);
    assert!(told.code == 1 && told.stderr.contains("is running"), "{told:?}");
    assert_eq!(api.call("DELETE", &lock, &[], "").status, 204);
    api.call("DELETE", &lock, &[], "").problem(404);
    let events = house.place.json(&["events", "list", "--resource", &id]);
    assert!(events.as_array().unwrap().iter().any(|event| event["kind"] == "state.unlocked"), "{events}");
    api.succeeded(&running, seconds(60));
    house.is_at_rest();
    house.place.ok(&["states", "rollback", &id, "1"]);
}

#[test]
fn nobody_goes_back_under_a_running_operation() {
    if !quick() {
        nobody_meddles(SQLITE, &tofu());
    }
}

#[test]
fn nobody_goes_back_under_a_running_operation_on_postgresql() {
    if !quick() {
        nobody_meddles(POSTGRES, &terraform());
    }
}

/// With the setting, a state has no more than so many versions, and the newest is always among them.
fn old_versions_go(shape: Shape, tool: &Path) {
    let house = House::with(shape, &[("CONDUCTOR_STATE_VERSIONS", "2")]);
    catalogue(&house, tool);
    let mut id = String::new();
    for text in ["one", "two", "three", "four"] {
        id = deploy(&house, note(text));
    }
    let versions = house.place.json(&["states", "list", &id]);
    let numbers: Vec<i64> =
        versions.as_array().unwrap().iter().filter_map(|one| one["number"].as_i64()).collect();
    assert_eq!(numbers.len(), 2, "{versions}");
    assert!(numbers[0] >= 4 && numbers[1] == numbers[0] - 1, "{versions}");
    assert_eq!(house.place.json(&["states", "get", &id])["outputs"]["note"]["value"], "four");
    assert_eq!(house.place.run(&["states", "get", &id, "1"]).code, 6);
    let back = house.place.json(&["states", "rollback", &id, &numbers[1].to_string()]);
    assert_eq!(back["number"].as_i64(), Some(numbers[0] + 1), "{back}");
    assert_eq!(house.count("SELECT count(*) FROM states"), 2);
}

#[test]
fn old_versions_go_where_that_is_set() {
    if !quick() {
        old_versions_go(SQLITE, &tofu());
    }
    let house = House::new(Shape::Embedded);
    let told = house.place.run_with(&["status"], &[("CONDUCTOR_STATE_VERSIONS", "0")]);
    assert!(told.code == 2 && told.stderr.contains("whole number from 1 on"), "{told:?}");
}

#[test]
fn old_versions_go_where_that_is_set_on_postgresql() {
    if !quick() {
        old_versions_go(POSTGRES, &terraform());
    }
}
