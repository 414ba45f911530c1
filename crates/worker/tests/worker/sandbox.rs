//! What a program can see and reach. Each test asks a real, hostile program.

use std::net::TcpListener;

use conductor_worker::{Aspect, WorkerError};
use serde_json::json;

use super::script::{Bench, NAMESPACES, PLAIN};

#[tokio::test]
async fn the_environment_is_what_was_given_and_nothing_else() {
    let bench = Bench::new();
    let stdout = bench.stdout(json!({ "program": "/usr/bin/env", "env": { "ONE": "1" } })).await;
    assert_eq!(stdout, "ONE=1");
    assert_eq!(bench.stdout(json!({ "program": "/usr/bin/env" })).await, "");
}

#[tokio::test]
async fn nothing_outside_can_be_read_or_written_unless_allowed() {
    let bench = Bench::new();
    let outside = bench.outside.path();
    std::fs::write(outside.join("secret"), "treasure").unwrap();
    let script = format!(
        "cat {0}/secret 2>/dev/null; ls {0} 2>/dev/null; ls {1} 2>/dev/null; ls {1}/jobs 2>/dev/null
         (echo x > {0}/new) 2>/dev/null && echo wrote; (echo x > /tmp/conductor-escape) 2>/dev/null && echo wrote
         (mkdir /etc/conductor-escape) 2>/dev/null && echo wrote; (: >> /usr/bin/env) 2>/dev/null && echo wrote
         cat /etc/passwd > copy && head -c 4 copy; echo x > /dev/null && cat own 2>/dev/null || echo ' fine'",
        outside.display(),
        bench.data.path().display()
    );
    assert_eq!(bench.stdout(json!({ "sh": script })).await, "root fine");
    let script =
        format!("cat {0}/secret; (echo x > {0}/new) 2>/dev/null || echo ' read-only'", outside.display());
    assert_eq!(bench.stdout(json!({ "sh": script, "read": [outside] })).await, "treasure read-only");
    let script = format!("echo x > {0}/new && mv {0}/new {0}/newer && cat {0}/newer", outside.display());
    assert_eq!(bench.stdout(json!({ "sh": script, "write": [outside] })).await, "x");
}

#[tokio::test]
async fn no_other_process_can_be_seen_or_signalled() {
    for flags in [NAMESPACES, PLAIN] {
        let bench = Bench::with(flags, |_| {});
        let other = format!("{}", std::process::id());
        // This test's own environment has PATH or HOME: nothing of the kind may be found in any process.
        let script = format!(
            "for e in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $e 2>/dev/null | grep -q '^CARGO\\|^PATH=\\|^HOME=' && echo found $e; done
             kill -0 {other} 2>/dev/null && echo signalled; kill -0 1 2>/dev/null && [ {plain} = yes ] && echo init; echo over",
            plain = if flags == PLAIN { "yes" } else { "no" }
        );
        // The shell exports PATH only when it is given one; it is not.
        assert_eq!(bench.stdout(json!({ "sh": script })).await, "over", "{flags:?}");
    }
}

#[tokio::test]
async fn inside_a_namespace_there_is_nobody_else() {
    let bench = Bench::new();
    let stdout = bench.stdout(json!({ "sh": "echo /proc/[0-9]*" })).await;
    assert!(stdout.split_whitespace().count() <= 3, "{stdout}");
}

#[tokio::test]
async fn only_named_ports_can_be_reached_and_none_be_opened() {
    let bench = Bench::new();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [open, closed] = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let script = format!(
        "
import socket
for port in ({open}, {closed}):
    try: socket.create_connection(('127.0.0.1', port), 2); print('reached')
    except PermissionError: print('denied')
try: socket.create_server(('127.0.0.1', 0)); print('opened')
except PermissionError: print('denied')
"
    );
    let stdout = bench.stdout(json!({ "python": script, "connect": [open] })).await;
    assert_eq!(stdout, "reached\ndenied\ndenied");
}

#[tokio::test]
async fn power_is_left_behind_and_limits_hold() {
    let bench = Bench::new();
    let script = "
import resource
print([resource.getrlimit(r)[0] for r in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)])
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
print(status['NoNewPrivs'].strip(), hex(int(status['CapEff'], 16) & ~0xfb))
import os; print(sorted(os.listdir('/proc/self/fd'))[:4], os.getsid(0) == os.getpid())
";
    let stdout = bench.stdout(json!({ "python": script })).await;
    assert_eq!(stdout, "[0, 4096, 2147483648]\n1 0x0\n['0', '1', '2', '3'] True");
}

/// Calls by number, with the error each gets; harmless arguments, should one come through.
const CALLS: &str = "
import ctypes, errno, os, platform
call = ctypes.CDLL(None, use_errno=True).syscall
def error(number, *args):
    ctypes.set_errno(0)
    call(ctypes.c_long(number), *(ctypes.c_long(a) for a in args))
    return errno.errorcode.get(ctypes.get_errno(), 'none')
x86 = platform.machine() == 'x86_64'
";

#[tokio::test]
async fn calls_that_no_provisioning_program_needs_are_denied() {
    let bench = Bench::new();
    let script = format!(
        "{CALLS}
numbers = dict(ptrace=101, process_vm_readv=310, process_vm_writev=311, kexec_load=246, init_module=175,
    finit_module=313, delete_module=176, bpf=321, perf_event_open=298, mount=165, umount2=166, pivot_root=155,
    setns=308, keyctl=250, add_key=248, request_key=249, userfaultfd=323, swapon=167, swapoff=168, reboot=169,
    settimeofday=164, clock_settime=227, adjtimex=159, quotactl=179, acct=163, open_by_handle_at=304,
    name_to_handle_at=303, sethostname=170, iopl=172, ioperm=173) if x86 else dict(ptrace=117, mount=40)
numbers.update(io_uring_setup=425, io_uring_enter=426, io_uring_register=427, open_tree=428, move_mount=429,
    fsopen=430, fsmount=432, mount_setattr=442)
for name, number in numbers.items():
    seen = error(number, -1, -1, -1, -1, -1)
    if seen != 'EPERM': print(name, seen)
new_user, clone, unshare = 0x10000000, (56 if x86 else 220), (272 if x86 else 97)
print(error(435, 0, 0), error(clone, new_user | 17, 0, 0, 0, 0), error(unshare, new_user))
print(error(unshare, 0x200), 'x32', error(0x40000000 | 39) if x86 else 'ENOSYS')
"
    );
    let stdout = bench.stdout(json!({ "python": script })).await;
    assert_eq!(stdout, "ENOSYS EPERM EPERM\nnone x32 ENOSYS");
}

#[tokio::test]
async fn only_ordinary_sockets_can_be_had() {
    let bench = Bench::new();
    let script = "
import socket as s
def tried(family, kind):
    try: s.socket(family, kind).close(); return 'ok'
    except OSError as e: return e.errno
print([tried(*pair) for pair in ((s.AF_UNIX, s.SOCK_STREAM), (s.AF_INET, s.SOCK_STREAM), (s.AF_INET6, s.SOCK_DGRAM),
    (s.AF_NETLINK, s.SOCK_RAW), (s.AF_NETLINK, s.SOCK_DGRAM))])
print([tried(*pair) for pair in ((s.AF_PACKET, s.SOCK_RAW), (s.AF_PACKET, s.SOCK_DGRAM), (40, s.SOCK_STREAM),
    (38, s.SOCK_SEQPACKET), (s.AF_INET, s.SOCK_RAW), (s.AF_INET6, s.SOCK_RAW | s.SOCK_CLOEXEC), (s.AF_INET, 10))])
print(bool(s.if_nameindex()))
";
    let stdout = bench.stdout(json!({ "python": script })).await;
    assert_eq!(stdout, "['ok', 'ok', 'ok', 'ok', 'ok']\n[1, 1, 1, 1, 1, 1, 1]\nTrue");
}

#[tokio::test]
async fn ordinary_programs_notice_nothing() {
    let bench = Bench::new();
    let script = "
import asyncio, multiprocessing, subprocess, threading
thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
subprocess.run(['bash', '-c', 'set -m; sleep 0.01 & wait; diff <(echo a) <(echo a)'], check=True)
subprocess.run(['git', 'init', '--quiet', 'repository'], check=True)
subprocess.run(['git', '-C', 'repository', '-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '--quiet',
    '--allow-empty', '--message', 'first'], check=True)
process = multiprocessing.Process(target=print); process.start(); process.join()
asyncio.run(asyncio.create_subprocess_exec('true'))
print('fine', process.exitcode)
";
    let env = json!({ "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "." });
    let stdout = bench.stdout(json!({ "python": script, "env": env })).await;
    assert!(stdout.ends_with("fine 0"), "{stdout}");
}

/// Shared memory of the old kind belongs to nobody, and would stay.
#[tokio::test]
async fn shared_memory_goes_with_the_program() {
    let bench = Bench::new();
    let segments = || std::fs::read_to_string("/proc/sysvipc/shm").unwrap().lines().count();
    let before = segments();
    let script = "
import ctypes
libc = ctypes.CDLL(None)
print(libc.shmget(0x1234, 4096, 0o1600) >= 0, len(open('/proc/sysvipc/shm').readlines()))
";
    assert_eq!(bench.stdout(json!({ "python": script })).await, "True 2");
    assert_eq!(segments(), before);
}

#[tokio::test]
async fn a_worker_that_cannot_keep_what_is_required_does_not_start() {
    let bare = &["--plain", "--no-landlock", "--no-seccomp"];
    let bench = Bench::with(bare, |config| {
        config.require_isolation = Aspect::list("disk,files,syscalls").unwrap();
    });
    let WorkerError::NotIsolated(missing) = bench.running.await.unwrap().unwrap_err() else {
        panic!("another error was expected")
    };
    assert_eq!(missing, ["files: NOT confined (switched off)", "syscalls: NOT confined (switched off)"]);
    assert!(bench.link.kept().acquires.is_empty(), "it asks for no work");

    let bench = Bench::with(bare, |config| config.require_isolation = vec![Aspect::Disk, Aspect::Processes]);
    assert_eq!(bench.stdout(json!({ "sh": "echo fine" })).await, "fine");
    let told = bench.link.kept().acquires[0].isolation.clone();
    assert_eq!(told.len(), Aspect::ALL.len(), "{told:?}");
    assert!(told.contains(&"files: NOT confined (switched off)".to_owned()), "{told:?}");
}

#[test]
fn what_protects_programs_here_can_be_asked() {
    let lines = conductor_worker::protections_of(&super::script::guard(NAMESPACES));
    assert!(lines.iter().any(|line| line.starts_with("files: ")), "{lines:?}");
    let bare = &["--plain", "--no-landlock", "--no-seccomp", "--no-groups"];
    let lines = conductor_worker::protections_of(&super::script::guard(bare));
    let lines: Vec<String> = lines.iter().map(|line| line.replace("RLIMIT_NPROC and ", "")).collect();
    assert_eq!(
        lines,
        [
            "files: NOT confined (switched off)",
            "tcp ports: NOT confined (switched off)",
            "signals: NOT confined (switched off)",
            "syscalls: NOT confined (switched off)",
            "processes: confined by the guard's count (switched off)",
            "memory: confined by RLIMIT_DATA in each process and the guard's sum over all (switched off)",
            "cpu: NOT confined (switched off)",
            "disk: confined by the worker's look at the job's folder",
            "pid namespace: NOT confined (switched off)",
        ]
    );
}
