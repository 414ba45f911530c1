//! The shapes that names and quantities must have, and the nearest right word for a wrong one.
//!
//! Only ASCII is ever legal in a name, so look-alikes and direction marks never pass.

use std::fmt::Write as _;

use crate::finding::quoted;

/// A rule for a text, and how to say it.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub fits: fn(&str) -> bool,
    /// Completes "it must …".
    pub rule: &'static str,
    pub example: &'static str,
}

pub(crate) const ANY: Shape = Shape { fits: |_| true, rule: "be a text", example: "text" };
pub(crate) const NOT_EMPTY: Shape =
    Shape { fits: |text| !text.is_empty(), rule: "not be empty", example: "" };
pub(crate) const LABEL: Shape = Shape {
    fits: |text| is_word(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit(), "-"),
    rule: "have 2 to 63 characters, lower-case letters, digits and `-`, and neither start nor end with `-`",
    example: "orders-db",
};
pub(crate) const TYPE: Shape = Shape {
    fits: |text| is_word(text, |c| c.is_ascii_alphanumeric(), "-"),
    rule: "have 2 to 63 characters, letters, digits and `-`, and neither start nor end with `-`",
    example: "postgres",
};
pub(crate) const ID: Shape = Shape {
    fits: is_id,
    rule: "have 2 to 63 characters: words of lower-case letters, digits and inner `-`, joined by `.`",
    example: "shop.orders",
};
pub(crate) const ANNOTATION: Shape = Shape {
    fits: is_annotation,
    rule: "be a name of 2 to 63 letters, digits, `-`, `_` and `.`, optionally after a host name and `/`",
    example: "example.org/team",
};
pub(crate) const VARIABLE: Shape = Shape {
    fits: |text| !text.is_empty() && !text.contains('='),
    rule: "have at least one character and no `=`",
    example: "DB_URL",
};
pub(crate) const MODE: Shape = Shape {
    fits: |text| {
        let digits = if text.len() == 4 { text.strip_prefix('0').unwrap_or("") } else { text };
        digits.len() == 3 && digits.bytes().all(|b| matches!(b, b'0'..=b'7'))
    },
    rule: "be three octal digits in quotes, as in \"0644\"",
    example: "0644",
};
pub(crate) const CPU: Shape = Shape {
    fits: |text| {
        let whole = text.strip_suffix('m').unwrap_or(text);
        match whole.split_once('.') {
            Some((whole, part)) => !text.ends_with('m') && is_digits(whole) && is_digits(part),
            None => is_digits(whole),
        }
    },
    rule: "be a number of CPUs in quotes, as in \"2\", \"0.5\" or \"125m\"",
    example: "500m",
};
pub(crate) const MEMORY: Shape = Shape {
    fits: is_memory,
    rule: "be a number of bytes in quotes with an optional unit, as in \"512M\" or \"1.5Gi\"",
    example: "512Mi",
};
pub(crate) const HEADER: Shape = Shape {
    fits: |text| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    },
    rule: "be letters, digits, `-` and `_`",
    example: "X-Request-Id",
};

/// 2 to 63 characters of `allowed` or `inner`, with `allowed` ones at both ends.
fn is_word(text: &str, allowed: fn(char) -> bool, inner: &str) -> bool {
    (2..=63).contains(&text.len())
        && text.chars().all(|c| allowed(c) || inner.contains(c))
        && text.starts_with(allowed)
        && text.ends_with(allowed)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_id(text: &str) -> bool {
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (2..=63).contains(&text.len())
        && text.split('.').all(|word| {
            word.chars().all(|c| lower(c) || c == '-') && word.starts_with(lower) && word.ends_with(lower)
        })
}

fn is_annotation(text: &str) -> bool {
    let (host, name) = match text.split_once('/') {
        Some((host, name)) => (Some(host), name),
        None => (None, text),
    };
    text.len() <= 316
        && host.is_none_or(|host| host.split('.').all(LABEL.fits))
        && is_word(name, |c| c.is_ascii_alphanumeric(), "._-")
}

fn is_memory(text: &str) -> bool {
    const UNITS: [&str; 12] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "K", "M", "G", "T", "P", "E"];
    let number = UNITS.iter().find_map(|unit| text.strip_suffix(unit)).unwrap_or(text);
    match number.split_once('.') {
        Some(("0", part)) => is_digits(part),
        Some((whole, part)) => is_digits(whole) && !whole.starts_with('0') && is_digits(part),
        None => is_digits(number) && !number.starts_with('0'),
    }
}

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Far more than any real file has; comparing with all of a hostile one would take long.
    const COMPARED: usize = 2_000;
    const LONGEST: usize = 63;
    if word.len() > LONGEST {
        return None;
    }
    let plain = |word: &str| word.to_ascii_lowercase().replace(['_', '-', '.', ' '], "");
    let wanted = plain(word);
    let budget = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .take(COMPARED)
        .filter(|candidate| candidate.len().abs_diff(word.len()) <= budget + 2)
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= budget)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` or `c`, cut short where there are many.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let mut out = String::new();
    for (index, word) in words.into_iter().enumerate() {
        if index == SHOWN {
            out.push_str(", …");
            break;
        }
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(out, "{comma}{}", quoted(word));
    }
    out
}

/// "did you mean" where a word is near, else what there is to choose from.
pub(crate) fn choose<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(near) => format!("did you mean {}?", quoted(near)),
        None => format!("use one of {}", listed(known)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_agree_with_the_specification() {
        let long = "a".repeat(64);
        for (shape, good, bad) in [
            (
                LABEL,
                vec!["ab", "a-b", "0-9", "a--b"],
                vec!["a", "", "-ab", "ab-", "Ab", "a.b", "a\u{202e}b", "äb", &long],
            ),
            (TYPE, vec!["Ab", "k8s-thing"], vec!["a", "a.b", "cl@ss?"]),
            (ID, vec!["ab", "a.b", "a--b.c"], vec!["a", ".ab", "a..b", "a-.b", "AB"]),
            (
                ANNOTATION,
                vec!["one", "acme.org/xy", "A._-b"],
                vec!["acme.org/x", "x", "a.org/xy", "/xy", "Acme.org/xy"],
            ),
            (MODE, vec!["644", "0644"], vec!["12", "0888", "1644", "00644"]),
            (CPU, vec!["2", "0.5", "125m"], vec!["", "m", "1.", ".5", "1.5m", "٣"]),
            (MEMORY, vec!["1", "0.5Gi", "1.5Gi", "125M"], vec!["0", "01", "1.", "1Mb", "Gi", "-1"]),
        ] {
            for text in good {
                assert!((shape.fits)(text), "{text:?} should {}", shape.rule);
            }
            for text in bad {
                assert!(!(shape.fits)(text), "{text:?} should not pass: {}", shape.rule);
            }
        }
    }

    #[test]
    fn near_words_are_found() {
        let known = ["params", "metadata", "type", "orders"];
        assert_eq!(nearest("parms", known), Some("params"));
        assert_eq!(nearest("order", known), Some("orders"));
        assert_eq!(nearest("Type", known), Some("type"));
        assert_eq!(nearest("elephant", known), None);
    }
}
