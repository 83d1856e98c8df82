// SPDX-License-Identifier: Apache-2.0
//! The failures of the store. For a request all failures are the same: `on_failure` decides. For the operator each kind has its own
//! counter, and its own log line, which says what to do.

use std::fmt;

use crate::sorted_map::sorted;
use crate::time::Micros;

/// The reason for which a batch, or one command of it, got no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// The host could not send it: no such cluster, or its circuit breaker is open.
    NotSent,
    /// More requests wait than the store answers in time.
    Overloaded,
    /// No answer within the deadline.
    Timeout,
    /// The answer did not come from the bridge.
    NotTheBridge,
    /// weir's breaker opened: the store is not asked until it answers a probe.
    BreakerOpen,
    /// Envoy could not connect to Redis, or lost the connection.
    Refused,
    /// Redis did not answer within the `op_timeout` of `redis_proxy`.
    Slow,
    /// The store answered this command with an error. This is its text.
    Error(String),
    /// The reply ended early, or is not a reply of the script.
    BadReply,
}

const MOVED: &str = "it is a Redis Cluster: see docs/stores.md, and set `enable_redirection` in redis_proxy";

/// Errors, by the beginning of their text: the kind, and what to do about it.
const ERRORS: &[(&str, &str, &str)] = &[
    ("NOAUTH", "noauth", "give Envoy the password of Redis, or the right one: see docs/stores.md"),
    (
        "WRONGPASS",
        "wrongpass",
        "correct the user or the password that Envoy has for Redis: see docs/stores.md",
    ),
    ("NOPERM", "noperm", "allow the user the commands and keys named in docs/stores.md"),
    (
        "ERR Protocol error: unauthenticated",
        "noauth",
        "give Envoy the password of Redis, or the right one: see docs/stores.md",
    ),
    (
        "ERR The user executing the script can't",
        "noperm",
        "allow the user the commands and keys named in docs/stores.md",
    ),
    // Before version 7.
    (
        "The user executing the script can't",
        "noperm",
        "allow the user the commands and keys named in docs/stores.md",
    ),
    ("ERR ACL failure in script", "noperm", "allow the user the commands and keys named in docs/stores.md"),
    (
        "NOREPLICAS",
        "noreplicas",
        "the primary has lost its replicas, and `min-replicas-to-write` or `store.min_replicas` asks for some",
    ),
    ("READONLY", "readonly", "Envoy is connected to a replica: let it find the primary"),
    ("OOM", "oom", "raise `maxmemory`, or set `maxmemory-policy volatile-ttl`"),
    ("LOADING", "loading", "Redis is reading its data: it answers when it has finished"),
    ("BUSY", "busy", "another script runs for too long: stop it with SCRIPT KILL"),
    ("CLUSTERDOWN", "clusterdown", "slots of the cluster are not served: see CLUSTER INFO"),
    ("MASTERDOWN", "masterdown", "the replica has lost its primary"),
    ("MOVED", "moved", MOVED),
    ("ASK", "moved", MOVED),
    ("TRYAGAIN", "tryagain", "a slot is being moved: it answers again when the move is complete"),
    (
        "CROSSSLOT",
        "crossslot",
        "leave `store.topology` at `any` for a Redis Cluster, and set `enable_hashtagging` in redis_proxy",
    ),
    ("NOSCRIPT", "noscript", "Redis has forgotten the script that it had just received"),
    (
        "no upstream host",
        "no_host",
        "Envoy has no healthy endpoint of Redis: check its address and health checks",
    ),
    ("", "error", "see Redis's documentation of this error"),
];

/// The kinds that are no errors of the store.
const KINDS: [&str; 8] =
    ["not_sent", "overloaded", "timeout", "not_the_bridge", "breaker_open", "refused", "slow", "bad_reply"];

/// The answer of `redis_proxy` if it has no reply, for whatever reason.
const NO_REPLY: &[u8] = b"upstream failure";

impl StoreFailure {
    /// An error that the store or `redis_proxy` answered after this time. `redis_proxy` does not say why it has no reply: a
    /// connection is refused or lost at once, and anything slower is a timeout.
    pub(super) fn answered(error: &[u8], after: Micros, deadline: Micros) -> Self {
        match error {
            NO_REPLY if after.0 >= deadline.0 / 4 => Self::Slow,
            NO_REPLY => Self::Refused,
            error => Self::Error(String::from_utf8_lossy(error).into_owned()),
        }
    }

    /// True if every command on this connection will fail like this. Redis checks the login when the connection begins, and Envoy chooses
    /// the primary then.
    pub(super) fn is_connection_scoped(&self) -> bool {
        matches!(self.kind(), "noauth" | "wrongpass" | "readonly" | "masterdown" | "noreplicas")
    }

    /// Every name that [`kind`](Self::kind) returns, for hosts that can only define counters in advance.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        let mut kinds = sorted(ERRORS.iter().map(|(_, kind, _)| *kind).chain(KINDS).collect());
        kinds.dedup();
        kinds.into_iter()
    }

    /// The name of the counter of these failures.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotSent => "not_sent",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::NotTheBridge => "not_the_bridge",
            Self::BreakerOpen => "breaker_open",
            Self::Refused => "refused",
            Self::Slow => "slow",
            Self::Error(text) => error(text).0,
            Self::BadReply => "bad_reply",
        }
    }
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent => f.write_str(
                "a batch could not be sent: is `store.cluster` defined in Envoy, an endpoint of it healthy, and its circuit breaker closed?",
            ),
            Self::Overloaded => f.write_str("more requests wait than Redis answers in time: reduce its load, or give it more CPU"),
            Self::Timeout => f.write_str("no answer within `store.deadline`"),
            Self::NotTheBridge => {
                f.write_str("the answer did not come from the bridge: check that `store.cluster` in Envoy has weir's filter and its `upstream_config`")
            }
            Self::BreakerOpen => f.write_str("not asked for a moment: it gave no usable answer several times in a row"),
            Self::Refused => f.write_str("no connection to Redis: check that it runs, and that Envoy has its address"),
            Self::Slow => f.write_str("Redis took longer than `op_timeout` of redis_proxy: see SLOWLOG GET"),
            Self::Error(text) => {
                // Redis quotes the command in its errors, so a long text may contain a subject's key.
                let shown: String = cause(text).chars().take(80).collect();
                write!(f, "{shown:?}: {}", error(text).1)
            }
            Self::BadReply => f.write_str("the reply ended early or is not what the script answers: check that the server is Redis"),
        }
    }
}

/// The answer to a command of a script. Before version 7, Redis puts its places in the script before it:
/// `ERR Error running script (call to f_…): @user_script:5: @user_script: 5: -OOM command not allowed …`.
fn cause(text: &str) -> &str {
    let is_of_script = text.starts_with("ERR Error running script") || text.starts_with("@user_script");
    let behind = text.rsplit_once("@user_script: ").and_then(|(_, rest)| rest.split_once(": "));
    behind.filter(|_| is_of_script).map_or(text, |(_, cause)| cause.trim_start_matches('-'))
}

/// The kind of an error, and what to do about it.
fn error(text: &str) -> (&'static str, &'static str) {
    let text = cause(text);
    let found = ERRORS.iter().find(|(begin, ..)| text.starts_with(begin));
    found.map_or(("error", ""), |&(_, kind, advice)| (kind, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_of_a_kind_that_is_known_in_advance() {
        let kinds: Vec<_> = StoreFailure::kinds().collect();
        let errors = ERRORS.iter().map(|(text, ..)| StoreFailure::Error((*text).into()));
        let others = [
            StoreFailure::NotSent,
            StoreFailure::Overloaded,
            StoreFailure::Timeout,
            StoreFailure::NotTheBridge,
            StoreFailure::BreakerOpen,
            StoreFailure::Refused,
            StoreFailure::Slow,
            StoreFailure::BadReply,
        ];
        for failure in errors.chain(others) {
            assert!(kinds.contains(&failure.kind()), "{failure:?}");
        }
        assert!(kinds.is_sorted_by(|one, next| one < next), "each once: {kinds:?}");
    }
}
