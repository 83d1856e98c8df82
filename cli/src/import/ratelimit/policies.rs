// SPDX-License-Identifier: Apache-2.0
//! The service's tree of descriptors, walked as the service walks it, and the policies that its limits make.

use std::collections::HashSet;

use super::super::nginx::{name_of, unique};
use super::super::notes::{Note, Notes};
use super::super::test::Test;
use super::super::{literal, policy};
use super::entries::{Address, Entry, Source};
use super::envoy::Descriptor;
use super::line;
use super::values::number;
use crate::document::{Content, Node};
use crate::tree::{Map, Tree};

pub struct Service<'a> {
    pub file: usize,
    pub name: &'a str,
    pub root: &'a Node,
}

pub struct Policies<'a, 'n> {
    sources: &'a [(String, Source)],
    notes: &'n mut Notes,
    made: Vec<Made<'a>>,
    /// The limits that a descriptor finds, and those for which a note says why none does.
    found: HashSet<*const Node>,
    /// The descriptors of the service that one of Envoy may find, and notes why another one does not.
    reached: HashSet<*const Node>,
    refused: Vec<(*const Node, Note)>,
}

struct Made<'a> {
    node: &'a Node,
    /// The number of its file, and its name.
    number: usize,
    file: &'a str,
    parts: Vec<Tree>,
    /// The numbers of the descriptors that find it.
    descriptors: Vec<usize>,
    requests: Test,
    hits: Option<u64>,
    words: Vec<String>,
}

impl Made<'_> {
    fn is_unlimited(&self) -> bool {
        self.node.get("rate_limit").is_some_and(|limit| limit.is_true("unlimited"))
    }
}

#[derive(Clone)]
struct Path {
    /// The number of the descriptor. One finds one limit at most.
    number: usize,
    requests: Test,
    parts: Vec<Tree>,
    words: Vec<String>,
}

impl<'a, 'n> Policies<'a, 'n> {
    pub fn new(sources: &'a [(String, Source)], notes: &'n mut Notes) -> Self {
        let (made, refused) = (Vec::new(), Vec::new());
        Self { sources, notes, made, found: HashSet::new(), reached: HashSet::new(), refused }
    }

    /// The limits that the descriptors of Envoy's routes find. `domain` is that of the filter.
    pub fn as_sent(&mut self, service: &Service<'a>, domain: Option<&str>, sent: &[Descriptor]) {
        let own = service.root.text_of("domain");
        let is_asked = |descriptor: &Descriptor| {
            descriptor.domain.as_deref().or(domain).is_none_or(|domain| domain == own)
        };
        for (number, descriptor) in sent.iter().enumerate().filter(|(_, descriptor)| is_asked(descriptor)) {
            let entries: Vec<Entry> = descriptor.entries.iter().map(|entry| self.replaced(entry)).collect();
            let path =
                Path { number, requests: descriptor.requests.clone(), parts: Vec::new(), words: Vec::new() };
            self.walk(service, service.root, &entries, path, descriptor.hits);
        }
        let mut open: Vec<&Node> = service.root.list("descriptors").iter().collect();
        while let Some(node) = open.pop() {
            open.extend(node.list("descriptors"));
            if rate_limit(node).is_some() && !self.found.contains(&core::ptr::from_ref(node)) {
                let what = format!("key: {}", node.text_of("key"));
                let why = "no action of Envoy's routes makes a descriptor that finds this limit, so it is not imported";
                let instead = "If another Envoy asks for it, import with its configuration, too";
                self.notes.at(service.file, line(node, "key"), &what, why, instead);
            }
        }
    }

    /// All limits, for requests that have what `--descriptor` says.
    pub fn as_written(&mut self, service: &Service<'a>) {
        let mut keys = Vec::new();
        key_paths(service.root, &mut Vec::new(), &mut keys);
        self.note_nested(service, service.root);
        for (number, keys) in keys.into_iter().enumerate() {
            let entries: Result<Vec<Entry>, &String> = keys
                .iter()
                .map(|key| {
                    let known = self.source(key).ok_or(key)?;
                    Ok(Entry { key: key.clone(), source: known })
                })
                .collect();
            let path = Path { number, requests: Test::Always, parts: Vec::new(), words: Vec::new() };
            match entries {
                Ok(entries) => self.walk(service, service.root, &entries, path, None),
                Err(key) => {
                    let (line, what) = (find_line(service.root, key).unwrap_or(1), format!("key: {key}"));
                    let why = "only Envoy's routes say where its value is in a request, so its limits are not imported";
                    let instead = format!("Add `--envoy FILE`, or `--descriptor {key}=header:NAME`");
                    self.notes.at(service.file, line, &what, why, instead);
                }
            }
        }
    }

    /// Notes the descriptors in this one that have a limit, and others with limits in them.
    fn note_nested(&mut self, service: &Service<'a>, above: &Node) {
        for node in above.list("descriptors") {
            let key = node.text_of("key");
            if self.source(key).is_none() {
                continue;
            }
            if let Some(below) = self.limit_in(node).filter(|_| rate_limit(node).is_some()) {
                let what = format!("key: {key}");
                let why = format!(
                    "it has a limit, and so has {below} below it; the service applies the one of the last entry that Envoy sends, and weir both"
                );
                self.notes.at(service.file, line(node, "key"), &what, why, "Add `--envoy FILE`");
            }
            self.note_nested(service, node);
        }
    }

    /// Returns the key of the first limit in a descriptor for which the places of all values are known.
    fn limit_in<'b>(&self, above: &'b Node) -> Option<&'b str> {
        let mut known =
            above.list("descriptors").iter().filter(|node| self.source(node.text_of("key")).is_some());
        known.find_map(|node| rate_limit(node).map(|_| node.text_of("key")).or_else(|| self.limit_in(node)))
    }

    /// Returns the place of a key's value.
    fn source(&self, key: &str) -> Option<Source> {
        let told = self.sources.iter().find(|(name, _)| name == key).map(|(_, source)| source.clone());
        told.or(match key {
            "remote_address" => Some(Source::Address(Address::Whole)),
            "masked_remote_address" => Some(Source::Address(Address::Any)),
            // It is a constant of a route.
            "generic_key" => Some(Source::Fixed(None, Test::Always)),
            _ => None,
        })
    }

    fn replaced(&self, entry: &Entry) -> Entry {
        let told = self.sources.iter().find(|(name, _)| *name == entry.key);
        let source = told.map_or_else(|| entry.source.clone(), |(_, source)| source.clone());
        Entry { key: entry.key.clone(), source }
    }

    /// One level: a value that is written counts before one with `*`, and that before a key alone. The service never goes back.
    fn walk(
        &mut self,
        service: &Service<'a>,
        above: &'a Node,
        entries: &[Entry],
        path: Path,
        hits: Option<u64>,
    ) {
        let Some((entry, rest)) = entries.split_first() else { return };
        let value = |node: &'a Node| node.text_of("value");
        let mut same: Vec<&'a Node> = Vec::new();
        for node in above.list("descriptors").iter().filter(|node| node.text_of("key") == entry.key) {
            if same.iter().any(|other| value(other) == value(node)) {
                let what = format!("key: {}", entry.key);
                let why = "the service refuses a second descriptor with this key and value, so only the first is imported";
                self.notes.at(service.file, line(node, "key"), &what, why, "Remove one of both");
                self.found.insert(core::ptr::from_ref(node));
            } else {
                same.push(node);
            }
        }
        let rank = |node: &&'a Node| match value(node) {
            "" => 2,
            text if text.contains('*') => 1,
            _ => 0,
        };
        let mut sorted = same;
        sorted.sort_by_key(rank);
        let mut before = Test::NEVER;
        for node in sorted {
            let text = value(node);
            let mut own = path.clone();
            let shares = node.is_true("share_threshold") || !(text.is_empty() || text.contains('*'));
            let word = match &entry.source {
                Source::Fixed(Some(own), _) if !shares => own.as_str(),
                _ => text,
            };
            own.words.push(if word.is_empty() { entry.key.clone() } else { format!("{}-{word}", entry.key) });
            if text.trim_end_matches('*').contains('*') {
                let what = format!("{}: {text}", entry.key);
                let why = "versions of the service before March 2026 read a `*` at the end of a value only";
                let instead = "If yours is older, remove the policy";
                self.notes.at(service.file, line(node, "value"), &what, why, instead);
            }
            let test = if text.is_empty() { Ok(entry.source.is_there()) } else { entry.source.is(text) };
            let test = match test {
                Ok(test) => test,
                Err(why) => {
                    let (line, what) = (line(node, "value"), format!("{}: {text}", entry.key));
                    let note = Note::at(service.file, line, &what, why, "Write the policy by hand");
                    self.refused.push((core::ptr::from_ref(node), note));
                    self.found.insert(core::ptr::from_ref(node));
                    continue;
                }
            };
            // A constant whose value is not known may be each of them.
            let is_unknown = matches!(entry.source, Source::Fixed(None, _));
            if is_unknown && !text.is_empty() {
                let (line, what) = (line(node, "value"), format!("{}: {text}", entry.key));
                let why = "only Envoy's routes say which requests have it; the policy is for all requests";
                let instead = "Add `--envoy FILE`, or a `match` to the policy";
                self.notes.at(service.file, line, &what, why, instead);
            }
            let guessed = match &entry.source {
                Source::Fixed(None, _) if text.is_empty() => {
                    "only Envoy's routes say which requests have which value; the policy is for all requests, and counts all values together"
                }
                Source::Address(Address::Any) if !shares => {
                    "only Envoy's routes say how many bits of an address it has; the policy counts each whole address"
                }
                _ => "",
            };
            if !guessed.is_empty() && self.sources.iter().all(|(key, _)| *key != entry.key) {
                let what = format!("key: {}", entry.key);
                self.notes.at(service.file, line(node, "key"), &what, guessed, "Add `--envoy FILE`");
            }
            own.requests = own.requests.and(test.clone());
            if !is_unknown {
                // Two values exclude each other.
                if rank(&node) > 0 {
                    own.requests = own.requests.and(before.clone().negated());
                }
                before = before.or(test);
            }
            if !shares {
                own.parts.extend(entry.source.part());
            }
            if own.requests.is_never() {
                continue;
            }
            // With more entries, its own limit is not found.
            if rest.is_empty() || rate_limit(node).is_none() {
                self.reached.insert(core::ptr::from_ref(node));
            }
            if rest.is_empty() {
                self.add(service, node, own, hits);
            } else {
                self.walk(service, node, rest, own, hits);
            }
        }
    }

    fn add(&mut self, service: &Service<'a>, node: &'a Node, path: Path, hits: Option<u64>) {
        const NAMES: &str = "weir's metrics name policies, not values";
        const JOURNAL: &str = "Use the journal to see who is denied";
        let Some(limit) = rate_limit(node) else { return };
        self.found.insert(core::ptr::from_ref(node));
        for (name, why, instead) in [
            (
                "quota_mode",
                "the service reports that its limit is reached, and rejects a request only if all its descriptors in this mode are over \
                    their limits (older versions: never); the policy is in shadow mode",
                "Remove `mode: shadow` if the requests have one such descriptor, and your version rejects them",
            ),
            ("metadata", "weir sends Envoy no metadata about a limit", ""),
            ("detailed_metric", NAMES, JOURNAL),
            ("value_to_metric", NAMES, JOURNAL),
        ] {
            if node.is_true(name) || name == "metadata" && node.get(name).is_some() {
                self.notes.at(service.file, line(node, name), name, why, instead);
            }
        }
        // It may replace others.
        if limit.is_true("unlimited") && limit.list("replaces").is_empty() {
            return;
        }
        let same = |made: &&mut Made<'a>| {
            core::ptr::eq(made.node, node) && made.parts == path.parts && made.hits == hits
        };
        if let Some(made) = self.made.iter_mut().find(same) {
            made.requests = made.requests.clone().or(path.requests);
            made.descriptors.push(path.number);
            return;
        }
        let Path { number: descriptor, requests, parts, words } = path;
        let file = service.name;
        let units = limit.get("requests_per_unit");
        let is_right =
            unit(limit.text_of("unit")).is_some() && units.is_none_or(|units| number(units).is_some());
        if !is_right && !limit.is_true("unlimited") {
            let (line, instead) = (limit.place.line, "Write `requests_per_unit` and a `unit`");
            self.notes.at(service.file, line, "rate_limit", "the service refuses it", instead);
            return;
        }
        let descriptors = vec![descriptor];
        self.made.push(Made { node, number: service.file, file, parts, descriptors, requests, hits, words });
    }

    /// A request with several descriptors that one of them denies.
    fn note_charges(&mut self) {
        let is_enforced = |made: &&Made<'a>| {
            !["shadow_mode", "quota_mode"].iter().any(|mode| made.node.is_true(mode)) && !made.is_unlimited()
        };
        let Some(first) = self.made.first() else { return };
        let both = |one: &Made<'a>, other: &Made<'a>| {
            let is_other = |number: &usize| one.descriptors.iter().any(|own| own != number);
            !core::ptr::eq(one, other)
                && !other.is_unlimited()
                && other.descriptors.iter().any(is_other)
                && one.requests.overlaps(&other.requests)
        };
        let denies = self.made.iter().filter(is_enforced);
        let is_shared = denies
            .flat_map(|one| self.made.iter().map(move |other| (one, other)))
            .any(|(one, other)| both(one, other));
        if is_shared {
            let why = "a request that one of its descriptors denies counts in the others, too; weir refunds it there";
            self.notes.at(first.number, first.node.place.line, "descriptors", why, "");
        }
    }

    /// A limit whose values come from different places.
    fn note_places(&mut self) {
        let is_constant = |part: &Tree| part.get("literal").is_some();
        let may_be_equal = |one: &Made<'a>, other: &Made<'a>| {
            let mut parts = one.parts.iter().zip(&other.parts);
            parts.all(|(one, other)| one == other || !(is_constant(one) && is_constant(other)))
        };
        let is_other = |one: &Made<'a>, other: &Made<'a>| {
            core::ptr::eq(one.node, other.node) && one.parts != other.parts && may_be_equal(one, other)
        };
        for (place, made) in self.made.iter().enumerate() {
            if self.made.iter().take(place).any(|other| is_other(made, other)) {
                let why = "requests have its value at different places; the service counts equal values together, and weir apart";
                self.notes.at(made.number, line(made.node, "key"), made.node.text_of("key"), why, "");
            }
        }
    }

    pub fn finish(mut self) -> Vec<Map> {
        let refused = core::mem::take(&mut self.refused).into_iter();
        refused.filter(|(node, _)| !self.reached.contains(node)).for_each(|(_, note)| self.notes.add(note));
        self.note_charges();
        self.note_places();
        let mut names: Vec<String> = Vec::new();
        let mut policies = Vec::new();
        for made in &self.made {
            let Some(limit) = made.node.get("rate_limit") else { continue };
            // A limit is left out where one applies that replaces it.
            let name = limit.text_of("name");
            let replacing = self.made.iter().filter(|other| {
                let replaces =
                    other.node.get("rate_limit").map(|limit| limit.list("replaces")).unwrap_or_default();
                !name.is_empty() && replaces.iter().any(|replaced| replaced.text_of("name") == name)
            });
            let requests = replacing
                .fold(made.requests.clone(), |test, other| test.and(other.requests.clone().negated()));
            let policy_name = unique(name_of(&made.words.join("-")), &names);
            // Requests that count differently share the counters of the same descriptor.
            let first = self
                .made
                .iter()
                .position(|other| core::ptr::eq(other.node, made.node) && other.parts == made.parts);
            let counters = first.and_then(|place| names.get(place).cloned());
            if requests.is_never() || made.is_unlimited() {
                names.push(policy_name);
                continue;
            }
            policies.push(finished(made, limit, (&policy_name, counters), &requests));
            names.push(policy_name);
        }
        policies
    }
}

fn finished(made: &Made<'_>, limit: &Node, (name, counters): (&str, Option<String>), requests: &Test) -> Map {
    let comment = format!("{}:{}: {}", made.file, line(made.node, "rate_limit"), made.words.join(", "));
    let mut policy = policy(name, vec![comment], requests);
    let parts = match made.parts.as_slice() {
        [] => vec![literal(&made.words.join(", ")).into()],
        parts => parts.to_vec(),
    };
    policy.set("subject", parts);
    if let Some(counters) = counters {
        policy.set("counters", counters);
    }
    let units = limit.get("requests_per_unit").and_then(number).unwrap_or(0);
    let (window, unit) = unit(limit.text_of("unit")).unwrap_or(("1s", "second"));
    let limit_name = match limit.text_of("name") {
        "" => format!("per-{unit}"),
        name => name_of(name),
    };
    let window = Map::from([
        ("name", limit_name.into()),
        ("algorithm", "fixed_window".into()),
        ("limit", units.max(1).into()),
        ("window", window.into()),
    ]);
    policy.set("limits", vec![Tree::from(window)]);
    if let Some(hits) = made.hits {
        policy.set("cost", Map::from([("constant", hits.into())]));
    }
    if units == 0 {
        policy.set("deny", vec![Tree::from(Map::new())]);
    }
    // One that costs nothing would deny nothing.
    if made.hits == Some(0) || made.node.is_true("shadow_mode") || made.node.is_true("quota_mode") {
        policy.set("mode", "shadow");
    }
    policy
}

/// The window of a unit, and its name. Months have 30 days, and years 365, as in the service.
pub fn unit(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name.to_ascii_lowercase().as_str() {
        "second" => ("1s", "second"),
        "minute" => ("1m", "minute"),
        "hour" => ("1h", "hour"),
        "day" => ("1d", "day"),
        "week" => ("7d", "week"),
        "month" => ("30d", "month"),
        "year" => ("365d", "year"),
        _ => return None,
    })
}

/// A descriptor's limit. One that is null is none to the service.
fn rate_limit(node: &Node) -> Option<&Node> {
    node.get("rate_limit")
        .filter(|limit| !matches!(&limit.content, Content::Scalar(value) if value.is_null()))
}

/// The sequences of keys that lead to limits, each once.
fn key_paths(node: &Node, above: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    for descriptor in node.list("descriptors") {
        above.push(descriptor.text_of("key").to_owned());
        if rate_limit(descriptor).is_some() && !found.contains(above) {
            found.push(above.clone());
        }
        key_paths(descriptor, above, found);
        above.pop();
    }
}

/// The line of the first descriptor of this key.
fn find_line(node: &Node, key: &str) -> Option<usize> {
    node.list("descriptors").iter().find_map(|descriptor| {
        if descriptor.text_of("key") == key {
            return Some(line(descriptor, "key"));
        }
        find_line(descriptor, key)
    })
}
