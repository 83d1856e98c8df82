// SPDX-License-Identifier: Apache-2.0
//! See `form` in `forms.rs`.
#![no_main]

#[path = "../forms.rs"]
#[allow(dead_code)]
mod forms;

libfuzzer_sys::fuzz_target!(|input: &[u8]| forms::form(input));
