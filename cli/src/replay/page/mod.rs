// SPDX-License-Identifier: Apache-2.0
//! The page of `--html`: one file with its style and its charts in it, that loads nothing.

mod chart;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::against::Differences;
use super::heaviest::Heaviest;
use super::timeline::{Outcome, Timeline};
use super::totals::{TOP, Total, Totals, happened};
use crate::Failure;
use chart::Width;
use weir::config::{Config, duration_text};

const STYLE: &str = include_str!("style.css");

/// The sentence above the charts over time.
const COLUMNS: &str = "Each column shows the requests of one interval by what happened to them. The line above them is the demand.";

/// The most policies that have charts of their own: those with the most requests.
const MOST_POLICIES: usize = 24;

pub struct Page<'a> {
    pub trace: String,
    pub notes: Vec<String>,
    pub warnings: Vec<String>,
    /// The configuration, and the other one with which it is compared.
    pub sides: Vec<Side<'a>>,
    pub differences: Option<&'a Differences>,
}

pub struct Side<'a> {
    pub name: String,
    pub config: &'a Config,
    pub totals: &'a Totals,
}

impl<'a> Side<'a> {
    fn policy(&self, name: &str) -> Option<&'a Total> {
        let place = self.config.policies.iter().position(|policy| policy.name == name)?;
        self.totals.policies.get(place)
    }
}

impl<'a> Page<'a> {
    pub fn write(&self) -> Result<String, Failure> {
        let title = format!("Replay of {}", shown(&self.trace));
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (title) }
                    p {
                        "Configuration: "
                        @for (place, side) in self.sides.iter().enumerate() {
                            @if place > 0 { ", compared with " }
                            code { (shown(&side.name)) }
                        }
                    }
                    @for note in &self.notes { p.quiet { (self.sentence(note)) } }
                    @for warning in &self.warnings { p.warning { (self.sentence(warning)) } }
                    (self.legend())
                    (self.changes()?)
                    h2 { "All requests" }
                    p.quiet { (COLUMNS) }
                    (self.figures("all requests", |side| side.totals.over_time.as_ref())?)
                    @for side in &self.sides { (table(side)) }
                    (self.subjects()?)
                    (self.policies()?)
                }
            }
        };
        Ok(page.into_string())
    }

    /// The line that the command prints, as a sentence of a page.
    fn sentence(&self, printed: &str) -> String {
        let all = self.sides.first().map_or(0, |side| side.totals.requests);
        let text = shown(printed).replace(&format!("{all} requests"), &format!("{} requests", grouped(all)));
        let mut letters = text.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
        first.chain(letters).collect::<String>() + end
    }

    /// The legend of the colours, for the outcomes that happened.
    fn legend(&self) -> Markup {
        let totals = self.sides.iter().flat_map(|side| &side.totals.policies);
        let counts: Vec<_> =
            totals.flat_map(|total| [("", "", total.enforced), ("", "", total.shadow)]).collect();
        let mut outcomes = happened(&counts);
        if self.sides.iter().any(|side| side.totals.globally_denied > 0)
            && !outcomes.contains(&Outcome::Denied)
        {
            outcomes.push(Outcome::Denied);
        }
        html! {
            ul.legend {
                li { i.demand {} "demand: all requests" }
                @for outcome in outcomes { li { i class=(class(outcome)) {} (meaning(outcome)) } }
            }
        }
    }

    /// The class of what has a part for each configuration.
    const fn columns(&self) -> &'static str {
        if self.sides.len() > 1 { "two" } else { "one" }
    }

    /// A chart for each configuration, with the same axes.
    fn figures(&self, what: &str, of: impl Fn(&Side<'a>) -> Option<&'a Timeline>) -> Result<Markup, Failure> {
        let most = self.sides.iter().filter_map(&of).map(|timeline| timeline.peak().1).max().unwrap_or(1);
        Ok(html! {
            div class=(self.columns()) {
                @for side in &self.sides {
                    figure {
                        @match of(side) {
                            None => figcaption { (shown(&side.name)) ": it has no such policy" },
                            Some(timeline) => (figure(timeline, most, what, &shown(&side.name))?),
                        }
                    }
                }
            }
        })
    }

    /// The subjects that are rejected most, of all policies.
    fn subjects(&self) -> Result<Markup, Failure> {
        let kinds = [
            ("Most rejected subjects", Outcome::Rejected),
            ("Subjects whose bans rejected most", Outcome::Banned),
            ("Subjects that would be rejected most (shadow)", Outcome::Shadow),
        ];
        let has_any = |outcome: Outcome| {
            let mut totals = self.sides.iter().flat_map(|side| &side.totals.policies);
            totals.any(|total| !heaviest(total, outcome).top(1).is_empty())
        };
        Ok(html! {
            @for (title, outcome) in kinds.into_iter().filter(|(_, outcome)| has_any(*outcome)) {
                h2 { (title) }
                div class=(self.columns()) {
                    @for side in &self.sides {
                        @let of = side.totals.policies.iter().map(|total| heaviest(total, outcome));
                        @let all = of.clone().flat_map(|of| of.top(TOP)).collect();
                        @let rows = format!("the requests of one subject, under {}", shown(&side.name));
                        (subjects(&rows, all, of.map(Heaviest::missed).max().unwrap_or(0), class(outcome)))
                    }
                }
            }
        })
    }

    fn policies(&self) -> Result<Markup, Failure> {
        let mut names: Vec<(u64, usize, &str)> = Vec::new();
        let mut known = BTreeSet::new();
        for policy in self.sides.iter().flat_map(|side| &side.config.policies) {
            if known.insert(policy.name.as_str()) {
                let totals = self.sides.iter().filter_map(|side| side.policy(&policy.name));
                let requests = totals.map(|total| total.enforced.sum().saturating_add(total.shadow.sum()));
                names.push((requests.max().unwrap_or(0), names.len(), &policy.name));
            }
        }
        names.retain(|(requests, ..)| *requests > 0);
        let mut by_requests = names.clone();
        by_requests.sort_by_key(|(requests, place, _)| (core::cmp::Reverse(*requests), *place));
        let is_shown = |of: &(u64, usize, &str)| by_requests.iter().take(MOST_POLICIES).any(|one| one == of);
        let (drawn, others): (Vec<_>, Vec<_>) = names.iter().copied().partition(is_shown);
        let others = others.into_iter().map(|(.., name)| name).collect::<Vec<_>>().join(", ");
        Ok(html! {
            h2 { "Policies over time" }
            p.quiet { (COLUMNS) }
            @for (.., name) in drawn {
                h3 { (shown(name)) }
                (self.figures(name, |side| side.policy(name)?.over_time.as_ref())?)
            }
            @if !others.is_empty() {
                p { "Without a chart, because they have fewer requests: " (shown(&others)) "." }
            }
        })
    }

    /// The changes from the first configuration to the second.
    fn changes(&self) -> Result<Markup, Failure> {
        let ([first, second], Some(differences)) = (self.sides.as_slice(), self.differences) else {
            return Ok(Markup::default());
        };
        let (one, other) = (shown(&first.name), shown(&second.name));
        let rows = [
            (String::from("decided the same"), differences.same),
            (format!("denied by {one} only"), differences.only_first_rejects),
            (format!("denied by {other} only"), differences.only_second_rejects),
            (String::from("delayed differently"), differences.other_delay),
            (format!("would be denied by {one} only, in shadow"), differences.only_first_would),
            (format!("would be denied by {other} only, in shadow"), differences.only_second_would),
        ];
        let lists = [(&differences.hit, &other, &one), (&differences.released, &one, &other)];
        Ok(html! {
            h2 { "What changed" }
            table.changes { @for (what, count) in rows { tr { td { (what) } td.number { (grouped(count)) } } } }
            @for (subjects, name, other) in lists.into_iter().filter(|(subjects, ..)| !subjects.top(1).is_empty()) {
                h3 { "Denied by " (name) " only" }
                @let rows = format!("the requests of one subject that {name} denies and {other} admits");
                (self::subjects(&rows, subjects.top(TOP), subjects.missed(), "changed"))
            }
        })
    }
}

/// Its class in `style.css`.
const fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Admitted => "admitted",
        Outcome::Delayed => "delayed",
        Outcome::Rejected => "rejected",
        Outcome::Banned => "banned",
        Outcome::Denied => "denied",
        Outcome::Shadow => "shadow",
    }
}

const fn meaning(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Admitted => "admitted",
        Outcome::Delayed => "delayed: held, then admitted",
        Outcome::Rejected => "rejected by a limit",
        Outcome::Banned => "banned: rejected by a ban, which earlier rejections began",
        Outcome::Denied => {
            "denied unasked: without asking Redis, by a deny list or because the subject is missing"
        }
        Outcome::Shadow => "would be rejected, but the policy is in shadow: admitted",
    }
}

const fn heaviest(total: &Total, outcome: Outcome) -> &Heaviest {
    match outcome {
        Outcome::Banned => &total.banned,
        Outcome::Shadow => &total.would_be_rejected,
        Outcome::Admitted | Outcome::Delayed | Outcome::Rejected | Outcome::Denied => &total.rejected,
    }
}

/// Columns over time in both widths: the demand, and what of it was admitted.
fn figure(timeline: &Timeline, most: u64, what: &str, name: &str) -> Result<Markup, Failure> {
    let (total, (_, peak)) = (timeline.total(), timeline.peak());
    let (demand, passed, step) = (total.sum(), total.passed(), duration_text(timeline.steps.length));
    let percent = passed.saturating_mul(100).checked_div(demand).unwrap_or(100);
    let words = format!(
        "demand {}, at most {} in {step}; admitted {} ({percent} %), at most {} in {step}",
        grouped(demand),
        grouped(peak),
        grouped(passed),
        grouped(timeline.most_passed())
    );
    let others =
        Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::Admitted && total.of(*outcome) > 0);
    let others: Vec<_> =
        others.map(|outcome| format!("{} {}", grouped(total.of(outcome)), outcome.word())).collect();
    let others = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    let label = format!("{} over time, {name}: {words}{others}", shown(what));
    Ok(html! {
        figcaption { b { (name) } ": " (words) (others) ". Times are UTC." }
        @for width in [Width::Wide, Width::Narrow] { (svg(&chart::over_time(timeline, most, width)?, width, &label)) }
    })
}

fn table(side: &Side<'_>) -> Markup {
    let never: Vec<&str> = side.totals.never(side.config).map(|(_, name)| name).collect();
    let rows: Vec<_> = side.totals.rows(side.config).collect();
    let columns = happened(&rows);
    html! {
        h3 { (shown(&side.name)) }
        p {
            (grouped(side.totals.requests)) (if side.totals.requests == 1 { " request, " } else { " requests, " })
            (grouped(side.totals.unmatched)) " of them admitted without a check, "
            (grouped(side.totals.globally_denied)) " denied by the global deny list."
        }
        // The names of the columns are repeated for a phone, where the cells of a row are below each other.
        div.scroll { table.policies {
            tr {
                th { "policy" } th { "mode" } th.number { "requests" }
                @for outcome in &columns { th.number { (outcome.word()) } }
            }
            @for (name, mode, counts) in &rows {
                tr {
                    td { (shown(name)) } td data-label="mode" { (mode) }
                    td.number data-label="requests" { (grouped(counts.sum())) }
                    @for outcome in &columns { td.number data-label=(outcome.word()) { (grouped(counts.of(*outcome))) } }
                }
            }
        } }
        @if !never.is_empty() { p { "Applied to no request: " (shown(&never.join(", "))) "." } }
    }
}

/// The subjects with the highest counts, each with its bar. `rows` says what a bar shows.
fn subjects(rows: &str, mut subjects: Vec<(&[u8], u64)>, missed: u64, class: &str) -> Markup {
    subjects.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
    subjects.truncate(TOP);
    let most = subjects.first().map_or(1, |(_, count)| *count).max(1);
    let width = |count: u64| count.saturating_mul(100).div_ceil(most);
    html! {
        div {
            p.quiet {
                "Each bar shows " (shown(rows)) "." @if subjects.is_empty() { " There are none." }
                @if missed > 0 { " The numbers may be up to " (grouped(missed)) " too low, so smaller differences are noise." }
            }
            table.subjects {
                @for (subject, count) in &subjects {
                    tr {
                        td.number { (grouped(*count)) }
                        td {
                            code { (subject.escape_ascii().to_string()) }
                            div class={ "bar " (class) } style={ "width:" (width(*count)) "%" } {}
                        }
                    }
                }
            }
        }
    }
}

/// A chart, with a label that says in words what it shows.
fn svg(chart: &str, width: Width, label: &str) -> Markup {
    let rest = chart.strip_prefix("<svg ").unwrap_or(chart);
    let label = html! { (label) }.into_string();
    let class = width.class();
    PreEscaped(format!("<svg class=\"{class}\" role=\"img\" aria-label=\"{label}\" {rest}"))
}

/// A number with commas between its thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Escapes the control characters in a string. A browser would obey them, although they are not markup.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for next in text.chars() {
        if next.is_control() { shown.extend(next.escape_debug()) } else { shown.push(next) }
    }
    shown
}
