//! kill -9 at every step: of a worker, of a server, of `up`, of an embedded command. Nothing is stuck, nothing is left
//! running, nothing runs twice at once, and the deployment ends truthfully without anyone's help.

use std::time::Duration;

use conductor_api::types::Deployment;
use conductor_tests::{
    At, Gate, House, Running, Score, Shape, eventually, postgres, quick, seconds, terraform, tofu,
};
use serde_json::json;

/// Long enough for a busy machine, short enough for a test.
const LEASE: &str = "2s";
/// A lease, its grace, a new run and some air.
const SOON: Duration = seconds(40);
const SQLITE: Shape = Shape::FleetSqlite { workers: 0 };
const POSTGRES: Shape = Shape::FleetPostgres { servers: 1, workers: 0 };

/// A server with a catalogue and no worker.
fn deserted(shape: Shape) -> House {
    let house = House::with_lease(shape, LEASE);
    let mut worker = house.worker();
    house.place.apply_things();
    worker.stop();
    house
}

fn two_things(takes: f64) -> String {
    Score::new("web")
        .thing("db", json!({ "note": "db", "takes": takes }))
        .thing("after", json!({ "note": "after ${resources.db.note}" }))
        .text()
}

/// How it must end, whatever happened.
#[track_caller]
fn ends_well(house: &House, deployment: &Deployment) {
    let api = house.api();
    api.succeeded(deployment, SOON);
    let world = &house.place.world;
    world.never_two_at_once();
    world.is_quiet();
    let resources = api.resources();
    assert_eq!(resources.len(), 2, "{resources:?}");
    for resource in &resources {
        assert_eq!(resource.phase.to_string(), "Active", "{resource:?}");
        let things = world.things();
        let thing = things.get(&resource.id.to_string()).expect("its thing");
        assert_eq!(serde_json::Value::Object(resource.outputs.clone()), *thing);
    }
    assert_eq!(world.things().len(), 2);
    house.is_at_rest();
}

/// Where in its work a worker dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    BeforeClaim,
    AfterClaimBeforeItHears,
    WhileTheProgramRuns,
    BeforeCompletionIsHeard,
    AfterCompletionIsStored,
}

fn a_worker_dies(shape: Shape, moment: Moment) {
    let house = deserted(shape);
    let api = house.api();
    let gate = Gate::before(&house.fleet.urls);
    let stop = match moment {
        Moment::BeforeClaim => Some(gate.hold("/acquire", At::Request)),
        Moment::AfterClaimBeforeItHears => Some(gate.hold("/acquire", At::Reply)),
        Moment::WhileTheProgramRuns => None,
        Moment::BeforeCompletionIsHeard => Some(gate.hold("/complete", At::Request)),
        Moment::AfterCompletionIsStored => Some(gate.hold("/complete", At::Reply)),
    };
    // One at a time: what it has not heard the end of keeps it from beginning the next.
    let mut victim = house.start_worker_with(&gate.url, "1");
    let takes = if moment == Moment::WhileTheProgramRuns { 2.5 } else { 0.1 };
    let deployment = api.deploy(&two_things(takes));
    match &stop {
        Some(stop) => stop.wait(),
        None => drop(house.place.world.wait_for_a_run()),
    }
    victim.kill();
    std::thread::sleep(Duration::from_millis(500));
    house.place.world.is_quiet();
    let runs = house.place.world.runs().len();
    let expected = match moment {
        Moment::BeforeClaim | Moment::AfterClaimBeforeItHears => 0,
        _ => 1,
    };
    assert_eq!(runs, expected, "{moment:?}");
    let _successor = house.worker();
    ends_well(&house, &deployment);
    // What was stored is not done again; what was not is done once more.
    let again = usize::from(matches!(moment, Moment::WhileTheProgramRuns | Moment::BeforeCompletionIsHeard));
    assert_eq!(house.place.world.begun("create"), 2 + again, "{:?}", house.place.world.runs());
    let lost = house.count("SELECT count(*) FROM attempts WHERE outcome = 'lost'");
    let expected = i64::from(!matches!(moment, Moment::BeforeClaim | Moment::AfterCompletionIsStored));
    assert_eq!(lost, expected, "{moment:?}");
}

macro_rules! workers_die {
    ($($sqlite:ident $postgres:ident $moment:ident;)*) => {$(
        #[test]
        fn $sqlite() {
            a_worker_dies(SQLITE, Moment::$moment);
        }

        #[test]
        fn $postgres() {
            if !quick() {
                a_worker_dies(POSTGRES, Moment::$moment);
            }
        }
    )*};
}

workers_die! {
    a_worker_dies_before_its_claim a_worker_dies_before_its_claim_on_postgresql BeforeClaim;
    a_worker_dies_before_it_hears_of_its_claim a_worker_dies_before_it_hears_of_its_claim_on_postgresql AfterClaimBeforeItHears;
    a_worker_dies_while_its_program_runs a_worker_dies_while_its_program_runs_on_postgresql WhileTheProgramRuns;
    a_worker_dies_before_its_completion_is_heard a_worker_dies_before_its_completion_is_heard_on_postgresql BeforeCompletionIsHeard;
    a_worker_dies_after_its_completion_is_stored a_worker_dies_after_its_completion_is_stored_on_postgresql AfterCompletionIsStored;
}

/// Replies that are lost on the way are asked for again, and nothing is done twice.
#[test]
fn lost_requests_and_lost_replies_change_nothing() {
    let house = deserted(SQLITE);
    let api = house.api();
    let gate = Gate::before(&house.fleet.urls);
    let cuts = [
        gate.cut("/acquire", At::Reply, 1),
        gate.cut("/acquire", At::Request, 1),
        gate.cut("/update", At::Reply, 1),
        gate.cut("/update", At::Request, 1),
        gate.cut("/complete", At::Reply, 1),
        gate.cut("/complete", At::Request, 1),
    ];
    let _worker = house.start_worker(&gate.url);
    let score = Score::new("web")
        .thing("db", json!({ "note": "db", "takes": 1.2, "lines": 50 }))
        .thing("after", json!({ "note": "after ${resources.db.note}" }))
        .text();
    let deployment = api.deploy(&score);
    ends_well(&house, &deployment);
    for cut in &cuts {
        assert_eq!(cut.reached(), 1);
    }
    assert_eq!(house.place.world.runs().len(), 2, "{:?}", house.place.world.runs());
    assert_eq!(house.count("SELECT count(*) FROM attempts WHERE outcome = 'lost'"), 0);
    let id = deployment.id.unwrap();
    let told = house.place.ok(&["logs", &id.to_string()]).stdout;
    let lines: Vec<&str> = told.lines().filter_map(|line| line.split("line ").nth(1)).collect();
    let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(lines, expected, "{told}");
}

/// A worker that is frozen for longer than its lease finds, when it wakes up, that it owns nothing.
fn a_frozen_worker_changes_nothing(shape: Shape) {
    let house = deserted(shape);
    let api = house.api();
    let frozen = house.worker();
    let deployment = api.deploy(&two_things(5.0));
    house.place.world.wait_for_a_run();
    frozen.freeze();
    // Its guard keeps the time: the program ends before the lease does.
    std::thread::sleep(seconds(2));
    house.place.world.is_quiet();
    let _successor = house.worker();
    api.succeeded(&deployment, SOON);
    let before = (api.resources(), house.place.world.things(), house.place.world.runs().len());
    frozen.thaw();
    std::thread::sleep(seconds(2));
    ends_well(&house, &deployment);
    assert_eq!((api.resources(), house.place.world.things(), house.place.world.runs().len()), before);
    // Its open request for work may have been granted once more before the server saw that it is deaf.
    let lost = house.count("SELECT count(*) FROM attempts WHERE outcome = 'lost'");
    assert!(matches!(lost, 1 | 2), "lost {lost} times");
}

#[test]
fn a_worker_frozen_beyond_its_lease_changes_nothing_when_it_wakes_up() {
    a_frozen_worker_changes_nothing(SQLITE);
}

#[test]
fn a_worker_frozen_beyond_its_lease_changes_nothing_on_postgresql() {
    if !quick() {
        a_frozen_worker_changes_nothing(POSTGRES);
    }
}

/// Cut off from its server, a worker ends its program before another one may begin.
#[test]
fn a_worker_that_is_cut_off_gives_up_before_its_lease_is_given_away() {
    let house = deserted(SQLITE);
    let api = house.api();
    let gate = Gate::before(&house.fleet.urls);
    let _lonely = house.start_worker(&gate.url);
    let deployment = api.deploy(&two_things(3.5));
    house.place.world.wait_for_a_run();
    let _cuts = ["/acquire", "/update", "/complete"].map(|path| gate.cut(path, At::Request, usize::MAX));
    let _successor = house.worker();
    ends_well(&house, &deployment);
}

/// Where in a deployment the server dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    JustAccepted,
    WhileAProgramRuns,
    BetweenTwoOperations,
}

fn the_server_dies(shape: Shape, point: Point) {
    let mut house = House::with_lease(shape, LEASE);
    let gate = Gate::before(&house.fleet.urls);
    let _worker = house.start_worker(&gate.url);
    house.place.apply_things();
    let api = house.api();
    let stop = match point {
        Point::JustAccepted => Some(gate.hold("/acquire", At::Reply)),
        Point::BetweenTwoOperations => Some(gate.hold("/complete", At::Reply)),
        Point::WhileAProgramRuns => None,
    };
    let deployment = api.deploy(&two_things(if point == Point::WhileAProgramRuns { 2.5 } else { 0.1 }));
    match (&stop, point) {
        (_, Point::JustAccepted) => {}
        (Some(stop), _) => stop.wait(),
        (None, _) => drop(house.place.world.wait_for_a_run()),
    }
    house.fleet.servers[0].kill();
    std::thread::sleep(Duration::from_millis(300));
    if let Some(stop) = stop {
        stop.release();
    }
    house.fleet.servers[0] = house.start_server(shape, 0);
    ends_well(&house, &deployment);
}

#[test]
fn the_server_dies_just_after_it_accepted() {
    the_server_dies(SQLITE, Point::JustAccepted);
}

#[test]
fn the_server_dies_while_a_program_runs() {
    the_server_dies(SQLITE, Point::WhileAProgramRuns);
}

#[test]
fn the_server_dies_between_two_operations() {
    the_server_dies(SQLITE, Point::BetweenTwoOperations);
}

#[test]
fn the_server_dies_at_each_point_on_postgresql() {
    if !quick() {
        for point in [Point::JustAccepted, Point::WhileAProgramRuns, Point::BetweenTwoOperations] {
            the_server_dies(POSTGRES, point);
        }
    }
}

#[test]
fn one_of_two_servers_dies_and_the_other_goes_on() {
    if quick() {
        return;
    }
    let mut house = House::with_lease(Shape::FleetPostgres { servers: 2, workers: 0 }, LEASE);
    let gate = Gate::before(&house.fleet.urls);
    let _worker = house.start_worker(&gate.url);
    house.place.apply_things();
    let deployment = house.api_at(0).deploy(&two_things(2.5));
    house.place.world.wait_for_a_run();
    house.fleet.servers[0].kill();
    house.fleet.urls.swap(0, 1);
    house.place.set("CONDUCTOR_URL", &house.fleet.urls[0]);
    ends_well(&house, &deployment);
    assert_eq!(house.place.world.begun("create"), 2, "a worker that still reaches a server keeps its work");
}

fn up_dies(point: Point) {
    let shape = Shape::Up { workers: 0 };
    let mut house = House::with_lease(shape, LEASE);
    house.place.apply_things();
    let deployment =
        house.api().deploy(&two_things(if point == Point::WhileAProgramRuns { 2.5 } else { 0.3 }));
    match point {
        Point::JustAccepted => {}
        Point::WhileAProgramRuns => drop(house.place.world.wait_for_a_run()),
        Point::BetweenTwoOperations => {
            let world = &house.place.world;
            eventually("the first is done", seconds(20), || (!world.steps().is_empty()).then_some(()));
        }
    }
    house.fleet.servers[0].kill();
    std::thread::sleep(Duration::from_millis(500));
    house.place.world.is_quiet();
    house.fleet.servers[0] = house.start_server(shape, 0);
    ends_well(&house, &deployment);
}

#[test]
fn up_dies_at_each_point_and_goes_on_when_it_is_started_again() {
    for point in [Point::JustAccepted, Point::WhileAProgramRuns, Point::BetweenTwoOperations] {
        up_dies(point);
    }
}

/// Numbers that are the same every time: moments at which a test strikes.
fn moments(mut seed: u64, count: usize, longest: u64) -> Vec<Duration> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        Duration::from_millis(seed % longest)
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn an_embedded_deploy_dies_at_eight_moments_and_the_next_one_picks_it_up() {
    let house = House::with_lease(Shape::Embedded, LEASE);
    let place = &house.place;
    place.apply_things();
    for (number, moment) in moments(20_261_115, 8, 1_600).into_iter().enumerate() {
        let application = format!("app-{number}");
        let score = Score::new(&application)
            .thing("db", json!({ "note": "db", "takes": 0.6 }))
            .thing("after", json!({ "note": "after ${resources.db.note}", "takes": 0.2 }));
        let file = place.write(&format!("{application}.yaml"), score.text()).display().to_string();
        let args = ["deploy", "-f", &file, "--env", "dev", "-o", "json"];
        let mut victim = place.start(&args, &[], &application);
        std::thread::sleep(moment);
        victim.kill();
        std::thread::sleep(Duration::from_millis(300));
        place.world.is_quiet();
        let document = place.json(&args[..5]);
        assert_eq!(document["status"], "succeeded", "after {moment:?}: {document}");
        assert_eq!(place.world.things().len(), 2 * (number + 1), "after {moment:?}");
        assert_eq!(place.resources().len(), 2 * (number + 1), "after {moment:?}");
        place.world.never_two_at_once();
    }
    house.is_at_rest();
}

#[test]
fn status_tells_of_an_interrupted_deployment_and_runs_nothing() {
    let house = House::with_lease(Shape::Embedded, LEASE);
    let place = &house.place;
    place.apply_things();
    let file = place.write("web.yaml", two_things(3.0)).display().to_string();
    let mut victim = place.start(&["deploy", "-f", &file, "--env", "dev"], &[], "deploy");
    place.world.wait_for_a_run();
    victim.kill();
    std::thread::sleep(Duration::from_millis(500));
    place.world.is_quiet();
    let told = place.ok(&["status"]);
    assert!(told.all().contains("interrupted"), "{told:?}");
    assert_eq!(place.world.runs().len(), 1);
    // Any command that works picks it up.
    place.deploy(&Score::new("other").thing("own", json!({})).text());
    let again = place.json(&["deploy", "-f", &file, "--env", "dev"]);
    assert_eq!(again["status"], "succeeded");
    assert_eq!(place.world.things().len(), 3);
    place.world.never_two_at_once();
}

/// SIGTERM is no crash: what runs may end, and nothing is lost.
#[test]
fn a_worker_that_is_asked_to_stop_finishes_what_runs() {
    let house = deserted(SQLITE);
    let api = house.api();
    let mut leaving = house.worker();
    let deployment = api.deploy(&two_things(1.0));
    house.place.world.wait_for_a_run();
    assert!(leaving.stop().success(), "{}", leaving.said());
    assert_eq!(house.place.world.steps(), ["create"]);
    let _successor = house.worker();
    ends_well(&house, &deployment);
    assert_eq!(house.place.world.runs().len(), 2);
    assert_eq!(house.count("SELECT count(*) FROM attempts WHERE outcome = 'lost'"), 0);
}

/// Terraform in the middle of an apply: killed, taken over, and its state is whole.
fn terraform_dies_in_the_middle(shape: Shape, tool: &std::path::Path) {
    let house = House::with_lease(shape, LEASE);
    let place = &house.place;
    let world = place.world.folder.display().to_string();
    place.write("catalog/slow/main.tf", SLOW.replace("WORLD", &world));
    let mut victim = house.worker();
    place.apply(
        "slow",
        &format!(
            "kind: Template\nname: slow\ntype: slow\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./slow, tool: {}, allow: {{ write: [\"{world}\"] }} }}\n",
            tool.display()
        ),
    );
    let api = house.api();
    let deployment = api.deploy(&Score::new("web").with("net", json!({ "type": "slow" })).text());
    let beats = place.world.folder.join("slow");
    let beat = || std::fs::read_to_string(&beats).unwrap_or_default().lines().count();
    eventually("terraform is in the middle of it", seconds(40), || (beat() > 3).then_some(()));
    victim.kill();
    std::thread::sleep(Duration::from_millis(500));
    let last = beat();
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(beat(), last, "terraform's program outlived its worker");
    let _successor = house.worker();
    api.succeeded(&deployment, seconds(60));
    let outputs = place.outputs("web", true);
    assert_eq!(outputs["net"]["first"], "first");
    // What the dead one had made is kept, not made again; what it was at is named.
    let log = place.ok(&["logs", &deployment.id.unwrap().to_string()]).stdout;
    let taken_in = log.lines().find_map(|line| line.split("taken in as ").nth(1)).map(str::trim);
    assert_eq!(outputs["net"]["id"].as_str(), taken_in, "{log}");
    let message = place.resources()[0]["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(message, "possibly left behind: terraform_data.slow (it was being made)");
    let starts = std::fs::read_to_string(place.world.folder.join("starts")).unwrap();
    assert_eq!(starts.lines().count(), 2, "the slow part was begun twice, one after the other");
    assert_eq!(house.count("SELECT count(*) FROM state_locks"), 0);
    let gone = place.destroy("web");
    assert_eq!(gone["status"], "succeeded", "{gone}");
    house.is_empty();
}

const SLOW: &str = r#"
resource "terraform_data" "first" {
  input = "first"
}
resource "terraform_data" "slow" {
  input = terraform_data.first.output
  provisioner "local-exec" {
    command = "echo x >> WORLD/starts; i=0; while [ $i -lt 40 ]; do echo x >> WORLD/slow; sleep 0.05; i=$((i+1)); done"
  }
}
output "first" {
  value = terraform_data.slow.output
}
output "id" {
  value = terraform_data.first.id
}
"#;

/// Each exchange about terraform's state, stopped before the server hears of it and after it has answered.
fn terraform_dies_at_its_state(shape: Shape, tool: &std::path::Path, exchange: &str, at: At) {
    let house = House::with_lease(shape, LEASE);
    let place = &house.place;
    let mut worker = house.worker();
    place.write("catalog/net/main.tf", QUICK);
    place.apply(
        "net",
        &format!(
            "kind: Template\nname: net\ntype: net\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./net, tool: {} }}\n",
            tool.display()
        ),
    );
    worker.stop();
    let api = house.api();
    let gate = Gate::before(&house.fleet.urls);
    let stop = gate.hold(exchange, at);
    let mut victim = house.start_worker_with(&gate.url, "1");
    let deployment = api.deploy(&Score::new("web").with("net", json!({ "type": "net" })).text());
    stop.wait();
    victim.kill();
    let _successor = house.worker();
    api.succeeded(&deployment, seconds(60));
    let id = place.outputs("web", true)["net"]["id"].clone();
    assert!(id.is_string(), "{id}");
    assert_eq!(house.count("SELECT count(*) FROM state_locks"), 0);
    // Nothing differs: the state that is kept is the state of what is there.
    let again = place.deploy(&Score::new("web").with("net", json!({ "type": "net" })).text());
    assert_eq!(again["resources"][0]["action"], "none", "{again}");
    assert_eq!(place.outputs("web", true)["net"]["id"], id);
    assert_eq!(place.destroy("web")["status"], "succeeded");
    house.is_empty();
}

const QUICK: &str = r#"
resource "terraform_data" "net" {
  input = "net"
}
output "id" {
  value = terraform_data.net.id
}
"#;

#[test]
fn terraform_dies_at_every_exchange_about_its_state() {
    if quick() {
        return;
    }
    let (terraform, tofu) = (terraform(), tofu());
    for (shape, tool) in [(SQLITE, &terraform), (POSTGRES, &tofu)] {
        let exchanges = ["POST /state/lock", "PUT /state?", "POST /state/unlock"];
        let points =
            exchanges.into_iter().flat_map(|exchange| [(exchange, At::Request), (exchange, At::Reply)]);
        conductor_tests::all_at_once(points.map(|(exchange, at)| {
            let case = move || terraform_dies_at_its_state(shape, tool, exchange, at);
            (format!("{at:?} of {exchange}"), Box::new(case) as Box<dyn FnOnce() + Send>)
        }));
    }
}

/// The database is made, and nobody heard of it: made again, it has one role, and the password that is told is its.
#[test]
fn a_worker_dies_after_it_made_a_database_and_before_it_is_heard() {
    if quick() {
        return;
    }
    let house = House::with_lease(POSTGRES, LEASE);
    let place = &house.place;
    let mut worker = house.worker();
    let server = postgres().admin();
    let text = format!(
        "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\n\
         config: {{ engine: postgres, server: \"{server}\" }}\n"
    );
    place.apply("db", &text);
    worker.stop();
    let api = house.api();
    let gate = Gate::before(&house.fleet.urls);
    let stop = gate.hold("/complete", At::Request);
    let mut victim = house.start_worker_with(&gate.url, "1");
    let deployment = api.deploy(&Score::new("web").with("db", json!({ "type": "postgres" })).text());
    stop.wait();
    victim.kill();
    let _successor = house.worker();
    api.succeeded(&deployment, SOON);
    let outputs = place.outputs("web", true)["db"].clone();
    let (name, url) = (outputs["name"].as_str().unwrap(), outputs["url"].as_str().unwrap());
    assert!(postgres().can_log_in(url), "the password that is told is not the database's");
    let roles = format!("SELECT 1 FROM pg_roles WHERE rolname = '{name}'");
    assert_eq!(postgres().query(&server, &roles).len(), 1);
    place.destroy("web");
    assert_eq!(postgres().query(&server, &roles).len(), 0);
    house.is_empty();
}

/// Ctrl-C is no crash either: the command lets what runs come to its end and leaves the rest to the next.
#[test]
fn an_interrupted_embedded_deploy_ends_in_order_and_is_taken_up() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    place.apply_things();
    let file = place.write("web.yaml", two_things(1.0)).display().to_string();
    let mut deploy = place.start(&["deploy", "-f", &file, "--env", "dev"], &[], "deploy");
    place.world.wait_for_a_run();
    deploy.interrupt();
    assert_eq!(deploy.wait(seconds(15)).code(), Some(130), "{}", deploy.said());
    assert_eq!(place.world.steps(), ["create"], "what ran came to its end");
    let document = place.json(&["deploy", "-f", &file, "--env", "dev"]);
    assert_eq!(document["status"], "succeeded");
    assert_eq!(place.world.runs().len(), 2);
    house.is_at_rest();
}

#[test]
fn terraform_is_killed_in_the_middle_of_an_apply_and_taken_over() {
    if !quick() {
        terraform_dies_in_the_middle(SQLITE, &terraform());
    }
}

#[test]
fn tofu_is_killed_in_the_middle_of_an_apply_and_taken_over_on_postgresql() {
    if !quick() {
        terraform_dies_in_the_middle(POSTGRES, &tofu());
    }
}

/// Killed in the middle of a destruction, it is taken over as well.
#[test]
fn a_worker_dies_in_the_middle_of_a_destruction() {
    let house = deserted(SQLITE);
    let api = house.api();
    let mut victim: Running = house.worker();
    let score = Score::new("web").thing("db", json!({ "note": "db", "deleteTakes": 2.0 })).text();
    api.succeeded(&api.deploy(&score), SOON);
    let destruction = api.destroy("web");
    house.place.world.wait_for_a_run();
    victim.kill();
    std::thread::sleep(Duration::from_millis(500));
    house.place.world.is_quiet();
    let _successor = house.worker();
    api.succeeded(&destruction, SOON);
    house.place.world.never_two_at_once();
    house.is_empty();
}
