//! What a change would do, as the managers themselves tell it: a change that looks at each resource and moves nothing.

use std::{collections::BTreeSet, sync::Arc};

use conductor_api::types::{Deployment, DeploymentRequest};
use conductor_domain::{
    catalogue::TemplateVersion,
    expr::params_refs,
    ids::{ApplicationId, ChangeId, OperationId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, OperationKind, State, Status},
    plan::{Effect, Intent},
};
use conductor_store::{
    Result, Tx, catalogue::EnvironmentRow, changes::NewChange, operations::NewOperation,
    resources::ResourceRow,
};
use serde_json::{Value, json};

use crate::{
    Context, Engine,
    catalogue::payload_owner,
    changes::{DEFAULT_TIMEOUT_SECONDS, application_or_new, environment, manifest_of, planned},
    planning::{Place, Purpose, plan_now, seal_spec},
    progress::Progress,
    views,
};

/// A resource whose manager is asked: by which version it would be changed, and how.
pub(crate) struct Trial {
    pub of: ResourceRow,
    pub version: Arc<TemplateVersion>,
    /// `set`: parameters that would change; or `spec`: all of them.
    pub given: Value,
}

impl Trial {
    /// Only of what is there can be told what would become of it.
    pub fn can_be_made(of: &ResourceRow, version: &TemplateVersion) -> bool {
        let settled = of.state == State::Provisioned && matches!(of.status, Status::Done | Status::Error);
        version.can_plan && settled
    }
}

/// Asks the managers. The plan so far stands in the change, and their answers come to it.
pub(crate) fn ask_managers(
    tx: &mut Tx<'_>,
    context: &Context,
    planned: &Deployment,
    environment: &EnvironmentRow,
    application: Option<ApplicationId>,
    trials: Vec<Trial>,
    actor: &str,
) -> Result<ChangeId> {
    let (now, id) = (context.now(), ChangeId(context.ids.next()));
    tx.insert_change(&NewChange {
        environment: Some(environment.id),
        application,
        timeout_at: Some(now + DEFAULT_TIMEOUT_SECONDS as i64 * 1_000_000),
        ..context.change(id, ChangeKind::Preview, actor, now)
    })?;
    let told = json!({ "kind": ChangeKind::Preview, "environment": environment.name });
    Progress::new(tx, context, now).event("change.accepted", actor, Some(id), None, None, told)?;
    let plan =
        json!({ "items": planned.resources, "removals": planned.removals, "warnings": planned.warnings });
    let (from, to) = (ChangeStatus::Pending, ChangeStatus::InProgress);
    tx.start_change(id, from, to, None, 1, &plan, trials.len() as i64, 0, now)?;
    let mut operations = Vec::with_capacity(trials.len());
    for Trial { of, version, mut given } in trials {
        let operation = OperationId(context.ids.next());
        given["version"] = json!(version.id);
        let payload = tx.sealer().seal_leaf(payload_owner(context.organisation, &operation), &given)?;
        operations.push(NewOperation {
            id: operation,
            organisation: context.organisation,
            change: id,
            plan_number: 1,
            resource: Some(of.id),
            kind: OperationKind::Plan,
            generation: of.generation,
            conditional: false,
            releasing: false,
            queue: Some(context.templates.queues.of(tx, &version.needs)?),
            gated: false,
            open_predecessors: 0,
            retries: 1,
            payload: Some(payload),
            now,
        });
    }
    tx.insert_operations(&operations)?;
    tx.wake();
    Ok(id)
}

impl Engine {
    /// As [`Engine::plan`], and the managers are asked about what would be updated: a change to wait for, which moves
    /// nothing. Where there is nobody to ask, the plan alone.
    pub async fn plan_deep(&self, request: DeploymentRequest, actor: &str) -> Result<Deployment> {
        let (manifest, name) = manifest_of(&request)?;
        let (context, actor) = (self.context.clone(), actor.to_owned());
        self.db
            .write(move |tx| {
                let environment = environment(tx, &context, &request.environment)?;
                let known = tx.application_by_name(context.organisation, &name)?.map(|row| row.id);
                let place = Place { application: application_or_new(tx, &context, &name)?, environment };
                let intent = Intent::Deploy { manifest: &manifest, image: request.image.as_deref() };
                let (plan, snapshot) = plan_now(tx, &context, &place, &intent, Purpose::Show)?;
                let mut shown = planned(&plan, &snapshot, ChangeKind::Deploy, &place);
                let new: BTreeSet<ResourceId> = plan
                    .effects
                    .iter()
                    .filter_map(|effect| match effect {
                        Effect::Create(new) => Some(new.id),
                        _ => None,
                    })
                    .collect();
                let mut trials = Vec::new();
                for effect in &plan.effects {
                    let Effect::Specify { resource, version, params, .. } = effect else { continue };
                    let (Some(of), Some(version)) = (tx.resource(*resource)?, snapshot.versions.get(version))
                    else {
                        continue;
                    };
                    if !Trial::can_be_made(&of, version) {
                        continue;
                    }
                    if params_refs(params).iter().any(|reference| new.contains(&reference.resource)) {
                        shown.warnings.push(format!(
                            "`{}` takes something from what is made first, so its manager cannot tell yet what it would do",
                            of.name
                        ));
                        continue;
                    }
                    let spec = seal_spec(tx, &context, of.id, version, params)?;
                    trials.push(Trial { of, version: version.clone(), given: json!({ "spec": spec }) });
                }
                if trials.is_empty() {
                    return Ok(shown);
                }
                let change = ask_managers(tx, &context, &shown, &place.environment, known, trials, &actor)?;
                views::deployment(tx, &context, change)
            })
            .await
    }
}
