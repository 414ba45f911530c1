//! Which versions of tools this worker has: asked once, remembered for as long as the program stays the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use conductor_domain::semver::Version;
use conductor_managers::tools::{TOOLS, VERSION_ARGS, plain, read_version, side_by_side};
use tokio::{io::AsyncReadExt, sync::mpsc, time::timeout};

use crate::{
    guard::wire::{Spec, now_ms},
    limits::Limits,
    run::GuardKeeper,
};

const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_LIMIT: u64 = 1 << 20;
const FILE: &str = "tools.json";

pub type ToolVersions = BTreeMap<String, Vec<Version>>;

/// By the program's path, size and age.
type Remembered = BTreeMap<String, Version>;

/// Looks for tools. Programs are started only for those whose version is not known yet.
pub async fn look(guard: &GuardKeeper, data: &Path, settings: &BTreeMap<String, String>) -> ToolVersions {
    let path = settings.get("path").map(String::as_str).unwrap_or_default();
    let folder = settings.get("tools").map(PathBuf::from);
    let before: Remembered = fs::read(data.join(FILE))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut known = Remembered::new();
    let mut found = ToolVersions::new();
    for name in TOOLS {
        let mut versions: BTreeSet<Version> =
            side_by_side(path, folder.as_deref(), name).into_keys().collect();
        if let Some((path, identity)) =
            plain(path, name).and_then(|path| Some((path.clone(), identity(&path)?)))
        {
            let version = match before.get(&identity) {
                Some(version) => Some(version.clone()),
                None => ask(guard, data, path).await,
            };
            if let Some(version) = version {
                known.insert(identity, version.clone());
                versions.insert(version);
            }
        }
        if !versions.is_empty() {
            found.insert(name.to_owned(), versions.into_iter().collect());
        }
    }
    if known != before {
        let draft = data.join(format!("{FILE}.new-{}", std::process::id()));
        let written = serde_json::to_vec(&known).map_err(std::io::Error::other);
        let written = written
            .and_then(|text| fs::write(&draft, text))
            .and_then(|()| fs::rename(&draft, data.join(FILE)));
        if let Err(error) = written {
            tracing::debug!(%error, "the versions of tools could not be remembered");
        }
    }
    found
}

fn identity(path: &Path) -> Option<String> {
    let info = fs::metadata(path).ok()?;
    Some(format!("{} {} {}.{}", path.display(), info.len(), info.mtime(), info.mtime_nsec()))
}

async fn ask(guard: &GuardKeeper, data: &Path, path: PathBuf) -> Option<Version> {
    let answer = async {
        let guard = guard.get().await.ok()?;
        let (alive, _gone) = mpsc::channel(1);
        let spec = Spec {
            read: vec![path.clone(), path.canonicalize().ok()?],
            path,
            args: VERSION_ARGS.map(str::to_owned).into(),
            env: [("CHECKPOINT_DISABLE", "1"), ("HOME", "/")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            folder: data.to_owned(),
            write: Vec::new(),
            connect: Vec::new(),
            limits: Limits::default(),
            stop: libc::SIGTERM,
            deadline_grace_ms: 0,
            container: None,
        };
        let deadline = now_ms() + ANSWER_WITHIN.as_millis() as u64;
        let started = guard.run(spec, false, deadline, alive).ok()?;
        let mut text = String::new();
        started.stdout.take(ANSWER_LIMIT).read_to_string(&mut text).await.ok()?;
        // Kept until here: dropped, it would end the program.
        drop(started.control);
        read_version(&text)
    };
    timeout(ANSWER_WITHIN, answer).await.ok().flatten()
}
