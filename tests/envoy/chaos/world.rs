// SPDX-License-Identifier: Apache-2.0
//! Two Envoys with weir in front of one store. Besides what is limited, each is asked for a path that no policy matches: that is
//! the control, which only a machine or an Envoy that stalls can slow down.

use std::net::SocketAddr;
use std::time::Duration;

use crate::overload::Flood;
use crate::support::envoy::{Envoy, Template};
use crate::support::http::Request;
use crate::support::load::Lane;
use crate::support::weir::{Host, Lab, SHIPPED_TIME_TO_CONNECT, TIME_TO_CONNECT, template};

/// The store of a world, and the faults of it.
pub trait Store: Sized + Send + 'static {
    /// Requests per second for each [`Lane`]. In all it should be some hundreds.
    const RATE: u32;

    /// The reason for which there cannot be such a store here.
    fn missing() -> Option<&'static str> {
        None
    }

    fn start() -> Self;

    /// The users to limit in the course of a fault, which no fault has used yet: one for each part of the store that may fail apart from
    /// the others. The part of the first one fails.
    fn users(&mut self, policy: &Policy, fault: usize) -> Vec<String>;

    /// The shipped configuration for such a store, with this limiter configuration.
    fn shipped(&self, limiter: &str, upstream: SocketAddr) -> Template {
        template(limiter, self.address(), upstream).with(TIME_TO_CONNECT, SHIPPED_TIME_TO_CONNECT)
    }

    /// Changes it as the first and second Envoy need it.
    fn change(&self, _envoy: usize, shipped: Template) -> Template {
        shipped
    }

    /// The address of Redis.
    fn address(&self) -> SocketAddr;

    /// The Envoys are there.
    fn meet(&mut self, _: &[Envoy]) {}

    /// The number of times that the store has forgotten what it knew, beyond those of the last fault.
    fn forgot(&mut self) -> u32 {
        0
    }

    /// The requests that the last fault sent by itself.
    fn flood(&mut self) -> Option<Flood> {
        None
    }
}

/// The Envoys and users whose requests have to be decided without Redis while a fault lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Felt {
    #[default]
    ByNobody,
    ByAll,
    AtFirstEnvoy,
    /// The requests of each policy's first user; and at most so many of a hundred of the other users'.
    ByFirstUser {
        others: usize,
    },
}

impl Felt {
    /// True if a fault may be felt there.
    pub fn at(self, envoy: usize, user: usize) -> bool {
        match self {
            Self::ByNobody => false,
            Self::ByAll => true,
            Self::AtFirstEnvoy => envoy == 0,
            Self::ByFirstUser { .. } => user == 0,
        }
    }
}

/// Something that happens to a store.
pub struct Fault<S> {
    pub name: &'static str,
    pub felt: Felt,
    /// The number of times that the store forgets what it knew.
    pub forgets: u32,
    /// Begins the fault, lets it last for this time, and ends it.
    pub inject: fn(&mut S, Duration),
}

/// A policy under load; all of them have the same limit for each user.
#[derive(Debug)]
pub struct Policy {
    /// Its name, and the path that it matches.
    pub name: &'static str,
    pub on_failure: &'static str,
}

pub const POLICIES: [Policy; 3] = [
    Policy { name: "open", on_failure: "allow" },
    Policy { name: "closed", on_failure: "deny" },
    Policy { name: "shared", on_failure: "local" },
];

/// Units per second, of every limit.
pub const RATE: u32 = 10;
/// Units at once, of every limit.
pub const BURST: u32 = 10;
/// As shipped.
pub const DEADLINE: Duration = Duration::from_millis(50);

/// Says what a decision was based on; `weir.source` in the filter state.
pub const SOURCE: &str = "x-source";

/// The number of Envoys, with one worker each.
pub const ENVOYS: usize = 2;

/// See the [module](self).
pub struct World<S> {
    pub lab: Lab<S>,
    faults: usize,
}

/// The subject of a [`Lane`] of the load.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Control,
    Limited { policy: &'static Policy, user: usize, envoy: usize },
}

impl<S: Store> World<S> {
    pub fn start() -> Self {
        let prefix = Host::chosen().filter_state_prefix();
        let source = format!(
            "domains: [\"*\"]\n              response_headers_to_add:\n              \
             - header: {{key: {SOURCE}, value: \"%FILTER_STATE({prefix}weir.source:PLAIN)%\"}}\n"
        );
        let mut lab = Lab::around(S::start(), |store, upstream| {
            let template = store.shipped(&limiter(), upstream).with("domains: [\"*\"]\n", source);
            (0..ENVOYS).map(|envoy| store.change(envoy, template.clone())).collect()
        });
        lab.redis.meet(&lab.envoys);
        Self { lab, faults: 0 }
    }

    /// The load for one more fault: each policy and user, and controls, at each Envoy.
    pub fn lanes(&mut self) -> Vec<(Kind, Lane)> {
        let mut asked = Vec::new();
        for policy in &POLICIES {
            for (user, name) in self.lab.redis.users(policy, self.faults).into_iter().enumerate() {
                asked.push((
                    policy,
                    user,
                    Request::get(&format!("/{}", policy.name)).header("x-user", &name),
                ));
            }
        }
        self.faults += 1;
        let mut lanes = Vec::new();
        let edges = self.lab.envoys.iter().map(|envoy| envoy.address("edge"));
        for (envoy, to) in edges.enumerate() {
            for (index, (policy, user, request)) in asked.clone().into_iter().enumerate() {
                // As many controls as users: the more is judged, the more often has the machine to be looked at.
                if index.is_multiple_of(POLICIES.len()) {
                    lanes.push((Kind::Control, Lane { to, request: Request::get("/") }));
                }
                lanes.push((Kind::Limited { policy, user, envoy }, Lane { to, request }));
            }
        }
        lanes
    }
}

fn limiter() -> String {
    let policies = POLICIES.map(|Policy { name, on_failure }| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "/{name}"}}}}, "on_failure": "{on_failure}",
            "subject": [{{"header": {{"name": "x-user"}}}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "{RATE}/s", "burst": {BURST}}}]}}"#
        )
    });
    let deadline = DEADLINE.as_millis();
    format!(
        r#"{{"store": {{"deadline": "{deadline}ms", "workers": {ENVOYS}}}, "emit_filter_state": true, "policies": [{}]}}"#,
        policies.join(", ")
    )
}
