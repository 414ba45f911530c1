//! The system calls that no provisioning program needs, refused by a seccomp filter.
//!
//! A list of what is denied, not of what is allowed: programs of any language run here. What is denied is
//! told EPERM, so that a program can say what it was after. Calls that libraries fall back from are told
//! ENOSYS: `clone3`, whose flags lie in memory where a filter cannot see them, and `memfd_create` where
//! nothing would count that memory. A program for another architecture than the guard's is killed: its
//! calls have other numbers.

use std::{collections::BTreeMap, io};

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Compiled once by the guard, installed by every program just before it begins.
pub struct Filters(Vec<BpfProgram>);

impl Filters {
    /// `memory_counted`: a control group counts memory, also that of no process in particular.
    pub fn new(memory_counted: bool) -> Result<Self, String> {
        let attempt = || -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
            let mut absent = vec![libc::SYS_clone3];
            if !memory_counted {
                absent.extend([libc::SYS_memfd_create, libc::SYS_memfd_secret]);
            }
            let absent = absent.into_iter().map(|call| (call, Vec::new())).collect();
            let mut programs = vec![compile(absent, libc::ENOSYS)?, compile(denied()?, libc::EPERM)?];
            programs.extend(without_x32());
            Ok(programs)
        };
        attempt().map(Self).map_err(|error| error.to_string())
    }

    /// For the calling thread and everything it becomes or starts, for good.
    pub fn install(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|program| seccompiler::apply_filter(program).map_err(io::Error::other))
    }
}

fn compile(rules: Rules, error: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(error as u32), arch)?.try_into()
}

/// Newer than the libc crate.
const OPEN_TREE_ATTR: i64 = 467;

/// Denied whatever their arguments.
const NEVER: &[i64] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel's own code, and doors into it that have been broken often.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // Also a way around every other rule here: what is queued is not filtered.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // The tree of files.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_setns,
    // Keys that belong to the user rather than to the program.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The machine as a whole.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_nfsservctl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
];

/// New namespaces give power inside them, and the code that then becomes reachable is often broken.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Netlink stays: it is how Go and the C library list interfaces.
const SOCKETS: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// The kind of a socket without its flags.
const SOCKET_KIND: u64 = 0xf;
/// As old as it is: packets by way of AF_INET.
const SOCK_PACKET: i32 = 10;

fn denied() -> Result<Rules, seccompiler::BackendError> {
    let argument = |number, operation, value: i32| {
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, operation, u64::from(value as u32))
    };
    let mut rules: Rules = NEVER.iter().map(|&call| (call, Vec::new())).collect();
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        let each = NAMESPACES
            .map(|flag| SeccompRule::new(vec![argument(0, SeccompCmpOp::MaskedEq(flag as u64), flag)?]));
        rules.insert(call, each.into_iter().collect::<Result<_, _>>()?);
    }
    let unknown = SOCKETS.map(|family| argument(0, SeccompCmpOp::Ne, family));
    let mut sockets = vec![SeccompRule::new(unknown.into_iter().collect::<Result<_, _>>()?)?];
    for (family, kind) in
        [(libc::AF_INET, libc::SOCK_RAW), (libc::AF_INET6, libc::SOCK_RAW), (libc::AF_INET, SOCK_PACKET)]
    {
        let family = argument(0, SeccompCmpOp::Eq, family)?;
        sockets
            .push(SeccompRule::new(vec![family, argument(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind)?])?);
    }
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// The x32 calls have the numbers of x86_64 with one bit more, which no rule above would match.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> Option<BpfProgram> {
    use seccompiler::sock_filter as Step;
    const X32: u32 = 0x4000_0000;
    let code = |bits: u32| bits as u16;
    Some(vec![
        Step { code: code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS), jt: 0, jf: 0, k: 0 },
        Step { code: code(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K), jt: 0, jf: 1, k: X32 },
        Step {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
        },
        Step { code: code(libc::BPF_RET | libc::BPF_K), jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ])
}

#[cfg(not(target_arch = "x86_64"))]
fn without_x32() -> Option<BpfProgram> {
    None
}
