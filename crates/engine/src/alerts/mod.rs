//! The built-in alerts: seen by every server, moved by one, told once.
//!
//! Each round looks at the database once. A server that sees a condition hold fires the alert, or notes that it still
//! holds; it is over when no server has seen it for a while. What is told is a row written with the move, and
//! delivered afterwards by whoever comes by: nothing is lost with a server, and nothing waits for a webhook.

mod notices;
mod rules;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_api::types::{Alert, Time};
use conductor_domain::lifecycle::ErrorCode;
use conductor_store::{Result, Tx, alerts::AlertRow};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Context, Engine,
    progress::Progress,
    refusal::{not_found, refuse},
};

pub use notices::Webhook;
pub(crate) use notices::tell;
pub use rules::{ALERTS, AlertSettings, DATABASE_ERRORS};
use rules::{Finding, Memory, Sight};

/// Nobody is left alone with a silenced alert for longer.
const LONGEST_SILENCE: Duration = Duration::from_secs(30 * 86_400);

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}

fn view(name: &str, description: &str, row: Option<&AlertRow>, now: i64) -> Alert {
    let silenced = row.is_some_and(|row| row.is_silenced(now));
    let firing = row.is_some_and(|row| row.firing);
    let seen = |field: &str| row.and_then(|row| row.document.get(field)).cloned();
    Alert {
        name: name.to_owned(),
        description: description.to_owned(),
        status: if silenced {
            "silenced"
        } else if firing {
            "firing"
        } else {
            "ok"
        }
        .to_owned(),
        firing,
        since: row.filter(|row| row.seen_at > 0).map(|row| Time(row.since)),
        message: seen("message").and_then(|text| text.as_str().map(str::to_owned)),
        value: seen("value").and_then(|value| value.as_f64()),
        threshold: seen("threshold").and_then(|value| value.as_f64()),
        silenced_until: row.filter(|_| silenced).and_then(|row| row.silenced_until).map(Time),
        silenced_by: row.filter(|_| silenced).and_then(|row| row.silenced_by.clone()),
    }
}

impl Engine {
    pub async fn alerts(&self) -> Result<Vec<Alert>> {
        let organisation = self.context.organisation;
        let rows = self.db.read(move |tx| tx.alerts(organisation)).await?;
        let now = self.context.now();
        let row = |name: &str| rows.iter().find(|row| row.name == name);
        Ok(ALERTS.iter().map(|(name, description)| view(name, description, row(name), now)).collect())
    }

    /// Tells nobody of an alert for a while; `None` ends a silence.
    pub async fn silence_alert(&self, name: &str, length: Option<Duration>, actor: &str) -> Result<Alert> {
        let Some((name, description)) = ALERTS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<String> = ALERTS.iter().map(|(name, _)| (*name).to_owned()).collect();
            return Err(not_found("alert", name, &known));
        };
        if length.is_some_and(|length| length > LONGEST_SILENCE) {
            return Err(refuse(ErrorCode::Invalid, "an alert can be silenced for 30 days at most"));
        }
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let mut row = tx.lock_alert(context.organisation, name, now)?;
                let before = row.silenced_until.map(Time);
                row.silenced_until = length.map(|length| now + micros(length));
                row.silenced_by = Some(actor.clone());
                tx.silence_alert(context.organisation, name, row.silenced_until, &actor)?;
                let after = row.silenced_until.map(Time);
                let told = json!({ "alert": name, "until": after, "before": before, "after": after });
                Progress::new(tx, &context, now).event("alert.silenced", &actor, None, None, None, told)?;
                Ok(view(name, description, Some(&row), now))
            })
            .await
    }

    /// Looks, moves and tells until told to stop.
    pub async fn run_alerts(
        self: Arc<Self>,
        settings: AlertSettings,
        webhook: Option<Arc<dyn Webhook>>,
        stop: CancellationToken,
    ) {
        let mut memory = Memory::default();
        self.context.tells.store(webhook.is_some(), std::sync::atomic::Ordering::Relaxed);
        let telling = webhook.clone().map(|webhook| {
            let (engine, stop, every) = (self.clone(), stop.clone(), settings.every);
            tokio::spawn(async move { engine.tell_until(webhook, every, stop).await })
        });
        loop {
            if let Err(error) = self.look_at_alerts(&settings, webhook.as_ref(), &mut memory).await {
                tracing::warn!(%error, "alerts could not be looked at; the next round tries again");
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(settings.every) => {}
            }
        }
        if let Some(telling) = telling {
            let _ = telling.await;
        }
    }

    /// One round.
    async fn look_at_alerts(
        &self,
        settings: &AlertSettings,
        webhook: Option<&Arc<dyn Webhook>>,
        memory: &mut Memory,
    ) -> Result<()> {
        let (context, wanted) = (self.context.clone(), settings.clone());
        let sight = self.db.read(move |tx| Sight::look(tx, &context, &wanted)).await;
        let errors =
            memory.errors(self.db.counted().errors.values().sum(), settings.database_window, Instant::now());
        let mut findings = vec![rules::database(settings, errors)];
        let failed = match sight {
            Ok(sight) => {
                findings.extend(sight.findings(settings));
                memory.rows = sight.rows;
                None
            }
            Err(error) => Some(error),
        };
        for finding in &mut findings {
            memory.hold(finding, Instant::now());
        }
        // What could not be looked at stays as it is; that it could not may itself be worth telling.
        let moved = self.move_alerts(settings, &findings, webhook.is_some(), memory).await;
        if let (Err(_), Some(webhook)) = (&moved, webhook) {
            self.tell_of_outage(&findings[0], webhook.as_ref(), memory).await;
        }
        failed.map_or(moved, Err)
    }

    async fn move_alerts(
        &self,
        settings: &AlertSettings,
        findings: &[Finding],
        tells: bool,
        memory: &mut Memory,
    ) -> Result<()> {
        let now = self.context.now();
        // Seen by nobody for so long, it is over: others may look less often, by another clock.
        let stale = now - 2 * micros(settings.every) - 1_000_000;
        let row = |name: &str| memory.rows.iter().find(|row| row.name == name);
        let idle = |finding: &Finding| match row(finding.name) {
            None => false,
            Some(row) if finding.holds => !finding.due && !row.firing,
            Some(row) => !row.firing || row.seen_at > stale,
        };
        if findings.iter().all(idle) {
            return Ok(());
        }
        let (context, findings) = (self.context.clone(), findings.to_vec());
        let outage_told = memory.outage_told;
        self.db
            .write(move |tx| {
                for finding in &findings {
                    move_alert(tx, &context, finding, stale, tells, outage_told)?;
                }
                Ok(())
            })
            .await?;
        memory.outage_told = false;
        Ok(())
    }
}

fn move_alert(
    tx: &mut Tx<'_>,
    context: &Context,
    finding: &Finding,
    stale: i64,
    tells: bool,
    outage_told: bool,
) -> Result<()> {
    let (organisation, name, now) = (context.organisation, finding.name, context.now());
    let mut row = tx.lock_alert(organisation, name, now)?;
    let document = finding.document();
    if finding.holds && row.firing {
        tx.see_alert(organisation, name, &document, now)?;
    } else if finding.due && !row.firing {
        tx.fire_alert(organisation, name, &document, now)?;
        event(tx, context, "alert.fired", name, &document)?;
        tracing::warn!(alert = name, message = finding.message, "alert fires");
        row = AlertRow { firing: true, told: false, since: now, ..row };
    } else if !finding.holds && row.firing && row.seen_at <= stale {
        tx.resolve_alert(organisation, name, now)?;
        event(tx, context, "alert.resolved", name, &row.document)?;
        tracing::info!(alert = name, "alert is over");
        if row.told && tells && !row.is_silenced(now) {
            notices::add(tx, context, name, "resolved", &row.document, row.since)?;
        }
        return Ok(());
    }
    if row.firing && !row.told && !row.is_silenced(now) {
        tx.tell_alert(organisation, name)?;
        if tells && !(outage_told && name == DATABASE_ERRORS) {
            notices::add(tx, context, name, "firing", &document, row.since)?;
        }
    }
    Ok(())
}

fn event(tx: &mut Tx<'_>, context: &Context, kind: &'static str, name: &str, seen: &Value) -> Result<()> {
    let told = json!({ "alert": name, "seen": seen });
    Progress::new(tx, context, context.now()).event(kind, "conductor", None, None, None, told)
}
