//! Waiting for a change and showing how it goes.

use std::{collections::HashSet, time::Duration};

use conductor_api::{
    client::{Client, ClientError, ListFilter},
    types::{Deployment, LogEntry, Operation, Time},
};
use conductor_domain::{
    ids::{ChangeId, OperationId},
    lifecycle::OperationStatus,
};

use crate::{
    connect::{Connection, Scope},
    failure::{Exit, Failure, Outcome},
    output::{Screen, complain, paint, progress::Progress, table::single_line},
};

/// How long one question may stay open; what waits longer for a worker is told of.
const PATIENCE_MS: u64 = 5_000;
/// The same, while somebody watches the programs' last lines.
const LIVE_MS: u64 = 400;
/// A server that restarts is waited for this long.
const RETRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);
/// Lines of a failed operation that are shown without being asked for.
const LAST_LINES: usize = 10;

/// What to wait for, and what not to tell.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Also for people.
    pub wait_approval: bool,
    /// Operations of an earlier try.
    pub earlier: HashSet<OperationId>,
}

impl Watch {
    /// The operations that belong to this try.
    async fn operations(&self, client: &Client, id: ChangeId) -> Result<Vec<Operation>, ClientError> {
        let mut operations = operations_of(client, id).await?;
        operations.retain(|operation| !self.earlier.contains(&operation.id));
        Ok(operations)
    }
}

/// Waits until a change is over, working on it where nobody else does. Returns it as it ended.
pub async fn follow(
    connection: &Connection,
    screen: &Screen,
    change: Deployment,
    watch: &Watch,
) -> Outcome<Deployment> {
    let Some(id) = change.id else { return Ok(change) };
    let interrupted = connection.interrupted().await?;
    let others: Vec<ChangeId> = interrupted.into_iter().filter(|other| *other != id).collect();
    let mut progress = Progress::new(screen, &change);
    for other in &others {
        screen.note(&format!("also going on with {other}, which was interrupted"));
    }
    let waiting = async {
        let ended = wait(&connection.client, id, watch, &mut progress).await?;
        finish_rest(connection, id, others).await?;
        Ok(ended)
    };
    let ended = connection.work_on(screen, id, Scope::Everything, waiting).await;
    progress.finish();
    ended
}

/// What this command started or took over and would leave to nobody when it ended now.
async fn finish_rest(connection: &Connection, id: ChangeId, others: Vec<ChangeId>) -> Outcome {
    let mut rest = others;
    let mut waited: HashSet<ChangeId> = HashSet::new();
    loop {
        rest.extend(connection.follow_ups(id).await?);
        rest.retain(|other| !waited.contains(other));
        let Some(next) = rest.pop() else { return Ok(()) };
        wait(&connection.client, next, &Watch::default(), &mut Progress::Silent).await?;
        waited.insert(next);
    }
}

/// Waits for what is only a part of a command, and tells of nothing but what it has to wait for.
pub async fn settle(
    connection: &Connection,
    screen: &Screen,
    id: ChangeId,
    scope: Scope,
) -> Outcome<Deployment> {
    let (mut progress, watch) = (Progress::only_waits(screen), Watch::default());
    let waiting = wait(&connection.client, id, &watch, &mut progress);
    connection.work_on(screen, id, scope, waiting).await
}

async fn wait(client: &Client, id: ChangeId, watch: &Watch, progress: &mut Progress) -> Outcome<Deployment> {
    let mut seen: Option<Time> = None;
    loop {
        let mark = seen.map(|time| time.to_string());
        let patience = if progress.wants_logs() { LIVE_MS } else { PATIENCE_MS };
        let change = patiently(|| client.await_deployment(id, mark.as_deref(), patience)).await?;
        let stands_still = seen.is_some() && seen == change.updated_at;
        seen = change.updated_at;
        if !matches!(progress, Progress::Silent) {
            let operations = patiently(|| watch.operations(client, id)).await?;
            progress.update(&change, &operations);
            if stands_still {
                progress.tell_waits(&change, &operations);
            }
            if progress.wants_logs() {
                let after = progress.last_line();
                let page = patiently(|| client.logs(id, after, 0)).await?;
                progress.log(&page.items, page.next_after);
            }
        }
        if change.is_over() || (change.status == "approval_pending" && !watch.wait_approval) {
            return Ok(change);
        }
    }
}

pub async fn operations_of(client: &Client, id: ChangeId) -> Result<Vec<Operation>, ClientError> {
    client.operations(&ListFilter { deployment: Some(id.to_string()), ..ListFilter::default() }).await
}

/// Asks again while nobody answers: what was accepted goes on without us.
async fn patiently<T, F: Future<Output = Result<T, ClientError>>>(ask: impl Fn() -> F) -> Outcome<T> {
    let mut tries = 0;
    loop {
        match ask().await {
            Err(ClientError::Unreachable(_)) if tries < RETRIES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error @ ClientError::Unreachable(_)) => {
                return Err(Failure::from(error)
                    .hint("what was accepted goes on: look later with `conductor status`"));
            }
            other => return Ok(other?),
        }
    }
}

/// The end of a command that waited for a change: why it failed on stderr, and the exit code.
pub async fn conclude(client: &Client, screen: &Screen, change: &Deployment, watch: &Watch) -> Outcome {
    match change.status.as_str() {
        "succeeded" => Ok(()),
        "approval_pending" => Err(approval(change)),
        _ => {
            tell_failures(client, screen, change, watch).await;
            Err(Failure::silent(Exit::Failed))
        }
    }
}

fn approval(change: &Deployment) -> Failure {
    let id = change.id.map(|id| id.to_string()).unwrap_or_default();
    let failure = Failure::new(Exit::WaitsForApproval, format!("{id} waits for approval"));
    match &change.waiting_for {
        Some(what) => failure.hint(what.clone()),
        None => failure.hint("it goes on by itself once it is approved"),
    }
}

async fn tell_failures(client: &Client, screen: &Screen, change: &Deployment, watch: &Watch) {
    let red = |text: &str| paint(screen.color_stderr, crate::output::RED, text);
    let id = change.id.map(|id| format!(" {id}")).unwrap_or_default();
    let ended = if change.status == "timed_out" { "timed out" } else { change.status.as_str() };
    complain(&format!("{} {}{id} {ended}", red("error:"), change.kind));
    let mut told = Vec::new();
    if let Some(change_id) = change.id
        && let Ok(operations) = watch.operations(client, change_id).await
    {
        let failed = operations.iter().filter(|operation| {
            matches!(operation.status, OperationStatus::Failed | OperationStatus::TimedOut)
        });
        let lines = all_lines(client, change_id).await;
        for operation in failed {
            told.extend(operation.error.as_ref().map(|fault| fault.message.clone()));
            tell_failure(screen, change, operation, &lines);
        }
    }
    if let Some(fault) = &change.error
        && !told.iter().any(|message| fault.message.contains(message.as_str()))
    {
        complain(&format!("  {}", single_line(&fault.message)));
        if let Some(hint) = &fault.hint {
            complain(&format!("  {} {hint}", paint(screen.color_stderr, crate::output::CYAN, "help:")));
        }
    }
    if let Some(id) = change.id {
        screen
            .note(&format!("  all of the log: conductor logs {id}\n  once more:      conductor retry {id}"));
    }
}

fn tell_failure(screen: &Screen, change: &Deployment, operation: &Operation, lines: &[LogEntry]) {
    let label = label(change, operation);
    let resource = operation.resource.map(|id| format!(" ({id})")).unwrap_or_default();
    let reason = operation.error.as_ref().map_or("no reason was given", |fault| fault.message.as_str());
    let head = paint(screen.color_stderr, crate::output::BOLD, &format!("{label}: {}", operation.kind));
    complain(&format!("  {head}{resource}: {}", single_line(reason)));
    let own: Vec<&LogEntry> = lines.iter().filter(|line| line.operation == operation.id).collect();
    for line in own.iter().skip(own.len().saturating_sub(LAST_LINES)) {
        let text = single_line(&line.text.chars().take(2_000).collect::<String>());
        if text != reason {
            complain(&format!("    {} {text}", paint(screen.color_stderr, crate::output::DIM, "|")));
        }
    }
    if let Some(hint) = operation.error.as_ref().and_then(|fault| fault.hint.as_ref()) {
        complain(&format!("    {} {hint}", paint(screen.color_stderr, crate::output::CYAN, "help:")));
    }
}

/// What people call an operation's subject: the Score key, else the resource's name.
pub fn label(change: &Deployment, operation: &Operation) -> String {
    let items = change.resources.iter().chain(&change.removals);
    items
        .filter(|item| Some(item.resource) == operation.resource)
        .map(|item| item.requirement.clone())
        .find(|requirement| !requirement.is_empty())
        .or_else(|| operation.resource_name.clone())
        .unwrap_or_else(|| operation.kind.to_string())
}

async fn all_lines(client: &Client, id: ChangeId) -> Vec<LogEntry> {
    let (mut lines, mut after) = (Vec::new(), 0);
    while let Ok(page) = client.logs(id, after, 0).await {
        let empty = page.items.is_empty();
        lines.extend(page.items);
        if empty || page.next_after <= after {
            break;
        }
        after = page.next_after;
    }
    lines
}
