//! Lines of any length out of chunks of any size.

/// Collects the line at hand. Of an overlong one only the beginning is kept; its whole length is counted.
#[derive(Default)]
pub struct Lines {
    kept: Vec<u8>,
    length: usize,
}

impl Lines {
    /// Takes a chunk and hands over each line it completes, with the line's whole length.
    pub fn push(&mut self, mut chunk: &[u8], keep: usize, each: &mut dyn FnMut(&[u8], usize)) {
        while let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
            self.extend(&chunk[..end], keep);
            self.hand_over(each);
            chunk = &chunk[end + 1..];
        }
        self.extend(chunk, keep);
    }

    /// The last line, when it does not end in a newline.
    pub fn finish(&mut self, each: &mut dyn FnMut(&[u8], usize)) {
        if self.length > 0 {
            self.hand_over(each);
        }
    }

    fn extend(&mut self, bytes: &[u8], keep: usize) {
        self.length += bytes.len();
        let room = keep.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }

    fn hand_over(&mut self, each: &mut dyn FnMut(&[u8], usize)) {
        if self.length == self.kept.len() && self.kept.last() == Some(&b'\r') {
            self.kept.pop();
            self.length -= 1;
        }
        each(&self.kept, self.length);
        self.kept.clear();
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(chunks: &[&[u8]], keep: usize) -> Vec<(String, usize)> {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        let mut each = |line: &[u8], length| seen.push((String::from_utf8_lossy(line).into_owned(), length));
        for chunk in chunks {
            lines.push(chunk, keep, &mut each);
        }
        lines.finish(&mut each);
        seen
    }

    #[test]
    fn lines_come_together_over_chunk_borders() {
        let seen = collect(&[b"on", b"e\ntwo\r", b"\n\nthr", b"ee"], 100);
        let want = [("one", 3), ("two", 3), ("", 0), ("three", 5)];
        assert_eq!(seen, want.map(|(text, length)| (text.to_owned(), length)));
    }

    #[test]
    fn an_overlong_line_keeps_its_beginning_and_its_length() {
        assert_eq!(collect(&[b"abcdef", b"ghi\nx"], 4), [("abcd".to_owned(), 9), ("x".to_owned(), 1)]);
    }
}
