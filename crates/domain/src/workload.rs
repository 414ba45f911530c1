//! The workload itself, as a thing to be made: the Score file's containers and service, placeholders and all.
//!
//! It is planned and run like any resource of type `workload`; what it is handed is one parameter, `workload`.

use conductor_score::{Container, FileContent, Manifest};
use serde_json::{Map, Value, json};

use crate::plan::Problem;

pub const TYPE: &str = "workload";

/// Marks a text whose placeholders are not to be filled in.
fn verbatim(text: &str) -> String {
    text.replace('$', "$$")
}

/// The workload's parameters as raw texts; only what Score expands keeps its placeholders.
pub fn raw(manifest: &Manifest, image: Option<&str>) -> Result<Map<String, Value>, Vec<Problem>> {
    let mut problems = Vec::new();
    let containers: Map<String, Value> = manifest
        .containers
        .iter()
        .map(|(name, container)| (name.clone(), raw_container(name, container, image, &mut problems)))
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let workload = json!({
        "name": manifest.metadata.name,
        "annotations": manifest.metadata.annotations.iter().map(|(k, v)| (k.clone(), Value::String(verbatim(v)))).collect::<Map<_, _>>(),
        "containers": containers,
        "service": { "ports": serde_json::to_value(&manifest.service).unwrap_or_default() },
    });
    Ok(Map::from_iter([("workload".to_owned(), workload)]))
}

fn raw_container(
    name: &str,
    container: &Container,
    image: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Value {
    let mut value = serde_json::to_value(container).unwrap_or_default();
    let image = match (container.image.as_str(), image) {
        (".", Some(image)) => image,
        (".", None) => {
            problems.push(Problem {
                path: format!("containers.{name}.image"),
                message: "the image `.` is supplied when deploying, and was not".into(),
                suggestion: Some("give it with --image REF".into()),
                at: None,
            });
            "."
        }
        (image, _) => image,
    };
    value["image"] = Value::String(verbatim(image));
    for list in ["command", "args"] {
        for item in value[list].as_array_mut().into_iter().flatten() {
            *item = Value::String(verbatim(item.as_str().unwrap_or_default()));
        }
    }
    for (target, file) in &container.files {
        let entry = &mut value["files"][target];
        match &file.content {
            FileContent::Text(text) if file.no_expand => entry["content"] = Value::String(verbatim(text)),
            FileContent::Binary(text) => entry["binaryContent"] = Value::String(verbatim(text)),
            FileContent::Source(path) => entry["source"] = Value::String(verbatim(path)),
            FileContent::Text(_) => {}
        }
    }
    for place in ["/livenessProbe", "/readinessProbe"] {
        value.pointer_mut(place).into_iter().for_each(make_verbatim);
    }
    for target in container.volumes.keys() {
        value["volumes"][target].get_mut("path").into_iter().for_each(make_verbatim);
    }
    value
}

fn make_verbatim(value: &mut Value) {
    match value {
        Value::String(text) => *text = verbatim(text),
        Value::Array(items) => items.iter_mut().for_each(make_verbatim),
        Value::Object(entries) => entries.values_mut().for_each(make_verbatim),
        _ => {}
    }
}
