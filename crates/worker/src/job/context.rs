//! What a manager is handed: the worker's side of [`Job`].

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use conductor_api::{
    traced,
    worker::{Claim, LinkError, WorkerLink},
};
use conductor_domain::work::{Failure, Level};
use conductor_managers::{Exit, Job, LineSink, Program, StateAddress};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::{Halting, Handed, JobFolder, Layout, exec};
use crate::{
    container::Container,
    limits::Limits,
    log::LogBook,
    run::GuardKeeper,
    state_server::{StateDoor, StateServer},
};

pub struct JobContext {
    pub claim: Claim,
    pub link: Arc<dyn WorkerLink>,
    pub halting: Arc<Halting>,
    pub book: Arc<LogBook>,
    pub layout: Layout,
    pub folder: Arc<JobFolder>,
    pub content: Option<PathBuf>,
    pub limits: Limits,
    pub container: Option<Container>,
    pub handed: Arc<Handed>,
    pub guard: Arc<GuardKeeper>,
    pub settings: Arc<BTreeMap<String, String>>,
    pub states: Arc<StateServer>,
    /// Open while the job may use its state; asked for at most once.
    pub door: std::sync::OnceLock<StateDoor>,
    /// A clone goes with every program: when all are gone, none runs.
    pub alive: mpsc::Sender<()>,
    /// How many journal entries have been accepted.
    pub journaled: watch::Receiver<u64>,
}

#[async_trait]
impl Job for JobContext {
    fn folder(&self) -> PathBuf {
        self.folder.work()
    }

    fn content(&self) -> Option<PathBuf> {
        self.content.clone()
    }

    fn lasting_folder(&self, name: &str) -> Result<PathBuf, Failure> {
        match self.layout.lasting(name) {
            Some(Ok(path)) => Ok(path),
            Some(Err(error)) => {
                Err(Failure::failed(format!("cannot make the worker's folder `{name}`: {error}")))
            }
            None => Err(Failure::failed(format!("`{name}` cannot be a folder of the worker"))),
        }
    }

    async fn exec(&self, program: Program, stdout: LineSink<'_>) -> Result<Exit, Failure> {
        let name = program.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let span = traced!("program", program.name = name, program.step = program.args.first());
        exec::exec(self, program, stdout).instrument(span).await
    }

    fn log(&self, level: Level, text: &str) {
        self.book.add_text(level, text);
    }

    fn phase(&self, name: &'static str) {
        self.book.set_phase(name);
    }

    fn keep_secret(&self, value: &str) {
        self.book.add_secret(value);
    }

    async fn journal(&self, entry: Value) -> Result<(), Failure> {
        let number = self.book.add_journal(entry);
        let (mut journaled, mut halts) = (self.journaled.clone(), self.halting.halts());
        tokio::select! {
            // A closed channel means that nothing will be sent any more.
            accepted = journaled.wait_for(|&accepted| accepted >= number) => {
                accepted.map(drop).map_err(|_| Failure::transient("the job's journal is closed"))
            }
            // A cancelled job still records what it did; one that may be somebody else's does not wait.
            halt = halts.wait_for(|halt| halt.is_some_and(|halt| halt.why() == crate::guard::wire::Why::LeaseLost)) => {
                Err(halt.ok().and_then(|halt| *halt).map_or_else(
                    || Failure::transient("the job is over"),
                    |halt| halt.failure(),
                ))
            }
        }
    }

    fn state_address(&self) -> StateAddress {
        self.door.get_or_init(|| self.states.open(self.link.clone(), self.claim)).address()
    }

    async fn read_state(&self) -> Result<Option<Vec<u8>>, Failure> {
        match self.link.read_state(self.claim).await {
            Ok(state) => Ok(state.map(|state| state.to_vec())),
            Err(LinkError::Lost) => {
                self.halting.halt(super::Halt::Lost);
                Err(super::Halt::Lost.failure())
            }
            Err(LinkError::Unreachable(message)) => {
                Err(Failure::transient(format!("the state cannot be read: {message}")))
            }
            Err(LinkError::Refused(message)) => {
                Err(Failure::failed(format!("the state cannot be read: {message}")))
            }
        }
    }

    fn cancelled(&self) -> bool {
        self.halting.halted().is_some()
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.settings.get(name).cloned()
    }
}
