//! The whole life of a resource: made, agreed to, changed, renamed, failed, found changed by others, shared, torn down,
//! forgotten; and what cannot be done to it, and why.
//!
//! Every story is told on SQLite under `conductor up` and on PostgreSQL with a server and a worker.

mod agreement;
mod agreement_by_the_back_door;
mod drift;
mod family;
mod machines;
mod rename;
mod steps;
mod teardown;
mod variables;
mod workflows;

use conductor_tests::{Api, House, Place, Reply, Shape, eventually, seconds};
use serde_json::{Value, json};

fn up() -> House {
    House::new(Shape::Up { workers: 0 })
}

fn fleet() -> House {
    House::new(Shape::FleetPostgres { servers: 1, workers: 1 })
}

/// Tells each story in a house of its own, on SQLite and on PostgreSQL.
macro_rules! stories {
    ($($name:ident)+) => {
        mod on_sqlite {
            $(#[test]
            fn $name() {
                super::$name(&crate::life::up());
            })+
        }
        mod on_postgresql {
            $(#[test]
            fn $name() {
                if !conductor_tests::quick() {
                    super::$name(&crate::life::fleet());
                }
            })+
        }
    };
}
use stories;

/// A thing that can be looked at, and what a test adds to its parameters, four spaces deep, and to its document.
#[track_caller]
fn things(place: &Place, more: &str) {
    place.apply(
        "thing",
        &place.world.template("thing", &format!("    watched: {{ type: boolean, default: true }}\n{more}")),
    );
}

/// `dev`, where somebody has to agree: `{ create: required }` and so on.
#[track_caller]
fn approval(place: &Place, terms: &str) {
    place.apply("dev", &format!("kind: Environment\nname: dev\ntype: development\napproval: {terms}\n"));
}

/// Whatever is made, changed or destroyed in `dev` needs somebody's agreement.
#[track_caller]
fn strict(place: &Place) {
    approval(place, "{ create: required, update: required, destroy: required }");
}

/// Somebody with a token of their own.
#[track_caller]
fn somebody(house: &House, role: &str, name: &str) -> Api {
    let made = house.place.json(&["tokens", "create", "--role", role, "--name", name]);
    house.api().with_token(made["token"].as_str().expect("a token"))
}

#[track_caller]
fn get(house: &House, resource: &str) -> Value {
    let reply = house.api().get(&format!("/api/v1/resources/{resource}"));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// Where a resource is in its life, and what is happening to it.
#[track_caller]
fn pair(house: &House, resource: &str) -> String {
    let seen = get(house, resource);
    format!("{}/{}", text(&seen, "state"), text(&seen, "status"))
}

/// Waits until a resource is there, in state and status.
#[track_caller]
fn becomes(house: &House, resource: &str, expected: &str) {
    let mut last = String::new();
    let began = std::time::Instant::now();
    while last != expected {
        last = pair(house, resource);
        assert!(began.elapsed() < seconds(40), "{last}, not {expected}: {}", get(house, resource));
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
}

/// Waits until a resource is there, in state and status, and in the one word for both.
#[track_caller]
fn is(house: &House, resource: &str, expected: &str, phase: &str) {
    becomes(house, resource, expected);
    assert_eq!(get(house, resource)["phase"], phase);
}

#[track_caller]
fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap_or_else(|| panic!("no {name}: {document}")).to_owned()
}

/// What is done to a resource by hand: `destroy`, `recreate`, `retry`.
#[track_caller]
fn act(api: &Api, resource: &str, deed: &str) -> Reply {
    api.post(&format!("/api/v1/resources/{resource}/{deed}"), &json!({}))
}

/// As [`act`], which is accepted; the change that does it.
#[track_caller]
fn accepted(reply: &Reply) -> String {
    assert_eq!(reply.status, 202, "{}", reply.text);
    text(&reply.json()["deployment"], "id")
}

/// Asks for a resource from a template, by hand in `dev`.
#[track_caller]
fn ask_for(api: &Api, template: &str, name: &str, parameters: Value) -> Reply {
    let body = json!({ "template": template, "name": name, "environment": "dev", "parameters": parameters });
    api.post("/api/v1/resources", &body)
}

/// Makes a thing by hand, and waits until it is there.
#[track_caller]
fn made(house: &House, name: &str, parameters: Value) -> String {
    let id = made_soon(&house.api(), name, parameters);
    becomes(house, &id, "provisioned/done");
    id
}

/// As [`made`], without waiting.
#[track_caller]
fn made_soon(api: &Api, name: &str, parameters: Value) -> String {
    let reply = ask_for(api, "thing", name, parameters);
    assert_eq!(reply.status, 202, "{}", reply.text);
    text(&reply.json()["resource"], "id")
}

/// What waits for somebody's answer.
#[track_caller]
fn waiting(house: &House) -> Vec<Value> {
    let reply = house.api().get("/api/v1/approvals?status=pending");
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()["items"].as_array().expect("a list").clone()
}

/// The one request that waits for an answer.
#[track_caller]
fn request(house: &House) -> Value {
    let mut all = eventually("somebody is asked", seconds(20), || {
        Some(waiting(house)).filter(|waiting| !waiting.is_empty())
    });
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[track_caller]
fn decide(api: &Api, request: &Value, word: &str, comment: &str) -> Reply {
    let path = format!("/api/v1/approvals/{}/{word}", text(request, "id"));
    let comment = if comment.is_empty() { Value::Null } else { comment.into() };
    api.post(&path, &json!({ "comment": comment }))
}

#[track_caller]
fn approve(api: &Api, request: &Value) {
    let reply = decide(api, request, "approve", "");
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[track_caller]
fn reject(api: &Api, request: &Value) {
    let reply = decide(api, request, "reject", "not today");
    assert_eq!(reply.status, 200, "{}", reply.text);
}

/// A change as it is told.
#[track_caller]
fn change(house: &House, id: &str) -> Value {
    let reply = house.api().get(&format!("/api/v1/deployments/{id}"));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}

/// Waits for the end of a change.
#[track_caller]
fn ends(house: &House, id: &str, status: &str) -> Value {
    let over = ["succeeded", "failed", "cancelled", "timed_out"];
    let end = eventually("the change ends", seconds(60), || {
        Some(change(house, id)).filter(|seen| over.contains(&text(seen, "status").as_str()))
    });
    assert_eq!(end["status"], status, "{end}");
    end
}

/// Waits until a change is at rest for somebody's agreement.
#[track_caller]
fn rests(house: &House, id: &str) {
    eventually("it waits for an answer", seconds(30), || {
        (change(house, id)["status"] == "approval_pending").then_some(())
    });
}

/// Deploys without waiting; which change that is.
#[track_caller]
fn deploy_soon(api: &Api, score: &str) -> String {
    let reply = api.post("/api/v1/deployments", &json!({ "environment": "dev", "manifest": score }));
    assert!(matches!(reply.status, 200..=202), "{} {}", reply.status, reply.text);
    text(&reply.json(), "id")
}

/// The application leaves without waiting; which change that is.
#[track_caller]
fn leave_soon(api: &Api, application: &str) -> String {
    let body = json!({ "environment": "dev", "application": application });
    let reply = api.post("/api/v1/destroys", &body);
    assert!(matches!(reply.status, 200..=202), "{} {}", reply.status, reply.text);
    text(&reply.json(), "id")
}

/// What a document says of a requirement.
#[track_caller]
fn item<'a>(document: &'a Value, requirement: &str) -> &'a Value {
    let list = |name: &str| document[name].as_array().into_iter().flatten();
    let found = list("resources").chain(list("removals")).find(|item| item["requirement"] == requirement);
    found.unwrap_or_else(|| panic!("nothing is said of {requirement}: {document}"))
}

/// What was done for a requirement, and which resource serves it.
#[track_caller]
fn served(document: &Value, requirement: &str) -> (String, String) {
    let item = item(document, requirement);
    (text(item, "action"), text(item, "resource"))
}

/// The steps that came to a good end, each with its note.
fn done(place: &Place) -> Vec<String> {
    place.world.done().into_iter().map(|(step, note)| format!("{step} {note}").trim().to_owned()).collect()
}

/// The audit trail, which holds.
#[track_caller]
fn audit(house: &House) -> String {
    let report = house.api().get("/api/v1/audit/verify");
    assert_eq!(report.status, 200, "{}", report.text);
    let trail = house.api().get("/api/v1/audit?limit=200");
    assert_eq!(trail.status, 200, "{}", trail.text);
    trail.text
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "nothing says `{word}`: {text}");
    }
}
