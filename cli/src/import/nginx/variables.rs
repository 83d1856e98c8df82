// SPDX-License-Identifier: Apache-2.0
//! nginx's variables: those of a request as parts of a subject and as tests, and those of `map` and `geo` as cases.

use std::collections::{HashMap, HashSet};

use super::super::notes::{Note, Notes};
use super::super::test::{PathTest, Test, escaped, network, wholes, without_borders};
use super::composite;
use super::syntax::Directive;
use crate::tree::{Map, Tree};
use weir::request::client_ip::Network;

const MAX_CASES: usize = 4_096;
/// The maximum nesting of maps.
const MAX_NESTING: usize = 8;

/// A part of a string with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Text(String),
    Variable(String),
}

/// The value of a string by cases: the first test that holds counts.
pub type Cases = Vec<(Test, Vec<Part>)>;

pub struct Variables<'a> {
    maps: HashMap<String, &'a Directive>,
    geos: HashMap<String, &'a Directive>,
    /// The directives `set`.
    sets: Vec<(String, &'a Directive)>,
    /// True if nginx takes the client's address from a header.
    has_real_ip: bool,
}

/// Reads `$name` and `${name}` in a string.
pub fn parts(text: &str) -> Vec<Part> {
    let (mut parts, mut rest, mut plain) = (Vec::new(), text, String::new());
    while let Some((before, after)) = rest.split_once('$') {
        plain.push_str(before);
        let (name, after) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(found) => found,
            None => {
                let end = after
                    .find(|next: char| !next.is_ascii_alphanumeric() && next != '_')
                    .unwrap_or(after.len());
                after.split_at_checked(end).unwrap_or((after, ""))
            }
        };
        if name.is_empty() {
            plain.push('$');
        } else {
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Variable(name_of_variable(name)));
        }
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    parts
}

/// The name of a variable in lower case, because case does not matter. The name of a cookie or a parameter keeps its capitals: nginx ignores
/// case there, too, but to weir a request is unreadable that writes the name otherwise.
pub fn name_of_variable(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let own = ["cookie_", "arg_"].into_iter().find(|kind| lower.starts_with(kind));
    match own.and_then(|kind| Some((kind, text.get(kind.len()..)?))) {
        Some((kind, name)) => format!("{kind}{name}"),
        None => lower,
    }
}

impl<'a> Variables<'a> {
    /// The variables of the block `http`.
    pub fn of(http: &'a [Directive]) -> Self {
        let named = |name: &str| {
            let of_name = http.iter().filter(|directive| directive.name == name && directive.block.is_some());
            let variable = |directive: &'a Directive| {
                // Case does not matter in names.
                let defined = directive.arguments.last()?.strip_prefix('$')?.to_ascii_lowercase();
                Some((defined, directive))
            };
            of_name.filter_map(variable).collect()
        };
        let servers = http.iter().filter(|directive| directive.name == "server").flat_map(Directive::inner);
        let has_real_ip = http.iter().chain(servers).any(|directive| directive.name == "set_real_ip_from");
        let (mut sets, mut open) = (Vec::new(), http.iter().collect::<Vec<_>>());
        while let Some(directive) = open.pop() {
            if directive.name == "set" {
                sets.push((directive.argument(0).trim_start_matches('$').to_ascii_lowercase(), directive));
            }
            open.extend(directive.inner());
        }
        Self { maps: named("map"), geos: named("geo"), sets, has_real_ip }
    }

    /// The directive `map` that defines a variable.
    fn map(&self, name: &str) -> Option<&'a Directive> {
        self.maps.get(&name.to_ascii_lowercase()).copied()
    }

    fn geo(&self, name: &str) -> Option<&'a Directive> {
        self.geos.get(&name.to_ascii_lowercase()).copied()
    }

    /// The first variable of this kind in a string, or in the maps that make it.
    pub fn find(&self, text: &str, is_it: impl Fn(&str) -> bool) -> Option<String> {
        let (mut open, mut seen) = (parts(text), HashSet::new());
        while let Some(part) = open.pop() {
            let Part::Variable(name) = part else { continue };
            if is_it(&name) {
                return Some(name);
            }
            if let Some(map) = self.map(&name).filter(|_| seen.insert(name)) {
                let values = map.inner().iter().map(|entry| entry.argument(0));
                open.extend(values.chain([map.argument(0)]).flat_map(parts));
            }
        }
        None
    }

    /// Returns the value of a string for each request to a server of this name. If weir has no test for an entry of a map, the entry is left
    /// out, with a note.
    pub fn cases(&self, text: &str, server_name: &str, notes: &mut Notes) -> Result<Cases, String> {
        Expansion { variables: self, server_name, notes }.expand(&parts(text), 0)
    }
}

/// True if this variable changes when nginx sends a request on to another path.
pub fn moves(name: &str) -> bool {
    ["uri", "document_uri", "args", "query_string"].contains(&name) || name.starts_with("arg_")
}

/// A string whose variables are replaced.
struct Expansion<'e, 'a> {
    variables: &'e Variables<'a>,
    server_name: &'e str,
    notes: &'e mut Notes,
}

impl Expansion<'_, '_> {
    fn expand(&mut self, parts: &[Part], depth: usize) -> Result<Cases, String> {
        if depth > MAX_NESTING {
            return Err(format!("maps are made of maps more than {MAX_NESTING} deep"));
        }
        let mut cases: Cases = vec![(Test::Always, Vec::new())];
        for part in parts {
            self.note_sets(part);
            let own = match part {
                Part::Variable(name) if self.variables.map(name).is_some() => self.map(name, depth)?,
                Part::Variable(name) if self.variables.geo(name).is_some() => self.geo(name)?,
                Part::Variable(name) if name == "server_name" => vec![(Test::Always, text(self.server_name))],
                Part::Variable(name) if name == "realip_remote_addr" && !self.variables.has_real_ip => {
                    vec![(Test::Always, vec![Part::Variable(String::from("remote_addr"))])]
                }
                other => vec![(Test::Always, vec![other.clone()])],
            };
            cases = cases
                .iter()
                .flat_map(|(test, before)| {
                    own.iter().map(move |(more, after)| {
                        (test.clone().and(more.clone()), before.iter().chain(after).cloned().collect())
                    })
                })
                .collect();
            if cases.len() > MAX_CASES {
                return Err(format!("it has more than {MAX_CASES} cases"));
            }
        }
        Ok(cases)
    }

    /// A variable has the value that `set` gives it, also one of a map.
    fn note_sets(&mut self, part: &Part) {
        let variables = self.variables;
        let Part::Variable(name) = part else { return };
        if variables.map(name).is_some() || variables.geo(name).is_some() || source(name).is_some() {
            for (_, set) in variables.sets.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name)) {
                let why = "nginx gives the variable another value here, and weir does not";
                self.notes.add(Note::new(set, why, "Write a policy for these requests by hand"));
            }
        }
    }

    /// Adds the cases of a value, for the requests that meet this test.
    fn add(&mut self, test: &Test, value: &str, depth: usize, cases: &mut Cases) -> Result<(), String> {
        for (more, value) in self.expand(&parts(value), depth.saturating_add(1))? {
            cases.push((test.clone().and(more), value));
        }
        Ok(())
    }

    fn map(&mut self, name: &str, depth: usize) -> Result<Cases, String> {
        let Some(map) = self.variables.map(name) else { return Ok(Vec::new()) };
        let entries: Vec<_> = map.inner().iter().filter(|entry| entry.arguments.len() == 1).collect();
        let default = entries.iter().find(|entry| entry.name == "default");
        let default = default.map(|entry| entry.argument(0)).unwrap_or_default();
        let has_hosts = map.inner().iter().any(|entry| entry.name == "hostnames");
        let mut cases = Cases::new();
        for (test, source) in self.expand(&parts(map.argument(0)), depth.saturating_add(1))? {
            let source = joined(source);
            note_differences(&source, map, false, self.notes);
            if let [] | [Part::Text(_)] = source.as_slice() {
                for entry in &entries {
                    let unread =
                        expression(&entry.name).and_then(|(pattern, case)| wholes(pattern, case).err());
                    if let Some(why) = unread {
                        let why = format!(
                            "weir cannot search for it ({why}), so its requests are taken for those of the next entries"
                        );
                        self.notes.add(Note::new(entry, why, "Write a condition for these requests by hand"));
                    }
                }
                let text = if let [Part::Text(text)] = source.as_slice() { text.as_str() } else { "" };
                let mut found = sorted(&entries, has_hosts).into_iter();
                let found = found.find(|entry| is_entry(&entry.name, text, has_hosts));
                self.add(&test, found.map_or(default, |entry| entry.argument(0)), depth, &mut cases)?;
                continue;
            }
            let unknown =
                |part: &&Part| matches!(part, Part::Variable(variable) if !composite::has_tests(variable));
            if let Some(Part::Variable(variable)) = source.iter().find(unknown) {
                return Err(not_known(variable));
            }
            for entry in sorted(&entries, has_hosts) {
                let meets = match source.as_slice() {
                    [Part::Variable(variable)] => value_test(variable, &entry.name, has_hosts),
                    several => composite::test(several, &entry.name),
                };
                match meets {
                    Ok(meets) => self.add(&test.clone().and(meets), entry.argument(0), depth, &mut cases)?,
                    Err(why) => self.notes.add(Note::new(
                        entry,
                        format!("{why}, so its requests are taken for those of the next entries"),
                        "Write a condition for these requests by hand",
                    )),
                }
            }
            self.add(&test, default, depth, &mut cases)?;
        }
        Ok(cases)
    }

    fn geo(&mut self, name: &str) -> Result<Cases, String> {
        let Some(geo) = self.variables.geo(name) else { return Ok(Vec::new()) };
        if geo.arguments.len() > 1 && !is_address(geo.argument(0).trim_start_matches('$')) {
            return Err(format!(
                "${name} is about {}, and weir knows networks of the client's address only",
                geo.argument(0)
            ));
        }
        let (mut networks, mut default) = (Vec::new(), "");
        for entry in geo.inner() {
            match (entry.name.as_str(), network(&entry.name)) {
                ("default", _) => default = entry.argument(0),
                (_, Some(network)) => networks.push((network, entry.argument(0))),
                ("ranges" | "volatile", _) => {}
                ("delete" | "proxy" | "proxy_recursive", _) => {
                    return Err(format!("${name} has {}, which is not read", entry.name));
                }
                (other, None) => {
                    let range =
                        range(other).ok_or_else(|| format!("${name} has {other:?}, which is no network"))?;
                    networks.extend(range.into_iter().map(|network| (network, entry.argument(0))));
                }
            }
        }
        // The longest network counts, and of two that are the same the last one.
        let mut seen = HashSet::new();
        networks.reverse();
        networks.retain(|(network, _)| seen.insert(network.to_string()));
        networks.sort_by_key(|(network, _)| core::cmp::Reverse(network.prefix()));
        let mut cases = Cases::new();
        for (test, value) in networks
            .into_iter()
            .map(|(network, value)| (Test::Address(vec![network]), value))
            .chain([(Test::Always, default)])
        {
            if value.contains('$') {
                let why = "to nginx a value of geo is plain text, so all of these clients have the same one";
                self.notes.add(Note::new(geo, why, "Write the variable in a `map` of this one"));
            }
            cases.push((test, text(value)));
        }
        Ok(cases)
    }
}

/// A plain string; nothing if it is empty.
fn text(value: &str) -> Vec<Part> {
    if value.is_empty() { Vec::new() } else { vec![Part::Text(value.to_owned())] }
}

/// The networks that make up a range `10.0.0.1-10.0.0.9`.
fn range(text: &str) -> Option<Vec<Network>> {
    let (first, last) = text.split_once('-')?;
    let number = |text: &str| Some(u64::from(u32::from(text.parse::<core::net::Ipv4Addr>().ok()?)));
    let (mut first, end, mut networks) = (number(first)?, number(last)?.checked_add(1)?, Vec::new());
    while first < end {
        // The largest one that begins here and does not go beyond the end.
        let bits = first.trailing_zeros().min(end.checked_sub(first)?.ilog2()).min(32);
        let address = core::net::Ipv4Addr::from(u32::try_from(first).ok()?);
        networks.push(network(&format!("{address}/{}", 32_u32.checked_sub(bits)?))?);
        first = first.checked_add(1_u64.checked_shl(bits)?)?;
    }
    Some(networks)
}

/// Notes about variables that nginx reads a little otherwise. `is_key`: they are parts of a subject, and not the source of a map.
pub fn note_differences(parts: &[Part], directive: &Directive, is_key: bool, notes: &mut Notes) {
    for part in parts {
        let Part::Variable(name) = part else { continue };
        let (why, instead) = match (Notes::of_pair(name), Notes::of_header(name)) {
            (Some(unreadable), _) => {
                let nginx = if name.starts_with("arg_") {
                    "nginx ignores case in the name of a parameter, and does not decode its value"
                } else {
                    "nginx ignores case in the name of a cookie, and keeps the quotes around its value"
                };
                let (weir, instead) = if is_key {
                    (
                        "such a request gets 403",
                        "Write its name as clients do, and try the policy with `mode: shadow` first",
                    )
                } else {
                    ("each test of it counts as true, and an exemption by it does not apply", "")
                };
                (format!("{nginx}. To weir {unreadable}: {weir}"), instead)
            }
            (None, Some(why)) => {
                (why.to_owned(), "Add a limit on the address if clients may choose how they write it")
            }
            (None, None) if name == "http_host" && is_key => (
                "nginx tells apart how clients write the host (`A.test`, `a.test:80`), and weir does not"
                    .into(),
                "",
            ),
            (None, None) if name == "proxy_protocol_addr" => (
                "nginx has the address of the PROXY protocol, and none without it; weir has the client's address".into(),
                "Add the listener filter proxy_protocol to Envoy's listener",
            ),
            (None, None) if name == "scheme" => (
                "Envoy tells it by its own listener, which may have no TLS where nginx had".into(),
                "",
            ),
            (None, None) => continue,
        };
        notes.add(Note::new(directive, format!("${name}: {why}"), instead));
    }
}

/// Texts that follow each other as one.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut whole: Vec<Part> = Vec::new();
    for part in parts {
        match (whole.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(text)) => before.push_str(&text),
            (_, part) => whole.push(part),
        }
    }
    whole
}

fn not_known(variable: &str) -> String {
    if variable == "realip_remote_addr" {
        return String::from("$realip_remote_addr is the address of the proxy, which weir passes over");
    }
    if variable.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("${variable} is a part that a regular expression has found");
    }
    format!("${variable} is not known to weir")
}

/// The entries in the order in which nginx tries them: texts, then names of hosts with `*`, then regular expressions.
fn sorted<'a>(entries: &[&'a Directive], has_hosts: bool) -> Vec<&'a Directive> {
    let rank = |entry: &&Directive| {
        let name = entry.name.as_str();
        match name {
            _ if name.starts_with('~') => (3, 0),
            _ if has_hosts && (name.starts_with("*.") || name.starts_with('.')) => {
                (1, usize::MAX.saturating_sub(name.len()))
            }
            _ if has_hosts && name.ends_with(".*") => (2, usize::MAX.saturating_sub(name.len())),
            _ => (0, 0),
        }
    };
    let mut sorted: Vec<_> = entries.iter().copied().filter(|entry| entry.name != "default").collect();
    sorted.sort_by_key(rank);
    sorted
}

/// True if a string matches the map entry of this name. An empty string matches no expression.
fn is_entry(name: &str, text: &str, has_hosts: bool) -> bool {
    let finds = |pattern: &str, ignores_case| finds(pattern, ignores_case, text).unwrap_or(false);
    match (expression(name), wildcard(name).filter(|_| has_hosts)) {
        (Some((pattern, ignores_case)), _) => !text.is_empty() && finds(pattern, ignores_case),
        (None, Some(pattern)) => finds(&pattern, true),
        (None, None) => unescaped(name).eq_ignore_ascii_case(text),
    }
}

/// True if an expression finds something in a string.
pub fn finds(pattern: &str, ignores_case: bool, text: &str) -> Result<bool, String> {
    let flags = if ignores_case { "(?i)" } else { "" };
    let regex = regex_lite::Regex::new(&format!("{flags}{}", without_borders(pattern)));
    regex.map(|regex| regex.is_match(text)).map_err(|why| format!("weir cannot search for it ({why})"))
}

/// A name of hosts with a wildcard, as an expression.
fn wildcard(name: &str) -> Option<String> {
    if let Some(begins) = name.strip_suffix(".*") {
        return Some(format!("^{}\\..+$", escaped(begins)));
    }
    match name.strip_prefix('*') {
        Some(ends) if ends.starts_with('.') => Some(format!("^.+{}$", escaped(ends))),
        _ => Some(format!("^(.+\\.)?{}$", escaped(name.strip_prefix('.')?))),
    }
}

/// Removes the backslash before a name. With it, nginx does not read the name as a word such as `default`.
pub fn unescaped(name: &str) -> &str {
    name.strip_prefix('\\').unwrap_or(name)
}

pub fn is_address(name: &str) -> bool {
    ["remote_addr", "binary_remote_addr", "proxy_protocol_addr"].contains(&name)
}

/// An entry of a map as a regular expression: the expression, and whether it ignores case.
pub fn expression(entry: &str) -> Option<(&str, bool)> {
    let pattern = entry.strip_prefix('~')?;
    Some(pattern.strip_prefix('*').map_or((pattern, false), |rest| (rest, true)))
}

/// A test on the value of a variable of the request, as an entry of a map.
fn value_test(variable: &str, entry: &str, has_hosts: bool) -> Result<Test, String> {
    match expression(entry) {
        Some((pattern, ignores_case)) => {
            let test = regex_test(variable, pattern, ignores_case)?;
            // An expression of a map is not tried on an empty value.
            let filled = finds_nothing(pattern).then(|| is_filled(variable)).flatten();
            Ok(filled.map_or(test.clone(), |filled| test.and(filled)))
        }
        None if unescaped(entry).is_empty() => text_test(variable, ""),
        None if has_hosts && variable == "host" => Ok(host_test(unescaped(entry), true)),
        None => match wildcard(entry).filter(|_| has_hosts) {
            Some(pattern) => regex_test(variable, &pattern, true),
            None => text_test(variable, unescaped(entry)),
        },
    }
}

/// True if an expression matches an empty text.
fn finds_nothing(pattern: &str) -> bool {
    finds(pattern, false, "").unwrap_or(false)
}

fn is_filled(variable: &str) -> Option<Test> {
    let Some(Source::Value(field, test)) = source(variable) else { return None };
    Some(filled(field, test))
}

/// The test of `if ($variable ~ pattern)`. To nginx a missing value is an empty one.
pub fn search_test(variable: &str, pattern: &str, ignores_case: bool) -> Result<Test, String> {
    let test = regex_test(variable, pattern, ignores_case)?;
    let filled = finds_nothing(pattern).then(|| is_filled(variable)).flatten();
    Ok(filled.map_or(test.clone(), |filled| test.or(filled.negated())))
}

/// A test whether this expression of nginx finds something in the value of a variable.
pub fn regex_test(variable: &str, pattern: &str, ignores_case: bool) -> Result<Test, String> {
    let unsearchable = |why| format!("weir cannot search for it ({why})");
    if variable == "host" {
        // `$host` has small letters only, and weir reads the host as the client writes it.
        if !ignores_case && needs(pattern, |next| next.is_ascii_uppercase()) {
            return Ok(Test::NEVER);
        }
        return host_regex(pattern, true).map_err(unsearchable);
    }
    let of_value = |regex| match variable {
        "request_method" => Ok(of_request("method", regex)),
        "http_host" => Ok(of_request("host", regex)),
        "uri" | "document_uri" => Ok(Test::Path(PathTest::regex(regex))),
        _ => match source(variable) {
            Some(Source::Value(field, mut test)) => {
                test.set("regex", regex);
                Ok(Test::Value(field, test))
            }
            _ => Err(format!("weir has no expressions for ${variable}")),
        },
    };
    let regexes = wholes(pattern, ignores_case).map_err(unsearchable)?.into_iter();
    regexes.map(of_value).collect::<Result<Vec<_>, _>>().map(Test::any_of)
}

/// True if all that an expression finds has such a capital or colon: one that is in no class, no name and no part that may be absent.
fn needs(pattern: &str, is_it: fn(char) -> bool) -> bool {
    const OTHERS: &str = r"\\.|\[\^?\]?(?:\\.|[^\]])*\]|\(\?P?[<'][^>']*[>']|\(\?:|[A-Z:][*?{]";
    let plain = regex_lite::Regex::new(OTHERS).map(|others| others.replace_all(pattern, "").into_owned());
    plain.is_ok_and(|plain| {
        !["|", "(?", ")?", ")*", "){"].iter().any(|sign| plain.contains(sign)) && plain.contains(is_it)
    })
}

/// True if nginx takes this in a method.
fn is_of_method(next: char) -> bool {
    next.is_ascii_uppercase() || "-_".contains(next)
}

/// A test whether a variable has this value. nginx compares without regard to case.
pub fn text_test(variable: &str, text: &str) -> Result<Test, String> {
    let has_letters = text.contains(|next: char| next.is_ascii_alphabetic());
    match variable {
        _ if text.is_empty() && !is_address(variable) && !composite::may_be(variable, text) => {
            Ok(Test::NEVER)
        }
        _ if is_address(variable) => {
            let address = text.parse::<core::net::IpAddr>().ok().and_then(|_| network(text));
            let address = address.filter(|_| variable != "binary_remote_addr");
            let why = || format!("nginx compares texts, and no ${variable} is this one");
            address.map(|address| Test::Address(vec![address])).ok_or_else(why)
        }
        "request_method" => {
            let method = text.to_ascii_uppercase();
            Ok(if method.chars().all(is_of_method) { Test::Method(vec![method]) } else { Test::NEVER })
        }
        "host" => Ok(host_test(text, false)),
        "http_host" => Ok(of_request("host", format!("(?i){}", escaped(text)))),
        "uri" | "document_uri" => Ok(Test::Path(if has_letters {
            PathTest::regex(format!("(?i){}", escaped(text)))
        } else {
            PathTest::Exact(text.to_owned())
        })),
        _ => {
            let Some(Source::Value(field, mut test)) = source(variable) else {
                return Err(not_known(variable));
            };
            match text {
                // To nginx, a missing value and an empty one are the same.
                "" => return Ok(filled(field, test).negated()),
                _ if has_letters => test.set("regex", format!("(?i){}", escaped(text))),
                _ => test.set("exact", text),
            };
            Ok(Test::Value(field, test))
        }
    }
}

/// A test whether a value is there and not empty.
fn filled(field: &'static str, mut test: Map) -> Test {
    test.set("regex", "(?s).+");
    Test::Value(field, test)
}

/// A test of `if ($variable = text)`, which tells letters apart.
pub fn equal_test(variable: &str, text: &str) -> Result<Test, String> {
    match (variable, source(variable)) {
        ("uri" | "document_uri", _) => Ok(Test::path(PathTest::Exact(text.to_owned()))),
        ("http_host", _) => Ok(of_request("host", escaped(text))),
        ("host", _) if text.contains(|next: char| next.is_ascii_uppercase()) => Ok(Test::NEVER),
        ("request_method", _) if text.is_empty() || text.contains(|next| !is_of_method(next)) => {
            Ok(Test::NEVER)
        }
        ("request_method", _) => Ok(Test::Method(vec![text.to_owned()])),
        (_, Some(Source::Value(field, mut test))) if !text.is_empty() => {
            test.set("exact", text);
            Ok(Test::Value(field, test))
        }
        _ => text_test(variable, text),
    }
}

/// Adds to a test on a parameter, which weir decodes and nginx does not, that the client writes the text as it is, wherever the parameter
/// occurs; `None` if it cannot.
pub fn as_written(variable: &str, text: &str, test: Test) -> Option<Test> {
    let Some(name) = variable.strip_prefix("arg_").filter(|_| !text.is_empty()) else { return Some(test) };
    let is_plain = |next: char| next.is_ascii_alphanumeric() || "-._~".contains(next);
    let name = format!("(?s)(?:.*&)?(?i:{})", escaped(name));
    let pair = of_request("query", format!("{name}={}(?:&.*)?", escaped(text)));
    let encoded = of_request("query", format!("{name}=[^&]*%.*"));
    text.chars().all(is_plain).then(|| test.and(pair).and(encoded.negated()))
}

/// A test of `if ($variable)`: it is neither empty nor `0`.
pub fn is_set_test(variable: &str) -> Option<Test> {
    let Some(Source::Value(field, test)) = source(variable) else { return None };
    Some(filled(field, test).and(equal_test(variable, "0").ok()?.negated()))
}

/// A name of a host, as servers and maps have it.
pub fn host_test(name: &str, has_wildcards: bool) -> Test {
    let name = name.to_ascii_lowercase();
    // Clients send international names as `xn--…`, and to nginx neither a port nor a dot at the end is a part of the host.
    let has_more = if name.starts_with('[') { !name.ends_with(']') } else { name.contains(':') };
    let is_own = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
    if has_more || name.ends_with('.') || !name.bytes().all(is_own) {
        return Test::NEVER;
    }
    if has_wildcards {
        if let Some(domain) = name.strip_prefix('.') {
            return Test::Host(vec![domain.to_owned(), format!("*.{domain}")]);
        }
        if name.ends_with(".*") {
            let found = wildcard(&name).and_then(|pattern| host_regex(&pattern, true).ok());
            return found.unwrap_or(Test::NEVER);
        }
    } else if name.starts_with('.') || name.contains('*') {
        return Test::NEVER;
    }
    Test::Host(vec![name])
}

/// A test whether this expression of nginx finds something in the host, which may have a dot and a port at its end.
pub fn host_regex(pattern: &str, ignores_case: bool) -> Result<Test, String> {
    if needs(pattern, |next| next == ':') && !pattern.contains(r"\[") {
        return Err(String::from(
            "to nginx the port is no part of the host, and only an IPv6 address has a `:`",
        ));
    }
    let (mut text, mut is_escaped, mut is_class) = (String::new(), false, false);
    for next in pattern.chars() {
        match next {
            '$' if !is_escaped && !is_class => text.push_str(r"\.?(?::.*)?"),
            '[' if !is_escaped => is_class = true,
            ']' if !is_escaped => is_class = false,
            _ => {}
        }
        is_escaped = next == '\\' && !is_escaped;
        text.push(next);
    }
    let regexes = wholes(&text, ignores_case)?.into_iter();
    Ok(Test::any_of(regexes.map(|regex| of_request("host", regex))))
}

/// A test of an attribute `request.…` by an expression for its whole value.
fn of_request(name: &str, regex: String) -> Test {
    let path: Vec<Tree> = vec!["request".into(), name.into()];
    Test::Value("attribute", Map::from([("path", path.into()), ("regex", regex.into())]))
}

/// The place of a variable's value in a request.
pub enum Source {
    /// A part of a subject that has no test of the same kind.
    Part(&'static str, Map),
    /// A part of a subject, and the field of a condition of the same name.
    Value(&'static str, Map),
}

pub fn source(variable: &str) -> Option<Source> {
    let named = |name: String| Map::from([("name", name.into())]);
    let attribute = |names: &[&str]| {
        let path: Vec<Tree> = names.iter().map(|name| Tree::from(*name)).collect();
        Source::Value("attribute", Map::from([("path", path.into())]))
    };
    Some(match variable {
        _ if is_address(variable) => {
            // nginx counts each address of IPv6 for itself.
            Source::Part("client_address", Map::from([("ipv6_prefix", 128_u64.into())]))
        }
        "host" | "http_host" => Source::Part("host", Map::new()),
        "request_method" => Source::Part("method", Map::new()),
        "uri" | "document_uri" => Source::Part("path", Map::from([("trailing_slash", "distinct".into())])),
        "request_uri" => attribute(&["request", "path"]),
        "args" | "query_string" => attribute(&["request", "query"]),
        "scheme" => attribute(&["request", "scheme"]),
        "ssl_server_name" => attribute(&["connection", "requested_server_name"]),
        "content_length" | "content_type" => Source::Value("header", named(variable.replace('_', "-"))),
        "ssl_client_s_dn" => Source::Part("tls_subject", Map::new()),
        _ => {
            if let Some(name) = variable.strip_prefix("http_") {
                Source::Value("header", named(name.replace('_', "-")))
            } else if let Some(name) = variable.strip_prefix("cookie_") {
                Source::Value("cookie", named(name.to_owned()))
            } else if let Some(name) = variable.strip_prefix("arg_") {
                // To nginx a `;` is part of a value.
                let mut parameter = named(name.to_owned());
                parameter.set("semicolon", "literal");
                Source::Value("query", parameter)
            } else if let Some(name) = variable.strip_prefix("jwt_claim_") {
                let claim: Vec<Tree> = vec![name.into()];
                Source::Value("jwt_claim", Map::from([("claim", claim.into())]))
            } else {
                return None;
            }
        }
    })
}

/// The subject that a key makes, and what a request must have so that the key is not empty.
pub struct Subject {
    pub parts: Vec<Tree>,
    pub present: Test,
    /// True if several variables are joined, and some of them may be empty.
    pub is_joined: bool,
    /// The part of the key that is left out, because weir does not know it.
    pub unknown: Option<String>,
}

/// The subject of a key. A key that is empty does not count. `is_alone`: the zone has no other key, so plain text in this one tells nothing
/// apart.
pub fn subject(key: &[Part], is_alone: bool) -> Subject {
    let variables = key.iter().filter(|part| matches!(part, Part::Variable(_))).count();
    let (mut parts, mut may_miss, mut is_sure) = (Vec::new(), Vec::new(), variables < key.len());
    let mut unknown = None;
    for part in joined(key.to_vec()) {
        let name = match part {
            Part::Variable(name) => name,
            Part::Text(_) if is_alone => continue,
            Part::Text(text) => {
                parts.push(Map::from([("literal", text.into())]).into());
                continue;
            }
        };
        let Some(source) = source(&name) else {
            unknown = unknown.or_else(|| Some(not_known(&name)));
            is_sure = true;
            continue;
        };
        let mut whole = Map::new();
        match source {
            Source::Part(kind, settings) => {
                whole.set(kind, settings);
                let is_certificate = kind == "tls_subject";
                is_sure |= !is_certificate || key.len() == 1;
                if is_certificate && key.len() == 1 {
                    whole.set("on_missing", "skip");
                } else if is_certificate {
                    let path: Vec<Tree> = vec!["connection".into(), "subject_peer_certificate".into()];
                    may_miss.push(filled("attribute", Map::from([("path", path.into())])));
                }
            }
            Source::Value(kind, settings) => {
                whole.set(kind, settings.clone());
                // nginx joins the lines of a header, and takes the first cookie or parameter.
                match kind {
                    "header" => drop(whole.set("on_multiple", "join")),
                    "cookie" | "query" => drop(whole.set("on_multiple", "first")),
                    _ => {}
                }
                if variables == 1 && variables == key.len() {
                    whole.set("on_missing", "skip");
                }
                if name == "request_uri" {
                    is_sure = true;
                } else {
                    may_miss.push(filled(kind, settings));
                }
            }
        }
        parts.push(Tree::from(whole));
    }
    if parts.is_empty() {
        let text = key.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Variable(name) => format!("${name}"),
        });
        let literal = text.collect::<String>();
        parts.push(Map::from([("literal", literal.into())]).into());
    }
    let is_joined = variables > 1 && !may_miss.is_empty();
    let present = if is_sure { Test::Always } else { Test::any_of(may_miss) };
    Subject { parts, present, is_joined, unknown }
}
