//! Settings: a flag wins over the environment, the environment over `conductor.toml`, that over the default.
//!
//! An empty value counts as none. Nothing else in the program reads the environment.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use conductor_domain::nearest;
use conductor_engine::LogKeeping;
use conductor_worker::Aspect;

use crate::failure::{Failure, Outcome};

mod alerts;

pub use alerts::Alerting;

pub const FILE: &str = "conductor.toml";
const DEFAULT_LISTEN: &str = "127.0.0.1:7070";
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const DEFAULT_SLOTS: usize = 4;

/// The settings that can be given as flags, with any command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
pub struct SettingFlags {
    /// The server to talk to [env: CONDUCTOR_URL]; without one, the engine runs in this folder
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub url: Option<String>,
    /// The token to talk to it with [env: CONDUCTOR_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN", hide_short_help = true)]
    pub token: Option<String>,
    /// Folder of the embedded engine [env: CONDUCTOR_DATA] [default: .conductor]
    #[arg(long, global = true, value_name = "DIR", hide_short_help = true)]
    pub data: Option<String>,
    /// sqlite:PATH or postgres://… [env: CONDUCTOR_DATABASE_URL]
    #[arg(long, global = true, value_name = "URL", hide_short_help = true)]
    pub database_url: Option<String>,
    /// File that holds the key secrets are sealed with [env: CONDUCTOR_KEY_FILE] [default: DATA/key]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub key_file: Option<String>,
    /// Address to serve on [env: CONDUCTOR_LISTEN] [default: 127.0.0.1:7070]
    #[arg(long, global = true, value_name = "HOST:PORT", hide_short_help = true)]
    pub listen: Option<String>,
    /// First token of a new server, instead of a random one [env: CONDUCTOR_ADMIN_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN", hide_short_help = true)]
    pub admin_token: Option<String>,
    /// How long a silent worker keeps its work [env: CONDUCTOR_LEASE] [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", hide_short_help = true)]
    pub lease: Option<String>,
    /// Operations at once in one worker [env: CONDUCTOR_WORKERS] [default: 4]
    #[arg(long, global = true, value_name = "N", hide_short_help = true)]
    pub workers: Option<String>,
    /// What a worker must keep programs from, or not start: files, ports, signals, syscalls, processes, memory, cpu,
    /// disk, pids [env: CONDUCTOR_REQUIRE_ISOLATION]
    #[arg(long, global = true, value_name = "LIST", hide_short_help = true)]
    pub require_isolation: Option<String>,
}

/// Names as in the file; in the environment they are upper case with `CONDUCTOR_` before them.
const NAMES: [&str; 34] = join(
    alerts::NAMES,
    [
        "url",
        "token",
        "data",
        "database_url",
        "key",
        "key_file",
        "listen",
        "admin_token",
        "lease",
        "workers",
        "require_isolation",
        "log",
        "log_format",
        "log_retention",
        "log_store",
        "state_store",
        "state_versions",
        "terraform_tool",
        "terraform_providers",
        "tools",
        "public_url",
    ],
);

const fn join<const A: usize, const B: usize, const ALL: usize>(
    some: [&'static str; A],
    more: [&'static str; B],
) -> [&'static str; ALL] {
    let (mut all, mut at) = ([""; ALL], 0);
    while at < ALL {
        all[at] = if at < B { more[at] } else { some[at - B] };
        at += 1;
    }
    all
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub url: Option<String>,
    pub token: Option<String>,
    /// Absolute.
    pub data: PathBuf,
    pub database_url: String,
    pub key: Option<String>,
    pub key_file: PathBuf,
    pub listen: String,
    pub admin_token: Option<String>,
    /// Where others reach the server.
    pub public_url: Option<String>,
    pub lease: Duration,
    pub slots: usize,
    /// Where this cannot be enforced, no program is started.
    pub require_isolation: Vec<Aspect>,
    pub log: Option<String>,
    pub log_json: bool,
    pub logs: LogKeeping,
    /// Where logs of what is over are kept, if not in the database.
    pub log_store: Option<String>,
    pub alerts: Alerting,
    /// Where bodies of terraform state go that are not to be in the database.
    pub state_store: Option<String>,
    /// How many versions of each state are kept; all, without a number.
    pub state_versions: Option<u32>,
    /// What managers ask the worker by name.
    pub for_managers: BTreeMap<String, String>,
    /// Which settings came from where, for `doctor`; never their values.
    pub sources: BTreeMap<&'static str, &'static str>,
}

impl Settings {
    /// Reads the environment and the current folder's file.
    pub fn load(flags: &SettingFlags) -> Outcome<Self> {
        let folder = std::env::current_dir()
            .map_err(|error| Failure::failed(format!("the current folder cannot be used: {error}")))?;
        let file = match std::fs::read_to_string(folder.join(FILE)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::usage(format!("{FILE} cannot be read: {error}"))),
        };
        Self::resolve(flags, &|name| std::env::var(name).ok(), file.as_deref(), &folder)
    }

    fn resolve(
        flags: &SettingFlags,
        environment: &dyn Fn(&str) -> Option<String>,
        file: Option<&str>,
        folder: &Path,
    ) -> Outcome<Self> {
        let file = file.map(read_file).transpose()?.unwrap_or_default();
        let mut sources = BTreeMap::new();
        let mut find = |name: &'static str| {
            let given = |value: Option<String>| value.filter(|value| !value.trim().is_empty());
            let variable = environment(&format!("CONDUCTOR_{}", name.to_uppercase()));
            let candidates =
                [("flag", flags.get(name)), ("environment", variable), (FILE, file.get(name).cloned())];
            let (source, value) =
                candidates.into_iter().find_map(|(source, value)| Some((source, given(value)?)))?;
            sources.insert(name, source);
            Some(value)
        };
        let data = folder.join(find("data").unwrap_or_else(|| ".conductor".into()));
        let database_url = find("database_url")
            .map(|url| absolute_database(&url, folder))
            .unwrap_or_else(|| format!("sqlite:{}", data.join("conductor.db").display()));
        let lease = find("lease").map(|text| duration("lease", &text)).transpose()?.unwrap_or(DEFAULT_LEASE);
        let slots = match find("workers") {
            None => DEFAULT_SLOTS,
            Some(text) => text.parse().ok().filter(|slots| (1..=1024).contains(slots)).ok_or_else(|| {
                Failure::usage(format!(
                    "CONDUCTOR_WORKERS is `{text}`: it must be a whole number from 1 to 1024"
                ))
            })?,
        };
        let require_isolation = find("require_isolation").map(|text| aspects(&text)).transpose()?;
        let mut for_managers: BTreeMap<String, String> =
            environment("PATH").map(|path| ("path".to_owned(), path)).into_iter().collect();
        for name in ["terraform_tool", "terraform_providers", "tools"] {
            for_managers.extend(find(name).map(|value| (name.to_owned(), value)));
        }
        Ok(Self {
            url: find("url"),
            public_url: find("public_url").map(|url| public_url(&url)).transpose()?,
            token: find("token"),
            key: find("key"),
            key_file: find("key_file").map_or_else(|| data.join("key"), |path| folder.join(path)),
            listen: find("listen").unwrap_or_else(|| DEFAULT_LISTEN.into()),
            admin_token: find("admin_token"),
            log: find("log"),
            log_json: log_format(find("log_format").as_deref())?,
            logs: LogKeeping {
                retention: find("log_retention").map(|text| duration("log_retention", &text)).transpose()?,
            },
            log_store: find("log_store"),
            alerts: Alerting::read(&mut find)?,
            state_store: find("state_store"),
            state_versions: find("state_versions").map(|text| state_versions(&text)).transpose()?,
            data,
            database_url,
            lease,
            slots,
            require_isolation: require_isolation.unwrap_or_default(),
            for_managers,
            sources,
        })
    }
}

fn state_versions(text: &str) -> Outcome<u32> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
        let message = format!("CONDUCTOR_STATE_VERSIONS is `{text}`: it must be a whole number from 1 on");
        Failure::usage(message)
    })
}

impl SettingFlags {
    fn get(&self, name: &str) -> Option<String> {
        match name {
            "url" => self.url.clone(),
            "token" => self.token.clone(),
            "data" => self.data.clone(),
            "database_url" => self.database_url.clone(),
            "key_file" => self.key_file.clone(),
            "listen" => self.listen.clone(),
            "admin_token" => self.admin_token.clone(),
            "lease" => self.lease.clone(),
            "workers" => self.workers.clone(),
            "require_isolation" => self.require_isolation.clone(),
            _ => None,
        }
    }
}

fn read_file(text: &str) -> Outcome<BTreeMap<String, String>> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        Failure::usage(format!("{FILE} cannot be read: {}", error.to_string().trim()))
    })?;
    let mut values = BTreeMap::new();
    for (name, value) in table {
        if !NAMES.contains(&name.as_str()) {
            let failure = Failure::usage(format!("{FILE}: `{name}` is not a setting"));
            return Err(match nearest(&name.replace('-', "_").to_lowercase(), NAMES) {
                Some(close) => failure.hint(format!("did you mean `{close}`?")),
                None => failure.hint(format!("the settings are: {}", NAMES.join(", "))),
            });
        }
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            _ => {
                return Err(Failure::usage(format!("{FILE}: `{name}` must be a text or a number")));
            }
        };
        values.insert(name, value);
    }
    Ok(values)
}

/// A relative SQLite path is meant from the current folder.
fn absolute_database(url: &str, folder: &Path) -> String {
    match url.strip_prefix("sqlite:") {
        Some(path) => format!("sqlite:{}", folder.join(path.strip_prefix("//").unwrap_or(path)).display()),
        None => url.to_owned(),
    }
}

/// What others verify tokens at must be an address without anything behind it that could differ.
fn public_url(text: &str) -> Outcome<String> {
    let url = text.trim_end_matches('/');
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    match rest.filter(|rest| !rest.is_empty() && !rest.contains(['?', '#', '@', ' '])) {
        Some(_) => Ok(url.to_owned()),
        None => Err(Failure::usage(format!("CONDUCTOR_PUBLIC_URL is `{text}`: it must be an address"))
            .hint("as in https://conductor.example.com")),
    }
}

pub fn duration(name: &str, text: &str) -> Outcome<Duration> {
    conductor_managers::duration(text).filter(|given| !given.is_zero()).ok_or_else(|| {
        Failure::usage(format!("`{text}` is not a duration for {name}"))
            .hint("write for example 30s, 10m or 1h30m")
    })
}

fn aspects(text: &str) -> Outcome<Vec<Aspect>> {
    Aspect::list(text).map_err(|why| {
        Failure::usage(format!("CONDUCTOR_REQUIRE_ISOLATION: {why}"))
            .hint("write for example files,ports,syscalls,processes,memory,pids")
    })
}

fn log_format(format: Option<&str>) -> Outcome<bool> {
    match format {
        None | Some("text") => Ok(false),
        Some("json") => Ok(true),
        Some(other) => {
            Err(Failure::usage(format!("CONDUCTOR_LOG_FORMAT is `{other}`: it must be text or json")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &SettingFlags, environment: &[(&str, &str)], file: &str) -> Outcome<Settings> {
        let find = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Settings::resolve(flags, &find, Some(file), Path::new("/here"))
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_file() {
        let file = "url = 'http://file'\ntoken = 'file'\nlisten = 'file:1'\nworkers = 9\n";
        let environment = [("CONDUCTOR_URL", "http://environment"), ("CONDUCTOR_TOKEN", "environment")];
        let flags = SettingFlags { url: Some("http://flag".into()), ..SettingFlags::default() };
        let settings = resolve(&flags, &environment, file).unwrap();
        assert_eq!(settings.url.as_deref(), Some("http://flag"));
        assert_eq!(settings.token.as_deref(), Some("environment"));
        assert_eq!(settings.listen, "file:1");
        assert_eq!(settings.slots, 9);
        assert_eq!(settings.lease, DEFAULT_LEASE);
        assert_eq!(settings.sources["url"], "flag");
        assert_eq!(settings.sources["listen"], FILE);
    }

    #[test]
    fn an_empty_setting_counts_as_none() {
        let environment = [("CONDUCTOR_URL", ""), ("CONDUCTOR_DATA", " ")];
        let settings = resolve(&SettingFlags::default(), &environment, "token = ''\n").unwrap();
        assert_eq!(settings.url, None);
        assert_eq!(settings.token, None);
        assert_eq!(settings.data, Path::new("/here/.conductor"));
    }

    #[test]
    fn folders_are_absolute_and_the_database_and_the_key_are_in_the_data_folder() {
        let settings = resolve(&SettingFlags::default(), &[("CONDUCTOR_DATA", "state")], "").unwrap();
        assert_eq!(settings.data, Path::new("/here/state"));
        assert_eq!(settings.database_url, "sqlite:/here/state/conductor.db");
        assert_eq!(settings.key_file, Path::new("/here/state/key"));
        let environment = [("CONDUCTOR_DATABASE_URL", "sqlite:a.db")];
        let settings = resolve(&SettingFlags::default(), &environment, "").unwrap();
        assert_eq!(settings.database_url, "sqlite:/here/a.db");
    }

    #[test]
    fn required_isolation_is_a_list() {
        let file = "require_isolation = 'files, pids'\n";
        let settings = resolve(&SettingFlags::default(), &[], file).unwrap();
        assert_eq!(settings.require_isolation, [Aspect::Files, Aspect::Pids]);
        let flags = SettingFlags { require_isolation: Some("memory".into()), ..SettingFlags::default() };
        assert_eq!(resolve(&flags, &[], file).unwrap().require_isolation, [Aspect::Memory]);
        assert_eq!(resolve(&SettingFlags::default(), &[], "").unwrap().require_isolation, []);
    }

    #[test]
    fn the_public_address_has_no_slash_at_its_end_and_nothing_behind_it() {
        let resolve = |url: &str| resolve(&SettingFlags::default(), &[("CONDUCTOR_PUBLIC_URL", url)], "");
        assert_eq!(resolve("https://c.example/").unwrap().public_url.as_deref(), Some("https://c.example"));
        for wrong in ["c.example", "https://", "https://c.example/?a=b", "https://u:p@c.example"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_wrong_usage_and_say_what_would_be_right() {
        let failure = resolve(&SettingFlags::default(), &[], "lisen = 'x'\n").unwrap_err();
        assert_eq!(failure.exit, crate::failure::Exit::Usage);
        assert_eq!(failure.hint.as_deref(), Some("did you mean `listen`?"));
        for (name, value) in [
            ("CONDUCTOR_LEASE", "soon"),
            ("CONDUCTOR_WORKERS", "0"),
            ("CONDUCTOR_LOG_FORMAT", "xml"),
            ("CONDUCTOR_REQUIRE_ISOLATION", "everything"),
        ] {
            let failure = resolve(&SettingFlags::default(), &[(name, value)], "").unwrap_err();
            assert!(failure.message.contains(value), "{failure}");
        }
        assert!(resolve(&SettingFlags::default(), &[], "url = [").is_err());
    }
}
