//! `init`: an example that deploys as it is.

use std::path::Path;

use crate::{
    failure::{Failure, Outcome},
    output::Screen,
};

const FILES: [(&str, &str); 3] = [
    ("score.yaml", include_str!("../../../examples/hello/score.yaml")),
    ("catalog/postgres.yaml", include_str!("../../../examples/hello/catalog/postgres.yaml")),
    ("catalog/environments.yaml", include_str!("../../../examples/hello/catalog/environments.yaml")),
];

pub fn init(screen: &Screen, folder: &Path) -> Outcome {
    let there: Vec<String> = FILES
        .iter()
        .map(|(name, _)| folder.join(name))
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if !there.is_empty() {
        let verb = if there.len() == 1 { "is" } else { "are" };
        return Err(Failure::failed(format!(
            "{} {verb} already there; nothing was written",
            there.join(", ")
        ))
        .hint("choose another folder: conductor init DIR"));
    }
    for (name, text) in FILES {
        write(&folder.join(name), text)?;
    }
    let shown = |name: &str| match folder == Path::new(".") {
        true => name.to_owned(),
        false => folder.join(name).display().to_string(),
    };
    let written: Vec<String> = FILES.iter().map(|(name, _)| shown(name)).collect();
    screen.document(&written, || {
        let mut out: String = written.iter().map(|name| format!("wrote {name}\n")).collect();
        if !screen.quiet {
            out.push_str("\nnext:\n");
            if folder != Path::new(".") {
                out.push_str(&format!("  cd {}\n", folder.display()));
            }
            out.push_str("  conductor apply -f catalog      how each type of resource is made\n");
            out.push_str("  conductor deploy --env dev      make what score.yaml asks for\n");
            out.push_str("  conductor outputs hello --env dev\n");
        }
        out
    });
    Ok(())
}

/// Writes a file that was not there before.
fn write(path: &Path, text: &str) -> Outcome {
    let write = || {
        use std::io::Write;
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        std::fs::File::create_new(path)?.write_all(text.as_bytes())
    };
    write().map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Format;

    fn screen() -> Screen {
        Screen {
            format: Format::Table,
            quiet: true,
            yes: false,
            color: false,
            color_stderr: false,
            live: false,
        }
    }

    #[test]
    fn what_is_written_is_valid_and_nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new");
        init(&screen(), &target).unwrap();
        let score = std::fs::read_to_string(target.join("score.yaml")).unwrap();
        conductor_score::parse(&score, &conductor_score::Options { strict: true }).unwrap();
        let entries = crate::catalogue::read(&screen(), &[target.join("catalog")]).unwrap();
        assert!(entries.iter().any(|entry| entry.text("type") == "postgres"));
        std::fs::write(target.join("score.yaml"), "mine").unwrap();
        let failure = init(&screen(), &target).unwrap_err();
        assert!(failure.message.contains("score.yaml"), "{failure}");
        assert_eq!(std::fs::read_to_string(target.join("score.yaml")).unwrap(), "mine");
    }
}
