// SPDX-License-Identifier: Apache-2.0
//! The commands that a plan writes, and the replies that it reads: byte by byte, without a Redis. That Redis understands the
//! commands and replies so is what `limit_tables.rs` and its companions show.

use weir::limit::{
    Align, Ask, Ban, Concurrency, FixedWindow, LeakyBucket, Limit, LimitOutcome, MAX_COST, MAX_LOG, Outcome,
    Period, Permits, Refill, RetryAfter, SlidingLog, SlidingWindow, TokenBucket, UtcOffset,
};
use weir::resp::{self, Reply};
use weir::script::{BadReply, Classes, Form, MAX_LIMITS, NamedLimit, Options, Overrides, Plan, ScriptKind};
use weir::time::Micros;

const TAG: &[u8] = b"{p|s}";
const NOW: Micros = Micros(1_700_000_000_000_000);
const ASK: Ask = Ask::new(3, 2);

fn log(limit: u64) -> Limit {
    SlidingLog::new(limit, Micros::from_secs(60)).unwrap().into()
}

fn leaky(burst: u64) -> Limit {
    LeakyBucket::new(1, Micros::from_secs(1), burst, Micros::ZERO).unwrap().into()
}

fn in_flight() -> Limit {
    Concurrency::new(5, Micros::from_secs(60)).unwrap().into()
}

fn plan_of(limits: &[(&str, Limit)], overrides: Overrides) -> Result<Plan, weir::limit::Invalid> {
    let named = |(name, limit): &(&str, Limit)| NamedLimit { name: (*name).to_owned(), limit: limit.clone() };
    Plan::new(limits.iter().map(named).collect(), Options { overrides, ..Options::default() })
}

/// Two limits that the script has in the other order: the bucket first.
fn plan() -> Plan {
    plan_of(&[("log", log(9)), ("leaky", leaky(7))], Overrides::Ignored).unwrap()
}

/// The words of a command.
fn words(write: impl FnOnce(&mut Vec<u8>)) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    let (reply, length) = resp::decode(&bytes).expect("RESP").expect("a whole command");
    assert_eq!(length, bytes.len(), "one command");
    let Reply::Array(Some(words)) = reply else { panic!("{reply:?}") };
    let word = |word: &Reply<'_>| match word {
        Reply::Bulk(Some(bytes)) => bytes.to_vec(),
        other => panic!("{other:?}"),
    };
    words.iter().map(word).collect()
}

fn numbers(bytes: &[u8]) -> Vec<i64> {
    let (numbers, rest) = bytes.as_chunks();
    assert!(rest.is_empty());
    numbers.iter().map(|number| i64::from_le_bytes(*number)).collect()
}

fn packed(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The fraction is reduced, or large intervals would need the script for wide numbers.
#[test]
fn rates_that_are_the_same_make_the_same_command() {
    let command = |amount, seconds| {
        let limit = LeakyBucket::new(amount, Micros::from_secs(seconds), 7, Micros::ZERO).unwrap().into();
        let plan = plan_of(&[("l", limit)], Overrides::Ignored).unwrap();
        words(|out| plan.check(TAG, ASK, Some(NOW), Form::Eval, out))
    };
    for (amount, seconds) in [(2, 2), (60, 60), (86_400, 86_400), (31_536_000, 31_536_000)] {
        assert_eq!(command(amount, seconds), command(1, 1), "{amount} in {seconds} s");
    }
}

/// The numbers of Redis's Lua are doubles, which hold each integer below 2^53. Where a bucket may owe as many parts as that, another
/// script counts microseconds and parts apart.
#[test]
fn a_bucket_that_may_owe_more_than_a_double_holds_has_another_script() {
    // One unit takes 2^26 parts to flow: 2^53 parts are 2^27 units.
    const PERIOD: Micros = Micros(1 << 26);
    let bucket = |capacity, overdraft| {
        let limit =
            TokenBucket::new(capacity, 1_000_001, PERIOD, Refill::Continuous, overdraft).unwrap().into();
        plan_of(&[("l", limit)], Overrides::Ignored).unwrap().sources().map(str::to_owned)
    };
    let narrow = bucket(1, 0);
    let wide = bucket(1 << 28, 0);
    assert_ne!(narrow[0], wide[0]);
    // Beside what is owed, a request has its own unit and what it takes of the overdraft.
    for (capacity, overdraft) in [((1 << 27) - 1, 0), ((1 << 27) - 3, 1), ((1 << 27) - 9, 4)] {
        assert_eq!(bucket(capacity - 1, overdraft), narrow, "{capacity} and {overdraft}, less one");
        assert_eq!(bucket(capacity, overdraft), wide, "{capacity} and {overdraft}");
    }
}

#[test]
fn a_plan_has_from_one_to_eight_limits_of_different_names() {
    let wrong =
        |limits: &[(&str, Limit)], overrides| plan_of(limits, overrides).err().map(|wrong| wrong.to_string());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|name| (name, leaky(1)));
    assert_eq!(wrong(&names[..1], Overrides::Ignored), None);
    assert_eq!(wrong(&names[..MAX_LIMITS], Overrides::Ignored), None);
    let count = |count: usize| Some(format!("limits is {count}, allowed is 1 to 8 limits"));
    assert_eq!(wrong(&[], Overrides::Ignored), count(0));
    assert_eq!(wrong(&names, Overrides::Ignored), count(9));
    let name =
        |name: &str| Some(format!("name is {name}, allowed is a name that no other key of the policy has"));
    assert_eq!(wrong(&[("a", leaky(1)), ("b", leaky(1)), ("a", log(1))], Overrides::Ignored), name("a"));
    assert_eq!(wrong(&[("override", leaky(1))], Overrides::Read), name("override"));
    assert_eq!(wrong(&[("override", leaky(1))], Overrides::Ignored), None);
    assert_eq!(wrong(&[("other", leaky(1))], Overrides::Read), None);
}

#[test]
fn policies_with_the_same_algorithms_share_a_script_in_whatever_order_they_name_them() {
    let other = plan_of(&[("burst", leaky(1)), ("day", log(2))], Overrides::Ignored).unwrap();
    assert_eq!(plan().sources(), other.sources());
    let sources = plan().sources().map(str::to_owned);
    assert_eq!(sources[0], plan().source());
    assert!(
        (0..3).all(|one| (0..one).all(|other| sources[one] != sources[other])),
        "each does something else"
    );
    assert_eq!(plan().sha(), other.sha());
    assert_ne!(plan().sha(), plan_of(&[("day", log(2))], Overrides::Ignored).unwrap().sha());
    // They differ in their parameters.
    assert_eq!((plan().limits(), plan().overrides()), (&[log(9), leaky(7)][..], Overrides::Ignored));
}

#[test]
fn a_command_asks_about_fewer_subjects_where_one_may_take_long() {
    let subjects = |limits: &[Limit], overrides| {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let named: Vec<_> = names.into_iter().zip(limits.iter().cloned()).collect();
        plan_of(&named, overrides).unwrap().subjects()
    };
    assert_eq!(subjects(&[leaky(1)], Overrides::Ignored), 64);
    let [one, two] = [1, 2].map(|count| subjects(&vec![log(1); count], Overrides::Ignored));
    assert!(1 < two && two <= one / 2, "{one} with one log, {two} with two");
    assert_eq!(subjects(&vec![log(1); MAX_LIMITS], Overrides::Ignored), 1);
    let [ignored, read] = [Overrides::Ignored, Overrides::Read].map(|of| subjects(&[in_flight()], of));
    assert!(1 < read && read < ignored && ignored < 64, "{ignored} without overrides, {read} with them");
}

#[test]
fn a_check_names_its_script_its_keys_and_what_it_asks() {
    for overrides in [Overrides::Ignored, Overrides::Read] {
        let plan = plan_of(&[("log", log(9)), ("leaky", leaky(7))], overrides).unwrap();
        let mut keys: Vec<&[u8]> = vec![b"weir:{p|s}:leaky", b"weir:{p|s}:log"];
        if overrides == Overrides::Read {
            keys.push(b"weir:{p|s}:override");
        }
        let count = keys.len().to_string().into_bytes();
        for (form, verb, script) in [
            (Form::Evalsha, b"EVALSHA".as_slice(), plan.sha().into_bytes()),
            (Form::Eval, b"EVAL", plan.source().as_bytes().to_vec()),
        ] {
            let words = words(|out| plan.check(TAG, ASK, Some(NOW), form, out));
            assert_eq!((&words[0][..], &words[1], &words[2]), (verb, &script, &count));
            assert_eq!(words[3..words.len() - 1], keys);
            assert_eq!(numbers(&words[words.len() - 1])[..3], [1_700_000_000_000_000, 3, 2]);
        }
    }
}

#[test]
fn an_operators_command_finds_the_keys_that_a_check_names() {
    let check = words(|out| plan().check(TAG, ASK, Some(NOW), Form::Evalsha, out));
    assert_eq!(plan().names(), ["log", "leaky"]);
    let keys: Vec<_> = ["leaky", "log"].map(|name| weir::script::records::key("weir", TAG, name)).into();
    assert_eq!(check[3..5], keys);
}

#[test]
fn a_check_of_several_subjects_has_the_keys_and_the_question_of_each() {
    let plan = plan();
    let subjects = [(b"{p|a}".as_slice(), ASK), (b"{p|b}", Ask::new(1, 0))];
    for form in [Form::Evalsha, Form::Eval] {
        let words = words(|out| plan.check_all(subjects.into_iter(), None, form, out));
        let keys: [&[u8]; 4] =
            [b"weir:{p|a}:leaky", b"weir:{p|a}:log", b"weir:{p|b}:leaky", b"weir:{p|b}:log"];
        assert_eq!((&words[2][..], words.len()), (b"4".as_slice(), 8));
        assert_eq!(words[3..7], keys);
        let asked = numbers(&words[7]);
        assert_eq!(asked[..3], [0, 3, 2], "Redis's own time, and the first question");
        assert_eq!(asked[asked.len() - 2..], [1, 0]);
    }
}

#[test]
fn a_settlement_brings_the_receipt_in_the_order_of_the_script() {
    let answer = |remaining, reset, refunded| LimitOutcome {
        remaining,
        reset: Micros(reset),
        refunded,
        ..LimitOutcome::default()
    };
    let limits = [answer(-1, 2, 3), answer(4, 5, 6)].into_iter().collect();
    let receipt = Outcome { granted: 1, at: NOW, limits, ..Outcome::NONE };
    let settle = |units| words(|out| plan().settle(TAG, units, &receipt, Some(NOW), Form::Evalsha, out));
    let words = settle(-5);
    assert_eq!(words[3..5], [b"weir:{p|s}:leaky".as_slice(), b"weir:{p|s}:log"]);
    let asked = [1_700_000_000_000_000, -5, 1_700_000_000_000_000, 4, 5, 6, 0, -1, 2, 3, 0];
    assert_eq!(numbers(&words[5])[..11], asked);
    let most = i64::try_from(MAX_COST).unwrap();
    let units = |units| numbers(&settle(units)[5])[1];
    assert_eq!([units(most), units(i64::MAX), units(-most), units(i64::MIN)], [most, most, -most, -most]);
}

#[test]
fn a_release_names_the_limit_and_the_places_of_each_lease() {
    let limits = [("log", log(9)), ("here", in_flight()), ("there", in_flight())];
    let plan = plan_of(&limits, Overrides::Ignored).unwrap();
    let permits = [Permits { limit: 2, expiry: 70, count: 2 }, Permits { limit: 1, expiry: 80, count: 1 }];
    let words = words(|out| assert!(plan.release(TAG, &permits, Some(NOW), Form::Evalsha, out)));
    assert_eq!(words[2], b"2");
    assert_eq!(words[3..5], [b"weir:{p|s}:there".as_slice(), b"weir:{p|s}:here"]);
    assert_eq!(numbers(&words[5]), [1_700_000_000_000_000, 70, 2, 0, 80, 1, 0]);
    let mut nothing = Vec::new();
    assert!(!plan.release(TAG, &[], Some(NOW), Form::Evalsha, &mut nothing));
    assert!(nothing.is_empty());
}

#[test]
fn the_epoch_is_a_time_too_and_a_cost_that_no_limit_grants_is_cut() {
    let asked = |now, cost| {
        let words = words(|out| plan().check(TAG, Ask::new(1, cost), now, Form::Evalsha, out));
        let asked = numbers(&words[5]);
        (asked[0], asked[2])
    };
    let most = i64::try_from(MAX_COST).unwrap();
    assert_eq!(asked(None, MAX_COST), (0, most));
    assert_eq!(asked(Some(Micros::ZERO), MAX_COST - 1), (1, most - 1));
    assert_eq!(asked(Some(Micros(u64::MAX)), u64::MAX), (i64::MAX, most));
}

/// The reply of the script of [`plan`]: granted, time; then for the bucket and for the log what is left, when all is back, when to come
/// again, an extra, and what was refunded.
const REPLY: [i64; 12] = [2, 1_000, 3, -51, 40, -6, 12, 7, -91, -1, 10, 0];

fn read(plan: &Plan, bytes: &[u8]) -> Result<Outcome, BadReply> {
    plan.outcome(&Reply::Bulk(Some(bytes)))
}

#[test]
fn a_reply_is_read_in_the_order_of_the_policy() {
    let of_log = LimitOutcome {
        remaining: 7,
        retry_after: RetryAfter::Never,
        reset: Micros(90),
        first_delay: 10,
        ..LimitOutcome::default()
    };
    let of_leaky = LimitOutcome {
        remaining: 3,
        retry_after: RetryAfter::After(Micros(40)),
        reset: Micros(50),
        first_delay: -6,
        refunded: 12,
        ..LimitOutcome::default()
    };
    let limits = [of_log, of_leaky].into_iter().collect();
    let outcome = Outcome { granted: 2, at: Micros(1_000), limits, ..Outcome::NONE };
    assert_eq!(read(&plan(), &packed(&REPLY)), Ok(outcome));
}

#[test]
fn the_extra_of_concurrency_names_its_places_and_that_of_others_is_a_turn() {
    let plan = plan_of(&[("here", in_flight())], Overrides::Ignored).unwrap();
    let answer = read(&plan, &packed(&[1, 1_000, 4, -61, 0, 77, 0])).unwrap().limits[0];
    assert_eq!((answer.permit_expiry, answer.first_delay, answer.retry_after), (77, 0, RetryAfter::Now));
}

#[test]
fn limits_of_a_subjects_own_are_read_where_they_differ() {
    let window = |limit| FixedWindow::new(limit, Micros::from_secs(60), Align::First).unwrap().into();
    let plan = plan_of(&[("log", log(9)), ("window", window(5))], Overrides::Read).unwrap();
    let reply = |log_limit, window_limit| {
        let numbers = [2, 1_000, 3, -51, log_limit, 0, 0, 20, 0, 0, 4, 60, window_limit, 0, 0];
        read(&plan, &packed(&numbers)).map(|outcome| outcome.own.map(|own| own.to_vec()))
    };
    assert_eq!(reply(9, 5), Ok(None));
    assert_eq!(reply(9, 6), Ok(Some(vec![log(9), window(6)])));
    assert_eq!(reply(8, 5), Ok(Some(vec![log(8), window(5)])));
    assert_eq!(reply(0, 5), Err(BadReply::Unexpected), "no limit is 0");
}

/// The same limits, where denials may lead to a ban.
fn banning(overrides: Overrides) -> Plan {
    let named = |(name, limit): (&str, Limit)| NamedLimit { name: name.to_owned(), limit };
    let limits = [("log", log(9)), ("leaky", leaky(7))].map(named).to_vec();
    let ban = Ban::new(5, Micros(10_000), Micros(20_000), 3, Micros(40_000)).unwrap();
    Plan::new(limits, Options { overrides, ban: Some(ban), ..Options::default() }).unwrap()
}

#[test]
fn a_ban_has_two_keys_after_all_others_and_its_numbers_before_those_of_the_limits() {
    for (overrides, keys) in [
        (Overrides::Ignored, vec![":leaky", ":log", ":ban", ":denials"]),
        (Overrides::Read, vec![":leaky", ":log", ":override", ":ban", ":denials"]),
    ] {
        let plan = banning(overrides);
        let keys: Vec<_> = keys.iter().map(|key| format!("weir:{{p|s}}{key}").into_bytes()).collect();
        let check = words(|out| plan.check(TAG, ASK, Some(NOW), Form::Evalsha, out));
        let last = check.len() - 1;
        assert_eq!(check[3..last], keys);
        let of_ban = [5, 10_000, 20_000, 3, 40_000];
        assert_eq!(numbers(&check[last])[3..8], of_ban);
        let without = plan_of(&[("log", log(9)), ("leaky", leaky(7))], overrides).unwrap();
        let bare = words(|out| without.check(TAG, ASK, Some(NOW), Form::Evalsha, out));
        assert_eq!(numbers(&check[last])[8..], numbers(&bare[bare.len() - 1])[3..], "of the limits");
        let limits = [LimitOutcome::default(); 2].into_iter().collect();
        let receipt = Outcome { granted: 1, at: NOW, limits, ..Outcome::NONE };
        let settle = words(|out| plan.settle(TAG, 1, &receipt, Some(NOW), Form::Evalsha, out));
        assert_eq!((&settle[3..last], &numbers(&settle[last])[11..16]), (&keys[..], &of_ban[..]));
        let all =
            words(|out| plan.check_all([(TAG, ASK), (TAG, ASK)].into_iter(), Some(NOW), Form::Evalsha, out));
        assert_eq!(all[3..all.len() - 1], [&keys[..], &keys].concat());
        assert_eq!(all.last(), check.last(), "both ask the same");
        assert!(without.sources().iter().all(|source| !source.contains("ban")), "it costs others nothing");
        let fewer = plan.subjects() < without.subjects();
        assert!(fewer || overrides == Overrides::Read, "a ban takes time");
    }
}

#[test]
fn what_is_kept_for_others_is_the_last_number_of_the_question() {
    let named = |(name, limit): (&str, Limit)| NamedLimit { name: name.to_owned(), limit };
    let limits = [("log", log(9)), ("leaky", leaky(7))].map(named).to_vec();
    let plan = Plan::new(limits, Options { classes: Classes::Several, ..Options::default() }).unwrap();
    let (ask, other) = (Ask { kept_percent: 20, ..ASK }, Ask { kept_percent: 99, ..Ask::new(1, 0) });
    let check = words(|out| plan.check(TAG, ask, Some(NOW), Form::Evalsha, out));
    let bare = words(|out| self::plan().check(TAG, ASK, Some(NOW), Form::Evalsha, out));
    assert_eq!(check[3..5], bare[3..5], "the same keys");
    assert_eq!(numbers(&check[5])[..4], [NOW.0.cast_signed(), 3, 2, 20]);
    assert_eq!(numbers(&check[5])[4..], numbers(&bare[5])[3..]);
    let all = words(|out| plan.check_all([(TAG, ask), (TAG, other)].into_iter(), None, Form::Evalsha, out));
    let (all, one) = (numbers(&all[7]), numbers(&check[5]));
    assert_eq!((&all[1..one.len()], &all[one.len()..]), (&one[1..], &[1, 0, 99][..]));
    let (kept, nothing) = (plan, self::plan());
    assert!(kept.counts_like(&nothing), "the state is the same");
    assert_eq!(kept.source_of(ScriptKind::Settle), nothing.source_of(ScriptKind::Settle));
    assert!(
        nothing.sources().iter().all(|source| !source.contains("kept_percent")),
        "it costs others nothing"
    );
}

/// A script contains the functions that it calls, and no others: EVAL sends all of it.
#[test]
fn a_script_has_the_helpers_that_it_calls() {
    let (second, day) = (Micros::from_secs(1), Micros::from_secs(86_400));
    let window = |align| Limit::from(FixedWindow::new(9, second, align).unwrap());
    let limits: [Limit; 7] = [
        window(Align::Clock),
        window(Align::First),
        window(Align::Calendar(Period::MONTH, UtcOffset::UTC)),
        log(9),
        SlidingWindow::new(9, day, day).unwrap().into(),
        leaky(9),
        in_flight(),
    ];
    let ban = || Ban::new(3, second, second, 2, day).unwrap();
    for limit in limits {
        let bans = |overrides| [(overrides, None), (overrides, Some(ban()))];
        for (overrides, ban) in [Overrides::Ignored, Overrides::Read].map(bans).concat() {
            let limits = vec![NamedLimit { name: "l".to_owned(), limit: limit.clone() }];
            let row = format!("{limit:?}, {overrides:?}, {ban:?}");
            let plan = Plan::new(limits, Options { overrides, ban, ..Options::default() }).unwrap();
            for source in plan.sources() {
                for helper in ["heal", "muldiv", "month"] {
                    let parts: Vec<_> = source.split(&format!("{helper}(")).collect();
                    let defined = parts.iter().any(|part| part.ends_with("function "));
                    let called = parts.len() > 1 + usize::from(defined);
                    assert_eq!(defined, called, "{helper}: {row}");
                }
            }
        }
    }
}

#[test]
fn no_limit_has_the_name_of_a_key_of_bans() {
    let made = |name: &str, ban: Option<Ban>| {
        let limits = vec![NamedLimit { name: name.to_owned(), limit: leaky(1) }];
        Plan::new(limits, Options { ban, ..Options::default() }).err().map(|wrong| wrong.value)
    };
    let ban = || Some(banning(Overrides::Ignored).ban().unwrap().clone());
    for name in ["ban", "denials"] {
        assert_eq!((made(name, ban()), made(name, None)), (Some(name.to_owned()), None));
    }
    assert_eq!(made("override", ban()), None);
}

#[test]
fn the_time_of_a_ban_follows_the_limits() {
    let plan = banning(Overrides::Ignored);
    let reply = |ban| packed(&[&REPLY[..], &[ban]].concat());
    let rows = [(0, RetryAfter::Now), (70, RetryAfter::After(Micros(70))), (-1, RetryAfter::Never)];
    for (number, ban) in rows {
        assert_eq!(read(&plan, &reply(number)).unwrap().ban, ban);
    }
    let outcome = read(&plan, &reply(1_000_000)).unwrap();
    assert_eq!(outcome.retry_after(), RetryAfter::Never, "the log never grants it");
    for wrong in [packed(&REPLY), reply(-2), reply(0)[..103].to_vec()] {
        assert_eq!(read(&plan, &wrong), Err(BadReply::Unexpected));
    }
}

#[test]
fn a_ban_keeps_to_its_bounds() {
    let (ms, year) = (Micros::from_millis(1), Micros::from_secs(366 * 86_400));
    let over = Micros(year.0 + 1);
    let rows = [
        ((1, ms, ms, 1, ms), None),
        ((1_000, year, year, 100, year), None),
        ((0, ms, ms, 1, ms), Some("after")),
        ((1_001, ms, ms, 1, ms), Some("after")),
        ((1, Micros(999), ms, 1, ms), Some("window")),
        ((1, over, ms, 1, ms), Some("window")),
        ((1, ms, Micros(999), 1, ms), Some("duration")),
        ((1, ms, over, 1, over), Some("duration")),
        ((1, ms, ms, 0, ms), Some("factor")),
        ((1, ms, ms, 101, ms), Some("factor")),
        ((1, ms, Micros(1_001), 1, ms), Some("max")),
        ((1, ms, ms, 1, over), Some("max")),
    ];
    for ((after, window, duration, factor, max), wrong) in rows {
        let made = Ban::new(after, window, duration, factor, max);
        assert_eq!(made.as_ref().err().map(|wrong| wrong.parameter), wrong, "{made:?}");
    }
}

#[test]
fn what_is_no_reply_of_the_script_is_no_answer() {
    let with = |place: usize, number| {
        let mut reply = REPLY;
        reply[place] = number;
        packed(&reply)
    };
    let whole = packed(&REPLY);
    for (row, bytes) in [
        ("nothing", vec![]),
        ("a byte less", whole[..95].to_vec()),
        ("a number more", [&whole[..], &[0; 8]].concat()),
        ("a byte more", [&whole[..], b"x"].concat()),
        ("fewer than none granted", with(0, -1)),
        ("more granted than can be asked for", with(0, 1 << 32)),
        ("a time before the epoch", with(1, -1)),
        ("to come again before now", with(4, -2)),
        ("less than nothing refunded", with(6, -1)),
        ("a short answer with the numbers of a long one", with(3, 50)),
    ] {
        assert_eq!(read(&plan(), &bytes), Err(BadReply::Unexpected), "{row}");
    }
    for reply in [Reply::Bulk(None), Reply::Integer(1), Reply::Array(Some(vec![]))] {
        assert_eq!(plan().outcome(&reply), Err(BadReply::Unexpected), "{reply:?}");
    }
}

/// The reply to a check of two subjects: of each what is granted, the time, and what is left of the bucket and of the log, and when it is
/// full.
const REPLIES: [i64; 12] = [2, 1_000, 3, 50, 7, 90, 0, 1_000, -4, 60, 8, 91];

#[test]
fn a_reply_about_several_subjects_has_what_is_mostly_0_only_where_it_is_not() {
    let read = |plan: &Plan, bytes: &[u8]| {
        let mut outcomes = Vec::new();
        plan.outcomes(&Reply::Bulk(Some(bytes)), 2, |outcome| outcomes.push(outcome)).map(|()| outcomes)
    };
    let answer =
        |remaining, reset| LimitOutcome { remaining, reset: Micros(reset), ..LimitOutcome::default() };
    let outcome = |granted, log, leaky| {
        let limits = [log, leaky].into_iter().collect();
        Outcome { granted, at: Micros(1_000), limits, ..Outcome::NONE }
    };
    let whole = packed(&REPLIES);
    let plain = [outcome(2, answer(7, 90), answer(3, 50)), outcome(0, answer(8, 91), answer(-4, 60))];
    assert_eq!(read(&plan(), &whole).as_deref(), Ok(&plain[..]));

    let long = [2, 1_000, 3, 50, 7, -91, 0, 0, 1 << 52, 0, 1_000, -4, -61, 70, -6, 5, 8, -92, -1, 0, 0];
    let leaky = LimitOutcome {
        retry_after: RetryAfter::After(Micros(70)),
        first_delay: -6,
        refunded: 5,
        ..answer(-4, 60)
    };
    let rarely = [
        outcome(2, LimitOutcome { refunded: 1 << 52, ..answer(7, 90) }, answer(3, 50)),
        outcome(0, LimitOutcome { retry_after: RetryAfter::Never, ..answer(8, 91) }, leaky),
    ];
    assert_eq!(read(&plan(), &packed(&long)).as_deref(), Ok(&rarely[..]));

    let banned = [2, 1_000, 3, 50, 7, 90, 0, 0, 1_000, -4, 60, 8, 91, 33];
    let outcomes = read(&banning(Overrides::Ignored), &packed(&banned)).unwrap();
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.ban).collect::<Vec<_>>(),
        [RetryAfter::Now, RetryAfter::After(Micros(33))]
    );
    let window = |limit| FixedWindow::new(limit, Micros::from_secs(60), Align::First).unwrap().into();
    let plan_with_own = plan_of(&[("log", log(9)), ("window", window(5))], Overrides::Read).unwrap();
    let first = [2, 1_000, 3, 50, 9, 0, 0, 4, 60, 5, 0, 0];
    let second = [0, 1_000, 3, 50, 8, 0, 0, 4, 60, 6, 0, 0];
    let outcomes = read(&plan_with_own, &packed(&[first, second].concat())).unwrap();
    let limits: Vec<_> = outcomes.iter().map(|of| of.own.as_ref().map(|own| own.to_vec())).collect();
    assert_eq!(limits, [None, Some(vec![log(8), window(6)])]);

    for (row, bytes) in [
        ("nothing", vec![]),
        ("a byte less", whole[..95].to_vec()),
        ("a byte more", [&whole[..], b"x"].concat()),
        ("one subject", whole[..48].to_vec()),
        ("three subjects", [&whole[..], &whole[..48]].concat()),
    ] {
        assert_eq!(read(&plan(), &bytes), Err(BadReply::Unexpected), "{row}");
    }
    let error = plan().outcomes(&Reply::Error(b"NOSCRIPT No matching script."), 2, drop);
    assert_eq!(error, Err(BadReply::NoScript));
    assert_eq!(plan().outcomes(&Reply::Array(Some(vec![])), 0, drop), Err(BadReply::Unexpected));
}

/// The bridge closes a connection on which a longer reply comes.
#[test]
fn a_reply_about_as_many_subjects_as_a_command_asks_about_is_not_too_long() {
    for (limits, overrides, ban) in (1..=8)
        .flat_map(|limits| [(limits, Overrides::Ignored), (limits, Overrides::Read)])
        .flat_map(|(limits, overrides)| {
            [(limits, overrides, None), (limits, overrides, banning(overrides).ban().cloned())]
        })
    {
        let named = |place| NamedLimit { name: format!("l{place}"), limit: leaky(7) };
        let bans = usize::from(ban.is_some());
        let plan =
            Plan::new((0..limits).map(named).collect(), Options { overrides, ban, ..Options::default() })
                .unwrap();
        let counts = if overrides == Overrides::Read { 24 } else { 0 };
        let subject = 8 * (2 + bans) + limits * (40 + counts);
        let longest = plan.subjects() * subject;
        assert!(longest <= weir::bridge::REPLY.bulk, "{limits} limits, {overrides:?}: {longest}");
    }
}

#[test]
fn errors_of_redis_are_told_as_redis_says_them() {
    let said = |line: &'static [u8]| plan().outcome(&Reply::Error(line)).unwrap_err();
    assert_eq!(said(b"NOSCRIPT No matching script."), BadReply::NoScript);
    assert_eq!(said(b"OOM used memory"), BadReply::Error("OOM used memory".into()));
    let texts = [BadReply::NoScript, BadReply::Error("OOM used memory".into()), BadReply::Unexpected];
    assert_eq!(
        texts.map(|bad| bad.to_string()),
        ["NOSCRIPT", "OOM used memory", "not a reply of this script"]
    );
}

#[test]
fn plans_count_alike_if_they_mean_the_same_by_the_same_state() {
    use Overrides::{Ignored, Read};
    let of = |limits: &[(&str, Limit)], overrides| plan_of(limits, overrides).unwrap();
    for (row, one, other, counts, limits) in [
        ("the same", of(&[("a", leaky(7))], Ignored), of(&[("a", leaky(7))], Ignored), true, true),
        ("another burst", of(&[("a", leaky(7))], Ignored), of(&[("a", leaky(8))], Ignored), true, false),
        ("the same overrides", of(&[("a", leaky(7))], Read), of(&[("a", leaky(7))], Read), true, true),
        ("and another burst", of(&[("a", leaky(7))], Read), of(&[("a", leaky(8))], Read), false, false),
        ("overrides or none", of(&[("a", leaky(7))], Read), of(&[("a", leaky(7))], Ignored), false, true),
        ("another name", of(&[("a", leaky(7))], Ignored), of(&[("b", leaky(7))], Ignored), false, true),
        (
            "one more",
            of(&[("a", leaky(7))], Ignored),
            of(&[("a", leaky(7)), ("b", log(9))], Ignored),
            false,
            false,
        ),
        ("another log", of(&[("a", log(9))], Ignored), of(&[("a", log(8))], Ignored), false, false),
    ] {
        assert_eq!((one.counts_like(&other), other.counts_like(&one)), (counts, counts), "{row}");
        assert_eq!((one.limits_like(&other), other.limits_like(&one)), (limits, limits), "{row}");
    }
}

/// A bucket with very large numbers takes another script. Its state stays where it was.
#[test]
fn limits_that_get_very_large_keep_their_keys() {
    let ten_days = Micros::from_secs(864_000);
    let slow = LeakyBucket::new(1, ten_days, 3, Micros::ZERO).unwrap().into();
    let plan =
        plan_of(&[("permits", in_flight()), ("slow", slow)], Overrides::Ignored).unwrap().under("edge");
    let large = plan.scaled(999_999_937).unwrap();
    assert_ne!(large.source(), plan.source());
    let keys = |plan: &Plan| {
        let mut keys = words(|out| plan.check(TAG, ASK, Some(NOW), Form::Evalsha, out))[3..5].to_vec();
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys(&large), keys(&plan));
    assert!(keys(&plan).iter().all(|key| key.starts_with(b"edge:")), "{:?}", keys(&plan));
}

#[test]
fn no_subject_has_limits_of_its_own_that_go_into_debt() {
    let limit = log(11).indebted(2).unwrap();
    assert!(plan_of(&[("l", limit.clone())], Overrides::Ignored).is_ok());
    let refused = plan_of(&[("m", log(11)), ("l", limit)], Overrides::Read).unwrap_err();
    assert_eq!((refused.parameter, refused.value.as_str()), ("debt", "2"));
}

/// Limits of one policy by kind, and the number of subjects that share a command; `None` if the policy is refused.
#[test]
fn no_policy_has_limits_whose_script_may_take_too_long() {
    let hour = Micros::from_secs(3_600);
    let log = |units| -> Limit { SlidingLog::new(units, hour).unwrap().into() };
    let indebted = log(11).indebted(2).unwrap();
    let permits: Limit = Concurrency::new(5, hour).unwrap().into();
    let ban = Ban::new(1, hour, hour, 1, hour).unwrap();
    let made = |kinds: &[(usize, &Limit)], overrides, ban: Option<&Ban>| {
        let limits = kinds.iter().flat_map(|(count, limit)| std::iter::repeat_n((*limit).clone(), *count));
        let named = |(i, limit)| NamedLimit { name: format!("l{i}"), limit };
        let options = Options { overrides, ban: ban.cloned(), ..Options::default() };
        Plan::new(limits.enumerate().map(named).collect(), options)
    };
    let rows: [(&[(usize, &Limit)], Overrides, Option<&Ban>, Option<usize>); 16] = [
        (&[(8, &log(32))], Overrides::Ignored, Some(&ban), Some(1)),
        (&[(1, &log(32))], Overrides::Ignored, None, Some(8)),
        (&[(6, &log(33))], Overrides::Ignored, Some(&ban), Some(1)),
        (&[(1, &log(33))], Overrides::Ignored, None, Some(6)),
        (&[(7, &log(33))], Overrides::Ignored, None, None),
        (&[(7, &indebted)], Overrides::Ignored, None, None),
        (&[(6, &log(10_000))], Overrides::Ignored, None, Some(1)),
        (&[(6, &log(10_001))], Overrides::Ignored, None, None),
        (&[(4, &log(MAX_LOG))], Overrides::Ignored, Some(&ban), Some(1)),
        (&[(1, &log(MAX_LOG))], Overrides::Ignored, None, Some(4)),
        (&[(5, &log(MAX_LOG))], Overrides::Ignored, None, None),
        (&[(4, &log(1))], Overrides::Read, Some(&ban), Some(1)),
        (&[(5, &log(1))], Overrides::Read, None, None),
        (&[(8, &permits)], Overrides::Read, Some(&ban), Some(1)),
        (&[(4, &log(1)), (4, &permits)], Overrides::Ignored, Some(&ban), Some(1)),
        (&[(3, &log(10_001)), (3, &permits)], Overrides::Ignored, None, None),
    ];
    for (kinds, overrides, ban, subjects) in rows {
        let plan = made(kinds, overrides, ban);
        assert_eq!(plan.as_ref().map(Plan::subjects).ok(), subjects, "{kinds:?}: {plan:?}");
    }
    let error = made(&[(5, &log(MAX_LOG))], Overrides::Ignored, None).unwrap_err();
    assert_eq!(error.value, "limits of which one script may take 460 microseconds in Redis");
    assert_eq!(
        error.allowed,
        "400 microseconds: `concurrency` takes up to 44, `distinct` 15 (180 above 200 values or where subjects have overrides, 46 above 32 values), `sliding_log` 45 (92 above 10000 units or where subjects have overrides, \
         65 above 32 units), `sliding_window` 22, any other limit 7 at most"
    );
    // A scale makes logs larger.
    let plan = made(&[(8, &log(32))], Overrides::Ignored, None).unwrap();
    assert!(plan.scaled(1).is_ok() && plan.scaled(2).is_err());
    let one = made(&[(1, &log(32))], Overrides::Ignored, None).unwrap();
    assert_eq!(one.scaled(1_000).unwrap().subjects(), 4);
}
