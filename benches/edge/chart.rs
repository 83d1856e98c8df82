// SPDX-License-Identifier: Apache-2.0
//! The charts, as SVG: horizontal bars, readable on light and dark backgrounds, with the reader's own fonts.

use std::fmt::Write;

use crate::MANY;
use crate::report::Report;

const WIDTH: usize = 760;
const LEFT: usize = 170;
const ROW: usize = 22;
/// Space to the right of the longest bar, for its figures.
const RIGHT: usize = 110;

/// One bar of two parts, in microseconds.
struct Bar {
    name: &'static str,
    parts: [f64; 2],
    label: String,
}

struct Panel {
    title: &'static str,
    bars: Vec<Bar>,
    /// The value that fills the width.
    longest: f64,
}

impl Panel {
    fn new(title: &'static str, bars: impl Iterator<Item = Bar>) -> Self {
        let bars: Vec<Bar> = bars.collect();
        let longest = bars.iter().map(|bar| bar.parts.iter().sum()).fold(1.0, f64::max);
        Self { title, bars, longest }
    }
}

/// CPU time per request, proxy and Redis.
pub fn cpu(report: &Report) -> String {
    let panel = |subjects, title| {
        let bars = report.names().into_iter().filter_map(|name| {
            let figures = report.row(name, 32, subjects)?.median;
            // A service counts as what is behind the proxy.
            let (proxy, redis) = (figures.proxy_us, figures.redis_us + figures.service_us);
            let label = if redis < 0.05 { format!("{proxy:.1}") } else { format!("{proxy:.1} + {redis:.1}") };
            Some(Bar { name, parts: [proxy, redis], label })
        });
        Panel::new(title, bars)
    };
    let mut panels = [panel(MANY, "10,000 subjects"), panel(1, "one hot subject")];
    // The same scale for both panels, because readers compare them.
    let longest = panels[0].longest.max(panels[1].longest);
    for panel in &mut panels {
        panel.longest = longest;
    }
    draw("CPU time per request, µs, 32 connections", ["proxy", "Redis"], &panels)
}

/// The median latency, and the 99th percentile behind it.
pub fn latency(report: &Report) -> String {
    let panel = |connections, title| {
        let bars = report.names().into_iter().filter_map(|name| {
            let figures = report.row(name, connections, MANY)?.median;
            let (p50, p99) = (figures.p50_us, figures.p99_us);
            Some(Bar { name, parts: [p50, p99 - p50], label: format!("{p50:.0} / {p99:.0}") })
        });
        Panel::new(title, bars)
    };
    draw(
        "Latency, µs, 10,000 subjects",
        ["p50", "p99"],
        &[panel(1, "1 connection"), panel(32, "32 connections")],
    )
}

fn draw(title: &str, legend: [&str; 2], panels: &[Panel]) -> String {
    let mut body = String::new();
    let mut text = |x: usize, y: usize, class: &str, anchor: &str, text: &str| {
        let _ =
            writeln!(body, r#"<text x="{x}" y="{y}" class="{class}" text-anchor="{anchor}">{text}</text>"#);
    };
    text(0, 16, "title", "start", title);
    text(WIDTH - 118, 16, "", "start", legend[0]);
    text(WIDTH - 48, 16, "", "start", legend[1]);
    let (mut marks, mut y) = (String::new(), 16);
    for (class, x) in [("a", WIDTH - 134), ("b", WIDTH - 64)] {
        let _ = writeln!(marks, r#"<rect x="{x}" y="6" width="12" height="12" class="{class}"/>"#);
    }
    for Panel { title, bars, longest } in panels {
        y += 30;
        text(0, y, "panel", "start", title);
        let scale = (WIDTH - LEFT - RIGHT) as f64 / longest;
        for bar in bars {
            y += ROW;
            let class = if bar.name.starts_with("weir") { "ours" } else { "" };
            text(LEFT - 10, y, class, "end", bar.name);
            let [first, second] = bar.parts.map(|part| part.max(0.0) * scale);
            let (left, top) = (LEFT as f64, y - 12);
            for (class, x, width) in [("a", left, first), ("b", left + first, second)] {
                let _ = writeln!(
                    marks,
                    r#"<rect x="{x:.1}" y="{top}" width="{width:.1}" height="15" class="{class}"/>"#
                );
            }
            text((left + first + second) as usize + 6, y, "", "start", &bar.label);
        }
    }
    let height = y + 12;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="{title}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #24292f }}
.title, .ours {{ font-weight: 600 }}
.panel {{ font-style: italic }}
.a {{ fill: #2f81c7 }}
.b {{ fill: #e0873a }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #d0d7de }} }}
</style>
{marks}{body}</svg>
"#
    )
}
