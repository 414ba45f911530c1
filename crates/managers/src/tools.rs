//! Tools in several versions side by side: `tofu-1.9.0` on the PATH, or `tofu/1.9.0/tofu` in the folder of tools.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use semver::Version;
use serde_json::Value;

use crate::program::is_program;

/// Tools whose versions matter.
pub const TOOLS: [&str; 2] = ["terraform", "tofu"];
/// What they are asked.
pub const VERSION_ARGS: [&str; 2] = ["version", "-json"];

/// Those whose place says their version; of one version, the first found counts.
pub fn side_by_side(path: &str, folder: Option<&Path>, name: &str) -> BTreeMap<Version, PathBuf> {
    let mut found = BTreeMap::new();
    let mut keep = |version: Option<Version>, path: PathBuf| {
        if let Some(version) = version.filter(|_| is_program(&path)) {
            found.entry(version).or_insert(path);
        }
    };
    for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
        for file in names(&folder) {
            let version = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')?.parse().ok());
            keep(version, folder.join(&file));
        }
    }
    if let Some(folder) = folder.map(|folder| folder.join(name)) {
        for version in names(&folder) {
            keep(version.parse().ok(), folder.join(&version).join(name));
        }
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// The one that goes by its plain name.
pub fn plain(path: &str, name: &str) -> Option<PathBuf> {
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// What a tool answers to [`VERSION_ARGS`].
pub fn read_version(answer: &str) -> Option<Version> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer["terraform_version"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn versions_are_found_on_the_path_and_in_the_folder_of_tools() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str, mode: u32| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let named = make("bin/tofu-1.9.0", 0o755);
        make("bin/tofu-1.7.0", 0o644);
        make("bin/tofu-latest", 0o755);
        make("bin/terraform-1.5.0", 0o755);
        let kept = make("tools/tofu/1.8.1/tofu", 0o755);
        make("tools/tofu/1.9.0/tofu", 0o755);
        make("tools/tofu/1.6.0/other", 0o755);
        let path = folder.path().join("bin").display().to_string();
        let found = side_by_side(&path, Some(&folder.path().join("tools")), "tofu");
        let wanted = [(Version::new(1, 8, 1), kept), (Version::new(1, 9, 0), named)];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn both_tools_answer_alike() {
        let answer = r#"{"terraform_version":"1.10.6","platform":"linux_amd64","provider_selections":{}}"#;
        assert_eq!(read_version(answer), Some(Version::new(1, 10, 6)));
        assert_eq!(read_version("OpenTofu v1.10.6"), None);
    }
}
