//! Operations go to workers that have what they need, and say what they lack where none has.

use std::{fs, os::unix::fs::symlink};

use conductor_api::types::Deployment;
use conductor_tests::{House, Running, Score, Shape, eventually, quick, resource, seconds, tofu};
use serde_json::{Value, json};

use super::teller;

fn worker(house: &House, name: &str, flags: &[&str]) -> Running {
    let data = house.place.path(name).display().to_string();
    let settings = [
        ("CONDUCTOR_URL", house.fleet.urls[0].as_str()),
        ("CONDUCTOR_TOKEN", house.worker_token()),
        ("CONDUCTOR_DATA", &data),
        ("CONDUCTOR_LEASE", ""),
    ];
    house.place.start(&[&["worker", "--name", name], flags].concat(), &settings, name)
}

fn by_name(house: &House, name: &str) -> Option<Value> {
    let workers = house.place.json(&["workers", "list"]);
    workers.as_array().unwrap().iter().find(|worker| worker["name"] == name).cloned()
}

/// Who carried out the operations of a deployment, by the type of resource.
fn who(house: &House, deployment: &Deployment, name: &str) -> Vec<String> {
    let operations = house.api().operations(deployment).into_iter();
    let operations = operations.filter(|operation| {
        operation.resource_name.as_deref().is_some_and(|resource| resource.starts_with(name))
    });
    operations.filter_map(|operation| operation.worker).map(|worker| worker.to_string()).collect()
}

fn go_where_they_can_be_done(shape: Shape) {
    let house = House::new(shape);
    let place = &house.place;
    let _plain = worker(&house, "plain", &[]);
    let mut eu = worker(&house, "eu", &["--label", "region=eu", "--network", "lab"]);
    let known = eventually("both workers are known", seconds(30), || {
        Some((by_name(&house, "plain")?, by_name(&house, "eu")?))
    });
    assert_eq!(known.1["labels"], json!({ "region": "eu" }), "{known:?}");
    assert_eq!(known.1["networks"], json!(["lab"]), "{known:?}");
    teller(place, "anywhere", "");
    teller(place, "in-europe", "worker: { labels: { region: eu }, networks: [lab] }\n");

    let mut score = Score::new("web").with("plain", resource("anywhere", json!({})));
    for number in 0..6 {
        score = score.with(&format!("eu{number}"), resource("in-europe", json!({})));
    }
    let api = house.api();
    let deployment = api.deploy(&score.text());
    api.succeeded(&deployment, seconds(60));
    let europe = who(&house, &deployment, "web-eu");
    assert_eq!(europe.len(), 6);
    assert!(europe.iter().all(|id| known.1["id"] == *id), "{europe:?} {known:?}");

    // What nobody can do waits and says for whom. The template is read by such a worker as well.
    let document = json!({
        "kind": "Template", "name": "far", "type": "far", "manager": "command",
        "worker": { "labels": { "region": "moon" } }, "config": { "program": "true", "protocol": "conductor" },
    });
    let applied = api.post("/api/v1/catalog", &json!({ "document": document })).json();
    let path = format!("/api/v1/operations?deployment={}", applied["change"].as_str().unwrap());
    let waiting = api.get(&path).json()["items"][0].clone();
    assert_eq!(waiting["status"], "queued", "{waiting}");
    let lacks = "a worker with manager command, label region=moon; none of the 2 workers has it";
    assert_eq!(waiting["waitingFor"], lacks);
    // Its worker is gone: the work waits for another of its kind.
    eu.stop();
    let destruction = api.destroy("web");
    eventually("it waits for a worker in Europe", seconds(60), || {
        let operations = api.operations(&destruction).into_iter();
        let mut reasons = operations.filter_map(|operation| operation.waiting_for);
        reasons
            .any(|reason| reason.contains("region=eu") && reason.contains("does not have it"))
            .then_some(())
    });
    let _eu = worker(&house, "eu", &["--label", "region=eu", "--network", "lab"]);
    api.succeeded(&destruction, seconds(60));
}

#[test]
fn operations_go_to_workers_that_have_what_they_need() {
    go_where_they_can_be_done(Shape::FleetSqlite { workers: 0 });
}

#[test]
fn operations_go_to_workers_that_have_what_they_need_on_postgresql() {
    if !quick() {
        go_where_they_can_be_done(Shape::FleetPostgres { servers: 1, workers: 0 });
    }
}

/// Nobody waits for a worker without being told so.
#[test]
fn what_no_worker_can_do_is_said_while_it_is_waited_for() {
    let house = House::new(Shape::FleetSqlite { workers: 0 });
    let place = &house.place;
    let file = place.write("catalog/thing.yaml", place.world.template("thing", ""));
    let mut apply = place.start(&["apply", "-f", &file.display().to_string()], &[], "apply");
    eventually("apply says what it waits for", seconds(30), || {
        apply
            .said()
            .contains("describe: waits for a worker with manager command; there is no worker")
            .then_some(())
    });
    let _worker = house.worker();
    assert!(apply.wait(seconds(30)).success(), "{}", apply.said());
    let mut far = worker(&house, "far", &["--label", "region=far"]);
    place.apply("far", &place.world.template("far", "worker: { labels: { region: far } }\n"));
    far.stop();
    let score = place.write("score.yaml", Score::new("web").with("db", resource("far", json!({}))).text());
    let args = ["deploy", "-f", &score.display().to_string(), "--env", "dev"];
    let deploy = place.start(&args, &[], "deploy");
    eventually("deploy says what it waits for", seconds(30), || {
        let what =
            "db: waits for a worker with manager command, label region=far; the only worker does not have it";
        deploy.said().contains(what).then_some(())
    });
    assert_eq!(deploy.said().matches("waits for").count(), 1, "{}", deploy.said());
}

fn module(version: &str, more: &str) -> String {
    format!(
        "kind: Template\nname: module\ntype: module\nversion: {version}\nmanager: terraform\n{more}\
         config: {{ source: ./module, tool: tofu }}\n"
    )
}

#[test]
fn a_template_is_run_by_the_version_of_the_tool_it_is_for() {
    if quick() {
        return;
    }
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    let tofu = tofu();
    let path = format!("{}:/usr/bin:/bin", tofu.parent().unwrap().display());
    place.set("PATH", &path);
    place.write("catalog/module/main.tf", "output \"said\" {\n  value = \"hello\"\n}\n");
    let refuse = |text: &str| {
        let file = place.write("catalog/module.yaml", text).display().to_string();
        let told = place.run(&["apply", "-f", &file]);
        assert_eq!(told.code, 1, "{told:?}");
        told.stderr
    };
    let told = refuse(&module("1.0.0", "toolVersion: 1.2.3\n"));
    assert!(told.contains("this template is for tofu 1.2.3; the worker has tofu 1."), "{told}");
    assert!(told.contains("$CONDUCTOR_TOOLS/tofu/VERSION/tofu"), "{told}");
    let told = refuse(&module("1.0.0", "toolVersion: newest\n"));
    assert!(told.contains("`newest` is no version of a tool"), "{told}");
    let told = refuse(&module("1.0.0", "worker: { tool: { tofu: 1.9.0 } }\n"));
    assert!(told.contains("unknown field `tool`"), "{told}");

    // The plain one fits.
    place.apply(
        "module",
        &module("1.0.0", "toolVersion: \">=1.6, <2\"\nworker: { tools: { tofu: \">=1.6\" } }\n"),
    );
    let score = Score::new("web").with("one", resource("module", json!({}))).text();
    place.deploy(&score);
    assert_eq!(place.outputs("web", false)["one"]["said"], "hello");

    // One beside it, found by the place it is in.
    let tools = place.path("tools");
    fs::create_dir_all(tools.join("tofu/1.2.3")).unwrap();
    symlink(&tofu, tools.join("tofu/1.2.3/tofu")).unwrap();
    place.set("CONDUCTOR_TOOLS", &tools.display().to_string());
    place.apply("module", &module("2.0.0", "toolVersion: 1.2.3\n"));
    place.deploy(&score);
    let workers = place.json(&["workers", "list"]);
    let versions = workers.as_array().unwrap().iter().map(|worker| worker["tools"]["tofu"].to_string());
    assert!(versions.into_iter().any(|versions| versions.contains("\"1.2.3\"")), "{workers}");
    place.destroy("web");
}
