//! When each alert fires: thresholds, windows, and what is seen.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use conductor_domain::ids::ChangeId;
use conductor_store::{Result, Tx, alerts::AlertRow};
use serde_json::{Value, json};

use super::micros;
use crate::Context;

pub const FAILURE_RATE: &str = "failure-rate";
pub const QUEUE_BACKLOG: &str = "queue-backlog";
pub const DEAD_WORKER: &str = "dead-worker";
pub const DATABASE_ERRORS: &str = "database-errors";
pub const LONG_RUNNING: &str = "long-running";

/// Every alert, and what it is about.
pub const ALERTS: [(&str, &str); 5] = [
    (DATABASE_ERRORS, "the database failed transactions"),
    (DEAD_WORKER, "a worker is gone without having said so"),
    (FAILURE_RATE, "too many deployments fail"),
    (LONG_RUNNING, "a deployment has used half of its time"),
    (QUEUE_BACKLOG, "too many operations wait for a worker"),
];

/// How many names a message holds.
const NAMED: usize = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct AlertSettings {
    /// How often is looked.
    pub every: Duration,
    /// Fires above this share of failed ones among the deployments that ended within the window.
    pub failure_rate: f64,
    pub failure_window: Duration,
    /// Fewer ends say nothing.
    pub failure_minimum: u64,
    /// Fires above so many ready operations that nobody takes for so long.
    pub queued: u64,
    pub queued_for: Duration,
    /// A worker not heard of for so long is dead; after the window it is forgotten.
    pub dead_worker: Duration,
    pub dead_worker_window: Duration,
    /// Fires above so many errors within the window.
    pub database_errors: u64,
    pub database_window: Duration,
    /// Instead of half of each deployment's limit.
    pub long_running: Option<Duration>,
}

impl Default for AlertSettings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            failure_rate: 0.1,
            failure_window: Duration::from_secs(15 * 60),
            failure_minimum: 1,
            queued: 50,
            queued_for: Duration::from_secs(15),
            dead_worker: Duration::from_secs(120),
            dead_worker_window: Duration::from_secs(3_600),
            database_errors: 0,
            database_window: Duration::from_secs(5 * 60),
            long_running: None,
        }
    }
}

/// What one look says of one alert.
#[derive(Clone, Debug)]
pub struct Finding {
    pub name: &'static str,
    /// The condition holds.
    pub holds: bool,
    /// It has held for long enough to fire.
    pub due: bool,
    lasting: Duration,
    pub message: String,
    value: f64,
    threshold: f64,
}

impl Finding {
    fn new(name: &'static str, value: f64, threshold: f64, message: String) -> Self {
        let holds = value > threshold;
        Self { name, holds, due: holds, lasting: Duration::ZERO, message, value, threshold }
    }

    pub fn document(&self) -> Value {
        json!({ "message": self.message, "value": self.value, "threshold": self.threshold })
    }
}

/// What is seen in the database, in one look.
pub struct Sight {
    pub rows: Vec<AlertRow>,
    ended: (i64, i64),
    queued: i64,
    dead: Vec<String>,
    long: Vec<ChangeId>,
}

impl Sight {
    pub fn look(tx: &mut Tx<'_>, context: &Context, settings: &AlertSettings) -> Result<Self> {
        let (organisation, now) = (context.organisation, context.now());
        let silent = now - micros(settings.dead_worker);
        let window = micros(settings.dead_worker_window);
        Ok(Self {
            rows: tx.alerts(organisation)?,
            ended: tx.ended_since(organisation, now - micros(settings.failure_window))?,
            queued: tx.queue_depths(organisation, now)?.values().map(|queue| queue.ready).sum(),
            dead: tx.dead_workers(organisation, silent, window, now)?,
            long: tx.long_running(organisation, settings.long_running.map(micros), now, 100)?,
        })
    }

    pub fn findings(&self, settings: &AlertSettings) -> [Finding; 4] {
        let (ended, failed) = self.ended;
        let rate = if ended > 0 && ended as u64 >= settings.failure_minimum {
            failed as f64 / ended as f64
        } else {
            0.0
        };
        let queued = Finding::new(
            QUEUE_BACKLOG,
            self.queued as f64,
            settings.queued as f64,
            format!("{} operations wait for a worker", self.queued),
        );
        [
            Finding::new(
                FAILURE_RATE,
                rate,
                settings.failure_rate,
                format!("{failed} of {ended} deployments failed"),
            ),
            Finding { due: false, lasting: settings.queued_for, ..queued },
            Finding::new(DEAD_WORKER, self.dead.len() as f64, 0.0, named("dead", &self.dead)),
            Finding::new(LONG_RUNNING, self.long.len() as f64, 0.0, named("running for long", &self.long)),
        ]
    }
}

pub fn database(settings: &AlertSettings, errors: u64) -> Finding {
    let message = format!("{errors} transactions failed");
    Finding::new(DATABASE_ERRORS, errors as f64, settings.database_errors as f64, message)
}

fn named(what: &str, all: &[impl ToString]) -> String {
    let names: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
    match all.len().saturating_sub(NAMED) {
        0 => format!("{what}: {}", names.join(", ")),
        more => format!("{what}: {} and {more} more", names.join(", ")),
    }
}

/// What a server remembers from round to round.
#[derive(Default)]
pub struct Memory {
    /// As last read.
    pub rows: Vec<AlertRow>,
    /// The database is away, and somebody was told without it.
    pub outage_told: bool,
    samples: VecDeque<(Instant, u64)>,
    held: BTreeMap<&'static str, Instant>,
}

impl Memory {
    /// How many more errors there are than at the beginning of the window.
    pub fn errors(&mut self, total: u64, window: Duration, now: Instant) -> u64 {
        self.samples.push_back((now, total));
        // The last one before the window is what the window is compared with.
        while self.samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= window) {
            self.samples.pop_front();
        }
        total - self.samples.front().map_or(total, |(_, before)| *before)
    }

    /// Whether it has held for long enough.
    pub fn hold(&mut self, finding: &mut Finding, now: Instant) {
        if !finding.holds {
            self.held.remove(finding.name);
            return;
        }
        let since = *self.held.entry(finding.name).or_insert(now);
        finding.due = now.duration_since(since) >= finding.lasting;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_within_their_window_only() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let mut at = |second: u64, total| {
            memory.errors(total, Duration::from_secs(10), start + Duration::from_secs(second))
        };
        assert_eq!(at(0, 3), 0, "what was before the first look is nobody's business");
        assert_eq!(at(5, 5), 2);
        assert_eq!(at(9, 5), 2);
        assert_eq!(at(16, 5), 0);
    }

    #[test]
    fn what_must_last_fires_only_once_it_has() {
        let (mut memory, start) = (Memory::default(), Instant::now());
        let settings = AlertSettings { queued: 1, ..AlertSettings::default() };
        let sight = |queued| Sight { rows: vec![], ended: (0, 0), queued, dead: vec![], long: vec![] };
        let mut look = |queued, second| {
            let mut finding = sight(queued).findings(&settings)[1].clone();
            memory.hold(&mut finding, start + Duration::from_secs(second));
            finding.due
        };
        assert!(!look(2, 0));
        assert!(!look(1, 10));
        assert!(!look(2, 20));
        assert!(look(2, 35));
    }

    #[test]
    fn the_limit_itself_is_no_reason_to_fire() {
        let settings = AlertSettings { failure_minimum: 10, ..AlertSettings::default() };
        let sight = |ended| Sight { rows: vec![], ended, queued: 50, dead: vec![], long: vec![] };
        let holds = |ended| sight(ended).findings(&settings)[0].holds;
        assert!(!holds((10, 1)) && holds((10, 2)) && !holds((9, 9)));
        assert!(sight((0, 0)).findings(&settings).iter().all(|finding| !finding.holds));
    }
}
