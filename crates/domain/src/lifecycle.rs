//! The two-axis lifecycle of a resource, and those of operations and changes.
//!
//! ```text
//!             create                      destroy
//!  provision ────────► provisioned ────────────────► destroy ────────► destroyed
//!     ▲ │                   ▲ │ update                  │                  │
//!     │ └── never made ─────┼─┴─────────────────────────┼──────────────►   │
//!     │                     └───── revived, kept ───────┘                  │
//!     └──────────────────────────── recreated ─────────────────────────────┘
//! ```
//! *State* is where the thing is in its life, *status* what is happening to it; people's single word is a
//! projection, [`Phase`]. The database holds the same tables of moves and refuses any other.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(UnknownWord { text: text.into(), known: &[$($word),*] }),
                }
            }
        }
    };
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not one of {}", known.join(", "))]
pub struct UnknownWord {
    pub text: String,
    pub known: &'static [&'static str],
}

words! {
    /// Where a resource is in its life.
    State {
        Provision = "provision",
        Provisioned = "provisioned",
        Destroy = "destroy",
        Destroyed = "destroyed",
    }
}

words! {
    /// What is happening to a resource.
    Status {
        Ready = "ready",
        Queued = "queued",
        ApprovalPending = "approval_pending",
        /// Held back: something it needs is not there yet, or failed.
        Pending = "pending",
        InProgress = "in_progress",
        Done = "done",
        Error = "error",
        Rejected = "rejected",
        /// The outcome of a lost operation could not be established.
        Unknown = "unknown",
    }
}

words! {
    /// The one word people expect: a function of state and status, never stored.
    Phase {
        Pending = "Pending",
        Provisioning = "Provisioning",
        Active = "Active",
        Updating = "Updating",
        Failed = "Failed",
        PendingDeletion = "PendingDeletion",
        Deleted = "Deleted",
    }
}

impl Phase {
    pub fn of(state: State, status: Status) -> Self {
        match (state, status) {
            (_, Status::Error) => Self::Failed,
            (State::Provision, Status::InProgress) => Self::Provisioning,
            (State::Provision, _) => Self::Pending,
            (State::Provisioned, Status::Queued | Status::InProgress) => Self::Updating,
            (State::Provisioned, _) => Self::Active,
            (State::Destroy, _) => Self::PendingDeletion,
            (State::Destroyed, _) => Self::Deleted,
        }
    }
}

words! {
    OperationKind {
        Create = "create",
        Update = "update",
        Destroy = "destroy",
        Observe = "observe",
        Plan = "plan",
        Describe = "describe",
        /// Tries whether an integration works.
        Test = "test",
        /// Nothing to run: everything before it is there.
        Settle = "settle",
    }
}

words! {
    OperationStatus {
        /// Something before it is not done.
        Blocked = "blocked",
        ApprovalPending = "approval_pending",
        Queued = "queued",
        InProgress = "in_progress",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
    }
}

impl OperationStatus {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::TimedOut)
    }
}

words! {
    ChangeStatus {
        Pending = "pending",
        ApprovalPending = "approval_pending",
        InProgress = "in_progress",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
    }
}

impl OperationKind {
    /// It changes nothing of its resource, and its end says nothing about it either.
    pub fn only_looks(self) -> bool {
        matches!(self, Self::Observe | Self::Plan)
    }
}

impl ChangeStatus {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::TimedOut)
    }
}

words! {
    /// Everything that touches the world is a change of one of these kinds.
    ChangeKind {
        Deploy = "deploy",
        Destroy = "destroy",
        Teardown = "teardown",
        Template = "template",
        Collect = "collect",
        Rollback = "rollback",
        Resource = "resource",
        Proposal = "proposal",
        Repair = "repair",
        Adopt = "adopt",
        Pool = "pool",
        Upgrade = "upgrade",
        Import = "import",
        Preview = "preview",
        /// An integration is tried.
        Test = "test",
        /// Looks whether things are as they are recorded.
        Observe = "observe",
    }
}

words! {
    /// A request for somebody's agreement.
    ApprovalStatus {
        Pending = "pending",
        Approved = "approved",
        Rejected = "rejected",
        Expired = "expired",
        /// What was asked for ended before there was an answer.
        Withdrawn = "withdrawn",
    }
}

words! {
    /// A change of a resource under review.
    ProposalStatus {
        Pending = "pending",
        ApprovalPending = "approval_pending",
        Approved = "approved",
        Rejected = "rejected",
        Merged = "merged",
        Discarded = "discarded",
    }
}

words! {
    ConsumerState {
        Joining = "joining",
        Active = "active",
        /// Still counts until it is gone.
        Leaving = "leaving",
    }
}

words! {
    /// Who keeps a resource alive; this alone decides who may die.
    KeptBy {
        Consumers = "consumers",
        Pool = "pool",
        Hand = "hand",
        External = "external",
    }
}

words! {
    /// What a plan says of one requirement.
    Action {
        Create = "create",
        Reuse = "reuse",
        Link = "link",
        Claim = "claim",
        Update = "update",
        Replace = "replace",
        Rename = "rename",
        None = "none",
        Release = "release",
        Remove = "remove",
    }
}

words! {
    ErrorCode {
        DependenciesExist = "dependencies_exist",
        InUse = "in_use",
        PermissionDenied = "permission_denied",
        NotFound = "not_found",
        Invalid = "invalid",
        Conflict = "conflict",
        Transient = "transient",
        TimedOut = "timed_out",
        Cancelled = "cancelled",
        Superseded = "superseded",
        Rejected = "rejected",
        Failed = "failed",
    }
}

/// Why something went wrong, as it is stored and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<crate::ids::OperationId>,
}

impl Fault {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, operation: None }
    }
}

/// A span of microseconds in its largest whole unit: `36 h`, `90 s`.
pub fn duration_text(span: i64) -> String {
    let seconds = span / 1_000_000;
    match seconds {
        0 => format!("{} ms", span / 1_000),
        s if s % 86_400 == 0 => format!("{} d", s / 86_400),
        s if s % 3_600 == 0 => format!("{} h", s / 3_600),
        s if s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

/// What somebody can do with a resource as it is, besides looking. Everything else is refused.
pub fn available_actions(state: State, status: Status) -> &'static [&'static str] {
    match (state, status) {
        (_, Status::ApprovalPending) => &["approve", "reject", "cancel"],
        (_, Status::Queued | Status::InProgress) => &["cancel"],
        (State::Provision, Status::Rejected) => &["recreate", "destroy"],
        (State::Provision, _) => &["retry", "recreate", "destroy"],
        (State::Provisioned, Status::Error | Status::Unknown) => &["retry", "update", "destroy"],
        (State::Provisioned, _) => &["update", "destroy"],
        (State::Destroy, Status::Pending) => &["undelete", "destroy"],
        (State::Destroy, _) => &["retry", "destroy"],
        (State::Destroyed, _) => &["recreate", "delete"],
    }
}

/// Every allowed move of a resource's state; staying is always allowed.
pub const STATE_MOVES: &[(State, State)] = &[
    (State::Provision, State::Provisioned),
    (State::Provision, State::Destroy),
    (State::Provision, State::Destroyed),
    (State::Provisioned, State::Destroy),
    (State::Destroy, State::Provisioned),
    (State::Destroy, State::Provision),
    (State::Destroy, State::Destroyed),
    (State::Destroyed, State::Provision),
];

pub const OPERATION_MOVES: &[(OperationStatus, OperationStatus)] = &[
    (OperationStatus::Blocked, OperationStatus::Queued),
    (OperationStatus::Blocked, OperationStatus::ApprovalPending),
    (OperationStatus::Blocked, OperationStatus::Succeeded),
    (OperationStatus::Blocked, OperationStatus::Cancelled),
    (OperationStatus::ApprovalPending, OperationStatus::Queued),
    (OperationStatus::ApprovalPending, OperationStatus::Cancelled),
    (OperationStatus::Queued, OperationStatus::InProgress),
    (OperationStatus::Queued, OperationStatus::Succeeded),
    (OperationStatus::Queued, OperationStatus::Failed),
    (OperationStatus::Queued, OperationStatus::Cancelled),
    (OperationStatus::InProgress, OperationStatus::Queued),
    (OperationStatus::InProgress, OperationStatus::Succeeded),
    (OperationStatus::InProgress, OperationStatus::Failed),
    (OperationStatus::InProgress, OperationStatus::Cancelled),
    (OperationStatus::InProgress, OperationStatus::TimedOut),
];

/// A change that ended may only begin again by a retry.
pub const CHANGE_MOVES: &[(ChangeStatus, ChangeStatus)] = &[
    (ChangeStatus::Pending, ChangeStatus::InProgress),
    (ChangeStatus::Pending, ChangeStatus::ApprovalPending),
    (ChangeStatus::Pending, ChangeStatus::Succeeded),
    (ChangeStatus::Pending, ChangeStatus::Failed),
    (ChangeStatus::Pending, ChangeStatus::Cancelled),
    (ChangeStatus::Pending, ChangeStatus::TimedOut),
    (ChangeStatus::ApprovalPending, ChangeStatus::InProgress),
    (ChangeStatus::ApprovalPending, ChangeStatus::Pending),
    (ChangeStatus::ApprovalPending, ChangeStatus::Failed),
    (ChangeStatus::ApprovalPending, ChangeStatus::Cancelled),
    (ChangeStatus::InProgress, ChangeStatus::ApprovalPending),
    (ChangeStatus::InProgress, ChangeStatus::Succeeded),
    (ChangeStatus::InProgress, ChangeStatus::Failed),
    (ChangeStatus::InProgress, ChangeStatus::Cancelled),
    (ChangeStatus::InProgress, ChangeStatus::TimedOut),
    (ChangeStatus::Failed, ChangeStatus::Pending),
    (ChangeStatus::Cancelled, ChangeStatus::Pending),
    (ChangeStatus::TimedOut, ChangeStatus::Pending),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_state_and_status_has_its_phase() {
        let table: Vec<String> = State::ALL
            .iter()
            .flat_map(|&state| Status::ALL.iter().map(move |&status| (state, status)))
            .map(|(state, status)| format!("{state}/{status} = {}", Phase::of(state, status)))
            .collect();
        for expected in [
            "provision/error = Failed",
            "provision/in_progress = Provisioning",
            "provision/pending = Pending",
            "provisioned/in_progress = Updating",
            "provisioned/unknown = Active",
            "destroy/error = Failed",
            "destroy/queued = PendingDeletion",
            "destroyed/done = Deleted",
        ] {
            assert!(table.iter().any(|line| line == expected), "{expected} not in {table:#?}");
        }
    }

    #[test]
    fn words_are_read_back_and_wrong_ones_listed() {
        assert_eq!("timed_out".parse(), Ok(OperationStatus::TimedOut));
        let error = "done".parse::<State>().unwrap_err().to_string();
        assert_eq!(error, "`done` is not one of provision, provisioned, destroy, destroyed");
    }
}
