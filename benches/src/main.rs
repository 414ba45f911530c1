//! Measures Conductor against hand-written references, both in the same run, round by round in turns.
//!
//! `conductor-bench [--json] [--statements] [NAME…]`; `--statements` has PostgreSQL tell what it was asked, per thing
//! measured, where a stretch of work is metered. Times on a shared machine mean little: what counts is the ratio.

mod claims;
mod deployments;
mod house;
mod latency;
mod logs;
mod matching;
mod planning;
mod postgres;
mod reading;
mod reference;
mod report;
mod startup;
mod terraform;
mod wal;

use std::{path::PathBuf, process::ExitCode};

use crate::{postgres::Server, report::Report};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NAMES: [&str; 9] =
    ["deployments", "claims", "latency", "planning", "matching", "logs", "reading", "terraform", "startup"];

const OPTIONS: [&str; 2] = ["--json", "--statements"];

/// What every benchmark has at hand.
struct Bench {
    folder: PathBuf,
    postgres: Option<Server>,
}

fn main() -> ExitCode {
    // The guard forks: it must come before anything that starts a thread.
    if std::env::args_os().nth(1).is_some_and(|first| first == "guard") {
        conductor_worker::guard_main();
    }
    let (options, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let unknown = names.iter().find(|name| !NAMES.contains(&name.as_str()));
    if let Some(wrong) = unknown.or_else(|| options.iter().find(|option| !OPTIONS.contains(&option.as_str())))
    {
        eprintln!(
            "there is no `{wrong}`; usage: conductor-bench [--json] [--statements] [{}]",
            NAMES.join("|")
        );
        return ExitCode::from(2);
    }
    match run(&names, &options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("conductor-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(names: &[String], options: &[String]) -> Outcome<ExitCode> {
    let given = |name: &str| options.iter().any(|option| option == name);
    let folder = tempfile::Builder::new().prefix("conductor-bench-").tempdir()?;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let needs_postgres =
        ["deployments", "claims", "latency", "matching", "logs", "reading"].iter().any(|name| wanted(name));
    // Before the runtime, on this thread: the server ends with the thread that started it.
    let postgres = if needs_postgres { Server::start(folder.path(), given("--statements"))? } else { None };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bench = Bench { folder: folder.path().to_owned(), postgres };
    let mut report = Report::new(given("--json"));
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = measure(&bench, &wanted, &mut report) => ended.map(|()| ExitCode::SUCCESS),
            () = interrupted() => Ok(ExitCode::from(130)),
        }
    });
    runtime.shutdown_background();
    report.print();
    ended
}

async fn measure(bench: &Bench, wanted: &impl Fn(&str) -> bool, report: &mut Report) -> Outcome {
    for name in NAMES.into_iter().filter(|name| wanted(name)) {
        report.begin(name);
        let measured = match name {
            "deployments" => deployments::measure(bench, report).await,
            "claims" => claims::measure(bench, report).await,
            "latency" => latency::measure(bench, report).await,
            "planning" => planning::measure(report),
            "matching" => matching::measure(bench, report).await,
            "logs" => logs::measure(bench, report).await,
            "reading" => reading::measure(bench, report).await,
            "terraform" => terraform::measure(bench, report).await,
            _ => startup::measure(bench, report),
        };
        if let Err(error) = measured {
            report.broken(name, &error.to_string());
        }
    }
    Ok(())
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
