//! Alerts: each fires, is told once however many servers look, and is over; and the rules that are shipped for
//! Prometheus name what is really exported.

use std::{collections::BTreeSet, path::Path, time::Duration};

use conductor_api::types::DeploymentRequest;
use conductor_tests::{
    House, Listener, Score, Shape, all_at_once, block_on, eventually, postgres, quick, seconds,
};
use serde_json::{Value, json};

const LOOKS: [(&str, &str); 8] = [
    ("CONDUCTOR_LEASE", "2s"),
    ("CONDUCTOR_ALERT_EVERY", "500ms"),
    ("CONDUCTOR_ALERT_FAILURE_WINDOW", "6s"),
    ("CONDUCTOR_ALERT_QUEUED", "2"),
    ("CONDUCTOR_ALERT_QUEUED_FOR", "1s"),
    ("CONDUCTOR_ALERT_DEAD_WORKER_WINDOW", "6s"),
    ("CONDUCTOR_ALERT_DEAD_WORKER", "90s"),
    ("CONDUCTOR_ALERT_DATABASE_WINDOW", "4s"),
];

fn house(shape: Shape, listener: &Listener) -> House {
    let webhook = [("CONDUCTOR_ALERT_WEBHOOK", listener.url.as_str())];
    let house = House::with(shape, &[&LOOKS[..], &webhook].concat());
    house.place.apply_things();
    house
}

/// What was told of an alert so far: the statuses, in order.
fn told(listener: &Listener, alert: &str) -> Vec<String> {
    let heard = listener.heard().into_iter().filter(|notice| notice["alert"] == alert);
    heard.map(|notice| notice["status"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
fn wait_for(listener: &Listener, alert: &str, statuses: &[&str]) {
    eventually(&format!("{alert} is told as {statuses:?}"), seconds(60), || {
        (told(listener, alert).len() >= statuses.len()).then_some(())
    });
    assert_eq!(told(listener, alert), statuses, "{alert}: {:?}", listener.heard());
}

fn alert(house: &House, name: &str) -> Value {
    let all = house.place.json(&["alerts", "list"]);
    all.as_array().expect("a list").iter().find(|alert| alert["name"] == name).expect("the alert").clone()
}

fn each_fires_once_and_is_over(shape: Shape) {
    let listener = Listener::default();
    let mut house = house(shape, &listener);
    let api = house.api();
    assert!(
        house.place.json(&["alerts", "list"]).as_array().expect("a list").iter().all(|a| a["status"] == "ok")
    );

    // Most of what ended has failed.
    house.place.deploy_in_vain(&Score::new("bad").thing("db", json!({ "breaks": "no luck" })).text());
    wait_for(&listener, "failure-rate", &["firing"]);
    assert_eq!(alert(&house, "failure-rate")["status"], "firing");
    let first = listener.heard()[0].clone();
    assert_eq!((&first["value"], &first["threshold"]), (&json!(1.0), &json!(0.1)), "{first}");
    wait_for(&listener, "failure-rate", &["firing", "resolved"]);

    // It has used half of its time.
    let request = DeploymentRequest {
        environment: "dev".into(),
        manifest: Score::new("slow").thing("db", json!({ "takes": 9 })).text(),
        timeout_seconds: Some(10),
        ..DeploymentRequest::default()
    };
    let slow = block_on(api.client.deploy(&request)).expect("the deployment is accepted");
    wait_for(&listener, "long-running", &["firing"]);
    assert_eq!(api.settled(&slow, seconds(30)).status, "succeeded");
    wait_for(&listener, "long-running", &["firing", "resolved"]);

    // Nobody takes what is ready: the only worker has left, which is no death.
    house.fleet.workers[0].stop();
    let mut many = Score::new("many");
    for number in 0..4 {
        many = many.thing(&format!("db-{number}"), json!({}));
    }
    let many = api.deploy(&many.text());
    wait_for(&listener, "queue-backlog", &["firing"]);
    let worker = house.worker();
    house.fleet.workers.push(worker);
    assert_eq!(api.settled(&many, seconds(30)).status, "succeeded");
    wait_for(&listener, "queue-backlog", &["firing", "resolved"]);
    assert_eq!(told(&listener, "dead-worker"), Vec::<String>::new());

    // A worker dies over its work.
    let stuck = api.deploy(&Score::new("stuck").thing("db", json!({ "takes": 20 })).text());
    house.place.world.wait_for_a_run();
    house.fleet.workers[1].kill();
    wait_for(&listener, "dead-worker", &["firing"]);
    block_on(api.client.cancel(stuck.id.expect("an id"), false)).expect("it can be cancelled");
    let worker = house.worker();
    house.fleet.workers.push(worker);
    assert_eq!(api.settled(&stuck, seconds(30)).status, "cancelled");
    wait_for(&listener, "dead-worker", &["firing", "resolved"]);

    // The database fails.
    house.execute("ALTER TABLE resources RENAME TO resources_away");
    wait_for(&listener, "database-errors", &["firing"]);
    house.execute("ALTER TABLE resources_away RENAME TO resources");
    wait_for(&listener, "database-errors", &["firing", "resolved"]);

    for name in ["failure-rate", "long-running", "queue-backlog", "dead-worker", "database-errors"] {
        assert_eq!(told(&listener, name), ["firing", "resolved"], "{name}");
        assert_eq!(alert(&house, name)["status"], "ok", "{name}");
    }
}

#[test]
fn each_of_the_five_fires_once_and_is_over() {
    let mut shapes = vec![Shape::FleetSqlite { workers: 1 }];
    if !quick() {
        shapes.push(Shape::FleetPostgres { servers: 2, workers: 1 });
    }
    all_at_once(shapes.into_iter().map(|shape| {
        let case: Box<dyn FnOnce() + Send> = Box::new(move || each_fires_once_and_is_over(shape));
        (format!("{shape:?}"), case)
    }));
}

#[test]
fn a_silenced_alert_is_told_to_nobody_and_one_that_nobody_heard_is_told_again() {
    let listener = Listener::default();
    let house = house(Shape::Up { workers: 0 }, &listener);
    let fail = || {
        house.place.deploy_in_vain(&Score::new("bad").thing("db", json!({ "breaks": "no luck" })).text());
    };
    let silenced = house.place.json(&["alerts", "silence", "failure-rate", "--for", "2h"]);
    assert_eq!((&silenced["status"], &silenced["firing"]), (&json!("silenced"), &json!(false)));
    fail();
    eventually("it fires in silence", seconds(20), || {
        alert(&house, "failure-rate")["firing"].as_bool().filter(|fires| *fires)
    });
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(told(&listener, "failure-rate"), Vec::<String>::new());
    eventually("it is over in silence", seconds(20), || {
        alert(&house, "failure-rate")["firing"].as_bool().filter(|fires| !*fires)
    });
    house.place.ok(&["alerts", "silence", "failure-rate", "--off"]);
    assert_eq!(told(&listener, "failure-rate"), Vec::<String>::new());

    listener.refuse(true);
    fail();
    eventually("the webhook is tried more than once", seconds(30), || (listener.refused() > 1).then_some(()));
    listener.refuse(false);
    wait_for(&listener, "failure-rate", &["firing", "resolved"]);
    assert_eq!(house.place.run(&["alerts", "silence", "nothing", "--for", "2h"]).code, 6);
    assert_eq!(house.place.run(&["alerts", "silence", "failure-rate"]).code, 2);
}

#[test]
fn slack_gets_text() {
    let listener = Listener::default();
    let webhook =
        [("CONDUCTOR_ALERT_WEBHOOK", listener.url.as_str()), ("CONDUCTOR_ALERT_WEBHOOK_FORMAT", "slack")];
    let house = House::with(Shape::Up { workers: 0 }, &[&LOOKS[..], &webhook].concat());
    house.place.apply_things();
    house.place.deploy_in_vain(&Score::new("bad").thing("db", json!({ "breaks": "no luck" })).text());
    let heard = eventually("something is told", seconds(30), || listener.heard().into_iter().next());
    let text = "*FIRING* conductor failure-rate: 1 of 1 deployments failed";
    assert_eq!(heard, json!({ "text": text }));
}

/// The expressions of a rules file, read as YAML.
fn expressions(text: &str) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), false);
    for event in granit_parser::Parser::new_from_str(text) {
        let (event, _) = event.expect("the rules are YAML");
        if let granit_parser::Event::Scalar(text, ..) = event {
            if next {
                found.push(text.to_string());
            }
            next = text == "expr";
        }
    }
    found
}

fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("conductor_")).map(str::to_owned).collect()
}

#[test]
fn the_shipped_rules_name_what_is_exported() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    house.place.deploy(&Score::new("web").thing("db", json!({})).text());
    let page = house.api().get("/metrics").text;
    let exported: BTreeSet<String> =
        page.lines().filter(|line| !line.starts_with('#')).flat_map(names).collect();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/conductor.rules.yaml");
    let expressions = expressions(&std::fs::read_to_string(rules).expect("the rules"));
    assert_eq!(expressions.len(), 5);
    for expression in &expressions {
        for name in names(expression) {
            assert!(exported.contains(&name), "{name} is not exported: {expression}\n{page}");
        }
    }
    let value = |sample: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(sample));
        line.unwrap_or_else(|| panic!("no {sample}: {page}")).trim().parse::<f64>().expect("a number")
    };
    assert_eq!(value("conductor_operations_total{kind=\"create\",status=\"succeeded\"}"), 2.0);
    assert_eq!(value("conductor_operation_duration_seconds_count{kind=\"create\"}"), 2.0);
    assert_eq!(value("conductor_deployments_total{kind=\"deploy\",status=\"succeeded\"}"), 1.0);
    assert_eq!(value("conductor_workers{state=\"live\"}"), 1.0);
    assert_eq!(value("conductor_queue_depth{manager=\"command\"}"), 0.0);
    assert!(value("conductor_log_lag_seconds_count") > 0.0);
}

#[test]
fn while_the_database_is_away_a_server_is_not_ready_and_says_so() {
    if quick() {
        return;
    }
    let listener = Listener::default();
    let webhook = [("CONDUCTOR_ALERT_WEBHOOK", listener.url.as_str())];
    let shape = Shape::FleetPostgres { servers: 1, workers: 0 };
    let house = House::with(shape, &[&LOOKS[..], &webhook].concat());
    let name = &house.database.as_ref().expect("a database").name;
    let admin = |sql: &str| drop(postgres().query(&postgres().admin(), sql));
    admin(&format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false"));
    admin(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"));
    let api = house.api();
    eventually("it is not ready", seconds(20), || (api.get("/readyz").status == 503).then_some(()));
    assert_eq!(api.get("/healthz").status, 200, "it lives");
    wait_for(&listener, "database-errors", &["firing"]);
    admin(&format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS true"));
    eventually("it is ready again", seconds(20), || api.is_ready().then_some(()));
    wait_for(&listener, "database-errors", &["firing", "resolved"]);
}
