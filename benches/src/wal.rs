//! What a stretch of work cost the database: transactions that wrote, and bytes of write-ahead log.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::{Outcome, postgres};

const FILE_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    pub writes: f64,
    pub bytes: f64,
    /// Also those that only read; PostgreSQL alone counts them.
    pub all: Option<f64>,
    pub rolled_back: Option<f64>,
}

pub enum Meter {
    Postgres {
        client: tokio_postgres::Client,
        before: [f64; 4],
    },
    /// An open reader keeps the log from starting over, so that the file holds everything written since.
    Sqlite {
        reader: Connection,
        wal: PathBuf,
    },
}

impl Meter {
    pub async fn start(url: &str) -> Outcome<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let reader = Connection::open(path)?;
            reader.busy_timeout(std::time::Duration::from_secs(5))?;
            reader.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            reader.execute_batch("BEGIN")?;
            reader.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            return Ok(Self::Sqlite { reader, wal: PathBuf::from(format!("{path}-wal")) });
        }
        let client = postgres::connect(url).await?;
        let before = counters(&client).await?;
        // Only there when asked for.
        if client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements").await.is_ok() {
            let _ = client.batch_execute("SELECT pg_stat_statements_reset()").await;
        }
        Ok(Self::Postgres { client, before })
    }

    /// The cost of each of `count` things since the start.
    pub async fn stop(self, count: f64) -> Outcome<Cost> {
        match self {
            Self::Postgres { client, before } => {
                let after = counters(&client).await?;
                tell_statements(&client, count).await;
                let each = |i: usize| (after[i] - before[i]) / count;
                Ok(Cost { writes: each(0), bytes: each(1), all: Some(each(2)), rolled_back: Some(each(3)) })
            }
            Self::Sqlite { reader, wal } => {
                let (commits, bytes) = read_wal(&wal)?;
                drop(reader);
                Ok(Cost {
                    writes: commits as f64 / count,
                    bytes: bytes as f64 / count,
                    all: None,
                    rolled_back: None,
                })
            }
        }
    }
}

/// Transaction ids handed out (only writers get one), log position, commits of every kind, what was rolled back.
async fn counters(client: &tokio_postgres::Client) -> Outcome<[f64; 4]> {
    // Sessions report their commits about once a second.
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    let row = client
        .query_one(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::float8,
                    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8,
                    xact_commit::float8, xact_rollback::float8
             FROM pg_stat_database WHERE datname = current_database()",
            &[],
        )
        .await?;
    Ok([row.get(0), row.get(1), row.get(2), row.get(3)])
}

/// Commits and bytes in a log that was empty at the start: a frame that ends a commit names the size of the database.
fn read_wal(path: &Path) -> Outcome<(usize, usize)> {
    let log = std::fs::read(path)?;
    let Some(header) = log.get(..FILE_HEADER) else {
        return Ok((0, 0));
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0usize, |number, byte| number << 8 | usize::from(*byte));
    let frame = number(&header[8..12]) + FRAME_HEADER;
    let salt = &header[16..24];
    let frames = log[FILE_HEADER..].chunks_exact(frame).take_while(|frame| &frame[8..16] == salt);
    let (mut commits, mut count) = (0, 0);
    for frame in frames {
        count += 1;
        commits += usize::from(number(&frame[4..8]) != 0);
    }
    Ok((commits, count * frame))
}

/// What PostgreSQL was asked, most time first, where it was told to count.
async fn tell_statements(client: &tokio_postgres::Client, count: f64) {
    let asked = "SELECT calls::float8, total_exec_time, wal_bytes::float8,
            regexp_replace(left(query, 150), '\\s+', ' ', 'g')
        FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
        WHERE datname = current_database() ORDER BY calls DESC LIMIT 60";
    let Ok(rows) = client.query(asked, &[]).await else {
        return;
    };
    let total: f64 = rows.iter().map(|row| row.get::<_, f64>(0)).sum();
    eprintln!("  {:.1} statements each: calls, ms, log bytes", total / count);
    for row in rows {
        let each = |i: usize| row.get::<_, f64>(i) / count;
        eprintln!("  {:>7.2} {:>7.3} {:>7.0}  {}", each(0), each(1), each(2), row.get::<_, String>(3));
    }
}
