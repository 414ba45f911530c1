//! The command line of Conductor: `conductor`.
//!
//! Every command speaks to one typed client, whether the server is elsewhere or this very process. Results go to
//! stdout, everything else to stderr, and the exit code says how it ended.

mod args;
mod catalogue;
mod clock;
mod commands;
mod confirm;
mod connect;
mod failure;
mod follow;
mod init;
mod logging;
mod output;
mod settings;
mod signals;
#[cfg(feature = "otel")]
mod traces;

use std::process::ExitCode;

use clap::Parser;

use crate::{args::Cli, failure::Outcome, output::Screen};

/// Requests are short and programs run elsewhere: more threads would only cost.
const THREADS: usize = 4;

fn main() -> ExitCode {
    // The guard forks: it must come before anything that starts a thread.
    if std::env::args_os().nth(1).is_some_and(|first| first == "guard") {
        conductor_worker::guard_main();
    }
    let cli = Cli::parse();
    let screen = Screen::new(&cli.output);
    match run(cli, &screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            screen.failure(&failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(cli: Cli, screen: &Screen) -> Outcome {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| failure::Failure::failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(commands::run(cli, screen.clone()));
    logging::finish();
    // What still runs in the background has nothing left to tell.
    runtime.shutdown_background();
    ended
}
