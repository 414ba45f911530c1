//! Tokens: made once, shown once, kept as a hash; who they speak for and what that one may do.

use std::time::{Duration, Instant};

use conductor_api::types::{Time, Token, TokenRequest};
use conductor_domain::{
    ids::{PrincipalId, TokenId},
    lifecycle::ErrorCode,
};
use conductor_store::Result;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    Engine,
    progress::Progress,
    refusal::{not_found, refuse},
};

const PRINCIPAL_KEPT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Read,
    Write,
    Admin,
    Owner,
    Worker,
}

impl Role {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "read" => Self::Read,
            "write" => Self::Write,
            "admin" => Self::Admin,
            "owner" => Self::Owner,
            "worker" => Self::Worker,
            _ => return None,
        })
    }
}

/// Who is asking.
#[derive(Clone, Debug)]
pub struct Principal {
    pub name: String,
    pub roles: Vec<Role>,
}

impl Principal {
    pub fn may(&self, wanted: Role) -> bool {
        match wanted {
            Role::Worker => self.roles.contains(&Role::Worker),
            wanted => self.roles.iter().any(|role| *role != Role::Worker && *role >= wanted),
        }
    }
}

fn hash(token: &str) -> Vec<u8> {
    Sha256::digest(token.as_bytes()).to_vec()
}

fn new_token() -> Result<String> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| refuse(ErrorCode::Failed, error.to_string()))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("cdt_{text}"))
}

impl Engine {
    /// Who a token speaks for; looked up at most once a second: one revoked on another server lives that
    /// much longer here.
    pub async fn principal(&self, token: &str) -> Result<Option<Principal>> {
        let hash = hash(token);
        let known = self.principals.lock().ok().and_then(|known| known.get(&hash).cloned());
        if let Some((principal, _)) = known.filter(|(_, at)| at.elapsed() < PRINCIPAL_KEPT) {
            return Ok(Some(principal));
        }
        let principal = self.look_up_principal(hash.clone()).await?;
        if let (Some(principal), Ok(mut known)) = (&principal, self.principals.lock()) {
            if known.len() > 1_000 {
                known.clear();
            }
            known.insert(hash, (principal.clone(), Instant::now()));
        }
        Ok(principal)
    }

    async fn look_up_principal(&self, hash: Vec<u8>) -> Result<Option<Principal>> {
        let found = self.db.read(move |tx| tx.token_by_hash(&hash)).await?;
        Ok(found.map(|(_, row)| Principal {
            name: row.name,
            roles: row.roles.iter().filter_map(|role| Role::parse(role)).collect(),
        }))
    }

    pub async fn create_token(&self, request: TokenRequest, actor: &str) -> Result<Token> {
        let roles = "owner, admin, write, read, worker";
        if Role::parse(&request.role).is_none() {
            let message = format!("there is no role `{}`; the roles are {roles}", request.role);
            return Err(refuse(ErrorCode::Invalid, message));
        }
        if request.name.is_empty() || request.name.len() > 100 || request.name.chars().any(char::is_control) {
            return Err(refuse(ErrorCode::Invalid, "a token's name is 1 to 100 printable characters"));
        }
        let token = new_token()?;
        self.keep_token(request, token, actor).await
    }

    async fn keep_token(&self, request: TokenRequest, token: String, actor: &str) -> Result<Token> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let now = context.now();
                let id = TokenId(context.ids.next());
                // One principal per token: the name says who acts, the role is the token's own.
                let taken = tx.tokens(context.organisation)?.iter().any(|row| row.name == request.name);
                if taken {
                    let message = format!("a token named `{}` is there already", request.name);
                    return Err(refuse(ErrorCode::Conflict, message));
                }
                let principal = tx.upsert_principal(
                    context.organisation,
                    PrincipalId(context.ids.next()),
                    &request.name,
                    now,
                )?;
                tx.insert_grant(context.organisation, principal, &request.role, now)?;
                tx.insert_token(context.organisation, id, principal, &hash(&token), now)?;
                let told = json!({ "name": request.name, "role": request.role });
                Progress::new(tx, &context, now).event("token.created", &actor, None, None, None, told)?;
                Ok(Token {
                    id,
                    name: request.name.clone(),
                    role: request.role.clone(),
                    token: Some(token.clone()),
                    revoked: false,
                    created_at: Time(now),
                })
            })
            .await
    }

    /// The first token: the one given, or a random one that is returned to be shown once.
    pub async fn ensure_admin_token(&self, given: Option<&str>) -> Result<Option<String>> {
        if let Some(given) = given {
            if self.principal(given).await?.is_none() {
                let name = if self.has_tokens().await? {
                    format!("admin-{}", &hex(&hash(given))[..8])
                } else {
                    "admin".into()
                };
                let request = TokenRequest { name, role: "admin".into() };
                match self.keep_token(request, given.to_owned(), "conductor").await {
                    // Another server was faster.
                    Err(conductor_store::Error::Refused { code: ErrorCode::Conflict, .. }) => {}
                    other => drop(other?),
                }
            }
            return Ok(None);
        }
        if self.has_tokens().await? {
            return Ok(None);
        }
        let token = new_token()?;
        let request = TokenRequest { name: "admin".into(), role: "admin".into() };
        self.keep_token(request, token.clone(), "conductor").await?;
        Ok(Some(token))
    }

    async fn has_tokens(&self) -> Result<bool> {
        let organisation = self.context.organisation;
        Ok(!self.db.read(move |tx| tx.tokens(organisation)).await?.is_empty())
    }

    pub async fn tokens(&self) -> Result<Vec<Token>> {
        let organisation = self.context.organisation;
        let rows = self.db.read(move |tx| tx.tokens(organisation)).await?;
        Ok(rows
            .into_iter()
            .map(|row| Token {
                id: row.id,
                name: row.name,
                role: row.roles.first().cloned().unwrap_or_default(),
                token: None,
                revoked: row.revoked,
                created_at: Time(row.created_at),
            })
            .collect())
    }

    pub async fn revoke_token(&self, id: TokenId, actor: &str) -> Result<()> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let revoked = self
            .db
            .write(move |tx| {
                let now = context.now();
                if !tx.revoke_token(context.organisation, id, now)? {
                    return Err(not_found("token", &id.to_string(), &[]));
                }
                let told = json!({ "token": id });
                Progress::new(tx, &context, now).event("token.revoked", &actor, None, None, None, told)
            })
            .await;
        if let Ok(mut known) = self.principals.lock() {
            known.clear();
        }
        revoked
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
