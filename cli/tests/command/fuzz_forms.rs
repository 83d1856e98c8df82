// SPDX-License-Identifier: Apache-2.0
//! The short form of `make fuzz` for what the command reads from others: each seed, cut and changed in some places.

use crate::support::{is_full, root};

/// A form, and the name of its file of seeds and of its cargo-fuzz target.
type Form = (&'static str, fn(&[u8]));

#[path = "../../../fuzz/command.rs"]
mod forms;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn forms_hold_for_seeds_and_what_is_near_them() {
    // In so many places a seed is cut, and a byte of it is changed.
    let places = if is_full() { 3 } else { 1 };
    let mut tried = 0;
    for (name, form) in forms::FORMS {
        for seed in seeds::read(&root().join(format!("fuzz/seeds/{name}.txt"))) {
            form(&seed);
            for place in (1..=places).map(|part| seed.len() * part / (places + 1)) {
                form(&seed[..place]);
                for byte in [b'\n', b'{', b'"', 0xff] {
                    let mut changed = seed.clone();
                    changed[place] = byte;
                    form(&changed);
                }
                tried += 5;
            }
        }
    }
    assert!(tried > 1_000, "{tried} inputs");
}
