//! `doctor`: whether what Conductor needs is in place, and what to do where it is not.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use conductor_api::http::HttpTransport;
use serde::Serialize;

use super::Context;
use crate::{
    failure::{Exit, Failure, Outcome},
    output::{count, table::table},
    settings::Settings,
};

#[derive(Serialize)]
struct Check {
    check: &'static str,
    /// `ok`, `warn` or `fail`.
    result: &'static str,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

fn ok(check: &'static str, detail: impl Into<String>) -> Check {
    Check { check, result: "ok", detail: detail.into(), help: None }
}

fn warn(check: &'static str, detail: impl Into<String>, help: impl Into<String>) -> Check {
    Check { check, result: "warn", detail: detail.into(), help: Some(help.into()) }
}

fn fail(check: &'static str, detail: impl Into<String>, help: impl Into<String>) -> Check {
    Check { check, result: "fail", detail: detail.into(), help: Some(help.into()) }
}

pub async fn doctor(context: &Context) -> Outcome {
    let settings = &context.settings;
    let mut checks = vec![settings_used(settings)];
    match &settings.url {
        Some(url) => checks.push(server(url, settings).await),
        None => checks.push(ok("server", "none configured: commands run the engine in this folder")),
    }
    checks.push(data_folder(&settings.data));
    checks.extend(database(settings).await);
    checks.extend(tokio::task::spawn_blocking(protections).await.unwrap_or_default());
    checks.extend(tools(settings));
    let screen = &context.screen;
    screen.document(&checks, || {
        let rows = checks.iter().map(|check| {
            let help = check.help.clone().unwrap_or_default();
            [check.check.to_owned(), check.result.to_owned(), check.detail.clone(), help]
        });
        table(screen, ["CHECK", "RESULT", "DETAIL", "WHAT TO DO"], rows.collect())
    });
    match checks.iter().any(|check| check.result == "fail") {
        true => Err(Failure::silent(Exit::Failed)),
        false => Ok(()),
    }
}

fn settings_used(settings: &Settings) -> Check {
    let used: Vec<String> =
        settings.sources.iter().map(|(name, source)| format!("{name} ({source})")).collect();
    ok("settings", if used.is_empty() { "all defaults".into() } else { used.join(", ") })
}

async fn server(url: &str, settings: &Settings) -> Check {
    let answer = match HttpTransport::client(url, settings.token.clone()) {
        Ok(client) => client.environments().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(environments) => {
            ok("server", format!("{url} answers, {}", count(environments.len(), "environment")))
        }
        Err(error) => {
            let failure = Failure::from(error);
            fail("server", format!("{url}: {}", failure.message), failure.hint.unwrap_or_default())
        }
    }
}

fn data_folder(folder: &Path) -> Check {
    let shown = folder.display();
    if !folder.exists() {
        return ok("data folder", format!("{shown} is made when it is first needed"));
    }
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    let written = std::fs::write(&probe, b"");
    let _ = std::fs::remove_file(&probe);
    match written {
        Ok(()) => ok("data folder", shown.to_string()),
        Err(error) => {
            fail("data folder", format!("{shown}: {error}"), "give CONDUCTOR_DATA a folder you can write")
        }
    }
}

/// The database and its key, without making either.
async fn database(settings: &Settings) -> Vec<Check> {
    let file = settings.database_url.strip_prefix("sqlite:").map(Path::new);
    let shown = file.map_or_else(|| "postgres".to_owned(), |path| path.display().to_string());
    if file.is_some_and(|path| !path.exists()) {
        return vec![ok("database", format!("{shown} is made when it is first needed"))];
    }
    let key = match (&settings.key, settings.key_file.exists()) {
        (Some(_), _) => "from CONDUCTOR_KEY".to_owned(),
        (None, true) => settings.key_file.display().to_string(),
        (None, false) => {
            let file = settings.key_file.display();
            return vec![
                warn("database", shown, "not opened: its key is not here"),
                fail("key", format!("{file} is not there"), "set CONDUCTOR_KEY or CONDUCTOR_KEY_FILE"),
            ];
        }
    };
    let options = conductor_store::OpenOptions {
        url: settings.database_url.clone(),
        key: settings.key.clone(),
        key_file: settings.key_file.clone(),
        migrate: false,
        connections: 1,
    };
    let opened = tokio::task::spawn_blocking(move || options.open().map(drop)).await;
    match opened {
        Ok(Ok(())) => vec![ok("database", shown), ok("key", key)],
        Ok(Err(error)) => {
            let wrong_key = matches!(error, conductor_store::Error::Key(_));
            let failure = Failure::from(error);
            let name = if wrong_key { "key" } else { "database" };
            vec![fail(name, failure.message, failure.hint.unwrap_or_default())]
        }
        Err(error) => vec![fail("database", error.to_string(), "")],
    }
}

/// What keeps the programs of templates in.
fn protections() -> Vec<Check> {
    let lines = conductor_worker::protections().into_iter();
    lines
        .map(|line| match line.contains("NOT") || line.contains("cannot") {
            true => warn("sandbox", line, "run only templates that you trust on this machine"),
            false => ok("sandbox", line),
        })
        .collect()
}

fn tools(settings: &Settings) -> Vec<Check> {
    let path = settings.for_managers.get("path").map(String::as_str).unwrap_or_default();
    let asked = settings.for_managers.get("terraform_tool").map(String::as_str);
    let terraform: Vec<(&str, Option<String>)> = match asked {
        Some(tool) => vec![(tool, version(tool, path))],
        None => ["tofu", "terraform"].map(|tool| (tool, version(tool, path))).to_vec(),
    };
    let mut checks: Vec<Check> =
        terraform.iter().filter_map(|(_, found)| Some(ok("terraform", found.clone()?))).collect();
    if checks.is_empty() {
        let help = "install tofu or terraform, or set CONDUCTOR_TERRAFORM_TOOL, for templates that need it";
        checks.push(warn("terraform", "neither tofu nor terraform is on PATH", help));
    }
    checks.push(match version("git", path) {
        Some(found) => ok("git", found),
        None => warn("git", "not on PATH", "install git for templates with a git:: source"),
    });
    checks
}

/// The first line a program says about its version.
fn version(tool: &str, path: &str) -> Option<String> {
    let found = if tool.contains('/') {
        Path::new(tool).to_owned()
    } else {
        std::env::split_paths(path).map(|folder| folder.join(tool)).find(|file| file.is_file())?
    };
    let flag = if tool.ends_with("git") { "--version" } else { "version" };
    let answer = Command::new(&found).arg(flag).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    answer.status.success().then(|| format!("{line} ({})", found.display()))
}
