//! Who is calling, and whether they may: a handler names the least role it needs by the type it takes.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, header, request::Parts},
};
use conductor_domain::lifecycle::ErrorCode;
use conductor_engine::{Engine, Principal, Role};

use crate::{App, problem::Failed};

pub enum Access {
    /// In this process: the operating system's user, who owns the folder anyway.
    Embedded {
        actor: String,
    },
    Tokens,
}

impl Access {
    async fn principal(&self, engine: &Arc<Engine>, parts: &Parts) -> Result<Principal, Failed> {
        if let Self::Embedded { actor } = self {
            return Ok(Principal { name: actor.clone(), roles: vec![Role::Owner, Role::Worker] });
        }
        let denied =
            |detail: &str| Failed::new(StatusCode::UNAUTHORIZED, ErrorCode::PermissionDenied, detail);
        let given = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        // GitLab's webhooks cannot send an Authorization header.
        let hook = parts.headers.get("x-gitlab-token").and_then(|value| value.to_str().ok());
        let token = given.and_then(|value| value.strip_prefix("Bearer ")).or(hook).ok_or_else(|| {
            denied("this needs a token: send `Authorization: Bearer TOKEN` (CONDUCTOR_TOKEN on the command line)")
        })?;
        engine.principal(token.trim()).await?.ok_or_else(|| denied("this token is not known, or was revoked"))
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
                if principal.may(Role::$role) {
                    return Ok(Self(principal));
                }
                let detail = format!("`{}` may not do this: it takes the role {}", principal.name, stringify!($role).to_lowercase());
                Err(Failed::new(StatusCode::FORBIDDEN, ErrorCode::PermissionDenied, detail))
            }
        }
    )*};
}

callers! {
    /// Looks.
    Reader needs Read;
    /// Deploys.
    Writer needs Write;
    /// Runs the installation.
    Admin needs Admin;
    /// Carries out operations.
    WorkerCaller needs Worker;
}
