//! What each principal was granted, and where: the organisation, an environment, an application, or one in the other.

use conductor_domain::ids::{ApplicationId, EnvironmentId, OrganisationId, PrincipalId};

use crate::{Result, Row, Tx, Value, params};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    pub principal: PrincipalId,
    pub role: String,
    /// With its name; `None` = in all of them.
    pub environment: Option<(EnvironmentId, String)>,
    pub application: Option<(ApplicationId, String)>,
}

fn grant_row(row: &Row) -> Result<GrantRow> {
    let name = |at: usize| row.opt(at, Row::text).map(|name| name.unwrap_or_default().to_owned());
    Ok(GrantRow {
        principal: row.id(0)?,
        role: row.text(1)?.to_owned(),
        environment: row.opt(2, Row::id)?.zip(Some(name(3)?)),
        application: row.opt(4, Row::id)?.zip(Some(name(5)?)),
    })
}

const GRANT: &str =
    "SELECT g.principal_id, g.role, g.environment_id, e.name, g.application_id, a.name FROM grants g
    LEFT JOIN environments e ON e.id = g.environment_id LEFT JOIN applications a ON a.id = g.application_id";

impl Tx<'_> {
    /// Everybody's, in the order in which they were granted.
    pub fn grants(&mut self, organisation: OrganisationId) -> Result<Vec<GrantRow>> {
        let sql = format!("{GRANT} WHERE g.organisation_id = $1 ORDER BY g.created_at");
        self.query(&sql, params![organisation])?.iter().map(grant_row).collect()
    }

    pub fn grants_of(&mut self, principal: PrincipalId) -> Result<Vec<GrantRow>> {
        let sql = format!("{GRANT} WHERE g.principal_id = $1 ORDER BY g.created_at");
        self.query(&sql, params![principal])?.iter().map(grant_row).collect()
    }

    /// What somebody may by grant, and by being named an owner of an application.
    pub fn rights_of(
        &mut self,
        organisation: OrganisationId,
        principal: PrincipalId,
        name: &str,
    ) -> Result<Vec<GrantRow>> {
        let sql = format!(
            "{GRANT} WHERE g.principal_id = $1
             UNION ALL
             SELECT p.id, 'owner', NULL, NULL, a.id, a.name FROM application_owners o
             JOIN principals p ON p.id = $1 JOIN applications a ON a.id = o.application_id
             WHERE o.organisation_id = $2 AND o.name = $3"
        );
        self.query(&sql, params![principal, organisation, name])?.iter().map(grant_row).collect()
    }

    /// Whoever changes what a principal may do holds its row.
    pub fn hold_principal(&mut self, principal: PrincipalId) -> Result<()> {
        self.execute("UPDATE principals SET name = name WHERE id = $1", params![principal]).map(drop)
    }

    /// Gives a role in a place, instead of the one held there before.
    pub fn set_grant(&mut self, organisation: OrganisationId, grant: &GrantRow, now: i64) -> Result<()> {
        let environment = grant.environment.as_ref().map(|(id, _)| *id);
        let application = grant.application.as_ref().map(|(id, _)| *id);
        self.delete_grant(grant.principal, environment, application)?;
        self.put(
            "INSERT INTO grants (principal_id, organisation_id, role, environment_id, application_id, created_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
            params![grant.principal, organisation, &grant.role, environment, application, now],
        )
    }

    /// Takes away what is held in exactly this place; tells whether there was something.
    pub fn delete_grant(
        &mut self,
        principal: PrincipalId,
        environment: Option<EnvironmentId>,
        application: Option<ApplicationId>,
    ) -> Result<bool> {
        let mut sql = "DELETE FROM grants WHERE principal_id = $1".to_owned();
        let mut values: Vec<Value> = vec![principal.into()];
        let place = [
            ("environment_id", environment.map(Value::from)),
            ("application_id", application.map(Value::from)),
        ];
        for (column, value) in place {
            match value {
                Some(value) => {
                    values.push(value);
                    sql.push_str(&format!(" AND {column} = ${}", values.len()));
                }
                None => sql.push_str(&format!(" AND {column} IS NULL")),
            }
        }
        Ok(self.execute(&sql, &values)? > 0)
    }

    /// The names in an application's document are its owners, and nobody else.
    pub fn set_owners(
        &mut self,
        organisation: OrganisationId,
        application: ApplicationId,
        names: &[String],
    ) -> Result<()> {
        self.put("DELETE FROM application_owners WHERE application_id = $1", params![application])?;
        let rows: Vec<Vec<Value>> = names
            .iter()
            .map(|name| vec![organisation.into(), name.as_str().into(), application.into()])
            .collect();
        let head = "INSERT INTO application_owners (organisation_id, name, application_id) VALUES";
        self.put_rows(head, &rows, "ON CONFLICT (organisation_id, name, application_id) DO NOTHING")
    }
}
