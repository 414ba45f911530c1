//! The audit trail: every event sealed into a chain that can be checked and exported.

use conductor_api::types::{AuditEntry, AuditReport, Page, Time};
use conductor_domain::{
    ids::{ChangeId, ResourceId},
    lifecycle::ErrorCode,
};
use conductor_store::{
    Result, Tx,
    audit::{ChainFilter, ChainedEvent},
    is_sealed,
    principals::{EventRow, REQUEST_ID},
};
use serde_json::{Value, json};

use crate::{
    Context, Engine,
    access::hex,
    refusal::refuse,
    views::{event_view, without_passwords},
};

const PIECE: usize = 500;

/// What part of the trail is asked for.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub newest_first: bool,
    pub cursor: Option<i64>,
    pub actor: Option<String>,
    pub kind: Option<String>,
    pub deployment: Option<ChangeId>,
    pub resource: Option<ResourceId>,
    pub since: Option<i64>,
    pub limit: Option<usize>,
}

/// The keyed hash of an event in its place.
fn hash(tx: &Tx<'_>, before: &[u8], event: &EventRow) -> Result<Vec<u8>> {
    let mut body = before.to_vec();
    body.extend(event.essence());
    tx.sealer().digest(&body)
}

/// Seals some of what is not sealed yet; returns how many.
fn seal(tx: &mut Tx<'_>, context: &Context) -> Result<usize> {
    let events = tx.unsealed_events(context.organisation, PIECE)?;
    if events.is_empty() {
        return Ok(0);
    }
    let (head, mut before) = tx.chain_head(context.organisation)?;
    let mut sealed = Vec::with_capacity(events.len());
    for event in &events {
        before = hash(tx, &before, event)?;
        sealed.push((event.id, before.clone()));
    }
    tx.append_to_chain(context.organisation, head + 1, &sealed)?;
    Ok(events.len())
}

/// A walk along the chain: where it is, and what it has to find.
#[derive(Clone, Default)]
struct Walk {
    at: i64,
    hash: Vec<u8>,
    /// Programs that seal what they write have written from here on.
    sealing: bool,
    /// How far the chain went when it was last added to.
    end: Option<(i64, Vec<u8>)>,
}

impl Walk {
    /// What is wrong with the next entry, if something is.
    fn step(&mut self, tx: &Tx<'_>, entry: &ChainedEvent) -> Result<Option<String>> {
        self.at += 1;
        let at = self.at;
        let Some(event) = &entry.event else {
            return Ok(Some(format!("the event of entry {} is missing", entry.position)));
        };
        if entry.position != at {
            return Ok(Some(format!("entry {at} is missing")));
        }
        if hash(tx, &self.hash, event)? != entry.hash {
            return Ok(Some(format!("entry {at} ({}) is not what was sealed", event.id)));
        }
        let sealed = match &entry.seal {
            Some(seal) => *seal == event.seal(&tx.sealer())?,
            None => !self.sealing,
        };
        if !sealed {
            return Ok(Some(format!("entry {at} ({}) was put in by somebody else", event.id)));
        }
        self.sealing |= entry.seal.is_some();
        self.hash.clone_from(&entry.hash);
        Ok(None)
    }

    /// What is wrong with where it ends.
    fn ended(&self) -> Option<String> {
        match &self.end {
            Some((end, _)) if self.at < *end => Some(format!("entries {} to {end} are missing", self.at + 1)),
            None if self.sealing => Some("the note of where the trail ends is missing".to_owned()),
            _ => None,
        }
    }
}

fn broken(entries: i64, broken: String) -> AuditReport {
    AuditReport { entries: entries.max(0) as u64, intact: false, broken: Some(broken) }
}

impl Engine {
    /// Seals whatever happened since the last time. May run at any time, anywhere.
    pub async fn seal_audit(&self) -> Result<()> {
        loop {
            let organisation = self.context.organisation;
            let waiting = self.db.read(move |tx| Ok(!tx.unsealed_events(organisation, 1)?.is_empty()));
            if !waiting.await? {
                return Ok(());
            }
            let context = self.context.clone();
            self.db.write(move |tx| seal(tx, &context)).await?;
        }
    }

    /// Reads the whole chain, and says where it is not what was sealed.
    pub async fn verify_audit(&self) -> Result<AuditReport> {
        self.seal_audit().await?;
        let organisation = self.context.organisation;
        let mut walk =
            self.db.read(move |tx| Ok(Walk { end: tx.chain_end(organisation)?, ..Walk::default() })).await?;
        loop {
            let begun = walk.clone();
            let (next, found, wrong) = self
                .db
                .read(move |tx| {
                    let mut walk = begun.clone();
                    let filter =
                        ChainFilter { beyond: Some(walk.at), limit: PIECE, ..ChainFilter::default() };
                    let page = tx.chain(organisation, &filter)?;
                    for entry in &page {
                        let mut wrong = walk.step(tx, entry)?;
                        if let Some((end, hash)) = &walk.end
                            && walk.at == *end
                            && walk.hash != *hash
                        {
                            let told = || format!("entry {end} is not the one the trail ended with");
                            wrong = wrong.or_else(|| Some(told()));
                        }
                        if wrong.is_some() {
                            return Ok((walk, page.len(), wrong));
                        }
                    }
                    Ok((walk, page.len(), None))
                })
                .await?;
            walk = next;
            if let Some(wrong) = wrong {
                return Ok(broken(walk.at - 1, wrong));
            }
            if found < PIECE {
                break;
            }
        }
        if let Some(wrong) = walk.ended() {
            return Ok(broken(walk.at, wrong));
        }
        if let Some(event) = self.db.read(move |tx| tx.unchained_event(organisation)).await? {
            return Ok(broken(walk.at, format!("{event} was put in by somebody else")));
        }
        Ok(AuditReport { entries: walk.at as u64, intact: true, broken: None })
    }

    /// Whether exported entries are what was sealed, whatever became of the database since. Entries that follow each
    /// other are also checked to be next to each other in the chain.
    pub async fn verify_export(&self, entries: Vec<AuditEntry>) -> Result<AuditReport> {
        let total = entries.len() as u64;
        let wrong = self
            .db
            .read(move |tx| {
                let mut last: Option<(i64, String)> = None;
                for (count, entry) in entries.iter().enumerate() {
                    let at = entry.position;
                    let sealed = hash(tx, &bytes(&entry.previous)?, &event_row(entry))?;
                    let follows = last.as_ref().is_none_or(|(before, _)| at > *before);
                    let linked = last
                        .as_ref()
                        .is_none_or(|(before, hash)| before + 1 != at || *hash == entry.previous);
                    let wrong = match () {
                        () if !follows => Some(format!("entry {at} is not in its place")),
                        () if hex(&sealed) != entry.hash => {
                            Some(format!("entry {at} ({}) is not what was sealed", entry.event.id))
                        }
                        () if !linked => Some(format!("entry {at} does not follow the one before it")),
                        () => None,
                    };
                    if let Some(wrong) = wrong {
                        return Ok(Some(broken(count as i64, wrong)));
                    }
                    last = Some((at, entry.hash.clone()));
                }
                Ok(None)
            })
            .await?;
        Ok(wrong.unwrap_or(AuditReport { entries: total, intact: true, broken: None }))
    }

    /// A part of the chain: what lists and exports are made of.
    pub async fn audit(&self, query: AuditQuery) -> Result<Page<AuditEntry>> {
        self.seal_audit().await?;
        let organisation = self.context.organisation;
        let limit = query.limit.unwrap_or(200).clamp(1, PIECE);
        let filter = ChainFilter {
            newest_first: query.newest_first,
            beyond: query.cursor,
            actor: query.actor,
            kind: query.kind,
            change: query.deployment,
            resource: query.resource,
            since: query.since,
            limit: limit + 1,
        };
        let chain = self.db.read(move |tx| tx.chain(organisation, &filter)).await?;
        let more = chain.len() > limit;
        let last = chain.get(limit - 1).map(|entry| entry.position.to_string());
        let items = chain.into_iter().take(limit).filter_map(|entry| {
            Some(AuditEntry {
                position: entry.position,
                hash: hex(&entry.hash),
                previous: hex(&entry.previous),
                event: event_view(entry.event?),
            })
        });
        Ok(Page { items: items.collect(), next_cursor: last.filter(|_| more) })
    }
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|two| {
        let two = std::str::from_utf8(two).ok().filter(|two| two.len() == 2)?;
        u8::from_str_radix(two, 16).ok()
    });
    let bytes: Option<Vec<u8>> = digits.collect();
    bytes.ok_or_else(|| refuse(ErrorCode::Invalid, "a hash is an even number of hexadecimal digits"))
}

/// The event as it was sealed.
fn event_row(entry: &AuditEntry) -> EventRow {
    let event = &entry.event;
    let mut document = event.data.clone();
    if let (Some(request), Some(entries)) = (&event.request_id, document.as_object_mut()) {
        entries.insert(REQUEST_ID.into(), request.as_str().into());
    }
    let Time(created_at) = event.at;
    EventRow {
        id: event.id,
        kind: event.kind.clone(),
        actor: event.actor.clone(),
        change: event.deployment,
        resource: event.resource,
        operation: event.operation,
        document,
        created_at,
    }
}

/// What is sealed is told of by its absence.
fn without_secrets(value: Value) -> Value {
    match value {
        sealed if is_sealed(&sealed) => Value::Null,
        Value::Array(items) => items.into_iter().map(without_secrets).collect(),
        Value::Object(entries) => {
            entries.into_iter().map(|(name, value)| (name, without_secrets(value))).collect()
        }
        other => without_passwords(other),
    }
}

/// What the catalogue holds under a document's name, as it may be told; null when nothing.
pub(crate) fn catalogue_record(tx: &mut Tx<'_>, context: &Context, document: &Value) -> Result<Value> {
    let organisation = context.organisation;
    let name = document["name"].as_str().unwrap_or_default();
    let stored = match document["kind"].as_str().unwrap_or_default() {
        "Organisation" => Some(tx.organisation_document(organisation)?),
        "Environment" => tx.environment_by_name(organisation, name)?.map(|row| row.document),
        "Application" => tx.application_by_name(organisation, name)?.map(|row| row.document),
        "Rule" => tx.rules(organisation)?.into_iter().find(|row| row.name == name).map(|row| row.document),
        "Pool" => tx.pool_by_name(organisation, name)?.map(|row| row.document),
        "Integration" => {
            let place = document["environment"].as_str().unwrap_or_default();
            let all = tx.integrations(organisation)?.into_iter();
            all.filter(|row| row.name == name).find(|row| row.place == place).map(|row| row.document)
        }
        "Template" => {
            let versions = tx.versions_by_name(organisation, name)?;
            let states = versions.into_iter().map(|row| (row.version, Value::from(row.state)));
            let states: serde_json::Map<_, _> = states.collect();
            (!states.is_empty()).then(|| json!({ "versions": states }))
        }
        _ => None,
    };
    Ok(stored.map_or(Value::Null, without_secrets))
}
