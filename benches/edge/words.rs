// SPDX-License-Identifier: Apache-2.0
//! The costs in words, for readers without pictures: `costs.md`.

use crate::MANY;
use crate::report::{Report, Row};
use crate::service::RATELIMIT;
use crate::stats::Estimate;
use crate::targets;

const LUA: &str = "nginx + lua";

/// The ways that have a sentence each, and what they are.
const WAYS: [(&str, &str); 8] = [
    ("weir native exact", "Redis decides each request; weir is a dynamic module"),
    ("weir exact", "the same; weir is a wasm plugin"),
    ("weir native leased", "requests are taken in advance; dynamic module"),
    ("weir leased", "the same; wasm"),
    ("weir native denied", "every request is rejected; dynamic module"),
    ("weir denied", "the same; wasm"),
    ("weir native idle", "no policy matches; dynamic module"),
    ("envoy idle wasm", "the same; wasm"),
];

/// The page.
pub fn page(report: &Report) -> String {
    let mut page = String::from(
        "# What a limit costs, in words\n\n\
         `make bench` writes this page. [README.md](README.md) says how to read it. *In total* is the CPU time of the proxy, of \
         Redis and of a rate-limit service for one request. *Added* is the difference to the same proxy without a limit. Each figure is a median; in \
         parentheses is its 95 % interval.\n\n",
    );
    for line in report.conditions().lines() {
        page += &format!("- {line}\n");
    }
    for (subjects, title) in [(MANY, "10,000 subjects"), (1, "One hot subject")] {
        page += &format!("\n## {title}, 32 connections: CPU time\n\n");
        page += &lua(report, subjects);
        for (name, what) in WAYS {
            page += &cpu(report, name, what, subjects);
        }
        for name in report.names().into_iter().filter(|name| name.starts_with(RATELIMIT)) {
            page += &cpu(report, name, "Envoy asks a rate-limit service of the reader", subjects);
        }
    }
    for (subjects, title) in [(MANY, "10,000 subjects"), (1, "One hot subject")] {
        page += &format!("\n## {title}, 1 connection: median latency\n\n");
        let services = report.names().into_iter().filter(|name| name.starts_with(RATELIMIT));
        for name in ["weir native exact", "weir exact", LUA].into_iter().chain(services) {
            page += &latency(report, name, subjects);
        }
    }
    page
}

fn lua(report: &Report, subjects: u32) -> String {
    let sentence = || {
        let (plain, way) = (report.row("nginx plain", 32, subjects)?, report.row(LUA, 32, subjects)?);
        let (envoy, added) =
            (report.row("envoy plain", 32, subjects)?, targets::added_cpu(report, LUA, 32, subjects)?);
        Some(format!(
            "Without a limit, a request costs {:.1} µs in plain Envoy and {:.1} µs in plain nginx. `{LUA}` costs {} in total, and \
             adds {} µs.\n\n",
            envoy.median.cpu(),
            plain.median.cpu(),
            total(&way),
            shown(&added, 1),
        ))
    };
    sentence().unwrap_or_else(|| "The plain proxies or nginx + Lua were not measured.\n\n".into())
}

fn cpu(report: &Report, name: &str, what: &str, subjects: u32) -> String {
    let sentence = || {
        let way = report.row(name, 32, subjects)?;
        let added = targets::added_cpu(report, name, 32, subjects)?;
        let mut text = format!("{} in total, and adds {} µs", total(&way), shown(&added, 1));
        if let Some(ratio) = targets::cpu_over_lua(report, name, 32, subjects) {
            text += &format!(": {} of what `{LUA}` adds", shown(&ratio, 2));
        }
        if let Some(lua) = report.row(LUA, 32, subjects) {
            text += &format!(". In total it is {:.1} times `{LUA}`", way.median.cpu() / lua.median.cpu());
        }
        Some(text)
    };
    let text = sentence().map_or("was not measured".into(), |text| format!("costs {text}"));
    format!("- `{name}` ({what}) {text}.\n")
}

fn latency(report: &Report, name: &str, subjects: u32) -> String {
    let sentence = || {
        let way = report.row(name, 1, subjects)?;
        let plain = report.row(if name == LUA { "nginx plain" } else { "envoy plain" }, 1, subjects)?;
        let (is, plain) = (way.median.p50_us, plain.median.p50_us);
        let mut text = format!(
            "takes {is:.0} µs in total (± {:.0}), {:.0} more than the plain proxy",
            way.p50_spread,
            is - plain
        );
        if name != LUA {
            let ratio = targets::p50_over_lua(report, name, subjects)?;
            text += &format!(": {} of what `{LUA}` adds", shown(&ratio, 2));
        }
        Some(text)
    };
    format!("- `{name}` {}.\n", sentence().unwrap_or_else(|| "was not measured".into()))
}

/// Half of the rounds are within the spread.
fn total(row: &Row) -> String {
    let Row { median, cpu_spread, .. } = row;
    let (proxy, redis, service) = (median.proxy_us, median.redis_us, median.service_us);
    let service = if service > 0.0 { format!(", {service:.1} in the service") } else { String::new() };
    format!(
        "{:.1} µs (± {cpu_spread:.1}; {proxy:.1} in the proxy{service} and {redis:.1} in Redis)",
        median.cpu()
    )
}

fn shown(estimate: &Estimate, digits: usize) -> String {
    let Estimate { is, low, high, .. } = estimate;
    format!("{is:.digits$} ({low:.digits$} to {high:.digits$})")
}
