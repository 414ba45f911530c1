//! What the documents tell people to type works, in an empty folder, with the built binary.
//!
//! Blocks marked `sh` in README.md and docs/*.md are run in order, one folder and one shell session's worth of files
//! per document; `no-run` after `sh` leaves a block out.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use conductor_tests::conductor;

fn documents() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut all = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            all.push(path);
        }
    }
    all[1..].sort();
    all
}

/// The blocks to run, each with the line it begins on.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize, bool, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let inner = line.trim_start();
        match &mut open {
            Some((fence, begin, run, body)) => {
                if inner.trim_end() == fence {
                    if *run {
                        found.push((*begin, std::mem::take(body)));
                    }
                    open = None;
                } else {
                    body.push_str(line);
                    body.push('\n');
                }
            }
            None if inner.starts_with("```") => {
                let info = inner.trim_start_matches('`');
                let fence = "`".repeat(inner.len() - info.len());
                let mut words = info.split_whitespace();
                let run = words.next() == Some("sh") && !words.any(|word| word == "no-run");
                open = Some((fence, number + 2, run, String::new()));
            }
            None => {}
        }
    }
    assert!(open.is_none(), "a block is never closed");
    found
}

fn run(document: &Path) {
    let text = fs::read_to_string(document).unwrap_or_else(|error| panic!("{}: {error}", document.display()));
    let folder = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(conductor(), programs.path().join("conductor")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    for (line, block) in blocks(&text) {
        let told = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &block])
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", format!("{}:{path}", programs.path().display()))
            .env("HOME", folder.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        assert!(
            told.status.success(),
            "{}:{line} does not work ({}):\n{block}\n{}{}",
            document.display(),
            told.status,
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr)
        );
    }
}

#[test]
fn every_command_of_the_documents_works() {
    for document in documents() {
        run(&document);
    }
}

#[test]
fn blocks_are_found_by_their_mark() {
    let text = "```sh\none\n```\n\n```sh no-run\ntwo\n```\n```console\n$ three\n```\n````sh\n```\nfour\n````\n  ```sh\n  five\n  ```\n";
    let found: Vec<(usize, String)> = blocks(text);
    assert_eq!(found, [(2, "one\n".into()), (12, "```\nfour\n".into()), (16, "  five\n".into())]);
}
