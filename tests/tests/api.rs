//! The HTTP interface: every route of its own description, who may call it, pages, keys against doing it twice, streams.

use std::collections::BTreeSet;

use conductor_tests::{Api, House, Score, Shape, eventually, seconds};
use serde_json::{Value, json};

/// Every route of the description with its parameters filled in: (method, path).
fn routes(document: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let mut filled = String::new();
        for part in path.split('/').skip(1) {
            filled.push('/');
            filled.push_str(if part.starts_with('{') { "nobody" } else { part });
        }
        for method in methods.as_object().unwrap().keys() {
            all.push((method.to_uppercase(), filled.clone()));
        }
    }
    all
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[test]
fn the_description_is_openapi_3_1_and_lists_every_route() {
    let house = House::new(Shape::Up { workers: 0 });
    let document = house.api().get("/api/v1/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."), "{}", document["openapi"]);
    let paths: BTreeSet<String> =
        routes(&document).into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    for route in [
        "POST /api/v1/deployments",
        "GET /api/v1/deployments",
        "GET /api/v1/deployments/nobody",
        "GET /api/v1/deployments/nobody/logs",
        "GET /api/v1/deployments/nobody/events",
        "POST /api/v1/deployments/nobody/cancel",
        "POST /api/v1/deployments/nobody/retry",
        "POST /api/v1/plans",
        "GET /api/v1/resources",
        "GET /api/v1/resources/nobody",
        "POST /api/v1/resources/nobody/consumers",
        "DELETE /api/v1/resources/nobody/consumers/nobody",
        "GET /api/v1/operations",
        "GET /api/v1/operations/nobody",
        "GET /api/v1/organisations",
        "GET /api/v1/environments",
        "GET /api/v1/applications",
        "GET /api/v1/templates",
        "GET /api/v1/rules",
        "GET /api/v1/workers",
        "GET /api/v1/events",
        "POST /api/v1/tokens",
        "POST /api/v1/hooks/git",
    ] {
        assert!(paths.contains(route), "{route} is not described");
    }
    let text = document.to_string();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("\"$ref\":\"#/") {
        rest = &rest[at + 9..];
        let target = &rest[..rest.find('"').unwrap()];
        assert!(document.pointer(target).is_some(), "{target} is referred to and not there");
    }
}

#[test]
fn every_route_wants_a_token_and_none_breaks() {
    let house = House::new(Shape::Up { workers: 0 });
    let (api, nobody) = (house.api(), house.api().with_token(""));
    let routes = routes(&api.get("/api/v1/openapi.json").json());
    assert!(routes.len() > 20, "{routes:?}");
    let mut worker_routes = vec![("POST".to_owned(), "/api/v1/worker/acquire".to_owned())];
    for what in ["update", "complete", "state/lock", "state/unlock"] {
        worker_routes.push((
            "POST".to_owned(),
            format!("/api/v1/worker/operations/op_00000000000000000000000000/{what}?fence=1"),
        ));
    }
    for (method, path) in routes.iter().chain(&worker_routes) {
        for stranger in [&nobody, &api.with_token("wrong"), &api.with_token("cdt_0000")] {
            stranger.call(method, path, &JSON, "{}").problem(401);
        }
        for body in ["{}", "", "[]", "{\"environment\": null}", "nonsense"] {
            let reply = api.call(method, path, &JSON, body);
            assert!(reply.status < 500, "{method} {path} {body}: {} {}", reply.status, reply.text);
            if reply.status >= 400 {
                reply.problem(reply.status);
                assert!(
                    !reply.text.contains("there is nothing at"),
                    "{method} {path} is described and not there"
                );
            }
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(nobody.get(path).status, 200, "{path}");
    }
}

#[test]
fn each_role_may_do_what_it_is_for_and_no_more() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let admin = house.api();
    let mut tokens = Vec::new();
    for role in ["read", "write", "worker"] {
        let made = house.place.json(&["tokens", "create", "--role", role, "--name", role]);
        tokens.push((
            made["id"].as_str().unwrap().to_owned(),
            admin.with_token(made["token"].as_str().unwrap()),
        ));
    }
    let [read, write, worker] = [0, 1, 2].map(|number| tokens[number].1.clone());
    let deployment = json!({ "environment": "dev", "manifest": Score::new("web").thing("db", json!({ "secret": true })).text() });
    let acquire = json!({ "worker": "wrk_00000000000000000000000000", "name": "x", "request": "00000000-0000-7000-8000-000000000000", "slots": 0, "managers": [], "waitMs": 0 });
    let token = json!({ "name": "more", "role": "admin" });
    let document = json!({ "document": { "kind": "Environment", "name": "more", "type": "development" } });

    assert_eq!(read.get("/api/v1/resources").status, 200);
    assert_eq!(read.post("/api/v1/plans", &deployment).status, 200);
    read.post("/api/v1/deployments", &deployment).problem(403);
    read.post("/api/v1/destroys", &json!({ "environment": "dev", "application": "web" })).problem(403);
    let made = write.post("/api/v1/deployments", &deployment);
    assert_eq!(made.status, 202, "{}", made.text);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    eventually("it is made", seconds(20), || {
        (admin.get(&format!("/api/v1/deployments/{id}")).json()["status"] == "succeeded").then_some(())
    });
    read.call("POST", &format!("/api/v1/deployments/{id}/cancel"), &JSON, "{}").problem(403);
    read.get("/api/v1/outputs?app=web&env=dev&reveal=true").problem(403);
    assert!(read.get("/api/v1/outputs?app=web&env=dev").json()["db"]["password"].is_null());
    assert!(write.get("/api/v1/outputs?app=web&env=dev&reveal=true").json()["db"]["password"].is_string());
    for caller in [&read, &write] {
        caller.post("/api/v1/tokens", &token).problem(403);
        caller.post("/api/v1/catalog", &document).problem(403);
        caller.call("PUT", "/api/v1/blobs/sha256:0", &[], "x").problem(403);
        caller.post("/api/v1/worker/acquire", &acquire).problem(403);
    }
    for path in ["resources", "deployments", "events", "tokens", "outputs?app=web&env=dev&reveal=true"] {
        worker.get(&format!("/api/v1/{path}")).problem(403);
    }
    worker.post("/api/v1/deployments", &deployment).problem(403);
    worker.post("/api/v1/tokens", &token).problem(403);
    admin.post("/api/v1/worker/acquire", &acquire).problem(403);
    assert!(worker.post("/api/v1/worker/acquire", &acquire).status < 400);
    // The command line says so with its own exit code.
    let told = house.place.run_with(
        &["tokens", "create", "--role", "read", "--name", "x"],
        &[("CONDUCTOR_TOKEN", &read.token)],
    );
    assert_eq!(told.code, 4, "{told:?}");

    house.place.ok(&["tokens", "revoke", &tokens[0].0, "--yes"]);
    read.get("/api/v1/resources").problem(401);
    assert_eq!(write.get("/api/v1/resources").status, 200);
}

#[test]
fn the_same_key_and_body_give_the_same_deployment() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let api = house.api();
    let body = |note: &str| {
        let score = Score::new(&format!("app-{note}")).thing("db", json!({ "note": note }));
        json!({ "environment": "dev", "manifest": score.text() }).to_string()
    };
    let post = |api: &Api, key: &str, body: String| {
        api.call("POST", "/api/v1/deployments", &[JSON[0], ("idempotency-key", key)], body)
    };
    let first = post(&api, "once", body("a"));
    assert_eq!(first.status, 202);
    let id = first.json()["id"].clone();
    for _ in 0..3 {
        let again = post(&api, "once", body("a"));
        assert!(again.status < 300, "{}", again.text);
        assert_eq!(again.json()["id"], id);
    }
    post(&api, "once", body("b")).problem(409);
    // At the same moment, too.
    let ids: BTreeSet<String> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| post(&api, "crowd", body("c")).json()["id"].to_string())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 1);
    assert_eq!(house.count("SELECT count(*) FROM changes WHERE kind = 'deploy'"), 2);
}

#[test]
fn pages_show_everything_once() {
    let house = House::new(Shape::Up { workers: 0 });
    let place = &house.place;
    place.write_program("catalog/quick.sh", "#!/bin/sh\necho '{\"outputs\": {}}'\n");
    place.apply("quick", "kind: Template\nname: quick\ntype: quick\nversion: 1.0.0\nmanager: command\nconfig: { program: ./quick.sh, protocol: conductor }\n");
    let mut score = Score::new("web");
    for number in 0..120 {
        score = score.with(&format!("r{number}"), json!({ "type": "quick" }));
    }
    let api = house.api();
    let deployment = api.deploy(&score.text());
    api.succeeded(&deployment, seconds(120));
    let id = deployment.id.unwrap();
    for (list, expected) in
        [("resources?env=dev", 120), (&format!("operations?deployment={id}") as &str, 121), ("events?", 0)]
    {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = api.get(&format!("/api/v1/{list}&limit=17{cursor}")).json();
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= 17, "{}", items.len());
            seen.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let different: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(different.len(), seen.len(), "{list}: something twice");
        assert!(seen.len() == expected || expected == 0, "{list}: {}", seen.len());
    }
    assert_eq!(place.json(&["resources", "list", "--env", "dev"]).as_array().unwrap().len(), 120);
    assert_eq!(place.json(&["resources", "list", "--limit", "7"]).as_array().unwrap().len(), 7);
    assert_eq!(place.json(&["resources", "list", "--phase", "Failed"]).as_array().unwrap().len(), 0);
    assert_eq!(
        place.json(&["resources", "list", "--type", "quick", "--limit", "300"]).as_array().unwrap().len(),
        120
    );
    api.get("/api/v1/resources?env=nowhere").problem(404);
}

#[test]
fn logs_come_once_in_order_and_go_on_where_a_client_left_off() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let api = house.api();
    let score = Score::new("web")
        .thing("db", json!({ "lines": 1500, "takes": 0.5 }))
        .thing("after", json!({ "note": "${resources.db.note}", "lines": 5 }));
    let deployment = api.deploy(&score.text());
    let path = format!("/api/v1/deployments/{}/logs", deployment.id.unwrap());
    // A client that follows from the start, while it runs.
    let (follower, address) = (api.clone(), path.clone());
    let following = std::thread::spawn(move || follower.events(&address, None, usize::MAX));
    api.succeeded(&deployment, seconds(60));
    let live = following.join().unwrap();
    let lines = |events: &[(String, String, String)]| -> Vec<(i64, String)> {
        let lines = events.iter().filter(|(_, event, _)| event == "log");
        lines
            .map(|(id, _, data)| {
                (
                    id.parse().unwrap(),
                    serde_json::from_str::<Value>(data).unwrap()["text"].as_str().unwrap().to_owned(),
                )
            })
            .collect()
    };
    let all = lines(&api.events(&path, None, usize::MAX));
    assert_eq!(lines(&live), all, "what was followed differs from what is kept");
    assert!(all.windows(2).all(|two| two[0].0 < two[1].0), "not in order");
    let counted: Vec<&str> = all.iter().filter_map(|(_, text)| text.strip_prefix("line ")).collect();
    let expected: Vec<String> = (0..1500).chain(0..5).map(|number| number.to_string()).collect();
    assert_eq!(counted, expected);
    assert_eq!(live.last().unwrap().1, "end");
    for left_off in [1, 700, all.len()] {
        let first = lines(&api.events(&path, None, left_off));
        assert_eq!(first, all[..left_off]);
        let last = first.last().unwrap().0.to_string();
        assert_eq!(lines(&api.events(&path, Some(&last), usize::MAX)), all[left_off..]);
    }
    // The same as pages.
    let (mut after, mut paged) = (0, Vec::new());
    loop {
        let page = api.get(&format!("{path}?after={after}")).json();
        paged.extend(
            page["items"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap().to_owned()),
        );
        if page["done"] == true || page["items"].as_array().unwrap().is_empty() {
            break;
        }
        after = page["nextAfter"].as_i64().unwrap();
    }
    assert_eq!(paged, all.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>());
    let events =
        api.events(&format!("/api/v1/deployments/{}/events", deployment.id.unwrap()), None, usize::MAX);
    assert_eq!(events.last().unwrap().1, "succeeded");
}

#[test]
fn metrics_count_what_happened() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    house.place.deploy(&Score::new("web").thing("db", json!({})).text());
    let text = house.api().get("/metrics").text;
    for series in [
        "conductor_operations_total",
        "conductor_operation_duration_seconds",
        "conductor_queue_depth",
        "conductor_queue_age_seconds",
        "conductor_workers",
    ] {
        assert!(text.lines().any(|line| line.starts_with(series)), "no {series}: {text}");
    }
}

fn git(folder: &std::path::Path, args: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=test", "-c", "user.email=test@example.invalid"])
        .args(args)
        .current_dir(folder)
        .output()
        .expect("git");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_push_deploys_the_score_file_of_its_commit_once() {
    let house = House::new(Shape::Up { workers: 0 });
    let place = &house.place;
    place.apply_things();
    let repository = place.path("repository");
    std::fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main", "."]);
    std::fs::write(
        repository.join("score.yaml"),
        Score::new("shop").thing("db", json!({ "note": "first" })).text(),
    )
    .unwrap();
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "-m", "first"]);
    let first = git(&repository, &["rev-parse", "HEAD"]);
    // What is pushed is what is deployed, not what came after it.
    std::fs::write(repository.join("score.yaml"), "nonsense").unwrap();
    git(&repository, &["commit", "--quiet", "-am", "second"]);
    let url = format!("file://{}", repository.display());
    place.apply(
        "shop",
        &format!("kind: Application\nname: shop\nrepository: {url}\nbranches: {{ main: dev }}\n"),
    );

    let api = house.api();
    let push = |reference: &str, commit: &str, url: &str| json!({ "ref": reference, "after": commit, "repository": { "clone_url": url } });
    let answer = api.post("/api/v1/hooks/git", &push("refs/heads/main", &first, &url)).json();
    let deployment = &answer["deployments"][0];
    assert_eq!(deployment["commit"], json!(first), "{answer}");
    let id = deployment["id"].as_str().unwrap().to_owned();
    let ended = eventually("the pushed commit is deployed", seconds(20), || {
        let now = api.get(&format!("/api/v1/deployments/{id}")).json();
        (now["completedAt"].is_string()).then_some(now)
    });
    assert_eq!(ended["status"], "succeeded", "{ended}");
    assert_eq!(place.world.done(), [("create".to_owned(), "first".to_owned())]);

    let again = api.post("/api/v1/hooks/git", &push("refs/heads/main", &first, &url)).json();
    assert_eq!(again["deployments"][0]["id"], json!(id), "a delivery that is repeated deploys nothing new");
    for (reference, commit, url) in [
        ("refs/heads/other", first.as_str(), url.as_str()),
        ("refs/tags/v1", &first, &url),
        ("refs/heads/main", "0000000000000000000000000000000000000000", &url),
        ("refs/heads/main", &first, "https://elsewhere.invalid/shop.git"),
    ] {
        let answer = api.post("/api/v1/hooks/git", &push(reference, commit, url)).json();
        assert!(answer["ignored"].is_string(), "{answer}");
    }
}

#[test]
fn a_server_is_not_ready_on_another_schema_or_when_it_is_about_to_stop() {
    let house = House::new(Shape::FleetSqlite { workers: 0 });
    let api = house.api();
    assert_eq!(api.get("/readyz").status, 200);
    let before = house.count("SELECT CAST(CAST(value AS TEXT) AS INTEGER) FROM meta WHERE key = 'schema'");
    house.execute("UPDATE meta SET value = CAST('999' AS BLOB) WHERE key = 'schema'");
    api.get("/readyz").problem(503);
    assert_eq!(api.get("/healthz").status, 200, "it lives");
    house.execute(&format!("UPDATE meta SET value = CAST('{before}' AS BLOB) WHERE key = 'schema'"));
    assert_eq!(api.get("/readyz").status, 200);
    house.fleet.servers[0].terminate();
    let told = eventually("it says that it is about to stop", seconds(5), || {
        let reply = api.get("/readyz");
        (reply.status == 503).then_some(reply)
    });
    assert_eq!(told.problem(503)["detail"], "it is about to stop");
}
