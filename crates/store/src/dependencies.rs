//! What depends on what.

use std::collections::BTreeSet;

use conductor_domain::{
    ids::{OrganisationId, ResourceId},
    plan::RecordedDependency,
};
use serde_json::Value as Json;

use crate::{Result, Tx, Value, params};

#[derive(Clone, Debug)]
pub struct DependencyRow {
    pub resource: ResourceId,
    /// Whether the dependent is a workload.
    pub workload: bool,
    pub on: ResourceId,
    pub requirement: String,
    pub kind: String,
    pub relationship: String,
    /// Required by the template of the dependent.
    pub own: bool,
    pub parent: bool,
}

impl Tx<'_> {
    /// What a resource depends on, from now on; its parents stay its parents.
    pub fn set_dependencies(
        &mut self,
        organisation: OrganisationId,
        resource: ResourceId,
        fresh: bool,
        on: &[RecordedDependency],
    ) -> Result<()> {
        if !fresh {
            self.put("DELETE FROM dependencies WHERE resource_id = $1 AND parent = 0", params![resource])?;
        }
        let word = |value: serde_json::Result<Json>| value.ok().and_then(|v| v.as_str().map(str::to_owned));
        let rows: Vec<Vec<Value>> = on
            .iter()
            .map(|dependency| {
                vec![
                    resource.into(),
                    dependency.on.into(),
                    Value::from(&dependency.requirement),
                    organisation.into(),
                    word(serde_json::to_value(dependency.kind)).into(),
                    word(serde_json::to_value(dependency.relationship)).into(),
                    dependency.own.into(),
                    dependency.parent.into(),
                ]
            })
            .collect();
        self.put_rows(
            "INSERT INTO dependencies (resource_id, depends_on_id, requirement, organisation_id, kind, relationship, own,
                 parent) VALUES",
            &rows, "")
    }

    pub fn dependencies_of(&mut self, ids: &BTreeSet<ResourceId>) -> Result<Vec<DependencyRow>> {
        self.dependency_rows(ids, "d.resource_id")
    }

    /// Live resources that strongly depend on these.
    pub fn dependents_of(&mut self, ids: &BTreeSet<ResourceId>) -> Result<Vec<DependencyRow>> {
        self.dependency_rows(ids, "d.kind <> 'weak' AND r.state <> 'destroyed' AND d.depends_on_id")
    }

    fn dependency_rows(&mut self, ids: &BTreeSet<ResourceId>, clause: &str) -> Result<Vec<DependencyRow>> {
        let mut found = Vec::new();
        self.in_pieces(
            ids.iter().copied(),
            |list| {
                format!(
                    "SELECT d.resource_id, d.depends_on_id, d.requirement, d.kind, d.relationship, r.workload, d.own,
                         d.parent
                     FROM dependencies d JOIN resources r ON r.id = d.resource_id WHERE {clause} IN ({list})
                     ORDER BY d.resource_id, d.depends_on_id, d.requirement"
                )
            },
            |row| {
                found.push(DependencyRow {
                    resource: row.id(0)?,
                    workload: row.flag(5)?,
                    on: row.id(1)?,
                    requirement: row.text(2)?.to_owned(),
                    kind: row.text(3)?.to_owned(),
                    relationship: row.text(4)?.to_owned(),
                    own: row.flag(6)?,
                    parent: row.flag(7)?,
                });
                Ok(())
            },
        )?;
        Ok(found)
    }
}
