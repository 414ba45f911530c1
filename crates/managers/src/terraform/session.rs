//! The tool in a work folder: its files, its environment, its runs.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use conductor_domain::work::{Failure, Level};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::{events::Report, native::Native, prepare::Prepared, state::State, tool::Tool};
use crate::{Allow, Destination, Exit, Job, Program, StopSignal, files, program};

/// Providers are spoken to over a socket below TMPDIR, and a socket's path must stay below 108 bytes. Where
/// the job's folder is too deep for that, TMPDIR is the work folder, named from within.
const SOCKET_FOLDER_LIMIT: usize = 60;

const BACKEND: &[u8] = br#"{"terraform": {"backend": {"http": {}}}}"#;
const BACKEND_FILE: &str = "conductor_backend.tf.json";
pub(super) const VARIABLES: &str = "conductor.tfvars.json";
/// The most a plan may be as JSON.
const PLAN_LIMIT: usize = 256 << 20;

pub(super) struct Session<'a> {
    pub job: &'a dyn Job,
    pub tool: &'a Tool,
    pub prepared: &'a Prepared,
    pub work: PathBuf,
    pub allow: Allow,
    pub grace: Duration,
    /// The environment's own backend; without one, the state is kept by the server.
    pub backend: Option<&'a Native>,
}

impl Session<'_> {
    /// Writes the module, the backend and the variables into the work folder.
    pub fn lay_out(&self, content: &Path, variables: &Map<String, Value>) -> Result<(), Failure> {
        files::remove_folder(&self.work)?;
        fs::create_dir_all(&self.work).map_err(files::failed("create", &self.work))?;
        copy_module(content, &self.work)?;
        if let Some(backend) = self.backend {
            backend.lay_out(&self.work.join(BACKEND_FILE), &self.prepared.data())?;
        }
        self.prepared.copy_lock_file(&self.work)?;
        let values = serde_json::to_vec(variables).unwrap_or_default();
        files::write(&self.work.join(VARIABLES), &values, 0o600)
    }

    /// Runs the tool with `-json` lines. Returns its exit code, which is one of `accept`.
    pub async fn stream(&self, args: &[&str], accept: &[i32]) -> Result<i32, Failure> {
        let job = self.job;
        job.phase(phase(args));
        let (send, mut receive) = mpsc::unbounded_channel();
        let run = async move {
            let mut report = Report::new(job);
            let exit = job
                .exec(self.program(args), &mut |line| {
                    if let Some(entry) = report.line(line) {
                        let _ = send.send(entry);
                    }
                })
                .await;
            (exit, report)
        };
        // Written while the tool goes on, so that a crash finds all but the very last entry.
        let write = async {
            while let Some(entry) = receive.recv().await {
                job.journal(entry).await?;
            }
            Ok::<(), Failure>(())
        };
        let ((exit, report), written) = tokio::join!(run, write);
        let exit = exit?;
        program::stopped(&exit)?;
        written?;
        match exit.code {
            Some(code) if accept.contains(&code) => Ok(code),
            // The work is done and the state is stored; where there is but one good end, this was it.
            Some(1) if accept == [0] && report.only_unlocking() => {
                job.log(Level::Warn, "the lock of the state could not be given back: it goes with the job");
                Ok(0)
            }
            _ => {
                if report.unprepared() {
                    self.prepared.discard();
                }
                Err(report.failure(&exit))
            }
        }
    }

    /// Runs the tool for one JSON document.
    pub async fn document(&self, args: &[&str]) -> Result<Value, Failure> {
        let mut answer = program::Collected::new(PLAN_LIMIT);
        let exit = self.job.exec(self.program(args), &mut |line| answer.line(line)).await?;
        program::stopped(&exit)?;
        if exit.code != Some(0) {
            return Err(self.silent(args, &exit));
        }
        serde_json::from_str(answer.text()).map_err(|error| {
            Failure::failed(format!("what `{}` wrote cannot be read: {error}", args.join(" ")))
        })
    }

    /// The state as it is stored now, wherever that is.
    pub async fn state(&self) -> Result<State, Failure> {
        if self.backend.is_none() {
            return State::read(self.job).await;
        }
        let mut answer = program::Collected::new(PLAN_LIMIT);
        let args = ["state", "pull"];
        let exit = self.job.exec(self.program(&args), &mut |line| answer.line(line)).await?;
        program::stopped(&exit)?;
        match exit.code {
            Some(0) if answer.text().trim().is_empty() => Ok(State::default()),
            Some(0) => State::parse(answer.text().as_bytes()),
            _ => Err(self.silent(&args, &exit)),
        }
    }

    fn silent(&self, args: &[&str], exit: &Exit) -> Failure {
        Failure::failed(format!("`{}` failed: {}", args.join(" "), program::reason("terraform", exit)))
    }

    fn program(&self, args: &[&str]) -> Program {
        let mut allow = self.allow.clone();
        allow.read.extend([self.tool.path.clone(), self.prepared.folder.clone()]);
        allow.read.extend(self.prepared.providers.clone());
        match self.backend {
            Some(backend) => backend.widen(&mut allow),
            None => {
                let port = self.job.state_address().port;
                allow.connect.push(Destination { host: "127.0.0.1".to_owned(), port });
            }
        }
        Program {
            path: self.tool.path.clone(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: self.environment(),
            folder: self.work.clone(),
            stdin: Vec::new(),
            stop: StopSignal::Interrupt,
            grace: self.grace,
            allow,
        }
    }

    /// The whole environment: the address of the state is all that differs between jobs, and it is kept
    /// out of every file this way.
    fn environment(&self) -> BTreeMap<String, String> {
        let mut env = program::environment(self.job);
        if self.job.folder().as_os_str().len() > SOCKET_FOLDER_LIMIT {
            env.insert("TMPDIR".to_owned(), ".".to_owned());
        }
        let own = [
            ("TF_IN_AUTOMATION", "1".to_owned()),
            ("TF_INPUT", "0".to_owned()),
            ("CHECKPOINT_DISABLE", "1".to_owned()),
            ("TF_CLI_CONFIG_FILE", self.prepared.settings().display().to_string()),
        ];
        env.extend(own.map(|(name, value)| (name.to_owned(), value)));
        env.extend(match self.backend {
            Some(backend) => backend.environment(),
            None => self.own_state(),
        });
        env
    }

    fn own_state(&self) -> BTreeMap<String, String> {
        let state = self.job.state_address();
        let own = [
            ("TF_DATA_DIR", self.prepared.data().display().to_string()),
            ("TF_HTTP_ADDRESS", state.url.clone()),
            ("TF_HTTP_LOCK_ADDRESS", state.url.clone()),
            ("TF_HTTP_UNLOCK_ADDRESS", state.url),
            ("TF_HTTP_USERNAME", state.username),
            ("TF_HTTP_PASSWORD", state.password),
        ];
        own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The module's files with the backend beside them. Copies: a module may write into its own folder.
pub(super) fn copy_module(from: &Path, to: &Path) -> Result<(), Failure> {
    copy(from, to)?;
    files::write(&to.join(BACKEND_FILE), BACKEND, 0o644)
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(from).map_err(files::failed("read", from))? {
        let entry = entry.map_err(files::failed("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(files::failed("read", &source))?;
        if kind.is_dir() {
            fs::create_dir(&target).map_err(files::failed("create", &target))?;
            copy(&source, &target)?;
        } else if kind.is_symlink() {
            let leads = fs::read_link(&source).map_err(files::failed("read", &source))?;
            std::os::unix::fs::symlink(leads, &target).map_err(files::failed("create", &target))?;
        } else {
            fs::copy(&source, &target).map_err(files::failed("copy", &source))?;
        }
    }
    Ok(())
}

/// The part of a step that a run of the tool is.
fn phase(args: &[&str]) -> &'static str {
    match args.first() {
        Some(&"init") => "init",
        Some(&"plan") => "plan",
        Some(&"destroy") => "destroy",
        _ if args.contains(&"-destroy") => "destroy",
        Some(&"apply") => "apply",
        _ => "terraform",
    }
}
