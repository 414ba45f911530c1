//! Organisations, environments, applications, templates, rules, packed files.

use std::collections::{BTreeMap, BTreeSet};

use conductor_domain::ids::{
    ApplicationId, DomainId, EnvironmentId, OrganisationId, ResourceId, RuleId, TemplateId, TemplateVersionId,
};
use serde_json::Value as Json;
use uuid::Uuid;

use crate::{Result, Row, Tx, params};

/// The planning domain of everything.
pub const GLOBAL_DOMAIN: DomainId = DomainId(Uuid::nil());

#[derive(Clone, Debug)]
pub struct OrganisationRow {
    pub id: OrganisationId,
    pub name: String,
    pub domain: DomainId,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub struct EnvironmentRow {
    pub id: EnvironmentId,
    pub name: String,
    pub kind: String,
    pub domain: DomainId,
    pub document: Json,
    pub created_at: i64,
    pub updated_at: i64,
}

#[derive(Clone, Debug)]
pub struct ApplicationRow {
    pub id: ApplicationId,
    pub name: String,
    pub document: Json,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub struct VersionRow {
    pub id: TemplateVersionId,
    pub organisation: OrganisationId,
    pub template: TemplateId,
    pub name: String,
    pub kind: String,
    pub class: String,
    pub version: String,
    pub state: String,
    pub manager: String,
    pub document: Json,
    pub content: Option<String>,
    pub digest: String,
    pub built_in: bool,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub struct RuleRow {
    pub id: RuleId,
    pub name: String,
    pub document: Json,
    pub created_at: i64,
}

/// A version without its document: what planning looks at every time.
#[derive(Clone, Debug)]
pub struct VersionHead {
    pub id: TemplateVersionId,
    pub name: String,
    pub kind: String,
    pub state: String,
    pub built_in: bool,
}

impl Tx<'_> {
    pub fn organisations(&mut self) -> Result<Vec<OrganisationRow>> {
        let rows = self.query(
            "SELECT id, name, domain_id, data_key, created_at FROM organisations ORDER BY name",
            &[],
        )?;
        let sealer = self.sealer();
        rows.iter()
            .map(|row| {
                let id = row.id(0)?;
                sealer.load_data_key(id, row.bytes(3)?)?;
                Ok(OrganisationRow {
                    id,
                    name: row.text(1)?.to_owned(),
                    domain: row.id(2)?,
                    created_at: row.int(4)?,
                })
            })
            .collect()
    }

    pub fn insert_domain(
        &mut self,
        id: DomainId,
        kind: &str,
        organisation: Option<OrganisationId>,
    ) -> Result<()> {
        self.execute(
            "INSERT INTO domains (id, kind, organisation_id) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING",
            params![id, kind, organisation],
        )?;
        Ok(())
    }

    pub fn organisation_document(&mut self, id: OrganisationId) -> Result<Json> {
        let row = self.query_one("SELECT document FROM organisations WHERE id = $1", params![id])?;
        row.map_or(Ok(Json::Null), |row| row.json(0))
    }

    pub fn set_organisation_document(&mut self, id: OrganisationId, document: &Json) -> Result<()> {
        self.put_one("UPDATE organisations SET document = $2 WHERE id = $1", params![id, document])?;
        self.stamp_catalogue(id)
    }

    pub fn insert_organisation(
        &mut self,
        id: OrganisationId,
        name: &str,
        domain: DomainId,
        now: i64,
    ) -> Result<()> {
        let key = self.sealer().new_data_key(id)?;
        self.sealer().load_data_key(id, &key)?;
        self.insert_domain(domain, "organisation", Some(id))?;
        self.execute(
            "INSERT INTO organisations (id, name, domain_id, data_key, document, created_at)
             VALUES ($1, $2, $3, $4, '{}', $5)",
            params![id, name, domain, key, now],
        )?;
        Ok(())
    }

    /// Takes the rows of these domains, wide to narrow, until the end of the transaction.
    pub fn lock_domains(&mut self, domains: &[DomainId]) -> Result<()> {
        if !self.is_postgres() {
            return Ok(());
        }
        let mut ordered: Vec<(usize, DomainId)> = Vec::new();
        let domains: BTreeSet<DomainId> = domains.iter().copied().collect();
        for domain in domains {
            let row = self.query_one("SELECT kind FROM domains WHERE id = $1", params![domain])?;
            let rank = match row.as_ref().map(|row| row.text(0)).transpose()? {
                Some("global") => 0,
                Some("organisation") => 1,
                _ => 2,
            };
            ordered.push((rank, domain));
        }
        ordered.sort_unstable();
        for (_, domain) in ordered {
            self.query("SELECT id FROM domains WHERE id = $1 FOR UPDATE", params![domain])?;
        }
        Ok(())
    }

    /// One environment's domain, which is all most plans touch.
    pub fn lock_domain(&mut self, domain: DomainId) -> Result<()> {
        if self.is_postgres() {
            self.query("SELECT id FROM domains WHERE id = $1 FOR UPDATE", params![domain])?;
        }
        Ok(())
    }

    pub fn environments(&mut self, organisation: OrganisationId) -> Result<Vec<EnvironmentRow>> {
        let rows = self.query(
            "SELECT id, name, kind, domain_id, document, created_at, updated_at FROM environments
             WHERE organisation_id = $1 ORDER BY name",
            params![organisation],
        )?;
        rows.iter().map(environment_row).collect()
    }

    pub fn environment_by_name(
        &mut self,
        organisation: OrganisationId,
        name: &str,
    ) -> Result<Option<EnvironmentRow>> {
        let row = self.query_one(
            "SELECT id, name, kind, domain_id, document, created_at, updated_at FROM environments
             WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        row.as_ref().map(environment_row).transpose()
    }

    pub fn environment(&mut self, id: EnvironmentId) -> Result<Option<EnvironmentRow>> {
        let row = self.query_one(
            "SELECT id, name, kind, domain_id, document, created_at, updated_at FROM environments WHERE id = $1",
            params![id],
        )?;
        row.as_ref().map(environment_row).transpose()
    }

    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn upsert_environment(
        &mut self,
        organisation: OrganisationId,
        id: EnvironmentId,
        domain: DomainId,
        name: &str,
        kind: &str,
        document: &Json,
        now: i64,
    ) -> Result<()> {
        self.insert_domain(domain, "environment", Some(organisation))?;
        self.execute(
            "INSERT INTO environments (id, organisation_id, name, kind, domain_id, document, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
             ON CONFLICT (organisation_id, name) DO UPDATE
             SET kind = excluded.kind, document = excluded.document, updated_at = excluded.updated_at",
            params![id, organisation, name, kind, domain, document, now],
        )?;
        Ok(())
    }

    pub fn applications(&mut self, organisation: OrganisationId) -> Result<Vec<ApplicationRow>> {
        let rows = self.query(
            "SELECT id, name, document, created_at FROM applications WHERE organisation_id = $1 ORDER BY name",
            params![organisation],
        )?;
        rows.iter().map(application_row).collect()
    }

    pub fn application_by_name(
        &mut self,
        organisation: OrganisationId,
        name: &str,
    ) -> Result<Option<ApplicationRow>> {
        let row = self.query_one(
            "SELECT id, name, document, created_at FROM applications WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        row.as_ref().map(application_row).transpose()
    }

    /// Writes an application and tells its id: another transaction may have made it first.
    pub fn upsert_application(
        &mut self,
        organisation: OrganisationId,
        id: ApplicationId,
        name: &str,
        document: Option<&Json>,
        now: i64,
    ) -> Result<ApplicationId> {
        let row = self.query_one(
            "INSERT INTO applications (id, organisation_id, name, document, created_at, updated_at)
             VALUES ($1, $2, $3, coalesce($4, '{}'), $5, $5)
             ON CONFLICT (organisation_id, name) DO UPDATE
             SET document = coalesce($4, applications.document), updated_at = excluded.updated_at RETURNING id",
            params![id, organisation, name, document, now],
        )?;
        row.map_or(Ok(id), |row| row.id(0))
    }

    /// Counts every change to templates and rules, so that what was read of them can be kept.
    pub fn catalogue_stamp(&mut self, organisation: OrganisationId) -> Result<i64> {
        let row =
            self.query_one("SELECT catalogue FROM organisations WHERE id = $1", params![organisation])?;
        row.map_or(Ok(0), |row| row.int(0))
    }

    pub fn stamp_catalogue(&mut self, organisation: OrganisationId) -> Result<()> {
        self.put("UPDATE organisations SET catalogue = catalogue + 1 WHERE id = $1", params![organisation])
    }

    pub fn version_heads(&mut self, organisation: OrganisationId) -> Result<Vec<VersionHead>> {
        let rows = self.query(
            "SELECT v.id, t.kind, v.state, v.built_in, t.name FROM template_versions v JOIN templates t ON t.id = v.template_id
             WHERE v.organisation_id = $1",
            params![organisation],
        )?;
        rows.iter()
            .map(|row| {
                Ok(VersionHead {
                    id: row.id(0)?,
                    kind: row.text(1)?.to_owned(),
                    state: row.text(2)?.to_owned(),
                    built_in: row.flag(3)?,
                    name: row.text(4)?.to_owned(),
                })
            })
            .collect()
    }

    pub fn versions(&mut self, organisation: OrganisationId) -> Result<Vec<VersionRow>> {
        let rows = self.query(
            &format!("{VERSION} WHERE v.organisation_id = $1 ORDER BY t.name, v.created_at"),
            params![organisation],
        )?;
        rows.iter().map(version_row).collect()
    }

    pub fn version(&mut self, id: TemplateVersionId) -> Result<Option<VersionRow>> {
        let row = self.query_one(&format!("{VERSION} WHERE v.id = $1"), params![id])?;
        row.as_ref().map(version_row).transpose()
    }

    pub fn versions_by_name(&mut self, organisation: OrganisationId, name: &str) -> Result<Vec<VersionRow>> {
        let rows = self.query(
            &format!("{VERSION} WHERE v.organisation_id = $1 AND t.name = $2"),
            params![organisation, name],
        )?;
        rows.iter().map(version_row).collect()
    }

    pub fn insert_template(
        &mut self,
        organisation: OrganisationId,
        id: TemplateId,
        name: &str,
        kind: &str,
        class: &str,
        now: i64,
    ) -> Result<()> {
        self.execute(
            "INSERT INTO templates (id, organisation_id, name, kind, class, created_at) VALUES ($1, $2, $3, $4, $5, $6)",
            params![id, organisation, name, kind, class, now],
        )?;
        Ok(())
    }

    pub fn template_by_name(
        &mut self,
        organisation: OrganisationId,
        name: &str,
    ) -> Result<Option<(TemplateId, String, String)>> {
        let row = self.query_one(
            "SELECT id, kind, class FROM templates WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        row.map(|row| Ok((row.id(0)?, row.text(1)?.to_owned(), row.text(2)?.to_owned()))).transpose()
    }

    pub fn insert_version(&mut self, row: &VersionRow) -> Result<()> {
        self.execute(
            "INSERT INTO template_versions (id, organisation_id, template_id, version, state, manager, document, content,
                                            digest, built_in, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            params![
                row.id,
                row.organisation,
                row.template,
                &row.version,
                &row.state,
                &row.manager,
                &row.document,
                row.content.clone(),
                &row.digest,
                row.built_in,
                row.created_at
            ],
        )?;
        self.stamp_catalogue(row.organisation)
    }

    pub fn set_version_state(
        &mut self,
        organisation: OrganisationId,
        id: TemplateVersionId,
        state: &str,
    ) -> Result<()> {
        self.stamp_catalogue(organisation)?;
        self.put_one("UPDATE template_versions SET state = $2 WHERE id = $1", params![id, state])
    }

    pub fn rules(&mut self, organisation: OrganisationId) -> Result<Vec<RuleRow>> {
        let rows = self.query(
            "SELECT id, name, document, created_at FROM rules WHERE organisation_id = $1 ORDER BY name",
            params![organisation],
        )?;
        rows.iter()
            .map(|row| {
                Ok(RuleRow {
                    id: row.id(0)?,
                    name: row.text(1)?.to_owned(),
                    document: row.json(2)?,
                    created_at: row.int(3)?,
                })
            })
            .collect()
    }

    pub fn upsert_rule(
        &mut self,
        organisation: OrganisationId,
        id: RuleId,
        name: &str,
        document: &Json,
        now: i64,
    ) -> Result<()> {
        self.execute(
            "INSERT INTO rules (id, organisation_id, name, document, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $5)
             ON CONFLICT (organisation_id, name) DO UPDATE
             SET document = excluded.document, updated_at = excluded.updated_at",
            params![id, organisation, name, document, now],
        )?;
        self.stamp_catalogue(organisation)
    }

    pub fn delete_rule(&mut self, organisation: OrganisationId, name: &str) -> Result<bool> {
        let gone = self.execute(
            "DELETE FROM rules WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        self.stamp_catalogue(organisation)?;
        Ok(gone == 1)
    }

    pub fn keep_blob(
        &mut self,
        organisation: OrganisationId,
        digest: &str,
        body: &[u8],
        now: i64,
    ) -> Result<()> {
        self.execute(
            "INSERT INTO blobs (organisation_id, digest, body, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (organisation_id, digest) DO NOTHING",
            params![organisation, digest, body, now],
        )?;
        Ok(())
    }

    /// Whether these files belong to a version of the template a resource is made by.
    pub fn is_content_of(&mut self, resource: ResourceId, digest: &str) -> Result<bool> {
        let row = self.query_one(
            "SELECT 1 FROM resources r JOIN template_versions mine ON mine.id = r.template_version_id
             JOIN template_versions v ON v.template_id = mine.template_id
             WHERE r.id = $1 AND v.content = $2 LIMIT 1",
            params![resource, digest],
        )?;
        Ok(row.is_some())
    }

    pub fn blob(&mut self, organisation: OrganisationId, digest: &str) -> Result<Option<Vec<u8>>> {
        let row = self.query_one(
            "SELECT body FROM blobs WHERE organisation_id = $1 AND digest = $2",
            params![organisation, digest],
        )?;
        row.map(|row| Ok(row.bytes(0)?.to_vec())).transpose()
    }

    pub fn known_queue(&mut self, needs: &str) -> Result<Option<i64>> {
        let row = self.query_one("SELECT id FROM queues WHERE needs = $1", params![needs])?;
        row.map(|row| row.int(0)).transpose()
    }

    /// The queue of these needs, made on first use.
    pub fn queue(&mut self, manager: &str, needs: &str) -> Result<i64> {
        self.made_queue = true;
        self.execute(
            "INSERT INTO queues (id, manager, needs) SELECT coalesce(max(id), 0) + 1, $1, $2 FROM queues",
            params![manager, needs],
        )?;
        self.known_queue(needs)?.ok_or_else(|| crate::Error::Busy("queue".into()))
    }

    pub fn queues(&mut self) -> Result<BTreeMap<i64, String>> {
        let rows = self.query("SELECT id, needs FROM queues", &[])?;
        rows.iter().map(|row| Ok((row.int(0)?, row.text(1)?.to_owned()))).collect()
    }
}

const VERSION: &str =
    "SELECT v.id, v.template_id, t.name, t.kind, t.class, v.version, v.state, v.manager, v.document,
    v.content, v.digest, v.built_in, v.created_at, v.organisation_id
    FROM template_versions v JOIN templates t ON t.id = v.template_id";

fn version_row(row: &Row) -> Result<VersionRow> {
    Ok(VersionRow {
        id: row.id(0)?,
        template: row.id(1)?,
        name: row.text(2)?.to_owned(),
        kind: row.text(3)?.to_owned(),
        class: row.text(4)?.to_owned(),
        version: row.text(5)?.to_owned(),
        state: row.text(6)?.to_owned(),
        manager: row.text(7)?.to_owned(),
        document: row.json(8)?,
        content: row.opt(9, Row::text)?.map(str::to_owned),
        digest: row.text(10)?.to_owned(),
        built_in: row.flag(11)?,
        created_at: row.int(12)?,
        organisation: row.id(13)?,
    })
}

fn environment_row(row: &Row) -> Result<EnvironmentRow> {
    Ok(EnvironmentRow {
        id: row.id(0)?,
        name: row.text(1)?.to_owned(),
        kind: row.text(2)?.to_owned(),
        domain: row.id(3)?,
        document: row.json(4)?,
        created_at: row.int(5)?,
        updated_at: row.int(6)?,
    })
}

fn application_row(row: &Row) -> Result<ApplicationRow> {
    Ok(ApplicationRow {
        id: row.id(0)?,
        name: row.text(1)?.to_owned(),
        document: row.json(2)?,
        created_at: row.int(3)?,
    })
}
