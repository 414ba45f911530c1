//! A saved plan as `show -json` tells it: what it would take away, and a masked form for people.

use std::collections::BTreeSet;

use conductor_domain::work::{Difference, Failure};
use serde_json::{Map, Value, json};

use crate::outputs::contains_secret;

const HIDDEN: &str = "(sensitive)";
const UNKNOWN: &str = "(known after apply)";

/// Refuses a plan that takes away something that is there.
pub(super) fn refuse_loss(plan: &Value) -> Result<(), Failure> {
    let (mut replaced, mut deleted) = (Vec::new(), Vec::new());
    for change in changes(plan, "resource_changes") {
        let actions = actions(change);
        if change["mode"] == "managed" && actions.contains(&"delete") {
            let address = change["address"].as_str().unwrap_or("a resource").to_owned();
            if actions.contains(&"create") { replaced.push(address) } else { deleted.push(address) }
        }
    }
    let mut losses = Vec::new();
    for (verb, addresses) in [("replace", replaced), ("delete", deleted)] {
        if !addresses.is_empty() {
            losses.push(format!("{verb} {}", addresses.join(", ")));
        }
    }
    if losses.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!("stopped before anything was changed: the update would {}", losses.join(" and ")))
        .hint("to permit it, apply a version of the template with `allowReplace: true` in its config; to keep what is there, take back the parameter change"))
}

/// The managed resources that the refreshed state holds.
pub(super) fn refreshed_resources(plan: &Value) -> usize {
    fn count(module: &Value) -> usize {
        let list = |name: &str| module[name].as_array().into_iter().flatten();
        list("resources").filter(|resource| resource["mode"] == "managed").count()
            + list("child_modules").map(count).sum::<usize>()
    }
    count(&plan["prior_state"]["values"]["root_module"])
}

/// What a look found to be other than what the state says, attribute by attribute.
pub(super) fn differences(plan: &Value, secrets: &[String]) -> Vec<Difference> {
    let mut found = Vec::new();
    for drift in changes(plan, "resource_drift").filter(|drift| drift["mode"] != "data") {
        let address = drift["address"].as_str().unwrap_or("a resource");
        let change = &drift["change"];
        if actions(drift) == ["delete"] {
            let path = address.to_owned();
            found.push(Difference { path, recorded: "there".into(), actual: "gone".into() });
            continue;
        }
        let mut shown = values(change);
        hide(&mut shown, secrets);
        let names = |side: &str| change[side].as_object().into_iter().flatten().map(|(name, _)| name.clone());
        let names: BTreeSet<String> = names("before").chain(names("after")).collect();
        for name in names.iter().filter(|name| change["before"][*name] != change["after"][*name]) {
            found.push(Difference {
                path: format!("{address}.{name}"),
                recorded: shown["before"][name].clone(),
                actual: shown["after"][name].clone(),
            });
        }
    }
    found
}

/// The plan for people: only what changes, everything sensitive hidden, nothing of the configuration.
pub(super) fn masked(plan: &Value, secrets: &[String]) -> Value {
    let list = |name: &str| {
        changes(plan, name)
            .filter(|change| actions(change) != ["no-op"])
            .map(masked_change)
            .collect::<Vec<_>>()
    };
    let changes = list("resource_changes");
    let count = |wanted: &dyn Fn(&[&str]) -> bool| {
        let all = changes.iter().filter_map(|change| change["actions"].as_array());
        all.filter(|list| wanted(&list.iter().filter_map(Value::as_str).collect::<Vec<_>>())).count()
    };
    let outputs: Map<String, Value> = plan["output_changes"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, change)| change["actions"] != json!(["no-op"]))
        .map(|(name, change)| (name.clone(), values(change)))
        .collect();
    let mut shown = json!({
        "summary": {
            "add": count(&|actions| actions == ["create"]),
            "change": count(&|actions| actions == ["update"]),
            "replace": count(&|actions| actions.len() == 2),
            "remove": count(&|actions| actions == ["delete"]),
        },
        "changes": changes,
        "drift": list("resource_drift"),
        "outputs": outputs,
    });
    hide(&mut shown, secrets);
    shown
}

fn changes<'a>(plan: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    plan[name].as_array().into_iter().flatten()
}

fn actions(change: &Value) -> Vec<&str> {
    change["change"]["actions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn masked_change(change: &Value) -> Value {
    let mut shown = values(&change["change"]);
    shown["address"] = change["address"].clone();
    for (from, to) in [("previous_address", "previousAddress"), ("action_reason", "reason")] {
        if let Some(value) = change.get(from) {
            shown[to] = value.clone();
        }
    }
    if let Some(paths) = change["change"].get("replace_paths") {
        shown["replacePaths"] = paths.clone();
    }
    shown
}

fn values(change: &Value) -> Value {
    let mut before = change["before"].clone();
    let mut after = change["after"].clone();
    lay(&mut after, &change["after_unknown"], UNKNOWN);
    lay(&mut before, &change["before_sensitive"], HIDDEN);
    lay(&mut after, &change["after_sensitive"], HIDDEN);
    json!({"actions": change["actions"], "before": before, "after": after})
}

/// Puts `word` wherever the mask says `true`, be there a value or not.
fn lay(value: &mut Value, mask: &Value, word: &str) {
    match mask {
        Value::Bool(true) => *value = word.into(),
        Value::Object(masks) => {
            if !value.is_object() && masks.values().any(marks) {
                *value = json!({});
            }
            for (name, mask) in masks {
                if marks(mask) {
                    lay(&mut value[name.as_str()], mask, word);
                }
            }
        }
        Value::Array(masks) => {
            if !value.is_array() && masks.iter().any(marks) {
                *value = json!([]);
            }
            if let Value::Array(items) = value {
                for (place, mask) in masks.iter().enumerate().filter(|(_, mask)| marks(mask)) {
                    if items.len() <= place {
                        items.resize(place + 1, Value::Null);
                    }
                    lay(&mut items[place], mask, word);
                }
            }
        }
        _ => {}
    }
}

fn marks(mask: &Value) -> bool {
    match mask {
        Value::Bool(flag) => *flag,
        Value::Object(masks) => masks.values().any(marks),
        Value::Array(masks) => masks.iter().any(marks),
        _ => false,
    }
}

/// Values that are secret for us but not for the module.
fn hide(value: &mut Value, secrets: &[String]) {
    match value {
        Value::String(text) if contains_secret(text, secrets) => *text = HIDDEN.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        Value::Object(map) => map.values_mut().for_each(|item| hide(item, secrets)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Value {
        json!({
            "resource_changes": [
                {"address": "a.x", "mode": "managed", "change": {
                    "actions": ["delete", "create"], "before": {"p": "old", "q": [1, {"r": "s3"}]},
                    "after": {"p": "new", "q": [1, {"r": "s4"}], "open": "has my-token inside"},
                    "after_unknown": {"id": true},
                    "before_sensitive": {"p": true, "q": [false, {"r": true}]},
                    "after_sensitive": {"p": true, "q": [false, {"r": true}], "absent": {}}}},
                {"address": "b.y", "mode": "managed", "change": {"actions": ["no-op"], "before": {"z": "plain"}}},
                {"address": "data.c", "mode": "data", "change": {"actions": ["delete"]}},
            ],
            "output_changes": {"o": {"actions": ["create"], "after": "x", "after_sensitive": true}},
            "variables": {"password": {"value": "s4"}},
        })
    }

    #[test]
    fn everything_sensitive_is_hidden() {
        let shown = masked(&plan(), &["my-token".to_owned()]);
        assert_eq!(shown["summary"]["replace"], 1);
        assert_eq!(shown["changes"][0]["after"]["id"], UNKNOWN);
        assert_eq!(shown["changes"][0]["after"]["q"], json!([1, {"r": HIDDEN}]));
        assert_eq!(shown["outputs"]["o"]["after"], HIDDEN);
        let text = shown.to_string();
        for secret in ["old", "new", "s3", "s4", "my-token", "plain"] {
            assert!(
                !text.contains(&format!("\"{secret}\"")) && !text.contains("my-token"),
                "{secret} in {text}"
            );
        }
    }

    #[test]
    fn drift_is_told_by_attribute_and_without_secrets() {
        let plan = json!({"resource_drift": [
            {"address": "a.x", "mode": "managed", "change": {"actions": ["update"],
                "before": {"size": 1, "key": "s1", "same": 1}, "after": {"size": 2, "key": "s2", "same": 1},
                "before_sensitive": {"key": true}, "after_sensitive": {"key": true}}},
            {"address": "b.y", "mode": "managed", "change": {"actions": ["delete"], "before": {"z": 1}, "after": null}},
        ]});
        let told: Vec<String> = differences(&plan, &[])
            .iter()
            .map(|one| format!("{}: {} -> {}", one.path, one.recorded, one.actual))
            .collect();
        assert_eq!(
            told,
            ["a.x.key: \"(sensitive)\" -> \"(sensitive)\"", "a.x.size: 1 -> 2", "b.y: \"there\" -> \"gone\"",]
        );
    }

    #[test]
    fn a_plan_that_takes_something_away_is_refused_by_name() {
        let failure = refuse_loss(&plan()).unwrap_err();
        assert!(failure.message.ends_with("would replace a.x"), "{}", failure.message);
        assert!(refuse_loss(&json!({"resource_changes": []})).is_ok());
    }
}
