//! Backends of an environment's own. Where states are must not change under resources that have one: terraform
//! would find nothing there, and make everything a second time.

use conductor_domain::{
    ids::{EnvironmentId, OrganisationId},
    lifecycle::ErrorCode,
    state_backend::{BackendBlock, StateBackend},
};
use conductor_store::{Owner, Result, Tx, catalogue::EnvironmentRow, resources::ResourceRow};
use serde_json::Value;

use crate::{
    catalogue::{invalid, read},
    refusal::refuse,
};

const KEY: &str = "state";

fn owner(organisation: OrganisationId, id: &EnvironmentId) -> Owner<'_> {
    Owner { organisation, kind: "environment-state", id: id.0.as_bytes() }
}

/// Reads `state:` of an environment document and refuses what could not work.
pub(crate) fn parse_backend(environment: &str, state: Option<&Value>) -> Result<Option<StateBackend>> {
    let Some(state) = state else { return Ok(None) };
    let backend: StateBackend = read("Environment", &format!("{environment}.{KEY}"), state)?;
    backend.check().map_err(|problem| {
        let message = format!("{KEY}.{}: {}", problem.path, problem.message);
        invalid(&format!("Environment {environment}"), message, problem.suggestion)
    })?;
    Ok(Some(backend))
}

/// A backend's config holds credentials, so it is sealed whole.
pub(crate) fn seal_environment(
    tx: &Tx<'_>,
    organisation: OrganisationId,
    id: EnvironmentId,
    document: &Value,
) -> Result<Value> {
    let mut document = document.clone();
    if let Some(state) = document.get_mut(KEY) {
        *state = tx.sealer().seal_leaf(owner(organisation, &id), state)?;
    }
    Ok(document)
}

/// An environment's document as it was applied.
pub(crate) fn open_environment(
    tx: &Tx<'_>,
    organisation: OrganisationId,
    row: &EnvironmentRow,
) -> Result<Value> {
    let mut document = row.document.clone();
    if let Some(state) = document.get_mut(KEY) {
        *state = tx.sealer().open_leaf(owner(organisation, &row.id), state)?;
    }
    Ok(document)
}

fn backend(tx: &Tx<'_>, organisation: OrganisationId, row: &EnvironmentRow) -> Result<Option<StateBackend>> {
    let document = open_environment(tx, organisation, row)?;
    parse_backend(&row.name, document.get(KEY))
}

/// The backend block of a resource, and the secrets in it; none where the state is kept here.
pub(crate) fn backend_of(tx: &mut Tx<'_>, row: &ResourceRow) -> Result<Option<(BackendBlock, Vec<String>)>> {
    let Some(environment) = tx.environment(row.environment)? else { return Ok(None) };
    if environment.document.get(KEY).is_none() {
        return Ok(None);
    }
    let backend = backend(tx, row.organisation, &environment)?;
    Ok(backend.map(|backend| (backend.of(&environment.name, &row.slug), backend.secrets())))
}

pub(crate) fn refuse_to_lose_states(
    tx: &mut Tx<'_>,
    organisation: OrganisationId,
    before: &EnvironmentRow,
    after: Option<&StateBackend>,
) -> Result<()> {
    let known = backend(tx, organisation, before)?;
    if known.as_ref().map(StateBackend::identity) == after.map(StateBackend::identity) {
        return Ok(());
    }
    let there = tx.resources_with_state(before.id)?;
    if there.is_empty() {
        return Ok(());
    }
    let place = known.map_or_else(|| "Conductor".to_owned(), |known| format!("`{}`", known.kind()));
    let message = format!(
        "Environment {}.{KEY}: the states of {} are kept by {place}, and would not be found elsewhere; \
         destroy what is there first, or use another environment",
        before.name,
        there.join(", ")
    );
    Err(refuse(ErrorCode::Conflict, message))
}
