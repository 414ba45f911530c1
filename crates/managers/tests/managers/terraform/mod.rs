//! The `terraform` manager with real terraform and real tofu.

mod describe;
mod life;
mod trouble;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use conductor_domain::work::{Done, Failure, Step};
use conductor_managers::{Manager, Terraform};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{TestJob, Worker, tools};

const MODULE: &str = r#"
variable "name" {
  type        = string
  description = "What it is called"
}
variable "size" {
  type    = number
  default = 1
}
variable "password" {
  type      = string
  sensitive = true
  default   = "none-at-all"
}
module "inner" {
  source = "./modules/inner"
  name   = var.name
}
resource "terraform_data" "thing" {
  input            = "${module.inner.full}-${var.size}"
  triggers_replace = var.name
}
resource "terraform_data" "secret" {
  input = var.password
}
output "full" { value = terraform_data.thing.output }
output "password" {
  value     = terraform_data.secret.output
  sensitive = true
}
"#;
const INNER: &str = r#"
variable "name" { type = string }
output "full" { value = "full-${var.name}" }
"#;

pub fn both() -> Vec<PathBuf> {
    vec![tools::terraform(), tools::tofu()]
}

pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

pub fn module() -> TempDir {
    folder(&[("main.tf", MODULE), ("modules/inner/main.tf", INNER)])
}

pub fn config(tool: &Path) -> Value {
    json!({"source": "./module", "tool": tool})
}

pub async fn run(worker: &Arc<Worker>, content: &Path, step: &Step) -> (Result<Done, Failure>, TestJob) {
    let job = TestJob::new(worker, Some(content));
    let result = Terraform.run(&job, step).await;
    (result, job)
}
