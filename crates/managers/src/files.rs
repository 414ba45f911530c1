//! Files the managers write themselves: safe names, safe modes, whole or not at all.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use conductor_domain::work::{Failure, FailureCode};
use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Runs file and process work where it may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Failure::failed("the manager stopped unexpectedly")))
}

/// An IO error as a failure that says what was tried on which path.
pub(crate) fn failed(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let path = path.to_owned();
    move |error| {
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureCode::Transient,
            _ => FailureCode::Failed,
        };
        Failure::new(code, format!("cannot {verb} {}: {error}", path.display()))
    }
}

/// A name that is used as one part of a path.
pub(crate) fn name(text: &str) -> Result<&str, Failure> {
    let fits = !text.is_empty() && text.len() <= 200 && !text.starts_with('.') && !text.contains(['/', '\0']);
    if fits { Ok(text) } else { Err(Failure::invalid(format!("`{text}` cannot be the name of a file"))) }
}

/// Writes a file with exactly this mode, whatever the umask.
pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    open_and_write(path, bytes, mode).map(|_| ()).map_err(failed("write", path))
}

/// As [`write`], and on the disk when it returns.
pub(crate) fn write_through(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    open_and_write(path, bytes, mode).and_then(|file| file.sync_all()).map_err(failed("write", path))
}

fn open_and_write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<fs::File> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(file)
}

/// Puts the folder `new` in the place of `current` in one step; what was there before is removed.
pub(crate) fn replace_folder(new: &Path, current: &Path) -> Result<(), Failure> {
    match renameat_with(CWD, new, CWD, current, RenameFlags::EXCHANGE) {
        Ok(()) => remove_folder(new)?,
        Err(rustix::io::Errno::NOENT) => fs::rename(new, current).map_err(failed("create", current))?,
        Err(error) => return Err(failed("replace", current)(error.into())),
    }
    if let Some(parent) = current.parent() {
        fs::File::open(parent).and_then(|folder| folder.sync_all()).map_err(failed("write", parent))?;
    }
    Ok(())
}

/// Removes a folder with all it holds; none there is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}
