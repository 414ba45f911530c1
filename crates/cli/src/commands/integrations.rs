//! Integrations: lists and single ones without their values, and whether one works.

use conductor_domain::{ids::ChangeId, lifecycle::OperationStatus};
use serde_json::json;

use super::{Context, objects};
use crate::{
    args::IntegrationsCommand,
    confirm,
    connect::{Connection, Scope},
    failure::{Failure, Outcome},
    follow,
    output::views,
};

pub async fn run(context: &Context, command: IntegrationsCommand) -> Outcome {
    let screen = &context.screen;
    match command {
        IntegrationsCommand::List(flags) => {
            let mut items = context.look().await?.client.integrations().await?;
            items.retain(|item| objects::fits(item, &flags));
            items.truncate(flags.limit.unwrap_or(usize::MAX));
            screen.document(&items, || views::integrations(screen, &items));
        }
        IntegrationsCommand::Get { name, env } => {
            let item = context.look().await?.client.integration(&name, env.as_deref()).await?;
            screen.document(&item, || objects::details(&item));
        }
        IntegrationsCommand::Test { name, env } => {
            let connection = context.connect().await?;
            let change = connection.client.test_integration(&name, env.as_deref()).await?;
            let id = change.id.ok_or_else(|| Failure::failed("the server started no test"))?;
            settle(context, &connection, &name, id).await?;
            let told = json!({ "name": name, "environment": env, "works": true, "deployment": id });
            screen.document(&told, || format!("{name} works"));
        }
        IntegrationsCommand::Delete { name, env } => {
            if confirm::asks(screen, "integrations delete")? {
                confirm::confirm(&format!("Delete integration {name}?"))?;
            }
            context.connect().await?.client.delete_integration(&name, env.as_deref()).await?;
            screen.note(&format!("integration {name} is no more"));
        }
    }
    Ok(())
}

async fn settle(context: &Context, connection: &Connection, name: &str, change: ChangeId) -> Outcome {
    let ended = follow::settle(connection, &context.screen, change, Scope::ThisAlone).await?;
    if ended.status == "succeeded" {
        return Ok(());
    }
    let operations = follow::operations_of(&connection.client, change).await?;
    let failed = operations.into_iter().find(|operation| operation.status != OperationStatus::Succeeded);
    let fault = failed.and_then(|operation| operation.error).or(ended.error);
    let why = fault.map_or_else(|| ended.status.clone(), |fault| fault.message);
    Err(Failure::failed(format!("{name} does not work: {why}"))
        .hint(format!("what was said: conductor logs {change}")))
}
