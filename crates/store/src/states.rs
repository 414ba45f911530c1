//! Terraform's state: every version kept and sealed, of resources and of workspaces alike.
//!
//! A resource's lock holds only with the fence it was taken under. A workspace belongs to people: whoever moves
//! anything in it writes its row first, so that two of them wait for each other.

use conductor_domain::ids::{OperationId, OrganisationId, ResourceId, WorkspaceId};
use serde_json::Value as Json;

use crate::{Owner, Result, Row, Sealer, Tx, params};

/// What sealing adds to a body: a version, a key's id, a nonce and a tag.
const SEAL: i64 = 1 + 4 + 24 + 16;

/// Whose state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateOf {
    Resource(ResourceId),
    Workspace(WorkspaceId),
}

impl StateOf {
    /// Table, table of locks, and the column that names the owner.
    fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Resource(_) => ("states", "state_locks", "resource_id"),
            Self::Workspace(_) => ("workspace_states", "workspace_locks", "workspace_id"),
        }
    }

    fn id(&self) -> &[u8; 16] {
        match self {
            Self::Resource(id) => id.0.as_bytes(),
            Self::Workspace(id) => id.0.as_bytes(),
        }
    }

    /// What a body is sealed for.
    pub fn owner(&self, organisation: OrganisationId) -> Owner<'_> {
        let kind = match self {
            Self::Resource(_) => "state",
            Self::Workspace(_) => "workspace-state",
        };
        Owner { organisation, kind, id: self.id() }
    }
}

/// Where a sealed body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    Here(Vec<u8>),
    /// At this address of an object store.
    At(String),
}

/// A version that is about to be kept.
#[derive(Clone, Debug)]
pub struct NewState {
    pub of: StateOf,
    pub organisation: OrganisationId,
    pub serial: i64,
    pub lineage: String,
    /// Of what was sealed, keyed.
    pub digest: Vec<u8>,
    pub size: i64,
    pub body: Body,
    pub fence: i64,
    pub operation: Option<OperationId>,
    pub actor: Option<String>,
}

/// A version, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    pub number: i64,
    pub serial: i64,
    pub lineage: String,
    pub digest: Vec<u8>,
    pub size: i64,
    /// The address of the body, where it is not here.
    pub object: Option<String>,
    pub fence: i64,
    pub operation: Option<OperationId>,
    pub actor: Option<String>,
    pub created_at: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWrite {
    /// Under this number.
    Kept(i64),
    /// The same serial and content were stored before: a lost reply.
    Again,
    /// An older or different state for a serial that is taken.
    Stale { stored: i64 },
}

#[derive(Clone, Debug, PartialEq)]
pub struct LockRow {
    pub id: String,
    pub fence: i64,
    /// As terraform sent it.
    pub document: Json,
    pub actor: Option<String>,
    pub created_at: i64,
}

const COLUMNS: &str =
    "number, serial, lineage, digest, size, length(body), object, fence, operation_id, actor, created_at";

fn state_row(row: &Row) -> Result<StateRow> {
    Ok(StateRow {
        number: row.int(0)?,
        serial: row.int(1)?,
        lineage: row.text(2)?.to_owned(),
        digest: row.bytes(3)?.to_vec(),
        size: match row.opt(4, Row::int)? {
            Some(size) => size,
            None => (row.int(5)? - SEAL).max(0),
        },
        object: row.opt(6, Row::text)?.map(str::to_owned),
        fence: row.int(7)?,
        operation: row.opt(8, Row::id)?,
        actor: row.opt(9, Row::text)?.map(str::to_owned),
        created_at: row.int(10)?,
    })
}

fn body(row: &Row) -> Result<Body> {
    Ok(match row.opt(1, Row::text)? {
        Some(address) => Body::At(address.to_owned()),
        None => Body::Here(row.bytes(0)?.to_vec()),
    })
}

/// Opens a sealed body, wherever it was.
pub fn open_state(
    sealer: &Sealer,
    of: StateOf,
    organisation: OrganisationId,
    sealed: &[u8],
) -> Result<Vec<u8>> {
    sealer.open(of.owner(organisation), sealed)
}

impl Tx<'_> {
    /// Every version, newest first.
    pub fn states(&mut self, of: StateOf) -> Result<Vec<StateRow>> {
        let (table, _, owner) = of.names();
        let sql = format!("SELECT {COLUMNS} FROM {table} WHERE {owner} = $1 ORDER BY number DESC");
        self.query(&sql, params![&of.id()[..]])?.iter().map(state_row).collect()
    }

    pub fn latest_state(&mut self, of: StateOf) -> Result<Option<StateRow>> {
        let (table, _, owner) = of.names();
        let sql = format!("SELECT {COLUMNS} FROM {table} WHERE {owner} = $1 ORDER BY number DESC LIMIT 1");
        self.query_one(&sql, params![&of.id()[..]])?.as_ref().map(state_row).transpose()
    }

    /// Where the newest body is.
    pub fn latest_body(&mut self, of: StateOf) -> Result<Option<Body>> {
        let (table, _, owner) = of.names();
        let sql = format!("SELECT body, object FROM {table} WHERE {owner} = $1 ORDER BY number DESC LIMIT 1");
        self.query_one(&sql, params![&of.id()[..]])?.as_ref().map(body).transpose()
    }

    /// Where the body of one version is.
    pub fn state_body(&mut self, of: StateOf, number: i64) -> Result<Option<Body>> {
        let (table, _, owner) = of.names();
        let sql = format!("SELECT body, object FROM {table} WHERE {owner} = $1 AND number = $2");
        self.query_one(&sql, params![&of.id()[..], number])?.as_ref().map(body).transpose()
    }

    /// Appends a version, and drops those before the newest `keep`. Of two writers at once one finds the number taken
    /// and looks again.
    pub fn keep_state(&mut self, new: &NewState, keep: Option<i64>, now: i64) -> Result<StateWrite> {
        let mut number = 1;
        if let Some(last) = self.latest_state(new.of)? {
            number = last.number + 1;
            if last.serial == new.serial && last.digest == new.digest {
                return Ok(StateWrite::Again);
            }
            if last.lineage == new.lineage && new.serial <= last.serial {
                return Ok(StateWrite::Stale { stored: last.serial });
            }
        }
        let (body, object) = match &new.body {
            Body::Here(sealed) => (sealed.clone(), None),
            Body::At(address) => (Vec::new(), Some(address.clone())),
        };
        let (table, _, owner) = new.of.names();
        self.put(
            &format!(
                "INSERT INTO {table} ({owner}, number, organisation_id, serial, lineage, digest, size, body, object,
                     fence, operation_id, actor, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
            ),
            params![
                &new.of.id()[..],
                number,
                new.organisation,
                new.serial,
                &new.lineage,
                new.digest.clone(),
                new.size,
                body,
                object,
                new.fence,
                new.operation,
                new.actor.clone(),
                now
            ],
        )?;
        if let Some(keep) = keep {
            self.put(
                &format!("DELETE FROM {table} WHERE {owner} = $1 AND number <= $2"),
                params![&new.of.id()[..], number - keep.max(1)],
            )?;
        }
        Ok(StateWrite::Kept(number))
    }

    pub fn state_lock(&mut self, of: StateOf) -> Result<Option<LockRow>> {
        let (_, table, owner) = of.names();
        let actor = if matches!(of, StateOf::Workspace(_)) { "actor" } else { "NULL" };
        let sql =
            format!("SELECT lock_id, fence, document, created_at, {actor} FROM {table} WHERE {owner} = $1");
        let row = self.query_one(&sql, params![&of.id()[..]])?;
        row.map(|row| {
            Ok(LockRow {
                id: row.text(0)?.to_owned(),
                fence: row.int(1)?,
                document: row.json(2)?,
                created_at: row.int(3)?,
                actor: row.opt(4, Row::text)?.map(str::to_owned),
            })
        })
        .transpose()
    }

    /// Takes a resource's lock, or tells who holds it. A lock under an older fence does not exist.
    pub fn lock_state(
        &mut self,
        resource: ResourceId,
        id: &str,
        fence: i64,
        document: &Json,
        now: i64,
    ) -> Result<Option<LockRow>> {
        let of = StateOf::Resource(resource);
        if let Some(held) = self.state_lock(of)? {
            if held.fence == fence {
                return Ok((held.id != id).then_some(held));
            }
            self.drop_state_lock(of, &held)?;
        }
        self.put(
            "INSERT INTO state_locks (resource_id, lock_id, fence, document, created_at) VALUES ($1, $2, $3, $4, $5)",
            params![resource, id, fence, document, now],
        )?;
        Ok(None)
    }

    /// Takes a workspace's lock, or tells who holds it; the same id again is the same lock.
    pub fn lock_workspace(
        &mut self,
        workspace: WorkspaceId,
        id: &str,
        document: &Json,
        actor: &str,
        now: i64,
    ) -> Result<Option<LockRow>> {
        if let Some(held) = self.state_lock(StateOf::Workspace(workspace))? {
            return Ok((held.id != id).then_some(held));
        }
        self.put(
            "INSERT INTO workspace_locks (workspace_id, lock_id, fence, document, actor, created_at)
             VALUES ($1, $2, 0, $3, $4, $5)",
            params![workspace, id, document, actor, now],
        )?;
        Ok(None)
    }

    /// Gives up exactly this lock; that somebody else's is there by now is a conflict.
    pub fn drop_state_lock(&mut self, of: StateOf, held: &LockRow) -> Result<()> {
        let (_, table, owner) = of.names();
        self.put_one(
            &format!("DELETE FROM {table} WHERE {owner} = $1 AND lock_id = $2 AND fence = $3"),
            params![&of.id()[..], &held.id, held.fence],
        )
    }

    /// Whatever lock a resource's state has is over.
    pub fn free_state(&mut self, resource: ResourceId) -> Result<()> {
        self.put("DELETE FROM state_locks WHERE resource_id = $1", params![resource])
    }

    /// Makes every claim on a resource's state void, provided that the fence is the one named.
    pub fn fence_off(&mut self, resource: ResourceId, fence: i64, now: i64) -> Result<i64> {
        self.put_one(
            "UPDATE resources SET fence = fence + 1, updated_at = $3 WHERE id = $1 AND fence = $2",
            params![resource, fence, now],
        )?;
        Ok(fence + 1)
    }
}
