// SPDX-License-Identifier: Apache-2.0
//! The versions of Envoy that have what weir needs. docs/compatibility.md has the same table.

use core::fmt;
use core::str::FromStr;

use super::check::inside;
use super::document::{Node, Place};
use super::finding::Finding;
use super::source::{Kind, Limiter, Source};

/// The code of an error: Envoy refuses the file.
pub(super) const REFUSED: &str = "refused-by-envoy";
/// The code of a warning: weir was never run with this Envoy.
pub(super) const UNTRIED: &str = "untried-envoy";

/// A minor version of Envoy or of a control plane: settings come with these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub u32, pub u32);

/// `failure_policy` exists since this version.
pub(super) const RELOADS: Version = Version(1, 33);
/// `allow_on_headers_stop_iteration` exists since this version.
pub(super) const SHOWS_BODIES: Version = Version(1, 35);
/// The oldest version that `make matrix` runs.
pub(super) const TRIED: Version = Version(1, 36);
/// Dynamic modules have what `libweir.so` needs since this version.
pub(super) const LOADS_MODULE: Version = Version(1, 40);

impl FromStr for Version {
    type Err = String;

    /// Reads `1.37`, `v1.37` and `1.37.5`.
    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u32>> =
            text.trim_start_matches('v').split('.').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([major, minor] | [major, minor, _]) => Ok(Self(*major, *minor)),
            _ => Err(format!("found {text:?}, allowed: two or three numbers such as 1.37 or 1.37.5")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

/// The field of a plugin's configuration, the first Envoy that has it, and what an older one needs instead.
const FIELDS: [(&str, Version, &str); 2] = [
    ("failure_policy", RELOADS, "fail_open: false; a plugin that has trapped then stays down"),
    ("allow_on_headers_stop_iteration", SHOWS_BODIES, "no such field, and no policy that reads bodies"),
];

/// The findings about parts of a file that an Envoy of this version refuses or ignores.
pub(super) fn findings(source: &Source, limiters: &[Limiter<'_>], version: Version) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut refused = |place: Place, path: &str, since: Version, allowed: &str| {
        let said = format!(
            "{path}: Envoy {version} does not know it, allowed: Envoy {since} or newer, or {allowed}"
        );
        found.push(Finding::error(REFUSED, place, said));
    };
    for (name, since, instead) in FIELDS.iter().filter(|(_, since, _)| version < *since) {
        let is_plugin = |node: &Node| node.get(name).is_some() && node.get("vm_config").is_some();
        for plugin in source.documents.iter().flat_map(|document| inside(document, &is_plugin)) {
            refused(plugin.place_of(name), name, *since, instead);
        }
    }
    let mut carriers = limiters.iter().filter_map(|limiter| limiter.carrier.as_ref());
    if version < LOADS_MODULE
        && let Some(carrier) = carriers.clone().find(|carrier| carrier.kind == Kind::Native)
    {
        refused(carrier.node.place, "libweir.so", LOADS_MODULE, "weir.wasm");
    }
    if version < TRIED && !limiters.is_empty() {
        let place = carriers.next().map_or(Place::START, |carrier| carrier.node.place);
        let reason = format!("weir was not run with Envoy {version}, which is older than {TRIED}");
        let advice = "Try it first, or use a newer Envoy";
        found.push(Finding::warning(UNTRIED, place, "", reason, advice));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        for (text, wanted) in [
            ("1.37", Ok(Version(1, 37))),
            ("v1.9", Ok(Version(1, 9))),
            ("1.36.10", Ok(Version(1, 36))),
            ("1", Err(())),
            ("1.x", Err(())),
            ("1.37.5.1", Err(())),
            ("", Err(())),
        ] {
            assert_eq!(text.parse::<Version>().map_err(|_| ()), wanted, "{text:?}");
        }
        assert!(Version(1, 9) < RELOADS && TRIED < LOADS_MODULE);
    }
}
