//! Whole deployments that do nothing: five resources, the workload, twenty log lines, over 64 environments.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use conductor_engine::Engine;
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    Bench, Outcome,
    house::{self, LINES, RESOURCES, Scripted},
    reference::{self, Raw, RawPostgres},
    report::{Goal, Line, Report, median},
    wal::{Cost, Meter},
};

const ROUNDS: usize = 3;
const SPELL: Duration = Duration::from_millis(1_500);
const WORKERS: usize = 16;
const POSTERS: usize = 8;
/// Deployments under way at once.
const OPEN: usize = 64;

/// What one side's tasks share in a round.
struct Round {
    until: Instant,
    open: Semaphore,
    posting: AtomicU64,
    posted: AtomicU64,
    ended: AtomicU64,
}

impl Round {
    fn new(spell: Duration) -> Arc<Self> {
        Arc::new(Self {
            until: Instant::now() + spell,
            open: Semaphore::new(OPEN),
            posting: AtomicU64::new(POSTERS as u64),
            posted: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// Whether there is time to post one more; waits until it may.
    async fn may_post(&self) -> bool {
        if Instant::now() >= self.until {
            self.posting.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        if let Ok(permit) = self.open.acquire().await {
            permit.forget();
        }
        self.posted.fetch_add(1, Ordering::AcqRel);
        true
    }

    fn end_one(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
        self.open.add_permits(1);
    }

    fn is_over(&self) -> bool {
        self.posting.load(Ordering::Acquire) == 0
            && self.posted.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire)
    }
}

/// How many ended, and how many a second.
struct Pace {
    ended: f64,
    rate: f64,
}

async fn finish(mut tasks: JoinSet<Outcome>, round: &Round, started: Instant) -> Outcome<Pace> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let ended = round.ended.load(Ordering::Acquire) as f64;
    Ok(Pace { ended, rate: ended / started.elapsed().as_secs_f64() })
}

async fn ours(engine: &Arc<Engine>, number: &Arc<AtomicU64>, spell: Duration) -> Outcome<Pace> {
    let (round, mut tasks, started) = (Round::new(spell), JoinSet::new(), Instant::now());
    for _ in 0..POSTERS {
        let (engine, number, round) = (engine.clone(), number.clone(), round.clone());
        tasks.spawn(async move {
            while round.may_post().await {
                house::deploy(&engine, number.fetch_add(1, Ordering::Relaxed), RESOURCES).await?;
            }
            Ok(())
        });
    }
    for _ in 0..WORKERS {
        let (worker, round) = (Scripted::new(engine), round.clone());
        tasks.spawn(async move {
            while !round.is_over() {
                if worker.one(50).await? == Some(true) {
                    round.end_one();
                }
            }
            Ok(())
        });
    }
    finish(tasks, &round, started).await
}

async fn raw(connections: &[Raw], number: &Arc<AtomicU64>, spell: Duration) -> Outcome<Pace> {
    let (round, mut tasks, started) = (Round::new(spell), JoinSet::new(), Instant::now());
    // In one process it is known how much is queued: nobody asks for nothing.
    let queued = Arc::new(Semaphore::new(0));
    let body: Arc<[u8]> =
        house::lines(LINES).iter().flat_map(|line| line.text.clone().into_bytes()).collect();
    let (posters, workers) = connections.split_at(POSTERS);
    for raw in posters {
        let (raw, number, round, queued) = (raw.clone(), number.clone(), round.clone(), queued.clone());
        tasks.spawn(async move {
            while round.may_post().await {
                raw.deploy(number.fetch_add(1, Ordering::Relaxed) as i64, RESOURCES).await?;
                queued.add_permits(RESOURCES);
            }
            Ok(())
        });
    }
    let left: Arc<[AtomicU64]> = (0..1 << 16).map(|_| AtomicU64::new(0)).collect();
    for raw in workers {
        let raw = raw.clone();
        let (round, queued, body, left) = (round.clone(), queued.clone(), body.clone(), left.clone());
        tasks.spawn(async move {
            while !round.is_over() {
                let waiting = tokio::time::timeout(Duration::from_millis(20), queued.acquire()).await;
                let Ok(Ok(permit)) = waiting else { continue };
                permit.forget();
                let Some(id) = raw.claim().await? else {
                    queued.add_permits(1);
                    continue;
                };
                raw.complete(id, &body).await?;
                if reference::is_last(id) {
                    round.end_one();
                } else if left[(id / reference::STEP) as usize % left.len()].fetch_add(1, Ordering::AcqRel)
                    as usize
                    % RESOURCES
                    == RESOURCES - 1
                {
                    queued.add_permits(1);
                }
            }
            Ok(())
        });
    }
    finish(tasks, &round, started).await
}

/// One that does 13 commits a deployment; and, for SQLite, one that joins them as our writer does.
struct References {
    each: (String, Vec<Raw>),
    grouped: Option<Vec<Raw>>,
}

async fn references(bench: &Bench, kind: &str) -> Outcome<References> {
    let count = POSTERS + WORKERS;
    let Some(postgres) = bench.postgres.as_ref().filter(|_| kind == "PostgreSQL") else {
        let folder = bench.folder.join("deployments");
        let (path, other) = (folder.join("reference.db"), folder.join("grouped.db"));
        let each = vec![reference::open_sqlite(&path, 1)?; count];
        let grouped = Some(vec![reference::open_sqlite(&other, reference::GROUP)?; count]);
        return Ok(References { each: (format!("sqlite:{}", path.display()), each), grouped });
    };
    let url = postgres.create("raw_deployments").await?;
    reference::create_postgres(&url).await?;
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(RawPostgres::connect(&url).await?);
    }
    Ok(References { each: (url, connections), grouped: None })
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    for (kind, url, engine) in house::open_both(bench, "deployments").await? {
        let References { each: (raw_url, connections), grouped } = references(bench, kind).await?;
        let (mine, theirs, others) = (Arc::default(), Arc::default(), Arc::default());
        let brief = SPELL / 3;
        ours(&engine, &mine, brief).await?;
        raw(&connections, &theirs, brief).await?;
        let (mut our_rates, mut raw_rates, mut grouped_rates) = (vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            our_rates.push(ours(&engine, &mine, SPELL).await?.rate);
            raw_rates.push(raw(&connections, &theirs, SPELL).await?.rate);
            if let Some(connections) = &grouped {
                grouped_rates.push(raw(connections, &others, SPELL).await?.rate);
            }
        }
        let meter = Meter::start(&url).await?;
        let pace = ours(&engine, &mine, SPELL).await?;
        let our_cost = meter.stop(pace.ended).await?;
        let meter = Meter::start(&raw_url).await?;
        let pace = raw(&connections, &theirs, SPELL).await?;
        let raw_cost = meter.stop(pace.ended).await?;
        let note = match grouped {
            Some(_) => {
                format!("13 commits each; the reference with group commit: {:.0}/s", median(&grouped_rates))
            }
            None => "13 commits each".into(),
        };
        report.add(Line {
            name: format!("no-op deployments, {kind}"),
            unit: "/s",
            ours: median(&our_rates),
            reference: Some(median(&raw_rates)),
            goal: Goal::RatioAtLeast(0.7),
            note,
        });
        tell_cost(report, kind, our_cost, raw_cost);
    }
    Ok(())
}

fn tell_cost(report: &mut Report, kind: &str, ours: Cost, raw: Cost) {
    let note = match ours.all {
        Some(all) => {
            format!(
                "{all:.1} with those that only read, {:.2} rolled back; NOTIFY counts",
                ours.rolled_back.unwrap_or_default()
            )
        }
        None => "group commit joins several".into(),
    };
    report.add(Line {
        name: format!("  write transactions each, {kind}"),
        unit: "",
        ours: ours.writes,
        reference: Some(raw.writes),
        goal: Goal::AtMost(14.0),
        note,
    });
    // A page is SQLite's smallest unit: its bytes are told, PostgreSQL's are held against the goal.
    report.add(Line {
        name: format!("  log bytes each, {kind}"),
        unit: "KB",
        ours: ours.bytes / 1e3,
        reference: Some(raw.bytes / 1e3),
        goal: if kind == "PostgreSQL" { Goal::AtMost(26.0) } else { Goal::None },
        note: String::new(),
    });
}
