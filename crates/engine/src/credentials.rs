//! What an operation is handed to reach things outside: what its template asks for, and nothing else.

use std::collections::BTreeMap;

use conductor_api::{types::ProblemItem, worker::Credentials};
use conductor_domain::{
    lifecycle::{ErrorCode, OperationKind},
    nearest,
    plan::{Effect, Plan, Snapshot},
};
use conductor_store::{Result, Tx, integrations::IntegrationRow};
use serde_json::{Map, Value};

use crate::{Context, refusal::refuse_all};

/// Where a file of an integration lies is known on the worker alone.
const FILES: &str = "${files}";
const TOKEN_FILE: &str = "${tokenFile}";

/// Of integrations that go by this name, or serve this provider, the one for an environment: its own before the
/// organisation's, a name before a provider.
pub(crate) fn find<'a>(
    all: &'a [IntegrationRow],
    wanted: &str,
    environment: &str,
) -> std::result::Result<&'a IntegrationRow, String> {
    let named = |row: &&IntegrationRow| row.name == wanted;
    let provides = |row: &&IntegrationRow| row.provider == wanted;
    let by: [&dyn Fn(&&IntegrationRow) -> bool; 2] = [&named, &provides];
    for fits in by {
        for place in [environment, ""] {
            let found: Vec<&IntegrationRow> =
                all.iter().filter(|row| row.place == place).filter(fits).collect();
            match found.as_slice() {
                [] => {}
                [only] => return Ok(only),
                several => {
                    let names: Vec<&str> = several.iter().map(|row| row.name.as_str()).collect();
                    return Err(format!(
                        "several integrations serve `{wanted}` ({}): let the template name one of them",
                        names.join(", ")
                    ));
                }
            }
        }
    }
    Err(format!("there is no integration `{wanted}` for environment `{environment}`, nor for all"))
}

/// Refuses a plan that would start what it could not finish.
pub(crate) fn check_plan(tx: &mut Tx<'_>, context: &Context, plan: &Plan, snapshot: &Snapshot) -> Result<()> {
    let made = plan.effects.iter().filter_map(|effect| match effect {
        Effect::Create(new) => Some((new.id, new.version, new.name.as_str())),
        Effect::Specify { resource, version, .. } => {
            let known = snapshot.resources.get(resource)?;
            let here = known.key.domain == snapshot.environment.domain;
            here.then_some((*resource, *version, known.name.as_str()))
        }
        _ => None,
    });
    let mut all: Option<Vec<IntegrationRow>> = None;
    let mut items: Vec<ProblemItem> = Vec::new();
    for (resource, version, name) in made {
        let runs = |kind| kind != OperationKind::Destroy;
        let planned = plan.operations.iter().any(|op| op.resource == Some(resource) && runs(op.kind));
        let Some(version) = snapshot.versions.get(&version).filter(|_| planned) else { continue };
        for wanted in &version.integrations {
            if all.is_none() {
                all = Some(tx.integrations(context.organisation)?);
            }
            let known = all.as_deref().unwrap_or_default();
            if let Err(reason) = find(known, wanted, &snapshot.environment.name) {
                let close = nearest(wanted, known.iter().map(|row| row.name.as_str()));
                let suggestion = close.map(|close| format!("did you mean `{close}`?"));
                items.push(ProblemItem {
                    path: name.to_owned(),
                    message: format!("template {} needs `{wanted}`: {reason}", version.label()),
                    suggestion: suggestion.or_else(|| {
                        Some(format!("apply a document with `kind: Integration` and `name: {wanted}`"))
                    }),
                    ..ProblemItem::default()
                });
            }
        }
    }
    match items.first() {
        None => Ok(()),
        Some(first) => {
            let message = format!("{}: {}", first.path, first.message);
            Err(refuse_all(ErrorCode::Invalid, message, &items))
        }
    }
}

/// Who asks: what a token of this server says of its bearer.
pub(crate) struct Bearer {
    pub subject: String,
    pub claims: Map<String, Value>,
}

/// Everything the named integrations give, or why they cannot.
pub(crate) fn gather(
    tx: &mut Tx<'_>,
    context: &Context,
    wanted: &[String],
    environment: &str,
    bearer: &Bearer,
) -> Result<std::result::Result<Credentials, String>> {
    let mut gathered = Credentials::default();
    if wanted.is_empty() {
        return Ok(Ok(gathered));
    }
    let all = tx.integrations(context.organisation)?;
    for name in wanted {
        let row = match find(&all, name, environment) {
            Ok(row) => row,
            Err(reason) => return Ok(Err(reason)),
        };
        if let Err(reason) = add(tx, context, row, bearer, &mut gathered)? {
            return Ok(Err(reason));
        }
    }
    Ok(Ok(gathered))
}

/// Adds what one integration gives; of two with one name, the later counts.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &IntegrationRow,
    bearer: &Bearer,
    into: &mut Credentials,
) -> Result<std::result::Result<(), String>> {
    let values = tx.sealer().open_leaf(row.owner(), &row.document["values"])?;
    let texts = |value: &Value| -> BTreeMap<String, String> {
        serde_json::from_value(value.clone()).unwrap_or_default()
    };
    let (mut variables, mut files) = (texts(&values["variables"]), texts(&values["files"]));
    let mut settings = texts(&row.document["settings"]);
    if row.document["type"] == "oidc" {
        let token = match crate::identity::token(tx, context, row, bearer)? {
            Ok(token) => token,
            Err(reason) => return Ok(Err(reason)),
        };
        let file = format!(".oidc/{}", row.name);
        let path = format!("{FILES}/{file}");
        for text in variables.values_mut().chain(files.values_mut()).chain(settings.values_mut()) {
            *text = text.replace(TOKEN_FILE, &path);
        }
        let variable = row.document["tokenVariable"].as_str().or(match row.provider.as_str() {
            "aws" => Some("AWS_WEB_IDENTITY_TOKEN_FILE"),
            "azure" => Some("ARM_OIDC_TOKEN_FILE_PATH"),
            _ => None,
        });
        if let Some(variable) = variable {
            settings.insert(variable.to_owned(), path);
        }
        files.insert(file, token);
    }
    into.variables.extend(variables);
    into.files.extend(files);
    into.settings.extend(settings);
    let passed: Vec<String> = serde_json::from_value(row.document["passthrough"].clone()).unwrap_or_default();
    into.passthrough.extend(passed);
    Ok(Ok(()))
}
