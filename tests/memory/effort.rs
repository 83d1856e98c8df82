// SPDX-License-Identifier: Apache-2.0
//! However a request is written, the work that it makes is bounded: the pairs that are compared, the bytes that are searched and
//! hashed, and the allocations. In WebAssembly, compiled as the plugin is and run by Node's V8, it prints what the worst
//! requests cost in microseconds, and decides nothing by time: `scripts/bench-core wasm`.

use weir_support::hostile;

use weir::config::Config;
use weir::request::sample::Sample;

#[cfg(not(target_arch = "wasm32"))]
mod work {
    use allocation_counter::measure;
    use weir::policy::pattern::MAX_STEPS;
    use weir::request::pairs::{LONGEST_PAIRS, MAX_PAIRS};
    use weir::request::{Effort, Request};

    use super::{Config, Sample, hostile};

    /// The number of times that a configuration has a word: as many conditions, parts or costs read such a thing.
    fn count(config: &Config, word: &str) -> usize {
        format!("{config:?}").matches(word).count()
    }

    #[test]
    fn a_request_makes_bounded_work_whatever_it_holds() {
        let requests = hostile::requests();
        let mut searched = 0;
        for (name, config) in hostile::configurations() {
            let reads = count(&config, "Query(") + count(&config, "Cookie(") + count(&config, "Header(");
            let most = Effort {
                // All readings of a query; all elements of a header, and the whole.
                pairs: reads * (3 * MAX_PAIRS),
                // A search begins where another has used up all but the last byte, and each costs its beginning.
                steps: count(&config, "Pattern {") * (MAX_STEPS + MAX_STEPS / 8),
                // The headers that pass Envoy, once for each of eight different parts.
                hashed: 8 * 60 * 1024,
            };
            for (request, sample) in &requests {
                let read = Request::new(sample, &config.trust);
                let _ = config.evaluate_request(&read);
                let found = read.effort();
                assert!(
                    found.pairs <= most.pairs && found.steps <= most.steps && found.hashed <= most.hashed,
                    "{request}; {name}: {found:?}, at most {most:?}"
                );
                searched = searched.max(found.steps);
            }
        }
        assert!(searched > MAX_STEPS / 2, "{searched}: the searches are counted");
    }

    /// The most effort that a request may make under the policies of all examples in one.
    const DEAREST: Effort = Effort { pairs: 11, steps: 40_000, hashed: 60 * 1024 };

    /// In WebAssembly, 32,768 steps of a search take about 100 µs, SHA-1 of 60 KiB about 100 µs too, and SHA-256 of the 8 KiB that are
    /// read of a hashed part about 70 µs.
    #[test]
    fn the_threat_model_promises_no_less_than_that_effort_takes() {
        let (_, promise) = include_str!("../../docs/threats.md").split_once("takes at most ").unwrap();
        let promised: usize = promise.split_once(" µs").unwrap().0.parse().unwrap();
        let takes = DEAREST.steps * 100 / 32_768 + DEAREST.hashed * 100 / (60 * 1024) + 70;
        assert!((takes..takes + 10).contains(&promised), "{takes} µs, and {promised} are promised");
    }

    /// An example that costs more, or a larger bound of a search, fails here, where no clock decides.
    #[test]
    fn the_examples_together_cost_no_more_than_is_promised() {
        let configurations = hostile::configurations();
        let (_, config) = configurations.iter().find(|(name, _)| name == "all examples in one").unwrap();
        let mut dearest = Effort::default();
        for (_, sample) in hostile::requests() {
            let read = Request::new(&sample, &config.trust);
            let _ = config.evaluate_request(&read);
            let found = read.effort();
            dearest.pairs = dearest.pairs.max(found.pairs);
            dearest.steps = dearest.steps.max(found.steps);
            dearest.hashed = dearest.hashed.max(found.hashed);
        }
        let allowed = |found: usize, most: usize| found <= most && found > most / 2;
        assert!(
            allowed(dearest.pairs, DEAREST.pairs)
                && allowed(dearest.steps, DEAREST.steps)
                && allowed(dearest.hashed, DEAREST.hashed),
            "{dearest:?}, at most {DEAREST:?}"
        );
    }

    /// Each name of a query is compared with the few that may be it, and not with the name of each policy.
    #[test]
    fn many_parameters_are_not_compared_with_many_policies() {
        let policy = |n: usize| {
            format!(
                r#"{{"name": "p{n}", "match": {{"query": {{"name": "tenant-{n}"}}}}, "limits":
                [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}]}}"#
            )
        };
        let policies: Vec<_> = (0..MAX_PAIRS).map(policy).collect();
        let config = format!(r#"{{"policies": [{}]}}"#, policies.join(","));
        let config = Config::parse(config.as_bytes()).expect("a configuration");
        for (name, most) in
            [("name", 0), ("tenant", 0), ("tenant-1.2", 1), ("tenant-1[2]", 1), ("tenant-7+", 1)]
        {
            let query: Vec<_> = (0..MAX_PAIRS).map(|_| format!("{name}=1")).collect();
            let sample = Sample::default().header(":path", format!("/?{}", query.join("&")));
            let read = Request::new(&sample, &config.trust);
            let _ = config.evaluate_request(&read);
            // The index compares, and then the condition of each policy that it names.
            let most = MAX_PAIRS + 2 * most * MAX_PAIRS;
            let found = read.effort().pairs;
            assert!((MAX_PAIRS..=most).contains(&found), "{name}: {found}, at most {most}");
        }
    }

    /// A subject of many policies is hashed once.
    #[test]
    fn a_long_value_is_hashed_once() {
        let configurations = hostile::configurations();
        let (_, twelve) =
            configurations.iter().find(|(name, _)| name == "twelve policies of one subject").unwrap();
        let long = Sample::default().header("x-user", "a".repeat(50_000));
        let request = Request::new(&long, &twelve.trust);
        let _ = twelve.evaluate_request(&request);
        assert_eq!(request.effort().hashed, 50_000);
    }

    /// A pair has no memory of its own: many pairs in a query, in cookies or in a header make at most the few allocations of a
    /// list that grows, and of values where a policy asks for them.
    #[test]
    fn nothing_is_allocated_for_a_pair() {
        let of = |config: &Config, sample: &Sample| measure(|| drop(config.evaluate(sample))).count_total;
        for (name, config) in hostile::configurations() {
            for (pairs, header, unit) in [
                ("query", ":path", "&b=%61"),
                ("query with escaped names", ":path", "&%61=1"),
                ("cookies", "cookie", ";b=a"),
                ("elements", "user-agent", ",b"),
            ] {
                let request = |pairs: usize| {
                    let request = Sample::default().from("192.0.2.1:1");
                    // Two lines of a header; of a path, the last counts.
                    request.header(header, "/").header(header, format!("/?a{}", unit.repeat(pairs)))
                };
                // As many as are read; then more, which are not.
                let (one, many) = (of(&config, &request(1)), of(&config, &request(250)));
                // A list of 250 grows seven times in each of two readings.
                assert!(many <= one + 14, "{pairs}; {name}: {one} allocations became {many}");
                let too_many = of(&config, &request(LONGEST_PAIRS));
                assert!(too_many <= one + 14, "{pairs}; {name}: {one} allocations became {too_many}");
            }
        }
    }
}

#[cfg(target_arch = "wasm32")]
mod time {
    use std::hint::black_box;

    use wasm_bindgen_test::{console_log, wasm_bindgen_test};

    use super::{Config, Sample, hostile};

    /// Rounds that are timed together, and how often: the fastest are the least disturbed.
    const ROUNDS: u32 = 50;
    const TRIES: u32 = 5;

    /// The CPU time that Node's process has used until now, in microseconds: other processes do not count.
    fn used() -> f64 {
        let used =
            js_sys::eval("(() => { const used = process.cpuUsage(); return used.user + used.system; })()");
        used.expect("Node's usage").as_f64().expect("a number")
    }

    /// Microseconds of one evaluation.
    fn micros(config: &Config, request: &Sample) -> f64 {
        let once = || {
            let began = used();
            (0..ROUNDS).for_each(|_| {
                black_box(config.evaluate(black_box(request)));
            });
            (used() - began) / f64::from(ROUNDS)
        };
        (0..TRIES).map(|_| once()).fold(f64::INFINITY, f64::min)
    }

    #[wasm_bindgen_test]
    fn what_the_worst_requests_cost() {
        for (name, config) in hostile::configurations() {
            let timed =
                hostile::requests().into_iter().map(|(request, sample)| (micros(&config, &sample), request));
            let mut timed: Vec<_> = timed.collect();
            let (plain, _) = timed[0];
            timed.sort_by(|one, other| other.0.total_cmp(&one.0));
            let (worst, request) = &timed[0];
            console_log!("{worst:6.0} us  ({plain:.0} for a plain request)  {name}: {request}");
        }
    }
}
