//! Backends of the environment's own.

use std::path::Path;

use conductor_tests::{House, Shape, postgres, quick, terraform, tofu};
use serde_json::{Value, json};

use super::{POSTGRES, catalogue, deploy, note};

fn environment(state: &Value) -> String {
    json!({ "kind": "Environment", "name": "dev", "type": "development", "state": state }).to_string()
}

fn elsewhere(shape: Shape, tool: &Path, state: &Value, backend: &str, prefix: &str) -> House {
    let house = House::new(shape);
    let place = &house.place;
    place.apply("environment", &environment(state));
    catalogue(&house, tool);
    let id = deploy(&house, json!({ "note": "one", "hush": "very-secret" }));
    assert_eq!(place.outputs("web", true)["notes"], json!({ "note": "one", "hush": "very-secret" }));
    let location = place.json(&["resources", "get", &id])["stateLocation"].clone();
    assert_eq!(location["backend"], backend);
    let address = location["location"].as_str().unwrap();
    assert!(address.starts_with(prefix) && address.contains("notes-"), "{address}");
    assert_eq!(house.count("SELECT count(*) FROM states"), 0);
    deploy(&house, note("two"));
    assert_eq!(place.outputs("web", true)["notes"]["note"], "two");
    assert_eq!(place.json(&["states", "list", &id]), json!([]));
    let told = place.run(&["states", "get", &id, "1"]);
    assert!(told.code == 6 && told.stderr.contains(backend), "{told:?}");
    // What is there must not be lost sight of.
    let plain = place.write("plain.yaml", json!({ "kind": "Environment", "name": "dev" }).to_string());
    let told = place.run(&["apply", "-f", &plain.display().to_string()]);
    assert!(told.code == 1 && told.stderr.contains("would not be found elsewhere"), "{told:?}");
    house
}

fn pg(shape: Shape, tool: &Path) {
    let database = postgres().database();
    let state =
        json!({ "backend": "pg", "config": { "conn_str": format!("{}?sslmode=disable", database.url) } });
    let house = elsewhere(shape, tool, &state, "pg", "postgres://127.0.0.1:");
    let schemas = "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'dev/%notes-%'";
    assert_eq!(database.query(schemas).len(), 1);
    let password = database.url.split([':', '@']).nth(2).unwrap().to_owned();
    for args in [&["resources", "list"][..], &["envs", "get", "dev"], &["events", "list"]] {
        assert!(!house.place.json(args).to_string().contains(&password), "{args:?}");
    }
    assert_eq!(
        house.count(&format!("SELECT count(*) FROM environments WHERE document LIKE '%{password}%'")),
        0
    );
    house.place.destroy("web");
    house.is_at_rest();
}

#[test]
fn states_can_be_in_a_postgresql_of_the_environment() {
    if !quick() {
        pg(Shape::Embedded, &tofu());
    }
}

#[test]
fn states_can_be_in_a_postgresql_of_the_environment_for_a_fleet() {
    if !quick() {
        pg(POSTGRES, &terraform());
    }
}

#[test]
fn states_can_be_in_any_backend_that_terraform_knows() {
    if quick() {
        return;
    }
    for tool in [tofu(), terraform()] {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("{}/{{environment}}/{{slug}}.tfstate", folder.path().display());
        let state = json!({ "backend": "custom", "type": "local", "config": { "path": path } });
        let prefix = format!("file://{}/dev/", folder.path().display());
        let house = elsewhere(Shape::Embedded, &tool, &state, "local", &prefix);
        let kept = std::fs::read_dir(folder.path().join("dev")).unwrap().count();
        assert!(kept >= 1);
        house.place.destroy("web");
        // Nothing is there any more: the environment may keep its states elsewhere.
        house.place.apply("plain", &json!({ "kind": "Environment", "name": "dev" }).to_string());
    }
}

#[test]
fn a_backend_that_cannot_work_is_refused_when_it_is_applied() {
    let house = House::new(Shape::Embedded);
    let cases = [
        (json!({ "backend": "s4" }), "did you mean `s3`"),
        (json!({ "backend": "s3", "config": {} }), "config.bucket"),
        (json!({ "backend": "s3", "config": { "bucket": "b", "key": "one" } }), "share one state"),
        (json!({ "backend": "custom", "config": {} }), "name terraform's backend"),
        (json!({ "backend": "pg", "conf": {} }), "unknown field"),
    ];
    for (state, why) in cases {
        let file = house.place.write("wrong.yaml", environment(&state));
        let told = house.place.run(&["apply", "-f", &file.display().to_string()]);
        assert!(told.code == 1 && told.stderr.contains(why), "{state}: {told:?}");
    }
}
