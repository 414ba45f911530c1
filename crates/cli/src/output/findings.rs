//! Mistakes in a file that was sent, shown with the line they stand on.

use std::path::Path;

use conductor_api::types::ProblemItem;
use conductor_score::{Finding, render_findings};

use super::{Screen, complain};
use crate::failure::Failure;

/// The findings of one file on stderr, each with its source line.
pub fn show(screen: &Screen, file: &Path, source: &str, findings: &[Finding]) {
    let text = render_findings(findings, &file.display().to_string(), source, screen.color_stderr);
    complain(text.trim_end());
}

/// Shows those of a refusal's items that have a place in the file, and keeps the rest in the failure.
pub fn locate(screen: &Screen, file: &Path, source: &str, mut failure: Failure) -> Failure {
    let (placed, rest): (Vec<ProblemItem>, Vec<ProblemItem>) =
        failure.items.into_iter().partition(|item| item.line.is_some());
    let findings: Vec<Finding> = placed.into_iter().map(|item| finding(item, source)).collect();
    if !findings.is_empty() {
        show(screen, file, source, &findings);
        if rest.is_empty() && findings.iter().any(|finding| failure.message.contains(&finding.message)) {
            failure.message = match findings.len() {
                1 => format!("{} was refused", file.display()),
                many => format!("{} was refused for {many} reasons", file.display()),
            };
        }
    }
    failure.items = rest;
    failure
}

fn finding(item: ProblemItem, source: &str) -> Finding {
    let line = item.line.unwrap_or(1);
    let column = item.column.unwrap_or(1);
    // The server tells where a thing begins: underline the word there.
    let word = source.lines().nth(line.saturating_sub(1)).map_or(1, |text| {
        let rest = text.chars().skip(column.saturating_sub(1));
        rest.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')).count().max(1)
    });
    Finding {
        line,
        column,
        path: item.path,
        message: item.message,
        suggestion: item.suggestion,
        length: word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_place_is_underlined() {
        let item = ProblemItem {
            message: "no template makes type `thnig`".into(),
            suggestion: Some("did you mean `thing`?".into()),
            line: Some(2),
            column: Some(3),
            ..ProblemItem::default()
        };
        let source = "resources:\n  db: x\n";
        let text = finding(item, source).render("score.yaml", source, false);
        assert_eq!(
            text,
            "score.yaml:2:3: no template makes type `thnig`\n 2 |   db: x\n   |   ^^\nhelp: did you mean `thing`?\n"
        );
    }
}
