//! What others need to believe this server's identity tokens. Open to everybody: it is public by its nature.

use axum::{Json, Router, extract::State, http::StatusCode, routing::get};
use conductor_domain::lifecycle::ErrorCode;
use serde_json::Value;

use crate::{
    App,
    problem::{Answer, Failed},
};

pub fn router() -> Router<App> {
    Router::new()
        .route("/.well-known/openid-configuration", get(configuration))
        .route("/.well-known/jwks.json", get(keys))
}

fn unset() -> Failed {
    let detail = "this server issues no identity tokens: CONDUCTOR_PUBLIC_URL is not set";
    Failed::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, detail)
}

async fn configuration(State(app): State<App>) -> Answer<Json<Value>> {
    app.engine.openid_configuration().map(Json).ok_or_else(unset)
}

async fn keys(State(app): State<App>) -> Answer<Json<Value>> {
    app.engine.issuer().ok_or_else(unset)?;
    Ok(Json(app.engine.signing_keys().await?))
}
