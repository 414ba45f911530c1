//! How it is doing, in numbers.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use conductor_domain::lifecycle::{OperationKind, OperationStatus};
use conductor_store::Result;

use crate::Engine;

/// What happened since the start, for `/metrics`.
#[derive(Default)]
pub struct Counters {
    pub ended: Mutex<BTreeMap<(String, String), u64>>,
    pub durations: Mutex<BTreeMap<String, Histogram>>,
    pub reaped: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub struct Histogram {
    pub buckets: [u64; 12],
    pub count: u64,
    pub sum: f64,
}

pub const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

impl Counters {
    pub fn ended(&self, kind: OperationKind, status: OperationStatus, seconds: f64) {
        if let Ok(mut ended) = self.ended.lock() {
            *ended.entry((kind.to_string(), status.to_string())).or_default() += 1;
        }
        if let Ok(mut durations) = self.durations.lock() {
            let histogram = durations.entry(kind.to_string()).or_default();
            histogram.count += 1;
            histogram.sum += seconds;
            for (bucket, limit) in histogram.buckets.iter_mut().zip(BUCKETS) {
                *bucket += u64::from(seconds <= limit);
            }
        }
    }
}

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
