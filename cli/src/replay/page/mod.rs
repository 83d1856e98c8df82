// SPDX-License-Identifier: Apache-2.0
//! The page of `--html`: one file with its style and its charts in it, that loads nothing.

mod chart;

use core::fmt::Write as _;
use std::collections::BTreeSet;

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

/// A configuration and what it decided.
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
        let mut out = String::new();
        let title = format!("Replay of {}", escaped(&self.trace));
        let configs: Vec<String> =
            self.sides.iter().map(|side| format!("<code>{}</code>", escaped(&side.name))).collect();
        push(
            &mut out,
            format_args!(
                "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                 <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
                 <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
                 <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>Configuration: {}</p>\n",
                configs.join(", compared with ")
            ),
        );
        for note in &self.notes {
            push(&mut out, format_args!("<p class=\"quiet\">{}</p>\n", escaped(note)));
        }
        for warning in &self.warnings {
            push(&mut out, format_args!("<p class=\"warning\">{}</p>\n", escaped(warning)));
        }
        self.legend(&mut out);
        self.changes(&mut out)?;
        push(&mut out, format_args!("<h2>All requests</h2>\n"));
        self.figures(&mut out, "all requests", |side| side.totals.over_time.as_ref())?;
        self.table(&mut out);
        self.subjects(&mut out)?;
        self.policies(&mut out)?;
        out.push_str("</body>\n</html>\n");
        Ok(out)
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul class=\"legend\">");
        for (outcome, class) in Outcome::ALL.into_iter().zip(["admitted", "delayed", "denied", "shadow"]) {
            push(out, format_args!("<li><i class=\"{class}\"></i>{}</li>", outcome.word()));
        }
        out.push_str("</ul>\n");
    }

    /// A chart for each configuration, with the same axes.
    fn figures(
        &self,
        out: &mut String,
        what: &str,
        of: impl Fn(&Side<'a>) -> Option<&'a Timeline>,
    ) -> Result<(), Failure> {
        let most = self.sides.iter().filter_map(&of).map(Timeline::most).max().unwrap_or(1);
        let class = if self.sides.len() > 1 { "two" } else { "one" };
        push(out, format_args!("<div class=\"{class}\">\n"));
        for side in &self.sides {
            let name = escaped(&side.name);
            let Some(timeline) = of(side) else {
                push(
                    out,
                    format_args!("<figure><figcaption>{name}: it has no such policy</figcaption></figure>\n"),
                );
                continue;
            };
            let counts = Outcome::ALL.map(|outcome| (outcome, timeline.total(outcome)));
            let counts: Vec<String> = counts
                .iter()
                .filter(|(_, count)| *count > 0)
                .map(|(outcome, count)| format!("{count} {}", outcome.word()))
                .collect();
            let counts = if counts.is_empty() { String::from("no request") } else { counts.join(", ") };
            let each = duration_text(timeline.steps.length);
            out.push_str("<figure>\n");
            for width in [Width::Wide, Width::Narrow] {
                let svg = chart::over_time(timeline, most, width)?;
                push_svg(out, &svg, width, &format!("{what} over time, {name}: {counts}"));
            }
            push(
                out,
                format_args!(
                    "<figcaption>{name}: {counts}. Each column is {each}; times are UTC.</figcaption>\n</figure>\n"
                ),
            );
        }
        out.push_str("</div>\n");
        Ok(())
    }

    fn table(&self, out: &mut String) {
        for side in &self.sides {
            let rows: Vec<_> = side.totals.rows(side.config).collect();
            push(
                out,
                format_args!(
                    "<h3>{}</h3>\n<p>{} requests, {} of them admitted without a check, {} denied by the global deny \
                     list.</p>\n<div class=\"scroll\"><table>\n<tr><th>policy<th>mode{}</tr>\n",
                    escaped(&side.name),
                    side.totals.requests,
                    side.totals.unmatched,
                    side.totals.globally_denied,
                    ["admitted", "delayed", "rejected", "denied unasked", "would be rejected"]
                        .map(|name| format!("<th class=\"number\">{name}"))
                        .concat()
                ),
            );
            for (name, mode, counts) in rows {
                let numbers =
                    [counts.admitted, counts.delayed, counts.rejected, counts.denied, counts.shadow];
                let cells = numbers.map(|count| format!("<td class=\"number\">{count}")).concat();
                push(out, format_args!("<tr><td>{}<td>{mode}{cells}</tr>\n", escaped(name)));
            }
            out.push_str("</table></div>\n");
            let never: Vec<&str> = side.totals.never(side.config).map(|(_, name)| name).collect();
            if !never.is_empty() {
                push(out, format_args!("<p>Applied to no request: {}.</p>\n", escaped(&never.join(", "))));
            }
        }
    }

    /// The subjects that are denied most, of all policies.
    fn subjects(&self, out: &mut String) -> Result<(), Failure> {
        type Kind = (&'static str, Outcome, fn(&Total) -> &Heaviest);
        let kinds: [Kind; 2] = [
            ("Most denied subjects", Outcome::Denied, |total| &total.rejected),
            ("Subjects that would be denied most (shadow)", Outcome::Shadow, |total| {
                &total.would_be_rejected
            }),
        ];
        for (title, outcome, of) in kinds {
            if self
                .sides
                .iter()
                .all(|side| side.totals.policies.iter().all(|total| of(total).top(1).is_empty()))
            {
                continue;
            }
            let class = if self.sides.len() > 1 { "two" } else { "one" };
            push(out, format_args!("<h2>{title}</h2>\n<div class=\"{class}\">\n"));
            for side in &self.sides {
                let all = side.totals.policies.iter().flat_map(|total| of(total).top(TOP));
                let missed = side.totals.policies.iter().map(|total| of(total).missed()).max().unwrap_or(0);
                subject_figure(out, &side.name, all.collect(), missed, outcome)?;
            }
            out.push_str("</div>\n");
        }
        Ok(())
    }

    fn policies(&self, out: &mut String) -> Result<(), Failure> {
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
        let shown: BTreeSet<usize> = {
            let mut by_requests = names.clone();
            by_requests.sort_by_key(|(requests, place, _)| (core::cmp::Reverse(*requests), *place));
            by_requests.iter().take(MOST_POLICIES).map(|(_, place, _)| *place).collect()
        };
        push(out, format_args!("<h2>Policies over time</h2>\n"));
        for (_, _, name) in names.iter().filter(|(_, place, _)| shown.contains(place)) {
            push(out, format_args!("<h3>{}</h3>\n", escaped(name)));
            self.figures(out, name, |side| side.policy(name)?.over_time.as_ref())?;
        }
        let others: Vec<&str> =
            names.iter().filter(|(_, place, _)| !shown.contains(place)).map(|(.., name)| *name).collect();
        if !others.is_empty() {
            push(
                out,
                format_args!(
                    "<p>Without a chart, because they have fewer requests: {}.</p>\n",
                    escaped(&others.join(", "))
                ),
            );
        }
        Ok(())
    }

    /// What changed from the first configuration to the second.
    fn changes(&self, out: &mut String) -> Result<(), Failure> {
        let ([first, second], Some(differences)) = (self.sides.as_slice(), self.differences) else {
            return Ok(());
        };
        let (one, other) = (escaped(&first.name), escaped(&second.name));
        let Differences { same, only_first_rejects, only_second_rejects, other_delay, .. } = differences;
        let (first_would, second_would) = (differences.only_first_would, differences.only_second_would);
        push(
            out,
            format_args!(
                "<h2>What changed</h2>\n<div class=\"scroll\"><table>\n\
                 <tr><td>decided the same<td class=\"number\">{same}</tr>\n\
                 <tr><td>denied by {one} only<td class=\"number\">{only_first_rejects}</tr>\n\
                 <tr><td>denied by {other} only<td class=\"number\">{only_second_rejects}</tr>\n\
                 <tr><td>delayed differently<td class=\"number\">{other_delay}</tr>\n\
                 <tr><td>would be denied by {one} only, in shadow<td class=\"number\">{first_would}</tr>\n\
                 <tr><td>would be denied by {other} only, in shadow<td class=\"number\">{second_would}</tr>\n</table></div>\n"
            ),
        );
        for (subjects, title, outcome) in [
            (&differences.hit, format!("Denied by {other} only"), Outcome::Denied),
            (&differences.released, format!("Denied by {one} only"), Outcome::Admitted),
        ] {
            let top = subjects.top(TOP);
            if !top.is_empty() {
                push(out, format_args!("<h3>{title}</h3>\n<div class=\"one\">\n"));
                subject_figure(out, "requests of these subjects", top, subjects.missed(), outcome)?;
                out.push_str("</div>\n");
            }
        }
        Ok(())
    }
}

/// The chart of the subjects with the highest counts, and a table with their whole names.
fn subject_figure(
    out: &mut String,
    name: &str,
    mut subjects: Vec<(&[u8], u64)>,
    missed: u64,
    outcome: Outcome,
) -> Result<(), Failure> {
    subjects.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
    subjects.truncate(TOP);
    let name = escaped(name);
    push(out, format_args!("<figure>\n"));
    if !subjects.is_empty() {
        for width in [Width::Wide, Width::Narrow] {
            let svg = chart::subjects(&subjects, outcome, width)?;
            push_svg(out, &svg, width, &format!("subjects by count, {name}"));
        }
    }
    let exact = match missed {
        0 => String::new(),
        missed => format!(" Counts may be up to {missed} too low."),
    };
    let none = if subjects.is_empty() { "none. " } else { "" };
    push(out, format_args!("<figcaption>{name}. {none}{exact}</figcaption>\n<table>\n"));
    for (subject, count) in &subjects {
        let subject = escaped(&subject.escape_ascii().to_string());
        push(out, format_args!("<tr><td class=\"number\">{count}<td><code>{subject}</code></tr>\n"));
    }
    out.push_str("</table>\n</figure>\n");
    Ok(())
}

/// Writing to a string cannot fail.
fn push(out: &mut String, text: core::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// A chart, with what it shows for those who do not see it. `label` is escaped.
fn push_svg(out: &mut String, svg: &str, width: Width, label: &str) {
    let rest = svg.strip_prefix("<svg ").unwrap_or(svg);
    push(out, format_args!("<svg class=\"{}\" role=\"img\" aria-label=\"{label}\" {rest}", width.class()));
}

/// A text in HTML, and in its attributes. What a terminal or a browser would obey is escaped.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ if letter.is_control() => out.extend(letter.escape_debug()),
            _ => out.push(letter),
        }
    }
    out
}
