//! Tokens, and what whoever holds them may do: the organisation's administrators decide, as of now.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use conductor_api::types::{Grant, Page, Problem, Token, TokenRequest};
use conductor_domain::ids::TokenId;
use serde::Deserialize;

use crate::{
    App,
    access::{Admin, AdminNow},
    problem::{Answer, Ask, At, Body},
};

/// Makes a token and shows it, once.
#[utoipa::path(post, path = "/tokens", tag = "tokens", request_body = TokenRequest,
    responses((status = 201, body = Token), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn create(
    State(app): State<App>,
    AdminNow(caller): AdminNow,
    Body(request): Body<TokenRequest>,
) -> Answer<impl IntoResponse> {
    Ok((StatusCode::CREATED, Json(app.engine.create_token(request, &caller.name).await?)))
}

#[utoipa::path(get, path = "/tokens", tag = "tokens", responses((status = 200, body = Page<Token>)))]
pub async fn list(State(app): State<App>, _: Admin) -> Answer<Json<Page<Token>>> {
    Ok(Json(Page { items: app.engine.tokens().await?, next_cursor: None }))
}

#[utoipa::path(delete, path = "/tokens/{id}", tag = "tokens", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn revoke(
    State(app): State<App>,
    AdminNow(caller): AdminNow,
    At(id): At<TokenId>,
) -> Answer<StatusCode> {
    app.engine.revoke_token(id, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives whoever holds a token a role in a place, instead of the one held there before.
#[utoipa::path(post, path = "/tokens/{id}/grants", tag = "tokens", params(("id" = String, Path)), request_body = Grant,
    responses((status = 200, body = Token), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn grant(
    State(app): State<App>,
    AdminNow(caller): AdminNow,
    At(id): At<TokenId>,
    Body(grant): Body<Grant>,
) -> Answer<Json<Token>> {
    Ok(Json(app.engine.grant(id, grant, &caller.name).await?))
}

/// A place that something was granted in; without either, the organisation.
#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct GrantedIn {
    env: Option<String>,
    app: Option<String>,
}

/// Takes away what was granted in exactly this place.
#[utoipa::path(delete, path = "/tokens/{id}/grants", tag = "tokens", params(("id" = String, Path), GrantedIn),
    responses((status = 200, body = Token), (status = 404, body = Problem)))]
pub async fn take_grant(
    State(app): State<App>,
    AdminNow(caller): AdminNow,
    At(id): At<TokenId>,
    Ask(place): Ask<GrantedIn>,
) -> Answer<Json<Token>> {
    Ok(Json(app.engine.take_grant(id, place.env, place.app, &caller.name).await?))
}
