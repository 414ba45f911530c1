//! Changes: everything that touches the world, one row each.

use conductor_domain::{
    ids::{ApplicationId, ChangeId, DomainId, EnvironmentId, OrganisationId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus},
};
use serde_json::Value as Json;
use uuid::Uuid;

use crate::{Owner, Result, Row, Tx, Value, params, sight::Sight};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Running,
    Waiting,
}

impl Slot {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
        }
    }
}

#[derive(Clone, Debug)]
pub struct NewChange {
    pub id: ChangeId,
    pub organisation: OrganisationId,
    pub kind: ChangeKind,
    pub environment: Option<EnvironmentId>,
    pub application: Option<ApplicationId>,
    pub status: ChangeStatus,
    pub slot: Option<Slot>,
    pub parent: Option<ChangeId>,
    pub owner: Option<Uuid>,
    pub actor: String,
    pub commit: Option<String>,
    /// What was asked for; sealed when stored.
    pub request: Json,
    pub timeout_at: Option<i64>,
    pub now: i64,
}

#[derive(Clone, Debug)]
pub struct ChangeRow {
    pub id: ChangeId,
    pub organisation: OrganisationId,
    pub kind: ChangeKind,
    pub environment: Option<EnvironmentId>,
    pub application: Option<ApplicationId>,
    pub environment_name: Option<String>,
    pub application_name: Option<String>,
    pub status: ChangeStatus,
    pub slot: Option<Slot>,
    pub parent: Option<ChangeId>,
    pub owner: Option<Uuid>,
    pub actor: String,
    pub commit: Option<String>,
    pub plan_number: i64,
    pub plan: Option<Json>,
    pub releases: i64,
    pub open_operations: i64,
    pub failed_operations: i64,
    pub error: Option<Json>,
    pub timeout_at: Option<i64>,
    pub rollback: bool,
    pub created_at: i64,
    pub started_at: Option<i64>,
    pub completed_at: Option<i64>,
    pub updated_at: i64,
    pub cancel_requested_at: Option<i64>,
    /// Some of its operations wait for somebody's agreement.
    pub gated: bool,
}

const CHANGE: &str = "SELECT c.id, c.organisation_id, c.kind, c.environment_id, c.application_id, e.name, a.name, c.status,
    c.slot, c.parent_id, c.owner_id, c.actor, c.commit_sha, c.plan_number, c.plan, c.releases, c.open_operations,
    c.failed_operations, c.error, c.timeout_at, c.rollback, c.created_at, c.started_at, c.completed_at, c.updated_at,
    c.cancel_requested_at, c.closed_gates
    FROM changes c LEFT JOIN environments e ON e.id = c.environment_id LEFT JOIN applications a ON a.id = c.application_id";

fn change_row(row: &Row) -> Result<ChangeRow> {
    Ok(ChangeRow {
        id: row.id(0)?,
        organisation: row.id(1)?,
        kind: row.word(2)?,
        environment: row.opt(3, Row::id)?,
        application: row.opt(4, Row::id)?,
        environment_name: row.opt(5, Row::text)?.map(str::to_owned),
        application_name: row.opt(6, Row::text)?.map(str::to_owned),
        status: row.word(7)?,
        slot: row.opt(8, Row::text)?.map(
            |slot| {
                if slot == "running" { Slot::Running } else { Slot::Waiting }
            },
        ),
        parent: row.opt(9, Row::id)?,
        owner: row.opt(10, Row::id)?,
        actor: row.text(11)?.to_owned(),
        commit: row.opt(12, Row::text)?.map(str::to_owned),
        plan_number: row.int(13)?,
        plan: row.opt(14, Row::json)?,
        releases: row.int(15)?,
        open_operations: row.int(16)?,
        failed_operations: row.int(17)?,
        error: row.opt(18, Row::json)?,
        timeout_at: row.opt(19, Row::int)?,
        rollback: row.flag(20)?,
        created_at: row.int(21)?,
        started_at: row.opt(22, Row::int)?,
        completed_at: row.opt(23, Row::int)?,
        updated_at: row.int(24)?,
        cancel_requested_at: row.opt(25, Row::int)?,
        gated: row.flag(26)?,
    })
}

/// What a list of changes is narrowed to.
#[derive(Clone, Debug, Default)]
pub struct ChangeFilter {
    pub kinds: Vec<ChangeKind>,
    pub environment: Option<EnvironmentId>,
    pub application: Option<ApplicationId>,
    pub status: Option<ChangeStatus>,
    /// Older than this one.
    pub before: Option<ChangeId>,
    pub sight: Sight,
    pub limit: i64,
}

impl Tx<'_> {
    pub fn insert_change(&mut self, new: &NewChange) -> Result<()> {
        let owner = Owner { organisation: new.organisation, kind: "request", id: new.id.0.as_bytes() };
        let request = self.sealer().seal(owner, new.request.to_string().as_bytes())?;
        self.put(
            "INSERT INTO changes (id, organisation_id, kind, environment_id, application_id, prev_status, status, slot,
                 parent_id, owner_id, actor, commit_sha, request, plan_number, releases, open_operations,
                 failed_operations, timeout_at, rollback, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8, $9, $10, $11, $12, 0, 0, 0, 0, $13, 0, $14, $14)",
            params![
                new.id,
                new.organisation,
                new.kind.as_str(),
                new.environment,
                new.application,
                new.status.as_str(),
                new.slot.map(Slot::as_str),
                new.parent,
                new.owner,
                &new.actor,
                new.commit.clone(),
                request,
                new.timeout_at,
                new.now
            ],
        )?;
        self.put("INSERT INTO log_heads (change_id, next_seq) VALUES ($1, 1)", params![new.id])
    }

    pub fn change(&mut self, id: ChangeId) -> Result<Option<ChangeRow>> {
        let row = self.query_one(&format!("{CHANGE} WHERE c.id = $1"), params![id])?;
        row.as_ref().map(change_row).transpose()
    }

    pub fn lock_change(&mut self, id: ChangeId) -> Result<Option<ChangeRow>> {
        self.query("SELECT id FROM changes WHERE id = $1 FOR UPDATE", params![id])?;
        self.change(id)
    }

    pub fn change_request(&mut self, change: &ChangeRow) -> Result<Json> {
        let row = self.query_one("SELECT request FROM changes WHERE id = $1", params![change.id])?;
        let row = row.ok_or_else(|| crate::Error::Corrupt("a change without its request".into()))?;
        let owner = Owner { organisation: change.organisation, kind: "request", id: change.id.0.as_bytes() };
        let plain = self.sealer().open(owner, row.bytes(0)?)?;
        serde_json::from_slice(&plain).map_err(|_| crate::Error::Corrupt("a request is damaged".into()))
    }

    pub fn changes(&mut self, organisation: OrganisationId, filter: &ChangeFilter) -> Result<Vec<ChangeRow>> {
        let mut sql = format!("{CHANGE} WHERE c.organisation_id = $1");
        let mut values: Vec<Value> = vec![organisation.into()];
        let mut narrow = |clause: &str, value: Value| {
            values.push(value);
            sql.push_str(&format!(" AND {clause} ${}", values.len()));
        };
        if let Some(environment) = filter.environment {
            narrow("c.environment_id =", environment.into());
        }
        if let Some(application) = filter.application {
            narrow("c.application_id =", application.into());
        }
        if let Some(status) = filter.status {
            narrow("c.status =", status.as_str().into());
        }
        if let Some(before) = filter.before {
            narrow("c.id <", before.into());
        }
        if !filter.kinds.is_empty() {
            let kinds: Vec<String> = filter.kinds.iter().map(|kind| format!("'{kind}'")).collect();
            sql.push_str(&format!(" AND c.kind IN ({})", kinds.join(", ")));
        }
        sql.push_str(&filter.sight.of_changes("c", &mut values));
        sql.push_str(&format!(" ORDER BY c.id DESC LIMIT {}", filter.limit.clamp(1, 1000)));
        self.query(&sql, &values)?.iter().map(change_row).collect()
    }

    /// The change in a slot of one application in one environment.
    pub fn change_in_slot(
        &mut self,
        application: ApplicationId,
        environment: EnvironmentId,
        slot: Slot,
    ) -> Result<Option<ChangeRow>> {
        let row = self.query_one(
            &format!("{CHANGE} WHERE c.application_id = $1 AND c.environment_id = $2 AND c.slot = $3"),
            params![application, environment, slot.as_str()],
        )?;
        row.as_ref().map(change_row).transpose()
    }

    /// When somebody last looked at everything in an environment, by the clock.
    pub fn last_look(&mut self, environment: EnvironmentId) -> Result<Option<i64>> {
        let row = self.query_one(
            "SELECT created_at FROM changes WHERE environment_id = $1 AND kind = 'observe' AND actor = 'conductor'
             ORDER BY id DESC LIMIT 1",
            params![environment],
        )?;
        row.map(|row| row.int(0)).transpose()
    }

    /// When the last teardown by the clock ended, and its error.
    pub fn last_end_of(&mut self, environment: EnvironmentId) -> Result<Option<(i64, Option<Json>)>> {
        let row = self.query_one(
            "SELECT completed_at, error FROM changes WHERE environment_id = $1 AND kind = 'teardown'
                 AND actor = 'conductor' AND completed_at IS NOT NULL ORDER BY id DESC LIMIT 1",
            params![environment],
        )?;
        row.map(|row| Ok((row.int(0)?, row.opt(1, Row::json)?))).transpose()
    }

    /// What a manager says it would do, kept with the plan.
    pub fn keep_proposed(&mut self, id: ChangeId, resource: ResourceId, proposed: &Json) -> Result<()> {
        // Several are asked at once, and all write here.
        self.query("SELECT id FROM changes WHERE id = $1 FOR UPDATE", params![id])?;
        let Some(change) = self.change(id)? else { return Ok(()) };
        let mut plan = change.plan.unwrap_or_default();
        plan["answers"][resource.to_string()] = proposed.clone();
        self.put_one("UPDATE changes SET plan = $2 WHERE id = $1", params![id, &plan])
    }

    /// The planning domains of everything that is made or used in an environment.
    pub fn domains_in(&mut self, environment: EnvironmentId) -> Result<Vec<DomainId>> {
        let rows = self.query(
            "SELECT domain_id FROM resources WHERE environment_id = $1 AND state <> 'destroyed'
             UNION SELECT r.domain_id FROM consumers c JOIN resources r ON r.id = c.resource_id WHERE c.environment_id = $1",
            params![environment],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// Everything that is under way in an environment.
    pub fn open_changes_in(&mut self, environment: EnvironmentId) -> Result<Vec<ChangeRow>> {
        let sql = format!(
            "{CHANGE} WHERE c.environment_id = $1 AND c.status IN ('pending', 'approval_pending', 'in_progress') ORDER BY c.id"
        );
        self.query(&sql, params![environment])?.iter().map(change_row).collect()
    }

    /// Waiting changes whose turn has come.
    pub fn promotable_changes(&mut self) -> Result<Vec<ChangeId>> {
        let rows = self.query(
            "SELECT w.id FROM changes w WHERE w.slot = 'waiting' AND NOT EXISTS (
                 SELECT 1 FROM changes r WHERE r.application_id = w.application_id
                 AND r.environment_id = w.environment_id AND r.slot = 'running')",
            &[],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// A planned change begins, or waits no longer.
    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn start_change(
        &mut self,
        id: ChangeId,
        from: ChangeStatus,
        to: ChangeStatus,
        slot: Option<Slot>,
        plan_number: i64,
        plan: &Json,
        operations: i64,
        releases: i64,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE changes SET prev_status = $2, status = $3, slot = $4, plan_number = $5, plan = $6,
                 open_operations = $7, failed_operations = 0, releases = $8, error = NULL, completed_at = NULL,
                 started_at = $9, updated_at = $9
             WHERE id = $1 AND status = $2",
            params![
                id,
                from.as_str(),
                to.as_str(),
                slot.map(Slot::as_str),
                plan_number,
                plan,
                operations,
                releases,
                now
            ],
        )
    }

    /// The end of a change; its slot is free.
    pub fn end_change(
        &mut self,
        id: ChangeId,
        kind: ChangeKind,
        from: ChangeStatus,
        to: ChangeStatus,
        error: Option<&Json>,
        now: i64,
    ) -> Result<()> {
        self.wake();
        self.tally.change(kind, to);
        self.put_one(
            "UPDATE changes SET prev_status = $2, status = $3, slot = NULL, error = $4, completed_at = $5, updated_at = $5
             WHERE id = $1 AND status = $2",
            params![id, from.as_str(), to.as_str(), error, now],
        )
    }

    /// Takes operations off the open ones and tells how many are left, and whether some wait for agreement.
    pub fn count_down(&mut self, id: ChangeId, closed: i64, failed: i64, now: i64) -> Result<(i64, bool)> {
        let row = self.query_one(
            "UPDATE changes SET open_operations = open_operations - $2, failed_operations = failed_operations + $3,
                 updated_at = $4 WHERE id = $1 RETURNING open_operations, closed_gates",
            params![id, closed, failed, now],
        )?;
        row.map_or(Ok((-1, false)), |row| Ok((row.int(0)?, row.flag(1)?)))
    }

    pub fn set_change_error(&mut self, id: ChangeId, error: &Json) -> Result<()> {
        self.put("UPDATE changes SET error = $2 WHERE id = $1 AND error IS NULL", params![id, error])
    }

    pub fn request_cancel(&mut self, id: ChangeId, rollback: bool, now: i64) -> Result<()> {
        self.wake();
        self.put_one(
            "UPDATE changes SET cancel_requested_at = coalesce(cancel_requested_at, $2), rollback = $3, updated_at = $2
             WHERE id = $1",
            params![id, now, rollback],
        )
    }

    pub fn clear_cancel(&mut self, id: ChangeId) -> Result<()> {
        self.put_one(
            "UPDATE changes SET cancel_requested_at = NULL, rollback = 0, timeout_at = NULL WHERE id = $1",
            params![id],
        )
    }

    /// Open changes of embedded processes, by process.
    pub fn change_owners(&mut self) -> Result<Vec<Uuid>> {
        let rows = self.query(
            "SELECT DISTINCT owner_id FROM changes WHERE owner_id IS NOT NULL
             AND status IN ('pending', 'approval_pending', 'in_progress')",
            &[],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// What a dead process left is this one's now.
    pub fn adopt_changes(&mut self, dead: Uuid, by: Uuid) -> Result<u64> {
        self.wake();
        self.execute(
            "UPDATE changes SET owner_id = $2 WHERE owner_id = $1
             AND status IN ('pending', 'approval_pending', 'in_progress')",
            params![dead, by],
        )
    }

    pub fn open_children(&mut self, parent: ChangeId) -> Result<Vec<ChangeId>> {
        let rows = self.query(
            "SELECT id FROM changes WHERE parent_id = $1 AND status IN ('pending', 'approval_pending', 'in_progress')",
            params![parent],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    pub fn changes_out_of_time(&mut self, now: i64) -> Result<Vec<ChangeId>> {
        let rows = self.query(
            "SELECT id FROM changes WHERE status = 'in_progress' AND timeout_at IS NOT NULL AND timeout_at <= $1
             AND cancel_requested_at IS NULL",
            params![now],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// The change an idempotency key made before, and the digest of what was asked then.
    pub fn idempotent_change(
        &mut self,
        organisation: OrganisationId,
        key: &[u8],
    ) -> Result<Option<(ChangeId, Vec<u8>)>> {
        let row = self.query_one(
            "SELECT change_id, body_hash FROM idempotency WHERE organisation_id = $1 AND key_hash = $2",
            params![organisation, key],
        )?;
        row.map(|row| Ok((row.id(0)?, row.bytes(1)?.to_vec()))).transpose()
    }

    pub fn keep_idempotency(
        &mut self,
        organisation: OrganisationId,
        key: &[u8],
        body: &[u8],
        change: ChangeId,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO idempotency (organisation_id, key_hash, body_hash, change_id, created_at)
             VALUES ($1, $2, $3, $4, $5)",
            params![organisation, key, body, change, now],
        )
    }
}

impl Tx<'_> {
    /// A change that ended begins again; where it has a slot, it takes it.
    pub fn reopen_change(
        &mut self,
        id: ChangeId,
        from: ChangeStatus,
        slotted: bool,
        owner: Option<Uuid>,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE changes SET prev_status = $2, status = 'pending', slot = $5, owner_id = $3, updated_at = $4
             WHERE id = $1 AND status = $2",
            params![id, from.as_str(), owner, now, slotted.then(|| Slot::Running.as_str())],
        )
    }

    pub fn set_trace(&mut self, id: ChangeId, trace: &str) -> Result<()> {
        self.put_one("UPDATE changes SET trace = $2 WHERE id = $1", params![id, trace])
    }

    pub fn trace_of(&mut self, id: ChangeId) -> Result<Option<String>> {
        let row = self.query_one("SELECT trace FROM changes WHERE id = $1", params![id])?;
        row.map_or(Ok(None), |row| Ok(row.opt(0, Row::text)?.map(str::to_owned)))
    }

    pub fn set_timeout(&mut self, id: ChangeId, at: i64) -> Result<()> {
        self.put_one("UPDATE changes SET timeout_at = $2 WHERE id = $1", params![id, at])
    }
}

impl Tx<'_> {
    /// Open changes that an embedded process answers for.
    pub fn owned_changes(&mut self) -> Result<Vec<(ChangeId, Uuid)>> {
        let rows = self.query(
            "SELECT id, owner_id FROM changes WHERE owner_id IS NOT NULL
             AND status IN ('pending', 'in_progress') ORDER BY id",
            &[],
        )?;
        rows.iter().map(|row| Ok((row.id(0)?, row.id(1)?))).collect()
    }
}
