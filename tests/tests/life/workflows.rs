//! The nine workflows, each with where the resource is in its life before, during, after, and when it goes wrong.

use conductor_tests::{House, Score, eventually, resource, seconds, shared};
use serde_json::{Value, json};

use super::{
    accepted, act, becomes, change, deploy_soon, done, ends, get, is, item, made, pair, says, served,
    stories, text, things,
};

/// The one resource a running change has made so far, by its requirement.
#[track_caller]
fn of(house: &House, id: &str, requirement: &str) -> String {
    served(&change(house, id), requirement).1
}

/// A database, and a service that is given where it is: one after the other.
fn a_service_is_created(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let score = Score::new("shop")
        .thing("db", json!({ "note": "db" }))
        .thing("api", json!({ "note": "api of ${resources.db.note}" }));
    place.world.hold();
    let id = deploy_soon(&api, &score.text());
    let (db, service) = (of(house, &id, "db"), of(house, &id, "api"));
    // Entered before anything is done; the second waits for the first.
    is(house, &db, "provision/in_progress", "Provisioning");
    is(house, &service, "provision/queued", "Pending");
    assert_eq!(get(house, &db)["availableActions"], json!(["cancel"]));
    assert_eq!(get(house, &service)["outputs"], json!({}));
    assert_eq!(change(house, &id)["status"], "in_progress");
    place.world.let_go();
    ends(house, &id, "succeeded");
    for resource in [&db, &service] {
        is(house, resource, "provisioned/done", "Active");
        assert_eq!(get(house, resource)["availableActions"], json!(["update", "destroy"]));
    }
    assert_eq!(done(place), ["create db", "create api of db"]);
    assert_eq!(get(house, &service)["outputs"]["note"], "api of db");
    assert_eq!(get(house, &service)["dependsOn"], json!([db]));
}

fn a_resource_is_added_and_only_that_is_made(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let one = Score::new("shop").thing("db", json!({ "note": "db" }));
    let db = served(&place.deploy(&one.text()), "db").1;
    let before = get(house, &db);
    place.world.hold();
    let id = deploy_soon(&api, &one.thing("queue", json!({ "note": "queue" })).text());
    let queue = of(house, &id, "queue");
    is(house, &queue, "provision/in_progress", "Provisioning");
    is(house, &db, "provisioned/done", "Active");
    place.world.let_go();
    let end = ends(house, &id, "succeeded");
    assert_eq!((served(&end, "db").0, served(&end, "queue").0), ("none".into(), "create".into()));
    assert_eq!(done(place), ["create db", "create queue"]);
    assert_eq!(get(house, &db), before, "not even touched");
}

/// What depended on it goes first; what is left stays as it is.
fn a_resource_is_removed_dependents_first(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let left = Score::new("shop").thing("log", json!({ "note": "log" }));
    let whole = left
        .clone()
        .thing("db", json!({ "note": "db" }))
        .thing("copy", json!({ "note": "copy of ${resources.db.note}" }));
    let all = place.deploy(&whole.text());
    let [db, copy, log] = ["db", "copy", "log"].map(|name| served(&all, name).1);
    place.world.hold();
    let id = deploy_soon(&api, &left.text());
    is(house, &copy, "destroy/in_progress", "PendingDeletion");
    is(house, &db, "destroy/queued", "PendingDeletion");
    is(house, &log, "provisioned/done", "Active");
    place.world.let_go();
    ends(house, &id, "succeeded");
    for gone in [&db, &copy] {
        is(house, gone, "destroyed/done", "Deleted");
        assert_eq!(get(house, gone)["outputs"], json!({}), "what is gone gives nothing");
        assert_eq!(get(house, gone)["availableActions"], json!(["recreate", "delete"]));
    }
    assert_eq!(done(place)[3..], ["delete copy of db", "delete db"]);
    assert_eq!(place.world.things().keys().collect::<Vec<_>>(), [&log]);
}

const TERMS: &str = "    size: { type: string }\n    region: { type: string, immutable: true }\n    \
                     engine: { type: string, frozen: true }\n";

/// In place where that goes, anew where it does not, not at all where it was settled for good.
fn a_resource_is_modified(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, TERMS);
    let with = |size: &str, region: &str, engine: &str| {
        let params = json!({ "note": size, "size": size, "region": region, "engine": engine });
        Score::new("shop").thing("db", params).text()
    };
    let db = served(&place.deploy(&with("small", "north", "pg")), "db").1;
    place.world.hold();
    let id = deploy_soon(&api, &with("large", "north", "pg"));
    is(house, &db, "provisioned/in_progress", "Updating");
    assert_eq!(get(house, &db)["outputs"]["note"], "small", "what was there is there until it changed");
    place.world.let_go();
    assert_eq!(served(&ends(house, &id, "succeeded"), "db"), ("update".into(), db.clone()));
    is(house, &db, "provisioned/done", "Active");
    assert_eq!(get(house, &db)["outputs"]["note"], "large");

    // Who, when, why, and what differed.
    let revisions = place.json(&["revisions", "list", &db]);
    let numbers: Vec<&Value> =
        revisions.as_array().unwrap().iter().map(|revision| &revision["number"]).collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!((&revisions[0]["current"], &revisions[1]["state"]), (&json!(true), &json!("applied")));
    assert_eq!((&revisions[0]["deployment"], &revisions[0]["reason"]), (&json!(id), &json!("deploy")));
    assert!(!text(&revisions[0], "actor").is_empty());
    let diff = place.json(&["revisions", "diff", &db, "1", "2"]);
    assert_eq!(diff["changes"]["size"], json!({ "before": "small", "after": "large" }));

    // It cannot move: another one takes its place.
    let plan = place.plan(&with("large", "south", "pg"));
    assert_eq!(served(&plan, "db").0, "replace");
    says(&text(item(&plan, "db"), "reason"), &["region", "cannot be changed in place"]);
    let moved = place.deploy(&with("large", "south", "pg"));
    let (action, new) = served(&moved, "db");
    assert_eq!(action, "replace");
    assert_ne!(new, db);
    is(house, &db, "destroyed/done", "Deleted");
    is(house, &new, "provisioned/done", "Active");
    assert_eq!(done(place), ["create small", "update large", "delete large", "create large"]);

    let refused = place.deploy_in_vain(&with("large", "south", "maria"));
    says(&refused.all(), &["engine is frozen since", "put the old value back"]);
    is(house, &new, "provisioned/done", "Active");
    assert_eq!(done(place).len(), 4);
}

/// A change that fails leaves the thing as it was, and says so; the next one goes from what was applied.
fn a_modification_that_fails(house: &House) {
    let place = &house.place;
    things(place, "");
    let with = |note: &str| Score::new("shop").thing("db", json!({ "note": note })).text();
    let db = served(&place.deploy(&with("one")), "db").1;
    place.world.trouble("broken", "no room on the shelf");
    says(&place.deploy_in_vain(&with("two")).all(), &["no room on the shelf"]);
    is(house, &db, "provisioned/error", "Failed");
    let seen = get(house, &db);
    assert_eq!((&seen["outputs"]["note"], &seen["generation"]), (&json!("one"), &json!(2)));
    assert_eq!(seen["observedGeneration"], 1);
    assert_eq!(seen["availableActions"], json!(["retry", "update", "destroy"]));
    place.world.calm("broken");
    // Back to what it was: nothing differs from what was applied, but nobody knows what the attempt did.
    assert_eq!(served(&place.deploy(&with("one")), "db"), ("update".into(), db.clone()));
    is(house, &db, "provisioned/done", "Active");
    assert_eq!(done(place), ["create one", "update one"]);
}

fn a_rename_keeps_everything(house: &House) {
    let place = &house.place;
    things(place, "");
    let db = served(&place.deploy(&Score::new("shop").thing("db", json!({ "note": "x" })).text()), "db").1;
    let renamed = |alias: Option<&str>| {
        let mut asked = resource("thing", json!({ "note": "x" }));
        if let Some(alias) = alias {
            asked["alias"] = alias.into();
        }
        Score::new("shop").with("store", asked).text()
    };
    // Without a word it is another one; the plan has seen that it need not be.
    let plan = place.plan(&renamed(None));
    assert_eq!((served(&plan, "store").0, served(&plan, "db").0), ("create".into(), "remove".into()));
    says(&plan["warnings"].to_string(), &["`db` goes and `store` is made just like it", "alias: db"]);

    let plan = place.plan(&renamed(Some("db")));
    assert_eq!(served(&plan, "store"), ("rename".into(), db.clone()));
    assert_eq!(plan["removals"], json!([]));
    assert_eq!(served(&place.deploy(&renamed(Some("db"))), "store"), ("rename".into(), db.clone()));
    is(house, &db, "provisioned/done", "Active");
    assert_eq!(get(house, &db)["consumers"][0]["requirement"], "store");
    assert_eq!(place.outputs("shop", false)["store"]["note"], "x");
    // The word may stay where it is, and may go.
    assert_eq!(served(&place.deploy(&renamed(Some("db"))), "store"), ("none".into(), db.clone()));
    assert_eq!(served(&place.deploy(&renamed(None)), "store"), ("none".into(), db.clone()));
    assert_eq!(done(place), ["create x"]);
    // Renamed and changed at once.
    let mut both = resource("thing", json!({ "note": "y" }));
    both["alias"] = "store".into();
    let end = place.deploy(&Score::new("shop").with("base", both).text());
    assert_eq!(served(&end, "base"), ("update".into(), db));
    assert_eq!(done(place), ["create x", "update y"]);
}

/// A name by mistake: refused, saying what is wrong.
fn a_rename_that_cannot_be(house: &House) {
    let place = &house.place;
    things(place, "");
    place.apply("other", &place.world.template("other", ""));
    let old = Score::new("shop").thing("db", json!({ "note": "x" }));
    place.deploy(&old.text());
    let alias = |kind: &str, name: &str| json!({ "type": kind, "params": { "note": "x" }, "alias": name });
    let both = old.clone().with("store", alias("thing", "db"));
    says(&place.deploy_in_vain(&both.text()).all(), &["`db` is still in this file"]);
    let twice = Score::new("shop").with("one", alias("thing", "db")).with("two", alias("thing", "db"));
    says(&place.deploy_in_vain(&twice.text()).all(), &["two requirements", "`db`"]);
    let kind = Score::new("shop").with("store", alias("other", "db"));
    says(&place.deploy_in_vain(&kind.text()).all(), &["`db` is a thing", "not a other"]);
    // A name that nothing has is no harm: it is made.
    let unknown = Score::new("shop").thing("db", json!({ "note": "x" })).with("new", alias("thing", "nope"));
    assert_eq!(served(&place.deploy(&unknown.text()), "new").0, "create");
}

/// Kept with its error; what needs it is held back and told why; put right, all of it comes about.
fn provisioning_fails(house: &House) {
    let place = &house.place;
    things(place, "");
    let score = Score::new("shop")
        .thing("db", json!({ "note": "db" }))
        .thing("api", json!({ "note": "api of ${resources.db.note}" }))
        .thing("log", json!({ "note": "log" }));
    place.world.trouble("broken", "the provider is out");
    let told = place.deploy_in_vain(&score.text());
    let end = told.json();
    let [db, service, log] = ["db", "api", "log"].map(|name| served(&end, name).1);
    is(house, &db, "provision/error", "Failed");
    is(house, &log, "provision/error", "Failed");
    is(house, &service, "provision/pending", "Pending");
    let seen = get(house, &db);
    says(&seen["error"].to_string(), &["the provider is out"]);
    assert_eq!(seen["availableActions"], json!(["retry", "recreate", "destroy"]));
    let held = get(house, &service);
    says(&text(&held, "message"), &["not started", "did not come about", "the provider is out"]);
    assert_eq!(place.world.begun("create"), 2, "the one that needs it was not begun");

    // Retried by hand, one is there; the whole of it by the deployment.
    place.world.calm("broken");
    let id = accepted(&act(&house.api(), &db, "retry"));
    ends(house, &id, "succeeded");
    is(house, &db, "provisioned/done", "Active");
    assert_eq!(get(house, &db)["error"], Value::Null);
    let again = place.json(&["retry", &text(&end, "id")]);
    assert_eq!(again["status"], "succeeded", "{again}");
    for resource in [&db, &service, &log] {
        is(house, resource, "provisioned/done", "Active");
    }
    assert_eq!(get(house, &service)["outputs"]["note"], "api of db");
}

/// Failed, and not wanted any more: cleaned up. A destruction that fails is kept, and tried again.
fn what_failed_is_cleaned_up(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.world.trouble("broken", "the provider is out");
    let id = super::made_soon(&api, "lost", json!({ "note": "lost" }));
    is(house, &id, "provision/error", "Failed");
    place.world.calm("broken");
    // Something may have been begun: it is looked after by the program that made it.
    ends(house, &accepted(&act(&api, &id, "destroy")), "succeeded");
    is(house, &id, "destroyed/done", "Deleted");
    assert_eq!(done(place), ["delete lost"]);

    let id = made(house, "stuck", json!({ "note": "stuck" }));
    place.world.trouble("jammed", "somebody sits on it");
    let change = accepted(&act(&api, &id, "destroy"));
    ends(house, &change, "failed");
    is(house, &id, "destroy/error", "Failed");
    let seen = get(house, &id);
    says(&seen["error"].to_string(), &["somebody sits on it"]);
    assert_eq!(seen["availableActions"], json!(["retry", "destroy"]));
    assert!(place.world.things().contains_key(&id));
    place.world.calm("jammed");
    place.world.hold();
    let change = accepted(&act(&api, &id, "retry"));
    is(house, &id, "destroy/in_progress", "PendingDeletion");
    place.world.let_go();
    ends(house, &change, "succeeded");
    is(house, &id, "destroyed/done", "Deleted");
    assert!(place.world.things().is_empty());
}

/// What is there is compared with what is on record, and put right.
fn drift_is_found_and_repaired(house: &House) {
    let place = &house.place;
    things(place, "");
    let db = served(&place.deploy(&Score::new("shop").thing("db", json!({ "note": "x" })).text()), "db").1;
    assert_eq!(place.json(&["drift", "check", "--env", "dev"]), json!([]));
    std::fs::write(place.world.thing(&db), json!({ "note": "y" }).to_string()).unwrap();
    let found = place.json(&["drift", "check", "--env", "dev"]);
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!((&found[0]["resource"], &found[0]["kind"]), (&json!(db), &json!("changed")));
    let attributes = json!([{ "path": "outputs.note", "recorded": "x", "actual": "y" }]);
    assert_eq!(found[0]["attributes"], attributes);
    is(house, &db, "provisioned/done", "Active");
    // The record remains the truth.
    assert_eq!(place.outputs("shop", false)["db"]["note"], "x");
    place.ok(&["drift", "repair", &db, "--yes"]);
    is(house, &db, "provisioned/done", "Active");
    assert_eq!(place.json(&["drift", "check", "--env", "dev"]), json!([]));
    assert_eq!(done(place), ["create x", "update x"]);
}

/// The second joins the first, while it is still being made; it outlives the first and goes with the last.
fn a_shared_resource_is_reused(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let uses =
        |app: &str| Score::new(app).with("net", shared("thing", "net", json!({ "note": "net" }))).text();
    place.world.hold();
    let first = deploy_soon(&api, &uses("one"));
    let net = of(house, &first, "net");
    is(house, &net, "provision/in_progress", "Provisioning");
    let second = deploy_soon(&api, &uses("two"));
    assert_eq!(of(house, &second, "net"), net);
    assert_eq!(change(house, &second)["status"], "in_progress", "it waits for what the first makes");
    place.world.let_go();
    ends(house, &first, "succeeded");
    assert_eq!(served(&ends(house, &second, "succeeded"), "net"), ("reuse".into(), net.clone()));
    assert_eq!(get(house, &net)["consumers"].as_array().unwrap().len(), 2);
    assert_eq!(served(&place.destroy("one"), "net"), ("release".into(), net.clone()));
    is(house, &net, "provisioned/done", "Active");
    assert_eq!(served(&place.destroy("two"), "net"), ("remove".into(), net.clone()));
    is(house, &net, "destroyed/done", "Deleted");
    assert_eq!(done(place), ["create net", "delete net"]);
}

/// Everything of the environment goes, dependents first; what another environment's application uses stays.
fn an_environment_is_torn_down(house: &House) {
    let place = &house.place;
    things(place, "");
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let wide = json!({ "type": "thing", "params": { "note": "net" },
        "reference": { "mode": "shared", "name": "net", "scope": "organisation" } });
    let score = Score::new("shop")
        .with("net", wide.clone())
        .thing("db", json!({ "note": "db on ${resources.net.note}" }))
        .thing("api", json!({ "note": "api of ${resources.db.note}" }));
    let file = place.write("shop.yaml", score.text()).display().to_string();
    let all = place.json(&["deploy", "-f", &file, "--env", "stage"]);
    let [net, db, service] = ["net", "db", "api"].map(|name| served(&all, name).1);
    place.deploy(&Score::new("other").with("net", wide).text());
    let by_hand = json!({ "template": "thing", "name": "vpc", "environment": "stage",
        "parameters": { "note": "vpc" } });
    let vpc = text(&house.api().post("/api/v1/resources", &by_hand).json()["resource"], "id");
    becomes(house, &vpc, "provisioned/done");

    let plan = place.json(&["destroy", "--env", "stage", "--dry-run"]);
    let removals = plan["removals"].as_array().unwrap();
    let told = |id: &String| {
        let found = removals.iter().find(|item| item["resource"] == **id);
        found.map(|item| text(item, "action")).unwrap_or_default()
    };
    assert_eq!([&net, &db, &service, &vpc].map(told), ["release", "remove", "remove", "remove"]);
    assert_eq!(pair(house, &db), "provisioned/done");

    place.world.hold();
    let body = json!({ "environment": "stage" });
    let id = text(&house.api().post("/api/v1/destroys", &body).json(), "id");
    is(house, &service, "destroy/in_progress", "PendingDeletion");
    is(house, &db, "destroy/queued", "PendingDeletion");
    is(house, &net, "provisioned/done", "Active");
    // What is torn down takes nothing new.
    let late = place.run(&["deploy", "-f", &file, "--env", "stage"]);
    assert_eq!(late.code, 1);
    says(&late.all(), &["is being torn down"]);
    place.world.let_go();
    ends(house, &id, "succeeded");
    for gone in [&db, &service, &vpc] {
        is(house, gone, "destroyed/done", "Deleted");
    }
    is(house, &net, "provisioned/done", "Active");
    let order: Vec<String> = done(place)
        .into_iter()
        .filter(|step| step.contains("delete api") || step.contains("delete db"))
        .collect();
    assert_eq!(order, ["delete api of db on net", "delete db on net"]);
    assert_eq!(place.world.things().keys().collect::<Vec<_>>(), [&net]);
    // The last one out takes it along.
    place.destroy("other");
    eventually("it goes with its last user", seconds(20), || place.world.things().is_empty().then_some(()));
    is(house, &net, "destroyed/done", "Deleted");
}

stories!(a_service_is_created a_resource_is_added_and_only_that_is_made a_resource_is_removed_dependents_first
    a_resource_is_modified a_modification_that_fails a_rename_keeps_everything a_rename_that_cannot_be
    provisioning_fails what_failed_is_cleaned_up drift_is_found_and_repaired a_shared_resource_is_reused
    an_environment_is_torn_down);
