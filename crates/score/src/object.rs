//! Reading values out of the tree: each reader gives the value, or notes a finding and nothing.
//!
//! A [`Slot`] is a value together with where it is used; a [`Section`] says which keys a map may
//! have and what people write instead. Once enough findings are noted, noting more costs nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde_json::Value as Json;

use crate::finding::{Finding, quoted};
use crate::limits;
use crate::names::{Shape, choose, listed, nearest};
use crate::scalar::Scalar;
use crate::tree::{Entry, Node, Span, Value};

/// The way from the root to a value; written out only where a finding needs it.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// What the value is called in a message.
    fn name(&self) -> String {
        match self {
            Self::Root => "the file".to_owned(),
            Self::Key(_, key) => quoted(key),
            Self::Index(parent, index) => format!("entry {} of {}", index + 1, parent.name()),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Self::Key(parent, key) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
                let key = quoted(key);
                let key = &key[1..key.len() - 1];
                match (parent, key.chars().all(plain)) {
                    (Self::Root, true) => f.write_str(key),
                    (_, true) => write!(f, "{parent}.{key}"),
                    (_, false) => write!(f, "{parent}[{key:?}]"),
                }
            }
        }
    }
}

/// A value and where it is used.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub node: &'a Node,
    /// The key it belongs to, or the value itself where there is no key.
    pub owner: Span,
    pub path: Path<'a>,
}

impl<'a> Slot<'a> {
    /// The entries, where this is a list.
    pub fn items(&'a self) -> Option<impl Iterator<Item = Slot<'a>>> {
        let Value::List(items) = &self.node.value else {
            return None;
        };
        Some(items.iter().enumerate().map(|(index, node)| Slot {
            node,
            owner: node.at,
            path: Path::Index(&self.path, index),
        }))
    }

    /// The value of a key, where this is a map that has it.
    pub fn child(&self, key: &str) -> Option<&'a Node> {
        let Value::Map(entries) = &self.node.value else {
            return None;
        };
        let entry = entries.iter().find(|entry| entry.key.as_ref() == key)?;
        Some(&entry.node)
    }

    pub fn as_text(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar(Scalar::Text(text)) => Some(text),
            _ => None,
        }
    }
}

/// What a map may hold.
pub(crate) struct Section {
    /// Completes "… has no key".
    pub name: &'static str,
    pub keys: &'static [&'static str],
    /// What people write by mistake, and what to do about it.
    pub hints: &'static [(&'static str, &'static str)],
}

/// A map whose keys have been checked, or that may hold any.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    entries: &'a [Entry],
    pub owner: Span,
    pub path: Path<'a>,
}

impl<'a> Object<'a> {
    pub fn get<'b>(&'b self, key: &str) -> Option<Slot<'b>> {
        let entry = self.entries.iter().find(|entry| entry.key.as_ref() == key)?;
        Some(self.slot(entry))
    }

    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'a Entry, Slot<'b>)> {
        self.entries.iter().map(|entry| (entry, self.slot(entry)))
    }

    fn slot<'b>(&'b self, entry: &'b Entry) -> Slot<'b> {
        Slot { node: &entry.node, owner: entry.key_at, path: Path::Key(&self.path, &entry.key) }
    }
}

/// Collects findings while reading.
pub(crate) struct Report<'s> {
    pub source: &'s str,
    pub strict: bool,
    pub findings: Vec<Finding>,
}

impl Report<'_> {
    /// Notes a finding; `describe` gives message and suggestion, and runs only when there is room.
    pub fn add(&mut self, at: Span, path: &Path, describe: impl FnOnce() -> (String, String)) {
        if self.is_full() {
            return;
        }
        let (message, suggestion) = describe();
        let written = self.source.get(at.start as usize..at.end as usize).unwrap_or("");
        self.findings.push(Finding {
            line: at.line as usize,
            column: at.column as usize,
            path: path.to_string(),
            message,
            suggestion: (!suggestion.is_empty()).then_some(suggestion),
            length: written.chars().take_while(|c| *c != '\n').take(200).count().max(1),
        });
    }

    /// Whether further findings would be dropped.
    pub fn is_full(&self) -> bool {
        self.findings.len() >= limits::FINDINGS
    }

    /// A map with just the keys of `section`.
    pub fn object<'a>(&mut self, slot: &Slot<'a>, section: &Section) -> Option<Object<'a>> {
        let object = self.any_object(slot)?;
        self.check_keys(&object, section, &[]);
        Some(object)
    }

    /// Notes keys that `section` does not have; those in `ignored` are somebody else's.
    pub fn check_keys(&mut self, object: &Object, section: &Section, ignored: &[&str]) {
        for (entry, unknown) in object.entries() {
            let key = entry.key.as_ref();
            if section.keys.contains(&key) || ignored.contains(&key) {
                continue;
            }
            self.add(entry.key_at, &unknown.path, || {
                let message = format!("{} has no key {}", section.name, quoted(key));
                let hint = section.hints.iter().find(|(wrong, _)| *wrong == key);
                let suggestion = match hint {
                    Some((_, hint)) => (*hint).to_owned(),
                    None => match nearest(key, section.keys.iter().copied()) {
                        Some(near) => format!("did you mean {}?", quoted(near)),
                        None => format!(
                            "remove {}; there may be {}",
                            quoted(key),
                            listed(section.keys.iter().copied())
                        ),
                    },
                };
                (message, suggestion)
            });
        }
    }

    /// A map with whatever keys.
    pub fn any_object<'a>(&mut self, slot: &Slot<'a>) -> Option<Object<'a>> {
        let Value::Map(entries) = &slot.node.value else {
            self.mismatch(slot, "a map", "write it as `key: value` lines below");
            return None;
        };
        Some(Object { entries, owner: slot.owner, path: slot.path })
    }

    /// A map from names of one shape to values read by `read`.
    pub fn map_of<T>(
        &mut self,
        slot: &Slot,
        shape: Shape,
        mut read: impl FnMut(&mut Self, &Slot) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let mut map = BTreeMap::new();
        let Some(object) = self.any_object(slot) else {
            return map;
        };
        for (entry, slot) in object.entries() {
            self.shaped(&entry.key, entry.key_at, &slot.path, "the name", shape);
            if let Some(value) = read(self, &slot) {
                map.insert(entry.key.to_string(), value);
            }
        }
        map
    }

    /// The value of a key that must be there.
    pub fn required<'b>(&mut self, object: &'b Object, key: &'static str) -> Option<Slot<'b>> {
        let found = object.get(key);
        if found.is_none() {
            self.add(object.owner, &object.path, || {
                let message = format!("{} lacks the key {}", object.path.name(), quoted(key));
                (message, format!("add `{key}:` here"))
            });
        }
        found
    }

    pub fn text(&mut self, slot: &Slot, shape: Shape) -> Option<String> {
        let Some(text) = slot.as_text() else {
            self.mismatch(slot, "a text", "put it in quotes");
            return None;
        };
        self.shaped(text, slot.node.at, &slot.path, "its value", shape).then(|| text.to_owned())
    }

    pub fn optional_text(&mut self, object: &Object, key: &str, shape: Shape) -> Option<String> {
        object.get(key).and_then(|slot| self.text(&slot, shape))
    }

    pub fn texts(&mut self, slot: &Slot, shape: Shape) -> Vec<String> {
        let Some(items) = slot.items() else {
            self.mismatch(slot, "a list of texts", "write it as `[\"one\", \"two\"]`");
            return Vec::new();
        };
        items.filter_map(|item| self.text(&item, shape)).collect()
    }

    pub fn boolean(&mut self, slot: &Slot) -> Option<bool> {
        if let Value::Scalar(Scalar::Bool(value)) = slot.node.value {
            return Some(value);
        }
        self.mismatch(slot, "`true` or `false`", "write `true` or `false`, without quotes");
        None
    }

    pub fn integer(&mut self, slot: &Slot, range: RangeInclusive<u32>) -> Option<u32> {
        let Value::Scalar(Scalar::Number(number)) = &slot.node.value else {
            self.mismatch(slot, "a whole number", "write a whole number, without quotes");
            return None;
        };
        // `80.0` is an integer for JSON Schema, and so for Score.
        let whole = number.as_f64().filter(|value| value.fract() == 0.0);
        let value = number
            .as_u64()
            .or_else(|| whole.filter(|value| *value >= 0.0).map(|value| value as u64))
            .and_then(|value| u32::try_from(value).ok())
            .filter(|value| range.contains(value));
        if value.is_none() {
            self.add(slot.node.at, &slot.path, || {
                let (low, high) = (range.start(), range.end());
                let message = format!("{} must be a whole number from {low} to {high}", slot.path.name());
                (message, format!("write a number from {low} to {high}"))
            });
        }
        value
    }

    pub fn port(&mut self, slot: &Slot) -> Option<u16> {
        let port = self.integer(slot, 1..=u32::from(u16::MAX))?;
        u16::try_from(port).ok()
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&mut self, slot: &Slot, words: &[(&str, T)]) -> Option<T> {
        let Some(text) = slot.as_text() else {
            let all = listed(words.iter().map(|(word, _)| *word));
            self.mismatch(slot, "a word", &format!("use one of {all}"));
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            self.add(slot.node.at, &slot.path, || {
                let message = format!("{} cannot be {}", slot.path.name(), quoted(text));
                (message, choose(text, words.iter().map(|(word, _)| *word)))
            });
        }
        found.map(|(_, value)| *value)
    }

    /// Whether `text` has the shape; notes a finding where not.
    fn shaped(&mut self, text: &str, at: Span, path: &Path, what: &str, shape: Shape) -> bool {
        if (shape.fits)(text) {
            return true;
        }
        self.add(at, path, || {
            let message = match text {
                "" => format!("{} is empty: {what} must {}", path.name(), shape.rule),
                _ => format!("{} is not possible: {what} must {}", quoted(text), shape.rule),
            };
            let suggestion = match corrected(text, shape) {
                Some(corrected) => format!("write {}", quoted(&corrected)),
                None if shape.example.is_empty() => "give it a value".to_owned(),
                None => format!("write it like {}", quoted(shape.example)),
            };
            (message, suggestion)
        });
        false
    }

    /// Notes that a value is of the wrong kind.
    pub fn mismatch(&mut self, slot: &Slot, expected: &str, suggestion: &str) {
        self.add(slot.node.at, &slot.path, || {
            let name = slot.path.name();
            match &slot.node.value {
                Value::Scalar(Scalar::Null) => {
                    let message = format!("{name} is empty, but must be {expected}");
                    (message, format!("give {name} a value, or remove the key"))
                }
                Value::Scalar(Scalar::Number(number)) if expected == "a text" => {
                    let message = format!("{name} must be a text, not a number");
                    (message, format!("put it in quotes: \"{number}\""))
                }
                value => {
                    let message = format!("{name} must be {expected}, not {}", kind(value));
                    (message, suggestion.to_owned())
                }
            }
        });
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Scalar(Scalar::Null) => "nothing",
        Value::Scalar(Scalar::Bool(_)) => "a boolean",
        Value::Scalar(Scalar::Number(_)) => "a number",
        Value::Scalar(Scalar::Text(_)) => "a text",
        Value::List(_) => "a list",
        Value::Map(_) => "a map",
    }
}

/// The same name as it may be written, where that is obvious.
fn corrected(text: &str, shape: Shape) -> Option<String> {
    let dashed = text.replace(['.', '_', ' ', '/', ':'], "-");
    let dashed = dashed.trim_matches('-');
    [dashed.to_owned(), dashed.to_ascii_lowercase()].into_iter().find(|candidate| (shape.fits)(candidate))
}

/// The value as JSON. The tree is no deeper than [`limits::NESTING`], so this may recurse.
pub(crate) fn json(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(Scalar::Null) => Json::Null,
        Value::Scalar(Scalar::Bool(value)) => Json::Bool(*value),
        Value::Scalar(Scalar::Number(number)) => Json::Number(number.clone()),
        Value::Scalar(Scalar::Text(text)) => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(|item| json(item)).collect()),
        Value::Map(entries) => {
            Json::Object(entries.iter().map(|entry| (entry.key.to_string(), json(&entry.node))).collect())
        }
    }
}
