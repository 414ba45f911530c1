//! YAML as JSON values that remember where each key stands. Several documents in one text.
//!
//! Depth, number of values and what aliases add are bounded while reading.

use std::collections::{BTreeMap, HashMap};

use conductor_score::{Finding, limits};
use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

/// Nesting that no catalogue needs; below what drops and prints of a value can bear.
const NESTING: usize = 128;

#[derive(Debug)]
pub struct Document {
    pub value: Value,
    /// Line and column, from 1, by path as in `config.source`; the document itself is the empty path.
    places: BTreeMap<String, (usize, usize)>,
}

impl Document {
    /// A value that stands below a path of this document, as a document of its own.
    pub fn below(&self, path: &str, value: Value) -> Self {
        let inside = |(known, place): (&String, &(usize, usize))| {
            let rest = known.strip_prefix(path)?.strip_prefix('.')?;
            Some((rest.to_owned(), *place))
        };
        let mut places: BTreeMap<String, (usize, usize)> = self.places.iter().filter_map(inside).collect();
        places.entry(String::new()).or_insert_with(|| self.place(path));
        Self { value, places }
    }

    /// Where a path stands, or the nearest place above it.
    pub fn place(&self, path: &str) -> (usize, usize) {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return *place;
            }
            match path.rfind('.') {
                Some(end) => path = &path[..end],
                None => return self.places.get("").copied().unwrap_or((1, 1)),
            }
        }
    }
}

pub fn finding(line: usize, column: usize, path: &str, message: &str, suggestion: &str) -> Finding {
    Finding {
        line,
        column,
        path: path.to_owned(),
        message: message.to_owned(),
        suggestion: Some(suggestion.to_owned()),
        length: 1,
    }
}

/// Every document that holds something.
pub fn read(source: &str) -> Result<Vec<Document>, Finding> {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: NESTING,
        block_nesting_limit: NESTING,
    };
    let mut documents = Vec::new();
    let mut reader = Reader::default();
    for event in Parser::new_from_str_with_options(source, options) {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            let message = format!("not readable as YAML: {}", error.kind());
            let help = "check indentation, quotes and brackets here and on the line before";
            finding(marker.line().max(1), marker.col() + 1, "", &message, help)
        })?;
        match event {
            Event::DocumentStart(..) => reader.begin(),
            Event::DocumentEnd => documents.extend(reader.end()),
            event => reader.take(event, &span)?,
        }
    }
    Ok(documents)
}

enum Open {
    List(Vec<Value>),
    Map { entries: Map<String, Value>, merged: Vec<Value>, key: Option<String> },
}

#[derive(Default)]
struct Reader {
    /// What is open, with the anchor each is to be kept under.
    open: Vec<(Open, usize)>,
    anchors: HashMap<usize, Value>,
    root: Option<Value>,
    places: BTreeMap<String, (usize, usize)>,
    values: usize,
}

impl Reader {
    fn begin(&mut self) {
        let values = self.values;
        *self = Self { values, ..Self::default() };
    }

    fn end(&mut self) -> Option<Document> {
        let value = self.root.take()?;
        let places = std::mem::take(&mut self.places);
        (!value.is_null()).then_some(Document { value, places })
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Finding> {
        let place = (span.start.line(), span.start.col() + 1);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, place)?;
                let plain = style == ScalarStyle::Plain;
                let as_text = tag.as_deref().is_some_and(|tag| tag.core_suffix() == Some("str"));
                if self.awaits_key() {
                    return self.key(&text, plain, place);
                }
                let value =
                    if plain && !as_text { implicit(&text) } else { Value::String(text.into_owned()) };
                self.finish(value, anchor, place)
            }
            Event::Alias(id) => {
                let Some(value) = self.anchors.get(&id).cloned() else {
                    let help = "write the value out instead of naming it";
                    return Err(self.wrong(place, "this alias names nothing that is complete", help));
                };
                self.count(size(&value), place)?;
                self.finish(value, 0, place)
            }
            Event::SequenceStart(_, anchor, _) => self.enter(Open::List(Vec::new()), anchor, place),
            Event::MappingStart(_, anchor, _) => {
                let map = Open::Map { entries: Map::new(), merged: Vec::new(), key: None };
                self.enter(map, anchor, place)
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                None => Ok(()),
                Some((open, anchor)) => self.finish(close(open), anchor, place),
            },
            _ => Ok(()),
        }
    }

    fn enter(&mut self, open: Open, anchor: usize, place: (usize, usize)) -> Result<(), Finding> {
        self.count(1, place)?;
        if self.awaits_key() {
            return Err(self.wrong(place, "a key must be a text", "write a plain word before the colon"));
        }
        if self.open.is_empty() {
            self.places.insert(String::new(), place);
        }
        self.open.push((open, anchor));
        Ok(())
    }

    fn awaits_key(&self) -> bool {
        matches!(self.open.last(), Some((Open::Map { key: None, .. }, _)))
    }

    fn key(&mut self, text: &str, plain: bool, place: (usize, usize)) -> Result<(), Finding> {
        let merge = plain && text == "<<";
        let path = match self.path() {
            path if path.is_empty() => text.to_owned(),
            path => format!("{path}.{text}"),
        };
        let Some((Open::Map { entries, key, .. }, _)) = self.open.last_mut() else {
            return Ok(());
        };
        if entries.contains_key(text) {
            let message = format!("the key `{text}` is already there");
            return Err(finding(place.0, place.1, &path, &message, "keep one of the two"));
        }
        *key = Some(text.to_owned());
        if !merge {
            self.places.insert(path, place);
        }
        Ok(())
    }

    /// The path of what is open, without a key that has just been read.
    fn path(&self) -> String {
        let parts = self.open.iter().filter_map(|(open, _)| match open {
            Open::List(items) => Some(items.len().to_string()),
            Open::Map { key, .. } => key.clone(),
        });
        parts.collect::<Vec<_>>().join(".")
    }

    fn finish(&mut self, value: Value, anchor: usize, place: (usize, usize)) -> Result<(), Finding> {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
        let mut bad_merge = false;
        match self.open.last_mut() {
            None => {
                self.places.entry(String::new()).or_insert(place);
                self.root = Some(value);
            }
            Some((Open::List(items), _)) => items.push(value),
            Some((Open::Map { entries, merged, key }, _)) => match key.take() {
                Some(key) if key == "<<" => match value {
                    Value::Object(_) => merged.push(value),
                    Value::Array(items) if items.iter().all(Value::is_object) => merged.extend(items),
                    _ => bad_merge = true,
                },
                Some(key) => {
                    entries.insert(key, value);
                }
                None => {}
            },
        }
        if bad_merge {
            return Err(self.wrong(place, "only maps can be merged with `<<`", "write `<<: *NAME`"));
        }
        Ok(())
    }

    fn count(&mut self, more: usize, place: (usize, usize)) -> Result<(), Finding> {
        self.values = self.values.saturating_add(more);
        if self.values > limits::VALUES {
            return Err(self.wrong(place, "the file holds more than 500,000 values", "split it"));
        }
        Ok(())
    }

    fn wrong(&self, place: (usize, usize), message: &str, suggestion: &str) -> Finding {
        finding(place.0, place.1, &self.path(), message, suggestion)
    }
}

/// A finished map holds what was merged into it, where it does not say otherwise itself.
fn close(open: Open) -> Value {
    match open {
        Open::List(items) => Value::Array(items),
        Open::Map { mut entries, merged, .. } => {
            for value in merged {
                let Value::Object(theirs) = value else { continue };
                for (key, value) in theirs {
                    entries.entry(key).or_insert(value);
                }
            }
            Value::Object(entries)
        }
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// What a word without quotes means: YAML's core schema, nothing more.
fn implicit(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Value::String(text.to_owned());
    }
    let radix = |prefix: &str, radix| {
        text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, radix).ok()).map(Number::from)
    };
    let whole =
        || text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok();
    let float = || {
        let plain = digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
        plain.then(|| text.parse::<f64>().ok().and_then(Number::from_f64)).flatten()
    };
    radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(whole)
        .or_else(float)
        .map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_mean_what_the_core_schema_says() {
        let source =
            "a: 1.0.0\nb: 1.5\nc: yes\nd: true\ne: 0x10\nf: '7'\ng:\nh: !!str 8\ni: -3\nj: 2026-01-02\n";
        let value = &read(source).unwrap()[0].value;
        assert_eq!(
            *value,
            json!({"a": "1.0.0", "b": 1.5, "c": "yes", "d": true, "e": 16, "f": "7", "g": null, "h": "8", "i": -3,
                   "j": "2026-01-02"})
        );
    }

    #[test]
    fn places_are_known_by_path() {
        let read = read("---\nkind: Rule\nmatch:\n  type: x\nlist:\n  - a: 1\n").unwrap();
        assert_eq!(read[0].place("match.type"), (4, 3));
        assert_eq!(read[0].place("match.class"), (3, 1));
        assert_eq!(read[0].place("list.0.a"), (6, 5));
        assert_eq!(read[0].place(""), (2, 1));
    }

    #[test]
    fn anchors_and_merged_maps_are_filled_in() {
        let read = read("base: &b { x: 1, y: 2 }\nown: { <<: *b, y: 3 }\n").unwrap();
        assert_eq!(read[0].value["own"], json!({"x": 1, "y": 3}));
    }

    #[test]
    fn what_grows_without_end_is_refused() {
        let bomb: String = ('b'..='m').fold("a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, name| {
            let before = (name as u8 - 1) as char;
            text + &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(","))
        });
        assert!(read(&bomb).unwrap_err().message.contains("500,000"));
        assert!(read(&format!("a: {}1{}", "{b: ".repeat(5_000), "}".repeat(5_000))).is_err());
        assert_eq!(read("a: [1\nb: 2\n").unwrap_err().line, 2);
        assert!(read("a: 1\na: 2\n").unwrap_err().message.contains("already"));
    }
}
