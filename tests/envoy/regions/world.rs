// SPDX-License-Identifier: Apache-2.0
//! Three regions, and a policy for each way to hold a limit across them.

use std::time::Duration;

use crate::Form;
use crate::support::envoy::Template;
use crate::support::http::Request;
use crate::support::load::Lane;
use crate::support::proxy::{self, Carried, Network};
use crate::support::redis::Redis;
use crate::support::regions::{self, Region, section};

/// The way in which the limits of a policy hold across regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Home,
    Debit,
    Share,
}

/// A policy: its name is the path that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub name: &'static str,
    pub hold: Hold,
    /// `regions` of the policy.
    pub across: &'static str,
}

pub static WAYS: [Way; 3] = [
    Way { name: "home", hold: Hold::Home, across: r#"{"home": "ams"}"# },
    Way { name: "debit", hold: Hold::Debit, across: r#"{"debit": {}}"# },
    Way { name: "share", hold: Hold::Share, across: r#"{"share": {}}"# },
];

/// The requests that no policy matches: only the machine can slow them down.
pub static CONTROL: Way = Way { name: "none", hold: Hold::Home, across: "" };

pub const REGIONS: usize = 3;
/// The number of Envoys of a region, with two workers each.
pub const ENVOYS: usize = 2;
pub const SYNC_INTERVAL: Duration = Duration::from_millis(200);
/// No request is held longer for an answer of Redis, and no worker waits longer for another region.
pub const DEADLINE: Duration = Duration::from_secs(1);

/// The network between any two regions.
pub const BETWEEN: proxy::Way =
    proxy::Way { trip: Duration::from_millis(50), jitter: Duration::from_millis(20), lost: 0 };

/// See the [module](self).
pub struct World {
    pub regions: Vec<Region>,
    subjects: usize,
}

impl World {
    pub fn start(form: Form) -> Self {
        let stores = (0..REGIONS).map(|_| Redis::start().expect("a redis-server")).collect();
        Self::start_on(stores, form, &|_, template| template)
    }

    pub fn start_on(
        stores: Vec<Redis>,
        form: Form,
        change: &(dyn Fn(usize, Template) -> Template + Sync),
    ) -> Self {
        let regions = regions::start_on(stores, &limiter(form), ENVOYS, change);
        regions::set_all(&regions, &Network::Far(BETWEEN));
        Self { regions, subjects: 0 }
    }

    /// A subject that no case has used yet.
    pub fn subject(&mut self) -> String {
        self.subjects += 1;
        format!("user-{}", self.subjects)
    }

    /// A [`Lane`] for each Envoy of a region.
    pub fn lanes(&self, region: usize, way: &Way, subject: &str) -> Vec<Lane> {
        let request = Request::get(&format!("/{}", way.name)).header("x-user", subject);
        let lane = |envoy| Lane { to: self.regions[region].edge(envoy), request: request.clone() };
        (0..ENVOYS).map(lane).collect()
    }

    /// The traffic of all networks between regions.
    pub fn carried(&self) -> Carried {
        let proxies = self.regions.iter().enumerate().flat_map(|(here, region)| {
            let others = region.networks.iter().enumerate().filter(move |(there, _)| *there != here);
            others.map(|(_, proxy)| proxy.carried())
        });
        proxies.fold(Carried::default(), |sum, each| Carried {
            messages: sum.messages + each.messages,
            bytes: sum.bytes + each.bytes,
        })
    }
}

fn limiter(Form { rate, burst, .. }: Form) -> String {
    let policies = WAYS.each_ref().map(|Way { name, across, .. }| {
        format!(
            r#"{{"name": "{name}", "match": {{"path": {{"exact": "/{name}"}}}}, "regions": {across},
            "subject": [{{"header": {{"name": "x-user"}}}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "{rate}/s", "burst": {burst}}}]}}"#
        )
    });
    let deadline = DEADLINE.as_millis();
    let section = section(REGIONS, &format!("{}ms", SYNC_INTERVAL.as_millis()))
        .replace(r#""deadline": "10s""#, &format!(r#""deadline": "{deadline}ms""#));
    format!(
        r#"{{"store": {{"deadline": "{deadline}ms", "on_failure": "deny"}}, {section}, "policies": [{}]}}"#,
        policies.join(", ")
    )
}
