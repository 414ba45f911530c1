//! Terraform's state as a document: its head, the same content under another serial, and what differs between two.
//!
//! Values that the state marks as sensitive, that look like secrets by their name, or that hold a known secret are
//! told apart but never shown.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

pub const HIDDEN: &str = "(sensitive)";

/// Attributes of these names are hidden whether the provider says so or not.
const SECRET_WORDS: [&str; 8] =
    ["password", "passwd", "secret", "token", "private_key", "access_key", "credential", "connection_string"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no terraform state: {0}")]
pub struct NotAState(pub String);

/// What tells one version of a state from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub serial: i64,
    pub lineage: String,
}

impl Head {
    pub fn read(body: &[u8]) -> Result<Self, NotAState> {
        #[derive(Deserialize)]
        struct Fields {
            serial: Option<i64>,
            #[serde(default)]
            lineage: String,
        }
        let fields: Fields = serde_json::from_slice(body).map_err(|error| {
            NotAState(match error.classify() {
                serde_json::error::Category::Data => format!("its serial cannot be read: {error}"),
                _ => format!("not JSON (line {} column {})", error.line(), error.column()),
            })
        })?;
        match fields.serial {
            Some(serial) if serial >= 0 => Ok(Self { serial, lineage: fields.lineage }),
            Some(serial) => Err(NotAState(format!("serial {serial} is negative"))),
            None => Err(NotAState("no serial".into())),
        }
    }
}

/// The same content under another serial; everything else keeps its very digits.
pub fn with_serial(body: &[u8], serial: i64) -> Result<Vec<u8>, NotAState> {
    let wrong = |error: serde_json::Error| NotAState(error.to_string());
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(body).map_err(wrong)?;
    fields.insert("serial".into(), RawValue::from_string(serial.to_string()).map_err(wrong)?);
    serde_json::to_vec(&fields).map_err(wrong)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Removed,
    Changed,
}

/// A value that is not the same in both; hidden ones only say so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// `tags.owner`, `disks[0].size`, or an output's name.
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
    pub sensitive: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDifference {
    /// As terraform writes it.
    pub address: String,
    pub change: Change,
    pub attributes: Vec<Difference>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StateDifference {
    pub resources: Vec<ResourceDifference>,
    pub outputs: Vec<Difference>,
}

impl StateDifference {
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.outputs.is_empty()
    }
}

/// What differs between two states. `secrets` are values that must not be shown wherever they stand.
pub fn diff(before: &[u8], after: &[u8], secrets: &BTreeSet<String>) -> Result<StateDifference, NotAState> {
    let read = |body: &[u8]| -> Result<Value, NotAState> {
        serde_json::from_slice(body).map_err(|error| NotAState(error.to_string()))
    };
    let (before, after) = (read(before)?, read(after)?);
    let (old, new) = (instances(&before), instances(&after));
    let addresses: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut resources = Vec::new();
    for address in addresses {
        let (old, new) = (old.get(address), new.get(address));
        let change = match (old, new) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        };
        let attributes = differing_attributes(old.copied(), new.copied(), secrets);
        if change != Change::Changed || !attributes.is_empty() {
            resources.push(ResourceDifference { address: address.clone(), change, attributes });
        }
    }
    Ok(StateDifference { resources, outputs: differing_outputs(&before, &after, secrets) })
}

/// Every instance by its address.
fn instances(state: &Value) -> BTreeMap<String, &Value> {
    let mut found = BTreeMap::new();
    for resource in state["resources"].as_array().into_iter().flatten() {
        let text = |name: &str| resource[name].as_str().unwrap_or_default();
        let mut address = String::new();
        if !text("module").is_empty() {
            address.push_str(&format!("{}.", text("module")));
        }
        if text("mode") == "data" {
            address.push_str("data.");
        }
        address.push_str(&format!("{}.{}", text("type"), text("name")));
        for instance in resource["instances"].as_array().into_iter().flatten() {
            let key = instance.get("index_key").map(|key| format!("[{key}]")).unwrap_or_default();
            let deposed =
                instance["deposed"].as_str().map(|id| format!(" (deposed {id})")).unwrap_or_default();
            found.insert(format!("{address}{key}{deposed}"), instance);
        }
    }
    found
}

type Leaves = BTreeMap<String, Value>;

fn differing_attributes(
    old: Option<&Value>,
    new: Option<&Value>,
    secrets: &BTreeSet<String>,
) -> Vec<Difference> {
    let marked: Vec<String> = [old, new].into_iter().flatten().flat_map(marked_paths).collect();
    let leaves = |instance: Option<&Value>| {
        let mut leaves = Leaves::new();
        if let Some(instance) = instance {
            flatten("", &instance["attributes"], &mut leaves);
        }
        leaves
    };
    differing(&leaves(old), &leaves(new), &|path| is_marked(path, &marked), secrets)
}

fn differing_outputs(before: &Value, after: &Value, secrets: &BTreeSet<String>) -> Vec<Difference> {
    let of = |state: &Value| -> (Leaves, BTreeSet<String>) {
        let (mut leaves, mut marked) = (Leaves::new(), BTreeSet::new());
        for (name, output) in state["outputs"].as_object().into_iter().flatten() {
            if output["sensitive"] == true {
                marked.insert(name.clone());
            }
            leaves.insert(name.clone(), output["value"].clone());
        }
        (leaves, marked)
    };
    let ((old, marked), (new, more)) = (of(before), of(after));
    differing(&old, &new, &|name| marked.contains(name) || more.contains(name), secrets)
}

fn differing(
    old: &Leaves,
    new: &Leaves,
    marked: &dyn Fn(&str) -> bool,
    secrets: &BTreeSet<String>,
) -> Vec<Difference> {
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut differences = Vec::new();
    for path in paths {
        let (before, after) = (old.get(path), new.get(path));
        if before == after {
            continue;
        }
        let known = |value: Option<&Value>| value.is_some_and(|value| holds_secret(value, secrets));
        let sensitive = marked(path) || sounds_secret(path) || known(before) || known(after);
        let shown = |value: Option<&Value>| {
            value.map(|value| if sensitive && !value.is_null() { HIDDEN.into() } else { value.clone() })
        };
        differences.push(Difference {
            path: path.clone(),
            before: shown(before),
            after: shown(after),
            sensitive,
        });
    }
    differences
}

fn flatten(path: &str, value: &Value, leaves: &mut Leaves) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (name, value) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, leaves);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (place, value) in items.iter().enumerate() {
                flatten(&format!("{path}[{place}]"), value, leaves);
            }
        }
        Value::Null if path.is_empty() => {}
        leaf => drop(leaves.insert(path.to_owned(), leaf.clone())),
    }
}

/// The paths in `sensitive_attributes`, written as ours.
fn marked_paths(instance: &Value) -> Vec<String> {
    let paths = instance["sensitive_attributes"].as_array().into_iter().flatten();
    paths
        .map(|steps| {
            let mut path = String::new();
            for step in steps.as_array().into_iter().flatten() {
                let value = if step["value"].is_object() { &step["value"]["value"] } else { &step["value"] };
                match value {
                    Value::Number(place) => path.push_str(&format!("[{place}]")),
                    Value::String(name) if path.is_empty() => path.push_str(name),
                    Value::String(name) => path.push_str(&format!(".{name}")),
                    _ => {}
                }
            }
            path
        })
        .collect()
}

/// At or below a marked place; an empty mark is everything.
fn is_marked(path: &str, marked: &[String]) -> bool {
    marked.iter().any(|mark| {
        path.strip_prefix(mark.as_str())
            .is_some_and(|rest| mark.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

/// Whether what stands under this name is likely a secret.
pub fn sounds_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word)) || name.contains("sensitive")
}

fn holds_secret(value: &Value, secrets: &BTreeSet<String>) -> bool {
    match value {
        Value::String(text) => secrets.iter().any(|secret| text.contains(secret.as_str())),
        Value::Array(items) => items.iter().any(|item| holds_secret(item, secrets)),
        Value::Object(entries) => entries.values().any(|entry| holds_secret(entry, secrets)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(serial: i64, attributes: Value, marked: Value, output: &str) -> Vec<u8> {
        json!({
            "version": 4, "serial": serial, "lineage": "l",
            "outputs": {"url": {"value": output, "sensitive": true}, "name": {"value": "n"}},
            "resources": [
                {"mode": "managed", "type": "disk", "name": "a", "instances": [
                    {"index_key": 0, "attributes": attributes, "sensitive_attributes": marked}]},
                {"module": "module.m", "mode": "data", "type": "zone", "name": "z", "instances": []},
            ],
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn the_head_is_read_and_anything_else_is_told() {
        let head = Head::read(br#"{"serial": 7, "lineage": "x", "resources": [{}]}"#).unwrap();
        assert_eq!(head, Head { serial: 7, lineage: "x".into() });
        for (body, said) in [
            (&b"x"[..], "not JSON"),
            (b"{}", "no serial"),
            (b"{\"serial\":-1}", "negative"),
            (b"[]", "serial"),
            (b"{\"serial\":1,", "not JSON"),
        ] {
            let error = Head::read(body).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn another_serial_leaves_every_digit_alone() {
        let body = br#"{"version":4,"serial":3,"resources":[{"n":123456789012345678901234567890.10}]}"#;
        let text = String::from_utf8(with_serial(body, 9).unwrap()).unwrap();
        assert!(text.contains("123456789012345678901234567890.10"), "{text}");
        assert_eq!(Head::read(text.as_bytes()).unwrap().serial, 9);
    }

    #[test]
    fn what_differs_is_told_and_what_is_secret_is_not() {
        let mark = json!([[{"type": "get_attr", "value": "blob"}], [{"type": "get_attr", "value": "list"},
            {"type": "index", "value": {"value": 1, "type": "number"}}]]);
        let before =
            state(1, json!({"size": 1, "blob": "b1", "list": ["x", "y1"], "same": true}), mark.clone(), "u1");
        let after = state(
            2,
            json!({"size": 2, "blob": "b2", "list": ["x", "y2"], "same": true, "password": "p", "note": "has hush in"}),
            mark,
            "u2",
        );
        let found = diff(&before, &after, &BTreeSet::from(["hush".to_owned()])).unwrap();
        let [one] = found.resources.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.address.as_str(), one.change), ("disk.a[0]", Change::Changed));
        let told: Vec<(&str, bool)> =
            one.attributes.iter().map(|one| (one.path.as_str(), one.sensitive)).collect();
        assert_eq!(
            told,
            [("blob", true), ("list[1]", true), ("note", true), ("password", true), ("size", false)]
        );
        assert_eq!(found.outputs.len(), 1);
        let text = serde_json::to_string(&found).unwrap();
        for secret in ["b1", "b2", "y1", "y2", "hush", "u1", "u2", "\"p\""] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }

    #[test]
    fn what_came_and_went_is_named() {
        let empty = br#"{"serial":1,"resources":[],"outputs":{}}"#;
        let full = state(2, json!({"size": 1}), json!([]), "u");
        let came = diff(empty, &full, &BTreeSet::new()).unwrap();
        assert_eq!(came.resources[0].change, Change::Added);
        assert_eq!(came.outputs.len(), 2);
        let went = diff(&full, empty, &BTreeSet::new()).unwrap();
        assert_eq!(went.resources[0].change, Change::Removed);
        assert!(diff(&full, &full, &BTreeSet::new()).unwrap().is_empty());
    }
}
