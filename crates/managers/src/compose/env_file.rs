//! Environment files as compose reads them.

use std::collections::BTreeMap;

use conductor_domain::work::Failure;

pub(super) fn write(variables: &BTreeMap<String, String>) -> Result<String, Failure> {
    let mut out = String::new();
    for (name, value) in variables {
        if name.is_empty() || name.contains(['=', '\n', '\r', '#', '\'', '"']) || name.trim() != name {
            return Err(Failure::invalid(format!("`{name}` cannot be the name of a variable")));
        }
        if value.contains('\0') {
            return Err(Failure::invalid(format!("the value of variable `{name}` holds a zero byte")));
        }
        out.push_str(&format!("{name}={}\n", quote(value)));
    }
    Ok(out)
}

/// Bare where nothing can be misread; in single quotes, which take all literally; else in double quotes.
fn quote(value: &str) -> String {
    let special = |c: char| c.is_control() || "'\"\\$#`".contains(c);
    if !value.contains(special) && value.trim() == value {
        return value.to_owned();
    }
    if !value.contains(['\'', '\\']) {
        return format!("'{value}'");
    }
    let escaped = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('$', "\\$")
        .replace('\n', "\\n")
        .replace('\r', "\\r");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_only_where_needed() {
        assert_eq!(quote("sqlite:///a/b.db?x=1&y=2"), "sqlite:///a/b.db?x=1&y=2");
        assert_eq!(quote("two words"), "two words");
        assert_eq!(quote(""), "");
        assert_eq!(quote(" edge"), "' edge'");
        assert_eq!(quote("pa$$word#1"), "'pa$$word#1'");
        assert_eq!(quote("two\nlines"), "'two\nlines'");
        assert_eq!(quote("it's $5"), "\"it's \\$5\"");
    }

    #[test]
    fn names_that_would_break_the_file_are_refused() {
        let one = |name: &str| write(&[(name.to_owned(), "x".to_owned())].into());
        assert_eq!(one("A").unwrap(), "A=x\n");
        assert!(one("A\nB").is_err());
        assert!(one("").is_err());
    }
}
