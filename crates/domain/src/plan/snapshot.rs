//! The part of the world a plan looks at, as it was when its planning domains were locked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_score::Scope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    approval::ApprovalPolicy,
    catalogue::{Rule, TemplateVersion},
    expr::Params,
    ids::{
        ApplicationId, DomainId, EnvironmentId, OperationId, PoolId, ResourceId, TemplateId,
        TemplateVersionId,
    },
    lifecycle::{ConsumerState, KeptBy, OperationKind, OperationStatus, State, Status},
    sharing::MatchOn,
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
    pub labels: BTreeMap<String, String>,
    pub domain: DomainId,
    /// How long a destruction waits here for somebody to think again, in microseconds.
    pub grace: i64,
    /// Who has to agree to what here.
    pub approval: ApprovalPolicy,
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
    /// The outputs it uses.
    pub outputs: BTreeSet<String>,
    /// What it asked for; known of this application's own uses.
    pub asked: Option<Params>,
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
    pub max_consumers: Option<u32>,
    /// Who may share it, in CEL.
    pub when: Option<String>,
    pub pool: Option<PoolId>,
    /// Nobody uses it: destroyed at this time unless somebody does again.
    pub buried_until: Option<i64>,
    /// What it depends on.
    pub depends_on: BTreeSet<ResourceId>,
    /// Those of them that its template required, by the name it knows them by.
    pub own: BTreeMap<String, ResourceId>,
    /// Live resources that strongly depend on it.
    pub dependents: BTreeSet<ResourceId>,
    pub open_operation: Option<OpenOperation>,
    /// Some worker was handed it once, so something may exist.
    pub attempted: bool,
}

/// What has to be equal for a resource to fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MatchQuery {
    /// The widest to look in; narrower ones come first.
    pub scope: Scope,
    pub kind: String,
    pub class: String,
    pub template: TemplateId,
    pub on: MatchOn,
    /// The values of those parameters.
    pub material: String,
}

/// What fits, in order: narrowest scope, fewest consumers, oldest, id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    pub ids: Vec<ResourceId>,
    /// There are more than these.
    pub more: bool,
}

/// A million candidates take no longer to tell of than this many.
pub const CANDIDATES_COUNTED: u64 = 10_000;

/// Others of a type and class: some of them, and how many there are, up to [`CANDIDATES_COUNTED`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rivals {
    pub ids: Vec<ResourceId>,
    pub total: u64,
}

/// A pool, and what can be claimed from it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolView {
    pub id: PoolId,
    pub name: String,
    pub version: TemplateVersionId,
    pub parameters: Map<String, Value>,
    /// One member may serve several.
    pub shared: bool,
    pub max_consumers: Option<u32>,
    /// Also serves requirements that do not name it.
    pub auto: bool,
    /// Members in all at most, and how many there are.
    pub max: Option<u64>,
    pub alive: u64,
    /// Used once, a member is not handed out again.
    pub recycles: bool,
    /// Ready ones, least used first.
    pub ready: Vec<ResourceId>,
}

#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Candidates that were never in question are told as well.
    pub explain: bool,
    /// Planned is for everybody in the environment, not for one application.
    pub everyone: bool,
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
    /// Types whose versions are all here.
    pub kinds: BTreeSet<String>,
    pub matches: BTreeMap<MatchQuery, Matches>,
    pub rivals: BTreeMap<(Scope, String, String), Rivals>,
    pub pools: BTreeMap<String, Option<Arc<PoolView>>>,
    /// The names of this environment's pools, and those that serve unasked.
    pub pool_names: Vec<String>,
    pub auto_pools: Vec<Arc<PoolView>>,
    /// By resource: which application uses which output.
    pub contracts: BTreeMap<ResourceId, BTreeSet<(String, String)>>,
}

impl Snapshot {
    /// Nothing but who plans, and where.
    pub fn new(
        environment: EnvironmentView,
        organisation_domain: DomainId,
        global_domain: DomainId,
        application: ApplicationView,
    ) -> Self {
        Self {
            explain: false,
            everyone: false,
            environment,
            organisation_domain,
            global_domain,
            application,
            versions: BTreeMap::new(),
            rules: vec![],
            types: vec![],
            default_workload: None,
            resources: BTreeMap::new(),
            keys: BTreeMap::new(),
            missing: BTreeSet::new(),
            external: BTreeMap::new(),
            kinds: BTreeSet::new(),
            matches: BTreeMap::new(),
            rivals: BTreeMap::new(),
            pools: BTreeMap::new(),
            pool_names: vec![],
            auto_pools: vec![],
            contracts: BTreeMap::new(),
        }
    }

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

    /// A use of a resource that is planned for: this application's in this environment, or anybody's there.
    pub fn is_mine(&self, consumer: &ConsumerView) -> bool {
        consumer.environment == self.environment.id
            && (self.everyone || consumer.application == self.application.id)
    }
}

impl ResourceView {
    /// Consumers other than one application in one environment.
    pub fn others<'a>(&'a self, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a ConsumerView> {
        self.consumers.iter().filter(|consumer| !snapshot.is_mine(consumer))
    }

    /// It was never there, and nobody is at making it.
    pub fn never_came_about(&self) -> bool {
        let making = self.state == State::Provision && self.open_operation.is_some();
        self.applied.is_none() && matches!(self.state, State::Provision | State::Destroy) && !making
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
