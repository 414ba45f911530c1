//! A push to an application's repository deploys the Score file of the pushed commit.
//!
//! The payload only says that something happened: what is fetched is the repository the application was
//! registered with, never an address from the payload.

use std::{process::Stdio, time::Duration};

use axum::{Json, extract::State, http::StatusCode, response::IntoResponse};
use conductor_api::types::{Deployment, DeploymentRequest, Problem};
use conductor_domain::lifecycle::ErrorCode;
use conductor_engine::Role;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    App,
    access::Caller,
    problem::{Answer, Body, Failed},
};

const GIT_LIMIT: Duration = Duration::from_secs(60);

/// The parts of a push event that GitHub, GitLab, Gitea and Forgejo have in common.
#[derive(Deserialize, utoipa::ToSchema)]
pub struct Push {
    /// `refs/heads/BRANCH`.
    #[serde(rename = "ref")]
    reference: String,
    /// The commit that was pushed.
    #[serde(alias = "checkout_sha")]
    after: String,
    #[schema(value_type = Object)]
    repository: Option<Map<String, Value>>,
    #[schema(value_type = Object)]
    project: Option<Map<String, Value>>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct Pushed {
    deployments: Vec<Deployment>,
    /// Why nothing was deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored: Option<String>,
}

/// Deploys what was pushed, to the environment the application gives that branch.
#[utoipa::path(post, path = "/hooks/git", tag = "deployments", request_body = Push,
    responses((status = 202, body = Pushed), (status = 422, body = Problem)))]
pub async fn git(
    State(app): State<App>,
    Caller(caller): Caller,
    Body(push): Body<Push>,
) -> Answer<impl IntoResponse> {
    if !caller.may_somewhere(Role::Write) {
        caller.needs(Role::Write, None, None)?;
    }
    let ignored =
        |why: String| Ok((StatusCode::OK, Json(Pushed { deployments: vec![], ignored: Some(why) })));
    let Some(branch) = push.reference.strip_prefix("refs/heads/") else {
        return ignored(format!("`{}` is no branch", push.reference));
    };
    let is_commit = push.after.len() >= 40 && push.after.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_commit || push.after.bytes().all(|byte| byte == b'0') {
        return ignored("no commit was pushed".to_owned());
    }
    let addresses = addresses(&push);
    let mut deployments = Vec::new();
    for application in app.engine.applications().await? {
        let Some(repository) =
            application.repository.as_deref().filter(|url| addresses.contains(&plain(url)))
        else {
            continue;
        };
        let Some(environment) = application.document["branches"][branch].as_str() else {
            continue;
        };
        caller.needs(Role::Write, Some(environment), Some(&application.name))?;
        let path = application.document["path"].as_str().unwrap_or("score.yaml");
        let manifest = read_at(repository, branch, &push.after, path).await?;
        let request = DeploymentRequest {
            environment: environment.to_owned(),
            application: Some(application.name.clone()),
            manifest,
            commit: Some(push.after.clone()),
            ..DeploymentRequest::default()
        };
        app.engine.allow_deployment(&caller, &request, Role::Write).await?;
        let key = format!("git {} {} {environment}", application.name, push.after);
        deployments.push(app.engine.deploy(request, &caller.name, Some(&key)).await?);
    }
    if deployments.is_empty() {
        return ignored(format!("no application has this repository and deploys branch `{branch}`"));
    }
    Ok((StatusCode::ACCEPTED, Json(Pushed { deployments, ignored: None })))
}

/// One repository has many addresses; they are compared without scheme, user and ending.
fn plain(url: &str) -> String {
    let url = url.trim_end_matches('/').trim_end_matches(".git");
    let url = url.split_once("://").map_or(url, |(_, rest)| rest);
    url.rsplit_once('@').map_or(url, |(_, rest)| rest).replacen(':', "/", 1)
}

fn addresses(push: &Push) -> Vec<String> {
    let names = [
        "clone_url",
        "ssh_url",
        "html_url",
        "git_url",
        "url",
        "http_url",
        "git_http_url",
        "git_ssh_url",
        "web_url",
    ];
    let sources = [&push.repository, &push.project];
    let found = sources.iter().filter_map(|source| source.as_ref());
    found.flat_map(|source| names.iter().filter_map(|name| source.get(*name)?.as_str())).map(plain).collect()
}

/// A file as it is at a commit. The commit is fetched alone where the server allows it, else with its branch.
async fn read_at(repository: &str, branch: &str, commit: &str, path: &str) -> Answer<String> {
    let folder = std::env::temp_dir().join(format!("conductor-hook-{}", uuid::Uuid::now_v7()));
    let failed = |detail: String| Failed::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Failed, detail);
    let read = async {
        run(&folder, &["init", "--quiet", "."]).await?;
        if run(&folder, &["fetch", "--quiet", "--depth=1", "--", repository, commit]).await.is_err() {
            run(&folder, &["fetch", "--quiet", "--", repository, &format!("refs/heads/{branch}")]).await?;
        }
        run(&folder, &["show", &format!("{commit}:{path}")]).await
    };
    let made = std::fs::create_dir(&folder).map_err(|error| failed(error.to_string()));
    let result = match made {
        Ok(()) => {
            read.await.map_err(|error| failed(format!("{path} at {commit} could not be read: {error}")))
        }
        Err(error) => Err(error),
    };
    let _ = std::fs::remove_dir_all(&folder);
    result
}

async fn run(folder: &std::path::Path, args: &[&str]) -> Result<String, String> {
    let child = tokio::process::Command::new("git")
        .args(args)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ALLOW_PROTOCOL", "file:git:http:https:ssh")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(GIT_LIMIT, child)
        .await
        .map_err(|_| "git took too long".to_owned())?
        .map_err(|error| format!("git: {error}"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| "it is not text".to_owned());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(error.lines().next_back().unwrap_or("git failed").chars().take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn one_repository_is_recognised_by_any_of_its_addresses() {
        let addresses = [
            "https://git.example/team/app.git",
            "ssh://git@git.example/team/app",
            "git@git.example:team/app.git",
        ];
        for address in addresses {
            assert_eq!(plain(address), "git.example/team/app");
        }
    }
}
