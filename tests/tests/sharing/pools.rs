//! Ready ones, made ahead: claimed at once, kept at their number, and what becomes of those that are given back.

use conductor_tests::{House, Place, eventually, seconds};
use serde_json::{Value, json};

use super::{
    asked, db, get, item, leave, made, on, ran, reason, refused, says, served, steps, stories, template,
    thing, users, wants,
};

/// Waits until a pool has so many ready ones and nothing is under way.
#[track_caller]
pub(super) fn ready(house: &House, name: &str, count: u64) -> Value {
    let mut last = Value::Null;
    let began = std::time::Instant::now();
    while began.elapsed() < seconds(20) {
        last = house.api().get(&format!("/api/v1/pools/{name}")).json();
        if last["ready"] == count && last["creating"] == 0 {
            return last;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("pool {name} has not {count} ready ones: {last}");
}

/// A pool of things in `dev`.
#[track_caller]
fn pool(place: &Place, name: &str, words: &str) {
    let text = format!("kind: Pool\nname: {name}\nenvironment: dev\ntemplate: thing@1.0.0\n{words}");
    place.apply(&format!("pool-{name}"), &text);
}

fn from(application: &str, pool: &str) -> String {
    wants(application, json!({ "type": "thing", "pool": pool }))
}

#[track_caller]
fn claimed(place: &Place, score: &str) -> String {
    let (action, id) = db(place, score);
    assert_eq!(action, "claim");
    id
}

#[track_caller]
fn is_gone(house: &House, id: &str) {
    eventually("it is gone", seconds(20), || (get(house, id)["phase"] == "Deleted").then_some(()));
}

fn used_once(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "warm", "size: 2\nparameters: { note: warm }\n");
    let pool = ready(house, "warm", 2);
    assert_eq!((&pool["size"], &pool["claimed"], &pool["failed"]), (&json!(2), &json!(0), &json!(0)));
    assert_eq!(pool["onRelease"], "recycle");
    let members: Vec<Value> = place.resources();
    for member in &members {
        assert_eq!((&member["keptBy"], &member["parameters"]["note"]), (&json!("pool"), &json!("warm")));
        let name = member["name"].as_str().unwrap();
        assert!(name.starts_with("thing-dev-") && name.len() == 18, "{name}");
    }
    // What is ready is nobody's to share.
    let other = made(place, &wants("app-s", thing("warm", json!({ "sharing": "always" }))));
    leave(place, "app-s", "dev");
    is_gone(house, &other);

    let plan = on(place, "explain", "dev", &from("app-a", "warm"));
    let document = place.deploy(&from("app-a", "warm"));
    let (action, id) = served(&document, "db");
    assert_eq!(action, "claim", "{document}");
    let candidate = &item(&plan, "db")["candidates"][0];
    assert_eq!((&candidate["resource"], &candidate["chosen"]), (&json!(id), &json!(true)), "{plan}");
    says(&reason(&document, "db"), &["pool `warm`", "ready"]);
    assert!(members.iter().any(|member| member["id"] == id.as_str()), "it was not there before");
    assert_eq!(
        place.world.runs().iter().filter(|run| run.resource == id).count(),
        1,
        "made ahead, and only once"
    );
    assert_eq!(place.outputs("app-a", false)["db"]["note"], "warm");
    assert_eq!(users(house, &id), ["app-a"]);
    assert_eq!(db(place, &from("app-a", "warm")), ("none".into(), id.clone()), "it keeps what it has");
    // Its place is filled again.
    let pool = ready(house, "warm", 2);
    assert_eq!((&pool["claimed"], &pool["claims"], &pool["onDemand"]), (&json!(1), &json!(1), &json!(0)));

    let gone = leave(place, "app-a", "dev");
    assert_eq!(served(&gone, "db"), ("remove".into(), id.clone()), "{gone}");
    is_gone(house, &id);
    let next = claimed(place, &from("app-b", "warm"));
    assert_ne!(next, id, "used once, it is not handed out again");
    assert_eq!(ready(house, "warm", 2)["claimed"], 1);
}

fn made_again_under_the_same_record(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "warm", "size: 1\nmax: 1\nonRelease: reset\nparameters: { note: warm }\n");
    ready(house, "warm", 1);
    let id = claimed(place, &from("app-a", "warm"));
    leave(place, "app-a", "dev");
    ready(house, "warm", 1);
    let steps: Vec<String> =
        place.world.runs().into_iter().map(|run| format!("{} {}", run.step, run.resource)).collect();
    assert_eq!(steps, [format!("create {id}"), format!("delete {id}"), format!("create {id}")]);
    assert_eq!(claimed(place, &from("app-b", "warm")), id);
    assert_eq!(users(house, &id), ["app-b"]);
    // A record that somebody deleted is not taken up again.
    pool(place, "warm", "size: 0\nmax: 1\nonRelease: reset\nparameters: { note: warm }\n");
    leave(place, "app-b", "dev");
    place.ok(&["resources", "delete", &id, "--yes"]);
    pool(place, "warm", "size: 1\nmax: 1\nonRelease: reset\nparameters: { note: warm }\n");
    ready(house, "warm", 1);
    assert_ne!(claimed(place, &from("app-a", "warm")), id);
}

fn handed_on_as_it_is(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "warm", "size: 1\nmax: 1\nonRelease: keep\nparameters: { note: warm }\n");
    ready(house, "warm", 1);
    let id = claimed(place, &from("app-a", "warm"));
    refused(house, &from("app-b", "warm"), &["pool `warm`", "1 members"]);
    let gone = leave(place, "app-a", "dev");
    assert_eq!(served(&gone, "db"), ("release".into(), id.clone()));
    says(&reason(&gone, "db"), &["back to its pool"]);
    ready(house, "warm", 1);
    assert_eq!(claimed(place, &from("app-b", "warm")), id);
    ran(place, json!({ "create": 1 }));
}

/// A shared pool spreads those who come over its members.
fn shared_by_several(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "common", "size: 2\nsharingPolicy: shared\nparameters: { note: common }\n");
    ready(house, "common", 2);
    let ids = ["app-a", "app-b"].map(|application| claimed(place, &from(application, "common")));
    assert_ne!(ids[0], ids[1], "the least used one comes first");
    // Time for the pool to do something silly.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let more = ["app-c", "app-d"].map(|application| claimed(place, &from(application, "common")));
    assert_eq!(more, ids, "two ready ones serve four");
    let seen = ready(house, "common", 2);
    assert_eq!((&seen["claimed"], &seen["claims"]), (&json!(2), &json!(4)));
    assert_eq!(users(house, &ids[0]), ["app-a", "app-c"]);
    leave(place, "app-b", "dev");
    assert_eq!(claimed(place, &from("app-e", "common")), ids[1]);
    ran(place, json!({ "create": 2 }));
    // Written otherwise, as many are made ahead that way; what is used stays as it is.
    pool(place, "common", "size: 2\nsharingPolicy: shared\nparameters: { note: other }\n");
    eventually("others are made", seconds(20), || (steps(place)["create"] == 4).then_some(()));
    ready(house, "common", 4);
    assert_eq!(get(house, &claimed(place, &from("app-f", "common")))["parameters"]["note"], "other");
    ran(place, json!({ "create": 4 }));
}

/// A shared pool whose members are full makes more of them.
fn shared_by_so_many(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "common", "size: 1\nsharingPolicy: shared\nmaxConsumers: 2\nparameters: { note: common }\n");
    ready(house, "common", 1);
    let first = claimed(place, &from("app-a", "common"));
    assert_eq!(claimed(place, &from("app-b", "common")), first);
    eventually("another one is made", seconds(20), || (steps(place)["create"] == 2).then_some(()));
    ready(house, "common", 1);
    assert_ne!(claimed(place, &from("app-c", "common")), first);
}

fn serving_unasked(house: &House) {
    let place = &house.place;
    template(place, "thing", "    size: { type: string, default: small }\n");
    pool(place, "warm", "size: 1\nauto: true\nparameters: { note: plain }\n");
    ready(house, "warm", 1);
    let plain = |application: &str, params: Value| wants(application, asked("thing", params, json!({})));
    let id = claimed(place, &plain("app-a", json!({ "note": "plain" })));
    assert_eq!(db(place, &plain("app-a", json!({ "note": "plain" }))), ("none".into(), id));
    ready(house, "warm", 1);
    claimed(place, &plain("app-b", json!({ "note": "plain", "size": "small" })));
    ready(house, "warm", 1);
    // Anything else is somebody's own, and a name is a name.
    made(place, &plain("app-c", json!({ "note": "plain", "size": "large" })));
    made(place, &plain("app-d", json!({ "note": "fancy" })));
    made(place, &wants("app-e", thing("plain", json!({ "sharing": "by-name" }))));
    // Who has something of their own keeps it, whatever pools there are.
    let own = made(place, &plain("app-f", json!({ "note": "later" })));
    pool(place, "later", "size: 1\nauto: true\nparameters: { note: later }\n");
    ready(house, "later", 1);
    assert_eq!(db(place, &plain("app-f", json!({ "note": "later" }))), ("none".into(), own));
}

/// No more than there may be; where there is no such number, one is made on demand.
fn none_is_ready(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "small", "size: 1\nmax: 1\nparameters: { note: small }\n");
    pool(place, "empty", "size: 0\nparameters: { note: empty }\n");
    ready(house, "small", 1);
    claimed(place, &from("app-a", "small"));
    let full = ["pool `small` has none ready", "1 members", "raise the pool's `max`"];
    refused(house, &from("app-b", "small"), &full);
    let document = place.deploy(&from("app-b", "empty"));
    assert_eq!(served(&document, "db").0, "create");
    says(&reason(&document, "db"), &["pool `empty` has none ready"]);
    let id = served(&document, "db").1;
    assert_eq!(get(house, &id)["parameters"]["note"], "empty", "as the pool makes them");
    let pool = place.json(&["pools", "get", "empty"]);
    assert_eq!((&pool["claimed"], &pool["onDemand"], &pool["claims"]), (&json!(1), &json!(1), &json!(0)));
    leave(place, "app-b", "dev");
    is_gone(house, &id);
    // Given back, there is one for the next.
    leave(place, "app-a", "dev");
    ready(house, "small", 1);
    claimed(place, &from("app-b", "small"));
}

fn when_nobody_asks(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "warm", "size: 3\nmin: 1\nidle: 2s\nparameters: { note: warm }\n");
    eventually("it shrinks", seconds(20), || (steps(place).get("delete") == Some(&json!(2))).then_some(()));
    ready(house, "warm", 1);
    ran(place, json!({ "create": 3, "delete": 2 }));
    // Somebody asks: as many as before are needed again.
    let id = claimed(place, &from("app-a", "warm"));
    eventually("it grows", seconds(20), || (steps(place)["create"] == 6).then_some(()));
    // What somebody has is not taken away, however long nobody else asks.
    eventually("it shrinks again", seconds(20), || (steps(place)["delete"] == 4).then_some(()));
    let pool = ready(house, "warm", 1);
    assert_eq!(pool["claimed"], 1);
    assert_eq!(users(house, &id), ["app-a"]);
}

fn as_the_pool_is_written_now(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "warm", "size: 2\nparameters: { note: old }\n");
    ready(house, "warm", 2);
    let held = claimed(place, &from("app-a", "warm"));
    ready(house, "warm", 2);
    pool(place, "warm", "size: 1\nparameters: { note: new }\n");
    let notes = || {
        let mut notes: Vec<String> =
            place.world.things().values().map(|thing| thing["note"].as_str().unwrap().to_owned()).collect();
        notes.sort_unstable();
        notes
    };
    eventually("the old ones go", seconds(20), || (notes() == ["new", "old"]).then_some(()));
    let pool = ready(house, "warm", 1);
    assert_eq!((&pool["size"], &pool["claimed"]), (&json!(1), &json!(1)));
    assert_eq!(get(house, &held)["parameters"]["note"], "old", "what somebody has is left alone");
    assert_eq!(db(place, &from("app-a", "warm")), ("none".into(), held));
    assert_eq!(get(house, &claimed(place, &from("app-b", "warm")))["parameters"]["note"], "new");
}

/// What is ready goes with its pool; what somebody has is theirs alone.
fn given_up(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "warm", "size: 2\nparameters: { note: warm }\n");
    ready(house, "warm", 2);
    let held = claimed(place, &from("app-a", "warm"));
    ready(house, "warm", 2);
    place.ok(&["pools", "delete", "warm", "--yes"]);
    eventually("the ready ones go", seconds(20), || (place.world.things().len() == 1).then_some(()));
    assert_eq!(place.json(&["pools", "list"]), json!([]));
    assert_eq!(place.run(&["pools", "get", "warm"]).code, 6);
    assert_eq!(place.run(&["pools", "delete", "warm", "--yes"]).code, 6);
    let seen = get(house, &held);
    assert_eq!((&seen["phase"], &seen["keptBy"]), (&json!("Active"), &json!("consumers")));
    // Nobody is given what was claimed for one.
    for way in ["always", "shared"] {
        let other = made(place, &wants("app-b", thing("warm", json!({ "sharing": way }))));
        assert_ne!(other, held, "{way}");
        leave(place, "app-b", "dev");
    }
    refused(house, &from("app-a", "warm"), &["no pool `warm`"]);
    let gone = leave(place, "app-a", "dev");
    assert_eq!(served(&gone, "db"), ("remove".into(), held));
    house.is_empty();
}

/// What cannot be made is not tried for ever, and whoever claims hears why.
fn that_cannot_be_filled(house: &House) {
    let place = &house.place;
    place.apply_things();
    pool(place, "broken", "size: 2\nparameters: { note: broken, breaks: no room }\n");
    let failed = eventually("it gives up", seconds(20), || {
        let pool = ready(house, "broken", 0);
        (pool["failed"] == 2).then_some(pool)
    });
    assert_eq!((&failed["creating"], &failed["claimed"]), (&json!(0), &json!(0)));
    let told = place.deploy_in_vain(&from("app-a", "broken")).json();
    says(told["error"]["message"].as_str().unwrap(), &["no room"]);
    std::thread::sleep(seconds(2));
    assert_eq!(place.world.begun("create"), 3, "two ahead and one on demand");
}

/// The newest version, where the pool names none.
fn with_the_newest_version(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("pool", "kind: Pool\nname: warm\nenvironment: dev\ntemplate: thing\nsize: 1\n");
    ready(house, "warm", 1);
    let text = place.world.template("thing", "    colour: { type: string, default: red }\n");
    place.apply("newer", &text.replace("version: 1.0.0", "version: 1.1.0"));
    eventually("it is made anew", seconds(20), || {
        (steps(place).get("delete") == Some(&json!(1))).then_some(())
    });
    ready(house, "warm", 1);
    let id = claimed(place, &from("app-a", "warm"));
    let seen = get(house, &id);
    assert_eq!((&seen["templateVersion"], &seen["parameters"]["colour"]), (&json!("1.1.0"), &json!("red")));
}

stories!(
    up: used_once made_again_under_the_same_record handed_on_as_it_is shared_by_several shared_by_so_many
        serving_unasked none_is_ready when_nobody_asks as_the_pool_is_written_now given_up that_cannot_be_filled with_the_newest_version
);
