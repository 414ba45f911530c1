//! What runs in one environment, taken to another; and an earlier deployment once more.

use std::collections::BTreeMap;

use conductor_api::types::{
    Deployment, DeploymentRequest, Promotion, PromotionDifference, PromotionRequest, Served,
};
use conductor_domain::{
    ids::{ChangeId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode},
};
use conductor_store::{
    Result, Tx,
    changes::{ChangeFilter, ChangeRow},
};

use crate::{
    Context, Engine,
    changes::{asked_of, change, environment, known_application},
    refusal::refuse,
};

/// The last deployment of an application that succeeded somewhere.
fn running(tx: &mut Tx<'_>, context: &Context, application: &str, place: &str) -> Result<ChangeRow> {
    let environment = environment(tx, context, place)?;
    let application = known_application(tx, context, application)?;
    let filter = ChangeFilter {
        kinds: vec![ChangeKind::Deploy],
        environment: Some(environment.id),
        application: Some(application.id),
        status: Some(ChangeStatus::Succeeded),
        limit: 1,
        ..ChangeFilter::default()
    };
    tx.changes(context.organisation, &filter)?.into_iter().next().ok_or_else(|| {
        let message = format!("{} was never deployed to `{place}` with success", application.name);
        refuse(ErrorCode::NotFound, message)
    })
}

/// What was asked for then, for another place.
fn request_of(tx: &mut Tx<'_>, row: &ChangeRow, to: &str) -> Result<DeploymentRequest> {
    let asked = asked_of(tx, row.id)?;
    let manifest = asked.manifest.ok_or_else(|| {
        refuse(ErrorCode::Conflict, format!("{} deployed nothing that could be deployed again", row.id))
    })?;
    Ok(DeploymentRequest {
        environment: to.to_owned(),
        application: row.application_name.clone(),
        manifest,
        commit: row.commit.clone(),
        image: asked.image,
        strict_score: asked.strict,
        timeout_seconds: asked.timeout_seconds,
    })
}

/// Which template version serves each requirement.
fn served(
    tx: &mut Tx<'_>,
    context: &Context,
    items: &[conductor_api::types::PlanItem],
    made: &BTreeMap<ResourceId, Served>,
) -> Result<BTreeMap<String, Served>> {
    let mut served = BTreeMap::new();
    for item in items {
        let by = match made.get(&item.resource) {
            Some(by) => by.clone(),
            None => match tx.resource(item.resource)? {
                Some(row) => {
                    let version = context.templates.get(tx, row.version, None)?;
                    Served { template: version.name.clone(), version: version.version.to_string() }
                }
                None => continue,
            },
        };
        served.insert(item.requirement.clone(), by);
    }
    Ok(served)
}

impl Engine {
    /// What a promotion comes to: the deployment that is promoted, and the one to make of it.
    pub async fn promotion(&self, request: &PromotionRequest) -> Result<(ChangeId, DeploymentRequest)> {
        let context = self.context.clone();
        let (application, from, to) = (request.application.clone(), request.from.clone(), request.to.clone());
        if from == to {
            return Err(refuse(ErrorCode::Invalid, "it is there already: name two environments"));
        }
        self.db
            .read(move |tx| {
                let row = running(tx, &context, &application, &from)?;
                let request = request_of(tx, &row, &to)?;
                Ok((row.id, request))
            })
            .await
    }

    /// Deploys to one environment what runs in another: the same Score file, image and commit.
    pub async fn promote(&self, request: PromotionRequest, actor: &str) -> Result<Promotion> {
        let (source, deployment_request) = self.promotion(&request).await?;
        let (plan, made) = self.plan_with_templates(deployment_request.clone()).await?;
        let there = self.deployment(source).await?;
        let context = self.context.clone();
        let items = (there.resources.clone(), plan.resources.clone());
        let differences = self
            .db
            .read(move |tx| {
                let before = served(tx, &context, &items.0, &BTreeMap::new())?;
                let after = served(tx, &context, &items.1, &made)?;
                let names: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                Ok(names
                    .into_iter()
                    .filter(|name| before.get(*name) != after.get(*name))
                    .map(|name| PromotionDifference {
                        requirement: name.clone(),
                        from: before.get(name).cloned(),
                        to: after.get(name).cloned(),
                    })
                    .collect::<Vec<_>>())
            })
            .await?;
        let deployment = match request.dry_run {
            true => plan,
            false => self.deploy(deployment_request, actor, None).await?,
        };
        Ok(Promotion { source, differences, deployment })
    }

    /// What an earlier deployment did.
    pub async fn redeployment(&self, id: ChangeId) -> Result<DeploymentRequest> {
        let context = self.context.clone();
        self.db
            .read(move |tx| {
                let row = change(tx, &context, id)?;
                let place = row.environment_name.clone().unwrap_or_default();
                if row.kind != ChangeKind::Deploy {
                    return Err(refuse(ErrorCode::Conflict, format!("{id} is a {}, not a deploy", row.kind)));
                }
                request_of(tx, &row, &place)
            })
            .await
    }

    /// Deploys it once more.
    pub async fn redeploy(&self, id: ChangeId, dry_run: bool, actor: &str) -> Result<Deployment> {
        let request = self.redeployment(id).await?;
        if dry_run { self.plan(request).await } else { self.deploy(request, actor, None).await }
    }
}
