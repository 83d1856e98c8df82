// SPDX-License-Identifier: Apache-2.0
//! See `trace` in `command.rs`.
#![no_main]

#[path = "../command.rs"]
#[allow(dead_code)]
mod command;

/// A form, and the name of its folder of seeds and of its cargo-fuzz target.
type Form = (&'static str, fn(&[u8]));

libfuzzer_sys::fuzz_target!(|input: &[u8]| command::trace(input));
