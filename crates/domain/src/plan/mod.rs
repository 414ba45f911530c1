//! Planning: what shall be done and why, decided completely before anything is done.
//!
//! `resolve` turns an intent into a [`Goal`] (what is wanted, what is left); `diff` compares it with the
//! [`Snapshot`] and is the only code that says create, update, replace, destroy, wait or no. Both are pure and
//! bounded: where the snapshot does not suffice they say what they need, and are called again with it.

mod asking;
mod build;
mod diff;
mod fitting;
mod hand;
mod order;
mod own;
mod pools;
mod removals;
mod renames;
mod resolve;
mod snapshot;
mod symbols;

use std::collections::BTreeSet;

use conductor_score::{Position, Scope};
use serde::{Deserialize, Serialize};

pub use diff::diff;
pub use hand::changed_by_hand;
pub use order::{Cycle, dependency_order};
pub use resolve::{Again, Ask, Fitting, Goal, Handmade, Intent, Wanted, WantedDependency, resolve};
pub use snapshot::{
    ApplicationView, CANDIDATES_COUNTED, ConsumerView, EnvironmentView, Key, KeyTag, MatchQuery, Matches,
    OpenOperation, PoolView, ResourceView, Rivals, Snapshot,
};

use renames::Renamed;

use crate::{
    expr::Params,
    ids::{ApplicationId, Ids, OperationId, PoolId, ResourceId, TemplateVersionId},
    lifecycle::{Action, ErrorCode, KeptBy, OperationKind, State, Status},
};

/// One thing wrong with an intent, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: String,
    pub message: String,
    pub suggestion: Option<String>,
    pub at: Option<Position>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The snapshot lacks these; load them and plan again.
    #[error("more has to be looked up")]
    Need(Vec<Want>),
    #[error("{}", problems.first().map(|p| p.message.as_str()).unwrap_or("refused"))]
    Refused { code: ErrorCode, problems: Vec<Problem> },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    Key(Key),
    Resource(ResourceId),
    External(String),
    /// Every version of the templates that make a type.
    Type(String),
    /// What fits, the best first, at least this many of them.
    Match(MatchQuery, usize),
    Pool(String),
    /// Others of a type and class within a scope: only to be told about.
    Rivals(Scope, String, String),
    /// Which outputs the consumers of a resource use.
    Contracts(ResourceId),
}

/// One that could have served a requirement, and why it does or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    pub resource: ResourceId,
    pub name: String,
    pub scope: Scope,
    pub consumers: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_consumers: Option<u32>,
    pub chosen: bool,
    pub reason: String,
}

/// What the plan says of one requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub requirement: String,
    pub resource: ResourceId,
    pub name: String,
    pub action: Action,
    pub reason: String,
    /// In the order in which they were looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// How many more there are; with those above not counted beyond [`CANDIDATES_COUNTED`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_candidates: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    Ready,
    Gone,
}

/// Something another change is making, or taking away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    pub resource: ResourceId,
    pub generation: i64,
    pub until: Until,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedOperation {
    pub id: OperationId,
    /// `None`: a point where things meet, with nothing of its own.
    pub resource: Option<ResourceId>,
    pub kind: OperationKind,
    pub generation: i64,
    /// Done without a worker when its inputs turn out unchanged.
    pub conditional: bool,
    /// `None`: nothing to run, done as soon as everything before it is.
    pub manager: Option<String>,
    pub after: Vec<OperationId>,
    /// Comes after these as well, but goes on when they fail.
    pub loosely_after: Vec<OperationId>,
    pub waits: Vec<Wait>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewResource {
    pub id: ResourceId,
    pub key: Key,
    pub name: String,
    pub slug: String,
    pub version: TemplateVersionId,
    pub params: Params,
    pub kept_by: KeptBy,
    pub workload: bool,
    pub replaces: Option<ResourceId>,
    pub max_consumers: Option<u32>,
    /// Who may share it, in CEL.
    pub when: Option<String>,
    pub pool: Option<PoolId>,
}

/// A dependency as it is recorded. The requirement is the name under which outputs are handed over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedDependency {
    pub on: ResourceId,
    pub requirement: String,
    pub kind: conductor_score::DependencyKind,
    pub relationship: conductor_score::Relationship,
    /// Required by its template, not by a Score file: it lives as long as its dependents.
    pub own: bool,
    /// It is a child of that one.
    pub parent: bool,
}

/// What storing the plan does to the record, in order. Each names the state it leaves.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Create(Box<NewResource>),
    /// A new desired state: the generation rises.
    Specify {
        resource: ResourceId,
        from: (State, Status),
        to: (State, Status),
        version: TemplateVersionId,
        params: Params,
        generation: i64,
    },
    /// Marked for removal.
    Doom {
        resource: ResourceId,
        from: (State, Status),
    },
    /// Waiting for destruction, wanted again: its destruction is called off.
    Revive {
        resource: ResourceId,
        operation: OperationId,
    },
    /// Waiting for its time to be destroyed, wanted again.
    Unbury {
        resource: ResourceId,
    },
    /// Taken out of its pool's ready ones.
    Claim {
        resource: ResourceId,
        kept_by: KeptBy,
    },
    Replaced {
        old: ResourceId,
        by: ResourceId,
    },
    Depend {
        resource: ResourceId,
        on: Vec<RecordedDependency>,
    },
    Join {
        resource: ResourceId,
        requirement: String,
        params: Params,
        /// The outputs this application uses.
        outputs: BTreeSet<String>,
    },
    Leave {
        resource: ResourceId,
        application: ApplicationId,
        requirement: String,
    },
    /// The same thing under another name: nothing else of it changes.
    Rename {
        resource: ResourceId,
        /// What the application called it, and calls it now.
        from: String,
        to: String,
        /// What it is known by from here on, where that changes.
        key: Option<String>,
        name: String,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub items: Vec<Item>,
    pub removals: Vec<Item>,
    pub operations: Vec<PlannedOperation>,
    pub effects: Vec<Effect>,
    /// Worth telling, but nothing to refuse (a deprecated template).
    pub warnings: Vec<String>,
}

/// Plans an intent on a snapshot.
pub fn plan(intent: &Intent<'_>, snapshot: &Snapshot, ids: &dyn Ids) -> Result<Plan, PlanError> {
    let goal = resolve(intent, snapshot)?;
    match Renamed::of(&goal, snapshot)? {
        None => diff(&goal, snapshot, ids),
        Some(renamed) => {
            let mut plan = diff(&goal, &renamed.snapshot, ids)?;
            renamed.tell(&mut plan);
            Ok(plan)
        }
    }
}
