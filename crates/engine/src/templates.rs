//! Template versions as planning wants them: read once, compiled once, kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use conductor_domain::{
    approval::ApprovalPolicy,
    catalogue::{Rule, TemplateVersion, VersionState},
    ids::{EnvironmentId, TemplateVersionId},
    needs::{WantedVersion, WorkerTerms},
    schema::Schema,
    score::{self, Finding, Resource},
    sharing::SharingTerms,
};
use conductor_store::{
    Error, Result, Tx,
    catalogue::{VersionHead, VersionRow},
};
use serde_json::{Map, Value, json};

use crate::{
    Context,
    approvals::policy_of,
    catalogue::config_owner,
    planning::{grace, load_rules},
    pools::{PoolDefinition, load_pools},
    queues::{Queues, template_needs},
};

/// What a version is never changes, so it is never read twice; only its state may move.
#[derive(Default)]
pub(crate) struct Cache {
    versions: Mutex<HashMap<TemplateVersionId, Arc<TemplateVersion>>>,
    shelf: Mutex<Option<(i64, Arc<Shelf>)>>,
    pub queues: Queues,
}

/// Versions, rules and pools as they were at one stamp of the catalogue.
pub(crate) struct Shelf {
    pub heads: Vec<VersionHead>,
    pub rules: Vec<Rule>,
    pub pools: Vec<PoolDefinition>,
    /// What the organisation asks for everywhere.
    pub approval: ApprovalPolicy,
}

impl Shelf {
    pub fn pools_in(&self, environment: EnvironmentId) -> impl Iterator<Item = &PoolDefinition> {
        self.pools.iter().filter(move |pool| pool.environment == environment)
    }
}

impl Cache {
    /// All versions and rules; read again only when the catalogue has moved.
    pub fn shelf(&self, tx: &mut Tx<'_>, context: &Context) -> Result<Arc<Shelf>> {
        let stamp = tx.catalogue_stamp(context.organisation)?;
        let kept = self.shelf.lock().ok().and_then(|shelf| shelf.clone());
        if let Some((_, shelf)) = kept.filter(|(at, _)| *at == stamp) {
            return Ok(shelf);
        }
        let shelf = Arc::new(Shelf {
            heads: tx.version_heads(context.organisation)?,
            rules: load_rules(tx, context)?,
            pools: load_pools(tx, context)?,
            approval: policy_of(&tx.organisation_document(context.organisation)?),
        });
        if let Ok(mut kept) = self.shelf.lock() {
            *kept = Some((stamp, shelf.clone()));
        }
        Ok(shelf)
    }

    pub fn get(
        &self,
        tx: &mut Tx<'_>,
        id: TemplateVersionId,
        state: Option<&str>,
    ) -> Result<Arc<TemplateVersion>> {
        let state = state.map(parse_state).transpose()?;
        let known = self.versions.lock().ok().and_then(|versions| versions.get(&id).cloned());
        let version = match known {
            Some(version) if state.is_none_or(|state| state == version.state) => return Ok(version),
            Some(version) => TemplateVersion { state: state.unwrap_or(version.state), ..(*version).clone() },
            None => {
                let row =
                    tx.version(id)?.ok_or_else(|| Error::Corrupt("a template version is missing".into()))?;
                let config = open_config(tx, &row)?;
                read(&row, config)?
            }
        };
        let version = Arc::new(version);
        if let Ok(mut versions) = self.versions.lock() {
            versions.insert(id, version.clone());
        }
        Ok(version)
    }
}

fn parse_state(text: &str) -> Result<VersionState> {
    serde_json::from_value(Value::String(text.to_owned()))
        .map_err(|_| Error::Corrupt("a version's state".into()))
}

/// A version's config, opened.
pub(crate) fn open_config(tx: &Tx<'_>, row: &VersionRow) -> Result<Map<String, Value>> {
    let sealed = row.document.get("config").cloned().unwrap_or_default();
    let config = tx.sealer().open_leaf(config_owner(row.organisation, &row.id), &sealed)?;
    Ok(config.as_object().cloned().unwrap_or_default())
}

fn read(row: &VersionRow, mut config: Map<String, Value>) -> Result<TemplateVersion> {
    let corrupt = |what: &str| Error::Corrupt(format!("template {}: {what}", row.name));
    let schema = match row.document.get("parameters") {
        Some(json) if json.is_object() => {
            Schema::compile(json.clone()).map_err(|_| corrupt("its parameters"))?
        }
        _ => Schema::open(),
    };
    let worded = |name: &str| row.document.get(name).filter(|value| !value.is_null()).cloned();
    let terms: Option<WorkerTerms> = worded("worker")
        .map(serde_json::from_value)
        .transpose()
        .map_err(|_| corrupt("what it asks of workers"))?;
    let tool_version: Option<WantedVersion> = worded("toolVersion")
        .map(serde_json::from_value)
        .transpose()
        .map_err(|_| corrupt("its tool's version"))?;
    let handed = row.document["integrations"].as_array().is_some_and(|names| !names.is_empty());
    let needs = template_needs(&row.manager, &config, terms.as_ref(), tool_version.as_ref(), handed);
    with_tool_version(&mut config, tool_version.as_ref());
    let outputs = row.document.get("outputs").filter(|outputs| outputs.is_object());
    let flag = |name: &str| row.document.get(name).and_then(Value::as_bool).unwrap_or(false);
    Ok(TemplateVersion {
        id: row.id,
        template: row.template,
        name: row.name.clone(),
        kind: row.kind.clone(),
        class: row.class.clone(),
        version: row.version.parse().map_err(|_| corrupt("its version"))?,
        state: parse_state(&row.state)?,
        manager: row.manager.clone(),
        config,
        schema: Arc::new(schema),
        outputs: outputs
            .map(|outputs| serde_json::from_value::<BTreeMap<String, bool>>(outputs.clone()))
            .transpose()
            .map_err(|_| corrupt("its outputs"))?,
        can_observe: flag("canObserve"),
        can_plan: flag("canPlan"),
        create_first: row.document.get("replace").and_then(Value::as_str) == Some("create-first"),
        requires: match row.document.get("requires").filter(|requires| requires.is_object()) {
            Some(requires) => parse_requires(requires).map_err(|_| corrupt("what it requires"))?,
            None => BTreeMap::new(),
        },
        sharing: match row.document.get("sharing").filter(|sharing| sharing.is_object()) {
            Some(sharing) => serde_json::from_value(sharing.clone()).map_err(|_| corrupt("its sharing"))?,
            None => SharingTerms::default(),
        },
        retain: flag("retain"),
        grace: grace(&row.document),
        content: row.content.clone(),
        needs,
        approval: policy_of(&row.document),
        drift_policy: row.document["drift"]["policy"].as_str().map(str::to_owned),
        drift_schedule: row.document["drift"]["schedule"].as_str().map(str::to_owned),
        parents: part(&row.document, "parents"),
        tags: part(&row.document, "tags"),
        configs: part(&row.document, "configs"),
        integrations: row
            .document
            .get("integrations")
            .and_then(|names| serde_json::from_value(names.clone()).ok())
            .unwrap_or_default(),
    })
}

/// A part of a document that was checked when it was applied.
fn part<T: serde::de::DeserializeOwned + Default>(document: &Value, name: &str) -> T {
    document.get(name).and_then(|part| serde_json::from_value(part.clone()).ok()).unwrap_or_default()
}

/// A manager reads the version it is to use where it reads everything else.
pub(crate) fn with_tool_version(config: &mut Map<String, Value>, version: Option<&WantedVersion>) {
    if let Some(version) = version {
        config.insert("toolVersion".to_owned(), Value::String(version.to_string()));
    }
}

/// What a template requires is written as a Score file would ask for it, so it is read by the same reader.
pub(crate) fn parse_requires(
    requires: &Value,
) -> std::result::Result<BTreeMap<String, Resource>, Vec<Finding>> {
    let file = json!({
        "apiVersion": "score.dev/v1b1", "metadata": { "name": "required" },
        "containers": { "none": { "image": "none" } }, "resources": requires,
    });
    let manifest = score::parse(&file.to_string(), &score::Options { strict: false })?;
    Ok(manifest.resources)
}

/// A duration of a template's config.
pub(crate) fn duration_ms(config: &Map<String, Value>, name: &str) -> Option<u64> {
    parse_duration(config.get(name)?.as_str()?)
}

/// `500ms`, `30s`, `5m`, `2h`, `3d` in milliseconds.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..split].parse().ok()?;
    let unit = match &text[split..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(unit)
}
