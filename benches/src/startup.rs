//! How soon the built program answers, and what it holds in memory when it has nothing to do.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Bench, Outcome,
    report::{Goal, Line, Report, median, milliseconds},
};

const ROUNDS: usize = 15;
const UPS: usize = 5;
const SETTLED: Duration = Duration::from_secs(2);

/// The program beside this one, built now if it is not.
fn program() -> Outcome<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name("conductor");
    if let Some(cargo) = std::env::var_os("CARGO") {
        let target = beside.parent().and_then(Path::parent).ok_or("no target folder")?;
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--release", "-p", "conductor", "--target-dir"])
            .arg(target)
            .status()?;
        if !built.success() {
            return Err("conductor does not build".into());
        }
    }
    if beside.exists() {
        Ok(beside)
    } else {
        Err("build it first: cargo build --release -p conductor".into())
    }
}

/// In a folder of its own, with none of the caller's settings.
fn command(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONDUCTOR_"))
    {
        command.env_remove(name);
    }
    command
}

fn timed(command: &mut Command) -> Outcome<f64> {
    let started = Instant::now();
    let ended = command.status()?;
    let took = milliseconds(started.elapsed());
    if ended.success() { Ok(took) } else { Err(format!("{command:?} ended with {ended}").into()) }
}

/// A running `conductor up`; killed when dropped.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut answer = [0; 12];
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer.ends_with(b"200")
}

fn up(program: &Path, folder: &Path) -> Outcome<(Up, f64)> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let started = Instant::now();
    let child =
        command(program, folder).arg("up").env("CONDUCTOR_LISTEN", format!("127.0.0.1:{port}")).spawn()?;
    let mut up = Up(child);
    while !is_ready(port) {
        if started.elapsed() > Duration::from_secs(10) || up.0.try_wait()?.is_some() {
            return Err("conductor up did not get ready".into());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok((up, milliseconds(started.elapsed())))
}

/// MiB held by a process and its children.
fn resident(process: u32) -> f64 {
    let field = |process: u32, name: &str| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<f64>().ok())
    };
    let children = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        (field(id, "PPid:") == Some(f64::from(process))).then_some(id)
    });
    children.chain([process]).filter_map(|id| field(id, "VmRSS:")).sum::<f64>() / 1024.0
}

pub fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let program = program()?;
    let folder = bench.folder.join("startup");
    std::fs::create_dir_all(&folder)?;
    // Makes the database and the key.
    timed(command(&program, &folder).arg("status"))?;
    let (mut versions, mut statuses, mut nothing) = (vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        versions.push(timed(command(&program, &folder).arg("version"))?);
        statuses.push(timed(command(&program, &folder).arg("status"))?);
        nothing.push(timed(&mut command(Path::new("/bin/true"), &folder))?);
    }
    let (mut ready, mut held) = (vec![], 0.0);
    for round in 0..UPS {
        let (up, took) = up(&program, &folder)?;
        ready.push(took);
        if round + 1 == UPS {
            std::thread::sleep(SETTLED);
            held = resident(up.0.id());
        }
    }
    let mut add = |name: &str, unit, ours: f64, reference, goal: f64| {
        let (name, note) = (name.to_owned(), String::new());
        report.add(Line { name, unit, ours, reference, goal: Goal::AtMost(goal), note });
    };
    add("start: conductor version", "ms", median(&versions), Some(median(&nothing)), 50.0);
    add("start: conductor status, embedded", "ms", median(&statuses), Some(median(&nothing)), 50.0);
    add("start: conductor up, to ready", "ms", median(&ready), Some(median(&nothing)), 50.0);
    add("idle memory of up (server + worker)", "MiB", held, None, 40.0);
    Ok(())
}
