//! What `conductor-score` promises, from outside.

mod corpus;
mod files;
mod hostile;
mod manifest;
mod mistakes;
mod properties;
mod sharing;

use conductor_score::{Finding, Manifest, Options, parse};

/// The start of a file that is valid by itself: six lines.
const HEAD: &str = "\
apiVersion: score.dev/v1b1
metadata:
  name: web
containers:
  main:
    image: busybox
";

fn read(source: &str) -> Result<Manifest, Vec<Finding>> {
    parse(source, &Options::default())
}

#[track_caller]
fn valid(source: &str) -> Manifest {
    read(source).unwrap_or_else(|findings| panic!("{findings:#?}"))
}

#[track_caller]
fn invalid(source: &str) -> Vec<Finding> {
    read(source).expect_err("the file has a mistake")
}

/// The one finding of a file must stand at a place and say a word.
#[track_caller]
fn finds(source: &str, line: usize, column: usize, word: &str) {
    let findings = invalid(source);
    let [finding] = findings.as_slice() else {
        panic!("not one finding: {findings:#?}");
    };
    assert_eq!((finding.line, finding.column), (line, column), "{finding:?}");
    let said = format!("{} {}", finding.message, finding.suggestion.as_deref().unwrap_or_default());
    assert!(said.contains(word), "nothing says {word:?}: {finding:?}");
    assert!(finding.suggestion.is_some(), "no suggestion: {finding:?}");
}
