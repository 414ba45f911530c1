//! The catalogue: applied document by document, looked at by kind.

use axum::{Json, body::Bytes, extract::State, http::StatusCode};
use conductor_api::types::{
    Application, Applied, ApplyRequest, Environment, Organisation, Page, Pool, Problem, Rule, Template,
};
use conductor_engine::Role;

use crate::{
    App,
    access::{Admin, Caller, Decider},
    problem::{Answer, At, Body},
};

fn whole<T>(items: Vec<T>) -> Json<Page<T>> {
    Json(Page { items, next_cursor: None })
}

/// Applies one document of any kind; the same document twice changes nothing.
#[utoipa::path(post, path = "/catalog", tag = "catalogue", request_body = ApplyRequest,
    responses((status = 200, body = Applied), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn apply(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(request): Body<ApplyRequest>,
) -> Answer<Json<Applied>> {
    app.engine.allow_apply(&caller, &request.document)?;
    Ok(Json(app.engine.apply(request, &caller.name).await?))
}

/// Keeps a template's packed files under their digest.
#[utoipa::path(put, path = "/blobs/{digest}", tag = "catalogue", params(("digest" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses((status = 204)))]
pub async fn keep_blob(
    State(app): State<App>,
    _: Admin,
    At(digest): At<String>,
    body: Bytes,
) -> Answer<StatusCode> {
    app.engine.keep_blob(&digest, body.to_vec()).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(get, path = "/organisations", tag = "catalogue", responses((status = 200, body = Page<Organisation>)))]
pub async fn organisations(State(app): State<App>, _: Caller) -> Answer<Json<Page<Organisation>>> {
    Ok(whole(app.engine.organisations().await?))
}

#[utoipa::path(get, path = "/environments", tag = "catalogue", responses((status = 200, body = Page<Environment>)))]
pub async fn environments(State(app): State<App>, _: Caller) -> Answer<Json<Page<Environment>>> {
    Ok(whole(app.engine.environments().await?))
}

#[utoipa::path(get, path = "/applications", tag = "catalogue", responses((status = 200, body = Page<Application>)))]
pub async fn applications(State(app): State<App>, _: Caller) -> Answer<Json<Page<Application>>> {
    Ok(whole(app.engine.applications().await?))
}

#[utoipa::path(get, path = "/templates", tag = "catalogue", responses((status = 200, body = Page<Template>)))]
pub async fn templates(State(app): State<App>, _: Caller) -> Answer<Json<Page<Template>>> {
    Ok(whole(app.engine.templates().await?))
}

#[utoipa::path(get, path = "/rules", tag = "catalogue", responses((status = 200, body = Page<Rule>)))]
pub async fn rules(State(app): State<App>, _: Caller) -> Answer<Json<Page<Rule>>> {
    Ok(whole(app.engine.rules().await?))
}

#[utoipa::path(delete, path = "/rules/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete_rule(
    State(app): State<App>,
    Admin(caller): Admin,
    At(name): At<String>,
) -> Answer<StatusCode> {
    app.engine.delete_rule(&name, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[utoipa::path(get, path = "/pools", tag = "catalogue", responses((status = 200, body = Page<Pool>)))]
pub async fn pools(State(app): State<App>, _: Caller) -> Answer<Json<Page<Pool>>> {
    Ok(Json(app.engine.pools().await?))
}

#[utoipa::path(get, path = "/pools/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 200, body = Pool), (status = 404, body = Problem)))]
pub async fn pool(State(app): State<App>, _: Caller, At(name): At<String>) -> Answer<Json<Pool>> {
    Ok(Json(app.engine.pool(&name).await?))
}

/// Ready members are destroyed; claimed ones stay with those who have them.
#[utoipa::path(delete, path = "/pools/{name}", tag = "catalogue", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete_pool(
    State(app): State<App>,
    Decider(caller): Decider,
    At(name): At<String>,
) -> Answer<StatusCode> {
    if !caller.may_everywhere(Role::Admin) {
        let pool = app.engine.pool(&name).await?;
        caller.needs(Role::Admin, Some(&pool.environment), None)?;
    }
    app.engine.delete_pool(&name, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
