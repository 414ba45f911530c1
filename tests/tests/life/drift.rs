//! What somebody changed behind our back is found, told by attribute, and put right, taken over or let be: when somebody
//! says so, or by the environment's own terms.

use std::{fs, path::PathBuf};

use conductor_tests::{House, Place, Score, Shape, eventually, postgres, quick, resource, seconds, tofu};
use serde_json::{Value, json};

use super::{becomes, done, get, is, made, says, served, stories, text, things};

/// What a look finds.
#[track_caller]
fn look(place: &Place) -> Vec<Value> {
    place.json(&["drift", "check", "--env", "dev"]).as_array().expect("a list").clone()
}

/// The one that differs, and how: `path: recorded -> actual`.
#[track_caller]
fn found(place: &Place, id: &str) -> Vec<String> {
    let all = look(place);
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(all[0]["resource"], id);
    let told = |one: &Value| format!("{}: {} -> {}", text(one, "path"), one["recorded"], one["actual"]);
    all[0]["attributes"].as_array().unwrap().iter().map(told).collect()
}

#[track_caller]
fn policy(place: &Place, terms: &str) {
    place.apply("dev", &format!("kind: Environment\nname: dev\ntype: development\ndrift: {terms}\n"));
}

fn spoil(place: &Place, id: &str, outputs: Value) {
    fs::write(place.world.thing(id), outputs.to_string()).unwrap();
}

fn note(place: &Place, id: &str) -> Value {
    place.world.things().remove(id).unwrap_or_default()["note"].clone()
}

/// Changed, repaired; gone, made again. A look changes nothing.
fn repaired_by_command(house: &House) {
    let place = &house.place;
    things(place, "");
    let id = made(house, "db", json!({ "note": "x" }));
    assert_eq!(look(place), Vec::<Value>::new());
    assert_eq!(place.run(&["drift", "check", "--env", "dev", "--exit-code"]).code, 0);
    let early = place.run(&["drift", "repair", &id, "--yes"]);
    assert_eq!(early.code, 1, "{early:?}");
    says(&early.all(), &["shows no drift"]);

    spoil(place, &id, json!({ "note": "y", "place": "z" }));
    let paths = found(place, &id);
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert_eq!(paths[0], "outputs.note: \"x\" -> \"y\"");
    assert_eq!(place.run(&["drift", "check", "--env", "dev", "--exit-code"]).code, 1);
    is(house, &id, "provisioned/done", "Active");
    assert_eq!(get(house, &id)["outputs"]["note"], "x");
    assert_eq!(done(place), ["create x"]);
    let shown = place.json(&["drift", "repair", &id, "--dry-run"]);
    assert_eq!(shown["resources"][0]["action"], "update", "{shown}");
    assert_eq!(note(place, &id), "y");
    place.world.hold();
    let repair = house.api().post("/api/v1/drift/repair", &json!({ "resources": [id] }));
    assert_eq!(repair.status, 202, "{}", repair.text);
    is(house, &id, "provisioned/in_progress", "Updating");
    place.world.let_go();
    becomes(house, &id, "provisioned/done");
    assert_eq!((note(place, &id), look(place).len()), (json!("x"), 0));

    fs::remove_file(place.world.thing(&id)).unwrap();
    let all = look(place);
    assert_eq!((&all[0]["kind"], &all[0]["attributes"]), (&json!("missing"), &json!([])));
    let never = place.run(&["drift", "ignore", &id]);
    says(&never.all(), &["is gone", "repair it, or destroy it"]);
    assert_eq!(place.run(&["drift", "adopt", &id]).code, 1);
    place.ok(&["drift", "repair", &id, "--yes"]);
    assert_eq!((note(place, &id), look(place).len()), (json!("x"), 0));
    is(house, &id, "provisioned/done", "Active");
}

/// Taken over: where a parameter is the reason, into what is desired; by attribute, where somebody says so.
fn adopted_by_command(house: &House) {
    let place = &house.place;
    things(place, "");
    let id = made(house, "db", json!({ "note": "x" }));
    let before = text(&get(house, &id)["outputs"], "place");
    spoil(place, &id, json!({ "note": "y", "place": "elsewhere" }));
    assert_eq!(found(place, &id).len(), 2);
    let unknown = place.run(&["drift", "adopt", &id, "--attribute", "outputs.colour"]);
    says(&unknown.all(), &["`outputs.colour` does not differ", "outputs.note"]);
    // Only shown, by command or by request, it is still the drift it was.
    let plan = place.json(&["resources", "adopt", &id, "--attribute", "outputs.note", "--dry-run"]);
    assert_eq!(
        (&plan["kind"], &plan["resources"][0]["action"]),
        (&json!("adopt"), &json!("update")),
        "{plan}"
    );
    for word in ["adopt", "ignore"] {
        let reply =
            house.api().post(&format!("/api/v1/drift/{word}"), &json!({ "resources": [id], "dryRun": true }));
        assert!(reply.status < 300, "{}", reply.text);
    }
    assert_eq!(found(place, &id).len(), 2);
    assert_eq!(get(house, &id)["parameters"]["note"], "x");
    place.ok(&["resources", "adopt", &id, "--attribute", "outputs.note"]);
    becomes(house, &id, "provisioned/done");
    let seen = get(house, &id);
    assert_eq!((&seen["parameters"]["note"], &seen["outputs"]["note"]), (&json!("y"), &json!("y")));
    assert_eq!(text(&seen["outputs"], "place"), before, "the other was not taken over");
    assert_eq!(note(place, &id), "y", "and nothing was put back");
    assert_eq!(look(place), Vec::<Value>::new());
    let revisions = place.json(&["revisions", "list", &id]);
    assert_eq!(revisions[0]["reason"], "adopt", "{revisions}");

    // No parameter is the reason: the record alone says so from now on.
    spoil(place, &id, json!({ "note": "y", "place": "elsewhere" }));
    found(place, &id);
    let runs = place.world.runs().len();
    place.ok(&["drift", "adopt", &id]);
    assert_eq!(get(house, &id)["outputs"]["place"], "elsewhere");
    assert_eq!((look(place).len(), place.world.runs().len()), (0, runs));
}

/// Let be, until it is something else.
fn ignored_by_command(house: &House) {
    let place = &house.place;
    things(place, "");
    let id = made(house, "db", json!({ "note": "x" }));
    spoil(place, &id, json!({ "note": "y" }));
    found(place, &id);
    place.ok(&["drift", "ignore", &id]);
    assert_eq!(look(place), Vec::<Value>::new());
    assert_eq!((note(place, &id), &get(house, &id)["outputs"]["note"]), (json!("y"), &json!("x")));
    spoil(place, &id, json!({ "note": "z" }));
    assert_eq!(found(place, &id), ["outputs.note: \"x\" -> \"z\""]);
}

/// By the environment's terms, without a word; and only told, where it says nothing.
fn settled_by_policy(house: &House) {
    let place = &house.place;
    things(place, "");
    let id = made(house, "db", json!({ "note": "x" }));
    // Nobody says anything: it is told, and nothing is done.
    spoil(place, &id, json!({ "note": "y" }));
    found(place, &id);
    std::thread::sleep(seconds(3));
    assert_eq!(place.json(&["drift", "check", "--env", "dev", "--last"]).as_array().unwrap().len(), 1);
    assert_eq!(note(place, &id), "y");
    says(&super::audit(house), &["resource.drifted"]);
    policy(place, "{ policy: repair }");
    eventually("it is put right", seconds(20), || (note(place, &id) == "x").then_some(()));
    becomes(house, &id, "provisioned/done");
    // Again and again.
    spoil(place, &id, json!({ "note": "y" }));
    look(place);
    eventually("it is put right again", seconds(20), || (note(place, &id) == "x").then_some(()));
    becomes(house, &id, "provisioned/done");
    fs::remove_file(place.world.thing(&id)).unwrap();
    look(place);
    eventually("it is made again", seconds(20), || (note(place, &id) == "x").then_some(()));
    becomes(house, &id, "provisioned/done");

    policy(place, "{ policy: adopt }");
    spoil(place, &id, json!({ "note": "new" }));
    look(place);
    eventually("it is taken over", seconds(20), || {
        (get(house, &id)["parameters"]["note"] == "new").then_some(())
    });
    becomes(house, &id, "provisioned/done");

    policy(place, "{ policy: ignore }");
    spoil(place, &id, json!({ "note": "other" }));
    look(place);
    eventually("it is let be", seconds(20), || {
        (place.json(&["drift", "check", "--env", "dev", "--last"]) == json!([])).then_some(())
    });
    assert_eq!((note(place, &id), &get(house, &id)["outputs"]["note"]), (json!("other"), &json!("new")));
}

/// Looked at by the clock.
fn looked_at_by_schedule(house: &House) {
    let place = &house.place;
    things(place, "");
    let id = made(house, "db", json!({ "note": "x" }));
    let wrong = place.write(
        "wrong.yaml",
        "kind: Environment\nname: dev\ntype: development\ndrift: { schedule: at night }\n",
    );
    let told = place.run(&["apply", "-f", &wrong.display().to_string()]);
    assert_eq!(told.code, 1);
    says(&told.all(), &["`at night` is no schedule"]);
    // Every second, give or take what keeps environments apart.
    policy(place, "{ schedule: '* * * * * *', policy: repair }");
    spoil(place, &id, json!({ "note": "y" }));
    eventually("it is found and put right", seconds(50), || (note(place, &id) == "x").then_some(()));
    becomes(house, &id, "provisioned/done");
    let looks = house.count("SELECT count(*) FROM changes WHERE kind = 'observe'");
    assert!(looks >= 1);
    policy(place, "{}");
    std::thread::sleep(seconds(2));
    eventually("it is at rest", seconds(10), || (house.open() == 0).then_some(()));
}

const MODULE: &str = r#"
terraform {
  required_providers {
    local = { source = "hashicorp/local" }
  }
}
variable "path" { type = string }
variable "text" { type = string }
resource "local_file" "note" {
  filename = var.path
  content  = var.text
}
output "text" { value = local_file.note.content }
"#;

/// A file that tofu made, changed and removed by hand.
fn a_file_of_tofu(house: &House) {
    let place = &house.place;
    place.write("catalog/noted/main.tf", MODULE);
    let folder = place.path("notes");
    fs::create_dir_all(&folder).unwrap();
    place.apply(
        "noted",
        &format!(
            "kind: Template\nname: noted\ntype: noted\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./noted, tool: {}, allow: {{ write: [\"{}\"] }} }}\n",
            tofu().display(),
            folder.display()
        ),
    );
    let file: PathBuf = folder.join("note");
    let score = Score::new("web").with("note", resource("noted", json!({ "path": file, "text": "hello" })));
    let id = served(&place.deploy(&score.text()), "note").1;
    assert_eq!(look(place), Vec::<Value>::new());
    fs::remove_file(&file).unwrap();
    let all = look(place);
    assert_eq!((&all[0]["resource"], all.len()), (&json!(id), 1), "{all:?}");
    place.ok(&["drift", "repair", &id, "--yes"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "hello");
    assert_eq!(look(place), Vec::<Value>::new());
    // With other content, the provider takes it for another file: it is gone, and the record says what is there.
    fs::write(&file, "spoilt").unwrap();
    let all = look(place);
    assert_eq!((&all[0]["resource"], all.len()), (&json!(id), 1), "{all:?}");
    policy(place, "{ policy: repair }");
    eventually("it is put right", seconds(60), || {
        (fs::read_to_string(&file).is_ok_and(|text| text == "hello")).then_some(())
    });
    becomes(house, &id, "provisioned/done");
    assert_eq!(look(place), Vec::<Value>::new());
    place.destroy("web");
    assert!(!file.exists());
}

fn with_providers(shape: Shape) -> House {
    let providers = std::env::var("CONDUCTOR_TEST_PROVIDERS").expect("no providers; run: scripts/setup");
    House::with(shape, &[("CONDUCTOR_TERRAFORM_PROVIDERS", &providers)])
}

#[test]
fn a_file_of_tofu_on_sqlite() {
    if !quick() {
        a_file_of_tofu(&with_providers(Shape::Up { workers: 0 }));
    }
}

#[test]
fn a_file_of_tofu_on_postgresql() {
    if !quick() {
        a_file_of_tofu(&with_providers(Shape::FleetPostgres { servers: 1, workers: 1 }));
    }
}

/// A database file is gone.
fn a_database_of_sqlite(house: &House) {
    let place = &house.place;
    place.apply(
        "db",
        "kind: Template\nname: db\ntype: sqlite\nversion: 1.0.0\nmanager: database\nconfig: { engine: sqlite }\n",
    );
    let id = served(&place.deploy(&Score::new("web").with("db", json!({ "type": "sqlite" })).text()), "db").1;
    let path = PathBuf::from(text(&place.outputs("web", false)["db"], "path"));
    assert_eq!(look(place), Vec::<Value>::new());
    fs::remove_file(&path).unwrap();
    let all = look(place);
    assert_eq!((&all[0]["resource"], &all[0]["kind"]), (&json!(id), &json!("missing")));
    place.ok(&["drift", "repair", &id, "--yes"]);
    assert!(path.exists());
    assert_eq!(look(place), Vec::<Value>::new());
}

/// A role that was altered, and a database that was dropped.
fn a_database_of_postgresql(house: &House) {
    let (place, server) = (&house.place, postgres());
    place.apply(
        "db",
        &format!(
            "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\n\
             config: {{ engine: postgres, server: \"{}\" }}\n",
            server.admin()
        ),
    );
    let score = Score::new("web").with("db", json!({ "type": "postgres" })).text();
    let id = served(&place.deploy(&score), "db").1;
    let outputs = place.outputs("web", true)["db"].clone();
    let [name, url] = ["name", "url"].map(|name| text(&outputs, name));
    let admin = |sql: &str| server.query(&server.admin(), sql);
    assert_eq!(look(place), Vec::<Value>::new());
    admin(&format!("ALTER ROLE \"{name}\" CREATEDB CONNECTION LIMIT 3"));
    let told = found(place, &id);
    assert_eq!(told, ["role.createdb: false -> true", "role.connectionLimit: -1 -> 3"]);
    place.ok(&["drift", "repair", &id, "--yes"]);
    let role = admin(&format!("SELECT rolcreatedb, rolconnlimit FROM pg_roles WHERE rolname = '{name}'"));
    assert_eq!(role, [["f", "-1"]]);
    assert_eq!(look(place), Vec::<Value>::new());
    // A password that somebody changed: what applications were given holds again, or they are given another.
    admin(&format!("ALTER ROLE \"{name}\" PASSWORD 'known-to-somebody'"));
    assert_eq!(found(place, &id), ["role.password: \"(sensitive)\" -> \"(sensitive)\""]);
    place.ok(&["drift", "repair", &id, "--yes"]);
    assert!(server.can_log_in(&text(&place.outputs("web", true)["db"], "url")));
    assert_eq!(look(place), Vec::<Value>::new());
    // Dropped, and made again by the environment's terms.
    policy(place, "{ policy: repair }");
    admin(&format!("DROP DATABASE \"{name}\" WITH (FORCE)"));
    let all = look(place);
    assert_eq!((&all[0]["resource"], &all[0]["kind"]), (&json!(id), &json!("missing")));
    eventually("it is made again", seconds(30), || {
        (admin(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")) == [["1"]])
            .then_some(())
    });
    becomes(house, &id, "provisioned/done");
    policy(place, "{ policy: alert }");
    admin(&format!("DROP DATABASE \"{name}\" WITH (FORCE)"));
    admin(&format!("DROP ROLE \"{name}\""));
    assert_eq!(look(place)[0]["kind"], "missing");
    place.ok(&["drift", "repair", &id, "--yes"]);
    assert!(server.can_log_in(&text(&place.outputs("web", true)["db"], "url")), "{url}");
    assert_eq!(look(place), Vec::<Value>::new());
    place.destroy("web");
    house.is_at_rest();
}

#[test]
fn a_database_of_postgresql_on_sqlite() {
    if !quick() {
        a_database_of_postgresql(&super::up());
    }
}

#[test]
fn a_database_of_postgresql_on_postgresql() {
    if !quick() {
        a_database_of_postgresql(&super::fleet());
    }
}

stories!(repaired_by_command adopted_by_command ignored_by_command settled_by_policy looked_at_by_schedule
    a_database_of_sqlite);
