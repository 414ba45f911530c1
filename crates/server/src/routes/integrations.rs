//! Integrations: looked at without their values, tried, taken away.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use conductor_api::types::{Deployment, Integration, Page, Problem};
use conductor_engine::Role;
use serde::Deserialize;

use crate::{
    App,
    access::{Admin, Caller},
    problem::{Answer, Ask, At},
};

/// Which one of a name: an environment's own, or without this the organisation's.
#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct Which {
    env: Option<String>,
}

#[utoipa::path(get, path = "/integrations", tag = "catalogue", responses((status = 200, body = Page<Integration>)))]
pub async fn list(State(app): State<App>, _: Caller) -> Answer<Json<Page<Integration>>> {
    Ok(Json(Page { items: app.engine.integrations().await?, next_cursor: None }))
}

#[utoipa::path(get, path = "/integrations/{name}", tag = "catalogue", params(("name" = String, Path), Which),
    responses((status = 200, body = Integration), (status = 404, body = Problem)))]
pub async fn get(
    State(app): State<App>,
    _: Caller,
    At(name): At<String>,
    Ask(which): Ask<Which>,
) -> Answer<Json<Integration>> {
    Ok(Json(app.engine.integration(&name, which.env.as_deref()).await?))
}

/// A worker runs the integration's test with what the integration gives.
#[utoipa::path(post, path = "/integrations/{name}/test", tag = "catalogue", params(("name" = String, Path), Which),
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn test(
    State(app): State<App>,
    Caller(caller): Caller,
    At(name): At<String>,
    Ask(which): Ask<Which>,
) -> Answer<impl IntoResponse> {
    let integration = app.engine.integration(&name, which.env.as_deref()).await?;
    caller.needs(Role::Write, integration.environment.as_deref(), None)?;
    let change = app.engine.test_integration(&name, which.env.as_deref(), &caller.name).await?;
    Ok((StatusCode::ACCEPTED, Json(change)))
}

#[utoipa::path(delete, path = "/integrations/{name}", tag = "catalogue", params(("name" = String, Path), Which),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete(
    State(app): State<App>,
    Admin(caller): Admin,
    At(name): At<String>,
    Ask(which): Ask<Which>,
) -> Answer<StatusCode> {
    app.engine.delete_integration(&name, which.env.as_deref(), &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
