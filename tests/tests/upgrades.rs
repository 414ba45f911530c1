//! A new version beside the one before it: the database is migrated while the old one works on, old and new servers
//! and workers serve together, and the old ones leave when they have finished. Nothing is lost and nothing done twice.

use std::time::Instant;

use conductor_api::types::Deployment;
use conductor_tests::{
    Api, Gate, House, Place, Running, Score, Shape, earlier_release, eventually, quick, seconds, tofu,
};
use serde_json::json;

const POSTGRES: Shape = Shape::FleetPostgres { servers: 2, workers: 0 };
const SQLITE: Shape = Shape::FleetSqlite { workers: 0 };
const LEASE: &str = "20s";

const MODULE: &str = r#"
variable "size" {
  type = string
}
resource "terraform_data" "size" {
  input = var.size
}
output "size" {
  value = terraform_data.size.output
}
"#;

/// An installation of the earlier release, with a template that has files and keeps a state, and one whose program
/// keeps a ledger.
fn installation(shape: Shape) -> House {
    let house = House::of_release(shape, LEASE, &earlier_release());
    let mut worker = house.worker();
    house.place.apply_things();
    house.place.write("catalog/net/main.tf", MODULE);
    house.place.apply(
        "net",
        &format!(
            "kind: Template\nname: net\ntype: net\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./net, tool: {} }}\n",
            tofu().display()
        ),
    );
    worker.stop();
    house
}

fn score(application: &str, size: &str, takes: f64) -> String {
    Score::new(application)
        .thing("db", json!({ "note": size, "takes": takes }))
        .with("net", json!({ "type": "net", "params": { "size": size } }))
        .text()
}

fn deployed(api: &Api, application: &str, size: &str) {
    let deployment = api.deploy(&score(application, size, 0.0));
    api.succeeded(&deployment, seconds(60));
}

/// Something long, that has begun.
fn under_way(house: &House, api: &Api, application: &str) -> Deployment {
    let deployment = api.deploy(&score(application, "slow", 3.0));
    house.place.world.wait_for_a_run();
    deployment
}

/// A worker that is told to go while it works finishes that first.
fn leaves(worker: &mut Running, api: &Api, work: &Deployment) {
    worker.terminate();
    let status = worker.wait(seconds(30));
    assert!(status.success(), "{status}: {}", worker.said());
    api.succeeded(work, seconds(60));
}

fn worker_of(house: &House, release: Release, url: &str) -> Running {
    match release {
        Release::Earlier => house.place.use_release(&earlier_release()),
        Release::This => house.place.use_this_release(),
    }
    let worker = house.start_worker(url);
    house.place.use_this_release();
    worker
}

#[derive(Clone, Copy)]
enum Release {
    Earlier,
    This,
}

/// Every thing was made once, no claim was ever lost, and what is there can be taken away again.
fn nothing_lost_nothing_twice(house: &House, applications: &[&str]) {
    let world = &house.place.world;
    world.never_two_at_once();
    assert_eq!(world.begun("create"), applications.len(), "{:?}", world.runs());
    let again = house.database.as_ref().map(|database| database.query("SELECT outcome, error FROM attempts"));
    assert_eq!(house.count("SELECT count(*) FROM attempts"), 0, "something was tried again: {again:?}");
    for application in applications {
        let outputs = house.place.outputs(application, true);
        let size = &outputs["net"]["size"];
        assert!(size.is_null() || *size == outputs["db"]["note"], "{application}: {outputs}");
    }
    for application in applications {
        let gone = house.place.destroy(application);
        assert_eq!(gone["status"], "succeeded", "{gone}");
    }
    house.is_empty();
    assert_eq!(world.begun("delete"), applications.len());
}

#[test]
fn an_installation_is_upgraded_while_it_works() {
    if quick() {
        return;
    }
    let mut house = installation(POSTGRES);
    let urls = house.fleet.urls.clone();
    let (old_server, new_server) = (house.api_at(0), house.api_at(1));
    let mut old_worker = worker_of(&house, Release::Earlier, &urls[0]);
    deployed(&old_server, "before", "one");

    // The new version migrates while there is work under way, and replaces one of the servers.
    let during = under_way(&house, &old_server, "during");
    let database = house.database.as_ref().expect("a database").url.clone();
    let key = house.place.path("key").display().to_string();
    let settings = [("CONDUCTOR_DATABASE_URL", database.as_str()), ("CONDUCTOR_KEY_FILE", &key)];
    let told = house.place.run_with(&["migrate"], &settings);
    assert_eq!(told.code, 0, "{told:?}");
    house.fleet.servers[1].stop();
    house.fleet.servers[1] = house.start_server(POSTGRES, 1);

    // The old server and the old worker go on, on the new schema.
    old_server.succeeded(&during, seconds(60));
    deployed(&old_server, "old-on-old", "two");

    // An old worker at the new server.
    let work = under_way(&house, &old_server, "leaving-one");
    leaves(&mut old_worker, &old_server, &work);
    let mut old_worker = worker_of(&house, Release::Earlier, &urls[1]);
    deployed(&new_server, "old-on-new", "three");
    deployed(&new_server, "before", "four");
    let work = under_way(&house, &new_server, "leaving-two");
    leaves(&mut old_worker, &new_server, &work);

    // A new worker at the old server.
    let mut new_worker = worker_of(&house, Release::This, &urls[0]);
    deployed(&old_server, "new-on-old", "five");
    deployed(&old_server, "old-on-new", "six");
    let work = under_way(&house, &old_server, "leaving-three");
    leaves(&mut new_worker, &old_server, &work);

    // All of them behind one address, where no two calls about a claim reach the same server.
    let balancer = Gate::spreading(&urls);
    let mut old_worker = worker_of(&house, Release::Earlier, &balancer.url);
    let _new_worker = worker_of(&house, Release::This, &balancer.url);
    let together = ["both-a", "both-b", "both-c", "both-d", "both-e", "both-f"];
    let asked: Vec<Deployment> = together
        .iter()
        .zip([&old_server, &new_server].into_iter().cycle())
        .map(|(application, api)| api.deploy(&score(application, "seven", 1.0)))
        .collect();
    for deployment in &asked {
        new_server.succeeded(deployment, seconds(60));
    }
    let did = "SELECT count(DISTINCT worker_id) FROM operations o JOIN changes c ON c.id = o.change_id
        JOIN applications a ON a.id = c.application_id WHERE a.name LIKE 'both-%'";
    assert_eq!(house.count(did), 2, "one worker did it all");

    // The last of the old ones leave, with work under way.
    let work = under_way(&house, &new_server, "leaving-four");
    leaves(&mut old_worker, &new_server, &work);
    house.fleet.servers[0].stop();
    house.fleet.servers[0] = house.start_server(POSTGRES, 0);
    let all = [
        &["before", "during", "old-on-old", "old-on-new", "new-on-old"],
        &["leaving-one", "leaving-two", "leaving-three", "leaving-four"][..],
        &together[..],
    ];
    nothing_lost_nothing_twice(&house, &all.concat());
}

/// One file takes one server at a time: it is replaced under a worker that is at work.
#[test]
fn a_server_on_sqlite_is_replaced_under_the_worker_of_the_earlier_release() {
    if quick() {
        return;
    }
    let mut house = installation(SQLITE);
    let url = house.fleet.urls[0].clone();
    let api = house.api();
    let mut old_worker = worker_of(&house, Release::Earlier, &url);
    deployed(&api, "before", "one");
    // For some seconds there is no server at all: the worker keeps its result and hands it in.
    let during = api.deploy(&Score::new("during").thing("db", json!({ "takes": 3 })).text());
    house.place.world.wait_for_a_run();
    house.fleet.servers[0].stop();
    house.fleet.servers[0] = house.start_server(SQLITE, 0);
    api.succeeded(&during, seconds(60));
    deployed(&api, "after", "two");
    let _new_worker = worker_of(&house, Release::This, &url);
    let work = under_way(&house, &api, "leaving");
    leaves(&mut old_worker, &api, &work);
    deployed(&api, "before", "three");
    nothing_lost_nothing_twice(&house, &["before", "during", "after", "leaving"]);
}

#[test]
fn a_folder_of_the_earlier_release_is_opened_by_this_one_and_by_the_earlier_one_again() {
    if quick() {
        return;
    }
    let thing = |application: &str| Score::new(application).thing("db", json!({ "note": "x" })).text();
    let place = Place::new();
    place.use_release(&earlier_release());
    place.apply_things();
    place.deploy(&thing("one"));
    place.use_this_release();
    let same = place.deploy(&thing("one"));
    assert_eq!(same["resources"][0]["action"], "none", "{same}");
    place.deploy(&thing("two"));
    place.use_release(&earlier_release());
    place.deploy(&thing("three"));
    for application in ["one", "two", "three"] {
        place.destroy(application);
    }
    eventually("nothing is left", seconds(10), || place.world.things().is_empty().then_some(()));
}

/// A worker that has nothing to do keeps a request open for work to come; nobody waits for that.
#[test]
fn a_server_leaves_without_waiting_for_workers_that_have_nothing_to_do() {
    let mut house = House::new(Shape::FleetSqlite { workers: 1 });
    eventually("the worker is there", seconds(20), || {
        (!house.place.json(&["workers", "list"]).as_array()?.is_empty()).then_some(())
    });
    let began = Instant::now();
    assert!(house.fleet.servers[0].stop().success());
    assert!(began.elapsed() < seconds(5), "{:?}", began.elapsed());
}
