//! What a worker is handed for an operation: every placeholder filled in, every secret named.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_api::worker::{Claim, JobOrder, Task};
use conductor_domain::{
    catalogue::TemplateVersion,
    expr::{MissingOutput, Params, Ref, Resolved, params_refs},
    ids::ResourceId,
    lifecycle::OperationKind,
    plan::changed_by_hand,
    work::{Previous, Step, StepKind, Subject},
    workload,
};
use conductor_store::{
    Error, Owner, Result, Tx, dependencies::DependencyRow, operations::OperationRow, resources::ResourceRow,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Context,
    catalogue::open_payload,
    credentials::{Bearer, gather},
    planning::open_spec,
    states::backend_of,
    templates::duration_ms,
};

const DEFAULT_TIMEOUT_MS: u64 = 3_600_000;

/// What an attempt was given, kept sealed with it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Inputs {
    pub parameters: Map<String, Value>,
    /// Values that are secret wherever they turn up.
    pub secrets: BTreeSet<String>,
}

pub(crate) struct Prepared {
    pub order: JobOrder,
    pub sealed: Vec<u8>,
    pub digest: Vec<u8>,
}

pub(crate) fn inputs_owner<'a>(context: &Context, id: &'a ResourceId) -> Owner<'a> {
    Owner { organisation: context.organisation, kind: "inputs", id: id.0.as_bytes() }
}

pub(crate) fn open_inputs(tx: &Tx<'_>, context: &Context, id: ResourceId, sealed: &[u8]) -> Result<Inputs> {
    let plain = tx.sealer().open(inputs_owner(context, &id), sealed)?;
    serde_json::from_slice(&plain).map_err(|_| Error::Corrupt("inputs are damaged".into()))
}

/// A resource's outputs with their secrets opened, and which of them are sensitive.
pub(crate) fn open_outputs(tx: &Tx<'_>, row: &ResourceRow) -> Result<(Map<String, Value>, BTreeSet<String>)> {
    let owner = Owner { organisation: row.organisation, kind: "outputs", id: row.id.0.as_bytes() };
    let mut values = Map::new();
    let mut sensitive = BTreeSet::new();
    for (name, value) in row.outputs.as_ref().and_then(Value::as_object).into_iter().flatten() {
        if conductor_store::is_sealed(value) {
            sensitive.insert(name.clone());
        }
        values.insert(name.clone(), tx.sealer().open_leaf(owner, value)?);
    }
    Ok((values, sensitive))
}

/// What references can see of a resource.
struct Visible {
    outputs: Map<String, Value>,
    sensitive: BTreeSet<String>,
    own_id: String,
}

impl Visible {
    fn look(&self, reference: &Ref) -> std::result::Result<Resolved, MissingOutput> {
        let missing = || MissingOutput { resource: reference.resource, output: reference.path.join(".") };
        let (first, rest) = reference.path.split_first().ok_or_else(missing)?;
        let value = match self.outputs.get(first) {
            Some(value) => rest.iter().try_fold(value, |value, key| match value {
                Value::Array(items) => key.parse::<usize>().ok().and_then(|i| items.get(i)),
                other => other.get(key),
            }),
            None if first == "id" && rest.is_empty() => {
                return Ok(Resolved { value: Value::String(self.own_id.clone()), sensitive: false });
            }
            None => None,
        };
        let value = value.cloned().ok_or_else(missing)?;
        Ok(Resolved { value, sensitive: self.sensitive.contains(first) })
    }
}

/// Every text inside a value, for masking.
pub(crate) fn texts(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.len() >= 4 => drop(into.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| texts(item, into)),
        Value::Object(entries) => entries.values().for_each(|entry| texts(entry, into)),
        _ => {}
    }
}

/// A change that is only tried: what a resource would be given.
struct Tried {
    version: Arc<TemplateVersion>,
    /// `set` or `spec`: see [`crate::previews::Trial`].
    given: Value,
}

impl Tried {
    fn read(tx: &mut Tx<'_>, context: &Context, operation: &OperationRow) -> Result<Self> {
        let payload = open_payload(tx, operation)?;
        let corrupt = || Error::Corrupt("a trial of nothing".into());
        let version = serde_json::from_value(payload["version"].clone()).map_err(|_| corrupt())?;
        Ok(Self { version: context.templates.get(tx, version, None)?, given: payload })
    }

    fn inputs(
        &self,
        tx: &mut Tx<'_>,
        row: &ResourceRow,
    ) -> Result<std::result::Result<Inputs, MissingOutput>> {
        let params = match (self.given.get("spec"), self.given["set"].as_object()) {
            (Some(spec), _) => open_spec(tx, row, spec)?,
            (None, Some(set)) => {
                let params = open_spec(tx, row, &row.spec)?;
                changed_by_hand(params, set, &self.version, self.version.id != row.version)
            }
            (None, None) => return Err(Error::Corrupt("a trial of nothing".into())),
        };
        let ids = params_refs(&params).into_iter().map(|reference| reference.resource).collect();
        let visible = visible(tx, &ids)?;
        Ok(fill(&params, &self.version, &visible, false))
    }
}

/// The step of an operation on a resource, or what is missing.
pub(crate) fn prepare(
    tx: &mut Tx<'_>,
    context: &Context,
    operation: &OperationRow,
    row: &ResourceRow,
    application: Option<String>,
    fence: i64,
) -> Result<std::result::Result<Prepared, String>> {
    let tried = match operation.kind {
        OperationKind::Plan => Some(Tried::read(tx, context, operation)?),
        _ => None,
    };
    let version = match &tried {
        Some(tried) => tried.version.clone(),
        None => context.templates.get(tx, row.version, None)?,
    };
    let (previous, mut secrets) = previous(tx, context, row)?;
    let dependencies = tx.dependencies_of(&BTreeSet::from([row.id]))?;
    let inputs = if let Some(tried) = &tried {
        match tried.inputs(tx, row)? {
            Ok(inputs) => inputs,
            Err(missing) => return Ok(Err(missing.to_string())),
        }
    } else if matches!(operation.kind, OperationKind::Destroy | OperationKind::Observe) {
        match &row.inputs {
            Some(sealed) => open_inputs(tx, context, row.id, sealed)?,
            None => resolve_or_null(tx, context, row)?,
        }
    } else {
        match resolve(tx, row, &version)? {
            Ok(inputs) => inputs,
            Err(missing) => return Ok(Err(missing.to_string())),
        }
    };
    let bearer = bearer(context, operation, row, application.as_deref(), &version, fence);
    let credentials = match gather(tx, context, &version.integrations, &row.environment_name, &bearer)? {
        Ok(credentials) => credentials,
        Err(reason) => return Ok(Err(format!("template {}: {reason}", version.label()))),
    };
    secrets.extend(inputs.secrets.iter().cloned());
    let (handed, more) = handed_over(tx, &dependencies)?;
    secrets.extend(more);
    let plain = serde_json::to_vec(&inputs).map_err(|error| Error::Corrupt(error.to_string()))?;
    let sealed = tx.sealer().seal(inputs_owner(context, &row.id), &plain)?;
    let digest = tx.sealer().digest(&digest_body(&inputs, &version))?;
    let state = match &row.manager_state {
        Some(sealed) => {
            let owner =
                Owner { organisation: row.organisation, kind: "manager_state", id: row.id.0.as_bytes() };
            serde_json::from_slice(&tx.sealer().open(owner, sealed)?).ok()
        }
        None => None,
    };
    let backend = match version.manager.as_str() {
        "terraform" => backend_of(tx, row)?,
        _ => None,
    };
    secrets.extend(backend.iter().flat_map(|(_, secrets)| secrets.iter().cloned()));
    let kind = match operation.kind {
        OperationKind::Create => StepKind::Create,
        OperationKind::Destroy => StepKind::Delete,
        OperationKind::Observe => StepKind::Observe,
        OperationKind::Plan => StepKind::Plan,
        // It went behind our back: there is nothing to update.
        OperationKind::Update if row.drift.as_ref().is_some_and(|drift| drift["kind"] == "missing") => {
            StepKind::Create
        }
        _ => StepKind::Update,
    };
    let step = Step {
        kind,
        operation: operation.id,
        attempt: operation.attempt.max(0) as u32 + 1,
        subject: Subject {
            id: row.id,
            name: row.name.clone(),
            slug: row.slug.clone(),
            kind: row.key.kind.clone(),
            class: row.key.class.clone(),
            environment: row.environment_name.clone(),
            application,
        },
        config: version.config.clone(),
        parameters: inputs.parameters.clone(),
        previous,
        state,
        dependencies: handed,
        secrets: secrets.into_iter().collect(),
        journal: journal(tx, context, row)?,
        backend: backend.map(|(block, _)| block),
    };
    let order = JobOrder {
        claim: Claim { operation: operation.id, fence },
        token: None,
        change: operation.change,
        manager: version.manager.clone(),
        content: version.content.clone(),
        task: Task::Step(Box::new(step)),
        credentials,
        lease_ms: context.lease.as_millis() as u64,
        timeout_ms: duration_ms(&version.config, "timeout").unwrap_or(DEFAULT_TIMEOUT_MS),
        trace: None,
    };
    Ok(Ok(Prepared { order, sealed, digest }))
}

/// The digest of what an operation would be given as things are; `None` where that is not known yet, or is about to
/// be something else.
pub(crate) fn digest_now(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &ResourceRow,
    kind: OperationKind,
    changing: Option<&BTreeSet<ResourceId>>,
) -> Result<Option<Vec<u8>>> {
    if kind == OperationKind::Destroy {
        return Ok(None);
    }
    if let Some(changing) = changing
        && params_refs(&open_spec(tx, row, &row.spec)?).iter().any(|on| changing.contains(&on.resource))
    {
        return Ok(None);
    }
    let version = context.templates.get(tx, row.version, None)?;
    match resolve(tx, row, &version)? {
        Ok(inputs) => Ok(Some(tx.sealer().digest(&digest_body(&inputs, &version))?)),
        Err(_) => Ok(None),
    }
}

/// What attempts noted since the last that came to its end.
fn journal(tx: &mut Tx<'_>, context: &Context, row: &ResourceRow) -> Result<Vec<Value>> {
    let mut entries = Vec::new();
    if row.fence == 0 {
        return Ok(entries);
    }
    for (operation, sealed) in tx.open_journals(row.id)? {
        let owner = Owner { organisation: context.organisation, kind: "journal", id: operation.0.as_bytes() };
        let plain = tx.sealer().open(owner, &sealed)?;
        entries.extend(serde_json::from_slice::<Vec<Value>>(&plain).unwrap_or_default());
    }
    Ok(entries)
}

/// What a token of this server says of an operation.
fn bearer(
    context: &Context,
    operation: &OperationRow,
    row: &ResourceRow,
    application: Option<&str>,
    version: &TemplateVersion,
    fence: i64,
) -> Bearer {
    let (organisation, environment) = (&context.organisation_name, &row.environment_name);
    let application = application.unwrap_or("-");
    let claims = json!({
        "jti": format!("{}-{fence}", operation.id), "organisation": organisation, "environment": environment,
        "application": application, "template": version.name, "template_version": version.version.to_string(),
        "resource": row.id, "operation": operation.id,
    });
    Bearer {
        subject: format!("org:{organisation}:env:{environment}:app:{application}:template:{}", version.name),
        claims: claims.as_object().cloned().unwrap_or_default(),
    }
}

fn digest_body(inputs: &Inputs, version: &TemplateVersion) -> Vec<u8> {
    let mut body = version.id.bytes();
    body.extend(Value::Object(inputs.parameters.clone()).to_string().into_bytes());
    body
}

fn previous(
    tx: &Tx<'_>,
    context: &Context,
    row: &ResourceRow,
) -> Result<(Option<Previous>, BTreeSet<String>)> {
    let mut secrets = BTreeSet::new();
    let Some(sealed) = &row.inputs else {
        return Ok((None, secrets));
    };
    let inputs = open_inputs(tx, context, row.id, sealed)?;
    let (outputs, sensitive) = open_outputs(tx, row)?;
    for name in &sensitive {
        texts(&outputs[name], &mut secrets);
    }
    secrets.extend(inputs.secrets);
    Ok((Some(Previous { parameters: inputs.parameters, outputs }), secrets))
}

fn visible(tx: &mut Tx<'_>, ids: &BTreeSet<ResourceId>) -> Result<BTreeMap<ResourceId, Visible>> {
    let mut found = BTreeMap::new();
    for row in tx.resources_by_id(ids)? {
        let (outputs, sensitive) = open_outputs(tx, &row)?;
        let own_id = row.external_id.clone().unwrap_or_else(|| row.id.to_string());
        found.insert(row.id, Visible { outputs, sensitive, own_id });
    }
    Ok(found)
}

fn resolve(
    tx: &mut Tx<'_>,
    row: &ResourceRow,
    version: &TemplateVersion,
) -> Result<std::result::Result<Inputs, MissingOutput>> {
    let params = open_spec(tx, row, &row.spec)?;
    let ids: BTreeSet<ResourceId> =
        params_refs(&params).into_iter().map(|reference| reference.resource).collect();
    let visible = visible(tx, &ids)?;
    Ok(fill(&params, version, &visible, false))
}

/// For a destruction that never had a success to go by: what can be filled in is, the rest is null.
fn resolve_or_null(tx: &mut Tx<'_>, context: &Context, row: &ResourceRow) -> Result<Inputs> {
    let version = context.templates.get(tx, row.version, None)?;
    let params = open_spec(tx, row, &row.spec)?;
    let ids: BTreeSet<ResourceId> =
        params_refs(&params).into_iter().map(|reference| reference.resource).collect();
    let visible = visible(tx, &ids)?;
    Ok(fill(&params, &version, &visible, true).unwrap_or_default())
}

fn fill(
    params: &Params,
    version: &TemplateVersion,
    visible: &BTreeMap<ResourceId, Visible>,
    lenient: bool,
) -> std::result::Result<Inputs, MissingOutput> {
    let declared = version.schema.sensitive();
    let mut inputs = Inputs::default();
    for (name, expr) in params {
        let mut secrets = BTreeSet::new();
        let resolved = expr.resolve(&mut |reference| {
            let found = match visible.get(&reference.resource) {
                Some(visible) => visible.look(reference),
                None => Err(MissingOutput { resource: reference.resource, output: reference.path.join(".") }),
            };
            let found =
                if lenient { found.or(Ok(Resolved { value: Value::Null, sensitive: false })) } else { found };
            if let Ok(resolved) = &found
                && resolved.sensitive
            {
                texts(&resolved.value, &mut secrets);
            }
            found
        })?;
        if declared.contains(name) || resolved.sensitive && version.kind != workload::TYPE {
            texts(&resolved.value, &mut secrets);
        }
        inputs.secrets.extend(secrets);
        inputs.parameters.insert(name.clone(), resolved.value);
    }
    Ok(inputs)
}

/// Outputs by requirement.
type Handed = BTreeMap<String, Map<String, Value>>;

/// The outputs of what a resource depends on, by requirement, and the secrets among them.
fn handed_over(tx: &mut Tx<'_>, dependencies: &[DependencyRow]) -> Result<(Handed, BTreeSet<String>)> {
    let ids: BTreeSet<ResourceId> = dependencies.iter().map(|row| row.on).collect();
    let visible = if ids.is_empty() { BTreeMap::new() } else { visible(tx, &ids)? };
    let mut secrets = BTreeSet::new();
    let mut handed = BTreeMap::new();
    for dependency in dependencies {
        if let Some(visible) = visible.get(&dependency.on) {
            for name in &visible.sensitive {
                texts(&visible.outputs[name], &mut secrets);
            }
            handed.insert(dependency.requirement.clone(), visible.outputs.clone());
        }
    }
    Ok((handed, secrets))
}
