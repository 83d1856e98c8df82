// SPDX-License-Identifier: Apache-2.0
//! The version of weir.

/// The version, and the commit that it was built from, if the build knew it: `0.1.0 (0123456789ab)`.
pub const BUILD: &str = env!("WEIR_BUILD");

/// The metric that names it: `weir.build_info.0.1.0.0123456789ab`, or `unknown` in place of the commit.
pub const METRIC: &str = concat!("weir.build_info.", env!("WEIR_BUILD_INFO"));

/// The message that a host logs when it has loaded a configuration of this many policies, with this [hash](crate::config::Config::hash).
#[must_use]
pub fn loaded(policies: usize, hash: u32) -> String {
    let word = if policies == 1 { "policy" } else { "policies" };
    format!("weir {BUILD}: {policies} {word}, configuration {hash}")
}
