//! An engine in a few lines: hands out prepared jobs, keeps what it is told, and fails on demand.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use conductor_api::worker::{
    Acquire, Acquired, Claim, Completion, JobOrder, JobResult, LinkError, LinkResult, LockAnswer, StateLock,
    Update, Updated, WorkerLink,
};
use conductor_domain::{ids::OperationId, work::LogLine};
use serde_json::Value;
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Default)]
pub struct FakeLink {
    kept: Mutex<Kept>,
    changed: Notify,
    /// Nobody answers anything but acquire.
    pub cut: AtomicBool,
    /// The operation has another owner.
    pub lost: AtomicBool,
    /// So many completions are taken in and their answers lost.
    pub lose_answers: AtomicUsize,
    /// So many grants are made and their answers lost.
    pub lose_grants: AtomicUsize,
}

#[derive(Default)]
pub struct Kept {
    queue: VecDeque<JobOrder>,
    granted: HashMap<Uuid, Vec<JobOrder>>,
    cancel: Vec<OperationId>,
    pub acquires: Vec<Acquire>,
    pub updates: usize,
    pub renewed: Option<Instant>,
    pub lines: BTreeMap<u64, LogLine>,
    pub journal: Vec<Value>,
    pub completions: Vec<(Claim, JobResult)>,
    pub complete_calls: usize,
    pub blobs: HashMap<String, Bytes>,
    pub blob_calls: usize,
    pub state: Option<Bytes>,
    pub state_lock: Option<StateLock>,
}

impl FakeLink {
    pub fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    pub fn offer(&self, order: JobOrder) {
        self.kept().queue.push_back(order);
        self.changed.notify_waiters();
    }

    pub fn cancel(&self, operation: OperationId) {
        self.kept().cancel.push(operation);
        self.changed.notify_waiters();
    }

    /// Waits until so many jobs have ended, and returns how the last did.
    pub async fn completed(&self, count: usize) -> JobResult {
        self.wait(|kept| kept.completions.len() >= count).await;
        self.kept().completions[count - 1].1.clone()
    }

    pub async fn wait(&self, ready: impl Fn(&Kept) -> bool) {
        let waiting = async {
            while !ready(&self.kept()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("it never happened");
    }

    pub async fn logged(&self, text: &str) {
        self.wait(|kept| kept.lines.values().any(|line| line.text.contains(text))).await;
    }

    pub fn log(&self) -> Vec<String> {
        self.kept().lines.values().map(|line| line.text.clone()).collect()
    }

    fn check(&self) -> LinkResult<()> {
        match () {
            () if self.lost.load(Ordering::SeqCst) => Err(LinkError::Lost),
            () if self.cut.load(Ordering::SeqCst) => Err(LinkError::Unreachable("cut".to_owned())),
            () => Ok(()),
        }
    }
}

impl Kept {
    fn take_in(&mut self, update: Update) {
        let numbered = (update.first_line..).zip(update.lines);
        for (number, line) in numbered {
            let known = self.lines.insert(number, line.clone());
            assert!(known.is_none_or(|known| known == line), "line {number} came twice and differs");
        }
        self.journal.extend(update.journal);
    }

    fn grant(&mut self, ask: &Acquire) -> Option<Acquired> {
        if let Some(jobs) = self.granted.get(&ask.request) {
            return Some(Acquired { jobs: jobs.clone(), cancel: Vec::new() });
        }
        let cancel: Vec<_> = self.cancel.iter().filter(|id| ask.running.contains(id)).copied().collect();
        let count = self.queue.len().min(ask.slots as usize);
        let jobs: Vec<_> = self.queue.drain(..count).collect();
        if jobs.is_empty() && cancel.is_empty() {
            return None;
        }
        self.granted.insert(ask.request, jobs.clone());
        Some(Acquired { jobs, cancel })
    }
}

fn take_one(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[async_trait]
impl WorkerLink for FakeLink {
    async fn acquire(&self, ask: Acquire) -> LinkResult<Acquired> {
        self.kept().acquires.push(ask.clone());
        let until = tokio::time::Instant::now() + Duration::from_millis(ask.wait_ms);
        loop {
            let changed = self.changed.notified();
            if let Some(acquired) = self.kept().grant(&ask) {
                if !acquired.jobs.is_empty() && take_one(&self.lose_grants) {
                    return Err(LinkError::Unreachable("the answer was lost".to_owned()));
                }
                return Ok(acquired);
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return Ok(Acquired::default());
            }
        }
    }

    async fn update(&self, _: Claim, update: Update) -> LinkResult<Updated> {
        self.check()?;
        let mut kept = self.kept();
        kept.updates += 1;
        kept.renewed = Some(Instant::now());
        kept.take_in(update);
        Ok(Updated::default())
    }

    async fn complete(&self, claim: Claim, completion: Completion) -> LinkResult<()> {
        self.check()?;
        let mut kept = self.kept();
        kept.complete_calls += 1;
        if !kept.completions.iter().any(|(known, _)| *known == claim) {
            kept.completions.push((claim, completion.result));
        }
        kept.take_in(completion.rest);
        drop(kept);
        match take_one(&self.lose_answers) {
            true => Err(LinkError::Unreachable("the answer was lost".to_owned())),
            false => Ok(()),
        }
    }

    async fn blob(&self, _: Claim, digest: &str) -> LinkResult<Bytes> {
        let mut kept = self.kept();
        kept.blob_calls += 1;
        kept.blobs.get(digest).cloned().ok_or_else(|| LinkError::Refused(format!("no blob {digest}")))
    }

    async fn keep_blob(&self, _: Claim, digest: &str, body: Bytes) -> LinkResult<()> {
        self.kept().blobs.insert(digest.to_owned(), body);
        Ok(())
    }

    async fn read_state(&self, _: Claim) -> LinkResult<Option<Bytes>> {
        self.check()?;
        Ok(self.kept().state.clone())
    }

    async fn write_state(&self, _: Claim, lock: Option<String>, body: Bytes) -> LinkResult<()> {
        self.check()?;
        let mut kept = self.kept();
        assert_eq!(lock, kept.state_lock.as_ref().map(|lock| lock.id.clone()));
        kept.state = Some(body);
        Ok(())
    }

    async fn lock_state(&self, _: Claim, lock: StateLock) -> LinkResult<LockAnswer> {
        self.check()?;
        let mut kept = self.kept();
        match &kept.state_lock {
            Some(held) if held.id != lock.id => Ok(LockAnswer::HeldBy(held.clone())),
            _ => {
                kept.state_lock = Some(lock);
                Ok(LockAnswer::Taken)
            }
        }
    }

    async fn unlock_state(&self, _: Claim, _: Option<StateLock>) -> LinkResult<()> {
        self.check()?;
        self.kept().state_lock = None;
        Ok(())
    }
}
