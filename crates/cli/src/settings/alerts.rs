//! What alerts go by, and where they are told.

use std::{sync::Arc, time::Duration};

use conductor_api::webhook::{Format, Webhook};
use conductor_engine::AlertSettings;

use super::duration;
use crate::failure::{Failure, Outcome};

pub const NAMES: [&str; 13] = [
    "alert_webhook",
    "alert_webhook_format",
    "alert_every",
    "alert_failure_rate",
    "alert_failure_window",
    "alert_failure_minimum",
    "alert_queued",
    "alert_queued_for",
    "alert_dead_worker",
    "alert_dead_worker_window",
    "alert_database_errors",
    "alert_database_window",
    "alert_long_running",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alerting {
    pub settings: AlertSettings,
    webhook: Option<(String, Format)>,
}

impl Alerting {
    pub fn read(mut find: impl FnMut(&'static str) -> Option<String>) -> Outcome<Self> {
        let default = AlertSettings::default();
        let mut length = |name: &'static str, otherwise: Duration| match find(name) {
            Some(text) => duration(name, &text),
            None => Ok(otherwise),
        };
        let mut settings = AlertSettings {
            every: length("alert_every", default.every)?,
            failure_window: length("alert_failure_window", default.failure_window)?,
            queued_for: length("alert_queued_for", default.queued_for)?,
            dead_worker: length("alert_dead_worker", default.dead_worker)?,
            dead_worker_window: length("alert_dead_worker_window", default.dead_worker_window)?,
            database_window: length("alert_database_window", default.database_window)?,
            ..default
        };
        settings.long_running =
            find("alert_long_running").map(|text| duration("alert_long_running", &text)).transpose()?;
        for (name, value) in [
            ("alert_failure_minimum", &mut settings.failure_minimum),
            ("alert_queued", &mut settings.queued),
            ("alert_database_errors", &mut settings.database_errors),
        ] {
            if let Some(text) = find(name) {
                *value = text.parse().map_err(|_| wrong(name, &text, "a whole number"))?;
            }
        }
        if let Some(text) = find("alert_failure_rate") {
            let name = "alert_failure_rate";
            settings.failure_rate = share(&text).ok_or_else(|| wrong(name, &text, "a share, as in 10%"))?;
        }
        let format = match find("alert_webhook_format").as_deref() {
            None | Some("json") => Format::Json,
            Some("slack") => Format::Slack,
            Some(other) => return Err(wrong("alert_webhook_format", other, "json or slack")),
        };
        let webhook = find("alert_webhook").map(|url| (url, format));
        let alerting = Self { settings, webhook };
        alerting.webhook()?;
        Ok(alerting)
    }

    pub fn webhook(&self) -> Outcome<Option<Arc<dyn conductor_engine::Webhook>>> {
        let Some((url, format)) = &self.webhook else {
            return Ok(None);
        };
        let webhook = Webhook::new(url, *format)
            .map_err(|error| Failure::usage(format!("CONDUCTOR_ALERT_WEBHOOK cannot be used: {error}")))?;
        Ok(Some(Arc::new(webhook)))
    }
}

fn wrong(name: &str, value: &str, right: &str) -> Failure {
    Failure::usage(format!("CONDUCTOR_{} is `{value}`: it must be {right}", name.to_uppercase()))
}

/// `10%` or `0.1`.
fn share(text: &str) -> Option<f64> {
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.trim().parse().ok()?,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Outcome<Alerting> {
        Alerting::read(|name| given.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn defaults_are_those_of_the_interface() {
        let settings = read(&[]).unwrap().settings;
        assert_eq!((settings.failure_rate, settings.queued, settings.long_running), (0.1, 50, None));
        assert!(read(&[]).unwrap().webhook().unwrap().is_none());
    }

    #[test]
    fn a_share_is_written_either_way_and_mistakes_are_told() {
        assert_eq!(read(&[("alert_failure_rate", "25%")]).unwrap().settings.failure_rate, 0.25);
        assert_eq!(read(&[("alert_failure_rate", "0.25")]).unwrap().settings.failure_rate, 0.25);
        for (name, value) in [
            ("alert_failure_rate", "25"),
            ("alert_queued", "many"),
            ("alert_every", "often"),
            ("alert_webhook_format", "teams"),
            ("alert_webhook", "slack"),
        ] {
            assert!(read(&[(name, value)]).is_err(), "{name}");
        }
    }
}
