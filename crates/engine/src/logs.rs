//! Reading logs: pages by sequence number, durable lines only, so that a client can always resume.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use conductor_api::types::{LogEntry, LogPage, Time};
use conductor_domain::{
    ids::{ChangeId, OperationId, ResourceId},
    work::Level,
};
use conductor_store::{
    Result, Tx,
    log_objects::{LogObject, open_bundle},
    logs::LogChunk,
};

use crate::{Context, Engine, changes::change, views::LogQuery};

const CHUNKS: i64 = 64;

impl Engine {
    /// Lines after `query.after`; waits up to `wait` for more while the change runs.
    pub async fn logs(&self, id: ChangeId, query: LogQuery, wait: Duration) -> Result<LogPage> {
        let until = Instant::now() + wait;
        let mut watch = self.db.watch();
        loop {
            watch.seen();
            let page = self.log_page(id, &query).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !page.items.is_empty() || page.done || left.is_zero() {
                return Ok(page);
            }
            watch.changed(left.min(Duration::from_secs(2))).await;
        }
    }

    /// One page, from wherever its lines are.
    async fn log_page(&self, id: ChangeId, query: &LogQuery) -> Result<LogPage> {
        let (context, asked) = (self.context.clone(), query.clone());
        let found = self.db.read(move |tx| {
            change(tx, &context, id)?;
            match tx.log_object(id, asked.after)? {
                Some(object) => Ok(Found::Outside(object)),
                None => page(tx, &context, id, &asked).map(Found::Page),
            }
        });
        let object = match found.await? {
            Found::Page(page) => return Ok(page),
            Found::Outside(object) => object,
        };
        let body = self.objects()?.get(&object.address).await?;
        let chunks = open_bundle(&self.db.sealer(), self.context.organisation, id, &body)?;
        let asked = query.clone();
        self.db
            .read(move |tx| view(tx, &asked, chunks.clone(), false))
            .await
            .map(|page| LogPage { next_after: page.next_after.max(object.last_seq), ..page })
    }
}

enum Found {
    Page(LogPage),
    Outside(LogObject),
}

fn page(tx: &mut Tx<'_>, context: &Context, id: ChangeId, query: &LogQuery) -> Result<LogPage> {
    // Looked at before the lines: when it is over now, no line comes after those read next.
    let over = change(tx, context, id)?.status.is_over();
    let chunks = tx.log_chunks(context.organisation, id, query.after, CHUNKS)?;
    let last_page = (chunks.len() as i64) < CHUNKS;
    view(tx, query, chunks, over && last_page)
}

/// Lines as people see them.
fn view(tx: &mut Tx<'_>, query: &LogQuery, chunks: Vec<LogChunk>, done: bool) -> Result<LogPage> {
    let mut next_after = query.after;
    let mut names: BTreeMap<OperationId, (Option<ResourceId>, Option<String>)> = BTreeMap::new();
    let mut items = Vec::new();
    for chunk in chunks {
        let (resource, name) = match names.get(&chunk.operation) {
            Some(known) => known.clone(),
            None => {
                let resource = tx.operation(chunk.operation)?.and_then(|row| row.resource);
                let name = match resource {
                    Some(resource) => tx.resource(resource)?.map(|row| row.name),
                    None => None,
                };
                names.insert(chunk.operation, (resource, name.clone()));
                (resource, name)
            }
        };
        for (seq, line) in (chunk.first_seq..).zip(chunk.lines) {
            if seq <= query.after {
                continue;
            }
            next_after = seq;
            let wanted = query.operation.is_none_or(|operation| operation == chunk.operation)
                && query.resource.is_none_or(|wanted| Some(wanted) == resource)
                && query.level.is_none_or(|level| line.level >= level)
                && query.since.is_none_or(|since| line.at >= since);
            if wanted {
                items.push(LogEntry {
                    seq,
                    at: Time(line.at),
                    level: level_word(line.level).into(),
                    stream: line.stream,
                    operation: chunk.operation,
                    resource,
                    name: name.clone(),
                    phase: line.phase.map(Into::into),
                    text: line.text,
                });
            }
        }
    }
    Ok(LogPage { items, next_after, done })
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error => "error",
    }
}
