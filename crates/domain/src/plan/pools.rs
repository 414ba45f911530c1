//! Claiming from a pool: a ready one at once, else a new one as the pool makes them.

use std::sync::Arc;

use super::{
    Effect, Key, PlanError, PoolView, ResourceView,
    asking::literal,
    diff::{Differ, Take},
    resolve::{Wanted, look_up},
};
use crate::{
    ids::ResourceId,
    lifecycle::{Action, ErrorCode, KeptBy, State, Status},
};

impl<'a> Differ<'a> {
    pub(super) fn claim(
        &mut self,
        wanted: &Wanted,
        pool: &Arc<PoolView>,
        unless: Option<&Key>,
    ) -> Result<(ResourceId, Action, String), PlanError> {
        if let Some(key) = unless {
            match look_up(key, self.snapshot) {
                Err(PlanError::Need(more)) => self.needs.extend(more),
                found => {
                    if found?.is_some() {
                        return self.keyed(wanted, key);
                    }
                }
            }
        }
        let snapshot = self.snapshot;
        let mine = self.mine.get(wanted.requirement.as_str()).into_iter().flatten();
        let mut mine = mine.filter_map(|id| snapshot.resources.get(id));
        let has = mine.find(|resource| resource.pool == Some(pool.id) && resource.state != State::Destroyed);
        if let Some(resource) = has {
            self.consider(resource, Ok("it is what this application has by now".to_owned()));
            return self.settle_on(wanted, Some(resource), &resource.key, Take::AsItIs);
        }
        let version = &snapshot.versions[&pool.version];
        let made_now = version.schema.with_defaults(literal(&pool.parameters));
        for resource in pool.ready.iter().filter_map(|id| snapshot.resources.get(id)) {
            let verdict = self.claimable(resource, pool);
            let verdict = match verdict {
                Ok(()) if resource.version != pool.version => Err("it was made with another version"),
                Ok(()) if !made_now.iter().all(|(name, expr)| resource.spec.get(name) == Some(expr)) => {
                    Err("the pool makes them with other parameters by now")
                }
                verdict => verdict,
            };
            let ready = verdict.is_ok();
            self.consider(resource, verdict.map(|()| "it is ready".to_owned()).map_err(str::to_owned));
            if ready {
                return Ok(self.take(wanted, pool, resource));
            }
        }
        let made_here = self.plan.effects.iter();
        let made_here =
            made_here.filter(|e| matches!(e, Effect::Create(new) if new.pool == Some(pool.id))).count();
        if let Some(max) = pool.max.filter(|max| pool.alive + made_here as u64 >= *max) {
            let path = format!("resources.{}.pool", self.full_name(&wanted.requirement));
            let message =
                format!("pool `{}` has none ready, and its {max} members are all there may be", pool.name);
            let suggestion = "deploy again when one was given back, or raise the pool's `max`".to_owned();
            self.refuse(ErrorCode::Conflict, wanted, path, message, Some(suggestion));
        }
        self.settle_on(wanted, None, &self.any_key(wanted), Take::AsAsked)
    }

    fn claimable(&self, resource: &ResourceView, pool: &PoolView) -> Result<(), &'static str> {
        let (state, status) = (resource.state, resource.status);
        if (state, status) != (State::Provisioned, Status::Done) || resource.open_operation.is_some() {
            return Err("it is not ready");
        }
        let users = resource.consumer_count + self.joined.get(&resource.id).copied().unwrap_or(0);
        if !pool.shared && (users > 0 || self.claimed.contains(&resource.id)) {
            return Err("somebody has it");
        }
        match pool.max_consumers.filter(|most| users >= u64::from(*most)) {
            Some(_) => Err("it has as many consumers as it may"),
            None => Ok(()),
        }
    }

    fn take(
        &mut self,
        wanted: &Wanted,
        pool: &PoolView,
        resource: &ResourceView,
    ) -> (ResourceId, Action, String) {
        self.claimed.insert(resource.id);
        let kept_by = if pool.recycles { KeptBy::Consumers } else { KeptBy::Pool };
        self.plan.effects.push(Effect::Claim { resource: resource.id, kept_by });
        self.join(resource.id, Some(resource), &wanted.requirement, resource.spec.clone());
        (resource.id, Action::Claim, format!("`{}` of pool `{}` was ready", resource.name, pool.name))
    }
}
