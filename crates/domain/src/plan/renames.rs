//! Renaming without loss: what a requirement had under its old name is relabelled, and planned as if it had always been
//! called so.

use std::collections::BTreeMap;

use super::{
    Effect, Goal, Key, KeyTag, PlanError, Problem, ResourceView, Snapshot, Want,
    resolve::{Ask, Wanted, look_up, refused},
};
use crate::{
    ids::ResourceId,
    lifecycle::{Action, State},
};

/// One requirement that was called something else before.
struct Rename {
    resource: ResourceId,
    from: String,
    to: String,
    key: Option<Key>,
    name: String,
}

/// What is renamed by this goal, and the world as if it had been already.
pub(super) struct Renamed {
    pub snapshot: Snapshot,
    renames: Vec<Rename>,
}

impl Renamed {
    /// Where it is asked for: `None` when nothing is renamed.
    pub fn of(goal: &Goal, snapshot: &Snapshot) -> Result<Option<Self>, PlanError> {
        let mut renames = Vec::new();
        for wanted in goal.wanted.iter().filter(|wanted| wanted.alias.is_some()) {
            renames.extend(rename(wanted, goal, snapshot)?);
        }
        if renames.is_empty() {
            return Ok(None);
        }
        let mut snapshot = snapshot.clone();
        for rename in &renames {
            relabel(&mut snapshot, rename);
        }
        Ok(Some(Self { snapshot, renames }))
    }

    /// Writes the new names down before anything else, and says so.
    pub fn tell(self, plan: &mut super::Plan) {
        let told: BTreeMap<&str, &Rename> = self.renames.iter().map(|r| (r.to.as_str(), r)).collect();
        for item in &mut plan.items {
            let Some(rename) = told.get(item.requirement.as_str()) else { continue };
            match item.action {
                Action::None | Action::Reuse => {
                    item.action = Action::Rename;
                    item.reason = format!("it was called `{}` before; nothing else changes", rename.from);
                }
                _ => item.reason = format!("it was called `{}` before; {}", rename.from, item.reason),
            }
        }
        let effects = self.renames.into_iter().map(|rename| Effect::Rename {
            resource: rename.resource,
            from: rename.from,
            to: rename.to,
            key: rename.key.map(|key| key.name),
            name: rename.name,
        });
        plan.effects.splice(0..0, effects);
    }
}

fn rename(wanted: &Wanted, goal: &Goal, snapshot: &Snapshot) -> Result<Option<Rename>, PlanError> {
    let alias = wanted.alias.as_deref().unwrap_or_default();
    let refuse = |message: String, suggestion: &str| {
        let path = format!("resources.{}.alias", wanted.requirement);
        let suggestion = Some(suggestion.to_owned());
        refused(vec![Problem { path, message, suggestion, at: wanted.at }])
    };
    if goal.wanted.iter().any(|other| other.requirement == alias) {
        let message = format!("`{alias}` is still in this file, so `{}` cannot be it", wanted.requirement);
        return Err(refuse(message, "take one of the two out"));
    }
    if goal.wanted.iter().any(|other| other.requirement != wanted.requirement && other.alias == wanted.alias)
    {
        let message = format!("two requirements say that they were called `{alias}`");
        return Err(refuse(message, "only one can be"));
    }
    let uses = |resource: &ResourceView, requirement: &str| {
        resource.consumers.iter().any(|c| snapshot.is_mine(c) && c.requirement == requirement)
    };
    let fits = |resource: &&ResourceView| {
        resource.key.kind == wanted.version.kind
            && resource.key.class == wanted.class
            && resource.state != State::Destroyed
    };
    // Renamed already, or never known by the old name here: nothing to do.
    if snapshot.resources.values().any(|resource| uses(resource, &wanted.requirement)) {
        return Ok(None);
    }
    let by_name = snapshot.resources.values().find(|resource| uses(resource, alias));
    let old = match by_name {
        Some(resource) => Some((resource, alias.to_owned())),
        None => by_id(alias, snapshot)?,
    };
    let Some((resource, from)) = old else { return Ok(None) };
    if !fits(&resource) {
        let message = format!(
            "`{alias}` is a {} of class {}, not a {} of class {}",
            resource.key.kind, resource.key.class, wanted.version.kind, wanted.class
        );
        return Err(refuse(message, "leave `alias` out: another type is another resource"));
    }
    let key = match &wanted.ask {
        Ask::Keyed(key) if *key == resource.key => None,
        Ask::Keyed(key) if key.tag == resource.key.tag && key.domain == resource.key.domain => {
            if let Some(other) = look_up(key, snapshot)?.filter(|other| other.id != resource.id) {
                let message = format!("`{}` is there already, beside `{}`", other.name, resource.name);
                return Err(refuse(message, "leave `alias` out, or use another name"));
            }
            if key.tag == KeyTag::Shared && resource.has_others(snapshot) {
                let users = resource.others_named(snapshot);
                let message = format!("{users} know it by the name `{}`", resource.key.name);
                return Err(refuse(message, "keep the shared name; the requirement alone can be renamed"));
            }
            Some(key.clone())
        }
        Ask::Fitting(_) if matches!(resource.key.tag, KeyTag::Shared | KeyTag::Matched) => None,
        Ask::Pooled { pool, .. } if resource.pool == Some(pool.id) => None,
        Ask::Existing(id) if *id == resource.id => None,
        // Asked for in another way, it is another thing.
        _ => return Ok(None),
    };
    let name = match key {
        Some(_) if !wanted.name.is_empty() => wanted.name.clone(),
        _ => resource.name.clone(),
    };
    Ok(Some(Rename { resource: resource.id, from, to: wanted.requirement.clone(), key, name }))
}

/// One that this application has, by its id here or with its provider.
fn by_id<'s>(text: &str, snapshot: &'s Snapshot) -> Result<Option<(&'s ResourceView, String)>, PlanError> {
    let id = match text.parse::<ResourceId>() {
        Ok(id) => Some(id),
        Err(_) => match snapshot.external.get(text) {
            Some(found) => *found,
            None => return Err(PlanError::Need(vec![Want::External(text.to_owned())])),
        },
    };
    let Some(resource) = id.and_then(|id| snapshot.resources.get(&id)) else { return Ok(None) };
    let mine = resource.consumers.iter().find(|consumer| snapshot.is_mine(consumer));
    Ok(mine.map(|consumer| (resource, consumer.requirement.clone())))
}

fn relabel(snapshot: &mut Snapshot, rename: &Rename) {
    let (application, environment) = (snapshot.application.id, snapshot.environment.id);
    let Some(resource) = snapshot.resources.get_mut(&rename.resource) else { return };
    for consumer in &mut resource.consumers {
        let mine = consumer.application == application && consumer.environment == environment;
        if mine && consumer.requirement == rename.from {
            consumer.requirement.clone_from(&rename.to);
        }
    }
    resource.name.clone_from(&rename.name);
    if let Some(key) = &rename.key {
        snapshot.keys.insert(resource.key.clone(), None);
        snapshot.keys.insert(key.clone(), Some(resource.id));
        resource.key = key.clone();
    }
}
