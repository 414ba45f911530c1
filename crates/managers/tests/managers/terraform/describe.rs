//! What the `terraform` manager reads from a module, and where modules come from.

use std::{fs, path::Path, process::Command};

use conductor_domain::work::Failure;
use conductor_managers::{Described, Manager, TemplateSource, Terraform, pack};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{config, folder};
use crate::support::{TestJob, Worker, object, quick, tools};

async fn describe(content: &Path, parameters: Option<Value>) -> Result<Described, Failure> {
    let job = TestJob::new(&Worker::new().await, None);
    let template = TemplateSource {
        config: object(config(&tools::terraform())),
        parameters,
        content: Some(content.to_owned()),
    };
    Terraform.describe(&job, &template).await
}

#[tokio::test]
async fn a_module_describes_its_parameters_and_outputs() {
    let module = folder(&[
        ("outputs.tf", "output \"url\" {\n value = 1\n sensitive = true\n}\noutput \"id\" { value = 2 }\n"),
        ("more.tf.json", r#"{"variable": {"from_json": {"type": "list(string)", "default": ["x"]}}}"#),
        (
            "variables.tf",
            r#"
            variable "name" { type = string }
            variable "size" {
              type        = number
              default     = -1.5
              description = <<-EOT
                How large
              EOT
            }
            variable "maybe" {
              type    = string
              default = null
            }
            variable "token" {
              sensitive = true
              nullable  = false
            }
            variable "shape" {
              type = object({
                list  = list(map(bool))
                extra = optional(set(number), [1])
                pair  = tuple([string, any])
              })
              default = { list = [], pair = ["a", 1] }
            }
            "#,
        ),
    ]);
    if quick() {
        return;
    }
    let catalogue = json!({"properties": {"name": {"pattern": "^a", "default": "abc"}, "size": {"frozen": true, "type": "integer"}}});
    let described = describe(module.path(), Some(catalogue)).await.unwrap().description;
    assert_eq!(described.outputs.unwrap(), [("id".to_owned(), false), ("url".to_owned(), true)].into());
    assert!(described.can_plan && described.can_observe);
    let expected = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["token"],
        "properties": {
            "name": {"type": "string", "pattern": "^a", "default": "abc"},
            "size": {"type": "integer", "default": -1.5, "description": "How large\n", "frozen": true},
            "maybe": {"type": ["string", "null"], "default": null},
            "token": {"sensitive": true},
            "from_json": {"type": "array", "items": {"type": "string"}, "default": ["x"]},
            "shape": {
                "type": "object",
                "properties": {
                    "list": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "boolean"}}},
                    "extra": {"type": "array", "items": {"type": "number"}, "uniqueItems": true, "default": [1]},
                    "pair": {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "string"}, {}]},
                },
                "required": ["list", "pair"],
                "default": {"list": [], "pair": ["a", 1]},
            },
        },
    });
    assert_eq!(described.parameters.unwrap(), expected);
    let unknown = describe(module.path(), Some(json!({"properties": {"nmae": {}}}))).await.unwrap_err();
    assert_eq!(unknown.message, "parameters: the module has no variable `nmae`");
    assert_eq!(unknown.hint.unwrap(), "did you mean `name`?");
}

#[tokio::test]
async fn a_module_that_cannot_be_used_is_refused() {
    if quick() {
        return;
    }
    let refused = async |files: &[(&str, &str)]| describe(folder(files).path(), None).await.unwrap_err();
    let failure = refused(&[("main.tf", "variable \"a\" {\n  type = \n}\n")]).await;
    assert!(failure.message.starts_with("main.tf:2:"), "{}", failure.message);
    let failure = refused(&[("main.tf", "terraform {\n  backend \"s3\" {}\n}\n")]).await;
    assert_eq!(failure.message, "main.tf has a `backend` block");
    assert!(failure.hint.unwrap().contains("take it out"));
    assert!(refused(&[("a.tf.json", r#"{"terraform": {"cloud": {}}}"#)]).await.message.contains("`cloud`"));
    assert!(refused(&[("README", "")]).await.message.contains("no *.tf file"));
    let job = TestJob::new(&Worker::new().await, None);
    let template = |config| TemplateSource { config: object(config), ..Default::default() };
    let wrong =
        Terraform.describe(&job, &template(json!({"source": "./x", "tool": "tofuu"}))).await.unwrap_err();
    assert!(wrong.hint.unwrap().contains("did you mean `tofu`?"));
    assert!(Terraform.describe(&job, &template(json!({}))).await.is_err());
}

#[tokio::test]
async fn a_module_from_git_is_fetched_pinned_and_packed() {
    if quick() {
        return;
    }
    let repository = folder(&[("deep/module/main.tf", "variable \"v1\" {}\n")]);
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(args)
            .current_dir(repository.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "one"]);
    git(&["tag", "v1"]);
    let first = git(&["rev-parse", "HEAD"]);
    fs::write(repository.path().join("deep/module/main.tf"), "variable \"v2\" {}\n").unwrap();
    git(&["commit", "-q", "-am", "two"]);
    let worker = Worker::new().await;
    for (reference, variable) in [
        ("?ref=v1", "v1"),
        ("?ref=main", "v2"),
        ("", "v2"),
        (&format!("?ref={first}"), "v1"),
        (&format!("?ref={}", &first[..10]), "v1"),
    ] {
        let job = TestJob::new(&worker, None);
        let source = format!("git::file://{}//deep/module{reference}", repository.path().display());
        let template = TemplateSource { config: object(json!({"source": source})), ..Default::default() };
        let described =
            Terraform.describe(&job, &template).await.unwrap_or_else(|f| panic!("{f}\n{}", job.lines()));
        assert!(
            described.description.parameters.unwrap()["properties"].get(variable).is_some(),
            "{reference}"
        );
        let packed = described.content.unwrap();
        let out = TempDir::new().unwrap();
        pack::unpack(&packed.bytes, out.path()).unwrap();
        assert!(out.path().join("main.tf").exists());
    }
    let job = TestJob::new(&worker, None);
    let source = format!("git::file://{}?ref=nowhere", repository.path().display());
    let template = TemplateSource { config: object(json!({"source": source})), ..Default::default() };
    let failure = Terraform.describe(&job, &template).await.unwrap_err();
    assert!(failure.message.contains("nowhere"), "{}", failure.message);
}
