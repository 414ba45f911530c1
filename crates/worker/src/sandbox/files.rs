//! Landlock: which files and TCP ports a program can reach, and whom it can signal.
//!
//! UDP and Unix sockets with a path are not covered by it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};

use crate::guard::wire::Spec;

/// The newest version whose meaning is known here; an older kernel enforces what it knows.
const KNOWN: ABI = ABI::V6;
/// The first version that knows TCP ports.
pub const WITH_PORTS: i64 = 4;
/// The first version that keeps signals and abstract sockets in.
pub const WITH_SCOPES: i64 = 6;

const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Files below /etc that are often links to somewhere else.
const LINKED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];

/// Confines the calling process for good.
pub fn restrict(spec: &Spec) -> Result<(), landlock::RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    let read = AccessFs::from_read(KNOWN);
    let device: BitFlags<AccessFs> =
        AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    readable.extend(LINKED.iter().filter_map(|path| fs::canonicalize(path).ok()));
    readable.push(PathBuf::from("/proc"));
    readable.push(spec.path.clone());
    readable.extend(spec.read.iter().cloned());

    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?
        .add_rules(path_beneath_rules(present(&readable), read))?
        .add_rules(path_beneath_rules(present(&spec.write), all))?
        .add_rules(path_beneath_rules(DEVICES, device))?;
    for &port in &spec.connect {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    rules.restrict_self()?;
    Ok(())
}

fn present(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path).filter(|path| path.exists())
}
