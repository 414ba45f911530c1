//! The binary as scripts see it: exit codes, streams, and no panic whatever it is given.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

const SCORE: &str =
    "apiVersion: score.dev/v1b1\nmetadata:\n  name: web\ncontainers:\n  main:\n    image: busybox\n";

fn conductor(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conductor"));
    command.args(args).current_dir(folder).env_clear().stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn run(folder: &Path, args: &[&str]) -> (i32, String, String) {
    told(conductor(folder, args).output().unwrap())
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stderr = text(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    (output.status.code().unwrap_or(-1), text(&output.stdout), stderr)
}

#[test]
fn wrong_usage_is_exit_two() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["deploy", "--no-such-flag"][..],
        &["deploy"],
        &["nonsense"],
        &[],
        &["logs", "dep_x", "--level", "loud"],
        &["destroy", "--env", "dev"],
        &["worker"],
    ] {
        let (code, _, stderr) = run(folder.path(), args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
    }
    std::fs::write(folder.path().join("conductor.toml"), "lisen = 'x'\n").unwrap();
    let (code, _, stderr) = run(folder.path(), &["status"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("did you mean `listen`?"), "{stderr}");
}

#[test]
fn what_comes_by_a_pipe_is_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let piped = |args: &[&str], text: &str| {
        let mut command = conductor(folder.path(), args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        told(child.wait_with_output().unwrap())
    };
    let (code, stdout, stderr) =
        piped(&["apply", "-f", "-"], "kind: Environment\nname: stage\ntype: staging\n");
    assert_eq!((code, stdout.as_str()), (0, "environment/stage created\n"), "{stderr}");
    let (code, stdout, stderr) = piped(&["plan", "-f", "-", "--env", "dev"], SCORE);
    assert!(code == 0 && stdout.contains("deploy web in dev"), "{stdout}{stderr}");
    let (code, stdout, _) = piped(&["validate", "-"], "metadata: 3\n");
    assert!(code == 1 && stdout.contains("-:1:11:"), "{stdout}");
}

#[test]
fn validate_judges_each_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("good.yaml"), SCORE).unwrap();
    std::fs::write(folder.path().join("bad.yaml"), format!("{SCORE}kind: Workload\n")).unwrap();
    assert_eq!(
        run(folder.path(), &["validate", "good.yaml"]),
        (0, "good.yaml: valid\n".into(), String::new())
    );
    let (code, stdout, _) =
        run(folder.path(), &["validate", "good.yaml", "bad.yaml", "nowhere.yaml", "-o", "json"]);
    assert_eq!(code, 1);
    let verdicts: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let valid: Vec<bool> =
        verdicts.as_array().unwrap().iter().map(|verdict| verdict["valid"].as_bool().unwrap()).collect();
    assert_eq!(valid, [true, false, false]);
    assert_eq!(verdicts[1]["findings"][0]["line"], 7);
    let (_, stdout, _) = run(folder.path(), &["validate", "bad.yaml"]);
    assert!(stdout.starts_with("bad.yaml:7:1: "), "{stdout}");
}

#[test]
fn mistakes_are_found_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("score.yaml"), format!("{SCORE}    env: {{}}\n")).unwrap();
    let (code, stdout, stderr) = run(folder.path(), &["deploy", "--env", "dev"]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains("score.yaml:7:5") && stderr.contains("nothing was sent"), "{stderr}");
    let (code, _, stderr) = run(folder.path(), &["deploy", "-f", "nowhere.yaml", "--env", "dev"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("nowhere.yaml"), "{stderr}");
    std::fs::write(folder.path().join("t.yaml"), "kind: Templat\nname: x\n").unwrap();
    let (code, _, stderr) = run(folder.path(), &["apply", "-f", "t.yaml"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("t.yaml:1:7") && stderr.contains("did you mean `Template`?"), "{stderr}");
    assert!(!folder.path().join(".conductor").exists());
}

#[test]
fn a_server_that_does_not_answer_is_exit_three() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = told(
        conductor(folder.path(), &["status"]).env("CONDUCTOR_URL", "http://127.0.0.1:9").output().unwrap(),
    );
    assert_eq!(code, 3, "{stderr}");
    let (code, _, stderr) = told(
        conductor(folder.path(), &["status"])
            .env("CONDUCTOR_DATABASE_URL", "postgres://x@127.0.0.1:9/x")
            .output()
            .unwrap(),
    );
    assert_eq!(code, 3, "{stderr}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = conductor(folder.path(), &["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (code, _, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[test]
fn the_example_deploys_as_it_is_and_goes_away_again() {
    let folder = tempfile::tempdir().unwrap();
    let json = |args: &[&str]| {
        let (code, stdout, stderr) = run(folder.path(), &[args, &["-o", "json"]].concat());
        assert_eq!(code, 0, "{args:?}: {stderr}");
        serde_json::from_str::<serde_json::Value>(&stdout).unwrap()
    };
    json(&["init"]);
    assert_eq!(run(folder.path(), &["init"]).0, 1);
    let applied = json(&["apply", "-f", "catalog"]);
    assert_eq!(applied[1]["action"], "created");
    assert_eq!(json(&["apply", "-f", "catalog"])[1]["action"], "unchanged");
    assert_eq!(json(&["plan", "--env", "dev"])["resources"][0]["action"], "create");
    let done = json(&["deploy", "--env", "dev"]);
    assert_eq!(done["status"], "succeeded");
    assert_eq!(done["resources"][0]["phase"], "Active");
    let url = json(&["outputs", "hello", "--env", "dev", "--reveal"]);
    assert!(url["db"]["url"].as_str().unwrap().starts_with("sqlite:///"), "{url}");
    let name = json(&["resources", "list", "--env", "dev"])[0]["name"].as_str().unwrap().to_owned();
    assert_eq!(json(&["resources", "why", &name])["consumers"][0]["application"], "hello");
    assert_eq!(json(&["destroy", "--env", "dev", "--app", "hello", "--yes"])["status"], "succeeded");
}

#[test]
fn what_is_not_there_is_exit_six_and_names_what_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("score.yaml"), SCORE).unwrap();
    for (args, word) in [
        (&["deploy", "--env", "prood"][..], "dev"),
        (&["envs", "get", "devv"], "did you mean `dev`?"),
        (&["resources", "get", "nothing"], "nothing"),
        (&["status", "dep_nothing"], "dep_nothing"),
        (&["logs", "dep_00000000000000000000000000"], "dep_00000000000000000000000000"),
    ] {
        let (code, _, stderr) = run(folder.path(), args);
        assert_eq!(code, 6, "{args:?}: {stderr}");
        assert!(stderr.contains(word), "{args:?}: {stderr}");
    }
}

#[test]
fn work_left_behind_is_told_and_picked_up_by_the_next_command() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(folder.path(), &["init"]).0, 0);
    assert_eq!(run(folder.path(), &["apply", "-f", "catalog"]).0, 0);
    let (code, _, stderr) = run(folder.path(), &["deploy", "--env", "dev", "--no-wait"]);
    assert_eq!(code, 0, "{stderr}");
    let (_, stdout, stderr) = run(folder.path(), &["resources", "list"]);
    assert!(stderr.contains("the next deploy, retry or destroy picks it up"), "{stderr}");
    assert!(stdout.contains("Pending"), "{stdout}");
    let (code, _, stderr) = run(folder.path(), &["deploy", "--env", "dev", "--app", "other"]);
    assert_eq!(code, 0, "{stderr}");
    let (_, stdout, stderr) = run(folder.path(), &["resources", "list"]);
    assert_eq!(stdout.matches("Active").count(), 2, "{stdout} {stderr}");
}
