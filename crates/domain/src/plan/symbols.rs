//! From a Score file's texts to expressions that name resources by id.

use std::collections::BTreeMap;

use conductor_score::{
    Metadata,
    placeholder::{Part as TextPart, Target, has_placeholder, parse_text},
};
use serde_json::{Map, Value};

use crate::{
    expr::{Expr, Params, Part, Ref, as_text},
    ids::ResourceId,
    nearest,
    plan::Problem,
};

/// What a requirement became, for those who refer to it.
#[derive(Clone, Debug)]
pub struct Referent {
    pub resource: ResourceId,
    /// Declared outputs, where the template declares them.
    pub outputs: Option<Vec<String>>,
}

pub struct Symbols<'a> {
    pub metadata: &'a Metadata,
    pub referents: &'a BTreeMap<String, Referent>,
    /// `${NAME.output}` is accepted beside `${resources.NAME.output}`.
    pub short: bool,
}

impl Symbols<'_> {
    pub fn params(&self, raw: &Map<String, Value>, path: &str, problems: &mut Vec<Problem>) -> Params {
        raw.iter()
            .map(|(key, value)| (key.clone(), self.expr(value, &format!("{path}.{key}"), problems)))
            .collect()
    }

    pub fn expr(&self, value: &Value, path: &str, problems: &mut Vec<Problem>) -> Expr {
        match value {
            Value::String(text) if has_placeholder(text) || text.contains('$') => {
                self.text(text, path, problems)
            }
            Value::Array(items) => Expr::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(i, item)| self.expr(item, &format!("{path}[{i}]"), problems))
                    .collect(),
            )
            .simplified(),
            Value::Object(entries) => Expr::Map(
                entries
                    .iter()
                    .map(|(key, entry)| (key.clone(), self.expr(entry, &format!("{path}.{key}"), problems)))
                    .collect(),
            )
            .simplified(),
            literal => Expr::Literal(literal.clone()),
        }
    }

    fn text(&self, text: &str, path: &str, problems: &mut Vec<Problem>) -> Expr {
        let mut refuse = |message: String, suggestion: Option<String>| {
            problems.push(Problem { path: path.to_owned(), message, suggestion, at: None });
        };
        let short = |name: &str| self.short && self.referents.contains_key(name);
        let parts = match parse_text(text, short) {
            Ok(parts) => parts,
            Err(error) => {
                refuse(error.message, error.suggestion);
                return Expr::Literal(Value::String(text.to_owned()));
            }
        };
        let mut filled = Vec::with_capacity(parts.len());
        let lone = parts.len() == 1;
        for part in parts {
            match part {
                TextPart::Text(text) => filled.push(Part::Text(text)),
                TextPart::Ref(Target::Metadata(keys)) => match self.metadata.lookup(&keys) {
                    Some(value) if lone => return Expr::Literal(value),
                    Some(value) => filled.push(Part::Text(as_text(&value))),
                    None => refuse(format!("`metadata.{}` is not there", keys.join(".")), None),
                },
                TextPart::Ref(Target::Resource { name, path: keys }) => match self.referents.get(&name) {
                    None => {
                        let close = nearest(&name, self.referents.keys().map(String::as_str));
                        refuse(
                            format!("there is no resource `{name}`"),
                            close.map(|c| format!("did you mean `{c}`?")),
                        );
                    }
                    Some(referent) if keys.is_empty() => {
                        filled.push(Part::Text(referent.resource.to_string()))
                    }
                    Some(referent) => {
                        if let Some(outputs) = &referent.outputs
                            && keys[0] != "id"
                            && !outputs.contains(&keys[0])
                        {
                            let suggestion = match nearest(&keys[0], outputs.iter().map(String::as_str)) {
                                Some(close) => format!("did you mean `{close}`?"),
                                None => format!("its outputs are {}", outputs.join(", ")),
                            };
                            refuse(format!("`{name}` has no output `{}`", keys[0]), Some(suggestion));
                        }
                        filled.push(Part::Ref(Ref { resource: referent.resource, path: keys }));
                    }
                },
            }
        }
        if filled.iter().all(|part| matches!(part, Part::Text(_))) {
            let text =
                filled.into_iter().map(|part| if let Part::Text(text) = part { text } else { String::new() });
            return Expr::Literal(Value::String(text.collect()));
        }
        Expr::Parts(filled)
    }
}
