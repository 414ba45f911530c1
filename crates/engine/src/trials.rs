//! Trying an integration: an operation of its own, carried out by any worker that can run programs.

use conductor_api::types::Deployment;
use conductor_domain::{
    ids::{ChangeId, OperationId},
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode, OperationKind},
    needs::Needs,
};
use conductor_store::{
    Result, Tx, changes::NewChange, integrations::IntegrationRow, operations::NewOperation,
};
use serde_json::json;

use crate::{
    Context, Engine, catalogue::payload_owner, integrations::by_name, progress::Progress, refusal::refuse,
};

/// A worker with programs is one with this manager.
const TESTED_BY: &str = "command";

impl Engine {
    /// Has a worker try an integration with the command it names.
    pub async fn test_integration(
        &self,
        name: &str,
        environment: Option<&str>,
        actor: &str,
    ) -> Result<Deployment> {
        let (context, actor) = (self.context.clone(), actor.to_owned());
        let (name, environment) = (name.to_owned(), environment.map(str::to_owned));
        let change = self
            .db
            .write(move |tx| {
                let row = by_name(tx, &context, &name, environment.as_deref())?;
                if !row.document["test"].is_object() {
                    let suggestion =
                        "give it `test: { command: [PROGRAM, ARGUMENT] }`; exit code 0 = it works";
                    let message = format!("integration `{name}` does not say how it is tried; {suggestion}");
                    return Err(refuse(ErrorCode::Invalid, message));
                }
                start_test(tx, &context, &row, &actor)
            })
            .await?;
        self.deployment(change).await
    }
}

fn start_test(tx: &mut Tx<'_>, context: &Context, row: &IntegrationRow, actor: &str) -> Result<ChangeId> {
    let (now, id) = (context.now(), ChangeId(context.ids.next()));
    tx.insert_change(&NewChange {
        environment: row.environment,
        ..context.change(id, ChangeKind::Test, actor, now)
    })?;
    let plan = json!({ "items": [], "removals": [], "warnings": [] });
    tx.start_change(id, ChangeStatus::Pending, ChangeStatus::InProgress, None, 1, &plan, 1, 0, now)?;
    let queue = context.templates.queues.of(tx, &Needs { integrations: true, ..Needs::of(TESTED_BY) })?;
    let operation = OperationId(context.ids.next());
    let owner = payload_owner(context.organisation, &operation);
    let payload = tx.sealer().seal_leaf(owner, &json!({ "integration": row.id }))?;
    tx.insert_operations(&[NewOperation {
        gated: false,
        id: operation,
        organisation: context.organisation,
        change: id,
        plan_number: 1,
        resource: None,
        kind: OperationKind::Test,
        generation: 0,
        conditional: false,
        releasing: false,
        queue: Some(queue),
        open_predecessors: 0,
        retries: 0,
        payload: Some(payload),
        now,
    }])?;
    let told = json!({ "name": row.name, "environment": row.place });
    Progress::new(tx, context, now).event(
        "integration.tested",
        actor,
        Some(id),
        None,
        Some(operation),
        told,
    )?;
    Ok(id)
}
