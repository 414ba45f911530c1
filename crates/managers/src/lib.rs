//! How things are made: the manager trait and what implements it.
//!
//! A manager never starts a program, opens a port or reads the clock by itself: it is handed a [`Job`].
//! Every step may be started again after a crash, so every step must be safe to repeat.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use conductor_domain::work::{Description, Done, Failure, Level, Step};
use serde_json::{Map, Value};

mod command;
mod compose;
pub mod config;
mod database;
mod files;
mod outputs;
pub mod pack;
mod program;
mod terraform;
mod text;
pub mod tools;

pub use command::Command;
pub use compose::Compose;
pub use config::{Shared, duration};
pub use database::Database;
pub use pack::Packed;
pub use terraform::Terraform;

/// What a template names, when it is applied.
#[derive(Clone, Debug, Default)]
pub struct TemplateSource {
    pub config: Map<String, Value>,
    /// The JSON Schema written in the catalogue, if any.
    pub parameters: Option<Value>,
    /// The template's files, unpacked and read-only.
    pub content: Option<PathBuf>,
}

/// What a manager says of a template when it is applied.
#[derive(Clone, Debug, Default)]
pub struct Described {
    pub description: Description,
    /// Files the manager fetched itself (a `git::` source), to be kept with the template version.
    pub content: Option<Packed>,
}

#[async_trait]
pub trait Manager: Send + Sync {
    fn name(&self) -> &'static str;

    /// Checks a template's config and reads what planning needs to know.
    async fn describe(&self, job: &dyn Job, template: &TemplateSource) -> Result<Described, Failure>;

    /// Carries out one step. Observe and plan may answer [`Failure::unsupported`].
    async fn run(&self, job: &dyn Job, step: &Step) -> Result<Done, Failure>;
}

/// A TCP destination a program may reach. `host` is informational where no network namespace is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub host: String,
    pub port: u16,
}

/// What a program may reach beyond its job folder and the system's own folders.
#[derive(Clone, Debug, Default)]
pub struct Allow {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub connect: Vec<Destination>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    Interrupt,
    Terminate,
}

/// A program to start. Its environment is exactly `env`: nothing is inherited.
#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub folder: PathBuf,
    pub stdin: Vec<u8>,
    pub stop: StopSignal,
    pub grace: Duration,
    pub allow: Allow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    Cancelled,
    TimedOut,
    LeaseLost,
}

#[derive(Clone, Debug)]
pub struct Exit {
    /// `None` when it was killed by a signal.
    pub code: Option<i32>,
    /// The last non-empty line of stderr.
    pub last_line: String,
    /// Set when it was us who ended it.
    pub stopped: Option<Stopped>,
}

/// Where a program's standard output goes, line by line, of any length.
pub type LineSink<'a> = &'a mut (dyn FnMut(&str) + Send);

/// Where terraform's state lives while the job runs (the HTTP state protocol, on loopback).
#[derive(Clone, Debug)]
pub struct StateAddress {
    pub url: String,
    pub username: String,
    pub password: String,
    pub port: u16,
}

/// What a running step has: programs, files, log, journal, state, cancel.
#[async_trait]
pub trait Job: Send + Sync {
    /// The job's own folder (0700), gone when the job ends.
    fn folder(&self) -> PathBuf;

    /// The template's files, unpacked, shared and read-only, kept by digest.
    fn content(&self) -> Option<PathBuf>;

    /// A folder of this worker that lives on: `databases`, `environments`, caches.
    fn lasting_folder(&self, name: &str) -> Result<PathBuf, Failure>;

    /// Runs a program through the guard until it ends. stderr goes to the log line by line,
    /// stdout to `stdout`. Ended early by cancel, time limit or a lost lease.
    async fn exec(&self, program: Program, stdout: LineSink<'_>) -> Result<Exit, Failure>;

    /// A line for the log. Secrets are masked on the way.
    fn log(&self, level: Level, text: &str);

    /// What follows in the log belongs to this part of the step; at first that is the step itself.
    fn phase(&self, _name: &'static str) {}

    /// Adds a value that must not appear in the log from here on.
    fn keep_secret(&self, value: &str);

    /// Records something durably before going on (terraform's `apply_start`, `apply_complete`).
    async fn journal(&self, entry: Value) -> Result<(), Failure>;

    fn state_address(&self) -> StateAddress;

    /// The state as it is stored now.
    async fn read_state(&self) -> Result<Option<Vec<u8>>, Failure>;

    /// Whether this job has been asked to stop. Managers that do not start programs look between steps.
    fn cancelled(&self) -> bool;

    /// A setting of the worker, never a secret of another job. Known to the managers: `path` (where programs
    /// are looked for), `terraform_tool`, `terraform_providers` (a folder of unpacked providers).
    fn setting(&self, name: &str) -> Option<String>;
}

/// The managers by name.
#[derive(Clone, Default)]
pub struct Registry {
    managers: BTreeMap<&'static str, Arc<dyn Manager>>,
}

impl Registry {
    pub fn with(mut self, manager: impl Manager + 'static) -> Self {
        self.managers.insert(manager.name(), Arc::new(manager));
        self
    }

    pub fn get(&self, name: &str) -> Option<Arc<dyn Manager>> {
        self.managers.get(name).cloned()
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.managers.keys().copied().collect()
    }
}

/// Every manager that comes with Conductor.
pub fn built_in() -> Registry {
    Registry::default().with(Command).with(Compose).with(Database).with(Terraform)
}
