// SPDX-License-Identifier: Apache-2.0
//! The charts of the page, drawn by `plotters` as SVG: it is maintained, needs no browser and no script, and draws into a string.
//! The colours are those of the light page; `style.css` names each of them again for the dark one.

use plotters::prelude::*;

use super::super::timeline::{Outcome, Timeline};
use super::grouped;
use crate::{Failure, date};
use weir::config::duration_text;
use weir::time::Micros;

const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const LINE: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// The size of letters, which `plotters` divides by 1.24.
const LETTERS: i32 = 17;

/// The sizes in which each chart is drawn, in pixels: for a whole line of a wide page; and for half of one, or for a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 840 pixels.
    Wide,
    /// 380 pixels.
    Narrow,
}

impl Width {
    const fn pixels(self) -> u32 {
        match self {
            Self::Wide => 840,
            Self::Narrow => 380,
        }
    }

    /// Its class in `style.css`.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Wide => "wide",
            Self::Narrow => "narrow",
        }
    }
}

const fn colour(outcome: Outcome) -> RGBColor {
    match outcome {
        Outcome::Admitted => RGBColor(0x2f, 0x6d, 0xb5),
        Outcome::Delayed => RGBColor(0x9a, 0x67, 0x00),
        Outcome::Rejected => RGBColor(0xc2, 0x36, 0x2b),
        Outcome::Banned => RGBColor(0x5b, 0x23, 0x33),
        Outcome::Denied => RGBColor(0x6e, 0x77, 0x81),
        Outcome::Shadow => RGBColor(0x7a, 0x52, 0xb3),
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn core::error::Error>>;

fn drawn(width: Width, height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String, Failure> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, (width.pixels(), height)).into_drawing_area();
    let result = draw(&area).and_then(|()| Ok(area.present()?));
    result.map_err(|error| format!("drawing a chart: {error}"))?;
    drop(area);
    Ok(svg)
}

/// Columns over time, whose parts are the outcomes, and whose height is the demand. `most` is the upper end of the axis.
pub fn over_time(timeline: &Timeline, most: u64, width: Width) -> Result<String, Failure> {
    drawn(width, 260, |area| draw_over_time(timeline, most.max(1), width, area))
}

fn draw_over_time(timeline: &Timeline, most: u64, width: Width, area: &Area<'_>) -> Drawn {
    let steps = i32::try_from(timeline.steps.count)?;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_top(30)
        .margin_right(46)
        .x_label_area_size(28)
        .y_label_area_size(8 * u32::try_from(grouped(most).len())? + 18)
        .build_cartesian_2d(0..steps, 0..most)?;
    // The part of a time that differs between steps, of 2026-01-31T12:34:56.789Z.
    let (from, to) = match timeline.steps.length {
        length if length < Micros::from_secs(1) => (11, 23),
        length if length < Micros::from_secs(60) => (11, 19),
        length if length < Micros::from_secs(3_600) => (11, 16),
        length if length < Micros::from_secs(86_400) => (5, 16),
        _ => (0, 10),
    };
    let label = |step: &i32| {
        let start = date::text(timeline.steps.start(usize::try_from(*step).unwrap_or(0)));
        start.get(from..to).unwrap_or_default().replace('T', " ")
    };
    let style = ("sans-serif", LETTERS).into_font().color(&TEXT);
    let (busiest, peak) = timeline.peak();
    let unit = duration_text(timeline.steps.length);
    let title = match i32::try_from(busiest) {
        Ok(busiest) if peak > 0 => {
            format!("requests in {unit}; peak {} at {}", grouped(peak), label(&busiest))
        }
        _ => format!("requests in {unit}"),
    };
    area.draw(&Text::new(title, (8, 6), style.clone()))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(LINE)
        .axis_style(LINE)
        .x_labels(if width == Width::Wide { 8 } else { 3 })
        .y_labels(4)
        .x_label_formatter(&label)
        .y_label_formatter(&|requests| grouped(*requests))
        .label_style(style)
        .draw()?;
    let mut bars = Vec::new();
    for (step, counts) in (0_i32..).zip(&timeline.counts) {
        let mut from = 0_u64;
        for outcome in Outcome::STACKED.into_iter().filter(|outcome| counts.of(*outcome) > 0) {
            let to = from.saturating_add(counts.of(outcome));
            let mut bar =
                Rectangle::new([(step, from), (step.saturating_add(1), to)], colour(outcome).filled());
            bar.set_margin(0, 0, 0, 1);
            bars.push(bar);
            from = to;
        }
    }
    chart.draw_series(bars)?;
    let sums = timeline.counts.iter().map(|counts| counts.sum());
    let demand = (0_i32..).zip(sums).flat_map(|(step, sum)| [(step, sum), (step.saturating_add(1), sum)]);
    chart.draw_series([PathElement::new(demand.collect::<Vec<_>>(), TEXT.stroke_width(1))])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::timeline::Steps;
    use super::*;

    /// `style.css` has another colour for the dark page for each colour that is drawn.
    #[test]
    fn the_style_names_each_colour() {
        let mut timeline = Timeline::new(Steps { first: Micros(0), length: Micros::from_secs(1), count: 3 });
        Outcome::ALL.into_iter().for_each(|outcome| timeline.add(Micros(1), outcome));
        let svg = over_time(&timeline, 4, Width::Wide).unwrap();
        let mut colours: Vec<&str> =
            svg.match_indices("=\"#").filter_map(|(at, _)| svg.get(at + 2..at + 9)).collect();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), 8, "{colours:?}");
        for colour in colours {
            assert!(super::super::STYLE.contains(&format!("=\"{colour}\"]")), "{colour}");
        }
        assert!(svg.contains("viewBox"), "{svg}");
    }
}
