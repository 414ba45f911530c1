//! What a started program can reach, applied by itself just before it becomes that program.
//!
//! Landlock says which files and TCP ports; limits and a small set of capabilities say the rest. Nothing
//! here can be undone from inside. UDP and Unix sockets with a path are not covered by landlock.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope, path_beneath_rules,
};
use nix::sys::{
    prctl,
    resource::{Resource, setrlimit},
};

use crate::guard::{fork, wire::Spec};

/// The newest version whose meaning is known here; an older kernel enforces what it knows.
const KNOWN: ABI = ABI::V6;
/// The first version that knows TCP ports.
const WITH_PORTS: i64 = 4;
/// The first version that keeps signals and abstract sockets in.
const WITH_SCOPES: i64 = 6;

const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Files below /etc that are often links to somewhere else.
const LINKED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];

/// What a program of root keeps: the power over files that it needs to look after its own folder, and to
/// step down to another user. Indexes as in capability(7): chown, dac_override, fowner, fsetid, kill,
/// setgid, setuid.
const KEPT_CAPABILITIES: [u32; 7] = [0, 1, 3, 4, 5, 6, 7];
const LAST_CAPABILITY: u32 = 63;

/// Confines the calling process for good. The last thing before exec.
pub fn confine(spec: &Spec, landlock: bool) -> io::Result<()> {
    let limits = &spec.limits;
    limit(Resource::RLIMIT_CORE, limits.core)?;
    limit(Resource::RLIMIT_NOFILE, limits.open_files)?;
    limit(Resource::RLIMIT_FSIZE, limits.file_size)?;
    for capability in (0..=LAST_CAPABILITY).filter(|c| !KEPT_CAPABILITIES.contains(c)) {
        // Refused to an ordinary user, whose programs have none anyway.
        if !fork::drop_from_bounding_set(capability) {
            break;
        }
    }
    prctl::set_no_new_privs()?;
    if landlock {
        restrict(spec).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Lowers a limit; one that is already lower stays.
fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let (_, hard) = nix::sys::resource::getrlimit(resource)?;
    let value = value.min(hard);
    Ok(setrlimit(resource, value, value)?)
}

fn restrict(spec: &Spec) -> Result<(), landlock::RulesetError> {
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

/// What the kernel offers, in words for people.
pub fn describe(landlock: bool) -> Vec<String> {
    let abi = if landlock { fork::landlock_abi() } else { 0 };
    if abi == 0 {
        return vec![
            "files: NOT confined (no landlock)".into(),
            "tcp ports: NOT confined (no landlock)".into(),
        ];
    }
    let ports = match abi >= WITH_PORTS {
        true => "tcp ports: confined by landlock".to_owned(),
        false => format!("tcp ports: NOT confined (landlock {abi}, {WITH_PORTS} is needed)"),
    };
    let signals = match abi >= WITH_SCOPES {
        true => "signals and abstract sockets: confined by landlock".to_owned(),
        false => {
            format!("signals and abstract sockets: NOT confined (landlock {abi}, {WITH_SCOPES} is needed)")
        }
    };
    vec![format!("files: confined by landlock {abi}"), ports, signals]
}
