//! The audit trail: events, chained by keyed hashes so that none can be changed, put in or taken out unnoticed.

use conductor_domain::ids::{ChangeId, EventId, OrganisationId, ResourceId};
use serde_json::json;

use crate::{Result, Row, Sealer, Tx, Value, params, principals::EventRow};

/// An event with its place in the chain.
#[derive(Clone, Debug)]
pub struct ChainedEvent {
    pub position: i64,
    pub hash: Vec<u8>,
    /// Of the entry before it; empty for the first.
    pub previous: Vec<u8>,
    /// `None`: the chain names it, and it is not there.
    pub event: Option<EventRow>,
    /// By whoever wrote the event; older programs did not.
    pub seal: Option<Vec<u8>>,
}

/// Which part of the chain.
#[derive(Clone, Debug, Default)]
pub struct ChainFilter {
    /// From its end backwards.
    pub newest_first: bool,
    /// Beyond this place, in the order that is asked for.
    pub beyond: Option<i64>,
    pub actor: Option<String>,
    pub kind: Option<String>,
    pub change: Option<ChangeId>,
    pub resource: Option<ResourceId>,
    pub since: Option<i64>,
    pub limit: usize,
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
        match sealed.last() {
            Some((_, hash)) => self.note_chain_end(organisation, first + sealed.len() as i64 - 1, hash),
            None => Ok(()),
        }
    }

    /// How far the chain goes, so that one that was cut off is noticed.
    fn note_chain_end(&mut self, organisation: OrganisationId, position: i64, hash: &[u8]) -> Result<()> {
        let note = end_note(&self.sealer(), position, hash)?;
        self.put(
            "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            params![end_key(organisation), note],
        )
    }

    /// Where the chain was said to end; `None` when nobody said so, or somebody else did.
    pub fn chain_end(&mut self, organisation: OrganisationId) -> Result<Option<(i64, Vec<u8>)>> {
        let row = self.query_one("SELECT value FROM meta WHERE key = $1", params![end_key(organisation)])?;
        let Some(row) = row else {
            return Ok(None);
        };
        let note = row.bytes(0)?;
        let (Some(position), Some(hash)) = (note.get(..8), note.get(8..40)) else {
            return Ok(None);
        };
        let position = i64::from_be_bytes(position.try_into().unwrap_or_default());
        let sound = end_note(&self.sealer(), position, hash)? == note;
        Ok(sound.then(|| (position, hash.to_vec())))
    }

    /// An event that says that it is in the chain, and is not.
    pub fn unchained_event(&mut self, organisation: OrganisationId) -> Result<Option<EventId>> {
        let row = self.query_one(
            "SELECT e.id FROM events e WHERE e.organisation_id = $1 AND e.chain IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM audit_chain c WHERE c.event_id = e.id) ORDER BY e.id LIMIT 1",
            params![organisation],
        )?;
        row.map(|row| row.id(0)).transpose()
    }

    /// A part of the chain, in order.
    pub fn chain(&mut self, organisation: OrganisationId, filter: &ChainFilter) -> Result<Vec<ChainedEvent>> {
        let mut sql =
            "SELECT c.position, c.hash, p.hash, e.seal, e.id, e.kind, e.actor, e.change_id, e.resource_id,
                 e.operation_id, e.document, e.created_at
             FROM audit_chain c
             LEFT JOIN audit_chain p ON p.organisation_id = c.organisation_id AND p.position = c.position - 1
             LEFT JOIN events e ON e.id = c.event_id WHERE c.organisation_id = $1"
                .to_owned();
        let mut values: Vec<Value> = vec![organisation.into()];
        let beyond = if filter.newest_first { "c.position <" } else { "c.position >" };
        let narrowed = [
            (beyond, filter.beyond.map(Value::from)),
            ("e.actor =", filter.actor.as_ref().map(Value::from)),
            ("e.kind =", filter.kind.as_ref().map(Value::from)),
            ("e.change_id =", filter.change.map(Value::from)),
            ("e.resource_id =", filter.resource.map(Value::from)),
            ("e.created_at >=", filter.since.map(Value::from)),
        ];
        for (clause, value) in narrowed {
            if let Some(value) = value {
                values.push(value);
                sql.push_str(&format!(" AND {clause} ${}", values.len()));
            }
        }
        let order = if filter.newest_first { "DESC" } else { "ASC" };
        sql.push_str(&format!(" ORDER BY c.position {order} LIMIT {}", filter.limit));
        self.query(&sql, &values)?.iter().map(chained).collect()
    }
}

fn chained(row: &Row) -> Result<ChainedEvent> {
    let there = !row.is_null(4);
    Ok(ChainedEvent {
        position: row.int(0)?,
        hash: row.bytes(1)?.to_vec(),
        previous: row.opt(2, Row::bytes)?.unwrap_or_default().to_vec(),
        seal: row.opt(3, Row::bytes)?.map(<[u8]>::to_vec),
        event: if there { Some(event_row(row, 4)?) } else { None },
    })
}

fn end_key(organisation: OrganisationId) -> String {
    format!("audit end of {organisation}")
}

fn end_note(sealer: &Sealer, position: i64, hash: &[u8]) -> Result<Vec<u8>> {
    let mut note = position.to_be_bytes().to_vec();
    note.extend(hash);
    let proof = sealer.digest(&[b"chain end\0".as_slice(), &note].concat())?;
    note.extend(proof);
    Ok(note)
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

    /// That this program wrote it.
    pub fn seal(&self, sealer: &Sealer) -> Result<Vec<u8>> {
        sealer.digest(&[b"event\0".as_slice(), &self.essence()].concat())
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
