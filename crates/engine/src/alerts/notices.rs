//! Telling people: what is to be told is kept until somebody has heard it, in order, by one server at a time.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use conductor_api::types::Time;
use conductor_store::{Result, Tx};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    micros,
    rules::{Finding, Memory},
};
use crate::{Context, Engine};

/// More than this is not kept for a webhook that never answers.
const KEPT: i64 = 100;
/// Whoever tries to tell something has this long before another one does.
const TAKEN_FOR: Duration = Duration::from_secs(60);
const PAUSE_AT_MOST: Duration = Duration::from_secs(60);

/// Where alerts are told; the engine itself knows no HTTP.
#[async_trait]
pub trait Webhook: Send + Sync {
    /// One try. An error says what went wrong.
    async fn tell(&self, notice: &Value) -> std::result::Result<(), String>;
}

#[async_trait]
impl Webhook for conductor_api::webhook::Webhook {
    async fn tell(&self, notice: &Value) -> std::result::Result<(), String> {
        self.send(notice).await
    }
}

fn notice(context: &Context, name: &str, status: &str, seen: &Value, since: i64) -> Value {
    json!({
        "alert": name,
        "status": status,
        "message": seen["message"],
        "value": seen["value"],
        "threshold": seen["threshold"],
        "since": Time(since),
        "at": Time(context.now()),
        "organisation": context.organisation_name,
    })
}

/// Written with the move it tells of.
pub fn add(
    tx: &mut Tx<'_>,
    context: &Context,
    name: &str,
    status: &str,
    seen: &Value,
    since: i64,
) -> Result<()> {
    let document = notice(context, name, status, seen, since);
    let (organisation, now) = (context.organisation, context.now());
    let lost = tx.insert_notice(organisation, context.ids.next(), &document, KEPT, now)?;
    if lost > 0 {
        tracing::error!(lost, "the webhook does not answer: what is oldest is not told any more");
    }
    Ok(())
}

/// Tells people of something that is no alert: that they are asked, that something drifts, that an end is near.
pub(crate) fn tell(
    tx: &mut Tx<'_>,
    context: &Context,
    about: &str,
    status: &str,
    message: &str,
    more: Value,
) -> Result<()> {
    if !context.tells.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut document = notice(context, about, status, &json!({ "message": message }), context.now());
    if let (Some(document), Value::Object(more)) = (document.as_object_mut(), more) {
        document.retain(|_, value| !value.is_null());
        document.extend(more);
    }
    let (organisation, now) = (context.organisation, context.now());
    tx.insert_notice(organisation, context.ids.next(), &document, KEPT, now).map(drop)
}

fn pause(attempts: i64) -> Duration {
    Duration::from_secs(1 << attempts.clamp(1, 7) >> 1).min(PAUSE_AT_MOST)
}

impl Engine {
    pub(super) async fn tell_until(
        &self,
        webhook: Arc<dyn Webhook>,
        every: Duration,
        stop: CancellationToken,
    ) {
        let every = every.min(Duration::from_secs(1));
        loop {
            if let Err(error) = self.tell_what_is_due(webhook.as_ref()).await {
                tracing::debug!(%error, "nothing can be told just now");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    async fn tell_what_is_due(&self, webhook: &dyn Webhook) -> Result<()> {
        let organisation = self.context.organisation;
        loop {
            let now = self.context.now();
            if !self.db.read(move |tx| tx.notice_is_due(organisation, now)).await? {
                return Ok(());
            }
            let taken = self.db.write(move |tx| tx.take_notice(organisation, now, now + micros(TAKEN_FOR)));
            let Some(notice) = taken.await? else { return Ok(()) };
            match webhook.tell(&notice.document).await {
                Ok(()) => self.db.write(move |tx| tx.notice_told(notice.id)).await?,
                Err(error) => {
                    let (attempts, later) = (notice.attempts, pause(notice.attempts));
                    tracing::warn!(%error, attempts, "the webhook was not reached; it is tried again");
                    let at = self.context.now() + micros(later);
                    return self.db.write(move |tx| tx.notice_later(notice.id, at)).await;
                }
            }
        }
    }

    /// The database is away, so nobody can be asked who tells: every server that sees it does, once.
    pub(super) async fn tell_of_outage(&self, finding: &Finding, webhook: &dyn Webhook, memory: &mut Memory) {
        let now = self.context.now();
        let row = memory.rows.iter().find(|row| row.name == finding.name);
        let known = row.is_some_and(|row| row.is_silenced(now) || (row.firing && row.told));
        if memory.outage_told || known || !finding.due {
            return;
        }
        let notice = notice(&self.context, finding.name, "firing", &finding.document(), now);
        match webhook.tell(&notice).await {
            Ok(()) => memory.outage_told = true,
            Err(error) => tracing::warn!(%error, "the webhook was not reached; it is tried again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds: Vec<u64> = (1..=8).map(|attempts| pause(attempts).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    }
}
