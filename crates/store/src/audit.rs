//! The audit trail: events, chained by keyed hashes so that none can be changed or taken out unnoticed.

use conductor_domain::ids::{EventId, OrganisationId};
use serde_json::json;

use crate::{Result, Row, Tx, Value, params, principals::EventRow};

/// An event with its place in the chain.
#[derive(Clone, Debug)]
pub struct ChainedEvent {
    pub position: i64,
    pub hash: Vec<u8>,
    /// `None`: the chain names it, and it is not there.
    pub event: Option<EventRow>,
}

impl Tx<'_> {
    /// The last place of the chain and its hash; 0 and nothing when it is empty.
    pub fn chain_head(&mut self, organisation: OrganisationId) -> Result<(i64, Vec<u8>)> {
        let row = self.query_one(
            "SELECT position, hash FROM audit_chain WHERE organisation_id = $1 ORDER BY position DESC LIMIT 1",
            params![organisation],
        )?;
        row.map_or(Ok((0, vec![])), |row| Ok((row.int(0)?, row.bytes(1)?.to_vec())))
    }

    /// Events that are in no chain yet, oldest first.
    pub fn unsealed_events(&mut self, organisation: OrganisationId, limit: usize) -> Result<Vec<EventRow>> {
        let rows = self.query(
            &format!(
                "SELECT id, kind, actor, change_id, resource_id, operation_id, document, created_at FROM events
                 WHERE organisation_id = $1 AND chain IS NULL ORDER BY id LIMIT {limit}"
            ),
            params![organisation],
        )?;
        rows.iter().map(|row| event_row(row, 0)).collect()
    }

    /// Adds events to the chain, from this place on. Whoever comes second finds the place taken and looks again.
    pub fn append_to_chain(
        &mut self,
        organisation: OrganisationId,
        first: i64,
        sealed: &[(EventId, Vec<u8>)],
    ) -> Result<()> {
        let rows: Vec<Vec<Value>> = sealed
            .iter()
            .enumerate()
            .map(|(offset, (event, hash))| {
                vec![organisation.into(), (first + offset as i64).into(), event.into(), hash.clone().into()]
            })
            .collect();
        self.put_rows(
            "INSERT INTO audit_chain (organisation_id, position, event_id, hash) VALUES",
            &rows,
            "",
        )?;
        for (event, hash) in sealed {
            self.put_one("UPDATE events SET chain = $2 WHERE id = $1", params![event, hash.clone()])?;
        }
        Ok(())
    }

    /// The chain after a place, in order.
    pub fn chain_after(
        &mut self,
        organisation: OrganisationId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<ChainedEvent>> {
        let rows = self.query(
            &format!(
                "SELECT c.position, c.hash, e.id, e.kind, e.actor, e.change_id, e.resource_id, e.operation_id,
                     e.document, e.created_at
                 FROM audit_chain c LEFT JOIN events e ON e.id = c.event_id
                 WHERE c.organisation_id = $1 AND c.position > $2 ORDER BY c.position LIMIT {limit}"
            ),
            params![organisation, after],
        )?;
        rows.iter()
            .map(|row| {
                let there = row.opt(2, Row::bytes)?.is_some();
                Ok(ChainedEvent {
                    position: row.int(0)?,
                    hash: row.bytes(1)?.to_vec(),
                    event: if there { Some(event_row(row, 2)?) } else { None },
                })
            })
            .collect()
    }
}

impl EventRow {
    /// What a hash covers, always the same for the same event.
    pub fn essence(&self) -> Vec<u8> {
        json!([
            self.id,
            self.kind,
            self.actor,
            self.change,
            self.resource,
            self.operation,
            self.document,
            self.created_at
        ])
        .to_string()
        .into_bytes()
    }
}

fn event_row(row: &Row, at: usize) -> Result<EventRow> {
    Ok(EventRow {
        id: row.id(at)?,
        kind: row.text(at + 1)?.to_owned(),
        actor: row.text(at + 2)?.to_owned(),
        change: row.opt(at + 3, Row::id)?,
        resource: row.opt(at + 4, Row::id)?,
        operation: row.opt(at + 5, Row::id)?,
        document: row.json(at + 6)?,
        created_at: row.int(at + 7)?,
    })
}
