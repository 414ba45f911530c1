//! Looking back at a resource's state: its versions, what differs between them, and going back to one.

use std::collections::BTreeSet;

use bytes::Bytes;
use conductor_api::types::{StateDiff, StateVersion, Time};
use conductor_domain::{
    ids::ResourceId,
    lifecycle::{ErrorCode, OperationStatus, State},
    state_file::{self, Head},
};
use conductor_store::{
    Error, Result, Tx,
    resources::ResourceRow,
    states::{Body, NewState, StateOf, StateRow},
};
use serde_json::json;

use super::{DATABASE, holder, invalid, settled};
use crate::{
    Context, Engine,
    progress::Progress,
    refusal::{not_found, refuse},
    steps::{open_inputs, open_outputs, texts},
};

fn version(row: StateRow) -> StateVersion {
    StateVersion {
        number: row.number,
        serial: row.serial,
        lineage: row.lineage,
        size: row.size,
        operation: row.operation,
        fence: row.fence,
        actor: row.actor,
        location: row.object.unwrap_or_else(|| DATABASE.into()),
        created_at: Time(row.created_at),
    }
}

fn resource(tx: &mut Tx<'_>, context: &Context, id: ResourceId) -> Result<ResourceRow> {
    let row = tx.resource(id)?.filter(|row| row.organisation == context.organisation && !row.workload);
    row.ok_or_else(|| not_found("resource", &id.to_string(), &[]))
}

/// Where a version's body is, or which versions there are instead.
fn body_of(tx: &mut Tx<'_>, row: &ResourceRow, number: i64) -> Result<Body> {
    let of = StateOf::Resource(row.id);
    if let Some(body) = tx.state_body(of, number)? {
        return Ok(body);
    }
    let elsewhere = tx.state_places(&BTreeSet::from([row.id]))?.remove(&row.id);
    let message = match (tx.latest_state(of)?, elsewhere) {
        (Some(last), _) => format!("there is no version {number}; they are 1 to {}", last.number),
        (None, Some((backend, Some(location)))) => {
            format!("the state is kept by the backend `{backend}` at {location}, which has its own versions")
        }
        (None, _) => "it has no state: it was not made by terraform, or not yet".to_owned(),
    };
    Err(refuse(ErrorCode::NotFound, format!("{}: {message}", row.name)))
}

/// As people look back at it.
impl Engine {
    /// Every version of a resource's state, newest first.
    pub async fn states(&self, id: ResourceId) -> Result<Vec<StateVersion>> {
        let context = self.context.clone();
        let rows = self.db.read(move |tx| {
            resource(tx, &context, id)?;
            tx.states(StateOf::Resource(id))
        });
        Ok(rows.await?.into_iter().map(version).collect())
    }

    /// A version's content, secrets and all; that somebody looked is written down.
    pub async fn state(&self, id: ResourceId, number: i64, actor: &str) -> Result<Bytes> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let body = self
            .db
            .write(move |tx| {
                let row = resource(tx, &context, id)?;
                let body = body_of(tx, &row, number)?;
                let told = json!({ "number": number });
                let mut progress = Progress::new(tx, &context, context.now());
                progress.event("state.read", &actor, None, Some(id), None, told)?;
                Ok(body)
            })
            .await?;
        self.fetch(StateOf::Resource(id), body).await
    }

    pub async fn diff_states(&self, id: ResourceId, from: i64, to: i64) -> Result<StateDiff> {
        let context = self.context.clone();
        let read = self.db.read(move |tx| {
            let row = resource(tx, &context, id)?;
            let secrets = known_secrets(tx, &context, &row)?;
            Ok((body_of(tx, &row, from)?, body_of(tx, &row, to)?, secrets))
        });
        let (before, after, secrets) = read.await?;
        let of = StateOf::Resource(id);
        let (before, after) = (self.fetch(of, before).await?, self.fetch(of, after).await?);
        Ok(StateDiff { from, to, difference: state_file::diff(&before, &after, &secrets).map_err(invalid)? })
    }

    /// Takes up the content of an old version again, as a new one that is newer than all.
    pub async fn roll_back_state(&self, id: ResourceId, number: i64, actor: &str) -> Result<StateVersion> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let read = self.db.read({
            let context = context.clone();
            move |tx| {
                let row = resource(tx, &context, id)?;
                let body = body_of(tx, &row, number)?;
                Ok((body, tx.latest_state(StateOf::Resource(id))?.map_or(0, |last| last.serial)))
            }
        });
        let (body, newest) = read.await?;
        let of = StateOf::Resource(id);
        let body = state_file::with_serial(&self.fetch(of, body).await?, newest + 1).map_err(invalid)?;
        let head = Head::read(&body).map_err(invalid)?;
        let shelved = self.shelve(of, &body).await?;
        let keep = self.state_versions();
        self.db
            .write(move |tx| {
                let now = context.now();
                let row = resource(tx, &context, id)?;
                if row.state == State::Destroyed {
                    let message = format!("{} is gone; there is nothing its state could be of", row.name);
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                // The fence first: whoever claims the resource from here on waits, and then sees the new version.
                let fence = tx.fence_off(id, row.fence, now)?;
                refuse_while_busy(tx, &row)?;
                let new = NewState {
                    of,
                    organisation: context.organisation,
                    serial: head.serial,
                    lineage: head.lineage.clone(),
                    digest: shelved.digest.clone(),
                    size: shelved.size,
                    body: shelved.body.clone(),
                    fence,
                    operation: None,
                    actor: Some(actor.clone()),
                };
                settled(tx.keep_state(&new, keep, now)?, head.serial)?;
                let kept =
                    tx.latest_state(of)?.ok_or_else(|| Error::Corrupt("a state that is not there".into()))?;
                let told = json!({ "from": number, "number": kept.number, "serial": kept.serial });
                let mut progress = Progress::new(tx, &context, now);
                progress.event("state.rolled_back", &actor, None, Some(id), None, told)?;
                Ok(version(kept))
            })
            .await
    }

    /// Takes a lock away from whoever holds it.
    pub async fn unlock_state_by_force(&self, id: ResourceId, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let row = resource(tx, &context, id)?;
                let of = StateOf::Resource(id);
                let Some(lock) = tx.state_lock(of)? else {
                    let message = format!("nobody holds the lock of the state of {}", row.name);
                    return Err(refuse(ErrorCode::NotFound, message));
                };
                tx.drop_state_lock(of, &lock)?;
                let told = json!({ "lock": lock.id, "holder": lock.document });
                let mut progress = Progress::new(tx, &context, context.now());
                progress.event("state.unlocked", &actor, None, Some(id), None, told)
            })
            .await
    }
}

/// Nothing runs on the resource, and nobody holds the lock of its state.
fn refuse_while_busy(tx: &mut Tx<'_>, row: &ResourceRow) -> Result<()> {
    let open = tx.open_operations_on(&BTreeSet::from([row.id]))?.remove(&row.id);
    if let Some(running) = open.filter(|open| open.status == OperationStatus::InProgress) {
        let message = format!(
            "{} of {} is running ({}): wait for it, or cancel it",
            running.kind, row.name, running.id
        );
        return Err(refuse(ErrorCode::Conflict, message));
    }
    match tx.state_lock(StateOf::Resource(row.id))?.filter(|lock| lock.fence == row.fence) {
        Some(lock) => Err(refuse(
            ErrorCode::Conflict,
            format!(
                "the state of {} is locked by {}; `conductor states unlock {}` takes the lock away",
                row.name,
                holder(&lock),
                row.id
            ),
        )),
        None => Ok(()),
    }
}

/// Values that are secret wherever they turn up in a resource's state.
fn known_secrets(tx: &mut Tx<'_>, context: &Context, row: &ResourceRow) -> Result<BTreeSet<String>> {
    let mut secrets = match &row.inputs {
        Some(sealed) => open_inputs(tx, context, row.id, sealed)?.secrets,
        None => BTreeSet::new(),
    };
    let (outputs, sensitive) = open_outputs(tx, row)?;
    for name in &sensitive {
        texts(&outputs[name], &mut secrets);
    }
    Ok(secrets)
}
