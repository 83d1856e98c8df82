//! Links the fragments in `lua/` into one script, and packs the parameters they unpack. `build.rs` has removed their
//! comments and put the files of `lua/shared/` in place.
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
//!
//! Lua allows a function 200 local variables, and the largest fragment has 26: so a limit that follows [`TOGETHER`] others
//! begins a function of its own, which the limits after it are in, too. Small policies have no such function, because it
//! would be made anew in every call.
//!
//! Where a call is about several subjects all this is the body of a loop over them; `subject` and `replies` are then the
//! linker's names.

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
    /// Replaces its counts by a subject's own, and what it calls these.
    own: (&'static str, &'static str),
    /// The longest time that a check of it takes in Redis, in microseconds: on the largest state that a
    /// configuration allows, after a long rest and after the clock went back, as `make bench-lua` measures.
    pub(super) worst: usize,
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
const FIXED: (&str, &str) = ("", "");
const OWN_LIMIT: (&str, &str) = (lua!("override/limit"), "limit, 0, 0");
const OWN_LOG: (&str, &str) = (lua!("override/sliding_log"), "limit, 0, 0");
const OWN_BUCKET: (&str, &str) = (lua!("override/bucket"), "rate, capacity, overdraft");
const OWN_STEPS: (&str, &str) = (lua!("override/stepwise"), "refill, capacity, overdraft");

const fn fragment(
    rank: u8,
    source: &'static str,
    names: &'static str,
    own: (&'static str, &'static str),
    worst: usize,
) -> Fragment {
    Fragment { rank, source, names, own, worst }
}

// A fragment that charges before it knows what the others grant comes last: then it does know. Those without
// a place for overrides are for numbers that do not change.
const BUCKET: Fragment = fragment(0, lua!("limit/bucket"), "p, l, room, hold, most, overdraft", FIXED, 5);
const BUCKET_WIDE: Fragment =
    fragment(1, lua!("limit/bucket_wide"), "p, l, room, room_f, hold, most, most_f, overdraft", FIXED, 6);
const BUCKET_OWN: Fragment = fragment(
    2,
    lua!("limit/bucket_wide"),
    "p, l, room, room_f, hold, most, most_f, overdraft, rate, per, capacity, tokens",
    OWN_BUCKET,
    6,
);
const STEPWISE: Fragment =
    fragment(3, lua!("limit/stepwise"), "capacity, refill, interval, overdraft", OWN_STEPS, 6);
const SLIDING_LOG: Fragment = fragment(4, lua!("limit/sliding_log"), "limit, window", OWN_LOG, 71);
const SLIDING_WINDOW: Fragment =
    fragment(5, lua!("limit/sliding_window"), "limit, slot, slots", OWN_LIMIT, 12);
const CONCURRENCY: Fragment = fragment(6, lua!("limit/concurrency"), "limit, ttl, slot", OWN_LIMIT, 44);
const WINDOW: Fragment = fragment(7, lua!("limit/window"), "limit, window, align", OWN_LIMIT, 5);
const CLOCK_WINDOW: Fragment = fragment(8, lua!("limit/clock_window"), "limit, window", FIXED, 5);

/// At most this many limits are in one function of Lua.
const TOGETHER: usize = 4;

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

    /// What it says: [`answer_size`] numbers.
    fn answer(&self, overrides: Overrides) -> String {
        let own = match overrides {
            Overrides::Ignored => String::new(),
            Overrides::Read => format!(", {}", self.own.1),
        };
        format!("left, wait, reset, extra{own}")
    }
}

/// How the numbers that a script says of one limit are packed.
fn format(overrides: Overrides) -> String {
    "i8".repeat(answer_size(overrides))
}

/// How many subjects one call of a check is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subjects {
    One,
    /// Each in its turn: what does not differ between them is read once, the time too.
    Many,
}

/// The script that checks limits of these algorithms.
pub(super) fn check(fragments: &[Fragment], overrides: Overrides, subjects: Subjects) -> String {
    let mut script = String::new();
    let first = fragments.first().map_or("", |fragment| fragment.names);
    let keys = keys(fragments, overrides);
    let (mut at, returns) = match subjects {
        Subjects::One => {
            // The first fragment's numbers are unpacked with the question: a call less.
            let at = unpack(&format!("now, granted, price, {first}"), 1, &mut script);
            library(fragments, overrides, &mut script);
            (at, "return")
        }
        Subjects::Many => {
            let at = unpack("now", 1, &mut script);
            library(fragments, overrides, &mut script);
            let _ = writeln!(script, "local replies = {{}}\nfor subject = 1, #KEYS / {keys} do");
            script.push_str("local granted, price = unpack('<i8i8', ARGV[2], 16 * subject - 15)\n");
            (unpack(first, at, &mut script), "replies[subject] =")
        }
    };
    let key = |place: usize| match subjects {
        Subjects::One => place.to_string(),
        Subjects::Many => format!("{keys} * subject - {}", keys.saturating_sub(place)),
    };
    begin(overrides, &key(keys), CHECK, &mut script);
    let mut takes = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let [ask, _, take] = fragment.parts();
        if i > 0 && i.is_multiple_of(TOGETHER) {
            script.push_str("local function inner()\n");
        }
        let _ = writeln!(script, "do\nlocal key, cost, need = KEYS[{}], price, least", key(i + 1));
        if i > 0 {
            at = unpack(fragment.names, at, &mut script);
        }
        if overrides == Overrides::Read {
            script.push_str(fragment.own.0);
        }
        script.push_str(ask);
        script.push_str(GRANT);
        takes.push((take, fragment.answer(overrides)));
    }
    // The innermost begins the reply, the outermost ends it.
    let format = format(overrides);
    let mut rest = "";
    for (i, (take, answer)) in takes.iter().enumerate().rev() {
        script.push_str(take);
        receipt(take, i, &mut script);
        let _ = match i {
            0 => {
                writeln!(
                    script,
                    "{returns} pack('<i8i8{format}', granted, now, {answer}){rest} .. receipts\nend"
                )
            }
            _ => writeln!(script, "rest = pack('<{format}', {answer}){rest}\nend"),
        };
        if i > 0 && i.is_multiple_of(TOGETHER) {
            // A fragment returns early only with an error, which is the whole script's reply.
            script.push_str("end\nlocal failed = inner()\nif failed then\nreturn failed\nend\n");
        }
        rest = " .. rest";
    }
    if subjects == Subjects::Many {
        script.push_str("end\nreturn replies\n");
    }
    script
}

/// How many keys a subject has.
fn keys(fragments: &[Fragment], overrides: Overrides) -> usize {
    fragments.len() + usize::from(overrides == Overrides::Read)
}

/// The script that settles what such a check charged. One after another: there is nothing to agree upon.
pub(super) fn settle(fragments: &[Fragment], overrides: Overrides) -> String {
    let mut script = String::new();
    let mut paid = unpack("now, charge, paid", 1, &mut script);
    library(fragments, overrides, &mut script);
    begin(overrides, &keys(fragments, overrides).to_string(), SETTLE, &mut script);
    let mut at = paid + 24 * fragments.len();
    let format = format(overrides);
    for (i, fragment) in fragments.iter().enumerate() {
        let _ = writeln!(script, "do\nlocal key, granted, cost, need = KEYS[{}], 0, 0, 1", i + 1);
        paid = unpack("paid_left, paid_reset, paid_refunded", paid, &mut script);
        at = unpack(fragment.names, at, &mut script);
        if overrides == Overrides::Read {
            script.push_str(fragment.own.0);
        }
        for part in fragment.parts() {
            script.push_str(part);
        }
        receipt(fragment.source, i, &mut script);
        let answer = fragment.answer(overrides);
        let _ = writeln!(script, "rest = rest .. pack('<{format}', {answer})\nend");
    }
    script.push_str("return pack('<i8i8', 0, now) .. rest .. receipts\n");
    script
}

/// What a refund of this grant has to know, of a limit that keeps count of refunds. Mostly there are none, and the reply is
/// as long as that of other limits.
fn receipt(take: &str, place: usize, script: &mut String) {
    if take.contains("refunded") {
        let _ = writeln!(
            script,
            "if refunded > 0 then\nreceipts = receipts .. pack('<I7I1', refunded, {place})\nend"
        );
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
    RELEASE.to_owned()
}

/// What comes before all subjects.
fn library(fragments: &[Fragment], overrides: Overrides, script: &mut String) {
    script.push_str(PRELUDE);
    let reads = overrides == Overrides::Read;
    for (call, source) in HELPERS {
        if fragments.iter().any(|fragment| fragment.source.contains(call)) || reads && OVERRIDE.contains(call)
        {
            script.push_str(source);
        }
    }
}

/// What comes before the limits of a subject, whose last key is this.
fn begin(overrides: Overrides, last: &str, head: &str, script: &mut String) {
    if overrides == Overrides::Read {
        let _ = writeln!(script, "local owned = KEYS[{last}]");
        script.push_str(OVERRIDE);
    }
    script.push_str(head);
}

/// Unpacks numbers that begin at byte `at`; where the next ones do.
fn unpack(names: &str, at: usize, script: &mut String) -> usize {
    let count = names.split(',').count();
    let _ = writeln!(script, "local {names} = struct.unpack('<{}', ARGV[1], {at})", "i8".repeat(count));
    at + 8 * count
}
