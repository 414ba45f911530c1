//! Logs of what is over: marked with their phase, moved out of the database, read as before, and gone in time.

use std::{fs, path::Path};

use conductor_tests::{House, Score, Shape, all_at_once, eventually, quick, seconds};
use serde_json::{Value, json};

const LINES: usize = 200;

fn shapes() -> Vec<Shape> {
    let mut shapes = vec![Shape::Up { workers: 0 }];
    if !quick() {
        shapes.push(Shape::FleetPostgres { servers: 2, workers: 1 });
    }
    shapes
}

fn on_all(test: impl Fn(Shape) + Send + Sync + Copy + 'static) {
    all_at_once(shapes().into_iter().map(|shape| {
        let case: Box<dyn FnOnce() + Send> = Box::new(move || test(shape));
        (format!("{shape:?}"), case)
    }));
}

fn files(folder: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(fs::read(path).unwrap_or_default()),
        }
    }
    found
}

/// All lines of a deployment, page by page.
fn lines(house: &House, id: &str, after: i64) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), after);
    loop {
        let page = house.api().get(&format!("/api/v1/deployments/{id}/logs?after={after}")).json();
        all.extend(page["items"].as_array().expect("lines").iter().cloned());
        if page["done"] == true {
            return all;
        }
        after = page["nextAfter"].as_i64().expect("a number");
    }
}

#[test]
fn a_log_reads_the_same_once_it_was_moved_and_is_gone_in_time() {
    on_all(|shape| {
        let store = tempfile::tempdir().expect("a folder");
        let address = format!("file://{}", store.path().display());
        let house =
            House::with(shape, &[("CONDUCTOR_LOG_STORE", &address), ("CONDUCTOR_LOG_RETENTION", "25s")]);
        house.place.apply_things();
        let score = Score::new("web").thing("db", json!({ "lines": LINES, "says": "remarkable" }));
        let id = house.place.deploy(&score.text())["id"].as_str().expect("an id").to_owned();
        let before = lines(&house, &id, 0);
        assert!(before.len() >= LINES, "{before:?}");
        assert!(before.iter().any(|line| line["phase"] == "create"), "{:?}", before[0]);
        eventually("logs are moved", seconds(40), || {
            (house.count("SELECT count(*) FROM log_chunks") == 0).then_some(())
        });
        assert!(house.count("SELECT count(*) FROM log_objects") > 0);
        assert_eq!(lines(&house, &id, 0), before);
        assert_eq!(lines(&house, &id, 50), before[50..]);
        let events = house.api().events(&format!("/api/v1/deployments/{id}/logs"), Some("100"), usize::MAX);
        let heard = events.iter().filter(|(_, event, _)| event == "log");
        let heard: Vec<Value> = heard.map(|(.., data)| serde_json::from_str(data).expect("JSON")).collect();
        assert_eq!(heard, before[100..]);
        let told = house.place.ok(&["logs", &id, "--tail", "5"]).stdout;
        assert_eq!(told.lines().count(), 5, "{told}");
        for body in files(store.path()) {
            assert!(!body.windows(10).any(|part| part == b"remarkable"), "an object is not sealed");
        }
        eventually("logs are deleted", seconds(60), || {
            (house.count("SELECT count(*) FROM log_objects") == 0 && files(store.path()).is_empty())
                .then_some(())
        });
        assert_eq!(lines(&house, &id, 0), Vec::<Value>::new());
    });
}

#[test]
fn old_logs_are_deleted_where_they_are_and_without_the_setting_they_stay() {
    on_all(|shape| {
        let house = House::with(shape, &[("CONDUCTOR_LOG_RETENTION", "1s")]);
        house.place.apply_things();
        house.place.deploy(&Score::new("web").thing("db", json!({ "lines": 20 })).text());
        eventually("logs are deleted", seconds(40), || {
            (house.count("SELECT count(*) FROM log_chunks") == 0).then_some(())
        });
    });
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    house.place.deploy(&Score::new("web").thing("db", json!({ "lines": 20 })).text());
    std::thread::sleep(seconds(8));
    assert!(house.count("SELECT count(*) FROM log_chunks") > 0);
}
