//! The catalogue: environments, applications, templates, rules. Applying the same document twice changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::types::{Applied, ApplyRequest, ProblemItem};
use conductor_domain::{
    approval::ApprovalPolicy,
    catalogue::{Criteria, NO_MANAGER, ParentTerms, Trait},
    ids::{
        ApplicationId, ChangeId, DomainId, EnvironmentId, OperationId, OrganisationId, RuleId, TemplateId,
        TemplateVersionId,
    },
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode, OperationKind},
    nearest,
    needs::{Needs, WantedVersion, WorkerTerms},
    schema::Schema,
    sharing::SharingTerms,
    work::Description,
};
use conductor_store::{
    Error, Owner, Result, Tx,
    catalogue::VersionRow,
    operations::{NewOperation, OperationRow},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use crate::{
    Context, Engine,
    audit::catalogue_record,
    drift::{DriftTerms, next_time},
    integrations::apply_integration,
    planning::load_rules,
    pools::apply_pool,
    progress::Progress,
    queues::template_needs,
    refusal::{not_found, refuse, refuse_all},
    states::{open_environment, parse_backend, refuse_to_lose_states, seal_environment},
    templates::{parse_duration, parse_requires},
};

const KINDS: [&str; 7] =
    ["Organisation", "Environment", "Application", "Integration", "Template", "Rule", "Pool"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct EnvironmentDocument {
    kind: String,
    name: String,
    #[serde(rename = "type", default = "development")]
    environment_type: String,
    description: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    /// How long a destruction waits for somebody to think again.
    grace: Option<String>,
    /// Where terraform keeps its states, when that is not with us.
    state: Option<Value>,
    /// Who has to agree to what.
    approval: Option<ApprovalPolicy>,
    /// When to look whether things are what is on record, and what to do then.
    drift: Option<DriftTerms>,
    /// How long it lives; it is torn down then.
    ttl: Option<String>,
    /// It cannot be torn down.
    #[serde(default)]
    protected: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct OrganisationDocument {
    kind: String,
    name: String,
    description: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    approval: Option<ApprovalPolicy>,
}

fn development() -> String {
    "development".into()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct ApplicationDocument {
    kind: String,
    name: String,
    description: Option<String>,
    repository: Option<String>,
    path: Option<String>,
    branches: Option<BTreeMap<String, String>>,
    owners: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct TemplateDocument {
    kind: String,
    name: String,
    #[serde(rename = "type")]
    template_type: String,
    #[serde(default = "default_class")]
    class: String,
    version: Option<String>,
    #[serde(default = "active")]
    state: String,
    #[serde(default = "no_manager")]
    manager: String,
    #[serde(default)]
    config: Map<String, Value>,
    parameters: Option<Value>,
    outputs: Option<BTreeMap<String, bool>>,
    replace: Option<String>,
    description: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    /// Further resources each of its own needs, as a Score file would ask for them.
    requires: Option<Value>,
    sharing: Option<SharingTerms>,
    #[serde(default)]
    retain: bool,
    grace: Option<String>,
    /// What its operations are handed: integrations by name or provider.
    #[serde(default)]
    integrations: Vec<String>,
    /// Which workers it is for.
    worker: Option<WorkerTerms>,
    /// Which version of its tool it is for.
    tool_version: Option<WantedVersion>,
    approval: Option<ApprovalPolicy>,
    drift: Option<DriftTerms>,
    /// Nothing is provisioned.
    #[serde(default, rename = "abstract")]
    is_abstract: bool,
    #[serde(default)]
    parents: Vec<ParentTerms>,
    #[serde(default)]
    tags: BTreeMap<String, Trait>,
    #[serde(default)]
    configs: BTreeMap<String, Trait>,
}

fn default_class() -> String {
    "default".into()
}

fn no_manager() -> String {
    NO_MANAGER.into()
}

fn active() -> String {
    "active".into()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct RuleDocument {
    kind: String,
    name: String,
    template: String,
    #[serde(rename = "match")]
    criteria: Criteria,
    description: Option<String>,
}

pub(crate) fn invalid(path: &str, message: String, suggestion: Option<String>) -> conductor_store::Error {
    let item =
        ProblemItem { path: path.into(), message: message.clone(), suggestion, ..ProblemItem::default() };
    refuse_all(ErrorCode::Invalid, format!("{path}: {message}"), &[item])
}

pub(crate) fn read<T: DeserializeOwned>(kind: &str, name: &str, document: &Value) -> Result<T> {
    serde_json::from_value(document.clone()).map_err(|error| {
        let text = error.to_string();
        let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
        let suggestion = match (text.starts_with("unknown field"), quoted.split_first()) {
            (true, Some((unknown, known))) => {
                nearest(unknown, known.iter().copied()).map(|close| format!("did you mean `{close}`?"))
            }
            _ => None,
        };
        invalid(&format!("{kind} {name}"), text, suggestion)
    })
}

fn check_name(kind: &str, name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(invalid(kind, format!("`{shown}` is no name: use 1 to 63 of a-z, 0-9 and -"), None))
}

impl Engine {
    /// Applies one catalogue document.
    pub async fn apply(&self, request: ApplyRequest, actor: &str) -> Result<Applied> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let dry_run = request.dry_run;
        let outcome = self.db.write(move |tx| {
            let now = context.now();
            let document = &request.document;
            let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
            let name = document.get("name").and_then(Value::as_str).unwrap_or_default();
            if !KINDS.contains(&kind) {
                let close = nearest(kind, KINDS).map(|close| format!("did you mean `{close}`?"));
                let suggestion = close.unwrap_or_else(|| format!("the kinds are {}", KINDS.join(", ")));
                return Err(invalid("kind", format!("there is no kind `{kind}`"), Some(suggestion)));
            }
            check_name(kind, name)?;
            let before = catalogue_record(tx, &context, document)?;
            let applied = match kind {
                "Environment" => apply_environment(tx, &context, document, now),
                "Application" => apply_application(tx, &context, document, now),
                "Integration" => apply_integration(tx, &context, document, now),
                "Rule" => apply_rule(tx, &context, document, now),
                "Pool" => apply_pool(tx, &context, document, now),
                "Template" => apply_template(
                    tx,
                    &context,
                    document,
                    request.content.as_deref(),
                    request.dry_run,
                    &actor,
                    now,
                ),
                _ => apply_organisation(tx, &context, document),
            }?;
            if applied.action != "unchanged" && !request.dry_run {
                let after = catalogue_record(tx, &context, document)?;
                let action = &applied.action;
                let told =
                    json!({ "kind": kind, "name": name, "action": action, "before": before, "after": after });
                note(tx, &context, &actor, told)?;
            }
            // A dry run is a real one that is not kept.
            if dry_run { Err(refuse(ErrorCode::Cancelled, json!(applied).to_string())) } else { Ok(applied) }
        });
        let outcome = outcome.await;
        // An application's owners are in its document.
        self.forget_principals();
        match outcome {
            Err(Error::Refused { code: ErrorCode::Cancelled, message, .. }) if dry_run => {
                serde_json::from_str(&message).map_err(|error| Error::Corrupt(error.to_string()))
            }
            other => other,
        }
    }

    pub async fn delete_rule(&self, name: &str, actor: &str) -> Result<()> {
        let (context, name, actor) = (self.context.clone(), name.to_owned(), actor.to_owned());
        self.db
            .write(move |tx| {
                let rule = json!({ "kind": "Rule", "name": name });
                let before = catalogue_record(tx, &context, &rule)?;
                if !tx.delete_rule(context.organisation, &name)? {
                    let known: Vec<String> =
                        tx.rules(context.organisation)?.into_iter().map(|rule| rule.name).collect();
                    return Err(not_found("rule", &name, &known));
                }
                let told =
                    json!({ "kind": "Rule", "name": name, "action": "deleted", "before": before, "after": null });
                note(tx, &context, &actor, told)
            })
            .await
    }

    /// Keeps packed files by their digest.
    pub async fn keep_blob(&self, digest: &str, body: Vec<u8>) -> Result<()> {
        let (context, digest) = (self.context.clone(), digest.to_owned());
        self.db.write(move |tx| tx.keep_blob(context.organisation, &digest, &body, context.now())).await
    }
}

/// The catalogue changed, by whom and how.
fn note(tx: &mut Tx<'_>, context: &Context, actor: &str, told: Value) -> Result<()> {
    Progress::new(tx, context, context.now()).event("catalogue.applied", actor, None, None, None, told)
}

pub(crate) fn applied(kind: &str, name: &str, action: &str) -> Applied {
    Applied { kind: kind.into(), name: name.into(), version: None, action: action.into(), change: None }
}

fn apply_organisation(tx: &mut Tx<'_>, context: &Context, document: &Value) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let read: OrganisationDocument = read("Organisation", name, document)?;
    check_approval(&format!("Organisation {name}"), read.approval.as_ref())?;
    if name != context.organisation_name {
        let message = format!("this installation has one organisation, `{}`", context.organisation_name);
        return Err(refuse(ErrorCode::Invalid, message));
    }
    if tx.organisation_document(context.organisation)? == *document {
        return Ok(applied("Organisation", name, "unchanged"));
    }
    tx.set_organisation_document(context.organisation, document)?;
    Ok(applied("Organisation", name, "updated"))
}

fn check_drift(at: &str, terms: Option<&DriftTerms>) -> Result<()> {
    match terms.and_then(|terms| terms.schedule.as_deref()).filter(|text| next_time(text, 0).is_none()) {
        None => Ok(()),
        Some(text) => {
            let suggestion =
                Some("five fields: minute, hour, day, month, weekday, like `*/30 * * * *`".to_owned());
            Err(invalid(&format!("{at}.drift.schedule"), format!("`{text}` is no schedule"), suggestion))
        }
    }
}

fn check_approval(at: &str, policy: Option<&ApprovalPolicy>) -> Result<()> {
    let Some(policy) = policy else { return Ok(()) };
    check_span(&format!("{at}.approval.expires"), policy.expires.as_deref())?;
    if policy.approvers == Some(0) {
        let suggestion = Some("say `none` where nobody has to agree".to_owned());
        return Err(invalid(
            &format!("{at}.approval.approvers"),
            "at least one has to agree".into(),
            suggestion,
        ));
    }
    Ok(())
}

fn apply_environment(tx: &mut Tx<'_>, context: &Context, document: &Value, now: i64) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let read: EnvironmentDocument = read("Environment", name, document)?;
    check_span(&format!("Environment {name}.grace"), read.grace.as_deref())?;
    check_approval(&format!("Environment {name}"), read.approval.as_ref())?;
    check_drift(&format!("Environment {name}"), read.drift.as_ref())?;
    check_span(&format!("Environment {name}.ttl"), read.ttl.as_deref())?;
    let backend = parse_backend(name, read.state.as_ref())?;
    let before = tx.environment_by_name(context.organisation, name)?;
    let action = match &before {
        Some(before) if open_environment(tx, context.organisation, before)? == *document => {
            return Ok(applied("Environment", name, "unchanged"));
        }
        Some(_) => "updated",
        None => "created",
    };
    let (id, domain) = match &before {
        Some(before) => (before.id, before.domain),
        None => (EnvironmentId(context.ids.next()), DomainId(context.ids.next())),
    };
    if let Some(before) = &before {
        refuse_to_lose_states(tx, context.organisation, before, backend.as_ref())?;
    }
    let document = seal_environment(tx, context.organisation, id, document)?;
    tx.upsert_environment(context.organisation, id, domain, name, &read.environment_type, &document, now)?;
    Ok(applied("Environment", name, action))
}

fn apply_application(tx: &mut Tx<'_>, context: &Context, document: &Value, now: i64) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let read: ApplicationDocument = read("Application", name, document)?;
    for environment in read.branches.iter().flat_map(|branches| branches.values()) {
        if tx.environment_by_name(context.organisation, environment)?.is_none() {
            let known: Vec<String> =
                tx.environments(context.organisation)?.into_iter().map(|row| row.name).collect();
            return Err(not_found("environment", environment, &known));
        }
    }
    let before = tx.application_by_name(context.organisation, name)?;
    let owners = read.owners.unwrap_or_default();
    let action = match &before {
        Some(before) if before.document == *document => {
            tx.set_owners(context.organisation, before.id, &owners)?;
            return Ok(applied("Application", name, "unchanged"));
        }
        Some(_) => "updated",
        None => "created",
    };
    let id = before.map_or_else(|| ApplicationId(context.ids.next()), |before| before.id);
    let id = tx.upsert_application(context.organisation, id, name, Some(document), now)?;
    tx.set_owners(context.organisation, id, &owners)?;
    Ok(applied("Application", name, action))
}

fn apply_rule(tx: &mut Tx<'_>, context: &Context, document: &Value, now: i64) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let rule: RuleDocument = read("Rule", name, document)?;
    let (template, version) = match rule.template.split_once('@') {
        Some((template, version)) => (template, Some(version)),
        None => (rule.template.as_str(), None),
    };
    let versions = tx.versions_by_name(context.organisation, template)?;
    let Some(first) = versions.first() else {
        let known: Vec<String> = tx.versions(context.organisation)?.into_iter().map(|row| row.name).collect();
        return Err(not_found("template", template, &known));
    };
    if first.kind != rule.criteria.kind {
        let message = format!(
            "template `{template}` makes type `{}`, the rule is for `{}`",
            first.kind, rule.criteria.kind
        );
        return Err(invalid(&format!("Rule {name}"), message, None));
    }
    if let Some(version) = version
        && !versions.iter().any(|row| row.version == version)
    {
        let known: Vec<String> = versions.iter().map(|row| row.version.clone()).collect();
        return Err(not_found("version", &format!("{template}@{version}"), &known));
    }
    for other in load_rules(tx, context)?.iter().filter(|other| other.name != name) {
        if other.criteria.ties_with(&rule.criteria) {
            let message = format!(
                "rules `{name}` and `{}` could both serve one requirement, and neither is stronger",
                other.name
            );
            let suggestion = "narrow one of them, or take one away".to_owned();
            let item = ProblemItem {
                path: format!("Rule {name}"),
                message: message.clone(),
                suggestion: Some(suggestion),
                ..ProblemItem::default()
            };
            return Err(refuse_all(ErrorCode::Conflict, message, &[item]));
        }
    }
    let before = tx.rules(context.organisation)?.into_iter().find(|row| row.name == name);
    let action = match &before {
        Some(before) if before.document == *document => return Ok(applied("Rule", name, "unchanged")),
        Some(_) => "updated",
        None => "created",
    };
    let id = before.map_or_else(|| RuleId(context.ids.next()), |before| before.id);
    tx.upsert_rule(context.organisation, id, name, document, now)?;
    Ok(applied("Rule", name, action))
}

/// What a version is: its document without name, version and state, and its files.
fn content_digest(tx: &Tx<'_>, document: &Value, content: Option<&str>) -> Result<String> {
    let mut essence = document.clone();
    if let Some(entries) = essence.as_object_mut() {
        for word in ["version", "state", "description", "kind"] {
            entries.remove(word);
        }
    }
    let body = format!("{essence}\0{}", content.unwrap_or_default());
    Ok(tx.sealer().digest(body.as_bytes())?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn fetched_by_worker(template: &TemplateDocument) -> bool {
    template.config.get("source").and_then(Value::as_str).is_some_and(|source| source.starts_with("git::"))
}

#[allow(clippy::too_many_arguments, reason = "the parts of one request")]
fn apply_template(
    tx: &mut Tx<'_>,
    context: &Context,
    document: &Value,
    content: Option<&str>,
    dry_run: bool,
    actor: &str,
    now: i64,
) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let template: TemplateDocument = read("Template", name, document)?;
    let at = format!("Template {name}");
    if !["preview", "active", "deprecated", "disabled"].contains(&template.state.as_str()) {
        let suggestion = Some("it is one of preview, active, deprecated, disabled".to_owned());
        return Err(invalid(
            &format!("{at}.state"),
            format!("there is no state `{}`", template.state),
            suggestion,
        ));
    }
    if template.is_abstract != (template.manager == NO_MANAGER) {
        let message = match template.is_abstract {
            true => "an abstract template has no manager".to_owned(),
            false => "it has no manager: say who makes its resources".to_owned(),
        };
        let suggestion = Some("name a manager, or say `abstract: true` for what is only recorded".to_owned());
        return Err(invalid(&format!("{at}.manager"), message, suggestion));
    }
    check_approval(&at, template.approval.as_ref())?;
    check_drift(&at, template.drift.as_ref())?;
    let known = known_managers(tx, context)?;
    if !template.is_abstract && !known.is_empty() && !known.contains(&template.manager) {
        let close = nearest(&template.manager, known.iter().map(String::as_str));
        let suggestion = match close {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("the workers have {}", known.iter().cloned().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("no worker has a manager `{}`", template.manager);
        return Err(invalid(&format!("{at}.manager"), message, Some(suggestion)));
    }
    if let Some(parameters) = &template.parameters {
        Schema::compile(parameters.clone()).map_err(|error| {
            invalid(&format!("{at}.parameters"), format!("this is no JSON Schema: {error}"), None)
        })?;
    }
    check_span(&format!("{at}.grace"), template.grace.as_deref())?;
    if template.tool_version.is_some() && template.manager != "terraform" {
        let message = format!("the manager `{}` has no versions to choose from", template.manager);
        return Err(invalid(&format!("{at}.toolVersion"), message, Some("leave it out".into())));
    }
    if let Some(requires) = &template.requires {
        check_requires(&at, requires)?;
    }
    if let Some((_, kind, class)) = tx.template_by_name(context.organisation, name)?
        && (kind != template.template_type || class != template.class)
    {
        let message = format!("template `{name}` makes type `{kind}` of class `{class}`; that cannot change");
        return Err(invalid(&at, message, Some("use another name".into())));
    }
    if let Some(content) = content
        && !dry_run
        && tx.blob(context.organisation, content)?.is_none()
    {
        return Err(invalid(
            &at,
            "its files were not sent".into(),
            Some(format!("PUT /api/v1/blobs/{content} first")),
        ));
    }
    let digest = content_digest(tx, document, content)?;
    let versions = tx.versions_by_name(context.organisation, name)?;
    let version = match &template.version {
        Some(version) => version.parse::<semver::Version>().map_err(|error| {
            invalid(
                &format!("{at}.version"),
                format!("`{version}` is no version: {error}"),
                Some("like 1.0.0".into()),
            )
        })?,
        None => match newest(&versions) {
            Some(last) if last.digest == digest => {
                last.version.parse().map_err(|_| refuse(ErrorCode::Failed, "a version"))?
            }
            Some(last) => {
                let last: semver::Version =
                    last.version.parse().map_err(|_| refuse(ErrorCode::Failed, "a version"))?;
                semver::Version::new(last.major, last.minor, last.patch + 1)
            }
            None => semver::Version::new(1, 0, 0),
        },
    };
    if let Some(same) = versions.iter().find(|row| row.version == version.to_string()) {
        if same.digest != digest && !fetched_by_worker(&template) {
            let message = format!("{name}@{version} is applied already, with other content");
            let suggestion =
                "a version never changes: give the new content a new version, or leave the version out";
            return Err(invalid(&at, message, Some(suggestion.into())));
        }
        if same.digest == digest {
            let action = if same.state == template.state { "unchanged" } else { "updated" };
            if action == "updated" && !dry_run {
                tx.set_version_state(context.organisation, same.id, &template.state)?;
            }
            return Ok(Applied { version: Some(version.to_string()), ..applied("Template", name, action) });
        }
    }
    let told = Applied { version: Some(version.to_string()), ..applied("Template", name, "created") };
    if dry_run {
        return Ok(told);
    }
    let payload =
        json!({ "document": document, "content": content, "version": version.to_string(), "digest": digest });
    if template.is_abstract {
        // Nobody has to read it: there is nothing in it that runs.
        let description = Description { outputs: template.outputs.clone(), ..Description::default() };
        keep_version(tx, context, &payload, &description, None, now)?;
        return Ok(told);
    }
    let (terms, wanted) = (template.worker.as_ref(), template.tool_version.as_ref());
    let needs = template_needs(&template.manager, &template.config, terms, wanted, false);
    let change = start_describe(tx, context, &needs, payload, actor, now)?;
    Ok(Applied { change: Some(change), ..told })
}

pub(crate) fn check_span(at: &str, span: Option<&str>) -> Result<()> {
    match span.filter(|span| parse_duration(span).is_none()) {
        None => Ok(()),
        Some(span) => {
            let suggestion = Some("write it like `30s`, `10m`, `2h` or `3d`".to_owned());
            Err(invalid(at, format!("`{span}` is no span of time"), suggestion))
        }
    }
}

/// What a template requires is asked for in Score's words, but for those that make no sense there.
fn check_requires(at: &str, requires: &Value) -> Result<()> {
    let resources = parse_requires(requires).map_err(|findings| {
        let items: Vec<ProblemItem> = findings
            .into_iter()
            .map(|finding| ProblemItem {
                path: format!("{at}.{}", finding.path.replacen("resources", "requires", 1)),
                message: finding.message,
                suggestion: finding.suggestion,
                ..ProblemItem::default()
            })
            .collect();
        let first = items.first().map_or_else(String::new, |item| format!("{}: {}", item.path, item.message));
        refuse_all(ErrorCode::Invalid, first, &items)
    })?;
    for (name, resource) in resources {
        let sharing = &resource.sharing;
        let word = [
            ("pool", sharing.pool.is_some()),
            ("matching", sharing.matching.is_some()),
            ("alias", sharing.alias.is_some()),
        ]
        .into_iter()
        .find_map(|(word, said)| said.then_some(word));
        if let Some(word) = word {
            let message = format!("`{word}` cannot be used for what a template requires");
            let suggestion = Some("use `reference`, `sharing` or nothing for one of its own".to_owned());
            return Err(invalid(&format!("{at}.requires.{name}"), message, suggestion));
        }
    }
    Ok(())
}

/// The managers of every worker that was ever seen.
fn known_managers(tx: &mut Tx<'_>, context: &Context) -> Result<BTreeSet<String>> {
    let workers = tx.workers(context.organisation)?;
    let names = |document: &Value| {
        serde_json::from_value::<Vec<String>>(document["managers"].clone()).unwrap_or_default()
    };
    Ok(workers.iter().flat_map(|row| names(&row.document)).collect())
}

fn newest(versions: &[VersionRow]) -> Option<&VersionRow> {
    versions.iter().max_by_key(|row| row.version.parse::<semver::Version>().ok())
}

/// A worker reads the template: fetches its files, its variables, its outputs.
fn start_describe(
    tx: &mut Tx<'_>,
    context: &Context,
    needs: &Needs,
    payload: Value,
    actor: &str,
    now: i64,
) -> Result<ChangeId> {
    let id = ChangeId(context.ids.next());
    tx.insert_change(&context.change(id, ChangeKind::Template, actor, now))?;
    let plan = json!({ "items": [], "removals": [], "warnings": [] });
    tx.start_change(id, ChangeStatus::Pending, ChangeStatus::InProgress, None, 1, &plan, 1, 0, now)?;
    let queue = context.templates.queues.of(tx, needs)?;
    let operation = OperationId(context.ids.next());
    let payload = tx.sealer().seal_leaf(payload_owner(context.organisation, &operation), &payload)?;
    tx.insert_operations(&[NewOperation {
        gated: false,
        id: operation,
        organisation: context.organisation,
        change: id,
        plan_number: 1,
        resource: None,
        kind: OperationKind::Describe,
        generation: 0,
        conditional: false,
        releasing: false,
        queue: Some(queue),
        open_predecessors: 0,
        retries: 2,
        payload: Some(payload),
        now,
    }])?;
    Ok(id)
}

/// A template's config may name a server with its password, so it is sealed whole.
pub(crate) fn config_owner(organisation: OrganisationId, id: &TemplateVersionId) -> Owner<'_> {
    Owner { organisation, kind: "config", id: id.0.as_bytes() }
}

/// What a describe works on, opened.
pub(crate) fn open_payload(tx: &Tx<'_>, row: &OperationRow) -> Result<Value> {
    let payload =
        row.payload.as_ref().ok_or_else(|| refuse(ErrorCode::Failed, "a template without its document"))?;
    tx.sealer().open_leaf(payload_owner(row.organisation, &row.id), payload)
}

pub(crate) fn payload_owner(organisation: OrganisationId, id: &OperationId) -> Owner<'_> {
    Owner { organisation, kind: "payload", id: id.0.as_bytes() }
}

/// The template has been read: the version is there.
pub(crate) fn finish_describe(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &OperationRow,
    description: &Description,
    fetched: Option<&str>,
    now: i64,
) -> Result<()> {
    let payload = open_payload(tx, row)?;
    keep_version(tx, context, &payload, description, fetched, now)
}

/// Stores a version that has been read.
fn keep_version(
    tx: &mut Tx<'_>,
    context: &Context,
    payload: &Value,
    description: &Description,
    fetched: Option<&str>,
    now: i64,
) -> Result<()> {
    let document = &payload["document"];
    let name = document["name"].as_str().unwrap_or_default();
    let template: TemplateDocument = read("Template", name, document)?;
    let content = fetched.map(str::to_owned).or_else(|| payload["content"].as_str().map(str::to_owned));
    let digest = match fetched {
        Some(fetched) => content_digest(tx, document, Some(fetched))?,
        None => payload["digest"].as_str().unwrap_or_default().to_owned(),
    };
    let version = payload["version"].as_str().unwrap_or_default().to_owned();
    let template_id = match tx.template_by_name(context.organisation, name)? {
        Some((id, ..)) => id,
        None => {
            let id = TemplateId(context.ids.next());
            tx.insert_template(
                context.organisation,
                id,
                name,
                &template.template_type,
                &template.class,
                now,
            )?;
            id
        }
    };
    if let Some(same) =
        tx.versions_by_name(context.organisation, name)?.iter().find(|row| row.version == version)
    {
        if same.digest == digest {
            return Ok(());
        }
        let message = format!(
            "{name}@{version} is applied already, with other content; give the new content a new version"
        );
        return Err(refuse(ErrorCode::Conflict, message));
    }
    if let Some(parameters) = &description.parameters {
        Schema::compile(parameters.clone()).map_err(|error| {
            invalid(&format!("Template {name}.parameters"), format!("this is no JSON Schema: {error}"), None)
        })?;
    }
    let id = TemplateVersionId(context.ids.next());
    let stored = json!({
        "config": tx.sealer().seal_leaf(config_owner(context.organisation, &id), &Value::Object(template.config))?,
        "parameters": description.parameters.clone().or(template.parameters),
        "outputs": template.outputs.or_else(|| description.outputs.clone()),
        "canObserve": description.can_observe,
        "canPlan": description.can_plan,
        "replace": template.replace,
        "description": template.description,
        "requires": template.requires,
        "sharing": template.sharing,
        "retain": template.retain,
        "grace": template.grace,
        "integrations": template.integrations,
        "worker": template.worker,
        "toolVersion": template.tool_version,
        "approval": template.approval,
        "drift": document.get("drift"),
        "parents": template.parents,
        "tags": template.tags,
        "configs": template.configs,
    });
    tx.insert_version(&VersionRow {
        id,
        organisation: context.organisation,
        template: template_id,
        name: name.to_owned(),
        kind: template.template_type,
        class: template.class,
        version,
        state: template.state,
        manager: template.manager,
        document: stored,
        content,
        digest,
        built_in: false,
        created_at: now,
    })
}
