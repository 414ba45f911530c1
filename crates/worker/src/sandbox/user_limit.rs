//! What RLIMIT_NPROC is good for: it counts all processes of a user, and root not at all.

use std::{fs, os::unix::fs::MetadataExt};

use nix::unistd::getuid;

use crate::guard::Kind;

/// How much a user's other processes may become while a program runs.
const OTHERS: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserLimit {
    /// A user namespace of its own, in which the count begins anew.
    Exact,
    /// Together with all else of this user: no limit for one program, but an end to a great many.
    Together,
    /// Not for root.
    None,
}

impl UserLimit {
    pub fn find(kind: Kind) -> Self {
        match kind {
            _ if getuid().is_root() && is_real_root() => Self::None,
            Kind::UserNamespace if kernel() >= (5, 14) => Self::Exact,
            _ => Self::Together,
        }
    }

    /// The value for a program that may have so many processes.
    pub fn value(self, processes: u64) -> Option<u64> {
        match self {
            Self::Exact => Some(processes),
            Self::Together => Some(processes + tasks_of_user() + OTHERS),
            Self::None => None,
        }
    }
}

/// A container may call another user root.
fn is_real_root() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().nth(1).is_none_or(|outside| outside == "0")
}

/// Processes and threads of this user.
fn tasks_of_user() -> u64 {
    let own = getuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.metadata().is_ok_and(|info| info.is_dir() && info.uid() == own));
    // A folder is linked from its parent, by itself, and from each folder inside.
    let threads = ours.filter_map(|entry| fs::metadata(entry.path().join("task")).ok());
    threads.map(|folder| folder.nlink().saturating_sub(2)).sum()
}

/// The kernel's version; 0.0 when it cannot be read.
fn kernel() -> (u32, u32) {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
