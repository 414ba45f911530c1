//! SQLite: one writer per process with group commit, a few readers, several processes on one folder.
//!
//! The writer runs queued closures, each in a savepoint of its own, inside one `BEGIN IMMEDIATE`; they hear of
//! their success after the commit. Between processes a blocking `flock` keeps the writers in line: SQLite's own
//! busy handler sleeps and starves.

use std::{
    fs::File,
    os::fd::AsFd,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use rusqlite::{Connection, OpenFlags};

use crate::{
    Error, Result, Row, Value,
    counters::Tally,
    db::{Hub, Work},
    seal::Sealer,
    tx::{Backend, Tx},
};

const READERS: usize = 4;
/// Closures per commit at most, so that the first of them does not wait for ever.
const GROUP: usize = 128;
/// How often a process that waits looks whether another one committed.
const LOOK: Duration = Duration::from_millis(12);

pub(crate) struct Sqlite {
    pub writer: Sender<Box<dyn Work>>,
    pub readers: Sender<Box<dyn Work>>,
}

pub(crate) fn open_connection(path: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(Duration::from_secs(20))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -16_000)?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.set_prepared_statement_cache_capacity(256);
    Ok(connection)
}

impl Sqlite {
    pub fn start(path: &Path, sealer: Arc<Sealer>, hub: Arc<Hub>) -> Result<Self> {
        let (writer, writes) = unbounded();
        let (readers, reads) = unbounded();
        let connection = open_connection(path)?;
        let lock = lock_file(path)?;
        spawn("sqlite-writer", {
            let (sealer, hub) = (sealer.clone(), hub.clone());
            move || write_loop(&connection, &lock, &writes, &sealer, &hub)
        })?;
        for i in 0..READERS {
            let (connection, reads, sealer) = (open_connection(path)?, reads.clone(), sealer.clone());
            spawn(&format!("sqlite-reader-{i}"), move || read_loop(&connection, &reads, &sealer))?;
        }
        spawn("sqlite-watch", {
            let connection = open_connection(path)?;
            move || watch_loop(&connection, &hub)
        })?;
        Ok(Self { writer, readers })
    }
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .map_err(|error| Error::Unreachable(format!("no thread for {name}: {error}")))
}

fn lock_file(path: &Path) -> Result<File> {
    let mut lock = PathBuf::from(path).into_os_string();
    lock.push("-writer");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock)
        .map_err(|error| Error::Unreachable(format!("{}: {error}", Path::new(&lock).display())))
}

/// Holds the line between processes while it lives.
pub(crate) struct Turn<'a>(&'a File);

impl<'a> Turn<'a> {
    #[allow(deprecated, reason = "the owning variant would take the file away from the loop")]
    pub fn take(file: &'a File) -> Result<Self> {
        use std::os::fd::AsRawFd;
        loop {
            match nix::fcntl::flock(file.as_fd().as_raw_fd(), nix::fcntl::FlockArg::LockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(Error::Unreachable(format!("lock: {error}"))),
            }
        }
    }
}

impl Drop for Turn<'_> {
    #[allow(deprecated, reason = "as above")]
    fn drop(&mut self) {
        use std::os::fd::AsRawFd;
        let _ = nix::fcntl::flock(self.0.as_fd().as_raw_fd(), nix::fcntl::FlockArg::Unlock);
    }
}

fn write_loop(
    connection: &Connection,
    lock: &File,
    writes: &Receiver<Box<dyn Work>>,
    sealer: &Arc<Sealer>,
    hub: &Arc<Hub>,
) {
    while let Ok(first) = writes.recv() {
        let mut done: Vec<Box<dyn Work>> = Vec::new();
        let (mut wake, mut tallies) = (false, Vec::new());
        let result = (|| {
            let _turn = Turn::take(lock)?;
            connection.execute_batch("BEGIN IMMEDIATE")?;
            let newer = crate::migrate::schema_is_newer(connection);
            let mut next = Some(first);
            while let Some(mut work) = next.take() {
                match &newer {
                    Ok(false) => {
                        if let Some((wakes, tally)) = run_in_savepoint(connection, work.as_mut(), sealer) {
                            wake |= wakes;
                            tallies.push(tally);
                        }
                    }
                    Ok(true) => work.refuse(Error::NewerSchema),
                    Err(error) => work.refuse(Error::Corrupt(error.to_string())),
                }
                done.push(work);
                if done.len() < GROUP {
                    next = writes.try_recv().ok();
                }
            }
            connection.execute_batch("COMMIT").inspect_err(|_| {
                let _ = connection.execute_batch("ROLLBACK");
            })?;
            Ok::<(), Error>(())
        })();
        if result.is_ok() {
            tallies.into_iter().for_each(|tally| hub.counters.committed(tally));
        }
        let outcome = result.map_err(|error| error.to_string());
        for work in done {
            work.reply(outcome.clone());
        }
        if wake {
            hub.local();
        }
    }
}

/// Whether somebody is to be woken, and what there is to count. A closure that fails or panics leaves nothing behind.
fn run_in_savepoint(
    connection: &Connection,
    work: &mut dyn Work,
    sealer: &Arc<Sealer>,
) -> Option<(bool, Tally)> {
    let attempt = std::panic::catch_unwind(AssertUnwindSafe(|| {
        connection.execute_batch("SAVEPOINT work")?;
        let mut tx = Tx::new(Backend::Sqlite(connection), sealer.clone());
        let kept = work.run(&mut tx);
        let (wake, tally) = (tx.wake, tx.tally);
        connection.execute_batch(if kept { "RELEASE work" } else { "ROLLBACK TO work; RELEASE work" })?;
        Ok::<_, Error>(kept.then_some((wake, tally)))
    }));
    match attempt {
        Ok(Ok(kept)) => kept,
        Ok(Err(error)) => {
            work.refuse(error);
            None
        }
        Err(_) => {
            let _ = connection.execute_batch("ROLLBACK TO work; RELEASE work");
            work.refuse(Error::Corrupt("a use case panicked; nothing of it was kept".into()));
            None
        }
    }
}

fn read_loop(connection: &Connection, reads: &Receiver<Box<dyn Work>>, sealer: &Arc<Sealer>) {
    while let Ok(mut work) = reads.recv() {
        let attempt = std::panic::catch_unwind(AssertUnwindSafe(|| {
            connection.execute_batch("BEGIN")?;
            let mut tx = Tx::new(Backend::Sqlite(connection), sealer.clone());
            work.run(&mut tx);
            connection.execute_batch("ROLLBACK")?;
            Ok::<(), Error>(())
        }));
        match attempt {
            Ok(Ok(())) => {}
            Ok(Err(error)) => work.refuse(error),
            Err(_) => {
                let _ = connection.execute_batch("ROLLBACK");
                work.refuse(Error::Corrupt("a look-up panicked".into()));
            }
        }
        work.reply(Ok(()));
    }
}

/// Another process's commits show in `data_version`; looked at only while somebody waits.
fn watch_loop(connection: &Connection, hub: &Arc<Hub>) {
    let version = || connection.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap_or(0);
    let mut seen = version();
    loop {
        hub.until_watched();
        std::thread::sleep(LOOK);
        let now = version();
        if now != seen {
            seen = now;
            hub.bump();
        }
    }
}

/// SQLite locks the whole file, so row locks mean nothing to it; everything else is the same text.
fn without_row_locks(sql: &str) -> std::borrow::Cow<'_, str> {
    match sql.find(" FOR UPDATE") {
        Some(_) => sql.replace(" FOR UPDATE SKIP LOCKED", "").replace(" FOR UPDATE", "").into(),
        None => sql.into(),
    }
}

fn bind(statement: &mut rusqlite::CachedStatement<'_>, params: &[Value]) -> Result<()> {
    for index in 1..=statement.parameter_count() {
        let number =
            statement.parameter_name(index).and_then(|name| name[1..].parse::<usize>().ok()).unwrap_or(index);
        let value =
            params.get(number - 1).ok_or_else(|| Error::Corrupt(format!("no parameter ${number}")))?;
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

pub(crate) fn query(connection: &Connection, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(&without_row_locks(sql))?;
    bind(&mut statement, params)?;
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|i| Ok(Value::from(row.get_ref(i)?))).collect::<Result<_>>()?;
        found.push(Row(values));
    }
    Ok(found)
}

pub(crate) fn execute(connection: &Connection, sql: &str, params: &[Value]) -> Result<u64> {
    let mut statement = connection.prepare_cached(&without_row_locks(sql))?;
    bind(&mut statement, params)?;
    Ok(statement.raw_execute()? as u64)
}
