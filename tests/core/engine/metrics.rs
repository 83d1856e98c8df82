// SPDX-License-Identifier: Apache-2.0
//! Each decision is counted once: under its policy by outcome and source, and under the limits. And the most denied subjects.

use std::borrow::Cow;
use std::collections::BTreeSet;

use weir::config::Unasked;
use weir::engine::{Catalogue, MAX_LIMIT_SERIES, Report, escaped};
use weir::policy::{Check, Mode};
use weir::request::{Attributes, Unreadable};
use weir::time::Micros;

use crate::engine::report::Host;
use crate::engine::usage::measured;
use crate::worker::*;

/// The decisions of policies that this worker has counted, in the order of their names. For units and the fullness of limits, see `usage.rs`.
fn decisions(worker: &mut Worker, prefix: &str) -> String {
    let values = measured(worker);
    let values = values.iter().filter(|(name, _)| !name.contains(".units_") && !name.contains(".asked."));
    let values = values.filter_map(|(name, value)| Some(format!("{}={value}", name.strip_prefix(prefix)?)));
    values.collect::<Vec<_>>().join(" ")
}

fn ask(worker: &mut Worker, reply: Reply) {
    worker.all_wait([1], "ann");
    worker.answer([reply]);
    worker.close(1);
}

fn fail(worker: &mut Worker) {
    worker.all_wait([1], "ann");
    let batch = worker.batch();
    worker.fail(&batch);
    worker.close(1);
}

/// Asks in shadow.
fn shadow(worker: &mut Worker, stream: u32, reply: Option<Reply>) {
    let check = Check { mode: Mode::Shadow, ..check_of(0, "{p0|ann}", 1) };
    worker.engine.submit(stream, [check].into_iter().collect(), worker.now);
    if let Some(reply) = reply {
        worker.answer([reply]);
    }
    worker.close(stream);
}

const LOCAL: &str = r#"{"deadline": "50ms", "on_failure": "local", "workers": 2}"#;

type Case = (&'static str, &'static str, String, fn(&mut Worker), &'static str);

#[test]
#[rustfmt::skip]
fn each_decision_is_counted_once_by_outcome_and_source() {
    let plain = || policy(BUCKET);
    let lease = || leased(r#"{"max": 8, "min": 2, "duration": "1s"}"#, WINDOW);
    let banning = || format!(r#""ban": {{"after": 3, "window": "10m", "duration": "1h"}}, {}"#, policy(BUCKET));
    let in_shadow = || format!(r#""mode": "shadow", {}"#, policy(BUCKET));
    let cases: [Case; 15] = [
        ("granted", ALLOW, plain(), |worker| ask(worker, granted(1)), "limit.l.requests.allowed=1 requests.allowed.redis=1"),
        ("denied", ALLOW, plain(), |worker| ask(worker, denied(secs(9))), "limit.l.requests.denied=1 requests.denied.redis=1"),
        ("denied, and known to be", ALLOW, plain(), |worker| {
            ask(worker, denied(secs(9)));
            assert_eq!(worker.arrive(2, &["ann"]), Some(false));
        }, "limit.l.requests.denied=2 requests.denied.denied-until=1 requests.denied.redis=1"),
        ("delayed", ALLOW, policy(&delayed("5s")), |worker| ask(worker, granted(1).delay(secs(1))),
         "limit.l.requests.allowed=1 requests.delayed.redis=1"),
        ("no answer, allow", ALLOW, plain(), fail, "requests.allowed.on_failure=1"),
        ("no answer, deny", DENY, plain(), fail, "requests.denied.on_failure=1"),
        ("no answer, local", LOCAL, plain(), |worker| {
            // A share of a burst of 10 is 5. After three failures the breaker is open.
            for _ in 0..6 {
                if worker.arrive(1, &["ann"]).is_none() {
                    worker.lose();
                }
                worker.close(1);
            }
        }, "limit.l.requests.allowed=5 limit.l.requests.denied=1 requests.allowed.local=5 requests.denied.local=1"),
        ("on lease", ALLOW, lease(), |worker| {
            ask(worker, granted(2).remaining(97).reset(MINUTE));
            assert_eq!(worker.arrive(2, &["ann"]), Some(true));
        }, "limit.l.requests.allowed=2 requests.allowed.lease=1 requests.allowed.redis=1"),
        ("banned", DENY, banning(), |worker| {
            ask(worker, granted(0).and(&[micros(MINUTE)]));
            assert_eq!(worker.arrive(2, &["ann"]), Some(false));
        }, "requests.banned.denied-until=1 requests.banned.redis=1"),
        ("before a ban", DENY, banning(), |worker| ask(worker, denied(secs(1)).and(&[0])), "limit.l.requests.denied=1 requests.denied.redis=1"),
        ("shadow", ALLOW, in_shadow(), |worker| {
            shadow(worker, 1, Some(denied(secs(9))));
            shadow(worker, 2, None);
        }, "limit.l.requests.shadow_denied=2 requests.shadow_denied.denied-until=1 requests.shadow_denied.redis=1"),
        ("shadow, granted", DENY, in_shadow(), |worker| shadow(worker, 1, Some(granted(1))), "limit.l.requests.allowed=1 requests.allowed.redis=1"),
        ("shadow, no answer", DENY, in_shadow(), |worker| shadow(worker, 1, Some(error("OOM"))), "requests.allowed.on_failure=1"),
        ("an enquiry takes nothing", ALLOW, plain(), |worker| {
            let check = Check { mode: Mode::QuotaRequest, ..check_of(0, "{p0|ann}", 1) };
            worker.engine.submit_quota_request(1, [check].into_iter().collect(), worker.now);
            worker.answer([granted(0)]);
        }, ""),
        ("a client that leaves before the decision", ALLOW, plain(), |worker| {
            worker.all_wait([1], "ann");
            worker.close(1);
        }, ""),
    ];
    for (name, store, policy, act, expected) in cases {
        let mut worker = Worker::new(store, [policy]);
        act(&mut worker);
        assert_eq!(decisions(&mut worker, "weir.policy.p0."), expected, "{name}");
    }
}

/// Each of two policies counts for itself: one may deny a request that the other allows.
#[test]
fn policies_count_for_themselves() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET), policy(WINDOW)]);
    assert_eq!(worker.arrive(1, &["ann", "ann"]), None);
    assert_eq!(worker.answer([granted(1), denied(secs(9))]), [(1, false)]);
    let decisions = ["p0", "p1"].map(|of| decisions(&mut worker, &format!("weir.policy.{of}.requests.")));
    assert_eq!(decisions, ["allowed.redis=1", "denied.redis=1"]);
    let counters = worker.engine.counters();
    assert_eq!((counters.admitted, counters.rejected), (0, 1), "the request is rejected");
}

/// If one of two limits denies, it counts the denial. The other has allowed.
#[test]
fn a_denial_counts_under_the_limit_that_denies() {
    let limits = format!("{BUCKET}, {}", WINDOW.replace("\"l\"", "\"day\""));
    let mut worker = Worker::new(ALLOW, [policy(&limits)]);
    worker.all_wait([1], "ann");
    // The bucket would pass now, the window in a minute.
    worker.answer([granted(0).and(&[0, micros(MINUTE), micros(MINUTE), 0])]);
    let expected = "limit.day.requests.denied=1 limit.l.requests.allowed=1 requests.denied.redis=1";
    assert_eq!(decisions(&mut worker, "weir.policy.p0."), expected);
}

/// One request of `x-user`, if there is one.
struct Of(Option<&'static str>);

impl Attributes for Of {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(match name {
            ":method" => Some(Cow::Borrowed(b"GET")),
            ":path" => Some(Cow::Borrowed(b"/")),
            "x-user" => self.0.map(|user| Cow::Borrowed(user.as_bytes())),
            _ => None,
        })
    }

    fn header_lines(&self, _: &str) -> Result<usize, Unreadable> {
        Ok(self.0.map_or(0, |user| user.split(',').count()))
    }

    fn property(&self, _: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(None)
    }
}

#[test]
fn what_is_decided_without_redis_is_counted() {
    const RUDE: &str = r#"[{"header": {"name": "x-user", "exact": "rude"}}]"#;
    const BOSS: &str = r#"[{"header": {"name": "x-user", "exact": "boss"}}]"#;
    let user = r#""subject": [{"header": {"name": "x-user"}, "on_missing": "deny", "on_multiple": "deny"}]"#;
    let prices = String::from(
        r#""prices": {"usd": {"on_unknown_model": "deny", "models": [{"model": ["a"], "input": 1, "output": 1}]}},"#,
    );
    let priced = String::from(r#""cost": {"usage": {"prices": "usd"}},"#);
    let (none, in_shadow) = (String::new, || String::from(r#""mode": "shadow","#));
    let (denies, exempts) = (|| format!(r#""deny": {RUDE},"#), || format!(r#""exempt": {BOSS},"#));
    #[rustfmt::skip]
    let cases: [(&str, String, String, Option<&str>, &str); 11] = [
        ("a global list denies", denies(), none(), Some("rude"), "denied_by_list=1"),
        ("a policy's list denies", none(), denies(), Some("rude"), "denied_by_list=1 policy.p.requests.denied.list=1"),
        ("in shadow it would", none(), in_shadow() + &denies(), Some("rude"), "policy.p.requests.shadow_denied.list=1 shadow_denied=1"),
        ("a global list exempts", exempts(), none(), Some("boss"), "exempt=1"),
        ("a policy's list exempts", none(), exempts(), Some("boss"), "policy.p.requests.exempt.list=1"),
        ("no subject", none(), none(), None, "policy.p.requests.denied.absent=1 subject_absent=1"),
        ("no subject in shadow", none(), in_shadow(), None, "policy.p.requests.shadow_denied.absent=1 shadow_denied=1"),
        ("an ambiguous subject", none(), none(), Some("ann,bob"), "policy.p.requests.denied.ambiguous=1 subject_ambiguous=1"),
        ("no price for the model", prices.clone(), priced.clone(), Some("rude"), "model_unknown=1 policy.p.requests.denied.model=1"),
        ("no price for the model in shadow", prices, in_shadow() + &priced, Some("rude"), "policy.p.requests.shadow_denied.model=1 shadow_denied=1"),
        ("no policy matches the request", none(), r#""match": {"path": {"exact": "/other"}},"#.into(), Some("rude"), ""),
    ];
    for (name, global, policy, user_of, expected) in cases {
        let mut worker = Worker::configured(&format!(
            r#"{{{global} "policies": [{{"name": "p", {policy} {user}, "limits": [{BUCKET}]}}]}}"#
        ));
        let request = Of(user_of);
        let config = std::rc::Rc::clone(worker.engine.config());
        let mut unasked = Unasked::new();
        let body = config.unreadable_body();
        let evaluation = config.evaluate_and_note(&request, body.as_ref(), &mut unasked);
        let plain =
            body.map_or_else(|| config.evaluate(&request), |body| config.evaluate_with_body(&request, &body));
        assert_eq!(evaluation, plain, "{name}");
        worker.engine.note(&unasked);
        assert_eq!(decisions(&mut worker, "weir."), expected, "{name}");
    }
}

// --- Which metrics there are ------------------------------------------------------------------------------------------

/// Each name is defined once, and no two names of the configuration become one.
#[test]
fn names_are_unique_and_escaped() {
    let named = |name: &str, limit: &str| {
        format!(r#"{{"name": "{name}", "limits": [{}]}}"#, BUCKET.replace("\"l\"", &format!("\"{limit}\"")))
    };
    let names =
        [("a", "b.limit.c"), ("a.limit.b", "c"), ("a.requests.denied.redis", "x"), ("A-_9", "requests")];
    let policies = names.map(|(policy, limit)| named(policy, limit)).join(",");
    let worker = Worker::configured(&format!(r#"{{"policies": [{policies}]}}"#));
    let catalogue = Catalogue::of(worker.engine.config());
    let mut all: Vec<_> = catalogue.rows().iter().map(|row| &*row.name).collect();
    for (policy, limit) in names {
        let name = format!("weir.policy.{}.limit.{}.requests.denied", escaped(policy), escaped(limit));
        assert!(all.contains(&name.as_str()), "{name}");
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert_eq!(escaped("a.b-c_D"), "a%2Eb-c_D");
}

/// A policy has the metrics of what it can decide: none always stays 0.
#[test]
fn a_policy_has_the_metrics_of_what_it_can_decide() {
    // What most policies have. In shadow, `denied` is `shadow_denied`.
    let common = ["allowed.redis", "denied.redis", "denied.denied-until", "denied.ambiguous"];
    let (open, shadow) = ("allowed.on_failure", r#""mode": "shadow""#);
    #[rustfmt::skip]
    let rows = [
        ("nothing else is said", "", vec![open]),
        ("enforced for all clients", r#""enforce_percent": 100"#, vec![open]),
        ("denies in an outage", r#""on_failure": "deny""#, vec!["denied.on_failure"]),
        ("counts by itself in an outage", r#""on_failure": "local""#, vec!["allowed.local", "denied.local"]),
        ("shadow", shadow, vec![open]),
        ("shadow, would deny in an outage", r#""mode": "shadow", "on_failure": "deny""#, vec![open]),
        ("enforced for some clients", r#""enforce_percent": 50, "on_failure": "deny""#,
         vec![open, "denied.on_failure", "shadow_denied.redis", "shadow_denied.denied-until", "limit.l.shadow_denied"]),
        ("a lease", r#""lease": {"max": 8, "min": 2, "duration": "1s"}"#, vec![open, "allowed.lease"]),
        ("a delay", r#""on_failure": "local", DELAY"#, vec!["allowed.local", "delayed.redis", "delayed.local", "denied.local"]),
        ("a delay in shadow", r#""mode": "shadow", DELAY"#, vec![open]),
        ("a ban", r#""on_failure": "local", BAN"#, vec!["allowed.local", "denied.local", "banned.redis", "banned.denied-until"]),
        ("a ban in shadow", r#""mode": "shadow", BAN"#, vec![open]),
        ("lists", r#""deny": [{"method": ["PUT"]}], "exempt": [{"method": ["HEAD"]}]"#, vec![open, "denied.list", "exempt.list"]),
        ("a list in shadow", r#""mode": "shadow", "deny": [{"method": ["PUT"]}]"#, vec![open, "denied.list"]),
        ("a subject that has to be there", r#""subject": [{"header": {"name": "x-user"}, "on_missing": "deny"}]"#, vec![open, "denied.absent"]),
        ("a model that has to be known", r#""costs": [{"when": {"method": ["POST"]}, "cost": {"usage": {"prices": "usd"}}}]"#, vec![open, "denied.model"]),
    ];
    const PRICES: &str = r#""prices": {"usd": {"on_unknown_model": "deny", "models": [{"model": ["a"], "input": 1, "output": 1}]}}"#;
    for (row, fields, more) in rows {
        let delay = if fields.contains("DELAY") { r#", "max_delay": "1s""# } else { "" };
        let in_shadow = fields.contains(shadow);
        let fields = fields
            .replace(", DELAY", "")
            .replace("BAN", r#""ban": {"after": 3, "window": "10m", "duration": "1h"}"#);
        let fields = if fields.is_empty() { fields } else { fields + "," };
        let limit =
            format!(r#"{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 9{delay}}}"#);
        let policy = format!(r#"{{"name": "p", {fields} "limits": [{limit}]}}"#);
        let worker = Worker::configured(&format!(r#"{{{PRICES}, "policies": [{policy}]}}"#));
        let catalogue = Catalogue::of(worker.engine.config());
        let names = catalogue.rows().iter().filter_map(|row| row.name.strip_prefix("weir.policy.p."));
        let names: BTreeSet<_> = names.map(|name| name.replace("requests.", "")).collect();
        let decided = common
            .into_iter()
            .chain(["limit.l.allowed", if in_shadow { "limit.l.shadow_denied" } else { "limit.l.denied" }])
            .chain(more);
        let decided = decided
            .map(|name| if in_shadow { name.replace("denied.", "shadow_denied.") } else { name.to_owned() });
        let units = ["units_reserved", "units_charged", "units_refunded", "limit.l.size"].map(String::from);
        let asked = [50, 80, 95, 100].map(|full| format!("limit.l.asked.{full}"));
        assert_eq!(names, decided.chain(units).chain(asked).collect(), "{row}");
    }
}

/// The largest configuration has a bounded number of metrics, and each policy has its own.
#[test]
fn the_number_of_metrics_is_bounded() {
    let limit = |n: u32| format!(r#"{{"name": "l{n}", "algorithm": "leaky_bucket", "rate": "1/s"}}"#);
    let tier =
        |n: u32| format!(r#""t{n}": [{}]"#, (0..8).map(|l| limit(8 * n + l)).collect::<Vec<_>>().join(","));
    let tiers: Vec<_> = (0..12).map(tier).collect();
    let policy = |n: u32| {
        let by = r#"{"header": {"name": "x-plan"}}"#;
        format!(
            r#"{{"name": "p{n}", "tiers": {{"by": {by}, "default": "t0", "limits": {{{}}}}}}}"#,
            tiers.join(",")
        )
    };
    // 2,880 limits.
    let policies: Vec<_> = (0..30).map(policy).collect();
    let mut worker = Worker::configured(&format!(r#"{{"policies": [{}]}}"#, policies.join(",")));
    let catalogue = Catalogue::of(worker.engine.config());
    let count = |of: &str| catalogue.rows().iter().filter(|row| row.name.contains(of)).count();
    assert_eq!(count(".limit."), 7 * MAX_LIMIT_SERIES, "allowed and denied, how full, and how large");
    assert_eq!(count(".units_reserved"), 30 * 12, "of each tier");
    assert_eq!(count("policy.p29.requests."), count("policy.p0.requests."));
    assert_eq!(count("policy.p29.limit."), 0);
    // A decision without a metric of its own counts under the policy.
    worker.engine.submit(1, [check_of(29, "{p29|ann}", 1)].into_iter().collect(), worker.now);
    let eight = [6, 0, 0, 0].repeat(7);
    worker.answer([granted(1).and(&eight)]);
    assert_eq!(measured(&mut worker).get("weir.policy.p29.requests.allowed.redis"), Some(&1));
}

#[test]
fn histograms_get_how_long_the_store_took_and_how_many_tasks_a_batch_had() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let mut host = Host::new(worker.engine.config());
    let mut report = Report::new(worker.engine.config());
    assert_eq!(worker.arrive(1, &["ann"]), None);
    assert_eq!(worker.arrive(2, &["bob"]), None);
    let batch = worker.batch();
    worker.idle(ms(3));
    let replies = batch.all_granted();
    worker.reply(&batch, replies);
    report.export(&mut worker.engine, &mut host, worker.now);
    assert_eq!(
        host.recorded,
        [("weir.store_latency_us".to_owned(), 3_000), ("weir.batch_tasks".to_owned(), 2)]
    );
    report.export(&mut worker.engine, &mut host, worker.now);
    assert_eq!(host.recorded.len(), 2, "once");
}

// --- Gauges -----------------------------------------------------------------------------------------------------------

#[test]
fn gauges_show_what_waits_and_what_is_off() {
    let gauges = |worker: &Worker| {
        let of = worker.engine.counters();
        [of.asking, of.in_flight, of.held, of.breaker_open, of.not_asking, of.policies_off]
    };
    let deny = format!(r#""on_failure": "deny", {}"#, policy(BUCKET));
    let in_shadow = format!(r#""mode": "shadow", {}"#, policy(BUCKET));
    let mut worker = Worker::new(ALLOW, [policy(&delayed("5s")), deny, in_shadow, policy(WINDOW)]);
    assert_eq!(gauges(&worker), [0; 6]);
    worker.all_wait([1, 2], "ann");
    assert_eq!(gauges(&worker), [2, 0, 0, 0, 0, 0]);
    let batch = worker.batch();
    assert_eq!(gauges(&worker), [2, 1, 0, 0, 0, 0]);
    worker.reply(&batch, [granted(2).delay(secs(1))]);
    let held = gauges(&worker)[2];
    assert_eq!((gauges(&worker), held > 0), ([0, 0, held, 0, 0, 0], true));
    let mut stream = 2;
    while worker.engine.open_breakers() == 0 {
        stream += 1;
        assert_eq!(worker.arrive(stream, &["ann"]), None);
        worker.lose();
        worker.close(stream);
    }
    assert_eq!(gauges(&worker)[3..], [1, 1, 2], "two policies are enforced, and let requests pass");
    worker.engine.retire();
    assert_eq!(gauges(&worker)[3..], [0, 0, 0], "its successor counts");
}

// --- The most denied subjects -----------------------------------------------------------------------------------------

/// A worker that logs the `count` most denied subjects each minute.
fn listing(count: usize) -> Worker {
    Worker::configured(&format!(
        r#"{{"top_denied": {{"count": {count}}}, "policies": [{{"name": "p0", {}}}]}}"#,
        policy(BUCKET)
    ))
}

/// The subject is denied once more. The first time the store says so, for a day.
fn deny(worker: &mut Worker, stream: u32, subject: &str) {
    if worker.arrive(stream, &[subject]).is_none() {
        worker.answer([denied(secs(86_400))]);
    }
    worker.close(stream);
}

/// The log lines of the next list.
fn listed(worker: &mut Worker) -> Vec<String> {
    let mut host = Host::new(worker.engine.config());
    let mut report = Report::new(worker.engine.config());
    crate::engine::report::logged();
    report.export(&mut worker.engine, &mut host, worker.now);
    assert_eq!(crate::engine::report::logged(), [] as [String; 0], "it is not time");
    worker.skip(secs(60));
    report.export(&mut worker.engine, &mut host, worker.now);
    crate::engine::report::logged()
}

#[test]
fn the_most_denied_subjects_are_logged_the_most_first() {
    let mut worker = listing(2);
    let mut stream = 0;
    for (subject, times) in [("ann", 3), ("bob", 5), ("eve", 1), ("\u{1b}[31m\r\nroot", 4)] {
        for _ in 0..times {
            stream += 1;
            deny(&mut worker, stream, subject);
        }
    }
    let line = |count, subject: &str| {
        format!("top denied: {count} in 60 s, 0 of them perhaps of others: {{p0|{subject}}}")
    };
    assert_eq!(
        listed(&mut worker),
        [line(5, "bob"), line(4, r"\x1b[31m\r\nroot")],
        "no byte of a subject ends the line"
    );
    worker.skip(secs(60));
    assert_eq!(worker.next_tick(), None, "an empty list needs no tick");
    deny(&mut worker, 90, "ann");
    assert_eq!(listed(&mut worker), [line(1, "ann")], "it begins anew");
}

/// However many subjects there are: one that has its share of all denials is in the list. Its count is never below the true one, and
/// exceeds that by at most the error in the list.
#[test]
fn a_flood_of_subjects_hides_none_that_is_denied_often() {
    let mut worker = listing(1);
    // Eight places: more than one in eight is listed for certain.
    for round in 0..2_200 {
        deny(&mut worker, 2 * round, &format!("flood-{round}"));
        // By then the list is full, so it takes the place and the count of another.
        if round >= 200 && round % 4 == 0 {
            deny(&mut worker, 2 * round + 1, "ann");
        }
    }
    let listed = listed(&mut worker);
    let [line] = listed.as_slice() else { panic!("{listed:?}") };
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [count, 60, error] = numbers[..] else { panic!("{line}") };
    assert!(line.ends_with("{p0|ann}"), "{line}");
    assert!(error > 0 && count >= 500 && count - error <= 500, "{line}");
    let counters = worker.engine.counters();
    assert_eq!(counters.top_denied, 2_700);
    assert!(counters.top_denied_replaced > 1_900, "{counters:?}");
}

#[test]
fn a_list_is_due_without_further_requests_and_a_clock_set_back_does_not_hold_it_up() {
    let mut worker = listing(1);
    deny(&mut worker, 1, "ann");
    let mut report = Report::new(worker.engine.config());
    let mut host = Host::new(worker.engine.config());
    report.export(&mut worker.engine, &mut host, worker.now);
    let due = worker.now.plus(secs(60));
    assert_eq!(worker.next_tick(), Some(due));
    worker.skip(secs(60));
    assert_eq!(report.look(&worker.engine, worker.now), weir::engine::Export::Now);
    deny(&mut worker, 2, "ann");
    worker.set_back(secs(7_200));
    report.export(&mut worker.engine, &mut host, worker.now);
    assert!(worker.next_tick().is_some_and(|due| due <= worker.now.plus(Micros::from_secs(60))));
}

/// Refunded units do not count.
#[test]
fn the_subjects_that_use_most_are_listed_by_their_units() {
    let settle = settled(r#"[{"cost": {"constant": 4}}]"#, WINDOW);
    let config = configuration(ALLOW, [settle]).replacen('{', r#"{"top_used": {"count": 2}, "#, 1);
    let mut worker = Worker::configured(&config);
    for (stream, subject, cost) in
        [(1, "ann", 90), (2, "bob", 5), (3, "bob", 5), (4, "eve", 6), (5, "joe", 7)]
    {
        assert_eq!(worker.arrive_costing(cost, stream, &[subject]), None);
        worker.answer([granted(1).remaining(9)]);
        if subject != "joe" {
            worker.respond(stream);
            worker.close(stream);
        }
        worker.drain();
    }
    let wanted = ["bob: 8 in 60 s", "joe: 7 in 60 s"].map(|of| {
        let (subject, used) = of.split_once(": ").expect("both");
        format!("top used: {used}, 0 of them perhaps of others: {{p0|{subject}}}")
    });
    assert_eq!(listed(&mut worker), wanted);
}

#[test]
fn a_request_that_costs_nothing_uses_nothing() {
    let config = configuration(ALLOW, [policy(WINDOW)]).replacen('{', r#"{"top_used": {"count": 9}, "#, 1);
    let mut worker = Worker::configured(&config);
    for (stream, subject, cost) in [(1, "ann", 3), (2, "sue", 0)] {
        assert_eq!(worker.arrive_costing(cost, stream, &[subject]), None);
        worker.answer([granted(1).remaining(9)]);
    }
    assert_eq!(listed(&mut worker), ["top used: 3 in 60 s, 0 of them perhaps of others: {p0|ann}"]);
}

/// The host sets them when it has defined them.
#[test]
fn what_a_worker_is_has_its_value_from_the_beginning() {
    let worker = Worker::new(ALLOW, [policy(BUCKET)]);
    let config = worker.engine.config();
    let catalogue = Catalogue::of(config);
    let constant = |name| catalogue.rows().iter().find(|of| of.name.starts_with(name))?.constant();
    assert_eq!(
        (constant("weir.config_hash"), constant("weir.build_info.")),
        (Some(config.hash.into()), Some(1))
    );
    assert_ne!(config.hash, 1);
}

/// Without `top_denied` nothing is kept.
#[test]
fn no_list_is_kept_unless_asked_for() {
    let mut worker = Worker::new(ALLOW, [policy(BUCKET)]);
    deny(&mut worker, 1, "ann");
    assert_eq!(worker.next_tick(), None);
    assert_eq!(worker.engine.counters().top_denied, 0);
}
