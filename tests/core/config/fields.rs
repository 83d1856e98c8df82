// SPDX-License-Identifier: Apache-2.0
//! Every field reaches what it is for.

use std::rc::Rc;

#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use weir::config::{self, Config, Host, Topology};
use weir::limit::{
    Align, Ban, Concurrency, FixedWindow, LeakyBucket, Limit, Period, Refill, SlidingLog, SlidingWindow,
    TokenBucket, UtcOffset,
};
use weir::policy::{Lease, Mode, OnFailure};
use weir::request::client_ip::{Network, Proxies, Trust};
use weir::response::{Api, Body, Cors, Kind, LimitView, Own, Settings, Style, Template, Upstream, WarnAt};
use weir::time::Micros;

use super::*;

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
            calendar(Period::MONTH, 840),
            Some(s(31 * 86_400)),
        ),
        (
            r#""algorithm": "fixed_window", "limit": 7, "align": "month", "anchor": 31"#,
            calendar(Period::Month { anchor: 31 }, 0),
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
            r#""algorithm": "leaky_bucket", "rate": "4/2s", "burst": 6, "max_delay": "2s""#,
            LeakyBucket::new(4, s(2), 6, s(2)).unwrap().into(),
            Some(s(5)),
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
            [LimitView::new("l".into(), limit.quota(), window).of(&limit)],
            "{row}: what clients see"
        );
    }
}

/// With `regions: share`, a part of the limit is in Redis.
#[test]
fn every_algorithm_can_warn() {
    let warns = |beside: &str, limit: &str| {
        let text = format!(
            r#"{{"regions": {{"here": "a", "all": [{{"name": "a", "cluster": "a"}}, {{"name": "b", "cluster": "b"}}]}},
            "policies": [{{"name": "p", {beside} "limits": [{{"name": "l", "warn_at_percent": 75, {limit}}}]}}]}}"#
        );
        let config = Config::parse(text.as_bytes()).unwrap_or_else(|errors| panic!("{limit}: {errors:?}"));
        config.policies[0].tiers.tiers[0].views[0].warn_at()
    };
    for (row, limit, _) in limits() {
        assert_eq!(warns("", row), Some(WarnAt { percent: 75, quota: limit.quota() }), "{row}");
    }
    let bucket = r#""algorithm": "leaky_bucket", "rate": "1/s", "burst": 10"#;
    let (percent, quota) = (75, 5);
    assert_eq!(warns(r#""regions": {"share": {}},"#, bucket), Some(WarnAt { percent, quota }));
}

#[test]
fn clients_are_told_of_bytes_where_all_costs_are_bytes() {
    const BYTES: &str = r#""content_length": {"per": 1, "max": 100}"#;
    let settled = |cost: &str| format!(r#""settle": [{{"cost": {{{cost}}}}}]"#);
    #[rustfmt::skip]
    let rows = [
        ("no cost", String::new(), false),
        ("a constant", r#""cost": {"constant": 5}"#.into(), false),
        ("bytes", format!(r#""cost": {{{BYTES}}}"#), true),
        ("kilobytes", r#""cost": {"content_length": {"per": 1024}}"#.into(), false),
        ("a header", r#""cost": {"header": {"name": "x-cost"}}"#.into(), false),
        ("bytes in one case, a constant otherwise", format!(r#""costs": [{{"when": {{"method": ["PUT"]}}, "cost": {{{BYTES}}}}}]"#), true),
        ("bytes in one case, a header otherwise",
         format!(r#""costs": [{{"when": {{"method": ["PUT"]}}, "cost": {{{BYTES}}}}}], "cost": {{"header": {{"name": "x-cost"}}}}"#),
         false),
        ("the bytes of responses", settled(r#""response_bytes": {}"#), true),
        ("the bytes of uploads", settled(r#""request_bytes": {}"#), true),
        ("kilobytes of responses", settled(r#""response_bytes": {"per": 1024}"#), false),
        ("bytes both ways", format!(r#""cost": {{{BYTES}}}, {}"#, settled(r#""response_bytes": {}"#)), true),
        ("bytes of requests, back if they fail",
         format!(r#""cost": {{{BYTES}}}, "settle": [{{"when": {{"status": ["5xx"]}}, "cost": {{"constant": 0}}}}, {{"cost": {{"reserved": {{}}}}}}]"#),
         true),
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
    let lease = Lease { max: 9, min: 4, duration: Micros::from_secs(3), is_auto: false };
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
    let template = |kind, text| Some(Template::new(kind, text).unwrap());
    let own = |own| Some(Rc::new(own));
    #[rustfmt::skip]
    let rows = [
        (r#""warning_header": true"#, Settings { warns: true, ..Settings::default() }),
        (r#""status": 503"#, Settings { status: 503, ..Settings::default() }),
        (r#""deny_status": 404"#, Settings { deny_status: 404, ..Settings::default() }),
        (r#""ban_status": 403"#, Settings { ban_status: 403, ..Settings::default() }),
        (r#""format": "problem""#, Settings::default()),
        (r#""format": "json""#, Settings { body: Body::Json, ..Settings::default() }),
        (r#""format": "json", "body": "{}""#, Settings { body: Body::Json, own: own(Own { body: template(Kind::Json, "{}"), ..Own::default() }), ..Settings::default() }),
        (r#""format": "text""#, Settings { body: Body::Text, ..Settings::default() }),
        (r#""format": "text", "body": "no""#, Settings { body: Body::Text, own: own(Own { body: template(Kind::Text, "no"), ..Own::default() }), ..Settings::default() }),
        (r#""format": "html", "body": "<p>""#, Settings { body: Body::Empty, own: own(Own { body: template(Kind::Html, "<p>"), ..Own::default() }), ..Settings::default() }),
        (
            r#""bodies": [{"format": "text", "body": "no"}, {"format": "html", "body": "<p>"}]"#,
            Settings { own: own(Own { bodies: template(Kind::Text, "no").into_iter().chain(template(Kind::Html, "<p>")).collect(), ..Own::default() }), ..Settings::default() },
        ),
        (
            r#""add_headers": [{"name": "x-a", "value": "{limit}"}]"#,
            Settings { own: own(Own { headers: vec![("x-a".into(), template(Kind::Header, "{limit}").unwrap())], ..Own::default() }), ..Settings::default() },
        ),
        (
            r#""cors": {"origins": ["https://a.test"]}"#,
            Settings { own: own(Own { cors: Some(Cors { origins: vec!["https://a.test".into()], credentials: false }), ..Own::default() }), ..Settings::default() },
        ),
        (
            r#""cors": {"origins": ["https://a.test"], "credentials": true}"#,
            Settings { own: own(Own { cors: Some(Cors { origins: vec!["https://a.test".into()], credentials: true }), ..Own::default() }), ..Settings::default() },
        ),
        (r#""format": "empty""#, Settings { body: Body::Empty, ..Settings::default() }),
        (r#""style": "openai""#, Settings { body: Body::Api(Api::OpenAi), style: Style::OpenAi, ..Settings::default() }),
        (r#""style": "anthropic""#, Settings { body: Body::Api(Api::Anthropic), style: Style::Anthropic, ..Settings::default() }),
        (r#""style": "gemini""#, Settings { body: Body::Api(Api::Gemini), style: Style::None, ..Settings::default() }),
        (r#""style": "json_rpc""#, Settings { body: Body::Api(Api::JsonRpc), ..Settings::default() }),
        (r#""style": "graphql""#, Settings { body: Body::Api(Api::GraphQl), ..Settings::default() }),
        (r#""style": "openai", "headers": "draft_11""#, Settings { body: Body::Api(Api::OpenAi), ..Settings::default() }),
        (r#""headers": "openai""#, Settings { style: Style::OpenAi, ..Settings::default() }),
        (r#""headers": "anthropic""#, Settings { style: Style::Anthropic, ..Settings::default() }),
        (r#""headers": "draft_11""#, Settings::default()),
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

/// If a dynamic module cannot read an attribute, it is refused in every field. The plugin can read it.
#[test]
fn a_dynamic_module_refuses_attributes_that_it_cannot_read() {
    let bad = r#"{"attribute": {"path": ["source", "port"]}}"#;
    let when = r#"{"attribute": {"path": ["source", "port"], "present": true}}"#;
    #[rustfmt::skip]
    let rows = [
        ("policies[0].subject[1]", format!(r#"{{P, "subject": [{{"host": {{}}}}, {bad}]}}"#)),
        ("policies[0].scale.from", format!(r#"{{P, "scale": {{"from": {bad}, "max": 2}}}}"#)),
        ("policies[0].tiers.by", format!(r#"{{"name": "p", "tiers": {{"by": {bad}, "default": "t", "limits": {{"t": [{{L}}]}}}}}}"#)),
        ("policies[0].match", format!(r#"{{P, "match": {{"any": [{{"method": ["GET"]}}, {{"all": [{when}, {{"not": {when}}}]}}]}}}}"#)),
        ("policies[0].match", format!(r#"{{P, "match": {{"not": {when}}}}}"#)),
        ("policies[0].deny[0]", format!(r#"{{P, "deny": [{when}]}}"#)),
        ("policies[0].exempt[1]", format!(r#"{{P, "exempt": [{{"method": ["GET"]}}, {when}]}}"#)),
        (
            "policies[0].priority[0].when",
            format!(
                r#"{{"name": "p", "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 100}}], "priority": [{{"when": {when}, "percent": 10}}, {{"when": {{}}, "percent": 80}}]}}"#
            ),
        ),
        ("policies[0].costs[0].when", format!(r#"{{P, "costs": [{{"when": {when}, "cost": {{"constant": 2}}}}]}}"#)),
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

/// The attributes that a dynamic module can read are accepted; for metadata inside other metadata the error names a remedy.
#[test]
fn a_dynamic_module_accepts_the_attributes_that_it_reads() {
    let parse = |path: &str| {
        let text = format!(r#"{{"policies": [{{P, "subject": [{{"attribute": {{"path": [{path}]}}}}]}}]}}"#);
        Config::parse_for(Host::Native, json(&text).as_bytes()).map(drop)
    };
    for path in [
        r#""request", "headers", "x-user""#,
        r#""filter_state", "user""#,
        r#""metadata", "filter_metadata", "auth", "user""#,
        r#""xds", "route_name""#,
    ] {
        assert_eq!(parse(path), Ok(()), "{path}");
    }
    for (path, said) in [
        (r#""metadata", "filter_metadata", "auth", "user", "name""#, "set_filter_state"),
        (r#""metadata", "filter_metadata", "auth""#, "metadata.filter_metadata.NAMESPACE.KEY"),
    ] {
        let errors = parse(path).expect_err(path);
        assert!(errors.iter().any(|error| error.to_string().contains(said)), "{path}: {errors:?}");
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

/// With 32 regions, each is in debt to 31: the debt of a limit lasts for a 31st of the time in which it becomes whole again.
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
fn a_sum_has_at_most_twenty_paths() {
    for (paths, loads) in [(20, true), (21, false)] {
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
            "policies[0].settle[0].cost.body_json.sum: found {paths} paths, allowed: up to 20 different paths in one sum"
        );
        assert_eq!(errors(&text), if loads { vec![] } else { vec![wanted] });
    }
}

#[test]
fn what_hosts_ask_of_a_configuration() {
    let of = |text: &str| Config::parse(json(text).as_bytes()).unwrap();
    let plain = of(r#"{"policies": [{P}]}"#);
    assert!(
        !plain.settles
            && plain.body(&crate::written::request("POST /")).is_none()
            && plain.unreadable_body().is_none()
    );
    let settles =
        of(r#"{"policies": [{P, "settle": [{"cost": {"constant": 2}}]}, {"name": "q", "limits": [{L}]}]}"#);
    assert!(settles.settles);
    let reads = of(r#"{"policies": [{P, "subject": [{"body_json": {"path": "u"}}]}]}"#);
    assert!(reads.body(&crate::written::request("POST /")).is_some() && reads.unreadable_body().is_some());
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
