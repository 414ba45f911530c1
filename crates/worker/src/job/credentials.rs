//! What a job was handed to reach things outside: variables for its programs, files in its folder, and the words
//! that must not be seen of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Component, Path},
};

use conductor_api::worker::Credentials;
use conductor_domain::work::Done;
use serde_json::Value;

/// Stands for the folder that the files lie in.
const FILES: &str = "${files}";
/// Shorter words are part of ordinary text.
const SHORTEST: usize = 4;

#[derive(Debug, Default)]
pub struct Handed {
    variables: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
    /// Asked for, and not in the worker's environment.
    pub missing: Vec<String>,
    secrets: BTreeSet<String>,
}

impl Handed {
    /// `own`: the worker's environment, of which only what is named is passed on.
    pub fn new(credentials: Credentials, own: &BTreeMap<String, String>) -> Self {
        let Credentials { variables, settings, files, passthrough } = credentials;
        let mut handed = Self { files, ..Self::default() };
        for name in passthrough {
            match own.get(&name) {
                Some(value) => drop(handed.variables.insert(name, value.clone())),
                None => handed.missing.push(name),
            }
        }
        handed.variables.extend(variables);
        let secret = handed.variables.values().chain(handed.files.values());
        handed.secrets = secret
            .filter(|value| value.trim().len() >= SHORTEST && !value.starts_with(FILES))
            .map(|value| value.trim().to_owned())
            .collect();
        handed.variables.extend(settings);
        handed
    }

    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets.iter().map(String::as_str)
    }

    /// The environment of every program of the job, whose folder this is.
    pub fn environment(&self, folder: &Path) -> BTreeMap<String, String> {
        let folder = folder.display().to_string();
        self.variables.iter().map(|(name, value)| (name.clone(), value.replace(FILES, &folder))).collect()
    }

    /// Writes the files, for their owner alone. They go with the job's folder.
    pub fn lay_out(&self, folder: &Path) -> io::Result<()> {
        for (path, content) in &self.files {
            let path = Path::new(path);
            if !path.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(io::Error::other("a path that leads out of the job's folder"));
            }
            let target = folder.join(path);
            if let Some(parent) = target.parent() {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&target)?;
            file.write_all(content.replace(FILES, &folder.display().to_string()).as_bytes())?;
        }
        Ok(())
    }

    /// What a program gives back of what it was handed stays as secret as it was.
    pub fn seal(&self, mut done: Done, mask: impl Fn(&str) -> String) -> Done {
        if self.secrets.is_empty() {
            return done;
        }
        for output in done.outputs.values_mut().filter(|output| self.is_in(&output.value)) {
            output.sensitive = true;
        }
        done.external_id = done.external_id.map(|id| mask(&id));
        done.plan = done.plan.map(|plan| masked(plan, &mask));
        done
    }

    fn is_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.secrets.iter().any(|secret| text.contains(secret.as_str())),
            Value::Array(items) => items.iter().any(|item| self.is_in(item)),
            Value::Object(entries) => entries.values().any(|entry| self.is_in(entry)),
            _ => false,
        }
    }
}

fn masked(value: Value, mask: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(mask(&text)),
        Value::Array(items) => items.into_iter().map(|item| masked(item, mask)).collect(),
        Value::Object(entries) => {
            entries.into_iter().map(|(name, entry)| (name, masked(entry, mask))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use conductor_domain::work::Output;

    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn handed() -> Handed {
        let credentials = Credentials {
            variables: texts(&[("KEY", "hush-hush"), ("FILE", "${files}/a/key")]),
            settings: texts(&[("REGION", "north")]),
            files: texts(&[("a/key", "in the file")]),
            passthrough: vec!["OWN".into(), "ABSENT".into()],
        };
        Handed::new(credentials, &texts(&[("OWN", "of the worker"), ("OTHER", "not asked for")]))
    }

    #[test]
    fn programs_get_what_was_handed_and_no_more() {
        let handed = handed();
        let environment = handed.environment(Path::new("/job"));
        let wanted =
            [("FILE", "/job/a/key"), ("KEY", "hush-hush"), ("OWN", "of the worker"), ("REGION", "north")];
        assert_eq!(environment, texts(&wanted));
        assert_eq!(handed.missing, ["ABSENT"]);
        let secrets: Vec<&str> = handed.secrets().collect();
        assert_eq!(secrets, ["hush-hush", "in the file", "of the worker"]);
    }

    #[test]
    fn files_are_for_their_owner_alone_and_stay_inside() {
        let folder = tempfile::tempdir().unwrap();
        handed().lay_out(folder.path()).unwrap();
        let file = folder.path().join("a/key");
        assert_eq!(fs::read_to_string(&file).unwrap(), "in the file");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let out = Handed { files: texts(&[("../out", "x")]), ..Handed::default() };
        assert!(out.lay_out(folder.path()).is_err());
    }

    #[test]
    fn an_output_that_holds_a_secret_is_one() {
        let output = |text: &str| Output { value: Value::from(vec![text]), sensitive: false };
        let done = Done {
            outputs: [("a".to_owned(), output("x hush-hush")), ("b".to_owned(), output("fine"))].into(),
            ..Done::default()
        };
        let sealed = handed().seal(done, str::to_owned);
        assert!(sealed.outputs["a"].sensitive && !sealed.outputs["b"].sensitive);
    }
}
