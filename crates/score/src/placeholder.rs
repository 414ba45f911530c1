//! Placeholders in texts: `${metadata.KEY}` and `${resources.NAME.OUTPUT}`.
//!
//! `$$` stands for one dollar, `$${x}` for the text `${x}`, a dollar before anything else for
//! itself. Placeholders do not nest. Inside a key, `\.` is a dot that separates nothing.
//!
//! Reading and [`print`] are inverse: what `print` writes reads back as the same parts.

use std::fmt;

use crate::finding::quoted;

/// A piece of a text. Two [`Part::Text`] never stand beside each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    Ref(Target),
}

/// What a placeholder points at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Never empty.
    Metadata(Vec<String>),
    /// An empty path is the resource itself: its unique id.
    Resource { name: String, path: Vec<String> },
}

/// A placeholder that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceholderError {
    pub message: String,
    pub suggestion: Option<String>,
    /// Where its `$` stands, in bytes from the start of the text.
    pub offset: usize,
}

impl fmt::Display for PlaceholderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlaceholderError {}

/// Splits `text` into its parts.
///
/// `short` says whether a first segment names a resource, for the spelling `${NAME.OUTPUT}`;
/// `|_| false` reads plain Score.
///
/// # Errors
/// The first placeholder that is malformed or has an unknown root.
pub fn parse_text(text: &str, short: impl Fn(&str) -> bool) -> Result<Vec<Part>, PlaceholderError> {
    let mut parts = Vec::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(new) => match parts.last_mut() {
                Some(Part::Text(text)) => text.push_str(new),
                _ => parts.push(Part::Text(new.to_owned())),
            },
            Piece::Placeholder { inner, offset } => {
                parts.push(Part::Ref(target(inner, offset, &short)?));
            }
        }
    }
    Ok(parts)
}

/// Whether expanding `text` would look anything up.
#[must_use]
pub fn has_placeholder(text: &str) -> bool {
    pieces(text).any(|piece| matches!(piece, Piece::Placeholder { .. }))
}

/// Writes `parts` so that they read back the same.
///
/// One thing has no spelling in Score: a text that ends in an unclosed `${` before a placeholder.
/// Reading never yields it.
#[must_use]
pub fn print(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Text(plain) => escape(plain, &mut out),
            Part::Ref(target) => out.push_str(&target.to_string()),
        }
    }
    out
}

/// Doubles dollars, except inside `${…}`, which one dollar before it escapes as a whole.
fn escape(plain: &str, out: &mut String) {
    let mut rest = plain;
    while let Some(dollar) = rest.find('$') {
        let (before, from) = rest.split_at(dollar);
        out.push_str(before);
        out.push('$');
        let end = match from[1..].starts_with('{').then(|| from.find('}')).flatten() {
            Some(brace) => brace + 1,
            None => 1,
        };
        out.push_str(&from[..end]);
        rest = &from[end..];
    }
    out.push_str(rest);
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (root, name, path) = match self {
            Self::Metadata(path) => ("metadata", None, path),
            Self::Resource { name, path } => ("resources", Some(name), path),
        };
        write!(f, "${{{root}")?;
        for segment in name.into_iter().chain(path) {
            write!(f, ".{}", segment.replace('.', "\\."))?;
        }
        f.write_str("}")
    }
}

/// What the syntax alone tells apart.
pub(crate) enum Piece<'a> {
    Text(&'a str),
    Placeholder { inner: &'a str, offset: usize },
}

/// The pieces of `text`, escapes resolved.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    // Looked up once, so that many unclosed braces do not each search the whole rest.
    let last_brace = text.rfind('}').unwrap_or(0);
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        let (piece, used) = piece(rest, at, at < last_brace);
        at += used;
        Some(piece)
    })
}

/// The first piece of `rest`, and how many bytes of it that is.
fn piece(rest: &str, offset: usize, may_close: bool) -> (Piece<'_>, usize) {
    let Some(after) = rest.strip_prefix('$') else {
        let end = rest.find('$').unwrap_or(rest.len());
        return (Piece::Text(&rest[..end]), end);
    };
    let closed = |braced: &str| match braced.starts_with('{') && may_close {
        true => braced.find('}'),
        false => None,
    };
    if let Some(end) = closed(after) {
        let inner = &after[1..end];
        return (Piece::Placeholder { inner, offset }, end + 2);
    }
    match after.strip_prefix('$') {
        Some(escaped) => match closed(escaped) {
            Some(end) => (Piece::Text(&rest[1..end + 3]), end + 3),
            None => (Piece::Text("$"), 2),
        },
        None => (Piece::Text("$"), 1),
    }
}

/// What stands between the braces, understood.
pub(crate) fn target(
    inner: &str,
    offset: usize,
    short: &impl Fn(&str) -> bool,
) -> Result<Target, PlaceholderError> {
    let fail = |problem: &str, suggestion: &str| PlaceholderError {
        message: format!("the placeholder {} {problem}", quoted(&format!("${{{inner}}}"))),
        suggestion: Some(suggestion.to_owned()),
        offset,
    };
    let mut segments = split(inner);
    let root = segments.remove(0);
    if root == "metadata" || root == "resources" || short(&root) {
        let slash = |c: char| c == '/' && root == "metadata";
        let fits = |segment: &String| {
            !segment.is_empty()
                && segment
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') || slash(c))
        };
        if segments.is_empty() || !segments.iter().all(fits) {
            return Err(fail("is malformed", MALFORMED));
        }
        return Ok(match root.as_str() {
            "metadata" => Target::Metadata(segments),
            "resources" => Target::Resource { name: segments.remove(0), path: segments },
            _ => Target::Resource { name: root, path: segments },
        });
    }
    let suggestion = match root.as_str() {
        "externals" => EXTERNALS,
        "pod" => POD,
        _ => UNKNOWN_ROOT,
    };
    Err(fail("has an unknown root", suggestion))
}

const MALFORMED: &str = "write `${metadata.KEY}` or `${resources.NAME.OUTPUT}` with letters, digits, `-` and `_`; to keep the text as it is, write `$${…}`";
const EXTERNALS: &str =
    "declare the thing under `resources` and write `${resources.NAME.OUTPUT}`; Score has no `externals`";
const POD: &str =
    "Score knows no pod: set a plain value, or declare a resource and write `${resources.NAME.OUTPUT}`";
const UNKNOWN_ROOT: &str = "begin with `metadata.` or `resources.`, as in `${resources.NAME.OUTPUT}`; to keep the text as it is, write `$${…}`";

/// The segments between the dots that separate; never empty.
fn split(inner: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut chars = inner.chars().peekable();
    while let Some(c) = chars.next() {
        let last = segments.len() - 1;
        match c {
            '.' => segments.push(String::new()),
            '\\' if chars.peek() == Some(&'.') => {
                chars.next();
                segments[last].push('.');
            }
            c => segments[last].push(c),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Part> {
        parse_text(text, |first| first == "db").expect(text)
    }

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn resource(name: &str, path: &[&str]) -> Part {
        Part::Ref(Target::Resource {
            name: name.to_owned(),
            path: path.iter().map(ToString::to_string).collect(),
        })
    }

    #[test]
    fn dollars_are_escaped_as_score_does() {
        assert_eq!(read("a $$ b"), [text("a $ b")]);
        assert_eq!(read("$${x}"), [text("${x}")]);
        assert_eq!(read("$HOME $"), [text("$HOME $")]);
        assert_eq!(read("$${open"), [text("${open")]);
        assert_eq!(read("${open"), [text("${open")]);
        assert_eq!(read("$$${resources.db}"), [text("$"), resource("db", &[])]);
        assert_eq!(read(""), []);
    }

    #[test]
    fn targets_are_read() {
        assert_eq!(
            read("a${resources.cache.host}b${db.url}"),
            [text("a"), resource("cache", &["host"]), text("b"), resource("db", &["url"])]
        );
        assert_eq!(
            read(r"${metadata.annotations.example\.org/x1}"),
            [Part::Ref(Target::Metadata(vec!["annotations".into(), "example.org/x1".into()]))]
        );
    }

    #[test]
    fn mistakes_say_where_and_what() {
        for (wrong, offset, word) in [
            ("x ${externals.db.host}", 2, "resources"),
            ("${pod.debug}", 0, "resources"),
            ("${cheese.a.b}", 0, "metadata."),
            ("${resources}", 0, "malformed"),
            ("${db}", 0, "malformed"),
            ("${resources.}", 0, "malformed"),
            ("${resources.a.b c}", 0, "malformed"),
            ("${}", 0, "metadata."),
        ] {
            let error = parse_text(wrong, |first| first == "db").expect_err(wrong);
            assert_eq!(error.offset, offset, "{wrong}");
            assert!(format!("{error:?}").contains(word), "{wrong}: {error:?}");
        }
    }

    #[test]
    fn only_real_placeholders_count() {
        assert!(has_placeholder("a ${x}"));
        assert!(!has_placeholder("$$ $${x} $x ${"));
    }
}
