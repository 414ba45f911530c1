//! The `conductor` protocol: one program, five steps.

use conductor_domain::work::{Done, Failure, Output, Step, StepKind};
use serde_json::{Map, Value, json};

use super::{ask, take_object};
use crate::{Job, config::Config, outputs};

pub(super) async fn run(job: &dyn Job, step: &Step, config: Config<'_>) -> Result<Done, Failure> {
    let args = vec![step.kind.as_str().to_owned()];
    let mut answer = ask(job, step, config, args, &document(step)).await?;
    let mut sensitive = config.texts("sensitive")?;
    sensitive.extend(names(&mut answer)?);
    let mut outputs = take_object("outputs", &mut answer)?
        .into_iter()
        .map(|(name, value)| {
            let sensitive = sensitive.contains(&name);
            (name, Output { value, sensitive })
        })
        .collect();
    outputs::seal(job, step, &mut outputs);
    let exists = match answer.remove("exists") {
        None | Some(Value::Null) => None,
        Some(Value::Bool(exists)) => Some(exists),
        Some(_) => {
            return Err(Failure::failed("in the program's answer `exists` must be true or false"));
        }
    };
    if step.kind == StepKind::Delete && exists == Some(true) {
        return Err(Failure::failed("the program ended well, but says that the resource still exists"));
    }
    let external_id = match answer.remove("externalId") {
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(id),
        Some(_) => {
            return Err(Failure::failed("in the program's answer `externalId` must be a string"));
        }
    };
    // State that is left out stays as it was; `null` takes it away.
    let state = match answer.remove("state") {
        None => step.state.clone(),
        Some(Value::Null) => None,
        Some(state) => Some(state),
    };
    let plan = if step.kind == StepKind::Plan {
        answer.remove("plan").or(Some(Value::Object(answer)))
    } else {
        None
    };
    Ok(Done { outputs, state, external_id, exists, plan, ..Done::default() })
}

fn document(step: &Step) -> Value {
    let subject = &step.subject;
    json!({
        "step": step.kind,
        "operation": {"id": step.operation, "attempt": step.attempt},
        "resource": {
            "id": subject.id,
            "name": subject.name,
            "slug": subject.slug,
            "type": subject.kind,
            "class": subject.class,
            "environment": subject.environment,
            "application": subject.application,
        },
        "parameters": step.parameters,
        "previous": step.previous,
        "state": step.state,
        "dependencies": step.dependencies,
    })
}

fn names(answer: &mut Map<String, Value>) -> Result<Vec<String>, Failure> {
    match answer.remove("sensitive") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => serde_json::from_value(value).map_err(|_| {
            Failure::failed("in the program's answer `sensitive` must be a list of output names")
        }),
    }
}
