//! YAML as a tree whose every value knows where it stands.
//!
//! Built from parser events with a stack of its own, so neither depth nor aliases can exhaust
//! anything: depth, number of values, number of resources and what aliases add up to are checked
//! while reading, before the next event is asked for. An alias shares the value it names.
//!
//! Only the first document of a stream is read, as the Score tools do. Keys are texts and occur
//! once per map; merge keys (`<<`) are already merged: what a map says itself wins, then the
//! earlier of the merged ones.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use granit_parser::{Event, Parser, Span as Mark, Tag};

use crate::finding::quoted;
use crate::limits;
use crate::scalar::{Scalar, resolve};

/// Where something stands: line and column for people, bytes for looking at the source again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Counts from 1.
    pub line: u32,
    /// Counts from 1, in characters.
    pub column: u32,
    pub start: u32,
    pub end: u32,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub value: Value,
    pub at: Span,
    /// How many levels of maps and lists there are, itself included.
    height: usize,
    /// What using it once more costs, see [`limits::ALIASED_BYTES`].
    weight: usize,
}

#[derive(Debug)]
pub(crate) enum Value {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Rc<str>,
    pub key_at: Span,
    pub node: Rc<Node>,
}

/// A mistake in the YAML itself.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub at: Span,
    pub message: String,
    pub suggestion: Option<String>,
}

impl Flaw {
    fn new(at: Span, message: impl Into<String>, suggestion: &str) -> Self {
        Self { at, message: message.into(), suggestion: Some(suggestion.to_owned()) }
    }
}

/// Reads the first document of `source`, which has no byte order mark.
///
/// No root means that there is none, or that a flaw made reading on impossible.
pub(crate) fn build(source: &str) -> (Option<Rc<Node>>, Vec<Flaw>) {
    let mut builder = Builder::default();
    let root = builder.run(source).unwrap_or_else(|fatal| {
        builder.flaws.push(fatal);
        None
    });
    (root, builder.flaws)
}

#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    /// Finished values by the id of their anchor.
    anchors: HashMap<usize, Rc<Node>>,
    values: usize,
    aliased: usize,
    flaws: Vec<Flaw>,
}

/// A map or list that is still open.
struct Frame {
    anchor: usize,
    at: Span,
    height: usize,
    weight: usize,
    kind: Open,
}

enum Open {
    List(Vec<Rc<Node>>),
    Map {
        entries: Vec<Entry>,
        seen: HashMap<Rc<str>, u32>,
        /// The key whose value comes next.
        key: Option<Key>,
        merged: Vec<Rc<Node>>,
    },
}

enum Key {
    Name(Rc<str>, Span),
    Merge(Span),
    /// Already reported; its value is dropped.
    Bad,
}

impl Builder {
    /// The root, or `None` for a stream without a document.
    fn run(&mut self, source: &str) -> Result<Option<Rc<Node>>, Flaw> {
        let options = granit_parser::options! {
            emit_comments: false,
            flow_nesting_limit: limits::NESTING,
            block_nesting_limit: limits::NESTING,
        };
        let mut root = None;
        for event in Parser::new_from_str_with_options(source, options) {
            let (event, mark) = event.map_err(|error| unreadable(&error))?;
            let at = span(&mark);
            match event {
                Event::StreamEnd => return Ok(root),
                // The first document is complete; others are not judged.
                Event::DocumentStart(..) if root.is_some() => return Ok(root),
                Event::Scalar(text, style, anchor, tag) => {
                    let plain = style == granit_parser::ScalarStyle::Plain;
                    let empty = plain && at.start == at.end;
                    let text = if empty { "" } else { text.as_ref() };
                    self.scalar(text, plain, anchor, tag.as_deref(), at, &mut root)?;
                }
                Event::Alias(id) => self.alias(id, at, &mut root)?,
                Event::SequenceStart(_, anchor, tag) => {
                    self.open(anchor, tag.as_deref(), "seq", at, Open::List(Vec::new()))?;
                }
                Event::MappingStart(_, anchor, tag) => {
                    let map = Open::Map {
                        entries: Vec::new(),
                        seen: HashMap::new(),
                        key: None,
                        merged: Vec::new(),
                    };
                    self.open(anchor, tag.as_deref(), "map", at, map)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close(&mut root)?,
                _ => {}
            }
        }
        Ok(root)
    }

    fn scalar(
        &mut self,
        text: &str,
        plain: bool,
        anchor: usize,
        tag: Option<&Tag>,
        at: Span,
        root: &mut Option<Rc<Node>>,
    ) -> Result<(), Flaw> {
        self.count(at)?;
        if plain && text == "<<" && tag.is_none() && self.awaits_key() {
            self.set_key(Key::Merge(at));
            return Ok(());
        }
        let scalar = resolve(text, plain, tag).unwrap_or_else(|problem| {
            self.flaw(Flaw::new(at, problem.0, problem.1));
            Scalar::Text(text.to_owned())
        });
        let node = Rc::new(Node {
            weight: limits::VALUE_WEIGHT + text.len(),
            value: Value::Scalar(scalar),
            at,
            height: 0,
        });
        self.finish(anchor, node, at, root)
    }

    fn alias(&mut self, id: usize, at: Span, root: &mut Option<Rc<Node>>) -> Result<(), Flaw> {
        let Some(node) = self.anchors.get(&id).cloned() else {
            let message = "this alias stands inside the value that it names";
            return Err(Flaw::new(at, message, "write the value out instead of naming it"));
        };
        self.aliased += node.weight;
        if self.aliased > limits::ALIASED_BYTES {
            let message = "the aliases of this file add up to more than 10 MB";
            return Err(Flaw::new(at, message, "write values out, or alias smaller ones"));
        }
        if self.frames.len() + node.height > limits::NESTING {
            return Err(too_deep(at));
        }
        self.finish(0, node, at, root)
    }

    fn open(
        &mut self,
        anchor: usize,
        tag: Option<&Tag>,
        expected: &str,
        at: Span,
        kind: Open,
    ) -> Result<(), Flaw> {
        self.count(at)?;
        if self.frames.len() >= limits::NESTING {
            return Err(too_deep(at));
        }
        if let Some(tag) = tag
            && tag.core_suffix() != Some(expected)
        {
            let message = format!("the tag {} is not understood", quoted(&tag.original()));
            self.flaw(Flaw::new(at, message, "remove the tag"));
        }
        self.frames.push(Frame { anchor, at, height: 1, weight: limits::VALUE_WEIGHT, kind });
        Ok(())
    }

    fn close(&mut self, root: &mut Option<Rc<Node>>) -> Result<(), Flaw> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let (value, weight) = match frame.kind {
            Open::List(items) => (Value::List(items), frame.weight),
            Open::Map { entries, seen, merged, .. } => {
                let (entries, added) = self.merge(entries, &seen, &merged)?;
                (Value::Map(entries), frame.weight + added)
            }
        };
        let node = Rc::new(Node { value, at: frame.at, height: frame.height, weight });
        self.finish(frame.anchor, node, frame.at, root)
    }

    /// Puts a complete value where it belongs. `at` is where it is used, not where it is defined.
    fn finish(
        &mut self,
        anchor: usize,
        node: Rc<Node>,
        at: Span,
        root: &mut Option<Rc<Node>>,
    ) -> Result<(), Flaw> {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        if self.awaits_key() {
            return self.name(&node, at);
        }
        let in_resources = self.is_in_resources();
        let Some(frame) = self.frames.last_mut() else {
            *root = Some(node);
            return Ok(());
        };
        frame.height = frame.height.max(node.height + 1);
        frame.weight = frame.weight.saturating_add(node.weight);
        match &mut frame.kind {
            Open::List(items) => items.push(node),
            Open::Map { entries, key, merged, .. } => match key.take() {
                Some(Key::Name(key, key_at)) => {
                    let node = located(node, key_at);
                    entries.push(Entry { key, key_at, node });
                    if in_resources && entries.len() > limits::RESOURCES {
                        return Err(too_many_resources(key_at));
                    }
                }
                Some(Key::Merge(at)) => match &node.value {
                    Value::Map(_) => merged.push(node),
                    Value::List(items) if items.iter().all(|n| matches!(n.value, Value::Map(_))) => {
                        merged.extend(items.iter().cloned());
                    }
                    _ => {
                        let message = "only a map, or a list of maps, can be merged with `<<`";
                        let help = "write `<<: *NAME` where NAME anchors a map";
                        self.flaw(Flaw::new(at, message, help));
                    }
                },
                Some(Key::Bad) | None => {}
            },
        }
        Ok(())
    }

    /// Notes what does not keep the rest from being read.
    fn flaw(&mut self, flaw: Flaw) {
        if self.flaws.len() < limits::FINDINGS {
            self.flaws.push(flaw);
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame { kind: Open::Map { key: None, .. }, .. }))
    }

    fn set_key(&mut self, new: Key) {
        if let Some(Frame { kind: Open::Map { key, .. }, .. }) = self.frames.last_mut() {
            *key = Some(new);
        }
    }

    /// Takes `node` as the key of the open map.
    fn name(&mut self, node: &Node, at: Span) -> Result<(), Flaw> {
        let Value::Scalar(Scalar::Text(text)) = &node.value else {
            let message = "a key must be a text";
            self.flaw(Flaw::new(at, message, "put the key in quotes, or write a plain word"));
            self.set_key(Key::Bad);
            return Ok(());
        };
        let text: Rc<str> = Rc::from(text.as_str());
        let Some(Frame { kind: Open::Map { seen, .. }, .. }) = self.frames.last_mut() else {
            return Ok(());
        };
        let key = match seen.insert(Rc::clone(&text), at.line) {
            None => Key::Name(text, at),
            Some(first) => {
                let message = format!("the key {} is already on line {first}", quoted(&text));
                self.flaw(Flaw::new(at, message, "keep one of the two"));
                Key::Bad
            }
        };
        self.set_key(key);
        Ok(())
    }

    /// The entries with those of merged maps behind them, and what those weigh.
    fn merge(
        &mut self,
        mut entries: Vec<Entry>,
        seen: &HashMap<Rc<str>, u32>,
        merged: &[Rc<Node>],
    ) -> Result<(Vec<Entry>, usize), Flaw> {
        let mut taken: HashSet<Rc<str>> = HashSet::new();
        let mut added = 0_usize;
        for node in merged {
            let Value::Map(theirs) = &node.value else { continue };
            for entry in theirs {
                self.count(entry.key_at)?;
                if !seen.contains_key(&entry.key) && taken.insert(Rc::clone(&entry.key)) {
                    added = added.saturating_add(entry.node.weight);
                    entries.push(entry.clone());
                }
            }
        }
        Ok((entries, added))
    }

    /// Whether the innermost open map is the root's `resources`.
    fn is_in_resources(&self) -> bool {
        self.frames.len() == 2
            && matches!(&self.frames[0].kind,
                Open::Map { key: Some(Key::Name(key, _)), .. } if key.as_ref() == "resources")
    }

    fn count(&mut self, at: Span) -> Result<(), Flaw> {
        self.values += 1;
        if self.values > limits::VALUES {
            let message = "the file holds more than 500,000 values";
            return Err(Flaw::new(at, message, "split the workload into several files"));
        }
        Ok(())
    }
}

/// A value that is not written at all is where its key is.
fn located(node: Rc<Node>, key_at: Span) -> Rc<Node> {
    if node.at.start < node.at.end || !matches!(node.value, Value::Scalar(Scalar::Null)) {
        return node;
    }
    Rc::new(Node { value: Value::Scalar(Scalar::Null), at: key_at, height: node.height, weight: node.weight })
}

fn too_deep(at: Span) -> Flaw {
    let message = "the file is nested deeper than 1,000 levels";
    Flaw::new(at, message, "flatten the structure")
}

pub(crate) fn too_many_resources(at: Span) -> Flaw {
    let message = "the file declares more than 10,000 resources";
    Flaw::new(at, message, "split the workload into several files")
}

fn unreadable(error: &granit_parser::ScanError) -> Flaw {
    let marker = error.marker();
    let at = span(&Mark::empty(*marker));
    if matches!(error.kind(), granit_parser::ErrorKind::RecursionLimitExceeded) {
        return too_deep(at);
    }
    Flaw::new(
        at,
        format!("not readable as YAML: {}", shown(&error.kind().to_string())),
        "check indentation, quotes and brackets here and on the line before",
    )
}

/// The parser's own words, without anything of the file that a terminal would act on.
fn shown(message: &str) -> String {
    let message = quoted(message);
    message[1..message.len() - 1].to_owned()
}

fn span(mark: &Mark) -> Span {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let bytes = |marker: &granit_parser::Marker| small(marker.byte_offset().unwrap_or(0));
    Span {
        line: small(mark.start.line()),
        column: small(mark.start.col() + 1),
        start: bytes(&mark.start),
        end: bytes(&mark.end),
    }
}
