// SPDX-License-Identifier: Apache-2.0
//! Every metric of a configuration. A host defines them all when it has read the configuration: Envoy lets a dynamic module define none
//! later, and a counter that begins to exist with its first count shows no rate for it.

use super::fixed::{
    BUILD_INFO, CONFIG_HASH, COUNTER_COUNT, COUNTERS, GAUGE_COUNT, GAUGES, HISTOGRAMS, PANICS, UNREADABLE,
};
use super::peers::PeerSeries;
use super::series::{Fullness, Series};
use crate::config::Config;
use crate::engine::StoreFailure;

/// A metric, by its place in the [`Catalogue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric(usize);

impl Metric {
    /// The counter of panics.
    pub const PANICS: Self = Self(COUNTER_COUNT);
    /// The counter of attributes that the host could not read.
    pub const UNREADABLE: Self = Self(COUNTER_COUNT + 1);

    const GAUGES: usize = COUNTER_COUNT + 2;
    const HISTOGRAMS: usize = Self::GAUGES + GAUGE_COUNT;
    const FAILURES: usize = Self::HISTOGRAMS + HISTOGRAMS.len();

    /// Its place.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0
    }

    pub(in crate::engine) const fn counter(place: usize) -> Self {
        Self(place)
    }

    pub(in crate::engine) const fn at(place: usize) -> Self {
        Self(place)
    }

    /// The gauge of this place in [`GAUGES`].
    #[must_use]
    pub const fn gauge(place: usize) -> Self {
        Self(Self::GAUGES.saturating_add(place))
    }

    pub(in crate::engine) const fn histogram(place: usize) -> Self {
        Self(Self::HISTOGRAMS.saturating_add(place))
    }

    pub(in crate::engine) fn failure(kind: &str) -> Self {
        let place = StoreFailure::kinds().position(|other| other == kind);
        Self(Self::FAILURES.saturating_add(place.unwrap_or(0)))
    }

    pub(in crate::engine) fn series(place: usize) -> Self {
        Self(Self::FAILURES.saturating_add(StoreFailure::kinds().count()).saturating_add(place))
    }
}

/// The kind of a metric: what Envoy does with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Adds them up.
    Counter,
    /// Keeps the newest.
    Gauge,
    /// Counts how many were how large.
    Histogram,
    /// Keeps the [value](Definition::value) that the host sets when it has defined it.
    Info,
}

/// A metric to define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its kind.
    pub kind: Kind,
    /// Its name, to which Envoy adds its own prefix.
    pub name: String,
    /// The value of an [`Info`](Kind::Info).
    pub value: u64,
}

/// Every metric of a configuration, by its place.
#[derive(Clone, Debug)]
pub struct Catalogue(Vec<Definition>);

impl Catalogue {
    /// The catalogue of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let define = |kind, name: &str| Definition { kind, name: name.to_owned(), value: 1 };
        let names = COUNTERS.iter().map(|counter| counter.name).chain([PANICS.name, UNREADABLE.name]);
        let mut all: Vec<_> = names.map(|name| define(Kind::Counter, name)).collect();
        all.extend(GAUGES.iter().map(|gauge| define(Kind::Gauge, gauge.name)));
        all.extend(HISTOGRAMS.iter().map(|histogram| define(Kind::Histogram, histogram.name)));
        all.extend(StoreFailure::kinds().map(|kind| define(Kind::Counter, &["weir.store.", kind].concat())));
        all.extend(Series::of(config).iter().map(|series| define(Kind::Counter, &name(series, config))));
        let peers = PeerSeries::of(config);
        all.extend(peers.iter().map(|series| define(series.metric.kind, &series.name(config))));
        all.extend(sizes(config));
        all.push(Definition { value: config.hash.into(), ..define(Kind::Info, CONFIG_HASH.name) });
        all.push(define(Kind::Info, BUILD_INFO.name));
        Self(all)
    }

    /// The names of the gauges.
    pub fn gauges(&self) -> impl Iterator<Item = (&str, Metric)> {
        let gauges = self.0.iter().enumerate().filter(|(_, definition)| definition.kind == Kind::Gauge);
        gauges.map(|(place, definition)| (definition.name.as_str(), Metric(place)))
    }

    /// The metrics, by their places.
    #[must_use]
    pub fn definitions(&self) -> &[Definition] {
        &self.0
    }
}

fn name(series: &Series, config: &Config) -> String {
    let policy = |index: usize| config.policies.get(index);
    let name = |index| policy(index).map(|policy| escaped(&policy.name)).unwrap_or_default();
    match series {
        Series::Policy { policy, outcome, source } => {
            ["weir.policy.", &name(*policy), ".requests.", outcome.name(), ".", source.name()].concat()
        }
        Series::Limit { policy: of, outcome, limits } => {
            let view = limits
                .first()
                .and_then(|(tier, limit)| policy(*of)?.tiers.tiers.get(*tier)?.views.get(*limit));
            let limit = view.map(|view| escaped(view.own_name())).unwrap_or_default();
            ["weir.policy.", &name(*of), ".limit.", &limit, ".requests.", outcome.name()].concat()
        }
        Series::Units { policy, tier, kind } => {
            [&of_tier(config, *policy, *tier), ".units_", kind.name()].concat()
        }
        Series::Asked { policy, tier, limit, full } => {
            [&of_limit(config, *policy, *tier, *limit), ".asked.", full.name()].concat()
        }
        Series::Warned { policy, tier, limit } => {
            [&of_limit(config, *policy, *tier, *limit), ".warned"].concat()
        }
    }
}

/// The beginning of the names of a tier's metrics.
fn of_tier(config: &Config, policy: usize, tier: usize) -> String {
    let Some(policy) = config.policies.get(policy) else { return String::new() };
    let tier = policy.tiers.tiers.get(tier).map(|tier| escaped(&tier.name)).unwrap_or_default();
    let separator = if tier.is_empty() { "" } else { ".tier." };
    ["weir.policy.", &escaped(&policy.name), separator, &tier].concat()
}

/// The beginning of the names of the metrics of a tier's limit.
fn of_limit(config: &Config, policy: usize, tier: usize, limit: usize) -> String {
    let view = config.policies.get(policy).and_then(|policy| policy.tiers.tiers.get(tier)?.views.get(limit));
    let limit = view.map(|view| escaped(view.own_name())).unwrap_or_default();
    [&of_tier(config, policy, tier), ".limit.", &limit].concat()
}

/// Defines the sizes of the limits that have metrics of their own.
fn sizes(config: &Config) -> impl Iterator<Item = Definition> {
    Series::of(config).into_iter().filter_map(move |series| {
        let Series::Asked { policy, tier, limit, full: Fullness::Half } = series else { return None };
        let limits = config.policies.get(policy)?.tiers.tiers.get(tier)?.plan.limits();
        let name = [&of_limit(config, policy, tier, limit), ".size"].concat();
        Some(Definition { kind: Kind::Info, name, value: limits.get(limit)?.quota() })
    })
}

/// Escapes a name of the configuration as a part of a metric's name. Dots separate these parts, so a dot becomes `%2E`. No other character
/// of a name has a meaning there, and `%` is in none, so no two names become one.
#[must_use]
pub fn escaped(name: &str) -> String {
    name.replace('.', "%2E")
}
