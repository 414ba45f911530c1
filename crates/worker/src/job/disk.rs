//! How much a job has on disk: its folder, and what it holds open there after having removed it.
//!
//! Looked at while its programs run, because no quota can be relied on. Not seen are files that a program maps after
//! having removed and closed them, and folders that it closed to the worker's own user.

use std::{
    collections::HashSet,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::unistd::Pid;
use tokio::{task::spawn_blocking, time::sleep};

use crate::guard::{Control, census::descendants};

/// Programs that end sooner are not looked at.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Looking takes at most this part of the time.
const SHARE: u32 = 20;
/// As many of the tree as are asked for files they removed.
const MOST_PROCESSES: u64 = 10_000;
/// A file takes a block and a name, however small it is. It also bounds how many are looked at.
const LEAST: u64 = 4096;

/// Resolves when there is more in the folder than `limit` bytes.
pub async fn overfull(folder: PathBuf, limit: u64, control: &Control) {
    let mut pause = FIRST_LOOK;
    loop {
        sleep(pause).await;
        let (folder, pid) = (folder.clone(), control.pid());
        let look = spawn_blocking(move || {
            let began = Instant::now();
            (Usage::new(limit).overflows(&folder, pid), began.elapsed())
        });
        match look.await {
            Ok((true, _)) => return,
            Ok((false, took)) => pause = LOOK_EVERY.max(took * SHARE),
            Err(error) => tracing::error!(%error, "a job's folder was not measured"),
        }
    }
}

struct Usage {
    limit: u64,
    used: u64,
    /// Files with several names, or held open by several, count once.
    counted: HashSet<(u64, u64)>,
}

impl Usage {
    fn new(limit: u64) -> Self {
        Self { limit, used: 0, counted: HashSet::new() }
    }

    fn overflows(mut self, folder: &Path, program: Option<Pid>) -> bool {
        let Ok(device) = fs::metadata(folder).map(|info| info.dev()) else {
            return false;
        };
        self.add_folder(folder);
        if !self.is_full() {
            program
                .into_iter()
                .flat_map(|pid| descendants(pid, MOST_PROCESSES))
                .for_each(|pid| self.add_removed(pid, device));
        }
        self.is_full()
    }

    fn is_full(&self) -> bool {
        self.used > self.limit
    }

    fn add_folder(&mut self, folder: &Path) {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(folder) {
                Ok(entries) => entries,
                // Nobody nests that deep but to hide something.
                Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                    self.used = u64::MAX;
                    return;
                }
                Err(_) => continue,
            };
            for entry in entries.flatten() {
                let Ok(info) = entry.metadata() else {
                    continue;
                };
                if info.is_dir() {
                    folders.push(entry.path());
                }
                if info.is_dir() || info.nlink() == 1 || self.is_new(&info) {
                    self.add(&info);
                }
                if self.is_full() {
                    return;
                }
            }
        }
    }

    /// Files without a name that a process holds open.
    fn add_removed(&mut self, pid: Pid, device: u64) {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            // Through the link: the file itself.
            let Ok(info) = fs::metadata(entry.path()) else {
                continue;
            };
            if info.is_file() && info.nlink() == 0 && info.dev() == device && self.is_new(&info) {
                self.add(&info);
            }
        }
    }

    fn is_new(&mut self, info: &Metadata) -> bool {
        self.counted.insert((info.dev(), info.ino()))
    }

    fn add(&mut self, info: &Metadata) {
        self.used = self.used.saturating_add((info.blocks() * 512).max(LEAST));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(folder: &Path, program: Option<Pid>) -> u64 {
        let mut usage = Usage::new(u64::MAX);
        usage.add_folder(folder);
        if let Some(pid) = program {
            usage.add_removed(pid, fs::metadata(folder).unwrap().dev());
        }
        usage.used
    }

    #[test]
    fn what_takes_room_counts_once_and_holes_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("below")).unwrap();
        fs::write(path("below/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(path("below/file"), path("again")).unwrap();
        std::os::unix::fs::symlink("/usr", path("link")).unwrap();
        fs::File::create(path("hole")).unwrap().set_len(1 << 30).unwrap();
        let used = used(folder.path(), None);
        assert!(((1 << 20) + 3 * LEAST..(1 << 20) + 8 * LEAST).contains(&used), "{used}");
        assert!(Usage::new(1 << 19).overflows(folder.path(), None));
        assert!(!Usage::new(1 << 21).overflows(folder.path(), None));
    }

    #[test]
    fn a_file_that_was_removed_counts_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, vec![1; 1 << 20]).unwrap();
        let open = fs::File::open(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(used(folder.path(), None), 0);
        assert!(used(folder.path(), Some(nix::unistd::getpid())) >= 1 << 20);
        drop(open);
    }

    #[test]
    fn many_empty_files_are_not_nothing() {
        let folder = tempfile::tempdir().unwrap();
        (0..100).for_each(|number| fs::write(folder.path().join(number.to_string()), "").unwrap());
        assert_eq!(used(folder.path(), None), 100 * LEAST);
    }
}
