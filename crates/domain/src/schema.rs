//! A template's parameter schema: JSON Schema with our annotations, compiled once per template version.
//!
//! Annotations beside JSON Schema's own words: `frozen`, `immutable`, `unique`, `sensitive` on a property.
//! A parameter that is not known yet (it holds a placeholder) is left out of the checks on its value.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::{
    expr::{Expr, Params},
    nearest,
};

#[derive(Debug)]
pub struct Schema {
    json: Value,
    validator: Validator,
}

/// One thing wrong with one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterError {
    /// Dotted, from the requirement's `params`; empty for the whole.
    pub path: String,
    pub message: String,
    pub suggestion: Option<String>,
}

impl Schema {
    pub fn compile(json: Value) -> Result<Self, String> {
        let validator = jsonschema::validator_for(&json).map_err(|error| error.to_string())?;
        Ok(Self { json, validator })
    }

    /// A schema that takes anything.
    pub fn open() -> Self {
        Self::compile(serde_json::json!({ "type": "object" })).expect("a fixed schema compiles")
    }

    pub fn json(&self) -> &Value {
        &self.json
    }

    fn properties(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.json.get("properties").and_then(Value::as_object).into_iter().flatten()
    }

    fn annotated(&self, word: &str) -> BTreeSet<String> {
        self.properties()
            .filter(|(_, property)| property.get(word) == Some(&Value::Bool(true)))
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub fn sensitive(&self) -> BTreeSet<String> {
        self.annotated("sensitive")
    }

    pub fn immutable(&self) -> BTreeSet<String> {
        self.annotated("immutable")
    }

    pub fn frozen(&self) -> BTreeSet<String> {
        self.annotated("frozen")
    }

    pub fn unique(&self) -> BTreeSet<String> {
        self.annotated("unique")
    }

    /// Whether a parameter of this name may be given.
    pub fn declares(&self, name: &str) -> bool {
        self.properties().any(|(declared, _)| declared == name)
    }

    /// Every parameter with what is said of it.
    pub fn by_name(&self) -> BTreeMap<String, Value> {
        self.properties().map(|(name, property)| (name.clone(), property.clone())).collect()
    }

    /// Parameters that must be given and have no default.
    pub fn required(&self) -> BTreeSet<String> {
        let required = self.json.get("required").and_then(Value::as_array).into_iter().flatten();
        let has_default =
            |name: &str| self.properties().any(|(known, p)| known == name && p.get("default").is_some());
        required.filter_map(Value::as_str).filter(|name| !has_default(name)).map(str::to_owned).collect()
    }

    /// The parameters it names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.properties().map(|(name, _)| name.as_str())
    }

    /// Parameters whose default refers to something else.
    pub fn placeholder_defaults(&self) -> BTreeSet<String> {
        self.properties()
            .filter(|(_, property)| {
                property.get("default").is_some_and(|default| default.to_string().contains("${"))
            })
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Defaults first: matching, checks and steps all see them.
    pub fn with_defaults(&self, mut params: Params) -> Params {
        for (name, property) in self.properties() {
            if let Some(default) = property.get("default")
                && !params.contains_key(name)
            {
                params.insert(name.clone(), Expr::Literal(default.clone()));
            }
        }
        params
    }

    /// Everything wrong at once, each with its path.
    pub fn check(&self, params: &Params) -> Vec<ParameterError> {
        let mut unknown = Vec::new();
        let instance = Value::Object(
            params
                .iter()
                .map(|(key, expr)| (key.clone(), known_part(expr, &format!("/{key}"), &mut unknown)))
                .collect::<Map<_, _>>(),
        );
        self.validator
            .iter_errors(&instance)
            .filter(|error| {
                let at = error.instance_path().to_string();
                !unknown.iter().any(|path| at == *path || at.starts_with(&format!("{path}/")))
            })
            .map(|error| self.explain(&error))
            .collect()
    }

    fn explain(&self, error: &jsonschema::ValidationError<'_>) -> ParameterError {
        use jsonschema::error::ValidationErrorKind as Kind;
        let path = error.instance_path().to_string().trim_start_matches('/').replace('/', ".");
        if let Kind::AdditionalProperties { unexpected } = error.kind() {
            let known: Vec<&str> = self.properties().map(|(name, _)| name.as_str()).collect();
            let name = unexpected.first().cloned().unwrap_or_default();
            let suggestion = match nearest(&name, known.iter().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None if known.is_empty() => "this template takes no parameters".into(),
                None => format!("it takes {}", known.join(", ")),
            };
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            return ParameterError {
                path,
                message: format!("there is no parameter `{name}`"),
                suggestion: Some(suggestion),
            };
        }
        let sensitive = path.split('.').next().is_some_and(|first| self.sensitive().contains(first));
        let message =
            if sensitive { "the (sensitive) value does not fit".to_owned() } else { error.to_string() };
        ParameterError { path, message, suggestion: None }
    }
}

/// The value with `null` where something is not known, and the paths of those places.
fn known_part(expr: &Expr, path: &str, unknown: &mut Vec<String>) -> Value {
    match expr {
        Expr::Literal(value) => value.clone(),
        Expr::List(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(i, item)| known_part(item, &format!("{path}/{i}"), unknown))
                .collect(),
        ),
        Expr::Map(entries) => Value::Object(
            entries
                .iter()
                .map(|(key, entry)| (key.clone(), known_part(entry, &format!("{path}/{key}"), unknown)))
                .collect(),
        ),
        Expr::Parts(_) => {
            unknown.push(path.to_owned());
            Value::Null
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{
        expr::{Part, Ref},
        ids::ResourceId,
    };

    fn schema() -> Schema {
        Schema::compile(json!({
            "type": "object", "additionalProperties": false, "required": ["size"],
            "properties": {
                "size": { "enum": ["small", "large"] },
                "zone": { "type": "string", "default": "eu", "immutable": true },
                "password": { "type": "string", "minLength": 8, "sensitive": true },
            }
        }))
        .unwrap()
    }

    fn literal(value: Value) -> Expr {
        Expr::Literal(value)
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_path() {
        let params =
            Params::from([("sise".into(), literal(json!("small"))), ("zone".into(), literal(json!(3)))]);
        let errors = schema().check(&params);
        let told: Vec<_> = errors.iter().map(|e| (e.path.as_str(), e.suggestion.as_deref())).collect();
        assert!(told.contains(&("sise", Some("did you mean `size`?"))), "{errors:?}");
        assert!(told.iter().any(|(path, _)| *path == "zone"), "{errors:?}");
        assert!(errors.iter().any(|e| e.message.contains("size")), "{errors:?}");
    }

    #[test]
    fn a_value_that_is_not_known_yet_is_not_judged() {
        let reference = Part::Ref(Ref { resource: ResourceId(Uuid::nil()), path: vec!["size".into()] });
        let params = Params::from([("size".into(), Expr::Parts(vec![reference]))]);
        assert_eq!(schema().check(&params), vec![]);
    }

    #[test]
    fn a_sensitive_value_is_not_repeated_in_its_error() {
        let params = Params::from([
            ("size".into(), literal(json!("small"))),
            ("password".into(), literal(json!("hush"))),
        ]);
        let errors = schema().check(&params);
        assert_eq!(errors.len(), 1);
        assert!(!errors[0].message.contains("hush"), "{errors:?}");
    }

    #[test]
    fn defaults_are_filled_in() {
        assert_eq!(schema().with_defaults(Params::new())["zone"], literal(json!("eu")));
        assert_eq!(schema().immutable(), BTreeSet::from(["zone".into()]));
    }
}
