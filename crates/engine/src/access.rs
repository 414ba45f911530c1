//! Tokens: made once, shown once, kept as a hash; who they speak for and what that one was granted.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use conductor_api::types::{Grant as Shown, Time, Token, TokenRequest};
use conductor_domain::{
    ids::{ApplicationId, OrganisationId, PrincipalId, TokenId},
    lifecycle::ErrorCode,
};
use conductor_store::{Result, Tx, grants::GrantRow, principals::TokenRow};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    Context, Engine,
    changes::{self, check_application_name},
    progress::Progress,
    refusal::{not_found, refuse},
    rights::{Grant, Principal, Role},
};

const PRINCIPAL_KEPT: Duration = Duration::from_secs(1);

/// What a principal may do, as it is shown.
fn shown(rows: &[GrantRow]) -> Vec<Shown> {
    rows.iter()
        .map(|row| Shown {
            role: row.role.clone(),
            environment: row.environment.as_ref().map(|(_, name)| name.clone()),
            application: row.application.as_ref().map(|(_, name)| name.clone()),
        })
        .collect()
}

fn view(row: &TokenRow, grants: &[GrantRow]) -> Token {
    let greatest = grants.iter().filter_map(|grant| Role::parse(&grant.role)).max();
    Token {
        id: row.id,
        name: row.name.clone(),
        role: greatest.map(|role| role.as_str().to_owned()).unwrap_or_default(),
        grants: shown(grants),
        token: None,
        revoked: row.revoked,
        created_at: Time(row.created_at),
    }
}

fn check_role(role: &str, scoped: bool) -> Result<()> {
    let message = match Role::parse(role) {
        None => format!("there is no role `{role}`; the roles are owner, admin, write, read, worker"),
        Some(Role::Worker) if scoped => {
            "a worker works for the whole organisation; what it is given is narrowed by its labels and networks".into()
        }
        Some(_) => return Ok(()),
    };
    Err(refuse(ErrorCode::Invalid, message))
}

/// A grant with its place looked up. An application may be granted before its first deployment.
fn place_grant(
    tx: &mut Tx<'_>,
    context: &Context,
    principal: PrincipalId,
    grant: &Shown,
    now: i64,
) -> Result<GrantRow> {
    let environment = match &grant.environment {
        Some(name) => Some((changes::environment(tx, context, name)?.id, name.clone())),
        None => None,
    };
    let application = match &grant.application {
        Some(name) => {
            check_application_name(name)?;
            let known = tx.application_by_name(context.organisation, name)?.map(|row| row.id);
            let id = match known {
                Some(id) => id,
                None => {
                    let id = ApplicationId(context.ids.next());
                    tx.upsert_application(context.organisation, id, name, None, now)?
                }
            };
            Some((id, name.clone()))
        }
        None => None,
    };
    Ok(GrantRow { principal, role: grant.role.clone(), environment, application })
}

fn token(tx: &mut Tx<'_>, context: &Context, id: TokenId) -> Result<TokenRow> {
    let row = tx.tokens(context.organisation)?.into_iter().find(|row| row.id == id);
    row.ok_or_else(|| not_found("token", &id.to_string(), &[]))
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

fn with_rights(
    tx: &mut Tx<'_>,
    organisation: OrganisationId,
    id: PrincipalId,
    name: String,
) -> Result<Principal> {
    let grant = |row: GrantRow| {
        let role = Role::parse(&row.role)?;
        Some(Grant { role, environment: row.environment, application: row.application })
    };
    let rights = tx.rights_of(organisation, id, &name)?;
    Ok(Principal { name, grants: rights.into_iter().filter_map(grant).collect() })
}

/// Somebody with tokens of their own, as of now. Embedded users have none.
pub(crate) fn named(tx: &mut Tx<'_>, context: &Context, name: &str) -> Result<Option<Principal>> {
    match tx.principal_named(context.organisation, name)? {
        Some(id) => with_rights(tx, context.organisation, id, name.to_owned()).map(Some),
        None => Ok(None),
    }
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

    /// As [`Engine::principal`], as of now: for decisions that nobody may take any more who was told not to.
    pub async fn principal_now(&self, token: &str) -> Result<Option<Principal>> {
        self.look_up_principal(hash(token)).await
    }

    async fn look_up_principal(&self, hash: Vec<u8>) -> Result<Option<Principal>> {
        self.db
            .read(move |tx| {
                let Some((organisation, row)) = tx.token_by_hash(&hash)? else {
                    return Ok(None);
                };
                with_rights(tx, organisation, row.principal, row.name).map(Some)
            })
            .await
    }

    /// Whoever was known a moment ago is looked up again.
    pub(crate) fn forget_principals(&self) {
        if let Ok(mut known) = self.principals.lock() {
            known.clear();
        }
    }

    pub async fn create_token(&self, request: TokenRequest, actor: &str) -> Result<Token> {
        check_role(&request.role, request.environment.is_some() || request.application.is_some())?;
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
                let grant = Shown {
                    role: request.role.clone(),
                    environment: request.environment.clone(),
                    application: request.application.clone(),
                };
                let grant = place_grant(tx, &context, principal, &grant, now)?;
                tx.set_grant(context.organisation, &grant, now)?;
                tx.insert_token(context.organisation, id, principal, &hash(&token), now)?;
                let grants = shown(std::slice::from_ref(&grant));
                let told = json!({ "name": request.name, "role": request.role, "after": grants });
                Progress::new(tx, &context, now).event("token.created", &actor, None, None, None, told)?;
                let row =
                    TokenRow { id, principal, name: request.name.clone(), created_at: now, revoked: false };
                Ok(Token { token: Some(token.clone()), ..view(&row, &[grant]) })
            })
            .await
    }

    /// Gives whoever holds a token a role in a place, instead of the one held there before.
    pub async fn grant(&self, id: TokenId, grant: Shown, actor: &str) -> Result<Token> {
        check_role(&grant.role, grant.environment.is_some() || grant.application.is_some())?;
        self.change_grants(id, actor, move |tx, context, principal, now| {
            let grant = place_grant(tx, context, principal, &grant, now)?;
            tx.set_grant(context.organisation, &grant, now)
        })
        .await
    }

    /// Takes away what is held in exactly this place.
    pub async fn take_grant(
        &self,
        id: TokenId,
        environment: Option<String>,
        application: Option<String>,
        actor: &str,
    ) -> Result<Token> {
        self.change_grants(id, actor, move |tx, _, principal, _| {
            let held = tx.grants_of(principal)?.into_iter().find(|held| {
                held.environment.as_ref().map(|(_, name)| name) == environment.as_ref()
                    && held.application.as_ref().map(|(_, name)| name) == application.as_ref()
            });
            let Some(held) = held else {
                return Err(refuse(ErrorCode::NotFound, "nothing is granted in exactly this place"));
            };
            tx.delete_grant(principal, held.environment.map(|(id, _)| id), held.application.map(|(id, _)| id))
                .map(drop)
        })
        .await
    }

    async fn change_grants(
        &self,
        id: TokenId,
        actor: &str,
        mut body: impl FnMut(&mut Tx<'_>, &Context, PrincipalId, i64) -> Result<()> + Send + 'static,
    ) -> Result<Token> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let changed = self
            .db
            .write(move |tx| {
                let now = context.now();
                let row = token(tx, &context, id)?;
                tx.hold_principal(row.principal)?;
                let before = shown(&tx.grants_of(row.principal)?);
                body(tx, &context, row.principal, now)?;
                let grants = tx.grants_of(row.principal)?;
                let told =
                    json!({ "token": id, "name": row.name, "before": before, "after": shown(&grants) });
                Progress::new(tx, &context, now).event("token.granted", &actor, None, None, None, told)?;
                Ok(view(&row, &grants))
            })
            .await;
        self.forget_principals();
        changed
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
                let request = TokenRequest { name, role: "admin".into(), ..TokenRequest::default() };
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
        let request = TokenRequest { name: "admin".into(), role: "admin".into(), ..TokenRequest::default() };
        self.keep_token(request, token.clone(), "conductor").await?;
        Ok(Some(token))
    }

    async fn has_tokens(&self) -> Result<bool> {
        let organisation = self.context.organisation;
        Ok(!self.db.read(move |tx| tx.tokens(organisation)).await?.is_empty())
    }

    pub async fn tokens(&self) -> Result<Vec<Token>> {
        let organisation = self.context.organisation;
        self.db
            .read(move |tx| {
                let mut held: BTreeMap<PrincipalId, Vec<GrantRow>> = BTreeMap::new();
                for grant in tx.grants(organisation)? {
                    held.entry(grant.principal).or_default().push(grant);
                }
                let of = |row: &TokenRow| held.get(&row.principal).map_or(&[][..], Vec::as_slice);
                Ok(tx.tokens(organisation)?.iter().map(|row| view(row, of(row))).collect())
            })
            .await
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
                let told =
                    json!({ "token": id, "before": { "revoked": false }, "after": { "revoked": true } });
                Progress::new(tx, &context, now).event("token.revoked", &actor, None, None, None, told)
            })
            .await;
        self.forget_principals();
        revoked
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
