//! Terraform's HTTP state protocol, without the HTTP: a request in, a status and a body out.
//!
//! The worker serves it to its jobs on loopback, the server to people's own terraform: one function, two stores.
//! Clients repeat what was not answered, so everything here can be done twice.

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use md5::{Digest, Md5};

use crate::worker::{LinkError, LinkResult, LockAnswer, StateLock};

/// Far above any state seen; a bound all the same.
pub const LARGEST_STATE: usize = 256 << 20;

/// Where one state is kept.
#[async_trait]
pub trait StateStore: Send + Sync {
    async fn read(&self) -> LinkResult<Option<Bytes>>;

    /// `lock` is the id of the lock the writer holds, when it says so.
    async fn write(&self, lock: Option<String>, body: Bytes) -> LinkResult<()>;

    /// The same id again is the same lock: its answer may have been lost.
    async fn lock(&self, lock: StateLock) -> LinkResult<LockAnswer>;

    /// Without a lock: whatever lock there is (`force-unlock`).
    async fn unlock(&self, lock: Option<StateLock>) -> LinkResult<()>;
}

#[derive(Debug)]
pub struct StateRequest<'a> {
    pub method: &'a str,
    /// The query string, without `?`.
    pub query: &'a str,
    /// The header `Content-MD5`, where it was sent.
    pub content_md5: Option<&'a str>,
    pub body: Bytes,
}

#[derive(Debug, PartialEq, Eq)]
pub struct StateReply {
    pub status: u16,
    pub body: Bytes,
}

impl StateReply {
    fn empty(status: u16) -> Self {
        Self { status, body: Bytes::new() }
    }

    fn text(status: u16, text: impl Into<String>) -> Self {
        Self { status, body: Bytes::from(text.into()) }
    }
}

pub async fn answer_state(store: &dyn StateStore, request: StateRequest<'_>) -> StateReply {
    if let Some(sent) = request.content_md5
        && STANDARD.encode(Md5::digest(&request.body)) != sent.trim()
    {
        return StateReply::text(400, "the body does not have the Content-MD5 it was sent with");
    }
    let result = match request.method {
        "GET" => store.read().await.map(|state| match state {
            Some(body) if !body.is_empty() => StateReply { status: 200, body },
            _ => StateReply::empty(404),
        }),
        "POST" | "PUT" => {
            store.write(lock_id(request.query), request.body).await.map(|()| StateReply::empty(200))
        }
        "LOCK" => match serde_json::from_slice(&request.body) {
            Ok(lock) => store.lock(lock).await.map(locked),
            Err(error) => return StateReply::text(400, format!("this is not a lock: {error}")),
        },
        "UNLOCK" if request.body.is_empty() => store.unlock(None).await.map(|()| StateReply::empty(200)),
        "UNLOCK" => match serde_json::from_slice(&request.body) {
            Ok(lock) => store.unlock(Some(lock)).await.map(|()| StateReply::empty(200)),
            Err(error) => return StateReply::text(400, format!("this is not a lock: {error}")),
        },
        other => return StateReply::text(405, format!("{other} is not part of the state protocol")),
    };
    result.unwrap_or_else(|error| match error {
        LinkError::Lost => StateReply::text(409, error.to_string()),
        LinkError::Unreachable(message) => StateReply::text(503, message),
        LinkError::Refused(message) => StateReply::text(409, message),
    })
}

fn locked(answer: LockAnswer) -> StateReply {
    match answer {
        LockAnswer::Taken => StateReply::empty(200),
        LockAnswer::HeldBy(holder) => {
            StateReply { status: 423, body: serde_json::to_vec(&holder).unwrap_or_default().into() }
        }
    }
}

fn lock_id(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("ID="))?;
    (!value.is_empty()).then(|| percent_decoded(value))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.first_chunk::<2>().filter(|_| byte == b'%');
        let value = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (value, byte) {
            (Some(value), _) => {
                bytes.push(value);
                rest = &after[2..];
            }
            (None, b'+') => {
                bytes.push(b' ');
                rest = after;
            }
            (None, byte) => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_id_is_found_and_decoded() {
        assert_eq!(lock_id("ID=a-b").as_deref(), Some("a-b"));
        assert_eq!(lock_id("x=1&ID=a%2Fb%zz+c").as_deref(), Some("a/b%zz c"));
        assert_eq!(lock_id("ID="), None);
        assert_eq!(lock_id(""), None);
    }
}
