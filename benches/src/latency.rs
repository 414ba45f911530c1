//! From "it is enqueued" to "a waiting worker has it", one at a time.
//!
//! PostgreSQL: posted at one server, the worker waits at another, both on one database. The reference has its row
//! committed when the clock starts, as ours has, then sends NOTIFY and is done when the claim is committed.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_engine::Engine;
use futures_util::future::poll_fn;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::{
    Bench, Outcome,
    house::{self, Scripted},
    reference::{self, Raw, RawPostgres},
    report::{Goal, Line, Report, milliseconds, quantile},
};

const SAMPLES: usize = 60;
const ROUNDS: usize = 5;
const PAUSE: Duration = Duration::from_millis(4);

/// One sample each: posts through `post`, a worker waits at `wait`.
async fn ours(post: &Arc<Engine>, wait: &Arc<Engine>, number: &mut u64, samples: &mut Vec<f64>) -> Outcome {
    let worker = Scripted::new(wait);
    for _ in 0..SAMPLES {
        let waiting = tokio::spawn({
            let worker = worker.clone();
            async move { worker.acquire(5_000).await.map(|job| (job, Instant::now())) }
        });
        tokio::time::sleep(PAUSE).await;
        *number += 1;
        house::deploy(post, *number, 0).await?;
        let enqueued = Instant::now();
        let (job, started) = waiting.await??;
        samples.push(milliseconds(started.saturating_duration_since(enqueued)));
        worker.complete(&job.ok_or("nothing came")?).await?;
    }
    Ok(())
}

/// A raw claim after a wake-up that came through `bell`.
async fn raw(
    poster: &Raw,
    claimer: &Raw,
    bell: &mut mpsc::UnboundedReceiver<()>,
    ring: &dyn Fn(),
    number: &mut i64,
    samples: &mut Vec<f64>,
) -> Outcome {
    for _ in 0..SAMPLES {
        tokio::time::sleep(PAUSE).await;
        while bell.try_recv().is_ok() {}
        *number += 1;
        poster.deploy(*number, 0).await?;
        let enqueued = Instant::now();
        let wake = async {
            match poster {
                Raw::Postgres(postgres) => {
                    postgres.client.batch_execute("NOTIFY raw").await.map_err(Into::into)
                }
                Raw::Sqlite(_) => {
                    ring();
                    Outcome::Ok(())
                }
            }
        };
        let claim = async {
            bell.recv().await;
            let id = claimer.claim().await?.ok_or("nothing came")?;
            Outcome::Ok((id, Instant::now()))
        };
        let ((), (id, started)) = tokio::try_join!(wake, claim)?;
        samples.push(milliseconds(started.saturating_duration_since(enqueued)));
        claimer.complete(id, &[]).await?;
    }
    Ok(())
}

async fn listen(url: &str) -> Outcome<mpsc::UnboundedReceiver<()>> {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
    let (ring, bell) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if matches!(message, AsyncMessage::Notification(_)) {
                let _ = ring.send(());
            }
        }
    });
    client.batch_execute("LISTEN raw").await?;
    // The connection lives as long as its client.
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(client);
    });
    Ok(bell)
}

fn tell(report: &mut Report, kind: &str, ours: &[f64], raw: &[f64]) {
    for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
        report.add(Line {
            name: format!("enqueue -> start {name}, {kind}"),
            unit: "ms",
            ours: quantile(ours, part),
            reference: Some(quantile(raw, part)),
            goal: Goal::RatioAtMost(2.0),
            note: String::new(),
        });
    }
}

async fn on_sqlite(folder: &Path, report: &mut Report) -> Outcome {
    let engine =
        house::open(house::options(format!("sqlite:{}", folder.join("ours.db").display()), folder)).await?;
    house::furnish(&engine).await?;
    let reference = reference::open_sqlite(&folder.join("reference.db"), reference::GROUP)?;
    let (ring, mut bell) = mpsc::unbounded_channel();
    let ring = move || {
        let _ = ring.send(());
    };
    let (mut mine, mut theirs, mut number, mut raw_number) = (vec![], vec![], 0, 0);
    for _ in 0..ROUNDS {
        ours(&engine, &engine, &mut number, &mut mine).await?;
        raw(&reference, &reference, &mut bell, &ring, &mut raw_number, &mut theirs).await?;
    }
    tell(report, "SQLite in process", &mine, &theirs);
    Ok(())
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let folder = bench.folder.join("latency");
    std::fs::create_dir_all(&folder)?;
    on_sqlite(&folder, report).await?;
    let Some(server) = &bench.postgres else {
        return Err("there is no PostgreSQL on this machine".into());
    };
    let url = server.create("ours_latency").await?;
    let key = folder.join("shared");
    std::fs::create_dir_all(&key)?;
    let posts = house::open(house::options(url.clone(), &key)).await?;
    house::furnish(&posts).await?;
    let waits = house::open(house::options(url, &key)).await?;
    let raw_url = server.create("raw_latency").await?;
    reference::create_postgres(&raw_url).await?;
    let (poster, claimer) = (RawPostgres::connect(&raw_url).await?, RawPostgres::connect(&raw_url).await?);
    let mut bell = listen(&raw_url).await?;
    let (mut mine, mut theirs, mut number, mut raw_number) = (vec![], vec![], 0, 0);
    for _ in 0..ROUNDS {
        ours(&posts, &waits, &mut number, &mut mine).await?;
        raw(&poster, &claimer, &mut bell, &|| {}, &mut raw_number, &mut theirs).await?;
    }
    tell(report, "PostgreSQL, two servers", &mine, &theirs);
    Ok(())
}
