//! Bodies outside the database: a folder, or an object store of a cloud, by address.
//!
//! What is put here is sealed already. A row in the database is the truth: an object without one is left over from
//! a write that came to nothing, and is swept after a day. Addresses are never used twice, so a sweep can never
//! take away what somebody has just put.

use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use conductor_domain::lifecycle::ErrorCode;

use crate::{Error, Result};

#[cfg(feature = "object-stores")]
mod cloud;

const SCHEMES: &str = "file:///FOLDER, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX or gs://BUCKET/PREFIX";

pub struct Objects {
    /// Without a slash at the end.
    base: String,
    kind: Kind,
}

enum Kind {
    Folder(PathBuf),
    #[cfg(feature = "object-stores")]
    Cloud(cloud::Cloud),
}

/// An object that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub address: String,
    /// Microseconds since 1970, by the clock of whoever keeps it.
    pub modified: i64,
}

fn refused(message: String) -> Error {
    Error::Refused { code: ErrorCode::Invalid, message, detail: Box::default() }
}

impl Objects {
    /// Reads an address; nothing is asked of anybody yet, except that a folder is made.
    pub fn open(url: &str) -> Result<Self> {
        let base = url.trim_end_matches('/').to_owned();
        let (scheme, rest) = base
            .split_once("://")
            .ok_or_else(|| refused(format!("the state store `{url}` is no address: write {SCHEMES}")))?;
        let kind = match scheme {
            "file" => Kind::Folder(folder(url, rest)?),
            "s3" | "az" | "gs" if rest.trim_matches('/').is_empty() => {
                return Err(refused(format!("the state store `{url}` names no bucket: write {SCHEMES}")));
            }
            #[cfg(feature = "object-stores")]
            "s3" | "az" | "gs" => Kind::Cloud(cloud::Cloud::open(&base)?),
            #[cfg(not(feature = "object-stores"))]
            "s3" | "az" | "gs" => {
                return Err(refused(format!(
                    "the state store `{url}` needs a build with the feature `object-stores`"
                )));
            }
            other => {
                return Err(refused(format!("`{other}` is no kind of state store: write {SCHEMES}")));
            }
        };
        Ok(Self { base, kind })
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    fn key<'a>(&self, address: &'a str) -> Result<&'a str> {
        address.strip_prefix(&self.base).and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| {
            refused(format!(
                "{address} is not in the state store {}: set CONDUCTOR_STATE_STORE to where it is",
                self.base
            ))
        })
    }

    /// Stores a body for good, and returns its address.
    pub async fn put(&self, key: &str, body: Vec<u8>) -> Result<String> {
        match &self.kind {
            Kind::Folder(folder) => {
                let path = folder.join(key);
                blocking(&self.base, move || write(&path, &body)).await?;
            }
            #[cfg(feature = "object-stores")]
            Kind::Cloud(cloud) => cloud.put(key, body).await.map_err(|error| failed(&self.base, error))?,
        }
        Ok(format!("{}/{key}", self.base))
    }

    pub async fn get(&self, address: &str) -> Result<Vec<u8>> {
        let key = self.key(address)?;
        match &self.kind {
            Kind::Folder(folder) => {
                let path = folder.join(key);
                blocking(address, move || fs::read(path)).await
            }
            #[cfg(feature = "object-stores")]
            Kind::Cloud(cloud) => cloud.get(key).await.map_err(|error| failed(address, error)),
        }
    }

    /// What is there below a folder.
    pub async fn list(&self, below: &str) -> Result<Vec<Found>> {
        let found = match &self.kind {
            Kind::Folder(folder) => {
                let (folder, prefix) = (folder.join(below), format!("{below}/"));
                blocking(&self.base, move || {
                    let mut found = Vec::new();
                    if folder.exists() {
                        walk(&folder, &prefix, &mut found)?;
                    }
                    Ok(found)
                })
                .await?
            }
            #[cfg(feature = "object-stores")]
            Kind::Cloud(cloud) => cloud.list(below).await.map_err(|error| failed(&self.base, error))?,
        };
        let address = |(key, modified)| Found { address: format!("{}/{key}", self.base), modified };
        Ok(found.into_iter().map(address).collect())
    }

    /// Takes an object away; that it is gone already is as good.
    pub async fn delete(&self, address: &str) -> Result<()> {
        let key = self.key(address)?;
        match &self.kind {
            Kind::Folder(folder) => {
                let path = folder.join(key);
                blocking(address, move || match fs::remove_file(path) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                })
                .await
            }
            #[cfg(feature = "object-stores")]
            Kind::Cloud(cloud) => cloud.delete(key).await.map_err(|error| failed(address, error)),
        }
    }
}

fn failed(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Unreachable(format!("the state store at {what} does not answer: {error}"))
}

async fn blocking<T: Send + 'static>(
    what: &str,
    body: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(body).await.map_err(|error| failed(what, error))?;
    done.map_err(|error| failed(what, error))
}

fn folder(url: &str, path: &str) -> Result<PathBuf> {
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        return Err(refused(format!("the state store `{url}` is not absolute: write file:///FOLDER")));
    }
    make(&path).map_err(|error| refused(format!("the state store `{url}` cannot be used: {error}")))?;
    Ok(path)
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

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, i64)>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let info = entry.metadata()?;
        if info.is_dir() {
            walk(&entry.path(), &format!("{name}/"), found)?;
        } else {
            let modified = info.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            found.push((name, modified.as_micros() as i64));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_keeps_what_it_is_given() {
        let folder = std::env::temp_dir().join(format!("conductor-objects-{}", uuid::Uuid::now_v7()));
        let objects = Objects::open(&format!("file://{}/", folder.display())).unwrap();
        let address = objects.put("org/one", b"sealed".to_vec()).await.unwrap();
        assert_eq!(address, format!("file://{}/org/one", folder.display()));
        assert_eq!(objects.get(&address).await.unwrap(), b"sealed");
        let listed: Vec<String> =
            objects.list("org").await.unwrap().into_iter().map(|one| one.address).collect();
        assert_eq!(listed, std::slice::from_ref(&address));
        objects.delete(&address).await.unwrap();
        objects.delete(&address).await.unwrap();
        assert!(matches!(objects.get(&address).await, Err(Error::Unreachable(_))));
        assert!(matches!(objects.get("file:///elsewhere/x").await, Err(Error::Refused { .. })));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_would_be() {
        for url in ["states", "ftp://x/y", "file://relative", "s3://"] {
            let error = Objects::open(url).err().expect(url).to_string();
            assert!(error.contains("file:///FOLDER"), "{url}: {error}");
        }
    }
}
