// SPDX-License-Identifier: Apache-2.0
//! `ban`: a subject that is denied too often is denied for a time.

use super::policy::{POLICY, PolicyFields};
use super::schema::{
    Count, Duration, Errors, Hint, Items, List, NAME, Nested, Text, View, count, duration, list, nearest,
    object, text,
};
use super::{Config, Step};
use crate::inline_vec::InlineVec;
use crate::limit::{Ban, MAX_DENIALS, MAX_FACTOR, MAX_WINDOW, MIN_WINDOW};
use crate::policy::{Across, Check, Mode, Policy, Ruling};
use crate::time::Micros;

/// The most policies that one ban closes beside its own.
const MAX_SCOPE: usize = 8;

object! {
    static BAN: BanFields = "ban",
        "When a subject is denied for a time, because the limits have denied too many of its requests. Not for policies with a \
         `lease`.";
    after: Count<u32> = count(1, MAX_DENIALS as u64)
        .required("The denied request that begins the ban: the fifth within `window`, for example."),
    window: Duration = duration(MIN_WINDOW, MAX_WINDOW)
        .required("Within which time, from the first denial that counts."),
    duration: Duration = duration(MIN_WINDOW, MAX_WINDOW).required("How long the first ban lasts."),
    factor: Count<u32> = count(1, MAX_FACTOR as u64)
        .default("1", "How many times as long each further ban lasts, if it begins within `max` of the end of the one before."),
    max: Option<Duration> = duration(MIN_WINDOW, MAX_WINDOW)
        .optional("The longest that a ban lasts; not shorter than `duration`. By default a day, or `duration` if that is longer or \
            `factor` is 1."),
    scope: List<Text> = list(&text(&NAME), 0, MAX_SCOPE)
        .default("[]", "Other policies with the same `subject`: while a subject is banned, their requests with this subject are denied, too. \
            See [scope](bans.md#a-ban-for-other-policies)."),
}

/// The default of `max` if `factor` is above 1.
const DEFAULT_MAX: Micros = Micros::from_secs(24 * 60 * 60);

pub(super) fn read(view: &View<'_, BanFields>, errors: &mut Errors) -> Option<Ban> {
    let duration = view.get(&BAN.duration);
    let factor = view.get(&BAN.factor);
    let longest = if factor > 1 { DEFAULT_MAX.max(duration) } else { duration };
    let max = view.get(&BAN.max).unwrap_or(longest);
    if max < duration {
        errors.add(&view.path_of(&BAN.max), "less than `duration`", "`duration` to 366d");
    }
    // The fields exclude all other invalid bans.
    Ban::new(view.get(&BAN.after), view.get(&BAN.window), duration, factor, max).ok()
}

/// Notes in each policy which bans close it.
pub(super) fn read_scopes(
    views: &Items<'_, Nested<PolicyFields>>,
    policies: &mut [Policy],
    errors: &mut Errors,
) {
    for (index, view) in views.iter().enumerate() {
        let Some(ban) = view.get(&POLICY.ban) else { continue };
        for (place, name) in ban.get(&BAN.scope).iter().enumerate() {
            if let Err((allowed, hint)) = close(policies, index, name) {
                let path = format!("{}[{place}]", ban.path_of(&BAN.scope));
                errors.add_with_hint(&path, format_args!("{name:?}"), allowed, hint);
            }
        }
    }
}

/// Notes that the ban of the policy at `index` closes the policy of this name, too. Returns what is allowed if it cannot.
fn close(policies: &mut [Policy], index: usize, name: &str) -> Result<(), (String, Option<Hint>)> {
    let others = || policies.iter().enumerate().filter(|(other, _)| *other != index);
    let Some((place, other)) = others().find(|(_, other)| other.name == name) else {
        let names: Vec<_> = others().map(|(_, other)| other.name.as_str()).collect();
        let allowed = match names.is_empty() {
            true => String::from("none, because there is no other policy"),
            false => format!("the name of another policy: {}", names.join(", ")),
        };
        return Err((allowed, nearest(name, names.into_iter())));
    };
    if other.closed_by.contains(&index) {
        return Err(("each name once".to_owned(), None));
    }
    if other.lease.is_some() && other.regions != Across::Share {
        let allowed = "a policy without a lease: Redis is asked about the ban for each of its requests";
        return Err((allowed.to_owned(), None));
    }
    let own = policies.get(index).map(|policy| policy.subject.as_slice()).unwrap_or_default();
    let alike = own.iter().zip(&other.subject).take_while(|(own, other)| own.is_like(other)).count();
    if alike < own.len().max(other.subject.len()) {
        let differs = format!("subject[{alike}] of policies[{index}] and of policies[{place}] differ");
        return Err((format!("a policy with the same subject: {differs}"), None));
    }
    policies.iter_mut().skip(place).take(1).for_each(|closed| closed.closed_by.push(index));
    Ok(())
}

impl Config {
    /// Adds the checks of the bans that close policies of these checks, each in the order of the policies. A policy that applies to the
    /// request itself asks about its ban anyway.
    pub(super) fn add_bans(&self, checks: &mut InlineVec<Check>, observe: &mut dyn FnMut(Step<'_>)) {
        let mut bans = Vec::<Check>::new();
        for check in checks.iter() {
            for &index in self.policies.get(check.policy).map_or(&[][..], |policy| &policy.closed_by) {
                let applies = checks.iter().any(|other| other.policy == index);
                let Some(policy) = self.policies.get(index).filter(|_| !applies) else { continue };
                let ban = policy.ban_check(index, check);
                match bans.iter_mut().find(|known| known.policy == index) {
                    // Clients are shown nothing of what is in shadow.
                    _ if check.mode == Mode::QuotaRequest && ban.mode == Mode::Shadow => {}
                    Some(known) if known.mode == Mode::Shadow => *known = ban,
                    Some(_) => {}
                    None => bans.push(ban),
                }
            }
        }
        for ban in bans {
            observe(Step::Policy(ban.policy, &Ruling::Check(ban.clone())));
            let place = checks.iter().take_while(|check| check.policy < ban.policy).count();
            checks.push(ban);
            if let Some(from_here) = checks.get_mut(place..) {
                from_here.rotate_right(1);
            }
        }
    }

    /// The names of the policies that bans under these counters close, too.
    pub fn closed_with<'a>(&'a self, counters: &'a str) -> impl Iterator<Item = &'a str> {
        let bans = move |by: &usize| self.policies.get(*by).is_some_and(|by| by.counters == counters);
        let closed = self.policies.iter().filter(move |policy| policy.closed_by.iter().any(bans));
        closed.map(|policy| policy.name.as_str())
    }
}
