//! A whole environment goes: planned like anything else, and nothing else is let in meanwhile.

use conductor_api::types::{Deployment, DestroyRequest, Time};
use conductor_domain::{
    ids::EnvironmentId,
    lifecycle::{ChangeKind, ErrorCode},
};
use conductor_store::{Result, Tx, changes::ChangeRow};

use crate::{
    Engine,
    changes::{Domains, Once, environment, lock_known},
    hand::{ByHand, begin, nobody, shown},
    lifetimes::over_at,
    planning::Place,
    refusal::refuse,
    views,
};

impl Engine {
    /// Everything of an environment goes; what others use of it stays, and what is protected is in the way.
    pub async fn tear_down(
        &self,
        request: DestroyRequest,
        actor: &str,
        key: Option<&str>,
    ) -> Result<Deployment> {
        let (context, actor, key) = (self.context.clone(), actor.to_owned(), key.map(str::to_owned));
        let body = serde_json::to_vec(&request).unwrap_or_default();
        let by_hand = ByHand::Teardown { keep_protected: request.keep_protected };
        if request.dry_run {
            return self
                .db
                .read(move |tx| {
                    let place = nobody(environment(tx, &context, &request.environment)?);
                    shown(tx, &context, &place, ChangeKind::Teardown, &by_hand)
                })
                .await;
        }
        let mut domains = Domains::new();
        self.db
            .write(move |tx| {
                let now = context.now();
                let place = nobody(environment(tx, &context, &request.environment)?);
                domains.extend(tx.domains_in(place.environment.id)?);
                lock_known(tx, &mut domains, place.environment.domain)?;
                let once = Once::read(tx, key.as_deref(), &body)?;
                if let Some(change) = once.replayed(tx, &context)? {
                    return views::deployment(tx, &context, change);
                }
                may_be_torn_down(tx, &place)?;
                let kind = ChangeKind::Teardown;
                let (id, _) =
                    begin(tx, &context, &place, kind, by_hand.clone(), None, &actor, &mut domains, now)?;
                once.keep(tx, &context, id, now)?;
                views::deployment(tx, &context, id)
            })
            .await
    }
}

/// Nothing else may be under way: it would be torn down in the making.
fn may_be_torn_down(tx: &mut Tx<'_>, place: &Place) -> Result<()> {
    if place.environment.document["protected"] == true {
        let message = format!("environment `{}` is protected", place.environment.name);
        return Err(refuse(ErrorCode::Conflict, message));
    }
    let busy = tx.open_changes_in(place.environment.id)?;
    let busy = busy.iter().find(|change| {
        matches!(change.kind, ChangeKind::Deploy | ChangeKind::Destroy | ChangeKind::Teardown)
    });
    match busy {
        None => Ok(()),
        Some(change) => {
            let message = format!(
                "{} ({}) is under way in `{}`; wait for it or cancel it first",
                change.id, change.kind, place.environment.name
            );
            Err(refuse(ErrorCode::Conflict, message))
        }
    }
}

/// What is torn down takes nothing new.
pub(crate) fn stands(tx: &mut Tx<'_>, place: &Place, now: i64) -> Result<()> {
    if let Some(end) = over_at(&place.environment).filter(|end| *end <= now) {
        let message = format!(
            "the time of `{}` was over at {}; raise its `ttl` to use it on",
            place.environment.name,
            Time(end)
        );
        return Err(refuse(ErrorCode::Conflict, message));
    }
    match teardown_of(tx, place.environment.id)? {
        None => Ok(()),
        Some(change) => {
            let message = format!("`{}` is being torn down by {}", place.environment.name, change.id);
            Err(refuse(ErrorCode::Conflict, message))
        }
    }
}

pub(crate) fn teardown_of(tx: &mut Tx<'_>, environment: EnvironmentId) -> Result<Option<ChangeRow>> {
    let open = tx.open_changes_in(environment)?;
    Ok(open.into_iter().find(|change| change.kind == ChangeKind::Teardown))
}
