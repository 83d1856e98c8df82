// SPDX-License-Identifier: Apache-2.0
//! The directives of nginx's limits, and how a block inherits them from the one around it.

use super::super::notes::{Note, Notes};
use super::syntax::Directive;

/// What `limit_req_zone` or `limit_conn_zone` defines.
#[derive(Clone, Debug)]
pub struct Zone<'a> {
    pub name: &'a str,
    pub key: &'a str,
    /// Requests in so many seconds; `None` counts connections.
    pub rate: Option<(u64, u64)>,
    pub directive: &'a Directive,
}

/// What is done about requests beyond the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// So many requests beyond the rate pass at once, and so many more wait for their turn.
    Burst { at_once: u64, delayed: u64 },
    /// So many are in flight at most.
    Connections(u64),
}

/// A limit as a location has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    pub zone: &'a str,
    pub excess: Excess,
    pub status: u64,
    pub dry_run: bool,
    pub directive: &'a Directive,
}

impl Rule<'_> {
    /// Whether both limit in the same way, wherever they are written.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.zone, self.excess, self.status, self.dry_run)
            == (other.zone, other.excess, other.status, other.dry_run)
    }
}

/// What holds in a block.
#[derive(Clone, Debug, Default)]
pub struct Level<'a> {
    requests: Vec<(&'a Directive, &'a str, Excess)>,
    connections: Vec<(&'a Directive, &'a str, Excess)>,
    request_status: Option<u64>,
    connection_status: Option<u64>,
    requests_dry: Option<bool>,
    connections_dry: Option<bool>,
    /// nginx answers here before it limits.
    pub answers: bool,
}

impl<'a> Level<'a> {
    /// What holds in a block with these directives inside of this one. `limit_req` and `limit_conn` are inherited if the block
    /// has none of its own, and the rest one by one.
    pub fn inside(&self, block: &'a [Directive], notes: &mut Notes) -> Self {
        let mut level = self.clone();
        let (mut requests, mut connections) = (Vec::new(), Vec::new());
        for directive in block {
            let number = || directive.argument(0).parse::<u64>().ok();
            let flag = Some(directive.argument(0) == "on");
            match directive.name.as_str() {
                "limit_req" => requests.extend(request(directive, notes)),
                "limit_conn" => connections.extend(connection(directive, notes)),
                "limit_req_status" => level.request_status = number(),
                "limit_conn_status" => level.connection_status = number(),
                "limit_req_dry_run" => level.requests_dry = flag,
                "limit_conn_dry_run" => level.connections_dry = flag,
                // What these answer, they answer before nginx limits.
                "return" | "internal" => level.answers = true,
                _ => {}
            }
        }
        if !requests.is_empty() {
            level.requests = requests;
        }
        if !connections.is_empty() {
            level.connections = connections;
        }
        level
    }

    /// The limits of a request that is handled here.
    pub fn rules(&self) -> Vec<Rule<'a>> {
        if self.answers {
            return Vec::new();
        }
        let rule = |(directive, zone, excess): &(&'a Directive, &'a str, Excess),
                    status: Option<u64>,
                    dry: Option<bool>| Rule {
            zone,
            excess: *excess,
            status: status.unwrap_or(503),
            dry_run: dry.unwrap_or(false),
            directive,
        };
        let requests = self.requests.iter().map(|limit| rule(limit, self.request_status, self.requests_dry));
        let connections =
            self.connections.iter().map(|limit| rule(limit, self.connection_status, self.connections_dry));
        requests.chain(connections).collect()
    }
}

/// `limit_req zone=name [burst=n] [nodelay | delay=n]`
fn request<'a>(directive: &'a Directive, notes: &mut Notes) -> Option<(&'a Directive, &'a str, Excess)> {
    let number = |name: &str| directive.setting(name).map(|value| value.parse::<u64>());
    let (zone, burst, delay) = (directive.setting("zone"), number("burst"), number("delay"));
    let (Some(zone), Ok(burst), Ok(delay)) = (zone, burst.transpose(), delay.transpose()) else {
        notes.add(Note::new(directive, "is not what nginx documents", "Write the policy by hand"));
        return None;
    };
    let known = |argument: &&String| {
        argument.as_str() == "nodelay"
            || argument.split_once('=').is_some_and(|(name, _)| ["zone", "burst", "delay"].contains(&name))
    };
    if let Some(other) = directive.arguments.iter().find(|argument| !known(argument)) {
        let why = format!("{other:?} is no parameter of nginx's own module, and is ignored");
        notes.add(Note::new(directive, why, "Compare the policy with what your module does"));
    }
    let burst = burst.unwrap_or(0);
    let no_delay = directive.arguments.iter().any(|argument| argument == "nodelay");
    let at_once = if no_delay { burst } else { delay.unwrap_or(0).min(burst) };
    Some((directive, zone, Excess::Burst { at_once, delayed: burst.saturating_sub(at_once) }))
}

/// `limit_conn zone number`
fn connection<'a>(directive: &'a Directive, notes: &mut Notes) -> Option<(&'a Directive, &'a str, Excess)> {
    match directive.argument(1).parse::<u64>() {
        Ok(limit) if limit > 0 => Some((directive, directive.argument(0), Excess::Connections(limit))),
        _ => {
            notes.add(Note::new(directive, "is not what nginx documents", "Write the policy by hand"));
            None
        }
    }
}

/// The zones of the block `http`.
pub fn zones<'a>(http: &'a [Directive], notes: &mut Notes) -> Vec<Zone<'a>> {
    let mut zones = Vec::new();
    for directive in http {
        let is_rate = match directive.name.as_str() {
            "limit_req_zone" => true,
            "limit_conn_zone" => false,
            _ => continue,
        };
        let name = directive.setting("zone").and_then(|zone| zone.split(':').next());
        let rate = directive.setting("rate").and_then(|rate| {
            let (count, unit) = rate.split_once("r/")?;
            let seconds = match unit {
                "s" => 1,
                "m" => 60,
                _ => return None,
            };
            Some((count.parse::<u64>().ok().filter(|count| *count > 0)?, seconds))
        });
        match name {
            Some(name) if rate.is_some() == is_rate => {
                zones.push(Zone { name, key: directive.argument(0), rate, directive });
            }
            _ => notes.add(Note::new(directive, "is not what nginx documents", "Write the policy by hand")),
        }
    }
    zones
}
