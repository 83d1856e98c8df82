// SPDX-License-Identifier: Apache-2.0
//! The cost of the core, in instructions: `core CASE ROUNDS` repeats one step, and `scripts/bench-core` counts with callgrind. Instructions
//! do not depend on other load of the machine, so a regression shows on any machine.
#![allow(missing_docs, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use weir_support::core;

use weir_support::hostile;

use std::borrow::Cow;
use std::hint::black_box;
use std::rc::Rc;

use core::{Core, User, answer, limited};
use weir::body::{Form as BodyForm, Paths, Scanner};
use weir::config::{Config, Evaluation, Unasked};
use weir::decision::{CheckAnswer, Decision};
use weir::limit::Ask;
use weir::policy::{self, settle::Settling};
use weir::request::{Attributes, Unreadable};
use weir::resp;
use weir::response::{self, Headers, Verdict};
use weir::script::Form;
use weir::time::Micros;

const NOW: Micros = Micros::from_secs(1_700_000_000);
const ANN: User<'_> = User { path: "/api/things?page=2", name: "ann" };
const LIMITS: &str = r#""limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]"#;
const LEASE: &str = r#""lease": {"max": 1000000, "min": 1000000, "duration": "1m"},"#;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (case, rounds) = (arguments.next(), arguments.next().and_then(|rounds| rounds.parse().ok()));
    let (Some(case), Some(rounds)) = (case, rounds) else {
        return println!("run scripts/bench-core instead");
    };
    if let Some((list, condition, size)) = other_tenants(&case) {
        let pairs: Vec<String> = (0..256).map(|n| format!("name-{n}=2")).collect();
        let query = if case.starts_with("names-") { &pairs.join("&") } else { "page=2" };
        return unmatched(rounds, (list, condition, size), query);
    }
    if let Some((of, settle)) = settled(&case) {
        let (form, _, body) = body(of).expect("a body");
        return settles(rounds, form, settle, &body);
    }
    if let Some((form, path, body)) = body(&case) {
        return scan(rounds, form, path, &body);
    }
    let text = limited(if case == "leased" { LEASE } else { "" }, "allow");
    let config = Config::parse(text.as_bytes()).expect("a configuration");
    let mut core = Core::new(&text);
    let mut repeat = |round: &mut dyn FnMut(&mut Core)| (0..rounds).for_each(|_: u32| round(&mut core));
    let evaluate = || match config.evaluate_and_note(black_box(&ANN), None, &mut Unasked::new()) {
        Evaluation::Check(checks) => checks,
        other => panic!("the policy applies to this request: {other:?}"),
    };
    let checks = evaluate();
    let check = checks.first().expect("one policy");
    let plan = config.plan(check).expect("its limits");
    let reply = answer(1, 0, NOW);
    match case.as_str() {
        "unmatched" => repeat(&mut |core| assert!(core.arrive(&User { path: "/", ..ANN }).is_some())),
        "match-key" => repeat(&mut |_| drop(black_box(evaluate()))),
        "encode" => {
            let (mut out, ask) = (Vec::with_capacity(1024), Ask::new(7, 1));
            repeat(&mut |_| {
                out.clear();
                plan.check(&check.tag, black_box(ask), None, Form::Evalsha, &mut out);
            });
        }
        "decode" => repeat(&mut |_| {
            let (reply, _) = resp::decode(black_box(&reply)).expect("RESP").expect("a whole reply");
            black_box(plan.outcome(&reply).expect("an outcome"));
        }),
        "straight" => {
            let (mut out, mut headers) = (Vec::with_capacity(1024), Headers::default());
            repeat(&mut |_| {
                let checks = evaluate();
                let check = checks.first().expect("one policy");
                let (plan, ask) = (config.plan(check).expect("its limits"), Ask::new(1, check.cost));
                out.clear();
                plan.check(&check.tag, ask, None, Form::Evalsha, &mut out);
                let (reply, _) = resp::decode(black_box(&reply)).expect("RESP").expect("a whole reply");
                let outcome = plan.outcome(&reply).expect("an outcome");
                let answer = CheckAnswer::Store(Decision::new(&outcome, plan.limits(), 0, ask));
                let answers = policy::answers(&config.policies, std::iter::once((check, &answer)));
                assert!(matches!(response::decide(&answers), Verdict::Admit(_)));
                response::headers(&answers, &mut headers);
                black_box((&out, &headers));
            });
        }
        "denied" => {
            repeat(&mut |core| {
                if core.arrive(&ANN).is_none() {
                    core.ask(&answer(0, 3_600_000_000, NOW));
                }
            });
        }
        "leased" => {
            repeat(&mut |core| {
                if core.arrive(&ANN).is_none() {
                    core.ask(&answer(1_000_000, 0, NOW));
                }
            });
        }
        "exact" => repeat(&mut |core| {
            core.arrive(&ANN);
            assert_eq!(core.ask(&reply), 1);
        }),
        "exact-16" => {
            let reply = answer(16, 0, NOW);
            repeat(&mut |core| {
                (0..16).for_each(|_| assert!(core.arrive(&ANN).is_none()));
                assert_eq!(core.ask(&reply), 16);
            });
        }
        "key-clear" => key(rounds, r#"{"header": {"name": "authorization"}}"#),
        "key-hashed" => key(rounds, r#"{"header": {"name": "authorization"}, "hash": true}"#),
        "key-credential" => key(rounds, r#"{"credential": {}}"#),
        "key-normalized" => {
            key(rounds, r#"{"header": {"name": "x-tenant"}, "normalize": ["trim", "lowercase", "email"]}"#);
        }
        "distinct" => checked(
            rounds,
            r#""subject": [{"client_address": {}}], "limits": [{"name": "l", "algorithm": "distinct", "limit": 20,
                "window": "1d", "of": [{"header": {"name": "x-tenant"}}]}]"#,
        ),
        "rejected" => rejected(rounds, "{}"),
        "rejected-own" => rejected(rounds, OWN),
        "query-1" => hostile(rounds, "one query condition", "query &a"),
        "query-20" => hostile(rounds, "twenty query conditions", "query &a"),
        "cookies" => hostile(rounds, "a cookie", "cookie ;a"),
        "agent" => {
            hostile(rounds, "an expression of the documents", "user-agent of 1024 bytes of \"Crawle\"")
        }
        "expression" => hostile(rounds, "the largest expression, 0", "user-agent of 128 bytes of \"a\""),
        "subject" => hostile(rounds, "twelve policies of one subject", "x-user of \"{\""),
        "path" => hostile(rounds, "twelve policies of one subject", "path of 2048 bytes of \"/%2e\""),
        "lines" => hostile(rounds, "twelve policies of one subject", "x-user of \",a\", 2 lines"),
        "examples" => hostile(rounds, "all examples in one", "all at once, x-tenant"),
        other => panic!("no case {other}"),
    }
}

/// A request that is expensive to match, under a configuration of `tests/support/hostile.rs`.
fn hostile(rounds: u32, configuration: &str, request: &str) {
    let configurations = hostile::configurations();
    let config = configurations.iter().find(|(name, _)| name == configuration);
    let (_, config) = config.unwrap_or_else(|| panic!("there is no {configuration}"));
    let requests = hostile::requests();
    let sample = requests.iter().find(|(name, _)| name == request);
    let (_, sample) = sample.unwrap_or_else(|| panic!("there is no {request}"));
    (0..rounds).for_each(|_| {
        black_box(config.evaluate_and_note(black_box(sample), None, &mut Unasked::new()));
    });
}

/// A request whose subject is this part, such as its API key.
fn key(rounds: u32, part: &str) {
    checked(rounds, &format!(r#""subject": [{part}], {LIMITS}"#));
}

/// A request that a policy with these fields checks.
fn checked(rounds: u32, fields: &str) {
    let config = format!(
        r#"{{"store": {{"hash_secret": "a secret of benches"}}, "policies": [{{"name": "p", {fields}}}]}}"#
    );
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let visitor = Visitor(String::from("/api/things?page=2"));
    (0..rounds).for_each(|_| {
        let found = black_box(config.evaluate_and_note(black_box(&visitor), None, &mut Unasked::new()));
        assert!(matches!(found, Evaluation::Check(_)));
    });
}

/// A response with bodies by `accept`, placeholders, headers and CORS.
const OWN: &str = r#"{"format": "json", "body": "{\"retry_after\": {retry_after}, \"request_id\": {request_id}}",
    "bodies": [{"format": "html", "body": "<p>Try again in {retry_after} seconds. Request {request_id}</p>"}],
    "add_headers": [{"name": "cache-control", "value": "no-store"}], "cors": {"origins": ["https://app.example.com"]}}"#;

/// The answer to a request that a policy with this `response` denies.
fn rejected(rounds: u32, own: &str) {
    let config = format!(r#"{{"policies": [{{"name": "p", {LIMITS}, "response": {own}}}]}}"#);
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let Evaluation::Check(checks) = config.evaluate_and_note(&ANN, None, &mut Unasked::new()) else {
        panic!("the policy applies to this request")
    };
    let check = checks.first().expect("one policy");
    let plan = config.plan(check).expect("its limits");
    let reply = answer(0, 3_600_000_000, NOW);
    let (reply, _) = resp::decode(&reply).expect("RESP").expect("a whole reply");
    let outcome = plan.outcome(&reply).expect("an outcome");
    let sent = |name: &str| match name {
        "accept" => Some(b"text/html,application/xhtml+xml,*/*;q=0.8".to_vec()),
        "origin" => Some(b"https://app.example.com".to_vec()),
        "x-request-id" => Some(b"0b2c1a5e-7f0e-4d5e-9c57-0d2f6a1b7c11".to_vec()),
        _ => None,
    };
    (0..rounds).for_each(|_| {
        let decision = Decision::new(black_box(&outcome), plan.limits(), 0, Ask::new(1, check.cost));
        let answer = CheckAnswer::Store(decision);
        let answers = policy::answers(&config.policies, std::iter::once((check, &answer)));
        let Verdict::Reject(rejection) = response::verdict(&answers) else { panic!("it is denied") };
        assert_eq!(black_box(rejection.reply(&sent)).status, 429);
    });
}

/// A body of 64 KiB, and the path that is wanted in it.
fn body(case: &str) -> Option<(BodyForm, &'static str, Vec<u8>)> {
    let sized = |part: &str, begin: &str, separator: &str, end: &str| {
        let room = 64 * 1024 - begin.len() - end.len() - part.len();
        let parts = vec![part; room / (part.len() + separator.len()) + 1].join(separator);
        let padding = " ".repeat(room + part.len() - parts.len());
        [begin, &parts, &padding, end].concat().into_bytes()
    };
    // A model's response, as its API sends it.
    let sentence = r#"It\u2019s a \"plain\" answer, of some words in a row, as a model gives it.\n\nAnd another paragraph follows. "#;
    // Small objects: more structure than text.
    let row = r#"{"id": 4711, "name": "a thing", "price": 12.50, "tags": ["x", "y"], "stock": {"a": 1, "b": null}, "usage": true}"#;
    let chunk = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1741569952,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null}

"#;
    let (wanted, usage) = (
        "usage.total_tokens",
        r#""usage": {"prompt_tokens": 19, "completion_tokens": 0, "total_tokens": 19}}"#,
    );
    let text = |language: &str| {
        let begin = r#"{"choices": [{"message": {"role": "assistant", "content": ""#;
        sized(language, begin, "", &format!(r#""}}}}], {usage}"#))
    };
    Some(match case {
        "body-text" => (BodyForm::Json, wanted, text(sentence)),
        "body-unicode" => (BodyForm::Json, wanted, text("模型的回答由文字组成。")),
        "body-rows" => (BodyForm::Json, wanted, sized(row, r#"{"rows": ["#, ", ", &format!("], {usage}"))),
        "body-none" => (BodyForm::Json, "login", sized(row, r#"{"rows": ["#, ", ", &format!("], {usage}"))),
        "body-items" => (BodyForm::Json, "[*].stock.a", sized(row, "[", ", ", "]")),
        "body-events" => {
            let end = format!("\n\ndata: {{\"choices\":[],{usage}\n\ndata: [DONE]\n\n");
            (BodyForm::EventStream, wanted, sized(chunk, "", "", &end))
        }
        _ => return None,
    })
}

/// Reads a body in pieces of 16 KiB, as they arrive from a socket.
fn scan(rounds: u32, form: BodyForm, path: &str, body: &[u8]) {
    assert_eq!(body.len(), 64 * 1024);
    let paths = Rc::new(Paths::new(&[path]).expect("a path"));
    (0..rounds).for_each(|_| {
        let mut scanner = Scanner::new(form, Rc::clone(&paths));
        black_box(body).chunks(16 * 1024).for_each(|piece| scanner.feed(piece));
        assert_eq!(scanner.end(), Ok(()));
        assert_eq!(scanner.last(0).is_some(), path != "login");
    });
}

/// The body, and the true cost: by the preset for all providers, by that for one, and by paths that one writes for three.
fn settled(case: &str) -> Option<(&str, &'static str)> {
    let (of, by) = case.strip_prefix("settle-")?.split_once(',')?;
    let settle = match by {
        "auto" => r#"{"usage": {"weights": {"output": 4}}}"#,
        "kinds" => r#"{"usage": {"weights": {"cached_input": "0.1", "output": 4, "reasoning": 5}}}"#,
        "openai" => r#"{"usage": {"provider": "openai", "weights": {"output": 4}}}"#,
        "paths" => {
            r#"{"body_json": {"sum": [
                {"paths": ["usage.prompt_tokens", "usage.input_tokens", "message.usage.input_tokens", "response.usage.input_tokens",
                    "usageMetadata.promptTokenCount", "[*].usageMetadata.promptTokenCount"]},
                {"paths": ["usage.completion_tokens", "usage.output_tokens", "response.usage.output_tokens",
                    "usageMetadata.candidatesTokenCount", "[*].usageMetadata.candidatesTokenCount"], "weight": 4},
                {"paths": ["usageMetadata.thoughtsTokenCount", "[*].usageMetadata.thoughtsTokenCount"], "weight": 4}]}}"#
        }
        _ => return None,
    };
    Some((of, settle))
}

/// Tells the true cost by a response with this body, which arrives in pieces of 16 KiB.
fn settles(rounds: u32, form: BodyForm, cost: &str, body: &[u8]) {
    let config = format!(r#"{{"policies": [{{"name": "p", {LIMITS}, "settle": [{{"cost": {cost}}}]}}]}}"#);
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let settle = &config.policies[0].settle;
    let kind = if form == BodyForm::Json { "application/json" } else { "text/event-stream" };
    (0..rounds).for_each(|_| {
        let mut settling = Settling::new(settle, Micros::ZERO, None);
        settling.headers(settle, &|name| match name {
            ":status" => Some(b"200".to_vec()),
            "content-type" => Some(kind.into()),
            _ => None,
        });
        black_box(body).chunks(16 * 1024).for_each(|piece| settling.body(piece.len(), piece));
        settling.whole();
        assert_eq!(settling.at_end(settle, 7, Micros::ZERO), 19);
    });
}

/// The list that contains the conditions on other tenants.
#[derive(Clone, Copy)]
enum List {
    /// Each is the condition of a policy of its own.
    Policies,
    /// In this global list.
    Global(&'static str),
    /// In this list of the only policy.
    OfPolicy(&'static str),
}

/// The condition on tenant `{}`, where it is, and how many there are: for cases such as `host-256`.
fn other_tenants(case: &str) -> Option<(List, &'static str, u32)> {
    let (by, size) = case.rsplit_once('-')?;
    let source = r#"{"client_address": ["10.0.{}.0/24"]}"#;
    let path = r#"{"path": {"prefix": "/tenant-{}"}}"#;
    let (list, condition) = match by {
        "host" => (List::Policies, r#"{"host": ["tenant-{}.example.com"]}"#),
        "path" => (List::Policies, path),
        "header" => (List::Policies, r#"{"header": {"name": "x-tenant", "exact": "tenant-{}"}}"#),
        "regex" => (List::Policies, r#"{"path": {"regex": "/tenant-{}/[0-9]+"}}"#),
        "regex-host" => {
            (List::Policies, r#"{"host": ["tenant-{}.example.com"], "path": {"regex": ".*/things"}}"#)
        }
        "source" => (List::Policies, source),
        "parameter" => (List::Policies, r#"{"query": {"name": "page", "exact": "tenant-{}"}}"#),
        "time" => (List::Policies, r#"{"time": {"hours": "08:00-18:00"}}"#),
        "parameters" | "names" => (List::Policies, r#"{"query": {"name": "tenant-{}"}}"#),
        "deny" => (List::Global("deny"), source),
        "exempt" => (List::Global("exempt"), path),
        "deny-parameter" => (List::Global("deny"), r#"{"query": {"name": "page", "exact": "tenant-{}"}}"#),
        "policy-deny" => (List::OfPolicy("deny"), source),
        "policy-exempt" => (List::OfPolicy("exempt"), path),
        _ => return None,
    };
    Some((list, condition, size.parse().ok()?))
}

/// A request to a path to which no policy applies.
struct Visitor(String);

impl Attributes for Visitor {
    fn header(&self, name: &str) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok(match name {
            ":method" => Some(Cow::Borrowed(b"GET")),
            ":path" => Some(Cow::Borrowed(self.0.as_bytes())),
            ":authority" => Some(Cow::Borrowed(b"www.example.com")),
            "x-tenant" => Some(Cow::Borrowed(b"visitor")),
            "authorization" => {
                Some(Cow::Borrowed(b"Bearer sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJK"))
            }
            _ => None,
        })
    }

    fn header_lines(&self, _: &str) -> Result<usize, Unreadable> {
        Ok(1)
    }

    /// In the evening.
    fn now(&self) -> Option<Micros> {
        Some(NOW)
    }

    fn property(&self, path: &[&str]) -> Result<Option<Cow<'_, [u8]>>, Unreadable> {
        Ok((path == ["source", "address"]).then_some(Cow::Borrowed(b"192.0.2.1:4711")))
    }
}

/// A request under as many conditions, each on another tenant.
fn unmatched(rounds: u32, (list, condition, size): (List, &str, u32), query: &str) {
    let conditions = |n: u32| condition.replace("{}", &n.to_string());
    let all = (0..size).map(conditions).collect::<Vec<_>>().join(",");
    let policy = |n: u32| format!(r#"{{"name": "p{n}", "match": {}, {LIMITS}}}"#, conditions(n));
    let config = match list {
        List::Policies => {
            let policies: Vec<String> = (0..size).map(policy).collect();
            format!(r#"{{"policies": [{}]}}"#, policies.join(","))
        }
        List::Global(list) => {
            let never = r#"{"method": ["PUT"]}"#;
            format!(r#"{{"{list}": [{all}], "policies": [{{"name": "p", "match": {never}, {LIMITS}}}]}}"#)
        }
        List::OfPolicy(list) => format!(r#"{{"policies": [{{"name": "p", "{list}": [{all}], {LIMITS}}}]}}"#),
    };
    let config = Config::parse(config.as_bytes()).expect("a configuration");
    let is_checked = matches!(list, List::OfPolicy(_));
    let visitor = Visitor(format!("/api/things?{query}"));
    (0..rounds).for_each(|_| {
        let found = black_box(config.evaluate_and_note(black_box(&visitor), None, &mut Unasked::new()));
        assert_eq!(matches!(found, Evaluation::Check(_)), is_checked);
    });
}
