//! A PostgreSQL server of our own: default, durable settings, in a folder that goes away.

use std::{
    net::TcpListener,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tokio_postgres::{Client, NoTls};

use crate::Outcome;

/// Costs time: not for measuring times with.
const COUNTING: &[&str] =
    &["-c", "shared_preload_libraries=pg_stat_statements", "-c", "pg_stat_statements.track=all"];
const USERS: [&str; 2] = ["postgres", "nobody"];

pub struct Server {
    child: Child,
    port: u16,
}

/// An ordinary user, for where we are root: PostgreSQL refuses to run as such.
struct User {
    name: String,
    ids: (u32, u32),
}

impl User {
    fn for_root() -> Outcome<Option<Self>> {
        if std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own))? != 0 {
            return Ok(None);
        }
        let passwd = std::fs::read_to_string("/etc/passwd")?;
        let found = USERS.into_iter().find_map(|name| {
            let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            let ids = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some(Self { name: name.to_owned(), ids })
        });
        found.map(Some).ok_or_else(|| "there is no user that PostgreSQL could run as".into())
    }
}

/// Through `setpriv`: as the user, and never outliving us, not even when we are killed.
fn command(program: &Path, user: Option<&User>) -> Command {
    let mut command = Command::new("setpriv");
    if let Some(user) = user {
        command.args(["--reuid", &user.name, "--regid", &user.ids.1.to_string(), "--clear-groups"]);
    }
    command.args(["--pdeathsig", "QUIT"]).arg(program).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

fn binaries() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("CONDUCTOR_TEST_PG_BIN").filter(|folder| !folder.is_empty()) {
        return Some(folder.into());
    }
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.sort();
    versions.into_iter().rev().find(|folder| folder.join("postgres").exists())
}

impl Server {
    /// `None` where there is no PostgreSQL on this machine.
    pub fn start(folder: &Path, count_statements: bool) -> Outcome<Option<Self>> {
        let Some(binaries) = binaries() else {
            return Ok(None);
        };
        let data = folder.join("postgres");
        std::fs::create_dir(&data)?;
        let user = User::for_root()?;
        if let Some(user) = &user {
            use std::os::unix::fs::PermissionsExt;
            chown(&data, Some(user.ids.0), Some(user.ids.1))?;
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?;
        }
        let made = command(&binaries.join("initdb"), user.as_ref())
            .args(["--auth=trust", "--username=bench", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(&data)
            .current_dir("/")
            .status()?;
        if !made.success() {
            return Err(format!("initdb ended with {made}").into());
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = command(&binaries.join("postgres"), user.as_ref())
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="])
            .args(["-c", &format!("port={port}"), "-c", "log_min_messages=fatal"])
            .args(if count_statements { COUNTING } else { &[] })
            .current_dir("/")
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Self { child, port };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() || !server.answers() {
            if Instant::now() > until || server.child.try_wait()?.is_some() {
                return Err("PostgreSQL did not start".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(server))
    }

    fn answers(&self) -> bool {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return false;
        };
        runtime.block_on(self.connect("postgres")).is_ok()
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://bench@127.0.0.1:{}/{database}", self.port)
    }

    pub async fn create(&self, database: &str) -> Outcome<String> {
        let client = self.connect("postgres").await?;
        client.batch_execute(&format!("CREATE DATABASE {database}")).await?;
        Ok(self.url(database))
    }

    pub async fn connect(&self, database: &str) -> Outcome<Client> {
        connect(&self.url(database)).await
    }
}

pub async fn connect(url: &str) -> Outcome<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

impl Drop for Server {
    fn drop(&mut self) {
        // A fast stop, so that nothing of its shared memory stays behind.
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        let until = Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
