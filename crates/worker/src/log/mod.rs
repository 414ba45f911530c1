//! What a job says: lines put together, secrets taken out, numbered and waiting to be sent.

mod book;
mod lines;
mod mask;

pub use book::{BATCH_BYTES, LogBook};
pub use lines::Lines;
pub use mask::Masker;

/// The most of one line that is kept in a log.
pub const LONGEST_LINE: usize = 1 << 20;
