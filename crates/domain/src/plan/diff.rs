//! From a goal to a plan: the only code that says create, update, replace, destroy, wait or no, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_score::OnConflict;

use super::{
    Effect, Goal, Item, Key, Plan, PlanError, Problem, RecordedDependency, ResourceView, Snapshot, Until,
    Wait,
    resolve::{Ask, Wanted, look_up},
    symbols::{Referent, Symbols},
};
use crate::{
    catalogue::TemplateVersion,
    expr::{Expr, Params, params_refs},
    ids::{Ids, OperationId, ResourceId},
    lifecycle::{Action, ErrorCode, OperationKind, OperationStatus, State, Status},
};

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
        wanted: BTreeSet::new(),
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
    if !differ.problems.is_empty() {
        return Err(PlanError::Refused { code: differ.code, problems: differ.problems });
    }
    if !differ.needs.is_empty() {
        return Err(PlanError::Need(differ.needs));
    }
    differ.settle_waits();
    differ.removals()?;
    Ok(differ.plan)
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
    /// Whatever this plan wants; its dependencies are what the file says now.
    pub(super) wanted: BTreeSet<ResourceId>,
    pub(super) problems: Vec<Problem>,
    pub(super) code: ErrorCode,
    pub(super) needs: Vec<super::Want>,
}

/// What a wanted resource comes to, once its parameters are known symbols.
pub(super) struct Shape<'w> {
    pub(super) wanted: &'w Wanted,
    pub(super) version: Arc<TemplateVersion>,
    pub(super) params: Params,
    pub(super) on: Vec<RecordedDependency>,
    pub(super) workload: bool,
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
        let (resource, action, reason) = match &wanted.ask {
            Ask::Existing(id) => self.link(wanted, *id),
            Ask::Keyed(key) => match self.settled.get(key).copied() {
                Some(id) => {
                    (id, Action::Reuse, "the same resource as another requirement of this file".to_owned())
                }
                None => {
                    let found = match look_up(key, self.snapshot) {
                        Err(PlanError::Need(more)) => {
                            self.needs.extend(more);
                            None
                        }
                        found => found?,
                    };
                    let shape = self.shape(wanted, found, false);
                    let outcome = self.outcome(&shape, found, key);
                    self.settled.insert(key.clone(), outcome.0);
                    outcome
                }
            },
        };
        let version = self.version_of(resource, wanted);
        let outputs = version.outputs.as_ref().map(|outputs| outputs.keys().cloned().collect());
        self.referents.insert(wanted.requirement.clone(), Referent { resource, outputs });
        self.kept.insert((resource, wanted.requirement.clone()));
        let known = self.snapshot.resources.get(&resource);
        let name = known.map_or_else(|| wanted.name.clone(), |resource| resource.name.clone());
        self.plan.items.push(Item {
            requirement: wanted.requirement.clone(),
            resource,
            name,
            action,
            reason,
        });
        Ok(())
    }

    pub(super) fn version_of(&self, resource: ResourceId, wanted: &Wanted) -> Arc<TemplateVersion> {
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
        let shape = self.shape(wanted, found, true);
        self.outcome(&shape, found, key);
        Ok(())
    }

    /// Symbols, defaults and checks.
    pub(super) fn shape<'w>(
        &mut self,
        wanted: &'w Wanted,
        found: Option<&ResourceView>,
        workload: bool,
    ) -> Shape<'w> {
        let current = found.and_then(|resource| self.snapshot.versions.get(&resource.version));
        let version = match current {
            Some(current) if !wanted.pinned && current.name == wanted.version.name => current.clone(),
            _ => wanted.version.clone(),
        };
        let path =
            if workload { "workload".to_owned() } else { format!("resources.{}.params", wanted.requirement) };
        let empty = conductor_score::Metadata {
            name: String::new(),
            annotations: BTreeMap::new(),
            extra: serde_json::Map::new(),
        };
        let symbols = Symbols {
            metadata: self.goal.metadata.as_ref().unwrap_or(&empty),
            referents: &self.referents,
            short: wanted.short,
        };
        let mut problems = Vec::new();
        let given = symbols.params(&wanted.raw, &path, &mut problems);
        let params = match found {
            Some(resource) if !wanted.asks_params => resource.spec.clone(),
            _ => version.schema.with_defaults(given),
        };
        if !workload {
            problems.extend(version.schema.check(&params).into_iter().map(|error| Problem {
                path: if error.path.is_empty() { path.clone() } else { format!("{path}.{}", error.path) },
                message: error.message,
                suggestion: error.suggestion,
                at: None,
            }));
        }
        self.problems
            .extend(problems.into_iter().map(|problem| Problem { at: problem.at.or(wanted.at), ..problem }));
        let on = wanted
            .depends_on
            .iter()
            .filter_map(|dependency| {
                Some(RecordedDependency {
                    on: self.referents.get(&dependency.requirement)?.resource,
                    requirement: dependency.requirement.clone(),
                    kind: dependency.kind,
                    relationship: dependency.relationship,
                })
            })
            .collect();
        Shape { wanted, version, params, on, workload }
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
            let reason = format!("nothing of that name is there; {}", shape.wanted.chosen_because);
            return (id, Action::Create, reason);
        };
        if resource.state == State::Destroy {
            return self.outcome_of_doomed(shape, resource, key);
        }
        if resource.status == Status::Pending && resource.open_operation.is_none() && !resource.attempted {
            return self.again(shape, resource, "it was held back last time".to_owned());
        }
        let basis = match (&resource.applied, &resource.open_operation) {
            (Some((applied, _)), None) => applied,
            _ => &resource.spec,
        };
        let changed = changed_params(basis, &shape.params);
        let upgraded = match (&resource.applied, &resource.open_operation) {
            (Some((_, version)), None) => *version != shape.version.id,
            _ => resource.version != shape.version.id,
        };
        if !changed.is_empty() && resource.open_operation.is_some() && !resource.has_others(self.snapshot) {
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
        if (!changed.is_empty() || upgraded) && resource.has_others(self.snapshot) {
            return self.conflict(shape, resource, basis, &changed, upgraded);
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
        self.unchanged(shape, resource, "nothing differs")
    }

    pub(super) fn unchanged(
        &self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        why: &str,
    ) -> (ResourceId, Action, String) {
        let mine = resource
            .consumers
            .iter()
            .any(|c| self.snapshot.is_mine(c) && c.requirement == shape.wanted.requirement);
        if mine {
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
            Some(open) if open.begun => {
                self.plan.effects.push(Effect::Revive { resource: resource.id, operation: open.id });
                let lost = ResourceView { status: Status::Unknown, open_operation: None, ..resource.clone() };
                self.again(shape, &lost, "its destruction had begun, so it is made again".to_owned())
            }
            Some(open) => {
                self.plan.effects.push(Effect::Revive { resource: resource.id, operation: open.id });
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
            None => {
                self.again(shape, resource, "its destruction did not finish, so it is made again".to_owned())
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
        if !changed.is_empty() && resource.has_others(self.snapshot) {
            return self.conflict(shape, resource, &resource.spec, &changed, false);
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
        (resource.id, action, reasons.join("; "))
    }

    pub(super) fn conflict(
        &mut self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        basis: &Params,
        changed: &BTreeSet<String>,
        upgraded: bool,
    ) -> (ResourceId, Action, String) {
        match shape.wanted.on_conflict {
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
                let message = format!(
                    "{} `{}` is used by {} with other params: {}",
                    resource.key.kind,
                    resource.name,
                    resource.others_named(self.snapshot),
                    sides.join("; ")
                );
                let suggestion = "ask for the same params, use another name, or say `onConflict: keep` to take it as it is";
                let path = format!("resources.{}.params", shape.wanted.requirement);
                self.refuse(ErrorCode::Conflict, shape.wanted, path, message, Some(suggestion.into()));
                (resource.id, Action::None, String::new())
            }
        }
    }
}

fn changed_params(before: &Params, after: &Params) -> BTreeSet<String> {
    let absent = Expr::Literal(serde_json::Value::Null);
    before
        .keys()
        .chain(after.keys())
        .filter(|name| before.get(*name).unwrap_or(&absent) != after.get(*name).unwrap_or(&absent))
        .cloned()
        .collect()
}

fn describe_trouble(resource: &ResourceView) -> String {
    let what = match (resource.state, resource.status) {
        (_, Status::Unknown) => "its last outcome is not known",
        (State::Provisioned, _) => "its last change failed",
        _ => "its last attempt failed",
    };
    match &resource.message {
        Some(message) => format!("{what}: {message}"),
        None => what.to_owned(),
    }
}
