//! The guard process: starts programs, holds their deadlines, and leaves none behind.
//!
//! One thread, one loop. It never blocks on the worker, which may be frozen while deadlines pass: what it
//! has to say waits in a buffer. It ends when its socket closes, and takes every program with it.

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs, io,
    io::Write,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
        socket::{MsgFlags, send},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{self, Pid},
};

use super::{
    fork,
    groups::Group,
    receive::receive,
    running::Running,
    sweep,
    tree::{Outcome, Tree},
    wire::{self, Event, Inbox, Order, STREAMS, Spec},
};
use crate::sandbox::{Sandbox, Without};

/// Runs the guard until its worker is gone. Called before the process has any other thread.
///
/// Its standard input is the worker's socket. `--probe` prints what protects programs here and ends;
/// `--plain` does without namespaces, `--no-landlock`, `--no-seccomp` and `--no-groups` without what they name.
pub fn guard_main() -> ! {
    let has = |flag: &str| env::args().any(|arg| arg == flag);
    let without = Without {
        namespaces: has("--plain"),
        landlock: has("--no-landlock"),
        seccomp: has("--no-seccomp"),
        groups: has("--no-groups"),
    };
    if has("--probe") {
        let sandbox = Sandbox::find(without);
        sandbox.describe().iter().for_each(|protection| println!("{protection}"));
        sandbox.groups.remove();
        std::process::exit(0);
    }
    match serve(without) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            let _ = writeln!(io::stderr(), "conductor guard: {error}");
            std::process::exit(1)
        }
    }
}

fn serve(without: Without) -> io::Result<()> {
    fork::close_all_but(&[]);
    // Not reached by what is sent to the worker's group, nor by a terminal.
    let _ = unistd::setsid();
    fork::ignore_signals(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE]);
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    unistd::dup2_stdin(&fs::File::open("/dev/null")?)?;
    prctl::set_child_subreaper(true)?;
    prctl::set_dumpable(false)?;
    let chld: SigSet = [Signal::SIGCHLD].into_iter().collect();
    chld.thread_block()?;
    let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let sandbox = Sandbox::find(without);
    if sandbox.is_counted_by_guard() {
        // Whatever makes more and more of itself must not be quicker than who ends it.
        fork::step_forward();
    }
    let mut guard = GuardLoop {
        sandbox,
        plain: false,
        itself: fork::own_pidfd().ok(),
        jobs: BTreeMap::new(),
        out: VecDeque::new(),
    };
    let namespaces = guard.sandbox.kind.has_namespace();
    guard.say(&Event::Ready { protections: guard.sandbox.describe(), namespaces });
    let ended = guard.run(&socket, &signals);
    guard.end_everything(&signals);
    guard.sandbox.groups.remove();
    ended
}

struct GuardLoop {
    sandbox: Sandbox,
    /// Some program was started without a namespace.
    plain: bool,
    itself: Option<OwnedFd>,
    jobs: BTreeMap<u64, Running>,
    out: VecDeque<u8>,
}

impl GuardLoop {
    fn run(&mut self, socket: &OwnedFd, signals: &SignalFd) -> io::Result<()> {
        let mut inbox = Inbox::default();
        let mut descriptors = VecDeque::new();
        loop {
            let now = wire::now_ms();
            self.jobs.values_mut().for_each(|running| running.enforce(now));
            self.flush(socket)?;
            let interest = match self.out.is_empty() {
                true => PollFlags::POLLIN,
                false => PollFlags::POLLIN | PollFlags::POLLOUT,
            };
            let mut ready =
                [PollFd::new(socket.as_fd(), interest), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, self.pause()) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let readable = ready[0].revents().is_some_and(|events| !(events - PollFlags::POLLOUT).is_empty());
            while let Ok(Some(_)) = signals.read_signal() {}
            self.reap();
            if readable && !receive(socket, &mut inbox, &mut descriptors)? {
                return Ok(());
            }
            while let Some(order) = inbox.take()? {
                self.obey(order, &mut descriptors);
            }
        }
    }

    fn obey(&mut self, order: Order, descriptors: &mut VecDeque<OwnedFd>) {
        match order {
            Order::Start { job, spec, deadline_ms } => {
                let streams = descriptors.drain(..STREAMS.min(descriptors.len())).collect::<Vec<_>>();
                match self.start(job, &spec, streams, deadline_ms) {
                    Ok(pid) => self.say(&Event::Started { job, pid: pid.as_raw() }),
                    Err(error) => self.say(&Event::Failed { job, message: error.to_string() }),
                }
            }
            Order::Extend { job, deadline_ms } => {
                if let Some(running) = self.jobs.get_mut(&job) {
                    running.extend(deadline_ms);
                }
            }
            Order::Stop { job, grace_ms, why } => {
                if let Some(running) = self.jobs.get_mut(&job) {
                    running.end(why, grace_ms, wire::now_ms());
                }
            }
        }
    }

    fn start(&mut self, job: u64, spec: &Spec, streams: Vec<OwnedFd>, deadline: u64) -> io::Result<Pid> {
        let streams = <[OwnedFd; STREAMS]>::try_from(streams)
            .map_err(|_| io::Error::other("a program was announced without its streams"))?;
        let stop = Signal::try_from(spec.stop)?;
        let itself = self.itself.as_ref().map(|fd| fd.as_fd());
        let (group, watched) = match spec.container {
            Some(_) => (Group::default(), Vec::new()),
            None => (self.sandbox.groups.make(job, &spec.limits)?, self.sandbox.watched()),
        };
        self.plain |= !self.sandbox.kind_for(spec).has_namespace();
        let tree = Tree::start(&self.sandbox, &group, spec, streams, itself)?;
        let pid = tree.supervisor;
        self.jobs.insert(job, Running::new(tree, group, watched, spec, stop, deadline));
        Ok(pid)
    }

    /// How long nothing will be due.
    fn pause(&self) -> PollTimeout {
        match self.jobs.values().filter_map(Running::due).min() {
            None => PollTimeout::NONE,
            // Rounded up: a moment before it is due there is nothing to do yet.
            Some(due) => PollTimeout::from(due.saturating_sub(wire::now_ms()).min(60_000) as u16 + 1),
        }
    }

    fn reap(&mut self) {
        loop {
            let pid = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => return self.kill_strays(),
                Ok(status) => status.pid(),
            };
            let job = self.jobs.iter().find(|(_, running)| Some(running.tree.supervisor) == pid);
            let Some(running) = job.map(|(&job, _)| job).and_then(|job| Some((job, self.jobs.remove(&job)?)))
            else {
                continue;
            };
            let (job, running) = running;
            let (stopped, reached) = (running.stopped(), running.group.reached());
            self.say(&match running.tree.outcome() {
                Outcome::NotStarted(message) => Event::Failed { job, message },
                Outcome::Exited(code) => {
                    Event::Exited { job, code: Some(code), signal: None, stopped, reached }
                }
                Outcome::Signalled(signal) => {
                    Event::Exited { job, code: None, signal: Some(signal), stopped, reached }
                }
            });
        }
    }

    /// Without namespaces a supervisor that was killed leaves its programs to the guard: they go as well.
    fn kill_strays(&self) {
        if !self.plain {
            return;
        }
        for pid in sweep::children(unistd::getpid()) {
            if !self.jobs.values().any(|running| running.tree.supervisor == pid) {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }

    /// The worker is gone: so is everything it started.
    fn end_everything(&mut self, signals: &SignalFd) {
        self.jobs.values_mut().for_each(|running| running.kill());
        while !self.jobs.is_empty() {
            let mut ready = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut ready, PollTimeout::from(100u8));
            while let Ok(Some(_)) = signals.read_signal() {}
            self.reap();
        }
        if self.plain {
            sweep::kill_below(unistd::getpid());
        }
    }

    fn say(&mut self, event: &Event) {
        self.out.extend(wire::encode(event));
    }

    fn flush(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while !self.out.is_empty() {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            match send(socket.as_raw_fd(), self.out.make_contiguous(), flags) {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                // The worker is gone; reading will say so.
                Err(_) => self.out.clear(),
            }
        }
        Ok(())
    }
}
