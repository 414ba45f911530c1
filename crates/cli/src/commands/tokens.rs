//! Tokens: made, listed, revoked.

use conductor_api::types::TokenRequest;
use conductor_domain::ids::TokenId;

use super::Context;
use crate::{
    args::TokensCommand,
    failure::{Failure, Outcome},
    output::views,
};

pub async fn run(context: &Context, command: TokensCommand) -> Outcome {
    let screen = &context.screen;
    let connection = context.look().await?;
    match command {
        TokensCommand::Create { role, name } => {
            let token = connection.client.create_token(&TokenRequest { name, role }).await?;
            screen.note(&format!("token {} of {} ({}), shown only now:", token.id, token.name, token.role));
            screen.document(&token, || token.token.clone().unwrap_or_default());
        }
        TokensCommand::List => {
            let tokens = connection.client.tokens().await?;
            screen.document(&tokens, || views::tokens(screen, &tokens));
        }
        TokensCommand::Revoke { id } => {
            let id: TokenId = id.parse().map_err(|_| {
                Failure::not_found(format!("there is no token `{id}`"))
                    .hint("`conductor tokens list` shows their ids, which begin with tok_")
            })?;
            connection.client.revoke_token(id).await?;
            screen.note(&format!("token {id} is revoked"));
        }
    }
    Ok(())
}
