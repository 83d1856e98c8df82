// SPDX-License-Identifier: Apache-2.0
//! The codes of all warnings, and warnings whose place in a file is not known yet.

use crate::document::Place;
use crate::finding::{Finding, Severity};

/// A warning about the value at `path` of a configuration.
pub fn warning(
    code: &'static str,
    path: impl Into<String>,
    reason: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding::warning(code, Place::START, path, reason, advice)
}

/// The same, as a note: nothing is wrong.
pub fn note(
    code: &'static str,
    path: impl Into<String>,
    reason: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    Finding { severity: Severity::Note, ..warning(code, path, reason, advice) }
}

/// Each code, and under that name a section of docs/command.md.
macro_rules! codes {
    ($($name:ident = $code:expr;)*) => {
        pub mod code {
            $(#[allow(missing_docs)] pub const $name: &str = $code;)*

            pub const ALL: &[&str] = &[$($name),*];
        }
    };
}

codes! {
    DUPLICATE_NAME = "duplicate-name";
    IGNORED_DOCUMENT = "ignored-document";
    OTHER_RADIX = "other-radix";
    IMPOSSIBLE_COST = "impossible-cost";
    UNREACHABLE_COST = "unreachable-cost";
    FREE_POLICY = "free-policy";
    LARGE_RESERVATION = "large-reservation";
    LOCAL_ONE_WORKER = "local-one-worker";
    SHORT_DEADLINE = "short-deadline";
    RARE_SYNC = "rare-sync";
    LARGE_LOG = "large-log";
    SHORT_TTL = "short-ttl";
    WARNED_ALWAYS = "warned-always";
    HELD_PERMITS = "held-permits";
    TRUSTS_EVERYBODY = "trusts-everybody";
    FORWARDED_HEADER = "forwarded-header";
    UNREAD_HEADER = "unread-header";
    UNUSED_SETTING = "unused-setting";
    UNVERIFIED_SUBJECT = "unverified-subject";
    UNVERIFIED_EXEMPTION = "unverified-exemption";
    UNHASHED_CREDENTIAL = "unhashed-credential";
    PLAIN_HASH = "plain-hash";
    AUTO_LEASE = "auto-lease";
    PUBLISHED_SECRET = "published-secret";
    UNCOUNTED_BATCH = "uncounted-batch";
    UNSEEN_MODEL = "unseen-model";
    BEGINS_ANEW = "begins-anew";
    IMPOSSIBLE_MATCH = "impossible-match";
    LITERAL_PATTERN = "literal-pattern";
    SHADOWED_POLICY = "shadowed-policy";
    SLOW_REGEX = "slow-regex";
    UNKNOWN_CLUSTER = "unknown-cluster";
    BRIDGE_MISSING = "bridge-missing";
    NO_TCP_POOL = "no-tcp-pool";
    SHARED_VM = "shared-vm";
    SHARED_COUNTS = "shared-counts";
    SEVERAL_SERVERS = "several-servers";
    FAIL_OPEN = "fail-open";
    SINGLE_BEFORE_CLUSTER = "single-before-cluster";
    CLIENT_CHOSEN_ADDRESS = "client-chosen-address";
    UNDERSCORE_HEADERS = "underscore-headers";
    OWN_ADDRESS = "own-address";
    TRUSTED_TWICE = "trusted-twice";
    IDLE_TIMEOUT = "idle-timeout";
    SMALL_BUFFER = "small-buffer";
    TRAILERS_DROPPED = "trailers-dropped";
    COUNTED_PREFLIGHTS = "counted-preflights";
    UNREAD_BODIES = "unread-bodies";
    OPEN_BRIDGE = "open-bridge";
    PASSWORD_IN_FILE = "password-in-file";
    UNENCRYPTED_PASSWORD = "unencrypted-password";
    STORE_LISTENER_MISSING = "store-listener-missing";
    CLOCK_MISSING = "clock-missing";
    LISTENER_SETTINGS = "listener-settings";
    UNTRIED_ENVOY = crate::envoys::UNTRIED;
}
