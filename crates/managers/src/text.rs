//! Small ways of writing values as text: hexadecimal, base64, percent-encoding.

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A value as one part of a URL: everything but letters, digits and `-._~` is encoded.
pub(crate) fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A path in a URL: as [`percent`], with the slashes kept.
pub(crate) fn percent_path(path: &str) -> String {
    path.split('/').map(percent).collect::<Vec<_>>().join("/")
}

/// Standard base64, with or without padding and line breaks.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        if byte == b'=' {
            break;
        }
        let value = ALPHABET.iter().position(|known| *known == byte)?;
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (count < 6).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_and_read() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
        assert_eq!(percent("p@ss/wörd"), "p%40ss%2Fw%C3%B6rd");
        assert_eq!(percent_path("/a b/c"), "/a%20b/c");
        assert_eq!(from_base64("aGVs\nbG8=").unwrap(), b"hello");
        assert_eq!(from_base64("aGVsbG8").unwrap(), b"hello");
        assert_eq!(from_base64("").unwrap(), b"");
        assert!(from_base64("a*b=").is_none());
        assert!(from_base64("a").is_none());
    }
}
