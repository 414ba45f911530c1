//! A gate between workers and servers: HTTP passes through it, and a test can hold or cut any exchange at an exact
//! point: before the server hears of it, or after the server has answered.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{block_on, eventually, spawn};

/// Where an exchange is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The server has not heard of it.
    Request,
    /// The server has done it, and whoever asked has not heard.
    Reply,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Hold,
    Cut,
}

struct Rule {
    path: String,
    at: At,
    then: Then,
    /// How many exchanges it still applies to.
    left: AtomicUsize,
    reached: AtomicUsize,
    released: AtomicBool,
}

#[derive(Default)]
struct Rules(Mutex<Vec<Arc<Rule>>>);

/// Passes everything on to the first of its servers that takes the connection, or to each in turn.
pub struct Gate {
    pub url: String,
    rules: Arc<Rules>,
    task: JoinHandle<()>,
}

/// A point that exchanges are stopped at.
pub struct Stop(Arc<Rule>);

impl Gate {
    /// `servers` are addresses as `http://HOST:PORT`.
    pub fn before(servers: &[String]) -> Self {
        Self::open(servers, 0)
    }

    /// Every request to another server, as a load balancer does.
    pub fn spreading(servers: &[String]) -> Self {
        Self::open(servers, 1)
    }

    fn open(servers: &[String], step: usize) -> Self {
        let servers: Arc<[String]> = servers.iter().map(|url| url.replace("http://", "")).collect();
        let rules = Arc::new(Rules::default());
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let known = rules.clone();
        let task = spawn(async move {
            let mut first = 0;
            while let Ok((client, _)) = listener.accept().await {
                let (mut servers, rules) = (servers.to_vec(), known.clone());
                servers.rotate_left(first);
                first = (first + step) % servers.len();
                tokio::spawn(async move { pass(client, &servers, &rules).await });
            }
        });
        Self { url, rules, task }
    }

    fn stop(&self, path: &str, at: At, then: Then, times: usize) -> Stop {
        let rule = Arc::new(Rule {
            path: path.to_owned(),
            at,
            then,
            left: AtomicUsize::new(times),
            reached: AtomicUsize::new(0),
            released: AtomicBool::new(false),
        });
        self.rules.0.lock().expect("rules").push(rule.clone());
        Stop(rule)
    }

    /// Holds every exchange whose method and path hold each word of `path`, until released.
    pub fn hold(&self, path: &str, at: At) -> Stop {
        self.stop(path, at, Then::Hold, usize::MAX)
    }

    /// Cuts the connection of the next `times` exchanges.
    pub fn cut(&self, path: &str, at: At, times: usize) -> Stop {
        self.stop(path, at, Then::Cut, times)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stop {
    /// Waits until an exchange got here.
    #[track_caller]
    pub fn wait(&self) {
        let what = format!("something gets to {:?} of {}", self.0.at, self.0.path);
        eventually(&what, Duration::from_secs(30), || (self.reached() > 0).then_some(()));
    }

    pub fn reached(&self) -> usize {
        self.0.reached.load(Ordering::SeqCst)
    }

    /// Lets everything through, from now on.
    pub fn release(&self) {
        self.0.left.store(0, Ordering::SeqCst);
        self.0.released.store(true, Ordering::SeqCst);
    }
}

impl Rules {
    fn matching(&self, at: At, path: &str, body: &[u8]) -> Option<Arc<Rule>> {
        let rules = self.0.lock().expect("rules");
        let rule = rules.iter().find(|rule| {
            let fits = rule.path.split(' ').all(|word| path.contains(word));
            rule.at == at && fits && rule.left.load(Ordering::SeqCst) > 0
        })?;
        // An acquire that was given nothing is of no interest.
        if at == At::Reply
            && rule.path == "/acquire"
            && !String::from_utf8_lossy(body).contains("\"jobs\":[{")
        {
            return None;
        }
        rule.left.fetch_sub(1, Ordering::SeqCst);
        rule.reached.fetch_add(1, Ordering::SeqCst);
        Some(rule.clone())
    }

    /// Whether the exchange goes on.
    async fn heed(&self, at: At, path: &str, body: &[u8]) -> bool {
        let Some(rule) = self.matching(at, path, body) else {
            return true;
        };
        if rule.then == Then::Cut {
            return false;
        }
        while !rule.released.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        true
    }
}

/// One request and its answer; the connection is closed after it.
async fn pass(mut client: TcpStream, servers: &[String], rules: &Rules) -> Option<()> {
    let (head, body) = read_request(&mut client).await?;
    let path: Vec<&str> = head.splitn(3, ' ').take(2).collect();
    let path = path.join(" ");
    if !rules.heed(At::Request, &path, &body).await {
        return None;
    }
    let mut server = connect(servers).await?;
    server.write_all(with_close(&head).as_bytes()).await.ok()?;
    server.write_all(&body).await.ok()?;
    let mut answer = Vec::new();
    let mut nothing = [0; 1];
    tokio::select! {
        read = server.read_to_end(&mut answer) => drop(read.ok()?),
        // Whoever asked is gone: so is the request.
        _ = client.read(&mut nothing) => return None,
    }
    if !rules.heed(At::Reply, &path, &answer).await {
        return None;
    }
    client.write_all(&answer).await.ok()?;
    client.shutdown().await.ok()
}

async fn connect(servers: &[String]) -> Option<TcpStream> {
    for server in servers {
        if let Ok(stream) = TcpStream::connect(server).await {
            return Some(stream);
        }
    }
    None
}

async fn read_request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = bytes.split_off(end);
    while body.len() < length.unwrap_or(0) {
        if client.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}

fn with_close(head: &str) -> String {
    let kept = head.trim_end().lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut text: String = kept.flat_map(|line| [line, "\r\n"]).collect();
    text.push_str("connection: close\r\n\r\n");
    text
}
