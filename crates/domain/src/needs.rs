//! What an operation asks of a worker, and whether a worker has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use semver::{Version, VersionReq};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Which versions of a tool will do: `1.9.0` is that one, `1.9` any of it, `>=1.8, <2` a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedVersion {
    text: String,
    range: VersionReq,
}

impl WantedVersion {
    pub fn allows(&self, version: &Version) -> bool {
        self.range.matches(version)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version of a tool, nor a range: write `1.9.0`, `1.9` or `>=1.8, <2`")]
pub struct InvalidVersion(String);

impl FromStr for WantedVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let text = text.trim();
        let plain = text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains([',', '*', 'x']);
        let range = match (plain, text.parse::<Version>()) {
            (_, Ok(_)) => VersionReq::parse(&format!("={text}")),
            (true, Err(_)) => VersionReq::parse(&format!("~{text}")),
            (false, Err(_)) => VersionReq::parse(text),
        };
        let range = range.map_err(|_| InvalidVersion(text.chars().take(80).collect()))?;
        Ok(Self { text: text.to_owned(), range })
    }
}

impl fmt::Display for WantedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for WantedVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for WantedVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// What a template says about the workers it is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerTerms {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Networks it must reach.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub networks: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, WantedVersion>,
}

/// What an operation asks of a worker. Equal needs share a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    pub manager: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub networks: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, WantedVersion>,
    /// Credentials travel with it; workers of an earlier release would not take them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub integrations: bool,
    /// Goes to a worker with one of these as long as there is one; any other refuses it and says why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefers: BTreeMap<String, WantedVersion>,
}

/// What a worker has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Abilities {
    pub managers: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
    pub networks: BTreeSet<String>,
    pub tools: BTreeMap<String, Vec<Version>>,
    pub integrations: bool,
}

impl Abilities {
    fn has(&self, tool: &str, wanted: &WantedVersion) -> bool {
        self.tools.get(tool).is_some_and(|versions| versions.iter().any(|version| wanted.allows(version)))
    }
}

impl Needs {
    pub fn new(manager: &str, terms: &WorkerTerms) -> Self {
        let WorkerTerms { labels, networks, tools } = terms.clone();
        let manager = manager.to_owned();
        Self { manager, labels, networks, tools, integrations: false, prefers: BTreeMap::new() }
    }

    /// Only the manager.
    pub fn of(manager: &str) -> Self {
        Self::new(manager, &WorkerTerms::default())
    }

    pub fn met_by(&self, worker: &Abilities) -> bool {
        worker.managers.contains(&self.manager)
            && self.labels.iter().all(|(name, value)| worker.labels.get(name) == Some(value))
            && self.networks.is_subset(&worker.networks)
            && (worker.integrations || !self.integrations)
            && self.tools.iter().all(|(tool, wanted)| worker.has(tool, wanted))
    }

    /// Meets the needs and what is preferred as well.
    pub fn suits(&self, worker: &Abilities) -> bool {
        let preferred = || self.prefers.iter().any(|(tool, wanted)| worker.has(tool, wanted));
        self.met_by(worker) && (self.prefers.is_empty() || preferred())
    }

    /// As interned.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// `manager terraform, label region=eu, tofu >=1.8`.
impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manager {}", self.manager)?;
        for (name, value) in &self.labels {
            write!(f, ", label {name}={value}")?;
        }
        for network in &self.networks {
            write!(f, ", network {network}")?;
        }
        for (tool, wanted) in &self.tools {
            write!(f, ", {tool} {wanted}")?;
        }
        if self.integrations {
            f.write_str(", integrations")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allows(wanted: &str, version: &str) -> bool {
        wanted.parse::<WantedVersion>().unwrap().allows(&version.parse().unwrap())
    }

    #[test]
    fn a_version_is_that_one_a_part_of_it_any_and_a_range_a_range() {
        assert!(allows("1.9.0", "1.9.0") && !allows("1.9.0", "1.9.1"));
        assert!(allows("1.9", "1.9.7") && !allows("1.9", "1.10.0"));
        assert!(allows("1", "1.10.0") && !allows("1", "2.0.0"));
        assert!(allows(">=1.8", "1.10.6") && !allows(">=1.8", "1.7.9"));
        assert!(allows(">=1.8, <1.10", "1.9.3") && !allows(">=1.8, <1.10", "1.10.0"));
        for wrong in ["", "new", "1.9.0.1", ">>1"] {
            assert!(wrong.parse::<WantedVersion>().is_err(), "{wrong}");
        }
    }

    fn needs(terms: serde_json::Value) -> Needs {
        Needs::new("terraform", &serde_json::from_value(terms).unwrap())
    }

    #[test]
    fn every_need_must_be_met() {
        let worker: Abilities = serde_json::from_value(json!({
            "managers": ["terraform"], "labels": { "region": "eu", "gpu": "no" }, "networks": ["lab"],
            "tools": { "tofu": ["1.8.2", "1.10.6"] },
        }))
        .unwrap();
        for met in [
            json!({}),
            json!({ "labels": { "region": "eu" } }),
            json!({ "networks": ["lab"], "tools": { "tofu": "1.8" } }),
        ] {
            assert!(needs(met.clone()).met_by(&worker), "{met}");
        }
        for unmet in [
            json!({ "labels": { "region": "us" } }),
            json!({ "labels": { "rack": "1" } }),
            json!({ "networks": ["lab", "dmz"] }),
            json!({ "tools": { "tofu": "1.9" } }),
            json!({ "tools": { "terraform": ">=1" } }),
        ] {
            assert!(!needs(unmet.clone()).met_by(&worker), "{unmet}");
        }
        assert!(!Needs::of("helm").met_by(&worker));
        let handed = Needs { integrations: true, ..Needs::of("terraform") };
        assert!(
            !handed.met_by(&worker) && handed.met_by(&Abilities { integrations: true, ..worker.clone() })
        );
        let mut pinned = Needs::of("terraform");
        pinned.prefers = BTreeMap::from([("tofu".to_owned(), "1.9.0".parse().unwrap())]);
        assert!(pinned.met_by(&worker) && !pinned.suits(&worker));
    }

    #[test]
    fn plain_needs_are_written_as_they_always_were() {
        assert_eq!(Needs::of("command").text(), r#"{"manager":"command"}"#);
        let some = needs(json!({ "labels": { "region": "eu" }, "tools": { "tofu": ">=1.8" } }));
        assert_eq!(serde_json::from_str::<Needs>(&some.text()).unwrap(), some);
        assert_eq!(some.to_string(), "manager terraform, label region=eu, tofu >=1.8");
    }
}
