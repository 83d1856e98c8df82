// SPDX-License-Identifier: Apache-2.0
//! The configuration: what loads, the errors of what does not, and that schema and docs agree with the code.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::config::{self, Config, Host, Topology};
use weir::limit::{
    Align, Ban, Concurrency, FixedWindow, LeakyBucket, Limit, Period, Refill, SlidingLog, SlidingWindow,
    TokenBucket, UtcOffset,
};
use weir::policy::{Lease, Mode, OnFailure};
use weir::request::client_ip::{Network, Proxies, Trust};
use weir::response::{Body, LimitView, Settings, Style, Upstream};
use weir::time::Micros;

/// What loads. `L` stands for one limit, `P` for a policy's name and limits.
const ACCEPTED: &[(&str, &str)] = &[
    ("the smallest", r#"{"policies": [{P}]}"#),
    ("white space and order do not matter", "{ \"policies\" :\n[ {\"limits\":[{L}],\t\"name\":\"p\"} ] }"),
    (
        "the largest counts",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1000000000000, "window": "366d"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1000000/s", "burst": 1000000000000}]}]}"#,
    ),
    (
        "the smallest windows and rates",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1, "window": "1ms"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1/d"},
        {"name": "c", "algorithm": "leaky_bucket", "rate": "1/366d"}]}]}"#,
    ),
    (
        "every unit of time",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "us", "algorithm": "sliding_log", "limit": 1, "window": "1000us"},
        {"name": "ms", "algorithm": "sliding_log", "limit": 1, "window": "500ms"},
        {"name": "s", "algorithm": "sliding_log", "limit": 1, "window": "1s"},
        {"name": "m", "algorithm": "sliding_log", "limit": 1, "window": "1m"},
        {"name": "h", "algorithm": "sliding_log", "limit": 1, "window": "1h"},
        {"name": "d", "algorithm": "sliding_log", "limit": 1, "window": "1d"}]}]}"#,
    ),
    ("one name in two policies", r#"{"policies": [{P}, {"name": "q", "limits": [{L}]}]}"#),
    ("escapes in names of fields", r#"{"p\u006flicies": [{P}]}"#),
    (
        "an IPv4-mapped network",
        r#"{"policies": [{P}], "deny": [{"client_address": ["::ffff:192.0.2.0/120"]}]}"#,
    ),
    ("a bare IPv6 host", r#"{"policies": [{P, "match": {"host": ["[::1]", "xn--nxasmq6b.example"]}}]}"#),
    ("a path that is not ASCII", r#"{"policies": [{P, "match": {"path": {"exact": "/café"}}}]}"#),
    (
        "conditions in conditions",
        r#"{"policies": [{P, "match": {"not": {"any": [{"all": [{"not": {}}]}]}}}]}"#,
    ),
    (
        "one tier for all requests",
        r#"{"policies": [{"name": "p", "tiers": {"by": {"host": {}}, "default": "t", "limits": {"t": [{L}]}}}]}"#,
    ),
    (
        "trusted networks that are nearly every address",
        r#"{"policies": [{P}], "client_address": {"trusted_networks": ["0.0.0.0/1", "64.0.0.0/2", "128.0.0.0/2", "8000::/1"]}}"#,
    ),
    (
        "the largest regular expression",
        r#"{"policies": [{P, "match": {"path": {"regex": "[a-z]{1,125}"}}}]}"#,
    ),
    (
        "the smallest cost is the largest",
        r#"{"policies": [{P, "cost": {"header": {"name": "x-cost", "min": 5, "max": 5}}}]}"#,
    ),
    (
        "statuses as text and as numbers",
        r#"{"policies": [{P, "settle": [{"when": {"status": [100, "599", "4xx", "500-500", "200-599"]}, "cost": {"constant": 0}}]}]}"#,
    ),
    (
        "weights as text and as numbers",
        r#"{"policies": [{P, "settle": [{"cost": {"body_json": {"sum": [{"paths": ["a"], "weight": 2}, {"paths": ["[\"b.c\"][0]", "d[*].e"], "weight": "0.5"}, {"paths": ["f"], "weight": 0.25}]}}}]}]}"#,
    ),
    (
        "as large shares as there may be, and policies with and without them that share counters",
        r#"{"policies": [
            {"name": "p", "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 2}],
             "priority": [{"when": {"path": {"exact": "/a"}}, "percent": 98}, {"when": {}, "percent": 1}]},
            {"name": "q", "counters": "p", "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 2}]}]}"#,
    ),
    (
        "the smallest scale is the largest, and limits that just hold it",
        r#"{"policies": [
            {"name": "p", "limits": [{"name": "a", "algorithm": "fixed_window", "limit": 1, "window": "1ms"},
                {"name": "b", "algorithm": "sliding_log", "limit": 50, "window": "1h"}],
             "scale": {"from": {"header": {"name": "x"}}, "min": 1999, "max": 1999, "default": 1999}},
            {"name": "q", "limits": [{"name": "c", "algorithm": "fixed_window", "limit": 2000, "window": "1ms"}],
             "scale": {"from": {"jwt_claim": {"claim": ["seats"]}}, "max": "500M"}}]}"#,
    ),
    ("the smallest lease is the largest", r#"{"policies": [{P, "lease": {"max": 5, "min": 5}}]}"#),
    (
        "counts as text",
        r#"{"policies": [{"name": "p", "enforce_percent": "0", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": "50_000", "window": "1d"},
        {"name": "b", "algorithm": "fixed_window", "limit": "1_0_0", "window": "1d"},
        {"name": "c", "algorithm": "fixed_window", "limit": "10k", "window": "1d"},
        {"name": "d", "algorithm": "fixed_window", "limit": "1_000G", "window": "1d"},
        {"name": "e", "algorithm": "leaky_bucket", "rate": "10k/s", "burst": "2M"},
        {"name": "f", "algorithm": "leaky_bucket", "rate": "50_000/5m"}]}]}"#,
    ),
    (
        "windows of the calendar",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1, "align": "day"},
        {"name": "b", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "+00:00"},
        {"name": "c", "algorithm": "fixed_window", "limit": 1, "align": "week", "utc_offset": "-12:00"},
        {"name": "d", "algorithm": "fixed_window", "limit": 1, "align": "month", "utc_offset": "+14:00"},
        {"name": "e", "algorithm": "fixed_window", "limit": 1, "align": "month", "utc_offset": "+05:45"},
        {"name": "f", "algorithm": "fixed_window", "limit": 1, "align": "month", "utc_offset": "-11:59"}]}]}"#,
    ),
    (
        "policies that share counters, with buckets of one rate and permits of one ttl",
        r#"{"policies": [
            {"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 2}, {"name": "c", "algorithm": "concurrency", "limit": 1}]},
            {"name": "q", "counters": "p", "mode": "shadow", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 9, "max_delay": "7s"}, {"name": "c", "algorithm": "concurrency", "limit": 9}]}]}"#,
    ),
    (
        "policies that share counters, one of them by its name",
        r#"{"policies": [{P, "counters": "q"}, {"name": "q", "limits": [{L}]}, {"name": "r", "counters": "q", "limits": [{L}], "mode": "shadow"},
            {"name": "s", "counters": "t", "overrides": true, "tiers": {"by": {"host": {}}, "default": "u", "limits": {"u": [{L}], "v": [{L}]}}},
            {"name": "w", "counters": "t", "overrides": true, "tiers": {"by": {"path": {}}, "default": "v", "limits": {"u": [{L}], "v": [{L}]}}}]}"#,
    ),
    ("an empty body", r#"{"policies": [{P}], "response": {"format": "text", "body": ""}}"#),
];

/// What does not load, and all of its errors.
const REJECTED: &[(&str, &str, &[&str])] = &[
    (
        "nothing",
        "",
        &["$: found no JSON (EOF while parsing a value at line 1 column 0), allowed: a JSON object"],
    ),
    (
        "not JSON",
        "{\"policies\": [}",
        &["$: found no JSON (expected value at line 1 column 15), allowed: a JSON object"],
    ),
    (
        "not an object",
        "[]",
        &[
            "$: found a list of 0, allowed: an object with $schema, store, regions, client_address, request_body, policies, quota, deny, exempt, response, journal, top_denied, emit_filter_state",
        ],
    ),
    (
        "text after the end",
        r#"{"policies": [{P}]} {}"#,
        &["$: found no JSON (trailing characters at line 1 column 102), allowed: a JSON object"],
    ),
    (
        "nested too deep",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        &["$: found no JSON (recursion limit exceeded at line 1 column 128), allowed: a JSON object"],
    ),
    (
        "regions that do not name this one",
        r#"{"regions": {"here": "amz", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"}]}, "policies": [{P}]}"#,
        &["regions.here: found \"amz\", allowed: the name of a region: ams, bom (did you mean \"ams\"?)"],
    ),
    (
        "debits that are more than a limit can owe",
        r#"{"regions": {"here": "ams", "sync_interval": "1s", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"}, {"name": "cle", "cluster": "c"}]}, "policies": [
            {"name": "a", "regions": {"debit": {}}, "limits": [{"name": "l", "algorithm": "token_bucket", "capacity": 100, "refill": 100, "interval": "1s"}]},
            {"name": "b", "regions": {"debit": {}}, "limits": [{"name": "l", "algorithm": "token_bucket", "capacity": 99, "refill": 100, "interval": "999ms"}]},
            {"name": "c", "regions": {"debit": {}}, "limits": [{"name": "l", "algorithm": "fixed_window", "limit": 99, "window": "900001us"}]}]}"#,
        &[
            "policies[1].regions: found debit, allowed: no debit of a limit that is whole again within 999 ms, with a sync_interval above 999 ms: regions would grant more than they can owe, and admit too much for ever",
            "policies[2].regions: found debit, allowed: no debit of a limit that is whole again within 900.001 ms, with a sync_interval above 900.001 ms: regions would grant more than they can owe, and admit too much for ever",
        ],
    ),
    (
        "two regions of one name",
        r#"{"regions": {"here": "ams", "all": [{"name": "ams", "cluster": "a"}, {"name": "ams", "cluster": "b"}]}, "policies": [{P}]}"#,
        &["regions.all[1].name: found \"ams\", allowed: a name other than that of regions.all[0]"],
    ),
    (
        "a home that is no region",
        r#"{"regions": {"here": "ams", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"}]}, "policies": [{P, "regions": {"home": "cle"}}]}"#,
        &["policies[0].regions.home: found \"cle\", allowed: the name of a region: ams, bom"],
    ),
    (
        "a way across regions that there are none of",
        r#"{"policies": [{P, "regions": {"home": "ams"}}, {"name": "q", "limits": [{L}], "regions": {"debit": {}}}]}"#,
        &[
            "policies[0].regions.home: found \"ams\", allowed: no region, because the configuration has no `regions`",
            "policies[1].regions: found a way across regions, allowed: none, because the configuration has no `regions`",
        ],
    ),
    (
        "two ways across regions",
        r#"{"regions": {"here": "ams", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"}]}, "policies": [{P, "regions": {"debit": {}, "share": {}}}]}"#,
        &["policies[0].regions: found debit, share, allowed: exactly one of home, debit, share"],
    ),
    (
        "what cannot be done across regions",
        r#"{"regions": {"here": "ams", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"}]}, "policies": [
            {"name": "a", "regions": {"debit": {}}, "limits": [{"name": "c", "algorithm": "concurrency", "limit": 5, "ttl": "1m"}]},
            {"name": "b", "regions": {"share": {}}, "overrides": true, "limits": [{"name": "i", "algorithm": "fixed_window", "limit": 2, "window": "1d"}]},
            {"name": "d", "regions": {"share": {}}, "limits": [{"name": "e", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 5, "max_delay": "1s"}]},
            {"name": "f", "regions": {"share": {}}, "limits": [{"name": "g", "algorithm": "fixed_window", "limit": 1, "window": "1d"}]},
            {"name": "h", "regions": {"share": {}}, "lease": {"max": 10}, "limits": [{"name": "j", "algorithm": "fixed_window", "limit": 2, "window": "1d"}]}]}"#,
        &[
            "policies[0].regions: found debit, allowed: no debit with a concurrency limit, whose permits are held in one Redis: `home` can",
            "policies[1].regions: found share, allowed: no share with overrides, which stand in one Redis: `home` can",
            "policies[2].regions: found share, allowed: no share with a max_delay: requests take turns in one Redis; `home` and `debit` can",
            "policies[3].regions: found share, allowed: no share of a limit, burst or capacity below the number of regions: each needs a whole unit",
            "policies[4].regions: found share, allowed: no share with a lease: what is borrowed is one",
        ],
    ),
    ("no policies", "{}", &["policies: found nothing, allowed: a list of 1 to 256"]),
    (
        "an empty list of policies",
        r#"{"policies": []}"#,
        &["policies: found a list of 0, allowed: a list of 1 to 256"],
    ),
    (
        "a limit named like the key of overrides",
        r#"{"policies": [{"name": "p", "overrides": true, "limits": [
            {"name": "override", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]}]}"#,
        &[
            "policies[0].limits[0].name: found \"override\", allowed: another name: this one is a key of overrides or bans",
        ],
    ),
    (
        "limits named like the keys of bans",
        r#"{"policies": [{"name": "p", "ban": {"after": 1, "window": "1m", "duration": "1h"}, "limits": [
            {"name": "ban", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1},
            {"name": "denials", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]}]}"#,
        &[
            "policies[0].limits[0].name: found \"ban\", allowed: another name: this one is a key of overrides or bans",
            "policies[0].limits[1].name: found \"denials\", allowed: another name: this one is a key of overrides or bans",
        ],
    ),
    (
        "impossible bans",
        r#"{"policies": [
            {"name": "p", "limits": [{L}], "ban": {"after": 1, "window": "1m", "duration": "2h", "max": "1h"}},
            {"name": "q", "limits": [{L}], "ban": {"after": 1, "window": "1m", "duration": "1h"}, "lease": {"max": 2}}]}"#,
        &[
            "policies[0].ban.max: found less than `duration`, allowed: `duration` to 366d",
            "policies[1].lease: found a lease, allowed: no lease with a ban: a worker would admit a banned subject from its lease",
        ],
    ),
    (
        "a queue without max_wait",
        r#"{"policies": [
            {"name": "p", "ban": {"after": 1, "window": "1m", "duration": "1h"}, "limits": [
                {"name": "l", "algorithm": "concurrency", "limit": 1, "queue": {"max_wait": "1s"}}]},
            {"name": "q", "limits": [{"name": "m", "algorithm": "concurrency", "limit": 1, "queue": {}}]}]}"#,
        &[
            "policies[1].limits[0].queue.max_wait: found nothing, allowed: a duration from \"1ms\" to \"1m\", a whole number and one of us, ms, s, m, h, d",
        ],
    ),
    (
        "a queue with a ban",
        r#"{"policies": [{"name": "p", "ban": {"after": 1, "window": "1m", "duration": "1h"}, "limits": [
            {"name": "l", "algorithm": "concurrency", "limit": 1, "queue": {"max_wait": "1s"}}]}]}"#,
        &[
            "policies[0].ban: found a ban, allowed: no ban with a queue: a request that waits asks again and again, and each time would count as a denial",
        ],
    ),
    (
        "a ban out of bounds",
        r#"{"policies": [{P, "ban": {"after": 0, "window": "0s", "duration": "367d", "factor": 101}}]}"#,
        &[
            "policies[0].ban.after: found 0, allowed: a whole number from 1 to 1000",
            "policies[0].ban.window: found \"0s\", allowed: a duration from \"1ms\" to \"366d\", a whole number and one of us, ms, s, m, h, d",
            "policies[0].ban.duration: found \"367d\", allowed: a duration from \"1ms\" to \"366d\", a whole number and one of us, ms, s, m, h, d",
            "policies[0].ban.factor: found 101, allowed: a whole number from 1 to 100",
        ],
    ),
    (
        "impossible scales",
        r#"{"policies": [
            {"name": "p", "limits": [{"name": "a", "algorithm": "leaky_bucket", "rate": "1/s"}],
             "scale": {"from": {"query": {"name": "x"}}, "min": 9, "max": 8}},
            {"name": "q", "limits": [{"name": "b", "algorithm": "leaky_bucket", "rate": "1/s"}],
             "scale": {"from": {"header": {"name": "x"}}, "min": 2, "max": 8}},
            {"name": "r", "limits": [{"name": "c", "algorithm": "sliding_log", "limit": 50, "window": "1h"},
                {"name": "d", "algorithm": "fixed_window", "limit": 1, "window": "1ms"}],
             "scale": {"from": {"header": {"name": "x"}}, "max": 2001}}]}"#,
        &[
            "policies[0].scale.from: found another part, allowed: jwt_claim, attribute or header",
            "policies[0].scale.min: found 9, allowed: 1 to 8, which is `max`",
            "policies[1].scale.default: found 1, allowed: 2 to 8, from `min` to `max`",
            "policies[2].scale.max: found 2001, allowed: what keeps the limit \"c\" in bounds: limit may be 1 to 100000, because it keeps every grant (sliding_window allows more)",
            "policies[2].scale.max: found 2001, allowed: what leaves the limit \"d\" below two units a microsecond, or a limit above that",
        ],
    ),
    (
        "impossible priorities",
        r#"{"policies": [
            {"name": "p", "limits": [{"name": "o", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 9}],
             "priority": [{"when": {}, "percent": 60}, {"when": {}, "percent": 40}]},
            {"name": "q", "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 9}], "lease": {"max": 2},
             "priority": [{"when": {}, "percent": 5}]},
            {"name": "r", "limits": [{"name": "n", "algorithm": "leaky_bucket", "rate": "9/s"}], "priority": [{"when": {}, "percent": 50}]}]}"#,
        &[
            "policies[0].priority[1].percent: found 40, allowed: at most 39: all shares together are at most 99",
            "policies[1].lease: found a lease, allowed: no lease with a priority: a worker would hold requests in advance that are for others",
            "policies[2].priority: found the limit \"n\" of one unit, allowed: limits of at least 2 units: of a single one, no share can be kept",
        ],
    ),
    (
        "priorities out of bounds",
        r#"{"policies": [{P, "priority": [{"when": {}, "percent": 0}, {"percent": 100}]}]}"#,
        &[
            "policies[0].priority[0].percent: found 0, allowed: a whole number from 1 to 99",
            "policies[0].priority[1].percent: found 100, allowed: a whole number from 1 to 99",
            "policies[0].priority[1].when: found nothing, allowed: an object with path, method, host, header, query, cookie, jwt_claim, attribute, body_json, route, client_address, all, any, not",
        ],
    ),
    (
        "impossible leases",
        r#"{"policies": [
            {"name": "p", "lease": {"max": 2, "min": 3}, "limits": [
                {"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}]},
            {"name": "q", "lease": {"max": 2}, "limits": [
                {"name": "m", "algorithm": "concurrency", "limit": 1, "ttl": "1m"}]},
            {"name": "r", "lease": {"max": 2}, "limits": [
                {"name": "n", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1, "max_delay": "1ms"}]}]}"#,
        &[
            "policies[0].lease.min: found 3, allowed: 1 to 2, which is `max`",
            "policies[1].lease: found a lease, allowed: no lease with a concurrency limit or a max_delay: their requests take turns",
            "policies[2].lease: found a lease, allowed: no lease with a concurrency limit or a max_delay: their requests take turns",
        ],
    ),
    (
        "an unknown field",
        r#"{"policys": [], "policies": [{P}]}"#,
        &[
            "policys: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, quota, deny, exempt, response, journal, top_denied, emit_filter_state (did you mean \"policies\"?)",
        ],
    ),
    (
        "an unknown field like no other",
        r#"{"policies": [{P}], "zzzzzz": 1}"#,
        &[
            "zzzzzz: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, quota, deny, exempt, response, journal, top_denied, emit_filter_state",
        ],
    ),
    (
        "a field of the configuration by its former name",
        r#"{"policies": [{P}], "record": true}"#,
        &[
            "record: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, quota, deny, exempt, response, journal, top_denied, emit_filter_state (it is called \"emit_filter_state\" now)",
        ],
    ),
    (
        "fields of a lease by their former names",
        r#"{"policies": [{P, "lease": {"most": 2, "least": 1}}]}"#,
        &[
            "policies[0].lease.most: found an unknown field, allowed: max, min, duration (it is called \"max\" now)",
            "policies[0].lease.least: found an unknown field, allowed: max, min, duration (it is called \"min\" now)",
            "policies[0].lease.max: found nothing, allowed: a whole number from 1 to 1000000",
        ],
    ),
    (
        "fields of tiers by their former names",
        r#"{"policies": [{"name": "p", "tiers": {"by": {"host": {}}, "otherwise": "t", "of": {"t": [{L}]}}}]}"#,
        &[
            "policies[0].tiers.otherwise: found an unknown field, allowed: by, default, limits (it is called \"default\" now)",
            "policies[0].tiers.of: found an unknown field, allowed: by, default, limits (it is called \"limits\" now)",
            "policies[0].tiers.default: found nothing, allowed: a string: N",
            "policies[0].tiers.limits: found nothing, allowed: an object with 1 to 64 names of your choice",
        ],
    ),
    (
        "fields of a part by their former names",
        r#"{"policies": [{P, "subject": [{"host": {}, "absent": "skip", "several": "deny"}, {"property": {"path": ["a"]}}]}]}"#,
        &[
            "policies[0].subject[0].absent: found an unknown field, allowed: C, literal, on_missing, on_multiple, hash (it is called \"on_missing\" now)",
            "policies[0].subject[0].several: found an unknown field, allowed: C, literal, on_missing, on_multiple, hash (it is called \"on_multiple\" now)",
            "policies[0].subject[1].property: found an unknown field, allowed: C, literal, on_missing, on_multiple, hash (it is called \"attribute\" now)",
            "policies[0].subject[1]: found none of them, allowed: exactly one of C, literal",
        ],
    ),
    (
        "fields of a condition by their former names",
        r#"{"policies": [{P}], "deny": [{"source": ["10.0.0.0/8"]}, {"header": {"name": "x", "equals": "y"}}]}"#,
        &[
            "deny[0].source: found an unknown field, allowed: path, method, host, header, query, cookie, jwt_claim, attribute, body_json, route, client_address, all, any, not (it is called \"client_address\" now)",
            "deny[1].header.equals: found an unknown field, allowed: name, exact, in, prefix, regex, present (it is called \"exact\" now)",
        ],
    ),
    (
        "fields of a cost by their former names, and one by a name that it never had",
        r#"{"policies": [{P, "cost": {"header": {"name": "x", "absent": 2, "least": 1, "several": 1}}}]}"#,
        &[
            "policies[0].cost.header.absent: found an unknown field, allowed: name, on_missing, min, max (it is called \"on_missing\" now)",
            "policies[0].cost.header.least: found an unknown field, allowed: name, on_missing, min, max (it is called \"min\" now)",
            "policies[0].cost.header.several: found an unknown field, allowed: name, on_missing, min, max",
        ],
    ),
    (
        "a field name that is no word",
        r#"{"policies": [{P}], "a b\n": 1}"#,
        &[
            "[\"a b\\n\"]: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, quota, deny, exempt, response, journal, top_denied, emit_filter_state",
        ],
    ),
    (
        "a field twice",
        r#"{"policies": [{P}], "store": {"deadline": "1s", "deadline": "2s"}}"#,
        &["store.deadline: found the same name twice, allowed: each name once"],
    ),
    (
        "wrong types",
        r#"{"policies": {}, "store": [], "deny": null, "response": {"status": "many"}}"#,
        &[
            "policies: found an object, allowed: a list of 1 to 256",
            "store: found a list of 0, allowed: an object with cluster, deadline, on_failure, topology, workers, denial_ttl, key_prefix, hash_secret",
            "deny: found null, allowed: a list of 0 to 256",
            "response.status: found \"many\", allowed: a whole number from 400 to 599COUNT",
        ],
    ),
    (
        "numbers that are not whole",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 10.5, "window": "1s"},
        {"name": "b", "algorithm": "fixed_window", "limit": 1e3, "window": "1s"},
        {"name": "c", "algorithm": "fixed_window", "limit": -1, "window": "1s"},
        {"name": "d", "algorithm": "fixed_window", "limit": 1e400, "window": "1s"}]}]}"#,
        &["$: found no JSON (number out of range at line 5 column 65), allowed: a JSON object"],
    ),
    (
        "numbers that are not whole, in range",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 10.5, "window": "1s"},
        {"name": "b", "algorithm": "fixed_window", "limit": 1e3, "window": "1s"},
        {"name": "c", "algorithm": "fixed_window", "limit": -1, "window": "1s"},
        {"name": "d", "algorithm": "fixed_window", "limit": 99999999999999999999, "window": "1s"}]}]}"#,
        &[
            "policies[0].limits[0].limit: found 10.5, allowed: a whole number from 1 to 1000000000000",
            "policies[0].limits[1].limit: found 1000.0, allowed: a whole number from 1 to 1000000000000",
            "policies[0].limits[2].limit: found -1, allowed: a whole number from 1 to 1000000000000",
            "policies[0].limits[3].limit: found 1e20, allowed: a whole number from 1 to 1000000000000",
        ],
    ),
    (
        "counts out of bounds",
        r#"{"policies": [{"name": "p", "enforce_percent": 101, "limits": [
        {"name": "a", "algorithm": "concurrency", "limit": 0},
        {"name": "b", "algorithm": "concurrency", "limit": 1000000000001}]}]}"#,
        &[
            "policies[0].enforce_percent: found 101, allowed: a whole number from 0 to 100",
            "policies[0].limits[0].limit: found 0, allowed: a whole number from 1 to 1000000000000",
            "policies[0].limits[1].limit: found 1000000000001, allowed: a whole number from 1 to 1000000000000",
        ],
    ),
    (
        "text that is no count",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": "10K", "window": "1d"},
        {"name": "b", "algorithm": "fixed_window", "limit": "2 m", "window": "1d"},
        {"name": "c", "algorithm": "fixed_window", "limit": "1.5k", "window": "1d"},
        {"name": "d", "algorithm": "fixed_window", "limit": "_1", "window": "1d"},
        {"name": "e", "algorithm": "fixed_window", "limit": "1__0", "window": "1d"},
        {"name": "f", "algorithm": "fixed_window", "limit": "010", "window": "1d"},
        {"name": "g", "algorithm": "fixed_window", "limit": "+1", "window": "1d"},
        {"name": "h", "algorithm": "fixed_window", "limit": "k", "window": "1d"}]},
        {"name": "q", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": "", "window": "1d"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1_/s"},
        {"name": "c", "algorithm": "leaky_bucket", "rate": "10K/s"},
        {"name": "d", "algorithm": "leaky_bucket", "rate": "01/s"}]}]}"#,
        &[
            "policies[0].limits[0].limit: found \"10K\", allowed: a whole number from 1 to 1000000000000COUNT (did you mean \"10k\"?)",
            "policies[0].limits[1].limit: found \"2 m\", allowed: a whole number from 1 to 1000000000000COUNT (did you mean \"2M\"?)",
            "policies[0].limits[2].limit: found \"1.5k\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[3].limit: found \"_1\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[4].limit: found \"1__0\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[5].limit: found \"010\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[6].limit: found \"+1\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[7].limit: found \"k\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[1].limits[0].limit: found \"\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[1].limits[1].rate: found \"1_/s\", allowed: a string: R",
            "policies[1].limits[2].rate: found \"10K/s\", allowed: a string: R",
            "policies[1].limits[3].rate: found \"01/s\", allowed: a string: R",
        ],
    ),
    (
        "text that is a count out of bounds",
        r#"{"policies": [{"name": "p", "enforce_percent": "1k", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": "0", "window": "1d"},
        {"name": "b", "algorithm": "fixed_window", "limit": "1001G", "window": "1d"},
        {"name": "c", "algorithm": "fixed_window", "limit": "99999999999G", "window": "1d"},
        {"name": "d", "algorithm": "leaky_bucket", "rate": "1001G/s"}]}]}"#,
        &[
            "policies[0].enforce_percent: found \"1k\", allowed: a whole number from 0 to 100COUNT",
            "policies[0].limits[0].limit: found \"0\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[1].limit: found \"1001G\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[2].limit: found \"99999999999G\", allowed: a whole number from 1 to 1000000000000COUNT",
            "policies[0].limits[3].rate: found \"1001G/s\", allowed: a string: R",
        ],
    ),
    (
        "durations",
        r#"{"policies": [{P}], "store": {"deadline": "1 s"}, "response": {"retry_jitter": 5}}"#,
        &[
            "store.deadline: found \"1 s\", allowed: a duration from \"1ms\" to \"10s\", a whole number and one of us, ms, s, m, h, d",
            "response.retry_jitter: found 5, allowed: a duration from \"0s\" to \"1h\", a whole number and one of us, ms, s, m, h, d",
        ],
    ),
    (
        "a log that keeps too many grants",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "sliding_log", "limit": 100000, "window": "1s"},
        {"name": "b", "algorithm": "sliding_log", "limit": 100001, "window": "1s"}]}]}"#,
        &[
            "policies[0].limits[1].limit: found 100001, allowed: a whole number from 1 to 100000 (a `sliding_window` allows more)",
        ],
    ),
    (
        "logs that may take too long together",
        r#"{"policies": [{P}, {"name": "q", "limits": [{"name": "l0", "algorithm": "sliding_log", "limit": 10001, "window": "1h"}, {"name": "l1", "algorithm": "sliding_log", "limit": 10001, "window": "1h"}, {"name": "l2", "algorithm": "sliding_log", "limit": 10001, "window": "1h"}, {"name": "l3", "algorithm": "sliding_log", "limit": 10001, "window": "1h"}, {"name": "l4", "algorithm": "sliding_log", "limit": 10001, "window": "1h"}]}]}"#,
        &[
            "policies[1].limits: found limits of which one script may take 460 microseconds in Redis, allowed: 400 microseconds: `concurrency` takes up to 44, `sliding_log` 45 (92 above 10000 units or where subjects have overrides, 65 above 32 units), `sliding_window` 22, any other limit 7 at most",
        ],
    ),
    (
        "logs of a tier that may take too long together",
        r#"{"policies": [{"name": "p", "tiers": {"by": {"header": {"name": "plan"}}, "default": "free", "limits": {"free": [{"name": "l0", "algorithm": "sliding_log", "limit": 1, "window": "1h"}], "paid": [{"name": "l0", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l1", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l2", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l3", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l4", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l5", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l6", "algorithm": "sliding_log", "limit": 33, "window": "1h"}, {"name": "l7", "algorithm": "sliding_log", "limit": 33, "window": "1h"}]}}}]}"#,
        &[
            "policies[0].tiers.limits.paid: found limits of which one script may take 520 microseconds in Redis, allowed: 400 microseconds: `concurrency` takes up to 44, `sliding_log` 45 (92 above 10000 units or where subjects have overrides, 65 above 32 units), `sliding_window` 22, any other limit 7 at most",
        ],
    ),
    (
        "logs that may take too long with a subject's own limits",
        r#"{"policies": [{"name": "p", "overrides": true, "limits": [{"name": "l0", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l1", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l2", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l3", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l4", "algorithm": "sliding_log", "limit": 1, "window": "1h"}]}]}"#,
        &[
            "policies[0].limits: found limits of which one script may take 467 microseconds in Redis, allowed: 400 microseconds: `concurrency` takes up to 44, `sliding_log` 45 (92 above 10000 units or where subjects have overrides, 65 above 32 units), `sliding_window` 22, any other limit 7 at most",
        ],
    ),
    (
        "a scale under which logs may take too long together",
        r#"{"policies": [{"name": "p", "scale": {"from": {"header": {"name": "x"}}, "max": 33}, "limits": [{"name": "l0", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l1", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l2", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l3", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l4", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l5", "algorithm": "sliding_log", "limit": 1, "window": "1h"}, {"name": "l6", "algorithm": "sliding_log", "limit": 1, "window": "1h"}]}]}"#,
        &[
            "policies[0].scale.max: found 33, allowed: a scale without limits of which one script may take 455 microseconds in Redis; they may take 400 microseconds: `concurrency` takes up to 44, `sliding_log` 45 (92 above 10000 units or where subjects have overrides, 65 above 32 units), `sliding_window` 22, any other limit 7 at most",
        ],
    ),
    (
        "durations out of bounds",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "sliding_log", "limit": 1, "window": "999us"},
        {"name": "b", "algorithm": "sliding_log", "limit": 1, "window": "367d"},
        {"name": "c", "algorithm": "sliding_log", "limit": 1, "window": "99999999999999999999d"},
        {"name": "d", "algorithm": "concurrency", "limit": 1, "retry_after": "999ms"},
        {"name": "e", "algorithm": "concurrency", "limit": 1, "retry_after": "61m"}]}]}"#,
        &[
            "policies[0].limits[0].window: found \"999us\", allowed: a duration from \"1ms\" to \"366d\", a whole number and one of us, ms, s, m, h, d",
            "policies[0].limits[1].window: found \"367d\", allowed: a duration from \"1ms\" to \"366d\", a whole number and one of us, ms, s, m, h, d",
            "policies[0].limits[2].window: found \"99999999999999999999d\", allowed: a duration from \"1ms\" to \"366d\", a whole number and one of us, ms, s, m, h, d",
            "policies[0].limits[3].retry_after: found \"999ms\", allowed: a duration from \"1s\" to \"1h\", a whole number and one of us, ms, s, m, h, d",
            "policies[0].limits[4].retry_after: found \"61m\", allowed: a duration from \"1s\" to \"1h\", a whole number and one of us, ms, s, m, h, d",
        ],
    ),
    (
        "rates",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "leaky_bucket", "rate": "10"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "0/s"},
        {"name": "c", "algorithm": "leaky_bucket", "rate": "1.5/s"},
        {"name": "d", "algorithm": "leaky_bucket", "rate": "1/0s"},
        {"name": "e", "algorithm": "leaky_bucket", "rate": "+1/s"}]}]}"#,
        &[
            "policies[0].limits[0].rate: found \"10\", allowed: a string: R",
            "policies[0].limits[1].rate: found \"0/s\", allowed: a string: R",
            "policies[0].limits[2].rate: found \"1.5/s\", allowed: a string: R",
            "policies[0].limits[3].rate: found \"1/0s\", allowed: a string: R",
            "policies[0].limits[4].rate: found \"+1/s\", allowed: a string: R",
        ],
    ),
    (
        "names",
        r#"{"policies": [{"name": "a{b}", "limits": [{L}]}, {"name": "", "limits": [{L}]}, {"name": "-a", "limits": [{L}]},
        {"name": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "limits": [{L}]}]}"#,
        &[
            "policies[0].name: found \"a{b}\", allowed: a string: N",
            "policies[1].name: found \"\", allowed: a string: N",
            "policies[2].name: found \"-a\", allowed: a string: N",
            "policies[3].name: found \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"…, allowed: a string: N",
        ],
    ),
    (
        "headers by their name before it had the draft's number",
        r#"{"policies": [{P}], "response": {"headers": "draft"}}"#,
        &["response.headers: found \"draft\", allowed: draft_11, x_ratelimit, none"],
    ),
    (
        "policies of one name",
        r#"{"policies": [{P}, {P}]}"#,
        &["policies[1].name: found \"p\", allowed: a name other than that of policies[0]"],
    ),
    (
        "limits that clients know by one name",
        r#"{"policies": [
            {"name": "a", "limits": [{"name": "b.c", "algorithm": "leaky_bucket", "rate": "1/s"}]},
            {"name": "a.b", "tiers": {"by": {"host": {}}, "default": "t", "limits": {
                "s": [{"name": "c", "algorithm": "leaky_bucket", "rate": "1/s"}],
                "t": [{"name": "c", "algorithm": "leaky_bucket", "rate": "2/s"}]}}},
            {"name": "q", "limits": [{"name": "b.c", "algorithm": "leaky_bucket", "rate": "1/s"},
                {"name": "c", "algorithm": "leaky_bucket", "rate": "1/s"},
                {"name": "r.c", "algorithm": "leaky_bucket", "rate": "1/s"}]},
            {"name": "r", "limits": [{"name": "c", "algorithm": "leaky_bucket", "rate": "1/s"}]}]}"#,
        &[
            "policies[1].tiers.limits.s[0].name: found \"c\", allowed: another name: clients see \"a.b.c\", as they do for policies[0].limits[0]",
            "policies[1].tiers.limits.t[0].name: found \"c\", allowed: another name: clients see \"a.b.c\", as they do for policies[0].limits[0]",
            "policies[3].limits[0].name: found \"c\", allowed: another name: clients see \"r.c\", as they do for policies[2].limits[2]",
        ],
    ),
    (
        "counters of other limits",
        r#"{"policies": [
            {"name": "a", "limits": [{L}, {"name": "m", "algorithm": "leaky_bucket", "rate": "1/s"}]},
            {"name": "b", "counters": "a", "limits": [{L}]},
            {"name": "c", "counters": "x", "limits": [{L}]},
            {"name": "d", "counters": "x", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "2/s"}]},
            {"name": "e", "counters": "x", "limits": [{"name": "k", "algorithm": "leaky_bucket", "rate": "1/s"}]},
            {"name": "x", "overrides": true, "limits": [{L}]},
            {"name": "g", "counters": "x", "tiers": {"by": {"host": {}}, "default": "t", "limits": {"t": [{L}]}}},
            {"name": "h", "counters": "a", "limits": [{"name": "m", "algorithm": "leaky_bucket", "rate": "1/s"}, {L}]}]}"#,
        &[
            "policies[1].counters: found \"a\", allowed: another name, or the limits of policies[0], which counts under this one",
            "policies[3].counters: found \"x\", allowed: another name, or the limits of policies[2], which counts under this one",
            "policies[4].counters: found \"x\", allowed: another name, or the limits of policies[2], which counts under this one",
            "policies[5].name: found \"x\", allowed: another name, or the limits of policies[2], which counts under this one",
            "policies[6].counters: found \"x\", allowed: another name, or the limits of policies[2], which counts under this one",
            "policies[7].counters: found \"a\", allowed: another name, or the limits of policies[0], which counts under this one",
        ],
    ),
    (
        "other bursts where overrides or scales decide, and permits of another ttl",
        r#"{"policies": [
            {"name": "a", "overrides": true, "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 2}]},
            {"name": "b", "counters": "a", "overrides": true, "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 3}]},
            {"name": "c", "scale": {"from": {"jwt_claim": {"claim": ["n"]}}, "max": 9}, "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 2}]},
            {"name": "d", "counters": "c", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 3}]},
            {"name": "e", "limits": [{"name": "l", "algorithm": "concurrency", "limit": 2}]},
            {"name": "f", "counters": "e", "limits": [{"name": "l", "algorithm": "concurrency", "limit": 2, "ttl": "9s"}]}]}"#,
        &[
            "policies[1].counters: found \"a\", allowed: another name, or the limits of policies[0], which counts under this one",
            "policies[3].counters: found \"c\", allowed: another name, or the limits of policies[2], which counts under this one",
            "policies[5].counters: found \"e\", allowed: another name, or the limits of policies[4], which counts under this one",
        ],
    ),
    (
        "a name for counters that is no name",
        r#"{"policies": [{P, "counters": "{a}"}]}"#,
        &["policies[0].counters: found \"{a}\", allowed: a string: N"],
    ),
    (
        "limits of one name",
        r#"{"policies": [{"name": "p", "limits": [{L}, {L}]}]}"#,
        &[
            "policies[0].limits[1].name: found \"l\", allowed: a name other than that of policies[0].limits[0]",
        ],
    ),
    (
        "tiers of one name",
        r#"{"policies": [{"name": "p", "tiers": {"by": {"host": {}}, "default": "t", "limits": {"t": [{L}], "t": [{L}]}}}]}"#,
        &["policies[0].tiers.limits.t: found the same name twice, allowed: each name once"],
    ),
    (
        "neither limits nor tiers",
        r#"{"policies": [{"name": "p"}]}"#,
        &["policies[0]: found none of them, allowed: exactly one of limits, tiers"],
    ),
    (
        "limits and tiers",
        r#"{"policies": [{P, "tiers": {"by": {"host": {}}, "default": "t", "limits": {"t": [{L}]}}}]}"#,
        &["policies[0]: found limits, tiers, allowed: exactly one of limits, tiers"],
    ),
    (
        "no limits",
        r#"{"policies": [{"name": "p", "limits": []}]}"#,
        &["policies[0].limits: found a list of 0, allowed: a list of 1 to 8"],
    ),
    (
        "an unknown algorithm",
        r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leeky_bucket"}]}]}"#,
        &[
            "policies[0].limits[0].algorithm: found \"leeky_bucket\", allowed: fixed_window, sliding_log, sliding_window, token_bucket, leaky_bucket, concurrency (did you mean \"leaky_bucket\"?)",
        ],
    ),
    (
        "no algorithm",
        r#"{"policies": [{"name": "p", "limits": [{"name": "l"}]}]}"#,
        &[
            "policies[0].limits[0].algorithm: found nothing, allowed: fixed_window, sliding_log, sliding_window, token_bucket, leaky_bucket, concurrency",
        ],
    ),
    (
        "a parameter of another algorithm",
        r#"{"policies": [{"name": "p", "limits": [{L, "window": "1s"}]}]}"#,
        &["policies[0].limits[0].window: found an unknown field, allowed: name, rate, burst, max_delay"],
    ),
    (
        "an unknown tier",
        r#"{"policies": [{"name": "p", "tiers": {"by": {"host": {}}, "default": "fre", "limits": {"free": [{L}], "gold": [{L}]}}}]}"#,
        &[
            "policies[0].tiers.default: found \"fre\", allowed: the name of a tier: free, gold (did you mean \"free\"?)",
        ],
    ),
    (
        "a misspelt word",
        r#"{"policies": [{P, "mode": "shadwo"}]}"#,
        &["policies[0].mode: found \"shadwo\", allowed: enforce, shadow (did you mean \"shadow\"?)"],
    ),
    (
        "two kinds of part in one",
        r#"{"policies": [{P, "subject": [{"host": {}, "path": {}}]}]}"#,
        &["policies[0].subject[0]: found path, host, allowed: exactly one of C, literal"],
    ),
    (
        "a denial_ttl that is too long",
        r#"{"policies": [{P}], "store": {"denial_ttl": "61m"}}"#,
        &[
            "store.denial_ttl: found \"61m\", allowed: a duration from \"0s\" to \"1h\", a whole number and one of us, ms, s, m, h, d",
        ],
    ),
    (
        "no part",
        r#"{"policies": [{P, "subject": []}]}"#,
        &["policies[0].subject: found a list of 0, allowed: a list of 1 to 8"],
    ),
    (
        "paths that no request can have",
        r#"{"policies": [{P, "match": {"all": [{"path": {"exact": "/a/../b"}}, {"path": {"prefix": "api"}},
        {"path": {"prefix": "/a//b"}}, {"path": {"exact": "/a%20b"}}, {"path": {"exact": "/a?b"}}]}}]}"#,
        &[
            "policies[0].match.all[0].path.exact: found \"/a/../b\", allowed: a string: A (did you mean \"/b\"?)",
            "policies[0].match.all[1].path.prefix: found \"api\", allowed: a string: A (did you mean \"/api\"?)",
            "policies[0].match.all[2].path.prefix: found \"/a//b\", allowed: a string: A (did you mean \"/a/b\"?)",
            "policies[0].match.all[3].path.exact: found \"/a%20b\", allowed: a string: A (did you mean \"/a b\"?)",
            "policies[0].match.all[4].path.exact: found \"/a?b\", allowed: a string: A (did you mean \"/a\"?)",
        ],
    ),
    (
        "networks",
        r#"{"policies": [{P}], "deny": [{"client_address": ["10.0.0.1/8", "10.0.0.0/33", "localhost", "::/129", "10.0.0.0/-1"]}]}"#,
        &[
            "deny[0].client_address[0]: found \"10.0.0.1/8\" (bits are set beyond the prefix), allowed: a string: an address, or a network such as `10.0.0.0/8` or `2001:db8::/32` (did you mean \"10.0.0.0/8\"?)",
            "deny[0].client_address[1]: found \"10.0.0.0/33\", allowed: a string: an address, or a network such as `10.0.0.0/8` or `2001:db8::/32`",
            "deny[0].client_address[2]: found \"localhost\", allowed: a string: an address, or a network such as `10.0.0.0/8` or `2001:db8::/32`",
            "deny[0].client_address[3]: found \"::/129\", allowed: a string: an address, or a network such as `10.0.0.0/8` or `2001:db8::/32`",
            "deny[0].client_address[4]: found \"10.0.0.0/-1\", allowed: a string: an address, or a network such as `10.0.0.0/8` or `2001:db8::/32`",
        ],
    ),
    (
        "headers, methods, hosts",
        r#"{"policies": [{P, "match": {"header": {"name": "X-Key"}, "method": ["get", "A B"], "host": ["Example.com", "a:80", "*"]}}]}"#,
        &[
            "policies[0].match.header.name: found \"X-Key\", allowed: a string: a header name in lower case (did you mean \"x-key\"?)",
            "policies[0].match.method[0]: found \"get\", allowed: a string: a request method in capitals (did you mean \"GET\"?)",
            "policies[0].match.method[1]: found \"A B\", allowed: a string: a request method in capitals",
            "policies[0].match.host[0]: found \"Example.com\", allowed: a string: H (did you mean \"example.com\"?)",
            "policies[0].match.host[1]: found \"a:80\", allowed: a string: H",
            "policies[0].match.host[2]: found \"*\", allowed: a string: H",
        ],
    ),
    (
        "lists of values",
        r#"{"policies": [{P, "match": {"header": {"name": "a", "in": "b"}, "query": {"name": "a", "in": []}, "cookie": {"name": "a", "in": ["b", ""]}, "jwt_claim": {"in": ["b"]}, "attribute": {"path": [], "in": [5]}}}]}"#,
        &[
            "policies[0].match.header.in: found \"b\", allowed: a list of 1 to 256",
            "policies[0].match.query.in: found a list of 0, allowed: a list of 1 to 256",
            "policies[0].match.cookie.in[1]: found \"\", allowed: a string: 1 to 1024 bytes",
            "policies[0].match.jwt_claim.claim: found nothing, allowed: a list of 1 to 8",
            "policies[0].match.attribute.path: found a list of 0, allowed: a list of 1 to 16",
            "policies[0].match.attribute.in[0]: found 5, allowed: a string: 1 to 1024 bytes",
        ],
    ),
    (
        "a value and a list of values",
        r#"{"policies": [{P, "match": {"header": {"name": "a", "in": ["b"], "exact": "c"}, "cookie": {"name": "a", "in": ["b"], "regex": "c"}}}]}"#,
        &[
            "policies[0].match.header: found exact, in, allowed: at most one of exact, in, prefix, regex, present",
            "policies[0].match.cookie: found in, regex, allowed: at most one of exact, in, prefix, regex, present",
        ],
    ),
    (
        "an invalid regular expression",
        r#"{"policies": [{P, "match": {"path": {"regex": "(a"}}}]}"#,
        &[
            "policies[0].match.path.regex: found \"(a\" (found open group without closing ')'), allowed: a string: a regular expression for the whole value, without look-around or back-references, whose program is at most 512 steps long",
        ],
    ),
    (
        "a regular expression that closes more than it opens",
        r#"{"policies": [{P, "match": {"path": {"regex": "a)|(b"}}}]}"#,
        &[
            "policies[0].match.path.regex: found \"a)|(b\" (found closing ')' without matching '('), allowed: a string: a regular expression for the whole value, without look-around or back-references, whose program is at most 512 steps long",
        ],
    ),
    (
        "a regular expression too large",
        r#"{"policies": [{P, "match": {"path": {"regex": "((a{100}){100}){100}"}}}]}"#,
        &[
            "policies[0].match.path.regex: found \"((a{100}){100}){100}\" (a program of 1000000 steps, where 512 are allowed: write a shorter expression or lower repetitions), allowed: a string: a regular expression for the whole value, without look-around or back-references, whose program is at most 512 steps long",
        ],
    ),
    (
        "trusted networks that are every address",
        r#"{"policies": [{P}], "client_address": {"trusted_networks": ["10.0.0.0/8", "0.0.0.0/0"]}}"#,
        &[
            "client_address.trusted_networks: found networks of every address, allowed: the networks of your proxies: if every address is trusted, the client is the left end of the chain, which it wrote itself",
        ],
    ),
    (
        "trusted networks that are every address together",
        r#"{"policies": [{P}], "client_address": {"trusted_networks": ["::/1", "::/4", "8000::/1", "10.0.0.0/8"]}}"#,
        &[
            "client_address.trusted_networks: found networks of every address, allowed: the networks of your proxies: if every address is trusted, the client is the left end of the chain, which it wrote itself",
        ],
    ),
    (
        "parameters that do not go together",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "sliding_window", "limit": 1, "window": "10s", "precision": "3s"},
        {"name": "b", "algorithm": "leaky_bucket", "rate": "1/366d", "burst": 1000}]}]}"#,
        &[
            "policies[0].limits[0].precision: found \"3s\", allowed: the window (10000000us) divided by a whole number from 1 to 100",
            "policies[0].limits[1].burst: found 1000, allowed: what flows in at most 3660 days (with max_delay and overdraft)",
        ],
    ),
    (
        "windows that do not go with their beginning",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1, "window": "1d", "align": "day"},
        {"name": "b", "algorithm": "fixed_window", "limit": 1, "align": "clock"},
        {"name": "c", "algorithm": "fixed_window", "limit": 1, "align": "first"},
        {"name": "d", "algorithm": "fixed_window", "limit": 1, "window": "1d", "utc_offset": "+02:00"},
        {"name": "e", "algorithm": "fixed_window", "limit": 1}]}]}"#,
        &[
            "policies[0].limits[0].window: found \"1d\", allowed: none, because a `day`, `week` or `month` is as long as the calendar says",
            "policies[0].limits[1].window: found nothing, allowed: a duration, because `align` is neither `day`, `week` nor `month`",
            "policies[0].limits[2].window: found nothing, allowed: a duration, because `align` is neither `day`, `week` nor `month`",
            "policies[0].limits[3].utc_offset: found \"+02:00\", allowed: none, because `align` is neither `day`, `week` nor `month`",
            "policies[0].limits[4].window: found nothing, allowed: a duration, because `align` is neither `day`, `week` nor `month`",
        ],
    ),
    (
        "no offsets",
        r#"{"policies": [{"name": "p", "limits": [
        {"name": "a", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "2:00"},
        {"name": "b", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "+14:01"},
        {"name": "c", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "-12:01"},
        {"name": "d", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "+01:60"},
        {"name": "e", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "+-1:00"},
        {"name": "f", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": "é1:00"},
        {"name": "g", "algorithm": "fixed_window", "limit": 1, "align": "day", "utc_offset": ""}]}]}"#,
        &[
            "policies[0].limits[0].utc_offset: found \"2:00\", allowed: a string: OFFSET",
            "policies[0].limits[1].utc_offset: found \"+14:01\", allowed: a string: OFFSET",
            "policies[0].limits[2].utc_offset: found \"-12:01\", allowed: a string: OFFSET",
            "policies[0].limits[3].utc_offset: found \"+01:60\", allowed: a string: OFFSET",
            "policies[0].limits[4].utc_offset: found \"+-1:00\", allowed: a string: OFFSET",
            "policies[0].limits[5].utc_offset: found \"é1:00\", allowed: a string: OFFSET",
            "policies[0].limits[6].utc_offset: found \"\", allowed: a string: OFFSET",
        ],
    ),
    (
        "hops and networks",
        r#"{"policies": [{P}], "client_address": {"trusted_hops": 1, "trusted_networks": ["10.0.0.0/8"]}}"#,
        &[
            "client_address: found trusted_hops, trusted_networks, allowed: at most one of trusted_hops, trusted_networks",
        ],
    ),
    (
        "what is no status",
        r#"{"policies": [{P, "settle": [{"when": {"status": [99, 600, "6xx", "500-499", "40", "4xy", 1.5]}, "cost": {"reserved": {}}}]}]}"#,
        &[
            "policies[0].settle[0].when.status[0]: found 99, allowed: STATUS",
            "policies[0].settle[0].when.status[1]: found 600, allowed: STATUS",
            "policies[0].settle[0].when.status[2]: found \"6xx\", allowed: STATUS",
            "policies[0].settle[0].when.status[3]: found \"500-499\", allowed: STATUS",
            "policies[0].settle[0].when.status[4]: found \"40\", allowed: STATUS",
            "policies[0].settle[0].when.status[5]: found \"4xy\", allowed: STATUS",
            "policies[0].settle[0].when.status[6]: found 1.5, allowed: STATUS",
        ],
    ),
    (
        "what is no sum",
        r#"{"policies": [{P, "settle": [{"cost": {"body_json": {"sum": [{"paths": ["a..b"], "weight": "x"}, {"paths": [], "weight": 0.1234567}]}}}]}]}"#,
        &[
            "policies[0].settle[0].cost.body_json.sum[0].paths[0]: found \"a..b\" (at byte 2: a key of letters, digits, `_` and `-`; `['key']` for any other, `[*]` for all items of an array), allowed: a string: BODYPATH",
            "policies[0].settle[0].cost.body_json.sum[0].weight: found \"x\", allowed: WEIGHT",
            "policies[0].settle[0].cost.body_json.sum[1].paths: found a list of 0, allowed: a list of 1 to 16",
            "policies[0].settle[0].cost.body_json.sum[1].weight: found 0.1234567, allowed: WEIGHT",
        ],
    ),
    (
        "a true cost of no kind, and of two",
        r#"{"policies": [{P, "settle": [{"cost": {}}, {"cost": {"constant": 1, "reserved": {}}}]}]}"#,
        &[
            "policies[0].settle[0].cost: found none of them, allowed: exactly one of COSTS",
            "policies[0].settle[1].cost: found reserved, constant, allowed: exactly one of COSTS",
        ],
    ),
    (
        "hashes without a secret, and of a tier's name",
        r#"{"policies": [{P, "subject": [{"host": {}}, {"path": {}, "hash": true}]},
            {"name": "q", "tiers": {"by": {"host": {}, "hash": true}, "default": "t", "limits": {"t": [{L}]}}}]}"#,
        &[
            "policies[0].subject[1].hash: found true, allowed: false, or true with `store.hash_secret`",
            "policies[1].tiers.by.hash: found true, allowed: false: the value names the tier, its hash does not",
        ],
    ),
    (
        "no prefixes of keys",
        r#"{"policies": [{P}], "store": {"key_prefix": ""}}"#,
        &["store.key_prefix: found \"\", allowed: a string: 1 to 32 letters, digits, `_`, `-` or `.`"],
    ),
    (
        "a prefix of keys that is a hash tag",
        r#"{"policies": [{P}], "store": {"key_prefix": "{a}"}}"#,
        &["store.key_prefix: found \"{a}\", allowed: a string: 1 to 32 letters, digits, `_`, `-` or `.`"],
    ),
    (
        "a prefix of keys that is too long",
        r#"{"policies": [{P}], "store": {"key_prefix": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}"#,
        &[
            "store.key_prefix: found \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", allowed: a string: 1 to 32 letters, digits, `_`, `-` or `.`",
        ],
    ),
    (
        "no secrets",
        r#"{"policies": [{P}], "store": {"hash_secret": "fifteen letters"}}"#,
        &[
            "store.hash_secret: found a text of 15 bytes, allowed: a string: 16 to 1024 printable characters of ASCII",
        ],
    ),
    (
        "a secret that is a number",
        r#"{"policies": [{P}], "store": {"hash_secret": 8202051012345678}}"#,
        &[
            "store.hash_secret: found another value, allowed: a string: 16 to 1024 printable characters of ASCII",
        ],
    ),
    (
        "a secret with a letter beyond ASCII",
        r#"{"policies": [{P}], "store": {"hash_secret": "a secret that is clichéd"}}"#,
        &[
            "store.hash_secret: found a text of 25 bytes, allowed: a string: 16 to 1024 printable characters of ASCII",
        ],
    ),
    (
        "impossible costs",
        r#"{"policies": [{P, "cost": {"header": {"name": "x-cost", "min": 10, "max": 5}}}]}"#,
        &[
            "policies[0].cost.header.max: found 5, allowed: a whole number from 10 to 1000000000000: at least `min`",
        ],
    ),
    (
        "bodies that do not go with their format",
        r#"{"policies": [{P, "response": {"format": "json", "body": "{"}}], "response": {"body": "x"}}"#,
        &[
            "response.body: found a body, allowed: none, because `format` is neither `json` nor `text`",
            "policies[0].response.body: found no JSON (EOF while parsing an object at line 1 column 1), allowed: JSON, because `format` is `json`",
        ],
    ),
];

/// Writes out the short forms of the tables.
fn json(text: &str) -> String {
    const LIMIT: &str = r#""name": "l", "algorithm": "leaky_bucket", "rate": "1/s""#;
    let policy = format!(r#""name": "p", "limits": [{{{LIMIT}}}]"#);
    text.replace("{P", &format!("{{{policy}")).replace("{L", &format!("{{{LIMIT}"))
}

fn message(text: &str) -> String {
    const PARTS: &str = "client_address, header, cookie, query, path, path_segment, method, host, route, jwt_claim, tls_subject, attribute, body_json";
    let text = &text
        .replace("COUNT", r#", as text such as "50_000", "10k", "2M" or "1G""#)
        .replace(": C, literal", &format!(": {PARTS}, literal"))
        .replace("of C, literal", &format!("of {PARTS}, literal"));
    let long = [
        (
            "string: R",
            "string: a whole number from 1 to 1000000000000, `/`, and a duration from 1 ms to 366 days or its unit, such as `10/s` or `100/5m`",
        ),
        (
            "BODYPATH",
            "a path of up to 32 keys and indexes, such as `usage.total_tokens`, `items[0].n`, `items[*].n` or `['a.b'].n`",
        ),
        ("OFFSET", "an offset from `-12:00` to `+14:00`, such as `+02:00`"),
        ("WEIGHT", "a number from 0 to 1000000, with up to six decimal places, such as `1` or `\"0.25\"`"),
        ("STATUS", "a status from 100 to 599, a class such as `4xx`, or a range such as `500-503`"),
        ("COSTS", "reserved, constant, header, trailer, response_bytes, duration, body_json"),
        ("string: N", "string: 1 to 64 letters, digits, `_`, `-` or `.`, the first a letter or digit"),
        (
            "string: A",
            "string: a path that begins with `/`, decoded, without query, empty segments, `.`, `..` or `;`",
        ),
        (
            "string: H",
            "string: a host in lower case without port, or `*.` and a domain for all hosts below it",
        ),
    ];
    let ends = |short: &&(&str, &str)| text.ends_with(short.0) || text.contains(&format!("{} (did", short.0));
    long.iter().find(ends).map_or_else(|| text.to_owned(), |(short, long)| text.replace(short, long))
}

fn errors(text: &str) -> Vec<String> {
    Config::parse(text.as_bytes()).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn accepted() {
    for (row, text) in ACCEPTED {
        assert_eq!(errors(&json(text)), Vec::<String>::new(), "{row}");
    }
}

#[test]
fn rejected() {
    let mut wrong = Vec::new();
    for (row, text, expected) in REJECTED {
        let expected: Vec<_> = expected.iter().map(|text| message(text)).collect();
        let found = errors(&json(text));
        if found != expected {
            wrong.push(format!("{row}:\n  found {found:#?}\n  expected {expected:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_smallest_configuration_has_every_default() {
    let config = Config::parse(json(r#"{"policies": [{P}]}"#).as_bytes()).unwrap();
    assert_eq!(config.store.cluster, "weir-bridge");
    assert_eq!(config.store.deadline, Micros::from_millis(50));
    assert_eq!(config.store.on_failure, OnFailure::Allow);
    assert!(config.trust.is_connection());
    assert_eq!(config.response, Default::default());
    let policy = &config.policies[0];
    assert_eq!(
        (policy.mode, policy.enforce_percent, policy.on_failure),
        (Mode::Enforce, 100, OnFailure::Allow)
    );
    assert_eq!(
        (policy.deny.conditions().len(), policy.exempt.conditions().len(), policy.subject.len()),
        (0, 0, 1)
    );
    let view = &policy.tiers.tiers[0].views[0];
    assert_eq!(*view, LimitView::new("l".into(), 1, Some(Micros::from_secs(1))));
}

/// A limit as it is written, the limit that it becomes, and the time in which its quota comes back.
fn limits() -> Vec<(&'static str, Limit, Option<Micros>)> {
    let (ms, s) = (Micros::from_millis, Micros::from_secs);
    let bucket = |refill| TokenBucket::new(20, 10, s(1), refill, 0).unwrap().into();
    let calendar = |period, minutes| {
        let align = Align::Calendar(period, UtcOffset::from_minutes(minutes));
        FixedWindow::new(7, Micros::ZERO, align).unwrap().into()
    };
    vec![
        (
            r#""algorithm": "fixed_window", "limit": 7, "window": "90s""#,
            FixedWindow::new(7, s(90), Align::Clock).unwrap().into(),
            Some(s(90)),
        ),
        (
            r#""algorithm": "fixed_window", "limit": 7, "window": "90s", "align": "first""#,
            FixedWindow::new(7, s(90), Align::First).unwrap().into(),
            Some(s(90)),
        ),
        (
            r#""algorithm": "fixed_window", "limit": 7, "align": "day""#,
            calendar(Period::Day, 0),
            Some(s(86_400)),
        ),
        (
            r#""algorithm": "fixed_window", "limit": 7, "align": "week", "utc_offset": "-03:30""#,
            calendar(Period::Week, -210),
            Some(s(7 * 86_400)),
        ),
        (
            r#""algorithm": "fixed_window", "limit": 7, "align": "month", "utc_offset": "+14:00""#,
            calendar(Period::Month, 840),
            Some(s(31 * 86_400)),
        ),
        (
            r#""algorithm": "sliding_log", "limit": 7, "window": "90s""#,
            SlidingLog::new(7, s(90)).unwrap().into(),
            Some(s(90)),
        ),
        (
            r#""algorithm": "sliding_window", "limit": 7, "window": "90s""#,
            SlidingWindow::new(7, s(90), s(90)).unwrap().into(),
            Some(s(90)),
        ),
        (
            r#""algorithm": "sliding_window", "limit": 7, "window": "90s", "precision": "30s""#,
            SlidingWindow::new(7, s(90), s(30)).unwrap().into(),
            Some(s(90)),
        ),
        (
            r#""algorithm": "token_bucket", "capacity": 20, "refill": 10, "interval": "1s""#,
            bucket(Refill::Continuous),
            Some(s(2)),
        ),
        (
            r#""algorithm": "token_bucket", "capacity": 20, "refill": 10, "interval": "1s", "mode": "stepwise""#,
            bucket(Refill::Stepwise),
            Some(s(2)),
        ),
        (
            r#""algorithm": "token_bucket", "capacity": 20, "refill": 3, "interval": "1s", "overdraft": 5"#,
            TokenBucket::new(20, 3, s(1), Refill::Continuous, 5).unwrap().into(),
            Some(Micros(6_666_667)),
        ),
        (
            r#""algorithm": "leaky_bucket", "rate": "4/2s", "burst": 6, "max_delay": "250ms""#,
            LeakyBucket::new(4, s(2), 6, ms(250)).unwrap().into(),
            Some(s(3)),
        ),
        (
            r#""algorithm": "concurrency", "limit": 7, "ttl": "90s""#,
            Concurrency::new(7, s(90)).unwrap().into(),
            None,
        ),
    ]
}

#[test]
fn every_field_of_a_limit_reaches_the_limit() {
    for (row, limit, window) in limits() {
        let text = format!(
            r#"{{"store": {{"workers": 3}}, "policies": [{{"name": "p", "limits": [{{"name": "l", {row}}}]}}]}}"#
        );
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{row}: {errors:?}"));
        let tier = &config.policies[0].tiers.tiers[0];
        assert_eq!(tier.plan.limits(), std::slice::from_ref(&limit), "{row}");
        assert_eq!(tier.shares, [limit.local_share(3)], "{row}: the local share");
        assert_eq!(
            tier.views,
            [LimitView::new("l".into(), limit.quota(), window)],
            "{row}: what clients see"
        );
    }
}

#[test]
fn clients_are_told_of_bytes_where_all_costs_are_bytes() {
    const BYTES: &str = r#""content_length": {"per": 1, "max": 100}"#;
    let settled = |cost: &str| format!(r#""settle": [{{"cost": {{{cost}}}}}]"#);
    let rows = [
        ("no cost", String::new(), false),
        ("a constant", r#""cost": {"constant": 5}"#.into(), false),
        ("bytes", format!(r#""cost": {{{BYTES}}}"#), true),
        ("kilobytes", r#""cost": {"content_length": {"per": 1024}}"#.into(), false),
        ("a header", r#""cost": {"header": {"name": "x-cost"}}"#.into(), false),
        (
            "bytes in one case, a constant otherwise",
            format!(r#""costs": [{{"when": {{"method": ["PUT"]}}, "cost": {{{BYTES}}}}}]"#),
            true,
        ),
        (
            "bytes in one case, a header otherwise",
            format!(
                r#""costs": [{{"when": {{"method": ["PUT"]}}, "cost": {{{BYTES}}}}}], "cost": {{"header": {{"name": "x-cost"}}}}"#
            ),
            false,
        ),
        ("the bytes of responses", settled(r#""response_bytes": {}"#), true),
        ("kilobytes of responses", settled(r#""response_bytes": {"per": 1024}"#), false),
        ("bytes both ways", format!(r#""cost": {{{BYTES}}}, {}"#, settled(r#""response_bytes": {}"#)), true),
        (
            "bytes of requests, back if they fail",
            format!(
                r#""cost": {{{BYTES}}}, "settle": [{{"when": {{"status": ["5xx"]}}, "cost": {{"constant": 0}}}}, {{"cost": {{"reserved": {{}}}}}}]"#
            ),
            true,
        ),
        ("bytes, then time", format!(r#""cost": {{{BYTES}}}, {}"#, settled(r#""duration": {}"#)), false),
    ];
    for (name, costs, in_bytes) in rows {
        let costs = if costs.is_empty() { costs } else { format!("{costs}, ") };
        let text = format!(
            r#"{{"policies": [{{"name": "p", {costs}"limits": [
                {{"name": "l", "algorithm": "fixed_window", "limit": 9, "window": "1m"}},
                {{"name": "c", "algorithm": "concurrency", "limit": 7, "ttl": "9s"}}
            ]}}]}}"#
        );
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        let views = &config.policies[0].tiers.tiers[0].views;
        let unit = if in_bytes { r#";qu="content-bytes""# } else { "" };
        let told = |view: &LimitView, quota| {
            let mut shown = String::new();
            view.append_policy(quota, view.window(), &mut shown);
            shown
        };
        // Also under a longer name, and with the quota of a subject's own.
        assert_eq!(told(&views[0], 9), format!(r#""l";q=9{unit};w=60"#), "{name}");
        assert_eq!(told(&views[0], 4), format!(r#""l";q=4{unit};w=60"#), "{name}");
        assert_eq!(views[0].qualified("p").own_name(), views[0].own_name(), "{name}");
        assert_eq!(told(&views[0].qualified("p"), 9), format!(r#""p.l";q=9{unit};w=60"#), "{name}");
        assert_eq!(told(&views[1], 7), r#""c";q=7;qu="concurrent-requests""#, "{name}");
    }
}

#[test]
fn every_field_of_the_store_counts() {
    let store = |fields: &str| {
        Config::parse(json(&format!(r#"{{"policies": [{{P}}], "store": {{{fields}}}}}"#)).as_bytes())
            .unwrap()
            .store
    };
    assert_eq!(store(r#""cluster": "redis""#).cluster, "redis");
    assert_eq!(store(r#""deadline": "1s""#).deadline, Micros::from_secs(1));
    let words = [("allow", OnFailure::Allow), ("deny", OnFailure::Deny), ("local", OnFailure::Local)];
    for (word, on_failure) in words {
        assert_eq!(store(&format!(r#""on_failure": "{word}""#)).on_failure, on_failure);
    }
    for (word, topology) in [("any", Topology::Any), ("single", Topology::Single)] {
        assert_eq!(store(&format!(r#""topology": "{word}""#)).topology, topology);
    }
    assert_eq!(store(r#""workers": 3"#).workers, 3);
    assert_eq!(store("").key_prefix, "weir");
    assert_eq!(store(r#""key_prefix": "a.b-c_9""#).key_prefix, "a.b-c_9");
}

#[test]
fn every_field_of_the_client_address_counts() {
    let trust = |fields: &str| {
        let text = format!(r#"{{"policies": [{{P}}], "client_address": {{{fields}}}}}"#);
        Config::parse(json(&text).as_bytes()).unwrap().trust
    };
    let trusting = |header: &str, proxies| Trust::new(header.to_owned(), proxies);
    assert_eq!(trust(""), Trust::default());
    assert_eq!(trust(r#""trusted_hops": 2"#), trusting("x-forwarded-for", Proxies::Hops(2)));
    let networks = ["10.0.0.0/8", "2001:db8::/32"].map(|text| Network::parse(text).unwrap()).to_vec();
    assert_eq!(
        trust(r#""header": "x-real-ip", "trusted_networks": ["10.0.0.0/8", "2001:db8::/32"]"#),
        trusting("x-real-ip", Proxies::Networks(networks))
    );
}

#[test]
fn the_filter_state_is_written_only_when_configured() {
    for (field, emitted) in
        [("", false), (r#", "emit_filter_state": false"#, false), (r#", "emit_filter_state": true"#, true)]
    {
        let config = Config::parse(json(&format!(r#"{{"policies": [{{P}}]{field}}}"#)).as_bytes()).unwrap();
        assert_eq!(config.emit_filter_state, emitted, "{field}");
    }
}

#[test]
fn a_policy_says_for_itself_what_it_does_not_take_from_the_store_and_the_response() {
    let text = r#"{"store": {"on_failure": "deny"}, "response": {"status": 420}, "policies": [
        {"name": "takes", "limits": [{L}]},
        {"name": "says", "limits": [{L}], "mode": "shadow", "enforce_percent": 7, "on_failure": "local",
            "lease": {"max": 9, "min": 4, "duration": "3s"}, "response": {"deny_status": 451}}]}"#;
    let config = Config::parse(json(text).as_bytes()).unwrap();
    let [takes, says] = &config.policies[..] else { panic!("two policies") };
    assert_eq!((takes.mode, takes.enforce_percent, takes.lease), (Mode::Enforce, 100, None));
    assert_eq!(
        (takes.on_failure, takes.response.status, takes.response.deny_status),
        (OnFailure::Deny, 420, 403)
    );
    let lease = Lease { max: 9, min: 4, duration: Micros::from_secs(3) };
    assert_eq!((says.mode, says.enforce_percent, says.lease), (Mode::Shadow, 7, Some(lease)));
    assert_eq!(
        (says.on_failure, says.response.status, says.response.deny_status),
        (OnFailure::Local, 429, 451)
    );
}

#[test]
fn a_ban_holds_for_all_tiers_and_lasts_a_day_at_most_unless_it_says_so() {
    let ban = |fields: &str| {
        let text = format!(
            r#"{{"policies": [{{"name": "p", "ban": {{"after": 5, "window": "10m", {fields}}}, "tiers": {{
                "by": {{"header": {{"name": "x-tier"}}}}, "default": "a", "limits": {{"a": [{{L}}], "ban": [{{L}}]}}}}}}]}}"#
        );
        let config = Config::parse(json(&text).as_bytes()).unwrap();
        let bans: Vec<_> =
            config.policies[0].tiers.tiers.iter().map(|tier| tier.plan.ban().cloned().unwrap()).collect();
        assert_eq!(bans.len(), 2);
        assert_eq!(bans[0], bans[1]);
        bans.into_iter().next().unwrap()
    };
    let hours = |hours: u64| Micros::from_secs(hours * 3_600);
    let made = |duration, factor, max| {
        Ban::new(5, Micros::from_secs(600), hours(duration), factor, hours(max)).unwrap()
    };
    let rows = [
        (r#""duration": "1h""#, made(1, 1, 1)),
        (r#""duration": "1h", "factor": 3"#, made(1, 3, 24)),
        (r#""duration": "48h", "factor": 3"#, made(48, 3, 48)),
        (r#""duration": "1h", "factor": 2, "max": "6h""#, made(1, 2, 6)),
        (r#""duration": "1h", "max": "1h""#, made(1, 1, 1)),
    ];
    for (fields, wanted) in rows {
        assert_eq!(ban(fields), wanted, "{fields}");
    }
}

#[test]
fn every_word_of_a_response_counts() {
    let response = |fields: &str| {
        let text = format!(r#"{{"policies": [{{P}}], "response": {{{fields}}}}}"#);
        Config::parse(json(&text).as_bytes()).unwrap().response
    };
    let rows = [
        (r#""status": 503"#, Settings { status: 503, ..Settings::default() }),
        (r#""deny_status": 404"#, Settings { deny_status: 404, ..Settings::default() }),
        (r#""ban_status": 403"#, Settings { ban_status: 403, ..Settings::default() }),
        (r#""format": "problem""#, Settings::default()),
        (r#""format": "json""#, Settings { body: Body::Json(None), ..Settings::default() }),
        (
            r#""format": "json", "body": "{}""#,
            Settings { body: Body::Json(Some("{}".into())), ..Settings::default() },
        ),
        (r#""format": "text""#, Settings { body: Body::Text(None), ..Settings::default() }),
        (
            r#""format": "text", "body": "no""#,
            Settings { body: Body::Text(Some("no".into())), ..Settings::default() },
        ),
        (r#""format": "empty""#, Settings { body: Body::Empty, ..Settings::default() }),
        (r#""headers": "x_ratelimit""#, Settings { style: Style::XRateLimit, ..Settings::default() }),
        (r#""headers": "none""#, Settings { style: Style::None, ..Settings::default() }),
        (r#""upstream_headers": "replace""#, Settings::default()),
        (r#""upstream_headers": "keep""#, Settings { upstream: Upstream::Keep, ..Settings::default() }),
        (r#""upstream_headers": "append""#, Settings { upstream: Upstream::Append, ..Settings::default() }),
        (r#""retry_jitter": "5s""#, Settings { retry_jitter: Micros::from_secs(5), ..Settings::default() }),
    ];
    for (fields, wanted) in rows {
        assert_eq!(response(fields), wanted, "{fields}");
    }
}

#[test]
fn clients_know_a_limit_by_its_policy_too_where_two_policies_have_one_of_its_name() {
    let text = r#"{"policies": [
        {"name": "a", "limits": [{L}, {"name": "own", "algorithm": "leaky_bucket", "rate": "1/s"}]},
        {"name": "b", "limits": [{L}]},
        {"name": "c", "tiers": {"by": {"host": {}}, "default": "t", "limits": {
            "s": [{"name": "tiers", "algorithm": "leaky_bucket", "rate": "1/s"}],
            "t": [{"name": "tiers", "algorithm": "leaky_bucket", "rate": "1/s"}]}}}]}"#;
    let config = Config::parse(json(text).as_bytes()).unwrap();
    let tiers = config.policies.iter().flat_map(|policy| &policy.tiers.tiers);
    let names: Vec<&str> = tiers.flat_map(|tier| &tier.views).map(LimitView::name).collect();
    assert_eq!(names, ["a.l", "own", "b.l", "tiers", "tiers"]);
    assert_eq!(config.policies[2].tiers.default, 1);
}

/// What a dynamic module cannot read is refused wherever it stands. The plugin can.
#[test]
fn a_dynamic_module_refuses_attributes_that_it_cannot_read() {
    let bad = r#"{"attribute": {"path": ["source", "port"]}}"#;
    let when = r#"{"attribute": {"path": ["source", "port"], "present": true}}"#;
    let rows = [
        ("policies[0].subject[1]", format!(r#"{{P, "subject": [{{"host": {{}}}}, {bad}]}}"#)),
        ("policies[0].scale.from", format!(r#"{{P, "scale": {{"from": {bad}, "max": 2}}}}"#)),
        (
            "policies[0].tiers.by",
            format!(
                r#"{{"name": "p", "tiers": {{"by": {bad}, "default": "t", "limits": {{"t": [{{L}}]}}}}}}"#
            ),
        ),
        (
            "policies[0].match",
            format!(
                r#"{{P, "match": {{"any": [{{"method": ["GET"]}}, {{"all": [{when}, {{"not": {when}}}]}}]}}}}"#
            ),
        ),
        ("policies[0].match", format!(r#"{{P, "match": {{"not": {when}}}}}"#)),
        ("policies[0].deny[0]", format!(r#"{{P, "deny": [{when}]}}"#)),
        ("policies[0].exempt[1]", format!(r#"{{P, "exempt": [{{"method": ["GET"]}}, {when}]}}"#)),
        (
            "policies[0].priority[0].when",
            format!(
                r#"{{"name": "p", "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 100}}], "priority": [{{"when": {when}, "percent": 10}}, {{"when": {{}}, "percent": 80}}]}}"#
            ),
        ),
        (
            "policies[0].costs[0].when",
            format!(r#"{{P, "costs": [{{"when": {when}, "cost": {{"constant": 2}}}}]}}"#),
        ),
        ("deny[0]", format!(r#"{{P}}], "deny": [{when}"#)),
        ("exempt[0]", format!(r#"{{P}}], "exempt": [{when}"#)),
    ];
    for (place, policy) in rows {
        let text = json(&format!(r#"{{"policies": [{policy}]}}"#));
        assert!(Config::parse_for(Host::Wasm, text.as_bytes()).is_ok(), "{place}: {text}");
        let errors = Config::parse_for(Host::Native, text.as_bytes()).expect_err(place);
        assert!(errors.iter().all(|error| error.path == place), "{place}: {errors:?}");
        assert!(!errors.is_empty(), "{place}");
    }
}

/// Buckets that share counters let a subject use as much as the largest of them does.
#[test]
fn buckets_that_share_counters_know_each_other() {
    let policy = |name: &str, burst: u32| {
        format!(
            r#"{{"name": "{name}", "counters": "c", "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": {burst}}}]}}"#
        )
    };
    let limit = |policies: &[String], of: usize| {
        let config =
            Config::parse(format!(r#"{{"policies": [{}]}}"#, policies.join(", ")).as_bytes()).unwrap();
        config.policies[of].tiers.tiers[0].plan.limits()[0].clone()
    };
    let (small, large) = ([policy("a", 10)], [policy("b", 50)]);
    let both = [policy("a", 10), policy("b", 50)];
    let [alone, other] = [limit(&small, 0), limit(&large, 0)];
    assert_eq!(limit(&both, 0), alone.sharing(&other));
    assert_eq!(limit(&both, 1), other.sharing(&alone));
    assert_ne!(limit(&both, 0), alone);
    assert_eq!(limit(&[policy("a", 10), policy("b", 10)], 0), alone, "they are alike");
}

/// Of 32 regions, each is in debt to 31: what a limit may owe lasts for a 31st of the time in which it is whole again.
#[test]
fn debit_between_many_regions_needs_a_short_interval() {
    for (window, loads) in [("31s", true), ("30999ms", false)] {
        let regions: Vec<_> =
            (0..32).map(|region| format!(r#"{{"name": "r{region}", "cluster": "c{region}"}}"#)).collect();
        let text = format!(
            r#"{{"regions": {{"here": "r0", "sync_interval": "1s", "all": [{}]}}, "policies": [{{"name": "p", "regions": {{"debit": {{}}}},
                "limits": [{{"name": "l", "algorithm": "fixed_window", "limit": 99, "window": "{window}"}}]}}]}}"#,
            regions.join(", ")
        );
        assert_eq!(Config::parse(text.as_bytes()).is_ok(), loads, "{window}");
    }
}

#[test]
fn a_sum_has_at_most_sixteen_paths() {
    for (paths, loads) in [(16, true), (17, false)] {
        let named = |paths: std::ops::Range<usize>| {
            paths.map(|path| format!(r#""k{path}""#)).collect::<Vec<_>>().join(", ")
        };
        // The same path in both terms counts once.
        let text = json(&format!(
            r#"{{"policies": [{{P, "settle": [{{"cost": {{"body_json": {{"sum": [{{"paths": [{}]}}, {{"paths": ["k0", {}]}}]}}}}}}]}}]}}"#,
            named(0..8),
            named(8..paths)
        ));
        let wanted = format!(
            "policies[0].settle[0].cost.body_json.sum: found {paths} paths, allowed: up to 16 different paths in one sum"
        );
        assert_eq!(errors(&text), if loads { vec![] } else { vec![wanted] });
    }
}

#[test]
fn what_hosts_ask_of_a_configuration() {
    let of = |text: &str| Config::parse(json(text).as_bytes()).unwrap();
    let plain = of(r#"{"policies": [{P}]}"#);
    assert!(!plain.settles && plain.body().is_none() && plain.unreadable_body().is_none());
    let settles =
        of(r#"{"policies": [{P, "settle": [{"cost": {"constant": 2}}]}, {"name": "q", "limits": [{L}]}]}"#);
    assert!(settles.settles);
    let reads = of(r#"{"policies": [{P, "subject": [{"body_json": {"path": "u"}}]}]}"#);
    assert!(reads.body().is_some() && reads.unreadable_body().is_some());
    assert_eq!(plain.regions.to_string(), "no `regions`");
    let regions = of(
        r#"{"regions": {"here": "ams", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"},
        {"name": "cle", "cluster": "c"}]}, "policies": [{P}]}"#,
    );
    assert_eq!(regions.regions.to_string(), "ams, bom, cle");
}

#[test]
fn durations_and_words_as_a_configuration_has_them() {
    for (text, duration) in [
        ("250ms", Some(Micros::from_millis(250))),
        ("2h", Some(Micros::from_secs(7_200))),
        ("2 h", None),
        ("2", None),
    ] {
        assert_eq!(config::duration(text), duration, "{text}");
        assert_eq!(duration.map(config::duration_text), duration.map(|_| text.to_owned()), "{text}");
    }
    let near = |word| config::nearest(word, ["window", "limit"].into_iter());
    assert_eq!([near("windo"), near("zzzzzz")], [Some("window".to_owned()), None]);
}

#[test]
fn a_configuration_too_large_is_not_even_read() {
    let smallest = json(r#"{"policies": [{P}]}"#);
    let largest = format!("{smallest}{}", " ".repeat(config::MAX_LENGTH - smallest.len()));
    assert_eq!(errors(&largest), Vec::<String>::new());
    let text = format!("{{{}}}", " ".repeat(config::MAX_LENGTH));
    assert_eq!(errors(&text), ["$: found 1048578 bytes, allowed: up to 1048576 bytes"]);
}

/// `value` as Envoy hands on a `google.protobuf.Value`.
fn protobuf(value: &serde_json::Value) -> Vec<u8> {
    fn delimited(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length > 0x7f {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend(bytes);
        out
    }
    fn object(fields: &serde_json::Map<String, serde_json::Value>) -> Vec<u8> {
        let entry = |(name, value): (&String, &serde_json::Value)| {
            delimited(1, &[delimited(1, name.as_bytes()), delimited(2, &self::protobuf(value))].concat())
        };
        fields.iter().flat_map(entry).collect()
    }
    use serde_json::Value;
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(number) => [&[0x11][..], &number.as_f64().unwrap().to_le_bytes()].concat(),
        Value::String(text) => delimited(3, text.as_bytes()),
        Value::Bool(flag) => vec![0x20, u8::from(*flag)],
        Value::Object(fields) => delimited(5, &object(fields)),
        Value::Array(items) => {
            delimited(6, &items.iter().flat_map(|item| delimited(1, &protobuf(item))).collect::<Vec<_>>())
        }
    }
}

/// A configuration as Envoy hands on a `google.protobuf.Struct`: the fields of the value, without what is around.
fn message_of(text: &str) -> Option<Vec<u8>> {
    let value = protobuf(&serde_json::from_str(text).ok()?);
    let length = value.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 2;
    Some(value[length..].to_vec())
}

#[test]
fn a_struct_is_read_like_its_json() {
    for (row, text) in ACCEPTED {
        let loaded = Config::parse(&message_of(&json(text)).unwrap());
        assert_eq!(format!("{loaded:?}"), format!("{:?}", Config::parse(json(text).as_bytes())), "{row}");
    }
    let rows = REJECTED.iter().filter(|(row, text, _)| {
        // A map has no name twice, its numbers are alike and may be strings, and a message without fields has no bytes.
        let apart = [
            "a field twice",
            "tiers of one name",
            "no policies",
            "numbers that are not whole, in range",
            "wrong types",
        ];
        text.starts_with('{')
            && !apart.contains(row)
            && serde_json::from_str::<serde_json::Value>(&json(text)).is_ok()
    });
    for (row, text, _) in rows {
        let mut of_struct = Config::parse(&message_of(&json(text)).unwrap()).unwrap_err();
        let mut of_json = Config::parse(json(text).as_bytes()).unwrap_err();
        // The order of a map's entries and the spelling of its numbers are lost.
        for errors in [&mut of_struct, &mut of_json] {
            errors.sort_by(|one, other| one.path.cmp(&other.path));
            errors.iter_mut().for_each(|error| error.found = error.found.replace("1000.0", "1000"));
        }
        let paths = |errors: &[weir::config::ConfigError]| {
            errors.iter().map(|error| error.path.clone()).collect::<Vec<_>>()
        };
        assert_eq!(paths(&of_struct), paths(&of_json), "{row}");
    }
}

#[test]
fn a_count_may_be_text() {
    let text = r#"{"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "fixed_window", "limit": "L", "window": "1d"}]}]}"#;
    let loaded = |limit: &str| {
        let text = text.replace('L', limit);
        let quota = |config: Config| config.policies[0].tiers.tiers[0].views[0].quota(1, 0);
        let [of_struct, of_json] = [message_of(&text).unwrap(), text.into_bytes()]
            .map(|text| Config::parse(&text).map(quota).map_err(|errors| errors[0].to_string()));
        assert_eq!(of_struct, of_json, "{limit}");
        of_json
    };
    assert_eq!(loaded("5"), Ok(5));
    assert_eq!(loaded("1000000000000"), Ok(1_000_000_000_000));
    assert_eq!(loaded("50_000"), Ok(50_000));
    assert_eq!(loaded("10k"), Ok(10_000));
    assert_eq!(loaded("2_500M"), Ok(2_500_000_000));
    assert_eq!(loaded("1G"), Ok(1_000_000_000));
    let allowed = message("allowed: a whole number from 1 to 1000000000000COUNT");
    for wrong in ["1000000000001", "many"] {
        assert_eq!(loaded(wrong), Err(format!("policies[0].limits[0].limit: found {wrong:?}, {allowed}")));
    }
}

#[test]
fn a_struct_cut_short_does_not_load() {
    let whole = message_of(&json(ACCEPTED[0].1)).unwrap();
    assert!(Config::parse(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(Config::parse(&whole[..length]).is_err(), "{length} bytes of {}", whole.len());
    }
}

const DOCS: &str = include_str!("../docs/configuration.md");

/// The fenced JSON blocks of a page, each with the line it begins on.
fn examples(page: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut inside = false;
    for (line, text) in page.lines().enumerate() {
        match (inside, text) {
            (false, "```json") => out.push((line + 1, String::new())),
            (true, "```") => {}
            (true, text) => {
                let (_, example) = out.last_mut().unwrap();
                example.push_str(text);
                example.push('\n');
                continue;
            }
            (false, _) => continue,
        }
        inside = !inside;
    }
    out
}

#[test]
fn every_example_in_the_docs_loads() {
    assert!(examples(DOCS).len() > 20, "the examples are found");
    for (line, example) in examples(DOCS) {
        assert_eq!(errors(&example), Vec::<String>::new(), "docs/configuration.md, line {line}");
    }
}

#[test]
fn every_field_and_word_has_an_example_in_the_docs() {
    let shown: Vec<String> = examples(DOCS)
        .iter()
        .flat_map(|(_, example)| config::used(&serde_json::from_str(example).unwrap()))
        .collect();
    for word in ["policy", "policy.mode", "policy.mode=shadow"] {
        assert!(config::vocabulary().iter().any(|known| known == word), "{word} is a word of the language");
    }
    let missing: Vec<String> =
        config::vocabulary().into_iter().filter(|word| !shown.contains(word)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

/// Compares what is generated with what is published. `WEIR_UPDATE=1` writes it instead.
#[cfg(not(target_arch = "wasm32"))]
fn published(path: &str, generated: &str) {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == generated, "{path} is not what the code says; WEIR_UPDATE=1 cargo test writes it");
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_published_schema_is_the_generated_one() {
    published("weir.schema.json", &config::json_schema());
}

#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_field_reference_in_the_docs_is_the_generated_one() {
    const BEGIN: &str = "<!-- fields: ";
    let mut page = String::new();
    let mut shown = Vec::new();
    let mut parts = DOCS.split(BEGIN);
    page.push_str(parts.next().unwrap());
    for part in parts {
        let (shape, rest) = part.split_once(" -->").unwrap();
        let (_, rest) = rest.split_once("<!-- end -->").unwrap();
        let fields = config::reference(shape).unwrap_or_else(|| panic!("there is no {shape}"));
        page.push_str(&format!("{BEGIN}{shape} -->\n{fields}<!-- end -->{rest}"));
        shown.push(shape);
    }
    let shapes = config::vocabulary().into_iter().filter(|word| !word.contains('.'));
    assert_eq!(
        shapes.filter(|shape| !shown.contains(&shape.as_str())).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    published("docs/configuration.md", &page);
}

/// An editor that validates with the schema must agree with the filter, as far as a schema can say it.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn the_schema_accepts_what_loads_and_rejects_what_has_no_shape() {
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    compiler.add_resource("weir", serde_json::from_str(&config::json_schema()).unwrap()).unwrap();
    let schema = compiler.compile("weir", &mut schemas).unwrap();
    let validates = |text: &str| {
        let value = serde_json::from_str(text).ok()?;
        Some(schemas.validate(&value, schema).map_err(|error| error.to_string()))
    };
    for (row, text) in ACCEPTED {
        assert_eq!(validates(&json(text)), Some(Ok(())), "{row}");
    }
    for (line, example) in examples(DOCS) {
        assert_eq!(validates(&example), Some(Ok(())), "docs/configuration.md, line {line}");
    }
    // What no schema can say: bounds of durations, and names that have to differ or to exist.
    let beyond = [
        "a field twice",
        "durations out of bounds",
        "a denial_ttl that is too long",
        "policies of one name",
        "limits that clients know by one name",
        "limits of one name",
        "counters of other limits",
        "other bursts where overrides or scales decide, and permits of another ttl",
        "text that is a count out of bounds",
        "a limit named like the key of overrides",
        "limits named like the keys of bans",
        "impossible bans",
        "a queue with a ban",
        "a ban out of bounds",
        "impossible priorities",
        "impossible scales",
        "impossible leases",
        "tiers of one name",
        "an unknown tier",
        "paths that no request can have",
        "networks",
        "an invalid regular expression",
        "a regular expression that closes more than it opens",
        "a regular expression too large",
        "impossible costs",
        "hashes without a secret, and of a tier's name",
        "trusted networks that are every address",
        "trusted networks that are every address together",
        "parameters that do not go together",
        "bodies that do not go with their format",
        "windows that do not go with their beginning",
        "regions that do not name this one",
        "two regions of one name",
        "a home that is no region",
        "a way across regions that there are none of",
        "what cannot be done across regions",
        "debits that are more than a limit can owe",
        "logs that may take too long together",
        "logs of a tier that may take too long together",
        "logs that may take too long with a subject's own limits",
        "a scale under which logs may take too long together",
    ];
    for (row, text, _) in REJECTED.iter().filter(|(row, ..)| !beyond.contains(row)) {
        assert!(!matches!(validates(&json(text)), Some(Ok(()))), "{row}");
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;

    use super::{ACCEPTED, Config, json};

    /// JSON that is nearly a configuration: an accepted one with some bytes changed.
    fn nearly() -> impl Strategy<Value = Vec<u8>> {
        let row = (0..ACCEPTED.len()).prop_map(|row| json(ACCEPTED[row].1).into_bytes());
        let changes = proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8);
        (row, changes).prop_map(|(mut text, changes)| {
            for (place, byte) in changes {
                let place = place.index(text.len());
                text[place] = byte;
            }
            text
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics_and_errors_say_something(text in nearly()) {
            if let Err(errors) = Config::parse(&text) {
                prop_assert!(!errors.is_empty());
                for error in errors {
                    prop_assert!(!error.path.is_empty() && !error.found.is_empty() && !error.allowed.is_empty());
                }
            }
        }
    }
}
