//! After a run that was cut off: what its journal says was made, and the stored state does not know.

use std::collections::{BTreeMap, BTreeSet};

use conductor_domain::work::{Failure, Level};
use serde_json::Value;

use super::{session::Session, state::State, with_file};

/// What may exist without being recorded.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Unrecorded {
    /// Made, by address, with the id the provider gave.
    made: BTreeMap<String, String>,
    /// Begun, and nobody knows how it ended.
    begun: BTreeSet<String>,
}

impl Unrecorded {
    pub fn compare(journal: &[Value], state: &State) -> Self {
        let mut unrecorded = Self::default();
        for entry in journal {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let address = text("address").to_owned();
            match (text("type"), text("action")) {
                ("apply_start", "create") => drop(unrecorded.begun.insert(address)),
                ("apply_complete", "create") => {
                    unrecorded.begun.remove(&address);
                    match entry["idValue"].as_str() {
                        Some(id) => drop(unrecorded.made.insert(address, id.to_owned())),
                        None => drop(unrecorded.begun.insert(address)),
                    }
                }
                ("apply_errored", "create") => drop(unrecorded.begun.remove(&address)),
                ("apply_complete", "delete") => {
                    unrecorded.made.remove(&address);
                    unrecorded.begun.remove(&address);
                }
                _ => {}
            }
        }
        unrecorded.made.retain(|address, _| !state.addresses.contains(address));
        unrecorded.begun.retain(|address| !state.addresses.contains(address));
        unrecorded
    }

    pub fn is_empty(&self) -> bool {
        self.made.is_empty() && self.begun.is_empty()
    }

    /// Takes into the state what the provider lets be taken in; returns what may be left behind, exactly.
    pub async fn recover(&self, session: &Session<'_>) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for (address, id) in &self.made {
            let args = with_file(&["import"], &[address, id]);
            match session.stream(&args, &[0]).await {
                Ok(_) => {
                    let text = format!("{address}: made by a run that was cut off, taken in as {id}");
                    session.job.log(Level::Info, &text);
                }
                Err(failure) => {
                    let why = failure.message.lines().next().unwrap_or_default().to_owned();
                    session.job.log(Level::Warn, &format!("{address}: cannot be taken in: {why}"));
                    left.push(format!("{address} (id {id})"));
                }
            }
        }
        left.extend(self.begun.iter().map(|address| format!("{address} (it was being made)")));
        if !left.is_empty() {
            session.job.log(Level::Warn, &format!("possibly left behind: {}", left.join(", ")));
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(kind: &str, action: &str, address: &str, id: Option<&str>) -> Value {
        json!({ "type": kind, "action": action, "address": address, "idKey": "id", "idValue": id })
    }

    #[test]
    fn only_what_the_state_does_not_know_is_unrecorded() {
        let journal = [
            entry("apply_start", "create", "a.known", None),
            entry("apply_complete", "create", "a.known", Some("1")),
            entry("apply_start", "create", "a.lost", None),
            entry("apply_complete", "create", "a.lost", Some("2")),
            entry("apply_start", "create", "a.flying", None),
            entry("apply_start", "create", "a.refused", None),
            entry("apply_errored", "create", "a.refused", None),
            entry("apply_complete", "create", "a.gone", Some("3")),
            entry("apply_complete", "delete", "a.gone", None),
        ];
        let state = State { addresses: ["a.known".to_owned()].into(), ..State::default() };
        let unrecorded = Unrecorded::compare(&journal, &state);
        assert_eq!(unrecorded.made, BTreeMap::from([("a.lost".to_owned(), "2".to_owned())]));
        assert_eq!(unrecorded.begun, BTreeSet::from(["a.flying".to_owned()]));
        assert!(Unrecorded::compare(&[], &state).is_empty());
    }
}
