//! Pools may also be written as one list: `pools:` with `resourceTemplate` and `version` apart.

use serde_json::{Map, Value};

use super::Document;

/// A document as it is, or one of kind Pool for every entry of its list.
pub fn expanded(document: Document) -> Vec<Document> {
    let list = match document.value.as_object() {
        Some(map) if !map.contains_key("kind") => map.get("pools").and_then(Value::as_array).cloned(),
        _ => None,
    };
    let Some(list) = list else { return vec![document] };
    let pools = list.into_iter().enumerate().map(|(index, entry)| {
        let value = match entry {
            Value::Object(entry) => Value::Object(pool(entry)),
            other => other,
        };
        document.below(&format!("pools.{index}"), value)
    });
    pools.collect()
}

fn pool(mut entry: Map<String, Value>) -> Map<String, Value> {
    let version = entry.remove("version");
    if let Some(Value::String(name)) = entry.remove("resourceTemplate") {
        let version = version.as_ref().and_then(Value::as_str).map(|text| text.trim_start_matches('v'));
        let template = version.map_or_else(|| name.clone(), |version| format!("{name}@{version}"));
        entry.insert("template".into(), template.into());
    } else if let Some(version) = version {
        entry.insert("version".into(), version);
    }
    entry.insert("kind".into(), "Pool".into());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::document;

    #[test]
    fn a_list_of_pools_is_a_document_for_each() {
        let source = "pools:\n  - name: warm\n    environment: dev\n    resourceTemplate: db\n    version: v1.2.0\n    size: 3\n";
        let documents: Vec<Document> =
            document::read(source).unwrap().into_iter().flat_map(expanded).collect();
        assert_eq!(documents.len(), 1);
        assert_eq!(documents[0].value["kind"], "Pool");
        assert_eq!(documents[0].value["template"], "db@1.2.0");
        assert_eq!(documents[0].place("size"), (6, 5));
    }
}
