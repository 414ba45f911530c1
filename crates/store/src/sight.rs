//! What somebody may see, as a part of a query: a list is narrowed where it is read, so that its pages are full.

use conductor_domain::{
    ids::{ApplicationId, ChangeId, EnvironmentId, ResourceId},
    lifecycle::ChangeKind,
};

use crate::{Result, Row, Tx, Value, params};

/// An environment, an application, or one in the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenPlace {
    pub environment: Option<EnvironmentId>,
    pub application: Option<ApplicationId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    #[default]
    Everything,
    /// What belongs to one of these.
    Places(Vec<SeenPlace>),
}

fn any(clauses: Vec<String>) -> String {
    if clauses.is_empty() { "1 = 0".to_owned() } else { clauses.join(" OR ") }
}

/// Whether a row with both columns is in one of the places.
fn within(places: &[SeenPlace], table: &str, values: &mut Vec<Value>) -> String {
    let mut clauses = Vec::new();
    for place in places {
        let columns = [
            ("environment_id", place.environment.map(Value::from)),
            ("application_id", place.application.map(Value::from)),
        ];
        let mut parts = Vec::new();
        for (column, value) in columns {
            if let Some(value) = value {
                values.push(value);
                parts.push(format!("{table}.{column} = ${}", values.len()));
            }
        }
        clauses.push(format!("({})", parts.join(" AND ")));
    }
    any(clauses)
}

/// A resource belongs to its environment, to those who use it and to who made it.
fn resource(places: &[SeenPlace], table: &str, values: &mut Vec<Value>) -> String {
    let whole: Vec<SeenPlace> = places.iter().filter(|place| place.application.is_none()).copied().collect();
    let mut clauses = Vec::new();
    for place in whole {
        if let Some(environment) = place.environment {
            values.push(environment.into());
            clauses.push(format!("{table}.environment_id = ${}", values.len()));
        }
    }
    let used = within(places, "seen_use", values);
    clauses.push(format!(
        "EXISTS (SELECT 1 FROM consumers seen_use WHERE seen_use.resource_id = {table}.id AND ({used}))"
    ));
    let made = within(places, "seen_maker", values);
    clauses.push(format!(
        "EXISTS (SELECT 1 FROM changes seen_maker WHERE seen_maker.id = {table}.made_change_id AND ({made}))"
    ));
    any(clauses)
}

impl Sight {
    /// ` AND (…)` for a query over changes, or whatever else names both; nothing when everything is seen.
    pub(crate) fn of_changes(&self, table: &str, values: &mut Vec<Value>) -> String {
        match self {
            Self::Everything => String::new(),
            Self::Places(places) => format!(" AND ({})", within(places, table, values)),
        }
    }

    pub(crate) fn of_resources(&self, table: &str, values: &mut Vec<Value>) -> String {
        match self {
            Self::Everything => String::new(),
            Self::Places(places) => format!(" AND ({})", resource(places, table, values)),
        }
    }

    /// A proposal belongs to its resource.
    pub(crate) fn of_proposals(&self, values: &mut Vec<Value>) -> String {
        let Self::Places(places) = self else {
            return String::new();
        };
        let resource = resource(places, "seen_resource", values);
        format!(
            " AND EXISTS (SELECT 1 FROM resources seen_resource WHERE seen_resource.id = proposals.resource_id
                 AND ({resource}))"
        )
    }

    /// For what refers to a change, a resource or both.
    pub(crate) fn of_what_refers(&self, table: &str, values: &mut Vec<Value>) -> String {
        let Self::Places(places) = self else {
            return String::new();
        };
        let change = within(places, "seen_change", values);
        let resource = resource(places, "seen_resource", values);
        format!(
            " AND (EXISTS (SELECT 1 FROM changes seen_change WHERE seen_change.id = {table}.change_id AND ({change}))
               OR EXISTS (SELECT 1 FROM resources seen_resource WHERE seen_resource.id = {table}.resource_id
                  AND ({resource})))"
        )
    }
}

/// An environment and an application by name.
pub type NamedPlace = (Option<String>, Option<String>);

/// Where a resource belongs.
#[derive(Clone, Debug)]
pub struct ResourcePlaces {
    pub environment: String,
    /// Of the change that made it.
    pub maker: NamedPlace,
    pub users: Vec<NamedPlace>,
    /// Made or registered by somebody, not by a deployment.
    pub by_hand: bool,
    pub owner: Option<String>,
}

fn named(row: &Row, at: usize) -> Result<NamedPlace> {
    let name = |at: usize| Ok::<_, crate::Error>(row.opt(at, Row::text)?.map(str::to_owned));
    Ok((name(at)?, name(at + 1)?))
}

impl Tx<'_> {
    pub fn place_of_change(&mut self, id: ChangeId) -> Result<Option<(ChangeKind, NamedPlace)>> {
        let row = self.query_one(
            "SELECT c.kind, e.name, a.name FROM changes c LEFT JOIN environments e ON e.id = c.environment_id
             LEFT JOIN applications a ON a.id = c.application_id WHERE c.id = $1",
            params![id],
        )?;
        row.map(|row| Ok((row.word(0)?, named(&row, 1)?))).transpose()
    }

    pub fn places_of_resource(&mut self, id: ResourceId) -> Result<Option<ResourcePlaces>> {
        let row = self.query_one(
            "SELECT e.name, me.name, ma.name, r.kept_by, r.facts FROM resources r
             JOIN environments e ON e.id = r.environment_id JOIN changes m ON m.id = r.made_change_id
             LEFT JOIN environments me ON me.id = m.environment_id
             LEFT JOIN applications ma ON ma.id = m.application_id WHERE r.id = $1",
            params![id],
        )?;
        let Some(row) = row else {
            return Ok(None);
        };
        let users = self.query(
            "SELECT DISTINCT e.name, a.name FROM consumers c JOIN environments e ON e.id = c.environment_id
             JOIN applications a ON a.id = c.application_id WHERE c.resource_id = $1",
            params![id],
        )?;
        let facts = row.opt(4, Row::json)?;
        Ok(Some(ResourcePlaces {
            environment: row.text(0)?.to_owned(),
            maker: named(&row, 1)?,
            users: users.iter().map(|row| named(row, 0)).collect::<Result<_>>()?,
            by_hand: ["hand", "external"].contains(&row.text(3)?),
            owner: facts.and_then(|facts| facts["owner"].as_str().map(str::to_owned)),
        }))
    }
}
