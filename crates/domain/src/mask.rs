//! Secret values are taken out of every line, in the forms in which programs print them.
//!
//! Raw, as JSON and percent-encoded text, and as base64 at any position inside a longer encoded document.
//! Matching is per complete line, so that chunk borders do not matter; every line of a secret with several
//! is a secret. Values under four characters would blank out ordinary text and are left alone.

use std::collections::BTreeSet;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE},
};

const SHORTEST: usize = 4;
const MASK: &[u8] = b"***";

#[derive(Default)]
pub struct Masker {
    forms: BTreeSet<Vec<u8>>,
    automaton: Option<AhoCorasick>,
    longest: usize,
}

impl Masker {
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut masker = Self::default();
        masker.add(secrets);
        masker
    }

    pub fn add<'a>(&mut self, secrets: impl IntoIterator<Item = &'a str>) {
        let before = self.forms.len();
        for secret in secrets {
            insert_forms(&mut self.forms, secret);
            for line in secret.lines().map(str::trim).filter(|line| *line != secret) {
                insert_forms(&mut self.forms, line);
            }
        }
        if self.forms.len() != before {
            self.longest = self.forms.iter().map(Vec::len).max().unwrap_or(0);
            // Fails only when the forms together exceed the address space.
            self.automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&self.forms).ok();
        }
    }

    /// The longest form of a secret: how far one may reach beyond where a line is cut.
    pub fn longest(&self) -> usize {
        self.longest
    }

    pub fn mask(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.mask_up_to(text.as_bytes(), text.len())).into_owned()
    }

    /// The first `cut` bytes, masked. A secret that begins before the cut is taken out whole.
    pub fn mask_up_to(&self, text: &[u8], cut: usize) -> Vec<u8> {
        let cut = cut.min(text.len());
        let (mut masked, mut at) = (Vec::with_capacity(cut), 0);
        for (start, end) in self.found(text) {
            if start >= cut {
                break;
            }
            masked.extend_from_slice(&text[at..start]);
            masked.extend_from_slice(MASK);
            at = end;
        }
        if at < cut {
            masked.extend_from_slice(&text[at..cut]);
        }
        masked
    }

    /// Where secrets are; what overlaps is one place.
    fn found(&self, text: &[u8]) -> Vec<(usize, usize)> {
        let Some(automaton) = &self.automaton else {
            return Vec::new();
        };
        let mut places: Vec<_> =
            automaton.find_overlapping_iter(text).map(|m| (m.start(), m.end())).collect();
        places.sort_unstable();
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(places.len());
        for (start, end) in places {
            match merged.last_mut() {
                Some(last) if start < last.1 => last.1 = last.1.max(end),
                _ => merged.push((start, end)),
            }
        }
        merged
    }
}

fn insert_forms(forms: &mut BTreeSet<Vec<u8>>, secret: &str) {
    if secret.chars().count() < SHORTEST {
        return;
    }
    let mut insert = |form: Vec<u8>| {
        if form.len() >= SHORTEST {
            forms.insert(form);
        }
    };
    if !secret.contains('\n') {
        insert(secret.as_bytes().to_vec());
    }
    let json = serde_json::Value::from(secret).to_string();
    insert(json.as_bytes()[1..json.len() - 1].to_vec());
    // Some encoders also escape what HTML would misread.
    let html = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    insert(html.as_bytes()[1..html.len() - 1].to_vec());
    let percent = percent_encoded(secret, "-._~");
    insert(percent.to_lowercase_escapes().into_bytes());
    insert(percent.replace("%20", "+").into_bytes());
    insert(percent_encoded(secret, "-._~/").into_bytes());
    insert(percent.into_bytes());
    for whole in [STANDARD.encode(secret), URL_SAFE.encode(secret)] {
        insert(whole.trim_end_matches('=').as_bytes().to_vec());
        insert(whole.into_bytes());
    }
    for before in 0..3 {
        for form in inside_base64(secret.as_bytes(), before) {
            insert(form);
        }
    }
}

/// The characters of a base64 text that depend on the secret alone when `before` bytes (modulo 3) precede it.
fn inside_base64(secret: &[u8], before: usize) -> [Vec<u8>; 2] {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(secret);
    let first = (before * 8).div_ceil(6);
    let last = bytes.len() * 8 / 6;
    [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)]
        .map(|text| text.as_bytes()[first.min(last)..last].to_vec())
}

fn percent_encoded(text: &str, plain: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(byte as char),
            _ if plain.as_bytes().contains(&byte) => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

trait LowercaseEscapes {
    fn to_lowercase_escapes(&self) -> String;
}

impl LowercaseEscapes for String {
    /// `%2F` as `%2f`.
    fn to_lowercase_escapes(&self) -> String {
        let mut escape = 0;
        self.chars()
            .map(|c| match c {
                '%' => {
                    escape = 2;
                    c
                }
                _ if escape > 0 => {
                    escape -= 1;
                    c.to_ascii_lowercase()
                }
                _ => c,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "p@ss/word+1 \"x\"";

    fn hidden(line: &str) {
        let masked = Masker::new([SECRET]).mask(line);
        assert!(masked.contains("***"), "{line} → {masked}");
        assert!(!masked.contains("ss/word") && !masked.contains("ss%2"), "{line} → {masked}");
    }

    #[test]
    fn every_printed_form_is_hidden() {
        hidden(&format!("password={SECRET}."));
        hidden(&serde_json::json!({ "password": SECRET }).to_string());
        hidden("url=postgres://u:p%40ss%2Fword%2B1%20%22x%22@h/d");
        hidden("url=postgres://u:p%40ss%2fword%2b1%20%22x%22@h/d");
        hidden("form=p%40ss%2Fword%2B1+%22x%22");
        hidden(&STANDARD.encode(SECRET));
        hidden(STANDARD.encode(SECRET).trim_end_matches('='));
        hidden(&URL_SAFE.encode(SECRET));
    }

    #[test]
    fn base64_is_hidden_at_every_alignment() {
        for before in ["", "a", "ab", "abc", "user:"] {
            for after in ["", "z", "zz", "zzz"] {
                for engine in [&STANDARD, &URL_SAFE] {
                    let encoded = engine.encode(format!("{before}{SECRET}{after}"));
                    let masked = Masker::new([SECRET]).mask(&encoded);
                    assert!(
                        masked.contains("***") && masked.len() < 24,
                        "{before}|{after}: {encoded} → {masked}"
                    );
                }
            }
        }
    }

    #[test]
    fn overlapping_secrets_leave_nothing_of_either() {
        assert_eq!(Masker::new(["abcdef", "defghi"]).mask("<abcdefghi>"), "<***>");
    }

    #[test]
    fn each_line_of_a_long_secret_is_one() {
        let key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n  kqhkiG9w0B\n-----END KEY-----\n";
        let masker = Masker::new([key]);
        assert_eq!(masker.mask("x MIIEvQIBADANBg y"), "x *** y");
        assert_eq!(masker.mask("kqhkiG9w0B"), "***");
        assert!(!masker.mask(&serde_json::json!(key).to_string()).contains("MIIE"));
    }

    #[test]
    fn short_values_are_left_alone() {
        assert_eq!(Masker::new(["a", "no", "abc", ""]).mask("abc a no"), "abc a no");
    }

    #[test]
    fn a_secret_across_the_cut_is_taken_out_whole() {
        assert_eq!(Masker::new(["secret"]).mask_up_to(b"ab secret cd", 5), b"ab ***");
        assert_eq!(Masker::new(["secret"]).mask_up_to(b"ab secret cd", 3), b"ab ");
    }
}
