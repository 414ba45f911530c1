//! What Conductor knows, without what it runs on: no IO, no clock, no database. Ordered maps only.

pub mod approval;
pub mod catalogue;
pub mod condition;
pub mod expr;
pub mod ids;
pub mod lifecycle;
pub mod mask;
pub mod needs;
pub mod plan;
pub mod schema;
pub mod sharing;
pub mod state_backend;
pub mod state_file;
pub mod work;
pub mod workload;

pub use conductor_score as score;
pub use semver;

/// The closest of some names to a misspelt one, if any is close enough to be meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().min(name.len()) / 4)
        .min()
        .map(|(_, candidate)| candidate)
}
