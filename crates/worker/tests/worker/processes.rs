//! Programs end when they must: with their worker, at their deadline, when cancelled.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use conductor_domain::work::FailureCode;
use conductor_managers::Registry;
use conductor_worker::{Shutdown, Worker};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use serde_json::json;

use super::{
    beats::{beating, beats, wait_for_beats, wait_for_silence},
    link::FakeLink,
    script::{Bench, NAMESPACES, PLAIN, Script, config, failed, is, order},
};

const FOLDER: &str = "CONDUCTOR_TEST_WORKER_FOLDER";
const FLAGS: &str = "CONDUCTOR_TEST_WORKER_FLAGS";
const LEASE: &str = "CONDUCTOR_TEST_WORKER_LEASE";

/// Not a test of its own: the worker process that the others kill.
#[tokio::test]
async fn worker_process() {
    let Ok(folder) = std::env::var(FOLDER).map(PathBuf::from) else {
        return;
    };
    let flags = std::env::var(FLAGS).unwrap_or_default();
    let flags: Vec<_> = flags.split_whitespace().collect();
    let link = Arc::new(FakeLink::default());
    let mut order =
        order(json!({ "sh": beating(&folder), "write": [folder], "env": { "PATH": "/usr/bin:/bin" } }));
    order.lease_ms = std::env::var(LEASE).unwrap().parse().unwrap();
    link.offer(order);
    let config = config(&folder.join("data"), &flags);
    Worker::new(link, Registry::default().with(Script), config).run(Shutdown::new()).await.unwrap();
}

struct WorkerProcess {
    child: Child,
    folder: tempfile::TempDir,
}

impl WorkerProcess {
    fn start(flags: &[&str], lease: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::worker_process", "--nocapture"])
            .env(FOLDER, folder.path())
            .env(FLAGS, flags.join(" "))
            .env(LEASE, lease.to_string())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        wait_for_beats(folder.path());
        Self { child, folder }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn guard(&self) -> Pid {
        let mut found = None;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
                continue;
            };
            let parent = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap();
            if parent == self.child.id().to_string() {
                found = Some(Pid::from_raw(pid));
            }
        }
        found.expect("the worker has a guard")
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn killing_the_worker_ends_every_program_of_it() {
    for flags in [NAMESPACES, PLAIN] {
        let worker = WorkerProcess::start(flags, 30_000);
        killpg(worker.pid(), Signal::SIGKILL).unwrap();
        let took = wait_for_silence(worker.folder.path(), Duration::from_secs(1));
        assert!(took < Duration::from_secs(1), "{flags:?}: {took:?}");
    }
}

#[test]
fn killing_the_guard_or_both_ends_every_program() {
    for flags in [NAMESPACES, PLAIN] {
        for both in [true, false] {
            let worker = WorkerProcess::start(flags, 30_000);
            let guard = worker.guard();
            if both {
                kill(worker.pid(), Signal::SIGSTOP).unwrap();
                kill(guard, Signal::SIGKILL).unwrap();
                kill(worker.pid(), Signal::SIGKILL).unwrap();
            } else {
                kill(guard, Signal::SIGKILL).unwrap();
            }
            let took = wait_for_silence(worker.folder.path(), Duration::from_secs(1));
            assert!(took < Duration::from_secs(1), "{flags:?}: {took:?}");
        }
    }
}

#[test]
fn a_frozen_worker_loses_its_programs_before_its_lease_ends() {
    for flags in [NAMESPACES, PLAIN] {
        let lease = 2_400;
        let worker = WorkerProcess::start(flags, lease);
        killpg(worker.pid(), Signal::SIGSTOP).unwrap();
        let took = wait_for_silence(worker.folder.path(), Duration::from_secs(4));
        assert!(took < Duration::from_millis(lease), "{flags:?}: {took:?}");
    }
}

#[tokio::test]
async fn without_renewals_programs_end_before_the_lease_does() {
    for flags in [NAMESPACES, PLAIN] {
        let bench = Bench::with(flags, |_| {});
        let folder = bench.outside.path();
        let mut order =
            order(json!({ "sh": beating(folder), "write": [folder], "env": { "PATH": "/usr/bin:/bin" } }));
        order.lease_ms = 1_500;
        bench.link.offer(order);
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert!(bench.link.kept().completions.is_empty(), "renewals keep it alive beyond its lease");
        bench.link.cut.store(true, Ordering::SeqCst);
        let renewed = bench.link.kept().renewed.unwrap();
        tokio::time::sleep(
            (renewed + Duration::from_millis(1_500)).saturating_duration_since(Instant::now()),
        )
        .await;
        let before = beats(folder);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(beats(folder), before, "{flags:?}: still alive when the lease ended");
        bench.link.cut.store(false, Ordering::SeqCst);
        is(&failed(bench.link.completed(1).await), FailureCode::Transient);
    }
}

#[tokio::test]
async fn an_operation_that_has_another_owner_is_killed_and_not_told() {
    let bench = Bench::new();
    let folder = bench.outside.path();
    let mut order =
        order(json!({ "sh": beating(folder), "write": [folder], "env": { "PATH": "/usr/bin:/bin" } }));
    order.lease_ms = 1_500;
    bench.link.offer(order);
    bench.link.wait(|kept| kept.updates > 0).await;
    bench.link.lost.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    let before = beats(folder);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(beats(folder), before);
    bench.link.lost.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(bench.link.kept().completions.is_empty());
    assert!(bench.jobs().is_empty());
}

#[tokio::test]
async fn cancel_asks_first_and_kills_after_the_grace() {
    for flags in [NAMESPACES, PLAIN] {
        let bench = Bench::with(flags, |_| {});
        let script = "trap 'echo asked >&2' TERM; echo up >&2; while :; do sleep 0.05; done";
        let order = order(json!({ "sh": script, "grace": 600, "env": { "PATH": "/usr/bin:/bin" } }));
        let operation = order.claim.operation;
        bench.link.offer(order);
        bench.link.logged("up").await;
        let started = Instant::now();
        bench.link.cancel(operation);
        is(&failed(bench.link.completed(1).await), FailureCode::Cancelled);
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(600) && took < Duration::from_secs(3), "{flags:?}: {took:?}");
        assert!(bench.link.log().iter().any(|line| line == "asked"), "{:?}", bench.link.log());
    }
}

#[tokio::test]
async fn a_program_that_heeds_the_request_ends_at_once() {
    let bench = Bench::new();
    let script = "trap 'echo bye >&2; exit 0' TERM; echo up >&2; while :; do sleep 0.05; done";
    let order = order(json!({ "sh": script, "env": { "PATH": "/usr/bin:/bin" } }));
    let operation = order.claim.operation;
    bench.link.offer(order);
    bench.link.logged("up").await;
    bench.link.cancel(operation);
    is(&failed(bench.link.completed(1).await), FailureCode::Cancelled);
    assert!(bench.link.log().iter().any(|line| line == "bye"));
}

#[tokio::test]
async fn a_time_limit_ends_programs_and_managers_that_hang() {
    let bench = Bench::new();
    let mut slow = order(json!({ "sh": "sleep 60" }));
    slow.timeout_ms = 300;
    bench.link.offer(slow);
    let failure = failed(bench.link.completed(1).await);
    is(&failure, FailureCode::TimedOut);
    assert_eq!(failure.message, "stopped: TimedOut");
    // A manager that starts no program is dropped: at the latest when its lease runs out.
    let mut hanging = order(json!({ "hang": true }));
    (hanging.timeout_ms, hanging.lease_ms) = (100, 600);
    bench.link.offer(hanging);
    bench.link.cut.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    bench.link.cut.store(false, Ordering::SeqCst);
    is(&failed(bench.link.completed(2).await), FailureCode::TimedOut);
}

#[tokio::test]
async fn what_a_program_leaves_running_ends_with_it() {
    for flags in [NAMESPACES, PLAIN] {
        let bench = Bench::with(flags, |_| {});
        let beat = format!("while :; do echo >> {}/child; sleep 0.02; done", bench.outside.path().display());
        let script = format!("setsid sh -c '{beat}' & sleep 0.3; echo gone");
        let config =
            json!({ "sh": script, "write": [bench.outside.path()], "env": { "PATH": "/usr/bin:/bin" } });
        assert_eq!(bench.stdout(config).await, "gone", "{flags:?}");
        let before = beats(bench.outside.path());
        assert!(before[0] > 0);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(beats(bench.outside.path()), before, "{flags:?}");
    }
}

#[tokio::test]
async fn a_dead_guard_is_replaced() {
    let bench = Bench::with(&["--plain", "--no-landlock"], |_| {});
    // Without its protections a program can reach the guard: its parent's parent.
    let script = "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); sleep 5";
    let failure = bench.failure(json!({ "sh": script, "env": { "PATH": "/usr/bin:/bin" } })).await;
    is(&failure, FailureCode::Transient);
    assert!(failure.message.contains("guard"), "{failure}");
    assert_eq!(bench.stdout(json!({ "sh": "echo again" })).await, "again");
}
