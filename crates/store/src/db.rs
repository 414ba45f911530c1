//! The door to the database: closures in, results out, and a bell for those who wait.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use crate::{
    Counted, Error, Result, counters::Counters, postgres::Postgres, seal::Sealer, sqlite::Sqlite, tx::Tx,
};

/// A queued use case: run inside a transaction, told how the commit went.
pub(crate) trait Work: Send {
    /// Whether its writes shall be kept.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// The same once more, after a conflict that a new try may win.
    fn may_retry(&self) -> bool;
    /// It did not come through to the database.
    fn was_lost(&self) -> bool;
    fn refuse(&mut self, error: Error);
    fn reply(self: Box<Self>, committed: std::result::Result<(), String>);
}

struct Closure<T, F> {
    body: F,
    result: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
    request: Option<Arc<str>>,
}

impl<T: Send, F: FnMut(&mut Tx<'_>) -> Result<T> + Send> Work for Closure<T, F> {
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        tx.request.clone_from(&self.request);
        let result = (self.body)(tx);
        let kept = result.is_ok();
        self.result = Some(result);
        kept
    }

    fn may_retry(&self) -> bool {
        matches!(&self.result, Some(Err(error)) if error.may_retry())
    }

    fn was_lost(&self) -> bool {
        matches!(&self.result, Some(Err(Error::Unreachable(_))))
    }

    fn refuse(&mut self, error: Error) {
        self.result = Some(Err(error));
    }

    fn reply(self: Box<Self>, committed: std::result::Result<(), String>) {
        let result = match (committed, self.result) {
            (Err(error), Some(Ok(_)) | None) => Err(Error::Unreachable(error)),
            (_, Some(result)) => result,
            (Ok(()), None) => Err(Error::Unreachable("the database went away".into())),
        };
        let _ = self.reply.send(result);
    }
}

/// Rings when something was committed that somebody may wait for.
pub struct Hub {
    bell: watch::Sender<u64>,
    watchers: AtomicUsize,
    gate: (Mutex<()>, Condvar),
    /// Tells other processes; PostgreSQL's notifier.
    pub(crate) outside: Mutex<Option<crossbeam_channel::Sender<()>>>,
    pub(crate) counters: Counters,
}

impl Hub {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: watch::Sender::new(0),
            watchers: AtomicUsize::new(0),
            gate: (Mutex::new(()), Condvar::new()),
            outside: Mutex::new(None),
            counters: Counters::default(),
        })
    }

    pub(crate) fn bump(&self) {
        self.bell.send_modify(|count| *count += 1);
    }

    /// Something happened in this process: ring here, and tell the others.
    pub(crate) fn local(&self) {
        self.bump();
        if let Ok(outside) = self.outside.lock()
            && let Some(outside) = outside.as_ref()
        {
            let _ = outside.try_send(());
        }
    }

    /// Blocks while nobody listens.
    pub(crate) fn until_watched(&self) {
        let (mutex, condvar) = &self.gate;
        let Ok(mut guard) = mutex.lock() else { return };
        while self.watchers.load(Ordering::Acquire) == 0 {
            match condvar.wait_timeout(guard, Duration::from_secs(60)) {
                Ok((next, _)) => guard = next,
                Err(_) => return,
            }
        }
    }
}

/// Listens for commits from the moment it was made.
pub struct Watch {
    hub: Arc<Hub>,
    bell: watch::Receiver<u64>,
}

impl Watch {
    /// Returns when something was committed since the last call, or after `limit`.
    pub async fn changed(&mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.bell.changed()).await;
    }

    /// Takes what has happened so far as seen.
    pub fn seen(&mut self) {
        self.bell.mark_unchanged();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.watchers.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(crate) enum Kind {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

#[derive(Clone)]
pub struct Db {
    pub(crate) kind: Arc<Kind>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) sealer: Arc<Sealer>,
}

impl Db {
    /// Runs a use case in one transaction. It may be run several times: everything it does must be through `tx`.
    pub async fn write<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let queue = match &*self.kind {
            Kind::Sqlite(sqlite) => &sqlite.writer,
            Kind::Postgres(postgres) => &postgres.writers,
        };
        submit(queue, body).await.inspect_err(|error| self.hub.counters.failed(error))
    }

    /// Looks something up, on one consistent view.
    pub async fn read<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let queue = match &*self.kind {
            Kind::Sqlite(sqlite) => &sqlite.readers,
            Kind::Postgres(postgres) => &postgres.readers,
        };
        submit(queue, body).await.inspect_err(|error| self.hub.counters.failed(error))
    }

    pub fn watch(&self) -> Watch {
        self.hub.watchers.fetch_add(1, Ordering::AcqRel);
        self.hub.gate.1.notify_all();
        Watch { hub: self.hub.clone(), bell: self.hub.bell.subscribe() }
    }

    /// What this process has counted since it started.
    pub fn counted(&self) -> Counted {
        self.hub.counters.counted()
    }

    pub fn sealer(&self) -> Arc<Sealer> {
        self.sealer.clone()
    }

    pub fn is_postgres(&self) -> bool {
        matches!(&*self.kind, Kind::Postgres(_))
    }
}

async fn submit<T: Send + 'static>(
    queue: &crossbeam_channel::Sender<Box<dyn Work>>,
    body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (reply, answer) = oneshot::channel();
    let gone = || Error::Unreachable("the database went away".into());
    let request = crate::request::current();
    queue.send(Box::new(Closure { body, result: None, reply, request })).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

impl Db {
    /// As [`Db::write`], for the time before there is a runtime.
    pub fn write_blocking<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let queue = match &*self.kind {
            Kind::Sqlite(sqlite) => &sqlite.writer,
            Kind::Postgres(postgres) => &postgres.writers,
        };
        let (reply, answer) = oneshot::channel();
        let gone = || Error::Unreachable("the database went away".into());
        queue.send(Box::new(Closure { body, result: None, reply, request: None })).map_err(|_| gone())?;
        // Polled by hand: this may be called from inside a runtime's thread, where blocking on a channel panics.
        futures_executor_block(answer).map_err(|_| gone())?
    }
}

fn futures_executor_block<T>(
    answer: oneshot::Receiver<T>,
) -> std::result::Result<T, oneshot::error::RecvError> {
    use std::{
        pin::pin,
        task::{Context, Poll, Wake, Waker},
    };
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut answer = pin!(answer);
    loop {
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}
