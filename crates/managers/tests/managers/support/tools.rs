//! Where the real tools are. One that is missing fails the test: it is never passed over.

use std::{env, fs, path::PathBuf};

const REMEDY: &str = "run `scripts/setup` and then `eval \"$(scripts/setup --env)\"`";

fn cache() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache");
    env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("conductor/tools")
}

fn present(path: PathBuf, what: &str) -> PathBuf {
    assert!(path.exists(), "{what} is not at {}: {REMEDY}", path.display());
    path
}

pub fn terraform() -> PathBuf {
    if let Some(path) = env::var_os("CONDUCTOR_TEST_TERRAFORM") {
        return present(path.into(), "terraform");
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join("terraform")).find(|path| path.is_file());
    found.unwrap_or_else(|| present(cache().join("bin/terraform"), "terraform"))
}

pub fn tofu() -> PathBuf {
    let path = env::var_os("CONDUCTOR_TEST_TOFU").map_or_else(|| cache().join("bin/tofu"), PathBuf::from);
    present(path, "tofu")
}

/// A folder of unpacked providers, for both tools.
pub fn providers() -> PathBuf {
    if let Some(path) = env::var_os("CONDUCTOR_TEST_PROVIDERS") {
        return present(path.into(), "the providers' folder");
    }
    let entries = fs::read_dir(cache()).into_iter().flatten().flatten();
    let found = entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("providers-")));
    found.unwrap_or_else(|| panic!("there is no folder of providers: {REMEDY}"))
}

/// The folder of PostgreSQL's server programs, the newest where there are several.
pub fn postgres() -> PathBuf {
    if let Some(path) = env::var_os("CONDUCTOR_TEST_PG_BIN") {
        return present(path.into(), "PostgreSQL");
    }
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .filter(|folder| folder.join("initdb").exists())
        .collect();
    found.sort();
    found.pop().unwrap_or_else(|| panic!("PostgreSQL's server is not installed: {REMEDY}"))
}
