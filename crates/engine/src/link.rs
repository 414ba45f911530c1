//! The worker protocol, served by the engine: claims with lease and fence, renewals, completions, files, state.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use conductor_api::worker::{
    Acquire, Acquired, Claim, Completion, JobOrder, JobResult, LinkError, LinkResult, LockAnswer, StateLock,
    Task, Update, Updated, WorkerLink,
};
use conductor_domain::{
    ids::{OperationId, ResourceId, WorkerId},
    lifecycle::{ErrorCode, Fault, OperationKind, OperationStatus, State, Status},
    work::{Done, Failure, FailureCode, LogLine},
};
use conductor_store::{
    Error, Owner, Result, Tx, operations::OperationRow, resources::ResourceRow, states::StateWrite,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    Context, Engine,
    progress::Progress,
    steps::{open_inputs, prepare, texts},
};

/// A waiting acquire looks again after this long, should a bell have been missed.
const BACKUP_POLL: Duration = Duration::from_secs(2);
const SEEN_EVERY: Duration = Duration::from_secs(10);
const MASK: &str = "(secret)";

/// What happened since the start, for `/metrics`.
#[derive(Default)]
pub struct Counters {
    pub ended: Mutex<BTreeMap<(String, String), u64>>,
    pub durations: Mutex<BTreeMap<String, Histogram>>,
    pub reaped: AtomicU64,
    seen: Mutex<BTreeMap<WorkerId, Instant>>,
}

#[derive(Clone, Debug, Default)]
pub struct Histogram {
    pub buckets: [u64; 12],
    pub count: u64,
    pub sum: f64,
}

pub const BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0];

impl Counters {
    fn ended(&self, kind: OperationKind, status: OperationStatus, seconds: f64) {
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

impl Engine {
    pub fn link(self: &Arc<Self>) -> Arc<dyn WorkerLink> {
        self.clone()
    }
}

fn refused(error: Error) -> LinkError {
    match error {
        Error::Unreachable(text) | Error::Busy(text) => LinkError::Unreachable(text),
        Error::Refused { code: ErrorCode::NotFound, .. } | Error::Moved(_) => LinkError::Lost,
        other => LinkError::Refused(other.to_string()),
    }
}

/// The claim no longer holds.
fn lost() -> Error {
    Error::Refused { code: ErrorCode::NotFound, message: "lost".into(), detail: Box::default() }
}

/// The operation of a claim that still holds.
fn held(tx: &mut Tx<'_>, claim: Claim) -> Result<OperationRow> {
    tx.operation(claim.operation)?
        .filter(|row| row.fence == claim.fence && row.status == OperationStatus::InProgress)
        .ok_or_else(lost)
}

#[async_trait]
impl WorkerLink for Engine {
    async fn acquire(&self, ask: Acquire) -> LinkResult<Acquired> {
        let until = Instant::now() + Duration::from_millis(ask.wait_ms);
        let mut watch = self.db.watch();
        let mut first = true;
        loop {
            watch.seen();
            let (acquired, next_ready) = self.try_acquire(&ask, first).await.map_err(refused)?;
            first = false;
            let left = until.saturating_duration_since(Instant::now());
            if !acquired.jobs.is_empty() || !acquired.cancel.is_empty() || left.is_zero() {
                return Ok(acquired);
            }
            let pause = next_ready.unwrap_or(BACKUP_POLL).clamp(Duration::from_millis(1), BACKUP_POLL);
            watch.changed(left.min(pause)).await;
        }
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
        let (context, counters) = (self.context.clone(), self.counters.clone());
        let ended = self
            .db
            .write(move |tx| complete(tx, &context, claim, &completion, &digest))
            .await
            .map_err(refused)?;
        let Some(ended) = ended else { return Ok(()) };
        counters.ended(ended.kind, ended.status, ended.seconds);
        if ended.change_over
            && let Err(error) = self.promote_waiting().await
        {
            tracing::warn!(%error, "promotion waits for the sweep");
        }
        Ok(())
    }

    async fn blob(&self, digest: &str) -> LinkResult<Bytes> {
        let (organisation, digest) = (self.context.organisation, digest.to_owned());
        let body = self.db.read(move |tx| tx.blob(organisation, &digest)).await.map_err(refused)?;
        body.map(Bytes::from).ok_or_else(|| LinkError::Refused("there are no such files".into()))
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
        let context = self.context.clone();
        let state = self.db.read(move |tx| {
            let resource = held(tx, claim)?.resource.ok_or_else(lost)?;
            tx.latest_state(context.organisation, resource)
        });
        Ok(state.await.map_err(refused)?.map(Bytes::from))
    }

    async fn write_state(&self, claim: Claim, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        let context = self.context.clone();
        let invalid = |what: &str| LinkError::Refused(format!("this is no terraform state: {what}"));
        let state: Value = serde_json::from_slice(&body).map_err(|_| invalid("not JSON"))?;
        let serial = state["serial"].as_i64().ok_or_else(|| invalid("no serial"))?;
        let lineage = state["lineage"].as_str().unwrap_or_default().to_owned();
        let kept = self
            .db
            .write(move |tx| {
                let row = held(tx, claim)?;
                let resource = row.resource.ok_or_else(lost)?;
                if let Some((held_id, fence)) = tx.state_lock(resource)?
                    && fence == claim.fence
                    && lock.as_ref().is_some_and(|lock| *lock != held_id)
                {
                    return Ok(StateWrite::Stale { stored: -1 });
                }
                tx.keep_state(
                    context.organisation,
                    resource,
                    serial,
                    &lineage,
                    &body,
                    claim.fence,
                    context.now(),
                )
            })
            .await
            .map_err(refused)?;
        match kept {
            StateWrite::Kept | StateWrite::Again => Ok(()),
            StateWrite::Stale { stored: -1 } => {
                Err(LinkError::Refused("the state is locked by another id".into()))
            }
            StateWrite::Stale { stored } => {
                Err(LinkError::Refused(format!("serial {serial} is not newer than the stored {stored}")))
            }
        }
    }

    async fn lock_state(&self, claim: Claim, lock: StateLock) -> LinkResult<LockAnswer> {
        let context = self.context.clone();
        self.db
            .write(move |tx| {
                let resource = held(tx, claim)?.resource.ok_or_else(lost)?;
                let document = serde_json::to_value(&lock).unwrap_or_default();
                let held = tx.lock_state(resource, &lock.id, claim.fence, &document, context.now())?;
                Ok(match held.and_then(|held| serde_json::from_value(held).ok()) {
                    Some(holder) => LockAnswer::HeldBy(holder),
                    None => LockAnswer::Taken,
                })
            })
            .await
            .map_err(refused)
    }

    async fn unlock_state(&self, claim: Claim, _lock: Option<StateLock>) -> LinkResult<()> {
        self.db
            .write(move |tx| {
                let resource = held(tx, claim)?.resource.ok_or_else(lost)?;
                tx.unlock_state(resource)
            })
            .await
            .map_err(refused)
    }
}

impl Engine {
    /// One look for work: what there is now, and when there may be more.
    async fn try_acquire(&self, ask: &Acquire, first: bool) -> Result<(Acquired, Option<Duration>)> {
        let (context, ask) = (self.context.clone(), ask.clone());
        let seen = self.seen_lately(ask.worker);
        self.db
            .write(move |tx| {
                let now = context.now();
                let mut acquired = Acquired { jobs: vec![], cancel: tx.to_stop(ask.worker, &ask.running)? };
                if !seen && first {
                    let document = json!({ "managers": ask.managers, "labels": ask.labels });
                    tx.see_worker(context.organisation, ask.worker, &ask.name, &document, now)?;
                }
                if first && ask.repeated {
                    acquired.jobs = claimed_before(tx, &context, &ask)?;
                }
                if ask.slots == 0 || !acquired.jobs.is_empty() {
                    return Ok((acquired, None));
                }
                // An operation may turn out to need no worker at all; then the next one is looked at.
                loop {
                    let want = i64::from(ask.slots) - acquired.jobs.len() as i64;
                    let ready = tx.ready_operations(&ask.managers, context.owner, now, want)?;
                    if ready.is_empty() {
                        break;
                    }
                    for row in ready {
                        acquired.jobs.extend(claim(tx, &context, &ask, row, now)?);
                    }
                    if acquired.jobs.len() >= ask.slots as usize {
                        break;
                    }
                }
                let next = if acquired.jobs.is_empty() { tx.next_ready_at()? } else { None };
                let pause = next.filter(|at| *at > now).map(|at| Duration::from_micros((at - now) as u64));
                Ok((acquired, pause))
            })
            .await
    }

    fn seen_lately(&self, worker: WorkerId) -> bool {
        let Ok(mut seen) = self.counters.seen.lock() else {
            return true;
        };
        match seen.get(&worker) {
            Some(at) if at.elapsed() < SEEN_EVERY => true,
            _ => {
                seen.insert(worker, Instant::now());
                false
            }
        }
    }
}

/// The answer to an earlier request of the same id was lost: the same jobs again.
fn claimed_before(tx: &mut Tx<'_>, context: &Context, ask: &Acquire) -> Result<Vec<JobOrder>> {
    let mut jobs = Vec::new();
    for row in tx.claimed_by_request(ask.worker, ask.request)? {
        match row.resource {
            None => jobs.extend(describe_order(context, &row, row.fence)),
            Some(id) => {
                let resource =
                    tx.resource(id)?.ok_or_else(|| Error::Corrupt("an operation on nothing".into()))?;
                if let Ok(prepared) = prepare(tx, context, &row, &resource, row.fence)? {
                    jobs.push(prepared.order);
                }
            }
        }
    }
    Ok(jobs)
}

/// Takes one operation: `None` when it needed no worker after all.
fn claim(
    tx: &mut Tx<'_>,
    context: &Context,
    ask: &Acquire,
    row: OperationRow,
    now: i64,
) -> Result<Option<JobOrder>> {
    let lease = context.lease.as_millis() as i64;
    let Some(id) = row.resource else {
        let fence = row.fence + 1;
        tx.claim_operation(row.id, ask.worker, ask.request, fence, lease, None, None, now)?;
        return Ok(describe_order(context, &row, fence));
    };
    let resource = tx.resource(id)?.ok_or_else(|| Error::Corrupt("an operation on nothing".into()))?;
    let prepared = prepare(tx, context, &row, &resource, resource.fence + 1)?;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(missing) => {
            fail_before_start(tx, context, &row, &resource, &missing.to_string(), now)?;
            return Ok(None);
        }
    };
    if row.conditional && resource.inputs_digest.as_ref() == Some(&prepared.digest) {
        tx.confirm_resource(id, row.generation, now)?;
        tx.settle_revision(id, row.generation, "applied")?;
        let mut progress = Progress::new(tx, context, now);
        progress.ready(id, row.generation)?;
        progress.succeeded(&row, None)?;
        progress.settle()?;
        return Ok(None);
    }
    let Some(fence) = tx.raise_fence(id, now)? else {
        // Never seen; but one operation out of step must not keep a worker from the others.
        let fault = Fault::new(
            ErrorCode::Conflict,
            format!("{} is {}/{}, not queued", resource.name, resource.state, resource.status),
        );
        let mut progress = Progress::new(tx, context, now);
        progress.failed(&row, OperationStatus::Failed, fault, None)?;
        progress.settle()?;
        return Ok(None);
    };
    let (sealed, digest) = (Some(prepared.sealed), Some(prepared.digest));
    tx.claim_operation(row.id, ask.worker, ask.request, fence, lease, sealed, digest, now)?;
    let mut order = prepared.order;
    order.claim.fence = fence;
    Ok(Some(order))
}

fn describe_order(context: &Context, row: &OperationRow, fence: i64) -> Option<JobOrder> {
    let payload = row.payload.as_ref()?;
    Some(JobOrder {
        claim: Claim { operation: row.id, fence },
        change: row.change,
        manager: payload["document"]["manager"].as_str()?.to_owned(),
        content: payload["content"].as_str().map(str::to_owned),
        task: Task::Describe {
            config: payload["document"]["config"].as_object().cloned().unwrap_or_default(),
            parameters: payload["document"].get("parameters").filter(|p| p.is_object()).cloned(),
        },
        lease_ms: context.lease.as_millis() as u64,
        timeout_ms: 600_000,
    })
}

fn fail_before_start(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    resource: &ResourceRow,
    message: &str,
    now: i64,
) -> Result<()> {
    let fault = Fault::new(ErrorCode::Invalid, message);
    let error = serde_json::to_value(&fault).unwrap_or_default();
    tx.fail_resource(resource.id, (resource.state, resource.status), Status::Error, message, &error, now)?;
    let mut progress = Progress::new(tx, context, now);
    progress.failed(row, OperationStatus::Failed, fault, None)?;
    progress.settle()
}

/// Lines of an update that were not stored by an earlier one whose answer was lost.
fn fresh_lines<'u>(row: &OperationRow, update: &'u Update) -> &'u [LogLine] {
    let known = (row.lines - update.first_line as i64).clamp(0, update.lines.len() as i64) as usize;
    &update.lines[known..]
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

/// How a completion was taken.
struct Ended {
    kind: OperationKind,
    status: OperationStatus,
    seconds: f64,
    change_over: bool,
}

/// Where the operation stands now, and whether a change ended with it.
type Settled = (OperationStatus, bool);

/// The end of a job, in one transaction that is valid only for its fence.
fn complete(
    tx: &mut Tx<'_>,
    context: &Context,
    claim: Claim,
    completion: &Completion,
    digest: &[u8],
) -> Result<Option<Ended>> {
    let now = context.now();
    // Dropping a use takes its planning domain, and domains come before everything else.
    if let Some(change) = tx.releasing_change_of(claim.operation)? {
        let domains = tx.domains_of_leaving(change)?;
        tx.lock_domains(&domains)?;
    }
    let (row, given) = tx.lock_operation_with_inputs(claim.operation)?.ok_or_else(lost)?;
    if row.fence == claim.fence && row.result_digest.as_deref() == Some(digest) {
        return Ok(None);
    }
    if row.fence != claim.fence || row.status != OperationStatus::InProgress {
        return Err(lost());
    }
    let resource = match row.resource {
        Some(id) => tx.resource(id)?,
        None => None,
    };
    let (status, change_over) = match (&completion.result, &resource) {
        (JobResult::Done(done), Some(resource)) => {
            succeed(tx, context, &row, given.as_deref(), resource, done, completion, digest, now)?
        }
        (JobResult::Described { description, content }, None) => {
            tx.append_log(
                context.organisation,
                row.change,
                row.id,
                fresh_lines(&row, &completion.rest),
                now,
            )?;
            match crate::catalogue::finish_describe(tx, context, &row, description, content.as_deref(), now) {
                Ok(()) => {
                    let mut progress = Progress::new(tx, context, now);
                    progress.succeeded(&row, Some(digest.to_vec()))?;
                    progress.settle()?;
                    (OperationStatus::Succeeded, !progress.ended.is_empty())
                }
                Err(Error::Refused { message, .. }) => {
                    let failure = Failure::invalid(message);
                    fail(tx, context, &row, None, &failure, digest, now)?
                }
                Err(error) => return Err(error),
            }
        }
        (JobResult::Failed(failure), resource) => {
            tx.append_log(
                context.organisation,
                row.change,
                row.id,
                fresh_lines(&row, &completion.rest),
                now,
            )?;
            fail(tx, context, &row, resource.as_ref(), failure, digest, now)?
        }
        _ => return Err(Error::Corrupt("a result that does not fit its operation".into())),
    };
    let seconds = row.started_at.map_or(0.0, |at| (now - at) as f64 / 1e6);
    Ok(Some(Ended { kind: row.kind, status, seconds, change_over }))
}

#[allow(clippy::too_many_arguments, reason = "the parts of one completion")]
fn succeed(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    given: Option<&[u8]>,
    resource: &ResourceRow,
    done: &Done,
    completion: &Completion,
    digest: &[u8],
    now: i64,
) -> Result<Settled> {
    let fresh = fresh_lines(row, &completion.rest);
    if row.kind == OperationKind::Destroy {
        tx.append_log(context.organisation, row.change, row.id, fresh, now)?;
        if done.exists == Some(true) {
            let failure = Failure::failed("it was destroyed, and is still there");
            return fail(tx, context, row, Some(resource), &failure, digest, now);
        }
        tx.destroy_resource(resource.id, (State::Destroy, Status::InProgress), now)?;
        let mut progress = Progress::new(tx, context, now);
        let receipt = json!({ "name": resource.name, "verified": done.exists == Some(false) });
        progress.event(
            "resource.destroyed",
            "conductor",
            Some(row.change),
            Some(resource.id),
            Some(row.id),
            receipt,
        )?;
        progress.gone(resource.id)?;
        progress.succeeded(row, Some(digest.to_vec()))?;
        progress.settle()?;
        return Ok((OperationStatus::Succeeded, !progress.ended.is_empty()));
    }
    let secrets = match given {
        Some(sealed) => open_inputs(tx, context, resource.id, sealed)?.secrets,
        None => BTreeSet::new(),
    };
    let (outputs, minted) = seal_outputs(tx, context, resource.id, done, &secrets)?;
    if minted.is_empty() {
        tx.append_log(context.organisation, row.change, row.id, fresh, now)?;
    } else {
        // What the operation minted is known only now: nothing of it stays readable in its log.
        let mask = |text: &str| mask_text(text, &minted);
        let masked: Vec<LogLine> = fresh
            .iter()
            .map(|line| LogLine {
                text: mask(&line.text).unwrap_or_else(|| line.text.clone()),
                ..line.clone()
            })
            .collect();
        tx.append_log(context.organisation, row.change, row.id, &masked, now)?;
        if row.lines > 0 {
            tx.rewrite_log(context.organisation, row.change, row.id, &mask)?;
        }
    }
    let state = match &done.state {
        Some(state) => {
            let owner = Owner {
                organisation: context.organisation,
                kind: "manager_state",
                id: resource.id.0.as_bytes(),
            };
            Some(tx.sealer().seal(owner, state.to_string().as_bytes())?)
        }
        None => None,
    };
    let external = done.external_id.as_deref();
    let awaited = tx.apply_resource(
        resource.id,
        resource.state,
        row.generation,
        row.id,
        &outputs,
        state,
        external,
        now,
    )?;
    tx.settle_revision(resource.id, row.generation, "applied")?;
    let mut progress = Progress::new(tx, context, now);
    let kind = if row.kind == OperationKind::Create { "resource.created" } else { "resource.updated" };
    let told = json!({ "name": resource.name, "generation": row.generation });
    progress.event(kind, "conductor", Some(row.change), Some(resource.id), Some(row.id), told)?;
    if awaited {
        progress.ready(resource.id, row.generation)?;
    }
    progress.succeeded(row, Some(digest.to_vec()))?;
    progress.settle()?;
    Ok((OperationStatus::Succeeded, !progress.ended.is_empty()))
}

/// Outputs as stored, sensitive ones sealed, and the secret texts that this step made.
fn seal_outputs(
    tx: &Tx<'_>,
    context: &Context,
    id: ResourceId,
    done: &Done,
    secrets: &BTreeSet<String>,
) -> Result<(Value, BTreeSet<String>)> {
    let owner = Owner { organisation: context.organisation, kind: "outputs", id: id.0.as_bytes() };
    let mut minted = BTreeSet::new();
    let mut outputs = serde_json::Map::new();
    for (name, output) in &done.outputs {
        let mut inside = BTreeSet::new();
        texts(&output.value, &mut inside);
        let tainted = inside.iter().any(|text| secrets.iter().any(|secret| text.contains(secret.as_str())));
        let value = if output.sensitive || tainted {
            minted.extend(inside);
            tx.sealer().seal_leaf(owner, &output.value)?
        } else if conductor_store::is_sealed(&output.value) {
            return Err(Error::Corrupt("an output that looks sealed".into()));
        } else {
            output.value.clone()
        };
        outputs.insert(name.clone(), value);
    }
    Ok((Value::Object(outputs), minted))
}

fn mask_text(text: &str, secrets: &BTreeSet<String>) -> Option<String> {
    let mut masked = text.to_owned();
    for secret in secrets {
        if masked.contains(secret.as_str()) {
            masked = masked.replace(secret.as_str(), MASK);
        }
    }
    (masked != text).then_some(masked)
}

/// A bad end: tried again where that may help, else kept with its reason.
fn fail(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    resource: Option<&ResourceRow>,
    failure: &Failure,
    digest: &[u8],
    now: i64,
) -> Result<Settled> {
    let code = match failure.code {
        FailureCode::Transient => ErrorCode::Transient,
        FailureCode::Invalid => ErrorCode::Invalid,
        FailureCode::TimedOut => ErrorCode::TimedOut,
        FailureCode::Cancelled => ErrorCode::Cancelled,
        FailureCode::Failed | FailureCode::Unsupported => ErrorCode::Failed,
    };
    let fault =
        Fault { code, message: failure.message.clone(), hint: failure.hint.clone(), operation: Some(row.id) };
    let error = serde_json::to_value(&fault).unwrap_or_default();
    tx.insert_attempt(row, failure_word(failure.code), Some(&error), now)?;
    let again = failure.code == FailureCode::Transient
        && row.attempt <= row.retries
        && row.cancel_requested_at.is_none();
    if again {
        let pause = backoff(row.attempt);
        tx.requeue_operation(row, now + pause, Some(&error))?;
        if let Some(resource) = resource {
            let message = format!("attempt {} failed, tried again: {}", row.attempt, failure.message);
            tx.move_resource(
                resource.id,
                (resource.state, resource.status),
                (resource.state, Status::Queued),
                Some(&message),
                now,
            )?;
        }
        return Ok((OperationStatus::Queued, false));
    }
    let status = match failure.code {
        FailureCode::TimedOut => OperationStatus::TimedOut,
        FailureCode::Cancelled => OperationStatus::Cancelled,
        _ => OperationStatus::Failed,
    };
    if let Some(resource) = resource {
        tx.fail_resource(
            resource.id,
            (resource.state, resource.status),
            Status::Error,
            &failure.message,
            &error,
            now,
        )?;
        tx.settle_revision(resource.id, row.generation, "failed")?;
    }
    let mut progress = Progress::new(tx, context, now);
    let told = json!({ "error": error });
    progress.event("operation.failed", "conductor", Some(row.change), row.resource, Some(row.id), told)?;
    progress.failed(row, status, fault, Some(digest.to_vec()))?;
    progress.settle()?;
    Ok((status, !progress.ended.is_empty()))
}

fn failure_word(code: FailureCode) -> &'static str {
    match code {
        FailureCode::Transient => "transient",
        FailureCode::Failed => "failed",
        FailureCode::Invalid => "invalid",
        FailureCode::TimedOut => "timed_out",
        FailureCode::Cancelled => "cancelled",
        FailureCode::Unsupported => "unsupported",
    }
}

/// 0.2 s, 0.4 s, 0.8 s … up to a minute.
fn backoff(attempt: i64) -> i64 {
    200_000i64.saturating_mul(1 << attempt.clamp(1, 12) >> 1).min(60_000_000)
}

impl Engine {
    /// Whether an operation of this id is known to have ended; for tests and doctor.
    pub async fn operation_over(&self, id: OperationId) -> Result<bool> {
        let row = self.db.read(move |tx| tx.operation(id)).await?;
        Ok(row.is_some_and(|row| row.status.is_over()))
    }
}
