//! The sharing dialect: how a resource may be shared, found, claimed and ordered.
//!
//! One type for both spellings (directly on the resource, or under `metadata.conductor`), so that
//! whoever plans never sees how it was written. At most one way of asking is set: of `reference`,
//! `matching`, `sharing` and `pool` never two.

use serde::{Deserialize, Serialize};

/// What a resource says beyond Score. Empty for a resource that says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sharing {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching: Option<Matching>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<DependsOn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// What this requirement was called before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
}

impl Sharing {
    /// Whether the resource says anything in the dialect at all.
    #[must_use]
    pub fn uses_dialect(&self) -> bool {
        *self != Self::default()
    }
}

/// Asking for one particular thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum Reference {
    Dedicated,
    Shared {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<Scope>,
    },
    /// `id` is one of ours (`res_…`) or an external one.
    Existing {
        id: String,
    },
}

/// Asking for anything that fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Matching {
    #[serde(default)]
    pub scope: Scope,
    #[serde(default, rename = "sharingPolicy")]
    pub policy: SharingPolicy,
    /// The parameters that must be equal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_on: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_consumers: Option<u32>,
    /// A CEL expression, kept as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// How far to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    #[default]
    Environment,
    Organisation,
    Global,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharingPolicy {
    Dedicated,
    #[default]
    Shared,
    Conditional,
}

/// The one-word way of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharingWord {
    Dedicated,
    Shared,
    ByName,
    ByParams,
    Always,
}

/// An order between two resources that no placeholder expresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DependsOn {
    pub name: String,
    #[serde(default, rename = "type")]
    pub kind: DependencyKind,
    #[serde(default)]
    pub relationship: Relationship,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DependencyKind {
    #[default]
    Strong,
    Weak,
    Output,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Relationship {
    #[default]
    Requires,
    Uses,
    Extends,
}

/// What to do where two files ask for one thing differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    Fail,
    Keep,
    Update,
}
