//! Use cases on changes: deploy, destroy, plan, promote, cancel, retry.

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::{
    trace,
    types::{Deployment, DeploymentRequest, DestroyRequest, PlanItem, ProblemItem, Served, Time},
};
use conductor_domain::{
    ids::{ApplicationId, ChangeId, DomainId, OperationId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode, Fault, OperationStatus, Phase},
    plan::{Effect, Intent, Plan, Snapshot},
    score::{self, Manifest},
};
use conductor_store::{
    Result, Tx,
    catalogue::{ApplicationRow, EnvironmentRow},
    changes::{ChangeRow, NewChange, Slot},
    operations::OperationRow,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Context, Engine,
    approvals::{ask, inherit, terms_of},
    hand::{ByHand, nobody},
    planning::{Place, Purpose, Storing, plan_document, plan_now, touched_domains, wide_domains},
    progress::Progress,
    refusal::{not_found, refuse, refuse_all},
    teardown::stands,
    views,
};

pub(crate) const DEFAULT_TIMEOUT_SECONDS: u64 = 3600;

/// What was asked for, kept sealed with the change so that it can be planned again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Asked {
    pub manifest: Option<String>,
    pub image: Option<String>,
    pub strict: bool,
    pub timeout_seconds: Option<u64>,
    /// What no Score file asked for.
    pub by_hand: Option<ByHand>,
}

/// What a stored change was asked for.
pub(crate) fn asked_of(tx: &mut Tx<'_>, id: ChangeId) -> Result<Asked> {
    let row = tx.change(id)?.ok_or_else(|| conductor_store::Error::Corrupt("a change is missing".into()))?;
    Ok(serde_json::from_value(tx.change_request(&row)?).unwrap_or_default())
}

/// Legal Score may nest deeper than what stored JSON is read back with.
const DEEPEST: usize = 100;

fn depth(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        serde_json::Value::Object(entries) => 1 + entries.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Reads a Score file, or tells everything that is wrong with it.
pub(crate) fn parse_manifest(text: &str, strict: bool) -> Result<Manifest> {
    let manifest = read_manifest(text, strict)?;
    for (name, resource) in &manifest.resources {
        let deepest = resource.params.iter().flat_map(|params| params.values()).map(depth).max().unwrap_or(0);
        if deepest > DEEPEST {
            let item = ProblemItem {
                path: format!("resources.{name}.params"),
                message: format!("params are nested {deepest} deep; at most {DEEPEST} can be deployed"),
                suggestion: Some("flatten them".into()),
                line: Some(resource.at.line),
                column: Some(resource.at.column),
            };
            return Err(refuse_all(ErrorCode::Invalid, item.message.clone(), &[item]));
        }
    }
    Ok(manifest)
}

fn read_manifest(text: &str, strict: bool) -> Result<Manifest> {
    score::parse(text, &score::Options { strict }).map_err(|findings| {
        let items: Vec<ProblemItem> = findings
            .iter()
            .map(|finding| ProblemItem {
                path: finding.path.clone(),
                message: finding.message.clone(),
                suggestion: finding.suggestion.clone(),
                line: Some(finding.line),
                column: Some(finding.column),
            })
            .collect();
        let first = items.first().map_or("", |item| item.message.as_str());
        let line = items.first().and_then(|item| item.line).unwrap_or(1);
        refuse_all(ErrorCode::Invalid, format!("the Score file is not valid: line {line}: {first}"), &items)
    })
}

pub(crate) fn environment(tx: &mut Tx<'_>, context: &Context, name: &str) -> Result<EnvironmentRow> {
    if let Some(row) = tx.environment_by_name(context.organisation, name)? {
        return Ok(row);
    }
    let known: Vec<String> = tx.environments(context.organisation)?.into_iter().map(|row| row.name).collect();
    Err(not_found("environment", name, &known))
}

pub(crate) fn known_application(tx: &mut Tx<'_>, context: &Context, name: &str) -> Result<ApplicationRow> {
    if let Some(row) = tx.application_by_name(context.organisation, name)? {
        return Ok(row);
    }
    let known: Vec<String> = tx.applications(context.organisation)?.into_iter().map(|row| row.name).collect();
    Err(not_found("application", name, &known))
}

pub(crate) fn check_application_name(name: &str) -> Result<()> {
    let fits = (2..=63).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(refuse(
        ErrorCode::Invalid,
        format!("`{shown}` is no application name: use 2 to 63 of a-z, 0-9 and -"),
    ))
}

impl Engine {
    /// Accepts a deployment: parsed before any lock, planned and stored in one transaction.
    #[tracing::instrument(target = "conductor::trace", level = "debug", skip_all, fields(environment = %request.environment))]
    pub async fn deploy(
        &self,
        request: DeploymentRequest,
        actor: &str,
        key: Option<&str>,
    ) -> Result<Deployment> {
        let manifest = parse_manifest(&request.manifest, request.strict_score)?;
        let name = request.application.clone().unwrap_or_else(|| manifest.metadata.name.clone());
        check_application_name(&name)?;
        let (context, actor, key) = (self.context.clone(), actor.to_owned(), key.map(str::to_owned));
        let trace = trace::current();
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let mut domains = wide_domains(&context, &manifest).into_iter().collect();
        self.db
            .write(move |tx| {
                let now = context.now();
                let environment = environment(tx, &context, &request.environment)?;
                lock_known(tx, &mut domains, environment.domain)?;
                let once = Once::read(tx, key.as_deref(), &body)?;
                if let Some(change) = once.replayed(tx, &context)? {
                    return views::deployment(tx, &context, change);
                }
                let application = match tx.application_by_name(context.organisation, &name)? {
                    Some(row) => row,
                    None => {
                        let id = ApplicationId(context.ids.next());
                        let id = tx.upsert_application(context.organisation, id, &name, None, now)?;
                        ApplicationRow { id, name: name.clone(), document: json!({}), created_at: now }
                    }
                };
                let place = Place { environment, application };
                stands(tx, &place, now)?;
                let intent = Intent::Deploy { manifest: &manifest, image: request.image.as_deref() };
                let asked = Asked {
                    manifest: Some(request.manifest.clone()),
                    image: request.image.clone(),
                    strict: request.strict_score,
                    timeout_seconds: request.timeout_seconds,
                    by_hand: None,
                };
                let commit = request.commit.clone();
                let kind = ChangeKind::Deploy;
                let (id, view) =
                    accept(tx, &context, &place, &intent, kind, asked, commit, &actor, &mut domains, now)?;
                keep_trace(tx, id, trace.as_deref())?;
                once.keep(tx, &context, id, now)?;
                view.map_or_else(|| views::deployment(tx, &context, id), Ok)
            })
            .await
    }

    /// What a deployment would do, and which template version would make what is new.
    pub(crate) async fn plan_with_templates(
        &self,
        request: DeploymentRequest,
    ) -> Result<(Deployment, BTreeMap<ResourceId, Served>)> {
        let (manifest, name) = manifest_of(&request)?;
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let environment = environment(tx, &context, &request.environment)?;
                let place = Place { application: application_or_new(tx, &context, &name)?, environment };
                let intent = Intent::Deploy { manifest: &manifest, image: request.image.as_deref() };
                let (plan, snapshot) = plan_now(tx, &context, &place, &intent, Purpose::Show)?;
                let made = plan.effects.iter().filter_map(|effect| {
                    let (id, version) = match effect {
                        Effect::Create(new) => (new.id, new.version),
                        Effect::Specify { resource, version, .. } => (*resource, *version),
                        _ => return None,
                    };
                    let version = snapshot.versions.get(&version)?;
                    let (template, version) = (version.name.clone(), version.version.to_string());
                    Some((id, Served { template, version }))
                });
                let made = made.collect();
                Ok((planned(&plan, &snapshot, ChangeKind::Deploy, &place), made))
            })
            .await
    }

    /// What a deployment would do; changes nothing.
    #[tracing::instrument(target = "conductor::trace", level = "debug", skip_all, fields(environment = %request.environment))]
    pub async fn plan(&self, request: DeploymentRequest) -> Result<Deployment> {
        Ok(self.plan_with_templates(request).await?.0)
    }

    /// An application leaves an environment; with `dry_run` only says what would go.
    #[tracing::instrument(target = "conductor::trace", level = "debug", skip_all, fields(environment = %request.environment))]
    pub async fn destroy(
        &self,
        request: DestroyRequest,
        actor: &str,
        key: Option<&str>,
    ) -> Result<Deployment> {
        let (context, actor, key) = (self.context.clone(), actor.to_owned(), key.map(str::to_owned));
        let trace = trace::current();
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let Some(name) = request.application.clone() else {
            return self.tear_down(request, &actor, key.as_deref()).await;
        };
        let look = {
            let (context, name, environment_name) =
                (context.clone(), name.clone(), request.environment.clone());
            move |tx: &mut Tx<'_>| {
                let environment = environment(tx, &context, &environment_name)?;
                Ok::<Place, conductor_store::Error>(Place {
                    application: known_application(tx, &context, &name)?,
                    environment,
                })
            }
        };
        if request.dry_run {
            return self
                .db
                .read(move |tx| {
                    let place = look(tx)?;
                    let (plan, snapshot) = plan_now(tx, &context, &place, &Intent::Destroy, Purpose::Show)?;
                    Ok(planned(&plan, &snapshot, ChangeKind::Destroy, &place))
                })
                .await;
        }
        let mut domains = Domains::new();
        self.db
            .write(move |tx| {
                let now = context.now();
                let place = look(tx)?;
                lock_for(tx, &place, &mut domains)?;
                let once = Once::read(tx, key.as_deref(), &body)?;
                if let Some(change) = once.replayed(tx, &context)? {
                    return views::deployment(tx, &context, change);
                }
                let asked = Asked::default();
                let kind = ChangeKind::Destroy;
                let intent = Intent::Destroy;
                let (id, view) =
                    accept(tx, &context, &place, &intent, kind, asked, None, &actor, &mut domains, now)?;
                keep_trace(tx, id, trace.as_deref())?;
                once.keep(tx, &context, id, now)?;
                view.map_or_else(|| views::deployment(tx, &context, id), Ok)
            })
            .await
    }

    /// Plans the waiting changes whose turn has come. Idempotent; called after every end and by the sweep.
    pub async fn promote_waiting(&self) -> Result<()> {
        let waiting = self.db.read(|tx| tx.promotable_changes()).await?;
        for id in waiting {
            self.plan_change(id).await?;
        }
        Ok(())
    }

    /// Plans a stored change, again or for the first time.
    pub async fn plan_change(&self, id: ChangeId) -> Result<()> {
        let context = self.context.clone();
        let planned = {
            let (context, mut domains) = (context.clone(), Domains::new());
            self.db.write(move |tx| replan(tx, &context, id, &mut domains)).await
        };
        match planned {
            Err(conductor_store::Error::Refused { code, message, .. }) => {
                // It was good when it was accepted; the world moved. It ends, and says why.
                self.db
                    .write(move |tx| {
                        let Some(change) = tx.lock_change(id)? else {
                            return Ok(());
                        };
                        if change.status != ChangeStatus::Pending {
                            return Ok(());
                        }
                        let fault =
                            serde_json::to_value(Fault::new(code, message.clone())).unwrap_or_default();
                        let (kind, from) = (change.kind, change.status);
                        tx.end_change(id, kind, from, ChangeStatus::Failed, Some(&fault), context.now())
                    })
                    .await
            }
            other => other,
        }
    }

    /// Asks a change to stop: what has not started does not, what runs is told to end.
    #[tracing::instrument(target = "conductor::trace", level = "debug", skip_all, fields(deployment.id = %id))]
    pub async fn cancel(&self, id: ChangeId, rollback: bool, actor: &str) -> Result<Deployment> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let view = self
            .db
            .write(move |tx| {
                let now = context.now();
                stop_change(tx, &context, id, rollback, &actor, None, now)?;
                views::deployment(tx, &context, id)
            })
            .await?;
        self.promote_waiting().await?;
        Ok(view)
    }

    /// The change an operation belongs to.
    pub async fn change_of(&self, id: OperationId) -> Result<ChangeId> {
        let row = self.db.read(move |tx| tx.operation(id)).await?;
        row.map(|row| row.change).ok_or_else(|| not_found("operation", &id.to_string(), &[]))
    }

    /// Plans a failed or cancelled change again.
    #[tracing::instrument(target = "conductor::trace", level = "debug", skip_all, fields(deployment.id = %id))]
    pub async fn retry(&self, id: ChangeId, actor: &str) -> Result<Deployment> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let trace = trace::current();
        let mut domains = Domains::new();
        self.db
            .write(move |tx| {
                let now = context.now();
                let change = change(tx, &context, id)?;
                if !change.status.is_over() || change.status == ChangeStatus::Succeeded {
                    let message = format!(
                        "{id} is {}; only what failed or was cancelled can be retried",
                        change.status
                    );
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                let of_application = matches!(change.kind, ChangeKind::Deploy | ChangeKind::Destroy);
                let collects = matches!(change.kind, ChangeKind::Collect | ChangeKind::Rollback);
                let by_hand = asked_of(tx, id)?.by_hand.is_some();
                if !of_application && !collects && !by_hand {
                    let message =
                        format!("{id} is a {} and cannot be retried; do it again instead", change.kind);
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                if let (true, Some(application), Some(environment)) =
                    (of_application, change.application, change.environment)
                    && let Some(running) = tx.change_in_slot(application, environment, Slot::Running)?
                {
                    let message =
                        format!("{} is running for the same application and environment", running.id);
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                keep_trace(tx, id, trace.as_deref())?;
                tx.clear_cancel(id)?;
                tx.reopen_change(id, change.status, of_application, context.owner, now)?;
                Progress::new(tx, &context, now).event(
                    "change.retried",
                    &actor,
                    Some(id),
                    None,
                    None,
                    json!({}),
                )?;
                if collects {
                    let asked = serde_json::from_value(tx.change_request(&change)?["resources"].clone())
                        .unwrap_or_default();
                    lock_resources(tx, &asked)?;
                    let mut progress = Progress::new(tx, &context, now);
                    progress.collect_again(&change, &asked)?;
                    progress.settle()?;
                } else {
                    replan(tx, &context, id, &mut domains)?;
                }
                views::deployment(tx, &context, id)
            })
            .await
    }
}

/// What is done for the change belongs to the request that asked for it.
fn keep_trace(tx: &mut Tx<'_>, id: ChangeId, trace: Option<&str>) -> Result<()> {
    trace.map_or(Ok(()), |trace| tx.set_trace(id, trace))
}

/// An `Idempotency-Key` and what it was sent with, as keyed digests.
pub(crate) struct Once(Option<(Vec<u8>, Vec<u8>)>);

impl Once {
    pub fn read(tx: &Tx<'_>, key: Option<&str>, body: &[u8]) -> Result<Self> {
        let Some(key) = key else { return Ok(Self(None)) };
        Ok(Self(Some((tx.sealer().digest(key.as_bytes())?, tx.sealer().digest(body)?))))
    }

    /// The change this key made before.
    pub fn replayed(&self, tx: &mut Tx<'_>, context: &Context) -> Result<Option<ChangeId>> {
        let Some((key, body)) = &self.0 else { return Ok(None) };
        match tx.idempotent_change(context.organisation, key)? {
            Some((_, before)) if before != *body => {
                Err(refuse(ErrorCode::Conflict, "this Idempotency-Key was used for another request"))
            }
            found => Ok(found.map(|(change, _)| change)),
        }
    }

    pub fn keep(&self, tx: &mut Tx<'_>, context: &Context, change: ChangeId, now: i64) -> Result<()> {
        let Some((key, body)) = &self.0 else { return Ok(()) };
        tx.keep_idempotency(context.organisation, key, body, change, now)
    }
}

pub(crate) fn change(tx: &mut Tx<'_>, context: &Context, id: ChangeId) -> Result<ChangeRow> {
    tx.change(id)?
        .filter(|change| change.organisation == context.organisation)
        .ok_or_else(|| not_found("deployment", &id.to_string(), &[]))
}

/// The Score file of a request, and the application it is about.
pub(crate) fn manifest_of(request: &DeploymentRequest) -> Result<(Manifest, String)> {
    let manifest = parse_manifest(&request.manifest, request.strict_score)?;
    let name = request.application.clone().unwrap_or_else(|| manifest.metadata.name.clone());
    check_application_name(&name)?;
    Ok((manifest, name))
}

pub(crate) fn application_or_new(tx: &mut Tx<'_>, context: &Context, name: &str) -> Result<ApplicationRow> {
    Ok(tx.application_by_name(context.organisation, name)?.unwrap_or_else(|| ApplicationRow {
        id: ApplicationId(context.ids.next()),
        name: name.to_owned(),
        document: json!({}),
        created_at: 0,
    }))
}

/// Planning domains a use case has learned that it needs; kept over its repetitions.
pub(crate) type Domains = BTreeSet<DomainId>;

/// Takes the domains known so far, the environment's among them.
pub(crate) fn lock_known(tx: &mut Tx<'_>, domains: &mut Domains, environment: DomainId) -> Result<()> {
    if domains.is_empty() || domains.len() == 1 && domains.contains(&environment) {
        domains.insert(environment);
        return tx.lock_domain(environment);
    }
    domains.insert(environment);
    tx.lock_domains(&domains.iter().copied().collect::<Vec<_>>())
}

/// A plan may touch only what is held. What is not is remembered, and everything is done once more.
pub(crate) fn holds_all(tx: &Tx<'_>, plan: &Plan, snapshot: &Snapshot, domains: &mut Domains) -> Result<()> {
    if !tx.is_postgres() {
        return Ok(());
    }
    let before = domains.len();
    domains.extend(touched_domains(plan, snapshot));
    if domains.len() == before {
        return Ok(());
    }
    Err(conductor_store::Error::Busy("it reaches into more planning domains".into()))
}

/// The domains of everything an application uses, and its environment's.
fn lock_for(tx: &mut Tx<'_>, place: &Place, domains: &mut Domains) -> Result<()> {
    let uses = tx.uses_of(place.application.id, place.environment.id)?;
    let ids = uses.iter().map(|row| row.resource).collect();
    domains.extend(tx.resources_by_id(&ids)?.iter().map(|row| row.key.domain));
    lock_known(tx, domains, place.environment.domain)
}

/// The domains of these resources.
pub(crate) fn lock_resources(tx: &mut Tx<'_>, ids: &BTreeSet<ResourceId>) -> Result<()> {
    let domains: Vec<_> = tx.resources_by_id(ids)?.iter().map(|row| row.key.domain).collect();
    tx.lock_domains(&domains)
}

/// Stores a new change: running with its plan, or waiting for the one that runs. While it runs, what there is to
/// tell is known already and returned with its id.
#[allow(clippy::too_many_arguments, reason = "the one place where changes of an application are made")]
fn accept(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    intent: &Intent<'_>,
    kind: ChangeKind,
    asked: Asked,
    commit: Option<String>,
    actor: &str,
    domains: &mut Domains,
    now: i64,
) -> Result<(ChangeId, Option<Deployment>)> {
    let id = ChangeId(context.ids.next());
    let (application, environment) = (place.application.id, place.environment.id);
    let running = tx.change_in_slot(application, environment, Slot::Running)?;
    // Bad input is refused now, also when its turn comes later; what only stands in the way now may be gone by then.
    let planned_now = match plan_now(tx, context, place, intent, Purpose::Store) {
        Err(conductor_store::Error::Refused { code: ErrorCode::Conflict, .. }) if running.is_some() => None,
        other => Some(other?),
    };
    if let Some((plan, snapshot)) = &planned_now {
        holds_all(tx, plan, snapshot, domains)?;
    }
    if running.is_some()
        && let Some(waiting) = tx.change_in_slot(application, environment, Slot::Waiting)?
    {
        let fault = Fault::new(ErrorCode::Superseded, format!("replaced by {id} before it started"));
        let fault = serde_json::to_value(fault).unwrap_or_default();
        let (kind, from) = (waiting.kind, waiting.status);
        tx.end_change(waiting.id, kind, from, ChangeStatus::Cancelled, Some(&fault), now)?;
    }
    let timeout = asked.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS);
    tx.insert_change(&NewChange {
        environment: Some(environment),
        application: Some(application),
        slot: Some(if running.is_some() { Slot::Waiting } else { Slot::Running }),
        commit: commit.clone(),
        request: serde_json::to_value(&asked).unwrap_or_default(),
        timeout_at: running.is_none().then(|| now + timeout as i64 * 1_000_000),
        ..context.change(id, kind, actor, now)
    })?;
    let told =
        json!({ "kind": kind, "application": place.application.name, "environment": place.environment.name });
    Progress::new(tx, context, now).event("change.accepted", actor, Some(id), None, None, told)?;
    let Some((plan, snapshot)) = planned_now.filter(|_| running.is_none()) else {
        tx.wake();
        return Ok((id, None));
    };
    let asked = store(tx, context, id, kind, Some(Slot::Running), &plan, &snapshot, 1, actor, now)?;
    let goes_on = !asked && plan.operations.iter().any(|operation| operation.manager.is_some());
    let view = goes_on.then(|| {
        let mut view = planned(&plan, &snapshot, kind, place);
        view.id = Some(id);
        view.status = ChangeStatus::InProgress.to_string();
        view.commit = commit;
        view.actor = Some(actor.to_owned());
        let made = view.resources.iter_mut().filter(|item| item.phase.is_none());
        made.for_each(|item| item.phase = Some(Phase::Pending));
        let now = Some(Time(now));
        (view.created_at, view.started_at, view.updated_at) = (now, now, now);
        view
    });
    Ok((id, view))
}

/// Writes the plan of a pending change and starts it; tells whether somebody has to agree to some of it.
#[allow(clippy::too_many_arguments, reason = "shared by accepting and planning again")]
pub(crate) fn store(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ChangeId,
    kind: ChangeKind,
    slot: Option<Slot>,
    plan: &Plan,
    snapshot: &Snapshot,
    plan_number: i64,
    actor: &str,
    now: i64,
) -> Result<bool> {
    let storing = Storing { context, kind, change: id, plan_number, actor: actor.to_owned(), now };
    storing.effects(tx, plan, snapshot)?;
    let releases = plan.effects.iter().filter(|effect| matches!(effect, Effect::Leave { .. })).count() as i64;
    let operations = plan.operations.len() as i64;
    let (from, to) = (ChangeStatus::Pending, ChangeStatus::InProgress);
    let document = plan_document(plan);
    tx.start_change(id, from, to, slot, plan_number, &document, operations, releases, now)?;
    let terms = storing.operations(tx, plan, snapshot)?;
    if operations == 0 {
        return Progress::new(tx, context, now).end_change(id).map(|()| false);
    }
    storing.idle(tx, plan)?;
    if let Some(terms) = &terms {
        ask(tx, context, id, terms, actor, now)?;
    }
    Ok(terms.is_some())
}

/// One use case for promotion and retry: the change is planned on the world as it is now.
fn replan(tx: &mut Tx<'_>, context: &Context, id: ChangeId, domains: &mut Domains) -> Result<()> {
    let now = context.now();
    let Some(change) = tx.change(id)? else {
        return Ok(());
    };
    let asked: Asked = serde_json::from_value(tx.change_request(&change)?).unwrap_or_default();
    if asked.by_hand.is_some() {
        return replan_by_hand(tx, context, &change, &asked, domains, now);
    }
    if !matches!(change.kind, ChangeKind::Deploy | ChangeKind::Destroy) {
        return Ok(());
    }
    let (Some(application), Some(environment)) = (change.application, change.environment) else {
        return Ok(());
    };
    let place = place_of(tx, context, application, environment)?;
    let manifest = asked.manifest.as_deref().map(|text| parse_manifest(text, asked.strict)).transpose()?;
    match &manifest {
        Some(manifest) => {
            domains.extend(wide_domains(context, manifest));
            lock_known(tx, domains, place.environment.domain)?;
        }
        None => lock_for(tx, &place, domains)?,
    }
    // Locked: look again, somebody may have been first.
    let Some(change) = tx.lock_change(id)? else {
        return Ok(());
    };
    let taken =
        tx.change_in_slot(application, environment, Slot::Running)?.is_some_and(|running| running.id != id);
    if change.status != ChangeStatus::Pending || taken {
        return Ok(());
    }
    let intent = match &manifest {
        Some(manifest) => Intent::Deploy { manifest, image: asked.image.as_deref() },
        None => Intent::Destroy,
    };
    let (plan, snapshot) = plan_now(tx, context, &place, &intent, Purpose::Store)?;
    holds_all(tx, &plan, &snapshot, domains)?;
    tx.set_timeout(id, now + asked.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS) as i64 * 1_000_000)?;
    let number = change.plan_number + 1;
    store(tx, context, id, change.kind, Some(Slot::Running), &plan, &snapshot, number, &change.actor, now)
        .map(drop)
}

fn replan_by_hand(
    tx: &mut Tx<'_>,
    context: &Context,
    change: &ChangeRow,
    asked: &Asked,
    domains: &mut Domains,
    now: i64,
) -> Result<()> {
    let (Some(by_hand), Some(environment)) = (&asked.by_hand, change.environment) else { return Ok(()) };
    let missing = || conductor_store::Error::Corrupt("a change of nowhere".into());
    let place = nobody(tx.environment(environment)?.ok_or_else(missing)?);
    if let ByHand::Teardown { .. } = by_hand {
        domains.extend(tx.domains_in(environment)?);
    }
    lock_known(tx, domains, place.environment.domain)?;
    let Some(change) = tx.lock_change(change.id)?.filter(|change| change.status == ChangeStatus::Pending)
    else {
        return Ok(());
    };
    let owned = by_hand.owned(tx, context, Some(change.id))?;
    let (plan, snapshot) = plan_now(tx, context, &place, &owned.intent(), Purpose::Store)?;
    holds_all(tx, &plan, &snapshot, domains)?;
    tx.set_timeout(change.id, now + DEFAULT_TIMEOUT_SECONDS as i64 * 1_000_000)?;
    let (kind, number) = (change.kind, change.plan_number + 1);
    store(tx, context, change.id, kind, None, &plan, &snapshot, number, &change.actor, now).map(drop)
}

fn place_of(
    tx: &mut Tx<'_>,
    context: &Context,
    application: ApplicationId,
    environment: conductor_domain::ids::EnvironmentId,
) -> Result<Place> {
    let missing = || conductor_store::Error::Corrupt("a change of nothing".into());
    let applications = tx.applications(context.organisation)?;
    Ok(Place {
        environment: tx.environment(environment)?.ok_or_else(missing)?,
        application: applications.into_iter().find(|row| row.id == application).ok_or_else(missing)?,
    })
}

/// Cancels on request, or because time is up.
pub(crate) fn stop_change(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ChangeId,
    rollback: bool,
    actor: &str,
    why: Option<Fault>,
    now: i64,
) -> Result<()> {
    let before = change(tx, context, id)?;
    if let Some(environment) = before.environment {
        let place = tx.environment(environment)?;
        if let Some(place) = place {
            tx.lock_domain(place.domain)?;
        }
    }
    let open = tx.open_operations_of(id)?;
    for row in &open {
        tx.lock_operation(row.id)?;
    }
    let Some(change) = tx.lock_change(id)? else {
        return Ok(());
    };
    if change.status.is_over() {
        return Err(refuse(ErrorCode::Conflict, format!("{id} is {} already", change.status)));
    }
    tx.request_cancel(id, rollback, now)?;
    let fault = why.unwrap_or_else(|| Fault::new(ErrorCode::Cancelled, format!("cancelled by {actor}")));
    tx.set_change_error(id, &serde_json::to_value(&fault).unwrap_or_default())?;
    let terms = terms_of(tx, id)?;
    let (handed, heirs) = hand_over(tx, id, &open)?;
    inherit(tx, context, terms, &heirs, now)?;
    tx.ask_to_stop(id, now)?;
    let mut progress = Progress::new(tx, context, now);
    progress.handed(id, handed)?;
    progress.event(
        "change.cancel_requested",
        actor,
        Some(id),
        None,
        None,
        json!({ "rollback": rollback }),
    )?;
    for row in open {
        let row = progress.tx.operation(row.id)?;
        let mine = row.filter(|row| row.change == id);
        if let Some(row) =
            mine.filter(|row| !row.status.is_over() && row.status != OperationStatus::InProgress)
        {
            progress.cancel(&row, &fault, false)?;
        }
    }
    progress.settle()?;
    if change.status == ChangeStatus::Pending {
        Progress::new(tx, context, now).end_change(id)?;
    }
    tx.wake();
    Ok(())
}

/// Work that another change waits for is that change's from here on, with what has to come before it.
fn hand_over(tx: &mut Tx<'_>, id: ChangeId, open: &[OperationRow]) -> Result<(i64, BTreeSet<ChangeId>)> {
    let mut to: BTreeMap<OperationId, ChangeId> = BTreeMap::new();
    for row in open {
        if let Some(resource) = row.resource
            && let Some(heir) = tx.change_waiting_for(resource, id)?
        {
            to.insert(row.id, heir);
        }
    }
    let mut pending: Vec<(OperationId, ChangeId)> = to.iter().map(|(op, heir)| (*op, *heir)).collect();
    while let Some((operation, heir)) = pending.pop() {
        for before in tx.open_predecessors_of(operation)? {
            if before.change == id && !before.status.is_over() && !to.contains_key(&before.id) {
                to.insert(before.id, heir);
                pending.push((before.id, heir));
            }
        }
    }
    for (operation, heir) in &to {
        tx.hand_operation(*operation, id, *heir)?;
    }
    Ok((to.len() as i64, to.into_values().collect()))
}

/// A plan as it is shown when nothing is stored.
pub(crate) fn planned(plan: &Plan, snapshot: &Snapshot, kind: ChangeKind, place: &Place) -> Deployment {
    let items = |items: &[conductor_domain::plan::Item]| {
        items
            .iter()
            .map(|item| PlanItem {
                requirement: item.requirement.clone(),
                resource: item.resource,
                name: item.name.clone(),
                action: item.action,
                phase: snapshot
                    .resources
                    .get(&item.resource)
                    .map(|resource| Phase::of(resource.state, resource.status)),
                reason: item.reason.clone(),
                candidates: item.candidates.clone(),
                other_candidates: item.other_candidates,
                proposed: None,
            })
            .collect()
    };
    Deployment {
        id: None,
        kind,
        status: "planned".into(),
        application: Some(place.application.name.clone()),
        environment: Some(place.environment.name.clone()),
        resources: items(&plan.items),
        removals: items(&plan.removals),
        warnings: plan.warnings.clone(),
        error: None,
        waiting_for: None,
        proposed: None,
        commit: None,
        actor: None,
        created_at: None,
        started_at: None,
        completed_at: None,
        updated_at: None,
        cancel_requested_at: None,
    }
}
