// SPDX-License-Identifier: Apache-2.0
//! The errors of what does not load.

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// What does not load, and all of its errors.
pub const REJECTED: &[(&str, &str, &[&str])] = &[
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
            "$: found a list of 0, allowed: an object with $schema, store, regions, client_address, request_body, policies, prices, quota, deny, exempt, response, journal, usage_journal, top_denied, top_used, emit_filter_state",
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
            "policies[0].priority[1].when: found nothing, allowed: an object with path, method, host, header, query, cookie, jwt_claim, attribute, body_json, body_form, route, client_address, all, any, not",
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
                {"name": "n", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1, "max_delay": "1ms"}]},
            {"name": "s", "lease": "auto", "limits": [
                {"name": "m", "algorithm": "concurrency", "limit": 1, "ttl": "1m"}]},
            {"name": "t", "lease": "auto", "limits": [{L}], "ban": {"after": 1, "window": "1m", "duration": "1h"}},
            {"name": "u", "lease": "auto", "limits": [{"name": "o", "algorithm": "leaky_bucket", "rate": "9/s", "burst": 9}],
             "priority": [{"when": {}, "percent": 5}]}]}"#,
        &[
            "policies[0].lease.min: found 3, allowed: 1 to 2, which is `max`",
            "policies[1].lease: found a lease, allowed: no lease with a concurrency limit or a max_delay: their requests take turns",
            "policies[2].lease: found a lease, allowed: no lease with a concurrency limit or a max_delay: their requests take turns",
            "policies[3].lease: found a lease, allowed: no lease with a concurrency limit or a max_delay: their requests take turns",
            "policies[4].lease: found a lease, allowed: no lease with a ban: a worker would admit a banned subject from its lease",
            "policies[5].lease: found a lease, allowed: no lease with a priority: a worker would hold requests in advance that are for others",
        ],
    ),
    (
        "an unknown field",
        r#"{"policys": [], "policies": [{P}]}"#,
        &[
            "policys: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, prices, quota, deny, exempt, response, journal, usage_journal, top_denied, top_used, emit_filter_state (did you mean \"policies\"?)",
        ],
    ),
    (
        "an unknown field like no other",
        r#"{"policies": [{P}], "zzzzzz": 1}"#,
        &[
            "zzzzzz: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, prices, quota, deny, exempt, response, journal, usage_journal, top_denied, top_used, emit_filter_state",
        ],
    ),
    (
        "a field of the configuration by its former name",
        r#"{"policies": [{P}], "record": true}"#,
        &[
            "record: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, prices, quota, deny, exempt, response, journal, usage_journal, top_denied, top_used, emit_filter_state (it is called \"emit_filter_state\" now)",
        ],
    ),
    (
        "a lease of another kind",
        r#"{"policies": [{"name": "a", "limits": [{L}], "lease": "Auto"}, {"name": "b", "limits": [{L}], "lease": 5}, {"name": "c", "limits": [{L}], "lease": true}]}"#,
        &[
            "policies[0].lease: found \"Auto\", allowed: auto, or an object with max, min, duration (did you mean \"auto\"?)",
            "policies[1].lease: found 5, allowed: auto, or an object with max, min, duration",
            "policies[2].lease: found true, allowed: auto, or an object with max, min, duration",
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
            "deny[0].source: found an unknown field, allowed: path, method, host, header, query, cookie, jwt_claim, attribute, body_json, body_form, route, client_address, all, any, not (it is called \"client_address\" now)",
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
            "[\"a b\\n\"]: found an unknown field, allowed: $schema, store, regions, client_address, request_body, policies, prices, quota, deny, exempt, response, journal, usage_journal, top_denied, top_used, emit_filter_state",
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
            "store: found a list of 0, allowed: an object with cluster, deadline, on_failure, topology, min_replicas, workers, denial_ttl, key_prefix, hash_secret",
            "deny: found null, allowed: a list of 0 to 256",
            "response.status: found \"many\", allowed: a whole number from 400 to 599COUNT",
        ],
    ),
    (
        "replicas that redis_proxy cannot wait for",
        r#"{"store": {"min_replicas": 1}, "policies": [{"name": "p", "limits": [{"name": "a", "algorithm": "concurrency", "limit": 1}]}],
        "regions": {"here": "a", "all": [{"name": "a", "cluster": "a"}, {"name": "b", "cluster": "b", "min_replicas": 6},
            {"name": "c", "cluster": "c", "min_replicas": 5}]}}"#,
        &["regions.all[1].min_replicas: found 6, allowed: a whole number from 0 to 5"],
    ),
    (
        "replicas that redis_proxy cannot wait for, in bounds",
        r#"{"store": {"min_replicas": 1}, "policies": [{"name": "p", "limits": [{"name": "a", "algorithm": "concurrency", "limit": 1}]}],
        "regions": {"here": "a", "all": [{"name": "a", "cluster": "a"}, {"name": "b", "cluster": "b", "min_replicas": 5}]}}"#,
        &[
            "store.min_replicas: found 1, allowed: 0, or `topology: single`: redis_proxy, and so a Redis Cluster, has no WAIT",
            "regions.all[1].min_replicas: found 5, allowed: 0, or `topology: single`: redis_proxy, and so a Redis Cluster, has no WAIT",
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
            "policies[0].limits[3].limit: found a number of more than 64 bits, allowed: a whole number from 1 to 1000000000000",
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
        &["response.headers: found \"draft\", allowed: draft_11, x_ratelimit, openai, anthropic, none"],
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
        &[
            "policies[0].limits[0].window: found an unknown field, allowed: name, rate, burst, max_delay, warn_at_percent",
        ],
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
        "a usage journal out of bounds",
        r#"{"policies": [{P, "usage_journal": {}}], "usage_journal": {"interval": "7h", "keep": "401d", "max_subjects": 0}}"#,
        &[
            "policies[0].usage_journal: found an object, allowed: true or false",
            "usage_journal.keep: found \"401d\", allowed: a duration from \"1h\" to \"400d\", a whole number and one of us, ms, s, m, h, d",
            "usage_journal.max_subjects: found 0, allowed: a whole number from 1 to 1000000",
        ],
    ),
    (
        "intervals of usage that are no part of a day",
        r#"{"policies": [{P}], "usage_journal": {"interval": "7h"}}"#,
        &["usage_journal.interval: found \"7h\", allowed: whole seconds, of which a day is a multiple"],
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
        "a pattern in the middle of a model, a negative price, two fields at once, an unknown provider",
        r#"{"prices": {"usd": {"models": [{"model": ["gpt-5", "a*b"], "input": 1, "output": 2}, {"model": ["gpt-5"], "input": 1, "output": -2}]}},
            "policies": [{P, "cost": {"usage": {"prices": "usd", "weights": {}}}, "settle": [{"cost": {"usage": {"provider": "openia"}}}]}]}"#,
        &[
            "prices.usd.models[0].model[1]: found \"a*b\", allowed: a string: the name of a model, of 1 to 256 bytes; a `*` at its end stands for any rest",
            "prices.usd.models[1].output: found -2, allowed: WEIGHT",
            "policies[0].cost.usage: found weights, prices, allowed: at most one of weights, prices",
            "policies[0].settle[0].cost.usage.provider: found \"openia\", allowed: auto, openai, anthropic, gemini, bedrock, ollama (did you mean \"openai\"?)",
        ],
    ),
    (
        "names of prices, and one model twice",
        r#"{"prices": {"usd": {"models": [{"model": ["gpt-5"], "input": 1, "output": 2}, {"model": ["gpt-5"], "input": 1, "output": 2}]},
                "eur": {"models": [{"model": ["*"], "input": 1, "output": 2}]}},
            "policies": [{P, "cost": {"usage": {"prices": "usd"}}, "settle": [{"cost": {"usage": {"prices": "eur"}}}]},
                {"name": "q", "limits": [{L}], "settle": [{"cost": {"usage": {"prices": "us"}}}]}]}"#,
        &[
            "prices.usd.models[1].model: found \"gpt-5\", allowed: each model once",
            "policies[0].settle: found several tables of prices, allowed: one table of prices in all costs of a policy",
            "policies[1].settle[0].cost.usage.prices: found \"us\", allowed: the name of a table of `prices`: usd, eur (did you mean \"usd\"?)",
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
        "a hash of a tier's name, and a credential for one",
        r#"{"policies": [
            {"name": "p", "tiers": {"by": {"host": {}, "hash": true}, "default": "t", "limits": {"t": [{L}]}}},
            {"name": "q", "tiers": {"by": {"credential": {}}, "default": "t", "limits": {"t": [{L}]}}}]}"#,
        &[
            "policies[0].tiers.by.hash: found true, allowed: false: the value names the tier, its hash does not",
            "policies[1].tiers.by.credential: found a credential, allowed: another part: a credential is no name",
        ],
    ),
    (
        "credentials that are nowhere, in clear, and joined",
        r#"{"policies": [{P, "subject": [{"credential": {"headers": [], "query": []}}, {"credential": {}, "hash": false},
            {"credential": {}, "on_multiple": "join"}]}]}"#,
        &[
            "policies[0].subject[0].credential: found no place, allowed: at least one of `headers` or of `query`",
            "policies[0].subject[1].hash: found false, allowed: true: a credential is always hashed",
            "policies[0].subject[2].on_multiple: found \"join\", allowed: deny, first or last: a client could join its credential with others, and be another subject each time",
        ],
    ),
    (
        "places of credentials that are none",
        r#"{"policies": [{P, "subject": [{"credential": {"headers": ["X-Api-Key", ""], "query": [""]}},
            {"credential": {"headers": ["a", "b", "c", "d", "e", "f", "g", "h", "i"]}}, {"credential": []}]}]}"#,
        &[
            "policies[0].subject[0].credential.headers[0]: found \"X-Api-Key\", allowed: a string: a header name in lower case (did you mean \"x-api-key\"?)",
            "policies[0].subject[0].credential.headers[1]: found \"\", allowed: a string: a header name in lower case",
            "policies[0].subject[0].credential.query[0]: found \"\", allowed: a string: 1 to 1024 bytes",
            "policies[0].subject[1].credential.headers: found a list of 9, allowed: a list of 0 to 8",
            "policies[0].subject[2].credential: found a list of 0, allowed: an object with headers, query, semicolon",
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
    (
        "a style beside what it stands for",
        r#"{"policies": [{P, "response": {"style": "openai", "format": "problem"}}], "response": {"style": "open_ai"}}"#,
        &[
            "policies[0].response: found style, format, allowed: at most one of style, format",
            "response.style: found \"open_ai\", allowed: openai, anthropic, gemini, json_rpc, graphql (did you mean \"openai\"?)",
        ],
    ),
    (
        "a body beside a style",
        r#"{"policies": [{P, "response": {"style": "graphql", "body": "x"}}]}"#,
        &[
            "policies[0].response.body: found a body, allowed: none, because `format` is neither `json` nor `text`",
        ],
    ),
];

pub fn message(text: &str) -> String {
    const PARTS: &str = "client_address, header, cookie, query, credential, path, path_segment, method, host, route, jwt_claim, tls_subject, attribute, body_json, body_form";
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
        ("COSTS", "reserved, constant, header, trailer, response_bytes, duration, body_json, usage"),
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
