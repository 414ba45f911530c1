//! The shortest story: one shared thing, two applications, by a scripted worker.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use conductor_api::{
    types::{ApplyRequest, DeploymentRequest, DestroyRequest},
    worker::{Acquire, Completion, JobResult, Task, Update, WorkerLink},
};
use conductor_domain::work::{Description, Done, Output, StepKind};
use conductor_engine::{Engine, EngineOptions};
use serde_json::json;

fn engine(folder: &std::path::Path) -> Arc<Engine> {
    Engine::open(EngineOptions {
        url: format!("sqlite:{}/c.db", folder.display()),
        key: None,
        key_file: folder.join("key"),
        data: folder.into(),
        migrate: true,
        connections: 4,
        lease: Duration::from_secs(30),
        default_workload: true,
        embedded: true,
        public_url: None,
        state_store: None,
    })
    .unwrap()
}

async fn work(engine: &Arc<Engine>) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let ask = Acquire {
            worker: engine.worker_id(),
            name: "test".into(),
            request: uuid::Uuid::now_v7(),
            repeated: false,
            slots: 4,
            managers: vec!["command".into(), "compose".into()],
            labels: BTreeMap::new(),
            tokens: true,
            isolation: vec![],
            networks: Default::default(),
            tools: Default::default(),
            wait_ms: 0,
            running: vec![],
            only: None,
        };
        let got = engine.acquire(ask).await.unwrap();
        if got.jobs.is_empty() {
            return seen;
        }
        for job in got.jobs {
            let result = match &job.task {
                Task::Describe { .. } => {
                    JobResult::Described { description: Description::default(), content: None }
                }
                Task::Test { .. } => JobResult::Done(Box::default()),
                Task::Step(step) => {
                    seen.push(format!("{} {}", step.kind, step.subject.name));
                    let exists = (step.kind == StepKind::Delete).then_some(false);
                    let outputs = BTreeMap::from([(
                        "token".to_owned(),
                        Output { value: json!("hush-hush"), sensitive: true },
                    )]);
                    JobResult::Done(Box::new(Done { outputs, exists, ..Done::default() }))
                }
            };
            engine.complete(job.claim, Completion { result, rest: Update::default() }).await.unwrap();
        }
    }
}

#[tokio::test]
async fn shared_by_two_and_gone_with_the_last() {
    let folder = std::env::temp_dir().join(format!("conductor-smoke-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&folder).unwrap();
    let engine = engine(&folder);
    let document = json!({"kind":"Template","name":"thing","type":"thing","version":"1.0.0","manager":"command","config":{}});
    engine.apply(ApplyRequest { document, content: None, dry_run: false }, "me").await.unwrap();
    work(&engine).await;
    let manifest = |app: &str| {
        format!(
            "apiVersion: score.dev/v1b1\nmetadata:\n  name: {app}\ncontainers:\n  main:\n    image: busybox\n    variables:\n      T: ${{resources.db.token}}\nresources:\n  db:\n    type: thing\n    id: orders\n"
        )
    };
    for (app, expected) in [("app-a", vec!["create orders", "create app-a"]), ("app-b", vec!["create app-b"])]
    {
        let request =
            DeploymentRequest { environment: "dev".into(), manifest: manifest(app), ..Default::default() };
        let accepted = engine.deploy(request, "me", None).await.unwrap();
        assert_eq!(work(&engine).await, expected);
        let ended = engine.deployment(accepted.id.unwrap()).await.unwrap();
        assert_eq!(ended.status, "succeeded", "{ended:?}");
        assert_eq!(engine.outputs(app, "dev", true).await.unwrap()["db"]["token"], json!("hush-hush"));
        assert_eq!(engine.outputs(app, "dev", false).await.unwrap()["db"]["token"], json!(null));
    }
    for (app, expected) in [("app-a", vec!["delete app-a"]), ("app-b", vec!["delete app-b", "delete orders"])]
    {
        let request = DestroyRequest {
            environment: "dev".into(),
            application: Some(app.into()),
            dry_run: false,
            keep_protected: false,
        };
        let accepted = engine.destroy(request, "me", None).await.unwrap();
        assert_eq!(work(&engine).await, expected, "{accepted:?}");
        let ended = engine.deployment(accepted.id.unwrap()).await.unwrap();
        assert_eq!(ended.status, "succeeded", "{ended:?}");
    }
    let left = engine.resources(Default::default()).await.unwrap().items;
    assert!(
        left.iter().all(|resource| resource.phase == conductor_domain::lifecycle::Phase::Deleted),
        "{left:?}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}
