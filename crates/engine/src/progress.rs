//! How things end, and what that sets in motion: successors, waiters, changes. Always inside one transaction.
//!
//! Endings are collected and counted down per change at the end, so that every change is touched once and the
//! last operation closes it.

use std::collections::{BTreeMap, BTreeSet};

use conductor_domain::{
    expr::params_refs,
    ids::{ChangeId, EventId, OperationId, ResourceId},
    lifecycle::{ChangeKind, ChangeStatus, ErrorCode, Fault, OperationKind, OperationStatus, State, Status},
    plan::RecordedDependency,
    score::{DependencyKind, Relationship},
};
use conductor_store::{
    Result, Tx,
    changes::{ChangeRow, NewChange},
    operations::{NewOperation, OperationRow},
    principals::NewEvent,
    resources::ResourceRow,
};
use serde_json::{Value, json};

use crate::{
    Context,
    approvals::{Gatekeeper, ask},
    planning::{grace, open_spec},
    pools,
};

pub(crate) struct Progress<'p, 't> {
    pub tx: &'p mut Tx<'t>,
    pub context: &'p Context,
    pub now: i64,
    /// Changes that ended here: their slots are free.
    pub ended: Vec<ChangeId>,
    counts: BTreeMap<ChangeId, (i64, i64)>,
    errors: BTreeMap<ChangeId, Fault>,
}

fn document(fault: &Fault) -> Value {
    serde_json::to_value(fault).unwrap_or_default()
}

impl<'p, 't> Progress<'p, 't> {
    pub fn new(tx: &'p mut Tx<'t>, context: &'p Context, now: i64) -> Self {
        Self { tx, context, now, ended: Vec::new(), counts: BTreeMap::new(), errors: BTreeMap::new() }
    }

    fn count(&mut self, change: ChangeId, failed: bool) {
        let (closed, failures) = self.counts.entry(change).or_default();
        *closed += 1;
        *failures += i64::from(failed);
    }

    pub fn event(
        &mut self,
        kind: &'static str,
        actor: &str,
        change: Option<ChangeId>,
        resource: Option<ResourceId>,
        operation: Option<OperationId>,
        document: Value,
    ) -> Result<()> {
        self.tx.insert_event(NewEvent {
            id: EventId(self.context.ids.next()),
            organisation: self.context.organisation,
            kind,
            actor: actor.to_owned(),
            change,
            resource,
            operation,
            document,
            now: self.now,
        })
    }

    /// Operations that another change answers for now are not this one's to wait for.
    pub fn handed(&mut self, change: ChangeId, operations: i64) -> Result<()> {
        if operations > 0 {
            self.counts.entry(change).or_default().0 += operations;
        }
        Ok(())
    }

    /// An operation is done; what came after it may go on.
    pub fn succeeded(&mut self, row: &OperationRow, digest: Option<Vec<u8>>) -> Result<()> {
        self.tx.end_operation(row, OperationStatus::Succeeded, digest, None, self.now)?;
        self.count(row.change, false);
        let ready = self.tx.advance_successors(row.id)?;
        self.go_on(ready)
    }

    fn advance(&mut self, operations: &BTreeSet<OperationId>) -> Result<()> {
        if operations.is_empty() {
            return Ok(());
        }
        let ready = self.tx.advance_operations(operations)?;
        self.go_on(ready)
    }

    fn go_on(&mut self, ready: Vec<OperationRow>) -> Result<()> {
        for row in ready {
            match row.queue {
                Some(_) if row.gated => self.tx.await_approval(row.id)?,
                Some(_) => self.tx.queue_operation(row.id, self.now)?,
                None => self.finish_idle(&row)?,
            }
        }
        Ok(())
    }

    /// Nothing to run: the end is at once.
    pub fn finish_idle(&mut self, row: &OperationRow) -> Result<()> {
        if let (OperationKind::Destroy, Some(resource)) = (row.kind, row.resource) {
            self.tx.destroy_resource(resource, (State::Destroy, Status::Queued), self.now)?;
            self.gone(resource)?;
        }
        if let (OperationKind::Create | OperationKind::Update, Some(resource)) = (row.kind, row.resource) {
            self.tx.apply_idle(resource, row.generation, self.now)?;
            self.ready(resource, row.generation)?;
        }
        self.succeeded(row, None)
    }

    /// A resource is there: those who waited for it go on.
    pub fn ready(&mut self, resource: ResourceId, generation: i64) -> Result<()> {
        let waiting = self.tx.take_waits(resource, "ready", generation)?;
        self.advance(&waiting)
    }

    /// A resource is gone: good for some, the end for others.
    pub fn gone(&mut self, resource: ResourceId) -> Result<()> {
        let waiting = self.tx.take_waits(resource, "gone", i64::MAX)?;
        self.advance(&waiting)?;
        let fault = Fault::new(ErrorCode::NotFound, format!("{resource} was waited for, and was destroyed"));
        self.fail_waiters(resource, &fault)
    }

    fn fail_waiters(&mut self, resource: ResourceId, fault: &Fault) -> Result<()> {
        let mut stranded = self.tx.take_waits(resource, "ready", i64::MAX)?;
        stranded.extend(self.tx.take_waits(resource, "gone", i64::MAX)?);
        for id in stranded {
            if let Some(row) = self.tx.operation(id)?
                && row.status == OperationStatus::Blocked
            {
                self.cancel(&row, fault, true)?;
            }
        }
        Ok(())
    }

    /// An operation failed for good: what depends on it does not start, and says why.
    pub fn failed(
        &mut self,
        row: &OperationRow,
        to: OperationStatus,
        fault: Fault,
        digest: Option<Vec<u8>>,
    ) -> Result<()> {
        let fault = Fault { operation: Some(row.id), ..fault };
        self.tx.end_operation(row, to, digest, Some(&document(&fault)), self.now)?;
        self.count(row.change, true);
        self.errors.entry(row.change).or_insert_with(|| fault.clone());
        self.hold_back(row, &fault)
    }

    fn hold_back(&mut self, row: &OperationRow, fault: &Fault) -> Result<()> {
        let mut told = fault.clone();
        if let Some(resource) = row.resource.filter(|_| !row.kind.only_looks()) {
            let name = self.tx.resource(resource)?.map_or_else(|| resource.to_string(), |r| r.name);
            if !told.message.starts_with("not started") {
                told.message =
                    format!("not started: {name} ({resource}) did not come about: {}", fault.message);
            }
            self.fail_waiters(resource, &told)?;
        }
        let mut goes_on = BTreeSet::new();
        for (id, weak) in self.tx.successors(row.id)? {
            let next = self.tx.operation(id)?;
            match next.filter(|next| next.status == OperationStatus::Blocked) {
                Some(_) if weak => drop(goes_on.insert(id)),
                Some(next) => self.cancel(&next, &told, false)?,
                None => {}
            }
        }
        self.advance(&goes_on)
    }

    /// An operation that has not started will not; its resource goes back to where it was.
    pub fn cancel(&mut self, row: &OperationRow, fault: &Fault, failed: bool) -> Result<()> {
        self.tx.end_operation(row, OperationStatus::Cancelled, None, Some(&document(fault)), self.now)?;
        self.tx.drop_waits(row.id)?;
        self.count(row.change, failed);
        if failed {
            self.errors.entry(row.change).or_insert_with(|| fault.clone());
        }
        if let Some(resource) = row.resource.filter(|_| !row.kind.only_looks()) {
            let rejected = fault.code == ErrorCode::Rejected && row.gated;
            if row.gated || matches!(fault.code, ErrorCode::Rejected | ErrorCode::Cancelled) {
                self.take_back_wish(resource, row.attempt > 0)?;
            }
            self.restore(resource, row.attempt > 0, rejected, &fault.message)?;
        }
        self.hold_back(row, fault)
    }

    /// A change that nobody wants, or that nobody agreed to, is not what is desired any more.
    fn take_back_wish(&mut self, id: ResourceId, begun: bool) -> Result<()> {
        let row = self.tx.resource(id)?.filter(|row| row.state == State::Provisioned && !begun);
        let Some((row, applied)) = row.and_then(|row| Some((row.clone(), row.applied_spec?))) else {
            return Ok(());
        };
        self.tx.take_back_spec(id, self.now)?;
        // What it refers to as before it depends on as before.
        let known = self.tx.dependencies_of(&[id].into())?;
        let refers = params_refs(&open_spec(self.tx, &row, &applied)?);
        let on: BTreeSet<ResourceId> = refers.iter().map(|reference| reference.resource).collect();
        let on = on.into_iter().filter(|on| known.iter().all(|row| row.on != *on));
        let on: Vec<RecordedDependency> = on
            .map(|on| RecordedDependency {
                on,
                requirement: on.to_string(),
                kind: DependencyKind::Output,
                relationship: Relationship::Requires,
                own: false,
                parent: false,
            })
            .collect();
        self.tx.set_dependencies(row.organisation, id, true, &on)
    }

    /// What was to take a resource's place, and was never begun, gives way to it.
    fn unseat(&mut self, row: &ResourceRow) -> Result<()> {
        let Some(by) = row.replaced_by.filter(|_| row.applied_spec.is_some()) else { return Ok(()) };
        let new = self.tx.resource(by)?.filter(|new| new.state == State::Provision && new.fence == 0);
        match new {
            Some(new) => {
                self.tx.destroy_resource(new.id, (new.state, new.status), self.now)?;
                self.tx.clear_replaced(row.id, new.id)
            }
            None => Ok(()),
        }
    }

    /// Where a resource stands when what was planned for it does not happen; what was begun once is not known.
    fn restore(&mut self, id: ResourceId, begun: bool, rejected: bool, message: &str) -> Result<()> {
        let Some(row) = self.tx.resource(id)? else {
            return Ok(());
        };
        let settled = if row.error.is_some() { Status::Error } else { Status::Done };
        let waits = if row.status == Status::ApprovalPending { Status::Queued } else { row.status };
        if (row.state, waits) == (State::Destroy, Status::Queued) && !begun {
            self.unseat(&row)?;
        }
        let to = match (row.state, waits) {
            (state, Status::Queued) if begun => (state, Status::Unknown),
            (State::Provision, Status::Queued) if rejected => (State::Provision, Status::Rejected),
            (State::Provision, Status::Queued) if row.fence == 0 => (State::Provision, Status::Pending),
            (State::Provision, Status::Queued) => (State::Provision, Status::Error),
            (State::Provisioned, Status::Queued) => (State::Provisioned, settled),
            // Another one took its place in the meantime.
            (State::Destroy, Status::Queued) if self.is_displaced(&row)? => (State::Destroy, Status::Pending),
            (State::Destroy, Status::Queued) if row.applied_spec.is_some() => (State::Provisioned, settled),
            (State::Destroy, Status::Queued) => (State::Provision, Status::Pending),
            _ => return Ok(()),
        };
        self.tx.move_resource(id, (row.state, row.status), to, Some(message), self.now)
    }

    fn is_displaced(&mut self, row: &ResourceRow) -> Result<bool> {
        let living = self.tx.resources_by_key(std::slice::from_ref(&row.key))?;
        Ok(living.get(&row.key).is_some_and(|other| other.id != row.id && other.state != State::Destroy))
    }

    /// Waiting for destruction, wanted again: the destruction is called off. What that means for the change it
    /// belongs to is settled by [`Progress::called_off`], once the new use is on record.
    pub fn revive(&mut self, resource: ResourceId, operation: OperationId) -> Result<OperationRow> {
        let moved = || conductor_store::Error::Moved("a destruction that has begun".into());
        let row = self.tx.lock_operation(operation)?.ok_or_else(moved)?;
        use OperationStatus::{ApprovalPending, Blocked, Queued};
        if !matches!(row.status, Blocked | Queued | ApprovalPending) {
            return Err(moved());
        }
        let fault = Fault::new(ErrorCode::Cancelled, "called off: it is wanted again");
        self.tx.end_operation(&row, OperationStatus::Cancelled, None, Some(&document(&fault)), self.now)?;
        self.tx.drop_waits(row.id)?;
        // Begun once, it may be gone already, and what never came about is not there: it is made again.
        let never_made = self.tx.resource(resource)?.is_none_or(|row| row.applied_spec.is_none());
        let to = if row.attempt > 0 || never_made {
            (State::Destroy, Status::Unknown)
        } else {
            (State::Provisioned, Status::Done)
        };
        let waits = if row.gated { Status::ApprovalPending } else { Status::Queued };
        self.tx.move_resource(resource, (State::Destroy, waits), to, None, self.now)?;
        Ok(row)
    }

    /// Counts destructions that were called off; what came after them has nothing to wait for.
    pub fn called_off(&mut self, rows: &[OperationRow]) -> Result<()> {
        for row in rows {
            self.count(row.change, false);
            let ready = self.tx.advance_successors(row.id)?;
            self.go_on(ready)?;
        }
        self.settle()
    }

    /// Counts down every change touched, and ends those with nothing left.
    pub fn settle(&mut self) -> Result<()> {
        while let Some((change, (closed, failed))) = self.counts.pop_first() {
            if let Some(fault) = self.errors.remove(&change) {
                self.tx.set_change_error(change, &document(&fault))?;
            }
            match self.tx.count_down(change, closed, failed, self.now)? {
                (0, _) => self.end_change(change)?,
                (_, true) => drop(self.tx.rest_for_approval(change, self.now)?),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn end_change(&mut self, id: ChangeId) -> Result<()> {
        let Some(mut change) = self.tx.change(id)? else {
            return Ok(());
        };
        if change.status.is_over() {
            return Ok(());
        }
        // What somebody was asked about is not wanted any more.
        if change.status == ChangeStatus::ApprovalPending {
            self.tx.resume_change(id, self.now)?;
            change.status = ChangeStatus::InProgress;
        }
        let timed_out = change
            .error
            .as_ref()
            .is_some_and(|error| error["code"] == "timed_out" && error["operation"].is_null());
        let status = match change.cancel_requested_at {
            Some(_) if timed_out => ChangeStatus::TimedOut,
            Some(_) => ChangeStatus::Cancelled,
            None if change.failed_operations > 0 => ChangeStatus::Failed,
            None => ChangeStatus::Succeeded,
        };
        let error = match (status, &change.error) {
            (ChangeStatus::Succeeded, _) => None,
            (ChangeStatus::Cancelled, None) => {
                Some(document(&Fault::new(ErrorCode::Cancelled, "cancelled on request")))
            }
            (_, error) => error.clone(),
        };
        if change.gated {
            self.tx.withdraw_approvals(id, self.now)?;
        }
        let mut released = self.tx.settle_consumers(id, status == ChangeStatus::Succeeded)?;
        if (change.kind, status) == (ChangeKind::Teardown, ChangeStatus::Succeeded) {
            released.extend(pools::remove_with(self.tx, self.context, &change)?);
        }
        self.tx.end_change(id, change.kind, change.status, status, error.as_ref(), self.now)?;
        self.ended.push(id);
        let kind = if status == ChangeStatus::Succeeded { "change.succeeded" } else { "change.ended" };
        let told = json!({ "status": status, "kind": change.kind, "error": error });
        self.event(kind, &change.actor, Some(id), None, None, told)?;
        if status == ChangeStatus::Cancelled {
            let made = self.tx.made_by(id, change.rollback)?;
            self.take_back(&change, made)?;
        }
        if !released.is_empty() {
            let unused = self.tx.unused_resources(Some(&released))?;
            self.collect(&change, unused, ChangeKind::Collect)?;
        }
        Ok(())
    }

    /// Takes away what this change made and nobody else uses: all of it on rollback, else what was never begun.
    fn take_back(&mut self, change: &ChangeRow, made: BTreeSet<ResourceId>) -> Result<()> {
        let (Some(application), Some(environment)) = (change.application, change.environment) else {
            return Ok(());
        };
        self.tx.drop_consumers(&made, application, environment)?;
        let mut unused = self.tx.unused_resources(Some(&made))?;
        // Dependents that go as well do not hold back what they depend on.
        loop {
            let more = self.tx.unused_but_for(&made, &unused)?;
            if more.is_subset(&unused) {
                break;
            }
            unused.extend(more);
        }
        self.collect(change, unused, ChangeKind::Rollback)
    }

    fn collect(&mut self, parent: &ChangeRow, unused: BTreeSet<ResourceId>, kind: ChangeKind) -> Result<()> {
        self.collect_for(Some(parent), unused, kind)
    }

    /// A change of its own that destroys what nobody uses, dependents first.
    pub fn collect_for(
        &mut self,
        parent: Option<&ChangeRow>,
        unused: BTreeSet<ResourceId>,
        kind: ChangeKind,
    ) -> Result<()> {
        let unused = self.put_aside(unused)?;
        let unused = self.with_what_they_required(unused)?;
        if unused.is_empty() {
            return Ok(());
        }
        let id = ChangeId(self.context.ids.next());
        let actor = parent.map_or("conductor", |parent| parent.actor.as_str());
        self.tx.insert_change(&NewChange {
            environment: parent.and_then(|parent| parent.environment),
            application: parent.and_then(|parent| parent.application),
            parent: parent.map(|parent| parent.id),
            owner: parent.map_or(self.context.owner, |parent| parent.owner),
            request: json!({ "resources": unused }),
            ..self.context.change(id, kind, actor, self.now)
        })?;
        self.destroy_all(id, kind, actor, None, 1, &unused)
    }

    /// Those with a grace period are kept for that long; returns the others.
    fn put_aside(&mut self, unused: BTreeSet<ResourceId>) -> Result<BTreeSet<ResourceId>> {
        let mut going = BTreeSet::new();
        for row in self.tx.resources_by_id(&unused)? {
            let environment = self.tx.environment(row.environment)?;
            let version = self.context.templates.get(self.tx, row.version, None)?;
            let grace = version.grace.max(environment.map_or(0, |environment| grace(&environment.document)));
            if grace == 0 || (row.state, row.status) != (State::Provisioned, Status::Done) {
                going.insert(row.id);
                continue;
            }
            let until = self.now + grace;
            self.tx.bury_resource(row.id, (row.state, row.status), until, self.now)?;
            let told = json!({ "name": row.name, "until": conductor_api::types::Time(until) });
            self.event("resource.put_aside", "conductor", None, Some(row.id), None, told)?;
        }
        Ok(going)
    }

    /// What was required by these alone goes with them.
    fn with_what_they_required(&mut self, mut going: BTreeSet<ResourceId>) -> Result<BTreeSet<ResourceId>> {
        loop {
            let required =
                self.tx.dependencies_of(&going)?.into_iter().filter(|row| row.own).map(|row| row.on);
            let required = required.filter(|id| !going.contains(id)).collect::<BTreeSet<_>>();
            let more =
                if required.is_empty() { required } else { self.tx.unused_but_for(&required, &going)? };
            if more.is_empty() {
                return Ok(going);
            }
            going.extend(more);
        }
    }

    /// Plans a collection again: what is still to be destroyed, or unused once more.
    pub fn collect_again(&mut self, change: &ChangeRow, asked: &BTreeSet<ResourceId>) -> Result<()> {
        let mut going = self.tx.unused_resources(Some(asked))?;
        let open = self.tx.open_operations_on(asked)?;
        let doomed = self.tx.resources_by_id(asked)?.into_iter();
        going.extend(
            doomed.filter(|row| row.state == State::Destroy && !open.contains_key(&row.id)).map(|row| row.id),
        );
        if going.is_empty() {
            let plan = json!({ "items": [], "removals": [], "warnings": [] });
            let (from, to) = (ChangeStatus::Pending, ChangeStatus::InProgress);
            self.tx.start_change(change.id, from, to, None, change.plan_number + 1, &plan, 0, 0, self.now)?;
            return self.end_change(change.id);
        }
        let (kind, actor) = (change.kind, change.actor.as_str());
        self.destroy_all(change.id, kind, actor, change.plan.as_ref(), change.plan_number + 1, &going)
    }

    /// Starts a pending change whose whole plan is to destroy these, dependents first.
    fn destroy_all(
        &mut self,
        id: ChangeId,
        kind: ChangeKind,
        actor: &str,
        before: Option<&Value>,
        plan_number: i64,
        unused: &BTreeSet<ResourceId>,
    ) -> Result<()> {
        let mut gatekeeper = Gatekeeper::new(self.tx, self.context, kind)?;
        let operations: BTreeMap<ResourceId, OperationId> =
            unused.iter().map(|resource| (*resource, OperationId(self.context.ids.next()))).collect();
        let edges: Vec<(OperationId, OperationId, bool)> = self
            .tx
            .dependents_of(unused)?
            .iter()
            .filter_map(|row| Some((*operations.get(&row.on)?, *operations.get(&row.resource)?, false)))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut items = Vec::new();
        let mut idle = Vec::new();
        for row in self.tx.resources_by_id(unused)? {
            let operation = operations[&row.id];
            self.tx.move_resource(
                row.id,
                (row.state, row.status),
                (State::Destroy, Status::Queued),
                None,
                self.now,
            )?;
            let version = self.context.templates.get(self.tx, row.version, None)?;
            let queue = match row.fence > 0 {
                true => Some(self.context.templates.queues.of(self.tx, &version.needs)?),
                false => None,
            };
            let before = edges.iter().filter(|(of, ..)| *of == operation).count() as i64;
            let gated = queue.is_some()
                && gatekeeper.closes(self.tx, row.environment, Some(&version), OperationKind::Destroy)?;
            self.tx.insert_operations(&[NewOperation {
                gated,
                id: operation,
                organisation: self.context.organisation,
                change: id,
                plan_number,
                resource: Some(row.id),
                kind: OperationKind::Destroy,
                generation: row.generation,
                conditional: false,
                releasing: false,
                queue,
                open_predecessors: before,
                retries: 3,
                payload: None,
                now: self.now,
            }])?;
            if queue.is_none() && before == 0 {
                idle.push(operation);
            }
            items.push(json!({
                "requirement": row.name, "resource": row.id, "name": row.name, "action": "remove",
                "reason": "nothing uses it any more",
            }));
        }
        self.tx.insert_edges(&edges)?;
        let plan = match before {
            Some(before) => before.clone(),
            None => json!({ "items": [], "removals": items, "warnings": [] }),
        };
        let (from, to) = (ChangeStatus::Pending, ChangeStatus::InProgress);
        self.tx.start_change(id, from, to, None, plan_number, &plan, operations.len() as i64, 0, self.now)?;
        for operation in idle {
            if let Some(row) = self.tx.operation(operation)? {
                self.finish_idle(&row)?;
            }
        }
        match gatekeeper.terms() {
            Some(terms) => ask(self.tx, self.context, id, &terms, actor, self.now),
            None => Ok(()),
        }
    }
}
