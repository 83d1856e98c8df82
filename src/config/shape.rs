//! Shapes: what a configuration may look like, as data. `language.rs` states weir's configuration in them, once;
//! validation, `weir.schema.json` and the field reference in `docs/configuration.md` are all read off it.

use crate::time::Micros;

/// An object with named fields.
pub struct Shape {
    /// What the object is called in the reference and in the schema's definitions.
    pub name: &'static str,
    /// What it is for.
    pub doc: Doc,
    /// The fields it may have, and no others.
    pub fields: &'static [Field],
    /// Fields that exclude each other.
    pub choice: Choice,
}

/// Which fields of a [`Shape`] exclude each other.
pub enum Choice {
    /// None do.
    Free,
    /// Exactly one of these is given.
    One(&'static [&'static str]),
    /// At most one of these is given.
    AtMostOne(&'static [&'static str]),
}

/// One field of a [`Shape`].
pub struct Field {
    /// Its name in the JSON.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What happens when it is not given.
    pub need: Need,
    /// What it means.
    pub doc: Doc,
}

/// What happens when a field is not given.
pub enum Need {
    /// That is an error.
    Required,
    /// It stays absent.
    Optional,
    /// It has this value, written in JSON.
    Default(&'static str),
}

/// What a field or a list item holds.
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number from the first to the second bound, both allowed.
    Count(u64, u64),
    /// A duration from the first to the second bound, both allowed.
    Span(Micros, Micros),
    /// A string with a syntax of its own.
    Text(&'static Syntax),
    /// One of these words.
    Word(&'static [Word]),
    /// A list of so many to so many items; items with a `name` have different ones.
    List(&'static Kind, usize, usize),
    /// An object whose names the operator chooses, with so many to so many values.
    Map(&'static Kind, usize, usize),
    /// An object.
    Object(&'static Shape),
    /// An object whose other fields are told by the word in this field: the shape of that name.
    Tagged(&'static str, &'static [&'static Shape]),
}

/// A word that a field may hold.
pub struct Word {
    /// The word.
    pub name: &'static str,
    /// What it means.
    pub doc: Doc,
}

/// What a string must look like.
pub struct Syntax {
    /// What such a string is called in the schema's definitions.
    pub name: &'static str,
    /// What is allowed, in words.
    pub allowed: &'static str,
    /// The same as a regular expression, as far as one can say it; empty where it says nothing.
    pub pattern: &'static str,
    /// At most so many bytes.
    pub max: usize,
    /// Whether a string is one; when not, perhaps the nearest one that is.
    pub check: fn(&str) -> Result<(), Wrong>,
}

/// A string that does not follow its [`Syntax`].
#[derive(Debug, Default)]
pub struct Wrong {
    /// What exactly is wrong, where there is more to say than what is allowed.
    pub detail: Option<String>,
    /// What was probably meant.
    pub nearest: Option<String>,
}

/// Text for readers of the reference and the schema. The filter has no reader: it is left out of the wasm.
#[derive(Clone, Copy)]
pub struct Doc(&'static str);

/// A [`Doc`].
#[must_use]
pub const fn doc(text: &'static str) -> Doc {
    Doc(if cfg!(target_family = "wasm") { "" } else { text })
}

impl Doc {
    /// The text; empty in wasm.
    #[must_use]
    pub const fn text(&self) -> &'static str {
        self.0
    }
}
