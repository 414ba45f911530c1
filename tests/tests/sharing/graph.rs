//! What depends on what, how strongly, and what is handed over.

use conductor_tests::{House, Run, Score};
use serde_json::{Value, json};

use super::{all_leave, get, item, ran, says, served, steps, stories, template};

fn dependent(note: &str, how: Value) -> Value {
    json!({ "type": "thing", "params": { "note": note }, "dependsOn": [how] })
}

#[track_caller]
fn run_of(runs: &[Run], note: &str) -> Run {
    runs.iter().rev().find(|run| run.note == note).unwrap_or_else(|| panic!("{note} never ran")).clone()
}

/// In whatever way one depends on the other: it comes later and goes sooner, and is handed what the other gives.
fn every_way_of_depending(house: &House) {
    let place = &house.place;
    place.apply_things();
    let mut score = Score::new("web").thing("base", json!({ "note": "base", "takes": 0.3 }));
    let ways = [
        ("plain", json!("base")),
        ("strong", json!({ "name": "base", "type": "strong", "relationship": "requires" })),
        ("weak", json!({ "name": "base", "type": "weak" })),
        ("output", json!({ "name": "base", "type": "output" })),
        ("user", json!({ "name": "base", "relationship": "uses" })),
        ("heir", json!({ "name": "base", "relationship": "extends" })),
    ];
    for (name, how) in &ways {
        score = score.with(name, dependent(name, how.clone()));
    }
    let document = place.deploy(&score.text());
    let base = served(&document, "base").1;
    let runs = place.world.runs();
    let ended = run_of(&runs, "base").end.unwrap().0;
    for (name, _) in &ways {
        let run = run_of(&runs, name);
        assert!(run.began >= ended, "{name} did not wait");
        assert_eq!(run.handed["base"]["note"], "base", "{name}");
        assert_eq!(get(house, &run.resource)["dependsOn"], json!([base]), "{name}");
    }
    assert_eq!(place.deploy(&score.text())["status"], "succeeded");
    ran(place, json!({ "create": 7 }));
    place.destroy("web");
    let runs = place.world.runs();
    let began = runs.iter().find(|run| run.step == "delete" && run.note == "base").unwrap().began;
    for run in
        runs.iter().filter(|run| run.step == "delete" && !["base", "weak"].contains(&run.note.as_str()))
    {
        assert!(run.end.as_ref().unwrap().0 <= began, "{} went after what it depends on", run.note);
    }
    house.is_empty();
}

/// A weak dependency is waited for and never in the way; the others hold back what depends on them.
fn when_the_dependency_fails(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = |params: Value| {
        Score::new("web")
            .thing("cache", params)
            .with("weak", dependent("weak", json!({ "name": "cache", "type": "weak" })))
            .with(
                "user",
                dependent("user", json!({ "name": "cache", "type": "weak", "relationship": "uses" })),
            )
            .with("strong", dependent("strong", json!({ "name": "cache", "type": "strong" })))
            .with("output", dependent("output", json!({ "name": "cache", "type": "output" })))
            .text()
    };
    let failed =
        place.deploy_in_vain(&score(json!({ "note": "cache", "takes": 0.3, "breaks": "no room" }))).json();
    assert_eq!(failed["status"], "failed");
    let phase = |name: &str| item(&failed, name)["phase"].as_str().unwrap().to_owned();
    assert_eq!(
        (phase("cache").as_str(), phase("weak").as_str(), phase("user").as_str()),
        ("Failed", "Active", "Active")
    );
    assert_eq!((phase("strong").as_str(), phase("output").as_str()), ("Pending", "Pending"));
    let runs = place.world.runs();
    for name in ["weak", "user"] {
        let run = run_of(&runs, name);
        assert!(run.began >= run_of(&runs, "cache").end.unwrap().0, "{name} did not wait");
        assert!(run.handed["cache"].as_object().is_none_or(|outputs| outputs.is_empty()), "{:?}", run.handed);
    }
    let operations = place.json(&["operations", "list", "--deployment", failed["id"].as_str().unwrap()]);
    for name in ["web-strong", "web-output"] {
        let held = operations.as_array().unwrap().iter().find(|one| one["resourceName"] == name).unwrap();
        assert_eq!(held["status"], "cancelled");
        says(held["error"]["message"].as_str().unwrap(), &["web-cache", "no room"]);
    }
    // Put right, the rest follows.
    place.deploy(&score(json!({ "note": "cache" })));
    assert_eq!(place.world.things().len(), 5);
    all_leave(house, &["web"]);
}

/// A placeholder says more than `weak`: what is needed for a value is waited for.
fn a_placeholder_makes_it_strong(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = Score::new("web").thing("cache", json!({ "note": "cache", "breaks": "no room" })).with(
        "user",
        json!({
            "type": "thing", "params": { "note": "at ${cache.note}" },
            "dependsOn": [{ "name": "cache", "type": "weak" }],
        }),
    );
    let failed = place.deploy_in_vain(&score.text()).json();
    assert_eq!(item(&failed, "user")["phase"], "Pending", "{failed}");
    assert_eq!(place.world.begun("create"), 1);
}

/// What an heir does not say for itself it takes from the one it extends, and follows it.
fn extending(house: &House) {
    let place = &house.place;
    template(
        place,
        "plan",
        "    size: { type: string, default: small }\n    zone: { type: string }\n    key: { type: string, sensitive: true }\n",
    );
    let score = |zone: &str| {
        Score::new("web")
            .with("base", json!({ "type": "plan", "params": { "note": "base", "zone": zone, "size": "large", "key": "hush-hush" } }))
            .with(
                "heir",
                json!({
                    "type": "plan", "params": { "note": "heir" },
                    "dependsOn": [{ "name": "base", "relationship": "extends" }],
                }),
            )
            .with(
                "stranger",
                json!({ "type": "plan", "params": { "note": "stranger" }, "dependsOn": ["base"] }),
            )
            .text()
    };
    place.deploy(&score("north"));
    let given = |note: &str| run_of(&place.world.runs(), note).given;
    let heir = given("heir");
    assert_eq!(
        (&heir["zone"], &heir["size"], &heir["note"]),
        (&json!("north"), &json!("large"), &json!("heir"))
    );
    assert_eq!(heir.get("key"), None, "a secret is not handed down");
    let stranger = given("stranger");
    assert_eq!((stranger.get("zone"), &stranger["size"]), (None, &json!("small")));

    let document = place.deploy(&score("south"));
    let done =
        ["base", "heir", "stranger"].map(|name| item(&document, name)["action"].as_str().unwrap().to_owned());
    assert_eq!(done, ["update", "update", "none"], "{document}");
    assert_eq!(given("heir")["zone"], "south");
    assert_eq!(steps(place)["update"], 2);
    place.deploy(&score("south"));
    ran(place, json!({ "create": 3, "update": 2 }));
}

/// What depends on something shared follows it, whoever changes it.
fn depending_on_what_is_shared(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = |application: &str| {
        Score::new(application)
            .with("hub", json!({ "type": "thing", "params": { "note": "hub" }, "sharing": "by-name" }))
            .with(
                "spoke",
                json!({ "type": "thing", "params": { "note": application }, "dependsOn": ["hub"] }),
            )
            .text()
    };
    place.deploy(&score("app-a"));
    place.deploy(&score("app-b"));
    ran(place, json!({ "create": 3 }));
    place.destroy("app-a");
    assert_eq!(place.world.things().len(), 2);
    place.destroy("app-b");
    house.is_empty();
    let order: Vec<String> = place.world.done().into_iter().map(|(_, note)| note).collect();
    assert_eq!(order, ["hub", "app-a", "app-b", "app-a", "app-b", "hub"]);
}

stories!(
    embedded: every_way_of_depending when_the_dependency_fails a_placeholder_makes_it_strong extending
        depending_on_what_is_shared
);
