//! A mistake in a Score file, and how a person gets to see it.
//!
//! What is quoted from the file may be hostile: whatever is shown is cut to a sane width and has
//! its control and direction characters replaced, so that a file cannot paint on a terminal.

use std::fmt::Write as _;

use serde::Serialize;

/// The width to which a quoted source line is cut.
const WIDTH: usize = 120;
/// What all findings of one file may take when rendered.
const OUTPUT_BYTES: usize = 10_000;

/// One mistake, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Counts from 1.
    pub line: usize,
    /// Counts from 1, in characters.
    pub column: usize,
    /// Where in the document, as in `containers.main.variables`; empty for the file as a whole.
    pub path: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// How many characters to underline.
    #[serde(skip)]
    pub length: usize,
}

impl Finding {
    /// Several lines for a person: the place and the message, the line itself, and the help.
    #[must_use]
    pub fn render(&self, file: &str, source: &str, color: bool) -> String {
        let paint = |code: &str, text: &str| {
            if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
        };
        let place = format!("{}:{}:{}", visible(file), self.line, self.column);
        let mut out = format!("{}: {}\n", paint("1", &place), paint("31", &self.message));
        if let Some((text, start)) = self.excerpt(source) {
            let number = self.line.to_string();
            let underlined = self.length.clamp(1, text.chars().count().saturating_sub(start).max(1));
            let caret = format!("{}{}", " ".repeat(start), "^".repeat(underlined));
            let gap = " ".repeat(number.len());
            let _ = writeln!(out, " {number} | {text}");
            let _ = writeln!(out, " {gap} | {}", paint("31", &caret));
        }
        if let Some(suggestion) = &self.suggestion {
            let _ = writeln!(out, "{} {suggestion}", paint("36", "help:"));
        }
        out
    }

    /// The offending line around the column, and where the column is within it.
    fn excerpt(&self, source: &str) -> Option<(String, usize)> {
        let source = source.strip_prefix('\u{feff}').unwrap_or(source);
        let line = nth_line(source, self.line.checked_sub(1)?)?;
        let column = self.column.saturating_sub(1);
        let skipped = column.saturating_sub(WIDTH * 2 / 3);
        let shown: String = line.chars().skip(skipped).take(WIDTH).collect();
        let shown = visible(shown.trim_end());
        if shown.trim().is_empty() {
            return None;
        }
        Some(if skipped == 0 { (shown, column) } else { (format!("…{shown}"), column - skipped + 1) })
    }
}

/// The `index`th line of `source`, found without looking at what comes after it.
fn nth_line(source: &str, index: usize) -> Option<&str> {
    source.split_inclusive('\n').nth(index).map(str::trim_end)
}

/// All findings of one file, never longer than 10 KB.
#[must_use]
pub fn render_findings(findings: &[Finding], file: &str, source: &str, color: bool) -> String {
    let mut out = String::new();
    for (shown, finding) in findings.iter().enumerate() {
        let text = finding.render(file, source, color);
        let more = format!("… and {} more\n", findings.len() - shown);
        if out.len() + text.len() + more.len() > OUTPUT_BYTES {
            if out.len() + more.len() <= OUTPUT_BYTES {
                out.push_str(&more);
            }
            break;
        }
        out.push_str(&text);
    }
    out
}

/// `text` between backticks, short and harmless enough for a message.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut shown = visible(&text.chars().take(LONGEST).collect::<String>());
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// `text` with everything replaced that a terminal would act on instead of showing.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() || is_formatting(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Characters without a shape of their own: direction controls, joiners, marks of byte order.
fn is_formatting(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}
