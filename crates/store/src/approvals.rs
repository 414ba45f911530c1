//! Requests for somebody's agreement, who answered, and the gates of the operations that wait for it.

use conductor_domain::{
    ids::{ApplicationId, ApprovalId, ChangeId, EnvironmentId, OperationId, OrganisationId, ProposalId},
    lifecycle::{ApprovalStatus, ChangeStatus},
};
use serde_json::Value as Json;

use crate::{Result, Row, Tx, Value, params, sight::Sight};

#[derive(Clone, Debug)]
pub struct ApprovalRow {
    pub id: ApprovalId,
    pub change: Option<ChangeId>,
    pub plan_number: i64,
    pub proposal: Option<ProposalId>,
    pub environment: Option<EnvironmentId>,
    pub environment_name: Option<String>,
    pub application: Option<ApplicationId>,
    pub application_name: Option<String>,
    pub status: ApprovalStatus,
    pub requester: String,
    pub approvers: i64,
    pub allow_self: bool,
    pub digest: Vec<u8>,
    pub document: Json,
    pub created_at: i64,
    pub expires_at: Option<i64>,
    pub decided_at: Option<i64>,
}

#[derive(Clone, Debug)]
pub struct NewApproval {
    pub id: ApprovalId,
    pub organisation: OrganisationId,
    pub change: Option<ChangeId>,
    pub plan_number: i64,
    pub proposal: Option<ProposalId>,
    pub environment: Option<EnvironmentId>,
    pub application: Option<ApplicationId>,
    pub requester: String,
    pub approvers: i64,
    pub allow_self: bool,
    pub digest: Vec<u8>,
    pub document: Json,
    pub expires_at: Option<i64>,
    pub now: i64,
}

#[derive(Clone, Debug)]
pub struct VoteRow {
    pub actor: String,
    pub approves: bool,
    pub comment: Option<String>,
    pub created_at: i64,
}

const APPROVAL: &str = "SELECT p.id, p.change_id, p.plan_number, p.proposal_id, p.environment_id, e.name, p.application_id,
    a.name, p.status, p.requester, p.approvers, p.allow_self, p.digest, p.document, p.created_at, p.expires_at,
    p.decided_at FROM approvals p LEFT JOIN environments e ON e.id = p.environment_id
    LEFT JOIN applications a ON a.id = p.application_id";

fn approval_row(row: &Row) -> Result<ApprovalRow> {
    Ok(ApprovalRow {
        id: row.id(0)?,
        change: row.opt(1, Row::id)?,
        plan_number: row.int(2)?,
        proposal: row.opt(3, Row::id)?,
        environment: row.opt(4, Row::id)?,
        environment_name: row.opt(5, Row::text)?.map(str::to_owned),
        application: row.opt(6, Row::id)?,
        application_name: row.opt(7, Row::text)?.map(str::to_owned),
        status: row.word(8)?,
        requester: row.text(9)?.to_owned(),
        approvers: row.int(10)?,
        allow_self: row.flag(11)?,
        digest: row.bytes(12)?.to_vec(),
        document: row.json(13)?,
        created_at: row.int(14)?,
        expires_at: row.opt(15, Row::int)?,
        decided_at: row.opt(16, Row::int)?,
    })
}

impl Tx<'_> {
    pub fn insert_approval(&mut self, new: &NewApproval) -> Result<()> {
        self.put(
            "INSERT INTO approvals (id, organisation_id, change_id, plan_number, proposal_id, environment_id,
                 application_id, status, requester, approvers, allow_self, digest, document, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $9, $10, $11, $12, $13, $14)",
            params![
                new.id,
                new.organisation,
                new.change,
                new.plan_number,
                new.proposal,
                new.environment,
                new.application,
                &new.requester,
                new.approvers,
                new.allow_self,
                new.digest.clone(),
                &new.document,
                new.now,
                new.expires_at
            ],
        )
    }

    pub fn approval(&mut self, organisation: OrganisationId, id: ApprovalId) -> Result<Option<ApprovalRow>> {
        let sql = format!("{APPROVAL} WHERE p.organisation_id = $1 AND p.id = $2");
        self.query_one(&sql, params![organisation, id])?.as_ref().map(approval_row).transpose()
    }

    pub fn lock_approval(&mut self, id: ApprovalId) -> Result<()> {
        self.query("SELECT id FROM approvals WHERE id = $1 FOR UPDATE", params![id]).map(drop)
    }

    /// What waits for an answer, or everything, the newest first.
    pub fn approvals(
        &mut self,
        organisation: OrganisationId,
        status: Option<ApprovalStatus>,
        before: Option<ApprovalId>,
        sight: &Sight,
        limit: i64,
    ) -> Result<Vec<ApprovalRow>> {
        let mut sql = format!("{APPROVAL} WHERE p.organisation_id = $1");
        let mut values: Vec<Value> = vec![organisation.into()];
        if let Some(status) = status {
            sql.push_str(&format!(" AND p.status = '{status}'"));
        }
        if let Some(before) = before {
            values.push(before.into());
            sql.push_str(" AND p.id < $2");
        }
        sql.push_str(&sight.of_changes("p", &mut values));
        sql.push_str(&format!(" ORDER BY p.id DESC LIMIT {}", limit.clamp(1, 1001)));
        self.query(&sql, &values)?.iter().map(approval_row).collect()
    }

    pub fn pending_approval_of(&mut self, change: ChangeId) -> Result<Option<ApprovalRow>> {
        let sql = format!("{APPROVAL} WHERE p.change_id = $1 AND p.status = 'pending'");
        self.query_one(&sql, params![change])?.as_ref().map(approval_row).transpose()
    }

    pub fn end_approval(&mut self, id: ApprovalId, to: ApprovalStatus, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE approvals SET status = $2, decided_at = $3 WHERE id = $1 AND status = 'pending'",
            params![id, to.as_str(), now],
        )
    }

    /// The change ended without an answer: nobody needs to give one any more.
    pub fn withdraw_approvals(&mut self, change: ChangeId, now: i64) -> Result<()> {
        self.put(
            "UPDATE approvals SET status = 'withdrawn', decided_at = $2 WHERE change_id = $1 AND status = 'pending'",
            params![change, now],
        )
    }

    pub fn expired_approvals(&mut self, now: i64) -> Result<Vec<(OrganisationId, ApprovalId)>> {
        let rows = self.query(
            "SELECT organisation_id, id FROM approvals WHERE status = 'pending' AND expires_at <= $1",
            params![now],
        )?;
        rows.iter().map(|row| Ok((row.id(0)?, row.id(1)?))).collect()
    }

    pub fn vote(
        &mut self,
        id: ApprovalId,
        actor: &str,
        approves: bool,
        comment: Option<&str>,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO approval_votes (approval_id, actor, approves, comment, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (approval_id, actor) DO UPDATE SET approves = excluded.approves, comment = excluded.comment,
                 created_at = excluded.created_at",
            params![id, actor, approves, comment, now],
        )
    }

    pub fn votes(&mut self, id: ApprovalId) -> Result<Vec<VoteRow>> {
        let rows = self.query(
            "SELECT actor, approves, comment, created_at FROM approval_votes WHERE approval_id = $1
             ORDER BY created_at, actor",
            params![id],
        )?;
        rows.iter()
            .map(|row| {
                Ok(VoteRow {
                    actor: row.text(0)?.to_owned(),
                    approves: row.flag(1)?,
                    comment: row.opt(2, Row::text)?.map(str::to_owned),
                    created_at: row.int(3)?,
                })
            })
            .collect()
    }
}

/// The gates of a change's operations.
impl Tx<'_> {
    /// Resources whose next step waits for an answer say so.
    pub fn hold_resources(&mut self, change: ChangeId) -> Result<()> {
        self.put(
            "UPDATE resources SET prev_state = state, status = 'approval_pending' WHERE status = 'queued' AND id IN (
                 SELECT resource_id FROM operations WHERE change_id = $1 AND gate = 'closed'
                     AND status IN ('blocked', 'approval_pending'))",
            params![change],
        )?;
        self.put("UPDATE changes SET closed_gates = 1 WHERE id = $1", params![change])
    }

    /// All that is left of it waits for an answer: so does the change.
    pub fn rest_for_approval(&mut self, change: ChangeId, now: i64) -> Result<bool> {
        let touched = self.execute(
            "UPDATE changes SET prev_status = status, status = 'approval_pending', timeout_at = NULL, updated_at = $2
             WHERE id = $1 AND status = 'in_progress'
                 AND EXISTS (SELECT 1 FROM operations WHERE change_id = $1 AND status = 'approval_pending')
                 AND NOT EXISTS (SELECT 1 FROM operations WHERE change_id = $1 AND status IN ('queued', 'in_progress'))",
            params![change, now],
        )?;
        if touched > 0 {
            self.wake();
        }
        Ok(touched > 0)
    }

    /// Somebody agreed: what waited for nothing else is queued.
    pub fn open_gates(&mut self, change: ChangeId, timeout_at: i64, now: i64) -> Result<()> {
        self.wake();
        self.put(
            "UPDATE resources SET prev_state = state, status = 'queued', updated_at = $2
             WHERE status = 'approval_pending' AND id IN (
                 SELECT resource_id FROM operations WHERE change_id = $1 AND gate = 'closed'
                     AND status IN ('blocked', 'approval_pending'))",
            params![change, now],
        )?;
        self.put(
            "UPDATE operations SET prev_status = status, status = 'queued', gate = 'open', open_predecessors = 0,
                 not_before = $2
             WHERE change_id = $1 AND gate = 'closed' AND status = 'approval_pending'",
            params![change, now],
        )?;
        self.put(
            "UPDATE operations SET gate = 'open', open_predecessors = open_predecessors - 1
             WHERE change_id = $1 AND gate = 'closed' AND status = 'blocked'",
            params![change],
        )?;
        self.put(
            "UPDATE changes SET prev_status = status, status = 'in_progress' WHERE id = $1 AND status = 'approval_pending'",
            params![change],
        )?;
        self.put(
            "UPDATE changes SET closed_gates = 0, timeout_at = $2, updated_at = $3 WHERE id = $1",
            params![change, timeout_at, now],
        )
    }

    /// A change that waited goes on with what is left of it.
    pub fn resume_change(&mut self, id: ChangeId, now: i64) -> Result<()> {
        let (from, to) = (ChangeStatus::ApprovalPending, ChangeStatus::InProgress);
        self.put(
            "UPDATE changes SET prev_status = status, status = $3, closed_gates = 0, updated_at = $4
             WHERE id = $1 AND status = $2",
            params![id, from.as_str(), to.as_str(), now],
        )
    }

    pub fn await_approval(&mut self, id: OperationId) -> Result<()> {
        self.put_one(
            "UPDATE operations SET prev_status = 'blocked', status = 'approval_pending'
             WHERE id = $1 AND status = 'blocked' AND open_predecessors = 1 AND gate = 'closed'",
            params![id],
        )
    }
}
