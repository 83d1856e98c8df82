// SPDX-License-Identifier: Apache-2.0
//! Links the fragments in `lua/` into one script, and packs the parameters that they unpack. `build.rs` has removed
//! their comments and put the files of `lua/shared/` in place.
//!
//! A fragment has three parts, with a line `-- settle` and a line `-- take` between them. The first part asks: it
//! reads the state. The second part settles a charge or a refund: it corrects what was read. The third part takes: it
//! writes the state. The linker nests the fragments, so that a script is one straight line and each limit has a scope
//! of its own:
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
//! Lua allows a function 200 local variables, and the largest fragment has 26. So after every [`LIMITS_PER_FUNCTION`]
//! limits the next one begins a function of its own, which holds the limits after it too. Small policies have no such
//! function, because every call would create it again.
//!
//! A ban (`lua/ban.lua`) is read before all limits. Its denials are counted (`lua/denials.lua`) after the last limit has asked,
//! where it is known how many requests the limits grant.
//!
//! If requests are of several classes, each limit's ask is followed by its part of `lua/priority/`, which adds what is kept for
//! other classes to what a request needs.
//!
//! A check is a loop over its subjects with all this as its body; mostly there is one subject. The linker adds the variables `subject`,
//! `keys`, `numbers`, `answer` and `answers`. The reply is one string, because each further string costs Redis 1,000 instructions. Numbers
//! that are mostly 0 are in it only if one of them is not 0. The loop reads each state in its subject's turn, not by one `MGET` before,
//! because two checks of a command may be for one subject.
//!
//! The script unpacks the numbers of the limits once, before the loop. There are two exceptions. Those of limits in a further function are
//! unpacked in each turn, because a function of Lua may use only 60 variables from outside. So are those of all limits, if subjects have
//! overrides, which need more variables.

use core::fmt::{Display, Write};

use super::{Classes, Options, Overrides};
use crate::limit::{Align, Bucket, Kind, Limit};

/// One algorithm's Lua.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    /// Fragments of lower rank come first in a script.
    pub(super) rank: u8,
    source: &'static str,
    /// Its variables for the numbers of [`compile`].
    names: &'static str,
    /// The Lua that replaces the counts by those of an override, and the variables for these counts.
    overrides: (&'static str, &'static str),
    /// The Lua that reserves a share of the limit for requests of other classes.
    priority: &'static str,
    /// The longest time that its part of a script takes in Redis, in microseconds: of a check after a long rest, of one after the
    /// clock went back, and of a refund, on the largest state that a configuration allows. `make bench-lua` measures it, and
    /// `docs/bounds.md` has the figures. A whole command takes about four microseconds more, which many subjects share.
    pub(super) worst: usize,
}

macro_rules! lua {
    ($path:literal) => {
        include_str!(concat!(env!("OUT_DIR"), "/lua/", $path, ".lua"))
    };
}

const PRELUDE: &str = lua!("prelude");
/// These are linked if a fragment calls or names them.
const HELPERS: [(&str, &str); 4] = [
    ("heal(", lua!("heal")),
    ("muldiv(", lua!("muldiv")),
    ("month(", lua!("month")),
    ("last_second", lua!("expiry")),
];
const ASKING: &str = lua!("asking");
const CHECK: &str = lua!("check");
const GRANT: &str = lua!("grant");
const SETTLE: &str = lua!("settle");
const RELEASE: &str = lua!("release");
const OVERRIDE: &str = lua!("override");
const BAN: &str = lua!("ban");
const DENIALS: &str = lua!("denials");
/// The variables of these two for the numbers of a ban.
const BAN_NAMES: &str = "ban_after, ban_window, ban_duration, ban_factor, ban_max";
/// The reply about a ban follows those about the limits.
const BAN_REPLY: &str = "rest = pack('<i8', ban_wait)\n";
const BAN_REPLY_LAST: &str = "rest = rest .. pack('<i8', ban_wait)\n";
/// The variables of a settlement for what the check of a limit replied, and for its largest debt.
const RECEIPT: &str = "receipt_left, receipt_reset, receipt_refunded, debt";
const NOT_OVERRIDDEN: (&str, &str) = ("", "");
const OVERRIDE_LIMIT: (&str, &str) = (lua!("override/limit"), "limit, 0, 0");

/// The override of a limit that holds at most so many units, or values.
macro_rules! override_up_to {
    ($most:literal) => {
        (
            concat!(
                "do\nlocal count = override_of(key)\nlimit = count and count('limit', 1, ",
                $most,
                ") or limit\nend\n"
            ),
            "limit, 0, 0",
        )
    };
}
const OVERRIDE_LOG: (&str, &str) = override_up_to!(100000);
const OVERRIDE_DISTINCT: (&str, &str) = override_up_to!(1000);
const OVERRIDE_BUCKET: (&str, &str) = (lua!("override/bucket"), "rate, capacity, overdraft");
const OVERRIDE_STEPWISE: (&str, &str) = (lua!("override/stepwise"), "refill, capacity, overdraft");
const PRIORITY_LIMIT: &str = lua!("priority/limit");
/// A value that counts already passes, whatever is kept.
const PRIORITY_DISTINCT: &str = concat!("if not place then\n", lua!("priority/limit"), "end\n");
const PRIORITY_BUCKET: &str = lua!("priority/bucket");
const PRIORITY_BUCKET_WIDE: &str = lua!("priority/bucket_wide");
const PRIORITY_STEPWISE: &str = lua!("priority/stepwise");

const fn fragment(
    rank: u8,
    source: &'static str,
    names: &'static str,
    overrides: (&'static str, &'static str),
    priority: &'static str,
    worst: usize,
) -> Fragment {
    Fragment { rank, source, names, overrides, priority, worst }
}

macro_rules! wide_bucket {
    () => {
        "emission, parts, tolerance, tolerance_f, delay_tolerance, max_owed, max_owed_f, overdraft"
    };
}

/// [`Fragment::worst`] of a log of any size. A check bisects the entries, and removes those that have left the window.
const LARGEST_LOG: usize = 92;
/// [`Fragment::worst`] of a `distinct` limit of any size. The clock went back, and a value is refunded.
const MOST_VALUES: usize = 180;
/// [`Fragment::worst`] of smaller ones, each after the largest number of values.
const FEWER_VALUES: [(u64, usize); 2] = [(32, 15), (200, 46)];
/// [`Fragment::worst`] of smaller logs, each after the largest number of entries. Up to 10,000, a refund takes longer than a check.
const SMALLER_LOGS: [(u64, usize); 2] = [(32, 45), (10_000, 65)];

// A fragment that charges when it asks comes last, when all others have asked. Fragments that are not overridden are for
// policies without overrides.
const BUCKET: Fragment = fragment(
    0,
    lua!("limit/bucket"),
    "emission, parts, tolerance, delay_tolerance, max_owed, overdraft",
    NOT_OVERRIDDEN,
    PRIORITY_BUCKET,
    5,
);
const BUCKET_WIDE: Fragment =
    fragment(1, lua!("limit/bucket_wide"), wide_bucket!(), NOT_OVERRIDDEN, PRIORITY_BUCKET_WIDE, 6);
const BUCKET_WITH_OVERRIDES: Fragment = fragment(
    2,
    lua!("limit/bucket_wide"),
    concat!(wide_bucket!(), ", rate, per, capacity, tokens"),
    OVERRIDE_BUCKET,
    PRIORITY_BUCKET_WIDE,
    6,
);
const STEPWISE: Fragment = fragment(
    3,
    lua!("limit/stepwise"),
    "capacity, refill, interval, overdraft, debt",
    OVERRIDE_STEPWISE,
    PRIORITY_STEPWISE,
    6,
);
const SLIDING_LOG: Fragment =
    fragment(4, lua!("limit/sliding_log"), "limit, window", OVERRIDE_LOG, PRIORITY_LIMIT, LARGEST_LOG);
const SLIDING_WINDOW: Fragment =
    fragment(5, lua!("limit/sliding_window"), "limit, slot, slots", OVERRIDE_LIMIT, PRIORITY_LIMIT, 22);
const CONCURRENCY: Fragment =
    fragment(6, lua!("limit/concurrency"), "limit, ttl, slot", OVERRIDE_LIMIT, PRIORITY_LIMIT, 44);
const WINDOW: Fragment =
    fragment(7, lua!("limit/window"), "limit, window, align", OVERRIDE_LIMIT, PRIORITY_LIMIT, 5);
const CALENDAR_WINDOW: Fragment =
    fragment(8, lua!("limit/calendar_window"), "limit, length, shift", OVERRIDE_LIMIT, PRIORITY_LIMIT, 7);
const DISTINCT: Fragment =
    fragment(9, lua!("limit/distinct"), "limit, window", OVERRIDE_DISTINCT, PRIORITY_DISTINCT, MOST_VALUES);
const CLOCK_WINDOW: Fragment =
    fragment(u8::MAX, lua!("limit/clock_window"), "limit, window, most", NOT_OVERRIDDEN, PRIORITY_LIMIT, 5);

/// At most this many limits are in one function of Lua.
const LIMITS_PER_FUNCTION: usize = 4;

/// The largest integer that a double holds together with all below it, plus one.
const EXACT: u128 = 1 << 53;

/// Describes the longest times of limits, for an error of the configuration.
pub(super) fn worst_times() -> String {
    let [(small, of_small), (middle, of_middle)] = SMALLER_LOGS;
    let [(few, of_few), (more, of_more)] = FEWER_VALUES;
    format!(
        "`concurrency` takes up to {}, `distinct` {of_few} ({MOST_VALUES} above {more} values or where subjects have overrides, {of_more} above \
         {few} values), `sliding_log` {of_small} ({LARGEST_LOG} above {middle} units or where subjects have overrides, \
         {of_middle} above {small} units), `sliding_window` {}, any other limit {} at most",
        CONCURRENCY.worst, SLIDING_WINDOW.worst, CALENDAR_WINDOW.worst
    )
}

/// The fragment of a limit, and the numbers that the fragment unpacks.
pub(super) fn compile(limit: &Limit, overrides: Overrides) -> (Fragment, Vec<u128>) {
    let fixed = overrides == Overrides::Ignored;
    let (fragment, numbers) = match limit {
        Limit::FixedWindow(of) if fixed && of.is_marked() => {
            (CLOCK_WINDOW, vec![of.limit(), of.window().0, of.most_marked()])
        }
        Limit::FixedWindow(of) => match of.align() {
            Align::Calendar(period, offset) => {
                let (length, shift) = period.length_and_shift(offset);
                // The script unpacks signed numbers.
                (CALENDAR_WINDOW, vec![of.limit(), length.cast_unsigned(), shift.cast_unsigned()])
            }
            align => (WINDOW, vec![of.limit(), of.window().0, u64::from(align == Align::First)]),
        },
        Limit::SlidingLog(of) => {
            let worst = worst(fixed, of.entries(), SMALLER_LOGS).unwrap_or(LARGEST_LOG);
            (Fragment { worst, ..SLIDING_LOG }, vec![of.limit(), of.window().0])
        }
        Limit::SlidingWindow(of) => {
            (SLIDING_WINDOW, vec![of.limit(), of.precision().0, of.window().0 / of.precision().0.max(1)])
        }
        Limit::TokenBucket(of) => match of.kind() {
            Kind::Continuous(bucket) => {
                return compile_bucket(bucket, overrides, [of.refill(), of.interval().0, of.capacity(), 1]);
            }
            Kind::Stepwise => {
                let debt = limit.debt_units();
                (STEPWISE, vec![of.capacity(), of.refill(), of.interval().0, of.overdraft(), debt])
            }
        },
        Limit::LeakyBucket(of) => {
            return compile_bucket(&of.bucket, overrides, [of.rate(), of.per().0, of.burst(), 0]);
        }
        Limit::Concurrency(of) => (CONCURRENCY, vec![of.limit(), of.ttl().0, of.slot()]),
        Limit::Distinct(of) => {
            let worst = worst(fixed, of.limit(), FEWER_VALUES).unwrap_or(MOST_VALUES);
            (Fragment { worst, ..DISTINCT }, vec![of.limit(), of.window().0])
        }
    };
    (fragment, numbers.into_iter().map(u128::from).collect())
}

/// The longest time of the smallest size that has room for so many; `None` if none has, or if a subject's own limit may be as large as any.
fn worst(fixed: bool, entries: u64, smaller: [(u64, usize); 2]) -> Option<usize> {
    smaller.iter().find(|(most, _)| fixed && entries <= *most).map(|(_, worst)| *worst)
}

fn compile_bucket(of: &Bucket, overrides: Overrides, own: [u64; 4]) -> (Fragment, Vec<u128>) {
    let (emission, parts, overdraft) = (of.emission.get(), of.parts.get(), u128::from(of.overdraft));
    if overrides == Overrides::Ignored && of.max_owed + (1 + overdraft) * emission < EXACT {
        return (BUCKET, vec![emission, parts, of.tolerance, of.delay_tolerance, of.max_owed, overdraft]);
    }
    let mut numbers = vec![
        emission,
        parts,
        of.tolerance / parts,
        of.tolerance % parts,
        of.delay_tolerance / parts,
        of.max_owed / parts,
        of.max_owed % parts,
        overdraft,
    ];
    if overrides == Overrides::Ignored {
        return (BUCKET_WIDE, numbers);
    }
    numbers.extend(own.map(u128::from));
    (BUCKET_WITH_OVERRIDES, numbers)
}

impl Fragment {
    /// The parts that ask, settle and take.
    fn parts(&self) -> [&'static str; 3] {
        let (ask, rest) = self.source.split_once("-- settle\n").unwrap_or_default();
        let (settle, take) = rest.split_once("-- take\n").unwrap_or_default();
        [ask, settle, take]
    }

    /// Appends what comes before its part that asks: its counts, as they are for the subject.
    fn counts(&self, overrides: Overrides, script: &mut String) {
        if overrides == Overrides::Read {
            script.push_str(self.overrides.0);
        }
    }

    /// Its variables for the counts in force, which the reply has where a subject may have its own.
    fn counts_replied(&self, overrides: Overrides) -> String {
        match overrides {
            Overrides::Ignored => String::new(),
            Overrides::Read => format!(", {}", self.overrides.1),
        }
    }
}

/// The script that checks limits of these algorithms.
pub(super) fn check(fragments: &[Fragment], options: &Options) -> String {
    let mut script = String::new();
    let (bans, limits) = (options.ban.is_some(), fragments.len());
    let question = question(options.classes, has_members(fragments));
    let keys = limits + options.keys().count();
    // A check with overrides has more variables of its own, and a function of Lua has no room for those of the limits as well.
    let unpacked_once = match options.overrides {
        Overrides::Ignored => LIMITS_PER_FUNCTION,
        Overrides::Read => 0,
    };
    // All numbers are unpacked together, because each call costs Redis as much as several numbers.
    let question_of_first = ending_in(question, "of_first");
    let mut once = vec!["now".to_owned(), question_of_first.clone()];
    once.extend(bans.then(|| BAN_NAMES.to_owned()));
    let named = fragments.iter().enumerate().take(unpacked_once);
    once.extend(named.map(|(i, of)| if i == 0 { of.names.to_owned() } else { ending_in(of.names, i) }));
    let mut at = unpack(&once.join(", "), 1, &mut script);
    library(fragments, options, &mut script);
    let numbers = question.split(',').count();
    let size = at - 1
        + fragments.iter().skip(unpacked_once).map(|of| 8 * of.names.split(',').count()).sum::<usize>();
    // Mostly all ask the same, and the first question is for all.
    let _ = write!(
        script,
        "local numbers, keys, answer, answers = ARGV[1], KEYS\n\
         for subject = 1, #keys / {keys} do\nlocal {question} = {question_of_first}\n\
         if subject > 1 and #numbers > {size} then\n\
         {question} = unpack('<{}', numbers, {} * subject + {size} - {})\nend\n\
         local rest = ''\n",
        "i8".repeat(numbers),
        8 * numbers,
        16 * numbers - 1,
    );
    let key = |place: usize| format!("keys[{keys} * subject - {}]", keys.saturating_sub(place));
    script.push_str(ASKING);
    begin(fragments, options, key, &mut script);
    script.push_str(CHECK);
    if bans {
        script.push_str("if ban_wait ~= 0 then\ngranted = 0\nend\n");
    }
    let mut takes = Vec::new();
    for (i, fragment) in fragments.iter().enumerate() {
        let [ask, _, take] = fragment.parts();
        if i > 0 && i.is_multiple_of(LIMITS_PER_FUNCTION) {
            script.push_str("local function inner()\n");
        }
        let _ = writeln!(script, "do\nlocal key, cost, need = {}, price, min_need", key(i + 1));
        let names = fragment.names;
        if i >= unpacked_once {
            at = unpack(names, at, &mut script);
        } else if i > 0 {
            let _ = writeln!(script, "local {names} = {}", ending_in(names, i));
        }
        fragment.counts(options.overrides, &mut script);
        script.push_str(ask);
        if options.classes == Classes::Several {
            script.push_str(fragment.priority);
        }
        script.push_str(GRANT);
        takes.push((take, fragment));
    }
    if bans {
        script.push_str(DENIALS);
        script.push_str(BAN_REPLY);
    }
    // The innermost begins the reply, the outermost ends it.
    for (i, (take, fragment)) in takes.iter().enumerate().rev() {
        script.push_str(take);
        let counts = fragment.counts_replied(options.overrides);
        let (variable, before) = if i == 0 { ("answer", "granted, now, ") } else { ("rest", "") };
        let packed = pack(before, &counts, take, &mut script);
        let _ = writeln!(script, "{variable} = {packed} .. rest\nend");
        if i > 0 && i.is_multiple_of(LIMITS_PER_FUNCTION) {
            // A fragment returns early only with an error. That is the reply of the whole script.
            script.push_str("end\nlocal failed = inner()\nif failed then\nreturn failed\nend\n");
        }
    }
    // One answer needs no table, which would cost Redis a tenth of the check.
    let _ = write!(
        script,
        "if #keys > {keys} then\nanswers = answers or {{}}\nanswers[subject] = answer\nend\nend\n\
         return answers and table.concat(answers) or answer\n"
    );
    script
}

/// Appends the choice between the short and the long answer of a limit, and returns the Lua that packs it. `before` are the numbers
/// before it.
fn pack(before: &str, counts: &str, take: &str, script: &mut String) -> String {
    let (or_refunded, refunded) =
        if take.contains("refunded") { (" or refunded > 0", "refunded") } else { ("", "0") };
    let short = format!("{before}left, reset{counts}");
    let format = "i8".repeat(short.split(',').count());
    let _ = writeln!(
        script,
        "local format = '<{format}'\n\
         if wait ~= 0 or extra ~= 0{or_refunded} then\n\
         format, reset = '<{format}i8i8i8', -1 - reset\nend"
    );
    format!("pack(format, {short}, wait, extra, {refunded})")
}

/// The script that settles what such a check charged. Each limit is settled alone, one after the other.
pub(super) fn settle(fragments: &[Fragment], options: &Options) -> String {
    let bans = options.ban.is_some();
    let mut script = String::new();
    let mut receipt = unpack("now, charge, charged_at", 1, &mut script);
    library(fragments, options, &mut script);
    let mut at = receipt + 32 * fragments.len();
    if bans {
        at = unpack(BAN_NAMES, at, &mut script);
    }
    begin(fragments, options, |place| format!("KEYS[{place}]"), &mut script);
    script.push_str(SETTLE);
    if has_members(fragments) {
        // A refund names its value by the receipt.
        script.push_str("local member_high, member_low = 0, 0\n");
    }
    for (i, fragment) in fragments.iter().enumerate() {
        let _ = writeln!(script, "do\nlocal key, granted, cost, need = KEYS[{}], 0, 0, 1", i + 1);
        receipt = unpack(RECEIPT, receipt, &mut script);
        at = unpack(fragment.names, at, &mut script);
        fragment.counts(options.overrides, &mut script);
        let parts = fragment.parts();
        parts.iter().for_each(|part| script.push_str(part));
        let packed = pack("", &fragment.counts_replied(options.overrides), parts[2], &mut script);
        let _ = writeln!(script, "rest = rest .. {packed}\nend");
    }
    if bans {
        script.push_str(BAN_REPLY_LAST);
    }
    script.push_str("return pack('<i8i8', 0, now) .. rest\n");
    script
}

/// The variables for the arguments of a check for one subject, `members` if limits count values.
const fn question(classes: Classes, members: bool) -> &'static str {
    match (classes, members) {
        (Classes::One, false) => "granted, price",
        (Classes::Several, false) => "granted, price, kept_percent",
        (Classes::One, true) => "granted, price, member_high, member_low",
        (Classes::Several, true) => "granted, price, kept_percent, member_high, member_low",
    }
}

/// The number of arguments of a check for one subject.
pub(super) const fn question_size(classes: Classes, members: bool) -> usize {
    let value = if members { 2 } else { 0 };
    match classes {
        Classes::One => 2 + value,
        Classes::Several => 3 + value,
    }
}

fn has_members(fragments: &[Fragment]) -> bool {
    fragments.iter().any(|fragment| fragment.rank == DISTINCT.rank)
}

/// The script that releases permits.
pub(super) fn release() -> String {
    RELEASE.to_owned()
}

/// Appends what comes before all subjects.
fn library(fragments: &[Fragment], options: &Options, script: &mut String) {
    script.push_str(PRELUDE);
    let reads = options.overrides == Overrides::Read;
    for (call, source) in HELPERS {
        if fragments.iter().any(|fragment| fragment.source.contains(call))
            || reads && OVERRIDE.contains(call)
            || options.ban.is_some() && BAN.contains(call)
        {
            script.push_str(source);
        }
    }
}

/// Appends what is read of a subject before its limits. `key` is the Lua of its key in a place, from 1: those of the limits,
/// that of its overrides, those of its bans.
fn begin(fragments: &[Fragment], options: &Options, key: impl Fn(usize) -> String, script: &mut String) {
    let mut place = fragments.len();
    let mut next = || {
        place += 1;
        key(place)
    };
    if options.overrides == Overrides::Read {
        let _ = writeln!(script, "local override_key = {}", next());
        script.push_str(OVERRIDE);
    }
    if options.ban.is_some() {
        let _ = writeln!(script, "local ban_key, denials_key = {}, {}", next(), next());
        script.push_str(BAN);
    }
}

/// Other variables: each name gets this end.
fn ending_in(names: &str, end: impl Display) -> String {
    names.split(", ").map(|name| format!("{name}_{end}")).collect::<Vec<_>>().join(", ")
}

/// Appends a line that unpacks numbers from byte `at`. Returns where the next ones begin.
fn unpack(names: &str, at: usize, script: &mut String) -> usize {
    let count = names.split(',').count();
    let _ = writeln!(script, "local {names} = struct.unpack('<{}', ARGV[1], {at})", "i8".repeat(count));
    at + 8 * count
}
