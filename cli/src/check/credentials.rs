// SPDX-License-Identifier: Apache-2.0
//! Parts of subjects that are credentials by their names: in clear, or under a hash without a secret.

use super::warning::{code, note, warning};
use crate::describe;
use crate::finding::Finding;
use weir::config::Config;
use weir::policy::key::ValueHasher;
use weir::policy::subject::Source;

/// Names of headers, cookies, parameters and values of bodies that have a secret. Compared without `-`, `_` and case.
const NAMES: &[&str] = &[
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "connectsid",
    "jsessionid",
    "jwt",
    "key",
    "passwd",
    "password",
    "phpsessid",
    "proxyauthorization",
    "pwd",
    "secret",
    "sid",
];

/// Names that end so have a secret, too: `x-goog-api-key`, `access_token`, `my_session`.
const ENDS: &[&str] = &["apikey", "accesskey", "password", "secret", "session", "sessionid", "token"];

/// The secret in weir's examples and documents.
const PUBLISHED: &[u8] = b"8c2f0e51b7d94a36a1f3c6d2e9074b58";

pub fn warnings(config: &Config, found: &mut Vec<Finding>) {
    let mut first_hashed = None;
    for (index, policy) in config.policies.iter().enumerate() {
        for (place, part) in policy.parts() {
            let path = format!("policies[{index}].{place}");
            if part.hash.is_some() {
                first_hashed.get_or_insert(path);
            } else if is_credential(&part.source) {
                let reason = format!(
                    "by its name, the {} is a credential, and keys in Redis, logs and the journal have it in clear",
                    describe::part(part)
                );
                let advice = "Write `credential: {}`, or `hash: true` beside it; `--against OLD` says which subjects begin anew then";
                found.push(warning(code::UNHASHED_CREDENTIAL, path, reason, advice));
            }
        }
    }
    if let Some(path) = first_hashed
        && !config.store.hasher.has_secret()
        && config.store.hash_secret_env.is_none()
    {
        let reason = "without `store.hash_secret`, keys have its plain SHA-256: who reads Redis can test guesses, which find no random \
                      API key, but names, addresses and numbers";
        let advice = "If its values can be guessed, write `store.hash_secret`";
        found.push(note(code::PLAIN_HASH, path, reason, advice));
    }
    if config.store.hasher.is_like(&ValueHasher::with_secret(PUBLISHED)) {
        let reason =
            "this is the secret of weir's examples, which everybody knows, so it protects no more than none";
        let advice = "Write your own: `openssl rand -hex 16`";
        found.push(warning(code::PUBLISHED_SECRET, "store.hash_secret", reason, advice));
    }
}

fn is_credential(source: &Source) -> bool {
    match source {
        Source::Header(name) => is_secret(name.as_bytes()),
        Source::Cookie(name) | Source::Query(name, _) => is_secret(name),
        Source::Body(path, _) => is_secret(path.rsplit(['.', ':']).next().unwrap_or_default().as_bytes()),
        Source::Attribute(property) => {
            matches!(property.path.as_slice(), [request, headers, name]
                if request == "request" && headers == "headers" && is_secret(name.as_bytes()))
        }
        _ => false,
    }
}

fn is_secret(name: &[u8]) -> bool {
    let letters = name.iter().filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase);
    let letters: Vec<u8> = letters.collect();
    NAMES.iter().any(|secret| letters == secret.as_bytes())
        || ENDS.iter().any(|end| letters.ends_with(end.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_however_they_are_written() {
        for name in [
            "authorization",
            "proxy-authorization",
            "x-api-key",
            "api-key",
            "x-goog-api-key",
            "x-auth-token",
            "key",
            "api_key",
            "token",
            "access_token",
            "session",
            "JSESSIONID",
            "connect.sid",
            "__Host-session",
            "password",
        ] {
            assert!(is_secret(name.as_bytes()), "{name}");
        }
        for name in [
            "x-user",
            "user-agent",
            "tokens",
            "x-tenant",
            "keyboard",
            "sidebar",
            "author",
            "cookie-key-name",
            "monkey",
        ] {
            assert!(!is_secret(name.as_bytes()), "{name}");
        }
    }
}
