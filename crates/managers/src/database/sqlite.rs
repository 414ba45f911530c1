//! A SQLite database: one file on the worker that only its owner can read.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use conductor_domain::work::{Done, Failure, Output, Step, StepKind};

use crate::{Job, Level, files, text};

pub(super) const OUTPUTS: [(&str, bool); 2] = [("path", false), ("url", false)];

pub(super) async fn run(job: &dyn Job, step: &Step) -> Result<Done, Failure> {
    let path = match recorded(step) {
        Some(path) => path,
        None => place(job, step)?,
    };
    if step.kind != StepKind::Create && path != place(job, step)? && !path.exists() {
        // Not here is not the same as gone.
        let message = format!("{} is not on this machine: another worker made it", path.display());
        return Err(Failure::failed(message).hint("start a worker where it was made"));
    }
    match step.kind {
        StepKind::Create | StepKind::Update => {
            if step.kind == StepKind::Update && !path.exists() {
                job.log(Level::Warn, &format!("{} is gone: making an empty database", path.display()));
            }
            let file = path.clone();
            files::blocking(move || create(&file)).await?;
            job.log(Level::Info, &format!("database ready at {}", path.display()));
            Ok(Done { exists: Some(true), ..describe(&path) })
        }
        StepKind::Delete => {
            let file = path.clone();
            files::blocking(move || delete(&file)).await?;
            job.log(Level::Info, &format!("database {} removed", path.display()));
            Ok(Done { exists: Some(path.exists()), ..Done::default() })
        }
        StepKind::Observe | StepKind::Plan => match path.is_file() {
            true => Ok(Done { exists: Some(true), ..describe(&path) }),
            false => Ok(Done { exists: Some(false), ..Done::default() }),
        },
    }
}

/// Where the last success left it, which may have been another worker's.
fn recorded(step: &Step) -> Option<PathBuf> {
    step.previous.as_ref()?.outputs.get("path")?.as_str().map(PathBuf::from)
}

fn place(job: &dyn Job, step: &Step) -> Result<PathBuf, Failure> {
    let folder = job.lasting_folder("databases")?;
    let folder = folder.canonicalize().map_err(files::failed("find", &folder))?;
    let environment = files::name(&step.subject.environment)?;
    Ok(folder.join(environment).join(format!("{}.db", files::name(&step.subject.slug)?)))
}

fn describe(path: &Path) -> Done {
    let plain = |value: String| Output { value: value.into(), sensitive: false };
    let shown = path.display().to_string();
    let url = format!("sqlite://{}", text::percent_path(&shown));
    Done {
        outputs: [("path".to_owned(), plain(shown.clone())), ("url".to_owned(), plain(url))].into(),
        external_id: Some(shown),
        ..Done::default()
    }
}

/// Makes the file before SQLite does, so that it is never readable by others, and leaves what it holds.
fn create(path: &Path) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(files::failed("create", folder))?;
    }
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(files::failed("create", path))?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(files::failed("protect", path))?;
    initialise(path).map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            Failure::transient(format!("{} is in use: {error}", path.display()))
        }
        _ => Failure::failed(format!("cannot make a database of {}: {error}", path.display())),
    })
}

fn initialise(path: &Path) -> rusqlite::Result<()> {
    let connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    // Writes the header, which makes the file a database.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)
}

fn delete(path: &Path) -> Result<(), Failure> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(files::failed("remove", Path::new(&name))(error));
            }
            _ => {}
        }
    }
    Ok(())
}
