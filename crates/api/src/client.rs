//! The typed client: every call of the interface, over HTTP or straight into a server in this process.

mod life;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use conductor_domain::ids::{ChangeId, OperationId, ResourceId, TokenId};
use serde::{Serialize, de::DeserializeOwned};

use crate::types::{
    Alert, Application, Applied, ApplyRequest, AuditEntry, AuditExport, AuditReport, CancelRequest, Consumer,
    ConsumerRequest, Deployment, DeploymentRequest, DestroyRequest, Environment, Event, Grant, Integration,
    LogPage, Operation, OutputsByRequirement, Page, Pool, Problem, Resource, Rule, SilenceRequest, StateDiff,
    StateRollback, StateVersion, Template, Time, Token, TokenRequest, WorkerInfo,
};

#[derive(Clone, Debug)]
pub struct Request {
    pub method: &'static str,
    /// With its query.
    pub path: String,
    pub content_type: &'static str,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub body: Bytes,
}

/// Carries a request to the server, wherever it is.
#[async_trait]
pub trait Transport: Send + Sync {
    async fn send(&self, request: Request) -> Result<Response, ClientError>;
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Unreachable(String),
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    #[error("the answer makes no sense: {0}")]
    Nonsense(String),
}

pub type ClientResult<T> = Result<T, ClientError>;

/// `key=value&…`, escaped; pairs without a value are left out.
pub fn query(pairs: &[(&str, Option<String>)]) -> String {
    let given = pairs.iter().filter_map(|(key, value)| Some(format!("{key}={}", escape(value.as_ref()?))));
    let text = given.collect::<Vec<_>>().join("&");
    if text.is_empty() { text } else { format!("?{text}") }
}

pub fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => (byte as char).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn integration_path(name: &str, what: &str, environment: Option<&str>) -> String {
    format!("/integrations/{}{what}{}", escape(name), query(&[("env", environment.map(str::to_owned))]))
}

#[derive(Clone)]
pub struct Client {
    transport: Arc<dyn Transport>,
}

/// What lists are narrowed to.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    pub environment: Option<String>,
    pub application: Option<String>,
    pub kind: Option<String>,
    pub class: Option<String>,
    pub phase: Option<String>,
    pub status: Option<String>,
    pub template: Option<String>,
    pub deployment: Option<String>,
    pub resource: Option<String>,
    pub owner: Option<String>,
    pub team: Option<String>,
    /// `k=v`, several with commas between them.
    pub labels: Option<String>,
    pub limit: Option<usize>,
    pub cursor: Option<String>,
}

/// Which part of the audit trail.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// From its end backwards.
    pub newest: bool,
    pub actor: Option<String>,
    pub kind: Option<String>,
    pub deployment: Option<String>,
    pub resource: Option<String>,
    pub since: Option<Time>,
}

impl ListFilter {
    fn query(&self) -> String {
        query(&[
            ("env", self.environment.clone()),
            ("app", self.application.clone()),
            ("type", self.kind.clone()),
            ("class", self.class.clone()),
            ("phase", self.phase.clone()),
            ("status", self.status.clone()),
            ("template", self.template.clone()),
            ("deployment", self.deployment.clone()),
            ("resource", self.resource.clone()),
            ("owner", self.owner.clone()),
            ("team", self.team.clone()),
            ("label", self.labels.clone()),
            ("limit", self.limit.map(|limit| limit.min(200).to_string())),
            ("cursor", self.cursor.clone()),
        ])
    }
}

impl Client {
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport }
    }

    pub async fn raw(
        &self,
        method: &'static str,
        path: String,
        content_type: &'static str,
        headers: Vec<(String, String)>,
        body: Bytes,
    ) -> ClientResult<Bytes> {
        let response = self.transport.send(Request { method, path, content_type, headers, body }).await?;
        if response.status < 400 {
            return Ok(response.body);
        }
        Err(ClientError::Problem(Box::new(serde_json::from_slice(&response.body).unwrap_or_else(|_| {
            Problem {
                kind: "about:blank".into(),
                title: "error".into(),
                status: response.status,
                detail: String::from_utf8_lossy(&response.body).chars().take(500).collect(),
                code: "failed".into(),
                ..Problem::default()
            }
        }))))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: String,
        body: Bytes,
    ) -> ClientResult<T> {
        let answer = self.raw(method, format!("/api/v1{path}"), "application/json", vec![], body).await?;
        let answer = if answer.is_empty() { Bytes::from_static(b"null") } else { answer };
        serde_json::from_slice(&answer).map_err(|error| ClientError::Nonsense(error.to_string()))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: String) -> ClientResult<T> {
        self.call("GET", path, Bytes::new()).await
    }

    pub async fn send<T: DeserializeOwned>(
        &self,
        method: &'static str,
        path: String,
        body: &impl Serialize,
    ) -> ClientResult<T> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Nonsense(error.to_string()))?;
        self.call(method, path, body.into()).await
    }

    /// Every page of a list, up to `filter.limit`.
    async fn list<T: DeserializeOwned>(&self, path: &str, filter: &ListFilter) -> ClientResult<Vec<T>> {
        let mut filter = filter.clone();
        let limit = filter.limit.unwrap_or(usize::MAX);
        let mut items = Vec::new();
        loop {
            let page: Page<T> = self.get(format!("{path}{}", filter.query())).await?;
            items.extend(page.items);
            filter.cursor = page.next_cursor;
            if filter.cursor.is_none() || items.len() >= limit {
                items.truncate(limit);
                return Ok(items);
            }
        }
    }

    pub async fn deploy(&self, request: &DeploymentRequest) -> ClientResult<Deployment> {
        self.send("POST", "/deployments".into(), request).await
    }

    pub async fn plan(&self, request: &DeploymentRequest) -> ClientResult<Deployment> {
        self.send("POST", "/plans".into(), request).await
    }

    /// As [`Client::plan`], and the managers are asked as well.
    pub async fn plan_deep(&self, request: &DeploymentRequest) -> ClientResult<Deployment> {
        self.send("POST", "/plans?deep=true".into(), request).await
    }

    pub async fn destroy(&self, request: &DestroyRequest) -> ClientResult<Deployment> {
        self.send("POST", "/destroys".into(), request).await
    }

    pub async fn deployment(&self, id: ChangeId) -> ClientResult<Deployment> {
        self.get(format!("/deployments/{id}")).await
    }

    /// As [`Client::deployment`], but answers only when it changed since `seen`, is over, or time is up.
    pub async fn await_deployment(
        &self,
        id: ChangeId,
        seen: Option<&str>,
        wait_ms: u64,
    ) -> ClientResult<Deployment> {
        let query = query(&[("wait", Some(wait_ms.to_string())), ("seen", seen.map(str::to_owned))]);
        self.get(format!("/deployments/{id}{query}")).await
    }

    pub async fn deployments(&self, filter: &ListFilter) -> ClientResult<Vec<Deployment>> {
        self.list("/deployments", filter).await
    }

    pub async fn cancel(&self, id: ChangeId, rollback: bool) -> ClientResult<Deployment> {
        self.send("POST", format!("/deployments/{id}/cancel"), &CancelRequest { rollback }).await
    }

    pub async fn retry(&self, id: ChangeId) -> ClientResult<Deployment> {
        self.send("POST", format!("/deployments/{id}/retry"), &serde_json::json!({})).await
    }

    /// Log lines after `after`; waits up to `wait_ms` for more while the deployment runs.
    pub async fn logs(&self, id: ChangeId, after: i64, wait_ms: u64) -> ClientResult<LogPage> {
        let query = query(&[("after", Some(after.to_string())), ("wait", Some(wait_ms.to_string()))]);
        self.get(format!("/deployments/{id}/logs{query}")).await
    }

    pub async fn resources(&self, filter: &ListFilter) -> ClientResult<Vec<Resource>> {
        self.list("/resources", filter).await
    }

    pub async fn resource(&self, id: ResourceId) -> ClientResult<Resource> {
        self.get(format!("/resources/{id}")).await
    }

    pub async fn add_consumer(&self, id: ResourceId, request: &ConsumerRequest) -> ClientResult<Consumer> {
        self.send("POST", format!("/resources/{id}/consumers"), request).await
    }

    pub async fn states(&self, id: ResourceId) -> ClientResult<Vec<StateVersion>> {
        let page: Page<StateVersion> = self.get(format!("/resources/{id}/states")).await?;
        Ok(page.items)
    }

    /// A version of a resource's state, as it was written.
    pub async fn state(&self, id: ResourceId, number: i64) -> ClientResult<Bytes> {
        let path = format!("/api/v1/resources/{id}/states/{number}");
        self.raw("GET", path, "application/json", vec![], Bytes::new()).await
    }

    pub async fn diff_states(&self, id: ResourceId, from: i64, to: i64) -> ClientResult<StateDiff> {
        self.get(format!("/resources/{id}/states/{from}/diff/{to}")).await
    }

    pub async fn roll_back_state(&self, id: ResourceId, number: i64) -> ClientResult<StateVersion> {
        self.send("POST", format!("/resources/{id}/states/rollback"), &StateRollback { number }).await
    }

    pub async fn unlock_state(&self, id: ResourceId) -> ClientResult<()> {
        self.send("DELETE", format!("/resources/{id}/states/lock"), &()).await
    }

    /// Takes back a destruction that is still in its grace period.
    pub async fn undelete(&self, id: ResourceId) -> ClientResult<Resource> {
        self.send("POST", format!("/resources/{id}/undelete"), &serde_json::json!({})).await
    }

    pub async fn operations(&self, filter: &ListFilter) -> ClientResult<Vec<Operation>> {
        self.list("/operations", filter).await
    }

    pub async fn operation(&self, id: OperationId) -> ClientResult<Operation> {
        self.get(format!("/operations/{id}")).await
    }

    pub async fn environments(&self) -> ClientResult<Vec<Environment>> {
        self.list("/environments", &ListFilter::default()).await
    }

    pub async fn applications(&self) -> ClientResult<Vec<Application>> {
        self.list("/applications", &ListFilter::default()).await
    }

    pub async fn templates(&self) -> ClientResult<Vec<Template>> {
        self.list("/templates", &ListFilter::default()).await
    }

    pub async fn rules(&self) -> ClientResult<Vec<Rule>> {
        self.list("/rules", &ListFilter::default()).await
    }

    pub async fn delete_rule(&self, name: &str) -> ClientResult<()> {
        self.call("DELETE", format!("/rules/{}", escape(name)), Bytes::new()).await
    }

    pub async fn pools(&self) -> ClientResult<Vec<Pool>> {
        self.list("/pools", &ListFilter::default()).await
    }

    pub async fn delete_pool(&self, name: &str) -> ClientResult<()> {
        self.call("DELETE", format!("/pools/{}", escape(name)), Bytes::new()).await
    }

    pub async fn integrations(&self) -> ClientResult<Vec<Integration>> {
        self.list("/integrations", &ListFilter::default()).await
    }

    /// An environment's own, or the organisation's.
    pub async fn integration(&self, name: &str, environment: Option<&str>) -> ClientResult<Integration> {
        self.get(integration_path(name, "", environment)).await
    }

    /// Has a worker try it; the answer is the change to wait for.
    pub async fn test_integration(&self, name: &str, environment: Option<&str>) -> ClientResult<Deployment> {
        self.send("POST", integration_path(name, "/test", environment), &serde_json::json!({})).await
    }

    pub async fn delete_integration(&self, name: &str, environment: Option<&str>) -> ClientResult<()> {
        self.call("DELETE", integration_path(name, "", environment), Bytes::new()).await
    }

    pub async fn workers(&self) -> ClientResult<Vec<WorkerInfo>> {
        self.list("/workers", &ListFilter::default()).await
    }

    pub async fn alerts(&self) -> ClientResult<Vec<Alert>> {
        self.list("/alerts", &ListFilter::default()).await
    }

    /// Tells nobody of an alert for so many seconds; 0 ends that.
    pub async fn silence_alert(&self, name: &str, seconds: u64) -> ClientResult<Alert> {
        self.send("POST", format!("/alerts/{}/silence", escape(name)), &SilenceRequest { seconds }).await
    }

    /// The audit chain beyond a place, one page.
    pub async fn audit(&self, filter: &AuditFilter, cursor: Option<&str>) -> ClientResult<Page<AuditEntry>> {
        let query = query(&[
            ("newest", filter.newest.then(|| "true".to_owned())),
            ("actor", filter.actor.clone()),
            ("kind", filter.kind.clone()),
            ("deployment", filter.deployment.clone()),
            ("resource", filter.resource.clone()),
            ("since", filter.since.map(|at| at.to_string())),
            ("cursor", cursor.map(str::to_owned)),
        ]);
        self.get(format!("/audit{query}")).await
    }

    /// Whether exported entries, in order, are what was sealed.
    pub async fn verify_export(&self, entries: &[AuditEntry]) -> ClientResult<AuditReport> {
        self.send("POST", "/audit/verify".into(), &AuditExport { entries: entries.to_vec() }).await
    }

    pub async fn verify_audit(&self) -> ClientResult<AuditReport> {
        self.get("/audit/verify".to_owned()).await
    }

    pub async fn events(&self, filter: &ListFilter) -> ClientResult<Vec<Event>> {
        self.list("/events", filter).await
    }

    /// Applies one catalogue document (any `kind`).
    pub async fn apply(&self, request: &ApplyRequest) -> ClientResult<Applied> {
        self.send("POST", "/catalog".into(), request).await
    }

    /// Sends packed files; the digest is checked.
    pub async fn keep_blob(&self, digest: &str, body: Bytes) -> ClientResult<()> {
        let path = format!("/api/v1/blobs/{}", escape(digest));
        self.raw("PUT", path, "application/octet-stream", vec![], body).await.map(drop)
    }

    pub async fn outputs(
        &self,
        application: &str,
        environment: &str,
        reveal: bool,
    ) -> ClientResult<OutputsByRequirement> {
        let query = query(&[
            ("app", Some(application.to_owned())),
            ("env", Some(environment.to_owned())),
            ("reveal", Some(reveal.to_string())),
        ]);
        self.get(format!("/outputs{query}")).await
    }

    pub async fn create_token(&self, request: &TokenRequest) -> ClientResult<Token> {
        self.send("POST", "/tokens".into(), request).await
    }

    pub async fn tokens(&self) -> ClientResult<Vec<Token>> {
        self.list("/tokens", &ListFilter::default()).await
    }

    /// Gives a token's holder a role in a place, instead of the one held there before.
    pub async fn grant(&self, id: TokenId, grant: &Grant) -> ClientResult<Token> {
        self.send("POST", format!("/tokens/{id}/grants"), grant).await
    }

    /// Takes away what a token's holder was granted in exactly this place.
    pub async fn take_grant(
        &self,
        id: TokenId,
        environment: Option<String>,
        application: Option<String>,
    ) -> ClientResult<Token> {
        let query = query(&[("env", environment), ("app", application)]);
        self.call("DELETE", format!("/tokens/{id}/grants{query}"), Bytes::new()).await
    }

    pub async fn revoke_token(&self, id: TokenId) -> ClientResult<()> {
        self.call("DELETE", format!("/tokens/{id}"), Bytes::new()).await
    }
}
