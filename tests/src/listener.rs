//! A listener on a port of its own that keeps what is posted to it, and refuses on demand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use serde_json::Value;

#[derive(Default)]
struct Heard {
    bodies: Mutex<Vec<Vec<u8>>>,
    refuses: AtomicBool,
    refused: AtomicUsize,
}

/// Lives as long as the tests do.
pub struct Listener {
    pub url: String,
    heard: Arc<Heard>,
}

impl Default for Listener {
    fn default() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let heard = Arc::new(Heard::default());
        let keep = heard.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keep = keep.clone();
                thread::spawn(move || answer(stream, &keep));
            }
        });
        Self { url, heard }
    }
}

/// One request per connection.
fn answer(mut stream: TcpStream, heard: &Heard) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let status = if heard.refuses.load(Ordering::SeqCst) {
        heard.refused.fetch_add(1, Ordering::SeqCst);
        "503 Service Unavailable"
    } else {
        heard.bodies.lock().ok()?.push(body);
        "200 OK"
    };
    let head = "content-type: application/json\r\nconnection: close\r\ncontent-length: 2";
    write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{{}}").ok()
}

impl Listener {
    pub fn refuse(&self, refuse: bool) {
        self.heard.refuses.store(refuse, Ordering::SeqCst);
    }

    /// How many were turned away.
    pub fn refused(&self) -> usize {
        self.heard.refused.load(Ordering::SeqCst)
    }

    /// Everything posted so far.
    pub fn heard(&self) -> Vec<Value> {
        let bodies = self.heard.bodies.lock().expect("what was heard");
        bodies.iter().map(|body| serde_json::from_slice(body).unwrap_or_default()).collect()
    }
}
