//! The audit trail: read in order, and checked. It is the organisation's, and takes `read` on it.

use axum::{Json, extract::State};
use conductor_api::types::{AuditEntry, AuditExport, AuditReport, Page, Problem, Time};
use conductor_engine::AuditQuery;
use serde::Deserialize;

use super::parsed;
use crate::{
    App,
    access::Reader,
    problem::{Answer, Ask, Body},
};

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct TrailQuery {
    /// From its end backwards.
    newest: bool,
    actor: Option<String>,
    /// The kind of event, as in `token.granted`.
    kind: Option<String>,
    deployment: Option<String>,
    resource: Option<String>,
    /// RFC 3339.
    #[param(value_type = Option<String>)]
    since: Option<Time>,
    cursor: Option<i64>,
    limit: Option<usize>,
}

/// Every event in the order in which it was sealed, oldest first unless asked otherwise.
#[utoipa::path(get, path = "/audit", tag = "events", params(TrailQuery),
    responses((status = 200, body = Page<AuditEntry>)))]
pub async fn list(
    State(app): State<App>,
    _: Reader,
    Ask(query): Ask<TrailQuery>,
) -> Answer<Json<Page<AuditEntry>>> {
    let query = AuditQuery {
        newest_first: query.newest,
        deployment: parsed(query.deployment.as_ref())?,
        resource: parsed(query.resource.as_ref())?,
        actor: query.actor,
        kind: query.kind,
        since: query.since.map(|Time(at)| at),
        cursor: query.cursor,
        limit: query.limit,
    };
    Ok(Json(app.engine.audit(query).await?))
}

/// Reads the whole chain and says whether it is what was sealed.
#[utoipa::path(get, path = "/audit/verify", tag = "events", responses((status = 200, body = AuditReport)))]
pub async fn verify(State(app): State<App>, _: Reader) -> Answer<Json<AuditReport>> {
    Ok(Json(app.engine.verify_audit().await?))
}

/// Says whether exported entries are what was sealed.
#[utoipa::path(post, path = "/audit/verify", tag = "events", request_body = AuditExport,
    responses((status = 200, body = AuditReport), (status = 422, body = Problem)))]
pub async fn verify_export(
    State(app): State<App>,
    _: Reader,
    Body(export): Body<AuditExport>,
) -> Answer<Json<AuditReport>> {
    Ok(Json(app.engine.verify_export(export.entries).await?))
}
