//! Opening a database: where it is, whether its schema fits, whether the key is the right one.

use std::{path::PathBuf, str::FromStr, sync::Arc};

use crate::{
    Db, Error, MasterKey, Result, SCHEMA,
    db::{Hub, Kind},
    migrate, params,
    postgres::{PgSession, Postgres},
    seal::Sealer,
    sqlite::{Sqlite, Turn, open_connection},
    tx::{Backend, Tx},
};

#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// `sqlite:PATH` or `postgres://…`.
    pub url: String,
    /// The key itself, when it is a setting.
    pub key: Option<String>,
    /// Where the key is kept otherwise; made when the database is new.
    pub key_file: PathBuf,
    /// Bring the schema up to date; SQLite always does.
    pub migrate: bool,
    pub connections: usize,
}

pub struct Opened {
    pub db: Db,
    pub migrated: bool,
    pub key_made: bool,
}

impl OpenOptions {
    pub fn is_postgres(&self) -> bool {
        self.url.starts_with("postgres://") || self.url.starts_with("postgresql://")
    }

    /// Blocking: called once, before anything else runs.
    pub fn open(&self) -> Result<Opened> {
        if self.is_postgres() { self.open_postgres() } else { self.open_sqlite() }
    }

    fn key(&self) -> Result<Option<MasterKey>> {
        match self.key.as_deref() {
            Some(text) => MasterKey::parse(text).map(Some),
            None => MasterKey::read(&self.key_file),
        }
    }

    /// The key, checked against the database's check row; both are made when the database has none.
    fn unlock(&self, tx: &mut Tx<'_>) -> Result<(Arc<Sealer>, bool)> {
        let check = tx.query_one("SELECT value FROM meta WHERE key = 'key-check'", &[])?;
        let (master, made) = match (self.key()?, &check) {
            (Some(key), _) => (key, false),
            (None, None) => {
                if let Some(folder) = self.key_file.parent() {
                    std::fs::create_dir_all(folder)
                        .map_err(|error| Error::Key(format!("{}: {error}", folder.display())))?;
                }
                (MasterKey::create(&self.key_file)?, true)
            }
            (None, Some(_)) => {
                return Err(Error::Key(format!(
                    "this database is sealed and its key is not here: set CONDUCTOR_KEY, or bring back {}",
                    self.key_file.display()
                )));
            }
        };
        let sealer = Sealer::new(&master);
        let check = match check {
            Some(row) => row.bytes(0)?.to_vec(),
            None => {
                let check = sealer.new_check()?;
                tx.execute("INSERT INTO meta (key, value) VALUES ('key-check', $1)", params![check.clone()])?;
                check
            }
        };
        sealer.open_check(&check)?;
        Ok((sealer, made))
    }

    fn open_sqlite(&self) -> Result<Opened> {
        let path = PathBuf::from(self.url.strip_prefix("sqlite:").unwrap_or(&self.url));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_private_folder(folder)?;
        }
        let lock = std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(format!("{}-writer", path.display()))
            .map_err(|error| Error::Unreachable(format!("{}: {error}", path.display())))?;
        let turn = Turn::take(&lock)?;
        let connection = open_connection(&path)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let placeholder = Sealer::new(&MasterKey::generate()?);
        let mut tx = Tx::new(Backend::Sqlite(&connection), placeholder);
        let migrated = migrate::run(&mut tx)?;
        let (sealer, key_made) = self.unlock(&mut tx)?;
        connection.execute_batch("COMMIT")?;
        drop(turn);
        let hub = Hub::new();
        let sqlite = Sqlite::start(&path, sealer.clone(), hub.clone())?;
        Ok(Opened { db: Db { kind: Arc::new(Kind::Sqlite(sqlite)), hub, sealer }, migrated, key_made })
    }

    fn open_postgres(&self) -> Result<Opened> {
        let config = tokio_postgres::Config::from_str(&self.url)
            .map_err(|error| Error::Unreachable(format!("the database address does not parse: {error}")))?;
        let mut session = PgSession::connect(&config)?;
        session.batch("BEGIN")?;
        let placeholder = Sealer::new(&MasterKey::generate()?);
        let mut tx = Tx::new(Backend::Postgres(&mut session), placeholder);
        let migrated = if self.migrate { migrate::run(&mut tx)? } else { false };
        let found = migrate::version(&mut tx)?;
        if found < SCHEMA {
            return Err(Error::OlderSchema { found });
        }
        if migrate::is_beyond_us(&mut tx)? {
            return Err(Error::NewerSchema);
        }
        tx.query("SELECT pg_advisory_xact_lock(7071)", &[])?;
        let (sealer, key_made) = self.unlock(&mut tx)?;
        session.flush()?;
        session.batch("COMMIT")?;
        let hub = Hub::new();
        let postgres = Postgres::start(config, self.connections, sealer.clone(), hub.clone())?;
        Ok(Opened { db: Db { kind: Arc::new(Kind::Postgres(postgres)), hub, sealer }, migrated, key_made })
    }
}

fn make_private_folder(folder: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| Error::Unreachable(format!("{}: {error}", folder.display())))
}
