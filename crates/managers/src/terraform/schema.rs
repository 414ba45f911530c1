//! A module's variables as JSON Schema, and the catalogue's words over it.

use conductor_domain::{nearest, work::Failure};
use hcl_edit::{
    expr::{Expression, FuncCall, ObjectKey, UnaryOperator},
    template::Element,
};
use serde_json::{Map, Value, json};

use super::module::{Module, Variable};

/// The schema of a type constraint; what cannot be told allows anything.
pub(super) fn of_type(kind: &Expression) -> Value {
    match kind {
        Expression::Variable(name) => of_name(name.as_str()),
        Expression::String(name) => of_name(name.as_str()),
        Expression::FuncCall(call) => of_call(call),
        Expression::Parenthesis(inner) => of_type(inner.inner()),
        _ => json!({}),
    }
}

fn of_name(name: &str) -> Value {
    match name {
        "string" | "number" => json!({"type": name}),
        "bool" => json!({"type": "boolean"}),
        "list" | "set" => json!({"type": "array"}),
        "map" => json!({"type": "object"}),
        _ => json!({}),
    }
}

fn of_call(call: &FuncCall) -> Value {
    let first = call.args.get(0);
    let inner = || first.map_or_else(|| json!({}), of_type);
    match call.name.name.as_str() {
        "list" => json!({"type": "array", "items": inner()}),
        "set" => json!({"type": "array", "items": inner(), "uniqueItems": true}),
        "map" => json!({"type": "object", "additionalProperties": inner()}),
        "tuple" => {
            let items: Vec<Value> =
                first.and_then(Expression::as_array).into_iter().flatten().map(of_type).collect();
            json!({"type": "array", "minItems": items.len(), "maxItems": items.len(), "prefixItems": items})
        }
        "object" => of_object(first),
        "optional" => inner(),
        _ => json!({}),
    }
}

fn of_object(shape: Option<&Expression>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (key, value) in shape.and_then(Expression::as_object).into_iter().flat_map(|object| object.iter()) {
        let Some(name) = key_name(key) else { continue };
        let mut schema = of_type(value.expr());
        match value.expr() {
            Expression::FuncCall(call) if call.name.name.as_str() == "optional" => {
                if let Some(default) = call.args.get(1).and_then(literal) {
                    schema["default"] = default;
                }
            }
            _ => required.push(Value::from(name.clone())),
        }
        properties.insert(name, schema);
    }
    json!({"type": "object", "properties": properties, "required": required})
}

fn key_name(key: &ObjectKey) -> Option<String> {
    match key {
        ObjectKey::Ident(name) => Some(name.as_str().to_owned()),
        ObjectKey::Expression(Expression::Variable(name)) => Some(name.as_str().to_owned()),
        ObjectKey::Expression(expression) => match literal(expression)? {
            Value::String(name) => Some(name),
            other => Some(other.to_string()),
        },
    }
}

/// The value of an expression that refers to nothing.
pub(super) fn literal(expression: &Expression) -> Option<Value> {
    match expression {
        Expression::Null(_) => Some(Value::Null),
        Expression::Bool(flag) => Some(Value::Bool(*flag.value())),
        Expression::Number(number) => {
            number.value().to_string().parse::<serde_json::Number>().ok().map(Value::Number)
        }
        Expression::String(text) => Some(text.value().as_str().into()),
        Expression::Array(items) => items.iter().map(literal).collect::<Option<Vec<_>>>().map(Value::Array),
        Expression::Object(object) => object
            .iter()
            .map(|(key, value)| Some((key_name(key)?, literal(value.expr())?)))
            .collect::<Option<Map<_, _>>>()
            .map(Value::Object),
        Expression::Parenthesis(inner) => literal(inner.inner()),
        Expression::UnaryOp(operation) if *operation.operator == UnaryOperator::Neg => {
            let number = literal(&operation.expr)?.to_string();
            format!("-{number}").parse::<serde_json::Number>().ok().map(Value::Number)
        }
        Expression::StringTemplate(_) | Expression::HeredocTemplate(_) => {
            let parts = expression
                .as_template()
                .map(|template| template.iter())
                .or_else(|| expression.as_string_template().map(|template| template.iter()))?;
            let texts = parts.map(|part| match part {
                Element::Literal(text) => Some(text.value().as_str()),
                _ => None,
            });
            texts.collect::<Option<String>>().map(Value::String)
        }
        _ => None,
    }
}

fn of_variable(variable: &Variable) -> Value {
    let mut schema = variable.kind.clone().unwrap_or_else(|| json!({}));
    let null_default = matches!(variable.default, Some(Some(Value::Null)));
    let may_be_null = variable.nullable.unwrap_or(null_default);
    if let (true, Some(Value::String(kind))) = (may_be_null, schema.get("type").cloned()) {
        schema["type"] = json!([kind, "null"]);
    }
    if let Some(text) = &variable.description {
        schema["description"] = text.as_str().into();
    }
    if let Some(Some(default)) = &variable.default {
        schema["default"] = default.clone();
    }
    if variable.sensitive {
        schema["sensitive"] = true.into();
    }
    schema
}

/// The module's schema with the catalogue's words laid over it, property by property.
pub(super) fn parameters(module: &Module, catalogue: Option<&Value>) -> Result<Value, Failure> {
    let mut properties: Map<String, Value> =
        module.variables.iter().map(|(name, variable)| (name.clone(), of_variable(variable))).collect();
    let mut required: Vec<String> =
        module.variables.iter().filter(|(_, v)| v.default.is_none()).map(|(name, _)| name.clone()).collect();
    let mut schema = Map::new();
    for (word, value) in catalogue.and_then(Value::as_object).into_iter().flatten() {
        match (word.as_str(), value) {
            ("properties", Value::Object(theirs)) => overlay(&mut properties, &mut required, theirs)?,
            ("required", Value::Array(names)) => {
                required.extend(names.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => {
                schema.insert(word.clone(), value.clone());
            }
        }
    }
    required.sort();
    required.dedup();
    schema.entry("type").or_insert("object".into());
    schema.entry("additionalProperties").or_insert(false.into());
    schema.insert("properties".into(), properties.into());
    schema.insert("required".into(), required.into());
    Ok(Value::Object(schema))
}

fn overlay(
    properties: &mut Map<String, Value>,
    required: &mut Vec<String>,
    theirs: &Map<String, Value>,
) -> Result<(), Failure> {
    for (name, words) in theirs {
        let known = nearest(name, properties.keys().map(String::as_str)).map(str::to_owned);
        let Some(property) = properties.get_mut(name) else {
            let hint = match known {
                Some(known) => format!("did you mean `{known}`?"),
                None => "declare it as a variable of the module, or take it out".to_owned(),
            };
            return Err(
                Failure::invalid(format!("parameters: the module has no variable `{name}`")).hint(hint)
            );
        };
        for (word, value) in words.as_object().into_iter().flatten() {
            property[word.as_str()] = value.clone();
        }
        if words.get("default").is_some() {
            required.retain(|other| other != name);
        }
    }
    Ok(())
}
