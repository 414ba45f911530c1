//! Files made to hurt: refused soon, with a message, and never by falling over.

use std::time::{Duration, Instant};

use conductor_score::{Options, parse, render_findings};

use crate::HEAD;

const PARAMS: &str = "resources:\n  db:\n    type: pg\n    params: ";

/// Refused within a second, even in a debug build on a busy machine.
#[track_caller]
fn refused(source: &str, word: &str) {
    refused_within(Duration::from_secs(1), source, word);
}

#[track_caller]
fn refused_within(limit: Duration, source: &str, word: &str) {
    let start = Instant::now();
    let findings = parse(source, &Options::default()).expect_err("a hostile file");
    let shown = render_findings(&findings, "score.yaml", source, true);
    let took = start.elapsed();
    assert!(took < limit, "took {took:?}");
    assert!(shown.contains(word), "nothing says {word:?}: {shown}");
    assert!(shown.len() <= 10_000, "{} bytes", shown.len());
}

#[test]
fn a_large_file_is_not_read() {
    refused(&format!("{HEAD}{PARAMS}\n      v: '{}'\n", "x".repeat(12_000_000)), "10 MB");
}

#[test]
fn deep_nesting() {
    for (open, close) in [("{a: ", "}"), ("[", "]")] {
        let nested =
            |depth| format!("{HEAD}{PARAMS}{{ v: {}1{} }}\n", open.repeat(depth), close.repeat(depth));
        refused(&nested(5_000), "1,000");
        refused(&nested(100_000), "1,000");
        refused(&nested(997), "1,000");
        assert!(parse(&nested(996), &Options::default()).is_ok());
    }
    refused(&"[".repeat(5_000_000), "1,000");
    refused(&"- ".repeat(5_000), "1,000");
    let block: String = (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    refused(&block, "1,000");
}

#[test]
fn aliases_that_multiply() {
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (name, next) in ('a'..='l').zip('b'..='m') {
        let uses = vec![format!("*{name}"); 9].join(",");
        bomb += &format!("{next}: &{next} [{uses}]\n");
    }
    refused(&format!("{bomb}{HEAD}"), "alias");
    let long = format!(
        "{HEAD}{PARAMS}\n      a: &a '{}'\n      b: [{}]\n",
        "x".repeat(1_000_000),
        vec!["*a"; 1_000].join(",")
    );
    refused(&long, "alias");
    refused(&format!("{HEAD}{PARAMS}&a {{ b: *a }}\n"), "alias");
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(600), "]".repeat(600));
    let deep = format!("a: &a {}\nb: {}\n", nested("x"), nested("*a"));
    refused(&format!("{deep}{HEAD}"), "1,000");
}

#[test]
fn merges_that_multiply() {
    let keys: String = (0..1_000).map(|n| format!("k{n}: 1, ")).collect();
    let mut bomb = format!("base: &base {{ {keys} }}\nall:\n");
    bomb += &"  - { <<: *base }\n".repeat(5_000);
    refused(&format!("{bomb}{HEAD}"), "alias");
}

#[test]
fn too_many_of_anything() {
    let resources: String = (0..100_000).map(|n| format!("  r{n}:\n    type: x1\n")).collect();
    refused(&format!("{HEAD}resources:\n{resources}"), "10,000");
    // What is not refused by its shape has to be read until it is too much.
    let slow = Duration::from_secs(4);
    let values = format!("{HEAD}unknown: [{}]\n", "1,".repeat(4_000_000));
    refused_within(slow, &values, "500,000");
    let keys: String = (0..100_000).map(|n| format!("k{n}: 1\n")).collect();
    refused_within(slow, &format!("{HEAD}{keys}"), "k0");
    let same = "a: 1\n".repeat(200_000);
    refused_within(slow, &format!("{HEAD}{same}"), "already");
}

#[test]
fn ten_thousand_resources_are_read() {
    let resource =
        |n: usize| format!("  r{n}:\n    type: x1\n    params: {{ v: '${{resources.r{}.v}}' }}\n", n + 1);
    let resources: String = (0..9_999).map(resource).collect();
    let source = format!("{HEAD}resources:\n{resources}  r9999:\n    type: x1\n");
    assert_eq!(parse(&source, &Options::default()).map(|file| file.resources.len()), Ok(10_000));
    let closed = format!("{source}    params: {{ v: '${{resources.r0.v}}' }}\n");
    refused(&closed, "→");
    let wrong = source.replace(".v}", ".v}${resources.nowhere.x}");
    refused(&wrong, "nowhere");
}

#[test]
fn dollars_without_end() {
    for dollars in ["${", "$${", "$", "$$$", "${}"] {
        let value = dollars.repeat(2_000_000 / dollars.len());
        let start = Instant::now();
        let _ = parse(&format!("{HEAD}    variables:\n      A: '{value}'\n"), &Options::default());
        let took = start.elapsed();
        assert!(took < Duration::from_secs(2), "{dollars}: {took:?}");
    }
}

#[test]
fn what_is_not_text() {
    refused("\0\u{1}\u{2}", "YAML");
    refused(&format!("{HEAD}    variables:\n      A: \u{7}\n"), "YAML");
    refused(&format!("{HEAD}    variables:\n      A: \"\\0\"\n"), "NUL");
    refused(&format!("{HEAD}    variables:\n      A: \"\\ud800\"\n"), "YAML");
    let marked = format!("\u{feff}{HEAD}");
    assert!(parse(&marked, &Options::default()).is_ok());
}

#[test]
fn only_the_first_document_is_judged() {
    assert!(parse(&format!("{HEAD}---\nnot: score\n"), &Options::default()).is_ok());
    assert!(parse(&format!("{HEAD}---\n@\n"), &Options::default()).is_ok());
    refused(&format!("not: score\n---\n{HEAD}"), "not");
    refused(&format!("{HEAD}]\n"), "YAML");
}
