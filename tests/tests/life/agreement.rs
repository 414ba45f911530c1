//! Somebody has to agree first: who may, how many, until when; what an answer brings about, and what no answer does.

use conductor_tests::{House, Score, Shape, eventually, quick, seconds};
use serde_json::{Value, json};

use super::{
    accepted, act, approval, approve, audit, becomes, change, decide, deploy_soon, done, ends, get, is,
    leave_soon, made, made_soon, reject, request, rests, says, served, somebody, stories, strict, text,
    things, waiting,
};

fn db(note: &str) -> String {
    Score::new("shop").thing("db", json!({ "note": note })).text()
}

/// Asked, and not by the one who asked: exit 5 while it waits, exit 4 for who may not answer.
fn who_asks_does_not_answer(house: &House) {
    let place = &house.place;
    things(place, "");
    strict(place);
    let (other, writer, reader) =
        (somebody(house, "admin", "ada"), somebody(house, "write", "wim"), somebody(house, "read", "rosa"));
    let file = place.write("score.yaml", db("one")).display().to_string();
    let told = place.run(&["deploy", "-f", &file, "--env", "dev", "-o", "json"]);
    assert_eq!(told.code, 5, "{told:?}");
    assert_eq!(told.json()["status"], "approval_pending");
    let (id, resource) = (text(&told.json(), "id"), served(&told.json(), "db").1);
    is(house, &resource, "provision/approval_pending", "Pending");
    assert_eq!(get(house, &resource)["availableActions"], json!(["approve", "reject", "cancel"]));
    let asked = request(house);
    assert_eq!((&asked["deployment"], &asked["kind"]), (&json!(id), &json!("deploy")));
    assert_eq!((&asked["environment"], &asked["application"]), (&json!("dev"), &json!("shop")));
    assert_eq!(asked["items"][0]["kind"], "create");
    assert_eq!(asked["items"][0]["changes"]["note"], json!({ "before": null, "after": "one" }));
    // What waits can say for what.
    says(&change(house, &id)["waitingFor"].to_string(), &[&text(&asked, "id")]);

    let as_who = |token: &str, args: &[&str]| place.run_with(args, &[("CONDUCTOR_TOKEN", token)]);
    let answer = ["approvals", "approve", &text(&asked, "id")];
    for (token, why) in
        [("", "somebody else has to agree"), (&writer.token, "admin or owner"), (&reader.token, "")]
    {
        let told = match token {
            "" => place.run(&answer),
            token => as_who(token, &answer),
        };
        assert_eq!(told.code, 4, "{told:?}");
        says(&told.all(), &[why]);
    }
    // Everybody may look; the queue of what waits for me holds it for whoever may answer.
    let mine = |token: &str| -> Value {
        let told = as_who(token, &["approvals", "list", "--mine", "-o", "json"]);
        assert_eq!(told.code, 0, "{told:?}");
        told.json()
    };
    assert_eq!(mine(&other.token).as_array().unwrap().len(), 1);
    assert_eq!(mine(&writer.token), json!([]));
    assert_eq!(place.json(&["approvals", "list", "--mine"]), json!([]));
    assert_eq!(reader.get("/api/v1/approvals").json()["items"].as_array().unwrap().len(), 1);
    assert!(place.world.runs().is_empty(), "something ran before it was agreed to");

    approve(&other, &asked);
    ends(house, &id, "succeeded");
    is(house, &resource, "provisioned/done", "Active");
    assert_eq!(done(place), ["create one"]);
    let given = house.api().get(&format!("/api/v1/approvals/{}", text(&asked, "id"))).json();
    assert_eq!((&given["status"], &given["votes"][0]["actor"]), (&json!("approved"), &json!("ada")));
    // Answered once.
    let again = decide(&other, &asked, "approve", "").problem(409);
    says(&text(&again, "detail"), &["approved already"]);
}

/// A no leaves everything as it was, and the reason is on record.
fn what_a_no_leaves_behind(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    strict(place);
    let ada = somebody(house, "admin", "ada");
    // A create stays, rejected: it can be asked for again, or forgotten.
    let id = deploy_soon(&api, &db("one"));
    let asked = request(house);
    decide(&ada, &asked, "reject", "").problem(422);
    decide(&ada, &asked, "reject", "  ").problem(422);
    assert_eq!(waiting(house).len(), 1, "no reason, no answer");
    reject(&ada, &asked);
    let end = ends(house, &id, "failed");
    says(&end["error"].to_string(), &["rejected by ada: not today", "\"rejected\""]);
    let resource = served(&end, "db").1;
    is(house, &resource, "provision/rejected", "Pending");
    assert_eq!(get(house, &resource)["availableActions"], json!(["recreate", "destroy"]));
    says(&text(&get(house, &resource), "message"), &["rejected by ada: not today"]);
    assert!(place.world.runs().is_empty());

    // Asked again, agreed to.
    let id = deploy_soon(&api, &db("one"));
    approve(&ada, &request(house));
    ends(house, &id, "succeeded");

    // An update leaves it as it is, desired state and all.
    let id = deploy_soon(&api, &db("two"));
    is(house, &resource, "provisioned/approval_pending", "Active");
    reject(&ada, &request(house));
    ends(house, &id, "failed");
    is(house, &resource, "provisioned/done", "Active");
    assert_eq!(get(house, &resource)["parameters"]["note"], "one", "what was refused is not what is wanted");
    assert_eq!(get(house, &resource)["error"], Value::Null);

    // A destruction is off.
    let id = leave_soon(&api, "shop");
    is(house, &resource, "destroy/approval_pending", "PendingDeletion");
    reject(&ada, &request(house));
    ends(house, &id, "failed");
    is(house, &resource, "provisioned/done", "Active");
    assert_eq!(get(house, &resource)["consumers"][0]["application"], "shop", "it did not leave");
    assert_eq!(done(place), ["create one"]);
    // Everything that was said is in the audit trail.
    says(&audit(house), &["approval.requested", "approval.given", "approval.refused", "not today"]);
}

/// What was refused once may be agreed to later: made anew after it was destroyed, refused, and made.
fn a_rejected_recreation(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let ada = somebody(house, "admin", "ada");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    ends(house, &accepted(&act(&api, &id, "destroy")), "succeeded");
    strict(place);
    let change = accepted(&act(&api, &id, "recreate"));
    is(house, &id, "provision/approval_pending", "Pending");
    reject(&ada, &request(house));
    ends(house, &change, "failed");
    is(house, &id, "provision/rejected", "Pending");
    let change = accepted(&act(&api, &id, "recreate"));
    approve(&ada, &request(house));
    ends(house, &change, "succeeded");
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(done(place), ["create vpc", "delete vpc", "create vpc"]);
}

/// Two have to agree; the same one twice is one. A change of mind counts.
fn several_have_to_agree(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    approval(place, "{ create: required, approvers: 2 }");
    let [ada, bob] = ["ada", "bob"].map(|name| somebody(house, "admin", name));
    let id = deploy_soon(&api, &db("one"));
    let asked = request(house);
    assert_eq!(asked["approvers"], 2);
    approve(&ada, &asked);
    approve(&ada, &asked);
    rests(house, &id);
    assert_eq!(request(house)["votes"].as_array().unwrap().len(), 1);
    assert!(place.world.runs().is_empty());
    approve(&bob, &asked);
    ends(house, &id, "succeeded");

    // One no is enough, whoever agreed before.
    let id = deploy_soon(&api, &Score::new("other").thing("db", json!({ "note": "two" })).text());
    let asked = request(house);
    approve(&ada, &asked);
    reject(&bob, &asked);
    ends(house, &id, "failed");
    assert_eq!(done(place), ["create one"]);
}

/// The strictest of organisation, environment and template holds; oneself only where each of them allows it.
fn the_strictest_holds(house: &House) {
    let (place, api) = (&house.place, house.api());
    approval(place, "{ create: required, allowSelf: true }");
    things(place, "");
    let id = deploy_soon(&api, &db("one"));
    let asked = request(house);
    assert_eq!(asked["allowSelf"], true);
    approve(&api, &asked);
    ends(house, &id, "succeeded");
    // The template asks for more: two, and not oneself.
    let text = place.world.template("vault", "approval: { create: required, approvers: 2 }\n");
    place.apply("vault", &text);
    deploy_soon(&api, &Score::new("safe").with("box", json!({ "type": "vault" })).text());
    let asked = request(house);
    assert_eq!((&asked["allowSelf"], &asked["approvers"]), (&json!(false), &json!(2)));
    decide(&api, &asked, "approve", "").problem(403);
    reject(&somebody(house, "admin", "ada"), &asked);
    // What nobody asks for goes at once; so does everything where the environment is not strict.
    place.apply("organisation", "kind: Organisation\nname: default\napproval: { destroy: required }\n");
    deploy_soon(&api, &db("two"));
    eventually("it is changed", seconds(20), || (done(place) == ["create one", "update two"]).then_some(()));
    leave_soon(&api, "shop");
    assert_eq!(request(house)["items"][0]["kind"], "destroy");
}

/// Nobody answers: it is refused when its time is over.
fn a_request_runs_out(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    approval(place, "{ create: required, expires: 2s }");
    let id = deploy_soon(&api, &db("one"));
    let asked = request(house);
    assert!(asked["expiresAt"].is_string(), "{asked}");
    let end = ends(house, &id, "failed");
    says(&end["error"].to_string(), &["nobody answered in time"]);
    is(house, &served(&end, "db").1, "provision/rejected", "Pending");
    let seen = api.get(&format!("/api/v1/approvals/{}", text(&asked, "id"))).json();
    assert_eq!(seen["status"], "expired");
    decide(&somebody(house, "admin", "ada"), &asked, "approve", "").problem(409);
    assert!(place.world.runs().is_empty());
}

/// Cancelled while it waits: the request is withdrawn, and what was never begun is no more.
fn what_waits_can_be_cancelled(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let id = deploy_soon(&api, &db("one"));
    let asked = request(house);
    let resource = text(&asked["items"][0], "resource");
    place.ok(&["cancel", &id]);
    ends(house, &id, "cancelled");
    assert_eq!(waiting(house), Vec::<Value>::new());
    decide(&ada, &asked, "approve", "").problem(409);
    is(house, &resource, "destroyed/done", "Deleted");
    assert!(place.world.runs().is_empty());
    house.is_at_rest();

    // An update that is cancelled leaves what there is.
    let id = deploy_soon(&api, &db("one"));
    approve(&ada, &request(house));
    let resource = served(&ends(house, &id, "succeeded"), "db").1;
    let id = deploy_soon(&api, &db("two"));
    request(house);
    place.ok(&["cancel", &id]);
    ends(house, &id, "cancelled");
    is(house, &resource, "provisioned/done", "Active");
    assert_eq!(get(house, &resource)["parameters"]["note"], "one");
    assert_eq!(waiting(house), Vec::<Value>::new());
}

/// Some of it needs agreement, and the rest does not wait for that.
fn only_what_needs_it_waits(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.apply("vault", &place.world.template("vault", "approval: { create: required }\n"));
    let ada = somebody(house, "admin", "ada");
    let score = Score::new("shop")
        .thing("log", json!({ "note": "log" }))
        .with("box", json!({ "type": "vault", "params": { "note": "box" } }))
        .thing("api", json!({ "note": "api with ${resources.box.note}" }));
    let id = deploy_soon(&api, &score.text());
    rests(house, &id);
    assert_eq!(done(place), ["create log"]);
    let seen = change(house, &id);
    let [vault, service] = ["box", "api"].map(|name| served(&seen, name).1);
    is(house, &vault, "provision/approval_pending", "Pending");
    is(house, &service, "provision/queued", "Pending");
    assert_eq!(request(house)["items"].as_array().unwrap().len(), 1);
    approve(&ada, &request(house));
    ends(house, &id, "succeeded");
    assert_eq!(done(place), ["create log", "create box", "create api with box"]);
    // And once more, changed: what feeds the other is changed first, and both were agreed to.
    strict(place);
    let score = score.with("box", json!({ "type": "vault", "params": { "note": "case" } }));
    let id = deploy_soon(&api, &score.text());
    approve(&ada, &request(house));
    ends(house, &id, "succeeded");
    assert_eq!(done(place)[3..], ["update case", "update api with case"]);
}

/// Killed while it waits, and started again: nothing is lost, and the answer counts.
fn nothing_is_lost_by(kill: impl Fn(&mut House), mut house: House) {
    things(&house.place, "");
    strict(&house.place);
    let ada = somebody(&house, "admin", "ada");
    let id = deploy_soon(&house.api(), &db("one"));
    let asked = request(&house);
    kill(&mut house);
    let again = request(&house);
    assert_eq!((&again["id"], &again["digest"]), (&asked["id"], &asked["digest"]));
    rests(&house, &id);
    approve(&ada, &asked);
    ends(&house, &id, "succeeded");
    assert_eq!(done(&house.place), ["create one"]);
    becomes(&house, &text(&asked["items"][0], "resource"), "provisioned/done");
}

#[test]
fn killed_while_it_waits_up_loses_nothing() {
    let shape = Shape::Up { workers: 0 };
    let kill = |house: &mut House| {
        house.fleet.servers[0].kill();
        house.fleet.servers[0] = house.start_server(shape, 0);
    };
    nothing_is_lost_by(kill, House::new(shape));
}

#[test]
fn killed_while_it_waits_a_server_and_a_worker_lose_nothing() {
    if quick() {
        return;
    }
    let shape = Shape::FleetPostgres { servers: 1, workers: 1 };
    let kill = |house: &mut House| {
        house.fleet.workers[0].kill();
        house.fleet.servers[0].kill();
        house.fleet.servers[0] = house.start_server(shape, 0);
        house.fleet.workers[0] = house.worker();
    };
    nothing_is_lost_by(kill, House::new(shape));
}

/// With nothing running but the commands themselves: whoever agrees carries it out.
#[test]
fn embedded_the_one_who_agrees_carries_it_out() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    place.apply_things();
    approval(place, "{ create: required, allowSelf: true }");
    let file = place.write("score.yaml", db("one")).display().to_string();
    let told = place.run(&["deploy", "-f", &file, "--env", "dev", "-o", "json"]);
    assert_eq!(told.code, 5, "{told:?}");
    assert!(place.world.runs().is_empty());
    let waiting = place.json(&["approvals", "list"]);
    let id = text(&waiting[0], "id");
    place.ok(&["approvals", "approve", &id]);
    assert_eq!(done(place), ["create one"]);
    assert_eq!(place.resources()[0]["phase"], "Active");
    approval(place, "{ create: required }");
    let file = place.write("score.yaml", Score::new("two").thing("db", json!({})).text());
    let told = place.run(&["deploy", "-f", &file.display().to_string(), "--env", "dev"]);
    assert_eq!(told.code, 5, "{told:?}");
    let waiting = place.json(&["approvals", "list"]);
    assert_eq!(place.run(&["approvals", "approve", &text(&waiting[0], "id")]).code, 4);
}

/// A resource made by hand waits as well, and its maker owns it.
fn made_by_hand_it_waits_as_well(house: &House) {
    let place = &house.place;
    things(place, "");
    strict(place);
    let (ada, writer) = (somebody(house, "admin", "ada"), somebody(house, "write", "wim"));
    let id = made_soon(&writer, "vpc", json!({ "note": "vpc" }));
    is(house, &id, "provision/approval_pending", "Pending");
    assert_eq!(get(house, &id)["owner"], "wim");
    let asked = request(house);
    assert_eq!(asked["requester"], "wim");
    approve(&ada, &asked);
    becomes(house, &id, "provisioned/done");
    assert_eq!(done(place), ["create vpc"]);
}

/// Its end waits for a yes, and somebody wants it again: nobody has to answer any more.
fn wanted_again_before_anybody_answered(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let net = |app: &str| {
        Score::new(app).with("net", conductor_tests::shared("thing", "net", json!({ "note": "net" }))).text()
    };
    let id = served(&place.deploy(&net("shop")), "net").1;
    approval(place, "{ destroy: required }");
    let left = deploy_soon(&api, &Score::new("shop").text());
    request(house);
    is(house, &id, "destroy/approval_pending", "PendingDeletion");
    assert_eq!(served(&place.deploy(&net("cart")), "net").1, id);
    ends(house, &left, "succeeded");
    assert_eq!(waiting(house), Vec::<Value>::new());

    // The same where nobody deployed: the last user was taken out.
    let out = api.call("DELETE", &format!("/api/v1/resources/{id}/consumers/cart"), &[], "");
    assert_eq!(out.status, 204, "{}", out.text);
    let collected = text(&request(house), "deployment");
    assert_eq!(served(&place.deploy(&net("shop")), "net").1, id);
    ends(house, &collected, "succeeded");
    assert_eq!(waiting(house), Vec::<Value>::new());
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(place.world.steps(), ["create"]);
}

stories!(wanted_again_before_anybody_answered who_asks_does_not_answer what_a_no_leaves_behind a_rejected_recreation several_have_to_agree
    the_strictest_holds a_request_runs_out what_waits_can_be_cancelled only_what_needs_it_waits
    made_by_hand_it_waits_as_well);
