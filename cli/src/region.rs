// SPDX-License-Identifier: Apache-2.0
//! The region whose Redis a command asks, and the region in whose Redis a policy counts.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::source::Source;
use super::{Ended, Failure, tell};
use weir::config::{Config, Region, Regions, duration_text};
use weir::policy::{Across, Policy};

/// The region of a configuration with `regions`.
#[derive(Args, Clone)]
pub(super) struct InRegion {
    /// The region whose Redis is asked, and whose proxies the configuration is for: one of `regions.all`. By default `regions.here`.
    #[arg(long, value_name = "NAME", help_heading = "Redis")]
    region: Option<String>,
}

impl InRegion {
    /// The only configuration in the file at `path`, as the proxies of the region have it.
    ///
    /// # Errors
    /// It is wrong, or has no such region.
    pub fn load(&self, path: &Path) -> Result<Config, Ended> {
        Source::read(path)?.load(self.region.as_deref()).map(|(config, _)| config)
    }

    /// The same, for a command that makes keys of subjects.
    ///
    /// # Errors
    /// Also: a subject is hashed under a secret that is not in the environment.
    pub fn load_for_keys(&self, path: &Path) -> Result<Config, Ended> {
        let config = self.load(path)?;
        let is_hashed = config.policies.iter().flat_map(Policy::parts).any(|(_, part)| part.hash.is_some());
        match &config.store.hash_secret_env {
            Some(name) if is_hashed && config.store.lacks_secret() => Err(Ended::Failed(format!(
                "{}: store.hash_secret_env: subjects are hashed under {name}, which the environment of this command lacks; allowed: {name}=SECRET weir …",
                crate::words::file(path)
            ))),
            _ => Ok(config),
        }
    }

    /// Refuses a region where the command has no configuration.
    pub fn without_file(&self, file: &str) -> Result<(), Failure> {
        match self.region {
            Some(_) => Err(format!("--region: found no configuration, allowed: with {file} only")),
            None => Ok(()),
        }
    }
}

pub(super) struct Counted<'a> {
    policy: &'a Policy,
    regions: &'a Regions,
    region: &'a Region,
}

impl<'a> Counted<'a> {
    /// `None`, if the configuration has no regions.
    pub fn of(config: &'a Config, policy: &'a Policy) -> Option<Self> {
        let regions = &config.regions;
        let region = regions.all.get(usize::from(policy.regions.store()))?;
        (!region.name.is_empty()).then_some(Self { policy, regions, region })
    }

    /// The region whose Redis decides.
    pub fn region(&self) -> &'a str {
        &self.region.name
    }

    /// True if it is the region whose Redis is asked.
    pub const fn is_here(&self) -> bool {
        self.policy.regions.store() == 0
    }

    /// The regions that count apart from this one, separated by commas; none, if one Redis counts for all.
    pub fn apart(&self) -> Option<String> {
        let is_for_all = matches!(self.policy.regions, Across::Home(_));
        (!is_for_all).then(|| self.others().join(", "))
    }

    fn others(&self) -> Vec<&'a str> {
        let others = self.regions.all.iter().filter(|other| other.name != self.region.name);
        others.map(|other| other.name.as_str()).collect()
    }

    pub fn text(&self) -> String {
        let Region { name, cluster, .. } = self.region;
        let (others, interval) = (self.others(), duration_text(self.regions.sync_interval));
        let rest = match self.policy.regions {
            Across::Apart => format!("; {} count apart", others.join(", ")),
            Across::Home(_) => String::from(", for all regions (home)"),
            Across::Debit => {
                format!(
                    "; what it grants is charged in {} every {interval} afterwards (debit)",
                    others.join(", ")
                )
            }
            Across::Share => format!(
                ", which has 1 of {} equal parts of each limit; what that lacks is asked of {} every {interval} (share)",
                self.regions.all.len(),
                others.join(", ")
            ),
        };
        format!("counted in the Redis of region {name} (cluster {cluster}){rest}")
    }

    pub fn json(&self) -> Value {
        let (way, is_synced) = match self.policy.regions {
            Across::Apart => (None, false),
            Across::Home(_) => (Some("home"), false),
            Across::Debit => (Some("debit"), true),
            Across::Share => (Some("share"), true),
        };
        json!({
            "way": way,
            "region": self.region.name,
            "cluster": self.region.cluster,
            "others": self.others(),
            "sync_interval_ms": is_synced.then(|| self.regions.sync_interval.as_millis_ceil()),
        })
    }

    /// Says what to do, if the Redis that is asked is not the one that counts.
    pub fn elsewhere(&self) -> Option<String> {
        let (policy, region) = (&self.policy.name, self.region());
        (!self.is_here()).then(|| {
            format!(
                "policy {policy} is counted in the Redis of region {region}: name that Redis with --redis, and write --region {region}"
            )
        })
    }
}

/// Says what to do about a policy that is not counted in the Redis that is asked.
pub(super) fn elsewhere(config: &Config, policy: &Policy) -> Option<String> {
    Counted::of(config, policy)?.elsewhere()
}

/// The items of `all` that are counted in the Redis that is asked. The others are named on standard error.
///
/// # Errors
/// If all are counted elsewhere.
pub(super) fn counted_here<T>(
    config: &Config,
    all: Vec<T>,
    policy: impl Fn(&T) -> &Policy,
) -> Result<Vec<T>, Failure> {
    let (mut here, mut others) = (Vec::new(), Vec::new());
    for one in all {
        match elsewhere(config, policy(&one)) {
            Some(said) => others.push(said),
            None => here.push(one),
        }
    }
    if here.is_empty() && !others.is_empty() {
        return Err(others.join("\n"));
    }
    others.iter().for_each(|said| tell(&format!("weir: not asked: {said}")));
    Ok(here)
}
