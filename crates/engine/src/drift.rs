//! Whether things still are what is on record: looked at on request or by the clock, told by attribute, and put right,
//! taken over or let be.

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::types::{
    Deployment, Drift, DriftAttribute, DriftDecision, DriftRequest, Handled, Page, Time,
};
use conductor_domain::{
    ids::{ChangeId, EnvironmentId, OperationId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode, KeptBy, OperationKind, State, Status},
    work::Done,
};
use conductor_store::{
    Owner, Result, Tx,
    operations::{NewOperation, OperationRow},
    resources::{ResourceFilter, ResourceRow},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Context, Engine,
    alerts::tell,
    changes::{Domains, known_application, lock_known},
    consumers::resource,
    hand::{ByHand, begin, environment_of, handled, nobody, preview},
    planning::Place,
    progress::Progress,
    refusal::refuse,
    steps::{open_inputs, open_outputs},
    views,
};

/// What is done about a difference without being told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DriftPolicy {
    #[default]
    Alert,
    Repair,
    Adopt,
    Ignore,
}

/// The `drift` block of an environment or a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct DriftTerms {
    pub schedule: Option<String>,
    pub policy: Option<DriftPolicy>,
    /// How many are looked at in one round.
    pub concurrency: Option<u32>,
}

pub(crate) fn drift_terms(document: &Value) -> DriftTerms {
    serde_json::from_value(document.get("drift").cloned().unwrap_or_default()).unwrap_or_default()
}

/// One attribute that differs, as it is kept: secrets sealed as outputs are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    path: String,
    recorded: Value,
    actual: Value,
}

/// What a look found, as it is kept with the resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Found {
    kind: String,
    attributes: Vec<Kept>,
}

fn read(drift: &Value) -> Found {
    serde_json::from_value(drift.clone()).unwrap_or_default()
}

fn mask(value: &Value) -> Value {
    if conductor_store::is_sealed(value) { Value::Null } else { value.clone() }
}

fn view(row: &ResourceRow) -> Option<Drift> {
    let found = read(row.drift.as_ref()?);
    Some(Drift {
        resource: row.id,
        name: row.name.clone(),
        environment: row.environment_name.clone(),
        kind: found.kind,
        attributes: found
            .attributes
            .iter()
            .map(|kept| DriftAttribute {
                path: kept.path.clone(),
                recorded: mask(&kept.recorded),
                actual: mask(&kept.actual),
            })
            .collect(),
        observed_at: Time(row.observed_at.unwrap_or(row.updated_at)),
    })
}

fn owner<'r>(context: &Context, id: &'r ResourceId) -> Owner<'r> {
    Owner { organisation: context.organisation, kind: "outputs", id: id.0.as_bytes() }
}

/// What was seen, against what is on record.
pub(crate) fn observed(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    done: &Done,
    now: i64,
) -> Result<()> {
    let Some(resource) = row.resource.map(|id| tx.resource(id)).transpose()?.flatten() else { return Ok(()) };
    // Changed while somebody looked: what was seen says nothing any more.
    if resource.state != State::Provisioned || resource.generation != row.generation {
        return Ok(());
    }
    let found = match done.exists {
        Some(false) => Some(Found { kind: "missing".into(), attributes: vec![] }),
        _ => {
            let attributes = differences(tx, context, &resource, done)?;
            (!attributes.is_empty()).then(|| Found { kind: "changed".into(), attributes })
        }
    };
    let accepted: BTreeMap<String, Value> = resource
        .observed
        .as_ref()
        .and_then(|observed| serde_json::from_value(observed["accepted"].clone()).ok())
        .unwrap_or_default();
    let found =
        found.and_then(|found| without(tx, context, &resource, found, &accepted).transpose()).transpose()?;
    let mut observed = json!({ "exists": done.exists, "accepted": accepted });
    let drift = found.as_ref().map(|found| serde_json::to_value(found).unwrap_or_default());
    if drift.is_some() && drift == resource.drift && is_tried(&resource) {
        observed["tried"] = json!(drift);
    }
    tx.observe_resource(resource.id, &observed, drift.as_ref(), now)?;
    let news = drift.is_some() && drift != resource.drift;
    if let (true, Some(found)) = (news, &found) {
        let paths: Vec<&str> = found.attributes.iter().map(|kept| kept.path.as_str()).collect();
        let told = json!({ "name": resource.name, "kind": found.kind, "attributes": paths });
        let (change, operation) = (Some(row.change), Some(row.id));
        let mut progress = Progress::new(tx, context, now);
        progress.event("resource.drifted", "conductor", change, Some(resource.id), operation, told)?;
        let message = format!(
            "{} in {} is not what is on record: {}",
            resource.name, resource.environment_name, found.kind
        );
        let more = json!({ "resource": resource.id, "attributes": paths });
        tell(tx, context, "drift", "found", &message, more)?;
    }
    Ok(())
}

/// Whether putting it right was tried already, and did not come about: somebody said no.
fn is_tried(row: &ResourceRow) -> bool {
    let tried = row.observed.as_ref().and_then(|observed| observed.get("tried"));
    tried.is_some() && tried == row.drift.as_ref()
}

/// Outputs that differ from the recorded ones, and what the manager found besides.
fn differences(tx: &mut Tx<'_>, context: &Context, row: &ResourceRow, done: &Done) -> Result<Vec<Kept>> {
    let (recorded, sensitive) = open_outputs(tx, row)?;
    let mut found = Vec::new();
    for (name, output) in &done.outputs {
        let before = recorded.get(name).cloned().unwrap_or_default();
        if before == output.value {
            continue;
        }
        let secret = output.sensitive || sensitive.contains(name);
        let seal = |value: &Value| match secret {
            true => tx.sealer().seal_leaf(owner(context, &row.id), value),
            false => Ok(value.clone()),
        };
        let (recorded, actual) = (seal(&before)?, seal(&output.value)?);
        found.push(Kept { path: format!("outputs.{name}"), recorded, actual });
    }
    found.extend(done.drift.iter().map(|difference| Kept {
        path: difference.path.clone(),
        recorded: difference.recorded.clone(),
        actual: difference.actual.clone(),
    }));
    Ok(found)
}

/// Leaves out what somebody has accepted as it is.
fn without(
    tx: &Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    mut found: Found,
    accepted: &BTreeMap<String, Value>,
) -> Result<Option<Found>> {
    let changed = found.kind == "changed";
    let mut left = Vec::new();
    for kept in found.attributes {
        let same = match accepted.get(&kept.path) {
            Some(known) => {
                let open = |value: &Value| tx.sealer().open_leaf(owner(context, &row.id), value);
                open(known)? == open(&kept.actual)?
            }
            None => false,
        };
        if !same {
            left.push(kept);
        }
    }
    found.attributes = left;
    Ok((!changed || !found.attributes.is_empty()).then_some(found))
}

/// Which resources can be looked at.
fn selected(
    tx: &mut Tx<'_>,
    context: &Context,
    request: &DriftRequest,
) -> Result<(Vec<ResourceRow>, Option<EnvironmentId>)> {
    if !request.resources.is_empty() {
        let mut rows = Vec::new();
        for id in &request.resources {
            rows.push(resource(tx, context, *id)?);
        }
        return Ok((rows, None));
    }
    let environment = match &request.environment {
        Some(name) => Some(crate::changes::environment(tx, context, name)?.id),
        None => None,
    };
    let application = match &request.application {
        Some(name) => Some(known_application(tx, context, name)?.id),
        None => None,
    };
    let mut rows = Vec::new();
    let mut after = None;
    loop {
        let filter = ResourceFilter {
            environment,
            application,
            state: Some(State::Provisioned),
            after,
            limit: 1000,
            ..ResourceFilter::default()
        };
        let page = tx.resources(context.organisation, &filter)?;
        let full = page.len() == 1000;
        after = page.last().map(|row| row.id);
        rows.extend(page);
        if !full {
            return Ok((rows, environment));
        }
    }
}

/// So many are looked at together unless somebody says otherwise.
const AT_ONCE: usize = 10;

/// A change that only looks, at so many together.
fn look(
    tx: &mut Tx<'_>,
    context: &Context,
    rows: Vec<ResourceRow>,
    environment: Option<EnvironmentId>,
    at_once: Option<u32>,
    actor: &str,
    now: i64,
) -> Result<ChangeId> {
    let at_once = at_once.map_or(AT_ONCE, |count| count.max(1) as usize);
    let ids: BTreeSet<ResourceId> = rows.iter().map(|row| row.id).collect();
    let busy = tx.open_operations_on(&ids)?;
    let mut operations = Vec::new();
    let change = ChangeId(context.ids.next());
    for row in &rows {
        let version = context.templates.get(tx, row.version, None)?;
        let settled = row.state == State::Provisioned && matches!(row.status, Status::Done | Status::Error);
        if !settled || !version.can_observe || row.kept_by == KeptBy::External || busy.contains_key(&row.id) {
            continue;
        }
        operations.push(NewOperation {
            id: OperationId(context.ids.next()),
            organisation: context.organisation,
            change,
            plan_number: 1,
            resource: Some(row.id),
            kind: OperationKind::Observe,
            generation: row.generation,
            conditional: false,
            releasing: false,
            queue: Some(context.templates.queues.of(tx, &version.needs)?),
            gated: false,
            open_predecessors: i64::from(operations.len() >= at_once),
            retries: 2,
            payload: None,
            now,
        });
    }
    let parted: BTreeSet<EnvironmentId> = rows.iter().map(|row| row.environment).collect();
    let only = if parted.len() == 1 { parted.first().copied() } else { None };
    insert_look(tx, context, change, environment.or(only), actor, now)?;
    let plan = json!({ "items": [], "removals": [], "warnings": [] });
    let (from, to) = (ChangeStatus::Pending, ChangeStatus::InProgress);
    tx.start_change(change, from, to, None, 1, &plan, operations.len() as i64, 0, now)?;
    tx.insert_operations(&operations)?;
    // Each comes after the one that begins so many before it, however that one ends.
    let pairs = operations.iter().skip(at_once).zip(&operations);
    let edges: Vec<(OperationId, OperationId, bool)> =
        pairs.map(|(next, one)| (next.id, one.id, true)).collect();
    tx.insert_edges(&edges)?;
    if operations.is_empty() {
        Progress::new(tx, context, now).end_change(change)?;
    }
    Ok(change)
}

fn insert_look(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ChangeId,
    environment: Option<EnvironmentId>,
    actor: &str,
    now: i64,
) -> Result<()> {
    tx.insert_change(&conductor_store::changes::NewChange {
        environment,
        timeout_at: Some(now + 3_600_000_000),
        ..context.change(id, ChangeKind::Observe, actor, now)
    })
}

/// Whose difference is to be settled, with the place it is in.
fn drifting(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ResourceId,
    domains: &mut Domains,
) -> Result<(ResourceRow, Found, Place)> {
    let before = resource(tx, context, id)?;
    let place = nobody(environment_of(tx, &before)?);
    domains.insert(before.key.domain);
    lock_known(tx, domains, place.environment.domain)?;
    let row = resource(tx, context, id)?;
    match &row.drift {
        Some(drift) => {
            let found = read(drift);
            Ok((row, found, place))
        }
        None => {
            let message = format!("{} shows no drift; `conductor drift check` looks", row.name);
            Err(refuse(ErrorCode::Conflict, message))
        }
    }
}

fn not_none(decision: &DriftDecision) -> Result<()> {
    match decision.resources.is_empty() {
        true => Err(refuse(ErrorCode::Invalid, "say which resources")),
        false => Ok(()),
    }
}

impl Engine {
    /// Looks at what is there. The change ends when everything was looked at.
    pub async fn check_drift(&self, request: DriftRequest, actor: &str) -> Result<Deployment> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let (rows, environment) = selected(tx, &context, &request)?;
                let at_once = match environment {
                    Some(id) => tx.environment(id)?.and_then(|row| drift_terms(&row.document).concurrency),
                    None => None,
                };
                let change = look(tx, &context, rows, environment, at_once, &actor, context.now())?;
                views::deployment(tx, &context, change)
            })
            .await
    }

    /// What is not as it is on record, as far as anybody has looked.
    pub async fn drifts(&self, request: DriftRequest) -> Result<Page<Drift>> {
        let context = self.context.clone();
        let items = self.db.read(move |tx| {
            let (rows, _) = selected(tx, &context, &request)?;
            Ok(rows.iter().filter_map(view).collect::<Vec<_>>())
        });
        Ok(Page { items: items.await?, next_cursor: None })
    }

    /// Makes them what is on record again.
    pub async fn repair_drift(&self, decision: DriftDecision, actor: &str) -> Result<Vec<Handled>> {
        not_none(&decision)?;
        let mut handled = Vec::new();
        for id in decision.resources {
            handled.push(self.repair_one(id, decision.dry_run, actor).await?);
        }
        Ok(handled)
    }

    async fn repair_one(&self, id: ResourceId, dry_run: bool, actor: &str) -> Result<Handled> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let mut domains = Domains::new();
        self.db
            .write(move |tx| {
                let (row, _, place) = drifting(tx, &context, id, &mut domains)?;
                let by_hand = again(&row, Map::new());
                if dry_run {
                    return preview(tx, &context, &place, ChangeKind::Repair, &by_hand);
                }
                let (kind, now) = (ChangeKind::Repair, context.now());
                let (change, _) =
                    begin(tx, &context, &place, kind, by_hand, None, &actor, &mut domains, now)?;
                handled(tx, &context, Some(id), Some(change))
            })
            .await
    }

    /// What was found becomes what is on record: in the parameters where one of them is the reason, else in the record.
    pub async fn adopt_drift(&self, decision: DriftDecision, actor: &str) -> Result<Vec<Handled>> {
        not_none(&decision)?;
        let mut adopted = Vec::new();
        for id in decision.resources {
            let (context, actor, only) =
                (self.context.clone(), actor.to_owned(), decision.attributes.clone());
            let (dry_run, mut domains) = (decision.dry_run, Domains::new());
            let one = self.db.write(move |tx| {
                let (row, found, place) = drifting(tx, &context, id, &mut domains)?;
                let adoption = adoption(tx, &context, &row, &found, &only)?;
                match dry_run {
                    true => adoption.shown(tx, &context, &row, &place),
                    false => adoption.carry_out(tx, &context, &row, found, &place, &actor, &mut domains),
                }
            });
            adopted.push(one.await?);
        }
        Ok(adopted)
    }

    /// Lets differences be, until they are others.
    pub async fn ignore_drift(&self, decision: DriftDecision, actor: &str) -> Result<()> {
        not_none(&decision)?;
        for id in decision.resources {
            let (context, actor, only) =
                (self.context.clone(), actor.to_owned(), decision.attributes.clone());
            let (dry_run, mut domains) = (decision.dry_run, Domains::new());
            self.db
                .write(move |tx| {
                    let (row, found, _) = drifting(tx, &context, id, &mut domains)?;
                    if dry_run {
                        return picked(&found, &only).map(drop);
                    }
                    accept(tx, &context, &row, found, &only, "resource.drift_ignored", &actor)
                })
                .await?;
        }
        Ok(())
    }

    /// Does what the documents say about what was found.
    pub async fn settle_drifts(&self) -> Result<()> {
        let context = self.context.clone();
        let due = self.db.read(move |tx| {
            let mut due = Vec::new();
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = tx.drifting(context.organisation, after)?;
                after = page.last().map(|row| row.id);
                found.extend(page);
                if after.is_none() {
                    break;
                }
            }
            for row in found {
                let environment = environment_of(tx, &row)?;
                let version = context.templates.get(tx, row.version, None)?;
                let policy = version.drift_policy.as_deref().and_then(policy_word);
                let policy = policy.or(drift_terms(&environment.document).policy).unwrap_or_default();
                let free = tx.open_operations_on(&[row.id].into())?.is_empty();
                let again = policy == DriftPolicy::Repair && is_tried(&row);
                if free && !again && row.status == Status::Done && policy != DriftPolicy::Alert {
                    due.push((row.id, policy));
                }
            }
            Ok(due)
        });
        for (id, policy) in due.await? {
            let decision = DriftDecision { resources: vec![id], ..DriftDecision::default() };
            let done = match policy {
                DriftPolicy::Repair => match self.repair_drift(decision, "conductor").await {
                    Ok(_) => self.tried(id).await,
                    Err(error) => Err(error),
                },
                DriftPolicy::Adopt => self.adopt_drift(decision, "conductor").await.map(drop),
                DriftPolicy::Ignore => self.ignore_drift(decision, "conductor").await,
                DriftPolicy::Alert => Ok(()),
            };
            match done {
                Err(conductor_store::Error::Refused { message, .. }) => {
                    tracing::warn!(resource = %id, %message, "a drift could not be settled");
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Remembers that this difference was to be put right: should somebody say no to that, it is not asked again.
    async fn tried(&self, id: ResourceId) -> Result<()> {
        self.db
            .write(move |tx| {
                let Some(row) = tx.resource(id)? else { return Ok(()) };
                let Some(drift) = &row.drift else { return Ok(()) };
                let mut observed = row.observed.clone().unwrap_or_else(|| json!({}));
                observed["tried"] = drift.clone();
                tx.note_observed(id, &observed, drift)
            })
            .await
    }

    /// Looks where a schedule says so. Several servers may ask at once: one of them looks.
    pub async fn look_by_schedule(&self) -> Result<()> {
        self.look_by_template().await?;
        self.look_by_environment().await
    }

    /// Templates with a schedule of their own: each of their resources when its time has come.
    async fn look_by_template(&self) -> Result<()> {
        let context = self.context.clone();
        let scheduled = self.db.read(move |tx| {
            let shelf = context.templates.shelf(tx, &context)?;
            let mut scheduled = Vec::new();
            for head in shelf.heads.iter().filter(|head| !head.built_in) {
                let version = context.templates.get(tx, head.id, Some(&head.state))?;
                scheduled.extend(version.drift_schedule.clone().map(|schedule| (head.id, schedule)));
            }
            Ok(scheduled)
        });
        for (version, schedule) in scheduled.await? {
            let context = self.context.clone();
            let due = move |tx: &mut Tx<'_>| {
                let rows = tx.resources_of_version(version)?;
                let now = context.now();
                let is_due = |row: &ResourceRow| {
                    let last = row.observed_at.unwrap_or(row.updated_at);
                    is_due(&schedule, last, jitter(row.environment), now)
                };
                Ok(rows.into_iter().filter(is_due).collect::<Vec<_>>())
            };
            let looked = due.clone();
            if self.db.read(looked).await?.is_empty() {
                continue;
            }
            let context = self.context.clone();
            self.db
                .write(move |tx| {
                    let rows = due(tx)?;
                    let ids: BTreeSet<ResourceId> = rows.iter().map(|row| row.id).collect();
                    tx.note_look(&ids, context.now())?;
                    look(tx, &context, rows, None, None, "conductor", context.now()).map(drop)
                })
                .await?;
        }
        Ok(())
    }

    async fn look_by_environment(&self) -> Result<()> {
        let context = self.context.clone();
        let due = self.db.read(move |tx| {
            let mut due = Vec::new();
            for environment in tx.environments(context.organisation)? {
                let Some(schedule) = drift_terms(&environment.document).schedule else { continue };
                let last = tx.last_look(environment.id)?.unwrap_or(environment.updated_at);
                if is_due(&schedule, last, jitter(environment.id), context.now()) {
                    due.push(environment);
                }
            }
            Ok(due)
        });
        for environment in due.await? {
            let context = self.context.clone();
            self.db
                .write(move |tx| {
                    tx.lock_domain(environment.domain)?;
                    let Some(schedule) = drift_terms(&environment.document).schedule else { return Ok(()) };
                    let (last, now) = (tx.last_look(environment.id)?, context.now());
                    // Locked: somebody may have been first.
                    if !is_due(&schedule, last.unwrap_or(environment.updated_at), jitter(environment.id), now)
                    {
                        return Ok(());
                    }
                    let request = DriftRequest {
                        environment: Some(environment.name.clone()),
                        ..DriftRequest::default()
                    };
                    let (rows, id) = selected(tx, &context, &request)?;
                    let at_once = drift_terms(&environment.document).concurrency;
                    look(tx, &context, rows, id, at_once, "conductor", now).map(drop)
                })
                .await?;
        }
        Ok(())
    }
}

fn policy_word(word: &str) -> Option<DriftPolicy> {
    serde_json::from_value(Value::String(word.to_owned())).ok()
}

/// Not everything at the same moment: up to half a minute later, always the same for one environment.
fn jitter(environment: EnvironmentId) -> i64 {
    let bytes = environment.0.as_bytes();
    i64::from(u16::from_be_bytes([bytes[14], bytes[15]])) * 30_000_000 / i64::from(u16::MAX)
}

/// Whether a schedule has come round since a moment.
fn is_due(schedule: &str, last: i64, jitter: i64, now: i64) -> bool {
    next_time(schedule, last).is_some_and(|at| at + jitter <= now)
}

/// When a schedule comes round after a moment, in UTC.
pub(crate) fn next_time(schedule: &str, after: i64) -> Option<i64> {
    let cron = schedule.parse::<croner::Cron>().ok()?;
    let after = jiff::Timestamp::from_microsecond(after).ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    Some(cron.find_next_occurrence(&after, false).ok()?.timestamp().as_microsecond())
}

fn again(row: &ResourceRow, set: Map<String, Value>) -> ByHand {
    ByHand::Again { resource: row.id, version: row.version, set, revision: None, anyway: true }
}

fn picked(found: &Found, only: &[String]) -> Result<Vec<Kept>> {
    if let Some(unknown) = only.iter().find(|path| !found.attributes.iter().any(|kept| kept.path == **path)) {
        let known: Vec<&str> = found.attributes.iter().map(|kept| kept.path.as_str()).collect();
        let message = format!("`{unknown}` does not differ; what does: {}", known.join(", "));
        return Err(refuse(ErrorCode::Invalid, message));
    }
    let picked = found.attributes.iter().filter(|kept| only.is_empty() || only.contains(&kept.path));
    Ok(picked.cloned().collect())
}

/// What is accepted is no longer told, as long as it stays so.
fn accept(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    found: Found,
    only: &[String],
    kind: &'static str,
    actor: &str,
) -> Result<()> {
    if found.kind == "missing" {
        let message = format!("{} is gone: repair it, or destroy it", row.name);
        return Err(refuse(ErrorCode::Conflict, message));
    }
    let picked = picked(&found, only)?;
    let mut observed = row.observed.clone().unwrap_or_else(|| json!({}));
    for kept in &picked {
        observed["accepted"][&kept.path] = kept.actual.clone();
    }
    let left: Vec<Kept> = found.attributes.into_iter().filter(|kept| !picked.contains(kept)).collect();
    let drift = (!left.is_empty()).then(|| json!(Found { kind: "changed".into(), attributes: left }));
    let now = context.now();
    tx.observe_resource(row.id, &observed, drift.as_ref(), row.observed_at.unwrap_or(now))?;
    let paths: Vec<&str> = picked.iter().map(|kept| kept.path.as_str()).collect();
    let told = json!({ "name": row.name, "attributes": paths });
    Progress::new(tx, context, now).event(kind, actor, None, Some(row.id), None, told)
}
/// What becomes of a drift that is taken over.
struct Adoption {
    /// Parameters that are the reason for it, and their new values.
    set: Map<String, Value>,
    outputs: Value,
    /// The rest, which is only kept in the record.
    on_record: Vec<String>,
}

fn adoption(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    found: &Found,
    only: &[String],
) -> Result<Adoption> {
    let given = match &row.inputs {
        Some(sealed) => open_inputs(tx, context, row.id, sealed)?.parameters,
        None => Map::new(),
    };
    let mut set = Map::new();
    let mut outputs = row.outputs.clone().unwrap_or_else(|| json!({}));
    let mut on_record = Vec::new();
    for kept in picked(found, only)? {
        let open = |value: &Value| tx.sealer().open_leaf(owner(context, &row.id), value);
        let (recorded, actual) = (open(&kept.recorded)?, open(&kept.actual)?);
        let last = kept.path.rsplit('.').next().unwrap_or_default();
        let equal: Vec<&String> =
            given.iter().filter(|(_, value)| **value == recorded).map(|(name, _)| name).collect();
        let fed_by = equal.iter().find(|name| name.as_str() == last).or(match equal.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        if let Some(name) = fed_by {
            set.insert((*name).clone(), actual.clone());
            continue;
        }
        if let Some(name) = kept.path.strip_prefix("outputs.") {
            outputs[name] = kept.actual.clone();
        }
        on_record.push(kept.path);
    }
    Ok(Adoption { set, outputs, on_record })
}

impl Adoption {
    fn shown(self, tx: &mut Tx<'_>, context: &Context, row: &ResourceRow, place: &Place) -> Result<Handled> {
        match self.set.is_empty() {
            true => handled(tx, context, Some(row.id), None),
            false => preview(tx, context, place, ChangeKind::Adopt, &again(row, self.set)),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "who adopts what, where")]
    fn carry_out(
        self,
        tx: &mut Tx<'_>,
        context: &Context,
        row: &ResourceRow,
        found: Found,
        place: &Place,
        actor: &str,
        domains: &mut Domains,
    ) -> Result<Handled> {
        let now = context.now();
        // What a parameter is the reason for is settled by the change of that parameter, once somebody agreed to it.
        if !self.on_record.is_empty() || self.set.is_empty() {
            accept(tx, context, row, found, &self.on_record, "resource.drift_adopted", actor)?;
            tx.set_outputs(row.id, &self.outputs, now)?;
        }
        if self.set.is_empty() {
            return handled(tx, context, Some(row.id), None);
        }
        // The parameter is the reason: with the new value nothing is left to put back.
        let kind = ChangeKind::Adopt;
        let (change, _) = begin(tx, context, place, kind, again(row, self.set), None, actor, domains, now)?;
        handled(tx, context, Some(row.id), Some(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_come_round_in_utc() {
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap().as_microsecond();
        let noon = at("2026-01-01T12:00:30Z");
        assert_eq!(next_time("*/5 * * * *", noon), Some(at("2026-01-01T12:05:00Z")));
        assert_eq!(next_time("0 3 * * *", noon), Some(at("2026-01-02T03:00:00Z")));
        assert_eq!(next_time("at night", noon), None);
        assert!(is_due("*/5 * * * *", noon, 0, at("2026-01-01T12:05:00Z")));
        assert!(!is_due("*/5 * * * *", noon, 10_000_000, at("2026-01-01T12:05:00Z")));
    }
}
