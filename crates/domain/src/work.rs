//! What passes between the engine and a manager: a step to carry out, and how it ended.
//!
//! Plain data, so that the same words serve in process and over HTTP.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ids::{OperationId, ResourceId},
    state_backend::BackendBlock,
};

/// What a manager is asked to do with one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    Create,
    Update,
    Delete,
    Observe,
    Plan,
}

impl StepKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Observe => "observe",
            Self::Plan => "plan",
        }
    }
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The resource a step is about, by every name a manager may need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    pub id: ResourceId,
    pub name: String,
    /// For providers: lower case, digits and dashes, never changes, unique.
    pub slug: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub class: String,
    pub environment: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
}

/// What the last successful step left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Previous {
    pub parameters: Map<String, Value>,
    pub outputs: Map<String, Value>,
}

/// One step on one resource, complete: a manager needs nothing else but its job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub kind: StepKind,
    pub operation: OperationId,
    pub attempt: u32,
    pub subject: Subject,
    /// The manager's own part of the template.
    pub config: Map<String, Value>,
    /// Every placeholder filled in. For `delete`, those of the last successful step.
    pub parameters: Map<String, Value>,
    pub previous: Option<Previous>,
    /// What the manager asked to be kept with the resource.
    pub state: Option<Value>,
    /// By requirement name, the outputs of what this resource depends on.
    pub dependencies: BTreeMap<String, Map<String, Value>>,
    /// Values that must not appear in a log.
    pub secrets: Vec<String>,
    /// What earlier attempts noted that did not come to their end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journal: Vec<Value>,
    /// Where terraform is to keep the state, when that is not with us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendBlock>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    pub value: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sensitive: bool,
}

pub type Outputs = BTreeMap<String, Output>;

/// One attribute that is not what is on record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub path: String,
    pub recorded: Value,
    pub actual: Value,
}

/// How a step ended well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Done {
    pub outputs: Outputs,
    pub state: Option<Value>,
    pub external_id: Option<String>,
    /// Observe: is it there? Delete: `Some(false)` = looked, and gone; `None` = could not look.
    pub exists: Option<bool>,
    /// Plan: the manager's own diff, masked, for people to read.
    pub plan: Option<Value>,
    /// Observe: attributes that are not what is on record, besides outputs; secrets masked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<Difference>,
    /// What an earlier attempt may have made that nobody keeps a record of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
}

/// What planning needs to know of a template version, read once, when it is applied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Description {
    /// JSON Schema of the parameters, with our annotations.
    pub parameters: Option<Value>,
    /// Declared outputs and whether each is sensitive; `None` = only known once made.
    pub outputs: Option<BTreeMap<String, bool>>,
    pub can_observe: bool,
    pub can_plan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// Worth trying again by itself.
    Transient,
    Failed,
    Invalid,
    TimedOut,
    Cancelled,
    /// The manager does not know this step (observe and plan are optional).
    Unsupported,
}

/// How a step ended badly. `message` is the tool's own reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: FailureCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Failed, message)
    }

    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Transient, message)
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Invalid, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(FailureCode::Unsupported, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// One line of a job's log. `at` is microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    pub at: i64,
    pub level: Level,
    /// `stdout`, `stderr` or `conductor`.
    pub stream: String,
    /// The part of the step it was said in: `init`, `plan`, `apply`, `create` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Cow<'static, str>>,
    pub text: String,
}
