//! Running one program of a job: handed to the guard, fed, listened to, and stopped when the job is.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use conductor_domain::work::{Failure, Level};
use conductor_managers::{Exit, LineSink, Program, StopSignal, Stopped};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::oneshot,
};
use uuid::Uuid;

use super::{Halt, JobContext, disk::overfull};
use crate::{
    container::{Container, write_environment},
    guard::{
        Control, Ended, Started,
        wire::{Spec, Why},
    },
    limits::Limit,
    log::Lines,
};

/// A line of standard output goes to the manager whole, up to this.
const LONGEST_OUTPUT: usize = 256 << 20;
/// Somebody outside the tree may hold a pipe open: after the end, silence this long is the end as well.
const SILENCE: Duration = Duration::from_secs(2);
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const CHUNK: usize = 64 << 10;

pub async fn exec(job: &JobContext, program: Program, stdout: LineSink<'_>) -> Result<Exit, Failure> {
    if let Some(halt) = job.halting.halted() {
        return Ok(Exit { code: None, last_line: String::new(), stopped: Some(halt.stopped()) });
    }
    for path in program.allow.read.iter().chain(&program.allow.write).filter(|path| !path.exists()) {
        let text = format!("{} may be used, but is not there", path.display());
        job.book.add_text(Level::Warn, &text);
    }
    let grace = program.grace;
    job.halting.grant(grace);
    let stdin = program.stdin.clone();
    let spec = spec(job, program)?;
    let name = spec.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let spec = match &job.container {
        Some(container) => contain(job, container, spec)?,
        None => spec,
    };
    let guard = job.guard.get().await.map_err(|error| Failure::transient(error.to_string()))?;
    let started = guard
        .run(spec, !stdin.is_empty(), job.halting.deadline(), job.alive.clone())
        .map_err(|error| Failure::transient(format!("the program cannot be started: {error}")))?;
    let Started { control, mut ended, stdin: feed, stdout: out, stderr } = started;

    let (tell_out, out_over) = oneshot::channel();
    let (tell_err, err_over) = oneshot::channel();
    let mut last_line = String::new();
    let watch = async {
        let end = watch(job, &control, grace, &mut ended).await;
        // From here on the pipes are only emptied.
        let _ = tell_out.send(());
        let _ = tell_err.send(());
        end
    };
    let (end, (), (), ()) = tokio::join!(
        watch,
        feed_input(feed, stdin),
        read_output(out, out_over, stdout),
        read_log(job, stderr, err_over, &mut last_line),
    );
    match end {
        Ended::Exited { code, signal, stopped, reached } => {
            check_limits(job, &name, signal, stopped, &reached)?;
            Ok(Exit { code, last_line, stopped: stopped.and_then(stopped_by) })
        }
        Ended::Failed(message) => Err(Failure::failed(message)),
        Ended::GuardGone => Err(Failure::transient("the guard died, and the program with it")),
    }
}

fn stopped_by(why: Why) -> Option<Stopped> {
    match why {
        Why::Cancelled => Some(Stopped::Cancelled),
        Why::TimedOut => Some(Stopped::TimedOut),
        Why::LeaseLost => Some(Stopped::LeaseLost),
        Why::OverLimit(_) => None,
    }
}

/// Fails for a program that was ended because it used too much. What the kernel only refused it is noted in the log:
/// the program itself says what came of that.
fn check_limits(
    job: &JobContext,
    name: &str,
    signal: Option<i32>,
    stopped: Option<Why>,
    reached: &[Limit],
) -> Result<(), Failure> {
    let killed = match (stopped, signal) {
        (Some(Why::OverLimit(limit)), _) => Some(limit),
        (None, Some(libc::SIGXFSZ)) => Some(Limit::FileSize),
        (None, Some(libc::SIGKILL)) => reached.iter().copied().find(|limit| *limit == Limit::Memory),
        _ => None,
    };
    for limit in reached.iter().filter(|limit| Some(**limit) != killed) {
        let text = format!("{name} was kept from using {}", job.limits.exceeded(*limit));
        job.book.add_text(Level::Warn, &text);
    }
    match killed {
        None => Ok(()),
        Some(limit) => {
            let what = job.limits.exceeded(limit);
            Err(Failure::failed(format!("{name} was ended because it used {what}"))
                .hint("a template that needs more says so in its config.limits"))
        }
    }
}

fn spec(job: &JobContext, program: Program) -> Result<Spec, Failure> {
    let path = resolve(&program)?;
    let folder = if program.folder.as_os_str().is_empty() { job.folder.work() } else { program.folder };
    let mut write = program.allow.write;
    write.push(job.folder.work());
    let mut read = program.allow.read;
    read.extend(job.content.clone());
    let mut connect: Vec<u16> = program.allow.connect.iter().map(|destination| destination.port).collect();
    connect.extend(job.door.get().map(|door| door.address().port));
    // What the manager sets counts more than what was handed over.
    let mut env = job.handed.environment(&job.folder.work());
    env.extend(program.env);
    Ok(Spec {
        path,
        args: program.args,
        env,
        folder,
        read,
        write,
        connect,
        limits: job.limits.clone(),
        stop: match program.stop {
            StopSignal::Interrupt => libc::SIGINT,
            StopSignal::Terminate => libc::SIGTERM,
        },
        container: None,
        deadline_grace_ms: program.grace.min(job.halting.deadline_grace()).as_millis() as u64,
    })
}

fn contain(job: &JobContext, container: &Container, spec: Spec) -> Result<Spec, Failure> {
    let name = format!("conductor-{}", Uuid::now_v7());
    let env_file = job.folder.beside("environment");
    write_environment(&env_file, &spec).map_err(|error| {
        Failure::failed(format!("the program's environment cannot be handed over: {error}"))
    })?;
    Ok(container.wrap(spec, &name, &env_file, &|name| job.settings.get(name).cloned()))
}

/// A bare name is looked up in the program's own PATH; a relative path starts at its folder.
fn resolve(program: &Program) -> Result<PathBuf, Failure> {
    let path = &program.path;
    if path.is_absolute() {
        return Ok(path.clone());
    }
    if path.components().count() > 1 {
        return Ok(program.folder.join(path));
    }
    let folders = program.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    folders.split(':').map(|folder| Path::new(folder).join(path)).find(|path| path.is_file()).ok_or_else(
        || {
            Failure::failed(format!("there is no program `{}`", path.display()))
                .hint(format!("it was looked for in {folders}"))
        },
    )
}

/// Waits for the end. Passes the job's deadline on, and its stop request.
async fn watch(
    job: &JobContext,
    control: &Control,
    grace: Duration,
    ended: &mut oneshot::Receiver<Ended>,
) -> Ended {
    let (mut deadlines, mut halts) = (job.halting.deadlines(), job.halting.halts());
    let mut overfull = std::pin::pin!(overfull(job.folder.work(), job.limits.disk, control));
    let mut full = false;
    // It may have moved on between the start and now.
    deadlines.mark_changed();
    halts.mark_changed();
    loop {
        tokio::select! {
            end = &mut *ended => return end.unwrap_or(Ended::GuardGone),
            () = &mut overfull, if !full => {
                full = true;
                control.stop(None, Why::OverLimit(Limit::Disk));
            }
            Ok(()) = deadlines.changed() => control.extend(*deadlines.borrow_and_update()),
            Ok(()) = halts.changed() => match *halts.borrow_and_update() {
                None => {}
                Some(Halt::Lost) => control.stop(None, Why::LeaseLost),
                Some(Halt::LeaseLost) => control.stop(Some(grace.min(job.halting.deadline_grace())), Why::LeaseLost),
                Some(halt) => control.stop(Some(grace), halt.why()),
            },
        }
    }
}

async fn feed_input(feed: Option<pipe::Sender>, input: Vec<u8>) {
    if let Some(mut feed) = feed {
        // A program need not read what it is given.
        let _ = feed.write_all(&input).await;
    }
}

/// The next bytes; nothing at the end of the pipe, or in the silence after the program's end.
async fn read_some(
    pipe: &mut pipe::Receiver,
    chunk: &mut [u8],
    over: &mut Option<oneshot::Receiver<()>>,
) -> usize {
    loop {
        match over {
            None => {
                let read = tokio::time::timeout(SILENCE, pipe.read(chunk)).await;
                return read.ok().and_then(Result::ok).unwrap_or(0);
            }
            Some(ended) => tokio::select! {
                read = pipe.read(chunk) => return read.unwrap_or(0),
                _ = ended => *over = None,
            },
        }
    }
}

async fn read_output(mut pipe: pipe::Receiver, over: oneshot::Receiver<()>, sink: LineSink<'_>) {
    let (mut chunk, mut lines, mut over) = (vec![0; CHUNK], Lines::default(), Some(over));
    let mut each = |line: &[u8], _| sink(&String::from_utf8_lossy(line));
    loop {
        match read_some(&mut pipe, &mut chunk, &mut over).await {
            0 => return lines.finish(&mut each),
            read => lines.push(&chunk[..read], LONGEST_OUTPUT, &mut each),
        }
    }
}

async fn read_log(
    job: &JobContext,
    mut pipe: pipe::Receiver,
    over: oneshot::Receiver<()>,
    last: &mut String,
) {
    let (mut chunk, mut lines, mut over) = (vec![0; CHUNK], Lines::default(), Some(over));
    let mut each = |line: &[u8], length| {
        let kept = job.book.add(Level::Info, "stderr", line, length);
        if !kept.trim().is_empty() {
            *last = kept;
        }
    };
    loop {
        match read_some(&mut pipe, &mut chunk, &mut over).await {
            0 => return lines.finish(&mut each),
            read => lines.push(&chunk[..read], job.book.keep(), &mut each),
        }
        let mut halts = job.halting.halts();
        tokio::select! {
            () = job.book.room() => {}
            // Nothing is sent any more. The program is being killed: what is left is bounded by the pipe.
            _ = halts.wait_for(|halt| *halt == Some(Halt::Lost)) => {}
        }
    }
}
