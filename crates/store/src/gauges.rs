//! How things stand now, in few cheap looks: every one of them goes by an index that holds open things only.

use std::collections::BTreeMap;

use conductor_domain::{
    ids::OrganisationId,
    lifecycle::{ChangeKind, ChangeStatus},
};

use crate::{Result, Row, Tx, params};

/// What is ready for one manager and not claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDepth {
    pub ready: i64,
    /// Since when the oldest of them is ready.
    pub oldest: Option<i64>,
}

impl Tx<'_> {
    /// By manager; those that could be asked for and are not are there with nothing.
    pub fn queue_depths(
        &mut self,
        organisation: OrganisationId,
        now: i64,
    ) -> Result<BTreeMap<String, QueueDepth>> {
        let mut depths = BTreeMap::new();
        for row in self.query(
            "SELECT DISTINCT manager FROM template_versions WHERE organisation_id = $1",
            params![organisation],
        )? {
            depths.insert(row.text(0)?.to_owned(), QueueDepth::default());
        }
        let rows = self.query(
            "SELECT q.manager, count(*), min(o.not_before) FROM operations o JOIN queues q ON q.id = o.queue_id
             WHERE o.status = 'queued' AND o.not_before <= $1 GROUP BY q.manager",
            params![now],
        )?;
        for row in rows {
            let depth = QueueDepth { ready: row.int(1)?, oldest: row.opt(2, Row::int)? };
            depths.insert(row.text(0)?.to_owned(), depth);
        }
        Ok(depths)
    }

    /// Changes that are not over, by kind and status.
    pub fn open_changes(&mut self) -> Result<BTreeMap<(ChangeKind, ChangeStatus), i64>> {
        let rows = self.query(
            "SELECT kind, status, count(*) FROM changes
             WHERE status IN ('pending', 'approval_pending', 'in_progress') GROUP BY kind, status",
            &[],
        )?;
        rows.iter().map(|row| Ok(((row.word(0)?, row.word(1)?), row.int(2)?))).collect()
    }
}
