//! A transaction, the same on both databases: statements are text, `$1` and so on are the parameters.
//!
//! Synchronous on purpose. A use case is a plain closure that runs on the thread of its connection: inside
//! SQLite's one writer, or on one of PostgreSQL's connection threads. Nothing else can run between two of its
//! statements on that connection, and nothing in it can wait for anything but the database.

use std::sync::Arc;

use crate::{Error, Result, Row, Value, counters::Tally, postgres::PgSession, seal::Sealer};

pub(crate) enum Backend<'a> {
    Sqlite(&'a rusqlite::Connection),
    Postgres(&'a mut PgSession),
}

/// How many rows a deferred write must touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    Any,
    One,
}

pub struct Tx<'a> {
    pub(crate) backend: Backend<'a>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) wake: bool,
    pub(crate) made_queue: bool,
    pub(crate) tally: Tally,
    /// What it is done for.
    pub(crate) request: Option<Arc<str>>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(backend: Backend<'a>, sealer: Arc<Sealer>) -> Self {
        Self { backend, sealer, wake: false, made_queue: false, tally: Tally::default(), request: None }
    }

    pub fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        match &mut self.backend {
            Backend::Sqlite(connection) => crate::sqlite::query(connection, sql, params),
            Backend::Postgres(session) => session.query(sql, params),
        }
    }

    pub fn query_one(&mut self, sql: &str, params: &[Value]) -> Result<Option<Row>> {
        Ok(self.query(sql, params)?.into_iter().next())
    }

    /// Runs a write now and tells how many rows it touched.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64> {
        match &mut self.backend {
            Backend::Sqlite(connection) => crate::sqlite::execute(connection, sql, params),
            Backend::Postgres(session) => session.execute(sql, params),
        }
    }

    /// A write whose answer is not needed before the next read or the commit: PostgreSQL gets it together with
    /// what follows, in one round trip.
    pub fn put(&mut self, sql: &str, params: &[Value]) -> Result<()> {
        self.put_expecting(sql, params, Expect::Any)
    }

    /// A deferred write that must touch exactly one row: the state it names has been left otherwise.
    pub fn put_one(&mut self, sql: &str, params: &[Value]) -> Result<()> {
        self.put_expecting(sql, params, Expect::One)
    }

    fn put_expecting(&mut self, sql: &str, params: &[Value], expect: Expect) -> Result<()> {
        match &mut self.backend {
            Backend::Sqlite(connection) => {
                check(expect, crate::sqlite::execute(connection, sql, params)?, sql)
            }
            Backend::Postgres(session) => session.defer(sql, params, expect),
        }
    }

    /// Many rows of one table in one statement: `head` ends in `VALUES`, `tail` follows them.
    pub fn put_rows(&mut self, head: &str, rows: &[Vec<Value>], tail: &str) -> Result<()> {
        for piece in rows.chunks(64) {
            let mut next = 1;
            let tuples: Vec<String> = piece
                .iter()
                .map(|row| {
                    let tuple = format!("({})", placeholders(next, row.len()));
                    next += row.len();
                    tuple
                })
                .collect();
            let values: Vec<Value> = piece.iter().flatten().cloned().collect();
            self.put(&format!("{head} {} {tail}", tuples.join(", ")), &values)?;
        }
        Ok(())
    }

    /// Somebody may be waiting for what this transaction does.
    pub fn wake(&mut self) {
        self.wake = true;
    }

    /// A queue was made in here and may yet be rolled back.
    pub fn made_queue(&self) -> bool {
        self.made_queue
    }

    pub fn sealer(&self) -> Arc<Sealer> {
        self.sealer.clone()
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.backend, Backend::Postgres(_))
    }
}

pub(crate) fn check(expect: Expect, touched: u64, sql: &str) -> Result<()> {
    if expect == Expect::One && touched != 1 {
        return Err(Error::Moved(sql.split_whitespace().take(3).collect::<Vec<_>>().join(" ")));
    }
    Ok(())
}

/// `$3, $4, $5` for a list that starts at parameter `first`.
pub fn placeholders(first: usize, count: usize) -> String {
    (first..first + count).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ")
}
