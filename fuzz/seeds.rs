// SPDX-License-Identifier: Apache-2.0
//! Seeds: the inputs that cargo-fuzz begins with, and that tests try. `fuzz/seeds/NAME.txt` has one a line, as `escape_ascii` writes it.

use std::fs;
use std::path::Path;

/// The seeds of a file, in their order.
pub fn read(file: &Path) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let place = |number: usize| format!("{}, line {}: no escape of a byte", file.display(), number + 1);
    text.lines()
        .enumerate()
        .map(|(number, line)| bytes(line).unwrap_or_else(|| panic!("{}", place(number))))
        .collect()
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    let mut characters = line.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = characters.next() {
        bytes.push(match byte {
            b'\\' => match characters.next()? {
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'x' => {
                    let digits = [characters.next()?, characters.next()?];
                    u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
                }
                itself @ (b'\\' | b'\'' | b'"') => itself,
                _ => return None,
            },
            _ => byte,
        });
    }
    Some(bytes)
}
