//! Checks placeholders against the resources a file declares.

use std::collections::HashMap;

use crate::finding::quoted;
use crate::names::{choose, listed, nearest};
use crate::object::{Path, Report, Slot};
use crate::placeholder::{Piece, PlaceholderError, Target, pieces, target};
use crate::tree::{Entry, Span, Value};

/// The declared resources, by name and in the order of the file.
pub(crate) struct References<'a> {
    order: Vec<&'a str>,
    index: HashMap<&'a str, usize>,
    /// False where `resources` is no map, so that nothing can be said about names.
    readable: bool,
}

impl<'a> References<'a> {
    pub fn new(resources: Option<&Slot<'a>>) -> Self {
        let entries: &[Entry] = match resources.map(|slot| &slot.node.value) {
            Some(Value::Map(entries)) => entries,
            _ => &[],
        };
        let order: Vec<&str> = entries.iter().map(|entry| entry.key.as_ref()).collect();
        Self {
            index: order.iter().enumerate().map(|(index, name)| (*name, index)).collect(),
            readable: resources.is_none_or(|slot| matches!(slot.node.value, Value::Map(_))),
            order,
        }
    }

    pub fn names(&self) -> &[&'a str] {
        &self.order
    }

    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// Checks every placeholder at `slot` and below it.
    pub fn check(&self, report: &mut Report, slot: &Slot, short: bool) {
        self.follow(report, slot, short, &mut |_, _| {});
    }

    /// Checks like [`Self::check`], and hands each resource that is named to `found`.
    pub fn follow(&self, report: &mut Report, slot: &Slot, short: bool, found: &mut dyn FnMut(usize, Span)) {
        match &slot.node.value {
            Value::Scalar(_) => {
                if let Some(text) = slot.as_text().filter(|text| text.contains("${")) {
                    self.check_text(report, slot, text, short, found);
                }
            }
            Value::List(_) => {
                for item in slot.items().into_iter().flatten() {
                    self.follow(report, &item, short, found);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let below = Slot {
                        node: &entry.node,
                        owner: entry.key_at,
                        path: Path::Key(&slot.path, &entry.key),
                    };
                    self.follow(report, &below, short, found);
                }
            }
        }
    }

    fn check_text(
        &self,
        report: &mut Report,
        slot: &Slot,
        text: &str,
        short: bool,
        found: &mut dyn FnMut(usize, Span),
    ) {
        for piece in pieces(text) {
            let Piece::Placeholder { inner, offset } = piece else {
                continue;
            };
            // Finding out where they stand would take long for very many wrong ones.
            if report.is_full() {
                return;
            }
            let is_short = |first: &str| short && self.index.contains_key(first);
            match target(inner, offset, &is_short) {
                Ok(Target::Metadata(_)) => {}
                Ok(Target::Resource { name, .. }) => match self.index_of(&name) {
                    Some(index) => found(index, slot.node.at),
                    None if self.readable => {
                        let at = locate(report.source, slot.node.at, text, inner, offset);
                        report.add(at, &slot.path, || self.unknown(&name));
                    }
                    None => {}
                },
                Err(error) => {
                    let at = locate(report.source, slot.node.at, text, inner, offset);
                    report.add(at, &slot.path, || self.explain(error, inner));
                }
            }
        }
    }

    /// Message and suggestion for a resource that is not declared.
    pub fn unknown(&self, name: &str) -> (String, String) {
        let message = format!("no resource is called {}", quoted(name));
        let suggestion = match nearest(name, self.order.iter().copied()) {
            Some(near) => format!("did you mean {}?", quoted(near)),
            None if self.order.is_empty() => {
                format!("declare {} under `resources`", quoted(name))
            }
            None => {
                let known = listed(self.order.iter().copied());
                format!("declare {} under `resources`; there are {known}", quoted(name))
            }
        };
        (message, suggestion)
    }

    /// Adds what the file tells about a placeholder that cannot be understood.
    fn explain(&self, error: PlaceholderError, inner: &str) -> (String, String) {
        let root = inner.split('.').next().unwrap_or_default();
        let near = nearest(root, ["resources", "metadata"]).filter(|near| *near != root);
        let resource = nearest(root, self.order.iter().copied());
        let suggestion = match (near, resource) {
            (Some(near), _) => Some(format!("did you mean {}?", quoted(&format!("${{{near}.…}}")))),
            (None, Some(name)) if !matches!(root, "resources" | "metadata") => {
                let whole = format!("${{resources.{name}{}}}", &inner[root.len()..]);
                Some(format!("did you mean {}?", quoted(&whole)))
            }
            _ => error.suggestion,
        };
        (error.message, suggestion.unwrap_or_default())
    }
}

/// Message and suggestion for a container that is not declared.
pub(crate) fn unknown_container(name: &str, known: &[&str]) -> (String, String) {
    let message = format!("no container is called {}", quoted(name));
    (message, choose(name, known.iter().copied()))
}

/// Where a placeholder stands in the source: the same one, counted from the start of its scalar.
///
/// Falls back to the scalar where escapes or folding hide the placeholder.
fn locate(source: &str, at: Span, text: &str, inner: &str, offset: usize) -> Span {
    let raw = format!("${{{inner}}}");
    let written = source.get(at.start as usize..at.end as usize).unwrap_or("");
    let earlier = text[..offset].matches(&raw).count();
    let Some((start, _)) = written.match_indices(&raw).nth(earlier) else {
        return at;
    };
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let before = &written[..start];
    let lines = small(before.matches('\n').count());
    let column = match before.rfind('\n') {
        None => at.column + small(before.chars().count()),
        Some(newline) => 1 + small(before[newline + 1..].chars().count()),
    };
    Span {
        line: at.line + lines,
        column,
        start: at.start + small(start),
        end: at.start + small(start + raw.len()),
    }
}
