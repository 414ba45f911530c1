//! Killing a tree by walking /proc, where there is no PID namespace to do it.

use std::{collections::BTreeMap, fs};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

use super::census::descendants;

/// Kills every descendant of this process until none is left. The caller is a subreaper, so that orphans
/// come back to it and are found on the next round.
pub fn kill_below(root: Pid) {
    loop {
        for pid in descendants(root, u64::MAX) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return,
                Ok(status) if status.pid().is_some() => {}
                _ => break,
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The direct children of a process.
pub fn children(of: Pid) -> Vec<Pid> {
    parents()
        .into_iter()
        .filter(|(_, parent)| *parent == of.as_raw())
        .map(|(pid, _)| Pid::from_raw(pid))
        .collect()
}

/// Everything below a process, by a look at every process there is.
pub fn below(root: Pid) -> Vec<Pid> {
    let parents = parents();
    let descends = |mut pid: i32| {
        // Bounded: /proc is read while it changes, so the map may hold a circle.
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(&parent) if parent == root.as_raw() => return true,
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|&pid| descends(pid)).map(Pid::from_raw).collect()
}

/// Who is whose child, for every process that can be seen.
fn parents() -> BTreeMap<i32, i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name in parentheses may hold anything; what follows the last one is fixed.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}
