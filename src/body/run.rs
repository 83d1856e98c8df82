// SPDX-License-Identifier: Apache-2.0
//! Searches for the byte that ends a run.

use memchr::{memchr, memchr2, memrchr};

/// Repeats this byte eight times.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Counts the bytes of a JSON string before a quote, a backslash or a control character, eight at a time.
/// The flag is true if they are all ASCII. It may be false although they are, if one of the next seven bytes is not ASCII.
pub(super) fn of_string(bytes: &[u8]) -> (usize, bool) {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut seen = 0;
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        seen |= word;
        // With this bit flipped, a quote is 0x20 and a space is not: one comparison finds it and control characters.
        let low = (word ^ all(0x02)).wrapping_sub(all(0x21));
        let backslash = (word ^ all(b'\\')).wrapping_sub(all(1));
        // The highest bit marks a byte that ends the run. Only the lowest mark is certain: a subtraction may carry into those above it.
        let ends = (low | backslash) & !word & all(0x80);
        if ends != 0 {
            return (index * 8 + (ends.trailing_zeros() / 8) as usize, seen & all(0x80) == 0);
        }
    }
    let is_end = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    let (last, _) = rest.split_at(rest.iter().position(is_end).unwrap_or(rest.len()));
    (words.len() * 8 + last.len(), seen & all(0x80) == 0 && last.is_ascii())
}

/// Counts the bytes before a CR or LF.
#[cfg_attr(target_arch = "wasm32", inline(never))]
pub(super) fn of_line(bytes: &[u8]) -> usize {
    memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len())
}

/// Finds the first such byte.
#[cfg_attr(target_arch = "wasm32", inline(never))]
pub(super) fn first(byte: u8, bytes: &[u8]) -> Option<usize> {
    memchr(byte, bytes)
}

/// Finds the last such byte.
#[cfg_attr(target_arch = "wasm32", inline(never))]
pub(super) fn last(byte: u8, bytes: &[u8]) -> Option<usize> {
    memrchr(byte, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_of_ascii_is_known_as_such() {
        let rows: [(&str, (usize, bool)); 6] = [
            ("", (0, true)),
            ("abc", (3, true)),
            ("abcdefghijklmnopqrstuvw\"", (23, true)),
            ("abcdefghijk\u{e9}lmnopqrstuvw\"", (25, false)),
            ("\u{e9}bcdefghijklmnopqrst\"", (21, false)),
            ("abcdefghi\u{e9}", (11, false)),
        ];
        for (text, found) in rows {
            assert_eq!(of_string(text.as_bytes()), found, "{text}");
        }
    }
}
