//! From a forked copy of the guard to the program itself: namespaces, streams, confinement, exec.

use std::{
    ffi::CString,
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
};

use nix::{
    mount::{MsFlags, mount},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd,
};

use super::{fork, groups::Group, tree::Kind, wire::Spec};
use crate::sandbox::Sandbox;

/// Settles into the new namespaces. Says whether /proc shows only what is inside.
pub fn enter(kind: Kind, (user, group): (unistd::Uid, unistd::Gid)) -> io::Result<bool> {
    if kind == Kind::UserNamespace {
        // The files below belong to root while a process is not dumpable.
        prctl::set_dumpable(true)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    prctl::set_dumpable(false)?;
    if !kind.has_namespace() {
        return Ok(false);
    }
    let nothing = None::<&str>;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("proc"), "/proc", Some("proc"), quiet, nothing).is_ok())
}

/// Turns this process into the program. Returns only when that fails.
pub fn become_program(spec: &Spec, streams: [OwnedFd; 3], sandbox: &Sandbox, group: &Group) -> io::Error {
    let attempt = || -> io::Result<()> {
        if sandbox.is_counted_by_guard() {
            // Who counts could not end what leaves it no time.
            fork::step_back();
        }
        group.enter()?;
        if !sandbox.kind_for(spec).has_namespace() {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
        }
        unistd::setsid()?;
        fork::reset_signals();
        SigSet::all().thread_unblock()?;
        let [stdin, stdout, stderr] = &streams;
        unistd::dup2_stdin(stdin)?;
        unistd::dup2_stdout(stdout)?;
        unistd::dup2_stderr(stderr)?;
        unistd::chdir(&spec.folder).map_err(|error| {
            io::Error::other(format!("cannot work in {}: {error}", spec.folder.display()))
        })?;
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
        if spec.container.is_none() {
            sandbox.confine(spec)?;
        }
        exec(spec)
    };
    attempt().err().unwrap_or_else(|| io::Error::other("nothing happened"))
}

/// Replaces this process. Returns only when that fails.
pub fn exec(spec: &Spec) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
    let path = text(spec.path.as_os_str().as_bytes())?;
    let mut args = vec![path.clone()];
    for arg in &spec.args {
        args.push(text(arg.as_bytes())?);
    }
    let mut env = Vec::new();
    for (name, value) in &spec.env {
        env.push(text(format!("{name}={value}").as_bytes())?);
    }
    unistd::execve(&path, &args, &env)?;
    Ok(())
}
