//! Sharing by what a thing is like: which of those that are there serves, and why the others do not.

use conductor_score::Scope;
use serde_json::{Value, json};

use super::{
    Candidate, ConsumerView, KeyTag, MatchQuery, PlanError, ResourceView, Want,
    diff::{Differ, Take},
    resolve::{Ask, Fitting, Wanted},
};
use crate::{
    catalogue::scope_word,
    condition::Condition,
    expr::{Params, params_refs},
    ids::ResourceId,
    lifecycle::{Action, ErrorCode, KeptBy, OperationStatus, State},
    sharing::MatchOn,
};

/// So many are looked at first, and eight times as many whenever none of them serves.
const FIRST_LOOK: usize = 4;
const LOOK_AT_MOST: usize = 10_000;
/// So many candidates are told of, the rest are counted.
const TOLD: usize = 20;

impl<'a> Differ<'a> {
    pub(super) fn fit(
        &mut self,
        wanted: &Wanted,
        fitting: &Fitting,
    ) -> Result<(ResourceId, Action, String), PlanError> {
        let asked = self.params(wanted, &wanted.version, &[], "", &mut Vec::new());
        let query = MatchQuery {
            scope: fitting.scope,
            kind: wanted.version.kind.clone(),
            class: wanted.class.clone(),
            template: wanted.version.template,
            on: fitting.on.clone(),
            material: fitting.on.material(&asked, &wanted.version.derived()),
        };
        let has = self.what_it_has(wanted);
        let sticky =
            has.filter(|resource| self.serves(resource, wanted, fitting, &query, &asked, true).is_ok());
        if let Some(resource) = sticky {
            self.consider(resource, Ok("it is what this application has by now, and still fits".to_owned()));
        } else if let Some(id) = self.made_here(&query, fitting) {
            return Ok(self.same_as_another(wanted, id, asked));
        }
        let chosen = match sticky {
            Some(resource) => Some(resource),
            None => self.best(wanted, fitting, &query, &asked),
        };
        // Nothing else fits, but what it has is its own: that one is changed rather than lost.
        let alone = |resource: &&ResourceView| {
            !resource.has_others(self.snapshot)
                && !self.served.contains(&resource.id)
                && self.snapshot.versions[&resource.version].template == query.template
                && resource.scope <= fitting.scope
                && matches!(resource.state, State::Provision | State::Provisioned)
        };
        let chosen = chosen.or(has.filter(alone).filter(|_| self.needs.is_empty()));
        self.tell_rivals(wanted, fitting, &query, &asked, chosen.map(|resource| resource.id));
        let outcome = match chosen {
            Some(resource) => {
                let take = self.how_much(wanted, resource, &asked);
                self.asked.insert((resource.id, wanted.requirement.clone()), asked);
                self.settle_on(wanted, Some(resource), &resource.key, take)?
            }
            None => self.settle_on(wanted, None, &self.any_key(wanted), Take::AsAsked)?,
        };
        if !self.snapshot.resources.contains_key(&outcome.0) {
            self.fresh.entry(query).or_default().push((outcome.0, fitting.max_consumers));
        }
        Ok(outcome)
    }

    /// What was matched is taken as it is. Only who has it alone, and asks for something else than before, changes it;
    /// and what never came about is made as it is asked for now.
    pub(super) fn how_much(&self, wanted: &Wanted, resource: &ResourceView, asked: &Params) -> Take {
        let mut uses = resource.consumers.iter();
        let before = uses.find(|c| self.snapshot.is_mine(c) && c.requirement == wanted.requirement);
        let thought_again = before.and_then(|c| c.asked.as_ref()).is_some_and(|before| before != asked);
        let never = resource.never_came_about();
        let free = !resource.has_others(self.snapshot) && (never || resource.open_operation.is_none());
        if (thought_again || never) && free { Take::AsAsked } else { Take::WithItsParams }
    }

    /// What serves the requirement by now, if it is one that can be shared.
    fn what_it_has(&self, wanted: &Wanted) -> Option<&'a ResourceView> {
        if !self.within.is_empty() {
            return None;
        }
        let snapshot = self.snapshot;
        let mine = self.mine.get(wanted.requirement.as_str()).into_iter().flatten();
        let mut mine = mine.filter_map(|id| snapshot.resources.get(id));
        mine.find(|resource| {
            resource.key.kind == wanted.version.kind
                && resource.key.class == wanted.class
                && matches!(resource.key.tag, KeyTag::Shared | KeyTag::Matched)
                && resource.pool.is_none()
                && resource.state != State::Destroyed
        })
    }

    /// One that another requirement of this plan has made, with room left.
    fn made_here(&self, query: &MatchQuery, fitting: &Fitting) -> Option<ResourceId> {
        let mut made = self.fresh.get(query)?.iter();
        let room = |(id, max): &&(ResourceId, Option<u32>)| {
            let most = [*max, fitting.max_consumers].into_iter().flatten().min();
            let count = self.joined.get(id).copied().unwrap_or(0);
            most.is_none_or(|most| count < u64::from(most))
        };
        made.find(room).map(|(id, _)| *id)
    }

    /// The first in order that serves. Every one before it says why it does not.
    fn best(
        &mut self,
        wanted: &Wanted,
        fitting: &Fitting,
        query: &MatchQuery,
        asked: &Params,
    ) -> Option<&'a ResourceView> {
        // What refers to something that is made just now cannot be there already.
        let known = |id: &ResourceId| self.snapshot.resources.contains_key(id);
        if query.on != MatchOn::Nothing && !params_refs(asked).iter().all(|r| known(&r.resource)) {
            return None;
        }
        let Some(matches) = self.snapshot.matches.get(query) else {
            self.needs.push(Want::Match(query.clone(), FIRST_LOOK));
            return None;
        };
        for resource in matches.ids.iter().filter_map(|id| self.snapshot.resources.get(id)) {
            let verdict = self.serves(resource, wanted, fitting, query, asked, false);
            let chosen = verdict.is_ok();
            self.consider(resource, verdict.map(|()| "it fits and comes first".to_owned()));
            if chosen {
                return Some(resource);
            }
        }
        if matches.more && matches.ids.len() < LOOK_AT_MOST {
            self.needs.push(Want::Match(query.clone(), (matches.ids.len() * 8).min(LOOK_AT_MOST)));
        } else if matches.more {
            let path = format!("resources.{}.matching", self.full_name(&wanted.requirement));
            let message = format!("the first {LOOK_AT_MOST} candidates do not satisfy its condition");
            let suggestion = Some("name more parameters in `matchOn`".to_owned());
            self.refuse(ErrorCode::Conflict, wanted, path, message, suggestion);
        }
        None
    }

    /// Whether a resource can serve, or why not. `already`: it does so by now, so only what it is counts.
    fn serves(
        &self,
        resource: &ResourceView,
        wanted: &Wanted,
        fitting: &Fitting,
        query: &MatchQuery,
        asked: &Params,
        already: bool,
    ) -> Result<(), String> {
        if resource.key.tag == KeyTag::Dedicated {
            return Err("it is one application's own".into());
        }
        if resource.kept_by == KeptBy::Pool || resource.pool.is_some() {
            return Err("it belongs to a pool".into());
        }
        if resource.state == State::Destroyed {
            return Err("it is destroyed".into());
        }
        let busy = resource.open_operation.as_ref();
        let going = busy.is_some_and(|open| open.begun || open.status == OperationStatus::InProgress);
        if resource.state == State::Destroy && (going || busy.is_none() && resource.buried_until.is_none()) {
            return Err("it is being destroyed".into());
        }
        let domain = self.snapshot.domain(resource.scope);
        if resource.scope > fitting.scope {
            return Err(format!(
                "it is shared by the whole {}, which is wider than asked for",
                scope_word(resource.scope)
            ));
        }
        if resource.key.domain != domain {
            return Err(format!("it belongs to another {}", scope_word(resource.scope)));
        }
        let version = self.snapshot.versions.get(&resource.version);
        if let Some(version) = version.filter(|version| version.template != query.template) {
            return Err(format!(
                "template `{}` made it; here `{}` serves",
                version.name, wanted.version.name
            ));
        }
        let derived = version.map(|version| version.derived()).unwrap_or_default();
        if query.on.material(self.spec_of(resource), &derived) != query.material {
            return Err(self.difference(resource, wanted, &query.on, asked));
        }
        // Conditions say who may join; nobody is put out of what it has.
        if already {
            return Ok(());
        }
        // Nobody is left to whom it mattered, and what it was to be made of may be gone.
        if resource.state == State::Destroy && resource.never_came_about() {
            return Err("it never came about".into());
        }
        if let Some(when) = &resource.when {
            self.holds(&Condition::read(when)?, resource)?;
        }
        if let Some(condition) = &fitting.when {
            self.holds(condition, resource)?;
        }
        let most = [resource.max_consumers, fitting.max_consumers].into_iter().flatten().min();
        let count = self.users(resource);
        match most.filter(|most| count >= u64::from(*most)) {
            Some(most) => Err(format!("it has {count} consumers, and {most} may use it at most")),
            None => Ok(()),
        }
    }

    /// How many use it, those counted who come with this plan and those left out who go with it.
    fn users(&self, resource: &ResourceView) -> u64 {
        let stated = |name: &str| self.stated.contains(name);
        let mine = resource.consumers.iter().filter(|consumer| self.snapshot.is_mine(consumer));
        let go = mine.filter(|consumer| !stated(&consumer.requirement)).count() as u64;
        resource.consumer_count + self.joined.get(&resource.id).copied().unwrap_or(0) - go
    }

    /// One that was asked for by its name or its id takes no more than it may, either.
    pub(super) fn has_room(&mut self, wanted: &Wanted, resource: &ResourceView) {
        let uses = |consumer: &ConsumerView| {
            self.snapshot.is_mine(consumer) && consumer.requirement == wanted.requirement
        };
        let live = matches!(resource.state, State::Provision | State::Provisioned);
        if !live || !self.within.is_empty() || resource.consumers.iter().any(uses) {
            return;
        }
        let count = self.users(resource);
        if let Some(most) = resource.max_consumers.filter(|most| count >= u64::from(*most)) {
            let path = format!("resources.{}", wanted.requirement);
            let named = match resource.others_named(self.snapshot) {
                names if names.is_empty() => String::new(),
                names => format!(" ({names})"),
            };
            let message = format!(
                "{} `{}` has {count} consumers{named}, and {most} may use it at most",
                resource.key.kind, resource.name
            );
            let suggestion = "use another one, or deploy again when somebody has let go of it".to_owned();
            self.refuse(ErrorCode::Conflict, wanted, path, message, Some(suggestion));
        }
    }

    /// As it is, or will be where this plan changes it.
    fn spec_of<'s>(&'s self, resource: &'s ResourceView) -> &'s Params {
        self.after.get(&resource.id).map_or(&resource.spec, |(_, spec)| spec)
    }

    /// The parameters in which it is not what was asked for.
    fn difference(&self, resource: &ResourceView, wanted: &Wanted, on: &MatchOn, asked: &Params) -> String {
        let secret = wanted.version.schema.sensitive();
        let derived = wanted.version.derived();
        let show = |params: &Params, name: &String| match params.get(name) {
            _ if secret.contains(name) => "(sensitive)".to_owned(),
            Some(expr) => expr.known().map_or_else(|| "a reference".into(), |value| value.to_string()),
            None => "nothing".to_owned(),
        };
        let spec = self.spec_of(resource);
        let names = spec.keys().chain(asked.keys()).collect::<std::collections::BTreeSet<_>>();
        let counts = |name: &&&String| match on {
            MatchOn::Named(names) => names.contains(name),
            _ => !derived.contains(**name),
        };
        let differing = names.iter().filter(counts).filter(|name| {
            let one = MatchOn::Named(vec![(***name).clone()]);
            one.material(spec, &derived) != one.material(asked, &derived)
        });
        let told: Vec<String> = differing
            .take(5)
            .map(|name| format!("`{name}` is {} there and {} here", show(spec, name), show(asked, name)))
            .collect();
        told.join("; ")
    }

    fn holds(&self, condition: &Condition, resource: &ResourceView) -> Result<(), String> {
        let version = self.snapshot.versions.get(&resource.version);
        let secret = version.map(|version| version.schema.sensitive()).unwrap_or_default();
        let parameters: serde_json::Map<String, Value> = resource
            .spec
            .iter()
            .filter(|(name, _)| !secret.contains(*name))
            .filter_map(|(name, expr)| Some((name.clone(), expr.known()?)))
            .collect();
        let about = json!({
            "id": resource.id, "name": resource.name, "type": resource.key.kind, "class": resource.key.class,
            "scope": scope_word(resource.scope), "template": version.map(|version| version.name.clone()),
            "templateVersion": version.map(|version| version.version.to_string()),
            "parameters": parameters, "consumers": resource.consumer_count,
        });
        let (application, environment) = (&self.snapshot.application, &self.snapshot.environment);
        let application = json!({ "name": application.name, "labels": application.labels });
        let environment =
            json!({ "name": environment.name, "type": environment.kind, "labels": environment.labels });
        condition.holds(&about, &application, &environment)
    }

    /// Remembers that one was looked at, and how it came out.
    pub(super) fn consider(&mut self, resource: &ResourceView, verdict: Result<String, String>) {
        if self.candidates.len() >= TOLD && verdict.is_err() {
            return;
        }
        let chosen = verdict.is_ok();
        let reason = verdict.unwrap_or_else(|why| why);
        self.candidates.push(Candidate {
            resource: resource.id,
            name: resource.name.clone(),
            scope: resource.scope,
            consumers: resource.consumer_count,
            max_consumers: resource.max_consumers,
            chosen,
            reason,
        });
    }

    /// On request: those that were never in question, and why.
    fn tell_rivals(
        &mut self,
        wanted: &Wanted,
        fitting: &Fitting,
        query: &MatchQuery,
        asked: &Params,
        chosen: Option<ResourceId>,
    ) {
        if !self.snapshot.explain {
            return;
        }
        let about = (fitting.scope, query.kind.clone(), query.class.clone());
        let Some(rivals) = self.snapshot.rivals.get(&about) else {
            self.needs.push(Want::Rivals(about.0, about.1, about.2));
            return;
        };
        for resource in rivals.ids.iter().filter_map(|id| self.snapshot.resources.get(id)) {
            if self.candidates.iter().any(|candidate| candidate.resource == resource.id) {
                continue;
            }
            let verdict = match self.serves(resource, wanted, fitting, query, asked, false) {
                Err(why) => Err(why),
                Ok(()) if chosen == Some(resource.id) => {
                    Ok("it is this application's alone, and is changed".into())
                }
                Ok(()) => Err("it fits too, and comes later".into()),
            };
            self.consider(resource, verdict);
        }
    }

    /// How many candidates are not told of.
    pub(super) fn rivals_left_out(&self, wanted: &Wanted, told: usize) -> u64 {
        let Ask::Fitting(Fitting { scope, .. }) = &wanted.ask else { return 0 };
        let about: (Scope, String, String) = (*scope, wanted.version.kind.clone(), wanted.class.clone());
        self.snapshot.rivals.get(&about).map_or(0, |rivals| rivals.total.saturating_sub(told as u64))
    }
}
