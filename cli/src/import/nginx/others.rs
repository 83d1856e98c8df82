// SPDX-License-Identifier: Apache-2.0
//! What nginx's configuration says about limits that weir does not do, or does elsewhere.

use super::super::notes::{Note, Notes};
use super::syntax::{Block, Directive};

const LUA: &str = "docs/migration.md shows lua-resty-limit-traffic beside weir; anything else is a filter of Envoy (Lua, ext_authz)";

/// Adds a note for each directive that may limit and is not imported.
pub fn note(directives: &[Directive], notes: &mut Notes) {
    let limits = has_limits(directives);
    for directive in directives {
        walk(directive, None, limits, notes);
    }
}

fn has_limits(directives: &[Directive]) -> bool {
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
        "limit_rate" | "limit_rate_after" | "proxy_limit_rate" => {
            Some(("weir does not slow responses down", "Use Envoy's filter bandwidth_limit"))
        }
        "limit_req_log_level" | "limit_conn_log_level" => Some((
            "weir writes no log line for each rejection",
            "Use the metrics, the journal, or emit_filter_state in the access log",
        )),
        "limit_zone" => {
            Some(("nginx 1.19 removed it", "Write limit_conn_zone in its place, and import again"))
        }
        "real_ip_header" | "set_real_ip_from" if !around_is("http") && !around_is("server") => {
            Some(("weir has one way to find the client's address, for all requests", "Check client_address"))
        }
        "keyval" | "keyval_zone" => {
            Some(("weir does not read nginx's key-value zones", "Use overrides or bans of weir"))
        }
        "js_access" | "js_preread" | "perl" => Some(("a program decides here, which is not read", LUA)),
        "limit_req_zone" | "limit_conn_zone" if !around_is("http") && around.is_some() => {
            Some(("nginx allows it in the block http only", "Move it there"))
        }
        "limit_req" | "limit_conn" if around.is_some_and(is_named) => Some((
            "limits of a named location are not imported, because weir sees no files and no answers, by which nginx chooses it",
            "Write a policy for the paths that come to it",
        )),
        "return" if around_is("if") && limits => Some((
            "nginx answers these requests before it counts them, and weir counts them",
            "If that matters, add the condition to `exempt`",
        )),
        "rewrite" if limits && !around_is("stream") => Some((
            "nginx limits by the location of the new path, and weir sees the path that the client sends",
            "If the two have different limits, add the old path to the policy's match",
        )),
        _ if name.contains("_by_lua") || name.ends_with("_by_lua_block") => Some(("Lua is not read", LUA)),
        _ => None,
    };
    if let Some((why, instead)) = said {
        // The text of a program is long.
        let mut short = directive.clone();
        if name.contains("_by_lua") && !name.ends_with("_file") {
            short.arguments.clear();
        }
        notes.add(Note::new(&short, why, instead));
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
