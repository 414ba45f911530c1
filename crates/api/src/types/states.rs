//! Versions of a resource's state.

use conductor_domain::{ids::OperationId, state_file::StateDifference};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Time;

/// Where the state of a resource is: in Conductor's database, in its object store, or in a backend of the environment's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateLocation {
    /// `conductor`, or the backend's name.
    pub backend: String,
    /// `database`, or an address.
    pub location: String,
}

/// One version of a state, without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateVersion {
    pub number: i64,
    /// Terraform's own count.
    pub serial: i64,
    pub lineage: String,
    /// In bytes.
    pub size: i64,
    /// The operation that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub operation: Option<OperationId>,
    /// The claim it was written under.
    pub fence: i64,
    /// Who, where no operation wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// `database`, or the address of its sealed body.
    pub location: String,
    #[schema(value_type = String)]
    pub created_at: Time,
}

/// What differs between two versions; sensitive values are masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StateDiff {
    pub from: i64,
    pub to: i64,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub difference: StateDifference,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StateRollback {
    /// The version whose content is taken up again.
    pub number: i64,
}
