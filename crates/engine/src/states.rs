//! Terraform's state: where bodies are kept, and a resource's own as its worker reads and writes it under its claim.
//!
//! Bodies are sealed before they leave, and put away before the row that names them is written. A version is never
//! changed: going back appends one. Where only the newest are kept, the bodies of others go with the next sweep.

mod backends;
mod places;
mod versions;
mod workspaces;

use std::time::{Duration, Instant};

use bytes::Bytes;
use conductor_api::{
    types::Time,
    worker::{Claim, LockAnswer, StateLock},
};
use conductor_domain::{
    ids::ResourceId,
    lifecycle::{ErrorCode, OperationStatus},
    state_file::{Head, NotAState},
};
use conductor_store::{
    Error, Result, Tx,
    states::{Body, LockRow, NewState, StateOf, StateWrite, open_state},
};
use serde_json::Value;

use crate::{
    Engine,
    link::{held, lost},
    refusal::refuse,
};

pub(crate) use backends::{
    backend_of, open_environment, parse_backend, refuse_to_lose_states, seal_environment,
};
pub(crate) use places::state_locations;
pub use workspaces::Workspace;

const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// An object is put before the row that names it. A day is more than any write takes, and than clocks differ.
const ORPHANED_AFTER: i64 = 24 * 3_600_000_000;

/// Where a body is that is not in an object store.
pub(crate) const DATABASE: &str = "database";

/// What goes into a row: where the sealed body is, and the digest of what was sealed.
pub(crate) struct Shelved {
    pub body: Body,
    pub digest: Vec<u8>,
    pub size: i64,
}

/// Bodies, wherever they are kept.
impl Engine {
    pub(crate) async fn shelve(&self, of: StateOf, body: &[u8]) -> Result<Shelved> {
        let (organisation, sealer) = (self.context.organisation, self.db.sealer());
        let sealed = sealer.seal(of.owner(organisation), body)?;
        let digest = sealer.digest(body)?;
        let size = body.len() as i64;
        let body = match &self.objects {
            None => Body::Here(sealed),
            Some(objects) => {
                let owner = match of {
                    StateOf::Resource(id) => id.to_string(),
                    StateOf::Workspace(id) => id.to_string(),
                };
                let content: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                let key = format!("{organisation}/{owner}/{content}-{}", self.context.ids.next().simple());
                Body::At(objects.put(&key, sealed).await?)
            }
        };
        Ok(Shelved { body, digest, size })
    }

    pub(crate) async fn fetch(&self, of: StateOf, body: Body) -> Result<Bytes> {
        let sealed = match (body, &self.objects) {
            (Body::Here(sealed), _) => sealed,
            (Body::At(address), Some(objects)) => objects.get(&address).await?,
            (Body::At(address), None) => {
                let message = format!("the state is at {address}: set CONDUCTOR_STATE_STORE to where it is");
                return Err(refuse(ErrorCode::Failed, message));
            }
        };
        Ok(open_state(&self.db.sealer(), of, self.context.organisation, &sealed)?.into())
    }
}

/// How many versions stay.
impl Engine {
    /// The newest so many of each state; all of them unless this is called, once and before anything else.
    pub fn keep_state_versions(&self, newest: u32) {
        // A second number would change nothing.
        let _ = self.state_versions.set(newest.into());
    }

    pub(crate) fn state_versions(&self) -> Option<i64> {
        self.state_versions.get().copied()
    }
}

/// Objects that nobody refers to.
impl Engine {
    /// Takes away what writes that came to nothing have left; looks once an hour.
    pub(crate) async fn sweep_objects_now_and_then(&self) -> Result<()> {
        if self.objects.is_none() {
            return Ok(());
        }
        let due = self.objects_swept.lock().is_ok_and(|mut at| {
            let due = at.is_none_or(|at| at.elapsed() > SWEEP_EVERY);
            if due {
                *at = Some(Instant::now());
            }
            due
        });
        if due { self.sweep_objects().await.map(drop) } else { Ok(()) }
    }

    /// Returns how many were taken away. Only what is this organisation's is looked at.
    pub async fn sweep_objects(&self) -> Result<usize> {
        let Some(objects) = &self.objects else { return Ok(0) };
        let before = self.context.now() - ORPHANED_AFTER;
        let found = objects.list(&self.context.organisation.to_string()).await?;
        let old: Vec<String> =
            found.into_iter().filter(|one| one.modified < before).map(|one| one.address).collect();
        let addresses = old.clone();
        let known = self.db.read(move |tx| tx.known_objects(&addresses)).await?;
        let mut swept = 0;
        for address in old.iter().filter(|address| !known.contains(*address)) {
            objects.delete(address).await?;
            swept += 1;
        }
        if swept > 0 {
            tracing::info!(swept, "state bodies that nobody refers to were taken away");
        }
        Ok(swept)
    }
}

/// Under a worker's claim.
impl Engine {
    pub(crate) async fn read_claimed_state(&self, claim: Claim) -> Result<Option<Bytes>> {
        let found = self.db.read(move |tx| {
            let of = StateOf::Resource(held(tx, claim)?.resource.ok_or_else(lost)?);
            Ok(tx.latest_body(of)?.map(|body| (of, body)))
        });
        match found.await? {
            Some((of, body)) => Ok(Some(self.fetch(of, body).await?)),
            None => Ok(None),
        }
    }

    pub(crate) async fn write_claimed_state(
        &self,
        claim: Claim,
        lock: Option<String>,
        body: Bytes,
    ) -> Result<()> {
        let head = Head::read(&body).map_err(invalid)?;
        let of = self.db.read(move |tx| held(tx, claim)?.resource.map(StateOf::Resource).ok_or_else(lost));
        let of = of.await?;
        let shelved = self.shelve(of, &body).await?;
        let (context, keep) = (self.context.clone(), self.state_versions());
        self.db
            .write(move |tx| {
                held_fast(tx, claim)?;
                let locked = tx.state_lock(of)?.filter(|lock| lock.fence == claim.fence);
                refuse_other_lock(locked.as_ref(), lock.as_deref())?;
                let new = NewState {
                    of,
                    organisation: context.organisation,
                    serial: head.serial,
                    lineage: head.lineage.clone(),
                    digest: shelved.digest.clone(),
                    size: shelved.size,
                    body: shelved.body.clone(),
                    fence: claim.fence,
                    operation: Some(claim.operation),
                    actor: None,
                };
                settled(tx.keep_state(&new, keep, context.now())?, head.serial)
            })
            .await
    }

    pub(crate) async fn lock_claimed_state(&self, claim: Claim, lock: StateLock) -> Result<LockAnswer> {
        let context = self.context.clone();
        self.db
            .write(move |tx| {
                let resource = held_fast(tx, claim)?;
                let document = serde_json::to_value(&lock).unwrap_or_default();
                let held = tx.lock_state(resource, &lock.id, claim.fence, &document, context.now())?;
                Ok(lock_answer(held))
            })
            .await
    }

    pub(crate) async fn unlock_claimed_state(&self, claim: Claim, lock: Option<StateLock>) -> Result<()> {
        self.db
            .write(move |tx| {
                let of = StateOf::Resource(held_fast(tx, claim)?);
                let Some(found) = tx.state_lock(of)? else { return Ok(()) };
                if found.fence == claim.fence
                    && let Some(lock) = &lock
                {
                    refuse_other_lock(Some(&found), Some(&lock.id))?;
                }
                tx.drop_state_lock(of, &found)
            })
            .await
    }
}

/// The resource of a claim that holds, and goes on holding until the transaction ends.
fn held_fast(tx: &mut Tx<'_>, claim: Claim) -> Result<ResourceId> {
    let row = tx.lock_operation(claim.operation)?;
    row.filter(|row| row.fence == claim.fence && row.status == OperationStatus::InProgress)
        .and_then(|row| row.resource)
        .ok_or_else(lost)
}

pub(crate) fn invalid(error: NotAState) -> Error {
    refuse(ErrorCode::Invalid, error.to_string())
}

pub(crate) fn lock_answer(held: Option<LockRow>) -> LockAnswer {
    match held {
        None => LockAnswer::Taken,
        Some(held) => LockAnswer::HeldBy(
            serde_json::from_value(held.document)
                .unwrap_or_else(|_| StateLock { id: held.id, rest: serde_json::Map::new() }),
        ),
    }
}

/// Who holds a lock and since when, in words.
pub(crate) fn holder(lock: &LockRow) -> String {
    let word = |name: &str| lock.document.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let who = word("Who").or(lock.actor.as_deref()).unwrap_or("somebody");
    let what = word("Operation").map(|what| format!(" for {what}")).unwrap_or_default();
    format!("{who}{what} since {} (lock {})", Time(lock.created_at), lock.id)
}

/// Whoever holds the lock must show its id.
pub(crate) fn refuse_other_lock(held: Option<&LockRow>, shown: Option<&str>) -> Result<()> {
    match held {
        Some(held) if shown != Some(held.id.as_str()) => {
            Err(refuse(ErrorCode::Conflict, format!("the state is locked by {}", holder(held))))
        }
        _ => Ok(()),
    }
}

pub(crate) fn settled(write: StateWrite, serial: i64) -> Result<()> {
    match write {
        StateWrite::Kept(_) | StateWrite::Again => Ok(()),
        StateWrite::Stale { stored } if stored == serial => Err(refuse(
            ErrorCode::Conflict,
            format!("serial {serial} is stored already, with another content"),
        )),
        StateWrite::Stale { stored } => {
            Err(refuse(ErrorCode::Conflict, format!("serial {serial} is not newer than the stored {stored}")))
        }
    }
}
