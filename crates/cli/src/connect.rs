//! The way to the engine: a server elsewhere, or the same engine in this process on the current folder.
//!
//! Either way commands speak to one typed client. What only the embedded shape needs, a worker of its own while
//! it waits, is in [`Connection::work_on`].

use std::{collections::BTreeMap, future::Future, sync::Arc};

use conductor_api::{client::Client, http::HttpTransport};
use conductor_domain::ids::ChangeId;
use conductor_engine::{Engine, EngineOptions};
use conductor_server::InProcess;
use conductor_worker::{Shutdown, Worker, WorkerConfig};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    failure::{Exit, Failure, Outcome},
    output::{Screen, count},
    settings::Settings,
    signals::Signals,
};

const CONNECTIONS: usize = 8;

/// What an embedded command works on while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    ThisAlone,
    /// Also what waits its turn, what follows, and what dead commands left.
    Everything,
}

pub struct Connection {
    pub client: Client,
    embedded: Option<Embedded>,
}

struct Embedded {
    engine: Arc<Engine>,
    settings: Settings,
}

/// How the embedded engine is opened; servers differ in what they change of it.
pub fn engine_options(settings: &Settings) -> EngineOptions {
    EngineOptions {
        url: settings.database_url.clone(),
        key: settings.key.clone(),
        key_file: settings.key_file.clone(),
        data: settings.data.clone(),
        migrate: false,
        connections: CONNECTIONS,
        lease: settings.lease,
        default_workload: true,
        embedded: false,
        public_url: settings.public_url.clone(),
        state_store: settings.state_store.clone(),
    }
}

pub async fn open_engine(options: EngineOptions) -> Outcome<Arc<Engine>> {
    let opened = tokio::task::spawn_blocking(|| Engine::open(options)).await;
    Ok(opened.map_err(|error| Failure::failed(format!("the engine did not start: {error}")))??)
}

/// Logs of what is over may be elsewhere, and old versions of states may go.
pub fn set_keeping(settings: &Settings, engine: &Engine) -> Outcome {
    if let Some(newest) = settings.state_versions {
        engine.keep_state_versions(newest);
    }
    match &settings.log_store {
        Some(url) => Ok(engine.keep_logs_at(url)?),
        None => Ok(()),
    }
}

impl Connection {
    /// To work: what was interrupted will be picked up.
    pub async fn open(settings: &Settings) -> Outcome<Self> {
        if let Some(url) = &settings.url {
            let client = HttpTransport::client(url, settings.token.clone())?;
            return Ok(Self { client, embedded: None });
        }
        let engine = open_engine(EngineOptions { embedded: true, ..engine_options(settings) }).await?;
        set_keeping(settings, &engine)?;
        let client = InProcess::client(engine.clone(), user());
        Ok(Self { client, embedded: Some(Embedded { engine, settings: settings.clone() }) })
    }

    /// To look: what was interrupted is told, never run.
    pub async fn open_to_look(settings: &Settings, screen: &Screen) -> Outcome<Self> {
        let connection = Self::open(settings).await?;
        let interrupted = connection.interrupted().await?;
        if !interrupted.is_empty() {
            let (number, them) = (interrupted.len(), if interrupted.len() == 1 { "it" } else { "them" });
            let were = if number == 1 { "was" } else { "were" };
            screen.note(&format!(
                "{} {were} interrupted; the next deploy, retry or destroy picks {them} up",
                count(number, "deployment")
            ));
        }
        Ok(connection)
    }

    pub fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// Changes of commands that died; a server looks after its own.
    pub async fn interrupted(&self) -> Outcome<Vec<ChangeId>> {
        match &self.embedded {
            None => Ok(Vec::new()),
            Some(embedded) => Ok(embedded.engine.interrupted().await?),
        }
    }

    /// Open changes that another one brought about; a server looks after its own.
    pub async fn follow_ups(&self, id: ChangeId) -> Outcome<Vec<ChangeId>> {
        match &self.embedded {
            None => Ok(Vec::new()),
            Some(embedded) => Ok(embedded.engine.follow_ups(id).await?),
        }
    }

    fn left(&self, change: ChangeId) -> Failure {
        left_open(change)
    }

    /// Waits for `done`; embedded, works on the change meanwhile.
    ///
    /// The first signal lets what runs come to its end and leaves the rest to the next command; a second ends
    /// everything at once.
    pub async fn work_on<T>(
        &self,
        screen: &Screen,
        change: ChangeId,
        scope: Scope,
        done: impl Future<Output = Outcome<T>>,
    ) -> Outcome<T> {
        let mut signals = Signals::listen()?;
        let Some(embedded) = &self.embedded else {
            return tokio::select! {
                result = done => result,
                () = signals.next() => Err(interrupted(&format!(
                    "interrupted; the server goes on with {change}\n  follow it:  conductor logs {change} -f\n  \
                     stop it:    conductor cancel {change}"
                ))),
            };
        };
        let stop = CancellationToken::new();
        let _stopped = stop.clone().drop_guard();
        if scope == Scope::Everything {
            tokio::spawn(embedded.engine.clone().run_background(stop));
        }
        let worker = embedded.worker(change);
        let shutdown = Shutdown::new();
        let mut work = std::pin::pin!(worker.run(shutdown.clone()));
        let mut done = std::pin::pin!(done);
        let mut asked = false;
        loop {
            tokio::select! {
                result = &mut done => {
                    shutdown.drain();
                    work.await.map_err(|error| Failure::failed(error.to_string()))?;
                    return result;
                }
                ended = &mut work => {
                    ended.map_err(|error| Failure::failed(error.to_string()))?;
                    return Err(self.left(change));
                }
                () = signals.next() => {
                    if asked {
                        return Err(self.left(change));
                    }
                    asked = true;
                    shutdown.drain();
                    screen.note("interrupted: waiting for what runs to end; once more stops it at once");
                }
            }
        }
    }
}

impl Embedded {
    fn worker(&self, change: ChangeId) -> Worker {
        let config = WorkerConfig { only: Some(change), ..worker_config(&self.settings, &self.engine) };
        Worker::new(self.engine.link(), conductor_managers::built_in(), config)
    }
}

/// A worker in the engine's own process.
pub fn worker_config(settings: &Settings, engine: &Engine) -> WorkerConfig {
    WorkerConfig {
        slots: settings.slots,
        settings: manager_settings(settings),
        require_isolation: settings.require_isolation.clone(),
        ..WorkerConfig::new(engine.worker_id(), machine(), &settings.data, clock::clock())
    }
}

/// What managers may ask a worker for by name: its own settings, and its environment but for Conductor's part of it.
pub fn manager_settings(settings: &Settings) -> BTreeMap<String, String> {
    let environment = std::env::vars().filter(|(name, _)| !name.starts_with("CONDUCTOR_"));
    environment.chain(settings.for_managers.clone()).collect()
}

fn interrupted(message: &str) -> Failure {
    Failure::new(Exit::Interrupted, message)
}

fn left_open(change: ChangeId) -> Failure {
    interrupted(&format!(
        "interrupted; {change} is not over\n  go on:    the next deploy, retry or destroy picks it up\n  \
         stop it:  conductor cancel {change}"
    ))
}

/// Who acts, in the embedded shape.
fn user() -> String {
    let known = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
    known
        .map(|user| user.name)
        .or_else(|| std::env::var("USER").ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| nix::unistd::getuid().to_string())
}

pub fn machine() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "worker".into())
}
