//! The same for many resources: what it would do first, a few as a trial, then the rest, and no further after a failure.

use std::collections::{BTreeMap, BTreeSet};

use conductor_api::{
    client::ClientError,
    types::{Deployment, Handled, Resource},
};
use serde_json::json;

use super::{Context, resources::list};
use crate::{
    args::{BatchCommand, BatchFlags},
    confirm,
    connect::{Connection, Scope},
    failure::{Failure, Outcome},
    follow,
    output::{Screen, complain, count, table::table},
};

/// What is done to each.
#[derive(Clone, Debug)]
enum Deed {
    Destroy,
    Retry,
    Upgrade(String),
}

impl Deed {
    fn word(&self) -> &'static str {
        match self {
            Self::Destroy => "destroy",
            Self::Retry => "retry",
            Self::Upgrade(_) => "upgrade",
        }
    }

    async fn to(
        &self,
        connection: &Connection,
        resource: &Resource,
        dry_run: bool,
    ) -> Result<Handled, ClientError> {
        let client = &connection.client;
        match self {
            Self::Destroy => client.destroy_resource(resource.id, dry_run).await,
            Self::Retry => client.retry_resource(resource.id, dry_run).await,
            Self::Upgrade(version) => client.upgrade_resource(resource.id, version, dry_run).await,
        }
    }
}

pub async fn run(context: &Context, command: BatchCommand) -> Outcome {
    match command {
        BatchCommand::Destroy(flags) => each(context, Deed::Destroy, *flags).await,
        BatchCommand::Retry(flags) => each(context, Deed::Retry, *flags).await,
        BatchCommand::Upgrade { to, flags } => each(context, Deed::Upgrade(to), *flags).await,
    }
}

/// What would be done to one, or why nothing can be.
struct Prospect {
    resource: Resource,
    plan: Result<Deployment, String>,
}

impl Prospect {
    fn action(&self) -> String {
        let Ok(plan) = &self.plan else { return "refused".into() };
        let items = plan.resources.iter().chain(&plan.removals);
        let of = items.filter(|item| item.resource == self.resource.id || plan.resources.len() == 1);
        of.map(|item| item.action.to_string()).next().unwrap_or_else(|| "none".into())
    }

    fn why(&self) -> String {
        match &self.plan {
            Err(why) => why.clone(),
            Ok(plan) => {
                let items = plan.resources.iter().chain(&plan.removals);
                items.map(|item| item.reason.clone()).next().unwrap_or_default()
            }
        }
    }

    fn users(&self) -> BTreeSet<String> {
        self.resource
            .consumers
            .iter()
            .map(|user| format!("{} in {}", user.application, user.environment))
            .collect()
    }
}

async fn each(context: &Context, deed: Deed, flags: BatchFlags) -> Outcome {
    let screen = &context.screen;
    let asks = !flags.dry_run && confirm::asks(screen, &format!("batch {}", deed.word()))?;
    let connection = if flags.dry_run { context.look().await? } else { context.connect().await? };
    let mut selected = list(&connection.client, &flags.list).await?;
    selected.retain(|resource| fits(&deed, resource));
    let mut prospects = Vec::new();
    for resource in selected {
        let plan = match deed.to(&connection, &resource, true).await {
            Ok(handled) => handled.deployment.ok_or_else(|| "there is nothing to do".to_owned()),
            Err(ClientError::Problem(problem)) => Err(problem.detail),
            Err(other) => return Err(other.into()),
        };
        prospects.push(Prospect { resource, plan });
    }
    if flags.dry_run {
        show(screen, &prospects);
        return Ok(());
    }
    let refused = prospects.iter().filter(|prospect| prospect.plan.is_err()).count();
    let going: Vec<&Prospect> = prospects.iter().filter(|prospect| prospect.plan.is_ok()).collect();
    if asks {
        complain(&table_of(&Screen { color: screen.color_stderr, ..screen.clone() }, &prospects));
        confirm::confirm(&format!("{} {}?", capital(deed.word()), count(going.len(), "resource")))?;
    }
    carry_out(&connection, screen, &deed, &going, flags.canary).await?;
    let done = going.len();
    let told = json!({ "done": done, "refused": refused });
    screen.document(&told, || format!("{} of {} done\n", done, count(prospects.len(), "resource")));
    match refused {
        0 => Ok(()),
        _ => Err(Failure::failed(format!("{} could not be touched", count(refused, "resource")))
            .hint("`--dry-run` says why")),
    }
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// Leaves out what the deed makes no sense for.
fn fits(deed: &Deed, resource: &Resource) -> bool {
    let can = |action: &str| resource.available_actions.iter().any(|known| known == action);
    match deed {
        Deed::Destroy => can("destroy"),
        Deed::Retry => can("retry"),
        Deed::Upgrade(version) => can("update") && resource.template_version != *version,
    }
}

/// First a few, one after the other; then the rest at once. The first that fails is the last that is begun.
async fn carry_out(
    connection: &Connection,
    screen: &Screen,
    deed: &Deed,
    going: &[&Prospect],
    canary: usize,
) -> Outcome {
    let (trial, rest) = going.split_at(canary.min(going.len()));
    for prospect in trial {
        let handled = deed.to(connection, &prospect.resource, false).await?;
        finish(connection, screen, deed, prospect, handled).await?;
    }
    if !trial.is_empty() && !rest.is_empty() {
        screen.note(&format!("{} went well; now the other {}", count(trial.len(), "resource"), rest.len()));
    }
    for some in rest.chunks(20) {
        let mut begun = Vec::new();
        for prospect in some {
            begun.push((prospect, deed.to(connection, &prospect.resource, false).await?));
        }
        for (prospect, handled) in begun {
            finish(connection, screen, deed, prospect, handled).await?;
        }
    }
    Ok(())
}

async fn finish(
    connection: &Connection,
    screen: &Screen,
    deed: &Deed,
    prospect: &Prospect,
    handled: Handled,
) -> Outcome {
    let Some(id) = handled.deployment.and_then(|deployment| deployment.id) else { return Ok(()) };
    let ended = follow::settle(connection, screen, id, Scope::Everything).await?;
    let name = &prospect.resource.name;
    match ended.status.as_str() {
        "succeeded" => screen.note(&format!("{} {name}: done", deed.word())),
        "approval_pending" => {
            let hint = ended.waiting_for.unwrap_or_default();
            screen.note(&format!("{} {name}: waits for {hint}", deed.word()));
        }
        status => {
            let why = ended.error.map(|error| error.message).unwrap_or_default();
            return Err(Failure::failed(format!(
                "{} {name} {status}: {why}; nothing more was begun",
                deed.word()
            ))
            .hint(format!("conductor logs {id}")));
        }
    }
    Ok(())
}

fn table_of(screen: &Screen, prospects: &[Prospect]) -> String {
    let rows = prospects.iter().map(|prospect| {
        [
            prospect.resource.id.to_string(),
            prospect.resource.name.clone(),
            prospect.resource.environment.clone(),
            prospect.resource.template_version.clone(),
            prospect.action(),
            prospect.users().into_iter().collect::<Vec<_>>().join(", "),
            prospect.why(),
        ]
    });
    table(screen, ["RESOURCE", "NAME", "ENV", "VERSION", "ACTION", "USED BY", "WHY"], rows.collect())
}

fn show(screen: &Screen, prospects: &[Prospect]) {
    let items: Vec<_> = prospects
        .iter()
        .map(|prospect| {
            json!({
                "resource": prospect.resource.id, "name": prospect.resource.name,
                "environment": prospect.resource.environment, "action": prospect.action(),
                "reason": prospect.why(), "usedBy": prospect.users(),
            })
        })
        .collect();
    let mut users: BTreeMap<String, usize> = BTreeMap::new();
    for user in prospects.iter().flat_map(Prospect::users) {
        *users.entry(user).or_default() += 1;
    }
    let applications = users.len();
    let document = json!({ "resources": items, "applications": users });
    screen.document(&document, || {
        let many = count(prospects.len(), "resource");
        format!("{}\n{many}, used by {}\n", table_of(screen, prospects), count(applications, "application"))
    });
}
