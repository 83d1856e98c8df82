// SPDX-License-Identifier: Apache-2.0
//! Tests of requests: nginx's locations, servers and maps, and Envoy's routes, as conditions of weir.

use core::cmp::Reverse;
use std::collections::HashSet;

use crate::tree::{Map, Tree};
use weir::policy::pattern::{MAX_STEPS, Pattern, beginning, size};
use weir::request::client_ip::Network;

const MAX_ALTERNATIVES: usize = 64;
/// And so many networks, hosts or values.
const MAX_NETWORKS: usize = 1_024;
const MAX_VALUES: usize = 256;

/// An expression with more steps is split where it has alternatives: this many search values of 256 bytes.
const MAX_SPLIT: usize = MAX_STEPS / 256;
/// The number of times that its alternatives are halved.
const MAX_HALVED: usize = 6;

/// The number of times that tests may alternate between yes and no in a condition that is nested: each needs a level, and a configuration
/// has at most 32.
const MAX_RUNS: usize = 24;

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Always,
    All(Vec<Test>),
    /// Without alternatives: never.
    Any(Vec<Test>),
    Not(Box<Test>),
    Path(PathTest),
    Host(Vec<String>),
    Method(Vec<String>),
    Address(Vec<Network>),
    /// A field of a condition that tests a value, such as `header`, and what the field says.
    Value(&'static str, Map),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathTest {
    Exact(String),
    /// The path begins with this text, which may end inside of a segment.
    Prefix(String),
    /// The path is this, or is below it.
    Below(String),
    /// A regular expression for the whole path.
    Regex(Expression),
}

/// A regular expression, and the plain characters at its beginning and its end. If two expressions differ there, no path matches both. This
/// comparison is fast: a file may have hundreds of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expression {
    text: String,
    beginning: String,
    ending: String,
}

/// `10.0.0.0/8`, or an address. Bits beyond the length do not count.
pub fn network(text: &str) -> Option<Network> {
    Network::parse(text).or_else(|meant| meant.ok_or(())).ok()
}

/// The order in which servers and routers look for a host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankOfHost {
    Exact,
    /// `*.example.com`: the longest first.
    End(Reverse<usize>),
    /// `www.*`
    Beginning(Reverse<usize>),
    Expression,
    /// All hosts that nothing else is for.
    Rest,
}

pub fn rank_of_host(name: &str) -> RankOfHost {
    match name {
        _ if name.starts_with('~') => RankOfHost::Expression,
        _ if name.starts_with('*') => RankOfHost::End(Reverse(name.len())),
        _ if name.ends_with('*') => RankOfHost::Beginning(Reverse(name.len())),
        _ => RankOfHost::Exact,
    }
}

/// True if `name`, which may begin with `*.`, matches each host that `other` matches.
fn host_covers(name: &str, other: &str) -> bool {
    name == other || name.strip_prefix('*').is_some_and(|end| other.ends_with(end))
}

fn networks_overlap(one: &Network, other: &Network) -> bool {
    let (one, other) = (one.bits(), other.bits());
    one.starts_with(&other) || other.starts_with(&one)
}

impl Test {
    pub const NEVER: Self = Self::Any(Vec::new());

    /// A test on the path. Each path begins with a slash.
    pub fn path(test: PathTest) -> Self {
        if test == PathTest::Prefix(String::from("/")) { Self::Always } else { Self::Path(test) }
    }

    pub fn is_never(&self) -> bool {
        *self == Self::NEVER
    }

    /// True if it depends on the path.
    pub fn has_path(&self) -> bool {
        match self {
            Self::Path(_) => true,
            Self::All(tests) | Self::Any(tests) => tests.iter().any(Self::has_path),
            Self::Not(test) => test.has_path(),
            _ => false,
        }
    }

    /// The same for a request that its server sends on to this path, with the method GET unless it is HEAD if it `becomes_get`; `None`
    /// if that is not known.
    pub fn at(&self, to: &str, becomes_get: bool) -> Option<Self> {
        let of_all =
            |tests: &[Self]| tests.iter().map(|test| test.at(to, becomes_get)).collect::<Option<Vec<_>>>();
        match self {
            Self::All(tests) => Some(of_all(tests)?.into_iter().fold(Self::Always, Self::and)),
            Self::Any(tests) => Some(Self::any_of(of_all(tests)?)),
            Self::Not(test) => Some(test.at(to, becomes_get)?.negated()),
            Self::Path(test) => Some(if test.matches(to) { Self::Always } else { Self::NEVER }),
            Self::Method(methods) if becomes_get => {
                let has = |method: &str| methods.iter().any(|other| other == method);
                let head = Self::Method(vec![String::from("HEAD")]);
                Some(match (has("GET"), has("HEAD")) {
                    (true, true) => Self::Always,
                    (true, false) => head.negated(),
                    (false, true) => head,
                    (false, false) => Self::NEVER,
                })
            }
            Self::Value("query", _) => None,
            Self::Value("attribute", test) => {
                let (path, name) =
                    (test.get("path"), |name: &str| Tree::from(vec!["request".into(), name.into()]));
                let changes = path == Some(&name("query")) || becomes_get && path == Some(&name("method"));
                (!changes).then(|| self.clone())
            }
            test => Some(test.clone()),
        }
    }

    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Always, test) | (test, Self::Always) => test,
            (one, other) if one.is_never() || other.is_never() => Self::NEVER,
            (Self::Not(one), Self::Not(other)) => one.or(*other).negated(),
            (all @ Self::All(_), Self::All(others)) => others.into_iter().fold(all, Self::and),
            (Self::All(mut all), test) => {
                // One `not` for several.
                let is_not = |one: &Self| matches!((one, &test), (Self::Not(_), Self::Not(_)));
                match all.iter().position(is_not) {
                    Some(place) => {
                        let not = all.remove(place);
                        all.push(not.and(test));
                    }
                    None if all.contains(&test) => {}
                    None => all.push(test),
                }
                Self::All(all)
            }
            (test, Self::All(mut all)) => {
                all.insert(0, test);
                Self::All(all)
            }
            (one, other) if one == other => one,
            (one, other) => Self::All(vec![one, other]),
        }
    }

    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Always, _) | (_, Self::Always) => Self::Always,
            (never, test) | (test, never) if never.is_never() => test,
            (one, other) => Self::any_of([one, other]),
        }
    }

    pub fn any_of(tests: impl IntoIterator<Item = Self>) -> Self {
        let (mut any, mut paths): (Vec<Self>, _) = (Vec::new(), HashSet::new());
        let tests = tests.into_iter().flat_map(|test| match test {
            Self::Any(any) => any,
            test => vec![test],
        });
        for test in tests {
            match &test {
                Self::Always => return test,
                // There may be hundreds of paths, so they are not compared one by one.
                Self::Path(path) => {
                    if paths.insert(path.clone()) {
                        any.push(test);
                    }
                    continue;
                }
                _ => {}
            }
            let mut others: Vec<_> = any.iter_mut().filter(|one| !matches!(one, Self::Path(_))).collect();
            if !others.iter_mut().any(|one| both(one, &test))
                && !others.iter_mut().any(|one| wider(one, &test))
            {
                any.push(test);
            }
        }
        // Tests of a path that is here by itself.
        let is_path = |test: &Self| matches!(test, Self::Path(path) if paths.contains(path));
        any.retain(|one| !matches!(one, Self::All(all) if all.iter().any(is_path)));
        // This or not this.
        if any.iter().any(|one| matches!(one, Self::Not(test) if any.contains(test))) {
            return Self::Always;
        }
        match <[Self; 1]>::try_from(any) {
            Ok([only]) => only,
            Err(any) => Self::Any(any),
        }
    }

    pub fn negated(self) -> Self {
        match self {
            Self::Always => Self::NEVER,
            never if never.is_never() => Self::Always,
            Self::Not(test) => *test,
            test => Self::Not(Box::new(test)),
        }
    }

    /// True if a request may meet both, or if that is not known.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(one), Self::Path(other)) => one.overlaps(other),
            (Self::Address(ones), Self::Address(others)) => {
                ones.iter().any(|one| others.iter().any(|other| networks_overlap(one, other)))
            }
            (Self::Host(ones), Self::Host(others)) => {
                ones.iter().any(|one| others.iter().any(|other| is_either(one, other, host_covers)))
            }
            (Self::Method(ones), Self::Method(others)) => {
                ones.iter().any(|one| others.iter().any(|other| one.eq_ignore_ascii_case(other)))
            }
            (Self::All(all), other) | (other, Self::All(all)) => all.iter().all(|test| test.overlaps(other)),
            (Self::Any(any), other) | (other, Self::Any(any)) => any.iter().any(|test| test.overlaps(other)),
            (Self::Not(test), other) | (other, Self::Not(test)) => !test.covers(other),
            _ => true,
        }
    }

    /// True if each request that meets `other` meets this. `false` where it is not known.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Always, _) => true,
            (
                Self::Path(PathTest::Prefix(prefix)),
                Self::Path(PathTest::Prefix(path) | PathTest::Exact(path)),
            ) => path.starts_with(prefix.as_str()),
            (Self::Host(ones), Self::Host(others)) => {
                others.iter().all(|other| ones.iter().any(|one| host_covers(one, other)))
            }
            (Self::Not(one), Self::Not(other)) => other.covers(one),
            (Self::All(all), other) => all.iter().all(|test| test.covers(other)),
            (one, Self::Any(any)) => any.iter().all(|test| one.covers(test)),
            (one, Self::All(all)) => all.iter().any(|test| one.covers(test)),
            (Self::Any(any), other) => any.iter().any(|test| test.covers(other)),
            (one, other) => one == other,
        }
    }

    /// The hosts that come to a server, by the names of all servers: each with its test, and whether it is the server's own. A host
    /// comes to the server with the most particular name for it, and the first one of two that have the same. `takes_rest`: hosts without a
    /// name come to this server.
    pub fn of_server(mut names: Vec<(&str, &Self, bool)>, takes_rest: bool) -> Self {
        if !takes_rest {
            let own: Vec<&Self> =
                names.iter().filter(|(.., is_own)| *is_own).map(|(_, test, _)| *test).collect();
            names.retain(|(_, test, _)| own.iter().any(|own| own.overlaps(test)));
        }
        names.sort_by_key(|(name, ..)| rank_of_host(name));
        // Names of one rank are in the order of the file, so equal ones may have others between them.
        let mut seen = HashSet::new();
        names.retain(|(name, ..)| seen.insert(*name));
        let names = names.into_iter().map(|(_, test, is_own)| (test, is_own));
        Self::first_match(names.chain(takes_rest.then_some((&Self::Always, true))))
    }

    /// Returns the test that says what the first test that holds says, of tests in this order; `false` if none holds.
    pub fn first_match<'a>(list: impl IntoIterator<Item = (&'a Self, bool)>) -> Self {
        let mut list: Vec<_> = list.into_iter().filter(|(test, _)| !test.is_never()).collect();
        // Tests after `Always` are not reached.
        if let Some(end) = list.iter().position(|(test, _)| **test == Self::Always) {
            list.truncate(end.saturating_add(1));
        }
        let mut needed: Vec<(&Self, bool)> = Vec::new();
        while let Some((test, holds)) = list.pop() {
            let has_effect = if holds {
                // Unless a later one says the same of all of these requests.
                let covered = needed.iter().rev().position(|(later, says)| *says && later.covers(test));
                !covered.is_some_and(|end| {
                    needed.iter().rev().take(end).all(|(later, says)| *says || !later.overlaps(test))
                })
            } else {
                needed.iter().any(|(later, says)| *says && later.overlaps(test))
            };
            if has_effect {
                needed.push((test, holds));
            }
        }
        let runs: Vec<_> = needed.chunk_by(|(_, one), (_, other)| one == other).collect();
        if runs.len() > MAX_RUNS {
            return flat(needed.into_iter().rev());
        }
        let mut rest = Self::NEVER;
        for run in runs {
            let holds = run.first().is_some_and(|(_, holds)| *holds);
            let tests = run.iter().rev().map(|(test, _)| (*test).clone());
            rest = if holds {
                Self::any_of(tests.chain([rest]))
            } else {
                rest.and(Self::any_of(tests).negated())
            };
        }
        rest
    }

    pub fn condition(&self) -> Map {
        match self {
            Self::Always => Map::new(),
            Self::All(all) => {
                let mut whole = Map::new();
                let mut rest = Vec::new();
                for test in all {
                    let part = test.condition();
                    if part.names().any(|name| whole.get(name).is_some()) {
                        rest.push(part);
                    } else {
                        whole.extend(part);
                    }
                }
                if !rest.is_empty() {
                    let rest = rest.into_iter().map(Tree::from).collect::<Vec<_>>();
                    whole.set("all", rest);
                }
                whole
            }
            Self::Any(any) => match any.as_slice() {
                [only] => only.condition(),
                _ => alternatives(any.iter().map(Self::condition).collect()),
            },
            Self::Not(test) => Map::from([("not", test.condition().into())]),
            Self::Path(test) => Map::from([("path", test.map().into())]),
            Self::Host(hosts) => words("host", hosts, MAX_VALUES),
            Self::Method(methods) => words("method", methods, 32),
            Self::Address(networks) => {
                let mut texts: Vec<_> = networks.iter().map(Network::to_string).collect();
                texts.dedup();
                words("client_address", &texts, MAX_NETWORKS)
            }
            Self::Value(field, test) => Map::from([(*field, test.clone().into())]),
        }
    }
}

/// The same in a form whose depth does not grow with the list: each run of tests that say yes, without those before it that say no.
fn flat<'a>(list: impl Iterator<Item = (&'a Test, bool)>) -> Test {
    let list: Vec<_> = list.collect();
    let (mut whole, mut no) = (Vec::new(), Vec::<&Test>::new());
    for run in list.chunk_by(|(_, one), (_, other)| one == other) {
        let tests = run.iter().map(|(test, _)| *test);
        if run.first().is_some_and(|(_, holds)| *holds) {
            let before = no.iter().filter(|test| run.iter().any(|(yes, _)| test.overlaps(yes)));
            let before = Test::any_of(before.map(|test| (*test).clone()));
            whole.push(Test::any_of(tests.cloned()).and(before.negated()));
        } else {
            no.extend(tests);
        }
    }
    Test::any_of(whole)
}

/// Two tests of the same kind as one.
fn both(one: &mut Test, other: &Test) -> bool {
    match (&mut *one, other) {
        (Test::Host(ones), Test::Host(others)) | (Test::Method(ones), Test::Method(others)) => {
            for other in others {
                if !ones.contains(other) {
                    ones.push(other.clone());
                }
            }
            return true;
        }
        (Test::Address(ones), Test::Address(others)) => {
            ones.extend(others.iter().cloned());
            return true;
        }
        _ => {}
    }
    let found = one_of(one, other);
    let is_found = found.is_some();
    if let Some(found) = found {
        *one = found;
    }
    is_found
}

/// The wider one of two tests, if one covers the other.
fn wider(one: &mut Test, other: &Test) -> bool {
    if one.covers(other) {
        return true;
    }
    let is_wider = other.covers(one);
    if is_wider {
        *one = other.clone();
    }
    is_wider
}

/// Tests on one value, which is one of several texts: one test with `in`.
fn one_of(one: &Test, other: &Test) -> Option<Test> {
    let (Test::Value(field, one), Test::Value(same, other)) = (one, other) else { return None };
    let texts = |test: &Map| {
        let mut rest = test.clone();
        let texts = match (rest.remove("exact"), rest.remove("in")) {
            (Some(text), None) => vec![text],
            (None, Some(Tree::List(texts))) => texts,
            _ => return None,
        };
        Some((rest, texts))
    };
    let ((mut rest, mut all), (others, more)) = (texts(one)?, texts(other)?);
    for text in more {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    if field != same || rest != others || all.len() > MAX_VALUES {
        return None;
    }
    match <[Tree; 1]>::try_from(all) {
        Ok([only]) => rest.set("exact", only),
        Err(all) => rest.set("in", all),
    };
    Some(Test::Value(field, rest))
}

fn alternatives(conditions: Vec<Map>) -> Map {
    if conditions.len() <= MAX_ALTERNATIVES {
        let any: Vec<Tree> = conditions.into_iter().map(Tree::from).collect();
        return Map::from([("any", any.into())]);
    }
    let groups: Vec<_> =
        conditions.chunks(MAX_ALTERNATIVES).map(|group| alternatives(group.to_vec())).collect();
    alternatives(groups)
}

/// A field that is a list of words.
fn words(field: &'static str, words: &[String], most: usize) -> Map {
    let field_of = |words: &[String]| {
        let list: Vec<Tree> = words.iter().map(|word| Tree::from(word.as_str())).collect();
        Map::from([(field, list.into())])
    };
    if words.len() <= most {
        return field_of(words);
    }
    alternatives(words.chunks(most).map(field_of).collect())
}

impl Expression {
    fn of(text: String) -> Self {
        let (beginning, ending) = (beginning(&text).to_owned(), ending(&text));
        Self { text, beginning, ending }
    }

    fn matches(&self, path: &str) -> bool {
        if !path.starts_with(&self.beginning) || !path.ends_with(&self.ending) {
            return false;
        }
        let compiled = regex_lite::Regex::new(&format!("^(?s:{})$", self.text));
        compiled.map_or(true, |regex| regex.is_match(path))
    }

    fn overlaps(&self, other: &Self) -> bool {
        is_either(&self.beginning, &other.beginning, |long, short| long.starts_with(short))
            && is_either(&self.ending, &other.ending, |long, short| long.ends_with(short))
    }
}

/// True if `holds` is true in one of both orders.
fn is_either(one: &str, other: &str, holds: fn(&str, &str) -> bool) -> bool {
    holds(one, other) || holds(other, one)
}

/// The literal characters that each matching value ends with; none where that is not easy to see.
fn ending(text: &str) -> String {
    let has_flags = text.split("(?").skip(1).any(|group| !group.starts_with(':'));
    if has_flags || text.contains('|') {
        return String::new();
    }
    // Behind the last group and the last class.
    let tail = text.rsplit([')', ']']).next().unwrap_or_default();
    let (mut plain, mut chars) = (String::new(), tail.chars());
    while let Some(next) = chars.next() {
        match next {
            '\\' => match chars.next() {
                Some(escaped) if escaped.is_ascii_punctuation() => plain.push(escaped),
                _ => plain.clear(),
            },
            '{' => {
                plain.clear();
                chars.by_ref().find(|next| *next == '}');
            }
            '.' | '*' | '+' | '?' | '^' | '$' | '(' | '[' => plain.clear(),
            other => plain.push(other),
        }
    }
    plain
}

impl PathTest {
    pub fn regex(text: impl Into<String>) -> Self {
        Self::Regex(Expression::of(text.into()))
    }

    /// The length, as nginx measures the texts of locations.
    pub fn length(&self) -> usize {
        match self {
            Self::Exact(text) | Self::Prefix(text) | Self::Below(text) => text.len(),
            Self::Regex(regex) => regex.text.len(),
        }
    }

    /// The characters with which each path begins that matches.
    pub fn beginning(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Prefix(text) | Self::Below(text) => text,
            Self::Regex(regex) => &regex.beginning,
        }
    }

    /// True if this path matches.
    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(text) => text == path,
            Self::Prefix(text) => path.starts_with(text.as_str()),
            Self::Below(text) => {
                path.strip_prefix(text.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Self::Regex(regex) => regex.matches(path),
        }
    }

    fn map(&self) -> Map {
        let (field, text) = match self {
            Self::Exact(path) if is_readable(path) => ("exact", path.clone()),
            Self::Exact(path) => ("regex", escaped(path)),
            Self::Prefix(prefix) => ("regex", format!("{}.*", escaped(prefix))),
            Self::Below(path) => return Map::from([("prefix", path.as_str().into())]),
            Self::Regex(regex) => ("regex", regex.text.clone()),
        };
        // To nginx and Envoy `/login/` is another path than `/login`.
        Map::from([(field, text.into()), ("trailing_slash", "distinct".into())])
    }

    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(one), Self::Exact(other)) => one == other,
            (Self::Exact(path), Self::Prefix(prefix)) | (Self::Prefix(prefix), Self::Exact(path)) => {
                path.starts_with(prefix.as_str())
            }
            (Self::Prefix(one), Self::Prefix(other)) => {
                is_either(one, other, |long, short| long.starts_with(short))
            }
            (Self::Regex(regex), Self::Exact(path)) | (Self::Exact(path), Self::Regex(regex)) => {
                regex.matches(path)
            }
            (Self::Regex(regex), Self::Prefix(prefix)) | (Self::Prefix(prefix), Self::Regex(regex)) => {
                is_either(&regex.beginning, prefix, |long, short| long.starts_with(short))
            }
            (Self::Regex(one), Self::Regex(other)) => one.overlaps(other),
            _ => true,
        }
    }
}

/// True if all servers read a path alike: weir's `exact` has no other one.
fn is_readable(path: &str) -> bool {
    path.starts_with('/')
        && !path.contains([';', '?', '%'])
        && !path.contains("//")
        && !path.split('/').any(|segment| [".", ".."].contains(&segment))
}

/// A host without its port.
pub fn without_port(host: &str) -> &str {
    let ends_in_port = |(_, port): &(&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
    host.rsplit_once(':').filter(ends_in_port).map_or(host, |(host, _)| host)
}

/// Escapes the operators of regular expressions in a string.
pub fn escaped(text: &str) -> String {
    regex_lite::escape(text)
}

/// An expression in which `\<` and `\>` are the characters that they are to PCRE. To weir they would be borders of words.
pub fn without_borders(pattern: &str) -> String {
    let (mut text, mut chars) = (String::new(), pattern.chars());
    while let Some(next) = chars.next() {
        match (next, chars.clone().next()) {
            ('\\', Some(escaped)) => {
                chars.next();
                if !['<', '>'].contains(&escaped) {
                    text.push(next);
                }
                text.push(escaped);
            }
            _ => text.push(next),
        }
    }
    text
}

/// A regular expression of nginx, which searches, as expressions for the whole value. One of them has to match. A large one is split where
/// it has alternatives.
pub fn wholes(pattern: &str, ignores_case: bool) -> Result<Vec<String>, String> {
    match pattern.strip_prefix("(?i)") {
        Some(pattern) if size(pattern) > MAX_SPLIT => halved(pattern, true, MAX_HALVED),
        _ => halved(pattern, ignores_case, MAX_HALVED),
    }
}

fn halved(pattern: &str, ignores_case: bool, times: usize) -> Result<Vec<String>, String> {
    let may_be = times > 0 && size(pattern) > MAX_SPLIT;
    let Some([one, other]) = may_be.then(|| halves(pattern)).flatten() else {
        return Ok(vec![whole(pattern, ignores_case)?]);
    };
    let times = times.saturating_sub(1);
    Ok([halved(&one, ignores_case, times)?, halved(&other, ignores_case, times)?].concat())
}

/// Two expressions that together find what this one finds: each has half of its alternatives, or of those of the group with the most.
fn halves(pattern: &str) -> Option<[String; 2]> {
    // The beginning of each open group, and where its alternatives end.
    let mut open: Vec<(usize, Vec<usize>)> = vec![(0, Vec::new())];
    let (mut groups, mut is_class, mut chars) = (Vec::new(), false, pattern.char_indices().peekable());
    while let Some((at, next)) = chars.next() {
        match next {
            '\\' => drop(chars.next()),
            '[' if !is_class => {
                is_class = true;
                chars.next_if(|(_, next)| *next == '^');
                chars.next_if(|(_, next)| *next == ']');
            }
            ']' => is_class = false,
            _ if is_class => {}
            '(' => open.push((at.saturating_add(1), Vec::new())),
            ')' => {
                let (from, ends) = open.pop()?;
                let is_repeated = chars.peek().is_some_and(|(_, next)| ['*', '+', '?', '{'].contains(next));
                if open.len() == 1 && !is_repeated {
                    groups.push((from, at, ends));
                }
            }
            '|' => open.last_mut()?.1.push(at),
            _ => {}
        }
    }
    let (_, ends) = open.pop().filter(|_| open.is_empty())?;
    let (from, to, ends) = if ends.is_empty() {
        groups.into_iter().max_by_key(|(.., ends)| ends.len())?
    } else {
        (0, pattern.len(), ends)
    };
    // Flags in an alternative hold in those behind it, too.
    if pattern.get(from..to)?.split("(?").skip(1).any(|group| !group.starts_with([':', '<', 'P'])) {
        return None;
    }
    let half = *ends.get(ends.len() / 2)?;
    // What begins a group that does not count, or has a name.
    let inner = pattern.get(from..half)?;
    let sign = if from > 0 && inner.starts_with('?') { inner.find([':', '>'])?.saturating_add(1) } else { 0 };
    let piece = |one: &str, other: &str| [one, other].concat();
    Some([
        piece(pattern.get(..half)?, pattern.get(to..)?),
        piece(pattern.get(..from.saturating_add(sign))?, pattern.get(half.saturating_add(1)..)?),
    ])
}

/// A regular expression of nginx, which searches, as one for the whole value.
pub fn whole(pattern: &str, ignores_case: bool) -> Result<String, String> {
    let pattern = without_borders(pattern);
    let pattern = pattern.as_str();
    let flags = if ignores_case { "(?i)" } else { "" };
    let may_have_alternatives = pattern.contains('|');
    let ends = pattern.ends_with('$') && !pattern.ends_with("\\$");
    let text = if may_have_alternatives {
        format!("{flags}.*(?:{pattern}).*")
    } else {
        let (before, body) = pattern.strip_prefix('^').map_or((".*", pattern), |body| ("", body));
        let (body, after) = if ends {
            (body.get(..body.len().saturating_sub(1)).unwrap_or_default(), "")
        } else {
            (body, ".*")
        };
        format!("{flags}{before}{body}{after}")
    };
    Pattern::new(&text).map(|_| text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Two expressions that match one path overlap.
        #[test]
        fn what_ends_or_begins_otherwise_is_another_path(
            one in expression(), other in expression(), path in "[/ab.x]{0,6}",
        ) {
            let matches = |text: &str| regex_lite::Regex::new(&format!("^(?s:{text})$")).unwrap().is_match(&path);
            let both = [PathTest::regex(one.as_str()), PathTest::regex(other.as_str())];
            if matches(&one) && matches(&other) {
                prop_assert!(both[0].overlaps(&both[1]), "{} and {} match {:?}", one, other, path);
            }
            if matches(&one) {
                prop_assert!(both[0].overlaps(&PathTest::Exact(path.clone())), "{} matches {:?}", one, path);
                prop_assert!(both[0].overlaps(&PathTest::Prefix(path.clone())), "{} matches {:?}", one, path);
            }
        }
    }

    /// Each alternation takes a level, until there are too many for a configuration: then each test stands for itself.
    #[test]
    fn however_often_tests_alternate_the_condition_loads() {
        for count in [2, MAX_RUNS - 1, MAX_RUNS, MAX_RUNS + 1, 3 * MAX_RUNS] {
            for regex in [false, true] {
                let path = |length: usize| match "a".repeat(length) {
                    text if regex => PathTest::regex(format!("/{text}.*")),
                    text => PathTest::Prefix(format!("/{text}")),
                };
                // The most particular path comes first, and the last one has a limit.
                let paths: Vec<_> = (1..=count).rev().map(|length| Test::Path(path(length))).collect();
                let says = |place: usize| (count - place) % 2 == 1;
                let all = paths.iter().enumerate().map(|(place, test)| (test, says(place)));
                let condition = Tree::from(Test::first_match(all).condition()).json();
                let limit =
                    serde_json::json!({"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1});
                let policy = serde_json::json!({"name": "p", "match": condition, "limits": [limit]});
                let config = serde_json::json!({"policies": [policy]}).to_string();
                let loaded = weir::config::Config::parse(config.as_bytes());
                assert!(loaded.is_ok(), "{count} alternations: {:?}", loaded.err());
            }
        }
    }

    proptest! {
        /// A host comes to the server of the longest name for it, and without one to the server that takes the rest.
        #[test]
        fn a_host_comes_to_the_most_particular_name(
            names in prop::collection::vec((host_name(), any::<bool>()), 0..6), takes_rest: bool,
            host in "[ab](\\.[ab]){0,3}",
        ) {
            let tests: Vec<_> = names.iter().map(|(name, _)| Test::Host(vec![name.clone()])).collect();
            let all = names.iter().zip(&tests).map(|((name, is_own), test)| (name.as_str(), test, *is_own));
            let found = Test::of_server(all.collect(), takes_rest);
            let fitting = names.iter().filter(|(name, _)| host_covers(name, &host));
            // Of two that are the same, the first.
            let best = fitting.rev().max_by_key(|(name, _)| (!name.starts_with('*'), name.len()));
            let expected = best.map_or(takes_rest, |(_, is_own)| *is_own);
            prop_assert_eq!(holds(&found, &host), expected, "{:?}", found);
        }
    }

    fn host_name() -> impl Strategy<Value = String> {
        "(\\*|[ab])(\\.[ab]){1,3}"
    }

    /// True if a test of hosts alone holds.
    fn holds(test: &Test, host: &str) -> bool {
        match test {
            Test::Always => true,
            Test::All(all) => all.iter().all(|test| holds(test, host)),
            Test::Any(any) => any.iter().any(|test| holds(test, host)),
            Test::Not(test) => !holds(test, host),
            Test::Host(names) => names.iter().any(|name| host_covers(name, host)),
            _ => false,
        }
    }

    fn expression() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "/", "a", "b", "\\.", ".", "x", "[ab]", "[^]a]", "(?:a|b)", "(a)", "(?:b)", "\\w", "a{1,2}",
            "b{2}", ".*", "a?", "x*", "b+", "(?i:A)", "/|a",
        ]);
        prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn an_expression_is_split_unless_flags_are_among_its_alternatives() {
        for (pattern, is_split) in
            [("x(a|b)", true), ("(?i)x(a|b)", true), ("x((?i)a|b)", false), ("a|(?i)b", false)]
        {
            assert_eq!(halves(pattern).is_some(), is_split, "{pattern}");
        }
    }

    #[test]
    fn different_ends_are_seen() {
        for (one, other, overlaps) in [
            (r".*\.php", r".*\.html", false),
            (r"/a/\d+", r"/b/\d+", false),
            (r"/a.*", r"/ab/.*", true),
            (r".*/x{2}", r".*/xx", true),
            (r"(?i).*\.php", r".*\.html", true),
        ] {
            assert_eq!(PathTest::regex(one).overlaps(&PathTest::regex(other)), overlaps, "{one} {other}");
        }
    }
}
