//! What an integration's document may hold. Messages name places, never values.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use conductor_store::Result;
use serde_json::Value;

use crate::{Context, catalogue::invalid};

/// Values an environment or a small file can bear.
const LONGEST: usize = 128 << 10;
/// What a job's programs get from Conductor itself.
const OWN: [&str; 10] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "TF_DATA_DIR",
    "TF_CLI_CONFIG_FILE",
    "TF_INPUT",
    "TF_IN_AUTOMATION",
    "CHECKPOINT_DISABLE",
    "IFS",
];
const OWN_BEGINNINGS: [&str; 3] = ["TF_HTTP_", "CONDUCTOR_", "LD_"];
/// Folders in a job's folder that managers use for themselves.
const TAKEN: [&str; 2] = ["work", "content"];

/// A map of texts; numbers and booleans are taken as they were written.
pub(crate) fn scalars(at: &str, value: &Value) -> Result<BTreeMap<String, String>> {
    let wrong = |at: &str| invalid(at, "this must be a text".into(), Some("put it in quotes".into()));
    let entries = match value {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(entries) => entries,
        _ => return Err(invalid(at, "this must be a map".into(), Some("as in `{ NAME: value }`".into()))),
    };
    let mut texts = BTreeMap::new();
    for (name, value) in entries {
        let at = format!("{at}.{name}");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            _ => return Err(wrong(&at)),
        };
        if text.contains('\0') || text.len() > LONGEST {
            let message = format!("this must be at most {} KiB, without NUL", LONGEST >> 10);
            return Err(invalid(&at, message, None));
        }
        texts.insert(name.clone(), text);
    }
    Ok(texts)
}

pub(crate) fn check_provider(at: &str, provider: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !provider.is_empty() && provider.len() <= 63 && provider.chars().all(fits) {
        return Ok(());
    }
    let message = "a provider is 1 to 63 of a-z, 0-9 and -, as in `aws`".to_owned();
    Err(invalid(at, message, None))
}

pub(crate) fn check_names<'a>(at: &str, names: impl Iterator<Item = &'a String>) -> Result<()> {
    for name in names {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let shown: String = name.chars().take(80).collect();
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(|c: char| c.is_ascii_digit()) {
            let message = format!("`{shown}` is no name of a variable: use A-Z, 0-9 and _");
            return Err(invalid(at, message, None));
        }
        if OWN.contains(&name.as_str()) || OWN_BEGINNINGS.iter().any(|begin| name.starts_with(begin)) {
            return Err(invalid(at, format!("`{shown}` is set by Conductor itself"), None));
        }
    }
    Ok(())
}

/// Files stay inside the job's folder, which is also the HOME of its programs.
pub(crate) fn check_files(at: &str, files: &BTreeMap<String, String>) -> Result<()> {
    for path in files.keys() {
        let shown: String = path.chars().take(80).collect();
        let mut parts = Path::new(path).components();
        let inside = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        if path.is_empty() || path.contains('\0') || !inside || path.ends_with('/') {
            let message = format!("`{shown}` is no path below the job's folder");
            return Err(invalid(at, message, Some("as in `.aws/credentials`".into())));
        }
        let first = parts.next().and_then(|part| part.as_os_str().to_str().map(str::to_owned));
        if let Some(first) = first.filter(|first| TAKEN.contains(&first.as_str())) {
            return Err(invalid(at, format!("`{first}` is used by Conductor itself"), None));
        }
    }
    Ok(())
}

/// A token is made for somebody, and says where its maker can be asked for keys.
pub(crate) fn check_audience(at: &str, context: &Context, audience: Option<&str>) -> Result<()> {
    if audience.is_none_or(|audience| audience.trim().is_empty()) {
        let suggestion = Some("as in `audience: sts.amazonaws.com`".to_owned());
        let message = "say for whom its tokens are made".to_owned();
        return Err(invalid(&format!("{at}.audience"), message, suggestion));
    }
    if context.public_url.is_none() {
        let message = "tokens of this server need an address where others can verify them".to_owned();
        let suggestion = Some("set CONDUCTOR_PUBLIC_URL on every server".to_owned());
        return Err(invalid(&format!("{at}.type"), message, suggestion));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_that_would_reach_further_are_refused() {
        for name in ["PATH", "LD_PRELOAD", "TF_HTTP_PASSWORD", "CONDUCTOR_TOKEN", "1A", "A-B", "", "A=B"] {
            assert!(check_names("x", [name.to_owned()].iter()).is_err(), "{name}");
        }
        for name in ["AWS_ACCESS_KEY_ID", "TF_VAR_region", "_x"] {
            assert!(check_names("x", [name.to_owned()].iter()).is_ok(), "{name}");
        }
    }

    #[test]
    fn files_stay_inside_the_jobs_folder() {
        let one = |path: &str| BTreeMap::from([(path.to_owned(), String::new())]);
        for path in ["/etc/passwd", "../x", "a/../../x", "", "a/", "work/main.tf", "."] {
            assert!(check_files("x", &one(path)).is_err(), "{path}");
        }
        for path in [".aws/credentials", "key.json", "a/b/c"] {
            assert!(check_files("x", &one(path)).is_ok(), "{path}");
        }
    }

    #[test]
    fn a_message_never_holds_a_value() {
        for value in [json!("hush-hush"), json!({ "A": { "b": "hush-hush" } }), json!(["hush-hush"])] {
            let error = scalars("Integration x.variables", &value).unwrap_err();
            assert!(!format!("{error:?}").contains("hush"), "{error:?}");
        }
        let texts = scalars("x", &json!({ "PORT": 5432, "ON": true })).unwrap();
        assert_eq!(texts["PORT"], "5432");
        assert_eq!(texts["ON"], "true");
    }
}
