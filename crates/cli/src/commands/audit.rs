//! The audit trail: looked at, checked, exported.

use std::path::Path;

use conductor_api::{
    client::{AuditFilter, Client},
    types::{AuditEntry, AuditReport, Time},
};

use super::Context;
use crate::{
    args::{AuditCommand, AuditFlags, ExportFormat},
    clock,
    failure::{Exit, Failure, Outcome},
    output::{Screen, views},
    settings,
};

/// How many entries of an export are checked at once.
const PIECE: usize = 500;

pub async fn run(context: &Context, command: AuditCommand) -> Outcome {
    let screen = &context.screen;
    let client = context.look().await?.client;
    match command {
        AuditCommand::List { filter, limit } => {
            let entries = list(&client, &filter, limit).await?;
            screen.document(&entries, || views::audit(screen, &entries));
            Ok(())
        }
        AuditCommand::Verify { file: None } => tell(screen, &client.verify_audit().await?),
        AuditCommand::Verify { file: Some(file) } => tell(screen, &verify_file(&client, &file).await?),
        AuditCommand::Export { filter, format } => export(screen, &client, &filter, format).await,
    }
}

fn wanted(flags: &AuditFlags) -> Outcome<AuditFilter> {
    let since = flags.since.as_deref().map(|text| settings::duration("--since", text)).transpose()?;
    Ok(AuditFilter {
        newest: false,
        actor: flags.actor.clone(),
        kind: flags.kind.clone(),
        deployment: flags.deployment.clone(),
        resource: flags.resource.clone(),
        since: since.map(|back| Time(clock::now() - back.as_micros() as i64)),
    })
}

async fn list(client: &Client, flags: &AuditFlags, limit: usize) -> Outcome<Vec<AuditEntry>> {
    let filter = AuditFilter { newest: true, ..wanted(flags)? };
    let (mut entries, mut cursor) = (Vec::new(), None);
    loop {
        let page = client.audit(&filter, cursor.as_deref()).await?;
        entries.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() || entries.len() >= limit {
            entries.truncate(limit);
            return Ok(entries);
        }
    }
}

fn tell(screen: &Screen, report: &AuditReport) -> Outcome {
    screen.document(report, || match &report.broken {
        None => format!("{} entries, all as they were sealed", report.entries),
        Some(broken) => format!("broken after {} entries: {broken}", report.entries),
    });
    if report.intact { Ok(()) } else { Err(Failure::silent(Exit::Failed)) }
}

/// Page by page: a trail may be larger than memory.
async fn export(screen: &Screen, client: &Client, flags: &AuditFlags, format: ExportFormat) -> Outcome {
    let filter = wanted(flags)?;
    let (mut cursor, mut first) = (None, true);
    loop {
        let page = client.audit(&filter, cursor.as_deref()).await?;
        let lines: Vec<String> =
            page.items.iter().map(|entry| serde_json::to_string(entry).unwrap_or_default()).collect();
        match format {
            ExportFormat::Jsonl if lines.is_empty() => {}
            ExportFormat::Jsonl => screen.print(&lines.join("\n")),
            ExportFormat::Json => {
                let begin = if first { "[" } else { "," };
                screen.print(&format!("{begin}{}", lines.join(",\n")));
            }
        }
        first = false;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if format == ExportFormat::Json {
        screen.print("]");
    }
    Ok(())
}

/// Either format, whole.
fn read(file: &Path) -> Outcome<Vec<AuditEntry>> {
    let shown = file.display();
    let unread = |why: String| Failure::failed(format!("{shown} cannot be read: {why}"));
    let text = std::fs::read_to_string(file).map_err(|error| unread(error.to_string()))?;
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(&text).map_err(|error| unread(error.to_string()));
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let entry = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| unread(format!("line {}: {error}", number + 1)))
    };
    lines.map(entry).collect()
}

async fn verify_file(client: &Client, file: &Path) -> Outcome<AuditReport> {
    let entries = read(file)?;
    let mut report = AuditReport { entries: 0, intact: true, broken: None };
    let mut begin = 0;
    while begin < entries.len() && report.intact {
        let end = (begin + PIECE).min(entries.len());
        // With the last one of the piece before, so that none can be missing in between.
        let from = begin.saturating_sub(1);
        let piece = client.verify_export(&entries[from..end]).await?;
        let known = (begin - from) as u64;
        report = AuditReport { entries: begin as u64 + piece.entries.saturating_sub(known), ..piece };
        begin = end;
    }
    Ok(report)
}
