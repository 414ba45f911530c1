//! A job's side of the link: lines out and the lease renewed while it runs, its end told once it is over.
//!
//! One sender per job, so that lines arrive in order. A batch that was not acknowledged is sent again under
//! the same number; whoever receives it twice can tell.

use std::{sync::Arc, time::Duration};

use conductor_api::worker::{Claim, Completion, JobResult, LinkError, LinkResult, Update, WorkerLink};
use conductor_domain::work::Failure;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    guard::wire::now_ms,
    job::{Halt, Halting},
    log::{BATCH_BYTES, LogBook},
};

/// Short jobs say everything with their completion: nothing is sent before this.
const FIRST_LINGER: Duration = Duration::from_millis(200);
const LINGER: Duration = Duration::from_millis(50);
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
const BACKOFF_LAST: Duration = Duration::from_secs(2);
/// How long a call that is under way when the job ends may still take.
const LAST_CALL: Duration = Duration::from_secs(1);
/// Nobody answered in this time: ask again.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The pause before the next attempt: doubling, up to a limit.
pub struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Self {
        Self(BACKOFF_FIRST)
    }

    pub fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(BACKOFF_LAST);
        pause
    }
}

pub struct Reporter {
    pub link: Arc<dyn WorkerLink>,
    pub claim: Claim,
    pub book: Arc<LogBook>,
    pub halting: Arc<Halting>,
    pub journaled: watch::Sender<u64>,
}

impl Reporter {
    /// Sends lines and renewals until `over` resolves or the operation is lost.
    pub async fn run(&self, mut over: oneshot::Receiver<()>) {
        let mut flush_at = Instant::now() + FIRST_LINGER;
        let mut backoff = Backoff::new();
        loop {
            let renew_at = Instant::now() + self.halting.until_renewal();
            let full = self.book.bytes() >= BATCH_BYTES;
            let due = match self.book.bytes() {
                _ if full || self.book.has_journal() => Instant::now(),
                0 => renew_at,
                _ => flush_at.min(renew_at),
            };
            tokio::select! {
                biased;
                _ = &mut over => return,
                () = sleep_until(due) => {}
                () = self.book.added.notified() => continue,
            }
            match self.send(&mut over).await {
                Some(Ok(())) => {
                    backoff = Backoff::new();
                    flush_at = Instant::now() + LINGER;
                }
                Some(Err(LinkError::Lost)) => {
                    self.halting.halt(Halt::Lost);
                    return;
                }
                Some(Err(error)) => {
                    tracing::debug!(operation.id = %self.claim.operation, %error, "update not accepted");
                    tokio::select! {
                        _ = &mut over => return,
                        () = sleep(backoff.next()) => {}
                    }
                }
                None => return,
            }
        }
    }

    /// One update. `None`: the job ended meanwhile.
    async fn send(&self, over: &mut oneshot::Receiver<()>) -> Option<LinkResult<()>> {
        let batch = self.book.take();
        let sent = now_ms();
        let limit = self.halting.renewal_every().max(Duration::from_millis(500)).min(ANSWER_WITHIN);
        let call = answered(limit, self.link.update(self.claim, batch.clone()));
        tokio::pin!(call);
        let (answer, ended) = tokio::select! {
            answer = &mut call => (answer, false),
            _ = over => (timeout(LAST_CALL, call).await.unwrap_or_else(|_| Err(no_answer())), true),
        };
        let result = match answer {
            Ok(answer) => {
                self.accepted(&batch, sent);
                if answer.cancel {
                    self.halting.halt(Halt::Cancelled);
                }
                Ok(())
            }
            Err(error) => {
                self.book.give_back(batch);
                Err(error)
            }
        };
        (!ended).then_some(result)
    }

    fn accepted(&self, batch: &Update, sent: u64) {
        self.halting.renewed(sent);
        if !batch.journal.is_empty() {
            self.journaled.send_modify(|count| *count += batch.journal.len() as u64);
        }
    }

    /// A renewal on its own, repeated until it is answered or too late. `false`: do not start.
    pub async fn renew(&self) -> bool {
        let mut backoff = Backoff::new();
        loop {
            let sent = now_ms();
            match answered(ANSWER_WITHIN, self.link.update(self.claim, Update::default())).await {
                Ok(answer) => {
                    self.halting.renewed(sent);
                    if answer.cancel {
                        self.halting.halt(Halt::Cancelled);
                    }
                    return true;
                }
                Err(LinkError::Unreachable(_)) => sleep(backoff.next()).await,
                Err(_) => return false,
            }
        }
    }

    /// Tells how the job ended, until somebody has heard it or it is nobody's business any more.
    pub async fn complete(&self, mut result: JobResult) {
        let mut backoff = Backoff::new();
        while self.book.bytes() > BATCH_BYTES {
            let batch = self.book.take();
            match answered(ANSWER_WITHIN, self.link.update(self.claim, batch.clone())).await {
                Ok(_) => backoff = Backoff::new(),
                Err(LinkError::Lost) => return,
                Err(LinkError::Refused(message)) => {
                    tracing::warn!(operation.id = %self.claim.operation, %message, "log lines refused");
                }
                Err(LinkError::Unreachable(_)) => {
                    self.book.give_back(batch);
                    sleep(backoff.next()).await;
                }
            }
        }
        let rest = self.book.take();
        loop {
            let completion = Completion { result: result.clone(), rest: rest.clone() };
            match answered(ANSWER_WITHIN, self.link.complete(self.claim, completion)).await {
                Ok(()) | Err(LinkError::Lost) => return,
                Err(LinkError::Unreachable(message)) => {
                    tracing::debug!(operation.id = %self.claim.operation, %message, "completion not heard");
                    sleep(backoff.next()).await;
                }
                Err(LinkError::Refused(message)) => {
                    tracing::error!(operation.id = %self.claim.operation, %message, "completion refused");
                    if matches!(result, JobResult::Failed(_)) {
                        return;
                    }
                    // Better a failure that says why than an operation that ends with its lease.
                    result = JobResult::Failed(Failure::failed(format!("the result was refused: {message}")));
                }
            }
        }
    }
}

fn no_answer() -> LinkError {
    LinkError::Unreachable("no answer in time".to_owned())
}

async fn answered<T>(limit: Duration, call: impl Future<Output = LinkResult<T>>) -> LinkResult<T> {
    timeout(limit, call).await.unwrap_or_else(|_| Err(no_answer()))
}
