//! Loading what a plan looks at, and writing what it decided: always inside one transaction.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use conductor_domain::{
    catalogue::{Criteria, Rule, TemplateVersion},
    expr::{Params, params_from_json, params_to_json},
    ids::{ChangeId, DomainId, OperationId, ResourceId, TemplateVersionId},
    lifecycle::{OperationStatus, State, Status},
    plan::{
        ApplicationView, ConsumerView, Effect, EnvironmentView, Intent, Key, KeyTag, Plan, PlanError,
        ResourceView, Snapshot, Until, Want, plan,
    },
    score::{Manifest, Reference, Scope},
    workload,
};
use conductor_store::{
    Error, Owner, Result, Tx,
    catalogue::{ApplicationRow, EnvironmentRow, GLOBAL_DOMAIN},
    consumers::NewConsumer,
    operations::NewOperation,
    resources::{NewResourceRow, ResourceRow},
};
use serde_json::{Value, json};

use crate::{Context, progress::Progress, refusal};

/// Other consumers shown by name; the rest are counted.
const CONSUMERS_SHOWN: usize = 20;
const DEFAULT_RETRIES: i64 = 3;

/// Who is planned for.
pub(crate) struct Place {
    pub environment: EnvironmentRow,
    pub application: ApplicationRow,
}

/// The planning domains a Score file reaches into besides its environment's.
pub(crate) fn wide_domains(context: &Context, manifest: &Manifest) -> Vec<DomainId> {
    let scopes = manifest.resources.values().filter_map(|resource| match &resource.sharing.reference {
        Some(Reference::Shared { scope, .. }) => *scope,
        _ => resource.sharing.matching.as_ref().map(|matching| matching.scope),
    });
    let mut domains: Vec<DomainId> = scopes
        .filter_map(|scope| match scope {
            Scope::Environment => None,
            Scope::Organisation => Some(context.organisation_domain),
            Scope::Global => Some(GLOBAL_DOMAIN),
        })
        .collect();
    domains.sort_unstable();
    domains.dedup();
    domains
}

/// Plans on a fresh snapshot, loading more until it suffices.
pub(crate) fn plan_now(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    intent: &Intent<'_>,
) -> Result<(Plan, Snapshot)> {
    let mut snapshot = load_snapshot(tx, context, place, intent)?;
    for _ in 0..16 {
        match plan(intent, &snapshot, context.ids.as_ref()) {
            Ok(plan) => return Ok((plan, snapshot)),
            Err(PlanError::Need(wants)) => load_wants(tx, context, &mut snapshot, &wants)?,
            Err(refused) => return Err(refusal::from_plan(refused)),
        }
    }
    Err(Error::Corrupt("planning never had enough".into()))
}

fn load_snapshot(tx: &mut Tx<'_>, context: &Context, place: &Place, intent: &Intent<'_>) -> Result<Snapshot> {
    let mut kinds: BTreeSet<&str> = BTreeSet::from([workload::TYPE]);
    let mut keys = Vec::new();
    let (environment, application) = (&place.environment, &place.application);
    if let Intent::Deploy { manifest, .. } = intent {
        kinds.extend(manifest.resources.values().map(|resource| resource.kind.as_str()));
        keys = likely_keys(manifest, place);
    }
    keys.push(Key {
        domain: environment.domain,
        kind: workload::TYPE.into(),
        class: "default".into(),
        tag: KeyTag::Workload,
        name: application.id.to_string(),
    });
    let shelf = context.templates.shelf(tx, context)?;
    let heads = &shelf.heads;
    let mut versions = BTreeMap::new();
    for head in heads.iter().filter(|head| kinds.contains(head.kind.as_str())) {
        if !head.built_in || Some(head.id) == context.default_workload {
            versions.insert(head.id, context.templates.get(tx, head.id, Some(&head.state))?);
        }
    }
    let types: BTreeSet<String> = heads
        .iter()
        .filter(|head| !head.built_in && head.state != "disabled")
        .map(|head| head.kind.clone())
        .collect();
    let labels = application.document.get("labels").cloned().unwrap_or_else(|| json!({}));
    let mut snapshot = Snapshot {
        environment: EnvironmentView {
            id: environment.id,
            name: environment.name.clone(),
            kind: environment.kind.clone(),
            domain: environment.domain,
        },
        organisation_domain: context.organisation_domain,
        global_domain: GLOBAL_DOMAIN,
        application: ApplicationView {
            id: application.id,
            name: application.name.clone(),
            labels: serde_json::from_value(labels).unwrap_or_default(),
        },
        versions,
        rules: shelf.rules.clone(),
        types: types.into_iter().collect(),
        default_workload: context.default_workload,
        resources: BTreeMap::new(),
        keys: BTreeMap::new(),
        missing: BTreeSet::new(),
        external: BTreeMap::new(),
    };
    let mine: BTreeSet<ResourceId> =
        tx.uses_of(application.id, environment.id)?.iter().map(|consumer| consumer.resource).collect();
    let rows = if mine.is_empty() { vec![] } else { tx.resources_by_id(&mine)? };
    load_keys(tx, context, &mut snapshot, &keys, rows)?;
    Ok(snapshot)
}

/// Keys that can be told from the file alone, so that they are looked up together.
fn likely_keys(manifest: &Manifest, place: &Place) -> Vec<Key> {
    let keys = manifest.resources.iter().map(|(requirement, resource)| {
        let (tag, name) = match &resource.id {
            Some(id) => (KeyTag::Shared, id.clone()),
            None => (KeyTag::Dedicated, format!("{}/{requirement}", place.application.id)),
        };
        Key {
            domain: place.environment.domain,
            kind: resource.kind.clone(),
            class: resource.class.clone().unwrap_or_else(|| "default".into()),
            tag,
            name,
        }
    });
    keys.collect()
}

pub(crate) fn load_rules(tx: &mut Tx<'_>, context: &Context) -> Result<Vec<Rule>> {
    tx.rules(context.organisation)?
        .into_iter()
        .map(|row| {
            let corrupt = || Error::Corrupt(format!("rule {}", row.name));
            let criteria: Criteria =
                serde_json::from_value(row.document.get("match").cloned().unwrap_or_default())
                    .map_err(|_| corrupt())?;
            let target = row.document.get("template").and_then(Value::as_str).ok_or_else(corrupt)?;
            let (template, version) = match target.split_once('@') {
                Some((name, version)) => (name, Some(version.parse().map_err(|_| corrupt())?)),
                None => (target, None),
            };
            Ok(Rule { name: row.name.clone(), template: template.to_owned(), version, criteria })
        })
        .collect()
}

fn load_wants(tx: &mut Tx<'_>, context: &Context, snapshot: &mut Snapshot, wants: &[Want]) -> Result<()> {
    let mut ids = BTreeSet::new();
    let mut keys = Vec::new();
    for want in wants {
        match want {
            Want::Key(key) => keys.push(key.clone()),
            Want::Resource(id) => drop(ids.insert(*id)),
            Want::External(text) => {
                let found = tx.resource_by_external_id(context.organisation, text)?;
                snapshot.external.insert(text.clone(), found);
                ids.extend(found);
            }
        }
    }
    let rows: Vec<ResourceRow> = tx
        .resources_by_id(&ids)?
        .into_iter()
        .filter(|row| row.organisation == context.organisation && !row.workload)
        .collect();
    snapshot.missing.extend(ids.iter().filter(|id| !rows.iter().any(|row| row.id == **id)));
    load_keys(tx, context, snapshot, &keys, rows)
}

fn load_keys(
    tx: &mut Tx<'_>,
    context: &Context,
    snapshot: &mut Snapshot,
    keys: &[Key],
    mut rows: Vec<ResourceRow>,
) -> Result<()> {
    let found = tx.resources_by_key(keys)?;
    for key in keys {
        snapshot.keys.insert(key.clone(), found.get(key).map(|row| row.id));
    }
    rows.extend(found.into_values().filter(|row| !snapshot.resources.contains_key(&row.id)));
    rows.sort_by_key(|row| row.id);
    rows.dedup_by_key(|row| row.id);
    load_views(tx, context, snapshot, rows)
}

fn load_views(
    tx: &mut Tx<'_>,
    context: &Context,
    snapshot: &mut Snapshot,
    rows: Vec<ResourceRow>,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids: BTreeSet<ResourceId> = rows.iter().map(|row| row.id).collect();
    let counts = tx.consumer_counts(&ids)?;
    let mut consumers: BTreeMap<ResourceId, Vec<ConsumerView>> = BTreeMap::new();
    let some = tx.consumers_of(&ids, CONSUMERS_SHOWN)?;
    let mine = tx.uses_of(snapshot.application.id, snapshot.environment.id)?;
    for row in some.into_iter().chain(mine).filter(|row| ids.contains(&row.resource)) {
        let view = ConsumerView {
            application: row.application,
            application_name: row.application_name,
            environment: row.environment,
            requirement: row.requirement,
            state: row.state,
        };
        let of = consumers.entry(row.resource).or_default();
        if !of.contains(&view) {
            of.push(view);
        }
    }
    let mut depends_on: BTreeMap<ResourceId, BTreeSet<ResourceId>> = BTreeMap::new();
    for row in tx.dependencies_of(&ids)? {
        depends_on.entry(row.resource).or_default().insert(row.on);
    }
    let mut dependents: BTreeMap<ResourceId, BTreeSet<ResourceId>> = BTreeMap::new();
    for row in tx.dependents_of(&ids)? {
        dependents.entry(row.on).or_default().insert(row.resource);
    }
    let mut open = tx.open_operations_on(&ids)?;
    for row in rows {
        let used = [Some(row.version), row.applied_version];
        for version in used.into_iter().flatten() {
            if let Entry::Vacant(entry) = snapshot.versions.entry(version) {
                entry.insert(context.templates.get(tx, version, None)?);
            }
        }
        let spec = open_spec(tx, &row, &row.spec)?;
        let applied = match (&row.applied_spec, row.applied_version) {
            (Some(applied), Some(version)) => Some((open_spec(tx, &row, applied)?, version)),
            _ => None,
        };
        snapshot.resources.insert(
            row.id,
            ResourceView {
                id: row.id,
                scope: match row.domain_kind.as_str() {
                    "global" => Scope::Global,
                    "organisation" => Scope::Organisation,
                    _ => Scope::Environment,
                },
                name: row.name,
                version: row.version,
                state: row.state,
                status: row.status,
                generation: row.generation,
                spec,
                applied,
                message: row.message,
                kept_by: row.kept_by,
                protected: row.protected,
                workload: row.workload,
                consumer_count: counts.get(&row.id).copied().unwrap_or(0),
                consumers: consumers.remove(&row.id).unwrap_or_default(),
                depends_on: depends_on.remove(&row.id).unwrap_or_default(),
                dependents: dependents.remove(&row.id).unwrap_or_default(),
                open_operation: open.remove(&row.id),
                attempted: row.fence > 0,
                key: row.key,
            },
        );
    }
    Ok(())
}

/// What is sealed in a spec: sensitive parameters by leaf, the workload whole.
fn seal_spec(
    tx: &Tx<'_>,
    context: &Context,
    id: ResourceId,
    version: &TemplateVersion,
    params: &Params,
) -> Result<Value> {
    let owner = Owner { organisation: context.organisation, kind: "spec", id: id.0.as_bytes() };
    let mut json = params_to_json(params);
    let mut sealed = version.schema.sensitive();
    if version.kind == workload::TYPE {
        sealed.insert("workload".to_owned());
    }
    if let Some(entries) = json.as_object_mut() {
        for (_, value) in entries.iter_mut().filter(|(name, _)| sealed.contains(*name)) {
            *value = tx.sealer().seal_leaf(owner, value)?;
        }
    }
    Ok(json)
}

pub(crate) fn open_spec(tx: &Tx<'_>, row: &ResourceRow, spec: &Value) -> Result<Params> {
    let owner = Owner { organisation: row.organisation, kind: "spec", id: row.id.0.as_bytes() };
    let mut spec = spec.clone();
    if let Some(entries) = spec.as_object_mut() {
        for value in entries.values_mut() {
            *value = tx.sealer().open_leaf(owner, value)?;
        }
    }
    Ok(params_from_json(&spec))
}

/// Writes a plan down: what it does to the record, then its operations. Returns how many are open.
pub(crate) struct Storing<'c> {
    pub context: &'c Context,
    pub change: ChangeId,
    pub plan_number: i64,
    pub actor: String,
    pub now: i64,
}

impl Storing<'_> {
    pub fn effects(&self, tx: &mut Tx<'_>, plan: &Plan, snapshot: &Snapshot) -> Result<()> {
        let made = self.create(tx, plan, snapshot)?;
        let (application, environment) = (snapshot.application.id, snapshot.environment.id);
        let mut joins = Vec::new();
        for effect in &plan.effects {
            match effect {
                Effect::Replaced { old, by } => tx.set_replaced(*old, *by)?,
                Effect::Depend { resource, on } => {
                    tx.set_dependencies(self.context.organisation, *resource, made.contains(resource), on)?;
                }
                Effect::Join { resource, requirement, params } => {
                    let by = match snapshot.resources.get(resource) {
                        Some(known) => known.version,
                        None => plan_version(plan, *resource)?,
                    };
                    let version = self.version(snapshot, by)?;
                    joins.push(NewConsumer {
                        organisation: self.context.organisation,
                        resource: *resource,
                        application,
                        environment,
                        requirement: requirement.clone(),
                        params: seal_spec(tx, self.context, *resource, &version, params)?,
                        change: self.change,
                        now: self.now,
                    });
                }
                Effect::Leave { resource, requirement } => {
                    tx.leave_consumer(*resource, application, environment, requirement, self.change)?;
                }
                Effect::Create(_) | Effect::Specify { .. } | Effect::Doom { .. } | Effect::Revive { .. } => {}
            }
        }
        tx.join_consumers(&joins)?;
        self.call_off(tx, plan)
    }

    fn version(&self, snapshot: &Snapshot, id: TemplateVersionId) -> Result<Arc<TemplateVersion>> {
        snapshot
            .versions
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::Corrupt("a plan without its template".into()))
    }

    /// Moves what is there out of the way, then makes what is new; returns what was made.
    fn create(&self, tx: &mut Tx<'_>, plan: &Plan, snapshot: &Snapshot) -> Result<BTreeSet<ResourceId>> {
        let (context, now) = (self.context, self.now);
        let mut rows = Vec::new();
        for effect in &plan.effects {
            match effect {
                Effect::Specify { resource, from, to, version, params, generation } => {
                    let by = self.version(snapshot, *version)?;
                    if let Some(Effect::Revive { operation, .. }) = plan.effects.iter().find(
                        |other| matches!(other, Effect::Revive { resource: revived, .. } if revived == resource),
                    ) {
                        Progress::new(tx, context, now).revive(*resource, *operation)?;
                    }
                    let spec = seal_spec(tx, context, *resource, &by, params)?;
                    tx.specify_resource(
                        *resource,
                        *from,
                        *to,
                        *version,
                        &spec,
                        *generation,
                        self.change,
                        now,
                    )?;
                    hold_unique(tx, context, *resource, &by, params)?;
                }
                Effect::Doom { resource, from } => {
                    tx.move_resource(*resource, *from, (State::Destroy, Status::Queued), None, now)?;
                }
                Effect::Revive { resource, operation } if !specifies(plan, *resource) => {
                    Progress::new(tx, context, now).revive(*resource, *operation)?;
                }
                Effect::Create(new) => {
                    let version = self.version(snapshot, new.version)?;
                    rows.push(NewResourceRow {
                        organisation: context.organisation,
                        environment: snapshot.environment.id,
                        new,
                        spec: seal_spec(tx, context, new.id, &version, &new.params)?,
                        change: self.change,
                        actor: &self.actor,
                        now,
                    });
                }
                _ => {}
            }
        }
        tx.insert_resources(&rows)?;
        for row in &rows {
            let version = self.version(snapshot, row.new.version)?;
            hold_unique(tx, context, row.new.id, &version, &row.new.params)?;
        }
        Ok(rows.iter().map(|row| row.new.id).collect())
    }

    /// The changes whose destructions were called off: settled once the new uses are on record.
    fn call_off(&self, tx: &mut Tx<'_>, plan: &Plan) -> Result<()> {
        let mut called_off = Vec::new();
        for effect in &plan.effects {
            if let Effect::Revive { operation, .. } = effect {
                called_off.extend(tx.operation(*operation)?);
            }
        }
        if called_off.is_empty() {
            return Ok(());
        }
        Progress::new(tx, self.context, self.now).called_off(&called_off)
    }

    pub fn operations(&self, tx: &mut Tx<'_>, plan: &Plan, snapshot: &Snapshot) -> Result<()> {
        let mut queues: BTreeMap<&str, i64> = BTreeMap::new();
        for operation in &plan.operations {
            if let Some(manager) = &operation.manager
                && !queues.contains_key(manager.as_str())
            {
                queues.insert(manager, self.context.templates.queue(tx, manager)?);
            }
        }
        let releasing = plan.effects.iter().any(|effect| matches!(effect, Effect::Leave { .. }));
        let mut rows = Vec::with_capacity(plan.operations.len());
        for operation in &plan.operations {
            let retries = operation
                .resource
                .and_then(|id| version_id(plan, snapshot, id))
                .and_then(|id| snapshot.versions.get(&id))
                .and_then(|version| version.config.get("retries").and_then(Value::as_i64))
                .unwrap_or(DEFAULT_RETRIES);
            rows.push(NewOperation {
                id: operation.id,
                organisation: self.context.organisation,
                change: self.change,
                plan_number: self.plan_number,
                resource: operation.resource,
                kind: operation.kind,
                generation: operation.generation,
                conditional: operation.conditional,
                releasing,
                queue: operation.manager.as_deref().map(|manager| queues[manager]),
                open_predecessors: (operation.after.len() + operation.waits.len()) as i64,
                retries,
                payload: None,
                now: self.now,
            });
        }
        tx.insert_operations(&rows)?;
        let edges: Vec<(OperationId, OperationId)> =
            plan.operations.iter().flat_map(|op| op.after.iter().map(|before| (op.id, *before))).collect();
        tx.insert_edges(&edges)?;
        for operation in &plan.operations {
            for wait in &operation.waits {
                if !tx.add_waiter(wait.resource, wait.until == Until::Gone)? {
                    return Err(Error::Moved("a resource somebody else was busy with".into()));
                }
                let until = if wait.until == Until::Gone { "gone" } else { "ready" };
                tx.insert_wait(wait.resource, operation.id, wait.generation, until)?;
            }
        }
        Ok(())
    }

    /// Operations with nothing before them and nothing to run are over at once.
    pub fn idle(&self, tx: &mut Tx<'_>, plan: &Plan) -> Result<()> {
        let idle: Vec<OperationId> = plan
            .operations
            .iter()
            .filter(|operation| {
                operation.manager.is_none() && operation.after.is_empty() && operation.waits.is_empty()
            })
            .map(|operation| operation.id)
            .collect();
        if idle.is_empty() {
            return Ok(());
        }
        let mut progress = Progress::new(tx, self.context, self.now);
        for id in idle {
            if let Some(row) = progress.tx.operation(id)?
                && row.status == OperationStatus::Blocked
            {
                progress.finish_idle(&row)?;
            }
        }
        progress.settle()
    }
}

/// Claims the values of parameters marked unique; taken by another, the plan is refused.
fn hold_unique(
    tx: &mut Tx<'_>,
    context: &Context,
    id: ResourceId,
    version: &TemplateVersion,
    params: &Params,
) -> Result<()> {
    let unique = version.schema.unique();
    if unique.is_empty() {
        return Ok(());
    }
    let mut values = Vec::new();
    for name in unique {
        let Some(value) = params.get(&name).and_then(conductor_domain::expr::Expr::known) else {
            continue;
        };
        let hash = tx.sealer().digest(value.to_string().as_bytes())?;
        if let Some(holder) = tx.unique_holder(version.template, &name, &hash, id)? {
            let holder = tx
                .resource(holder)?
                .map_or_else(|| holder.to_string(), |row| format!("{} ({holder})", row.name));
            let message =
                format!("`{name}` must be unique among {}, and {holder} has this value", version.name);
            return Err(refusal::refuse(conductor_domain::lifecycle::ErrorCode::Conflict, message));
        }
        values.push((name, hash));
    }
    tx.hold_unique(context.organisation, version.template, id, &values)
}

/// What an operation asks of a worker.
pub(crate) fn needs(manager: &str) -> String {
    json!({ "manager": manager }).to_string()
}

fn plan_version(plan: &Plan, id: ResourceId) -> Result<TemplateVersionId> {
    plan.effects
        .iter()
        .find_map(|effect| match effect {
            Effect::Create(new) if new.id == id => Some(new.version),
            _ => None,
        })
        .ok_or_else(|| Error::Corrupt("a consumer of nothing".into()))
}

fn version_id(plan: &Plan, snapshot: &Snapshot, id: ResourceId) -> Option<TemplateVersionId> {
    let specified = plan.effects.iter().find_map(|effect| match effect {
        Effect::Create(new) if new.id == id => Some(new.version),
        Effect::Specify { resource, version, .. } if *resource == id => Some(*version),
        _ => None,
    });
    specified.or_else(|| snapshot.resources.get(&id).map(|resource| resource.version))
}

fn specifies(plan: &Plan, id: ResourceId) -> bool {
    plan.effects.iter().any(|effect| matches!(effect, Effect::Specify { resource, .. } if *resource == id))
}

/// What is kept of a plan for people.
pub(crate) fn plan_document(plan: &Plan) -> Value {
    json!({ "items": plan.items, "removals": plan.removals, "warnings": plan.warnings })
}
