//! How a command ends when it does not end well: a message for a person and an exit code for a script.

use std::fmt;

use conductor_api::client::ClientError;
use conductor_api::types::{Problem, ProblemItem};

/// The exit codes that scripts rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    Unreachable = 3,
    NotAllowed = 4,
    WaitsForApproval = 5,
    NotFound = 6,
    Interrupted = 130,
}

/// A message that may already have been shown (`message` is then empty), the way out, and the code to end with.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    pub message: String,
    pub hint: Option<String>,
    /// What exactly is wrong with what was sent.
    pub items: Vec<ProblemItem>,
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, items: Vec::new() }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, message)
    }

    /// Everything there is to say has been said.
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unreachable(cause) => {
                Self::new(Exit::Unreachable, format!("no server answers: {cause}"))
                    .hint("check CONDUCTOR_URL and that the server runs; unset it to work in this folder")
            }
            ClientError::Problem(problem) => (*problem).into(),
            ClientError::Nonsense(_) => Self::failed(error.to_string())
                .hint("is CONDUCTOR_URL the address of a Conductor server of this version?"),
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit = match problem.status {
            401 | 403 => Exit::NotAllowed,
            404 => Exit::NotFound,
            502..=504 => Exit::Unreachable,
            _ => Exit::Failed,
        };
        let message = if problem.detail.is_empty() { problem.title } else { problem.detail };
        let hint = (problem.status == 401).then(|| "set CONDUCTOR_TOKEN to a valid token".to_owned());
        Self { exit, message, hint, items: problem.errors }
    }
}

impl From<conductor_store::Error> for Failure {
    fn from(error: conductor_store::Error) -> Self {
        use conductor_store::Error;
        let message = error.to_string();
        match error {
            Error::Unreachable(_) => {
                Self::new(Exit::Unreachable, format!("the database cannot be opened: {message}"))
                    .hint("check CONDUCTOR_DATABASE_URL and CONDUCTOR_DATA")
            }
            Error::OlderSchema { .. } => Self::failed(message).hint("run: conductor migrate"),
            Error::NewerSchema => Self::failed(message).hint("use the newer program"),
            Error::Busy(_) => Self::failed(message).hint("somebody else was busy with it: try again"),
            _ => Self::failed(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16) -> Exit {
        Failure::from(ClientError::Problem(Box::new(Problem { status, ..Problem::default() }))).exit
    }

    #[test]
    fn each_answer_of_the_server_has_its_exit_code() {
        for status in [401, 403] {
            assert_eq!(problem(status), Exit::NotAllowed);
        }
        assert_eq!(problem(404), Exit::NotFound);
        for status in [400, 409, 422, 500] {
            assert_eq!(problem(status), Exit::Failed);
        }
        assert_eq!(Failure::from(ClientError::Unreachable(String::new())).exit, Exit::Unreachable);
        assert_eq!(Failure::from(ClientError::Nonsense(String::new())).exit, Exit::Failed);
    }

    #[test]
    fn a_database_that_cannot_be_reached_differs_from_one_that_does_not_fit() {
        let exit = |error: conductor_store::Error| Failure::from(error).exit;
        assert_eq!(exit(conductor_store::Error::Unreachable("x".into())), Exit::Unreachable);
        assert_eq!(exit(conductor_store::Error::OlderSchema { found: 1 }), Exit::Failed);
        assert_eq!(exit(conductor_store::Error::Key("x".into())), Exit::Failed);
    }
}
