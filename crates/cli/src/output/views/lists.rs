//! Lists of the objects that have few fields.

use conductor_api::types::{
    Alert, Application, AuditEntry, Environment, Event, Grant, Integration, OutputsByRequirement, Pool, Rule,
    Template, Token, WorkerInfo,
};

use super::{age, plain};
use crate::output::{Screen, table::table};

pub fn environments(screen: &Screen, items: &[Environment]) -> String {
    let rows = items.iter().map(|item| [item.name.clone(), item.kind.clone(), age(item.created_at)]);
    table(screen, ["NAME", "TYPE", "AGE"], rows.collect())
}

pub fn applications(screen: &Screen, items: &[Application]) -> String {
    let rows = items
        .iter()
        .map(|item| [item.name.clone(), item.repository.clone().unwrap_or_default(), age(item.created_at)]);
    table(screen, ["NAME", "REPOSITORY", "AGE"], rows.collect())
}

pub fn templates(screen: &Screen, items: &[Template]) -> String {
    let rows = items.iter().map(|item| {
        [
            item.name.clone(),
            item.version.clone(),
            item.kind.clone(),
            item.class.clone(),
            item.manager.clone(),
            item.state.clone(),
            age(item.created_at),
        ]
    });
    table(screen, ["NAME", "VERSION", "TYPE", "CLASS", "MANAGER", "STATE", "AGE"], rows.collect())
}

pub fn rules(screen: &Screen, items: &[Rule]) -> String {
    let rows = items.iter().map(|item| {
        [item.name.clone(), item.template.clone(), item.criteria.to_string(), item.weight.to_string()]
    });
    table(screen, ["NAME", "TEMPLATE", "MATCH", "WEIGHT"], rows.collect())
}

pub fn pools(screen: &Screen, pools: &[Pool]) -> String {
    let rows = pools.iter().map(|pool| {
        [
            pool.name.clone(),
            pool.environment.clone(),
            pool.template.clone(),
            pool.size.to_string(),
            pool.ready.to_string(),
            pool.claimed.to_string(),
            pool.creating.to_string(),
            pool.failed.to_string(),
            pool.on_demand.to_string(),
        ]
    });
    let header = ["NAME", "ENV", "TEMPLATE", "SIZE", "READY", "CLAIMED", "CREATING", "FAILED", "ON DEMAND"];
    table(screen, header, rows.collect())
}

pub fn alerts(screen: &Screen, items: &[Alert]) -> String {
    let rows = items.iter().map(|item| {
        let seen = item.message.clone().filter(|_| item.firing);
        [
            item.name.clone(),
            item.status.clone(),
            item.since.filter(|_| item.firing).map(age).unwrap_or_default(),
            item.silenced_until.map(|until| until.to_string()).unwrap_or_default(),
            seen.unwrap_or_else(|| item.description.clone()),
        ]
    });
    table(screen, ["NAME", "STATUS", "FOR", "SILENCED UNTIL", "ABOUT"], rows.collect())
}

pub fn integrations(screen: &Screen, items: &[Integration]) -> String {
    let rows = items.iter().map(|item| {
        [
            item.name.clone(),
            item.provider.clone(),
            item.integration_type.clone(),
            item.environment.clone().unwrap_or_else(|| "(all)".into()),
            age(item.updated_at),
        ]
    });
    table(screen, ["NAME", "PROVIDER", "TYPE", "ENV", "CHANGED"], rows.collect())
}

pub fn workers(screen: &Screen, items: &[WorkerInfo]) -> String {
    let rows = items.iter().map(|item| {
        [
            item.name.clone(),
            item.state.clone(),
            item.managers.join(","),
            isolation(&item.isolation),
            age(item.seen_at),
            item.id.to_string(),
        ]
    });
    table(screen, ["NAME", "STATE", "MANAGERS", "ISOLATION", "SEEN", "ID"], rows.collect())
}

/// In short: whether something is missing, and what. `get` shows it in full.
fn isolation(lines: &[String]) -> String {
    let missing: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(": NOT ")?.0)).collect();
    match (lines.is_empty(), missing.is_empty()) {
        (true, _) => "unknown".into(),
        (_, true) => "full".into(),
        _ => format!("not {}", missing.join(", ")),
    }
}

pub fn events(screen: &Screen, items: &[Event]) -> String {
    let rows = items.iter().map(|item| {
        let about = item
            .resource
            .map(|id| id.to_string())
            .or_else(|| item.operation.map(|id| id.to_string()))
            .or_else(|| item.deployment.map(|id| id.to_string()));
        [item.at.to_string(), item.kind.clone(), item.actor.clone(), about.unwrap_or_default()]
    });
    table(screen, ["AT", "KIND", "BY", "ABOUT"], rows.collect())
}

pub fn audit(screen: &Screen, items: &[AuditEntry]) -> String {
    let rows = items.iter().map(|item| {
        let event = &item.event;
        let about =
            event.resource.map(|id| id.to_string()).or_else(|| event.deployment.map(|id| id.to_string()));
        let name = event.data["name"].as_str().map(str::to_owned);
        [
            item.position.to_string(),
            event.at.to_string(),
            event.kind.clone(),
            event.actor.clone(),
            about.or(name).unwrap_or_default(),
            event.request_id.clone().unwrap_or_default(),
        ]
    });
    table(screen, ["NO", "AT", "KIND", "BY", "ABOUT", "REQUEST"], rows.collect())
}

pub fn tokens(screen: &Screen, items: &[Token]) -> String {
    let rows = items.iter().map(|item| {
        let state = if item.revoked { "revoked" } else { "active" };
        [item.id.to_string(), item.name.clone(), grants(item), state.into(), age(item.created_at)]
    });
    table(screen, ["ID", "NAME", "MAY", "STATE", "AGE"], rows.collect())
}

/// What a token may do and where, on one line.
pub fn grants(token: &Token) -> String {
    let one = |grant: &Grant| match (&grant.environment, &grant.application) {
        (None, None) => grant.role.clone(),
        (Some(environment), None) => format!("{} in {environment}", grant.role),
        (None, Some(application)) => format!("{} for {application}", grant.role),
        (Some(environment), Some(application)) => {
            format!("{} for {application} in {environment}", grant.role)
        }
    };
    let all: Vec<String> = token.grants.iter().map(one).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

pub fn outputs(screen: &Screen, outputs: &OutputsByRequirement) -> String {
    let rows = outputs.iter().flat_map(|(requirement, values)| {
        values.iter().map(move |(name, value)| {
            let value = if value.is_null() { "(sensitive: --reveal shows it)".into() } else { plain(value) };
            [requirement.clone(), name.clone(), value]
        })
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        "no outputs\n".into()
    } else {
        table(screen, ["REQUIREMENT", "OUTPUT", "VALUE"], rows)
    }
}
