//! A program as the guard keeps it: its tree, its deadline, and how far its ending has come.
//!
//! ```text
//! running ── deadline passed, Stop, or over a limit ──▶ asked to end ── grace over ──▶ killed ──▶ gone
//! ```

use nix::sys::signal::Signal;

use super::{
    census::Census,
    groups::Group,
    tree::Tree,
    wire::{Spec, Why},
};
use crate::limits::{Limit, Limits};

/// How often a tree is counted that no control group counts.
const LOOK_EVERY: u64 = 100;

/// From `Start` until nothing of its tree is left.
pub struct Running {
    pub tree: Tree,
    pub group: Group,
    limits: Limits,
    /// What no control group keeps.
    watched: Vec<Limit>,
    next_look: u64,
    stop: Signal,
    deadline: u64,
    deadline_grace: u64,
    /// Set once it has been asked to end: why, and when it will be killed.
    stopping: Option<(Why, u64)>,
    killed: bool,
}

impl Running {
    pub fn new(
        tree: Tree,
        group: Group,
        watched: Vec<Limit>,
        spec: &Spec,
        stop: Signal,
        deadline: u64,
    ) -> Self {
        Self {
            tree,
            group,
            limits: spec.limits.clone(),
            watched,
            next_look: 0,
            stop,
            deadline,
            deadline_grace: spec.deadline_grace_ms,
            stopping: None,
            killed: false,
        }
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

    /// Ends it when it has become too much.
    fn look(&mut self, now: u64) {
        if self.watched.is_empty() || self.killed || now < self.next_look {
            return;
        }
        self.next_look = now + LOOK_EVERY;
        let census = Census::below(self.tree.supervisor, self.limits.processes);
        let over = self.watched.iter().copied().find(|limit| match limit {
            Limit::Processes => census.tasks > self.limits.processes,
            Limit::Memory => census.uses_more_than(self.limits.memory),
            Limit::FileSize | Limit::Disk => false,
        });
        if let Some(limit) = over {
            self.end(Why::OverLimit(limit), None, now);
        }
    }

    /// Does what the clock demands.
    pub fn enforce(&mut self, now: u64) {
        self.look(now);
        let last = self.last_moment();
        if self.deadline <= now && self.stopping.is_none_or(|(_, kill_at)| kill_at > last) {
            self.end(Why::LeaseLost, Some(last.saturating_sub(now)), now);
        }
        if self.stopping.is_some_and(|(_, kill_at)| kill_at <= now) && !self.killed {
            self.kill();
        }
    }

    pub fn kill(&mut self) {
        self.killed = true;
        self.group.forbid_more();
        self.tree.kill();
    }

    /// When the clock will next demand something.
    pub fn due(&self) -> Option<u64> {
        let end = match self.stopping {
            _ if self.killed => return None,
            Some((_, kill_at)) if kill_at <= self.last_moment() => kill_at,
            _ => self.deadline,
        };
        Some(if self.watched.is_empty() { end } else { end.min(self.next_look) })
    }
}
