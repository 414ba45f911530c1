//! The `score` protocol: a `cmd://` provisioner of score-compose, used as it is.
//!
//! Such a program knows one mode, `provision`, and nothing of deleting: a delete ends well and says that
//! nobody looked. Its resource and shared state are kept together with the resource.

use conductor_domain::work::{Done, Failure, Output, Step, StepKind};
use serde_json::{Map, Value, json};

use super::{ask, take_object};
use crate::{Job, Level, config, config::Config, outputs};

const ANSWER: [&str; 4] = ["resource_state", "resource_outputs", "shared_state", "manifests"];

pub(super) async fn run(job: &dyn Job, step: &Step, config: Config<'_>) -> Result<Done, Failure> {
    match step.kind {
        StepKind::Create | StepKind::Update => {}
        StepKind::Delete => {
            job.log(
                Level::Warn,
                "a provisioner of this protocol cannot delete: what it made stays where it is",
            );
            return Ok(Done::default());
        }
        StepKind::Observe | StepKind::Plan => {
            return Err(Failure::unsupported(format!("the score protocol does not know `{}`", step.kind)));
        }
    }
    let args = config.texts("args")?.iter().map(|arg| arg.replace("<mode>", "provision")).collect();
    let mut shared = kept(step, "shared_state");
    let mut answer = ask(job, step, config, args, &document(step, &shared)).await?;
    if let Some(key) = answer.keys().find(|key| !ANSWER.contains(&key.as_str())) {
        return Err(Failure::failed(format!("the provisioner's answer has an unknown key `{key}`"))
            .hint(config::hint(key, &ANSWER)));
    }
    let sensitive = config.texts("sensitive")?;
    let mut outputs = take_object("resource_outputs", &mut answer)?
        .into_iter()
        .map(|(name, value)| {
            let sensitive = sensitive.contains(&name);
            (name, Output { value, sensitive })
        })
        .collect();
    outputs::seal(job, step, &mut outputs);
    if answer.get("manifests").and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
        job.log(Level::Warn, "the provisioner's manifests are not used");
    }
    merge(&mut shared, take_object("shared_state", &mut answer)?);
    let state = json!({
        "resource_state": take_object("resource_state", &mut answer)?,
        "shared_state": shared,
    });
    Ok(Done { outputs, state: Some(state), ..Done::default() })
}

fn kept(step: &Step, part: &str) -> Map<String, Value> {
    let state = step.state.as_ref().and_then(|state| state.get(part)).and_then(Value::as_object);
    state.cloned().unwrap_or_default()
}

fn document(step: &Step, shared: &Map<String, Value>) -> Value {
    let subject = &step.subject;
    json!({
        "resource_uid": format!("{}.{}#{}", subject.kind, subject.class, subject.name),
        "resource_type": subject.kind,
        "resource_class": subject.class,
        "resource_id": subject.name,
        "resource_params": step.parameters,
        "resource_metadata": {},
        "resource_state": kept(step, "resource_state"),
        "shared_state": shared,
        "source_workload": subject.application.as_deref().unwrap_or_default(),
        "workload_services": {},
    })
}

/// Shared state is answered as a patch: objects merge, `null` removes, all else replaces.
fn merge(into: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                into.remove(&key);
            }
            Value::Object(patch) => {
                let slot = into.entry(key).or_insert_with(|| Value::Object(Map::new()));
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(inner) = slot {
                    merge(inner, patch);
                }
            }
            value => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_merges_removes_and_replaces() {
        let mut state = json!({"a": {"x": 1, "y": 2}, "b": 3, "c": 4}).as_object().unwrap().clone();
        merge(
            &mut state,
            json!({"a": {"x": null, "z": 5}, "b": {"n": 1}, "c": null}).as_object().unwrap().clone(),
        );
        assert_eq!(Value::Object(state), json!({"a": {"y": 2, "z": 5}, "b": {"n": 1}}));
    }
}
