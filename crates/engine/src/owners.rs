//! Embedded processes vouch for themselves: each holds a lock on a file of its own for as long as it lives. If
//! another process can take that lock, the owner is dead, whatever its leases say.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use conductor_store::{Error, Result};
use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

pub(crate) struct Owners {
    folder: PathBuf,
    me: Uuid,
    _alive: Flock<File>,
}

impl Owners {
    pub fn new(data: &Path, me: Uuid) -> Result<Self> {
        let folder = data.join("alive");
        let failed = |error: std::io::Error| Error::Unreachable(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let file = File::create(folder.join(me.to_string())).map_err(failed)?;
        let alive = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, error)| Error::Unreachable(format!("{}: {error}", folder.display())))?;
        Ok(Self { folder, me, _alive: alive })
    }

    /// Whether nobody holds a process's file; `None` when it has none.
    fn let_go(&self, process: Uuid) -> Option<bool> {
        if process == self.me {
            return Some(false);
        }
        let file = File::open(self.folder.join(process.to_string())).ok()?;
        Some(Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok())
    }

    /// Processes that answer for changes have a file while they live; one that ended well took its own away.
    pub fn owner_is_dead(&self, owner: Uuid) -> bool {
        self.let_go(owner).unwrap_or(true)
    }

    /// Remote workers have no file: their leases speak for them.
    pub fn worker_is_dead(&self, worker: Uuid) -> bool {
        self.let_go(worker).unwrap_or(false)
    }

    /// Nothing is left that a dead process answered for.
    pub fn forget(&self, owner: Uuid) {
        let _ = std::fs::remove_file(self.folder.join(owner.to_string()));
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.forget(self.me);
    }
}
