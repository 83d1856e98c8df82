// SPDX-License-Identifier: Apache-2.0
//! The limits, table by table: the pure ones, and the Lua on a real Redis.

use std::sync::Arc;

use libtest_mimic::{Failed, Trial};
use weir::limit::{
    Align, Ask, Concurrency, FixedWindow, LeakyBucket, Limit, Outcome, Refill, SlidingLog, SlidingWindow,
    Subject, TokenBucket,
};
use weir::script::{Classes, MAX_LIMITS, NamedLimit, Options, Overrides, Plan};
use weir::time::Micros;
use weir_support::is_full;

use crate::redis::Shared;
use crate::spec;
use crate::store::{self, Store};

/// The tables against the pure limits, and where there is a Redis against the Lua.
pub fn trials(server: Option<&Arc<Shared>>) -> Vec<Trial> {
    let server = server.cloned();
    let mut trials = Vec::new();
    for (place, table) in spec::tables().into_iter().enumerate() {
        let limits = table.limits.clone();
        trials.push(Trial::test(format!("{} (pure)", table.name), move || {
            let mut subject = Subject::default();
            run(&spec::tables()[place], |row| subject.check(&limits, None, row.now, row.ask))
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{} (Lua)", table.name), move || {
            let table = &spec::tables()[place];
            let mut store = Store::new(&server, table.limits.clone());
            run(table, |row| store.check(Some(row.now), row.ask))
        }));
    }
    for (place, table) in spec::classes().into_iter().enumerate() {
        let limits = table.limits.clone();
        trials.push(Trial::test(format!("{} (pure)", table.name), move || {
            let mut subject = Subject::default();
            run(&spec::classes()[place], |row| subject.check(&limits, None, row.now, row.ask))
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{} (Lua)", table.name), move || {
            let table = &spec::classes()[place];
            let mut store = Store::new(&server, table.limits.clone());
            store.plan = store::plan_with(
                table.limits.clone(),
                Options { classes: Classes::Several, ..Options::default() },
            );
            run(table, |row| store.check(Some(row.now), row.ask))
        }));
    }
    for (place, table) in spec::bans().into_iter().enumerate() {
        let (limits, ban) = (table.limits.clone(), table.ban.clone());
        trials.push(Trial::test(format!("{} (pure)", table.name), move || {
            let mut subject = Subject::default();
            let check = |row: &spec::Row| subject.check(&limits, ban.as_ref(), row.now, row.ask);
            run(&spec::bans()[place], check)
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{} (Lua)", table.name), move || {
            let table = &spec::bans()[place];
            let mut store = Store::new(&server, table.limits.clone());
            store.plan = store::plan_with(
                table.limits.clone(),
                Options { ban: table.ban.clone(), ..Options::default() },
            );
            run(table, |row| store.check(Some(row.now), row.ask))
        }));
    }
    for (place, table) in spec::debts().into_iter().enumerate() {
        trials.push(Trial::test(format!("{} (pure)", table.name), move || {
            Ok(spec::debts()[place].holds_purely()?)
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{} (Lua)", table.name), move || {
            let table = &spec::debts()[place];
            let mut store = Store::new(&server, table.limits.clone());
            Ok(table.holds(|row, receipt| match row.settled {
                Some(units) => store.settle(Some(row.now), units, receipt),
                None => store.check(Some(row.now), row.ask),
            })?)
        }));
    }
    for (name, limit, step, steps, total) in totals() {
        let own = limit.clone();
        trials.push(Trial::test(format!("{name} (pure)"), move || {
            let mut subject = Subject::default();
            let limits = [own];
            adds_up(step, steps, total, |now| subject.check(&limits, None, now, ALL))
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{name} (Lua)"), move || {
            let mut store = Store::new(&server, vec![limit]);
            adds_up(step, steps, total, |now| store.check(Some(now), ALL))
        }));
    }
    for (later, left) in [(63, 937), (64, 931)] {
        let name = format!("sliding_log: a refund with {later} later grants leaves {left} of 1,000");
        let limits = [SlidingLog::new(1_000, Micros::from_secs(3_600)).expect("a log").into()];
        let (own, history) = (limits.clone(), refunded(later));
        trials.push(Trial::test(format!("{name} (pure)"), move || {
            let mut subject = Subject::default();
            let outcomes: Vec<Outcome> =
                history.iter().map(|(now, ask)| subject.check(&own, None, *now, *ask)).collect();
            leaves(left, &subject.settle(&own, None, spec::START.plus(Micros(later)), -5, &outcomes[0]))
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{name} (Lua)"), move || {
            let (mut store, history) = (Store::new(&server, limits.to_vec()), refunded(later));
            let outcomes: Vec<Outcome> =
                history.iter().map(|(now, ask)| store.check(Some(*now), *ask)).collect();
            leaves(left, &store.settle(Some(spec::START.plus(Micros(later))), -5, &outcomes[0]))
        }));
    }
    for (name, limits, times, cost, last) in changes() {
        let own = limits.clone();
        trials.push(Trial::test(format!("{name} (pure)"), move || {
            let mut subject = Subject::default();
            subject.check(&own[..1], None, times[0], Ask::new(1, cost));
            is(last, &subject.check(&own[1..], None, times[1], ONE))
        }));
        let Some(server) = server.clone() else { continue };
        trials.push(Trial::test(format!("{name} (Lua)"), move || {
            let mut store = Store::new(&server, limits[..1].to_vec());
            store.check(Some(times[0]), Ask::new(1, cost));
            store.plan = store::plan(limits[1..].to_vec());
            is(last, &store.check(Some(times[1]), ONE))
        }));
    }
    // It takes a minute, and Redis refuses most of what it would find.
    if is_full() {
        trials.push(Trial::test("luacheck knows every name of the linked scripts", luacheck));
    }
    trials
}

/// More than any of the limits below grants at once.
const ALL: Ask = Ask::new(u32::MAX, 1);

/// A limit that is always asked for all it has: every `step`, so many times; and the total of its grants, to the unit.
fn totals() -> Vec<(&'static str, Limit, Micros, u64, u64)> {
    let (second, hour, day) = (Micros::from_secs(1), Micros::from_secs(3_600), Micros::from_secs(86_400));
    let leaky = |rate, per, burst| LeakyBucket::new(rate, per, burst, Micros::ZERO).unwrap().into();
    let token = |refill, interval, capacity| {
        TokenBucket::new(capacity, refill, interval, Refill::Continuous, 0).unwrap().into()
    };
    vec![
        ("3 a second are 10,800 an hour", leaky(3, second, 3), second, 3_600, 3 + 10_800),
        ("3 a second, asked every 400 ms", leaky(3, second, 3), Micros::from_millis(400), 9_000, 3 + 10_800),
        ("7 a day are 2,562 in a leap year", token(7, day, 100), day, 366, 100 + 2_562),
        ("1 in 366 days", leaky(1, Micros(366 * day.0), 1), day, 732, 1 + 2),
        ("10^6 a second", leaky(1_000_000, second, 1_000), Micros::from_millis(1), 2_000, 1_000 + 2_000_000),
        ("999,983 a day, a prime number", token(999_983, day, 1_000_000), hour, 48, 1_000_000 + 2 * 999_983),
        ("10^9 - 1 an hour", leaky(999_999_999, hour, 10_000_000), second, 3_600, 10_000_000 + 999_999_999),
        (
            "10^12 - 1 in 366 days, asked every hour",
            token(999_999_999_999, Micros(366 * day.0), 1_000_000_000),
            hour,
            24 * 366 / 4,
            1_000_000_000 + 999_999_999_999 / 4,
        ),
        (
            "10^9 a second, a thousand a microsecond",
            leaky(1_000_000_000, second, 4_000_000),
            Micros::from_millis(1),
            1_000,
            4_000_000 + 1_000_000_000,
        ),
    ]
}

fn adds_up(
    step: Micros,
    steps: u64,
    total: u64,
    mut check: impl FnMut(Micros) -> Outcome,
) -> Result<(), Failed> {
    let mut now = spec::START;
    let mut granted = u64::from(check(now).granted);
    for _ in 0..steps {
        now = now.plus(step);
        granted += u64::from(check(now).granted);
    }
    if granted == total { Ok(()) } else { Err(format!("{granted} granted, not {total}").into()) }
}

const ONE: Ask = Ask::new(1, 1);

/// A limit, and another under which its subject is asked next: when both are asked, what is taken first, and then how many
/// are granted and when the limit is full again.
type Change = (&'static str, [Limit; 2], [Micros; 2], u64, (u32, Micros));

fn changes() -> Vec<Change> {
    let window = |limit, seconds| {
        Limit::from(FixedWindow::new(limit, Micros::from_secs(seconds), Align::Clock).unwrap())
    };
    let (at, s) = (|seconds| spec::START.plus(Micros::from_secs(seconds)), Micros::from_secs);
    let sliding =
        |slot| SlidingWindow::new(5, Micros::from_secs(60), Micros::from_secs(slot)).unwrap().into();
    // Too many for one number.
    let wide = |seconds| window(120_000_000, seconds);
    let permits = |ttl| Concurrency::new(1, s(ttl)).unwrap().into();
    vec![
        (
            "a window that got smaller counts up to two million units",
            [window(2_000_000, 60), window(1, 60)],
            [at(0); 2],
            2_000_000,
            (0, s(60)),
        ),
        (
            "beyond, it is taken for a window of another length",
            [window(2_000_001, 60), window(1, 60)],
            [at(0); 2],
            2_000_001,
            (1, s(60)),
        ),
        (
            "or up to 64 times its limit, if that is more",
            [window(6_400_000, 60), window(100_000, 60)],
            [at(0); 2],
            6_400_000,
            (0, s(60)),
        ),
        ("and beyond not", [window(6_400_001, 60), window(100_000, 60)], [at(0); 2], 6_400_001, (1, s(60))),
        (
            "one that is scaled counts all that its largest scale lets through",
            [window(40_000_000, 60), window(100_000, 60).up_to(400)],
            [at(0); 2],
            40_000_000,
            (0, s(60)),
        ),
        (
            "a longer window counts from its own beginning",
            [wide(30), wide(60)],
            [at(30), at(40)],
            7,
            (1, s(20)),
        ),
        ("as many slots as before count", [sliding(60), sliding(60)], [at(0); 2], 5, (0, s(120))),
        ("slots of another number count as none", [sliding(60), sliding(30)], [at(0); 2], 5, (1, s(90))),
        ("a longer window does so at once", [wide(30), wide(60)], [at(30); 2], 7, (1, s(30))),
        (
            "a longer window, and the clock went back by a moment",
            [wide(30), wide(60)],
            [at(30), at(29)],
            7,
            (1, s(61)),
        ),
        (
            "permits of a longer ttl keep it",
            [permits(3_600), permits(60)],
            [at(0), at(90)],
            1,
            (0, s(3_600 - 90)),
        ),
        (
            "and beside those of a shorter one, both end",
            [permits(16), permits(3_600)],
            [at(0), at(15)],
            1,
            (0, s(1)),
        ),
    ]
}

fn is((granted, reset): (u32, Micros), outcome: &Outcome) -> Result<(), Failed> {
    let found = (outcome.granted, outcome.limits[0].reset);
    if found == (granted, reset) { Ok(()) } else { Err(format!("{outcome:#?}").into()) }
}

/// A grant of 5 units, and so many later ones of one unit, a microsecond apart.
fn refunded(later: u64) -> Vec<(Micros, Ask)> {
    let cost = |place| if place == 0 { 5 } else { 1 };
    (0..=later).map(|place| (spec::START.plus(Micros(place)), Ask::new(1, cost(place)))).collect()
}

fn leaves(left: i64, outcome: &Outcome) -> Result<(), Failed> {
    let found = outcome.limits[0].remaining;
    if found == left { Ok(()) } else { Err(format!("{found} left, not {left}").into()) }
}

/// The fragments are linted apart, where most of their names are unknown; here all must be known.
fn luacheck() -> Result<(), Failed> {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("lua");
    std::fs::create_dir_all(&directory)?;
    let each = || spec::each().into_iter().map(|(_, limit)| limit);
    let mut policies: Vec<Vec<Limit>> = each().map(|limit| vec![limit]).collect();
    policies.extend([each().take(MAX_LIMITS).collect(), each().rev().take(MAX_LIMITS).collect()]);
    let named = |(i, limit)| NamedLimit { name: format!("limit{i}"), limit };
    let ban = || spec::bans().remove(0).ban;
    for (i, ((limits, overrides, ban), classes)) in policies
        .into_iter()
        .flat_map(|limits| [(limits.clone(), Overrides::Ignored), (limits, Overrides::Read)])
        .flat_map(|(limits, overrides)| [(limits.clone(), overrides, None), (limits, overrides, ban())])
        .flat_map(|policy| [(policy.clone(), Classes::One), (policy, Classes::Several)])
        .enumerate()
    {
        let limits = limits.into_iter().enumerate().map(named).collect();
        let plan = Plan::new(limits, Options { overrides, ban, classes })?;
        for (source, name) in plan.sources().into_iter().zip(["check", "settle", "release"]) {
            std::fs::write(directory.join(format!("{i}.{name}.lua")), source)?;
        }
    }
    let known = [
        "KEYS", "ARGV", "_G", "redis", "struct", "math", "cjson", "type", "tonumber", "error", "pcall",
        "ipairs", "table",
    ];
    let mut command = std::process::Command::new("luacheck");
    command.args(["--no-config", "--std", "none", "--no-max-line-length", "--no-unused", "--no-redefined"]);
    command.arg(directory.as_os_str()).arg("--read-globals").args(known);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stdout).into_owned().into()),
        Err(_) => {
            weir_support::not_tested("no luacheck here");
            Ok(())
        }
    }
}

fn run(table: &spec::Table, mut check: impl FnMut(&spec::Row) -> weir::limit::Outcome) -> Result<(), Failed> {
    for row in &table.rows {
        let outcome = check(row);
        row.holds(&table.limits, &outcome)?;
    }
    Ok(())
}
