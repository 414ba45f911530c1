//! A new version beside the one before it: the database is migrated while the old one works on, old and new servers
//! and workers serve together, and the old ones leave when they have finished.

use conductor_tests::{House, Place, Score, Shape, earlier_release, eventually, quick, seconds};
use serde_json::json;

const FLEET: Shape = Shape::FleetPostgres { servers: 2, workers: 0 };

fn thing(application: &str, note: &str) -> String {
    Score::new(application).thing("db", json!({ "note": note })).text()
}

#[test]
fn an_installation_is_upgraded_while_it_works() {
    if quick() {
        return;
    }
    // Two servers of the old release, one worker.
    let mut house = House::of_release(FLEET, "5s", earlier_release());
    let old_worker = house.worker();
    house.place.apply_things();
    let api = house.api();
    let before = api.deploy(&thing("before", "one"));
    api.succeeded(&before, seconds(60));
    let during = api.deploy(&Score::new("during").thing("db", json!({ "sleep": 3 })).text());

    // The new version migrates, and replaces one of the servers.
    house.place.use_this_release();
    let database = house.database.as_ref().expect("a database").url.clone();
    house.place.set("CONDUCTOR_DATABASE_URL", &database);
    house.place.ok(&["migrate"]);
    house.place.unset("CONDUCTOR_DATABASE_URL");
    house.fleet.servers[1].stop();
    house.fleet.servers[1] = house.start_server(FLEET, 1);

    // The old server and worker go on: what ran ends well, what is new is done.
    api.succeeded(&during, seconds(60));
    let old_way = api.deploy(&thing("old-way", "two"));
    api.succeeded(&old_way, seconds(60));
    // The new server is served by the old worker's release as well.
    house.place.use_release(earlier_release());
    let old_at_new = house.start_worker(&house.fleet.urls[1].clone());
    house.place.use_this_release();
    drop(old_worker);
    let mixed = house.api_at(1).deploy(&thing("mixed", "three"));
    house.api_at(1).succeeded(&mixed, seconds(60));

    // The last of the old ones leave; the new ones know everything that was done.
    let _new_worker = house.start_worker(&house.fleet.urls[1].clone());
    drop(old_at_new);
    house.fleet.servers[0].stop();
    house.fleet.servers[0] = house.start_server(FLEET, 0);
    for application in ["before", "during", "old-way", "mixed"] {
        let gone = house.place.destroy(application);
        assert_eq!(gone["status"], "succeeded", "{gone}");
    }
    house.is_empty();
}

#[test]
fn a_folder_of_the_earlier_release_is_opened_by_this_one_and_by_the_earlier_one_again() {
    if quick() {
        return;
    }
    let place = Place::new();
    place.use_release(earlier_release());
    place.apply_things();
    place.deploy(&thing("one", "x"));
    place.use_this_release();
    let same = place.deploy(&thing("one", "x"));
    assert_eq!(same["resources"][0]["action"], "none", "{same}");
    place.deploy(&thing("two", "y"));
    place.use_release(earlier_release());
    place.deploy(&thing("three", "z"));
    for application in ["one", "two", "three"] {
        place.destroy(application);
    }
    eventually("nothing is left", seconds(10), || place.world.things().is_empty().then_some(()));
}
