//! What every installation has: the default organisation, an environment to start with, the built-in template.

use std::sync::Arc;

use conductor_domain::{
    ids::{DomainId, EnvironmentId, Ids, OrganisationId, TemplateId, TemplateVersionId},
    workload,
};
use conductor_store::{
    Db, Result, Tx,
    catalogue::{GLOBAL_DOMAIN, VersionRow},
};
use serde_json::json;

use crate::clock::Clock;

pub(crate) struct Start {
    pub organisation: OrganisationId,
    pub organisation_name: String,
    pub organisation_domain: DomainId,
    pub workload: TemplateVersionId,
}

const ORGANISATION: &str = "default";
const WORKLOAD_TEMPLATE: &str = "workload-files";

/// Blocking, once, before anything else runs.
pub(crate) fn run(db: &Db, clock: &dyn Clock, ids: Arc<dyn Ids>) -> Result<Start> {
    let now = clock.now();
    db.write_blocking(move |tx| {
        tx.insert_domain(GLOBAL_DOMAIN, "global", None)?;
        tx.lock_domain(GLOBAL_DOMAIN)?;
        let found = tx.organisations()?.into_iter().find(|organisation| organisation.name == ORGANISATION);
        let (organisation, domain) = match found {
            Some(found) => (found.id, found.domain),
            None => make_organisation(tx, ids.as_ref(), now)?,
        };
        let versions = tx.versions_by_name(organisation, WORKLOAD_TEMPLATE)?;
        let workload = match versions.first() {
            Some(version) => version.id,
            None => make_workload_template(tx, organisation, ids.as_ref(), now)?,
        };
        Ok(Start {
            organisation,
            organisation_name: ORGANISATION.to_owned(),
            organisation_domain: domain,
            workload,
        })
    })
}

fn make_organisation(tx: &mut Tx<'_>, ids: &dyn Ids, now: i64) -> Result<(OrganisationId, DomainId)> {
    let (organisation, domain) = (OrganisationId(ids.next()), DomainId(ids.next()));
    tx.insert_organisation(organisation, ORGANISATION, domain, now)?;
    let (environment, its_domain) = (EnvironmentId(ids.next()), DomainId(ids.next()));
    let document = json!({ "kind": "Environment", "name": "dev", "type": "development" });
    tx.upsert_environment(organisation, environment, its_domain, "dev", "development", &document, now)?;
    Ok((organisation, domain))
}

fn make_workload_template(
    tx: &mut Tx<'_>,
    organisation: OrganisationId,
    ids: &dyn Ids,
    now: i64,
) -> Result<TemplateVersionId> {
    let (template, id) = (TemplateId(ids.next()), TemplateVersionId(ids.next()));
    tx.insert_template(organisation, template, WORKLOAD_TEMPLATE, workload::TYPE, "default", now)?;
    tx.insert_version(&VersionRow {
        id,
        organisation,
        template,
        name: WORKLOAD_TEMPLATE.into(),
        kind: workload::TYPE.into(),
        class: "default".into(),
        version: "1.0.0".into(),
        state: "active".into(),
        manager: "compose".into(),
        document: json!({ "config": {}, "outputs": { "path": false, "compose": false } }),
        content: None,
        digest: "built-in".into(),
        built_in: true,
        created_at: now,
    })?;
    Ok(id)
}
