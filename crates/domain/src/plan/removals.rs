//! What is no longer wanted: released, or destroyed when nothing keeps it, dependents first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Effect, Item, PlanError, ResourceView, Wait,
    diff::Differ,
    resolve::{look_up, workload_key},
};
use crate::{
    ids::{OperationId, ResourceId},
    lifecycle::{Action, KeptBy, OperationKind, State},
};

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
        let mut links: BTreeMap<ResourceId, Vec<String>> = BTreeMap::new();
        for resource in self.snapshot.resources.values() {
            for consumer in resource.consumers.iter().filter(|c| self.snapshot.is_mine(c)) {
                let link = (resource.id, consumer.requirement.clone());
                if !self.kept.contains(&link) && !self.is_replaced(resource.id) {
                    links.entry(link.0).or_default().push(link.1);
                }
            }
        }
        if self.goal.workload.is_none() && self.goal.metadata.is_none() {
            match look_up(&workload_key(self.snapshot), self.snapshot)? {
                Some(workload) if workload.state != State::Destroyed => {
                    links.entry(workload.id).or_default();
                }
                _ => {}
            }
        }
        let mut going: BTreeSet<ResourceId> = links.keys().copied().collect();
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
        for (id, requirements) in &links {
            let resource = &self.snapshot.resources[id];
            for requirement in requirements {
                self.plan.effects.push(Effect::Leave { resource: *id, requirement: requirement.clone() });
                let (action, reason) = match stays.get(id) {
                    Some(reason) => (Action::Release, reason.clone()),
                    None => (Action::Remove, "nothing uses it any more".to_owned()),
                };
                self.plan.removals.push(Item {
                    requirement: requirement.clone(),
                    resource: *id,
                    name: resource.name.clone(),
                    action,
                    reason,
                });
            }
        }
        self.late_replacements(&tail);
        Ok(())
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
        match resource.kept_by {
            KeptBy::Consumers => {}
            KeptBy::Pool => return Some("it goes back to its pool".into()),
            KeptBy::Hand => return Some("it was made by hand and stays".into()),
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
        if self.kept.iter().any(|(kept, _)| *kept == resource.id) {
            return Some("another requirement of this application uses it".into());
        }
        let blockers: Vec<String> = resource
            .dependents
            .iter()
            .filter(|dependent| !going.contains(dependent) && !self.wanted.contains(dependent))
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
        self.plan
            .effects
            .push(Effect::Doom { resource: resource.id, from: (resource.state, resource.status) });
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
