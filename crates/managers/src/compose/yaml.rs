//! JSON values as YAML that people like to read.

use serde_json::Value;

/// Words that YAML 1.1 readers take for something other than text.
const WORDS: [&str; 12] =
    ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", "infinity"];

/// A document in block style. Every `$` in a value is doubled: compose would take it for a variable.
pub(super) fn document(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                pad(indent, out);
                out.push_str(&scalar(key));
                out.push(':');
                nested(value, indent + 2, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                pad(indent, out);
                out.push('-');
                item_after_dash(item, indent + 2, out);
            }
        }
        _ => {
            out.push_str(&leaf(value));
            out.push('\n');
        }
    }
}

fn nested(value: &Value, indent: usize, out: &mut String) {
    let deep = value.as_object().is_some_and(|map| !map.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty());
    out.push(if deep { '\n' } else { ' ' });
    block(value, indent, out);
}

/// A map in a list starts on the line of its dash.
fn item_after_dash(item: &Value, indent: usize, out: &mut String) {
    if item.as_object().is_some_and(|map| !map.is_empty()) {
        let mut inner = String::new();
        block(item, indent, &mut inner);
        out.push(' ');
        out.push_str(inner.trim_start());
    } else {
        nested(item, indent, out);
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn leaf(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(&text.replace('$', "$$")),
        other => other.to_string(),
    }
}

fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let quoted = Value::from(text).to_string();
    // JSON leaves these as they are; YAML calls them unprintable.
    let unprintable = |c: &char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    quoted
        .chars()
        .map(|c| if unprintable(&c) { format!("\\u{:04x}", c as u32) } else { c.to_string() })
        .collect()
}

fn is_plain(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_./:@-".contains(c))
        && !text.ends_with(':')
        && !WORDS.contains(&text.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_plain_is_quoted() {
        for plain in ["nginx:1.27", "/etc/app.conf", "a@b", "service_healthy"] {
            assert_eq!(scalar(plain), plain);
        }
        for quoted in ["yes", "No", "1.0", "8080:80", "", "a: b", "a:", "- x", "#", "*a", "é", "a b", ".5"] {
            assert_eq!(scalar(quoted), format!("\"{quoted}\""));
        }
        assert_eq!(scalar("a\u{85}\n"), "\"a\\u0085\\n\"");
    }

    #[test]
    fn blocks_nest() {
        let value = json!({"a": {"b": [1, "x$y", {"c": true, "d": []}], "e": {}}, "f": null, "g": [["h"]]});
        let text = "a:\n  b:\n    - 1\n    - \"x$$y\"\n    - c: true\n      d: []\n  e: {}\nf: null\ng:\n  -\n    - h\n";
        assert_eq!(document(&value), text);
    }
}
