//! Changes of a resource that are looked at before they are made: proposed, edited, tried, agreed to, merged.
//! And the desired states a resource had before, which can come back.

use std::collections::BTreeSet;

use conductor_api::types::{
    Deployment, Handled, Page, ProblemItem, Proposal, ProposalRequest, Revision, RevisionDiff, Time,
    VariableChanges,
};
use conductor_domain::{
    approval::Terms,
    catalogue::TemplateVersion,
    ids::{ApprovalId, ChangeId, ProposalId, ResourceId},
    lifecycle::{ChangeKind, ErrorCode, OperationKind, ProposalStatus, State, Status},
};
use conductor_store::{
    Error, Owner, Result, Tx,
    approvals::{ApprovalRow, NewApproval},
    proposals::{ProposalRow, RevisionRow},
    resources::ResourceRow,
    sight::Sight,
};
use serde_json::{Map, Value, json};

use crate::{
    Context, Engine,
    approvals::Gatekeeper,
    changes::{Domains, lock_known, planned},
    consumers::resource,
    hand::{ByHand, begin, environment_of, facts_of, handled, named_version, nobody, preview, refuse_action},
    planning::{Purpose, plan_now},
    previews::{Trial, ask_managers},
    progress::Progress,
    refusal::{PROBLEMS, not_found, refuse},
    templates::parse_duration,
    views::{self, shown_parameters},
};

/// Parameters are sealed with the resource's own, leaf by leaf, where they are secret.
fn seal(
    tx: &Tx<'_>,
    context: &Context,
    id: ResourceId,
    version: &TemplateVersion,
    mut request: ProposalRequest,
) -> Result<Value> {
    let owner = Owner { organisation: context.organisation, kind: "spec", id: id.0.as_bytes() };
    let secret = version.schema.sensitive();
    for (_, value) in
        request.set.iter_mut().filter(|(name, value)| secret.contains(*name) && !value.is_null())
    {
        *value = tx.sealer().seal_leaf(owner, value)?;
    }
    Ok(serde_json::to_value(request).unwrap_or_default())
}

fn open(tx: &Tx<'_>, row: &ProposalRow) -> Result<ProposalRequest> {
    let mut request: ProposalRequest = serde_json::from_value(row.document.clone()).unwrap_or_default();
    let owner = Owner { organisation: row.organisation, kind: "spec", id: row.resource.0.as_bytes() };
    for value in request.set.values_mut() {
        *value = tx.sealer().open_leaf(owner, value)?;
    }
    Ok(request)
}

fn found(tx: &mut Tx<'_>, context: &Context, id: ProposalId) -> Result<ProposalRow> {
    tx.proposal(context.organisation, id)?.ok_or_else(|| not_found("proposal", &id.to_string(), &[]))
}

/// The version a proposal asks for: the resource's own template, in the version named.
fn version_for(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    request: &ProposalRequest,
) -> Result<std::sync::Arc<TemplateVersion>> {
    let current = context.templates.get(tx, row.version, None)?;
    match &request.template_version {
        None => Ok(current),
        Some(version) => named_version(tx, context, &format!("{}@{version}", current.name)),
    }
}

/// The fields a proposal is about.
fn fields(request: &ProposalRequest) -> BTreeSet<String> {
    let mut fields: BTreeSet<String> = request.set.keys().map(|name| format!("parameter `{name}`")).collect();
    fields.extend(request.template_version.as_ref().map(|_| "the template version".to_owned()));
    fields.extend(request.description.as_ref().map(|_| "the description".to_owned()));
    fields
        .extend(request.labels.iter().flat_map(|labels| labels.keys()).map(|name| format!("label `{name}`")));
    fields
}

/// What becomes of the variables with another version, and what has no value yet.
fn variable_changes(
    from: &TemplateVersion,
    to: &TemplateVersion,
    set: &Map<String, Value>,
    spec: &Map<String, Value>,
) -> VariableChanges {
    let (old, new) = (from.schema.by_name(), to.schema.by_name());
    let has = |name: &String| set.contains_key(name) || spec.contains_key(name);
    VariableChanges {
        added: new.keys().filter(|name| !old.contains_key(*name)).cloned().collect(),
        dropped: old.keys().filter(|name| !new.contains_key(*name)).cloned().collect(),
        changed: new
            .iter()
            .filter(|(name, schema)| old.get(*name).is_some_and(|before| before != *schema))
            .map(|(name, _)| name.clone())
            .collect(),
        missing: to.schema.required().into_iter().filter(|name| !has(name)).collect(),
    }
}

fn view(tx: &mut Tx<'_>, context: &Context, row: ProposalRow) -> Result<Proposal> {
    let of =
        tx.resource(row.resource)?.ok_or_else(|| not_found("resource", &row.resource.to_string(), &[]))?;
    let sealed: ProposalRequest = serde_json::from_value(row.document.clone()).unwrap_or_default();
    let before = shown_parameters(Some(&of.spec));
    let after = shown_parameters(Some(&Value::Object(sealed.set.clone())));
    let changes = after
        .into_iter()
        .map(|(name, after)| {
            let before = before.get(&name).cloned();
            (name, json!({ "before": before, "after": after }))
        })
        .collect();
    let variables = match &sealed.template_version {
        Some(_) => {
            let (from, to) =
                (context.templates.get(tx, of.version, None)?, version_for(tx, context, &of, &sealed)?);
            let spec = of.spec.as_object().cloned().unwrap_or_default();
            Some(variable_changes(&from, &to, &sealed.set, &spec))
        }
        None => None,
    };
    let approval = tx.pending_approval_of_proposal(row.id)?;
    Ok(Proposal {
        id: row.id,
        resource: row.resource,
        resource_name: of.name,
        environment: of.environment_name,
        status: row.status,
        actor: row.actor,
        changes,
        template_version: sealed.template_version,
        variables,
        description: sealed.description,
        labels: sealed.labels,
        reason: sealed.reason,
        auto_merge: row.auto_merge,
        approval,
        preview: row.preview,
        deployment: row.change,
        created_at: Time(row.created_at),
        updated_at: Time(row.updated_at),
    })
}

/// Everything that is wrong with a proposal, by planning it.
fn check(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    request: &ProposalRequest,
) -> Result<(Deployment, ByHand)> {
    if !matches!(row.state, State::Provisioned | State::Provision) {
        return Err(refuse_action(row, "update"));
    }
    let version = version_for(tx, context, row, request)?;
    let by_hand = ByHand::Again {
        resource: row.id,
        version: version.id,
        set: request.set.clone(),
        revision: None,
        anyway: false,
    };
    let place = nobody(environment_of(tx, row)?);
    let owned = by_hand.owned(tx, context, None)?;
    let (plan, snapshot) = plan_now(tx, context, &place, &owned.intent(), Purpose::Show)?;
    Ok((planned(&plan, &snapshot, ChangeKind::Proposal, &place), by_hand))
}

/// As [`check`], but another version may need values that nobody has given yet: they are asked for.
fn check_so_far(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    request: &ProposalRequest,
) -> Result<()> {
    let error = match check(tx, context, row, request) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    if let (Error::Refused { detail, .. }, Some(_)) = (&error, &request.template_version) {
        let (from, to) =
            (context.templates.get(tx, row.version, None)?, version_for(tx, context, row, request)?);
        let spec = row.spec.as_object().cloned().unwrap_or_default();
        let missing = variable_changes(&from, &to, &request.set, &spec).missing;
        let asked: Vec<String> =
            missing.iter().map(|name| format!("\"{name}\" is a required property")).collect();
        let problems: Vec<ProblemItem> = serde_json::from_value(detail[PROBLEMS].clone()).unwrap_or_default();
        if !problems.is_empty() && problems.iter().all(|problem| asked.contains(&problem.message)) {
            return Ok(());
        }
    }
    Err(error)
}

fn not_empty(request: &ProposalRequest) -> Result<()> {
    match fields(request).is_empty() {
        true => Err(refuse(ErrorCode::Invalid, "nothing is proposed: say what is to change")),
        false => Ok(()),
    }
}

/// Two open proposals about the same field would undo each other.
fn no_rival(
    tx: &mut Tx<'_>,
    row: &ResourceRow,
    but: Option<ProposalId>,
    request: &ProposalRequest,
) -> Result<()> {
    let mine = fields(request);
    for other in tx.open_proposals_of(row.id)?.into_iter().filter(|other| Some(other.id) != but) {
        let theirs: ProposalRequest = serde_json::from_value(other.document.clone()).unwrap_or_default();
        if let Some(field) = fields(&theirs).intersection(&mine).next() {
            let message =
                format!("{} proposes to change {field} as well; merge or discard it first", other.id);
            return Err(refuse(ErrorCode::Conflict, message));
        }
    }
    Ok(())
}

fn note(
    tx: &mut Tx<'_>,
    context: &Context,
    kind: &'static str,
    row: &ProposalRow,
    actor: &str,
    told: Value,
) -> Result<()> {
    let now = context.now();
    let mut document = json!({ "proposal": row.id });
    if let (Some(document), Some(told)) = (document.as_object_mut(), told.as_object()) {
        document.extend(told.clone());
    }
    Progress::new(tx, context, now).event(kind, actor, row.change, Some(row.resource), None, document)
}

/// Whether a proposal waits for what is not decided yet.
fn expect(row: &ProposalRow, among: &[ProposalStatus], action: &str) -> Result<()> {
    match among.contains(&row.status) {
        true => Ok(()),
        false => {
            let words: Vec<String> = among.iter().map(ToString::to_string).collect();
            let message =
                format!("{} is {}: only what is {} can be {action}", row.id, row.status, words.join(" or "));
            Err(refuse(ErrorCode::Conflict, message))
        }
    }
}

impl Engine {
    pub async fn propose(&self, id: ResourceId, request: ProposalRequest, actor: &str) -> Result<Proposal> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        not_empty(&request)?;
        self.db
            .write(move |tx| {
                let now = context.now();
                let before = resource(tx, &context, id)?;
                tx.lock_domains(&[before.key.domain])?;
                let row = resource(tx, &context, id)?;
                no_rival(tx, &row, None, &request)?;
                check_so_far(tx, &context, &row, &request)?;
                let version = version_for(tx, &context, &row, &request)?;
                let document = seal(tx, &context, id, &version, request.clone())?;
                let proposal = ProposalId(context.ids.next());
                tx.insert_proposal(
                    context.organisation,
                    proposal,
                    id,
                    &actor,
                    &document,
                    row.generation,
                    now,
                )?;
                let kept = found(tx, &context, proposal)?;
                let told = json!({ "fields": fields(&request) });
                note(tx, &context, "proposal.made", &kept, &actor, told)?;
                view(tx, &context, kept)
            })
            .await
    }

    pub async fn proposal(&self, id: ProposalId) -> Result<Proposal> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let row = found(tx, &context, id)?;
                view(tx, &context, row)
            })
            .await
    }

    pub async fn proposals(
        &self,
        of: Option<ResourceId>,
        sight: Sight,
        cursor: Option<ProposalId>,
        limit: i64,
    ) -> Result<Page<Proposal>> {
        let context = self.context.clone();
        let limit = limit.clamp(1, 200);
        self.db
            .read(move |tx| {
                let mut rows = tx.proposals(context.organisation, of, cursor, &sight, limit + 1)?;
                let more = rows.len() as i64 > limit;
                rows.truncate(limit as usize);
                let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
                let items = rows.into_iter().map(|row| view(tx, &context, row)).collect::<Result<_>>()?;
                Ok(Page { items, next_cursor })
            })
            .await
    }

    /// Changes a proposal that nobody has agreed to yet, or that was rejected.
    pub async fn edit_proposal(
        &self,
        id: ProposalId,
        request: ProposalRequest,
        actor: &str,
    ) -> Result<Proposal> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let mut row = found(tx, &context, id)?;
                expect(&row, &[ProposalStatus::Pending, ProposalStatus::Rejected], "edited")?;
                let of = resource(tx, &context, row.resource)?;
                tx.lock_domains(&[of.key.domain])?;
                let mut whole = open(tx, &row)?;
                whole.set.extend(request.set.clone());
                whole.template_version = request.template_version.clone().or(whole.template_version);
                whole.description = request.description.clone().or(whole.description);
                whole.reason = request.reason.clone().or(whole.reason);
                if let Some(labels) = &request.labels {
                    whole.labels.get_or_insert_default().extend(labels.clone());
                }
                no_rival(tx, &of, Some(id), &whole)?;
                check_so_far(tx, &context, &of, &whole)?;
                let version = version_for(tx, &context, &of, &whole)?;
                let from = row.status;
                row.document = seal(tx, &context, row.resource, &version, whole)?;
                row.status = ProposalStatus::Pending;
                row.generation = of.generation;
                tx.update_proposal(&row, from, context.now())?;
                note(tx, &context, "proposal.edited", &row, &actor, json!({ "fields": fields(&request) }))?;
                view(tx, &context, row)
            })
            .await
    }

    /// What merging it would do. Where its manager can tell more, it is asked, and the answer is a change to wait for;
    /// nothing is changed.
    pub async fn try_proposal(&self, id: ProposalId, actor: &str) -> Result<Deployment> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let mut row = found(tx, &context, id)?;
                let of = resource(tx, &context, row.resource)?;
                let request = open(tx, &row)?;
                let (planned, _) = check(tx, &context, &of, &request)?;
                let version = version_for(tx, &context, &of, &request)?;
                if !Trial::can_be_made(&of, &version) {
                    return Ok(planned);
                }
                let environment = environment_of(tx, &of)?;
                let trial = Trial { of, version, given: json!({ "set": request.set }) };
                let change = ask_managers(tx, &context, &planned, &environment, None, vec![trial], &actor)?;
                let from = row.status;
                row.preview = Some(change);
                tx.update_proposal(&row, from, now)?;
                views::deployment(tx, &context, change)
            })
            .await
    }

    /// Asks for agreement where that is needed; where it is not, it is agreed to.
    pub async fn submit_proposal(&self, id: ProposalId, auto_merge: bool, actor: &str) -> Result<Proposal> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let submitted = self
            .db
            .write(move |tx| {
                let now = context.now();
                let mut row = found(tx, &context, id)?;
                expect(&row, &[ProposalStatus::Pending, ProposalStatus::Approved], "submitted")?;
                let from = row.status;
                let of = resource(tx, &context, row.resource)?;
                tx.lock_domains(&[of.key.domain])?;
                let request = open(tx, &row)?;
                check(tx, &context, &of, &request)?;
                row.generation = of.generation;
                row.auto_merge = auto_merge;
                row.status = match ask(tx, &context, &row, &of, &actor, now)? {
                    Some(_) => ProposalStatus::ApprovalPending,
                    None => ProposalStatus::Approved,
                };
                tx.update_proposal(&row, from, now)?;
                note(tx, &context, "proposal.submitted", &row, &actor, json!({ "status": row.status }))?;
                if row.status == ProposalStatus::Approved && auto_merge {
                    merge(tx, &context, &mut row, &actor, &mut Domains::new(), now)?;
                }
                view(tx, &context, row)
            })
            .await?;
        Ok(submitted)
    }

    /// Carries it out.
    pub async fn merge_proposal(&self, id: ProposalId, actor: &str) -> Result<Handled> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let mut domains = Domains::new();
        self.db
            .write(move |tx| {
                let mut row = found(tx, &context, id)?;
                let change = merge(tx, &context, &mut row, &actor, &mut domains, context.now())?;
                handled(tx, &context, Some(row.resource), change)
            })
            .await
    }

    pub async fn discard_proposal(&self, id: ProposalId, actor: &str) -> Result<Proposal> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let mut row = found(tx, &context, id)?;
                let open = [
                    ProposalStatus::Pending,
                    ProposalStatus::ApprovalPending,
                    ProposalStatus::Approved,
                    ProposalStatus::Rejected,
                ];
                expect(&row, &open, "discarded")?;
                let from = row.status;
                if let Some(approval) = tx.pending_approval_of_proposal(id)? {
                    tx.end_approval(approval, conductor_domain::lifecycle::ApprovalStatus::Withdrawn, now)?;
                }
                row.status = ProposalStatus::Discarded;
                // What was proposed is gone for good; that it was stays in the audit trail.
                row.document = json!({});
                tx.update_proposal(&row, from, now)?;
                note(tx, &context, "proposal.discarded", &row, &actor, json!({}))?;
                view(tx, &context, row)
            })
            .await
    }

    /// Has another version of its template make a resource, with the parameters it has.
    pub async fn upgrade(
        &self,
        id: ResourceId,
        version: &str,
        dry_run: bool,
        actor: &str,
    ) -> Result<Handled> {
        let (context, actor, version) = (self.context.clone(), actor.to_owned(), version.to_owned());
        let mut domains = Domains::new();
        let case = move |tx: &mut Tx<'_>| {
            let before = resource(tx, &context, id)?;
            let place = nobody(environment_of(tx, &before)?);
            if !dry_run {
                domains.insert(before.key.domain);
                lock_known(tx, &mut domains, place.environment.domain)?;
            }
            let row = resource(tx, &context, id)?;
            if row.state != State::Provisioned || !matches!(row.status, Status::Done | Status::Error) {
                return Err(refuse_action(&row, "update"));
            }
            let template_version = Some(version.clone());
            let request = ProposalRequest { template_version, ..ProposalRequest::default() };
            let (deployment, by_hand) = check(tx, &context, &row, &request)?;
            if dry_run {
                return Ok(Handled { resource: None, deployment: Some(deployment) });
            }
            let (kind, now) = (ChangeKind::Upgrade, context.now());
            let (change, _) = begin(tx, &context, &place, kind, by_hand, None, &actor, &mut domains, now)?;
            handled(tx, &context, Some(id), Some(change))
        };
        self.read_or_write(dry_run, case).await
    }

    /// The desired states a resource had, the newest first.
    pub async fn revisions(&self, id: ResourceId) -> Result<Vec<Revision>> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let row = resource(tx, &context, id)?;
                let rows = tx.revisions(id)?;
                rows.into_iter()
                    .map(|revision| {
                        let version = context.templates.get(tx, revision.version, None)?;
                        Ok(Revision {
                            number: revision.number,
                            state: revision.state,
                            template_version: version.version.to_string(),
                            parameters: shown_parameters(Some(&revision.spec)),
                            deployment: revision.change,
                            actor: revision.actor,
                            reason: revision.kind,
                            current: revision.number == row.generation,
                            created_at: Time(revision.created_at),
                        })
                    })
                    .collect()
            })
            .await
    }

    pub async fn revision_diff(&self, id: ResourceId, from: i64, to: i64) -> Result<RevisionDiff> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let row = resource(tx, &context, id)?;
                let old = revision(tx, &row, from)?;
                let new = revision(tx, &row, to)?;
                let versions = [old.version, new.version].map(|id| context.templates.get(tx, id, None));
                let [before, after] = versions;
                let (before, after) = (before?.version.to_string(), after?.version.to_string());
                let differs = before != after;
                Ok(RevisionDiff {
                    from,
                    to,
                    changes: differences(tx, &row, &old.spec, &new.spec)?,
                    template_version: differs.then(|| json!({ "before": before, "after": after })),
                })
            })
            .await
    }

    /// Brings an earlier desired state back.
    pub async fn roll_back(&self, id: ResourceId, to: i64, dry_run: bool, actor: &str) -> Result<Handled> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let mut domains = Domains::new();
        let case = move |tx: &mut Tx<'_>| {
            let before = resource(tx, &context, id)?;
            let place = nobody(environment_of(tx, &before)?);
            if !dry_run {
                domains.insert(before.key.domain);
                lock_known(tx, &mut domains, place.environment.domain)?;
            }
            let row = resource(tx, &context, id)?;
            if row.state != State::Provisioned || matches!(row.status, Status::Queued | Status::InProgress) {
                return Err(refuse_action(&row, "update"));
            }
            let version = revision(tx, &row, to)?.version;
            let by_hand =
                ByHand::Again { resource: id, version, set: Map::new(), revision: Some(to), anyway: false };
            if dry_run {
                return preview(tx, &context, &place, ChangeKind::Resource, &by_hand);
            }
            let now = context.now();
            let kind = ChangeKind::Resource;
            let (change, _) = begin(tx, &context, &place, kind, by_hand, None, &actor, &mut domains, now)?;
            handled(tx, &context, Some(id), Some(change))
        };
        self.read_or_write(dry_run, case).await
    }
}

fn revision(tx: &mut Tx<'_>, row: &ResourceRow, number: i64) -> Result<RevisionRow> {
    if let Some(revision) = tx.revision(row.id, number)? {
        return Ok(revision);
    }
    let known: Vec<String> = tx.revisions(row.id)?.iter().map(|known| known.number.to_string()).collect();
    Err(not_found("revision", &number.to_string(), &known))
}

/// By parameter what it was and what it is; secrets are compared, not shown.
fn differences(
    tx: &mut Tx<'_>,
    row: &ResourceRow,
    before: &Value,
    after: &Value,
) -> Result<Map<String, Value>> {
    let opened = |tx: &Tx<'_>, spec: &Value| crate::planning::open_spec(tx, row, spec);
    let (plain_before, plain_after) = (opened(tx, before)?, opened(tx, after)?);
    let (before, after) = (shown_parameters(Some(before)), shown_parameters(Some(after)));
    let names: BTreeSet<&String> = plain_before.keys().chain(plain_after.keys()).collect();
    Ok(names
        .into_iter()
        .filter(|name| plain_before.get(*name) != plain_after.get(*name))
        .map(|name| (name.clone(), json!({ "before": before.get(name), "after": after.get(name) })))
        .collect())
}

/// On which terms somebody has to agree: those of the version it has and of the one it would have.
fn terms(
    tx: &mut Tx<'_>,
    context: &Context,
    of: &ResourceRow,
    request: &ProposalRequest,
) -> Result<Option<Terms>> {
    let versions = [context.templates.get(tx, of.version, None)?, version_for(tx, context, of, request)?];
    let mut gatekeeper = Gatekeeper::new(tx, context, ChangeKind::Resource)?;
    for version in &versions {
        gatekeeper.closes(tx, of.environment, Some(version), OperationKind::Update)?;
    }
    Ok(gatekeeper.terms())
}

/// Asks for agreement to a proposal, if somebody has to agree.
fn ask(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ProposalRow,
    of: &ResourceRow,
    actor: &str,
    now: i64,
) -> Result<Option<ApprovalId>> {
    let version = context.templates.get(tx, of.version, None)?;
    let Some(terms) = terms(tx, context, of, &open(tx, row)?)? else { return Ok(None) };
    let id = ApprovalId(context.ids.next());
    let shown = view(tx, context, row.clone())?;
    let item = json!({
        "kind": "update", "resource": of.id, "name": of.name, "type": of.key.kind, "template": version.label(),
        "changes": shown.changes,
    });
    let expires = terms.expires.iter().filter_map(|span| parse_duration(span)).min();
    let digest = digest(tx, row)?;
    tx.insert_approval(&NewApproval {
        id,
        organisation: context.organisation,
        change: None,
        plan_number: 0,
        proposal: Some(row.id),
        environment: Some(of.environment),
        application: None,
        requester: actor.to_owned(),
        approvers: i64::from(terms.approvers),
        allow_self: terms.allow_self,
        digest,
        document: json!({ "kind": "proposal", "items": [item] }),
        expires_at: expires.map(|milliseconds| now + milliseconds as i64 * 1_000),
        now,
    })?;
    Ok(Some(id))
}

/// What is agreed to: this proposal, for the resource as it was.
fn digest(tx: &mut Tx<'_>, row: &ProposalRow) -> Result<Vec<u8>> {
    let request = open(tx, row)?;
    tx.sealer().digest(json!([row.resource, row.generation, request]).to_string().as_bytes())
}

pub(crate) fn approved(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ApprovalRow,
    by: &str,
    now: i64,
) -> Result<()> {
    let Some(id) = row.proposal else { return Ok(()) };
    let mut proposal = found(tx, context, id)?;
    expect(&proposal, &[ProposalStatus::ApprovalPending], "approved")?;
    if digest(tx, &proposal)? != row.digest {
        return Err(refuse(
            ErrorCode::Conflict,
            "the proposal is not what is asked for any more: submit it again",
        ));
    }
    proposal.status = ProposalStatus::Approved;
    tx.update_proposal(&proposal, ProposalStatus::ApprovalPending, now)?;
    note(tx, context, "proposal.approved", &proposal, by, json!({ "approval": row.id }))?;
    if proposal.auto_merge {
        let actor = proposal.actor.clone();
        merge(tx, context, &mut proposal, &actor, &mut Domains::new(), now)?;
    }
    Ok(())
}

pub(crate) fn rejected(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ApprovalRow,
    by: &str,
    comment: Option<&str>,
    now: i64,
) -> Result<()> {
    let Some(id) = row.proposal else { return Ok(()) };
    let mut proposal = found(tx, context, id)?;
    proposal.status = ProposalStatus::Rejected;
    tx.update_proposal(&proposal, ProposalStatus::ApprovalPending, now)?;
    note(tx, context, "proposal.rejected", &proposal, by, json!({ "approval": row.id, "comment": comment }))
}

/// Makes what was proposed. `None`: only what is said of the resource changed.
fn merge(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &mut ProposalRow,
    actor: &str,
    domains: &mut Domains,
    now: i64,
) -> Result<Option<ChangeId>> {
    let before = resource(tx, context, row.resource)?;
    let place = nobody(environment_of(tx, &before)?);
    domains.insert(before.key.domain);
    lock_known(tx, domains, place.environment.domain)?;
    *row = found(tx, context, row.id)?;
    let of = resource(tx, context, row.resource)?;
    if row.status == ProposalStatus::Pending {
        // Nobody has to be asked: agreed to by being merged.
        let request = open(tx, row)?;
        if terms(tx, context, &of, &request)?.is_some() {
            let message = format!("somebody has to agree first: `conductor proposals submit {}`", row.id);
            return Err(refuse(ErrorCode::Conflict, message));
        }
    } else {
        expect(row, &[ProposalStatus::Approved], "merged")?;
        if row.generation != of.generation {
            let message =
                format!("{} changed since this was agreed to; look at it and submit it again", of.name);
            return Err(refuse(ErrorCode::Conflict, message));
        }
    }
    let request = open(tx, row)?;
    let (deployment, by_hand) = check(tx, context, &of, &request)?;
    if request.description.is_some() || request.labels.is_some() {
        let mut facts = facts_of(&of);
        facts.description = request.description.clone().or(facts.description);
        facts.labels.extend(request.labels.clone().unwrap_or_default());
        tx.set_facts(of.id, &serde_json::to_value(&facts).unwrap_or_default(), now)?;
    }
    let idle =
        deployment.resources.iter().all(|item| item.action == conductor_domain::lifecycle::Action::None);
    let change = match idle {
        true => None,
        false => {
            Some(begin(tx, context, &place, ChangeKind::Proposal, by_hand, None, actor, domains, now)?.0)
        }
    };
    let from = row.status;
    row.status = ProposalStatus::Merged;
    row.change = change;
    tx.update_proposal(row, from, now)?;
    note(tx, context, "proposal.merged", row, actor, json!({ "deployment": change }))?;
    Ok(change)
}
