// SPDX-License-Identifier: Apache-2.0
//! Properties that only a real Redis can show: keys and their expiry, scripts it does not know, keys of another type, slots, and many
//! connections at once.

use std::cmp::Reverse;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use weir::config::Config;
use weir::engine::Engine;
use weir::limit::{
    Align, Ask, Ban, Concurrency, FixedWindow, LeakyBucket, Limit, Member, Outcome, Period, Refill,
    RetryAfter, SlidingLog, SlidingWindow, Subject, TokenBucket, UtcOffset,
};
use weir::policy::Denial;
use weir::resp;
use weir::script::{BadReply, Classes, Form, MAX_LIMITS, NamedLimit, Options, Overrides, Plan};
use weir::time::Micros;
use weir_support::is_full;

use crate::redis::{Connection, Redis, Shared};
use crate::spec;
use crate::store::{Store, outcomes_of, plan, plan_with};

const ONE: Ask = Ask::new(1, 1);
const NONE: Ask = Ask::new(0, 0);
const MINUTE: Micros = Micros::from_secs(60);

type Test = Box<dyn FnOnce(&Redis) -> Result<(), Failed> + Send>;

pub fn trials(server: &Arc<Shared>) -> Vec<Trial> {
    let trial = |(name, test): (String, Test)| {
        let server = Arc::clone(server);
        Trial::test(name, move || test(&server))
    };
    tests().into_iter().map(trial).collect()
}

fn tests() -> Vec<(String, Test)> {
    let mut tests: Vec<(String, Test)> = Vec::new();
    let mut add = |name: String, test: Test| tests.push((name, test));
    let each = spec::each().into_iter().map(|(name, limit)| (name.to_owned(), limit));
    let indebted = spec::each_indebted().into_iter().map(|(name, limit)| (format!("{name}, in debt"), limit));
    for (name, limit) in each.chain(indebted) {
        let own = limit.clone();
        add(format!("expiry: {name}"), Box::new(|redis| expiry(redis, own, None)));
        let own = limit.clone();
        if !matches!(own, Limit::Concurrency(_)) {
            add(format!("untouched: {name}"), Box::new(|redis| untouched(redis, own)));
        }
        let own = limit.clone();
        add(format!("asking changes nothing: {name}"), Box::new(|redis| asking(redis, own)));
        let own = limit.clone();
        add(
            format!("expiry, with the time brought along: {name}"),
            Box::new(|redis| expiry(redis, own, Some(BROUGHT))),
        );
        let own = limit.clone();
        add(format!("NOPERM and OOM are errors, never an empty limit: {name}"), Box::new(|_| errors(own)));
        for overrides in [Overrides::Ignored, Overrides::Read] {
            // No subject has limits of its own that go into debt.
            if overrides == Overrides::Read && limit.debt() > 0 {
                continue;
            }
            let own = limit.clone();
            add(
                format!("as many as there may be, overrides {overrides:?}: {name}"),
                Box::new(move |redis| many(redis, own, Options { overrides, ..Options::default() })),
            );
            let own = limit.clone();
            add(
                format!("as many as there may be, overrides {overrides:?}, and a ban: {name}"),
                Box::new(move |redis| {
                    many(redis, own, Options { overrides, ban: Some(ban()), ..Options::default() })
                }),
            );
            let own = limit.clone();
            add(
                format!("as many as there may be, overrides {overrides:?}, a ban and classes: {name}"),
                Box::new(move |redis| {
                    many(redis, own, Options { overrides, ban: Some(ban()), classes: Classes::Several })
                }),
            );
        }
        for (poison, commands) in poisons() {
            let own = limit.clone();
            add(format!("heals: {name} finds {poison}"), Box::new(move |redis| heals(redis, own, &commands)));
        }
        for byte in [0x5a, 0xff] {
            let own = limit.clone();
            add(
                format!("forged: {name} of bytes {byte:02x}"),
                Box::new(move |redis| forged(redis, own, byte)),
            );
        }
        let others = if limit.debt() > 0 { Vec::new() } else { spec::each() };
        for (other, written) in others {
            let own = limit.clone();
            add(format!("heals: {name} after {other}"), Box::new(|redis| succeeds(redis, own, written)));
        }
    }
    for (text, left) in overrides() {
        add(
            format!("override: {:.50} leaves {left}", text),
            Box::new(move |redis| overridden(redis, &text, left)),
        );
    }
    for (name, limit, text, quota) in bounds_of_overrides() {
        add(format!("override: {name}"), Box::new(move |redis| bounded_override(redis, limit, text, quota)));
    }
    add("expiry: a larger bucket's state that a smaller one cuts off".to_owned(), Box::new(outlives));
    add("expiry: what another window began".to_owned(), Box::new(begun_by_another));
    add("permits are released once".to_owned(), Box::new(released_once));
    add("permits are renewed for 500 periods".to_owned(), Box::new(renewed));
    add("forged: the sum of a sliding window".to_owned(), Box::new(forged_sum));
    add("forged: more permits than a script reads".to_owned(), Box::new(forged_permits));
    add("permits of two ttls, as an older weir writes them".to_owned(), Box::new(permits_in_any_order));
    add(
        "asking changes nothing: permits, buckets and a ban of another configuration".to_owned(),
        Box::new(asking_others),
    );
    for (name, commands, wanted) in operators() {
        add(format!("ban: {name}"), Box::new(move |redis| ruled(redis, &commands, wanted)));
    }
    for (poison, commands) in poisons() {
        add(
            format!("ban: heals, its denials are {poison}"),
            Box::new(move |redis| denials_heal(redis, &commands)),
        );
    }
    add("ban: forged denials ban for `duration` at most".to_owned(), Box::new(forged_denials));
    add("journal: many writers, and it is never longer than its cap".to_owned(), Box::new(journal_is_capped));
    add("ban: its keys expire when they are no longer needed".to_owned(), Box::new(bans_expire));
    add("ban: one that was lifted is forgotten".to_owned(), Box::new(lifted));
    for (place, (name, limit, asks)) in spec::sizes().into_iter().enumerate() {
        let name = format!("memory, as docs/sizing.md says: {name}");
        add(name, Box::new(move |redis| memory(redis, place, limit, asks)));
    }
    for (name, limits) in crowds() {
        add(format!("50 connections at once: {name}"), Box::new(move |redis| crowd(redis, &limits)));
    }
    for overrides in [Overrides::Ignored, Overrides::Read] {
        let name = format!("every set of limits compiles, overrides {overrides:?}");
        add(name, Box::new(move |_| compiles(overrides)));
    }
    add("a log of 10,000 grants takes a bounded number of calls".to_owned(), Box::new(|_| bounded()));
    add("NOSCRIPT, then EVAL, then EVALSHA".to_owned(), Box::new(|_| noscript()));
    add("cluster: the limits of a subject share a slot".to_owned(), Box::new(|_| cluster()));
    tests
}

/// The time at which a key expires, in milliseconds since the epoch; -1: never; -2: there is no key.
fn expires(store: &mut Store) -> i64 {
    let key = store.key(0);
    store.redis.integer(&[b"PEXPIRETIME", &key])
}

/// A time that a test or a replay brings. The key of such a state lives an hour longer.
const BROUGHT: Micros = Micros(spec::START.0 + 12_500_000);
const HOUR: i64 = 3_600_000;

/// Redis's time, in milliseconds.
fn clock(store: &mut Store) -> i64 {
    store.check(None, NONE).at.0 as i64 / 1_000
}

/// The time at which the limit is full again, in milliseconds since the epoch.
fn whole(outcome: &Outcome) -> i64 {
    (outcome.at.0 + outcome.limits[0].reset.0).div_ceil(1_000) as i64
}

/// The key of a state lives as long as it matters: to the last of `full` (the outcomes that say when the limit is full again), and at most
/// a second longer. `began` is Redis's clock before the state was written, and `brought` the time that the test brings instead.
fn lives(store: &mut Store, brought: Option<Micros>, began: i64, full: &[&Outcome]) -> Result<(), Failed> {
    let expires = expires(store);
    let now = clock(store);
    let (shift, slack) = match brought {
        // To the millisecond, the test with Redis's own clock tells.
        Some(time) => (began - 1_000 + HOUR - time.0 as i64 / 1_000, now - began + 1_000),
        None => (0, 0),
    };
    let ends = || full.iter().map(|outcome| whole(outcome) + shift);
    let (first, last) = (ends().min().expect("an outcome"), ends().max().expect("an outcome"));
    // No key at all, or no more: a window of a millisecond may be over by now.
    let is_over = full.iter().any(|outcome| outcome.limits[0].reset == Micros::ZERO) || now + 1 >= first;
    if (first..=last + 1_000 + slack).contains(&expires) || expires == -2 && is_over {
        Ok(())
    } else {
        Err(format!("it expires {} ms after {first} to {last}: {full:?}", expires - last).into())
    }
}

/// If another limit denies a request, or a check asks for nothing, a key stays as it is: missing, or of another type.
fn untouched(redis: &Redis, limit: Limit) -> Result<(), Failed> {
    let hour = Micros::from_secs(3_600);
    // One that is asked before the limit, and one that is asked after it, also if it counts when it is asked.
    let full =
        [LeakyBucket::new(1, hour, 1, Micros::ZERO)?.into(), FixedWindow::new(1, hour, Align::Clock)?.into()];
    for full in full {
        let mut store = Store::new(redis, vec![limit.clone(), full]);
        assert_eq!(store.check(Some(BROUGHT), ONE).granted, 1);
        let key = store.key(0);
        store.redis.call(&[b"DEL", &key]);
        assert_eq!(store.check(Some(BROUGHT), ONE).granted, 0);
        assert_eq!(store.redis.integer(&[b"EXISTS", &key]), 0);
        store.redis.call(&[b"SADD", &key, b"a"]);
        assert_eq!(store.check(Some(BROUGHT), ONE).granted, 0);
        assert_eq!(store.redis.integer(&[b"SCARD", &key]), 1);
    }
    Ok(())
}

/// A check for no requests changes neither the state nor its expiry, whatever the clock says. It answers like the pure limits.
fn asking(redis: &Redis, limit: Limit) -> Result<(), Failed> {
    let (mut store, mut subject) = (Store::new(redis, vec![limit.clone()]), Subject::default());
    let key = store.key(0);
    for (at, seconds) in [(0, 0), (1, 1), (61, 0)] {
        let now = Micros(BROUGHT.0 + at * 1_000_000);
        let ask = Ask::new(2, 1);
        assert_eq!(store.check(Some(now), ask), subject.check(std::slice::from_ref(&limit), None, now, ask));
        let before = subject.clone();
        let [value, expires] = state(&mut store, &key);
        for back in [0, 1, 59, 61, 3_600, 86_400 * 70, 86_400 * 400] {
            for ask in [Ask::new(0, 1), Ask::new(0, 4), NONE] {
                let then = now.plus(Micros::from_secs(seconds)).since(Micros::from_secs(back));
                let asked = store.check(Some(then), ask);
                assert_eq!(
                    asked,
                    subject.check(std::slice::from_ref(&limit), None, then, ask),
                    "{back} s back"
                );
                assert_eq!(state(&mut store, &key), [value.clone(), expires.clone()], "{back} s back");
                assert_eq!(subject, before, "{back} s back");
            }
        }
    }
    Ok(())
}

/// A key, as Redis has it, and when it expires.
fn state(store: &mut Store, key: &[u8]) -> [Vec<u8>; 2] {
    [b"DUMP".as_slice(), b"PEXPIRETIME"].map(|verb| store.redis.call(&[verb, key]))
}

/// A check with a file from before its rollout, with a shorter ttl, a smaller bucket and shorter bans, changes nothing either.
fn asking_others(redis: &Redis) -> Result<(), Failed> {
    let minute = |ttl, burst| -> Vec<Limit> {
        vec![
            Concurrency::new(1, Micros::from_secs(ttl)).unwrap().into(),
            LeakyBucket::new(1, MINUTE, burst, Micros::ZERO).unwrap().into(),
        ]
    };
    let ban = |seconds| {
        let span = Micros::from_secs(seconds);
        Options { ban: Some(Ban::new(1, MINUTE, span, 1, span).unwrap()), ..Options::default() }
    };
    let mut store = Store::new(redis, minute(3_600, 90));
    store.plan = plan_with(minute(3_600, 90), ban(3_600));
    assert_eq!(store.check(None, Ask::new(2, 80)).granted, 1);
    let mut keys = vec![store.key(0), store.key(1)];
    let name = keys[0].iter().rposition(|byte| *byte == b':').expect("a name");
    keys.extend([&b"ban"[..], b"denials"].map(|ending| [&keys[0][..=name], ending].concat()));
    let before: Vec<_> = keys.iter().map(|key| state(&mut store, key)).collect();
    store.plan = plan_with(minute(60, 2), ban(60));
    for ask in [NONE, Ask::new(0, 1)] {
        store.check(None, ask);
    }
    assert_eq!(keys.iter().map(|key| state(&mut store, key)).collect::<Vec<_>>(), before);
    Ok(())
}

/// A larger bucket still counts when a smaller one has cut off its state: the key lives as long as the larger one needs it.
fn outlives(redis: &Redis) -> Result<(), Failed> {
    for wide in [1, 10_000_000_019] {
        let bucket =
            |burst| LeakyBucket::new(wide, Micros::from_secs(1), burst * wide, Micros::ZERO).unwrap().into();
        let mut store = Store::new(redis, vec![bucket(90)]);
        let began = clock(&mut store);
        let large = store.check(Some(BROUGHT), Ask::new(1, 80 * wide));
        store.plan = plan(vec![bucket(10)]);
        assert_eq!(store.check(Some(BROUGHT), ONE).granted, 0);
        lives(&mut store, Some(BROUGHT), began, &[&large])?;
    }
    Ok(())
}

/// A window that another calendar began: the key lives until the present one's end. So do permits of a time that will come again.
fn begun_by_another(redis: &Redis) -> Result<(), Failed> {
    let calendar = |period| {
        let align = Align::Calendar(period, UtcOffset::from_minutes(0));
        FixedWindow::new(9, Micros::ZERO, align).unwrap().into()
    };
    let permits: Limit = Concurrency::new(9, MINUTE)?.into();
    let back = |days: u64| Micros(BROUGHT.0 - days * 86_400_000_000);
    // The first and the last time at which permits get the same expiry, which is not the ttl later; and the last at which they are held.
    let (ttl, slot) = (60_000_010, 3_750_000);
    let odd: Limit = Concurrency::new(9, Micros(ttl))?.into();
    let first = (BROUGHT.0 + ttl).next_multiple_of(slot) + 1 - ttl;
    let (again, last) = (first + slot - 1, first + ttl + slot - 2);
    let rows: [(&str, Vec<(Limit, Micros)>); 4] = [
        ("a day, then a month", vec![(calendar(Period::Day), BROUGHT), (calendar(Period::MONTH), BROUGHT)]),
        (
            "months, and the clock goes back",
            vec![(calendar(Period::MONTH), BROUGHT), (calendar(Period::MONTH), back(70))],
        ),
        ("permits, and the clock goes back", vec![(permits.clone(), BROUGHT), (permits, back(1))]),
        (
            "permits, and the clock goes back to others that are held",
            vec![(odd.clone(), Micros(first)), (odd.clone(), Micros(last)), (odd, Micros(again))],
        ),
    ];
    for (name, checks) in rows {
        let ((limit, later), before) = checks.split_last().expect("checks");
        let mut store = Store::new(redis, vec![limit.clone()]);
        for (limit, at) in before {
            store.plan = plan(vec![limit.clone()]);
            assert_eq!(store.check(Some(*at), ONE).granted, 1);
        }
        store.plan = plan(vec![limit.clone()]);
        for _ in 0..2 {
            let began = clock(&mut store);
            let outcome = store.check(Some(*later), ONE);
            lives(&mut store, Some(*later), began, &[&outcome])
                .map_err(|failed| format!("{name}: {failed:?}"))?;
        }
    }
    Ok(())
}

/// A permit that is renewed each third of its ttl holds for 500 periods, beside one that is not, and is released by its last expiry. A clock
/// that steps, a key that was deleted and a state that is none are no hindrance.
fn renewed(redis: &Redis) -> Result<(), Failed> {
    let limit: Limit = Concurrency::new(2, MINUTE)?.into();
    let mut store = Store::new(redis, vec![limit.clone()]);
    let mut model = Subject::default();
    let mut now = BROUGHT;
    let left = |store: &mut Store, now| 2 - store.check(Some(now), NONE).limits[0].remaining;
    let mut receipt = store.check(Some(now), ONE);
    store.check(Some(now), ONE);
    model.check(std::slice::from_ref(&limit), None, now, Ask::new(2, 1));
    assert_eq!(store.check(Some(now), ONE).granted, 0);
    for period in 0..500u64 {
        let steps = if period % 100 == 99 { 7 * 60 } else { 20 };
        now = now.plus(Micros::from_secs(steps));
        if period == 250 {
            redis.connect().say(&format!("SET {} nothing", store.key(0).escape_ascii()));
        }
        let permits: Vec<_> = receipt.permits(1).collect();
        receipt = store.renew(Some(now), 1, &receipt);
        let expiries = model.renew(std::slice::from_ref(&limit), &permits, now);
        assert_eq!(receipt.limits[0].permit_expiry, expiries[0], "period {period}");
        let held = 2 - model.check(std::slice::from_ref(&limit), None, now, NONE).limits[0].remaining;
        assert_eq!(left(&mut store, now), held, "period {period}");
        assert_eq!(held, 1 + i64::from(period < 2 || period == 2 && held == 2), "period {period}");
    }
    let held: Vec<_> = receipt.permits(1).collect();
    assert_eq!([store.release(Some(now), &held), store.release(Some(now), &held)], [1, 0]);
    assert_eq!(left(&mut store, now), 0);
    Ok(())
}

/// Permits are released once, and an hour after they have expired, too.
fn released_once(redis: &Redis) -> Result<(), Failed> {
    // A release at the end of the hour leaves the key a moment of Redis's own time, so each has a key of its own.
    for millis in [3_599_999, 3_600_000, 3_600_001] {
        let mut store = Store::new(redis, vec![Concurrency::new(9, MINUTE)?.into()]);
        let first = store.check(Some(BROUGHT), ONE);
        let second = store.check(Some(Micros(BROUGHT.0 + MINUTE.0 / 2)), Ask::new(4, 1));
        let (one, others): (Vec<_>, Vec<_>) = (first.permits(1).collect(), second.permits(1).collect());
        assert_eq!([store.release(Some(BROUGHT), &one), store.release(Some(BROUGHT), &one)], [1, 0]);
        let expired = second.at.0 + second.limits[0].reset.0;
        assert_eq!(store.release(Some(Micros(expired + millis * 1_000)), &others), 1, "{millis} ms later");
    }
    Ok(())
}

/// A sum that is less than its slots: the units that leave the window cannot exceed it.
fn forged_sum(redis: &Redis) -> Result<(), Failed> {
    let slot = Micros::from_secs(10);
    let mut store = Store::new(redis, vec![SlidingWindow::new(9, Micros(2 * slot.0), slot)?.into()]);
    let start = spec::START.0 / slot.0 * slot.0;
    let six = |number: u64| number.to_le_bytes()[..6].to_vec();
    let state = [start.to_le_bytes().to_vec(), six(0), six(5), six(5), six(0)].concat();
    let key = store.key(0);
    store.redis.call(&[b"SET", &key, &state]);
    let next = store.check(Some(Micros(start + slot.0)), NONE);
    assert_eq!(next.limits[0].remaining, 9 - 5, "5 in the slot that is just leaving, and 0 in the others");
    Ok(())
}

/// A script reads 64 expiries, and adds none to them. More are no state: a script that read 10,000 would take a second.
fn forged_permits(redis: &Redis) -> Result<(), Failed> {
    let expiries = |count: u64, permits: u64| -> Vec<u8> {
        let one = |place: u64| {
            let ends = BROUGHT.0 + (place + 1) * 100_000_000;
            [&ends.to_le_bytes()[..7], &permits.to_le_bytes()[..5]].concat()
        };
        (0..count).flat_map(one).collect()
    };
    let mut store = Store::new(redis, vec![Concurrency::new(100, MINUTE)?.into()]);
    let key = store.key(0);
    for (count, permits, wanted) in
        [(63, 1, (1, 36)), (64, 1, (0, 0)), (65, 1, (1, 99)), (64, 0, (1, 99)), (10_000, 0, (1, 99))]
    {
        store.redis.call(&[b"SET", &key, &expiries(count, permits)]);
        let outcome = store.check(Some(BROUGHT), ONE);
        let found = (outcome.granted, outcome.limits[0].remaining);
        assert_eq!(found, wanted, "{count} expiries of {permits} permits");
        let wait =
            if outcome.granted > 0 { RetryAfter::Now } else { RetryAfter::After(Micros::from_secs(100)) };
        assert_eq!(outcome.limits[0].retry_after, wait);
        let held: Vec<_> = outcome.permits(outcome.granted).collect();
        if !held.is_empty() {
            assert_eq!(store.release(Some(BROUGHT), &held), 1);
        }
    }
    Ok(())
}

/// An older weir appends the expiry of its permits. Whichever is first in the key, a permit is free when the soonest expires.
fn permits_in_any_order(redis: &Redis) -> Result<(), Failed> {
    let ends = |seconds: u64| BROUGHT.0 + seconds * 1_000_000;
    let orders: [&[u64]; 4] = [&[10, 3_600], &[3_600, 10], &[3_600, 10, 1_800], &[1_800, 3_600, 10]];
    for order in orders {
        let held = order.len() as u64;
        let state: Vec<u8> = order
            .iter()
            .flat_map(|seconds| [&ends(*seconds).to_le_bytes()[..7], &[1, 0, 0, 0, 0]].concat())
            .collect();
        // As many as are held, and one that would wait for the second permit.
        for (limit, wait) in
            [(held, 10), (held - 1, order.iter().copied().filter(|ends| *ends > 10).min().unwrap())]
        {
            let mut store = Store::new(redis, vec![Concurrency::new(limit, MINUTE)?.into()]);
            let key = store.key(0);
            store.redis.call(&[b"SET", &key, &state]);
            let outcome = store.check(Some(BROUGHT), ONE);
            let found = (outcome.granted, outcome.limits[0].retry_after, outcome.limits[0].reset);
            let wanted = (0, RetryAfter::After(Micros::from_secs(wait)), Micros::from_secs(3_600));
            assert_eq!(found, wanted, "{order:?}, {limit} at once");
            let stored = [format!("${}\r\n", state.len()).as_bytes(), &state, b"\r\n"].concat();
            assert_eq!(store.redis.call(&[b"GET", &key]), stored, "a denial changes nothing");
        }
        // A permit more, of this one's ttl: each is released by its own expiry.
        let mut store = Store::new(redis, vec![Concurrency::new(held + 1, MINUTE)?.into()]);
        let key = store.key(0);
        store.redis.call(&[b"SET", &key, &state]);
        let outcome = store.check(Some(BROUGHT), ONE);
        assert_eq!((outcome.granted, outcome.limits[0].remaining), (1, 0), "{order:?}");
        assert_eq!(
            store.check(Some(BROUGHT), ONE).limits[0].retry_after,
            RetryAfter::After(Micros::from_secs(10))
        );
        assert_eq!(store.release(Some(BROUGHT), &outcome.permits(1).collect::<Vec<_>>()), 1);
        let soonest = store.check(Some(Micros(ends(10))), NONE);
        assert_eq!(soonest.limits[0].remaining, 2, "{order:?}: the others hold theirs");
    }
    Ok(())
}

fn expiry(redis: &Redis, limit: Limit, brought: Option<Micros>) -> Result<(), Failed> {
    let mut store = Store::new(redis, vec![limit.clone()]);
    let asked = store.check(brought, NONE);
    assert_eq!(expires(&mut store), -2, "asking leaves no key");
    assert_eq!(asked.limits[0].reset, Micros::ZERO);
    store.settle(brought, 0, &asked);
    assert_eq!(expires(&mut store), -2, "nor does it to settle nothing");
    assert_eq!(
        store.check(brought, Ask::new(1, u64::MAX)).granted,
        u32::from(matches!(limit, Limit::Concurrency(_) | Limit::Distinct(_)))
    );
    if !matches!(limit, Limit::Concurrency(_) | Limit::Distinct(_)) {
        assert_eq!(expires(&mut store), -2, "a denied request leaves no key");
    }
    let mut began = clock(&mut store);
    let mut receipt = store.check(brought, ONE);
    lives(&mut store, brought, began, &[&receipt])?;
    if let (b"SET", state) = forge(&limit, 0) {
        let key = store.key(0);
        // A window of a millisecond may be over by now.
        let held = store.redis.integer(&[b"STRLEN", &key]);
        assert!(
            held == state.len() as i64 || held == 0 && brought.is_none(),
            "as the fragment states: {held}"
        );
    }
    began = clock(&mut store);
    let charged = store.settle(brought, 1, &receipt);
    lives(&mut store, brought, began, &[&charged])?;
    for _ in 0..2 {
        began = clock(&mut store);
        receipt = store.check(brought, ONE);
        lives(&mut store, brought, began, &[&receipt])?;
    }
    began = clock(&mut store);
    let charged = store.settle(brought, 1, &receipt);
    lives(&mut store, brought, began, &[&charged])?;
    let refunded = store.settle(brought, -1, &receipt);
    // A bucket is kept as long as it would matter without the refund: until then another receipt may come back.
    let is_bucket = matches!(limit, Limit::TokenBucket(_) | Limit::LeakyBucket(_));
    lives(&mut store, brought, began, &[&charged, if is_bucket { &charged } else { &refunded }])?;
    if let Limit::Concurrency(_) = limit {
        // Permits of an earlier slot may be left; they were taken a moment ago.
        for permits in [1, 99] {
            let permits: Vec<_> = receipt.permits(permits).collect();
            store.release(brought, &permits);
            let asked = store.check(brought, NONE);
            // The permits that are left may be of an earlier expiry; the key keeps that of the receipt.
            lives(&mut store, brought, began, &[&asked, &receipt])?;
        }
    }
    Ok(())
}

type Commands = Vec<Vec<Vec<u8>>>;

/// Other values that a key may have, as commands with KEY for the key.
fn poisons() -> Vec<(String, Commands)> {
    let one = |parts: &[&[u8]]| vec![parts.iter().map(|part| part.to_vec()).collect()];
    let mut poisons = vec![
        ("a hash".to_owned(), one(&[b"HSET", b"KEY", b"a", b"b"])),
        ("a list".to_owned(), one(&[b"RPUSH", b"KEY", b"a", b"b"])),
        ("a set".to_owned(), one(&[b"SADD", b"KEY", b"a"])),
        ("a sorted set".to_owned(), one(&[b"ZADD", b"KEY", b"1", b"a"])),
        ("a stream".to_owned(), one(&[b"XADD", b"KEY", b"*", b"a", b"b"])),
        ("an empty string".to_owned(), one(&[b"SET", b"KEY", b""])),
        ("text".to_owned(), one(&[b"SET", b"KEY", b"what is this"])),
        ("not a number".to_owned(), one(&[b"SET", b"KEY", b"nan"])),
        ("infinity".to_owned(), one(&[b"SET", b"KEY", b"inf"])),
        ("a fraction".to_owned(), one(&[b"SET", b"KEY", b"1.5e300"])),
        ("the largest integer".to_owned(), one(&[b"SET", b"KEY", b"9223372036854775807"])),
        ("a negative number".to_owned(), one(&[b"SET", b"KEY", b"-3580000000000000"])),
    ];
    // Values as long as the state of each algorithm, and as long as a log's entry.
    for size in [12, 13, 14, 15, 20, 21, 24, 26, 56] {
        for byte in [0x00, 0x5a, 0xff] {
            let value = vec![byte; size];
            poisons.push((format!("{size} bytes of {byte:02x}"), one(&[b"SET", b"KEY", &value])));
            if size == 20 {
                poisons.push((
                    format!("a list of {size} bytes of {byte:02x}"),
                    one(&[b"RPUSH", b"KEY", &value, &value]),
                ));
            }
        }
    }
    poisons
}

/// With any value under the key, the limit answers; and it is full again at the stated time, which is bounded.
fn heals(redis: &Redis, limit: Limit, poison: &Commands) -> Result<(), Failed> {
    let mut store = Store::new(redis, vec![limit.clone()]);
    let key = store.key(0);
    for command in poison {
        let arguments: Vec<&[u8]> = command
            .iter()
            .map(|part| if part == b"KEY" { key.as_slice() } else { part.as_slice() })
            .collect();
        store.redis.call(&arguments);
    }
    recovers(&mut store, limit)
}

/// The type and the size of a state, as the fragments state them.
fn forge(limit: &Limit, byte: u8) -> (&'static [u8], Vec<u8>) {
    let size = match limit {
        // One number; the largest that can be the mark of a window.
        Limit::FixedWindow(of)
            if of.align() == Align::Clock && of.limit() < 2 * of.window().0 && limit.debt() == 0 =>
        {
            let start = (spec::START.0 + 12_345_000) / of.window().0 * of.window().0;
            let used = (64 * of.limit()).max(2_000_000).min(2 * of.window().0 - 1);
            return (b"SET", (2 * start + used).to_string().into_bytes());
        }
        Limit::FixedWindow(_) => 14,
        Limit::SlidingLog(_) => return (b"RPUSH", vec![byte; 20]),
        Limit::SlidingWindow(of) => {
            // A start that is the start of a slot.
            let start = (spec::START.0 + 12_345_000) / of.precision().0 * of.precision().0;
            let counts = vec![byte; 12 + 6 * (of.window().0 / of.precision().0) as usize];
            return (b"SET", [start.to_le_bytes().to_vec(), counts].concat());
        }
        Limit::TokenBucket(of) if of.how() == Refill::Stepwise => 15,
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => 13,
        Limit::Concurrency(_) => 12,
        Limit::Distinct(_) => 21,
    };
    (b"SET", vec![byte; size])
}

/// The maximum time for which a limit remembers anything.
fn remembers(limit: &Limit) -> Micros {
    let twice = |span: Micros| Micros(2 * span.0);
    let debt = limit.quota() * u64::from(limit.debt());
    let flows = |units: u64, count: u64, per: Micros| {
        let span = (u128::from(units + debt) * u128::from(per.0)).div_ceil(count.into());
        Micros(u64::try_from(span).unwrap())
    };
    match limit {
        Limit::FixedWindow(of) => twice(of.window()),
        Limit::SlidingLog(of) => of.window(),
        Limit::SlidingWindow(of) => twice(of.window()).plus(of.precision()),
        Limit::TokenBucket(of) => flows(of.capacity() + of.overdraft(), of.refill(), of.interval()),
        Limit::LeakyBucket(of) => flows(of.burst(), of.rate(), of.per()).plus(of.max_delay()),
        Limit::Concurrency(of) => twice(of.ttl()),
        Limit::Distinct(of) => of.window(),
    }
}

/// docs/limits.md states that a value of the right type and size counts as a state, for a bounded time.
fn forged(redis: &Redis, limit: Limit, byte: u8) -> Result<(), Failed> {
    let mut store = Store::new(redis, vec![limit.clone()]);
    let (verb, mut value) = forge(&limit, byte);
    if let Limit::Distinct(of) = &limit {
        value.resize(1 + 20 * usize::try_from(of.limit())?, byte);
    }
    let key = store.key(0);
    store.redis.call(&[verb, &key, &value]);
    let now = spec::START.plus(Micros::from_millis(12_345));
    let outcome = store.check(Some(now), ONE);
    let bound = remembers(&limit);
    if outcome.granted > 0 || outcome.limits[0].reset > bound {
        return Err(format!("it counts for at most {bound}: {outcome:?}").into());
    }
    let whole = store.check(Some(now.plus(bound)), NONE).limits[0];
    assert_eq!((whole.remaining, whole.reset), (i64::try_from(limit.quota()).unwrap(), Micros::ZERO));
    Ok(())
}

/// A key that another limit of the same name has written.
fn succeeds(redis: &Redis, limit: Limit, written: Limit) -> Result<(), Failed> {
    let mut store = Store::new(redis, vec![written]);
    let now = spec::START.plus(Micros::from_millis(12_345));
    store.check(Some(now), Ask::new(2, 1));
    store.plan = plan(vec![limit.clone()]);
    recovers(&mut store, limit)
}

fn recovers(store: &mut Store, limit: Limit) -> Result<(), Failed> {
    let quota = i64::try_from(limit.quota()).unwrap();
    let mut now = spec::START.plus(Micros::from_millis(12_345));
    let mut outcome = store.check(Some(now), ONE);
    for _ in 0..3 {
        if outcome.limits[0].reset > remembers(&limit).max(Micros::from_secs(24 * 60 * 60)) {
            return Err(format!("it never recovers: {outcome:?}").into());
        }
        now = now.plus(outcome.limits[0].reset);
        outcome = store.check(Some(now), NONE);
        if outcome.limits[0].remaining == quota {
            let granted = store.check(Some(now), ONE);
            assert_eq!((granted.granted, granted.limits[0].remaining), (1, quota - 1));
            assert!(expires(store) > 0, "the key expires");
            return Ok(());
        }
    }
    Err(format!("it is not whole when it says so: {outcome:?}").into())
}

/// The second denial within an hour bans for a minute, the next one for two.
fn ban() -> Ban {
    Ban::new(2, Micros::from_secs(3_600), MINUTE, 2, Micros::from_secs(600)).unwrap()
}

/// A subject whose one unit is used, and whose denials may lead to a ban.
fn bannable(redis: &Redis) -> Store {
    let limit = || FixedWindow::new(1, Micros::from_secs(86_400 * 300), Align::Clock).unwrap().into();
    let mut store = Store::new(redis, vec![limit()]);
    store.plan = plan_with(vec![limit()], Options { ban: Some(ban()), ..Options::default() });
    assert_eq!(store.check(None, ONE).granted, 1);
    store
}

fn key(store: &Store, name: &str) -> Vec<u8> {
    [b"weir:", store.tag.as_slice(), b":", name.as_bytes()].concat()
}

/// The remaining time of a ban, to the second.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rest {
    No,
    Secs(u64),
    Always,
}

fn rest(outcome: &Outcome) -> Rest {
    match outcome.ban {
        RetryAfter::Now => Rest::No,
        RetryAfter::After(Micros(span)) => Rest::Secs((span + 500_000) / 1_000_000),
        RetryAfter::Never => Rest::Always,
        RetryAfter::Unknown => panic!("{outcome:?}"),
    }
}

/// An operator's changes to the key of a ban, or another value in it; `K` is the key. Each with the time for which the subject is then
/// banned.
fn operators() -> Vec<(&'static str, Vec<&'static str>, Rest)> {
    vec![
        ("nothing stands there", vec![], Rest::No),
        ("imposed for a time", vec!["SET K scraper EX 100"], Rest::Secs(100)),
        ("imposed for longer than weir bans", vec!["SET K 1 EX 1000000"], Rest::Secs(1_000_000)),
        ("imposed for centuries", vec!["SET K x EX 99999999999"], Rest::Secs(316_224_000)),
        ("imposed until it is lifted", vec!["SET K x"], Rest::Always),
        ("imposed without a word", vec!["SET K "], Rest::Always),
        ("imposed, and made shorter", vec!["SET K x EX 100", "EXPIRE K 10"], Rest::Secs(10)),
        ("imposed, and lifted", vec!["SET K x EX 100", "DEL K"], Rest::No),
        ("until is no number", vec!["SET K until"], Rest::Always),
        ("one that has ended", vec!["SET K until_1700000000000000"], Rest::No),
        ("one that would be too long", vec!["SET K until_99999999999999999999999999"], Rest::Secs(600)),
        ("something of another type", vec!["SADD K until"], Rest::No),
    ]
}

fn ruled(redis: &Redis, commands: &[&str], wanted: Rest) -> Result<(), Failed> {
    let mut store = bannable(redis);
    let key = String::from_utf8(key(&store, "ban"))?;
    for command in commands {
        let words: Vec<_> = command
            .split(' ')
            .map(|word| if word == "K" { key.clone() } else { word.replace('_', " ") })
            .collect();
        let reply = store.redis.call(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
        assert_ne!(reply[0], b'-', "{}", String::from_utf8_lossy(&reply));
    }
    let outcome = store.check(None, NONE);
    assert_eq!(rest(&outcome), wanted, "{outcome:?}");
    let imposed = wanted != Rest::No && !commands[0].contains("until");
    let left = store.redis.integer(&[b"PTTL", key.as_bytes()]);
    if let (true, RetryAfter::After(span), Ok(left)) = (imposed, outcome.ban, u64::try_from(left)) {
        let lives = Micros::from_millis(left + 1).min(Micros::from_secs(316_224_000));
        assert!(span >= lives, "{span:?} of {lives:?}: the ban is still there then");
    }
    // Settlements read the same. To be denied is no denial that counts while the subject is banned, and one otherwise.
    assert_eq!(rest(&store.settle(None, 0, &outcome)), wanted);
    assert_eq!(rest(&store.check(None, ONE)), wanted);
    let denials = key_exists(&mut store, "denials");
    assert_eq!(denials, wanted == Rest::No);
    if wanted == Rest::No {
        assert_eq!(rest(&store.check(None, ONE)), Rest::Secs(60), "the second denial");
        assert_eq!(rest(&store.check(None, ONE)), Rest::Secs(60));
    }
    Ok(())
}

fn key_exists(store: &mut Store, name: &str) -> bool {
    let key = key(store, name);
    store.redis.integer(&[b"EXISTS", &key]) == 1
}

fn denials_heal(redis: &Redis, commands: &[Vec<Vec<u8>>]) -> Result<(), Failed> {
    let mut store = bannable(redis);
    assert_eq!(rest(&store.check(None, ONE)), Rest::No);
    let key = key(&store, "denials");
    store.redis.call(&[b"DEL", &key]);
    for command in commands {
        let words: Vec<&[u8]> = command
            .iter()
            .map(|word| if word == b"KEY" { key.as_slice() } else { word.as_slice() })
            .collect();
        store.redis.call(&words);
    }
    let rests = [(); 2].map(|()| rest(&store.check(None, ONE)));
    assert_eq!(rests, [Rest::No, Rest::Secs(60)], "the count begins again, and the value is replaced");
    Ok(())
}

fn forged_denials(redis: &Redis) -> Result<(), Failed> {
    for (byte, wanted) in
        [(0x00, [Rest::No, Rest::Secs(60)]), (0x5a, [Rest::Secs(60); 2]), (0xff, [Rest::Secs(60); 2])]
    {
        let mut store = bannable(redis);
        let key = key(&store, "denials");
        store.redis.call(&[b"SET", &key, &[byte; 27]]);
        let rests = [(); 2].map(|()| rest(&store.check(None, ONE)));
        assert_eq!(rests, wanted, "{byte:02x}");
    }
    Ok(())
}

fn bans_expire(redis: &Redis) -> Result<(), Failed> {
    let mut store = bannable(redis);
    let expires = |store: &mut Store, name: &str| {
        let key = key(store, name);
        store.redis.integer(&[b"PEXPIRETIME", &key])
    };
    let millis = |at: Micros| at.0.div_ceil(1_000) as i64;
    let first = store.check(None, ONE).at;
    assert_eq!(expires(&mut store, "denials"), millis(first.plus(Micros::from_secs(3_600))), "the window");
    assert_eq!(expires(&mut store, "ban"), -2);
    let begun = store.check(None, ONE).at;
    assert_eq!(expires(&mut store, "ban"), millis(begun.plus(MINUTE)));
    // The ban is remembered for ten minutes after its end, and the window for an hour.
    assert_eq!(expires(&mut store, "denials"), millis(first.plus(Micros::from_secs(3_600))));
    let short = Ban::new(2, MINUTE, MINUTE, 2, Micros::from_secs(600))?;
    store = bannable(redis);
    store.plan = plan_with(store.plan.limits().to_vec(), Options { ban: Some(short), ..Options::default() });
    store.check(None, ONE);
    let begun = store.check(None, ONE).at;
    assert_eq!(expires(&mut store, "denials"), millis(begun.plus(Micros::from_secs(60 + 600))));
    let key = key(&store, "ban");
    assert_eq!(store.redis.integer(&[b"DEL", &key]), 1);
    let denied = store.check(None, ONE).at;
    assert_eq!(expires(&mut store, "denials"), millis(denied.plus(MINUTE)), "a lifted ban is forgotten");
    Ok(())
}

fn lifted(redis: &Redis) -> Result<(), Failed> {
    let mut store = bannable(redis);
    let key = key(&store, "ban");
    for _ in 0..3 {
        let rests = [(); 2].map(|()| rest(&store.check(None, ONE)));
        assert_eq!(rests, [Rest::No, Rest::Secs(60)], "not twice as long");
        assert_eq!(store.redis.integer(&[b"DEL", &key]), 1);
    }
    Ok(())
}

/// As many limits of one kind as a policy may have: eight, and fewer of two kinds where subjects may make each as large as any.
fn as_many_as_there_may_be(limit: &Limit, options: &Options) -> Plan {
    let named = |i| NamedLimit { name: format!("limit{i}"), limit: limit.clone() };
    let of = |count| Plan::new((0..count).map(named).collect(), options.clone());
    let plan = (1..=MAX_LIMITS).rev().find_map(|count| of(count).ok()).unwrap();
    let most = match limit {
        Limit::SlidingLog(_) if options.overrides == Overrides::Read => 4,
        Limit::Distinct(_) if options.overrides == Overrides::Read => 2,
        _ => MAX_LIMITS,
    };
    assert_eq!(plan.limits().len(), most);
    plan
}

/// As many as there may be of one kind: the answers are those of the Rust limits, for one subject and for many.
fn many(redis: &Redis, limit: Limit, options: Options) -> Result<(), Failed> {
    let mut store = Store::new(redis, vec![limit.clone()]);
    let ban = options.ban.as_ref();
    store.plan = as_many_as_there_may_be(&limit, &options);
    let (mut subject, mut now) = (Subject::default(), spec::START);
    let limits = store.plan.limits().to_vec();
    for ask in [ONE, Ask::new(2, 1), Ask::new(9, 1), Ask::new(1, 7)] {
        let kept_percent = if options.classes == Classes::Several { 40 } else { 0 };
        let ask = Ask { kept_percent, ..ask };
        let outcome = subject.check(&limits, ban, now, ask);
        assert_eq!((store.check(Some(now), ask), outcome.limits.len()), (outcome.clone(), limits.len()));
        now = now.plus(Micros::from_millis(1));
        let settled = subject.settle(&limits, ban, now, -1, &outcome);
        assert_eq!(store.settle(Some(now), -1, &outcome), settled);
        now = now.plus(Micros::from_millis(1));
        let [own, second] = [&store.tag.clone()[..], b"{policy|second}"];
        let outcomes: Vec<Outcome> = store.call(
            |plan, _, form, out| {
                plan.check_all([(own, ask), (second, NONE)].into_iter(), Some(now), form, out)
            },
            |plan, reply| outcomes_of(plan, reply, 2),
        );
        assert_eq!(
            outcomes,
            [subject.check(&limits, ban, now, ask), Subject::default().check(&limits, ban, now, NONE)]
        );
    }
    Ok(())
}

/// Limits for each fragment that these have, overrides read or not: what is linked is all that counts.
fn fragments(overrides: Overrides) -> Vec<Limit> {
    let mut seen = std::collections::HashSet::new();
    let source = |limit: &Limit| {
        let named = NamedLimit { name: "limit".to_owned(), limit: limit.clone() };
        Plan::new(vec![named], Options { overrides, ..Options::default() }).unwrap().source().to_owned()
    };
    let mut limits: Vec<_> = spec::each().into_iter().map(|(_, limit)| limit).collect();
    limits.retain(|limit| seen.insert(source(limit)));
    limits
}

/// Every multiset of so many of these.
fn multisets(of: &[Limit], size: usize) -> Vec<Vec<Limit>> {
    let Some((first, rest)) = of.split_first().filter(|_| size > 0) else {
        return if size == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let with = multisets(of, size - 1).into_iter().map(|mut set| {
        set.push(first.clone());
        set
    });
    with.chain(multisets(rest, size)).collect()
}

/// Redis compiles the script of every configuration. Lua allows a function 200 local variables, 60 variables of the
/// functions around it and 250 registers, and reports an excess only when it compiles the script.
///
/// Tried are all sets of up to four limits, and all of the largest size: with several classes, which have more variables than
/// one; every second one with a ban. Of sets of the largest size with more than two kinds, each is loaded as a check, which has the most
/// variables, and every 16th as all the others. Debts change no script.
fn compiles(overrides: Overrides) -> Result<(), Failed> {
    let limits = fragments(overrides);
    println!("{} fragments", limits.len());
    let small = (1..=4).flat_map(|size| multisets(&limits, size));
    let sets = small.chain(multisets(&limits, MAX_LIMITS));
    let whole = |place: usize, set: &[Limit]| {
        let kinds = set.chunk_by(|one, other| one == other).count();
        set.len() <= 4 || kinds <= 2 || place.is_multiple_of(16)
    };
    // A server of its own: the scripts that others use must not be flushed.
    let Some(server) = Redis::start() else { return Err("no redis-server".into()) };
    let mut redis = server.connect();
    let (mut loaded, mut commands, mut sources, mut banned, mut refused) = (0, Vec::new(), Vec::new(), 0, 0);
    for (place, set) in sets.step_by(if is_full() { 1 } else { 10 }).enumerate() {
        let named =
            |(i, limit): (usize, &Limit)| NamedLimit { name: format!("limit{i}"), limit: limit.clone() };
        let large = |limit: &&Limit| matches!(limit, Limit::SlidingLog(_) | Limit::Distinct(_));
        let logs = set.iter().filter(large).count();
        let limits = set.iter().enumerate().map(named).collect();
        let ban = place.is_multiple_of(2).then(ban);
        banned += usize::from(ban.is_some());
        let plan = match Plan::new(limits, Options { overrides, ban, classes: Classes::Several }) {
            Ok(plan) => plan,
            // No configuration has them.
            Err(invalid) if overrides == Overrides::Read && logs > 0 => {
                assert!(invalid.value.contains("may take"), "{invalid:?}");
                refused += 1;
                continue;
            }
            Err(invalid) => return Err(format!("{invalid:?}: {set:?}").into()),
        };
        let [check, settle, release] = plan.sources();
        let every: &[&str] = if whole(place, &set) { &[check, settle, release] } else { &[check] };
        for source in every {
            resp::array_header(&mut commands, 3);
            for word in [b"SCRIPT".as_slice(), b"LOAD", source.as_bytes()] {
                resp::bulk(&mut commands, word);
            }
            sources.push(plan.limits().to_vec());
        }
        if sources.len() >= 1_000 {
            loaded += load(&mut redis, &mut commands, &mut sources)?;
        }
    }
    loaded += load(&mut redis, &mut commands, &mut sources)?;
    println!("{loaded} scripts, {banned} sets with a ban, {refused} sets refused");
    Ok(())
}

fn load(
    redis: &mut Connection,
    commands: &mut Vec<u8>,
    sources: &mut Vec<Vec<Limit>>,
) -> Result<usize, Failed> {
    let replies = redis.pipeline(commands, sources.len());
    commands.clear();
    redis.call(&[b"SCRIPT", b"FLUSH"]);
    for (reply, limits) in replies.iter().zip(sources.iter()) {
        if reply[0] != b'$' {
            return Err(format!("{}\n{limits:#?}", String::from_utf8_lossy(reply)).into());
        }
    }
    Ok(std::mem::take(sources).len())
}

/// The number of commands that Redis has run, those of scripts included.
fn calls(redis: &mut Connection) -> i64 {
    let stats = String::from_utf8(redis.call(&[b"INFO", b"commandstats"])).unwrap();
    let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    calls.map(|(_, rest)| rest.split(',').next().unwrap().parse::<i64>().unwrap()).sum()
}

/// Redis does nothing else while a script runs, and waits for no deadline: however many grants a log holds, no script
/// walks through them.
fn bounded() -> Result<(), Failed> {
    const GRANTS: u64 = 10_000;
    // A server of its own: others would run commands, too.
    let Some(server) = Redis::start() else { return Err("no redis-server".into()) };
    let hour = Micros::from_secs(3_600);
    let at = |i: u64| spec::START.plus(Micros::from_millis(i));
    let full = || -> (Store, Vec<Outcome>) {
        let mut store = Store::new(&server, vec![SlidingLog::new(GRANTS, hour).unwrap().into()]);
        let granted = (0..GRANTS).map(|i| store.check(Some(at(i)), ONE)).collect();
        (store, granted)
    };
    // The script itself, and what it calls; and the counting.
    let counted = |store: &mut Store, what: &dyn Fn(&mut Store) -> Outcome| {
        what(&mut Store::new(&server, store.plan.limits().to_vec()));
        let before = calls(&mut store.redis);
        let outcome = what(store);
        (outcome.limits[0].remaining, calls(&mut store.redis) - before - 1)
    };
    let all_but_one = at(GRANTS - 2).plus(hour);
    let (mut store, granted) = full();
    for (name, what, remaining) in [
        (
            "a refund of the last",
            &(|store: &mut Store| store.settle(Some(at(GRANTS)), -1, &granted[9_999]))
                as &dyn Fn(&mut Store) -> Outcome,
            1,
        ),
        ("a refund behind 62 others", &|store| store.settle(Some(at(GRANTS)), -1, &granted[9_936]), 2),
        (
            "a refund behind 64 others stays charged",
            &|store| store.settle(Some(at(GRANTS)), -1, &granted[9_933]),
            2,
        ),
        ("a request that costs half of all", &|store| store.check(Some(at(GRANTS)), Ask::new(1, 5_000)), 2),
        ("the clock goes back a little", &|store| store.check(Some(at(GRANTS - 100)), ONE), 1),
        ("the clock goes back before all", &|store| store.check(Some(at(0)), ONE), 0),
    ] {
        let (left, calls) = counted(&mut store, what);
        println!("{name}: {calls} calls");
        if left != remaining || calls > 40 {
            return Err(format!("{name}: {left} left, not {remaining}, {calls} calls").into());
        }
    }
    let (mut store, _) = full();
    let (left, calls) = counted(&mut store, &|store| store.check(Some(all_but_one), ONE));
    println!("a long rest: {calls} calls");
    assert_eq!(left, GRANTS as i64 - 2);
    assert!(calls <= 40, "{calls} calls");
    Ok(())
}

/// Values in the place of a subject's own limits, each with the units that are then left of 5 after one request.
fn overrides() -> Vec<(String, i64)> {
    let row = |text: &str, left| (text.to_owned(), left);
    vec![
        row(r#"{"minute": {"limit": 100}}"#, 99),
        row(r#"{"minute": {"limit": 1}}"#, 0),
        row(r#"{"minute": {"limit": 1000000000000}}"#, 999_999_999_999),
        row(r#"{"minute": {"limit": 100, "window": 1, "burst": 7}, "hour": {"limit": 1}}"#, 99),
        row(r#"{"minute": {"limit": 1e2}}"#, 99),
        row(r#"{"hour": {"limit": 100}}"#, 4),
        row(r#"{"minute": {"limit": 0}}"#, 4),
        row(r#"{"minute": {"limit": -1}}"#, 4),
        row(r#"{"minute": {"limit": 1.5}}"#, 4),
        row(r#"{"minute": {"limit": 1000000000001}}"#, 4),
        row(r#"{"minute": {"limit": NaN}}"#, 4),
        row(r#"{"minute": {"limit": Infinity}}"#, 4),
        row(r#"{"minute": {"limit": null}}"#, 4),
        row(r#"{"minute": {"limit": "100"}}"#, 4),
        row(r#"{"minute": {}}"#, 4),
        row(r#"{"minute": 100}"#, 4),
        row(r#"{"minute": null}"#, 4),
        row(r#"{"minute": {"limit": 100}"#, 4),
        row("[100]", 4),
        row("100", 4),
        row("null", 4),
        row("", 4),
        row("not JSON", 4),
        (["[", "]"].map(|bracket| bracket.repeat(5_000)).concat(), 4),
    ]
}

/// Overrides of limits of five units, and the units of the limit that is in force, with those that may wait.
#[rustfmt::skip]
fn bounds_of_overrides() -> Vec<(&'static str, Limit, &'static str, u64)> {
    let second = Micros::from_secs(1);
    let token = |how, interval| TokenBucket::new(5, 1, interval, how, 0).unwrap().into();
    let leaky = |rate, per, delay| LeakyBucket::new(rate, per, 5, Micros(delay)).unwrap().into();
    let (steps, flow) = (|| token(Refill::Stepwise, second), || token(Refill::Continuous, second));
    vec![
        ("no units of a log", SlidingLog::new(5, second).unwrap().into(), r#"{"b": {"limit": 0}}"#, 5),
        ("steps of nothing", steps(), r#"{"b": {"refill": 0, "capacity": 7}}"#, 7),
        ("full again within ten years, in steps", steps(), r#"{"b": {"capacity": 316224000}}"#, 316_224_000),
        ("not within ten years, in steps", steps(), r#"{"b": {"capacity": 316224001}}"#, 5),
        ("not within ten years with its overdraft, in steps", steps(), r#"{"b": {"capacity": 316224000, "overdraft": 1}}"#, 5),
        ("a refill of nothing", flow(), r#"{"b": {"refill": 0, "capacity": 7}}"#, 7),
        ("a burst of nothing", leaky(1, second, 0), r#"{"b": {"burst": 0}}"#, 5),
        ("a capacity of nothing", flow(), r#"{"b": {"capacity": 0}}"#, 5),
        ("a capacity of nothing, in steps", steps(), r#"{"b": {"capacity": 0}}"#, 5),
        ("a rate of nothing", leaky(1, second, 0), r#"{"b": {"rate": 0, "burst": 7}}"#, 7),
        ("full again within ten years", leaky(1, second, 0), r#"{"b": {"burst": 316224000}}"#, 316_224_000),
        ("not within ten years", leaky(1, second, 0), r#"{"b": {"burst": 316224001}}"#, 5),
        ("not within ten years with its delay", leaky(1, second, 1_000_000), r#"{"b": {"burst": 316224000}}"#, 6),
        ("10^12 that wait", leaky(999, Micros(1_000), 1_001), r#"{"b": {"burst": 999999999001}}"#, 1_000_000_000_000),
        ("more than 10^12 that wait", leaky(999, Micros(1_000), 1_001), r#"{"b": {"burst": 999999999002}}"#, 1_004),
    ]
}

/// A subject with this override, under a policy of one limit.
fn with_override(redis: &Redis, name: &str, limit: Limit, text: &str) -> Result<Store, Failed> {
    let mut store = Store::new(redis, vec![limit.clone()]);
    let options = Options { overrides: Overrides::Read, ..Options::default() };
    store.plan = Plan::new(vec![NamedLimit { name: name.to_owned(), limit }], options)?;
    let key = key(&store, "override");
    store.redis.call(&[b"SET", &key, text.as_bytes()]);
    Ok(store)
}

fn bounded_override(redis: &Redis, limit: Limit, text: &str, quota: u64) -> Result<(), Failed> {
    let mut store = with_override(redis, "b", limit, text)?;
    let outcome = store.check(Some(spec::START), NONE);
    assert_eq!(outcome.in_force(store.plan.limits())[0].quota(), quota);
    Ok(())
}

fn overridden(redis: &Redis, text: &str, left: i64) -> Result<(), Failed> {
    let limit = FixedWindow::new(5, MINUTE, Align::Clock)?.into();
    let mut store = with_override(redis, "minute", limit, text)?;
    let outcome = store.check(Some(spec::START), ONE);
    assert_eq!(outcome.limits[0].remaining, left);
    let in_force = outcome.in_force(store.plan.limits());
    assert_eq!(in_force[0].quota(), left as u64 + 1);
    assert_eq!(outcome.own.is_some(), left != 4);
    // The override is for this subject only, even if others are checked in the same command.
    let among = [b"x".as_slice(), &store.tag.clone(), b"y"];
    let plan = store.plan.clone();
    let outcomes: Vec<Outcome> = store.call(
        |plan, _, form, out| {
            plan.check_all(among.iter().map(|tag| (*tag, NONE)), Some(spec::START), form, out)
        },
        |_, reply| outcomes_of(&plan, reply, 3),
    );
    let remaining = outcomes.iter().map(|outcome| outcome.limits[0].remaining);
    assert_eq!(remaining.collect::<Vec<_>>(), [5, left, 5]);
    // The counts stay when the override is deleted.
    let key = key(&store, "override");
    store.redis.call(&[b"DEL", &key]);
    assert_eq!(store.check(Some(spec::START), ONE).limits[0].remaining, 3);
    store.redis.call(&[b"HSET", &key, b"minute", b"1"]);
    assert_eq!(store.check(Some(spec::START), ONE).limits[0].remaining, 2);
    Ok(())
}

/// The documentation states the memory of a subject as Redis reports it.
fn memory(redis: &Redis, place: usize, limit: Limit, asks: Vec<Micros>) -> Result<(), Failed> {
    let name = spec::sizes()[place].0;
    let documented = include_str!("../../../docs/sizing.md").lines().find_map(|line| {
        let bytes = line.strip_prefix(&format!("| {name} | "))?.strip_suffix(" |")?;
        bytes.parse::<i64>().ok()
    });
    let documented = documented.ok_or("docs/sizing.md does not say")?;
    let tag = format!("{{api|203.0.113.{}}}", 100 + place);
    let key = format!("weir:{tag}:burst");
    let mut store = Store::named(redis, vec![("burst".to_owned(), limit)], tag.as_bytes());
    for (now, value) in asks.into_iter().zip(0_u64..) {
        let mut member = [0; 12];
        member[..8].copy_from_slice(&value.to_le_bytes());
        assert_eq!(store.check(Some(now), Ask { member: Member(member), ..ONE }).granted, 1);
    }
    let measured = store.redis.integer(&[b"MEMORY", b"USAGE", key.as_bytes(), b"SAMPLES", b"0"]);
    // Another Redis, or another allocator, rounds up to other sizes.
    if (documented / 2..=documented * 5 / 4).contains(&measured) {
        return Ok(());
    }
    Err(format!("{measured} bytes, not {documented}").into())
}

/// An error of the store is not treated as an empty state: the request must not pass as if it were the first.
fn errors(limit: Limit) -> Result<(), Failed> {
    let Some(server) = Redis::start() else { return Err("no redis-server".into()) };
    let mut store = Store::new(&server, vec![limit]);
    assert_eq!(store.check(None, ONE).granted, 1);
    let mut redis = server.connect();
    // SET writes the states that SETRANGE may not write.
    redis.call(&[b"ACL", b"SETUSER", b"default", b"-setrange"]);
    for _ in 0..3 {
        store.check(None, ONE);
    }
    let ask = |redis: &mut Connection| {
        let mut command = Vec::new();
        // A value that is not counted yet has to be written.
        let ask = Ask { member: spec::member("new"), ..ONE };
        store.plan.check(&store.tag, ask, None, Form::Evalsha, &mut command);
        let reply = redis.pipeline(&command, 1).remove(0);
        match store.plan.outcome(&resp::decode(&reply).unwrap().unwrap().0) {
            Err(BadReply::Error(line)) => line,
            other => format!("{other:?}"),
        }
    };
    redis.call(&[b"ACL", b"SETUSER", b"default", b"-get", b"-lindex", b"-incrby"]);
    let line = ask(&mut redis);
    assert!(line.contains("can't run this command") || line.starts_with("NOPERM"), "{line}");
    redis.call(&[b"ACL", b"SETUSER", b"default", b"+@all"]);
    redis.call(&[b"CONFIG", b"SET", b"maxmemory", b"1"]);
    let line = ask(&mut redis);
    assert!(line.starts_with("OOM"), "{line}");
    Ok(())
}

fn noscript() -> Result<(), Failed> {
    // A server of its own: others need their scripts.
    let Some(server) = Redis::start() else { return Err("no redis-server".into()) };
    let mut redis = server.connect();
    let plan = plan(vec![LeakyBucket::new(1, Micros::from_secs(60), 3, Micros::ZERO)?.into()]);
    for round in 0..2 {
        let tag = format!("{{p|{round}}}");
        redis.call(&[b"SCRIPT", b"FLUSH"]);
        let mut ask = |form| {
            let mut command = Vec::new();
            plan.check(tag.as_bytes(), ONE, None, form, &mut command);
            let reply = redis.pipeline(&command, 1).remove(0);
            plan.outcome(&resp::decode(&reply).unwrap().unwrap().0).map(|outcome| outcome.limits[0].remaining)
        };
        assert_eq!(ask(Form::Evalsha), Err(BadReply::NoScript));
        assert_eq!(ask(Form::Eval), Ok(2));
        assert_eq!(ask(Form::Evalsha), Ok(1));
    }
    Ok(())
}

/// A cluster refuses a command whose keys are in different slots, and a script that touches keys it did not
/// name.
fn cluster() -> Result<(), Failed> {
    let Some(server) = Redis::start_cluster() else { return Err("no redis-server".into()) };
    let limits: Vec<Limit> = spec::each().into_iter().map(|(_, limit)| limit).take(8).collect();
    let mut store = Store::new(&server, limits);
    let outcome = store.check(None, ONE);
    assert_eq!(outcome.granted, 1);
    store.settle(None, -1, &outcome);
    let mut store = Store::new(&server, spec::each().into_iter().map(|(_, limit)| limit).skip(8).collect());
    let outcome = store.check(None, ONE);
    assert_eq!(outcome.granted, 1);
    let permits: Vec<_> = outcome.permits(1).collect();
    assert_eq!(store.release(None, &permits), 1);
    Ok(())
}

/// Limits that the connections of a crowd exceed, over several windows.
pub fn crowds() -> Vec<(&'static str, Vec<Limit>)> {
    let [second, tenth, hundredth] = [1_000, 100, 10].map(Micros::from_millis);
    let leaky: Limit = LeakyBucket::new(1_000, second, 50, Micros::ZERO).unwrap().into();
    let token = |how| TokenBucket::new(90, 80, tenth, how, 0).unwrap().into();
    vec![
        ("fixed_window, clock", vec![FixedWindow::new(80, tenth, Align::Clock).unwrap().into()]),
        ("fixed_window, first", vec![FixedWindow::new(80, tenth, Align::First).unwrap().into()]),
        ("sliding_log", vec![SlidingLog::new(80, tenth).unwrap().into()]),
        ("sliding_window", vec![SlidingWindow::new(80, tenth, hundredth).unwrap().into()]),
        ("token_bucket, continuous", vec![token(Refill::Continuous)]),
        ("token_bucket, stepwise", vec![token(Refill::Stepwise)]),
        ("leaky_bucket", vec![leaky.clone()]),
        ("concurrency", vec![Concurrency::new(80, tenth).unwrap().into()]),
        ("sliding_log and leaky_bucket", vec![SlidingLog::new(80, tenth).unwrap().into(), leaky]),
    ]
}

/// Many connections ask at once. In the order of the store's clock, each answer is the one that the model gives at that time.
fn crowd(redis: &Redis, limits: &[Limit]) -> Result<(), Failed> {
    const CONNECTIONS: usize = 50;
    let mut store = Store::new(redis, limits.to_vec());
    let now = store.check(None, NONE).at;
    let [end, latest] = [1, 60].map(|seconds| now.plus(Micros::from_secs(seconds)));
    // On a machine that stands still, a second may be too short for a crowd.
    let (granted, denied) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_crowd = || granted.load(Ordering::Relaxed) > 80 && denied.load(Ordering::Relaxed) > 0;
    let read = |plan: &Plan, reply: &[u8]| plan.outcome(&resp::decode(reply).unwrap().unwrap().0).unwrap();
    let tag: &[u8] = &store.tag;
    // Each thread has a plan of its own, which threads cannot share.
    let ask = |mut connection: Connection| {
        let (plan, mut command) = (plan(limits.to_vec()), Vec::new());
        plan.check(tag, ONE, None, Form::Evalsha, &mut command);
        let (mut replies, mut at) = (Vec::new(), Micros::ZERO);
        while at < end || at < latest && !is_crowd() {
            let reply = connection.pipeline(&command, 1).remove(0);
            let answer = read(&plan, &reply);
            at = answer.at;
            let count = if answer.granted > 0 { &granted } else { &denied };
            count.fetch_add(1, Ordering::Relaxed);
            // As a client would that heeds retry-after, so that fifty of them fit two cores.
            if let RetryAfter::After(span) = answer.retry_after() {
                std::thread::sleep(Duration::from_micros(span.0.min(1_000)));
            }
            replies.push(reply);
        }
        replies
    };
    let replies: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(move || ask(redis.connect()))).collect();
        crowd.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let mut answers: Vec<Outcome> = replies.iter().map(|reply| read(&store.plan, reply)).collect();
    // Within a microsecond, a grant leaves less for those that come later.
    answers.sort_by_key(|answer| {
        let remaining = answer.limits.last().unwrap().remaining;
        (answer.at, Reverse(answer.granted), Reverse(remaining))
    });
    let mut subject = Subject::default();
    for (place, answer) in answers.iter().enumerate() {
        let wanted = subject.check(limits, None, answer.at, ONE);
        if *answer != wanted {
            return Err(format!(
                "of {} answers, number {place} is {answer:?}, not {wanted:?}",
                answers.len()
            )
            .into());
        }
    }
    assert!(
        is_crowd(),
        "of {} answers: the crowd did not exceed the limit, or had no second window",
        answers.len()
    );
    Ok(())
}

/// Workers of several Envoys write at once, and one of them was configured with a smaller cap before.
fn journal_is_capped(redis: &Redis) -> Result<(), Failed> {
    const WRITERS: usize = 8;
    let write = |cap: i64, entries: usize| {
        let config = format!(
            r#"{{"journal": {{"max_entries": {cap}, "max_per_second": 10000}}, "store": {{"key_prefix": "capped"}}, "policies":
                [{{"name": "p", "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}}]}}]}}"#
        );
        let config = Config::parse(config.as_bytes()).expect("a configuration");
        let (mut engine, mut connection) = (Engine::new(Rc::new(config), 1), redis.connect());
        let mut now = Micros::from_secs(1_700_000_000);
        for _ in 0..entries {
            engine.denied(None, Denial::Listed(0), now);
            now = now.plus(Micros::from_millis(100));
            engine.tick(now);
            let batch = engine.next_batch(now).expect("a batch");
            let replies = connection.pipeline(&batch.body, batch.replies);
            assert!(replies.iter().all(|reply| reply.starts_with(b"$")), "{replies:?}");
            engine.replied(batch.id, &replies.concat(), now);
        }
        assert_eq!(engine.counters().journal_dropped, 0);
    };
    let length = || redis.connect().integer(&[b"XLEN", b"capped:{journal}"]);
    write(1_000, 200);
    assert_eq!(length(), 200);
    write(50, 1);
    assert_eq!(length(), 50);
    let left = AtomicUsize::new(WRITERS);
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                write(50, 300);
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            assert_eq!(length(), 50, "never longer");
        }
    });
    Ok(())
}
