// SPDX-License-Identifier: Apache-2.0
//! `store`: how weir asks Redis, and what it does without an answer.

use super::Config;
use super::schema::{
    ConfigError, Count, Duration, Errors, KEY_PREFIX, SECRET, TEXT, Text, VARIABLE, View, Word, Words, count,
    duration, object, text, word, words,
};
use crate::limit::MIN_WINDOW;
use crate::policy::OnFailure;
use crate::policy::key::ValueHasher;
use crate::time::Micros;

/// The settings of the store.
#[derive(Clone, Debug)]
pub struct Store {
    /// The Envoy cluster of the bridge.
    pub cluster: String,
    /// The time for which a request waits for an answer; from 1 ms to 10 s.
    pub deadline: Micros,
    /// The decision for a request without an answer, unless its policy has an `on_failure` of its own.
    pub on_failure: OnFailure,
    /// The distribution of keys.
    pub topology: Topology,
    /// The number of replicas that must acknowledge a grant.
    pub min_replicas: u32,
    /// The number of workers that share the limits.
    pub workers: u32,
    /// The prefix of all keys, before a colon.
    pub key_prefix: String,
    /// Hashes the parts of subjects that must not be in Redis in clear.
    pub hasher: ValueHasher,
    /// The environment variable with the secret of `hasher`, if it is not in the configuration: see [`Config::with_secret`].
    pub hash_secret_env: Option<String>,
    /// A worker asks again about a subject that was denied after this at the earliest, and after twice this at the latest.
    pub denial_ttl: Micros,
}

/// The distribution of the keys of subjects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// The keys of one subject are together; those of different subjects may be apart.
    #[default]
    Any,
    /// All keys are in one Redis, so that one script can decide about several subjects.
    Single,
}

object! {
    static STORE: StoreFields = "store", "How weir asks Redis about limits.";
    cluster: Text = text(&TEXT)
        .default("\"weir-bridge\"", "The Envoy cluster that leads to Redis, with weir's bridge as its filter."),
    deadline: Duration = duration(MIN_WINDOW, Micros::from_secs(10))
        .default("\"50ms\"", "How long a request is held for an answer. After that, `on_failure` decides."),
    on_failure: Word<OnFailure> = word(&ON_FAILURE)
        .default("\"allow\"", "What happens to a request when Redis does not answer in time, or answers with an error."),
    topology: Word<Topology> = word(&TOPOLOGY)
        .default("\"any\"", "Where the keys are. It never changes what is decided, only what it costs."),
    min_replicas: Count<u32> = count(0, 5)
        .default("0", "How many replicas must have a grant before it counts as answered (`WAIT`). Otherwise `on_failure` decides the request. Needs \
            `topology: single`. See [replicas](stores.md#grants-that-replicas-have)."),
    workers: Count<u32> = count(1, 1_000_000)
        .default("1", "How many workers there are: proxies times their worker threads. Only `on_failure: local` uses it."),
    denial_ttl: Duration = duration(Micros::ZERO, Micros::from_secs(3600))
        .default("\"1s\"", "How long a worker denies a subject without asking Redis again: between this and twice this, so \
            that workers and subjects do not all ask at once. The worker sees changes in Redis (`DEL`, `FLUSHALL`) by then. \
            `0s` asks about every request. See [denials](policies.md#denials)."),
    key_prefix: Text = text(&KEY_PREFIX).default("\"weir\"", "What all keys begin with, before a colon. Deployments that share a Redis, \
        and no limits, need different ones. See [keys](subjects.md#keys)."),
    hash_secret: Option<Text> = text(&SECRET).optional("The secret under which credentials and parts with `hash` are hashed: random \
        text, the same for all proxies that share limits. See [keys](subjects.md#keys)."),
    hash_secret_env: Option<Text> = text(&VARIABLE).optional("The environment variable of Envoy that has the secret, in place of `hash_secret`, so that the \
        configuration contains none. The plugin also needs it in `vm_config.environment_variables.host_env_keys`, where `weir render` writes it. \
        Without the variable, weir refuses the configuration."),
}

pub(super) static TOPOLOGY: Words<Topology> = words! {
    "any" => Topology::Any, "In one Redis or in several: a Redis Cluster, or servers that redis_proxy spreads keys over. Redis \
        runs a script for each subject.";
    "single" => Topology::Single, "All in one Redis, with or without replicas and Sentinel. Redis runs one script for up to 64 \
        subjects that are asked about at the same time. A Redis Cluster refuses that (`CROSSSLOT`). Do not set it where \
        redis_proxy spreads keys over several servers: each server would count a subject for itself.";
};

pub(super) static ON_FAILURE: Words<OnFailure> = words! {
    "allow" => OnFailure::Allow, "The request is admitted; nothing is counted.";
    "deny" => OnFailure::Deny, "The request is rejected with status 503, and `Retry-After: 1`.";
    "local" => OnFailure::Local, "Each worker limits by itself, from the moment that Redis failed: counts are the limit's \
        divided by the store's `workers`.";
};

pub(super) fn read(store: &View<'_, StoreFields>, errors: &mut Errors) -> Store {
    let (topology, min_replicas) = (store.get(&STORE.topology), store.get(&STORE.min_replicas));
    check_replicas(&store.path_of(&STORE.min_replicas), min_replicas, topology, errors);
    let (secret, variable) = (store.get(&STORE.hash_secret), store.get(&STORE.hash_secret_env));
    if secret.is_some() && variable.is_some() {
        errors.add(
            &store.path_of(&STORE.hash_secret_env),
            "a second secret",
            "one of hash_secret and hash_secret_env",
        );
    }
    Store {
        min_replicas,
        cluster: store.get(&STORE.cluster).to_owned(),
        deadline: store.get(&STORE.deadline),
        on_failure: store.get(&STORE.on_failure),
        topology,
        workers: store.get(&STORE.workers),
        denial_ttl: store.get(&STORE.denial_ttl),
        key_prefix: store.get(&STORE.key_prefix).to_owned(),
        hasher: secret
            .map_or_else(ValueHasher::default, |secret| ValueHasher::with_secret(secret.as_bytes())),
        hash_secret_env: variable.map(str::to_owned),
    }
}

impl Store {
    /// True if the secret is in an environment variable that was not read.
    #[must_use]
    pub const fn lacks_secret(&self) -> bool {
        self.hash_secret_env.is_some() && !self.hasher.has_secret()
    }
}

impl Config {
    /// The same, with the secret in the variable of `hash_secret_env`, if it names one. `variable` gives a variable's value.
    ///
    /// # Errors
    /// There is no such variable, or it has no secret.
    pub fn with_secret(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let Some(name) = &self.store.hash_secret_env else { return Ok(self) };
        // A Secret of Kubernetes that was made from a file ends with its line feed.
        let value = variable(name).map(|value| value.trim_end_matches(['\r', '\n']).to_owned());
        let Some(secret) = value.as_deref().filter(|secret| (SECRET.check)(secret).is_ok()) else {
            let value = value.map_or_else(
                || String::from("no such variable"),
                |value| format!("a text of {} bytes", value.len()),
            );
            return Err(ConfigError {
                path: String::from("store.hash_secret_env"),
                found: format!("{name:?}: {value}"),
                allowed: format!("a variable of the environment with {}", SECRET.allowed),
                hint: None,
            });
        };
        self.store.hasher = ValueHasher::with_secret(secret.as_bytes());
        let parts =
            self.policies.iter_mut().flat_map(|policy| policy.subject.iter_mut().chain(&mut policy.members));
        parts.filter_map(|part| part.hash.as_mut()).for_each(|hash| hash.clone_from(&self.store.hasher));
        Ok(self)
    }
}

/// `WAIT` says how many replicas have what was written on its own connection. `redis_proxy` refuses it, because it sends the commands
/// of one connection to several nodes.
pub(super) fn check_replicas(path: &str, min_replicas: u32, topology: Topology, errors: &mut Errors) {
    if min_replicas > 0 && topology != Topology::Single {
        errors.add(
            path,
            min_replicas,
            "0, or `topology: single`: redis_proxy, and so a Redis Cluster, has no WAIT",
        );
    }
}
