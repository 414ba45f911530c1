//! Tokens, and what whoever holds them may do.

use conductor_domain::ids::TokenId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// A role, on the organisation or within it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// `owner`, `admin`, `write`, `read` or `worker`.
    pub role: String,
    /// Only in this environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Only for this application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenRequest {
    pub name: String,
    pub role: String,
    /// The role is for this environment alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The role is for this application alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    #[schema(value_type = String)]
    pub id: TokenId,
    pub name: String,
    /// The greatest of its grants; empty when there is none.
    pub role: String,
    #[serde(default)]
    pub grants: Vec<Grant>,
    /// Shown once, when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub revoked: bool,
    #[schema(value_type = String)]
    pub created_at: Time,
}
