//! The worker: asks for work while it has room, runs each job on its own, and stops when asked to.
//!
//! One acquire is open at a time. With free slots it waits for work; with none it stays open, while something
//! runs, to hear of cancels. A finished job is followed by the next acquire at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use conductor_api::worker::WorkerLink;
use conductor_domain::ids::{ChangeId, WorkerId};
use conductor_managers::Registry;
use tokio::sync::Mutex;

use crate::{
    Aspect, Container, Guard, GuardCommand, Protection,
    job::Layout,
    perform::Performer,
    shift::Shift,
    shutdown::Shutdown,
    state_server::StateServer,
    tools::{self, ToolVersions},
};

/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// Microseconds since 1970, for the times of log lines.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

#[derive(Clone)]
pub struct WorkerConfig {
    pub id: WorkerId,
    pub name: String,
    /// Where job folders, unpacked templates and lasting folders are.
    pub data: PathBuf,
    /// How many jobs run at once.
    pub slots: usize,
    /// What managers ask by name, such as the path of a tool.
    pub settings: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// Networks it reaches.
    pub networks: BTreeSet<String>,
    pub guard: GuardCommand,
    /// Programs are started in containers.
    pub container: Option<Container>,
    /// What programs must be kept from: where that cannot be, the worker does not work.
    pub require_isolation: Vec<Aspect>,
    /// Only what this change waits for, and what dead owners left.
    pub only: Option<ChangeId>,
    /// How long an acquire may stay open.
    pub wait: Duration,
    pub clock: Clock,
}

impl WorkerConfig {
    pub fn new(id: WorkerId, name: impl Into<String>, data: impl Into<PathBuf>, clock: Clock) -> Self {
        Self {
            id,
            name: name.into(),
            data: data.into(),
            slots: 4,
            settings: BTreeMap::new(),
            labels: BTreeMap::new(),
            networks: BTreeSet::new(),
            guard: GuardCommand::default(),
            container: None,
            require_isolation: Vec::new(),
            only: None,
            wait: Duration::from_secs(10),
            clock,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error("the worker's folder {} cannot be used", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the server does not accept this worker: {0}")]
    Refused(String),
    /// Each as the guard describes it.
    #[error("required isolation is not to be had on this machine: {}", .0.join("; "))]
    NotIsolated(Vec<String>),
}

#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("{0}")]
    Failed(#[from] io::Error),
    #[error("required isolation is not to be had on this machine: {}", .0.join("; "))]
    NotIsolated(Vec<String>),
}

/// Starts the guard when it is first needed, and again should it die.
pub struct GuardKeeper {
    command: GuardCommand,
    container: Option<Container>,
    required: Vec<Aspect>,
    current: Mutex<Option<Guard>>,
    /// What the guard said of itself, once it has.
    isolation: OnceLock<Vec<String>>,
}

impl GuardKeeper {
    fn new(config: &WorkerConfig) -> Self {
        Self {
            command: config.guard.clone(),
            container: config.container.clone(),
            required: config.require_isolation.clone(),
            current: Mutex::new(None),
            isolation: OnceLock::new(),
        }
    }

    /// What keeps programs in, for the server to show; nothing before it is known.
    pub fn isolation(&self) -> Vec<String> {
        self.isolation.get().cloned().unwrap_or_default()
    }

    pub async fn get(&self) -> Result<Guard, GuardError> {
        let mut current = self.current.lock().await;
        if let Some(guard) = current.as_ref().filter(|guard| !guard.is_gone()) {
            return Ok(guard.clone());
        }
        let guard = Guard::start(&self.command).await?;
        let protections = match &self.container {
            Some(container) => container.describe(),
            None => guard.protections.to_vec(),
        };
        let missing = Protection::missing(&protections, &self.required);
        if !missing.is_empty() {
            return Err(GuardError::NotIsolated(missing.iter().map(ToString::to_string).collect()));
        }
        for protection in protections.iter().filter(|protection| !protection.confined) {
            tracing::warn!(%protection, "programs are less confined than they could be");
        }
        self.isolation.get_or_init(|| protections.iter().map(ToString::to_string).collect());
        *current = Some(guard.clone());
        Ok(guard)
    }
}

pub struct Worker {
    pub(crate) link: Arc<dyn WorkerLink>,
    pub(crate) registry: Registry,
    pub(crate) config: WorkerConfig,
    pub(crate) guard: Arc<GuardKeeper>,
    states: Arc<StateServer>,
    /// Known a moment after the start.
    pub(crate) tools: OnceLock<ToolVersions>,
}

impl Worker {
    pub fn new(link: Arc<dyn WorkerLink>, registry: Registry, config: WorkerConfig) -> Self {
        let guard = Arc::new(GuardKeeper::new(&config));
        Self { link, registry, config, guard, states: Arc::default(), tools: OnceLock::new() }
    }

    /// Works until `done` resolves, then lets its jobs finish.
    pub async fn run_until<T>(&self, done: impl Future<Output = T>) -> Result<T, WorkerError> {
        let shutdown = Shutdown::new();
        let stop = async {
            let output = done.await;
            shutdown.drain();
            output
        };
        let (run, output) = tokio::try_join!(self.run(shutdown.clone()), async { Ok(stop.await) })?;
        let () = run;
        Ok(output)
    }

    /// Works until `shutdown` says otherwise and what runs has ended. Dropped, it kills what runs.
    pub async fn run(&self, shutdown: Shutdown) -> Result<(), WorkerError> {
        let layout = self.open_folder()?;
        self.meet_guard().await?;
        let performer = Performer {
            link: self.link.clone(),
            registry: self.registry.clone(),
            layout,
            guard: self.guard.clone(),
            container: self.config.container.clone(),
            states: self.states.clone(),
            settings: Arc::new(self.config.settings.clone()),
            clock: self.config.clock.clone(),
            unpacking: Mutex::new(()),
        };
        let look = async {
            if self.tools.get().is_none() {
                let found = tools::look(&self.guard, &self.config.data, &self.config.settings).await;
                let _ = self.tools.set(found);
            }
            std::future::pending::<Result<(), WorkerError>>().await
        };
        tokio::select! {
            ended = Shift::new(self, performer, &shutdown).work(&shutdown) => ended.map_err(WorkerError::Refused),
            never = look => never,
        }?;
        // Not heard, it is taken for dead after a while, and nothing worse.
        let _ = tokio::time::timeout(GOODBYE, self.link.leave(self.config.id)).await;
        Ok(())
    }

    /// A worker of its own tells from the start what it can do; an embedded command may need no guard at all.
    async fn meet_guard(&self) -> Result<(), WorkerError> {
        let required = !self.config.require_isolation.is_empty();
        if self.config.only.is_some() && !required {
            return Ok(());
        }
        match self.guard.get().await {
            Ok(_) => Ok(()),
            Err(GuardError::NotIsolated(missing)) => Err(WorkerError::NotIsolated(missing)),
            Err(error) if required => Err(WorkerError::NotIsolated(vec![error.to_string()])),
            Err(error) => {
                tracing::error!(%error, "no program can be started");
                Ok(())
            }
        }
    }

    fn open_folder(&self) -> Result<Layout, WorkerError> {
        let path = &self.config.data;
        let failed = |source| WorkerError::Folder { path: path.clone(), source };
        let layout = Layout::open(path).map_err(failed)?;
        match layout.sweep() {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "removed job folders of dead workers"),
            Err(error) => tracing::warn!(%error, "job folders of dead workers could not be removed"),
        }
        Ok(layout)
    }
}
