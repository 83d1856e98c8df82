// SPDX-License-Identifier: Apache-2.0
//! The index of conditions: under it, every policy decides as it does by itself, and a list has the first condition that holds,
//! whatever the configuration and the request. Each attribute is read once, if at all.

use std::borrow::Cow;
use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use weir::config::{Config, Evaluation, Step};
use weir::policy::index::Index;
use weir::policy::list::Conditions;
use weir::policy::matcher::{Condition, OnAmbiguity};
use weir::policy::{Mode, Ruling};
use weir::request::sample::Sample;
use weir::request::{Attributes, Request, Unreadable};
use weir_support::is_full;

use super::{LIMITS, config, evaluate, request};

/// Conditions on one attribute: values that requests have, and values close to these.
fn leaf() -> impl Strategy<Value = Value> {
    let header = |name: &'static str| {
        select(vec![
            json!({"exact": "b"}),
            json!({"exact": "b,c"}),
            json!({"in": ["c", "b"]}),
            json!({"in": ["b,c", "bd", "b"]}),
            json!({"prefix": "b"}),
            json!({"prefix": "b,"}),
            json!({"regex": "b+c?"}),
            json!({"regex": "b(c|d)"}),
            json!({"regex": "c|b"}),
            json!({"present": true}),
            json!({"present": false}),
        ])
        .prop_map(move |mut test| {
            test["name"] = name.into();
            json!({ "header": test })
        })
    };
    let parameter = (
        select(vec!["q", "a b", "a_b", "q_x", "[q"]),
        select(vec![
            json!({"exact": "1"}),
            json!({"exact": "2"}),
            json!({"exact": "1;q=2", "semicolon": "literal"}),
            json!({"exact": "2", "semicolon": "literal"}),
            json!({"prefix": "1"}),
            json!({"prefix": "1 "}),
            json!({"regex": "1+.?"}),
            json!({"regex": "[12]"}),
            json!({"present": true}),
            json!({"present": false}),
        ]),
    );
    let parameter = parameter.prop_map(|(name, mut test)| {
        test["name"] = name.into();
        json!({ "query": test })
    });
    let paths = ["/", "/a", "/a/", "/a/b", "/ab", "/b", "/b/"];
    let expressions = [
        "/a",
        "/a/",
        "/a/b?",
        "/a/[0-9]*",
        "/a|/b",
        ".*b",
        "/a(/b)*/?",
        "/[a]",
        "/é",
        "/b{0,2}",
        "^/a$",
        "/a$",
        "/a/$",
        "/ab\\z",
        "/a$|/b",
        "/a(/|$)",
        "/a(?:/.*)?$",
        ".*b$",
        "/a\\b",
        "^/b",
    ];
    let path = prop_oneof![
        (select(paths.to_vec()), select(vec!["ambiguous", "distinct"]))
            .prop_map(|(path, slash)| json!({"exact": path, "trailing_slash": slash})),
        select(paths.to_vec()).prop_map(|path| json!({ "prefix": path })),
        (select(expressions.to_vec()), select(vec!["ambiguous", "distinct"]))
            .prop_map(|(regex, slash)| json!({"regex": regex, "trailing_slash": slash})),
    ];
    let some = |names: Vec<&'static str>| vec(select(names), 1..3);
    let networks = vec![
        "10.0.0.0/8",
        "10.1.0.0/17",
        "10.1.128.0/17",
        "10.1.2.3",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/33",
        "2001:db8:8000::/33",
        "::a01:203",
    ];
    prop_oneof![
        2 => some(vec!["a.example", "b.example", "*.example", "*.b.example"]).prop_map(|of| json!({ "host": of })),
        4 => path.prop_map(|of| json!({ "path": of })),
        1 => some(vec!["GET", "PUT"]).prop_map(|of| json!({ "method": of })),
        2 => header("x-a"),
        1 => header("x-b"),
        2 => some(networks).prop_map(|of| json!({ "client_address": of })),
        1 => some(vec!["r", "s"]).prop_map(|of| json!({ "route": of })),
        3 => parameter,
        1 => Just(json!({"cookie": {"name": "s", "present": false}})),
        1 => Just(json!({"attribute": {"path": ["xds", "route_name"], "in": ["r", "s"]}})),
    ]
}

fn condition() -> impl Strategy<Value = Value> {
    let both = |(mut one, mut other): (Value, Value)| {
        one.as_object_mut().unwrap().append(other.as_object_mut().unwrap());
        one
    };
    prop_oneof![leaf(), (leaf(), leaf()).prop_map(both)].prop_recursive(2, 8, 3, |inner| {
        let several = vec(inner.clone(), 1..4);
        prop_oneof![
            several.clone().prop_map(|of| json!({ "all": of })),
            several.prop_map(|of| json!({ "any": of })),
            inner.prop_map(|of| json!({ "not": of })),
        ]
    })
}

/// Policies that may end an evaluation, and read more of a request for their subject.
fn policies() -> impl Strategy<Value = Config> {
    let parts = [
        json!({"route": {}}),
        json!({"host": {}}),
        json!({"header": {"name": "x-a"}, "on_multiple": "join"}),
        json!({"cookie": {"name": "s"}}),
        json!({"attribute": {"path": ["xds", "route_name"]}}),
        json!({"attribute": {"path": ["connection", "mtls"]}}),
        json!({"jwt_claim": {"claim": ["sub"]}}),
        json!({"client_address": {}}),
    ];
    let mode = select(vec!["enforce", "shadow", "shadow", "shadow"]);
    let policy =
        (condition(), proptest::option::weighted(0.2, leaf()), mode, vec(select(parts.to_vec()), 1..3));
    vec(policy, 1..64).prop_map(|policies| {
        let policies = policies.into_iter().enumerate().map(|(n, (condition, denied, mode, subject))| {
            let limits = [json!({"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"})];
            json!({"name": format!("p{n}"), "match": condition, "mode": mode, "subject": subject, "limits": limits,
                "deny": Vec::from_iter(denied)})
        });
        config(&json!({"policies": policies.collect::<Vec<_>>()}).to_string())
    })
}

/// Requests with each attribute absent, unreadable, plain, oddly spelt or too long.
fn sample() -> impl Strategy<Value = Sample> {
    let pieces = [
        "/", "a", "b", "/a", "/a/b", "/ab", "7", "//", "/.", "/..", "%2f", "%61", ";x", "\\", "é",
        "\u{fffd}", "?q=1", "#",
    ];
    let path = prop_oneof![
        8 => vec(select(pieces.to_vec()), 0..5).prop_map(|pieces| format!("/{}", pieces.concat())),
        2 => vec(select(pieces.to_vec()), 0..5).prop_map(|pieces| pieces.concat()),
        3 => (select(vec!["/a", "/a/b", "/ab", "/b"]), select(vec!["/..", "/../b", "/%2e%2e/c", "/.", "//", "\\..\\a", ";x"]))
            .prop_map(|(path, rest)| format!("{path}{rest}")),
        2 => select(vec!["/a", "/a/", "/a/b", "/ab", "/b", "/"]).prop_map(String::from),
        1 => select(vec![4_090, 8_192, 8_193]).prop_map(|length| format!("/a{}", "/".repeat(length))),
        1 => select(vec![4_090, 8_193]).prop_map(|length| format!("/{}", "a".repeat(length))),
    ];
    let pairs = [
        "q=1", "q=2", "%71=%31", "q=1%202", "q=1+2", "q", "q=", "q=11", "a+b=1", "a%20b=2", "=1", "r=1",
        "Q=1", "q[x]=1", "q[x[=1", "q%00x=1", "+q%09=1", "[q]=1", "a.b=1", "a_b=1", "q.x=2", "%zz=1",
    ];
    let joined = |joint: &'static str| {
        vec(select(pairs.to_vec()), 0..4).prop_map(move |pairs| format!("?{}", pairs.join(joint)))
    };
    let query = prop_oneof![
        4 => Just(String::new()),
        4 => joined("&"),
        2 => joined(";"),
        1 => Just(format!("?{}q=1", "r&".repeat(260))),
        1 => Just(format!("?q=1&{}", "r;".repeat(260))),
        1 => Just(format!("?q=1{}", "1".repeat(17_000))),
    ];
    let path = (path, query).prop_map(|(path, query)| path + &query);
    let hosts = [
        "a.example",
        "A.Example:80",
        "b.example.",
        "x.b.example",
        "x.y.example",
        ".example",
        ".b.example",
        "example",
        "",
        "b",
        "..",
    ];
    let clients = [
        "10.1.2.3:1",
        "10.1.130.1:1",
        "10.2.0.1:1",
        "[2001:db8::1]:1",
        "[2001:db8:8000::1]:1",
        "[::ffff:10.1.2.3]:1",
        "[::a01:203]:1",
        "/run/sock",
    ];
    let line = || {
        prop_oneof![
            8 => select(vec!["", "b", "bc", "bd", "c", "b,c", " b", "b, c", "bb", "\u{fffd}"]).prop_map(String::from),
            1 => Just("b".repeat(5_000)),
            1 => Just("b,".repeat(300)),
        ]
    };
    let lines = || prop_oneof![2 => vec(line(), 0..2), 1 => vec(line(), 2..4)];
    let names = [
        ":method",
        ":path",
        ":authority",
        "x-a",
        "x-b",
        "source.address",
        "xds.route_name",
        "connection.mtls",
    ];
    let odd = proptest::option::weighted(0.2, (select(names.to_vec()), any::<bool>()));
    let method = select(vec!["GET", "get", "PUT", "POST"]);
    let rest = (method, select(clients.to_vec()), select(vec!["r", "s", "t", ""]));
    (path, select(hosts.to_vec()), lines(), lines(), rest, odd).prop_map(
        |(path, host, a, b, (method, client, route), odd)| {
            let sample = request("GET /").method(method).path(path).host(host).from(client);
            let sample =
                sample.property(&["xds", "route_name"], route).property(&["connection", "mtls"], "1");
            let sample = a.iter().fold(sample, |sample, line| sample.header("x-a", line));
            let sample = b.iter().fold(sample, |sample, line| sample.header("x-b", line));
            match odd {
                None => sample,
                Some((name, true)) => sample.unreadable(name),
                Some((name, false)) => sample.without(name),
            }
        },
    )
}

/// The place of the first of `conditions` that holds, each tried on a request of its own.
fn first(
    conditions: &Conditions,
    sample: &Sample,
    config: &Config,
    on_ambiguity: OnAmbiguity,
) -> Option<usize> {
    let holds = |condition: &Condition| condition.holds(&Request::new(sample, &config.trust), on_ambiguity);
    conditions.conditions().iter().position(holds)
}

/// The decision of each policy by itself, up to the first denial that is enforced.
fn one_by_one(config: &Config, sample: &Sample) -> Vec<Ruling> {
    let mut rulings = Vec::new();
    for (index, policy) in config.policies.iter().enumerate() {
        rulings.push(policy.rule(index, &Request::new(sample, &config.trust)));
        if policy.mode == Mode::Enforce && matches!(rulings.last(), Some(Ruling::Denied(_))) {
            break;
        }
    }
    rulings
}

/// The steps of an evaluation.
fn steps(config: &Config, attributes: &dyn Attributes) -> Vec<Ruling> {
    let mut rulings = Vec::new();
    config.evaluate_steps(&Request::new(attributes, &config.trust), |step| match step {
        Step::Policy(index, ruling) => {
            assert_eq!(index, rulings.len(), "in order, and none is left out");
            rulings.push(ruling.clone());
        }
        Step::Denied(_) | Step::Exempt(_) | Step::QuotaRequest(..) => panic!("there are no global lists"),
    });
    rulings
}

/// Notes what is read of a request.
struct Noted<'a> {
    sample: &'a Sample,
    read: RefCell<Vec<String>>,
}

impl<'a> Noted<'a> {
    const fn new(sample: &'a Sample) -> Self {
        Self { sample, read: RefCell::new(Vec::new()) }
    }

    fn note(&self, what: String) {
        self.read.borrow_mut().push(what);
    }
}

impl Attributes for Noted<'_> {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        self.note(name.to_owned());
        self.sample.header(name)
    }

    fn header_lines(&self, name: &str) -> Result<usize, Unreadable> {
        self.note(format!("lines of {name}"));
        self.sample.header_lines(name)
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        self.note(path.join("."));
        self.sample.property(path)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_policy_among_others_decides_as_it_does_alone(config in policies(), samples in vec(sample(), 16)) {
        for sample in &samples {
            let noted = Noted::new(sample);
            prop_assert_eq!(steps(&config, &noted), one_by_one(&config, sample));
            let mut read = noted.read.into_inner();
            read.sort();
            prop_assert!(read.windows(2).all(|two| two[0] != two[1]), "read twice: {:?}", read);
        }
    }

    #[test]
    fn a_list_has_the_first_condition_that_holds(
        deny in vec(condition(), 0..24),
        exempt in vec(condition(), 0..24),
        samples in vec(sample(), 8),
    ) {
        let limits = [json!({"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"})];
        let policy = json!({"name": "p", "limits": limits, "deny": exempt, "exempt": deny});
        let config = config(&json!({"deny": deny, "exempt": exempt, "policies": [policy]}).to_string());
        let policy = &config.policies[0];
        for sample in &samples {
            for list in [&config.deny, &config.exempt, &policy.deny, &policy.exempt] {
                for on_ambiguity in [OnAmbiguity::Holds, OnAmbiguity::Fails] {
                    let found = list.first(&Request::new(sample, &config.trust), on_ambiguity);
                    prop_assert_eq!(found, first(list, sample, &config, on_ambiguity));
                }
            }
            let noted = Noted::new(sample);
            let _ = config.evaluate(&noted);
            let mut read = noted.read.into_inner();
            read.sort();
            prop_assert!(read.windows(2).all(|two| two[0] != two[1]), "read twice: {:?}", read);
        }
    }
}

/// The configuration of as many policies, each with `condition`, in which `{n}` is its number.
fn numbered(policies: usize, condition: &str) -> Config {
    let policy = |n: usize| {
        let condition = condition.replace("{n}", &n.to_string());
        format!(r#"{{"name": "p{n}", "match": {condition}, "subject": [{{"literal": "all"}}], {LIMITS}}}"#)
    };
    let policies: Vec<String> = (0..policies).map(policy).collect();
    config(&format!(r#"{{"policies": [{}]}}"#, policies.join(",")))
}

/// A configuration in which each list has as many conditions.
fn listed(size: usize, condition: &str) -> Config {
    let list: Vec<String> = (0..size).map(|n| condition.replace("{n}", &n.to_string())).collect();
    let lists = format!(r#""deny": [{0}], "exempt": [{0}]"#, list.join(","));
    config(&format!(
        r#"{{{lists}, "policies": [{{"name": "p", "subject": [{{"literal": "all"}}], {lists}, {LIMITS}}}]}}"#
    ))
}

/// A request that matches none of 256 conditions does not try any: the regular expressions that are searched show it.
#[test]
fn a_list_is_not_searched_for_a_request_that_it_is_not_about() {
    let config = listed(256, r#"{"path": {"regex": "/t{n}/[0-9]+"}}"#);
    for (path, searches) in [("/t/7", false), ("/t7/7", true), ("/t7/a", true)] {
        let sample = request("GET /").path(path);
        let request = Request::new(&sample, &config.trust);
        let _ = config.evaluate_request(&request);
        assert_eq!(request.effort().steps > 0, searches, "{path}");
    }
}

#[test]
fn each_of_256_conditions_is_found() {
    for (condition, text) in [
        (r#"{"host": ["t{n}.example"]}"#, "GET /\n:authority: t{n}.example"),
        (r#"{"host": ["*.t{n}.example"]}"#, "GET /\n:authority: a.t{n}.example"),
        (r#"{"path": {"exact": "/t{n}"}}"#, "GET /t{n}"),
        (r#"{"path": {"prefix": "/t{n}"}}"#, "GET /t{n}/a"),
        (r#"{"path": {"regex": "/t{n}/[a-z]"}}"#, "GET /t{n}/a"),
        (r#"{"header": {"name": "x-t", "exact": "t{n}"}}"#, "GET /\nx-t: t{n}"),
        (r#"{"header": {"name": "x-t", "in": ["u{n}", "t{n}"]}}"#, "GET /\nx-t: t{n}"),
        (r#"{"header": {"name": "x-t{n}"}}"#, "GET /\nx-t{n}: a"),
        (r#"{"client_address": ["10.0.{n}.0/24"]}"#, "GET /\n@client: 10.0.{n}.1"),
        (r#"{"route": ["t{n}"]}"#, "GET /\n@xds.route_name: t{n}"),
        (r#"{"query": {"name": "t", "exact": "{n}"}}"#, "GET /?a=b&t={n}"),
        (r#"{"query": {"name": "t", "prefix": "t{n} "}}"#, "GET /?%74=t{n}+7"),
        (r#"{"query": {"name": "t", "regex": "t{n}[a-z]"}}"#, "GET /?t=t{n}b"),
        (r#"{"query": {"name": "t{n}"}}"#, "GET /?a&t{n}"),
    ] {
        let (config, lists) = (numbered(256, condition), listed(256, condition));
        for policy in (0..256).step_by(if is_full() { 1 } else { 17 }) {
            let sample = request(&text.replace("{n}", &policy.to_string()));
            for list in [&lists.deny, &lists.exempt, &lists.policies[0].deny, &lists.policies[0].exempt] {
                let found = list.first(&Request::new(&sample, &lists.trust), OnAmbiguity::Fails);
                assert_eq!(found, Some(policy), "{condition}");
            }
            let found: Vec<_> =
                evaluate(&config, &sample).unwrap().iter().map(|check| check.policy).collect();
            assert_eq!(found, [policy], "{condition}");
        }
        assert_eq!(evaluate(&config, &request("GET /other")), Err(String::from("admit")), "{condition}");
    }
}

/// The candidates of the index alone, and the attributes that it reads.
fn candidates(config: &Config, sample: &Sample) -> (Vec<usize>, Vec<String>) {
    let noted = Noted::new(sample);
    let index = Index::new(config.policies.iter().map(|policy| &policy.matcher));
    let found = index.candidates(&Request::new(&noted, &config.trust)).collect();
    (found, noted.read.into_inner())
}

#[test]
fn a_policy_is_a_candidate_only_under_what_it_requires() {
    let (one, all) = (vec![5], (0..16).collect::<Vec<_>>());
    let host = "GET /\n:authority: t5.example";
    for (condition, text, expected, read) in [
        ("{}", host, &all, &[][..]),
        (r#"{"host": ["t{n}.example"]}"#, host, &one, &[":authority"]),
        (r#"{"host": ["*.t{n}.example"]}"#, "GET /\n:authority: a.t5.example", &one, &[":authority"]),
        (r#"{"host": ["t{n}.example"]}"#, "GET /\n?:authority", &all, &[":authority"]),
        (r#"{"method": ["GET"], "host": ["t{n}.example"]}"#, host, &one, &[":method", ":authority"]),
        (r#"{"all": [{"host": ["t{n}.example"]}, {"host": ["*.example"]}]}"#, host, &one, &[":authority"]),
        (r#"{"any": [{"host": ["t{n}.example"]}, {"host": ["u{n}.example"]}]}"#, host, &one, &[":authority"]),
        (r#"{"any": [{"host": ["t{n}.example"]}, {"method": ["PUT"]}]}"#, host, &all, &[]),
        (r#"{"not": {"host": ["t{n}.example"]}}"#, host, &all, &[]),
        (r#"{"path": {"prefix": "/"}}"#, host, &all, &[]),
        (r#"{"path": {"prefix": "/t{n}"}}"#, "GET /t5/a", &one, &[":path"]),
        (r#"{"path": {"exact": "/t{n}/"}}"#, "GET /t5", &one, &[":path"]),
        (r#"{"path": {"regex": "/t{n}(/a)?"}}"#, "GET /t5", &one, &[":path"]),
        (r#"{"path": {"regex": "/[t]{n}"}}"#, "GET /t5", &all, &[]),
        (r#"{"header": {"name": "x", "exact": "t{n}"}}"#, "GET /\nx: a\nx: t5", &one, &["x", "lines of x"]),
        (r#"{"header": {"name": "x", "in": ["t{n}", "u{n}"]}}"#, "GET /\nx: u5", &one, &["x"]),
        (r#"{"cookie": {"name": "x", "in": ["t{n}"]}}"#, "GET /\ncookie: x=t5", &all, &[]),
        (r#"{"attribute": {"path": ["a"], "in": ["t{n}"]}}"#, "GET /\n@a: t5", &all, &[]),
        (r#"{"header": {"name": "x-{n}"}, "method": ["PUT"]}"#, "GET /", &vec![], &[":method"]),
        (r#"{"client_address": ["10.0.{n}.0/24"]}"#, "GET /\n@client: 10.0.5.1", &one, &["source.address"]),
        (r#"{"route": ["t{n}"]}"#, "GET /\n@xds.route_name: t5", &one, &["xds.route_name"]),
        (r#"{"query": {"name": "q", "exact": "t{n}"}}"#, "GET /?q=t5", &one, &[":path"]),
        (r#"{"query": {"name": "q", "exact": "t{n}"}}"#, "GET /?p=t5", &vec![], &[":path"]),
        (r#"{"query": {"name": "q", "exact": "t{n}"}}"#, "GET /?a;q=t5", &one, &[":path"]),
        (r#"{"query": {"name": "q{n}"}}"#, "GET /?q5", &one, &[":path"]),
        (r#"{"query": {"name": "q{n}", "present": false}}"#, "GET /", &all, &[]),
        (r#"{"query": {"name": "q", "regex": "t{n}|u"}}"#, "GET /?q=v", &all, &[":path"]),
        (
            r#"{"any": [{"query": {"name": "q{n}"}}, {"query": {"name": "p", "exact": "{n}"}}]}"#,
            "GET /?p=5",
            &one,
            &[":path"],
        ),
        (r#"{"query": {"name": "q{n}"}, "path": {"prefix": "/t{n}"}}"#, "GET /t5?q6", &vec![], &[":path"]),
    ] {
        let found = candidates(&numbered(16, condition), &request(text));
        assert_eq!(found, (expected.clone(), read.iter().map(ToString::to_string).collect()), "{condition}");
    }
}

/// A policy is filed under no more, however many conditions it has.
#[test]
fn a_policy_is_filed_under_eight_attributes() {
    let headers =
        (0..20).map(|n| format!(r#"{{"header": {{"name": "x-{n}"}}}}"#)).collect::<Vec<_>>().join(",");
    let sample = (0..20).fold(request("GET /"), |sample, n| sample.header(&format!("x-{n}"), "a"));
    let (found, read) = candidates(&numbered(4, &format!(r#"{{"all": [{headers}]}}"#)), &sample);
    assert_eq!((found, read.len()), (vec![0, 1, 2, 3], 8));
}

/// An attribute is read only for policies that match the request in what was read before.
#[test]
fn what_no_policy_needs_is_not_read() {
    for (condition, text, expected) in [
        ("{}", "GET /", &[][..]),
        (r#"{"host": ["t{n}.example"]}"#, "GET /", &[":authority"]),
        (r#"{"method": ["PUT"], "header": {"name": "x-{n}"}}"#, "GET /", &[":method"]),
        (
            r#"{"host": ["t{n}.example"], "header": {"name": "x-{n}"}}"#,
            "GET /\n:authority: t5.example",
            &[":authority", "x-5"],
        ),
        (r#"{"route": ["r"], "client_address": ["10.0.{n}.0/24"]}"#, "GET /", &["source.address"]),
    ] {
        let config = numbered(16, condition);
        let sample = request(text);
        let noted = Noted::new(&sample);
        steps(&config, &noted);
        assert_eq!(*noted.read.borrow(), expected, "{condition}");
    }
}

#[test]
fn a_request_of_one_policy_is_searched_for_no_other() {
    let config = numbered(256, r#"{"path": {"regex": "/t{n}/[0-9]+"}}"#);
    let effort = |path: &str| {
        let sample = request("GET /").path(path);
        let request = Request::new(&sample, &config.trust);
        let found = config.evaluate_request(&request);
        (matches!(found, Evaluation::Check(_)), request.effort().steps)
    };
    let (matches, one) = effort("/t255/7");
    assert!(matches && one > 0);
    assert_eq!(effort("/t/7"), (false, 0));
}
