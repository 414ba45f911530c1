//! Verdicts on real public files, where a folder with them lies beside the workspace.

use std::path::Path;

use conductor_score::{Options, parse};

#[test]
fn every_verdict_on_real_files_agrees() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/score-corpus");
    let Ok(manifest) = std::fs::read_to_string(folder.join("MANIFEST.tsv")) else {
        return;
    };
    let mut lines = manifest.lines();
    let head: Vec<&str> = lines.next().expect("a head line").split('\t').collect();
    let column = |name| head.iter().position(|column| *column == name).expect(name);
    let (file, verdict) = (column("file"), column("valid"));
    let mut wrong = Vec::new();
    for line in lines {
        let row: Vec<&str> = line.split('\t').collect();
        let source = std::fs::read_to_string(folder.join(row[file])).expect(row[file]);
        for strict in [true, false] {
            let got = parse(&source, &Options { strict });
            if got.is_ok() != (row[verdict] == "valid") {
                wrong.push(format!("{} (strict: {strict}): {:#?}", row[file], got.err()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
