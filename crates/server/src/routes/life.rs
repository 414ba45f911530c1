//! Resources by hand, approvals, proposals, revisions, drift.

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use conductor_api::types::{
    Approval, Decision, Deployment, Drift, DriftDecision, DriftRequest, Facts, HandRequest, Handled, Page,
    Problem, Promotion, PromotionRequest, Proposal, ProposalRequest, RegisterRequest, Resource,
    ResourceRequest, Revision, RevisionDiff, SubmitRequest, UpgradeRequest,
};
use conductor_domain::ids::{ApprovalId, ChangeId, ProposalId, ResourceId};
use conductor_engine::Role;
use serde::Deserialize;

use super::{ListQuery, parsed};
use crate::{
    App,
    access::{Caller, Decider},
    problem::{Answer, Ask, At, Body, Failed},
};

/// Makes a resource from a template, for nobody in particular.
#[utoipa::path(post, path = "/resources", tag = "resources", request_body = ResourceRequest,
    responses((status = 202, body = Handled), (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn make(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(request): Body<ResourceRequest>,
) -> Answer<impl IntoResponse> {
    caller.needs(Role::Write, Some(&request.environment), None)?;
    app.engine.allow_resources(&caller, &request.parents, Role::Read).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.make_resource(request, &caller.name).await?)))
}

/// Makes known what somebody else looks after.
#[utoipa::path(post, path = "/registrations", tag = "resources", request_body = RegisterRequest,
    responses((status = 201, body = Handled), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn register(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(request): Body<RegisterRequest>,
) -> Answer<impl IntoResponse> {
    caller.needs(Role::Write, Some(&request.environment), None)?;
    Ok((StatusCode::CREATED, Json(app.engine.register_resource(request, &caller.name).await?)))
}

/// Changes what is said of a resource: owner, team, labels, tags, configs, description.
#[utoipa::path(patch, path = "/resources/{id}", tag = "resources", params(("id" = String, Path)), request_body = Facts,
    responses((status = 200, body = Resource), (status = 404, body = Problem)))]
pub async fn describe(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
    Body(facts): Body<Facts>,
) -> Answer<Json<Resource>> {
    // Who owns it may destroy it.
    let wanted = if facts.owner.is_some() { Role::Admin } else { Role::Write };
    app.engine.allow_resource(&caller, id, wanted).await?;
    app.engine.describe_resource(id, facts, &caller.name).await?;
    Ok(Json(app.engine.resource(id).await?))
}

/// Takes a resource away; whatever needs it is in the way and named.
#[utoipa::path(post, path = "/resources/{id}/destroy", tag = "resources", params(("id" = String, Path)),
    request_body = HandRequest,
    responses((status = 202, body = Handled), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn destroy(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ResourceId>,
    Body(request): Body<HandRequest>,
) -> Answer<impl IntoResponse> {
    match request.dry_run {
        true => app.engine.allow_resource(&caller, id, Role::Read).await?,
        false => app.engine.allow_destroying(&caller, id).await?,
    }
    let handled = app.engine.destroy_resource(id, request.dry_run, &caller.name).await?;
    Ok((StatusCode::ACCEPTED, Json(handled)))
}

/// Makes a destroyed or rejected resource again.
#[utoipa::path(post, path = "/resources/{id}/recreate", tag = "resources", params(("id" = String, Path)),
    request_body = HandRequest,
    responses((status = 202, body = Handled), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn recreate(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
    Body(request): Body<HandRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resource(&caller, id, Role::Write).await?;
    let handled = app.engine.make_again(id, false, request.dry_run, &caller.name).await?;
    Ok((StatusCode::ACCEPTED, Json(handled)))
}

/// Tries the last step of a resource again that failed.
#[utoipa::path(post, path = "/resources/{id}/retry", tag = "resources", params(("id" = String, Path)),
    request_body = HandRequest,
    responses((status = 202, body = Handled), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn retry(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
    Body(request): Body<HandRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_another_try(&caller, id).await?;
    let handled = app.engine.make_again(id, true, request.dry_run, &caller.name).await?;
    Ok((StatusCode::ACCEPTED, Json(handled)))
}

/// Forgets a destroyed resource; the audit trail stays.
#[utoipa::path(delete, path = "/resources/{id}", tag = "resources", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn delete(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ResourceId>,
) -> Answer<StatusCode> {
    app.engine.allow_resource(&caller, id, Role::Admin).await?;
    app.engine.delete_resource(id, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps a resource from being destroyed.
#[utoipa::path(post, path = "/resources/{id}/protect", tag = "resources", params(("id" = String, Path)),
    responses((status = 200, body = Resource), (status = 404, body = Problem)))]
pub async fn protect(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
) -> Answer<Json<Resource>> {
    app.engine.allow_resource(&caller, id, Role::Write).await?;
    app.engine.protect(id, true, &caller.name).await?;
    Ok(Json(app.engine.resource(id).await?))
}

/// Lets a resource be destroyed again.
#[utoipa::path(post, path = "/resources/{id}/unprotect", tag = "resources", params(("id" = String, Path)),
    responses((status = 200, body = Resource), (status = 404, body = Problem)))]
pub async fn unprotect(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ResourceId>,
) -> Answer<Json<Resource>> {
    app.engine.allow_resource(&caller, id, Role::Admin).await?;
    app.engine.protect(id, false, &caller.name).await?;
    Ok(Json(app.engine.resource(id).await?))
}

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    /// Only what the caller may answer.
    mine: bool,
    /// `pending`, `approved`, `rejected`, `expired` or `withdrawn`; all when left out.
    status: Option<String>,
    cursor: Option<String>,
    limit: Option<i64>,
}

#[utoipa::path(get, path = "/approvals", tag = "approvals", params(ApprovalQuery),
    responses((status = 200, body = Page<Approval>)))]
pub async fn approvals(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<ApprovalQuery>,
) -> Answer<Json<Page<Approval>>> {
    let (status, cursor) = (parsed(query.status.as_ref())?, parsed(query.cursor.as_ref())?);
    let (sight, of) = (caller.sight(), query.mine.then_some(caller));
    Ok(Json(app.engine.approvals(status, of, sight, cursor, query.limit.unwrap_or(50)).await?))
}

#[utoipa::path(get, path = "/approvals/{id}", tag = "approvals", params(("id" = String, Path)),
    responses((status = 200, body = Approval), (status = 404, body = Problem)))]
pub async fn approval(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ApprovalId>,
) -> Answer<Json<Approval>> {
    app.engine.allow_approval(&caller, id).await?;
    Ok(Json(app.engine.approval(id).await?))
}

/// Agrees. With the last that has to, what waited goes on.
#[utoipa::path(post, path = "/approvals/{id}/approve", tag = "approvals", params(("id" = String, Path)),
    request_body = Decision,
    responses((status = 200, body = Approval), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub async fn approve(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ApprovalId>,
    Body(decision): Body<Decision>,
) -> Answer<Json<Approval>> {
    app.engine.allow_approval(&caller, id).await?;
    Ok(Json(app.engine.decide(id, true, decision, &caller).await?))
}

/// Says no, and why: what waited is not done.
#[utoipa::path(post, path = "/approvals/{id}/reject", tag = "approvals", params(("id" = String, Path)),
    request_body = Decision,
    responses((status = 200, body = Approval), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub async fn reject(
    State(app): State<App>,
    Decider(caller): Decider,
    At(id): At<ApprovalId>,
    Body(decision): Body<Decision>,
) -> Answer<Json<Approval>> {
    app.engine.allow_approval(&caller, id).await?;
    Ok(Json(app.engine.decide(id, false, decision, &caller).await?))
}

/// Proposes a change of a resource.
#[utoipa::path(post, path = "/resources/{id}/proposals", tag = "proposals", params(("id" = String, Path)),
    request_body = ProposalRequest,
    responses((status = 201, body = Proposal), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn propose(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
    Body(request): Body<serde_json::Value>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resource(&caller, id, Role::Write).await?;
    let request = proposed(request)?;
    Ok((StatusCode::CREATED, Json(app.engine.propose(id, request, &caller.name).await?)))
}

/// What a resource is and where its state is kept cannot be proposed to change.
fn proposed(request: serde_json::Value) -> Answer<ProposalRequest> {
    let fixed = ["name", "template", "storage", "state", "type", "class", "environment"];
    if let Some(key) = fixed.iter().find(|key| request.get(**key).is_some()) {
        let detail = format!("`{key}` never changes; make another resource for that");
        return Err(invalid(detail));
    }
    serde_json::from_value(request).map_err(|error| invalid(error.to_string()))
}

fn invalid(detail: String) -> Failed {
    Failed::new(StatusCode::UNPROCESSABLE_ENTITY, conductor_domain::lifecycle::ErrorCode::Invalid, detail)
}

#[utoipa::path(get, path = "/proposals", tag = "proposals", params(ListQuery),
    responses((status = 200, body = Page<Proposal>)))]
pub async fn proposals(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<ListQuery>,
) -> Answer<Json<Page<Proposal>>> {
    let (of, cursor) = (parsed(query.resource.as_ref())?, parsed(query.cursor.as_ref())?);
    Ok(Json(app.engine.proposals(of, caller.sight(), cursor, query.limit.unwrap_or(50)).await?))
}

#[utoipa::path(get, path = "/proposals/{id}", tag = "proposals", params(("id" = String, Path)),
    responses((status = 200, body = Proposal), (status = 404, body = Problem)))]
pub async fn proposal(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ProposalId>,
) -> Answer<Json<Proposal>> {
    app.engine.allow_proposal(&caller, id, Role::Read).await?;
    Ok(Json(app.engine.proposal(id).await?))
}

/// Changes a proposal that nobody has agreed to yet.
#[utoipa::path(patch, path = "/proposals/{id}", tag = "proposals", params(("id" = String, Path)),
    request_body = ProposalRequest,
    responses((status = 200, body = Proposal), (status = 409, body = Problem), (status = 422, body = Problem)))]
pub async fn edit_proposal(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ProposalId>,
    Body(request): Body<serde_json::Value>,
) -> Answer<Json<Proposal>> {
    app.engine.allow_proposal(&caller, id, Role::Write).await?;
    Ok(Json(app.engine.edit_proposal(id, proposed(request)?, &caller.name).await?))
}

/// What merging would do; changes nothing.
#[utoipa::path(post, path = "/proposals/{id}/dry-run", tag = "proposals", params(("id" = String, Path)),
    responses((status = 200, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn try_proposal(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ProposalId>,
) -> Answer<Json<Deployment>> {
    app.engine.allow_proposal(&caller, id, Role::Write).await?;
    Ok(Json(app.engine.try_proposal(id, &caller.name).await?))
}

/// Asks for agreement where that is needed.
#[utoipa::path(post, path = "/proposals/{id}/submit", tag = "proposals", params(("id" = String, Path)),
    request_body = SubmitRequest,
    responses((status = 200, body = Proposal), (status = 409, body = Problem)))]
pub async fn submit_proposal(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ProposalId>,
    Body(request): Body<SubmitRequest>,
) -> Answer<Json<Proposal>> {
    app.engine.allow_proposal(&caller, id, Role::Write).await?;
    Ok(Json(app.engine.submit_proposal(id, request.auto_merge, &caller.name).await?))
}

/// Carries it out.
#[utoipa::path(post, path = "/proposals/{id}/merge", tag = "proposals", params(("id" = String, Path)),
    responses((status = 202, body = Handled), (status = 409, body = Problem)))]
pub async fn merge_proposal(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ProposalId>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_proposal(&caller, id, Role::Write).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.merge_proposal(id, &caller.name).await?)))
}

/// Drops it, for good.
#[utoipa::path(post, path = "/proposals/{id}/discard", tag = "proposals", params(("id" = String, Path)),
    responses((status = 200, body = Proposal), (status = 409, body = Problem)))]
pub async fn discard_proposal(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ProposalId>,
) -> Answer<Json<Proposal>> {
    app.engine.allow_proposal(&caller, id, Role::Write).await?;
    Ok(Json(app.engine.discard_proposal(id, &caller.name).await?))
}

/// The desired states a resource had, the newest first.
#[utoipa::path(get, path = "/resources/{id}/revisions", tag = "revisions", params(("id" = String, Path)),
    responses((status = 200, body = Page<Revision>), (status = 404, body = Problem)))]
pub async fn revisions(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
) -> Answer<Json<Page<Revision>>> {
    app.engine.allow_resource(&caller, id, Role::Read).await?;
    Ok(Json(Page { items: app.engine.revisions(id).await?, next_cursor: None }))
}

#[utoipa::path(get, path = "/resources/{id}/revisions/{a}/diff/{b}", tag = "revisions",
    params(("id" = String, Path), ("a" = i64, Path), ("b" = i64, Path)),
    responses((status = 200, body = RevisionDiff), (status = 404, body = Problem)))]
pub async fn revision_diff(
    State(app): State<App>,
    Caller(caller): Caller,
    At((id, a, b)): At<(ResourceId, i64, i64)>,
) -> Answer<Json<RevisionDiff>> {
    app.engine.allow_resource(&caller, id, Role::Read).await?;
    Ok(Json(app.engine.revision_diff(id, a, b).await?))
}

/// Brings an earlier desired state back.
#[utoipa::path(post, path = "/resources/{id}/revisions/{number}/rollback", tag = "revisions",
    params(("id" = String, Path), ("number" = i64, Path)), request_body = HandRequest,
    responses((status = 202, body = Handled), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn roll_back(
    State(app): State<App>,
    Caller(caller): Caller,
    At((id, number)): At<(ResourceId, i64)>,
    Body(request): Body<HandRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resource(&caller, id, Role::Write).await?;
    let handled = app.engine.roll_back(id, number, request.dry_run, &caller.name).await?;
    Ok((StatusCode::ACCEPTED, Json(handled)))
}

/// Has workers look whether things are what is on record.
#[utoipa::path(post, path = "/drift/checks", tag = "drift", request_body = DriftRequest,
    responses((status = 202, body = Deployment), (status = 404, body = Problem)))]
pub async fn check_drift(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(request): Body<DriftRequest>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_drift_check(&caller, &request).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.check_drift(request, &caller.name).await?)))
}

#[derive(Deserialize, Default, utoipa::IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub struct DriftQuery {
    env: Option<String>,
    app: Option<String>,
    /// Ids, with commas between them.
    resources: Option<String>,
}

/// What was found not to be what is on record.
#[utoipa::path(get, path = "/drift", tag = "drift", params(DriftQuery), responses((status = 200, body = Page<Drift>)))]
pub async fn drifts(
    State(app): State<App>,
    Caller(caller): Caller,
    Ask(query): Ask<DriftQuery>,
) -> Answer<Json<Page<Drift>>> {
    let ids = query.resources.as_deref().unwrap_or_default().split(',').filter(|id| !id.is_empty());
    let resources =
        ids.map(|id| parsed(Some(&id.to_owned()))).collect::<Answer<Vec<Option<ResourceId>>>>()?;
    let request = DriftRequest {
        environment: query.env,
        application: query.app,
        resources: resources.into_iter().flatten().collect(),
    };
    let mut page = app.engine.drifts(request).await?;
    page.items = app.engine.seen_drifts(&caller, page.items).await?;
    Ok(Json(page))
}

/// Makes them what is on record again.
#[utoipa::path(post, path = "/drift/repair", tag = "drift", request_body = DriftDecision,
    responses((status = 202, body = Vec<Handled>), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn repair_drift(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(decision): Body<DriftDecision>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resources(&caller, &decision.resources, Role::Write).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.repair_drift(decision, &caller.name).await?)))
}

/// What was found becomes what is on record.
#[utoipa::path(post, path = "/drift/adopt", tag = "drift", request_body = DriftDecision,
    responses((status = 202, body = Vec<Handled>), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn adopt_drift(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(decision): Body<DriftDecision>,
) -> Answer<impl IntoResponse> {
    app.engine.allow_resources(&caller, &decision.resources, Role::Write).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.adopt_drift(decision, &caller.name).await?)))
}

/// Lets differences be, until they are others.
#[utoipa::path(post, path = "/drift/ignore", tag = "drift", request_body = DriftDecision,
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn ignore_drift(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(decision): Body<DriftDecision>,
) -> Answer<StatusCode> {
    app.engine.allow_resources(&caller, &decision.resources, Role::Write).await?;
    app.engine.ignore_drift(decision, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deploys to one environment what runs in another.
#[utoipa::path(post, path = "/promotions", tag = "deployments", request_body = PromotionRequest,
    responses((status = 202, body = Promotion), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn promote(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(request): Body<PromotionRequest>,
) -> Answer<impl IntoResponse> {
    caller.needs(Role::Read, Some(&request.from), Some(&request.application))?;
    let (_, deployment) = app.engine.promotion(&request).await?;
    let wanted = if request.dry_run { Role::Read } else { Role::Write };
    app.engine.allow_deployment(&caller, &deployment, wanted).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.promote(request, &caller.name).await?)))
}

/// Deploys once more what an earlier deployment did.
#[utoipa::path(post, path = "/deployments/{id}/redeploy", tag = "deployments", params(("id" = String, Path)),
    request_body = HandRequest,
    responses((status = 202, body = Deployment), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn redeploy(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ChangeId>,
    Body(request): Body<HandRequest>,
) -> Answer<impl IntoResponse> {
    let wanted = if request.dry_run { Role::Read } else { Role::Write };
    app.engine.allow_change(&caller, id, wanted).await?;
    let deployment = app.engine.redeployment(id).await?;
    app.engine.allow_deployment(&caller, &deployment, wanted).await?;
    Ok((StatusCode::ACCEPTED, Json(app.engine.redeploy(id, request.dry_run, &caller.name).await?)))
}

/// Has another version of its template make a resource.
#[utoipa::path(post, path = "/resources/{id}/upgrade", tag = "resources", params(("id" = String, Path)),
    request_body = UpgradeRequest,
    responses((status = 202, body = Handled), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn upgrade(
    State(app): State<App>,
    Caller(caller): Caller,
    At(id): At<ResourceId>,
    Body(request): Body<UpgradeRequest>,
) -> Answer<impl IntoResponse> {
    let wanted = if request.dry_run { Role::Read } else { Role::Write };
    app.engine.allow_resource(&caller, id, wanted).await?;
    let handled = app.engine.upgrade(id, &request.version, request.dry_run, &caller.name).await?;
    Ok((StatusCode::ACCEPTED, Json(handled)))
}
