//! Writes JSON values as YAML. Whatever could be read as something else is quoted.

use serde_json::Value;

pub fn render(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => block(value, 0, &mut out),
        _ => {
            out.push_str(&scalar(value));
            out.push('\n');
        }
    }
    out
}

/// A map or list that is not empty, one entry per line, each line indented.
fn block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                out.push_str(&indent);
                out.push_str(&text(key));
                out.push(':');
                entry(value, depth + 1, out);
            }
        }
        Value::Array(items) => {
            for value in items {
                out.push_str(&indent);
                out.push('-');
                // The first line of a nested block may stand next to its dash.
                if is_block(value) {
                    let mut nested = String::new();
                    block(value, depth + 1, &mut nested);
                    out.push(' ');
                    out.push_str(nested.trim_start_matches(' '));
                } else {
                    entry(value, depth + 1, out);
                }
            }
        }
        _ => {}
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn entry(value: &Value, depth: usize, out: &mut String) {
    if is_block(value) {
        out.push('\n');
        block(value, depth, out);
    } else {
        out.push(' ');
        out.push_str(&scalar(value));
        out.push('\n');
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(string) => text(string),
        Value::Object(_) => "{}".into(),
        Value::Array(_) => "[]".into(),
        other => other.to_string(),
    }
}

/// A text without quotes where that is safe; JSON's quotes are YAML's too.
fn text(string: &str) -> String {
    let starts_well = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let is_word = !matches!(
        string.to_ascii_lowercase().as_str(),
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    let harmless = |c: char| c.is_alphanumeric() || "_-./@+ ,()".contains(c);
    if starts_well && is_word && string.chars().all(harmless) && !string.ends_with(' ') {
        return string.to_owned();
    }
    serde_json::to_string(string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_so_that_they_read_back_the_same() {
        let value = json!({
            "name": "orders", "count": 3, "none": null, "no": "no", "url": "sqlite:///a b", "empty": {}, "list": [],
            "items": [{"a": 1, "b": {"c": [true, "x"]}}, [1, 2], "plain text"],
        });
        let text = render(&value);
        let read = crate::catalogue::document::read(&text).unwrap();
        assert_eq!(read[0].value, value, "{text}");
    }

    #[test]
    fn a_list_of_maps_reads_like_a_person_wrote_it() {
        assert_eq!(render(&json!([{"a": 1, "b": "x"}])), "- a: 1\n  b: x\n");
        assert_eq!(render(&json!([])), "[]\n");
    }
}
