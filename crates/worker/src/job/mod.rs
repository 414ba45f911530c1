//! One job: its folder, whether it shall stop, and what it hands to its manager.

mod context;
mod credentials;
mod disk;
mod exec;
mod folder;
mod halt;
mod trial;

pub use context::JobContext;
pub use credentials::Handed;
pub use folder::{JobFolder, Layout};
pub use halt::{Halt, Halting};
pub use trial::try_out;
