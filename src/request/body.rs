// SPDX-License-Identifier: Apache-2.0
//! The body of a request, JSON or an HTML form, read while it comes, for the policies that need a value of it.
//!
//! A client can write a body so that weir and the upstream read different values of it. So a body counts only if all of it is one
//! JSON document of a bounded size, and a value only if it is there once. Everything else is [`Unreadable`]: it may have any
//! value. A `content-type` makes no body readable, because an upstream may not look at it, and some make one unreadable, because an
//! upstream may. Of a form, only that of its type counts.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::{Attributes, Unreadable};
use crate::body::{self, Fields, Form, HtmlForm, IdScanner, Ids, MAX_PATHS, Paths, Scanner, Value};

/// The most paths of JSON, and the most fields of forms, that all policies of a configuration have together.
pub const MAX_BODY_PATHS: usize = MAX_PATHS;

/// The prefix of a form's field among the paths: `form:user`. No path of JSON begins so. The field is unreadable if the query has a
/// parameter of its name.
pub const FIELD: &str = "form:";

/// The same for a field that the server keeps apart from the query.
pub const FIELD_APART: &str = "form apart:";

/// The prefix of a path of JSON whose value the server keeps apart from the query. Without it, the value is unreadable if the query has a
/// parameter with the name of the path's first key.
pub const JSON_APART: &str = "json apart:";

/// A path of JSON without its prefix.
#[must_use]
pub fn json(path: &str) -> &str {
    path.strip_prefix(JSON_APART).unwrap_or(path)
}

/// The name of the form's field at such a path.
#[must_use]
pub fn field(path: &str) -> Option<&str> {
    path.strip_prefix(FIELD).or_else(|| path.strip_prefix(FIELD_APART))
}

/// The values of request bodies that a configuration needs.
#[derive(Debug)]
pub struct Wanted {
    names: Vec<String>,
    paths: Rc<Paths>,
    fields: Rc<[String]>,
    /// The keys that paths of JSON begin with.
    first_keys: Rc<[String]>,
    max_bytes: usize,
    has_ids: bool,
}

impl Wanted {
    /// The values at these paths, in bodies of at most this many bytes. `None` if one is no path, or if they are too many.
    #[must_use]
    pub fn new(names: Vec<String>, max_bytes: usize) -> Option<Self> {
        let (fields, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| field(name).is_some());
        let paths = Paths::new(&names.iter().map(|name| json(name)).collect::<Vec<_>>()).ok()?.of_clients();
        let fields: BTreeSet<_> = fields.iter().filter_map(|name| field(name)).map(str::to_owned).collect();
        let first = |path| core::str::from_utf8(paths.first_key(path)?).ok().map(str::to_owned);
        let first_keys: BTreeSet<_> = (0..paths.count()).filter_map(first).collect();
        Some(Self {
            first_keys: first_keys.into_iter().collect(),
            names,
            paths: Rc::new(paths),
            fields: fields.into_iter().collect(),
            max_bytes,
            has_ids: false,
        })
    }

    /// The maximum size of a body.
    #[must_use]
    pub const fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// With the ids of calls of JSON-RPC, by which a rejection names them.
    #[must_use]
    pub fn with_ids(self, has_ids: bool) -> Self {
        Self { has_ids, ..self }
    }

    /// Returns the format as which a body with these headers is read; `None` if it is not read.
    fn kind(&self, attributes: &dyn Attributes) -> Option<Kind> {
        let [kind, coding] = ["content-type", "content-encoding"].map(|name| attributes.header(name));
        let (kind, coding) = (kind.ok()?.unwrap_or_default(), coding.ok()?.unwrap_or_default());
        if !self.fields.is_empty()
            && let Some(form) = HtmlForm::of(&kind, &coding)
        {
            return Some(Kind::Form(form));
        }
        (!self.names.is_empty() && !body::may_be_other_than_json(&kind, &coding)).then_some(Kind::Json)
    }
}

/// The body of one request, while it comes and after that. It takes at most 4 KiB, and 2 KiB for ids of JSON-RPC, however long it is; a
/// form takes at most 16 KiB.
#[derive(Debug)]
pub struct Body {
    wanted: Rc<Wanted>,
    read: Read,
}

#[derive(Debug)]
enum Read {
    /// A part of it has arrived: its reader, and the number of bytes.
    Arriving(Reader, usize),
    /// It is empty.
    Empty,
    /// All of it: this many bytes.
    Whole(Reader, usize),
    /// It is compressed, too large, or neither JSON nor a form; or it was not waited for.
    Unreadable,
}

enum Kind {
    Json,
    Form(HtmlForm),
}

#[derive(Debug)]
enum Reader {
    /// Rack takes a POST without a type for a form: then the third one looks for its pairs.
    Json(Box<Scanner>, Option<Box<IdScanner>>, Option<Box<Fields>>),
    Form(Box<Fields>),
}

impl Reader {
    fn feed(&mut self, chunk: &[u8]) {
        match self {
            Self::Json(scanner, ids, pairs) => {
                scanner.feed(chunk);
                if let Some(pairs) = pairs {
                    pairs.feed(chunk);
                }
                if let Some(ids) = ids {
                    ids.feed(chunk);
                }
            }
            Self::Form(fields) => fields.feed(chunk),
        }
    }

    fn is_wrong(&self) -> bool {
        match self {
            Self::Json(scanner, ..) => scanner.error().is_some(),
            Self::Form(fields) => fields.is_unreadable(),
        }
    }

    /// It ends here. Returns whether it can be read.
    fn end(&mut self) -> bool {
        match self {
            Self::Json(scanner, _, pairs) => {
                if let Some(pairs) = pairs {
                    pairs.end();
                }
                scanner.end().is_ok()
            }
            Self::Form(fields) => {
                fields.end();
                !fields.is_unreadable()
            }
        }
    }
}

impl Body {
    /// The body of a request with these headers, before any of it has arrived.
    #[must_use]
    pub fn new(wanted: &Rc<Wanted>, attributes: &dyn Attributes) -> Self {
        let kind = attributes.header("content-type").ok().flatten();
        let is_untyped = kind.is_none_or(|kind| kind.trim_ascii().is_empty());
        let reader = wanted.kind(attributes).map(|kind| match kind {
            Kind::Json => Reader::Json(
                Box::new(Scanner::new(Form::Json, Rc::clone(&wanted.paths))),
                wanted.has_ids.then(Box::default),
                is_untyped.then(|| Box::new(Fields::stray(Rc::clone(&wanted.first_keys)))),
            ),
            Kind::Form(form) => Reader::Form(Box::new(Fields::new(&form, Rc::clone(&wanted.fields)))),
        });
        let read = reader.map_or(Read::Unreadable, |reader| Read::Arriving(reader, 0));
        Self { wanted: Rc::clone(wanted), read }
    }

    /// A body that is not read.
    #[must_use]
    pub fn unreadable(wanted: &Rc<Wanted>) -> Self {
        Self { wanted: Rc::clone(wanted), read: Read::Unreadable }
    }

    /// All of the body of a request with these headers.
    #[must_use]
    pub fn whole(wanted: &Rc<Wanted>, attributes: &dyn Attributes, bytes: &[u8]) -> Self {
        if is_out_of_reach(wanted, attributes).unwrap_or(true) {
            return Self::unreadable(wanted);
        }
        let mut body = Self::new(wanted, attributes);
        body.feed(bytes);
        body.end();
        body
    }

    /// More of it.
    pub fn feed(&mut self, chunk: &[u8]) {
        if let Read::Arriving(reader, bytes) = &mut self.read {
            *bytes = bytes.saturating_add(chunk.len());
            if *bytes <= self.wanted.max_bytes {
                reader.feed(chunk);
            }
            if *bytes > self.wanted.max_bytes || reader.is_wrong() {
                self.read = Read::Unreadable;
            }
        }
    }

    /// It ends here.
    pub fn end(&mut self) {
        self.read = match core::mem::replace(&mut self.read, Read::Unreadable) {
            Read::Arriving(_, 0) => Read::Empty,
            Read::Arriving(mut reader, bytes) => {
                if reader.end() {
                    Read::Whole(reader, bytes)
                } else {
                    Read::Unreadable
                }
            }
            read => read,
        };
    }

    /// True if the rest of the body would not change what is read of it.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        !matches!(self.read, Read::Arriving(..))
    }

    /// The name of the parameter of the query that some servers join with the value at this path, if there is one.
    pub(super) fn joins<'b>(&'b self, path: &'b str) -> Option<&'b [u8]> {
        match &self.read {
            Read::Whole(Reader::Form(_), _) => path.strip_prefix(FIELD).map(str::as_bytes),
            Read::Whole(Reader::Json(..), _) if path == json(path) => {
                let path = self.wanted.names.iter().position(|name| name == path)?;
                self.wanted.paths.first_key(path)
            }
            _ => None,
        }
    }

    /// True if it could not be read.
    #[must_use]
    pub const fn is_unreadable(&self) -> bool {
        matches!(self.read, Read::Unreadable)
    }

    /// Its length in bytes.
    pub(super) const fn length(&self) -> Result<u64, Unreadable> {
        match &self.read {
            Read::Empty => Ok(0),
            Read::Whole(_, bytes) => Ok(*bytes as u64),
            Read::Arriving(..) | Read::Unreadable => Err(Unreadable),
        }
    }

    /// The value at a path; `None` if there is none, or if it is `null`.
    fn value(&self, path: &str) -> Result<Option<Value<'_>>, Unreadable> {
        match &self.read {
            Read::Empty => Ok(None),
            Read::Whole(reader, _) => match (reader, field(path)) {
                (Reader::Form(fields), Some(name)) => {
                    fields.only(name).map(|text| text.map(Value::Text)).map_err(|_| Unreadable)
                }
                (Reader::Json(scanner, _, pairs), None) => {
                    let path = self.wanted.names.iter().position(|name| name == path).ok_or(Unreadable)?;
                    let first =
                        self.wanted.paths.first_key(path).and_then(|key| core::str::from_utf8(key).ok());
                    if pairs.as_ref().zip(first).is_some_and(|(pairs, key)| pairs.only(key).is_err()) {
                        return Err(Unreadable);
                    }
                    scanner.only(path).map_err(|_| Unreadable)
                }
                // A form has no values of JSON, and JSON has no fields.
                _ => Err(Unreadable),
            },
            Read::Arriving(..) | Read::Unreadable => Err(Unreadable),
        }
    }

    /// The text at a path. Of a number it is the shortest one: `10` for `1e1`. Objects, arrays, texts of more than 1,024 bytes, and numbers
    /// that have no text of their own, are unreadable.
    pub(super) fn text(&self, path: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(match self.value(path)? {
            None => None,
            Some(Value::Text(text)) => Some(Cow::Borrowed(text.as_bytes())),
            Some(Value::Bool(value)) => Some(Cow::Borrowed(if value { b"true" } else { b"false" })),
            Some(Value::Number(number)) => Some(Cow::Owned(number.text().ok_or(Unreadable)?.into_bytes())),
            Some(Value::TooLong | Value::Nested) => return Err(Unreadable),
        })
    }

    /// The number at a path, in whole units, rounded up. A negative number, and what is no number, are unreadable.
    pub(super) fn number(&self, path: &str) -> Result<Option<u64>, Unreadable> {
        Ok(match self.value(path)? {
            None => None,
            Some(Value::Number(number)) => Some(number.counted().ok_or(Unreadable)?.units()),
            Some(_) => return Err(Unreadable),
        })
    }
}

impl Body {
    /// The whole number at a path, which is not 0. Every other value is unreadable.
    pub(super) fn count(&self, path: &str) -> Result<Option<u64>, Unreadable> {
        match self.value(path)? {
            None => Ok(None),
            Some(Value::Number(number)) => {
                number.whole().filter(|count| *count > 0).map(Some).ok_or(Unreadable)
            }
            Some(_) => Err(Unreadable),
        }
    }

    /// The number of calls of JSON-RPC: the items of an array; 1 for anything else.
    pub(super) fn calls(&self) -> Result<u64, Unreadable> {
        match &self.read {
            Read::Empty => Ok(1),
            Read::Whole(Reader::Json(scanner, ..), _) => Ok(scanner.items()),
            Read::Whole(Reader::Form(_), _) | Read::Arriving(..) | Read::Unreadable => Err(Unreadable),
        }
    }

    /// The ids by which a response in JSON-RPC names it. `None` if it has no id that can be named, or if no response needs it.
    #[must_use]
    pub fn json_rpc_ids(&self) -> Option<Ids> {
        match &self.read {
            Read::Whole(Reader::Json(_, Some(ids), _), _) => ids.ids(),
            _ => None,
        }
    }
}

/// True if the headers say that a body cannot be read: it is coded, of another charset, of a type that no policy reads, or too long, or the
/// stream is no exchange of a request for a response, so that a body may never end. Or the client sends it only after the upstream's `100
/// Continue`, which the upstream sends after it has the request: Envoy answers `expect` by itself, and removes it, unless it has
/// `proxy_100_continue`.
pub(super) fn is_out_of_reach(wanted: &Wanted, attributes: &dyn Attributes) -> Result<bool, Unreadable> {
    let header = |name| attributes.header(name);
    if wanted.kind(attributes).is_none() {
        return Ok(true);
    }
    let length =
        header("content-length")?.and_then(|length| core::str::from_utf8(&length).ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > wanted.max_bytes as u64) {
        return Ok(true);
    }
    Ok(header("expect")?.is_some()
        || header("upgrade")?.is_some()
        || header(":method")?.is_some_and(|method| *method == *b"CONNECT"))
}
