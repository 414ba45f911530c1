//! Tables in the manner of kubectl: aligned columns without lines, words of state in colour.

use comfy_table::{Cell, Color, ContentArrangement, Table};

use super::Screen;

/// A table; cells that hold a word of state get its colour.
pub fn table<const N: usize>(screen: &Screen, header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header);
    if screen.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    // Only a terminal has a width to keep to; a script wants whole lines.
    match console::Term::stdout().size_checked() {
        Some((_, width)) if console::Term::stdout().is_term() => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        _ => {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
    }
    for row in rows {
        table.add_row(row.into_iter().map(|text| {
            let text = if text.is_empty() { "-".to_owned() } else { single_line(&text) };
            match color_of(&text) {
                Some(color) => Cell::new(text).fg(color),
                None => Cell::new(text),
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// `Name: value` lines, aligned.
pub fn fields(pairs: &[(&str, Option<String>)]) -> String {
    let given: Vec<(&str, &String)> =
        pairs.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))).collect();
    let width = given.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) + 1;
    given.iter().map(|(name, value)| format!("{:width$}  {value}\n", format!("{name}:"))).collect()
}

/// Control characters of a tool's message must not reach a terminal.
pub fn single_line(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn color_of(word: &str) -> Option<Color> {
    Some(match word {
        "Active" | "succeeded" | "ok" | "created" | "active" => Color::Green,
        "Failed" | "failed" | "timed_out" | "error" | "fail" => Color::Red,
        "Provisioning" | "Updating" | "in_progress" | "updated" => Color::Cyan,
        "PendingDeletion" | "approval_pending" | "cancelled" | "warn" | "disabled" | "deprecated" => {
            Color::Yellow
        }
        "create" => Color::Green,
        "update" | "replace" | "rename" => Color::Cyan,
        "remove" | "release" => Color::Yellow,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Format;

    fn screen(color: bool) -> Screen {
        Screen { format: Format::Table, quiet: false, yes: false, color, color_stderr: color, live: false }
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_blanks() {
        let rows = vec![["orders".into(), "Active".into()], ["a".into(), String::new()]];
        assert_eq!(
            table(&screen(false), ["NAME", "PHASE"], rows),
            "NAME    PHASE\norders  Active\na       -"
        );
    }

    #[test]
    fn colour_is_used_only_when_asked_for() {
        let rows = || vec![["Failed".to_owned()]];
        assert!(table(&screen(true), ["PHASE"], rows()).contains("\x1b["));
        assert!(!table(&screen(false), ["PHASE"], rows()).contains('\x1b'));
    }

    #[test]
    fn fields_that_hold_nothing_are_left_out() {
        let shown = fields(&[("Id", Some("x".into())), ("Commit", None), ("Status", Some("failed".into()))]);
        assert_eq!(shown, "Id:      x\nStatus:  failed\n");
    }
}
