//! Terraform's HTTP state protocol, in memory, on loopback.

use std::sync::{Arc, Mutex};

use conductor_managers::StateAddress;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

#[derive(Default)]
struct Inner {
    state: Option<Vec<u8>>,
    lock: Option<Value>,
    refuse_next_post: bool,
}

#[derive(Clone)]
pub struct StateServer {
    port: u16,
    inner: Arc<Mutex<Inner>>,
}

impl StateServer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Mutex::new(Inner::default()));
        let shared = inner.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { port, inner }
    }

    pub fn address(&self) -> StateAddress {
        StateAddress {
            url: format!("http://127.0.0.1:{}/state", self.port),
            username: "job".into(),
            password: "a-token-of-this-job".into(),
            port: self.port,
        }
    }

    pub fn stored(&self) -> Option<Vec<u8>> {
        self.inner.lock().unwrap().state.clone()
    }

    pub fn hold_lock(&self) {
        let holder =
            json!({"ID": "another", "Operation": "apply", "Who": "test", "Created": "2026-01-01T00:00:00Z"});
        self.inner.lock().unwrap().lock = Some(holder);
    }

    pub fn refuse_next_post(&self) {
        self.inner.lock().unwrap().refuse_next_post = true;
    }

    pub fn lock_is_free(&self) -> bool {
        self.inner.lock().unwrap().lock.is_none()
    }
}

async fn serve(stream: TcpStream, inner: Arc<Mutex<Inner>>) -> Option<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut request = String::new();
        reader.read_line(&mut request).await.ok().filter(|read| *read > 0)?;
        let (mut length, mut authorised) = (0, false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).await.ok()?;
            if header.trim().is_empty() {
                break;
            }
            let (name, value) = header.split_once(':')?;
            match name.to_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "authorization" => authorised = value.contains("Basic "),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await.ok()?;
        let method = request.split(' ').next()?;
        let (status, answer) = if authorised { handle(method, body, &inner) } else { (401, Vec::new()) };
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", answer.len());
        writer.write_all(&[head.into_bytes(), answer].concat()).await.ok()?;
    }
}

fn handle(method: &str, body: Vec<u8>, inner: &Mutex<Inner>) -> (u16, Vec<u8>) {
    let mut inner = inner.lock().unwrap();
    match method {
        "GET" => inner.state.clone().map_or((404, Vec::new()), |state| (200, state)),
        "POST" if std::mem::take(&mut inner.refuse_next_post) => (409, Vec::new()),
        "POST" => {
            inner.state = Some(body);
            (200, Vec::new())
        }
        "LOCK" => match &inner.lock {
            Some(holder) => (423, holder.to_string().into_bytes()),
            None => {
                inner.lock = serde_json::from_slice(&body).ok();
                (200, Vec::new())
            }
        },
        "UNLOCK" => {
            inner.lock = None;
            (200, Vec::new())
        }
        _ => (405, Vec::new()),
    }
}
