//! One real PostgreSQL for the whole test binary, stopped when the binary ends.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread::sleep,
    time::Duration,
};

use tempfile::TempDir;

use super::tools;

pub struct Postgres {
    pub url: String,
    data: TempDir,
    _server: Child,
}

/// The server, started on first use. It ends with this process: its parent is a shell that waits on a pipe
/// only this process holds open.
pub fn postgres() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(start)
}

fn start() -> Postgres {
    let bin = tools::postgres();
    let data = TempDir::new().unwrap();
    let user = user();
    if let Some((uid, gid)) = user {
        chown(data.path(), Some(uid), Some(gid)).unwrap();
    }
    let command = |program: &Path| {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/").stdout(Stdio::null());
        command
    };
    let cluster = data.path().join("cluster");
    let made = command(&bin.join("initdb"))
        .args(["-A", "scram-sha-256", "-U", "boss", "-E", "UTF8", "--locale=C", "-N"])
        .arg(format!("--pwfile={}", password_file(data.path()).display()))
        .arg("-D")
        .arg(&cluster)
        .status()
        .unwrap();
    assert!(made.success());
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script =
        r#""$0" "$@" & server=$!; cat; kill -INT "$server"; wait "$server"; rm -rf "$PGDATA_PARENT""#;
    let server = command(Path::new("/bin/sh"))
        .args(["-c", script])
        .arg(bin.join("postgres"))
        .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-c", "fsync=off", "-c", "log_statement=all"])
        .args(["-c", "unix_socket_directories=", "-D"])
        .arg(&cluster)
        .env("PGDATA_PARENT", data.path())
        .stdin(Stdio::piped())
        .stderr(fs::File::create(data.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let started = (0..200).any(|_| {
        sleep(Duration::from_millis(50));
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let log = data.path().join("log");
    assert!(started, "PostgreSQL did not start: {}", fs::read_to_string(log).unwrap());
    let url = format!("postgres://boss:a-boss-password@127.0.0.1:{port}/postgres");
    Postgres { url, data, _server: server }
}

impl Postgres {
    /// What the server wrote, statements included.
    pub fn log(&self) -> String {
        fs::read_to_string(self.data.path().join("log")).unwrap()
    }
}

fn password_file(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("password");
    fs::write(&path, "a-boss-password").unwrap();
    path
}

/// PostgreSQL refuses to run as root: then it runs as somebody else.
fn user() -> Option<(u32, u32)> {
    let id = |args: &[&str]| {
        let done = Command::new("id").args(args).output().unwrap();
        done.status.success().then(|| String::from_utf8(done.stdout).unwrap().trim().parse::<u32>().unwrap())
    };
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let name = if id(&["-u", "postgres"]).is_some() { "postgres" } else { "nobody" };
    Some((id(&["-u", name]).unwrap(), id(&["-g", name]).unwrap()))
}
