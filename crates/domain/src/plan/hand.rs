//! What people do without a Score file: make one, change one, take one away, tear an environment down.

use std::collections::BTreeSet;

use conductor_score::{DependencyKind, Relationship};
use serde_json::{Map, Value};

use super::{
    Effect, Item, Key, KeyTag, PlanError, Problem, RecordedDependency, ResourceView, Want,
    diff::{Differ, Take},
    removals::Links,
    resolve::{Ask, Teardown, Wanted, look_up},
};
use crate::{
    catalogue::TemplateVersion,
    expr::{Expr, Params, params_refs},
    ids::{OperationId, ResourceId},
    lifecycle::{Action, ErrorCode, OperationKind, State},
};

/// The parameters a resource has, with what somebody changes of them. Those that its template no longer knows go.
pub(super) fn by_hand(
    wanted: &Wanted,
    resource: &ResourceView,
    version: &TemplateVersion,
    problems: &mut Vec<Problem>,
) -> Params {
    let mut params = match &wanted.ask {
        Ask::This { whole: Some(whole), .. } => whole.clone(),
        _ => resource.spec.clone(),
    };
    // What its template required went with it: those parameters follow from what is made for it now.
    if resource.state == State::Destroyed {
        let derived = version.derived();
        params.retain(|name, _| !derived.contains(name));
    }
    if wanted.set.contains_key("") {
        let (path, message) = ("set".to_owned(), "a parameter without a name".to_owned());
        problems.push(Problem { path, message, suggestion: None, at: None });
    }
    let params = std::mem::take(&mut params);
    changed_by_hand(params, &wanted.set, version, version.id != resource.version)
}

/// Parameters with what somebody changes of them, defaults filled in. With another version those go that it does not
/// know.
pub fn changed_by_hand(
    mut params: Params,
    set: &Map<String, Value>,
    version: &TemplateVersion,
    other_version: bool,
) -> Params {
    if other_version {
        params.retain(|name, _| version.schema.declares(name));
    }
    for (name, value) in set {
        match value.is_null() {
            true => drop(params.remove(name)),
            false => drop(params.insert(name.clone(), Expr::Literal(value.clone()))),
        }
    }
    version.schema.with_defaults(params)
}

fn no(code: ErrorCode, message: String) -> PlanError {
    let problem = Problem { path: "resource".into(), message, suggestion: None, at: None };
    PlanError::Refused { code, problems: vec![problem] }
}

/// Another change is at it.
fn busy(resource: &ResourceView) -> PlanError {
    let (name, state, status) = (&resource.name, resource.state, resource.status);
    no(ErrorCode::Conflict, format!("`{name}` is {state}/{status}: another change is at it"))
}

/// What parameters refer to, as dependencies.
pub(super) fn referred_to(params: &Params) -> BTreeSet<RecordedDependency> {
    let on = params_refs(params).into_iter().map(|reference| RecordedDependency {
        on: reference.resource,
        requirement: reference.resource.to_string(),
        kind: DependencyKind::Output,
        relationship: Relationship::Requires,
        own: false,
        parent: false,
    });
    on.collect()
}

impl Differ<'_> {
    /// A new one under a name that nothing living has.
    pub(super) fn make(
        &mut self,
        wanted: &Wanted,
        key: &Key,
    ) -> Result<(ResourceId, Action, String), PlanError> {
        if let Some(there) = look_up(key, self.snapshot)? {
            let message = format!("{} `{}` is there already ({})", key.kind, key.name, there.id);
            let suggestion = Some("use another name, or change that one".to_owned());
            self.refuse(ErrorCode::Conflict, wanted, "name".into(), message, suggestion);
        }
        for id in &wanted.parents {
            let parent = &self.snapshot.resources[id];
            if parent.state != State::Provisioned && parent.open_operation.is_none() {
                let message = format!("its parent `{}` is {}, not provisioned", parent.name, parent.state);
                self.refuse(ErrorCode::Conflict, wanted, "parents".into(), message, None);
            }
            if parent.open_operation.is_some() && parent.state != State::Destroy {
                self.wait(parent, super::Until::Ready);
            }
        }
        self.settle_on(wanted, None, key, Take::AsAsked)
    }

    /// One that is there, or was: made again or changed, by hand.
    pub(super) fn once_more(
        &mut self,
        wanted: &Wanted,
        id: ResourceId,
        anyway: bool,
    ) -> Result<(ResourceId, Action, String), PlanError> {
        let resource = &self.snapshot.resources[&id];
        if resource.state == State::Destroy || resource.open_operation.is_some() {
            return Err(busy(resource));
        }
        if resource.state == State::Destroyed && resource.key.tag != KeyTag::Matched {
            let there = look_up(&resource.key, self.snapshot)?;
            if let Some(other) = there.filter(|other| other.id != id) {
                let message = format!("`{}` took its place ({})", other.name, other.id);
                self.refuse(ErrorCode::Conflict, wanted, "resource".into(), message, None);
            }
        }
        if resource.state == State::Destroyed {
            self.still_there(wanted, resource);
        }
        let (outcome, action, reason) =
            self.settle_on(wanted, Some(resource), &resource.key, Take::AsAsked)?;
        let idle = matches!(action, Action::None | Action::Reuse) && self.plan.operations.is_empty();
        if anyway && idle && self.problems.is_empty() {
            let shape = self.shape(wanted, Some(resource), id, vec![], Take::AsAsked);
            self.operate(&shape, resource, OperationKind::Update, false);
            return Ok((id, Action::Update, "it is applied once more".to_owned()));
        }
        Ok((outcome, action, reason))
    }

    /// What it was made of must be there to make it again. What its template requires is made with it.
    fn still_there(&mut self, wanted: &Wanted, resource: &ResourceView) {
        let derived = wanted.version.derived();
        let stated = resource.spec.iter().filter(|(name, _)| !derived.contains(*name));
        let stated: Params = stated.map(|(name, expr)| (name.clone(), expr.clone())).collect();
        for dependency in referred_to(&stated) {
            match self.snapshot.resources.get(&dependency.on) {
                None if self.snapshot.missing.contains(&dependency.on) => {}
                None => self.needs.push(Want::Resource(dependency.on)),
                Some(on) if matches!(on.state, State::Provision | State::Provisioned) => {}
                Some(on) => {
                    let message = format!("it refers to `{}` ({}), which is {}", on.name, on.id, on.state);
                    let suggestion = Some("recreate that one first".to_owned());
                    self.refuse(ErrorCode::Conflict, wanted, "resource".into(), message, suggestion);
                }
            }
        }
    }

    /// One goes, and what its template required with it.
    pub(super) fn remove(&mut self, id: ResourceId) -> Result<(), PlanError> {
        let resource = &self.snapshot.resources[&id];
        if resource.open_operation.is_some() && resource.state != State::Destroy {
            return Err(busy(resource));
        }
        if resource.protected || resource.consumer_count > 0 || !resource.dependents.is_empty() {
            return Err(no(
                ErrorCode::InUse,
                format!("`{}` is protected, or something needs it", resource.name),
            ));
        }
        let mut going = BTreeSet::from([id]);
        let mut look = vec![id];
        while let Some(one) = look.pop() {
            for required in self.own_of(one)? {
                if going.insert(required) {
                    look.push(required);
                }
            }
        }
        loop {
            let stays = |one: &&ResourceId| {
                **one != id && self.why_it_stays(&self.snapshot.resources[one], &going).is_some()
            };
            let staying: Vec<ResourceId> = going.iter().filter(stays).copied().collect();
            if staying.is_empty() {
                break;
            }
            going.retain(|one| !staying.contains(one));
        }
        let tail: Vec<OperationId> = vec![];
        for one in self.dependents_first(&going) {
            let resource = &self.snapshot.resources[&one];
            self.destroy(resource, &going, &tail);
            let reason = if one == id { "somebody asked for it" } else { "it was required by what goes" };
            self.plan.removals.push(Item {
                requirement: resource.name.clone(),
                resource: one,
                name: resource.name.clone(),
                action: Action::Remove,
                reason: reason.to_owned(),
                candidates: vec![],
                other_candidates: 0,
            });
        }
        Ok(())
    }

    /// Everything that belongs to the environment goes, used or not. What is protected says no, by name.
    pub(super) fn whole_environment(
        &mut self,
        teardown: Teardown,
        links: &mut Links,
    ) -> Result<(), PlanError> {
        let here = self.snapshot.environment.domain;
        let belongs =
            |resource: &&ResourceView| resource.key.domain == here && resource.state != State::Destroyed;
        let mut problems = Vec::new();
        for resource in self.snapshot.resources.values().filter(belongs) {
            links.entry(resource.id).or_default();
            if resource.protected && !teardown.keep_protected {
                problems.push(Problem {
                    path: resource.id.to_string(),
                    message: format!(
                        "{} `{}` ({}) is protected",
                        resource.key.kind, resource.name, resource.id
                    ),
                    suggestion: Some(
                        "`conductor resources unprotect` it, or tear down the rest with --keep-protected"
                            .into(),
                    ),
                    at: None,
                });
            }
        }
        let pools = self.snapshot.pool_names.iter();
        self.plan.warnings.extend(pools.map(|pool| format!("pool `{pool}` goes as well")));
        match problems.is_empty() {
            true => Ok(()),
            false => Err(PlanError::Refused { code: ErrorCode::Conflict, problems }),
        }
    }

    /// One goes and its like comes: probably only the name changed, which need not cost anything.
    pub(super) fn likely_renames(&mut self) {
        let mut offers = Vec::new();
        for item in self.plan.removals.iter().filter(|item| item.action == Action::Remove) {
            let Some(old) = self.snapshot.resources.get(&item.resource) else { continue };
            let made = self.plan.effects.iter().find_map(|effect| match effect {
                Effect::Create(new)
                    if new.key.tag == old.key.tag
                        && new.key.kind == old.key.kind
                        && new.key.class == old.key.class
                        && new.version == old.version
                        && new.replaces.is_none()
                        && new.params == old.spec
                        && old.applied.is_some() =>
                {
                    Some(new.id)
                }
                _ => None,
            });
            let new = made.and_then(|id| self.plan.items.iter().find(|item| item.resource == id));
            if let Some(new) = new.filter(|new| !new.requirement.contains('.')) {
                offers.push(format!(
                    "`{}` goes and `{}` is made just like it: if it was only renamed, write `alias: {}` there \
                     and it is kept",
                    item.requirement, new.requirement, item.requirement
                ));
            }
        }
        self.plan.warnings.extend(offers);
    }
}
