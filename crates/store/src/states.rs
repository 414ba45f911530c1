//! Terraform's state: every version kept and sealed; a lock holds only with the fence it was taken under.

use conductor_domain::ids::{OrganisationId, ResourceId};
use serde_json::Value as Json;

use crate::{Owner, Result, Tx, params};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWrite {
    Kept,
    /// The same serial and content were stored before: a lost reply.
    Again,
    /// An older or different state for a serial that is taken.
    Stale {
        stored: i64,
    },
}

impl Tx<'_> {
    pub fn latest_state(
        &mut self,
        organisation: OrganisationId,
        resource: ResourceId,
    ) -> Result<Option<Vec<u8>>> {
        let row = self.query_one(
            "SELECT body FROM states WHERE resource_id = $1 ORDER BY number DESC LIMIT 1",
            params![resource],
        )?;
        let owner = Owner { organisation, kind: "state", id: resource.0.as_bytes() };
        row.map(|row| self.sealer().open(owner, row.bytes(0)?)).transpose()
    }

    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn keep_state(
        &mut self,
        organisation: OrganisationId,
        resource: ResourceId,
        serial: i64,
        lineage: &str,
        body: &[u8],
        fence: i64,
        now: i64,
    ) -> Result<StateWrite> {
        let digest = self.sealer().digest(body)?;
        let last = self.query_one(
            "SELECT number, serial, lineage, digest FROM states WHERE resource_id = $1 ORDER BY number DESC LIMIT 1",
            params![resource],
        )?;
        let mut number = 1;
        if let Some(last) = last {
            number = last.int(0)? + 1;
            let stored = last.int(1)?;
            if stored == serial && last.bytes(3)? == digest {
                return Ok(StateWrite::Again);
            }
            if last.text(2)? == lineage && serial <= stored {
                return Ok(StateWrite::Stale { stored });
            }
        }
        let owner = Owner { organisation, kind: "state", id: resource.0.as_bytes() };
        let sealed = self.sealer().seal(owner, body)?;
        self.put(
            "INSERT INTO states (resource_id, number, organisation_id, serial, lineage, digest, body, fence, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            params![resource, number, organisation, serial, lineage, digest, sealed, fence, now],
        )?;
        Ok(StateWrite::Kept)
    }

    /// Takes the lock, or tells who holds it. A lock under an older fence does not exist.
    pub fn lock_state(
        &mut self,
        resource: ResourceId,
        id: &str,
        fence: i64,
        document: &Json,
        now: i64,
    ) -> Result<Option<Json>> {
        let held = self.query_one(
            "SELECT lock_id, fence, document FROM state_locks WHERE resource_id = $1",
            params![resource],
        )?;
        if let Some(held) = held {
            if held.int(1)? == fence && held.text(0)? != id {
                return Ok(Some(held.json(2)?));
            }
            self.put("DELETE FROM state_locks WHERE resource_id = $1", params![resource])?;
        }
        self.put(
            "INSERT INTO state_locks (resource_id, lock_id, fence, document, created_at) VALUES ($1, $2, $3, $4, $5)",
            params![resource, id, fence, document, now],
        )?;
        Ok(None)
    }

    pub fn state_lock(&mut self, resource: ResourceId) -> Result<Option<(String, i64)>> {
        let row = self
            .query_one("SELECT lock_id, fence FROM state_locks WHERE resource_id = $1", params![resource])?;
        row.map(|row| Ok((row.text(0)?.to_owned(), row.int(1)?))).transpose()
    }

    pub fn unlock_state(&mut self, resource: ResourceId) -> Result<()> {
        self.put("DELETE FROM state_locks WHERE resource_id = $1", params![resource])
    }
}
