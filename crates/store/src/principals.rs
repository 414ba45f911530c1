//! Who may do what, and what was done.

use conductor_domain::ids::{
    ChangeId, EventId, OperationId, OrganisationId, PrincipalId, ResourceId, TokenId,
};
use serde_json::Value as Json;

use crate::{Result, Row, Tx, Value, params, sight::Sight};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    pub id: TokenId,
    pub principal: PrincipalId,
    pub name: String,
    pub created_at: i64,
    pub revoked: bool,
}

/// Where an event's document keeps the request it was written for.
pub const REQUEST_ID: &str = "requestId";

#[derive(Clone, Debug)]
pub struct NewEvent {
    pub id: EventId,
    pub organisation: OrganisationId,
    pub kind: &'static str,
    pub actor: String,
    pub change: Option<ChangeId>,
    pub resource: Option<ResourceId>,
    pub operation: Option<OperationId>,
    pub document: Json,
    pub now: i64,
}

#[derive(Clone, Debug)]
pub struct EventRow {
    pub id: EventId,
    pub kind: String,
    pub actor: String,
    pub change: Option<ChangeId>,
    pub resource: Option<ResourceId>,
    pub operation: Option<OperationId>,
    pub document: Json,
    pub created_at: i64,
}

fn token_row(row: &Row) -> Result<TokenRow> {
    Ok(TokenRow {
        id: row.id(0)?,
        principal: row.id(1)?,
        name: row.text(2)?.to_owned(),
        created_at: row.int(3)?,
        revoked: !row.is_null(4),
    })
}

impl Tx<'_> {
    pub fn upsert_principal(
        &mut self,
        organisation: OrganisationId,
        id: PrincipalId,
        name: &str,
        now: i64,
    ) -> Result<PrincipalId> {
        self.execute(
            "INSERT INTO principals (id, organisation_id, name, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (organisation_id, name) DO NOTHING",
            params![id, organisation, name, now],
        )?;
        let row = self.query_one(
            "SELECT id FROM principals WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        row.map_or(Ok(id), |row| row.id(0))
    }

    pub fn principal_named(
        &mut self,
        organisation: OrganisationId,
        name: &str,
    ) -> Result<Option<PrincipalId>> {
        let row = self.query_one(
            "SELECT id FROM principals WHERE organisation_id = $1 AND name = $2",
            params![organisation, name],
        )?;
        row.map(|row| row.id(0)).transpose()
    }

    pub fn insert_token(
        &mut self,
        organisation: OrganisationId,
        id: TokenId,
        principal: PrincipalId,
        hash: &[u8],
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO tokens (id, organisation_id, principal_id, hash, created_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (hash) DO NOTHING",
            params![id, organisation, principal, hash, now],
        )
    }

    /// A token that was not revoked.
    pub fn token_by_hash(&mut self, hash: &[u8]) -> Result<Option<(OrganisationId, TokenRow)>> {
        let row = self.query_one(
            "SELECT t.id, t.principal_id, p.name, t.created_at, t.revoked_at, t.organisation_id
             FROM tokens t JOIN principals p ON p.id = t.principal_id WHERE t.hash = $1 AND t.revoked_at IS NULL",
            params![hash],
        )?;
        row.map(|row| Ok((row.id(5)?, token_row(&row)?))).transpose()
    }

    pub fn tokens(&mut self, organisation: OrganisationId) -> Result<Vec<TokenRow>> {
        let rows = self.query(
            "SELECT t.id, t.principal_id, p.name, t.created_at, t.revoked_at
             FROM tokens t JOIN principals p ON p.id = t.principal_id WHERE t.organisation_id = $1 ORDER BY t.id",
            params![organisation],
        )?;
        rows.iter().map(token_row).collect()
    }

    pub fn revoke_token(&mut self, organisation: OrganisationId, id: TokenId, now: i64) -> Result<bool> {
        let touched = self.execute(
            "UPDATE tokens SET revoked_at = $3 WHERE organisation_id = $1 AND id = $2 AND revoked_at IS NULL",
            params![organisation, id, now],
        )?;
        Ok(touched == 1)
    }

    /// Writes down what happened, for which request, sealed by this program.
    pub fn insert_event(&mut self, event: NewEvent) -> Result<()> {
        let mut document = event.document;
        if let (Some(request), Some(entries)) = (&self.request, document.as_object_mut()) {
            entries.insert(REQUEST_ID.into(), (**request).into());
        }
        let row = EventRow {
            id: event.id,
            kind: event.kind.to_owned(),
            actor: event.actor,
            change: event.change,
            resource: event.resource,
            operation: event.operation,
            document,
            created_at: event.now,
        };
        let seal = row.seal(&self.sealer)?;
        self.put(
            "INSERT INTO events (id, organisation_id, kind, actor, change_id, resource_id, operation_id, document,
                 created_at, seal)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            params![
                row.id,
                event.organisation,
                &row.kind,
                &row.actor,
                row.change,
                row.resource,
                row.operation,
                &row.document,
                row.created_at,
                seal
            ],
        )
    }

    /// The newest first.
    pub fn events(
        &mut self,
        organisation: OrganisationId,
        change: Option<ChangeId>,
        resource: Option<ResourceId>,
        before: Option<EventId>,
        sight: &Sight,
        limit: i64,
    ) -> Result<Vec<EventRow>> {
        let mut sql =
            "SELECT id, kind, actor, change_id, resource_id, operation_id, document, created_at FROM events
            WHERE organisation_id = $1"
                .to_owned();
        let mut values: Vec<Value> = vec![organisation.into()];
        let narrowed = [
            ("change_id =", change.map(Value::from)),
            ("resource_id =", resource.map(Value::from)),
            ("id <", before.map(Value::from)),
        ];
        for (clause, value) in narrowed {
            if let Some(value) = value {
                values.push(value);
                sql.push_str(&format!(" AND {clause} ${}", values.len()));
            }
        }
        sql.push_str(&sight.of_what_refers("events", &mut values));
        sql.push_str(&format!(" ORDER BY id DESC LIMIT {}", limit.clamp(1, 1001)));
        self.query(&sql, &values)?
            .iter()
            .map(|row| {
                Ok(EventRow {
                    id: row.id(0)?,
                    kind: row.text(1)?.to_owned(),
                    actor: row.text(2)?.to_owned(),
                    change: row.opt(3, Row::id)?,
                    resource: row.opt(4, Row::id)?,
                    operation: row.opt(5, Row::id)?,
                    document: row.json(6)?,
                    created_at: row.int(7)?,
                })
            })
            .collect()
    }
}
