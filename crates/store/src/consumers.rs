//! Who uses which resource, and in which state that use is.

use std::collections::{BTreeMap, BTreeSet};

use conductor_domain::{
    ids::{ApplicationId, ChangeId, DomainId, EnvironmentId, OrganisationId, ResourceId},
    lifecycle::ConsumerState,
};
use serde_json::Value as Json;

use crate::{Result, Row, Tx, Value, params};

#[derive(Clone, Debug)]
pub struct ConsumerRow {
    pub resource: ResourceId,
    pub application: ApplicationId,
    pub application_name: String,
    pub environment: EnvironmentId,
    pub environment_name: String,
    pub requirement: String,
    pub state: ConsumerState,
    pub change: ChangeId,
    pub since: i64,
    /// The outputs it uses.
    pub outputs: BTreeSet<String>,
    /// What it asked for, secrets sealed for the resource.
    pub params: Json,
}

#[derive(Clone, Debug)]
pub struct NewConsumer {
    pub organisation: OrganisationId,
    pub resource: ResourceId,
    pub application: ApplicationId,
    pub environment: EnvironmentId,
    pub requirement: String,
    pub params: Json,
    pub outputs: BTreeSet<String>,
    pub change: ChangeId,
    pub now: i64,
}

const CONSUMER: &str = "SELECT c.resource_id, c.application_id, a.name, c.environment_id, e.name, c.requirement,
    c.state, c.change_id, c.since, c.outputs, c.params
    FROM consumers c JOIN applications a ON a.id = c.application_id JOIN environments e ON e.id = c.environment_id";

impl NewConsumer {
    fn values(&self) -> Vec<Value> {
        vec![
            self.resource.into(),
            self.application.into(),
            self.environment.into(),
            Value::from(&self.requirement),
            self.organisation.into(),
            ConsumerState::Joining.as_str().into(),
            Value::from(&self.params),
            Value::from(&names(&self.outputs)),
            self.change.into(),
            self.now.into(),
        ]
    }
}

impl Tx<'_> {
    pub fn consumers_of(&mut self, ids: &BTreeSet<ResourceId>, at_most: usize) -> Result<Vec<ConsumerRow>> {
        let mut found = Vec::new();
        self.in_pieces(
            ids.iter().copied(),
            |list| {
                format!(
                    "SELECT x.resource_id, x.application_id, a.name, x.environment_id, e.name, x.requirement, x.state,
                         x.change_id, x.since, x.outputs, x.params
                     FROM (SELECT c.*, row_number() OVER (PARTITION BY c.resource_id ORDER BY c.since, c.application_id)
                           AS position FROM consumers c WHERE c.resource_id IN ({list})) x
                     JOIN applications a ON a.id = x.application_id JOIN environments e ON e.id = x.environment_id
                     WHERE x.position <= {at_most} ORDER BY x.resource_id, x.since, x.application_id, x.requirement"
                )
            },
            |row| {
                found.push(consumer_row(row)?);
                Ok(())
            },
        )?;
        Ok(found)
    }

    pub fn consumer_counts(&mut self, ids: &BTreeSet<ResourceId>) -> Result<BTreeMap<ResourceId, u64>> {
        let mut counts = BTreeMap::new();
        self.in_pieces(
            ids.iter().copied(),
            |list| format!("SELECT resource_id, count(*) FROM consumers WHERE resource_id IN ({list}) GROUP BY resource_id"),
            |row| {
                counts.insert(row.id(0)?, row.int(1)? as u64);
                Ok(())
            },
        )?;
        Ok(counts)
    }

    /// What an application uses in an environment.
    pub fn uses_of(
        &mut self,
        application: ApplicationId,
        environment: EnvironmentId,
    ) -> Result<Vec<ConsumerRow>> {
        let rows = self.query(
            &format!(
                "{CONSUMER} WHERE c.application_id = $1 AND c.environment_id = $2 ORDER BY c.requirement"
            ),
            params![application, environment],
        )?;
        rows.iter().map(consumer_row).collect()
    }

    /// What is used in an environment, by whomever.
    pub fn uses_in(&mut self, environment: EnvironmentId) -> Result<Vec<ConsumerRow>> {
        let rows = self.query(
            &format!("{CONSUMER} WHERE c.environment_id = $1 ORDER BY a.name, c.requirement"),
            params![environment],
        )?;
        rows.iter().map(consumer_row).collect()
    }

    /// An application calls what it uses by another name; so do its resources that depend on it.
    pub fn rename_use(
        &mut self,
        resource: ResourceId,
        application: ApplicationId,
        environment: EnvironmentId,
        from: &str,
        to: &str,
    ) -> Result<()> {
        self.put_one(
            "UPDATE consumers SET requirement = $5
             WHERE resource_id = $1 AND application_id = $2 AND environment_id = $3 AND requirement = $4",
            params![resource, application, environment, from, to],
        )?;
        self.put(
            "UPDATE dependencies SET requirement = $5 WHERE depends_on_id = $1 AND requirement = $4 AND own = 0
             AND resource_id IN (SELECT c.resource_id FROM consumers c
                 WHERE c.application_id = $2 AND c.environment_id = $3)",
            params![resource, application, environment, from, to],
        )
    }

    /// Uses that begin; one that was leaving stays.
    pub fn join_consumers(&mut self, rows: &[NewConsumer]) -> Result<()> {
        let rows: Vec<Vec<Value>> = rows.iter().map(NewConsumer::values).collect();
        self.put_rows(
            "INSERT INTO consumers (resource_id, application_id, environment_id, requirement, organisation_id, state,
                 params, outputs, change_id, since) VALUES",
            &rows,
            "ON CONFLICT (resource_id, application_id, environment_id, requirement) DO UPDATE
             SET state = 'active', params = excluded.params, outputs = excluded.outputs, change_id = excluded.change_id",
        )
    }

    pub fn leave_consumer(
        &mut self,
        resource: ResourceId,
        application: ApplicationId,
        environment: EnvironmentId,
        requirement: &str,
        change: ChangeId,
    ) -> Result<()> {
        self.put_one(
            "UPDATE consumers SET state = 'leaving', change_id = $5
             WHERE resource_id = $1 AND application_id = $2 AND environment_id = $3 AND requirement = $4",
            params![resource, application, environment, requirement, change],
        )
    }

    /// The end of a change: those who joined stay; those who were leaving go, or stay after all.
    pub fn settle_consumers(&mut self, change: ChangeId, gone: bool) -> Result<BTreeSet<ResourceId>> {
        self.put(
            "UPDATE consumers SET state = 'active' WHERE change_id = $1 AND state = 'joining'",
            params![change],
        )?;
        if !gone {
            self.put(
                "UPDATE consumers SET state = 'active' WHERE change_id = $1 AND state = 'leaving'",
                params![change],
            )?;
            return Ok(BTreeSet::new());
        }
        let rows = self.query(
            "DELETE FROM consumers WHERE change_id = $1 AND state = 'leaving' RETURNING resource_id",
            params![change],
        )?;
        let left = rows.iter().map(|row| row.id(0)).collect::<Result<BTreeSet<_>>>()?;
        self.recount_matches(&left)?;
        Ok(left)
    }

    /// Which application uses which output of a resource.
    pub fn contracts_of(&mut self, resource: ResourceId) -> Result<BTreeSet<(String, String)>> {
        let rows = self.query(
            "SELECT a.name, c.outputs FROM consumers c JOIN applications a ON a.id = c.application_id
             WHERE c.resource_id = $1 AND c.state <> 'leaving'",
            params![resource],
        )?;
        let mut contracts = BTreeSet::new();
        for row in &rows {
            let application = row.text(0)?;
            contracts.extend(read_names(row, 1)?.into_iter().map(|output| (application.to_owned(), output)));
        }
        Ok(contracts)
    }

    pub fn domains_of_leaving(&mut self, change: ChangeId) -> Result<Vec<DomainId>> {
        let rows = self.query(
            "SELECT DISTINCT r.domain_id FROM consumers c JOIN resources r ON r.id = c.resource_id
             WHERE c.change_id = $1 AND c.state = 'leaving'
             UNION SELECT e.domain_id FROM changes c JOIN environments e ON e.id = c.environment_id
             WHERE c.id = $1 AND c.kind = 'teardown'",
            params![change],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }
}

fn consumer_row(row: &Row) -> Result<ConsumerRow> {
    Ok(ConsumerRow {
        resource: row.id(0)?,
        application: row.id(1)?,
        application_name: row.text(2)?.to_owned(),
        environment: row.id(3)?,
        environment_name: row.text(4)?.to_owned(),
        requirement: row.text(5)?.to_owned(),
        state: row.word(6)?,
        change: row.id(7)?,
        since: row.int(8)?,
        outputs: read_names(row, 9)?,
        params: row.json(10)?,
    })
}

fn names(outputs: &BTreeSet<String>) -> Json {
    outputs.iter().cloned().collect()
}

fn read_names(row: &Row, column: usize) -> Result<BTreeSet<String>> {
    Ok(serde_json::from_value(row.json(column)?).unwrap_or_default())
}

impl Tx<'_> {
    /// What a change is giving up.
    pub fn leaving_of(&mut self, change: ChangeId) -> Result<BTreeSet<ResourceId>> {
        let rows = self.query(
            "SELECT resource_id FROM consumers WHERE change_id = $1 AND state = 'leaving'",
            params![change],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }
}
