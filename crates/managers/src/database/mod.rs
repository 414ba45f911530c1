//! The `database` manager: a database of its own for each resource.
//!
//! Engine `sqlite` keeps a file on the worker, engine `postgres` makes a role and a database on a server.

mod postgres;
mod sqlite;

use std::collections::BTreeMap;

use async_trait::async_trait;
use conductor_domain::work::{Description, Done, Failure, Step, StepKind};
use serde_json::json;

use crate::{Described, Job, Manager, TemplateSource, config::Config};

const KEYS: [&str; 3] = ["engine", "server", "serverEnv"];
const ENGINES: [&str; 2] = ["sqlite", "postgres"];

#[derive(Clone, Copy, Debug, Default)]
pub struct Database;

#[async_trait]
impl Manager for Database {
    fn name(&self) -> &'static str {
        "database"
    }

    async fn describe(&self, job: &dyn Job, template: &TemplateSource) -> Result<Described, Failure> {
        let config = Config(&template.config);
        config.check(&KEYS)?;
        let outputs: &[(&str, bool)] = match engine(config)? {
            "sqlite" => {
                if let Some(key) =
                    ["server", "serverEnv"].iter().find(|key| template.config.contains_key(**key))
                {
                    return Err(Failure::invalid(format!(
                        "config.{key} has no meaning with engine `sqlite`"
                    )));
                }
                &sqlite::OUTPUTS
            }
            _ => {
                postgres::server(job, config)?;
                &postgres::OUTPUTS
            }
        };
        let any = || json!({"type": "object", "properties": {}, "additionalProperties": true});
        let outputs: BTreeMap<_, _> =
            outputs.iter().map(|(name, sensitive)| ((*name).to_owned(), *sensitive)).collect();
        let description = Description {
            parameters: Some(template.parameters.clone().unwrap_or_else(any)),
            outputs: Some(outputs),
            can_observe: true,
            can_plan: false,
        };
        Ok(Described { description, content: None })
    }

    async fn run(&self, job: &dyn Job, step: &Step) -> Result<Done, Failure> {
        if step.kind == StepKind::Plan {
            return Err(Failure::unsupported("the database manager has no plan of its own"));
        }
        let config = Config(&step.config);
        match engine(config)? {
            "sqlite" => sqlite::run(job, step).await,
            _ => postgres::run(job, step, config).await,
        }
    }
}

fn engine(config: Config<'_>) -> Result<&'static str, Failure> {
    if config.text("engine")?.is_none() {
        return Err(
            Failure::invalid("config.engine is missing").hint(format!("known are: {}", ENGINES.join(", ")))
        );
    }
    config.choice("engine", &ENGINES)
}
