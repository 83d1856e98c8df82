// SPDX-License-Identifier: Apache-2.0
//! The parameters that a limit may have, and the values that it reports of itself.

use crate::spec;
use weir::inline_vec::InlineVec;
use weir::limit::{
    Align, Ask, Ban, Concurrency, FixedWindow, Invalid, LeakyBucket, Limit, LimitOutcome, Outcome, Period,
    Refill, SlidingLog, SlidingWindow, Subject, TokenBucket, UtcOffset,
};
use weir::script::{Classes, Form, NamedLimit, Options, Overrides, Plan};
use weir::time::Micros;

const DAY: u64 = 86_400_000_000;
const MOST: u64 = 1_000_000_000_000;
const UNITS: &str = "1 to 1000000000000";
const WINDOW: &str = "1 ms to 366 days";
const TEN_YEARS: u64 = 3_660;

fn fixed(limit: u64, window: u64) -> Result<Limit, Invalid> {
    FixedWindow::new(limit, Micros(window), Align::Clock).map(Limit::from)
}

fn log(window: u64) -> Result<Limit, Invalid> {
    SlidingLog::new(1, Micros(window)).map(Limit::from)
}

fn sliding(limit: u64, window: u64, precision: u64) -> Result<Limit, Invalid> {
    SlidingWindow::new(limit, Micros(window), Micros(precision)).map(Limit::from)
}

fn token(capacity: u64, refill: u64, interval: u64, overdraft: u64) -> Result<Limit, Invalid> {
    TokenBucket::new(capacity, refill, Micros(interval), Refill::Continuous, overdraft).map(Limit::from)
}

fn steps(capacity: u64, refill: u64, interval: u64, overdraft: u64) -> Result<Limit, Invalid> {
    TokenBucket::new(capacity, refill, Micros(interval), Refill::Stepwise, overdraft).map(Limit::from)
}

fn leaky(rate: u64, per: u64, burst: u64, max_delay: u64) -> Result<Limit, Invalid> {
    LeakyBucket::new(rate, Micros(per), burst, Micros(max_delay)).map(Limit::from)
}

fn in_flight(limit: u64, ttl: u64) -> Result<Limit, Invalid> {
    Concurrency::new(limit, Micros(ttl)).map(Limit::from)
}

#[test]
fn the_least_and_the_most_are_allowed() {
    for (row, built) in [
        ("the smallest fixed_window", fixed(1, 1_000)),
        ("the largest fixed_window", fixed(MOST, 366 * DAY)),
        ("the shortest sliding_log", log(1_000)),
        ("the longest sliding_log", log(366 * DAY)),
        ("sliding_window of one slot", sliding(1, 1_000, 1_000)),
        ("sliding_window of a hundred slots", sliding(MOST, 366 * DAY, 366 * DAY / 100)),
        ("the smallest token_bucket", token(1, 1, 1_000, 0)),
        ("the largest token_bucket", token(MOST, MOST, 366 * DAY, MOST)),
        ("ten years to fill up", token(TEN_YEARS, 1, DAY, 0)),
        ("ten years to fill up, with the overdraft", token(TEN_YEARS - 5, 1, DAY, 5)),
        ("ten years to fill up in steps", steps(TEN_YEARS, 1, DAY, 0)),
        ("ten years to fill up in steps, with the overdraft", steps(TEN_YEARS * 3 - 5, 3, DAY, 5)),
        ("the smallest leaky_bucket", leaky(1, 1_000, 1, 0)),
        ("the largest leaky_bucket", leaky(MOST, 366 * DAY, MOST, 0)),
        ("a request held for 366 days", leaky(1, DAY, 1, 366 * DAY)),
        ("as many held as are counted", leaky(MOST / 2, DAY, MOST / 2, DAY)),
        ("the smallest concurrency", in_flight(1, 1_000)),
        ("the largest concurrency", in_flight(MOST, 366 * DAY)),
    ] {
        assert_eq!(built.err(), None, "{row}");
    }
}

#[test]
fn what_is_beyond_is_refused_and_the_parameter_named() {
    let slots = "the window divided by a whole number from 1 to 100";
    let fills = "what flows in at most 3660 days (with max_delay and overdraft)";
    let fills_in_steps = "what fills up within 3660 days (with the overdraft)";
    #[rustfmt::skip]
    let rows = [
        (fixed(0, 1_000), "limit is 0", UNITS),
        (fixed(MOST + 1, 1_000), "limit is 1000000000001", UNITS),
        (fixed(1, 999), "window is 999us", WINDOW),
        (fixed(1, 366 * DAY + 1), "window is 31622400000001us", WINDOW),
        (log(999), "window is 999us", WINDOW),
        (log(366 * DAY + 1), "window is 31622400000001us", WINDOW),
        (sliding(0, 1_000, 1_000), "limit is 0", UNITS),
        (sliding(1, 999, 999), "window is 999us", WINDOW),
        (sliding(1, 10_000, 0), "precision is 0us", slots),
        (sliding(1, 10_000, 3_000), "precision is 3000us", slots),
        (sliding(1, 10_000, 20_000), "precision is 20000us", slots),
        (sliding(1, 10_100, 100), "precision is 100us", "the window divided by a whole number from 1 to 100"),
        (token(0, 1, 1_000, 0), "capacity is 0", UNITS),
        (token(1, 0, 1_000, 0), "refill is 0", UNITS),
        (token(1, 1, 999, 0), "interval is 999us", WINDOW),
        (token(1, 1, 1_000, MOST + 1), "overdraft is 1000000000001", "0 to 1000000000000"),
        (token(TEN_YEARS + 1, 1, DAY, 0), "capacity is 3661", fills),
        (token(TEN_YEARS - 5, 1, DAY, 6), "capacity is 3655", fills),
        (steps(TEN_YEARS + 1, 1, DAY, 0), "capacity is 3661", fills_in_steps),
        (steps(TEN_YEARS * 3 - 5, 3, DAY, 6), "capacity is 10975", fills_in_steps),
        (leaky(0, 1_000, 1, 0), "rate is 0", UNITS),
        (leaky(1, 1_000, 0, 0), "burst is 0", UNITS),
        (leaky(1, 999, 1, 0), "per is 999us", WINDOW),
        (leaky(1, 1_000, 1, 366 * DAY + 1), "max_delay is 31622400000001us", "0 to 366 days"),
        (leaky(1, 366 * DAY, 10, 366 * DAY), "burst is 10", fills),
        (leaky(MOST / 2, DAY, MOST / 2 + 1, DAY), "max_delay is 86400000000us", "what lets at most 1000000000000 units wait"),
        (in_flight(0, 1_000), "limit is 0", UNITS),
        (in_flight(1, 999), "ttl is 999us", WINDOW),
    ];
    for (built, found, allowed) in rows {
        let said = built.expect_err(found).to_string();
        assert_eq!(said, format!("{found}, allowed is {allowed}"));
    }
}

/// A limit of each algorithm, without debt and with it.
fn with_debt() -> impl Iterator<Item = (&'static str, Limit)> {
    spec::each().into_iter().chain(spec::each_indebted())
}

#[test]
fn a_debt_out_of_bounds_is_refused_and_the_bound_named() {
    let long_log = |limit| SlidingLog::new(limit, Micros(DAY)).map(Limit::from);
    let flows = "what flows back within 3660 days (with the quota and the overdraft)";
    let log = "because a sliding_log keeps at most 100000 units (sliding_window allows more)";
    let permit = "0, because a request holds a permit, and no charge takes one";
    let rows = [
        ("the largest window", fixed(MOST, 366 * DAY), 32, None),
        ("more than the most", fixed(1, 1_000), 33, Some("0 to 32".to_owned())),
        ("far more", fixed(1, 1_000), u32::MAX, Some("0 to 32".to_owned())),
        ("the largest slots", sliding(MOST, 366 * DAY, 366 * DAY), 32, None),
        ("a log that fits", long_log(33_333), 2, None),
        ("a log that does not", long_log(33_334), 2, Some(format!("0 to 1, {log}"))),
        ("the largest log", long_log(100_000), 1, Some(format!("0 to 0, {log}"))),
        ("the largest log without debt", long_log(100_000), 0, None),
        ("ten years to flow back", leaky(1, DAY, 915, 0), 3, None),
        ("more than ten years", leaky(1, DAY, 916, 0), 3, Some(flows.to_owned())),
        ("with what may wait", leaky(1, DAY, 905, 11 * DAY), 3, Some(flows.to_owned())),
        ("ten years, with the overdraft", token(1_828, 1, DAY, 4), 1, None),
        ("more, with the overdraft", token(1_828, 1, DAY, 5), 1, Some(flows.to_owned())),
        ("ten years of steps", steps(1_828 * 3, 3, DAY, 12), 1, None),
        ("more steps", steps(1_828 * 3, 3, DAY, 13), 1, Some(flows.to_owned())),
        ("the largest bucket", token(MOST, MOST, 111 * DAY, 0), 31, None),
        ("permits", in_flight(5, 1_000), 1, Some(permit.to_owned())),
        ("permits without debt", in_flight(5, 1_000), 0, None),
    ];
    for (row, limit, times, allowed) in rows {
        let refused = limit.unwrap().indebted(times).err().map(|invalid| invalid.to_string());
        assert_eq!(refused, allowed.map(|allowed| format!("debt is {times}, allowed is {allowed}")), "{row}");
    }
}

/// The remaining amount after the largest charges.
fn lowest(limit: &Limit) -> i64 {
    let (mut subject, limits) = (Subject::default(), [limit.clone()]);
    let receipt = subject.check(&limits, None, spec::START, Ask::new(0, 0));
    let settled =
        (0..40).map(|_| subject.settle(&limits, None, spec::START, i64::MAX, &receipt).limits[0].remaining);
    settled.min().unwrap()
}

#[test]
fn a_limit_keeps_its_debt_as_far_as_its_bounds_allow() {
    for (row, limit) in spec::each_indebted() {
        let (quota, overdraft) = (limit.quota() as i64, limit.counts()[2] as i64);
        assert_eq!(lowest(&limit), -3 * quota - overdraft, "{row}");
        let share = limit.local_share(2);
        assert_eq!(
            (share.debt(), lowest(&share)),
            (3, -3 * share.quota() as i64 - share.counts()[2] as i64),
            "{row}"
        );
        if let Ok(scaled) = limit.scaled(2) {
            assert_eq!((scaled.debt(), limit.with_counts(scaled.counts())), (3, Ok(scaled)), "{row}");
        }
        assert_eq!(lowest(&limit.indebted(0).unwrap()), -overdraft, "{row}, without debt");
    }
    let indebted = |limit: Result<Limit, Invalid>| limit.unwrap().indebted(3).unwrap();
    let log = indebted(SlidingLog::new(10, Micros(DAY)).map(Limit::from));
    for (row, limit, counts, left) in [
        ("a log that has room for a part of it", &log, [60_000, 0, 0], -40_000),
        ("a log that has no room for it", &log, [100_000, 0, 0], 0),
        ("a bucket that flows back in ten years", &indebted(leaky(1, DAY, 5, 0)), [1, 1_000, 0], -2_660),
        ("a bucket that fills in ten years", &indebted(token(5, 1, DAY, 0)), [1, 3_650, 10], -10),
        ("steps that come in ten years", &indebted(steps(5, 2, DAY, 0)), [2, 4_000, 20], -3_320),
        ("the largest window", &indebted(fixed(5, DAY)), [MOST, 0, 0], -3_000_000_000_000),
    ] {
        let larger = limit.with_counts(counts).unwrap();
        assert_eq!((lowest(&larger), larger.debt()), (left, 3), "{row}");
        // With its first counts it has its whole debt again.
        assert_eq!(larger.with_counts(limit.counts()).as_ref(), Ok(limit), "{row}");
    }
}

/// Asks a subject that has not been asked about before.
fn fresh(limit: &Limit, requests: u32, cost: u64) -> Outcome {
    Subject::default().check(std::slice::from_ref(limit), None, spec::START, Ask::new(requests, cost))
}

#[test]
fn the_quota_is_what_a_fresh_subject_has_and_the_cost_is_what_a_request_takes_of_it() {
    for (row, limit) in spec::each() {
        let quota = i64::try_from(limit.quota()).unwrap();
        assert_eq!(fresh(&limit, 0, 0).limits[0].remaining, quota, "{row}");
        for cost in [1, 3] {
            let (ask, outcome) = (Ask::new(1, cost), fresh(&limit, 1, cost));
            let taken = u64::try_from(quota - outcome.limits[0].remaining).unwrap();
            // The first request with a value adds it, and each further one costs nothing.
            let first = if matches!(limit, Limit::Distinct(_)) { 1 } else { limit.cost(ask) };
            assert_eq!((outcome.granted, taken), (1, first), "{row}");
        }
    }
}

#[test]
fn a_limit_is_the_same_with_its_own_counts_and_another_with_others() {
    for (row, limit) in with_debt() {
        assert_eq!(limit.with_counts(limit.counts()), Ok(limit), "{row}");
    }
    let others = [7, 8, 9];
    for (limit, counts, other) in [
        (fixed(5, 1_000), [5, 0, 0], fixed(7, 1_000)),
        (log(1_000), [1, 0, 0], SlidingLog::new(7, Micros(1_000)).map(Limit::from)),
        (sliding(5, 1_000, 500), [5, 0, 0], sliding(7, 1_000, 500)),
        (token(5, 2, 1_000, 3), [2, 5, 3], token(8, 7, 1_000, 9)),
        (steps(5, 2, 1_000, 3), [2, 5, 3], steps(8, 7, 1_000, 9)),
        (leaky(2, 1_000, 5, 30), [2, 5, 0], leaky(7, 1_000, 8, 30)),
        (in_flight(5, 1_000), [5, 0, 0], in_flight(7, 1_000)),
    ] {
        let limit = limit.unwrap();
        assert_eq!((limit.counts(), limit.with_counts(others)), (counts, other));
    }
}

/// The store says when a window that is in use ends. The clock says it of a window on the clock that is not in use.
#[test]
fn the_effective_window_of_a_fixed_window_is_its_rest() {
    let rows = [
        ("on the clock, in use", Align::Clock, 7, 7),
        ("on the clock, unused", Align::Clock, 0, 10_000_000 - 3_000_000),
        ("from the first request, in use", Align::First, 7, 7),
        ("from the first request, unused", Align::First, 0, 10_000_000),
        ("a month, in use", Align::Calendar(Period::MONTH, UtcOffset::UTC), 7, 7),
        // From 22:13:23 on 14 November 2023.
        (
            "a month, unused",
            Align::Calendar(Period::MONTH, UtcOffset::UTC),
            0,
            16 * 86_400_000_000 + 6_397_000_000,
        ),
    ];
    for (row, align, reset, rest) in rows {
        let limit = Limit::from(FixedWindow::new(5, Micros::from_secs(10), align).unwrap());
        let answer = LimitOutcome { reset: Micros(reset), ..LimitOutcome::default() };
        assert_eq!(
            limit.effective_window(5, 0, &answer, Micros(1_700_000_003_000_000)),
            Micros(rest),
            "{row}"
        );
    }
}

#[test]
fn requests_that_are_held_leave_as_far_apart_as_their_units_flow() {
    // Three units at once, and two a second: the second request of two units waits for one of them, each after it for two.
    let limits = [leaky(2, 1_000_000, 3, 5_000_000).unwrap()];
    let ask = Ask::new(5, 2);
    let outcome = Subject::default().check(&limits, None, spec::START, ask);
    let held: Vec<u64> = (0..5).map(|index| outcome.allotment(&limits, index, ask).delay.0).collect();
    assert_eq!((outcome.granted, held), (5, vec![0, 500_000, 1_500_000, 2_500_000, 3_500_000]));
}

/// A plan at a scale is the plan of limits so many times as large: the same command, but perhaps for the script of a bucket.
#[test]
fn a_plan_at_a_scale_is_that_of_larger_limits() {
    let plan = |limits: Vec<Limit>, overrides| {
        let named = |(place, limit)| NamedLimit { name: format!("limit{place}"), limit };
        let ban = Ban::new(3, Micros(60_000_000), Micros(60_000_000), 1, Micros(60_000_000)).unwrap();
        let limits = limits.into_iter().enumerate().map(named).collect();
        let options = Options { overrides, ban: Some(ban), classes: Classes::Several };
        Plan::new(limits, options).unwrap().under("other")
    };
    let command = |plan: &Plan| {
        let mut out = Vec::new();
        plan.check(b"{p|s}", Ask::new(3, 2), None, Form::Evalsha, &mut out);
        plan.settle(
            b"{p|s}",
            2,
            &Subject::default().check(plan.limits(), None, spec::START, Ask::new(1, 1)),
            None,
            Form::Evalsha,
            &mut out,
        );
        out
    };
    let (mut relinked, mut shared) = (0, 0);
    for (_, limit) in with_debt() {
        for scale in [1, 2, 7, 1_000, 100_000_000] {
            let limits = vec![leaky(3, 1_000_000, 5, 0).unwrap(), limit.clone()];
            let larger: Result<Vec<_>, _> = limits.iter().map(|limit| limit.scaled(scale)).collect();
            let Ok(larger) = larger else { continue };
            // No subject has limits of its own that go into debt.
            let each = [Overrides::Ignored, Overrides::Read];
            for overrides in each.into_iter().take(if limit.debt() > 0 { 1 } else { 2 }) {
                let base = plan(limits.clone(), overrides);
                let (scaled, wanted) = (base.scaled(scale).unwrap(), plan(larger.clone(), overrides));
                assert_eq!(
                    (scaled.limits(), command(&scaled)),
                    (&larger[..], command(&wanted)),
                    "{limit:?}, {scale}"
                );
                *if scaled.sha() == base.sha() { &mut shared } else { &mut relinked } += 1;
            }
        }
    }
    assert!(relinked > 0 && shared > relinked, "{relinked} of other scripts, {shared} of the same");
    assert!(plan(vec![leaky(1, 1_000, 1, 0).unwrap()], Overrides::Ignored).scaled(u64::MAX).is_err());
}

#[test]
fn a_window_on_the_clock_is_counted_by_one_call_where_one_number_holds_it() {
    let first = FixedWindow::new(5, Micros(1_000), Align::First).map(Limit::from);
    for (row, limit, one_call) in [
        ("less than two units a microsecond", fixed(1_999, 1_000), true),
        ("two units a microsecond", fixed(2_000, 1_000), false),
        ("a window that begins with a request", first, false),
        ("a window that goes into debt", fixed(1, 1_000).and_then(|limit| limit.indebted(1)), false),
    ] {
        let plan =
            Plan::new(vec![NamedLimit { name: "l".into(), limit: limit.unwrap() }], Options::default())
                .unwrap();
        assert_eq!(plan.source().contains("INCRBY"), one_call, "{row}");
    }
}

/// The times to try: a grant at the start; then a clock that is ahead by so many seconds; then the true time.
const CLOCKS: [(u64, u64); 7] = [(1, 5), (10, 12), (25, 30), (59, 61), (60, 61), (119, 121), (5, 7_200)];

fn at(seconds: u64) -> Micros {
    spec::START.plus(Micros::from_secs(seconds))
}

/// The difference, if any, between a subject and one that has been through `more` at a time ahead, when both are asked next.
fn differs(
    limits: &[Limit],
    granted: u32,
    (asked, ahead): (u64, u64),
    more: impl FnOnce(&mut Subject, Micros),
) -> Option<[Outcome; 2]> {
    let mut subject = Subject::default();
    subject.check(limits, None, at(0), Ask::new(granted, 4));
    let mut other = subject.clone();
    more(&mut other, at(ahead));
    let outcomes = [subject, other].map(|mut subject| subject.check(limits, None, at(asked), Ask::new(2, 1)));
    (outcomes[0] != outcomes[1]).then_some(outcomes)
}

/// A question without requests may correct what a clock that went back has left behind. It must not bring forward what
/// time would do, or a clock that then goes back finds it done already.
#[test]
fn a_question_that_takes_nothing_changes_nothing() {
    // A log forgets what has left the window at any question: nothing else would.
    for (row, limit) in with_debt().filter(|(row, _)| *row != "sliding_log") {
        let limits = [limit];
        for (clock, granted) in CLOCKS.into_iter().flat_map(|clock| [(clock, 0), (clock, 1)]) {
            let question = |subject: &mut Subject, now| {
                subject.check(&limits, None, now, Ask::new(0, 0));
            };
            assert_eq!(
                differs(&limits, granted, clock, question),
                None,
                "{row}: {clock:?}, {granted} granted"
            );
        }
    }
}

#[test]
fn a_settlement_that_finds_nothing_to_settle_changes_nothing() {
    let limits: InlineVec<_> = [LimitOutcome::default()].into_iter().collect();
    let receipt = |at| Outcome { granted: 1, at, limits: limits.clone(), ..Outcome::NONE };
    // A bucket that refills in steps takes those that have come into account whenever it is settled.
    let settled = |row: &str| !row.starts_with("sliding_log") && !row.contains("stepwise");
    for (row, limit) in with_debt().filter(|(row, _)| settled(row)) {
        let limits = [limit];
        for (clock, units) in CLOCKS.into_iter().flat_map(|clock| [(clock, 0), (clock, -1)]) {
            for granted in [0, 1] {
                let settle = |subject: &mut Subject, now| {
                    subject.settle(&limits, None, now, units, &receipt(Micros(1)));
                };
                assert_eq!(differs(&limits, granted, clock, settle), None, "{row}: {clock:?}, {units} units");
                let settle_own = |subject: &mut Subject, now| {
                    subject.settle(&limits, None, now, units, &receipt(now));
                };
                // A window later, nothing was charged.
                let charged = clock.1 <= 60 && granted > 0;
                let found = if charged { None } else { differs(&limits, granted, clock, settle_own) };
                assert_eq!(found, None, "{row}: {clock:?}, {units} units of that time");
            }
        }
    }
}

#[test]
fn a_window_whose_grants_are_all_refunded_is_as_if_nobody_had_asked() {
    let windows = |row: &str| row.starts_with("fixed_window") || row.starts_with("sliding");
    for (row, limit) in with_debt().filter(|(row, _)| windows(row)) {
        let limits = [limit];
        for clock in CLOCKS {
            let refund = |subject: &mut Subject, now| {
                let receipt = subject.check(&limits, None, now, Ask::new(1, 3));
                subject.settle(&limits, None, now, -3, &receipt);
            };
            assert_eq!(differs(&limits, 0, clock, refund), None, "{row}: {clock:?}");
        }
    }
}

#[test]
fn a_window_begins_with_the_first_request_also_where_time_begins() {
    let limits = [FixedWindow::new(5, Micros::from_secs(60), Align::First).unwrap().into()];
    let outcome = Subject::default().check(&limits, None, Micros(7), Ask::new(1, 1));
    assert_eq!(outcome.limits[0].reset, Micros::from_secs(60));
}

#[test]
fn a_share_has_its_part_of_the_overdraft() {
    let (whole, share) = (token(9, 3, 1_000, 7).unwrap(), token(3, 3, 3_000, 2).unwrap());
    assert_eq!(whole.local_share(3), share);
}

#[test]
fn a_limit_says_how_long_it_takes_to_be_whole_again() {
    const S: u64 = 1_000_000;
    let until_next_day = FixedWindow::new(5, Micros(DAY), Align::Clock).map(Limit::from);
    for (row, limit, period, whole) in [
        ("fixed_window", fixed(5, 10 * S), Some(10 * S), 10 * S),
        ("fixed_window of a day", until_next_day, Some(DAY), DAY),
        ("sliding_log", log(7 * S), Some(7 * S), 7 * S),
        ("sliding_window: the newest slot is the last to go", sliding(5, 10 * S, S), Some(10 * S), 11 * S),
        ("token_bucket", token(30, 10, S, 0), Some(3 * S), 3 * S),
        ("token_bucket: a part of an interval", token(25, 10, S, 0), Some(5 * S / 2), 5 * S / 2),
        ("token_bucket, stepwise: whole intervals", steps(25, 10, S, 0), Some(3 * S), 3 * S),
        ("leaky_bucket", leaky(10, S, 30, 0), Some(3 * S), 3 * S),
        ("leaky_bucket of less than a rate", leaky(100, S, 1, 0), Some(S / 100), S / 100),
        ("leaky_bucket that holds", leaky(10, S, 30, 2 * S), Some(5 * S), 5 * S),
        ("concurrency: no units flow", in_flight(5, 60 * S), None, 60 * S),
    ] {
        let limit = limit.expect(row);
        assert_eq!(limit.period(), period.map(Micros), "{row}");
        assert_eq!(limit.whole_within(), Micros(whole), "{row}");
    }
}

#[test]
fn a_limit_says_how_much_of_it_is_kept() {
    let limit = token(50, 1, 1_000, 0).unwrap();
    for (percent, kept) in [(0, 0), (10, 5), (90, 45), (1, 1)] {
        assert_eq!(limit.kept(Ask { kept_percent: percent, ..Ask::new(1, 1) }), kept, "{percent} %");
    }
}

#[test]
fn limits_count_alike_if_they_mean_the_same_by_one_state() {
    const S: u64 = 1_000_000;
    for (row, one, other, alike) in [
        ("the same window", fixed(5, S), fixed(5, S), true),
        ("another limit of a window", fixed(5, S), fixed(6, S), false),
        ("another algorithm", fixed(1, S), log(S), false),
        ("leaky buckets of one rate", leaky(10, S, 5, 0), leaky(10, S, 50, S), true),
        ("leaky buckets of two rates", leaky(10, S, 5, 0), leaky(11, S, 5, 0), false),
        ("one rate in two ways: another period", leaky(10, S, 5, 0), leaky(20, 2 * S, 5, 0), false),
        ("permits that last as long", in_flight(5, S), in_flight(50, S), true),
        ("permits that last longer", in_flight(5, S), in_flight(5, 2 * S), false),
        ("a bucket and permits", leaky(10, S, 5, 0), in_flight(5, S), false),
    ] {
        let (one, other) = (one.expect(row), other.expect(row));
        assert_eq!((one.counts_like(&other), other.counts_like(&one)), (alike, alike), "{row}");
    }
}

/// The units that a larger bucket has granted count as used in a smaller one on the same state; alone, the smaller one takes them for a
/// clock that was set back.
#[test]
fn a_shared_bucket_knows_what_another_has_granted() {
    const S: u64 = 1_000_000;
    let (small, large) = (leaky(10, S, 5, 0).unwrap(), leaky(10, S, 50, 0).unwrap());
    let mut subject = Subject::default();
    assert_eq!(subject.check(std::slice::from_ref(&large), None, spec::START, Ask::new(40, 1)).granted, 40);
    let left = |limit: Limit| {
        let outcome = subject.clone().check(&[limit], None, spec::START, Ask::new(1, 1));
        (outcome.granted, outcome.limits[0].remaining)
    };
    assert_eq!(left(small.sharing(&large)), (0, -35));
    assert_eq!(left(small), (0, 0));
}

/// The clock of a store may go back. A request that asks for nothing leaves nothing behind that counts then.
#[test]
fn a_request_that_costs_nothing_leaves_an_idle_bucket_as_it_was() {
    let limits = [leaky(10, 1_000_000, 5, 0).unwrap()];
    let mut subject = Subject::default();
    let later = spec::START.plus(Micros::from_secs(60));
    assert_eq!(subject.check(&limits, None, spec::START, Ask::new(1, 1)).granted, 1);
    assert_eq!(subject.check(&limits, None, later, Ask::new(1, 0)).granted, 1);
    let outcome = subject.check(&limits, None, spec::START.plus(Micros::from_secs(1)), Ask::new(0, 1));
    assert_eq!((outcome.limits[0].remaining, outcome.limits[0].reset), (5, Micros::ZERO));
}

/// However far the clock goes back: a `ttl` that is smaller now must not shorten a live permit, and looks the same. Ends are multiples of
/// 3.75 s here.
#[test]
fn permits_last_until_their_end_if_the_clock_goes_back() {
    let limits = [in_flight(1, 60_000_000).unwrap()];
    for (back, left_ms) in [(60, 120_000), (64, 124_000)] {
        let mut subject = Subject::default();
        assert_eq!(subject.check(&limits, None, spec::START, Ask::new(1, 1)).granted, 1);
        let now = spec::START.since(Micros::from_secs(back));
        let outcome = subject.check(&limits, None, now, Ask::new(1, 1));
        assert_eq!(
            (outcome.granted, outcome.limits[0].reset),
            (0, Micros::from_millis(left_ms)),
            "{back} s back"
        );
    }
}

#[test]
fn only_concurrency_limits_hold_permits() {
    let limits = [token(5, 1, 1_000, 0).unwrap(), in_flight(5, 60_000_000).unwrap()];
    let outcome = Subject::default().check(&limits, None, spec::START, Ask::new(2, 1));
    let held: Vec<_> = outcome.permits(2).map(|permits| (permits.limit, permits.count)).collect();
    assert_eq!(held, [(1, 2)]);
}

#[test]
fn an_offset_is_at_most_a_day() {
    for (minutes, kept) in [(0, 0), (90, 90), (-330, -330), (2_000, 1_440), (-2_000, -1_440)] {
        assert_eq!(UtcOffset::from_minutes(minutes).minutes(), kept);
    }
}

/// The number of units that come back within a second.
#[test]
fn what_comes_back_within_a_time() {
    const SECOND: u64 = 1_000_000;
    for (limit, units) in [
        (fixed(600, 60 * SECOND), 10),
        (sliding(600, 60 * SECOND, 15 * SECOND), 8),
        (token(90, 50, 10 * SECOND, 3), 5),
        (steps(90, 50, 10 * SECOND, 3), 5),
        (leaky(7, SECOND / 2, 9, SECOND), 14),
        (Concurrency::new(9, Micros(SECOND)).map(Limit::from), 0),
    ] {
        let limit = limit.unwrap();
        assert_eq!(limit.flow(Micros(SECOND)), units, "{limit:?}");
    }
}

/// A refund of a `sliding_log` corrects the entries since the charge, if these are at most 64, also those of one microsecond.
#[test]
fn a_refund_to_a_log_corrects_so_many_entries() {
    let limits = [SlidingLog::new(1_000, Micros(60_000_000)).map(Limit::from).unwrap()];
    for (entries, refunded) in [(64, 1), (65, 0)] {
        let mut subject = Subject::default();
        let receipt = subject.check(&limits, None, spec::START, Ask::new(1, 1));
        (1..entries)
            .for_each(|_| assert_eq!(subject.check(&limits, None, spec::START, Ask::new(1, 1)).granted, 1));
        subject.settle(&limits, None, spec::START, -1, &receipt);
        let left = subject.check(&limits, None, spec::START, Ask::new(0, 1)).limits[0].remaining;
        assert_eq!(left, 1_000 - entries + refunded, "{entries} entries");
    }
}

/// Natively, `tests/redis/scripts/tables.rs` runs them.
#[cfg(target_arch = "wasm32")]
#[wasm_bindgen_test::wasm_bindgen_test]
fn the_tables_of_the_limits_hold_in_wasm() {
    for table in spec::tables().into_iter().chain(spec::debts()) {
        table.holds_purely().unwrap();
    }
}
