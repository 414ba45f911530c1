//! The `command` manager with real scripts.

use std::{fs, path::Path, time::Duration};

use conductor_domain::work::{Failure, FailureCode, StepKind};
use conductor_managers::{Command, Manager, Stopped, TemplateSource, pack};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{TestJob, Worker, after, object, output, step};

/// The script as a template's content: packed at apply, unpacked on the worker.
fn content(script: &str) -> TempDir {
    let base = TempDir::new().unwrap();
    fs::write(base.path().join("tool.sh"), format!("#!/bin/sh\n{script}")).unwrap();
    let packed =
        pack::prepare(&object(json!({"program": "./tool.sh"})), "command", base.path()).unwrap().unwrap();
    let into = TempDir::new().unwrap();
    pack::unpack(&packed.bytes, into.path()).unwrap();
    into
}

async fn fails(script: &str, kind: StepKind) -> (Failure, String) {
    let content = content(script);
    let job = TestJob::new(&Worker::new().await, Some(content.path()));
    let failure =
        Command.run(&job, &step(kind, json!({"program": "./tool.sh"}), json!({}))).await.unwrap_err();
    (failure, job.lines())
}

#[tokio::test]
async fn a_program_gets_the_step_and_answers_with_outputs() {
    let script = r#"
        cat > "$HOME/in.json"; env | cut -d= -f1 | sort | tr '\n' ' ' > "$HOME/env"
        echo "working on $1" >&2
        echo '{"outputs":{"step":"'$1'","token":"s3cr3t-value"},'
        echo ' "sensitive":["token"],"state":{"n":1},"externalId":"ext-1"}'"#;
    let content = content(script);
    let job = TestJob::new(&Worker::new().await, Some(content.path()));
    let mut create = step(StepKind::Create, json!({"program": "./tool.sh"}), json!({"size": "small"}));
    create.dependencies = [("db".to_owned(), object(json!({"host": "h"})))].into();
    let done = Command.run(&job, &create).await.unwrap();
    assert_eq!(output(&done, "step"), "create");
    assert!(done.outputs["token"].sensitive && !done.outputs["step"].sensitive);
    assert_eq!(done.external_id.as_deref(), Some("ext-1"));
    assert_eq!(done.state, Some(json!({"n": 1})));
    assert!(job.lines().contains("working on create"));
    let read = |name: &str| fs::read_to_string(conductor_managers::Job::folder(&job).join(name)).unwrap();
    let document: Value = serde_json::from_str(&read("in.json")).unwrap();
    assert_eq!(document["step"], "create");
    assert_eq!(document["operation"]["attempt"], 1);
    assert!(document["resource"]["id"].as_str().unwrap().starts_with("res_"));
    assert_eq!(document["resource"]["application"], "orders");
    assert_eq!(document["parameters"], json!({"size": "small"}));
    assert_eq!(document["previous"], Value::Null);
    assert_eq!(document["dependencies"], json!({"db": {"host": "h"}}));
    let env = read("env");
    let allowed = ["HOME", "LANG", "PATH", "TMPDIR", "PWD", "SHLVL", "OLDPWD", "_"];
    assert!(env.split_whitespace().all(|name| allowed.contains(&name)), "{env}");

    let update = after(&create, &done, StepKind::Update);
    Command.run(&job, &update).await.unwrap();
    let document: Value = serde_json::from_str(&read("in.json")).unwrap();
    assert_eq!(document["previous"]["outputs"]["step"], "create");
    assert_eq!(document["state"], json!({"n": 1}));
}

#[tokio::test]
async fn exit_codes_say_what_happened() {
    let (failure, _) = fails("echo busy >&2; exit 75", StepKind::Create).await;
    assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Transient, "busy"));
    let (failure, _) = fails("echo one >&2; echo the quota is used up >&2; exit 3", StepKind::Create).await;
    assert_eq!((failure.code, failure.message.as_str()), (FailureCode::Failed, "the quota is used up"));
    for kind in [StepKind::Observe, StepKind::Plan] {
        assert_eq!(fails("exit 64", kind).await.0.code, FailureCode::Unsupported);
    }
    let (failure, _) = fails("exit 64", StepKind::Create).await;
    assert_eq!(failure.code, FailureCode::Failed);
    assert!(failure.message.contains("exit code 64"), "{}", failure.message);
}

#[tokio::test]
async fn an_answer_that_is_no_json_is_described_but_never_shown() {
    let (failure, lines) = fails("echo '{\"password\": \"hunter22\", oops'", StepKind::Create).await;
    assert!(failure.message.contains("line 1 column"), "{}", failure.message);
    assert!(!failure.message.contains("hunter22") && !lines.contains("hunter22"));
    assert!(fails("true", StepKind::Create).await.0.message.contains("it wrote nothing"));
    assert!(fails("echo '[]'", StepKind::Create).await.0.message.contains("no object"));
    assert!(fails("echo '{}{}'", StepKind::Create).await.0.message.contains("trailing"));
    let (failure, _) = fails("head -c 17000000 /dev/zero | tr '\\0' x", StepKind::Create).await;
    assert!(failure.message.contains("16 MiB"), "{}", failure.message);
}

#[tokio::test]
async fn delete_and_observe_answer_briefly() {
    let content = content(r#"case $1 in observe) echo '{"exists":false}';; delete) ;; esac"#);
    let job = TestJob::new(&Worker::new().await, Some(content.path()));
    let run = |kind| step(kind, json!({"program": "./tool.sh"}), json!({}));
    assert_eq!(Command.run(&job, &run(StepKind::Observe)).await.unwrap().exists, Some(false));
    assert_eq!(Command.run(&job, &run(StepKind::Delete)).await.unwrap().exists, None);
}

#[tokio::test]
async fn an_output_that_carries_a_secret_input_is_sensitive() {
    let content = content(r#"echo '{"outputs":{"url":"http://u:longsecret@h","plain":"x"}}'"#);
    let job = TestJob::new(&Worker::new().await, Some(content.path()));
    let mut create = step(StepKind::Create, json!({"program": "./tool.sh"}), json!({}));
    create.secrets = vec!["longsecret".to_owned()];
    let done = Command.run(&job, &create).await.unwrap();
    assert!(done.outputs["url"].sensitive && !done.outputs["plain"].sensitive);
}

#[tokio::test]
async fn a_program_that_was_stopped_says_why() {
    let content = content("exec sleep 60");
    for (stopped, code) in [
        (Stopped::Cancelled, FailureCode::Cancelled),
        (Stopped::TimedOut, FailureCode::TimedOut),
        (Stopped::LeaseLost, FailureCode::Transient),
    ] {
        let job = TestJob::new(&Worker::new().await, Some(content.path()));
        *job.stop_after.lock().unwrap() = Some((Duration::from_millis(50), stopped));
        let create = step(StepKind::Create, json!({"program": "./tool.sh"}), json!({}));
        assert_eq!(Command.run(&job, &create).await.unwrap_err().code, code);
    }
}

#[tokio::test]
async fn a_score_provisioner_keeps_its_states() {
    let script = r#"cat > "$HOME/in.json"
        echo '{"resource_state":{"r":1},"shared_state":{"seen":true},"resource_outputs":{"mode":"'$2'"},"manifests":[]}'"#;
    let content = content(script);
    let job = TestJob::new(&Worker::new().await, Some(content.path()));
    let config = json!({"program": "./tool.sh", "protocol": "score", "args": ["--mode", "<mode>"], "sensitive": ["mode"]});
    let create = step(StepKind::Create, config, json!({"a": 1}));
    let done = Command.run(&job, &create).await.unwrap();
    assert_eq!(output(&done, "mode"), "provision");
    assert!(done.outputs["mode"].sensitive);
    assert_eq!(done.state, Some(json!({"resource_state": {"r": 1}, "shared_state": {"seen": true}})));
    Command.run(&job, &after(&create, &done, StepKind::Update)).await.unwrap();
    let text = fs::read_to_string(conductor_managers::Job::folder(&job).join("in.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["resource_uid"], "postgres.default#orders-db");
    assert_eq!(document["resource_params"], json!({"a": 1}));
    assert_eq!(document["resource_state"], json!({"r": 1}));
    assert_eq!(document["shared_state"], json!({"seen": true}));
    assert_eq!(document["source_workload"], "orders");
    let gone = Command.run(&job, &after(&create, &done, StepKind::Delete)).await.unwrap();
    assert_eq!(gone.exists, None);
    let observe = Command.run(&job, &after(&create, &done, StepKind::Observe)).await.unwrap_err();
    assert_eq!(observe.code, FailureCode::Unsupported);
}

#[tokio::test]
async fn describe_checks_the_template() {
    let worker = Worker::new().await;
    let content = content("true");
    let job = TestJob::new(&worker, None);
    let describe = async |config: Value, content: Option<&Path>| {
        let template = TemplateSource {
            config: object(config),
            content: content.map(Path::to_owned),
            ..Default::default()
        };
        Command.describe(&job, &template).await
    };
    let described = describe(json!({"program": "./tool.sh"}), Some(content.path())).await.unwrap();
    assert!(described.description.can_observe && described.content.is_none());
    assert!(
        !describe(json!({"program": "sh", "protocol": "score"}), None).await.unwrap().description.can_plan
    );
    assert!(describe(json!({}), None).await.unwrap_err().message.contains("config.program is missing"));
    let wrong = describe(json!({"program": "sh", "protocol": "skore"}), None).await.unwrap_err();
    assert!(wrong.hint.unwrap().contains("did you mean `score`?"));
    assert!(describe(json!({"program": "no-such-program-anywhere"}), None).await.is_err());
    assert!(describe(json!({"program": "./other.sh"}), Some(content.path())).await.is_err());
    assert!(describe(json!({"program": "sh", "args": ["x"]}), None).await.is_err());
}
