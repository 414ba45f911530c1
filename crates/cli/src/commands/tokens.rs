//! Tokens: made, listed, given and taken roles, revoked.

use conductor_api::{
    client::Client,
    types::{Grant, Token, TokenRequest},
};

use super::Context;
use crate::{
    args::TokensCommand,
    failure::{Failure, Outcome},
    output::views,
};

pub async fn run(context: &Context, command: TokensCommand) -> Outcome {
    let screen = &context.screen;
    let client = context.look().await?.client;
    match command {
        TokensCommand::Create { grant, name } => {
            let request =
                TokenRequest { name, role: grant.role, environment: grant.env, application: grant.app };
            let token = client.create_token(&request).await?;
            let held = views::grants(&token);
            screen.note(&format!("token {} of {} ({held}), shown only now:", token.id, token.name));
            screen.document(&token, || token.token.clone().unwrap_or_default());
        }
        TokensCommand::List => {
            let tokens = client.tokens().await?;
            screen.document(&tokens, || views::tokens(screen, &tokens));
        }
        TokensCommand::Grant { holder, grant } => {
            let found = find(&client, &holder).await?;
            let grant = Grant { role: grant.role, environment: grant.env, application: grant.app };
            let token = client.grant(found.id, &grant).await?;
            screen.document(&token, || views::tokens(screen, std::slice::from_ref(&token)));
        }
        TokensCommand::Ungrant { holder, env, app } => {
            let found = find(&client, &holder).await?;
            let token = client.take_grant(found.id, env, app).await?;
            screen.document(&token, || views::tokens(screen, std::slice::from_ref(&token)));
        }
        TokensCommand::Revoke { id } => {
            let token = find(&client, &id).await?;
            client.revoke_token(token.id).await?;
            screen.note(&format!("token {} of {} is revoked", token.id, token.name));
        }
    }
    Ok(())
}

/// A token by its id or its name.
async fn find(client: &Client, named: &str) -> Outcome<Token> {
    let tokens = client.tokens().await?;
    let found = tokens.into_iter().find(|token| token.name == named || token.id.to_string() == named);
    found.ok_or_else(|| {
        Failure::not_found(format!("there is no token `{named}`"))
            .hint("`conductor tokens list` shows their names and ids")
    })
}
