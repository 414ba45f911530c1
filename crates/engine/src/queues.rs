//! Which worker gets what: operations of equal needs share a queue, and a worker is offered the queues it can serve.
//!
//! Queues are few and never change, so they are known here; one that another server made is noticed as soon as
//! there is something in it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use conductor_api::worker::Acquire;
use conductor_domain::needs::{Abilities, Needs, WantedVersion, WorkerTerms};
use conductor_store::{Error, Result, Tx, operations::WorkerRow};
use serde_json::{Map, Value};

use crate::{Context, metrics::WORKER_QUIET};

/// Tools that a pinned version may be meant for when the template names none.
const PINNED: [&str; 2] = ["terraform", "tofu"];

#[derive(Default)]
pub(crate) struct Queues {
    ids: Mutex<HashMap<String, i64>>,
    known: Mutex<BTreeMap<i64, Needs>>,
}

impl Queues {
    /// The queue of these needs; queues are never renumbered.
    pub fn of(&self, tx: &mut Tx<'_>, needs: &Needs) -> Result<i64> {
        let text = needs.text();
        if let Some(queue) = self.ids.lock().ok().and_then(|ids| ids.get(&text).copied()) {
            return Ok(queue);
        }
        match tx.known_queue(&text)? {
            // Kept only once it is committed: another transaction may yet roll back.
            Some(queue) => {
                if !tx.made_queue()
                    && let Ok(mut ids) = self.ids.lock()
                {
                    ids.insert(text, queue);
                }
                Ok(queue)
            }
            None => tx.queue(&needs.manager, &text),
        }
    }

    pub fn knows(&self, queue: i64) -> bool {
        self.known.lock().is_ok_and(|known| known.contains_key(&queue))
    }

    pub fn load(&self, tx: &mut Tx<'_>) -> Result<()> {
        let mut fresh = BTreeMap::new();
        for (id, text) in tx.queues()? {
            let needs = serde_json::from_str(&text).map_err(|_| Error::Corrupt("a queue".into()))?;
            fresh.insert(id, needs);
        }
        if let Ok(mut known) = self.known.lock() {
            *known = fresh;
        }
        Ok(())
    }

    /// Queues that have something for a worker. One that is not known yet may be among them.
    pub fn with_work(
        &self,
        tx: &mut Tx<'_>,
        context: &Context,
        worker: &Abilities,
        now: i64,
    ) -> Result<Vec<i64>> {
        let unfit = self.unfit(tx, context, worker)?;
        let managers: Vec<String> = worker.managers.iter().cloned().collect();
        tx.queues_with_work(&managers, &unfit, now)
    }

    /// Queues of a worker's managers that it cannot serve, or that another one serves better.
    fn unfit(&self, tx: &mut Tx<'_>, context: &Context, worker: &Abilities) -> Result<Vec<i64>> {
        let mut known: BTreeMap<i64, Needs> =
            self.known.lock().map(|known| known.clone()).unwrap_or_default();
        known.retain(|_, needs| worker.managers.contains(&needs.manager) && !needs.suits(worker));
        let mut others: Option<Vec<Abilities>> = None;
        let mut unfit = Vec::new();
        for (id, needs) in known {
            if needs.met_by(worker) {
                if others.is_none() {
                    others = Some(living(tx, context)?);
                }
                if !others.iter().flatten().any(|other| needs.suits(other)) {
                    continue;
                }
            }
            unfit.push(id);
        }
        Ok(unfit)
    }
}

pub(crate) fn abilities(ask: &Acquire) -> Abilities {
    Abilities {
        managers: ask.managers.iter().cloned().collect(),
        labels: ask.labels.clone(),
        networks: ask.networks.clone(),
        tools: ask.tools.clone(),
        integrations: ask.tokens,
    }
}

/// What the workers heard of lately have, but for those that left or were lost since.
fn living(tx: &mut Tx<'_>, context: &Context) -> Result<Vec<Abilities>> {
    let since = context.now() - WORKER_QUIET;
    let here = |row: &WorkerRow| row.seen_at >= since && row.left_at.is_none() && row.lost_at.is_none();
    let workers = tx.workers(context.organisation)?.into_iter().filter(here);
    Ok(workers.map(|row| serde_json::from_value(row.document).unwrap_or_default()).collect())
}

/// What an operation that is ready waits for, in words.
pub(crate) fn waits_for(tx: &mut Tx<'_>, context: &Context, queue: Option<i64>) -> Result<String> {
    let text = match queue {
        Some(queue) => tx.queues()?.remove(&queue),
        None => None,
    };
    let Some(needs) = text.and_then(|text| serde_json::from_str::<Needs>(&text).ok()) else {
        return Ok("a worker".into());
    };
    let workers = living(tx, context)?;
    let able = workers.iter().any(|worker| needs.met_by(worker));
    Ok(match (able, workers.len()) {
        (true, _) => format!("a worker with {needs}"),
        (false, 0) => format!("a worker with {needs}; there is no worker"),
        (false, 1) => format!("a worker with {needs}; the only worker does not have it"),
        (false, count) => format!("a worker with {needs}; none of the {count} workers has it"),
    })
}

/// What a template's operations ask of a worker, from its own words.
pub(crate) fn template_needs(
    manager: &str,
    config: &Map<String, Value>,
    terms: Option<&WorkerTerms>,
    version: Option<&WantedVersion>,
    integrations: bool,
) -> Needs {
    let mut needs = Needs::new(manager, terms.unwrap_or(&WorkerTerms::default()));
    needs.integrations = integrations;
    if let Some(version) = version {
        let tool = config.get("tool").and_then(Value::as_str);
        let tools = PINNED.iter().filter(|name| tool.is_none_or(|tool| tool == **name));
        needs.prefers = tools.map(|name| ((*name).to_owned(), version.clone())).collect();
    }
    needs
}
