//! What a Score file says, once it has been checked.
//!
//! These types hold only what is legal: a port is a port, a file has exactly one content. Texts
//! keep their placeholders; [`crate::placeholder`] reads them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sharing::Sharing;

/// One workload: its containers, what it serves and what it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub metadata: Metadata,
    pub containers: BTreeMap<String, Container>,
    /// The ports of `service.ports`, by name.
    pub service: BTreeMap<String, Port>,
    pub resources: BTreeMap<String, Resource>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub annotations: BTreeMap<String, String>,
    /// The other keys: Score leaves `metadata` open.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Metadata {
    /// The value at `path`, as `${metadata.PATH}` means it.
    #[must_use]
    pub fn lookup(&self, path: &[String]) -> Option<Value> {
        let (first, rest) = path.split_first()?;
        match (first.as_str(), rest) {
            ("name", []) => Some(Value::from(self.name.as_str())),
            ("annotations", []) => serde_json::to_value(&self.annotations).ok(),
            ("annotations", [key]) => self.annotations.get(key).cloned().map(Value::from),
            ("name" | "annotations", _) => None,
            _ => rest.iter().try_fold(self.extra.get(first)?, |value, key| value.get(key)).cloned(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// `.` means that the image is supplied when deploying.
    pub image: String,
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub variables: BTreeMap<String, String>,
    /// By the path in the container.
    pub files: BTreeMap<String, File>,
    /// By the path in the container.
    pub volumes: BTreeMap<String, Volume>,
    /// Containers that start first, and how far they must have come.
    pub before: BTreeMap<String, Ready>,
    pub resources: ComputeResources,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness_probe: Option<Probe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness_probe: Option<Probe>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    #[serde(flatten)]
    pub content: FileContent,
    /// Octal, as written: `644` or `0644`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    pub no_expand: bool,
}

/// Where the content of a file comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum FileContent {
    /// A path beside the Score file.
    #[serde(rename = "source")]
    Source(String),
    /// The text itself.
    #[serde(rename = "content")]
    Text(String),
    /// Base64, never expanded.
    #[serde(rename = "binaryContent")]
    Binary(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub read_only: bool,
}

/// How far a container must have come before the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    Started,
    Healthy,
    Complete,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComputeResources {
    pub limits: Quantities,
    pub requests: Quantities,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quantities {
    /// `2`, `0.5` or `125m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// `1.5Gi` or `125M`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// At least one of the two is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpProbe>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exec: Option<ExecProbe>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpProbe {
    pub port: u16,
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub scheme: Scheme,
    pub http_headers: Vec<HttpHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HttpHeader {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExecProbe {
    pub command: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Scheme {
    #[default]
    Http,
    Https,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub port: u16,
    pub protocol: Protocol,
    /// The container's port; the same as `port` where the file says nothing.
    pub target_port: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Protocol {
    #[default]
    Tcp,
    Udp,
}

/// Something the workload needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resource {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Everything in `metadata` but the sharing dialect.
    pub metadata: Map<String, Value>,
    /// `None` where the file says nothing, which inherits; an empty map does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Map<String, Value>>,
    pub sharing: Sharing,
    /// Where its name stands in the file.
    #[serde(skip)]
    pub at: Position,
}

/// A place in the source: both count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}
