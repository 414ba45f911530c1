//! Changes of resources under review, and the desired states that came before.

use conductor_domain::{
    ids::{ApprovalId, ChangeId, OrganisationId, ProposalId, ResourceId, TemplateVersionId},
    lifecycle::ProposalStatus,
};
use serde_json::Value as Json;

use crate::{Result, Row, Tx, Value, params, sight::Sight};

#[derive(Clone, Debug)]
pub struct ProposalRow {
    pub id: ProposalId,
    pub organisation: OrganisationId,
    pub resource: ResourceId,
    pub status: ProposalStatus,
    pub actor: String,
    pub document: Json,
    pub generation: i64,
    pub auto_merge: bool,
    pub preview: Option<ChangeId>,
    pub change: Option<ChangeId>,
    pub created_at: i64,
    pub updated_at: i64,
}

const PROPOSAL: &str =
    "SELECT id, organisation_id, resource_id, status, actor, document, generation, auto_merge,
    preview_change_id, change_id, created_at, updated_at FROM proposals";

fn proposal_row(row: &Row) -> Result<ProposalRow> {
    Ok(ProposalRow {
        id: row.id(0)?,
        organisation: row.id(1)?,
        resource: row.id(2)?,
        status: row.word(3)?,
        actor: row.text(4)?.to_owned(),
        document: row.json(5)?,
        generation: row.int(6)?,
        auto_merge: row.flag(7)?,
        preview: row.opt(8, Row::id)?,
        change: row.opt(9, Row::id)?,
        created_at: row.int(10)?,
        updated_at: row.int(11)?,
    })
}

impl Tx<'_> {
    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn insert_proposal(
        &mut self,
        organisation: OrganisationId,
        id: ProposalId,
        resource: ResourceId,
        actor: &str,
        document: &Json,
        generation: i64,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO proposals (id, organisation_id, resource_id, status, actor, document, generation, auto_merge,
                 created_at, updated_at) VALUES ($1, $2, $3, 'pending', $4, $5, $6, 0, $7, $7)",
            params![id, organisation, resource, actor, document, generation, now],
        )
    }

    pub fn proposal(&mut self, organisation: OrganisationId, id: ProposalId) -> Result<Option<ProposalRow>> {
        let sql = format!("{PROPOSAL} WHERE organisation_id = $1 AND id = $2");
        self.query_one(&sql, params![organisation, id])?.as_ref().map(proposal_row).transpose()
    }

    /// Those of one resource or of all, the newest first.
    pub fn proposals(
        &mut self,
        organisation: OrganisationId,
        resource: Option<ResourceId>,
        before: Option<ProposalId>,
        sight: &Sight,
        limit: i64,
    ) -> Result<Vec<ProposalRow>> {
        let mut sql = format!("{PROPOSAL} WHERE organisation_id = $1");
        let mut values: Vec<Value> = vec![organisation.into()];
        if let Some(resource) = resource {
            values.push(resource.into());
            sql.push_str(&format!(" AND resource_id = ${}", values.len()));
        }
        if let Some(before) = before {
            values.push(before.into());
            sql.push_str(&format!(" AND id < ${}", values.len()));
        }
        sql.push_str(&sight.of_proposals(&mut values));
        sql.push_str(&format!(" ORDER BY id DESC LIMIT {}", limit.clamp(1, 1001)));
        self.query(&sql, &values)?.iter().map(proposal_row).collect()
    }

    /// Those that may still come about.
    pub fn open_proposals_of(&mut self, resource: ResourceId) -> Result<Vec<ProposalRow>> {
        let sql = format!(
            "{PROPOSAL} WHERE resource_id = $1 AND status IN ('pending', 'approval_pending', 'approved', 'rejected')
             ORDER BY id"
        );
        self.query(&sql, params![resource])?.iter().map(proposal_row).collect()
    }

    /// Writes a proposal as it is now, from the status it must still have.
    pub fn update_proposal(&mut self, row: &ProposalRow, from: ProposalStatus, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE proposals SET status = $3, document = $4, generation = $5, auto_merge = $6, preview_change_id = $7,
                 change_id = $8, updated_at = $9 WHERE id = $1 AND status = $2",
            params![
                row.id,
                from.as_str(),
                row.status.as_str(),
                &row.document,
                row.generation,
                row.auto_merge,
                row.preview,
                row.change,
                now
            ],
        )
    }

    pub fn pending_approval_of_proposal(&mut self, id: ProposalId) -> Result<Option<ApprovalId>> {
        let row = self.query_one(
            "SELECT id FROM approvals WHERE proposal_id = $1 AND status = 'pending'",
            params![id],
        )?;
        row.map(|row| row.id(0)).transpose()
    }
}

#[derive(Clone, Debug)]
pub struct RevisionRow {
    pub number: i64,
    pub state: String,
    pub version: TemplateVersionId,
    pub spec: Json,
    pub change: ChangeId,
    pub actor: String,
    pub kind: String,
    pub created_at: i64,
}

fn revision_row(row: &Row) -> Result<RevisionRow> {
    Ok(RevisionRow {
        number: row.int(0)?,
        state: row.text(1)?.to_owned(),
        version: row.id(2)?,
        spec: row.json(3)?,
        change: row.id(4)?,
        actor: row.text(5)?.to_owned(),
        kind: row.text(6)?.to_owned(),
        created_at: row.int(7)?,
    })
}

/// Earlier desired states and the current one, as one list.
const REVISION: &str = "SELECT v.number, v.state, v.template_version_id, v.spec, v.change_id, c.actor, c.kind, v.created_at
    FROM (SELECT resource_id, number, state, template_version_id, spec, change_id, created_at FROM revisions
        UNION ALL
        SELECT id, generation, CASE WHEN observed_generation = generation THEN 'applied'
            WHEN status = 'error' THEN 'failed' ELSE 'applying' END, template_version_id, spec, spec_change_id, updated_at
        FROM resources) v JOIN changes c ON c.id = v.change_id WHERE v.resource_id = $1";

impl Tx<'_> {
    pub fn revisions(&mut self, resource: ResourceId) -> Result<Vec<RevisionRow>> {
        let rows = self.query(&format!("{REVISION} ORDER BY v.number DESC"), params![resource])?;
        rows.iter().map(revision_row).collect()
    }

    pub fn revision(&mut self, resource: ResourceId, number: i64) -> Result<Option<RevisionRow>> {
        let row = self.query_one(&format!("{REVISION} AND v.number = $2"), params![resource, number])?;
        row.as_ref().map(revision_row).transpose()
    }
}
