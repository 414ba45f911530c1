//! On which terms resources are shared: what a template permits, and what a match goes by.

use std::collections::BTreeSet;

use conductor_score::{Scope, SharingWord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::expr::Params;

/// What a template says about sharing what it makes. A Score file may only narrow it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SharingTerms {
    /// For a requirement that says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<SharingWord>,
    /// Every way of asking is permitted where this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permitted: Option<Vec<SharingWord>>,
    /// The widest there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_on: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_consumers: Option<u32>,
}

impl SharingTerms {
    /// Whether a way of asking is permitted; `shared` stands for every way of sharing.
    pub fn permits(&self, way: SharingWord) -> bool {
        self.permitted.as_ref().is_none_or(|permitted| {
            permitted.contains(&way)
                || way != SharingWord::Dedicated && permitted.contains(&SharingWord::Shared)
        })
    }
}

/// As it is written.
pub fn sharing_word(word: SharingWord) -> &'static str {
    match word {
        SharingWord::Dedicated => "dedicated",
        SharingWord::Shared => "shared",
        SharingWord::ByName => "by-name",
        SharingWord::ByParams => "by-params",
        SharingWord::Always => "always",
    }
}

/// The parameters that must be equal for one resource to serve two requirements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchOn {
    /// None: the oldest is as good as any.
    Nothing,
    All,
    /// Sorted, each once.
    Named(Vec<String>),
}

impl MatchOn {
    pub fn named(names: impl IntoIterator<Item = String>) -> Self {
        Self::Named(names.into_iter().collect::<BTreeSet<_>>().into_iter().collect())
    }

    /// How a set of parameters is known to the index.
    pub fn text(&self) -> String {
        match self {
            Self::Nothing => "-".to_owned(),
            Self::All => "*".to_owned(),
            Self::Named(names) => Value::from(names.clone()).to_string(),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "-" => Some(Self::Nothing),
            "*" => Some(Self::All),
            names => serde_json::from_str(names).ok().map(Self::Named),
        }
    }

    /// What two parameter sets must agree in, as one text. `derived` ones follow from the template and say nothing
    /// about what was asked for. Absent is the same as null.
    pub fn material(&self, params: &Params, derived: &BTreeSet<String>) -> String {
        let stored = |name: &String| params.get(name).map_or(Value::Null, |expr| expr.to_json());
        let picked: Map<String, Value> = match self {
            Self::Nothing => Map::new(),
            Self::All => params
                .keys()
                .filter(|name| !derived.contains(*name))
                .map(|name| (name.clone(), stored(name)))
                .filter(|(_, value)| !value.is_null())
                .collect(),
            Self::Named(names) => names.iter().map(|name| (name.clone(), stored(name))).collect(),
        };
        Value::Object(picked).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::expr::params_from_json;

    #[test]
    fn what_a_match_goes_by_is_read_back() {
        for on in [MatchOn::Nothing, MatchOn::All, MatchOn::named(["b".into(), "a".into(), "b".into()])] {
            assert_eq!(MatchOn::parse(&on.text()), Some(on));
        }
    }

    #[test]
    fn absent_and_null_are_the_same_and_other_parameters_do_not_count() {
        let none = BTreeSet::new();
        let one = params_from_json(&json!({ "size": "small", "zone": null }));
        let two = params_from_json(&json!({ "size": "small", "label": "x" }));
        let on = MatchOn::named(["size".into(), "zone".into()]);
        assert_eq!(on.material(&one, &none), on.material(&two, &none));
        assert_ne!(MatchOn::All.material(&one, &none), MatchOn::All.material(&two, &none));
        let derived = BTreeSet::from(["label".to_owned()]);
        assert_eq!(MatchOn::All.material(&one, &derived), MatchOn::All.material(&two, &derived));
    }

    #[test]
    fn shared_stands_for_every_way_of_sharing() {
        let terms = |permitted| SharingTerms { permitted, ..SharingTerms::default() };
        assert!(terms(None).permits(SharingWord::Always));
        assert!(terms(Some(vec![SharingWord::Shared])).permits(SharingWord::ByName));
        assert!(!terms(Some(vec![SharingWord::Shared])).permits(SharingWord::Dedicated));
        assert!(!terms(Some(vec![SharingWord::ByName])).permits(SharingWord::Always));
    }
}
