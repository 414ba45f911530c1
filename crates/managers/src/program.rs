//! What the managers that start programs share: finding a program, its environment, how its end is read.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use conductor_domain::work::{Failure, FailureCode};

use crate::{Exit, Job, Stopped};

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where programs are looked for: the worker's setting `path`, else the PATH this process started with.
pub(crate) fn search_path(job: &dyn Job) -> String {
    static PROCESS: OnceLock<String> = OnceLock::new();
    job.setting("path").filter(|path| !path.is_empty()).unwrap_or_else(|| {
        let read = || std::env::var("PATH").ok().filter(|path| !path.is_empty());
        PROCESS.get_or_init(|| read().unwrap_or_else(|| DEFAULT_PATH.to_owned())).clone()
    })
}

pub(crate) fn find(job: &dyn Job, name: &str) -> Option<PathBuf> {
    std::env::split_paths(&search_path(job))
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|info| info.is_file() && info.permissions().mode() & 0o111 != 0)
}

/// The whole environment of a program that is told nothing else.
pub(crate) fn environment(job: &dyn Job) -> BTreeMap<String, String> {
    let folder = job.folder().display().to_string();
    BTreeMap::from([
        ("PATH".to_owned(), search_path(job)),
        ("HOME".to_owned(), folder.clone()),
        ("TMPDIR".to_owned(), folder),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ])
}

/// Why a program that we ended did not finish.
pub(crate) fn stopped(exit: &Exit) -> Result<(), Failure> {
    Err(match exit.stopped {
        None => return Ok(()),
        Some(Stopped::Cancelled) => Failure::new(FailureCode::Cancelled, "cancelled"),
        Some(Stopped::TimedOut) => Failure::new(FailureCode::TimedOut, "the time limit was reached"),
        Some(Stopped::LeaseLost) => Failure::transient("the worker lost its lease on the operation"),
    })
}

/// A program's own words on why it failed, or how it ended where its last line says nothing.
pub(crate) fn reason(name: &str, exit: &Exit) -> String {
    let line = exit.last_line.trim();
    match exit.code {
        _ if line.contains(char::is_alphanumeric) => line.to_owned(),
        Some(code) if line.is_empty() => format!("{name} ended with exit code {code} and said nothing"),
        Some(code) => format!("{name} ended with exit code {code}: the log says more"),
        None => format!("{name} was killed by a signal"),
    }
}

/// A program's standard output, kept up to a limit.
pub(crate) struct Collected {
    text: String,
    limit: usize,
    pub overflow: bool,
}

impl Collected {
    pub fn new(limit: usize) -> Self {
        Self { text: String::new(), limit, overflow: false }
    }

    pub fn line(&mut self, line: &str) {
        if self.overflow || self.text.len() + line.len() > self.limit {
            self.overflow = true;
        } else {
            self.text.push_str(line);
            self.text.push('\n');
        }
    }

    pub fn text(&self) -> &str {
        self.text.trim()
    }
}
