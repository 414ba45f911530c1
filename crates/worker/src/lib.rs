//! Claim, run, report: the worker, its guard, the sandbox and the job folder.
//!
//! A worker speaks to the engine through [`WorkerLink`](conductor_api::worker::WorkerLink) alone, and starts
//! programs through its [`Guard`] alone. It gives up before its lease can be given to somebody else.

mod container;
pub mod guard;
mod job;
mod limits;
mod log;
mod perform;
mod report;
mod run;
mod sandbox;
mod shift;
mod shutdown;
mod state_server;
mod tools;

pub use container::Container;
pub use guard::{Guard, GuardCommand, guard_main, protections, protections_of};
pub use limits::Limits;
pub use run::{Clock, Worker, WorkerConfig, WorkerError};
pub use sandbox::{Aspect, Protection};
pub use shutdown::Shutdown;
