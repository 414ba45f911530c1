//! Create or reuse, in every word of the dialect: who shares what with whom, on which terms and for how long; and what
//! is refused, saying what is wrong, where, and what to write instead.
//!
//! Every story is told on SQLite and on PostgreSQL with a server and a worker. On SQLite the engine is embedded in the
//! commands; where something has to happen by itself, it is `conductor up`.

mod by_hand;
mod contracts;
mod days;
mod explain;
mod grace;
mod graph;
mod keeping;
mod pools;
mod refusals;
mod requires;
mod samples;
mod terms;

use conductor_tests::{House, Place, Score, Shape};
use serde_json::{Map, Value, json};

fn embedded() -> House {
    House::new(Shape::Embedded)
}

fn up() -> House {
    House::new(Shape::Up { workers: 0 })
}

fn fleet() -> House {
    House::new(Shape::FleetPostgres { servers: 1, workers: 1 })
}

/// Tells each story in a house of its own: embedded or under `up`, and on PostgreSQL.
macro_rules! stories {
    ($($shape:ident: $($name:ident)+);+) => {
        mod on_sqlite {
            $($(#[test]
            fn $name() {
                super::$name(&crate::sharing::$shape());
            })+)+
        }
        mod on_postgresql {
            $($(#[test]
            fn $name() {
                if !conductor_tests::quick() {
                    super::$name(&crate::sharing::fleet());
                }
            })+)+
        }
    };
}
use stories;

/// Applies a template that the ledger-keeping program serves: further properties four spaces deep, then further keys
/// of the document.
#[track_caller]
fn template(place: &Place, name: &str, more: &str) {
    place.apply(name, &place.world.template(name, more));
}

/// As [`template`], several at once.
#[track_caller]
fn templates(place: &Place, templates: &[(&str, &str)]) {
    let texts: Vec<String> = templates.iter().map(|(name, more)| place.world.template(name, more)).collect();
    place.apply("templates", &texts.join("---\n"));
}

/// A thing with a note, asked for in some way.
fn thing(note: &str, way: Value) -> Value {
    asked("thing", json!({ "note": note }), way)
}

/// A resource of a type and with parameters, asked for in some way.
fn asked(kind: &str, params: Value, way: Value) -> Value {
    let mut resource = conductor_tests::resource(kind, params);
    let words = way.as_object().cloned().unwrap_or_default();
    resource.as_object_mut().expect("a map").extend(words);
    resource
}

/// An application that asks for one resource, `db`.
fn wants(application: &str, resource: Value) -> String {
    Score::new(application).with("db", resource).text()
}

/// A command with a Score file, in an environment.
#[track_caller]
fn on(place: &Place, command: &str, environment: &str, score: &str) -> Value {
    let file = place.write("score.yaml", score).display().to_string();
    place.json(&[command, "-f", &file, "--env", environment])
}

#[track_caller]
fn leave(place: &Place, application: &str, environment: &str) -> Value {
    place.json(&["destroy", "--app", application, "--env", environment, "--yes"])
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
    let text = |name: &str| item[name].as_str().expect("a text").to_owned();
    (text("action"), text("resource"))
}

/// Deploys to `dev`; what was done for `db`, and which resource serves it.
#[track_caller]
fn db(place: &Place, score: &str) -> (String, String) {
    served(&place.deploy(score), "db")
}

/// As [`db`], where it must have been made.
#[track_caller]
fn made(place: &Place, score: &str) -> String {
    let (action, id) = db(place, score);
    assert_eq!(action, "create");
    id
}

/// As [`db`], where it must have been there.
#[track_caller]
fn reused(place: &Place, score: &str) -> String {
    let (action, id) = db(place, score);
    assert_eq!(action, "reuse");
    id
}

#[track_caller]
fn reason(document: &Value, requirement: &str) -> String {
    item(document, requirement)["reason"].as_str().expect("a reason").to_owned()
}

/// A resource as it is told over HTTP, or by the command where no server runs.
#[track_caller]
fn get(house: &House, resource: &str) -> Value {
    match house.fleet.urls.is_empty() {
        true => house.place.json(&["resources", "get", resource]),
        false => house.api().get(&format!("/api/v1/resources/{resource}")).json(),
    }
}

/// The applications that use a resource, in the order of their names.
#[track_caller]
fn users(house: &House, resource: &str) -> Vec<String> {
    let resource = get(house, resource);
    let name = |one: &Value| one["application"].as_str().expect("a name").to_owned();
    let mut names: Vec<String> = resource["consumers"].as_array().expect("a list").iter().map(name).collect();
    names.sort_unstable();
    names
}

/// How often each step was run to a good end.
fn steps(place: &Place) -> Map<String, Value> {
    let mut counts = Map::new();
    for step in place.world.steps() {
        let count = counts.get(&step).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(step, (count + 1).into());
    }
    counts
}

#[track_caller]
fn ran(place: &Place, expected: Value) {
    assert_eq!(Value::Object(steps(place)), expected);
}

/// Deploys what must be refused, and finds these words in what is said; nothing is made.
#[track_caller]
fn refused(house: &House, score: &str, words: &[&str]) {
    let place = &house.place;
    let record = || (house.count("SELECT count(*) FROM resources"), place.world.runs().len());
    let before = record();
    let file = place.write("refused.yaml", score).display().to_string();
    let told = place.run(&["deploy", "-f", &file, "--env", "dev"]);
    assert!(matches!(told.code, 1 | 6), "{told:?}");
    says(&told.all(), words);
    assert_eq!(record(), before, "something was made");
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "nothing says `{word}`: {text}");
    }
}

/// Everybody leaves `dev`, and nothing is left.
#[track_caller]
fn all_leave(house: &House, applications: &[&str]) {
    for application in applications {
        leave(&house.place, application, "dev");
    }
    house.is_empty();
}
