//! Taking work, telling its end, stopping: the worker's own life.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use conductor_api::worker::{JobResult, Task};
use conductor_domain::work::FailureCode;
use conductor_managers::{Registry, pack};
use conductor_worker::Worker;
use serde_json::{Map, json};

use super::{
    link::FakeLink,
    script::{Bench, Script, config, failed, is, order},
};

#[tokio::test]
async fn a_job_runs_to_its_end_and_leaves_no_folder() {
    let bench = Bench::new();
    let JobResult::Done(done) =
        bench.run(json!({ "sh": "cat; touch left; pwd; mkdir -m 0 locked", "stdin": "given " })).await
    else {
        panic!("{:?}", bench.link.log())
    };
    let folder = done.outputs["folder"].value.as_str().unwrap();
    assert_eq!(done.outputs["stdout"].value, format!("given {folder}"));
    assert!(bench.jobs().is_empty(), "{:?}", bench.jobs());
    let kept = bench.link.kept();
    assert_eq!((kept.updates, kept.complete_calls), (0, 1), "a short job is told in one call");
}

#[tokio::test]
async fn a_program_that_fails_or_is_not_there_says_so() {
    let bench = Bench::new();
    let failure =
        bench.failure(json!({ "sh": "echo first >&2; echo 'the reason' >&2; echo >&2; exit 3" })).await;
    assert_eq!(failure.message, "Some(3): the reason");
    let failure = bench.failure(json!({ "program": "/no/such/program" })).await;
    assert!(
        failure.message.contains("/no/such/program: ") && failure.message.contains("No such file"),
        "{failure}"
    );
    let failure = bench.failure(json!({ "program": "no-such-program" })).await;
    assert!(failure.message.contains("no program `no-such-program`"), "{failure}");
}

#[tokio::test]
async fn a_panic_in_a_manager_is_its_failure() {
    let failure = Bench::new().failure(json!({ "panic": "out of ideas" })).await;
    assert_eq!(failure.message, "the manager panicked: out of ideas");
}

#[tokio::test]
async fn lost_answers_give_one_run_and_one_completion() {
    let bench = Bench::new();
    bench.link.lose_grants.store(1, Ordering::SeqCst);
    bench.link.lose_answers.store(2, Ordering::SeqCst);
    let script = format!("echo x >> {}/runs", bench.outside.path().display());
    bench.run(json!({ "sh": script, "write": [bench.outside.path()] })).await;
    bench.link.wait(|kept| kept.complete_calls == 3).await;
    assert_eq!(bench.link.kept().completions.len(), 1);
    assert_eq!(std::fs::read_to_string(bench.outside.path().join("runs")).unwrap(), "x\n");
}

#[tokio::test]
async fn folders_of_dead_workers_are_swept_and_those_of_living_ones_kept() {
    let bench = Bench::new();
    bench.link.offer(order(json!({ "sh": "echo up >&2; sleep 1" })));
    bench.link.logged("up").await;
    let alive = bench.jobs();
    assert_eq!(alive.len(), 1);
    let dead = bench.data.path().join("jobs/op_dead-1/work");
    std::fs::create_dir_all(&dead).unwrap();
    std::fs::write(bench.data.path().join("jobs/op_dead-1/lock"), "").unwrap();

    let other =
        Worker::new(bench.link.clone(), Registry::default().with(Script), config(bench.data.path(), &[]));
    other.run_until(async {}).await.unwrap();
    assert!(!dead.exists());
    assert_eq!(bench.jobs(), alive);
    bench.link.completed(1).await;
}

#[tokio::test]
async fn shutting_down_lets_jobs_finish_and_takes_no_more() {
    let bench = Bench::with(&[], |config| config.slots = 1);
    bench.link.offer(order(json!({ "sh": "echo up >&2; sleep 0.5; echo done" })));
    bench.link.logged("up").await;
    bench.link.offer(order(json!({ "sh": "echo never" })));
    bench.shutdown.signal();
    bench.running.await.unwrap().unwrap();
    let kept = bench.link.kept();
    assert_eq!(kept.completions.len(), 1);
    assert!(matches!(&kept.completions[0].1, JobResult::Done(_)));
}

#[tokio::test]
async fn a_second_signal_cancels() {
    let bench = Bench::new();
    bench.link.offer(order(json!({ "sh": "echo up >&2; sleep 60" })));
    bench.link.logged("up").await;
    bench.shutdown.signal();
    bench.shutdown.signal();
    bench.running.await.unwrap().unwrap();
    is(&failed(bench.link.completed(1).await), FailureCode::Cancelled);
}

#[tokio::test]
async fn an_idle_worker_stops_at_once_and_asks_whether_it_was_granted_something() {
    let bench = Bench::new();
    bench.link.wait(|kept| kept.acquires.len() == 1).await;
    bench.shutdown.drain();
    tokio::time::timeout(Duration::from_secs(2), bench.running).await.unwrap().unwrap().unwrap();
    let kept = bench.link.kept();
    assert_eq!(kept.acquires.len(), 2);
    assert_eq!(kept.acquires[0].request, kept.acquires[1].request);
    assert_eq!((kept.acquires[1].slots, kept.acquires[1].wait_ms), (0, 0));
}

#[tokio::test]
async fn no_more_jobs_run_at_once_than_there_are_slots_and_the_next_follows_at_once() {
    let bench = Bench::with(&[], |config| config.slots = 2);
    let outside = bench.outside.path().display().to_string();
    let script = format!("mkdir {outside}/$$; ls {outside} | wc -l; sleep 0.2; rmdir {outside}/$$");
    // Inside its own namespace every program has the same number: the folder's name must differ.
    let script = script.replace("$$", "$(basename $(dirname $PWD))");
    for _ in 0..6 {
        let config = json!({ "sh": script, "write": [outside], "env": { "PATH": "/usr/bin:/bin" } });
        bench.link.offer(order(config));
    }
    let started = std::time::Instant::now();
    bench.link.completed(6).await;
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    for (_, result) in &bench.link.kept().completions {
        let JobResult::Done(done) = result else { panic!("{result:?}") };
        let count: usize = done.outputs["stdout"].value.as_str().unwrap().trim().parse().unwrap();
        assert!((1..=2).contains(&count), "{count}");
    }
}

#[tokio::test]
async fn an_embedded_command_works_until_it_has_what_it_wants() {
    let (data, link) = (tempfile::tempdir().unwrap(), std::sync::Arc::new(FakeLink::default()));
    let worker = Worker::new(link.clone(), Registry::default().with(Script), config(data.path(), &[]));
    link.offer(order(json!({ "sh": "echo hello" })));
    let result = worker.run_until(link.completed(1)).await.unwrap();
    assert!(matches!(result, JobResult::Done(_)), "{result:?}");
}

#[tokio::test]
async fn template_files_are_fetched_once_and_cannot_be_changed() {
    let bench = Bench::new();
    std::fs::write(bench.outside.path().join("module.txt"), "content").unwrap();
    let packed = pack::pack(bench.outside.path()).unwrap();
    bench.link.kept().blobs.insert(packed.digest.clone(), Bytes::from(packed.bytes));
    for _ in 0..2 {
        let mut order = order(
            json!({ "sh": "cat $CONTENT/module.txt; echo x 2>/dev/null > $CONTENT/module.txt || echo ' kept'" }),
        );
        order.content = Some(packed.digest.clone());
        bench.link.offer(order);
    }
    for count in 1..=2 {
        let JobResult::Done(done) = bench.link.completed(count).await else {
            panic!("{:?}", bench.link.log())
        };
        assert_eq!(done.outputs["stdout"].value, "content kept");
    }
    assert_eq!(bench.link.kept().blob_calls, 1);
}

#[tokio::test]
async fn files_that_are_not_what_their_digest_says_are_refused() {
    let bench = Bench::new();
    std::fs::write(bench.outside.path().join("module.txt"), "content").unwrap();
    let packed = pack::pack(bench.outside.path()).unwrap();
    let wrong = format!("sha256:{}", "0".repeat(64));
    bench.link.kept().blobs.insert(wrong.clone(), Bytes::from(packed.bytes));
    bench.link.offer(conductor_api::worker::JobOrder { content: Some(wrong), ..order(json!({})) });
    assert!(failed(bench.link.completed(1).await).message.contains("digest"));
}

#[tokio::test]
async fn what_a_manager_fetched_is_kept_before_it_is_told() {
    let bench = Bench::new();
    let mut order = order(json!({}));
    order.task = Task::Describe { config: Map::new(), parameters: None };
    bench.link.offer(order);
    let JobResult::Described { content: Some(digest), .. } = bench.link.completed(1).await else {
        panic!("{:?}", bench.link.kept().completions)
    };
    assert!(bench.link.kept().blobs.contains_key(&digest));
}
