// SPDX-License-Identifier: Apache-2.0
//! Each target of Cargo.toml that has this path: the form of its name in `command.rs`.
#![no_main]

mod command;

/// A form, and the name of its file of seeds and of its cargo-fuzz target.
type Form = (&'static str, fn(&[u8]));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let named = command::FORMS.iter().find(|(name, _)| *name == env!("CARGO_BIN_NAME"));
    let (_, form) = named.expect("a form of this name");
    form(input);
});
