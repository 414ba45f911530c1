//! Somebody has to agree first: which operations wait for that, who may answer, and what an answer sets in motion.

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::types::{Approval, ApprovalItem, Decision, Page, Time, Vote};
use conductor_domain::{
    approval::{ApprovalPolicy, Terms, strictest},
    catalogue::TemplateVersion,
    ids::{ApprovalId, ChangeId, EnvironmentId, ResourceId},
    lifecycle::{ApprovalStatus, ChangeKind, ErrorCode, Fault, KeptBy, OperationKind},
};
use conductor_store::{
    Result, Tx,
    approvals::{ApprovalRow, NewApproval, VoteRow},
    changes::ChangeRow,
    operations::OperationRow,
    sight::Sight,
};
use serde_json::{Value, json};

use crate::{
    Context, Engine, Principal, Role,
    access::{hex, named},
    alerts::tell,
    changes::{DEFAULT_TIMEOUT_SECONDS, asked_of},
    progress::Progress,
    refusal::{not_found, refuse},
    steps::digest_now,
    templates::parse_duration,
    views::shown_parameters,
};

/// The `approval` block of a document; one that was checked when it was applied.
pub(crate) fn policy_of(document: &Value) -> ApprovalPolicy {
    serde_json::from_value(document.get("approval").cloned().unwrap_or_default()).unwrap_or_default()
}

/// Decides for each operation of a change whether somebody has to agree to it.
pub(crate) struct Gatekeeper {
    kind: ChangeKind,
    organisation: ApprovalPolicy,
    environments: BTreeMap<EnvironmentId, ApprovalPolicy>,
    asking: Vec<ApprovalPolicy>,
}

impl Gatekeeper {
    pub fn new(tx: &mut Tx<'_>, context: &Context, kind: ChangeKind) -> Result<Self> {
        let organisation = context.templates.shelf(tx, context)?.approval.clone();
        Ok(Self { kind, organisation, environments: BTreeMap::new(), asking: vec![] })
    }

    pub fn knows(&mut self, environment: EnvironmentId, policy: &ApprovalPolicy) {
        self.environments.insert(environment, policy.clone());
    }

    fn environment(&mut self, tx: &mut Tx<'_>, id: EnvironmentId) -> Result<ApprovalPolicy> {
        if let Some(known) = self.environments.get(&id) {
            return Ok(known.clone());
        }
        let policy = tx.environment(id)?.map(|row| policy_of(&row.document)).unwrap_or_default();
        self.environments.insert(id, policy.clone());
        Ok(policy)
    }

    /// Whether such an operation waits, on a resource of this environment made by this version.
    pub fn closes(
        &mut self,
        tx: &mut Tx<'_>,
        environment: EnvironmentId,
        version: Option<&TemplateVersion>,
        operation: OperationKind,
    ) -> Result<bool> {
        let of_environment = self.environment(tx, environment)?;
        let policies = [Some(&self.organisation), Some(&of_environment), version.map(|v| &v.approval)];
        let kind = self.kind;
        let asking = policies.into_iter().flatten().filter(|policy| policy.asks(kind, operation));
        let asking: Vec<ApprovalPolicy> = asking.cloned().collect();
        let closed = !asking.is_empty();
        self.asking.extend(asking);
        Ok(closed)
    }

    /// On which terms somebody is to agree; `None` when nobody has to.
    pub fn terms(&self) -> Option<Terms> {
        strictest(&self.asking)
    }
}

/// Asks for agreement to whatever of a change waits behind a gate.
pub(crate) fn ask(
    tx: &mut Tx<'_>,
    context: &Context,
    change: ChangeId,
    terms: &Terms,
    requester: &str,
    now: i64,
) -> Result<()> {
    tx.hold_resources(change)?;
    let row = crate::changes::change(tx, context, change)?;
    let waiting = gated(tx, change)?;
    if waiting.is_empty() {
        return Ok(());
    }
    let (digest, items) = what(tx, context, change, &waiting, true)?;
    let expires = terms.expires.iter().filter_map(|span| parse_duration(span)).min();
    let id = ApprovalId(context.ids.next());
    tx.insert_approval(&NewApproval {
        id,
        organisation: context.organisation,
        change: Some(change),
        plan_number: row.plan_number,
        proposal: None,
        environment: row.environment,
        application: row.application,
        requester: requester.to_owned(),
        approvers: i64::from(terms.approvers),
        allow_self: terms.allow_self,
        digest,
        document: json!({ "kind": row.kind, "items": items }),
        expires_at: expires.map(|milliseconds| now + milliseconds as i64 * 1_000),
        now,
    })?;
    let told = json!({ "approval": id, "approvers": terms.approvers, "operations": waiting.len() });
    Progress::new(tx, context, now).event("approval.requested", requester, Some(change), None, None, told)?;
    notify(tx, context, id, requester, &row)?;
    tx.rest_for_approval(change, now).map(drop)
}

/// On which terms a change waits for agreement.
pub(crate) fn terms_of(tx: &mut Tx<'_>, change: ChangeId) -> Result<Option<Terms>> {
    let pending = tx.pending_approval_of(change)?;
    Ok(pending.map(|row| Terms {
        approvers: u32::try_from(row.approvers).unwrap_or(1),
        allow_self: row.allow_self,
        expires: vec![],
    }))
}

/// Operations that wait for agreement are other changes' now: it is asked for there, on the stricter of both terms.
pub(crate) fn inherit(
    tx: &mut Tx<'_>,
    context: &Context,
    terms: Option<Terms>,
    heirs: &BTreeSet<ChangeId>,
    now: i64,
) -> Result<()> {
    let Some(terms) = terms else { return Ok(()) };
    for heir in heirs {
        if gated(tx, *heir)?.is_empty() {
            continue;
        }
        let mut terms = terms.clone();
        if let Some(own) = tx.pending_approval_of(*heir)? {
            terms.approvers = terms.approvers.max(u32::try_from(own.approvers).unwrap_or(1));
            terms.allow_self &= own.allow_self;
            tx.end_approval(own.id, ApprovalStatus::Withdrawn, now)?;
        }
        let actor = crate::changes::change(tx, context, *heir)?.actor;
        ask(tx, context, *heir, &terms, &actor, now)?;
    }
    Ok(())
}

/// Those who may decide hear of it.
fn notify(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ApprovalId,
    requester: &str,
    row: &ChangeRow,
) -> Result<()> {
    let place = row.environment_name.as_deref().unwrap_or("several environments");
    let what = match &row.application_name {
        Some(application) => format!("{} {application} in {place}", row.kind),
        None => format!("{} in {place}", row.kind),
    };
    let owners = match row.application_name.as_deref() {
        Some(name) => {
            tx.application_by_name(context.organisation, name)?.map(|row| row.document["owners"].clone())
        }
        None => None,
    };
    let message = format!("{requester} asks to {what}: conductor approvals approve {id}");
    let more = json!({
        "approval": id, "deployment": row.id, "requester": requester, "environment": row.environment_name,
        "application": row.application_name, "owners": owners,
    });
    tell(tx, context, "approval", "requested", &message, more)
}

fn gated(tx: &mut Tx<'_>, change: ChangeId) -> Result<Vec<OperationRow>> {
    Ok(tx.open_operations_of(change)?.into_iter().filter(|row| row.gated).collect())
}

/// What is asked for, as people read it, and its digest. With `note` every operation remembers what it would be given,
/// as far as that is known; what this change itself brings about is not.
fn what(
    tx: &mut Tx<'_>,
    context: &Context,
    change: ChangeId,
    operations: &[OperationRow],
    note: bool,
) -> Result<(Vec<u8>, Vec<ApprovalItem>)> {
    let changing: BTreeSet<ResourceId> =
        tx.open_operations_of(change)?.into_iter().filter_map(|row| row.resource).collect();
    let ids: BTreeSet<_> = operations.iter().filter_map(|row| row.resource).collect();
    let resources: BTreeMap<_, _> = tx.resources_by_id(&ids)?.into_iter().map(|row| (row.id, row)).collect();
    let mut essence = Vec::new();
    let mut items = Vec::new();
    for operation in operations {
        let Some(resource) = operation.resource.and_then(|id| resources.get(&id)) else { continue };
        let version = context.templates.get(tx, resource.version, None)?;
        let given = match note || operation.asked_digest.is_some() {
            true => {
                digest_now(tx, context, resource, operation.kind, if note { Some(&changing) } else { None })?
            }
            false => None,
        };
        if note {
            tx.set_asked_digest(operation.id, given.as_deref())?;
        }
        essence.push(json!([
            operation.kind,
            resource.id,
            operation.generation,
            version.id,
            given.as_deref().map(hex),
        ]));
        let (before, after) =
            (shown_parameters(resource.applied_spec.as_ref()), shown_parameters(Some(&resource.spec)));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differing = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
        let changes = match operation.kind {
            OperationKind::Destroy => serde_json::Map::new(),
            _ => differing
                .map(|name| (name.clone(), json!({ "before": before.get(name), "after": after.get(name) })))
                .collect(),
        };
        items.push(ApprovalItem {
            operation: Some(operation.id),
            kind: operation.kind,
            resource: resource.id,
            name: resource.name.clone(),
            resource_type: resource.key.kind.clone(),
            template: version.label(),
            changes,
        });
    }
    Ok((tx.sealer().digest(json!(essence).to_string().as_bytes())?, items))
}

pub(crate) fn view(row: ApprovalRow, votes: Vec<VoteRow>) -> Approval {
    Approval {
        id: row.id,
        status: row.status,
        deployment: row.change,
        proposal: row.proposal,
        environment: row.environment_name,
        application: row.application_name,
        requester: row.requester,
        approvers: row.approvers as u64,
        allow_self: row.allow_self,
        kind: row.document["kind"].as_str().unwrap_or_default().to_owned(),
        items: serde_json::from_value(row.document["items"].clone()).unwrap_or_default(),
        votes: votes
            .into_iter()
            .map(|vote| Vote {
                actor: vote.actor,
                approves: vote.approves,
                comment: vote.comment,
                at: Time(vote.created_at),
            })
            .collect(),
        digest: hex(&row.digest),
        created_at: Time(row.created_at),
        expires_at: row.expires_at.map(Time),
        decided_at: row.decided_at.map(Time),
    }
}

fn found(tx: &mut Tx<'_>, context: &Context, id: ApprovalId) -> Result<ApprovalRow> {
    tx.approval(context.organisation, id)?.ok_or_else(|| not_found("approval", &id.to_string(), &[]))
}

/// Whether somebody may answer, and why not.
fn may_answer(row: &ApprovalRow, by: &Principal) -> std::result::Result<(), String> {
    let (environment, application) = (row.environment_name.as_deref(), row.application_name.as_deref());
    by.needs(Role::Admin, environment, application).map_err(|error| error.to_string())?;
    if row.requester == by.name && !row.allow_self {
        return Err(format!("`{}` asked for it, so somebody else has to agree", by.name));
    }
    Ok(())
}

/// How many agree who may still do so. Whoever asked must still be allowed to, as well.
fn agreeing(tx: &mut Tx<'_>, context: &Context, row: &ApprovalRow, votes: &[VoteRow]) -> Result<i64> {
    let (environment, application) = (row.environment_name.as_deref(), row.application_name.as_deref());
    if let Some(requester) = named(tx, context, &row.requester)?
        && !requester.may(Role::Write, environment, application)
    {
        let message = format!("`{}`, who asked for it, may not do this any more", row.requester);
        return Err(refuse(ErrorCode::Conflict, message));
    }
    let mut count = 0;
    for vote in votes.iter().filter(|vote| vote.approves) {
        let voter = named(tx, context, &vote.actor)?;
        count += i64::from(voter.is_none_or(|voter| may_answer(row, &voter).is_ok()));
    }
    Ok(count)
}

impl Engine {
    /// Requests, the newest first: those that wait, or all. With `of` only those that one may answer.
    pub async fn approvals(
        &self,
        status: Option<ApprovalStatus>,
        of: Option<Principal>,
        sight: Sight,
        cursor: Option<ApprovalId>,
        limit: i64,
    ) -> Result<Page<Approval>> {
        let context = self.context.clone();
        let limit = limit.clamp(1, 200);
        self.db
            .read(move |tx| {
                let mut rows = tx.approvals(context.organisation, status, cursor, &sight, limit + 1)?;
                let more = rows.len() as i64 > limit;
                rows.truncate(limit as usize);
                let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
                let mut items = Vec::new();
                for row in rows {
                    if of.as_ref().is_none_or(|by| may_answer(&row, by).is_ok()) {
                        let votes = tx.votes(row.id)?;
                        items.push(view(row, votes));
                    }
                }
                Ok(Page { items, next_cursor })
            })
            .await
    }

    pub async fn approval(&self, id: ApprovalId) -> Result<Approval> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let row = found(tx, &context, id)?;
                let votes = tx.votes(id)?;
                Ok(view(row, votes))
            })
            .await
    }

    /// Somebody agrees, or does not. What is agreed to is what was asked for: anything else is asked for again.
    pub async fn decide(
        &self,
        id: ApprovalId,
        approves: bool,
        decision: Decision,
        by: &Principal,
    ) -> Result<Approval> {
        let (context, by) = (self.context.clone(), by.clone());
        if !approves && decision.comment.as_deref().unwrap_or_default().trim().is_empty() {
            return Err(refuse(ErrorCode::Invalid, "say why: a rejection needs a comment"));
        }
        let decided = self
            .db
            .write(move |tx| {
                let now = context.now();
                let change = found(tx, &context, id)?.change;
                if let Some(change) = change {
                    lock(tx, &context, change)?;
                }
                tx.lock_approval(id)?;
                let row = found(tx, &context, id)?;
                if row.status != ApprovalStatus::Pending {
                    return Err(refuse(ErrorCode::Conflict, format!("{id} is {} already", row.status)));
                }
                may_answer(&row, &by).map_err(|why| refuse(ErrorCode::PermissionDenied, why))?;
                if decision.digest.as_ref().is_some_and(|seen| *seen != hex(&row.digest)) {
                    return Err(refuse(
                        ErrorCode::Conflict,
                        "this is not what is asked for any more: look again",
                    ));
                }
                if let (true, Some(change)) = (approves, change)
                    && let Some(newer) = asked_again(tx, &context, &row, change, now)?
                {
                    return Ok(Err(newer));
                }
                tx.vote(id, &by.name, approves, decision.comment.as_deref(), now)?;
                let told = json!({ "approval": id, "approves": approves, "comment": decision.comment });
                let kind = if approves { "approval.given" } else { "approval.refused" };
                Progress::new(tx, &context, now).event(kind, &by.name, change, None, None, told)?;
                let votes = tx.votes(id)?;
                if !approves {
                    reject(
                        tx,
                        &context,
                        &row,
                        ApprovalStatus::Rejected,
                        &by.name,
                        decision.comment.as_deref(),
                        now,
                    )?;
                } else if agreeing(tx, &context, &row, &votes)? >= row.approvers {
                    approve(tx, &context, &row, &by.name, now)?;
                }
                Ok(Ok(view(found(tx, &context, id)?, votes)))
            })
            .await?;
        self.promote_waiting().await?;
        decided.map_err(|newer| {
            let message = format!("what is asked for changed in the meantime; it is asked for anew: {newer}");
            refuse(ErrorCode::Conflict, message)
        })
    }

    /// Requests that nobody answered in time are refused.
    pub async fn expire_approvals(&self) -> Result<()> {
        let now = self.context.now();
        let expired = self.db.read(move |tx| tx.expired_approvals(now)).await?;
        for (_, id) in expired {
            let context = self.context.clone();
            self.db
                .write(move |tx| {
                    let Some(row) = tx.approval(context.organisation, id)? else { return Ok(()) };
                    if let Some(change) = row.change {
                        lock(tx, &context, change)?;
                    }
                    tx.lock_approval(id)?;
                    let row = found(tx, &context, id)?;
                    if row.status != ApprovalStatus::Pending {
                        return Ok(());
                    }
                    let why = Some("nobody answered in time");
                    reject(tx, &context, &row, ApprovalStatus::Expired, "conductor", why, context.now())
                })
                .await?;
        }
        Ok(())
    }
}

/// The planning domains of everything a change is about, then its operations, then the change itself.
fn lock(tx: &mut Tx<'_>, context: &Context, id: ChangeId) -> Result<()> {
    let row = crate::changes::change(tx, context, id)?;
    let mut resources: BTreeSet<_> =
        tx.open_operations_of(id)?.into_iter().filter_map(|operation| operation.resource).collect();
    resources.extend(tx.leaving_of(id)?);
    let mut domains: Vec<_> = tx.resources_by_id(&resources)?.iter().map(|row| row.key.domain).collect();
    if let Some(environment) = row.environment
        && let Some(environment) = tx.environment(environment)?
    {
        domains.push(environment.domain);
    }
    domains.sort_unstable();
    domains.dedup();
    tx.lock_domains(&domains)?;
    for operation in tx.open_operations_of(id)? {
        tx.lock_operation(operation.id)?;
    }
    tx.lock_change(id).map(drop)
}

/// Where the world moved under a request, it is withdrawn and asked for as it is now.
fn asked_again(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ApprovalRow,
    change: ChangeId,
    now: i64,
) -> Result<Option<ApprovalId>> {
    let waiting = gated(tx, change)?;
    let (digest, _) = what(tx, context, change, &waiting, false)?;
    if digest == row.digest {
        return Ok(None);
    }
    let (digest, items) = what(tx, context, change, &waiting, true)?;
    tx.end_approval(row.id, ApprovalStatus::Withdrawn, now)?;
    let id = ApprovalId(context.ids.next());
    let mut document = row.document.clone();
    document["items"] = json!(items);
    tx.insert_approval(&NewApproval {
        id,
        organisation: context.organisation,
        change: row.change,
        plan_number: row.plan_number,
        proposal: row.proposal,
        environment: row.environment,
        application: row.application,
        requester: row.requester.clone(),
        approvers: row.approvers,
        allow_self: row.allow_self,
        digest,
        document,
        expires_at: row.expires_at,
        now,
    })?;
    let told = json!({ "approval": id, "instead": row.id });
    Progress::new(tx, context, now).event(
        "approval.requested",
        &row.requester,
        Some(change),
        None,
        None,
        told,
    )?;
    Ok(Some(id))
}

fn approve(tx: &mut Tx<'_>, context: &Context, row: &ApprovalRow, by: &str, now: i64) -> Result<()> {
    tx.end_approval(row.id, ApprovalStatus::Approved, now)?;
    let Some(change) = row.change else {
        return crate::proposals::approved(tx, context, row, by, now);
    };
    let seconds = asked_of(tx, change)?.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    tx.open_gates(change, now + seconds as i64 * 1_000_000, now)
}

/// Nobody uses it, and somebody said that it stays: it is not asked for again and again.
fn stays(tx: &mut Tx<'_>, kind: ChangeKind, what: OperationKind, resource: ResourceId) -> Result<bool> {
    match kind {
        ChangeKind::Collect | ChangeKind::Rollback => return Ok(true),
        _ if what != OperationKind::Destroy => return Ok(false),
        // It stays in its pool.
        ChangeKind::Teardown if tx.resource(resource)?.is_some_and(|row| row.kept_by == KeptBy::Pool) => {
            return Ok(false);
        }
        _ => {}
    }
    Ok(!tx.consumer_counts(&[resource].into())?.contains_key(&resource))
}

fn reject(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ApprovalRow,
    to: ApprovalStatus,
    by: &str,
    comment: Option<&str>,
    now: i64,
) -> Result<()> {
    tx.end_approval(row.id, to, now)?;
    let Some(change) = row.change else {
        return crate::proposals::rejected(tx, context, row, by, comment, now);
    };
    tx.resume_change(change, now)?;
    let message = match comment {
        Some(comment) => format!("rejected by {by}: {comment}"),
        None => format!("rejected by {by}"),
    };
    let fault = Fault::new(ErrorCode::Rejected, message);
    let kind = crate::changes::change(tx, context, change)?.kind;
    let mut progress = Progress::new(tx, context, now);
    for operation in gated(progress.tx, change)? {
        // What came after another one that was refused is over by now.
        if let Some(operation) = progress.tx.operation(operation.id)?.filter(|row| !row.status.is_over()) {
            progress.cancel(&operation, &fault, true)?;
        }
        if let Some(resource) = operation.resource
            && stays(progress.tx, kind, operation.kind, resource)?
        {
            progress.tx.keep_by_hand(resource)?;
        }
    }
    progress.settle()?;
    tx.wake();
    Ok(())
}
