//! Workspaces, which are states of people's own terraform, and where states and their bodies are.

use std::collections::{BTreeMap, BTreeSet};

use conductor_domain::ids::{EnvironmentId, OrganisationId, ResourceId, WorkspaceId};

use crate::{Error, Result, Row, Tx, Value, params, placeholders};

/// States of people's own terraform.
impl Tx<'_> {
    pub fn workspace(&mut self, organisation: OrganisationId, name: &str) -> Result<Option<WorkspaceId>> {
        let row = self.query_one(
            "SELECT id FROM workspaces WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        row.map(|row| row.id(0)).transpose()
    }

    /// The workspace of this name, made where there is none, and held until the transaction ends.
    pub fn hold_workspace(
        &mut self,
        organisation: OrganisationId,
        fresh: WorkspaceId,
        name: &str,
        actor: &str,
        now: i64,
    ) -> Result<WorkspaceId> {
        let row = self.query_one(
            "INSERT INTO workspaces (id, organisation_id, name, created_by, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT (organisation_id, name) DO UPDATE SET updated_at = excluded.updated_at RETURNING id",
            params![fresh, organisation, name, actor, now],
        )?;
        row.ok_or_else(|| Error::Corrupt("a workspace without an id".into()))?.id(0)
    }
}

/// Where states are.
impl Tx<'_> {
    /// Records where the state of a resource is that is not kept here.
    pub fn place_state(
        &mut self,
        organisation: OrganisationId,
        resource: ResourceId,
        backend: &str,
        location: &str,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO state_places (resource_id, organisation_id, backend, location, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT (resource_id) DO UPDATE
             SET backend = excluded.backend, location = excluded.location, updated_at = excluded.updated_at",
            params![resource, organisation, backend, location, now],
        )
    }

    /// Backend and location of those that have a state; without a location it is in this database.
    pub fn state_places(
        &mut self,
        ids: &BTreeSet<ResourceId>,
    ) -> Result<BTreeMap<ResourceId, (String, Option<String>)>> {
        let mut found = BTreeMap::new();
        self.in_pieces(
            ids.iter().copied(),
            |list| {
                format!(
                    "SELECT s.resource_id, s.object FROM states s WHERE s.resource_id IN ({list}) AND s.number =
                         (SELECT max(n.number) FROM states n WHERE n.resource_id = s.resource_id)"
                )
            },
            |row| {
                let object = row.opt(1, Row::text)?.map(str::to_owned);
                found.insert(row.id(0)?, ("conductor".to_owned(), object));
                Ok(())
            },
        )?;
        self.in_pieces(
            ids.iter().copied(),
            |list| {
                format!(
                    "SELECT resource_id, backend, location FROM state_places WHERE resource_id IN ({list})"
                )
            },
            |row| {
                found.insert(row.id(0)?, (row.text(1)?.to_owned(), Some(row.text(2)?.to_owned())));
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// Some living resources of an environment whose state is somewhere, or about to be, by name.
    pub fn resources_with_state(&mut self, environment: EnvironmentId) -> Result<Vec<String>> {
        let rows = self.query(
            "SELECT r.name FROM resources r WHERE r.environment_id = $1 AND r.place <> 'gone' AND (
                 EXISTS (SELECT 1 FROM states s WHERE s.resource_id = r.id)
                 OR EXISTS (SELECT 1 FROM state_places p WHERE p.resource_id = r.id)
                 OR EXISTS (SELECT 1 FROM operations o WHERE o.resource_id = r.id AND o.status = 'in_progress'))
             ORDER BY r.name LIMIT 5",
            params![environment],
        )?;
        rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
    }

    /// Of these addresses of bodies, those that some version refers to.
    pub fn known_objects(&mut self, addresses: &[String]) -> Result<BTreeSet<String>> {
        let mut known = BTreeSet::new();
        for piece in addresses.chunks(200) {
            let list = placeholders(1, piece.len());
            let values: Vec<Value> = piece.iter().map(Value::from).collect();
            for table in ["states", "workspace_states"] {
                let sql = format!("SELECT object FROM {table} WHERE object IN ({list})");
                for row in self.query(&sql, &values)? {
                    known.insert(row.text(0)?.to_owned());
                }
            }
        }
        Ok(known)
    }
}
