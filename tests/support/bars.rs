// SPDX-License-Identifier: Apache-2.0
//! The charts of `docs/bench`, as SVG: horizontal bars with an axis and its unit, readable on light and dark backgrounds, with the
//! reader's own fonts. Each is drawn from the file with the measured figures, so it shows nothing else.

// The benchmark does not draw all of them.

use std::fmt::Write;

use serde_json::Value;

use crate::table::grouped;

/// A phone shows it almost in full size, so that no bar is cut and each letter can be read.
const WIDTH: f64 = 400.0;
/// The height of a bar; of the line of its name, which is above it; and of the space below it.
const BAR: f64 = 10.0;
const NAME: f64 = 18.0;
const GAP: f64 = 8.0;
/// Space beside the bars, for half of the first and the last label of the axis.
const LEFT: f64 = 4.0;
const RIGHT: f64 = 30.0;
/// The width of a letter, which is a little too much for most.
const LETTER: f64 = 7.2;

/// The names of a bar's parts; `are_added`: they are added up, otherwise they are below each other.
struct Parts {
    legend: &'static [&'static str],
    are_added: bool,
}

struct Row {
    name: String,
    values: Vec<f64>,
    /// The 95 % interval of the only value.
    interval: Option<(f64, f64)>,
    label: String,
}

struct Panel {
    title: String,
    rows: Vec<Row>,
}

/// A chart of what a limit adds to one request, in four set-ups: from `services.json`, where all were measured in one run.
pub fn added(services: &Value) -> String {
    const ROWS: [(&str, &str); 4] = [
        ("weir native november", "weir, native"),
        ("nginx + lua november", "nginx + Lua"),
        ("weir wasm november", "weir, wasm"),
        ("envoy + envoyproxy/ratelimit", "Envoy + envoyproxy/ratelimit"),
    ];
    let row = |(name, shown): (&str, &str)| {
        let added = &case(services, name, 32, 10_000)?["cpu_us"]["added"];
        let [is, low, high] = ["median", "low", "high"].map(|field| added[field].as_f64());
        let label = format!("{} ({} to {})", is?, low?, high?);
        Some(Row { name: shown.to_owned(), values: vec![is?], interval: Some((low?, high?)), label })
    };
    let panel = Panel { title: String::new(), rows: ROWS.into_iter().filter_map(row).collect() };
    let title = "CPU time that a limit adds to one request";
    draw(
        title,
        "proxy, Redis and service; the lines are 95 % intervals",
        &Parts { legend: &[], are_added: true },
        &[panel],
    )
}

/// CPU time per request, from `summary.json`.
pub fn cpu(summary: &Value) -> String {
    let panel = |subjects, title: &str| {
        let row = |name: &str| {
            let cpu = &case(summary, name, 32, subjects)?["cpu_us"];
            // A service counts as what is behind the proxy.
            let (proxy, redis) = (cpu["proxy"].as_f64()?, cpu["redis"].as_f64()? + cpu["service"].as_f64()?);
            let label = if redis < 0.05 { format!("{proxy:.1}") } else { format!("{proxy:.1} + {redis:.1}") };
            Some(Row { name: name.to_owned(), values: vec![proxy, redis], interval: None, label })
        };
        Panel { title: title.to_owned(), rows: names(summary).iter().filter_map(|name| row(name)).collect() }
    };
    draw(
        "CPU time of one request, 32 connections",
        "",
        &Parts { legend: &["proxy", "Redis"], are_added: true },
        &[panel(10_000, "10,000 subjects"), panel(1, "one hot subject")],
    )
}

/// Latencies, from `summary.json`.
pub fn latency(summary: &Value) -> String {
    let panel = |connections, title: &str| {
        let row = |name: &str| {
            let case = case(summary, name, connections, 10_000)?;
            let (p50, p99) = (case["p50_us"].as_f64()?, case["p99_us"].as_f64()?);
            let label = format!("{} / {}", grouped(p50, 0), grouped(p99, 0));
            Some(Row { name: name.to_owned(), values: vec![p50, p99], interval: None, label })
        };
        Panel { title: title.to_owned(), rows: names(summary).iter().filter_map(|name| row(name)).collect() }
    };
    draw(
        "Latency of one request, 10,000 subjects",
        "",
        &Parts { legend: &["median", "99th percentile"], are_added: false },
        &[panel(1, "1 connection"), panel(32, "32 connections")],
    )
}

/// The names of the cases, in their order, without the controls.
fn names(summary: &Value) -> Vec<String> {
    let mut names = Vec::new();
    for case in summary["cases"].as_array().into_iter().flatten() {
        let name = case["name"].as_str().unwrap_or_default().to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn case<'a>(file: &'a Value, name: &str, connections: u64, subjects: u64) -> Option<&'a Value> {
    file["cases"].as_array()?.iter().find(|case| {
        case["name"] == name && case["connections"] == connections && case["subjects"] == subjects
    })
}

/// 1, 2 or 5 times a power of ten, so that at most five of them are in `longest`.
fn step(longest: f64) -> f64 {
    let power = 10_f64.powf((longest / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|times| times * power)
        .into_iter()
        .find(|step| longest / step <= 5.0)
        .unwrap_or(power)
}

fn draw(title: &str, note: &str, parts: &Parts, panels: &[Panel]) -> String {
    let all = || panels.iter().flat_map(|panel| &panel.rows);
    let length = |row: &Row| match parts.are_added {
        true => row.interval.map_or(row.values.iter().sum(), |(_, high)| high),
        false => row.values.iter().copied().fold(0.0, f64::max),
    };
    let mut out = Svg { marks: CLASSES.map(|class| (class, String::new())), texts: String::new() };
    out.text((0.0, 16.0), "title", "start", title);
    let mut y = 16.0;
    if !parts.legend.is_empty() {
        y += 22.0;
        let mut x = 0.0;
        for (name, class) in parts.legend.iter().zip(["a", "b"]) {
            out.rect((x, y - 12.0), (12.0, 12.0), class);
            out.text((x + 18.0, y - 1.0), "", "start", name);
            x += (name.len() as f64).mul_add(LETTER, 40.0);
        }
    }
    for Panel { title, rows } in panels {
        if !title.is_empty() {
            y += 32.0;
            out.text((0.0, y), "panel", "start", title);
        }
        y += 8.0;
        // Bars that are added up are compared over all panels.
        let compared: Vec<&Row> = if parts.are_added { all().collect() } else { rows.iter().collect() };
        let longest = compared.into_iter().map(length).fold(1.0, f64::max);
        let scale = (WIDTH - LEFT - RIGHT) / longest;
        let bars = if parts.are_added { 1.0 } else { parts.legend.len() as f64 };
        let high = bars.mul_add(BAR, NAME + GAP);
        let bottom = (rows.len() as f64).mul_add(high, y);
        let mut tick = 0.0;
        while tick <= longest {
            let (x, unit) = (tick.mul_add(scale, LEFT), if tick > 0.0 { " µs" } else { "" });
            out.line((x, y), (x, bottom + 4.0), "grid");
            out.text((x, bottom + 18.0), "axis", "middle", &format!("{}{unit}", grouped(tick, 0)));
            tick += step(longest);
        }
        for row in rows {
            let class = if row.name.starts_with("weir") { "ours" } else { "" };
            out.text((LEFT + 2.0, y + NAME - 5.0), class, "start", &row.name);
            out.text((WIDTH - 2.0, y + NAME - 5.0), "", "end", &row.label);
            let (mut x, mut top) = (LEFT, y + NAME);
            for (value, class) in row.values.iter().zip(["a", "b"]) {
                let width = value.max(0.0) * scale;
                out.rect((x, top), (width, BAR), class);
                if parts.are_added {
                    x += width;
                } else {
                    top += BAR;
                }
            }
            if let Some((low, high)) = row.interval {
                let middle = y + NAME + BAR / 2.0;
                out.line((low.mul_add(scale, LEFT), middle), (high.mul_add(scale, LEFT), middle), "whisker");
            }
            y += high;
        }
        out.line((LEFT, bottom), (WIDTH - RIGHT, bottom), "grid");
        y = bottom + 18.0;
    }
    if !note.is_empty() {
        y += 18.0;
        out.text((LEFT, y), "axis", "start", note);
    }
    out.finish(title, y + 8.0)
}

/// The classes of what is not text, in the order in which they are drawn.
const CLASSES: [&str; 4] = ["grid", "a", "b", "whisker"];

/// All marks of a class are one path.
struct Svg {
    marks: [(&'static str, String); 4],
    texts: String,
}

impl Svg {
    fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, text: &str) {
        let _ = writeln!(
            self.texts,
            r#"<text x="{x:.1}" y="{y:.1}" class="{class}" text-anchor="{anchor}">{text}</text>"#
        );
    }

    fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), class: &str) {
        self.mark(class, &format!("M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z"));
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.mark(class, &format!("M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"));
    }

    fn mark(&mut self, class: &str, path: &str) {
        self.marks.iter_mut().filter(|(of, _)| *of == class).for_each(|(_, marks)| *marks += path);
    }

    fn finish(&self, title: &str, height: f64) -> String {
        let Self { marks, texts } = self;
        let path = |(class, path): &(&str, String)| format!("<path class=\"{class}\" d=\"{path}\"/>\n");
        let marks: String = marks.iter().filter(|(_, path)| !path.is_empty()).map(path).collect();
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0}" width="{WIDTH}" height="{height:.0}" role="img" aria-label="{title}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #24292f }}
.title, .ours {{ font-weight: 600 }}
.panel {{ font-style: italic }}
.axis {{ font-size: 12px; fill: #57606a }}
.grid {{ stroke: #8c959f; stroke-opacity: 0.35 }}
.whisker {{ stroke: #24292f; stroke-width: 1.5 }}
.a {{ fill: #2f81c7 }}
.b {{ fill: #e0873a }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #d0d7de }} .axis {{ fill: #9198a1 }} .whisker {{ stroke: #d0d7de }} }}
</style>
{marks}{texts}</svg>
"#
        )
    }
}
