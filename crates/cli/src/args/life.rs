//! The commands about a resource's life: by hand, approvals, proposals, revisions, drift.

use clap::{Args, Subcommand};

use super::{ListFlags, WaitFlags};

#[derive(Args, Clone, Debug)]
pub struct CreateFlags {
    /// The template, and its version where it is not to be the newest
    #[arg(long, value_name = "NAME[@VERSION]")]
    pub template: String,
    #[arg(long)]
    pub name: String,
    #[arg(short, long, value_name = "ENV")]
    pub env: String,
    /// A parameter; values are read as JSON where they are (again for several)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// A resource it is a child of, by id or name (again for several)
    #[arg(long = "parent", value_name = "RESOURCE")]
    pub parents: Vec<String>,
    #[command(flatten)]
    pub facts: FactFlags,
    /// Show what would be made
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// What is said of a resource.
#[derive(Args, Clone, Debug, Default)]
pub struct FactFlags {
    /// (again for several)
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    pub tags: Vec<String>,
    /// (again for several)
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// (again for several)
    #[arg(long = "config", value_name = "KEY=VALUE")]
    pub configs: Vec<String>,
    /// Children get its tags and configs as well
    #[arg(long)]
    pub inherit: bool,
    #[arg(long)]
    pub description: Option<String>,
    #[arg(long)]
    pub owner: Option<String>,
    #[arg(long)]
    pub team: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub struct RegisterFlags {
    #[arg(long)]
    pub name: String,
    #[arg(short, long, value_name = "ENV")]
    pub env: String,
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: String,
    #[arg(long)]
    pub class: Option<String>,
    /// What it is called where it is
    #[arg(long, value_name = "ID")]
    pub external_id: Option<String>,
    /// What applications get of it (again for several)
    #[arg(long = "output", value_name = "KEY=VALUE")]
    pub outputs: Vec<String>,
    /// As --output, and secret
    #[arg(long = "secret", value_name = "KEY=VALUE")]
    pub secrets: Vec<String>,
    #[command(flatten)]
    pub facts: FactFlags,
}

#[derive(Args, Clone, Debug)]
pub struct OneFlags {
    #[arg(value_name = "ID_OR_NAME")]
    pub id: String,
    /// Show what would be done
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

/// What was found becomes what is to be.
#[derive(Args, Clone, Debug)]
pub struct AdoptFlags {
    #[arg(required = true, value_name = "RESOURCE")]
    pub resources: Vec<String>,
    /// Only this attribute (again for several)
    #[arg(long = "attribute", value_name = "PATH")]
    pub attributes: Vec<String>,
    /// Show what would be done
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub wait: WaitFlags,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List what waits for an answer
    List {
        /// Only what you may answer
        #[arg(long)]
        mine: bool,
        /// Also what is decided
        #[arg(long)]
        all: bool,
    },
    /// Show one: what is to be done, who asked, who answered
    Get { id: String },
    /// Agree
    #[command(after_help = "Examples:\n  conductor approvals approve apr_… --comment \"checked the plan\"")]
    Approve {
        id: String,
        #[arg(long)]
        comment: Option<String>,
    },
    /// Say no, and why
    #[command(
        after_help = "Examples:\n  conductor approvals reject apr_… --comment \"not before the release\""
    )]
    Reject {
        id: String,
        #[arg(long)]
        comment: String,
    },
}

#[derive(Args, Clone, Debug, Default)]
pub struct ProposeFlags {
    /// A parameter and its new value; `KEY=null` takes it away (again for several)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[arg(long, value_name = "VERSION")]
    pub template_version: Option<String>,
    /// What the resource is for
    #[arg(long)]
    pub description: Option<String>,
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Why it should change
    #[arg(long)]
    pub reason: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ProposalsCommand {
    /// List proposals, newest first
    List(Box<ListFlags>),
    /// Show one
    Get { id: String },
    /// Propose a change of a resource
    #[command(
        after_help = "Examples:\n  conductor proposals create orders-db --set size=large --reason \"more orders\""
    )]
    Create {
        #[arg(value_name = "RESOURCE")]
        resource: String,
        #[command(flatten)]
        flags: ProposeFlags,
    },
    /// Change a proposal before anybody has agreed to it
    Edit {
        id: String,
        #[command(flatten)]
        flags: ProposeFlags,
    },
    /// Show what merging it would do
    DryRun { id: String },
    /// Ask for agreement
    Submit {
        id: String,
        /// Merge it as soon as enough have agreed
        #[arg(long)]
        auto_merge: bool,
    },
    /// Make the change
    Merge {
        id: String,
        #[command(flatten)]
        wait: WaitFlags,
    },
    /// Drop it
    Discard { id: String },
}

#[derive(Debug, Subcommand)]
pub enum RevisionsCommand {
    /// List what a resource was to be, newest first
    List {
        #[arg(value_name = "RESOURCE")]
        resource: String,
    },
    /// Show what differs between two of them
    Diff {
        #[arg(value_name = "RESOURCE")]
        resource: String,
        #[arg(value_name = "FROM")]
        from: i64,
        #[arg(value_name = "TO")]
        to: i64,
    },
    /// Make it again what it was to be then
    Rollback {
        #[arg(value_name = "RESOURCE")]
        resource: String,
        #[arg(value_name = "TO")]
        to: i64,
        /// Show what would be done
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        wait: WaitFlags,
    },
}

#[derive(Debug, Subcommand)]
pub enum DriftCommand {
    /// Look whether things are what is on record, and tell what is not
    #[command(
        after_help = "Examples:\n  conductor drift check --env prod\n  conductor drift check --env prod --exit-code"
    )]
    Check {
        #[arg(short, long, value_name = "ENV")]
        env: Option<String>,
        #[arg(short, long, value_name = "APP")]
        app: Option<String>,
        /// Exit with 1 when something differs
        #[arg(long)]
        exit_code: bool,
        /// Tell what was found last time, without looking again
        #[arg(long)]
        last: bool,
    },
    /// Make resources again what is on record
    Repair {
        #[arg(required = true, value_name = "RESOURCE")]
        resources: Vec<String>,
        /// Show what would be done
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        wait: WaitFlags,
    },
    /// Take over what was found as what is to be
    Adopt(AdoptFlags),
    /// Let what was found be, until it is something else
    Ignore {
        #[arg(required = true, value_name = "RESOURCE")]
        resources: Vec<String>,
        /// Only this attribute (again for several)
        #[arg(long = "attribute", value_name = "PATH")]
        attributes: Vec<String>,
    },
}

/// Which resources, and how.
#[derive(Args, Clone, Debug)]
pub struct BatchFlags {
    #[command(flatten)]
    pub list: ListFlags,
    /// So many first, one after the other; the rest only if they went well
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub canary: usize,
    /// Show what would be done to which, and who uses them
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub enum BatchCommand {
    /// Destroy every resource that fits
    Destroy(Box<BatchFlags>),
    /// Try every resource again whose last step failed
    #[command(after_help = "Examples:\n  conductor batch retry --env dev --phase Failed")]
    Retry(Box<BatchFlags>),
    /// Have another version of a template make every resource that fits
    #[command(
        after_help = "Examples:\n  conductor batch upgrade --template orders-db --to 2.0.0 --dry-run\n  conductor batch upgrade --template orders-db --to 2.0.0 --env prod --canary 2"
    )]
    Upgrade {
        #[arg(long, value_name = "VERSION")]
        to: String,
        #[command(flatten)]
        flags: Box<BatchFlags>,
    },
}

#[derive(Debug, Subcommand)]
pub enum DeploymentsCommand {
    /// List them
    List(Box<ListFlags>),
    /// Show one
    Get { id: String },
    /// Deploy once more what an earlier deployment did
    Rollback {
        id: String,
        /// Show what would be done
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        wait: WaitFlags,
    },
}
