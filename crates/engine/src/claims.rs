//! Handing an operation to a worker: the fence is raised, the lease begins, the step is complete.

use conductor_api::worker::{Acquire, Claim, JobOrder, Task};
use conductor_domain::lifecycle::{ErrorCode, Fault, OperationStatus, Status};
use conductor_store::{Error, Result, Tx, operations::OperationRow, resources::ResourceRow};

use crate::{Context, catalogue::open_payload, progress::Progress, steps::prepare};

/// The answer to an earlier request of the same id was lost: the same jobs again.
pub(crate) fn claimed_before(tx: &mut Tx<'_>, context: &Context, ask: &Acquire) -> Result<Vec<JobOrder>> {
    let mut jobs = Vec::new();
    for row in tx.claimed_by_request(ask.worker, ask.request)? {
        match row.resource {
            None => jobs.extend(describe_order(tx, context, &row, row.fence)?),
            Some(id) => {
                let resource =
                    tx.resource(id)?.ok_or_else(|| Error::Corrupt("an operation on nothing".into()))?;
                let application = tx.application_of(row.change)?;
                if let Ok(prepared) = prepare(tx, context, &row, &resource, application, row.fence)? {
                    jobs.push(prepared.order);
                }
            }
        }
    }
    Ok(jobs)
}

/// Takes one operation: `None` when it needed no worker after all.
pub(crate) fn claim(
    tx: &mut Tx<'_>,
    context: &Context,
    ask: &Acquire,
    row: OperationRow,
    application: Option<String>,
    now: i64,
) -> Result<Option<JobOrder>> {
    let lease = context.lease.as_millis() as i64;
    let Some(id) = row.resource else {
        let fence = row.fence + 1;
        tx.claim_operation(row.id, ask.worker, ask.request, fence, lease, None, None, now)?;
        return describe_order(tx, context, &row, fence);
    };
    let resource = tx.resource(id)?.ok_or_else(|| Error::Corrupt("an operation on nothing".into()))?;
    let prepared = prepare(tx, context, &row, &resource, application, resource.fence + 1)?;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(missing) => {
            fail_before_start(tx, context, &row, &resource, &missing.to_string(), now)?;
            return Ok(None);
        }
    };
    if row.conditional && resource.inputs_digest.as_ref() == Some(&prepared.digest) {
        tx.confirm_resource(id, row.generation, now)?;
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

fn describe_order(
    tx: &Tx<'_>,
    context: &Context,
    row: &OperationRow,
    fence: i64,
) -> Result<Option<JobOrder>> {
    let payload = open_payload(tx, row)?;
    let document = &payload["document"];
    Ok(document["manager"].as_str().map(|manager| JobOrder {
        claim: Claim { operation: row.id, fence },
        token: None,
        change: row.change,
        manager: manager.to_owned(),
        content: payload["content"].as_str().map(str::to_owned),
        task: Task::Describe {
            config: document["config"].as_object().cloned().unwrap_or_default(),
            parameters: document.get("parameters").filter(|p| p.is_object()).cloned(),
        },
        lease_ms: context.lease.as_millis() as u64,
        timeout_ms: 600_000,
    }))
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
