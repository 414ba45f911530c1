//! Claim and done, one by one, by 16 workers on PostgreSQL, from a queue that is full before the clock starts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Instant,
};

use conductor_engine::Engine;
use tokio::task::JoinSet;

use crate::{
    Bench, Outcome,
    house::{self, Scripted},
    postgres,
    reference::{self, Raw, RawPostgres},
    report::{Goal, Line, Report, median},
};

const ROUNDS: usize = 3;
const WORKERS: usize = 16;
const QUEUED: u64 = 600;
/// Raw jobs are that much shorter.
const RAW_QUEUED: i64 = 4_000;

/// Changes of one operation: a workload that needs nothing.
async fn fill(engine: &Arc<Engine>, number: &Arc<AtomicU64>) -> Outcome {
    let until = number.load(Ordering::Relaxed) + QUEUED;
    let mut tasks: JoinSet<Outcome> = JoinSet::new();
    for _ in 0..8 {
        let (engine, number) = (engine.clone(), number.clone());
        tasks.spawn(async move {
            loop {
                let next = number.fetch_add(1, Ordering::Relaxed);
                if next >= until {
                    return Ok(());
                }
                house::deploy(&engine, next, 0).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn ours(engine: &Arc<Engine>) -> Outcome<f64> {
    let (mut tasks, started) = (JoinSet::<Outcome>::new(), Instant::now());
    let done = Arc::new(AtomicU64::new(0));
    for _ in 0..WORKERS {
        let (worker, done) = (Scripted::new(engine), done.clone());
        tasks.spawn(async move {
            while worker.one(0).await?.is_some() {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

async fn raw(connections: &[Raw]) -> Outcome<f64> {
    let (mut tasks, started) = (JoinSet::<Outcome>::new(), Instant::now());
    let done = Arc::new(AtomicI64::new(0));
    for raw in connections {
        let (raw, done) = (raw.clone(), done.clone());
        tasks.spawn(async move {
            while let Some(id) = raw.claim().await? {
                raw.complete(id, &[]).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64())
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let Some(server) = &bench.postgres else {
        return Err("there is no PostgreSQL on this machine".into());
    };
    let data = bench.folder.join("claims");
    std::fs::create_dir_all(&data)?;
    let engine = house::open(house::options(server.create("ours_claims").await?, &data)).await?;
    house::furnish(&engine).await?;
    let url = server.create("raw_claims").await?;
    reference::create_postgres(&url).await?;
    let filler = postgres::connect(&url).await?;
    let mut connections = Vec::new();
    for _ in 0..WORKERS {
        connections.push(RawPostgres::connect(&url).await?);
    }
    let number = Arc::new(AtomicU64::new(0));
    let (mut our_rates, mut raw_rates) = (vec![], vec![]);
    for round in 0..=ROUNDS as i64 {
        fill(&engine, &number).await?;
        our_rates.push(ours(&engine).await?);
        let (from, to) = (round * RAW_QUEUED, (round + 1) * RAW_QUEUED - 1);
        filler
            .execute(
                "INSERT INTO changes SELECT i, 0, 1, 1 FROM generate_series($1::bigint, $2) i",
                &[&from, &to],
            )
            .await?;
        filler
            .execute(
                "INSERT INTO work SELECT i * 8 + 5, i, 1, 0, 'app', '{}' FROM generate_series($1::bigint, $2) i",
                &[&from, &to],
            )
            .await?;
        raw_rates.push(raw(&connections).await?);
    }
    // The first round warms up.
    report.add(Line {
        name: "claim + done, 16 workers, PostgreSQL".into(),
        unit: "/s",
        ours: median(&our_rates[1..]),
        reference: Some(median(&raw_rates[1..])),
        goal: Goal::RatioAtLeast(0.7),
        note: "ours ends a change with each".into(),
    });
    Ok(())
}
