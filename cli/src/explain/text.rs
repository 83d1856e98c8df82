// SPDX-License-Identifier: Apache-2.0
//! An explanation for people.

use std::io;

use super::{Asked, Explanation, Ruled, Would, answer, limits, rulings, usage};
use crate::words::{self, span};
use weir::limit::RetryAfter;
use weir::policy::{Across, Check, Mode, Policy, Ruling, key};

impl Explanation<'_> {
    pub fn print(&self, commands: bool, out: &mut impl io::Write) -> io::Result<()> {
        match &self.client {
            Some(client) => writeln!(out, "client {client}")?,
            None => writeln!(out, "no client address that can be read")?,
        }
        if let Some(chain) = self.appended {
            let told = "the connection comes from this machine: Envoy, if it has `use_remote_address`, appends the machine's own address";
            writeln!(out, "  {told} to {chain}, so give that as the last hop")?;
        }
        if let Some((method, target)) = &self.enquiry {
            writeln!(out, "a quota request for {method} {target}, which weir answers")?;
        }
        if let Some(listed) = &self.listed {
            let what = if listed.list == "deny" { "denied" } else { "exempt from all policies" };
            let holds = rulings::holds(listed.doubt.as_deref());
            writeln!(out, "{what}: {}[{}] {holds}, {}", listed.list, listed.at, listed.condition)?;
        }
        for ruled in &self.policies {
            writeln!(out, "policy {}: {}", ruled.policy.name, ruled.words)?;
            if let Ruling::Check(check) = &ruled.ruling {
                print_check(ruled, check, commands, out)?;
            }
        }
        if let Some(unevaluated) = &self.unevaluated {
            let rest = match unevaluated.as_slice() {
                [] => String::new(),
                names => format!("; not evaluated: {}", names.join(", ")),
            };
            writeln!(out, "the request is denied without asking Redis{rest}")?;
        }
        if !self.unknown.is_empty() {
            let names = self.unknown.join(", ");
            writeln!(
                out,
                "attributes that only Envoy knows, and that count as absent here: {names} (--attribute gives one)"
            )?;
        }
        answer::print(&self.answer, out)
    }
}

/// The subject of a policy that applies, and its limits, if the filter asks them.
fn print_check(ruled: &Ruled<'_>, check: &Check, commands: bool, out: &mut impl io::Write) -> io::Result<()> {
    writeln!(out, "  subject {} in slot {}", check.tag.escape_ascii(), key::slot(&check.tag))?;
    usage::print(ruled.policy, check, out)?;
    if let Some(counted) = &ruled.counted {
        writeln!(out, "  {}", counted.text())?;
    }
    let Some(asked) = &ruled.asked else { return Ok(()) };
    if let Some(why) = &asked.not_asked {
        writeln!(out, "  not asked: {why}")?;
    }
    print_limits(ruled.policy, check, asked, out)?;
    if commands {
        print_command(asked, check, out)?;
    }
    let ban = asked.left.as_ref().map_or(RetryAfter::Now, |left| left.ban);
    if let RetryAfter::After(rest) = ban {
        writeln!(out, "  banned for {}", span(rest))?;
    }
    let name = &ruled.policy.name;
    match asked.would {
        None => Ok(()),
        Some(Would::Admit) => writeln!(out, "  {name} would admit it"),
        Some(Would::Reject(after)) => {
            let when = answer::retry(after, ban == RetryAfter::Never);
            let unless = match ruled.policy.regions {
                Across::Share => ", unless a worker has borrowed for it from another region",
                _ => "",
            };
            let shadow = if check.mode == Mode::Shadow { " (shadow: not enforced)" } else { "" };
            writeln!(out, "  {name} would reject it, {when}{unless}{shadow}")
        }
    }
}

/// Each limit with its key, and what it has left if that is known; then the keys that are no limit's.
fn print_limits(policy: &Policy, check: &Check, asked: &Asked, out: &mut impl io::Write) -> io::Result<()> {
    let (limits, keys) = asked.limits(policy, check);
    for (view, limit, key, answer) in limits {
        let state =
            answer.map(|answer| format!("; {}", limits::has_left(limit, answer, limit.kept(check.ask(0)))));
        let warns = view.warn_at().map(|warn_at| format!("; warns at {} % used", warn_at.percent));
        let (state, warns) = (state.unwrap_or_default(), warns.unwrap_or_default());
        writeln!(out, "  limit {}: {}{state}{warns}", view.name(), words::limit(limit))?;
        writeln!(out, "    key {}", key.escape_ascii())?;
    }
    keys.iter().try_for_each(|key| writeln!(out, "  key {}", key.escape_ascii()))
}

fn print_command(asked: &Asked, check: &Check, out: &mut impl io::Write) -> io::Result<()> {
    write!(out, "  command")?;
    for word in asked.command(check) {
        let plain = !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
        let quote = if plain { "" } else { "\"" };
        write!(out, " {quote}{}{quote}", word.escape_ascii())?;
    }
    writeln!(out)
}
