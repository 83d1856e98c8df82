// SPDX-License-Identifier: Apache-2.0
//! The HTTP connection manager that has the limiter among its filters.

use std::collections::BTreeSet;

use super::Wired;
use super::picture::{bound, inside, is_local, targets};
use crate::check::conditions::leaves;
use crate::check::warning::code;
use crate::document::{Content, Node};
use crate::finding::{Finding, Severity};
use crate::source::{Carrier, Kind};
use weir::config::Config;
use weir::limit::Limit;
use weir::policy::Mode;
use weir::policy::cost::{Cost, CostSource};
use weir::policy::matcher::Condition;
use weir::policy::settle::{self, Case, Shown, TrueCost};
use weir::policy::subject::Source;
use weir::request::client_ip::{Network, Proxies};
use weir::time::Micros;

/// The connection manager around a limiter.
fn manager<'a>(carrier: &Carrier<'a>) -> Option<&'a Node> {
    let is_manager = |node: &&&Node| {
        node.get("http_filters").is_some()
            && ["stat_prefix", "route_config", "rds", "scoped_routes"]
                .iter()
                .any(|name| node.get(name).is_some())
    };
    carrier.around.iter().rev().find(is_manager).copied()
}

/// True if this node is around the limiter.
fn is_around(carrier: &Carrier<'_>, node: &Node) -> bool {
    carrier.around.iter().any(|around| core::ptr::eq(*around, node))
}

/// True if a filter before the limiter may verify the sender of a request, or if the file does not show the filters before it.
pub fn authenticates(carrier: &Carrier<'_>) -> bool {
    let Some(manager) = manager(carrier) else { return true };
    let mut before = manager.list("http_filters").iter().take_while(|filter| !is_around(carrier, filter));
    before.any(|filter| !inside(filter, &verifies).is_empty())
}

/// True if this filter may verify the sender of a request, and then write the result into headers. Also true if another file has the filter.
fn verifies(node: &Node) -> bool {
    let types = [
        "ExtAuthz",
        "JwtAuthentication",
        "BasicAuth",
        "ApiKeyAuth",
        "OAuth2",
        "ExternalProcessor",
        "Lua",
        "Wasm",
        "DynamicModuleFilter",
    ];
    types.contains(&node.type_name()) || node.get("config_discovery").is_some()
}

/// True if a filter besides weir may write the headers of requests.
pub fn writes_headers(manager: &Node) -> bool {
    let writes = |node: &Node| verifies(node) || node.type_name() == "HeaderMutation";
    let is_weir =
        |node: &Node| ["root_id", "filter_name"].iter().any(|name| node.text_of(name) == "weir.limiter");
    let mut others = manager.list("http_filters").iter().filter(|of| inside(of, &is_weir).is_empty());
    manager.get("early_header_mutation_extensions").is_some()
        || others.any(|filter| !inside(filter, &writes).is_empty())
}

/// The connection manager around a limiter, and the filter of it that has the limiter.
pub fn chain<'a>(carrier: &Carrier<'a>) -> Option<(&'a Node, &'a Node)> {
    let manager = manager(carrier)?;
    Some((manager, manager.list("http_filters").iter().find(|filter| is_around(carrier, filter))?))
}

/// True if Envoy uses a limiter now and for all routes. A dump also has listeners that it replaces, or that it has not begun to use.
pub fn is_in_force(carrier: &Carrier<'_>) -> bool {
    let is_state = |node: &Node| {
        let states = ["warming_state", "draining_state", "error_state"];
        states.iter().any(|name| node.get(name).is_some_and(|state| is_around(carrier, state)))
    };
    !carrier.around.iter().any(|node| node.is_true("disabled") || is_state(node))
}

pub fn warnings(wired: &Wired<'_>, found: &mut Vec<Finding>) {
    let Some(manager) = manager(wired.carrier) else { return };
    address(wired, manager, found);
    underscores(wired, manager, found);
    appended(wired, manager, found);
    idle(wired, manager, found);
    buffer(wired, found);
    trailers(wired, manager, found);
    continues(wired, manager, found);
    preflights(wired, manager, found);
}

/// The listener around the limiter, if the file shows it.
fn listener<'a>(wired: &Wired<'a>) -> Option<&'a Node> {
    wired.carrier.around.iter().copied().find(|node| node.get("filter_chains").is_some())
}

/// A cors filter behind weir: weir counts what that would answer.
fn preflights(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    let is_cors = |node: &Node| node.type_name() == "Cors";
    let filters = manager.list("http_filters").iter();
    let mut behind = filters.skip_while(|filter| !is_around(wired.carrier, filter));
    if let Some(cors) = behind.find(|filter| !inside(filter, &is_cors).is_empty()) {
        let reason = "weir is before it, so preflight requests use up limits, and a browser shows no rejection to the page";
        let advice = "Move the cors filter before weir";
        found.push(Finding::warning(code::COUNTED_PREFLIGHTS, cors.place, "http_filters", reason, advice));
    }
}

fn address(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    let is_set = |name: &&str| {
        manager
            .get(name)
            .is_some_and(|node| !matches!(&node.content, Content::Scalar(value) if value.as_u64() == Some(0)))
    };
    let set = ["xff_num_trusted_hops", "original_ip_detection_extensions"].into_iter().find(is_set);
    if let Some(name) = set.filter(|_| !wired.config.trust.is_connection()) {
        let reason = "Envoy skips the proxies in front of it already, and `client_address` of weir skips as many hops again: the client is then \
                      a wrong address, often one for all";
        let advice = "Remove `client_address` from weir's configuration, or this from Envoy's";
        found.push(Finding::warning(code::TRUSTED_TWICE, manager.place_of(name), name, reason, advice));
    }
    // An operator who sets one of these knows about it.
    let knows = manager.is_true("use_remote_address") || set.is_some();
    let Some(listener) = listener(wired) else { return };
    let is_reached = bound(listener).is_some_and(|address| !is_local(address));
    // A sidecar says in which direction its traffic goes.
    let direction = listener.text_of("traffic_direction");
    if knows || !is_reached || direction == "OUTBOUND" || !reads_address(wired.config) {
        return;
    }
    let reason = "Envoy takes the client's address from the X-Forwarded-For that the client sends, so a client chooses its address \
                  and with it its limit";
    let advice = "Write `use_remote_address: true`; behind another proxy, `xff_num_trusted_hops` too";
    let place = manager
        .field("use_remote_address")
        .map_or_else(|| manager.place_of("http_filters"), |(place, _)| place);
    let mut finding =
        Finding::warning(code::CLIENT_CHOSEN_ADDRESS, place, "use_remote_address", reason, advice);
    if direction == "INBOUND" {
        // Behind a gateway, the address of the connection would be the gateway's.
        finding.severity = Severity::Note;
        finding.reason = CHOSEN_IN_SIDECAR.into();
        finding.advice = "Let only gateways reach the sidecar, or count another subject".into();
    }
    found.push(finding);
}

/// The consequence of the `use_remote_address: false` of Istio's sidecars.
pub const CHOSEN_IN_SIDECAR: &str = "a sidecar takes the client's address from X-Forwarded-For, which a gateway writes; who reaches the sidecar \
                                     directly chooses an address, and with it a limit";

/// Headers that an upstream may read under another name.
fn underscores(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    const FIELD: &str = "headers_with_underscores_action";
    let options = manager.get("common_http_protocol_options");
    let action = options.map(|options| options.text_of(FIELD)).unwrap_or_default();
    if listener(wired).is_none() || matches!(action, "REJECT_REQUEST" | "DROP_HEADER") {
        return;
    }
    let Some(header) = header_with_hyphen(wired.config) else { return };
    let reason = format!(
        "a client may send `{}` beside `{header}`, and upstreams that name headers as CGI does read it in place of the other",
        header.replace('-', "_")
    );
    let advice = "Write `common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}`";
    let place = manager.place_of("http_filters");
    found.push(Finding::warning(code::UNDERSCORE_HEADERS, place, FIELD, reason, advice));
}

/// A listener that keeps less of a body than a policy may read.
fn buffer(wired: &Wired<'_>, found: &mut Vec<Finding>) {
    const FIELD: &str = "per_connection_buffer_limit_bytes";
    let Some(wanted) = &wired.config.request_body.wanted else { return };
    let Some(listener) = listener(wired) else { return };
    let kept = listener.get(FIELD).and_then(Node::text_or_number).and_then(|kept| kept.parse::<u64>().ok());
    if let Some(kept) = kept.filter(|kept| *kept < wanted.max_bytes() as u64) {
        let reason = format!(
            "Envoy stops reading from a client after {kept} bytes, and a policy waits for bodies of up to {} (`request_body.max_bytes`): \
             requests with such a body get 408",
            wanted.max_bytes()
        );
        let advice = "Write a larger number, or a smaller `max_bytes`";
        found.push(Finding::warning(code::SMALL_BUFFER, listener.place_of(FIELD), FIELD, reason, advice));
    }
}

/// A chain to which Envoy itself appends this machine's address.
fn appended(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    let appends = manager.is_true("use_remote_address") && !manager.is_true("skip_xff_append");
    // Only the connection is trusted, so the address that Envoy appends is taken for the client's.
    let of_machine = ["127.0.0.0/8", "::1"].map(Network::parse);
    let is_of_machine = |network: &Network| {
        of_machine.iter().flatten().any(|local| network.bits().starts_with(&local.bits()))
    };
    let leads_to_itself = match wired.config.trust.proxies() {
        Proxies::Hops(hops) => *hops == 1,
        Proxies::Networks(networks) => !networks.is_empty() && networks.iter().all(is_of_machine),
    };
    if listener(wired).and_then(bound).is_some_and(is_local) && appends && leads_to_itself {
        let reason = "Envoy appends this machine's own address to the chain of a connection from this machine, and weir takes that for \
                      the client's: all clients are one";
        let advice = "Write `xff_num_trusted_hops: 1` here, and remove `client_address` from weir's configuration; or write \
                      `trusted_hops: 2`";
        let place = manager.place_of("use_remote_address");
        found.push(Finding::warning(code::OWN_ADDRESS, place, "use_remote_address", reason, advice));
    }
}

/// True if any decision depends on the client's address.
pub fn reads_address(config: &Config) -> bool {
    sources(config).any(|part| matches!(part, Source::ClientAddress { .. }))
        || conditions(config).any(|condition| matches!(condition, Condition::ClientAddress(_)))
}

/// A header with a hyphen in its name that decides about anything.
fn header_with_hyphen(config: &Config) -> Option<&str> {
    let parts = sources(config).flat_map(|part| match part {
        Source::Header(name) => vec![name.as_str()],
        Source::Credential(credential) => credential.headers().collect(),
        _ => Vec::new(),
    });
    let conditions = conditions(config).filter_map(|condition| match condition {
        Condition::Header(name, _) => Some(name.as_str()),
        _ => None,
    });
    let costs = config
        .policies
        .iter()
        .flat_map(|policy| policy.costs.iter().map(|(_, cost)| cost).chain([&policy.cost]));
    let costs = costs.filter_map(|cost| match cost {
        Cost::Stated(CostSource::Header(name), _) => Some(name.as_str()),
        _ => None,
    });
    parts.chain(conditions).chain(costs).find(|name| name.contains('-'))
}

/// The sources of the values that the policies take.
fn sources(config: &Config) -> impl Iterator<Item = &Source> {
    let policies = config.policies.iter();
    let parts = policies.flat_map(|policy| policy.parts().map(|(_, part)| part).chain(&policy.tiers.by));
    parts.map(|part| &part.source)
}

/// The single conditions of the policies and lists.
fn conditions(config: &Config) -> impl Iterator<Item = &Condition> {
    let policies = || config.policies.iter();
    let lists = [&config.deny, &config.exempt].into_iter();
    let lists = lists.chain(policies().flat_map(|policy| [&policy.deny, &policy.exempt]));
    let conditions = lists.flat_map(|list| list.conditions()).chain(policies().map(|policy| &policy.matcher));
    let conditions =
        conditions.chain(policies().flat_map(|policy| policy.costs.iter().map(|(when, _)| when)));
    let conditions =
        conditions.chain(policies().flat_map(|policy| policy.priority.iter().map(|(when, _)| when)));
    conditions.flat_map(leaves)
}

/// The longest time for which weir holds a request.
pub fn longest_wait(config: &Config) -> Micros {
    let enforced = || config.policies.iter().filter(|policy| policy.mode == Mode::Enforce);
    let tiers = || enforced().flat_map(|policy| &policy.tiers.tiers);
    let delays = tiers().flat_map(|tier| tier.plan.limits()).filter_map(|limit| match limit {
        Limit::LeakyBucket(bucket) => Some(bucket.max_delay()),
        _ => None,
    });
    let waits = tiers().flat_map(|tier| tier.queues.iter().flatten()).map(|queue| queue.max_wait);
    delays.chain(waits).max().unwrap_or_default()
}

fn idle(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    let longest = longest_wait(wired.config);
    let field = manager.field("stream_idle_timeout");
    let time = field.and_then(|(_, value)| duration(value.text()?));
    let place = field.map_or_else(|| manager.place_of("http_filters"), |(place, _)| place);
    let mut warn = |reason: String, advice: &str| {
        let finding = Finding::warning(code::IDLE_TIMEOUT, place, "stream_idle_timeout", reason, advice);
        found.push(finding);
    };
    match (field, time) {
        (_, Some(time)) if time > Micros::ZERO && time <= longest => warn(
            format!(
                "Envoy ends each request that is idle for {} ms, and weir holds requests for up to {} ms (`max_delay`, `max_wait`)",
                time.as_millis_ceil(),
                longest.as_millis_ceil()
            ),
            "Write a longer time, or a shorter `max_delay` or `max_wait`",
        ),
        (None, _) | (_, Some(Micros::ZERO)) if wired.carrier.kind == Kind::Wasm => {
            let until = if field.is_some() { "for ever" } else { "for 5 minutes" };
            warn(
                format!("if weir traps, the requests paused in that worker wait {until}"),
                "Write `stream_idle_timeout: 30s`: more than the `timeout` of the routes and than every `max_delay` and `max_wait`",
            );
        }
        _ => {}
    }
}

/// Clusters of upstreams that drop the trailers from which costs are read.
fn trailers(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    let is_trailer =
        |case: &Case| matches!(&case.cost, TrueCost::Shown(Shown { source: settle::Source::Trailer(_), .. }));
    if !wired.config.policies.iter().any(|policy| policy.settle.cases.iter().any(is_trailer)) {
        return;
    }
    let routes = inside(manager, &|node| node.get("route").is_some());
    let names: BTreeSet<_> =
        routes.iter().filter_map(|node| node.get("route")).flat_map(targets).map(|(_, name)| name).collect();
    for cluster in names.into_iter().filter_map(|name| wired.own.cluster(name)) {
        let passes = |node: &Node| {
            ["http2_protocol_options", "http3_protocol_options"].iter().any(|name| node.get(name).is_some())
        };
        let is_http2 = passes(cluster)
            || !inside(cluster, &|node| node.get("explicit_http_config").is_some_and(passes)).is_empty();
        if is_http2 || !inside(cluster, &|node| node.is_true("enable_trailers")).is_empty() {
            continue;
        }
        let reason = format!(
            "Envoy drops the trailers of HTTP/1.1 from cluster {:?}, so costs by `trailer` are not known",
            cluster.text_of("name")
        );
        let advice = "Write `enable_trailers: true` in its `http_protocol_options`: see envoy/weir.yaml";
        let place = cluster.place_of("name");
        found.push(Finding::warning(code::TRAILERS_DROPPED, place, "enable_trailers", reason, advice));
    }
}

/// Clients that send a body only after the upstream has the request.
fn continues(wired: &Wired<'_>, manager: &Node, found: &mut Vec<Finding>) {
    const FIELD: &str = "proxy_100_continue";
    if manager.is_true(FIELD) && wired.config.request_body.wanted.is_some() {
        let reason = "a client that sends `expect: 100-continue` waits for the upstream before it sends its body, so weir cannot read that";
        let advice = "Remove it: then Envoy itself lets such clients go on";
        found.push(Finding::warning(code::UNREAD_BODIES, manager.place_of(FIELD), FIELD, reason, advice));
    }
}

/// A duration as protobuf's JSON has it: `30s`, `0.25s`.
fn duration(text: &str) -> Option<Micros> {
    let number = text.strip_suffix('s')?;
    let (seconds, fraction) = number.split_once('.').unwrap_or((number, ""));
    let micros = format!("{fraction:0<6}");
    let micros: u64 = micros.get(..6)?.parse().ok()?;
    Some(Micros::from_secs(seconds.parse().ok()?).plus(Micros(micros)))
}
