//! Who is calling, and whether they may. A handler of what belongs to the organisation names the least role it needs by
//! the type it takes; one of what belongs to an environment or an application takes a [`Caller`] and asks the engine.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, header, request::Parts},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use conductor_api::worker::{Claim, LinkError, OPERATION_TOKEN};
use conductor_domain::{ids::OperationId, lifecycle::ErrorCode};
use conductor_engine::{Engine, PoolStanding, Principal, Role};
use serde::Deserialize;

use crate::{
    App,
    problem::{Ask, At, Failed},
};

pub enum Access {
    /// In this process: the operating system's user, who owns the folder anyway.
    Embedded {
        actor: String,
    },
    Tokens,
}

impl Access {
    async fn principal(&self, engine: &Arc<Engine>, parts: &Parts) -> Result<Principal, Failed> {
        self.principal_of(engine, parts, None, false).await
    }

    /// `basic` is a token that came as the password of basic authentication; `fresh` takes nobody's word of a moment
    /// ago.
    async fn principal_of(
        &self,
        engine: &Arc<Engine>,
        parts: &Parts,
        basic: Option<String>,
        fresh: bool,
    ) -> Result<Principal, Failed> {
        if let Self::Embedded { actor } = self {
            return Ok(Principal::everywhere(actor, &[Role::Owner, Role::Worker]));
        }
        let given = bearer(parts);
        // GitLab's webhooks cannot send an Authorization header.
        let hook = parts.headers.get("x-gitlab-token").and_then(|value| value.to_str().ok());
        let token = given.or(hook).or(basic.as_deref()).ok_or_else(|| {
            denied("this needs a token: send `Authorization: Bearer TOKEN` (CONDUCTOR_TOKEN on the command line)")
        })?;
        if Engine::is_operation_token(token) {
            let detail = "the token of an operation is good for the calls about that operation alone";
            return Err(Failed::new(StatusCode::FORBIDDEN, ErrorCode::PermissionDenied, detail));
        }
        let found = match fresh {
            true => engine.principal_now(token.trim()).await?,
            false => engine.principal(token.trim()).await?,
        };
        found.ok_or_else(|| denied("this token is not known, or was revoked"))
    }
}

fn denied(detail: &str) -> Failed {
    Failed::new(StatusCode::UNAUTHORIZED, ErrorCode::PermissionDenied, detail)
}

fn bearer(parts: &Parts) -> Option<&str> {
    let given = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    given.strip_prefix("Bearer ").map(str::trim)
}

/// Whoever holds an operation: proved by the token that was handed out with the claim. The pool's is good only for what
/// a worker of an earlier release holds.
pub struct Holder(pub Claim);

#[derive(Deserialize)]
struct Fence {
    fence: i64,
}

impl FromRequestParts<App> for Holder {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
        let At(operation) = At::<OperationId>::from_request_parts(parts, app).await?;
        let Ask(Fence { fence }) = Ask::<Fence>::from_request_parts(parts, app).await?;
        Self::proved(parts, app, Claim { operation, fence }).await
    }
}

impl Holder {
    async fn proved(parts: &Parts, app: &App, claim: Claim) -> Result<Self, Failed> {
        if let Access::Embedded { .. } = *app.access {
            return Ok(Self(claim));
        }
        let own = parts.headers.get(OPERATION_TOKEN).and_then(|value| value.to_str().ok());
        let token = own
            .or_else(|| bearer(parts))
            .ok_or_else(|| denied("this needs the token that was handed out with the operation"))?;
        if app.engine.opens(token, claim)? {
            return Ok(Self(claim));
        }
        let detail = match Engine::is_operation_token(token) {
            true => "this token was handed out for another claim",
            false => {
                let caller = app.access.principal(&app.engine, parts).await?;
                match app.engine.pool_standing(claim).await? {
                    PoolStanding::Holds if caller.may_everywhere(Role::Worker) => return Ok(Self(claim)),
                    PoolStanding::Lost if caller.may_everywhere(Role::Worker) => {
                        return Err(LinkError::Lost.into());
                    }
                    _ => {}
                }
                "this needs the operation's own token; a worker's token can only ask for work"
            }
        };
        Err(Failed::new(StatusCode::FORBIDDEN, ErrorCode::PermissionDenied, detail))
    }
}

/// Who asks for files: for a claim, or as a worker of an earlier release, which does not say for what.
pub enum FileHolder {
    Of(Claim),
    Earlier,
}

#[derive(Deserialize)]
struct For {
    operation: Option<OperationId>,
    fence: Option<i64>,
}

impl FromRequestParts<App> for FileHolder {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
        let Ask(asked) = Ask::<For>::from_request_parts(parts, app).await?;
        match (asked.operation, asked.fence) {
            (Some(operation), Some(fence)) => {
                let Holder(claim) = Holder::proved(parts, app, Claim { operation, fence }).await?;
                Ok(Self::Of(claim))
            }
            _ => {
                WorkerCaller::from_request_parts(parts, app).await?;
                Ok(Self::Earlier)
            }
        }
    }
}

/// The password of `Authorization: Basic …`, whoever it says to belong to.
fn basic_password(parts: &Parts) -> Option<String> {
    let given = parts.headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let decoded = BASE64.decode(given.strip_prefix("Basic ")?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// Keeps states of their own terraform here, which can only say its token as a password.
pub struct StateCaller(pub Principal);

impl FromRequestParts<App> for StateCaller {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
        let principal = app.access.principal_of(&app.engine, parts, basic_password(parts), false).await?;
        everywhere(principal, Role::Write).map(Self)
    }
}

/// What is about no environment takes a role on the organisation.
fn everywhere(principal: Principal, role: Role) -> Result<Principal, Failed> {
    principal.needs(role, None, None)?;
    Ok(principal)
}

fn somewhere(principal: Principal) -> Result<Principal, Failed> {
    if principal.may_somewhere(Role::Read) {
        return Ok(principal);
    }
    principal.needs(Role::Read, None, None)?;
    Ok(principal)
}

/// Somebody who may at least read somewhere: what exactly they may is asked where it is known what it is about.
pub struct Caller(pub Principal);

impl FromRequestParts<App> for Caller {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
        somewhere(app.access.principal(&app.engine, parts).await?).map(Self)
    }
}

/// A [`Caller`] who decides something that cannot be taken back, or who may do what: what they may is read anew.
pub struct Decider(pub Principal);

impl FromRequestParts<App> for Decider {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
        somewhere(app.access.principal_of(&app.engine, parts, None, true).await?).map(Self)
    }
}

/// The organisation's administrator, as of now.
pub struct AdminNow(pub Principal);

impl FromRequestParts<App> for AdminNow {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
        everywhere(app.access.principal_of(&app.engine, parts, None, true).await?, Role::Admin).map(Self)
    }
}

macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident needs $role:ident;)*) => {$(
        $(#[$doc])*
        #[allow(dead_code, reason = "not every route asks for the name")]
        pub struct $name(pub Principal);

        impl FromRequestParts<App> for $name {
            type Rejection = Failed;

            async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failed> {
                let principal = app.access.principal(&app.engine, parts).await?;
                everywhere(principal, Role::$role).map(Self)
            }
        }
    )*};
}

callers! {
    /// Looks at what belongs to the organisation.
    Reader needs Read;
    /// Changes what belongs to the organisation.
    Writer needs Write;
    /// Runs the installation.
    Admin needs Admin;
    /// Asks for work.
    WorkerCaller needs Worker;
}
