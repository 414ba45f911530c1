//! Versions of a resource's terraform state.

use super::{Context, resources::find};
use crate::{
    args::StatesCommand,
    failure::{Failure, Outcome},
    output::views,
};

pub async fn run(context: &Context, command: StatesCommand) -> Outcome {
    let screen = &context.screen;
    let changes = matches!(command, StatesCommand::Rollback { .. } | StatesCommand::Unlock { .. });
    let connection = if changes { context.connect().await? } else { context.look().await? };
    let client = &connection.client;
    match command {
        StatesCommand::List { resource } => {
            let resource = find(client, &resource).await?;
            let versions = client.states(resource.id).await?;
            screen.document(&versions, || views::states(screen, &resource, &versions));
        }
        StatesCommand::Get { resource, number } => {
            let resource = find(client, &resource).await?;
            let number = match number {
                Some(number) => number,
                None => newest(client, &resource).await?,
            };
            let body = client.state(resource.id, number).await?;
            let document: serde_json::Value =
                serde_json::from_slice(&body).map_err(|error| Failure::failed(error.to_string()))?;
            // As it was written: not a digit of it is to change on the way.
            screen.document(&document, || String::from_utf8_lossy(&body).into_owned());
        }
        StatesCommand::Diff { resource, from, to } => {
            let resource = find(client, &resource).await?;
            let diff = client.diff_states(resource.id, from, to).await?;
            screen.document(&diff, || views::state_diff(screen, &resource, &diff));
        }
        StatesCommand::Rollback { resource, number } => {
            let resource = find(client, &resource).await?;
            let version = client.roll_back_state(resource.id, number).await?;
            screen.note(&format!(
                "the state of {} is as in version {number} again; nothing was changed outside",
                resource.name
            ));
            screen.document(&version, || views::states(screen, &resource, std::slice::from_ref(&version)));
        }
        StatesCommand::Unlock { resource } => {
            let resource = find(client, &resource).await?;
            client.unlock_state(resource.id).await?;
            screen.note(&format!("the state of {} is not locked any more", resource.name));
        }
    }
    Ok(())
}

async fn newest(
    client: &conductor_api::client::Client,
    resource: &conductor_api::types::Resource,
) -> Outcome<i64> {
    let versions = client.states(resource.id).await?;
    versions.first().map(|version| version.number).ok_or_else(|| {
        let failure = Failure::not_found(format!("Conductor keeps no state of {}", resource.name));
        match &resource.state_location {
            Some(place) => failure.hint(format!("it is kept by {} at {}", place.backend, place.location)),
            None => failure.hint("only what terraform made has one"),
        }
    })
}
