//! Approvals, proposals, revisions, drift.

use std::collections::HashSet;

use conductor_api::types::{
    Approval, ApprovalItem, Decision, Drift, DriftDecision, DriftRequest, Proposal, ProposalRequest, Revision,
};
use conductor_domain::ids::{ApprovalId, ProposalId, ResourceId};
use serde_json::{Map, Value};

use super::{
    Context,
    by_hand::{pairs, see_through, texts},
    deploy,
    resources::find,
};
use crate::{
    args::{AdoptFlags, ApprovalsCommand, DriftCommand, ProposalsCommand, ProposeFlags, RevisionsCommand},
    confirm,
    connect::{Connection, Scope},
    failure::{Exit, Failure, Outcome},
    follow::{self, Watch},
    output::{
        Screen,
        table::{fields, table},
        views,
    },
};

fn approval_id(text: &str) -> Outcome<ApprovalId> {
    text.parse().map_err(|_| {
        Failure::not_found(format!("there is no approval `{text}`"))
            .hint("`conductor approvals list` shows their ids, which begin with apr_")
    })
}

pub async fn approvals(context: &Context, command: ApprovalsCommand) -> Outcome {
    let screen = &context.screen;
    match command {
        ApprovalsCommand::List { mine, all } => {
            let items = context.look().await?.client.approvals(mine, all).await?;
            screen.document(&items, || match items.is_empty() {
                true => "nothing waits for an answer\n".to_owned(),
                false => approvals_table(screen, &items),
            });
            Ok(())
        }
        ApprovalsCommand::Get { id } => {
            let approval = context.look().await?.client.approval(approval_id(&id)?).await?;
            screen.document(&approval, || approval_details(screen, &approval));
            Ok(())
        }
        ApprovalsCommand::Approve { id, comment } => decide(context, &id, true, comment).await,
        ApprovalsCommand::Reject { id, comment } => decide(context, &id, false, Some(comment)).await,
    }
}

/// The answer is about what was seen: should that have changed meanwhile, it does not count.
async fn decide(context: &Context, id: &str, approves: bool, comment: Option<String>) -> Outcome {
    let (screen, connection) = (&context.screen, context.connect().await?);
    let id = approval_id(id)?;
    let seen = connection.client.approval(id).await?;
    let decision = Decision { comment, digest: Some(seen.digest) };
    let approval = connection.client.decide(id, approves, &decision).await?;
    // Embedded there may be nobody left to carry it out.
    if let Some(change) = approval.deployment.filter(|_| connection.is_embedded()) {
        follow::settle(&connection, screen, change, Scope::Everything).await?;
    }
    screen.document(&approval, || approval_details(screen, &approval));
    Ok(())
}

fn what(items: &[ApprovalItem]) -> String {
    let told = |item: &ApprovalItem| format!("{} {}", item.kind, item.name);
    let shown: Vec<String> = items.iter().take(3).map(told).collect();
    let more = items.len().saturating_sub(shown.len());
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

fn approvals_table(screen: &Screen, items: &[Approval]) -> String {
    let rows = items.iter().map(|approval| {
        let given = approval.votes.iter().filter(|vote| vote.approves).count();
        [
            approval.id.to_string(),
            approval.status.to_string(),
            approval.environment.clone().unwrap_or_default(),
            approval.application.clone().unwrap_or_default(),
            approval.kind.clone(),
            approval.requester.clone(),
            format!("{given}/{}", approval.approvers),
            what(&approval.items),
        ]
    });
    let header = ["ID", "STATUS", "ENV", "APP", "KIND", "ASKED BY", "AGREED", "WHAT"];
    table(screen, header, rows.collect())
}

fn approval_details(screen: &Screen, approval: &Approval) -> String {
    let mut out = fields(&[
        ("id", Some(approval.id.to_string())),
        ("status", Some(approval.status.to_string())),
        ("deployment", approval.deployment.map(|id| id.to_string())),
        ("proposal", approval.proposal.map(|id| id.to_string())),
        ("environment", approval.environment.clone()),
        ("application", approval.application.clone()),
        ("asked by", Some(approval.requester.clone())),
        ("has to agree", Some(approval.approvers.to_string())),
        ("expires", approval.expires_at.map(|at| at.to_string())),
    ]);
    let rows = approval.items.iter().map(|item| {
        let kind = item.kind.to_string();
        [kind, item.resource.to_string(), item.name.clone(), item.template.clone(), changes(&item.changes)]
    });
    out.push('\n');
    out.push_str(&table(screen, ["WHAT", "RESOURCE", "NAME", "TEMPLATE", "CHANGES"], rows.collect()));
    for vote in &approval.votes {
        let word = if vote.approves { "agreed" } else { "refused" };
        let comment = vote.comment.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
        out.push_str(&format!("\n{} {word} at {}{comment}", vote.actor, vote.at));
    }
    out.push('\n');
    out
}

fn changes(changes: &Map<String, Value>) -> String {
    let told = changes.iter().map(|(name, change)| {
        let side = |key: &str| views::told(change.get(key));
        format!("{name}: {} → {}", side("before"), side("after"))
    });
    told.collect::<Vec<_>>().join("; ")
}

fn proposal_id(text: &str) -> Outcome<ProposalId> {
    text.parse().map_err(|_| {
        Failure::not_found(format!("there is no proposal `{text}`"))
            .hint("`conductor proposals list` shows their ids, which begin with prop_")
    })
}

fn proposed(flags: &ProposeFlags) -> Outcome<ProposalRequest> {
    let labels = texts("--label", &flags.labels)?;
    Ok(ProposalRequest {
        set: pairs("--set", &flags.set)?,
        template_version: flags.template_version.clone(),
        description: flags.description.clone(),
        labels: (!labels.is_empty()).then_some(labels),
        reason: flags.reason.clone(),
    })
}

pub async fn proposals(context: &Context, command: ProposalsCommand) -> Outcome {
    let screen = &context.screen;
    let looks = matches!(command, ProposalsCommand::List(_) | ProposalsCommand::Get { .. });
    let connection = if looks { context.look().await? } else { context.connect().await? };
    let client = &connection.client;
    let proposal = match command {
        ProposalsCommand::List(flags) => {
            let items = client.proposals(&flags.filter()).await?;
            screen.document(&items, || proposals_table(screen, &items));
            return Ok(());
        }
        ProposalsCommand::DryRun { id } => {
            let plan = client.try_proposal(proposal_id(&id)?).await?;
            return deploy::show_trial(&connection, screen, plan).await;
        }
        ProposalsCommand::Merge { id, wait } => {
            let handled = client.merge_proposal(proposal_id(&id)?).await?;
            return see_through(&connection, screen, handled, false, &wait).await;
        }
        ProposalsCommand::Get { id } => client.proposal(proposal_id(&id)?).await?,
        ProposalsCommand::Create { resource, flags } => {
            let resource = find(client, &resource).await?;
            client.propose(resource.id, &proposed(&flags)?).await?
        }
        ProposalsCommand::Edit { id, flags } => {
            client.edit_proposal(proposal_id(&id)?, &proposed(&flags)?).await?
        }
        ProposalsCommand::Submit { id, auto_merge } => {
            client.submit_proposal(proposal_id(&id)?, auto_merge).await?
        }
        ProposalsCommand::Discard { id } => client.discard_proposal(proposal_id(&id)?).await?,
    };
    screen.document(&proposal, || proposal_details(&proposal));
    Ok(())
}

fn proposals_table(screen: &Screen, items: &[Proposal]) -> String {
    let rows = items.iter().map(|proposal| {
        [
            proposal.id.to_string(),
            proposal.status.to_string(),
            proposal.resource_name.clone(),
            proposal.environment.clone(),
            proposal.actor.clone(),
            changes(&proposal.changes),
        ]
    });
    table(screen, ["ID", "STATUS", "RESOURCE", "ENV", "BY", "CHANGES"], rows.collect())
}

fn proposal_details(proposal: &Proposal) -> String {
    let variables = proposal.variables.as_ref();
    let list = |names: Option<&Vec<String>>| names.filter(|n| !n.is_empty()).map(|names| names.join(", "));
    fields(&[
        ("id", Some(proposal.id.to_string())),
        ("status", Some(proposal.status.to_string())),
        ("resource", Some(format!("{} ({})", proposal.resource_name, proposal.resource))),
        ("environment", Some(proposal.environment.clone())),
        ("by", Some(proposal.actor.clone())),
        ("changes", Some(changes(&proposal.changes)).filter(|text| !text.is_empty())),
        ("template version", proposal.template_version.clone()),
        ("variables added", list(variables.map(|v| &v.added))),
        ("variables dropped", list(variables.map(|v| &v.dropped))),
        ("variables changed", list(variables.map(|v| &v.changed))),
        ("values missing", list(variables.map(|v| &v.missing))),
        ("reason", proposal.reason.clone()),
        ("waits for", proposal.approval.map(|id| id.to_string())),
        ("made by", proposal.deployment.map(|id| id.to_string())),
    ])
}

pub async fn revisions(context: &Context, command: RevisionsCommand) -> Outcome {
    let screen = &context.screen;
    let changes_it = matches!(command, RevisionsCommand::Rollback { dry_run: false, .. });
    let connection = if changes_it { context.connect().await? } else { context.look().await? };
    let client = &connection.client;
    match command {
        RevisionsCommand::List { resource } => {
            let resource = find(client, &resource).await?;
            let items = client.revisions(resource.id).await?;
            screen.document(&items, || revisions_table(screen, &items));
            Ok(())
        }
        RevisionsCommand::Diff { resource, from, to } => {
            let resource = find(client, &resource).await?;
            let diff = client.revision_diff(resource.id, from, to).await?;
            screen.document(&diff, || {
                let version = diff.template_version.as_ref().map(|version| {
                    format!("template version: {} → {}\n", version["before"], version["after"])
                });
                let told = changes(&diff.changes).replace("; ", "\n");
                match (version, told.is_empty()) {
                    (None, true) => "nothing differs\n".to_owned(),
                    (version, _) => format!("{}{told}\n", version.unwrap_or_default()),
                }
            });
            Ok(())
        }
        RevisionsCommand::Rollback { resource, to, dry_run, wait } => {
            let resource = find(client, &resource).await?;
            let handled = client.roll_back(resource.id, to, dry_run).await?;
            see_through(&connection, screen, handled, dry_run, &wait).await
        }
    }
}

fn revisions_table(screen: &Screen, items: &[Revision]) -> String {
    let rows = items.iter().map(|revision| {
        let current = if revision.current { "*" } else { "" };
        [
            format!("{}{current}", revision.number),
            revision.state.clone(),
            revision.template_version.clone(),
            revision.actor.clone(),
            revision.reason.clone(),
            revision.deployment.to_string(),
            revision.created_at.to_string(),
        ]
    });
    table(screen, ["NUMBER", "STATE", "VERSION", "BY", "WHY", "CHANGE", "SINCE"], rows.collect())
}

pub async fn drift(context: &Context, command: DriftCommand) -> Outcome {
    let screen = &context.screen;
    match command {
        DriftCommand::Check { env, app, exit_code, last } => {
            let request = DriftRequest { environment: env, application: app, resources: vec![] };
            let connection = if last { context.look().await? } else { context.connect().await? };
            if !last {
                look(&connection, screen, &request).await?;
            }
            let found = connection.client.drifts(&request).await?;
            screen.document(&found, || match found.is_empty() {
                true => "everything is as it is on record\n".to_owned(),
                false => drift_table(screen, &found),
            });
            match exit_code && !found.is_empty() {
                true => Err(Failure::silent(Exit::Failed)),
                false => Ok(()),
            }
        }
        DriftCommand::Repair { resources, dry_run, wait } => {
            let asks = !dry_run && confirm::asks(screen, "drift repair")?;
            let connection = context.connect().await?;
            let ids = ids(&connection, &resources).await?;
            if asks {
                confirm::confirm(&format!("Make {} what is on record again?", resources.join(", ")))?;
            }
            let decision = DriftDecision { resources: ids, dry_run, ..DriftDecision::default() };
            for handled in connection.client.repair_drift(&decision).await? {
                see_through(&connection, screen, handled, dry_run, &wait).await?;
            }
            Ok(())
        }
        DriftCommand::Adopt(flags) => adopt(context, flags).await,
        DriftCommand::Ignore { resources, attributes } => {
            let connection = context.connect().await?;
            let resources = ids(&connection, &resources).await?;
            connection.client.ignore_drift(&DriftDecision { resources, attributes, dry_run: false }).await?;
            screen.note("it is let be until it is something else");
            Ok(())
        }
    }
}

pub async fn adopt(context: &Context, flags: AdoptFlags) -> Outcome {
    let AdoptFlags { resources, attributes, dry_run, wait } = flags;
    let connection = context.connect().await?;
    let resources = ids(&connection, &resources).await?;
    let decision = DriftDecision { resources, attributes, dry_run };
    for handled in connection.client.adopt_drift(&decision).await? {
        see_through(&connection, &context.screen, handled, dry_run, &wait).await?;
    }
    Ok(())
}

async fn ids(connection: &Connection, names: &[String]) -> Outcome<Vec<ResourceId>> {
    let mut ids = Vec::new();
    for name in names {
        ids.push(find(&connection.client, name).await?.id);
    }
    Ok(ids)
}

/// Waits until everything was looked at. What could not be is told, and no reason to end.
async fn look(connection: &Connection, screen: &Screen, request: &DriftRequest) -> Outcome {
    let change = connection.client.check_drift(request).await?;
    let watch = Watch { wait_approval: false, earlier: HashSet::new() };
    let ended = follow::follow(connection, screen, change, &watch).await?;
    if ended.status != "succeeded" {
        // What failed is told on stderr; what was seen counts all the same.
        let _ = follow::conclude(&connection.client, screen, &ended, &watch).await;
    }
    Ok(())
}

fn drift_table(screen: &Screen, found: &[Drift]) -> String {
    let side = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = found.iter().flat_map(|drift| {
        let head = [drift.resource.to_string(), drift.name.clone(), drift.kind.clone()];
        let missing = drift.attributes.is_empty().then(|| {
            let [id, name, kind] = head.clone();
            [id, name, kind, String::new(), String::new(), String::new()]
        });
        let attributes = drift.attributes.iter().map(move |attribute| {
            let [id, name, kind] = head.clone();
            [id, name, kind, attribute.path.clone(), side(&attribute.recorded), side(&attribute.actual)]
        });
        missing.into_iter().chain(attributes).collect::<Vec<_>>()
    });
    table(screen, ["RESOURCE", "NAME", "KIND", "ATTRIBUTE", "RECORDED", "ACTUAL"], rows.collect())
}
