//! Alerts: how they stand, and quiet where somebody knows already.

use std::time::Duration;

use axum::{Json, extract::State};
use conductor_api::types::{Alert, Page, Problem, SilenceRequest};

use crate::{
    App,
    access::{Reader, Writer},
    problem::{Answer, At, Body},
};

/// Every alert, and whether it fires.
#[utoipa::path(get, path = "/alerts", tag = "alerts", responses((status = 200, body = Page<Alert>)))]
pub async fn list(State(app): State<App>, _: Reader) -> Answer<Json<Page<Alert>>> {
    Ok(Json(Page { items: app.engine.alerts().await?, next_cursor: None }))
}

/// Tells nobody of an alert for a while.
#[utoipa::path(post, path = "/alerts/{name}/silence", tag = "alerts", params(("name" = String, Path)),
    request_body = SilenceRequest,
    responses((status = 200, body = Alert), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn silence(
    State(app): State<App>,
    Writer(caller): Writer,
    At(name): At<String>,
    Body(request): Body<SilenceRequest>,
) -> Answer<Json<Alert>> {
    let length = (request.seconds > 0).then(|| Duration::from_secs(request.seconds));
    Ok(Json(app.engine.silence_alert(&name, length, &caller.name).await?))
}
