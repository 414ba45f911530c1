//! The worker's side of the guard: starting it, and asking it to start, extend and stop programs.

use std::{
    collections::HashMap,
    io,
    io::IoSlice,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream as StdStream,
    },
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, AtomicU64, Ordering},
    },
    time::Duration,
};

use nix::{
    fcntl::OFlag,
    sys::socket::{ControlMessage, MsgFlags, sendmsg},
    unistd::{Pid, pipe2},
};
use tokio::{
    io::{AsyncReadExt, Interest},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    process::{Child, Command},
    sync::{mpsc, oneshot},
};

use super::{
    GuardCommand,
    wire::{self, Event, Inbox, Order, Spec, Why},
};
use crate::{limits::Limit, sandbox::Protection};

const READY_WITHIN: Duration = Duration::from_secs(20);

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
        stopped: Option<Why>,
        reached: Vec<Limit>,
    },
    /// It never ran.
    Failed(String),
    /// The guard itself died, and its programs with it.
    GuardGone,
}

/// A program that was handed to the guard. Dropped before its end, it is killed.
pub struct Started {
    pub control: Control,
    pub ended: oneshot::Receiver<Ended>,
    pub stdin: Option<pipe::Sender>,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
}

pub struct Control {
    job: u64,
    shared: Arc<Shared>,
    pid: Arc<AtomicI32>,
}

impl Control {
    /// The process that everything of the program is below; none before it has started.
    pub fn pid(&self) -> Option<Pid> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid > 0).map(Pid::from_raw)
    }

    pub fn extend(&self, deadline_ms: u64) {
        self.shared.send(&Order::Extend { job: self.job, deadline_ms }, Vec::new());
    }

    /// Without a grace it is killed at once.
    pub fn stop(&self, grace: Option<Duration>, why: Why) {
        let grace_ms = grace.map(|grace| grace.as_millis() as u64);
        self.shared.send(&Order::Stop { job: self.job, grace_ms, why }, Vec::new());
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.shared.lock().programs.contains_key(&self.job) {
            self.stop(None, Why::Cancelled);
        }
    }
}

/// A running guard. Clones are the same guard; when the last is dropped it ends.
#[derive(Clone)]
pub struct Guard {
    shared: Arc<Shared>,
    pub protections: Arc<Vec<Protection>>,
}

struct Shared {
    orders: mpsc::UnboundedSender<(Vec<u8>, Vec<OwnedFd>)>,
    state: Arc<Mutex<State>>,
    next: AtomicU64,
}

#[derive(Default)]
struct State {
    programs: HashMap<u64, Waiting>,
    gone: bool,
}

/// Who waits for a program's end. The token goes when the program is gone, also when nobody waits.
struct Waiting {
    tell: oneshot::Sender<Ended>,
    pid: Arc<AtomicI32>,
    _alive: mpsc::Sender<()>,
}

impl Shared {
    fn send(&self, order: &Order, streams: Vec<OwnedFd>) {
        // A guard that is gone has been reported to every waiting program already.
        let _ = self.orders.send((wire::encode(order), streams));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guard {
    pub async fn start(command: &GuardCommand) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let child = Command::new(&command.program)
            .args(&command.args)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| io::Error::other(format!("cannot start the guard: {error}")))?;
        let (mut reader, writer) = UnixStream::from_std(ours)?.into_split();
        let mut inbox = Inbox::default();
        let ready = tokio::time::timeout(READY_WITHIN, next_event(&mut reader, &mut inbox));
        let Ok(Ok(Some(Event::Ready { protections, .. }))) = ready.await else {
            return Err(io::Error::other("the guard did not come up"));
        };
        let state = Arc::new(Mutex::new(State::default()));
        let (orders, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_orders(writer, queue));
        tokio::spawn(read_events(reader, inbox, state.clone(), child));
        let shared = Shared { orders, state, next: AtomicU64::new(1) };
        Ok(Self { shared: Arc::new(shared), protections: Arc::new(protections) })
    }

    pub fn is_gone(&self) -> bool {
        self.shared.lock().gone
    }

    /// Hands a program over. With `input` its standard input is a pipe, else `/dev/null`. `alive` is dropped
    /// when nothing of the program is left.
    pub fn run(
        &self,
        spec: Spec,
        input: bool,
        deadline_ms: u64,
        alive: mpsc::Sender<()>,
    ) -> io::Result<Started> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from);
        let (stdin, stdin_theirs) = match input {
            true => {
                let (theirs, ours) = pipe()?;
                (Some(pipe::Sender::from_owned_fd(ours)?), theirs)
            }
            false => (None, std::fs::File::open("/dev/null")?.into()),
        };
        let (stdout, stdout_theirs) = pipe()?;
        let (stderr, stderr_theirs) = pipe()?;
        let job = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let (tell, ended) = oneshot::channel();
        let pid = Arc::new(AtomicI32::new(0));
        {
            let mut state = self.shared.lock();
            if state.gone {
                return Err(io::Error::other("the guard is gone"));
            }
            state.programs.insert(job, Waiting { tell, pid: pid.clone(), _alive: alive });
        }
        let order = Order::Start { job, spec: Box::new(spec), deadline_ms };
        self.shared.send(&order, vec![stdin_theirs, stdout_theirs, stderr_theirs]);
        Ok(Started {
            control: Control { job, shared: self.shared.clone(), pid },
            ended,
            stdin,
            stdout: pipe::Receiver::from_owned_fd(stdout)?,
            stderr: pipe::Receiver::from_owned_fd(stderr)?,
        })
    }
}

async fn next_event(reader: &mut OwnedReadHalf, inbox: &mut Inbox) -> io::Result<Option<Event>> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        if let Some(event) = inbox.take()? {
            return Ok(Some(event));
        }
        match reader.read(&mut bytes).await? {
            0 => return Ok(None),
            read => inbox.push(&bytes[..read]),
        }
    }
}

async fn read_events(
    mut reader: OwnedReadHalf,
    mut inbox: Inbox,
    state: Arc<Mutex<State>>,
    mut child: Child,
) {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    while let Ok(Some(event)) = next_event(&mut reader, &mut inbox).await {
        let (job, ended) = match event {
            Event::Exited { job, code, signal, stopped, reached } => {
                (job, Ended::Exited { code, signal, stopped, reached })
            }
            Event::Failed { job, message } => (job, Ended::Failed(message)),
            Event::Started { job, pid } => {
                if let Some(waiting) = lock().programs.get(&job) {
                    waiting.pid.store(pid, Ordering::Relaxed);
                }
                continue;
            }
            Event::Ready { .. } => continue,
        };
        let waiting = lock().programs.remove(&job);
        if let Some(waiting) = waiting {
            let _ = waiting.tell.send(ended);
        }
    }
    let programs = {
        let mut state = lock();
        state.gone = true;
        std::mem::take(&mut state.programs)
    };
    for waiting in programs.into_values() {
        let _ = waiting.tell.send(Ended::GuardGone);
    }
    let _ = child.wait().await;
}

async fn write_orders(writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<(Vec<u8>, Vec<OwnedFd>)>) {
    while let Some((bytes, streams)) = queue.recv().await {
        let mut sent = 0;
        while sent < bytes.len() {
            let fds: Vec<RawFd> = match sent {
                0 => streams.iter().map(AsRawFd::as_raw_fd).collect(),
                _ => Vec::new(),
            };
            let stream: &UnixStream = writer.as_ref();
            let step = stream.async_io(Interest::WRITABLE, || {
                let rights = [ControlMessage::ScmRights(&fds)];
                let rights = if fds.is_empty() { &rights[..0] } else { &rights[..] };
                let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
                let rest = [IoSlice::new(&bytes[sent..])];
                sendmsg::<()>(stream.as_raw_fd(), &rest, rights, flags, None).map_err(io::Error::from)
            });
            match step.await {
                Ok(count) => sent += count,
                Err(_) => return,
            }
        }
    }
}
