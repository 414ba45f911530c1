//! Finding what is like what is asked for, and keeping the index of it true.

use std::collections::BTreeSet;

use conductor_domain::{
    catalogue::TemplateVersion,
    expr::Params,
    ids::{DomainId, ResourceId, TemplateId},
    plan::{Effect, Key, KeyTag, MatchQuery, Matches, Plan, Snapshot},
    score::Scope,
    sharing::MatchOn,
};
use conductor_store::{
    Result, Tx,
    matching::{Keyset, MatchKey},
};

use crate::{
    Context,
    planning::{Purpose, open_spec},
};

/// Resources read at once when a keyset is used for the first time.
const PAGE: usize = 500;

/// The domains that a scope looks into, narrow to wide.
pub(crate) fn domains_within(snapshot: &Snapshot, scope: Scope) -> Vec<DomainId> {
    let scopes = [Scope::Environment, Scope::Organisation, Scope::Global];
    scopes.into_iter().filter(|narrower| *narrower <= scope).map(|scope| snapshot.domain(scope)).collect()
}

fn hash(tx: &Tx<'_>, template: TemplateId, material: &str) -> Result<Vec<u8>> {
    let mut body = template.bytes();
    body.extend(material.as_bytes());
    tx.sealer().digest(&body)
}

/// What fits, the best first: at least `count` of them where there are so many.
pub(crate) fn look(
    tx: &mut Tx<'_>,
    context: &Context,
    snapshot: &Snapshot,
    query: &MatchQuery,
    count: usize,
    purpose: Purpose,
) -> Result<Matches> {
    let domains = domains_within(snapshot, query.scope);
    let keysets = tx.keysets(&domains.iter().copied().collect())?;
    let hash = hash(tx, query.template, &query.material)?;
    let mut ids = Vec::new();
    for domain in domains {
        let left = (count + 1).saturating_sub(ids.len());
        if left == 0 {
            break;
        }
        let known = keysets.iter().find(|keyset| {
            keyset.domain == domain
                && keyset.kind == query.kind
                && keyset.class == query.class
                && keyset.on == query.on
        });
        match known {
            Some(keyset) => ids.extend(tx.matches(keyset.id, &hash, left)?),
            None if purpose == Purpose::Store => {
                let keyset = register(tx, context, domain, query)?;
                ids.extend(tx.matches(keyset.id, &hash, left)?);
            }
            None => ids.extend(scan(tx, context, domain, query, &hash, left)?),
        }
    }
    let more = ids.len() > count;
    ids.truncate(count);
    Ok(Matches { ids, more })
}

/// A set of parameters is matched on for the first time in a domain: everything there is indexed by it.
fn register(tx: &mut Tx<'_>, context: &Context, domain: DomainId, query: &MatchQuery) -> Result<Keyset> {
    let keyset = Keyset {
        id: context.ids.next(),
        domain,
        kind: query.kind.clone(),
        class: query.class.clone(),
        on: query.on.clone(),
    };
    tx.insert_keyset(context.organisation, &keyset)?;
    let mut after = None;
    loop {
        let page = tx.sharable(domain, &query.kind, &query.class, after, PAGE)?;
        let Some(last) = page.last().copied() else { return Ok(keyset) };
        let ids: BTreeSet<ResourceId> = page.into_iter().collect();
        let keys = keys_of(tx, context, &ids, &keyset)?;
        tx.put_match_keys(&keys)?;
        tx.recount_matches(&ids)?;
        after = Some(last);
    }
}

fn keys_of(
    tx: &mut Tx<'_>,
    context: &Context,
    ids: &BTreeSet<ResourceId>,
    keyset: &Keyset,
) -> Result<Vec<MatchKey>> {
    let mut keys = Vec::with_capacity(ids.len());
    for row in tx.resources_by_id(ids)? {
        let version = context.templates.get(tx, row.version, None)?;
        let params = open_spec(tx, &row, &row.spec)?;
        keys.push(key(tx, keyset, row.id, &version, &params, row.max_consumers, row.created_at)?);
    }
    Ok(keys)
}

fn key(
    tx: &Tx<'_>,
    keyset: &Keyset,
    resource: ResourceId,
    version: &TemplateVersion,
    params: &Params,
    max_consumers: Option<u32>,
    created_at: i64,
) -> Result<MatchKey> {
    Ok(MatchKey {
        resource,
        keyset: keyset.id,
        hash: hash(tx, version.template, &keyset.on.material(params, &version.derived()))?,
        counted: keyset.on != MatchOn::Nothing,
        max_consumers,
        created_at,
    })
}

/// Without an index, where nothing may be written: the same answer, slower.
fn scan(
    tx: &mut Tx<'_>,
    context: &Context,
    domain: DomainId,
    query: &MatchQuery,
    hash: &[u8],
    limit: usize,
) -> Result<Vec<ResourceId>> {
    let keyset = Keyset {
        id: uuid::Uuid::nil(),
        domain,
        kind: query.kind.clone(),
        class: query.class.clone(),
        on: query.on.clone(),
    };
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = tx.sharable(domain, &query.kind, &query.class, after, PAGE)?;
        let Some(last) = page.last().copied() else { break };
        let ids: BTreeSet<ResourceId> = page.into_iter().collect();
        let counts = tx.consumer_counts(&ids)?;
        for key in keys_of(tx, context, &ids, &keyset)? {
            let users = counts.get(&key.resource).copied().unwrap_or(0);
            let room = key.max_consumers.is_none_or(|most| users < u64::from(most));
            if room && key.hash == hash {
                found.push((if key.counted { users } else { 0 }, key.created_at, key.resource));
            }
        }
        after = Some(last);
    }
    found.sort_unstable();
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, _, id)| id).collect())
}

/// Brings the index up to date with what a plan makes, changes and joins.
pub(crate) fn index(
    tx: &mut Tx<'_>,
    context: &Context,
    plan: &Plan,
    snapshot: &Snapshot,
    now: i64,
) -> Result<()> {
    let sharable = |key: &Key| matches!(key.tag, KeyTag::Shared | KeyTag::Matched);
    let mut changed = Vec::new();
    let mut touched = BTreeSet::new();
    for effect in &plan.effects {
        match effect {
            Effect::Create(new) if sharable(&new.key) && new.pool.is_none() => {
                changed.push((new.id, &new.key, new.version, &new.params, new.max_consumers));
                touched.insert(new.id);
            }
            Effect::Specify { resource, version, params, .. } => {
                let known = snapshot.resources.get(resource).filter(|view| sharable(&view.key));
                if let Some(view) = known.filter(|view| view.pool.is_none()) {
                    changed.push((view.id, &view.key, *version, params, view.max_consumers));
                    touched.insert(view.id);
                }
            }
            Effect::Join { resource, .. } => {
                let known = snapshot.resources.get(resource);
                touched.extend(known.filter(|view| sharable(&view.key)).map(|view| view.id));
            }
            _ => {}
        }
    }
    if touched.is_empty() {
        return Ok(());
    }
    let domains: BTreeSet<DomainId> = changed.iter().map(|(_, key, ..)| key.domain).collect();
    let keysets = if domains.is_empty() { vec![] } else { tx.keysets(&domains)? };
    let mut keys = Vec::new();
    for (id, of, version, params, most) in changed {
        let fitting = keysets.iter().filter(|keyset| {
            keyset.domain == of.domain && keyset.kind == of.kind && keyset.class == of.class
        });
        for keyset in fitting {
            let version = context.templates.get(tx, version, None)?;
            keys.push(key(tx, keyset, id, &version, params, most, now)?);
        }
    }
    tx.put_match_keys(&keys)?;
    tx.recount_matches(&touched)
}
