//! Catalogue files on this machine: found, read with their lines, checked for shape, and put in order.
//!
//! What a document means is the server's to say; here only its kind, its name and its keys are looked at, so
//! that a misspelling is shown on its line.

pub mod document;
mod pools;
mod shape;

use std::path::{Path, PathBuf};

use conductor_score::{Finding, limits};

pub use document::Document;

use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Screen, findings};

/// One document, and the file it stands in.
#[derive(Debug)]
pub struct Entry {
    pub file: PathBuf,
    pub document: Document,
}

impl Entry {
    pub fn text(&self, key: &str) -> &str {
        self.document.value.get(key).and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    /// The folder that paths in it are relative to.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new(""))
    }

    /// `FILE:LINE:COLUMN` of a path in the document, or of the nearest that is there.
    pub fn place(&self, path: &str) -> String {
        let (line, column) = self.document.place(path);
        format!("{}:{line}:{column}", self.file.display())
    }
}

/// Where a file is read from: `-` is what comes in by a pipe.
pub fn given(path: &Path) -> &Path {
    if path == Path::new("-") { Path::new("/dev/stdin") } else { path }
}

/// Every document below the given paths, in the order in which they are applied.
pub fn read(screen: &Screen, paths: &[PathBuf]) -> Outcome<Vec<Entry>> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, true, &mut files)
            .map_err(|error| Failure::failed(format!("{} cannot be read: {error}", path.display())))?;
    }
    files.dedup();
    let mut entries = Vec::new();
    let mut wrong = 0;
    for file in files {
        let source = std::fs::read_to_string(given(&file))
            .map_err(|error| Failure::failed(format!("{} cannot be read: {error}", file.display())))?;
        match read_source(&source) {
            Ok(documents) => {
                entries.extend(documents.into_iter().map(|document| Entry { file: file.clone(), document }));
            }
            Err(mistakes) => {
                wrong += mistakes.len();
                findings::show(screen, &file, &source, &mistakes);
            }
        }
    }
    if wrong > 0 {
        let found = crate::output::count(wrong, "mistake");
        return Err(Failure::failed(format!("{found} in the catalogue; nothing was applied")));
    }
    if entries.is_empty() {
        let places: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(
            Exit::Failed,
            format!("there is no catalogue document in {}", places.join(", ")),
        )
        .hint("documents are in *.yaml files, each with `kind` and `name`"));
    }
    entries.sort_by_key(|entry| shape::rank(entry.text("kind")));
    Ok(entries)
}

/// A file as it is, or every YAML file below a folder, sorted. What begins with a dot is left out.
fn collect(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        let is_yaml = path.extension().is_some_and(|ending| ending == "yaml" || ending == "yml");
        if named || is_yaml {
            files.push(path.to_owned());
        }
        return if named { std::fs::metadata(given(path)).map(drop) } else { Ok(()) };
    }
    let mut children = std::fs::read_dir(path)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    children.sort();
    for child in children {
        let hidden = child.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        // A linked folder may lead back up.
        let leads_away = child.is_symlink() && child.is_dir();
        if !hidden && !leads_away {
            collect(&child, false, files)?;
        }
    }
    Ok(())
}

fn read_source(source: &str) -> Result<Vec<Document>, Vec<Finding>> {
    if source.len() > limits::SOURCE_BYTES {
        return Err(vec![document::finding(1, 1, "", "the file is larger than 10 MB", "split it")]);
    }
    let documents = document::read(source).map_err(|finding| vec![finding])?;
    let documents: Vec<Document> = documents.into_iter().flat_map(pools::expanded).collect();
    let mut mistakes: Vec<Finding> = documents.iter().flat_map(shape::check).collect();
    mistakes.truncate(limits::FINDINGS);
    if mistakes.is_empty() { Ok(documents) } else { Err(mistakes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(source: &str) -> Vec<(usize, String, String)> {
        let found = read_source(source).unwrap_err();
        found.into_iter().map(|f| (f.line, f.message, f.suggestion.unwrap_or_default())).collect()
    }

    #[test]
    fn an_unknown_kind_or_key_is_shown_on_its_line_with_what_may_be_meant() {
        let found = mistakes("kind: Templat\nname: x\n");
        assert_eq!(
            found[0],
            (1, "`Templat` is not a kind of document".into(), "did you mean `Template`?".into())
        );
        let found = mistakes(
            "kind: Environment\nname: dev\n---\nkind: Rule\nname: r\ntemplat: x\nmatch: {type: y}\n",
        );
        assert_eq!(found[0].0, 6);
        assert_eq!(found[0].2, "did you mean `template`?");
        assert_eq!(found[1], (4, "this Rule has no `template`".into(), "add `template:`".into()));
    }

    #[test]
    fn names_are_needed_and_are_texts() {
        assert_eq!(mistakes("kind: Environment\n")[0].1, "this Environment has no `name`");
        assert_eq!(mistakes("kind: Environment\nname: 7\n")[0].1, "`name` must be a text");
        assert_eq!(mistakes("- a\n")[0].1, "a document must be a map with `kind` and `name`");
        assert_eq!(mistakes("name: dev\n")[0].1, "this document has no `kind`");
    }

    #[test]
    fn empty_documents_and_comments_are_left_out() {
        let read = read_source("# nothing\n---\n---\nkind: Environment\nname: dev\n---\n").unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].place("name"), (5, 1));
        assert_eq!(read[0].place("nowhere"), (4, 1));
    }

    #[test]
    fn environments_come_before_templates_and_these_before_rules() {
        let kinds = ["Pool", "Rule", "Template", "Integration", "Application", "Environment", "Organisation"];
        let mut ordered = kinds.to_vec();
        ordered.sort_by_key(|kind| shape::rank(kind));
        assert_eq!(ordered, kinds.iter().rev().copied().collect::<Vec<_>>());
    }

    #[test]
    fn a_folder_is_read_with_all_below_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("deep/.git")).unwrap();
        for name in ["b.yaml", "deep/a.yml", "deep/.git/c.yaml", "main.tf"] {
            std::fs::write(path(name), "kind: Environment\nname: dev\n").unwrap();
        }
        let mut files = Vec::new();
        collect(folder.path(), true, &mut files).unwrap();
        assert_eq!(files, [path("b.yaml"), path("deep/a.yml")]);
        assert!(collect(&path("nowhere"), true, &mut files).is_err());
    }
}
