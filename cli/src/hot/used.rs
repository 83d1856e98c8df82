// SPDX-License-Identifier: Apache-2.0
//! The subjects that have used most of their limits. A scan of all keys finds them; the filter's script says what is left.

use std::cmp::Reverse;
use std::io;
use std::path::Path;

use serde_json::json;

use super::super::usage::{Used, of_all, tell_partial};
use super::super::{Ended, Found, failed};
use super::Arguments;

/// Looks, and prints those with the largest share.
pub(super) fn run(arguments: &Arguments, file: &Path, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.in_region.load(file)?;
    let (mut all, is_partial) = of_all(&config, arguments.policy.as_deref(), || arguments.place.connect())?;
    all.retain(|used| used.units > 0);
    all.sort_by(|a, b| {
        (Reverse(a.percent()), &a.subject, &a.limit).cmp(&(Reverse(b.percent()), &b.subject, &b.limit))
    });
    if all.is_empty() && !arguments.json {
        writeln!(out, "no subject has used any of its limits").map_err(failed)?;
    }
    for used in all.iter().take(arguments.top.into()) {
        let (percent, Used { policy, subject, limit, left, quota, .. }) = (used.percent(), used);
        if arguments.json {
            let line = json!({
                "policy": policy, "subject": subject, "limit": limit, "used_percent": percent, "remaining": left, "quota": quota,
            });
            writeln!(out, "{line}").map_err(failed)?;
        } else {
            writeln!(
                out,
                "{percent:>4} %  {subject}  limit {limit}: {left} of {quota} left (policy {policy})"
            )
            .map_err(failed)?;
        }
    }
    if is_partial {
        out.flush().map_err(failed)?;
        tell_partial();
    }
    Ok(Found::Nothing)
}
