//! Step by step, by hand: create, provision, update, recreate, destroy, delete; with and without agreement, with the
//! ledger's program and with real tofu.

use conductor_tests::{Api, House, Reply, Score, eventually, quick, resource, seconds, tofu};
use serde_json::{Value, json};

use super::{
    accepted, act, approve, ask_for, audit, becomes, done, ends, get, is, made, made_soon, pair, reject,
    request, says, served, somebody, stories, strict, text, things, waiting,
};

/// Recorded and provisioned at once, where nobody has to agree.
fn create_and_provision(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    // A dry run tells, and changes nothing.
    let body = json!({ "template": "thing", "name": "vpc", "environment": "dev", "parameters": { "note": "vpc" },
        "dryRun": true });
    let shown = api.post("/api/v1/resources", &body);
    assert_eq!(shown.json()["deployment"]["resources"][0]["action"], "create", "{}", shown.text);
    assert_eq!(place.resources(), Vec::<Value>::new());

    place.world.hold();
    let body = json!({ "template": "thing@1.0.0", "name": "vpc", "environment": "dev",
        "parameters": { "note": "vpc" }, "facts": { "description": "the network", "team": "platform",
        "labels": { "tier": "one" }, "tags": { "cost": { "value": 7 } } } });
    let reply = api.post("/api/v1/resources", &body);
    assert_eq!(reply.status, 202, "{}", reply.text);
    let id = text(&reply.json()["resource"], "id");
    is(house, &id, "provision/in_progress", "Provisioning");
    place.world.let_go();
    ends(house, &text(&reply.json()["deployment"], "id"), "succeeded");
    is(house, &id, "provisioned/done", "Active");
    let seen = get(house, &id);
    assert_eq!(
        (&seen["name"], &seen["keptBy"], &seen["generation"]),
        (&json!("vpc"), &json!("hand"), &json!(1))
    );
    assert_eq!((&seen["description"], &seen["team"]), (&json!("the network"), &json!("platform")));
    assert_eq!((&seen["labels"]["tier"], &seen["tags"]["cost"]["value"]), (&json!("one"), &json!(7)));
    assert_eq!(seen["outputs"]["note"], "vpc");
    assert!(!text(&seen, "owner").is_empty(), "whoever makes it owns it");

    // Used by id, it stays when its user goes.
    let linked = json!({ "type": "thing", "reference": { "mode": "existing", "id": id } });
    let used = place.deploy(&Score::new("shop").with("net", linked).text());
    assert_eq!(served(&used, "net"), ("link".into(), id.clone()));
    place.destroy("shop");
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(done(place), ["create vpc"]);
}

/// A step fails: the error is kept, and the step can be tried again.
fn provision_fails_and_is_retried(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.world.trouble("broken", "no credit");
    let id = made_soon(&api, "vpc", json!({ "note": "vpc" }));
    is(house, &id, "provision/error", "Failed");
    says(&get(house, &id)["error"].to_string(), &["no credit"]);
    let again = place.run(&["resources", "retry", &id]);
    assert_eq!(again.code, 1, "{again:?}");
    is(house, &id, "provision/error", "Failed");
    place.world.calm("broken");
    place.ok(&["resources", "retry", &id]);
    is(house, &id, "provisioned/done", "Active");
    let early = act(&api, &id, "retry").problem(409);
    assert_eq!(early["allowedActions"], json!(["update", "destroy"]));
}

fn what_cannot_be_created(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "    size: { type: integer, minimum: 1 }\n");
    made(house, "vpc", json!({ "note": "vpc" }));
    let taken = ask_for(&api, "thing", "vpc", json!({})).problem(409);
    says(&taken.to_string(), &["`vpc` is there already", "another name"]);
    let unknown = ask_for(&api, "thign", "x", json!({})).problem(404);
    says(&text(&unknown, "detail"), &["thign"]);
    ask_for(&api, "thing@9.9.9", "x", json!({})).problem(404);
    let body = json!({ "template": "thing", "name": "x", "environment": "mars", "parameters": {} });
    api.post("/api/v1/resources", &body).problem(404);
    for name in ["", "With Space", "UPPER", &"x".repeat(64)] {
        ask_for(&api, "thing", name, json!({})).problem(422);
    }
    let wrong = ask_for(&api, "thing", "x", json!({ "size": 0, "note": 7 })).problem(422);
    assert_eq!(wrong["errors"].as_array().unwrap().len(), 2, "{wrong}");
    let reader = somebody(house, "read", "rosa");
    ask_for(&reader, "thing", "x", json!({})).problem(403);
    // Out of use: nothing new is made of it.
    let off = place.world.template("thing", "").replace("version: 1.0.0", "version: 2.0.0\nstate: disabled");
    place.apply("thing-2", &off);
    let disabled = ask_for(&api, "thing@2.0.0", "x", json!({})).problem(409);
    says(&text(&disabled, "detail"), &["thing@2.0.0 is disabled"]);
    assert_eq!(place.resources().len(), 1);
}

fn on(api: &Api, proposal: &str, verb: &str, body: &Value) -> Reply {
    let path = format!("/api/v1/proposals/{proposal}");
    match verb {
        "get" => api.get(&path),
        "edit" => api.call("PATCH", &path, &[("content-type", "application/json")], body.to_string()),
        verb => api.post(&format!("{path}/{verb}"), body),
    }
}

#[track_caller]
fn proposed(api: &Api, resource: &str, body: &Value) -> Value {
    let reply = api.post(&format!("/api/v1/resources/{resource}/proposals"), body);
    assert_eq!(reply.status, 201, "{}", reply.text);
    reply.json()
}

#[track_caller]
fn not_proposed(api: &Api, resource: &str, body: &Value, status: u16) -> String {
    let reply = api.post(&format!("/api/v1/resources/{resource}/proposals"), body);
    reply.problem(status).to_string()
}

/// Proposed, edited, tried, merged: the resource knows nothing of it before.
fn update_by_proposal(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "    size: { type: string }\n    engine: { type: string, frozen: true }\n");
    let id = made(house, "db", json!({ "note": "one", "size": "small", "engine": "pg" }));
    let proposal = proposed(&api, &id, &json!({ "set": { "note": "two" }, "reason": "it is time" }));
    assert_eq!((&proposal["status"], &proposal["reason"]), (&json!("pending"), &json!("it is time")));
    assert_eq!(proposal["changes"], json!({ "note": { "before": "one", "after": "two" } }));
    let name = text(&proposal, "id");
    let edited = on(&api, &name, "edit", &json!({ "set": { "size": "large" }, "labels": { "tier": "two" } }));
    assert_eq!(edited.status, 200, "{}", edited.text);
    assert_eq!(edited.json()["changes"]["size"], json!({ "before": "small", "after": "large" }));
    let tried = on(&api, &name, "dry-run", &json!({}));
    assert_eq!(tried.json()["resources"][0]["action"], "update", "{}", tried.text);
    says(&text(&tried.json()["resources"][0], "reason"), &["`note`", "`size`"]);
    assert_eq!((pair(house, &id), done(place).len()), ("provisioned/done".into(), 1));
    assert_eq!(get(house, &id)["parameters"]["note"], "one");

    place.world.hold();
    let merged = on(&api, &name, "merge", &json!({}));
    let change = accepted(&merged);
    is(house, &id, "provisioned/in_progress", "Updating");
    place.world.let_go();
    ends(house, &change, "succeeded");
    is(house, &id, "provisioned/done", "Active");
    let seen = get(house, &id);
    assert_eq!((&seen["parameters"]["note"], &seen["labels"]["tier"]), (&json!("two"), &json!("two")));
    let end = on(&api, &name, "get", &json!({})).json();
    assert_eq!((&end["status"], &end["deployment"]), (&json!("merged"), &json!(change)));
    let revisions = place.json(&["revisions", "list", &id]);
    assert_eq!((&revisions[0]["number"], &revisions[0]["reason"]), (&json!(2), &json!("proposal")));
    // Done is done.
    on(&api, &name, "edit", &json!({ "set": { "note": "x" } })).problem(409);
    for verb in ["merge", "submit", "discard"] {
        on(&api, &name, verb, &json!({})).problem(409);
    }
    // And it can go back.
    place.ok(&["revisions", "rollback", &id, "1"]);
    assert_eq!(get(house, &id)["parameters"]["note"], "one");
    assert_eq!(get(house, &id)["parameters"]["size"], "small");
    assert_eq!(done(place), ["create one", "update two", "update one"]);
}

fn what_cannot_be_proposed(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "    size: { type: integer, minimum: 1 }\n    engine: { type: string, frozen: true }\n");
    let id = made(house, "db", json!({ "note": "one", "engine": "pg" }));
    for (field, value) in
        [("name", "other"), ("template", "other"), ("storage", "s3"), ("environment", "prod")]
    {
        let told = not_proposed(&api, &id, &json!({ field: value }), 422);
        says(&told, &[field, "never changes"]);
    }
    says(&not_proposed(&api, &id, &json!({ "set": { "engine": "maria" } }), 409), &["engine is frozen"]);
    says(&not_proposed(&api, &id, &json!({ "set": { "size": 0, "note": 7 } }), 422), &["size", "note"]);
    says(&not_proposed(&api, &id, &json!({ "templateVersion": "7.0.0" }), 404), &["7.0.0"]);
    not_proposed(&api, &id, &json!({}), 422);
    not_proposed(&api, &id, &json!({ "colour": "red" }), 422);
    not_proposed(&somebody(house, "read", "rosa"), &id, &json!({ "set": { "note": "x" } }), 403);

    // Two about the same would undo each other; about something else they go side by side.
    let first = proposed(&api, &id, &json!({ "set": { "note": "two" } }));
    let told = not_proposed(&api, &id, &json!({ "set": { "note": "three", "says": "x" } }), 409);
    says(&told, &[&text(&first, "id"), "parameter `note`", "merge or discard it first"]);
    let second = proposed(&api, &id, &json!({ "set": { "says": "hello" } }));
    let rival = on(&api, &text(&second, "id"), "edit", &json!({ "set": { "note": "three" } })).problem(409);
    says(&rival.to_string(), &[&text(&first, "id")]);
    // Discarded, it is gone for good and in nobody's way.
    let gone = on(&api, &text(&first, "id"), "discard", &json!({}));
    assert_eq!((&gone.json()["status"], &gone.json()["changes"]), (&json!("discarded"), &json!({})));
    proposed(&api, &id, &json!({ "set": { "note": "three" } }));
    assert_eq!(get(house, &id)["parameters"]["note"], "one");
    assert_eq!(done(place), ["create one"]);
}

/// Another version: what it adds, drops and changes is shown, and what it needs is asked for.
fn update_to_another_version(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "    size: { type: string }\n    old: { type: string }\n");
    let id = made(house, "db", json!({ "note": "one", "size": "small", "old": "x" }));
    let newer = "    watched: { type: boolean, default: true }\n    size: { type: string, maxLength: 9 }\n    \
                 zone: { type: string }\n  required: [zone]\n";
    place.apply("thing-2", &place.world.template("thing", newer).replace("1.0.0", "2.0.0"));
    let proposal = proposed(&api, &id, &json!({ "templateVersion": "2.0.0" }));
    let variables = &proposal["variables"];
    assert_eq!((&variables["added"], &variables["dropped"]), (&json!(["zone"]), &json!(["old"])));
    assert_eq!((&variables["changed"], &variables["missing"]), (&json!(["size"]), &json!(["zone"])));
    let name = text(&proposal, "id");
    for verb in ["submit", "merge", "dry-run"] {
        let told = on(&api, &name, verb, &json!({})).problem(422);
        says(&told.to_string(), &["zone"]);
    }
    let edited = on(&api, &name, "edit", &json!({ "set": { "zone": "a" } }));
    assert_eq!(edited.json()["variables"]["missing"], json!([]), "{}", edited.text);
    ends(house, &accepted(&on(&api, &name, "merge", &json!({}))), "succeeded");
    let seen = get(house, &id);
    assert_eq!((&seen["templateVersion"], &seen["parameters"]["zone"]), (&json!("2.0.0"), &json!("a")));
    assert_eq!(seen["parameters"].get("old"), None, "what the version does not know is no more");
    let diff = place.json(&["revisions", "diff", &id, "1", "2"]);
    assert_eq!(diff["templateVersion"], json!({ "before": "1.0.0", "after": "2.0.0" }));
}

/// With agreement: submitted, rejected, edited, submitted, agreed to, merged by hand; or at once where it says so.
fn update_with_agreement(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let id = made(house, "db", json!({ "note": "one" }));
    strict(place);
    let ada = somebody(house, "admin", "ada");
    let name = text(&proposed(&api, &id, &json!({ "set": { "note": "two" } })), "id");
    let submitted = on(&api, &name, "submit", &json!({})).json();
    assert_eq!(
        (&submitted["status"], pair(house, &id)),
        (&json!("approval_pending"), "provisioned/done".into())
    );
    let asked = request(house);
    assert_eq!((&asked["proposal"], &asked["kind"]), (&json!(name), &json!("proposal")));
    assert_eq!(asked["items"][0]["changes"]["note"], json!({ "before": "one", "after": "two" }));
    on(&api, &name, "edit", &json!({ "set": { "note": "x" } })).problem(409);
    reject(&ada, &asked);
    assert_eq!(on(&api, &name, "get", &json!({})).json()["status"], "rejected");
    is(house, &id, "provisioned/done", "Active");
    on(&api, &name, "merge", &json!({})).problem(409);
    // Edited, it is another proposal.
    assert_eq!(on(&api, &name, "edit", &json!({ "set": { "note": "three" } })).json()["status"], "pending");
    on(&api, &name, "submit", &json!({}));
    approve(&ada, &request(house));
    assert_eq!(on(&api, &name, "get", &json!({})).json()["status"], "approved");
    assert_eq!(done(place), ["create one"], "agreed to is not merged");
    ends(house, &accepted(&on(&api, &name, "merge", &json!({}))), "succeeded");
    assert_eq!(done(place), ["create one", "update three"]);

    let name = text(&proposed(&api, &id, &json!({ "set": { "note": "four" } })), "id");
    on(&api, &name, "submit", &json!({ "autoMerge": true }));
    approve(&ada, &request(house));
    eventually("it is merged", seconds(20), || {
        (done(place) == ["create one", "update three", "update four"]).then_some(())
    });
    becomes(house, &id, "provisioned/done");
    // Discarded while it waits: the request is withdrawn.
    let name = text(&proposed(&api, &id, &json!({ "set": { "note": "five" } })), "id");
    on(&api, &name, "submit", &json!({}));
    on(&api, &name, "discard", &json!({}));
    assert_eq!(waiting(house), Vec::<Value>::new());
}

/// What was destroyed is made again under its record; what lives is not.
fn recreate(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    let live = act(&api, &id, "recreate").problem(409);
    assert_eq!(live["allowedActions"], json!(["update", "destroy"]));
    place.ok(&["resources", "destroy", &id, "--yes"]);
    is(house, &id, "destroyed/done", "Deleted");
    let shown = place.json(&["resources", "recreate", &id, "--dry-run"]);
    assert_eq!(shown["resources"][0]["action"], "create", "{shown}");
    place.world.hold();
    let change = accepted(&act(&api, &id, "recreate"));
    is(house, &id, "provision/in_progress", "Provisioning");
    place.world.let_go();
    ends(house, &change, "succeeded");
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(get(house, &id)["generation"], 2);
    assert_eq!(done(place), ["create vpc", "delete vpc", "create vpc"]);
    // Gone, and another took its name: it does not come back beside that.
    place.ok(&["resources", "destroy", &id, "--yes"]);
    let other = made(house, "vpc", json!({ "note": "other" }));
    let taken = act(&api, &id, "recreate").problem(409);
    says(&taken.to_string(), &["took its place", &other]);
}

/// Whatever needs it is in the way, and named.
fn destroy_is_blocked(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let vpc = made(house, "vpc", json!({ "note": "vpc" }));
    let body = json!({ "template": "thing", "name": "subnet", "environment": "dev",
        "parameters": { "note": "subnet" }, "parents": [vpc] });
    let child = text(&api.post("/api/v1/resources", &body).json()["resource"], "id");
    becomes(house, &child, "provisioned/done");
    let linked = json!({ "type": "thing", "reference": { "mode": "existing", "id": vpc } });
    let score =
        Score::new("shop").with("net", linked).thing("db", json!({ "note": "on ${resources.net.note}" }));
    let db = served(&place.deploy(&score.text()), "db").1;
    let blocked = act(&api, &vpc, "destroy").problem(409);
    assert_eq!(blocked["reason"], "Dependencies exist");
    let found: Vec<(String, String, String)> = blocked["dependencies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (text(one, "kind"), text(one, "resourceId"), text(one, "state")))
        .collect();
    let expected = |kind: &str, id: &str| (kind.to_owned(), id.to_owned(), "provisioned".to_owned());
    assert_eq!(found.len(), 3, "{blocked}");
    for one in [expected("consumer", &vpc), expected("child", &child), expected("dependent", &db)] {
        assert!(found.contains(&one), "{one:?} is not in {found:?}");
    }
    says(&text(&blocked, "detail"), &["shop in dev (as `net`)", "child `subnet`"]);
    is(house, &vpc, "provisioned/done", "Active");
    let told = place.run(&["resources", "destroy", "vpc", "--yes"]);
    assert_eq!(told.code, 1, "{told:?}");

    // One after the other out of the way.
    place.destroy("shop");
    let blocked = act(&api, &vpc, "destroy").problem(409);
    assert_eq!(blocked["dependencies"].as_array().unwrap().len(), 1, "{blocked}");
    ends(house, &accepted(&act(&api, &child, "destroy")), "succeeded");
    place.ok(&["resources", "protect", &vpc]);
    let kept = act(&api, &vpc, "destroy").problem(409);
    says(&text(&kept, "detail"), &["protected", "unprotect"]);
    place.ok(&["resources", "unprotect", &vpc, "--yes"]);
    ends(house, &accepted(&act(&api, &vpc, "destroy")), "succeeded");
    is(house, &vpc, "destroyed/done", "Deleted");
    let twice = act(&api, &vpc, "destroy").problem(409);
    assert_eq!(twice["allowedActions"], json!(["recreate", "delete"]));
    // Its child is not made again without it.
    act(&api, &child, "recreate").problem(409);
}

/// The record goes; what happened is known for good.
fn delete_the_record(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    let path = format!("/api/v1/resources/{id}");
    let live = api.call("DELETE", &path, &[], "").problem(409);
    assert_eq!(live["allowedActions"], json!(["update", "destroy"]));
    let open = text(&proposed(&api, &id, &json!({ "set": { "note": "two" } })), "id");
    place.ok(&["resources", "destroy", &id, "--yes"]);
    somebody(house, "write", "wim").call("DELETE", &path, &[], "").problem(403);
    let held = api.call("DELETE", &path, &[], "").problem(409);
    says(&text(&held, "detail"), &["open proposal", &open]);
    on(&api, &open, "discard", &json!({}));
    assert_eq!(api.call("DELETE", &path, &[], "").status, 204);
    api.get(&path).problem(404);
    for deed in ["recreate", "destroy", "retry"] {
        act(&api, &id, deed).problem(404);
    }
    api.call("DELETE", &path, &[], "").problem(404);
    assert!(!place.json(&["resources", "list"]).to_string().contains(&id));
    assert_eq!(house.count("SELECT count(*) FROM revisions"), 0, "values and revisions went with it");
    says(&audit(house), &[&id, "resource.deleted"]);
    // The name is free.
    made(house, "vpc", json!({ "note": "again" }));
}

const MODULE: &str = r#"
variable "note" { default = "none" }
resource "terraform_data" "thing" { input = var.note }
output "note" { value = terraform_data.thing.output }
"#;

fn notes_by_tofu(house: &House) {
    let place = &house.place;
    place.write("catalog/noted/main.tf", MODULE);
    place.apply(
        "noted",
        &format!(
            "kind: Template\nname: noted\ntype: noted\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./noted, tool: {} }}\n",
            tofu().display()
        ),
    );
}

/// A plan that asks tofu as well: of each thing what it would do to it, and nothing is done.
fn a_plan_that_asks_tofu(house: &House) {
    let (place, api) = (&house.place, house.api());
    notes_by_tofu(house);
    let score = |one: &str, two: &str| {
        Score::new("web")
            .with("one", resource("noted", json!({ "note": one })))
            .with("two", resource("noted", json!({ "note": two })))
    };
    let made = place.deploy(&score("a", "b").text());
    let states = house.count("SELECT count(*) FROM states");
    let ask = |score: &str| {
        let file = place.write("asked.yaml", score).display().to_string();
        let told = place.run(&["plan", "--deep", "-f", &file, "--env", "dev", "-o", "json"]);
        assert_eq!(told.code, 0, "{told:?}");
        told.json()
    };
    // Nobody is to be asked: the plan alone.
    let same = ask(&score("a", "b").text());
    assert_eq!((&same["status"], &same["id"]), (&json!("planned"), &Value::Null), "{same}");
    // Two are asked at once, and each answers for itself.
    let both = ask(&score("A", "B").text());
    assert_eq!(
        (&both["kind"], &both["status"], &both["application"]),
        (&json!("preview"), &json!("succeeded"), &json!("web"))
    );
    for (name, note) in [("one", "A"), ("two", "B")] {
        let item =
            both["resources"].as_array().unwrap().iter().find(|item| item["requirement"] == name).unwrap();
        assert_eq!(item["resource"], json!(super::served(&made, name).1));
        says(&item["proposed"].to_string(), &["terraform_data.thing", &format!("\"{note}\"")]);
    }
    // What is not made yet has nothing to give.
    let fed = score("A", "${resources.new.note}").with("new", resource("noted", json!({ "note": "c" })));
    let fed = ask(&fed.text());
    says(&fed["warnings"].to_string(), &["`web-two`", "made first"]);
    says(&fed["resources"].to_string(), &["proposed"]);
    assert_eq!(house.count("SELECT count(*) FROM states"), states, "nothing was done");
    for (name, note) in [("one", "a"), ("two", "b")] {
        let seen = get(house, &super::served(&made, name).1);
        assert_eq!((&seen["outputs"]["note"], &seen["parameters"]["note"]), (&json!(note), &json!(note)));
    }
    // Whoever may only read may see what Conductor would do, and keep no worker busy.
    let (rosa, asked) = (
        somebody(house, "read", "rosa"),
        json!({ "environment": "dev", "manifest": score("A", "B").text() }),
    );
    assert_eq!(rosa.post("/api/v1/plans", &asked).status, 200);
    rosa.post("/api/v1/plans?deep=true", &asked).problem(403);
    let wrong = json!({ "environment": "dev", "manifest": "apiVersion: 3" });
    api.post("/api/v1/plans?deep=true", &wrong).problem(422);
    house.is_at_rest();
}

#[test]
fn a_plan_that_asks_tofu_on_sqlite() {
    if !quick() {
        a_plan_that_asks_tofu(&super::up());
    }
}

#[test]
fn a_plan_that_asks_tofu_on_postgresql() {
    if !quick() {
        a_plan_that_asks_tofu(&super::fleet());
    }
}

/// Nothing real happens before somebody has agreed: made, changed and destroyed by tofu.
fn with_real_tofu_and_agreement(house: &House) {
    let place = &house.place;
    notes_by_tofu(house);
    strict(place);
    let (api, ada) = (house.api(), somebody(house, "admin", "ada"));
    let score =
        |note: &str| Score::new("web").with("notes", resource("noted", json!({ "note": note }))).text();
    let states = || house.count("SELECT count(*) FROM states");
    let id = super::deploy_soon(&api, &score("one"));
    let resource = text(&request(house)["items"][0], "resource");
    is(house, &resource, "provision/approval_pending", "Pending");
    assert_eq!(states(), 0);
    approve(&ada, &request(house));
    ends(house, &id, "succeeded");
    assert_eq!(get(house, &resource)["outputs"]["note"], "one");

    let before = states();
    let id = super::deploy_soon(&api, &score("two"));
    is(house, &resource, "provisioned/approval_pending", "Active");
    assert_eq!((states(), &get(house, &resource)["outputs"]["note"]), (before, &json!("one")));
    reject(&ada, &request(house));
    ends(house, &id, "failed");
    let id = super::deploy_soon(&api, &score("two"));
    approve(&ada, &request(house));
    ends(house, &id, "succeeded");
    assert_eq!(get(house, &resource)["outputs"]["note"], "two");
    assert!(states() > before);

    let id = super::leave_soon(&api, "web");
    is(house, &resource, "destroy/approval_pending", "PendingDeletion");
    approve(&ada, &request(house));
    ends(house, &id, "succeeded");
    is(house, &resource, "destroyed/done", "Deleted");
    assert_eq!(get(house, &resource)["outputs"], json!({}));
    house.is_at_rest();
}

#[test]
fn with_real_tofu_on_sqlite() {
    if !quick() {
        with_real_tofu_and_agreement(&super::up());
    }
}

#[test]
fn with_real_tofu_on_postgresql() {
    if !quick() {
        with_real_tofu_and_agreement(&super::fleet());
    }
}

/// While there is time to think again, a deleted record can be had back as it was.
fn a_deleted_record_comes_back(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    ends(house, &accepted(&act(&api, &id, "destroy")), "succeeded");
    place.apply("dev", "kind: Environment\nname: dev\ntype: development\ngrace: 1h\n");
    place.ok(&["resources", "delete", &id, "--yes"]);
    assert_eq!(place.run(&["resources", "get", &id]).code, 6);
    place.ok(&["resources", "undelete", &id]);
    is(house, &id, "destroyed/done", "Deleted");
    ends(house, &accepted(&act(&api, &id, "recreate")), "succeeded");
    assert_eq!(get(house, &id)["outputs"]["note"], "vpc");
}

stories!(create_and_provision provision_fails_and_is_retried what_cannot_be_created update_by_proposal
    what_cannot_be_proposed update_to_another_version update_with_agreement recreate destroy_is_blocked
    delete_the_record a_deleted_record_comes_back);
