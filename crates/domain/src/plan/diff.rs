//! From a goal to a plan: the only code that says create, update, replace, destroy, wait or no, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_score::{DependencyKind, OnConflict, Relationship, Scope};

use super::{
    Candidate, Effect, Goal, Item, Key, KeyTag, MatchQuery, Plan, PlanError, Problem, RecordedDependency,
    ResourceView, Snapshot, Until, Wait,
    build::{changed_params, describe_trouble},
    hand::{by_hand, referred_to},
    resolve::{Ask, Wanted, look_up},
    symbols::{Referent, Symbols},
};
use crate::{
    catalogue::TemplateVersion,
    expr::{Expr, Params, params_refs},
    ids::{Ids, OperationId, ResourceId},
    lifecycle::{Action, ErrorCode, OperationKind, OperationStatus, State, Status},
};

const NOTHING_DIFFERS: &str = "nothing differs";

pub fn diff(goal: &Goal, snapshot: &Snapshot, ids: &dyn Ids) -> Result<Plan, PlanError> {
    let mut differ = Differ {
        goal,
        snapshot,
        ids,
        plan: Plan { warnings: goal.warnings.clone(), ..Plan::default() },
        referents: BTreeMap::new(),
        settled: BTreeMap::new(),
        made: BTreeMap::new(),
        waits: BTreeMap::new(),
        changing: BTreeSet::new(),
        kept: BTreeSet::new(),
        served: BTreeSet::new(),
        restated: BTreeSet::new(),
        after: BTreeMap::new(),
        mine: mine(snapshot),
        stated: goal.wanted.iter().map(|wanted| wanted.requirement.as_str()).collect(),
        fresh: BTreeMap::new(),
        joined: BTreeMap::new(),
        claimed: BTreeSet::new(),
        revived: BTreeSet::new(),
        asked: BTreeMap::new(),
        used: BTreeMap::new(),
        within: Vec::new(),
        candidates: Vec::new(),
        problems: Vec::new(),
        code: ErrorCode::Invalid,
        needs: Vec::new(),
    };
    for wanted in &goal.wanted {
        differ.requirement(wanted)?;
    }
    if let Some(wanted) = &goal.workload {
        differ.workload(wanted)?;
    }
    differ.unserved();
    if !differ.needs.is_empty() {
        return Err(PlanError::Need(differ.needs));
    }
    if !differ.problems.is_empty() {
        return Err(PlanError::Refused { code: differ.code, problems: differ.problems });
    }
    differ.contracts();
    differ.settle_waits();
    if goal.complete {
        differ.removals()?;
        differ.likely_renames();
    }
    if let Some(id) = goal.remove {
        differ.remove(id)?;
    }
    Ok(differ.plan)
}

/// What this application has by now, by requirement.
fn mine(snapshot: &Snapshot) -> BTreeMap<&str, Vec<ResourceId>> {
    let mut mine: BTreeMap<&str, Vec<ResourceId>> = BTreeMap::new();
    for resource in snapshot.resources.values() {
        for consumer in resource.consumers.iter().filter(|consumer| snapshot.is_mine(consumer)) {
            mine.entry(&consumer.requirement).or_default().push(resource.id);
        }
    }
    mine
}

pub(super) struct Differ<'a> {
    pub(super) goal: &'a Goal,
    pub(super) snapshot: &'a Snapshot,
    pub(super) ids: &'a dyn Ids,
    pub(super) plan: Plan,
    pub(super) referents: BTreeMap<String, Referent>,
    /// Keys already served in this plan.
    pub(super) settled: BTreeMap<Key, ResourceId>,
    /// The operation of this plan after which a resource is there.
    pub(super) made: BTreeMap<ResourceId, OperationId>,
    /// What another change is busy with.
    pub(super) waits: BTreeMap<ResourceId, Wait>,
    /// Whose outputs may differ afterwards.
    pub(super) changing: BTreeSet<ResourceId>,
    pub(super) kept: BTreeSet<(ResourceId, String)>,
    /// Whatever serves something in this plan.
    pub(super) served: BTreeSet<ResourceId>,
    /// Whose dependencies are what the file says now, and no longer what is on record.
    pub(super) restated: BTreeSet<ResourceId>,
    /// By which version and with which parameters this plan makes or changes things.
    pub(super) after: BTreeMap<ResourceId, (Arc<TemplateVersion>, Params)>,
    /// What this application has by now, by requirement.
    pub(super) mine: BTreeMap<&'a str, Vec<ResourceId>>,
    /// The requirements there are now.
    pub(super) stated: BTreeSet<&'a str>,
    /// What this plan makes that others of its requirements may share.
    pub(super) fresh: BTreeMap<MatchQuery, Vec<(ResourceId, Option<u32>)>>,
    /// How many uses this plan adds to each.
    pub(super) joined: BTreeMap<ResourceId, u64>,
    pub(super) claimed: BTreeSet<ResourceId>,
    pub(super) revived: BTreeSet<ResourceId>,
    /// What each requirement asks for, where it is not what it gets.
    pub(super) asked: BTreeMap<(ResourceId, String), Params>,
    /// The outputs that are used of each.
    pub(super) used: BTreeMap<ResourceId, BTreeSet<String>>,
    /// The requirement whose template is being served, and the templates on the way to it.
    pub(super) within: Vec<Within>,
    /// Told with the next item.
    pub(super) candidates: Vec<Candidate>,
    pub(super) problems: Vec<Problem>,
    pub(super) code: ErrorCode,
    pub(super) needs: Vec<super::Want>,
}

/// How much of what is there is up for change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// It becomes what was asked for.
    AsAsked,
    /// It keeps its parameters.
    WithItsParams,
    /// It stays what it is.
    AsItIs,
}

/// Whose template requires what is being planned.
pub(super) struct Within {
    pub(super) requirement: String,
    pub(super) template: String,
    pub(super) parent: ResourceId,
}

/// What a wanted resource comes to, once its parameters are known symbols.
pub(super) struct Shape<'w> {
    pub(super) wanted: &'w Wanted,
    /// The id it gets when it is made now.
    pub(super) new_id: ResourceId,
    pub(super) version: Arc<TemplateVersion>,
    pub(super) params: Params,
    pub(super) on: Vec<RecordedDependency>,
    pub(super) workload: bool,
    /// It keeps its parameters and with them its dependencies.
    pub(super) as_it_is: bool,
}

impl Differ<'_> {
    pub(super) fn refuse(
        &mut self,
        code: ErrorCode,
        wanted: &Wanted,
        path: String,
        message: String,
        suggestion: Option<String>,
    ) {
        self.code = code;
        self.problems.push(Problem { path, message, suggestion, at: wanted.at });
    }

    pub(super) fn requirement(&mut self, wanted: &Wanted) -> Result<(), PlanError> {
        let (resource, action, reason) = self.serve(wanted)?;
        let version = self.version_of(resource, wanted);
        let outputs = version.outputs.as_ref().map(|outputs| outputs.keys().cloned().collect());
        self.referents.insert(wanted.requirement.clone(), Referent { resource, outputs });
        self.served.insert(resource);
        if self.within.is_empty() {
            self.kept.insert((resource, wanted.requirement.clone()));
        }
        let known = self.snapshot.resources.get(&resource);
        let name = match known {
            Some(known) => known.name.clone(),
            None => self.name_of_new(wanted, resource),
        };
        let candidates = std::mem::take(&mut self.candidates);
        let other_candidates = self.rivals_left_out(wanted, candidates.len());
        self.plan.items.push(Item {
            requirement: self.full_name(&wanted.requirement),
            resource,
            name,
            action,
            reason,
            candidates,
            other_candidates,
        });
        Ok(())
    }

    /// Which resource serves a requirement, and what that takes.
    fn serve(&mut self, wanted: &Wanted) -> Result<(ResourceId, Action, String), PlanError> {
        match &wanted.ask {
            Ask::Existing(id) => Ok(self.link(wanted, *id)),
            Ask::Keyed(key) => self.keyed(wanted, key),
            Ask::Fitting(fitting) => self.fit(wanted, fitting),
            Ask::Pooled { pool, unless } => self.claim(wanted, pool, unless.as_ref()),
            Ask::Member { again, .. } => {
                let found = again.and_then(|id| self.snapshot.resources.get(&id));
                self.settle_on(wanted, found, &self.any_key(wanted), Take::AsAsked)
            }
            Ask::Made(key) => self.make(wanted, key),
            Ask::This { resource, anyway, .. } => self.once_more(wanted, *resource, *anyway),
        }
    }

    pub(super) fn keyed(
        &mut self,
        wanted: &Wanted,
        key: &Key,
    ) -> Result<(ResourceId, Action, String), PlanError> {
        if let Some(id) = self.settled.get(key).copied() {
            return Ok(self.same_as_another(wanted, id, Params::new()));
        }
        let found = match look_up(key, self.snapshot) {
            // Its name is made of an id that was given out just now.
            _ if key.tag == KeyTag::Dedicated && self.is_of_a_new_one() => None,
            Err(PlanError::Need(more)) => {
                self.needs.extend(more);
                None
            }
            found => found?,
        };
        if let Some(found) = found {
            let how =
                if key.tag == KeyTag::Shared { "it has that name" } else { "it is this application's own" };
            self.consider(found, Ok(how.to_owned()));
            self.has_room(wanted, found);
        }
        // Who took what was there keeps it, until it asks for something else.
        let take = match found.filter(|_| wanted.on_conflict == OnConflict::Keep && wanted.asks_params) {
            Some(resource) => {
                let asked = self.params(wanted, &wanted.version, &[], "", &mut Vec::new());
                let take = self.how_much(wanted, resource, &asked);
                self.asked.insert((resource.id, wanted.requirement.clone()), asked);
                take
            }
            None => Take::AsAsked,
        };
        let outcome = self.settle_on(wanted, found, key, take)?;
        self.settled.insert(key.clone(), outcome.0);
        Ok(outcome)
    }

    /// Two requirements of one file that come to one resource.
    pub(super) fn same_as_another(
        &mut self,
        wanted: &Wanted,
        id: ResourceId,
        params: Params,
    ) -> (ResourceId, Action, String) {
        let known = self.snapshot.resources.get(&id);
        let before = self.joined.get(&id).copied();
        if self.within.is_empty() {
            self.join(id, known, &wanted.requirement, params);
        }
        let joined = known.is_none() || self.joined.get(&id).copied() != before;
        let action = if joined { Action::Reuse } else { Action::None };
        (id, action, "the same resource as another requirement of this file".to_owned())
    }

    /// This one, or a new one under this key.
    pub(super) fn settle_on(
        &mut self,
        wanted: &Wanted,
        found: Option<&ResourceView>,
        key: &Key,
        take: Take,
    ) -> Result<(ResourceId, Action, String), PlanError> {
        if let Some(resource) = found.filter(|resource| self.served.contains(&resource.id)) {
            return Ok(self.same_as_another(wanted, resource.id, resource.spec.clone()));
        }
        let new_id = ResourceId(self.ids.next());
        let own = self.own(wanted, found, new_id)?;
        let shape = self.shape(wanted, found, new_id, own, take);
        Ok(self.outcome(&shape, found, key))
    }

    /// A key that no other has: it is made of the new one's id.
    pub(super) fn any_key(&self, wanted: &Wanted) -> Key {
        let scope = match &wanted.ask {
            Ask::Fitting(fitting) => fitting.scope,
            _ => Scope::Environment,
        };
        let (kind, class) = (wanted.version.kind.clone(), wanted.class.clone());
        Key { domain: self.snapshot.domain(scope), kind, class, tag: KeyTag::Matched, name: String::new() }
    }

    /// How a requirement is called in the plan: what a template requires hangs below its own requirement.
    pub(super) fn full_name(&self, requirement: &str) -> String {
        let above = self.within.iter().map(|within| within.requirement.as_str());
        above.chain([requirement]).collect::<Vec<_>>().join(".")
    }

    pub(super) fn version_of(&self, resource: ResourceId, wanted: &Wanted) -> Arc<TemplateVersion> {
        if let Some((version, _)) = self.after.get(&resource) {
            return version.clone();
        }
        let known = self.snapshot.resources.get(&resource);
        known.and_then(|known| self.snapshot.versions.get(&known.version)).unwrap_or(&wanted.version).clone()
    }

    pub(super) fn workload(&mut self, wanted: &Wanted) -> Result<(), PlanError> {
        let Ask::Keyed(key) = &wanted.ask else {
            return Ok(());
        };
        let found = match look_up(key, self.snapshot) {
            Err(PlanError::Need(more)) => {
                self.needs.extend(more);
                return Ok(());
            }
            found => found?,
        };
        let new_id = ResourceId(self.ids.next());
        let shape = self.shape(wanted, found, new_id, vec![], Take::AsAsked);
        self.outcome(&shape, found, key);
        Ok(())
    }

    /// What is asked for as symbols, with defaults; `own` is what the template requires, by name.
    pub(super) fn params(
        &self,
        wanted: &Wanted,
        version: &TemplateVersion,
        own: &[(String, Referent)],
        path: &str,
        problems: &mut Vec<Problem>,
    ) -> Params {
        let empty = conductor_score::Metadata::default();
        let metadata = self.goal.metadata.as_ref().unwrap_or(&empty);
        let symbols = Symbols { metadata, referents: &self.referents, short: wanted.short };
        let mut given = symbols.params(&wanted.raw, path, problems);
        for dependency in wanted.depends_on.iter().filter(|d| d.relationship == Relationship::Extends) {
            self.extend(&mut given, version, &dependency.requirement);
        }
        let mut params = version.schema.with_defaults(given);
        self.derive(&mut params, wanted, version, own, path, problems);
        params
    }

    /// Fills in what follows from what the template requires.
    fn derive(
        &self,
        params: &mut Params,
        wanted: &Wanted,
        version: &TemplateVersion,
        own: &[(String, Referent)],
        path: &str,
        problems: &mut Vec<Problem>,
    ) {
        let empty = conductor_score::Metadata::default();
        let metadata = self.goal.metadata.as_ref().unwrap_or(&empty);
        let referents = own.iter().cloned().collect();
        let symbols = Symbols { metadata, referents: &referents, short: true };
        let derived = if own.is_empty() { BTreeSet::new() } else { version.derived() };
        for name in derived.iter().filter(|name| !wanted.raw.contains_key(*name)) {
            if let Some(Expr::Literal(default)) = params.get(name) {
                let expr = symbols.expr(default, &format!("{path}.{name}"), problems);
                params.insert(name.clone(), expr);
            }
        }
    }

    /// What is not said takes the value of the one it extends, secrets excepted.
    fn extend(&self, given: &mut Params, version: &TemplateVersion, base: &str) {
        let Some(base) = self.referents.get(base).map(|referent| referent.resource) else { return };
        let known = self.snapshot.resources.get(&base);
        let known = known.and_then(|r| Some((self.snapshot.versions.get(&r.version)?, &r.spec)));
        let Some((by, params)) = self.after.get(&base).map(|(by, params)| (by, params)).or(known) else {
            return;
        };
        let secret = by.schema.sensitive();
        for (name, expr) in
            params.iter().filter(|(name, _)| version.schema.declares(name) && !secret.contains(*name))
        {
            given.entry(name.clone()).or_insert_with(|| expr.clone());
        }
    }

    /// Symbols, defaults and checks.
    pub(super) fn shape<'w>(
        &mut self,
        wanted: &'w Wanted,
        found: Option<&ResourceView>,
        new_id: ResourceId,
        own: Vec<(String, Referent)>,
        take: Take,
    ) -> Shape<'w> {
        let workload = wanted.version.kind == crate::workload::TYPE;
        let current = found.and_then(|resource| self.snapshot.versions.get(&resource.version));
        let version = match current {
            Some(current)
                if take == Take::AsItIs || !wanted.pinned && current.name == wanted.version.name =>
            {
                current.clone()
            }
            _ => wanted.version.clone(),
        };
        let requirement = self.full_name(&wanted.requirement);
        let path = if workload { "workload".to_owned() } else { format!("resources.{requirement}.params") };
        let mut problems = Vec::new();
        let params = match found {
            Some(resource) if matches!(wanted.ask, Ask::This { .. }) => {
                let mut params = by_hand(wanted, resource, &version, &mut problems);
                self.derive(&mut params, wanted, &version, &own, &path, &mut problems);
                params
            }
            Some(resource) if !wanted.asks_params || take != Take::AsAsked => resource.spec.clone(),
            _ => self.params(wanted, &version, &own, &path, &mut problems),
        };
        if !workload {
            problems.extend(version.schema.check(&params).into_iter().map(|error| Problem {
                path: if error.path.is_empty() { path.clone() } else { format!("{path}.{}", error.path) },
                message: error.message,
                suggestion: error.suggestion,
                at: None,
            }));
        }
        let because = match self.within.last() {
            Some(within) => format!(" (template `{}` requires it)", within.template),
            None => String::new(),
        };
        self.problems.extend(problems.into_iter().map(|problem| Problem {
            message: format!("{}{because}", problem.message),
            at: problem.at.or(wanted.at),
            ..problem
        }));
        self.uses(&params);
        let stated = wanted.depends_on.iter().filter_map(|dependency| {
            Some(RecordedDependency {
                on: self.referents.get(&dependency.requirement)?.resource,
                requirement: dependency.requirement.clone(),
                kind: dependency.kind,
                relationship: dependency.relationship,
                own: false,
                parent: false,
            })
        });
        let required = own.into_iter().map(|(requirement, referent)| RecordedDependency {
            on: referent.resource,
            requirement,
            kind: DependencyKind::Strong,
            relationship: Relationship::Requires,
            own: true,
            parent: false,
        });
        let parents = wanted.parents.iter().map(|id| RecordedDependency {
            on: *id,
            requirement: self.snapshot.resources.get(id).map_or_else(String::new, |r| r.name.clone()),
            kind: DependencyKind::Strong,
            relationship: Relationship::Requires,
            own: false,
            parent: true,
        });
        let on = stated.chain(required).chain(parents);
        // What it depended on went with it; its parameters tell what they still refer to.
        let this = matches!(wanted.ask, Ask::This { .. });
        let remade = found.filter(|resource| this && resource.state == State::Destroyed);
        let on = on.chain(remade.into_iter().flat_map(|_| referred_to(&params))).collect();
        let as_it_is = found.is_some() && (take != Take::AsAsked || this && remade.is_none());
        Shape { wanted, new_id, version, params, on, workload, as_it_is }
    }

    /// Whoever runs the workload, its placeholders name outputs that must be there and stay.
    fn unserved(&mut self) {
        let Some(metadata) = &self.goal.metadata else { return };
        let symbols = Symbols { metadata, referents: &self.referents, short: false };
        let params = symbols.params(&self.goal.unserved, "workload", &mut self.problems);
        self.uses(&params);
    }

    fn uses(&mut self, params: &Params) {
        for reference in params_refs(params) {
            if let Some(output) = reference.path.first() {
                self.used.entry(reference.resource).or_default().insert(output.clone());
            }
        }
    }

    pub(super) fn link(&mut self, wanted: &Wanted, id: ResourceId) -> (ResourceId, Action, String) {
        let resource = &self.snapshot.resources[&id];
        let path = format!("resources.{}.reference.id", wanted.requirement);
        if resource.key.kind != wanted.version.kind {
            let message = format!("`{id}` is a {}, not a {}", resource.key.kind, wanted.version.kind);
            self.refuse(ErrorCode::Invalid, wanted, path, message, None);
        } else if matches!(resource.state, State::Destroy | State::Destroyed) {
            let message = format!("`{id}` ({}) is {}", resource.name, resource.state);
            self.refuse(ErrorCode::Conflict, wanted, path, message, Some("link one that is live".into()));
        } else if resource.open_operation.is_some() {
            self.wait(resource, Until::Ready);
        } else if resource.status == Status::Error || resource.state == State::Provision {
            let message = format!("`{id}` ({}) is not usable: {}", resource.name, describe_trouble(resource));
            self.refuse(ErrorCode::Conflict, wanted, path, message, Some("put it right first".into()));
        }
        self.has_room(wanted, resource);
        self.join(id, Some(resource), &wanted.requirement, Params::new());
        (
            id,
            Action::Link,
            format!("{} was asked for by id; it is linked and never destroyed from here", resource.name),
        )
    }

    pub(super) fn outcome(
        &mut self,
        shape: &Shape<'_>,
        found: Option<&ResourceView>,
        key: &Key,
    ) -> (ResourceId, Action, String) {
        let Some(resource) = found else {
            let id = self.create(shape, key, None, vec![]);
            let none = match (&shape.wanted.ask, self.within.last()) {
                (_, Some(within)) => format!("template `{}` requires it; ", within.template),
                (Ask::Fitting(_), _) => "nothing that is there fits; ".to_owned(),
                (Ask::Pooled { pool, .. }, _) => format!("pool `{}` has none ready; ", pool.name),
                (Ask::Member { .. } | Ask::Made(_) | Ask::This { .. }, _) => String::new(),
                _ => "nothing of that name is there; ".to_owned(),
            };
            return (id, Action::Create, format!("{none}{}", shape.wanted.chosen_because));
        };
        if resource.state == State::Destroyed {
            return self.again(shape, resource, "it is made again under the same record".to_owned());
        }
        if resource.state == State::Destroy {
            return self.outcome_of_doomed(shape, resource, key);
        }
        if resource.status == Status::Pending && resource.open_operation.is_none() && !resource.attempted {
            return self.again(shape, resource, "it was held back last time".to_owned());
        }
        let others = self.has_others(shape, resource);
        let basis = match (&resource.applied, &resource.open_operation) {
            (Some((applied, _)), None) => applied,
            _ => &resource.spec,
        };
        let changed = changed_params(basis, &shape.params);
        let upgraded = match (&resource.applied, &resource.open_operation) {
            (Some((_, version)), None) => *version != shape.version.id,
            _ => resource.version != shape.version.id,
        };
        if !changed.is_empty() && resource.open_operation.is_some() && !others {
            let path = format!("resources.{}.params", shape.wanted.requirement);
            let message = format!("`{}` is being changed by another deployment right now", resource.name);
            self.refuse(
                ErrorCode::Conflict,
                shape.wanted,
                path,
                message,
                Some("deploy again once it is done".into()),
            );
            return (resource.id, Action::None, String::new());
        }
        let upgraded = upgraded && resource.open_operation.is_none();
        if (!changed.is_empty() || upgraded) && others {
            return self.conflict(shape, resource, basis, &changed, upgraded, key);
        }
        if !changed.is_empty() || upgraded {
            return self.change(shape, resource, &changed, upgraded, key);
        }
        if resource.open_operation.is_some() {
            self.wait(resource, Until::Ready);
            self.rejoin(shape, resource);
            return self.unchanged(shape, resource, "it is being made by another deployment");
        }
        if matches!(resource.status, Status::Error | Status::Unknown) || resource.state == State::Provision {
            return self.again(shape, resource, describe_trouble(resource));
        }
        let fed_by_changing = params_refs(&shape.params)
            .iter()
            .any(|r| self.changing.contains(&r.resource) || self.waits.contains_key(&r.resource));
        self.rejoin(shape, resource);
        if fed_by_changing {
            self.operate(shape, resource, OperationKind::Update, true);
            let reason = "what feeds it may change; nothing is run when its inputs stay the same".to_owned();
            return (resource.id, Action::Update, reason);
        }
        self.unchanged(shape, resource, NOTHING_DIFFERS)
    }

    pub(super) fn unchanged(
        &self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        why: &str,
    ) -> (ResourceId, Action, String) {
        let link = (resource.id, shape.wanted.requirement.clone());
        let derived = shape.version.derived();
        let differs =
            |asked: &Params| changed_params(&resource.spec, asked).iter().any(|name| !derived.contains(name));
        let why = match self.asked.get(&link) {
            Some(asked) if shape.as_it_is && why == NOTHING_DIFFERS && differs(asked) => {
                "kept as it is, though other params were asked for"
            }
            _ => why,
        };
        let mine = resource
            .consumers
            .iter()
            .any(|c| self.snapshot.is_mine(c) && c.requirement == shape.wanted.requirement);
        let held = self.within.last().is_some_and(|within| resource.dependents.contains(&within.parent));
        if mine || held {
            return (resource.id, Action::None, why.to_owned());
        }
        let users = match resource.others_named(self.snapshot) {
            names if names.is_empty() => "nobody else uses it".to_owned(),
            names => format!("used by {names}"),
        };
        (
            resource.id,
            Action::Reuse,
            format!("{} `{}` is there ({users}); {why}", resource.key.kind, resource.name),
        )
    }

    pub(super) fn outcome_of_doomed(
        &mut self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        key: &Key,
    ) -> (ResourceId, Action, String) {
        match &resource.open_operation {
            Some(open) if open.status == OperationStatus::InProgress => {
                let wait =
                    Wait { resource: resource.id, generation: resource.generation, until: Until::Gone };
                let id = self.create(shape, key, None, vec![wait]);
                (
                    id,
                    Action::Create,
                    format!("`{}` is being destroyed; made anew once it is gone", resource.name),
                )
            }
            Some(open) if open.begun || resource.applied.is_none() => {
                self.revive(resource);
                let lost = ResourceView { status: Status::Unknown, open_operation: None, ..resource.clone() };
                let why = if open.begun { "its destruction had begun" } else { "it never came about" };
                self.again(shape, &lost, format!("{why}, so it is made again"))
            }
            Some(_) => {
                self.revive(resource);
                let live = ResourceView {
                    state: State::Provisioned,
                    status: Status::Done,
                    open_operation: None,
                    ..resource.clone()
                };
                let (id, action, reason) = self.outcome(shape, Some(&live), key);
                let action = if action == Action::None { Action::Reuse } else { action };
                (id, action, format!("it was waiting for destruction and is kept; {reason}"))
            }
            None if resource.buried_until.is_some() => {
                self.plan.effects.push(Effect::Unbury { resource: resource.id });
                let live = ResourceView {
                    state: State::Provisioned,
                    status: Status::Done,
                    buried_until: None,
                    ..resource.clone()
                };
                let (id, action, reason) = self.outcome(shape, Some(&live), key);
                let action = if action == Action::None { Action::Reuse } else { action };
                (id, action, format!("its time had not come and it is kept; {reason}"))
            }
            None => {
                self.again(shape, resource, "its destruction did not finish, so it is made again".to_owned())
            }
        }
    }

    /// Calls off the destruction of a resource, and of everything it depends on: those were to go after it.
    fn revive(&mut self, resource: &ResourceView) {
        let mut look = vec![resource.id];
        while let Some(id) = look.pop() {
            let Some(resource) = self.snapshot.resources.get(&id) else {
                if !self.snapshot.missing.contains(&id) {
                    self.needs.push(super::Want::Resource(id));
                }
                continue;
            };
            let planned = resource.open_operation.as_ref().filter(|_| resource.state == State::Destroy);
            let Some(open) = planned.filter(|open| open.status != OperationStatus::InProgress) else {
                continue;
            };
            if self.revived.insert(id) {
                self.plan.effects.push(Effect::Revive { resource: id, operation: open.id });
                look.extend(resource.depends_on.iter().copied());
            }
        }
    }

    /// Something that should be there and is not, or not surely: another operation on it.
    pub(super) fn again(
        &mut self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        why: String,
    ) -> (ResourceId, Action, String) {
        let changed = changed_params(&resource.spec, &shape.params);
        if !changed.is_empty() && self.has_others(shape, resource) {
            return self.conflict(shape, resource, &resource.spec, &changed, false, &resource.key);
        }
        let (kind, action) = match resource.state {
            State::Provisioned => (OperationKind::Update, Action::Update),
            _ => (OperationKind::Create, Action::Create),
        };
        self.rejoin(shape, resource);
        self.operate(shape, resource, kind, false);
        (resource.id, action, why)
    }

    pub(super) fn change(
        &mut self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        changed: &BTreeSet<String>,
        upgraded: bool,
        key: &Key,
    ) -> (ResourceId, Action, String) {
        let never_made = resource.applied.is_none();
        let named = changed.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let frozen: Vec<String> = shape.version.schema.frozen().intersection(changed).cloned().collect();
        if !frozen.is_empty() && !never_made {
            let path = format!("resources.{}.params.{}", shape.wanted.requirement, frozen[0]);
            let message = format!("{} is frozen since `{}` was made", frozen.join(", "), resource.name);
            let suggestion = Some("put the old value back, or use a new resource".to_owned());
            self.refuse(ErrorCode::Conflict, shape.wanted, path, message, suggestion);
            return (resource.id, Action::None, String::new());
        }
        let immutable: Vec<String> =
            shape.version.schema.immutable().intersection(changed).cloned().collect();
        let other_template = self
            .snapshot
            .versions
            .get(&resource.version)
            .is_some_and(|current| current.name != shape.version.name);
        if upgraded && !other_template {
            self.keeps_its_contracts(shape, resource);
        }
        let others = self.has_others(shape, resource);
        if others && !never_made && (!immutable.is_empty() || other_template) {
            let path = format!("resources.{}.params", self.full_name(&shape.wanted.requirement));
            let message = format!(
                "`{}` would have to be replaced, and {} use it as well",
                resource.name,
                resource.others_named(self.snapshot)
            );
            self.refuse(ErrorCode::Conflict, shape.wanted, path, message, Some("use another name".into()));
            return (resource.id, Action::None, String::new());
        }
        if !never_made && (!immutable.is_empty() || other_template) {
            let why = if other_template {
                format!("another template serves it now; {}", shape.wanted.chosen_because)
            } else {
                format!("{} cannot be changed in place", immutable.join(", "))
            };
            return (self.replace(shape, resource, key), Action::Replace, why);
        }
        let kind =
            if resource.state == State::Provisioned { OperationKind::Update } else { OperationKind::Create };
        let action = if never_made { Action::Create } else { Action::Update };
        self.rejoin(shape, resource);
        self.operate(shape, resource, kind, false);
        let mut reasons = Vec::new();
        if !changed.is_empty() {
            reasons.push(format!("{named} differ{}", if changed.len() == 1 { "s" } else { "" }));
        }
        if upgraded {
            reasons.push(format!("template version becomes {}", shape.version.version));
        }
        if others {
            reasons.push(format!("{} use it as well", resource.others_named(self.snapshot)));
        }
        (resource.id, action, reasons.join("; "))
    }

    /// Whether somebody else would feel a change: another application, or another resource that its template gave it.
    pub(super) fn has_others(&self, shape: &Shape<'_>, resource: &ResourceView) -> bool {
        let held = match (self.within.last(), shape.workload) {
            (Some(within), false) => resource.dependents.iter().any(|dependent| *dependent != within.parent),
            _ => false,
        };
        held || resource.has_others(self.snapshot)
    }

    /// A new template version must still give every output that some application uses.
    fn keeps_its_contracts(&mut self, shape: &Shape<'_>, resource: &ResourceView) {
        let Some(outputs) = &shape.version.outputs else { return };
        if !resource.has_others(self.snapshot) {
            return;
        }
        let Some(contracts) = self.snapshot.contracts.get(&resource.id) else {
            self.needs.push(super::Want::Contracts(resource.id));
            return;
        };
        let mine = &self.snapshot.application.name;
        let broken: Vec<String> = contracts
            .iter()
            .filter(|(application, output)| {
                application != mine && !outputs.contains_key(output) && output != "id"
            })
            .map(|(application, output)| format!("{application} uses `{output}`"))
            .collect();
        if !broken.is_empty() {
            let message = format!(
                "{} no longer gives what others use of `{}`: {}",
                shape.version.label(),
                resource.name,
                broken.join(", ")
            );
            let path = format!("resources.{}", self.full_name(&shape.wanted.requirement));
            let suggestion =
                "keep these outputs in the new version, or have those applications let go of them first";
            self.refuse(ErrorCode::Conflict, shape.wanted, path, message, Some(suggestion.into()));
        }
    }

    pub(super) fn conflict(
        &mut self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        basis: &Params,
        changed: &BTreeSet<String>,
        upgraded: bool,
        key: &Key,
    ) -> (ResourceId, Action, String) {
        match shape.wanted.on_conflict {
            OnConflict::Update if resource.open_operation.is_none() => {
                self.change(shape, resource, changed, upgraded, key)
            }
            OnConflict::Keep => {
                if resource.open_operation.is_some() {
                    self.wait(resource, Until::Ready);
                }
                self.rejoin(shape, resource);
                let (id, action, reason) =
                    self.unchanged(shape, resource, "kept as it is, though other params were asked for");
                (id, action, reason)
            }
            OnConflict::Fail if changed.is_empty() && upgraded => {
                // A newer template version alone is no conflict: the others keep what they have.
                self.rejoin(shape, resource);
                self.unchanged(shape, resource, "it keeps its template version")
            }
            OnConflict::Update | OnConflict::Fail => {
                let secret = shape.version.schema.sensitive();
                let show = |params: &Params, name: &String| match params.get(name) {
                    _ if secret.contains(name) => "(sensitive)".to_owned(),
                    Some(expr) => {
                        expr.known().map_or_else(|| "a value not known yet".into(), |v| v.to_string())
                    }
                    None => "nothing".to_owned(),
                };
                let sides: Vec<String> = changed
                    .iter()
                    .map(|name| {
                        format!(
                            "`{name}` is {} there and {} here",
                            show(basis, name),
                            show(&shape.params, name)
                        )
                    })
                    .collect();
                let users = match resource.others_named(self.snapshot) {
                    names if names.is_empty() => "others".to_owned(),
                    names => names,
                };
                let message = format!(
                    "{} `{}` is used by {users} with other params: {}",
                    resource.key.kind,
                    resource.name,
                    sides.join("; ")
                );
                let suggestion = "ask for the same params, use another name, or say `onConflict: keep` to take it as \
                                  it is, or `update` to change it for all";
                let path = format!("resources.{}.params", shape.wanted.requirement);
                self.refuse(ErrorCode::Conflict, shape.wanted, path, message, Some(suggestion.into()));
                (resource.id, Action::None, String::new())
            }
        }
    }
}
