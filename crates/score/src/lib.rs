//! A strict parser for Score workload files (`score.dev/v1b1`) that knows where everything stands.
//!
//! [`parse`] turns the text of a file into a [`Manifest`], or into every mistake it holds, each
//! with its line, its column and what to write instead. The crate is pure: it reads no file,
//! resolves no placeholder and knows no catalogue.
//!
//! Invariants:
//! - a [`Manifest`] is complete and consistent: names follow their patterns, placeholders name
//!   declared resources, neither `before` nor the resources form a cycle;
//! - whatever the input, the answer comes in bounded time and memory (see [`limits`]).
//!
//! Deliberately not here: identity across files, defaults of templates, and the check that an
//! output exists. They need the catalogue.

mod container;
mod dialect;
mod finding;
mod graph;
mod manifest;
mod names;
mod object;
pub mod placeholder;
mod read;
mod references;
mod resource;
mod scalar;
mod sharing;
mod tree;
mod workload;

pub use finding::{Finding, render_findings};
pub use manifest::{
    ComputeResources, Container, ExecProbe, File, FileContent, HttpHeader, HttpProbe, Manifest, Metadata,
    Port, Position, Probe, Protocol, Quantities, Ready, Resource, Scheme, Volume,
};
pub use sharing::{
    DependencyKind, DependsOn, Matching, OnConflict, Reference, Relationship, Scope, Sharing, SharingPolicy,
    SharingWord,
};

/// What a file may hold before it is refused unread.
pub mod limits {
    /// Size of the source, in bytes.
    pub const SOURCE_BYTES: usize = 10_000_000;
    /// Entries of `resources`.
    pub const RESOURCES: usize = 10_000;
    /// Maps and lists inside each other; the root map is the first.
    pub const NESTING: usize = 1_000;
    /// Values of all kinds in one file.
    pub const VALUES: usize = 500_000;
    /// What aliases may add, as [`VALUE_WEIGHT`] bytes for each value and the length of its text.
    pub const ALIASED_BYTES: usize = 10_000_000;
    /// What one value weighs against [`ALIASED_BYTES`], besides its text.
    pub const VALUE_WEIGHT: usize = 64;
    /// How many findings are reported for one file.
    pub const FINDINGS: usize = 50;
}

/// How strictly to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Refuse the short spelling of the sharing dialect, which other Score tools do not know.
    pub strict: bool,
}

/// Reads one Score file.
///
/// # Errors
/// Every mistake found, at most [`limits::FINDINGS`], in the order of the file.
pub fn parse(source: &str, options: &Options) -> Result<Manifest, Vec<Finding>> {
    read::read(source, options)
}
