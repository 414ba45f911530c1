//! The worker protocol over HTTP: the same calls as in process, one route each. 410 = the claim is lost.
//!
//! A worker's token can only ask for work. Everything else is about one claim and takes the token handed out with it;
//! workers of an earlier release, which know no such token, still speak for what they hold.

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use conductor_api::{
    state_protocol::LARGEST_STATE,
    worker::{Acquire, Completion, LinkError, StateLock, Update, WorkerLink},
};
use conductor_domain::{ids::WorkerId, lifecycle::ErrorCode};
use serde::Deserialize;

use crate::{
    App,
    access::{FileHolder, Holder, WorkerCaller},
    problem::{Answer, Ask, At, Body, Failed},
};

const LIMIT: usize = LARGEST_STATE;

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
struct With {
    lock: Option<String>,
    #[serde(default)]
    digest: String,
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
    let acquired = app.engine.acquire(ask).await?;
    Ok(Json(app.engine.with_tokens(acquired)?).into_response())
}

async fn leave(State(app): State<App>, _: WorkerCaller, At(worker): At<WorkerId>) -> Answer<StatusCode> {
    app.engine.leave(worker).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn update(State(app): State<App>, Holder(claim): Holder, Body(body): Body<Update>) -> Answer<Response> {
    Ok(Json(app.engine.update(claim, body).await?).into_response())
}

async fn complete(
    State(app): State<App>,
    Holder(claim): Holder,
    Body(body): Body<Completion>,
) -> Answer<StatusCode> {
    app.engine.complete(claim, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn blob(State(app): State<App>, holder: FileHolder, At(digest): At<String>) -> Answer<Response> {
    let found = match holder {
        FileHolder::Of(claim) => Some(app.engine.blob(claim, &digest).await?),
        FileHolder::Earlier => app.engine.blob_without_claim(&digest).await?.map(Bytes::from),
    };
    Ok(found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), Bytes::into_response))
}

async fn keep_blob(
    State(app): State<App>,
    Holder(claim): Holder,
    Ask(with): Ask<With>,
    body: Bytes,
) -> Answer<StatusCode> {
    WorkerLink::keep_blob(app.engine.as_ref(), claim, &with.digest, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn read_state(State(app): State<App>, Holder(claim): Holder) -> Answer<Response> {
    Ok(match app.engine.read_state(claim).await? {
        Some(state) => state.into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn write_state(
    State(app): State<App>,
    Holder(claim): Holder,
    Ask(with): Ask<With>,
    body: Bytes,
) -> Answer<StatusCode> {
    app.engine.write_state(claim, with.lock, body).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn lock_state(
    State(app): State<App>,
    Holder(claim): Holder,
    Body(lock): Body<StateLock>,
) -> Answer<Response> {
    Ok(Json(app.engine.lock_state(claim, lock).await?).into_response())
}

async fn unlock_state(
    State(app): State<App>,
    Holder(claim): Holder,
    Body(lock): Body<Option<StateLock>>,
) -> Answer<StatusCode> {
    app.engine.unlock_state(claim, lock).await?;
    Ok(StatusCode::NO_CONTENT)
}
