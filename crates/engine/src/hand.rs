//! What platform engineers do without a Score file: make a resource, destroy it, make it again, forget it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_api::types::{
    Blocker, Deployment, Facts, Handled, Inheritable, RegisterRequest, ResourceRequest, Time,
};
use conductor_domain::{
    catalogue::{TemplateVersion, VersionState},
    expr::Params,
    ids::{ApplicationId, ChangeId, ResourceId, TemplateVersionId},
    lifecycle::{ChangeKind, ErrorCode, KeptBy, State, Status, available_actions},
    plan::{Again, Handmade, Intent, Plan},
};
use conductor_store::{
    Error, Owner, Result, Tx,
    catalogue::{ApplicationRow, EnvironmentRow},
    changes::NewChange,
    resources::ResourceRow,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Context, Engine,
    changes::{self, Asked, Domains, environment, holds_all, lock_known, planned, store},
    consumers::resource,
    planning::{Place, Purpose, grace, open_spec, plan_now},
    progress::Progress,
    refusal::{not_found, refuse},
    views,
};

/// What was asked of one resource, kept with the change so that it can be planned again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ByHand {
    Make {
        name: String,
        version: TemplateVersionId,
        params: Map<String, Value>,
        parents: Vec<ResourceId>,
    },
    Again {
        resource: ResourceId,
        version: TemplateVersionId,
        set: Map<String, Value>,
        revision: Option<i64>,
        anyway: bool,
    },
    Remove {
        resource: ResourceId,
    },
    Teardown {
        keep_protected: bool,
    },
}

/// An intent that owns what it is about.
pub(crate) enum Owned {
    Make(Handmade),
    Again(Again),
    Remove(ResourceId),
    Teardown { keep_protected: bool },
}

impl Owned {
    pub fn intent(&self) -> Intent<'_> {
        match self {
            Self::Make(made) => Intent::Make(made),
            Self::Again(again) => Intent::Again(again),
            Self::Remove(id) => Intent::Remove(*id),
            Self::Teardown { keep_protected } => Intent::Teardown { keep_protected: *keep_protected },
        }
    }
}

impl ByHand {
    /// What is meant now: what a first attempt made is made again, not once more.
    pub fn owned(&self, tx: &mut Tx<'_>, context: &Context, change: Option<ChangeId>) -> Result<Owned> {
        let made = match (self, change) {
            (Self::Make { .. }, Some(change)) => tx.made_by(change, true)?,
            _ => BTreeSet::new(),
        };
        Ok(match self {
            Self::Make { version, .. } if !made.is_empty() => Owned::Again(Again {
                resource: made.into_iter().next().unwrap_or(ResourceId(uuid::Uuid::nil())),
                version: context.templates.get(tx, *version, None)?,
                set: Map::new(),
                whole: None,
                anyway: false,
            }),
            Self::Make { name, version, params, parents } => Owned::Make(Handmade {
                name: name.clone(),
                version: context.templates.get(tx, *version, None)?,
                params: params.clone(),
                parents: parents.clone(),
            }),
            Self::Again { resource, version, set, revision, anyway } => Owned::Again(Again {
                resource: *resource,
                version: context.templates.get(tx, *version, None)?,
                set: set.clone(),
                whole: match revision {
                    Some(number) => Some(revision_spec(tx, *resource, *number)?),
                    None => None,
                },
                anyway: *anyway,
            }),
            Self::Remove { resource } => Owned::Remove(*resource),
            Self::Teardown { keep_protected } => Owned::Teardown { keep_protected: *keep_protected },
        })
    }
}

/// The parameters of an earlier desired state.
pub(crate) fn revision_spec(tx: &mut Tx<'_>, id: ResourceId, number: i64) -> Result<Params> {
    let row = tx.resource(id)?.ok_or_else(|| not_found("resource", &id.to_string(), &[]))?;
    let revision = tx.revision(id, number)?;
    let revision =
        revision.ok_or_else(|| not_found("revision", &format!("{number} of {}", row.name), &[]))?;
    open_spec(tx, &row, &revision.spec)
}

/// Nobody in particular, somewhere.
pub(crate) fn nobody(environment: EnvironmentRow) -> Place {
    let application = ApplicationRow {
        id: ApplicationId(uuid::Uuid::nil()),
        name: String::new(),
        document: json!({}),
        created_at: 0,
    };
    Place { environment, application }
}

/// Plans and stores a change that belongs to no application.
#[allow(clippy::too_many_arguments, reason = "the one place where such changes are made")]
pub(crate) fn begin(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    kind: ChangeKind,
    by_hand: ByHand,
    parent: Option<ChangeId>,
    actor: &str,
    domains: &mut Domains,
    now: i64,
) -> Result<(ChangeId, Plan)> {
    let owned = by_hand.owned(tx, context, None)?;
    let (plan, snapshot) = plan_now(tx, context, place, &owned.intent(), Purpose::Store)?;
    holds_all(tx, &plan, &snapshot, domains)?;
    let id = insert(tx, context, place, kind, Some(by_hand), parent, actor, now)?;
    store(tx, context, id, kind, None, &plan, &snapshot, 1, actor, now)?;
    tx.wake();
    Ok((id, plan))
}

#[allow(clippy::too_many_arguments, reason = "one column each")]
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    kind: ChangeKind,
    by_hand: Option<ByHand>,
    parent: Option<ChangeId>,
    actor: &str,
    now: i64,
) -> Result<ChangeId> {
    let id = ChangeId(context.ids.next());
    let asked = Asked { by_hand, ..Asked::default() };
    tx.insert_change(&NewChange {
        environment: Some(place.environment.id),
        parent,
        request: serde_json::to_value(asked).unwrap_or_default(),
        timeout_at: Some(now + changes::DEFAULT_TIMEOUT_SECONDS as i64 * 1_000_000),
        ..context.change(id, kind, actor, now)
    })?;
    let told = json!({ "kind": kind, "environment": place.environment.name });
    Progress::new(tx, context, now).event("change.accepted", actor, Some(id), None, None, told)?;
    Ok(id)
}

/// The version somebody names: `NAME`, the newest that may be used, or `NAME@VERSION`.
pub(crate) fn named_version(tx: &mut Tx<'_>, context: &Context, text: &str) -> Result<Arc<TemplateVersion>> {
    let (name, wanted) = text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)));
    let shelf = context.templates.shelf(tx, context)?;
    let heads = shelf.heads.iter().filter(|head| head.name == name && !head.built_in);
    let mut versions = Vec::new();
    for head in heads {
        versions.push(context.templates.get(tx, head.id, Some(&head.state))?);
    }
    if versions.is_empty() {
        let known: BTreeSet<String> =
            shelf.heads.iter().filter(|head| !head.built_in).map(|head| head.name.clone()).collect();
        return Err(not_found("template", name, &known.into_iter().collect::<Vec<_>>()));
    }
    let labels: Vec<String> = versions.iter().map(|version| version.version.to_string()).collect();
    let found = match wanted {
        Some(wanted) => versions.into_iter().find(|version| version.version.to_string() == wanted),
        None => versions
            .into_iter()
            .filter(|version| matches!(version.state, VersionState::Active | VersionState::Deprecated))
            .max_by(|a, b| a.version.cmp(&b.version)),
    };
    let found = found.ok_or_else(|| not_found("version", text, &labels))?;
    match found.state {
        VersionState::Disabled => {
            Err(refuse(ErrorCode::Conflict, format!("template {} is disabled", found.label())))
        }
        _ => Ok(found),
    }
}

/// A no that says what can be done instead.
pub(crate) fn refuse_action(row: &ResourceRow, action: &str) -> Error {
    let allowed = available_actions(row.state, row.status);
    let message = match allowed {
        [] => format!("{} is {}/{}: it cannot be {action} now", row.name, row.state, row.status),
        allowed => format!(
            "{} is {}/{}: `{action}` is not possible now; what is: {}",
            row.name,
            row.state,
            row.status,
            allowed.join(", ")
        ),
    };
    refuse_for_now(row, message)
}

/// A no in these words, with what can be done instead.
pub(crate) fn refuse_for_now(row: &ResourceRow, message: String) -> Error {
    let allowed = available_actions(row.state, row.status);
    let detail = json!({ "reason": message, "allowedActions": allowed });
    Error::Refused { code: ErrorCode::Conflict, message, detail: Box::new(detail) }
}

fn allows(row: &ResourceRow, action: &str) -> Result<()> {
    match available_actions(row.state, row.status).contains(&action) {
        true => Ok(()),
        false => Err(refuse_action(row, action)),
    }
}

/// Who still needs a resource: applications, children, resources that depend on it.
pub(crate) fn blockers(tx: &mut Tx<'_>, row: &ResourceRow) -> Result<Vec<Blocker>> {
    let only = BTreeSet::from([row.id]);
    let mut blockers: Vec<Blocker> = tx
        .consumers_of(&only, 1000)?
        .into_iter()
        .map(|consumer| Blocker {
            resource_id: row.id,
            resource_name: row.name.clone(),
            state: row.state,
            kind: "consumer".into(),
            application: Some(format!(
                "{} in {} (as `{}`)",
                consumer.application_name, consumer.environment_name, consumer.requirement
            )),
        })
        .collect();
    // A workload's application is named already.
    let dependents = tx.dependents_of(&only)?.into_iter().filter(|dependent| !dependent.workload);
    let dependents: Vec<_> = dependents.collect();
    let ids = dependents.iter().map(|dependent| dependent.resource).collect();
    let rows: BTreeMap<ResourceId, ResourceRow> =
        tx.resources_by_id(&ids)?.into_iter().map(|row| (row.id, row)).collect();
    for dependent in dependents {
        let Some(other) = rows.get(&dependent.resource) else { continue };
        blockers.push(Blocker {
            resource_id: other.id,
            resource_name: other.name.clone(),
            state: other.state,
            kind: if dependent.parent { "child" } else { "dependent" }.into(),
            application: None,
        });
    }
    Ok(blockers)
}

fn blocked(row: &ResourceRow, blockers: &[Blocker]) -> Error {
    let who: Vec<String> = blockers
        .iter()
        .take(10)
        .map(|blocker| match &blocker.application {
            Some(application) => format!("{application} uses it"),
            None => {
                format!("{} `{}` ({}) needs it", blocker.kind, blocker.resource_name, blocker.resource_id)
            }
        })
        .collect();
    let more = blockers.len().saturating_sub(who.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let message = format!("{} cannot be destroyed: {}{more}", row.name, who.join("; "));
    let used = blockers.iter().all(|blocker| blocker.application.is_some());
    let code = if used { ErrorCode::InUse } else { ErrorCode::DependenciesExist };
    let detail = json!({ "reason": "Dependencies exist", "dependencies": blockers });
    Error::Refused { code, message, detail: Box::new(detail) }
}

/// A child is made under its parents, or not at all.
fn parents_are_there(tx: &mut Tx<'_>, row: &ResourceRow) -> Result<()> {
    let parents = tx.dependencies_of(&[row.id].into())?.into_iter().filter(|on| on.parent).map(|on| on.on);
    let parents = tx.resources_by_id(&parents.collect())?;
    match parents.iter().find(|parent| parent.state != State::Provisioned) {
        None => Ok(()),
        Some(parent) => {
            let message = format!(
                "the parent of {}, `{}` ({}), is {}, not provisioned",
                row.name, parent.name, parent.id, parent.state
            );
            Err(refuse(ErrorCode::Conflict, message))
        }
    }
}

pub(crate) fn facts_of(row: &ResourceRow) -> Facts {
    row.facts.clone().and_then(|facts| serde_json::from_value(facts).ok()).unwrap_or_default()
}

/// What children get of these parents: the union, unless two of them disagree and nobody says otherwise.
fn inherited<'f>(
    what: &str,
    parents: impl Iterator<Item = (&'f str, BTreeMap<String, Inheritable>)>,
    own: &BTreeMap<String, Inheritable>,
) -> Result<BTreeMap<String, Inheritable>> {
    let mut found: BTreeMap<String, (&str, Inheritable)> = BTreeMap::new();
    for (parent, entries) in parents {
        for (name, entry) in entries.into_iter().filter(|(_, entry)| entry.inherited_by_children) {
            match found.get(&name) {
                Some((other, before)) if before.value != entry.value && !own.contains_key(&name) => {
                    let message = format!(
                        "{what} `{name}` is {} with parent `{other}` and {} with parent `{parent}`; say which",
                        before.value, entry.value
                    );
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                _ => drop(found.insert(name, (parent, entry))),
            }
        }
    }
    let mut all: BTreeMap<String, Inheritable> =
        found.into_iter().map(|(name, (_, entry))| (name, entry)).collect();
    all.extend(own.clone());
    Ok(all)
}

/// Checks what a template says about parents, and what comes from them.
fn with_parents(
    version: &TemplateVersion,
    parents: &[ResourceRow],
    mut facts: Facts,
    params: &mut Map<String, Value>,
) -> Result<Facts> {
    for terms in &version.parents {
        let count = parents.iter().filter(|parent| parent.key.kind == terms.kind).count() as u64;
        let most = terms.max.unwrap_or(u64::MAX);
        if count < terms.min || count > most {
            let wanted = match (terms.min, terms.max) {
                (min, Some(max)) if min == max => format!("{min}"),
                (min, Some(max)) => format!("{min} to {max}"),
                (min, None) => format!("at least {min}"),
            };
            let message = format!(
                "template {} needs {wanted} parent(s) of type `{}`, and {count} were given",
                version.label(),
                terms.kind
            );
            return Err(refuse(ErrorCode::Invalid, message));
        }
    }
    if let Some(stranger) = parents.iter().find(|parent| {
        !version.parents.is_empty() && !version.parents.iter().any(|t| t.kind == parent.key.kind)
    }) {
        let message = format!(
            "`{}` is a {}, which {} has no parent of",
            stranger.name,
            stranger.key.kind,
            version.label()
        );
        return Err(refuse(ErrorCode::Invalid, message));
    }
    for (name, entry) in &version.tags {
        facts.tags.entry(name.clone()).or_insert_with(|| Inheritable {
            value: entry.value.clone(),
            inherited_by_children: entry.inherited_by_children,
        });
    }
    for (name, entry) in &version.configs {
        facts.configs.entry(name.clone()).or_insert_with(|| Inheritable {
            value: entry.value.clone(),
            inherited_by_children: entry.inherited_by_children,
        });
    }
    let of = |pick: fn(Facts) -> BTreeMap<String, Inheritable>| {
        parents.iter().map(move |parent| (parent.name.as_str(), pick(facts_of(parent))))
    };
    facts.tags = inherited("tag", of(|facts| facts.tags), &facts.tags)?;
    facts.configs = inherited("config", of(|facts| facts.configs), &facts.configs)?;
    // A config of the name of a parameter is its default.
    for (name, entry) in &facts.configs {
        if version.schema.declares(name) && !params.contains_key(name) {
            params.insert(name.clone(), entry.value.clone());
        }
    }
    Ok(facts)
}

fn check_resource_name(name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_' || b == b'.');
    match fits {
        true => Ok(()),
        false => {
            let shown: String = name.chars().take(80).collect();
            let message = format!("`{shown}` is no name: use 1 to 63 of a-z, 0-9, -, _ and .");
            Err(refuse(ErrorCode::Invalid, message))
        }
    }
}

fn lock_places(
    tx: &mut Tx<'_>,
    row: &ResourceRow,
    place: &EnvironmentRow,
    domains: &mut Domains,
) -> Result<()> {
    domains.insert(row.key.domain);
    lock_known(tx, domains, place.domain)
}

pub(crate) fn environment_of(tx: &mut Tx<'_>, row: &ResourceRow) -> Result<EnvironmentRow> {
    tx.environment(row.environment)?.ok_or_else(|| Error::Corrupt("a resource of nowhere".into()))
}

/// What would be done by hand; nothing is.
pub(crate) fn shown(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    kind: ChangeKind,
    by_hand: &ByHand,
) -> Result<Deployment> {
    let owned = by_hand.owned(tx, context, None)?;
    let (plan, snapshot) = plan_now(tx, context, place, &owned.intent(), Purpose::Show)?;
    Ok(Deployment { application: None, ..planned(&plan, &snapshot, kind, place) })
}

/// The same of a resource that would be another.
pub(crate) fn preview(
    tx: &mut Tx<'_>,
    context: &Context,
    place: &Place,
    kind: ChangeKind,
    by_hand: &ByHand,
) -> Result<Handled> {
    Ok(Handled { resource: None, deployment: Some(shown(tx, context, place, kind, by_hand)?) })
}

impl Engine {
    /// Makes a resource from a template, for nobody in particular.
    pub async fn make_resource(&self, request: ResourceRequest, actor: &str) -> Result<Handled> {
        check_resource_name(&request.name)?;
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let dry_run = request.dry_run;
        let mut domains = Domains::new();
        let make = move |tx: &mut Tx<'_>| {
            let now = context.now();
            let environment = environment(tx, &context, &request.environment)?;
            if !dry_run {
                lock_known(tx, &mut domains, environment.domain)?;
            }
            let version = named_version(tx, &context, &request.template)?;
            let parents: BTreeSet<ResourceId> = request.parents.iter().copied().collect();
            let mut rows = Vec::new();
            for id in &parents {
                rows.push(resource(tx, &context, *id)?);
            }
            let mut params = request.parameters.clone();
            let mut facts = with_parents(&version, &rows, request.facts.clone(), &mut params)?;
            facts.owner.get_or_insert_with(|| actor.clone());
            let place = nobody(environment);
            let by_hand = ByHand::Make {
                name: request.name.clone(),
                version: version.id,
                params,
                parents: parents.into_iter().collect(),
            };
            if dry_run {
                return preview(tx, &context, &place, ChangeKind::Resource, &by_hand);
            }
            let kind = ChangeKind::Resource;
            let (change, plan) = begin(tx, &context, &place, kind, by_hand, None, &actor, &mut domains, now)?;
            let id = plan.items.last().map(|item| item.resource);
            if let Some(id) = id {
                tx.set_facts(id, &serde_json::to_value(&facts).unwrap_or_default(), now)?;
            }
            handled(tx, &context, id, Some(change))
        };
        self.read_or_write(dry_run, make).await
    }

    /// What is only shown is only read.
    pub(crate) async fn read_or_write<T: Send + 'static>(
        &self,
        reads: bool,
        case: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if reads { self.db.read(case).await } else { self.db.write(case).await }
    }

    /// Makes known what somebody else looks after.
    pub async fn register_resource(&self, request: RegisterRequest, actor: &str) -> Result<Handled> {
        check_resource_name(&request.name)?;
        if request.kind.trim().is_empty() {
            return Err(refuse(ErrorCode::Invalid, "say of which type it is"));
        }
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let mut domains = Domains::new();
        self.db
            .write(move |tx| {
                let now = context.now();
                let environment = environment(tx, &context, &request.environment)?;
                lock_known(tx, &mut domains, environment.domain)?;
                if let Some(external) = &request.external_id
                    && let Some(other) = tx.resource_by_external_id(context.organisation, external)?
                {
                    let message = format!("`{external}` is known already: {other}");
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                let registered = context.templates.get(tx, context.registered, None)?;
                let version = Arc::new(TemplateVersion {
                    kind: request.kind.clone(),
                    class: request.class.clone().unwrap_or_else(|| "default".into()),
                    ..(*registered).clone()
                });
                let place = nobody(environment);
                let made =
                    Handmade { name: request.name.clone(), version, params: Map::new(), parents: vec![] };
                let (plan, snapshot) = plan_now(tx, &context, &place, &Intent::Make(&made), Purpose::Store)?;
                let kind = ChangeKind::Import;
                let change = insert(tx, &context, &place, kind, None, None, &actor, now)?;
                store(tx, &context, change, kind, None, &plan, &snapshot, 1, &actor, now)?;
                let id = plan.items.last().map(|item| item.resource);
                let id = id.ok_or_else(|| Error::Corrupt("nothing was registered".into()))?;
                let owner =
                    Owner { organisation: context.organisation, kind: "outputs", id: id.0.as_bytes() };
                let mut outputs = Map::new();
                for (name, value) in &request.outputs {
                    let value = match request.sensitive.contains(name) {
                        true => tx.sealer().seal_leaf(owner, value)?,
                        false => value.clone(),
                    };
                    outputs.insert(name.clone(), value);
                }
                tx.keep_external(id, request.external_id.as_deref(), &Value::Object(outputs), now)?;
                let mut facts = request.facts.clone();
                facts.owner.get_or_insert_with(|| actor.clone());
                tx.set_facts(id, &serde_json::to_value(&facts).unwrap_or_default(), now)?;
                let told = json!({ "name": request.name, "externalId": request.external_id });
                let mut progress = Progress::new(tx, &context, now);
                progress.event("resource.registered", &actor, Some(change), Some(id), None, told)?;
                handled(tx, &context, Some(id), None)
            })
            .await
    }

    /// Takes one resource away, unless somebody needs it.
    pub async fn destroy_resource(&self, id: ResourceId, dry_run: bool, actor: &str) -> Result<Handled> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let mut domains = Domains::new();
        let destroy = move |tx: &mut Tx<'_>| {
            let now = context.now();
            let before = resource(tx, &context, id)?;
            let environment = environment_of(tx, &before)?;
            if !dry_run {
                lock_places(tx, &before, &environment, &mut domains)?;
            }
            let row = resource(tx, &context, id)?;
            if row.kept_by == KeptBy::External {
                let message =
                    format!("{} is not Conductor's to destroy; delete its record instead", row.name);
                return Err(refuse(ErrorCode::Conflict, message));
            }
            if row.protected {
                let message =
                    format!("{} is protected; `conductor resources unprotect {id}` first", row.name);
                return Err(refuse(ErrorCode::Conflict, message));
            }
            let blockers = blockers(tx, &row)?;
            if !blockers.is_empty() {
                return Err(blocked(&row, &blockers));
            }
            allows(&row, "destroy")?;
            let span = {
                let version = context.templates.get(tx, row.version, None)?;
                version.grace.max(grace(&environment.document))
            };
            let place = nobody(environment);
            let by_hand = ByHand::Remove { resource: id };
            if dry_run {
                return preview(tx, &context, &place, ChangeKind::Resource, &by_hand);
            }
            // Kept for a while: somebody may think again.
            if span > 0 && (row.state, row.status) == (State::Provisioned, Status::Done) {
                let until = now + span;
                tx.bury_resource(id, (row.state, row.status), until, now)?;
                let told = json!({ "name": row.name, "until": Time(until) });
                let mut progress = Progress::new(tx, &context, now);
                progress.event("resource.put_aside", &actor, None, Some(id), None, told)?;
                return handled(tx, &context, Some(id), None);
            }
            let kind = ChangeKind::Resource;
            let (change, _) = begin(tx, &context, &place, kind, by_hand, None, &actor, &mut domains, now)?;
            handled(tx, &context, Some(id), Some(change))
        };
        self.read_or_write(dry_run, destroy).await
    }

    /// Makes a destroyed or rejected one again; with `retry` one whose last step failed.
    pub async fn make_again(
        &self,
        id: ResourceId,
        retry: bool,
        dry_run: bool,
        actor: &str,
    ) -> Result<Handled> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let mut domains = Domains::new();
        let again = move |tx: &mut Tx<'_>| {
            let now = context.now();
            let before = resource(tx, &context, id)?;
            let environment = environment_of(tx, &before)?;
            if !dry_run {
                lock_places(tx, &before, &environment, &mut domains)?;
            }
            let row = resource(tx, &context, id)?;
            allows(&row, if retry { "retry" } else { "recreate" })?;
            if row.state != State::Destroy {
                parents_are_there(tx, &row)?;
            }
            let by_hand = match row.state {
                State::Destroy => ByHand::Remove { resource: id },
                _ => ByHand::Again {
                    resource: id,
                    version: row.version,
                    set: Map::new(),
                    revision: None,
                    anyway: true,
                },
            };
            let place = nobody(environment);
            if dry_run {
                return preview(tx, &context, &place, ChangeKind::Resource, &by_hand);
            }
            if row.state == State::Destroyed && row.kept_by == KeptBy::Consumers {
                tx.keep_by_hand(id)?;
            }
            let kind = ChangeKind::Resource;
            let (change, _) = begin(tx, &context, &place, kind, by_hand, None, &actor, &mut domains, now)?;
            handled(tx, &context, Some(id), Some(change))
        };
        self.read_or_write(dry_run, again).await
    }

    /// Forgets a destroyed resource: its record goes, the audit trail stays.
    pub async fn delete_resource(&self, id: ResourceId, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let before = resource(tx, &context, id)?;
                tx.lock_domains(&[before.key.domain])?;
                let row = resource(tx, &context, id)?;
                let unmanaged = row.kept_by == KeptBy::External
                    || context.templates.get(tx, row.version, None)?.is_abstract();
                if unmanaged && row.state == State::Provisioned {
                    let blockers = blockers(tx, &row)?;
                    if !blockers.is_empty() {
                        return Err(blocked(&row, &blockers));
                    }
                    tx.move_resource(
                        id,
                        (row.state, row.status),
                        (State::Destroy, Status::Queued),
                        None,
                        now,
                    )?;
                    tx.destroy_resource(id, (State::Destroy, Status::Queued), now)?;
                } else {
                    allows(&row, "delete")?;
                }
                let open = tx.open_proposals_of(id)?;
                if let Some(open) = open.first() {
                    let message =
                        format!("{} has an open proposal, {}; merge or discard it first", row.name, open.id);
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                if !tx.delete_record(id, now)? {
                    return Err(refuse_action(&row, "delete"));
                }
                let environment = environment_of(tx, &row)?;
                if grace(&environment.document) == 0 {
                    tx.drop_values(id)?;
                }
                let told =
                    json!({ "name": row.name, "type": row.key.kind, "environment": row.environment_name });
                Progress::new(tx, &context, now).event("resource.deleted", &actor, None, Some(id), None, told)
            })
            .await
    }

    pub async fn protect(&self, id: ResourceId, protected: bool, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let before = resource(tx, &context, id)?;
                tx.lock_domains(&[before.key.domain])?;
                let row = resource(tx, &context, id)?;
                tx.protect_resource(id, protected, now)?;
                let told = json!({ "name": row.name, "before": row.protected, "after": protected });
                let kind = if protected { "resource.protected" } else { "resource.unprotected" };
                Progress::new(tx, &context, now).event(kind, &actor, None, Some(id), None, told)
            })
            .await
    }

    /// Changes what is said of a resource, not what it is.
    pub async fn describe_resource(&self, id: ResourceId, facts: Facts, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let row = resource(tx, &context, id)?;
                let before = facts_of(&row);
                let mut after = before.clone();
                let Facts { description, owner, team, labels, tags, configs } = facts.clone();
                after.description = description.or(after.description);
                after.owner = owner.or(after.owner);
                after.team = team.or(after.team);
                after.labels.extend(labels);
                after.tags.extend(tags);
                after.configs.extend(configs);
                tx.set_facts(id, &serde_json::to_value(&after).unwrap_or_default(), now)?;
                let told = json!({ "name": row.name, "before": before, "after": after });
                Progress::new(tx, &context, now).event(
                    "resource.described",
                    &actor,
                    None,
                    Some(id),
                    None,
                    told,
                )
            })
            .await
    }
}

/// What was done, as it stands now.
pub(crate) fn handled(
    tx: &mut Tx<'_>,
    context: &Context,
    id: Option<ResourceId>,
    change: Option<ChangeId>,
) -> Result<Handled> {
    Ok(Handled {
        resource: match id {
            Some(id) => views::resource(tx, context, id)?,
            None => None,
        },
        deployment: match change {
            Some(change) => Some(views::deployment(tx, context, change)?),
            None => None,
        },
    })
}
