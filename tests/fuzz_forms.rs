// SPDX-License-Identifier: Apache-2.0
//! A million inputs that are never sent in practice, in the short form of fuzzing: the forms of `fuzz/forms.rs`, on mutations of the seeds
//! that `cargo fuzz` begins with. The same inputs every time; an input that a longer search finds becomes a seed. A failure prints an input
//! as the line of that seed.
//!
//! No form may panic, and none may allocate more than [`MEMORY`] for an input of at most a few kilobytes. A worker may not either, with any
//! number of subjects.
#![cfg(not(target_arch = "wasm32"))]
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#![allow(clippy::disallowed_methods)]

#[path = "../fuzz/forms.rs"]
mod forms;
#[path = "../fuzz/seeds.rs"]
mod seeds;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use forms::{Dice, FORMS};
use libtest_mimic::{Arguments, Failed, Trial};
use peak_alloc::PeakAlloc;
use weir::config::Config;
use weir::engine::{Action, Engine, Submitted};
use weir::policy::Check;
use weir::resp;
use weir::time::Micros;
use weir_support::sized;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The number of inputs for each form under `make nightly`; those that are slow to read get fewer.
const INPUTS: &[(&str, usize)] = &[
    ("resp", 400_000),
    ("bridge", 60_000),
    ("config", 40_000),
    ("address", 300_000),
    ("pairs", 200_000),
    ("body", 40_000),
    ("form", 150_000),
];

/// The longest input, in bytes: longer ones are cut.
const LONGEST: usize = 4_096;

/// The memory that all of them together may hold at any time, in bytes, over what they began with. Nearly all of it is the denials that a
/// worker remembers; without a bound on their number the flood would need 100 MB.
const MEMORY: usize = 48 * 1024 * 1024;

/// The number of subjects of the flood: three times as many as a worker remembers.
const SUBJECTS: u32 = 196_608;

fn main() -> ExitCode {
    let trial = |name: &'static str, run: Box<dyn FnOnce() -> Result<usize, Failed> + Send>| {
        Trial::test(name, move || {
            let (began, before) = (Instant::now(), ALLOCATED.current_usage());
            let inputs = run()?;
            let held = ALLOCATED.peak_usage().saturating_sub(before);
            println!("{name}: {inputs} inputs in {:?}, {held} bytes held at most", began.elapsed());
            if held > MEMORY { Err(format!("that is more than {MEMORY} bytes").into()) } else { Ok(()) }
        })
    };
    let mut trials: Vec<_> =
        FORMS.iter().map(|&(name, form)| trial(name, Box::new(move || attack(name, form)))).collect();
    trials.push(trial("a flood of subjects", Box::new(flood)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn attack(name: &str, form: fn(&[u8])) -> Result<usize, Failed> {
    let (_, inputs) = INPUTS.iter().find(|(form, _)| *form == name).ok_or("no number of inputs")?;
    let inputs = sized(*inputs);
    let seeds = seeds::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/seeds/{name}.txt")));
    assert!(!seeds.is_empty(), "no seeds for {name}");
    let mut dice = Dice::new(0x5eed);
    for number in 0..inputs {
        let input = seeds.get(number).cloned().unwrap_or_else(|| mutant(&seeds, &mut dice));
        if catch_unwind(|| form(&input)).is_err() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
            fs::write(&file, &input)?;
            return Err(format!("input {number}, in {}: {}", file.display(), input.escape_ascii()).into());
        }
    }
    Ok(inputs)
}

/// New subjects, each denied for a day: a worker remembers its bound of them, and forgets the rest.
fn flood() -> Result<usize, Failed> {
    let policy = r#"{"policies": [{"name": "p", "subject": [{"header": {"name": "x"}}], "limits":
        [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}]}]}"#;
    let config = Rc::new(Config::parse(policy.as_bytes()).map_err(|errors| format!("{errors:?}"))?);
    let mut engine = Engine::new(config, 7);
    let (now, day) = (Micros::from_secs(1_700_000_000), Micros::from_secs(86_400));
    let denied = [0, now.0, 0, !day.0, day.0, 0, 0].map(u64::to_le_bytes).concat();
    let mut denial = Vec::new();
    resp::bulk(&mut denial, &denied);
    for subject in 0..SUBJECTS {
        let check = Check::one(0, format!("{{p|{subject:0128}}}"));
        if let Submitted::Decided(action) = engine.submit(subject, [check].into_iter().collect(), now) {
            return Err(format!("subject {subject} is known already: {action:?}").into());
        }
        if (subject + 1) % 256 == 0 {
            let asked = engine.counters().commands;
            let batch = engine.next_batch(now).ok_or("no batch")?;
            let replies = usize::try_from(engine.counters().commands - asked)?;
            engine.replied(batch.id, &denial.repeat(replies), now);
            while let Some(release) = engine.next_release() {
                assert!(matches!(release.action, Action::Reject(_)), "{release:?}");
                engine.closed(release.stream, now);
            }
        }
    }
    Ok(SUBJECTS as usize)
}

/// Bytes that mean something to one reader or another.
const TELLING: &[u8] = b"\r\n$*:+-09,;=&%\\/.\"{}[]\0\xfe\xff";

/// One of the seeds, or some bytes, changed in a few places.
fn mutant(seeds: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let bytes = |dice: &mut Dice, most: usize| -> Vec<u8> {
        (0..dice.below(most)).map(|_| u8::try_from(dice.below(256)).unwrap_or(0)).collect()
    };
    let mut input =
        if dice.below(16) == 0 { bytes(dice, 64) } else { seeds[dice.below(seeds.len())].clone() };
    // One change most often: what is wrong everywhere is refused at once, and teaches little.
    for _ in 0..=dice.below(4) * dice.below(3) {
        let (from, to) = (dice.below(input.len() + 1), dice.below(input.len() + 1));
        let (from, to) = (from.min(to), from.max(to));
        let short = to.min(from + 8);
        match dice.below(12) {
            0 => drop(input.drain(from..short)),
            1 => drop(input.splice(from..from, bytes(dice, 6))),
            2 => drop(input.splice(from..short, bytes(dice, 6))),
            3 => {
                let other = &seeds[dice.below(seeds.len())];
                let cut = dice.below(other.len() + 1);
                input.splice(from.., other[cut..].iter().copied());
            }
            4 => {
                let again = input[from..to.min(from + 64)].to_vec();
                input.splice(from..from, again);
            }
            5 => input.truncate(from.max(input.len() / 2)),
            6 => input.insert(from, TELLING[dice.below(TELLING.len())]),
            7 => {
                if let Some(digit) = input.iter_mut().skip(from).find(|byte| byte.is_ascii_digit()) {
                    *digit = b"0123456789"[dice.below(10)];
                }
            }
            8 => {
                if let Some(byte) = input.get_mut(from) {
                    *byte = TELLING[dice.below(TELLING.len())];
                }
            }
            _ => {
                if let Some(byte) = input.get_mut(from) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    input.truncate(LONGEST);
    input
}
