// SPDX-License-Identifier: Apache-2.0
//! Regions whose clocks differ: each Redis and each Envoy reads a time of day that is wrong by seconds. Regions exchange amounts and
//! durations, so it has to make no difference.

use crate::Form;
use crate::support::redis::Redis;
use crate::support::skewed_clock;
use crate::world::World;

/// The seconds by which the clocks of each region's Redis and Envoys are wrong.
const SKEWS: [(i64, i64); 3] = [(5, -3), (-7, 4), (0, 90)];

pub fn skewed(form: Form) -> World {
    let library = skewed_clock();
    let environment = |seconds: i64| {
        [("LD_PRELOAD", library.display().to_string()), ("WEIR_CLOCK_SKEW", seconds.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
    };
    let stores: Vec<_> =
        SKEWS.map(|(redis, _)| Redis::start_under(&environment(redis)).expect("a redis-server")).into();
    for (redis, (skew, _)) in stores.iter().zip(SKEWS) {
        let reply = redis.connect().say("TIME");
        let seconds: i64 = reply.lines().nth(2).and_then(|line| line.parse().ok()).expect("seconds");
        let here = std::time::UNIX_EPOCH.elapsed().expect("a time").as_secs().cast_signed();
        assert!((seconds - here - skew).abs() <= 1, "a Redis is {} s off, not {skew}", seconds - here);
    }
    World::start_on(stores, form, &|region, template| template.under(&environment(SKEWS[region].1)))
}
