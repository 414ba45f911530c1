//! Template files as one archive with a digest, so that any worker can run them.
//!
//! The same files give the same digest everywhere: paths are sorted, times and owners are zero, modes are
//! 755 or 644, and folders are implied by the files in them. What is unpacked never leaves its folder.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use conductor_domain::work::Failure;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tar::{Archive, Builder, EntryType, Header};

use crate::config::Config;

/// The most a template's files may hold together.
pub const LIMIT: u64 = 64 << 20;

/// A template's files, packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// `sha256:HEX` over the archive before compression.
    pub digest: String,
    /// The archive, compressed.
    pub bytes: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum PackError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: io::Error },
    #[error("{0} is a link that leads out of its folder or to nothing")]
    LinkLeaves(PathBuf),
    #[error("{0} is neither a file, a folder nor a link")]
    Special(PathBuf),
    #[error("{path} holds more than {} MiB", LIMIT >> 20)]
    TooLarge { path: PathBuf },
    #[error("{0} holds no file")]
    Empty(PathBuf),
    #[error("the archive names {0}, which is outside its folder")]
    Outside(PathBuf),
    #[error("the archive cannot be read")]
    Archive(#[source] io::Error),
}

impl From<PackError> for Failure {
    fn from(error: PackError) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        let failure = Self::invalid(format!("{error}{cause}"));
        match error {
            PackError::TooLarge { .. } => failure.hint(
                "keep only what the template needs in its folder: providers and state do not belong there",
            ),
            PackError::LinkLeaves(_) => failure.hint("copy the file into the folder instead"),
            _ => failure,
        }
    }
}

/// Packs a folder, or one file under its own name.
pub fn pack(path: &Path) -> Result<Packed, PackError> {
    compress(&gather(path)?)
}

/// The digest that [`pack`] would give, without packing.
pub fn digest_of_folder(path: &Path) -> Result<String, PackError> {
    Ok(digest(&gather(path)?))
}

fn gather(path: &Path) -> Result<Vec<u8>, PackError> {
    let root = path.canonicalize().map_err(reading(path))?;
    let mut items = Vec::new();
    if root.is_dir() {
        collect(&root, &root, &mut items)?;
        items.sort();
    } else {
        // A link to a program is packed as what it leads to, under the name the template uses.
        items.push((PathBuf::from(path.file_name().unwrap_or_default()), root));
    }
    if items.is_empty() {
        return Err(PackError::Empty(path.to_owned()));
    }
    archive(path, &items, None)
}

/// Packs what a template names on the client's machine, if it names something there. `base` is the folder
/// of the catalogue file. `config` stays as it is.
pub fn prepare(config: &Map<String, Value>, manager: &str, base: &Path) -> Result<Option<Packed>, Failure> {
    match manager {
        "terraform" => {
            let Some(source) = Config(config).text("source")? else {
                return Ok(None);
            };
            if source.starts_with("git::") {
                return Ok(None);
            }
            let folder = base.join(source);
            if !folder.is_dir() {
                return Err(Failure::invalid(format!(
                    "config.source: there is no folder {}",
                    folder.display()
                ))
                .hint("give a folder relative to the catalogue file, or git::URL?ref=REF"));
            }
            Ok(Some(pack(&folder)?))
        }
        "command" => match Config(config).text("program")? {
            Some(program) if program.contains('/') => Ok(Some(pack_program(&base.join(program))?)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn pack_program(path: &Path) -> Result<Packed, Failure> {
    if !path.is_file() {
        return Err(Failure::invalid(format!("config.program: there is no file {}", path.display())).hint(
            "give a path relative to the catalogue file, or the bare name of a program on the worker's PATH",
        ));
    }
    let mut head = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read(&mut head)).map_err(reading(path))?;
    if !head[..read].starts_with(b"#!") && head != *b"\x7fELF" {
        return Err(Failure::invalid(format!("config.program: {} cannot be started", path.display()))
            .hint("a script needs a first line such as `#!/usr/bin/env python3`"));
    }
    let name = PathBuf::from(path.file_name().unwrap_or_default());
    Ok(compress(&archive(path, &[(name, path.canonicalize().map_err(reading(path))?)], Some(0o755))?)?)
}

/// Puts a packed template's files below `into`, which is created.
pub fn unpack(bytes: &[u8], into: &Path) -> Result<(), PackError> {
    fs::create_dir_all(into).map_err(writing(into))?;
    let root = into.canonicalize().map_err(reading(into))?;
    let mut archive = Archive::new(plain(bytes));
    let mut links = Vec::new();
    for entry in archive.entries().map_err(PackError::Archive)? {
        let mut entry = entry.map_err(PackError::Archive)?;
        let path = entry.path().map_err(PackError::Archive)?.into_owned();
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(PackError::Outside(path));
        }
        let target = root.join(&path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(writing(parent))?;
        }
        match entry.header().entry_type() {
            EntryType::Regular => {
                let executable = entry.header().mode().map_err(PackError::Archive)? & 0o111 != 0;
                let mut file = fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(if executable { 0o755 } else { 0o644 })
                    .open(&target)
                    .map_err(writing(&target))?;
                io::copy(&mut entry, &mut file).map_err(writing(&target))?;
            }
            EntryType::Symlink => {
                let to = entry.link_name().map_err(PackError::Archive)?.unwrap_or_default().into_owned();
                links.push((target, to, path));
            }
            _ => return Err(PackError::Special(path)),
        }
    }
    // Links come last: nothing can be written through one.
    for (link, to, _) in &links {
        symlink(to, link).map_err(writing(link))?;
    }
    for (link, _, path) in &links {
        if !link.canonicalize().is_ok_and(|real| real.starts_with(&root)) {
            fs::remove_file(link).map_err(writing(link))?;
            return Err(PackError::Outside(path.clone()));
        }
    }
    Ok(())
}

/// The digest of something packed, computed anew.
pub fn digest_of(bytes: &[u8]) -> Result<String, PackError> {
    let mut archive = Vec::new();
    plain(bytes).read_to_end(&mut archive).map_err(PackError::Archive)?;
    Ok(digest(&archive))
}

fn digest(archive: &[u8]) -> String {
    format!("sha256:{}", crate::text::hex(&Sha256::digest(archive)))
}

/// The archive within, never more of it than a packed template can hold.
fn plain(bytes: &[u8]) -> impl Read {
    FrameDecoder::new(bytes).take(LIMIT * 2)
}

fn skipped(name: &str) -> bool {
    name == ".git" || name == ".terraform" || name.contains(".tfstate")
}

fn collect(root: &Path, folder: &Path, items: &mut Vec<(PathBuf, PathBuf)>) -> Result<(), PackError> {
    for entry in fs::read_dir(folder).map_err(reading(folder))? {
        let entry = entry.map_err(reading(folder))?;
        let path = entry.path();
        if skipped(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let kind = entry.file_type().map_err(reading(&path))?;
        if kind.is_symlink() && !path.canonicalize().is_ok_and(|real| real.starts_with(root)) {
            return Err(PackError::LinkLeaves(path));
        }
        if kind.is_dir() {
            collect(root, &path, items)?;
        } else if kind.is_file() || kind.is_symlink() {
            items.push((path.strip_prefix(root).unwrap_or(&path).to_owned(), path));
        } else {
            return Err(PackError::Special(path));
        }
    }
    Ok(())
}

fn archive(named: &Path, items: &[(PathBuf, PathBuf)], mode: Option<u32>) -> Result<Vec<u8>, PackError> {
    let mut builder = Builder::new(Vec::new());
    let mut total = 0;
    for (name, path) in items {
        let mut header = Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        let info = fs::symlink_metadata(path).map_err(reading(path))?;
        if info.is_symlink() {
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            header.set_mode(0o777);
            let target = fs::read_link(path).map_err(reading(path))?;
            if target.is_absolute() {
                return Err(PackError::LinkLeaves(path.clone()));
            }
            builder.append_link(&mut header, name, target).map_err(PackError::Archive)?;
            continue;
        }
        total += info.len();
        if total > LIMIT {
            return Err(PackError::TooLarge { path: named.to_owned() });
        }
        let data = fs::read(path).map_err(reading(path))?;
        header.set_entry_type(EntryType::Regular);
        header.set_size(data.len() as u64);
        let executable = info.permissions().mode() & 0o111 != 0;
        header.set_mode(mode.unwrap_or(if executable { 0o755 } else { 0o644 }));
        builder.append_data(&mut header, name, data.as_slice()).map_err(PackError::Archive)?;
    }
    builder.into_inner().map_err(PackError::Archive)
}

fn compress(archive: &[u8]) -> Result<Packed, PackError> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(archive).map_err(PackError::Archive)?;
    let bytes = encoder.finish().map_err(|error| PackError::Archive(io::Error::other(error)))?;
    Ok(Packed { digest: digest(archive), bytes })
}

fn reading(path: &Path) -> impl FnOnce(io::Error) -> PackError {
    let path = path.to_owned();
    move |source| PackError::Read { path, source }
}

fn writing(path: &Path) -> impl FnOnce(io::Error) -> PackError {
    let path = path.to_owned();
    move |source| PackError::Write { path, source }
}
