//! Where an environment has terraform keep its states, when that is not with us: a backend of terraform's own.
//!
//! Every resource gets a path of its own, `ENVIRONMENT/SLUG`. Slugs are unique, so no two resources can meet on one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{nearest, state_file::sounds_secret};

/// What PostgreSQL keeps of a name.
const LONGEST_SCHEMA: usize = 63;
const KINDS: [&str; 6] = ["s3", "azurerm", "gcs", "pg", "remote", "custom"];
/// Ours, or none at all.
const NOT_NATIVE: [&str; 3] = ["http", "cloud", "conductor"];

/// `state:` of an environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateBackend {
    pub backend: String,
    /// With `custom`: terraform's name of the backend.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub custom_type: Option<String>,
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Variables for the tool, such as credentials.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What the tool may reach beyond what the backend's addresses tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Value>,
}

/// The backend of one resource, complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendBlock {
    /// Terraform's name of it.
    #[serde(rename = "type")]
    pub kind: String,
    pub config: Map<String, Value>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub allow: Option<Value>,
    /// For people.
    pub location: String,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendProblem {
    pub path: String,
    pub message: String,
    pub suggestion: Option<String>,
}

fn problem(path: &str, message: impl Into<String>) -> BackendProblem {
    BackendProblem { path: path.into(), message: message.into(), suggestion: None }
}

impl StateBackend {
    /// Terraform's name of the backend.
    pub fn kind(&self) -> &str {
        match self.backend.as_str() {
            "custom" => self.custom_type.as_deref().unwrap_or_default(),
            named => named,
        }
    }

    /// The key that tells states apart, and what it holds when nothing else is said.
    fn path_key(&self) -> Option<(&'static str, &'static str)> {
        Some(match self.kind() {
            "s3" | "azurerm" => ("key", "{environment}/{slug}"),
            "gcs" => ("prefix", "{environment}/{slug}"),
            "pg" => ("schema_name", "{environment}/{slug}"),
            _ => return None,
        })
    }

    pub fn check(&self) -> Result<(), BackendProblem> {
        if !KINDS.contains(&self.backend.as_str()) {
            let close = nearest(&self.backend, KINDS).map(|close| format!("did you mean `{close}`?"));
            return Err(BackendProblem {
                suggestion: close.or_else(|| Some(format!("the backends are {}", KINDS.join(", ")))),
                ..problem("backend", format!("there is no backend `{}`", self.backend))
            });
        }
        if (self.backend == "custom") != self.custom_type.is_some() {
            let message = match self.custom_type {
                None => "name terraform's backend, as in `type: consul`".to_owned(),
                Some(_) => format!("it goes with `backend: custom`, not with `{}`", self.backend),
            };
            return Err(problem("type", message));
        }
        if NOT_NATIVE.contains(&self.kind()) {
            let message = format!(
                "`{}` cannot be used here; leave `state` out to keep states in Conductor",
                self.kind()
            );
            return Err(problem("type", message));
        }
        for name in self.env.keys() {
            let fits = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
            if !fits || name.is_empty() || name.starts_with("TF_LOG") {
                return Err(problem(&format!("env.{name}"), "this variable cannot be set"));
            }
        }
        let needed: &[(&str, &str)] = match self.kind() {
            "s3" | "gcs" => &[("bucket", "")],
            "azurerm" => &[("storage_account_name", ""), ("container_name", "")],
            "pg" => &[("conn_str", "PG_CONN_STR")],
            "remote" => &[("organization", "")],
            "local" => &[("path", "")],
            _ => &[],
        };
        for (name, variable) in needed {
            let given = self.config.get(*name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
            let elsewhere = !variable.is_empty() && self.env.contains_key(*variable);
            if !given && !elsewhere {
                return Err(problem(&format!("config.{name}"), "it is missing"));
            }
        }
        if self.kind() == "local" && !self.config["path"].as_str().is_some_and(|path| path.starts_with('/')) {
            return Err(problem("config.path", "it must be absolute"));
        }
        self.check_paths()
    }

    /// Two resources must never meet on one path.
    fn check_paths(&self) -> Result<(), BackendProblem> {
        let apart = "two resources would share one state: write {slug} into it";
        match (self.path_key(), self.kind()) {
            (Some((key, _)), _) => match self.config.get(key) {
                Some(Value::String(text)) if text.contains("{slug}") => Ok(()),
                Some(_) => Err(problem(&format!("config.{key}"), format!("{apart}, or leave it out"))),
                None => Ok(()),
            },
            (None, "remote") => match self.config.get("workspaces") {
                None => Ok(()),
                Some(workspaces) if has_slug(workspaces) => Ok(()),
                Some(_) => Err(problem("config.workspaces", format!("{apart}, or leave it out"))),
            },
            (None, _) if has_slug(&Value::Object(self.config.clone())) => Ok(()),
            (None, _) => Err(problem("config", apart)),
        }
    }

    /// The backend of one resource.
    pub fn of(&self, environment: &str, slug: &str) -> BackendBlock {
        let mut config = self.config.clone();
        if let Some((key, path)) = self.path_key() {
            config.entry(key).or_insert_with(|| path.into());
        }
        if self.kind() == "remote" {
            config
                .entry("workspaces")
                .or_insert_with(|| serde_json::json!({ "name": "{environment}-{slug}" }));
        }
        let mut config = match fill(Value::Object(config), environment, slug) {
            Value::Object(config) => config,
            _ => Map::new(),
        };
        if self.kind() == "pg"
            && let Some(Value::String(schema)) = config.get_mut("schema_name")
        {
            // The end is what is unique.
            let cut = schema.len().saturating_sub(LONGEST_SCHEMA);
            *schema = schema.char_indices().filter(|(at, _)| *at >= cut).map(|(_, c)| c).collect();
        }
        let location = self.location(&config);
        BackendBlock {
            kind: self.kind().to_owned(),
            config,
            env: self.env.clone(),
            allow: self.allow.clone(),
            location,
        }
    }

    fn location(&self, config: &Map<String, Value>) -> String {
        let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
        match self.kind() {
            "s3" => format!("s3://{}/{}", text("bucket"), text("key")),
            "gcs" => format!("gs://{}/{}", text("bucket"), text("prefix")),
            "azurerm" => {
                format!("az://{}/{}/{}", text("storage_account_name"), text("container_name"), text("key"))
            }
            "pg" => format!("{}#{}", without_credentials(text("conn_str")), text("schema_name")),
            "remote" => {
                let host = if text("hostname").is_empty() { "app.terraform.io" } else { text("hostname") };
                let name = config["workspaces"]["name"].as_str().unwrap_or_default();
                format!("https://{host}/{}/{name}", text("organization"))
            }
            "local" => format!("file://{}", text("path")),
            kind => {
                let differs = |(name, value): &(&String, &Value)| self.config.get(*name) != Some(*value);
                let own: Vec<String> = config
                    .iter()
                    .filter(differs)
                    .map(|(name, value)| {
                        format!("{name}={}", value.as_str().map_or(value.to_string(), str::to_owned))
                    })
                    .collect();
                format!("{kind}:{}", own.join(","))
            }
        }
    }

    /// What says where states are, without the credentials to get there: these may change at any time.
    pub fn identity(&self) -> Value {
        let mut shown = self.config.clone();
        shown.retain(|name, _| !sounds_secret(name) && !name.contains("sas"));
        if let Some(Value::String(address)) = shown.get_mut("conn_str") {
            *address = without_credentials(address);
        }
        serde_json::json!({ "backend": self.backend, "type": self.custom_type, "config": shown })
    }

    /// Values that must not appear in a log.
    pub fn secrets(&self) -> Vec<String> {
        let config = self.config.iter().filter(|(name, _)| sounds_secret(name));
        let mut secrets: Vec<String> =
            config.filter_map(|(_, value)| value.as_str()).map(str::to_owned).collect();
        let texts =
            self.config.values().filter_map(Value::as_str).chain(self.env.values().map(String::as_str));
        secrets.extend(texts.filter_map(password).map(str::to_owned));
        let named = self.env.iter().filter(|(name, _)| sounds_secret(name));
        secrets.extend(named.map(|(_, value)| value.clone()));
        secrets.retain(|secret| secret.len() >= 4);
        secrets
    }
}

fn has_slug(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{slug}"),
        Value::Array(items) => items.iter().any(has_slug),
        Value::Object(entries) => entries.values().any(has_slug),
        _ => false,
    }
}

fn fill(value: Value, environment: &str, slug: &str) -> Value {
    match value {
        Value::String(text) => text.replace("{environment}", environment).replace("{slug}", slug).into(),
        Value::Array(items) => items.into_iter().map(|item| fill(item, environment, slug)).collect(),
        Value::Object(entries) => {
            entries.into_iter().map(|(name, value)| (name, fill(value, environment, slug))).collect()
        }
        other => other,
    }
}

/// `user:PASSWORD` of an address.
fn password(address: &str) -> Option<&str> {
    let (_, rest) = address.split_once("://")?;
    let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

/// Scheme, host and path of an address; nothing of what is not one.
fn without_credentials(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return "pg".to_owned();
    };
    let rest = rest.split('?').next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn backend(value: Value) -> StateBackend {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn every_resource_has_a_path_of_its_own() {
        let cases = [
            (json!({"backend": "s3", "config": {"bucket": "b"}}), "s3://b/dev/db-1"),
            (
                json!({"backend": "s3", "config": {"bucket": "b", "key": "x/{slug}.tfstate"}}),
                "s3://b/x/db-1.tfstate",
            ),
            (json!({"backend": "gcs", "config": {"bucket": "b"}}), "gs://b/dev/db-1"),
            (
                json!({"backend": "azurerm", "config": {"storage_account_name": "a", "container_name": "c"}}),
                "az://a/c/dev/db-1",
            ),
            (
                json!({"backend": "pg", "config": {"conn_str": "postgres://u:pass@h:5/d?sslmode=disable"}}),
                "postgres://h:5/d#dev/db-1",
            ),
            (
                json!({"backend": "remote", "config": {"organization": "o"}}),
                "https://app.terraform.io/o/dev-db-1",
            ),
            (
                json!({"backend": "custom", "type": "local", "config": {"path": "/s/{environment}-{slug}"}}),
                "file:///s/dev-db-1",
            ),
            (
                json!({"backend": "custom", "type": "consul", "config": {"path": "t/{slug}"}}),
                "consul:path=t/db-1",
            ),
        ];
        for (document, location) in cases {
            let backend = backend(document);
            assert_eq!(backend.check(), Ok(()));
            assert_eq!(backend.of("dev", "db-1").location, location);
        }
    }

    #[test]
    fn mistakes_are_told_by_their_place() {
        let cases = [
            (json!({"backend": "s4"}), "backend"),
            (json!({"backend": "s3"}), "config.bucket"),
            (json!({"backend": "s3", "config": {"bucket": "b", "key": "same"}}), "config.key"),
            (json!({"backend": "custom"}), "type"),
            (json!({"backend": "custom", "type": "http", "config": {"address": "{slug}"}}), "type"),
            (json!({"backend": "custom", "type": "local", "config": {"path": "{slug}"}}), "config.path"),
            (json!({"backend": "custom", "type": "consul", "config": {"path": "x"}}), "config"),
            (
                json!({"backend": "remote", "config": {"organization": "o", "workspaces": {"name": "n"}}}),
                "config.workspaces",
            ),
            (json!({"backend": "pg", "env": {"TF_LOG": "trace"}}), "env.TF_LOG"),
        ];
        for (document, path) in cases {
            assert_eq!(backend(document.clone()).check().unwrap_err().path, path, "{document}");
        }
        assert_eq!(backend(json!({"backend": "pg", "env": {"PG_CONN_STR": "x"}})).check(), Ok(()));
    }

    #[test]
    fn a_long_environment_never_costs_a_schema_its_slug() {
        let backend = backend(json!({"backend": "pg", "config": {"conn_str": "postgres://h/d"}}));
        let block = backend.of(&"e".repeat(63), "orders-db-a1b2c3d4");
        let schema = block.config["schema_name"].as_str().unwrap();
        assert_eq!(schema.len(), LONGEST_SCHEMA);
        assert!(schema.ends_with("/orders-db-a1b2c3d4"));
    }

    #[test]
    fn credentials_are_secret_and_no_part_of_where_it_is() {
        let with = |password: &str| {
            backend(json!({"backend": "pg", "config": {"conn_str": format!("postgres://u:{password}@h/d")}}))
        };
        assert_eq!(with("first").identity(), with("second").identity());
        assert_eq!(with("first").secrets(), ["first"]);
        let s3 = json!({"backend": "s3", "config": {"bucket": "b", "secret_key": "hush"}, "env": {"AWS_SECRET_ACCESS_KEY": "hush2"}});
        assert_eq!(backend(s3).secrets(), ["hush", "hush2"]);
    }
}
