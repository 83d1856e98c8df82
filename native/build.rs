// SPDX-License-Identifier: Apache-2.0
//! Marks the library so that the linker never unloads it: its threads outlive a configuration, also where `do_not_close` is missing.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
