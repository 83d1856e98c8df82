// SPDX-License-Identifier: Apache-2.0
//! The documents of metrics are correct: the tables of `docs/metrics.md`, the tags in `envoy/`, the names in the dashboard and in the
//! rules, the fields of the dashboard by Grafana's schema, and a page of the runbook for each alert. `WEIR_UPDATE=1` writes the tables.
//!
//! `cli/tests/envoy/operate.rs` runs the dashboard's queries and the rules on a real scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use weir::config::Config;
use weir::engine::{Catalogue, Kind};

use serde_json::Value;

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
        all("SHADOW", r#""mode": "shadow""#),
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
    let catalogue = catalogue();
    let rows = || catalogue.rows().iter().filter(|row| !row.meaning.is_empty());
    let of = |kind| {
        let rows = rows().filter(|row| row.kind == kind && !row.name.contains(".peer."));
        let rows: String = rows.map(|row| format!("{} {} |\n", shown(&row.name), row.meaning)).collect();
        format!("| Envoy | Prometheus | meaning |\n|---|---|---|\n{rows}")
    };
    let peers = rows().filter(|row| row.name.contains(".peer.")).map(|row| {
        let kind = format!("{:?}", row.kind).to_lowercase();
        format!("{} {kind} | {} |\n", shown(&row.name), row.meaning)
    });
    let peers: String = peers.collect();
    let yaml = |block: String| format!("```yaml\n{block}```\n");
    let tables = [
        ("tags", yaml(block("envoy/weir.yaml", TAGS))),
        ("runtime", yaml(block("envoy/native.yaml", "layered_runtime:\n"))),
        ("policies", policies()),
        ("counters", of(Kind::Counter)),
        ("gauges", of(Kind::Gauge)),
        ("peers", format!("| Envoy | Prometheus | kind | meaning |\n|---|---|---|---|\n{peers}")),
        ("histograms", of(Kind::Histogram)),
    ];
    published("docs/metrics.md", tables);
}

/// The first cells of a metric's row: its names in Envoy and in Prometheus.
fn shown(name: &str) -> String {
    if name.starts_with("weir.build_info.") {
        return "| `wasmcustom.weir.build_info.VERSION.COMMIT` | `weir_build_info{version=\"VERSION\", commit=\"COMMIT\"}` |".into();
    }
    let name = name.replace("policy.debit.", "policy.POLICY.").replace("policy.share.", "policy.POLICY.");
    let (prometheus, labels) = in_prometheus(&name);
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(", ")) };
    format!("| `wasmcustom.{name}` | `{prometheus}{labels}` |")
}

/// The sources that an outcome can have, and the policies that have these metrics.
fn policies() -> String {
    let mut sources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in catalogue().rows() {
        let (name, labels) = in_prometheus(&row.name);
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
    for row in catalogue().rows() {
        let (name, labels) = in_prometheus(&row.name);
        let mut labels: BTreeSet<_> = labels.into_keys().collect();
        labels.insert("instance".into());
        if row.kind == Kind::Histogram {
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
    // Envoy's own; `tests/envoy/e2e/configuration.rs` sees the first two in a scrape.
    for name in ["listener_manager_lds", "extension_config_discovery_http_filter_weir", "cluster_manager_cds"]
    {
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
        catalogue().rows().iter().flat_map(|of| in_prometheus(&of.name).1.into_values()).collect();
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

/// The fields of Grafana's schema of dashboards that the dashboard uses (`kinds/dashboard` of Grafana 10 and newer; options and `custom` are
/// those of the panels `stat` and `timeseries`), each with its type or its values. A field of a list has its place as `[]`.
#[rustfmt::skip]
const GRAFANA: [(&str, &str); 55] = [
    ("title", "string"), ("uid", "string"), ("tags[]", "string"), ("description", "string"), ("schemaVersion", "number"), ("version", "number"),
    ("editable", "boolean"), ("refresh", "string"), ("timezone", "string"), ("time.from", "string"), ("time.to", "string"),
    ("templating.list[].name", "string"), ("templating.list[].label", "string"), ("templating.list[].type", "datasource query"),
    ("templating.list[].query", "string"), ("templating.list[].query.query", "string"), ("templating.list[].query.refId", "string"),
    ("templating.list[].definition", "string"), ("templating.list[].datasource.type", "prometheus"), ("templating.list[].datasource.uid", "string"),
    ("templating.list[].refresh", "0 1 2"), ("templating.list[].sort", "0 1 2 3 4 5 6"), ("templating.list[].includeAll", "boolean"),
    ("templating.list[].allValue", "string"), ("templating.list[].multi", "boolean"), ("templating.list[].current.text", "string"),
    ("templating.list[].current.value", "string"),
    ("panels[].type", "row stat timeseries"), ("panels[].title", "string"), ("panels[].description", "string"), ("panels[].id", "number"),
    ("panels[].collapsed", "boolean"), ("panels[].datasource.type", "prometheus"), ("panels[].datasource.uid", "string"),
    ("panels[].gridPos.h", "number"), ("panels[].gridPos.w", "number"), ("panels[].gridPos.x", "number"), ("panels[].gridPos.y", "number"),
    ("panels[].targets[].refId", "string"), ("panels[].targets[].expr", "string"), ("panels[].targets[].legendFormat", "string"),
    ("panels[].targets[].instant", "boolean"), ("panels[].targets[].datasource.type", "prometheus"), ("panels[].targets[].datasource.uid", "string"),
    ("panels[].fieldConfig.defaults.unit", "short percentunit reqps ops ms µs"), ("panels[].fieldConfig.defaults.min", "number"),
    ("panels[].fieldConfig.defaults.color.mode", "thresholds palette-classic fixed"),
    ("panels[].fieldConfig.defaults.thresholds.mode", "absolute percentage"), ("panels[].fieldConfig.defaults.thresholds.steps[].color", "string"),
    // The first step has no value: it is everything below the second.
    ("panels[].fieldConfig.defaults.thresholds.steps[].value", "number null"),
    ("panels[].fieldConfig.defaults.custom.fillOpacity", "number"), ("panels[].fieldConfig.defaults.custom.lineWidth", "number"),
    ("panels[].fieldConfig.defaults.custom.showPoints", "auto never always"),
    ("panels[].fieldConfig.defaults.custom.stacking.mode", "none normal percent"), ("panels[].fieldConfig.defaults.custom.stacking.group", "string"),
];

/// Those of the options of panels.
#[rustfmt::skip]
const OPTIONS: [(&str, &str, &str); 7] = [
    ("stat", "reduceOptions.calcs[]", "lastNotNull mean max min sum"), ("stat", "colorMode", "none value background background_solid"),
    ("stat", "graphMode", "none area"),
    ("timeseries", "legend.displayMode", "list table hidden"), ("timeseries", "legend.placement", "bottom right"),
    ("timeseries", "tooltip.mode", "single multi none"), ("timeseries", "tooltip.sort", "none asc desc"),
];

/// Each value of a document, with its place.
fn leaves(place: &str, value: &Value, into: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let dot = if place.is_empty() { "" } else { "." };
            leaves(&format!("{place}{dot}{name}"), value, into);
        }),
        Value::Array(items) => items.iter().for_each(|item| leaves(&format!("{place}[]"), item, into)),
        value => into.push((place.to_owned(), value.clone())),
    }
}

/// The parts that Grafana would ignore or show wrongly: a field or a value that its schema does not have, a number used twice, panels that lie on each
/// other, a variable or a label that is not there.
fn faults(dashboard: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let allowed = |place: &str, kinds: &str, value: &Value, found: &mut Vec<String>| {
        let kind = match value {
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "boolean",
            _ => "null",
        };
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !kinds.split(' ').any(|of| of == kind || of == text) {
            found.push(format!("{place}: {value} is not one of {kinds}"));
        }
    };
    let mut fields = Vec::new();
    leaves("", dashboard, &mut fields);
    for (place, value) in fields.iter().filter(|(place, _)| !place.starts_with("panels[].options.")) {
        match GRAFANA.iter().find(|(name, _)| name == place) {
            Some((_, kinds)) => allowed(place, kinds, value, &mut found),
            None => found.push(format!("{place}: Grafana has no such field")),
        }
    }
    let variables: Vec<_> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|of| of["name"].as_str())
        .collect();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().expect("panels") {
        let (title, kind) =
            (panel["title"].as_str().expect("a title"), panel["type"].as_str().expect("a type"));
        let mut options = Vec::new();
        leaves("", &panel["options"], &mut options);
        for (place, value) in options.iter().filter(|(_, value)| !value.is_null()) {
            match OPTIONS.iter().find(|(of, name, _)| *of == kind && name == place) {
                Some((.., kinds)) => allowed(&format!("{title}: {place}"), kinds, value, &mut found),
                None => found.push(format!("{title}: the panel {kind} has no option {place}")),
            }
        }
        if !ids.insert(panel["id"].as_u64()) {
            found.push(format!("{title}: another panel has the same id"));
        }
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|of| panel["gridPos"][of].as_u64().expect("a number"));
        let mut cells = (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y)));
        if x + width > 24 || !cells.all(|cell| taken.insert(cell)) {
            found.push(format!("{title}: it lies on another panel, or beyond the 24 columns"));
        }
        let mut letters = BTreeSet::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let [query, legend] = ["expr", "legendFormat"].map(|of| target[of].as_str().expect("a text"));
            if !letters.insert(target["refId"].as_str()) {
                found.push(format!("{title}: two queries have one refId"));
            }
            for name in query
                .split('$')
                .skip(1)
                .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next())
            {
                if name != "__rate_interval" && !variables.contains(&Some(name)) {
                    found.push(format!("{title}: there is no variable ${name}"));
                }
            }
            // A sum has the labels of its `by` only, and `count_values` has one more.
            let kept: BTreeSet<_> = ["by (", "count_values(\""]
                .into_iter()
                .flat_map(|before| query.split(before).skip(1))
                .filter_map(|rest| rest.split([')', '"']).next())
                .flat_map(|labels| labels.split(", "))
                .collect();
            let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
            found.extend(
                shown.filter(|label| !kept.contains(label)).map(|label| {
                    format!("{title}: the legend names {label}, which no `by` of the query keeps")
                }),
            );
        }
    }
    found
}

#[test]
fn the_dashboard_is_one_of_grafana() {
    let dashboard: Value = serde_json::from_str(&read("operate/dashboard.json")).expect("JSON");
    assert_eq!(faults(&dashboard), Vec::<String>::new());
    // Each mistake is found.
    #[rustfmt::skip]
    let mistakes = [
        ("/refresh", Value::from(30), "refresh: 30 is not one of string"),
        ("/panels/1/gridPos/w", Value::from(5), "Workers that do not ask Redis: it lies on another panel, or beyond the 24 columns"),
        ("/panels/1/options/colorMode", "red".into(), "Policies that are off: colorMode: \"red\" is not one of none value background background_solid"),
        ("/panels/1/fieldConfig/defaults/units", "short".into(), "panels[].fieldConfig.defaults.units: Grafana has no such field"),
        ("/panels/2/id", Value::from(2), "Workers that do not ask Redis: another panel has the same id"),
        ("/panels/1/targets/0/expr", "sum(weir_policies_off{instance=~\"$envoy\"})".into(), "Policies that are off: there is no variable $envoy"),
        ("/panels/1/targets/0/legendFormat", "{{policy}}".into(), "Policies that are off: the legend names policy, which no `by` of the query keeps"),
    ];
    for (place, value, wanted) in mistakes {
        let mut wrong = dashboard.clone();
        let (parent, field) = place.rsplit_once('/').expect("a place");
        wrong.pointer_mut(parent).expect(place)[field] = value;
        assert_eq!(faults(&wrong), [wanted], "{place}");
    }
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
