//! What the worker and its guard say to each other: JSON documents with their length before them.
//!
//! Deadlines are points on the machine's boot clock, which both sides read: a message that is read late
//! (a frozen worker) then means what it meant when it was written.

use std::{collections::BTreeMap, io, path::PathBuf};

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    limits::{Limit, Limits},
    sandbox::Protection,
};

/// Standard input, output and error of a program travel with its `Start`.
pub const STREAMS: usize = 3;
const PREFIX: usize = 4;
/// Far above any program's arguments and environment; a longer message is a broken stream.
const LONGEST: usize = 64 << 20;

/// Milliseconds since boot, counting the time the machine slept.
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    now.map(|now| now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    Cancelled,
    TimedOut,
    LeaseLost,
    OverLimit(Limit),
}

/// A program with everything it may see: what is not named here is out of its reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    pub path: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub folder: PathBuf,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub connect: Vec<u16>,
    pub limits: Limits,
    /// The signal that asks it to end.
    pub stop: i32,
    /// How long it may take to end by itself when its deadline has passed.
    pub deadline_grace_ms: u64,
    /// The program is the command line of a container engine: it is not confined, and when it is killed the container
    /// of this name is removed.
    pub container: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    Start {
        job: u64,
        spec: Box<Spec>,
        deadline_ms: u64,
    },
    Extend {
        job: u64,
        deadline_ms: u64,
    },
    /// The stop signal now (none: SIGKILL at once), SIGKILL after the grace.
    Stop {
        job: u64,
        grace_ms: Option<u64>,
        why: Why,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Sent first: what keeps programs in.
    Ready {
        protections: Vec<Protection>,
        namespaces: bool,
    },
    Started {
        job: u64,
        pid: i32,
    },
    /// Nothing of the program's tree is left.
    Exited {
        job: u64,
        code: Option<i32>,
        signal: Option<i32>,
        stopped: Option<Why>,
        /// Where the kernel stopped something of it.
        reached: Vec<Limit>,
    },
    /// It could not be started.
    Failed {
        job: u64,
        message: String,
    },
}

pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![0; PREFIX];
    // Our own types hold only what JSON can say.
    serde_json::to_writer(&mut bytes, message).expect("a message is always JSON");
    let length = (bytes.len() - PREFIX) as u32;
    bytes[..PREFIX].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Puts messages together again from what the socket hands over in pieces.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(prefix) = self.bytes.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than any can be"));
        }
        let Some(body) = self.bytes.get(PREFIX..PREFIX + length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        self.bytes.drain(..PREFIX + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_being_cut_anywhere() {
        let events = [
            Event::Started { job: 1, pid: 7 },
            Event::Exited {
                job: 1,
                code: Some(3),
                signal: None,
                stopped: Some(Why::OverLimit(Limit::Memory)),
                reached: vec![Limit::Processes],
            },
        ];
        let bytes: Vec<u8> = events.iter().flat_map(encode).collect();
        let mut inbox = Inbox::default();
        let mut seen = Vec::new();
        for byte in bytes {
            inbox.push(&[byte]);
            while let Some(event) = inbox.take::<Event>().unwrap() {
                seen.push(event);
            }
        }
        assert_eq!(seen, events);
    }

    #[test]
    fn an_impossible_length_is_an_error() {
        let mut inbox = Inbox::default();
        inbox.push(&[0xff; 8]);
        assert!(inbox.take::<Event>().is_err());
    }
}
