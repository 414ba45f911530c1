//! The `command` manager: a program of the template's author carries out each step.
//!
//! The program is started once per step, with one JSON document on stdin and one expected on stdout. Two
//! protocols: `conductor`, which knows every step, and `score`, the `cmd://` provisioners of score-compose,
//! which only know how to make things.

mod conductor;
mod score;

use std::path::PathBuf;

use async_trait::async_trait;
use conductor_domain::work::{Description, Done, Failure, Step, StepKind};
use serde_json::{Map, Value};

use crate::{
    Described, Job, Manager, Program, StopSignal, TemplateSource,
    config::{Config, Shared},
    program,
};

/// The most a program may answer.
const ANSWER_LIMIT: usize = 16 << 20;
const KEYS: [&str; 4] = ["program", "protocol", "args", "sensitive"];
const PROTOCOLS: [&str; 2] = ["conductor", "score"];

/// sysexits' EX_TEMPFAIL and EX_USAGE.
const TRY_AGAIN: i32 = 75;
const NOT_SUPPORTED: i32 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub struct Command;

#[async_trait]
impl Manager for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    async fn describe(&self, job: &dyn Job, template: &TemplateSource) -> Result<Described, Failure> {
        let config = Config(&template.config);
        config.check(&KEYS)?;
        let conducts = config.choice("protocol", &PROTOCOLS)? == "conductor";
        config.texts("sensitive")?;
        if conducts && template.config.contains_key("args") {
            return Err(Failure::invalid("config.args has no meaning with protocol `conductor`")
                .hint("the program gets the step as its only argument; parameters come on stdin"));
        }
        config.texts("args")?;
        locate(job, config, template.content.clone())?;
        let description = Description {
            parameters: template.parameters.clone(),
            outputs: None,
            can_observe: conducts,
            can_plan: conducts,
        };
        Ok(Described { description, content: None })
    }

    async fn run(&self, job: &dyn Job, step: &Step) -> Result<Done, Failure> {
        let config = Config(&step.config);
        match config.choice("protocol", &PROTOCOLS)? {
            "score" => score::run(job, step, config).await,
            _ => conductor::run(job, step, config).await,
        }
    }
}

/// The program to start: the packed one where the template named a file, else one on the worker's PATH.
fn locate(job: &dyn Job, config: Config<'_>, content: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let Some(program) = config.text("program")? else {
        return Err(Failure::invalid("config.program is missing").hint(
            "give a file relative to the catalogue file, or the bare name of a program on the worker's PATH",
        ));
    };
    let Some((_, name)) = program.rsplit_once('/') else {
        return program::find(job, program).ok_or_else(|| {
            Failure::invalid(format!("there is no program `{program}` on the worker's PATH"))
                .hint(format!("to ship it with the template write `program: ./{program}`"))
        });
    };
    let path = content.map(|folder| folder.join(name)).filter(|path| program::is_program(path));
    path.ok_or_else(|| Failure::invalid(format!("the template's files hold no program `{name}`")))
}

/// Runs the program to its end and returns its answer, which is `{}` where it may say nothing.
async fn ask(
    job: &dyn Job,
    step: &Step,
    config: Config<'_>,
    args: Vec<String>,
    document: &Value,
) -> Result<Map<String, Value>, Failure> {
    let path = locate(job, config, job.content())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut shared = Shared::read(config.0)?;
    shared.allow.read.push(path.clone());
    shared.allow.read.extend(job.content());
    let program = Program {
        path,
        args,
        env: program::environment(job),
        folder: job.folder(),
        stdin: document.to_string().into_bytes(),
        stop: StopSignal::Terminate,
        grace: shared.grace,
        allow: shared.allow,
    };
    let mut answer = program::Collected::new(ANSWER_LIMIT);
    let exit = job.exec(program, &mut |line| answer.line(line)).await?;
    program::stopped(&exit)?;
    match exit.code {
        Some(0) => {}
        Some(TRY_AGAIN) => return Err(Failure::transient(program::reason(&name, &exit))),
        Some(NOT_SUPPORTED) if matches!(step.kind, StepKind::Observe | StepKind::Plan) => {
            return Err(Failure::unsupported(format!("{name} does not know `{}`", step.kind)));
        }
        _ => return Err(Failure::failed(program::reason(&name, &exit))),
    }
    if answer.overflow {
        return Err(Failure::failed(format!("{name} wrote more than {} MiB to stdout", ANSWER_LIMIT >> 20)));
    }
    if answer.text().is_empty() && step.kind == StepKind::Delete {
        return Ok(Map::new());
    }
    parse(&name, answer.text())
}

/// The answer's text is never shown: it may hold secrets that only the answer itself names.
fn parse(name: &str, text: &str) -> Result<Map<String, Value>, Failure> {
    let wrong = |reason: String| {
        Failure::failed(format!("{name} must write one JSON object to stdout: {reason}"))
            .hint("what is meant for people belongs on stderr")
    };
    if text.is_empty() {
        return Err(wrong("it wrote nothing".to_owned()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(wrong("it wrote JSON, but no object".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Takes an object out of an answer; absent and `null` are empty.
fn take_object(name: &str, answer: &mut Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    match answer.remove(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(_) => Err(Failure::failed(format!("in the program's answer `{name}` must be an object"))),
    }
}
