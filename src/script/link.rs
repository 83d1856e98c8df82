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

use crate::limit::{Align, Bucket, Kind, Limit};

/// One algorithm's Lua.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// Its place in a script, among others.
    pub(super) rank: u8,
    source: &'static str,
    /// What it calls the numbers that [`compile`] gives it.
    names: &'static str,
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

// A fragment that charges before it knows what the others grant comes last: then it does know.
const BUCKET: Fragment =
    Fragment { rank: 0, source: lua!("limit/bucket"), names: "p, l, room, hold, most, overdraft" };
const BUCKET_WIDE: Fragment = Fragment {
    rank: 1,
    source: lua!("limit/bucket_wide"),
    names: "p, l, room, room_f, hold, most, most_f, overdraft",
};
const STEPWISE: Fragment =
    Fragment { rank: 2, source: lua!("limit/stepwise"), names: "capacity, refill, interval, overdraft" };
const SLIDING_LOG: Fragment = Fragment { rank: 3, source: lua!("limit/sliding_log"), names: "limit, window" };
const SLIDING_WINDOW: Fragment =
    Fragment { rank: 4, source: lua!("limit/sliding_window"), names: "limit, slot, slots" };
const CONCURRENCY: Fragment =
    Fragment { rank: 5, source: lua!("limit/concurrency"), names: "limit, ttl, slot" };
const WINDOW: Fragment = Fragment { rank: 6, source: lua!("limit/window"), names: "limit, window, align" };
const CLOCK_WINDOW: Fragment =
    Fragment { rank: 7, source: lua!("limit/clock_window"), names: "limit, window" };

/// The largest integer that a double holds together with all below it, plus one.
const EXACT: u128 = 1 << 53;

/// The fragment of a limit, and the numbers that it unpacks.
pub(super) fn compile(limit: &Limit) -> (Fragment, Vec<u128>) {
    match limit {
        Limit::FixedWindow(of) if of.is_marked() => {
            (CLOCK_WINDOW, vec![of.limit().into(), of.window().0.into()])
        }
        Limit::FixedWindow(of) => {
            let align = u128::from(of.align() == Align::First);
            (WINDOW, vec![of.limit().into(), of.window().0.into(), align])
        }
        Limit::SlidingLog(of) => (SLIDING_LOG, vec![of.limit().into(), of.window().0.into()]),
        Limit::SlidingWindow(of) => {
            let slots = of.window().0 / of.precision().0.max(1);
            (SLIDING_WINDOW, vec![of.limit().into(), of.precision().0.into(), slots.into()])
        }
        Limit::TokenBucket(of) => match of.kind() {
            Kind::Continuous(bucket) => compile_bucket(bucket),
            Kind::Stepwise => {
                let numbers = [of.capacity(), of.refill(), of.interval().0, of.overdraft()];
                (STEPWISE, numbers.map(u128::from).to_vec())
            }
        },
        Limit::LeakyBucket(of) => compile_bucket(&of.bucket),
        Limit::Concurrency(of) => (CONCURRENCY, [of.limit(), of.ttl().0, of.slot()].map(u128::from).to_vec()),
    }
}

fn compile_bucket(of: &Bucket) -> (Fragment, Vec<u128>) {
    let (p, l, overdraft) = (of.p.get(), of.l.get(), u128::from(of.overdraft));
    if of.most + (1 + overdraft) * p < EXACT {
        return (BUCKET, vec![p, l, of.room, of.hold, of.most, overdraft]);
    }
    (BUCKET_WIDE, vec![p, l, of.room / l, of.room % l, of.hold / l, of.most / l, of.most % l, overdraft])
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
pub(super) fn check(fragments: &[Fragment]) -> String {
    let mut script = String::new();
    // The first fragment's numbers are unpacked with the question: a call less.
    let first = fragments.first().map_or("", |fragment| fragment.names);
    let mut at = unpack(&format!("now, granted, price, {first}"), 1, &mut script);
    begin(fragments, CHECK, &mut script);
    let mut takes = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let [ask, _, take] = fragment.parts();
        let _ = writeln!(script, "do\nlocal key, cost, need = KEYS[{}], price, least", i + 1);
        if i > 0 {
            at = unpack(fragment.names, at, &mut script);
        }
        append(ask, &mut script);
        append(GRANT, &mut script);
        takes.push(take);
    }
    // The innermost begins the reply, the outermost returns it.
    let mut rest = "";
    for (i, take) in takes.iter().enumerate().rev() {
        append(take, &mut script);
        let _ = match i {
            0 => writeln!(
                script,
                "return pack('<i8i8i8i8i8i8', granted, now, left, wait, reset, extra){rest}\nend"
            ),
            _ => writeln!(script, "rest = pack('<i8i8i8i8', left, wait, reset, extra){rest}\nend"),
        };
        rest = " .. rest";
    }
    script
}

/// The script that settles what such a check charged. One after another: there is nothing to agree upon.
pub(super) fn settle(fragments: &[Fragment]) -> String {
    let mut script = String::new();
    let mut receipt = unpack("now, charge, paid", 1, &mut script);
    begin(fragments, SETTLE, &mut script);
    let mut at = receipt + 16 * fragments.len();
    for (i, fragment) in fragments.iter().enumerate() {
        let _ = writeln!(script, "do\nlocal key, granted, cost, need = KEYS[{}], 0, 0, 1", i + 1);
        receipt = unpack("paid_left, paid_reset", receipt, &mut script);
        at = unpack(fragment.names, at, &mut script);
        for part in fragment.parts() {
            append(part, &mut script);
        }
        script.push_str("rest = rest .. pack('<i8i8i8i8', left, wait, reset, extra)\nend\n");
    }
    script.push_str("return pack('<i8i8', 0, now) .. rest\n");
    script
}

/// The script that gives back places.
pub(super) fn release() -> String {
    let mut script = String::new();
    append(RELEASE, &mut script);
    script
}

/// What comes before the limits.
fn begin(fragments: &[Fragment], head: &str, script: &mut String) {
    append(PRELUDE, script);
    for (call, source) in HELPERS {
        if fragments.iter().any(|fragment| fragment.source.contains(call)) {
            append(source, script);
        }
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
