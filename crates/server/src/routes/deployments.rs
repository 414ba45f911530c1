//! Deployments: make, look, follow, cancel, retry.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event as SseEvent, KeepAlive, Sse},
    },
};
use conductor_api::types::{
    CancelRequest, Deployment, DeploymentRequest, DestroyRequest, LogPage, Page, Problem,
};
use conductor_domain::ids::ChangeId;
use conductor_engine::{LogQuery, Role};
use serde::Deserialize;

use super::{ListQuery, parsed};
use crate::{
    App,
    access::{Caller, Decider},
    problem::{Answer, Ask, At, Body},
};

/// A request waits at most this long for something to happen.
const LONGEST_WAIT: u64 = 60_000;

/// Deploys a Score file: planned at once, carried out by workers.
#[utoipa::path(post, path = "/deployments", tag = "deployments", request_body = DeploymentRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "The same key and body give the same deployment")),
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn create(
    State(app): State<App>,
    Caller(caller): Caller,
    headers: HeaderMap,
    Body(request): Body<DeploymentRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_deployment(&caller, &request, Role::Write).await?;
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let deployment = app.engine.deploy(request, &caller.name, key).await?;
    Ok((StatusCode::ACCEPTED, Json(deployment)))
}

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct PlanQuery {
    /// Also ask the managers, terraform with its own diff among them: the answer has an `id` to wait for.
    deep: bool,
}

/// What a deployment would do, and why; changes nothing.
#[utoipa::path(post, path = "/plans", tag = "deployments", params(PlanQuery), request_body = DeploymentRequest,
    responses((status = 200, body = Deployment), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn plan(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<PlanQuery>,
    Body(request): Body<DeploymentRequest>,
) -> Answer<Json<Deployment>> {
    if query.deep {
        // Workers are kept busy by it, with what they may see.
        app.engine.allow_deployment(&caller, &request, Role::Write).await?;
        return Ok(Json(app.engine.plan_deep(request, &caller.name).await?));
    }
    app.engine.allow_deployment(&caller, &request, Role::Read).await?;
    Ok(Json(app.engine.plan(request).await?))
}

/// Takes an application out of an environment, or tells what would go.
#[utoipa::path(post, path = "/destroys", tag = "deployments", request_body = DestroyRequest,
    responses((status = 202, body = Deployment), (status = 404, body = Problem)))]
pub async fn destroy(
    State(app): State<App>,
    Decider(caller): Decider,
    headers: HeaderMap,
    Body(request): Body<DestroyRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_destruction(&caller, &request).await?;
    let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    Ok((StatusCode::ACCEPTED, Json(app.engine.destroy(request, &caller.name, key).await?)))
}

#[utoipa::path(get, path = "/deployments", tag = "deployments", params(ListQuery),
    responses((status = 200, body = Page<Deployment>)))]
pub async fn list(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<ListQuery>,
) -> Answer<Json<Page<Deployment>>> {
    Ok(Json(app.engine.deployments(query.seen_by(&caller)?).await?))
}

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct WaitQuery {
    /// Milliseconds to wait for it to move on from `seen`.
    wait: u64,
    /// The `updatedAt` that is known already.
    seen: Option<String>,
}

#[utoipa::path(get, path = "/deployments/{id}", tag = "deployments", params(("id" = String, Path), WaitQuery),
    responses((status = 200, body = Deployment), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ChangeId>,
    Ask(query): Ask<WaitQuery>,
) -> Answer<Json<Deployment>> {
    app.engine.allow_change(&caller, id, Role::Read).await?;
    let wait = Duration::from_millis(query.wait.min(LONGEST_WAIT));
    Ok(Json(app.engine.await_deployment(id, query.seen.as_deref(), wait).await?))
}

/// Stops what has not started and tells what runs to end.
#[utoipa::path(post, path = "/deployments/{id}/cancel", tag = "deployments", params(("id" = String, Path)),
    request_body = CancelRequest,
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn cancel(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ChangeId>,
    Body(request): Body<CancelRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_change(&caller, id, Role::Write).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.cancel(id, request.rollback, &caller.name).await?)))
}

/// Plans and carries out a failed or cancelled deployment again.
#[utoipa::path(post, path = "/deployments/{id}/retry", tag = "deployments", params(("id" = String, Path)),
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn retry(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ChangeId>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_retry(&caller, id).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.retry(id, &caller.name).await?)))
}

#[derive(Clone, Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct LogsQuery {
    /// Lines after this sequence number.
    after: i64,
    /// Milliseconds to wait for more.
    wait: u64,
    operation: Option<String>,
    resource: Option<String>,
    /// `debug`, `info`, `warn` or `error`: this and worse.
    level: Option<String>,
    /// RFC 3339.
    since: Option<String>,
}

impl LogsQuery {
    fn read(&self) -> Answer<LogQuery> {
        let level = self.level.clone().map(serde_json::Value::String);
        let since = self.since.clone().map(serde_json::Value::String);
        let invalid = |error: serde_json::Error| {
            use conductor_domain::lifecycle::ErrorCode;
            crate::problem::Failed::new(StatusCode::BAD_REQUEST, ErrorCode::Invalid, error.to_string())
        };
        Ok(LogQuery {
            after: self.after,
            operation: parsed(self.operation.as_ref())?,
            resource: parsed(self.resource.as_ref())?,
            level: level.map(serde_json::from_value).transpose().map_err(invalid)?,
            since: since
                .map(serde_json::from_value::<conductor_api::types::Time>)
                .transpose()
                .map_err(invalid)?
                .map(|time| time.0),
        })
    }
}

/// Log lines as pages, or as server-sent events (`Accept: text/event-stream`), resumable by `Last-Event-ID`.
#[utoipa::path(get, path = "/deployments/{id}/logs", tag = "deployments", params(("id" = String, Path), LogsQuery),
    responses((status = 200, body = LogPage), (status = 404, body = Problem)))]
pub async fn logs(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ChangeId>,
    Ask(query): Ask<LogsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    app.engine.allow_change(&caller, id, Role::Read).await?;
    let mut wanted = query.read()?;
    let text = |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
    if !text(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream")) {
        let wait = Duration::from_millis(query.wait.min(LONGEST_WAIT));
        return Ok(Json(app.engine.logs(id, wanted, wait).await?).into_response());
    }
    if let Some(last) =
        headers.get("last-event-id").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok())
    {
        wanted.after = last;
    }
    // A deployment that is not there is told before the stream begins.
    app.engine.deployment(id).await?;
    // Read page by page from the database at the client's own speed: a slow one loses nothing.
    let stream = futures_util::stream::unfold(Some(wanted), move |state| {
        let app = app.clone();
        async move {
            let mut query = state?;
            let page = app.engine.logs(id, query.clone(), Duration::from_secs(15)).await.ok()?;
            let lines = page.items.iter().map(|line| {
                let data = serde_json::to_string(line).unwrap_or_default();
                Ok::<_, Infallible>(SseEvent::default().id(line.seq.to_string()).event("log").data(data))
            });
            let mut events: Vec<_> = lines.collect();
            query.after = page.next_after;
            if page.done {
                events.push(Ok(SseEvent::default().event("end").data("{}")));
                return Some((futures_util::stream::iter(events), None));
            }
            Some((futures_util::stream::iter(events), Some(query)))
        }
    });
    let events = futures_util::StreamExt::flatten(stream);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))).into_response())
}

/// The deployment each time it moves, as server-sent events, until it is over.
#[utoipa::path(get, path = "/deployments/{id}/events", tag = "deployments", params(("id" = String, Path)),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = 404, body = Problem)))]
pub async fn events(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ChangeId>,
) -> Answer<Response> {
    app.engine.allow_change(&caller, id, Role::Read).await?;
    app.engine.deployment(id).await?;
    let stream = futures_util::stream::unfold(Some(None::<String>), move |state| {
        let app = app.clone();
        async move {
            let mut seen = state?;
            loop {
                let wait = Duration::from_secs(15);
                let deployment = app.engine.await_deployment(id, seen.as_deref(), wait).await.ok()?;
                let stamp = deployment.updated_at.map(|at| at.to_string());
                if stamp == seen && !deployment.is_over() {
                    continue;
                }
                let event = SseEvent::default()
                    .event(deployment.status.clone())
                    .data(serde_json::to_string(&deployment).unwrap_or_default());
                seen = stamp;
                let next = if deployment.is_over() { None } else { Some(seen) };
                return Some((Ok::<_, Infallible>(event), next));
            }
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(Duration::from_secs(10))).into_response())
}
