//! What a started program can reach and use, applied by itself just before it becomes that program.
//!
//! Landlock says which files and TCP ports, seccomp which system calls, control groups or limits how much;
//! a small set of capabilities is all that root keeps. Nothing here can be undone from inside.

mod files;
mod protection;
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "syscalls_elsewhere.rs")]
mod syscalls;
mod user_limit;

use std::io;

use nix::sys::{
    prctl,
    resource::{Resource, getrlimit, setrlimit},
    wait::{WaitStatus, waitpid},
};

use crate::{
    guard::{Controller, Groups, Kind, Version, fork, wire::Spec},
    limits::Limit,
};
pub use protection::{Aspect, Protection};
use syscalls::Filters;
use user_limit::UserLimit;

/// What a program of root keeps: the power over files that it needs to look after its own folder, and to
/// step down to another user. Indexes as in capability(7): chown, dac_override, fowner, fsetid, kill,
/// setgid, setuid.
const KEPT_CAPABILITIES: [u32; 7] = [0, 1, 3, 4, 5, 6, 7];
const LAST_CAPABILITY: u32 = 63;

pub(crate) const SWITCHED_OFF: &str = "switched off";

/// What the guard is told to do without.
#[derive(Clone, Copy, Debug, Default)]
pub struct Without {
    pub namespaces: bool,
    pub landlock: bool,
    pub seccomp: bool,
    pub groups: bool,
}

/// What there is on this machine to keep programs in, found out once by the guard.
pub struct Sandbox {
    without: Without,
    pub kind: Kind,
    /// Whether programs see a /proc of their own.
    own_proc: bool,
    /// The version of landlock, 0 = none.
    landlock: i64,
    filters: Result<Filters, String>,
    pub groups: Groups,
    user_limit: UserLimit,
}

impl Sandbox {
    pub fn find(without: Without) -> Self {
        let (kind, own_proc) = if without.namespaces { (Kind::Subreaper, false) } else { Kind::probe() };
        let groups = if without.groups { Groups::switched_off() } else { Groups::find() };
        let filters = match without.seccomp {
            true => Err(SWITCHED_OFF.to_owned()),
            false => Filters::new(groups.version(Controller::Memory).is_some()).and_then(attempt),
        };
        Self {
            without,
            kind,
            own_proc,
            landlock: if without.landlock { 0 } else { fork::landlock_abi() },
            filters,
            groups,
            user_limit: UserLimit::find(kind),
        }
    }

    /// How a program is kept together. An engine for containers makes its own namespaces.
    pub fn kind_for(&self, spec: &Spec) -> Kind {
        if spec.container.is_some() { Kind::Subreaper } else { self.kind }
    }

    /// What the guard must look after itself, because the kernel does not.
    pub fn watched(&self) -> Vec<Limit> {
        let watched = [(Controller::Memory, Limit::Memory), (Controller::Pids, Limit::Processes)];
        let without_group = |controller: Controller| self.groups.version(controller).is_none();
        watched
            .into_iter()
            .filter(|(controller, _)| without_group(*controller))
            .map(|(_, limit)| limit)
            .collect()
    }

    /// Whether nothing but the guard's count bounds how many a program becomes.
    pub fn is_counted_by_guard(&self) -> bool {
        self.groups.version(Controller::Pids).is_none() && self.user_limit != UserLimit::Exact
    }

    /// Confines the calling process for good. The last thing before exec.
    pub fn confine(&self, spec: &Spec) -> io::Result<()> {
        let limits = &spec.limits;
        limit(Resource::RLIMIT_CORE, 0)?;
        limit(Resource::RLIMIT_NOFILE, limits.open_files)?;
        limit(Resource::RLIMIT_FSIZE, limits.file_size)?;
        if self.groups.version(Controller::Memory).is_none() {
            // What could be written to, not all that is reserved: Go reserves far more than it ever uses. Twice,
            // because every thread's stack is counted whole; the guard's sum is the exact one.
            limit(Resource::RLIMIT_DATA, limits.memory.saturating_mul(2))?;
        }
        if let (None, Some(most)) =
            (self.groups.version(Controller::Pids), self.user_limit.value(limits.processes))
        {
            limit(Resource::RLIMIT_NPROC, most)?;
        }
        for capability in (0..=LAST_CAPABILITY).filter(|c| !KEPT_CAPABILITIES.contains(c)) {
            // Refused to an ordinary user, whose programs have none anyway.
            if !fork::drop_from_bounding_set(capability) {
                break;
            }
        }
        prctl::set_no_new_privs()?;
        if self.landlock > 0 {
            files::restrict(spec).map_err(io::Error::other)?;
        }
        self.filters.as_ref().map_or(Ok(()), Filters::install)
    }

    /// What is in force here and what is not, one by one.
    pub fn describe(&self) -> Vec<Protection> {
        vec![
            self.by_landlock(Aspect::Files, 1),
            self.by_landlock(Aspect::Ports, files::WITH_PORTS),
            match self.kind.has_namespace() && self.landlock < files::WITH_SCOPES {
                true => Protection::by(Aspect::Signals, "a pid namespace"),
                false => self.by_landlock(Aspect::Signals, files::WITH_SCOPES),
            },
            match &self.filters {
                Ok(_) => Protection::by(Aspect::Syscalls, "seccomp"),
                Err(why) => Protection::none(Aspect::Syscalls, why),
            },
            self.by_group(Aspect::Processes, Controller::Pids).unwrap_or_else(|why| {
                let limit = if self.user_limit == UserLimit::None { "" } else { "RLIMIT_NPROC and " };
                Protection::by(Aspect::Processes, format!("{limit}the guard's count ({why})"))
            }),
            self.by_group(Aspect::Memory, Controller::Memory).unwrap_or_else(|why| {
                let how = "RLIMIT_DATA in each process and the guard's sum over all";
                Protection::by(Aspect::Memory, format!("{how} ({why})"))
            }),
            self.by_group(Aspect::Cpu, Controller::Cpu)
                .unwrap_or_else(|why| Protection::none(Aspect::Cpu, why)),
            Protection::by(Aspect::Disk, "the worker's look at the job's folder"),
            match (self.kind.has_namespace(), self.own_proc) {
                (true, true) => Protection::by(Aspect::Pids, "a pid namespace with a /proc of its own"),
                (true, false) => {
                    Protection::by(Aspect::Pids, "a pid namespace in which the machine's /proc can be seen")
                }
                (false, _) if self.without.namespaces => Protection::none(Aspect::Pids, SWITCHED_OFF),
                (false, _) => Protection::none(Aspect::Pids, "no namespace can be made"),
            },
        ]
    }

    fn by_landlock(&self, aspect: Aspect, needed: i64) -> Protection {
        match self.landlock {
            0 if self.without.landlock => Protection::none(aspect, SWITCHED_OFF),
            0 => Protection::none(aspect, "no landlock"),
            abi if abi < needed => Protection::none(aspect, format!("landlock {abi}, {needed} is needed")),
            abi => Protection::by(aspect, format!("landlock {abi}")),
        }
    }

    fn by_group(&self, aspect: Aspect, controller: Controller) -> Result<Protection, String> {
        let version = self.groups.version(controller).ok_or_else(|| self.groups.refusal(controller))?;
        let number = if version == Version::Two { 2 } else { 1 };
        Ok(Protection::by(aspect, format!("a control group of version {number}")))
    }
}

/// Lowers a limit; one that is already lower stays.
fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let value = value.min(hard);
    Ok(setrlimit(resource, value, value)?)
}

/// Filters that this kernel takes: tried in a process that ends at once.
fn attempt(filters: Filters) -> Result<Filters, String> {
    let failed = |error: io::Error| format!("the kernel takes no seccomp filter: {error}");
    match fork::fork_into(0).map_err(failed)? {
        None => fork::exit_now(match filters.install() {
            Ok(()) => 0,
            Err(_) => 1,
        }),
        Some(pid) => match waitpid(pid, None) {
            Ok(WaitStatus::Exited(_, 0)) => Ok(filters),
            _ => Err("the kernel takes no seccomp filter".to_owned()),
        },
    }
}
