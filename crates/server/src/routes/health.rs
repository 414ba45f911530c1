//! Whether it lives, whether it can work, and how it is doing.

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use conductor_domain::lifecycle::ErrorCode;

use crate::{
    App,
    access::Reader,
    metrics,
    problem::{Answer, Failed},
};

pub fn router() -> Router<App> {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(show_metrics))
}

async fn ready(State(app): State<App>) -> Answer<&'static str> {
    match app.engine.ready().await {
        Ok(()) => Ok("ready"),
        Err(why) => Err(Failed::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Transient, why)),
    }
}

async fn show_metrics(State(app): State<App>, _: Reader) -> Answer<impl IntoResponse> {
    let text = metrics::render(&app.engine.metrics().await);
    Ok(([("content-type", "text/plain; version=0.0.4")], text))
}
