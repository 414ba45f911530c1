//! Day 1: application A makes the shared thing. Day 7: B uses the same one. Day 14: A goes, the thing stays.
//! Day 21: B goes, and the thing with it. Told with every manager, embedded and on a fleet.

use std::path::Path;

use conductor_tests::{House, Score, Shape, postgres, quick, shared, terraform, tofu};
use serde_json::{Value, json};

const FLEET: Shape = Shape::FleetPostgres { servers: 1, workers: 2 };

/// How the shared thing is made, and how a look at the world itself finds it.
trait Maker {
    fn catalogue(&self, house: &House);
    fn asked(&self) -> Value;
    /// The thing is there, with these (revealed) outputs.
    fn is_there(&self, house: &House, outputs: &Value);
    /// The thing that had these outputs is gone.
    fn is_gone(&self, house: &House, outputs: &Value);
}

fn tell(shape: Shape, maker: &dyn Maker) {
    let house = House::new(shape);
    let place = &house.place;
    maker.catalogue(&house);
    let score = |application: &str| Score::new(application).with("db", maker.asked()).text();
    let only = |document: &Value| {
        assert_eq!(document["status"], "succeeded", "{document}");
        assert_eq!(document["resources"].as_array().map(Vec::len), Some(1), "{document}");
        let item = &document["resources"][0];
        (item["action"].as_str().unwrap().to_owned(), item["resource"].as_str().unwrap().to_owned())
    };
    let consumers = || {
        let all = place.resources();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0]["phase"], "Active");
        let names = all[0]["consumers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["application"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };

    let (action, made) = only(&place.deploy(&score("app-a")));
    assert_eq!(action, "create");
    let outputs = place.outputs("app-a", true)["db"].clone();
    maker.is_there(&house, &outputs);
    assert_eq!(consumers(), ["app-a"]);

    assert_eq!(only(&place.deploy(&score("app-b"))), ("reuse".into(), made.clone()));
    assert_eq!(place.outputs("app-b", true)["db"], outputs);
    assert_eq!(consumers(), ["app-a", "app-b"]);
    maker.is_there(&house, &outputs);

    let gone = place.destroy("app-a");
    assert_eq!(gone["removals"][0]["action"], "release", "{gone}");
    assert_eq!(consumers(), ["app-b"]);
    maker.is_there(&house, &outputs);
    assert_eq!(place.outputs("app-b", true)["db"], outputs);

    let gone = place.destroy("app-b");
    assert_eq!(gone["status"], "succeeded");
    assert_eq!(
        (&gone["removals"][0]["action"], &gone["removals"][0]["resource"]),
        (&json!("remove"), &json!(made))
    );
    maker.is_gone(&house, &outputs);
    house.is_empty();
}

struct Command;

impl Maker for Command {
    fn catalogue(&self, house: &House) {
        house.place.apply_things();
    }

    fn asked(&self) -> Value {
        shared("thing", "orders", json!({ "note": "orders", "secret": true }))
    }

    fn is_there(&self, house: &House, outputs: &Value) {
        let things = house.place.world.things();
        assert_eq!(things.values().collect::<Vec<_>>(), [outputs]);
        assert_eq!(house.place.world.steps(), ["create"]);
    }

    fn is_gone(&self, house: &House, _: &Value) {
        assert_eq!(house.place.world.steps(), ["create", "delete"]);
        assert_eq!(house.place.world.runs().len(), 2);
    }
}

struct Terraform(std::path::PathBuf);

impl Maker for Terraform {
    fn catalogue(&self, house: &House) {
        let world = house.place.world.folder.display().to_string();
        house.place.write("catalog/net/main.tf", MODULE);
        let tool = self.0.display();
        house.place.apply(
            "net",
            &format!(
                "kind: Template\nname: net\ntype: network\nversion: 1.0.0\nmanager: terraform\n\
                 config: {{ source: ./net, tool: {tool}, allow: {{ write: [\"{world}\"] }} }}\n"
            ),
        );
    }

    fn asked(&self) -> Value {
        shared("network", "core", json!({ "size": "large" }))
    }

    fn is_there(&self, house: &House, outputs: &Value) {
        assert_eq!(outputs["size"], "large");
        assert!(outputs["key"].as_str().unwrap().starts_with("key-"), "{outputs}");
        // Not shown without being asked for.
        assert!(
            !house.place.json(&["resources", "list"]).to_string().contains(outputs["key"].as_str().unwrap())
        );
        assert!(house.count("SELECT count(*) FROM states") >= 1, "terraform's state is not kept");
        assert_eq!(house.count("SELECT count(*) FROM state_locks"), 0);
    }

    fn is_gone(&self, house: &House, _: &Value) {
        // What is kept last is the state of nothing.
        assert!(house.count("SELECT count(*) FROM states") >= 2);
    }
}

const MODULE: &str = r#"
variable "size" {
  type    = string
  default = "small"
}
resource "terraform_data" "net" {
  input = var.size
}
output "size" {
  value = terraform_data.net.output
}
output "key" {
  value     = "key-${terraform_data.net.id}"
  sensitive = true
}
"#;

struct DatabaseSqlite;

impl Maker for DatabaseSqlite {
    fn catalogue(&self, house: &House) {
        let text = "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\nconfig: { engine: sqlite }\n";
        house.place.apply("db", text);
    }

    fn asked(&self) -> Value {
        shared("postgres", "orders", json!({}))
    }

    fn is_there(&self, _: &House, outputs: &Value) {
        let path = outputs["path"].as_str().unwrap();
        assert_eq!(outputs["url"], format!("sqlite://{path}"));
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let database = rusqlite::Connection::open_with_flags(path, flags).unwrap();
        // What one day writes the next one finds.
        database.execute_batch("CREATE TABLE IF NOT EXISTS days (day); INSERT INTO days VALUES (1)").unwrap();
        let days: i64 = database.query_row("SELECT count(*) FROM days", [], |row| row.get(0)).unwrap();
        assert!(days >= 1);
    }

    fn is_gone(&self, _: &House, outputs: &Value) {
        let path = outputs["path"].as_str().unwrap();
        assert!(!Path::new(path).exists(), "{path} is still there");
    }
}

struct DatabasePostgres;

impl Maker for DatabasePostgres {
    fn catalogue(&self, house: &House) {
        let server = postgres().admin();
        let text = format!(
            "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\n\
             config: {{ engine: postgres, server: \"{server}\" }}\n"
        );
        house.place.apply("db", &text);
    }

    fn asked(&self) -> Value {
        shared("postgres", "orders", json!({}))
    }

    fn is_there(&self, house: &House, outputs: &Value) {
        let (name, url) = (outputs["name"].as_str().unwrap(), outputs["url"].as_str().unwrap());
        assert_eq!(roles_and_databases(name), (1, 1));
        let owner = postgres().query(url, "SELECT current_user, current_database()");
        assert_eq!(owner, [[outputs["username"].as_str().unwrap(), name]]);
        postgres().query(url, "CREATE TABLE IF NOT EXISTS days (day int); INSERT INTO days VALUES (1)");
        let password = outputs["password"].as_str().unwrap();
        assert!(!postgres().can_log_in(&url.replace(password, "guessed")), "any password will do");
        // Not shown without being asked for.
        assert!(!house.place.json(&["resources", "list"]).to_string().contains(password));
    }

    fn is_gone(&self, _: &House, outputs: &Value) {
        assert_eq!(roles_and_databases(outputs["name"].as_str().unwrap()), (0, 0));
        assert!(!postgres().can_log_in(outputs["url"].as_str().unwrap()));
    }
}

fn roles_and_databases(name: &str) -> (usize, usize) {
    let admin = postgres().admin();
    let look = |sql: &str| postgres().query(&admin, sql).len();
    (
        look(&format!("SELECT 1 FROM pg_roles WHERE rolname = '{name}'")),
        look(&format!("SELECT 1 FROM pg_database WHERE datname = '{name}'")),
    )
}

#[test]
fn a_shared_thing_of_a_command_lives_from_its_first_consumer_to_its_last() {
    tell(Shape::Embedded, &Command);
    tell(Shape::Up { workers: 0 }, &Command);
}

#[test]
fn a_shared_thing_of_a_command_lives_from_its_first_consumer_to_its_last_on_postgresql() {
    if !quick() {
        tell(FLEET, &Command);
    }
}

#[test]
fn a_shared_terraform_module_lives_from_its_first_consumer_to_its_last() {
    if !quick() {
        tell(Shape::Embedded, &Terraform(terraform()));
    }
}

#[test]
fn a_shared_terraform_module_lives_from_its_first_consumer_to_its_last_on_postgresql() {
    if !quick() {
        tell(FLEET, &Terraform(terraform()));
    }
}

#[test]
fn a_shared_tofu_module_lives_from_its_first_consumer_to_its_last() {
    if !quick() {
        tell(Shape::Embedded, &Terraform(tofu()));
    }
}

#[test]
fn a_shared_tofu_module_lives_from_its_first_consumer_to_its_last_on_postgresql() {
    if !quick() {
        tell(FLEET, &Terraform(tofu()));
    }
}

#[test]
fn a_shared_sqlite_database_lives_from_its_first_consumer_to_its_last() {
    tell(Shape::Embedded, &DatabaseSqlite);
    tell(Shape::Up { workers: 0 }, &DatabaseSqlite);
}

#[test]
fn a_shared_sqlite_database_lives_from_its_first_consumer_to_its_last_on_postgresql() {
    if !quick() {
        tell(Shape::FleetPostgres { servers: 1, workers: 1 }, &DatabaseSqlite);
    }
}

#[test]
fn a_shared_postgresql_database_lives_from_its_first_consumer_to_its_last() {
    if !quick() {
        tell(Shape::Embedded, &DatabasePostgres);
    }
}

#[test]
fn a_shared_postgresql_database_lives_from_its_first_consumer_to_its_last_on_postgresql() {
    if !quick() {
        tell(FLEET, &DatabasePostgres);
    }
}

/// A file on one worker's disk cannot be deleted by another worker, and nobody may say that it was.
#[test]
fn a_sqlite_database_is_never_called_deleted_while_its_file_is_on_another_workers_disk() {
    let mut house = House::new(Shape::FleetSqlite { workers: 1 });
    DatabaseSqlite.catalogue(&house);
    house.place.deploy(&Score::new("app-a").with("db", DatabaseSqlite.asked()).text());
    let path = house.place.outputs("app-a", true)["db"]["path"].as_str().unwrap().to_owned();
    house.fleet.workers[0].stop();
    let _other = house.worker();
    let told = house.place.run(&["destroy", "--app", "app-a", "--env", "dev", "--yes", "-o", "json"]);
    let there = Path::new(&path).exists();
    assert!(told.code != 0 || !there, "said to be deleted, and it is there: {path}");
}
