//! Which kinds of documents there are, and the keys each may have.

use conductor_domain::nearest;
use conductor_score::Finding;
use serde_json::Value;

use super::document::{Document, finding};

struct Kind {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    /// Its keys depend on something else.
    open: bool,
}

/// In the order in which documents are applied: what is named comes before what names it.
const KINDS: [Kind; 7] = [
    Kind {
        name: "Organisation",
        required: &[],
        optional: &["approval", "description", "labels"],
        open: false,
    },
    Kind {
        name: "Environment",
        required: &[],
        optional: &[
            "type",
            "description",
            "state",
            "approval",
            "drift",
            "ttl",
            "protected",
            "labels",
            "timeout",
            "grace",
        ],
        open: false,
    },
    Kind {
        name: "Application",
        required: &[],
        optional: &["description", "repository", "path", "branches", "owners", "labels"],
        open: false,
    },
    Kind {
        name: "Integration",
        required: &["provider"],
        optional: &[
            "type",
            "environment",
            "variables",
            "files",
            "settings",
            "passthrough",
            "audience",
            "tokenVariable",
            "lifetime",
            "test",
            "description",
            "labels",
        ],
        open: false,
    },
    Kind {
        name: "Template",
        required: &["type"],
        optional: &[
            "manager",
            "class",
            "version",
            "config",
            "parameters",
            "outputs",
            "state",
            "description",
            "abstract",
            "parents",
            "requires",
            "integrations",
            "tags",
            "configs",
            "sharing",
            "approval",
            "drift",
            "hooks",
            "replace",
            "limits",
            "toolVersion",
            "worker",
            "labels",
            "retain",
            "grace",
        ],
        open: false,
    },
    Kind { name: "Rule", required: &["template", "match"], optional: &["description"], open: false },
    Kind {
        name: "Pool",
        required: &["environment", "template"],
        optional: &[
            "size",
            "min",
            "max",
            "sharingPolicy",
            "maxConsumers",
            "parameters",
            "idle",
            "auto",
            "onRelease",
            "description",
            "labels",
        ],
        open: false,
    },
];

/// Where a kind stands in the order.
pub fn rank(kind: &str) -> usize {
    KINDS.iter().position(|known| known.name == kind).unwrap_or(KINDS.len())
}

/// What is wrong with a document, before anybody asks what it means.
pub fn check(document: &Document) -> Vec<Finding> {
    let at = |path: &str, message: String, suggestion: String| {
        let (line, column) = document.place(path);
        let mut found = finding(line, column, path, &message, &suggestion);
        found.length = path.rsplit('.').next().map_or(1, |key| key.chars().count().max(1));
        found
    };
    let Some(map) = document.value.as_object() else {
        let message = "a document must be a map with `kind` and `name`".to_owned();
        return vec![at("", message, "begin with `kind: Template`, for example".into())];
    };
    let names = || KINDS.iter().map(|kind| kind.name);
    let all = || format!("one of {}", names().collect::<Vec<_>>().join(", "));
    let kind = match map.get("kind") {
        None => {
            return vec![at("", "this document has no `kind`".into(), format!("add `kind:`, {}", all()))];
        }
        Some(Value::String(word)) => match KINDS.iter().find(|kind| kind.name == word) {
            Some(kind) => kind,
            None => {
                let close =
                    nearest(word, names()).or_else(|| names().find(|name| name.eq_ignore_ascii_case(word)));
                let suggestion = close
                    .map_or_else(|| format!("write {}", all()), |name| format!("did you mean `{name}`?"));
                let mut found = at("kind", format!("`{word}` is not a kind of document"), suggestion);
                found.column += "kind: ".len();
                found.length = word.chars().count().max(1);
                return vec![found];
            }
        },
        Some(_) => {
            return vec![at("kind", "`kind` must be a text".into(), format!("write {}", all()))];
        }
    };
    let mut found = Vec::new();
    let known = || ["kind", "name"].iter().chain(kind.required).chain(kind.optional).copied();
    for key in map.keys().filter(|key| !kind.open && !known().any(|name| name == key.as_str())) {
        let suggestion = nearest(key, known()).map_or_else(
            || format!("its keys are: {}", known().collect::<Vec<_>>().join(", ")),
            |name| format!("did you mean `{name}`?"),
        );
        found.push(at(key, format!("`{key}` is not a key of a {}", kind.name), suggestion));
    }
    for key in ["name"].iter().chain(kind.required) {
        match map.get(*key) {
            None => found.push(at("", format!("this {} has no `{key}`", kind.name), format!("add `{key}:`"))),
            Some(Value::String(text)) if !text.trim().is_empty() => {}
            Some(Value::Object(_)) if *key == "match" => {}
            Some(_) if *key == "match" => {
                found.push(at(key, "`match` must be a map".into(), "write `match: { type: TYPE }`".into()));
            }
            Some(_) => found.push(at(key, format!("`{key}` must be a text"), "put it in quotes".into())),
        }
    }
    found
}
