//! What this process has seen since it started, counted where it is committed: a use case that is run again or
//! rolled back counts once, or not at all.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use conductor_domain::lifecycle::{ChangeKind, ChangeStatus, OperationKind, OperationStatus};

use crate::Error;

/// Upper limits of a histogram's buckets, in seconds.
pub const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Each counts everything up to its limit.
    pub buckets: [u64; 12],
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    fn observe(&mut self, seconds: f64) {
        self.count += 1;
        self.sum += seconds;
        for (bucket, limit) in self.buckets.iter_mut().zip(BUCKETS) {
            *bucket += u64::from(seconds <= limit);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Operations that ended, by kind and status.
    pub operations: BTreeMap<(OperationKind, OperationStatus), u64>,
    /// From the first start to the end, of those that were started.
    pub durations: BTreeMap<OperationKind, Histogram>,
    /// Changes that ended, by kind and status.
    pub changes: BTreeMap<(ChangeKind, ChangeStatus), u64>,
    pub log_lines: u64,
    /// How old the oldest line of a batch was when the batch was committed.
    pub log_lag: Histogram,
    /// Use cases the database failed, by reason.
    pub errors: BTreeMap<&'static str, u64>,
    /// Transactions that were begun again.
    pub retries: u64,
}

/// What one transaction adds once it is committed.
#[derive(Default)]
pub(crate) struct Tally(Vec<Note>);

enum Note {
    Operation { kind: OperationKind, status: OperationStatus, seconds: Option<f64> },
    Change { kind: ChangeKind, status: ChangeStatus },
    Lines { count: u64, lag: f64, since: Instant },
}

impl Tally {
    pub fn operation(&mut self, kind: OperationKind, status: OperationStatus, seconds: Option<f64>) {
        self.0.push(Note::Operation { kind, status, seconds });
    }

    pub fn change(&mut self, kind: ChangeKind, status: ChangeStatus) {
        self.0.push(Note::Change { kind, status });
    }

    /// `lag`: the age of the oldest, in seconds, as of now.
    pub fn lines(&mut self, count: u64, lag: f64) {
        self.0.push(Note::Lines { count, lag, since: Instant::now() });
    }
}

#[derive(Default)]
pub struct Counters(Mutex<Counted>);

impl Counters {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn counted(&self) -> Counted {
        self.lock().clone()
    }

    pub(crate) fn committed(&self, tally: Tally) {
        if tally.0.is_empty() {
            return;
        }
        let mut counted = self.lock();
        for note in tally.0 {
            match note {
                Note::Operation { kind, status, seconds } => {
                    *counted.operations.entry((kind, status)).or_default() += 1;
                    if let Some(seconds) = seconds {
                        counted.durations.entry(kind).or_default().observe(seconds);
                    }
                }
                Note::Change { kind, status } => {
                    *counted.changes.entry((kind, status)).or_default() += 1;
                }
                Note::Lines { count, lag, since } => {
                    counted.log_lines += count;
                    counted.log_lag.observe(lag + since.elapsed().as_secs_f64());
                }
            }
        }
    }

    pub(crate) fn retried(&self) {
        self.lock().retries += 1;
    }

    /// Counts what the database is to blame for; a use case's own no is no error of it.
    pub(crate) fn failed(&self, error: &Error) {
        let reason = match error {
            Error::Unreachable(_) => "unreachable",
            Error::Busy(_) => "busy",
            Error::NewerSchema | Error::OlderSchema { .. } => "schema",
            Error::Database(_) => "database",
            Error::Corrupt(_) | Error::Key(_) => "corrupt",
            Error::Taken(_) | Error::Moved(_) | Error::Refused { .. } => return,
        };
        *self.lock().errors.entry(reason).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_started_has_a_duration_and_buckets_are_cumulative() {
        let counters = Counters::default();
        let mut tally = Tally::default();
        tally.operation(OperationKind::Create, OperationStatus::Succeeded, Some(0.3));
        tally.operation(OperationKind::Create, OperationStatus::Cancelled, None);
        counters.committed(tally);
        let counted = counters.counted();
        assert_eq!(counted.operations.values().sum::<u64>(), 2);
        let durations = &counted.durations[&OperationKind::Create];
        assert_eq!(durations.count, 1);
        assert_eq!(durations.buckets, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_refusal_is_no_error_of_the_database() {
        let counters = Counters::default();
        counters.failed(&Error::Moved("x".into()));
        counters.failed(&Error::Unreachable("x".into()));
        assert_eq!(counters.counted().errors, BTreeMap::from([("unreachable", 1)]));
    }
}
