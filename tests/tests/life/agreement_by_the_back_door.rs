//! Agreement cannot be got round: by no other way to the same end, and by nothing that changes after it was given.

use conductor_tests::{House, Score, eventually, seconds};
use serde_json::{Value, json};

use super::{
    accepted, act, approval, approve, becomes, decide, deploy_soon, done, ends, get, is, made, pair, reject,
    request, says, served, somebody, stories, strict, text, things, waiting,
};

fn db(note: &str) -> String {
    Score::new("shop").thing("db", json!({ "note": note })).text()
}

/// Something that is there, before anybody has to agree to anything.
fn there(house: &House) -> String {
    things(&house.place, "");
    served(&house.place.deploy(&db("one")), "db").1
}

/// The one who could have agreed cannot any more.
fn a_role_that_was_lost(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let id = deploy_soon(&api, &db("one"));
    let asked = request(house);
    house.execute(
        "UPDATE grants SET role = 'write' WHERE principal_id IN (SELECT id FROM principals WHERE name = 'ada')",
    );
    // Who somebody is may be kept in mind for a second.
    std::thread::sleep(seconds(2));
    let denied = decide(&ada, &asked, "approve", "").problem(403);
    says(&text(&denied, "detail"), &["admin or owner"]);
    decide(&ada, &asked, "reject", "out of spite").problem(403);
    // And one whose token is revoked is nobody at all.
    let bob = somebody(house, "admin", "bob");
    let tokens = place.json(&["tokens", "list"]);
    let his = tokens.as_array().unwrap().iter().find(|token| token["name"] == "bob").expect("his");
    place.ok(&["tokens", "revoke", &text(his, "id")]);
    std::thread::sleep(seconds(2));
    assert_eq!(decide(&bob, &asked, "approve", "").status, 401);
    super::rests(house, &id);
    assert!(place.world.runs().is_empty());
}

/// Some agreed, and one of them could not do so any more when it came to counting.
fn a_vote_of_somebody_who_may_not_any_more(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    approval(place, "{ create: required, approvers: 2 }");
    let [ada, bob, cyd] = ["ada", "bob", "cyd"].map(|name| somebody(house, "admin", name));
    let id = deploy_soon(&api, &db("one"));
    approve(&ada, &request(house));
    house.execute(
        "UPDATE grants SET role = 'read' WHERE principal_id IN (SELECT id FROM principals WHERE name = 'ada')",
    );
    approve(&bob, &request(house));
    super::rests(house, &id);
    assert!(done(place).is_empty(), "one of two is not enough");
    approve(&cyd, &request(house));
    ends(house, &id, "succeeded");
}

/// What one has seen is what one agrees to.
fn an_answer_to_something_else(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    strict(place);
    let ada = somebody(house, "admin", "ada");
    deploy_soon(&api, &db("one"));
    let asked = request(house);
    let path = format!("/api/v1/approvals/{}/approve", text(&asked, "id"));
    let stale = ada.post(&path, &json!({ "digest": "00ff" })).problem(409);
    says(&text(&stale, "detail"), &["look again"]);
    assert!(place.world.runs().is_empty());
    let seen = ada.post(&path, &json!({ "digest": asked["digest"] }));
    assert_eq!(seen.status, 200, "{}", seen.text);
}

/// The world moves between the request and the answer: it is asked for again, as it is now.
fn what_was_asked_for_changed(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let ada = somebody(house, "admin", "ada");
    let net = served(
        &place.deploy(
            &Score::new("base")
                .with("net", conductor_tests::shared("thing", "net", json!({ "note": "a" })))
                .text(),
        ),
        "net",
    )
    .1;
    approval(place, "{ create: required }");
    let linked = json!({ "type": "thing", "reference": { "mode": "existing", "id": net } });
    let score =
        Score::new("shop").with("net", linked).thing("db", json!({ "note": "on ${resources.net.note}" }));
    let id = deploy_soon(&api, &score.text());
    let asked = request(house);
    // Somebody changes what it would be given.
    place.deploy(
        &Score::new("base")
            .with("net", {
                let mut net = conductor_tests::shared("thing", "net", json!({ "note": "b" }));
                net["onConflict"] = "update".into();
                net
            })
            .text(),
    );
    let moved = decide(&ada, &asked, "approve", "").problem(409);
    says(&text(&moved, "detail"), &["changed in the meantime", "apr_"]);
    let again = request(house);
    assert_ne!(again["id"], asked["id"]);
    assert_ne!(again["digest"], asked["digest"]);
    assert_eq!(again["votes"], json!([]), "what was agreed to before does not count for it");
    approve(&ada, &again);
    let end = ends(house, &id, "succeeded");
    assert_eq!(get(house, &served(&end, "db").1)["outputs"]["note"], "on b");
}

/// Agreed to, and changed before it started: it is not done.
fn what_was_agreed_to_changed(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.apply("vault", &place.world.template("vault", "approval: { create: required }\n"));
    let ada = somebody(house, "admin", "ada");
    let base = |note: &str| {
        let mut net = conductor_tests::shared("thing", "net", json!({ "note": note }));
        net["onConflict"] = "update".into();
        Score::new("base").with("net", net).text()
    };
    let net = served(&place.deploy(&base("a")), "net").1;
    let linked = json!({ "type": "thing", "reference": { "mode": "existing", "id": net } });
    // The vault waits for something slow besides: time for the world to move after the answer.
    let score = Score::new("shop").with("net", linked).thing("slow", json!({ "note": "slow" })).with(
        "box",
        json!({ "type": "vault", "params": { "note": "on ${resources.net.note}" },
                    "dependsOn": [{ "name": "slow", "type": "strong" }] }),
    );
    place.world.hold_only("slow");
    let id = deploy_soon(&api, &score.text());
    approve(&ada, &request(house));
    place.deploy(&base("b"));
    place.world.let_go();
    let end = ends(house, &id, "failed");
    says(&end["error"].to_string(), &["changed since somebody agreed", "a retry asks again"]);
    let vault = served(&end, "box").1;
    is(house, &vault, "provision/error", "Failed");
    assert!(!place.world.things().contains_key(&vault));
    assert_eq!(place.run(&["retry", &id]).code, 5);
    approve(&ada, &request(house));
    becomes(house, &vault, "provisioned/done");
    assert_eq!(get(house, &vault)["outputs"]["note"], "on b");
}

/// One resource, by hand.
fn a_destruction_by_hand(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    strict(place);
    let (ada, writer) = (somebody(house, "admin", "ada"), somebody(house, "write", "wim"));
    let told = place.run(&["resources", "destroy", &id, "--yes"]);
    assert_eq!(told.code, 5, "{told:?}");
    is(house, &id, "destroy/approval_pending", "PendingDeletion");
    reject(&ada, &request(house));
    is(house, &id, "provisioned/done", "Active");
    // Who may only write may ask.
    let change = accepted(&act(&writer, &id, "destroy"));
    decide(&writer, &request(house), "approve", "").problem(403);
    // Asking twice is not asking for two.
    let twice = act(&api, &id, "destroy").problem(409);
    assert_eq!(twice["allowedActions"], json!(["approve", "reject", "cancel"]));
    approve(&ada, &request(house));
    ends(house, &change, "succeeded");
    assert_eq!(done(place), ["create vpc", "delete vpc"]);
}

/// Taken out of the file.
fn a_removal_by_deploying(house: &House) {
    let (place, api) = (&house.place, house.api());
    let id = there(house);
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let change = deploy_soon(&api, &Score::new("shop").text());
    is(house, &id, "destroy/approval_pending", "PendingDeletion");
    reject(&ada, &request(house));
    ends(house, &change, "failed");
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(get(house, &id)["consumers"].as_array().unwrap().len(), 1);
    let change = deploy_soon(&api, &Score::new("shop").text());
    approve(&ada, &request(house));
    ends(house, &change, "succeeded");
    is(house, &id, "destroyed/done", "Deleted");
}

/// Replaced by another, which means destroyed.
fn a_replacement(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "    region: { type: string, immutable: true }\n");
    let with = |region: &str| {
        let db = json!({ "note": region, "region": region });
        Score::new("shop")
            .thing("db", db)
            .thing("api", json!({ "note": "api in ${resources.db.note}" }))
            .text()
    };
    let made = place.deploy(&with("north"));
    let [id, service] = ["db", "api"].map(|name| served(&made, name).1);
    approval(place, "{ destroy: required }");
    let ada = somebody(house, "admin", "ada");
    let change = deploy_soon(&api, &with("south"));
    assert_eq!(request(house)["items"][0]["kind"], "destroy");
    assert!(place.world.things().contains_key(&id));
    reject(&ada, &request(house));
    ends(house, &change, "failed");
    is(house, &id, "provisioned/done", "Active");
    is(house, &service, "provisioned/done", "Active");
    assert_eq!(get(house, &service)["dependsOn"], json!([id]), "it stands on the old one as before");
    assert_eq!(place.resources().len(), 2, "of the new one nothing is left");
    assert_eq!(place.outputs("shop", false)["db"]["note"], "north", "it is still served by the old one");
    let change = deploy_soon(&api, &with("south"));
    approve(&ada, &request(house));
    ends(house, &change, "succeeded");
    assert_eq!(place.outputs("shop", false)["api"]["note"], "api in south");
    assert_eq!(place.world.things().len(), 2);
    is(house, &id, "destroyed/done", "Deleted");
}

/// The whole environment.
fn a_teardown(house: &House) {
    let place = &house.place;
    let id = there(house);
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let told = place.run(&["destroy", "--env", "dev", "--yes"]);
    assert_eq!(told.code, 5, "{told:?}");
    let asked = request(house);
    assert_eq!(asked["kind"], "teardown");
    is(house, &id, "destroy/approval_pending", "PendingDeletion");
    reject(&ada, &asked);
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(get(house, &id)["consumers"][0]["application"], "shop");
    assert_eq!(place.run(&["destroy", "--env", "dev", "--yes"]).code, 5);
    approve(&ada, &request(house));
    is(house, &id, "destroyed/done", "Deleted");
}

/// The last user is taken out by hand; nothing asks again and again once somebody has said no.
fn the_last_user_taken_out(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let score =
        Score::new("shop").with("net", conductor_tests::shared("thing", "net", json!({ "note": "net" })));
    let id = served(&place.deploy(&score.text()), "net").1;
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let out = api.call("DELETE", &format!("/api/v1/resources/{id}/consumers/shop"), &[], "");
    assert_eq!(out.status, 204, "{}", out.text);
    is(house, &id, "destroy/approval_pending", "PendingDeletion");
    let asked = request(house);
    assert_eq!(asked["kind"], "collect");
    reject(&ada, &asked);
    is(house, &id, "provisioned/done", "Active");
    assert!(place.world.things().contains_key(&id));
    // Somebody wants to keep it: it stays until somebody destroys it.
    assert_eq!(get(house, &id)["keptBy"], "hand");
}

/// Cancelled with rollback: what it made goes, where somebody agrees.
fn a_rollback(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    approval(place, "{ destroy: required }");
    let ada = somebody(house, "admin", "ada");
    let score = Score::new("shop")
        .thing("db", json!({ "note": "db" }))
        .thing("slow", json!({ "note": "${resources.db.note} slow", "takes": 60 }));
    let id = deploy_soon(&api, &score.text());
    let db = served(&super::change(house, &id), "db").1;
    becomes(house, &db, "provisioned/done");
    place.world.wait_for_a_run();
    place.ok(&["cancel", &id, "--rollback"]);
    ends(house, &id, "cancelled");
    let asked = request(house);
    assert_eq!(asked["kind"], "rollback");
    is(house, &db, "destroy/approval_pending", "PendingDeletion");
    assert!(place.world.things().contains_key(&db));
    approve(&ada, &asked);
    is(house, &db, "destroyed/done", "Deleted");
    assert!(waiting(house).is_empty());
}

/// Put right what somebody changed: by command and by policy, both ask, and a no is not asked again.
fn a_repair(house: &House) {
    let place = &house.place;
    let id = there(house);
    let ada = somebody(house, "admin", "ada");
    strict(place);
    let spoil =
        |note: &str| std::fs::write(place.world.thing(&id), json!({ "note": note }).to_string()).unwrap();
    spoil("spoilt");
    assert_eq!(place.json(&["drift", "check", "--env", "dev"])[0]["resource"], id.as_str());
    let told = place.run(&["drift", "repair", &id, "--yes"]);
    assert_eq!(told.code, 5, "{told:?}");
    is(house, &id, "provisioned/approval_pending", "Active");
    reject(&ada, &request(house));
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(done(place), ["create one"]);
    assert_eq!(
        place.json(&["drift", "check", "--env", "dev", "--last"])[0]["kind"],
        "changed",
        "still there"
    );

    let policy = "kind: Environment\nname: dev\ntype: development\ndrift: { policy: repair }\n\
                  approval: { update: required }\n";
    place.apply("dev", policy);
    let asked = request(house);
    assert_eq!((&asked["kind"], &asked["requester"]), (&json!("repair"), &json!("conductor")));
    reject(&ada, &asked);
    is(house, &id, "provisioned/done", "Active");
    std::thread::sleep(seconds(4));
    assert_eq!(waiting(house), Vec::<Value>::new(), "a no is a no, until it is another difference");
    spoil("spoilt again");
    place.json(&["drift", "check", "--env", "dev"]);
    approve(&ada, &request(house));
    eventually("it is put right", seconds(20), || (place.world.things()[&id]["note"] == "one").then_some(()));
    becomes(house, &id, "provisioned/done");
}

/// A change that was refused does not come in with a repair that nobody has to agree to.
fn a_refused_change_with_a_free_repair(house: &House) {
    let (place, api) = (&house.place, house.api());
    let id = there(house);
    approval(place, "{ update: required, drift: none }");
    let ada = somebody(house, "admin", "ada");
    let change = deploy_soon(&api, &db("two"));
    reject(&ada, &request(house));
    ends(house, &change, "failed");
    std::fs::write(place.world.thing(&id), json!({ "note": "spoilt" }).to_string()).unwrap();
    place.json(&["drift", "check", "--env", "dev"]);
    place.ok(&["drift", "repair", &id, "--yes"]);
    assert_eq!(place.world.things()[&id]["note"], "one");
    assert_eq!(done(place), ["create one", "update one"]);
    // Nor by being taken back to where it was proposed.
    let refused = place.run(&["revisions", "rollback", &id, "2"]);
    assert!(refused.code == 5 || refused.code == 6, "{refused:?}");
    assert_eq!(place.world.things()[&id]["note"], "one");
}

/// What is made for a pool has terms of its own, and what is done by a proposal has those of an update.
fn a_proposal(house: &House) {
    let place = &house.place;
    things(place, "    region: { type: string, immutable: true }\n");
    let id = made(house, "vpc", json!({ "note": "one", "region": "north" }));
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let propose = |set: Value| {
        let reply = house.api().post(&format!("/api/v1/resources/{id}/proposals"), &json!({ "set": set }));
        assert_eq!(reply.status, 201, "{}", reply.text);
        text(&reply.json(), "id")
    };
    let on = |proposal: &str, verb: &str| {
        house.api().post(&format!("/api/v1/proposals/{proposal}/{verb}"), &json!({}))
    };
    let proposal = propose(json!({ "note": "two" }));
    let early =
        house.api().call("POST", &format!("/api/v1/proposals/{proposal}/merge"), &[], "").problem(409);
    says(&text(&early, "detail"), &["somebody has to agree first"]);
    assert_eq!(on(&proposal, "submit").json()["status"], "approval_pending");
    let early =
        house.api().call("POST", &format!("/api/v1/proposals/{proposal}/merge"), &[], "").problem(409);
    says(&text(&early, "detail"), &["approval_pending"]);
    assert_eq!(pair(house, &id), "provisioned/done", "the resource itself knows nothing of it");
    approve(&ada, &request(house));
    // Agreed to once, it is merged without being asked for once more.
    let merged = house.api().call("POST", &format!("/api/v1/proposals/{proposal}/merge"), &[], "");
    ends(house, &accepted(&merged), "succeeded");
    assert_eq!(done(place), ["create one", "update two"]);
    assert_eq!(waiting(house), Vec::<Value>::new());

    // A change that would replace it is a destruction as well, and somebody agrees to that.
    let proposal = propose(json!({ "region": "south" }));
    assert_eq!(on(&proposal, "submit").json()["status"], "approval_pending");
    let asked = request(house);
    approve(&ada, &asked);
    let merged = house.api().call("POST", &format!("/api/v1/proposals/{proposal}/merge"), &[], "");
    let change = accepted(&merged);
    if !asked["items"].to_string().contains("destroy") {
        assert_eq!(request(house)["items"].to_string().matches("destroy").count(), 1);
        approve(&ada, &request(house));
    }
    ends(house, &change, "succeeded");
    assert_eq!(done(place)[2..], ["delete two", "create two"]);
}

/// The resource moved on after a proposal was agreed to: it is looked at again.
fn a_proposal_for_what_was(house: &House) {
    let place = &house.place;
    let id = there(house);
    strict(place);
    let (ada, api) = (somebody(house, "admin", "ada"), house.api());
    let reply =
        api.post(&format!("/api/v1/resources/{id}/proposals"), &json!({ "set": { "says": "hello" } }));
    let proposal = text(&reply.json(), "id");
    api.post(&format!("/api/v1/proposals/{proposal}/submit"), &json!({}));
    approve(&ada, &request(house));
    let change = deploy_soon(&api, &db("two"));
    approve(&ada, &request(house));
    ends(house, &change, "succeeded");
    let stale = api.call("POST", &format!("/api/v1/proposals/{proposal}/merge"), &[], "").problem(409);
    says(&text(&stale, "detail"), &["changed since this was agreed to", "submit it again"]);
    let again = api.post(&format!("/api/v1/proposals/{proposal}/submit"), &json!({}));
    assert_eq!(again.json()["status"], "approval_pending", "{}", again.text);
    approve(&ada, &request(house));
    let merged = api.call("POST", &format!("/api/v1/proposals/{proposal}/merge"), &[], "");
    ends(house, &accepted(&merged), "succeeded");
    assert_eq!(get(house, &id)["parameters"]["note"], "two");
    assert_eq!(get(house, &id)["parameters"]["says"], "hello");
}

stories!(a_role_that_was_lost a_vote_of_somebody_who_may_not_any_more an_answer_to_something_else what_was_asked_for_changed what_was_agreed_to_changed
    a_destruction_by_hand a_removal_by_deploying a_replacement a_teardown the_last_user_taken_out a_rollback a_repair
    a_refused_change_with_a_free_repair a_proposal a_proposal_for_what_was);
