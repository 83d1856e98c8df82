// SPDX-License-Identifier: Apache-2.0
//! One failover under load: what was granted, and what of it the new primary knows.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::envoy::Envoy;
use crate::support::eventually_within;
use crate::support::http::Request;
use crate::support::load::{Exchange, Lane, Load};
use crate::support::redis::Redis;
use crate::support::{PATIENCE, weir};
use crate::{Case, DEADLINE, Fault, Form, LAG, NOTICED, Topology, clustered::Clustered, watched::Watched};

/// The duration of the load before the fault, and again after the new primary has taken over.
const AROUND: Duration = Duration::from_millis(700);

/// A world that goes through a failover.
pub trait World {
    fn envoy(&self) -> &Envoy;

    /// The subject of this request. All of them are the first primary's.
    fn user(number: usize) -> String
    where
        Self: Sized;

    fn inject(&mut self, fault: Fault);

    /// Waits until another primary has taken over.
    fn await_promotion(&mut self);

    /// Ends what can be ended of the fault, and waits until the old primary no longer accepts writes.
    fn heal(&mut self, fault: Fault);

    /// The node that is the primary in the end.
    fn primary(&self) -> &Redis;
}

/// The result of one failover.
#[derive(Debug)]
pub struct Run {
    /// Units granted.
    pub granted: usize,
    /// Units granted that the new primary does not know.
    pub forgotten: usize,
    /// Requests sent while the old primary could grant what the new one does not know: from the lag and the deadline before the fault, because
    /// requests may be in flight for so long, until the old primary accepts nothing more.
    pub bound: usize,
    /// The same, with slack for a busy machine.
    pub allowed: usize,
    /// The longest time without a grant.
    pub outage: Duration,
}

pub fn run(case: &Case, form: Form) -> Run {
    match case.topology {
        Topology::Sentinel => through(&mut Watched::start(case), case, form),
        Topology::Cluster => through(&mut Clustered::start(), case, form),
    }
}

/// The limiter: one unit for each subject, which does not come back.
pub fn limiter(more: &str) -> String {
    format!(
        r#"{{"store": {{"deadline": "{}ms", "on_failure": "deny", "denial_ttl": "0s"{more}}},
            "policies": [{{"name": "p", "subject": [{{"header": {{"name": "x-user"}}}}],
                "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 1}}]}}]}}"#,
        DEADLINE.as_millis()
    )
}

fn through<W: World>(world: &mut W, case: &Case, form: Form) -> Run {
    let to = world.envoy().address("edge");
    let is_granted =
        |exchange: &Exchange| exchange.response.as_ref().is_ok_and(|response| response.status == 200);
    let load = Load::of_each(Duration::from_secs(1) / form.rate, move |number| {
        let request: Request = weir::get().header("x-user", &W::user(number));
        (number, Lane { to, request })
    });
    let granted_since = |since: Duration| {
        eventually_within(3 * PATIENCE, "a grant", || {
            load.any(|exchange| exchange.sent >= since && is_granted(exchange)).then_some(())
        });
    };
    granted_since(Duration::ZERO);
    granted_since(load.elapsed() + AROUND);

    let fault_at = load.elapsed();
    world.inject(case.fault);
    let injected_at = load.elapsed();
    world.await_promotion();
    let promoted_at = load.elapsed();
    world.heal(case.fault);
    let healed_at = load.elapsed();
    // Each worker has left the old primary, or closes its connections at the next health check.
    granted_since(healed_at);
    granted_since(load.elapsed() + AROUND);
    let (_, exchanges) = load.end();

    let known = keys(world.primary());
    let is_forgotten =
        |exchange: &&Exchange| !known.contains(&format!("weir:{{p|{}}}:l", W::user(exchange.lane)));
    let granted: Vec<_> = exchanges.iter().filter(|exchange| is_granted(exchange)).collect();
    let lag = if case.fault == Fault::Lost { LAG } else { Duration::ZERO };
    let until = match case.fault {
        _ if case.min_replicas > 0 => injected_at,
        Fault::Partitioned if case.refuses_writes => healed_at.min(injected_at + NOTICED),
        Fault::Partitioned => healed_at,
        Fault::Killed | Fault::Lost | Fault::Paused => injected_at,
    };
    let mut windows = vec![(fault_at.saturating_sub(lag + DEADLINE), until)];
    // An old primary that goes on accepts writes until it knows that it was replaced. A replica that follows it still acknowledges them.
    if case.fault == Fault::Paused || case.fault == Fault::Partitioned && case.min_replicas == 1 {
        windows.push((promoted_at.saturating_sub(DEADLINE).max(until), healed_at));
    }
    let sent = |slack: Duration| {
        let is_within = |&(from, until): &(Duration, Duration), sent: Duration| {
            (from.saturating_sub(slack)..=until + slack).contains(&sent)
        };
        let may_be_forgotten =
            |exchange: &&Exchange| windows.iter().any(|window| is_within(window, exchange.sent));
        exchanges.iter().filter(may_be_forgotten).count()
    };
    Run {
        granted: granted.len(),
        forgotten: granted.iter().copied().filter(is_forgotten).count(),
        bound: sent(Duration::ZERO),
        allowed: sent(form.slack),
        outage: longest_gap(granted.iter().map(|exchange| exchange.sent).collect()),
    }
}

fn keys(redis: &Redis) -> HashSet<String> {
    let reply = redis.connect().call(&[b"KEYS", b"weir:*"]);
    String::from_utf8_lossy(&reply).lines().map(str::to_owned).collect()
}

fn longest_gap(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}
