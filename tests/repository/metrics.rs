// SPDX-License-Identifier: Apache-2.0
//! The documents of metrics are correct: the tables of `docs/metrics.md`, the tags in `envoy/`, the names in the dashboard and in the
//! rules, and a page of the runbook for each alert. `WEIR_UPDATE=1` writes the tables.
//!
//! `cli/tests/envoy/operate.rs` runs the dashboard's queries and the rules on a real scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use weir::config::Config;
use weir::engine::{
    BUILD_INFO, CONFIG_HASH, COUNTERS, Catalogue, GAUGES, HISTOGRAMS, Kind, PANICS, PEERS, POLICY_PEERS,
    UNREADABLE,
};

use crate::tables::published;

use weir_support::queries;

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn read(of: &str) -> String {
    fs::read_to_string(path(of)).unwrap_or_else(|error| panic!("{of}: {error}"))
}

/// A configuration whose only policy can count everything that a policy can, and one that can count little.
fn catalogue() -> Catalogue {
    let all = |name: &str, rest: &str| {
        format!(
            r#"{{"name": "{name}", "deny": [{{"method": ["PUT"]}}], "exempt": [{{"method": ["HEAD"]}}], "enforce_percent": 50,
            "subject": [{{"header": {{"name": "x-user"}}, "on_missing": "deny"}}], {rest}, "limits": [
                {{"name": "LIMIT", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10, "warn_at_percent": 80}}]}}"#
        )
    };
    let delayed = |policy: String| policy.replace(r#""burst""#, r#""max_delay": "1s", "burst""#);
    let lease = r#""lease": {"max": 8, "min": 2, "duration": "1s"}"#;
    let ban = r#""ban": {"after": 3, "window": "10m", "duration": "1h"}"#;
    let policies = [
        all("POLICY", &format!(r#"{ban}, "on_failure": "deny", "cost": {{"usage": {{"prices": "usd"}}}}"#)),
        all("LEASED", &format!(r#"{lease}, "on_failure": "local""#)),
        delayed(all("OPEN", r#""on_failure": "allow""#)),
        delayed(all("OWN", r#""on_failure": "local""#)),
    ];
    let across = |way: &str| {
        format!(
            r#"{{"name": "{way}", "regions": {{"{way}": {{}}}}, "limits": [
                {{"name": "LIMIT", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10}}]}}"#
        )
    };
    let config = format!(
        r#"{{"regions": {{"here": "HERE", "all": [{{"name": "HERE", "cluster": "h"}}, {{"name": "PEER", "cluster": "p"}}]}},
        "prices": {{"usd": {{"on_unknown_model": "deny", "models": [{{"model": ["m"], "input": 1, "output": 1}}]}}}},
        "policies": [{}, {}, {}]}}"#,
        policies.join(","),
        across("debit"),
        across("share")
    );
    Catalogue::of(&Config::parse(config.as_bytes()).expect("a configuration"))
}

/// Prometheus's name for a metric of this name in Envoy, and its labels: the tags of `envoy/` are applied as Envoy applies them.
fn in_prometheus(name: &str) -> (String, BTreeMap<String, String>) {
    let full = format!("wasmcustom.{name}");
    let mut labels = BTreeMap::new();
    let mut removed: Vec<std::ops::Range<usize>> = Vec::new();
    for (tag, regex) in tags() {
        let regex = regex_lite::Regex::new(&regex).expect("an expression");
        if let Some(found) = regex.captures(&full) {
            removed.push(found.get(1).expect("what is removed").range());
            labels.insert(tag, found.get(2).expect("the value").as_str().to_owned());
        }
    }
    let kept = full.char_indices().filter(|(at, _)| !removed.iter().any(|range| range.contains(at)));
    let kept: String = kept.map(|(_, character)| character).collect();
    (kept.trim_start_matches("wasmcustom.").replace(['.', '-'], "_"), labels)
}

const TAGS: &str = "stats_config:\n";

/// The tags of the configuration that is shipped, each with its expression.
fn tags() -> Vec<(String, String)> {
    let shipped = read("envoy/weir.yaml");
    let (_, block) = shipped.split_once(TAGS).expect("tags");
    let tag = |line: &str| {
        let (name, regex) = line.trim().strip_prefix("- {tag_name: ")?.split_once(", regex: '")?;
        Some((name.to_owned(), regex.strip_suffix("'}")?.to_owned()))
    };
    let tags: Vec<_> = block.lines().filter_map(tag).collect();
    assert_eq!(tags.len(), 10);
    tags
}

/// The block of a YAML file that begins with this line, without what follows it.
fn block(of: &str, first: &str) -> String {
    let text = read(of);
    let (_, rest) = text.split_once(&format!("\n{first}")).unwrap_or_else(|| panic!("{of} has no {first}"));
    let rest = rest.split_once("\n\n").map_or(rest, |(block, _)| block).trim_end();
    format!("{first}{rest}\n")
}

// --- The document -----------------------------------------------------------------------------------------------------

#[test]
fn the_tables_of_the_document_are_those_of_the_code() {
    let row = |name: &str, meaning: &str| {
        let (prometheus, labels) = in_prometheus(name);
        assert!(labels.is_empty(), "{name}");
        format!("| `wasmcustom.{name}` | `{prometheus}` | {meaning} |\n")
    };
    let table = |rows: String| format!("| Envoy | Prometheus | meaning |\n|---|---|---|\n{rows}");
    let counters = COUNTERS.iter().map(|of| row(of.name, of.meaning));
    let counters = counters.chain([&UNREADABLE, &PANICS].map(|of| row(of.name, of.meaning))).collect();
    let build = "| `wasmcustom.weir.build_info.VERSION.COMMIT` | `weir_build_info{version=\"VERSION\", commit=\"COMMIT\"}`";
    let build = format!("{build} | {} |\n", BUILD_INFO.meaning);
    let gauges = GAUGES
        .iter()
        .map(|of| row(of.name, of.meaning))
        .chain([row(CONFIG_HASH.name, CONFIG_HASH.meaning), build])
        .collect();
    let histograms = HISTOGRAMS.iter().map(|of| row(of.name, of.meaning)).collect();
    let yaml = |block: String| format!("```yaml\n{block}```\n");
    let tables = [
        ("tags", yaml(block("envoy/weir.yaml", TAGS))),
        ("runtime", yaml(block("envoy/native.yaml", "layered_runtime:\n"))),
        ("policies", policies()),
        ("counters", table(counters)),
        ("gauges", table(gauges)),
        ("peers", peers()),
        ("histograms", table(histograms)),
    ];
    published("docs/metrics.md", tables);
}

/// The metrics of other regions, and those of policies there.
fn peers() -> String {
    let of_peers = PEERS.iter().map(|of| ("weir.peer.PEER.", of));
    let of_policies = POLICY_PEERS.iter().map(|of| ("weir.policy.POLICY.peer.PEER.", of));
    let rows = of_peers.chain(of_policies).map(|(prefix, of)| {
        let name = [prefix, of.name].concat();
        let (prometheus, labels) = in_prometheus(&name);
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let kind = if of.kind == Kind::Gauge { "gauge" } else { "counter" };
        format!(
            "| `wasmcustom.{name}` | `{prometheus}{{{}}}` | {kind} | {} |\n",
            labels.join(", "),
            of.meaning
        )
    });
    let rows: String = rows.collect();
    format!("| Envoy | Prometheus | kind | meaning |\n|---|---|---|---|\n{rows}")
}

/// The sources that an outcome can have, and the policies that have these metrics.
fn policies() -> String {
    let mut sources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for definition in catalogue().definitions() {
        let (name, labels) = in_prometheus(&definition.name);
        if name == "weir_policy_requests" {
            sources.entry(labels["outcome"].clone()).or_default().insert(labels["source"].clone());
        }
    }
    let when = BTreeMap::from([
        ("allowed", "always; `lease`, `local` and `on_failure` as the policy has them"),
        ("delayed", "a limit has a `max_delay`; the policy is enforced"),
        ("denied", "the policy is enforced"),
        ("banned", "the policy has a `ban`, and is enforced"),
        ("shadow_denied", "the policy is in `shadow`, or `enforce_percent` is below 100"),
        ("exempt", "the policy has an `exempt` list"),
    ]);
    let document = read("docs/metrics.md");
    let mut table = String::from("| outcome | source | which policies |\n|---|---|---|\n");
    for (outcome, of) in &sources {
        let of: Vec<_> = of.iter().map(|source| format!("`{source}`")).collect();
        of.iter().for_each(|source| {
            assert!(document.contains(&format!("| {source} | ")), "{source} is explained")
        });
        assert!(document.contains(&format!("| `{outcome}` | ")), "{outcome} is explained");
        table += &format!("| `{outcome}` | {} | {} |\n", of.join(", "), when[outcome.as_str()]);
    }
    assert_eq!(sources.len(), when.len());
    table
}

/// Links lead to files that exist, and to sections of them.
#[test]
fn links_of_the_metrics_and_of_the_runbook_lead_somewhere() {
    let mut files = vec![path("docs/metrics.md")];
    files.extend(fs::read_dir(path("docs/runbook")).unwrap().map(|entry| entry.unwrap().path()));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (to, section) =
                link.split_once('#').map_or((link, None), |(to, section)| (to, Some(section)));
            let to = if to.is_empty() { file.clone() } else { file.parent().unwrap().join(to) };
            assert!(to.exists(), "{}: {link}", file.display());
            let Some(section) = section else { continue };
            let target = fs::read_to_string(&to).unwrap();
            let anchor = |heading: &str| {
                let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                text.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect::<String>()
            };
            let found = target.lines().any(|line| line.starts_with('#') && anchor(line) == section);
            assert!(found, "{}: {link}", file.display());
        }
    }
}

// --- The tags ---------------------------------------------------------------------------------------------------------

#[test]
fn each_name_of_envoy_has_its_labels_in_prometheus() {
    #[rustfmt::skip]
    let cases = [
        ("weir.policy.api.requests.denied.denied-until", "weir_policy_requests", "outcome=denied policy=api source=denied-until"),
        ("weir.policy.a%2Eb-c_D.requests.shadow_denied.on_failure", "weir_policy_requests", "outcome=shadow_denied policy=a%2Eb-c_D source=on_failure"),
        ("weir.policy.api.limit.per-minute.requests.allowed", "weir_policy_limit_requests", "limit=per-minute outcome=allowed policy=api"),
        // Names that are words of the pattern.
        ("weir.policy.limit.limit.requests.requests.denied", "weir_policy_limit_requests", "limit=requests outcome=denied policy=limit"),
        ("weir.policy.requests.requests.exempt.list", "weir_policy_requests", "outcome=exempt policy=requests source=list"),
        ("weir.policy.policy.limit.limit.requests.allowed", "weir_policy_limit_requests", "limit=limit outcome=allowed policy=policy"),
        ("weir.policy.api.units_reserved", "weir_policy_units_reserved", "policy=api"),
        ("weir.policy.api.tier.gold.units_charged", "weir_policy_units_charged", "policy=api tier=gold"),
        ("weir.policy.tier.tier.tier.units_refunded", "weir_policy_units_refunded", "policy=tier tier=tier"),
        ("weir.policy.api.tier.a%2Eb.limit.day.asked.95", "weir_policy_limit_asked", "full=95 limit=day policy=api tier=a%2Eb"),
        ("weir.policy.limit.limit.asked.asked.50", "weir_policy_limit_asked", "full=50 limit=asked policy=limit"),
        ("weir.policy.limit.tier.limit.limit.limit.size", "weir_policy_limit_size", "limit=limit policy=limit tier=limit"),
        ("weir.policy.warned.tier.warned.limit.warned.warned", "weir_policy_limit_warned", "limit=warned policy=warned tier=warned"),
        ("weir.peer.bom.debits_sent", "weir_peer_debits_sent", "peer=bom"),
        ("weir.policy.api.peer.a%2Eb.on_loan", "weir_policy_peer_on_loan", "peer=a%2Eb policy=api"),
        ("weir.policy.peer.peer.peer.on_loan", "weir_policy_peer_on_loan", "peer=peer policy=peer"),
        ("weir.policy.limit.peer.limit.on_loan", "weir_policy_peer_on_loan", "peer=limit policy=limit"),
        ("weir.policy.requests.peer.requests.on_loan", "weir_policy_peer_on_loan", "peer=requests policy=requests"),
        ("weir.peer.policy.borrowed", "weir_peer_borrowed", "peer=policy"),
        ("weir.policy.peer.limit.peer.requests.denied", "weir_policy_limit_requests", "limit=peer outcome=denied policy=peer"),
        ("weir.policy.peer.requests.denied.redis", "weir_policy_requests", "outcome=denied policy=peer source=redis"),
        ("weir.store.timeout", "weir_store", "kind=timeout"),
        ("weir.build_info.0.1.0.0123456789ab", "weir_build_info", "commit=0123456789ab version=0.1.0"),
        ("weir.build_info.1.0.0-rc.1.0123456789ab-modified", "weir_build_info", "commit=0123456789ab-modified version=1.0.0-rc.1"),
        ("weir.store_latency_us", "weir_store_latency_us", ""),
        ("weir.admitted", "weir_admitted", ""),
    ];
    for (envoy, prometheus, labels) in cases {
        let (name, found) = in_prometheus(envoy);
        let found: Vec<_> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!((name.as_str(), found.join(" ").as_str()), (prometheus, labels), "{envoy}");
    }
}

#[test]
fn all_shipped_configurations_have_the_same_tags_and_the_module_its_runtime_key() {
    let expected = block("envoy/weir.yaml", TAGS);
    let runtime = block("envoy/native.yaml", "layered_runtime:\n");
    for name in ["cluster", "tls", "sentinel", "native", "native-cluster", "native-tls", "native-sentinel"] {
        let file = format!("envoy/{name}.yaml");
        assert_eq!(block(&file, TAGS), expected, "{file}");
        if name.starts_with("native") {
            assert_eq!(block(&file, "layered_runtime:\n"), runtime, "{file}");
        }
    }
}

// --- The dashboard and the rules --------------------------------------------------------------------------------------

/// The names that Prometheus has, with the labels of each.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for definition in catalogue().definitions() {
        let (name, labels) = in_prometheus(&definition.name);
        let mut labels: BTreeSet<_> = labels.into_keys().collect();
        labels.insert("instance".into());
        if definition.kind == Kind::Histogram {
            for suffix in ["_sum", "_count"] {
                known.entry(format!("{name}{suffix}")).or_default().extend(labels.clone());
            }
            labels.insert("le".into());
            known.entry(format!("{name}_bucket")).or_default().extend(labels);
        } else {
            known.entry(name).or_default().extend(labels);
        }
    }
    known
}

#[test]
fn every_query_names_metrics_labels_and_values_that_exist() {
    let mut known = known();
    // Envoy's own, which `tests/envoy/e2e/configuration.rs` sees in a scrape.
    for name in ["listener_manager_lds", "extension_config_discovery_http_filter_weir"] {
        known.insert(format!("envoy_{name}_update_rejected"), ["instance".into()].into());
    }
    let rules = queries::rules(&read("operate/rules.yaml"));
    for rule in &rules {
        if let Some(record) = &rule.record {
            let labels = ["instance", "policy", "outcome", "source"].map(String::from);
            known.insert(record.clone(), labels.into());
        }
    }
    let values: BTreeSet<_> =
        catalogue().definitions().iter().flat_map(|of| in_prometheus(&of.name).1.into_values()).collect();
    let dashboard = queries::dashboard(&read("operate/dashboard.json"));
    assert!(dashboard.len() > 40, "{}", dashboard.len());
    let from_rules = rules.iter().map(|rule| (rule.name().to_owned(), rule.expr.clone()));
    let mut used = BTreeSet::new();
    for (place, query) in dashboard.into_iter().chain(from_rules) {
        let found = queries::selectors(&query);
        assert!(!found.is_empty(), "{place}: {query}");
        for (name, matchers) in found {
            let labels = known.get(&name).unwrap_or_else(|| panic!("{place}: there is no metric {name}"));
            for (label, value) in matchers {
                assert!(labels.contains(&label), "{place}: {name} has no label {label}");
                let words = value.split('|').filter(|word| !word.contains('$'));
                words.for_each(|word| assert!(values.contains(word), "{place}: {label} is never {word:?}"));
            }
            used.insert(name);
        }
    }
    // The metrics that no query uses.
    let unused: Vec<_> = known.keys().filter(|name| !used.contains(*name)).map(String::as_str).collect();
    assert_eq!(
        unused,
        [
            "weir_banned",
            "weir_batch_tasks_count",
            "weir_batch_tasks_sum",
            "weir_delayed",
            "weir_enquiries",
            "weir_exempt",
            "weir_local_merged",
            "weir_queued",
            "weir_request_bodies_denied",
            "weir_request_bodies_hurried",
            "weir_store_latency_us_count",
            "weir_store_latency_us_sum",
            "weir_top_denied",
            "weir_top_denied_replaced"
        ],
        "neither the dashboard nor a rule shows these"
    );
}

#[test]
fn each_alert_has_a_page_and_each_page_an_alert() {
    let rules = queries::rules(&read("operate/rules.yaml"));
    let alerts: BTreeSet<_> = rules.iter().filter_map(|rule| rule.alert.clone()).collect();
    assert!(alerts.len() >= 10);
    for rule in rules.iter().filter(|rule| rule.alert.is_some()) {
        let page = format!("docs/runbook/{}.md", rule.name());
        assert_eq!(rule.runbook.as_deref(), Some(page.as_str()));
        let text = read(&page);
        assert!(text.starts_with(&format!("# {}: ", rule.name())), "{page}");
        assert!(text.contains("\n| symptom | cause | what to do |\n|---|---|---|\n| "), "{page}");
        assert!(
            read("docs/runbook/README.md").contains(&format!("]({}.md)", rule.name())),
            "{page} is in the list"
        );
        assert!(
            read("operate/rules.test.yaml").contains(&format!("alertname: {}\n", rule.name())),
            "{page} is tested"
        );
    }
    let pages = fs::read_dir(path("docs/runbook")).unwrap();
    let pages = pages.filter_map(|entry| entry.unwrap().path().file_stem()?.to_str().map(String::from));
    assert_eq!(pages.filter(|page| page != "README").collect::<BTreeSet<_>>(), alerts);
}
