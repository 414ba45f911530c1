//! A program as the guard keeps it: its tree, its deadline, and how far its ending has come.
//!
//! ```text
//! running ── deadline passed, or Stop ──▶ asked to end ── grace over ──▶ killed ──▶ gone
//! ```

use nix::sys::signal::Signal;

use super::{
    tree::{Kind, Tree},
    wire::{Spec, Why},
};

/// From `Start` until nothing of its tree is left.
pub struct Running {
    pub tree: Tree,
    stop: Signal,
    deadline: u64,
    deadline_grace: u64,
    /// Set once it has been asked to end: why, and when it will be killed.
    stopping: Option<(Why, u64)>,
    killed: bool,
}

impl Running {
    pub fn new(tree: Tree, spec: &Spec, stop: Signal, deadline: u64) -> Self {
        let deadline_grace = spec.deadline_grace_ms;
        Self { tree, stop, deadline, deadline_grace, stopping: None, killed: false }
    }

    /// A renewal came through. What has begun to end does so all the same.
    pub fn extend(&mut self, deadline: u64) {
        self.deadline = self.deadline.max(deadline);
    }

    /// Why it was ended, if it was.
    pub fn stopped(&self) -> Option<Why> {
        self.stopping.map(|(why, _)| why)
    }

    /// The latest moment at which it may still be alive.
    fn last_moment(&self) -> u64 {
        self.deadline.saturating_add(self.deadline_grace)
    }

    /// Asks it to end, without a grace kills it. The first reason stays; the kill only moves closer.
    pub fn end(&mut self, why: Why, grace: Option<u64>, now: u64) {
        let kill_at = now.saturating_add(grace.unwrap_or(0));
        match &mut self.stopping {
            Some((_, planned)) => *planned = kill_at.min(*planned),
            None => {
                self.stopping = Some((why, kill_at));
                if grace.is_some() {
                    self.tree.ask(self.stop);
                }
            }
        }
    }

    /// Does what the clock demands.
    pub fn enforce(&mut self, now: u64, kind: Kind) {
        let last = self.last_moment();
        if self.deadline <= now && self.stopping.is_none_or(|(_, kill_at)| kill_at > last) {
            self.end(Why::LeaseLost, Some(last.saturating_sub(now)), now);
        }
        if self.stopping.is_some_and(|(_, kill_at)| kill_at <= now) && !self.killed {
            self.killed = true;
            self.tree.kill(kind);
        }
    }

    /// When the clock will next demand something.
    pub fn due(&self) -> Option<u64> {
        match self.stopping {
            _ if self.killed => None,
            Some((_, kill_at)) if kill_at <= self.last_moment() => Some(kill_at),
            _ => Some(self.deadline),
        }
    }
}
