//! The other objects: lists, and single ones by id or name.

use conductor_api::client::{Client, ListFilter};
use conductor_domain::{
    ids::{EventId, OperationId},
    nearest,
};
use serde::Serialize;
use serde_json::Value;

use super::{Context, deploy, deployment_id, logs};
use crate::{
    args::{
        DeploymentsCommand, ListFlags, LogFlags, NamedCommand, OperationsCommand, PoolsCommand,
        RecordCommand, WaitFlags,
    },
    confirm,
    failure::{Failure, Outcome},
    output::{Screen, table::fields, views},
};

pub async fn deployments(context: &Context, command: DeploymentsCommand) -> Outcome {
    if let DeploymentsCommand::Rollback { id, dry_run, wait } = command {
        return deploy::redeploy(context, deployment_id(&id)?, dry_run, &wait).await;
    }
    let (screen, connection) = (&context.screen, context.look().await?);
    match command {
        DeploymentsCommand::Rollback { .. } => {}
        DeploymentsCommand::List(flags) => {
            let changes = connection.client.deployments(&flags.filter()).await?;
            screen.document(&changes, || views::deployments(screen, &changes));
        }
        DeploymentsCommand::Get { id } => {
            let change = connection.client.deployment(deployment_id(&id)?).await?;
            screen.document(&change, || views::deployment_details(screen, &change));
        }
    }
    Ok(())
}

pub async fn operations(context: &Context, command: OperationsCommand) -> Outcome {
    let screen = &context.screen;
    match command {
        OperationsCommand::List(flags) => {
            let operations = context.look().await?.client.operations(&flags.filter()).await?;
            screen.document(&operations, || views::operations(screen, &operations));
        }
        OperationsCommand::Get { id } => {
            let operation = context.look().await?.client.operation(operation_id(&id)?).await?;
            screen.document(&operation, || details(&operation));
        }
        OperationsCommand::Logs { id, flags } => {
            let operation = context.look().await?.client.operation(operation_id(&id)?).await?;
            let flags = LogFlags { operation: Some(operation.id.to_string()), ..flags };
            return logs::logs(context, operation.deployment, &flags).await;
        }
        OperationsCommand::Cancel { id } => {
            let operation = context.look().await?.client.operation(operation_id(&id)?).await?;
            return deploy::cancel(context, operation.deployment, false).await;
        }
        OperationsCommand::Retry { id } => {
            let operation = context.look().await?.client.operation(operation_id(&id)?).await?;
            let wait = WaitFlags { no_wait: false, wait_approval: false };
            return deploy::retry(context, operation.deployment, &wait).await;
        }
    }
    Ok(())
}

fn operation_id(text: &str) -> Outcome<OperationId> {
    text.parse().map_err(|_| {
        Failure::not_found(format!("there is no operation `{text}`"))
            .hint("`conductor operations list` shows their ids, which begin with op_")
    })
}

pub async fn events(context: &Context, command: RecordCommand) -> Outcome {
    let (screen, connection) = (&context.screen, context.look().await?);
    match command {
        RecordCommand::List(flags) => {
            let events = connection.client.events(&flags.filter()).await?;
            screen.document(&events, || views::events(screen, &events));
        }
        RecordCommand::Get { id } => {
            let unknown = || Failure::not_found(format!("there is no event `{id}`"));
            let wanted: EventId = id.parse().map_err(|_| unknown())?;
            let events = connection.client.events(&ListFilter::default()).await?;
            let event = events.into_iter().find(|event| event.id == wanted).ok_or_else(unknown)?;
            screen.document(&event, || details(&event));
        }
    }
    Ok(())
}

pub async fn applications(context: &Context, command: NamedCommand) -> Outcome {
    let items = client(context).await?.applications().await?;
    named(&context.screen, command, "application", items, |item| item.name.clone(), views::applications)
}

pub async fn environments(context: &Context, command: NamedCommand) -> Outcome {
    let items = client(context).await?.environments().await?;
    named(&context.screen, command, "environment", items, |item| item.name.clone(), views::environments)
}

pub async fn rules(context: &Context, command: NamedCommand) -> Outcome {
    let items = client(context).await?.rules().await?;
    named(&context.screen, command, "rule", items, |item| item.name.clone(), views::rules)
}

pub async fn pools(context: &Context, command: PoolsCommand) -> Outcome {
    let command = match command {
        PoolsCommand::List(flags) => NamedCommand::List(flags),
        PoolsCommand::Get { name } => NamedCommand::Get { name },
        PoolsCommand::Delete { name } => {
            if confirm::asks(&context.screen, "pools delete")? {
                confirm::confirm(&format!("Give up pool {name} and destroy its ready members?"))?;
            }
            context.connect().await?.client.delete_pool(&name).await?;
            context.screen.note(&format!("pool {name} is no more"));
            return Ok(());
        }
    };
    let items = client(context).await?.pools().await?;
    named(&context.screen, command, "pool", items, |item| item.name.clone(), views::pools)
}

pub async fn workers(context: &Context, command: NamedCommand) -> Outcome {
    let items = client(context).await?.workers().await?;
    named(&context.screen, command, "worker", items, |item| item.name.clone(), views::workers)
}

/// A template is its newest version unless one is named, as in `orders-db@1.0.0`.
pub async fn templates(context: &Context, command: NamedCommand) -> Outcome {
    let mut items = client(context).await?.templates().await?;
    let command = match command {
        NamedCommand::Get { name } => {
            let (plain, version) = name.split_once('@').map_or((name.as_str(), None), |(n, v)| (n, Some(v)));
            items.retain(|item| version.is_none_or(|version| item.version == version || item.name != plain));
            items.sort_by_key(|item| std::cmp::Reverse(item.created_at));
            NamedCommand::Get { name: plain.to_owned() }
        }
        list => list,
    };
    named(&context.screen, command, "template", items, |item| item.name.clone(), views::templates)
}

async fn client(context: &Context) -> Outcome<Client> {
    Ok(context.look().await?.client)
}

/// Lists objects, or shows the first of a name or id.
pub(super) fn named<T: Serialize>(
    screen: &Screen,
    command: NamedCommand,
    what: &str,
    items: Vec<T>,
    name_of: impl Fn(&T) -> String,
    view: impl FnOnce(&Screen, &[T]) -> String,
) -> Outcome {
    match command {
        NamedCommand::List(flags) => {
            let mut items: Vec<T> = items.into_iter().filter(|item| fits(item, &flags)).collect();
            items.truncate(flags.limit.unwrap_or(usize::MAX));
            screen.document(&items, || view(screen, &items));
            Ok(())
        }
        NamedCommand::Get { name } => {
            let id_of = |item: &T| json(item).get("id").and_then(Value::as_str).map(str::to_owned);
            let found =
                items.iter().find(|item| name_of(item) == name || id_of(item).as_deref() == Some(&name));
            let Some(item) = found else {
                let names: Vec<String> = items.iter().map(&name_of).collect();
                let failure = Failure::not_found(format!("there is no {what} `{name}`"));
                return Err(match nearest(&name, names.iter().map(String::as_str)) {
                    Some(close) => failure.hint(format!("did you mean `{close}`?")),
                    None if names.is_empty() => failure.hint(format!("there is no {what} at all yet")),
                    None => failure.hint(format!("there is: {}", names.join(", "))),
                });
            };
            screen.document(item, || details(item));
            Ok(())
        }
    }
}

fn json(item: &impl Serialize) -> Value {
    serde_json::to_value(item).unwrap_or(Value::Null)
}

/// What a list of few is narrowed to. An object without the asked field does not fit.
pub(super) fn fits(item: &impl Serialize, flags: &ListFlags) -> bool {
    let item = json(item);
    let wanted = [
        ("environment", &flags.env),
        ("application", &flags.app),
        ("type", &flags.kind),
        ("class", &flags.class),
        ("template", &flags.template),
        ("status", &flags.status),
    ];
    wanted.iter().all(|(key, wanted)| {
        let Some(wanted) = wanted else { return true };
        let state = (*key == "status").then(|| item.get("state")).flatten();
        let value = item.get(*key).or(state).or_else(|| item.get("match").and_then(|m| m.get(*key)));
        let value = value.and_then(Value::as_str).unwrap_or_default();
        value == wanted || (*key == "template" && value.split('@').next() == Some(wanted))
    })
}

/// Any object, field by field.
pub(super) fn details(item: &impl Serialize) -> String {
    let Value::Object(map) = json(item) else {
        return String::new();
    };
    let pairs: Vec<(&str, Option<String>)> = map
        .iter()
        .map(|(key, value)| {
            let shown = match value {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                // Whole sentences, each on its line.
                Value::Array(lines) if key == "isolation" => {
                    let lines = lines.iter().filter_map(Value::as_str);
                    Some(lines.map(|line| format!("\n  {line}")).collect())
                }
                other => Some(other.to_string()),
            };
            (key.as_str(), shown)
        })
        .collect();
    fields(&pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_narrowed_by_the_fields_an_object_has() {
        let rule = json!({"name": "r", "template": "db@1.0.0", "match": {"type": "postgres"}});
        let flags = |kind: Option<&str>, template: Option<&str>| ListFlags {
            kind: kind.map(str::to_owned),
            template: template.map(str::to_owned),
            ..ListFlags::default()
        };
        assert!(fits(&rule, &flags(Some("postgres"), None)));
        assert!(!fits(&rule, &flags(Some("redis"), None)));
        assert!(fits(&rule, &flags(None, Some("db"))));
        assert!(!fits(&rule, &ListFlags { env: Some("dev".into()), ..ListFlags::default() }));
    }
}
