//! Resources, who uses them, what they depend on.

use std::collections::{BTreeMap, BTreeSet};

use conductor_domain::{
    ids::{
        ApplicationId, ChangeId, EnvironmentId, OperationId, OrganisationId, PoolId, ResourceId, TemplateId,
        TemplateVersionId,
    },
    lifecycle::{KeptBy, OperationStatus, State, Status},
    plan::{Key, KeyTag, OpenOperation},
};
use serde_json::Value as Json;

use crate::{Error, Result, Row, Tx, Value, params, sight::Sight, tx::placeholders};

#[derive(Clone, Debug)]
pub struct ResourceRow {
    pub id: ResourceId,
    pub organisation: OrganisationId,
    pub environment: EnvironmentId,
    pub environment_name: String,
    pub key: Key,
    pub domain_kind: String,
    pub name: String,
    pub slug: String,
    pub workload: bool,
    pub version: TemplateVersionId,
    pub state: State,
    pub status: Status,
    pub kept_by: KeptBy,
    pub protected: bool,
    pub generation: i64,
    pub observed_generation: i64,
    pub spec: Json,
    pub applied_spec: Option<Json>,
    pub applied_version: Option<TemplateVersionId>,
    pub inputs: Option<Vec<u8>>,
    pub inputs_digest: Option<Vec<u8>>,
    pub outputs: Option<Json>,
    pub manager_state: Option<Vec<u8>>,
    pub external_id: Option<String>,
    pub message: Option<String>,
    pub error: Option<Json>,
    pub fence: i64,
    pub waiters: i64,
    pub max_consumers: Option<u32>,
    pub share_when: Option<String>,
    pub pool: Option<PoolId>,
    pub destroy_after: Option<i64>,
    pub replaced_by: Option<ResourceId>,
    pub observed: Option<Json>,
    pub observed_at: Option<i64>,
    pub facts: Option<Json>,
    pub drift: Option<Json>,
    pub deleted_at: Option<i64>,
    pub created_by: String,
    pub created_at: i64,
    pub updated_at: i64,
}

impl ResourceRow {
    /// People know of it: it is no workload, and its record was not deleted.
    pub fn is_on_record(&self, organisation: OrganisationId) -> bool {
        self.organisation == organisation && !self.workload && self.deleted_at.is_none()
    }
}

pub(crate) const RESOURCE: &str = "SELECT r.id, r.organisation_id, r.environment_id, r.domain_id, r.kind, r.class, r.key_tag,
    r.key_name, d.kind, r.name, r.slug, r.workload, r.template_version_id, r.state, r.status, r.kept_by, r.protected,
    r.generation, r.observed_generation, r.spec, r.applied_spec, r.applied_version_id, r.inputs, r.inputs_digest,
    r.outputs, r.manager_state, r.external_id, r.message, r.error, r.fence, r.waiters, r.replaced_by, r.created_by,
    r.created_at, r.updated_at, e.name, r.max_consumers, r.share_when, r.pool_id, r.destroy_after,
    r.observed, r.observed_at, r.facts, r.drift, r.deleted_at FROM resources r JOIN domains d ON d.id = r.domain_id
    JOIN environments e ON e.id = r.environment_id";

pub(crate) fn resource_row(row: &Row) -> Result<ResourceRow> {
    Ok(ResourceRow {
        id: row.id(0)?,
        organisation: row.id(1)?,
        environment: row.id(2)?,
        key: Key {
            domain: row.id(3)?,
            kind: row.text(4)?.to_owned(),
            class: row.text(5)?.to_owned(),
            tag: KeyTag::parse(row.text(6)?).ok_or_else(|| Error::Corrupt("a key's tag".into()))?,
            name: row.text(7)?.to_owned(),
        },
        domain_kind: row.text(8)?.to_owned(),
        name: row.text(9)?.to_owned(),
        slug: row.text(10)?.to_owned(),
        workload: row.flag(11)?,
        version: row.id(12)?,
        state: row.word(13)?,
        status: row.word(14)?,
        kept_by: row.word(15)?,
        protected: row.flag(16)?,
        generation: row.int(17)?,
        observed_generation: row.int(18)?,
        spec: row.json(19)?,
        applied_spec: row.opt(20, Row::json)?,
        applied_version: row.opt(21, Row::id)?,
        inputs: row.opt(22, Row::bytes)?.map(<[u8]>::to_vec),
        inputs_digest: row.opt(23, Row::bytes)?.map(<[u8]>::to_vec),
        outputs: row.opt(24, Row::json)?,
        manager_state: row.opt(25, Row::bytes)?.map(<[u8]>::to_vec),
        external_id: row.opt(26, Row::text)?.map(str::to_owned),
        message: row.opt(27, Row::text)?.map(str::to_owned),
        error: row.opt(28, Row::json)?,
        fence: row.int(29)?,
        waiters: row.int(30)?,
        replaced_by: row.opt(31, Row::id)?,
        created_by: row.text(32)?.to_owned(),
        created_at: row.int(33)?,
        updated_at: row.int(34)?,
        environment_name: row.text(35)?.to_owned(),
        max_consumers: row.opt(36, Row::int)?.map(|most| most as u32),
        share_when: row.opt(37, Row::text)?.map(str::to_owned),
        pool: row.opt(38, Row::id)?,
        destroy_after: row.opt(39, Row::int)?,
        observed: row.opt(40, Row::json)?,
        observed_at: row.opt(41, Row::int)?,
        facts: row.opt(42, Row::json)?,
        drift: row.opt(43, Row::json)?,
        deleted_at: row.opt(44, Row::int)?,
    })
}

#[derive(Clone, Debug, Default)]
pub struct ResourceFilter {
    /// Pieces of what is said of it, as JSON.
    pub facts: Vec<String>,
    pub environment: Option<EnvironmentId>,
    pub application: Option<ApplicationId>,
    pub kind: Option<String>,
    pub class: Option<String>,
    pub template: Option<String>,
    pub state: Option<State>,
    pub statuses: Vec<Status>,
    pub hide_destroyed: bool,
    pub after: Option<ResourceId>,
    pub sight: Sight,
    pub limit: i64,
}

#[derive(Clone, Debug)]
pub struct NewResourceRow<'a> {
    pub organisation: OrganisationId,
    pub environment: EnvironmentId,
    pub new: &'a conductor_domain::plan::NewResource,
    pub spec: Json,
    pub change: ChangeId,
    pub actor: &'a str,
    pub now: i64,
}

impl NewResourceRow<'_> {
    fn values(&self) -> Vec<Value> {
        let new = self.new;
        vec![
            new.id.into(),
            self.organisation.into(),
            self.environment.into(),
            new.key.domain.into(),
            Value::from(&new.key.kind),
            Value::from(&new.key.class),
            new.key.tag.as_str().into(),
            Value::from(&new.key.name),
            Value::from(&new.name),
            Value::from(&new.slug),
            new.workload.into(),
            new.version.into(),
            State::Provision.as_str().into(),
            State::Provision.as_str().into(),
            place(State::Provision).into(),
            Status::Queued.as_str().into(),
            new.kept_by.as_str().into(),
            0i64.into(),
            1i64.into(),
            0i64.into(),
            Value::from(&self.spec),
            0i64.into(),
            0i64.into(),
            new.replaces.unwrap_or(new.id).into(),
            self.change.into(),
            self.change.into(),
            self.actor.into(),
            self.now.into(),
            self.now.into(),
            new.max_consumers.map(i64::from).into(),
            new.when.clone().into(),
            new.pool.into(),
        ]
    }
}

/// What the keys go by.
fn place(state: State) -> &'static str {
    match state {
        State::Provision | State::Provisioned => "live",
        State::Destroy => "doomed",
        State::Destroyed => "gone",
    }
}

/// Long lists are asked for in pieces.
const PIECE: usize = 200;

impl Tx<'_> {
    pub(crate) fn in_pieces<K: Copy + Into<Value>>(
        &mut self,
        keys: impl IntoIterator<Item = K>,
        sql: impl Fn(&str) -> String,
        mut each: impl FnMut(&Row) -> Result<()>,
    ) -> Result<()> {
        let keys: Vec<K> = keys.into_iter().collect();
        for piece in keys.chunks(PIECE) {
            let values: Vec<Value> = piece.iter().map(|key| (*key).into()).collect();
            for row in self.query(&sql(&placeholders(1, values.len())), &values)? {
                each(&row)?;
            }
        }
        Ok(())
    }

    pub fn resource(&mut self, id: ResourceId) -> Result<Option<ResourceRow>> {
        let row = self.query_one(&format!("{RESOURCE} WHERE r.id = $1"), params![id])?;
        row.as_ref().map(resource_row).transpose()
    }

    pub fn resources_by_id(&mut self, ids: &BTreeSet<ResourceId>) -> Result<Vec<ResourceRow>> {
        let mut found = Vec::with_capacity(ids.len());
        self.in_pieces(
            ids.iter().copied(),
            |list| format!("{RESOURCE} WHERE r.id IN ({list})"),
            |row| {
                found.push(resource_row(row)?);
                Ok(())
            },
        )?;
        Ok(found)
    }

    /// The living ones of these keys, else the ones being taken away.
    pub fn resources_by_key(&mut self, keys: &[Key]) -> Result<BTreeMap<Key, ResourceRow>> {
        let mut found: BTreeMap<Key, ResourceRow> = BTreeMap::new();
        for piece in keys.chunks(PIECE / 4) {
            let mut values: Vec<Value> = Vec::with_capacity(piece.len() * 5);
            let mut terms = Vec::with_capacity(piece.len() * 2);
            for key in piece {
                let at = values.len();
                let term = format!(
                    "r.domain_id = ${} AND r.kind = ${} AND r.class = ${} AND r.key_tag = ${} AND r.key_name = ${}",
                    at + 1,
                    at + 2,
                    at + 3,
                    at + 4,
                    at + 5
                );
                terms.push(format!("({term} AND r.place = 'live')"));
                terms.push(format!("({term} AND r.place = 'doomed')"));
                values.extend([
                    key.domain.into(),
                    Value::from(&key.kind),
                    Value::from(&key.class),
                    key.tag.as_str().into(),
                    Value::from(&key.name),
                ]);
            }
            for row in self.query(&format!("{RESOURCE} WHERE {}", terms.join(" OR ")), &values)? {
                let row = resource_row(&row)?;
                let better = |there: &ResourceRow| {
                    row.state != State::Destroy || row.id > there.id && there.state == State::Destroy
                };
                if found.get(&row.key).is_none_or(better) {
                    found.insert(row.key.clone(), row);
                }
            }
        }
        Ok(found)
    }

    pub fn resource_by_external_id(
        &mut self,
        organisation: OrganisationId,
        id: &str,
    ) -> Result<Option<ResourceId>> {
        let row = self.query_one(
            "SELECT id FROM resources WHERE organisation_id = $1 AND external_id = $2
             AND state IN ('provision', 'provisioned') AND deleted_at IS NULL ORDER BY id",
            params![organisation, id],
        )?;
        row.map(|row| row.id(0)).transpose()
    }

    pub fn resources(
        &mut self,
        organisation: OrganisationId,
        filter: &ResourceFilter,
    ) -> Result<Vec<ResourceRow>> {
        let mut sql = format!(
            "{RESOURCE} WHERE r.organisation_id = $1 AND r.workload = 0
            AND r.deleted_at IS NULL"
        );
        let mut values: Vec<Value> = vec![organisation.into()];
        let mut narrow = |clause: &str, value: Value| {
            values.push(value);
            sql.push_str(" AND ");
            sql.push_str(&clause.replace('?', &format!("${}", values.len())));
        };
        if let Some(environment) = filter.environment {
            narrow("r.environment_id = ?", environment.into());
        }
        if let Some(application) = filter.application {
            narrow(
                "EXISTS (SELECT 1 FROM consumers c WHERE c.resource_id = r.id AND c.application_id = ?)",
                application.into(),
            );
        }
        for (clause, value) in [("r.kind = ?", &filter.kind), ("r.class = ?", &filter.class)] {
            if let Some(value) = value {
                narrow(clause, value.into());
            }
        }
        if let Some(template) = &filter.template {
            let clause = "EXISTS (SELECT 1 FROM template_versions v JOIN templates t ON t.id = v.template_id
                          WHERE v.id = r.template_version_id AND t.name = ?)";
            narrow(clause, template.into());
        }
        for fact in &filter.facts {
            let escaped = fact.replace('!', "!!").replace('%', "!%").replace('_', "!_");
            narrow("r.facts LIKE ? ESCAPE '!'", format!("%{escaped}%").into());
        }
        if let Some(state) = filter.state {
            narrow("r.state = ?", state.as_str().into());
        }
        if let Some(after) = filter.after {
            narrow("r.id > ?", after.into());
        }
        if !filter.statuses.is_empty() {
            let words: Vec<String> = filter.statuses.iter().map(|status| format!("'{status}'")).collect();
            sql.push_str(&format!(" AND r.status IN ({})", words.join(", ")));
        }
        if filter.hide_destroyed {
            sql.push_str(" AND r.state <> 'destroyed'");
        }
        sql.push_str(&filter.sight.of_resources("r", &mut values));
        sql.push_str(&format!(" ORDER BY r.id LIMIT {}", filter.limit.clamp(1, 1001)));
        self.query(&sql, &values)?.iter().map(resource_row).collect()
    }

    pub fn insert_resources(&mut self, rows: &[NewResourceRow<'_>]) -> Result<()> {
        let rows: Vec<Vec<Value>> = rows.iter().map(NewResourceRow::values).collect();
        self.put_rows(
            "INSERT INTO resources (id, organisation_id, environment_id, domain_id, kind, class, key_tag, key_name, name,
                 slug, workload, template_version_id, prev_state, state, place, status, kept_by, protected, generation,
                 observed_generation, spec, fence, waiters, lineage_id, made_change_id, spec_change_id, created_by,
                 created_at, updated_at, max_consumers, share_when, pool_id) VALUES",
            &rows, "")
    }

    /// A new desired state; the one before is kept as a revision.
    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn specify_resource(
        &mut self,
        id: ResourceId,
        from: (State, Status),
        to: (State, Status),
        version: TemplateVersionId,
        spec: &Json,
        generation: i64,
        change: ChangeId,
        now: i64,
    ) -> Result<()> {
        self.put(
            "INSERT INTO revisions (resource_id, number, organisation_id, state, template_version_id, spec, change_id,
                 created_at)
             SELECT id, generation, organisation_id,
                 CASE WHEN observed_generation = generation THEN 'applied' ELSE 'failed' END, template_version_id, spec,
                 spec_change_id, updated_at FROM resources WHERE id = $1",
            params![id],
        )?;
        self.put_one(
            "UPDATE resources SET prev_state = state, state = $4, place = $5, status = $6, template_version_id = $7,
                 spec = $8, generation = $9, spec_change_id = $10, updated_at = $11
             WHERE id = $1 AND state = $2 AND status = $3",
            params![
                id,
                from.0.as_str(),
                from.1.as_str(),
                to.0.as_str(),
                place(to.0),
                to.1.as_str(),
                version,
                spec,
                generation,
                change,
                now
            ],
        )
    }

    /// What was desired last is not to be: what was applied is what is desired, and the other a revision.
    pub fn take_back_spec(&mut self, id: ResourceId, now: i64) -> Result<()> {
        let differs = "id = $1 AND applied_spec IS NOT NULL
            AND (spec <> applied_spec OR template_version_id <> applied_version_id)";
        self.put(
            &format!(
                "INSERT INTO revisions (resource_id, number, organisation_id, state, template_version_id, spec, change_id,
                     created_at)
                 SELECT id, generation, organisation_id, 'rejected', template_version_id, spec, spec_change_id, updated_at
                 FROM resources WHERE {differs}"
            ),
            params![id],
        )?;
        self.put(
            &format!(
                "UPDATE resources SET spec = applied_spec, template_version_id = applied_version_id,
                     generation = generation + 1, observed_generation = generation + 1, updated_at = $2,
                     spec_change_id = coalesce((SELECT v.change_id FROM revisions v WHERE v.resource_id = resources.id
                         AND v.number = resources.observed_generation), spec_change_id)
                 WHERE {differs}"
            ),
            params![id, now],
        )
    }

    /// Moves a resource from a state it must be in, with a word why.
    pub fn move_resource(
        &mut self,
        id: ResourceId,
        from: (State, Status),
        to: (State, Status),
        message: Option<&str>,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE resources SET prev_state = state, state = $4, place = $5, status = $6, message = $7, updated_at = $8
             WHERE id = $1 AND state = $2 AND status = $3",
            params![
                id,
                from.0.as_str(),
                from.1.as_str(),
                to.0.as_str(),
                place(to.0),
                to.1.as_str(),
                message,
                now
            ],
        )
    }

    pub fn fail_resource(
        &mut self,
        id: ResourceId,
        from: (State, Status),
        to: Status,
        message: &str,
        error: &Json,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE resources SET prev_state = state, status = $4, message = $5, error = $6, updated_at = $7
             WHERE id = $1 AND state = $2 AND status = $3",
            params![id, from.0.as_str(), from.1.as_str(), to.as_str(), message, error, now],
        )
    }

    pub fn set_replaced(&mut self, old: ResourceId, by: ResourceId) -> Result<()> {
        self.put_one("UPDATE resources SET replaced_by = $2 WHERE id = $1", params![old, by])
    }

    /// What was to take its place never came about, and nothing stands on that.
    pub fn clear_replaced(&mut self, old: ResourceId, by: ResourceId) -> Result<()> {
        self.put("DELETE FROM dependencies WHERE depends_on_id = $1", params![by])?;
        self.put_one("UPDATE resources SET replaced_by = NULL WHERE id = $1", params![old])
    }

    /// A success: what was desired is applied. Tells its name, and whether somebody waits for it.
    #[allow(clippy::too_many_arguments, reason = "one column each")]
    pub fn apply_resource(
        &mut self,
        id: ResourceId,
        from: State,
        generation: i64,
        operation: OperationId,
        outputs: &Json,
        manager_state: Option<Vec<u8>>,
        external_id: Option<&str>,
        message: Option<&str>,
        now: i64,
    ) -> Result<(String, bool, Json)> {
        let row = self.query_one(
            "UPDATE resources SET prev_state = state, state = 'provisioned', status = 'done', observed_generation = $3,
                 applied_spec = spec, applied_version_id = template_version_id, outputs = $5, manager_state = $6,
                 external_id = $7, message = $9, error = NULL, drift = NULL, updated_at = $8,
                 inputs = (SELECT inputs FROM operations WHERE operations.id = $4),
                 inputs_digest = (SELECT inputs_digest FROM operations WHERE operations.id = $4)
             WHERE id = $1 AND state = $2 AND status = 'in_progress' RETURNING waiters, name, spec",
            params![id, from.as_str(), generation, operation, outputs, manager_state, external_id, now, message],
        )?;
        let row = row.ok_or_else(|| Error::Moved("a resource that was in progress".into()))?;
        Ok((row.text(1)?.to_owned(), row.int(0)? > 0, row.json(2)?))
    }

    /// What was last put in place.
    pub fn applied_spec(&mut self, id: ResourceId) -> Result<Option<Json>> {
        let row = self.query_one("SELECT applied_spec FROM resources WHERE id = $1", params![id])?;
        row.map_or(Ok(None), |row| row.opt(0, Row::json))
    }

    /// Inputs turned out unchanged: the new desired state is what is there.
    pub fn confirm_resource(&mut self, id: ResourceId, generation: i64, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET prev_state = state, status = 'done', observed_generation = $2, applied_spec = spec,
                 applied_version_id = template_version_id, updated_at = $3
             WHERE id = $1 AND state = 'provisioned' AND status = 'queued'",
            params![id, generation, now],
        )
    }

    /// Gone: no outputs, no inputs, no consumers.
    pub fn destroy_resource(&mut self, id: ResourceId, from: (State, Status), now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET prev_state = state, state = 'destroyed', place = 'gone', status = 'done', outputs = NULL, inputs = NULL,
                 inputs_digest = NULL, applied_spec = NULL, applied_version_id = NULL, manager_state = NULL,
                 message = NULL, error = NULL, destroy_after = NULL, drift = NULL, observed = NULL, updated_at = $4
             WHERE id = $1 AND state = $2 AND status = $3",
            params![id, from.0.as_str(), from.1.as_str(), now],
        )?;
        self.put("DELETE FROM consumers WHERE resource_id = $1", params![id])?;
        self.put("DELETE FROM unique_values WHERE resource_id = $1", params![id])?;
        self.put("DELETE FROM match_keys WHERE resource_id = $1", params![id])?;
        self.put("DELETE FROM dependencies WHERE resource_id = $1 AND parent = 0", params![id])
    }

    /// Nobody uses it: kept until then, and destroyed.
    pub fn bury_resource(
        &mut self,
        id: ResourceId,
        from: (State, Status),
        until: i64,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE resources SET prev_state = state, state = 'destroy', place = 'doomed', status = 'pending',
                 destroy_after = $4, updated_at = $5
             WHERE id = $1 AND state = $2 AND status = $3",
            params![id, from.0.as_str(), from.1.as_str(), until, now],
        )
    }

    /// Somebody thought again; `false`: its time had come.
    pub fn unbury_resource(&mut self, id: ResourceId, now: i64) -> Result<bool> {
        let touched = self.execute(
            "UPDATE resources SET prev_state = state, state = 'provisioned', place = 'live', status = 'done',
                 destroy_after = NULL, updated_at = $2
             WHERE id = $1 AND state = 'destroy' AND status = 'pending' AND destroy_after IS NOT NULL",
            params![id, now],
        )?;
        Ok(touched == 1)
    }

    /// Everything that was made in an environment, or belongs to it, and is not gone.
    pub fn resources_in(&mut self, environment: EnvironmentId) -> Result<Vec<ResourceRow>> {
        let sql = format!("{RESOURCE} WHERE r.environment_id = $1 AND r.state <> 'destroyed' ORDER BY r.id");
        self.query(&sql, params![environment])?.iter().map(resource_row).collect()
    }

    /// The same thing under another name.
    pub fn rename_resource(&mut self, id: ResourceId, key: Option<&str>, name: &str, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET key_name = coalesce($2, key_name), name = $3, updated_at = $4 WHERE id = $1",
            params![id, key, name, now],
        )
    }

    pub fn protect_resource(&mut self, id: ResourceId, protected: bool, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET protected = $2, updated_at = $3 WHERE id = $1",
            params![id, protected, now],
        )
    }

    pub fn set_facts(&mut self, id: ResourceId, facts: &Json, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET facts = $2, updated_at = $3 WHERE id = $1",
            params![id, facts, now],
        )
    }

    pub fn set_outputs(&mut self, id: ResourceId, outputs: &Json, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET outputs = $2, updated_at = $3 WHERE id = $1",
            params![id, outputs, now],
        )
    }

    /// Nothing has to be run for it: what is desired is there.
    pub fn apply_idle(&mut self, id: ResourceId, generation: i64, now: i64) -> Result<()> {
        self.put_one(
            "UPDATE resources SET prev_state = state, state = 'provisioned', place = 'live', status = 'done',
                 observed_generation = $2, applied_spec = spec, applied_version_id = template_version_id, error = NULL,
                 outputs = coalesce(outputs, '{}'), updated_at = $3 WHERE id = $1 AND status = 'queued'",
            params![id, generation, now],
        )
    }

    /// Something that somebody else looks after: there, with its outputs, and never destroyed from here.
    pub fn keep_external(
        &mut self,
        id: ResourceId,
        external_id: Option<&str>,
        outputs: &Json,
        now: i64,
    ) -> Result<()> {
        self.put_one(
            "UPDATE resources SET kept_by = 'external', outputs = $3, external_id = $2, updated_at = $4 WHERE id = $1",
            params![id, external_id, outputs, now],
        )
    }

    /// The record goes: with `values` also what it held. `false`: it is not destroyed.
    pub fn delete_record(&mut self, id: ResourceId, now: i64) -> Result<bool> {
        let touched = self.execute(
            "UPDATE resources SET deleted_at = $2, updated_at = $2
             WHERE id = $1 AND state = 'destroyed' AND deleted_at IS NULL",
            params![id, now],
        )?;
        Ok(touched == 1)
    }

    /// What a deleted record held: parameters, revisions, states, what was said of it.
    pub fn drop_values(&mut self, id: ResourceId) -> Result<()> {
        self.put("DELETE FROM revisions WHERE resource_id = $1", params![id])?;
        self.put("DELETE FROM states WHERE resource_id = $1", params![id])?;
        self.put("DELETE FROM dependencies WHERE depends_on_id = $1 OR resource_id = $1", params![id])?;
        self.put(
            "UPDATE resources SET spec = '{}', facts = NULL, observed = NULL, drift = NULL WHERE id = $1",
            params![id],
        )
    }

    /// Deleted records that still hold what they held.
    pub fn deleted_records(&mut self) -> Result<Vec<ResourceRow>> {
        let sql =
            format!("{RESOURCE} WHERE r.deleted_at IS NOT NULL AND r.spec <> '{{}}' ORDER BY r.id LIMIT 200");
        self.query(&sql, &[])?.iter().map(resource_row).collect()
    }

    /// Somebody thought again.
    pub fn restore_record(&mut self, id: ResourceId, now: i64) -> Result<bool> {
        let touched = self.execute(
            "UPDATE resources SET deleted_at = NULL, updated_at = $2 WHERE id = $1 AND deleted_at IS NOT NULL
             AND spec <> '{}'",
            params![id, now],
        )?;
        Ok(touched == 1)
    }

    /// Stays whether somebody uses it or not.
    pub fn keep_by_hand(&mut self, id: ResourceId) -> Result<()> {
        self.put_one("UPDATE resources SET kept_by = 'hand' WHERE id = $1", params![id])
    }

    /// Those whose time has come.
    pub fn buried_until(&mut self, now: i64) -> Result<BTreeSet<ResourceId>> {
        let rows = self.query(
            "SELECT id FROM resources WHERE destroy_after <= $1 AND state = 'destroy' AND status = 'pending'
             ORDER BY destroy_after LIMIT 200",
            params![now],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// Registers somebody who waits, as long as the resource is still on its way.
    pub fn add_waiter(&mut self, id: ResourceId, until_gone: bool) -> Result<bool> {
        let open = if until_gone {
            "state = 'destroy' AND status = 'in_progress'"
        } else {
            "status IN ('queued', 'approval_pending', 'in_progress') AND state IN ('provision', 'provisioned')"
        };
        let touched = self.execute(
            &format!("UPDATE resources SET waiters = waiters + 1 WHERE id = $1 AND {open}"),
            params![id],
        )?;
        Ok(touched == 1)
    }

    /// Live, made for consumers, and nobody left. A workload holds nothing: its application's uses do.
    pub fn unused_resources(&mut self, among: Option<&BTreeSet<ResourceId>>) -> Result<BTreeSet<ResourceId>> {
        let mut found = BTreeSet::new();
        let unused = "r.place = 'live' AND r.kept_by = 'consumers' AND r.protected = 0
            AND r.workload = 0
            AND NOT EXISTS (SELECT 1 FROM consumers c WHERE c.resource_id = r.id)
            AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.resource_id = r.id
                AND o.status IN ('blocked', 'approval_pending', 'queued', 'in_progress'))
            AND NOT EXISTS (SELECT 1 FROM dependencies d JOIN resources x ON x.id = d.resource_id
                WHERE d.depends_on_id = r.id AND d.kind <> 'weak' AND x.state <> 'destroyed' AND x.workload = 0)";
        match among {
            Some(ids) => self.in_pieces(
                ids.iter().copied(),
                |list| format!("SELECT r.id FROM resources r WHERE r.id IN ({list}) AND {unused}"),
                |row| {
                    found.insert(row.id(0)?);
                    Ok(())
                },
            )?,
            None => {
                for row in
                    self.query(&format!("SELECT r.id FROM resources r WHERE {unused} LIMIT 200"), &[])?
                {
                    found.insert(row.id(0)?);
                }
            }
        }
        Ok(found)
    }

    /// Destructions that did not come to their end, of what nobody uses: last touched before a moment.
    pub fn left_behind(&mut self, before: i64) -> Result<BTreeSet<ResourceId>> {
        let rows = self.query(
            "SELECT r.id FROM resources r WHERE r.place = 'doomed' AND r.status IN ('error', 'unknown', 'pending')
                 AND NOT (r.status = 'pending' AND r.destroy_after IS NOT NULL)
                 AND r.kept_by IN ('consumers', 'pool') AND r.workload = 0 AND r.updated_at <= $1
                 AND NOT EXISTS (SELECT 1 FROM consumers c WHERE c.resource_id = r.id)
                 AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.resource_id = r.id
                     AND o.status IN ('blocked', 'approval_pending', 'queued', 'in_progress'))
             ORDER BY r.id LIMIT 200",
            params![before],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    /// The operation at work on each of these, else the next one planned.
    pub fn open_operations_on(
        &mut self,
        ids: &BTreeSet<ResourceId>,
    ) -> Result<BTreeMap<ResourceId, OpenOperation>> {
        let mut found: BTreeMap<ResourceId, OpenOperation> = BTreeMap::new();
        self.in_pieces(
            ids.iter().copied(),
            |list| {
                format!(
                    "SELECT resource_id, id, kind, status, attempt FROM operations WHERE resource_id IN ({list})
                     AND status IN ('blocked', 'approval_pending', 'queued', 'in_progress')
                     AND kind NOT IN ('observe', 'plan') ORDER BY id"
                )
            },
            |row| {
                let open = OpenOperation {
                    id: row.id(1)?,
                    kind: row.word(2)?,
                    status: row.word(3)?,
                    begun: row.int(4)? > 0,
                };
                let running = |open: &OpenOperation| open.status == OperationStatus::InProgress;
                let resource = row.id(0)?;
                if !found.get(&resource).is_some_and(running) {
                    found.insert(resource, open);
                }
                Ok(())
            },
        )?;
        Ok(found)
    }
}

/// What a cancelled deployment takes back.
impl Tx<'_> {
    /// Resources that came to be by this change. Without `begun`, only those no
    /// worker was ever handed.
    pub fn made_by(&mut self, change: ChangeId, begun: bool) -> Result<BTreeSet<ResourceId>> {
        let rows = self.query(
            "SELECT DISTINCT r.id FROM operations o JOIN resources r ON r.id = o.resource_id
             WHERE o.change_id = $1 AND r.made_change_id = $1 AND (r.fence = 0 OR $2 = 1)",
            params![change, begun],
        )?;
        rows.iter().map(|row| row.id(0)).collect()
    }

    pub fn drop_consumers(
        &mut self,
        resources: &BTreeSet<ResourceId>,
        application: ApplicationId,
        environment: EnvironmentId,
    ) -> Result<()> {
        for resource in resources {
            self.put(
                "DELETE FROM consumers WHERE resource_id = $1 AND application_id = $2 AND environment_id = $3",
                params![resource, application, environment],
            )?;
        }
        self.recount_matches(resources)
    }

    /// Of these, live ones without consumers whose only dependents are among `going`.
    pub fn unused_but_for(
        &mut self,
        among: &BTreeSet<ResourceId>,
        going: &BTreeSet<ResourceId>,
    ) -> Result<BTreeSet<ResourceId>> {
        let mut found = BTreeSet::new();
        let counts = self.consumer_counts(among)?;
        let dependents = self.dependents_of(among)?;
        let open = self.open_operations_on(among)?;
        for row in self.resources_by_id(among)? {
            let live = matches!(row.state, State::Provision | State::Provisioned);
            let busy = open.contains_key(&row.id);
            let held = busy
                || dependents.iter().any(|d| d.on == row.id && !d.workload && !going.contains(&d.resource));
            if live
                && row.kept_by == KeptBy::Consumers
                && !row.protected
                && !held
                && !counts.contains_key(&row.id)
            {
                found.insert(row.id);
            }
        }
        Ok(found)
    }
}

impl Tx<'_> {
    /// Where these stand, and nothing else of them.
    pub fn resource_phases(
        &mut self,
        ids: &BTreeSet<ResourceId>,
    ) -> Result<Vec<(ResourceId, State, Status)>> {
        let mut found = Vec::with_capacity(ids.len());
        self.in_pieces(
            ids.iter().copied(),
            |list| format!("SELECT id, state, status FROM resources WHERE id IN ({list})"),
            |row| {
                found.push((row.id(0)?, row.word(1)?, row.word(2)?));
                Ok(())
            },
        )?;
        Ok(found)
    }
}

/// Parameters that no two living resources of a template may share.
impl Tx<'_> {
    /// Who holds this value, if it is another resource.
    pub fn unique_holder(
        &mut self,
        template: TemplateId,
        parameter: &str,
        hash: &[u8],
        but: ResourceId,
    ) -> Result<Option<ResourceId>> {
        let row = self.query_one(
            "SELECT resource_id FROM unique_values WHERE template_id = $1 AND parameter = $2 AND hash = $3",
            params![template, parameter, hash],
        )?;
        Ok(row.map(|row| row.id(0)).transpose()?.filter(|holder| *holder != but))
    }

    pub fn hold_unique(
        &mut self,
        organisation: OrganisationId,
        template: TemplateId,
        resource: ResourceId,
        values: &[(String, Vec<u8>)],
    ) -> Result<()> {
        self.put("DELETE FROM unique_values WHERE resource_id = $1", params![resource])?;
        for (parameter, hash) in values {
            self.put(
                "INSERT INTO unique_values (template_id, parameter, hash, resource_id, organisation_id)
                 VALUES ($1, $2, $3, $4, $5)",
                params![template, parameter, hash.clone(), resource, organisation],
            )?;
        }
        Ok(())
    }
}
