//! The commands that run until they are told to stop: up, server, worker; and migrate before them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use conductor_api::http::{HttpTransport, RemoteLink};
use conductor_domain::ids::WorkerId;
use conductor_engine::{Engine, EngineOptions};
use conductor_server::{Access, router, serve};
use conductor_worker::{Container, Shutdown, Worker, WorkerConfig, WorkerError};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Context;
use crate::{
    args::WorkerFlags,
    clock,
    connect::{engine_options, machine, manager_settings, open_engine, set_keeping, worker_config},
    failure::{Exit, Failure, Outcome},
    logging,
    output::complain,
    settings::Settings,
    signals::Signals,
};

/// How long answers that are under way may take once the server stops.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

pub async fn up(context: &Context) -> Outcome {
    logging::start(&context.settings, &context.screen, "info");
    let house = House::open(context, true, true).await?;
    let config = worker_config(&context.settings, &house.engine);
    let worker = Worker::new(house.engine.link(), conductor_managers::built_in(), config);
    let shutdown = Shutdown::new();
    let work = worker.run(shutdown.clone());
    house.run(shutdown, async { work.await.map_err(refused) }).await
}

pub async fn server(context: &Context, migrate: bool) -> Outcome {
    logging::start(&context.settings, &context.screen, "info");
    let house = House::open(context, migrate, false).await?;
    let shutdown = Shutdown::new();
    let draining = house.draining.clone();
    let until_stopped = async move {
        draining.cancelled().await;
        tokio::time::sleep(DRAIN_NOTICE).await;
        Ok(())
    };
    house.run(shutdown, until_stopped).await
}

/// So long a server that was told to stop still answers: whoever sends requests here hears that it is not ready.
const DRAIN_NOTICE: Duration = Duration::from_secs(1);

/// A listening server, its background tasks, and how they stop.
struct House {
    engine: Arc<Engine>,
    server: JoinHandle<std::io::Result<()>>,
    background: [JoinHandle<()>; 4],
    signals: Signals,
    /// Told to stop; still answering, but `/readyz` says no.
    draining: CancellationToken,
    stop: CancellationToken,
    background_stop: CancellationToken,
}

impl House {
    /// `workloads`: serve them with the built-in template, which writes files on the worker's disk.
    async fn open(context: &Context, migrate: bool, workloads: bool) -> Outcome<Self> {
        let settings = &context.settings;
        let signals = Signals::listen()?;
        let listener = TcpListener::bind(&settings.listen).await.map_err(|error| {
            Failure::failed(format!("cannot listen on {}: {error}", settings.listen))
                .hint("set CONDUCTOR_LISTEN to an address of this machine that is free, as in 127.0.0.1:7071")
        })?;
        let engine =
            open_engine(EngineOptions { migrate, default_workload: workloads, ..engine_options(settings) })
                .await?;
        set_keeping(settings, &engine)?;
        let token = engine.ensure_admin_token(settings.admin_token.as_deref()).await?;
        let address =
            listener.local_addr().map_or_else(|_| settings.listen.clone(), |address| address.to_string());
        context.screen.print(&format!("conductor serves on http://{address}"));
        if let Some(token) = token {
            context.screen.print(&format!(
                "the first token, shown only now:\n  export CONDUCTOR_URL=http://{address}\n  \
                 export CONDUCTOR_TOKEN={token}"
            ));
        }
        let (stop, background_stop) = (CancellationToken::new(), CancellationToken::new());
        let server = tokio::spawn(serve(listener, router(engine.clone(), Access::Tokens), stop.clone()));
        let background = [
            tokio::spawn(engine.clone().run_background(background_stop.clone())),
            tokio::spawn(engine.clone().run_keeper(background_stop.clone())),
            tokio::spawn(engine.clone().run_log_keeping(settings.logs.clone(), background_stop.clone())),
            tokio::spawn(engine.clone().run_alerts(
                settings.alerts.settings.clone(),
                settings.alerts.webhook()?,
                background_stop.clone(),
            )),
        ];
        let draining = CancellationToken::new();
        Ok(Self { engine, server, background, signals, draining, stop, background_stop })
    }

    /// Until a signal: the server says that it is not ready and `work` comes to its end. A second ends at once.
    async fn run(mut self, shutdown: Shutdown, work: impl Future<Output = Outcome>) -> Outcome {
        let mut work = std::pin::pin!(work);
        let ended = tokio::select! {
            ended = &mut work => ended,
            ended = &mut self.server => {
                return Err(Failure::failed(format!("the server ended: {}", told(ended))));
            }
            () = self.signals.next() => {
                complain("stopping: what runs may finish; once more stops at once");
                shutdown.drain();
                self.engine.drain();
                self.draining.cancel();
                tokio::select! {
                    ended = &mut work => ended,
                    () = self.signals.next() => return Err(Failure::new(Exit::Interrupted, "stopped at once")),
                }
            }
        };
        self.stop.cancel();
        self.background_stop.cancel();
        let rest = async {
            let _ = self.server.await;
            for task in self.background {
                let _ = task.await;
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(LAST_ANSWERS, rest) => {}
            () = self.signals.next() => {}
        }
        ended
    }
}

fn told(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "without a reason".into(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    }
}

fn refused(error: WorkerError) -> Failure {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    match error {
        WorkerError::Refused(_) => Failure::new(Exit::NotAllowed, error.to_string())
            .hint("CONDUCTOR_TOKEN must be a worker's: conductor tokens create --role worker --name NAME"),
        WorkerError::Folder { .. } => Failure::failed(format!("{error}{cause}"))
            .hint("set CONDUCTOR_DATA to a folder that can be written"),
        WorkerError::NotIsolated(_) => Failure::failed(error.to_string()).hint(
            "`conductor doctor` shows all that is in force; CONDUCTOR_REQUIRE_ISOLATION says what must be",
        ),
    }
}

pub async fn worker(context: &Context, flags: WorkerFlags) -> Outcome {
    let settings = &context.settings;
    let container = container(settings, &flags)?;
    let labels = flags.labels.iter().map(|text| label(text)).collect::<Outcome<BTreeMap<_, _>>>()?;
    let Some(url) = &settings.url else {
        return Err(Failure::usage("a worker needs CONDUCTOR_URL and CONDUCTOR_TOKEN")
            .hint("make its token on the server: conductor tokens create --role worker --name NAME"));
    };
    logging::start(settings, &context.screen, "info");
    let mut signals = Signals::listen()?;
    let link = RemoteLink::new(HttpTransport::client(url, settings.token.clone())?);
    let id = WorkerId(Uuid::now_v7());
    let name = flags.name.unwrap_or_else(machine);
    let config = WorkerConfig {
        slots: settings.slots,
        settings: manager_settings(settings),
        labels,
        container,
        require_isolation: settings.require_isolation.clone(),
        networks: flags.networks.iter().cloned().collect(),
        ..WorkerConfig::new(id, name.clone(), &settings.data, clock::clock())
    };
    let worker = Worker::new(Arc::new(link), conductor_managers::built_in(), config);
    let shutdown = Shutdown::new();
    let mut work = std::pin::pin!(worker.run(shutdown.clone()));
    complain(&format!("worker {name} ({id}) works for {url}"));
    tokio::select! {
        ended = &mut work => return ended.map_err(refused),
        () = signals.next() => {
            complain("stopping: what runs may finish; once more stops at once");
            shutdown.drain();
        }
    }
    tokio::select! {
        ended = &mut work => ended.map_err(refused),
        () = signals.next() => Err(Failure::new(Exit::Interrupted, "stopped at once")),
    }
}

/// The engine that was asked for, where the worker looks for programs.
fn container(settings: &Settings, flags: &WorkerFlags) -> Outcome<Option<Container>> {
    let (Some(name), Some(image)) = (&flags.container, &flags.container_image) else {
        return Ok(None);
    };
    let path = settings.for_managers.get("path").map(String::as_str).unwrap_or_default();
    let found = std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let engine = found.ok_or_else(|| Failure::failed(format!("there is no {name} on PATH")))?;
    Ok(Some(Container { engine, image: image.clone() }))
}

fn label(text: &str) -> Outcome<(String, String)> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("`{text}` is not a label")).hint("write --label KEY=VALUE")),
    }
}

pub async fn migrate(context: &Context) -> Outcome {
    let options = engine_options(&context.settings);
    let store = conductor_store::OpenOptions {
        url: options.url,
        key: options.key,
        key_file: options.key_file.clone(),
        migrate: true,
        connections: 1,
    };
    let opened = tokio::task::spawn_blocking(move || store.open()).await;
    let opened =
        opened.map_err(|error| Failure::failed(format!("the database was not opened: {error}")))??;
    if opened.key_made {
        let file = options.key_file.display();
        context.screen.note(&format!("secrets are sealed with the key in {file}: keep a copy of it"));
    }
    let schema = conductor_store::SCHEMA;
    let document = json!({ "schema": schema, "migrated": opened.migrated });
    context.screen.document(&document, || match opened.migrated {
        true => format!("the database now has schema {schema}"),
        false => format!("the database already has schema {schema}"),
    });
    Ok(())
}
