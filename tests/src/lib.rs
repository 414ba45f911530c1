//! What the integration tests stand on: real processes of the built binary, real databases, a program that keeps a
//! ledger of what it was asked for, and a gate between worker and server that stops the protocol at exact points.
//!
//! Nothing here is skipped silently. A missing tool fails the test and names the command that installs it; only
//! `CONDUCTOR_TEST_QUICK=1` leaves out what needs servers or terraform.

mod binary;
mod gate;
mod http;
mod keeper;
mod listener;
mod place;
mod postgres;
mod process;
mod score;
mod shape;
mod tools;
mod world;

pub use binary::conductor;
pub use gate::{At, Gate, Stop};
pub use http::{Api, Reply, block_on, spawn};
pub use listener::Listener;
pub use place::{Place, Told};
pub use postgres::{Database, Server, postgres};
pub use process::Running;
pub use score::{Score, resource, shared};
pub use shape::{Fleet, House, Shape};
pub use tools::{earlier_release, python, quick, terraform, tofu};
pub use world::{Run, World};

use std::time::{Duration, Instant};

/// Waits until `look` sees something. `what` says what was waited for.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(25));
    }
}

/// Seconds, for the readable side of time limits.
pub const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Runs every case at the same time, each in a thread named after it; the first that failed fails the test.
pub fn all_at_once<'a>(cases: impl IntoIterator<Item = (String, Box<dyn FnOnce() + Send + 'a>)>) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = cases
            .into_iter()
            .map(|(name, case)| {
                let thread = std::thread::Builder::new().name(name.clone());
                (name, thread.spawn_scoped(scope, case).expect("a thread"))
            })
            .collect();
        let failed: Vec<String> = threads
            .into_iter()
            .filter_map(|(name, thread)| {
                let cause = thread.join().err()?;
                let text = cause.downcast_ref::<String>().cloned();
                let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Some(format!("{name}: {}", text.unwrap_or_else(|| "panicked".into())))
            })
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}
