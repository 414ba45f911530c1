//! What a decision comes to: effects on the record, operations with their order, links.

use std::collections::BTreeSet;

use conductor_score::DependencyKind;

use super::{
    Effect, Key, KeyTag, NewResource, PlannedOperation, RecordedDependency, ResourceView, Until, Wait,
    diff::{Differ, Shape},
    resolve::{Ask, Wanted},
};
use crate::{
    catalogue::NO_MANAGER,
    expr::{Expr, Params},
    ids::{OperationId, ResourceId},
    lifecycle::{ConsumerState, KeptBy, OperationKind, State, Status},
};

impl Differ<'_> {
    pub(super) fn create(
        &mut self,
        shape: &Shape<'_>,
        key: &Key,
        replaces: Option<&ResourceView>,
        waits: Vec<Wait>,
    ) -> ResourceId {
        let id = shape.new_id;
        let name = replaces.map_or_else(|| self.name_of_new(shape.wanted, id), |old| old.name.clone());
        let key = match key.tag {
            KeyTag::Matched => Key { name: id.to_string(), ..key.clone() },
            _ => key.clone(),
        };
        let (max_consumers, when) = match &shape.wanted.ask {
            Ask::Fitting(fitting) => {
                (fitting.max_consumers, fitting.when.as_ref().map(|when| when.text().to_owned()))
            }
            Ask::Pooled { pool, .. } | Ask::Member { pool, .. } => (pool.max_consumers, None),
            _ => (shape.version.sharing.max_consumers, None),
        };
        let pool = match &shape.wanted.ask {
            Ask::Pooled { pool, .. } | Ask::Member { pool, .. } => Some(pool.id),
            _ => None,
        };
        let kept_by = match &shape.wanted.ask {
            Ask::Member { .. } => KeptBy::Pool,
            Ask::Made(_) => KeptBy::Hand,
            Ask::This { .. } => replaces.map_or(KeptBy::Hand, |old| old.kept_by),
            _ if shape.version.retain => KeptBy::Hand,
            _ => KeptBy::Consumers,
        };
        self.plan.effects.push(Effect::Create(Box::new(NewResource {
            id,
            key,
            slug: slug(&name, id),
            name,
            version: shape.version.id,
            params: shape.params.clone(),
            kept_by,
            workload: shape.workload,
            replaces: replaces.map(|old| old.id),
            max_consumers,
            when,
            pool,
        })));
        self.after.insert(id, (shape.version.clone(), shape.params.clone()));
        self.depend(shape, id);
        if self.joins(shape) {
            self.join(id, None, &shape.wanted.requirement, shape.params.clone());
        }
        self.operation(
            Some(id),
            OperationKind::Create,
            1,
            false,
            Some(&shape.version.manager),
            &shape.on,
            waits,
        );
        id
    }

    /// Whether the application is to be recorded as a user.
    fn joins(&self, shape: &Shape<'_>) -> bool {
        !shape.workload && !shape.wanted.is_nobodys() && self.within.is_empty()
    }

    /// What people call a new one. What was matched or comes from a pool is called after its type and place.
    pub(super) fn name_of_new(&self, wanted: &Wanted, id: ResourceId) -> String {
        let shared = matches!(&wanted.ask, Ask::Keyed(key) if key.tag == KeyTag::Shared);
        if !self.within.is_empty() && !shared {
            let path = self.full_name(&wanted.requirement).replace('.', "-");
            return format!("{}-{path}", self.snapshot.application.name);
        }
        if !wanted.name.is_empty() {
            return wanted.name.clone();
        }
        let text = id.to_string();
        format!("{}-{}-{}", wanted.version.kind, self.snapshot.environment.name, &text[text.len() - 8..])
    }

    /// A new row of the same lineage; the old one goes first unless the template says otherwise.
    pub(super) fn replace(&mut self, shape: &Shape<'_>, old: &ResourceView, key: &Key) -> ResourceId {
        self.plan.effects.push(Effect::Doom { resource: old.id, from: (old.state, old.status) });
        for consumer in old.consumers.iter().filter(|c| self.snapshot.is_mine(c)) {
            let (application, requirement) = (consumer.application, consumer.requirement.clone());
            self.plan.effects.push(Effect::Leave { resource: old.id, application, requirement });
        }
        let manager = self.snapshot.versions.get(&old.version).map(|v| v.manager.clone());
        let new = if shape.version.create_first {
            self.create(shape, key, Some(old), vec![])
        } else {
            let destroy = self.destruction(old, manager.as_deref(), vec![]);
            let new = self.create(shape, key, Some(old), vec![]);
            if let Some(create) = self.plan.operations.last_mut() {
                create.after.push(destroy);
            }
            new
        };
        self.plan.effects.push(Effect::Replaced { old: old.id, by: new });
        new
    }

    pub(super) fn operate(
        &mut self,
        shape: &Shape<'_>,
        resource: &ResourceView,
        kind: OperationKind,
        conditional: bool,
    ) {
        let to = match kind {
            OperationKind::Create => (State::Provision, Status::Queued),
            _ => (State::Provisioned, Status::Queued),
        };
        let generation = resource.generation + 1;
        self.after.insert(resource.id, (shape.version.clone(), shape.params.clone()));
        self.plan.effects.push(Effect::Specify {
            resource: resource.id,
            from: (resource.state, resource.status),
            to,
            version: shape.version.id,
            params: shape.params.clone(),
            generation,
        });
        let manager = Some(shape.version.manager.as_str());
        self.operation(Some(resource.id), kind, generation, conditional, manager, &shape.on, vec![]);
    }

    #[allow(clippy::too_many_arguments, reason = "one place where operations are made")]
    pub(super) fn operation(
        &mut self,
        resource: Option<ResourceId>,
        kind: OperationKind,
        generation: i64,
        conditional: bool,
        manager: Option<&str>,
        on: &[RecordedDependency],
        mut waits: Vec<Wait>,
    ) -> OperationId {
        let id = OperationId(self.ids.next());
        let made = |weak: bool| -> BTreeSet<OperationId> {
            let on = on.iter().filter(|d| (d.kind == DependencyKind::Weak) == weak);
            on.filter_map(|d| self.made.get(&d.on).copied()).collect()
        };
        let (after, loosely) = (made(false), made(true));
        let waiting = on.iter().filter(|d| d.kind != DependencyKind::Weak);
        waits.extend(waiting.filter_map(|dependency| self.waits.get(&dependency.on).copied()));
        waits.sort_unstable();
        waits.dedup();
        if let Some(resource) = resource {
            self.made.insert(resource, id);
            self.changing.insert(resource);
        }
        self.plan.operations.push(PlannedOperation {
            id,
            resource,
            kind,
            generation,
            conditional,
            manager: manager.filter(|manager| *manager != NO_MANAGER).map(str::to_owned),
            loosely_after: loosely.difference(&after).copied().collect(),
            after: after.into_iter().collect(),
            waits,
        });
        id
    }

    pub(super) fn depend(&mut self, shape: &Shape<'_>, resource: ResourceId) {
        let mut on = shape.on.clone();
        on.sort_unstable();
        on.dedup_by(|a, b| a.on == b.on && a.requirement == b.requirement);
        self.plan.effects.push(Effect::Depend { resource, on });
    }

    pub(super) fn wait(&mut self, resource: &ResourceView, until: Until) {
        self.waits
            .insert(resource.id, Wait { resource: resource.id, generation: resource.generation, until });
    }

    /// Keeps the link, and the recorded dependencies true.
    pub(super) fn rejoin(&mut self, shape: &Shape<'_>, resource: &ResourceView) {
        if !shape.as_it_is && !self.has_others(shape, resource) {
            self.restated.insert(resource.id);
            let on: BTreeSet<ResourceId> = shape.on.iter().map(|dependency| dependency.on).collect();
            if on != resource.depends_on {
                self.depend(shape, resource.id);
            }
        }
        if self.joins(shape) {
            let link = (resource.id, shape.wanted.requirement.clone());
            self.asked.entry(link).or_insert_with(|| shape.params.clone());
            self.join(resource.id, Some(resource), &shape.wanted.requirement, shape.params.clone());
        }
    }

    pub(super) fn join(
        &mut self,
        id: ResourceId,
        known: Option<&ResourceView>,
        requirement: &str,
        params: Params,
    ) {
        let already = known.into_iter().flat_map(|resource| &resource.consumers).any(|consumer| {
            self.snapshot.is_mine(consumer)
                && consumer.requirement == requirement
                && consumer.state != ConsumerState::Leaving
        });
        if !already {
            *self.joined.entry(id).or_default() += 1;
            self.plan.effects.push(Effect::Join {
                resource: id,
                requirement: requirement.to_owned(),
                params,
                outputs: BTreeSet::new(),
            });
        }
    }

    /// Records what this application asked for and which outputs it uses, where that is new.
    pub(super) fn contracts(&mut self) {
        let mut joins = BTreeSet::new();
        let (used, asked) = (&self.used, &self.asked);
        for effect in &mut self.plan.effects {
            if let Effect::Join { resource, requirement, outputs, params } = effect {
                *outputs = used.get(resource).cloned().unwrap_or_default();
                let link = (*resource, requirement.clone());
                if let Some(asked) = asked.get(&link) {
                    *params = asked.clone();
                }
                joins.insert(link);
            }
        }
        for link in self.kept.difference(&joins) {
            let Some(resource) = self.snapshot.resources.get(&link.0) else { continue };
            let mut mine = resource.consumers.iter().filter(|consumer| self.snapshot.is_mine(consumer));
            let Some(known) = mine.find(|consumer| consumer.requirement == link.1) else { continue };
            let outputs = used.get(&link.0).cloned().unwrap_or_default();
            let params = asked.get(link).or(known.asked.as_ref()).cloned().unwrap_or_default();
            if known.outputs != outputs || known.asked.as_ref().is_some_and(|before| *before != params) {
                let (resource, requirement) = link.clone();
                self.plan.effects.push(Effect::Join { resource, requirement, params, outputs });
            }
        }
    }
}

/// For providers: lower case letters, digits and dashes, at most 40, unique by the end of the id.
fn slug(name: &str, id: ResourceId) -> String {
    let clean: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .take(30)
        .collect();
    let id = id.to_string();
    let clean = clean.trim_matches('-');
    let clean = if clean.starts_with(|c: char| c.is_ascii_alphabetic()) {
        clean.to_owned()
    } else {
        format!("r{clean}")
    };
    format!("{clean}-{}", &id[id.len() - 8..])
}

pub(super) fn changed_params(before: &Params, after: &Params) -> BTreeSet<String> {
    let absent = Expr::Literal(serde_json::Value::Null);
    before
        .keys()
        .chain(after.keys())
        .filter(|name| before.get(*name).unwrap_or(&absent) != after.get(*name).unwrap_or(&absent))
        .cloned()
        .collect()
}

pub(super) fn describe_trouble(resource: &ResourceView) -> String {
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
