//! What people and scripts get to see: results on stdout in the asked format, everything else on stderr.
//!
//! A reader that goes away ends the program quietly; nothing here panics on a closed pipe.

pub mod findings;
pub mod progress;
pub mod table;
pub mod views;
pub mod yaml;

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::{
    args::{Color, Format, OutputFlags},
    failure::Failure,
};

#[derive(Clone, Debug)]
pub struct Screen {
    pub format: Format,
    pub quiet: bool,
    pub yes: bool,
    /// Colour on stdout, and on stderr.
    pub color: bool,
    pub color_stderr: bool,
    /// Someone watches stderr.
    pub live: bool,
}

impl Screen {
    pub fn new(flags: &OutputFlags) -> Self {
        let banned = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let wanted = |terminal: bool| match flags.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && !banned && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        };
        let stderr = io::stderr().is_terminal();
        Self {
            format: flags.output,
            quiet: flags.quiet,
            yes: flags.yes,
            color: wanted(io::stdout().is_terminal()),
            color_stderr: wanted(stderr),
            live: stderr && !flags.quiet,
        }
    }

    /// The result, as one document. `text` is what a person gets.
    pub fn document(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.format {
            Format::Table => self.print(&text()),
            Format::Json => self.print(&serde_json::to_string_pretty(value).unwrap_or_default()),
            Format::Yaml => {
                self.print(&yaml::render(&serde_json::to_value(value).unwrap_or(serde_json::Value::Null)));
            }
        }
    }

    /// Text on stdout, ending in one line break.
    pub fn print(&self, text: &str) {
        let text = text.trim_end_matches('\n');
        let mut out = io::stdout().lock();
        let written = if text.is_empty() && self.format == Format::Table {
            Ok(())
        } else {
            writeln!(out, "{text}").and_then(|()| out.flush())
        };
        match written {
            Ok(()) => {}
            // Nobody reads on: there is nothing left to do.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
            Err(error) => {
                complain(&format!("error: the result cannot be written: {error}"));
                std::process::exit(1);
            }
        }
    }

    /// Something worth knowing, on stderr.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            complain(text);
        }
    }

    pub fn warn(&self, text: &str) {
        complain(&format!("{} {text}", paint(self.color_stderr, YELLOW, "warning:")));
    }

    /// Why the command ends badly.
    pub fn failure(&self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        let head = paint(self.color_stderr, RED, "error:");
        let mut text = format!("{head} {}", harmless(&failure.message));
        for item in &failure.items {
            let told = failure.items.len() == 1 && item.message == failure.message;
            match (told, item.path.as_str()) {
                (true, "") => {}
                (true, path) => text.push_str(&format!("\n  at {path}")),
                (false, "") => text.push_str(&format!("\n  {}", item.message)),
                (false, path) => text.push_str(&format!("\n  {path}: {}", item.message)),
            }
            if let Some(suggestion) = item.suggestion.as_ref().filter(|text| !failure.message.contains(*text))
            {
                text.push_str(&format!("\n  {} {suggestion}", paint(self.color_stderr, CYAN, "help:")));
            }
        }
        if let Some(hint) = &failure.hint {
            text.push_str(&format!("\n{} {hint}", paint(self.color_stderr, CYAN, "help:")));
        }
        complain(&text);
    }
}

/// What a tool or a server said, without what a terminal would act on.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

/// Text on stderr, which may be closed.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

pub const RED: &str = "31";
pub const GREEN: &str = "32";
pub const YELLOW: &str = "33";
pub const CYAN: &str = "36";
pub const DIM: &str = "2";
pub const BOLD: &str = "1";

pub fn paint(color: bool, code: &str, text: &str) -> String {
    if color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// How long something took or is ago, in at most two units.
pub fn span(micros: i64) -> String {
    let millis = micros.max(0) / 1_000;
    let seconds = millis / 1_000;
    match seconds {
        0 if millis < 100 => format!("{millis}ms"),
        0..60 => format!("{}.{}s", seconds, millis % 1_000 / 100),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// `1 deployment`, `2 deployments`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short_and_never_negative() {
        let shown: Vec<String> = [-5, 42_000, 1_250_000, 61_000_000, 3_660_000_000, 90_000_000_000]
            .iter()
            .map(|m| span(*m))
            .collect();
        assert_eq!(shown, ["0ms", "42ms", "1.2s", "1m1s", "1h1m", "1d1h"]);
    }
}
