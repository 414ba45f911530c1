//! Score files, written by what a test is about.

use serde_json::{Map, Value, json};

/// A Score file of one application with some resources.
#[derive(Clone, Debug)]
pub struct Score {
    application: String,
    variables: Map<String, Value>,
    resources: Map<String, Value>,
}

/// A resource of its own, of a type and with parameters.
pub fn resource(kind: &str, params: Value) -> Value {
    match params.as_object().is_some_and(Map::is_empty) {
        true => json!({ "type": kind }),
        false => json!({ "type": kind, "params": params }),
    }
}

/// A resource that everybody who says this name shares.
pub fn shared(kind: &str, name: &str, params: Value) -> Value {
    let mut asked = resource(kind, params);
    asked["id"] = name.into();
    asked
}

impl Score {
    pub fn new(application: &str) -> Self {
        Self { application: application.to_owned(), variables: Map::new(), resources: Map::new() }
    }

    pub fn with(mut self, requirement: &str, resource: Value) -> Self {
        self.resources.insert(requirement.to_owned(), resource);
        self
    }

    /// With a thing of its own.
    pub fn thing(self, requirement: &str, params: Value) -> Self {
        self.with(requirement, resource("thing", params))
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// JSON is YAML: nothing has to be quoted by hand.
    pub fn text(&self) -> String {
        let mut container = json!({ "image": "busybox" });
        if !self.variables.is_empty() {
            container["variables"] = Value::Object(self.variables.clone());
        }
        let mut document = json!({
            "apiVersion": "score.dev/v1b1",
            "metadata": { "name": self.application },
            "containers": { "main": container },
        });
        if !self.resources.is_empty() {
            document["resources"] = Value::Object(self.resources.clone());
        }
        document.to_string()
    }
}
