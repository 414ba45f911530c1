//! An environment of two hundred things is torn down: exactly the right ones go, whatever is killed on the way.

use std::{collections::BTreeSet, fs, time::Duration};

use conductor_tests::{House, Score, Shape, eventually, quick, seconds};
use serde_json::{Value, json};

use super::{ends, get, says, somebody, stories, text, things};

const APPLICATIONS: usize = 10;
const OWN: usize = 17;
const SHARED: usize = 30;

/// Quick to make and to remove: a file per thing, and a line per step.
fn quick_things(house: &House) {
    let place = &house.place;
    let folder = place.path("quick");
    fs::create_dir_all(&folder).unwrap();
    let at = folder.display();
    let program = place.write_program(
        "quick.sh",
        &format!(
            "#!/bin/sh\nread -r order\nid=${{order#*'\"id\":\"res_'}}\nid=res_${{id%%'\"'*}}\ncase $1 in\n\
             create|update) : > {at}/$id ;;\ndelete) rm -f {at}/$id ;;\n*) exit 64 ;;\nesac\n\
             echo \"$1 $id\" >> {at}.ledger\necho '{{\"outputs\":{{\"note\":\"x\"}}}}'\n"
        ),
    );
    place.write("quick.ledger", "");
    place.apply(
        "quick",
        &format!(
            "kind: Template\nname: quick\ntype: quick\nversion: 1.0.0\nmanager: command\nconfig:\n  \
             program: {}\n  protocol: conductor\n  allow: {{ write: [\"{at}\", \"{at}.ledger\"] }}\n",
            program.display()
        ),
    );
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
}

/// The things there are.
fn there(house: &House) -> BTreeSet<String> {
    let names = fs::read_dir(house.place.path("quick")).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn steps(house: &House, step: &str) -> usize {
    let text = fs::read_to_string(house.place.path("quick.ledger")).unwrap();
    text.lines().filter(|line| line.starts_with(step)).count()
}

/// A hundred and seventy of `stage`'s own, in chains, and thirty that an application elsewhere uses as well; the latter.
fn furnish(house: &House) -> BTreeSet<String> {
    quick_things(house);
    let place = &house.place;
    let wide = |number: usize| {
        json!({ "type": "quick", "reference":
            { "mode": "shared", "name": format!("wide-{number}"), "scope": "organisation" } })
    };
    let deploy = |score: Score, environment: &str| {
        let file = place.write("score.yaml", score.text()).display().to_string();
        place.json(&["deploy", "-f", &file, "--env", environment])
    };
    let mut elsewhere = Score::new("elsewhere");
    for number in 0..SHARED {
        elsewhere = elsewhere.with(&format!("wide-{number}"), wide(number));
    }
    for application in 0..APPLICATIONS {
        let mut score = Score::new(&format!("app-{application}"));
        for number in 0..SHARED / APPLICATIONS {
            let number = application * (SHARED / APPLICATIONS) + number;
            score = score.with(&format!("wide-{number}"), wide(number));
        }
        for number in 0..OWN {
            let mut own = json!({ "type": "quick" });
            if number % 5 > 0 {
                own["dependsOn"] = json!([{ "name": format!("own-{}", number - 1), "type": "strong" }]);
            } else {
                let wide = format!("wide-{}", application * (SHARED / APPLICATIONS));
                own["dependsOn"] = json!([{ "name": wide, "type": "strong" }]);
            }
            score = score.with(&format!("own-{number}"), own);
        }
        deploy(score, "stage");
    }
    let used = deploy(elsewhere, "dev");
    let items = used["resources"].as_array().unwrap();
    assert!(items.iter().all(|item| item["action"] == "reuse"), "{used}");
    items.iter().map(|item| text(item, "resource")).collect()
}

/// Everything of `stage` is gone, and what is used elsewhere is there; each was removed once.
fn exactly_the_right_ones(house: &House, kept: &BTreeSet<String>) {
    assert_eq!(&there(house), kept);
    let left = house.place.json(&["resources", "list", "--env", "stage"]);
    let alive = left.as_array().unwrap().iter().filter(|one| one["phase"] != "Deleted");
    let alive: BTreeSet<String> = alive.map(|one| text(one, "id")).collect();
    assert_eq!(&alive, kept);
    for id in kept {
        let seen = get(house, id);
        assert_eq!((&seen["state"], &seen["status"]), (&json!("provisioned"), &json!("done")), "{seen}");
        let users: Vec<&Value> =
            seen["consumers"].as_array().unwrap().iter().map(|one| &one["application"]).collect();
        assert_eq!(users, ["elsewhere"]);
    }
    house.is_at_rest();
}

fn two_hundred_things(shape: Shape, kill: bool) {
    let mut house = House::with(shape, &[("CONDUCTOR_LEASE", if kill { "4s" } else { "30s" })]);
    let shared = furnish(&house);
    let all = there(&house);
    assert_eq!((all.len(), shared.len()), (APPLICATIONS * OWN + SHARED, SHARED));

    // A look first: it says what would go and what would stay, and changes nothing.
    let place = &house.place;
    let record = |house: &House| house.place.json(&["resources", "list", "--env", "stage"]);
    let before = record(&house);
    let plan = place.json(&["destroy", "--env", "stage", "--dry-run"]);
    let told = |action: &str| -> BTreeSet<String> {
        let removals = plan["removals"].as_array().unwrap().iter();
        removals.filter(|item| item["action"] == action).map(|item| text(item, "resource")).collect()
    };
    assert_eq!(told("release"), shared);
    assert_eq!(told("remove"), all.difference(&shared).cloned().collect());
    assert_eq!((there(&house), record(&house)), (all.clone(), before));

    let began = text(&house.api().post("/api/v1/destroys", &json!({ "environment": "stage" })).json(), "id");
    if kill {
        eventually("half of it is gone", seconds(120), || (steps(&house, "delete") > 60).then_some(()));
        if let Some(mut worker) = house.fleet.workers.pop() {
            worker.kill();
        }
        house.fleet.servers[0].kill();
        let at = steps(&house, "delete");
        assert!(at < all.len() - SHARED, "it was over before anything was killed");
        std::thread::sleep(Duration::from_millis(300));
        house.fleet.servers[0] = house.start_server(shape, 0);
        if shape != (Shape::Up { workers: 0 }) {
            let worker = house.worker();
            house.fleet.workers.push(worker);
        }
    }
    eventually("it is torn down", seconds(240), || {
        (super::change(&house, &began)["status"] != "in_progress").then_some(())
    });
    ends(&house, &began, "succeeded");
    exactly_the_right_ones(&house, &shared);
    if !kill {
        assert_eq!(steps(&house, "delete"), all.len() - SHARED, "each of them once");
    }
    // Nothing is left to tear down, and that is no mistake.
    let again = house.place.json(&["destroy", "--env", "stage", "--yes"]);
    assert_eq!(again["status"], "succeeded", "{again}");
    assert_eq!(there(&house), shared);
    // The last user goes, and they go with it.
    house.place.json(&["destroy", "--app", "elsewhere", "--env", "dev", "--yes"]);
    eventually("the rest goes with its last user", seconds(60), || there(&house).is_empty().then_some(()));
}

#[test]
fn two_hundred_things_are_torn_down_on_sqlite() {
    two_hundred_things(Shape::Up { workers: 0 }, false);
}

#[test]
fn two_hundred_things_are_torn_down_on_postgresql() {
    if !quick() {
        two_hundred_things(Shape::FleetPostgres { servers: 1, workers: 1 }, false);
    }
}

#[test]
fn killed_half_way_it_finishes_on_sqlite() {
    two_hundred_things(Shape::Up { workers: 0 }, true);
}

#[test]
fn killed_half_way_it_finishes_on_postgresql() {
    if !quick() {
        two_hundred_things(Shape::FleetPostgres { servers: 1, workers: 1 }, true);
    }
}

/// What is protected is in the way, by name, before anything is done; or it is left, with what it stands on.
fn what_is_protected(house: &House) {
    let place = &house.place;
    things(place, "");
    let score = Score::new("shop")
        .thing("base", json!({ "note": "base" }))
        .thing("db", json!({ "note": "db on ${resources.base.note}" }))
        .thing("log", json!({ "note": "log" }));
    let made = place.deploy(&score.text());
    let [base, db, log] = ["base", "db", "log"].map(|name| super::served(&made, name).1);
    place.ok(&["resources", "protect", &db]);
    let told = place.run(&["destroy", "--env", "dev", "--yes"]);
    assert_eq!(told.code, 1, "{told:?}");
    says(&told.all(), &[&db, "is protected", "--keep-protected"]);
    assert_eq!(place.world.steps(), ["create"; 3], "refused before anything is done");
    let dry = place.run(&["destroy", "--env", "dev", "--dry-run"]);
    assert_eq!(dry.code, 1, "{dry:?}");

    let plan = place.json(&["destroy", "--env", "dev", "--dry-run", "--keep-protected"]);
    says(&plan.to_string(), &["it is protected"]);
    assert_eq!(place.world.things().len(), 3);
    place.ok(&["destroy", "--env", "dev", "--yes", "--keep-protected"]);
    assert_eq!(place.world.things().keys().collect::<BTreeSet<_>>(), BTreeSet::from([&base, &db]));
    super::is(house, &log, "destroyed/done", "Deleted");
    super::is(house, &db, "provisioned/done", "Active");
    // Let go of, they go.
    place.ok(&["resources", "unprotect", &db, "--yes"]);
    place.ok(&["destroy", "--env", "dev", "--yes"]);
    house.is_empty();
}

/// The environment itself can be protected; and who may only write cannot tear it down.
fn who_may_not(house: &House) {
    let place = &house.place;
    things(place, "");
    place.deploy(&Score::new("shop").thing("db", json!({ "note": "db" })).text());
    place.apply("dev", "kind: Environment\nname: dev\ntype: development\nprotected: true\n");
    let told = place.run(&["destroy", "--env", "dev", "--yes"]);
    assert_eq!(told.code, 1, "{told:?}");
    says(&told.all(), &["environment `dev` is protected"]);
    place.apply("dev", "kind: Environment\nname: dev\ntype: development\n");
    let reader = somebody(house, "read", "rosa");
    reader.post("/api/v1/destroys", &json!({ "environment": "dev" })).problem(403);
    assert_eq!(place.world.things().len(), 1);
    place.ok(&["destroy", "--env", "dev", "--yes"]);
    house.is_empty();
}

/// One of them cannot be destroyed: the rest goes, what it stands on stays, and a second time finishes it.
fn a_teardown_that_fails_half_way(house: &House) {
    let place = &house.place;
    things(place, "");
    let score = Score::new("shop")
        .thing("base", json!({ "note": "base" }))
        .thing("db", json!({ "note": "db on ${resources.base.note}" }));
    let made = place.deploy(&score.text());
    let [base, db] = ["base", "db"].map(|name| super::served(&made, name).1);
    place.world.trouble("jammed", "somebody sits on it");
    let told = place.run(&["destroy", "--env", "dev", "--yes", "-o", "json"]);
    assert_eq!(told.code, 1, "{told:?}");
    super::is(house, &db, "destroy/error", "Failed");
    super::is(house, &base, "provisioned/done", "Active");
    assert_eq!(place.world.things().len(), 2);
    place.world.calm("jammed");
    let again = place.json(&["retry", &text(&told.json(), "id")]);
    assert_eq!(again["status"], "succeeded", "{again}");
    house.is_empty();
}

/// Its time is over: it is torn down by itself, where nobody has a say. A no is a no until somebody changes its terms.
fn an_environment_in_its_time(house: &House) {
    let place = &house.place;
    things(place, "");
    let terms = |more: &str| {
        place.apply("brief", &format!("kind: Environment\nname: brief\ntype: preview\n{more}"));
    };
    terms("ttl: 1h\n");
    let score = Score::new("shop").thing("db", json!({ "note": "db" })).text();
    let file = place.write("shop.yaml", score).display().to_string();
    place.json(&["deploy", "-f", &file, "--env", "brief"]);
    let ada = somebody(house, "admin", "ada");
    terms("ttl: 1s\napproval: { destroy: required }\n");
    let asked = super::request(house);
    assert_eq!((&asked["kind"], &asked["requester"]), (&json!("teardown"), &json!("conductor")));
    super::reject(&ada, &asked);
    std::thread::sleep(seconds(4));
    assert_eq!(super::waiting(house), Vec::<Value>::new(), "it is not asked for again and again");
    assert_eq!(place.world.things().len(), 1);
    let late = place.run(&["deploy", "-f", &file, "--env", "brief"]);
    says(&late.all(), &["the time of `brief` was over"]);
    // Nor is what fails tried again and again.
    place.world.trouble("jammed", "somebody sits on it");
    terms("ttl: 2s\n");
    eventually("it is tried", seconds(20), || (place.world.begun("delete") > 0).then_some(()));
    std::thread::sleep(seconds(4));
    assert_eq!(place.world.begun("delete"), 1);
    place.world.calm("jammed");
    place.ok(&["destroy", "--env", "brief", "--yes"]);
    assert!(place.world.things().is_empty());

    // Used again in time, it lives again; and goes without a word.
    terms("ttl: 2h\n");
    place.json(&["deploy", "-f", &file, "--env", "brief"]);
    terms("ttl: 1s\n");
    eventually("it is gone", seconds(20), || place.world.things().is_empty().then_some(()));
    says(&super::audit(house), &["change.accepted"]);
}

/// Its pools go with it, when it has gone; a teardown that nobody agrees to leaves them as they are.
fn pools_go_with_their_environment(house: &House) {
    let place = &house.place;
    things(place, "");
    place.apply(
        "warm",
        "kind: Pool\nname: warm\nenvironment: dev\ntemplate: thing\nsize: 2\nparameters: { note: warm }\n",
    );
    let ready = |wanted: u64| {
        eventually("the pool is at its size", seconds(30), || {
            let pool = place.json(&["pools", "get", "warm"]);
            (pool["ready"] == wanted && pool["creating"] == 0).then_some(())
        });
    };
    ready(2);
    let ada = somebody(house, "admin", "ada");
    place.deploy(&Score::new("shop").thing("db", json!({ "note": "db" })).text());
    super::approval(place, "{ destroy: required }");
    let plan = place.json(&["destroy", "--env", "dev", "--dry-run"]);
    says(&plan.to_string(), &["pool `warm` goes as well"]);
    let asked = |wanted: &str| {
        let begun = house.api().post("/api/v1/destroys", &json!({ "environment": "dev" })).json();
        let id = text(&begun, "id");
        super::rests(house, &id);
        let request = super::request(house);
        match wanted {
            "succeeded" => super::approve(&ada, &request),
            _ => super::reject(&ada, &request),
        }
        ends(house, &id, wanted);
    };
    asked("failed");
    ready(2);
    assert_eq!(place.world.things().len(), 3);
    asked("succeeded");
    eventually("everything is gone", seconds(30), || place.world.things().is_empty().then_some(()));
    assert_eq!(place.json(&["pools", "list"]), json!([]));
    assert_eq!(super::waiting(house), Vec::<Value>::new(), "nobody is asked twice");
    assert_eq!(place.world.begun("create"), 3, "nothing was made in between");
    house.is_empty();
}

stories!(pools_go_with_their_environment an_environment_in_its_time what_is_protected who_may_not a_teardown_that_fails_half_way);
