//! A PostgreSQL server for the whole test binary, and a database of its own for each test.
//!
//! A small shell holds the server and reads from a pipe of ours: however the tests end, the pipe closes and the
//! server goes, with its folder.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::{block_on, eventually, seconds, tools::tool};

const PASSWORD: &str = "only-for-tests";
const KEEPER: &str = r#"
"$1/postgres" -D "$2/data" -p "$3" -k "$2/data" -c listen_addresses=127.0.0.1 -c max_connections=300 -c fsync=off \
  -c shared_buffers=64MB -c log_statement=all >"$2/log" 2>&1 &
server=$!
trap '' INT TERM HUP
cat >/dev/null
kill -INT "$server"
wait "$server"
rm -rf "$2"
"#;

pub struct Server {
    port: u16,
    folder: PathBuf,
    pub programs: PathBuf,
    // Its input is the pipe.
    keeper: Child,
}

/// A database of a test, with the address of its owner.
#[derive(Clone, Debug)]
pub struct Database {
    pub name: String,
    pub url: String,
}

/// The server, started by whoever needs it first.
pub fn postgres() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    pub fn start() -> Self {
        use std::os::unix::process::CommandExt;
        let programs = tool("CONDUCTOR_TEST_PG_BIN");
        let folder =
            tempfile::Builder::new().prefix("conductor-test-pg-").tempdir().expect("a folder").keep();
        let user = other_user();
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group)).expect("a folder of its own");
        }
        let command = |program: &str| {
            let mut command = Command::new(program);
            if let Some((user, group)) = user {
                command.uid(user).gid(group);
            }
            command.current_dir("/");
            command
        };
        let password = folder.join("password");
        std::fs::write(&password, PASSWORD).expect("a password file");
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&password, Some(user), Some(group)).expect("a file of its own");
        }
        let data = folder.join("data");
        let made = command(&programs.join("initdb").display().to_string())
            .args(["-N", "-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--pwfile"])
            .arg(&password)
            .arg("-D")
            .arg(&data)
            .output()
            .expect("initdb runs; if it is not there, run: scripts/setup");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let keeper = keeper(&programs, &folder, port);
        let server = Self { port, folder, programs, keeper };
        eventually("PostgreSQL answers", seconds(30), || server.try_query(&server.admin(), "SELECT 1"));
        server
    }

    /// kill -9 of the whole server, and another start on what is left of it.
    pub fn crash(&mut self) {
        let file = self.folder.join("data/postmaster.pid");
        let text = std::fs::read_to_string(file).expect("the server runs");
        let id = text.lines().next().and_then(|line| line.parse().ok()).expect("its process id");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGKILL);
        eventually("its processes are gone", seconds(20), || {
            self.try_query(&self.admin(), "SELECT 1").is_none().then_some(())
        });
        // The keeper of a dead one must not clean up; and a new one starts only when the last child is gone.
        let again = || self.try_query(&self.admin(), "SELECT 1").map(drop);
        let mut keepers = Vec::new();
        eventually("PostgreSQL answers again", seconds(60), || {
            keepers.push(keeper(&self.programs, &self.folder, self.port));
            (0..20).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                again()
            })
        });
        let last = keepers.pop().expect("the one that answers");
        keepers.push(std::mem::replace(&mut self.keeper, last));
        for mut dead in keepers {
            let _ = dead.kill();
            let _ = dead.wait();
        }
    }

    /// The address of its administrator.
    pub fn admin(&self) -> String {
        self.url("postgres")
    }

    fn url(&self, name: &str) -> String {
        format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/{name}", self.port)
    }

    /// A new, empty database.
    pub fn database(&self) -> Database {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.query(&self.admin(), &format!("CREATE DATABASE {name}"));
        Database { url: self.url(&name), name }
    }

    fn try_query(&self, url: &str, sql: &str) -> Option<Vec<Vec<String>>> {
        block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
            tokio::spawn(connection);
            let rows = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
            let cells = |row: tokio_postgres::SimpleQueryRow| {
                (0..row.len()).map(|column| row.get(column).unwrap_or_default().to_owned()).collect()
            };
            let rows = rows.into_iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(cells(row)),
                _ => None,
            });
            Some(rows.collect())
        })
    }

    /// What the server says to a statement that it refuses.
    fn refusal(&self, url: &str, sql: &str) -> Option<String> {
        block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server answers");
            tokio::spawn(connection);
            client.batch_execute(sql).await.err().map(|error| format!("{error:?}"))
        })
    }

    /// Rows as text, from any database of the server that this address can be logged into with.
    #[track_caller]
    pub fn query(&self, url: &str, sql: &str) -> Vec<Vec<String>> {
        self.try_query(url, sql).unwrap_or_else(|| panic!("cannot log in with {url}"))
    }

    pub fn can_log_in(&self, url: &str) -> bool {
        self.try_query(url, "SELECT 1").is_some()
    }

    /// Everything a database holds, as SQL.
    pub fn dump(&self, database: &Database) -> Vec<u8> {
        let dumped =
            Command::new(self.programs.join("pg_dump")).arg(&database.url).output().expect("pg_dump runs");
        assert!(dumped.status.success(), "pg_dump: {}", String::from_utf8_lossy(&dumped.stderr));
        dumped.stdout
    }

    /// What the server wrote into its own log: every statement it was sent.
    pub fn log(&self) -> Vec<u8> {
        std::fs::read(self.folder.join("log")).expect("the server's log")
    }
}

impl Database {
    pub fn refusal(&self, sql: &str) -> Option<String> {
        postgres().refusal(&self.url, sql)
    }

    #[track_caller]
    pub fn query(&self, sql: &str) -> Vec<Vec<String>> {
        postgres().query(&self.url, sql)
    }
}

fn keeper(programs: &std::path::Path, folder: &std::path::Path, port: u16) -> Child {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("/bin/sh");
    if let Some((user, group)) = other_user() {
        shell.uid(user).gid(group);
    }
    shell
        .args(["-c", KEEPER, "keeper"])
        .arg(programs)
        .arg(folder)
        .arg(port.to_string())
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("a shell")
}

/// PostgreSQL refuses to run as root: its own user, else nobody.
fn other_user() -> Option<(u32, u32)> {
    use nix::unistd::{User, getuid};
    if !getuid().is_root() {
        return None;
    }
    let find = |name| User::from_name(name).ok().flatten();
    let user = find("postgres").or_else(|| find("nobody")).expect("a user other than root");
    Some((user.uid.as_raw(), user.gid.as_raw()))
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
