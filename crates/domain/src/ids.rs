//! One newtype per entity over UUIDv7, written `prefix_` and 26 characters of Crockford's base 32.
//!
//! The text form sorts like the bytes, so an id is its own cursor. Ids are made by an [`Ids`] source that
//! is handed in, never out of thin air: tests and simulation own them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use uuid::Uuid;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TEXT_LENGTH: usize = 26;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {entity} id (it looks like `{prefix}_` and 26 letters and digits)")]
pub struct InvalidId {
    pub text: String,
    pub entity: &'static str,
    pub prefix: &'static str,
}

fn encode(id: Uuid) -> String {
    let value = id.as_u128();
    (0..TEXT_LENGTH).rev().map(|i| ALPHABET[((value >> (i * 5)) & 31) as usize] as char).collect()
}

fn decode(text: &str) -> Option<Uuid> {
    if text.len() != TEXT_LENGTH || text.as_bytes()[0] > b'7' {
        return None;
    }
    let value = text.bytes().try_fold(0u128, |value, byte| {
        let digit = ALPHABET.iter().position(|&a| a == byte)?;
        Some(value << 5 | digit as u128)
    })?;
    Some(Uuid::from_u128(value))
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal $entity:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub fn bytes(&self) -> Vec<u8> {
                self.0.as_bytes().to_vec()
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix(concat!($prefix, "_")).and_then(decode).map(Self).ok_or_else(|| InvalidId {
                    text: text.chars().take(80).collect(),
                    entity: $entity,
                    prefix: $prefix,
                })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

ids! {
    OrganisationId = "org" "organisation";
    EnvironmentId = "env" "environment";
    ApplicationId = "app" "application";
    TemplateId = "tpl" "template";
    TemplateVersionId = "tv" "template version";
    RuleId = "rule" "rule";
    ResourceId = "res" "resource";
    /// A row in `changes`. Deployments are its best known kind, hence the prefix.
    ChangeId = "dep" "deployment";
    OperationId = "op" "operation";
    WorkerId = "wrk" "worker";
    TokenId = "tok" "token";
    PrincipalId = "usr" "principal";
    EventId = "ev" "event";
    PoolId = "pool" "pool";
    IntegrationId = "int" "integration";
    ApprovalId = "apr" "approval";
    ProposalId = "prop" "proposal";
    /// A state of somebody's own terraform.
    WorkspaceId = "wsp" "workspace";
    /// A row whose lock serialises planning: everything, one organisation, or one environment.
    DomainId = "dom" "planning domain";
}

/// Where new ids come from.
pub trait Ids: Send + Sync {
    fn next(&self) -> Uuid;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_goes_both_ways_and_sorts_like_the_bytes() {
        let (small, large) = (ResourceId(Uuid::from_u128(41)), ResourceId(Uuid::from_u128(u128::MAX)));
        for id in [small, large] {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().len(), "res_".len() + TEXT_LENGTH);
        }
        assert!(small.to_string() < large.to_string());
    }

    #[test]
    fn another_prefix_another_length_or_an_overflow_is_refused() {
        for text in ["app_00000000000000000000000000", "res_0", "res_zzzzzzzzzzzzzzzzzzzzzzzzzz", "", "res_é"]
        {
            assert!(text.parse::<ResourceId>().is_err(), "{text}");
        }
    }
}
