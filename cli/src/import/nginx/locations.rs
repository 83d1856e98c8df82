// SPDX-License-Identifier: Apache-2.0
//! nginx's servers and locations as an ordered list of tests: the first one that holds says which block handles a request.

use std::collections::{BTreeSet, HashSet};

use super::super::notes::{Note, Notes};
use super::super::test::{PathTest, Test, wholes};
use super::answers;
use super::limits::{Level, Rule};
use super::others::has_limits;
use super::syntax::Directive;
use super::variables::{host_regex, host_test};

/// A server, and which requests it handles.
pub struct Server<'a> {
    pub directive: &'a Directive,
    /// The hosts that come to it.
    pub hosts: Test,
    /// The blocks, each with the test for the requests that it handles.
    pub blocks: Vec<(Test, Level<'a>)>,
}

/// A location by how nginx finds it.
struct Location<'a> {
    test: PathTest,
    /// `^~`: no regular expression is tried.
    is_final: bool,
    directive: &'a Directive,
    block: &'a [Directive],
}

/// The servers of the block `http`.
pub fn servers<'a>(http: &'a [Directive], around: &Level<'a>, notes: &mut Notes) -> Vec<Server<'a>> {
    let directives = http.iter().filter(|directive| directive.name == "server");
    let all: Vec<Named<'_>> =
        directives.map(|server| Named { server, names: named(server, notes) }).collect();
    all.iter()
        .map(|Named { server: directive, .. }| {
            let hosts = hosts(directive, &all);
            let (block, all) = (directive.inner(), Test::Always);
            let (level, mut blocks) = (around.inside_server(block, notes), Vec::new());
            level.note_indexes(notes);
            // `return` and redirects of a server answer for all of its locations.
            answered(block, &level, &all, &mut blocks, notes);
            if answers::of_all(block).is_none() {
                at_once(block, &level, &all, true, &mut blocks, notes);
                by_prefix(block, &level, &all, true, &mut blocks, notes);
            }
            // A `location /` leaves nothing to the server itself.
            if blocks.iter().all(|(test, _)| *test != Test::Always) {
                add(level.own(block, notes), all, &mut blocks);
            }
            Server { directive, hosts, blocks }
        })
        .collect()
}

/// Directives that hand a request on. A location with one of them and a `/` at its end takes its path without the `/`, too.
pub const PROXIES: [&str; 6] =
    ["proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass", "grpc_pass"];

/// The blocks of the locations that handle a path, from the outermost one, as nginx finds them.
pub fn handler<'a>(block: &'a [Directive], path: &str) -> Vec<&'a [Directive]> {
    found(block, path).0
}

/// The same, and whether nginx tries no regular expression of the block around.
fn found<'a>(block: &'a [Directive], path: &str) -> (Vec<&'a [Directive]>, bool) {
    let (exact, prefixes, regexes) = locations(block, &mut Notes::default());
    if let Some(found) = exact.iter().find(|location| location.test.matches(path)) {
        return (vec![found.block], true);
    }
    let longest = prefixes.iter().find(|location| location.test.matches(path));
    let (inner, is_certain) = longest.map(|longest| found(longest.block, path)).unwrap_or_default();
    let is_final = is_certain || longest.is_some_and(|longest| longest.is_final);
    match of_regexes(&regexes, path).filter(|_| !is_final) {
        Some(blocks) => (blocks, true),
        None => (longest.map(|longest| longest.block).into_iter().chain(inner).collect(), is_certain),
    }
}

/// The blocks of the first of these regular expressions that matches. Inside of it, nginx finds other expressions only.
fn of_regexes<'a>(regexes: &[Location<'a>], path: &str) -> Option<Vec<&'a [Directive]>> {
    let found = regexes.iter().find(|location| location.test.matches(path))?.block;
    let (.., inner) = locations(found, &mut Notes::default());
    Some([vec![found], of_regexes(&inner, path).unwrap_or_default()].concat())
}

/// The addresses on which a server listens, each with `true` if it is the default there.
fn listens(server: &Directive) -> Vec<(&str, bool)> {
    let listens = server.inner().iter().filter(|directive| directive.name == "listen");
    let mut listens: Vec<_> = listens
        .map(|listen| {
            let is_default = listen
                .arguments
                .iter()
                .any(|argument| ["default_server", "default"].contains(&argument.as_str()));
            (port(listen.argument(0)), is_default)
        })
        .collect();
    if listens.is_empty() {
        listens.push(("80", false));
    }
    listens
}

/// `*:80`, `0.0.0.0:80` and `[::]:80` are the port 80, also without it.
fn port(address: &str) -> &str {
    let any = ["*", "0.0.0.0", "[::]"].iter().find_map(|any| address.strip_prefix(any));
    match any.map(|port| port.strip_prefix(':').unwrap_or(port)) {
        Some("") => "80",
        port => port.unwrap_or(address),
    }
}

fn names(server: &Directive) -> Vec<&str> {
    let names = server.inner().iter().filter(|directive| directive.name == "server_name");
    names.flat_map(|directive| directive.arguments.iter().map(String::as_str)).collect()
}

/// A server, and its names with the hosts that they are for.
struct Named<'a> {
    server: &'a Directive,
    names: Vec<Vec<(String, Test)>>,
}

/// The hosts of a server's names. `.example.com` is two.
fn named(server: &Directive, notes: &mut Notes) -> Vec<Vec<(String, Test)>> {
    let mut found = Vec::new();
    for name in names(server) {
        let test = match name.strip_prefix('~') {
            Some(pattern) => match host_regex(pattern, true) {
                Ok(test) => test,
                Err(why) => {
                    let note = Note::at(
                        server.file,
                        server.line,
                        name,
                        format!("weir cannot search for it: {why}"),
                        "Write the names",
                    );
                    notes.add(note);
                    Test::NEVER
                }
            },
            // No host has this name: it means the default server.
            None if name == "_" || name.is_empty() => Test::NEVER,
            // nginx compares the host without its port.
            None if name.contains(':') && !name.starts_with('[') => {
                let why = "no host has this name: to nginx the port is no part of it";
                notes.at(server.file, server.line, name, why, "Write the name without the port");
                Test::NEVER
            }
            None if !name.is_ascii() => {
                let why = "no client sends this host: an international name comes as `xn--…`";
                notes.at(server.file, server.line, name, why, "Write that name");
                Test::NEVER
            }
            None if name == "$hostname" => {
                let why = "it is the name of nginx's machine, which weir does not know";
                notes.at(server.file, server.line, name, why, "Write the name");
                Test::NEVER
            }
            None => {
                if name.contains('$') {
                    let why = "it is a variable of a template to which nginx and weir give no value, so no host has this name";
                    notes.at(server.file, server.line, name, why, "Import what the template makes");
                }
                host_test(name, true)
            }
        };
        match test {
            Test::Host(hosts) => {
                found.push(hosts.into_iter().map(|host| (host.clone(), Test::Host(vec![host]))).collect());
            }
            test if test.is_never() => {}
            test => found.push(vec![(name.to_owned(), test)]),
        }
    }
    found
}

/// The hosts that come to a server at its ports: those for which no other server there has a more particular name, and if it is the
/// default of a port, all that no other server has there.
fn hosts(server: &Directive, all: &[Named<'_>]) -> Test {
    let mut found: Vec<Test> = Vec::new();
    for (port, _) in listens(server) {
        let there = |other: &&Named<'_>| listens(other.server).iter().any(|(other, _)| *other == port);
        let is_flagged = |other: &&&Named<'_>| listens(other.server).contains(&(port, true));
        let at_port: Vec<_> = all.iter().filter(there).collect();
        let default = at_port.iter().find(is_flagged).or(at_port.first());
        let is_own = |other: &Named<'_>| core::ptr::eq(other.server, server);
        let (mut names, mut seen) = (Vec::new(), HashSet::new());
        for (name, is_own) in
            at_port.iter().flat_map(|other| other.names.iter().map(|name| (name, is_own(other))))
        {
            // nginx ignores `.example.com` as a whole if `example.com` was there before.
            if name.iter().any(|(name, _)| seen.contains(name)) {
                continue;
            }
            seen.extend(name.iter().map(|(name, _)| name));
            names.extend(name.iter().map(|(name, test)| (name.as_str(), test, is_own)));
        }
        let test = Test::of_server(names, default.is_some_and(|default| is_own(default)));
        if !found.contains(&test) {
            found.push(test);
        }
    }
    Test::any_of(found)
}

/// Servers that weir cannot tell apart: of the same hosts at several ports, with different limits.
pub fn ports<'a>(servers: &[Server<'a>], notes: &mut Notes) {
    // Each way in which a zone is used, with the requests that it limits.
    let limits = |server: &Server<'a>| {
        let rules = server.blocks.iter().flat_map(|(_, level)| level.rules());
        let mut found: Vec<(Rule<'a>, Test)> = Vec::new();
        for rule in rules {
            if found.iter().any(|(other, _)| other.is_like(&rule)) {
                continue;
            }
            let has = |level: &Level<'_>| level.rules().iter().any(|other| other.is_like(&rule));
            let blocks = server.blocks.iter().map(|(test, level)| (test, has(level)));
            let test = Test::first_match(blocks);
            found.push((rule, test));
        }
        found
    };
    let all: Vec<_> = servers.iter().map(limits).collect();
    let differs = |one: &[(Rule<'_>, Test)], other: &[(Rule<'_>, Test)]| {
        let has =
            |(rule, test): &(Rule<'_>, Test)| other.iter().any(|(of, at)| of.is_like(rule) && at == test);
        one.len() != other.len() || !one.iter().all(has)
    };
    let ports = |server: &Server<'_>| {
        listens(server.directive).into_iter().map(|(port, _)| port.to_owned()).collect::<BTreeSet<_>>()
    };
    for (number, server) in servers.iter().enumerate() {
        let own = all.get(number).map(Vec::as_slice).unwrap_or_default();
        let may_be_same = |(other, limits): &(&Server<'_>, &Vec<_>)| {
            ports(other) != ports(server) && other.hosts.overlaps(&server.hosts) && differs(limits, own)
        };
        if let Some((twin, _)) = servers.iter().zip(&all).take(number).find(may_be_same) {
            notes.add(Note::new(
                server.directive,
                format!(
                    "the server of line {} has the same hosts at another port and other limits. weir sees no ports, so the limits of \
                     both hold at both, and a zone that both use counts a request twice",
                    twin.directive.line
                ),
                "Load weir only in the listener of the port that needs the limits",
            ));
        }
    }
}

/// The locations of a block, in three groups: exact, prefixes with the longest first, regular expressions in their order.
fn locations<'a>(
    block: &'a [Directive],
    notes: &mut Notes,
) -> (Vec<Location<'a>>, Vec<Location<'a>>, Vec<Location<'a>>) {
    let (mut exact, mut prefixes, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
    for directive in block.iter().filter(|directive| directive.name == "location") {
        let first = directive.argument(0);
        let glued = ["^~", "~*", "~", "="].iter().find_map(|sign| Some((*sign, first.strip_prefix(sign)?)));
        let (sign, text) = match glued {
            Some((sign, "")) => (sign, directive.argument(1)),
            Some((sign, rest)) => (sign, rest),
            None => ("", first),
        };
        let of = |test, is_final| Location { test, is_final, directive, block: directive.inner() };
        match sign {
            "=" => exact.push(of(PathTest::Exact(text.to_owned()), true)),
            "~" | "~*" => match wholes(text, sign == "~*") {
                Ok(all) => regexes.extend(all.into_iter().map(|regex| of(PathTest::regex(regex), true))),
                Err(why) => notes.add(Note::new(
                    directive,
                    format!("weir cannot search for it ({why}), so its requests are taken for those of the next location"),
                    "Write a condition for these paths by hand",
                )),
            },
            // A name, to which no request comes by its path.
            "" if text.starts_with('@') => {}
            sign => prefixes.push(of(PathTest::Prefix(text.to_owned()), sign == "^~")),
        }
    }
    prefixes.sort_by_key(|location| core::cmp::Reverse(location.test.length()));
    (exact, prefixes, regexes)
}

/// A location with limits, and a folder whose file may be in it.
pub struct Limited<'a> {
    pub test: PathTest,
    pub folder: String,
    pub directive: &'a Directive,
}

/// The locations with limits of their own in a block, each with the folders that it names: the one around, and where its text begins.
pub fn limited(block: &[Directive]) -> Vec<Limited<'_>> {
    let mut found = Vec::new();
    let mut open = vec![(block, String::from("/"))];
    while let Some((block, around)) = open.pop() {
        let (exact, prefixes, regexes) = locations(block, &mut Notes::default());
        for Location { test, directive, block, .. } in [exact, prefixes, regexes].into_iter().flatten() {
            let text = test.beginning();
            let own = text.rsplit_once('/').map_or(String::from("/"), |(folder, _)| format!("{folder}/"));
            let inner = if let PathTest::Prefix(text) = &test {
                format!("{}/", text.trim_end_matches('/'))
            } else {
                own.clone()
            };
            open.push((block, inner));
            if block.iter().any(|directive| ["limit_req", "limit_conn"].contains(&directive.name.as_str())) {
                let mut folders = vec![String::from("/"), around.clone(), own];
                folders.sort();
                folders.dedup();
                found.extend(folders.into_iter().map(|folder| Limited {
                    test: test.clone(),
                    folder,
                    directive,
                }));
            }
        }
    }
    found
}

type Blocks<'a> = Vec<(Test, Level<'a>)>;

/// Adds the requests that a block answers itself, before nginx limits.
fn answered<'a>(
    block: &'a [Directive],
    level: &Level<'a>,
    guard: &Test,
    out: &mut Blocks<'a>,
    notes: &mut Notes,
) {
    for answer in answers::of_block(block) {
        let around = answer.inside.map_or_else(|| level.clone(), |block| level.inside(block, notes));
        let other = answer.status.and_then(|status| around.answered_by(status, notes));
        add(other.unwrap_or_else(Level::answering), guard.clone().and(answer.requests), out);
    }
}

/// Adds requests with their settings, and before them those that the place answers to which nginx sends them.
fn add<'a>(level: Level<'a>, requests: Test, out: &mut Blocks<'a>) {
    out.extend(level.gone.iter().map(|(gone, there)| (requests.clone().and(gone.clone()), there.clone())));
    let are_all_gone = level.gone.iter().any(|(gone, _)| gone.covers(&requests));
    out.extend((!are_all_gone).then_some((requests, level)));
}

/// Adds what a block does with its own requests.
fn own<'a>(block: &'a [Directive], level: Level<'a>, guard: Test, out: &mut Blocks<'a>, notes: &mut Notes) {
    // nginx answers before it reads what is in an internal location.
    if !level.internal {
        answered(block, &level, &guard, out, notes);
    }
    add(level.own(block, notes), guard, out);
}

/// Adds what handles the requests of a regular expression. Inside of one, nginx finds other expressions only.
fn of_regex<'a>(
    location: Location<'a>,
    around: &Level<'a>,
    guard: &Test,
    out: &mut Blocks<'a>,
    notes: &mut Notes,
) {
    let (block, guard) = (location.block, guard.clone().and(Test::path(location.test)));
    let level = around.inside(block, notes);
    let (exact, prefixes, regexes) = locations(block, notes);
    for unseen in exact.iter().chain(&prefixes).filter(|unseen| has_limits(unseen.block)) {
        let why = "nginx never finds it: inside of a location with a regular expression it looks for other expressions only";
        notes.add(Note::new(unseen.directive, why, "Write it beside the outer location if it is meant"));
    }
    for inner in regexes {
        of_regex(inner, &level, &guard, out, notes);
    }
    own(block, level, guard, out, notes);
}

/// Adds the locations that nginx finds before it tries the regular expressions of the block around: exact paths, what is inside of the
/// longest prefix, and the regular expressions of this block. `is_last`: nginx tries none of the block around.
fn at_once<'a>(
    block: &'a [Directive],
    level: &Level<'a>,
    guard: &Test,
    is_last: bool,
    out: &mut Blocks<'a>,
    notes: &mut Notes,
) {
    let (exact, prefixes, regexes) = locations(block, notes);
    // nginx sends the client of `/files` to `/files/`, if that is the path of a location with a proxy and nothing else is for the former.
    let texts = |all: &[Location<'a>]| all.iter().map(|of| of.test.clone()).collect::<Vec<_>>();
    let taken = [texts(&exact), texts(&prefixes)].concat();
    for location in exact.iter().chain(&prefixes) {
        let (PathTest::Exact(path) | PathTest::Prefix(path)) = &location.test else { continue };
        let Some(path) = path.strip_suffix('/').filter(|path| !path.is_empty()) else { continue };
        let is_taken = taken.contains(&PathTest::Exact(path.to_owned()))
            || taken.contains(&PathTest::Prefix(path.to_owned()));
        if !is_taken && location.block.iter().any(|directive| PROXIES.contains(&directive.name.as_str())) {
            let test = guard.clone().and(Test::path(PathTest::Exact(path.to_owned())));
            let inner = level.inside(location.block, notes);
            let is_internal = inner.internal;
            add(if is_internal { inner.own(location.block, notes) } else { Level::answering() }, test, out);
        }
    }
    for location in exact {
        let inner = level.inside(location.block, notes);
        own(location.block, inner, guard.clone().and(Test::path(location.test)), out, notes);
    }
    // The requests for which no expression of this block is tried, and those of the block around are.
    let mut without = Test::NEVER;
    for (number, location) in prefixes.iter().enumerate() {
        let longer = prefixes.iter().take(number).filter(|other| {
            matches!((&other.test, &location.test), (PathTest::Prefix(long), PathTest::Prefix(short)) if long.starts_with(short.as_str()))
        });
        let longer = Test::any_of(longer.map(|other| Test::path(other.test.clone())));
        let only = guard.clone().and(Test::path(location.test.clone())).and(longer.negated());
        let inner = level.inside(location.block, notes);
        at_once(location.block, &inner, &only, is_last && location.is_final, out, notes);
        if location.is_final && is_last {
            by_prefix(location.block, &inner, &only, true, out, notes);
            own(location.block, inner, only, out, notes);
        } else if location.is_final {
            without = without.or(only);
        }
    }
    let guard = guard.clone().and(without.negated());
    for location in regexes {
        of_regex(location, level, &guard, out, notes);
    }
}

/// Adds the locations that nginx finds by the longest prefix, if no regular expression matches. With `is_last`, those with `^~` are found
/// before.
fn by_prefix<'a>(
    block: &'a [Directive],
    level: &Level<'a>,
    guard: &Test,
    is_last: bool,
    out: &mut Blocks<'a>,
    notes: &mut Notes,
) {
    for location in locations(block, notes).1.into_iter().filter(|location| !(is_last && location.is_final)) {
        let only = guard.clone().and(Test::path(location.test));
        let inner = level.inside(location.block, notes);
        by_prefix(location.block, &inner, &only, false, out, notes);
        own(location.block, inner, only, out, notes);
    }
}
