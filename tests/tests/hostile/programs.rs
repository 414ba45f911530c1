//! Programs that want more than their template gives them: they get nothing, and the worker goes on.

use std::{fs, net::TcpListener, path::Path, time::Duration};

use conductor_tests::{House, Place, Score, Shape, resource};
use serde_json::{Value, json};

const PROGRAM: &str = include_str!("program.py");
const LIMITS: &str = "limits: { processes: 64, memory: 256MiB, disk: 16MiB }";

/// A template served by the program. It runs on the Python that the ledger-keeping program runs on, and may write
/// where that one may.
fn apply_hostile(place: &Place) {
    let thing = fs::read_to_string(place.world.folder.join("thing.py")).expect("the program of things");
    let interpreter = thing.lines().next().expect("its first line");
    place.write_program("world/hostile.py", &format!("{interpreter}\n{PROGRAM}"));
    let more = ["tries", "secrets", "others", "plant", "port", "pids", "beats"];
    let more: String = more.iter().map(|name| format!("    {name}: {{}}\n")).collect();
    let template = place.world.template("hostile", &more);
    let template = template.replace("/thing.py", "/hostile.py").replace("retries: 4", "retries: 0");
    place.apply("hostile", &template.replace("grace: 2s", &format!("grace: 2s\n  {LIMITS}")));
}

/// A house with one worker, and that worker's folder.
fn house() -> (House, std::path::PathBuf) {
    let house = House::new(Shape::FleetSqlite { workers: 1 });
    house.place.apply_things();
    apply_hostile(&house.place);
    let folder = house.fleet.workers[0].log.with_extension("");
    (house, folder)
}

fn score(application: &str, params: Value) -> Score {
    Score::new(application).with("it", resource("hostile", params))
}

#[track_caller]
fn the_worker_works_on(house: &mut House, application: &str) {
    assert!(!house.fleet.workers[0].is_over(), "{}", house.fleet.workers[0].said());
    let done = house.place.deploy(&Score::new(application).thing("next", json!({})).text());
    assert_eq!(done["status"], "succeeded", "{done}");
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |info| info.len())
}

#[test]
fn a_program_reaches_nothing_of_others_and_leaves_nothing_behind() {
    let (mut house, worker) = house();
    let place = &house.place;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let beats = place.world.folder.join("survivor");
    place.write("treasure", "secret");
    let secrets = ["treasure", "key", "data/conductor.db"].map(|name| place.path(name));
    let secrets: Vec<_> = secrets.into_iter().chain([worker.clone(), worker.join("jobs")]).collect();
    for path in &secrets {
        assert!(path.exists(), "{} would be worth reading", path.display());
    }
    let params = json!({
        "tries": "reach",
        "secrets": secrets,
        "others": worker.join("jobs/*/work/*"),
        "plant": worker.join("planted"),
        "port": listener.local_addr().unwrap().port(),
        "pids": [1, house.fleet.workers[0].id(), house.fleet.servers[0].id(), std::process::id()],
        "beats": beats,
    });
    // Beside it runs another job, with a folder of its own.
    let done = place.deploy(&score("hostile", params).thing("other", json!({ "takes": 1.5 })).text());
    assert_eq!(done["status"], "succeeded", "{done}");
    let outputs = place.outputs("hostile", true);
    assert!(outputs.to_string().contains(r#""achieved":[]"#), "{outputs}");
    let before = size(&beats);
    assert!(before > 0, "it began");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(size(&beats), before, "what it left lives on");
    assert!(!worker.join("planted").exists());
    the_worker_works_on(&mut house, "after");
}

#[test]
fn a_program_that_wants_everything_is_ended_and_says_why() {
    let (mut house, _) = house();
    for (tries, says) in [
        ("fork", &["held at ", "more than 64 processes (config.limits.processes)"][..]),
        ("allocate", &["MemoryError", "more than 256MiB of memory (config.limits.memory)"]),
        ("fill", &["more than 16MiB in the job's folder (config.limits.disk)"]),
    ] {
        let failed = house.place.deploy_in_vain(&score(tries, json!({ "tries": tries })).text()).json();
        let message = failed["error"]["message"].as_str().unwrap_or_default();
        assert!(says.iter().any(|text| message.contains(text)), "{tries}: {failed}");
        if let Some((_, made)) = message.split_once("held at ") {
            let made: u32 = made.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
            assert!(made < 64, "{message}");
        }
        the_worker_works_on(&mut house, &format!("after-{tries}"));
    }
}

#[test]
fn limits_that_make_no_sense_are_refused_when_they_are_applied() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    for (limits, says) in [
        ("{ memory: 2GB }", "config.limits.memory must be a size of at least 16MiB"),
        ("{ procesess: 64 }", "did you mean `processes`?"),
        ("lots", "config.limits must be an object"),
    ] {
        let template = place.world.template("thing", "");
        let template = template.replace("grace: 2s", &format!("grace: 2s\n  limits: {limits}"));
        let file = place.write("catalog/limits.yaml", template).display().to_string();
        let told = place.run(&["apply", "-f", &file]);
        assert_eq!(told.code, 1, "{limits}: {}", told.all());
        assert!(told.all().contains(says), "{limits}: {}", told.all());
    }
}

/// What a worker says of itself, seen by whoever asks the server.
#[test]
fn how_a_worker_keeps_programs_in_is_shown_and_can_be_required() {
    let house = House::new(Shape::FleetSqlite { workers: 1 });
    let place = &house.place;
    house.place.apply_things();
    let workers = place.json(&["workers", "list"]);
    let lines: Vec<&str> =
        workers[0]["isolation"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let subjects: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
    let all =
        ["files", "tcp ports", "signals", "syscalls", "processes", "memory", "cpu", "disk", "pid namespace"];
    assert_eq!(subjects, all);
    let fine = |line: &&str| line.contains(": confined by ") || line.contains(": NOT confined (");
    assert!(lines.iter().all(fine), "{lines:?}");
    let name = workers[0]["name"].as_str().unwrap();
    assert!(place.ok(&["workers", "get", name]).stdout.contains(lines[0]), "{lines:?}");

    let told = place.run(&["worker", "--require-isolation", "files,everything"]);
    assert_eq!(told.code, 2, "{}", told.all());
    assert!(told.all().contains("`everything` cannot be isolated"), "{}", told.all());
}
