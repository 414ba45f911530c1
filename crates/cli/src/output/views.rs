//! Objects as people read them. What a tool said never reaches the terminal with its control characters.

mod lists;
mod states;

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::types::{Deployment, Operation, PlanItem, Resource, Time};
use conductor_domain::{lifecycle::ChangeKind, plan::CANDIDATES_COUNTED};
use serde_json::Value;

pub use lists::{
    alerts, applications, audit, environments, events, grants, integrations, outputs, pools, rules,
    templates, tokens, workers,
};
pub use states::{state_diff, states};

use super::{
    BOLD, GREEN, RED, Screen, YELLOW, paint, span,
    table::{fields, single_line, table},
};
use crate::clock;

fn age(at: Time) -> String {
    span(clock::now() - at.0)
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// A plan or a change with its choices: what `deploy`, `plan` and `destroy` end with.
pub fn deployment(screen: &Screen, change: &Deployment) -> String {
    let id = change.id.map(|id| format!("{id} ")).unwrap_or_default();
    let what = subject(change);
    let place = change.environment.as_deref().map(|name| format!(" in {name}")).unwrap_or_default();
    let head = format!("{id}{}: {} {what}{place}", change.status, change.kind);
    let mut out = format!("{}\n", paint(screen.color, BOLD, &head));
    if change.id.is_none() {
        for warning in &change.warnings {
            out.push_str(&format!("warning: {warning}\n"));
        }
    }
    let items: Vec<&PlanItem> = change.resources.iter().chain(&change.removals).collect();
    if items.is_empty() {
        out.push_str("nothing to do\n");
        return out;
    }
    let rows = items.iter().map(|item| {
        [
            item.requirement.clone(),
            item.action.to_string(),
            item.phase.map(|phase| phase.to_string()).unwrap_or_default(),
            item.resource.to_string(),
            item.reason.clone(),
        ]
    });
    out.push_str(&table(screen, ["REQUIREMENT", "ACTION", "PHASE", "RESOURCE", "REASON"], rows.collect()));
    out
}

/// The same with what the managers say they would do.
pub fn trial(screen: &Screen, change: &Deployment) -> String {
    let mut out = format!("{}\n", deployment(screen, change).trim_end());
    if change.id.is_some() {
        out.extend(change.warnings.iter().map(|warning| format!("warning: {warning}\n")));
    }
    for item in &change.resources {
        if let Some(proposed) = &item.proposed {
            let name = paint(screen.color, BOLD, &item.requirement);
            out.push_str(&format!("\n{name}\n{}", diff(screen, proposed)));
        }
    }
    out
}

/// Terraform's own changes, a line for each attribute; what another manager tells, as it is.
fn diff(screen: &Screen, proposed: &Value) -> String {
    let Some(changes) = proposed["changes"].as_array() else {
        return super::yaml::render(proposed);
    };
    let mut out = String::new();
    for change in changes {
        let actions: Vec<&str> =
            change["actions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (sign, color) = match actions.as_slice() {
            ["create"] => ("+", GREEN),
            ["delete"] => ("-", RED),
            ["update"] => ("~", YELLOW),
            _ => ("-/+", RED),
        };
        let address = single_line(change["address"].as_str().unwrap_or_default());
        out.push_str(&format!("  {} {address}\n", paint(screen.color, color, sign)));
        let side = |key: &str| change[key].as_object().cloned().unwrap_or_default();
        let (before, after) = (side("before"), side("after"));
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        for name in names.into_iter().filter(|name| before.get(*name) != after.get(*name)) {
            out.push_str(&format!(
                "      {}: {} → {}\n",
                single_line(name),
                told(before.get(name)),
                told(after.get(name))
            ));
        }
    }
    match out.is_empty() {
        true => "  nothing changes\n".to_owned(),
        false => out,
    }
}

/// A value in a line of text.
pub fn told(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => single_line(text),
        Some(other) => single_line(&other.to_string()),
    }
}

/// The same with the reasons written out.
pub fn explanation(screen: &Screen, change: &Deployment) -> String {
    let what = subject(change);
    let place = change.environment.as_deref().map(|name| format!(" in {name}")).unwrap_or_default();
    let mut out = format!("{}\n", paint(screen.color, BOLD, &format!("{what}{place}")));
    for item in change.resources.iter().chain(&change.removals) {
        let head = format!("{}: {} {} ({})", item.requirement, item.action, item.name, item.resource);
        out.push_str(&format!("\n{}\n", paint(screen.color, BOLD, &head)));
        for line in item.reason.split(['\n', ';']).map(single_line).filter(|line| !line.is_empty()) {
            out.push_str(&format!("  {line}\n"));
        }
        out.push_str(&candidates(screen, item));
    }
    for warning in &change.warnings {
        out.push_str(&format!("\nwarning: {warning}\n"));
    }
    out
}

/// Who could have served, in order, and why each does or does not.
fn candidates(screen: &Screen, item: &PlanItem) -> String {
    if item.candidates.is_empty() {
        return String::new();
    }
    let rows = item.candidates.iter().map(|one| {
        let most = one.max_consumers.map(|most| format!(" of {most}")).unwrap_or_default();
        [
            if one.chosen { "→".to_owned() } else { String::new() },
            one.resource.to_string(),
            one.name.clone(),
            conductor_domain::catalogue::scope_word(one.scope).to_owned(),
            format!("{}{most}", one.consumers),
            single_line(&one.reason),
        ]
    });
    let table = table(screen, ["", "CANDIDATE", "NAME", "SCOPE", "CONSUMERS", "WHY"], rows.collect());
    let mut out: String = table.lines().map(|line| format!("    {line}\n")).collect();
    if item.other_candidates > 0 {
        let all = item.candidates.len() as u64 + item.other_candidates;
        let or = if all >= CANDIDATES_COUNTED { "or " } else { "" };
        out.push_str(&format!("    and {} {or}more\n", item.other_candidates));
    }
    out
}

/// One change with its times.
pub fn deployment_details(screen: &Screen, change: &Deployment) -> String {
    let error = change.error.as_ref().map(|fault| single_line(&fault.message));
    let mut out = fields(&[
        ("Kind", text(change.kind)),
        ("Commit", change.commit.clone()),
        ("By", change.actor.clone()),
        ("Created", change.created_at.map(|at| at.to_string())),
        ("Started", change.started_at.map(|at| at.to_string())),
        ("Completed", change.completed_at.map(|at| at.to_string())),
        ("Cancel asked", change.cancel_requested_at.map(|at| at.to_string())),
        ("Waiting for", change.waiting_for.clone()),
        ("Error", error),
        ("Help", change.error.as_ref().and_then(|fault| fault.hint.clone())),
    ]);
    out.insert_str(0, &format!("{}\n\n", deployment(screen, change).trim_end()));
    out
}

pub fn deployments(screen: &Screen, changes: &[Deployment]) -> String {
    let rows = changes.iter().map(|change| {
        [
            change.id.map(|id| id.to_string()).unwrap_or_default(),
            change.kind.to_string(),
            change.status.clone(),
            change.application.clone().unwrap_or_default(),
            change.environment.clone().unwrap_or_default(),
            change.actor.clone().unwrap_or_default(),
            change.created_at.map(age).unwrap_or_default(),
        ]
    });
    table(screen, ["ID", "KIND", "STATUS", "APP", "ENV", "BY", "AGE"], rows.collect())
}

pub fn resources(screen: &Screen, resources: &[Resource]) -> String {
    let rows = resources.iter().map(|resource| {
        let mut users: Vec<&str> = resource.consumers.iter().map(|user| user.application.as_str()).collect();
        users.sort_unstable();
        users.dedup();
        let shown = match users.len() {
            0..=3 => users.join(","),
            more => format!("{},… ({more})", users[..2].join(",")),
        };
        [
            resource.name.clone(),
            resource.kind.clone(),
            resource.environment.clone(),
            resource.phase.to_string(),
            shown,
            age(resource.created_at),
            resource.id.to_string(),
        ]
    });
    table(screen, ["NAME", "TYPE", "ENV", "PHASE", "USED BY", "AGE", "ID"], rows.collect())
}

pub fn resource(screen: &Screen, resource: &Resource) -> String {
    let ids = |ids: &[conductor_domain::ids::ResourceId]| {
        (!ids.is_empty()).then(|| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    let mut out = format!("{}\n", paint(screen.color, BOLD, &format!("{} {}", resource.id, resource.name)));
    out.push_str(&fields(&[
        ("Type", text(format!("{} ({})", resource.kind, resource.class))),
        ("Environment", text(&resource.environment)),
        ("Phase", text(format!("{} ({}/{})", resource.phase, resource.state, resource.status))),
        ("Message", resource.message.as_deref().map(single_line)),
        ("Error", resource.error.as_ref().map(|fault| single_line(&fault.message))),
        ("Help", resource.error.as_ref().and_then(|fault| fault.hint.clone())),
        ("Template", text(format!("{}@{}", resource.template, resource.template_version))),
        ("Sharing", text(format!("{}, scope {}", resource.sharing, resource.scope))),
        ("Consumers at most", resource.max_consumers.map(|most| most.to_string())),
        ("Kept by", text(&resource.kept_by)),
        ("Destroyed at", resource.destroy_after.map(|at| format!("{at}, unless it is undeleted"))),
        ("External id", resource.external_id.clone()),
        ("Protected", resource.protected.then(|| "yes".into())),
        ("Description", resource.facts.description.clone()),
        ("Owner", resource.facts.owner.clone()),
        ("Team", resource.facts.team.clone()),
        ("Labels", pairs(resource.facts.labels.iter().map(|(name, value)| (name, value.clone())))),
        ("Tags", pairs(resource.facts.tags.iter().map(|(name, tag)| (name, plain(&tag.value))))),
        ("Configs", pairs(resource.facts.configs.iter().map(|(name, config)| (name, plain(&config.value))))),
        ("Drift", resource.observed.as_ref().and_then(|seen| seen["drift"].as_str().map(str::to_owned))),
        ("Children of", ids(&resource.parents)),
        ("Possible now", text(resource.available_actions.join(", "))),
        ("Depends on", ids(&resource.depends_on)),
        ("Needed by", ids(&resource.dependents)),
        ("Created", text(format!("{} by {}", resource.created_at, resource.created_by))),
        ("Updated", text(resource.updated_at)),
    ]));
    for (title, values) in [("Parameters", &resource.parameters), ("Outputs", &resource.outputs)] {
        if !values.is_empty() {
            out.push_str(&format!("\n{title}:\n"));
            for (name, value) in values {
                out.push_str(&format!("  {name}: {}\n", plain(value)));
            }
        }
    }
    if !resource.consumers.is_empty() {
        out.push_str(&format!("\n{}", consumers(screen, resource)));
    }
    out
}

/// What a change is about: an application, a whole environment, or what it names itself.
pub fn subject(change: &Deployment) -> String {
    let named: Vec<&str> =
        change.resources.iter().chain(&change.removals).map(|item| item.name.as_str()).collect();
    match (&change.application, change.kind, named.as_slice()) {
        (Some(application), ..) => application.clone(),
        (None, ChangeKind::Teardown, _) => "everything".to_owned(),
        (None, _, [one]) => (*one).to_owned(),
        (None, _, []) => "what is there".to_owned(),
        (None, _, several) => format!("{} resources", several.len()),
    }
}

fn pairs<'n>(entries: impl Iterator<Item = (&'n String, String)>) -> Option<String> {
    let told: Vec<String> = entries.map(|(name, value)| format!("{name}={value}")).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

pub fn consumers(screen: &Screen, resource: &Resource) -> String {
    let rows = resource.consumers.iter().map(|user| {
        [
            user.application.clone(),
            user.environment.clone(),
            user.requirement.clone(),
            user.state.clone(),
            age(user.since),
            user.deployment.to_string(),
        ]
    });
    table(screen, ["APP", "ENV", "REQUIREMENT", "STATE", "SINCE", "DEPLOYMENT"], rows.collect())
}

pub fn operations(screen: &Screen, operations: &[Operation]) -> String {
    let rows = operations.iter().map(|operation| {
        let took = match (operation.started_at, operation.completed_at) {
            (Some(start), Some(end)) => span(end.0 - start.0),
            (Some(start), None) => age(start),
            _ => String::new(),
        };
        let note = operation.error.as_ref().map(|fault| fault.message.clone());
        [
            operation.id.to_string(),
            operation.kind.to_string(),
            operation.resource_name.clone().unwrap_or_default(),
            operation.status.to_string(),
            operation.attempt.to_string(),
            took,
            note.or_else(|| operation.waiting_for.clone()).unwrap_or_default(),
        ]
    });
    table(screen, ["ID", "KIND", "RESOURCE", "STATUS", "TRY", "TOOK", "NOTE"], rows.collect())
}

/// How many of each phase, as one line.
pub fn phases(counts: &BTreeMap<String, usize>) -> String {
    let parts: Vec<String> = counts.iter().map(|(phase, number)| format!("{number} {phase}")).collect();
    if parts.is_empty() { "none".into() } else { parts.join(", ") }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => single_line(text),
        other => other.to_string(),
    }
}
