//! From an intent to a goal: what is wanted, by which template, in which order. One arm per kind of intent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use conductor_score::{
    DependencyKind, Manifest, Metadata, OnConflict, Position, Reference, Relationship, Scope, SharingWord,
    placeholder::{Part, Target, parse_text},
};
use serde_json::{Map, Value};

use crate::{
    catalogue::{Asker, TemplateVersion, VersionState, choose_template},
    ids::ResourceId,
    lifecycle::ErrorCode,
    plan::{Key, KeyTag, PlanError, Problem, ResourceView, Snapshot, Want, order::dependency_order},
    workload,
};

pub enum Intent<'a> {
    /// One application into one environment. `image` replaces `.` in the Score file.
    Deploy { manifest: &'a Manifest, image: Option<&'a str> },
    /// The application leaves the environment.
    Destroy,
}

/// How a requirement asks for its resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The living one of this key, or a new one.
    Keyed(Key),
    /// One that is there, linked and never owned.
    Existing(ResourceId),
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedDependency {
    pub requirement: String,
    pub kind: DependencyKind,
    pub relationship: Relationship,
}

#[derive(Clone, Debug)]
pub struct Wanted {
    pub requirement: String,
    pub ask: Ask,
    /// The name people see, when it is made now.
    pub name: String,
    pub version: Arc<TemplateVersion>,
    pub pinned: bool,
    pub chosen_because: String,
    pub raw: Map<String, Value>,
    /// Absent params take what is there.
    pub asks_params: bool,
    pub short: bool,
    pub depends_on: Vec<WantedDependency>,
    pub on_conflict: OnConflict,
    pub at: Option<Position>,
}

#[derive(Clone, Debug, Default)]
pub struct Goal {
    pub metadata: Option<Metadata>,
    /// Dependencies before dependents.
    pub wanted: Vec<Wanted>,
    pub workload: Option<Wanted>,
    pub warnings: Vec<String>,
}

pub fn resolve(intent: &Intent<'_>, snapshot: &Snapshot) -> Result<Goal, PlanError> {
    match intent {
        Intent::Deploy { manifest, image } => resolve_deploy(manifest, *image, snapshot),
        Intent::Destroy => Ok(Goal::default()),
    }
}

fn refused(problems: Vec<Problem>) -> PlanError {
    PlanError::Refused { code: ErrorCode::Invalid, problems }
}

fn resolve_deploy(manifest: &Manifest, image: Option<&str>, snapshot: &Snapshot) -> Result<Goal, PlanError> {
    let mut problems = Vec::new();
    let mut code = ErrorCode::Invalid;
    let mut needs = Vec::new();
    let mut goal = Goal { metadata: Some(manifest.metadata.clone()), ..Goal::default() };
    let mut wanted = BTreeMap::new();
    for (requirement, resource) in &manifest.resources {
        match want(requirement, resource, snapshot, &mut goal.warnings) {
            Ok(found) => drop(wanted.insert(requirement.as_str(), found)),
            Err(PlanError::Need(more)) => needs.extend(more),
            Err(PlanError::Refused { code: why, problems: mut more }) => {
                code = why;
                problems.append(&mut more);
            }
        }
    }
    if !problems.is_empty() {
        return Err(PlanError::Refused { code, problems });
    }
    if !needs.is_empty() {
        return Err(PlanError::Need(needs));
    }
    same_identity_agrees(&mut wanted)?;
    goal.wanted = in_order(wanted)?;
    goal.workload = want_workload(manifest, image, snapshot).map_err(refused)?;
    Ok(goal)
}

fn want(
    requirement: &str,
    resource: &conductor_score::Resource,
    snapshot: &Snapshot,
    warnings: &mut Vec<String>,
) -> Result<Wanted, PlanError> {
    let path = format!("resources.{requirement}");
    let problem = |message: String, suggestion: Option<String>| {
        refused(vec![Problem { path: path.clone(), message, suggestion, at: Some(resource.at) }])
    };
    let class = resource.class.as_deref().unwrap_or("default");
    let asker = Asker {
        kind: &resource.kind,
        class,
        environment: &snapshot.environment.name,
        environment_type: &snapshot.environment.kind,
        application: &snapshot.application.name,
        labels: &snapshot.application.labels,
    };
    let choice =
        choose_template(&asker, &snapshot.versions_of(&resource.kind), &snapshot.rules, &snapshot.types)
            .map_err(|error| problem(error.message, error.suggestion))?;
    if choice.version.state == VersionState::Deprecated {
        warnings.push(format!("{path}: template {} is deprecated", choice.version.label()));
    }
    let sharing = &resource.sharing;
    let unsupported = |what: &str| {
        problem(format!("`{what}` is not supported by this version"), Some("use `reference` or `id`".into()))
    };
    if sharing.matching.is_some() {
        return Err(unsupported("matching"));
    }
    if sharing.pool.is_some() {
        return Err(unsupported("pool"));
    }
    if sharing.alias.is_some() {
        return Err(unsupported("alias"));
    }
    let key = |tag: KeyTag, scope: Scope, name: String| {
        Ask::Keyed(Key {
            domain: snapshot.domain(scope),
            kind: resource.kind.clone(),
            class: class.to_owned(),
            tag,
            name,
        })
    };
    let dedicated = || {
        let name = format!("{}/{requirement}", snapshot.application.id);
        (
            key(KeyTag::Dedicated, Scope::Environment, name),
            format!("{}-{requirement}", snapshot.application.name),
        )
    };
    let shared = |name: &str, scope: Scope| (key(KeyTag::Shared, scope, name.to_owned()), name.to_owned());
    let (ask, name) = match (&sharing.reference, sharing.sharing, &resource.id) {
        (Some(Reference::Shared { name, scope }), _, _) => shared(name, scope.unwrap_or(Scope::Environment)),
        (Some(Reference::Existing { id }), _, _) => {
            (Ask::Existing(existing(id, snapshot, &path, resource.at)?), requirement.to_owned())
        }
        (Some(Reference::Dedicated), _, _) | (None, Some(SharingWord::Dedicated), _) => dedicated(),
        (None, Some(SharingWord::ByName), _) => shared(requirement, Scope::Environment),
        (None, Some(_), _) => return Err(unsupported("sharing")),
        (None, None, Some(id)) => shared(id, Scope::Environment),
        (None, None, None) => dedicated(),
    };
    let mut depends_on: Vec<WantedDependency> = sharing
        .depends_on
        .iter()
        .map(|d| WantedDependency { requirement: d.name.clone(), kind: d.kind, relationship: d.relationship })
        .collect();
    let raw = resource.params.clone().unwrap_or_default();
    for name in referenced(&Value::Object(raw.clone()), sharing.uses_dialect()) {
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
        ask,
        name,
        pinned: choice.pinned,
        chosen_because: choice.reason,
        version: choice.version,
        asks_params: resource.params.is_some(),
        raw,
        short: sharing.uses_dialect(),
        depends_on,
        on_conflict: sharing.on_conflict.unwrap_or(OnConflict::Fail),
        at: Some(resource.at),
    })
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

/// The names of resources that placeholders in a value refer to.
pub(super) fn referenced(value: &Value, short: bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect_names(value, short, &mut names);
    names
}

fn collect_names(value: &Value, short: bool, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.contains('$') => {
            let parts = parse_text(text, |name| short && name != "metadata" && name != "resources");
            names.extend(parts.unwrap_or_default().into_iter().filter_map(|part| match part {
                Part::Ref(Target::Resource { name, .. }) => Some(name),
                _ => None,
            }));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, short, names)),
        Value::Object(entries) => entries.values().for_each(|entry| collect_names(entry, short, names)),
        _ => {}
    }
}

/// Two requirements of one file that name one identity must not disagree; absent params inherit.
fn same_identity_agrees(wanted: &mut BTreeMap<&str, Wanted>) -> Result<(), PlanError> {
    let mut asked: BTreeMap<Key, (String, Map<String, Value>)> = BTreeMap::new();
    for one in wanted.values().filter(|one| one.asks_params) {
        let Ask::Keyed(key) = &one.ask else { continue };
        let (first, raw) =
            asked.entry(key.clone()).or_insert_with(|| (one.requirement.clone(), one.raw.clone()));
        if *raw != one.raw {
            return Err(refused(vec![Problem {
                path: format!("resources.{}", one.requirement),
                message: format!(
                    "`{first}` and `{}` are the same {} `{}` but ask for different params",
                    one.requirement, key.kind, key.name
                ),
                suggestion: Some("give both the same params, leave them out of one, or use two ids".into()),
                at: one.at,
            }]));
        }
    }
    for one in wanted.values_mut().filter(|one| !one.asks_params) {
        let Ask::Keyed(key) = &one.ask else { continue };
        if let Some((_, raw)) = asked.get(key) {
            one.raw = raw.clone();
            one.asks_params = true;
        }
    }
    Ok(())
}

fn in_order(wanted: BTreeMap<&str, Wanted>) -> Result<Vec<Wanted>, PlanError> {
    let names: Vec<&str> = wanted.keys().copied().collect();
    let depends_on: Vec<Vec<usize>> = wanted
        .values()
        .map(|one| {
            one.depends_on.iter().filter_map(|d| names.binary_search(&d.requirement.as_str()).ok()).collect()
        })
        .collect();
    let order = dependency_order(&depends_on).map_err(|cycle| {
        let path: Vec<&str> = cycle.0.iter().map(|&i| names[i]).collect();
        refused(vec![Problem {
            path: format!("resources.{}", path[0]),
            message: format!("these resources need each other: {}", path.join(" → ")),
            suggestion: Some("take one of the references away".into()),
            at: None,
        }])
    })?;
    let mut slots: Vec<Option<Wanted>> = wanted.into_values().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| slots[i].take()).collect())
}

fn want_workload(
    manifest: &Manifest,
    image: Option<&str>,
    snapshot: &Snapshot,
) -> Result<Option<Wanted>, Vec<Problem>> {
    let asker = Asker {
        kind: workload::TYPE,
        class: "default",
        environment: &snapshot.environment.name,
        environment_type: &snapshot.environment.kind,
        application: &snapshot.application.name,
        labels: &snapshot.application.labels,
    };
    let applied: Vec<_> = snapshot
        .versions_of(workload::TYPE)
        .into_iter()
        .filter(|version| Some(version.id) != snapshot.default_workload)
        .collect();
    let default = snapshot.default_workload.and_then(|id| snapshot.versions.get(&id).cloned());
    let (version, because) = match (applied.is_empty(), default) {
        (true, None) => return Ok(None),
        (true, Some(version)) => (version, "the built-in workload template".to_owned()),
        (false, _) => match choose_template(&asker, &applied, &snapshot.rules, &snapshot.types) {
            Ok(choice) => (choice.version, choice.reason),
            Err(error) => {
                let path = "workload".to_owned();
                return Err(vec![Problem {
                    path,
                    message: error.message,
                    suggestion: error.suggestion,
                    at: None,
                }]);
            }
        },
    };
    let raw = workload::raw(manifest, image)?;
    let depends_on = manifest
        .resources
        .keys()
        .map(|requirement| WantedDependency {
            requirement: requirement.clone(),
            kind: DependencyKind::Output,
            relationship: Relationship::Requires,
        })
        .collect();
    Ok(Some(Wanted {
        requirement: workload::TYPE.to_owned(),
        ask: Ask::Keyed(workload_key(snapshot)),
        name: snapshot.application.name.clone(),
        version,
        pinned: false,
        chosen_because: because,
        raw,
        asks_params: true,
        short: false,
        depends_on,
        on_conflict: OnConflict::Fail,
        at: None,
    }))
}

pub(super) fn workload_key(snapshot: &Snapshot) -> Key {
    Key {
        domain: snapshot.environment.domain,
        kind: workload::TYPE.to_owned(),
        class: "default".to_owned(),
        tag: KeyTag::Workload,
        name: snapshot.application.id.to_string(),
    }
}

/// The resource that is meant by a key, as far as it was looked up.
pub(super) fn look_up<'a>(key: &Key, snapshot: &'a Snapshot) -> Result<Option<&'a ResourceView>, PlanError> {
    match snapshot.keys.get(key) {
        Some(found) => Ok(found.and_then(|id| snapshot.resources.get(&id))),
        None => Err(PlanError::Need(vec![Want::Key(key.clone())])),
    }
}
