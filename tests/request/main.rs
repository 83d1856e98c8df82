// SPDX-License-Identifier: Apache-2.0
//! How a request is read: its path, the address of its client, and that reading it makes bounded work.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[path = "../support/table.rs"]
mod table;

mod address;
mod effort;
mod path;
