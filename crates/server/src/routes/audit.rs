//! The audit trail: read in order, and checked.

use axum::{Json, extract::State};
use conductor_api::types::{AuditEntry, AuditReport, Page};
use serde::Deserialize;

use crate::{
    App,
    access::Reader,
    problem::{Answer, Ask},
};

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    cursor: Option<i64>,
    limit: Option<usize>,
}

/// Every event in the order in which it was sealed, oldest first.
#[utoipa::path(get, path = "/audit", tag = "events", params(AuditQuery),
    responses((status = 200, body = Page<AuditEntry>)))]
pub async fn list(
    State(app): State<App>,
    _: Reader,
    Ask(query): Ask<AuditQuery>,
) -> Answer<Json<Page<AuditEntry>>> {
    Ok(Json(app.engine.audit(query.cursor.unwrap_or(0), query.limit.unwrap_or(200)).await?))
}

/// Reads the whole chain and says whether it is what was sealed.
#[utoipa::path(get, path = "/audit/verify", tag = "events", responses((status = 200, body = AuditReport)))]
pub async fn verify(State(app): State<App>, _: Reader) -> Answer<Json<AuditReport>> {
    Ok(Json(app.engine.verify_audit().await?))
}
