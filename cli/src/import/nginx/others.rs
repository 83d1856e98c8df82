// SPDX-License-Identifier: Apache-2.0
//! The limits in nginx's configuration that weir does not support, or sets elsewhere.

use std::collections::HashSet;

use super::super::notes::{Note, Notes};
use super::limits::Zone;
use super::locations::Server;
use super::syntax::{Block, Directive};
use super::{answers, limits};

const LUA: &str = "docs/migration.md shows lua-resty-limit-traffic beside weir; anything else is a filter of Envoy (Lua, ext_authz)";

pub const MAIN: &str = "Import nginx's main file, which includes the others, or name all files";

/// Adds a note for each directive that may limit and is not imported.
pub fn note(directives: &[Directive], notes: &mut Notes) {
    let limits = has_limits(directives);
    for directive in directives {
        walk(directive, None, limits, notes);
    }
}

/// Adds a note for each limit that no request of these servers has, and for each zone that no limit names.
pub fn note_unused(
    (directives, is_main): (&[Directive], bool),
    zones: &[Zone<'_>],
    servers: &[Server<'_>],
    notes: &mut Notes,
) {
    let used = servers.iter().flat_map(|server| &server.blocks).flat_map(|(_, level)| level.rules());
    let used: HashSet<*const Directive> = used.map(|rule| core::ptr::from_ref(rule.directive)).collect();
    let mut named: HashSet<&str> = HashSet::new();
    let mut open: Vec<(&Directive, bool)> = directives.iter().map(|directive| (directive, false)).collect();
    while let Some((directive, is_named)) = open.pop() {
        let is_limit = ["limit_req", "limit_conn"].contains(&directive.name.as_str());
        if is_limit {
            named.insert(directive.setting("zone").unwrap_or(directive.argument(0)));
        }
        if is_limit && limits::is_read(directive) && !used.contains(&core::ptr::from_ref(directive)) {
            let (why, instead) = if servers.is_empty() {
                ("these files have no server, so it is not imported", MAIN)
            } else if is_named {
                (
                    "limits of a named location are imported where `try_files` leads to it only: weir sees no answers, by which nginx chooses \
                     it otherwise",
                    "Write a policy for the paths that come to it",
                )
            } else {
                ("no request that weir can tell comes to it, so it is not imported", "")
            };
            notes.add(Note::new(directive, why, instead));
        }
        if directive.name != "stream" {
            open.extend(directive.inner().iter().map(|inner| (inner, self::is_named(directive))));
        }
    }
    for zone in zones.iter().filter(|zone| zone.is_read && !named.contains(zone.name)) {
        let why = "no limit_req or limit_conn of these files names this zone, so it is not imported";
        notes.add(Note::new(zone.directive, why, if is_main { "" } else { MAIN }));
    }
}

pub fn has_limits(directives: &[Directive]) -> bool {
    directives.iter().any(|directive| {
        ["limit_req", "limit_conn"].contains(&directive.name.as_str()) || has_limits(directive.inner())
    })
}

/// `location @name`, to which other locations send requests.
fn is_named(directive: &Directive) -> bool {
    directive.name == "location" && directive.argument(0).starts_with('@')
}

fn walk(directive: &Directive, around: Option<&Directive>, limits: bool, notes: &mut Notes) {
    let name = directive.name.as_str();
    // A file without the block http is included by one.
    let around_is = |name: &str| around.map_or("http", |around| around.name.as_str()) == name;
    let said = match name {
        // Without a rate it is off.
        _ if name.contains("limit_rate") && directive.argument(0) == "0" => None,
        _ if name.contains("limit_rate") || name == "set" && directive.argument(0) == "$limit_rate" => {
            Some(("weir does not slow responses down", "Use Envoy's filter bandwidth_limit"))
        }
        "limit_req_log_level" | "limit_conn_log_level" => Some((
            "weir writes no log line for each rejection",
            "Use the metrics, the journal, or emit_filter_state in the access log",
        )),
        "limit_zone" => {
            Some(("nginx 1.19 removed it", "Write limit_conn_zone in its place, and import again"))
        }
        "merge_slashes" if limits && directive.argument(0) == "off" => {
            Some(("weir reads `//login` as `/login`, too, and its policies apply if one of both matches", ""))
        }
        "recursive_error_pages" if limits && directive.argument(0) == "on" => Some((
            "nginx follows each error_page from here, and weir the first one, so limits behind a second one do not apply",
            "Write a policy for the paths that come to it",
        )),
        "underscores_in_headers" | "ignore_invalid_headers"
            if limits && (directive.argument(0) == "on") == (name == "underscores_in_headers") =>
        {
            Some((
                "with it `$http_a_b` is also the header `a_b`, and weir reads `a-b` only",
                "If a key or a map has such a header, let Envoy drop `a_b` (headers_with_underscores_action)",
            ))
        }
        "real_ip_header" | "set_real_ip_from" if !around_is("http") && !around_is("server") => {
            Some(("weir has one way to find the client's address, for all requests", "Check client_address"))
        }
        "keyval" | "keyval_zone" => {
            Some(("weir does not read nginx's key-value zones", "Use overrides or bans of weir"))
        }
        "js_access" | "js_content" | "js_preread" | "perl" => {
            Some(("a program decides here, which is not read", LUA))
        }
        "limit_req_zone" | "limit_conn_zone"
            if !around_is("http") && !around_is("stream") && around.is_some() =>
        {
            Some(("nginx allows it in the block http only", "Move it there"))
        }
        "if" if limits && answers::of(directive).is_empty() && answers::answers(directive.inner()) => Some((
            "nginx answers these requests before it counts them, and weir counts them",
            "If that matters, add the condition to `exempt`",
        )),
        "server"
            if around_is("upstream") && directive.setting("max_conns").is_some_and(|most| most != "0") =>
        {
            Some(("weir does not count connections to upstreams", "Use circuit_breakers of Envoy's cluster"))
        }
        "rewrite" if limits && answers::redirects(directive) => {
            let is_read = !answers::of(directive).is_empty();
            (!is_read).then_some((
                "weir cannot search for it, so the requests that nginx redirects count",
                "If that matters, add the paths to `exempt`",
            ))
        }
        // With `break`, nginx looks for no other location.
        "rewrite" if limits && around_is("location") && directive.argument(2) == "break" => None,
        "rewrite" if limits && !around_is("stream") => Some((
            "nginx limits by the location of the new path, and weir sees the path that the client sends",
            "If the two have different limits, add the old path to the policy's match",
        )),
        _ if name.contains("limit")
            && !limits::DIRECTIVES.contains(&name)
            && !["limit_except", "worker_rlimit_nofile", "worker_rlimit_core", "lua_regex_match_limit"]
                .contains(&name)
            && around.is_none_or(|around| {
                !["map", "geo", "types", "split_clients"].contains(&around.name.as_str())
            }) =>
        {
            Some((
                "nginx itself has no such directive, and weir does not read it",
                "Write the policy by hand",
            ))
        }
        _ if name.contains("_by_lua") || name.ends_with("_by_lua_block") => Some(("Lua is not read", LUA)),
        _ => None,
    };
    if let Some((why, instead)) = said {
        // A Lua block would fill the screen: the note leaves out its text.
        let mut short = directive.clone();
        if name.contains("_by_lua") && !name.ends_with("_file") {
            short.arguments.clear();
        }
        notes.add(Note::new(&short, why, instead));
    }
    if limits && around.is_some_and(|around| answers::leaves_unseen(directive, around.inner())) {
        let why =
            "weir cannot tell which requests leave here, so requests that nginx answers behind it count";
        notes.add(Note::new(directive, why, "If that matters, add their condition to `exempt`"));
    }
    if name == "stream" && has_limits(directive.inner()) {
        let instead = "Use Envoy's network filter connection_limit or local_ratelimit";
        notes.add(Note::new(directive, "weir limits HTTP, not connections of TCP", instead));
    }
    if matches!(directive.block, Some(Block::Directives(_)))
        && !["map", "geo", "types", "split_clients"].contains(&name)
    {
        directive.inner().iter().for_each(|inner| walk(inner, Some(directive), limits, notes));
    }
}
