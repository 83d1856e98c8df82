// SPDX-License-Identifier: Apache-2.0
//! Each target of Cargo.toml that has this path: the form of its name in `forms.rs`.
#![no_main]

mod forms;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let named = forms::FORMS.iter().find(|(name, _)| *name == env!("CARGO_BIN_NAME"));
    let (_, form) = named.expect("a form of this name");
    form(input);
});
