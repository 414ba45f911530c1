//! Every path a worker uses below its data folder.
//!
//! ```text
//! DATA/jobs/lock                      held while job folders are made or swept
//! DATA/jobs/OPERATION-FENCE/lock      held by the worker that runs the job
//! DATA/jobs/OPERATION-FENCE/environment  what a program in a container is told
//! DATA/jobs/OPERATION-FENCE/work/     the job's own folder, the only one its programs may write
//! DATA/content/DIGEST/                a template's files, unpacked once, read-only
//! DATA/NAME/                          lasting folders of managers
//! ```
//! A lock that can be taken means that its owner is dead: the kernel frees it, however the owner died.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use conductor_api::worker::Claim;
use conductor_managers::pack;

const PRIVATE: u32 = 0o700;

#[derive(Clone, Debug)]
pub struct Layout {
    data: PathBuf,
}

impl Layout {
    /// Makes the data folder where it is missing.
    pub fn open(data: &Path) -> io::Result<Self> {
        make_private(data)?;
        let layout = Self { data: data.canonicalize()? };
        make_private(&layout.jobs())?;
        make_private(&layout.contents())?;
        Ok(layout)
    }

    fn jobs(&self) -> PathBuf {
        self.data.join("jobs")
    }

    fn contents(&self) -> PathBuf {
        self.data.join("content")
    }

    fn jobs_lock(&self) -> io::Result<File> {
        File::options().create(true).truncate(false).write(true).open(self.jobs().join("lock"))
    }

    /// A folder that outlives the job. `None` when the name is not a plain one, or is taken by the worker.
    pub fn lasting(&self, name: &str) -> Option<io::Result<PathBuf>> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(plain) || ["jobs", "content"].contains(&name) {
            return None;
        }
        let path = self.data.join(name);
        Some(make_private(&path).map(|()| path))
    }

    /// Where a template's files are, unpacked or not. `None` when it is no digest.
    pub fn content(&self, digest: &str) -> Option<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == ':';
        let fine = !digest.is_empty() && digest.chars().all(plain);
        fine.then(|| self.contents().join(digest.replace(':', "-")))
    }

    /// Unpacks a template's files inside the job's folder first, so that what is half done goes with it.
    pub fn unpack(&self, job: &JobFolder, digest: &str, packed: &[u8]) -> Result<PathBuf, String> {
        let target = self.content(digest).ok_or_else(|| format!("`{digest}` is not a digest"))?;
        let found = pack::digest_of(packed).map_err(|error| error.to_string())?;
        if found != digest {
            return Err(format!("the template's files have the digest {found}, not {digest}"));
        }
        let draft = job.root.join("content");
        pack::unpack(packed, &draft).map_err(|error| error.to_string())?;
        match fs::rename(&draft, &target) {
            Ok(()) => make_read_only(&target).map_err(|error| error.to_string())?,
            // Another job of this data folder was quicker.
            Err(_) if target.is_dir() => {}
            Err(error) => return Err(error.to_string()),
        }
        Ok(target)
    }

    /// Removes the folders of jobs whose worker is dead. Returns how many.
    pub fn sweep(&self) -> io::Result<usize> {
        let lock = self.jobs_lock()?;
        lock.lock()?;
        let mut swept = 0;
        for entry in fs::read_dir(self.jobs())? {
            let path = entry?.path();
            if !path.is_dir() {
                continue;
            }
            let dead = match File::open(path.join("lock")) {
                Ok(owned) => owned.try_lock().is_ok(),
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
            if dead {
                remove_tree(&path)?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// The folder of one running job. Dropped, it is gone.
#[derive(Debug)]
pub struct JobFolder {
    root: PathBuf,
    _lock: File,
}

impl JobFolder {
    pub fn create(layout: &Layout, claim: Claim) -> io::Result<Self> {
        let root = layout.jobs().join(format!("{}-{}", claim.operation, claim.fence));
        let making = layout.jobs_lock()?;
        making.lock_shared()?;
        if root.exists() {
            remove_tree(&root)?;
        }
        make_private(&root)?;
        let lock = File::create(root.join("lock"))?;
        lock.lock()?;
        make_private(&root.join("work"))?;
        Ok(Self { root, _lock: lock })
    }

    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Something of the job that its programs do not see.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for JobFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.root) {
            tracing::warn!(folder = %self.root.display(), %error, "job folder could not be removed");
        }
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE).create(path)
}

fn make_read_only(path: &Path) -> io::Result<()> {
    let info = fs::symlink_metadata(path)?;
    if info.is_symlink() {
        return Ok(());
    }
    if info.is_dir() {
        for entry in fs::read_dir(path)? {
            make_read_only(&entry?.path())?;
        }
    }
    fs::set_permissions(path, Permissions::from_mode(info.permissions().mode() & 0o555))
}

/// Removes a folder, also one whose folders were made read-only by who filled it.
fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_folders(path)?;
            fs::remove_dir_all(path)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn open_folders(path: &Path) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(PRIVATE))?;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_folders(&entry.path())?;
        }
    }
    Ok(())
}
