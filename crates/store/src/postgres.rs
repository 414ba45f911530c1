//! PostgreSQL: a thread per connection, each with its own small runtime, so that a use case runs straight
//! through. READ COMMITTED; what must not move is locked before it is read.
//!
//! Writes whose answer is not needed are kept back and sent together with the next read or the commit: the
//! round trips of a transaction are counted by its reads.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use futures_util::future::{join_all, join3, poll_fn};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Statement, error::SqlState, types::ToSql};

use crate::{
    Error, Result, Row, Value,
    counters::Counters,
    db::{Hub, Work},
    seal::Sealer,
    sqlite::spawn,
    tx::{Backend, Expect, Tx},
};

const CHANNEL: &str = "conductor";
const TRIES: usize = 8;
/// How often another connection is tried before somebody is told that there is none.
const RECONNECTS: usize = 4;
const RING_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Postgres {
    pub writers: Sender<Box<dyn Work>>,
    pub readers: Sender<Box<dyn Work>>,
}

pub(crate) struct PgSession {
    runtime: Runtime,
    client: Client,
    statements: HashMap<String, Statement>,
    /// Sent with the first statement of a transaction.
    begin: Option<&'static str>,
    deferred: Vec<Deferred>,
}

/// A write that waits for company. One that must touch a row is worded so that the server itself refuses it
/// otherwise: then it can travel with the commit.
struct Deferred {
    statement: Statement,
    params: Vec<Value>,
    sql: String,
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(|error| Error::Unreachable(error.to_string()))
}

impl PgSession {
    pub fn connect(config: &Config) -> Result<Self> {
        let runtime = runtime()?;
        let client = runtime.block_on(async {
            let (client, connection) = config.connect(NoTls).await.map_err(unreachable)?;
            tokio::spawn(async move {
                let _ = connection.await;
            });
            Ok::<_, Error>(client)
        })?;
        Ok(Self { runtime, client, statements: HashMap::new(), begin: None, deferred: Vec::new() })
    }

    fn statement(&mut self, sql: &str) -> Result<Statement> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.runtime.block_on(self.client.prepare(sql))?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Everything that waits, then `last`, in one round trip: polled in this order, so sent in this order.
    fn together<T>(
        &mut self,
        last: impl AsyncFnOnce(&Client) -> std::result::Result<T, tokio_postgres::Error>,
    ) -> Result<T> {
        let (begin, deferred) = (self.begin.take(), std::mem::take(&mut self.deferred));
        let client = &self.client;
        let (begun, writes, last) = self.runtime.block_on(async {
            let begin = async {
                match begin {
                    Some(begin) => client.batch_execute(begin).await,
                    None => Ok(()),
                }
            };
            let writes = join_all(deferred.iter().map(|write| run(client, &write.statement, &write.params)));
            join3(begin, writes, last(client)).await
        });
        begun?;
        for (write, touched) in deferred.iter().zip(writes) {
            touched.map_err(|error| match error.code() {
                Some(code) if *code == SqlState::DIVISION_BY_ZERO => moved(&write.sql),
                _ => error.into(),
            })?;
        }
        Ok(last?)
    }

    pub fn query(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>> {
        let statement = self.statement(sql)?;
        let rows = self.together(async |client: &Client| {
            let refs: Vec<&(dyn ToSql + Sync)> = params.iter().map(|p| p as &(dyn ToSql + Sync)).collect();
            client.query(&statement, &refs).await
        })?;
        Ok(rows.iter().map(|row| Row((0..row.len()).map(|i| row.get(i)).collect())).collect())
    }

    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64> {
        let statement = self.statement(sql)?;
        self.together(async |client: &Client| run(client, &statement, params).await)
    }

    pub fn defer(&mut self, sql: &str, params: &[Value], expect: Expect) -> Result<()> {
        let worded = match expect {
            Expect::Any => sql.to_owned(),
            Expect::One => format!("WITH touched AS ({sql} RETURNING 1) SELECT 1 / count(*) FROM touched"),
        };
        let statement = self.statement(&worded)?;
        self.deferred.push(Deferred { statement, params: params.to_vec(), sql: sql.to_owned() });
        Ok(())
    }

    pub fn flush(&mut self) -> Result<()> {
        if self.deferred.is_empty() { Ok(()) } else { self.together(async |_: &Client| Ok(())) }
    }

    pub fn batch(&mut self, sql: &str) -> Result<()> {
        self.together(async |client: &Client| client.batch_execute(sql).await)
    }

    /// Gives up what was begun, as far as anything was.
    fn roll_back(&mut self) {
        self.deferred.clear();
        if self.begin.take().is_none() {
            let _ = self.batch("ROLLBACK");
        }
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

fn moved(sql: &str) -> Error {
    Error::Moved(sql.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
}

async fn run(
    client: &Client,
    statement: &Statement,
    params: &[Value],
) -> std::result::Result<u64, tokio_postgres::Error> {
    let refs: Vec<&(dyn ToSql + Sync)> = params.iter().map(|p| p as &(dyn ToSql + Sync)).collect();
    client.execute(statement, &refs).await
}

pub(crate) fn unreachable(error: tokio_postgres::Error) -> Error {
    Error::Unreachable(match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None => {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        }
    })
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code() {
            Some(code)
                if *code == SqlState::T_R_SERIALIZATION_FAILURE
                    || *code == SqlState::T_R_DEADLOCK_DETECTED =>
            {
                Self::Busy(error.to_string())
            }
            Some(code) if *code == SqlState::UNIQUE_VIOLATION => {
                Self::Taken(error.as_db_error().and_then(|e| e.constraint()).unwrap_or_default().to_owned())
            }
            // The server stops, crashes, starts, or has no room for us: it will be back.
            Some(code) if ["08", "57P", "53"].iter().any(|class| code.code().starts_with(class)) => {
                unreachable(error)
            }
            Some(_) => Self::Database(
                error.as_db_error().map_or_else(|| error.to_string(), |e| e.message().to_owned()),
            ),
            None => unreachable(error),
        }
    }
}

impl Postgres {
    pub fn start(config: Config, connections: usize, sealer: Arc<Sealer>, hub: Arc<Hub>) -> Result<Self> {
        let (writers, writes) = unbounded();
        let (readers, reads) = unbounded();
        let first = PgSession::connect(&config)?;
        let mut first = Some(first);
        for i in 0..connections {
            let (config, sealer, hub) = (config.clone(), sealer.clone(), hub.clone());
            let (work, write) = if i % 3 == 2 { (reads.clone(), false) } else { (writes.clone(), true) };
            let session = first.take();
            spawn(&format!("postgres-{i}"), move || {
                session_loop(&config, session, &work, write, &sealer, &hub)
            })?;
        }
        let (ring, rings) = bounded(1);
        if let Ok(mut outside) = hub.outside.lock() {
            *outside = Some(ring);
        }
        let notify = config.clone();
        spawn("postgres-notify", move || notify_loop(&notify, &rings))?;
        spawn("postgres-listen", move || listen_loop(&config, &hub))?;
        Ok(Self { writers, readers })
    }
}

fn session_loop(
    config: &Config,
    mut session: Option<PgSession>,
    queue: &Receiver<Box<dyn Work>>,
    write: bool,
    sealer: &Arc<Sealer>,
    hub: &Arc<Hub>,
) {
    while let Ok(mut work) = queue.recv() {
        let mut wake = false;
        for attempt in 1..=TRIES {
            if session.as_ref().is_none_or(PgSession::is_closed) {
                session = match PgSession::connect(config) {
                    Ok(session) => Some(session),
                    Err(error) => {
                        work.refuse(error);
                        if attempt < RECONNECTS {
                            hub.counters.retried();
                            std::thread::sleep(Duration::from_millis(50 << attempt));
                            continue;
                        }
                        break;
                    }
                };
            }
            let Some(open) = session.as_mut() else { break };
            let after = transact(open, work.as_mut(), write, sealer, &hub.counters);
            wake = matches!(after, After::Committed { wake: true });
            let lost = matches!(after, After::Lost) && attempt < RECONNECTS;
            if lost {
                session = None;
            }
            if !(lost || work.may_retry()) || attempt == TRIES {
                break;
            }
            hub.counters.retried();
            std::thread::sleep(Duration::from_millis(attempt as u64));
        }
        work.reply(Ok(()));
        if wake {
            hub.local();
        }
    }
}

/// How a transaction ended.
enum After {
    Committed {
        wake: bool,
    },
    RolledBack,
    /// The connection went before the commit was sent: nothing was kept, and another one may do it.
    Lost,
}

fn transact(
    session: &mut PgSession,
    work: &mut dyn Work,
    write: bool,
    sealer: &Arc<Sealer>,
    counters: &Counters,
) -> After {
    session.deferred.clear();
    session.begin = Some(if write { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" });
    let attempt = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut tx = Tx::new(Backend::Postgres(session), sealer.clone());
        (work.run(&mut tx), tx.wake, tx.tally)
    }));
    match attempt {
        Ok((true, ..)) if session.begin.is_some() && session.deferred.is_empty() => {
            session.begin = None;
            After::Committed { wake: false }
        }
        Ok((true, wake, tally)) => match session.batch("COMMIT") {
            Ok(()) => {
                counters.committed(tally);
                After::Committed { wake }
            }
            Err(error) => {
                work.refuse(error);
                session.roll_back();
                After::RolledBack
            }
        },
        Ok((false, ..)) => {
            session.roll_back();
            if work.was_lost() { After::Lost } else { After::RolledBack }
        }
        Err(_) => {
            session.roll_back();
            work.refuse(Error::Corrupt("a use case panicked; nothing of it was kept".into()));
            After::RolledBack
        }
    }
}

/// Many commits, one NOTIFY: in every transaction it would serialise them all.
fn notify_loop(config: &Config, rings: &Receiver<()>) {
    let mut session = None;
    while rings.recv().is_ok() {
        for _ in 0..2 {
            if session.as_ref().is_none_or(PgSession::is_closed) {
                session = PgSession::connect(config).ok();
            }
            if session.as_mut().is_some_and(|open| open.batch(&format!("NOTIFY {CHANNEL}")).is_ok()) {
                break;
            }
        }
        // The first ring goes out at once; those that follow closely share the next.
        std::thread::sleep(RING_PAUSE);
    }
}

fn listen_loop(config: &Config, hub: &Arc<Hub>) {
    loop {
        if let Ok(runtime) = runtime() {
            let _ = runtime.block_on(async {
                let (client, mut connection) = config.connect(NoTls).await.map_err(unreachable)?;
                let (told, mut tell) = tokio::sync::mpsc::unbounded_channel();
                let pump = tokio::spawn(async move {
                    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                        if matches!(message, AsyncMessage::Notification(_)) && told.send(()).is_err() {
                            return;
                        }
                    }
                });
                client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(unreachable)?;
                // What was told while nobody listened.
                hub.bump();
                while tell.recv().await.is_some() {
                    hub.bump();
                }
                pump.abort();
                Ok::<(), Error>(())
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        hub.bump();
    }
}
