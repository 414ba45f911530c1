//! Alerts and what is still to be told of them. Every move names the status it leaves, so that of several servers
//! one makes it.

use conductor_domain::ids::{ChangeId, OrganisationId};
use serde_json::Value as Json;
use uuid::Uuid;

use crate::{Result, Row, Tx, params};

#[derive(Clone, Debug)]
pub struct AlertRow {
    pub name: String,
    pub firing: bool,
    pub since: i64,
    pub seen_at: i64,
    pub told: bool,
    pub document: Json,
    pub silenced_until: Option<i64>,
    pub silenced_by: Option<String>,
}

impl AlertRow {
    pub fn is_silenced(&self, now: i64) -> bool {
        self.silenced_until.is_some_and(|until| until > now)
    }
}

const ALERT: &str =
    "SELECT name, status, since, seen_at, told, document, silenced_until, silenced_by FROM alerts
    WHERE organisation_id = $1";

fn alert_row(row: &Row) -> Result<AlertRow> {
    Ok(AlertRow {
        name: row.text(0)?.to_owned(),
        firing: row.text(1)? == "firing",
        since: row.int(2)?,
        seen_at: row.int(3)?,
        told: row.flag(4)?,
        document: row.json(5)?,
        silenced_until: row.opt(6, Row::int)?,
        silenced_by: row.opt(7, Row::text)?.map(str::to_owned),
    })
}

/// Something to tell, and how often that was tried.
#[derive(Clone, Debug)]
pub struct Notice {
    pub id: Uuid,
    pub document: Json,
    pub attempts: i64,
}

impl Tx<'_> {
    pub fn alerts(&mut self, organisation: OrganisationId) -> Result<Vec<AlertRow>> {
        let rows = self.query(&format!("{ALERT} ORDER BY name"), params![organisation])?;
        rows.iter().map(alert_row).collect()
    }

    /// The row of an alert, made when it is missing, and nobody else's to move until this transaction is over.
    pub fn lock_alert(&mut self, organisation: OrganisationId, name: &str, now: i64) -> Result<AlertRow> {
        self.put(
            "INSERT INTO alerts (organisation_id, name, status, since, seen_at, told, document)
             VALUES ($1, $2, 'ok', $3, 0, 0, '{}') ON CONFLICT (organisation_id, name) DO NOTHING",
            params![organisation, name, now],
        )?;
        let row =
            self.query_one(&format!("{ALERT} AND name = $2 FOR UPDATE"), params![organisation, name])?;
        row.as_ref().map(alert_row).unwrap_or_else(|| Err(crate::Error::Moved(format!("alert {name}"))))
    }

    pub fn fire_alert(
        &mut self,
        organisation: OrganisationId,
        name: &str,
        document: &Json,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE alerts SET status = 'firing', since = $4, seen_at = $4, told = 0, document = $3
             WHERE organisation_id = $1 AND name = $2 AND status = 'ok'",
            params![organisation, name, document, now],
        )
    }

    /// It still holds, here.
    pub fn see_alert(
        &mut self,
        organisation: OrganisationId,
        name: &str,
        document: &Json,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE alerts SET seen_at = $4, document = $3
             WHERE organisation_id = $1 AND name = $2 AND status = 'firing'",
            params![organisation, name, document, now],
        )
    }

    pub fn tell_alert(&mut self, organisation: OrganisationId, name: &str) -> Result<()> {
        self.put_one(
            "UPDATE alerts SET told = 1 WHERE organisation_id = $1 AND name = $2 AND status = 'firing' AND told = 0",
            params![organisation, name],
        )
    }

    pub fn resolve_alert(&mut self, organisation: OrganisationId, name: &str, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE alerts SET status = 'ok', since = $3, told = 0
             WHERE organisation_id = $1 AND name = $2 AND status = 'firing'",
            params![organisation, name, now],
        )
    }

    pub fn silence_alert(
        &mut self,
        organisation: OrganisationId,
        name: &str,
        until: Option<i64>,
        by: &str,
    ) -> Result<()> {
        self.put_one(
            "UPDATE alerts SET silenced_until = $3, silenced_by = $4 WHERE organisation_id = $1 AND name = $2",
            params![organisation, name, until, by],
        )
    }

    /// Something to be told; of more than `most` the oldest are given up. Tells how many were.
    pub fn insert_notice(
        &mut self,
        organisation: OrganisationId,
        id: Uuid,
        document: &Json,
        most: i64,
        now: i64,
    ) -> Result<u64> {
        self.put(
            "INSERT INTO alert_notices (id, organisation_id, document, attempts, next_at, created_at)
             VALUES ($1, $2, $3, 0, $4, $4)",
            params![id, organisation, document, now],
        )?;
        self.execute(
            "DELETE FROM alert_notices WHERE organisation_id = $1 AND id NOT IN (
                 SELECT id FROM alert_notices WHERE organisation_id = $1 ORDER BY id DESC LIMIT $2)",
            params![organisation, most],
        )
    }

    /// Whether the oldest notice is due.
    pub fn notice_is_due(&mut self, organisation: OrganisationId, now: i64) -> Result<bool> {
        let row = self.query_one(
            "SELECT next_at FROM alert_notices WHERE organisation_id = $1 ORDER BY id LIMIT 1",
            params![organisation],
        )?;
        row.map_or(Ok(false), |row| Ok(row.int(0)? <= now))
    }

    /// The oldest notice, if it is due: nobody else gets it before `until`. The others wait for it.
    pub fn take_notice(
        &mut self,
        organisation: OrganisationId,
        now: i64,
        until: i64,
    ) -> Result<Option<Notice>> {
        let row = self.query_one(
            "SELECT id, document, attempts, next_at FROM alert_notices WHERE organisation_id = $1
             ORDER BY id LIMIT 1 FOR UPDATE",
            params![organisation],
        )?;
        let Some(row) = row.filter(|row| row.int(3).is_ok_and(|next| next <= now)) else {
            return Ok(None);
        };
        let id: Uuid = row.id(0)?;
        self.put_one(
            "UPDATE alert_notices SET next_at = $2, attempts = attempts + 1 WHERE id = $1",
            params![id, until],
        )?;
        Ok(Some(Notice { id, document: row.json(1)?, attempts: row.int(2)? + 1 }))
    }

    pub fn notice_told(&mut self, id: Uuid) -> Result<()> {
        self.put("DELETE FROM alert_notices WHERE id = $1", params![id])
    }

    pub fn notice_later(&mut self, id: Uuid, at: i64) -> Result<()> {
        self.put("UPDATE alert_notices SET next_at = $2 WHERE id = $1", params![id, at])
    }
}

/// What alerts go by.
impl Tx<'_> {
    /// Deployments that ended since then: all that ran to an end, and those of them that failed.
    pub fn ended_since(&mut self, organisation: OrganisationId, since: i64) -> Result<(i64, i64)> {
        let row = self.query_one(
            "SELECT count(*), coalesce(sum(CASE WHEN status = 'succeeded' THEN 0 ELSE 1 END), 0) FROM changes
             WHERE completed_at >= $2 AND organisation_id = $1 AND status IN ('succeeded', 'failed', 'timed_out')
             AND kind IN ('deploy', 'destroy', 'teardown', 'rollback')",
            params![organisation, since],
        )?;
        row.map_or(Ok((0, 0)), |row| Ok((row.int(0)?, row.int(1)?)))
    }

    /// Running beyond half of their limit, or for longer than `limit` microseconds where one is given; the longest
    /// running first, at most `most`.
    pub fn long_running(
        &mut self,
        organisation: OrganisationId,
        limit: Option<i64>,
        now: i64,
        most: i64,
    ) -> Result<Vec<ChangeId>> {
        let rows = self.query(
            "SELECT id FROM changes WHERE status = 'in_progress' AND organisation_id = $1 AND started_at <= CASE
                 WHEN CAST($2 AS BIGINT) > 0 THEN CAST($3 AS BIGINT) - CAST($2 AS BIGINT)
                 WHEN timeout_at IS NULL THEN 0
                 ELSE CAST($3 AS BIGINT) - (timeout_at - started_at) / 2 END
             ORDER BY started_at LIMIT $4",
            params![organisation, limit.unwrap_or(0), now, most],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// Names of workers that were last heard of before `silent`, or whose lease was taken away, no longer than `window`
    /// microseconds ago; and that did not say goodbye.
    pub fn dead_workers(
        &mut self,
        organisation: OrganisationId,
        silent: i64,
        window: i64,
        now: i64,
    ) -> Result<Vec<String>> {
        let rows = self.query(
            "SELECT name FROM workers WHERE organisation_id = $1 AND left_at IS NULL
             AND ((seen_at < $2 AND seen_at > $2 - $3) OR lost_at > $4 - $3)
             ORDER BY name",
            params![organisation, silent, window, now],
        )?;
        rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
    }
}
