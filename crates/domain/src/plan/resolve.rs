//! From an intent to a goal: what is wanted, by which template, in which order. One arm per kind of intent.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use conductor_score::{
    DependencyKind, Manifest, Metadata, OnConflict, Position, Relationship, Scope,
    placeholder::{Part, Target, parse_text},
};
use serde_json::{Map, Value};

use crate::{
    catalogue::{Asker, TemplateVersion, choose_template},
    condition::Condition,
    expr::Params,
    ids::ResourceId,
    lifecycle::ErrorCode,
    plan::{
        Key, KeyTag, PlanError, PoolView, Problem, ResourceView, Snapshot, Want, asking::want,
        order::dependency_order,
    },
    sharing::MatchOn,
    workload,
};

pub enum Intent<'a> {
    /// One application into one environment. `image` replaces `.` in the Score file.
    Deploy { manifest: &'a Manifest, image: Option<&'a str> },
    /// The application leaves the environment.
    Destroy,
    /// So many more ready ones for a pool, these among them made again.
    Fill { pool: &'a Arc<PoolView>, count: usize, again: &'a [ResourceId] },
    /// Everything of the environment goes. What is protected is in the way, or left standing.
    Teardown { keep_protected: bool },
    /// One resource, by hand and for nobody in particular.
    Make(&'a Handmade),
    /// One resource once more: made again, or changed by hand.
    Again(&'a Again),
    /// One resource goes.
    Remove(ResourceId),
}

/// A resource as somebody asks for it without a Score file.
#[derive(Clone, Debug)]
pub struct Handmade {
    pub name: String,
    pub version: Arc<TemplateVersion>,
    pub params: Map<String, Value>,
    pub parents: Vec<ResourceId>,
}

/// What is to become of a resource that is there, or was.
#[derive(Clone, Debug)]
pub struct Again {
    pub resource: ResourceId,
    pub version: Arc<TemplateVersion>,
    /// Parameters that change; null takes one away.
    pub set: Map<String, Value>,
    /// In place of all parameters, where an earlier state is to come back.
    pub whole: Option<Params>,
    /// Done although nothing differs from what is on record.
    pub anyway: bool,
}

/// How a requirement asks for its resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The living one of this key, or a new one.
    Keyed(Key),
    /// One that is there, linked and never owned.
    Existing(ResourceId),
    /// The best of those that fit, or a new one.
    Fitting(Fitting),
    /// A ready one of a pool, or a new one as the pool makes them. One that is there already under the key is kept.
    Pooled { pool: Arc<PoolView>, unless: Option<Key> },
    /// A new one for a pool, or a used-up one made again.
    Member { pool: Arc<PoolView>, again: Option<ResourceId> },
    /// A new one of this key, by hand.
    Made(Key),
    /// This one once more, whatever became of it.
    This { resource: ResourceId, whole: Option<Params>, anyway: bool },
}

/// What a resource must be like to be shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitting {
    pub scope: Scope,
    pub on: MatchOn,
    pub max_consumers: Option<u32>,
    pub when: Option<Condition>,
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
    pub class: String,
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
    /// What the requirement was called before.
    pub alias: Option<String>,
    /// Changes to the parameters it has.
    pub set: Map<String, Value>,
    pub parents: Vec<ResourceId>,
    pub at: Option<Position>,
}

impl Wanted {
    /// Nobody's: a member of a pool, or made by hand.
    pub fn is_nobodys(&self) -> bool {
        matches!(self.ask, Ask::Member { .. } | Ask::Made(_) | Ask::This { .. })
    }

    /// A template's version and parameters, and nothing else said.
    fn plain(requirement: String, version: Arc<TemplateVersion>, ask: Ask, raw: Map<String, Value>) -> Self {
        Self {
            requirement,
            class: version.class.clone(),
            ask,
            name: String::new(),
            version,
            pinned: true,
            chosen_because: String::new(),
            raw,
            asks_params: true,
            short: false,
            depends_on: vec![],
            on_conflict: OnConflict::Fail,
            alias: None,
            set: Map::new(),
            parents: vec![],
            at: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teardown {
    pub keep_protected: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Goal {
    /// Uses that are not stated any more end.
    pub complete: bool,
    /// One that goes, with what its template required.
    pub remove: Option<ResourceId>,
    /// The whole environment goes.
    pub teardown: Option<Teardown>,
    pub metadata: Option<Metadata>,
    /// Dependencies before dependents.
    pub wanted: Vec<Wanted>,
    pub workload: Option<Wanted>,
    /// What the workload would be handed, where nothing serves it: somebody else runs it, and it uses what it uses.
    pub unserved: Map<String, Value>,
    pub warnings: Vec<String>,
}

pub fn resolve(intent: &Intent<'_>, snapshot: &Snapshot) -> Result<Goal, PlanError> {
    match intent {
        Intent::Deploy { manifest, image } => resolve_deploy(manifest, *image, snapshot),
        Intent::Destroy => Ok(Goal { complete: true, ..Goal::default() }),
        Intent::Fill { pool, count, again } => fill(pool, *count, again, snapshot),
        Intent::Teardown { keep_protected } => {
            let teardown = Some(Teardown { keep_protected: *keep_protected });
            Ok(Goal { complete: true, teardown, ..Goal::default() })
        }
        Intent::Make(made) => make(made, snapshot),
        Intent::Again(again) => once_more(again, snapshot),
        Intent::Remove(id) => {
            known(*id, snapshot)?;
            Ok(Goal { remove: Some(*id), ..Goal::default() })
        }
    }
}

fn known(id: ResourceId, snapshot: &Snapshot) -> Result<&ResourceView, PlanError> {
    match snapshot.resources.get(&id) {
        Some(resource) => Ok(resource),
        None if !snapshot.missing.contains(&id) => Err(PlanError::Need(vec![Want::Resource(id)])),
        None => {
            let message = format!("there is no resource `{id}`");
            let problem = Problem { path: "resource".into(), message, suggestion: None, at: None };
            Err(PlanError::Refused { code: ErrorCode::NotFound, problems: vec![problem] })
        }
    }
}

fn make(made: &Handmade, snapshot: &Snapshot) -> Result<Goal, PlanError> {
    for parent in &made.parents {
        known(*parent, snapshot)?;
    }
    let version = made.version.clone();
    let key = Key {
        domain: snapshot.environment.domain,
        kind: version.kind.clone(),
        class: version.class.clone(),
        tag: KeyTag::Shared,
        name: made.name.clone(),
    };
    let wanted = Wanted {
        name: made.name.clone(),
        chosen_because: format!("{} was asked for", version.label()),
        parents: made.parents.clone(),
        ..Wanted::plain(made.name.clone(), version, Ask::Made(key), made.params.clone())
    };
    Ok(Goal { wanted: vec![wanted], ..Goal::default() })
}

fn once_more(again: &Again, snapshot: &Snapshot) -> Result<Goal, PlanError> {
    let resource = known(again.resource, snapshot)?;
    let ask = Ask::This { resource: again.resource, whole: again.whole.clone(), anyway: again.anyway };
    let wanted = Wanted {
        class: resource.key.class.clone(),
        name: resource.name.clone(),
        asks_params: false,
        on_conflict: OnConflict::Update,
        set: again.set.clone(),
        ..Wanted::plain(resource.name.clone(), again.version.clone(), ask, Map::new())
    };
    Ok(Goal { wanted: vec![wanted], ..Goal::default() })
}

fn fill(
    pool: &Arc<PoolView>,
    count: usize,
    again: &[ResourceId],
    snapshot: &Snapshot,
) -> Result<Goal, PlanError> {
    let unknown = again.iter().filter(|id| !snapshot.resources.contains_key(id));
    let unknown: Vec<Want> = unknown.map(|id| Want::Resource(*id)).collect();
    if !unknown.is_empty() {
        return Err(PlanError::Need(unknown));
    }
    let Some(version) = snapshot.versions.get(&pool.version) else {
        return Err(PlanError::Need(vec![Want::Pool(pool.name.clone())]));
    };
    let member = |number: usize| {
        let ask = Ask::Member { pool: pool.clone(), again: again.get(number - 1).copied() };
        let requirement = format!("{}-{number}", pool.name);
        let chosen_because = format!("pool `{}` is kept at its size with {}", pool.name, version.label());
        Wanted { chosen_because, ..Wanted::plain(requirement, version.clone(), ask, pool.parameters.clone()) }
    };
    Ok(Goal { wanted: (1..=count).map(member).collect(), ..Goal::default() })
}

pub(super) fn refused(problems: Vec<Problem>) -> PlanError {
    PlanError::Refused { code: ErrorCode::Invalid, problems }
}

fn resolve_deploy(manifest: &Manifest, image: Option<&str>, snapshot: &Snapshot) -> Result<Goal, PlanError> {
    let mut problems = Vec::new();
    let mut code = ErrorCode::Invalid;
    let mut needs = Vec::new();
    let mut goal = Goal { complete: true, metadata: Some(manifest.metadata.clone()), ..Goal::default() };
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
    if !needs.is_empty() {
        return Err(PlanError::Need(needs));
    }
    if !problems.is_empty() {
        return Err(PlanError::Refused { code, problems });
    }
    same_identity_agrees(&mut wanted)?;
    goal.wanted = in_order(wanted)?;
    goal.workload = want_workload(manifest, image, snapshot).map_err(refused)?;
    if goal.workload.is_none() {
        goal.unserved = workload::raw(manifest, image.or(Some("."))).map_err(refused)?;
    }
    Ok(goal)
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

pub(super) fn in_order(wanted: BTreeMap<&str, Wanted>) -> Result<Vec<Wanted>, PlanError> {
    let names: Vec<&str> = wanted.keys().copied().collect();
    let index: HashMap<&str, usize> = names.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let depends_on: Vec<Vec<usize>> = wanted
        .values()
        .map(|one| one.depends_on.iter().filter_map(|d| index.get(d.requirement.as_str()).copied()).collect())
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
    let ask = Ask::Keyed(workload_key(snapshot));
    Ok(Some(Wanted {
        class: "default".to_owned(),
        name: snapshot.application.name.clone(),
        pinned: false,
        chosen_because: because,
        depends_on,
        ..Wanted::plain(workload::TYPE.to_owned(), version, ask, raw)
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
