// SPDX-License-Identifier: Apache-2.0
//! Warnings about policies: for each a file that has it, and the nearest one that has not.

use super::{File, Row, check};
use crate::support::root;

const LIMIT: &str = "  limits: [{name: l, algorithm: leaky_bucket, rate: 10/s, burst: 10}]\n";

/// A policy with these lines.
fn policy(lines: &str) -> String {
    format!("policies:\n- name: p\n  {lines}\n{LIMIT}")
}

/// A second policy after that, with these lines.
fn two(lines: &str, second: &str) -> String {
    format!("{}- name: q\n  {second}\n{LIMIT}", policy(lines))
}

/// Three regions that tell each other so often.
fn regions(sync_interval: &str) -> String {
    format!(
        "regions: {{here: ams, sync_interval: {sync_interval}, all: [{{name: ams, cluster: a}}, {{name: bom, cluster: b}}, {{name: cle, cluster: c}}]}}\n"
    )
}

pub fn rows() -> Vec<Row> {
    let log = "sliding_log, window: 1h";
    let row = |code, name, file: String, instead, says| Row { code, name, file, instead, says };
    vec![
        row(
            "impossible-cost",
            "a constant",
            policy("«cost: {constant: 11}»"),
            "cost: {constant: 10}",
            "policies[0].cost: a request costs 11, and can never pass: limit \"l\" never grants more than 10. Write a cost of at most 10",
        ),
        row(
            "impossible-cost",
            "of a case",
            policy("costs: [{when: {method: [PUT]}, «cost: {constant: 11}»}]"),
            "cost: {constant: 10}",
            "policies[0].costs[0].cost: a request costs 11",
        ),
        row(
            "impossible-cost",
            "the least that a header may state",
            policy("cost: {header: {name: x-cost, «min: 11»}}"),
            "min: 10",
            "policies[0].cost.header.min: a request that states a cost costs 11",
        ),
        row(
            "impossible-cost",
            "without the parameter",
            policy("cost: {query: {name: units, «on_missing: 11»}}"),
            "on_missing: 10",
            "a request without the parameter costs 11",
        ),
        row(
            "impossible-cost",
            "of a body without its length",
            policy("cost: {content_length: {per: 1000, «max: 11»}}"),
            "max: 10",
            "a body without `content-length` (chunked, HTTP/2, a WebSocket) costs 11",
        ),
        row(
            "impossible-cost",
            "of a body that cannot be read",
            policy("cost: {body_json: {paths: [units], «max: 11»}}"),
            "max: 10",
            "a request whose body cannot be read costs 11",
        ),
        row(
            "impossible-cost",
            "in one of the tiers",
            "policies:\n- name: p\n  «cost: {constant: 11}»\n  tiers:\n    by: {jwt_claim: {claim: [plan]}}\n    default: a\n    limits:\n      \
             a: [{name: l, algorithm: fixed_window, limit: 20, window: 1s}]\n      b: [{name: l, algorithm: token_bucket, capacity: 8, \
             overdraft: 2, refill: 1, interval: 1s}]\n"
                .to_owned(),
            "cost: {constant: 10}",
            "limit \"l\" of tier \"b\" never grants more than 10. Write a cost of at most 10",
        ),
        row(
            "impossible-cost",
            "unless a subject may have a limit of its own",
            policy("«cost: {constant: 11}»"),
            "cost: {constant: 11}\n  overrides: true",
            "costs 11",
        ),
        row(
            "unreachable-cost",
            "after a case for everything",
            policy(
                "costs: [{when: {path: {prefix: /}}, cost: {constant: 2}}, «{when: {method: [PUT]}, cost: {constant: 3}}»]",
            ),
            "",
            "policies[0].costs[1]: no request comes to this case",
        ),
        row(
            "unreachable-cost",
            "after a wider case",
            policy(
                "costs: [{when: {method: [PUT, POST]}, cost: {constant: 2}}, «{when: {method: [PUT], path: {exact: /a}}, cost: {constant: 3}}»]",
            ),
            "{when: {method: [PUT, GET]}, cost: {constant: 3}}",
            "policies[0].costs[1]: no request comes to this case",
        ),
        row(
            "local-one-worker",
            "for all policies",
            format!("store: {{«on_failure: local»}}\n{}", policy("mode: enforce")),
            "on_failure: local, workers: 2",
            "store.on_failure: with `workers: 1`, each worker admits the whole limit",
        ),
        row(
            "local-one-worker",
            "for one policy",
            policy("«on_failure: local»"),
            "on_failure: deny",
            "policies[0].on_failure: with `workers: 1`",
        ),
        row(
            "short-deadline",
            "below 2 ms",
            format!("store: {{«deadline: 1999us»}}\n{}", policy("mode: enforce")),
            "deadline: 2ms",
            "store.deadline: in 1999 µs",
        ),
        row(
            "rare-sync",
            "of charges",
            format!("{}{}", regions("700ms"), policy("«regions: {debit: {}}»")),
            "regions: {home: ams}",
            "policies[0].regions: limit l is whole again within 1000 ms, and charges come every 700 ms",
        ),
        row(
            "rare-sync",
            "of loans",
            format!("{}{}", regions("5s"), policy("«regions: {share: {}}»")),
            "regions: {home: bom}",
            "policies[0].regions: limit l is whole again within",
        ),
        row(
            "large-log",
            "of single requests",
            format!("policies:\n- name: p\n  limits: [{{name: l, algorithm: {log}, «limit: 47200»}}]\n"),
            "limit: 47100",
            "policies[0].limits[0].limit: a log of 47200 grants takes 1.1 MiB of Redis's memory",
        ),
        row(
            "large-log",
            "of dear requests",
            format!(
                "policies:\n- name: p\n  cost: {{constant: 2}}\n  limits: [{{name: l, algorithm: {log}, «limit: 94400»}}]\n"
            ),
            "limit: 94200",
            "a log of 47200 grants takes 1.1 MiB",
        ),
        row(
            "trusts-everybody",
            "half of IPv4",
            format!("client_address: {{trusted_networks: [10.0.0.0/8, «128.0.0.0/1»]}}\n{}", policy("mode: enforce")),
            "128.0.0.0/8",
            "client_address.trusted_networks[1]: 128.0.0.0/1 holds addresses of clients",
        ),
        row(
            "trusts-everybody",
            "all public addresses of IPv6",
            format!("client_address: {{trusted_networks: [«\"2000::/3\"»]}}\n{}", policy("mode: enforce")),
            "\"fc00::/7\", \"2001:db8::/32\"",
            "2000::/3 holds addresses of clients",
        ),
        row(
            "unverified-subject",
            "a header",
            policy("subject: [«{header: {name: x-api-key}}»]"),
            "{jwt_claim: {claim: [sub]}}",
            "policies[0].subject[0]: a client may send another header x-api-key with each request",
        ),
        row(
            "unverified-subject",
            "a cookie, beside a method",
            policy("subject: [{method: {}}, «{cookie: {name: session}}»]"),
            "{client_address: {}}",
            "policies[0].subject[1]: a client may send another cookie session",
        ),
        row(
            "unverified-subject",
            "a header by its attribute",
            policy("subject: [«{attribute: {path: [request, headers, x-a]}}»]"),
            "{attribute: {path: [connection, requested_server_name]}}",
            "another attribute request.headers.x-a",
        ),
        row(
            "unverified-subject",
            "with a limit on the addresses of other requests only",
            two("match: {method: [GET]}\n  subject: [«{query: {name: k}}»]", "match: {method: [PUT]}"),
            "{literal: all}",
            "another query parameter k",
        ),
        row(
            "impossible-match",
            "two methods",
            policy("«match: {method: [GET], all: [{method: [PUT, POST]}]}»"),
            "match: {method: [GET], all: [{method: [PUT, GET]}]}",
            "policies[0].match: (the method is GET) and (the method is PUT or POST) exclude each other",
        ),
        row(
            "impossible-match",
            "two hosts",
            policy("«match: {all: [{host: [a.example.com]}, {host: [\"*.b.example.com\"]}]}»"),
            "match: {all: [{host: [a.b.example.com]}, {host: [\"*.b.example.com\"]}]}",
            "the host is a.example.com",
        ),
        row(
            "impossible-match",
            "two paths",
            policy("«match: {path: {prefix: /a}, all: [{path: {prefix: /ab}}]}»"),
            "match: {path: {prefix: /a}, all: [{path: {prefix: /a/b}}]}",
            "the path is /a/ or below",
        ),
        row(
            "impossible-match",
            "two networks",
            policy("«match: {client_address: [10.0.0.0/8], all: [{client_address: [192.0.2.0/24]}]}»"),
            "match: {client_address: [10.0.0.0/8], all: [{client_address: [10.1.0.0/16]}]}",
            "the client is in 10.0.0.0/8",
        ),
        row(
            "impossible-match",
            "two values of one claim",
            policy("«match: {jwt_claim: {claim: [plan], exact: a}, all: [{jwt_claim: {claim: [plan], in: [b, c]}}]}»"),
            "match: {jwt_claim: {claim: [plan], exact: b}, all: [{jwt_claim: {claim: [plan], in: [b, c]}}]}",
            "exclude each other",
        ),
        row(
            "impossible-match",
            "a condition and its negation",
            policy("«match: {header: {name: x, exact: a}, not: {header: {name: x, exact: a}}}»"),
            "match: {header: {name: x, exact: a}, all: [{header: {name: x, exact: b}}]}",
            "(the header x is \"a\") and (not the header x is \"a\") exclude",
        ),
        row(
            "impossible-match",
            "none of the choices, in a list",
            policy("deny: [«{method: [GET], any: [{method: [PUT]}, {method: [POST]}]}»]"),
            "{method: [GET], any: [{method: [PUT]}, {method: [GET]}]}",
            "policies[0].deny[0]: (the method is GET) and (the method is PUT) exclude",
        ),
        row(
            "shadowed-policy",
            "by a policy that allows less",
            two("mode: enforce", "match: {method: [GET]}").replace("name: q", "«name: q»"),
            "name: q\n  subject: [{host: {}}]",
            "policy \"q\" never denies anything: \"p\" counts the same requests of the same subjects, and allows no more",
        ),
    ]
}

#[test]
fn each_warning_is_given_where_it_is_true_and_only_there() {
    rows().iter().for_each(Row::run);
}

#[test]
fn an_exemption_shadows_the_policies_that_it_includes() {
    let file = |exempt: &str| {
        let file = File::new(
            "exempt.yaml",
            format!("exempt: [{exempt}]\n{}", policy("match: {path: {prefix: /a/b}}")),
        );
        check(&[file.path()]).1.contains("[shadowed-policy]")
    };
    for (exempt, shadows) in [
        ("{}", true),
        ("{path: {prefix: /a}}", true),
        ("{any: [{path: {prefix: /a}}, {method: [GET]}]}", true),
        ("{client_address: [0.0.0.0/0, \"::/0\"]}", true),
        ("{client_address: [0.0.0.0/0]}", false),
        ("{path: {prefix: /a/b/c}}", false),
        ("{path: {prefix: /a}, method: [GET]}", false),
    ] {
        assert_eq!(file(exempt), shadows, "{exempt}");
    }
}

/// Which of two policies is superfluous, if one is: by its name.
#[test]
fn a_policy_that_never_denies_is_the_looser_one_of_two() {
    let limit = |rate: u32, burst: u32| {
        format!("  limits: [{{name: l, algorithm: leaky_bucket, rate: {rate}/s, burst: {burst}}}]\n")
    };
    let strict = limit(10, 10);
    for (name, first, second, looser) in [
        ("the same twice", strict.clone(), strict.clone(), Some("q")),
        ("a larger burst", strict.clone(), limit(10, 11), Some("q")),
        ("a larger rate, first", limit(11, 10), strict.clone(), Some("p")),
        ("each larger in one", limit(11, 10), limit(10, 11), None),
        (
            "another kind",
            strict.clone(),
            strict
                .replace("leaky_bucket", "token_bucket")
                .replace("rate: 10/s, burst: 10", "capacity: 99, refill: 9, interval: 1s"),
            None,
        ),
        ("wider than the stricter one", format!("  match: {{method: [GET]}}\n{strict}"), limit(10, 11), None),
        ("narrower", strict.clone(), format!("  match: {{method: [GET]}}\n{}", limit(10, 11)), Some("q")),
        (
            "a choice of which one is wider",
            format!("  match: {{method: [GET]}}\n{strict}"),
            format!("  match: {{any: [{{method: [GET]}}, {{method: [PUT]}}]}}\n{}", limit(10, 11)),
            None,
        ),
        (
            "denies while Redis is unavailable",
            strict.clone(),
            format!("  on_failure: deny\n{}", limit(10, 11)),
            None,
        ),
        ("the stricter one is a shadow", format!("  mode: shadow\n{strict}"), limit(10, 11), None),
    ] {
        let file = File::new("two.yaml", format!("policies:\n- name: p\n{first}- name: q\n{second}"));
        let (status, out, _) = check(&[file.path()]);
        let said = looser.map(|looser| format!("policy \"{looser}\" never denies anything"));
        assert_eq!(
            (status, out.matches("[shadowed-policy]").count()),
            (0, usize::from(looser.is_some())),
            "{name}: {out}"
        );
        assert!(said.is_none_or(|said| out.contains(&said)), "{name}: {out}");
    }
}

#[test]
fn an_unverified_subject_may_have_a_limit_on_the_address_in_another_policy() {
    let file = File::new(
        "address.yaml",
        two("subject: [{header: {name: x-api-key}}]", "subject: [{client_address: {}}]"),
    );
    assert_eq!(check(&[file.path(), "--deny-warnings"]).0, 0);
    let file = File::new(
        "address.yaml",
        two("subject: [{header: {name: x-api-key}}]", "subject: [{client_address: {}}]\n  mode: shadow"),
    );
    assert_eq!(check(&[file.path(), "--deny-warnings"]).0, 1);
}

#[test]
fn shipped_files_have_no_warnings() {
    for folder in ["envoy", "examples", "examples/compose", "examples/regions"] {
        let root = format!("{}/{folder}", root().display());
        let files = std::fs::read_dir(root).expect("a folder").map(|file| file.expect("a file").path());
        for path in files.filter(|path| path.is_file()) {
            let text = std::fs::read_to_string(&path).expect("text");
            let path = path.to_str().expect("UTF-8");
            // The other files of `envoy` are for the upstream and for Docker.
            if path.ends_with(".yaml") && text.contains("policies:") {
                let (status, out, error) = check(&[path, "--deny-warnings"]);
                assert_eq!((status, out.lines().count()), (0, 1), "{out}{error}");
            }
        }
    }
}
