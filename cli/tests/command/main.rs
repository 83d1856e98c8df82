// SPDX-License-Identifier: Apache-2.0
//! The command, run as an operator runs it: judged by what it prints, by its exit status, and by what it changes in Redis.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
// A large file has to be read in a time of a real clock.
#![allow(clippy::disallowed_methods)]

#[path = "../support/command.rs"]
mod command;
mod docs;
mod explain;
mod fuzz_forms;
mod general;
mod generate;
mod on_redis;
mod playground;
mod replay;
mod site;
mod spellings;
use weir_support as support;
#[path = "../support/terminal.rs"]
#[allow(dead_code)]
mod terminal;
mod transcripts;
mod versions;
