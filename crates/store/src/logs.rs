//! Logs as chunks: many lines a row, compressed, then sealed. Sequence numbers come from a head row updated in
//! the same transaction, so that what a reader has seen is never overtaken.

use conductor_domain::{
    ids::{ChangeId, OperationId, OrganisationId},
    work::LogLine,
};

use crate::{Error, Owner, Result, Tx, params};

#[derive(Clone, Debug)]
pub struct LogChunk {
    pub first_seq: i64,
    pub operation: OperationId,
    pub lines: Vec<LogLine>,
}

fn pack(lines: &[LogLine]) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(lines).map_err(|error| Error::Corrupt(error.to_string()))?;
    Ok(compress(&json))
}

pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    lz4_flex::compress_prepend_size(bytes)
}

pub(crate) fn decompress(bytes: &[u8]) -> Result<Vec<u8>> {
    lz4_flex::decompress_size_prepended(bytes).map_err(|error| Error::Corrupt(error.to_string()))
}

fn unpack(bytes: &[u8]) -> Result<Vec<LogLine>> {
    serde_json::from_slice(&decompress(bytes)?).map_err(|error| Error::Corrupt(error.to_string()))
}

impl Tx<'_> {
    pub fn append_log(
        &mut self,
        organisation: OrganisationId,
        change: ChangeId,
        operation: OperationId,
        lines: &[LogLine],
        now: i64,
    ) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.wake();
        let owner = Owner { organisation, kind: "log", id: change.0.as_bytes() };
        let body = self.sealer().seal(owner, &pack(lines)?)?;
        let count = lines.len() as i64;
        let oldest = lines.iter().map(|line| line.at).min().unwrap_or(now);
        self.tally.lines(count as u64, (now - oldest).max(0) as f64 / 1e6);
        self.put_one(
            "UPDATE log_heads SET next_seq = next_seq + $2 WHERE change_id = $1",
            params![change, count],
        )?;
        self.put(
            "INSERT INTO log_chunks (change_id, first_seq, count, organisation_id, operation_id, body, created_at)
             SELECT change_id, next_seq - $2, $2, $3, $4, $5, $6 FROM log_heads WHERE change_id = $1",
            params![change, count, organisation, operation, body, now],
        )
    }

    /// Chunks that hold lines after `after`, oldest first, at most `limit` chunks.
    pub fn log_chunks(
        &mut self,
        organisation: OrganisationId,
        change: ChangeId,
        after: i64,
        limit: i64,
    ) -> Result<Vec<LogChunk>> {
        let rows = self.query(
            "SELECT first_seq, operation_id, body FROM log_chunks WHERE change_id = $1 AND first_seq + count > $2 + 1
             ORDER BY first_seq LIMIT $3",
            params![change, after, limit],
        )?;
        let owner = Owner { organisation, kind: "log", id: change.0.as_bytes() };
        rows.iter()
            .map(|row| {
                let body = self.sealer().open(owner, row.bytes(2)?)?;
                Ok(LogChunk { first_seq: row.int(0)?, operation: row.id(1)?, lines: unpack(&body)? })
            })
            .collect()
    }

    /// Passes the lines of one operation through `mask` and keeps what changed.
    pub fn rewrite_log(
        &mut self,
        organisation: OrganisationId,
        change: ChangeId,
        operation: OperationId,
        mask: &dyn Fn(&str) -> Option<String>,
    ) -> Result<()> {
        let rows = self.query(
            "SELECT first_seq, body FROM log_chunks WHERE change_id = $1 AND operation_id = $2",
            params![change, operation],
        )?;
        let owner = Owner { organisation, kind: "log", id: change.0.as_bytes() };
        for row in rows {
            let mut lines = unpack(&self.sealer().open(owner, row.bytes(1)?)?)?;
            let mut touched = false;
            for line in &mut lines {
                if let Some(masked) = mask(&line.text) {
                    line.text = masked;
                    touched = true;
                }
            }
            if touched {
                let body = self.sealer().seal(owner, &pack(&lines)?)?;
                self.put_one(
                    "UPDATE log_chunks SET body = $3 WHERE change_id = $1 AND first_seq = $2",
                    params![change, row.int(0)?, body],
                )?;
            }
        }
        Ok(())
    }
}
