//! `apply`: catalogue documents, in order, with the files they name.

use bytes::Bytes;
use conductor_api::types::{Applied, ApplyRequest};
use conductor_domain::{ids::ChangeId, lifecycle::OperationStatus};
use conductor_managers::pack;
use serde_json::{Map, Value};

use super::Context;
use crate::{
    args::{ApplyFlags, Format},
    catalogue::{self, Entry},
    connect::{Connection, Scope},
    failure::{Exit, Failure, Outcome},
    follow,
    output::{CYAN, Screen, complain, count, paint, table::single_line},
};

pub async fn apply(context: &Context, flags: &ApplyFlags) -> Outcome {
    let screen = &context.screen;
    let entries = catalogue::read(screen, &flags.files)?;
    let connection = context.connect().await?;
    let mut run =
        Run { connection: &connection, screen, dry_run: flags.dry_run, done: Vec::new(), failed: 0 };
    let mut kind = String::new();
    for entry in &entries {
        // What names something that was refused would only be refused in turn.
        if entry.text("kind") != kind && run.failed > 0 {
            break;
        }
        kind = entry.text("kind").to_owned();
        if let Err(failure) = run.one(entry).await {
            if matches!(failure.exit, Exit::Unreachable | Exit::NotAllowed | Exit::Interrupted) {
                return Err(failure);
            }
            run.failed += 1;
            tell(screen, entry, &failure);
        }
    }
    if flags.prune && run.failed == 0 {
        run.prune(&entries).await?;
    }
    run.end(entries.len())
}

struct Run<'a> {
    connection: &'a Connection,
    screen: &'a Screen,
    dry_run: bool,
    done: Vec<Applied>,
    failed: usize,
}

impl Run<'_> {
    async fn one(&mut self, entry: &Entry) -> Outcome {
        let packed = self.pack(entry)?;
        let client = &self.connection.client;
        let request = ApplyRequest {
            document: entry.document.value.clone(),
            content: packed.as_ref().map(|packed| packed.digest.clone()),
            dry_run: self.dry_run,
        };
        if let Some(packed) = packed.filter(|_| !self.dry_run) {
            client.keep_blob(&packed.digest, Bytes::from(packed.bytes)).await?;
        }
        let applied = client.apply(&request).await?;
        if let Some(change) = applied.change {
            self.settle(change).await?;
        }
        self.say(applied);
        Ok(())
    }

    /// The files of this machine that a template names.
    fn pack(&self, entry: &Entry) -> Outcome<Option<pack::Packed>> {
        if entry.text("kind") != "Template" {
            return Ok(None);
        }
        self.check_manager(entry.text("manager"))?;
        self.check_worker(&entry.document.value["worker"])?;
        let none = Map::new();
        let config = entry.document.value.get("config").and_then(Value::as_object).unwrap_or(&none);
        pack::prepare(config, entry.text("manager"), entry.folder()).map_err(|failure| {
            let told = Failure::failed(failure.message);
            match failure.hint {
                Some(hint) => told.hint(hint),
                None => told,
            }
        })
    }

    /// Embedded, this process is the worker: a manager it does not have is never waited for.
    fn check_manager(&self, manager: &str) -> Outcome {
        let known = conductor_managers::built_in().names();
        if !self.connection.is_embedded() || known.contains(&manager) {
            return Ok(());
        }
        let hint = match conductor_domain::nearest(manager, known.iter().copied()) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("there is {}", known.join(", ")),
        };
        Err(Failure::failed(format!("there is no manager `{manager}`")).hint(hint))
    }

    /// Nor is what only a worker elsewhere could be: this one has no labels and no networks.
    fn check_worker(&self, asked: &Value) -> Outcome {
        for (key, what) in [("labels", "label"), ("networks", "network")] {
            let none = asked[key].as_object().is_none_or(Map::is_empty)
                && asked[key].as_array().is_none_or(Vec::is_empty);
            if self.connection.is_embedded() && !none {
                return Err(Failure::failed(format!(
                    "worker.{key}: this process is the only worker, and has no {what}"
                ))
                .hint(format!("run `conductor server` and `conductor worker --{what} …`, or leave it out")));
            }
        }
        Ok(())
    }

    /// Waits for a worker to read a template, and tells what it says of it.
    async fn settle(&self, change: ChangeId) -> Outcome {
        let ended = follow::settle(self.connection, self.screen, change, Scope::ThisAlone).await?;
        if ended.status == "succeeded" {
            return Ok(());
        }
        let operations = follow::operations_of(&self.connection.client, change).await?;
        let failed = operations.into_iter().find(|operation| {
            matches!(operation.status, OperationStatus::Failed | OperationStatus::TimedOut)
        });
        let fault = failed.and_then(|operation| operation.error).or(ended.error);
        Err(match fault {
            None => Failure::failed(format!("it could not be read: {change} {}", ended.status)),
            Some(fault) => Failure { hint: fault.hint, ..Failure::failed(fault.message) },
        })
    }

    /// Deletes rules and pools that no document holds any more.
    async fn prune(&mut self, entries: &[Entry]) -> Outcome {
        let client = &self.connection.client;
        let rules = client.rules().await?.into_iter().map(|rule| ("Rule", rule.name));
        let pools = client.pools().await?.into_iter().map(|pool| ("Pool", pool.name));
        for (kind, name) in rules.chain(pools).collect::<Vec<_>>() {
            if entries.iter().any(|entry| entry.text("kind") == kind && entry.text("name") == name) {
                continue;
            }
            match kind {
                _ if self.dry_run => {}
                "Rule" => self.connection.client.delete_rule(&name).await?,
                _ => self.connection.client.delete_pool(&name).await?,
            }
            let action = "deleted".to_owned();
            self.say(Applied { kind: kind.into(), name, version: None, action, change: None });
        }
        Ok(())
    }

    /// One line as soon as it is done; other formats come as one document at the end.
    fn say(&mut self, applied: Applied) {
        if self.screen.format == Format::Table {
            let version = applied.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
            let would = if self.dry_run { " (dry run)" } else { "" };
            let kind = applied.kind.to_lowercase();
            self.screen.print(&format!("{kind}/{}{version} {}{would}", applied.name, applied.action));
        }
        self.done.push(applied);
    }

    fn end(&self, documents: usize) -> Outcome {
        if self.screen.format != Format::Table {
            self.screen.document(&self.done, String::new);
        }
        if self.failed == 0 {
            return Ok(());
        }
        let refused = if self.failed == 1 { "was" } else { "were" };
        Err(Failure::failed(format!("{} of {} {refused} refused", self.failed, count(documents, "document"))))
    }
}

/// What is wrong with one document, with the lines of the file it is in.
fn tell(screen: &Screen, entry: &Entry, failure: &Failure) {
    let help = |hint: &str| format!("\n{} {hint}", paint(screen.color_stderr, CYAN, "help:"));
    let about = format!("{} `{}`", entry.text("kind"), entry.text("name"));
    let mut items = failure.items.iter().peekable();
    if items.peek().is_none() {
        // A manager names the key it complains about first.
        let key = failure.message.split([' ', ':']).next().unwrap_or_default();
        let hint = failure.hint.as_deref().map(help).unwrap_or_default();
        complain(&format!("{}: {about}: {}{hint}", entry.place(key), failure.message.trim_end()));
        return;
    }
    // The server names a key after its document: `Pool warm.size`.
    let document = format!("{} {}.", entry.text("kind"), entry.text("name"));
    for item in items {
        let hint = item.suggestion.as_deref().map(help).unwrap_or_default();
        let place = entry.place(item.path.strip_prefix(&document).unwrap_or(&item.path));
        complain(&format!("{place}: {about}: {}{hint}", single_line(&item.message)));
    }
}
