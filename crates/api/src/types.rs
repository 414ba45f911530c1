//! What people and scripts see: the documents of the interface, in JSON, camelCase.

mod life;
mod rights;
mod states;

use std::collections::BTreeMap;

use conductor_domain::{
    ids::{
        ApplicationId, ChangeId, EnvironmentId, EventId, IntegrationId, OperationId, PoolId, ResourceId,
        WorkerId,
    },
    lifecycle::{
        Action, ChangeKind, ChangeStatus, Fault, OperationKind, OperationStatus, Phase, State, Status,
    },
    plan::Candidate,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use life::{
    Approval, ApprovalItem, Blocker, Decision, Drift, DriftAttribute, DriftDecision, DriftRequest, Facts,
    HandRequest, Handled, Inheritable, Promotion, PromotionDifference, PromotionRequest, Proposal,
    ProposalRequest, RegisterRequest, ResourceRequest, Revision, RevisionDiff, Served, SubmitRequest,
    UpgradeRequest, VariableChanges, Vote,
};
pub use rights::{Grant, Token, TokenRequest};
pub use states::{StateDiff, StateLocation, StateRollback, StateVersion};

/// A moment, as RFC 3339 with microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub i64);

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(at.as_microsecond()))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeploymentRequest {
    pub environment: String,
    /// Defaults to the Score file's `metadata.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// The Score file, as text.
    pub manifest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Stands where the Score file says `.`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict_score: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DestroyRequest {
    pub environment: String,
    /// Left out: everything in the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    #[serde(default)]
    pub dry_run: bool,
    /// A whole environment: what is protected stays, and the rest goes all the same.
    #[serde(default)]
    pub keep_protected: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRequest {
    /// Also take away what this deployment made.
    #[serde(default)]
    pub rollback: bool,
}

/// One requirement of a plan or deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanItem {
    pub requirement: String,
    #[schema(value_type = String)]
    pub resource: ResourceId,
    pub name: String,
    #[schema(value_type = String)]
    pub action: Action,
    /// `null` for what a plan would make and has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub phase: Option<Phase>,
    pub reason: String,
    /// Those that could have served it, in the order in which they were looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub candidates: Vec<Candidate>,
    /// How many more there are; beyond ten thousand in all they are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_candidates: u64,
    /// What its manager says it would do, where it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub proposed: Option<Value>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A deployment, a plan, or any other change: what `deploy`, `plan` and `destroy` end with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// Plans that are not stored have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub id: Option<ChangeId>,
    #[schema(value_type = String)]
    pub kind: ChangeKind,
    /// `planned` where nothing is stored.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    pub resources: Vec<PlanItem>,
    pub removals: Vec<PlanItem>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<Fault>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What the manager itself says it would do, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub proposed: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub created_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub completed_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub updated_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub cancel_requested_at: Option<Time>,
}

impl Deployment {
    pub fn is_over(&self) -> bool {
        self.status.parse::<ChangeStatus>().is_ok_and(ChangeStatus::is_over)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    #[schema(value_type = String)]
    pub id: OperationId,
    #[schema(value_type = String)]
    pub kind: OperationKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub resource: Option<ResourceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_name: Option<String>,
    #[schema(value_type = String)]
    pub deployment: ChangeId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub worker: Option<WorkerId>,
    pub attempt: i64,
    #[schema(value_type = String)]
    pub status: OperationStatus,
    /// In words and ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<Fault>,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub completed_at: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Consumer {
    pub application: String,
    pub environment: String,
    pub requirement: String,
    #[schema(value_type = String)]
    pub deployment: ChangeId,
    #[schema(value_type = String)]
    pub since: Time,
    pub state: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    #[schema(value_type = String)]
    pub id: ResourceId,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub class: String,
    pub scope: String,
    pub sharing: String,
    pub organisation: String,
    pub environment: String,
    pub template: String,
    pub template_version: String,
    #[schema(value_type = String)]
    pub state: State,
    #[schema(value_type = String)]
    pub status: Status,
    #[schema(value_type = String)]
    pub phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// Sensitive ones are `null`.
    #[schema(value_type = Object)]
    pub outputs: Map<String, Value>,
    pub consumers: Vec<Consumer>,
    #[schema(value_type = Vec<String>)]
    pub depends_on: Vec<ResourceId>,
    #[schema(value_type = Vec<String>)]
    pub dependents: Vec<ResourceId>,
    /// How many may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_consumers: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub pool: Option<PoolId>,
    /// Who keeps it alive: `consumers`, `pool`, `hand` or `external`.
    pub kept_by: String,
    /// Nobody uses it: it is destroyed at this time, unless it is undeleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub destroy_after: Option<Time>,
    pub protected: bool,
    /// What can be done with it as it is.
    #[serde(default)]
    pub available_actions: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub parents: Vec<ResourceId>,
    #[serde(default, flatten)]
    pub facts: Facts,
    /// What was last seen of it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub observed: Option<Value>,
    /// Where terraform's state of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_location: Option<StateLocation>,
    pub generation: i64,
    pub observed_generation: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<Fault>,
    pub created_by: String,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[schema(value_type = String)]
    pub updated_at: Time,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Organisation {
    pub id: String,
    pub name: String,
    #[schema(value_type = String)]
    pub created_at: Time,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    #[schema(value_type = String)]
    pub id: EnvironmentId,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[schema(value_type = String)]
    pub updated_at: Time,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Application {
    #[schema(value_type = String)]
    pub id: ApplicationId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    #[schema(value_type = Object)]
    pub document: Value,
    #[schema(value_type = String)]
    pub created_at: Time,
}

/// One version of a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    pub id: String,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub class: String,
    pub version: String,
    pub state: String,
    pub manager: String,
    #[schema(value_type = Object)]
    pub config: Value,
    #[schema(value_type = Object)]
    pub parameters: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<BTreeMap<String, bool>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    pub built_in: bool,
    #[schema(value_type = String)]
    pub created_at: Time,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    pub id: String,
    pub name: String,
    pub template: String,
    #[serde(rename = "match")]
    #[schema(value_type = Object)]
    pub criteria: Value,
    pub weight: u32,
    #[schema(value_type = String)]
    pub created_at: Time,
}

/// A pool, and how its members stand.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    #[schema(value_type = String)]
    pub id: PoolId,
    pub name: String,
    pub environment: String,
    pub template: String,
    /// How many are kept ready.
    pub size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    pub sharing_policy: String,
    /// `recycle`, `reset` or `keep`.
    pub on_release: String,
    pub auto: bool,
    pub ready: u64,
    pub claimed: u64,
    pub creating: u64,
    pub failed: u64,
    /// How often one was ready, and how often none was.
    pub claims: u64,
    pub on_demand: u64,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[schema(value_type = String)]
    pub updated_at: Time,
}

/// A catalogue document, as written; `content` is the digest of its packed files, sent before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplyRequest {
    #[schema(value_type = Object)]
    pub document: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(default)]
    pub dry_run: bool,
}

/// What applying one document did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Applied {
    pub kind: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `created`, `updated` or `unchanged`.
    pub action: String,
    /// The change a worker is busy with (reading a template), to be waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub change: Option<ChangeId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerInfo {
    #[schema(value_type = String)]
    pub id: WorkerId,
    pub name: String,
    pub managers: Vec<String>,
    /// What keeps its programs in, and what does not, line by line.
    #[serde(default)]
    pub isolation: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// Versions of tools it has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Vec<String>>,
    pub state: String,
    #[schema(value_type = String)]
    pub seen_at: Time,
}

/// Something that people should know of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    pub name: String,
    pub description: String,
    /// `ok`, `firing`, or `silenced` (whether or not it fires).
    pub status: String,
    pub firing: bool,
    /// Since when it fires, or does not any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub since: Option<Time>,
    /// What was seen when it last fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub silenced_until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silenced_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SilenceRequest {
    /// For how long; 0 ends a silence.
    pub seconds: u64,
}

/// How an integration is tried: exit code 0 = it works.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IntegrationTest {
    pub command: Vec<String>,
    /// What the command may reach, as in a template's config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub allow: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Integration {
    #[schema(value_type = String)]
    pub id: IntegrationId,
    pub name: String,
    pub provider: String,
    /// `static`, `ambient` or `oidc`.
    #[serde(rename = "type")]
    pub integration_type: String,
    /// None: for the whole organisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Their values are `null`: they are never shown.
    #[schema(value_type = Object)]
    pub variables: Map<String, Value>,
    #[schema(value_type = Object)]
    pub files: Map<String, Value>,
    #[schema(value_type = Object)]
    pub settings: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<IntegrationTest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[schema(value_type = String)]
    pub updated_at: Time,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[schema(value_type = String)]
    pub id: EventId,
    pub kind: String,
    pub actor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub deployment: Option<ChangeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub resource: Option<ResourceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub operation: Option<OperationId>,
    /// What exactly; where something was changed, `before` and `after`.
    #[schema(value_type = Object)]
    pub data: Value,
    /// The request that brought it about (`X-Request-Id`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[schema(value_type = String)]
    pub at: Time,
}

/// An event in its place of the audit chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub position: i64,
    /// Keyed; covers the event and the entry before it.
    pub hash: String,
    /// The hash of the entry before it; empty for the first.
    #[serde(default)]
    pub previous: String,
    #[serde(flatten)]
    pub event: Event,
}

/// Whether the audit trail is what was sealed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// How many were checked.
    pub entries: u64,
    pub intact: bool,
    /// Where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// Entries as they were exported, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditExport {
    pub entries: Vec<AuditEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    pub seq: i64,
    #[schema(value_type = String)]
    pub at: Time,
    pub level: String,
    pub stream: String,
    #[schema(value_type = String)]
    pub operation: OperationId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub resource: Option<ResourceId>,
    /// The resource's name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The part of the step it was said in: `init`, `plan`, `apply`, `create` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    pub text: String,
}

/// Lines after a sequence number. `done`: the deployment is over and these were the last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogPage {
    pub items: Vec<LogEntry>,
    pub next_after: i64,
    pub done: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConsumerRequest {
    pub application: String,
    pub requirement: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProblemItem {
    pub path: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

/// RFC 9457: what went wrong with a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// One of the interface's error codes.
    pub code: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemItem>,
    /// Why something cannot be destroyed, and what is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<Blocker>,
    /// What can be done instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_actions: Vec<String>,
}

/// `{requirement: {output: value}}`.
pub type OutputsByRequirement = BTreeMap<String, Map<String, Value>>;
