//! The way to a server elsewhere: HTTP for the client, and the worker protocol over it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use conductor_domain::ids::{OperationId, WorkerId};

use crate::{
    client::{Client, ClientError, Request, Response, Transport, escape, query},
    worker::{
        Acquire, Acquired, Claim, Completion, LinkError, LinkResult, LockAnswer, OPERATION_TOKEN, StateLock,
        Update, Updated, WorkerLink,
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

/// The worker protocol over any transport. Work is asked for with the transport's own token; whatever is said about one
/// operation has the token that came with it, in a header of its own: a server of an earlier release, which may be the
/// one that hears it, goes by the other.
pub struct RemoteLink {
    client: Client,
    tokens: Mutex<HashMap<OperationId, (i64, String)>>,
}

impl RemoteLink {
    pub fn new(client: Client) -> Self {
        Self { client, tokens: Mutex::default() }
    }

    fn keep(&self, acquired: &Acquired) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        for job in &acquired.jobs {
            if let Some(token) = &job.token {
                tokens.insert(job.claim.operation, (job.claim.fence, token.clone()));
            }
        }
    }

    fn authorization(&self, claim: Claim) -> Vec<(String, String)> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let token = tokens.get(&claim.operation).filter(|(fence, _)| *fence == claim.fence);
        token.map(|(_, token)| (OPERATION_TOKEN.to_owned(), token.clone())).into_iter().collect()
    }

    fn forget(&self, claim: Claim) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.get(&claim.operation).is_some_and(|(fence, _)| *fence == claim.fence) {
            tokens.remove(&claim.operation);
        }
    }

    async fn call(
        &self,
        claim: Option<Claim>,
        method: &'static str,
        path: String,
        body: Bytes,
        json: bool,
    ) -> LinkResult<Bytes> {
        let content_type = if json { "application/json" } else { "application/octet-stream" };
        let headers = claim.map(|claim| self.authorization(claim)).unwrap_or_default();
        let answer =
            self.client.raw(method, format!("/api/v1/worker{path}"), content_type, headers, body).await;
        let answer = answer.map_err(|error| match error {
            ClientError::Unreachable(text) => LinkError::Unreachable(text),
            ClientError::Problem(problem) => match problem.status {
                410 => LinkError::Lost,
                502..=504 | 429 => LinkError::Unreachable(problem.detail),
                500 => LinkError::Unreachable(problem.detail),
                _ => LinkError::Refused(problem.detail),
            },
            ClientError::Nonsense(text) => LinkError::Refused(text),
        });
        if let (Some(claim), Err(LinkError::Lost)) = (claim, &answer) {
            self.forget(claim);
        }
        answer
    }

    async fn exchange<T: serde::de::DeserializeOwned>(
        &self,
        claim: Option<Claim>,
        path: String,
        body: &(impl serde::Serialize + Sync),
    ) -> LinkResult<T> {
        let body = serde_json::to_vec(body).map_err(|error| LinkError::Refused(error.to_string()))?;
        let answer = self.call(claim, "POST", path, body.into(), true).await?;
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
        let acquired: Acquired = self.exchange(None, "/acquire".into(), &ask).await?;
        self.keep(&acquired);
        Ok(acquired)
    }

    async fn leave(&self, worker: WorkerId) -> LinkResult<()> {
        self.exchange(None, format!("/leave/{worker}"), &()).await
    }

    async fn update(&self, claim: Claim, update: Update) -> LinkResult<Updated> {
        self.exchange(Some(claim), on(claim, "update", &[]), &update).await
    }

    async fn complete(&self, claim: Claim, completion: Completion) -> LinkResult<()> {
        let () = self.exchange(Some(claim), on(claim, "complete", &[]), &completion).await?;
        self.forget(claim);
        Ok(())
    }

    async fn blob(&self, claim: Claim, digest: &str) -> LinkResult<Bytes> {
        let pairs =
            [("operation", Some(claim.operation.to_string())), ("fence", Some(claim.fence.to_string()))];
        let path = format!("/blobs/{}{}", escape(digest), query(&pairs));
        self.call(Some(claim), "GET", path, Bytes::new(), false).await
    }

    async fn keep_blob(&self, claim: Claim, digest: &str, body: Bytes) -> LinkResult<()> {
        let path = on(claim, "blob", &[("digest", Some(digest.to_owned()))]);
        self.call(Some(claim), "PUT", path, body, false).await.map(drop)
    }

    async fn read_state(&self, claim: Claim) -> LinkResult<Option<Bytes>> {
        let body = self.call(Some(claim), "GET", on(claim, "state", &[]), Bytes::new(), false).await?;
        Ok((!body.is_empty()).then_some(body))
    }

    async fn write_state(&self, claim: Claim, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        let path = on(claim, "state", &[("lock", lock)]);
        self.call(Some(claim), "PUT", path, body, false).await.map(drop)
    }

    async fn lock_state(&self, claim: Claim, lock: StateLock) -> LinkResult<LockAnswer> {
        self.exchange(Some(claim), on(claim, "state/lock", &[]), &lock).await
    }

    async fn unlock_state(&self, claim: Claim, lock: Option<StateLock>) -> LinkResult<()> {
        self.exchange(Some(claim), on(claim, "state/unlock", &[]), &lock).await
    }
}
