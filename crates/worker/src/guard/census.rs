//! How many a program's tree are and how much memory they use, where no control group counts.

use std::fs;

use nix::unistd::{Pid, SysconfVar, sysconf};

use super::sweep;

/// What is below a process, itself not counted.
pub struct Census {
    pids: Vec<Pid>,
    /// Processes and threads.
    pub tasks: u64,
    /// Bytes; what several share is counted for each of them.
    resident: u64,
}

impl Census {
    /// Counting ends at `most` processes: among very many the guard has little time.
    pub fn below(root: Pid, most: u64) -> Self {
        let mut census = Self { pids: Vec::new(), tasks: 0, resident: 0 };
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4096) as u64;
        for pid in descendants(root, most) {
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
                continue;
            };
            // After the name in parentheses: field 3 comes first.
            let fields: Vec<&str> =
                stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
            let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
            census.tasks += number(20).unwrap_or(1).max(1);
            census.resident += number(24).unwrap_or(0) * page;
            census.pids.push(pid);
        }
        census
    }

    /// Whether they use more memory than that. Exact counting is slow, and done only when it may matter.
    pub fn uses_more_than(&self, limit: u64) -> bool {
        self.resident > limit && self.pids.iter().map(|pid| proportional(*pid)).sum::<u64>() > limit
    }
}

/// A process's own memory and its share of what it has in common with others, in bytes. Files that are mapped do
/// not count: the kernel can take their memory back.
fn proportional(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let parts = match (value("Pss_Anon"), value("Pss_Shmem")) {
        (Some(own), Some(shared)) => own + shared,
        _ => value("Pss").unwrap_or(0),
    };
    (parts + value("SwapPss").unwrap_or(0)) * 1024
}

/// Everything below a process. Follows the kernel's lists of children where it keeps them, which costs as much as
/// the tree is large rather than the machine. Ends when it has found more than `most`.
pub fn descendants(root: Pid, most: u64) -> Vec<Pid> {
    let Some(mut found) = children(root) else {
        return sweep::below(root);
    };
    let mut next = 0;
    while let Some(&pid) = found.get(next).filter(|_| found.len() as u64 <= most) {
        found.extend(children(pid).unwrap_or_default());
        next += 1;
    }
    found
}

fn children(of: Pid) -> Option<Vec<Pid>> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{of}/task")).ok()?.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => {
                all.extend(text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw))
            }
            // The thread is gone, or there is no such list.
            Err(_) if task.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(all)
}
