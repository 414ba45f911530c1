//! What nobody uses any more is kept for a while, where somebody asked for that: time to think again.

use conductor_tests::{House, Score, eventually, seconds};
use serde_json::{Value, json};

use super::{
    asked, db, get, item, leave, made, ran, reason, reused, says, served, stories, template, users, wants,
};

fn lease(note: &str) -> Value {
    asked("lease", json!({ "note": note }), json!({}))
}

#[track_caller]
fn is_put_aside(house: &House, id: &str) -> Value {
    let seen = get(house, id);
    assert_eq!((&seen["phase"], &seen["state"]), (&json!("PendingDeletion"), &json!("destroy")), "{seen}");
    assert!(
        seen["destroyAfter"].as_str().is_some_and(|at| at > seen["updatedAt"].as_str().unwrap()),
        "{seen}"
    );
    assert_eq!(seen["consumers"], json!([]));
    seen
}

fn one_is_thought_better_of_and_one_is_not(house: &House) {
    let place = &house.place;
    template(place, "lease", "grace: 3s\n");
    let kept = made(place, &wants("app-a", lease("kept")));
    let lost = made(place, &wants("app-b", lease("lost")));
    let gone = leave(place, "app-a", "dev");
    assert_eq!((gone["status"].as_str(), served(&gone, "db").0.as_str()), (Some("succeeded"), "remove"));
    says(&reason(&gone, "db"), &["destroyed in 3 s", "undeleted"]);
    is_put_aside(house, &kept);
    let undeleted = place.json(&["resources", "undelete", &kept]);
    assert_eq!((&undeleted["phase"], undeleted.get("destroyAfter")), (&json!("Active"), None));

    leave(place, "app-b", "dev");
    let aside = is_put_aside(house, &lost);
    let until =
        house.count("SELECT destroy_after FROM resources WHERE destroy_after IS NOT NULL") as f64 / 1e6;
    says(&place.ok(&["resources", "get", &lost]).stdout, &["unless it is undeleted"]);
    ran(place, json!({ "create": 2 }));
    eventually("its time comes", seconds(20), || (get(house, &lost)["phase"] == "Deleted").then_some(()));
    let run = place.world.runs().into_iter().find(|run| run.step == "delete").expect("a deletion");
    assert_eq!(run.resource, lost);
    assert!(run.began >= until, "it went before its time, {}", aside["destroyAfter"]);
    // What was undeleted is still there, and is destroyed by nobody's leaving.
    assert_eq!(get(house, &kept)["phase"], "Active");
    assert_eq!(place.world.things().keys().collect::<Vec<_>>(), [&kept]);
    let told = place.run(&["resources", "undelete", &lost]);
    assert_eq!(told.code, 1, "{told:?}");
    says(&told.all(), &["app-b-db", "destroyed", "not waiting"]);
    let told = place.run(&["resources", "undelete", &kept]);
    assert_eq!(told.code, 1, "{told:?}");
}

fn a_deployment_revives_it(house: &House) {
    let place = &house.place;
    let ways = [
        json!({}),
        json!({ "reference": { "mode": "shared", "name": "orders" } }),
        json!({ "sharing": "shared" }),
        json!({ "sharing": "always" }),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let kind = format!("lease-{number}");
        template(place, &kind, "grace: 1h\n");
        let score =
            |application: &str| wants(application, asked(&kind, json!({ "note": kind }), way.clone()));
        let id = made(place, &score("app-a"));
        leave(place, "app-a", "dev");
        is_put_aside(house, &id);
        let plan = place.plan(&score("app-a"));
        assert_eq!(served(&plan, "db"), ("reuse".into(), id.clone()), "{plan}");
        is_put_aside(house, &id);
        // What is shared may be taken up by another application.
        let next = if number == 0 { "app-a" } else { "app-b" };
        assert_eq!(reused(place, &score(next)), id, "{way}");
        let seen = get(house, &id);
        assert_eq!((&seen["phase"], seen.get("destroyAfter")), (&json!("Active"), None));
        assert_eq!(users(house, &id), [next]);
        leave(place, next, "dev");
        is_put_aside(house, &id);
    }
    ran(place, json!({ "create": 4 }));
}

/// Wanted otherwise, it is revived and changed.
fn a_deployment_revives_and_changes_it(house: &House) {
    let place = &house.place;
    template(place, "lease", "grace: 1h\n");
    let id = made(place, &wants("app-a", lease("one")));
    leave(place, "app-a", "dev");
    assert_eq!(db(place, &wants("app-a", lease("two"))), ("update".into(), id.clone()));
    assert_eq!(place.world.things()[&id]["note"], "two");
    ran(place, json!({ "create": 1, "update": 1 }));
}

/// An environment can ask for it too; what a template requires waits with what it is required by.
fn the_environment_asks_for_it(house: &House) {
    let place = &house.place;
    place.apply("dev", "kind: Environment\nname: dev\ntype: development\ngrace: 2s\n");
    template(place, "group", "");
    template(
        place,
        "database",
        "    groupId: { type: string, default: \"${group.id}\" }\nrequires:\n  group: { type: group }\n",
    );
    let document = place.deploy(&wants("app-a", json!({ "type": "database" })));
    let (database, group) = (served(&document, "db").1, served(&document, "db.group").1);
    // Only the requirement goes, not the application.
    let gone = place.deploy(&Score::new("app-a").text());
    assert_eq!(item(&gone, "db")["action"], "remove");
    is_put_aside(house, &database);
    assert_eq!(get(house, &group)["phase"], "Active", "what waits still needs it");
    eventually("their time comes", seconds(20), || place.world.things().is_empty().then_some(()));
    eventually("both are gone", seconds(10), || {
        [&database, &group].iter().all(|id| get(house, id)["phase"] == "Deleted").then_some(())
    });
    let order: Vec<String> = place.world.runs().into_iter().skip(2).map(|run| run.resource).collect();
    assert_eq!(order, [database, group]);
    house.is_empty();
}

fn what_is_retained_stays(house: &House) {
    let place = &house.place;
    template(place, "archive", "retain: true\n");
    let score = |application: &str| {
        let way = json!({ "reference": { "mode": "shared", "name": "books" } });
        wants(application, asked("archive", json!({ "note": "books" }), way))
    };
    let id = made(place, &score("app-a"));
    let gone = leave(place, "app-a", "dev");
    assert_eq!(served(&gone, "db"), ("release".into(), id.clone()));
    says(&reason(&gone, "db"), &["retained"]);
    let seen = get(house, &id);
    assert_eq!(
        (&seen["phase"], &seen["keptBy"], &seen["consumers"]),
        (&json!("Active"), &json!("hand"), &json!([]))
    );
    assert_eq!(reused(place, &score("app-b")), id);
    leave(place, "app-b", "dev");
    assert!(place.world.things().contains_key(&id));
    ran(place, json!({ "create": 1 }));
}

stories!(
    up: one_is_thought_better_of_and_one_is_not a_deployment_revives_it a_deployment_revives_and_changes_it
        the_environment_asks_for_it what_is_retained_stays
);
