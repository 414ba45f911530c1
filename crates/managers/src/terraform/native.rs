//! A backend of the environment's own: terraform speaks to it itself, and we keep nothing.
//!
//! The block differs from resource to resource, and `init` writes it into the data folder. So a job gets a data
//! folder of its own, in which the prepared providers and modules are only linked.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use conductor_domain::{
    state_backend::BackendBlock,
    work::{Failure, FailureCode},
};
use serde_json::{Map, Value, json};

use crate::{Allow, Destination, Job, Shared, files};

/// Only the backend: providers and modules are there.
pub(super) const INIT: [&str; 7] =
    ["init", "-input=false", "-no-color", "-json", "-reconfigure", "-get=false", "-lockfile=readonly"];

/// `HOST/NAMESPACE/TYPE/VERSION/PLATFORM`.
const PROVIDER_DEPTH: usize = 5;

pub(super) struct Native {
    block: BackendBlock,
    data: PathBuf,
    allow: Allow,
}

impl Native {
    pub fn new(job: &dyn Job, block: &BackendBlock) -> Result<Self, Failure> {
        let mut allow = match &block.allow {
            Some(allow) => Shared::read(&Map::from_iter([("allow".to_owned(), allow.clone())]))?.allow,
            None => Allow::default(),
        };
        allow.connect.extend(destinations(block));
        if block.kind == "local"
            && let Some(folder) = block.config["path"].as_str().map(Path::new).and_then(Path::parent)
        {
            fs::create_dir_all(folder).map_err(files::failed("create", folder))?;
            allow.write.push(folder.to_owned());
        }
        Ok(Self { block: block.clone(), data: job.folder().join("data"), allow })
    }

    /// Writes the block, and links what is prepared.
    pub fn lay_out(&self, file: &Path, prepared: &Path) -> Result<(), Failure> {
        let block = json!({ "terraform": { "backend": { &self.block.kind: self.block.config } } });
        files::write(file, block.to_string().as_bytes(), 0o600)?;
        files::remove_folder(&self.data)?;
        fs::create_dir_all(&self.data).map_err(files::failed("create", &self.data))?;
        let modules = prepared.join("modules");
        if modules.exists() {
            let link = self.data.join("modules");
            symlink(&modules, &link).map_err(files::failed("create", &link))?;
        }
        let providers = prepared.join("providers");
        if providers.exists() {
            link_packages(&providers, &self.data.join("providers"), PROVIDER_DEPTH)?;
        }
        Ok(())
    }

    pub fn widen(&self, allow: &mut Allow) {
        allow.read.extend(self.allow.read.iter().cloned());
        allow.write.extend(self.allow.write.iter().cloned());
        allow.connect.extend(self.allow.connect.iter().cloned());
    }

    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut env = self.block.env.clone();
        env.insert("TF_DATA_DIR".to_owned(), self.data.display().to_string());
        env
    }
}

/// Folders down to the packages, which are linked: the tool follows links there and nowhere above.
fn link_packages(from: &Path, to: &Path, depth: usize) -> Result<(), Failure> {
    if depth == 0 {
        let target = from.canonicalize().map_err(files::failed("read", from))?;
        return symlink(target, to).map_err(files::failed("create", to));
    }
    fs::create_dir_all(to).map_err(files::failed("create", to))?;
    for entry in fs::read_dir(from).map_err(files::failed("read", from))? {
        let entry = entry.map_err(files::failed("read", from))?;
        link_packages(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
    }
    Ok(())
}

/// Where the tool has to get through to: every address in the block, and the services behind the well-known ones.
fn destinations(block: &BackendBlock) -> Vec<Destination> {
    let mut found = Vec::new();
    for value in block.config.values() {
        collect(value, &mut found);
    }
    block.env.values().filter_map(|text| destination(text)).for_each(|one| found.push(one));
    if matches!(block.kind.as_str(), "s3" | "azurerm" | "gcs" | "remote") {
        found.push(Destination { host: "*".to_owned(), port: 443 });
    }
    found
}

fn collect(value: &Value, found: &mut Vec<Destination>) {
    match value {
        Value::String(text) => found.extend(destination(text)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(entries) => entries.values().for_each(|entry| collect(entry, found)),
        _ => {}
    }
}

fn destination(text: &str) -> Option<Destination> {
    let (scheme, rest) = text.split_once("://")?;
    let usual = match scheme {
        "https" => 443,
        "http" => 80,
        "postgres" | "postgresql" => 5432,
        _ => return None,
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().unwrap_or(usual)),
        None => (host, usual),
    };
    Some(Destination { host: host.to_owned(), port })
}

/// The backend is the environment's, not the module's: say so.
pub(super) fn unreachable(mut failure: Failure) -> Failure {
    if failure.code == FailureCode::Failed {
        failure.hint.get_or_insert("terraform could not use the backend in the environment's `state`".into());
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_the_addresses() {
        let port = |text| destination(text).map(|one: Destination| (one.host, one.port));
        assert_eq!(port("postgres://u:p@h:6000/d?x"), Some(("h".into(), 6000)));
        assert_eq!(port("postgres://h/d"), Some(("h".into(), 5432)));
        assert_eq!(port("https://minio.example"), Some(("minio.example".into(), 443)));
        assert_eq!(port("bucket"), None);
    }
}
