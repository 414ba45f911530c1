//! `validate`: Score files on this machine, without any engine.

use std::path::{Path, PathBuf};

use conductor_score::{Finding, Options, limits, parse, render_findings};
use serde::Serialize;

use crate::{
    catalogue,
    failure::{Exit, Failure, Outcome},
    output::{Screen, count, findings},
};

#[derive(Serialize)]
struct Verdict {
    file: String,
    valid: bool,
    findings: Vec<Finding>,
    #[serde(skip)]
    source: String,
}

pub fn validate(screen: &Screen, files: &[PathBuf], strict: bool) -> Outcome {
    let verdicts: Vec<Verdict> = files.iter().map(|file| judge(file, strict)).collect();
    screen.document(&verdicts, || {
        let texts = verdicts.iter().map(|verdict| match verdict.valid {
            true if screen.quiet => String::new(),
            true => format!("{}: valid\n", verdict.file),
            false => render_findings(&verdict.findings, &verdict.file, &verdict.source, screen.color),
        });
        texts.collect()
    });
    let wrong = verdicts.iter().filter(|verdict| !verdict.valid).count();
    if wrong == 0 {
        return Ok(());
    }
    if files.len() > 1 {
        screen.note(&format!("{} of {} not valid", wrong, count(files.len(), "file")));
    }
    Err(Failure::silent(Exit::Failed))
}

fn judge(file: &Path, strict: bool) -> Verdict {
    let name = file.display().to_string();
    match read(file) {
        Err(message) => {
            let finding =
                Finding { line: 1, column: 1, path: String::new(), message, suggestion: None, length: 1 };
            Verdict { file: name, valid: false, findings: vec![finding], source: String::new() }
        }
        Ok(source) => {
            let findings = parse(&source, &Options { strict }).err().unwrap_or_default();
            Verdict { file: name, valid: findings.is_empty(), findings, source }
        }
    }
}

/// The text of a Score file. One byte more than allowed is enough to know that it is too large.
fn read(file: &Path) -> Result<String, String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(catalogue::given(file))
        .and_then(|open| open.take(limits::SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot be read: {error}"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // A character cut in two by the limit above.
        Err(error) if error.as_bytes().len() > limits::SOURCE_BYTES => {
            Ok(String::from_utf8_lossy(error.as_bytes()).into_owned())
        }
        Err(_) => Err("is not text: a Score file is YAML in UTF-8".into()),
    }
}

/// The text of a Score file that can be sent; mistakes are shown with their lines.
pub fn read_valid(screen: &Screen, file: &Path) -> Outcome<String> {
    let source = read(file).map_err(|message| {
        let failure = Failure::failed(format!("{} {message}", file.display()));
        if file.exists() {
            failure
        } else {
            failure.hint("name the Score file with -f, or write one with `conductor init`")
        }
    })?;
    match parse(&source, &Options::default()) {
        Ok(_) => Ok(source),
        Err(mistakes) => {
            findings::show(screen, file, &source, &mistakes);
            let found = count(mistakes.len(), "mistake");
            Err(Failure::failed(format!("{found} in {}; nothing was sent", file.display())))
        }
    }
}
