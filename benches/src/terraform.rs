//! Terraform from `deploy` to its end, through the worker and its guard: one resource against a bare `apply`, and a
//! hundred at once against a hundred bare applies, as many side by side.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use conductor_api::types::{ApplyRequest, DeploymentRequest};
use conductor_domain::ids::ChangeId;
use conductor_engine::{Clock, Engine, EngineOptions, SystemClock};
use conductor_managers::pack::pack;
use conductor_worker::{Shutdown, Worker, WorkerConfig};
use serde_json::json;

use crate::{
    Bench, Outcome, house,
    report::{Goal, Line, Report, median, milliseconds},
};

const ROUNDS: usize = 9;
const MANY: usize = 100;
const MANY_ROUNDS: usize = 3;
/// As many operations as a worker runs at once unless told otherwise.
const SIDE_BY_SIDE: usize = 4;

/// A provider that is part of terraform itself: what is measured is not a provider's start.
const ONE: &str = r#"
variable "size" {
  type = number
}
resource "terraform_data" "thing" {
  input = var.size
}
output "host" {
  value = "thing-${terraform_data.thing.output}"
}
"#;

/// A provider as most are: a program of its own, from a mirror.
const EACH: &str = r#"
terraform {
  required_providers {
    local = {
      source = "hashicorp/local"
    }
  }
}
variable "size" {
  type = number
}
resource "local_file" "thing" {
  filename = "${path.module}/thing"
  content  = "thing ${var.size}"
}
output "host" {
  value = "thing-${var.size}"
}
"#;

fn tool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates =
        ["terraform", "tofu"].map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    candidates.into_iter().flatten().find(|program| program.is_file())
}

/// The tool, and where it finds providers that are not its own.
#[derive(Clone)]
struct Tool {
    program: PathBuf,
    mirror: Option<PathBuf>,
}

impl Tool {
    fn find() -> Outcome<Self> {
        let program = tool().ok_or("there is neither terraform nor tofu on this machine")?;
        Ok(Self { program, mirror: None })
    }

    fn with_mirror(&self) -> Outcome<Self> {
        let mirror = std::env::var("CONDUCTOR_TEST_PROVIDERS");
        let mirror = mirror.map_err(|_| "CONDUCTOR_TEST_PROVIDERS is not set; run: scripts/setup")?;
        Ok(Self { mirror: Some(mirror.into()), ..self.clone() })
    }
}

/// Folders with a module, initialised once for all of them.
struct Bare {
    tool: Tool,
    root: PathBuf,
}

impl Bare {
    fn prepare(tool: &Tool, root: PathBuf, module: &str, count: usize) -> Outcome<Self> {
        let bare = Self { tool: tool.clone(), root };
        for number in 0..count {
            std::fs::create_dir_all(bare.folder(number))?;
            std::fs::write(bare.folder(number).join("main.tf"), module)?;
        }
        let mirror = bare.tool.mirror.iter().map(|path| {
            let path = path.display();
            format!("provider_installation {{\n  filesystem_mirror {{\n    path = \"{path}\"\n  }}\n}}\n")
        });
        std::fs::write(bare.settings(), mirror.collect::<String>())?;
        bare.run(0, &["init", "-input=false"])?;
        let lock = bare.folder(0).join(LOCK_FILE);
        if lock.exists() {
            for number in 1..count {
                std::fs::copy(&lock, bare.folder(number).join(LOCK_FILE))?;
            }
        }
        Ok(bare)
    }

    fn folder(&self, number: usize) -> PathBuf {
        self.root.join(number.to_string())
    }

    fn settings(&self) -> PathBuf {
        self.root.join("settings")
    }

    fn run(&self, number: usize, arguments: &[&str]) -> Outcome {
        let ended = Command::new(&self.tool.program)
            .args(arguments)
            .current_dir(self.folder(number))
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_CLI_CONFIG_FILE", self.settings())
            .env("TF_DATA_DIR", self.root.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if ended.success() { Ok(()) } else { Err(format!("{arguments:?} ended with {ended}").into()) }
    }

    /// A first apply in a folder that is initialised.
    fn apply(&self, number: usize) -> Outcome<f64> {
        let size = format!("-var=size={number}");
        let started = Instant::now();
        self.run(number, &["apply", "-auto-approve", "-input=false", "-no-color", &size])?;
        Ok(milliseconds(started.elapsed()))
    }

    fn forget(&self, count: usize) {
        for number in 0..count {
            for file in ["terraform.tfstate", "terraform.tfstate.backup", "thing"] {
                let _ = std::fs::remove_file(self.folder(number).join(file));
            }
        }
    }

    /// All of them, so many side by side.
    fn apply_all(&self, count: usize) -> Outcome<f64> {
        let next = AtomicUsize::new(0);
        let one_after_the_other = || -> Outcome {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                self.apply(number)?;
            }
        };
        let started = Instant::now();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..SIDE_BY_SIDE).map(|_| scope.spawn(one_after_the_other)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
        })?;
        Ok(milliseconds(started.elapsed()))
    }
}

const LOCK_FILE: &str = ".terraform.lock.hcl";

async fn ended(engine: &Arc<Engine>, id: ChangeId) -> Outcome {
    let mut seen: Option<String> = None;
    loop {
        let view = engine.await_deployment(id, seen.as_deref(), Duration::from_secs(20)).await?;
        if view.is_over() {
            let why = view.error.map(|fault| fault.message).unwrap_or_default();
            return if view.status == "succeeded" {
                Ok(())
            } else {
                Err(format!("{}: {why}", view.status).into())
            };
        }
        seen = view.updated_at.map(|at| at.to_string());
    }
}

async fn furnish(engine: &Arc<Engine>, module: &Path) -> Outcome {
    let packed = pack(module)?;
    engine.keep_blob(&packed.digest, packed.bytes).await?;
    let document = json!({
        "kind": "Template", "name": "thing", "type": "thing", "version": "1.0.0", "manager": "terraform",
        "config": { "source": "./module" },
    });
    let applied = engine
        .apply(ApplyRequest { document, content: Some(packed.digest), dry_run: false }, "bench")
        .await?;
    match applied.change {
        Some(change) => ended(engine, change).await,
        None => Ok(()),
    }
}

async fn deploy(engine: &Arc<Engine>, application: &str, resources: usize) -> Outcome<f64> {
    let manifest = house::score(application, resources);
    let request = DeploymentRequest { environment: "dev".into(), manifest, ..Default::default() };
    let started = Instant::now();
    let accepted = engine.deploy(request, "bench", None).await?;
    ended(engine, accepted.id.ok_or("a deployment without an id")?).await?;
    Ok(milliseconds(started.elapsed()))
}

/// An engine and a worker in a folder of their own, with the module as their template, while `measured` goes on.
async fn at_work<T>(
    tool: &Tool,
    folder: &Path,
    module: &str,
    measured: impl AsyncFnOnce(&Arc<Engine>) -> Outcome<T>,
) -> Outcome<T> {
    let (source, data) = (folder.join("module"), folder.join("data"));
    std::fs::create_dir_all(&source)?;
    std::fs::write(source.join("main.tf"), module)?;
    let url = format!("sqlite:{}", data.join("conductor.db").display());
    // Without a workload: terraform's resources are all there is to do.
    let engine = house::open(EngineOptions { default_workload: false, ..house::options(url, &data) }).await?;
    let mut config = WorkerConfig::new(engine.worker_id(), "bench", &data, Arc::new(|| SystemClock.now()));
    config.slots = SIDE_BY_SIDE;
    config.settings.insert("terraform_tool".into(), tool.program.display().to_string());
    if let Some(mirror) = &tool.mirror {
        config.settings.insert("terraform_providers".into(), mirror.display().to_string());
    }
    config.settings.insert("path".into(), std::env::var("PATH").unwrap_or_default());
    let worker = Worker::new(engine.link(), conductor_managers::built_in(), config);
    let shutdown = Shutdown::new();
    let work = worker.run(shutdown.clone());
    let measured = async {
        furnish(&engine, &source).await?;
        measured(&engine).await
    };
    let measured = tokio::select! {
        measured = measured => measured?,
        ended = work => return Err(format!("the worker ended: {ended:?}").into()),
    };
    shutdown.drain();
    Ok(measured)
}

async fn one(tool: &Tool, folder: &Path) -> Outcome<Line> {
    let bare = Bare::prepare(tool, folder.join("bare"), ONE, 1)?;
    let (ours, reference) = at_work(tool, folder, ONE, async |engine| {
        deploy(engine, "app-0", 1).await?;
        bare.apply(0)?;
        let (mut ours, mut theirs) = (vec![], vec![]);
        for round in 1..=ROUNDS {
            ours.push(deploy(engine, &format!("app-{round}"), 1).await?);
            bare.forget(1);
            theirs.push(bare.apply(0)?);
        }
        Ok((median(&ours), median(&theirs)))
    })
    .await?;
    Ok(Line {
        name: "one terraform resource, deploy to end".into(),
        unit: "ms",
        ours,
        reference: Some(reference),
        goal: Goal::RatioAtMost(1.5),
        note: "against `apply -auto-approve` in an initialised folder".into(),
    })
}

async fn many(tool: &Tool, folder: &Path) -> Outcome<Line> {
    let bare = Bare::prepare(tool, folder.join("bare"), EACH, MANY)?;
    let (ours, reference) = at_work(tool, folder, EACH, async |engine| {
        deploy(engine, "first", 1).await?;
        bare.apply(0)?;
        let (mut ours, mut theirs) = (vec![], vec![]);
        for round in 0..MANY_ROUNDS {
            ours.push(deploy(engine, &format!("many-{round}"), MANY).await?);
            bare.forget(MANY);
            theirs.push(bare.apply_all(MANY)?);
        }
        Ok((median(&ours), median(&theirs)))
    })
    .await?;
    Ok(Line {
        name: format!("{MANY} terraform resources, deploy to end"),
        unit: "ms",
        ours,
        reference: Some(reference),
        goal: Goal::RatioAtMost(1.5),
        note: format!("against as many bare applies; {SIDE_BY_SIDE} side by side, a provider from a mirror"),
    })
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let tool = Tool::find()?;
    let folder = bench.folder.join("terraform");
    report.add(one(&tool, &folder.join("one")).await?);
    report.add(many(&tool.with_mirror()?, &folder.join("many")).await?);
    Ok(())
}
