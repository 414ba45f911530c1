//! One resource by its id over HTTP, 16 connections, against the least server that reads as many bytes from the same
//! kind of database by primary key; and, for scale, against one that reads nothing.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, routing::get};
use conductor_server::{Access, router, serve};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Bench, Outcome,
    house::{self, Scripted},
    report::{Goal, Line, Report, median},
};

const ROUNDS: usize = 3;
const SPELL: Duration = Duration::from_millis(1_000);
const CONNECTIONS: usize = 16;
const ROUTE: &str = "/api/v1/resources/{id}";
pub(crate) const TOKEN: &str = "bench-token-that-is-long-enough-0123456789";

/// A connection that is kept, and what one answer on it looks like.
struct Caller {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl Caller {
    async fn connect(address: SocketAddr, path: &str) -> Outcome<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {TOKEN}\r\n\r\n")
            .into_bytes();
        Ok(Self { stream, request, buffer: Vec::new() })
    }

    /// The body of the answer.
    async fn call(&mut self) -> Outcome<&[u8]> {
        self.stream.write_all(&self.request).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server hung up".into());
            }
            let Some(head) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let text = std::str::from_utf8(&self.buffer[..head])?;
            if !text.starts_with("HTTP/1.1 200") {
                return Err(text.lines().next().unwrap_or_default().to_owned().into());
            }
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .ok_or("an answer without a length")?;
            let end = head + 4 + length.parse::<usize>()?;
            if self.buffer.len() >= end {
                return Ok(&self.buffer[head + 4..end]);
            }
        }
    }
}

async fn rate(address: SocketAddr, path: &str) -> Outcome<f64> {
    let (mut tasks, started) = (JoinSet::<Outcome<u64>>::new(), Instant::now());
    for _ in 0..CONNECTIONS {
        let mut caller = Caller::connect(address, path).await?;
        tasks.spawn(async move {
            let mut calls = 0;
            while started.elapsed() < SPELL {
                caller.call().await?;
                calls += 1;
            }
            Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(ended) = tasks.join_next().await {
        calls += ended??;
    }
    Ok(calls as f64 / started.elapsed().as_secs_f64())
}

pub(crate) async fn listen(router: Router, stop: &CancellationToken) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(serve(listener, router, stop.clone()));
    Ok(address)
}

/// The answer, kept as one row: read by a thread of SQLite's, or on one pipelined connection.
async fn reading_router(bench: &Bench, kind: &str, body: &'static str) -> Outcome<Router> {
    const CREATE: &str = "CREATE TABLE kept (id BIGINT PRIMARY KEY, body TEXT NOT NULL)";
    const READ: &str = "SELECT body FROM kept WHERE id = 1";
    let insert = format!("INSERT INTO kept VALUES (1, '{body}')");
    let header = [("content-type", "application/json")];
    if let Some(server) = bench.postgres.as_ref().filter(|_| kind == "PostgreSQL") {
        let client = crate::postgres::connect(&server.create("raw_reading").await?).await?;
        client.batch_execute(CREATE).await?;
        client.batch_execute(&insert).await?;
        let read = client.prepare(READ).await?;
        let shared = Arc::new((client, read));
        let handler = move || {
            let shared = shared.clone();
            async move {
                let row = shared.0.query_one(&shared.1, &[]).await;
                (header, row.map_or_else(|_| String::new(), |row| row.get(0)))
            }
        };
        return Ok(Router::new().route(ROUTE, get(handler)));
    }
    let connection = rusqlite::Connection::open(bench.folder.join("reading").join("reference.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.execute_batch(CREATE)?;
    connection.execute_batch(&insert)?;
    let connection = Arc::new(Mutex::new(connection));
    let handler = move || {
        let connection = connection.clone();
        async move {
            let read = |connection: &rusqlite::Connection| {
                connection.prepare_cached(READ)?.query_row([], |row| row.get::<_, String>(0))
            };
            let body = connection.lock().ok().and_then(|connection| read(&connection).ok());
            (header, body.unwrap_or_default())
        }
    };
    Ok(Router::new().route(ROUTE, get(handler)))
}

pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let stop = CancellationToken::new();
    let _stopped = stop.clone().drop_guard();
    for (kind, _, engine) in house::open_both(bench, "reading").await? {
        engine.ensure_admin_token(Some(TOKEN)).await?;
        house::deploy(&engine, 0, 1).await?;
        let worker = Scripted::new(&engine);
        while worker.one(0).await?.is_some() {}
        let resources = engine.resources(Default::default()).await?.items;
        let resource = resources.first().ok_or("there is no resource")?;
        let path = format!("/api/v1/resources/{}", resource.id);
        let ours = listen(router(engine.clone(), Access::Tokens), &stop).await?;
        let body: &'static str =
            String::from_utf8(Caller::connect(ours, &path).await?.call().await?.to_vec())?.leak();
        let constant = move || async move { ([("content-type", "application/json")], body) };
        let constant = listen(Router::new().route(ROUTE, get(constant)), &stop).await?;
        let reading = listen(reading_router(bench, kind, body).await?, &stop).await?;
        let (mut our_rates, mut raw_rates, mut constant_rates) = (vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            our_rates.push(rate(ours, &path).await?);
            raw_rates.push(rate(reading, &path).await?);
            constant_rates.push(rate(constant, &path).await?);
        }
        let (size, bare) = (body.len(), median(&constant_rates));
        report.add(Line {
            name: format!("read one resource over HTTP, {kind}"),
            unit: "/s",
            ours: median(&our_rates),
            reference: Some(median(&raw_rates)),
            goal: Goal::RatioAtLeast(0.7),
            note: format!("{size} bytes by primary key; a constant answer: {bare:.0}/s"),
        });
    }
    Ok(())
}
