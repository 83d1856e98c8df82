// SPDX-License-Identifier: Apache-2.0
//! A picture of one run, as SVG: a dot for each request, above the axis where it passes and below it where it is denied, and a
//! line for what is left. Readable on light and dark backgrounds, and without colours.

use std::collections::BTreeMap;
use std::fmt::Write;

use weir::time::Micros;

use super::{Decision, END, Run, WINDOW};

/// A phone shows it almost in full size.
const WIDTH: u64 = 400;
const LEFT: u64 = 58;
const RIGHT: u64 = 18;
/// The axis between what passes and what is denied.
const AXIS: u64 = 100;
const HEIGHT: u64 = 270;
/// The bottom and the height of the line of what is left.
const FLOOR: u64 = 235;
const RISE: u64 = 50;
/// Requests of the same half second are above each other.
const COLUMN: u64 = 500_000;
const DOT: u64 = 7;

/// The place of a time, in tenths of a pixel.
fn x(at: Micros) -> String {
    tenths(LEFT * 10 + at.0 * (WIDTH - LEFT - RIGHT) * 10 / END.0)
}

fn tenths(of: u64) -> String {
    format!("{}.{}", of / 10, of % 10)
}

/// The dots of one side, in the order of their times: a column for each half second. All of a class are one path.
fn dots(out: &mut String, mut of: Vec<(Micros, &str)>, height: impl Fn(u64) -> u64) {
    of.sort_by_key(|(at, _)| *at);
    let (mut columns, mut paths) = (BTreeMap::<u64, u64>::new(), BTreeMap::<&str, String>::new());
    for (at, class) in of {
        let column = at.0 / COLUMN;
        let place = columns.entry(column).or_default();
        *place += 1;
        let (middle, y) = (x(Micros(column * COLUMN + COLUMN / 2)), height(*place));
        let circle = "m-2.5 0a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0-5 0";
        let _ = write!(paths.entry(class).or_default(), "M{middle} {y}{circle}");
    }
    for (class, path) in paths {
        let _ = writeln!(out, r#"<path class="{class}" d="{path}"/>"#);
    }
}

pub fn draw(title: &str, run: &Run) -> String {
    let mut body = String::new();
    let mut text = |x: &str, y: u64, class: &str, anchor: &str, what: &str| {
        let _ =
            writeln!(body, r#"<text x="{x}" y="{y}" class="{class}" text-anchor="{anchor}">{what}</text>"#);
    };
    let edge = (LEFT - 8).to_string();
    text("0", 18, "title", "start", title);
    text(&edge, AXIS - 36, "", "end", "pass");
    text(&edge, AXIS + 36, "", "end", "denied");
    text(&edge, FLOOR - RISE + 5, "", "end", &run.quota.to_string());
    text(&edge, FLOOR - RISE / 2 + 5, "", "end", "left");
    text(&edge, FLOOR + 5, "", "end", "0");
    for second in (0..=END.0 / 1_000_000).step_by(5) {
        text(&x(Micros::from_secs(second)), HEIGHT - 8, "", "middle", &format!("{second} s"));
    }
    for window in 0..=END.0 / WINDOW.0 {
        let at = x(Micros(window * WINDOW.0));
        let _ = writeln!(body, r#"<line x1="{at}" x2="{at}" y1="30" y2="{}" class="mark"/>"#, FLOOR + 6);
    }
    for y in [AXIS, FLOOR] {
        let _ =
            writeln!(body, r#"<line x1="{LEFT}" x2="{}" y1="{y}" y2="{y}" class="axis"/>"#, WIDTH - RIGHT);
    }
    let (mut above, mut below) = (Vec::new(), Vec::new());
    for Decision { arrives, passes } in &run.decisions {
        match passes {
            Some(at) if at == arrives => above.push((*at, "pass")),
            Some(at) => above.push((*at, "held")),
            None => below.push((*arrives, "denied")),
        }
    }
    dots(&mut body, above, |place| AXIS + 2 - place * DOT);
    dots(&mut body, below, |place| AXIS - 2 + place * DOT);
    let mut line = String::new();
    let mut last = None;
    for (at, left) in &run.left {
        let left = u64::try_from(*left).unwrap_or_default();
        let y = tenths(FLOOR * 10 - left * RISE * 10 / u64::try_from(run.quota).unwrap_or(1).max(1));
        // Steps, because units are whole.
        if let Some(before) = last.replace(y.clone()) {
            let _ = write!(line, "{},{before} ", x(*at));
        }
        let _ = write!(line, "{},{y} ", x(*at));
    }
    let _ = writeln!(body, r#"<polyline points="{}" class="left"/>"#, line.trim_end());
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{title}">
<style>
text {{ font: 13px system-ui, sans-serif; fill: #24292f }}
.title {{ font-weight: 600 }}
.axis {{ stroke: #8c959f }}
.mark {{ stroke: #8c959f; stroke-dasharray: 2 4 }}
.pass {{ fill: #2f81c7 }}
.held {{ fill: #2f81c7; fill-opacity: 0.35; stroke: #2f81c7 }}
.denied {{ fill: none; stroke: #e0873a; stroke-width: 1.5 }}
.left {{ fill: none; stroke: #8c959f; stroke-width: 1.5 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #d0d7de }} }}
</style>
{body}</svg>
"#
    )
}
