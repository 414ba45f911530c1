//! A use case's no: a code, a sentence, and every single thing that is wrong.

use conductor_api::types::ProblemItem;
use conductor_domain::{
    lifecycle::ErrorCode,
    plan::{PlanError, Problem},
};
use conductor_store::Error;
use serde_json::json;

/// The key of the list of problems in a refusal's detail.
pub const PROBLEMS: &str = "errors";

pub fn refuse(code: ErrorCode, message: impl Into<String>) -> Error {
    Error::Refused { code, message: message.into(), detail: Box::new(json!({})) }
}

pub fn refuse_all(code: ErrorCode, message: impl Into<String>, problems: &[ProblemItem]) -> Error {
    Error::Refused { code, message: message.into(), detail: Box::new(json!({ PROBLEMS: problems })) }
}

pub(crate) fn from_plan(error: PlanError) -> Error {
    match error {
        PlanError::Need(_) => Error::Corrupt("planning asked for something that could not be loaded".into()),
        PlanError::Refused { code, problems } => {
            let items: Vec<ProblemItem> = problems.into_iter().map(item).collect();
            let message = match items.as_slice() {
                [only] => format!("{}: {}", only.path, only.message),
                [first, rest @ ..] => format!("{}: {} (and {} more)", first.path, first.message, rest.len()),
                [] => "refused".to_owned(),
            };
            refuse_all(code, message, &items)
        }
    }
}

fn item(problem: Problem) -> ProblemItem {
    ProblemItem {
        path: problem.path,
        message: problem.message,
        suggestion: problem.suggestion,
        line: problem.at.map(|at| at.line),
        column: problem.at.map(|at| at.column),
    }
}

pub(crate) fn not_found(what: &str, name: &str, known: &[String]) -> Error {
    let close = conductor_domain::nearest(name, known.iter().map(String::as_str));
    let suggestion = match (close, known) {
        (Some(close), _) => Some(format!("did you mean `{close}`? There is: {}", known.join(", "))),
        (None, []) => None,
        (None, known) => {
            Some(format!("there is: {}", known.iter().take(20).cloned().collect::<Vec<_>>().join(", ")))
        }
    };
    let message = match &suggestion {
        Some(suggestion) => format!("there is no {what} `{name}`; {suggestion}"),
        None => format!("there is no {what} `{name}`"),
    };
    refuse_all(
        ErrorCode::NotFound,
        message.clone(),
        &[ProblemItem { path: what.into(), message, suggestion, ..ProblemItem::default() }],
    )
}
