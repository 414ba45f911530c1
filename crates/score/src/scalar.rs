//! What an unquoted word means: YAML's core schema, nothing more.
//!
//! Only `true` and `false` (in the three spellings of the core schema) are booleans; `yes`, `on`
//! and dates are texts. Numbers keep their exact value or are refused.

use granit_parser::Tag;
use serde_json::Number;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
}

/// What is wrong with a scalar, and what to do.
pub(crate) type Problem = (String, &'static str);

/// The meaning of a scalar. `plain` is false for everything that was quoted.
pub(crate) fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Scalar, Problem> {
    if text.contains('\0') {
        let message = "a text must not hold the character NUL".to_owned();
        return Err((message, "remove the `\\0`; binary content goes into `binaryContent`"));
    }
    let Some(tag) = tag else {
        return if plain { implicit(text) } else { Ok(Scalar::Text(text.to_owned())) };
    };
    let mismatch = || {
        let message = format!("the value does not fit its tag {}", crate::finding::quoted(&tag.original()));
        (message, "remove the tag, or correct the value")
    };
    let suffix = match tag.core_suffix() {
        Some(suffix) => suffix,
        None if tag.handle().is_empty() => "str",
        None if tag.handle() == "tag:yaml.org,2002:" && tag.suffix() == "timestamp" => "str",
        None => {
            let message = format!("the tag {} is not understood", crate::finding::quoted(&tag.original()));
            return Err((message, "remove the tag"));
        }
    };
    match (suffix, implicit(text)?) {
        ("str", _) => Ok(Scalar::Text(text.to_owned())),
        ("null", Scalar::Null) => Ok(Scalar::Null),
        ("bool", Scalar::Bool(value)) => Ok(Scalar::Bool(value)),
        ("int", Scalar::Number(value)) if !value.is_f64() => Ok(Scalar::Number(value)),
        ("float", Scalar::Number(value)) => Ok(Scalar::Number(value)),
        _ => Err(mismatch()),
    }
}

/// The meaning of a word without quotes or tag.
fn implicit(text: &str) -> Result<Scalar, Problem> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Scalar::Null),
        "true" | "True" | "TRUE" => return Ok(Scalar::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Scalar::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(unrepresentable(text));
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(Scalar::Text(text.to_owned()));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return match u64::from_str_radix(digits, radix) {
                Ok(value) => Ok(Scalar::Number(value.into())),
                Err(_) => Err(unrepresentable(text)),
            };
        }
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return integer(text);
    }
    if is_float(unsigned) {
        let value = text.parse::<f64>().ok().and_then(Number::from_f64);
        return value.map(Scalar::Number).ok_or_else(|| unrepresentable(text));
    }
    Ok(Scalar::Text(text.to_owned()))
}

fn integer(text: &str) -> Result<Scalar, Problem> {
    let number = text.parse::<i64>().map(Number::from);
    number
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .map(Scalar::Number)
        .map_err(|_| unrepresentable(text))
}

fn unrepresentable(text: &str) -> Problem {
    let message = format!("the number {} is too large or not a number", crate::finding::quoted(text));
    (message, "put it in quotes to keep it as a text")
}

/// Digits with one point, optionally an exponent: the core schema's float, without its sign.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => digits(whole) && digits(part) && mantissa.len() > 1,
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    mantissa_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_the_core_schema_says() {
        let text = |text: &str| Scalar::Text(text.to_owned());
        let float = |value: f64| Scalar::Number(Number::from_f64(value).expect("finite"));
        for (word, meaning) in [
            ("~", Scalar::Null),
            ("", Scalar::Null),
            ("True", Scalar::Bool(true)),
            ("yes", text("yes")),
            ("off", text("off")),
            ("2024-05-01", text("2024-05-01")),
            ("2024-05-01T10:00:00Z", text("2024-05-01T10:00:00Z")),
            ("12", Scalar::Number(12.into())),
            ("-12", Scalar::Number((-12).into())),
            ("+12", Scalar::Number(12.into())),
            ("0644", Scalar::Number(644.into())),
            ("0o17", Scalar::Number(15.into())),
            ("0xfF", Scalar::Number(255.into())),
            ("18446744073709551615", Scalar::Number(u64::MAX.into())),
            ("1.5", float(1.5)),
            (".5", float(0.5)),
            ("1e3", float(1000.0)),
            ("1_000", text("1_000")),
            ("1.2.3", text("1.2.3")),
            ("10:30", text("10:30")),
            (".", text(".")),
            ("0x", text("0x")),
            ("500m", text("500m")),
        ] {
            assert_eq!(resolve(word, true, None).expect(word), meaning, "{word}");
        }
        assert_eq!(resolve("12", false, None), Ok(text("12")));
    }

    #[test]
    fn numbers_that_would_be_lost_are_refused() {
        for word in [".inf", "-.INF", ".nan", "1e999", "99999999999999999999"] {
            resolve(word, true, None).expect_err(word);
        }
    }
}
