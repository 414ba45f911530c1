//! Operations: planned, claimed under a lease with a fence, renewed, ended; and what waits for them.

use std::collections::BTreeSet;

use conductor_domain::{
    ids::{ChangeId, OperationId, OrganisationId, ResourceId, WorkerId},
    lifecycle::{OperationKind, OperationStatus},
};
use serde_json::Value as Json;
use uuid::Uuid;

use crate::{Result, Row, Tx, Value, params, sight::Sight, tx::placeholders};

#[derive(Clone, Debug)]
pub struct NewOperation {
    pub id: OperationId,
    pub organisation: OrganisationId,
    pub change: ChangeId,
    pub plan_number: i64,
    pub resource: Option<ResourceId>,
    pub kind: OperationKind,
    pub generation: i64,
    pub conditional: bool,
    /// The end of its change gives up uses of resources.
    pub releasing: bool,
    pub queue: Option<i64>,
    /// Somebody has to agree first.
    pub gated: bool,
    pub open_predecessors: i64,
    pub retries: i64,
    pub payload: Option<Json>,
    pub now: i64,
}

impl NewOperation {
    fn status(&self) -> OperationStatus {
        let ready = self.open_predecessors == 0 && self.queue.is_some();
        match ready {
            true if self.gated => OperationStatus::ApprovalPending,
            true => OperationStatus::Queued,
            false => OperationStatus::Blocked,
        }
    }

    fn values(&self) -> Vec<Value> {
        let status = self.status().as_str();
        vec![
            self.id.into(),
            self.organisation.into(),
            self.change.into(),
            self.plan_number.into(),
            self.resource.into(),
            self.kind.as_str().into(),
            status.into(),
            status.into(),
            self.generation.into(),
            self.conditional.into(),
            self.releasing.into(),
            self.queue.into(),
            // Somebody's agreement comes before it like anything else: no program, however old, starts it without.
            (self.open_predecessors + i64::from(self.gated)).into(),
            0i64.into(),
            self.retries.into(),
            self.now.into(),
            0i64.into(),
            0i64.into(),
            0i64.into(),
            0i64.into(),
            self.payload.as_ref().into(),
            self.now.into(),
            self.gated.then_some("closed").into(),
        ]
    }
}

#[derive(Clone, Debug)]
pub struct OperationRow {
    pub id: OperationId,
    pub organisation: OrganisationId,
    pub change: ChangeId,
    pub resource: Option<ResourceId>,
    pub kind: OperationKind,
    pub status: OperationStatus,
    pub generation: i64,
    pub conditional: bool,
    pub queue: Option<i64>,
    pub open_predecessors: i64,
    pub attempt: i64,
    pub retries: i64,
    pub not_before: i64,
    pub worker: Option<WorkerId>,
    pub fence: i64,
    pub renewals: i64,
    pub lines: i64,
    pub cancel_requested_at: Option<i64>,
    pub result_digest: Option<Vec<u8>>,
    pub releasing: bool,
    /// It waits, or will wait, for somebody's agreement.
    pub gated: bool,
    /// What it would have been given when somebody agreed.
    pub asked_digest: Option<Vec<u8>>,
    pub payload: Option<Json>,
    pub error: Option<Json>,
    pub created_at: i64,
    pub started_at: Option<i64>,
    pub completed_at: Option<i64>,
}

const COLUMNS: &str = "o.id, o.organisation_id, o.change_id, o.resource_id, o.kind, o.status, o.generation,
    o.conditional, o.queue_id, o.open_predecessors, o.attempt, o.retries, o.not_before, o.worker_id, o.fence, o.renewals,
    o.lines, o.cancel_requested_at, o.result_digest, o.payload, o.error, o.created_at, o.started_at, o.completed_at,
    o.releasing, o.gate, o.asked_digest";

fn operation_row(row: &Row) -> Result<OperationRow> {
    Ok(OperationRow {
        id: row.id(0)?,
        organisation: row.id(1)?,
        change: row.id(2)?,
        resource: row.opt(3, Row::id)?,
        kind: row.word(4)?,
        status: row.word(5)?,
        generation: row.int(6)?,
        conditional: row.flag(7)?,
        queue: row.opt(8, Row::int)?,
        open_predecessors: row.int(9)?,
        attempt: row.int(10)?,
        retries: row.int(11)?,
        not_before: row.int(12)?,
        worker: row.opt(13, Row::id)?,
        fence: row.int(14)?,
        renewals: row.int(15)?,
        lines: row.int(16)?,
        cancel_requested_at: row.opt(17, Row::int)?,
        result_digest: row.opt(18, Row::bytes)?.map(<[u8]>::to_vec),
        payload: row.opt(19, Row::json)?,
        error: row.opt(20, Row::json)?,
        created_at: row.int(21)?,
        started_at: row.opt(22, Row::int)?,
        completed_at: row.opt(23, Row::int)?,
        releasing: row.flag(24)?,
        gated: row.opt(25, Row::text)? == Some("closed"),
        asked_digest: row.opt(26, Row::bytes)?.map(<[u8]>::to_vec),
    })
}

/// SQLite's RETURNING knows no alias.
fn returning() -> String {
    COLUMNS.replace("o.", "")
}

fn ready(rows: &[Row]) -> Result<Vec<OperationRow>> {
    let mut ready: Vec<OperationRow> = rows
        .iter()
        .map(operation_row)
        .filter(|row| row.as_ref().map_or(true, |row| row.open_predecessors == i64::from(row.gated)))
        .collect::<Result<_>>()?;
    ready.sort_by_key(|row| row.id);
    Ok(ready)
}

/// An operation at work, as the reaper sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRow {
    pub id: OperationId,
    pub worker: Option<WorkerId>,
    pub fence: i64,
    pub renewals: i64,
    pub lease_ms: i64,
}

#[derive(Clone, Debug)]
pub struct WorkerRow {
    pub id: WorkerId,
    pub name: String,
    pub document: Json,
    pub seen_at: i64,
    /// When its lease was taken away; none since it was heard of.
    pub lost_at: Option<i64>,
    /// When it said goodbye.
    pub left_at: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct OperationFilter {
    pub change: Option<ChangeId>,
    pub resource: Option<ResourceId>,
    pub status: Option<OperationStatus>,
    pub before: Option<OperationId>,
    pub sight: Sight,
    pub limit: i64,
}

pub struct LockedOperation {
    pub row: OperationRow,
    pub inputs: Option<Vec<u8>>,
    pub journaled: bool,
}

impl Tx<'_> {
    pub fn insert_operations(&mut self, new: &[NewOperation]) -> Result<()> {
        if new.iter().any(|new| new.status() == OperationStatus::Queued) {
            self.wake();
        }
        let rows: Vec<Vec<Value>> = new.iter().map(NewOperation::values).collect();
        self.put_rows(
            "INSERT INTO operations (id, organisation_id, change_id, plan_number, resource_id, kind, prev_status, status,
                 generation, conditional, releasing, queue_id, open_predecessors, attempt, retries, not_before, fence,
                 renewals, lines, lease_ms, payload, created_at, gate) VALUES",
            &rows, "")
    }

    /// Pairs of an operation and what comes before it.
    /// Each: what comes after, what before, and whether it goes on also when that fails.
    pub fn insert_edges(&mut self, edges: &[(OperationId, OperationId, bool)]) -> Result<()> {
        let rows: Vec<Vec<Value>> = edges
            .iter()
            .map(|(after, before, weak)| vec![after.into(), before.into(), (*weak).into()])
            .collect();
        self.put_rows("INSERT INTO operation_edges (operation_id, predecessor_id, weak) VALUES", &rows, "")
    }

    pub fn insert_wait(
        &mut self,
        resource: ResourceId,
        operation: OperationId,
        generation: i64,
        until: &str,
    ) -> Result<()> {
        self.put(
            "INSERT INTO waits (resource_id, operation_id, generation, until) VALUES ($1, $2, $3, $4)",
            params![resource, operation, generation, until],
        )
    }

    pub fn operation(&mut self, id: OperationId) -> Result<Option<OperationRow>> {
        let row =
            self.query_one(&format!("SELECT {COLUMNS} FROM operations o WHERE o.id = $1"), params![id])?;
        row.as_ref().map(operation_row).transpose()
    }

    pub fn lock_operation(&mut self, id: OperationId) -> Result<Option<OperationRow>> {
        let row = self.query_one(
            &format!("SELECT {COLUMNS} FROM operations o WHERE o.id = $1 FOR UPDATE"),
            params![id],
        )?;
        row.as_ref().map(operation_row).transpose()
    }

    /// As [`Tx::lock_operation`], with what the attempt was given, sealed, and whether it noted anything.
    pub fn lock_operation_with_inputs(&mut self, id: OperationId) -> Result<Option<LockedOperation>> {
        let sql = format!(
            "SELECT {COLUMNS}, o.inputs, CASE WHEN o.journal IS NULL THEN 0 ELSE 1 END
             FROM operations o WHERE o.id = $1 FOR UPDATE"
        );
        let Some(row) = self.query_one(&sql, params![id])? else { return Ok(None) };
        Ok(Some(LockedOperation {
            row: operation_row(&row)?,
            inputs: row.opt(27, Row::bytes)?.map(<[u8]>::to_vec),
            journaled: row.flag(28)?,
        }))
    }

    pub fn operations(
        &mut self,
        organisation: OrganisationId,
        filter: &OperationFilter,
    ) -> Result<Vec<OperationRow>> {
        let mut sql = format!("SELECT {COLUMNS} FROM operations o WHERE o.organisation_id = $1");
        let mut values: Vec<Value> = vec![organisation.into()];
        let mut narrow = |clause: &str, value: Value| {
            values.push(value);
            sql.push_str(&format!(" AND {clause} ${}", values.len()));
        };
        if let Some(change) = filter.change {
            narrow("o.change_id =", change.into());
        }
        if let Some(resource) = filter.resource {
            narrow("o.resource_id =", resource.into());
        }
        if let Some(status) = filter.status {
            narrow("o.status =", status.as_str().into());
        }
        if let Some(before) = filter.before {
            narrow("o.id <", before.into());
        }
        sql.push_str(&filter.sight.of_what_refers("o", &mut values));
        sql.push_str(&format!(" ORDER BY o.id DESC LIMIT {}", filter.limit.clamp(1, 1001)));
        self.query(&sql, &values)?.iter().map(operation_row).collect()
    }

    /// The queues of these managers, but for `unfit`, that have something ready; whose first waits longest, first.
    pub fn queues_with_work(&mut self, managers: &[String], unfit: &[i64], now: i64) -> Result<Vec<i64>> {
        if managers.is_empty() {
            return Ok(vec![]);
        }
        let mut values: Vec<Value> = vec![now.into()];
        values.extend(managers.iter().map(Value::from));
        let list = placeholders(2, managers.len());
        let but = match unfit {
            [] => String::new(),
            unfit => {
                let first = values.len() + 1;
                values.extend(unfit.iter().map(|queue| Value::from(*queue)));
                format!(" AND q.id NOT IN ({})", placeholders(first, unfit.len()))
            }
        };
        let rows = self.query(
            &format!(
                "SELECT id FROM (SELECT q.id, (SELECT min(o.not_before) FROM operations o
                         WHERE o.queue_id = q.id AND o.status = 'queued') AS longest
                     FROM queues q WHERE q.manager IN ({list}){but}) waiting
                 WHERE longest <= $1 ORDER BY longest"
            ),
            &values,
        )?;
        rows.iter().map(|row| row.int(0)).collect()
    }

    /// The next operations of a queue that are ready, and the application each is done for; `owner` limits them to
    /// one embedded process's changes. Of one table and in the order of its index, so that what others took in the
    /// meantime costs nothing.
    pub fn ready_operations(
        &mut self,
        queue: i64,
        owner: Option<Uuid>,
        now: i64,
        limit: i64,
    ) -> Result<Vec<(OperationRow, Option<String>)>> {
        let mut values: Vec<Value> = vec![now.into(), limit.into(), queue.into()];
        let mine = match owner {
            Some(owner) => {
                values.push(owner.into());
                " AND (SELECT c.owner_id FROM changes c WHERE c.id = o.change_id) = $4"
            }
            None => "",
        };
        let rows = self.query(
            &format!(
                "SELECT {COLUMNS}, (SELECT a.name FROM changes c JOIN applications a ON a.id = c.application_id
                     WHERE c.id = o.change_id)
                 FROM operations o WHERE o.status = 'queued' AND o.queue_id = $3 AND o.not_before <= $1{mine}
                 AND (SELECT r.id FROM operations r WHERE r.resource_id = o.resource_id AND r.status = 'in_progress')
                     IS NULL
                 ORDER BY o.not_before, o.id LIMIT $2 FOR UPDATE SKIP LOCKED"
            ),
            &values,
        )?;
        rows.iter().map(|row| Ok((operation_row(row)?, row.opt(27, Row::text)?.map(str::to_owned)))).collect()
    }

    /// When the next one that is held back by a retry's pause becomes ready.
    pub fn next_ready_at(&mut self) -> Result<Option<i64>> {
        let row = self.query_one("SELECT min(not_before) FROM operations WHERE status = 'queued'", &[])?;
        row.map_or(Ok(None), |row| row.opt(0, Row::int))
    }

    /// Raises the fence for a look at what is there: nothing else of it moves.
    pub fn raise_fence_to_look(&mut self, resource: ResourceId) -> Result<Option<i64>> {
        let row = self.query_one(
            "UPDATE resources SET fence = fence + 1 WHERE id = $1 AND state = 'provisioned' RETURNING fence",
            params![resource],
        )?;
        row.map(|row| row.int(0)).transpose()
    }

    /// Raises the fence of the resource; `None` when it is not where the operation expects it.
    pub fn raise_fence(&mut self, resource: ResourceId, now: i64) -> Result<Option<i64>> {
        let row = self.query_one(
            "UPDATE resources SET fence = fence + 1, prev_state = state, status = 'in_progress', updated_at = $2
             WHERE id = $1 AND status = 'queued' RETURNING fence",
            params![resource, now],
        )?;
        row.map(|row| row.int(0)).transpose()
    }

    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn claim_operation(
        &mut self,
        id: OperationId,
        worker: WorkerId,
        request: Uuid,
        fence: i64,
        by_token: bool,
        lease_ms: i64,
        inputs: Option<Vec<u8>>,
        inputs_digest: Option<Vec<u8>>,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE operations SET prev_status = 'queued', status = 'in_progress', worker_id = $2, request_id = $3,
                 fence = $4, lease_ms = $5, inputs = $6, inputs_digest = $7, attempt = attempt + 1, lines = 0,
                 renewals = renewals + 1, started_at = coalesce(started_at, $8), token_fence = $9
             WHERE id = $1 AND status = 'queued'",
            params![id, worker, request, fence, lease_ms, inputs, inputs_digest, now, by_token.then_some(fence)],
        )
    }

    /// The fence of an operation's last claim, and whether only a token of its own speaks for it.
    pub fn last_claim(&mut self, id: OperationId) -> Result<Option<(i64, bool)>> {
        let row = self.query_one("SELECT fence, token_fence FROM operations WHERE id = $1", params![id])?;
        row.map(|row| Ok((row.int(0)?, row.opt(1, Row::int)? == Some(row.int(0)?)))).transpose()
    }

    /// What is held by workers of an earlier release, or was claimed through a server of one.
    pub fn running_without_token(&mut self, organisation: OrganisationId) -> Result<Vec<OperationRow>> {
        let rows = self.query(
            &format!(
                "SELECT {COLUMNS} FROM operations o WHERE o.status = 'in_progress' AND o.organisation_id = $1
                 AND (o.token_fence IS NULL OR o.token_fence <> o.fence)"
            ),
            params![organisation],
        )?;
        rows.iter().map(operation_row).collect()
    }

    /// What the same request claimed before its answer was lost.
    pub fn claimed_by_request(&mut self, worker: WorkerId, request: Uuid) -> Result<Vec<OperationRow>> {
        let rows = self.query(
            &format!("SELECT {COLUMNS} FROM operations o WHERE o.worker_id = $1 AND o.status = 'in_progress' AND o.request_id = $2"),
            params![worker, request],
        )?;
        rows.iter().map(operation_row).collect()
    }

    /// Counts a renewal and lines; `None` when the claim is no longer held.
    pub fn renew_operation(
        &mut self,
        id: OperationId,
        fence: i64,
        lines: i64,
    ) -> Result<Option<(i64, bool)>> {
        let row = self.query_one(
            "UPDATE operations SET renewals = renewals + 1, lines = CASE WHEN lines > $3 THEN lines ELSE $3 END
             WHERE id = $1 AND fence = $2 AND status = 'in_progress'
             RETURNING lines, CASE WHEN cancel_requested_at IS NULL THEN 0 ELSE 1 END",
            params![id, fence, lines],
        )?;
        row.map(|row| Ok((row.int(0)?, row.int(1)? != 0))).transpose()
    }

    pub fn set_journal(&mut self, id: OperationId, journal: Vec<u8>) -> Result<()> {
        self.put("UPDATE operations SET journal = $2 WHERE id = $1", params![id, journal])
    }

    /// The journals of a resource's operations since the last that succeeded, oldest first.
    pub fn open_journals(&mut self, resource: ResourceId) -> Result<Vec<(OperationId, Vec<u8>)>> {
        let rows = self.query(
            "SELECT id, journal FROM operations WHERE resource_id = $1 AND journal IS NOT NULL ORDER BY id",
            params![resource],
        )?;
        rows.iter().map(|row| Ok((row.id(0)?, row.bytes(1)?.to_vec()))).collect()
    }

    /// A success: the record is true again, and journals tell nothing more.
    pub fn close_journals(&mut self, resource: ResourceId) -> Result<()> {
        self.put(
            "UPDATE operations SET journal = NULL WHERE resource_id = $1 AND journal IS NOT NULL",
            params![resource],
        )
    }

    pub fn journal(&mut self, id: OperationId) -> Result<Option<Vec<u8>>> {
        let row = self.query_one("SELECT journal FROM operations WHERE id = $1", params![id])?;
        row.map_or(Ok(None), |row| Ok(row.opt(0, Row::bytes)?.map(<[u8]>::to_vec)))
    }

    /// What an operation would be given as things are: what somebody agrees to.
    pub fn set_asked_digest(&mut self, id: OperationId, digest: Option<&[u8]>) -> Result<()> {
        self.put_one("UPDATE operations SET asked_digest = $2 WHERE id = $1", params![id, digest])
    }

    /// The end of an operation, from the status it must still have.
    pub fn end_operation(
        &mut self,
        row: &OperationRow,
        to: OperationStatus,
        digest: Option<Vec<u8>>,
        error: Option<&Json>,
        now: i64,
    ) -> Result<()> {
        let seconds = row.started_at.map(|at| (now - at).max(0) as f64 / 1e6);
        self.tally.operation(row.kind, to, seconds);
        self.put_one(
            "UPDATE operations SET prev_status = $2, status = $3, result_digest = $4, error = $5, completed_at = $6
             WHERE id = $1 AND status = $2",
            params![row.id, row.status.as_str(), to.as_str(), digest, error, now],
        )
    }

    /// Back into the queue: a retry, or after its worker was lost.
    pub fn requeue_operation(
        &mut self,
        row: &OperationRow,
        not_before: i64,
        error: Option<&Json>,
    ) -> Result<()> {
        self.wake();
        self.put_one(
            "UPDATE operations SET prev_status = 'in_progress', status = 'queued', worker_id = NULL, not_before = $3,
                 error = $4 WHERE id = $1 AND status = 'in_progress' AND fence = $2",
            params![row.id, row.fence, not_before, error],
        )
    }

    pub fn insert_attempt(
        &mut self,
        row: &OperationRow,
        outcome: &str,
        error: Option<&Json>,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO attempts (operation_id, number, worker_id, fence, started_at, ended_at, outcome, error)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (operation_id, number) DO NOTHING",
            params![row.id, row.attempt, row.worker, row.fence, row.started_at, now, outcome, error],
        )
    }

    pub fn running_operations(&mut self) -> Result<Vec<RunningRow>> {
        let rows = self.query(
            "SELECT id, worker_id, fence, renewals, lease_ms FROM operations WHERE status = 'in_progress'",
            &[],
        )?;
        rows.iter()
            .map(|row| {
                Ok(RunningRow {
                    id: row.id(0)?,
                    worker: row.opt(1, Row::id)?,
                    fence: row.int(2)?,
                    renewals: row.int(3)?,
                    lease_ms: row.int(4)?,
                })
            })
            .collect()
    }

    /// The application an operation is done for.
    pub fn application_of(&mut self, change: ChangeId) -> Result<Option<String>> {
        let row = self.query_one(
            "SELECT a.name FROM changes c JOIN applications a ON a.id = c.application_id WHERE c.id = $1",
            params![change],
        )?;
        row.map(|row| Ok(row.text(0)?.to_owned())).transpose()
    }

    /// Operations that come right after this one.
    /// What comes after, and whether it goes on also when this one fails.
    pub fn successors(&mut self, id: OperationId) -> Result<Vec<(OperationId, bool)>> {
        let rows = self.query(
            "SELECT operation_id, weak FROM operation_edges WHERE predecessor_id = $1 ORDER BY operation_id",
            params![id],
        )?;
        rows.iter().map(|row| Ok((row.id(0)?, row.flag(1)?))).collect()
    }

    /// One thing less to wait for, for all that come after this one; returns those with nothing left.
    pub fn advance_successors(&mut self, id: OperationId) -> Result<Vec<OperationRow>> {
        let rows = self.query(
            &format!(
                "UPDATE operations AS o SET open_predecessors = open_predecessors - 1 WHERE o.status = 'blocked'
                 AND o.id IN (SELECT operation_id FROM operation_edges WHERE predecessor_id = $1) RETURNING {}",
                returning()
            ),
            params![id],
        )?;
        ready(&rows)
    }

    /// One thing less to wait for; returns those with nothing left.
    pub fn advance_operations(&mut self, ids: &BTreeSet<OperationId>) -> Result<Vec<OperationRow>> {
        let values: Vec<Value> = ids.iter().map(Value::from).collect();
        let rows = self.query(
            &format!(
                "UPDATE operations AS o SET open_predecessors = open_predecessors - 1 WHERE o.status = 'blocked'
                 AND o.id IN ({}) RETURNING {}",
                placeholders(1, values.len()),
                returning()
            ),
            &values,
        )?;
        ready(&rows)
    }

    pub fn queue_operation(&mut self, id: OperationId, now: i64) -> Result<()> {
        self.wake();
        self.put_one(
            "UPDATE operations SET prev_status = 'blocked', status = 'queued', not_before = $2
             WHERE id = $1 AND status = 'blocked' AND open_predecessors = 0",
            params![id, now],
        )
    }

    /// Who waits for a resource, and for what; the waits are over.
    pub fn take_waits(
        &mut self,
        resource: ResourceId,
        until: &str,
        generation: i64,
    ) -> Result<BTreeSet<OperationId>> {
        let rows = self.query(
            "DELETE FROM waits WHERE resource_id = $1 AND until = $2 AND generation <= $3 RETURNING operation_id",
            params![resource, until, generation],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    pub fn waits_of(&mut self, operation: OperationId) -> Result<Vec<(ResourceId, String)>> {
        let rows = self.query(
            "SELECT resource_id, until FROM waits WHERE operation_id = $1 ORDER BY resource_id",
            params![operation],
        )?;
        rows.iter().map(|row| Ok((row.id(0)?, row.text(1)?.to_owned()))).collect()
    }

    pub fn drop_waits(&mut self, operation: OperationId) -> Result<()> {
        self.put("DELETE FROM waits WHERE operation_id = $1", params![operation])
    }

    /// Predecessors that are not done.
    pub fn open_predecessors_of(&mut self, operation: OperationId) -> Result<Vec<OperationRow>> {
        let rows = self.query(
            &format!(
                "SELECT {COLUMNS} FROM operations o JOIN operation_edges e ON e.predecessor_id = o.id WHERE e.operation_id = $1
                 AND o.status <> 'succeeded' ORDER BY o.id"
            ),
            params![operation],
        )?;
        rows.iter().map(operation_row).collect()
    }

    /// Not yet over, of one change.
    pub fn open_operations_of(&mut self, change: ChangeId) -> Result<Vec<OperationRow>> {
        let rows = self.query(
            &format!(
                "SELECT {COLUMNS} FROM operations o WHERE o.change_id = $1
                 AND o.status IN ('blocked', 'approval_pending', 'queued', 'in_progress') ORDER BY o.id"
            ),
            params![change],
        )?;
        rows.iter().map(operation_row).collect()
    }

    pub fn ask_to_stop(&mut self, change: ChangeId, now: i64) -> Result<u64> {
        self.execute(
            "UPDATE operations SET cancel_requested_at = $2 WHERE change_id = $1 AND status = 'in_progress'
             AND cancel_requested_at IS NULL",
            params![change, now],
        )
    }

    /// Of the operations a worker runs, those that shall stop or are no longer its own.
    pub fn to_stop(&mut self, worker: WorkerId, running: &[OperationId]) -> Result<Vec<OperationId>> {
        if running.is_empty() {
            return Ok(vec![]);
        }
        let mut values: Vec<Value> = vec![worker.into()];
        values.extend(running.iter().map(Value::from));
        let rows = self.query(
            &format!(
                "SELECT id FROM operations WHERE id IN ({}) AND (cancel_requested_at IS NOT NULL
                 OR status <> 'in_progress' OR worker_id <> $1)",
                placeholders(2, running.len())
            ),
            &values,
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    pub fn see_worker(
        &mut self,
        organisation: OrganisationId,
        id: WorkerId,
        name: &str,
        document: &Json,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO workers (id, organisation_id, name, document, seen_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (id) DO UPDATE SET document = excluded.document, seen_at = excluded.seen_at,
                 lost_at = NULL, left_at = NULL",
            params![id, organisation, name, document, now],
        )
    }

    /// Its lease was taken away; until it is heard of again, it is dead.
    pub fn lose_worker(&mut self, id: WorkerId, now: i64) -> Result<()> {
        self.put("UPDATE workers SET lost_at = $2 WHERE id = $1", params![id, now])
    }

    /// It has nothing left to do and says so.
    pub fn leave_worker(&mut self, id: WorkerId, now: i64) -> Result<()> {
        self.put("UPDATE workers SET left_at = $2 WHERE id = $1", params![id, now])
    }

    pub fn workers(&mut self, organisation: OrganisationId) -> Result<Vec<WorkerRow>> {
        let rows = self.query(
            "SELECT id, name, document, seen_at, lost_at, left_at FROM workers WHERE organisation_id = $1 ORDER BY seen_at DESC",
            params![organisation],
        )?;
        rows.iter()
            .map(|row| {
                Ok(WorkerRow {
                    id: row.id(0)?,
                    name: row.text(1)?.to_owned(),
                    document: row.json(2)?,
                    seen_at: row.int(3)?,
                    lost_at: row.opt(4, Row::int)?,
                    left_at: row.opt(5, Row::int)?,
                })
            })
            .collect()
    }
}

impl Tx<'_> {
    /// Another change answers for an operation from here on.
    pub fn hand_operation(&mut self, id: OperationId, from: ChangeId, to: ChangeId) -> Result<()> {
        self.put_one(
            "UPDATE operations SET change_id = $3, cancel_requested_at = NULL,
                 releasing = (SELECT CASE WHEN c.releases > 0 THEN 1 ELSE 0 END FROM changes c WHERE c.id = $3)
             WHERE id = $1 AND change_id = $2",
            params![id, from, to],
        )?;
        self.put_one("UPDATE changes SET open_operations = open_operations + 1 WHERE id = $1", params![to])
    }

    /// An open change, other than this one, that waits for a resource.
    pub fn change_waiting_for(&mut self, resource: ResourceId, but: ChangeId) -> Result<Option<ChangeId>> {
        let row = self.query_one(
            "SELECT o.change_id FROM waits w JOIN operations o ON o.id = w.operation_id
             WHERE w.resource_id = $1 AND w.until = 'ready' AND o.change_id <> $2 AND o.status = 'blocked'
             ORDER BY o.change_id LIMIT 1",
            params![resource, but],
        )?;
        row.map(|row| row.id(0)).transpose()
    }
}
