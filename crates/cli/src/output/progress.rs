//! How a change goes, on stderr: a live line per resource on a terminal, else a line whenever something happens.

use std::{collections::HashMap, time::Duration};

use conductor_api::types::{Deployment, LogEntry, Operation};
use conductor_domain::{
    ids::OperationId,
    lifecycle::{OperationKind, OperationStatus},
};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{DIM, GREEN, RED, Screen, complain, paint, span, table::single_line};
use crate::follow::label;

const TICK: Duration = Duration::from_millis(120);
const LINE_WIDTH: usize = 200;

/// What was said about operations that wait for a worker.
type Waits = HashMap<OperationId, String>;

pub enum Progress {
    Silent,
    Lines { told: HashMap<OperationId, OperationStatus>, waits: Waits, color: bool },
    OnlyWaits(Waits),
    Live(Live),
}

impl Progress {
    pub fn new(screen: &Screen, change: &Deployment) -> Self {
        if screen.quiet {
            return Self::Silent;
        }
        complain(&heading(screen, change));
        for warning in &change.warnings {
            screen.warn(warning);
        }
        match screen.live {
            true => Self::Live(Live::new(screen.color_stderr)),
            false => Self::Lines { told: HashMap::new(), waits: HashMap::new(), color: screen.color_stderr },
        }
    }

    /// Says nothing, unless there is something to wait for.
    pub fn only_waits(screen: &Screen) -> Self {
        if screen.quiet { Self::Silent } else { Self::OnlyWaits(HashMap::new()) }
    }

    pub fn update(&mut self, change: &Deployment, operations: &[Operation]) {
        match self {
            Self::Silent | Self::OnlyWaits(_) => {}
            Self::Lines { told, color, .. } => {
                let mut operations: Vec<&Operation> = operations.iter().collect();
                operations
                    .sort_by_key(|operation| (operation.completed_at.is_none(), operation.completed_at));
                for operation in operations {
                    if told.insert(operation.id, operation.status) != Some(operation.status)
                        && let Some(text) = describe(operation, *color)
                    {
                        complain(&format!("{}: {text}", label(change, operation)));
                    }
                }
            }
            Self::Live(live) => live.update(change, operations),
        }
    }

    /// Nothing moves: says once what each operation that is ready waits for.
    pub fn tell_waits(&mut self, change: &Deployment, operations: &[Operation]) {
        let (Self::Lines { waits, .. } | Self::OnlyWaits(waits)) = self else { return };
        for operation in operations.iter().filter(|one| one.status == OperationStatus::Queued) {
            let Some(what) = &operation.waiting_for else { continue };
            if waits.insert(operation.id, what.clone()).as_ref() != Some(what) {
                complain(&format!("{}: waits for {}", label(change, operation), single_line(what)));
            }
        }
    }

    /// Whether the last lines of running programs are shown.
    pub fn wants_logs(&self) -> bool {
        matches!(self, Self::Live(_))
    }

    /// The number of the last line taken in.
    pub fn last_line(&self) -> i64 {
        if let Self::Live(live) = self { live.after } else { 0 }
    }

    pub fn log(&mut self, entries: &[LogEntry], after: i64) {
        if let Self::Live(live) = self {
            live.log(entries);
            live.after = after;
        }
    }

    pub fn finish(&mut self) {
        if let Self::Live(live) = self {
            live.finish();
        }
    }
}

fn heading(screen: &Screen, change: &Deployment) -> String {
    let id = change.id.map(|id| format!(" {id}")).unwrap_or_default();
    let what = super::views::subject(change);
    let place = change.environment.as_deref().map(|name| format!(" in {name}")).unwrap_or_default();
    let text = format!("{}{id}: {what}{place}", change.kind);
    paint(screen.color_stderr, super::BOLD, &text)
}

/// What happened to an operation, in a few words; nothing for what only waits its turn.
fn describe(operation: &Operation, color: bool) -> Option<String> {
    // Where things meet there is nothing to tell.
    if operation.kind == OperationKind::Settle {
        return None;
    }
    let (doing, did) = words(operation.kind);
    let took = match (operation.started_at, operation.completed_at) {
        (Some(start), Some(end)) => format!(" in {}", span(end.0 - start.0)),
        _ => String::new(),
    };
    match operation.status {
        OperationStatus::Queued => None,
        OperationStatus::Blocked => None,
        OperationStatus::ApprovalPending => Some("waits for approval".into()),
        OperationStatus::InProgress if operation.attempt > 1 => {
            Some(format!("{doing}, try {}", operation.attempt))
        }
        OperationStatus::InProgress => Some(doing.into()),
        OperationStatus::Succeeded => Some(paint(color, GREEN, &format!("{did}{took}"))),
        OperationStatus::Cancelled if operation.started_at.is_none() => Some("not started".into()),
        OperationStatus::Cancelled => Some("cancelled".into()),
        OperationStatus::Failed | OperationStatus::TimedOut => {
            let reason = operation.error.as_ref().map(|fault| format!(": {}", single_line(&fault.message)));
            let ended = if operation.status == OperationStatus::Failed { "failed" } else { "timed out" };
            Some(paint(color, RED, &format!("{ended}{took}{}", reason.unwrap_or_default())))
        }
    }
}

fn words(kind: OperationKind) -> (&'static str, &'static str) {
    match kind {
        OperationKind::Create => ("creating", "created"),
        OperationKind::Update => ("updating", "updated"),
        OperationKind::Destroy => ("removing", "removed"),
        OperationKind::Observe => ("looking", "looked"),
        OperationKind::Plan => ("planning", "planned"),
        OperationKind::Describe => ("reading", "read"),
        OperationKind::Test => ("trying", "tried"),
        OperationKind::Settle => ("settling", "settled"),
    }
}

/// One line per operation, drawn over and over.
pub struct Live {
    screen: MultiProgress,
    bars: HashMap<OperationId, ProgressBar>,
    states: HashMap<OperationId, String>,
    after: i64,
    color: bool,
}

impl Live {
    fn new(color: bool) -> Self {
        Self {
            screen: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            bars: HashMap::new(),
            states: HashMap::new(),
            after: 0,
            color,
        }
    }

    fn update(&mut self, change: &Deployment, operations: &[Operation]) {
        let width = operations.iter().map(|operation| label(change, operation).chars().count()).max();
        let width = width.unwrap_or(0).min(40);
        let mut operations: Vec<&Operation> = operations.iter().collect();
        operations.sort_by_key(|operation| operation.id);
        operations.retain(|operation| operation.kind != OperationKind::Settle);
        for operation in operations {
            let new = !self.bars.contains_key(&operation.id);
            let bar =
                self.bars.entry(operation.id).or_insert_with(|| self.screen.add(ProgressBar::new_spinner()));
            if new {
                bar.set_style(style("{spinner:.cyan} {prefix} {wide_msg}"));
                bar.set_prefix(format!("{:width$}", label(change, operation)));
            }
            let text = describe(operation, self.color).unwrap_or_else(|| {
                let waiting =
                    operation.waiting_for.as_deref().map(single_line).unwrap_or_else(|| "waiting".into());
                paint(self.color, DIM, &waiting)
            });
            let over = operation.status.is_over();
            if self.states.insert(operation.id, text.clone()).as_ref() == Some(&text) {
                continue;
            }
            bar.set_message(text);
            if over {
                let mark = match operation.status {
                    OperationStatus::Succeeded => paint(self.color, GREEN, "✓"),
                    _ => paint(self.color, RED, "✗"),
                };
                bar.set_style(style(&format!("{mark} {{prefix}} {{wide_msg}}")));
                bar.finish();
            } else if operation.status == OperationStatus::InProgress {
                bar.set_style(style("{spinner:.cyan} {prefix} {elapsed} {wide_msg}"));
                bar.reset_elapsed();
                bar.enable_steady_tick(TICK);
            }
        }
    }

    fn log(&self, entries: &[LogEntry]) {
        for entry in entries {
            let Some(bar) = self.bars.get(&entry.operation).filter(|bar| !bar.is_finished()) else {
                continue;
            };
            let text: String = single_line(&entry.text).chars().take(LINE_WIDTH).collect();
            let state = self.states.get(&entry.operation).cloned().unwrap_or_default();
            bar.set_message(format!("{state} {}", paint(self.color, DIM, &text)));
        }
    }

    fn finish(&self) {
        for bar in self.bars.values().filter(|bar| !bar.is_finished()) {
            bar.abandon();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use conductor_api::types::Time;
    use conductor_domain::{
        ids::ChangeId,
        lifecycle::{ErrorCode, Fault},
    };
    use uuid::Uuid;

    fn operation(status: OperationStatus) -> Operation {
        Operation {
            id: OperationId(Uuid::from_u128(1)),
            kind: OperationKind::Create,
            resource: None,
            resource_name: Some("orders".into()),
            deployment: ChangeId(Uuid::from_u128(2)),
            worker: None,
            attempt: 1,
            status,
            waiting_for: None,
            error: None,
            created_at: Time(0),
            started_at: Some(Time(1_000_000)),
            completed_at: status.is_over().then_some(Time(2_200_000)),
        }
    }

    #[test]
    fn each_step_is_told_in_a_few_words() {
        let told = |status| describe(&operation(status), false);
        assert_eq!(told(OperationStatus::Queued), None);
        assert_eq!(told(OperationStatus::InProgress).unwrap(), "creating");
        assert_eq!(told(OperationStatus::Succeeded).unwrap(), "created in 1.2s");
        let mut failed = operation(OperationStatus::Failed);
        failed.error = Some(Fault::new(ErrorCode::Failed, "quota of 3 reached\n"));
        assert_eq!(describe(&failed, false).unwrap(), "failed in 1.2s: quota of 3 reached");
        failed.kind = OperationKind::Settle;
        assert_eq!(describe(&failed, false), None);
    }
}
