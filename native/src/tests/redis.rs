// SPDX-License-Identifier: Apache-2.0
//! The answers of Redis: subjects whose name begins with `denied` have no unit left, all others have an unlimited number.

use weir_core::resp::{self, Reply};

use crate::now;

/// The replies to these commands.
pub fn replies(mut commands: &[u8]) -> Vec<u8> {
    let mut replies = Vec::new();
    while let Some((command, length)) = resp::decode(commands).expect("RESP") {
        let Reply::Array(Some(words)) = command else { panic!("a command") };
        let words: Vec<Vec<u8>> = words
            .iter()
            .map(|word| match word {
                Reply::Bulk(Some(bytes)) => bytes.to_vec(),
                other => panic!("a word: {other:?}"),
            })
            .collect();
        reply(&words, &mut replies);
        commands = &commands[length..];
    }
    assert!(commands.is_empty(), "whole commands");
    replies
}

fn reply(words: &[Vec<u8>], out: &mut Vec<u8>) {
    match words[0].as_slice() {
        b"TIME" => out.extend_from_slice(b"*2\r\n$1\r\n1\r\n$1\r\n1\r\n"),
        b"EVALSHA" | b"EVAL" => {
            let [_, _, count, key, .., question] = words else { panic!("{} words", words.len()) };
            assert_eq!(count, b"1", "a key");
            answer(key, number(question, 8), out);
        }
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// An answer to a check of this many requests.
fn answer(key: &[u8], requests: u64, out: &mut Vec<u8>) {
    const DAY: u64 = 86_400_000_000;
    let is_denied = String::from_utf8_lossy(key).contains("|denied");
    let (denied, granted) = ([0, now().0, 0, !DAY, DAY, 0, 0], [requests, now().0, 9, DAY]);
    let numbers = if is_denied { &denied[..] } else { &granted };
    resp::bulk(out, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>());
}
