//! What a changed Score file brings about: only the difference, in the right order, and what went wrong can be put
//! right.

use std::time::Duration;

use conductor_tests::{House, Place, Score, Shape, eventually, resource, seconds, shared};
use serde_json::{Value, json};

fn embedded() -> House {
    let house = House::new(Shape::Embedded);
    house.place.apply_things();
    house
}

fn steps(of: &Place) -> Vec<(String, String)> {
    of.world.done()
}

fn told(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(step, note)| ((*step).to_owned(), (*note).to_owned())).collect()
}

/// By requirement: what was done.
fn actions(document: &Value) -> Vec<(String, String)> {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let items = list("resources").into_iter().chain(list("removals"));
    items
        .map(|item| {
            (item["requirement"].as_str().unwrap().to_owned(), item["action"].as_str().unwrap().to_owned())
        })
        .collect()
}

#[test]
fn only_the_difference_is_carried_out() {
    let house = embedded();
    let place = &house.place;
    let aa = json!({ "note": "a" });
    place.deploy(&Score::new("web").thing("aa", aa.clone()).text());
    let both = Score::new("web").thing("aa", aa.clone()).thing("bb", json!({ "note": "b" }));
    assert_eq!(actions(&place.deploy(&both.text())), told(&[("aa", "none"), ("bb", "create")]));
    assert_eq!(actions(&place.deploy(&both.text())), told(&[("aa", "none"), ("bb", "none")]));
    assert_eq!(steps(place), told(&[("create", "a"), ("create", "b")]));

    let changed = Score::new("web").thing("aa", aa.clone()).thing("bb", json!({ "note": "b2" }));
    assert_eq!(actions(&place.deploy(&changed.text())), told(&[("aa", "none"), ("bb", "update")]));
    assert_eq!(steps(place)[2..], told(&[("update", "b2")]));

    assert_eq!(
        actions(&place.deploy(&Score::new("web").thing("aa", aa).text())),
        told(&[("aa", "none"), ("bb", "remove")])
    );
    assert_eq!(steps(place)[3..], told(&[("delete", "b2")]));
    assert_eq!(place.world.things().len(), 1);
}

#[test]
fn a_dry_run_changes_nothing() {
    let house = embedded();
    let place = &house.place;
    let old = Score::new("web").thing("aa", json!({ "note": "a" })).thing("bb", json!({ "note": "b" }));
    place.deploy(&old.text());
    let look = || {
        (
            place.json(&["resources", "list"]),
            place.json(&["deployments", "list"]),
            place.json(&["events", "list"]),
        )
    };
    let before = look();
    let new = Score::new("web").thing("aa", json!({ "note": "a2" })).thing("cc", json!({ "note": "c" }));
    let plan = place.plan(&new.text());
    assert_eq!(actions(&plan), told(&[("aa", "update"), ("cc", "create"), ("bb", "remove")]));
    for item in plan["resources"].as_array().unwrap() {
        assert!(!item["reason"].as_str().unwrap().is_empty(), "{item}");
    }
    let file = place.write("new.yaml", new.text()).display().to_string();
    place.ok(&["explain", "-f", &file, "--env", "dev"]);
    let dry = place.json(&["destroy", "--app", "web", "--env", "dev", "--dry-run"]);
    assert_eq!(actions(&dry), told(&[("aa", "remove"), ("bb", "remove")]));
    place.ok(&["apply", "-f", "catalog", "--dry-run"]);
    assert_eq!(look(), before);
    assert_eq!(place.world.runs().len(), 2);
    assert_eq!(
        place.run(&["destroy", "--app", "web", "--env", "dev"]).code,
        2,
        "nobody to ask, and it did not insist on --yes"
    );
}

fn with_words(place: &Place) {
    let more = "    size: { type: string, immutable: true, default: small }\n    zone: { type: string, frozen: true, default: north }\n";
    place.apply("walled", &place.world.template("walled", more));
}

#[test]
fn an_immutable_parameter_means_delete_and_create_and_dependents_follow() {
    let house = embedded();
    let place = &house.place;
    with_words(place);
    let score = |size: &str| {
        Score::new("web")
            .with("db", resource("walled", json!({ "note": "db", "size": size })))
            .thing("user", json!({ "note": "at ${resources.db.place}" }))
            .text()
    };
    let first = place.deploy(&score("small"));
    let plan = place.plan(&score("large"));
    assert_eq!(actions(&plan)[0], ("db".into(), "replace".into()), "{plan}");
    let second = place.deploy(&score("large"));
    let (old, new) = (&first["resources"][0]["resource"], &second["resources"][0]["resource"]);
    assert_ne!(old, new, "a replacement is another resource");
    let world = &place.world;
    let order: Vec<String> = steps(place).into_iter().skip(2).map(|(step, _)| step).collect();
    assert_eq!(world.begun("create"), 3, "{order:?}");
    assert_eq!((world.begun("update"), world.begun("delete")), (1, 1), "{order:?}");
    let things = world.things();
    assert_eq!(things.len(), 2);
    assert!(!things.contains_key(old.as_str().unwrap()));
    let user = things.values().find(|thing| thing["note"].as_str().unwrap().starts_with("at ")).unwrap();
    assert!(user["note"].as_str().unwrap().contains(new.as_str().unwrap()), "{user}");
    assert_eq!(place.resources().len(), 2);
}

#[test]
fn a_frozen_parameter_cannot_be_changed() {
    let house = embedded();
    let place = &house.place;
    with_words(place);
    let score = |zone: &str| {
        Score::new("web").with("db", resource("walled", json!({ "note": "db", "zone": zone }))).text()
    };
    place.deploy(&score("north"));
    let refused = place.deploy_in_vain(&score("south")).all();
    assert!(refused.contains("zone") && refused.contains("frozen"), "{refused}");
    assert_eq!(steps(place), told(&[("create", "db")]));
    assert_eq!(place.deploy(&score("north"))["status"], "succeeded");
}

#[test]
fn a_failure_is_kept_holds_back_its_dependents_and_is_put_right_by_a_new_deployment() {
    let house = embedded();
    let place = &house.place;
    let score = |back: Value| {
        Score::new("web")
            .thing("back", back)
            .thing("front", json!({ "note": "front of ${resources.back.note}" }))
            .thing("aside", json!({ "note": "aside" }))
            .text()
    };
    let failed =
        place.deploy_in_vain(&score(json!({ "note": "back", "breaks": "the quota of 3 is used up" })));
    let document = failed.json();
    assert_eq!(document["status"], "failed");
    assert!(
        document["error"]["message"].as_str().unwrap().contains("the quota of 3 is used up"),
        "{document}"
    );
    let phases = |document: &Value| {
        let items = document["resources"].as_array().unwrap().clone();
        let mut phases: Vec<(String, String)> = items
            .iter()
            .map(|item| {
                (
                    item["requirement"].as_str().unwrap().to_owned(),
                    item["phase"].as_str().unwrap_or("-").to_owned(),
                )
            })
            .collect();
        phases.sort_unstable();
        phases
    };
    let seen = phases(&document);
    assert_eq!(seen[0], ("aside".into(), "Active".into()));
    assert_eq!(seen[1], ("back".into(), "Failed".into()));
    assert!(!["Active", "Provisioning"].contains(&seen[2].1.as_str()), "{seen:?}");
    let operations = place.json(&["operations", "list", "--deployment", document["id"].as_str().unwrap()]);
    let front = operations
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["resourceName"] == "web-front")
        .expect("its operation");
    assert_ne!(front["status"], "succeeded");
    assert!(
        front["error"]["message"].as_str().unwrap_or_default().contains("back"),
        "nothing says who held it back: {front}"
    );

    let fixed = place.deploy(&score(json!({ "note": "back" })));
    assert!(phases(&fixed).iter().all(|(_, phase)| phase == "Active"), "{fixed}");
    assert_eq!(
        steps(place).iter().filter(|(_, note)| note == "aside").count(),
        1,
        "what worked was made again"
    );
    assert!(place.world.things().values().any(|thing| thing["note"] == "front of back"));
}

#[test]
fn a_failure_is_put_right_by_a_retry() {
    let house = embedded();
    let place = &house.place;
    // Its home is not there yet, and that is nothing that a parameter could put right.
    let home = place.path("world/home");
    place.write_program(
        "catalog/needy.sh",
        &format!("#!/bin/sh\n[ \"$1\" = create ] || {{ echo '{{}}'; exit 0; }}\n[ -d {0} ] || {{ echo 'no home' >&2; exit 1; }}\necho '{{\"outputs\": {{\"home\": \"{0}\"}}}}'\n", home.display()),
    );
    place.apply(
        "needy",
        &format!(
            "kind: Template\nname: needy\ntype: needy\nversion: 1.0.0\nmanager: command\n\
             config: {{ program: ./needy.sh, protocol: conductor, allow: {{ read: [\"{}\"] }} }}\n",
            place.world.folder.display()
        ),
    );
    let score = Score::new("web")
        .with("db", json!({ "type": "needy" }))
        .thing("user", json!({ "note": "${resources.db.home}" }))
        .text();
    let failed = place.deploy_in_vain(&score).json();
    assert!(failed["error"]["message"].as_str().unwrap().contains("no home"), "{failed}");
    std::fs::create_dir(&home).unwrap();
    let id = failed["id"].as_str().unwrap();
    let retried = place.json(&["retry", id]);
    assert_eq!((&retried["status"], &retried["id"]), (&json!("succeeded"), &json!(id)));
    assert_eq!(steps(place), told(&[("create", &home.display().to_string())]));
    assert_eq!(place.run(&["retry", id]).code, 1, "what succeeded cannot be retried");
}

#[test]
fn a_passing_failure_is_tried_again_and_the_attempts_are_kept() {
    let house = embedded();
    let place = &house.place;
    let document = place.deploy(&Score::new("web").thing("db", json!({ "note": "db", "busy": 2 })).text());
    let runs = place.world.runs();
    assert_eq!(runs.iter().map(|run| run.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(runs.iter().all(|run| run.operation == runs[0].operation));
    let operations = place.json(&["operations", "list", "--deployment", document["id"].as_str().unwrap()]);
    let made = operations.as_array().unwrap().iter().find(|one| one["resourceName"] == "web-db").unwrap();
    assert_eq!((&made["attempt"], &made["status"]), (&json!(3), &json!("succeeded")));
    let tried = format!(
        "SELECT count(*) FROM attempts WHERE outcome <> 'lost' AND number IN (1, 2) AND {}",
        "error IS NOT NULL"
    );
    assert_eq!(house.count(&tried), 2);
    // And not for ever.
    let failed =
        place.deploy_in_vain(&Score::new("other").thing("db", json!({ "note": "never", "busy": 99 })).text());
    assert!(failed.all().contains("come back later"), "{failed:?}");
    assert_eq!(
        place.world.runs().iter().filter(|run| run.note == "never").count(),
        5,
        "the first and four retries"
    );
}

#[test]
fn a_dependent_runs_only_when_what_it_is_given_changes() {
    let house = embedded();
    let place = &house.place;
    let score = |note: &str| {
        Score::new("web")
            .thing("db", json!({ "note": note }))
            .thing("by-place", json!({ "note": "P ${resources.db.place}" }))
            .thing("by-note", json!({ "note": "N ${resources.db.note}" }))
            .text()
    };
    place.deploy(&score("one"));
    assert_eq!(place.world.runs().len(), 3);
    place.deploy(&score("two"));
    let done = steps(place);
    assert_eq!(done[3..], told(&[("update", "two"), ("update", "N two")]), "{done:?}");
    house.is_at_rest();
}

#[test]
fn the_order_of_dependencies_is_kept_and_turned_around_at_the_end() {
    let house = embedded();
    let place = &house.place;
    let score = Score::new("web")
        .thing("top", json!({ "note": "top ${resources.middle.note}" }))
        .thing("middle", json!({ "note": "middle ${resources.base.note}", "takes": 0.2 }))
        .with("after", json!({ "type": "thing", "params": { "note": "after" }, "dependsOn": ["top"] }))
        .thing("base", json!({ "note": "base", "takes": 0.3 }));
    place.deploy(&score.text());
    let made = ["base", "middle base", "top middle base", "after"];
    assert_eq!(steps(place), told(&made.map(|note| ("create", note))));
    place.destroy("web");
    let mut gone = made;
    gone.reverse();
    assert_eq!(steps(place)[4..], told(&gone.map(|note| ("delete", note))));
    house.is_empty();
}

#[test]
fn a_shared_name_with_other_parameters_is_a_conflict_that_shows_both_sides() {
    let house = embedded();
    let place = &house.place;
    let score = |application: &str, note: &str| {
        Score::new(application).with("db", shared("thing", "orders", json!({ "note": note }))).text()
    };
    place.deploy(&score("app-a", "mine"));
    let refused = place.deploy_in_vain(&score("app-b", "yours")).all();
    for word in ["orders", "mine", "yours", "app-a", "note"] {
        assert!(refused.contains(word), "nothing says `{word}`: {refused}");
    }
    assert_eq!(place.resources()[0]["consumers"].as_array().unwrap().len(), 1);
    // Alone with it, a change is an update; with another one beside it, it is a conflict.
    place.deploy(&score("app-a", "changed"));
    place.deploy(&score("app-b", "changed"));
    let refused = place.deploy_in_vain(&score("app-a", "again")).all();
    assert!(refused.contains("app-b"), "{refused}");
    assert_eq!(steps(place), told(&[("create", "mine"), ("update", "changed")]));
    // Whoever asks for no parameters takes what is there.
    let absent = Score::new("app-c").with("db", json!({ "type": "thing", "id": "orders" })).text();
    assert_eq!(actions(&place.deploy(&absent)), told(&[("db", "reuse")]));
}

#[test]
fn what_is_linked_by_its_id_is_never_owned_nor_destroyed() {
    let house = embedded();
    let place = &house.place;
    let made = place.deploy(&Score::new("owner").thing("db", json!({ "note": "db" })).text());
    let id = made["resources"][0]["resource"].as_str().unwrap().to_owned();
    let link = json!({ "type": "thing", "reference": { "mode": "existing", "id": id } });
    let linked = place.deploy(
        &Score::new("guest")
            .with("theirs", link)
            .thing("own", json!({ "note": "${resources.theirs.place}" }))
            .text(),
    );
    let item = linked["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["requirement"] == "theirs")
        .unwrap()
        .clone();
    assert_eq!((item["action"].as_str(), item["resource"].as_str()), (Some("link"), Some(id.as_str())));
    assert!(place.world.things().values().any(|thing| thing["note"].as_str().unwrap().ends_with(&id)));
    place.destroy("guest");
    assert_eq!(place.world.things().keys().collect::<Vec<_>>(), [&id]);
    let nobody = json!({ "type": "thing", "reference": { "mode": "existing", "id": "res_00000000000000000000000000" } });
    let refused = place.deploy_in_vain_or_not_found(&Score::new("guest").with("theirs", nobody).text());
    assert!(refused.contains("res_00000000000000000000000000"), "{refused}");
    place.destroy("owner");
    house.is_empty();
}

trait NotFound {
    fn deploy_in_vain_or_not_found(&self, score: &str) -> String;
}

impl NotFound for Place {
    fn deploy_in_vain_or_not_found(&self, score: &str) -> String {
        let file = self.write("vain.yaml", score).display().to_string();
        let told = self.run(&["deploy", "-f", &file, "--env", "dev"]);
        assert!(matches!(told.code, 1 | 6), "{told:?}");
        told.all()
    }
}

#[test]
fn a_cancelled_deployment_ends_when_its_program_has_and_starts_nothing_more() {
    let house = House::new(Shape::Up { workers: 0 });
    let place = &house.place;
    place.apply_things();
    let api = house.api();
    let score = Score::new("web")
        .thing("db", json!({ "note": "db", "takes": 30, "stubborn": true }))
        .thing("after", json!({ "note": "after ${resources.db.note}" }))
        .text();
    let deployment = api.deploy(&score);
    place.world.wait_for_a_run();
    place.ok(&["cancel", &deployment.id.unwrap().to_string()]);
    let end = api.settled(&deployment, seconds(20));
    assert_eq!(end.status, "cancelled");
    assert_eq!(serde_json::to_value(end.error).unwrap()["code"], "cancelled");
    place.world.is_quiet();
    assert_eq!(place.world.runs().len(), 1);
    assert_eq!(place.run(&["cancel", &deployment.id.unwrap().to_string()]).code, 1, "it is over already");
    // It can be taken up again.
    let again = Score::new("web")
        .thing("db", json!({ "note": "db" }))
        .thing("after", json!({ "note": "after ${resources.db.note}" }))
        .text();
    assert_eq!(place.deploy(&again)["status"], "succeeded");
    assert_eq!(place.world.things().len(), 2);
    place.destroy("web");
    house.is_empty();
}

#[test]
fn a_cancel_with_rollback_takes_away_what_the_deployment_made_and_nothing_else() {
    let house = House::new(Shape::Up { workers: 0 });
    let place = &house.place;
    place.apply_things();
    let api = house.api();
    let old = Score::new("web")
        .thing("old", json!({ "note": "old" }))
        .with("db", shared("thing", "orders", json!({ "note": "orders" })));
    place.deploy(&old.text());
    place.deploy(
        &Score::new("other").with("db", shared("thing", "orders", json!({ "note": "orders" }))).text(),
    );
    let new = old
        .clone()
        .thing("new", json!({ "note": "new" }))
        .thing("slow", json!({ "note": "slow ${resources.new.note}", "takes": 30 }));
    let deployment = api.deploy(&new.text());
    eventually("the slow one runs", seconds(20), || {
        place.world.runs().into_iter().find(|run| run.note == "slow new")
    });
    place.ok(&["cancel", &deployment.id.unwrap().to_string(), "--rollback"]);
    let end = api.settled(&deployment, seconds(30));
    assert_eq!(end.status, "cancelled");
    let notes = || {
        let mut notes: Vec<String> =
            place.world.things().values().map(|thing| thing["note"].as_str().unwrap().to_owned()).collect();
        notes.sort_unstable();
        notes
    };
    eventually("what it made goes", seconds(20), || (notes() == ["old", "orders"]).then_some(()));
    eventually("and is no longer told of", seconds(10), || (place.resources().len() == 2).then_some(()));
    place.world.is_quiet();
    assert_eq!(place.deploy(&old.text())["status"], "succeeded");
    assert_eq!(notes(), ["old", "orders"]);
    house.is_at_rest();
}

#[test]
fn a_deployment_that_runs_out_of_time_is_stopped() {
    let house = House::new(Shape::Up { workers: 0 });
    let place = &house.place;
    place.apply_things();
    let file = place
        .write("slow.yaml", Score::new("web").thing("db", json!({ "takes": 60 })).text())
        .display()
        .to_string();
    let told = place.run(&["deploy", "-f", &file, "--env", "dev", "--timeout", "2s", "-o", "json"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(told.json()["status"], "timed_out", "{told:?}");
    assert!(told.took < Duration::from_secs(25), "{:?}", told.took);
    place.world.is_quiet();
    house.is_at_rest();
}

#[test]
fn the_workload_is_handed_over_with_its_placeholders_filled_in() {
    let house = embedded();
    let place = &house.place;
    let score = Score::new("web")
        .thing("db", json!({ "note": "db", "secret": true }))
        .variable("NOTE", "${resources.db.note} $${not}")
        .variable("PASSWORD", "${resources.db.password}");
    place.deploy(&score.text());
    let password = place.outputs("web", true)["db"]["password"].as_str().unwrap().to_owned();
    let holding: Vec<_> = place
        .files()
        .into_iter()
        .filter(|file| {
            std::fs::read(file)
                .is_ok_and(|bytes| bytes.windows(password.len()).any(|part| part == password.as_bytes()))
        })
        .collect();
    assert!(!holding.is_empty(), "the rendered workload holds no password");
    for file in &holding {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
        assert!(std::fs::read_to_string(file).unwrap().contains("db ${not}"), "{}", file.display());
    }
    place.destroy("web");
    assert!(holding.iter().all(|file| !file.exists()), "the workload's files are left: {holding:?}");
    house.is_empty();
}

#[test]
fn a_unique_parameter_belongs_to_one_living_resource() {
    let house = embedded();
    let place = &house.place;
    place.apply(
        "host",
        "kind: Template\nname: host\ntype: host\nversion: 1.0.0\nmanager: database\nconfig: { engine: sqlite }\nparameters:\n  type: object\n  properties: { name: { type: string, unique: true } }\n",
    );
    let score = |app: &str, name: &str| {
        Score::new(app).with("host", resource("host", json!({ "name": name }))).text()
    };
    place.deploy(&score("first", "www"));
    let refused = place.deploy_in_vain(&score("second", "www"));
    assert!(refused.all().contains("first-host") && refused.all().contains("`name`"), "{}", refused.all());
    place.deploy(&score("second", "api"));
    place.destroy("first");
    place.deploy(&score("third", "www"));
}

#[test]
fn what_another_deployment_waits_for_is_not_cancelled_with_the_first() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let api = house.api();
    let wants =
        |app: &str| Score::new(app).with("db", shared("thing", "orders", json!({ "takes": 2 }))).text();
    let first = api.deploy(&wants("first"));
    house.place.world.wait_for_a_run();
    let second = api.deploy(&wants("second"));
    house.place.ok(&["cancel", &first.id.unwrap().to_string()]);
    assert_eq!(api.settled(&first, seconds(20)).status, "cancelled");
    let ended = api.settled(&second, seconds(20));
    assert_eq!(ended.status, "succeeded", "{ended:?}");
    assert_eq!(house.place.world.done().len(), 1, "made once, and not begun again");
}
