//! The index by which resources are found that are like what is asked for.

use std::collections::BTreeSet;

use conductor_domain::{
    ids::{DomainId, OrganisationId, ResourceId},
    sharing::MatchOn,
};
use uuid::Uuid;

use crate::{Error, Result, Row, Tx, Value, params, tx::placeholders};

/// A set of parameters that somebody matches on.
#[derive(Clone, Debug)]
pub struct Keyset {
    pub id: Uuid,
    pub domain: DomainId,
    pub kind: String,
    pub class: String,
    pub on: MatchOn,
}

/// One resource as a keyset sees it.
#[derive(Clone, Debug)]
pub struct MatchKey {
    pub resource: ResourceId,
    pub keyset: Uuid,
    pub hash: Vec<u8>,
    pub counted: bool,
    pub max_consumers: Option<u32>,
    pub created_at: i64,
}

impl Tx<'_> {
    /// Every keyset of these domains.
    pub fn keysets(&mut self, domains: &BTreeSet<DomainId>) -> Result<Vec<Keyset>> {
        let mut found = Vec::new();
        self.in_pieces(
            domains.iter().copied(),
            |list| {
                format!("SELECT id, domain_id, kind, class, names FROM keysets WHERE domain_id IN ({list})")
            },
            |row| {
                found.push(keyset(row)?);
                Ok(())
            },
        )?;
        Ok(found)
    }

    pub fn insert_keyset(&mut self, organisation: OrganisationId, keyset: &Keyset) -> Result<()> {
        self.put(
            "INSERT INTO keysets (id, organisation_id, domain_id, kind, class, names) VALUES ($1, $2, $3, $4, $5, $6)",
            params![
                keyset.id,
                organisation,
                keyset.domain,
                &keyset.kind,
                &keyset.class,
                keyset.on.text()
            ],
        )
    }

    /// Writes what keysets see of resources; call [`Tx::recount_matches`] for them afterwards.
    pub fn put_match_keys(&mut self, keys: &[MatchKey]) -> Result<()> {
        let rows: Vec<Vec<Value>> = keys
            .iter()
            .map(|key| {
                vec![
                    key.resource.into(),
                    key.keyset.into(),
                    key.hash.clone().into(),
                    key.counted.into(),
                    0i64.into(),
                    key.max_consumers.map(i64::from).into(),
                    0i64.into(),
                    key.created_at.into(),
                ]
            })
            .collect();
        self.put_rows(
            "INSERT INTO match_keys (resource_id, keyset_id, hash, counted, consumers, max_consumers, room, created_at)
             VALUES",
            &rows,
            "ON CONFLICT (resource_id, keyset_id) DO UPDATE SET hash = excluded.hash",
        )
    }

    /// Brings the number of consumers in the index up to date, for those of these that are in it.
    pub fn recount_matches(&mut self, ids: &BTreeSet<ResourceId>) -> Result<()> {
        let ids: Vec<Value> = ids.iter().map(|id| (*id).into()).collect();
        for piece in ids.chunks(200) {
            let users = "(SELECT count(*) FROM consumers c WHERE c.resource_id = match_keys.resource_id)";
            self.put(
                &format!(
                    "UPDATE match_keys SET consumers = counted * {users},
                         room = CASE WHEN max_consumers IS NULL OR {users} < max_consumers THEN 1 ELSE 0 END
                     WHERE resource_id IN ({})",
                    placeholders(1, piece.len())
                ),
                piece,
            )?;
        }
        Ok(())
    }

    /// What fits in one keyset, fewest consumers first, then the oldest.
    pub fn matches(&mut self, keyset: Uuid, hash: &[u8], limit: usize) -> Result<Vec<ResourceId>> {
        let rows = self.query(
            &format!(
                "SELECT resource_id FROM match_keys WHERE keyset_id = $1 AND hash = $2 AND room = 1
                 ORDER BY consumers, created_at, resource_id LIMIT {limit}"
            ),
            params![keyset, hash.to_vec()],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// All that could be shared of a type and class in one domain, page by page.
    pub fn sharable(
        &mut self,
        domain: DomainId,
        kind: &str,
        class: &str,
        after: Option<ResourceId>,
        limit: usize,
    ) -> Result<Vec<ResourceId>> {
        let after = after.map_or(Value::Bytes(vec![]), Value::from);
        let rows = self.query(
            &format!(
                "SELECT id FROM resources WHERE domain_id = $1 AND kind = $2 AND class = $3 AND {SHARABLE}
                 AND id > $4 ORDER BY id LIMIT {limit}"
            ),
            params![domain, kind, class, after],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// Some of those that could be shared of a type and class in these domains, and how many there are, which is not
    /// counted beyond `count`.
    pub fn rivals(
        &mut self,
        domains: &[DomainId],
        kind: &str,
        class: &str,
        limit: usize,
        count: u64,
    ) -> Result<(Vec<ResourceId>, u64)> {
        let (mut ids, mut total) = (Vec::new(), 0);
        for domain in domains {
            let rows = self.query(
                &format!(
                    "SELECT count(*) FROM (SELECT id FROM resources WHERE domain_id = $1 AND kind = $2 AND class = $3
                     AND {SHARABLE} LIMIT {}) counted",
                    count - total
                ),
                params![domain, kind, class],
            )?;
            total += rows.first().map_or(Ok(0), |row| row.int(0))? as u64;
            if ids.len() < limit {
                ids.extend(self.sharable(*domain, kind, class, None, limit - ids.len())?);
            }
        }
        Ok((ids, total))
    }
}

/// Dedicated ones and a pool's are nobody else's. In these words: an index goes by them.
const SHARABLE: &str = "key_tag IN ('shared', 'matched') AND place IN ('live', 'doomed') AND pool_id IS NULL";

fn keyset(row: &Row) -> Result<Keyset> {
    let id = Uuid::from_slice(row.bytes(0)?).map_err(|_| Error::Corrupt("a keyset's id".into()))?;
    let on = MatchOn::parse(row.text(4)?).ok_or_else(|| Error::Corrupt("a keyset's names".into()))?;
    Ok(Keyset { id, domain: row.id(1)?, kind: row.text(2)?.to_owned(), class: row.text(3)?.to_owned(), on })
}
