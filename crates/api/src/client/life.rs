//! What people do with resources beyond deploying.

use conductor_domain::ids::{ApprovalId, ProposalId, ResourceId};
use serde_json::json;

use super::{Client, ClientResult, ListFilter, query};
use crate::types::{
    Approval, Decision, Deployment, Drift, DriftDecision, DriftRequest, Facts, HandRequest, Handled, Page,
    Proposal, ProposalRequest, RegisterRequest, Resource, ResourceRequest, Revision, RevisionDiff,
    SubmitRequest,
};

impl Client {
    pub async fn make_resource(&self, request: &ResourceRequest) -> ClientResult<Handled> {
        self.send("POST", "/resources".into(), request).await
    }

    pub async fn register_resource(&self, request: &RegisterRequest) -> ClientResult<Handled> {
        self.send("POST", "/registrations".into(), request).await
    }

    pub async fn describe_resource(&self, id: ResourceId, facts: &Facts) -> ClientResult<Resource> {
        self.send("PATCH", format!("/resources/{id}"), facts).await
    }

    async fn by_hand(&self, id: ResourceId, action: &str, dry_run: bool) -> ClientResult<Handled> {
        self.send("POST", format!("/resources/{id}/{action}"), &HandRequest { dry_run }).await
    }

    pub async fn destroy_resource(&self, id: ResourceId, dry_run: bool) -> ClientResult<Handled> {
        self.by_hand(id, "destroy", dry_run).await
    }

    pub async fn recreate_resource(&self, id: ResourceId, dry_run: bool) -> ClientResult<Handled> {
        self.by_hand(id, "recreate", dry_run).await
    }

    pub async fn retry_resource(&self, id: ResourceId, dry_run: bool) -> ClientResult<Handled> {
        self.by_hand(id, "retry", dry_run).await
    }

    pub async fn delete_resource(&self, id: ResourceId) -> ClientResult<()> {
        self.send("DELETE", format!("/resources/{id}"), &()).await
    }

    pub async fn protect_resource(&self, id: ResourceId, protected: bool) -> ClientResult<Resource> {
        let action = if protected { "protect" } else { "unprotect" };
        self.send("POST", format!("/resources/{id}/{action}"), &json!({})).await
    }

    /// What waits for an answer; with `mine` only what one may answer, with `all` also what is decided.
    pub async fn approvals(&self, mine: bool, all: bool) -> ClientResult<Vec<Approval>> {
        let mut items = Vec::new();
        let mut cursor = None;
        loop {
            let asked = query(&[
                ("mine", mine.then(|| "true".to_owned())),
                ("status", (!all).then(|| "pending".to_owned())),
                ("cursor", cursor),
            ]);
            let page: Page<Approval> = self.get(format!("/approvals{asked}")).await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(items);
            }
        }
    }

    pub async fn approval(&self, id: ApprovalId) -> ClientResult<Approval> {
        self.get(format!("/approvals/{id}")).await
    }

    pub async fn decide(
        &self,
        id: ApprovalId,
        approves: bool,
        decision: &Decision,
    ) -> ClientResult<Approval> {
        let action = if approves { "approve" } else { "reject" };
        self.send("POST", format!("/approvals/{id}/{action}"), decision).await
    }

    pub async fn propose(&self, id: ResourceId, request: &ProposalRequest) -> ClientResult<Proposal> {
        self.send("POST", format!("/resources/{id}/proposals"), request).await
    }

    pub async fn proposals(&self, filter: &ListFilter) -> ClientResult<Vec<Proposal>> {
        self.list("/proposals", filter).await
    }

    pub async fn proposal(&self, id: ProposalId) -> ClientResult<Proposal> {
        self.get(format!("/proposals/{id}")).await
    }

    pub async fn edit_proposal(&self, id: ProposalId, request: &ProposalRequest) -> ClientResult<Proposal> {
        self.send("PATCH", format!("/proposals/{id}"), request).await
    }

    pub async fn try_proposal(&self, id: ProposalId) -> ClientResult<Deployment> {
        self.send("POST", format!("/proposals/{id}/dry-run"), &json!({})).await
    }

    pub async fn submit_proposal(&self, id: ProposalId, auto_merge: bool) -> ClientResult<Proposal> {
        self.send("POST", format!("/proposals/{id}/submit"), &SubmitRequest { auto_merge }).await
    }

    pub async fn merge_proposal(&self, id: ProposalId) -> ClientResult<Handled> {
        self.send("POST", format!("/proposals/{id}/merge"), &json!({})).await
    }

    pub async fn discard_proposal(&self, id: ProposalId) -> ClientResult<Proposal> {
        self.send("POST", format!("/proposals/{id}/discard"), &json!({})).await
    }

    pub async fn revisions(&self, id: ResourceId) -> ClientResult<Vec<Revision>> {
        let page: Page<Revision> = self.get(format!("/resources/{id}/revisions")).await?;
        Ok(page.items)
    }

    pub async fn revision_diff(&self, id: ResourceId, from: i64, to: i64) -> ClientResult<RevisionDiff> {
        self.get(format!("/resources/{id}/revisions/{from}/diff/{to}")).await
    }

    pub async fn roll_back(&self, id: ResourceId, to: i64, dry_run: bool) -> ClientResult<Handled> {
        self.send("POST", format!("/resources/{id}/revisions/{to}/rollback"), &HandRequest { dry_run }).await
    }

    /// Has workers look; the answer is the change to wait for.
    pub async fn check_drift(&self, request: &DriftRequest) -> ClientResult<Deployment> {
        self.send("POST", "/drift/checks".into(), request).await
    }

    /// What is not as it is on record, as far as anybody has looked.
    pub async fn drifts(&self, request: &DriftRequest) -> ClientResult<Vec<Drift>> {
        let resources: Vec<String> = request.resources.iter().map(ToString::to_string).collect();
        let asked = query(&[
            ("env", request.environment.clone()),
            ("app", request.application.clone()),
            ("resources", (!resources.is_empty()).then(|| resources.join(","))),
        ]);
        let page: Page<Drift> = self.get(format!("/drift{asked}")).await?;
        Ok(page.items)
    }

    pub async fn repair_drift(&self, decision: &DriftDecision) -> ClientResult<Vec<Handled>> {
        self.send("POST", "/drift/repair".into(), decision).await
    }

    pub async fn adopt_drift(&self, decision: &DriftDecision) -> ClientResult<Vec<Handled>> {
        self.send("POST", "/drift/adopt".into(), decision).await
    }

    pub async fn ignore_drift(&self, decision: &DriftDecision) -> ClientResult<()> {
        self.send("POST", "/drift/ignore".into(), decision).await
    }
}
