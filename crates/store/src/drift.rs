//! What was seen of resources, and what differs from what is on record.

use std::collections::BTreeSet;

use conductor_domain::ids::{OrganisationId, ResourceId, TemplateVersionId};
use serde_json::Value as Json;

use crate::{
    Result, Tx, Value, params,
    resources::{RESOURCE, ResourceRow, resource_row},
};

impl Tx<'_> {
    /// What was seen of it, and how that differs from the record.
    pub fn observe_resource(
        &mut self,
        id: ResourceId,
        observed: &Json,
        drift: Option<&Json>,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE resources SET observed = $2, observed_at = $4, drift = $3 WHERE id = $1",
            params![id, observed, drift, now],
        )
    }

    /// What a version made that is there.
    pub fn resources_of_version(&mut self, version: TemplateVersionId) -> Result<Vec<ResourceRow>> {
        let sql = format!(
            "{RESOURCE} WHERE r.template_version_id = $1 AND r.state = 'provisioned' AND r.status IN ('done', 'error')
             ORDER BY r.id"
        );
        self.query(&sql, params![version])?.iter().map(resource_row).collect()
    }

    /// Somebody is about to look.
    pub fn note_look(&mut self, ids: &BTreeSet<ResourceId>, now: i64) -> Result<()> {
        for id in ids {
            self.put("UPDATE resources SET observed_at = $2 WHERE id = $1", params![id, now])?;
        }
        Ok(())
    }

    /// Notes something beside a difference, as long as it is still there.
    pub fn note_observed(&mut self, id: ResourceId, observed: &Json, drift: &Json) -> Result<()> {
        self.put(
            "UPDATE resources SET observed = $2 WHERE id = $1 AND drift = $3",
            params![id, observed, drift],
        )
    }

    /// What was found not to be what is on record.
    pub fn drifting(
        &mut self,
        organisation: OrganisationId,
        after: Option<ResourceId>,
    ) -> Result<Vec<ResourceRow>> {
        let mut sql = format!("{RESOURCE} WHERE r.organisation_id = $1 AND r.drift IS NOT NULL");
        let mut values: Vec<Value> = vec![organisation.into()];
        if let Some(after) = after {
            values.push(after.into());
            sql.push_str(" AND r.id > $2");
        }
        sql.push_str(" ORDER BY r.id LIMIT 200");
        self.query(&sql, &values)?.iter().map(resource_row).collect()
    }
}
