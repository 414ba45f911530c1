//! Log lines in a burst, through `update()` in the chunks a busy worker sends, against inserts of the same chunks.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_api::worker::{JobOrder, Update, WorkerLink};
use conductor_engine::Engine;
use conductor_server::{Access, router};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Bench, Outcome,
    house::{self, Scripted},
    reading::{TOKEN, listen},
    reference::{self, Raw, RawPostgres},
    report::{Goal, Line, Report, median, quantile},
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
        house::deploy(&engine, WRITERS, 0).await?;
        let job = worker.acquire(1_000).await?.ok_or("nothing came")?;
        let stop = CancellationToken::new();
        engine.ensure_admin_token(Some(TOKEN)).await?;
        let address = listen(router(engine.clone(), Access::Tokens), &stop).await?;
        let (seen, written) = follow(&engine, address, &job).await?;
        stop.cancel();
        report.add(Line {
            name: format!("a log line until it is seen, p99, {kind}"),
            unit: "ms",
            ours: quantile(&seen, 0.99),
            reference: None,
            goal: Goal::AtMost(5.0),
            note: format!(
                "p50 {:.1}; {} of {written} lines seen, 5,000 a second",
                quantile(&seen, 0.5),
                seen.len()
            ),
        });
    }
    Ok(())
}

/// Reads a change's log as it comes while 5,000 lines a second are written: from the moment a line is handed over until
/// it was read, in milliseconds, and how many were written.
async fn follow(engine: &Arc<Engine>, address: SocketAddr, job: &JobOrder) -> Outcome<(Vec<f64>, usize)> {
    const ROUNDS: u64 = 300;
    const AT_ONCE: u64 = 50;
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "GET /api/v1/deployments/{}/logs HTTP/1.1\r\nhost: bench\r\naccept: text/event-stream\r\n\
         authorization: Bearer {TOKEN}\r\n\r\n",
        job.change
    );
    stream.write_all(request.as_bytes()).await?;
    let started = Instant::now();
    let reading = tokio::spawn(async move {
        let (mut seen, mut buffer) = (Vec::new(), Vec::new());
        while seen.len() < (ROUNDS * AT_ONCE) as usize {
            let read = tokio::time::timeout(Duration::from_secs(5), stream.read_buf(&mut buffer)).await;
            if !matches!(read, Ok(Ok(count)) if count > 0) {
                break;
            }
            let now = started.elapsed().as_micros() as f64;
            let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { continue };
            let whole: Vec<u8> = buffer.drain(..=end).collect();
            for piece in String::from_utf8_lossy(&whole).split("sent at ").skip(1) {
                let digits: String = piece.chars().take_while(char::is_ascii_digit).collect();
                seen.push((now - digits.parse::<f64>().unwrap_or(0.0)) / 1_000.0);
            }
        }
        seen
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut every = tokio::time::interval(Duration::from_millis(10));
    for round in 0..ROUNDS {
        every.tick().await;
        let mut lines = house::lines(AT_ONCE as usize);
        let at = started.elapsed().as_micros();
        lines.iter_mut().for_each(|line| line.text = format!("sent at {at} and not a moment later"));
        let update = Update { first_line: (1 << 40) + round * AT_ONCE, lines, journal: vec![] };
        engine.update(job.claim, update).await?;
    }
    Ok((reading.await?, (ROUNDS * AT_ONCE) as usize))
}
