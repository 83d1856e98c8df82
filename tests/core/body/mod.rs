// SPDX-License-Identifier: Apache-2.0
//! The reader of bodies: JSON, event streams and JSON lines, cut anywhere, and the sums of their numbers.

mod events;
mod forms;
mod frames;
mod json;
mod json_rpc;
mod numbers;
mod paths;
#[cfg(not(target_arch = "wasm32"))]
mod properties;
mod providers;
mod sums;

use std::rc::Rc;

use weir::body::{Form, Paths, Scanner, Unreadable, Value};

/// A scanner that has read the whole body in these chunks, and what `end` has returned.
fn read<'a>(
    form: Form,
    paths: &Rc<Paths>,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Scanner, Result<(), Unreadable>) {
    let mut scanner = Scanner::new(form, Rc::clone(paths));
    chunks.into_iter().for_each(|chunk| scanner.feed(chunk));
    let end = scanner.end();
    (scanner, end)
}

/// The end of the body, and the last value at each path: `ok: 5 "x" -`. In a JSON document, a value that is not the only one has a `?`
/// before it.
fn found(form: Form, paths: &[&str], body: &[u8]) -> String {
    let paths = Rc::new(Paths::new(paths).unwrap());
    let show = |(scanner, end)| shown(&scanner, form, paths.count(), end);
    let whole = show(read(form, &paths, [body]));
    for size in [1, 2, 3, 7] {
        assert_eq!(show(read(form, &paths, body.chunks(size))), whole, "in chunks of {size}");
    }
    whole
}

fn shown(scanner: &Scanner, form: Form, paths: usize, end: Result<(), Unreadable>) -> String {
    let mut text = match end {
        Ok(()) => "ok:",
        Err(Unreadable::NotJson) => "not JSON:",
        Err(Unreadable::TooDeep) => "too deep:",
        Err(Unreadable::NotFrames) => "no frames:",
    }
    .to_owned();
    for path in 0..paths {
        text.push(' ');
        if form == Form::Json && scanner.only(path).is_err() {
            text.push('?');
        }
        text.push_str(&scanner.last(path).map_or("-".to_owned(), show));
    }
    text
}

fn show(value: Value<'_>) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => {
            let minus = if number.counted().is_none() { "-" } else { "" };
            format!("{minus}{}", decimal(number.magnitude().get()))
        }
        Value::Text(text) => format!("{text:?}"),
        Value::TooLong => "too-long".to_owned(),
        Value::Nested => "nested".to_owned(),
    }
}

/// Millionths as a decimal number.
fn decimal(millionths: u64) -> String {
    let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
