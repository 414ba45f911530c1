//! What people do with resources beyond deploying: by hand, with approval, on proposal, against drift.

use std::collections::BTreeMap;

use conductor_domain::{
    ids::{ApprovalId, ChangeId, OperationId, ProposalId, ResourceId},
    lifecycle::{ApprovalStatus, OperationKind, ProposalStatus, State},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Deployment, Resource, Time};

/// A tag or a config of a resource; children may get it, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Inheritable {
    #[schema(value_type = Object)]
    pub value: Value,
    #[serde(default, rename = "inherited_by_children", alias = "inheritedByChildren")]
    pub inherited_by_children: bool,
}

/// What people say of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Inheritable>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub configs: BTreeMap<String, Inheritable>,
}

/// A resource made by hand.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceRequest {
    /// `NAME`, its newest version, or `NAME@VERSION`.
    pub template: String,
    pub name: String,
    pub environment: String,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    /// Ids of resources it is a child of.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub parents: Vec<ResourceId>,
    #[serde(default)]
    pub facts: Facts,
    #[serde(default)]
    pub dry_run: bool,
}

/// Something that Conductor does not manage, made known to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RegisterRequest {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    pub name: String,
    pub environment: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub outputs: Map<String, Value>,
    /// Which of the outputs are secret.
    #[serde(default)]
    pub sensitive: Vec<String>,
    #[serde(default)]
    pub facts: Facts,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HandRequest {
    pub dry_run: bool,
}

/// What was done by hand, or would be: the resource and the change that does it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Handled {
    /// Absent where it would be new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
    /// Absent where there was nothing to carry out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment: Option<Deployment>,
}

/// Somebody who still needs what is to be destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Blocker {
    /// The resource in the way, or the one that is used.
    #[schema(value_type = String)]
    pub resource_id: ResourceId,
    pub resource_name: String,
    #[schema(value_type = String)]
    pub state: State,
    /// `consumer`, `dependent` or `child`.
    pub kind: String,
    /// Who uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
}

/// One operation that somebody has to agree to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalItem {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub operation: Option<OperationId>,
    #[schema(value_type = String)]
    pub kind: OperationKind,
    #[schema(value_type = String)]
    pub resource: ResourceId,
    pub name: String,
    #[serde(rename = "type")]
    pub resource_type: String,
    pub template: String,
    /// By parameter: `{before, after}`; sensitive ones are `null`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub changes: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Vote {
    pub actor: String,
    pub approves: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    #[schema(value_type = String)]
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    #[schema(value_type = String)]
    pub id: ApprovalId,
    #[schema(value_type = String)]
    pub status: ApprovalStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub deployment: Option<ChangeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub proposal: Option<ProposalId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// What is to be done: `deploy`, `destroy`, `teardown` and so on.
    pub kind: String,
    pub requester: String,
    /// How many have to agree.
    pub approvers: u64,
    pub allow_self: bool,
    pub items: Vec<ApprovalItem>,
    pub votes: Vec<Vote>,
    /// Of what is asked for: it is what an answer is about.
    pub digest: String,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub decided_at: Option<Time>,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Decision {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Of what one has seen: the answer counts only if that is still what is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// A change of a resource, to be looked at before it is made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProposalRequest {
    /// Parameters that change; `null` takes one away.
    #[schema(value_type = Object)]
    pub set: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SubmitRequest {
    /// Made as soon as enough have agreed.
    pub auto_merge: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    #[schema(value_type = String)]
    pub id: ProposalId,
    #[schema(value_type = String)]
    pub resource: ResourceId,
    pub resource_name: String,
    pub environment: String,
    #[schema(value_type = String)]
    pub status: ProposalStatus,
    pub actor: String,
    /// By parameter: `{before, after}`; sensitive ones are `null`.
    #[schema(value_type = Object)]
    pub changes: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_version: Option<String>,
    /// What another template version adds, drops and changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariableChanges>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub auto_merge: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub approval: Option<ApprovalId>,
    /// The last dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub preview: Option<ChangeId>,
    /// The change that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub deployment: Option<ChangeId>,
    #[schema(value_type = String)]
    pub created_at: Time,
    #[schema(value_type = String)]
    pub updated_at: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct VariableChanges {
    pub added: Vec<String>,
    pub dropped: Vec<String>,
    pub changed: Vec<String>,
    /// Required by the new version, and without a value.
    pub missing: Vec<String>,
}

/// A desired state of a resource that was replaced by a newer one, or is the current one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    pub number: i64,
    pub state: String,
    pub template_version: String,
    #[schema(value_type = Object)]
    pub parameters: Map<String, Value>,
    #[schema(value_type = String)]
    pub deployment: ChangeId,
    pub actor: String,
    /// What brought it about: `deploy`, `proposal` and so on.
    pub reason: String,
    pub current: bool,
    #[schema(value_type = String)]
    pub created_at: Time,
}

/// What differs between two revisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionDiff {
    pub from: i64,
    pub to: i64,
    /// By parameter: `{before, after}`; sensitive ones are `null`.
    #[schema(value_type = Object)]
    pub changes: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub template_version: Option<Value>,
}

/// Which resources are to be looked at; nothing said means all.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriftRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    #[schema(value_type = Vec<String>)]
    pub resources: Vec<ResourceId>,
}

/// What is to become of a drift.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriftDecision {
    #[schema(value_type = Vec<String>)]
    pub resources: Vec<ResourceId>,
    /// Only these attributes; none means all.
    pub attributes: Vec<String>,
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftAttribute {
    pub path: String,
    /// Sensitive ones are `null`.
    #[schema(value_type = Object)]
    pub recorded: Value,
    #[schema(value_type = Object)]
    pub actual: Value,
}

/// A resource that is not what is on record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drift {
    #[schema(value_type = String)]
    pub resource: ResourceId,
    pub name: String,
    pub environment: String,
    /// `changed` or `missing`.
    pub kind: String,
    pub attributes: Vec<DriftAttribute>,
    #[schema(value_type = String)]
    pub observed_at: Time,
}
