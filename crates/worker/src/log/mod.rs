//! What a job says: lines put together, secrets taken out, numbered and waiting to be sent.

mod book;
mod lines;

pub use book::{BATCH_BYTES, LogBook};
pub use conductor_domain::mask::Masker;
pub use lines::Lines;

/// The most of one line that is kept in a log.
pub const LONGEST_LINE: usize = 1 << 20;
