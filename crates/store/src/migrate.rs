//! Migrations, built in: one text for both databases, run once each, in order.

use conductor_domain::lifecycle::{
    CHANGE_MOVES, ChangeStatus, OPERATION_MOVES, OperationStatus, STATE_MOVES, State,
};

use crate::{Error, Result, params, tx::Tx};

const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_start.sql")];

pub const SCHEMA: i64 = MIGRATIONS.len() as i64;

/// The version a database is at; 0 when it is empty.
pub(crate) fn version(tx: &mut Tx<'_>) -> Result<i64> {
    let there = if tx.is_postgres() {
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'meta'"
    } else {
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'meta'"
    };
    if tx.query_one(there, &[])?.map_or(Ok(0), |row| row.int(0))? == 0 {
        return Ok(0);
    }
    match tx.query_one("SELECT value FROM meta WHERE key = 'schema'", &[])? {
        Some(row) => parse(row.bytes(0)?),
        None => Ok(0),
    }
}

fn parse(bytes: &[u8]) -> Result<i64> {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::Corrupt("the schema version is damaged".into()))
}

/// Brings the database to this program's schema. Whoever comes second finds it done.
pub(crate) fn run(tx: &mut Tx<'_>) -> Result<bool> {
    if tx.is_postgres() {
        tx.query("SELECT pg_advisory_xact_lock(7070)", &[])?;
    }
    let at = version(tx)?;
    if at > SCHEMA {
        return Err(Error::NewerSchema);
    }
    for text in MIGRATIONS.iter().skip(at as usize) {
        for statement in statements(text) {
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
        let version = SCHEMA.to_string().into_bytes();
        tx.execute(
            "INSERT INTO meta (key, value) VALUES ('schema', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            params![version],
        )?;
    }
    Ok(at < SCHEMA)
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
            Some(row) => Ok(parse(row.bytes(0)?)? > SCHEMA),
            None => Ok(false),
        },
        // No table yet: the first migration is about to run.
        Err(_) => Ok(false),
    }
}
