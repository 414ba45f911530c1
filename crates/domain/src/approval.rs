//! Who has to agree before something is done: what organisation, environment and template ask for, the strictest of it.

use serde::{Deserialize, Serialize};

use crate::lifecycle::{ChangeKind, OperationKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    None,
    Required,
}

/// The `approval` block of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ApprovalPolicy {
    pub create: Option<Need>,
    pub update: Option<Need>,
    pub destroy: Option<Need>,
    /// Putting right what somebody changed behind our back; where it is not said, as any other change.
    pub drift: Option<Need>,
    /// Filling a pool.
    pub pool: Option<Need>,
    pub approvers: Option<u32>,
    pub allow_self: Option<bool>,
    /// How long a request waits for an answer, like `72h`.
    pub expires: Option<String>,
}

/// On which terms somebody has to agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub approvers: u32,
    pub allow_self: bool,
    pub expires: Vec<String>,
}

impl ApprovalPolicy {
    /// Whether it asks for agreement before such an operation of such a change.
    pub fn asks(&self, change: ChangeKind, operation: OperationKind) -> bool {
        let plain = match operation {
            OperationKind::Create => self.create,
            OperationKind::Update => self.update,
            OperationKind::Destroy => self.destroy,
            _ => return false,
        };
        let need = match change {
            ChangeKind::Pool => self.pool,
            ChangeKind::Repair => self.drift.or(plain),
            // Agreed to before it was merged.
            ChangeKind::Proposal if operation == OperationKind::Update => None,
            _ => plain,
        };
        need == Some(Need::Required)
    }

    pub fn asks_for_destruction(&self) -> bool {
        self.destroy == Some(Need::Required)
    }
}

/// The strictest of all that ask: most approvers, and oneself only where each of them allows it.
pub fn strictest<'a>(asking: impl IntoIterator<Item = &'a ApprovalPolicy>) -> Option<Terms> {
    asking.into_iter().fold(None, |terms: Option<Terms>, policy| {
        let approvers = policy.approvers.unwrap_or(1).max(1);
        let allow_self = policy.allow_self.unwrap_or(false);
        let mut terms = terms.unwrap_or(Terms { approvers: 1, allow_self: true, expires: vec![] });
        terms.approvers = terms.approvers.max(approvers);
        terms.allow_self &= allow_self;
        terms.expires.extend(policy.expires.clone());
        Some(terms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> ApprovalPolicy {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn the_strictest_wins() {
        let lax = policy(r#"{"create":"required","allowSelf":true}"#);
        let strict = policy(r#"{"create":"required","approvers":2,"expires":"72h"}"#);
        assert_eq!(strictest([]), None);
        let terms = strictest([&lax, &strict]).unwrap();
        assert_eq!((terms.approvers, terms.allow_self), (2, false));
        assert_eq!(terms.expires, ["72h"]);
        assert!(strictest([&lax]).unwrap().allow_self);
    }

    #[test]
    fn a_repair_is_a_change_unless_it_is_said_otherwise() {
        let updates = policy(r#"{"update":"required"}"#);
        assert!(updates.asks(ChangeKind::Repair, OperationKind::Update));
        assert!(!updates.asks(ChangeKind::Repair, OperationKind::Create));
        assert!(!updates.asks(ChangeKind::Pool, OperationKind::Update));
        let free = policy(r#"{"update":"required","drift":"none"}"#);
        assert!(!free.asks(ChangeKind::Repair, OperationKind::Update));
        assert!(free.asks(ChangeKind::Deploy, OperationKind::Update));
    }

    #[test]
    fn what_was_agreed_to_as_a_proposal_is_not_asked_for_again_but_a_replacement_is() {
        let all = policy(r#"{"create":"required","update":"required","destroy":"required"}"#);
        assert!(!all.asks(ChangeKind::Proposal, OperationKind::Update));
        assert!(all.asks(ChangeKind::Proposal, OperationKind::Destroy));
    }
}
