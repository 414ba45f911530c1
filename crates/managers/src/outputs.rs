//! Outputs and the secrets in them.

use conductor_domain::work::{Outputs, Step};
use serde_json::Value;

use crate::Job;

/// Shorter values turn up by chance: they mark nothing.
const SHORTEST_SECRET: usize = 4;

/// Keeps sensitive outputs out of the log, and makes an output that carries a sensitive input sensitive.
pub(crate) fn seal(job: &dyn Job, step: &Step, outputs: &mut Outputs) {
    for output in outputs.values_mut() {
        if !output.sensitive && holds_secret(&output.value, &step.secrets) {
            output.sensitive = true;
        }
        if output.sensitive {
            for_each_text(&output.value, &mut |text| job.keep_secret(text));
        }
    }
}

pub(crate) fn holds_secret(value: &Value, secrets: &[String]) -> bool {
    let mut found = false;
    for_each_text(value, &mut |text| found = found || contains_secret(text, secrets));
    found
}

pub(crate) fn contains_secret(text: &str, secrets: &[String]) -> bool {
    secrets.iter().any(|secret| secret.len() >= SHORTEST_SECRET && text.contains(secret.as_str()))
}

fn for_each_text(value: &Value, act: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => act(text),
        Value::Number(number) => act(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| for_each_text(item, act)),
        Value::Object(map) => map.values().for_each(|item| for_each_text(item, act)),
        Value::Null | Value::Bool(_) => {}
    }
}
