//! Logs: lines of any length, read at any speed. Those of what is over are marked with their phase, moved out of the
//! database, read as before, and gone in time.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use conductor_tests::{House, Score, Shape, all_at_once, eventually, quick, seconds, tofu};
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

/// One line of ten megabytes: what is too much of it is left out with a word, and everything else goes on.
#[test]
fn a_line_of_ten_megabytes_survives() {
    on_all(|shape| {
        let house = House::new(shape);
        house.place.apply_things();
        let wide = json!({ "lines": 1, "wide": 10_000_000, "says": "before it" });
        let score = Score::new("web")
            .thing("db", wide)
            .thing("after", json!({ "says": "after ${resources.db.note}" }))
            .text();
        let deployment = house.api().deploy(&score);
        house.api().succeeded(&deployment, seconds(60));
        let all = lines(&house, &deployment.id.expect("an id").to_string(), 0);
        let text = |line: &Value| line["text"].as_str().expect("a text").to_owned();
        let long: Vec<String> = all.iter().map(text).filter(|text| text.len() > 1_000_000).collect();
        let [line] = &long[..] else { panic!("{} long lines of {}", long.len(), all.len()) };
        assert!(line.starts_with("line 0www"), "{}", &line[..40]);
        assert!(line.ends_with("w… (cut, 10000006 bytes)"), "{}", &line[line.len() - 60..]);
        for word in ["somebody says: before it", "somebody says: after "] {
            assert!(all.iter().any(|line| text(line).contains(word)), "{word}");
        }
    });
}

/// The tool tells its outputs in one line, however long they are.
#[test]
fn an_output_of_ten_megabytes_survives() {
    if quick() {
        return;
    }
    let house = House::new(Shape::Up { workers: 0 });
    let module = r#"
        resource "terraform_data" "some" {
          provisioner "local-exec" {
            command = "echo not all of it"
          }
        }
        output "large" {
          value = join("", [for a in range(1000) : join("", [for b in range(1000) : "0123456789"])])
        }
    "#;
    house.place.write("catalog/large/main.tf", module);
    let tool = tofu().display().to_string();
    house.place.apply(
        "large",
        &format!(
            "kind: Template\nname: large\ntype: large\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./large, tool: {tool} }}\n"
        ),
    );
    let deployment = house.api().deploy(&Score::new("web").with("large", json!({ "type": "large" })).text());
    house.api().succeeded(&deployment, seconds(90));
    let outputs = house.place.outputs("web", false);
    assert_eq!(outputs["large"]["large"].as_str().map(str::len), Some(10_000_000));
    let all = lines(&house, &deployment.id.expect("an id").to_string(), 0);
    assert!(all.iter().any(|line| line["text"].as_str().expect("a text").contains("not all of it")));
}

const WIDE: usize = 24;

/// Server-sent events as a slow client reads them: one, a pause, the next. Ends with the stream or after `limit`.
/// By HTTP/1.0, where the body comes as it is.
fn read_slowly(url: &str, token: &str, path: &str, last: Option<i64>, limit: usize) -> Vec<Value> {
    let address = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).expect("the server listens");
    let last = last.map(|last| format!("last-event-id: {last}\r\n")).unwrap_or_default();
    write!(
        socket,
        "GET {path} HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
         accept: text/event-stream\r\n{last}\r\n"
    )
    .expect("a request");
    let mut seen = Vec::new();
    for line in BufReader::new(socket).split(b'\n') {
        let line = line.expect("the stream can be read");
        let Some(data) = line.strip_prefix(b"data: ") else { continue };
        if data.starts_with(b"{}") {
            break;
        }
        seen.push(serde_json::from_slice(data).expect("JSON"));
        if seen.len() == limit {
            break;
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    seen
}

/// More than any buffer between the two holds: the server has to wait for its reader, while lines go on coming in.
#[test]
fn a_client_that_reads_slowly_loses_nothing_and_resumes_where_it_was() {
    on_all(|shape| {
        let house = House::new(shape);
        house.place.apply_things();
        let wide = json!({ "lines": WIDE, "wide": 1_000_000, "takes": 1 });
        let deployment = house.api().deploy(&Score::new("web").thing("db", wide).text());
        let id = deployment.id.expect("an id").to_string();
        let path = format!("/api/v1/deployments/{id}/logs");
        let (url, token) = (&house.fleet.urls[0], &house.fleet.token);
        let first = read_slowly(url, token, &path, None, WIDE / 3);
        // It has read a third when everything is written and over.
        house.api().succeeded(&deployment, seconds(60));
        let last = first.last().expect("a line")["seq"].as_i64();
        let rest = read_slowly(url, token, &path, last, usize::MAX);
        let heard: Vec<Value> = [first, rest].concat();
        let stored = lines(&house, &id, 0);
        let number = |lines: &[Value]| lines.iter().map(|line| line["seq"].as_i64()).collect::<Vec<_>>();
        assert_eq!(number(&heard), number(&stored));
        assert!(heard == stored, "a line was told otherwise than it is stored");
        let wide = heard.iter().filter(|line| line["text"].as_str().expect("a text").len() > 1_000_000);
        assert_eq!(wide.count(), WIDE);
    });
}
