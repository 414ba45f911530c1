//! Who may do what, and where.
//!
//! A grant is a role on the organisation, an environment, an application, or an application in an environment, and
//! covers what lies within. What somebody may not see is not there for them; what they see and may not do is refused
//! with the role that it takes.

use conductor_api::types::{DeploymentRequest, DestroyRequest, Drift, DriftRequest};
use conductor_domain::{
    ids::{ApplicationId, ApprovalId, ChangeId, EnvironmentId, OperationId, ProposalId, ResourceId},
    lifecycle::{ChangeKind, ErrorCode, OperationKind, State},
    score::Reference,
};
use conductor_store::{
    Error, Result, Tx,
    sight::{ResourcePlaces, SeenPlace, Sight},
};
use serde_json::Value;

use crate::{
    Context, Engine,
    approvals::Gatekeeper,
    changes::{self, parse_manifest},
    refusal::{not_found, refuse},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Read,
    Write,
    Admin,
    Owner,
    Worker,
}

impl Role {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "read" => Self::Read,
            "write" => Self::Write,
            "admin" => Self::Admin,
            "owner" => Self::Owner,
            "worker" => Self::Worker,
            _ => return None,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Owner => "owner",
            Self::Worker => "worker",
        }
    }
}

/// A role, and where it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub role: Role,
    /// `None` = in all of them.
    pub environment: Option<(EnvironmentId, String)>,
    pub application: Option<(ApplicationId, String)>,
}

impl Grant {
    fn is(&self, wanted: Role) -> bool {
        match wanted {
            Role::Worker => self.role == Role::Worker,
            wanted => self.role != Role::Worker && self.role >= wanted,
        }
    }

    fn covers(&self, environment: Option<&str>, application: Option<&str>) -> bool {
        let within = |held: Option<&str>, asked: Option<&str>| held.is_none_or(|held| asked == Some(held));
        within(self.environment.as_ref().map(|(_, name)| name.as_str()), environment)
            && within(self.application.as_ref().map(|(_, name)| name.as_str()), application)
    }
}

/// Who is asking.
#[derive(Clone, Debug)]
pub struct Principal {
    pub name: String,
    pub grants: Vec<Grant>,
}

/// A place as people say it.
fn place(environment: Option<&str>, application: Option<&str>) -> String {
    match (environment, application) {
        (None, None) => "the organisation".to_owned(),
        (Some(environment), None) => format!("environment `{environment}`"),
        (None, Some(application)) => format!("application `{application}`"),
        (Some(environment), Some(application)) => {
            format!("application `{application}` in environment `{environment}`")
        }
    }
}

impl Principal {
    /// One with these roles on the whole organisation.
    pub fn everywhere(name: &str, roles: &[Role]) -> Self {
        let grant = |role: &Role| Grant { role: *role, environment: None, application: None };
        Self { name: name.to_owned(), grants: roles.iter().map(grant).collect() }
    }

    /// Whether they hold this role, or a greater one, there. `None` is the organisation as a whole, and an environment
    /// without an application is all of it.
    pub fn may(&self, wanted: Role, environment: Option<&str>, application: Option<&str>) -> bool {
        self.grants.iter().any(|grant| grant.is(wanted) && grant.covers(environment, application))
    }

    pub fn may_everywhere(&self, wanted: Role) -> bool {
        self.may(wanted, None, None)
    }

    /// Whether they hold it in some place at least.
    pub fn may_somewhere(&self, wanted: Role) -> bool {
        self.grants.iter().any(|grant| grant.is(wanted))
    }

    /// Where somebody has to agree, who may write may ask for it; else it takes an administrator.
    pub fn may_destroy(
        &self,
        environment: Option<&str>,
        application: Option<&str>,
        approval_required: bool,
    ) -> bool {
        self.may(destroying(approval_required), environment, application)
    }

    /// A no that names the role that is missing, and on what.
    pub fn needs(&self, wanted: Role, environment: Option<&str>, application: Option<&str>) -> Result<()> {
        if self.may(wanted, environment, application) {
            return Ok(());
        }
        Err(self.lacks(wanted, &place(environment, application)))
    }

    /// As [`Principal::may_destroy`], as a refusal.
    pub fn needs_to_destroy(
        &self,
        environment: Option<&str>,
        application: Option<&str>,
        approval_required: bool,
    ) -> Result<()> {
        self.needs(destroying(approval_required), environment, application)
    }

    fn lacks(&self, wanted: Role, on: &str) -> Error {
        let role = match wanted {
            Role::Admin => "admin or owner",
            other => other.as_str(),
        };
        let message = format!("`{}` may not do this: it takes the role {role} on {on}", self.name);
        refuse(ErrorCode::PermissionDenied, message)
    }

    /// What lists are narrowed to.
    pub fn sight(&self) -> Sight {
        if self.may_everywhere(Role::Read) {
            return Sight::Everything;
        }
        let seen = self.grants.iter().filter(|grant| grant.is(Role::Read)).map(|grant| SeenPlace {
            environment: grant.environment.as_ref().map(|(id, _)| *id),
            application: grant.application.as_ref().map(|(id, _)| *id),
        });
        Sight::Places(seen.collect())
    }

    fn sees(&self, resource: &ResourcePlaces) -> bool {
        let may = |(environment, application): &(Option<String>, Option<String>)| {
            self.may(Role::Read, environment.as_deref(), application.as_deref())
        };
        self.may(Role::Read, Some(&resource.environment), None)
            || may(&resource.maker)
            || resource.users.iter().any(may)
    }

    /// What a deployment made belongs to those who use it, all of them together; what somebody made by hand, to them
    /// for as long as they may write there.
    fn may_touch(&self, resource: &ResourcePlaces, wanted: Role) -> bool {
        let there = Some(resource.environment.as_str());
        let may = |(environment, application): &(Option<String>, Option<String>)| {
            self.may(wanted, environment.as_deref(), application.as_deref())
        };
        if self.may(wanted, there, None) {
            return true;
        }
        match (resource.by_hand, resource.users.as_slice()) {
            (true, _) => resource.owner.as_deref() == Some(&self.name) && self.may(Role::Write, there, None),
            (false, []) => may(&resource.maker),
            (false, users) => users.iter().all(may),
        }
    }
}

fn destroying(approval_required: bool) -> Role {
    if approval_required { Role::Write } else { Role::Admin }
}

/// Whether somebody has to agree before anything of an environment is destroyed.
fn destruction_is_asked_for(tx: &mut Tx<'_>, context: &Context, environment: &str) -> Result<bool> {
    let row = changes::environment(tx, context, environment)?;
    let mut gate = Gatekeeper::new(tx, context, ChangeKind::Destroy)?;
    gate.closes(tx, row.id, None, OperationKind::Destroy)
}

impl Engine {
    /// Refuses what somebody may not do to a change; one they may not see is not there.
    pub async fn allow_change(&self, caller: &Principal, id: ChangeId, wanted: Role) -> Result<()> {
        if caller.may_everywhere(wanted) {
            return Ok(());
        }
        self.allow_change_by(caller, id, |_, _| wanted).await
    }

    /// Trying again takes what it took the first time: a destruction is not retried by who may not destroy.
    pub async fn allow_retry(&self, caller: &Principal, id: ChangeId) -> Result<()> {
        let wanted = |kind, asked| match kind {
            ChangeKind::Destroy | ChangeKind::Teardown => destroying(asked),
            _ => Role::Write,
        };
        self.allow_change_by(caller, id, wanted).await
    }

    async fn allow_change_by(
        &self,
        caller: &Principal,
        id: ChangeId,
        wanted: impl FnOnce(ChangeKind, bool) -> Role,
    ) -> Result<()> {
        let context = self.context.clone();
        let found = self.db.read(move |tx| {
            let Some((kind, place)) = tx.place_of_change(id)? else { return Ok(None) };
            let asked = match (kind, &place.0) {
                (ChangeKind::Destroy | ChangeKind::Teardown, Some(environment)) => {
                    destruction_is_asked_for(tx, &context, environment)?
                }
                _ => false,
            };
            Ok(Some((kind, place, asked)))
        });
        let unknown = || not_found("deployment", &id.to_string(), &[]);
        let (kind, (environment, application), asked) = found.await?.ok_or_else(unknown)?;
        let (environment, application) = (environment.as_deref(), application.as_deref());
        if !caller.may(Role::Read, environment, application) {
            return Err(unknown());
        }
        caller.needs(wanted(kind, asked), environment, application)
    }

    /// The same for a resource.
    pub async fn allow_resource(&self, caller: &Principal, id: ResourceId, wanted: Role) -> Result<()> {
        if caller.may_everywhere(wanted) {
            return Ok(());
        }
        let found = self.db.read(move |tx| tx.places_of_resource(id)).await?;
        let unknown = || not_found("resource", &id.to_string(), &[]);
        let found = found.filter(|found| caller.sees(found)).ok_or_else(unknown)?;
        if wanted == Role::Read || caller.may_touch(&found, wanted) {
            return Ok(());
        }
        let environment = place(Some(&found.environment), None);
        Err(caller.lacks(wanted, &format!("{id}, which is of {environment}")))
    }

    /// Destroying a resource: see [`Principal::may_destroy`].
    pub async fn allow_destroying(&self, caller: &Principal, id: ResourceId) -> Result<()> {
        if caller.may_everywhere(Role::Admin) {
            return Ok(());
        }
        let context = self.context.clone();
        let asked = self
            .db
            .read(move |tx| {
                let Some(row) = tx.resource(id)? else { return Ok(false) };
                let version = context.templates.get(tx, row.version, None)?;
                let mut gate = Gatekeeper::new(tx, &context, ChangeKind::Destroy)?;
                gate.closes(tx, row.environment, Some(&version), OperationKind::Destroy)
            })
            .await?;
        self.allow_resource(caller, id, destroying(asked)).await
    }

    /// Taking an application, or all of an environment, away. A template's own wish to be asked first is about its
    /// resources alone and lets nobody do more.
    pub async fn allow_destruction(&self, caller: &Principal, request: &DestroyRequest) -> Result<()> {
        let (environment, application) = (Some(request.environment.as_str()), request.application.as_deref());
        if request.dry_run {
            return caller.needs(Role::Read, environment, application);
        }
        if caller.may_destroy(environment, application, false) {
            return Ok(());
        }
        let (context, name) = (self.context.clone(), request.environment.clone());
        let asked = self.db.read(move |tx| destruction_is_asked_for(tx, &context, &name)).await?;
        caller.needs_to_destroy(environment, application, asked)
    }

    /// Trying a resource's last step again takes what that step took.
    pub async fn allow_another_try(&self, caller: &Principal, id: ResourceId) -> Result<()> {
        let row = self.db.read(move |tx| tx.resource(id)).await?;
        match row {
            Some(row) if row.state == State::Destroy => self.allow_destroying(caller, id).await,
            _ => self.allow_resource(caller, id, Role::Write).await,
        }
    }

    /// Looking for drift: at single ones, or at all of an application, an environment, the organisation.
    pub async fn allow_drift_check(&self, caller: &Principal, request: &DriftRequest) -> Result<()> {
        if request.resources.is_empty() {
            let (environment, application) = (request.environment.as_deref(), request.application.as_deref());
            return caller.needs(Role::Write, environment, application);
        }
        self.allow_resources(caller, &request.resources, Role::Write).await
    }

    /// The same role on each.
    pub async fn allow_resources(&self, caller: &Principal, ids: &[ResourceId], wanted: Role) -> Result<()> {
        for id in ids {
            self.allow_resource(caller, *id, wanted).await?;
        }
        Ok(())
    }

    /// Those of a list that somebody may see.
    pub async fn seen_drifts(&self, caller: &Principal, all: Vec<Drift>) -> Result<Vec<Drift>> {
        let mut seen = Vec::new();
        for drift in all {
            match self.allow_resource(caller, drift.resource, Role::Read).await {
                Ok(()) => seen.push(drift),
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(seen)
    }

    /// A proposal takes what changing its resource does.
    pub async fn allow_proposal(&self, caller: &Principal, id: ProposalId, wanted: Role) -> Result<()> {
        if caller.may_everywhere(wanted) {
            return Ok(());
        }
        let unknown = || not_found("proposal", &id.to_string(), &[]);
        let organisation = self.context.organisation;
        let row = self.db.read(move |tx| tx.proposal(organisation, id)).await?.ok_or_else(unknown)?;
        self.allow_resource(caller, row.resource, Role::Read).await.map_err(|_| unknown())?;
        self.allow_resource(caller, row.resource, wanted).await
    }

    /// What is asked for is seen by who sees where it is asked for.
    pub async fn allow_approval(&self, caller: &Principal, id: ApprovalId) -> Result<()> {
        if caller.may_everywhere(Role::Read) {
            return Ok(());
        }
        let unknown = || not_found("approval", &id.to_string(), &[]);
        let organisation = self.context.organisation;
        let row = self.db.read(move |tx| tx.approval(organisation, id)).await?.ok_or_else(unknown)?;
        let (environment, application) = (row.environment_name.as_deref(), row.application_name.as_deref());
        caller.needs(Role::Read, environment, application).map_err(|_| unknown())
    }

    /// Looking at an operation takes its change, or its resource.
    pub async fn allow_operation(&self, caller: &Principal, id: OperationId) -> Result<()> {
        if caller.may_everywhere(Role::Read) {
            return Ok(());
        }
        let unknown = || not_found("operation", &id.to_string(), &[]);
        let row = self.db.read(move |tx| tx.operation(id)).await?.ok_or_else(unknown)?;
        if self.allow_change(caller, row.change, Role::Read).await.is_ok() {
            return Ok(());
        }
        let resource = row.resource.ok_or_else(unknown)?;
        self.allow_resource(caller, resource, Role::Read).await.map_err(|_| unknown())
    }

    /// The change of an operation that somebody may see.
    pub async fn seen_change_of(&self, caller: &Principal, id: OperationId) -> Result<ChangeId> {
        self.allow_operation(caller, id).await?;
        self.change_of(id).await
    }

    /// Using a resource by hand takes `write` on it, and on the application that uses it.
    pub async fn allow_use(
        &self,
        caller: &Principal,
        id: ResourceId,
        environment: Option<&str>,
        application: &str,
    ) -> Result<()> {
        if caller.may_everywhere(Role::Write) {
            return Ok(());
        }
        self.allow_resource(caller, id, Role::Write).await?;
        let found = self.db.read(move |tx| tx.places_of_resource(id)).await?;
        let environment = environment.or(found.as_ref().map(|found| found.environment.as_str()));
        caller.needs(Role::Write, environment, Some(application))
    }

    /// Giving up uses of a resource takes `write` on each application in its environment.
    pub async fn allow_release(
        &self,
        caller: &Principal,
        id: ResourceId,
        environment: Option<&str>,
        application: &str,
    ) -> Result<()> {
        self.allow_resource(caller, id, Role::Read).await?;
        if caller.may_everywhere(Role::Write) {
            return Ok(());
        }
        let found = self.db.read(move |tx| tx.places_of_resource(id)).await?;
        for (there, user) in found.into_iter().flat_map(|found| found.users) {
            let meant = environment.is_none_or(|environment| there.as_deref() == Some(environment));
            if meant && user.as_deref() == Some(application) {
                caller.needs(Role::Write, there.as_deref(), Some(application))?;
            }
        }
        Ok(())
    }

    /// The catalogue is the organisation's, but an environment's own document and its pools are its administrator's.
    pub fn allow_apply(&self, caller: &Principal, document: &Value) -> Result<()> {
        let environment = match document["kind"].as_str() {
            Some("Environment") => document["name"].as_str(),
            Some("Pool") => document["environment"].as_str(),
            _ => None,
        };
        caller.needs(Role::Admin, environment, None)
    }

    /// Deploying takes `write` where it is deployed to, and on every resource that is linked by its id.
    pub async fn allow_deployment(
        &self,
        caller: &Principal,
        request: &DeploymentRequest,
        wanted: Role,
    ) -> Result<()> {
        if caller.may_everywhere(wanted) {
            return Ok(());
        }
        let manifest = parse_manifest(&request.manifest, request.strict_score)?;
        let application = request.application.as_ref().unwrap_or(&manifest.metadata.name);
        caller.needs(wanted, Some(&request.environment), Some(application))?;
        for resource in manifest.resources.values() {
            let Some(Reference::Existing { id }) = &resource.sharing.reference else {
                continue;
            };
            let found = match id.parse::<ResourceId>() {
                Ok(id) => Some(id),
                Err(_) => {
                    let (organisation, id) = (self.context.organisation, id.clone());
                    self.db.read(move |tx| tx.resource_by_external_id(organisation, &id)).await?
                }
            };
            // One that is not there is told of by the plan.
            if let Some(id) = found {
                self.allow_resource(caller, id, wanted).await?;
            }
        }
        Ok(())
    }
}
