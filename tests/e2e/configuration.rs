//! Configurations, good and bad, as Envoy loads them.

use crate::support::redis::Redis;
use crate::support::upstream::Upstream;
use crate::support::weir::limited;
use crate::support::weir::template;

pub const TESTS: &[(&str, fn())] =
    &[("a configuration with mistakes is refused, and each is named", mistakes_are_refused)];

fn mistakes_are_refused() {
    let (redis, upstream) = (Redis::absent(), Upstream::start());
    let mistaken = limited(10).replace("leaky_bucket", "leaky_buckt").replace(r#""rate""#, r#""rat""#);
    let log =
        template(&mistaken, redis.address(), upstream.address()).try_start().expect_err("it is refused");
    for expected in ["policies[0].limits[0].algorithm", "leaky_buckt", "leaky_bucket"] {
        assert!(log.contains(expected), "{expected:?} is not in:\n{log}");
    }
}
