//! The command line: what can be typed, and what its help teaches.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use audit::{AuditCommand, AuditFlags, ExportFormat};
pub use life::{
    AdoptFlags, ApprovalsCommand, BatchCommand, BatchFlags, CreateFlags, DeploymentsCommand, DriftCommand,
    FactFlags, OneFlags, ProposalsCommand, ProposeFlags, RegisterFlags, RevisionsCommand,
};
pub use objects::{
    AlertsCommand, IntegrationsCommand, ListFlags, LogFlags, NamedCommand, OperationsCommand, PoolsCommand,
    RecordCommand, ResourcesCommand, StatesCommand, TokensCommand,
};

use crate::settings::SettingFlags;

mod audit;
mod life;
mod objects;

/// Works out which infrastructure an application needs, and sees to it.
#[derive(Debug, Parser)]
#[command(
    name = "conductor",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "First steps:\n  conductor init && conductor apply -f catalog && conductor deploy --env dev\n\n\
                  Without CONDUCTOR_URL commands work in this folder's .conductor; `conductor up` starts a server.\n\
                  `conductor help COMMAND` shows examples, `conductor COMMAND --help` every setting."
)]
pub struct Cli {
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub settings: SettingFlags,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Everywhere")]
pub struct OutputFlags {
    /// How to print the result
    #[arg(short, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
    /// When to use colour (NO_COLOR is heeded)
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
    /// Say nothing but the result and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Do not ask
    #[arg(short, long, global = true)]
    pub yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
    Yaml,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write an example score.yaml and catalog/ that deploy as they are
    #[command(after_help = "Examples:\n  conductor init\n  conductor init shop")]
    Init {
        /// Where to write them
        #[arg(default_value = ".", value_name = "DIR")]
        folder: PathBuf,
    },
    /// Check Score files
    #[command(
        after_help = "Examples:\n  conductor validate score.yaml\n  conductor validate -o json */score.yaml"
    )]
    Validate {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Refuse the short spelling of the sharing dialect, which other Score tools do not know
        #[arg(long)]
        strict_score: bool,
    },
    /// Bring the catalogue up to date: environments, templates, rules, pools
    #[command(
        after_help = "Examples:\n  conductor apply -f catalog\n  conductor apply -f rules.yaml --dry-run"
    )]
    Apply(ApplyFlags),
    /// Show what a deployment would do, and change nothing
    #[command(
        after_help = "Examples:\n  conductor plan --env dev\n  conductor plan -f shop/score.yaml --env prod --deep -o json"
    )]
    Plan {
        #[command(flatten)]
        flags: PlanFlags,
        /// Also ask the managers what they would do: terraform shows its own diff
        #[arg(long)]
        deep: bool,
    },
    /// Say at length why each choice would be made
    #[command(after_help = "Examples:\n  conductor explain --env dev")]
    Explain(PlanFlags),
    /// Deploy an application: make, change and remove what its Score file asks for
    #[command(after_help = "Examples:\n  conductor deploy --env dev\n  \
                      conductor deploy -f shop/score.yaml --env prod --image registry/shop:42 --commit \"$SHA\"\n\n\
                      Progress goes to stderr, the result to stdout. Exits 1 when it failed, 5 when it waits for approval.")]
    Deploy(DeployFlags),
    /// Take an application, or a whole environment, down
    #[command(
        after_help = "Examples:\n  conductor destroy --env dev --app hello\n  conductor destroy --env preview --dry-run"
    )]
    Destroy {
        #[arg(short, long, value_name = "ENV")]
        env: String,
        /// Only this application; without it, everything in the environment
        #[arg(short, long, value_name = "APP")]
        app: Option<String>,
        /// Show what would go
        #[arg(long)]
        dry_run: bool,
        /// A whole environment: leave what is protected and take the rest down
        #[arg(long, conflicts_with = "app")]
        keep_protected: bool,
    },
    /// Show how things stand, or how one deployment stands
    #[command(after_help = "Examples:\n  conductor status\n  conductor status dep_…")]
    Status {
        #[arg(value_name = "DEPLOYMENT")]
        deployment: Option<String>,
    },
    /// Show what the tools said during a deployment
    #[command(
        after_help = "Examples:\n  conductor logs dep_… -f\n  conductor logs dep_… --resource db --level warn --tail 50"
    )]
    Logs {
        #[arg(value_name = "DEPLOYMENT")]
        deployment: String,
        #[command(flatten)]
        flags: LogFlags,
    },
    /// Stop a deployment
    #[command(after_help = "Examples:\n  conductor cancel dep_…\n  conductor cancel dep_… --rollback")]
    Cancel {
        #[arg(value_name = "DEPLOYMENT")]
        deployment: String,
        /// Also take away what it made
        #[arg(long)]
        rollback: bool,
    },
    /// Try a failed or cancelled deployment again
    #[command(after_help = "Examples:\n  conductor retry dep_…")]
    Retry {
        #[arg(value_name = "DEPLOYMENT")]
        deployment: String,
        #[command(flatten)]
        wait: WaitFlags,
    },
    /// Show what an application's resources gave it
    #[command(
        after_help = "Examples:\n  conductor outputs hello --env dev\n  conductor outputs hello --env dev --reveal -o json"
    )]
    Outputs {
        #[arg(value_name = "APP")]
        app: String,
        #[arg(short, long, value_name = "ENV")]
        env: String,
        /// Also show sensitive values
        #[arg(long)]
        reveal: bool,
    },
    /// What exists, who uses it and why
    #[command(visible_alias = "res", subcommand)]
    Resources(ResourcesCommand),
    /// Deploy to one environment what runs in another
    #[command(after_help = "Examples:\n  conductor promote shop --from staging --to prod --dry-run")]
    Promote {
        #[arg(value_name = "APP")]
        app: String,
        #[arg(long, value_name = "ENV")]
        from: String,
        #[arg(long, value_name = "ENV")]
        to: String,
        /// Show what would be done, and what differs between the two
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        wait: WaitFlags,
    },
    /// The same for many resources: what it would do first, a few as a trial, then the rest
    #[command(subcommand)]
    Batch(BatchCommand),
    /// What waits for somebody's agreement
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Changes of resources, looked at before they are made
    #[command(subcommand)]
    Proposals(ProposalsCommand),
    /// What a resource was to be, and going back to it
    #[command(subcommand)]
    Revisions(RevisionsCommand),
    /// Whether things still are what is on record
    #[command(subcommand)]
    Drift(DriftCommand),
    /// Versions of terraform's state: look at them, compare them, go back to one
    #[command(subcommand)]
    States(StatesCommand),
    /// Deployments and other changes, newest first
    #[command(subcommand)]
    Deployments(DeploymentsCommand),
    /// Single steps of deployments
    #[command(visible_alias = "ops", subcommand)]
    Operations(OperationsCommand),
    /// Applications
    #[command(alias = "applications", subcommand)]
    Apps(NamedCommand),
    /// Environments
    #[command(alias = "environments", subcommand)]
    Envs(NamedCommand),
    /// Templates: how each type is made
    #[command(subcommand)]
    Templates(NamedCommand),
    /// Rules: which template serves which requirement
    #[command(subcommand)]
    Rules(NamedCommand),
    /// Pools: ready resources made ahead
    #[command(
        subcommand,
        after_help = "Pools are defined by documents of kind Pool and kept at their size while `up` or a server runs."
    )]
    Pools(PoolsCommand),
    /// Integrations: what operations reach things outside with
    #[command(subcommand)]
    Integrations(IntegrationsCommand),
    /// Workers and when they were last heard of
    #[command(subcommand)]
    Workers(NamedCommand),
    /// What happened, and who did it
    #[command(subcommand)]
    Events(RecordCommand),
    /// The trail of everything that was done: look, check that it is whole, export
    #[command(subcommand)]
    Audit(AuditCommand),
    /// What people should know of: failures, backlogs, dead workers, database errors, long runs
    #[command(
        subcommand,
        after_help = "Alerts are looked at while `up` or a server runs. Thresholds and the webhook are settings."
    )]
    Alerts(AlertsCommand),
    /// Tokens for people, scripts and workers
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Run server, worker and page in one process, on the embedded database
    #[command(
        after_help = "Examples:\n  conductor up\n  CONDUCTOR_LISTEN=0.0.0.0:7070 conductor up\n\nThe first start prints a token once. A first signal drains, a second ends at once."
    )]
    Up,
    /// Run the server alone; workers come over HTTP
    #[command(after_help = "Examples:\n  CONDUCTOR_DATABASE_URL=postgres://… conductor server --migrate")]
    Server {
        /// Bring the database's schema up to date first
        #[arg(long)]
        migrate: bool,
    },
    /// Run a worker; it needs only CONDUCTOR_URL and a worker's CONDUCTOR_TOKEN
    #[command(
        after_help = "Examples:\n  CONDUCTOR_URL=https://… CONDUCTOR_TOKEN=… conductor worker --name build-1\n  conductor worker --require-isolation files,ports,syscalls,processes,memory,pids"
    )]
    Worker(WorkerFlags),
    /// Bring the database's schema up to date
    #[command(after_help = "Examples:\n  CONDUCTOR_DATABASE_URL=postgres://… conductor migrate")]
    Migrate,
    /// Check that everything Conductor needs is in place
    #[command(after_help = "Examples:\n  conductor doctor")]
    Doctor,
    /// Print a completion script for a shell
    #[command(
        after_help = "Examples:\n  conductor completions bash > ~/.local/share/bash-completion/completions/conductor"
    )]
    Completions { shell: clap_complete::Shell },
    /// Print the version
    Version,
}

#[derive(Args, Clone, Debug)]
pub struct WorkerFlags {
    /// How the worker is shown [default: the machine's name]
    #[arg(long)]
    pub name: Option<String>,
    /// What is particular about this worker (again for several)
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// A network this worker reaches (again for several)
    #[arg(long = "network", value_name = "NAME")]
    pub networks: Vec<String>,
    /// Start programs in containers of this engine
    #[arg(long, value_name = "ENGINE", value_parser = ["podman", "docker"], requires = "container_image")]
    pub container: Option<String>,
    /// The image they are made of; it must be there already
    #[arg(long, value_name = "IMAGE", requires = "container")]
    pub container_image: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct ApplyFlags {
    /// A catalogue file, a folder with *.yaml files, or `-` for standard input (again for several)
    #[arg(short, long = "file", required = true, value_name = "FILE_OR_DIR")]
    pub files: Vec<PathBuf>,
    /// Show what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Also delete rules that the files no longer hold
    #[arg(long)]
    pub prune: bool,
}

#[derive(Args, Clone, Debug)]
pub struct PlanFlags {
    /// The Score file; `-` reads standard input
    #[arg(short, long, default_value = "score.yaml", value_name = "FILE")]
    pub file: PathBuf,
    /// Where to
    #[arg(short, long, value_name = "ENV")]
    pub env: String,
    /// The application's name [default: the Score file's metadata.name]
    #[arg(short, long, value_name = "APP")]
    pub app: Option<String>,
    /// The commit that this is
    #[arg(long, value_name = "SHA")]
    pub commit: Option<String>,
    /// The image that stands where the Score file says `.`
    #[arg(long, value_name = "REF")]
    pub image: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct WaitFlags {
    /// Return as soon as it is accepted
    #[arg(long)]
    pub no_wait: bool,
    /// Keep waiting while it waits for approval
    #[arg(long)]
    pub wait_approval: bool,
}

#[derive(Args, Clone, Debug)]
pub struct DeployFlags {
    #[command(flatten)]
    pub plan: PlanFlags,
    #[command(flatten)]
    pub wait: WaitFlags,
    /// How long it may run [default: the environment's limit, or 60m]
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_flags_work_before_and_after_the_command() {
        for line in ["conductor -o json status --quiet", "conductor status -o json -q"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.output.output, Format::Json);
            assert!(cli.output.quiet);
        }
    }

    #[test]
    fn every_command_has_a_summary() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands() {
                assert!(sub.get_about().is_some(), "{} has no summary", sub.get_name());
                check(sub);
            }
        }
        check(&Cli::command());
    }
}
