//! Parents and what children get of them; what is only recorded; what somebody else looks after.

use conductor_tests::{Api, House, Reply, Score};
use serde_json::{Value, json};

use super::{
    accepted, act, audit, becomes, done, ends, get, is, made, says, served, somebody, stories, text, things,
};

/// A resource by hand, with parents and what is said of it.
#[track_caller]
fn child(api: &Api, template: &str, name: &str, parents: &[&str], facts: Value) -> Reply {
    let body = json!({ "template": template, "name": name, "environment": "dev", "parameters": {},
        "parents": parents, "facts": facts });
    api.post("/api/v1/resources", &body)
}

#[track_caller]
fn born(house: &House, template: &str, name: &str, parents: &[&str], facts: Value) -> String {
    let reply = child(&house.api(), template, name, parents, facts);
    assert_eq!(reply.status, 202, "{}", reply.text);
    let id = text(&reply.json()["resource"], "id");
    becomes(house, &id, "provisioned/done");
    id
}

fn inherited(value: Value) -> Value {
    json!({ "value": value, "inherited_by_children": true })
}

/// Tags and configs flow down where they are marked for it; a config of a parameter's name is its default.
fn children_inherit(house: &House) {
    let place = &house.place;
    things(place, "    region: { type: string }\n");
    let facts = json!({
        "tags": { "cost": inherited(json!("c7")), "private": { "value": "mine" } },
        "configs": { "region": inherited(json!("north")), "note": inherited(json!("from above")) },
    });
    let vpc = born(house, "thing", "vpc", &[], facts);
    let own = json!({ "tags": { "tier": { "value": 1 } }, "configs": { "region": { "value": "south" } } });
    let subnet = born(house, "thing", "subnet", &[&vpc], own);
    let seen = get(house, &subnet);
    assert_eq!(seen["parents"], json!([vpc]));
    assert_eq!(seen["tags"]["cost"]["value"], "c7", "{seen}");
    assert_eq!((seen["tags"].get("private"), &seen["tags"]["tier"]["value"]), (None, &json!(1)));
    assert_eq!(seen["parameters"]["note"], "from above", "the default comes from the parent");
    assert_eq!(seen["parameters"]["region"], "south", "what it says itself goes first");
    // And on to the next generation.
    let host = born(house, "thing", "host", &[&subnet], json!({}));
    assert_eq!(get(house, &host)["tags"]["cost"]["value"], "c7");
    // Two parents that say different things: somebody has to say which.
    let other = born(house, "thing", "other", &[], json!({ "tags": { "cost": inherited(json!("c9")) } }));
    let torn = child(&house.api(), "thing", "torn", &[&vpc, &other], json!({})).problem(409);
    says(&text(&torn, "detail"), &["tag `cost`", "c7", "c9", "say which"]);
    let facts = json!({ "tags": { "cost": { "value": "c1" } } });
    let both = born(house, "thing", "both", &[&vpc, &other], facts);
    assert_eq!(get(house, &both)["tags"]["cost"]["value"], "c1");
    assert_eq!(get(house, &both)["parents"].as_array().unwrap().len(), 2);
}

/// A template says how many parents of which kind.
fn what_a_template_asks_of_parents(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.apply("rack", &place.world.template("rack", ""));
    let parents = "parents: [{ type: thing, min: 1, max: 2 }]\n";
    place.apply("disk", &place.world.template("disk", parents));
    let wrong = child(&api, "disk", "lone", &[], json!({})).problem(422);
    says(&text(&wrong, "detail"), &["1 to 2 parent(s)", "`thing`", "0 were given"]);
    let [one, two, three] = ["one", "two", "three"].map(|name| made(house, name, json!({})));
    let rack = born(house, "rack", "rack", &[], json!({}));
    let wrong = child(&api, "disk", "many", &[&one, &two, &three], json!({})).problem(422);
    says(&text(&wrong, "detail"), &["3 were given"]);
    let wrong = child(&api, "disk", "odd", &[&one, &rack], json!({})).problem(422);
    says(&text(&wrong, "detail"), &["`rack` is a rack"]);
    child(&api, "disk", "lost", &["res_00000000000000000000000000"], json!({})).problem(404);
    born(house, "disk", "disk", &[&one], json!({}));
    // A parent has to be there.
    place.ok(&["resources", "destroy", &two, "--yes"]);
    let gone = child(&api, "disk", "late", &[&two], json!({})).problem(409);
    says(&gone.to_string(), &["`two`", "destroyed", "not provisioned"]);
}

/// A parent that is still being made is waited for.
fn a_parent_in_the_making(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.world.hold();
    let vpc = super::made_soon(&api, "vpc", json!({ "note": "vpc" }));
    becomes(house, &vpc, "provision/in_progress");
    let reply = child(&api, "thing", "subnet", &[&vpc], json!({ "configs": {} }));
    let subnet = text(&reply.json()["resource"], "id");
    is(house, &subnet, "provision/queued", "Pending");
    assert_eq!(place.world.begun("create"), 1);
    place.world.let_go();
    becomes(house, &subnet, "provisioned/done");
    becomes(house, &vpc, "provisioned/done");
    // And a teardown takes the child first.
    place.ok(&["destroy", "--env", "dev", "--yes"]);
    assert_eq!(done(place)[2..], ["delete", "delete vpc"]);
}

/// Only recorded: there at once, a parent like any other, and deleted once it has no children.
fn abstract_resources(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.apply(
        "account",
        "kind: Template\nname: account\ntype: account\nversion: 1.0.0\nabstract: true\n\
         tags: { cost: { value: c7, inherited_by_children: true } }\n\
         parameters: { type: object, properties: { owner: { type: string } } }\n",
    );
    super::strict(place);
    let body = json!({ "template": "account", "name": "main", "environment": "dev",
        "parameters": { "owner": "ada" } });
    let reply = api.post("/api/v1/resources", &body);
    assert_eq!(reply.status, 202, "{}", reply.text);
    let account = text(&reply.json()["resource"], "id");
    // Nothing is provisioned, so nobody has to agree to that.
    is(house, &account, "provisioned/done", "Active");
    assert_eq!(super::waiting(house), Vec::<Value>::new());
    super::approval(place, "{}");
    let vpc = born(house, "thing", "vpc", &[&account], json!({}));
    assert_eq!(get(house, &vpc)["tags"]["cost"]["value"], "c7");
    assert_eq!(done(place).len(), 1, "only the child was made");
    let path = format!("/api/v1/resources/{account}");
    let held = api.call("DELETE", &path, &[], "").problem(409);
    assert_eq!(held["dependencies"][0]["kind"], "child", "{held}");
    assert_eq!(held["reason"], "Dependencies exist");
    ends(house, &accepted(&act(&api, &vpc, "destroy")), "succeeded");
    assert_eq!(api.call("DELETE", &path, &[], "").status, 204);
    api.get(&path).problem(404);
    // It has no manager, and one that does cannot be abstract.
    let wrong = place.write(
        "wrong.yaml",
        "kind: Template\nname: odd\ntype: odd\nversion: 1.0.0\nabstract: true\nmanager: command\n",
    );
    let told = place.run(&["apply", "-f", &wrong.display().to_string()]);
    assert_eq!(told.code, 1, "{told:?}");
    says(&told.all(), &["abstract template has no manager"]);
}

/// Somebody else's: known with its outputs, used, never changed or destroyed from here.
fn registered_resources(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    place.ok(&[
        "resources",
        "register",
        "--type",
        "thing",
        "--name",
        "legacy",
        "--env",
        "dev",
        "--external-id",
        "arn:7",
        "--output",
        "note=old",
        "--secret",
        "password=hush-hush",
    ]);
    let id = text(&place.json(&["resources", "get", "legacy"]), "id");
    is(house, &id, "provisioned/done", "Active");
    let seen = get(house, &id);
    assert_eq!((&seen["keptBy"], &seen["externalId"]), (&json!("external"), &json!("arn:7")));
    assert_eq!((&seen["outputs"]["note"], &seen["outputs"]["password"]), (&json!("old"), &Value::Null));
    let twice = json!({ "type": "thing", "name": "other", "environment": "dev", "externalId": "arn:7" });
    let known = api.post("/api/v1/registrations", &twice).problem(409);
    says(&text(&known, "detail"), &["arn:7", &id]);

    let linked = json!({ "type": "thing", "reference": { "mode": "existing", "id": id } });
    let score =
        Score::new("shop").with("old", linked).thing("db", json!({ "note": "with ${resources.old.note}" }));
    assert_eq!(served(&place.deploy(&score.text()), "old"), ("link".into(), id.clone()));
    assert_eq!(done(place), ["create with old"]);
    assert_eq!(place.outputs("shop", true)["old"]["password"], "hush-hush");
    let never = act(&api, &id, "destroy").problem(409);
    says(&text(&never, "detail"), &["not Conductor's to destroy"]);
    let used = api.call("DELETE", &format!("/api/v1/resources/{id}"), &[], "").problem(409);
    assert_eq!(used["dependencies"].as_array().unwrap().len(), 2, "{used}");
    // It is nothing to look at, and a teardown leaves it.
    assert_eq!(place.json(&["drift", "check", "--env", "dev"]), json!([]));
    place.ok(&["destroy", "--env", "dev", "--yes"]);
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(done(place), ["create with old", "delete with old"]);
    place.ok(&["resources", "delete", &id, "--yes"]);
    api.get(&format!("/api/v1/resources/{id}")).problem(404);
}

/// What is said of a resource can be said anew; who owns it can change.
fn what_is_said_of_it(house: &House) {
    let (place, api) = (&house.place, house.api());
    things(place, "");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    let patch = |api: &Api, body: Value| {
        let path = format!("/api/v1/resources/{id}");
        api.call("PATCH", &path, &[("content-type", "application/json")], body.to_string())
    };
    let reply = patch(&api, json!({ "owner": "ada", "labels": { "a": "1" } }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    patch(&api, json!({ "team": "net", "labels": { "b": "2" } }));
    let seen = get(house, &id);
    assert_eq!((&seen["owner"], &seen["team"]), (&json!("ada"), &json!("net")));
    assert_eq!(seen["labels"], json!({ "a": "1", "b": "2" }));
    patch(&somebody(house, "read", "rosa"), json!({ "owner": "rosa" })).problem(403);
    says(&audit(house), &["resource.described"]);
    assert_eq!(done(place), ["create vpc"], "nothing was run");
}

stories!(children_inherit what_a_template_asks_of_parents a_parent_in_the_making abstract_resources
    registered_resources what_is_said_of_it);
