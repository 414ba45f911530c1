//! A PostgreSQL database with a role of its own, on a server the template names.
//!
//! Every part looks first and may be repeated after a crash at any point. The role carries a comment with
//! the resource it was made for, so that a role of somebody else is never altered nor dropped. The password
//! is sent as a SCRAM verifier: the server's own log never sees it.

mod admin;

use std::time::Duration;

use conductor_domain::work::{Difference, Done, Failure, FailureCode, Output, Outputs, Step, StepKind};
use tokio_postgres::{Client, Config as Address, NoTls, config::Host, error::SqlState};

use crate::{Job, Level, config::Config, text};

use admin::{Admin, failure};

pub(super) const OUTPUTS: [(&str, bool); 6] = [
    ("host", false),
    ("port", false),
    ("name", false),
    ("username", false),
    ("password", true),
    ("url", true),
];

const PASSWORD_LENGTH: usize = 32;
/// PostgreSQL cuts longer names silently.
const NAME_LIMIT: usize = 63;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

pub(super) async fn run(job: &dyn Job, step: &Step, config: Config<'_>) -> Result<Done, Failure> {
    let server = server(job, config)?;
    let name = name(&step.subject.slug);
    let mark = format!("made by Conductor for {}", step.subject.id);
    let admin = Admin { client: connect(&server).await?, name: &name, mark: &mark };
    match step.kind {
        StepKind::Create | StepKind::Update => {
            let kept = step.previous.as_ref().and_then(|previous| previous.outputs.get("password")?.as_str());
            let password = match kept.filter(|password| !password.is_empty()) {
                Some(password) => password.to_owned(),
                None => new_password()?,
            };
            job.keep_secret(&password);
            admin.ensure_role(&password).await?;
            if step.previous.is_some() {
                admin.put_right().await?;
            }
            if job.cancelled() {
                return Err(Failure::new(FailureCode::Cancelled, "cancelled"));
            }
            admin.ensure_database().await?;
            job.log(Level::Info, &format!("database {name} is ready"));
            let mut done = described(&server, &name);
            done.outputs.extend(secrets(&server, &name, &password));
            Ok(done)
        }
        StepKind::Delete => {
            admin.drop_database().await?;
            admin.drop_role().await?;
            if admin.owner().await?.is_some() || admin.role_mark().await?.is_some() {
                return Err(Failure::transient(format!("database {name} is back after it was dropped")));
            }
            job.log(Level::Info, &format!("database {name} and its role are gone"));
            Ok(Done { exists: Some(false), ..Done::default() })
        }
        StepKind::Observe | StepKind::Plan => match admin.owner().await? {
            Some(_) if admin.role_mark().await?.is_some() => {
                let mut drift = admin.differences().await?;
                drift.extend(wrong_password(&server, &name, step).await);
                Ok(Done { drift, ..described(&server, &name) })
            }
            _ => Ok(Done { exists: Some(false), ..Done::default() }),
        },
    }
}

/// The address of the server, as its administrator reaches it.
pub(super) fn server(job: &dyn Job, config: Config<'_>) -> Result<Address, Failure> {
    let url = match (config.text("server")?, config.text("serverEnv")?) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("config.server and config.serverEnv exclude each other"));
        }
        (Some(url), None) => url.to_owned(),
        (None, Some(name)) => job.setting(name).ok_or_else(|| {
            Failure::invalid(format!("config.serverEnv: the worker has no setting `{name}`"))
                .hint("set it on the worker to the postgres:// address of a role that may create databases")
        })?,
        (None, None) => {
            return Err(Failure::invalid("engine `postgres` needs config.server or config.serverEnv").hint(
                "server is a postgres:// address; serverEnv names the worker's setting that holds it",
            ));
        }
    };
    job.keep_secret(&url);
    let mut address: Address =
        url.parse().map_err(|_| Failure::invalid("the server's address is not a postgres:// address"))?;
    if let Some(password) = address.get_password() {
        job.keep_secret(&String::from_utf8_lossy(password));
    }
    if address.get_hosts().is_empty() {
        return Err(Failure::invalid("the server's address names no host"));
    }
    if address.get_connect_timeout().is_none() {
        address.connect_timeout(CONNECT_LIMIT);
    }
    Ok(address)
}

/// Whether the application can still log in with what it was given.
async fn wrong_password(server: &Address, name: &str, step: &Step) -> Option<Difference> {
    let password = step.previous.as_ref()?.outputs.get("password")?.as_str()?;
    let mut login = server.clone();
    login.user(name).password(password).dbname(name);
    let refused = login.connect(NoTls).await.err()?;
    let code = refused.code()?;
    (*code == SqlState::INVALID_PASSWORD).then(|| Difference {
        path: "role.password".to_owned(),
        recorded: "(sensitive)".into(),
        actual: "(sensitive)".into(),
    })
}

async fn connect(server: &Address) -> Result<Client, Failure> {
    let (client, connection) = server.connect(NoTls).await.map_err(failure("connect to the server"))?;
    tokio::spawn(connection);
    Ok(client)
}

fn described(server: &Address, name: &str) -> Done {
    let (host, port) = place(server);
    let plain = |value: serde_json::Value| Output { value, sensitive: false };
    let outputs: Outputs = [
        ("host".to_owned(), plain(host.clone().into())),
        ("port".to_owned(), plain(port.into())),
        ("name".to_owned(), plain(name.into())),
        ("username".to_owned(), plain(name.into())),
    ]
    .into();
    Done {
        outputs,
        external_id: Some(format!("{host}:{port}/{name}")),
        exists: Some(true),
        ..Done::default()
    }
}

fn secrets(server: &Address, name: &str, password: &str) -> [(String, Output); 2] {
    let (host, port) = place(server);
    let login = format!("{}:{}", text::percent(name), text::percent(password));
    let url = if host.starts_with('/') {
        format!("postgres://{login}@/{name}?host={}&port={port}", text::percent(&host))
    } else if host.contains(':') {
        format!("postgres://{login}@[{host}]:{port}/{name}")
    } else {
        format!("postgres://{login}@{host}:{port}/{name}")
    };
    let sealed = |value: &str| Output { value: value.into(), sensitive: true };
    [("password".to_owned(), sealed(password)), ("url".to_owned(), sealed(&url))]
}

fn place(server: &Address) -> (String, u16) {
    let host = match server.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    (host, server.get_ports().first().copied().unwrap_or(5432))
}

/// A slug as a name that needs no quotes. Slugs hold no underscore, so two never become the same name.
fn name(slug: &str) -> String {
    use sha2::{Digest, Sha256};
    let kept = |c: char| {
        if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' }
    };
    let mut name: String = slug.to_lowercase().chars().map(kept).collect();
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.insert_str(0, "d_");
    }
    if name.len() > NAME_LIMIT {
        let rest = text::hex(&Sha256::digest(slug.as_bytes()));
        name = format!("{}_{}", &name[..NAME_LIMIT - 13], &rest[..12]);
    }
    name
}

/// Letters and digits only, so that it needs no quoting anywhere; more than 185 bits.
fn new_password() -> Result<String, Failure> {
    let mut password = String::with_capacity(PASSWORD_LENGTH);
    while password.len() < PASSWORD_LENGTH {
        let mut bytes = [0; 64];
        getrandom::fill(&mut bytes)
            .map_err(|error| Failure::failed(format!("no random numbers: {error}")))?;
        // Bytes that are no letter or digit are thrown away: what is left is evenly spread.
        let letters = bytes.iter().map(|byte| byte & 0x7f).filter(u8::is_ascii_alphanumeric).map(char::from);
        password.extend(letters.take(PASSWORD_LENGTH - password.len()));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_distinct() {
        assert_eq!(name("orders-db-a1b2"), "orders_db_a1b2");
        assert_eq!(name("1st"), "d_1st");
        let (one, two) = (name(&format!("{}-a", "x".repeat(80))), name(&format!("{}-b", "x".repeat(80))));
        assert_eq!((one.len(), two.len()), (63, 63));
        assert_ne!(one, two);
    }

    #[test]
    fn passwords_are_long_and_plain() {
        let (one, two) = (new_password().unwrap(), new_password().unwrap());
        assert_eq!(one.len(), 32);
        assert_ne!(one, two);
        assert!(one.chars().all(|c| c.is_ascii_alphanumeric()));
    }

    #[test]
    fn addresses_are_written_for_every_kind_of_host() {
        let url = |server: &str| {
            secrets(&server.parse().unwrap(), "db", "p/w")[1].1.value.as_str().unwrap().to_owned()
        };
        assert_eq!(url("postgres://a:b@h:6000/x"), "postgres://db:p%2Fw@h:6000/db");
        assert_eq!(url("postgres://a@h"), "postgres://db:p%2Fw@h:5432/db");
        assert_eq!(url("postgres://a@[::1]"), "postgres://db:p%2Fw@[::1]:5432/db");
        assert_eq!(url("postgres://a@%2Frun%2Fpg"), "postgres://db:p%2Fw@/db?host=%2Frun%2Fpg&port=5432");
    }
}
