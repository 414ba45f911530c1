//! Whether a job shall stop, and until when its lease surely holds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use conductor_domain::work::{Failure, FailureCode};
use conductor_managers::Stopped;
use tokio::sync::watch;

use crate::guard::wire::{Why, now_ms};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    Cancelled,
    TimedOut,
    /// No renewal came through in time; somebody else may get the operation soon.
    LeaseLost,
    /// Somebody else has it: stop at once, and say nothing.
    Lost,
}

impl Halt {
    pub fn stopped(self) -> Stopped {
        match self {
            Self::Cancelled => Stopped::Cancelled,
            Self::TimedOut => Stopped::TimedOut,
            Self::LeaseLost | Self::Lost => Stopped::LeaseLost,
        }
    }

    pub fn why(self) -> Why {
        match self {
            Self::Cancelled => Why::Cancelled,
            Self::TimedOut => Why::TimedOut,
            Self::LeaseLost | Self::Lost => Why::LeaseLost,
        }
    }

    pub fn code(self) -> FailureCode {
        match self {
            Self::Cancelled => FailureCode::Cancelled,
            Self::TimedOut => FailureCode::TimedOut,
            Self::LeaseLost | Self::Lost => FailureCode::Transient,
        }
    }

    pub fn failure(self) -> Failure {
        let message = match self {
            Self::Cancelled => "cancelled",
            Self::TimedOut => "the time limit was reached",
            Self::LeaseLost | Self::Lost => "the worker lost its lease on the operation",
        };
        Failure::new(self.code(), message)
    }
}

/// A job's stop request and deadline, seen by everything that works for it.
pub struct Halting {
    halt: watch::Sender<Option<Halt>>,
    /// On the boot clock: from here on the job's programs are ended.
    deadline: watch::Sender<u64>,
    lease: u64,
    /// The longest grace any of the job's programs has, in milliseconds.
    grace: AtomicU64,
}

/// What a manager without programs gets to come to an end.
const GRACE: Duration = Duration::from_secs(10);
/// How long a manager may take beyond the end of its programs.
const TIDYING: Duration = Duration::from_secs(5);
const AT_ONCE: Duration = Duration::from_secs(1);

impl Halting {
    /// `since`: when the lease was asked for.
    pub fn new(lease: Duration, since: u64) -> Self {
        let lease = lease.as_millis() as u64;
        let halting = Self {
            halt: watch::Sender::new(None),
            deadline: watch::Sender::new(0),
            lease,
            grace: AtomicU64::new(GRACE.as_millis() as u64),
        };
        halting.renewed(since);
        halting
    }

    /// A third of the lease is kept for ending things.
    fn margin(&self) -> u64 {
        self.lease / 3
    }

    /// A renewal that was sent at `sent` has been answered.
    pub fn renewed(&self, sent: u64) {
        let until = sent.saturating_add(self.lease - self.margin());
        self.deadline.send_if_modified(|deadline| {
            let later = *deadline < until;
            *deadline = (*deadline).max(until);
            later
        });
    }

    pub fn renewal_every(&self) -> Duration {
        Duration::from_millis((self.lease / 3).max(1))
    }

    /// A third of the lease after the last renewal: as long again is left before the deadline.
    pub fn until_renewal(&self) -> Duration {
        self.until_deadline().saturating_sub(self.renewal_every())
    }

    /// Whether enough of the lease is left to begin without renewing it first.
    pub fn is_fresh(&self) -> bool {
        self.until_deadline() >= self.renewal_every()
    }

    /// How long after its deadline a program may take to end by itself; what remains is for the kill.
    pub fn deadline_grace(&self) -> Duration {
        Duration::from_millis(self.margin() * 3 / 4)
    }

    /// A program was started that may take this long to end.
    pub fn grant(&self, grace: Duration) {
        self.grace.fetch_max(grace.as_millis() as u64, Ordering::Relaxed);
    }

    /// How long after a stop request the manager itself is dropped.
    pub fn patience(&self, why: Halt) -> Duration {
        match why {
            Halt::Cancelled | Halt::TimedOut => {
                Duration::from_millis(self.grace.load(Ordering::Relaxed)) + TIDYING
            }
            Halt::LeaseLost => self.deadline_grace() + Duration::from_millis(self.margin() / 8),
            Halt::Lost => AT_ONCE,
        }
    }

    pub fn deadline(&self) -> u64 {
        *self.deadline.borrow()
    }

    pub fn until_deadline(&self) -> Duration {
        Duration::from_millis(self.deadline().saturating_sub(now_ms()))
    }

    /// The first request stays, but losing the operation overrides all.
    pub fn halt(&self, why: Halt) {
        self.halt.send_if_modified(|halt| {
            let new = halt.is_none() || (why == Halt::Lost && *halt != Some(Halt::Lost));
            if new {
                *halt = Some(why);
            }
            new
        });
    }

    pub fn halted(&self) -> Option<Halt> {
        *self.halt.borrow()
    }

    pub fn halts(&self) -> watch::Receiver<Option<Halt>> {
        self.halt.subscribe()
    }

    pub fn deadlines(&self) -> watch::Receiver<u64> {
        self.deadline.subscribe()
    }
}
