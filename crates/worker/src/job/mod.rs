//! One job: its folder, whether it shall stop, and what it hands to its manager.

mod context;
mod disk;
mod exec;
mod folder;
mod halt;

pub use context::JobContext;
pub use folder::{JobFolder, Layout};
pub use halt::{Halt, Halting};
