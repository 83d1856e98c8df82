// SPDX-License-Identifier: Apache-2.0
//! Values of JSON bodies and HTML forms, read while the body passes: the tokens that a response has used, the model that a request asks for.
//!
//! A [`Scanner`] takes a body in chunks that may be cut anywhere. It keeps the values at the [`Paths`] that it was made with, and
//! nothing else: at most 5 KiB for a stream, however long the body is. It reads a JSON document, an event stream (server-sent
//! events, or Amazon's) of JSON documents, or JSON lines; [`Form::of`] reads from the headers which of them a body is.
//!
//! ```
//! use std::rc::Rc;
//! use weir::body::{Form, Paths, Scanner, Value};
//!
//! let paths = Rc::new(Paths::new(&["usage.total_tokens", "model"]).unwrap());
//! let mut scanner = Scanner::new(Form::EventStream, paths);
//! scanner.feed(b"data: {\"model\": \"m-1\", \"usage\": null}\n\nda");
//! scanner.feed(b"ta: {\"usage\": {\"total_tokens\": 4");
//! scanner.feed(b"2}}\n\ndata: [DONE]\n\n");
//! assert_eq!(scanner.end(), Ok(()));
//! assert_eq!(scanner.last(1), Some(Value::Text("m-1")));
//! let Some(Value::Number(tokens)) = scanner.last(0) else { panic!() };
//! assert_eq!(tokens.counted().map(|counted| counted.units()), Some(42));
//! ```
//!
//! The two sides of an exchange are read differently. A response comes from a server that the operator trusts, and may say a
//! number many times: [`Scanner::last`] is the last number. A request comes from a client, which may write a key twice so that
//! weir and the server see different values: [`Scanner::only`] refuses to choose.

mod fields;
mod form;
mod frames;
mod json;
mod json_rpc;
mod multipart;
mod number;
mod path;
mod run;
mod scan;
mod search;
mod sse;
mod sum;
mod urlencoded;
mod values;

pub use fields::{
    Fields, begin_differently, folded, has_late_equals, has_odd_brackets, is_clear, is_taken_for,
};
pub use form::{Form, HtmlForm, may_be_other_than_json};
pub use json_rpc::{IdScanner, Ids, MAX_ID_BYTES, MAX_IDS};
pub use number::{MAX_MILLIONTHS, Millionths, Number};
pub use path::{MAX_DEPTH, MAX_GROUPED, MAX_PATH_LENGTH, MAX_PATHS, MAX_VALUES, PathError, Paths};
pub use scan::{Scanner, Unreadable};
pub use sum::{MAX_SUM, MAX_TERMS, Sum, Weight, weigh};
pub use values::{Ambiguous, MAX_TEXT, MAX_TEXTS, Value};

pub use json::MAX_NESTING;
