//! What each command does: open the way to the engine, ask, show the answer.

mod alerts;
mod apply;
mod audit;
mod batch;
mod by_hand;
mod deploy;
mod doctor;
mod integrations;
mod life;
mod logs;
mod objects;
mod resources;
mod serve;
mod states;
mod status;
mod tokens;
mod validate;

use std::io::Write;

use clap::CommandFactory;
use conductor_domain::ids::ChangeId;
use serde_json::json;

use crate::{
    args::{Cli, Command},
    connect::Connection,
    failure::{Failure, Outcome},
    init, logging,
    output::Screen,
    settings::Settings,
};

/// What every command has at hand.
pub struct Context {
    pub screen: Screen,
    pub settings: Settings,
}

impl Context {
    /// The way to the engine for a command that changes something.
    async fn connect(&self) -> Outcome<Connection> {
        Connection::open(&self.settings).await
    }

    /// The same for one that only looks.
    async fn look(&self) -> Outcome<Connection> {
        Connection::open_to_look(&self.settings, &self.screen).await
    }
}

pub async fn run(cli: Cli, screen: Screen) -> Outcome {
    // These need no settings: they work whatever the folder holds.
    match cli.command {
        Command::Version => return version(&screen),
        Command::Completions { shell } => return completions(shell),
        Command::Validate { files, strict_score } => {
            return validate::validate(&screen, &files, strict_score);
        }
        Command::Init { folder } => return init::init(&screen, &folder),
        _ => {}
    }
    let context = Context { settings: Settings::load(&cli.settings)?, screen };
    // A command that ends soon tells what it does; its log is for whoever asks for it.
    let serves = matches!(cli.command, Command::Up | Command::Server { .. } | Command::Worker { .. });
    if context.settings.log.is_some() && !serves {
        logging::start(&context.settings, &context.screen, "warn");
    }
    match cli.command {
        Command::Apply(flags) => apply::apply(&context, &flags).await,
        Command::Plan { flags, deep: false } => deploy::plan(&context, &flags, false).await,
        Command::Plan { flags, deep: true } => deploy::plan_deep(&context, &flags).await,
        Command::Explain(flags) => deploy::plan(&context, &flags, true).await,
        Command::Deploy(flags) => deploy::deploy(&context, &flags).await,
        Command::Destroy { env, app, dry_run, keep_protected } => {
            deploy::destroy(&context, env, app, dry_run, keep_protected).await
        }
        Command::Retry { deployment, wait } => {
            deploy::retry(&context, deployment_id(&deployment)?, &wait).await
        }
        Command::Cancel { deployment, rollback } => {
            deploy::cancel(&context, deployment_id(&deployment)?, rollback).await
        }
        Command::Status { deployment } => status::status(&context, deployment.as_deref()).await,
        Command::Logs { deployment, flags } => {
            logs::logs(&context, deployment_id(&deployment)?, &flags).await
        }
        Command::Outputs { app, env, reveal } => status::outputs(&context, &app, &env, reveal).await,
        Command::Resources(command) => resources::run(&context, command).await,
        Command::Promote { app, from, to, dry_run, wait } => {
            deploy::promote(&context, app, from, to, dry_run, &wait).await
        }
        Command::Batch(command) => batch::run(&context, command).await,
        Command::Approvals(command) => life::approvals(&context, command).await,
        Command::Proposals(command) => life::proposals(&context, command).await,
        Command::Revisions(command) => life::revisions(&context, command).await,
        Command::Drift(command) => life::drift(&context, command).await,
        Command::States(command) => states::run(&context, command).await,
        Command::Deployments(command) => objects::deployments(&context, command).await,
        Command::Operations(command) => objects::operations(&context, command).await,
        Command::Apps(command) => objects::applications(&context, command).await,
        Command::Envs(command) => objects::environments(&context, command).await,
        Command::Templates(command) => objects::templates(&context, command).await,
        Command::Rules(command) => objects::rules(&context, command).await,
        Command::Pools(command) => objects::pools(&context, command).await,
        Command::Integrations(command) => integrations::run(&context, command).await,
        Command::Workers(command) => objects::workers(&context, command).await,
        Command::Events(command) => objects::events(&context, command).await,
        Command::Audit(command) => audit::run(&context, command).await,
        Command::Alerts(command) => alerts::run(&context, command).await,
        Command::Tokens(command) => tokens::run(&context, command).await,
        Command::Up => serve::up(&context).await,
        Command::Server { migrate } => serve::server(&context, migrate).await,
        Command::Worker(flags) => serve::worker(&context, flags).await,
        Command::Migrate => serve::migrate(&context).await,
        Command::Doctor => doctor::doctor(&context).await,
        Command::Version | Command::Completions { .. } | Command::Validate { .. } | Command::Init { .. } => {
            Ok(())
        }
    }
}

fn deployment_id(text: &str) -> Outcome<ChangeId> {
    text.parse().map_err(|_| {
        Failure::not_found(format!("there is no deployment `{text}`"))
            .hint("`conductor deployments list` shows their ids, which begin with dep_")
    })
}

fn version(screen: &Screen) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    screen.document(&json!({ "version": version }), || format!("conductor {version}"));
    Ok(())
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "conductor", &mut script);
    // A closed pipe is the reader's choice.
    let _ = std::io::stdout().write_all(&script);
    Ok(())
}
