//! Bodies outside the database, by address: a folder.
//!
//! What is put here is sealed already. A row in the database is the truth: an object without one is left over from a
//! write that came to nothing.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use conductor_domain::lifecycle::ErrorCode;

use crate::{Error, Result};

pub struct Objects {
    /// Without a slash at the end.
    base: String,
    folder: PathBuf,
}

fn refused(message: String) -> Error {
    Error::Refused { code: ErrorCode::Invalid, message, detail: Box::default() }
}

impl Objects {
    /// Reads an address and makes the folder.
    pub fn open(url: &str) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let Some(folder) = base.strip_prefix("file://").map(PathBuf::from).filter(|path| path.is_absolute())
        else {
            return Err(refused(format!("`{url}` is no place for objects: write file:///FOLDER")));
        };
        make(&folder).map_err(|error| refused(format!("`{url}` cannot be used: {error}")))?;
        Ok(Self { base, folder })
    }

    fn key<'a>(&self, address: &'a str) -> Result<&'a str> {
        address
            .strip_prefix(&self.base)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| refused(format!("{address} is not in {}: name the place where it is", self.base)))
    }

    /// Stores a body for good, and returns its address.
    pub async fn put(&self, key: &str, body: Vec<u8>) -> Result<String> {
        let path = self.folder.join(key);
        blocking(&self.base, move || write(&path, &body)).await?;
        Ok(format!("{}/{key}", self.base))
    }

    pub async fn get(&self, address: &str) -> Result<Vec<u8>> {
        let path = self.folder.join(self.key(address)?);
        blocking(address, move || fs::read(path)).await
    }

    /// Takes an object away; that it is gone already is as good.
    pub async fn delete(&self, address: &str) -> Result<()> {
        let path = self.folder.join(self.key(address)?);
        blocking(address, move || match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
        .await
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Unreachable(format!("{what} does not answer: {error}"))
}

async fn blocking<T: Send + 'static>(
    what: &str,
    body: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(body).await.map_err(|error| failed(what, error))?;
    done.map_err(|error| failed(what, error))
}

fn make(folder: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// On disk when this returns, and whole or not at all.
fn write(path: &Path, body: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    make(folder)?;
    let fresh = path.with_extension("new");
    let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(body)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    fs::File::open(folder)?.sync_all()
}
