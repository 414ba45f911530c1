//! One terraform resource from `deploy` to its end, through the worker and its guard, against a bare `apply`.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
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
/// A provider that is part of terraform itself: what is measured is not a provider's start.
const MODULE: &str = "
variable \"size\" {
  type = number
}
resource \"terraform_data\" \"thing\" {
  input = var.size
}
output \"host\" {
  value = \"thing-${terraform_data.thing.output}\"
}
";

fn tool() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates =
        ["terraform", "tofu"].map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)));
    candidates.into_iter().flatten().find(|program| program.is_file())
}

struct Bare {
    tool: PathBuf,
    folder: PathBuf,
}

impl Bare {
    fn run(&self, arguments: &[&str]) -> Outcome {
        let ended = Command::new(&self.tool)
            .args(arguments)
            .current_dir(&self.folder)
            .env("CHECKPOINT_DISABLE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if ended.success() { Ok(()) } else { Err(format!("{arguments:?} ended with {ended}").into()) }
    }

    /// A first apply in a folder that is initialised.
    fn apply(&self) -> Outcome<f64> {
        for file in ["terraform.tfstate", "terraform.tfstate.backup"] {
            let _ = std::fs::remove_file(self.folder.join(file));
        }
        let started = Instant::now();
        self.run(&["apply", "-auto-approve", "-input=false", "-no-color", "-var=size=3"])?;
        Ok(milliseconds(started.elapsed()))
    }
}

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

async fn deploy(engine: &Arc<Engine>, number: usize) -> Outcome<f64> {
    let manifest = house::score(&format!("app-{number}"), 1);
    let request = DeploymentRequest { environment: "dev".into(), manifest, ..Default::default() };
    let started = Instant::now();
    let accepted = engine.deploy(request, "bench", None).await?;
    ended(engine, accepted.id.ok_or("a deployment without an id")?).await?;
    Ok(milliseconds(started.elapsed()))
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let tool = tool().ok_or("there is neither terraform nor tofu on this machine")?;
    let folder = bench.folder.join("terraform");
    let module = folder.join("module");
    std::fs::create_dir_all(&module)?;
    std::fs::write(module.join("main.tf"), MODULE)?;
    let bare = Bare { tool: tool.clone(), folder: folder.join("bare") };
    std::fs::create_dir_all(&bare.folder)?;
    std::fs::write(bare.folder.join("main.tf"), MODULE)?;
    bare.run(&["init", "-input=false"])?;
    let data = folder.join("data");
    let url = format!("sqlite:{}", data.join("conductor.db").display());
    // Without a workload: the one terraform resource is all there is to do.
    let engine = house::open(EngineOptions { default_workload: false, ..house::options(url, &data) }).await?;
    let mut config = WorkerConfig::new(engine.worker_id(), "bench", &data, Arc::new(|| SystemClock.now()));
    config.settings.insert("terraform_tool".into(), tool.display().to_string());
    config.settings.insert("path".into(), std::env::var("PATH").unwrap_or_default());
    let worker = Worker::new(engine.link(), conductor_managers::built_in(), config);
    let shutdown = Shutdown::new();
    let work = worker.run(shutdown.clone());
    let measured = async {
        furnish(&engine, &module).await?;
        deploy(&engine, 0).await?;
        bare.apply()?;
        let (mut ours, mut theirs) = (vec![], vec![]);
        for round in 1..=ROUNDS {
            ours.push(deploy(&engine, round).await?);
            theirs.push(bare.apply()?);
        }
        Outcome::Ok((median(&ours), median(&theirs)))
    };
    let (ours, reference) = tokio::select! {
        measured = measured => measured?,
        ended = work => return Err(format!("the worker ended: {ended:?}").into()),
    };
    shutdown.drain();
    report.add(Line {
        name: "one terraform resource, deploy to end".into(),
        unit: "ms",
        ours,
        reference: Some(reference),
        goal: Goal::RatioAtMost(1.5),
        note: "against `apply -auto-approve` in an initialised folder".into(),
    });
    Ok(())
}
