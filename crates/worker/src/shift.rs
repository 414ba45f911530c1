//! One stretch of work: what is asked for, what is heard, and the jobs that run meanwhile.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use conductor_api::{
    trace, traced,
    worker::{Acquire, Acquired, JobOrder, LinkError, LinkResult},
};
use conductor_domain::ids::OperationId;
use tokio::{
    task::{self, JoinSet},
    time::{sleep, timeout},
};
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    Worker,
    guard::wire::now_ms,
    job::{Halt, Halting},
    perform::{Performer, Taken},
    report::Backoff,
    shutdown::{Shutdown, Stage},
};

/// An answer to a long poll may be this much late before it is taken for lost.
const LATE: Duration = Duration::from_secs(15);

/// What a server was about to grant when the request went away is granted within this time.
const AFTERMATH: Duration = Duration::from_millis(250);

/// How long an acquire stays open while the tools are still being looked for.
const UNTIL_KNOWN: Duration = Duration::from_millis(500);

/// An acquire that is open, and when it was sent with what answer.
struct Open {
    ask: Acquire,
    answer: Pin<Box<dyn Future<Output = (u64, LinkResult<Acquired>)> + Send>>,
}

impl Open {
    /// Asks whether an earlier request was granted, and for nothing else.
    fn looks_back(&self) -> bool {
        self.ask.wait_ms == 0
    }
}

/// One call of [`Worker::run`].
pub struct Shift<'a> {
    worker: &'a Worker,
    performer: Arc<Performer>,
    jobs: JoinSet<()>,
    running: HashMap<OperationId, (task::Id, Arc<Halting>)>,
    backoff: Backoff,
    stage: Stage,
    refused: Option<String>,
}

impl<'a> Shift<'a> {
    pub fn new(worker: &'a Worker, performer: Performer, shutdown: &Shutdown) -> Self {
        Self {
            worker,
            performer: Arc::new(performer),
            jobs: JoinSet::new(),
            running: HashMap::new(),
            backoff: Backoff::new(),
            stage: shutdown.stage(),
            refused: None,
        }
    }

    /// Works until there is nothing left to do. An error is why the worker was refused.
    pub async fn work(mut self, shutdown: &Shutdown) -> Result<(), String> {
        let mut stages = shutdown.subscribe();
        self.stage = *stages.borrow_and_update();
        let mut open: Option<Open> = None;
        loop {
            if open.is_none() {
                open = self.next_ask().map(|ask| self.ask(ask, Duration::ZERO));
            }
            if self.jobs.is_empty()
                && !open.as_ref().is_some_and(|open| open.looks_back() || open.ask.slots > 0)
            {
                return self.refused.map_or(Ok(()), Err);
            }
            let answered = async {
                match &mut open {
                    Some(open) => open.answer.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(ended) = self.jobs.join_next_with_id() => {
                    self.forget(ended);
                    // One that only listens would keep the free slot from being offered.
                    open = open.filter(|open| open.ask.slots > 0 || self.draining());
                }
                (sent, answer) = answered => {
                    open = open.and_then(|open| self.hear(open.ask, sent, answer));
                }
                Ok(()) = stages.changed() => {
                    self.stage = *stages.borrow_and_update();
                    if self.stage == Stage::Cancelling {
                        self.running.values().for_each(|(_, halting)| halting.halt(Halt::Cancelled));
                    }
                    open = open.map(|open| self.wind_down(open));
                }
            }
        }
    }

    fn draining(&self) -> bool {
        self.stage != Stage::Working || self.refused.is_some()
    }

    /// What to ask for now, if anything.
    fn next_ask(&self) -> Option<Acquire> {
        let config = &self.worker.config;
        let free = config.slots.saturating_sub(self.jobs.len());
        let slots = if self.draining() { 0 } else { free as u32 };
        let running = self.heeding();
        // What tools it has is not known at once; then it is asked again soon.
        let wait = if self.worker.tools.get().is_some() { config.wait } else { config.wait.min(UNTIL_KNOWN) };
        (slots > 0 || !running.is_empty()).then(|| Acquire {
            worker: config.id,
            name: config.name.clone(),
            request: Uuid::now_v7(),
            repeated: false,
            slots,
            managers: self.worker.registry.names().into_iter().map(str::to_owned).collect(),
            labels: config.labels.clone(),
            tokens: true,
            isolation: self.worker.guard.isolation(),
            networks: config.networks.clone(),
            tools: self.worker.tools.get().cloned().unwrap_or_default(),
            wait_ms: wait.as_millis() as u64,
            running,
            only: config.only,
        })
    }

    /// What runs and has not been told to stop: the rest need not be told again, and again.
    fn heeding(&self) -> Vec<OperationId> {
        let heeding = self.running.iter().filter(|(_, (_, halting))| halting.halted().is_none());
        heeding.map(|(&operation, _)| operation).collect()
    }

    fn ask(&self, ask: Acquire, pause: Duration) -> Open {
        let (link, again) = (self.worker.link.clone(), ask.clone());
        let answer = Box::pin(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let sent = now_ms();
            let limit = Duration::from_millis(again.wait_ms) + LATE;
            let answer = timeout(limit, link.acquire(again)).await;
            (sent, answer.unwrap_or_else(|_| Err(LinkError::Unreachable("no answer in time".to_owned()))))
        });
        Open { ask, answer }
    }

    /// Takes an answer in. What is returned is asked again: the same request gets the same jobs.
    fn hear(&mut self, ask: Acquire, sent: u64, answer: LinkResult<Acquired>) -> Option<Open> {
        match answer {
            Ok(acquired) => {
                self.backoff = Backoff::new();
                for operation in acquired.cancel {
                    if let Some((_, halting)) = self.running.get(&operation) {
                        halting.halt(Halt::Cancelled);
                    }
                }
                for order in acquired.jobs {
                    self.start(order, sent);
                }
                None
            }
            Err(LinkError::Unreachable(message)) => {
                tracing::warn!(%message, "no work can be asked for");
                let pause = self.backoff.next();
                (ask.wait_ms > 0).then(|| self.ask(Acquire { repeated: true, ..ask }, pause))
            }
            Err(error) => {
                tracing::error!(%error, "the worker is refused");
                self.refused = Some(error.to_string());
                None
            }
        }
    }

    fn start(&mut self, order: JobOrder, sent: u64) {
        let operation = order.claim.operation;
        // A repeated answer may name what already runs.
        if self.running.contains_key(&operation) {
            return;
        }
        let halting = Arc::new(Halting::new(Duration::from_millis(order.lease_ms), sent));
        if self.stage == Stage::Cancelling {
            halting.halt(Halt::Cancelled);
        }
        let (performer, taken) = (self.performer.clone(), Taken { order, halting: halting.clone() });
        let span = traced!(
            "job",
            operation.id = %operation,
            manager = %taken.order.manager,
            worker = %self.worker.config.name
        );
        trace::adopt(&span, taken.order.trace.as_deref());
        let task = self.jobs.spawn(async move { performer.perform(taken).await }.instrument(span));
        self.running.insert(operation, (task.id(), halting));
    }

    fn forget(&mut self, ended: Result<(task::Id, ()), task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            // Managers' panics are caught further in: this one is ours.
            Err(error) => {
                tracing::error!(%error, "a job was dropped");
                error.id()
            }
        };
        self.running.retain(|_, (task, _)| *task != id);
    }

    /// Shutting down. An open ask for work may have been granted already, or just about to be: it is asked once more,
    /// for nothing new, so that no operation is left to its lease.
    fn wind_down(&self, open: Open) -> Open {
        // In the process of a command, one is heard after the other.
        let pause = if self.worker.config.only.is_some() { Duration::ZERO } else { AFTERMATH };
        match open.ask.slots {
            0 => open,
            _ => self.ask(
                Acquire { repeated: true, slots: 0, wait_ms: 0, running: self.heeding(), ..open.ask },
                pause,
            ),
        }
    }
}
