//! The one place that reads the wall clock and makes random ids.

use conductor_domain::ids::Ids;
use uuid::Uuid;

pub trait Clock: Send + Sync {
    /// Microseconds since 1970.
    fn now(&self) -> i64;
}

pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is where the clock is read")]
    fn now(&self) -> i64 {
        jiff::Timestamp::now().as_microsecond()
    }
}

/// UUIDv7, in the order they are made.
pub struct RandomIds;

impl Ids for RandomIds {
    fn next(&self) -> Uuid {
        Uuid::now_v7()
    }
}
