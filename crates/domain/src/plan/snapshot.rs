//! The part of the world a plan looks at, as it was when its planning domains were locked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_score::Scope;
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::{Rule, TemplateVersion},
    expr::Params,
    ids::{ApplicationId, DomainId, EnvironmentId, OperationId, ResourceId, TemplateVersionId},
    lifecycle::{ConsumerState, KeptBy, OperationKind, OperationStatus, State, Status},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyTag {
    Dedicated,
    Shared,
    Matched,
    Workload,
}

impl KeyTag {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dedicated => "dedicated",
            Self::Shared => "shared",
            Self::Matched => "matched",
            Self::Workload => "workload",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Dedicated, Self::Shared, Self::Matched, Self::Workload]
            .into_iter()
            .find(|tag| tag.as_str() == text)
    }
}

/// What makes a live resource the one that is meant: unique among the living.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub domain: DomainId,
    pub kind: String,
    pub class: String,
    pub tag: KeyTag,
    pub name: String,
}

#[derive(Clone, Debug)]
pub struct EnvironmentView {
    pub id: EnvironmentId,
    pub name: String,
    pub kind: String,
    pub domain: DomainId,
}

#[derive(Clone, Debug)]
pub struct ApplicationView {
    pub id: ApplicationId,
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConsumerView {
    pub application: ApplicationId,
    pub application_name: String,
    pub environment: EnvironmentId,
    pub requirement: String,
    pub state: ConsumerState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOperation {
    pub id: OperationId,
    pub kind: OperationKind,
    pub status: OperationStatus,
    /// Some worker was handed it before, so it may have happened.
    pub begun: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResourceView {
    pub id: ResourceId,
    pub key: Key,
    pub name: String,
    pub scope: Scope,
    pub version: TemplateVersionId,
    pub state: State,
    pub status: Status,
    pub generation: i64,
    pub spec: Params,
    /// The desired state of the last success, and by which version it was made.
    pub applied: Option<(Params, TemplateVersionId)>,
    pub message: Option<String>,
    pub kept_by: KeptBy,
    pub protected: bool,
    pub workload: bool,
    /// How many there are; `consumers` holds this application's and some of the others'.
    pub consumer_count: u64,
    pub consumers: Vec<ConsumerView>,
    /// What it depends on.
    pub depends_on: BTreeSet<ResourceId>,
    /// Live resources that strongly depend on it.
    pub dependents: BTreeSet<ResourceId>,
    pub open_operation: Option<OpenOperation>,
    /// Some worker was handed it once, so something may exist.
    pub attempted: bool,
}

#[derive(Clone, Debug)]
pub struct Snapshot {
    pub environment: EnvironmentView,
    pub organisation_domain: DomainId,
    pub global_domain: DomainId,
    pub application: ApplicationView,
    /// Versions of every type asked for, and of every resource loaded.
    pub versions: BTreeMap<TemplateVersionId, Arc<TemplateVersion>>,
    pub rules: Vec<Rule>,
    /// All types there are, for suggestions.
    pub types: Vec<String>,
    /// Serves the workload where no template of that type is applied.
    pub default_workload: Option<TemplateVersionId>,
    pub resources: BTreeMap<ResourceId, ResourceView>,
    /// What was looked up: `None` = looked, and there is none.
    pub keys: BTreeMap<Key, Option<ResourceId>>,
    pub missing: BTreeSet<ResourceId>,
    pub external: BTreeMap<String, Option<ResourceId>>,
}

impl Snapshot {
    pub fn domain(&self, scope: Scope) -> DomainId {
        match scope {
            Scope::Environment => self.environment.domain,
            Scope::Organisation => self.organisation_domain,
            Scope::Global => self.global_domain,
        }
    }

    pub fn versions_of(&self, kind: &str) -> Vec<Arc<TemplateVersion>> {
        self.versions.values().filter(|version| version.kind == kind).cloned().collect()
    }

    /// This application's use of a resource in this environment.
    pub fn is_mine(&self, consumer: &ConsumerView) -> bool {
        consumer.application == self.application.id && consumer.environment == self.environment.id
    }
}

impl ResourceView {
    /// Consumers other than one application in one environment.
    pub fn others<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ConsumerView> {
        self.consumers.iter().filter(|consumer| !snapshot.is_mine(consumer))
    }

    pub fn has_others(&self, snapshot: &Snapshot) -> bool {
        let mine = self.consumers.iter().filter(|consumer| snapshot.is_mine(consumer)).count() as u64;
        self.consumer_count > mine
    }

    /// The other applications by name, at most five, then how many more.
    pub fn others_named(&self, snapshot: &Snapshot) -> String {
        let names: BTreeSet<&str> =
            self.others(snapshot).map(|consumer| consumer.application_name.as_str()).collect();
        let shown: Vec<&str> = names.iter().take(5).copied().collect();
        match names.len() - shown.len() {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}
