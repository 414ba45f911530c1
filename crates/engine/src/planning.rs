//! Loading what a plan looks at, and writing what it decided: always inside one transaction.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use conductor_domain::{
    approval::Terms,
    catalogue::{Criteria, Rule, TemplateVersion},
    expr::{Params, params_from_json, params_to_json},
    ids::{ChangeId, DomainId, OperationId, OrganisationId, ResourceId, TemplateVersionId},
    lifecycle::{ChangeKind, KeptBy, OperationStatus, State, Status},
    needs::Needs,
    plan::{
        ApplicationView, CANDIDATES_COUNTED, ConsumerView, Effect, EnvironmentView, Intent, Key, KeyTag,
        Plan, PlanError, PoolView, ResourceView, Rivals, Snapshot, Until, Want, plan,
    },
    score::{Manifest, Reference, Scope},
    workload,
};
use conductor_store::{
    Error, Owner, Result, Tx,
    catalogue::{ApplicationRow, EnvironmentRow, GLOBAL_DOMAIN},
    consumers::{ConsumerRow, NewConsumer},
    operations::NewOperation,
    resources::{NewResourceRow, ResourceRow},
};
use serde_json::{Value, json};

use crate::{
    Context,
    approvals::{Gatekeeper, policy_of},
    credentials::check_plan,
    matching,
    pools::PoolDefinition,
    progress::Progress,
    refusal,
    templates::Shelf,
};

/// Other consumers shown by name; the rest are counted.
const CONSUMERS_SHOWN: usize = 20;
const DEFAULT_RETRIES: i64 = 3;
/// Candidates that are told of although they were never in question.
const RIVALS_SHOWN: usize = 20;
/// Ready members of a pool that one plan looks at.
const READY_SEEN: usize = 64;

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
    match scopes.max() {
        None | Some(Scope::Environment) => vec![],
        Some(Scope::Organisation) => vec![context.organisation_domain],
        Some(Scope::Global) => vec![GLOBAL_DOMAIN, context.organisation_domain],
    }
}

/// The planning domains of everything a plan touches. Only their holder may carry it out.
pub(crate) fn touched_domains(plan: &Plan, snapshot: &Snapshot) -> BTreeSet<DomainId> {
    let resources = plan.effects.iter().filter_map(|effect| match effect {
        Effect::Create(_) => None,
        Effect::Specify { resource, .. }
        | Effect::Doom { resource, .. }
        | Effect::Revive { resource, .. }
        | Effect::Unbury { resource }
        | Effect::Claim { resource, .. }
        | Effect::Replaced { old: resource, .. }
        | Effect::Depend { resource, .. }
        | Effect::Join { resource, .. }
        | Effect::Leave { resource, .. }
        | Effect::Rename { resource, .. } => snapshot.resources.get(resource),
    });
    let made = plan.effects.iter().filter_map(|effect| match effect {
        Effect::Create(new) => Some(new.key.domain),
        _ => None,
    });
    resources.map(|resource| resource.key.domain).chain(made).collect()
}

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is going to be stored.
    Store,
    /// It is only shown, with every candidate.
    Show,
}

/// Plans on a fresh snapshot, loading more until it suffices.
pub(crate) fn plan_now(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    intent: &Intent<'_>,
    purpose: Purpose,
) -> Result<(Plan, Snapshot)> {
    let mut snapshot = load_snapshot(tx, context, place, intent, purpose)?;
    for _ in 0..64 {
        match plan(intent, &snapshot, context.ids.as_ref()) {
            Ok(plan) => {
                check_plan(tx, context, &plan, &snapshot)?;
                return Ok((plan, snapshot));
            }
            Err(PlanError::Need(wants)) => load_wants(tx, context, &mut snapshot, &wants, purpose)?,
            Err(refused) => return Err(refusal::from_plan(refused)),
        }
    }
    Err(Error::Corrupt("planning never had enough".into()))
}

fn load_snapshot(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    intent: &Intent<'_>,
    purpose: Purpose,
) -> Result<Snapshot> {
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
    let versions = load_versions(tx, context, &shelf, &kinds)?;
    let types: BTreeSet<String> = heads
        .iter()
        .filter(|head| !head.built_in && head.state != "disabled")
        .map(|head| head.kind.clone())
        .collect();
    let labels = |document: &Value| {
        serde_json::from_value(document.get("labels").cloned().unwrap_or_default()).unwrap_or_default()
    };
    let view = EnvironmentView {
        id: environment.id,
        name: environment.name.clone(),
        kind: environment.kind.clone(),
        labels: labels(&environment.document),
        domain: environment.domain,
        grace: grace(&environment.document),
        approval: policy_of(&environment.document),
    };
    let asker = ApplicationView {
        id: application.id,
        name: application.name.clone(),
        labels: labels(&application.document),
    };
    let mut snapshot = Snapshot {
        explain: purpose == Purpose::Show,
        everyone: matches!(intent, Intent::Teardown { .. }),
        versions,
        rules: shelf.rules.clone(),
        types: types.into_iter().collect(),
        default_workload: context.default_workload,
        kinds: kinds.into_iter().map(str::to_owned).collect(),
        pool_names: shelf.pools_in(environment.id).map(|pool| pool.name.clone()).collect(),
        ..Snapshot::new(view, context.organisation_domain, GLOBAL_DOMAIN, asker)
    };
    // Who asks by hand names the version; the rules are not asked.
    let named = match intent {
        Intent::Make(made) => Some(&made.version),
        Intent::Again(again) => Some(&again.version),
        _ => None,
    };
    snapshot.versions.extend(named.map(|version| (version.id, version.clone())));
    for pool in shelf.pools_in(environment.id).filter(|pool| pool.auto) {
        if let Some(view) = load_pool(tx, context, &mut snapshot, pool)? {
            snapshot.auto_pools.push(view);
        }
    }
    let mine: BTreeSet<ResourceId> = uses(tx, &snapshot)?.iter().map(|consumer| consumer.resource).collect();
    let mut rows = if mine.is_empty() { vec![] } else { tx.resources_by_id(&mine)? };
    if snapshot.everyone {
        rows.extend(tx.resources_in(environment.id)?);
    }
    load_keys(tx, context, &mut snapshot, &keys, rows)?;
    Ok(snapshot)
}

/// The uses that are planned for.
fn uses(tx: &mut Tx<'_>, snapshot: &Snapshot) -> Result<Vec<ConsumerRow>> {
    match snapshot.everyone {
        true => tx.uses_in(snapshot.environment.id),
        false => tx.uses_of(snapshot.application.id, snapshot.environment.id),
    }
}

/// How long a destruction waits for somebody to think again, as a document says it.
pub(crate) fn grace(document: &Value) -> i64 {
    let text = document.get("grace").and_then(Value::as_str);
    text.and_then(crate::templates::parse_duration).map_or(0, |milliseconds| milliseconds as i64 * 1_000)
}

/// Every version of the templates that make these types.
fn load_versions(
    tx: &mut Tx<'_>,
    context: &Context,
    shelf: &Shelf,
    kinds: &BTreeSet<&str>,
) -> Result<BTreeMap<TemplateVersionId, Arc<TemplateVersion>>> {
    let mut versions = BTreeMap::new();
    for head in shelf.heads.iter().filter(|head| kinds.contains(head.kind.as_str())) {
        if !head.built_in || Some(head.id) == context.default_workload {
            versions.insert(head.id, context.templates.get(tx, head.id, Some(&head.state))?);
        }
    }
    Ok(versions)
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

fn load_wants(
    tx: &mut Tx<'_>,
    context: &Context,
    snapshot: &mut Snapshot,
    wants: &[Want],
    purpose: Purpose,
) -> Result<()> {
    let shelf = context.templates.shelf(tx, context)?;
    let mut ids = BTreeSet::new();
    let mut keys = Vec::new();
    let mut found = BTreeSet::new();
    for want in wants {
        match want {
            Want::Key(key) => keys.push(key.clone()),
            Want::Resource(id) => drop(ids.insert(*id)),
            Want::External(text) => {
                let known = tx.resource_by_external_id(context.organisation, text)?;
                snapshot.external.insert(text.clone(), known);
                ids.extend(known);
            }
            Want::Type(kind) => {
                let kinds = BTreeSet::from([kind.as_str()]);
                snapshot.versions.extend(load_versions(tx, context, &shelf, &kinds)?);
                snapshot.kinds.insert(kind.clone());
            }
            Want::Match(query, count) => {
                let matches = matching::look(tx, context, snapshot, query, *count, purpose)?;
                found.extend(matches.ids.iter().copied());
                snapshot.matches.insert(query.clone(), matches);
            }
            Want::Rivals(scope, kind, class) => {
                // Wider ones are told of, too: that they are is why they do not serve.
                let domains = matching::domains_within(snapshot, Scope::Global);
                let (rivals, total) = tx.rivals(&domains, kind, class, RIVALS_SHOWN, CANDIDATES_COUNTED)?;
                found.extend(rivals.iter().copied());
                let about = (*scope, kind.clone(), class.clone());
                snapshot.rivals.insert(about, Rivals { ids: rivals, total });
            }
            Want::Pool(name) => {
                let pool = shelf.pools_in(snapshot.environment.id).find(|pool| pool.name == *name);
                let view = match pool {
                    Some(pool) => load_pool(tx, context, snapshot, pool)?,
                    None => None,
                };
                snapshot.pools.insert(name.clone(), view);
            }
            Want::Contracts(id) => drop(snapshot.contracts.insert(*id, tx.contracts_of(*id)?)),
        }
    }
    let mut rows: Vec<ResourceRow> = tx
        .resources_by_id(&ids)?
        .into_iter()
        .filter(|row| row.organisation == context.organisation && !row.workload)
        .collect();
    snapshot.missing.extend(ids.iter().filter(|id| !rows.iter().any(|row| row.id == **id)));
    found.retain(|id| !snapshot.resources.contains_key(id) && !ids.contains(id));
    rows.extend(tx.resources_by_id(&found)?);
    load_keys(tx, context, snapshot, &keys, rows)
}

/// A pool and its ready members. `None` when its template cannot be used.
fn load_pool(
    tx: &mut Tx<'_>,
    context: &Context,
    snapshot: &mut Snapshot,
    pool: &PoolDefinition,
) -> Result<Option<Arc<PoolView>>> {
    let shelf = context.templates.shelf(tx, context)?;
    let Some(version) = pool.version(tx, context, &shelf)? else { return Ok(None) };
    snapshot.versions.entry(version.id).or_insert_with(|| version.clone());
    let members = tx.members(pool.id)?;
    let ready: Vec<ResourceId> = members
        .iter()
        .filter(|member| pool.claimable(member))
        .map(|member| member.id)
        .take(READY_SEEN)
        .collect();
    let unknown = ready.iter().filter(|id| !snapshot.resources.contains_key(id)).copied().collect();
    let rows = tx.resources_by_id(&unknown)?;
    load_views(tx, context, snapshot, rows)?;
    Ok(Some(Arc::new(pool.view(version.id, members.len() as u64, ready))))
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
    let mine = uses(tx, snapshot)?;
    for row in some.into_iter().chain(mine).filter(|row| ids.contains(&row.resource)) {
        let is_mine =
            row.application == snapshot.application.id && row.environment == snapshot.environment.id;
        let asked = match is_mine {
            true => Some(open_params(tx, context.organisation, row.resource, &row.params)?),
            false => None,
        };
        let view = ConsumerView {
            asked,
            application: row.application,
            application_name: row.application_name,
            environment: row.environment,
            requirement: row.requirement,
            state: row.state,
            outputs: row.outputs,
        };
        let of = consumers.entry(row.resource).or_default();
        if !of.contains(&view) {
            of.push(view);
        }
    }
    let mut depends_on: BTreeMap<ResourceId, BTreeSet<ResourceId>> = BTreeMap::new();
    let mut own: BTreeMap<ResourceId, BTreeMap<String, ResourceId>> = BTreeMap::new();
    for row in tx.dependencies_of(&ids)? {
        depends_on.entry(row.resource).or_default().insert(row.on);
        if row.own {
            own.entry(row.resource).or_default().insert(row.requirement, row.on);
        }
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
                max_consumers: row.max_consumers,
                when: row.share_when,
                pool: row.pool,
                buried_until: row.destroy_after.filter(|_| row.status == Status::Pending),
                depends_on: depends_on.remove(&row.id).unwrap_or_default(),
                own: own.remove(&row.id).unwrap_or_default(),
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
pub(crate) fn seal_spec(
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
    open_params(tx, row.organisation, row.id, spec)
}

fn open_params(
    tx: &Tx<'_>,
    organisation: OrganisationId,
    resource: ResourceId,
    spec: &Value,
) -> Result<Params> {
    let owner = Owner { organisation, kind: "spec", id: resource.0.as_bytes() };
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
    pub kind: ChangeKind,
    pub change: ChangeId,
    pub plan_number: i64,
    pub actor: String,
    pub now: i64,
}

impl Storing<'_> {
    pub fn effects(&self, tx: &mut Tx<'_>, plan: &Plan, snapshot: &Snapshot) -> Result<()> {
        let (application, environment) = (snapshot.application.id, snapshot.environment.id);
        for effect in &plan.effects {
            if let Effect::Rename { resource, from, to, key, name } = effect {
                tx.rename_use(*resource, application, environment, from, to)?;
                tx.rename_resource(*resource, key.as_deref(), name, self.now)?;
                let told = json!({ "from": from, "to": to, "name": name });
                let change = Some(self.change);
                let mut progress = Progress::new(tx, self.context, self.now);
                progress.event("resource.renamed", &self.actor, change, Some(*resource), None, told)?;
            }
        }
        let made = self.create(tx, plan, snapshot)?;
        let mut joins = Vec::new();
        for effect in &plan.effects {
            match effect {
                Effect::Replaced { old, by } => tx.set_replaced(*old, *by)?,
                Effect::Depend { resource, on } => {
                    tx.set_dependencies(self.context.organisation, *resource, made.contains(resource), on)?;
                }
                Effect::Join { resource, requirement, params, outputs } => {
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
                        outputs: outputs.clone(),
                        change: self.change,
                        now: self.now,
                    });
                }
                Effect::Leave { resource, application, requirement } => {
                    tx.leave_consumer(*resource, *application, environment, requirement, self.change)?;
                }
                Effect::Claim { resource, kept_by } => tx.claim_member(*resource, *kept_by, self.now)?,
                Effect::Create(_)
                | Effect::Specify { .. }
                | Effect::Doom { .. }
                | Effect::Revive { .. }
                | Effect::Unbury { .. }
                | Effect::Rename { .. } => {}
            }
        }
        tx.join_consumers(&joins)?;
        matching::index(tx, self.context, plan, snapshot, self.now)?;
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
                Effect::Unbury { resource } => {
                    let unburied = tx.unbury_resource(*resource, now)?;
                    if !unburied {
                        return Err(Error::Moved("a resource that was put aside".into()));
                    }
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
            if let Some(pool) = row.new.pool.filter(|_| row.new.kept_by != KeptBy::Pool) {
                tx.count_on_demand(pool, now)?;
            }
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

    /// Returns on which terms somebody has to agree to some of them.
    pub fn operations(&self, tx: &mut Tx<'_>, plan: &Plan, snapshot: &Snapshot) -> Result<Option<Terms>> {
        let mut gatekeeper = Gatekeeper::new(tx, self.context, self.kind)?;
        gatekeeper.knows(snapshot.environment.id, &snapshot.environment.approval);
        let leaves = |effect: &Effect| matches!(effect, Effect::Leave { .. });
        let releasing = self.kind == ChangeKind::Teardown || plan.effects.iter().any(leaves);
        let mut rows = Vec::with_capacity(plan.operations.len());
        for operation in &plan.operations {
            let version = operation
                .resource
                .and_then(|id| version_id(plan, snapshot, id))
                .and_then(|id| snapshot.versions.get(&id));
            let queue = match &operation.manager {
                None => None,
                Some(manager) => {
                    let own = version.map(|version| version.needs.clone());
                    let needs = own.filter(|needs| needs.manager == *manager);
                    let needs = needs.unwrap_or_else(|| Needs::of(manager));
                    Some(self.context.templates.queues.of(tx, &needs)?)
                }
            };
            let retries = version
                .and_then(|version| version.config.get("retries").and_then(Value::as_i64))
                .unwrap_or(DEFAULT_RETRIES);
            let gated = match operation.resource.filter(|_| queue.is_some()) {
                None => false,
                Some(id) => {
                    // What is shared more widely belongs where it was made as well as where it is used.
                    let mut places = vec![snapshot.environment.id];
                    let wide = snapshot.resources.get(&id);
                    if wide.is_some_and(|known| known.key.domain != snapshot.environment.domain) {
                        places.extend(tx.resource(id)?.map(|row| row.environment));
                    }
                    let mut closed = false;
                    for place in places {
                        closed |= gatekeeper.closes(tx, place, version.map(Arc::as_ref), operation.kind)?;
                    }
                    closed
                }
            };
            rows.push(NewOperation {
                gated,
                id: operation.id,
                organisation: self.context.organisation,
                change: self.change,
                plan_number: self.plan_number,
                resource: operation.resource,
                kind: operation.kind,
                generation: operation.generation,
                conditional: operation.conditional,
                releasing,
                queue,
                open_predecessors: (operation.after.len()
                    + operation.loosely_after.len()
                    + operation.waits.len()) as i64,
                retries,
                payload: None,
                now: self.now,
            });
        }
        tx.insert_operations(&rows)?;
        let edges: Vec<(OperationId, OperationId, bool)> = plan
            .operations
            .iter()
            .flat_map(|op| {
                let firm = op.after.iter().map(|before| (op.id, *before, false));
                firm.chain(op.loosely_after.iter().map(|before| (op.id, *before, true)))
            })
            .collect();
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
        Ok(gatekeeper.terms())
    }

    /// Operations with nothing before them and nothing to run are over at once.
    pub fn idle(&self, tx: &mut Tx<'_>, plan: &Plan) -> Result<()> {
        let idle: Vec<OperationId> = plan
            .operations
            .iter()
            .filter(|operation| {
                operation.manager.is_none()
                    && operation.after.is_empty()
                    && operation.loosely_after.is_empty()
                    && operation.waits.is_empty()
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
            let code = conductor_domain::lifecycle::ErrorCode::Conflict;
            let path = format!("params.{name}");
            let item =
                conductor_api::types::ProblemItem { path, message: message.clone(), ..Default::default() };
            return Err(refusal::refuse_all(code, message, &[item]));
        }
        values.push((name, hash));
    }
    tx.hold_unique(context.organisation, version.template, id, &values)
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
