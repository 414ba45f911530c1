//! What a template says of its variables: all that is wrong is told at once, each with its path.

use conductor_tests::{House, Score};
use serde_json::{Value, json};

use super::{act, ask_for, ends, get, made, says, served, stories, text, things};

const VARIABLES: &str = "    name: { type: string, pattern: '^[a-z]+$', minLength: 3, maxLength: 8 }\n    \
                         size: { enum: [small, large] }\n    count: { type: integer, minimum: 1, maximum: 5 }\n    \
                         host: { type: string, unique: true }\n    engine: { type: string, frozen: true }\n    \
                         region: { type: string, immutable: true }\n    token: { type: string, sensitive: true }\n  \
                         required: [name]\n";

fn paths(problem: &Value) -> Vec<String> {
    let mut paths: Vec<String> =
        problem["errors"].as_array().unwrap().iter().map(|error| text(error, "path")).collect();
    paths.sort();
    paths
}

fn everything_wrong_at_once(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, VARIABLES);
    let wrong = json!({ "size": "medium", "count": 9, "host": 7, "token": false });
    let problem = ask_for(&api, "thing", "vpc", wrong.clone()).problem(422);
    let found = paths(&problem).join(" ");
    for name in ["size", "count", "host", "token"] {
        assert!(found.contains(&format!(".{name}")), "nothing is said of {name}: {problem}");
    }
    says(&problem.to_string(), &["name", "small", "large"]);
    // The same by a Score file, with its lines; and nothing is made of any of it.
    let score = Score::new("shop").thing("db", wrong).text();
    let body = json!({ "environment": "dev", "manifest": score });
    let problem = api.post("/api/v1/deployments", &body).problem(422);
    let found = paths(&problem).join(" ");
    for name in ["size", "count", "host", "token"] {
        assert!(found.contains(&format!("resources.db.params.{name}")), "{name}: {problem}");
    }
    assert!(problem["errors"][0]["line"].is_number(), "{problem}");
    for (params, word) in [
        (json!({ "name": "ab" }), "name"),
        (json!({ "name": "abcdefghi" }), "name"),
        (json!({ "name": "Ab1" }), "name"),
        (json!({ "name": "abc", "count": 0 }), "count"),
        (json!({ "name": "abc", "count": 1.5 }), "count"),
        (json!({}), "name"),
    ] {
        let problem = ask_for(&api, "thing", "vpc", params).problem(422);
        says(&problem["errors"].to_string(), &[word]);
    }
    assert_eq!(place.resources(), Vec::<Value>::new());
    made(house, "vpc", json!({ "name": "abc", "size": "small", "count": 5 }));
}

/// One holder per value, as long as it lives; the database sees to it.
fn unique_values(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, VARIABLES);
    let one = made(house, "one", json!({ "name": "abc", "host": "a" }));
    let taken = ask_for(&api, "thing", "two", json!({ "name": "abc", "host": "a" })).problem(409);
    says(&taken.to_string(), &["`host` must be unique", &one]);
    assert!(paths(&taken).join(" ").contains("host"), "{taken}");
    // In another environment as well, and by a Score file.
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let file =
        place.write("s.yaml", Score::new("shop").thing("db", json!({ "name": "abc", "host": "a" })).text());
    let told = place.run(&["deploy", "-f", &file.display().to_string(), "--env", "stage"]);
    assert_eq!(told.code, 1, "{told:?}");
    says(&told.all(), &["must be unique"]);
    let two = made(house, "two", json!({ "name": "abc", "host": "b" }));
    // Changed to what another has: refused; changed to what nobody has: the old value is free.
    let propose = |id: &str, host: &str| {
        api.post(&format!("/api/v1/resources/{id}/proposals"), &json!({ "set": { "host": host } }))
    };
    let merge = |reply: &conductor_tests::Reply| {
        api.call("POST", &format!("/api/v1/proposals/{}/merge", text(&reply.json(), "id")), &[], "")
    };
    let rival = propose(&two, "a");
    match rival.status {
        201 => drop(merge(&rival).problem(409)),
        _ => drop(rival.problem(409)),
    }
    assert_eq!(get(house, &two)["parameters"]["host"], "b");
    ends(house, &super::accepted(&merge(&propose(&one, "c"))), "succeeded");
    made(house, "three", json!({ "name": "abc", "host": "a" }));
    // Gone, its value is free.
    ends(house, &super::accepted(&act(&api, &two, "destroy")), "succeeded");
    made(house, "four", json!({ "name": "abc", "host": "b" }));
    // Made again, it finds another in its place.
    act(&api, &two, "recreate").problem(409);
    let double = house.refusal(
        "INSERT INTO unique_values (template_id, parameter, hash, resource_id, organisation_id)
         SELECT template_id, parameter, hash, resource_id, organisation_id FROM unique_values",
    );
    assert!(double.is_some(), "the database itself takes no second one");
}

/// Frozen from the first provisioning on; immutable by being replaced; neither before there is anything.
fn frozen_and_immutable(house: &House) {
    let place = &house.place;
    things(place, VARIABLES);
    let with = |engine: &str, region: &str| {
        Score::new("shop").thing("db", json!({ "name": "abc", "engine": engine, "region": region })).text()
    };
    place.world.trouble("broken", "not yet");
    place.deploy_in_vain(&with("pg", "north"));
    place.world.calm("broken");
    // Nothing is there yet: it may still become something else.
    let first = served(&place.deploy(&with("maria", "south")), "db").1;
    says(&place.deploy_in_vain(&with("pg", "south")).all(), &["engine is frozen", "put the old value back"]);
    let moved = served(&place.deploy(&with("maria", "north")), "db");
    assert_eq!(moved.0, "replace");
    assert_ne!(moved.1, first);
    says(&place.deploy_in_vain(&with("pg", "north")).all(), &["frozen"]);
}

/// A secret is given to who makes the thing, and to nobody else: not shown, not told in what differs or is asked for.
fn sensitive_values(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, VARIABLES);
    let id = made(house, "vpc", json!({ "name": "abc", "token": "hush-one" }));
    assert_eq!(place.world.runs()[0].given["token"], "hush-one");
    super::strict(place);
    let body = json!({ "set": { "token": "hush-two" } });
    let proposal = api.post(&format!("/api/v1/resources/{id}/proposals"), &body);
    let name = text(&proposal.json(), "id");
    let submitted = api.post(&format!("/api/v1/proposals/{name}/submit"), &json!({}));
    let asked = super::request(house);
    let ada = super::somebody(house, "admin", "ada");
    super::approve(&ada, &asked);
    let merged = api.call("POST", &format!("/api/v1/proposals/{name}/merge"), &[], "");
    ends(house, &super::accepted(&merged), "succeeded");
    assert_eq!(place.world.runs()[1].given["token"], "hush-two");
    let told = [
        proposal.text,
        submitted.text,
        asked.to_string(),
        get(house, &id).to_string(),
        place.ok(&["revisions", "list", &id]).all(),
        place.json(&["revisions", "diff", &id, "1", "2"]).to_string(),
        super::audit(house),
        place.ok(&["approvals", "list", "--all", "-o", "json"]).stdout,
    ];
    for text in &told {
        assert!(!text.contains("hush-"), "{text}");
    }
    let diff = place.json(&["revisions", "diff", &id, "1", "2"]);
    assert_eq!(diff["changes"]["token"], json!({ "before": null, "after": null }), "that it differs is told");
    assert_eq!(house.count("SELECT count(*) FROM resources WHERE spec LIKE '%hush%'"), 0);
    assert_eq!(house.count("SELECT count(*) FROM proposals WHERE document LIKE '%hush%'"), 0);
}

stories!(everything_wrong_at_once unique_values frozen_and_immutable sensitive_values);
