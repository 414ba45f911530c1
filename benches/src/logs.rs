//! Log lines in a burst, through `update()` in the chunks a busy worker sends, against inserts of the same chunks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_api::worker::{JobOrder, Update, WorkerLink};
use conductor_engine::Engine;
use tokio::task::JoinSet;

use crate::{
    Bench, Outcome,
    house::{self, Scripted},
    reference::{self, Raw, RawPostgres},
    report::{Goal, Line, Report, median},
};

const ROUNDS: usize = 3;
const SPELL: Duration = Duration::from_millis(800);
/// Operations that write at the same time.
const WRITERS: u64 = 4;
/// Lines a chunk: what gathers in 50 ms of a tool that writes 10,000 lines a second.
const CHUNK: usize = 500;

async fn finish(mut tasks: JoinSet<Outcome<u64>>, started: Instant) -> Outcome<f64> {
    let mut chunks = 0;
    while let Some(ended) = tasks.join_next().await {
        chunks += ended??;
    }
    Ok(chunks as f64 * CHUNK as f64 / started.elapsed().as_secs_f64())
}

async fn ours(engine: &Arc<Engine>, jobs: &[JobOrder], first: u64) -> Outcome<f64> {
    let (mut tasks, started) = (JoinSet::new(), Instant::now());
    for job in jobs {
        let (engine, claim) = (engine.clone(), job.claim);
        tasks.spawn(async move {
            let mut sent = 0;
            let lines = house::lines(CHUNK);
            while started.elapsed() < SPELL {
                let first_line = first + sent * CHUNK as u64;
                let update = Update { first_line, lines: lines.clone(), journal: vec![] };
                engine.update(claim, update).await?;
                sent += 1;
            }
            Ok(sent)
        });
    }
    finish(tasks, started).await
}

async fn raw(connections: &[Raw], first: i64) -> Outcome<f64> {
    let (mut tasks, started) = (JoinSet::new(), Instant::now());
    for (change, raw) in connections.iter().cloned().enumerate() {
        tasks.spawn(async move {
            let mut sent = 0;
            let lines = house::lines(CHUNK);
            while started.elapsed() < SPELL {
                // The lines have to become bytes on either side.
                let body = serde_json::to_vec(&lines)?;
                raw.append(change as i64, first + sent as i64, &body).await?;
                sent += 1;
            }
            Ok(sent)
        });
    }
    finish(tasks, started).await
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    for (kind, _, engine) in house::open_both(bench, "logs").await? {
        let mut connections = Vec::new();
        match bench.postgres.as_ref().filter(|_| kind == "PostgreSQL") {
            Some(server) => {
                let url = server.create("raw_logs").await?;
                reference::create_postgres(&url).await?;
                for _ in 0..WRITERS {
                    connections.push(RawPostgres::connect(&url).await?);
                }
            }
            None => {
                let raw = reference::open_sqlite(
                    &bench.folder.join("logs").join("reference.db"),
                    reference::GROUP,
                )?;
                connections = vec![raw; WRITERS as usize];
            }
        }
        let worker = Scripted::new(&engine);
        let mut jobs = Vec::new();
        for number in 0..WRITERS {
            house::deploy(&engine, number, 0).await?;
            jobs.push(worker.acquire(1_000).await?.ok_or("nothing came")?);
        }
        let (mut our_rates, mut raw_rates) = (vec![], vec![]);
        for round in 0..ROUNDS as u64 {
            our_rates.push(ours(&engine, &jobs, round << 32).await?);
            raw_rates.push(raw(&connections, (round as i64) << 32).await?);
        }
        report.add(Line {
            name: format!("log lines in a burst, {kind}"),
            unit: "/s",
            ours: median(&our_rates),
            reference: Some(median(&raw_rates)),
            goal: Goal::RatioAtLeast(0.7),
            note: "ours compressed, sealed and numbered".into(),
        });
    }
    Ok(())
}
