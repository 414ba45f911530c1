//! The worker protocol, served by the engine: claims with lease and fence, renewals, completions, files, state.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use conductor_api::{
    trace, traced,
    worker::{
        Acquire, Acquired, Claim, Completion, JobOrder, LinkError, LinkResult, LockAnswer, StateLock, Update,
        Updated, WorkerLink,
    },
};
use conductor_domain::{
    ids::WorkerId,
    lifecycle::{ErrorCode, OperationStatus},
};
use conductor_store::{Error, Owner, Result, Tx, operations::OperationRow};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    Context, Engine,
    catalogue::open_payload,
    claims::{claim, claimed_before},
    completion::{DOMAINS_FIRST, complete, fresh_lines},
    queues::abilities,
};

/// A waiting acquire looks again after this long, should a bell have been missed.
const BACKUP_POLL: Duration = Duration::from_secs(2);
/// While this process is about to stop, nobody is kept waiting longer than this.
const WAIT_AT_THE_END: Duration = Duration::from_millis(250);
const SEEN_EVERY: Duration = Duration::from_secs(10);

impl Engine {
    pub fn link(self: &Arc<Self>) -> Arc<dyn WorkerLink> {
        self.clone()
    }
}

pub(crate) fn refused(error: Error) -> LinkError {
    match error {
        // Whatever is wrong with the database is not the worker's doing: it tries again.
        Error::Unreachable(text) | Error::Busy(text) | Error::Database(text) => LinkError::Unreachable(text),
        Error::Refused { code: ErrorCode::NotFound, .. } | Error::Moved(_) => LinkError::Lost,
        other => LinkError::Refused(other.to_string()),
    }
}

/// The claim no longer holds.
pub(crate) fn lost() -> Error {
    Error::Refused { code: ErrorCode::NotFound, message: "lost".into(), detail: Box::default() }
}

/// The operation of a claim that still holds.
pub(crate) fn held(tx: &mut Tx<'_>, claim: Claim) -> Result<OperationRow> {
    tx.operation(claim.operation)?
        .filter(|row| row.fence == claim.fence && row.status == OperationStatus::InProgress)
        .ok_or_else(lost)
}

/// Whether these are files that the operation needs.
pub(crate) fn is_content(tx: &mut Tx<'_>, row: &OperationRow, digest: &str) -> Result<bool> {
    match row.resource {
        Some(resource) => tx.is_content_of(resource, digest),
        None => Ok(open_payload(tx, row)?["content"] == *digest),
    }
}

#[async_trait]
impl WorkerLink for Engine {
    async fn acquire(&self, ask: Acquire) -> LinkResult<Acquired> {
        let asked = Instant::now();
        let mut until = asked + Duration::from_millis(ask.wait_ms);
        let mut watch = self.db.watch();
        let mut first = true;
        loop {
            watch.seen();
            let (acquired, next_ready) = self.try_acquire(&ask, first).await.map_err(refused)?;
            first = false;
            self.turns.note(&acquired.jobs);
            if self.is_draining() {
                until = until.min(asked + WAIT_AT_THE_END);
            }
            let left = until.saturating_duration_since(Instant::now());
            if !acquired.jobs.is_empty() || !acquired.cancel.is_empty() || left.is_zero() {
                return Ok(acquired);
            }
            let pause = next_ready.unwrap_or(BACKUP_POLL).clamp(Duration::from_millis(1), BACKUP_POLL);
            watch.changed(left.min(pause)).await;
        }
    }

    async fn leave(&self, worker: WorkerId) -> LinkResult<()> {
        if let Ok(mut seen) = self.seen.lock() {
            seen.remove(&worker);
        }
        let now = self.context.now();
        self.db.write(move |tx| tx.leave_worker(worker, now)).await.map_err(refused)
    }

    async fn update(&self, claim: Claim, update: Update) -> LinkResult<Updated> {
        let context = self.context.clone();
        self.db
            .write(move |tx| {
                let now = context.now();
                let row = held(tx, claim)?;
                let upto = update.first_line as i64 + update.lines.len() as i64;
                let fresh = fresh_lines(&row, &update);
                let renewed = tx.renew_operation(claim.operation, claim.fence, upto)?;
                let (_, cancel) = renewed.ok_or_else(lost)?;
                if !update.journal.is_empty() {
                    keep_journal(tx, &context, &row, &update.journal)?;
                }
                tx.append_log(context.organisation, row.change, row.id, fresh, now)?;
                Ok(Updated { cancel })
            })
            .await
            .map_err(refused)
    }

    async fn complete(&self, claim: Claim, completion: Completion) -> LinkResult<()> {
        let body = serde_json::to_vec(&completion.result).unwrap_or_default();
        let digest: Vec<u8> = Sha256::digest(&body).to_vec();
        let context = self.context.clone();
        // Completions of one change meet at its rows: they queue here rather than on connections.
        let turn = self.turns.of(claim.operation);
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let mut domains_first = false;
        let change_over = self
            .db
            .write(move |tx| {
                let ended = complete(tx, &context, claim, &completion, &digest, domains_first);
                domains_first |= matches!(&ended, Err(Error::Busy(why)) if why == DOMAINS_FIRST);
                ended
            })
            .await
            .map_err(refused)?;
        self.turns.done(claim.operation);
        if change_over && let Err(error) = self.promote_waiting().await {
            tracing::warn!(%error, "promotion waits for the sweep");
        }
        Ok(())
    }

    async fn blob(&self, claim: Claim, digest: &str) -> LinkResult<Bytes> {
        let (organisation, digest) = (self.context.organisation, digest.to_owned());
        let body = self.db.read(move |tx| {
            let row = held(tx, claim)?;
            if is_content(tx, &row, &digest)? { tx.blob(organisation, &digest) } else { Ok(None) }
        });
        let none = || LinkError::Refused("this operation has no such files".into());
        body.await.map_err(refused)?.map(Bytes::from).ok_or_else(none)
    }

    async fn keep_blob(&self, claim: Claim, digest: &str, body: Bytes) -> LinkResult<()> {
        let (context, digest) = (self.context.clone(), digest.to_owned());
        self.db
            .write(move |tx| {
                held(tx, claim)?;
                tx.keep_blob(context.organisation, &digest, &body, context.now())
            })
            .await
            .map_err(refused)
    }

    async fn read_state(&self, claim: Claim) -> LinkResult<Option<Bytes>> {
        self.read_claimed_state(claim).await.map_err(refused)
    }

    async fn write_state(&self, claim: Claim, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        self.write_claimed_state(claim, lock, body).await.map_err(refused)
    }

    async fn lock_state(&self, claim: Claim, lock: StateLock) -> LinkResult<LockAnswer> {
        self.lock_claimed_state(claim, lock).await.map_err(refused)
    }

    async fn unlock_state(&self, claim: Claim, lock: Option<StateLock>) -> LinkResult<()> {
        self.unlock_claimed_state(claim, lock).await.map_err(refused)
    }
}

impl Engine {
    /// One look for work: what there is now, and when there may be more.
    async fn try_acquire(&self, ask: &Acquire, first: bool) -> Result<(Acquired, Option<Duration>)> {
        let (context, ask) = (self.context.clone(), ask.clone());
        let worker = abilities(&ask);
        let mut document = serde_json::to_value(&worker).unwrap_or_default();
        document["isolation"] = ask.isolation.clone().into();
        let seen = !first || self.seen_lately(ask.worker, &document);
        self.db
            .write(move |tx| {
                let now = context.now();
                let mut acquired = Acquired { jobs: vec![], cancel: tx.to_stop(ask.worker, &ask.running)? };
                if !seen {
                    tx.see_worker(context.organisation, ask.worker, &ask.name, &document, now)?;
                }
                if first && ask.repeated {
                    acquired.jobs = claimed_before(tx, &context, &ask)?;
                }
                if ask.slots == 0 || !acquired.jobs.is_empty() {
                    return Ok((acquired, None));
                }
                let queues = &context.templates.queues;
                let mut with_work = queues.with_work(tx, &context, &worker, now)?;
                if with_work.iter().any(|queue| !queues.knows(*queue)) {
                    queues.load(tx)?;
                    with_work = queues.with_work(tx, &context, &worker, now)?;
                }
                for queue in with_work {
                    // An operation may turn out to need no worker at all; then the next one is looked at.
                    while acquired.jobs.len() < ask.slots as usize {
                        let want = i64::from(ask.slots) - acquired.jobs.len() as i64;
                        let ready = tx.ready_operations(queue, context.owner, now, want)?;
                        if ready.is_empty() {
                            break;
                        }
                        // One at a time for each resource: the next look leaves out what is busy by now.
                        let mut busy = BTreeSet::new();
                        for (row, application) in ready {
                            if row.resource.is_none_or(|resource| busy.insert(resource)) {
                                acquired.jobs.extend(claim(tx, &context, &ask, row, application, now)?);
                            }
                        }
                    }
                }
                if trace::is_on() {
                    acquired.jobs.iter_mut().try_for_each(|job| claimed(tx, job))?;
                }
                let next = if acquired.jobs.is_empty() { tx.next_ready_at()? } else { None };
                let pause = next.filter(|at| *at > now).map(|at| Duration::from_micros((at - now) as u64));
                Ok((acquired, pause))
            })
            .await
    }

    /// Whether this was noted a moment ago, just as it is.
    fn seen_lately(&self, worker: WorkerId, document: &Value) -> bool {
        let Ok(mut seen) = self.seen.lock() else {
            return true;
        };
        match seen.get(&worker) {
            Some((at, known)) if at.elapsed() < SEEN_EVERY && known == document => true,
            _ => {
                seen.insert(worker, (Instant::now(), document.clone()));
                false
            }
        }
    }
}

/// The claim is a span of the request that asked for the change, and the job is one of the claim.
fn claimed(tx: &mut Tx<'_>, job: &mut JobOrder) -> Result<()> {
    let Some(request) = tx.trace_of(job.change)? else {
        return Ok(());
    };
    let span = traced!("operation.claim", operation.id = %job.claim.operation, deployment.id = %job.change);
    trace::adopt(&span, Some(&request));
    job.trace = trace::of(&span);
    Ok(())
}

fn keep_journal(tx: &mut Tx<'_>, context: &Context, row: &OperationRow, entries: &[Value]) -> Result<()> {
    let owner = Owner { organisation: context.organisation, kind: "journal", id: row.id.0.as_bytes() };
    let mut journal: Vec<Value> = match tx.journal(row.id)? {
        Some(sealed) => serde_json::from_slice(&tx.sealer().open(owner, &sealed)?).unwrap_or_default(),
        None => vec![],
    };
    journal.extend_from_slice(entries);
    let plain = serde_json::to_vec(&journal).unwrap_or_default();
    let sealed = tx.sealer().seal(owner, &plain)?;
    tx.set_journal(row.id, sealed)
}
