//! Many at once, failing, locked and cancelled.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use conductor_domain::work::{FailureCode, StepKind};
use conductor_managers::{Manager, Stopped, Terraform};
use serde_json::json;

use super::{both, config, folder, module, run};
use crate::support::{TestJob, Worker, output, quick, step};

/// Every file below a folder with its time of change and its text.
fn listing(folder: &Path) -> Vec<(PathBuf, SystemTime, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(listing(&path));
        } else {
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            found.push((path.clone(), fs::metadata(&path).unwrap().modified().unwrap(), text));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn many_jobs_prepare_once_and_do_not_disturb_each_other() {
    if quick() {
        return;
    }
    for tool in both() {
        // Jobs of one worker: the lasting folder is shared, the state is each one's own.
        let first = Worker::new().await;
        let module = module();
        let mut jobs = Vec::new();
        for n in 0..4 {
            let worker = Arc::new(first.with_own_state().await);
            let job = TestJob::new(&worker, Some(module.path()));
            let create = step(StepKind::Create, config(&tool), json!({"name": format!("n{n}")}));
            jobs.push(tokio::spawn(async move {
                let done = Terraform.run(&job, &create).await.unwrap();
                assert_eq!(output(&done, "full"), &json!(format!("full-n{n}-1")));
                job.started.lock().unwrap().clone()
            }));
        }
        let mut started = Vec::new();
        for job in jobs {
            started.extend(job.await.unwrap());
        }
        assert_eq!(started.iter().filter(|args| args.starts_with("init")).count(), 1, "{started:?}");
        assert_eq!(started.len(), 5);

        // Nothing is written into what all of them use, least of all where the state is.
        let prepared = first.lasting.path().join("terraform");
        let before = listing(&prepared);
        let create = step(StepKind::Create, config(&tool), json!({"name": "timed"}));
        let mut times = Vec::new();
        for _ in 0..7 {
            let worker = Arc::new(first.with_own_state().await);
            let begin = Instant::now();
            run(&worker, module.path(), &create).await.0.unwrap();
            times.push(begin.elapsed().as_millis());
        }
        assert_eq!(listing(&prepared), before);
        assert!(
            !before
                .iter()
                .any(|(_, _, text)| text.contains("a-token-of-this-job") || text.contains("127.0.0.1"))
        );
        times.sort();
        println!("{}: a create takes {} ms (median of {times:?})", tool.display(), times[3]);
    }
}

#[tokio::test]
async fn what_goes_wrong_is_said_in_the_tools_words() {
    if quick() {
        return;
    }
    let module = folder(&[(
        "main.tf",
        "variable \"ok\" {\n  type = bool\n}\nresource \"terraform_data\" \"a\" {\n  lifecycle {\n    precondition {\n      \
         condition     = var.ok\n      error_message = \"The moon is not full.\"\n    }\n  }\n}\n",
    )]);
    for tool in both() {
        let worker = Worker::new().await;
        let create = step(StepKind::Create, config(&tool), json!({"ok": false, "extra": 1}));
        let (result, job) = run(&worker, module.path(), &create).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.code, FailureCode::Failed);
        assert!(failure.message.contains("The moon is not full."), "{}", failure.message);
        assert!(failure.message.starts_with("main.tf:7: "), "{}", failure.message);
        assert!(job.lines().contains("no variable `extra`"));

        worker.state.hold_lock();
        let create = step(StepKind::Create, config(&tool), json!({"ok": true}));
        let (result, job) = run(&worker, module.path(), &create).await;
        let failure = result.unwrap_err();
        assert_eq!(failure.code, FailureCode::Transient, "{}\n{}", failure.message, job.lines());
    }
}

#[tokio::test]
async fn a_cancelled_apply_ends_and_keeps_its_state() {
    if quick() {
        return;
    }
    let module = folder(&[(
        "main.tf",
        r#"
        resource "terraform_data" "first" {}
        resource "terraform_data" "slow" {
          depends_on = [terraform_data.first]
          provisioner "local-exec" { command = "sleep 2" }
        }
        resource "terraform_data" "never" { depends_on = [terraform_data.slow] }
        "#,
    )]);
    for tool in both() {
        let worker = Worker::new().await;
        let create = step(StepKind::Create, config(&tool), json!({}));
        // Prepared beforehand, so that it is the apply that is cancelled.
        run(&worker, module.path(), &step(StepKind::Plan, config(&tool), json!({}))).await.0.unwrap();
        let job = TestJob::new(&worker, Some(module.path()));
        *job.stop_after.lock().unwrap() = Some((Duration::from_millis(900), Stopped::Cancelled));
        let failure = Terraform.run(&job, &create).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::Cancelled);
        let state = String::from_utf8(worker.state.stored().unwrap()).unwrap();
        assert!(state.contains("\"first\"") && !state.contains("\"never\""), "{state}");
        assert!(worker.state.lock_is_free());
    }
}

#[tokio::test]
async fn a_state_that_was_refused_is_stored_again() {
    if quick() {
        return;
    }
    for tool in both() {
        let worker = Worker::new().await;
        let module = module();
        worker.state.refuse_next_post();
        let create = step(StepKind::Create, config(&tool), json!({"name": "a"}));
        let (result, job) = run(&worker, module.path(), &create).await;
        assert_eq!(result.unwrap_err().code, FailureCode::Transient, "{}", job.lines());
        assert!(String::from_utf8(worker.state.stored().unwrap()).unwrap().contains("terraform_data"));
        let (again, job) = run(&worker, module.path(), &create).await;
        assert_eq!(output(&again.unwrap(), "full"), "full-a-1");
        assert!(!job.lines().contains("creating"), "nothing is made twice: {}", job.lines());
    }
}
