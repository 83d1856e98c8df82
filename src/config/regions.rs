// SPDX-License-Identifier: Apache-2.0
//! `regions`: the stores of the regions, and how the limits of a policy hold across them.

use core::fmt;

use super::policy::{POLICY, PolicyFields};
use super::schema::{
    Count, Duration, Errors, List, NAME, Nested, TEXT, Text, View, Word, count, duration, list, nearest,
    nested, object, text, word,
};
use super::store::{Store, TOPOLOGY, Topology, check_replicas};
use super::subject::{EMPTY, EmptyFields};
use crate::limit::{Limit, MIN_WINDOW};
use crate::policy::{self, Lease, Tiers};
use crate::sorted_map::sorted;
use crate::time::Micros;

/// The most regions of one configuration.
pub const MAX_REGIONS: usize = 32;

/// A store, as this proxy reaches it.
#[derive(Clone, Debug)]
pub struct Region {
    /// The name of its region; empty where the configuration has no regions.
    pub name: String,
    /// Its path in the configuration.
    pub path: String,
    /// The Envoy cluster of the bridge.
    pub cluster: String,
    /// The time for which a request waits for an answer.
    pub deadline: Micros,
    /// The distribution of keys.
    pub topology: Topology,
    /// The number of replicas that must acknowledge a grant.
    pub min_replicas: u32,
}

/// The regions of a configuration.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The interval at which a worker tells the other regions, or asks them.
    pub sync_interval: Micros,
    /// All of them. The first is this one.
    pub all: Vec<Region>,
}

impl Regions {
    /// The lease of units borrowed from other regions: its duration is how long a worker holds them.
    pub(super) fn loan(&self) -> Lease {
        let duration = Micros(self.sync_interval.0.saturating_mul(2));
        Lease { max: u32::MAX, min: 1, duration, is_auto: false }
    }

    /// A configuration that has one region.
    fn one(store: &Store) -> Self {
        Self { sync_interval: Micros::ZERO, all: vec![Region::here("", store)] }
    }
}

/// Their names, for errors about another one.
impl fmt::Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.all.as_slice() {
            [_] | [] => f.write_str("no `regions`"),
            [first, others @ ..] => {
                f.write_str(&first.name)?;
                others.iter().try_for_each(|region| write!(f, ", {}", region.name))
            }
        }
    }
}

impl Region {
    fn here(name: &str, store: &Store) -> Self {
        let (name, path, cluster) = (name.to_owned(), "store".to_owned(), store.cluster.clone());
        let Store { deadline, topology, min_replicas, .. } = *store;
        Self { name, path, cluster, deadline, topology, min_replicas }
    }
}

object! {
    static REGIONS: RegionsFields = "regions",
        "The regions that share limits. Each has a Redis of its own. See [regions](policies.md#regions).";
    here: Text = text(&NAME).required("The name of the region that this proxy is in: one of `all`."),
    all: List<Nested<RegionFields>> = list(&nested(&REGION), 2, MAX_REGIONS)
        .required("All regions, the same list in each of them."),
    sync_interval: Duration = duration(Micros::from_millis(10), Micros::from_secs(60))
        .default("\"200ms\"", "How often a worker tells the other regions what it has granted (`debit`), or asks them for what they do not \
            need (`share`). The same in all regions."),
}

object! {
    static REGION: RegionFields = "region",
        "A region, and how the others reach its Redis. For the proxies of the region itself, `store` holds.";
    name: Text = text(&NAME).required("Its name, which no other region has."),
    cluster: Text = text(&TEXT).required("The Envoy cluster that leads to its Redis, with weir's bridge as its filter."),
    deadline: Duration = duration(MIN_WINDOW, Micros::from_secs(10))
        .default("\"500ms\"", "How long a request is held for an answer of this Redis (`home`), and how long a worker waits for it otherwise."),
    topology: Word<Topology> = word(&TOPOLOGY).default("\"any\"", "Where the keys of this Redis are."),
    min_replicas: Count<u32> = count(0, 5).default("0", "How many replicas of this Redis must have a grant, as in `store`."),
}

object! {
    static WAY: WayFields = "across", exactly_one(home, debit, share),
        "How the limits of a policy hold across regions. See [regions](policies.md#regions).";
    home: Option<Text> = text(&NAME)
        .optional("The Redis of this region counts for all. Exact; a request of another region waits for the way there and back."),
    debit: Option<Nested<EmptyFields>> = nested(&EMPTY)
        .optional("Each region decides by its own Redis, and what it grants is charged in the others afterwards. Fast; regions that \
            grant at the same time admit more than the limit for a moment."),
    share: Option<Nested<EmptyFields>> = nested(&EMPTY)
        .optional("Each region has an equal part of every limit, and borrows from the others what they do not need. Fast, and never \
            more than the limit."),
}

pub(super) fn read(view: Option<&View<'_, RegionsFields>>, store: &Store, errors: &mut Errors) -> Regions {
    let Some(view) = view else { return Regions::one(store) };
    let here = view.get(&REGIONS.here);
    let (mut all, mut names) = (vec![Region::here(here, store)], Vec::<String>::new());
    let regions = view.get(&REGIONS.all);
    for region in regions.iter() {
        let name = region.get(&REGION.name);
        names.push(name.to_owned());
        if name != here {
            let (topology, min_replicas) = (region.get(&REGION.topology), region.get(&REGION.min_replicas));
            check_replicas(&region.path_of(&REGION.min_replicas), min_replicas, topology, errors);
            all.push(Region {
                name: name.to_owned(),
                path: region.path(),
                cluster: region.get(&REGION.cluster).to_owned(),
                deadline: region.get(&REGION.deadline),
                topology,
                min_replicas,
            });
        }
    }
    if !names.iter().any(|name| name == here) {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        refuse(&view.path_of(&REGIONS.here), here, &names, errors);
    }
    Regions { sync_interval: view.get(&REGIONS.sync_interval), all }
}

fn refuse(path: &str, name: &str, names: &[&str], errors: &mut Errors) {
    let allowed = match names {
        [] => "no region, because the configuration has no `regions`".to_owned(),
        names => format!("the name of a region: {}", names.join(", ")),
    };
    errors.add_with_hint(path, format_args!("{name:?}"), allowed, nearest(name, names.iter().copied()));
}

/// Reads how the limits of a policy hold across these regions.
pub(super) fn read_way(view: &View<'_, WayFields>, regions: &Regions, errors: &mut Errors) -> policy::Across {
    let named = regions.all.len() > 1;
    if let Some(home) = view.get(&WAY.home) {
        let place = regions.all.iter().position(|region| region.name == home && named);
        if let Some(place) = place.and_then(|place| u8::try_from(place).ok()) {
            return policy::Across::Home(place);
        }
        let names = regions.all.iter().filter(|_| named).map(|region| region.name.as_str());
        let names = sorted(names.collect());
        refuse(&view.path_of(&WAY.home), home, &names, errors);
        return policy::Across::Apart;
    }
    if !named {
        errors.add(&view.path(), "a way across regions", "none, because the configuration has no `regions`");
    }
    if view.get(&WAY.debit).is_some() { policy::Across::Debit } else { policy::Across::Share }
}

/// The longest sync interval with which this many regions can charge each other with all that they grant under this limit.
///
/// While a charge is under way, each region grants its limit at most, and what comes back of it meanwhile. One worker owes at most
/// twice the limit, and a region is in debt for at most what [`Limit::debt`] says.
fn longest_interval(limit: &Limit, count: u64) -> Micros {
    let (whole, others) = (limit.whole_within().0, count.saturating_sub(1).max(1));
    let holds = u64::from(limit.debt()).saturating_sub(others).saturating_mul(whole) / others;
    Micros(holds.min(whole))
}

fn in_millis(span: Micros) -> String {
    format!("{}.{:03} ms", span.0 / 1_000, span.0 % 1_000).replace(".000", "")
}

/// Refuses a policy that cannot hold across this many regions in this way.
pub(super) fn check(
    view: &View<'_, WayFields>,
    policy: &View<'_, PolicyFields>,
    (regions, all): (policy::Across, &Regions),
    tiers: &Tiers,
    errors: &mut Errors,
) {
    let way = match regions {
        policy::Across::Apart | policy::Across::Home(_) => return,
        policy::Across::Debit => "debit",
        policy::Across::Share => "share",
    };
    let count = all.all.len() as u64;
    let mut refuse = |reason: &str| errors.add(&view.path(), way, format_args!("no {way} {reason}"));
    for limit in tiers.tiers.iter().flat_map(|tier| tier.plan.limits()) {
        if let Limit::Concurrency(_) = limit {
            refuse("with a concurrency limit, whose permits are held in one Redis: `home` can");
        }
        if let Limit::Distinct(_) = limit {
            refuse("with a distinct limit, whose values are in one Redis: `home` can");
        }
    }
    if policy.get(&POLICY.overrides) {
        refuse("with overrides, which stand in one Redis: `home` can");
    }
    if regions == policy::Across::Debit {
        let limits = tiers.tiers.iter().flat_map(|tier| tier.plan.limits());
        let limits = limits.filter(|limit| !matches!(limit, Limit::Concurrency(_) | Limit::Distinct(_)));
        for (whole, most) in limits.map(|limit| (limit.whole_within(), longest_interval(limit, count))) {
            if all.sync_interval > most {
                let (whole, most) = (in_millis(whole), in_millis(most));
                let reason = format!(
                    "of a limit that is whole again within {whole}, with a sync_interval above {most}: regions would grant more than \
                     they can owe, and admit too much for ever"
                );
                refuse(&reason);
            }
        }
        return;
    }
    // These limits are the parts of this region.
    let (mut waits, mut small) = (false, false);
    for (limit, whole) in tiers.tiers.iter().flat_map(|tier| tier.plan.limits().iter().zip(&tier.views)) {
        waits |= matches!(limit, Limit::LeakyBucket(bucket) if bucket.max_delay() > Micros::ZERO);
        small |= whole.quota(1, 0) < count;
    }
    if waits {
        refuse("with a max_delay: requests take turns in one Redis; `home` and `debit` can");
    }
    if small {
        refuse("of a limit, burst or capacity below the number of regions: each needs a whole unit");
    }
    if policy.get(&POLICY.ban).is_some() {
        refuse("with a ban: another region would lend to a subject that is banned; `home` and `debit` can");
    }
    if policy.get(&POLICY.lease).is_some() {
        refuse("with a lease: what is borrowed is one");
    }
    if policy.get(&POLICY.priority).iter().next().is_some() {
        refuse("with a priority: another region would lend what is kept; `home` and `debit` can");
    }
}
