//! The only place with SQL, and with sealing: one text, two databases.
//!
//! A use case is a closure over [`Tx`] run by [`Db::write`]; one file per aggregate holds its statements.

pub mod alerts;
pub mod approvals;
pub mod audit;
pub mod catalogue;
pub mod changes;
pub mod consumers;
mod counters;
mod db;
pub mod dependencies;
mod drift;
pub mod gauges;
pub mod grants;
pub mod integrations;
pub mod log_objects;
pub mod logs;
pub mod matching;
mod migrate;
pub mod objects;
mod open;
pub mod operations;
pub mod pools;
mod postgres;
pub mod principals;
pub mod proposals;
mod request;
pub mod resources;
mod seal;
pub mod sight;
mod sqlite;
pub mod states;
mod tx;
mod value;
mod workspaces;

pub use counters::{BUCKETS, Counted, Histogram};
pub use db::{Db, Watch};
pub use migrate::SCHEMA;
pub use open::{OpenOptions, Opened};
pub use request::in_request;
pub use seal::{MasterKey, Owner, Sealer, is_sealed};
pub use tx::{Tx, placeholders};
pub use value::{Row, Value};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Unreachable(String),
    #[error("the database was upgraded by a newer version of this program")]
    NewerSchema,
    #[error("the database has schema {found}, this program needs {SCHEMA}")]
    OlderSchema { found: i64 },
    #[error("{0}")]
    Key(String),
    /// Somebody else was first; the same once more may succeed.
    #[error("{0}")]
    Busy(String),
    /// A unique key is taken.
    #[error("`{0}` is taken")]
    Taken(String),
    /// A guarded write found the row in another state than it names.
    #[error("what `{0}` was about has moved on")]
    Moved(String),
    #[error("{0}")]
    Database(String),
    #[error("the database holds something it should not: {0}")]
    Corrupt(String),
    /// A use case's own no; carried through as it is.
    #[error("{message}")]
    Refused { code: conductor_domain::lifecycle::ErrorCode, message: String, detail: Box<serde_json::Value> },
}

impl Error {
    pub(crate) fn may_retry(&self) -> bool {
        matches!(self, Self::Busy(_) | Self::Moved(_) | Self::Taken(_))
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::SqliteFailure(code, message) => {
                let message = message.clone().unwrap_or_else(|| code.to_string());
                match code.code {
                    rusqlite::ErrorCode::ConstraintViolation if message.starts_with("UNIQUE") => {
                        Self::Taken(message)
                    }
                    rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked => {
                        Self::Busy(message)
                    }
                    rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::NotADatabase => {
                        Self::Unreachable(message)
                    }
                    _ => Self::Database(message),
                }
            }
            _ => Self::Database(error.to_string()),
        }
    }
}
