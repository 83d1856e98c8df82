//! Stand-in for the atom until it is merged.
#![allow(missing_docs)]

use crate::limit::Limit;

/// A limit and its name in keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLimit {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub limit: Limit,
}

/// The limits checked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The limits.
    pub limits: Vec<NamedLimit>,
}
