// SPDX-License-Identifier: Apache-2.0
//! A body while it passes.

use std::rc::Rc;

use super::form::Form;
use super::frames;
use super::json::Document;
use super::path::Paths;
use super::run;
use super::search::{Hits, Search, Separator};
use super::sse::{Framing, Piece};
use super::values::{Ambiguous, Value, Values};

/// The reason for which a body, or a document in it, cannot be read to its end. Values found before remain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It is no JSON (RFC 8259), or it is cut off. Also: a surrogate alone, which is no character; a byte order mark.
    NotJson,
    /// Objects and arrays nest deeper than [`MAX_NESTING`](super::MAX_NESTING).
    TooDeep,
    /// A message of a [`Form::Frames`] has lengths that none has.
    NotFrames,
}

/// Reads one body, in chunks that may be cut anywhere, and keeps the values at some paths.
///
/// In an event stream, in JSON lines and in frames, each event, line or payload is a document of its own, and all of them share the values.
/// The values in a document before an error count, and the documents after it are read. Most documents are not read at all: those that do
/// not have the last key of any path.
#[derive(Debug)]
pub struct Scanner {
    paths: Rc<Paths>,
    document: Document,
    values: Values,
    stream: Stream,
    /// The lines or payloads that have a document. Events count themselves.
    documents: u64,
    /// The beginning of a document that the last chunk has cut, if it is short and has shown nothing wanted: it is read only if its rest
    /// does.
    cut: Vec<u8>,
}

/// The most bytes of a cut document that are kept.
const MAX_CUT: usize = 512;

#[derive(Debug)]
enum Stream {
    /// One document.
    Json,
    /// A document in each event.
    Events { framing: Framing, done: Done, is_over: bool },
    /// A document in each line.
    Lines,
    /// A document in each payload.
    Frames(frames::Framing),
}

/// The part of the text `[DONE]` that the event's data has matched so far. It ends streams of OpenAI, and it is no JSON.
#[derive(Clone, Copy, Debug)]
enum Done {
    /// This number of bytes, and the data has no others.
    Begun(usize),
    /// All of it.
    Whole,
    /// The data begins with something else.
    Other,
}

const DONE: &[u8] = b"[DONE]";

impl Done {
    fn feed(&mut self, data: &[u8]) {
        if let Self::Begun(read) = *self {
            let expected = DONE.get(read..).unwrap_or_default();
            *self = if data.starts_with(expected) {
                Self::Whole
            } else if expected.starts_with(data) {
                Self::Begun(read + data.len())
            } else {
                Self::Other
            };
        }
    }
}

impl Scanner {
    /// A scanner at the beginning of a body of this form.
    #[must_use]
    pub fn new(form: Form, paths: Rc<Paths>) -> Self {
        let stream = match form {
            Form::Json => Stream::Json,
            Form::EventStream => {
                Stream::Events { framing: Framing::new(), done: Done::Begun(0), is_over: false }
            }
            Form::JsonLines => Stream::Lines,
            Form::Frames => Stream::Frames(frames::Framing::default()),
        };
        Self {
            document: Document::new(&paths),
            values: Values::default(),
            stream,
            documents: 0,
            cut: Vec::new(),
            paths,
        }
    }

    /// More of the body.
    pub fn feed(&mut self, chunk: &[u8]) {
        let separator = match self.stream {
            Stream::Json | Stream::Frames(_) => None,
            Stream::Events { .. } => Some(Separator::EmptyLine),
            Stream::Lines => Some(Separator::Line),
        };
        let paths = Rc::clone(&self.paths);
        let (Some(separator), Some(search)) = (separator, paths.search()) else { return self.read(chunk) };
        let mut chunk = chunk;
        if !self.cut.is_empty() {
            let (rest, after) = chunk.split_at(separator.first(chunk));
            let mut document = core::mem::take(&mut self.cut);
            document.extend_from_slice(rest);
            self.read_wanted(separator, search, &document);
            chunk = after;
        }
        self.read_wanted(separator, search, chunk);
    }

    /// Reads the documents of a chunk that have something wanted, and passes over the others.
    #[inline(never)]
    fn read_wanted(&mut self, separator: Separator, search: &Search, chunk: &[u8]) {
        let is_counted = self.paths.is_grouped();
        let (mut hits, mut at) = (Hits::new(search, chunk), 0);
        while at < chunk.len() {
            if self.is_between_documents() {
                let wanted = hits.first(at);
                let unwanted = separator.last(chunk.get(at..wanted).unwrap_or_default());
                let skipped = chunk.get(at..at + unwanted).unwrap_or_default();
                match &mut self.stream {
                    Stream::Events { framing, is_over, .. } if unwanted > 0 => {
                        // Only `usage` needs the count, and counting takes longer than to skip.
                        framing.skip(if is_counted { skipped } else { &[] });
                        *is_over |= ends_with_done(skipped);
                    }
                    Stream::Lines if is_counted => {
                        let mut rest = skipped;
                        while !rest.is_empty() {
                            let (line, after) = rest.split_at(separator.first(rest));
                            self.documents += u64::from(!line.trim_ascii().is_empty());
                            rest = after;
                        }
                    }
                    _ => {}
                }
                at += unwanted;
                let rest = chunk.get(at..).unwrap_or_default();
                if wanted == chunk.len() && rest.len() <= MAX_CUT {
                    self.cut.extend_from_slice(rest);
                    return;
                }
            }
            let rest = chunk.get(at..).unwrap_or_default();
            let document = separator.first(rest);
            self.read(rest.get(..document).unwrap_or_default());
            at += document;
        }
    }

    /// True if no byte of the next document has been read, so that it may be skipped.
    fn is_between_documents(&self) -> bool {
        self.document.is_blank()
            && match &self.stream {
                Stream::Json | Stream::Frames(_) => false,
                Stream::Events { framing, .. } => framing.is_between_events(),
                Stream::Lines => true,
            }
    }

    /// Reads more of the body.
    fn read(&mut self, chunk: &[u8]) {
        let Self { paths, document, values, stream, documents, .. } = self;
        match stream {
            Stream::Json => document.feed(paths, values, chunk),
            Stream::Events { framing, done, is_over } => framing.feed(chunk, |piece| match piece {
                Piece::Data(data) => {
                    done.feed(data);
                    document.feed(paths, values, data);
                }
                Piece::End => *is_over |= end_event(paths, document, values, done),
            }),
            Stream::Frames(framing) => framing.feed(chunk, |piece| match piece {
                frames::Piece::Whole(data) => {
                    *documents += 1;
                    if paths.search().is_none_or(|search| search.finds(data)) {
                        document.feed(paths, values, data);
                        end_document(paths, document, values);
                    }
                }
                frames::Piece::Data(data) => document.feed(paths, values, data),
                frames::Piece::End => {
                    *documents += 1;
                    end_document(paths, document, values);
                }
            }),
            Stream::Lines => {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let (line, after) = rest.split_at(run::of_line(rest));
                    document.feed(paths, values, line);
                    rest = after;
                    if let Some((&byte, after)) = rest.split_first() {
                        // A CR is white space of JSON.
                        if byte == b'\n' {
                            *documents += u64::from(!document.is_blank());
                            end_document(paths, document, values);
                        } else {
                            document.feed(paths, values, b"\r");
                        }
                        rest = after;
                    }
                }
            }
        }
    }

    /// The body ends here.
    ///
    /// # Errors
    /// [`Unreadable`] if a body of [`Form::Json`] or the messages of [`Form::Frames`] are. The other forms may have any number of documents,
    /// also unreadable ones.
    pub fn end(&mut self) -> Result<(), Unreadable> {
        let cut = core::mem::take(&mut self.cut);
        self.read(&cut);
        let Self { paths, document, values, stream, .. } = self;
        match stream {
            Stream::Json => {
                let end = document.end(values);
                values.end_document(end.is_ok(), document.is_array());
                return end;
            }
            Stream::Events { framing, done, is_over } => framing.end(|piece| {
                if piece == Piece::End {
                    *is_over |= end_event(paths, document, values, done);
                }
            }),
            Stream::Lines => end_document(paths, document, values),
            Stream::Frames(_) => {
                end_document(paths, document, values);
                return self.error().map_or(Ok(()), Err);
            }
        }
        Ok(())
    }

    /// The reason for which a body of [`Form::Json`] or [`Form::Frames`] is unreadable, as far as is known now. After that, nothing more is
    /// found in it.
    #[must_use]
    pub fn error(&self) -> Option<Unreadable> {
        match &self.stream {
            Stream::Json => self.document.failed(),
            Stream::Frames(framing) => framing.is_lost.then_some(Unreadable::NotFrames),
            Stream::Events { .. } | Stream::Lines => None,
        }
    }

    /// The number of items in the outermost array of a body of [`Form::Json`] that has ended. It is 1 for an empty array, and for a body
    /// that is no array.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.document.items()
    }

    /// The number of documents that have ended in a stream: lines of data in an event stream, also `[DONE]`. 0 for a body of [`Form::Json`],
    /// and for a table of [`Paths::new`].
    #[must_use]
    pub fn documents(&self) -> u64 {
        match &self.stream {
            _ if !self.paths.is_grouped() => 0,
            Stream::Events { framing, .. } => framing.lines,
            Stream::Json | Stream::Lines | Stream::Frames(_) => self.documents,
        }
    }

    /// The last number so far at a path that is not negative; the last value where there is none. The path is given by its number in
    /// [`Paths`]. `null` is no value.
    #[must_use]
    pub fn last(&self, path: usize) -> Option<Value<'_>> {
        self.values.get(path)
    }

    /// True if the newest document with a number also has a value at this path. If that document is cut off, weir cannot know, and this is
    /// false.
    #[must_use]
    pub fn is_beside_last(&self, path: usize) -> bool {
        self.values.is_in_counting(path)
    }

    /// True if each number so far is the last one at its path, in one JSON document: the document has ended, or the body is whole and no
    /// array.
    #[must_use]
    pub const fn is_final(&self, is_whole: bool) -> bool {
        matches!(self.stream, Stream::Json)
            && (self.document.is_done() || is_whole && !self.document.is_array())
    }

    /// True if the body says that it has ended: by the end of its JSON document, or as streams of OpenAI do.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        match &self.stream {
            Stream::Json => self.document.is_done(),
            Stream::Events { is_over, .. } => *is_over,
            Stream::Lines | Stream::Frames(_) => false,
        }
    }

    /// The only value so far at a path, given by its number in [`Paths`]. `null` is no value.
    ///
    /// Only for tables of [`Paths::new`] and bodies of [`Form::Json`]. In the other forms, this may miss a key that occurs twice in a
    /// document without a value.
    ///
    /// # Errors
    /// [`Ambiguous`] if there are several, if a key on the way to it occurs twice in one object, however it is spelled, or if it has a zero
    /// character. In a table [of clients](Paths::of_clients) also if some servers take another key for one on the way to it: one in another
    /// case, or with a zero character behind it.
    pub fn only(&self, path: usize) -> Result<Option<Value<'_>>, Ambiguous> {
        if self.values.is_ambiguous(path) { Err(Ambiguous) } else { Ok(self.last(path)) }
    }
}

/// True if nothing but white space follows the text `[DONE]`. The white space may be long.
fn ends_with_done(text: &[u8]) -> bool {
    let end = run::last(b']', text).map_or(0, |last| last + 1);
    text.split_at_checked(end)
        .is_some_and(|(text, space)| text.ends_with(DONE) && space.iter().all(u8::is_ascii_whitespace))
}

/// Returns whether the stream says that it has ended.
fn end_event(paths: &Paths, document: &mut Document, values: &mut Values, done: &mut Done) -> bool {
    match core::mem::replace(done, Done::Begun(0)) {
        Done::Whole => {
            document.restart(paths);
            true
        }
        Done::Begun(_) | Done::Other => {
            end_document(paths, document, values);
            false
        }
    }
}

/// A document that is blank is none: a line may be empty, and servers send events without data as a sign of life.
fn end_document(paths: &Paths, document: &mut Document, values: &mut Values) {
    if document.is_blank() {
        return;
    }
    // Values found before an error count.
    let end = document.end(values);
    values.end_document(end.is_ok(), false);
    document.restart(paths);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{MAX_PATHS, MAX_TEXT};

    #[test]
    fn a_document_that_the_end_cuts_counts() {
        let paths = Rc::new(Paths::grouped(&[(0, "usage.tokens")], &["okens"]).unwrap());
        for (stream, documents, is_done) in [
            ("data: {\"a\": 1}\n\ndata: {\"a\"", 2, false),
            ("data: {\"a\": 1}\n\ndata: [DONE]", 2, true),
            ("data: {\"a\": 1}\n\nevent: b", 1, false),
        ] {
            for size in 1..stream.len() {
                let mut scanner = Scanner::new(Form::EventStream, Rc::clone(&paths));
                stream.as_bytes().chunks(size).for_each(|chunk| scanner.feed(chunk));
                assert_eq!(scanner.end(), Ok(()));
                assert_eq!(
                    (scanner.documents(), scanner.is_done()),
                    (documents, is_done),
                    "{stream}, {size}"
                );
            }
        }
    }

    #[test]
    fn a_scanner_takes_at_most_5_kib() {
        let names: Vec<String> = (0..MAX_PATHS).map(|path| format!("k{path}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut scanner = Scanner::new(Form::EventStream, Rc::new(Paths::new(&names).unwrap()));
        let mut most = 0;
        for round in 0..1000 {
            let key = names[round * 7 % MAX_PATHS];
            let (text, cut) = ("x".repeat(round * 37 % (MAX_TEXT + 2)), " ".repeat(500));
            scanner.feed(format!("}}\n\ndata: {{\"{key}\": \"{text}\"}}\n\ndata: {{{cut}").as_bytes());
            most = most.max(size_of::<Scanner>() + scanner.values.capacity() + scanner.cut.capacity());
        }
        assert_eq!(scanner.end(), Ok(()));
        assert!(scanner.values.capacity() > MAX_TEXT);
        assert!(most <= 5 * 1024, "{most} bytes");
    }
}
