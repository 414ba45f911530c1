//! The lines and journal entries of one job that have not been sent yet.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use conductor_api::worker::Update;
use conductor_domain::work::{Level, LogLine};
use serde_json::Value;
use tokio::sync::Notify;

use super::{LONGEST_LINE, Masker};
use crate::run::Clock;

/// The most that one update carries, and what makes one go at once.
pub const BATCH_BYTES: usize = 512 << 10;
/// Above this a program that goes on writing has to wait.
const FULL_BYTES: usize = 8 << 20;
/// What a line costs beyond its text.
const LINE_BYTES: usize = 64;

pub struct LogBook {
    clock: Clock,
    masker: RwLock<Masker>,
    waiting: Mutex<Waiting>,
    /// Something to send came in.
    pub added: Notify,
    /// Something was sent.
    taken: Notify,
}

#[derive(Default)]
struct Waiting {
    /// The number of the first waiting line.
    first: u64,
    lines: Vec<LogLine>,
    bytes: usize,
    journal: Vec<Value>,
    journal_count: u64,
    /// What lines are marked with from here on.
    phase: Option<&'static str>,
}

impl LogBook {
    pub fn new(clock: Clock, masker: Masker) -> Self {
        let (waiting, added, taken) = Default::default();
        Self { clock, masker: RwLock::new(masker), waiting, added, taken }
    }

    pub fn add_secret(&self, value: &str) {
        self.masker.write().unwrap_or_else(PoisonError::into_inner).add([value]);
    }

    pub fn mask(&self, text: &str) -> String {
        without_nul(self.masker.read().unwrap_or_else(PoisonError::into_inner).mask(text))
    }

    /// How much of a line must be kept so that it can be masked and cut.
    pub fn keep(&self) -> usize {
        LONGEST_LINE + self.masker.read().unwrap_or_else(PoisonError::into_inner).longest()
    }

    /// Lines from here on are of this part of the step.
    pub fn set_phase(&self, phase: &'static str) {
        self.lock().phase = Some(phase);
    }

    pub fn add_text(&self, level: Level, text: &str) {
        for line in text.lines() {
            self.add(level, "conductor", line.as_bytes(), line.len());
        }
    }

    /// Adds one line, of which `length` bytes were written and the beginning is here. Returns what was kept.
    pub fn add(&self, level: Level, stream: &str, line: &[u8], length: usize) -> String {
        let masker = self.masker.read().unwrap_or_else(PoisonError::into_inner);
        let text = if length <= LONGEST_LINE {
            String::from_utf8_lossy(&masker.mask_up_to(line, line.len())).into_owned()
        } else {
            let whole = masker.mask_up_to(line, boundary(line, LONGEST_LINE));
            format!("{}… (cut, {length} bytes)", String::from_utf8_lossy(&whole))
        };
        drop(masker);
        let text = without_nul(text);
        let mut waiting = self.lock();
        waiting.bytes += text.len() + LINE_BYTES;
        let phase = waiting.phase.map(Into::into);
        waiting.lines.push(LogLine {
            at: (self.clock)(),
            level,
            stream: stream.to_owned(),
            phase,
            text: text.clone(),
        });
        drop(waiting);
        self.added.notify_one();
        text
    }

    /// Adds an entry and returns how many there are now: it is durable once that many are accepted.
    pub fn add_journal(&self, entry: Value) -> u64 {
        let mut waiting = self.lock();
        waiting.journal.push(entry);
        waiting.journal_count += 1;
        let count = waiting.journal_count;
        drop(waiting);
        self.added.notify_one();
        count
    }

    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    pub fn has_journal(&self) -> bool {
        !self.lock().journal.is_empty()
    }

    /// Waits until there is room for more.
    pub async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.bytes() < FULL_BYTES {
                return;
            }
            taken.await;
        }
    }

    /// The next batch, taken out. To be given back with [`LogBook::give_back`] when it was not accepted.
    pub fn take(&self) -> Update {
        let mut waiting = self.lock();
        let (mut bytes, mut count) = (0, 0);
        while count < waiting.lines.len() && (bytes < BATCH_BYTES || count == 0) {
            bytes += waiting.lines[count].text.len() + LINE_BYTES;
            count += 1;
        }
        let rest = waiting.lines.split_off(count);
        let lines = std::mem::replace(&mut waiting.lines, rest);
        let first_line = waiting.first;
        waiting.first += count as u64;
        waiting.bytes -= bytes;
        let journal = std::mem::take(&mut waiting.journal);
        drop(waiting);
        self.taken.notify_waiters();
        Update { first_line, lines, journal }
    }

    pub fn give_back(&self, update: Update) {
        let mut waiting = self.lock();
        let Update { first_line, mut lines, mut journal } = update;
        waiting.first = first_line;
        waiting.bytes += lines.iter().map(|line| line.text.len() + LINE_BYTES).sum::<usize>();
        lines.append(&mut waiting.lines);
        journal.append(&mut waiting.journal);
        (waiting.lines, waiting.journal) = (lines, journal);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Databases refuse NUL in text.
fn without_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// The last start of a character at or before `at`.
fn boundary(text: &[u8], at: usize) -> usize {
    let inside = |at: usize| text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at.min(text.len())).rev().find(|&at| !inside(at)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn book(secrets: &[&str]) -> LogBook {
        LogBook::new(Arc::new(|| 7), Masker::new(secrets.iter().copied()))
    }

    #[test]
    fn lines_are_numbered_and_a_batch_given_back_is_the_next_again() {
        let book = book(&[]);
        for line in ["a", "b"] {
            book.add_text(Level::Info, line);
        }
        let batch = book.take();
        assert_eq!((batch.first_line, batch.lines.len()), (0, 2));
        book.add_text(Level::Info, "c");
        book.give_back(batch);
        let batch = book.take();
        assert_eq!((batch.first_line, batch.lines.len()), (0, 3));
        book.add_text(Level::Info, "d");
        assert_eq!(book.take().first_line, 3);
        assert_eq!(book.bytes(), 0);
    }

    #[test]
    fn an_overlong_line_is_cut_and_says_so_and_hides_what_lies_across_the_cut() {
        let book = book(&["topsecret"]);
        let mut line = vec![b'x'; LONGEST_LINE - 3];
        line.extend_from_slice(b"topsecret and more");
        book.add(Level::Info, "stderr", &line[..book.keep().min(line.len())], line.len());
        let text = book.take().lines.remove(0).text;
        assert!(
            text.ends_with(&format!("x***… (cut, {} bytes)", line.len())),
            "{}",
            &text[text.len() - 60..]
        );
    }

    #[test]
    fn a_cut_falls_between_characters() {
        assert_eq!(boundary("aé".as_bytes(), 2), 1);
        assert_eq!(boundary("aé".as_bytes(), 3), 3);
    }

    #[test]
    fn large_amounts_go_in_several_batches() {
        let book = book(&[]);
        for _ in 0..3 {
            book.add_text(Level::Info, &"y".repeat(BATCH_BYTES - 100));
        }
        assert_eq!(book.take().lines.len(), 2);
        assert_eq!(book.take().lines.len(), 1);
    }
}
