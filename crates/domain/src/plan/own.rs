//! What a template requires for each of its resources: made with it, handed to it, gone with the last that needs it.

use std::collections::BTreeMap;

use conductor_score::{OnConflict, Resource};

use super::{
    Item, Key, KeyTag, PlanError, ResourceView, Want,
    asking::want,
    diff::{Differ, Within},
    resolve::{Ask, Wanted, in_order},
    symbols::Referent,
};
use crate::{
    ids::ResourceId,
    lifecycle::{Action, ErrorCode, OperationStatus, State},
};

/// Templates that require one another are nested at most so deep.
const DEEPEST: usize = 16;

impl Differ<'_> {
    /// Provides what the template of `wanted` requires, before the resource itself: the same ones as before where it
    /// is there already.
    pub(super) fn own(
        &mut self,
        wanted: &Wanted,
        found: Option<&ResourceView>,
        new_id: ResourceId,
    ) -> Result<Vec<(String, Referent)>, PlanError> {
        let version = match found.and_then(|resource| self.snapshot.versions.get(&resource.version)) {
            Some(current) if !wanted.pinned && current.name == wanted.version.name => current.clone(),
            _ => wanted.version.clone(),
        };
        if version.requires.is_empty() {
            return Ok(vec![]);
        }
        let goes = |resource: &&ResourceView| {
            let busy = resource.open_operation.as_ref();
            resource.state == State::Destroy && busy.is_some_and(|o| o.status == OperationStatus::InProgress)
        };
        let found = found.filter(|resource| !goes(resource));
        let parent = found.map_or(new_id, |resource| resource.id);
        let chain: Vec<&str> = self.within.iter().map(|within| within.template.as_str()).collect();
        if chain.contains(&version.name.as_str()) || chain.len() >= DEEPEST {
            let path = format!("resources.{}", self.full_name(&wanted.requirement));
            let message =
                format!("these templates require each other: {} → {}", chain.join(" → "), version.name);
            let suggestion = Some("take one of them out of `requires`".to_owned());
            self.refuse(ErrorCode::Invalid, wanted, path, message, suggestion);
            return Ok(vec![]);
        }
        let mut required = BTreeMap::new();
        for (name, resource) in &version.requires {
            match self.required(name, resource, found, parent) {
                Ok(one) => drop(required.insert(name.as_str(), Wanted { at: wanted.at, ..one })),
                Err(PlanError::Need(more)) => self.needs.extend(more),
                Err(PlanError::Refused { code, problems }) => {
                    let above = format!("resources.{}", self.full_name(&wanted.requirement));
                    self.code = code;
                    self.problems.extend(problems.into_iter().map(|problem| super::Problem {
                        path: problem.path.replacen("resources", &above, 1),
                        message: format!("{} (template `{}` requires it)", problem.message, version.name),
                        at: wanted.at,
                        ..problem
                    }));
                }
            }
        }
        if required.len() < version.requires.len() {
            return Ok(vec![]);
        }
        let ordered = in_order(required)?;
        let outside = std::mem::take(&mut self.referents);
        let candidates = std::mem::take(&mut self.candidates);
        self.within.push(Within {
            requirement: wanted.requirement.clone(),
            template: version.name.clone(),
            parent,
        });
        let served = ordered.iter().try_for_each(|one| self.requirement(one));
        self.within.pop();
        self.candidates = candidates;
        let own = std::mem::replace(&mut self.referents, outside);
        served?;
        Ok(own.into_iter().collect())
    }

    /// Whether what is being planned is required by something that this plan makes.
    pub(super) fn is_of_a_new_one(&self) -> bool {
        let parent = self.within.last().map(|within| within.parent);
        parent.is_some_and(|parent| !self.snapshot.resources.contains_key(&parent))
    }

    fn required(
        &self,
        name: &str,
        resource: &Resource,
        found: Option<&ResourceView>,
        parent: ResourceId,
    ) -> Result<Wanted, PlanError> {
        let mut wanted = want(name, resource, self.snapshot, &mut Vec::new())?;
        let before = found.and_then(|found| found.own.get(name));
        match before {
            Some(id) => match self.snapshot.resources.get(id) {
                Some(known) => wanted.ask = Ask::Keyed(known.key.clone()),
                None if self.snapshot.missing.contains(id) => {}
                None => return Err(PlanError::Need(vec![Want::Resource(*id)])),
            },
            None => {
                if let Ask::Keyed(Key { tag: KeyTag::Dedicated, name: key, .. }) = &mut wanted.ask {
                    *key = format!("{parent}/{name}");
                }
            }
        }
        if found.is_some_and(|found| found.has_others(self.snapshot)) {
            wanted.on_conflict = OnConflict::Keep;
        }
        Ok(wanted)
    }

    /// What goes with these: required by their templates, used by nobody, and not needed by anything that stays.
    pub(super) fn own_of(&self, id: ResourceId) -> Result<Vec<ResourceId>, PlanError> {
        let own = self.snapshot.resources[&id].own.values();
        let unknown: Vec<Want> = own
            .clone()
            .filter(|id| !self.snapshot.resources.contains_key(id) && !self.snapshot.missing.contains(id))
            .map(|id| Want::Resource(*id))
            .collect();
        if !unknown.is_empty() {
            return Err(PlanError::Need(unknown));
        }
        Ok(own.filter(|id| self.snapshot.resources.contains_key(id)).copied().collect())
    }

    pub(super) fn own_item(&self, id: ResourceId, called: &str) -> Item {
        Item {
            requirement: called.to_owned(),
            resource: id,
            name: self.snapshot.resources[&id].name.clone(),
            action: Action::Remove,
            reason: "it was required by what goes, and nothing else needs it".to_owned(),
            candidates: vec![],
            other_candidates: 0,
        }
    }
}
