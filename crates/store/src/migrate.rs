//! Migrations, built in: one text for both databases, run once each, in order.

use conductor_domain::lifecycle::{
    CHANGE_MOVES, ChangeStatus, OPERATION_MOVES, OperationStatus, STATE_MOVES, State,
};

use crate::{Error, Result, params, tx::Tx};

struct Migration {
    text: &'static str,
    /// Programs that do not know it cannot go on working. All others only add: an older program runs beside a newer
    /// one until it is replaced.
    breaking: bool,
}

const MIGRATIONS: &[Migration] = &[
    Migration { text: include_str!("migrations/0001_start.sql"), breaking: true },
    Migration { text: include_str!("migrations/0002_states.sql"), breaking: false },
    Migration { text: include_str!("migrations/0003_integrations.sql"), breaking: false },
    Migration { text: include_str!("migrations/0004_alerts.sql"), breaking: false },
    Migration { text: include_str!("migrations/0005_audit.sql"), breaking: false },
    Migration { text: include_str!("migrations/0006_lookups.sql"), breaking: false },
    Migration { text: include_str!("migrations/0007_life.sql"), breaking: false },
    Migration { text: include_str!("migrations/0008_rights.sql"), breaking: false },
    Migration { text: include_str!("migrations/0009_tokens.sql"), breaking: false },
];

/// How many this program knows.
pub const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// The last one that older programs must not meet.
const BREAKING: i64 = {
    let mut last = 0;
    let mut at = 0;
    while at < MIGRATIONS.len() {
        if MIGRATIONS[at].breaking {
            last = at as i64 + 1;
        }
        at += 1;
    }
    last
};

/// How many a database has seen; 0 when it is empty.
pub(crate) fn version(tx: &mut Tx<'_>) -> Result<i64> {
    let there = if tx.is_postgres() {
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'meta'"
    } else {
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    };
    if tx.query_one(there, &[])?.map_or(Ok(0), |row| row.int(0))? == 0 {
        return Ok(0);
    }
    match noted(tx, "migrations")? {
        Some(count) => Ok(count),
        None => Ok(noted(tx, "schema")?.unwrap_or(0)),
    }
}

fn noted(tx: &mut Tx<'_>, key: &str) -> Result<Option<i64>> {
    let row = tx.query_one("SELECT value FROM meta WHERE key = $1", params![key])?;
    row.map(|row| parse(row.bytes(0)?)).transpose()
}

fn parse(bytes: &[u8]) -> Result<i64> {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::Corrupt("the schema version is damaged".into()))
}

impl Tx<'_> {
    /// Whether this program can work on the database as it is now: everything it needs is there, and nothing that it
    /// does not understand.
    pub fn schema_fits(&mut self) -> Result<bool> {
        Ok(version(self)? >= SCHEMA && !is_beyond_us(self)?)
    }
}

/// Brings the database to this program's schema. Whoever comes second finds it done.
pub(crate) fn run(tx: &mut Tx<'_>) -> Result<bool> {
    if tx.is_postgres() {
        tx.query("SELECT pg_advisory_xact_lock(7070)", &[])?;
    }
    let at = version(tx)?;
    if at > 0 && is_beyond_us(tx)? {
        return Err(Error::NewerSchema);
    }
    for migration in MIGRATIONS.iter().skip(at as usize) {
        for statement in statements(migration.text) {
            let statement = with_moves(&statement);
            let statement = if tx.is_postgres() {
                statement.replace("/*rowid*/", "").replace("/*busy*/", "WITH (fillfactor = 70)")
            } else {
                statement
                    .replace("BYTEA", "BLOB")
                    .replace("/*rowid*/", "WITHOUT ROWID")
                    .replace("/*busy*/", "WITHOUT ROWID")
            };
            tx.execute(&statement, &[])?;
        }
    }
    if at < SCHEMA {
        for (key, value) in [("schema", BREAKING), ("migrations", SCHEMA)] {
            tx.execute(
                "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                params![key, value.to_string().into_bytes()],
            )?;
        }
    }
    Ok(at < SCHEMA)
}

/// A newer program changed what this one relies on.
pub(crate) fn is_beyond_us(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(noted(tx, "schema")?.is_some_and(|breaking| breaking > BREAKING))
}

fn statements(text: &str) -> impl Iterator<Item = String> {
    let without_comments: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let statements: Vec<String> =
        without_comments.join("\n").split(';').map(|s| s.trim().to_owned()).collect();
    statements.into_iter().filter(|statement| !statement.is_empty())
}

/// `'a>b', …`: every move that is allowed, and staying.
fn moves<T: Copy>(all: &[T], moves: &[(T, T)], word: fn(T) -> &'static str) -> String {
    let staying = all.iter().map(|&one| (one, one));
    let every = staying.chain(moves.iter().copied());
    every.map(|(prev, next)| format!("'{}>{}'", word(prev), word(next))).collect::<Vec<_>>().join(", ")
}

fn with_moves(statement: &str) -> String {
    statement
        .replace("/*state moves*/", &moves(State::ALL, STATE_MOVES, State::as_str))
        .replace(
            "/*operation moves*/",
            &moves(OperationStatus::ALL, OPERATION_MOVES, OperationStatus::as_str),
        )
        .replace("/*change moves*/", &moves(ChangeStatus::ALL, CHANGE_MOVES, ChangeStatus::as_str))
}

/// Another process may have migrated further while this one was running.
pub(crate) fn schema_is_newer(connection: &rusqlite::Connection) -> Result<bool> {
    let row = crate::sqlite::query(connection, "SELECT value FROM meta WHERE key = 'schema'", &[]);
    match row {
        Ok(rows) => match rows.first() {
            Some(row) => Ok(parse(row.bytes(0)?)? > BREAKING),
            None => Ok(false),
        },
        // No table yet: the first migration is about to run.
        Err(_) => Ok(false),
    }
}
