//! `status` and `outputs`: how things stand.

use std::collections::BTreeMap;

use conductor_api::{client::ListFilter, types::Deployment};
use conductor_domain::lifecycle::{OperationStatus, Phase};
use serde_json::json;

use super::{Context, deployment_id};
use crate::{
    failure::Outcome,
    follow,
    output::{count, views},
};

/// How many changes are looked at for the overview.
const RECENT: usize = 100;

pub async fn status(context: &Context, deployment: Option<&str>) -> Outcome {
    match deployment {
        Some(text) => one(context, text).await,
        None => overview(context).await,
    }
}

async fn one(context: &Context, text: &str) -> Outcome {
    let (screen, id) = (&context.screen, deployment_id(text)?);
    let connection = context.look().await?;
    let change = connection.client.deployment(id).await?;
    let operations = follow::operations_of(&connection.client, id).await?;
    screen.document(&change, || {
        let mut out = views::deployment_details(screen, &change);
        if !operations.is_empty() {
            out.push_str(&format!("\n{}", views::operations(screen, &operations)));
        }
        out
    });
    Ok(())
}

/// The last deployment of each application in each environment, what exists, and what is open.
async fn overview(context: &Context) -> Outcome {
    let screen = &context.screen;
    let connection = context.look().await?;
    let client = &connection.client;
    let recent = ListFilter { limit: Some(RECENT), ..ListFilter::default() };
    let latest = latest(client.deployments(&recent).await?);
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for resource in client.resources(&ListFilter::default()).await? {
        if resource.phase != Phase::Deleted {
            *phases.entry(resource.phase.to_string()).or_default() += 1;
        }
    }
    let mut open = Vec::new();
    for status in OperationStatus::ALL.iter().filter(|status| !status.is_over()) {
        let filter =
            ListFilter { status: Some(status.to_string()), limit: Some(RECENT), ..ListFilter::default() };
        open.extend(client.operations(&filter).await?);
    }
    let document = json!({ "deployments": latest, "resources": phases, "openOperations": open });
    screen.document(&document, || {
        if latest.is_empty() && phases.is_empty() {
            return "nothing deployed yet: conductor deploy --env dev\n".into();
        }
        let mut out =
            format!("{}\n\nresources: {}\n", views::deployments(screen, &latest), views::phases(&phases));
        if !open.is_empty() {
            let open_now = count(open.len(), "open operation");
            out.push_str(&format!("\n{open_now}:\n{}\n", views::operations(screen, &open)));
        }
        out
    });
    Ok(())
}

/// Of each application and environment, the newest; the list is newest first.
fn latest(changes: Vec<Deployment>) -> Vec<Deployment> {
    let mut seen = std::collections::BTreeSet::new();
    let mut kept: Vec<Deployment> = changes
        .into_iter()
        .filter(|change| change.application.is_some() || change.environment.is_some())
        .collect();
    kept.sort_by_key(|change| std::cmp::Reverse(change.created_at));
    kept.retain(|change| seen.insert((change.application.clone(), change.environment.clone())));
    kept
}

pub async fn outputs(context: &Context, application: &str, environment: &str, reveal: bool) -> Outcome {
    let connection = context.look().await?;
    let outputs = connection.client.outputs(application, environment, reveal).await?;
    context.screen.document(&outputs, || views::outputs(&context.screen, &outputs));
    Ok(())
}
