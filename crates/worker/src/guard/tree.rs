//! One program and all its descendants, under a supervisor of their own.
//!
//! ```text
//! guard ── supervisor ── program ── …
//!          │ with a PID namespace: its init. When it ends the kernel ends everything inside.
//!          └ without: a subreaper. It adopts whatever is orphaned and kills until nothing is left.
//! ```
//! The supervisor passes the stop signal to the program's group, waits for the program, writes its wait
//! status into a pipe and ends. It dies with the guard (the parent-death signal is sound here: the guard
//! has one thread, so the thread that forked ends exactly when the guard does).

use std::{
    fs, io,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill, killpg},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{self, Pid},
};

use super::{
    fork,
    groups::Group,
    program::{become_program, enter, exec},
    sweep,
    wire::Spec,
};
use crate::sandbox::Sandbox;

/// Tells a supervisor without a namespace to kill everything below it.
pub const KILL_ALL: Signal = Signal::SIGUSR1;

/// How programs are kept together, found out once by [`Kind::probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A PID and mount namespace of its own, and one for shared memory, which would outlive the program.
    Namespace,
    /// The same, inside a user namespace: what an ordinary user may have.
    UserNamespace,
    /// A subreaper and a walk over /proc.
    Subreaper,
}

const NOT_STARTED: i32 = 127;
/// In seconds: an engine that does not answer holds nothing up.
const REMOVED_WITHIN: u32 = 20;

impl Kind {
    pub fn flags(self) -> i32 {
        let apart = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;
        match self {
            Self::Namespace => apart,
            Self::UserNamespace => apart | libc::CLONE_NEWUSER,
            Self::Subreaper => 0,
        }
    }

    pub fn has_namespace(self) -> bool {
        self != Self::Subreaper
    }

    /// The strongest kind that works here, and whether programs see a /proc of their own.
    pub fn probe() -> (Self, bool) {
        let mut found = None;
        for kind in [Self::Namespace, Self::UserNamespace] {
            match kind.attempt() {
                Some(true) => return (kind, true),
                Some(false) if found.is_none() => found = Some(kind),
                _ => {}
            }
        }
        (found.unwrap_or(Self::Subreaper), false)
    }

    /// `None`: not possible; else whether a fresh /proc could be mounted.
    fn attempt(self) -> Option<bool> {
        let ids = (unistd::getuid(), unistd::getgid());
        match fork::fork_into(self.flags()).ok()? {
            None => fork::exit_now(match enter(self, ids) {
                Ok(true) => 0,
                Ok(false) => 1,
                Err(_) => 2,
            }),
            Some(pid) => match waitpid(pid, None).ok()? {
                WaitStatus::Exited(_, 0) => Some(true),
                WaitStatus::Exited(_, 1) => Some(false),
                _ => None,
            },
        }
    }
}

/// A started tree, as the guard sees it.
pub struct Tree {
    pub supervisor: Pid,
    kind: Kind,
    /// Carries why the program could not be started, then its wait status.
    status: OwnedFd,
}

impl Tree {
    pub fn start(
        sandbox: &Sandbox,
        group: &Group,
        spec: &Spec,
        streams: [OwnedFd; 3],
        guard: Option<BorrowedFd>,
    ) -> io::Result<Self> {
        let (reader, writer) = unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let ids = (unistd::getuid(), unistd::getgid());
        let kind = sandbox.kind_for(spec);
        match fork::fork_into(kind.flags())? {
            Some(supervisor) => Ok(Self { supervisor, kind, status: reader }),
            None => {
                let code = supervise(sandbox, group, spec, streams, guard, &writer, ids);
                if let Err(error) = &code {
                    say(&writer, &format!("cannot be supervised: {error}"));
                }
                fork::exit_now(if code.is_ok() { 0 } else { NOT_STARTED })
            }
        }
    }

    /// Ends everything at once.
    pub fn kill(&self) {
        let signal = if self.kind.has_namespace() { Signal::SIGKILL } else { KILL_ALL };
        let _ = kill(self.supervisor, signal);
    }

    /// Asks the program's group to end.
    pub fn ask(&self, signal: Signal) {
        let _ = kill(self.supervisor, signal);
    }

    /// How it ended; to be read once the supervisor is gone.
    pub fn outcome(&self) -> Outcome {
        let mut bytes = vec![0; 4096];
        let read = unistd::read(&self.status, &mut bytes).unwrap_or(0);
        match bytes[..read].split_first() {
            Some((b'X', status)) if status.len() >= 4 => {
                Outcome::of(i32::from_le_bytes([status[0], status[1], status[2], status[3]]))
            }
            Some((b'E', text)) => {
                // The supervisor's word on the exit may follow; it adds nothing.
                let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                Outcome::NotStarted(String::from_utf8_lossy(&text[..end]).into_owned())
            }
            _ => Outcome::Signalled(libc::SIGKILL),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Exited(i32),
    Signalled(i32),
    NotStarted(String),
}

impl Outcome {
    fn of(status: i32) -> Self {
        match libc::WIFSIGNALED(status) {
            true => Self::Signalled(libc::WTERMSIG(status)),
            false => Self::Exited(libc::WEXITSTATUS(status)),
        }
    }
}

fn say(status: &OwnedFd, text: &str) {
    let mut message = vec![b'E'];
    message.extend(text.bytes().filter(|&byte| byte != 0).take(2000));
    message.push(0);
    let _ = unistd::write(status, &message);
}

/// The supervisor's life. Runs in the forked copy.
fn supervise(
    sandbox: &Sandbox,
    group: &Group,
    spec: &Spec,
    streams: [OwnedFd; 3],
    guard: Option<BorrowedFd>,
    status: &OwnedFd,
    ids: (unistd::Uid, unistd::Gid),
) -> io::Result<()> {
    let kind = sandbox.kind_for(spec);
    prctl::set_pdeathsig(if kind.has_namespace() { Signal::SIGKILL } else { KILL_ALL })?;
    if guard.is_some_and(ended) {
        return Ok(());
    }
    unistd::setsid()?;
    let signals: SigSet = [Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, KILL_ALL].into_iter().collect();
    signals.thread_block()?;
    let inbox = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)?;
    enter(kind, ids)?;
    if !kind.has_namespace() {
        prctl::set_child_subreaper(true)?;
    }
    let Some(program) = fork::fork_into(0)? else {
        let error = become_program(spec, streams, sandbox, group);
        say(status, &format!("{}: {error}", spec.path.display()));
        fork::exit_now(NOT_STARTED)
    };
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    unistd::dup2_stdin(&null)?;
    unistd::dup2_stdout(&null)?;
    unistd::dup2_stderr(&null)?;
    fork::close_all_but(&[status.as_raw_fd(), inbox.as_raw_fd()]);
    std::mem::forget((null, streams));

    let ended = watch(&inbox, program);
    let mut message = vec![b'X'];
    message.extend(ended.to_le_bytes());
    let _ = unistd::write(status, &message);
    if !kind.has_namespace() {
        sweep::kill_below(unistd::getpid());
    }
    if let Some(name) = spec.container.as_ref().filter(|_| libc::WIFSIGNALED(ended)) {
        remove_container(spec, name);
    }
    Ok(())
}

/// The engine was killed before it could do so itself. Until the container is gone, neither is the program.
fn remove_container(spec: &Spec, name: &str) {
    let args = ["rm", "--force", name].map(str::to_owned).into();
    let removal = Spec { args, ..spec.clone() };
    match fork::fork_into(0) {
        Ok(None) => {
            unistd::alarm::set(REMOVED_WITHIN);
            let _ = exec(&removal);
            fork::exit_now(NOT_STARTED)
        }
        Ok(Some(pid)) => drop(waitpid(pid, None)),
        Err(_) => {}
    }
}

/// Reaps everything adopted, passes signals on, and returns the program's wait status.
fn watch(inbox: &SignalFd, program: Pid) -> i32 {
    loop {
        while let Ok(status) = reap() {
            match status {
                Some((pid, status)) if pid == program => return status,
                Some(_) => continue,
                None => break,
            }
        }
        match inbox.read_signal() {
            Ok(Some(signal)) if signal.ssi_signo as i32 == KILL_ALL as i32 => return libc::SIGKILL,
            Ok(Some(signal)) => {
                if let Ok(signal @ (Signal::SIGINT | Signal::SIGTERM)) =
                    Signal::try_from(signal.ssi_signo as i32)
                    && killpg(program, signal).is_err()
                {
                    // Not yet in a group of its own.
                    let _ = kill(program, signal);
                }
            }
            Ok(None) | Err(Errno::EINTR) => {}
            Err(_) => return libc::SIGKILL,
        }
    }
}

/// One child that has ended, if any, with its wait status.
fn reap() -> nix::Result<Option<(Pid, i32)>> {
    Ok(match waitpid(None, Some(WaitPidFlag::WNOHANG))? {
        WaitStatus::Exited(pid, code) => Some((pid, code << 8)),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, signal as i32)),
        WaitStatus::StillAlive => None,
        other => other.pid().map(|_| (Pid::from_raw(0), 0)),
    })
}

fn ended(guard: BorrowedFd) -> bool {
    let mut look = [PollFd::new(guard, PollFlags::POLLIN)];
    poll(&mut look, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
