//! A job for tests: programs are started directly, state lives in memory behind a real HTTP server.

pub mod server;
mod state;
pub mod tools;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use conductor_domain::{
    ids::{OperationId, ResourceId},
    work::{Done, Failure, Level, Previous, Step, StepKind, Subject},
};
use conductor_managers::{Exit, Job, LineSink, Program, StateAddress, StopSignal, Stopped};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};
use uuid::Uuid;

pub use state::StateServer;

/// Only this variable leaves out what needs servers or terraform.
pub fn quick() -> bool {
    std::env::var("CONDUCTOR_TEST_QUICK").is_ok_and(|value| value == "1")
}

/// A worker's lasting side, shared by the jobs of one test.
pub struct Worker {
    pub lasting: Arc<TempDir>,
    pub state: StateServer,
    pub settings: Map<String, Value>,
}

impl Worker {
    pub async fn new() -> Arc<Self> {
        Self::with(Map::new()).await
    }

    pub async fn with(settings: Map<String, Value>) -> Arc<Self> {
        let lasting = Arc::new(TempDir::new().unwrap());
        Arc::new(Self { lasting, state: StateServer::start().await, settings })
    }

    /// The same worker as another job sees it.
    pub async fn with_own_state(&self) -> Self {
        let (lasting, settings) = (self.lasting.clone(), self.settings.clone());
        Self { lasting, state: StateServer::start().await, settings }
    }
}

pub struct TestJob {
    worker: Arc<Worker>,
    folder: TempDir,
    content: Option<PathBuf>,
    secrets: Mutex<Vec<String>>,
    log: Mutex<Vec<String>>,
    pub journal: Mutex<Vec<Value>>,
    /// The arguments of every program, in order.
    pub started: Mutex<Vec<String>>,
    /// Ends the next program this way, this long after its start.
    pub stop_after: Mutex<Option<(Duration, Stopped)>>,
}

impl TestJob {
    pub fn new(worker: &Arc<Worker>, content: Option<&Path>) -> Self {
        Self {
            worker: worker.clone(),
            folder: TempDir::new().unwrap(),
            content: content.map(Path::to_owned),
            secrets: Mutex::default(),
            log: Mutex::default(),
            journal: Mutex::default(),
            started: Mutex::default(),
            stop_after: Mutex::default(),
        }
    }

    /// The same job in a folder with a very long name.
    pub fn deep(mut self) -> Self {
        self.folder = tempfile::Builder::new().prefix(&"deep".repeat(30)).tempdir().unwrap();
        self
    }

    pub fn lines(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }
}

#[async_trait]
impl Job for TestJob {
    fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    fn content(&self) -> Option<PathBuf> {
        self.content.clone()
    }

    fn lasting_folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.worker.lasting.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Ok(path)
    }

    async fn exec(&self, program: Program, stdout: LineSink<'_>) -> Result<Exit, Failure> {
        self.started.lock().unwrap().push(program.args.join(" "));
        let mut child = Command::new(&program.path)
            .args(&program.args)
            .env_clear()
            .envs(&program.env)
            .current_dir(&program.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::failed(error.to_string()))?;
        let mut input = child.stdin.take().unwrap();
        tokio::spawn(async move {
            let _ = input.write_all(&program.stdin).await;
        });
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut last_line = String::new();
        let (mut out_open, mut err_open) = (true, true);
        let stop = self.stop_after.lock().unwrap().take();
        let deadline = tokio::time::sleep(stop.map_or(Duration::from_secs(600), |(after, _)| after));
        tokio::pin!(deadline);
        let mut stopped = None;
        while out_open || err_open {
            tokio::select! {
                line = out.next_line(), if out_open => match line.unwrap() {
                    Some(line) => stdout(&line),
                    None => out_open = false,
                },
                line = err.next_line(), if err_open => match line.unwrap() {
                    Some(line) => {
                        self.log(Level::Info, &line);
                        if !line.trim().is_empty() {
                            last_line = line;
                        }
                    }
                    None => err_open = false,
                },
                () = &mut deadline, if stopped.is_none() => {
                    stopped = Some(stop.expect("no test program runs for ten minutes").1);
                    let signal = match program.stop {
                        StopSignal::Interrupt => "-INT",
                        StopSignal::Terminate => "-TERM",
                    };
                    let pid = child.id().unwrap().to_string();
                    Command::new("kill").args([signal, &pid]).status().await.unwrap();
                }
            }
        }
        let status = child.wait().await.unwrap();
        Ok(Exit { code: status.code(), last_line, stopped })
    }

    fn log(&self, _level: Level, text: &str) {
        let mut text = text.to_owned();
        for secret in self.secrets.lock().unwrap().iter() {
            text = text.replace(secret.as_str(), "***");
        }
        self.log.lock().unwrap().push(text);
    }

    fn keep_secret(&self, value: &str) {
        self.secrets.lock().unwrap().push(value.to_owned());
    }

    async fn journal(&self, entry: Value) -> Result<(), Failure> {
        self.journal.lock().unwrap().push(entry);
        Ok(())
    }

    fn state_address(&self) -> StateAddress {
        self.worker.state.address()
    }

    async fn read_state(&self) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.worker.state.stored())
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.worker.settings.get(name).and_then(Value::as_str).map(str::to_owned)
    }
}

pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

pub fn step(kind: StepKind, config: Value, parameters: Value) -> Step {
    Step {
        kind,
        operation: OperationId(Uuid::from_u128(1)),
        attempt: 1,
        subject: Subject {
            id: ResourceId(Uuid::from_u128(2)),
            name: "orders-db".into(),
            slug: "orders-db-a1b2".into(),
            kind: "postgres".into(),
            class: "default".into(),
            environment: "dev".into(),
            application: Some("orders".into()),
        },
        config: object(config),
        parameters: object(parameters),
        previous: None,
        state: None,
        dependencies: [].into(),
        secrets: Vec::new(),
        journal: vec![],
        backend: None,
    }
}

/// The step that follows one that ended well.
pub fn after(step: &Step, done: &Done, kind: StepKind) -> Step {
    let outputs = done.outputs.iter().map(|(name, output)| (name.clone(), output.value.clone())).collect();
    Step {
        kind,
        previous: Some(Previous { parameters: step.parameters.clone(), outputs }),
        state: done.state.clone(),
        ..step.clone()
    }
}

pub fn output<'a>(done: &'a Done, name: &str) -> &'a Value {
    &done.outputs.get(name).unwrap_or_else(|| panic!("no output {name} in {done:?}")).value
}
