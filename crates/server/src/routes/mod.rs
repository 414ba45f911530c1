//! Every public route, by what it is about.

mod alerts;
mod audit;
mod catalogue;
mod deployments;
pub mod health;
mod hooks;
pub mod identity;
mod integrations;
mod life;
mod objects;
pub mod states;
mod tokens;
pub mod worker;

use axum::extract::DefaultBodyLimit;
use conductor_engine::{Principal, Query, Sight};
use serde::Deserialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    App,
    problem::{Answer, Failed},
};

/// A Score file of 10 MB inside JSON, with room for escapes.
const DOCUMENT_LIMIT: usize = 24 * 1024 * 1024;
/// A template's packed files.
const FILES_LIMIT: usize = 96 * 1024 * 1024;

pub fn public() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(deployments::create, deployments::list))
        .routes(routes!(deployments::plan))
        .routes(routes!(deployments::destroy))
        .routes(routes!(deployments::get))
        .routes(routes!(deployments::cancel))
        .routes(routes!(deployments::retry))
        .routes(routes!(deployments::logs))
        .routes(routes!(deployments::events))
        .routes(routes!(objects::resources, life::make))
        .routes(routes!(objects::resource, life::describe, life::delete))
        .routes(routes!(life::register))
        .routes(routes!(life::promote))
        .routes(routes!(life::redeploy))
        .routes(routes!(life::upgrade))
        .routes(routes!(life::destroy))
        .routes(routes!(life::recreate))
        .routes(routes!(life::retry))
        .routes(routes!(life::protect))
        .routes(routes!(life::unprotect))
        .routes(routes!(life::approvals))
        .routes(routes!(life::approval))
        .routes(routes!(life::approve))
        .routes(routes!(life::reject))
        .routes(routes!(life::propose))
        .routes(routes!(life::proposals))
        .routes(routes!(life::proposal, life::edit_proposal))
        .routes(routes!(life::try_proposal))
        .routes(routes!(life::submit_proposal))
        .routes(routes!(life::merge_proposal))
        .routes(routes!(life::discard_proposal))
        .routes(routes!(life::revisions))
        .routes(routes!(life::revision_diff))
        .routes(routes!(life::roll_back))
        .routes(routes!(life::check_drift))
        .routes(routes!(life::drifts))
        .routes(routes!(life::repair_drift))
        .routes(routes!(life::adopt_drift))
        .routes(routes!(life::ignore_drift))
        .routes(routes!(objects::add_consumer))
        .routes(routes!(objects::remove_consumer))
        .routes(routes!(objects::undelete))
        .routes(routes!(states::list))
        .routes(routes!(states::get))
        .routes(routes!(states::diff))
        .routes(routes!(states::roll_back))
        .routes(routes!(states::unlock))
        .routes(routes!(objects::operations))
        .routes(routes!(objects::operation))
        .routes(routes!(objects::cancel_operation))
        .routes(routes!(objects::retry_operation))
        .routes(routes!(objects::outputs))
        .routes(routes!(objects::workers))
        .routes(routes!(objects::list_events))
        .routes(routes!(audit::list))
        .routes(routes!(audit::verify, audit::verify_export))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::grant, tokens::take_grant))
        .routes(routes!(hooks::git))
        .routes(routes!(alerts::list))
        .routes(routes!(alerts::silence))
        .routes(routes!(catalogue::apply))
        .routes(routes!(catalogue::organisations))
        .routes(routes!(catalogue::environments))
        .routes(routes!(catalogue::applications))
        .routes(routes!(catalogue::templates))
        .routes(routes!(catalogue::rules))
        .routes(routes!(catalogue::delete_rule))
        .routes(routes!(integrations::list))
        .routes(routes!(integrations::get, integrations::delete))
        .routes(routes!(integrations::test))
        .routes(routes!(catalogue::pools))
        .routes(routes!(catalogue::pool, catalogue::delete_pool))
        .layer(DefaultBodyLimit::max(DOCUMENT_LIMIT))
        .merge(
            OpenApiRouter::new()
                .routes(routes!(catalogue::keep_blob))
                .layer(DefaultBodyLimit::max(FILES_LIMIT)),
        )
}

/// The filters every list takes.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    env: Option<String>,
    app: Option<String>,
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    class: Option<String>,
    phase: Option<String>,
    status: Option<String>,
    template: Option<String>,
    deployment: Option<String>,
    resource: Option<String>,
    owner: Option<String>,
    team: Option<String>,
    /// `k=v`, several with commas between them.
    label: Option<String>,
    limit: Option<i64>,
    cursor: Option<String>,
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: Option<&String>) -> Answer<Option<T>> {
    text.map(|text| text.parse()).transpose().map_err(|error: T::Err| {
        Failed::new(
            axum::http::StatusCode::BAD_REQUEST,
            conductor_domain::lifecycle::ErrorCode::Invalid,
            error.to_string(),
        )
    })
}

fn labels(text: Option<&str>) -> Answer<Vec<(String, String)>> {
    let pairs = text.unwrap_or_default().split(',').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    };
    let read: Option<Vec<_>> = pairs.map(pair).collect();
    read.ok_or_else(|| {
        let detail = "a label is written like key=value";
        let code = conductor_domain::lifecycle::ErrorCode::Invalid;
        Failed::new(axum::http::StatusCode::BAD_REQUEST, code, detail)
    })
}

impl TryFrom<ListQuery> for Query {
    type Error = Failed;

    fn try_from(query: ListQuery) -> Answer<Self> {
        Ok(Self {
            phase: parsed(query.phase.as_ref())?,
            deployment: parsed(query.deployment.as_ref())?,
            resource: parsed(query.resource.as_ref())?,
            environment: query.env,
            application: query.app,
            kind: query.kind,
            class: query.class,
            status: query.status,
            template: query.template,
            owner: query.owner,
            team: query.team,
            labels: labels(query.label.as_deref())?,
            limit: query.limit,
            cursor: query.cursor,
            sight: Sight::Everything,
        })
    }
}

impl ListQuery {
    /// Narrowed to what somebody may see.
    fn seen_by(self, caller: &Principal) -> Answer<Query> {
        Ok(Query { sight: caller.sight(), ..self.try_into()? })
    }
}
