//! Resources, operations, outputs, workers, events.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use conductor_api::types::{
    Consumer, ConsumerRequest, Deployment, Event, Operation, OutputsByRequirement, Page, Problem, Resource,
    WorkerInfo,
};
use conductor_domain::ids::{OperationId, ResourceId};
use conductor_engine::Role;
use serde::Deserialize;

use super::ListQuery;
use crate::{
    App,
    access::Caller,
    problem::{Answer, Ask, At, Body},
};

fn whole<T>(items: Vec<T>) -> Json<Page<T>> {
    Json(Page { items, next_cursor: None })
}

#[utoipa::path(get, path = "/resources", tag = "resources", params(ListQuery),
    responses((status = 200, body = Page<Resource>), (status = 404, body = Problem)))]
pub async fn resources(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<ListQuery>,
) -> Answer<Json<Page<Resource>>> {
    Ok(Json(app.engine.resources(query.seen_by(&caller)?).await?))
}

#[utoipa::path(get, path = "/resources/{id}", tag = "resources", params(("id" = String, Path)),
    responses((status = 200, body = Resource), (status = 404, body = Problem)))]
pub async fn resource(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
) -> Answer<Json<Resource>> {
    app.engine.allow_resource(&caller, id, Role::Read).await?;
    Ok(Json(app.engine.resource(id).await?))
}

/// An application uses a resource, without a Score file saying so.
#[utoipa::path(post, path = "/resources/{id}/consumers", tag = "resources", params(("id" = String, Path)),
    request_body = ConsumerRequest,
    responses((status = 201, body = Consumer), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn add_consumer(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
    Body(request): Body<ConsumerRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_use(&caller, id, request.environment.as_deref(), &request.application).await?;
    Ok((StatusCode::CREATED, Json(app.engine.add_consumer(id, request, &caller.name).await?)))
}

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ConsumerQuery {
    environment: Option<String>,
    requirement: Option<String>,
}

/// An application stops using a resource; the last one out has it destroyed.
#[utoipa::path(delete, path = "/resources/{id}/consumers/{application}", tag = "resources",
    params(("id" = String, Path), ("application" = String, Path), ConsumerQuery),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn remove_consumer(
    State(app): State<App>,
    Caller(caller): Caller,
    At((id, application)): At<(ResourceId, String)>,
    Ask(query): Ask<ConsumerQuery>,
) -> Answer<StatusCode> {
    let (environment, requirement) = (query.environment.as_deref(), query.requirement.as_deref());
    app.engine.allow_release(&caller, id, environment, &application).await?;
    app.engine.remove_consumer(id, &application, environment, requirement, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes back a destruction that is still in its grace period.
#[utoipa::path(post, path = "/resources/{id}/undelete", tag = "resources", params(("id" = String, Path)),
    responses((status = 200, body = Resource), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn undelete(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
) -> Answer<Json<Resource>> {
    app.engine.allow_resource(&caller, id, Role::Write).await?;
    app.engine.undelete(id, &caller.name).await?;
    Ok(Json(app.engine.resource(id).await?))
}

#[utoipa::path(get, path = "/operations", tag = "operations", params(ListQuery),
    responses((status = 200, body = Page<Operation>)))]
pub async fn operations(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<ListQuery>,
) -> Answer<Json<Page<Operation>>> {
    Ok(Json(app.engine.operations(query.seen_by(&caller)?).await?))
}

#[utoipa::path(get, path = "/operations/{id}", tag = "operations", params(("id" = String, Path)),
    responses((status = 200, body = Operation), (status = 404, body = Problem)))]
pub async fn operation(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<OperationId>,
) -> Answer<Json<Operation>> {
    app.engine.allow_operation(&caller, id).await?;
    Ok(Json(app.engine.operation(id).await?))
}

/// Stops an operation, and with it the change it belongs to.
#[utoipa::path(post, path = "/operations/{id}/cancel", tag = "operations", params(("id" = String, Path)),
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn cancel_operation(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<OperationId>,
) -> Answer<impl IntoResponse> {
    let change = app.engine.seen_change_of(&caller, id).await?;
    app.engine.allow_change(&caller, change, Role::Write).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.cancel(change, false, &caller.name).await?)))
}

/// Plans the change of a failed operation again.
#[utoipa::path(post, path = "/operations/{id}/retry", tag = "operations", params(("id" = String, Path)),
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn retry_operation(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<OperationId>,
) -> Answer<impl IntoResponse> {
    let change = app.engine.seen_change_of(&caller, id).await?;
    app.engine.allow_retry(&caller, change).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.retry(change, &caller.name).await?)))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OutputsQuery {
    app: String,
    env: String,
    #[serde(default)]
    reveal: bool,
}

/// What an application got, by requirement. Sensitive values need `reveal=true` and the right to deploy.
#[utoipa::path(get, path = "/outputs", tag = "resources", params(OutputsQuery),
    responses((status = 200, body = Object), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn outputs(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<OutputsQuery>,
) -> Answer<Json<OutputsByRequirement>> {
    let wanted = if query.reveal { Role::Write } else { Role::Read };
    caller.needs(wanted, Some(&query.env), Some(&query.app))?;
    Ok(Json(app.engine.outputs(&query.app, &query.env, query.reveal).await?))
}

#[utoipa::path(get, path = "/workers", tag = "workers", responses((status = 200, body = Page<WorkerInfo>)))]
pub async fn workers(State(app): State<App>, _: Caller) -> Answer<Json<Page<WorkerInfo>>> {
    Ok(whole(app.engine.workers().await?))
}

#[utoipa::path(get, path = "/events", tag = "events", params(ListQuery), responses((status = 200, body = Page<Event>)))]
pub async fn list_events(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<ListQuery>,
) -> Answer<Json<Page<Event>>> {
    Ok(Json(app.engine.events(query.seen_by(&caller)?).await?))
}
