//! Reading a template's `config`: every manager's own keys beside those all of them share.
//!
//! What is wrong here is a person's mistake in a catalogue file, so each message names the key and what
//! would be right.

use std::{path::PathBuf, time::Duration};

use conductor_domain::{nearest, work::Failure};
use serde_json::{Map, Value};

use crate::{Allow, Destination};

/// How long a program gets to end by itself when asked to.
pub const GRACE: Duration = Duration::from_secs(10);

const SHARED: [&str; 5] = ["allow", "timeout", "retries", "grace", "limits"];

/// The part of `config` that every manager understands.
#[derive(Clone, Debug)]
pub struct Shared {
    pub allow: Allow,
    pub timeout: Option<Duration>,
    pub retries: Option<u32>,
    pub grace: Duration,
}

impl Shared {
    pub fn read(config: &Map<String, Value>) -> Result<Self, Failure> {
        let config = Config(config);
        Ok(Self {
            allow: config.allow()?,
            timeout: config.duration("timeout")?,
            retries: config.count("retries")?,
            grace: config.duration("grace")?.unwrap_or(GRACE),
        })
    }
}

/// `5m`, `30s`, `500ms`, `72h`, `2d`; `1h30m` is their sum.
pub fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let part = match &rest[..unit] {
            "ms" => Duration::from_millis(number),
            "s" => Duration::from_secs(number),
            "m" => Duration::from_secs(number.checked_mul(60)?),
            "h" => Duration::from_secs(number.checked_mul(3_600)?),
            "d" => Duration::from_secs(number.checked_mul(86_400)?),
            _ => return None,
        };
        total = total.checked_add(part)?;
        rest = &rest[unit..];
    }
    Some(total)
}

/// A hint for a word that is none of `known`.
pub(crate) fn hint(word: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`? Known are: {all}"),
        None => format!("known are: {all}"),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Config<'a>(pub &'a Map<String, Value>);

impl<'a> Config<'a> {
    /// Refuses keys that neither this manager nor every manager knows.
    pub fn check(self, own: &[&str]) -> Result<(), Failure> {
        let known: Vec<&str> = own.iter().chain(SHARED.iter()).copied().collect();
        match self.0.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(Failure::invalid(format!("config.{key} is not known")).hint(hint(key, &known))),
            None => Shared::read(self.0).map(|_| ()),
        }
    }

    pub fn text(self, key: &str) -> Result<Option<&'a str>, Failure> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(Failure::invalid(format!("config.{key} must be a non-empty string"))),
        }
    }

    pub fn flag(self, key: &str) -> Result<bool, Failure> {
        match self.0.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(Failure::invalid(format!("config.{key} must be true or false"))),
        }
    }

    pub fn texts(self, key: &str) -> Result<Vec<String>, Failure> {
        match self.0.get(key) {
            None => Ok(Vec::new()),
            Some(value) => strings(value, &format!("config.{key}")),
        }
    }

    /// One of a few words, the first being the default.
    pub fn choice(self, key: &str, known: &[&'static str]) -> Result<&'static str, Failure> {
        let Some(word) = self.text(key)? else {
            return Ok(known[0]);
        };
        known.iter().copied().find(|name| *name == word).ok_or_else(|| {
            Failure::invalid(format!("config.{key} `{word}` is not known")).hint(hint(word, known))
        })
    }

    fn count(self, key: &str) -> Result<Option<u32>, Failure> {
        match self.0.get(key) {
            None => Ok(None),
            Some(value) => {
                let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
                count.map(Some).ok_or_else(|| {
                    Failure::invalid(format!("config.{key} must be a whole number, 0 or more"))
                })
            }
        }
    }

    fn duration(self, key: &str) -> Result<Option<Duration>, Failure> {
        let Some(value) = self.0.get(key) else {
            return Ok(None);
        };
        value.as_str().and_then(duration).map(Some).ok_or_else(|| {
            Failure::invalid(format!("config.{key} must be a duration"))
                .hint("write for example 500ms, 30s, 5m or 1h30m")
        })
    }

    fn allow(self) -> Result<Allow, Failure> {
        let Some(value) = self.0.get("allow") else {
            return Ok(Allow::default());
        };
        let Some(map) = value.as_object() else {
            return Err(Failure::invalid("config.allow must be an object with read, write, connect"));
        };
        let mut allow = Allow::default();
        for (key, value) in map {
            let place = format!("config.allow.{key}");
            match key.as_str() {
                "read" => allow.read = folders(value, &place)?,
                "write" => allow.write = folders(value, &place)?,
                "connect" => {
                    allow.connect = strings(value, &place)?
                        .iter()
                        .map(|text| destination(text))
                        .collect::<Result<_, _>>()?;
                }
                _ => {
                    return Err(Failure::invalid(format!("{place} is not known"))
                        .hint(hint(key, &["read", "write", "connect"])));
                }
            }
        }
        Ok(allow)
    }
}

fn strings(value: &Value, place: &str) -> Result<Vec<String>, Failure> {
    let list = value.as_array().and_then(|list| {
        list.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    list.ok_or_else(|| Failure::invalid(format!("{place} must be a list of strings")))
}

fn folders(value: &Value, place: &str) -> Result<Vec<PathBuf>, Failure> {
    let paths: Vec<PathBuf> = strings(value, place)?.into_iter().map(PathBuf::from).collect();
    match paths.iter().find(|path| !path.is_absolute()) {
        Some(path) => Err(Failure::invalid(format!("{place}: {} must be an absolute path", path.display()))),
        None => Ok(paths),
    }
}

fn destination(text: &str) -> Result<Destination, Failure> {
    text.rsplit_once(':')
        .and_then(|(host, port)| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let port = port.parse().ok().filter(|port| *port > 0)?;
            (!host.is_empty()).then(|| Destination { host: host.to_owned(), port })
        })
        .ok_or_else(|| Failure::invalid(format!("config.allow.connect: `{text}` must be HOST:PORT")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Shared, Failure> {
        Shared::read(value.as_object().unwrap())
    }

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("5m"), Some(Duration::from_secs(300)));
        assert_eq!(duration("1h30m"), Some(Duration::from_secs(5_400)));
        for wrong in ["", "5", "m", "5 m", "-5m", "5w", "99999999999999999999s", "9999999999999999999d"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn allow_names_paths_and_destinations() {
        let shared = read(json!({"allow": {"read": ["/a"], "connect": ["db:5432", "[::1]:80"]}})).unwrap();
        assert_eq!(shared.allow.read, [PathBuf::from("/a")]);
        assert_eq!(shared.allow.connect[1], Destination { host: "::1".into(), port: 80 });
        assert_eq!(shared.grace, GRACE);
        assert!(read(json!({"allow": {"read": ["a"]}})).unwrap_err().message.contains("absolute"));
        assert!(read(json!({"allow": {"connect": ["db"]}})).unwrap_err().message.contains("HOST:PORT"));
        assert!(read(json!({"allow": {"raed": []}})).unwrap_err().hint.unwrap().contains("`read`"));
    }

    #[test]
    fn an_unknown_key_is_refused_with_what_may_be_meant() {
        let config = json!({"progam": "x"});
        let failure = Config(config.as_object().unwrap()).check(&["program"]).unwrap_err();
        assert_eq!(failure.message, "config.progam is not known");
        let hint = failure.hint.unwrap();
        assert!(hint.starts_with("did you mean `program`?") && hint.contains("limits"), "{hint}");
    }
}
