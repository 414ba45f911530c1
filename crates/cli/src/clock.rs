//! The wall clock: the one place of the program that reads it.

use std::{sync::Arc, time::SystemTime};

/// Microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "everything else is handed the time from here")]
pub fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// The clock as workers want it.
pub fn clock() -> conductor_worker::Clock {
    Arc::new(now)
}
