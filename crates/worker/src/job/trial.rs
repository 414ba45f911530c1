//! Trying an integration: one program with what the integration gives, in the same sandbox as any other.

use conductor_domain::work::{Done, Failure, FailureCode, Level};
use conductor_managers::{Job, Program, Shared, StopSignal, Stopped};
use serde_json::{Map, Value};

use super::JobContext;

const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Exit code 0 = it works.
pub async fn try_out(
    job: &JobContext,
    command: &[String],
    config: &Map<String, Value>,
) -> Result<Done, Failure> {
    let Some((program, args)) = command.split_first() else {
        return Err(Failure::invalid("there is nothing to run"));
    };
    let shared = Shared::read(config)?;
    let folder = job.folder();
    let path = job.setting("path").filter(|path| !path.is_empty()).unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let home = folder.display().to_string();
    let env = [("PATH", path), ("HOME", home.clone()), ("TMPDIR", home), ("LANG", "C.UTF-8".to_owned())];
    let program = Program {
        path: program.into(),
        args: args.to_vec(),
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
        folder,
        stdin: Vec::new(),
        stop: StopSignal::Terminate,
        grace: shared.grace,
        allow: shared.allow,
    };
    let exit = job.exec(program, &mut |line| job.log(Level::Info, line)).await?;
    match (exit.stopped, exit.code) {
        (Some(Stopped::Cancelled), _) => Err(Failure::new(FailureCode::Cancelled, "cancelled")),
        (Some(Stopped::TimedOut), _) => {
            Err(Failure::new(FailureCode::TimedOut, "the time limit was reached"))
        }
        (Some(Stopped::LeaseLost), _) => {
            Err(Failure::transient("the worker lost its lease on the operation"))
        }
        (None, Some(0)) => Ok(Done::default()),
        (None, code) => {
            let how =
                code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with exit code {code}"));
            let said = exit.last_line.trim();
            let why = if said.is_empty() { how } else { format!("{how}: {said}") };
            Err(Failure::failed(format!("`{}` {why}", command[0])))
        }
    }
}
