//! Templates and the rules that choose between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_score::Scope;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    approval::ApprovalPolicy,
    ids::{TemplateId, TemplateVersionId},
    nearest,
    needs::Needs,
    schema::Schema,
    sharing::SharingTerms,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionState {
    Preview,
    #[default]
    Active,
    /// Warns on new use.
    Deprecated,
    /// Refuses new use.
    Disabled,
}

/// How a type is made. What is in here never changes once it is applied, but for `state`.
#[derive(Clone, Debug)]
pub struct TemplateVersion {
    pub id: TemplateVersionId,
    pub template: TemplateId,
    pub name: String,
    pub kind: String,
    pub class: String,
    pub version: semver::Version,
    pub state: VersionState,
    pub manager: String,
    pub config: Map<String, Value>,
    pub schema: Arc<Schema>,
    /// Declared outputs and whether each is sensitive; `None` = only known once made.
    pub outputs: Option<BTreeMap<String, bool>>,
    pub can_observe: bool,
    pub can_plan: bool,
    /// Make the new one before the old one goes.
    pub create_first: bool,
    /// Further resources that each of its own needs, as a Score file would ask for them.
    pub requires: BTreeMap<String, conductor_score::Resource>,
    pub sharing: SharingTerms,
    /// Stays when nobody uses it any more.
    pub retain: bool,
    /// How long a destruction waits for somebody to think again, in microseconds.
    pub grace: i64,
    pub content: Option<String>,
    /// What its operations are handed, by name or provider.
    pub integrations: Vec<String>,
    /// What its operations ask of a worker.
    pub needs: Needs,
    /// Who has to agree to what is done with it.
    pub approval: ApprovalPolicy,
    /// What is done when something made by it is not what is on record.
    pub drift_policy: Option<String>,
    /// When to look whether that is so.
    pub drift_schedule: Option<String>,
    /// Of which resources each of its own is a child.
    pub parents: Vec<ParentTerms>,
    /// What each of its own has, and its children may get.
    pub tags: BTreeMap<String, Trait>,
    pub configs: BTreeMap<String, Trait>,
}

/// Parents of a type, and how many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParentTerms {
    #[serde(rename = "type")]
    pub kind: String,
    pub min: u64,
    pub max: Option<u64>,
}

impl<'de> Deserialize<'de> for ParentTerms {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Name(String),
            Terms(Terms),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Terms {
            #[serde(rename = "type")]
            kind: String,
            #[serde(default = "one")]
            min: u64,
            max: Option<u64>,
        }
        fn one() -> u64 {
            1
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Name(kind) => Self { kind, min: 1, max: None },
            Written::Terms(Terms { kind, min, max }) => Self { kind, min, max },
        })
    }
}

/// A value, and whether children get it as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trait {
    pub value: Value,
    #[serde(rename = "inherited_by_children")]
    pub inherited_by_children: bool,
}

impl<'de> Deserialize<'de> for Trait {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            value: Value,
            #[serde(default, alias = "inheritedByChildren")]
            inherited_by_children: bool,
        }
        let value = Value::deserialize(deserializer)?;
        match value.get("value").is_some() {
            true => {
                let written: Written = serde_json::from_value(value).map_err(serde::de::Error::custom)?;
                Ok(Self { value: written.value, inherited_by_children: written.inherited_by_children })
            }
            false => Ok(Self { value, inherited_by_children: false }),
        }
    }
}

/// Runs nothing: what it makes is there as soon as it is recorded.
pub const NO_MANAGER: &str = "none";

impl TemplateVersion {
    /// Nothing is provisioned for its resources.
    pub fn is_abstract(&self) -> bool {
        self.manager == NO_MANAGER
    }

    pub fn label(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Parameters that follow from what the template requires, not from what was asked for.
    pub fn derived(&self) -> BTreeSet<String> {
        if self.requires.is_empty() { BTreeSet::new() } else { self.schema.placeholder_defaults() }
    }
}

/// What a rule asks of a requirement. Each field that is given weighs a power of two, so that no sum of
/// weaker ones ever beats a stronger one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Criteria {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub template: String,
    pub version: Option<semver::Version>,
    pub criteria: Criteria,
}

/// Who asks: what rules look at.
#[derive(Clone, Debug)]
pub struct Asker<'a> {
    pub kind: &'a str,
    pub class: &'a str,
    pub environment: &'a str,
    pub environment_type: &'a str,
    pub application: &'a str,
    pub labels: &'a BTreeMap<String, String>,
}

impl Criteria {
    fn fields(&self) -> [(&Option<String>, u32); 4] {
        [(&self.environment_type, 1), (&self.application, 2), (&self.environment, 4), (&self.class, 8)]
    }

    pub fn weight(&self) -> u32 {
        let fields =
            self.fields().iter().filter(|(field, _)| field.is_some()).map(|(_, weight)| weight).sum::<u32>();
        fields + 16 * self.labels.len() as u32
    }

    pub fn fits(&self, asker: &Asker<'_>) -> bool {
        let same =
            |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|wanted| wanted == actual);
        self.kind == asker.kind
            && same(&self.class, asker.class)
            && same(&self.environment, asker.environment)
            && same(&self.environment_type, asker.environment_type)
            && same(&self.application, asker.application)
            && self.labels.iter().all(|(key, value)| asker.labels.get(key) == Some(value))
    }

    /// Whether one requirement could fit both with neither the stronger.
    pub fn ties_with(&self, other: &Self) -> bool {
        let contradict = self.fields().iter().zip(other.fields()).any(
            |((mine, _), (theirs, _))| matches!((mine, theirs), (Some(mine), Some(theirs)) if mine != theirs),
        );
        let labels_contradict = self
            .labels
            .iter()
            .any(|(key, value)| other.labels.get(key).is_some_and(|theirs| theirs != value));
        self.kind == other.kind && self.weight() == other.weight() && !contradict && !labels_contradict
    }
}

/// The template version that serves a requirement, and why.
#[derive(Clone, Debug)]
pub struct Choice {
    pub version: Arc<TemplateVersion>,
    /// The rule named a version, so resources already made follow it.
    pub pinned: bool,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NoTemplate {
    pub message: String,
    pub suggestion: Option<String>,
}

/// Chooses among the versions of the asked type; `types` are all types there are, for suggestions.
pub fn choose_template(
    asker: &Asker<'_>,
    versions: &[Arc<TemplateVersion>],
    rules: &[Rule],
    types: &[String],
) -> Result<Choice, NoTemplate> {
    let best =
        rules.iter().filter(|rule| rule.criteria.fits(asker)).max_by_key(|rule| rule.criteria.weight());
    if let Some(rule) = best {
        let version = newest(versions, &rule.template, rule.version.as_ref()).ok_or_else(|| NoTemplate {
            message: format!(
                "rule `{}` names template `{}`, which has no usable version",
                rule.name, rule.template
            ),
            suggestion: Some("apply a version of it that is not disabled, or change the rule".into()),
        })?;
        let reason = format!("rule `{}` chose {}", rule.name, version.label());
        return Ok(Choice { version, pinned: rule.version.is_some(), reason });
    }
    let mut names: Vec<&str> = versions
        .iter()
        .filter(|version| version.class == asker.class && version.state != VersionState::Disabled)
        .map(|version| version.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => Err(nothing_serves(asker, versions, types)),
        [name] => {
            let version =
                newest(versions, name, None).ok_or_else(|| nothing_serves(asker, versions, types))?;
            let reason = format!("{} is the only template for type `{}`", version.label(), asker.kind);
            Ok(Choice { version, pinned: false, reason })
        }
        several => Err(NoTemplate {
            message: format!(
                "{} templates serve type `{}` class `{}`: {}",
                several.len(),
                asker.kind,
                asker.class,
                several.join(", ")
            ),
            suggestion: Some("write a rule that says which one serves where".into()),
        }),
    }
}

fn nothing_serves(asker: &Asker<'_>, versions: &[Arc<TemplateVersion>], types: &[String]) -> NoTemplate {
    if versions.is_empty() {
        let suggestion = match nearest(asker.kind, types.iter().map(String::as_str)) {
            Some(close) => format!("did you mean `{close}`?"),
            None if types.is_empty() => "apply a template for it: conductor apply -f catalog".into(),
            None => format!("the types there are: {}", types.join(", ")),
        };
        return NoTemplate {
            message: format!("no template makes type `{}`", asker.kind),
            suggestion: Some(suggestion),
        };
    }
    let mut classes: Vec<&str> = versions
        .iter()
        .filter(|version| version.state != VersionState::Disabled)
        .map(|version| version.class.as_str())
        .collect();
    classes.sort_unstable();
    classes.dedup();
    let suggestion = match classes.as_slice() {
        [] => "every version of it is disabled".to_owned(),
        classes => format!("there is class {}", classes.join(", ")),
    };
    NoTemplate {
        message: format!("no template makes type `{}` of class `{}`", asker.kind, asker.class),
        suggestion: Some(suggestion),
    }
}

/// The named version, or the newest one that may be used anew.
fn newest(
    versions: &[Arc<TemplateVersion>],
    name: &str,
    wanted: Option<&semver::Version>,
) -> Option<Arc<TemplateVersion>> {
    let usable =
        |version: &&Arc<TemplateVersion>| version.name == name && version.state != VersionState::Disabled;
    match wanted {
        Some(wanted) => versions.iter().filter(usable).find(|version| version.version == *wanted).cloned(),
        None => versions
            .iter()
            .filter(usable)
            .filter(|version| version.state != VersionState::Preview)
            .max_by(|a, b| a.version.cmp(&b.version))
            .cloned(),
    }
}

/// How wide a resource reaches.
pub fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Environment => "environment",
        Scope::Organisation => "organisation",
        Scope::Global => "global",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn criteria(json: serde_json::Value) -> Criteria {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn one_stronger_field_beats_all_weaker_ones_together() {
        let class = criteria(serde_json::json!({ "type": "db", "class": "large" }));
        let rest = criteria(serde_json::json!({
            "type": "db", "environment": "prod", "environmentType": "production", "application": "web"
        }));
        assert!(class.weight() > rest.weight());
    }

    #[test]
    fn rules_tie_only_when_one_requirement_could_fit_both() {
        let dev = criteria(serde_json::json!({ "type": "db", "environment": "dev" }));
        let prod = criteria(serde_json::json!({ "type": "db", "environment": "prod" }));
        let web = criteria(serde_json::json!({ "type": "db", "application": "web" }));
        assert!(dev.ties_with(&dev.clone()));
        assert!(!dev.ties_with(&prod));
        assert!(!dev.ties_with(&web));
    }
}
