//! The two diagrams as tables: every move they show happens, and every other one is refused: over HTTP with what can be
//! done instead, and by the database itself.

use conductor_tests::House;
use serde_json::{Value, json};

use super::{accepted, act, becomes, ends, get, is, made, made_soon, says, stories, things};

const STATES: [&str; 4] = ["provision", "provisioned", "destroy", "destroyed"];
const STATUSES: [&str; 9] =
    ["ready", "queued", "approval_pending", "pending", "in_progress", "done", "error", "rejected", "unknown"];

/// The one word for both.
fn phase(state: &str, status: &str) -> &'static str {
    match (state, status) {
        (_, "error") => "Failed",
        ("provision", "in_progress") => "Provisioning",
        ("provision", _) => "Pending",
        ("provisioned", "queued" | "in_progress") => "Updating",
        ("provisioned", _) => "Active",
        ("destroy", _) => "PendingDeletion",
        _ => "Deleted",
    }
}

/// What can be done, besides looking.
fn actions(state: &str, status: &str) -> &'static [&'static str] {
    match (state, status) {
        (_, "approval_pending") => &["approve", "reject", "cancel"],
        (_, "queued" | "in_progress") => &["cancel"],
        ("provision", "rejected") => &["recreate", "destroy"],
        ("provision", _) => &["retry", "recreate", "destroy"],
        ("provisioned", "error" | "unknown") => &["retry", "update", "destroy"],
        ("provisioned", _) => &["update", "destroy"],
        ("destroy", "pending") => &["undelete", "destroy"],
        ("destroy", _) => &["retry", "destroy"],
        _ => &["recreate", "delete"],
    }
}

fn put(house: &House, state: &str, status: &str) {
    let place = match state {
        "destroy" => "doomed",
        "destroyed" => "gone",
        _ => "live",
    };
    house.execute(&format!(
        "UPDATE resources SET prev_state = '{state}', state = '{state}', place = '{place}', status = '{status}'
         WHERE name = 'vpc'"
    ));
}

/// In each of the thirty-six places a resource can be in, everything that is not offered is refused.
fn what_is_not_offered_is_refused(house: &House) {
    let api = house.api();
    things(&house.place, "");
    let id = made(house, "vpc", json!({ "note": "vpc" }));
    let path = format!("/api/v1/resources/{id}");
    let mut refusals = 0;
    for state in STATES {
        for status in STATUSES {
            put(house, state, status);
            let seen = get(house, &id);
            let offered = actions(state, status);
            assert_eq!(seen["phase"], phase(state, status), "{state}/{status}");
            assert_eq!(seen["availableActions"], json!(offered), "{state}/{status}");
            for action in ["destroy", "recreate", "retry", "delete", "update", "undelete"] {
                if offered.contains(&action) {
                    continue;
                }
                let reply = match action {
                    "delete" => api.call("DELETE", &path, &[], ""),
                    "update" => api.post(&format!("{path}/proposals"), &json!({ "set": { "note": "x" } })),
                    action => api.post(&format!("{path}/{action}"), &json!({})),
                };
                // What is under way can be proposed to change, once it is there: a proposal touches nothing.
                if action == "update" && matches!(state, "provision" | "provisioned") && reply.status == 201 {
                    let proposal = super::text(&reply.json(), "id");
                    api.post(&format!("/api/v1/proposals/{proposal}/discard"), &json!({}));
                    continue;
                }
                let problem = reply.problem(409);
                assert_eq!(
                    problem["allowedActions"],
                    json!(offered),
                    "{action} in {state}/{status}: {problem}"
                );
                refusals += 1;
            }
        }
    }
    assert!(refusals > 120, "{refusals}");
    assert_eq!(house.place.world.runs().len(), 1, "nothing was run by any of it");
    put(house, "provisioned", "done");
}

/// The database knows the moves by itself.
fn the_database_refuses_other_moves(house: &House) {
    things(&house.place, "");
    made(house, "vpc", json!({ "note": "vpc" }));
    let allowed = [
        ("provision", "provisioned"),
        ("provision", "destroy"),
        ("provision", "destroyed"),
        ("provisioned", "destroy"),
        ("destroy", "provisioned"),
        ("destroy", "provision"),
        ("destroy", "destroyed"),
        ("destroyed", "provision"),
    ];
    for from in STATES {
        for to in STATES {
            put(house, from, "done");
            let place = if to == "destroy" { "doomed" } else { "live" };
            let place = if to == "destroyed" { "gone" } else { place };
            let said = house.refusal(&format!(
                "UPDATE resources SET prev_state = state, state = '{to}', place = '{place}' WHERE name = 'vpc'"
            ));
            let may = from == to || allowed.contains(&(from, to));
            assert_eq!(said.is_none(), may, "{from} to {to}: {said:?}");
            if let Some(said) = said {
                says(&said.to_lowercase(), &["check"]);
            }
        }
    }
    put(house, "provisioned", "done");
    let words = house.refusal("UPDATE resources SET prev_state = state, status = 'fine' WHERE name = 'vpc'");
    assert!(words.is_some(), "a status that is none");

    // Operations and changes that are over stay over; a change may only begin again as a whole.
    let statuses = [
        "blocked",
        "approval_pending",
        "queued",
        "in_progress",
        "succeeded",
        "failed",
        "cancelled",
        "timed_out",
    ];
    let begun = ["queued", "approval_pending", "succeeded", "cancelled"];
    let of_operations = |from: &str| -> &[&str] {
        match from {
            "blocked" => &begun,
            "approval_pending" => &["queued", "cancelled"],
            "queued" => &["in_progress", "succeeded", "failed", "cancelled"],
            "in_progress" => &["queued", "succeeded", "failed", "cancelled", "timed_out"],
            _ => &[],
        }
    };
    every_move(house, "operations", &statuses, &of_operations);
    let statuses =
        ["pending", "approval_pending", "in_progress", "succeeded", "failed", "cancelled", "timed_out"];
    let of_changes = |from: &str| -> &[&str] {
        match from {
            "pending" => {
                &["in_progress", "approval_pending", "succeeded", "failed", "cancelled", "timed_out"]
            }
            "approval_pending" => &["in_progress", "pending", "failed", "cancelled"],
            "in_progress" => &["approval_pending", "succeeded", "failed", "cancelled", "timed_out"],
            "failed" | "cancelled" | "timed_out" => &["pending"],
            _ => &[],
        }
    };
    every_move(house, "changes", &statuses, &of_changes);
}

#[track_caller]
fn every_move<'m>(house: &House, table: &str, statuses: &[&str], allowed: &dyn Fn(&str) -> &'m [&'m str]) {
    for from in statuses {
        for to in statuses {
            // Taken back at once: somebody may be at work.
            let moved = format!("UPDATE {table} SET prev_status = '{from}', status = '{to}'");
            let said = house.refusal(&format!("BEGIN; {moved}; ROLLBACK"));
            let may = from == to || allowed(from).contains(to);
            assert_eq!(said.is_none(), may, "{table}: {from} to {to}: {said:?}");
        }
    }
}

/// Both diagrams, walked along every arrow.
fn every_arrow_is_walked(house: &House) {
    let (place, api) = (&house.place, house.api());
    let world = &place.world;
    things(place, "");
    // Pending, Provisioning, Failed; retried: Provisioning, Active.
    world.hold();
    world.trouble("broken", "no");
    let id = made_soon(&api, "vpc", json!({ "note": "vpc" }));
    is(house, &id, "provision/in_progress", "Provisioning");
    world.let_go();
    is(house, &id, "provision/error", "Failed");
    world.hold();
    let change = accepted(&act(&api, &id, "retry"));
    is(house, &id, "provision/in_progress", "Provisioning");
    world.calm("broken");
    world.let_go();
    ends(house, &change, "succeeded");
    is(house, &id, "provisioned/done", "Active");
    // Active, Updating, Failed; retried: Updating, Active.
    let update = |note: &str| {
        let body = json!({ "set": { "note": note } });
        let proposal = api.post(&format!("/api/v1/resources/{id}/proposals"), &body).json();
        let path = format!("/api/v1/proposals/{}/merge", super::text(&proposal, "id"));
        accepted(&api.call("POST", &path, &[], ""))
    };
    world.hold();
    world.trouble("broken", "no");
    update("two");
    is(house, &id, "provisioned/in_progress", "Updating");
    world.let_go();
    is(house, &id, "provisioned/error", "Failed");
    world.hold();
    world.calm("broken");
    accepted(&act(&api, &id, "retry"));
    is(house, &id, "provisioned/in_progress", "Updating");
    world.let_go();
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(get(house, &id)["outputs"]["note"], "two");
    // Active, PendingDeletion, Failed; tried again: PendingDeletion, Deleted.
    world.hold();
    world.trouble("jammed", "no");
    accepted(&act(&api, &id, "destroy"));
    is(house, &id, "destroy/in_progress", "PendingDeletion");
    world.let_go();
    is(house, &id, "destroy/error", "Failed");
    world.calm("jammed");
    ends(house, &accepted(&act(&api, &id, "destroy")), "succeeded");
    is(house, &id, "destroyed/done", "Deleted");
    // Deleted, and made again; Failed, and cleaned up.
    world.trouble("broken", "no");
    accepted(&act(&api, &id, "recreate"));
    is(house, &id, "provision/error", "Failed");
    world.calm("broken");
    ends(house, &accepted(&act(&api, &id, "destroy")), "succeeded");
    is(house, &id, "destroyed/done", "Deleted");
    ends(house, &accepted(&act(&api, &id, "recreate")), "succeeded");
    becomes(house, &id, "provisioned/done");
    // A destruction that is called off while it waits: Active again.
    world.hold();
    let change = accepted(&act(&api, &id, "destroy"));
    is(house, &id, "destroy/in_progress", "PendingDeletion");
    let early = act(&api, &id, "recreate").problem(409);
    assert_eq!(early["allowedActions"], json!(["cancel"]));
    world.let_go();
    ends(house, &change, "succeeded");
    assert_eq!(get(house, &id)["outputs"], Value::Object(serde_json::Map::new()));
}

/// What is offered can be done by its name.
fn actions_by_name(house: &House) {
    let place = &house.place;
    super::things(place, "");
    let id = super::served(
        &place.deploy(&conductor_tests::Score::new("shop").thing("db", json!({ "note": "x" })).text()),
        "db",
    )
    .1;
    let act = |action: &str, more: &[&str]| {
        place.run(&[&["resources", "act", &id, action, "--yes"], more].concat())
    };
    for (action, words) in
        [("dance", "can do: update, destroy"), ("update", "proposals create"), ("cancel", "conductor cancel")]
    {
        let told = act(action, &[]);
        assert_eq!(told.code, 2, "{told:?}");
        super::says(&told.all(), &[action, words]);
    }
    assert_eq!(act("protect", &["--dry-run"]).code, 2);
    assert_eq!(act("protect", &[]).code, 0);
    super::says(&act("destroy", &[]).all(), &["protected"]);
    assert_eq!(act("unprotect", &[]).code, 0);
    place.json(&["destroy", "--app", "shop", "--env", "dev", "--yes"]);
    is(house, &id, "destroyed/done", "Deleted");
    let shown = act("recreate", &["--dry-run"]);
    assert_eq!((shown.code, place.world.things().len()), (0, 0), "{shown:?}");
    assert_eq!(act("recreate", &[]).code, 0);
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(act("destroy", &[]).code, 0);
    is(house, &id, "destroyed/done", "Deleted");
    assert_eq!(act("delete", &[]).code, 0);
}

stories!(actions_by_name what_is_not_offered_is_refused the_database_refuses_other_moves every_arrow_is_walked);
