//! A rendered workload as the files of its folder.

use std::path::{Component, Path, PathBuf};

use conductor_domain::work::{Failure, Step};
use serde_json::{Map, Value, json};

use super::{env_file, service, yaml};
use crate::{outputs::contains_secret, text};

pub(super) struct Document {
    pub files: Vec<File>,
}

pub(super) struct File {
    /// Below the workload's folder.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
    pub mode: u32,
}

impl Document {
    pub fn read(step: &Step) -> Result<Self, Failure> {
        let workload = step.parameters.get("workload").and_then(Value::as_object);
        let workload = workload.ok_or_else(|| Failure::invalid("parameters.workload is missing"))?;
        let containers = workload.get("containers").and_then(Value::as_object).filter(|map| !map.is_empty());
        let containers = containers.ok_or_else(|| Failure::invalid("the workload has no container"))?;
        let mut files = Vec::new();
        let mut services = Map::new();
        let mut volumes = Map::new();
        for (name, container) in containers {
            let container = container
                .as_object()
                .ok_or_else(|| Failure::invalid(format!("containers.{name} must be an object")))?;
            crate::files::name(name)?;
            let env = env_file::write(&service::variables(name, container)?)?;
            files.push(File { path: format!("{name}.env").into(), bytes: env.into_bytes(), mode: 0o600 });
            let mounts = mount_files(name, container, &step.secrets, &mut files)?;
            services.insert(name.clone(), service::service(name, container, mounts, &mut volumes)?);
        }
        service::connect(containers, workload.get("service"), &mut services)?;
        let subject = &step.subject;
        let mut document = json!({
            "name": project(subject.application.as_deref().unwrap_or(&subject.slug), &subject.environment),
            "services": services,
        });
        if !volumes.is_empty() {
            document["volumes"] = Value::Object(volumes);
        }
        let text = yaml::document(&document);
        let mode = if contains_secret(&text, &step.secrets) { 0o600 } else { 0o644 };
        files.push(File { path: "compose.yaml".into(), bytes: text.into_bytes(), mode });
        Ok(Self { files })
    }
}

/// Compose projects are lower case, digits, dashes and underscores.
fn project(application: &str, environment: &str) -> String {
    let kept = |c: char| {
        if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }
    };
    format!("{application}-{environment}").to_lowercase().chars().map(kept).collect()
}

fn mount_files(
    container: &str,
    spec: &Map<String, Value>,
    secrets: &[String],
    files: &mut Vec<File>,
) -> Result<Vec<Value>, Failure> {
    let mut mounts = Vec::new();
    for (target, file) in service::object(spec, "files", container)? {
        let place = format!("containers.{container}.files[{target}]");
        if let Some(source) = file.get("source").and_then(Value::as_str) {
            if !Path::new(source).is_absolute() {
                return Err(Failure::invalid(format!("{place}.source: the worker has no file {source}"))
                    .hint("give the file's text as `content`, or `binaryContent` in base64"));
            }
            mounts.push(bind(source, target));
            continue;
        }
        let bytes = content(file).ok_or_else(|| {
            Failure::invalid(format!("{place} needs `content`, or `binaryContent` in base64"))
        })?;
        let secret = contains_secret(&String::from_utf8_lossy(&bytes), secrets);
        let mode = match file.get("mode").and_then(Value::as_str) {
            Some(mode) => u32::from_str_radix(mode, 8)
                .ok()
                .filter(|mode| *mode <= 0o777)
                .ok_or_else(|| Failure::invalid(format!("{place}.mode `{mode}` is no file mode")))?,
            None if secret => 0o600,
            None => 0o644,
        };
        let path = Path::new("files").join(container).join(below(target, &place)?);
        mounts.push(bind(&format!("./{}", path.display()), target));
        files.push(File { path, bytes, mode });
    }
    Ok(mounts)
}

fn content(file: &Value) -> Option<Vec<u8>> {
    match (file.get("content"), file.get("binaryContent")) {
        (Some(Value::String(text)), None) => Some(text.clone().into_bytes()),
        (None, Some(Value::String(encoded))) => text::from_base64(encoded),
        _ => None,
    }
}

/// The target as a relative path that cannot leave its folder.
fn below(target: &str, place: &str) -> Result<PathBuf, Failure> {
    let mut path = PathBuf::new();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(Failure::invalid(format!("{place}: a target must not hold `..`"))),
        }
    }
    if path.as_os_str().is_empty() {
        return Err(Failure::invalid(format!("{place}: the target is empty")));
    }
    Ok(path)
}

fn bind(source: &str, target: &str) -> Value {
    json!({"type": "bind", "source": source, "target": target, "read_only": true})
}
