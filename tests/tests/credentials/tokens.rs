//! The token of an operation opens that claim and nothing else, as long as the claim holds.

use conductor_tests::{Api, House, Reply, Score, Shape, eventually, quick, seconds};
use serde_json::{Value, json};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Two things to make, and nobody but the test to make them.
fn two_things(shape: Shape, lease: &str) -> House {
    let house = House::with_lease(shape, lease);
    let mut worker = house.worker();
    house.place.apply_things();
    worker.stop();
    let score = Score::new("web").thing("one", json!({})).thing("two", json!({}));
    house.api().deploy(&score.text());
    house
}

/// Asks for work as a worker would.
fn acquire(api: &Api, slots: usize) -> Vec<Value> {
    ask(api, slots, json!({ "tokens": true }))
}

/// As a worker of the release before would, which knew no tokens of operations.
fn acquire_as_before(api: &Api, slots: usize) -> Vec<Value> {
    ask(api, slots, json!({}))
}

fn ask(api: &Api, slots: usize, more: Value) -> Vec<Value> {
    let mut ask = json!({
        "worker": "wrk_00000000000000000000000001", "name": "by hand",
        "request": uuid::Uuid::now_v7(), "slots": slots, "managers": ["command"], "waitMs": 0,
    });
    ask.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let reply = api.post("/api/v1/worker/acquire", &ask);
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["jobs"].as_array().expect("jobs").clone()
}

fn token(job: &Value) -> &str {
    job["token"].as_str().expect("a token comes with the job")
}

/// Every call there is about a claim.
fn every_call(api: &Api, job: &Value, fence: i64) -> Vec<(String, Reply)> {
    let operation = job["claim"]["operation"].as_str().unwrap();
    let content = job["content"].as_str().unwrap_or_default();
    let failed = json!({ "result": { "failed": { "code": "failed", "message": "by a stranger" } },
        "firstLine": 0, "lines": [] });
    let state = json!({ "serial": 1, "lineage": "x" }).to_string();
    let calls = [
        ("POST", "update", json!({ "firstLine": 0, "lines": [] }).to_string()),
        ("PUT", "blob", "stuff".into()),
        ("GET", "state", String::new()),
        ("PUT", "state", state),
        ("POST", "state/lock", json!({ "ID": "mine" }).to_string()),
        ("POST", "state/unlock", json!({ "ID": "mine" }).to_string()),
        ("POST", "complete", failed.to_string()),
    ];
    let call = |(method, what, body): (&str, &str, String)| {
        let path =
            format!("/api/v1/worker/operations/{operation}/{what}?fence={fence}&digest={content}&lock=mine");
        (format!("{method} {what}"), api.call(method, &path, &JSON, body))
    };
    let files = format!("/api/v1/worker/blobs/{content}?operation={operation}&fence={fence}");
    let mut replies = vec![("GET blob".to_owned(), api.get(&files))];
    replies.extend(calls.map(call));
    replies
}

fn a_token_opens_its_own_operation_alone(shape: Shape) {
    let house = two_things(shape, "30s");
    let pool = house.api().with_token(house.worker_token());
    let jobs = acquire(&pool, 2);
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    let (one, two) = (&jobs[0], &jobs[1]);
    let fence = two["claim"]["fence"].as_i64().unwrap();
    let strangers = [
        ("the other's", token(one)),
        ("the pool's", house.worker_token()),
        ("an administrator's", house.fleet.token.as_str()),
    ];
    for (whose, stranger) in strangers {
        for (call, reply) in every_call(&house.api().with_token(stranger), two, fence) {
            assert_eq!(reply.status, 403, "{call} with {whose} token: {}", reply.text);
        }
    }
    for (call, reply) in every_call(&house.api().with_token(""), two, fence) {
        assert_eq!(reply.status, 401, "{call} without a token: {}", reply.text);
    }
    // It is no token for anything else.
    let holder = house.api().with_token(token(two));
    for path in ["deployments", "outputs?app=web&env=dev&reveal=true", "tokens", "workers"] {
        holder.get(&format!("/api/v1/{path}")).problem(403);
    }
    holder.post("/api/v1/worker/acquire", &json!({})).problem(403);
    // Files of others are not its own either.
    let operation = two["claim"]["operation"].as_str().unwrap();
    let other = holder.get(&format!("/api/v1/worker/blobs/sha256:00?operation={operation}&fence={fence}"));
    assert_eq!(other.status, 409, "{}", other.text);
    for (call, reply) in every_call(&holder, two, fence) {
        assert!(reply.status < 300, "{call} with its own token: {} {}", reply.status, reply.text);
    }
    // Over: the same token opens nothing any more. The same completion again is only told that it was heard.
    for (call, reply) in every_call(&holder, two, fence) {
        let fine = if call == "POST complete" { 204 } else { 410 };
        assert_eq!(reply.status, fine, "{call} after the end: {}", reply.text);
    }
    let text: String = house.fleet.servers.iter().map(|server| server.said()).collect();
    assert!(!text.contains(token(one)) && !text.contains(token(two)), "a token is in the server's log");
}

fn a_token_dies_with_its_lease(shape: Shape) {
    let house = two_things(shape, "1s");
    let pool = house.api().with_token(house.worker_token());
    let before = acquire(&pool, 1).remove(0);
    let fence = before["claim"]["fence"].as_i64().unwrap();
    let holder = house.api().with_token(token(&before));
    let after = eventually("the operation is taken over", seconds(20), || {
        let jobs = acquire(&pool, 2);
        jobs.into_iter().find(|job| job["claim"]["operation"] == before["claim"]["operation"])
    });
    let new_fence = after["claim"]["fence"].as_i64().unwrap();
    assert!(new_fence > fence, "{before} {after}");
    for (call, reply) in every_call(&holder, &before, fence) {
        assert_eq!(reply.status, 410, "{call} with the old claim: {}", reply.text);
    }
    for (call, reply) in every_call(&holder, &before, new_fence) {
        assert_eq!(reply.status, 403, "{call} with the old token for the new claim: {}", reply.text);
    }
    let renewed = every_call(&house.api().with_token(token(&after)), &after, new_fence);
    assert!(renewed.iter().all(|(_, reply)| reply.status < 300), "{renewed:?}");
}

/// Workers of the release before have one token for everything: it goes on to open what they hold, and no more.
fn a_pools_token_opens_what_an_earlier_worker_holds(shape: Shape) {
    let house = two_things(shape, "2s");
    let pool = house.api().with_token(house.worker_token());
    let theirs = acquire_as_before(&pool, 1).remove(0);
    let ours = acquire(&pool, 1).remove(0);
    let fence = |job: &Value| job["claim"]["fence"].as_i64().expect("a fence");
    let next = fence(&theirs) + 1;
    for (whose, job, fence) in [("ours", &ours, fence(&ours)), ("the next claim", &theirs, next)] {
        for (call, reply) in every_call(&pool, job, fence) {
            assert_eq!(reply.status, 403, "{call} about {whose} with the pool's token: {}", reply.text);
        }
    }
    for token in [token(&ours), house.fleet.token.as_str()] {
        for (call, reply) in every_call(&house.api().with_token(token), &theirs, fence(&theirs)) {
            assert_eq!(reply.status, 403, "{call} by a stranger: {}", reply.text);
        }
    }
    // Taken over by a worker of today: the earlier one hears that it lost the claim, and its token opens nothing.
    let taken = eventually("the operation is taken over", seconds(20), || {
        let jobs = acquire(&pool, 2);
        jobs.into_iter().find(|job| job["claim"]["operation"] == theirs["claim"]["operation"])
    });
    for (call, reply) in every_call(&pool, &theirs, fence(&theirs)) {
        assert_eq!(reply.status, 410, "{call} with the old claim: {}", reply.text);
    }
    for (call, reply) in every_call(&pool, &taken, fence(&taken)) {
        assert_eq!(reply.status, 403, "{call} with the new claim: {}", reply.text);
    }
    // And the other way round.
    let back = eventually("the operation is taken back", seconds(20), || {
        let jobs = acquire_as_before(&pool, 2);
        jobs.into_iter().find(|job| job["claim"]["operation"] == theirs["claim"]["operation"])
    });
    for (call, reply) in every_call(&pool, &back, fence(&back)) {
        assert!(reply.status < 300, "{call} with the pool's token: {} {}", reply.status, reply.text);
    }
    // A completion whose answer was lost is told that it was heard.
    for (call, reply) in every_call(&pool, &back, fence(&back)) {
        let fine = if call == "POST complete" { 204 } else { 410 };
        assert_eq!(reply.status, fine, "{call} after the end: {}", reply.text);
    }
}

#[test]
fn the_token_of_a_pool_opens_what_an_earlier_worker_holds() {
    a_pools_token_opens_what_an_earlier_worker_holds(Shape::FleetSqlite { workers: 0 });
}

#[test]
fn the_token_of_a_pool_opens_what_an_earlier_worker_holds_on_postgresql() {
    if !quick() {
        a_pools_token_opens_what_an_earlier_worker_holds(Shape::FleetPostgres { servers: 2, workers: 0 });
    }
}

/// An earlier worker asks for files without saying for which operation.
#[test]
fn files_are_given_to_an_earlier_worker_while_it_holds_what_needs_them() {
    let house = House::with_lease(Shape::FleetSqlite { workers: 0 }, "30s");
    let mut worker = house.worker();
    let place = &house.place;
    place.write_program("catalog/run.sh", "#!/bin/sh\necho '{}'\n");
    place.apply("tool", "kind: Template\nname: tool\ntype: tool\nversion: 1.0.0\nmanager: command\nconfig: { program: ./run.sh, protocol: conductor }\n");
    worker.stop();
    let pool = house.api().with_token(house.worker_token());
    let tool = |app: &str| Score::new(app).with("tool", json!({ "type": "tool" })).text();
    house.api().deploy(&tool("one"));
    let ours = acquire(&pool, 1).remove(0);
    let content = ours["content"].as_str().expect("it has files").to_owned();
    let files = |api: &Api| api.call("GET", &format!("/api/v1/worker/blobs/{content}"), &[], "").status;
    assert_eq!(files(&pool), 404, "nobody of the release before is at work");
    house.api().deploy(&tool("two"));
    let theirs = acquire_as_before(&pool, 1).remove(0);
    assert_eq!(theirs["content"], ours["content"]);
    assert_eq!(files(&pool), 200);
    assert_eq!(pool.get("/api/v1/worker/blobs/sha256:00").status, 404);
    assert_eq!(files(&house.api()), 403);
    assert_eq!(files(&house.api().with_token(token(&ours))), 403);
}

#[test]
fn the_token_of_an_operation_opens_that_one_alone() {
    a_token_opens_its_own_operation_alone(Shape::FleetSqlite { workers: 0 });
}

#[test]
fn the_token_of_an_operation_opens_that_one_alone_on_postgresql() {
    if !quick() {
        a_token_opens_its_own_operation_alone(Shape::FleetPostgres { servers: 1, workers: 0 });
    }
}

#[test]
fn the_token_of_an_operation_dies_with_its_lease() {
    a_token_dies_with_its_lease(Shape::FleetSqlite { workers: 0 });
}

#[test]
fn the_token_of_an_operation_dies_with_its_lease_on_postgresql() {
    if !quick() {
        a_token_dies_with_its_lease(Shape::FleetPostgres { servers: 2, workers: 0 });
    }
}
