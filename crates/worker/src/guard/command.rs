//! How the guard is started, and asking it what it can do here.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// How the guard is started: this very program with a hidden command, unless told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardCommand {
    pub program: PathBuf,
    pub args: Vec<String>,
}

impl Default for GuardCommand {
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec!["guard".to_owned()] }
    }
}

/// What keeps programs in on this machine, in words, as the guard of this binary finds it.
pub fn protections() -> Vec<String> {
    protections_of(&GuardCommand::default())
}

pub fn protections_of(command: &GuardCommand) -> Vec<String> {
    let asked = Command::new(&command.program)
        .args(&command.args)
        .arg("--probe")
        .env_clear()
        .stdin(Stdio::null())
        .output();
    match asked {
        Ok(answer) if answer.status.success() => {
            String::from_utf8_lossy(&answer.stdout).lines().map(str::to_owned).collect()
        }
        Ok(answer) => vec![format!("the guard cannot be asked: {}", answer.status)],
        Err(error) => vec![format!("the guard cannot be started: {error}")],
    }
}
