//! Links the fragments in `lua/` into one script, and packs the parameters they unpack.
//!
//! A fragment has three parts, with a line `-- settle` and a line `-- take` between them: it asks, reading
//! its state; corrects what it read, to settle; takes, writing it. The linker puts fragments inside one
//! another, so that a script is one straight line and what one limit knows stays in its own scope:
//!
//! ```lua
//! -- prelude, check
//! do -- first limit: ask
//!   do -- second limit: ask
//!     -- second limit: take
//!   end
//!   -- first limit: take, and reply
//! end
//! ```

use core::fmt::Write;

use super::Overrides;
use crate::limit::{Align, Bucket, Kind, Limit};

/// One algorithm's Lua.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// Its place in a script, among others.
    pub(super) rank: u8,
    source: &'static str,
    /// What it calls the numbers that [`compile`] gives it.
    names: &'static str,
    /// Where its counts are replaced by a subject's own.
    overrides: &'static str,
}

macro_rules! lua {
    ($path:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/lua/", $path, ".lua"))
    };
}

const PRELUDE: &str = lua!("prelude");
/// Linked if a fragment calls them.
const HELPERS: [(&str, &str); 2] = [("heal(", lua!("heal")), ("muldiv(", lua!("muldiv"))];
const CHECK: &str = lua!("check");
const GRANT: &str = lua!("grant");
const SETTLE: &str = lua!("settle");
const RELEASE: &str = lua!("release");
const OVERRIDE: &str = lua!("override");
const OWN_LIMIT: &str = lua!("override/limit");
const OWN_BUCKET: &str = lua!("override/bucket");
const OWN_STEPS: &str = lua!("override/stepwise");

const fn fragment(rank: u8, source: &'static str, names: &'static str, overrides: &'static str) -> Fragment {
    Fragment { rank, source, names, overrides }
}

// A fragment that charges before it knows what the others grant comes last: then it does know. Those without
// a place for overrides are for numbers that do not change.
const BUCKET: Fragment = fragment(0, lua!("limit/bucket"), "p, l, room, hold, most, overdraft", "");
const BUCKET_WIDE: Fragment =
    fragment(1, lua!("limit/bucket_wide"), "p, l, room, room_f, hold, most, most_f, overdraft", "");
const BUCKET_OWN: Fragment = fragment(
    2,
    lua!("limit/bucket_wide"),
    "p, l, room, room_f, hold, most, most_f, overdraft, rate, per, capacity, tokens",
    OWN_BUCKET,
);
const STEPWISE: Fragment =
    fragment(3, lua!("limit/stepwise"), "capacity, refill, interval, overdraft", OWN_STEPS);
const SLIDING_LOG: Fragment = fragment(4, lua!("limit/sliding_log"), "limit, window", OWN_LIMIT);
const SLIDING_WINDOW: Fragment = fragment(5, lua!("limit/sliding_window"), "limit, slot, slots", OWN_LIMIT);
const CONCURRENCY: Fragment = fragment(6, lua!("limit/concurrency"), "limit, ttl, slot", OWN_LIMIT);
const WINDOW: Fragment = fragment(7, lua!("limit/window"), "limit, window, align", OWN_LIMIT);
const CLOCK_WINDOW: Fragment = fragment(8, lua!("limit/clock_window"), "limit, window", "");

/// The largest integer that a double holds together with all below it, plus one.
const EXACT: u128 = 1 << 53;

/// The fragment of a limit, and the numbers that it unpacks.
pub(super) fn compile(limit: &Limit, overrides: Overrides) -> (Fragment, Vec<u128>) {
    let fixed = overrides == Overrides::Ignored;
    let (fragment, numbers) = match limit {
        Limit::FixedWindow(of) if fixed && of.is_marked() => (CLOCK_WINDOW, vec![of.limit(), of.window().0]),
        Limit::FixedWindow(of) => {
            (WINDOW, vec![of.limit(), of.window().0, u64::from(of.align() == Align::First)])
        }
        Limit::SlidingLog(of) => (SLIDING_LOG, vec![of.limit(), of.window().0]),
        Limit::SlidingWindow(of) => {
            (SLIDING_WINDOW, vec![of.limit(), of.precision().0, of.window().0 / of.precision().0.max(1)])
        }
        Limit::TokenBucket(of) => match of.kind() {
            Kind::Continuous(bucket) => {
                return compile_bucket(bucket, overrides, [of.refill(), of.interval().0, of.capacity(), 1]);
            }
            Kind::Stepwise => (STEPWISE, vec![of.capacity(), of.refill(), of.interval().0, of.overdraft()]),
        },
        Limit::LeakyBucket(of) => {
            return compile_bucket(&of.bucket, overrides, [of.rate(), of.per().0, of.burst(), 0]);
        }
        Limit::Concurrency(of) => (CONCURRENCY, vec![of.limit(), of.ttl().0, of.slot()]),
    };
    (fragment, numbers.into_iter().map(u128::from).collect())
}

fn compile_bucket(of: &Bucket, overrides: Overrides, own: [u64; 4]) -> (Fragment, Vec<u128>) {
    let (p, l, overdraft) = (of.p.get(), of.l.get(), u128::from(of.overdraft));
    if overrides == Overrides::Ignored && of.most + (1 + overdraft) * p < EXACT {
        return (BUCKET, vec![p, l, of.room, of.hold, of.most, overdraft]);
    }
    let mut numbers = vec![p, l, of.room / l, of.room % l, of.hold / l, of.most / l, of.most % l, overdraft];
    if overrides == Overrides::Ignored {
        return (BUCKET_WIDE, numbers);
    }
    numbers.extend(own.map(u128::from));
    (BUCKET_OWN, numbers)
}

impl Fragment {
    /// What it asks, what it settles, what it takes.
    fn parts(&self) -> [&'static str; 3] {
        let (ask, rest) = self.source.split_once("-- settle\n").unwrap_or_default();
        let (settle, take) = rest.split_once("-- take\n").unwrap_or_default();
        [ask, settle, take]
    }
}

/// The script that checks limits of these algorithms.
pub(super) fn check(fragments: &[Fragment], overrides: Overrides) -> String {
    let mut script = String::new();
    // The first fragment's numbers are unpacked with the question: a call less.
    let first = fragments.first().map_or("", |fragment| fragment.names);
    let mut at = unpack(&format!("now, granted, price, {first}"), 1, &mut script);
    begin(fragments, overrides, CHECK, &mut script);
    let mut takes = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let [ask, _, take] = fragment.parts();
        let _ = writeln!(script, "do\nlocal key, cost, need = KEYS[{}], price, least", i + 1);
        if i > 0 {
            at = unpack(fragment.names, at, &mut script);
        }
        if overrides == Overrides::Read {
            append(fragment.overrides, &mut script);
        }
        append(ask, &mut script);
        append(GRANT, &mut script);
        takes.push(take);
    }
    // The innermost begins the reply, the outermost returns it.
    let (format, answer) = answer(overrides);
    let mut rest = "";
    for (i, take) in takes.iter().enumerate().rev() {
        append(take, &mut script);
        let _ = match i {
            0 => writeln!(script, "return pack('<i8i8{format}', granted, now, {answer}){rest}\nend"),
            _ => writeln!(script, "rest = pack('<{format}', {answer}){rest}\nend"),
        };
        rest = " .. rest";
    }
    script
}

/// The script that settles what such a check charged. One after another: there is nothing to agree upon.
pub(super) fn settle(fragments: &[Fragment], overrides: Overrides) -> String {
    let mut script = String::new();
    let mut receipt = unpack("now, charge, paid", 1, &mut script);
    begin(fragments, overrides, SETTLE, &mut script);
    let mut at = receipt + 16 * fragments.len();
    let (format, answer) = answer(overrides);
    for (i, fragment) in fragments.iter().enumerate() {
        let _ = writeln!(script, "do\nlocal key, granted, cost, need = KEYS[{}], 0, 0, 1", i + 1);
        receipt = unpack("paid_left, paid_reset", receipt, &mut script);
        at = unpack(fragment.names, at, &mut script);
        if overrides == Overrides::Read {
            append(fragment.overrides, &mut script);
        }
        for part in fragment.parts() {
            append(part, &mut script);
        }
        let _ = writeln!(script, "rest = rest .. pack('<{format}', {answer})\nend");
    }
    script.push_str("return pack('<i8i8', 0, now) .. rest\n");
    script
}

/// What a script says of one limit: [`answer_size`] numbers.
const fn answer(overrides: Overrides) -> (&'static str, &'static str) {
    match overrides {
        Overrides::Ignored => ("i8i8i8i8", "left, wait, reset, extra"),
        Overrides::Read => ("i8i8i8i8i8i8i8", "left, wait, reset, extra, first, second, third"),
    }
}

/// How many numbers a script says of one limit.
pub(super) const fn answer_size(overrides: Overrides) -> usize {
    match overrides {
        Overrides::Ignored => 4,
        Overrides::Read => 7,
    }
}

/// The script that gives back places.
pub(super) fn release() -> String {
    let mut script = String::new();
    append(RELEASE, &mut script);
    script
}

/// What comes before the limits.
fn begin(fragments: &[Fragment], overrides: Overrides, head: &str, script: &mut String) {
    append(PRELUDE, script);
    let reads = overrides == Overrides::Read;
    for (call, source) in HELPERS {
        if fragments.iter().any(|fragment| fragment.source.contains(call)) || reads && OVERRIDE.contains(call)
        {
            append(source, script);
        }
    }
    if reads {
        append(OVERRIDE, script);
    }
    append(head, script);
}

/// Unpacks numbers that begin at byte `at`; where the next ones do.
fn unpack(names: &str, at: usize, script: &mut String) -> usize {
    let count = names.split(',').count();
    let _ = writeln!(script, "local {names} = struct.unpack('<{}', ARGV[1], {at})", "i8".repeat(count));
    at + 8 * count
}

/// Without comments and indentation: they are for whoever reads the fragments, not for Redis to keep.
fn append(source: &str, script: &mut String) {
    for line in source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
        script.push_str(line);
        script.push('\n');
    }
}
