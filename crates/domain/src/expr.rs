//! A parameter is an expression: a literal, a reference to another resource's output, or text around some.
//!
//! References name resources by id, so two applications that mean the same thing write the same symbols:
//! matching and change detection compare expressions, never values that are not known yet.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::ResourceId;

/// The key under which a reference hides in stored JSON.
const TAG: &str = "$expr";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ref {
    pub resource: ResourceId,
    pub path: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Part {
    Text(String),
    Ref(Ref),
}

/// A JSON value with holes.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Literal(Value),
    List(Vec<Expr>),
    Map(BTreeMap<String, Expr>),
    /// One part keeps the type of what it refers to; several make text.
    Parts(Vec<Part>),
}

pub type Params = BTreeMap<String, Expr>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{resource}` has no output `{output}`")]
pub struct MissingOutput {
    pub resource: ResourceId,
    pub output: String,
}

/// A value filled in, and whether something secret went into it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub value: Value,
    pub sensitive: bool,
}

impl Expr {
    pub fn refs(&self, into: &mut BTreeSet<Ref>) {
        match self {
            Self::Literal(_) => {}
            Self::List(items) => items.iter().for_each(|item| item.refs(into)),
            Self::Map(entries) => entries.values().for_each(|entry| entry.refs(into)),
            Self::Parts(parts) => into.extend(parts.iter().filter_map(|part| match part {
                Part::Ref(reference) => Some(reference.clone()),
                Part::Text(_) => None,
            })),
        }
    }

    /// The value, when nothing in it has to be looked up.
    pub fn known(&self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value.clone()),
            Self::List(items) => items.iter().map(Self::known).collect::<Option<Vec<_>>>().map(Value::Array),
            Self::Map(entries) => entries
                .iter()
                .map(|(key, entry)| Some((key.clone(), entry.known()?)))
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object),
            Self::Parts(_) => None,
        }
    }

    /// Fills the holes. `output` gives a resource's output, or what is missing.
    pub fn resolve(
        &self,
        output: &mut dyn FnMut(&Ref) -> Result<Resolved, MissingOutput>,
    ) -> Result<Resolved, MissingOutput> {
        let mut sensitive = false;
        let value = self.fill(output, &mut sensitive)?;
        Ok(Resolved { value, sensitive })
    }

    fn fill(
        &self,
        output: &mut dyn FnMut(&Ref) -> Result<Resolved, MissingOutput>,
        sensitive: &mut bool,
    ) -> Result<Value, MissingOutput> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.fill(output, sensitive)).collect::<Result<_, _>>()?)
            }
            Self::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, entry)| Ok((key.clone(), entry.fill(output, sensitive)?)))
                    .collect::<Result<_, _>>()?,
            ),
            Self::Parts(parts) => {
                let mut values = Vec::with_capacity(parts.len());
                for part in parts {
                    values.push(match part {
                        Part::Text(text) => Value::String(text.clone()),
                        Part::Ref(reference) => {
                            let resolved = output(reference)?;
                            *sensitive |= resolved.sensitive;
                            resolved.value
                        }
                    });
                }
                match <[Value; 1]>::try_from(values) {
                    Ok([value]) => value,
                    Err(values) => Value::String(values.iter().map(as_text).collect()),
                }
            }
        })
    }

    /// Stored form; [`Expr::from_json`] reads it back.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Literal(value) => escape(value),
            Self::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Self::Map(entries) => tagged_if_ambiguous(
                entries.iter().map(|(key, entry)| (key.clone(), entry.to_json())).collect(),
            ),
            Self::Parts(parts) => Value::Object(Map::from_iter([(
                TAG.to_owned(),
                serde_json::to_value(parts).unwrap_or_default(),
            )])),
        }
    }

    pub fn from_json(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::List(items.iter().map(Self::from_json).collect()).simplified(),
            Value::Object(entries) => match entries.get(TAG) {
                Some(Value::Array(_)) if entries.len() == 1 => {
                    match serde_json::from_value(entries[TAG].clone()) {
                        Ok(parts) => Self::Parts(parts),
                        Err(_) => Self::Literal(value.clone()),
                    }
                }
                Some(Value::Object(inner)) if entries.len() == 1 => {
                    Self::Map(inner.iter().map(|(k, v)| (k.clone(), Self::from_json(v))).collect())
                        .simplified()
                }
                _ => Self::Map(entries.iter().map(|(k, v)| (k.clone(), Self::from_json(v))).collect())
                    .simplified(),
            },
            literal => Self::Literal(literal.clone()),
        }
    }

    /// What holds no reference is one literal, so that equal values compare equal.
    pub fn simplified(self) -> Self {
        match self.known() {
            Some(value) => Self::Literal(value),
            None => self,
        }
    }
}

fn escape(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(escape).collect()),
        Value::Object(entries) => {
            tagged_if_ambiguous(entries.iter().map(|(key, entry)| (key.clone(), escape(entry))).collect())
        }
        other => other.clone(),
    }
}

/// A map that happens to use our tag as its key is wrapped in one more.
fn tagged_if_ambiguous(entries: Map<String, Value>) -> Value {
    if entries.contains_key(TAG) {
        return Value::Object(Map::from_iter([(TAG.to_owned(), Value::Object(entries))]));
    }
    Value::Object(entries)
}

/// How a value reads inside a text: strings as they are, everything else as JSON.
pub fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub fn params_to_json(params: &Params) -> Value {
    Value::Object(params.iter().map(|(key, expr)| (key.clone(), expr.to_json())).collect())
}

pub fn params_from_json(value: &Value) -> Params {
    value
        .as_object()
        .map(|entries| entries.iter().map(|(key, value)| (key.clone(), Expr::from_json(value))).collect())
        .unwrap_or_default()
}

pub fn params_refs(params: &Params) -> BTreeSet<Ref> {
    let mut refs = BTreeSet::new();
    params.values().for_each(|expr| expr.refs(&mut refs));
    refs
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn reference(path: &str) -> Part {
        Part::Ref(Ref { resource: ResourceId(Uuid::from_u128(7)), path: vec![path.into()] })
    }

    #[test]
    fn a_lone_reference_keeps_its_type_and_text_around_it_makes_text() {
        let mut outputs = |_: &Ref| Ok(Resolved { value: json!(5432), sensitive: false });
        let lone = Expr::Parts(vec![reference("port")]).resolve(&mut outputs).unwrap();
        assert_eq!(lone.value, json!(5432));
        let text =
            Expr::Parts(vec![Part::Text(":".into()), reference("port")]).resolve(&mut outputs).unwrap();
        assert_eq!(text.value, json!(":5432"));
    }

    #[test]
    fn what_holds_a_secret_is_secret() {
        let mut outputs = |_: &Ref| Ok(Resolved { value: json!("hush"), sensitive: true });
        let expr = Expr::Map(BTreeMap::from([("url".into(), Expr::Parts(vec![reference("password")]))]));
        assert!(expr.resolve(&mut outputs).unwrap().sensitive);
    }

    #[test]
    fn stored_expressions_come_back_even_when_a_key_looks_like_ours() {
        for expr in [
            Expr::Literal(json!({"$expr": ["not", "ours"], "a": 1})),
            Expr::Literal(json!({"$expr": ["not", "ours"]})),
            Expr::Parts(vec![Part::Text("x-".into()), reference("url")]),
            Expr::Map(BTreeMap::from([
                ("$expr".into(), Expr::Parts(vec![reference("a")])),
                ("b".into(), Expr::Literal(json!([1, null]))),
            ])),
        ] {
            assert_eq!(Expr::from_json(&expr.to_json()), expr, "{}", expr.to_json());
        }
    }
}
