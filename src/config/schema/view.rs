// SPDX-License-Identifier: Apache-2.0
//! Reads an object that was checked and completed with defaults: each field as the type that it was declared with.

use core::marker::PhantomData;
use core::ptr;

use super::error::path_of;
use super::field::{
    Count, Duration, Field, Flag, List, Map, Nested, Object, Rates, Tagged, Text, Variants, Word, WordOr,
};
use super::json::Json;
use super::shape::{FieldShape, NAME, WordShape};
use super::syntax::{self, Rate};
use crate::time::Micros;

/// An object with the fields `F`, and where it stands.
pub struct View<'a, F> {
    place: Place<'a>,
    object: PhantomData<fn(F)>,
}

impl<'a, F> View<'a, F> {
    /// The whole configuration, which was checked against the shape of this object without errors: every field has a value that
    /// its kind allows, but for optional ones.
    pub const fn root(json: &'a Json, _: &'static Object<F>) -> Self {
        Self { place: Place { root: json, json }, object: PhantomData }
    }

    /// The value of a field.
    pub fn get<T: Read>(&self, field: &Field<F, T>) -> T::Value<'a> {
        field.read.read(self.place.field(&field.shape))
    }

    /// The path of the object.
    pub fn path(&self) -> String {
        self.place.path()
    }

    /// The path of a field.
    pub fn path_of<T>(&self, field: &Field<F, T>) -> String {
        self.place.path_of(field.shape.name)
    }
}

/// An object of one of several shapes, and where it stands.
pub struct Variant<'a>(Place<'a>);

impl<'a> Variant<'a> {
    /// The object as one of this shape.
    pub const fn view<F>(&self, _: &'static Object<F>) -> View<'a, F> {
        View { place: self.0, object: PhantomData }
    }

    /// Reads the object with the reader of its shape.
    pub fn read<R>(&self, variants: &'static Variants<R>) -> Option<R> {
        let tag = self.text(variants.tag);
        let mut readers = variants.shapes.iter().zip(variants.readers);
        readers.find(|(shape, _)| shape.name == tag).map(|(_, read)| read(self))
    }

    /// The object's name.
    pub fn name(&self) -> &'a str {
        self.text(NAME)
    }

    /// The path of the object's name.
    pub fn path_of_name(&self) -> String {
        self.0.path_of(NAME)
    }

    /// The path of the object.
    pub fn path(&self) -> String {
        self.0.path()
    }

    /// The value of the parameter of this name.
    pub fn parameter(&self, name: &str) -> Option<&'a Json> {
        self.0.json.get(name)
    }

    /// Its path.
    pub fn path_of(&self, name: &str) -> String {
        self.0.path_of(name)
    }

    fn text(&self, name: &str) -> &'a str {
        self.0.json.get(name).map(Json::text).unwrap_or_default()
    }
}

/// The items of a list, and where it stands.
pub struct Items<'a, T> {
    place: Place<'a>,
    read: T,
}

impl<T: Default> Default for Items<'_, T> {
    fn default() -> Self {
        Self { place: Place { root: &Json::Null, json: &Json::Null }, read: T::default() }
    }
}

impl<'a, T: Read> Items<'a, T> {
    /// The path of the list.
    pub fn path(&self) -> String {
        self.place.path()
    }

    /// The items, in order.
    pub fn iter(&self) -> impl Iterator<Item = T::Value<'a>> + use<'a, T> {
        let Self { place: Place { root, json }, read } = *self;
        json.items().iter().map(move |json| read.read(Place { root, json }))
    }
}

/// The values of an object whose names the operator chooses, and its place.
pub struct Entries<'a, T> {
    place: Place<'a>,
    read: T,
}

impl<'a, T: Read> Entries<'a, T> {
    /// The names and values, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, T::Value<'a>)> + use<'a, T> {
        let Self { place: Place { root, json }, read } = *self;
        json.fields().iter().map(move |(name, json)| (name.as_str(), read.read(Place { root, json })))
    }
}

/// A value, and the whole configuration. Its path is looked for only where something is wrong.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    root: &'a Json,
    json: &'a Json,
}

impl<'a> Place<'a> {
    /// The value of a field; `null` where the object does not have it.
    #[inline(never)]
    fn field(&self, field: &FieldShape) -> Self {
        Self { root: self.root, json: self.json.get(field.name).unwrap_or(&Json::Null) }
    }

    /// Its path.
    fn path(&self) -> String {
        path_from(self.root, self.json, &String::new).unwrap_or_default()
    }

    /// The path of the field of this name, which the object may not have.
    fn path_of(&self, name: &str) -> String {
        path_of(&self.path(), name)
    }
}

/// The path of `wanted`, which is somewhere in the value at `path`.
fn path_from(value: &Json, wanted: &Json, path: &dyn Fn() -> String) -> Option<String> {
    if ptr::eq(value, wanted) {
        return Some(path());
    }
    let mut fields = value.fields().iter();
    let mut items = value.items().iter().enumerate();
    fields.find_map(|(name, field)| path_from(field, wanted, &|| path_of(&path(), name))).or_else(|| {
        items.find_map(|(index, item)| path_from(item, wanted, &|| format!("{}[{index}]", path())))
    })
}

// The functions below are not inlined, because each would be in the binary a hundred times.

#[inline(never)]
const fn count(json: &Json) -> u64 {
    if let Json::Count(count) = json { *count } else { 0 }
}

#[inline(never)]
fn duration(json: &Json) -> Micros {
    syntax::duration(json.text()).unwrap_or_default()
}

/// The position of a word among `words`.
#[inline(never)]
fn position(words: &[WordShape], json: &Json) -> usize {
    words.iter().position(|word| word.name == json.text()).unwrap_or(usize::MAX)
}

/// A reader of a field's value. The check has seen that the value fits, so the result for any other value is never used.
pub trait Read: Copy {
    /// The type that it reads.
    type Value<'a>;

    /// Reads it.
    fn read(self, place: Place<'_>) -> Self::Value<'_>;
}

impl Read for Text {
    type Value<'a> = &'a str;

    fn read(self, place: Place<'_>) -> &str {
        place.json.text()
    }
}

impl Read for Rates {
    type Value<'a> = Rate;

    fn read(self, place: Place<'_>) -> Rate {
        syntax::rate(place.json.text()).unwrap_or_default()
    }
}

impl Read for Flag {
    type Value<'a> = bool;

    fn read(self, place: Place<'_>) -> bool {
        matches!(place.json, Json::Flag(true))
    }
}

impl<N: TryFrom<u64> + Default> Read for Count<N> {
    type Value<'a> = N;

    fn read(self, place: Place<'_>) -> N {
        N::try_from(count(place.json)).unwrap_or_default()
    }
}

impl Read for Duration {
    type Value<'a> = Micros;

    fn read(self, place: Place<'_>) -> Micros {
        duration(place.json)
    }
}

impl<E: Copy> Read for Word<E> {
    type Value<'a> = E;

    fn read(self, place: Place<'_>) -> E {
        let Self(words) = self;
        words.values.get(position(words.words, place.json)).copied().unwrap_or(words.first)
    }
}

impl<T: Read + 'static> Read for List<T> {
    type Value<'a> = Items<'a, T>;

    fn read(self, place: Place<'_>) -> Items<'_, T> {
        Items { place, read: self.0 }
    }
}

impl<T: Read + 'static> Read for Map<T> {
    type Value<'a> = Entries<'a, T>;

    fn read(self, place: Place<'_>) -> Entries<'_, T> {
        Entries { place, read: self.0 }
    }
}

impl<F: 'static> Read for Nested<F> {
    type Value<'a> = View<'a, F>;

    fn read(self, place: Place<'_>) -> View<'_, F> {
        View { place, object: PhantomData }
    }
}

impl<F: 'static> Read for WordOr<F> {
    type Value<'a> = Option<View<'a, F>>;

    fn read(self, place: Place<'_>) -> Option<View<'_, F>> {
        let is_object = matches!(place.json, Json::Object(_));
        is_object.then_some(View { place, object: PhantomData })
    }
}

impl Read for Tagged {
    type Value<'a> = Variant<'a>;

    fn read(self, place: Place<'_>) -> Variant<'_> {
        Variant(place)
    }
}

/// A field that an object may not have: `null` is never a value.
impl<T: Read> Read for Option<T> {
    type Value<'a> = Option<T::Value<'a>>;

    fn read(self, place: Place<'_>) -> Option<T::Value<'_>> {
        if matches!(place.json, Json::Null) { None } else { self.map(|read| read.read(place)) }
    }
}
