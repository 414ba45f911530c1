//! Resources: what exists, who uses it, and why it is there.

use conductor_api::{
    client::{Client, ListFilter},
    types::Resource,
};
use conductor_domain::{ids::ResourceId, nearest};
use serde_json::json;

use super::{
    Context,
    by_hand::{self, Deed},
    life,
};
use crate::{
    args::{ListFlags, OneFlags, ResourcesCommand},
    failure::{Failure, Outcome},
    output::{count, views},
};

/// An action by its name, as a command of its own.
async fn named(context: &Context, one: OneFlags, action: &str) -> Outcome<ResourcesCommand> {
    let id = one.id.clone();
    Ok(match action {
        "destroy" => ResourcesCommand::Destroy(one),
        "recreate" => ResourcesCommand::Recreate(one),
        "retry" => ResourcesCommand::Retry(one),
        _ if one.dry_run => {
            return Err(Failure::usage(format!(
                "{action} changes nothing in the world; leave out --dry-run"
            )));
        }
        "delete" => ResourcesCommand::Delete { id },
        "undelete" => ResourcesCommand::Undelete { id },
        "protect" => ResourcesCommand::Protect { id },
        "unprotect" => ResourcesCommand::Unprotect { id },
        _ => {
            let resource = find(&context.look().await?.client, &id).await?;
            let failure = Failure::usage(format!("{action} is nothing that can be done to a resource here"));
            let can = resource.available_actions.join(", ");
            return Err(failure.hint(match action {
                "approve" | "reject" => {
                    format!("`conductor approvals {action} ID` answers; `approvals list` has the id")
                }
                "cancel" => "`conductor cancel DEPLOYMENT` stops what is under way".to_owned(),
                "update" => format!("`conductor proposals create {id} --set k=v` changes what it shall be"),
                _ => format!("{} can do: {can}", resource.name),
            }));
        }
    })
}

pub async fn run(context: &Context, command: ResourcesCommand) -> Outcome {
    let screen = &context.screen;
    let command = match command {
        ResourcesCommand::Act { one, action } => named(context, one, &action).await?,
        other => other,
    };
    let command = match command {
        ResourcesCommand::Adopt(flags) => return life::adopt(context, flags).await,
        ResourcesCommand::Create(flags) => return by_hand::create(context, *flags).await,
        ResourcesCommand::Register(flags) => return by_hand::register(context, *flags).await,
        ResourcesCommand::Describe { id, facts } => return by_hand::describe(context, &id, &facts).await,
        ResourcesCommand::Destroy(flags) => return by_hand::act(context, flags, Deed::Destroy).await,
        ResourcesCommand::Recreate(flags) => return by_hand::act(context, flags, Deed::Recreate).await,
        ResourcesCommand::Retry(flags) => return by_hand::act(context, flags, Deed::Retry).await,
        ResourcesCommand::Delete { id } => return by_hand::delete(context, &id).await,
        ResourcesCommand::Protect { id } => return by_hand::protect(context, &id, true).await,
        ResourcesCommand::Unprotect { id } => return by_hand::protect(context, &id, false).await,
        other => other,
    };
    let changes = matches!(command, ResourcesCommand::Undelete { .. });
    let connection = if changes { context.connect().await? } else { context.look().await? };
    let client = &connection.client;
    match command {
        ResourcesCommand::Undelete { id } => {
            // A deleted record is found by its id alone.
            let id = match id.parse::<ResourceId>() {
                Ok(id) => id,
                Err(_) => find(client, &id).await?.id,
            };
            let resource = client.undelete(id).await?;
            screen.document(&resource, || views::resource(screen, &resource));
        }
        ResourcesCommand::List(flags) => {
            let resources = list(client, &flags).await?;
            screen.document(&resources, || views::resources(screen, &resources));
        }
        ResourcesCommand::Get { id } => {
            let resource = find(client, &id).await?;
            screen.document(&resource, || views::resource(screen, &resource));
        }
        ResourcesCommand::Consumers { id } => {
            let resource = find(client, &id).await?;
            screen.document(&resource.consumers, || match resource.consumers.is_empty() {
                true => format!("nobody uses {}\n", resource.name),
                false => views::consumers(screen, &resource),
            });
        }
        ResourcesCommand::Why { id } => why(context, client, &id).await?,
        _ => {}
    }
    Ok(())
}

pub(super) async fn list(client: &Client, flags: &ListFlags) -> Outcome<Vec<Resource>> {
    let mut resources = client.resources(&flags.filter()).await?;
    if let Some(consumer) = &flags.consumer {
        resources.retain(|resource| resource.consumers.iter().any(|user| user.application == *consumer));
        resources.truncate(flags.limit.unwrap_or(usize::MAX));
    }
    Ok(resources)
}

/// By id, or by a name that only one has.
pub(super) async fn find(client: &Client, text: &str) -> Outcome<Resource> {
    if let Ok(id) = text.parse::<ResourceId>() {
        return Ok(client.resource(id).await?);
    }
    let all = client.resources(&ListFilter::default()).await?;
    let named: Vec<&Resource> = all.iter().filter(|resource| resource.name == text).collect();
    match named.as_slice() {
        [one] => Ok(client.resource(one.id).await?),
        [] => {
            let failure = Failure::not_found(format!("there is no resource `{text}`"));
            Err(match nearest(text, all.iter().map(|resource| resource.name.as_str())) {
                Some(close) => failure.hint(format!("did you mean `{close}`?")),
                None => failure.hint("`conductor resources list` shows what there is"),
            })
        }
        several => {
            let ids: Vec<String> =
                several.iter().map(|one| format!("{} in {}", one.id, one.environment)).collect();
            Err(Failure::usage(format!("{} are called `{text}`", count(several.len(), "resource")))
                .hint(format!("give one's id: {}", ids.join(", "))))
        }
    }
}

/// What made it, what keeps it, and the reasons that were given then.
async fn why(context: &Context, client: &Client, text: &str) -> Outcome {
    let resource = find(client, text).await?;
    let mut reasons = Vec::new();
    for user in &resource.consumers {
        // A deployment may be gone, or not ours to see: the rest can still be told.
        let Ok(change) = client.deployment(user.deployment).await else {
            continue;
        };
        let found = change.resources.iter().find(|item| {
            item.resource == resource.id
                && (item.requirement == user.requirement || user.requirement.is_empty())
        });
        if let Some(item) = found {
            reasons.push(json!({
                "application": user.application, "requirement": user.requirement,
                "deployment": user.deployment, "action": item.action, "reason": item.reason,
            }));
        }
    }
    let about = ListFilter { resource: Some(resource.id.to_string()), ..ListFilter::default() };
    let mut events = client.events(&about).await?;
    events.sort_by_key(|event| event.id);
    let document = json!({
        "resource": resource.id, "name": resource.name, "createdBy": resource.created_by,
        "template": format!("{}@{}", resource.template, resource.template_version),
        "consumers": resource.consumers, "dependents": resource.dependents, "protected": resource.protected,
        "keptBy": resource.kept_by, "destroyAfter": resource.destroy_after, "reasons": reasons, "events": events,
    });
    context.screen.document(&document, || {
        let mut out = format!(
            "{} ({}) is {}\n  made from {}@{} by {}\n",
            resource.name,
            resource.id,
            resource.phase,
            resource.template,
            resource.template_version,
            resource.created_by
        );
        for user in &resource.consumers {
            out.push_str(&format!(
                "  kept by {} in {} as `{}`, since {}\n",
                user.application, user.environment, user.requirement, user.since
            ));
        }
        for dependent in &resource.dependents {
            out.push_str(&format!("  needed by {dependent}\n"));
        }
        if resource.protected {
            out.push_str("  kept because it is protected\n");
        }
        if resource.consumers.is_empty() && resource.dependents.is_empty() {
            out.push_str("  nothing uses it\n");
        }
        if let Some(at) = resource.destroy_after {
            out.push_str(&format!("  destroyed at {at}, unless it is undeleted\n"));
        }
        for reason in &reasons {
            let word = |key: &str| reason[key].as_str().unwrap_or_default().to_owned();
            out.push_str(&format!("  {} for {}: {}\n", word("action"), word("application"), word("reason")));
        }
        if !events.is_empty() {
            out.push_str("\nwhat happened to it\n");
        }
        for event in &events {
            let change = event.deployment.map(|id| format!(" ({id})")).unwrap_or_default();
            out.push_str(&format!("  {} {} by {}{change}\n", event.at, event.kind, event.actor));
        }
        out
    });
    Ok(())
}
