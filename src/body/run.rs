// SPDX-License-Identifier: Apache-2.0
//! Searches for the byte that ends a run.

use memchr::memchr2;

/// Repeats this byte eight times.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Marks each byte below `bound` by its highest bit. Only the lowest mark is certain: the subtraction may carry into those above it.
const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(all(bound)) & !word & all(0x80)
}

/// Counts the bytes before the first one that ends a run, eight at a time. `ends` marks it in a word, `is_end` tests a single byte.
fn run(bytes: &[u8], mut ends: impl FnMut(u64) -> u64, is_end: impl Fn(u8) -> bool) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = ends(u64::from_le_bytes(*word));
        if found != 0 {
            return index * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let whole = words.len() * 8;
    whole + rest.iter().position(|&byte| is_end(byte)).unwrap_or(rest.len())
}

/// Counts the bytes of a JSON string before a quote, a backslash or a control character.
/// The flag is true if they are all ASCII. It may be false although they are, if one of the next seven bytes is not ASCII.
pub(super) fn of_string(bytes: &[u8]) -> (usize, bool) {
    let mut seen = 0;
    let length = run(
        bytes,
        |word| {
            seen |= word;
            // With this bit flipped, a quote is 0x20 and a space is not: one comparison finds it and control characters.
            below(word ^ all(0x02), 0x21) | below(word ^ all(b'\\'), 1)
        },
        |byte| byte < 0x20 || byte == b'"' || byte == b'\\',
    );
    let rest = bytes.get(length & !7..length).unwrap_or_default();
    let ascii = seen & all(0x80) == 0 && rest.is_ascii();
    (length, ascii)
}

/// Counts the bytes before a CR or LF.
pub(super) fn of_line(bytes: &[u8]) -> usize {
    memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len())
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
