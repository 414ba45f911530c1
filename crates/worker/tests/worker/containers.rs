//! Programs behind a container engine: a script stands in for it, notes what it is told and runs the program.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use conductor_worker::Container;
use serde_json::json;

use super::{
    beats::{beating, beats, wait_for_beats},
    script::{Bench, failed, order},
};

const ENGINE: &str = r#"#!/bin/sh
echo "$@" >> NOTES
[ "$1" = rm ] && exit 0
shift
for arg in "$@"; do
    case $arg in
        --env-file=*) environment=${arg#*=} ;;
        --workdir=*) cd "${arg#*=}" ;;
        --*) ;;
        *) break ;;
    esac
    shift
done
shift
while IFS= read -r line; do export "$line"; done < "$environment"
exec "$@"
"#;

/// A bench whose programs go through the script. The folder holds what it noted.
fn bench(folder: &Path) -> Bench {
    let engine = folder.join("podman");
    fs::write(&engine, ENGINE.replace("NOTES", &folder.join("notes").display().to_string())).unwrap();
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
    Bench::with(&[], |config| config.container = Some(Container { engine, image: "image".to_owned() }))
}

fn notes(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("notes")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_program_is_handed_to_the_engine_and_its_answer_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(folder.path());
    let config = json!({
        "sh": "cat; echo $TOKEN; pwd; echo logged >&2", "stdin": "given ", "env": { "TOKEN": "hidden" },
        "limits": { "memory": "64MiB" }
    });
    let stdout = bench.stdout(config).await;
    assert!(stdout.starts_with("given hidden\n/") && stdout.ends_with("/work"), "{stdout}");
    assert!(bench.link.log().contains(&"logged".to_owned()));
    let [run] = &notes(folder.path())[..] else { panic!("{:?}", notes(folder.path())) };
    assert!(run.contains("--memory=67108864") && !run.contains("hidden"), "{run}");
    let told = bench.link.kept().acquires[0].isolation.clone();
    assert_eq!(told[0], "files: confined by a container of podman");
}

#[tokio::test]
async fn one_that_is_killed_is_gone_and_its_container_removed() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(folder.path());
    let beating = beating(bench.outside.path());
    let order = order(json!({ "sh": beating, "grace": 100, "env": { "PATH": "/usr/bin:/bin" } }));
    let operation = order.claim.operation;
    bench.link.offer(order);
    let outside = bench.outside.path().to_owned();
    tokio::task::spawn_blocking(move || wait_for_beats(&outside)).await.unwrap();
    bench.link.cancel(operation);
    failed(bench.link.completed(1).await);
    let before = beats(bench.outside.path());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(beats(bench.outside.path()), before);
    let [run, removal] = &notes(folder.path())[..] else { panic!("{:?}", notes(folder.path())) };
    let name = removal.strip_prefix("rm --force ").unwrap();
    assert!(run.contains(&format!("--name={name}")), "{run}");
}
