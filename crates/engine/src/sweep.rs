//! Tasks that take no input, may run at any time and any number of times: lost leases, dead processes, waiting
//! changes, time limits, things nobody uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_domain::{
    ids::{ChangeId, OperationId},
    lifecycle::{ChangeKind, ErrorCode, Fault, OperationStatus, Status},
};
use conductor_store::{Result, Tx, operations::RunningRow};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Context, Engine,
    changes::{lock_resources, stop_change},
    planning::grace,
    progress::Progress,
};

/// Lost this often, an operation is given up: something about it kills workers.
const LOST_AT_MOST: i64 = 10;

const COLLECT_EVERY: Duration = Duration::from_secs(60);
pub(crate) const DESTROY_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Leases as this process has seen them: a counter that stands still for lease + grace on our own clock is a dead
/// worker's. No clocks are compared between machines.
#[derive(Default)]
pub(crate) struct Reaper {
    collected_at: Option<Instant>,
    seen: BTreeMap<OperationId, (RunningRow, Instant)>,
}

impl Reaper {
    /// Looking for unused resources reads them all, so it is done now and then.
    fn collection_due(&mut self, now: Instant) -> bool {
        let due = self.collected_at.is_none_or(|at| now.duration_since(at) > COLLECT_EVERY);
        if due {
            self.collected_at = Some(now);
        }
        due
    }

    /// Those whose renewals have stood still for too long.
    fn lost(&mut self, running: &[RunningRow], now: Instant) -> Vec<RunningRow> {
        let ids: BTreeSet<OperationId> = running.iter().map(|row| row.id).collect();
        self.seen.retain(|id, _| ids.contains(id));
        let mut lost = Vec::new();
        for row in running {
            match self.seen.get(&row.id) {
                Some((before, since)) if before == row => {
                    let lease = Duration::from_millis(row.lease_ms.max(0) as u64);
                    if now.duration_since(*since) > lease + lease / 5 {
                        lost.push(row.clone());
                    }
                }
                _ => drop(self.seen.insert(row.id, (row.clone(), now))),
            }
        }
        lost
    }
}

impl Engine {
    /// Keeps things moving until told to stop.
    pub async fn run_background(self: Arc<Self>, stop: CancellationToken) {
        let pause = (self.context.lease / 6).clamp(Duration::from_millis(100), Duration::from_secs(2));
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "sweep failed; the next one tries again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// As [`Engine::run_background`], and everything that goes by the clock: pools, grace periods, what is left over. Long-running
    /// processes do this; a command that comes and goes does not.
    pub async fn run_keeper(self: Arc<Self>, stop: CancellationToken) {
        let pause = (self.context.lease / 6).clamp(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            if let Err(error) = self.keep().await {
                tracing::warn!(%error, "keeping failed; the next round tries again");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One round of what goes by the clock.
    pub async fn keep(&self) -> Result<()> {
        self.keep_pools().await?;
        self.seal_audit().await?;
        self.expire_approvals().await?;
        self.look_by_schedule().await?;
        self.keep_lifetimes().await?;
        self.settle_drifts().await?;
        self.destroy_what_was_put_aside().await?;
        self.forget_what_was_deleted().await?;
        self.sweep_objects_now_and_then().await
    }

    /// Deleted records lose what they held once nobody can think again.
    async fn forget_what_was_deleted(&self) -> Result<()> {
        let now = self.context.now();
        let due = self.db.read(move |tx| {
            let mut due = Vec::new();
            for row in tx.deleted_records()? {
                let environment = tx.environment(row.environment)?;
                let kept = environment.map_or(0, |environment| grace(&environment.document));
                if row.deleted_at.is_some_and(|at| at + kept <= now) {
                    due.push(row.id);
                }
            }
            Ok(due)
        });
        let due = due.await?;
        if due.is_empty() {
            return Ok(());
        }
        self.db.write(move |tx| due.iter().try_for_each(|id| tx.drop_values(*id))).await
    }

    /// Grace periods that are over.
    async fn destroy_what_was_put_aside(&self) -> Result<()> {
        let now = self.context.now();
        let found = self.db.read(move |tx| tx.buried_until(now)).await?;
        if found.is_empty() {
            return Ok(());
        }
        let context = self.context.clone();
        self.db
            .write(move |tx| {
                lock_resources(tx, &found)?;
                let due = tx.buried_until(context.now())?.intersection(&found).copied().collect();
                let mut progress = Progress::new(tx, &context, context.now());
                progress.collect_for(None, due, ChangeKind::Collect)?;
                progress.settle()
            })
            .await
    }

    /// One round of everything.
    pub async fn sweep(&self) -> Result<()> {
        self.take_over_from_the_dead().await?;
        self.reap().await?;
        self.promote_waiting().await?;
        self.stop_what_is_out_of_time().await?;
        let due = match self.reaper.lock() {
            Ok(mut reaper) => reaper.collection_due(Instant::now()),
            Err(_) => false,
        };
        if due {
            self.collect_unused().await?;
            self.destroy_again(DESTROY_AGAIN_AFTER).await?;
        }
        Ok(())
    }

    /// Destroys once more what could not be destroyed and nobody uses, where the last try is this long ago.
    pub async fn destroy_again(&self, pause: Duration) -> Result<()> {
        let before = self.context.now() - pause.as_micros() as i64;
        let found = self.db.read(move |tx| tx.left_behind(before)).await?;
        if found.is_empty() {
            return Ok(());
        }
        let context = self.context.clone();
        self.db
            .write(move |tx| {
                lock_resources(tx, &found)?;
                let left = tx.left_behind(before)?.intersection(&found).copied().collect();
                let mut progress = Progress::new(tx, &context, context.now());
                progress.collect_for(None, left, ChangeKind::Collect)?;
                progress.settle()
            })
            .await
    }

    /// What two leavers left to each other: live, made for consumers, and nobody left.
    pub async fn collect_unused(&self) -> Result<()> {
        let found = self.db.read(|tx| tx.unused_resources(None)).await?;
        if found.is_empty() {
            return Ok(());
        }
        let context = self.context.clone();
        self.db
            .write(move |tx| {
                lock_resources(tx, &found)?;
                // Locked: look again.
                let unused = tx.unused_resources(Some(&found))?;
                let mut progress = Progress::new(tx, &context, context.now());
                progress.collect_for(None, unused, ChangeKind::Collect)?;
                progress.settle()
            })
            .await
    }

    async fn reap(&self) -> Result<()> {
        let running = self.db.read(|tx| tx.running_operations()).await?;
        let lost = match self.reaper.lock() {
            Ok(mut reaper) => reaper.lost(&running, Instant::now()),
            Err(_) => vec![],
        };
        for row in lost {
            let context = self.context.clone();
            let reaped = self
                .db
                .write(move |tx| {
                    requeue_lost(tx, &context, &row, "its worker was not heard of for longer than its lease")
                })
                .await?;
            if reaped {
                self.reaped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Embedded: what dead processes had claimed is free at once, what they answered for is ours.
    async fn take_over_from_the_dead(&self) -> Result<()> {
        let (Some(owners), Some(me)) = (&self.owners, self.context.owner) else {
            return Ok(());
        };
        let (running, answered_for) =
            self.db.read(|tx| Ok((tx.running_operations()?, tx.change_owners()?))).await?;
        let workers = running.iter().filter_map(|row| row.worker.map(|worker| worker.0));
        let mut gone: BTreeSet<Uuid> = workers.filter(|worker| owners.worker_is_dead(*worker)).collect();
        gone.extend(answered_for.into_iter().filter(|owner| owners.owner_is_dead(*owner)));
        for dead in gone {
            let context = self.context.clone();
            let left: Vec<RunningRow> = running
                .iter()
                .filter(|row| row.worker.is_some_and(|worker| worker.0 == dead))
                .cloned()
                .collect();
            self.db
                .write(move |tx| {
                    for row in &left {
                        requeue_lost(tx, &context, row, "the process that ran it is gone")?;
                    }
                    tx.adopt_changes(dead, me).map(drop)
                })
                .await?;
            owners.forget(dead);
        }
        Ok(())
    }

    async fn stop_what_is_out_of_time(&self) -> Result<()> {
        let now = self.context.now();
        for id in self.db.read(move |tx| tx.changes_out_of_time(now)).await? {
            let context = self.context.clone();
            self.db
                .write(move |tx| {
                    let now = context.now();
                    let fault = Fault::new(ErrorCode::TimedOut, "it ran longer than its time limit");
                    match stop_change(tx, &context, id, false, "conductor", Some(fault), now) {
                        // Over in the meantime.
                        Err(conductor_store::Error::Refused { .. }) => Ok(()),
                        other => other,
                    }
                })
                .await?;
        }
        Ok(())
    }

    /// Open changes of processes that are dead: nobody works on them until a command that runs things comes by.
    pub async fn interrupted(&self) -> Result<Vec<ChangeId>> {
        let Some(owners) = &self.owners else {
            return Ok(vec![]);
        };
        let open = self.db.read(|tx| tx.owned_changes()).await?;
        Ok(open.into_iter().filter(|(_, owner)| owners.owner_is_dead(*owner)).map(|(id, _)| id).collect())
    }
}

/// Back into the queue, unless somebody renewed, ended or reaped it in the meantime.
fn requeue_lost(tx: &mut Tx<'_>, context: &Context, seen: &RunningRow, why: &str) -> Result<bool> {
    let now = context.now();
    let Some(row) = tx.lock_operation(seen.id)? else {
        return Ok(false);
    };
    if row.status != OperationStatus::InProgress || row.fence != seen.fence || row.renewals != seen.renewals {
        return Ok(false);
    }
    let fault = Fault { operation: Some(row.id), ..Fault::new(ErrorCode::Transient, why) };
    let error = serde_json::to_value(&fault).unwrap_or_default();
    tx.insert_attempt(&row, "lost", Some(&error), now)?;
    if let Some(worker) = row.worker {
        tx.lose_worker(worker, now)?;
    }
    let resource = match row.resource {
        Some(id) if !row.kind.only_looks() => tx.resource(id)?,
        _ => None,
    };
    if row.cancel_requested_at.is_some() || row.attempt >= LOST_AT_MOST {
        if let Some(resource) = &resource {
            tx.fail_resource(
                resource.id,
                (resource.state, resource.status),
                Status::Unknown,
                why,
                &error,
                now,
            )?;
        }
        let to = if row.cancel_requested_at.is_some() {
            OperationStatus::Cancelled
        } else {
            OperationStatus::Failed
        };
        let mut progress = Progress::new(tx, context, now);
        progress.failed(&row, to, fault, None)?;
        progress.settle()?;
        return Ok(true);
    }
    tx.requeue_operation(&row, now, Some(&error))?;
    if let Some(resource) = &resource {
        tx.move_resource(
            resource.id,
            (resource.state, resource.status),
            (resource.state, Status::Queued),
            Some(why),
            now,
        )?;
    }
    Ok(true)
}
