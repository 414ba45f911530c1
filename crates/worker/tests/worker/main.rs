//! The worker with real programs under the real guard, and a scripted link in memory.

mod beats;
mod containers;
mod jobs;
mod limits;
mod link;
mod logs;
mod processes;
mod sandbox;
mod script;
mod state;
