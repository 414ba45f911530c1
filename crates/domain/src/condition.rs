//! Conditions of sharing, written in CEL over `resource`, `application` and `environment`.

use std::{fmt, sync::Arc};

use cel::{Context, Program, Value as Cel};
use serde_json::Value;

/// What an expression may look at.
const VARIABLES: [&str; 3] = ["resource", "application", "environment"];
const LONGEST: usize = 2_000;

/// A compiled condition; cheap to clone.
#[derive(Clone)]
pub struct Condition {
    text: String,
    program: Arc<Program>,
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({})", self.text)
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Condition {
    /// Reads an expression, or says what is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} characters"));
        }
        let program = Program::compile(text).map_err(|errors| match errors.errors.first() {
            Some(error) => format!("at character {}: {}", error.pos.1 + 1, error.msg),
            None => "it does not parse".to_owned(),
        })?;
        let references = program.references();
        if let Some(name) = references.variables().into_iter().find(|name| !VARIABLES.contains(name)) {
            return Err(format!("`{name}` is not known; there are {}", VARIABLES.join(", ")));
        }
        Ok(Self { text: text.to_owned(), program: Arc::new(program) })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it holds for these; an expression that cannot be answered does not, and says why.
    pub fn holds(&self, resource: &Value, application: &Value, environment: &Value) -> Result<(), String> {
        let mut context = Context::default();
        for (name, value) in VARIABLES.iter().zip([resource, application, environment]) {
            let value = cel::to_value(value).map_err(|error| error.to_string())?;
            context.add_variable_from_value(*name, value);
        }
        match self.program.execute(&context) {
            Ok(Cel::Bool(true)) => Ok(()),
            Ok(Cel::Bool(false)) => Err(format!("`{}` does not hold", self.text)),
            Ok(_) => Err(format!("`{}` is neither true nor false", self.text)),
            Err(error) => Err(format!("`{}` cannot be answered: {error}", self.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(text: &str) -> Result<(), String> {
        let resource = json!({ "consumers": 2, "parameters": { "size": "small" }, "name": "orders" });
        let application = json!({ "name": "web", "labels": { "team": "blue" } });
        let environment = json!({ "name": "dev", "type": "development" });
        Condition::read(text)?.holds(&resource, &application, &environment)
    }

    #[test]
    fn conditions_look_at_the_resource_the_application_and_the_environment() {
        assert_eq!(ask("resource.consumers < 3 && application.labels.team == 'blue'"), Ok(()));
        assert_eq!(
            ask("environment.type in ['production']").unwrap_err(),
            "`environment.type in ['production']` does not hold"
        );
    }

    #[test]
    fn what_cannot_be_read_or_answered_says_so() {
        assert!(ask("resource.consumers <").unwrap_err().starts_with("at character"));
        assert_eq!(
            ask("user.name == 'me'").unwrap_err(),
            "`user` is not known; there are resource, application, environment"
        );
        assert!(ask("resource.colour == 'red'").unwrap_err().contains("cannot be answered"));
        assert!(ask("resource.name").unwrap_err().contains("neither true nor false"));
    }
}
