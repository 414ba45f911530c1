//! Asking a worker to stop: first to take no more work, then to cancel what it has.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Working,
    Draining,
    Cancelling,
}

/// Clones are the same request. The stage only moves on: working, draining, cancelling.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stage: Arc<watch::Sender<Stage>>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { stage: Arc::new(watch::Sender::new(Stage::Working)) }
    }
}

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// No new work; what runs may finish.
    pub fn drain(&self) {
        self.advance(Stage::Draining);
    }

    /// No new work, and what runs is cancelled.
    pub fn cancel(&self) {
        self.advance(Stage::Cancelling);
    }

    /// The next stage: what a first signal asks for, then a second.
    pub fn signal(&self) {
        match self.stage() {
            Stage::Working => self.drain(),
            _ => self.cancel(),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let moved = *stage < to;
            *stage = (*stage).max(to);
            moved
        });
    }
}
