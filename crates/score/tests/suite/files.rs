//! Walks the files below `tests/files`.
//!
//! An invalid one says in its first line what must be found: `# LINE:COLUMN WORD`. A file whose
//! name begins with `strict-` is read in strict mode.

use std::path::{Path, PathBuf};

use conductor_score::{Options, parse};

fn files(folder: &str) -> Vec<(PathBuf, String, Options)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| {
            let path = entry.expect("a readable entry").path();
            let source = std::fs::read_to_string(&path).expect("a readable file");
            let name = path.file_name().expect("a name").to_string_lossy();
            let strict = name.starts_with("strict-");
            (path, source, Options { strict })
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

#[test]
fn valid_files_are_read() {
    let files = files("valid");
    assert!(files.len() >= 12, "only {} files", files.len());
    for (path, source, options) in files {
        if let Err(findings) = parse(&source, &options) {
            panic!("{}: {findings:#?}", path.display());
        }
    }
}

#[test]
fn invalid_files_are_explained() {
    let files = files("invalid");
    assert!(files.len() >= 20, "only {} files", files.len());
    let mut wrong = Vec::new();
    for (path, source, options) in files {
        let file = path.display();
        let expected = source.lines().next().and_then(|line| line.strip_prefix("# "));
        let (place, word) = expected.and_then(|line| line.split_once(' ')).expect("# LINE:COLUMN WORD");
        let findings = parse(&source, &options).expect_err(&file.to_string());
        let found = findings.iter().any(|finding| {
            let said = format!("{} {:?}", finding.message, finding.suggestion);
            format!("{}:{}", finding.line, finding.column) == place && said.contains(word)
        });
        if !found {
            wrong.push(format!("{file}: nothing at {place} says {word:?}: {findings:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
