//! Resources without a Score file: made, described, destroyed, made again, forgotten.

use std::collections::{BTreeMap, HashSet};

use conductor_api::types::{Facts, Handled, Inheritable, RegisterRequest, Resource, ResourceRequest};
use serde_json::{Map, Value};

use super::{Context, resources::find};
use crate::{
    args::{CreateFlags, FactFlags, OneFlags, RegisterFlags, WaitFlags},
    confirm,
    connect::Connection,
    failure::{Failure, Outcome},
    follow::{self, Watch},
    output::{Screen, views},
};

/// `KEY=VALUE` pairs; a value that is JSON is taken as such, anything else as text.
pub fn pairs(flag: &str, given: &[String]) -> Outcome<Map<String, Value>> {
    let mut map = Map::new();
    for pair in given {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            let failure = Failure::usage(format!("{flag} {pair} is no KEY=VALUE"));
            return Err(failure.hint(format!("write it like {flag} size=large")));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        map.insert(key.to_owned(), value);
    }
    Ok(map)
}

pub fn texts(flag: &str, given: &[String]) -> Outcome<BTreeMap<String, String>> {
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(pairs(flag, given)?.into_iter().map(|(key, value)| (key, text(value))).collect())
}

fn facts(flags: &FactFlags) -> Outcome<Facts> {
    let inheritable = |flag: &str, given: &[String]| -> Outcome<BTreeMap<String, Inheritable>> {
        let inherited_by_children = flags.inherit;
        let entry = |value| Inheritable { value, inherited_by_children };
        Ok(pairs(flag, given)?.into_iter().map(|(key, value)| (key, entry(value))).collect())
    };
    Ok(Facts {
        description: flags.description.clone(),
        owner: flags.owner.clone(),
        team: flags.team.clone(),
        labels: texts("--label", &flags.labels)?,
        tags: inheritable("--tag", &flags.tags)?,
        configs: inheritable("--config", &flags.configs)?,
    })
}

pub async fn create(context: &Context, flags: CreateFlags) -> Outcome {
    let connection = if flags.dry_run { context.look().await? } else { context.connect().await? };
    let client = &connection.client;
    let mut parents = Vec::new();
    for parent in &flags.parents {
        parents.push(find(client, parent).await?.id);
    }
    let request = ResourceRequest {
        template: flags.template.clone(),
        name: flags.name.clone(),
        environment: flags.env.clone(),
        parameters: pairs("--set", &flags.set)?,
        parents,
        facts: facts(&flags.facts)?,
        dry_run: flags.dry_run,
    };
    let handled = client.make_resource(&request).await?;
    see_through(&connection, &context.screen, handled, flags.dry_run, &flags.wait).await
}

pub async fn register(context: &Context, flags: RegisterFlags) -> Outcome {
    let (screen, connection) = (&context.screen, context.connect().await?);
    let secrets = pairs("--secret", &flags.secrets)?;
    let mut outputs = pairs("--output", &flags.outputs)?;
    let sensitive = secrets.keys().cloned().collect();
    outputs.extend(secrets);
    let request = RegisterRequest {
        kind: flags.kind,
        class: flags.class,
        name: flags.name,
        environment: flags.env,
        external_id: flags.external_id,
        outputs,
        sensitive,
        facts: facts(&flags.facts)?,
    };
    let handled = connection.client.register_resource(&request).await?;
    show(screen, handled.resource.as_ref());
    Ok(())
}

pub async fn describe(context: &Context, id: &str, flags: &FactFlags) -> Outcome {
    let connection = context.connect().await?;
    let id = find(&connection.client, id).await?.id;
    let resource = connection.client.describe_resource(id, &facts(flags)?).await?;
    show(&context.screen, Some(&resource));
    Ok(())
}

/// What is done to one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Destroy,
    Recreate,
    Retry,
}

pub async fn act(context: &Context, flags: OneFlags, deed: Deed) -> Outcome {
    let screen = &context.screen;
    let word = format!("{deed:?}").to_lowercase();
    let asks = !flags.dry_run && deed != Deed::Retry && confirm::asks(screen, &format!("resources {word}"))?;
    let connection = if flags.dry_run { context.look().await? } else { context.connect().await? };
    let client = &connection.client;
    let resource = find(client, &flags.id).await?;
    if asks {
        confirm::confirm(&format!(
            "{deed:?} {} ({}) in {}?",
            resource.name, resource.id, resource.environment
        ))?;
    }
    let handled = match deed {
        Deed::Destroy => client.destroy_resource(resource.id, flags.dry_run).await?,
        Deed::Recreate => client.recreate_resource(resource.id, flags.dry_run).await?,
        Deed::Retry => client.retry_resource(resource.id, flags.dry_run).await?,
    };
    see_through(&connection, screen, handled, flags.dry_run, &flags.wait).await
}

pub async fn delete(context: &Context, id: &str) -> Outcome {
    let screen = &context.screen;
    let asks = confirm::asks(screen, "resources delete")?;
    let connection = context.connect().await?;
    let resource = find(&connection.client, id).await?;
    if asks {
        confirm::confirm(&format!("Delete the record of {} ({})?", resource.name, resource.id))?;
    }
    connection.client.delete_resource(resource.id).await?;
    screen.note(&format!("the record of {} is deleted; the audit trail keeps its story", resource.name));
    Ok(())
}

pub async fn protect(context: &Context, id: &str, protected: bool) -> Outcome {
    let screen = &context.screen;
    let asks = !protected && confirm::asks(screen, "resources unprotect")?;
    let connection = context.connect().await?;
    let resource = find(&connection.client, id).await?;
    if asks {
        confirm::confirm(&format!("Let {} ({}) be destroyed again?", resource.name, resource.id))?;
    }
    let resource = connection.client.protect_resource(resource.id, protected).await?;
    show(screen, Some(&resource));
    Ok(())
}

fn show(screen: &Screen, resource: Option<&Resource>) {
    if let Some(resource) = resource {
        screen.document(resource, || views::resource(screen, resource));
    }
}

/// Waits for what was begun, unless told not to, and ends with the resource as it is then.
pub async fn see_through(
    connection: &Connection,
    screen: &Screen,
    handled: Handled,
    dry_run: bool,
    wait: &WaitFlags,
) -> Outcome {
    let Some(deployment) = handled.deployment else {
        show(screen, handled.resource.as_ref());
        return Ok(());
    };
    if dry_run {
        screen.document(&deployment, || views::deployment(screen, &deployment));
        return Ok(());
    }
    if wait.no_wait {
        show(screen, handled.resource.as_ref());
        return Ok(());
    }
    let watch = Watch { wait_approval: wait.wait_approval, earlier: HashSet::new() };
    let ended = follow::follow(connection, screen, deployment, &watch).await?;
    if let Some(resource) = handled.resource {
        show(screen, Some(&connection.client.resource(resource.id).await?));
    }
    follow::conclude(&connection.client, screen, &ended, &watch).await
}
