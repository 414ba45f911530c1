//! What every installation has: the default organisation, an environment to start with, the built-in template.

use std::sync::Arc;

use conductor_domain::{
    catalogue::NO_MANAGER,
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
    pub registered: TemplateVersionId,
}

const ORGANISATION: &str = "default";
const WORKLOAD_TEMPLATE: &str = "workload-files";
const REGISTERED_TEMPLATE: &str = "registered";

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
        let mut built_in = |name: &str| match tx.versions_by_name(organisation, name)?.first() {
            Some(version) => Ok(version.id),
            None => make_template(tx, organisation, name, ids.as_ref(), now),
        };
        let (workload, registered) = (built_in(WORKLOAD_TEMPLATE)?, built_in(REGISTERED_TEMPLATE)?);
        Ok(Start {
            organisation,
            organisation_name: ORGANISATION.to_owned(),
            organisation_domain: domain,
            workload,
            registered,
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

fn make_template(
    tx: &mut Tx<'_>,
    organisation: OrganisationId,
    name: &str,
    ids: &dyn Ids,
    now: i64,
) -> Result<TemplateVersionId> {
    let (template, id) = (TemplateId(ids.next()), TemplateVersionId(ids.next()));
    let (kind, manager, document) = match name {
        WORKLOAD_TEMPLATE => {
            let document = json!({ "config": {}, "outputs": { "path": false, "compose": false } });
            (workload::TYPE, "compose", document)
        }
        _ => (REGISTERED_TEMPLATE, NO_MANAGER, json!({ "config": {} })),
    };
    tx.insert_template(organisation, template, name, kind, "default", now)?;
    tx.insert_version(&VersionRow {
        id,
        organisation,
        template,
        name: name.into(),
        kind: kind.into(),
        class: "default".into(),
        version: "1.0.0".into(),
        state: "active".into(),
        manager: manager.into(),
        document,
        content: None,
        digest: "built-in".into(),
        built_in: true,
        created_at: now,
    })?;
    Ok(id)
}
