//! Handing an operation to a worker: the fence is raised, the lease begins, the step is complete.

use conductor_api::worker::{Acquire, Claim, Credentials, JobOrder, Task};
use conductor_domain::lifecycle::{ErrorCode, Fault, OperationKind, OperationStatus, State, Status};
use conductor_store::{Error, Result, Tx, operations::OperationRow, resources::ResourceRow};

use serde_json::{Value, json};

use crate::{
    Context,
    catalogue::open_payload,
    credentials::{Bearer, add},
    progress::Progress,
    steps::prepare,
    templates::{duration_ms, with_tool_version},
};

/// The answer to an earlier request of the same id was lost: the same jobs again.
pub(crate) fn claimed_before(tx: &mut Tx<'_>, context: &Context, ask: &Acquire) -> Result<Vec<JobOrder>> {
    let mut jobs = Vec::new();
    for row in tx.claimed_by_request(ask.worker, ask.request)? {
        match row.resource {
            None => jobs.extend(order_without_resource(tx, context, &row, row.fence)?.ok()),
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
        tx.claim_operation(row.id, ask.worker, ask.request, fence, ask.tokens, lease, None, None, now)?;
        return Ok(match order_without_resource(tx, context, &row, fence)? {
            Ok(order) => Some(order),
            Err(reason) => {
                let claimed = OperationRow { status: OperationStatus::InProgress, fence, ..row };
                let mut progress = Progress::new(tx, context, now);
                let fault = Fault::new(ErrorCode::Invalid, reason);
                progress.failed(&claimed, OperationStatus::Failed, fault, None)?;
                progress.settle()?;
                None
            }
        });
    };
    let resource = tx.resource(id)?.ok_or_else(|| Error::Corrupt("an operation on nothing".into()))?;
    if row.kind.only_looks()
        && (resource.state != State::Provisioned || resource.generation != row.generation)
    {
        // It moved on: there is nothing to look at any more.
        let mut progress = Progress::new(tx, context, now);
        progress.succeeded(&row, None)?;
        progress.settle()?;
        return Ok(None);
    }
    let prepared = prepare(tx, context, &row, &resource, application, resource.fence + 1)?;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(missing) if row.kind.only_looks() => {
            let mut progress = Progress::new(tx, context, now);
            progress.failed(&row, OperationStatus::Failed, Fault::new(ErrorCode::Invalid, missing), None)?;
            progress.settle()?;
            return Ok(None);
        }
        Err(missing) => {
            fail_before_start(tx, context, &row, &resource, &missing, now)?;
            return Ok(None);
        }
    };
    if row.asked_digest.as_ref().is_some_and(|agreed| *agreed != prepared.digest) {
        let message = "what it would be given changed since somebody agreed to it; a retry asks again";
        fail_before_start(tx, context, &row, &resource, message, now)?;
        return Ok(None);
    }
    if row.conditional && resource.inputs_digest.as_ref() == Some(&prepared.digest) {
        tx.confirm_resource(id, row.generation, now)?;
        let mut progress = Progress::new(tx, context, now);
        progress.ready(id, row.generation)?;
        progress.succeeded(&row, None)?;
        progress.settle()?;
        return Ok(None);
    }
    let raised = match row.kind.only_looks() {
        true => tx.raise_fence_to_look(id)?,
        false => tx.raise_fence(id, now)?,
    };
    let Some(fence) = raised else {
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
    tx.claim_operation(row.id, ask.worker, ask.request, fence, ask.tokens, lease, sealed, digest, now)?;
    let mut order = prepared.order;
    order.claim.fence = fence;
    if let Task::Step(step) = &order.task
        && let Some(backend) = &step.backend
    {
        tx.place_state(context.organisation, id, &backend.kind, &backend.location, now)?;
    }
    Ok(Some(order))
}

/// The order of an operation that is on no resource, or why there is none.
fn order_without_resource(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    fence: i64,
) -> Result<std::result::Result<JobOrder, String>> {
    let payload = open_payload(tx, row)?;
    match row.kind {
        OperationKind::Test => test_order(tx, context, row, &payload, fence),
        _ => Ok(describe_order(context, row, &payload, fence).ok_or("a template without a manager".into())),
    }
}

fn test_order(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    payload: &Value,
    fence: i64,
) -> Result<std::result::Result<JobOrder, String>> {
    let all = tx.integrations(context.organisation)?;
    let Some(integration) = all.iter().find(|row| json!(row.id) == payload["integration"]) else {
        return Ok(Err("the integration is no more".into()));
    };
    let organisation = &context.organisation_name;
    let claims = json!({
        "jti": format!("{}-{fence}", row.id), "organisation": organisation, "environment": integration.place,
        "operation": row.id,
    });
    let bearer = Bearer {
        subject: format!("org:{organisation}:env:{}:integration:{}", integration.place, integration.name),
        claims: claims.as_object().cloned().unwrap_or_default(),
    };
    let mut credentials = Credentials::default();
    if let Err(reason) = add(tx, context, integration, &bearer, &mut credentials)? {
        return Ok(Err(reason));
    }
    let test = &integration.document["test"];
    let mut config = test.as_object().cloned().unwrap_or_default();
    config.retain(|name, value| name != "command" && !value.is_null());
    Ok(Ok(JobOrder {
        claim: Claim { operation: row.id, fence },
        token: None,
        change: row.change,
        manager: "command".to_owned(),
        content: None,
        timeout_ms: duration_ms(&config, "timeout").unwrap_or(60_000),
        task: Task::Test {
            command: serde_json::from_value(test["command"].clone()).unwrap_or_default(),
            config,
        },
        credentials,
        lease_ms: context.lease.as_millis() as u64,
        trace: None,
    }))
}

fn describe_order(context: &Context, row: &OperationRow, payload: &Value, fence: i64) -> Option<JobOrder> {
    let document = &payload["document"];
    let mut config = document["config"].as_object().cloned().unwrap_or_default();
    let version = document["toolVersion"].as_str().and_then(|version| version.parse().ok());
    with_tool_version(&mut config, version.as_ref());
    document["manager"].as_str().map(|manager| JobOrder {
        claim: Claim { operation: row.id, fence },
        token: None,
        change: row.change,
        manager: manager.to_owned(),
        content: payload["content"].as_str().map(str::to_owned),
        task: Task::Describe {
            config,
            parameters: document.get("parameters").filter(|p| p.is_object()).cloned(),
        },
        credentials: Credentials::default(),
        lease_ms: context.lease.as_millis() as u64,
        timeout_ms: 600_000,
        trace: None,
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
