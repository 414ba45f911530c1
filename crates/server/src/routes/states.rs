//! Terraform's state: the versions of a resource's own, and terraform's HTTP protocol for people's own workspaces.

use axum::{
    Json, Router,
    body::{Bytes, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use conductor_api::{
    state_protocol::{LARGEST_STATE, StateRequest, answer_state},
    types::{Page, Problem, StateDiff, StateRollback, StateVersion},
};
use conductor_domain::{ids::ResourceId, lifecycle::ErrorCode};
use conductor_engine::Role;

use crate::{
    App,
    access::{Caller, Decider, StateCaller},
    problem::{Answer, At, Body, Failed},
};

/// Every version of a resource's state, newest first, without what is in it.
#[utoipa::path(get, path = "/resources/{id}/states", tag = "states", params(("id" = String, Path)),
    responses((status = 200, body = Page<StateVersion>), (status = 404, body = Problem)))]
pub async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
) -> Answer<Json<Page<StateVersion>>> {
    app.engine.allow_resource(&caller, id, Role::Read).await?;
    Ok(Json(Page { items: app.engine.states(id).await?, next_cursor: None }))
}

/// A version as terraform wrote it, secrets and all.
#[utoipa::path(get, path = "/resources/{id}/states/{number}", tag = "states",
    params(("id" = String, Path), ("number" = i64, Path)),
    responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<App>,
    Caller(caller): Caller,
    At((id, number)): At<(ResourceId, i64)>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resource(&caller, id, Role::Admin).await?;
    let body: Bytes = app.engine.state(id, number, &caller.name).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body))
}

/// Resources, attributes and outputs that differ between two versions; sensitive values are masked.
#[utoipa::path(get, path = "/resources/{id}/states/{a}/diff/{b}", tag = "states",
    params(("id" = String, Path), ("a" = i64, Path), ("b" = i64, Path)),
    responses((status = 200, body = StateDiff), (status = 404, body = Problem)))]
pub async fn diff(
    State(app): State<App>,
    Caller(caller): Caller,
    At((id, a, b)): At<(ResourceId, i64, i64)>,
) -> Answer<Json<StateDiff>> {
    app.engine.allow_resource(&caller, id, Role::Write).await?;
    Ok(Json(app.engine.diff_states(id, a, b).await?))
}

/// Takes up an old version's content again, as a new version.
#[utoipa::path(post, path = "/resources/{id}/states/rollback", tag = "states", params(("id" = String, Path)),
    request_body = StateRollback,
    responses((status = 201, body = StateVersion), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn roll_back(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ResourceId>,
    Body(request): Body<StateRollback>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resource(&caller, id, Role::Admin).await?;
    let version = app.engine.roll_back_state(id, request.number, &caller.name).await?;
    Ok((StatusCode::CREATED, Json(version)))
}

/// Takes the lock away from whoever holds it.
#[utoipa::path(delete, path = "/resources/{id}/states/lock", tag = "states", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn unlock(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ResourceId>,
) -> Answer<StatusCode> {
    app.engine.allow_resource(&caller, id, Role::Admin).await?;
    app.engine.unlock_state_by_force(id, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Terraform's own protocol: not in the OpenAPI document, which knows neither LOCK nor UNLOCK.
pub fn protocol() -> Router<App> {
    Router::new().route("/{*name}", any(serve))
}

async fn serve(
    State(app): State<App>,
    StateCaller(caller): StateCaller,
    At(name): At<String>,
    request: Request,
) -> Answer<Response> {
    let workspace = app.engine.workspace(&name, caller)?;
    let (head, body) = request.into_parts();
    let body = to_bytes(body, LARGEST_STATE).await.map_err(|_| {
        let detail = format!("a state may have {} MiB", LARGEST_STATE >> 20);
        Failed::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::Invalid, detail)
    })?;
    let reply = answer_state(
        &workspace,
        StateRequest {
            method: head.method.as_str(),
            query: head.uri.query().unwrap_or_default(),
            content_md5: head.headers.get("content-md5").and_then(|value| value.to_str().ok()),
            body,
        },
    )
    .await;
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Ok((status, reply.body).into_response())
}
