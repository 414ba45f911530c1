//! What is no longer wanted: released, or destroyed when nothing keeps it, dependents first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Effect, Item, PlanError, ResourceView, Wait,
    diff::Differ,
    resolve::{look_up, workload_key},
};
use crate::{
    ids::{ApplicationId, OperationId, ResourceId},
    lifecycle::{Action, KeptBy, OperationKind, State},
};

/// One use that ends.
pub(super) struct Link {
    application: ApplicationId,
    application_name: String,
    requirement: String,
}

pub(super) type Links = BTreeMap<ResourceId, Vec<Link>>;

impl Differ<'_> {
    /// What is waited for must hang on an operation, so that the change ends when it does.
    pub(super) fn settle_waits(&mut self) {
        let hanging: BTreeSet<Wait> =
            self.plan.operations.iter().flat_map(|op| op.waits.iter().copied()).collect();
        let loose: Vec<Wait> = self.waits.values().filter(|wait| !hanging.contains(wait)).copied().collect();
        if self.goal.workload.is_some() && loose.is_empty()
            || self.plan.operations.is_empty() && loose.is_empty()
        {
            return;
        }
        let after = self.made.values().copied().collect();
        let id = self.operation(None, OperationKind::Settle, 0, false, None, &[], loose);
        if let Some(settle) = self.plan.operations.iter_mut().find(|op| op.id == id) {
            settle.after = after;
        }
    }

    pub(super) fn removals(&mut self) -> Result<(), PlanError> {
        let tail: Vec<OperationId> = self.plan.operations.iter().map(|op| op.id).collect();
        let mut links: Links = BTreeMap::new();
        for resource in self.snapshot.resources.values() {
            for consumer in resource.consumers.iter().filter(|c| self.snapshot.is_mine(c)) {
                let link = (resource.id, consumer.requirement.clone());
                if !self.kept.contains(&link) && !self.is_replaced(resource.id) {
                    links.entry(resource.id).or_default().push(Link {
                        application: consumer.application,
                        application_name: consumer.application_name.clone(),
                        requirement: link.1,
                    });
                }
            }
        }
        if let Some(teardown) = self.goal.teardown {
            self.whole_environment(teardown, &mut links)?;
        } else if self.goal.workload.is_none() && self.goal.metadata.is_none() {
            match look_up(&workload_key(self.snapshot), self.snapshot)? {
                Some(workload) if workload.state != State::Destroyed => {
                    links.entry(workload.id).or_default();
                }
                _ => {}
            }
        }
        let mut going: BTreeSet<ResourceId> = links.keys().copied().collect();
        let mut own: BTreeMap<ResourceId, String> = BTreeMap::new();
        let mut look: Vec<ResourceId> = going.iter().copied().collect();
        while let Some(id) = look.pop() {
            for required in self.own_of(id)? {
                if going.insert(required) {
                    own.insert(required, self.called_in(id, required, &links, &own));
                    look.push(required);
                }
            }
        }
        let mut stays = BTreeMap::new();
        loop {
            let why = |id: &ResourceId| Some((*id, self.why_it_stays(&self.snapshot.resources[id], &going)?));
            let staying: Vec<(ResourceId, String)> = going.iter().filter_map(why).collect();
            if staying.is_empty() {
                break;
            }
            for (id, reason) in staying {
                going.remove(&id);
                stays.insert(id, reason);
            }
        }
        for id in self.dependents_first(&going) {
            self.destroy(&self.snapshot.resources[&id], &going, &tail);
        }
        let gone_as_well: Vec<Item> = own
            .iter()
            .filter(|(id, _)| going.contains(id))
            .map(|(id, called)| self.own_item(*id, called))
            .collect();
        for (id, links) in &links {
            let resource = &self.snapshot.resources[id];
            let grace = self.grace(resource);
            let (action, reason) = match stays.get(id) {
                Some(reason) => (Action::Release, reason.clone()),
                None if self.goal.teardown.is_some() => {
                    (Action::Remove, "its environment is torn down".to_owned())
                }
                None if grace > 0 && !resource.workload => {
                    let within = crate::lifecycle::duration_text(grace);
                    let reason = format!(
                        "nothing uses it any more; it is destroyed in {within}, unless it is undeleted"
                    );
                    (Action::Remove, reason)
                }
                None => (Action::Remove, "nothing uses it any more".to_owned()),
            };
            let item = |requirement: String| Item {
                requirement,
                resource: *id,
                name: resource.name.clone(),
                action,
                reason: reason.clone(),
                candidates: vec![],
                other_candidates: 0,
            };
            for Link { application, application_name, requirement } in links {
                let (application, requirement) = (*application, requirement.clone());
                let known_as = match self.snapshot.everyone {
                    true => format!("{application_name}/{requirement}"),
                    false => requirement.clone(),
                };
                self.plan.removals.push(item(known_as));
                self.plan.effects.push(Effect::Leave { resource: *id, application, requirement });
            }
            if links.is_empty() && self.snapshot.everyone && !resource.workload {
                self.plan.removals.push(item(resource.name.clone()));
            }
        }
        self.plan.removals.extend(gone_as_well);
        self.late_replacements(&tail);
        Ok(())
    }

    /// How a resource that was required by another's template is called in the plan.
    fn called_in(
        &self,
        parent: ResourceId,
        id: ResourceId,
        links: &Links,
        own: &BTreeMap<ResourceId, String>,
    ) -> String {
        let above = own.get(&parent).cloned();
        let above = above.or_else(|| Some(links.get(&parent)?.first()?.requirement.clone()));
        let known_as = self.snapshot.resources[&parent].own.iter().find(|(_, own)| **own == id);
        format!("{}.{}", above.unwrap_or_default(), known_as.map_or("", |(name, _)| name))
    }

    /// How long it is kept for somebody to think again. What never came about needs no such time.
    fn grace(&self, resource: &ResourceView) -> i64 {
        let version = self.snapshot.versions.get(&resource.version);
        let by_hand = self.goal.teardown.is_some() || self.goal.remove.is_some();
        let grace = version.filter(|_| !by_hand);
        let grace = grace.map_or(0, |version| version.grace.max(self.snapshot.environment.grace));
        if resource.state == State::Provisioned && resource.open_operation.is_none() { grace } else { 0 }
    }

    pub(super) fn is_replaced(&self, id: ResourceId) -> bool {
        self.plan.effects.iter().any(|effect| matches!(effect, Effect::Replaced { old, .. } if *old == id))
    }

    pub(super) fn why_it_stays(
        &self,
        resource: &ResourceView,
        going: &BTreeSet<ResourceId>,
    ) -> Option<String> {
        if resource.workload {
            return None;
        }
        let torn_down =
            self.goal.teardown.is_some() && resource.key.domain == self.snapshot.environment.domain;
        match resource.kept_by {
            KeptBy::Consumers => {}
            KeptBy::Pool if torn_down => {}
            KeptBy::Pool => return Some("it goes back to its pool".into()),
            KeptBy::Hand if torn_down || self.goal.remove == Some(resource.id) => {}
            KeptBy::Hand => return Some("it is retained, and stays until somebody destroys it".into()),
            KeptBy::External => return Some("it is not Conductor's to destroy".into()),
        }
        if resource.protected {
            return Some("it is protected".into());
        }
        if resource.has_others(self.snapshot) {
            return Some(format!("still used by {}", resource.others_named(self.snapshot)));
        }
        if resource.open_operation.is_some() && resource.state != State::Destroy {
            return Some(
                "another deployment is busy with it; it goes when that is done and nobody uses it".into(),
            );
        }
        if self.served.contains(&resource.id) {
            return Some("something else that this application asks for uses it".into());
        }
        let blockers: Vec<String> = resource
            .dependents
            .iter()
            .filter(|dependent| {
                let kept_for_a_while = |id| self.grace(&self.snapshot.resources[id]) > 0;
                !self.restated.contains(dependent)
                    && (!going.contains(dependent) || kept_for_a_while(*dependent))
            })
            .map(|dependent| {
                self.snapshot
                    .resources
                    .get(dependent)
                    .map_or_else(|| dependent.to_string(), |r| r.name.clone())
            })
            .collect();
        (!blockers.is_empty()).then(|| format!("{} depends on it", blockers.join(", ")))
    }

    pub(super) fn dependents_first(&self, going: &BTreeSet<ResourceId>) -> Vec<ResourceId> {
        let ids: Vec<ResourceId> = going.iter().copied().collect();
        let index: BTreeMap<ResourceId, usize> = ids.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let before: Vec<Vec<usize>> = ids
            .iter()
            .map(|id| {
                self.snapshot.resources[id].dependents.iter().filter_map(|d| index.get(d).copied()).collect()
            })
            .collect();
        match super::order::dependency_order(&before) {
            Ok(order) => order.into_iter().map(|i| ids[i]).collect(),
            Err(_) => ids,
        }
    }

    pub(super) fn destroy(
        &mut self,
        resource: &ResourceView,
        going: &BTreeSet<ResourceId>,
        tail: &[OperationId],
    ) {
        if resource.state == State::Destroyed
            || resource.state == State::Destroy && resource.open_operation.is_some()
        {
            return;
        }
        let from = (resource.state, resource.status);
        // Kept for a while: it is put aside when the last user has left, and no sooner.
        if self.grace(resource) > 0 && !resource.workload {
            return;
        }
        self.plan.effects.push(Effect::Doom { resource: resource.id, from });
        let manager = if resource.attempted || resource.applied.is_some() {
            self.snapshot.versions.get(&resource.version).map(|version| version.manager.clone())
        } else {
            None
        };
        let before: BTreeSet<OperationId> = resource
            .dependents
            .iter()
            .filter(|dependent| going.contains(dependent))
            .filter_map(|dependent| self.made.get(dependent).copied())
            .chain(tail.iter().copied())
            .collect();
        self.destruction(resource, manager.as_deref(), before.into_iter().collect());
    }

    /// The operation that destroys, after these.
    pub(super) fn destruction(
        &mut self,
        resource: &ResourceView,
        manager: Option<&str>,
        after: Vec<OperationId>,
    ) -> OperationId {
        let (id, generation) = (Some(resource.id), resource.generation);
        let operation = self.operation(id, OperationKind::Destroy, generation, false, manager, &[], vec![]);
        if let Some(planned) = self.plan.operations.last_mut() {
            planned.after = after;
        }
        operation
    }

    /// Create-first replacements: the old ones go last.
    pub(super) fn late_replacements(&mut self, tail: &[OperationId]) {
        let replaced: Vec<ResourceId> = self
            .plan
            .effects
            .iter()
            .filter_map(|effect| match effect {
                Effect::Replaced { old, .. } if !self.made.contains_key(old) => Some(*old),
                _ => None,
            })
            .collect();
        for old in replaced {
            let resource = &self.snapshot.resources[&old];
            let manager = self.snapshot.versions.get(&resource.version).map(|v| v.manager.clone());
            self.destruction(resource, manager.as_deref(), tail.to_vec());
        }
    }
}
