//! The release that this one is upgraded from, built from its source as it was.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/release-0.1.tar.xz");

/// Its binary. Built once; the source never changes.
pub fn earlier_release() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let me = std::env::current_exe().expect("the path of the tests");
        let target = me.ancestors().nth(3).expect("the target folder").join("release-0.1");
        let (source, built) = (target.join("source"), target.join("built"));
        fs::create_dir_all(&source).expect("a folder");
        let unpack = Command::new("tar").arg("-xJf").arg(SOURCE).arg("-C").arg(&source).status();
        assert!(unpack.expect("tar runs").success(), "{SOURCE} cannot be unpacked");
        let cargo = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--package", "conductor", "--bin", "conductor"])
            .arg("--target-dir")
            .arg(&built)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(&source)
            .output()
            .expect("cargo runs");
        let told = String::from_utf8_lossy(&cargo.stderr);
        assert!(cargo.status.success(), "the earlier release cannot be built:\n{told}");
        built.join("debug/conductor")
    })
}
