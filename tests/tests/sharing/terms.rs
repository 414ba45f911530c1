//! On which terms something is shared: how many may use it, who may, and in what they must agree.

use conductor_tests::{House, Place, Score};
use serde_json::{Value, json};

use super::{
    all_leave, asked, db, get, leave, made, on, ran, refused, reused, served, stories, template, thing,
    users, wants,
};

fn matching(terms: Value) -> Value {
    json!({ "matching": terms })
}

/// An application of a team.
fn team(place: &Place, application: &str, team: &str) {
    let text = format!("kind: Application\nname: {application}\nlabels: {{ team: {team} }}\n");
    place.apply(application, &text);
}

fn as_many_as_may_use_it(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = |application: &str, most: Option<u32>| {
        let terms = most.map_or_else(|| json!({}), |most| json!({ "maxConsumers": most }));
        wants(application, thing("orders", matching(terms)))
    };
    let first = made(place, &score("app-a", Some(2)));
    assert_eq!(get(house, &first)["maxConsumers"], 2);
    assert_eq!(reused(place, &score("app-b", None)), first);
    // Full: the next one has one of its own, which is the emptier one from then on.
    let second = made(place, &score("app-c", Some(2)));
    assert_ne!(second, first);
    assert_eq!(
        db(place, &score("app-a", Some(2))),
        ("none".into(), first.clone()),
        "those who are in stay in"
    );
    // Room again.
    leave(place, "app-b", "dev");
    assert_eq!(reused(place, &score("app-d", Some(5))), first, "of two that are equally empty the older one");
    assert_eq!(users(house, &first), ["app-a", "app-d"]);
    // The lower number holds, whoever says it.
    let third = made(place, &score("app-e", Some(1)));
    assert_eq!(reused(place, &score("app-f", Some(9))), second);
    let fourth = made(place, &score("app-g", Some(9)));
    assert!(![&first, &second, &third].contains(&&fourth), "all the others are full");
    ran(place, json!({ "create": 4 }));
    all_leave(house, &["app-a", "app-c", "app-d", "app-e", "app-f", "app-g"]);
}

/// Two requirements of one file count as two.
fn as_many_as_may_use_it_from_one_file(house: &House) {
    let place = &house.place;
    place.apply_things();
    let two = |application: &str, most: u32| {
        let way = matching(json!({ "maxConsumers": most }));
        Score::new(application).with("aa", thing("x", way.clone())).with("bb", thing("x", way)).text()
    };
    let both = |score: &str| {
        let document = place.deploy(score);
        (served(&document, "aa").1, served(&document, "bb").1)
    };
    let (aa, bb) = both(&two("one", 1));
    assert_ne!(aa, bb);
    let (cc, dd) = both(&two("two", 2));
    assert_eq!(cc, dd);
    ran(place, json!({ "create": 3 }));
    assert_eq!(both(&two("one", 1)), (aa, bb));
    assert_eq!(both(&two("two", 2)), (cc, dd));
    ran(place, json!({ "create": 3 }));
}

/// A template's own number holds for whoever joins, by whatever way.
fn as_many_as_the_template_allows(house: &House) {
    let place = &house.place;
    template(place, "desk", "sharing: { maxConsumers: 1 }\n");
    let desk = |way: Value| asked("desk", json!({ "note": "desk" }), way);
    let named = json!({ "reference": { "mode": "shared", "name": "window" } });
    let window = made(place, &wants("app-a", desk(named.clone())));
    assert_eq!(get(house, &window)["maxConsumers"], 1);
    let full = ["window", "1 consumer", "app-a", "at most", "use another one"];
    refused(house, &wants("app-b", desk(named.clone())), &full);
    refused(
        house,
        &wants("app-b", desk(json!({ "reference": { "mode": "existing", "id": window } }))),
        &full,
    );
    assert_eq!(users(house, &window), ["app-a"]);
    assert_eq!(db(place, &wants("app-a", desk(named.clone()))).0, "none");
    // A file may ask for less than the template allows, not for more.
    let other = made(place, &wants("app-b", desk(matching(json!({ "maxConsumers": 3 })))));
    assert_eq!(get(house, &other)["maxConsumers"], 1);
    leave(place, "app-a", "dev");
    let again = made(place, &wants("app-c", desk(named)));
    all_leave(house, &["app-b", "app-c"]);
    assert_ne!(again, window);
}

fn only_with_a_team(house: &House) {
    let place = &house.place;
    place.apply_things();
    for (application, colour) in [("app-a", "blue"), ("app-b", "blue"), ("app-c", "red"), ("app-d", "red")] {
        team(place, application, colour);
    }
    let blue =
        matching(json!({ "sharingPolicy": "conditional", "when": "application.labels.team == 'blue'" }));
    let anyone = matching(json!({}));
    let first = made(place, &wants("app-a", thing("orders", blue.clone())));
    assert_eq!(reused(place, &wants("app-b", thing("orders", anyone.clone()))), first);
    // What its maker said holds for those who come later, though they make no condition themselves.
    let second = made(place, &wants("app-c", thing("orders", anyone.clone())));
    assert_ne!(second, first);
    // Somebody without a team is of no team.
    assert_eq!(reused(place, &wants("app-e", thing("orders", anyone.clone()))), second);
    // One's own condition holds as well: it looks at the resource.
    let alone = matching(json!({ "sharingPolicy": "conditional", "when": "resource.consumers == 0" }));
    let third = made(place, &wants("app-d", thing("orders", alone)));
    assert!(![&first, &second].contains(&&third));
    // Conditions say who may join: moved to another team, an application keeps what it has.
    team(place, "app-b", "red");
    let (action, now) = db(place, &wants("app-b", thing("orders", anyone)));
    assert_eq!((action.as_str(), &now), ("none", &first));
    assert_eq!(users(house, &first), ["app-a", "app-b"]);
    all_leave(house, &["app-a", "app-b", "app-c", "app-d", "app-e"]);
}

fn what_conditions_look_at(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\nlabels: { region: north }\n");
    let score = |application: &str, when: &str| {
        let terms = json!({ "scope": "organisation", "sharingPolicy": "conditional", "when": when, "matchOn": ["says"] });
        wants(application, asked("thing", json!({ "note": application, "says": "hello" }), matching(terms)))
    };
    let (_, id) = served(&on(place, "deploy", "dev", &score("maker", "true")), "db");
    let joins = |environment: &str, when: &str| {
        let (_, found) = served(&on(place, "plan", environment, &score("guest", when)), "db");
        found == id
    };
    for when in [
        "resource.parameters.note == 'maker' && resource.consumers == 1",
        "resource.type == 'thing' && resource.class == 'default' && resource.scope == 'organisation'",
        "resource.template == 'thing' && resource.templateVersion == '1.0.0'",
        "resource.name.startsWith('thing-dev-') && resource.id.startsWith('res_')",
        "application.name in ['guest', 'host']",
        "environment.name == 'stage' && environment.type == 'staging' && environment.labels.region == 'north'",
    ] {
        assert!(joins("stage", when), "{when}");
    }
    for when in [
        "resource.parameters.note == 'other'",
        "resource.consumers > 1",
        "environment.type == 'production'",
        "application.labels.team == 'blue'",
        "resource.parameters.colour == 'red'",
        "resource.consumers",
    ] {
        assert!(!joins("stage", when), "{when}");
    }
    assert!(joins("dev", "environment.type == 'development'"));
}

/// A condition by number is for those who come, not for those who are there.
fn a_condition_by_number(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score = |application: &str| {
        let terms = json!({ "sharingPolicy": "conditional", "when": "resource.consumers < 2" });
        wants(application, thing("orders", matching(terms)))
    };
    let first = made(place, &score("app-a"));
    assert_eq!(reused(place, &score("app-b")), first);
    assert_ne!(made(place, &score("app-c")), first);
    for application in ["app-a", "app-b"] {
        assert_eq!(db(place, &score(application)), ("none".into(), first.clone()));
    }
    ran(place, json!({ "create": 2 }));
}

fn in_what_they_agree(house: &House) {
    let place = &house.place;
    template(place, "queue", "    tier: { type: string, default: basic }\n    zone: { type: string }\n");
    let score = |application: &str, params: Value, on: &[&str]| {
        wants(application, asked("queue", params, matching(json!({ "matchOn": on }))))
    };
    let first =
        made(place, &score("app-a", json!({ "note": "a", "tier": "basic", "zone": "north" }), &["tier"]));
    // The one who joins takes it as it is; a default counts as if it were written.
    let joined = reused(place, &score("app-b", json!({ "note": "b", "zone": "south" }), &["tier"]));
    assert_eq!(joined, first);
    let parameters = get(house, &first)["parameters"].clone();
    assert_eq!((&parameters["note"], &parameters["zone"]), (&json!("a"), &json!("north")));
    // Absent is something to agree in, too.
    let absent = made(place, &score("app-c", json!({ "note": "c" }), &["tier", "zone"]));
    assert_ne!(absent, first);
    assert_eq!(reused(place, &score("app-d", json!({ "note": "d" }), &["zone", "tier"])), absent);
    // Named by nobody, all count.
    let fourth = made(place, &score("app-e", json!({ "note": "e" }), &[]));
    assert!(![&first, &absent].contains(&&fourth));
    ran(place, json!({ "create": 3 }));
}

/// What a template matches on counts, whatever a file adds.
fn in_what_the_template_wants_them_to_agree(house: &House) {
    let place = &house.place;
    template(
        place,
        "queue",
        "    tier: { type: string }\n    zone: { type: string }\nsharing: { default: shared, matchOn: [tier], maxConsumers: 3 }\n",
    );
    let queue =
        |note: &str, tier: &str, way: Value| asked("queue", json!({ "note": note, "tier": tier }), way);
    let first = made(place, &wants("app-a", queue("a", "basic", json!({}))));
    assert_eq!(reused(place, &wants("app-b", queue("b", "basic", json!({})))), first);
    let narrower = matching(json!({ "matchOn": ["note"] }));
    let second = made(place, &wants("app-c", queue("a", "best", narrower.clone())));
    assert_ne!(second, first, "the note is the same, the tier is not");
    assert_eq!(reused(place, &wants("app-d", queue("a", "basic", narrower))), first);
    assert_ne!(made(place, &wants("app-e", queue("e", "basic", json!({})))), first, "three may use it");
}

stories!(
    embedded: as_many_as_may_use_it as_many_as_may_use_it_from_one_file as_many_as_the_template_allows
        only_with_a_team what_conditions_look_at a_condition_by_number in_what_they_agree
        in_what_the_template_wants_them_to_agree
);
