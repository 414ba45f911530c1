//! States of people's own terraform, by a name of their choice: the same protocol, bound to no resource and no claim.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use conductor_api::{
    state_protocol::StateStore,
    worker::{LinkResult, LockAnswer, StateLock},
};
use conductor_domain::{ids::WorkspaceId, lifecycle::ErrorCode, state_file::Head};
use conductor_store::{
    Result, Tx,
    states::{NewState, StateOf},
};
use serde_json::json;

use super::{holder, invalid, lock_answer, refuse_other_lock, settled};
use crate::{Context, Engine, Principal, Role, link::refused, progress::Progress, refusal::refuse};

const LONGEST_NAME: usize = 200;

/// A workspace as one caller sees it.
pub struct Workspace {
    engine: Arc<Engine>,
    name: String,
    caller: Principal,
}

fn check_name(name: &str) -> Result<()> {
    let parts = name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if parts && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let message = format!(
        "`{shown}` is no name of a state: use 1 to {LONGEST_NAME} printable characters, as in `team/network`"
    );
    Err(refuse(ErrorCode::Invalid, message))
}

impl Engine {
    /// The workspace of this name; it comes to be with its first lock or state.
    pub fn workspace(self: &Arc<Self>, name: &str, caller: Principal) -> Result<Workspace> {
        check_name(name)?;
        Ok(Workspace { engine: self.clone(), name: name.to_owned(), caller })
    }
}

impl Workspace {
    /// Runs a use case that moves something in this workspace: one at a time.
    async fn write<T: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut Tx<'_>, &Context, WorkspaceId, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (context, name, actor) =
            (self.engine.context.clone(), self.name.clone(), self.caller.name.clone());
        let fresh = WorkspaceId(context.ids.next());
        self.engine
            .db
            .write(move |tx| {
                let id = tx.hold_workspace(context.organisation, fresh, &name, &actor, context.now())?;
                body(tx, &context, id, &actor)
            })
            .await
    }

    async fn read_body(&self) -> Result<Option<Bytes>> {
        let (organisation, name) = (self.engine.context.organisation, self.name.clone());
        let found = self.engine.db.read(move |tx| {
            let Some(id) = tx.workspace(organisation, &name)? else { return Ok(None) };
            let of = StateOf::Workspace(id);
            Ok(tx.latest_body(of)?.map(|body| (of, body)))
        });
        match found.await? {
            Some((of, body)) => Ok(Some(self.engine.fetch(of, body).await?)),
            None => Ok(None),
        }
    }

    async fn write_body(&self, lock: Option<String>, body: Bytes) -> Result<()> {
        let head = Head::read(&body).map_err(invalid)?;
        let of = StateOf::Workspace(self.write(|_, _, id, _| Ok(id)).await?);
        let shelved = self.engine.shelve(of, &body).await?;
        let keep = self.engine.state_versions();
        self.write(move |tx, context, _, actor| {
            refuse_other_lock(tx.state_lock(of)?.as_ref(), lock.as_deref())?;
            let new = NewState {
                of,
                organisation: context.organisation,
                serial: head.serial,
                lineage: head.lineage.clone(),
                digest: shelved.digest.clone(),
                size: shelved.size,
                body: shelved.body.clone(),
                fence: 0,
                operation: None,
                actor: Some(actor.to_owned()),
            };
            settled(tx.keep_state(&new, keep, context.now())?, head.serial)
        })
        .await
    }

    /// Without an id (`force-unlock`) one's own lock goes, and an administrator may take anybody's away.
    async fn release(&self, lock: Option<StateLock>) -> Result<()> {
        let (name, admin) = (self.name.clone(), self.caller.may_everywhere(Role::Admin));
        self.write(move |tx, context, id, actor| {
            let of = StateOf::Workspace(id);
            let Some(held) = tx.state_lock(of)? else { return Ok(()) };
            match &lock {
                Some(lock) => refuse_other_lock(Some(&held), Some(&lock.id))?,
                None if admin || held.actor.as_deref() == Some(actor) => {
                    let told = json!({ "workspace": name, "lock": held.id, "holder": held.document });
                    let mut progress = Progress::new(tx, context, context.now());
                    progress.event("state.unlocked", actor, None, None, None, told)?;
                }
                None => {
                    let message =
                        format!("the lock is held by {}: taking it away takes the role admin", holder(&held));
                    return Err(refuse(ErrorCode::Conflict, message));
                }
            }
            tx.drop_state_lock(of, &held)
        })
        .await
    }
}

#[async_trait]
impl StateStore for Workspace {
    async fn read(&self) -> LinkResult<Option<Bytes>> {
        self.read_body().await.map_err(refused)
    }

    async fn write(&self, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        self.write_body(lock, body).await.map_err(refused)
    }

    async fn lock(&self, lock: StateLock) -> LinkResult<LockAnswer> {
        let document = serde_json::to_value(&lock).unwrap_or_default();
        let taken = Self::write(self, move |tx, context, id, actor| {
            Ok(lock_answer(tx.lock_workspace(id, &lock.id, &document, actor, context.now())?))
        });
        taken.await.map_err(refused)
    }

    async fn unlock(&self, lock: Option<StateLock>) -> LinkResult<()> {
        self.release(lock).await.map_err(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_free_but_not_wild() {
        for name in ["prod", "team/network", "Ünïcode name", "a.b-c_d"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in ["", "/", "a//b", "../x", "a/", "a\nb", &"x".repeat(201)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
