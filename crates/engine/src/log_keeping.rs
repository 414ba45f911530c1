//! What becomes of the logs of changes that are over: they move out of the database where there is a place for them,
//! and go when they are old enough. In small transactions, object first: a crash leaves an object too many at worst,
//! and the next round writes the same one again.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_domain::ids::ChangeId;
use conductor_store::{Error, Result};
use tokio_util::sync::CancellationToken;

use crate::{Engine, alerts::micros};

const EVERY: Duration = Duration::from_secs(5);
/// Something may still be read, retried or adopted right after the end.
const SETTLED: Duration = Duration::from_secs(5);
/// From time to time everything is looked at again: clocks differ, and what was retried ends anew.
const ALL_AGAIN: Duration = Duration::from_secs(3_600);
const CHANGES: i64 = 100;
const CHUNKS: i64 = 500;
/// Lines in one object, in bytes.
const OBJECT: usize = 8 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogKeeping {
    /// How long after its end a change's log is kept; for ever when left out.
    pub retention: Option<Duration>,
}

/// How far a process has come.
#[derive(Default)]
struct Cursor {
    moved: i64,
    deleted: i64,
}

impl Engine {
    pub async fn run_log_keeping(self: Arc<Self>, keeping: LogKeeping, stop: CancellationToken) {
        let mut cursor = Cursor::default();
        let mut since = Instant::now();
        loop {
            if since.elapsed() > ALL_AGAIN {
                (cursor, since) = (Cursor::default(), Instant::now());
            }
            if let Err(error) = self.keep_logs(&keeping, &mut cursor).await {
                tracing::warn!(%error, "logs could not be put away; the next round tries again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    async fn keep_logs(&self, keeping: &LogKeeping, cursor: &mut Cursor) -> Result<()> {
        let now = self.context.now();
        if let Some(retention) = keeping.retention {
            let until = now - micros(retention);
            while let Some((changes, last)) = self.ended(cursor.deleted, until).await? {
                for change in changes {
                    self.delete_log(change).await?;
                }
                cursor.deleted = last;
            }
        }
        if self.log_objects.get().is_some() {
            let until = now - micros(SETTLED);
            while let Some((changes, last)) = self.ended(cursor.moved, until).await? {
                for change in changes {
                    self.move_log(change).await?;
                }
                cursor.moved = last;
            }
        }
        Ok(())
    }

    /// The next changes that ended after `after`, and how far that is.
    async fn ended(&self, after: i64, until: i64) -> Result<Option<(Vec<ChangeId>, i64)>> {
        let organisation = self.context.organisation;
        let found = self.db.read(move |tx| tx.changes_ended(organisation, after, until, CHANGES)).await?;
        let last = found.last().map(|(_, at)| *at);
        // Of those that ended in the same moment none is passed over.
        let last = last.map(|last| if found.len() as i64 == CHANGES { last - 1 } else { last });
        let changes = found.into_iter().map(|(id, _)| id).collect();
        Ok(last.map(|last| (changes, last.max(after + 1))))
    }

    async fn delete_log(&self, change: ChangeId) -> Result<()> {
        while self.db.write(move |tx| tx.delete_log(change, CHUNKS)).await? == CHUNKS as u64 {}
        while let Some(object) = self.db.read(move |tx| tx.log_object(change, 0)).await? {
            self.objects()?.delete(&object.address).await?;
            self.db.write(move |tx| tx.forget_log_object(change, object.first_seq)).await?;
        }
        Ok(())
    }

    async fn move_log(&self, change: ChangeId) -> Result<()> {
        let organisation = self.context.organisation;
        while let Some(bundle) = self.db.read(move |tx| tx.bundle_log(organisation, change, OBJECT)).await? {
            let key = format!("logs/{organisation}/{change}/{}-{}", bundle.first_seq, bundle.last_seq);
            let packed = (bundle.first_seq, bundle.last_seq, bundle.rows);
            let address = self.objects()?.put(&key, bundle.body).await?;
            let now = self.context.now();
            let moved =
                self.db.write(move |tx| tx.log_moved(organisation, change, packed, &address, now)).await;
            match moved {
                Ok(true) => {}
                // Retried, or another server was faster.
                Ok(false) | Err(Error::Taken(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
