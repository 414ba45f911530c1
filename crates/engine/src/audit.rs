//! The audit trail: every event sealed into a chain that can be checked and exported.

use conductor_api::types::{AuditEntry, AuditReport, Page};
use conductor_store::{Result, Tx, principals::EventRow};

use crate::{Context, Engine, views::event_view};

const PIECE: usize = 500;

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
        let (mut after, mut before) = (0, Vec::new());
        loop {
            let context = self.context.clone();
            let previous = before.clone();
            let (page, broken, last) = self
                .db
                .read(move |tx| {
                    let page = tx.chain_after(context.organisation, after, PIECE)?;
                    let (mut at, mut previous) = (after, previous.clone());
                    for entry in &page {
                        at += 1;
                        let told = match &entry.event {
                            _ if entry.position != at => Some(format!("entry {at} is missing")),
                            None => Some(format!("the event of entry {at} is missing")),
                            Some(event) if hash(tx, &previous, event)? != entry.hash => {
                                Some(format!("entry {at} ({}) is not what was sealed", event.id))
                            }
                            Some(_) => None,
                        };
                        if told.is_some() {
                            return Ok((page.len(), told, previous));
                        }
                        previous = entry.hash.clone();
                    }
                    Ok((page.len(), None, previous))
                })
                .await?;
            if let Some(broken) = broken {
                return Ok(AuditReport { entries: after as u64, intact: false, broken: Some(broken) });
            }
            after += page as i64;
            before = last;
            if page < PIECE {
                return Ok(AuditReport { entries: after as u64, intact: true, broken: None });
            }
        }
    }

    /// The chain after a place, in order: what an export is made of.
    pub async fn audit(&self, after: i64, limit: usize) -> Result<Page<AuditEntry>> {
        self.seal_audit().await?;
        let organisation = self.context.organisation;
        let limit = limit.clamp(1, PIECE);
        let chain = self.db.read(move |tx| tx.chain_after(organisation, after, limit + 1)).await?;
        let more = chain.len() > limit;
        let items: Vec<AuditEntry> = chain
            .into_iter()
            .take(limit)
            .filter_map(|entry| {
                let hash = entry.hash.iter().map(|byte| format!("{byte:02x}")).collect();
                Some(AuditEntry { position: entry.position, hash, event: event_view(entry.event?) })
            })
            .collect();
        let next_cursor = items.last().filter(|_| more).map(|entry| entry.position.to_string());
        Ok(Page { items, next_cursor })
    }
}
