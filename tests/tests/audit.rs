//! The audit trail: who did what for which request, what was before and after, and that nobody meddled with it.

use std::collections::BTreeSet;

use conductor_tests::{House, Score, Shape, Told, quick, seconds};
use serde_json::{Value, json};

fn on_both(story: impl Fn(Shape)) {
    story(Shape::Up { workers: 0 });
    if !quick() {
        story(Shape::FleetPostgres { servers: 1, workers: 1 });
    }
}

fn lived_in(shape: Shape) -> House {
    let house = House::new(shape);
    house.place.apply_things();
    house.place.deploy(&Score::new("web").thing("db", json!({ "note": "a" })).text());
    house
}

fn verified(house: &House) -> Told {
    house.place.run(&["audit", "verify", "-o", "json"])
}

#[track_caller]
fn is_whole(house: &House) {
    let told = verified(house);
    assert_eq!(told.code, 0, "{told:?}");
    assert_eq!(told.json()["intact"], true);
    assert!(told.json()["entries"].as_u64().unwrap() > 3, "{told:?}");
}

#[track_caller]
fn is_broken(house: &House, what: &str) {
    let told = verified(house);
    assert_eq!(told.code, 1, "{told:?}");
    assert_eq!(told.json()["intact"], false);
    let broken = told.json()["broken"].as_str().unwrap_or_default().to_owned();
    assert!(broken.contains(what), "`{broken}` does not say `{what}`");
}

#[test]
fn every_entry_has_its_actor_its_request_and_what_was_before_and_after() {
    on_both(|shape| {
        let house = lived_in(shape);
        let api = house.api();
        let document = |template: &str| json!({ "document": { "kind": "Rule", "name": "r", "template": template, "match": { "type": "thing" } } });
        let headers = [("content-type", "application/json"), ("x-request-id", "pipeline-17")];
        for template in ["thing", "thing@1.0.0"] {
            let applied = api.call("POST", "/api/v1/catalog", &headers, document(template).to_string());
            assert_eq!(applied.status, 200, "{}", applied.text);
        }
        let list = |more: &[&str]| {
            let list = house.place.json(&[&["audit", "list"], more].concat());
            list.as_array().unwrap().clone()
        };
        let applied = list(&["--kind", "catalogue.applied", "--limit", "2"]);
        assert_eq!(applied.len(), 2);
        assert!(applied[0]["position"].as_i64() > applied[1]["position"].as_i64(), "newest first");
        for entry in &applied {
            assert_eq!((&entry["actor"], &entry["requestId"]), (&json!("admin"), &json!("pipeline-17")));
            assert_eq!(entry["data"]["name"], "r");
        }
        assert_eq!(applied[1]["data"]["before"], Value::Null);
        assert_eq!(applied[0]["data"]["before"]["template"], "thing");
        assert_eq!(applied[0]["data"]["after"]["template"], "thing@1.0.0");

        // A resource's parameters, too; a request that brings no id, or an unfit one, is given one.
        house.place.deploy(&Score::new("web").thing("db", json!({ "note": "b" })).text());
        let changed = list(&["--kind", "resource.updated"]);
        assert_eq!(changed[0]["data"]["before"]["note"], "a", "{changed:?}");
        assert_eq!(changed[0]["data"]["after"]["note"], "b");
        let resource = changed[0]["resource"].as_str().unwrap();
        let life: BTreeSet<String> = list(&["--resource", resource])
            .iter()
            .map(|entry| entry["kind"].as_str().unwrap().to_owned())
            .collect();
        assert!(life.contains("resource.created") && life.contains("resource.updated"), "{life:?}");
        let accepted = list(&["--kind", "change.accepted"]);
        let ids: BTreeSet<&str> = accepted.iter().filter_map(|entry| entry["requestId"].as_str()).collect();
        assert_eq!(ids.len(), accepted.len(), "each request has an id of its own: {accepted:?}");
        assert!(list(&["--actor", "nobody"]).is_empty());
        assert!(list(&["--since", "1h"]).len() > 5);
        is_whole(&house);
    });
}

#[test]
fn secrets_are_not_in_the_trail() {
    on_both(|shape| {
        let house = lived_in(shape);
        house.place.apply(
            "demo",
            "kind: Integration\nname: demo\nprovider: demo\nvariables: { TOKEN: hunter2-hunter2 }\n---\n\
             kind: Application\nname: web\nrepository: https://ann:hunter2-hunter2@git.example/web\n",
        );
        house.place.deploy(&Score::new("shy").thing("db", json!({ "secret": true })).text());
        let trail = house.place.ok(&["audit", "export"]).stdout;
        assert!(trail.contains("git.example/web") && !trail.contains("hunter2-hunter2"));
        let password = house.place.outputs("shy", true)["db"]["password"].as_str().unwrap().to_owned();
        assert!(!trail.contains(&password));
    });
}

/// Does something to the database, sees it found, and undoes it.
fn found(house: &House, deed: &[&str], undo: &[&str], what: &str) {
    is_whole(house);
    for statement in deed {
        house.execute(statement);
    }
    is_broken(house, what);
    for statement in undo {
        house.execute(statement);
    }
    is_whole(house);
}

#[test]
fn whoever_meddles_with_the_database_is_found_out() {
    on_both(|shape| {
        let house = lived_in(shape);
        is_whole(&house);
        let third = "(SELECT event_id FROM audit_chain WHERE position = 3)";
        let last = "(SELECT max(position) FROM audit_chain)";

        // A row is changed.
        for column in ["actor", "kind"] {
            let more = format!("UPDATE events SET {column} = {column} || 'x' WHERE id = {third}");
            let back = format!(
                "UPDATE events SET {column} = substr({column}, 1, length({column}) - 1) WHERE id = {third}"
            );
            found(&house, &[&more], &[&back], "entry 3 (");
        }
        let later = format!("UPDATE events SET created_at = created_at + 1 WHERE id = {third}");
        let back = format!("UPDATE events SET created_at = created_at - 1 WHERE id = {third}");
        found(&house, &[&later], &[&back], "is not what was sealed");

        // A row is taken away: the event, its place, or both at the end, as if it had never been.
        let keep = format!("CREATE TABLE kept_event AS SELECT * FROM events WHERE id = {third}");
        let drop = format!("DELETE FROM events WHERE id = {third}");
        let back = ["INSERT INTO events SELECT * FROM kept_event", "DROP TABLE kept_event"];
        found(&house, &[&keep, &drop], &back, "the event of entry 3 is missing");
        let keep = "CREATE TABLE kept_place AS SELECT * FROM audit_chain WHERE position = 3";
        let back = ["INSERT INTO audit_chain SELECT * FROM kept_place", "DROP TABLE kept_place"];
        found(&house, &[keep, "DELETE FROM audit_chain WHERE position = 3"], &back, "entry 3 is missing");
        let cut = [
            &format!("CREATE TABLE kept_place AS SELECT * FROM audit_chain WHERE position = {last}"),
            "CREATE TABLE kept_event AS SELECT * FROM events WHERE id = (SELECT event_id FROM kept_place)",
            "DELETE FROM audit_chain WHERE event_id = (SELECT event_id FROM kept_place)",
            "DELETE FROM events WHERE id = (SELECT id FROM kept_event)",
        ];
        let back = [
            "INSERT INTO events SELECT * FROM kept_event",
            "INSERT INTO audit_chain SELECT * FROM kept_place",
            "DROP TABLE kept_event",
            "DROP TABLE kept_place",
        ];
        found(&house, &cut, &back, "are missing");

        // A row is put in, as one that says to be in the chain.
        let id = if house.database.is_some() {
            "'\\x00112233445566778899aabbccddeeff'"
        } else {
            "x'00112233445566778899aabbccddeeff'"
        };
        let forged = |chain: &str| {
            format!(
                "INSERT INTO events (id, organisation_id, kind, actor, document, chain, created_at, seal)
                 SELECT {id}, organisation_id, kind, 'mallory', document, {chain}, created_at, seal FROM events
                 WHERE id = {third}"
            )
        };
        let back = format!("DELETE FROM events WHERE id = {id}");
        found(&house, &[&forged("chain")], &[&back], "was put in by somebody else");
        // Or as one that waits for its place, which it is given, and where it is seen for what it is.
        house.execute(&forged("NULL"));
        is_broken(&house, "was put in by somebody else");
    });
}

#[test]
fn an_export_is_proof_when_what_it_tells_of_is_gone() {
    on_both(|shape| {
        let house = lived_in(shape);
        house.place.destroy("web");
        let trail = house.place.ok(&["audit", "export", "--format", "jsonl"]).stdout;
        let verify = |name: &str, text: &str| {
            let file = house.place.write(name, text).display().to_string();
            house.place.run(&["audit", "verify", "--file", &file, "-o", "json"])
        };
        let lines: Vec<&str> = trail.lines().collect();
        let told = verify("trail.jsonl", &trail);
        assert_eq!(told.code, 0, "{told:?}");
        assert_eq!(told.json()["entries"], lines.len());
        let array = house.place.ok(&["audit", "export", "--format", "json"]).stdout;
        assert_eq!(verify("trail.json", &array).code, 0);
        let tells = |line: &&str| line.contains("resource.destroyed") && line.contains("\"name\":\"web-db\"");
        let destroyed = lines.iter().position(tells).expect("its end");
        let receipt: Value = serde_json::from_str(lines[destroyed]).unwrap();
        assert_eq!(receipt["data"]["before"]["note"], "a", "{receipt}");

        // Without the database's own copy.
        house.execute("DELETE FROM events WHERE kind = 'resource.destroyed'");
        is_broken(&house, "is missing");
        assert_eq!(verify("trail.jsonl", &trail).code, 0);

        let without = [&lines[..destroyed], &lines[destroyed + 1..]].concat().join("\n");
        let honest = verify("short.jsonl", &without);
        assert_eq!(honest.code, 0, "a part may be left out: places tell which, {honest:?}");
        let mut lied = lines.clone();
        let lie = lines[destroyed].replace("\"actor\":\"conductor\"", "\"actor\":\"mallory\"");
        assert_ne!(lie, lines[destroyed]);
        lied[destroyed] = &lie;
        let told = verify("lied.jsonl", &lied.join("\n"));
        assert_eq!(told.code, 1, "{told:?}");
        let place = format!("entry {} (", destroyed + 1);
        assert!(told.json()["broken"].as_str().unwrap().starts_with(&place), "{told:?}");
        let mut swapped = lines.clone();
        swapped.swap(1, 2);
        assert_eq!(verify("swapped.jsonl", &swapped.join("\n")).code, 1);
    });
}

#[test]
fn servers_that_seal_at_the_same_time_keep_one_chain() {
    let shape = match quick() {
        true => Shape::Up { workers: 0 },
        false => Shape::FleetPostgres { servers: 2, workers: 0 },
    };
    let house = House::new(shape);
    let servers = house.fleet.urls.len();
    let made = 20;
    std::thread::scope(|scope| {
        for number in 0..4 {
            let api = house.api_at(number % servers);
            scope.spawn(move || {
                for turn in 0..made {
                    let token = json!({ "name": format!("t-{number}-{turn}"), "role": "read" });
                    assert_eq!(api.post("/api/v1/tokens", &token).status, 201);
                    let report = api.get("/api/v1/audit/verify").json();
                    assert_eq!(report["intact"], true, "{report}");
                }
            });
        }
    });
    is_whole(&house);
    let entries = house.count("SELECT count(*) FROM audit_chain");
    assert!(entries >= 4 * made);
    assert_eq!(house.count("SELECT max(position) FROM audit_chain"), entries);
    assert_eq!(house.count("SELECT count(*) FROM events WHERE chain IS NOT NULL"), entries);
    let unsealed = || house.count("SELECT count(*) FROM events WHERE chain IS NULL") == 0;
    conductor_tests::eventually("all of it is sealed", seconds(20), || unsealed().then_some(()));
}
