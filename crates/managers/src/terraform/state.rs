//! The stored state: outputs, and whether anything is left.

use std::collections::BTreeSet;

use conductor_domain::work::{Failure, Output, Outputs};
use serde_json::Value;

use crate::Job;

#[derive(Debug, Default)]
pub(super) struct State {
    pub outputs: Outputs,
    pub resources: usize,
    /// Of every managed thing in it.
    pub addresses: BTreeSet<String>,
}

impl State {
    /// The state as it is stored now; none is an empty one.
    pub async fn read(job: &dyn Job) -> Result<Self, Failure> {
        match job.read_state().await? {
            Some(bytes) if !bytes.is_empty() => Self::parse(&bytes),
            _ => Ok(Self::default()),
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let wrong = |error: serde_json::Error| {
            Failure::failed(format!(
                "the stored state cannot be read: line {} column {}",
                error.line(),
                error.column()
            ))
        };
        let document: Value = serde_json::from_slice(bytes).map_err(wrong)?;
        let outputs = document["outputs"].as_object().into_iter().flatten();
        let resources = document["resources"].as_array().into_iter().flatten();
        let managed: Vec<&Value> = resources
            .filter(|resource| resource["mode"] == "managed")
            .filter(|resource| resource["instances"].as_array().is_some_and(|list| !list.is_empty()))
            .collect();
        Ok(Self {
            outputs: outputs.map(|(name, output)| (name.clone(), read_output(output))).collect(),
            resources: managed.len(),
            addresses: managed.into_iter().flat_map(addresses).collect(),
        })
    }

    pub fn is_empty(&self) -> bool {
        self.resources == 0 && self.outputs.is_empty()
    }
}

/// `module.m.type.name`, with an index for each instance that has one.
fn addresses(resource: &Value) -> Vec<String> {
    let text = |name: &str| resource[name].as_str().unwrap_or_default();
    let module = resource["module"].as_str().map(|module| format!("{module}.")).unwrap_or_default();
    let base = format!("{module}{}.{}", text("type"), text("name"));
    let instances = resource["instances"].as_array().into_iter().flatten();
    instances
        .map(|instance| match instance.get("index_key") {
            None | Some(Value::Null) => base.clone(),
            Some(key) => format!("{base}[{key}]"),
        })
        .collect()
}

/// An output in a state and in the values of a plan has the same shape.
pub(super) fn read_output(output: &Value) -> Output {
    Output { value: output["value"].clone(), sensitive: output["sensitive"].as_bool().unwrap_or(false) }
}
