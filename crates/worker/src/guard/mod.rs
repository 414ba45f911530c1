//! The guard: one single-threaded process per worker that starts every program and lets none outlive it.
//!
//! Its socket closing means that the worker is dead, however it died: every program's tree is killed at once.
//! Each program has a deadline, moved on by every renewal of its lease. A worker that is frozen, cut off or
//! slow therefore loses its programs before anybody else may be given the same work. The guard stands in a
//! session of its own, out of reach of signals to the worker's group.

pub(crate) mod census;
mod client;
mod command;
pub(crate) mod fork;
mod groups;
mod program;
mod receive;
mod running;
mod serve;
mod sweep;
mod tree;
pub mod wire;

pub use client::{Control, Ended, Guard, Started};
pub use command::{GuardCommand, protections, protections_of};
pub(crate) use groups::{Controller, Groups, Version};
pub use serve::guard_main;
pub(crate) use tree::Kind;
