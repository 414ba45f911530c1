//! The binary under test, of the same profile and target folder as the running tests.
//!
//! `cargo test --workspace` has built it before any test runs. With `-p conductor-tests` alone it may be missing or
//! older than its sources: only then is it built here, because cargo builds a package on its own with other features
//! than in the workspace, which takes minutes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::SystemTime,
};

/// Where the binary is. `CONDUCTOR_TEST_BIN` names another one, and nothing is built.
pub fn conductor() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("CONDUCTOR_TEST_BIN") {
        Some(path) if !path.is_empty() => std::path::absolute(path).expect("an absolute path"),
        _ => in_target_folder(),
    })
}

fn in_target_folder() -> PathBuf {
    // target/PROFILE/deps/all-HASH
    let me = std::env::current_exe().expect("the path of the tests");
    let profile = me.ancestors().nth(2).expect("the folder of the profile");
    let binary = profile.join("conductor");
    let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates"));
    if changed(&binary) < newest(crates) {
        build(profile);
    }
    binary
}

fn changed(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|info| info.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When a source was last changed; tests are no sources.
fn newest(folder: &Path) -> SystemTime {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let times = entries.map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && entry.file_name() != "tests" => newest(&entry.path()),
        Ok(kind) if kind.is_file() => changed(&entry.path()),
        _ => SystemTime::UNIX_EPOCH,
    });
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn build(profile: &Path) {
    let target = profile.parent().expect("the target folder");
    let name = profile.file_name().and_then(|name| name.to_str()).expect("the profile's name");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "conductor", "--bin", "conductor"])
        .args(["--profile", if name == "debug" { "dev" } else { name }])
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let told = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "the binary cannot be built:\n{told}");
}
