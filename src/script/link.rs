//! Links the fragments in `lua/` into one script, and packs the parameters they unpack.
//!
//! A fragment asks, then takes, with a line `-- take` between the two. The linker puts fragments inside one another, so
//! that a script is one straight line and what one limit knows stays in its own scope:
//!
//! ```lua
//! -- prelude, head
//! do -- first limit: ask
//!   do -- second limit: ask
//!     -- second limit: take
//!   end
//!   -- first limit: take, and reply
//! end
//! ```

use core::fmt::Write;

use crate::limit::Limit;

/// One algorithm's Lua.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// Its place in a script, among others.
    pub(super) rank: u8,
    check: &'static str,
    /// How many numbers it unpacks.
    parameters: usize,
}

const PRELUDE: &str = include_str!("../../lua/prelude.lua");
const CHECK: &str = include_str!("../../lua/check/head.lua");
const BUCKET: Fragment =
    Fragment { rank: 0, check: include_str!("../../lua/check/bucket.lua"), parameters: 6 };

/// The time, and two numbers of the question.
const QUESTION: usize = 24;

pub(super) const fn fragment(limit: &Limit) -> Fragment {
    match limit {
        Limit::LeakyBucket(_) => BUCKET,
    }
}

/// Appends what the fragment of this limit unpacks.
pub(super) fn parameters(limit: &Limit, out: &mut Vec<u8>) {
    let mut pack = |numbers: &[u128]| {
        for &number in numbers {
            out.extend_from_slice(&u64::try_from(number).unwrap_or(u64::MAX).to_le_bytes());
        }
    };
    match limit {
        Limit::LeakyBucket(limit) => {
            let of = &limit.bucket;
            pack(&[of.p.get(), of.l.get(), of.room, of.hold, of.most, u128::from(of.overdraft)]);
        }
    }
}

/// The script that checks limits of these algorithms.
pub(super) fn check(fragments: &[Fragment]) -> String {
    let mut script = String::new();
    append(PRELUDE, &mut script);
    append(CHECK, &mut script);
    let mut at = QUESTION + 1;
    let mut ends = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let (ask, take) = fragment.check.split_once("-- take\n").unwrap_or_default();
        let _ = writeln!(script, "do\nlocal key, at = KEYS[{}], {at}", i + 1);
        append(ask, &mut script);
        ends.push(take);
        at += 8 * fragment.parameters;
    }
    for (i, take) in ends.iter().enumerate().rev() {
        append(take, &mut script);
        script.push_str(match i {
            0 => "return pack('<i8i8i8i8i8i8', granted, now, left, wait, reset, extra) .. rest\nend\n",
            _ => "rest = pack('<i8i8i8i8', left, wait, reset, extra) .. rest\nend\n",
        });
    }
    script
}

/// Without comments and indentation: they are for whoever reads the fragments, not for Redis to keep.
fn append(source: &str, script: &mut String) {
    for line in source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
        script.push_str(line);
        script.push('\n');
    }
}
