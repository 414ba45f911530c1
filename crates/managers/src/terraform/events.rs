//! The tool's `-json` lines: progress for people, a journal of what was begun, and why it failed.

use conductor_domain::work::{Failure, FailureCode, Level};
use serde_json::{Value, json};

use crate::{Exit, Job, program};

/// Messages that another try can be expected to get past.
const PASSING: [&str; 4] =
    ["Error acquiring the state lock", UNLOCKING, "Saved plan is stale", "connection refused"];
/// Messages of a prepared folder that no longer fits.
const UNPREPARED: [&str; 4] = [
    "Required plugins are not installed",
    "Inconsistent dependency lock file",
    "Backend initialization required",
    "Module not installed",
];
/// All that failed is the very last step: the state is stored by then.
const UNLOCKING: &str = "Error releasing the state lock";
const MESSAGE_LIMIT: usize = 4_000;

pub(super) struct Report<'a> {
    job: &'a dyn Job,
    errors: Vec<String>,
}

impl<'a> Report<'a> {
    pub fn new(job: &'a dyn Job) -> Self {
        Self { job, errors: Vec::new() }
    }

    /// Takes one line. What it returns belongs in the journal.
    pub fn line(&mut self, line: &str) -> Option<Value> {
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            if !line.trim().is_empty() {
                self.job.log(Level::Info, line);
            }
            return None;
        };
        let message = event["@message"].as_str().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "diagnostic" => self.diagnostic(&event["diagnostic"]),
            kind @ ("apply_start" | "apply_progress" | "apply_complete" | "apply_errored") => {
                if let Some(text) = progress(kind, &event["hook"]) {
                    let level = if kind == "apply_errored" { Level::Error } else { Level::Info };
                    self.job.log(level, &text);
                }
                return journal(kind, &event["hook"]);
            }
            "provision_progress" => {
                let hook = &event["hook"];
                let text = format!("{}: {}", address(hook), hook["output"].as_str().unwrap_or_default());
                self.job.log(Level::Info, text.trim_end());
            }
            "planned_change" | "resource_drift" | "change_summary" => self.job.log(Level::Info, message),
            // `outputs` holds values; they are read from the state instead.
            "version" | "outputs" => {}
            _ if !message.is_empty() => self.job.log(Level::Debug, message),
            _ => {}
        }
        None
    }

    fn diagnostic(&mut self, diagnostic: &Value) {
        let text = |name: &str| diagnostic[name].as_str().unwrap_or_default().trim();
        let place = diagnostic.get("range").map(|range| {
            let file = range["filename"].as_str().unwrap_or_default();
            format!("{file}:{}: ", range["start"]["line"])
        });
        let mut line = format!("{}{}", place.unwrap_or_default(), text("summary"));
        if !text("detail").is_empty() {
            line = format!("{line}: {}", text("detail"));
        }
        if text("severity") == "error" {
            self.job.log(Level::Error, &line);
            self.errors.push(line);
        } else {
            self.job.log(Level::Warn, &line);
        }
    }

    /// Whether the prepared folder has to be made anew.
    pub fn unprepared(&self) -> bool {
        self.errors.iter().any(|error| UNPREPARED.iter().any(|known| error.contains(known)))
    }

    /// Whether nothing is wrong but that the lock could not be given back.
    pub fn only_unlocking(&self) -> bool {
        !self.errors.is_empty() && self.errors.iter().all(|error| error.contains(UNLOCKING))
    }

    /// Why the tool failed, in its own words.
    pub fn failure(&self, exit: &Exit) -> Failure {
        if self.errors.is_empty() {
            return Failure::failed(program::reason("terraform", exit));
        }
        let passing = self.errors.iter().any(|error| PASSING.iter().any(|known| error.contains(known)));
        let code = if passing || self.unprepared() { FailureCode::Transient } else { FailureCode::Failed };
        let mut message = self.errors.join("\n");
        if message.len() > MESSAGE_LIMIT {
            message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
            message.push_str(" … (the rest is in the log)");
        }
        Failure::new(code, message)
    }
}

fn address(hook: &Value) -> &str {
    hook["resource"]["addr"].as_str().unwrap_or("resource")
}

fn progress(kind: &str, hook: &Value) -> Option<String> {
    let (doing, done) = match hook["action"].as_str()? {
        "create" => ("creating", "created"),
        "update" => ("updating", "updated"),
        "delete" => ("deleting", "deleted"),
        "read" => ("reading", "read"),
        _ => return None,
    };
    let address = address(hook);
    let seconds = hook["elapsed_seconds"].as_f64().unwrap_or_default();
    Some(match kind {
        "apply_start" => format!("{address}: {doing}"),
        "apply_progress" => format!("{address}: still {doing} after {seconds}s"),
        "apply_errored" => format!("{address}: {doing} failed after {seconds}s"),
        _ => match (hook["id_key"].as_str(), hook["id_value"].as_str()) {
            (Some(key), Some(id)) => format!("{address}: {done} after {seconds}s [{key}={id}]"),
            _ => format!("{address}: {done} after {seconds}s"),
        },
    })
}

/// Without these, what a killed run had made could not be named.
fn journal(kind: &str, hook: &Value) -> Option<Value> {
    if kind == "apply_progress" || hook["action"] == "read" {
        return None;
    }
    let mut entry = json!({"type": kind, "address": address(hook), "action": hook["action"]});
    for (from, to) in [("id_key", "idKey"), ("id_value", "idValue")] {
        if let Some(value) = hook.get(from) {
            entry[to] = value.clone();
        }
    }
    Some(entry)
}
