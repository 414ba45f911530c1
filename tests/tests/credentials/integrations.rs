//! Integrations: handed to those who ask, to nobody else, and seen nowhere.

use std::{fs, os::unix::fs::PermissionsExt};

use conductor_tests::{House, Score, Shape, postgres, quick, resource, seconds};
use serde_json::{Value, json};

use super::{apply, seen, teller};

const KEY: &str = "key-of-all-4711-keys";
const IN_FILE: &str = "written-in-the-file-0815";
const OWN: &str = "of-the-worker-itself-1234";

fn demo() -> Value {
    json!({
        "kind": "Integration", "name": "demo", "provider": "cloud",
        "variables": { "DEMO_KEY": KEY, "DEMO_FILE": "${files}/.demo/credentials" },
        "settings": { "DEMO_REGION": "north" },
        "files": { ".demo/credentials": IN_FILE },
        "test": { "command": ["sh", "-c", "echo trying $DEMO_KEY >&2; test \"$DEMO_REGION\" = north"] },
    })
}

fn asking(kind: &str) -> Score {
    Score::new("web").with("one", resource(kind, json!({})))
}

fn handed_to_those_who_ask(shape: Shape) {
    let house = House::new(shape);
    let place = &house.place;
    teller(place, "asks", "integrations: [demo]\n");
    teller(place, "by-provider", "integrations: [cloud]\n");
    teller(place, "does-not", "");

    // Missing: the plan is refused and names it.
    let refused = house
        .api()
        .post("/api/v1/plans", &json!({ "environment": "dev", "manifest": asking("asks").text() }));
    let problem = refused.problem(422);
    assert!(problem["detail"].as_str().unwrap().contains("needs `demo`"), "{problem}");
    assert!(problem["errors"][0]["suggestion"].as_str().unwrap().contains("kind: Integration"), "{problem}");

    assert_eq!(apply(&house, demo())["action"], "created");
    assert_eq!(apply(&house, demo())["action"], "unchanged");
    let score = Score::new("web")
        .with("one", resource("asks", json!({})))
        .with("two", resource("by-provider", json!({})))
        .with("three", resource("does-not", json!({})));
    let api = house.api();
    let deployment = api.deploy(&score.text());
    api.succeeded(&deployment, seconds(60));
    for name in ["asks", "by-provider"] {
        let seen = seen(place, name);
        assert_eq!(seen["DEMO_KEY"], KEY);
        assert_eq!(seen["DEMO_REGION"], "north");
        assert_eq!(seen["HOME"], seen["DEMO_FILE"].trim_end_matches("/.demo/credentials"));
        let file = place.world.folder.join(format!("{name}.file"));
        assert_eq!(fs::read_to_string(&file).unwrap(), IN_FILE);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::exists(&seen["DEMO_FILE"]).unwrap(), "the file outlives its job");
    }
    let other = seen(place, "does-not");
    assert!(!other.keys().any(|name| name.starts_with("DEMO")), "{other:?}");

    // What a program gives back of a secret is one.
    let outputs = place.outputs("web", false);
    assert_eq!(outputs["one"]["seen"], Value::Null, "{outputs}");
    assert_eq!(outputs["one"]["region"], "north", "{outputs}");
    assert_eq!(place.outputs("web", true)["one"]["seen"], format!("<{KEY}>"));

    // It works, says its test; and when it does not, the reason is told without the secret.
    let told = place.ok(&["integrations", "test", "demo"]);
    assert!(told.stdout.contains("demo works"), "{told:?}");
    let broken = json!({ "kind": "Integration", "name": "broken", "provider": "other",
        "variables": { "DEMO_KEY": KEY },
        "test": { "command": ["sh", "-c", "echo \"$DEMO_KEY is no good\" >&2; exit 3"] } });
    apply(&house, broken);
    let told = place.run(&["integrations", "test", "broken"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("broken does not work") && told.stderr.contains("is no good"), "{told:?}");

    // A failure that would tell it.
    let mut breaks = demo();
    breaks["settings"]["DEMO_BREAKS"] = json!("yes");
    assert_eq!(apply(&house, breaks)["action"], "updated");
    let failing = Score::new("clumsy").with("one", resource("asks", json!({})));
    let failed = api.deploy(&failing.text());
    assert_eq!(api.settled(&failed, seconds(60)).status, "failed");

    nowhere_to_be_seen(
        &house,
        &[deployment.id.unwrap().to_string(), failed.id.unwrap().to_string()],
        &told.all(),
    );
}

fn nowhere_to_be_seen(house: &House, deployments: &[String], said: &str) {
    let (api, place) = (house.api(), &house.place);
    let mut told = vec![("the command line".to_owned(), said.to_owned())];
    let lists = ["deployments", "resources", "operations", "events", "templates", "workers", "integrations"];
    let mut paths: Vec<String> = lists.iter().map(|list| format!("/api/v1/{list}?limit=200")).collect();
    paths.extend([
        "/api/v1/integrations/demo".into(),
        "/api/v1/outputs?app=web&env=dev".into(),
        "/metrics".into(),
    ]);
    for id in deployments {
        paths.push(format!("/api/v1/deployments/{id}"));
        paths.push(format!("/api/v1/deployments/{id}/logs"));
        told.push(("the log".into(), place.ok(&["logs", id]).all()));
    }
    for operation in place.json(&["operations", "list"]).as_array().unwrap() {
        paths.push(format!("/api/v1/deployments/{}/logs", operation["deployment"].as_str().unwrap()));
    }
    told.extend(paths.into_iter().map(|path| (path.clone(), api.get(&path).text)));
    told.extend(house.fleet.workers.iter().map(|worker| ("a worker".to_owned(), worker.said())));
    told.extend(house.fleet.servers.iter().map(|server| ("a server".to_owned(), server.said())));
    let log = &told.iter().find(|(name, _)| name == "the log").unwrap().1;
    assert!(log.contains("the key is ***") && log.contains("the file says ***"), "{log}");
    let shown = place.json(&["integrations", "get", "demo"]);
    assert_eq!(shown["variables"], json!({ "DEMO_KEY": null, "DEMO_FILE": null }), "{shown}");
    assert_eq!(shown["files"], json!({ ".demo/credentials": null }), "{shown}");
    for word in [KEY, IN_FILE] {
        for (name, text) in &told {
            assert!(!text.contains(word), "{name} shows {word}: {text}");
        }
        for file in place.files() {
            let bytes = fs::read(&file).unwrap_or_default();
            assert!(!holds(&bytes, word), "{word} is in {}", file.display());
        }
        if let Some(database) = &house.database {
            assert!(!holds(&postgres().dump(database), word), "{word} is in the database");
            assert!(!holds(&postgres().log(), word), "{word} is in the database server's log");
        }
    }
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|part| part == word.as_bytes())
}

#[test]
fn an_integration_is_handed_to_those_who_ask_and_seen_nowhere() {
    handed_to_those_who_ask(Shape::FleetSqlite { workers: 1 });
}

#[test]
fn an_integration_is_handed_to_those_who_ask_and_seen_nowhere_on_postgresql() {
    if !quick() {
        handed_to_those_who_ask(Shape::FleetPostgres { servers: 2, workers: 2 });
    }
}

#[test]
fn an_environments_own_integration_beats_the_organisations() {
    let house = House::new(Shape::Up { workers: 0 });
    let place = &house.place;
    place.apply("prod", "kind: Environment\nname: prod\n");
    teller(place, "asks", "integrations: [demo]\n");
    let mut own = demo();
    own["environment"] = json!("prod");
    own["variables"]["DEMO_KEY"] = json!("of production");
    apply(&house, demo());
    apply(&house, own);
    place.deploy(&asking("asks").text());
    assert_eq!(seen(place, "asks")["DEMO_KEY"], KEY);
    let file = place.write("web.yaml", asking("asks").text()).display().to_string();
    place.ok(&["deploy", "-f", &file, "--env", "prod"]);
    assert_eq!(seen(place, "asks")["DEMO_KEY"], "of production");
    let list = place.json(&["integrations", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    assert_eq!(place.json(&["integrations", "get", "demo", "--env", "prod"])["environment"], "prod");

    // Taken away: what is left serves, and without any the destruction says what it lacks and can be tried again.
    place.ok(&["integrations", "delete", "demo", "--yes"]);
    let told = place.run(&["destroy", "--app", "web", "--env", "dev", "--yes"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.all().contains("no integration `demo` for environment `dev`"), "{told:?}");
    apply(&house, demo());
    place.destroy("web");
}

#[test]
fn an_ambient_integration_passes_on_what_it_names_of_the_workers_environment() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    place.set("DEMO_KEY", OWN);
    place.set("DEMO_OTHER", "not asked for");
    teller(place, "asks", "integrations: [cloud]\n");
    place.apply(
        "cloud",
        "kind: Integration\nname: cloud\nprovider: cloud\ntype: ambient\npassthrough: [DEMO_KEY, DEMO_ABSENT]\n",
    );
    let id = place.deploy(&asking("asks").text())["id"].as_str().unwrap().to_owned();
    let seen = seen(place, "asks");
    assert_eq!(seen["DEMO_KEY"], OWN);
    assert!(!seen.contains_key("DEMO_OTHER"), "{seen:?}");
    let log = place.ok(&["logs", &id]).all();
    assert!(log.contains("no `DEMO_ABSENT` to pass on") && !log.contains(OWN), "{log}");
}

#[test]
fn what_is_wrong_with_an_integration_is_said_without_its_values() {
    let house = House::new(Shape::Up { workers: 0 });
    let wrong = [
        (json!({ "provider": "aws" }), "there is nothing in it"),
        (json!({ "provider": "A W S", "variables": { "A": "hush" } }), "a provider is"),
        (json!({ "provider": "aws", "variables": "hush" }), "must be a map"),
        (json!({ "provider": "aws", "variables": { "A": ["hush"] } }), "must be a text"),
        (json!({ "provider": "aws", "variables": { "PATH": "hush" } }), "set by Conductor itself"),
        (json!({ "provider": "aws", "variables": { "A B": "hush" } }), "no name of a variable"),
        (json!({ "provider": "aws", "files": { "../x": "hush" } }), "no path below"),
        (
            json!({ "provider": "aws", "variables": { "A": "hush" }, "environment": "mars" }),
            "no environment `mars`",
        ),
        (
            json!({ "provider": "aws", "variables": { "A": "hush" }, "passthrough": ["B"] }),
            "`type: ambient` alone",
        ),
        (json!({ "provider": "aws", "type": "ambient" }), "name the variables"),
        (json!({ "provider": "aws", "type": "oidc" }), "for whom"),
        (json!({ "provider": "aws", "type": "oidc", "audience": "x" }), "need an address"),
        (json!({ "provider": "aws", "type": "magic" }), "unknown variant `magic`"),
        (json!({ "provider": "aws", "variabels": { "A": "hush" } }), "unknown field `variabels`"),
        (
            json!({ "provider": "aws", "variables": { "A": "hush" }, "test": { "command": [] } }),
            "nothing to run",
        ),
    ];
    for (mut document, reason) in wrong {
        document["kind"] = json!("Integration");
        document["name"] = json!("x");
        let reply = house.api().post("/api/v1/catalog", &json!({ "document": document }));
        let problem = reply.problem(422);
        assert!(problem["detail"].as_str().unwrap().contains(reason), "{document}: {problem}");
        assert!(!reply.text.contains("hush"), "{}", reply.text);
    }
    house.api().get("/api/v1/integrations/nobody").problem(404);
    apply(
        &house,
        json!({ "kind": "Integration", "name": "x", "provider": "p", "variables": { "A": "bcde" } }),
    );
    let untried = house.api().post("/api/v1/integrations/x/test", &json!({})).problem(422);
    assert!(untried["detail"].as_str().unwrap().contains("does not say how it is tried"), "{untried}");
}
