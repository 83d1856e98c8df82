// SPDX-License-Identifier: Apache-2.0
//! The setup of a simulation.

use weir::config::Config;
use weir::limit::Limit;
use weir::limit::{Align, FixedWindow, LeakyBucket, Refill, SlidingWindow, TokenBucket};
use weir::time::Micros;

/// The way in which the limit holds across regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// One store that all regions reach without delay: what is to be reached.
    One,
    Home,
    Debit,
    Share,
    /// Global random drop of Raghavan et al.: each limiter drops the part of its requests that all of them together have too many.
    RandomDrop,
    /// Flow proportional share of Raghavan et al.: each limiter has a part of the rate, by how many flows it has.
    FlowShare,
}

impl Way {
    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one store",
            Self::Home => "home",
            Self::Debit => "debit",
            Self::Share => "share",
            Self::RandomDrop => "GRD",
            Self::FlowShare => "FPS",
        }
    }
}

/// The algorithm of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    TokenBucket,
    LeakyBucket,
    SlidingWindow,
    FixedWindow,
}

impl Shape {
    pub const ALL: [Self; 4] = [Self::TokenBucket, Self::LeakyBucket, Self::SlidingWindow, Self::FixedWindow];

    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::SlidingWindow => "sliding_window",
            Self::FixedWindow => "fixed_window",
        }
    }

    pub const fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }
}

/// The clients that send requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Clients {
    /// The requests a second in each region, whatever becomes of them.
    Rates(Vec<u64>),
    /// The same, and from a second on other rates.
    Moving { first: Vec<u64>, then: Vec<u64>, at: u64 },
    /// The flows in each region. A flow goes faster until a request of it is denied, as TCP does.
    Flows(Vec<usize>),
}

impl Clients {
    /// This number of requests a second in all, the same in each region.
    pub fn uniform(all: u64, regions: usize) -> Self {
        Self::Rates(vec![all / regions as u64; regions])
    }

    /// This number of requests a second in all: the k-th region has a k-th of the first one's.
    pub fn zipf(all: u64, regions: usize) -> Self {
        let weights: Vec<u64> = (1..=regions as u64).map(|place| 1_000_000 / place).collect();
        let sum: u64 = weights.iter().sum();
        Self::Rates(weights.iter().map(|weight| all * weight / sum).collect())
    }

    /// All of so many requests a second are in the first region, and from a second on in the last one.
    pub fn moving(all: u64, regions: usize, at: u64) -> Self {
        let only = |place: usize| (0..regions).map(|region| if region == place { all } else { 0 }).collect();
        Self::Moving { first: only(0), then: only(regions - 1), at }
    }
}

/// One run. Times are microseconds.
#[derive(Clone, Debug)]
pub struct Setup {
    pub way: Way,
    pub regions: usize,
    /// In each region.
    pub workers: usize,
    /// The delay from any region to any other, one way.
    pub delay: u64,
    pub sync_interval: u64,
    pub shape: Shape,
    /// Units a second.
    pub rate: u64,
    /// The capacity of a bucket, or the limit of a window, which then is `burst / rate` seconds long.
    pub burst: u64,
    pub clients: Clients,
    pub seconds: u64,
    /// The figures are about what happens from this second on.
    pub from: u64,
    pub seed: u64,
}

impl Setup {
    /// The setup that others differ from: three regions, 50 ms apart, and twice as many requests as the limit of 100 a second admits.
    pub fn usual(way: Way) -> Self {
        Self {
            way,
            regions: 3,
            workers: 1,
            delay: 50_000,
            sync_interval: 200_000,
            shape: Shape::TokenBucket,
            rate: 100,
            burst: 100,
            clients: Clients::uniform(200, 3),
            seconds: 7,
            from: 3,
            seed: 1,
        }
    }

    /// The length of a window.
    pub const fn window(&self) -> u64 {
        self.burst * 1_000_000 / self.rate
    }

    /// The whole limit.
    pub fn limit(&self) -> Limit {
        let (second, window) = (Micros::from_secs(1), Micros(self.window()));
        let limit = match self.shape {
            Shape::TokenBucket => {
                TokenBucket::new(self.burst, self.rate, second, Refill::Continuous, 0).map(Limit::from)
            }
            Shape::LeakyBucket => {
                LeakyBucket::new(self.rate, second, self.burst, Micros::ZERO).map(Limit::from)
            }
            Shape::SlidingWindow => {
                SlidingWindow::new(self.burst, window, Micros(window.0 / 20)).map(Limit::from)
            }
            Shape::FixedWindow => FixedWindow::new(self.burst, window, Align::Clock).map(Limit::from),
        };
        limit.expect("a limit")
    }

    /// The same limit, as a configuration has it.
    fn limit_json(&self) -> String {
        let (rate, burst, window) = (self.rate, self.burst, self.window());
        let limit = match self.shape {
            Shape::TokenBucket => format!(r#""capacity": {burst}, "refill": {rate}, "interval": "1s""#),
            Shape::LeakyBucket => format!(r#""rate": "{rate}/s", "burst": {burst}"#),
            Shape::SlidingWindow => {
                format!(r#""limit": {burst}, "window": "{window}us", "precision": "{}us""#, window / 20)
            }
            Shape::FixedWindow => format!(r#""limit": {burst}, "window": "{window}us", "align": "clock""#),
        };
        format!(r#"{{"name": "l", "algorithm": "{}", {limit}}}"#, self.shape.name())
    }

    /// The configuration of weir in one region.
    pub fn config(&self, here: usize) -> String {
        let region = |place| format!(r#"{{"name": "r{place}", "cluster": "r{place}", "deadline": "2s"}}"#);
        let all: Vec<_> = (0..self.regions).map(region).collect();
        let way = match self.way {
            Way::Home => r#"{"home": "r0"}"#,
            Way::Debit => r#"{"debit": {}}"#,
            _ => r#"{"share": {}}"#,
        };
        format!(
            r#"{{"store": {{"deadline": "2s", "on_failure": "deny"}},
                "regions": {{"here": "r{here}", "sync_interval": "{}us", "all": [{}]}},
                "policies": [{{"name": "p", "subject": [{{"literal": "all"}}], "regions": {way}, "limits": [{}]}}]}}"#,
            self.sync_interval,
            all.join(", "),
            self.limit_json()
        )
    }

    /// True if the configuration allows it: debits are not for limits that are whole again within a sync interval, and so on.
    pub fn is_accepted(&self) -> bool {
        Config::parse(self.config(0).as_bytes()).is_ok()
    }

    pub const fn micros(&self) -> u64 {
        self.seconds * 1_000_000
    }
}
