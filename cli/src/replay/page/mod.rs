// SPDX-License-Identifier: Apache-2.0
//! The page of `--html`: one file with its style and its charts in it, that loads nothing.

mod chart;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::against::Differences;
use super::heaviest::Heaviest;
use super::timeline::{Outcome, Timeline};
use super::totals::{TOP, Total, Totals};
use crate::Failure;
use chart::Width;
use weir::config::{Config, duration_text};

const STYLE: &str = include_str!("style.css");

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
                    @for note in &self.notes { p.quiet { (shown(note)) } }
                    @for warning in &self.warnings { p.warning { (shown(warning)) } }
                    ul.legend {
                        @for (outcome, class) in Outcome::ALL.into_iter().zip(["admitted", "delayed", "denied", "shadow"]) {
                            li { i class=(class) {} (outcome.word()) }
                        }
                    }
                    (self.changes()?)
                    h2 { "All requests" }
                    (self.figures("all requests", |side| side.totals.over_time.as_ref())?)
                    @for side in &self.sides { (table(side)) }
                    (self.subjects()?)
                    (self.policies()?)
                }
            }
        };
        Ok(page.into_string())
    }

    /// The class of what has a part for each configuration.
    const fn columns(&self) -> &'static str {
        if self.sides.len() > 1 { "two" } else { "one" }
    }

    /// A chart for each configuration, with the same axes.
    fn figures(&self, what: &str, of: impl Fn(&Side<'a>) -> Option<&'a Timeline>) -> Result<Markup, Failure> {
        let most = self.sides.iter().filter_map(&of).map(Timeline::most).max().unwrap_or(1);
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

    /// The subjects that are denied most, of all policies.
    fn subjects(&self) -> Result<Markup, Failure> {
        type Kind = (&'static str, Outcome, fn(&Total) -> &Heaviest);
        let kinds: [Kind; 2] = [
            ("Most denied subjects", Outcome::Denied, |total| &total.rejected),
            ("Subjects that would be denied most (shadow)", Outcome::Shadow, |total| {
                &total.would_be_rejected
            }),
        ];
        let has_any = |of: fn(&Total) -> &Heaviest| {
            let mut totals = self.sides.iter().flat_map(|side| &side.totals.policies);
            totals.any(|total| !of(total).top(1).is_empty())
        };
        Ok(html! {
            @for (title, outcome, of) in kinds.into_iter().filter(|(.., of)| has_any(*of)) {
                h2 { (title) }
                div class=(self.columns()) {
                    @for side in &self.sides {
                        @let all = side.totals.policies.iter().flat_map(|total| of(total).top(TOP)).collect();
                        @let missed = side.totals.policies.iter().map(|total| of(total).missed()).max();
                        (subject_figure(&side.name, all, missed.unwrap_or(0), outcome)?)
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
            @for (.., name) in drawn {
                h3 { (shown(name)) }
                (self.figures(name, |side| side.policy(name)?.over_time.as_ref())?)
            }
            @if !others.is_empty() {
                p { "Without a chart, because they have fewer requests: " (shown(&others)) "." }
            }
        })
    }

    /// What changed from the first configuration to the second.
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
        let lists =
            [(&differences.hit, &other, Outcome::Denied), (&differences.released, &one, Outcome::Admitted)];
        Ok(html! {
            h2 { "What changed" }
            div.scroll { table { @for (what, count) in rows { tr { td { (what) } td.number { (count) } } } } }
            @for (subjects, name, outcome) in lists.into_iter().filter(|(subjects, ..)| !subjects.top(1).is_empty()) {
                h3 { "Denied by " (name) " only" }
                div.one {
                    (subject_figure("requests of these subjects", subjects.top(TOP), subjects.missed(), outcome)?)
                }
            }
        })
    }
}

/// Columns over time in both widths, with their counts.
fn figure(timeline: &Timeline, most: u64, what: &str, name: &str) -> Result<Markup, Failure> {
    let counts = Outcome::ALL.map(|outcome| (outcome, timeline.total(outcome))).into_iter();
    let counts = counts.filter(|(_, count)| *count > 0);
    let counts = counts.map(|(outcome, count)| format!("{count} {}", outcome.word())).collect::<Vec<_>>();
    let counts = if counts.is_empty() { String::from("no request") } else { counts.join(", ") };
    let label = format!("{} over time, {name}: {counts}", shown(what));
    Ok(html! {
        @for width in [Width::Wide, Width::Narrow] { (svg(&chart::over_time(timeline, most, width)?, width, &label)) }
        figcaption { (name) ": " (counts) ". Each column is " (duration_text(timeline.steps.length)) "; times are UTC." }
    })
}

fn table(side: &Side<'_>) -> Markup {
    let never: Vec<&str> = side.totals.never(side.config).map(|(_, name)| name).collect();
    html! {
        h3 { (shown(&side.name)) }
        p {
            (side.totals.requests) " requests, " (side.totals.unmatched) " of them admitted without a check, "
            (side.totals.globally_denied) " denied by the global deny list."
        }
        div.scroll { table {
            tr {
                th { "policy" } th { "mode" }
                @for name in ["admitted", "delayed", "rejected", "denied unasked", "would be rejected"] {
                    th.number { (name) }
                }
            }
            @for (name, mode, counts) in side.totals.rows(side.config) {
                tr {
                    td { (shown(name)) } td { (mode) }
                    @for count in [counts.admitted, counts.delayed, counts.rejected, counts.denied, counts.shadow] {
                        td.number { (count) }
                    }
                }
            }
        } }
        @if !never.is_empty() { p { "Applied to no request: " (shown(&never.join(", "))) "." } }
    }
}

/// The chart of the subjects with the highest counts, and a table with their whole names.
fn subject_figure(
    name: &str,
    mut subjects: Vec<(&[u8], u64)>,
    missed: u64,
    outcome: Outcome,
) -> Result<Markup, Failure> {
    subjects.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
    subjects.truncate(TOP);
    let (name, is_empty) = (shown(name), subjects.is_empty());
    let label = format!("subjects by count, {name}");
    Ok(html! {
        figure {
            @for width in [Width::Wide, Width::Narrow].into_iter().filter(|_| !is_empty) {
                (svg(&chart::subjects(&subjects, outcome, width)?, width, &label))
            }
            figcaption {
                (name) ". " @if is_empty { "none. " }
                @if missed > 0 { " Counts may be up to " (missed) " too low." }
            }
            table {
                @for (subject, count) in &subjects {
                    tr { td.number { (count) } td { code { (subject.escape_ascii().to_string()) } } }
                }
            }
        }
    })
}

/// A chart, with what it shows for those who do not see it.
fn svg(chart: &str, width: Width, label: &str) -> Markup {
    let rest = chart.strip_prefix("<svg ").unwrap_or(chart);
    let label = html! { (label) }.into_string();
    let class = width.class();
    PreEscaped(format!("<svg class=\"{class}\" role=\"img\" aria-label=\"{label}\" {rest}"))
}

/// A text without what a browser would obey beside markup.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for next in text.chars() {
        if next.is_control() { shown.extend(next.escape_debug()) } else { shown.push(next) }
    }
    shown
}
