//! The worker protocol over HTTP: the same calls as in process, one route each. 410 = the claim is lost.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use conductor_api::worker::{Acquire, Claim, Completion, LinkError, StateLock, Update, WorkerLink};
use conductor_domain::{
    ids::{OperationId, WorkerId},
    lifecycle::ErrorCode,
};
use serde::Deserialize;

use crate::{
    App,
    access::WorkerCaller,
    problem::{Answer, Ask, At, Body, Failed},
};

const LIMIT: usize = 96 * 1024 * 1024;

pub fn router() -> Router<App> {
    Router::new()
        .route("/acquire", post(acquire))
        .route("/leave/{worker}", post(leave))
        .route("/operations/{id}/update", post(update))
        .route("/operations/{id}/complete", post(complete))
        .route("/operations/{id}/blob", put(keep_blob))
        .route("/operations/{id}/state", get(read_state).put(write_state))
        .route("/operations/{id}/state/lock", post(lock_state))
        .route("/operations/{id}/state/unlock", post(unlock_state))
        .route("/blobs/{digest}", get(blob))
        .layer(DefaultBodyLimit::max(LIMIT))
}

#[derive(Deserialize)]
struct On {
    fence: i64,
    lock: Option<String>,
    digest: Option<String>,
}

impl On {
    fn claim(&self, operation: OperationId) -> Claim {
        Claim { operation, fence: self.fence }
    }
}

impl From<LinkError> for Failed {
    fn from(error: LinkError) -> Self {
        let (status, code) = match &error {
            LinkError::Lost => (StatusCode::GONE, ErrorCode::Conflict),
            LinkError::Unreachable(_) => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Transient),
            LinkError::Refused(_) => (StatusCode::CONFLICT, ErrorCode::Conflict),
        };
        Self::new(status, code, error.to_string())
    }
}

async fn acquire(State(app): State<App>, _: WorkerCaller, Body(ask): Body<Acquire>) -> Answer<Response> {
    Ok(Json(app.engine.acquire(ask).await?).into_response())
}

async fn leave(State(app): State<App>, _: WorkerCaller, At(worker): At<WorkerId>) -> Answer<StatusCode> {
    app.engine.leave(worker).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn update(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
    Body(body): Body<Update>,
) -> Answer<Response> {
    Ok(Json(app.engine.update(on.claim(id), body).await?).into_response())
}

async fn complete(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
    Body(body): Body<Completion>,
) -> Answer<StatusCode> {
    app.engine.complete(on.claim(id), body).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn blob(State(app): State<App>, _: WorkerCaller, At(digest): At<String>) -> Answer<Bytes> {
    Ok(app.engine.blob(&digest).await?)
}

async fn keep_blob(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
    body: Bytes,
) -> Answer<StatusCode> {
    let digest = on.digest.clone().unwrap_or_default();
    WorkerLink::keep_blob(app.engine.as_ref(), on.claim(id), &digest, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read_state(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
) -> Answer<Response> {
    Ok(match app.engine.read_state(on.claim(id)).await? {
        Some(state) => state.into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn write_state(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
    body: Bytes,
) -> Answer<StatusCode> {
    app.engine.write_state(on.claim(id), on.lock.clone(), body).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn lock_state(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
    Body(lock): Body<StateLock>,
) -> Answer<Response> {
    Ok(Json(app.engine.lock_state(on.claim(id), lock).await?).into_response())
}

async fn unlock_state(
    State(app): State<App>,
    _: WorkerCaller,
    At(id): At<OperationId>,
    Ask(on): Ask<On>,
    Body(lock): Body<Option<StateLock>>,
) -> Answer<StatusCode> {
    app.engine.unlock_state(on.claim(id), lock).await?;
    Ok(StatusCode::NO_CONTENT)
}
