//! Alerts: how they stand, and quiet where somebody knows already.

use super::{Context, objects};
use crate::{
    args::{AlertsCommand, NamedCommand},
    failure::Outcome,
    output::views,
    settings::duration,
};

pub async fn run(context: &Context, command: AlertsCommand) -> Outcome {
    match command {
        AlertsCommand::List(flags) => {
            let items = context.look().await?.client.alerts().await?;
            let list = NamedCommand::List(flags);
            objects::named(&context.screen, list, "alert", items, |item| item.name.clone(), views::alerts)
        }
        AlertsCommand::Silence { name, length, off: _ } => {
            let length = length.map(|text| duration("--for", &text)).transpose()?;
            // Less than a second is a second: 0 would end a silence.
            let seconds = length.map_or(0, |length| length.as_secs().max(1));
            let alert = context.connect().await?.client.silence_alert(&name, seconds).await?;
            context.screen.document(&alert, || match alert.silenced_until {
                Some(until) => format!("nobody is told of {name} until {until}"),
                None => format!("{name} is told again"),
            });
            Ok(())
        }
    }
}
