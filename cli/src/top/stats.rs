// SPDX-License-Identifier: Apache-2.0
//! weir's statistics as Envoy's admin port prints them: `/stats?format=json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// The most statistics that are kept. A configuration has at most some thousands.
const MOST: usize = 100_000;

/// Statistics of one Envoy, or of several together. A name is what follows Envoy's prefix and `weir.`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    values: BTreeMap<String, u64>,
    latency: Option<Latency>,
}

/// The latency of Redis in microseconds; that of the slowest of all Envoys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Latency {
    /// Half of the batches were faster.
    pub p50: u64,
    /// 99 of a hundred batches were faster.
    pub p99: u64,
}

impl Stats {
    pub fn parse(text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        let Some(Value::Array(all)) = json.get("stats") else {
            return Err(String::from("not the statistics of an Envoy"));
        };
        let mut stats = Self::default();
        for stat in all.iter().take(MOST) {
            if let (Some(name), Some(value)) = (stat.get("name").and_then(Value::as_str), stat.get("value")) {
                if let Some((name, value)) = own(name).zip(value.as_u64()) {
                    stats.add(name, value);
                }
            } else if let Some(histograms) = stat.get("histograms") {
                stats.latency = latency(histograms);
            }
        }
        Ok(stats)
    }

    fn add(&mut self, name: &str, value: u64) {
        let sum = self.values.entry(name.to_owned()).or_default();
        *sum = sum.saturating_add(value);
    }

    pub fn merge(&mut self, other: &Self) {
        other.values.iter().for_each(|(name, value)| self.add(name, *value));
        self.latency = match (self.latency, other.latency) {
            (Some(a), Some(b)) => Some(Latency { p50: a.p50.max(b.p50), p99: a.p99.max(b.p99) }),
            (a, b) => a.or(b),
        };
    }

    /// One of them; 0 if this version of weir has it not.
    pub fn get(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or(0)
    }

    /// Returns the statistics whose name begins with `prefix`; the names without the prefix.
    pub fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        let from = self.values.range(prefix.to_owned()..);
        let below = from.map_while(move |(name, value)| Some((name.strip_prefix(prefix)?, *value)));
        below.filter(|(name, _)| !name.is_empty())
    }

    /// True if there are no statistics: no weir in this Envoy, or no request yet.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The latency of Redis; absent if this version of weir does not say it, or Redis was not asked.
    pub fn latency(&self) -> Option<Latency> {
        self.latency
    }
}

/// The name without what both hosts put before it, if it is one of weir's.
fn own(name: &str) -> Option<&str> {
    name.strip_prefix("wasmcustom.weir.")
}

fn latency(histograms: &Value) -> Option<Latency> {
    let numbers = |of: &Value| -> Option<Vec<f64>> { of.as_array()?.iter().map(Value::as_f64).collect() };
    let quantiles = numbers(histograms.get("supported_quantiles")?)?;
    let all = histograms.get("computed_quantiles")?.as_array()?;
    let ours = all.iter().find(|of| {
        let name = of.get("name").and_then(Value::as_str).unwrap_or_default();
        own(name) == Some("store_latency_us")
    })?;
    let values = ours.get("values")?.as_array()?;
    let at = |wanted: f64| {
        let place = quantiles.iter().position(|quantile| quantile.total_cmp(&wanted).is_eq())?;
        let value = values.get(place)?;
        // Of the last few seconds; where nothing was asked in them, of all time.
        let value = ["interval", "cumulative"].iter().find_map(|kind| value.get(kind)?.as_f64())?;
        Some(value as u64)
    };
    Some(Latency { p50: at(50.0)?, p99: at(99.0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"stats": [
        {"name": "wasmcustom.weir.admitted", "value": 7},
        {"name": "wasmcustom.weir.policy.a%2Eb.requests.denied.redis", "value": 3},
        {"name": "wasmcustom.weir.policy.a%2Eb.limit.minute.requests.denied", "value": 2},
        {"name": "cluster.weir-bridge.upstream_rq", "value": 9},
        {"name": "wasm.weir.limiter.vm_reload", "value": 1},
        {"name": "wasmcustom.weir.text", "value": "seven"},
        {"histograms": {"supported_quantiles": [0, 50, 99, 100], "computed_quantiles": [
            {"name": "wasmcustom.weir.batch_tasks", "values": []},
            {"name": "wasmcustom.weir.store_latency_us", "values": [
                {"cumulative": 1, "interval": null}, {"cumulative": 310.5, "interval": 280.9}, {"cumulative": 900, "interval": null},
                {"cumulative": 1000, "interval": null}
            ]}
        ]}}
    ]}"#;

    #[test]
    fn what_envoy_prints_is_read_as_far_as_it_is_weirs() {
        let stats = Stats::parse(TEXT).unwrap();
        let all: Vec<_> = stats.values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(
            all,
            [
                ("admitted", 7),
                ("policy.a%2Eb.limit.minute.requests.denied", 2),
                ("policy.a%2Eb.requests.denied.redis", 3)
            ]
        );
        assert_eq!((stats.get("admitted"), stats.get("held")), (7, 0));
        assert_eq!(stats.latency(), Some(Latency { p50: 280, p99: 900 }));
        let below: Vec<_> = stats.below("policy.").map(|(name, _)| name).collect();
        assert_eq!(below, ["a%2Eb.limit.minute.requests.denied", "a%2Eb.requests.denied.redis"]);
        for wrong in ["", "[]", "{\"stats\": 7}", "OK\n"] {
            assert!(Stats::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Stats::parse("{\"stats\": []}").unwrap().is_empty());
    }

    #[test]
    fn envoys_are_added_up() {
        let mut stats = Stats::parse(TEXT).unwrap();
        stats.merge(
            &Stats::parse(r#"{"stats": [{"name": "wasmcustom.weir.admitted", "value": 5}]}"#).unwrap(),
        );
        assert_eq!((stats.get("admitted"), stats.latency()), (12, Some(Latency { p50: 280, p99: 900 })));
    }
}
