//! The prepared folder: a module initialised once, then used by every job on it.
//!
//! `init` costs as much as an apply, and what it makes is the same for every resource of a template version.
//! So it is made once per (module, tool, command-line settings), under a file lock, in the place where it
//! stays (installed modules are recorded by absolute path), and marked ready last. Jobs only read it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use conductor_domain::work::{Failure, FailureCode, Level};
use sha2::{Digest, Sha256};

use super::{
    session::{Session, copy_module},
    tool::Tool,
};
use crate::{Allow, Destination, Job, files, pack, text};

const LOCK_FILE: &str = ".terraform.lock.hcl";

#[derive(Debug)]
pub(super) struct Prepared {
    pub folder: PathBuf,
    /// A folder of unpacked providers, where the worker has one.
    pub providers: Option<PathBuf>,
}

impl Prepared {
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub fn settings(&self) -> PathBuf {
        self.folder.join("settings.tfrc")
    }

    fn ready(&self) -> PathBuf {
        self.folder.join("ready")
    }

    /// Has the folder made again by the next job.
    pub fn discard(&self) {
        let _ = fs::remove_file(self.ready());
    }

    /// The lock file that fits the installed providers.
    pub fn copy_lock_file(&self, work: &Path) -> Result<(), Failure> {
        let kept = self.folder.join("lock.hcl");
        if kept.exists() {
            fs::copy(&kept, work.join(LOCK_FILE)).map_err(files::failed("copy", &kept))?;
        }
        Ok(())
    }

    pub async fn get(job: &dyn Job, tool: &Tool, content: &Path) -> Result<Self, Failure> {
        let providers = job.setting("terraform_providers").map(PathBuf::from);
        let settings = settings(providers.as_deref());
        let key =
            [&pack::digest_of_folder(content)?, &tool.identity()?, &settings].map(String::as_str).join("\n");
        let root = job.lasting_folder("terraform")?;
        let name = &text::hex(&Sha256::digest(&key))[..32];
        let prepared = Self { folder: root.join(name), providers };
        if prepared.ready().exists() {
            return Ok(prepared);
        }
        let _lock = lock(job, &root.join(format!("{name}.lock"))).await?;
        if !prepared.ready().exists() {
            prepared.make(job, tool, content, &settings).await?;
        }
        Ok(prepared)
    }

    async fn make(&self, job: &dyn Job, tool: &Tool, content: &Path, settings: &str) -> Result<(), Failure> {
        job.phase("prepare");
        job.log(Level::Info, "preparing the module");
        files::remove_folder(&self.folder)?;
        let work = self.folder.join("init");
        fs::create_dir_all(&work).map_err(files::failed("create", &work))?;
        files::write(&self.settings(), settings.as_bytes(), 0o644)?;
        copy_module(content, &work)?;
        let shipped = work.join(LOCK_FILE).exists();
        let mut allow = Allow { write: vec![self.folder.clone()], ..Allow::default() };
        if self.providers.is_none() {
            // Providers and modules come from registries, whose names are not known beforehand.
            allow.connect.push(Destination { host: "*".to_owned(), port: 443 });
        }
        let session = Session {
            job,
            tool,
            prepared: self,
            work: work.clone(),
            allow,
            grace: crate::config::GRACE,
            backend: None,
        };
        let mut args = vec!["init", "-input=false", "-no-color", "-json"];
        if shipped {
            args.push("-lockfile=readonly");
        }
        session.stream(&args, &[0]).await.map_err(|mut failure| {
            if failure.code == FailureCode::Failed {
                failure.hint.get_or_insert(
                    "the module could not be initialised: check its providers and modules".into(),
                );
            }
            failure
        })?;
        let made = work.join(LOCK_FILE);
        if made.exists() {
            fs::copy(&made, self.folder.join("lock.hcl")).map_err(files::failed("copy", &made))?;
        }
        files::remove_folder(&work)?;
        files::write_through(&self.ready(), b"", 0o644)
    }
}

fn settings(providers: Option<&Path>) -> String {
    let mut text = "disable_checkpoint = true\n".to_owned();
    if let Some(folder) = providers {
        let path = serde_json::Value::from(folder.display().to_string());
        text.push_str(&format!(
            "provider_installation {{\n  filesystem_mirror {{\n    path = {path}\n  }}\n}}\n"
        ));
    }
    text
}

async fn lock(job: &dyn Job, path: &Path) -> Result<fs::File, Failure> {
    let file = fs::File::create(path).map_err(files::failed("create", path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if job.cancelled() => {
                return Err(Failure::new(FailureCode::Cancelled, "cancelled"));
            }
            Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(fs::TryLockError::Error(error)) => return Err(files::failed("lock", path)(error)),
        }
    }
}
