//! Uses of resources that no Score file states: added and taken away by hand.

use std::collections::BTreeSet;

use conductor_api::types::{Consumer, ConsumerRequest, Time};
use conductor_domain::{
    ids::{ApplicationId, ChangeId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode, State},
};
use conductor_store::{Result, Tx, changes::NewChange, consumers::NewConsumer, resources::ResourceRow};
use serde_json::json;

use crate::{
    Context, Engine,
    changes::check_application_name,
    hand::refuse_for_now,
    progress::Progress,
    refusal::{not_found, refuse},
};

/// A resource whose record is there.
pub(crate) fn resource(tx: &mut Tx<'_>, context: &Context, id: ResourceId) -> Result<ResourceRow> {
    let row = tx.resource(id)?.filter(|row| row.is_on_record(context.organisation));
    row.ok_or_else(|| not_found("resource", &id.to_string(), &[]))
}

/// A change that is over when it is written: somebody did something by hand.
fn noted(tx: &mut Tx<'_>, context: &Context, row: &ResourceRow, actor: &str, now: i64) -> Result<ChangeId> {
    let id = ChangeId(context.ids.next());
    tx.insert_change(&NewChange {
        environment: Some(row.environment),
        ..context.change(id, ChangeKind::Resource, actor, now)
    })?;
    tx.end_change(id, ChangeKind::Resource, ChangeStatus::Pending, ChangeStatus::Succeeded, None, now)?;
    Ok(id)
}

impl Engine {
    pub async fn add_consumer(
        &self,
        id: ResourceId,
        request: ConsumerRequest,
        actor: &str,
    ) -> Result<Consumer> {
        check_application_name(&request.application)?;
        if request.requirement.trim().is_empty() {
            return Err(refuse(
                ErrorCode::Invalid,
                "`requirement` is empty: say what the application calls it",
            ));
        }
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let before = resource(tx, &context, id)?;
                tx.lock_domains(&[before.key.domain])?;
                let row = resource(tx, &context, id)?;
                if !matches!(row.state, State::Provision | State::Provisioned) {
                    return Err(refuse(ErrorCode::Conflict, format!("{} is {}", row.name, row.state)));
                }
                let count = tx.consumer_counts(&[id].into())?.get(&id).copied().unwrap_or(0);
                if let Some(most) = row.max_consumers.filter(|most| count >= u64::from(*most)) {
                    let message =
                        format!("{} has {count} consumers, and {most} may use it at most", row.name);
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                let environment = match &request.environment {
                    Some(name) => tx.environment_by_name(context.organisation, name)?,
                    None => tx.environment(row.environment)?,
                };
                let environment = environment.ok_or_else(|| {
                    not_found("environment", request.environment.as_deref().unwrap_or_default(), &[])
                })?;
                let application = match tx.application_by_name(context.organisation, &request.application)? {
                    Some(found) => found.id,
                    None => {
                        let id = ApplicationId(context.ids.next());
                        tx.upsert_application(context.organisation, id, &request.application, None, now)?
                    }
                };
                let change = noted(tx, &context, &row, &actor, now)?;
                tx.join_consumers(&[NewConsumer {
                    organisation: context.organisation,
                    resource: id,
                    application,
                    environment: environment.id,
                    requirement: request.requirement.clone(),
                    params: json!({}),
                    outputs: BTreeSet::new(),
                    change,
                    now,
                }])?;
                tx.settle_consumers(change, false)?;
                tx.recount_matches(&[id].into())?;
                let told = json!({ "application": request.application, "requirement": request.requirement });
                Progress::new(tx, &context, now).event(
                    "consumer.added",
                    &actor,
                    Some(change),
                    Some(id),
                    None,
                    told,
                )?;
                Ok(Consumer {
                    application: request.application.clone(),
                    environment: environment.name,
                    requirement: request.requirement.clone(),
                    deployment: change,
                    since: Time(now),
                    state: "active".into(),
                })
            })
            .await
    }

    pub async fn remove_consumer(
        &self,
        id: ResourceId,
        application: &str,
        environment: Option<&str>,
        requirement: Option<&str>,
        actor: &str,
    ) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let (application, environment) = (application.to_owned(), environment.map(str::to_owned));
        let requirement = requirement.map(str::to_owned);
        self.db
            .write(move |tx| {
                let now = context.now();
                let before = resource(tx, &context, id)?;
                tx.lock_domains(&[before.key.domain])?;
                let row = resource(tx, &context, id)?;
                let leaving: Vec<_> = tx
                    .consumers_of(&[id].into(), usize::MAX >> 1)?
                    .into_iter()
                    .filter(|consumer| consumer.application_name == application)
                    .filter(|consumer| {
                        environment.as_ref().is_none_or(|name| *name == consumer.environment_name)
                    })
                    .filter(|consumer| requirement.as_ref().is_none_or(|name| *name == consumer.requirement))
                    .collect();
                if leaving.is_empty() {
                    let message = format!("{application} does not use {}", row.name);
                    return Err(refuse(ErrorCode::NotFound, message));
                }
                let change = noted(tx, &context, &row, &actor, now)?;
                for consumer in &leaving {
                    tx.leave_consumer(
                        id,
                        consumer.application,
                        consumer.environment,
                        &consumer.requirement,
                        change,
                    )?;
                }
                let released = tx.settle_consumers(change, true)?;
                let unused = tx.unused_resources(Some(&released))?;
                let told = json!({ "application": application, "uses": leaving.len() });
                let parent = tx.change(change)?;
                let mut progress = Progress::new(tx, &context, now);
                progress.event("consumer.removed", &actor, Some(change), Some(id), None, told)?;
                progress.collect_for(parent.as_ref(), unused, ChangeKind::Collect)?;
                progress.settle()
            })
            .await
    }

    /// Somebody thought again: what waits for its time to be destroyed stays, until somebody destroys it.
    pub async fn undelete(&self, id: ResourceId, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                // A record that was deleted comes back as long as its values are kept.
                let deleted = tx.resource(id)?.filter(|row| {
                    row.organisation == context.organisation && row.deleted_at.is_some() && !row.workload
                });
                if let Some(row) = deleted
                    && tx.restore_record(id, now)?
                {
                    let told = json!({ "name": row.name });
                    let mut progress = Progress::new(tx, &context, now);
                    return progress.event("resource.undeleted", &actor, None, Some(id), None, told);
                }
                let before = resource(tx, &context, id)?;
                tx.lock_domains(&[before.key.domain])?;
                if !tx.unbury_resource(id, now)? {
                    let row = resource(tx, &context, id)?;
                    let message =
                        format!("{} is {} and not waiting for its time to be destroyed", row.name, row.state);
                    return Err(refuse_for_now(&row, message));
                }
                tx.keep_by_hand(id)?;
                let told = json!({ "name": before.name });
                Progress::new(tx, &context, now).event(
                    "resource.undeleted",
                    &actor,
                    None,
                    Some(id),
                    None,
                    told,
                )
            })
            .await
    }
}
