//! What a template requires is made with each of its resources, handed to it, and gone with the last that needs it.

use conductor_tests::{House, Place, Score};
use serde_json::{Value, json};

use super::{
    all_leave, asked, db, get, item, leave, made, ran, refused, reused, served, stories, template, templates,
    users, wants,
};

/// A database needs a group, and is told its id.
fn databases(place: &Place, required: &str, group: &str) {
    let database = format!(
        "    groupId: {{ type: string, default: \"${{group.id}}\" }}\nrequires:\n  group: {required}\n"
    );
    templates(place, &[("group", group), ("database", &database)]);
}

fn database(note: &str, way: Value) -> Value {
    asked("database", json!({ "note": note }), way)
}

/// The id that a database was given, as the file of the group's thing.
#[track_caller]
fn group_of(place: &Place, database: &str) -> String {
    let runs = place.world.runs();
    let run = runs.iter().rev().find(|run| run.resource == database).expect("its run");
    let given = run.given["groupId"].as_str().expect("a group's id");
    given.rsplit('/').next().expect("a name").to_owned()
}

/// The steps with the notes of what they were done to, in order.
fn told(place: &Place) -> Vec<String> {
    place.world.done().into_iter().map(|(step, note)| format!("{step} {note}")).collect()
}

fn one_of_its_own(house: &House) {
    let place = &house.place;
    databases(place, "{ type: group, params: { note: group } }", "");
    let plan = place.plan(&wants("app-a", database("a", json!({}))));
    assert_eq!(
        (item(&plan, "db")["action"].as_str(), item(&plan, "db.group")["action"].as_str()),
        (Some("create"), Some("create"))
    );
    let document = place.deploy(&wants("app-a", database("a", json!({}))));
    let (first, group) = (served(&document, "db").1, served(&document, "db.group").1);
    assert_eq!(told(place), ["create group", "create a"]);
    assert_eq!(group_of(place, &first), group);
    let seen = get(house, &group);
    assert_eq!((&seen["name"], &seen["dependents"]), (&json!("app-a-db-group"), &json!([first])));
    assert_eq!(seen["consumers"], json!([]), "nobody asked for it");

    let second = made(place, &wants("app-b", database("b", json!({}))));
    assert_ne!(group_of(place, &second), group);
    assert_eq!(place.world.things().len(), 4);
    // Again: nothing.
    assert_eq!(db(place, &wants("app-a", database("a", json!({})))).0, "none");
    // A change of the database leaves its group alone.
    assert_eq!(db(place, &wants("app-a", database("a2", json!({})))), ("update".into(), first.clone()));
    assert_eq!(group_of(place, &first), group);
    ran(place, json!({ "create": 4, "update": 1 }));

    let gone = leave(place, "app-a", "dev");
    assert_eq!(
        (served(&gone, "db").0, served(&gone, "db.group").0),
        ("remove".into(), "remove".into()),
        "{gone}"
    );
    assert_eq!(told(place)[5..], ["delete a2", "delete group"]);
    assert_eq!(place.world.things().len(), 2);
    all_leave(house, &["app-b"]);
}

fn one_for_all(house: &House) {
    let place = &house.place;
    databases(place, "{ type: group, params: { note: group }, reference: { mode: shared, name: main } }", "");
    let two =
        Score::new("app-a").with("db", database("a", json!({}))).with("other", database("a2", json!({})));
    let document = place.deploy(&two.text());
    let group = served(&document, "db.group").1;
    assert_eq!(served(&document, "other.group").1, group);
    let theirs = made(place, &wants("app-b", database("b", json!({}))));
    assert_eq!(group_of(place, &theirs), group);
    assert_eq!(get(house, &group)["name"], "main");
    ran(place, json!({ "create": 4 }));
    // Somebody may also ask for it by its name.
    let named = json!({ "type": "group", "reference": { "mode": "shared", "name": "main" } });
    assert_eq!(reused(place, &wants("app-c", named)), group);

    leave(place, "app-a", "dev");
    assert_eq!(place.world.things().len(), 2, "a group and the database of app-b");
    leave(place, "app-c", "dev");
    assert!(place.world.things().contains_key(&group));
    leave(place, "app-b", "dev");
    house.is_empty();
    ran(place, json!({ "create": 4, "delete": 4 }));
    assert_eq!(told(place).last().unwrap(), "delete group");
}

/// The last database goes before the last who uses the group by name.
fn one_for_all_that_somebody_uses_by_name(house: &House) {
    let place = &house.place;
    databases(place, "{ type: group, params: { note: group }, reference: { mode: shared, name: main } }", "");
    let named = json!({ "type": "group", "params": { "note": "group" }, "reference": { "mode": "shared", "name": "main" } });
    let group = made(place, &wants("app-c", named));
    let database = made(place, &wants("app-a", database("a", json!({}))));
    assert_eq!(group_of(place, &database), group);
    leave(place, "app-a", "dev");
    assert_eq!(place.world.things().keys().collect::<Vec<_>>(), [&group]);
    assert_eq!(users(house, &group), ["app-c"]);
    all_leave(house, &["app-c"]);
}

/// Databases that are alike are shared with the group they have; the group's id is nothing to differ in.
fn with_what_is_shared_by_what_it_is_like(house: &House) {
    let place = &house.place;
    databases(place, "{ type: group, params: { note: group } }", "");
    let score =
        |application: &str, note: &str| wants(application, database(note, json!({ "sharing": "shared" })));
    let id = made(place, &score("app-a", "same"));
    assert_eq!(reused(place, &score("app-b", "same")), id);
    ran(place, json!({ "create": 2 }));
    // A change goes to a new one, with a new group.
    let other = made(place, &score("app-b", "other"));
    assert_ne!(group_of(place, &other), group_of(place, &id));
    ran(place, json!({ "create": 4 }));
    all_leave(house, &["app-a", "app-b"]);
    ran(place, json!({ "create": 4, "delete": 4 }));
}

fn two_levels_deep(house: &House) {
    let place = &house.place;
    let group = "    under: { type: string, default: \"${subscription.note}\" }\n\
                 requires:\n  subscription: { type: subscription, params: { note: paid }, sharing: by-name }\n";
    databases(place, "{ type: group, params: { note: group } }", group);
    template(place, "subscription", "");
    let document = place.deploy(&wants("app-a", database("a", json!({}))));
    let names: Vec<&str> = document["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["requirement"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["db.group.subscription", "db.group", "db"]);
    assert_eq!(told(place), ["create paid", "create group", "create a"]);
    let group = group_of(place, &served(&document, "db").1);
    let run = place.world.runs().into_iter().find(|run| run.resource == group).unwrap();
    assert_eq!(run.given["under"], "paid");
    place.deploy(&wants("app-b", database("b", json!({}))));
    ran(place, json!({ "create": 5 }));
    leave(place, "app-a", "dev");
    assert_eq!(told(place)[5..], ["delete a", "delete group"], "the subscription is needed");
    leave(place, "app-b", "dev");
    house.is_empty();
    assert_eq!(told(place)[7..], ["delete b", "delete group", "delete paid"]);
}

/// A part that fails is told of with the one it was made for, and put right by the next deployment.
fn a_part_that_fails(house: &House) {
    let place = &house.place;
    databases(place, "{ type: group, params: { note: group, breaks: no room } }", "");
    let failed = place.deploy_in_vain(&wants("app-a", database("a", json!({})))).json();
    super::says(failed["error"]["message"].as_str().unwrap(), &["no room"]);
    assert_eq!(item(&failed, "db.group")["phase"], "Failed");
    assert_eq!(place.world.things().len(), 0);
    let text = place.world.template(
        "database",
        "    groupId: { type: string, default: \"${group.id}\" }\nrequires:\n  group: { type: group, params: { note: group } }\n",
    );
    place.apply("better", &text.replace("version: 1.0.0", "version: 1.0.1"));
    place.apply("pin", "kind: Rule\nname: pin\ntemplate: database@1.0.1\nmatch: { type: database }\n");
    let document = place.deploy(&wants("app-a", database("a", json!({}))));
    assert_eq!(item(&document, "db")["phase"], "Active");
    assert_eq!(place.world.things().len(), 2);
    all_leave(house, &["app-a"]);
}

/// What cannot be changed in place is made anew, beside the group it has.
fn one_that_is_replaced(house: &House) {
    let place = &house.place;
    let database = "    groupId: { type: string, default: \"${group.id}\" }\n    zone: { type: string, immutable: true }\n\
                    requires:\n  group: { type: group, params: { note: group } }\n";
    templates(place, &[("group", ""), ("database", database)]);
    let score =
        |zone: &str| wants("app-a", asked("database", json!({ "note": zone, "zone": zone }), json!({})));
    let old = made(place, &score("north"));
    let group = group_of(place, &old);
    let (action, new) = db(place, &score("south"));
    assert_eq!(action, "replace");
    assert_eq!(group_of(place, &new), group);
    assert_eq!(get(house, &group)["dependents"], json!([new]));
    assert_eq!(db(place, &score("south")), ("none".into(), new));
    assert_eq!(told(place), ["create group", "create north", "delete north", "create south"]);
    all_leave(house, &["app-a"]);
}

fn templates_that_require_each_other(house: &House) {
    let place = &house.place;
    let needs = |kind: &str| format!("requires:\n  origin: {{ type: {kind} }}\n");
    templates(place, &[("hen", &needs("egg")), ("egg", &needs("hen")), ("snake", &needs("snake"))]);
    for kind in ["hen", "egg"] {
        let score = wants("farm", json!({ "type": kind }));
        let circle = if kind == "hen" { "hen → egg → hen" } else { "egg → hen → egg" };
        refused(house, &score, &[circle, "require each other", "out of `requires`"]);
    }
    // One that needs itself is no better.
    refused(house, &wants("farm", json!({ "type": "snake" })), &["snake → snake"]);
    assert!(place.world.runs().is_empty());
}

/// What is wrong below says where it stands.
fn a_part_that_nobody_makes(house: &House) {
    let place = &house.place;
    template(place, "database", "requires:\n  group: { type: grup }\n");
    refused(house, &wants("app-a", database("a", json!({}))), &["`grup`", "template `database` requires it"]);
    template(place, "group", "    size: { type: string, enum: [small, large] }\n");
    template(place, "cluster", "requires:\n  group: { type: group, params: { size: huge } }\n");
    refused(
        house,
        &wants("app-a", json!({ "type": "cluster" })),
        &["huge", "small", "template `cluster` requires it"],
    );
    // The words that make no sense there are refused when the template is written.
    let text = place.world.template("pond", "requires:\n  fish: { type: thing, pool: fish }\n");
    let line = text.lines().position(|line| line.contains("fish")).expect("a line") + 1;
    let file = place.write("catalog/pond.yaml", text).display().to_string();
    let told = place.run(&["apply", "-f", &file]);
    assert_eq!(told.code, 1, "{told:?}");
    super::says(&told.all(), &[&format!("pond.yaml:{line}:3"), "`pool`", "`reference`"]);
}

stories!(
    embedded: one_of_its_own one_for_all one_for_all_that_somebody_uses_by_name
        with_what_is_shared_by_what_it_is_like two_levels_deep a_part_that_fails one_that_is_replaced
        templates_that_require_each_other a_part_that_nobody_makes
);
