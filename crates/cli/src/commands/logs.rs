//! `logs`: what the tools said, whole, as it comes, or the end of it.

use conductor_api::{
    client::Client,
    types::{LogEntry, LogPage},
};
use conductor_domain::ids::ChangeId;

use super::Context;
use crate::{
    args::{Format, LogFlags},
    clock,
    failure::{Exit, Failure, Outcome},
    output::{CYAN, DIM, RED, Screen, YELLOW, paint},
    settings,
    signals::Signals,
};

const PATIENCE_MS: u64 = 10_000;
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];

/// Which lines are wanted.
struct Wanted<'a> {
    flags: &'a LogFlags,
    since: Option<i64>,
}

impl Wanted<'_> {
    fn fits(&self, line: &LogEntry) -> bool {
        let rank = |level: &str| LEVELS.iter().position(|known| *known == level).unwrap_or(1);
        let same = |wanted: &Option<String>, actual: Option<String>| wanted.is_none() || *wanted == actual;
        let resource = line.resource.map(|id| id.to_string());
        self.since.is_none_or(|since| line.at.0 >= since)
            && self.flags.level.as_deref().is_none_or(|level| rank(&line.level) >= rank(level))
            && same(&self.flags.operation, Some(line.operation.to_string()))
            && (same(&self.flags.resource, resource) || same(&self.flags.resource, line.name.clone()))
    }
}

pub async fn logs(context: &Context, id: ChangeId, flags: &LogFlags) -> Outcome {
    let screen = &context.screen;
    let since = flags.since.as_deref().map(|text| settings::duration("--since", text)).transpose()?;
    let since = since.map(|back| clock::now() - back.as_micros() as i64);
    let wanted = Wanted { flags, since };
    let connection = context.look().await?;
    let mut signals = Signals::listen()?;
    tokio::select! {
        shown = show(&connection.client, screen, id, &wanted) => shown,
        () = signals.next() => Err(Failure::silent(Exit::Interrupted)),
    }
}

async fn show(client: &Client, screen: &Screen, id: ChangeId, wanted: &Wanted<'_>) -> Outcome {
    let stream = wanted.flags.follow;
    // Lines can be shown as they come, unless only the last are wanted or they make one document.
    let hold = wanted.flags.tail.is_some() || (screen.format != Format::Table && !stream);
    let (mut held, mut after) = (Vec::new(), 0);
    loop {
        let page: LogPage = client.logs(id, after, 0).await?;
        let more = !page.items.is_empty() && page.next_after > after;
        after = page.next_after.max(after);
        let lines = page.items.into_iter().filter(|line| wanted.fits(line));
        if hold {
            held.extend(lines);
            let keep = wanted.flags.tail.unwrap_or(usize::MAX);
            held.drain(..held.len().saturating_sub(keep));
        } else {
            lines.for_each(|line| print(screen, &line));
        }
        if !more {
            break;
        }
    }
    if !stream {
        if hold {
            screen.document(&held, || held.iter().map(|line| text(screen, line) + "\n").collect());
        }
        return Ok(());
    }
    held.iter().for_each(|line| print(screen, line));
    loop {
        let page = client.logs(id, after, PATIENCE_MS).await?;
        page.items.iter().filter(|line| wanted.fits(line)).for_each(|line| print(screen, line));
        after = page.next_after.max(after);
        if page.done {
            return Ok(());
        }
    }
}

/// One line; as JSON, one document per line.
fn print(screen: &Screen, line: &LogEntry) {
    match screen.format {
        Format::Table => screen.print(&text(screen, line)),
        Format::Json => screen.print(&serde_json::to_string(line).unwrap_or_default()),
        Format::Yaml => screen.document(&[line], String::new),
    }
}

fn text(screen: &Screen, line: &LogEntry) -> String {
    let at = line.at.to_string();
    let time = at.get(11..19).unwrap_or_default();
    let name = line.name.clone().unwrap_or_else(|| line.operation.to_string());
    // What a tool prints may hold anything but must not move the cursor.
    let shown: String = line.text.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    let shown = match line.level.as_str() {
        "error" => paint(screen.color, RED, &shown),
        "warn" => paint(screen.color, YELLOW, &shown),
        _ => shown,
    };
    format!("{} {} {shown}", paint(screen.color, DIM, time), paint(screen.color, CYAN, &name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conductor_api::types::Time;
    use conductor_domain::ids::OperationId;

    #[test]
    fn lines_are_narrowed_by_level_age_and_resource() {
        let line = LogEntry {
            phase: None,
            seq: 1,
            at: Time(1_000),
            level: "warn".into(),
            stream: "stderr".into(),
            operation: OperationId("018f0000-0000-7000-8000-000000000000".parse().unwrap()),
            resource: None,
            name: Some("db".into()),
            text: "hello".into(),
        };
        let fits = |flags: LogFlags, since| Wanted { flags: &flags, since }.fits(&line);
        assert!(fits(LogFlags::default(), None));
        assert!(fits(LogFlags { level: Some("info".into()), ..LogFlags::default() }, None));
        assert!(!fits(LogFlags { level: Some("error".into()), ..LogFlags::default() }, None));
        assert!(!fits(LogFlags::default(), Some(2_000)));
        assert!(fits(LogFlags { resource: Some("db".into()), ..LogFlags::default() }, None));
        assert!(!fits(LogFlags { resource: Some("other".into()), ..LogFlags::default() }, None));
    }
}
