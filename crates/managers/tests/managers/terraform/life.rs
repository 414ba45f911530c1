//! From create to delete, and what is seen in between.

use std::fs;

use conductor_domain::work::{Step, StepKind};
use conductor_managers::{Manager, Terraform};
use serde_json::json;
use tempfile::TempDir;

use super::{both, config, folder, module, run};
use crate::support::{TestJob, Worker, after, object, output, quick, step, tools};

#[tokio::test]
async fn a_resource_lives_from_create_to_delete_with_both_tools() {
    if quick() {
        return;
    }
    for tool in both() {
        let worker = Worker::new().await;
        let module = module();
        let create =
            step(StepKind::Create, config(&tool), json!({"name": "a", "password": "very-secret-word"}));
        let (done, job) = run(&worker, module.path(), &create).await;
        let done = done.unwrap();
        assert_eq!(output(&done, "full"), "full-a-1");
        assert_eq!(output(&done, "password"), "very-secret-word");
        assert!(done.outputs["password"].sensitive && !done.outputs["full"].sensitive);
        assert!(job.lines().contains("terraform_data.thing: creating"), "{}", job.lines());
        assert!(job.lines().contains("terraform_data.thing: created after 0s [id="), "{}", job.lines());
        assert!(!job.lines().contains("very-secret-word"), "{}", job.lines());
        let journal = job.journal.lock().unwrap().clone();
        assert!(
            journal
                .iter()
                .any(|entry| entry["type"] == "apply_start" && entry["address"] == "terraform_data.thing")
        );
        assert!(
            journal.iter().any(|entry| entry["type"] == "apply_complete" && entry["idValue"].is_string())
        );
        assert!(worker.state.lock_is_free());

        // The prepared folder is used again: one create is one process.
        let (again, job) = run(&worker, module.path(), &create).await;
        again.unwrap();
        assert_eq!(job.started.lock().unwrap().len(), 1, "{:?}", job.started.lock().unwrap());

        let mut update = after(&create, &done, StepKind::Update);
        let (same, job) = run(&worker, module.path(), &update).await;
        assert_eq!(same.unwrap().outputs, done.outputs);
        assert_eq!(job.started.lock().unwrap().len(), 1);
        update.parameters.insert("size".into(), 2.into());
        let (changed, job) = run(&worker, module.path(), &update).await;
        assert_eq!(output(&changed.unwrap(), "full"), "full-a-2");
        assert_eq!(job.started.lock().unwrap().len(), 3);

        let observe = after(&create, &done, StepKind::Observe);
        let (seen, _) = run(&worker, module.path(), &observe).await;
        let seen = seen.unwrap();
        assert_eq!((seen.exists, output(&seen, "full").as_str()), (Some(true), Some("full-a-2")));

        let delete = Step { kind: StepKind::Delete, ..update.clone() };
        let (gone, job) = run(&worker, module.path(), &delete).await;
        assert_eq!(gone.unwrap().exists, Some(false));
        assert!(job.lines().contains("terraform_data.thing: deleted after"), "{}", job.lines());
        let (gone, job) = run(&worker, module.path(), &delete).await;
        assert_eq!(gone.unwrap().exists, Some(false));
        assert!(job.started.lock().unwrap().is_empty());
        let (seen, _) = run(&worker, module.path(), &observe).await;
        assert_eq!(seen.unwrap().exists, Some(false));
    }
}

#[tokio::test]
async fn an_update_that_would_replace_is_stopped_unless_allowed() {
    if quick() {
        return;
    }
    for tool in both() {
        let worker = Worker::new().await;
        let module = module();
        let create = step(StepKind::Create, config(&tool), json!({"name": "a"}));
        let done = run(&worker, module.path(), &create).await.0.unwrap();
        let before = worker.state.stored();
        let mut update = after(&create, &done, StepKind::Update);
        update.parameters.insert("name".into(), "b".into());
        let failure = run(&worker, module.path(), &update).await.0.unwrap_err();
        assert!(failure.message.contains("would replace terraform_data.thing"), "{}", failure.message);
        assert!(failure.hint.unwrap().contains("allowReplace: true"));
        assert_eq!(worker.state.stored(), before);
        update.config.insert("allowReplace".into(), true.into());
        let done = run(&worker, module.path(), &update).await.0.unwrap();
        assert_eq!(output(&done, "full"), "full-b-1");
    }
}

#[tokio::test]
async fn a_plan_is_shown_without_secrets() {
    if quick() {
        return;
    }
    for tool in both() {
        let worker = Worker::new().await;
        let module = module();
        let mut plan =
            step(StepKind::Plan, config(&tool), json!({"name": "my-own-secret", "password": "their-secret"}));
        plan.secrets = vec!["my-own-secret".into()];
        let done = run(&worker, module.path(), &plan).await.0.unwrap();
        let shown = done.plan.unwrap();
        assert_eq!(shown["summary"], json!({"add": 2, "change": 0, "replace": 0, "remove": 0}));
        let thing = shown["changes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["address"] == "terraform_data.secret")
            .unwrap();
        assert_eq!(thing["after"]["input"], "(sensitive)");
        assert_eq!(thing["after"]["id"], "(known after apply)");
        let text = shown.to_string();
        assert!(!text.contains("my-own-secret") && !text.contains("their-secret"), "{text}");
        assert!(worker.state.stored().is_none());
    }
}

#[tokio::test]
async fn a_provider_from_the_mirror_is_used_and_its_drift_is_seen() {
    if quick() {
        return;
    }
    let module = folder(&[(
        "main.tf",
        r#"
        terraform {
          required_providers {
            local = { source = "hashicorp/local" }
          }
        }
        variable "path" { type = string }
        resource "local_file" "note" {
          filename = var.path
          content  = "hello"
        }
        output "id" { value = local_file.note.id }
        "#,
    )]);
    for tool in both() {
        let worker = Worker::with(object(json!({"terraform_providers": tools::providers()}))).await;
        let place = TempDir::new().unwrap();
        let file = place.path().join("note");
        let create = step(StepKind::Create, config(&tool), json!({"path": file}));
        let (done, job) = run(&worker, module.path(), &create).await;
        let done = done.unwrap_or_else(|failure| panic!("{failure}\n{}", job.lines()));
        assert_eq!(fs::read_to_string(&file).unwrap(), "hello");
        let observe = after(&create, &done, StepKind::Observe);
        let (seen, job) = run(&worker, module.path(), &observe).await;
        let seen = seen.unwrap();
        assert_eq!((seen.exists, seen.outputs == done.outputs), (Some(true), true), "{}", job.lines());
        assert_eq!(job.started.lock().unwrap().len(), 1);
        fs::remove_file(&file).unwrap();
        let seen = run(&worker, module.path(), &observe).await.0.unwrap();
        assert_eq!(seen.exists, Some(false));
        assert_eq!(seen.plan.unwrap()["drift"][0]["address"], "local_file.note");
        let job = TestJob::new(&worker, Some(module.path())).deep();
        Terraform.run(&job, &create).await.unwrap_or_else(|failure| panic!("{failure}\n{}", job.lines()));
        let delete = after(&create, &done, StepKind::Delete);
        assert_eq!(run(&worker, module.path(), &delete).await.0.unwrap().exists, Some(false));
    }
}
