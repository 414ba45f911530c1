//! The whole worker protocol: acquire, update, complete or fail, files, terraform state.
//!
//! One trait, implemented by the HTTP client and by the engine in process. Every call may be repeated after
//! a lost reply: acquire carries a request id made by the worker, lines are numbered by the worker, complete
//! and fail are idempotent by (operation, fence).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use async_trait::async_trait;
use bytes::Bytes;
use conductor_domain::{
    ids::{ChangeId, OperationId, WorkerId},
    semver::Version,
    work::{Description, Done, Failure, LogLine, Step},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The operation has another owner now, or is over: stop, and change nothing.
    #[error("this worker no longer owns the operation")]
    Lost,
    /// Nobody answered; the call may be repeated.
    #[error("{0}")]
    Unreachable(String),
    /// The answer was no, for good.
    #[error("{0}")]
    Refused(String),
}

/// The header that a claim's own token travels in, beside the worker's in `Authorization`.
pub const OPERATION_TOKEN: &str = "conductor-operation-token";

pub type LinkResult<T> = Result<T, LinkError>;

/// Who proves ownership of an operation: its id and the fencing number of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claim {
    pub operation: OperationId,
    pub fence: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Acquire {
    pub worker: WorkerId,
    pub name: String,
    /// Made by the worker; the same id gets the same jobs again.
    pub request: uuid::Uuid,
    /// Set when the id was used before and the answer may have been lost.
    #[serde(default)]
    pub repeated: bool,
    /// How many jobs fit; 0 only listens for cancels.
    pub slots: u32,
    pub managers: Vec<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// It knows the token that comes with each job, and what else a job is handed; earlier releases knew neither.
    #[serde(default)]
    pub tokens: bool,
    /// What keeps programs in on this worker, line by line; nothing from one that does not tell.
    #[serde(default)]
    pub isolation: Vec<String>,
    /// Networks it reaches.
    #[serde(default)]
    pub networks: BTreeSet<String>,
    /// Versions of tools it has.
    #[serde(default)]
    pub tools: BTreeMap<String, Vec<Version>>,
    /// How long the answer may take when there is nothing to do.
    pub wait_ms: u64,
    /// Operations this worker runs now: the answer names those of them that shall stop.
    #[serde(default)]
    pub running: Vec<OperationId>,
    /// Only work that this change waits for (an embedded command), and what dead owners left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<ChangeId>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Acquired {
    pub jobs: Vec<JobOrder>,
    pub cancel: Vec<OperationId>,
}

/// What an operation is handed to reach things outside. Gone with the job.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Credentials {
    /// Secret. `${files}` stands for the folder that the files are in.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Not secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Secret contents by path below the job's folder.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Variables of the worker's own environment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<String>,
}

impl Credentials {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// What to do: describe a template, carry out a step, or try an integration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Task {
    Describe { config: Map<String, Value>, parameters: Option<Value> },
    Step(Box<Step>),
    Test { command: Vec<String>, config: Map<String, Value> },
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobOrder {
    pub claim: Claim,
    /// Opens what this operation needs, and nothing else, while the claim holds. In process there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub change: ChangeId,
    pub manager: String,
    /// Digest of the template's packed files.
    pub content: Option<String>,
    pub task: Task,
    #[serde(default, skip_serializing_if = "Credentials::is_empty")]
    pub credentials: Credentials,
    /// The worker gives up this long after its last successful renewal.
    pub lease_ms: u64,
    pub timeout_ms: u64,
    /// The span this job is a part of, as `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// Without its token, and without what may hold secrets.
impl fmt::Debug for JobOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobOrder")
            .field("claim", &self.claim)
            .field("token", &self.token.as_ref().map(|_| "***"))
            .field("change", &self.change)
            .field("manager", &self.manager)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// The number of the first line, counted by the worker from 0 per claim.
    pub first_line: u64,
    pub lines: Vec<LogLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub journal: Vec<Value>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Updated {
    pub cancel: bool,
}

/// How a job ended, with the lines not yet sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    pub result: JobResult,
    #[serde(flatten)]
    pub rest: Update,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobResult {
    Done(Box<Done>),
    /// A described template, and the digest of its files where the worker fetched them.
    Described {
        description: Description,
        content: Option<String>,
    },
    Failed(Failure),
}

/// Terraform's lock document, as it sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateLock {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LockAnswer {
    Taken,
    HeldBy(StateLock),
}

#[async_trait]
pub trait WorkerLink: Send + Sync {
    async fn acquire(&self, ask: Acquire) -> LinkResult<Acquired>;

    /// The worker has nothing left to do and will not ask again: it is not dead.
    async fn leave(&self, _worker: WorkerId) -> LinkResult<()> {
        Ok(())
    }

    /// Lines out, lease renewed, "stop" back.
    async fn update(&self, claim: Claim, update: Update) -> LinkResult<Updated>;

    /// The end of a job, good or bad. Idempotent.
    async fn complete(&self, claim: Claim, completion: Completion) -> LinkResult<()>;

    /// The packed files of the operation's template.
    async fn blob(&self, claim: Claim, digest: &str) -> LinkResult<Bytes>;

    /// Keeps packed files that the worker fetched itself.
    async fn keep_blob(&self, claim: Claim, digest: &str, body: Bytes) -> LinkResult<()>;

    async fn read_state(&self, claim: Claim) -> LinkResult<Option<Bytes>>;

    /// `lock` is the id terraform sends along, when it locked.
    async fn write_state(&self, claim: Claim, lock: Option<String>, body: Bytes) -> LinkResult<()>;

    async fn lock_state(&self, claim: Claim, lock: StateLock) -> LinkResult<LockAnswer>;

    async fn unlock_state(&self, claim: Claim, lock: Option<StateLock>) -> LinkResult<()>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_is_shown_without_its_secrets() {
        let order: JobOrder = serde_json::from_value(json!({
            "claim": { "operation": "op_00000000000000000000000001", "fence": 3 }, "token": "cdo_of-this-claim",
            "change": "dep_00000000000000000000000001", "manager": "command", "content": null,
            "task": { "test": { "command": ["try", "hunter2"], "config": {} } },
            "credentials": { "variables": { "KEY": "hunter2" } }, "leaseMs": 1, "timeoutMs": 1,
        }))
        .unwrap();
        let shown = format!("{order:?}");
        assert!(shown.contains("command") && shown.contains("***"), "{shown}");
        assert!(!shown.contains("cdo_") && !shown.contains("hunter2"), "{shown}");
    }
}
