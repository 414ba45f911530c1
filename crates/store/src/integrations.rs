//! Integrations: what is known of them in the open, and their values sealed.

use conductor_domain::ids::{EnvironmentId, IntegrationId, OrganisationId};
use serde_json::Value as Json;

use crate::{Owner, Result, Row, Tx, params};

#[derive(Clone, Debug)]
pub struct IntegrationRow {
    pub id: IntegrationId,
    pub organisation: OrganisationId,
    pub name: String,
    pub provider: String,
    pub environment: Option<EnvironmentId>,
    /// The environment's name; empty for the whole organisation.
    pub place: String,
    pub document: Json,
    pub created_at: i64,
    pub updated_at: i64,
}

impl IntegrationRow {
    /// What its values are sealed for.
    pub fn owner(&self) -> Owner<'_> {
        Owner { organisation: self.organisation, kind: "integration", id: self.id.0.as_bytes() }
    }
}

const COLUMNS: &str =
    "id, organisation_id, name, provider, environment_id, place, document, created_at, updated_at";

fn integration_row(row: &Row) -> Result<IntegrationRow> {
    Ok(IntegrationRow {
        id: row.id(0)?,
        organisation: row.id(1)?,
        name: row.text(2)?.to_owned(),
        provider: row.text(3)?.to_owned(),
        environment: row.opt(4, Row::id)?,
        place: row.text(5)?.to_owned(),
        document: row.json(6)?,
        created_at: row.int(7)?,
        updated_at: row.int(8)?,
    })
}

impl Tx<'_> {
    pub fn integrations(&mut self, organisation: OrganisationId) -> Result<Vec<IntegrationRow>> {
        let sql =
            format!("SELECT {COLUMNS} FROM integrations WHERE organisation_id = $1 ORDER BY name, place");
        self.query(&sql, params![organisation])?.iter().map(integration_row).collect()
    }

    pub fn upsert_integration(&mut self, row: &IntegrationRow) -> Result<()> {
        self.put(
            "INSERT INTO integrations (id, organisation_id, name, provider, environment_id, place, document, created_at,
                 updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (id) DO UPDATE SET provider = excluded.provider, document = excluded.document,
                 updated_at = excluded.updated_at",
            params![
                row.id,
                row.organisation,
                &row.name,
                &row.provider,
                row.environment,
                &row.place,
                &row.document,
                row.created_at,
                row.updated_at
            ],
        )
    }

    pub fn delete_integration(&mut self, id: IntegrationId) -> Result<bool> {
        Ok(self.execute("DELETE FROM integrations WHERE id = $1", params![id])? == 1)
    }
}

#[derive(Clone, Debug)]
pub struct SigningKeyRow {
    pub id: String,
    pub organisation: OrganisationId,
    /// PKCS #8, sealed.
    pub secret: Vec<u8>,
    /// As a JSON Web Key.
    pub public: Json,
    pub created_at: i64,
    pub used_from: i64,
}

impl Tx<'_> {
    pub fn signing_keys(&mut self, organisation: OrganisationId) -> Result<Vec<SigningKeyRow>> {
        let rows = self.query(
            "SELECT id, organisation_id, secret, public, created_at, used_from FROM signing_keys
             WHERE organisation_id = $1 ORDER BY used_from, id",
            params![organisation],
        )?;
        rows.iter()
            .map(|row| {
                Ok(SigningKeyRow {
                    id: row.text(0)?.to_owned(),
                    organisation: row.id(1)?,
                    secret: row.bytes(2)?.to_vec(),
                    public: row.json(3)?,
                    created_at: row.int(4)?,
                    used_from: row.int(5)?,
                })
            })
            .collect()
    }

    pub fn insert_signing_key(&mut self, key: &SigningKeyRow) -> Result<()> {
        self.put(
            "INSERT INTO signing_keys (id, organisation_id, secret, public, created_at, used_from)
             VALUES ($1, $2, $3, $4, $5, $6)",
            params![
                &key.id,
                key.organisation,
                key.secret.as_slice(),
                &key.public,
                key.created_at,
                key.used_from
            ],
        )
    }

    pub fn delete_signing_key(&mut self, id: &str) -> Result<()> {
        self.put("DELETE FROM signing_keys WHERE id = $1", params![id])
    }
}
