//! How much a program can use. Each test asks a real, greedy program; every way of holding it is tried.

use conductor_domain::work::FailureCode;
use serde_json::{Value, json};

use super::script::{Bench, NAMESPACES, PLAIN, failed, guard, is, order};

const COUNTED: &[&str] = &["--no-groups"];
const PLAIN_COUNTED: &[&str] = &["--plain", "--no-groups"];
const EVERY_WAY: [&[&str]; 4] = [NAMESPACES, PLAIN, COUNTED, PLAIN_COUNTED];

/// Whether something is kept by something here: asked of the guard, which has to tell the truth.
fn is_kept_by(flags: &[&str], aspect: &str, means: &str) -> bool {
    let lines = conductor_worker::protections_of(&guard(flags));
    lines.iter().any(|line| line.starts_with(&format!("{aspect}: confined by {means}")))
}

fn has_group(flags: &[&str], aspect: &str) -> bool {
    is_kept_by(flags, aspect, "a control group")
}

fn greedy(python: &str, limits: Value) -> Value {
    json!({ "python": python, "limits": limits, "env": { "PATH": "/usr/bin:/bin" } })
}

#[tokio::test]
async fn no_more_processes_than_allowed() {
    let script = "
import os, sys, time
made = 0
for _ in range(400):
    try:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        made += 1
    except OSError: break
time.sleep(1)
print(made, flush=True)
os._exit(0 if made < 64 else 1)
";
    for flags in EVERY_WAY {
        let bench = Bench::with(flags, |_| {});
        let config = greedy(script, json!({ "processes": 64 }));
        let user_namespace = !flags.contains(&"--plain") && is_kept_by(flags, "processes", "RLIMIT_NPROC");
        if has_group(flags, "processes") || user_namespace {
            let made: u64 = bench.stdout(config).await.parse().unwrap();
            assert!((32..64).contains(&made), "{flags:?}: {made}");
            let log = bench.link.log().join("\n");
            let noted = log.contains("was kept from using more than 64 processes");
            assert!(noted || user_namespace, "{flags:?}: {log}");
        } else {
            let failure = bench.failure(config).await;
            is(&failure, FailureCode::Failed);
            let says = "was ended because it used more than 64 processes (config.limits.processes)";
            assert!(failure.message.contains(says), "{flags:?}: {failure}");
        }
        assert_eq!(bench.stdout(json!({ "sh": "echo next" })).await, "next", "{flags:?}");
    }
}

/// Every process makes more of itself for as long as it can, each third in a session of its own.
#[tokio::test]
async fn a_fork_bomb_is_put_out() {
    let script = "
import os, time
end = time.time() + 8
while time.time() < end:
    try:
        if os.fork() == 0: os.setsid() if os.getpid() % 3 == 0 else None
    except OSError: pass
";
    for flags in EVERY_WAY {
        let bench = Bench::with(flags, |_| {});
        let mut bomb = order(greedy(script, json!({ "processes": 64, "cpu": 1 })));
        bomb.timeout_ms = 3_000;
        bench.link.offer(bomb);
        let failure = failed(bench.link.completed(1).await);
        let counted = is_kept_by(flags, "processes", "the guard's count");
        assert!(!counted || failure.message.contains("more than 64 processes"), "{flags:?}: {failure}");
        assert_eq!(bench.stdout(json!({ "sh": "echo next" })).await, "next", "{flags:?}");
    }
}

#[tokio::test]
async fn no_more_memory_than_allowed_in_one_process() {
    let script = "
kept = []
while True: kept.append(bytearray(8 << 20))
";
    for flags in EVERY_WAY {
        let bench = Bench::with(flags, |_| {});
        let failure = bench.failure(greedy(script, json!({ "memory": "128MiB" }))).await;
        is(&failure, FailureCode::Failed);
        // Refused by the kernel, or ended by whoever counts: the quicker one.
        let says = ["MemoryError", "more than 128MiB of memory (config.limits.memory)"];
        assert!(says.iter().any(|text| failure.message.contains(text)), "{flags:?}: {failure}");
    }
}

#[tokio::test]
async fn no_more_memory_than_allowed_in_all_processes_together() {
    let script = "
import os, time
for _ in range(6):
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20) * 40)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
";
    for flags in EVERY_WAY {
        let bench = Bench::with(flags, |_| {});
        let failure = bench.failure(greedy(script, json!({ "memory": "128MiB" }))).await;
        is(&failure, FailureCode::Failed);
        let says = "was ended because it used more than 128MiB of memory (config.limits.memory)";
        assert!(failure.message.contains(says), "{flags:?}: {failure}");
    }
}

/// Copies of a process share what neither has written to: that must not be counted for each.
#[tokio::test]
async fn memory_in_common_counts_once() {
    let script = "
import os, time
kept = bytearray(os.urandom(1 << 20) * 60)
for _ in range(6):
    if os.fork() == 0: time.sleep(1); os._exit(0)
time.sleep(1)
print('fine', flush=True)
";
    for flags in EVERY_WAY {
        let bench = Bench::with(flags, |_| {});
        assert_eq!(bench.stdout(greedy(script, json!({ "memory": "160MiB" }))).await, "fine", "{flags:?}");
    }
}

#[tokio::test]
async fn no_more_on_disk_than_allowed() {
    let named = "
import time
for number in range(40): open(f'file-{number}', 'wb').write(bytes(1 << 20)); time.sleep(0.02)
time.sleep(20)
";
    let removed = "
import os, time
kept = []
for number in range(40):
    kept.append(open('file', 'wb')); os.remove('file'); kept[-1].write(bytes(1 << 20)); kept[-1].flush()
time.sleep(20)
";
    let small = "
import time
for number in range(9000): open(f'file-{number}', 'wb')
time.sleep(20)
";
    let deep = "
import os, time
for _ in range(60): os.mkdir('x' * 200); os.chdir('x' * 200)
open('file', 'wb').write(bytes(64 << 20))
time.sleep(20)
";
    let bench = Bench::new();
    for script in [named, removed, small, deep] {
        let failure = bench.failure(greedy(script, json!({ "disk": "32MiB" }))).await;
        is(&failure, FailureCode::Failed);
        let says = "was ended because it used more than 32MiB in the job's folder (config.limits.disk)";
        assert!(failure.message.contains(says), "{script}: {failure}");
        assert!(bench.jobs().is_empty(), "{:?}", bench.jobs());
    }
}

#[tokio::test]
async fn no_file_larger_than_allowed() {
    let bench = Bench::new();
    let config = json!({
        "sh": "exec head -c 3000000 /dev/zero > file", "limits": { "fileSize": "1MiB" },
        "env": { "PATH": "/usr/bin:/bin" }
    });
    let failure = bench.failure(config).await;
    let says = "was ended because it used a file of more than 1MiB (config.limits.fileSize)";
    assert!(failure.message.contains(says), "{failure}");
}

#[tokio::test]
async fn no_more_cpu_than_allowed() {
    if !has_group(NAMESPACES, "cpu") {
        return;
    }
    let script = "
import time
end = time.time() + 1.5
while time.time() < end: pass
print(time.process_time())
";
    let bench = Bench::new();
    let used: f64 = bench.stdout(greedy(script, json!({ "cpu": 0.2 }))).await.parse().unwrap();
    assert!(used < 0.7, "{used} seconds in one and a half");
}

#[tokio::test]
async fn limits_that_make_no_sense_are_refused() {
    let bench = Bench::new();
    let failure = bench.failure(json!({ "sh": "true", "limits": { "memory": "much" } })).await;
    is(&failure, FailureCode::Invalid);
    assert!(failure.message.starts_with("config.limits.memory must be a size"), "{failure}");
}

/// The folders of control groups that carry a guard's number.
fn groups() -> Vec<String> {
    let trees = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let folders = trees.flat_map(|tree| std::fs::read_dir(tree.path()).into_iter().flatten().flatten());
    let names = folders.map(|folder| folder.path().display().to_string());
    names.filter(|name| name.contains("/conductor-")).collect()
}

#[tokio::test]
async fn groups_go_with_their_guard_and_those_of_killed_ones_with_the_next() {
    let bench = Bench::with(&["--plain", "--no-landlock"], |_| {});
    // Without its protections a program can find its guard: its parent's parent.
    let run = |script: &str| json!({ "sh": script, "env": { "PATH": "/usr/bin:/bin" } });
    let number = bench.stdout(run("cut -d ' ' -f 4 /proc/$PPID/stat")).await;
    let left = || groups().iter().any(|path| path.ends_with(&format!("/conductor-{number}")));
    assert_eq!(left(), has_group(NAMESPACES, "cpu"), "{:?}", groups());
    bench.failure(run("kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); sleep 5")).await;
    assert_eq!(bench.stdout(json!({ "sh": "echo again" })).await, "again");
    assert!(!left(), "{:?}", groups());
}
