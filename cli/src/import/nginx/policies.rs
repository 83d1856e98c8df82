// SPDX-License-Identifier: Apache-2.0
//! The policies that nginx's limits make: one for each way in which a zone is used.

use super::super::notes::{Note, Notes};
use super::super::test::Test;
use super::limits::{Body, Excess, Rule, Zone};
use super::locations::Server;
use super::others::MAIN;
use super::variables::{Cases, Part, Variables, moves, note_differences, parts, subject};
use crate::tree::{Map, Tree};

/// The longest time for which weir holds a request, in microseconds.
const MAX_DELAY: u128 = 60_000_000;

/// The time for which a request in flight counts if its end was not reported.
const TTL: &str = "10m";

const IPV6: &str = "nginx counts each address of IPv6. Without ipv6_prefix weir counts each /64, because one client has so many.";

pub struct Found {
    pub policies: Vec<Tree>,
    /// The response of all rejections, if it is the same.
    pub response: Option<Map>,
}

/// The policies, in the order in which the limits are written.
pub fn policies(
    zones: &[Zone<'_>],
    servers: &[Server<'_>],
    variables: &Variables<'_>,
    files: &[String],
    notes: &mut Notes,
) -> Found {
    let rules = rules(servers);
    let uses = uses(servers, &rules);
    let first = rules.first().filter(|first| rules.iter().all(|rule| answer(rule) == answer(first)));
    let (mut policies, mut names) = (Vec::new(), Vec::new());
    for (number, rule) in rules.iter().enumerate() {
        let Some(zone) = zones.iter().find(|zone| zone.name == rule.zone) else {
            let why = "these files define no zone of this name, so it is not imported";
            notes.add(Note::new(rule.directive, why, MAIN));
            continue;
        };
        if !zone.is_read {
            continue;
        }
        if zone.rate.is_none() != matches!(rule.excess, Excess::Connections(_)) {
            notes.add(Note::new(rule.directive, "its zone counts something else", "Define a zone for it"));
            continue;
        }
        let scope =
            Scope { number, rule, zone, rules: &rules, uses: &uses, files, has_response: first.is_none() };
        let mut unknown = None;
        let mut key = |name: &str, notes: &mut Notes| {
            // Of a key that cannot be told, a skeleton is left.
            variables.cases(zone.key, name, notes).unwrap_or_else(|why| {
                unknown = Some(why);
                vec![(Test::Always, parts(zone.key))]
            })
        };
        let has_names = variables.find(zone.key, |name| name == "server_name").is_some();
        let limited = scope.limited(servers, has_names).into_iter();
        let limited: Vec<Limited> = limited.map(|(name, test)| (test, key(name, notes))).collect();
        let moved = variables.find(zone.key, moves);
        for (name, by) in moved.iter().flat_map(|name| rule.moved.iter().map(move |by| (name, by))) {
            let why = format!(
                "behind it, nginx counts by another ${name} than the client sends, and weir by that of the client"
            );
            let instead =
                format!("Change the subject of the policies of {} if clients can choose it", zone.name);
            notes.add(Note::new(by, why, instead));
        }
        scope.policies(&limited, unknown, &mut names, &mut policies, notes);
        scope.differences(notes);
    }
    Found { policies, response: first.map(response) }
}

/// The most conditions in the list `exempt` of a policy.
const MAX_EXEMPT: usize = 256;

pub const SKELETON: &str =
    "Its policy is a skeleton in shadow mode: write what the key means as its `subject`, then remove `mode`";

/// The parts of a rule that make its response.
const fn answer<'a>(rule: &Rule<'a>) -> (u64, Option<Body<'a>>) {
    (rule.status, rule.body)
}

/// The response of a rejection by this rule.
fn response(rule: &Rule<'_>) -> Map {
    let mut response = Map::from([("status", rule.status.into())]);
    if let Some((format, body)) = rule.body {
        response.set("format", format);
        response.set("body", super::super::body(body));
    }
    response
}

/// The ways in which limits are used, each once, with the pages of all blocks that use it so.
fn rules<'a>(servers: &[Server<'a>]) -> Vec<Rule<'a>> {
    let mut rules: Vec<Rule<'a>> = Vec::new();
    let all = servers.iter().flat_map(|server| &server.blocks).flat_map(|(_, level)| level.rules());
    for rule in all {
        match rules.iter_mut().find(|other| other.is_like(&rule)) {
            Some(same) => {
                same.pages.extend(rule.pages);
                same.moved.extend(rule.moved);
                same.others.push(rule.directive);
            }
            None => rules.push(rule),
        }
    }
    rules.sort_by_key(|rule| (rule.directive.file, rule.directive.line));
    rules
}

/// The numbers of the limits in each block of each server. They are compared once: a file may have hundreds of blocks and of limits.
fn uses(servers: &[Server<'_>], rules: &[Rule<'_>]) -> Vec<Vec<Vec<usize>>> {
    let number = |rule: &Rule<'_>| rules.iter().position(|other| other.is_like(rule));
    let of_block = |level: &super::limits::Level<'_>| level.rules().iter().filter_map(number).collect();
    let of_server = |server: &Server<'_>| server.blocks.iter().map(|(_, level)| of_block(level)).collect();
    servers.iter().map(of_server).collect()
}

/// Requests that have a limit, and the value of the key for each of them.
type Limited = (Test, Cases);

/// A limit, and what is around it.
struct Scope<'a> {
    number: usize,
    rule: &'a Rule<'a>,
    zone: &'a Zone<'a>,
    rules: &'a [Rule<'a>],
    uses: &'a [Vec<Vec<usize>>],
    files: &'a [String],
    /// Rejections differ, so each policy says its own.
    has_response: bool,
}

impl Scope<'_> {
    /// Adds a policy for each text that the key may be.
    fn policies(
        &self,
        limited: &[Limited],
        unknown: Option<String>,
        names: &mut Vec<String>,
        policies: &mut Vec<Tree>,
        notes: &mut Notes,
    ) {
        if limited.is_empty() {
            return notes.add(Note::new(
                self.rule.directive,
                "no request comes to it, so it is not imported",
                "",
            ));
        }
        let mut keys: Vec<&Vec<Part>> = Vec::new();
        for (_, key) in limited.iter().flat_map(|(_, cases)| cases).filter(|(_, key)| !key.is_empty()) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let before = names.len();
        let of = |cases: &Cases, key: &[Part]| {
            Test::first_match(cases.iter().map(|(test, other)| (test, other == key)))
        };
        for key in &keys {
            // Another use of the zone may have another text, such as the name of another server.
            let subject = subject(key, keys.len() == 1 && self.is_alone());
            let unknown = unknown.as_ref().or(subject.unknown.as_ref());
            if let Some(why) = unknown {
                notes.add(Note::new(self.zone.directive, format!("its key cannot be told: {why}"), SKELETON));
            }
            note_differences(key, self.zone.directive, true, notes);
            if subject.is_joined {
                let why = "nginx joins the variables, so that two requests with different variables may have one key; weir keeps them apart, also an empty one from one that is missing";
                notes.add(Note::new(self.zone.directive, why, ""));
            }
            let exempt = match limited {
                [(_, cases)] if keys.len() == 1 && cases.last().is_some_and(|(_, key)| !key.is_empty()) => {
                    of(cases, &[])
                }
                _ => Test::NEVER,
            };
            let chosen = |(test, cases): &Limited| {
                test.clone().and(if exempt.is_never() { of(cases, key) } else { Test::Always })
            };
            let matches = Test::any_of(limited.iter().map(chosen)).and(subject.present);
            if matches.is_never() {
                continue;
            }
            let name = self.name(names);
            let mut policy = super::super::policy(&name, self.comment(), &matches);
            let is_first = names.is_empty();
            let comment = if is_first && Tree::from(subject.parts.clone()).yaml().contains("ipv6_prefix") {
                vec![IPV6.to_owned()]
            } else {
                Vec::new()
            };
            policy.commented("subject", comment, subject.parts);
            if name != self.zone.counters {
                policy.set("counters", self.zone.counters.as_str());
            }
            let (comment, limit) = self.limit(notes);
            policy.commented("limits", comment, vec![Tree::from(limit)]);
            if !exempt.is_never() {
                let list = match exempt {
                    Test::Any(any) if any.len() <= MAX_EXEMPT => any,
                    exempt => vec![exempt],
                };
                policy.set("exempt", list.iter().map(|test| test.condition().into()).collect::<Vec<Tree>>());
            }
            if let Some(why) = unknown {
                let comment = format!("A skeleton, because {why}. Write its subject, then remove this line.");
                policy.commented("mode", vec![comment], "shadow");
            } else if self.rule.dry_run {
                policy.set("mode", "shadow");
            }
            if self.has_response {
                policy.set("response", response(self.rule));
            }
            policies.push(policy.into());
            names.push(name);
        }
        if names.len() == before {
            let why =
                "weir knows no request for which the key of its zone has a value, so it is not imported";
            notes.add(Note::new(self.rule.directive, why, ""));
        }
    }

    /// True if its zone is used in one way only.
    fn is_alone(&self) -> bool {
        self.rules.iter().filter(|rule| rule.zone == self.rule.zone).count() < 2
    }

    /// Notes about what weir does otherwise with this limit.
    fn differences(&self, notes: &mut Notes) {
        if !(400..=599).contains(&self.rule.status) {
            let why = format!("weir does not reject with the status {}", self.rule.status);
            notes.add(Note::new(self.rule.directive, why, "Write a status from 400 to 599"));
        } else if self.rule.status == 444 {
            let why = "nginx closes the connection at 444, and weir answers with this status";
            notes.add(Note::new(self.rule.directive, why, ""));
        }
        for page in &self.rule.pages {
            let (why, instead) = if self.rule.body.is_none() && serves(page) {
                let why = "nginx does not reject the requests beyond the limit, but serves them there, and weir rejects them";
                (why, String::from("If they are to be served, write `mode: shadow`"))
            } else if self.rule.body.is_some() {
                let why = "nginx answers a rejected request with a status with which weir does not reject";
                (why, format!("weir sends {}; write a status from 400 to 599", self.rule.status))
            } else {
                let why = "nginx answers a rejected request with this, and weir with a body of its own";
                (why, String::from("Write `response: {body: …}`"))
            };
            notes.add(Note::new(page, why, instead));
        }
        let is_dry = |number: &usize| {
            self.rules.get(*number).is_some_and(|rule| {
                rule.zone != self.rule.zone && rule.dry_run && matches!(rule.excess, Excess::Burst { .. })
            })
        };
        let has_several = |block: &&Vec<usize>| block.contains(&self.number) && block.iter().any(is_dry);
        if self.rule.dry_run
            && matches!(self.rule.excess, Excess::Burst { .. })
            && self.uses.iter().flatten().any(|block| has_several(&block))
        {
            let why = "with limit_req_dry_run nginx counts a request in none of several zones if it exceeds one, and weir in the others";
            notes.add(Note::new(self.rule.directive, why, ""));
        }
        // Those of the limits of requests beside it which are no dry run.
        let blocks = self.uses.iter().flatten().filter(|block| block.contains(&self.number));
        let beside = blocks.flatten().filter_map(|number| self.rules.get(*number));
        let waiting = beside.filter_map(|rule| match rule.excess {
            Excess::Burst { delayed, .. } if !rule.dry_run => Some(delayed),
            _ => None,
        });
        let is_enforced = matches!(self.rule.excess, Excess::Connections(_)) && !self.rule.dry_run;
        if let Some(most) = waiting.max().filter(|_| is_enforced) {
            if most > 0 {
                let why = "to nginx a request that waits for limit_req is no connection yet, and in weir it has its permit while it waits";
                let instead = format!("Add to the limit how many may wait: {most} of each key of limit_req");
                notes.add(Note::new(self.rule.directive, why, instead));
            }
            let why = "nginx has counted a request in limit_req before limit_conn rejects it, and weir counts a rejected request nowhere";
            let instead = "Clients that often reach limit_conn get more requests from weir; lower the rate if that matters";
            notes.add(Note::new(self.rule.directive, why, instead));
        }
    }

    /// The requests that have this limit; with `has_names` those of each `$server_name` by themselves.
    fn limited<'s>(&self, servers: &'s [Server<'_>], has_names: bool) -> Vec<(&'s str, Test)> {
        let mut found: Vec<(&str, Test)> = Vec::new();
        for (server, uses) in servers.iter().zip(self.uses) {
            let blocks = server.blocks.iter().zip(uses);
            let blocks = blocks.map(|((test, _), block)| (test, block.contains(&self.number)));
            let test = server.hosts.clone().and(Test::first_match(blocks));
            let name = server.directive.inner().iter().find(|directive| directive.name == "server_name");
            let name = name.map(|name| name.argument(0)).filter(|_| has_names).unwrap_or_default();
            let name = name.trim_start_matches('.');
            match found.iter_mut().find(|(other, _)| *other == name) {
                _ if test.is_never() => {}
                Some((_, limited)) => *limited = core::mem::replace(limited, Test::NEVER).or(test),
                None => found.push((name, test)),
            }
        }
        found
    }

    fn comment(&self) -> Vec<String> {
        let line = |directives: &[&super::Directive]| {
            let mut places: Vec<_> = directives.iter().map(|of| (of.file, of.line)).collect();
            places.sort_unstable();
            places.dedup();
            let place = |(file, line): (usize, usize)| {
                format!("{}:{line}", self.files.get(file).map(String::as_str).unwrap_or_default())
            };
            let places = places.into_iter().map(place).collect::<Vec<_>>().join(", ");
            let words = directives.first().map(|of| core::iter::once(&of.name).chain(&of.arguments));
            let words = words.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
            format!("{places}: {words}")
        };
        let limits: Vec<_> =
            [self.rule.directive].into_iter().chain(self.rule.others.iter().copied()).collect();
        vec![line(&[self.zone.directive]), line(&limits)]
    }

    /// A name for the policy: the zone's, and what is special if the zone is used in several ways.
    fn name(&self, taken: &[String]) -> String {
        let zone = self.zone.counters.clone();
        let first = match self.rule.excess {
            _ if self.is_alone() => zone,
            Excess::Burst { at_once: 0, delayed: 0 } => format!("{zone}-no-burst"),
            Excess::Burst { at_once, delayed: 0 } => format!("{zone}-burst-{at_once}-nodelay"),
            Excess::Burst { at_once, delayed } => format!("{zone}-burst-{}", at_once.saturating_add(delayed)),
            Excess::Connections(limit) => format!("{zone}-{limit}"),
        };
        unique(first, taken)
    }

    /// The limit, and what is to be said about it.
    fn limit(&self, notes: &mut Notes) -> (Vec<String>, Map) {
        let mut comment = Vec::new();
        let limit = match (self.rule.excess, self.zone.rate) {
            (Excess::Burst { at_once, delayed }, Some((count, seconds))) => {
                let unit = if seconds == 60 { "m" } else { "s" };
                // nginx has whole thousandths of a request in a second, and cuts off what is left.
                let thousandths = u128::from(count).saturating_mul(1_000);
                let (exact, thousandths) = (
                    thousandths.is_multiple_of(u128::from(seconds)),
                    thousandths.checked_div(u128::from(seconds)).unwrap_or(thousandths),
                );
                let rate = if exact {
                    format!("{count}/{unit}")
                } else {
                    comment.push(format!(
                        "nginx takes {count}r/{unit} for {thousandths} requests in 1000 seconds."
                    ));
                    format!("{thousandths}/1000s")
                };
                let mut limit = Map::from([
                    ("name", "requests".into()),
                    ("algorithm", "leaky_bucket".into()),
                    ("rate", rate.into()),
                    ("burst", at_once.saturating_add(1).into()),
                ]);
                if delayed > 0 {
                    let delay =
                        u128::from(delayed).saturating_mul(1_000_000_000).div_ceil(thousandths.max(1));
                    if delay > MAX_DELAY {
                        let why = format!(
                            "its last requests would wait {} s, and weir holds requests for 60 s at most: those behind are rejected",
                            delay / 1_000_000
                        );
                        notes.add(Note::new(self.rule.directive, why, "Lower the burst"));
                    }
                    limit.set("max_delay", duration(delay.min(MAX_DELAY)));
                }
                limit
            }
            (Excess::Connections(limit), _) => Map::from([
                ("name", "connections".into()),
                ("algorithm", "concurrency".into()),
                ("limit", limit.into()),
                ("ttl", TTL.into()),
            ]),
            // The zone was compared before.
            (Excess::Burst { .. }, None) => Map::new(),
        };
        (comment, limit)
    }
}

/// True if an `error_page` gives a rejection the status that its place has, or one of a success.
fn serves(page: &super::Directive) -> bool {
    let code = page.arguments.iter().find_map(|argument| argument.strip_prefix('='));
    let is_success = |code: &str| code.is_empty() || code.parse::<u64>().is_ok_and(|code| code < 400);
    page.name == "error_page" && code.is_some_and(is_success)
}

/// Microseconds, in the largest unit in which they are a whole number.
pub fn duration(micros: u128) -> String {
    for (unit, length) in [("s", 1_000_000), ("ms", 1_000)] {
        if micros.is_multiple_of(length) {
            return format!("{}{unit}", micros / length);
        }
    }
    format!("{micros}us")
}

/// A name that no other policy has.
pub fn unique(first: String, taken: &[String]) -> String {
    let mut others = (2_usize..).map(|number| format!("{first}-{number}"));
    if taken.contains(&first) { others.find(|name| !taken.contains(name)).unwrap_or(first) } else { first }
}

/// A name as weir allows it.
pub fn name_of(zone: &str) -> String {
    let allowed = |next: char| if next.is_ascii_alphanumeric() || "_-.".contains(next) { next } else { '-' };
    let name: String = zone.chars().map(allowed).take(40).collect();
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) { name } else { format!("z{name}") }
}
