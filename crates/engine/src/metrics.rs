//! How it is doing, in numbers.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use conductor_store::Result;

use crate::{Engine, link::Histogram};

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// By kind and status.
    pub ended: BTreeMap<(String, String), u64>,
    pub durations: BTreeMap<String, Histogram>,
    pub queue_depth: i64,
    pub queue_age_seconds: f64,
    pub workers: BTreeMap<String, u64>,
    pub reaped: u64,
}

impl Engine {
    pub async fn metrics(&self) -> Result<Metrics> {
        let now = self.context.now();
        let (queue_depth, oldest) = self.db.read(move |tx| tx.queue_depth(now)).await?;
        let mut workers = BTreeMap::from([("alive".to_owned(), 0), ("quiet".to_owned(), 0)]);
        for worker in self.workers().await? {
            *workers.entry(worker.state).or_default() += 1;
        }
        Ok(Metrics {
            ended: self.counters.ended.lock().map(|ended| ended.clone()).unwrap_or_default(),
            durations: self.counters.durations.lock().map(|durations| durations.clone()).unwrap_or_default(),
            queue_depth,
            queue_age_seconds: oldest.map_or(0.0, |at| (now - at).max(0) as f64 / 1e6),
            workers,
            reaped: self.counters.reaped.load(Ordering::Relaxed),
        })
    }
}
