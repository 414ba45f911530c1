//! Our side of a measurement: an engine, a catalogue, and scripted workers that call it directly.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use conductor_api::{
    types::{ApplyRequest, DeploymentRequest},
    worker::{Acquire, Completion, JobOrder, JobResult, Task, Update, WorkerLink},
};
use conductor_domain::{
    ids::WorkerId,
    work::{Description, Done, Level, LogLine, Output},
    workload,
};
use conductor_engine::{Engine, EngineOptions};
use serde_json::json;
use uuid::Uuid;

use crate::{Bench, Outcome};

pub const ENVIRONMENTS: u64 = 64;
pub const RESOURCES: usize = 5;
/// Written by each of the five resources: twenty in all.
pub const LINES: usize = 4;
/// As the command line opens a server's engine.
const CONNECTIONS: usize = 8;

/// Another number may be tried by `CONDUCTOR_BENCH_CONNECTIONS`.
fn connections() -> usize {
    std::env::var("CONDUCTOR_BENCH_CONNECTIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(CONNECTIONS)
}

pub fn options(url: String, data: &Path) -> EngineOptions {
    EngineOptions {
        url,
        key: None,
        key_file: data.join("key"),
        data: data.to_owned(),
        migrate: true,
        connections: connections(),
        lease: Duration::from_secs(30),
        default_workload: true,
        embedded: false,
        public_url: None,
        state_store: None,
    }
}

pub async fn open(options: EngineOptions) -> Outcome<Arc<Engine>> {
    Ok(tokio::task::spawn_blocking(|| Engine::open(options)).await??)
}

/// An engine on each database there is, with its catalogue: what it is called, and where it is.
pub async fn open_both(bench: &Bench, name: &str) -> Outcome<Vec<(&'static str, String, Arc<Engine>)>> {
    let data = bench.folder.join(name);
    std::fs::create_dir_all(&data)?;
    let mut places = vec![("SQLite", format!("sqlite:{}", data.join("conductor.db").display()))];
    if let Some(postgres) = &bench.postgres {
        places.push(("PostgreSQL", postgres.create(&format!("ours_{name}")).await?));
    }
    let mut opened = Vec::new();
    for (kind, url) in places {
        let own = data.join(kind);
        std::fs::create_dir_all(&own)?;
        let engine = open(options(url.clone(), &own)).await?;
        furnish(&engine).await?;
        opened.push((kind, url, engine));
    }
    Ok(opened)
}

/// The environments, and one template that scripted workers serve.
pub async fn furnish(engine: &Arc<Engine>) -> Outcome {
    let template = json!({
        "kind": "Template", "name": "thing", "type": "thing", "version": "1.0.0", "manager": "command", "config": {},
    });
    let environments = (0..ENVIRONMENTS).map(|i| json!({ "kind": "Environment", "name": environment(i) }));
    for document in environments.chain([template]) {
        engine.apply(ApplyRequest { document, content: None, dry_run: false }, "bench").await?;
    }
    let worker = Scripted::new(engine);
    while worker.one(0).await?.is_some() {}
    Ok(())
}

pub fn environment(i: u64) -> String {
    format!("env-{}", i % ENVIRONMENTS)
}

pub fn score(application: &str, resources: usize) -> String {
    let mut text = format!(
        "apiVersion: score.dev/v1b1\nmetadata:\n  name: {application}\ncontainers:\n  main:\n    image: busybox\n"
    );
    if resources > 0 {
        text.push_str("    variables:\n");
        (0..resources).for_each(|i| text.push_str(&format!("      R{i}: ${{resources.r{i}.host}}\n")));
        text.push_str("resources:\n");
        (0..resources).for_each(|i| {
            text.push_str(&format!("  r{i}:\n    type: thing\n    params:\n      size: {i}\n"))
        });
    }
    text
}

/// One deployment of an application of its own.
pub async fn deploy(engine: &Arc<Engine>, number: u64, resources: usize) -> Outcome {
    let manifest = score(&format!("app-{number}"), resources);
    let request = DeploymentRequest { environment: environment(number), manifest, ..Default::default() };
    engine.deploy(request, "bench", None).await?;
    Ok(())
}

pub fn lines(count: usize) -> Vec<LogLine> {
    let line = |i| LogLine {
        phase: None,
        at: 1_700_000_000_000_000 + i as i64,
        level: Level::Info,
        stream: "stdout".into(),
        text: format!("thing: step {i} of the creation is under way, 10s elapsed so far"),
    };
    (0..count).map(line).collect()
}

/// A worker that does nothing, and does it at once.
#[derive(Clone)]
pub struct Scripted {
    engine: Arc<Engine>,
    id: WorkerId,
}

impl Scripted {
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self { engine: engine.clone(), id: WorkerId(Uuid::now_v7()) }
    }

    pub async fn acquire(&self, wait_ms: u64) -> Outcome<Option<JobOrder>> {
        let ask = Acquire {
            worker: self.id,
            name: "bench".into(),
            request: Uuid::now_v7(),
            slots: 1,
            managers: vec!["command".into(), "compose".into()],
            labels: BTreeMap::new(),
            tokens: true,
            isolation: vec![],
            networks: Default::default(),
            tools: Default::default(),
            wait_ms,
            running: vec![],
            repeated: false,
            only: None,
        };
        Ok(self.engine.acquire(ask).await?.jobs.pop())
    }

    pub async fn complete(&self, job: &JobOrder) -> Outcome {
        let (result, count) = match &job.task {
            Task::Describe { .. } => {
                (JobResult::Described { description: Description::default(), content: None }, 0)
            }
            Task::Test { .. } => (JobResult::Done(Box::default()), 0),
            Task::Step(step) => {
                let output = Output { value: json!("thing.example.internal"), sensitive: false };
                let outputs = BTreeMap::from([("host".to_owned(), output)]);
                let count = if step.subject.kind == workload::TYPE { 0 } else { LINES };
                (JobResult::Done(Box::new(Done { outputs, ..Done::default() })), count)
            }
        };
        let rest = Update { lines: lines(count), ..Update::default() };
        Ok(self.engine.complete(job.claim, Completion { result, rest }).await?)
    }

    /// One job from beginning to end; says whether it was a workload, or that there was none.
    pub async fn one(&self, wait_ms: u64) -> Outcome<Option<bool>> {
        let Some(job) = self.acquire(wait_ms).await? else {
            return Ok(None);
        };
        self.complete(&job).await?;
        Ok(Some(matches!(&job.task, Task::Step(step) if step.subject.kind == workload::TYPE)))
    }
}
