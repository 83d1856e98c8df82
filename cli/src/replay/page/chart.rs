// SPDX-License-Identifier: Apache-2.0
//! The charts of the page, drawn by `plotters` as SVG: it is maintained, needs no browser and no script, and draws into a string.
//! The colours are those of the light page; `style.css` names each of them again for the dark one.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::timeline::{Outcome, Timeline};
use crate::{Failure, date};
use weir::time::Micros;

const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const LINE: RGBColor = RGBColor(0xd8, 0xde, 0xe4);

/// The size of letters, which `plotters` divides by 1.24.
const LETTERS: i32 = 17;

/// The sizes in which each chart is drawn, in pixels: for a whole line of a wide page; and for half of one, or for a phone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 960 pixels.
    Wide,
    /// 380 pixels.
    Narrow,
}

impl Width {
    const fn pixels(self) -> u32 {
        match self {
            Self::Wide => 960,
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
        Outcome::Denied => RGBColor(0xc2, 0x36, 0x2b),
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

/// Columns over time, whose parts are the outcomes. `most` is the upper end of the axis.
pub fn over_time(timeline: &Timeline, most: u64, width: Width) -> Result<String, Failure> {
    drawn(width, 240, |area| draw_over_time(timeline, most.max(1), width, area))
}

fn draw_over_time(timeline: &Timeline, most: u64, width: Width, area: &Area<'_>) -> Drawn {
    let steps = i32::try_from(timeline.steps.count)?;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(46)
        .x_label_area_size(28)
        .y_label_area_size(8 * u32::try_from(most.to_string().len())? + 18)
        .build_cartesian_2d(0..steps, 0..most)?;
    // The part that differs between steps, of 2026-01-31T12:34:56.789Z.
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
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(LINE)
        .axis_style(LINE)
        .x_labels(if width == Width::Wide { 8 } else { 3 })
        .y_labels(4)
        .x_label_formatter(&label)
        .label_style(("sans-serif", LETTERS).into_font().color(&TEXT))
        .draw()?;
    let mut bars = Vec::new();
    for (step, counts) in (0_i32..).zip(&timeline.counts) {
        let mut from = 0_u64;
        for (count, outcome) in counts.iter().zip(Outcome::ALL).filter(|(count, _)| **count > 0) {
            let to = from.saturating_add(*count);
            let mut bar =
                Rectangle::new([(step, from), (step.saturating_add(1), to)], colour(outcome).filled());
            bar.set_margin(0, 0, 0, 1);
            bars.push(bar);
            from = to;
        }
    }
    chart.draw_series(bars)?;
    Ok(())
}

/// The height of the bar and the name of one subject, in pixels.
const ROW: i32 = 44;

/// A bar for each subject, with its count and its name above it.
pub fn subjects(subjects: &[(&[u8], u64)], outcome: Outcome, width: Width) -> Result<String, Failure> {
    let rows = u32::try_from(subjects.len()).unwrap_or(u32::MAX);
    let height = rows.saturating_mul(ROW.unsigned_abs()).saturating_add(8);
    drawn(width, height, |area| draw_subjects(subjects, outcome, width, area))
}

fn draw_subjects(subjects: &[(&[u8], u64)], outcome: Outcome, width: Width, area: &Area<'_>) -> Drawn {
    let most = subjects.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    let longest = i64::from(width.pixels()).saturating_sub(16);
    let letters = if width == Width::Wide { 100 } else { 38 };
    let style = ("sans-serif", LETTERS).into_font().color(&TEXT).pos(Pos::new(HPos::Left, VPos::Top));
    for (row, (subject, count)) in (0_i32..).zip(subjects) {
        let top = row.saturating_mul(ROW).saturating_add(4);
        let name = shortened(&subject.escape_ascii().to_string(), letters);
        area.draw(&Text::new(format!("{count}  {name}"), (8, top.saturating_add(4)), style.clone()))?;
        let length = i128::from(longest) * i128::from(*count) / i128::from(most);
        let right = i32::try_from(length.max(2))?.saturating_add(8);
        let (from, to) = (top.saturating_add(22), top.saturating_add(ROW - 8));
        area.draw(&Rectangle::new([(8, from), (right, to)], colour(outcome).filled()))?;
    }
    Ok(())
}

/// The beginning and the end of a long text. Its letters are ASCII.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let (head, tail) = (text.get(..half), text.get(text.len().saturating_sub(half)..));
    format!("{}…{}", head.unwrap_or_default(), tail.unwrap_or_default())
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
        assert_eq!(colours.len(), 6, "{colours:?}");
        for colour in colours {
            assert!(super::super::STYLE.contains(&format!("=\"{colour}\"]")), "{colour}");
        }
        assert!(svg.contains("viewBox"), "{svg}");
    }

    #[test]
    fn long_subjects_keep_both_ends() {
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abcd…fghi");
    }

    #[test]
    fn a_subject_is_text() {
        let svg =
            subjects(&[(b"{p|<script>alert(1)</script>&\"\x1b}", 3)], Outcome::Denied, Width::Wide).unwrap();
        assert!(
            !svg.contains("<script>") && svg.contains("&lt;script&gt;") && !svg.contains('\x1b'),
            "{svg}"
        );
    }
}
