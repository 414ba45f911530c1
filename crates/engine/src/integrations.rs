//! Integrations: applied, looked at, tried. Their values are sealed when they come in and are never shown again.

use std::collections::BTreeMap;

use conductor_api::types::{Applied, Integration, IntegrationTest, Time};
use conductor_domain::{ids::IntegrationId, lifecycle::ErrorCode};
use conductor_store::{Result, Tx, integrations::IntegrationRow};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    Context, Engine,
    access::hex,
    audit::catalogue_record,
    catalogue::{applied, check_span, invalid, read},
    integration_rules::{check_audience, check_files, check_names, check_provider, scalars},
    progress::Progress,
    refusal::{not_found, refuse},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IntegrationType {
    /// Values that are kept here, sealed.
    #[default]
    Static,
    /// The worker's own identity: variables of its environment.
    Ambient,
    /// A token of this server, made anew for every operation.
    Oidc,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct IntegrationDocument {
    kind: String,
    name: String,
    provider: String,
    environment: Option<String>,
    #[serde(rename = "type", default)]
    integration_type: IntegrationType,
    /// Secret: sealed, masked, never shown.
    #[serde(default)]
    variables: Value,
    #[serde(default)]
    files: Value,
    /// Not secret: shown as they are.
    #[serde(default)]
    settings: Value,
    #[serde(default)]
    passthrough: Vec<String>,
    audience: Option<String>,
    token_variable: Option<String>,
    lifetime: Option<String>,
    test: Option<IntegrationTest>,
    description: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

pub(crate) fn apply_integration(
    tx: &mut Tx<'_>,
    context: &Context,
    document: &Value,
    now: i64,
) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let at = format!("Integration {name}");
    let integration: IntegrationDocument = read("Integration", name, document)?;
    let variables = scalars(&format!("{at}.variables"), &integration.variables)?;
    let files = scalars(&format!("{at}.files"), &integration.files)?;
    let settings = scalars(&format!("{at}.settings"), &integration.settings)?;
    check(&at, context, &integration, &variables, &files, &settings)?;
    let environment = match &integration.environment {
        None => None,
        Some(wanted) => Some(tx.environment_by_name(context.organisation, wanted)?.ok_or_else(|| {
            invalid(&format!("{at}.environment"), format!("there is no environment `{wanted}`"), None)
        })?),
    };
    let place = integration.environment.clone().unwrap_or_default();
    let digest = hex(&tx.sealer().digest(document.to_string().as_bytes())?);
    let all = tx.integrations(context.organisation)?;
    let before = all.into_iter().find(|row| row.name == name && row.place == place);
    let action = match &before {
        Some(before) if before.document["digest"] == digest => {
            return Ok(applied("Integration", name, "unchanged"));
        }
        Some(_) => "updated",
        None => "created",
    };
    let mut row = IntegrationRow {
        id: before.as_ref().map_or_else(|| IntegrationId(context.ids.next()), |before| before.id),
        organisation: context.organisation,
        name: name.to_owned(),
        provider: integration.provider.clone(),
        environment: environment.map(|environment| environment.id),
        place,
        document: Value::Null,
        created_at: before.map_or(now, |before| before.created_at),
        updated_at: now,
    };
    let values = json!({ "variables": variables, "files": files });
    row.document = json!({
        "type": document.get("type").cloned().unwrap_or_else(|| json!("static")),
        "variables": variables.keys().collect::<Vec<_>>(),
        "files": files.keys().collect::<Vec<_>>(),
        "settings": settings,
        "passthrough": integration.passthrough,
        "audience": integration.audience,
        "tokenVariable": integration.token_variable,
        "lifetime": integration.lifetime,
        "test": integration.test,
        "description": integration.description,
        "values": tx.sealer().seal_leaf(row.owner(), &values)?,
        "digest": digest,
    });
    tx.upsert_integration(&row)?;
    Ok(applied("Integration", name, action))
}

fn check(
    at: &str,
    context: &Context,
    integration: &IntegrationDocument,
    variables: &BTreeMap<String, String>,
    files: &BTreeMap<String, String>,
    settings: &BTreeMap<String, String>,
) -> Result<()> {
    check_provider(&format!("{at}.provider"), &integration.provider)?;
    check_names(&format!("{at}.variables"), variables.keys())?;
    check_names(&format!("{at}.settings"), settings.keys())?;
    check_names(&format!("{at}.passthrough"), integration.passthrough.iter())?;
    check_names(&format!("{at}.tokenVariable"), integration.token_variable.iter())?;
    check_files(&format!("{at}.files"), files)?;
    check_span(&format!("{at}.lifetime"), integration.lifetime.as_deref())?;
    if integration.test.as_ref().is_some_and(|test| test.command.iter().all(String::is_empty)) {
        let suggestion = Some("as in `test: { command: [aws, sts, get-caller-identity] }`".to_owned());
        return Err(invalid(&format!("{at}.test.command"), "there is nothing to run".into(), suggestion));
    }
    let kind = integration.integration_type;
    let only = |key: &str, there: bool, of: IntegrationType, word: &str| match there && kind != of {
        true => {
            let suggestion = Some(format!("write `type: {word}`, or leave `{key}` out"));
            Err(invalid(&format!("{at}.{key}"), format!("this is for `type: {word}` alone"), suggestion))
        }
        false => Ok(()),
    };
    only("passthrough", !integration.passthrough.is_empty(), IntegrationType::Ambient, "ambient")?;
    only("audience", integration.audience.is_some(), IntegrationType::Oidc, "oidc")?;
    only("tokenVariable", integration.token_variable.is_some(), IntegrationType::Oidc, "oidc")?;
    only("lifetime", integration.lifetime.is_some(), IntegrationType::Oidc, "oidc")?;
    match kind {
        IntegrationType::Ambient if integration.passthrough.is_empty() => {
            let suggestion = Some("as in `passthrough: [AWS_PROFILE]`".to_owned());
            let message = "name the variables of the worker that are passed on".to_owned();
            Err(invalid(&format!("{at}.passthrough"), message, suggestion))
        }
        IntegrationType::Static if variables.is_empty() && files.is_empty() && settings.is_empty() => {
            let suggestion =
                Some("give it `variables: { NAME: value }` or `files: { path: content }`".into());
            Err(invalid(at, "there is nothing in it".into(), suggestion))
        }
        IntegrationType::Oidc => check_audience(at, context, integration.audience.as_deref()),
        _ => Ok(()),
    }
}

fn view(row: IntegrationRow) -> Integration {
    let document = &row.document;
    let masked = |key: &str| -> Map<String, Value> {
        let names = document[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| (name.to_owned(), Value::Null)).collect()
    };
    let text = |key: &str| document[key].as_str().map(str::to_owned);
    Integration {
        id: row.id,
        integration_type: text("type").unwrap_or_else(|| "static".into()),
        variables: masked("variables"),
        files: masked("files"),
        settings: serde_json::from_value(document["settings"].clone()).unwrap_or_default(),
        passthrough: serde_json::from_value(document["passthrough"].clone()).unwrap_or_default(),
        audience: text("audience"),
        description: text("description"),
        test: serde_json::from_value(document["test"].clone()).ok(),
        environment: Some(row.place).filter(|place| !place.is_empty()),
        name: row.name,
        provider: row.provider,
        created_at: Time(row.created_at),
        updated_at: Time(row.updated_at),
    }
}

/// The one of this name: an environment's own, or without one the organisation's.
pub(crate) fn by_name(
    tx: &mut Tx<'_>,
    context: &Context,
    name: &str,
    environment: Option<&str>,
) -> Result<IntegrationRow> {
    let all = tx.integrations(context.organisation)?;
    let mut named: Vec<&IntegrationRow> = all.iter().filter(|row| row.name == name).collect();
    let place = environment.unwrap_or_default();
    if let Some(row) = named.iter().find(|row| row.place == place) {
        return Ok((*row).clone());
    }
    match (environment, named.as_mut_slice()) {
        (None, [only]) => Ok(only.clone()),
        (None, [_, ..]) => {
            let places: Vec<&str> = named.iter().map(|row| row.place.as_str()).collect();
            let message =
                format!("`{name}` is there for {}: say which with --env (`?env=`)", places.join(", "));
            Err(refuse(ErrorCode::Invalid, message))
        }
        _ => {
            let label = |row: &IntegrationRow| match row.place.as_str() {
                "" => row.name.clone(),
                place => format!("{} of {place}", row.name),
            };
            let known: Vec<String> = all.iter().map(label).collect();
            let wanted = environment.map_or_else(|| name.to_owned(), |place| format!("{name} of {place}"));
            Err(not_found("integration", &wanted, &known))
        }
    }
}

impl Engine {
    pub async fn integrations(&self) -> Result<Vec<Integration>> {
        let organisation = self.context.organisation;
        let rows = self.db.read(move |tx| tx.integrations(organisation)).await?;
        Ok(rows.into_iter().map(view).collect())
    }

    pub async fn integration(&self, name: &str, environment: Option<&str>) -> Result<Integration> {
        let context = self.context.clone();
        let (name, environment) = (name.to_owned(), environment.map(str::to_owned));
        self.db.read(move |tx| by_name(tx, &context, &name, environment.as_deref()).map(view)).await
    }

    pub async fn delete_integration(&self, name: &str, environment: Option<&str>, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let (name, environment) = (name.to_owned(), environment.map(str::to_owned));
        self.db
            .write(move |tx| {
                let row = by_name(tx, &context, &name, environment.as_deref())?;
                let wanted = json!({ "kind": "Integration", "name": row.name, "environment": row.place });
                let before = catalogue_record(tx, &context, &wanted)?;
                tx.delete_integration(row.id)?;
                let (kind, name) = ("Integration", &row.name);
                let told =
                    json!({ "kind": kind, "name": name, "action": "deleted", "before": before, "after": null });
                let mut progress = Progress::new(tx, &context, context.now());
                progress.event("catalogue.applied", &actor, None, None, None, told)
            })
            .await
    }
}
