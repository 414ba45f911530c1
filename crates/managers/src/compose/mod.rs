//! The `compose` manager: a workload becomes a folder that `docker compose` or `podman compose` can start.
//!
//! The folder is always whole: it is written beside its place and put there in one step, so that whoever
//! looks sees the old one or the new one. Values of variables stand in files that only the owner can read.

mod document;
mod env_file;
mod service;
mod yaml;

use std::{
    fs,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use conductor_domain::work::{Description, Done, Failure, Level, Output, Step, StepKind};
use serde_json::json;

use crate::{Described, Job, Manager, TemplateSource, config::Config, files};

use document::Document;

#[derive(Clone, Copy, Debug, Default)]
pub struct Compose;

#[async_trait]
impl Manager for Compose {
    fn name(&self) -> &'static str {
        "compose"
    }

    async fn describe(&self, _job: &dyn Job, template: &TemplateSource) -> Result<Described, Failure> {
        Config(&template.config).check(&[])?;
        let schema = || {
            json!({
                "type": "object",
                "properties": {"workload": {"type": "object"}},
                "required": ["workload"],
            })
        };
        let description = Description {
            parameters: Some(template.parameters.clone().unwrap_or_else(schema)),
            outputs: Some([("path".to_owned(), false), ("compose".to_owned(), false)].into()),
            can_observe: true,
            can_plan: false,
        };
        Ok(Described { description, content: None })
    }

    async fn run(&self, job: &dyn Job, step: &Step) -> Result<Done, Failure> {
        let place = Place::of(job, step)?;
        match step.kind {
            StepKind::Create | StepKind::Update => {
                let document = Document::read(step)?;
                let done = place.done();
                let folder = place.folder.display().to_string();
                files::blocking(move || place.write(&document)).await?;
                job.log(Level::Info, &format!("written to {folder}"));
                Ok(done)
            }
            StepKind::Delete => {
                files::blocking(move || {
                    place.remove()?;
                    Ok(Done { exists: Some(place.folder.exists()), ..Done::default() })
                })
                .await
            }
            StepKind::Observe => match place.folder.join("compose.yaml").is_file() {
                true => Ok(place.done()),
                false => Ok(Done { exists: Some(false), ..Done::default() }),
            },
            StepKind::Plan => Err(Failure::unsupported("the compose manager has no plan of its own")),
        }
    }
}

/// Where one workload's folder stands.
struct Place {
    folder: PathBuf,
    /// Beside it, for what is being written or removed.
    aside: PathBuf,
}

impl Place {
    fn of(job: &dyn Job, step: &Step) -> Result<Self, Failure> {
        let subject = &step.subject;
        let root = job.lasting_folder("environments")?;
        let root = root.canonicalize().map_err(files::failed("find", &root))?;
        let parent = root.join(files::name(&subject.environment)?);
        let name = files::name(subject.application.as_deref().unwrap_or(&subject.slug))?;
        Ok(Self { folder: parent.join(name), aside: parent.join(format!(".{name}.new")) })
    }

    fn done(&self) -> Done {
        let output = |path: &Path| Output { value: path.display().to_string().into(), sensitive: false };
        let outputs = [
            ("path".to_owned(), output(&self.folder)),
            ("compose".to_owned(), output(&self.folder.join("compose.yaml"))),
        ];
        Done { outputs: outputs.into(), exists: Some(true), ..Done::default() }
    }

    fn write(&self, document: &Document) -> Result<(), Failure> {
        // What an interrupted step left.
        files::remove_folder(&self.aside)?;
        fs::create_dir_all(&self.aside).map_err(files::failed("create", &self.aside))?;
        for file in &document.files {
            let path = self.aside.join(&file.path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(files::failed("create", parent))?;
            }
            files::write_through(&path, &file.bytes, file.mode)?;
        }
        files::replace_folder(&self.aside, &self.folder)
    }

    fn remove(&self) -> Result<(), Failure> {
        files::remove_folder(&self.aside)?;
        if self.folder.exists() {
            fs::rename(&self.folder, &self.aside).map_err(files::failed("remove", &self.folder))?;
            files::remove_folder(&self.aside)?;
        }
        Ok(())
    }
}
