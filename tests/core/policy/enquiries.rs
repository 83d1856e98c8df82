// SPDX-License-Identifier: Apache-2.0
//! Quota requests: the requests that are one, their policies, and their subjects. The hostile rows are quota requests made to read the
//! quota of another client.

use weir::config::{Config, Evaluation, Step, Unasked, UnaskedRuling};
use weir::policy::{Denial, Mode};
use weir::request::Request;
use weir::request::sample::Sample;

use crate::policy::LIMITS;
use crate::table::each;
use crate::written::request;

/// The checks of a quota request, `?` before those that charge nothing; or another result of the request.
fn asks(config: &Config, sample: &Sample) -> String {
    match config.evaluate(sample) {
        Evaluation::QuotaRequest(checks) => {
            let each = checks.iter().map(|check| {
                let mark = if check.mode == Mode::QuotaRequest { "?" } else { "" };
                format!("{mark}{} {}", String::from_utf8_lossy(&check.tag), check.cost)
            });
            format!("[{}]", each.collect::<Vec<_>>().join(", "))
        }
        Evaluation::Check(checks) => format!("a request, {} checks", checks.len()),
        Evaluation::Deny(..) => String::from("denied"),
        Evaluation::Admit => String::from("admitted"),
        Evaluation::AwaitBody(_) => String::from("waits for its body"),
    }
}

fn rows(fields: &str, policies: &[&str], rows: &[(&str, &str, &str)]) {
    let policies: Vec<_> = policies.iter().map(|policy| format!("{{{policy}, {LIMITS}}}")).collect();
    let config = format!(r#"{{{fields}, "policies": [{}]}}"#, policies.join(", "));
    let config = crate::policy::config(&config);
    each(
        rows.iter().map(|(name, text, wanted)| (*name, asks(&config, &request(text)), (*wanted).to_owned())),
    );
}

const QUOTA: &str = r#""quota": {}"#;
const ALL: &str = r#""name": "all""#;
const WRITES: &str =
    r#""name": "writes", "match": {"method": ["POST"], "path": {"prefix": "/v1"}}, "cost": {"constant": 5}"#;

#[test]
fn an_enquiry_has_one_method_and_one_spelling_of_its_path() {
    rows(
        QUOTA,
        &[ALL],
        &[
            ("an enquiry", "GET /.well-known/quota", "[?{all|192.0.2.1} 1]"),
            ("with a query", "GET /.well-known/quota?x", "[?{all|192.0.2.1} 1]"),
            ("with an absolute target", "GET http://a/.well-known/quota", "[?{all|192.0.2.1} 1]"),
            ("another method", "HEAD /.well-known/quota", "a request, 1 checks"),
            ("another path", "GET /.well-known/quotas", "a request, 1 checks"),
            ("another spelling", "GET /.well-known//quota", "a request, 1 checks"),
            ("another spelling, encoded", "GET /.well-known/quot%61", "a request, 1 checks"),
            ("a slash at its end", "GET /.well-known/quota/", "a request, 1 checks"),
            ("a gRPC call", "GET /.well-known/quota\ncontent-type: application/grpc", "a request, 1 checks"),
        ],
    );
    rows(
        r#""quota": {"method": "POST", "path": "/quota"}"#,
        &[ALL],
        &[
            ("as configured", "POST /quota", "[?{all|192.0.2.1} 1]"),
            ("the default", "GET /.well-known/quota", "a request, 1 checks"),
        ],
    );
    rows(r#""deny": []"#, &[ALL], &[("none is configured", "GET /.well-known/quota", "a request, 1 checks")]);
}

#[test]
fn an_enquiry_asks_the_policies_of_the_request_that_it_names() {
    rows(
        QUOTA,
        &[ALL, WRITES],
        &[
            ("a path", "GET /.well-known/quota?path=/v1/x", "[?{all|192.0.2.1} 1]"),
            (
                "a path and a method",
                "GET /.well-known/quota?path=/v1/x&method=POST",
                "[?{all|192.0.2.1} 1, ?{writes|192.0.2.1} 5]",
            ),
            (
                "encoded, with a query of its own",
                "GET /.well-known/quota?path=%2Fv1%2Fx%3Fa%3Db%26c&method=post",
                "[?{all|192.0.2.1} 1, ?{writes|192.0.2.1} 5]",
            ),
            ("another path", "GET /.well-known/quota?path=/v2&method=POST", "[?{all|192.0.2.1} 1]"),
            ("nothing", "GET /.well-known/quota?path=&method=", "[?{all|192.0.2.1} 1]"),
            ("no path", "GET /.well-known/quota?path=%00%ff", "[?{all|192.0.2.1} 1]"),
            (
                "itself",
                "GET /.well-known/quota?path=/.well-known/quota%3Fpath=/v1&method=GET",
                "[?{all|192.0.2.1} 1]",
            ),
        ],
    );
    rows(
        QUOTA,
        &[
            r#""name": "shadow", "mode": "shadow""#,
            r#""name": "none", "enforce_percent": 0"#,
            r#""name": "exempt", "exempt": [{"path": {"prefix": "/free"}}]"#,
            r#""name": "denies", "match": {"path": {"prefix": "/a"}}, "deny": [{"path": {"prefix": "/a/b"}}]"#,
            r#""name": "shadow-denies", "mode": "shadow", "deny": [{"path": {"prefix": "/a"}}]"#,
            r#""name": "body", "match": {"body_json": {"path": "user", "exact": "ann"}}"#,
        ],
        &[
            ("a policy in shadow shows nothing", "GET /.well-known/quota?path=/free", "[]"),
            ("what is not exempt", "GET /.well-known/quota?path=/x", "[?{exempt|192.0.2.1} 1]"),
            (
                "what is not denied",
                "GET /.well-known/quota?path=/a",
                "[?{exempt|192.0.2.1} 1, ?{denies|192.0.2.1} 1]",
            ),
            ("what is denied", "GET /.well-known/quota?path=/a/b", "denied"),
        ],
    );
}

/// Costs and tiers are those of the request that it names, too.
#[test]
fn an_enquiry_asks_at_the_cost_and_in_the_tier_of_the_request_that_it_names() {
    let config = crate::policy::config(&format!(
        r#"{{{QUOTA}, "policies": [
            {{"name": "cost", "costs": [{{"when": {{"path": {{"prefix": "/expensive"}}}}, "cost": {{"constant": 7}}}}], {LIMITS}}},
            {{"name": "tier", "tiers": {{"by": {{"path_segment": {{"index": 1}}}}, "default": "small", "limits":
                {{"small": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}}],
                  "expensive": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "9/s"}}]}}}}}}]}}"#
    ));
    for (path, wanted) in
        [("/expensive/x", [(7, "expensive"), (1, "expensive")]), ("/x", [(1, "small"), (1, "small")])]
    {
        let sample = request(&format!("GET /.well-known/quota?path={path}"));
        let Evaluation::QuotaRequest(checks) = config.evaluate(&sample) else { panic!("an enquiry") };
        let tier = &config.policies[1].tiers.tiers[checks[1].tier].name;
        assert_eq!([(checks[0].cost, tier.as_str()), (checks[1].cost, tier)], wanted, "{path}");
    }
}

#[test]
fn the_global_lists_decide_about_both_requests() {
    rows(
        r#""quota": {}, "deny": [{"path": {"prefix": "/private"}}, {"client_address": ["192.0.2.66"]}],
           "exempt": [{"path": {"prefix": "/healthz"}}, {"path": {"prefix": "/.well-known"}}]"#,
        &[ALL],
        &[
            ("denied as the request would be", "GET /.well-known/quota?path=/private/x", "denied"),
            ("denied itself", "GET /.well-known/quota?path=/x\n@client: 192.0.2.66:1", "denied"),
            ("exempt as the request would be", "GET /.well-known/quota?path=/healthz", "[]"),
            ("only the enquiry is exempt", "GET /.well-known/quota?path=/x", "[?{all|192.0.2.1} 1]"),
        ],
    );
}

/// A quota request is counted only if it is rejected: it is no request that passes. An observer of the steps sees all of them.
#[test]
fn an_enquiry_that_is_denied_is_counted() {
    let lists = r#""exempt": [{"path": {"exact": "/free"}}], "deny": [{"path": {"exact": "/no"}}]"#;
    let config =
        crate::policy::config(&format!(r#"{{{QUOTA}, {lists}, "policies": [{{{ALL}, {LIMITS}}}]}}"#));
    let rows = [
        ("about a path that is exempt", "/free", vec![], 1),
        ("about a path that is denied", "/no", vec![(None, UnaskedRuling::Denied(Denial::Listed(0)))], 1),
        ("about another", "/x", vec![], 1),
    ];
    for (name, path, noted, steps) in rows {
        let sample = request(&format!("GET /.well-known/quota?path={path}"));
        let mut unasked = Unasked::new();
        let evaluation = config.evaluate_and_note(&sample, None, &mut unasked);
        assert_eq!(evaluation, config.evaluate(&sample), "{name}");
        assert_eq!(unasked, noted, "{name}");
        let mut seen = 0;
        let _ = config.evaluate_steps(&Request::new(&sample, &config.trust), |step| {
            seen += usize::from(!matches!(step, Step::QuotaRequest(..)));
        });
        assert_eq!(seen, steps, "{name}");
    }
}

/// A condition on an attribute of the request sees the request that the quota request names, however the attribute says its method or path.
#[test]
fn an_enquiry_has_the_attributes_of_the_request_that_it_names() {
    const NAMED: &str = "GET /.well-known/quota?path=/a%3Fb%3Dc&method=POST\n@source.port: 7";
    for (path, value) in [
        (r#""request", "method""#, "POST"),
        (r#""request", "headers", ":method""#, "POST"),
        (r#""request", "path""#, "/a?b=c"),
        (r#""request", "headers", ":path""#, "/a?b=c"),
        (r#""request", "url_path""#, "/a"),
        (r#""request", "query""#, "b=c"),
        (r#""source", "port""#, "7"),
    ] {
        for (wanted, is_met) in [(value, true), ("another", false)] {
            let policy = format!(
                r#""name": "p", "match": {{"attribute": {{"path": [{path}], "exact": "{wanted}"}}}}"#
            );
            let asks = if is_met { "[?{p|192.0.2.1} 1]" } else { "[]" };
            rows(QUOTA, &[&policy], &[(path, NAMED, asks)]);
        }
    }
    const NO_QUERY: &str = "GET /.well-known/quota?path=/a";
    let policy = r#""name": "p", "match": {"attribute": {"path": ["request", "query"], "present": false}}"#;
    rows(QUOTA, &[policy], &[("no query", NO_QUERY, "[?{p|192.0.2.1} 1]")]);
}

/// `weir explain` shows which request is meant.
#[test]
fn an_observer_is_told_the_request_that_an_enquiry_names() {
    let config = crate::policy::config(&format!(r#"{{{QUOTA}, "policies": [{{{ALL}, {LIMITS}}}]}}"#));
    let mut named = Vec::new();
    let sample = request("GET /.well-known/quota?path=/a%3Fb&method=PUT");
    let _ = config.evaluate_steps(&Request::new(&sample, &config.trust), |step| {
        if let Step::QuotaRequest(method, target) = step {
            named.push((method.to_vec(), target.to_vec()));
        }
    });
    assert_eq!(named, [(b"PUT".to_vec(), b"/a?b".to_vec())]);
}

#[test]
fn the_subject_is_the_enquirys_own() {
    const TENANT: &str = r#""name": "tenant", "subject": [{"path_segment": {"index": 2}}]"#;
    const BODY: &str =
        r#""name": "user", "subject": [{"body_json": {"path": "user"}, "on_missing": "deny"}]"#;
    const ROUTE: &str = r#""name": "route", "subject": [{"route": {}}]"#;
    const RAW: &str = r#""name": "raw", "subject": [{"attribute": {"path": ["request", "path"]}}]"#;
    const KEY: &str = r#""name": "key", "subject": [{"query": {"name": "api_key"}, "on_missing": "skip"}]"#;
    const PLAN: &str =
        r#""name": "header", "subject": [{"header": {"name": "x-user"}, "on_missing": "deny"}]"#;
    rows(
        QUOTA,
        &[TENANT, BODY, ROUTE, RAW, KEY],
        &[
            (
                "not of the path, the body or the route that it names",
                "GET /.well-known/quota?path=/tenants/bob\n@xds.route_name: r",
                "[]",
            ),
            ("its own parameter", "GET /.well-known/quota?path=/x&api_key=ann", "[?{key|ann} 1]"),
            (
                "not a parameter of the path that it names",
                "GET /.well-known/quota?path=/x%3Fapi_key=bob",
                "[]",
            ),
        ],
    );
    rows(
        QUOTA,
        &[PLAN],
        &[
            ("its own header", "GET /.well-known/quota?path=/x\nx-user: ann", "[?{header|ann} 1]"),
            ("without one", "GET /.well-known/quota?path=/x", "denied"),
            ("with two", "GET /.well-known/quota?path=/x\nx-user: ann\nx-user: bob", "denied"),
        ],
    );
}

#[test]
fn a_policy_may_count_enquiries() {
    const COUNTING: &str = r#""name": "enquiries", "match": {"path": {"exact": "/.well-known/quota"}}"#;
    let quota = r#""quota": {"policy": "enquiries"}, "exempt": [{"path": {"exact": "/free"}}]"#;
    rows(
        quota,
        &[ALL, COUNTING],
        &[
            ("an enquiry", "GET /.well-known/quota?path=/x", "[?{all|192.0.2.1} 1, {enquiries|192.0.2.1} 1]"),
            ("about itself", "GET /.well-known/quota", "[?{all|192.0.2.1} 1, {enquiries|192.0.2.1} 1]"),
            ("about what is exempt", "GET /.well-known/quota?path=/free", "[{enquiries|192.0.2.1} 1]"),
            ("no enquiry", "GET /x", "a request, 1 checks"),
        ],
    );
    // Without a match, requests and quota requests share its limits. A quota request is never free.
    rows(
        r#""quota": {"policy": "all"}"#,
        &[r#""name": "all", "cost": {"constant": 0}"#],
        &[
            ("an enquiry", "GET /.well-known/quota", "[{all|192.0.2.1} 1]"),
            ("no enquiry", "GET /", "a request, 1 checks"),
        ],
    );
}

#[test]
fn what_is_wrong_with_quota_is_said() {
    let wrong = |quota: &str| {
        let text = format!(r#"{{"quota": {quota}, "policies": [{{"name": "all", {LIMITS}}}]}}"#);
        Config::parse(text.as_bytes())
            .err()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect::<String>()
    };
    assert_eq!(wrong("{}"), "");
    for (quota, said) in [
        (r#"{"method": "get"}"#, "quota.method"),
        (r#"{"path": "/a?b"}"#, "quota.path"),
        (r#"{"path": "quota"}"#, "quota.path"),
        (r#"{"policy": "al"}"#, "quota.policy"),
        (r#"{"uri": "/x"}"#, "quota.uri"),
    ] {
        assert!(wrong(quota).contains(said), "{quota}: {}", wrong(quota));
    }
    assert!(wrong(r#"{"policy": "al"}"#).contains("all"), "it names those that there are");
}
