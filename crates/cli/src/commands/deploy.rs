//! Changes of applications: plan, explain, deploy, destroy, retry, cancel.

use std::collections::HashSet;

use conductor_api::types::{Deployment, DeploymentRequest, DestroyRequest, PromotionRequest, Served};
use conductor_domain::ids::{ChangeId, OperationId};

use super::{Context, validate};
use crate::{
    args::{DeployFlags, PlanFlags, WaitFlags},
    confirm,
    connect::{Connection, Scope},
    failure::Outcome,
    follow::{self, Watch},
    output::{Screen, complain, count, findings, views},
    settings,
};

fn request(flags: &PlanFlags, manifest: &str) -> DeploymentRequest {
    DeploymentRequest {
        environment: flags.env.clone(),
        application: flags.app.clone(),
        manifest: manifest.to_owned(),
        commit: flags.commit.clone(),
        image: flags.image.clone(),
        ..DeploymentRequest::default()
    }
}

pub async fn plan(context: &Context, flags: &PlanFlags, explain: bool) -> Outcome {
    let screen = &context.screen;
    let manifest = validate::read_valid(screen, &flags.file)?;
    let connection = context.look().await?;
    let plan = connection.client.plan(&request(flags, &manifest)).await;
    let plan = plan.map_err(|error| findings::locate(screen, &flags.file, &manifest, error.into()))?;
    screen.document(&plan, || match explain {
        true => views::explanation(screen, &plan),
        false => views::deployment(screen, &plan),
    });
    Ok(())
}

pub async fn plan_deep(context: &Context, flags: &PlanFlags) -> Outcome {
    let screen = &context.screen;
    let manifest = validate::read_valid(screen, &flags.file)?;
    let connection = context.connect().await?;
    let plan = connection.client.plan_deep(&request(flags, &manifest)).await;
    let plan = plan.map_err(|error| findings::locate(screen, &flags.file, &manifest, error.into()))?;
    show_trial(&connection, screen, plan).await
}

/// Waits for what the managers were asked, where they were, and shows it with the plan.
pub(super) async fn show_trial(connection: &Connection, screen: &Screen, plan: Deployment) -> Outcome {
    let plan = match plan.id {
        Some(id) => follow::settle(connection, screen, id, Scope::Everything).await?,
        None => plan,
    };
    screen.document(&plan, || views::trial(screen, &plan));
    match plan.status.as_str() {
        "planned" | "succeeded" => Ok(()),
        _ => follow::conclude(&connection.client, screen, &plan, &Watch::default()).await,
    }
}

pub async fn deploy(context: &Context, flags: &DeployFlags) -> Outcome {
    let screen = &context.screen;
    let timeout = flags.timeout.as_deref().map(|text| settings::duration("--timeout", text)).transpose()?;
    let manifest = validate::read_valid(screen, &flags.plan.file)?;
    let connection = context.connect().await?;
    let request = DeploymentRequest {
        timeout_seconds: timeout.map(|limit| limit.as_secs().max(1)),
        ..request(&flags.plan, &manifest)
    };
    let accepted = connection.client.deploy(&request).await;
    let accepted =
        accepted.map_err(|error| findings::locate(screen, &flags.plan.file, &manifest, error.into()))?;
    see_through(&connection, screen, accepted, &flags.wait, HashSet::new()).await
}

pub async fn promote(
    context: &Context,
    application: String,
    from: String,
    to: String,
    dry_run: bool,
    wait: &WaitFlags,
) -> Outcome {
    let screen = &context.screen;
    let connection = if dry_run { context.look().await? } else { context.connect().await? };
    let request = PromotionRequest { application, from, to, dry_run };
    let promotion = connection.client.promote(&request).await?;
    for difference in &promotion.differences {
        let told = |side: &Option<Served>| {
            side.as_ref().map_or_else(|| "nothing".to_owned(), |by| format!("{}@{}", by.template, by.version))
        };
        let (there, here) = (told(&difference.from), told(&difference.to));
        screen.note(&format!(
            "{}: {there} in {}, {here} in {}",
            difference.requirement, request.from, request.to
        ));
    }
    if dry_run {
        screen.document(&promotion, || views::deployment(screen, &promotion.deployment));
        return Ok(());
    }
    see_through(&connection, screen, promotion.deployment, wait, HashSet::new()).await
}

/// Deploys once more what an earlier deployment did.
pub async fn redeploy(context: &Context, id: ChangeId, dry_run: bool, wait: &WaitFlags) -> Outcome {
    let screen = &context.screen;
    let connection = if dry_run { context.look().await? } else { context.connect().await? };
    let accepted = connection.client.redeploy(id, dry_run).await?;
    if dry_run {
        screen.document(&accepted, || views::deployment(screen, &accepted));
        return Ok(());
    }
    see_through(&connection, screen, accepted, wait, HashSet::new()).await
}

pub async fn retry(context: &Context, id: ChangeId, wait: &WaitFlags) -> Outcome {
    let connection = context.connect().await?;
    let earlier = follow::operations_of(&connection.client, id).await?;
    let accepted = connection.client.retry(id).await?;
    let earlier = earlier.iter().map(|operation| operation.id).collect();
    see_through(&connection, &context.screen, accepted, wait, earlier).await
}

/// Waits for what was accepted, unless told not to, and ends with its document.
async fn see_through(
    connection: &Connection,
    screen: &Screen,
    accepted: Deployment,
    wait: &WaitFlags,
    earlier: HashSet<OperationId>,
) -> Outcome {
    if wait.no_wait {
        if connection.is_embedded() && !accepted.is_over() {
            screen.note("stored; the next deploy, retry or destroy in this folder works on it");
        }
        screen.document(&accepted, || views::deployment(screen, &accepted));
        return Ok(());
    }
    let watch = Watch { wait_approval: wait.wait_approval, earlier };
    let ended = follow::follow(connection, screen, accepted, &watch).await?;
    screen.document(&ended, || views::deployment(screen, &ended));
    follow::conclude(&connection.client, screen, &ended, &watch).await
}

pub async fn cancel(context: &Context, id: ChangeId, rollback: bool) -> Outcome {
    let (screen, connection) = (&context.screen, context.connect().await?);
    let mut change = connection.client.cancel(id, rollback).await?;
    // Embedded there may be nobody left to carry it out.
    if connection.is_embedded() && connection.interrupted().await?.contains(&id) {
        change = follow::settle(&connection, screen, id, Scope::Everything).await?;
    }
    if !change.is_over() {
        screen.note(&format!("{id} is being stopped: conductor status {id}"));
    }
    screen.document(&change, || views::deployment(screen, &change));
    Ok(())
}

pub async fn destroy(
    context: &Context,
    environment: String,
    application: Option<String>,
    dry_run: bool,
    keep_protected: bool,
) -> Outcome {
    let screen = &context.screen;
    let asks = !dry_run && confirm::asks(screen, "destroy")?;
    let connection = if dry_run { context.look().await? } else { context.connect().await? };
    let mut request = DestroyRequest { environment, application, dry_run: true, keep_protected };
    if dry_run || asks {
        let preview = connection.client.destroy(&request).await?;
        if dry_run {
            screen.document(&preview, || views::deployment(screen, &preview));
            return Ok(());
        }
        complain(&views::deployment(&Screen { color: screen.color_stderr, ..screen.clone() }, &preview));
        confirm::confirm(&question(&request, &preview))?;
    }
    request.dry_run = false;
    let accepted = connection.client.destroy(&request).await?;
    let wait = WaitFlags { no_wait: false, wait_approval: false };
    see_through(&connection, screen, accepted, &wait, HashSet::new()).await
}

fn question(request: &DestroyRequest, preview: &Deployment) -> String {
    let what = request.application.as_deref().unwrap_or("everything");
    let number = count(preview.removals.len(), "resource");
    format!("Take down {what} in {} ({number})?", request.environment)
}
