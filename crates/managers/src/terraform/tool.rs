//! Which program is run: terraform or tofu, and of those the version the template is for.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use conductor_domain::{needs::WantedVersion, semver::Version, work::Failure};
use sha2::{Digest, Sha256};

use crate::{
    Allow, Job, Program, StopSignal,
    config::{Config, GRACE, hint},
    files, program, text,
    tools::{TOOLS, VERSION_ARGS, read_version, side_by_side},
};

/// The program that is run, terraform or tofu.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub path: PathBuf,
    pub tofu: bool,
}

impl Tool {
    /// What the template asks for, else what the worker is set to, else the first one on PATH.
    pub async fn find(job: &dyn Job, config: Config<'_>) -> Result<Self, Failure> {
        let asked = config.text("tool")?.map(str::to_owned).or_else(|| job.setting("terraform_tool"));
        let wanted = config.text("toolVersion")?.map(str::parse::<WantedVersion>).transpose();
        let wanted = wanted.map_err(|error| Failure::invalid(format!("config.toolVersion: {error}")))?;
        let (names, path): (Vec<&str>, _) = match asked.as_deref() {
            Some(path) if path.starts_with('/') => {
                (vec![path], Some(PathBuf::from(path)).filter(|path| program::is_program(path)))
            }
            Some(name @ ("terraform" | "tofu")) => (vec![name], program::find(job, name)),
            Some(other) => {
                return Err(Failure::invalid(format!("config.tool `{other}` is not known"))
                    .hint(hint(other, &TOOLS) + ", or an absolute path"));
            }
            None => (TOOLS.to_vec(), TOOLS.iter().find_map(|name| program::find(job, name))),
        };
        let path = match wanted {
            Some(wanted) => Some(of_version(job, &names, &wanted).await?),
            None => path,
        };
        let Some(path) = path else {
            let name = asked.as_deref().unwrap_or("terraform or tofu");
            return Err(Failure::failed(format!("the worker has no {name}"))
                .hint("install it on the worker's PATH, or name it in config.tool by its absolute path"));
        };
        let path = path.canonicalize().unwrap_or(path);
        let tofu = path.file_name().is_some_and(|name| name.to_string_lossy().contains("tofu"));
        Ok(Self { path, tofu })
    }

    /// Changes whenever the program does.
    pub fn identity(&self) -> Result<String, Failure> {
        identity(&self.path)
    }
}

fn identity(path: &Path) -> Result<String, Failure> {
    let info = fs::metadata(path).map_err(files::failed("read", path))?;
    Ok(format!("{} {} {}.{}", path.display(), info.len(), info.mtime(), info.mtime_nsec()))
}

/// The newest that will do: one whose place says its version, else the one of the plain name.
async fn of_version(job: &dyn Job, names: &[&str], wanted: &WantedVersion) -> Result<PathBuf, Failure> {
    let folder = job.setting("tools").map(PathBuf::from);
    let mut seen = Vec::new();
    for name in names.iter().filter(|name| !name.starts_with('/')) {
        let mut found = side_by_side(&program::search_path(job), folder.as_deref(), name);
        seen.extend(found.keys().map(|version| format!("{name} {version}")));
        found.retain(|version, _| wanted.allows(version));
        if let Some((_, path)) = found.pop_last() {
            return Ok(path);
        }
    }
    for name in names {
        let path = if name.starts_with('/') { Some(PathBuf::from(name)) } else { program::find(job, name) };
        if let Some(path) = path.filter(|path| program::is_program(path)) {
            let version = version_of(job, &path).await?;
            if wanted.allows(&version) {
                return Ok(path);
            }
            seen.push(format!("{name} {version}"));
        }
    }
    let (tool, has) = (names.join(" or "), if seen.is_empty() { "none".to_owned() } else { seen.join(", ") });
    let example = names.iter().find(|name| !name.starts_with('/')).unwrap_or(&"tofu");
    Err(Failure::failed(format!("this template is for {tool} {wanted}; the worker has {has}")).hint(format!(
        "install it on the worker as `{example}-VERSION` on its PATH or as $CONDUCTOR_TOOLS/{example}/VERSION/{example}"
    )))
}

/// Asked once per program, and kept.
async fn version_of(job: &dyn Job, path: &Path) -> Result<Version, Failure> {
    let path = path.canonicalize().map_err(files::failed("read", path))?;
    let name = &text::hex(&Sha256::digest(identity(&path)?))[..32];
    let kept = job.lasting_folder("terraform")?.join(format!("{name}.version"));
    if let Some(version) = fs::read_to_string(&kept).ok().and_then(|text| text.trim().parse().ok()) {
        return Ok(version);
    }
    let mut env = program::environment(job);
    env.insert("CHECKPOINT_DISABLE".to_owned(), "1".to_owned());
    let program = Program {
        args: VERSION_ARGS.map(str::to_owned).into(),
        env,
        folder: job.folder(),
        stdin: Vec::new(),
        stop: StopSignal::Interrupt,
        grace: GRACE,
        allow: Allow { read: vec![path.clone()], ..Allow::default() },
        path: path.clone(),
    };
    let mut answer = program::Collected::new(1 << 20);
    let exit = job.exec(program, &mut |line| answer.line(line)).await?;
    program::stopped(&exit)?;
    let version = read_version(answer.text())
        .ok_or_else(|| Failure::failed(format!("{} does not say which version it is", path.display())))?;
    files::write_through(&kept, version.to_string().as_bytes(), 0o644)?;
    Ok(version)
}
