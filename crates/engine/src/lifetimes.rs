//! Environments with a time to live: told of before, torn down after.

use std::collections::BTreeSet;

use conductor_api::types::{DestroyRequest, Time};
use conductor_domain::{
    ids::EnvironmentId,
    lifecycle::{ErrorCode, duration_text},
};
use conductor_store::{Result, catalogue::EnvironmentRow};
use serde_json::json;

use crate::{
    Engine, alerts::tell, progress::Progress, sweep::DESTROY_AGAIN_AFTER, templates::parse_duration,
};

/// When an environment's time is over.
pub(crate) fn over_at(environment: &EnvironmentRow) -> Option<i64> {
    let text = environment.document.get("ttl")?.as_str()?;
    Some(environment.created_at + parse_duration(text)? as i64 * 1_000)
}

/// How long before its end people are told: a tenth of its life, an hour at most.
fn notice(environment: &EnvironmentRow, end: i64) -> i64 {
    ((end - environment.created_at) / 10).min(3_600_000_000)
}

impl Engine {
    /// Warns of environments whose time is nearly over, and tears down those whose time is.
    pub async fn keep_lifetimes(&self) -> Result<()> {
        let context = self.context.clone();
        let now = context.now();
        let limited = self.db.read(move |tx| {
            let all = tx.environments(context.organisation)?;
            let mut limited = Vec::new();
            for environment in all {
                let Some(end) = over_at(&environment) else { continue };
                if end - notice(&environment, end) <= now && !tx.resources_in(environment.id)?.is_empty() {
                    limited.push((environment, end));
                }
            }
            Ok(limited)
        });
        for (environment, end) in limited.await? {
            match end <= now {
                true => self.end(&environment).await?,
                false => self.warn(&environment, end).await?,
            }
        }
        Ok(())
    }

    async fn warn(&self, environment: &EnvironmentRow, end: i64) -> Result<()> {
        if !self.is_news(environment.id) {
            return Ok(());
        }
        let (context, name) = (self.context.clone(), environment.name.clone());
        let now = context.now();
        tracing::warn!(environment = name, "is torn down in {}", duration_text(end - now));
        self.db
            .write(move |tx| {
                let told = json!({ "environment": name, "at": Time(end) });
                let mut progress = Progress::new(tx, &context, now);
                progress.event("environment.expiring", "conductor", None, None, None, told)?;
                let message = format!("environment {name} is torn down at {}", Time(end));
                tell(tx, &context, "environment", "expiring", &message, json!({ "environment": name }))
            })
            .await
    }

    /// Once for each environment while this process runs.
    fn is_news(&self, id: EnvironmentId) -> bool {
        self.warned
            .lock()
            .is_ok_and(|mut warned: std::sync::MutexGuard<'_, BTreeSet<EnvironmentId>>| warned.insert(id))
    }

    /// Whether somebody said no to its end, or it failed just now; other terms are another matter.
    async fn is_put_off(&self, environment: &EnvironmentRow) -> Result<bool> {
        let (id, changed, now) = (environment.id, environment.updated_at, self.context.now());
        let last = self.db.read(move |tx| tx.last_end_of(id)).await?;
        Ok(last.is_some_and(|(at, error)| match error {
            _ if changed > at => false,
            Some(error) if error["code"] == ErrorCode::Rejected.as_str() => true,
            Some(_) => now - at < DESTROY_AGAIN_AFTER.as_micros() as i64,
            None => false,
        }))
    }

    async fn end(&self, environment: &EnvironmentRow) -> Result<()> {
        if self.is_put_off(environment).await? {
            return Ok(());
        }
        let request = DestroyRequest {
            environment: environment.name.clone(),
            application: None,
            dry_run: true,
            keep_protected: true,
        };
        let goes = self.tear_down(request.clone(), "conductor", None).await?;
        if goes.removals.iter().all(|item| item.action != conductor_domain::lifecycle::Action::Remove) {
            return Ok(());
        }
        let request = DestroyRequest { dry_run: false, ..request };
        match self.tear_down(request, "conductor", None).await {
            // Something is under way: the next round looks again.
            Err(conductor_store::Error::Refused { message, .. }) => {
                tracing::info!(environment = environment.name, %message, "its time is over, but");
                Ok(())
            }
            other => other.map(drop),
        }
    }
}
