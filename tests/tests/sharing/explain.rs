//! Why this one and not another: every candidate, in order, with its id and what spoke for or against it.

use conductor_tests::{House, Place, Score};
use serde_json::{Value, json};

use super::{db, get, item, leave, made, on, reused, says, stories, thing, wants};

#[track_caller]
fn candidates(place: &Place, score: &str) -> (Vec<Value>, Value) {
    let document = on(place, "explain", "dev", score);
    let item = item(&document, "db").clone();
    (item["candidates"].as_array().cloned().unwrap_or_default(), item)
}

#[track_caller]
fn verdict(candidates: &[Value], resource: &str) -> (bool, String) {
    let found = candidates.iter().find(|one| one["resource"] == resource);
    let found = found.unwrap_or_else(|| panic!("{resource} is not told of: {candidates:?}"));
    (found["chosen"].as_bool().unwrap(), found["reason"].as_str().unwrap().to_owned())
}

fn why_each_lost(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("app-c", "kind: Application\nname: app-c\nlabels: { team: red }\n");
    let score = |application: &str, note: &str, terms: Value| {
        wants(application, thing(note, json!({ "matching": terms })))
    };
    let full = made(place, &score("app-a", "blue", json!({ "maxConsumers": 1 })));
    let green = made(place, &score("app-b", "green", json!({})));
    let red = json!({ "sharingPolicy": "conditional", "when": "application.labels.team == 'red'" });
    let teams = made(place, &score("app-c", "blue", red));
    let wide = made(place, &score("app-d", "blue", json!({ "scope": "organisation" })));
    let fits = made(place, &score("app-e", "blue", json!({})));
    let later = made(place, &score("app-f", "blue", json!({ "maxConsumers": 1 })));
    assert_eq!(reused(place, &score("app-g", "blue", json!({}))), fits);
    let own = made(place, &wants("app-h", thing("blue", json!({}))));

    let asks = score("app-z", "blue", json!({}));
    let before = (place.json(&["resources", "list"]), place.json(&["events", "list"]));
    let (told, item) = candidates(place, &asks);
    assert_eq!((item["action"].as_str(), item["resource"].as_str()), (Some("reuse"), Some(fits.as_str())));
    let first = told.iter().find(|one| one["chosen"] == true).expect("one is chosen");
    assert_eq!((first["resource"].as_str(), &first["consumers"]), (Some(fits.as_str()), &json!(2)));
    assert_eq!(first["scope"], "environment");
    assert_eq!(told.iter().filter(|one| one["chosen"] == true).count(), 1);
    for (lost, words) in [
        (&full, &["it has 1 consumer", "1 may use it at most"][..]),
        (&green, &["`note`", "\"green\" there", "\"blue\" here"]),
        (&teams, &["application.labels.team == 'red'"]),
        (&wide, &["organisation", "wider"]),
        (&later, &["1 may use it at most"]),
    ] {
        let (chosen, reason) = verdict(&told, lost);
        assert!(!chosen, "{reason}");
        says(&reason, words);
    }
    assert!(!told.iter().any(|one| one["resource"] == own), "somebody's own is no candidate: {told:?}");
    let of = told.iter().find(|one| one["resource"] == full).unwrap();
    assert_eq!((&of["maxConsumers"], of["name"].as_str()), (&json!(1), get(house, &full)["name"].as_str()));

    // The same for people: ids, and an arrow at the one it is.
    let file = place.write("asks.yaml", &asks).display().to_string();
    let text = place.ok(&["explain", "-f", &file, "--env", "dev"]).stdout;
    says(&text, &[&full, &green, &teams, &wide, &fits, &later, "it fits and comes first"]);
    let arrow = text.lines().find(|line| line.contains('→')).expect("an arrow");
    assert!(arrow.contains(&fits), "{text}");
    assert_eq!(
        (place.json(&["resources", "list"]), place.json(&["events", "list"])),
        before,
        "it only tells"
    );
    // Deployed, it does what was told.
    assert_eq!(db(place, &asks), ("reuse".into(), fits));
}

/// The narrowest scope, then the fewest consumers, then the oldest.
fn in_which_order(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let score =
        |application: &str, terms: Value| wants(application, thing("blue", json!({ "matching": terms })));
    let anything = json!({ "scope": "organisation" });
    let wide = made(place, &score("app-a", anything.clone()));
    let busy = made(place, &score("app-b", json!({})));
    reused(place, &score("app-c", json!({})));
    let older = made(place, &score("app-d", json!({ "maxConsumers": 2 })));
    assert_eq!(reused(place, &score("app-e", json!({}))), older);
    let younger = made(place, &score("app-f", json!({ "maxConsumers": 2 })));
    leave(place, "app-e", "dev");

    let (told, _) = candidates(place, &score("app-z", anything.clone()));
    assert_eq!((told[0]["resource"].as_str(), &told[0]["chosen"]), (Some(older.as_str()), &json!(true)));
    for later in [&younger, &busy, &wide] {
        assert_eq!(verdict(&told, later), (false, "it fits too, and comes later".into()));
    }
    for (newcomer, expected) in [("app-x", &older), ("app-y", &younger), ("app-z", &busy)] {
        let (told, _) = candidates(place, &score(newcomer, anything.clone()));
        assert_eq!(told[0]["resource"], json!(expected), "{newcomer}");
        assert_eq!(&reused(place, &score(newcomer, anything.clone())), expected, "{newcomer}");
    }
    // Elsewhere only the wide one is within reach.
    let document = on(place, "explain", "stage", &score("app-z", anything));
    let told = item(&document, "db")["candidates"].as_array().unwrap().clone();
    assert_eq!((told.len(), told[0]["resource"].as_str()), (1, Some(wide.as_str())), "{told:?}");
}

/// So many that nobody would read them all: some are told of, the others counted.
fn more_than_anybody_reads(house: &House) {
    let place = &house.place;
    place.apply_things();
    let mut many = Score::new("many");
    for number in 0..23 {
        many = many.with(&format!("r{number}"), thing(&format!("n{number}"), json!({ "sharing": "shared" })));
    }
    place.deploy(&many.text());
    let asks = wants("app-z", thing("another", json!({ "sharing": "shared" })));
    let (told, item) = candidates(place, &asks);
    assert_eq!((told.len(), &item["otherCandidates"]), (20, &json!(3)));
    assert_eq!(item["action"], "create");
    assert!(
        told.iter().all(|one| one["chosen"] == false && one["reason"].as_str().unwrap().contains("`note`"))
    );
    let file = place.write("asks.yaml", asks).display().to_string();
    says(&place.ok(&["explain", "-f", &file, "--env", "dev"]).stdout, &["and 3 more"]);
    // The one it is is told of, wherever it stands.
    let (told, item) = candidates(place, &wants("app-z", thing("n22", json!({ "sharing": "shared" }))));
    assert_eq!(item["action"], "reuse");
    assert_eq!(told.iter().filter(|one| one["chosen"] == true).count(), 1);
    assert_eq!(told.len() as u64 + item["otherCandidates"].as_u64().unwrap_or(0), 23);
}

/// From the first deployment to the last day.
fn why_something_is_there(house: &House) {
    let place = &house.place;
    place.apply_things();
    let score =
        |application: &str, note: &str| wants(application, thing(note, json!({ "sharing": "shared" })));
    let id = made(place, &score("app-a", "one"));
    db(place, &score("app-a", "two"));
    reused(place, &score("app-b", "two"));
    let why = place.json(&["resources", "why", &id]);
    assert_eq!((&why["resource"], &why["template"]), (&json!(id), &json!("thing@1.0.0")));
    assert_eq!(why["keptBy"], "consumers");
    let users: Vec<&str> =
        why["consumers"].as_array().unwrap().iter().map(|one| one["application"].as_str().unwrap()).collect();
    assert_eq!(users, ["app-a", "app-b"]);
    let reasons = why["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|one| one["application"] == "app-b" && one["action"] == "reuse"), "{why}");
    assert!(reasons.iter().any(|one| one["application"] == "app-a"), "{why}");
    let name = get(house, &id)["name"].as_str().unwrap().to_owned();
    let text = place.ok(&["resources", "why", &name]).stdout;
    says(
        &text,
        &[
            &id,
            "is Active",
            "thing@1.0.0",
            "kept by app-a in dev as `db`",
            "kept by app-b",
            "what happened to it",
        ],
    );
    // Its whole life is told when it is over.
    leave(place, "app-a", "dev");
    leave(place, "app-b", "dev");
    let why = place.json(&["resources", "why", &id]);
    let events: Vec<&str> =
        why["events"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert!(events.len() >= 3, "{events:?}");
    says(&place.ok(&["resources", "why", &id]).stdout, &["is Deleted", "nothing uses it"]);
    let told = place.run(&["resources", "why", "res_00000000000000000000000000"]);
    assert_eq!(told.code, 6, "{told:?}");
}

stories!(embedded: why_each_lost in_which_order more_than_anybody_reads why_something_is_there);
