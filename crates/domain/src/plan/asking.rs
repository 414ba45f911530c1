//! How one requirement asks for its resource: by which template, in which way, on which terms.

use std::sync::Arc;

use conductor_score::{
    DependencyKind, OnConflict, Position, Reference, Relationship, Scope, SharingPolicy, SharingWord,
};
use serde_json::{Map, Value};

use super::{
    Key, KeyTag, PlanError, PoolView, Problem, Snapshot, Want,
    resolve::{Ask, Fitting, Wanted, WantedDependency, referenced, refused},
};
use crate::{
    catalogue::{Asker, Choice, TemplateVersion, VersionState, choose_template, scope_word},
    condition::Condition,
    expr::{Expr, Params},
    ids::ResourceId,
    lifecycle::ErrorCode,
    nearest,
    sharing::{MatchOn, sharing_word},
};

/// What one entry of `resources` comes to.
pub(super) fn want(
    requirement: &str,
    resource: &conductor_score::Resource,
    snapshot: &Snapshot,
    warnings: &mut Vec<String>,
) -> Result<Wanted, PlanError> {
    let asking = Asking { requirement, resource, snapshot, path: format!("resources.{requirement}") };
    let choice = asking.choose()?;
    if choice.version.state == VersionState::Deprecated {
        warnings.push(format!("{}: template {} is deprecated", asking.path, choice.version.label()));
    }
    let (ask, name) = asking.way(&choice.version)?;
    let raw = match &ask {
        Ask::Pooled { pool, .. } => asking.as_the_pool_makes_them(pool)?,
        _ => resource.params.clone().unwrap_or_default(),
    };
    let mut depends_on: Vec<WantedDependency> = resource
        .sharing
        .depends_on
        .iter()
        .map(|d| WantedDependency { requirement: d.name.clone(), kind: d.kind, relationship: d.relationship })
        .collect();
    let short = resource.sharing.uses_dialect();
    for name in referenced(&Value::Object(raw.clone()), short) {
        match depends_on.iter_mut().find(|dependency| dependency.requirement == name) {
            Some(dependency) if dependency.kind == DependencyKind::Weak => {
                dependency.kind = DependencyKind::Output
            }
            Some(_) => {}
            None => depends_on.push(WantedDependency {
                requirement: name,
                kind: DependencyKind::Output,
                relationship: Relationship::Requires,
            }),
        }
    }
    Ok(Wanted {
        requirement: requirement.to_owned(),
        class: asking.class().to_owned(),
        asks_params: resource.params.is_some() || matches!(ask, Ask::Pooled { .. }),
        ask,
        name,
        pinned: choice.pinned,
        chosen_because: choice.reason,
        version: choice.version,
        raw,
        short,
        depends_on,
        on_conflict: resource.sharing.on_conflict.unwrap_or(OnConflict::Fail),
        alias: resource.sharing.alias.clone(),
        set: Map::new(),
        parents: vec![],
        at: Some(resource.at),
    })
}

/// One entry of `resources`, and who asks.
struct Asking<'a> {
    requirement: &'a str,
    resource: &'a conductor_score::Resource,
    snapshot: &'a Snapshot,
    path: String,
}

impl Asking<'_> {
    fn problem(&self, message: String, suggestion: Option<String>) -> PlanError {
        self.problem_at("", message, suggestion)
    }

    fn problem_at(&self, below: &str, message: String, suggestion: Option<String>) -> PlanError {
        let path = format!("{}{below}", self.path);
        refused(vec![Problem { path, message, suggestion, at: Some(self.resource.at) }])
    }

    fn class(&self) -> &str {
        self.resource.class.as_deref().unwrap_or("default")
    }

    /// The template version that serves it: a pool's own, or the rules'.
    fn choose(&self) -> Result<Choice, PlanError> {
        let snapshot = self.snapshot;
        if !snapshot.kinds.contains(&self.resource.kind) {
            return Err(PlanError::Need(vec![Want::Type(self.resource.kind.clone())]));
        }
        if let Some(pool) = self.pool()? {
            let version = snapshot.versions.get(&pool.version).cloned();
            let Some(version) = version else {
                return Err(PlanError::Need(vec![Want::Pool(pool.name.clone())]));
            };
            let (kind, class) = (&self.resource.kind, self.class());
            if version.kind != *kind || version.class != class && self.resource.class.is_some() {
                let message = format!(
                    "pool `{}` holds {} of class {}, not {kind} of class {class}",
                    pool.name, version.kind, version.class
                );
                return Err(self.problem_at(".pool", message, Some("name another pool".into())));
            }
            let reason = format!("pool `{}` is made with {}", pool.name, version.label());
            return Ok(Choice { version, pinned: false, reason });
        }
        let asker = Asker {
            kind: &self.resource.kind,
            class: self.class(),
            environment: &snapshot.environment.name,
            environment_type: &snapshot.environment.kind,
            application: &snapshot.application.name,
            labels: &snapshot.application.labels,
        };
        let versions = snapshot.versions_of(&self.resource.kind);
        choose_template(&asker, &versions, &snapshot.rules, &snapshot.types)
            .map_err(|error| self.problem(error.message, error.suggestion))
    }

    /// The pool it names.
    fn pool(&self) -> Result<Option<Arc<PoolView>>, PlanError> {
        let Some(name) = &self.resource.sharing.pool else { return Ok(None) };
        match self.snapshot.pools.get(name) {
            None => Err(PlanError::Need(vec![Want::Pool(name.clone())])),
            Some(Some(pool)) => Ok(Some(pool.clone())),
            Some(None) => {
                let known = &self.snapshot.pool_names;
                let suggestion = match nearest(name, known.iter().map(String::as_str)) {
                    Some(close) => format!("did you mean `{close}`?"),
                    None if known.is_empty() => "apply a document of kind Pool first".to_owned(),
                    None => format!("there are {}", known.join(", ")),
                };
                let environment = &self.snapshot.environment.name;
                let message = format!("there is no pool `{name}` in environment `{environment}`");
                Err(self.problem_at(".pool", message, Some(suggestion)))
            }
        }
    }

    fn key(&self, tag: KeyTag, scope: Scope, name: String) -> Key {
        let domain = self.snapshot.domain(scope);
        Key { domain, kind: self.resource.kind.clone(), class: self.class().to_owned(), tag, name }
    }

    fn dedicated_key(&self) -> Key {
        let name = format!("{}/{}", self.snapshot.application.id, self.requirement);
        self.key(KeyTag::Dedicated, Scope::Environment, name)
    }

    /// How it asks, and the name a new one gets; what a template does not permit is refused.
    fn way(&self, version: &TemplateVersion) -> Result<(Ask, String), PlanError> {
        let sharing = &self.resource.sharing;
        if let Some(pool) = self.pool()? {
            return Ok((Ask::Pooled { pool, unless: None }, String::new()));
        }
        if let Some(Reference::Existing { id }) = &sharing.reference {
            let id = existing(id, self.snapshot, &self.path, self.resource.at)?;
            return Ok((Ask::Existing(id), self.requirement.to_owned()));
        }
        let says_nothing =
            sharing.reference.is_none() && sharing.matching.is_none() && self.resource.id.is_none();
        let word = match &sharing.matching {
            Some(matching) if matching.policy == SharingPolicy::Dedicated => Some(SharingWord::Dedicated),
            Some(_) => Some(SharingWord::ByParams),
            None => sharing.sharing.or(version.sharing.default.filter(|_| says_nothing)),
        };
        let (word, ask, name) = match (&sharing.reference, word, &self.resource.id) {
            (Some(Reference::Shared { name, scope }), ..) => {
                let scope = scope.unwrap_or(Scope::Environment);
                self.within_scope(version, scope)?;
                (SharingWord::ByName, Ask::Keyed(self.key(KeyTag::Shared, scope, name.clone())), name.clone())
            }
            (None, Some(SharingWord::ByName), _) => {
                let name = self.requirement.to_owned();
                let key = self.key(KeyTag::Shared, Scope::Environment, name.clone());
                (SharingWord::ByName, Ask::Keyed(key), name)
            }
            (None, Some(word @ (SharingWord::Shared | SharingWord::ByParams | SharingWord::Always)), _) => {
                (word, Ask::Fitting(self.fitting(word, version)?), String::new())
            }
            (None, None, Some(id)) => {
                let key = self.key(KeyTag::Shared, Scope::Environment, id.clone());
                (SharingWord::ByName, Ask::Keyed(key), id.clone())
            }
            _ => {
                let name = format!("{}-{}", self.snapshot.application.name, self.requirement);
                let key = self.dedicated_key();
                let ask = match self.auto_pool(version) {
                    Some(pool) => Ask::Pooled { pool, unless: Some(key) },
                    None => Ask::Keyed(key),
                };
                (SharingWord::Dedicated, ask, name)
            }
        };
        if !version.sharing.permits(word) {
            let permitted: Vec<&str> =
                version.sharing.permitted.iter().flatten().map(|word| sharing_word(*word)).collect();
            let message = format!("template {} does not permit `{}`", version.label(), sharing_word(word));
            return Err(self.problem(message, Some(format!("it permits {}", permitted.join(", ")))));
        }
        Ok((ask, name))
    }

    fn within_scope(&self, version: &TemplateVersion, scope: Scope) -> Result<(), PlanError> {
        match version.sharing.scope.filter(|widest| scope > *widest) {
            None => Ok(()),
            Some(widest) => {
                let message = format!(
                    "template {} is shared within one {} at most, not {}",
                    version.label(),
                    scope_word(widest),
                    scope_word(scope)
                );
                Err(self.problem(message, Some(format!("say `scope: {}`", scope_word(widest)))))
            }
        }
    }

    /// What must agree; the template's own terms are the widest there are.
    fn fitting(&self, word: SharingWord, version: &TemplateVersion) -> Result<Fitting, PlanError> {
        let terms = &version.sharing;
        let Some(matching) = &self.resource.sharing.matching else {
            let on = match word {
                SharingWord::Always => MatchOn::Nothing,
                _ if terms.match_on.is_empty() => MatchOn::All,
                _ => MatchOn::named(terms.match_on.iter().cloned()),
            };
            return Ok(Fitting {
                scope: Scope::Environment,
                on,
                max_consumers: terms.max_consumers,
                when: None,
            });
        };
        self.within_scope(version, matching.scope)?;
        let given = self.resource.params.as_ref();
        let known = |name: &String| {
            given.is_some_and(|params| params.contains_key(name)) || version.schema.declares(name)
        };
        if let Some(unknown) = matching.match_on.iter().find(|name| !known(name)) {
            let names = given.into_iter().flat_map(|params| params.keys().map(String::as_str));
            let names: Vec<&str> = names.chain(version.schema.names()).collect();
            let suggestion = match nearest(unknown, names.iter().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None if names.is_empty() => "name a parameter that `params` gives".to_owned(),
                None => format!("there are {}", names.join(", ")),
            };
            let message = format!("`matchOn` names `{unknown}`, which is no parameter of this resource");
            return Err(self.problem_at(".matching.matchOn", message, Some(suggestion)));
        }
        let on = match (matching.match_on.is_empty(), terms.match_on.is_empty()) {
            (true, true) => MatchOn::All,
            _ => MatchOn::named(matching.match_on.iter().chain(&terms.match_on).cloned()),
        };
        let when = match (&matching.when, matching.policy) {
            (Some(text), _) => Some(Condition::read(text).map_err(|error| {
                let message = format!("`when` is no condition: {error}");
                let suggestion = "write CEL over resource, application and environment, for example \
                                  `application.labels.team == 'blue'`";
                self.problem_at(".matching.when", message, Some(suggestion.into()))
            })?),
            (None, SharingPolicy::Conditional) => {
                let message = "`sharingPolicy: conditional` needs a condition".to_owned();
                let suggestion = "add `when:` with a CEL expression, or say `sharingPolicy: shared`";
                return Err(self.problem_at(".matching", message, Some(suggestion.into())));
            }
            (None, _) => None,
        };
        let max_consumers = [matching.max_consumers, terms.max_consumers].into_iter().flatten().min();
        Ok(Fitting { scope: matching.scope, on, max_consumers, when })
    }

    /// A pool that makes exactly what is asked for, and serves unasked.
    fn auto_pool(&self, version: &TemplateVersion) -> Option<Arc<PoolView>> {
        let asked = version.schema.with_defaults(literal(&self.resource.params.clone().unwrap_or_default()));
        let pools = self.snapshot.auto_pools.iter();
        let mut fitting = pools.filter(|pool| {
            pool.version == version.id && version.schema.with_defaults(literal(&pool.parameters)) == asked
        });
        fitting.next().cloned()
    }

    /// The pool's own parameters; what the file gives must say the same.
    fn as_the_pool_makes_them(&self, pool: &PoolView) -> Result<Map<String, Value>, PlanError> {
        let given = self.resource.params.iter().flatten();
        let differs = given.into_iter().find(|(name, value)| {
            let defaults = self
                .snapshot
                .versions
                .get(&pool.version)
                .map(|version| version.schema.with_defaults(literal(&pool.parameters)));
            defaults.and_then(|params| params.get(*name)?.known()).as_ref() != Some(value)
        });
        match differs {
            None => Ok(pool.parameters.clone()),
            Some((name, _)) => {
                let message = format!("pool `{}` makes them with its own `{name}`", pool.name);
                let suggestion = "take it out of `params`, or use another pool".to_owned();
                Err(self.problem_at(&format!(".params.{name}"), message, Some(suggestion)))
            }
        }
    }
}

pub(super) fn literal(params: &Map<String, Value>) -> Params {
    params.iter().map(|(name, value)| (name.clone(), Expr::Literal(value.clone()))).collect()
}

fn existing(id: &str, snapshot: &Snapshot, path: &str, at: Position) -> Result<ResourceId, PlanError> {
    let not_there = || PlanError::Refused {
        code: ErrorCode::NotFound,
        problems: vec![Problem {
            path: format!("{path}.reference.id"),
            message: format!("there is no resource `{id}`"),
            suggestion: Some("`conductor resources list` shows those there are".into()),
            at: Some(at),
        }],
    };
    if let Ok(id) = id.parse::<ResourceId>() {
        return match snapshot.resources.contains_key(&id) {
            true => Ok(id),
            false if snapshot.missing.contains(&id) => Err(not_there()),
            false => Err(PlanError::Need(vec![Want::Resource(id)])),
        };
    }
    match snapshot.external.get(id) {
        Some(Some(found)) => Ok(*found),
        Some(None) => Err(not_there()),
        None => Err(PlanError::Need(vec![Want::External(id.to_owned())])),
    }
}
