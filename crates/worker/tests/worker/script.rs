//! A manager that runs the shell script or python program its template holds, and a bench to run it on.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use conductor_api::worker::{Claim, JobOrder, JobResult, Task};
use conductor_domain::{
    ids::{ChangeId, OperationId, ResourceId, WorkerId},
    work::{Done, Failure, FailureCode, Level, Output, Step, StepKind, Subject},
};
use conductor_managers::{
    Allow, Described, Destination, Job, Manager, Packed, Program, Registry, StopSignal, Stopped,
    TemplateSource,
};
use conductor_worker::{GuardCommand, Shutdown, Worker, WorkerConfig, WorkerError};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::link::FakeLink;

pub struct Script;

fn texts(config: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = config.get(key).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn program(config: &Map<String, Value>, folder: PathBuf) -> Program {
    let text = |key| config.get(key).and_then(Value::as_str);
    let (path, args) = match (text("sh"), text("python")) {
        (Some(script), _) => ("/bin/sh", vec!["-c".to_owned(), script.to_owned()]),
        (None, Some(script)) => ("/usr/bin/python3", vec!["-c".to_owned(), script.to_owned()]),
        (None, None) => (text("program").unwrap_or("/bin/true"), Vec::new()),
    };
    let ports =
        config.get("connect").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64);
    let env = config.get("env").and_then(Value::as_object).into_iter().flatten();
    Program {
        path: path.into(),
        args,
        env: env.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect(),
        folder,
        stdin: text("stdin").unwrap_or_default().as_bytes().to_vec(),
        stop: StopSignal::Terminate,
        grace: Duration::from_millis(config.get("grace").and_then(Value::as_u64).unwrap_or(10_000)),
        allow: Allow {
            read: texts(config, "read").into_iter().map(PathBuf::from).collect(),
            write: texts(config, "write").into_iter().map(PathBuf::from).collect(),
            connect: ports
                .map(|port| Destination { host: "127.0.0.1".to_owned(), port: port as u16 })
                .collect(),
        },
    }
}

#[async_trait]
impl Manager for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    async fn describe(&self, job: &dyn Job, template: &TemplateSource) -> Result<Described, Failure> {
        let mut config = template.config.clone();
        config.insert("sh".to_owned(), json!("echo fetched > file"));
        job.exec(program(&config, job.folder()), &mut |_| {}).await?;
        let packed: Packed = conductor_managers::pack::pack(&job.folder())?;
        Ok(Described { content: Some(packed), ..Described::default() })
    }

    async fn run(&self, job: &dyn Job, step: &Step) -> Result<Done, Failure> {
        let config = &step.config;
        if let Some(reason) = config.get("panic").and_then(Value::as_str) {
            panic!("{reason}");
        }
        if config.contains_key("hang") {
            std::future::pending::<()>().await;
        }
        if let Some(secret) = config.get("secret").and_then(Value::as_str) {
            job.keep_secret(secret);
        }
        if let Some(entry) = config.get("journal") {
            job.journal(entry.clone()).await?;
            job.log(Level::Info, "journaled");
        }
        let mut program = program(config, job.folder());
        if config.contains_key("state") {
            let address = job.state_address();
            program.env.extend([
                ("URL".to_owned(), address.url),
                ("PASSWORD".to_owned(), address.password),
                ("PORT".to_owned(), address.port.to_string()),
            ]);
        }
        let folder = job.folder().display().to_string();
        if let Some(content) = job.content() {
            program.env.insert("CONTENT".to_owned(), content.display().to_string());
        }
        let mut lines = Vec::new();
        let exit = job.exec(program, &mut |line| lines.push(line.to_owned())).await?;
        if let Some(stopped) = exit.stopped {
            // The code is put right by the worker; the words are ours.
            assert_ne!((stopped, job.cancelled()), (Stopped::Cancelled, false));
            return Err(Failure::failed(format!("stopped: {stopped:?}")));
        }
        match exit.code {
            Some(0) => {
                let output = |value: Value| Output { value, sensitive: false };
                let outputs = [
                    ("stdout".to_owned(), output(lines.join("\n").into())),
                    ("folder".to_owned(), output(folder.into())),
                ];
                Ok(Done { outputs: outputs.into(), ..Done::default() })
            }
            code => Err(Failure::failed(format!("{code:?}: {}", exit.last_line))),
        }
    }
}

pub const NAMESPACES: &[&str] = &[];
pub const PLAIN: &[&str] = &["--plain"];

pub fn guard(flags: &[&str]) -> GuardCommand {
    GuardCommand {
        program: env!("CARGO_BIN_EXE_conductor-guard").into(),
        args: flags.iter().map(|&flag| flag.to_owned()).collect(),
    }
}

pub fn order(config: Value) -> JobOrder {
    let operation = OperationId(Uuid::now_v7());
    let step = Step {
        kind: StepKind::Create,
        operation,
        attempt: 1,
        subject: Subject {
            id: ResourceId(Uuid::now_v7()),
            name: "thing".to_owned(),
            slug: "thing".to_owned(),
            kind: "thing".to_owned(),
            class: "default".to_owned(),
            environment: "dev".to_owned(),
            application: None,
        },
        config: config.as_object().cloned().unwrap_or_default(),
        parameters: Map::new(),
        previous: None,
        state: None,
        dependencies: BTreeMap::new(),
        secrets: texts(config.as_object().unwrap_or(&Map::new()), "secrets"),
        journal: vec![],
        backend: None,
    };
    JobOrder {
        claim: Claim { operation, fence: 1 },
        token: None,
        change: ChangeId(Uuid::now_v7()),
        manager: "script".to_owned(),
        content: None,
        task: Task::Step(Box::new(step)),
        credentials: Default::default(),
        lease_ms: 30_000,
        timeout_ms: 60_000,
        trace: None,
    }
}

pub fn config(data: &Path, flags: &[&str]) -> WorkerConfig {
    WorkerConfig {
        guard: guard(flags),
        wait: Duration::from_secs(5),
        ..WorkerConfig::new(WorkerId(Uuid::now_v7()), "test", data, Arc::new(|| 1_700_000_000_000_000))
    }
}

/// A worker at work, with a folder of its own and one outside of it.
pub struct Bench {
    pub link: Arc<FakeLink>,
    pub data: TempDir,
    pub outside: TempDir,
    pub shutdown: Shutdown,
    pub running: JoinHandle<Result<(), WorkerError>>,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(NAMESPACES, |_| {})
    }

    pub fn with(flags: &[&str], change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let (data, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (link, shutdown) = (Arc::new(FakeLink::default()), Shutdown::new());
        let mut config = config(data.path(), flags);
        change(&mut config);
        let worker = Worker::new(link.clone(), Registry::default().with(Script), config);
        let running = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { worker.run(shutdown).await }
        });
        Self { link, data, outside, shutdown, running }
    }

    /// Runs one job to its end.
    pub async fn run(&self, config: Value) -> JobResult {
        let count = self.link.kept().completions.len();
        self.link.offer(order(config));
        self.link.completed(count + 1).await
    }

    /// Runs one job that must succeed, and returns what it printed.
    pub async fn stdout(&self, config: Value) -> String {
        match self.run(config).await {
            JobResult::Done(done) => done.outputs["stdout"].value.as_str().unwrap().to_owned(),
            other => panic!("{other:?}: {:?}", self.link.log()),
        }
    }

    pub async fn failure(&self, config: Value) -> Failure {
        failed(self.run(config).await)
    }

    pub fn jobs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.data.path().join("jobs")).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    }
}

pub fn failed(result: JobResult) -> Failure {
    match result {
        JobResult::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

pub fn is(failure: &Failure, code: FailureCode) {
    assert_eq!(failure.code, code, "{failure:?}");
}
