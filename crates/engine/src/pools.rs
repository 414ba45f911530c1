//! Pools: ready ones made ahead, kept at their size, claimed in a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use conductor_api::types::{Applied, Page, Pool, Time};
use conductor_domain::{
    catalogue::{TemplateVersion, VersionState},
    ids::{ApplicationId, ChangeId, EnvironmentId, PoolId, ResourceId, TemplateVersionId},
    lifecycle::{ChangeKind, KeptBy, State, Status},
    plan::{Intent, PoolView},
    score::SharingPolicy,
};
use conductor_store::{
    Owner, Result, Tx,
    catalogue::ApplicationRow,
    changes::{ChangeRow, NewChange},
    pools::{MemberRow, PoolRow},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Context, Engine,
    audit::catalogue_record,
    catalogue::{applied, invalid, read},
    changes::{lock_resources, store},
    planning::{Place, Purpose, plan_now},
    progress::Progress,
    refusal::not_found,
    teardown::teardown_of,
    templates::{Shelf, parse_duration},
};

/// A member that failed is replaced after this long, in microseconds.
const FAILED_FOR: i64 = 30_000_000;
/// So many are made at once; the next round makes more.
const MADE_AT_ONCE: usize = 50;

/// What becomes of a member that was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnRelease {
    /// Destroyed; a new one takes its place.
    #[default]
    Recycle,
    /// Destroyed and made again under the same record.
    Reset,
    /// Handed out again as it is.
    Keep,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "every key a document may have; some are only kept with it")]
struct PoolDocument {
    kind: String,
    name: String,
    environment: String,
    template: String,
    #[serde(default = "one")]
    size: u64,
    min: Option<u64>,
    max: Option<u64>,
    #[serde(default = "dedicated")]
    sharing_policy: SharingPolicy,
    max_consumers: Option<u32>,
    #[serde(default)]
    parameters: Map<String, Value>,
    idle: Option<String>,
    #[serde(default)]
    auto: bool,
    #[serde(default)]
    on_release: OnRelease,
    description: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

fn one() -> u64 {
    1
}

fn dedicated() -> SharingPolicy {
    SharingPolicy::Dedicated
}

/// A pool as it is defined.
#[derive(Clone, Debug)]
pub(crate) struct PoolDefinition {
    pub id: PoolId,
    pub name: String,
    pub environment: EnvironmentId,
    template: String,
    wanted: Option<semver::Version>,
    size: u64,
    min: Option<u64>,
    max: Option<u64>,
    shared: bool,
    max_consumers: Option<u32>,
    parameters: Map<String, Value>,
    /// In microseconds.
    idle: Option<i64>,
    pub auto: bool,
    on_release: OnRelease,
    updated_at: i64,
}

impl PoolDefinition {
    /// The version its members are made with: the named one, or the newest that may be used.
    pub fn version(
        &self,
        tx: &mut Tx<'_>,
        context: &Context,
        shelf: &Shelf,
    ) -> Result<Option<Arc<TemplateVersion>>> {
        let mut best: Option<Arc<TemplateVersion>> = None;
        for head in shelf.heads.iter().filter(|head| head.name == self.template && !head.built_in) {
            let version = context.templates.get(tx, head.id, Some(&head.state))?;
            let usable = match &self.wanted {
                Some(wanted) => version.version == *wanted && version.state != VersionState::Disabled,
                None => !matches!(version.state, VersionState::Disabled | VersionState::Preview),
            };
            if usable && best.as_ref().is_none_or(|best| best.version < version.version) {
                best = Some(version);
            }
        }
        Ok(best)
    }

    /// Whether a member can be handed out.
    pub fn claimable(&self, member: &MemberRow) -> bool {
        let there = (member.state, member.status) == (State::Provisioned, Status::Done);
        let free = member.kept_by == KeptBy::Pool && member.consumers == 0;
        there && (free || self.shared && (member.consumers > 0 || member.kept_by == KeptBy::Pool))
    }

    pub fn view(&self, version: TemplateVersionId, alive: u64, ready: Vec<ResourceId>) -> PoolView {
        PoolView {
            id: self.id,
            name: self.name.clone(),
            version,
            parameters: self.parameters.clone(),
            shared: self.shared,
            max_consumers: self.max_consumers,
            auto: self.auto,
            max: self.max,
            alive,
            recycles: self.on_release != OnRelease::Keep,
            ready,
        }
    }

    /// How many shall be ready: fewer once nobody has asked for a while.
    fn target(&self, asked_at: Option<i64>, now: i64) -> u64 {
        match (self.idle, self.min) {
            (Some(idle), Some(min)) if now - asked_at.unwrap_or(self.updated_at) > idle => min,
            _ => self.size,
        }
    }
}

fn owner<'a>(context: &Context, id: &'a PoolId) -> Owner<'a> {
    Owner { organisation: context.organisation, kind: "pool", id: id.0.as_bytes() }
}

pub(crate) fn load_pools(tx: &mut Tx<'_>, context: &Context) -> Result<Vec<PoolDefinition>> {
    tx.pools(context.organisation)?.into_iter().map(|row| definition(tx, context, &row)).collect()
}

fn definition(tx: &Tx<'_>, context: &Context, row: &PoolRow) -> Result<PoolDefinition> {
    let mut document = row.document.clone();
    if let Some(parameters) = document.get_mut("parameters") {
        *parameters = tx.sealer().open_leaf(owner(context, &row.id), parameters)?;
    }
    let read: PoolDocument = read("Pool", &row.name, &document)?;
    let (template, wanted) = match read.template.split_once('@') {
        Some((template, version)) => (template.to_owned(), version.parse().ok()),
        None => (read.template.clone(), None),
    };
    Ok(PoolDefinition {
        id: row.id,
        name: row.name.clone(),
        environment: row.environment,
        template,
        wanted,
        size: read.size,
        min: read.min,
        max: read.max,
        shared: read.sharing_policy == SharingPolicy::Shared,
        max_consumers: read.max_consumers,
        parameters: read.parameters,
        idle: read.idle.as_deref().and_then(parse_duration).map(|ms| ms as i64 * 1_000),
        auto: read.auto,
        on_release: read.on_release,
        updated_at: row.updated_at,
    })
}

pub(crate) fn apply_pool(tx: &mut Tx<'_>, context: &Context, document: &Value, now: i64) -> Result<Applied> {
    let name = document["name"].as_str().unwrap_or_default();
    let at = format!("Pool {name}");
    let pool: PoolDocument = read("Pool", name, document)?;
    check_sizes(&at, &pool)?;
    let environment = tx.environment_by_name(context.organisation, &pool.environment)?.ok_or_else(|| {
        let known = tx.environments(context.organisation).unwrap_or_default();
        let known: Vec<String> = known.into_iter().map(|row| row.name).collect();
        not_found("environment", &pool.environment, &known)
    })?;
    let (template, version) = match pool.template.split_once('@') {
        Some((template, version)) => (template, Some(version)),
        None => (pool.template.as_str(), None),
    };
    let versions = tx.versions_by_name(context.organisation, template)?;
    if versions.is_empty() {
        let known: Vec<String> = tx.versions(context.organisation)?.into_iter().map(|row| row.name).collect();
        return Err(not_found("template", template, &known));
    }
    if let Some(version) = version
        && !versions.iter().any(|row| row.version == version)
    {
        let known: Vec<String> = versions.iter().map(|row| row.version.clone()).collect();
        return Err(not_found("version", &format!("{template}@{version}"), &known));
    }
    let before = tx.pool_by_name(context.organisation, name)?;
    if let Some(before) = before.as_ref().filter(|before| before.environment != environment.id) {
        let message =
            format!("pool `{name}` is in environment `{}`; that cannot change", before.environment_name);
        return Err(invalid(&at, message, Some("use another name".into())));
    }
    let id = before.as_ref().map_or_else(|| PoolId(context.ids.next()), |before| before.id);
    let mut stored = document.clone();
    let newest = versions.iter().filter(|row| version.is_none_or(|version| row.version == version));
    let newest = newest.max_by_key(|row| row.version.parse::<semver::Version>().ok()).map(|row| row.id);
    if let Some(newest) = newest {
        check_parameters(tx, context, &at, &pool, newest)?;
    }
    if let Some(before) = &before {
        let mut opened = before.document.clone();
        if let Some(parameters) = opened.get_mut("parameters") {
            *parameters = tx.sealer().open_leaf(owner(context, &id), parameters)?;
        }
        if opened == *document {
            return Ok(applied("Pool", name, "unchanged"));
        }
    }
    if let Some(parameters) = stored.get_mut("parameters") {
        *parameters = tx.sealer().seal_leaf(owner(context, &id), parameters)?;
    }
    tx.upsert_pool(context.organisation, environment.id, id, name, &stored, now)?;
    tx.stamp_catalogue(context.organisation)?;
    Ok(applied("Pool", name, if before.is_some() { "updated" } else { "created" }))
}

fn check_sizes(at: &str, pool: &PoolDocument) -> Result<()> {
    let problem = |key: &str, message: String, suggestion: &str| {
        Err(invalid(&format!("{at}.{key}"), message, Some(suggestion.to_owned())))
    };
    if let Some(max) = pool.max.filter(|max| pool.size > *max) {
        let message = format!("a size of {} is more than `max` allows, which is {max}", pool.size);
        return problem("size", message, "lower `size`, or raise `max`");
    }
    if let Some(min) = pool.min.filter(|min| *min > pool.size) {
        let message = format!("`min` is {min}, more than the size of {}", pool.size);
        return problem("min", message, "lower `min`, or raise `size`");
    }
    if let Some(idle) = pool.idle.as_deref().filter(|idle| parse_duration(idle).is_none()) {
        return problem("idle", format!("`{idle}` is no span of time"), "write it like `30s`, `10m` or `2h`");
    }
    if pool.sharing_policy == SharingPolicy::Conditional {
        let message = "a pool is `dedicated` or `shared`".to_owned();
        return problem("sharingPolicy", message, "say `shared` for members that several may use");
    }
    Ok(())
}

fn check_parameters(
    tx: &mut Tx<'_>,
    context: &Context,
    at: &str,
    pool: &PoolDocument,
    version: TemplateVersionId,
) -> Result<()> {
    let version = context.templates.get(tx, version, None)?;
    let given = pool.parameters.iter();
    let given =
        given.map(|(name, value)| (name.clone(), conductor_domain::expr::Expr::Literal(value.clone())));
    let params = version.schema.with_defaults(given.collect());
    match version.schema.check(&params).into_iter().next() {
        None => Ok(()),
        Some(wrong) => {
            let path = format!("{at}.parameters.{}", wrong.path);
            Err(invalid(path.trim_end_matches('.'), wrong.message, wrong.suggestion))
        }
    }
}

/// How the members of a pool stand.
#[derive(Debug, Default)]
struct Standing {
    ready: Vec<MemberRow>,
    claimed: u64,
    /// Those of the claimed that can be handed out once more.
    open: BTreeSet<ResourceId>,
    creating: u64,
    failed: Vec<MemberRow>,
    alive: u64,
}

impl Standing {
    fn of(members: Vec<MemberRow>, pool: &PoolDefinition) -> Self {
        let mut standing = Self { alive: members.len() as u64, ..Self::default() };
        for member in members {
            match (member.state, member.status) {
                _ if member.consumers > 0 => {
                    let room = pool.max_consumers.is_none_or(|most| member.consumers < i64::from(most));
                    standing.claimed += 1;
                    if room && pool.claimable(&member) {
                        standing.open.insert(member.id);
                    }
                }
                (State::Destroy, Status::Error) => standing.failed.push(member),
                (State::Destroy | State::Destroyed, _) => {}
                (_, Status::Error | Status::Unknown | Status::Pending) => standing.failed.push(member),
                (State::Provisioned, Status::Done) if member.kept_by == KeptBy::Pool => {
                    standing.ready.push(member)
                }
                (State::Provision, _) => standing.creating += 1,
                _ => {}
            }
        }
        standing
    }
}

/// How many members of each pool are ready, claimed, being made, failed: by pool and word.
pub(crate) fn pool_members(
    tx: &mut Tx<'_>,
    context: &Context,
) -> Result<BTreeMap<(String, &'static str), u64>> {
    let mut members = BTreeMap::new();
    for row in tx.pools(context.organisation)? {
        let definition = definition(tx, context, &row)?;
        let standing = Standing::of(tx.members(row.id)?, &definition);
        for (word, count) in [
            ("ready", (standing.ready.len() + standing.open.len()) as u64),
            ("claimed", standing.claimed),
            ("creating", standing.creating),
            ("failed", standing.failed.len() as u64),
        ] {
            members.insert((row.name.clone(), word), count);
        }
    }
    Ok(members)
}

fn pool_view(tx: &mut Tx<'_>, context: &Context, row: &PoolRow) -> Result<Pool> {
    let definition = definition(tx, context, row)?;
    let standing = Standing::of(tx.members(row.id)?, &definition);
    Ok(Pool {
        id: row.id,
        name: row.name.clone(),
        environment: row.environment_name.clone(),
        template: row.document["template"].as_str().unwrap_or_default().to_owned(),
        size: definition.size,
        min: definition.min,
        max: definition.max,
        sharing_policy: if definition.shared { "shared" } else { "dedicated" }.to_owned(),
        on_release: serde_json::to_value(definition.on_release)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned))
            .unwrap_or_default(),
        auto: definition.auto,
        ready: (standing.ready.len() + standing.open.len()) as u64,
        claimed: standing.claimed,
        creating: standing.creating,
        failed: standing.failed.len() as u64,
        claims: row.claims as u64,
        on_demand: row.on_demand as u64,
        created_at: Time(row.created_at),
        updated_at: Time(row.updated_at),
    })
}

impl Engine {
    pub async fn pools(&self) -> Result<Page<Pool>> {
        let context = self.context.clone();
        let items = self.db.read(move |tx| {
            let rows = tx.pools(context.organisation)?;
            rows.iter().map(|row| pool_view(tx, &context, row)).collect::<Result<Vec<_>>>()
        });
        Ok(Page { items: items.await?, next_cursor: None })
    }

    pub async fn pool(&self, name: &str) -> Result<Pool> {
        let (context, name) = (self.context.clone(), name.to_owned());
        self.db
            .read(move |tx| {
                let row = found(tx, &context, &name)?;
                pool_view(tx, &context, &row)
            })
            .await
    }

    /// The pool is no more: ready members go, claimed ones belong to those who have them.
    pub async fn delete_pool(&self, name: &str, actor: &str) -> Result<()> {
        let (context, name, actor) = (self.context.clone(), name.to_owned(), actor.to_owned());
        self.db
            .write(move |tx| {
                let row = found(tx, &context, &name)?;
                lock_environment(tx, row.environment)?;
                remove(tx, &context, &row, &actor, None)
            })
            .await?;
        self.collect_unused().await
    }

    /// Brings every pool to its size, and takes away what it should not have. May run at any time, anywhere.
    pub async fn keep_pools(&self) -> Result<()> {
        let context = self.context.clone();
        let pools = self.db.read(move |tx| Ok(context.templates.shelf(tx, &context)?.pools.clone())).await?;
        for pool in pools {
            let (context, looked) = (self.context.clone(), pool.clone());
            let work = self.db.read(move |tx| Ok(needed(tx, &context, &looked)?.is_some()));
            if !work.await? {
                continue;
            }
            let context = self.context.clone();
            let kept = self.db.write(move |tx| {
                lock_environment(tx, pool.environment)?;
                // Locked: look again.
                match needed(tx, &context, &pool)? {
                    Some(work) if teardown_of(tx, pool.environment)?.is_none() => {
                        carry_out(tx, &context, &pool, work)
                    }
                    _ => Ok(()),
                }
            });
            match kept.await {
                Err(conductor_store::Error::Refused { message, .. }) => {
                    tracing::warn!(%message, "a pool cannot be filled");
                }
                other => other?,
            }
        }
        Ok(())
    }
}

fn found(tx: &mut Tx<'_>, context: &Context, name: &str) -> Result<PoolRow> {
    if let Some(row) = tx.pool_by_name(context.organisation, name)? {
        return Ok(row);
    }
    let known: Vec<String> = tx.pools(context.organisation)?.into_iter().map(|row| row.name).collect();
    Err(not_found("pool", name, &known))
}

fn lock_environment(tx: &mut Tx<'_>, id: EnvironmentId) -> Result<()> {
    match tx.environment(id)? {
        Some(environment) => tx.lock_domain(environment.domain),
        None => Ok(()),
    }
}

/// Ready members are nobody's from now on, claimed ones belong to those who have them.
fn remove(
    tx: &mut Tx<'_>,
    context: &Context,
    row: &PoolRow,
    actor: &str,
    change: Option<ChangeId>,
) -> Result<()> {
    let shared = definition(tx, context, row)?.shared;
    let before = catalogue_record(tx, context, &json!({ "kind": "Pool", "name": row.name }))?;
    tx.delete_pool(row.id, shared)?;
    tx.stamp_catalogue(context.organisation)?;
    let told =
        json!({ "kind": "Pool", "name": row.name, "action": "deleted", "before": before, "after": null });
    Progress::new(tx, context, context.now()).event("catalogue.applied", actor, change, None, None, told)
}

/// The environment was torn down: its pools go, too. Returns who were their members.
pub(crate) fn remove_with(
    tx: &mut Tx<'_>,
    context: &Context,
    teardown: &ChangeRow,
) -> Result<BTreeSet<ResourceId>> {
    let mut members = BTreeSet::new();
    let Some(environment) = teardown.environment else { return Ok(members) };
    let pools = tx.pools(context.organisation)?;
    let here: Vec<PoolRow> = pools.into_iter().filter(|pool| pool.environment == environment).collect();
    if !here.is_empty() {
        lock_environment(tx, environment)?;
    }
    for pool in here {
        members.extend(tx.members(pool.id)?.into_iter().map(|member| member.id));
        remove(tx, context, &pool, &teardown.actor, Some(teardown.id))?;
    }
    Ok(members)
}

/// What a pool lacks, and what it has too much.
struct Work {
    make: usize,
    take: BTreeSet<ResourceId>,
}

fn needed(tx: &mut Tx<'_>, context: &Context, pool: &PoolDefinition) -> Result<Option<Work>> {
    let now = context.now();
    let shelf = context.templates.shelf(tx, context)?;
    let Some(row) = tx.pool_by_name(context.organisation, &pool.name)? else { return Ok(None) };
    let Some(version) = pool.version(tx, context, &shelf)? else { return Ok(None) };
    let standing = Standing::of(tx.members(pool.id)?, pool);
    let params = pool.parameters.iter();
    let params =
        params.map(|(name, value)| (name.clone(), conductor_domain::expr::Expr::Literal(value.clone())));
    let params = version.schema.with_defaults(params.collect());
    let ids: BTreeSet<ResourceId> = standing.ready.iter().map(|member| member.id).collect();
    let mut stale = BTreeSet::new();
    let serving: BTreeSet<ResourceId> = ids.union(&standing.open).copied().collect();
    for row in tx.resources_by_id(&serving)? {
        let spec = crate::planning::open_spec(tx, &row, &row.spec)?;
        let derived = version.derived();
        let same = params.iter().all(|(name, expr)| derived.contains(name) || spec.get(name) == Some(expr));
        if row.version != version.id || !same {
            stale.insert(row.id);
        }
    }
    let target = pool.target(row.claimed_at, now);
    let ready = (serving.len() - stale.len()) as u64;
    let on_the_way = ready + standing.creating + standing.failed.len() as u64;
    let room = pool.max.map_or(u64::MAX, |max| max.saturating_sub(standing.alive));
    let make = target.saturating_sub(on_the_way).min(room) as usize;
    // What somebody uses is theirs, however it was made.
    let mut take: BTreeSet<ResourceId> = stale.intersection(&ids).copied().collect();
    let quiet = pool.idle.is_none_or(|idle| now - row.claimed_at.unwrap_or(pool.updated_at) > idle);
    let extra = (ready + standing.creating).saturating_sub(target) as usize;
    if quiet && extra > 0 {
        let fresh = standing.ready.iter().rev().filter(|member| !take.contains(&member.id));
        let extra: Vec<ResourceId> = fresh.take(extra).map(|member| member.id).collect();
        take.extend(extra);
    }
    let long_failed =
        standing.failed.iter().filter(|m| m.state != State::Destroy && now - m.updated_at > FAILED_FOR);
    take.extend(long_failed.filter(|member| member.kept_by == KeptBy::Pool).map(|member| member.id));
    Ok((make > 0 || !take.is_empty()).then_some(Work { make: make.min(MADE_AT_ONCE), take }))
}

fn carry_out(tx: &mut Tx<'_>, context: &Context, pool: &PoolDefinition, work: Work) -> Result<()> {
    let now = context.now();
    if !work.take.is_empty() {
        lock_resources(tx, &work.take)?;
        let open = tx.open_operations_on(&work.take)?;
        let idle = work.take.into_iter().filter(|id| !open.contains_key(id)).collect();
        let mut progress = Progress::new(tx, context, now);
        progress.collect_for(None, idle, ChangeKind::Pool)?;
        progress.settle()?;
    }
    if work.make == 0 {
        return Ok(());
    }
    let environment = tx.environment(pool.environment)?;
    let environment =
        environment.ok_or_else(|| conductor_store::Error::Corrupt("a pool of nowhere".into()))?;
    // Nobody uses what is only kept ready.
    let nobody = ApplicationRow {
        id: ApplicationId(uuid::Uuid::nil()),
        name: pool.name.clone(),
        document: json!({}),
        created_at: 0,
    };
    let place = Place { environment, application: nobody };
    let shelf = context.templates.shelf(tx, context)?;
    let Some(version) = pool.version(tx, context, &shelf)? else { return Ok(()) };
    let again: Vec<ResourceId> = match pool.on_release {
        OnRelease::Reset => tx.used_up_members(pool.id, work.make)?,
        _ => vec![],
    };
    let view = Arc::new(pool.view(version.id, 0, vec![]));
    let intent = Intent::Fill { pool: &view, count: work.make, again: &again };
    let (plan, snapshot) = plan_now(tx, context, &place, &intent, Purpose::Store)?;
    for id in &again {
        tx.keep_for_pool(*id)?;
    }
    let id = ChangeId(context.ids.next());
    tx.insert_change(&NewChange {
        environment: Some(pool.environment),
        request: json!({ "pool": pool.name }),
        ..context.change(id, ChangeKind::Pool, "conductor", now)
    })?;
    store(tx, context, id, ChangeKind::Pool, None, &plan, &snapshot, 1, "conductor", now)?;
    tx.wake();
    Ok(())
}
