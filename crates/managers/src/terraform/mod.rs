//! The `terraform` manager, for terraform and OpenTofu alike.
//!
//! A first create is one `apply`. An update is planned, looked at and applied from the saved plan, so that
//! it never takes away what nobody was told of. Outputs are read from the state that was just stored, and
//! the state never touches the disk of the worker.

mod events;
mod git;
mod module;
mod native;
mod plan;
mod prepare;
mod recover;
mod schema;
mod session;
mod state;
mod tool;

use std::path::Path;

use async_trait::async_trait;
use conductor_domain::work::{Description, Done, Failure, Level, Step, StepKind};
use serde_json::{Map, Value};

use crate::{
    Described, Job, Manager, TemplateSource,
    config::{Config, Shared},
    outputs,
};

use git::Source;
use module::Module;
use native::Native;
use prepare::Prepared;
use recover::Unrecorded;
use session::{Session, VARIABLES};
use state::State;
use tool::Tool;

const KEYS: [&str; 4] = ["source", "tool", "toolVersion", "allowReplace"];
const PLAN_FILE: &str = "conductor.tfplan";
const ERRORED: &str = "errored.tfstate";

#[derive(Clone, Copy, Debug, Default)]
pub struct Terraform;

#[async_trait]
impl Manager for Terraform {
    fn name(&self) -> &'static str {
        "terraform"
    }

    async fn describe(&self, job: &dyn Job, template: &TemplateSource) -> Result<Described, Failure> {
        let config = Config(&template.config);
        config.check(&KEYS)?;
        config.flag("allowReplace")?;
        let Some(source) = config.text("source")? else {
            return Err(Failure::invalid("config.source is missing")
                .hint("give the module's folder relative to the catalogue file, or git::URL?ref=REF"));
        };
        let tool = Tool::find(job, config).await?;
        let (folder, content) = match (&template.content, Source::parse(source)?) {
            (Some(folder), _) => (folder.clone(), None),
            (None, Some(source)) => {
                let (folder, packed) = source.fetch(job).await?;
                (folder, Some(packed))
            }
            (None, None) => return Err(Failure::invalid("the template's files are missing")),
        };
        let module = Module::read(&folder, tool.tofu)?;
        let description = Description {
            parameters: Some(schema::parameters(&module, template.parameters.as_ref())?),
            outputs: Some(module.outputs),
            can_observe: true,
            can_plan: true,
        };
        Ok(Described { description, content })
    }

    async fn run(&self, job: &dyn Job, step: &Step) -> Result<Done, Failure> {
        let looks = matches!(step.kind, StepKind::Delete | StepKind::Observe);
        let nothing_there = || Done { exists: Some(false), ..Done::default() };
        let native = step.backend.as_ref().map(|block| Native::new(job, block)).transpose()?;
        // Ours is at hand before any tool is started.
        if native.is_none() && looks {
            let state = State::read(job).await?;
            if state.is_empty() && Unrecorded::compare(&step.journal, &state).is_empty() {
                return Ok(nothing_there());
            }
        }
        let config = Config(&step.config);
        let shared = Shared::read(&step.config)?;
        let tool = Tool::find(job, config).await?;
        let content = job.content().ok_or_else(|| Failure::failed("the template's files are missing"))?;
        let variables = variables(job, step, &content, &tool)?;
        let prepared = Prepared::get(job, &tool, &content).await?;
        let session = Session {
            job,
            tool: &tool,
            prepared: &prepared,
            work: job.folder().join("work"),
            allow: shared.allow,
            grace: shared.grace,
            backend: native.as_ref(),
        };
        session.lay_out(&content, &variables)?;
        if native.is_some() {
            session.stream(&native::INIT, &[0]).await.map_err(native::unreachable)?;
        }
        let cut_off = !step.journal.is_empty();
        let mut state = if looks || cut_off { session.state().await? } else { State::default() };
        let changes = matches!(step.kind, StepKind::Create | StepKind::Update | StepKind::Delete);
        let unrecorded = Unrecorded::compare(&step.journal, &state);
        let left = if changes { unrecorded.recover(&session).await? } else { vec![] };
        if looks && !unrecorded.is_empty() {
            state = session.state().await?;
        }
        if looks && state.is_empty() {
            return Ok(Done { left_behind: left, ..nothing_there() });
        }
        let mut done = match step.kind {
            StepKind::Create => create(&session).await?,
            StepKind::Update => update(&session, config.flag("allowReplace")?).await?,
            StepKind::Delete => delete(&session).await?,
            StepKind::Observe => observe(&session, step, state).await?,
            StepKind::Plan => propose(&session, step).await?,
        };
        outputs::seal(job, step, &mut done.outputs);
        done.left_behind = left;
        Ok(done)
    }
}

/// The parameters that the module declares.
fn variables(job: &dyn Job, step: &Step, content: &Path, tool: &Tool) -> Result<Map<String, Value>, Failure> {
    let module = Module::read(content, tool.tofu)?;
    let mut variables = step.parameters.clone();
    variables.retain(|name, _| {
        let declared = module.variables.contains_key(name);
        if !declared {
            job.log(Level::Warn, &format!("the module has no variable `{name}`: it is left out"));
        }
        declared
    });
    Ok(variables)
}

const VARIABLES_FILE: &str = "-var-file=conductor.tfvars.json";

fn with_variables<'a>(args: &[&'a str]) -> Vec<&'a str> {
    debug_assert!(VARIABLES_FILE.ends_with(VARIABLES));
    args.iter().copied().chain(["-json", "-input=false", "-no-color", VARIABLES_FILE]).collect()
}

/// For commands that know no `-json` and take names after their flags.
fn with_file<'a>(args: &[&'a str], names: &[&'a str]) -> Vec<&'a str> {
    let flags = ["-input=false", "-no-color", VARIABLES_FILE];
    args.iter().chain(&flags).chain(names).copied().collect()
}

async fn create(session: &Session<'_>) -> Result<Done, Failure> {
    apply(session, &with_variables(&["apply", "-auto-approve"])).await?;
    finished(session).await
}

async fn update(session: &Session<'_>, allow_replace: bool) -> Result<Done, Failure> {
    if make_plan(session, &[]).await? {
        if !allow_replace {
            plan::refuse_loss(&show(session).await?)?;
        }
        apply(session, &["apply", "-json", "-input=false", "-no-color", PLAN_FILE]).await?;
    }
    finished(session).await
}

async fn delete(session: &Session<'_>) -> Result<Done, Failure> {
    apply(session, &with_variables(&["apply", "-destroy", "-auto-approve"])).await?;
    let left = session.state().await?.resources;
    match left {
        0 => Ok(Done { exists: Some(false), ..Done::default() }),
        _ => Err(Failure::failed(format!("{left} resources are still in the state after the destroy"))),
    }
}

async fn observe(session: &Session<'_>, step: &Step, recorded: State) -> Result<Done, Failure> {
    if !make_plan(session, &["-refresh-only"]).await? {
        return Ok(Done { outputs: recorded.outputs, exists: Some(true), ..Done::default() });
    }
    let plan = show(session).await?;
    let outputs = plan["planned_values"]["outputs"].as_object().into_iter().flatten();
    let exists = recorded.resources == 0 || plan::refreshed_resources(&plan) > 0;
    Ok(Done {
        outputs: match exists {
            true => outputs.map(|(name, output)| (name.clone(), state::read_output(output))).collect(),
            false => Default::default(),
        },
        exists: Some(exists),
        drift: if exists { plan::differences(&plan, &step.secrets) } else { vec![] },
        plan: Some(plan::masked(&plan, &step.secrets)),
        ..Done::default()
    })
}

async fn propose(session: &Session<'_>, step: &Step) -> Result<Done, Failure> {
    make_plan(session, &[]).await?;
    let plan = plan::masked(&show(session).await?, &step.secrets);
    Ok(Done { plan: Some(plan), ..Done::default() })
}

/// Saves a plan; says whether it changes anything.
async fn make_plan(session: &Session<'_>, extra: &[&str]) -> Result<bool, Failure> {
    const OUT: &str = "-out=conductor.tfplan";
    debug_assert!(OUT.ends_with(PLAN_FILE));
    let args: Vec<&str> = ["plan", "-detailed-exitcode", OUT].iter().chain(extra).copied().collect();
    Ok(session.stream(&with_variables(&args), &[0, 2]).await? == 2)
}

async fn show(session: &Session<'_>) -> Result<Value, Failure> {
    session.document(&["show", "-json", "-no-color", PLAN_FILE]).await
}

/// An apply whose state could not be stored leaves it in a file: it is the only record of what was made.
async fn apply(session: &Session<'_>, args: &[&str]) -> Result<(), Failure> {
    let result = session.stream(args, &[0]).await;
    if !session.work.join(ERRORED).exists() {
        return result.map(|_| ());
    }
    session.job.log(Level::Warn, "the state could not be stored: trying again");
    match session.stream(&["state", "push", ERRORED], &[0]).await {
        Ok(_) => Err(Failure::transient("the state could be stored only at the second try")),
        Err(failure) => Err(Failure::failed(format!("the state could not be stored: {}", failure.message))
            .hint("what was made is named in the operation's journal")),
    }
}

async fn finished(session: &Session<'_>) -> Result<Done, Failure> {
    let state = session.state().await?;
    Ok(Done { outputs: state.outputs, exists: Some(true), ..Done::default() })
}
