//! Completions of one change take turns in this process, so that they wait for each other without holding a
//! database connection each. Only an economy: the database is what keeps them in order.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use conductor_api::worker::JobOrder;
use conductor_domain::ids::{ChangeId, OperationId};

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Beyond this many, operations whose workers were lost are forgotten.
const KEPT: usize = 10_000;

#[derive(Default)]
pub(crate) struct Turns {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    changes: HashMap<ChangeId, Weak<tokio::sync::Mutex<()>>>,
    operations: HashMap<OperationId, Turn>,
}

impl Turns {
    /// Remembers which change each of these belongs to.
    pub fn note(&self, jobs: &[JobOrder]) {
        let Ok(mut inner) = self.inner.lock() else { return };
        if inner.operations.len() > KEPT {
            inner.operations.clear();
        }
        for job in jobs {
            let known = inner.changes.get(&job.change).and_then(Weak::upgrade);
            let turn = known.unwrap_or_else(|| {
                let turn = Turn::default();
                inner.changes.insert(job.change, Arc::downgrade(&turn));
                turn
            });
            inner.operations.insert(job.claim.operation, turn);
        }
        if inner.changes.len() > KEPT {
            inner.changes.retain(|_, turn| turn.strong_count() > 0);
        }
    }

    pub fn of(&self, operation: OperationId) -> Option<Turn> {
        self.inner.lock().ok()?.operations.get(&operation).cloned()
    }

    pub fn done(&self, operation: OperationId) {
        if let Ok(mut inner) = self.inner.lock() {
            inner.operations.remove(&operation);
        }
    }
}
