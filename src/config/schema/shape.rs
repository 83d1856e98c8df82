// SPDX-License-Identifier: Apache-2.0
//! Shapes: what a configuration may look like, as data. The check, `weir.schema.json` and the field reference in
//! `docs/configuration.md` all use the same shapes, so none of them can disagree with another.

use core::slice;

use crate::time::Micros;

/// An object with named fields.
pub struct Shape {
    /// The name of the object in the reference and in the schema's definitions.
    pub name: &'static str,
    /// Its purpose.
    pub doc: Doc,
    /// The fields it may have, and no others.
    pub fields: &'static [&'static FieldShape],
    /// Fields that exclude each other.
    pub choice: Choice,
}

/// The fields of a [`Shape`] that exclude each other.
pub enum Choice {
    /// No fields exclude each other.
    Free,
    /// Exactly one of these is given.
    ExactlyOne(&'static [&'static FieldShape]),
    /// At most one of these is given.
    AtMostOne(&'static [&'static FieldShape]),
}

/// One field of a [`Shape`].
pub struct FieldShape {
    /// Its name in the JSON.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The rule for a missing field.
    pub need: Need,
    /// Its meaning.
    pub doc: Doc,
}

/// The rule for a missing field.
#[derive(Clone, Copy)]
pub enum Need {
    /// A missing field is an error.
    Required,
    /// The object does not have it.
    Optional,
    /// It has this value, written in JSON.
    Default(&'static str),
}

/// The value of a field or a list item.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number from the first to the second bound, both allowed.
    Count(u64, u64),
    /// A duration from the first to the second bound, both allowed.
    Duration(Micros, Micros),
    /// A string with a syntax of its own.
    Text(&'static Syntax),
    /// One of these words.
    Word(&'static [WordShape]),
    /// A list, with the smallest and the largest number of its items. Items that have a [`NAME`] have different ones.
    List(&'static Kind, usize, usize),
    /// An object whose names the operator chooses, with the smallest and the largest number of its values.
    Map(&'static Kind, usize, usize),
    /// An object.
    Object(&'static Shape),
    /// An object whose shape is named by the value of this field.
    Tagged(&'static str, &'static [&'static Shape]),
    /// This word, or an object.
    WordOr(&'static WordShape, &'static Shape),
}

impl Kind {
    /// The words that it allows.
    pub const fn words(&self) -> &'static [WordShape] {
        match *self {
            Self::Word(words) => words,
            Self::WordOr(word, _) => slice::from_ref(word),
            _ => &[],
        }
    }
}

/// The field by which errors and messages tell the items of a list from each other.
pub const NAME: &str = "name";

/// A word that a field may hold.
pub struct WordShape {
    /// The word.
    pub name: &'static str,
    /// Its meaning.
    pub doc: Doc,
}

/// The syntax of a string.
pub struct Syntax {
    /// The name of such a string in the schema's definitions.
    pub name: &'static str,
    /// A description of the allowed strings.
    pub allowed: &'static str,
    /// The same as a regular expression, as far as one can say it; empty where none can.
    pub pattern: &'static str,
    /// The largest length, in bytes.
    pub max: usize,
    /// Numbers from and to these are read as their digits, if these follow the syntax.
    pub number: Option<(u64, u64)>,
    /// Checks that a string follows the syntax.
    pub check: fn(&str) -> Result<(), Mismatch>,
}

/// A string that does not follow its [`Syntax`].
#[derive(Debug, Default)]
pub struct Mismatch {
    /// A further detail of the error, beside the allowed values.
    pub detail: Option<String>,
    /// The nearest string that follows the syntax.
    pub nearest: Option<String>,
}

/// Text for readers of the reference and of the schema. The filter never shows it, so it is left out of the wasm.
#[derive(Clone, Copy)]
pub struct Doc {
    #[cfg(not(target_family = "wasm"))]
    text: &'static str,
}

impl Doc {
    /// A documentation text.
    #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "it is left out"))]
    pub const fn new(text: &'static str) -> Self {
        Self {
            #[cfg(not(target_family = "wasm"))]
            text,
        }
    }

    /// The text; empty in wasm.
    pub const fn text(self) -> &'static str {
        #[cfg(not(target_family = "wasm"))]
        return self.text;
        #[cfg(target_family = "wasm")]
        ""
    }
}
