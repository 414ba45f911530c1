//! Logs of what is over: packed into objects outside the database, or deleted when they are old enough.

use conductor_domain::{
    ids::{ChangeId, OperationId, OrganisationId},
    work::LogLine,
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Owner, Result, Sealer, Tx,
    logs::{LogChunk, compress, decompress},
    params,
};

/// Chunks packed into one body, and the rows they came from.
pub struct Bundle {
    pub first_seq: i64,
    pub last_seq: i64,
    pub rows: u64,
    /// Sealed.
    pub body: Vec<u8>,
}

/// Where lines of a change are, outside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogObject {
    pub first_seq: i64,
    pub last_seq: i64,
    pub address: String,
}

#[derive(Serialize, Deserialize)]
struct Packed {
    first: i64,
    operation: OperationId,
    lines: Vec<LogLine>,
}

fn owner(organisation: OrganisationId, change: &ChangeId) -> Owner<'_> {
    Owner { organisation, kind: "log", id: change.0.as_bytes() }
}

/// The chunks of an object, as they were.
pub fn open_bundle(
    sealer: &Sealer,
    organisation: OrganisationId,
    change: ChangeId,
    body: &[u8],
) -> Result<Vec<LogChunk>> {
    let json = decompress(&sealer.open(owner(organisation, &change), body)?)?;
    let packed: Vec<Packed> =
        serde_json::from_slice(&json).map_err(|error| Error::Corrupt(error.to_string()))?;
    let chunk = |one: Packed| LogChunk { first_seq: one.first, operation: one.operation, lines: one.lines };
    Ok(packed.into_iter().map(chunk).collect())
}

impl Tx<'_> {
    /// Changes that ended after `after` and no later than `until`, oldest first, and when.
    pub fn changes_ended(
        &mut self,
        organisation: OrganisationId,
        after: i64,
        until: i64,
        limit: i64,
    ) -> Result<Vec<(ChangeId, i64)>> {
        let rows = self.query(
            "SELECT id, completed_at FROM changes WHERE completed_at > $2 AND completed_at <= $3
             AND organisation_id = $1 ORDER BY completed_at LIMIT $4",
            params![organisation, after, until, limit],
        )?;
        rows.iter().map(|row| Ok((row.id(0)?, row.int(1)?))).collect()
    }

    /// The oldest chunks of a change, up to `most` bytes of them but one at least; none when there are none.
    pub fn bundle_log(
        &mut self,
        organisation: OrganisationId,
        change: ChangeId,
        most: usize,
    ) -> Result<Option<Bundle>> {
        let (mut packed, mut bytes, mut after) = (Vec::new(), 0, 0);
        'all: loop {
            let chunks = self.log_chunks(organisation, change, after, 16)?;
            if chunks.is_empty() {
                break;
            }
            for chunk in chunks {
                bytes += chunk.lines.iter().map(|line| line.text.len() + 64).sum::<usize>();
                if bytes > most && !packed.is_empty() {
                    break 'all;
                }
                after = chunk.first_seq + chunk.lines.len() as i64 - 1;
                packed.push(Packed {
                    first: chunk.first_seq,
                    operation: chunk.operation,
                    lines: chunk.lines,
                });
            }
        }
        let Some(first_seq) = packed.first().map(|one| one.first) else {
            return Ok(None);
        };
        let json = serde_json::to_vec(&packed).map_err(|error| Error::Corrupt(error.to_string()))?;
        let body = self.sealer().seal(owner(organisation, &change), &compress(&json))?;
        Ok(Some(Bundle { first_seq, last_seq: after, rows: packed.len() as u64, body }))
    }

    /// The object takes the place of its rows. `false`: they are not what was packed; nothing is changed.
    pub fn log_moved(
        &mut self,
        organisation: OrganisationId,
        change: ChangeId,
        bundle: (i64, i64, u64),
        address: &str,
        now: i64,
    ) -> Result<bool> {
        let (first, last, rows) = bundle;
        let over = self.lock_change(change)?.is_some_and(|row| row.status.is_over());
        let found = self.query_one(
            "SELECT count(*) FROM log_chunks WHERE change_id = $1 AND first_seq >= $2 AND first_seq <= $3",
            params![change, first, last],
        )?;
        if !over || found.map_or(Ok(0), |row| row.int(0))? as u64 != rows {
            return Ok(false);
        }
        self.put(
            "DELETE FROM log_chunks WHERE change_id = $1 AND first_seq >= $2 AND first_seq <= $3",
            params![change, first, last],
        )?;
        self.put(
            "INSERT INTO log_objects (change_id, first_seq, last_seq, organisation_id, address, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
            params![change, first, last, organisation, address, now],
        )?;
        Ok(true)
    }

    /// The first object that holds lines after `after`; objects come before chunks.
    pub fn log_object(&mut self, change: ChangeId, after: i64) -> Result<Option<LogObject>> {
        let row = self.query_one(
            "SELECT first_seq, last_seq, address FROM log_objects WHERE change_id = $1 AND last_seq > $2
             ORDER BY first_seq LIMIT 1",
            params![change, after],
        )?;
        row.map(|row| {
            Ok(LogObject { first_seq: row.int(0)?, last_seq: row.int(1)?, address: row.text(2)?.to_owned() })
        })
        .transpose()
    }

    pub fn forget_log_object(&mut self, change: ChangeId, first: i64) -> Result<()> {
        self.put("DELETE FROM log_objects WHERE change_id = $1 AND first_seq = $2", params![change, first])
    }

    /// Deletes chunks of a change, at most `limit`; tells how many.
    pub fn delete_log(&mut self, change: ChangeId, limit: i64) -> Result<u64> {
        self.execute(
            "DELETE FROM log_chunks WHERE change_id = $1 AND first_seq IN (
                 SELECT first_seq FROM log_chunks WHERE change_id = $1 ORDER BY first_seq LIMIT $2)",
            params![change, limit],
        )
    }
}
