//! Tools that tests need: from the environment, else where `scripts/setup` puts them.

use std::{path::PathBuf, process::Command};

/// Whether tests that need servers or terraform are left out, because somebody asked for that.
pub fn quick() -> bool {
    std::env::var("CONDUCTOR_TEST_QUICK").is_ok_and(|value| value == "1")
}

/// A tool by the variable that names it.
pub fn tool(variable: &str) -> PathBuf {
    let given = std::env::var(variable).ok().filter(|path| !path.is_empty());
    let path = PathBuf::from(given.unwrap_or_else(|| from_setup(variable)));
    assert!(path.exists(), "{variable} is {}, which is not there; run: scripts/setup", path.display());
    path
}

pub fn terraform() -> PathBuf {
    tool("CONDUCTOR_TEST_TERRAFORM")
}

pub fn tofu() -> PathBuf {
    tool("CONDUCTOR_TEST_TOFU")
}

/// The release that this one is upgraded from, built from its source as it was.
pub fn earlier_release() -> PathBuf {
    tool("CONDUCTOR_TEST_RELEASE")
}

fn from_setup(variable: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/setup");
    let told = Command::new(script).arg("--env").output().expect("scripts/setup runs");
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let start = format!("export {variable}=");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    let value = line
        .unwrap_or_else(|| panic!("{variable} is not set and its tool is not installed; run: scripts/setup"));
    value.trim_matches(['"', '\'']).to_owned()
}

/// A Python that a sandboxed program can run: the real one, not a shim, and the folders it reads.
pub fn python() -> (String, Vec<String>) {
    let system = "/usr/bin/python3";
    let asked = if std::path::Path::new(system).exists() { system } else { "python3" };
    let script =
        "import os, sys\nprint(os.path.realpath(sys.executable), sys.prefix, sys.base_prefix, sep='\\n')";
    let told = Command::new(asked).args(["-c", script]).output().expect("no python3; run: scripts/setup");
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let mut lines = text.lines().map(str::to_owned);
    let program = lines.next().expect("python3 says where it is");
    (program, lines.collect())
}
