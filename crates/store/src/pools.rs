//! Pools: their definition, and how their members stand.

use conductor_domain::{
    ids::{EnvironmentId, OrganisationId, PoolId, ResourceId},
    lifecycle::{KeptBy, State, Status},
};
use serde_json::Value as Json;

use crate::{Result, Row, Tx, Value, params};

#[derive(Clone, Debug)]
pub struct PoolRow {
    pub id: PoolId,
    pub environment: EnvironmentId,
    pub environment_name: String,
    pub name: String,
    /// As written; the parameters are sealed.
    pub document: Json,
    pub claims: i64,
    pub on_demand: i64,
    pub claimed_at: Option<i64>,
    pub created_at: i64,
    pub updated_at: i64,
}

/// A member of a pool that is not gone.
#[derive(Clone, Debug)]
pub struct MemberRow {
    pub id: ResourceId,
    pub state: State,
    pub status: Status,
    pub kept_by: KeptBy,
    pub consumers: i64,
    pub updated_at: i64,
}

const POOL: &str =
    "SELECT p.id, p.environment_id, e.name, p.name, p.document, p.claims, p.on_demand, p.claimed_at,
    p.created_at, p.updated_at FROM pools p JOIN environments e ON e.id = p.environment_id";

fn pool_row(row: &Row) -> Result<PoolRow> {
    Ok(PoolRow {
        id: row.id(0)?,
        environment: row.id(1)?,
        environment_name: row.text(2)?.to_owned(),
        name: row.text(3)?.to_owned(),
        document: row.json(4)?,
        claims: row.int(5)?,
        on_demand: row.int(6)?,
        claimed_at: row.opt(7, Row::int)?,
        created_at: row.int(8)?,
        updated_at: row.int(9)?,
    })
}

impl Tx<'_> {
    pub fn pools(&mut self, organisation: OrganisationId) -> Result<Vec<PoolRow>> {
        let rows = self
            .query(&format!("{POOL} WHERE p.organisation_id = $1 ORDER BY p.name"), params![organisation])?;
        rows.iter().map(pool_row).collect()
    }

    pub fn pools_in(&mut self, environment: EnvironmentId) -> Result<Vec<PoolRow>> {
        let rows =
            self.query(&format!("{POOL} WHERE p.environment_id = $1 ORDER BY p.name"), params![environment])?;
        rows.iter().map(pool_row).collect()
    }

    pub fn pool_by_name(&mut self, organisation: OrganisationId, name: &str) -> Result<Option<PoolRow>> {
        let sql = format!("{POOL} WHERE p.organisation_id = $1 AND p.name = $2");
        let row = self.query_one(&sql, params![organisation, name])?;
        row.as_ref().map(pool_row).transpose()
    }

    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn upsert_pool(
        &mut self,
        organisation: OrganisationId,
        environment: EnvironmentId,
        id: PoolId,
        name: &str,
        document: &Json,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO pools (id, organisation_id, environment_id, name, document, claims, on_demand, created_at,
                 updated_at) VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $6)
             ON CONFLICT (organisation_id, name) DO UPDATE SET document = excluded.document,
                 updated_at = excluded.updated_at",
            params![id, organisation, environment, name, document, now],
        )
    }

    /// The pool is no more; what it had made and somebody uses is from now on theirs. Claimed from a pool that is not
    /// `shared`, it is theirs alone.
    pub fn delete_pool(&mut self, id: PoolId, shared: bool) -> Result<()> {
        self.put(
            "UPDATE resources SET pool_id = NULL, key_tag = CASE WHEN $2 = 1 THEN key_tag ELSE 'dedicated' END,
                 kept_by = CASE kept_by WHEN 'pool' THEN 'consumers' ELSE kept_by END
             WHERE pool_id = $1",
            params![id, shared],
        )?;
        self.put_one("DELETE FROM pools WHERE id = $1", params![id])
    }

    /// All that are not gone, least used first, then the oldest.
    pub fn members(&mut self, pool: PoolId) -> Result<Vec<MemberRow>> {
        let rows = self.query(
            "SELECT r.id, r.state, r.status, r.kept_by,
                 (SELECT count(*) FROM consumers c WHERE c.resource_id = r.id) AS users, r.updated_at
             FROM resources r WHERE r.pool_id = $1 AND r.place <> 'gone' ORDER BY users, r.id",
            params![pool],
        )?;
        rows.iter()
            .map(|row| {
                Ok(MemberRow {
                    id: row.id(0)?,
                    state: row.word(1)?,
                    status: row.word(2)?,
                    kept_by: row.word(3)?,
                    consumers: row.int(4)?,
                    updated_at: row.int(5)?,
                })
            })
            .collect()
    }

    /// Takes a ready member out; whoever held the planning domain before may have been first.
    pub fn claim_member(&mut self, id: ResourceId, kept_by: KeptBy, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET kept_by = $2, updated_at = $3
             WHERE id = $1 AND pool_id IS NOT NULL AND state = 'provisioned' AND status = 'done'",
            params![id, kept_by.as_str(), now],
        )?;
        self.put(
            "UPDATE pools SET claims = claims + 1, claimed_at = $2
             WHERE id = (SELECT pool_id FROM resources WHERE id = $1)",
            params![id, now],
        )
    }

    /// Members that were used and are gone, to be made again under the same record.
    pub fn used_up_members(&mut self, pool: PoolId, limit: usize) -> Result<Vec<ResourceId>> {
        let rows = self.query(
            &format!(
                "SELECT id FROM resources WHERE pool_id = $1 AND place = 'gone' AND replaced_by IS NULL
                     AND deleted_at IS NULL
                 ORDER BY id LIMIT {limit}"
            ),
            params![pool],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    pub fn keep_for_pool(&mut self, id: ResourceId) -> Result<()> {
        self.put_one("UPDATE resources SET kept_by = 'pool' WHERE id = $1", params![id])
    }

    /// None was ready, so one is made for somebody.
    pub fn count_on_demand(&mut self, pool: PoolId, now: i64) -> Result<()> {
        let values: &[Value] = params![pool, now];
        self.put("UPDATE pools SET on_demand = on_demand + 1, claimed_at = $2 WHERE id = $1", values)
    }
}
