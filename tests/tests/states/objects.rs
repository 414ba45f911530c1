//! Bodies outside the database.

use std::time::SystemTime;

use conductor_tests::{House, Shape, eventually, quick, seconds, terraform, tofu};
use serde_json::json;

use super::{POSTGRES, SQLITE, catalogue, deploy};

fn store(house: &House) -> String {
    format!("file://{}", house.place.path("bodies").display())
}

fn outside(shape: Shape, tool: &std::path::Path) {
    let house = House::prepared(shape, |place| {
        place.set("CONDUCTOR_STATE_STORE", &format!("file://{}", place.path("bodies").display()));
    });
    let place = &house.place;
    catalogue(&house, tool);
    let id = deploy(&house, json!({ "note": "one-note", "hush": "very-secret" }));
    let location = place.json(&["resources", "get", &id])["stateLocation"].clone();
    assert_eq!(location["backend"], "conductor");
    let address = location["location"].as_str().unwrap();
    assert!(address.starts_with(&format!("{}/org_", store(&house))), "{address}");
    let body = std::fs::read(address.strip_prefix("file://").unwrap()).expect("the body");
    for secret in ["one-note", "very-secret", "serial"] {
        assert!(!body.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} can be read");
    }
    assert_eq!(house.count("SELECT count(*) FROM states WHERE length(body) > 0 OR object IS NULL"), 0);
    assert_eq!(place.json(&["states", "get", &id])["outputs"]["note"]["value"], "one-note");
    deploy(&house, json!({ "note": "two" }));
    place.ok(&["states", "rollback", &id, "1"]);
    deploy(&house, json!({ "note": "three" }));
    place.destroy("web");
}

#[test]
fn bodies_can_be_in_a_folder() {
    if !quick() {
        outside(Shape::Embedded, &tofu());
    }
}

#[test]
fn bodies_can_be_in_a_folder_on_postgresql() {
    if !quick() {
        outside(POSTGRES, &terraform());
    }
}

/// A write that came to nothing leaves an object; after a day it goes, and nothing else does.
#[test]
fn what_nobody_refers_to_is_swept() {
    let house = House::prepared(SQLITE, |place| {
        place.set("CONDUCTOR_STATE_STORE", &format!("file://{}", place.path("bodies").display()));
    });
    let state = json!({ "version": 4, "serial": 1, "lineage": "l" }).to_string();
    assert_eq!(house.api().call("POST", "/api/v1/state/kept", &[], state).status, 200);
    let kept: Vec<_> =
        house.place.files().into_iter().filter(|path| path.starts_with(house.place.path("bodies"))).collect();
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    let (old, young) = (kept.with_file_name("orphan"), kept.with_file_name("young"));
    let stranger = house.place.path("bodies/org_other/thing");
    std::fs::create_dir_all(stranger.parent().unwrap()).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH;
    for path in [&old, &young, &stranger] {
        std::fs::write(path, "x").unwrap();
    }
    for path in [&old, &stranger, kept] {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(long_ago).unwrap();
    }
    // It looks once an hour, and when it starts.
    let mut house = house;
    house.fleet.servers[0].stop();
    house.fleet.servers[0] = house.start_server(SQLITE, 0);
    eventually("the orphan is swept", seconds(20), || (!old.exists()).then_some(()));
    assert!(kept.exists() && young.exists() && stranger.exists());
    assert_eq!(house.api().get("/api/v1/state/kept").json()["serial"], 1);
}

#[test]
fn a_store_that_cannot_be_used_is_told() {
    let house = House::new(Shape::Embedded);
    for (url, why) in [("bodies", "is no address"), ("ftp://x", "is no kind"), ("file://x", "not absolute")] {
        let told = house.place.run_with(&["status"], &[("CONDUCTOR_STATE_STORE", url)]);
        assert!(told.code != 0 && told.stderr.contains(why), "{url}: {told:?}");
    }
}
