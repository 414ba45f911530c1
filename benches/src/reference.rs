//! The least that does the same commits: small rows, no features, statements sent together.
//!
//! A deployment is one row and six rows of work, of which the last waits for the other five. Both databases get
//! what a good engineer would write by hand for them: prepared and pipelined on PostgreSQL with `SKIP LOCKED`,
//! one writer on SQLite, with group commit where that is asked for.

use std::path::Path;

use crossbeam_channel::{Sender, unbounded};
use futures_util::try_join;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::oneshot;
use tokio_postgres::{Client, Statement};

use crate::{Outcome, house::RESOURCES, postgres};

/// Ids of the work of one deployment lie this far apart.
pub const STEP: i64 = 8;
/// As many as our own writer joins.
pub const GROUP: usize = 128;
const LAST: i64 = RESOURCES as i64;
const SPEC: &str = r#"{"size":3}"#;
const OUTPUTS: &str = r#"{"host":"thing.example.internal"}"#;

const SCHEMA: &str = "
    CREATE TABLE places (id BIGINT PRIMARY KEY);
    CREATE TABLE changes (id BIGINT PRIMARY KEY, place BIGINT NOT NULL, status BIGINT NOT NULL, open BIGINT NOT NULL);
    CREATE TABLE work (id BIGINT PRIMARY KEY, change_id BIGINT NOT NULL, status BIGINT NOT NULL, fence BIGINT NOT NULL,
        name TEXT NOT NULL, spec TEXT NOT NULL, outputs TEXT);
    CREATE INDEX work_ready ON work (id) WHERE status = 1;";
const LOG_SCHEMA: &str = "CREATE TABLE lines (change_id BIGINT NOT NULL, seq BIGINT NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (change_id, seq));";

/// Blocked 0, queued 1, running 2, done 3.
const INSERT_CHANGE: &str = "INSERT INTO changes (id, place, status, open) VALUES ($1, $2, 1, $3)";
const INSERT_WORK: &str =
    "INSERT INTO work (id, change_id, status, fence, name, spec) VALUES ($1, $2, $3, 0, $4, $5)";
const DONE: &str = "UPDATE work SET status = 3, outputs = $2 WHERE id = $1 AND status = 2";
const LOG: &str = "INSERT INTO lines (change_id, seq, body) VALUES ($1, $2, $3)";
const COUNT: &str = "UPDATE changes SET open = open - 1 WHERE id = $1";
const RELEASE: &str =
    "UPDATE work SET status = 1 WHERE id = $1 AND (SELECT open FROM changes WHERE id = $2) = 1";
const END: &str = "UPDATE changes SET open = 0, status = 2 WHERE id = $1";

#[derive(Clone)]
pub enum Raw {
    Postgres(std::sync::Arc<RawPostgres>),
    Sqlite(Sender<Job>),
}

pub struct RawPostgres {
    pub client: Client,
    statements: Statements,
}

struct Statements {
    lock: Statement,
    change: Statement,
    work: Statement,
    claim: Statement,
    done: Statement,
    log: Statement,
    count: Statement,
    release: Statement,
    end: Statement,
}

pub async fn create_postgres(url: &str) -> Outcome {
    let client = postgres::connect(url).await?;
    client.batch_execute(&format!("{SCHEMA}{LOG_SCHEMA}")).await?;
    client.batch_execute("INSERT INTO places SELECT generate_series(0, 63)").await?;
    Ok(())
}

impl RawPostgres {
    pub async fn connect(url: &str) -> Outcome<Raw> {
        let client = postgres::connect(url).await?;
        let claim = "UPDATE work SET status = 2, fence = fence + 1 WHERE id =
            (SELECT id FROM work WHERE status = 1 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id";
        let all = "INSERT INTO work (id, change_id, status, fence, name, spec)
            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])";
        let statements = Statements {
            lock: client.prepare("SELECT id FROM places WHERE id = $1 FOR UPDATE").await?,
            change: client.prepare(INSERT_CHANGE).await?,
            work: client.prepare(all).await?,
            claim: client.prepare(claim).await?,
            done: client.prepare(DONE).await?,
            log: client.prepare(LOG).await?,
            count: client.prepare(COUNT).await?,
            release: client.prepare(RELEASE).await?,
            end: client.prepare(END).await?,
        };
        Ok(Raw::Postgres(std::sync::Arc::new(Self { client, statements })))
    }

    async fn deploy(&self, change: i64, resources: usize) -> Outcome {
        let (client, with) = (&self.client, &self.statements);
        let count = resources + 1;
        let ids: Vec<i64> = work_ids(change, resources);
        let statuses: Vec<i64> = (0..count).map(|i| i64::from(i < resources || resources == 0)).collect();
        let (changes, fences) = (vec![change; count], vec![0i64; count]);
        let (names, specs) = (vec!["app-r0"; count], vec![SPEC; count]);
        let open = count as i64;
        let place = change % 64;
        try_join!(
            client.batch_execute("BEGIN"),
            async { client.query(&with.lock, &[&place]).await.map(drop) },
            async { client.execute(&with.change, &[&change, &place, &open]).await.map(drop) },
            async {
                client
                    .execute(&with.work, &[&ids, &changes, &statuses, &fences, &names, &specs])
                    .await
                    .map(drop)
            },
            client.batch_execute("COMMIT"),
        )?;
        Ok(())
    }

    async fn complete(&self, id: i64, log: &[u8]) -> Outcome {
        let (client, with) = (&self.client, &self.statements);
        let (change, last) = (id / STEP, id / STEP * STEP + LAST);
        let begin = client.batch_execute("BEGIN");
        let done = async { client.execute(&with.done, &[&id, &OUTPUTS]).await.map(drop) };
        let commit = client.batch_execute("COMMIT");
        if id == last {
            let end = async { client.execute(&with.end, &[&change]).await.map(drop) };
            try_join!(begin, done, end, commit)?;
            return Ok(());
        }
        let seq = id % STEP;
        let log = async { client.execute(&with.log, &[&change, &seq, &log]).await.map(drop) };
        let count = async { client.execute(&with.count, &[&change]).await.map(drop) };
        let release = async { client.execute(&with.release, &[&last, &change]).await.map(drop) };
        try_join!(begin, done, log, count, release, commit)?;
        Ok(())
    }
}

/// With no resources there is only the last.
fn work_ids(change: i64, resources: usize) -> Vec<i64> {
    let first = if resources == 0 { LAST } else { 0 };
    (first..=LAST).map(|i| change * STEP + i).collect()
}

/// Run by the writer inside its transaction; told once that is durable.
pub type Job = Box<dyn FnOnce(&Connection) -> rusqlite::Result<Box<dyn FnOnce() + Send>> + Send>;

/// `group` is how many jobs may share a commit.
pub fn open_sqlite(path: &Path, group: usize) -> Outcome<Raw> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.execute_batch(&format!("{SCHEMA}{LOG_SCHEMA}"))?;
    let (jobs, queue) = unbounded::<Job>();
    std::thread::spawn(move || {
        while let Ok(first) = queue.recv() {
            let commit = || -> rusqlite::Result<Vec<Box<dyn FnOnce() + Send>>> {
                connection.execute_batch("BEGIN IMMEDIATE")?;
                let mut answers = vec![first(&connection)?];
                while answers.len() < group {
                    let Ok(job) = queue.try_recv() else { break };
                    answers.push(job(&connection)?);
                }
                connection.execute_batch("COMMIT")?;
                Ok(answers)
            };
            match commit() {
                Ok(answers) => answers.into_iter().for_each(|answer| answer()),
                // Those who wait see their channel closed.
                Err(error) => {
                    eprintln!("reference: {error}");
                    return;
                }
            }
        }
    });
    Ok(Raw::Sqlite(jobs))
}

async fn submit<T: Send + 'static>(
    jobs: &Sender<Job>,
    body: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Outcome<T> {
    let (reply, answer) = oneshot::channel();
    let job: Job = Box::new(move |connection| {
        let result = body(connection)?;
        Ok(Box::new(move || drop(reply.send(result))))
    });
    jobs.send(job).map_err(|_| "the reference's writer is gone")?;
    Ok(answer.await?)
}

fn run(connection: &Connection, sql: &str, with: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(with).map(drop)
}

impl Raw {
    pub async fn deploy(&self, change: i64, resources: usize) -> Outcome {
        match self {
            Self::Postgres(postgres) => postgres.deploy(change, resources).await,
            Self::Sqlite(jobs) => {
                submit(jobs, move |connection| {
                    run(connection, INSERT_CHANGE, params![change, change % 64, resources as i64 + 1])?;
                    for id in work_ids(change, resources) {
                        let status = i64::from(id % STEP != LAST || resources == 0);
                        run(connection, INSERT_WORK, params![id, change, status, "app-r0", SPEC])?;
                    }
                    Ok(())
                })
                .await
            }
        }
    }

    pub async fn claim(&self) -> Outcome<Option<i64>> {
        match self {
            Self::Postgres(postgres) => {
                let row = postgres.client.query_opt(&postgres.statements.claim, &[]).await?;
                Ok(row.map(|row| row.get(0)))
            }
            Self::Sqlite(jobs) => {
                submit(jobs, |connection| {
                    let sql = "UPDATE work SET status = 2, fence = fence + 1 WHERE id =
                        (SELECT id FROM work WHERE status = 1 ORDER BY id LIMIT 1) RETURNING id";
                    connection.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()
                })
                .await
            }
        }
    }

    /// Whether it was the last of its deployment, and whether that one may start now is the database's to say.
    pub async fn complete(&self, id: i64, log: &[u8]) -> Outcome {
        match self {
            Self::Postgres(postgres) => postgres.complete(id, log).await,
            Self::Sqlite(jobs) => {
                let log = log.to_vec();
                submit(jobs, move |connection| {
                    let (change, last) = (id / STEP, id / STEP * STEP + LAST);
                    run(connection, DONE, params![id, OUTPUTS])?;
                    if id == last {
                        return run(connection, END, params![change]);
                    }
                    run(connection, LOG, params![change, id % STEP, log])?;
                    run(connection, COUNT, params![change])?;
                    run(connection, RELEASE, params![last, change])
                })
                .await
            }
        }
    }

    /// Lines of a burst, one chunk a commit.
    pub async fn append(&self, change: i64, seq: i64, body: &[u8]) -> Outcome {
        match self {
            Self::Postgres(postgres) => {
                postgres.client.execute(&postgres.statements.log, &[&change, &seq, &body]).await?;
                Ok(())
            }
            Self::Sqlite(jobs) => {
                let body = body.to_vec();
                submit(jobs, move |connection| run(connection, LOG, params![change, seq, body])).await
            }
        }
    }
}

pub fn is_last(id: i64) -> bool {
    id % STEP == LAST
}
