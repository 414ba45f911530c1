//! From rows to the documents people see.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use conductor_api::types::{
    Application, Consumer, Deployment, Environment, Event, Operation, Organisation, OutputsByRequirement,
    Page, PlanItem, Resource, Rule, Template, Time, WorkerInfo,
};
use conductor_domain::{
    ids::{ChangeId, EventId, OperationId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, OperationStatus, Phase, State, Status, available_actions},
    work::Level,
};
use conductor_store::{
    Result, Tx,
    changes::{ChangeFilter, ChangeRow},
    consumers::ConsumerRow,
    operations::{OperationFilter, OperationRow},
    principals::{EventRow, REQUEST_ID},
    resources::{ResourceFilter, ResourceRow},
    sight::Sight,
};
use serde_json::{Map, Value};

use crate::{
    Context, Engine,
    changes::change,
    metrics::worker_state,
    planning::load_rules,
    queues::waits_for,
    refusal::{not_found, refuse},
    states::state_locations,
    steps::open_outputs,
    templates::open_config,
};

const PAGE: i64 = 50;

/// What a list is narrowed to; names, as people write them.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub environment: Option<String>,
    pub application: Option<String>,
    pub kind: Option<String>,
    pub class: Option<String>,
    pub phase: Option<Phase>,
    pub status: Option<String>,
    pub template: Option<String>,
    pub deployment: Option<ChangeId>,
    pub resource: Option<ResourceId>,
    pub owner: Option<String>,
    pub team: Option<String>,
    pub labels: Vec<(String, String)>,
    pub limit: Option<i64>,
    pub cursor: Option<String>,
    /// What whoever asks may see.
    pub sight: Sight,
}

impl Query {
    fn limit(&self) -> i64 {
        self.limit.unwrap_or(PAGE).clamp(1, 200)
    }

    fn cursor<T: std::str::FromStr>(&self) -> Result<Option<T>> {
        let parsed = self.cursor.as_deref().map(str::parse).transpose();
        parsed
            .map_err(|_| refuse(conductor_domain::lifecycle::ErrorCode::Invalid, "the cursor does not parse"))
    }
}

#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    pub after: i64,
    pub operation: Option<OperationId>,
    pub resource: Option<ResourceId>,
    pub level: Option<Level>,
    pub since: Option<i64>,
}

fn paged<T, K: ToString>(mut items: Vec<T>, limit: i64, key: impl Fn(&T) -> K) -> Page<T> {
    let more = items.len() as i64 > limit;
    items.truncate(limit as usize);
    let next_cursor = if more { items.last().map(|item| key(item).to_string()) } else { None };
    Page { items, next_cursor }
}

/// A change with its plan, and where its resources stand now.
pub(crate) fn deployment(tx: &mut Tx<'_>, context: &Context, id: ChangeId) -> Result<Deployment> {
    let row = change(tx, context, id)?;
    Ok(deployments(tx, vec![row])?.remove(0))
}

fn deployments(tx: &mut Tx<'_>, rows: Vec<ChangeRow>) -> Result<Vec<Deployment>> {
    let mut ids: BTreeSet<ResourceId> = BTreeSet::new();
    let mut plans = Vec::with_capacity(rows.len());
    for row in &rows {
        let read = |name: &str| -> Vec<conductor_domain::plan::Item> {
            let items = row.plan.as_ref().and_then(|plan| plan.get(name)).cloned();
            items.and_then(|items| serde_json::from_value(items).ok()).unwrap_or_default()
        };
        let (items, removals) = (read("items"), read("removals"));
        ids.extend(items.iter().chain(&removals).map(|item| item.resource));
        plans.push((items, removals));
    }
    let phases: BTreeMap<ResourceId, Phase> = tx
        .resource_phases(&ids)?
        .into_iter()
        .map(|(id, state, status)| (id, Phase::of(state, status)))
        .collect();
    let view = |items: Vec<conductor_domain::plan::Item>, answers: Option<&Value>| {
        items
            .into_iter()
            .map(|item| PlanItem {
                proposed: answers.and_then(|answers| answers.get(item.resource.to_string())).cloned(),
                phase: phases.get(&item.resource).copied(),
                requirement: item.requirement,
                resource: item.resource,
                name: item.name,
                action: item.action,
                reason: item.reason,
                candidates: item.candidates,
                other_candidates: item.other_candidates,
            })
            .collect::<Vec<_>>()
    };
    let mut views = Vec::with_capacity(rows.len());
    for (row, (items, removals)) in rows.into_iter().zip(plans) {
        let waiting_for = match (row.status, row.application, row.environment) {
            (ChangeStatus::Pending, Some(application), Some(environment)) => {
                let running =
                    tx.change_in_slot(application, environment, conductor_store::changes::Slot::Running)?;
                running.map(|running| format!("{} of the same application to end", running.id))
            }
            (ChangeStatus::ApprovalPending, ..) => tx.pending_approval_of(row.id)?.map(|approval| {
                let votes = if approval.approvers == 1 {
                    String::new()
                } else {
                    format!(" ({} have to)", approval.approvers)
                };
                format!("somebody to agree{votes}: {}", approval.id)
            }),
            _ => None,
        };
        let answers = row.plan.as_ref().and_then(|plan| plan.get("answers"));
        let warnings = row.plan.as_ref().and_then(|plan| plan.get("warnings")).cloned();
        views.push(Deployment {
            id: Some(row.id),
            kind: row.kind,
            status: row.status.to_string(),
            application: row.application_name,
            environment: row.environment_name,
            resources: view(items, answers),
            removals: view(removals, None),
            warnings: warnings.and_then(|warnings| serde_json::from_value(warnings).ok()).unwrap_or_default(),
            error: row.error.and_then(|error| serde_json::from_value(error).ok()),
            waiting_for,
            proposed: match answers.and_then(Value::as_object) {
                Some(answers) => answers.values().next().filter(|_| answers.len() == 1).cloned(),
                // As it was kept by an earlier release.
                None => row.plan.as_ref().and_then(|plan| plan.get("proposed")).cloned(),
            },
            commit: row.commit,
            actor: Some(row.actor),
            created_at: Some(Time(row.created_at)),
            started_at: row.started_at.map(Time),
            completed_at: row.completed_at.map(Time),
            updated_at: Some(Time(row.updated_at)),
            cancel_requested_at: row.cancel_requested_at.map(Time),
        });
    }
    Ok(views)
}

fn operation_view(tx: &mut Tx<'_>, context: &Context, row: OperationRow) -> Result<Operation> {
    let resource_name = match row.resource {
        Some(id) => tx.resource(id)?.map(|resource| resource.name),
        None => None,
    };
    let waiting_for = match row.status {
        OperationStatus::Blocked => {
            let mut reasons = Vec::new();
            for before in tx.open_predecessors_of(row.id)? {
                let name = match before.resource {
                    Some(id) => {
                        tx.resource(id)?.map_or_else(|| id.to_string(), |r| format!("{} ({id})", r.name))
                    }
                    None => before.id.to_string(),
                };
                reasons.push(format!("{} of {name}", before.kind));
            }
            for (resource, until) in tx.waits_of(row.id)? {
                let name = tx.resource(resource)?.map_or_else(String::new, |r| r.name);
                reasons.push(format!("{name} ({resource}) to be {until}"));
            }
            Some(reasons.join(", "))
        }
        OperationStatus::ApprovalPending => tx
            .pending_approval_of(row.change)?
            .map(|approval| format!("somebody to agree: `conductor approvals approve {}`", approval.id)),
        OperationStatus::Queued => Some(waits_for(tx, context, row.queue)?),
        _ => None,
    };
    Ok(Operation {
        id: row.id,
        kind: row.kind,
        resource: row.resource,
        resource_name,
        deployment: row.change,
        worker: row.worker,
        attempt: row.attempt,
        status: row.status,
        waiting_for,
        error: row.error.and_then(|error| serde_json::from_value(error).ok()),
        created_at: Time(row.created_at),
        started_at: row.started_at.map(Time),
        completed_at: row.completed_at.map(Time),
    })
}

/// A part of a worker's own description.
fn list<T: serde::de::DeserializeOwned + Default>(document: &Value, name: &str) -> T {
    serde_json::from_value(document[name].clone()).unwrap_or_default()
}

fn consumer_view(row: &ConsumerRow) -> Consumer {
    Consumer {
        application: row.application_name.clone(),
        environment: row.environment_name.clone(),
        requirement: row.requirement.clone(),
        deployment: row.change,
        since: Time(row.since),
        state: row.state.to_string(),
    }
}

/// What sealed values look like to those who may not see them.
fn masked(entries: Option<&Value>) -> Map<String, Value> {
    let entries = entries.and_then(Value::as_object).cloned().unwrap_or_default();
    let hide = |value: Value| {
        if conductor_store::is_sealed(&value) { Value::Null } else { value }
    };
    entries.into_iter().map(|(name, value)| (name, hide(value))).collect()
}

/// A config as it is shown: the password of an address `scheme://user:password@host` is not.
pub(crate) fn without_passwords(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(match text.split_once("://") {
            Some((scheme, rest)) => match rest.rsplit_once('@') {
                Some((user, host)) => {
                    format!(
                        "{scheme}://{}@{host}",
                        user.split_once(':').map_or(user.to_owned(), |(user, _)| format!("{user}:…"))
                    )
                }
                None => text,
            },
            None => text,
        }),
        Value::Array(items) => Value::Array(items.into_iter().map(without_passwords).collect()),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(name, value)| (name, without_passwords(value))).collect())
        }
        other => other,
    }
}

/// Symbols as people wrote them: `${res_….output}`.
fn readable(value: Value) -> Value {
    match value {
        Value::Object(entries) => match entries.get("$expr") {
            Some(Value::Array(parts)) if entries.len() == 1 => {
                let text = parts.iter().map(|part| match part {
                    Value::String(text) => text.clone(),
                    reference => {
                        let path: Vec<&str> = reference["path"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .filter_map(Value::as_str)
                            .collect();
                        format!(
                            "${{{}.{}}}",
                            reference["resource"].as_str().unwrap_or_default(),
                            path.join(".")
                        )
                    }
                });
                Value::String(text.collect())
            }
            _ => Value::Object(entries.into_iter().map(|(name, value)| (name, readable(value))).collect()),
        },
        Value::Array(items) => Value::Array(items.into_iter().map(readable).collect()),
        other => other,
    }
}

/// Parameters as everybody may see them.
pub(crate) fn shown_parameters(spec: Option<&Value>) -> Map<String, Value> {
    masked(spec).into_iter().map(|(name, value)| (name, readable(value))).collect()
}

/// A resource as people see it, where there is one.
pub(crate) fn resource(tx: &mut Tx<'_>, context: &Context, id: ResourceId) -> Result<Option<Resource>> {
    match tx.resource(id)?.filter(|row| row.is_on_record(context.organisation)) {
        Some(row) => Ok(resource_views(tx, context, vec![row])?.pop()),
        None => Ok(None),
    }
}

fn resource_views(tx: &mut Tx<'_>, context: &Context, rows: Vec<ResourceRow>) -> Result<Vec<Resource>> {
    let ids: BTreeSet<ResourceId> = rows.iter().map(|row| row.id).collect();
    let mut consumers: BTreeMap<ResourceId, Vec<Consumer>> = BTreeMap::new();
    for row in tx.consumers_of(&ids, 1000)? {
        consumers.entry(row.resource).or_default().push(consumer_view(&row));
    }
    let mut depends_on: BTreeMap<ResourceId, BTreeSet<ResourceId>> = BTreeMap::new();
    let mut parents: BTreeMap<ResourceId, Vec<ResourceId>> = BTreeMap::new();
    for row in tx.dependencies_of(&ids)? {
        if row.parent {
            parents.entry(row.resource).or_default().push(row.on);
        }
        depends_on.entry(row.resource).or_default().insert(row.on);
    }
    let mut dependents: BTreeMap<ResourceId, BTreeSet<ResourceId>> = BTreeMap::new();
    for row in tx.dependents_of(&ids)?.into_iter().filter(|row| !row.workload) {
        dependents.entry(row.on).or_default().insert(row.resource);
    }
    let mut locations = state_locations(tx, &ids)?;
    let mut views = Vec::with_capacity(rows.len());
    for row in rows {
        let version = context.templates.get(tx, row.version, None)?;
        let parameters = shown_parameters(Some(&row.spec));
        let facts = crate::hand::facts_of(&row);
        views.push(Resource {
            id: row.id,
            name: row.name,
            kind: row.key.kind,
            class: row.key.class,
            scope: row.domain_kind,
            sharing: row.key.tag.as_str().to_owned(),
            organisation: context.organisation_name.clone(),
            environment: row.environment_name,
            template: version.name.clone(),
            template_version: version.version.to_string(),
            state: row.state,
            status: row.status,
            phase: Phase::of(row.state, row.status),
            message: row.message,
            parameters,
            outputs: masked(row.outputs.as_ref()),
            consumers: consumers.remove(&row.id).unwrap_or_default(),
            depends_on: depends_on.remove(&row.id).unwrap_or_default().into_iter().collect(),
            dependents: dependents.remove(&row.id).unwrap_or_default().into_iter().collect(),
            max_consumers: row.max_consumers,
            pool: row.pool,
            kept_by: row.kept_by.to_string(),
            destroy_after: row.destroy_after.filter(|_| row.state == State::Destroy).map(Time),
            protected: row.protected,
            available_actions: actions(row.state, row.status),
            parents: parents.remove(&row.id).unwrap_or_default(),
            facts,
            observed: observed(row.observed_at, row.drift.as_ref()),
            state_location: locations.remove(&row.id),
            generation: row.generation,
            observed_generation: row.observed_generation,
            external_id: row.external_id,
            error: row.error.and_then(|error| serde_json::from_value(error).ok()),
            created_by: row.created_by,
            created_at: Time(row.created_at),
            updated_at: Time(row.updated_at),
        });
    }
    Ok(views)
}

fn actions(state: State, status: Status) -> Vec<String> {
    available_actions(state, status).iter().map(|action| (*action).to_owned()).collect()
}

/// What is said of a resource, as it stands in its record.
fn said(query: &Query) -> Vec<String> {
    let pair = |key: &str, value: &str| format!("{}:{}", Value::from(key), Value::from(value));
    let owner = query.owner.as_ref().map(|owner| pair("owner", owner));
    let team = query.team.as_ref().map(|team| pair("team", team));
    let labels = query.labels.iter().map(|(key, value)| pair(key, value));
    owner.into_iter().chain(team).chain(labels).collect()
}

/// When it was last looked at, and what was not as recorded.
fn observed(at: Option<i64>, drift: Option<&Value>) -> Option<Value> {
    let at = at?;
    let mut attributes = Map::new();
    for attribute in drift.and_then(|drift| drift["attributes"].as_array()).into_iter().flatten() {
        let actual = &attribute["actual"];
        let actual = if conductor_store::is_sealed(actual) { Value::Null } else { actual.clone() };
        attributes.insert(attribute["path"].as_str().unwrap_or_default().to_owned(), actual);
    }
    Some(
        serde_json::json!({ "at": Time(at), "attributes": attributes, "drift": drift.map(|drift| &drift["kind"]) }),
    )
}

/// The states and statuses that show as a phase.
fn of_phase(phase: Phase) -> (Option<State>, Vec<Status>) {
    let fitting: Vec<(State, Status)> = State::ALL
        .iter()
        .flat_map(|state| Status::ALL.iter().map(move |status| (*state, *status)))
        .filter(|(state, status)| Phase::of(*state, *status) == phase)
        .collect();
    let state =
        fitting.first().map(|(state, _)| *state).filter(|first| fitting.iter().all(|(s, _)| s == first));
    let statuses: BTreeSet<Status> = fitting.iter().map(|(_, status)| *status).collect();
    (state, statuses.into_iter().collect())
}

impl Engine {
    pub async fn deployment(&self, id: ChangeId) -> Result<Deployment> {
        let context = self.context.clone();
        self.db.read(move |tx| deployment(tx, &context, id)).await
    }

    /// As [`Engine::deployment`], once it moved on from `seen`, is over, or `wait` has passed.
    pub async fn await_deployment(
        &self,
        id: ChangeId,
        seen: Option<&str>,
        wait: Duration,
    ) -> Result<Deployment> {
        let until = Instant::now() + wait;
        let mut watch = self.db.watch();
        loop {
            watch.seen();
            let view = self.deployment(id).await?;
            let stamp = view.updated_at.map(|at| at.to_string());
            let left = until.saturating_duration_since(Instant::now());
            if view.is_over() || left.is_zero() || seen.is_none_or(|seen| Some(seen) != stamp.as_deref()) {
                return Ok(view);
            }
            watch.changed(left.min(Duration::from_secs(2))).await;
        }
    }

    pub async fn deployments(&self, query: Query) -> Result<Page<Deployment>> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let limit = query.limit();
                let filter = ChangeFilter {
                    kinds: vec![
                        ChangeKind::Deploy,
                        ChangeKind::Destroy,
                        ChangeKind::Teardown,
                        ChangeKind::Rollback,
                        ChangeKind::Collect,
                        ChangeKind::Pool,
                        ChangeKind::Resource,
                        ChangeKind::Proposal,
                        ChangeKind::Repair,
                        ChangeKind::Adopt,
                        ChangeKind::Upgrade,
                        ChangeKind::Import,
                    ],
                    environment: environment_id(tx, &context, &query)?,
                    application: application_id(tx, &context, &query)?,
                    status: parse_word(&query)?,
                    before: query.cursor()?,
                    sight: query.sight.clone(),
                    limit: limit + 1,
                };
                let rows = tx.changes(context.organisation, &filter)?;
                let page = paged(rows, limit, |row| row.id);
                Ok(Page { items: deployments(tx, page.items)?, next_cursor: page.next_cursor })
            })
            .await
    }

    /// Changes of this one's making that are still open (things nobody uses any more).
    pub async fn follow_ups(&self, id: ChangeId) -> Result<Vec<ChangeId>> {
        self.db.read(move |tx| tx.open_children(id)).await
    }

    pub async fn operation(&self, id: OperationId) -> Result<Operation> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let row = tx.operation(id)?.filter(|row| row.organisation == context.organisation);
                let row = row.ok_or_else(|| not_found("operation", &id.to_string(), &[]))?;
                operation_view(tx, &context, row)
            })
            .await
    }

    pub async fn operations(&self, query: Query) -> Result<Page<Operation>> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let limit = query.limit();
                let filter = OperationFilter {
                    change: query.deployment,
                    resource: query.resource,
                    status: parse_word(&query)?,
                    before: query.cursor()?,
                    sight: query.sight.clone(),
                    limit: limit + 1,
                };
                let rows = tx.operations(context.organisation, &filter)?;
                let page = paged(rows, limit, |row| row.id);
                let items = page.items.into_iter().map(|row| operation_view(tx, &context, row));
                let items = items.collect::<Result<_>>()?;
                Ok(Page { items, next_cursor: page.next_cursor })
            })
            .await
    }

    pub async fn resource(&self, id: ResourceId) -> Result<Resource> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                resource(tx, &context, id)?.ok_or_else(|| not_found("resource", &id.to_string(), &[]))
            })
            .await
    }

    pub async fn resources(&self, query: Query) -> Result<Page<Resource>> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let limit = query.limit();
                let (state, statuses) = match query.phase {
                    Some(phase) => of_phase(phase),
                    None => (None, parse_word(&query)?.into_iter().collect()),
                };
                let filter = ResourceFilter {
                    facts: said(&query),
                    environment: environment_id(tx, &context, &query)?,
                    application: application_id(tx, &context, &query)?,
                    kind: query.kind.clone(),
                    class: query.class.clone(),
                    template: query.template.clone(),
                    state,
                    statuses,
                    hide_destroyed: false,
                    after: query.cursor()?,
                    sight: query.sight.clone(),
                    limit: limit + 1,
                };
                let rows = tx.resources(context.organisation, &filter)?;
                let page = paged(rows, limit, |row| row.id);
                Ok(Page { items: resource_views(tx, &context, page.items)?, next_cursor: page.next_cursor })
            })
            .await
    }

    /// What an application got, by requirement; sensitive values only when revealed.
    pub async fn outputs(
        &self,
        application: &str,
        environment: &str,
        reveal: bool,
    ) -> Result<OutputsByRequirement> {
        let context = self.context.clone();
        let query = Query {
            application: Some(application.to_owned()),
            environment: Some(environment.to_owned()),
            ..Query::default()
        };
        self.db
            .read(move |tx| {
                let environment = environment_id(tx, &context, &query)?;
                let application = application_id(tx, &context, &query)?;
                let (Some(environment), Some(application)) = (environment, application) else {
                    return Ok(OutputsByRequirement::new());
                };
                let mut outputs = OutputsByRequirement::new();
                for link in tx.uses_of(application, environment)? {
                    let Some(row) = tx.resource(link.resource)? else {
                        continue;
                    };
                    let values =
                        if reveal { open_outputs(tx, &row)?.0 } else { masked(row.outputs.as_ref()) };
                    outputs.insert(link.requirement, values);
                }
                Ok(outputs)
            })
            .await
    }

    pub async fn organisations(&self) -> Result<Vec<Organisation>> {
        let rows = self.db.read(|tx| tx.organisations()).await?;
        Ok(rows
            .into_iter()
            .map(|row| Organisation {
                id: row.id.to_string(),
                name: row.name,
                created_at: Time(row.created_at),
            })
            .collect())
    }

    pub async fn environments(&self) -> Result<Vec<Environment>> {
        let organisation = self.context.organisation;
        let rows = self.db.read(move |tx| tx.environments(organisation)).await?;
        Ok(rows
            .into_iter()
            .map(|row| Environment {
                id: row.id,
                name: row.name,
                kind: row.kind,
                created_at: Time(row.created_at),
                updated_at: Time(row.updated_at),
            })
            .collect())
    }

    pub async fn applications(&self) -> Result<Vec<Application>> {
        let organisation = self.context.organisation;
        let rows = self.db.read(move |tx| tx.applications(organisation)).await?;
        Ok(rows
            .into_iter()
            .map(|row| Application {
                id: row.id,
                repository: row.document.get("repository").and_then(Value::as_str).map(str::to_owned),
                name: row.name,
                document: row.document,
                created_at: Time(row.created_at),
            })
            .collect())
    }

    pub async fn templates(&self) -> Result<Vec<Template>> {
        let organisation = self.context.organisation;
        let part = |document: &Value, name: &str| document.get(name).cloned().unwrap_or_default();
        self.db
            .read(move |tx| {
                let rows = tx.versions(organisation)?;
                rows.into_iter()
                    .map(|row| {
                        Ok(Template {
                            id: row.id.to_string(),
                            config: without_passwords(Value::Object(open_config(tx, &row)?)),
                            name: row.name,
                            kind: row.kind,
                            class: row.class,
                            version: row.version,
                            state: row.state,
                            manager: row.manager,
                            parameters: part(&row.document, "parameters"),
                            outputs: serde_json::from_value(part(&row.document, "outputs")).ok(),
                            content: row.content,
                            built_in: row.built_in,
                            created_at: Time(row.created_at),
                        })
                    })
                    .collect()
            })
            .await
    }

    pub async fn rules(&self) -> Result<Vec<Rule>> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let weights: BTreeMap<String, u32> = load_rules(tx, &context)?
                    .into_iter()
                    .map(|rule| (rule.name, rule.criteria.weight()))
                    .collect();
                let rows = tx.rules(context.organisation)?;
                Ok(rows
                    .into_iter()
                    .map(|row| Rule {
                        id: row.id.to_string(),
                        weight: weights.get(&row.name).copied().unwrap_or_default(),
                        name: row.name,
                        template: row.document["template"].as_str().unwrap_or_default().to_owned(),
                        criteria: row.document["match"].clone(),
                        created_at: Time(row.created_at),
                    })
                    .collect())
            })
            .await
    }

    pub async fn workers(&self) -> Result<Vec<WorkerInfo>> {
        let (organisation, now) = (self.context.organisation, self.context.now());
        let rows = self.db.read(move |tx| tx.workers(organisation)).await?;
        Ok(rows
            .into_iter()
            .map(|row| WorkerInfo {
                state: worker_state(now, &row).into(),
                id: row.id,
                name: row.name,
                managers: list(&row.document, "managers"),
                labels: list(&row.document, "labels"),
                networks: list(&row.document, "networks"),
                tools: list(&row.document, "tools"),
                isolation: list(&row.document, "isolation"),
                seen_at: Time(row.seen_at),
            })
            .collect())
    }

    pub async fn events(&self, query: Query) -> Result<Page<Event>> {
        let organisation = self.context.organisation;
        let limit = query.limit();
        let before: Option<EventId> = query.cursor()?;
        let rows = self
            .db
            .read(move |tx| {
                let (change, resource) = (query.deployment, query.resource);
                tx.events(organisation, change, resource, before, &query.sight, limit + 1)
            })
            .await?;
        let page = paged(rows, limit, |row| row.id);
        let items = page.items.into_iter().map(event_view).collect();
        Ok(Page { items, next_cursor: page.next_cursor })
    }
}

pub(crate) fn event_view(mut row: EventRow) -> Event {
    let request = row.document.as_object_mut().and_then(|entries| entries.remove(REQUEST_ID));
    Event {
        request_id: request.and_then(|id| id.as_str().map(str::to_owned)),
        id: row.id,
        kind: row.kind,
        actor: row.actor,
        deployment: row.change,
        resource: row.resource,
        operation: row.operation,
        data: row.document,
        at: Time(row.created_at),
    }
}

fn parse_word<T: std::str::FromStr<Err = conductor_domain::lifecycle::UnknownWord>>(
    query: &Query,
) -> Result<Option<T>> {
    let parsed = query.status.as_deref().map(str::parse::<T>).transpose();
    parsed.map_err(|error| refuse(conductor_domain::lifecycle::ErrorCode::Invalid, error.to_string()))
}

fn environment_id(
    tx: &mut Tx<'_>,
    context: &Context,
    query: &Query,
) -> Result<Option<conductor_domain::ids::EnvironmentId>> {
    let Some(name) = &query.environment else {
        return Ok(None);
    };
    if let Some(row) = tx.environment_by_name(context.organisation, name)? {
        return Ok(Some(row.id));
    }
    let known: Vec<String> = tx.environments(context.organisation)?.into_iter().map(|row| row.name).collect();
    Err(not_found("environment", name, &known))
}

fn application_id(
    tx: &mut Tx<'_>,
    context: &Context,
    query: &Query,
) -> Result<Option<conductor_domain::ids::ApplicationId>> {
    let Some(name) = &query.application else {
        return Ok(None);
    };
    if let Some(row) = tx.application_by_name(context.organisation, name)? {
        return Ok(Some(row.id));
    }
    let known: Vec<String> = tx.applications(context.organisation)?.into_iter().map(|row| row.name).collect();
    Err(not_found("application", name, &known))
}
