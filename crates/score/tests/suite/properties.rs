//! What holds for any input.

use conductor_score::placeholder::{Part, Target, has_placeholder, parse_text, print};
use conductor_score::{Options, parse, render_findings};
use proptest::prelude::*;

use crate::HEAD;

fn segment() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_.-]{1,8}"
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![
        prop::collection::vec(segment(), 1..4).prop_map(Target::Metadata),
        (segment(), prop::collection::vec(segment(), 0..4))
            .prop_map(|(name, path)| Target::Resource { name, path }),
    ]
}

/// Parts as reading gives them: no empty text, and none beside another.
fn parts() -> impl Strategy<Value = Vec<Part>> {
    let part = prop_oneof![
        r"([a$}\\. ü]|\$\{[a$. ]{0,3}\}){1,6}".prop_map(Part::Text),
        target().prop_map(Part::Ref),
    ];
    prop::collection::vec(part, 0..6).prop_map(|mut parts| {
        parts.dedup_by(|a, b| matches!((a, b), (Part::Text(_), Part::Text(_))));
        parts
    })
}

/// Something that looks like a Score file more often than chance would.
fn scorish() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("resources"),
        Just("containers"),
        Just("metadata"),
        Just("params"),
        Just("type"),
        Just("dependsOn"),
        Just("sharing"),
        Just("conductor"),
        Just("files"),
        Just("before"),
        Just("<<"),
        Just("*a"),
        Just("&a"),
        Just("!!str"),
        Just("${resources.a.b}"),
        Just("~"),
        Just("{"),
        Just("}"),
        Just("["),
        Just("]"),
        Just("- "),
        Just(": "),
        Just("\n"),
        Just("  "),
        Just("\""),
        Just("|\n"),
        Just(","),
        Just("---\n"),
        Just("ü\u{202e}"),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn printed_parts_read_back(parts in parts()) {
        let text = print(&parts);
        prop_assert_eq!(parse_text(&text, |_| false), Ok(parts.clone()));
        let refers = parts.iter().any(|part| matches!(part, Part::Ref(_)));
        prop_assert_eq!(has_placeholder(&text), refers);
    }

    #[test]
    fn what_was_read_prints_and_reads_back(text in r"([${}.\\a-c ü]|\$\{resources\.a\}){0,20}") {
        if let Ok(parts) = parse_text(&text, |first| first == "a") {
            prop_assert_eq!(parse_text(&print(&parts), |_| false), Ok(parts));
        }
    }

    #[test]
    fn parsing_never_panics(source in any::<String>(), strict: bool) {
        check(&source, strict)?;
    }

    #[test]
    fn parsing_something_like_score_never_panics(tail in scorish(), strict: bool) {
        check(&format!("{HEAD}{tail}"), strict)?;
        check(&tail, strict)?;
    }
}

/// Whatever is found has a place, and can be shown.
fn check(source: &str, strict: bool) -> Result<(), TestCaseError> {
    if let Err(findings) = parse(source, &Options { strict }) {
        prop_assert!(!findings.is_empty());
        prop_assert!(findings.iter().all(|finding| finding.line > 0 && finding.column > 0));
        prop_assert!(render_findings(&findings, "x", source, true).len() <= 10_000);
    }
    Ok(())
}
