//! People's own terraform and tofu, with their state on the server.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use conductor_tests::{At, Gate, House, Shape, quick, seconds, terraform, tofu};
use serde_json::json;

use super::{POSTGRES, SQLITE, catalogue, note, score};

/// A folder with a module of one's own.
struct Own {
    tool: PathBuf,
    folder: PathBuf,
}

impl Own {
    fn new(house: &House, tool: &Path, name: &str, url: &str, module: &str) -> Self {
        let token = &house.fleet.token;
        let address = format!("{url}/api/v1/state/{name}");
        let backend = json!({ "terraform": { "backend": { "http": {
            "address": address, "lock_address": address, "unlock_address": address,
            "username": "anybody", "password": token, "retry_wait_min": 1, "retry_wait_max": 1,
        } } } });
        let file = house.place.write(&format!("{name}/backend.tf.json"), backend.to_string());
        house.place.write(&format!("{name}/main.tf"), module);
        let own = Self { tool: tool.to_owned(), folder: file.parent().unwrap().to_owned() };
        own.ok(&["init", "-no-color"]);
        own
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        command.args(args).current_dir(&self.folder).env("TF_INPUT", "0").env("CHECKPOINT_DISABLE", "1");
        command.env_remove("TF_CLI_CONFIG_FILE");
        command
    }

    fn run(&self, args: &[&str]) -> (bool, String) {
        let Output { status, stdout, stderr } = self.command(args).output().expect("the tool runs");
        (
            status.success(),
            format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)),
        )
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let (good, text) = self.run(args);
        assert!(good, "{args:?}: {text}");
        text
    }
}

const APPLY: [&str; 3] = ["apply", "-auto-approve", "-no-color"];
const MODULE: &str =
    "variable \"note\" { default = \"one\" }\nresource \"terraform_data\" \"a\" { input = var.note }\n";

fn lock(id: &str) -> String {
    json!({ "ID": id, "Operation": "OperationTypeApply", "Who": "somebody@elsewhere", "Version": "1",
            "Created": "2026-01-01T00:00:00Z", "Info": "", "Path": "" })
    .to_string()
}

fn own_life(shape: Shape, tool: &Path) {
    let house = House::new(shape);
    let api = house.api();
    let own = Own::new(&house, tool, "mine", &house.fleet.urls[0], MODULE);
    own.ok(&APPLY);
    assert!(own.ok(&["state", "list", "-no-color"]).contains("terraform_data.a"));
    let again = own.ok(&APPLY);
    assert!(again.contains("No changes"), "{again}");

    // Somebody else holds the lock.
    assert_eq!(api.call("LOCK", "/api/v1/state/mine", &[], lock("0e1f")).status, 200);
    let (good, text) = own.run(&["apply", "-auto-approve", "-no-color", "-var=note=two"]);
    assert!(!good && text.contains("Error acquiring the state lock"), "{text}");
    // Terraform names the id of the holder, tofu all that it said.
    assert!(text.contains("0e1f"), "{text}");
    own.ok(&["force-unlock", "-force", "-no-color", "0e1f"]);
    own.ok(&["apply", "-auto-approve", "-no-color", "-var=note=two"]);

    // An old copy does not get over a newer one.
    let copy = own.ok(&["state", "pull"]);
    own.ok(&["apply", "-auto-approve", "-no-color", "-var=note=three"]);
    let path = own.folder.join("old.tfstate");
    std::fs::write(&path, copy).unwrap();
    let (good, text) = own.run(&["state", "push", "-force", "old.tfstate"]);
    assert!(!good && text.contains("409"), "{text}");
    own.ok(&["destroy", "-auto-approve", "-no-color"]);
    let left = api.get("/api/v1/state/mine").json();
    assert_eq!(left["resources"], json!([]));
    assert_eq!(house.count("SELECT count(*) FROM workspace_locks"), 0);
}

#[test]
fn people_keep_the_state_of_their_own_tofu() {
    if !quick() {
        own_life(SQLITE, &tofu());
    }
}

#[test]
fn people_keep_the_state_of_their_own_terraform_on_postgresql() {
    if !quick() {
        own_life(POSTGRES, &terraform());
    }
}

/// Two of them at once: one waits for the other, and nothing of either is lost.
#[test]
fn two_applies_of_one_state_come_one_after_the_other() {
    if quick() {
        return;
    }
    for (shape, tool) in [(SQLITE, tofu()), (POSTGRES, terraform())] {
        let house = House::new(shape);
        let slow = "variable \"note\" { default = \"one\" }\nresource \"terraform_data\" \"a\" {\n  input = var.note\n  \
                    provisioner \"local-exec\" { command = \"sleep 1\" }\n}\n";
        let one = Own::new(&house, &tool, "both", &house.fleet.urls[0], slow);
        let mut first = one.command(&APPLY).spawn().unwrap();
        let mut second = one.command(&[&APPLY[..], &["-lock-timeout=60s"]].concat()).spawn().unwrap();
        let (first, second) = (first.wait().unwrap(), second.wait().unwrap());
        // The first may have been the second, which does not wait.
        assert!(
            second.success() && (first.success() || house.count("SELECT count(*) FROM workspace_states") > 0)
        );
        assert_eq!(
            house.count("SELECT count(*) FROM workspace_states"),
            house.count("SELECT count(DISTINCT serial) FROM workspace_states")
        );
        assert_eq!(one.ok(&["state", "list"]).trim(), "terraform_data.a");
        assert_eq!(house.count("SELECT count(*) FROM workspace_locks"), 0);
    }
}

#[test]
fn a_state_of_more_than_ten_megabytes_is_kept() {
    if quick() {
        return;
    }
    let module = "resource \"terraform_data\" \"big\" { input = file(\"big.txt\") }\n";
    for (shape, tool) in [(SQLITE, tofu()), (POSTGRES, terraform())] {
        let house = House::new(shape);
        house.place.write("big/big.txt", "0123456789abcdef".repeat(700_000));
        let own = Own::new(&house, &tool, "big", &house.fleet.urls[0], module);
        own.ok(&APPLY);
        assert!(house.count("SELECT max(size) FROM workspace_states") > 20_000_000);
        assert!(own.ok(&["plan", "-no-color"]).contains("No changes"));
    }
}

/// Terraform ends badly when the lock cannot be given back, although its work is done and stored.
#[test]
fn an_unlock_that_is_not_answered_costs_nothing_but_the_exit_code() {
    if quick() {
        return;
    }
    let house = House::new(SQLITE);
    let gate = Gate::before(&house.fleet.urls);
    let own = Own::new(&house, &tofu(), "cut", &gate.url, MODULE);
    gate.cut("UNLOCK /state", At::Request, 10);
    let (good, text) = own.run(&APPLY);
    assert!(!good && text.contains("Error releasing the state lock"), "{text}");
    assert_eq!(house.api().get("/api/v1/state/cut").json()["resources"][0]["name"], "a");
    assert_eq!(house.api().call("UNLOCK", "/api/v1/state/cut", &[], "").status, 200);
}

/// The same inside an operation: it has succeeded, and the lock goes with it.
fn an_operation_ends_well(shape: Shape, tool: &Path) {
    let house = House::new(shape);
    let mut worker = house.worker();
    catalogue(&house, tool);
    worker.stop();
    let gate = Gate::before(&house.fleet.urls);
    let cut = gate.cut("POST /state/unlock", At::Request, 6);
    let _worker = house.start_worker(&gate.url);
    let api = house.api();
    let deployment = api.deploy(&score(note("one")));
    api.succeeded(&deployment, seconds(90));
    assert!(cut.reached() > 0);
    assert_eq!(house.place.outputs("web", true)["notes"]["note"], "one");
    house.is_at_rest();
}

#[test]
fn an_operation_whose_unlock_is_not_answered_has_succeeded() {
    if !quick() {
        an_operation_ends_well(Shape::FleetSqlite { workers: 0 }, &tofu());
        an_operation_ends_well(Shape::FleetPostgres { servers: 1, workers: 0 }, &terraform());
    }
}
