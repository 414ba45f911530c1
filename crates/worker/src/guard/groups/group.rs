//! The groups of one program: made with its limits, entered by it, asked afterwards, and removed.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::mounts::{Controller, Version};
use crate::limits::{Limit, Limits};

/// Within this many microseconds a program may use its share of CPU time.
const PERIOD: u64 = 100_000;
const LEAST_QUOTA: u64 = 1_000;

/// One folder per tree. Dropped, they are removed, if nothing lives in them any more.
#[derive(Default)]
pub struct Group {
    folders: Vec<(Version, PathBuf)>,
    /// Where a process writes itself in. Opened by the guard, whose permission counts.
    doors: Vec<File>,
}

impl Group {
    pub(super) fn add(
        &mut self,
        version: Version,
        folder: &Path,
        controllers: &[Controller],
        limits: &Limits,
    ) -> io::Result<()> {
        fs::create_dir(folder)?;
        self.folders.push((version, folder.to_owned()));
        for controller in controllers {
            for (file, value) in settings(version, *controller, limits) {
                fs::write(folder.join(file), value)
                    .map_err(|error| io::Error::new(error.kind(), format!("cannot limit {file}: {error}")))?;
            }
            for (file, value) in niceties(version, *controller, limits) {
                // Not every kernel counts swap, or knows groups that die as one.
                let _ = File::options()
                    .write(true)
                    .open(folder.join(file))
                    .and_then(|mut file| file.write_all(value.as_bytes()));
            }
        }
        self.doors.push(File::options().write(true).open(folder.join("cgroup.procs"))?);
        Ok(())
    }

    /// Puts the calling process in.
    pub fn enter(&self) -> io::Result<()> {
        self.doors.iter().try_for_each(|mut door| door.write_all(b"0"))
    }

    /// From here on nothing inside can start another process: what is to be killed cannot outrun it.
    pub fn forbid_more(&self) {
        for (_, folder) in &self.folders {
            let file = folder.join("pids.max");
            if file.exists() {
                let _ = fs::write(file, "0");
            }
        }
    }

    /// The limits at which the kernel stopped something.
    pub fn reached(&self) -> Vec<Limit> {
        let mut reached = Vec::new();
        for (version, folder) in &self.folders {
            let memory = match version {
                Version::One => "memory.oom_control",
                Version::Two => "memory.events",
            };
            if count(&folder.join(memory), "oom_kill") > 0 {
                reached.push(Limit::Memory);
            }
            if count(&folder.join("pids.events"), "max") > 0 {
                reached.push(Limit::Processes);
            }
        }
        reached
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, folder) in &self.folders {
            // What is refused here goes with the guard's own folder.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Files and what is written to them: without these the limit would not hold.
pub(super) fn settings(
    version: Version,
    controller: Controller,
    limits: &Limits,
) -> Vec<(&'static str, String)> {
    let quota = (limits.cpu * PERIOD / 1_000).max(LEAST_QUOTA);
    match (controller, version) {
        (Controller::Memory, Version::Two) => vec![("memory.max", limits.memory.to_string())],
        (Controller::Memory, Version::One) => vec![("memory.limit_in_bytes", limits.memory.to_string())],
        (Controller::Cpu, Version::Two) => vec![("cpu.max", format!("{quota} {PERIOD}"))],
        (Controller::Cpu, Version::One) => {
            vec![("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())]
        }
        (Controller::Pids, _) => vec![("pids.max", limits.processes.to_string())],
    }
}

fn niceties(version: Version, controller: Controller, limits: &Limits) -> Vec<(&'static str, String)> {
    match (controller, version) {
        (Controller::Memory, Version::Two) => {
            vec![("memory.swap.max", "0".to_owned()), ("memory.oom.group", "1".to_owned())]
        }
        (Controller::Memory, Version::One) => {
            vec![("memory.memsw.limit_in_bytes", limits.memory.to_string())]
        }
        _ => Vec::new(),
    }
}

/// The number after a word at the start of a line.
fn count(file: &Path, word: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == word)
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}
