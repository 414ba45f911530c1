//! The commands that look at objects: lists and single ones.

use clap::{Args, Subcommand};
use conductor_api::client::ListFilter;

use super::{AdoptFlags, CreateFlags, FactFlags, OneFlags, RegisterFlags};

/// What a list is narrowed to, the same for every list.
#[derive(Args, Clone, Debug, Default)]
pub struct ListFlags {
    #[arg(short, long, value_name = "ENV")]
    pub env: Option<String>,
    #[arg(short, long, value_name = "APP")]
    pub app: Option<String>,
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    #[arg(long)]
    pub class: Option<String>,
    #[arg(long)]
    pub phase: Option<String>,
    #[arg(long)]
    pub status: Option<String>,
    #[arg(long)]
    pub template: Option<String>,
    #[arg(long, value_name = "DEPLOYMENT")]
    pub deployment: Option<String>,
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<String>,
    #[arg(long)]
    pub owner: Option<String>,
    #[arg(long)]
    pub team: Option<String>,
    /// (again for several)
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Only resources that this application uses
    #[arg(long, value_name = "APP")]
    pub consumer: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

impl ListFlags {
    pub fn filter(&self) -> ListFilter {
        ListFilter {
            environment: self.env.clone(),
            application: self.app.clone(),
            kind: self.kind.clone(),
            class: self.class.clone(),
            phase: self.phase.clone(),
            status: self.status.clone(),
            template: self.template.clone(),
            deployment: self.deployment.clone(),
            resource: self.resource.clone(),
            owner: self.owner.clone(),
            team: self.team.clone(),
            labels: (!self.labels.is_empty()).then(|| self.labels.join(",")),
            // What is left out here cannot be limited there.
            limit: self.limit.filter(|_| self.consumer.is_none()),
            cursor: None,
        }
    }
}

#[derive(Args, Clone, Debug, Default)]
pub struct LogFlags {
    /// Go on until the deployment is over
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last N lines
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Only lines younger than this, as in 10m
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
    /// Only lines this serious, or more
    #[arg(long, value_parser = ["debug", "info", "warn", "error"])]
    pub level: Option<String>,
    /// Only this operation's lines
    #[arg(long, value_name = "OPERATION")]
    pub operation: Option<String>,
    /// Only this resource's lines, by id or name
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ResourcesCommand {
    /// List resources
    #[command(
        after_help = "Examples:\n  conductor resources list --env dev --type postgres\n  conductor resources list --phase Failed -o json"
    )]
    List(Box<ListFlags>),
    /// Show one resource
    Get {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
    /// Show who uses a resource
    Consumers {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
    /// Tell the life of a resource: why it exists, what keeps it, what happened to it
    Why {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
    /// Make a resource from a template
    #[command(
        after_help = "Examples:\n  conductor resources create --template vpc --name main --env dev --set cidr=10.0.0.0/16"
    )]
    Create(Box<CreateFlags>),
    /// Make known something that Conductor does not manage
    #[command(
        after_help = "Examples:\n  conductor resources register --type postgres --name legacy --env dev \\\n    --external-id db-7 --output host=db.internal --secret password=…"
    )]
    Register(Box<RegisterFlags>),
    /// Change what is said of a resource: owner, team, labels, tags, description
    Describe {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
        #[command(flatten)]
        facts: Box<FactFlags>,
    },
    /// Take a resource away; whatever needs it is in the way
    Destroy(OneFlags),
    /// Make a destroyed or rejected resource again
    Recreate(OneFlags),
    /// Try its last step again that failed
    Retry(OneFlags),
    /// Do one of the things its `availableActions` name
    #[command(
        after_help = "Examples:\n  conductor resources act orders retry\n  conductor resources act orders destroy --dry-run"
    )]
    Act {
        #[command(flatten)]
        one: OneFlags,
        #[arg(value_name = "ACTION")]
        action: String,
    },
    /// Take over what was found to differ as what is to be, as `drift adopt` does
    Adopt(AdoptFlags),
    /// Forget a destroyed resource; the audit trail stays
    Delete {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
    /// Keep a resource from being destroyed
    Protect {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
    /// Let a resource be destroyed again
    Unprotect {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
    /// Keep a resource that waits for its time to be destroyed
    Undelete {
        #[arg(value_name = "ID_OR_NAME")]
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum StatesCommand {
    /// List the versions of a resource's state, newest first
    List {
        #[arg(value_name = "RESOURCE")]
        resource: String,
    },
    /// Print a version as terraform wrote it, with the secrets in it; takes the role admin
    #[command(
        after_help = "Examples:\n  conductor states get bucket > bucket.tfstate\n  conductor states get bucket 3"
    )]
    Get {
        #[arg(value_name = "RESOURCE")]
        resource: String,
        /// Which one [default: the newest]
        #[arg(value_name = "NUMBER")]
        number: Option<i64>,
    },
    /// Show what differs between two versions; sensitive values are masked
    #[command(after_help = "Examples:\n  conductor states diff bucket 1 2")]
    Diff {
        #[arg(value_name = "RESOURCE")]
        resource: String,
        #[arg(value_name = "FROM")]
        from: i64,
        #[arg(value_name = "TO")]
        to: i64,
    },
    /// Go back to an old version: its content becomes a new version; takes the role admin
    #[command(after_help = "Examples:\n  conductor states rollback bucket 3")]
    Rollback {
        #[arg(value_name = "RESOURCE")]
        resource: String,
        #[arg(value_name = "NUMBER")]
        number: i64,
    },
    /// Take the lock of a state away from whoever holds it; takes the role admin
    Unlock {
        #[arg(value_name = "RESOURCE")]
        resource: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum PoolsCommand {
    /// List pools
    List(Box<ListFlags>),
    /// Show how the members of one stand
    Get { name: String },
    /// Give a pool up: ready members are destroyed, claimed ones stay with those who have them
    Delete { name: String },
}

#[derive(Debug, Subcommand)]
pub enum AlertsCommand {
    /// List alerts and how they stand
    List(Box<ListFlags>),
    /// Tell nobody of an alert for a while
    #[command(
        after_help = "Examples:\n  conductor alerts silence dead-worker --for 2h\n  conductor alerts silence dead-worker --off"
    )]
    Silence {
        name: String,
        /// For how long
        #[arg(long = "for", value_name = "DURATION", required_unless_present = "off")]
        length: Option<String>,
        /// End a silence
        #[arg(long, conflicts_with = "length")]
        off: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum IntegrationsCommand {
    /// List integrations, without their values
    List(Box<ListFlags>),
    /// Show one, without its values
    Get {
        name: String,
        /// The environment's own, where there are several of the name
        #[arg(short, long, value_name = "ENV")]
        env: Option<String>,
    },
    /// Have a worker try one with the command it names
    #[command(
        after_help = "Examples:\n  conductor integrations test aws\n  conductor integrations test aws --env prod"
    )]
    Test {
        name: String,
        #[arg(short, long, value_name = "ENV")]
        env: Option<String>,
    },
    /// Take one away; operations that need it fail from then on
    Delete {
        name: String,
        #[arg(short, long, value_name = "ENV")]
        env: Option<String>,
    },
}

/// Objects known by their id.
#[derive(Debug, Subcommand)]
pub enum RecordCommand {
    /// List them
    List(Box<ListFlags>),
    /// Show one
    Get { id: String },
}

/// Objects known by their name.
#[derive(Debug, Subcommand)]
pub enum NamedCommand {
    /// List them
    List(Box<ListFlags>),
    /// Show one, by name or id
    Get { name: String },
}

#[derive(Debug, Subcommand)]
pub enum OperationsCommand {
    /// List operations
    #[command(
        after_help = "Examples:\n  conductor operations list --deployment dep_…\n  conductor operations list --status in_progress"
    )]
    List(Box<ListFlags>),
    /// Show one operation
    Get { id: String },
    /// Show what its tool said
    Logs {
        id: String,
        #[command(flatten)]
        flags: LogFlags,
    },
    /// Stop what the operation belongs to
    Cancel { id: String },
    /// Try what the operation belongs to again
    Retry { id: String },
}

#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Make a token; it is shown once
    #[command(
        after_help = "Examples:\n  conductor tokens create --role worker --name build-1\n  conductor tokens create --role write --name ci --env dev --app web"
    )]
    Create {
        #[command(flatten)]
        grant: GrantFlags,
        /// Whose it is: this name stands next to everything done with it
        #[arg(long)]
        name: String,
    },
    /// List tokens and what they may do, without the tokens themselves
    List,
    /// Give a role, instead of the one held in the same place before
    #[command(
        after_help = "Examples:\n  conductor tokens grant ci --role read\n  conductor tokens grant ci --role write --env dev"
    )]
    Grant {
        #[arg(value_name = "NAME_OR_ID")]
        holder: String,
        #[command(flatten)]
        grant: GrantFlags,
    },
    /// Take away what is held in exactly this place
    #[command(
        after_help = "Examples:\n  conductor tokens ungrant ci --env dev\n  conductor tokens ungrant ci  (what it holds on the organisation)"
    )]
    Ungrant {
        #[arg(value_name = "NAME_OR_ID")]
        holder: String,
        #[arg(short, long, value_name = "ENV")]
        env: Option<String>,
        #[arg(short, long, value_name = "APP")]
        app: Option<String>,
    },
    /// Make a token useless
    Revoke {
        #[arg(value_name = "NAME_OR_ID")]
        id: String,
    },
}

/// A role, on the organisation or within it.
#[derive(Args, Clone, Debug)]
pub struct GrantFlags {
    /// What it may do
    #[arg(long, value_parser = ["owner", "admin", "write", "read", "worker"])]
    pub role: String,
    /// Only in this environment
    #[arg(short, long, value_name = "ENV")]
    pub env: Option<String>,
    /// Only for this application
    #[arg(short, long, value_name = "APP")]
    pub app: Option<String>,
}
