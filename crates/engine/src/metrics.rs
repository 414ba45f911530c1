//! How it is doing, in numbers: what this process counted, and how things stand in the database.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use conductor_domain::lifecycle::{ChangeKind, ChangeStatus};
use conductor_store::{Counted, Result, gauges::QueueDepth, operations::WorkerRow};
use tokio::sync::Mutex;

use crate::{Engine, alerts::ALERTS, pools::pool_members};

/// However many ask, the database is looked at once in this time.
const KEPT: Duration = Duration::from_secs(1);
/// Not heard of for this long, in microseconds.
pub(crate) const WORKER_QUIET: i64 = 30_000_000;
const WORKER_DEAD: i64 = 120_000_000;
/// Those that run for long are counted up to here.
const MOST: i64 = 1_000;

/// It said goodbye: nobody misses it.
const LEFT: &str = "left";

/// What a worker is called by when it was last heard of.
pub(crate) fn worker_state(now: i64, row: &WorkerRow) -> &'static str {
    match now - row.seen_at {
        _ if row.left_at.is_some() => LEFT,
        _ if row.lost_at.is_some() => "dead",
        age if age > WORKER_DEAD => "dead",
        age if age > WORKER_QUIET => "quiet",
        _ => "live",
    }
}

/// How things stand, in all processes that share the database.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    pub at: i64,
    /// By manager.
    pub queues: BTreeMap<String, QueueDepth>,
    /// By state.
    pub workers: BTreeMap<&'static str, u64>,
    /// Changes that are not over.
    pub changes: BTreeMap<(ChangeKind, ChangeStatus), i64>,
    /// Members by pool and how they stand.
    pub pools: BTreeMap<(String, &'static str), u64>,
    /// Running beyond half of their time.
    pub long_running: usize,
    /// Alerts and whether each fires.
    pub alerts: BTreeMap<&'static str, bool>,
}

#[derive(Default)]
pub(crate) struct Kept(Mutex<Option<(Instant, Arc<Gauges>)>>);

#[derive(Clone, Debug)]
pub struct Metrics {
    pub counted: Counted,
    pub reaped: u64,
    /// `None`: the database does not answer.
    pub gauges: Option<Arc<Gauges>>,
}

impl Engine {
    pub async fn metrics(&self) -> Metrics {
        let gauges = self.gauges().await;
        if let Err(error) = &gauges {
            tracing::warn!(%error, "how things stand cannot be told");
        }
        Metrics {
            gauges: gauges.ok(),
            counted: self.db.counted(),
            reaped: self.reaped.load(Ordering::Relaxed),
        }
    }

    async fn gauges(&self) -> Result<Arc<Gauges>> {
        let mut kept = self.gauges.0.lock().await;
        if let Some((_, gauges)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEPT) {
            return Ok(gauges.clone());
        }
        let context = self.context.clone();
        let look = self.db.read(move |tx| {
            let now = context.now();
            let mut workers = BTreeMap::from([("live", 0), ("quiet", 0), ("dead", 0)]);
            for row in tx.workers(context.organisation)? {
                if let Some(count) = workers.get_mut(worker_state(now, &row)) {
                    *count += 1;
                }
            }
            let rows = tx.alerts(context.organisation)?;
            let firing: BTreeSet<&str> =
                rows.iter().filter(|row| row.firing).map(|row| row.name.as_str()).collect();
            Ok(Gauges {
                at: now,
                queues: tx.queue_depths(context.organisation, now)?,
                workers,
                changes: tx.open_changes()?,
                pools: pool_members(tx, &context)?,
                long_running: tx.long_running(context.organisation, None, now, MOST)?.len(),
                alerts: ALERTS.iter().map(|(name, _)| (*name, firing.contains(*name))).collect(),
            })
        });
        let gauges = Arc::new(look.await?);
        *kept = Some((Instant::now(), gauges.clone()));
        Ok(gauges)
    }
}
