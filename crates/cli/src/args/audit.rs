//! The audit trail on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what happened, newest first
    #[command(
        after_help = "Examples:\n  conductor audit list --actor ci --since 24h\n  conductor audit list --resource res_… -o json"
    )]
    List {
        #[command(flatten)]
        filter: AuditFlags,
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
    },
    /// Check that nothing was changed, put in or taken out; exits 1 when something was
    #[command(
        after_help = "Examples:\n  conductor audit verify\n  conductor audit verify --file trail.jsonl"
    )]
    Verify {
        /// Check an export instead of what the database holds
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print the trail from its beginning, one entry per line, for keeping elsewhere
    #[command(
        after_help = "Examples:\n  conductor audit export > trail.jsonl\n  conductor audit export --since 30d --format json"
    )]
    Export {
        #[command(flatten)]
        filter: AuditFlags,
        /// One JSON document per line, or one array
        #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl, value_name = "FORMAT")]
        format: ExportFormat,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    Jsonl,
    Json,
}

#[derive(Args, Clone, Debug, Default)]
pub struct AuditFlags {
    /// Only what was done by this one
    #[arg(long, value_name = "NAME")]
    pub actor: Option<String>,
    /// Only events of this kind, as in token.granted
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    #[arg(long, value_name = "DEPLOYMENT")]
    pub deployment: Option<String>,
    #[arg(long, value_name = "RESOURCE")]
    pub resource: Option<String>,
    /// Only what is younger than this, as in 24h
    #[arg(long, value_name = "DURATION")]
    pub since: Option<String>,
}
