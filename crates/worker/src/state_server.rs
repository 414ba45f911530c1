//! The worker's own door to terraform state: one listener on loopback, one secret address per job.
//!
//! A sandboxed job needs one port and no token of the server; its address dies with it.

use std::{
    collections::{HashMap, HashSet},
    net::{Ipv4Addr, TcpListener as StdListener},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use async_trait::async_trait;
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
    serve::ListenerExt,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use conductor_api::{
    state_protocol::{LARGEST_STATE, StateRequest, StateStore, answer_state},
    worker::{Claim, LinkResult, LockAnswer, StateLock, WorkerLink},
};
use conductor_domain::ids::OperationId;
use conductor_managers::StateAddress;
use tokio::task::AbortHandle;
use uuid::Uuid;

const USERNAME: &str = "job";

/// Who answers at which path.
type Jobs = Arc<Mutex<HashMap<String, Arc<JobState>>>>;
/// Operations that hold the lock of their state.
type Locked = Arc<Mutex<HashSet<OperationId>>>;

#[derive(Default)]
pub struct StateServer {
    listening: OnceLock<(u16, Option<AbortHandle>)>,
    jobs: Jobs,
    locked: Locked,
}

struct JobState {
    link: Arc<dyn WorkerLink>,
    claim: Claim,
    authorization: String,
    locked: Locked,
}

/// A job's address. Dropped, nobody answers there any more.
pub struct StateDoor {
    address: StateAddress,
    path: String,
    jobs: Jobs,
}

impl StateDoor {
    pub fn address(&self) -> StateAddress {
        self.address.clone()
    }
}

impl Drop for StateDoor {
    fn drop(&mut self) {
        lock(&self.jobs).remove(&self.path);
    }
}

impl StateServer {
    /// Opens a job's address. Listens from the first time on.
    pub fn open(&self, link: Arc<dyn WorkerLink>, claim: Claim) -> StateDoor {
        let &(port, _) = self.listening.get_or_init(|| match self.listen() {
            Ok((port, task)) => (port, Some(task)),
            Err(error) => {
                tracing::error!(%error, "no port for terraform state");
                (0, None)
            }
        });
        let (path, password) = (format!("/{}", secret()), secret());
        let credentials = STANDARD.encode(format!("{USERNAME}:{password}"));
        let authorization = format!("Basic {credentials}");
        let state = JobState { link, claim, authorization, locked: self.locked.clone() };
        lock(&self.jobs).insert(path.clone(), Arc::new(state));
        let url = format!("http://{}:{port}{path}", Ipv4Addr::LOCALHOST);
        let address = StateAddress { url, username: USERNAME.to_owned(), password, port };
        StateDoor { address, path, jobs: self.jobs.clone() }
    }

    /// Whether an operation whose programs are gone has left its state locked; it is asked once.
    pub fn left_locked(&self, operation: OperationId) -> bool {
        lock(&self.locked).remove(&operation)
    }

    fn listen(&self) -> std::io::Result<(u16, AbortHandle)> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new().fallback(handle).with_state(self.jobs.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "terraform state is no longer served");
            }
        });
        Ok((port, task.abort_handle()))
    }
}

impl Drop for StateServer {
    fn drop(&mut self) {
        if let Some((_, Some(task))) = self.listening.get() {
            task.abort();
        }
    }
}

async fn handle(State(jobs): State<Jobs>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let job = lock(&jobs).get(head.uri.path()).cloned();
    let Some(job) = job.filter(|job| authorized(&head.headers, &job.authorization)) else {
        return reply(StatusCode::UNAUTHORIZED, Bytes::new());
    };
    let Ok(body) = to_bytes(body, LARGEST_STATE).await else {
        return reply(StatusCode::PAYLOAD_TOO_LARGE, Bytes::new());
    };
    let request = StateRequest {
        method: head.method.as_str(),
        query: head.uri.query().unwrap_or_default(),
        content_md5: head.headers.get("content-md5").and_then(|value| value.to_str().ok()),
        body,
    };
    let answer = answer_state(&*job, request).await;
    reply(StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), answer.body)
}

fn reply(status: StatusCode, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}

/// Takes the same time wherever the difference is.
fn authorized(headers: &HeaderMap, wanted: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let differences = given.iter().zip(wanted.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == wanted.len() && differences == 0
}

/// 244 random bits: two version 4 ids.
fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl StateStore for JobState {
    async fn read(&self) -> LinkResult<Option<Bytes>> {
        self.link.read_state(self.claim).await
    }

    async fn write(&self, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        self.link.write_state(self.claim, lock, body).await
    }

    async fn lock(&self, lock: StateLock) -> LinkResult<LockAnswer> {
        let answer = self.link.lock_state(self.claim, lock).await?;
        if answer == LockAnswer::Taken {
            self::lock(&self.locked).insert(self.claim.operation);
        }
        Ok(answer)
    }

    async fn unlock(&self, lock: Option<StateLock>) -> LinkResult<()> {
        self.link.unlock_state(self.claim, lock).await?;
        self::lock(&self.locked).remove(&self.claim.operation);
        Ok(())
    }
}
