//! What nobody sends by accident: refused within a second, with a clear message and no spike in memory, on the command
//! line and over HTTP; and nonsense of every kind gets a problem document.

mod programs;

use std::{fmt::Write, time::Duration};

use conductor_tests::{Api, House, Place, Reply, Shape};
use serde_json::json;

const HEAD: &str =
    "apiVersion: score.dev/v1b1\nmetadata:\n  name: web\ncontainers:\n  main:\n    image: busybox\n";
const SECOND: Duration = Duration::from_secs(1);
/// In kilobytes.
const SPIKE: u64 = 150_000;

/// Files that are refused, by what is wrong with them, and a word that the message must hold.
fn files() -> Vec<(&'static str, String, &'static str)> {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..14 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    let mut quadratic = format!(
        "{HEAD}resources:\n  db:\n    type: thing\n    params:\n      big: &big \"{}\"\n",
        "x".repeat(500_000)
    );
    quadratic.push_str("      all: [");
    quadratic.push_str(&vec!["*big"; 20_000].join(", "));
    quadratic.push_str("]\n");
    let mut crowd = format!("{HEAD}resources:\n");
    for number in 0..100_000 {
        writeln!(crowd, "  r{number}: {{ type: thing }}").unwrap();
    }
    let mut ring = format!("{HEAD}resources:\n");
    for number in 0..3_000 {
        let next = (number + 1) % 3_000;
        writeln!(ring, "  r{number}: {{ type: thing, params: {{ note: \"${{resources.r{next}.note}}\" }} }}")
            .unwrap();
    }
    let nested = |open: &str, close: &str, depth: usize| {
        format!(
            "{HEAD}resources:\n  db:\n    type: thing\n    params: {{ any: {}1{} }}\n",
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let mut dashes = format!("{HEAD}resources:\n  db:\n    type: thing\n    params:\n      any:\n        ");
    dashes.push_str(&"- ".repeat(100_000));
    vec![
        ("an alias bomb", bomb + HEAD, "alias"),
        ("a long text a thousand times", quadratic, "alias"),
        (
            "twelve megabytes",
            format!(
                "{HEAD}resources:\n  db:\n    type: thing\n    params: {{ note: \"{}\" }}\n",
                "x".repeat(12_000_000)
            ),
            "10",
        ),
        ("a hundred thousand resources", crowd, "10"),
        (
            "a cycle of two",
            format!(
                "{HEAD}resources:\n  aa: {{ type: thing, params: {{ note: \"${{resources.bb.note}}\" }} }}\n  bb: {{ type: thing, params: {{ note: \"${{resources.aa.note}}\" }} }}\n"
            ),
            "aa",
        ),
        ("a cycle of three thousand", ring, "r0"),
        ("braces in braces", nested("{ a: ", " }", 5_000), "1"),
        ("brackets in brackets", nested("[", "]", 200_000), "1"),
        ("dashes after dashes", dashes, "1"),
        (
            "an alias of itself",
            format!("{HEAD}resources:\n  db: &db\n    type: thing\n    params: {{ any: *db }}\n"),
            "alias",
        ),
        (
            "a key twice",
            format!("{HEAD}resources:\n  db: {{ type: thing }}\n  db: {{ type: thing }}\n"),
            "db",
        ),
        ("a Cyrillic a", HEAD.replace("metadata", "met\u{430}data"), "metadata"),
        ("a zero-width space", HEAD.replace("containers", "conta\u{200b}iners"), "containers"),
        ("a name that reads backwards", HEAD.replace("name: web", "name: \"web\u{202e}bew\""), "name"),
        ("a name with an escape sequence", HEAD.replace("name: web", "name: \"web\\e[31m\""), "name"),
        ("a NUL", format!("{HEAD}# \0\n"), ""),
        ("a YAML tag", format!("{HEAD}resources:\n  db: !!python/object/apply:os.system [\"true\"]\n"), ""),
        ("nothing", String::new(), ""),
        ("a list", "- 1\n- 2\n".into(), ""),
        ("a number", "42\n".into(), ""),
        ("half a UTF-16 pair", format!("{HEAD}resources:\n  db: {{ type: \"\\ud800\" }}\n"), ""),
    ]
}

/// For people: short, and nothing in it moves the cursor or turns the text around.
#[track_caller]
fn is_fit_to_read(name: &str, word: &str, text: &str) {
    assert!(!text.trim().is_empty(), "{name}: no message");
    assert!(text.len() < 20_000, "{name}: a message of {} bytes", text.len());
    assert!(text.contains(word), "{name}: nothing says `{word}`: {text}");
    let strange = |c: char| {
        (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(strange), "{name}: {text:?}");
}

#[test]
fn a_hostile_file_is_refused_on_the_command_line() {
    let place = Place::new();
    for (name, text, word) in files() {
        let file = place.write("score.yaml", &text).display().to_string();
        // The quickest of three: the machine may be busy with other tests.
        let mut quickest = Duration::MAX;
        for command in [
            &["validate", &file][..],
            &["validate", "-o", "json", &file],
            &["deploy", "-f", &file, "--env", "dev"],
        ] {
            let told = place.run(command);
            assert_eq!(told.code, 1, "{name}: {}", told.all());
            if command.len() == 2 {
                is_fit_to_read(name, word, &told.all());
            }
            quickest = quickest.min(told.took);
        }
        assert!(quickest < SECOND, "{name}: took {quickest:?}");
    }
    assert!(!place.path("data").exists(), "something was stored");
}

fn post(api: &Api, path: &str, manifest: &str) -> Reply {
    api.post(path, &json!({ "environment": "dev", "manifest": manifest }))
}

#[test]
fn a_hostile_file_is_refused_over_http_without_a_spike_in_memory() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let api = house.api();
    let server = &house.fleet.servers[0];
    let (before, _) = server.memory();
    for (name, text, word) in files() {
        let mut quickest = Duration::MAX;
        for path in ["/api/v1/deployments", "/api/v1/plans", "/api/v1/plans"] {
            let reply = post(&api, path, &text);
            let problem = reply.problem(if reply.status == 413 { 413 } else { 422 });
            is_fit_to_read(
                name,
                word,
                &format!("{}\n{}", problem["detail"], problem["errors"]).replace("null", ""),
            );
            quickest = quickest.min(reply.took);
        }
        assert!(quickest < SECOND, "{name}: took {quickest:?}");
    }
    let (after, highest) = server.memory();
    assert!(after.saturating_sub(before) < SPIKE, "{before} kB before, {after} kB after");
    assert!(highest.saturating_sub(before) < SPIKE, "{before} kB before, {highest} kB at its highest");
    assert_eq!(house.count("SELECT count(*) FROM changes WHERE kind = 'deploy'"), 0);
    // And it still works.
    let fine = post(&api, "/api/v1/plans", &format!("{HEAD}resources:\n  db: {{ type: thing }}\n"));
    assert_eq!(fine.status, 200, "{}", fine.text);
}

/// Deep, but allowed: it works, or it is refused with reason; it never breaks anything.
#[test]
fn parameters_as_deep_as_score_allows_are_taken_or_refused_with_reason() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let api = house.api();
    for depth in [50, 110, 126, 130, 250, 500, 900] {
        for (open, close) in [("{ a: ", " }"), ("[", "]")] {
            let any = format!("{}deep{}", open.repeat(depth), close.repeat(depth));
            let text = format!("{HEAD}resources:\n  db: {{ type: thing, params: {{ any: {any} }} }}\n")
                .replace("name: web", &format!("name: deep-{depth}"));
            let planned = post(&api, "/api/v1/plans", &text);
            assert!(matches!(planned.status, 200 | 422), "{depth}: {} {}", planned.status, planned.text);
            let reply = post(&api, "/api/v1/deployments", &text);
            assert_eq!(
                reply.status == 202,
                planned.status == 200,
                "{depth}: planned {}, deployed {} {}",
                planned.status,
                reply.status,
                reply.text
            );
            if reply.status == 422 {
                assert!(depth > 100, "{depth} levels are not much: {}", reply.text);
                is_fit_to_read("deep", "", reply.problem(422)["detail"].as_str().unwrap());
                continue;
            }
            let id = reply.json()["id"].as_str().unwrap().to_owned();
            let end = conductor_tests::eventually("it ends", Duration::from_secs(20), || {
                let seen = api.get(&format!("/api/v1/deployments/{id}"));
                assert_eq!(seen.status, 200, "{depth}: {}", seen.text);
                let status = seen.json()["status"].as_str().unwrap().to_owned();
                (status != "in_progress" && status != "pending").then_some(seen.text)
            });
            assert!(end.contains("\"succeeded\""), "{depth}: accepted, and then: {end}");
            for path in ["/api/v1/resources", "/api/v1/operations", "/api/v1/events"] {
                assert_eq!(api.get(path).status, 200, "{depth}: {path}");
            }
        }
    }
    let any = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    let text = format!("{HEAD}resources:\n  db: {{ type: thing, params: {{ any: {any} }} }}\n");
    let file = house.place.write("score-deep.yaml", text).display().to_string();
    assert_eq!(house.place.run(&["validate", &file]).code, 0);
    let told = house.place.run(&["deploy", "-f", &file, "--env", "dev"]);
    assert!(matches!(told.code, 0 | 1), "{told:?}");
}

/// Nobody has a manager of that name, and nobody ever will: it is a typing error, and is told at once.
#[test]
fn a_template_of_an_unknown_manager_is_refused_and_never_waited_for() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    let text =
        "kind: Template\nname: x\ntype: x\nversion: 1.0.0\nmanager: comand\nconfig: { program: ./x }\n";
    place.write("x", "#!/bin/sh\n");
    place.write("x.yaml", text);
    let mut apply = place.start(&["apply", "-f", "x.yaml"], &[], "apply");
    let ended = apply.wait(Duration::from_secs(15));
    assert_eq!(ended.code(), Some(1), "{}", apply.said());
    assert!(apply.said().contains("command"), "{}", apply.said());
}

#[test]
fn nonsense_gets_a_problem_document() {
    let house = House::new(Shape::Up { workers: 0 });
    let api = house.api();
    let json = [("content-type", "application/json")];
    let nobody = "dep_00000000000000000000000000";
    for (body, status) in [
        ("{", 400),
        ("", 400),
        ("[]", 422),
        ("null", 422),
        ("{\"environment\": 1, \"manifest\": \"\"}", 422),
        ("{\"environment\": \"dev\"}", 422),
        ("{\"environment\": \"dev\", \"manifest\": \"\", \"surprise\": true}", 422),
        ("{\"environment\": \"dev\", \"manifest\": \"\\ud800\"}", 400),
        ("\u{0}", 400),
    ] {
        api.call("POST", "/api/v1/deployments", &json, body).problem(status);
    }
    api.call("POST", "/api/v1/deployments", &json, "[".repeat(100_000)).problem(422);
    api.call("POST", "/api/v1/deployments", &json, vec![b' '; 30_000_000]).problem(413);
    api.call("POST", "/api/v1/deployments", &[("content-type", "text/plain")], "{}").problem(415);
    let score = format!("{HEAD}resources: {{}}\n");
    let ask = |environment: &str, application: &str| {
        api.post(
            "/api/v1/deployments",
            &json!({ "environment": environment, "application": application, "manifest": score }),
        )
    };
    assert!(ask("nowhere", "web").problem(404)["detail"].as_str().unwrap().contains("dev"));
    for name in ["", "A", "../../etc", "web\u{202e}", "a b", &"x".repeat(500), "web\n"] {
        ask("dev", name).problem(422);
    }
    for (method, path) in [
        ("DELETE", "/api/v1/deployments"),
        ("PUT", "/api/v1/deployments"),
        ("PATCH", "/api/v1/resources"),
        ("POST", "/healthz"),
        ("POST", "/api/v1/openapi.json"),
        ("GET", "/api/v1/worker/acquire"),
    ] {
        api.call(method, path, &json, "{}").problem(405);
    }
    for path in [
        "/nowhere",
        "/api/v1/nowhere",
        "/api/v2/deployments",
        "/api/v1/deployments/x/y/z",
        "/api/v1/worker/nowhere",
        "/..%2f..%2fetc/passwd",
    ] {
        api.get(path).problem(404);
    }
    for id in [
        "x",
        "dep_",
        "res_00000000000000000000000000",
        nobody,
        "dep_zzzzzzzzzzzzzzzzzzzzzzzzzz",
        "%00",
        "%ff",
        &"d".repeat(4_000),
    ] {
        for rest in ["", "/logs", "/events"] {
            api.get(&format!("/api/v1/deployments/{id}{rest}")).problem(404);
        }
        api.get(&format!("/api/v1/operations/{id}")).problem(404);
        api.call("POST", &format!("/api/v1/deployments/{id}/cancel"), &json, "{}").problem(404);
        api.call("POST", &format!("/api/v1/deployments/{id}/retry"), &json, "{}").problem(404);
    }
    for id in ["x", "res_", nobody, "res_00000000000000000000000000"] {
        api.get(&format!("/api/v1/resources/{id}")).problem(404);
    }
    for query in [
        "cursor=x",
        "cursor=%00",
        "cursor=MTIz",
        "limit=x",
        "limit=99999999999999999999",
        "phase=Sleeping",
        "deployment=x",
        "resource=1",
    ] {
        for list in ["deployments", "resources", "operations", "events"] {
            let reply = api.get(&format!("/api/v1/{list}?{query}"));
            assert!((400..500).contains(&reply.status), "{list}?{query}: {} {}", reply.status, reply.text);
            reply.problem(reply.status);
        }
    }
    for query in ["after=x", "level=loud", "since=yesterday", "operation=x", "wait=-1"] {
        let reply = api.get(&format!("/api/v1/deployments/{nobody}/logs?{query}"));
        reply.problem(if reply.status == 404 { 404 } else { 400 });
    }
    for (kind, document) in [
        ("no kind", json!({ "name": "x" })),
        ("unknown kind", json!({ "kind": "Templat", "name": "x" })),
        ("no name", json!({ "kind": "Environment" })),
        ("a list", json!([])),
        (
            "bad version",
            json!({ "kind": "Template", "name": "x", "type": "x", "version": "one", "manager": "command" }),
        ),
        ("bad name", json!({ "kind": "Environment", "name": "../x", "type": "y" })),
    ] {
        let reply = api.post("/api/v1/catalog", &json!({ "document": document }));
        assert!(matches!(reply.status, 400 | 404 | 422), "{kind}: {} {}", reply.status, reply.text);
        reply.problem(reply.status);
    }
    assert!(house.api().is_ready());
}
