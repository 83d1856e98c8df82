// SPDX-License-Identifier: Apache-2.0
//! Plots of the simulations, as SVG that is readable on light and dark backgrounds.

use plotters::prelude::*;

use crate::table::grouped;

/// The width, and the height of the lines with their axes. A phone shows it almost in full size.
const SIZE: (u32, u32) = (400, 290);
/// The heights of a line of the title, which is above the axes, and of one of the legend, which is below them.
const TITLE: u32 = 20;
const LEGEND: u32 = 22;
/// The most letters of a line of the title.
const LETTERS: usize = 44;
const GREY: RGBColor = RGBColor(139, 148, 158);
const COLORS: [RGBColor; 6] = [
    RGBColor(139, 148, 158),
    RGBColor(47, 129, 199),
    RGBColor(224, 135, 58),
    RGBColor(46, 160, 67),
    RGBColor(191, 91, 181),
    RGBColor(207, 76, 76),
];
/// Colors of text that hold for both backgrounds; attributes of the elements give way to it.
const STYLE: &str = "<style>text { font-family: system-ui, sans-serif; fill: #24292f } \
    @media (prefers-color-scheme: dark) { text { fill: #d0d7de } }</style>\n";

/// A line of a plot.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines over linear axes that begin at zero.
pub fn plot(title: &str, (x, y): (&str, &str), (width, height): (f64, f64), lines: &[Line]) -> String {
    let mut svg = String::new();
    let heading = broken(title);
    let [above, below] = [(heading.len(), TITLE), (lines.len(), LEGEND)]
        .map(|(count, height)| u32::try_from(count).expect("a few lines") * height);
    {
        let area = SVGBackend::with_string(&mut svg, (SIZE.0, SIZE.1 + above + below)).into_drawing_area();
        for (text, row) in heading.iter().zip(0_i32..) {
            let at = (6, 4 + TITLE.cast_signed() * row);
            area.draw(&Text::new(text.as_str(), at, ("sans-serif", 18))).expect("a title");
        }
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_top(above + 14)
            .margin_right(24)
            .margin_bottom(below + 6)
            .x_label_area_size(42)
            .y_label_area_size(58)
            .build_cartesian_2d(0.0..width, 0.0..height)
            .expect("a chart");
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(x)
            .y_desc(y)
            .axis_style(GREY)
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.25));
        mesh.label_style(("sans-serif", 15))
            .x_labels(6)
            .x_label_formatter(&|value| grouped(*value, 0))
            .y_label_formatter(&|value| grouped(*value, 0))
            .draw()
            .expect("a mesh");
        for (line, color) in lines.iter().zip(COLORS) {
            let series = LineSeries::new(line.points.iter().copied(), color.stroke_width(2));
            chart.draw_series(series).expect("a line");
        }
        // Below the lines, so that it hides none.
        let first = (SIZE.1 + above).cast_signed() + 8;
        for ((line, color), row) in lines.iter().zip(COLORS).zip(0_i32..) {
            let (x, y) = (60, first + LEGEND.cast_signed() * row);
            area.draw(&PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(3))).expect("a line");
            area.draw(&Text::new(line.name.as_str(), (x + 26, y - 7), ("sans-serif", 15))).expect("a name");
        }
        area.present().expect("an image");
    }
    let (head, rest) = svg.split_once('\n').expect("an svg element");
    format!("{head}\n<title>{title}</title>\n{STYLE}{}", compact(rest))
}

/// A title in lines that are not too long.
fn broken(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split(' ') {
        let line = lines.last_mut().expect("a line");
        if line.is_empty() {
            *line += word;
        } else if line.len() + word.len() < LETTERS {
            *line += " ";
            *line += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The same picture in fewer lines: each text is on one, and all lines of one kind are one path.
fn compact(svg: &str) -> String {
    let svg = svg.replace("\">\n", "\">").replace("\n</text>", "</text>");
    let svg = svg.replace("<polyline ", "<path ").replace("<line ", "<path ");
    let mut parts: Vec<(&str, String)> = Vec::new();
    for line in svg.lines() {
        let values: Vec<_> = line.split('"').collect();
        let (kind, path) = match (line.split_once(" points="), line.split_once(" x1="), &values[..]) {
            (Some((kind, _)), _, [.., points, _]) => (kind, format!("M{}", points.trim_end())),
            (_, Some((kind, _)), [.., x1, _, y1, _, x2, _, y2, _]) => (kind, format!("M{x1},{y1} {x2},{y2}")),
            _ => (line, String::new()),
        };
        match parts.iter_mut().find(|(other, _)| *other == kind && !path.is_empty()) {
            Some((_, paths)) => *paths += &path,
            None => parts.push((kind, path)),
        }
    }
    let written = |(kind, path): (&str, String)| match path.as_str() {
        "" => format!("{kind}\n"),
        path => format!("{kind} d=\"{path}\"/>\n"),
    };
    parts.into_iter().map(written).collect()
}
