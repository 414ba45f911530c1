//! The few system calls without a safe wrapper.
//!
//! The only unsafe code of the crate. All of it runs in the guard, which has exactly one thread (checked by
//! [`fork_into`]): a forked copy of it can allocate and lock as usual, and closing descriptors behind their
//! owners' backs is sound because a forked copy never returns to the code that owns them.
#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
};

use nix::{errno::Errno, unistd::Pid};

/// Forks, with new namespaces as `flags` say. `Ok(None)` is the child.
pub fn fork_into(flags: libc::c_int) -> io::Result<Option<Pid>> {
    // Inside a new PID namespace the old /proc does not know us: nothing to count, and nothing to fear.
    if std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() != 1) {
        return Err(io::Error::other("the guard must have one thread"));
    }
    let word = libc::c_long::from(flags | libc::SIGCHLD);
    const NONE: libc::c_long = 0;
    // SAFETY: one thread, and no new stack: this is fork(2) with flags.
    let pid = unsafe { libc::syscall(libc::SYS_clone, word, NONE, NONE, NONE, NONE) };
    match Errno::result(pid)? {
        0 => Ok(None),
        pid => Ok(Some(Pid::from_raw(pid as i32))),
    }
}

/// Ends a forked copy without running what the original registered for its own end.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// Takes over a descriptor that arrived over the socket.
pub fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made it for this process and nobody else holds its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A descriptor that becomes readable when this process ends.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes plain numbers and returns a new descriptor (close-on-exec by itself).
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(std::process::id() as i32), 0) };
    Ok(adopt(Errno::result(fd)? as RawFd))
}

/// Closes every descriptor above standard error but those named.
pub fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().filter(|&&fd| fd > 2).map(|&fd| fd as u32).collect();
    keep.sort_unstable();
    let mut first = 3;
    for end in keep.into_iter().map(Some).chain([None]) {
        let last = end.map_or(u32::MAX, |fd| fd.wrapping_sub(1));
        if first <= last {
            // SAFETY: see the head of this file. A kernel without the call leaves them open, close-on-exec.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = end.map_or(u32::MAX, |fd| fd + 1);
    }
}

/// Gives every signal its default meaning again (the Rust runtime ignores SIGPIPE, the guard some more).
pub fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no code. Numbers that cannot be changed are refused by the kernel.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Takes a capability away from every program started from here on.
pub fn drop_from_bounding_set(capability: u32) -> bool {
    // SAFETY: takes plain numbers.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) == 0 }
}

/// Takes the last place when there is not enough time for all. Always allowed.
pub fn step_back() {
    const LAST: i32 = 19;
    let ordinary = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain numbers and a parameter that lives; it concerns this process alone.
    unsafe {
        libc::sched_setscheduler(0, libc::SCHED_OTHER, &ordinary);
        libc::setpriority(libc::PRIO_PROCESS, 0, LAST);
    }
}

/// Comes before all others, where that is allowed. What is started from here on does as well.
pub fn step_forward() {
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: a parameter that lives; it concerns this process alone.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &first) };
}

/// The version of landlock this kernel speaks; 0 = none.
pub fn landlock_abi() -> i64 {
    // SAFETY: a null attribute with this flag only asks for the version.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    abi.max(0)
}

/// Ignores what is meant for the worker: the guard ends when the worker does.
pub fn ignore_signals(signals: &[i32]) {
    for &signal in signals {
        // SAFETY: SIG_IGN installs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
