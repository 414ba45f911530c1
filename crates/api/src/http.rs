//! The way to a server elsewhere: HTTP for the client, and the worker protocol over it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use conductor_domain::ids::WorkerId;

use crate::{
    client::{Client, ClientError, Request, Response, Transport, escape, query},
    worker::{
        Acquire, Acquired, Claim, Completion, LinkError, LinkResult, LockAnswer, StateLock, Update, Updated,
        WorkerLink,
    },
};

pub struct HttpTransport {
    base: String,
    token: Option<String>,
    client: reqwest::Client,
}

impl HttpTransport {
    pub fn new(url: &str, token: Option<String>) -> Result<Self, ClientError> {
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(90))
            .tcp_nodelay(true)
            .build()
            .map_err(|error| ClientError::Unreachable(error.to_string()))?;
        Ok(Self { base: url.trim_end_matches('/').to_owned(), token, client })
    }

    pub fn client(url: &str, token: Option<String>) -> Result<Client, ClientError> {
        Ok(Client::new(Arc::new(Self::new(url, token)?)))
    }
}

#[async_trait]
impl Transport for HttpTransport {
    async fn send(&self, request: Request) -> Result<Response, ClientError> {
        let unreachable = |error: reqwest::Error| {
            let cause =
                std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            ClientError::Unreachable(format!("{}{cause}", error.without_url()))
        };
        let method = reqwest::Method::from_bytes(request.method.as_bytes())
            .map_err(|error| ClientError::Nonsense(error.to_string()))?;
        let mut call = self
            .client
            .request(method, format!("{}{}", self.base, request.path))
            .header("content-type", request.content_type)
            .body(request.body);
        if let Some(token) = &self.token {
            call = call.bearer_auth(token);
        }
        for (name, value) in request.headers {
            call = call.header(name, value);
        }
        let response = call.send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        Ok(Response { status, body: response.bytes().await.map_err(unreachable)? })
    }
}

/// The worker protocol over any transport.
pub struct RemoteLink {
    client: Client,
}

impl RemoteLink {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn call(&self, method: &'static str, path: String, body: Bytes, json: bool) -> LinkResult<Bytes> {
        let content_type = if json { "application/json" } else { "application/octet-stream" };
        self.client.raw(method, format!("/api/v1/worker{path}"), content_type, vec![], body).await.map_err(
            |error| match error {
                ClientError::Unreachable(text) => LinkError::Unreachable(text),
                ClientError::Problem(problem) => match problem.status {
                    410 => LinkError::Lost,
                    502..=504 | 429 => LinkError::Unreachable(problem.detail),
                    500 => LinkError::Unreachable(problem.detail),
                    _ => LinkError::Refused(problem.detail),
                },
                ClientError::Nonsense(text) => LinkError::Refused(text),
            },
        )
    }

    async fn exchange<T: serde::de::DeserializeOwned>(
        &self,
        path: String,
        body: &(impl serde::Serialize + Sync),
    ) -> LinkResult<T> {
        let body = serde_json::to_vec(body).map_err(|error| LinkError::Refused(error.to_string()))?;
        let answer = self.call("POST", path, body.into(), true).await?;
        let answer = if answer.is_empty() { Bytes::from_static(b"null") } else { answer };
        serde_json::from_slice(&answer).map_err(|error| LinkError::Refused(error.to_string()))
    }
}

fn on(claim: Claim, what: &str, more: &[(&str, Option<String>)]) -> String {
    let mut pairs = vec![("fence", Some(claim.fence.to_string()))];
    pairs.extend_from_slice(more);
    format!("/operations/{}/{what}{}", claim.operation, query(&pairs))
}

#[async_trait]
impl WorkerLink for RemoteLink {
    async fn acquire(&self, ask: Acquire) -> LinkResult<Acquired> {
        self.exchange("/acquire".into(), &ask).await
    }

    async fn leave(&self, worker: WorkerId) -> LinkResult<()> {
        self.exchange(format!("/leave/{worker}"), &()).await
    }

    async fn update(&self, claim: Claim, update: Update) -> LinkResult<Updated> {
        self.exchange(on(claim, "update", &[]), &update).await
    }

    async fn complete(&self, claim: Claim, completion: Completion) -> LinkResult<()> {
        self.exchange(on(claim, "complete", &[]), &completion).await
    }

    async fn blob(&self, digest: &str) -> LinkResult<Bytes> {
        self.call("GET", format!("/blobs/{}", escape(digest)), Bytes::new(), false).await
    }

    async fn keep_blob(&self, claim: Claim, digest: &str, body: Bytes) -> LinkResult<()> {
        let path = on(claim, "blob", &[("digest", Some(digest.to_owned()))]);
        self.call("PUT", path, body, false).await.map(drop)
    }

    async fn read_state(&self, claim: Claim) -> LinkResult<Option<Bytes>> {
        let body = self.call("GET", on(claim, "state", &[]), Bytes::new(), false).await?;
        Ok((!body.is_empty()).then_some(body))
    }

    async fn write_state(&self, claim: Claim, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        self.call("PUT", on(claim, "state", &[("lock", lock)]), body, false).await.map(drop)
    }

    async fn lock_state(&self, claim: Claim, lock: StateLock) -> LinkResult<LockAnswer> {
        self.exchange(on(claim, "state/lock", &[]), &lock).await
    }

    async fn unlock_state(&self, claim: Claim, lock: Option<StateLock>) -> LinkResult<()> {
        self.exchange(on(claim, "state/unlock", &[]), &lock).await
    }
}
