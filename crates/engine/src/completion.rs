//! The end of a job, good or bad, in one transaction that is valid only for its fence.

use std::collections::BTreeSet;

use conductor_api::worker::{Claim, Completion, JobResult, Update};
use conductor_domain::{
    ids::ResourceId,
    lifecycle::{ErrorCode, Fault, OperationKind, OperationStatus, State, Status},
    mask::Masker,
    work::{Done, Failure, FailureCode, LogLine},
};
use conductor_store::{Error, Owner, Result, Tx, operations::OperationRow, resources::ResourceRow};
use serde_json::{Value, json};

use crate::{
    Context,
    drift::observed,
    link::lost,
    progress::Progress,
    steps::{open_inputs, texts},
    views::shown_parameters,
};

/// Ending this change gives up uses, so its planning domains are to be locked before anything else.
pub(crate) const DOMAINS_FIRST: &str = "planning domains come first";

/// Lines of an update that were not stored by an earlier one whose answer was lost.
pub(crate) fn fresh_lines<'u>(row: &OperationRow, update: &'u Update) -> &'u [LogLine] {
    let known = (row.lines - update.first_line as i64).clamp(0, update.lines.len() as i64) as usize;
    &update.lines[known..]
}

/// Whether a change ended with the operation.
type Settled = bool;

/// The end of a job, in one transaction that is valid only for its fence. Tells whether a change ended with it.
pub(crate) fn complete(
    tx: &mut Tx<'_>,
    context: &Context,
    claim: Claim,
    completion: &Completion,
    digest: &[u8],
    domains_first: bool,
) -> Result<bool> {
    let now = context.now();
    if domains_first {
        let change = tx.operation(claim.operation)?.ok_or_else(lost)?.change;
        let domains = tx.domains_of_leaving(change)?;
        tx.lock_domains(&domains)?;
    }
    let locked = tx.lock_operation_with_inputs(claim.operation)?.ok_or_else(lost)?;
    let (row, given) = (locked.row, locked.inputs);
    if row.fence == claim.fence && row.result_digest.as_deref() == Some(digest) {
        return Ok(false);
    }
    if row.fence != claim.fence || row.status != OperationStatus::InProgress {
        return Err(lost());
    }
    if row.releasing && !domains_first && tx.is_postgres() {
        return Err(Error::Busy(DOMAINS_FIRST.into()));
    }
    // A step that made or changed something needs nothing of its resource but the name, which its write returns.
    let resource = match (row.resource, &completion.result) {
        (Some(_), JobResult::Done(_)) if row.kind != OperationKind::Destroy => None,
        (Some(_), _) if row.kind.only_looks() => None,
        (Some(id), _) => tx.resource(id)?,
        (None, _) => None,
    };
    let fresh = fresh_lines(&row, &completion.rest);
    let mut masked = None;
    let change_over = match (&completion.result, &resource) {
        (JobResult::Done(done), _) if row.kind == OperationKind::Observe => {
            observed(tx, context, &row, done, now)?;
            looked(tx, context, &row, digest, now)?
        }
        (JobResult::Done(done), _) if row.kind == OperationKind::Plan => {
            if let (Some(plan), Some(resource)) = (&done.plan, row.resource) {
                tx.keep_proposed(row.change, resource, plan)?;
            }
            looked(tx, context, &row, digest, now)?
        }
        // What cannot be looked at is no drift.
        (JobResult::Failed(failure), _)
            if row.kind.only_looks() && failure.code == FailureCode::Unsupported =>
        {
            looked(tx, context, &row, digest, now)?
        }
        (JobResult::Done(done), Some(resource)) => destroyed(tx, context, &row, resource, done, digest, now)?,
        (JobResult::Done(done), None) if row.resource.is_some() => {
            let (settled, lines) = applied(tx, context, &row, given.as_deref(), done, fresh, digest, now)?;
            masked = lines;
            settled
        }
        (JobResult::Done(_), None) if row.kind == OperationKind::Test => {
            let mut progress = Progress::new(tx, context, now);
            progress.succeeded(&row, Some(digest.to_vec()))?;
            progress.settle()?;
            !progress.ended.is_empty()
        }
        (JobResult::Described { description, content }, None) => {
            match crate::catalogue::finish_describe(tx, context, &row, description, content.as_deref(), now) {
                Ok(()) => {
                    let mut progress = Progress::new(tx, context, now);
                    progress.succeeded(&row, Some(digest.to_vec()))?;
                    progress.settle()?;
                    !progress.ended.is_empty()
                }
                Err(Error::Refused { message, .. }) => {
                    let failure = Failure::invalid(message);
                    fail(tx, context, &row, None, &failure, digest, now)?
                }
                Err(error) => return Err(error),
            }
        }
        (JobResult::Failed(failure), resource) => {
            fail(tx, context, &row, resource.as_ref(), failure, digest, now)?
        }
        _ => return Err(Error::Corrupt("a result that does not fit its operation".into())),
    };
    if let Some(resource) = row.resource
        && (locked.journaled || row.attempt > 1)
    {
        if matches!(completion.result, JobResult::Done(_)) && row.kind != OperationKind::Observe {
            tx.close_journals(resource)?;
        }
        // A claim that was lost may have left a lock that its successor had no need of.
        tx.free_state(resource)?;
    }
    // Last: every completion of a change meets at its log.
    tx.append_log(context.organisation, row.change, row.id, masked.as_deref().unwrap_or(fresh), now)?;
    Ok(change_over)
}

fn looked(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    digest: &[u8],
    now: i64,
) -> Result<Settled> {
    let mut progress = Progress::new(tx, context, now);
    progress.succeeded(row, Some(digest.to_vec()))?;
    progress.settle()?;
    Ok(!progress.ended.is_empty())
}

fn destroyed(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    resource: &ResourceRow,
    done: &Done,
    digest: &[u8],
    now: i64,
) -> Result<Settled> {
    if done.exists == Some(true) {
        let failure = Failure::failed("it was destroyed, and is still there");
        return fail(tx, context, row, Some(resource), &failure, digest, now);
    }
    tx.destroy_resource(resource.id, (State::Destroy, Status::InProgress), now)?;
    let mut progress = Progress::new(tx, context, now);
    let verified = done.exists == Some(false) && done.left_behind.is_empty();
    let before = resource.applied_spec.as_ref().map(|spec| shown_parameters(Some(spec)));
    let mut receipt = json!({ "name": resource.name, "verified": verified, "before": before, "after": null });
    if !done.left_behind.is_empty() {
        receipt["leftBehind"] = done.left_behind.clone().into();
    }
    let (change, operation) = (Some(row.change), Some(row.id));
    progress.event("resource.destroyed", "conductor", change, Some(resource.id), operation, receipt)?;
    progress.gone(resource.id)?;
    progress.succeeded(row, Some(digest.to_vec()))?;
    progress.settle()?;
    Ok(!progress.ended.is_empty())
}

/// Made or changed. Where secrets came out of it, the lines to keep are masked ones.
#[allow(clippy::too_many_arguments, reason = "the parts of one completion")]
fn applied(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    given: Option<&[u8]>,
    done: &Done,
    fresh: &[LogLine],
    digest: &[u8],
    now: i64,
) -> Result<(Settled, Option<Vec<LogLine>>)> {
    let id = row.resource.ok_or_else(lost)?;
    let secrets = match given {
        Some(sealed) => open_inputs(tx, context, id, sealed)?.secrets,
        None => BTreeSet::new(),
    };
    let (outputs, minted) = seal_outputs(tx, context, id, done, &secrets)?;
    // What the operation minted is known only now: nothing of it stays readable in its log.
    let masker = Masker::new(minted.iter().map(String::as_str));
    let masked = (!minted.is_empty()).then(|| {
        let line = |line: &LogLine| LogLine { text: masker.mask(&line.text), ..line.clone() };
        fresh.iter().map(line).collect::<Vec<_>>()
    });
    if masked.is_some() && row.lines > 0 {
        let mask = |text: &str| Some(masker.mask(text)).filter(|masked| masked != text);
        tx.rewrite_log(context.organisation, row.change, row.id, &mask)?;
    }
    let state = match &done.state {
        Some(state) => {
            let owner =
                Owner { organisation: context.organisation, kind: "manager_state", id: id.0.as_bytes() };
            Some(tx.sealer().seal(owner, state.to_string().as_bytes())?)
        }
        None => None,
    };
    let (from, kind) = match row.kind {
        OperationKind::Create => (State::Provision, "resource.created"),
        _ => (State::Provisioned, "resource.updated"),
    };
    let external = done.external_id.as_deref();
    let left = left_behind(done);
    let before = match row.kind {
        OperationKind::Create => None,
        _ => tx.applied_spec(id)?,
    };
    let (name, awaited, after) =
        tx.apply_resource(id, from, row.generation, row.id, &outputs, state, external, left.as_deref(), now)?;
    let mut progress = Progress::new(tx, context, now);
    let (before, after) = (before.map(|spec| shown_parameters(Some(&spec))), shown_parameters(Some(&after)));
    let mut told = json!({ "name": name, "generation": row.generation, "before": before, "after": after });
    if !done.left_behind.is_empty() {
        told["leftBehind"] = done.left_behind.clone().into();
    }
    progress.event(kind, "conductor", Some(row.change), Some(id), Some(row.id), told)?;
    if awaited {
        progress.ready(id, row.generation)?;
    }
    progress.succeeded(row, Some(digest.to_vec()))?;
    progress.settle()?;
    Ok((!progress.ended.is_empty(), masked))
}

/// For people: what may exist and is not on record.
fn left_behind(done: &Done) -> Option<String> {
    (!done.left_behind.is_empty()).then(|| format!("possibly left behind: {}", done.left_behind.join(", ")))
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
        return Ok(false);
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
    }
    let mut progress = Progress::new(tx, context, now);
    let told = json!({ "error": error });
    progress.event("operation.failed", "conductor", Some(row.change), row.resource, Some(row.id), told)?;
    progress.failed(row, status, fault, Some(digest.to_vec()))?;
    progress.settle()?;
    Ok(!progress.ended.is_empty())
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
