// SPDX-License-Identifier: Apache-2.0
//! A client that does what `RateLimit` says: it uses at most `r` units within the stated `t` seconds, and waits `t` when a request no
//! longer fits `r`. It is never denied, and it does not wait for nothing.
//!
//! The client reads header text; the pure limits answer it. Other tests compare these with Redis.

use proptest::prelude::*;
use weir::config::Config;
use weir::decision::{CheckAnswer, Decision};
use weir::limit::{Ask, RetryAfter, Subject};
use weir::policy::{self, Check};
use weir::response::{Verdict, verdict};
use weir::time::Micros;

const SECOND: u64 = 1_000_000;

/// One policy, one subject, one client whose requests all cost the same.
struct World {
    config: Config,
    check: Check,
    subject: Subject,
    now: Micros,
}

/// The contents of one response.
#[derive(Debug)]
struct Response {
    granted: bool,
    /// `r` and `t` of each limit.
    limits: Vec<(u64, Option<u64>)>,
    retry_after: Option<u64>,
    /// The time until one more request would pass, to the microsecond: a client cannot know this.
    truth: RetryAfter,
}

impl Response {
    /// The number of requests of this cost that the client may send before it has to wait.
    fn requests(&self, cost: u64) -> u32 {
        self.limits.iter().map(|(left, _)| u32::try_from(left / cost).unwrap()).min().unwrap()
    }

    /// The seconds for which the client waits when a request no longer fits `r`.
    fn wait(&self, cost: u64) -> u64 {
        let short = self.limits.iter().filter(|(left, _)| *left < cost);
        short.map(|(_, seconds)| seconds.unwrap_or_else(|| panic!("no t in {self:?}"))).max().unwrap()
    }

    /// The longest `t`: within it, no limit allows more than its `r`.
    fn longest(&self) -> u64 {
        self.limits.iter().filter_map(|(_, seconds)| *seconds).max().unwrap_or(0)
    }
}

impl World {
    fn new(limits: &[String], cost: u64, phase: u64) -> Self {
        let text = format!(r#"{{"policies": [{{"name": "p", "limits": [{}]}}]}}"#, limits.join(", "));
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
        let check = Check { cost, ..Check::one(0, b"{p|s}") };
        Self {
            config,
            check,
            subject: Subject::default(),
            now: Micros::from_secs(1_700_000_000).plus(Micros(phase)),
        }
    }

    fn pass(&mut self, micros: u64) {
        self.now = self.now.plus(Micros(micros));
    }

    /// The responses to requests that arrive together.
    fn send(&mut self, requests: u32) -> Vec<Response> {
        let plan = self.config.plan(&self.check).unwrap();
        let limits = plan.limits();
        let ask = Ask::new(requests, self.check.cost);
        let outcome = self.subject.check(limits, None, self.now, ask);
        let respond = |index| {
            let finding = Decision::new(&outcome, limits, index, ask);
            let granted = finding.granted;
            let answer = CheckAnswer::Store(finding);
            let verdict =
                verdict(&policy::answers(&self.config.policies, [(&self.check, &answer)].into_iter()));
            let headers = match verdict {
                Verdict::Admit(admission) => admission.headers,
                Verdict::Reject(rejection) => rejection.headers,
            };
            let value = |name: &str| {
                headers.iter().find(|header| header.name == name).map(|header| header.value.as_str())
            };
            Response {
                granted,
                limits: value("ratelimit").unwrap().split(", ").map(item).collect(),
                retry_after: value("retry-after").map(|seconds| seconds.parse().unwrap()),
                truth: outcome.retry_after(),
            }
        };
        (0..requests).map(respond).collect()
    }

    fn send_one(&mut self) -> Response {
        self.send(1).pop().unwrap()
    }
}

/// `"name";r=1;t=2`; the second is optional.
fn item(text: &str) -> (u64, Option<u64>) {
    let parameter = |name: &str| text.split(';').find_map(|part| part.strip_prefix(name)?.parse().ok());
    (parameter("r=").unwrap(), parameter("t="))
}

/// A window, in milliseconds.
fn window() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1_000u64), Just(1_500), Just(3_000), Just(10_000), Just(60_000), 1_000..5_000u64]
}

/// A limit as the configuration has it, without its name, and its quota.
///
/// Each needs at least a second to give its quota again. A client gets whole seconds: if units come back sooner, it can only use those that
/// the limit keeps for it.
fn limit() -> impl Strategy<Value = (String, u64)> {
    let count = || prop_oneof![1..=5u64, 1..=50u64];
    let fixed =
        (count(), window(), prop_oneof![Just("clock"), Just("first")]).prop_map(|(limit, window, align)| {
            let text = format!(
                r#""algorithm": "fixed_window", "limit": {limit}, "window": "{window}ms", "align": "{align}""#
            );
            (text, limit)
        });
    let log = (count(), window()).prop_map(|(limit, window)| {
        (format!(r#""algorithm": "sliding_log", "limit": {limit}, "window": "{window}ms""#), limit)
    });
    let slots = prop_oneof![Just(1u64), Just(2), Just(3), Just(10)];
    let sliding = (count(), 300..6_000u64, slots)
        .prop_filter("a window of a second", |(_, slot, slots)| slot * slots >= 1_000)
        .prop_map(|(limit, slot, slots)| {
            let window = slot * slots;
            let text = format!(
                r#""algorithm": "sliding_window", "limit": {limit}, "window": "{window}ms", "precision": "{slot}ms""#
            );
            (text, limit)
        });
    let slow = |(capacity, refill, interval): &(u64, u64, u64)| capacity * interval >= refill * 1_000;
    let rate = move || (count(), count(), window()).prop_filter("a second to fill", slow);
    let bucket = (rate(), prop_oneof![Just("continuous"), Just("stepwise")], prop_oneof![Just(0), count()])
        .prop_map(|((capacity, refill, interval), mode, overdraft)| {
            let overdraft = if overdraft > 0 { format!(r#", "overdraft": {overdraft}"#) } else { String::new() };
            let text = format!(
                r#""algorithm": "token_bucket", "capacity": {capacity}, "refill": {refill}, "interval": "{interval}ms",
                   "mode": "{mode}"{overdraft}"#
            );
            (text, capacity)
        });
    let leaky = (rate(), prop_oneof![Just(0), 1..2_000u64]).prop_map(|((burst, rate, per), delay)| {
        let text = format!(
            r#""algorithm": "leaky_bucket", "rate": "{rate}/{per}ms", "burst": {burst}, "max_delay": "{delay}ms""#
        );
        (text, burst)
    });
    prop_oneof![fixed, log, sliding, bucket, leaky]
}

/// Limits, what a request costs, and when it all begins.
fn scene(
    limits: impl Into<proptest::collection::SizeRange>,
) -> impl Strategy<Value = (Vec<String>, u64, u64)> {
    (proptest::collection::vec(limit(), limits), 1..=5u64, 0..600 * SECOND).prop_map(
        |(limits, cost, phase)| {
            let cost = limits.iter().fold(cost, |cost, (_, quota)| cost.min(*quota));
            let named =
                |(index, (text, _)): (usize, &(String, u64))| format!(r#"{{"name": "l{index}", {text}}}"#);
            (limits.iter().enumerate().map(named).collect(), cost, phase)
        },
    )
}

/// Pauses of a client, in microseconds.
fn pauses() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(prop_oneof![3 => Just(0), 3 => 0..SECOND, 1 => 0..20 * SECOND], 40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_client_that_obeys_is_never_denied_and_waits_less_than_a_second_too_long(
        (limits, cost, phase) in scene(1..=3),
        pauses in pauses(),
    ) {
        let mut world = World::new(&limits, cost, phase);
        for pause in pauses {
            let told = world.send_one();
            prop_assert!(told.granted, "{told:?}");
            if told.requests(cost) == 0 {
                let wait = told.wait(cost) * SECOND;
                // With an overdraft more would pass than is left. An obedient client does not use it.
                let overdrawn = limits.iter().any(|limit| limit.contains("overdraft"));
                if let (RetryAfter::After(Micros(truth)), false) = (told.truth, overdrawn) {
                    prop_assert!(truth <= wait && wait < truth + SECOND, "{told:?}");
                }
                world.pass(wait);
            }
            world.pass(pause);
        }
    }

    #[test]
    fn after_t_as_much_as_before_is_there_again(
        (limits, cost, phase) in scene(1..=3),
        pauses in pauses(),
    ) {
        let mut world = World::new(&limits, cost, phase);
        for pause in pauses {
            let told = world.send_one();
            let requests = told.requests(cost);
            if requests == 0 {
                world.pass(told.wait(cost) * SECOND);
                continue;
            }
            // It sends all that the response allows, twice, `t` apart; it does not read the responses in between.
            for _ in 0..2 {
                let burst = world.send(requests);
                prop_assert!(burst.iter().all(|told| told.granted), "{told:?}: {burst:?}");
                world.pass(told.longest() * SECOND);
            }
            world.pass(pause);
        }
    }

    #[test]
    fn each_of_several_that_arrive_together_may_believe_what_it_is_told(
        (limits, cost, phase) in scene(1..=2),
        together in 2..6u32,
    ) {
        let mut world = World::new(&limits, cost, phase);
        let burst = world.send(together);
        for (index, told) in burst.iter().enumerate().filter(|(_, told)| told.granted) {
            // The later requests used a part of the units that this response states.
            let later = burst.iter().skip(index + 1).filter(|told| told.granted).count();
            let left = told.requests(cost).saturating_sub(u32::try_from(later).unwrap());
            let mut world = World {
                subject: world.subject.clone(),
                now: world.now,
                ..World::new(&limits, cost, phase)
            };
            let rest = world.send(left);
            prop_assert!(rest.iter().all(|told| told.granted), "{told:?}: {rest:?}");
            if told.requests(cost) > 0 {
                world.pass(told.longest() * SECOND);
                let again = world.send(told.requests(cost));
                prop_assert!(again.iter().all(|told| told.granted), "{told:?}: {again:?}");
            }
        }
    }

    #[test]
    fn retry_after_is_never_earlier_than_t_and_then_the_request_passes(
        (limits, cost, phase) in scene(1..=3),
        pauses in pauses(),
    ) {
        let mut world = World::new(&limits, cost, phase);
        let mut denials = 0;
        for pause in pauses {
            let told = world.send_one();
            if !told.granted {
                denials += 1;
                let after = told.retry_after.unwrap();
                prop_assert!(told.longest() <= after, "{told:?}");
                prop_assert!(told.limits.iter().any(|(_, seconds)| *seconds == Some(after)), "{told:?}");
                world.pass(after * SECOND);
                prop_assert!(world.send_one().granted, "{told:?}");
            }
            world.pass(pause / 100);
        }
        let quota = World::new(&limits, cost, phase).send_one().requests(cost);
        prop_assert!(denials > 0 || quota > 3, "nothing was tried");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compared with one that knows microseconds. The loss is due to whole seconds: half at most, if a request needs just over one.
    #[test]
    fn a_client_that_obeys_gets_at_least_half_of_what_there_is((limits, cost, phase) in scene(1..=2)) {
        // An obedient client uses the units that are left, and no overdraft.
        prop_assume!(!limits.iter().any(|limit| limit.contains("overdraft")));
        let start = World::new(&limits, cost, phase).now;
        let (mut world, mut most) = (World::new(&limits, cost, phase), 0);
        while most < 300 {
            let told = world.send_one();
            most += u32::from(told.granted);
            if let RetryAfter::After(Micros(truth)) = told.truth {
                world.pass(truth);
            }
        }
        let end = world.now;
        let (mut world, mut passed) = (World::new(&limits, cost, phase), 0);
        while world.now <= end && passed < most {
            let told = world.send_one();
            passed += u32::from(told.granted);
            if told.requests(cost) == 0 {
                world.pass(told.wait(cost) * SECOND);
            }
        }
        prop_assert!(passed * 2 + 1 >= most, "{passed} of {most} in {}", end.since(start));
    }
}

/// The number of requests of cost 1 that pass under this limit of 60 in a minute, if the client is alone for an hour.
fn passes_in_an_hour(limit: &str, client: fn(&mut World) -> u32) -> u32 {
    let mut world = World::new(&[format!(r#"{{"name": "l", {limit}}}"#)], 1, 0);
    let end = world.now.plus(Micros::from_secs(3600));
    let mut passed = 0;
    while world.now < end {
        passed += client(&mut world);
    }
    passed
}

/// Sends what fits, and waits `t` when nothing fits.
fn waits(world: &mut World) -> u32 {
    let told = world.send_one();
    if told.requests(1) == 0 {
        world.pass(told.wait(1) * SECOND);
    }
    u32::from(told.granted)
}

/// Sends one request, and the next after the part of `t` that each request of `r` has.
fn paces(world: &mut World) -> u32 {
    let told = world.send_one();
    let (left, wait) = (u64::from(told.requests(1)), told.longest() * SECOND);
    world.pass(wait.div_ceil(left.max(1)));
    u32::from(told.granted)
}

#[test]
fn what_a_client_gets_of_a_limit_by_how_it_reads_t() {
    // The table in `docs/limits.md`: how many of 3,600 an hour a client gets if it waits for `t`, and if it spreads its requests over `t`.
    let rows = [
        (r#""algorithm": "fixed_window", "limit": 60, "window": "1m""#, (3660, 3560)),
        (r#""algorithm": "fixed_window", "limit": 60, "window": "1m", "align": "first""#, (3600, 3539)),
        (r#""algorithm": "sliding_log", "limit": 60, "window": "1m""#, (3600, 1807)),
        (r#""algorithm": "sliding_window", "limit": 60, "window": "1m", "precision": "1m""#, (3560, 1926)),
        (r#""algorithm": "sliding_window", "limit": 60, "window": "1m", "precision": "10s""#, (3546, 1806)),
        (r#""algorithm": "sliding_window", "limit": 60, "window": "1m", "precision": "1s""#, (3600, 1784)),
        (r#""algorithm": "token_bucket", "capacity": 60, "refill": 60, "interval": "1m""#, (3659, 3600)),
        (
            r#""algorithm": "token_bucket", "capacity": 60, "refill": 60, "interval": "1m", "mode": "stepwise""#,
            (3600, 3539),
        ),
        (r#""algorithm": "leaky_bucket", "rate": "60/1m", "burst": 60"#, (3659, 3600)),
    ];
    for (limit, expected) in rows {
        let measured = (passes_in_an_hour(limit, waits), passes_in_an_hour(limit, paces));
        assert_eq!(measured, expected, "{limit}");
    }
}
