//! Versions of a state, and what differs between two.

use conductor_api::types::{Resource, StateDiff, StateVersion};
use conductor_domain::state_file::{Change, Difference};
use serde_json::Value;

use super::{age, single_line, table};
use crate::output::{CYAN, GREEN, RED, Screen, paint};

pub fn states(screen: &Screen, resource: &Resource, versions: &[StateVersion]) -> String {
    if versions.is_empty() {
        let place = resource.state_location.as_ref();
        let elsewhere = place.map(|place| format!(": it is kept by {} at {}", place.backend, place.location));
        return format!("Conductor keeps no state of {}{}\n", resource.name, elsewhere.unwrap_or_default());
    }
    let rows = versions.iter().map(|version| {
        let by = version.operation.map(|id| id.to_string()).or_else(|| version.actor.clone());
        [
            version.number.to_string(),
            version.serial.to_string(),
            version.size.to_string(),
            age(version.created_at),
            by.unwrap_or_default(),
            version.fence.to_string(),
            version.lineage.clone(),
            version.location.clone(),
        ]
    });
    let head = ["NUMBER", "SERIAL", "BYTES", "AGE", "BY", "FENCE", "LINEAGE", "LOCATION"];
    table(screen, head, rows.collect())
}

pub fn state_diff(screen: &Screen, resource: &Resource, diff: &StateDiff) -> String {
    let difference = &diff.difference;
    if difference.is_empty() {
        return format!("versions {} and {} of {} hold the same\n", diff.from, diff.to, resource.name);
    }
    let mut out = String::new();
    for one in &difference.resources {
        let (sign, color) = match one.change {
            Change::Added => ("+", GREEN),
            Change::Removed => ("-", RED),
            Change::Changed => ("~", CYAN),
        };
        out.push_str(&format!("{}\n", paint(screen.color, color, &format!("{sign} {}", one.address))));
        for attribute in &one.attributes {
            out.push_str(&line(attribute));
        }
    }
    if !difference.outputs.is_empty() {
        out.push_str("outputs\n");
    }
    for output in &difference.outputs {
        out.push_str(&line(output));
    }
    out
}

fn line(difference: &Difference) -> String {
    let shown = |value: &Option<Value>| match value {
        None => "(none)".to_owned(),
        Some(value) if difference.sensitive => value.as_str().unwrap_or("null").to_owned(),
        Some(value) => single_line(&value.to_string()),
    };
    format!("    {}: {} → {}\n", difference.path, shown(&difference.before), shown(&difference.after))
}
