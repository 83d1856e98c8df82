// SPDX-License-Identifier: Apache-2.0
//! Draws what is known. It fits a terminal of 80 columns and 24 rows; on a smaller one, what is at the right and below is cut off.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row as Cells, Table};

use super::super::words;
use super::app::App;
use super::model::{Model, Rate};
use weir::time::Micros;

const FAILURES: usize = 5;

/// The time for which a failure counts as new.
const RECENT: Micros = Micros::from_secs(30);

const HELP: [&str; 13] = [
    "s          order policies by denials, requests, share of denials, name",
    "/          show only policies and subjects whose name contains a text",
    "Esc        clear that text, or quit",
    "p, Space   pause, and go on",
    "↓ ↑, j k   scroll policies and subjects",
    "Home       back to the first",
    "? or h     this help",
    "q, Ctrl-C  quit",
    "",
    "Rates are of the time between the last two samples. Denied: by a limit or a",
    "ban. Shadow: would have been denied. Fallback: decided without Redis, because",
    "it failed. p50, p99: how long Redis took, as Envoy sees it; ping: as this",
    "command sees it. Hot subjects are counted in the journal's newest entries.",
];

pub(super) fn draw(frame: &mut Frame<'_>, app: &App, model: &Model) {
    let [head, totals, store, policies, hot, failures, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_line(app, model)), head);
    frame.render_widget(Paragraph::new(totals_line(model)), totals);
    frame.render_widget(Paragraph::new(store_line(model)), store);
    draw_policies(frame, app, model, policies);
    draw_hot(frame, app, model, hot);
    draw_failures(frame, model, failures);
    frame.render_widget(Paragraph::new(foot_line(app)), foot);
    if app.shows_help {
        draw_help(frame);
    }
}

fn head_line(app: &App, model: &Model) -> Line<'static> {
    let mut spans = vec![Span::from("weir top").bold()];
    let silent = model.now.silent.len();
    let all = model.now.envoys.saturating_add(silent);
    let envoys = match all {
        0 => String::from("  asking the Envoys"),
        _ => format!("  {} of {all} Envoys answer", model.now.envoys),
    };
    spans.push(if silent > 0 { Span::from(envoys).red().bold() } else { Span::from(envoys) });
    if let Some(why) = model.now.silent.first() {
        spans.push(Span::from(format!(": {why}")).red());
    }
    for (name, label) in [("on_lease", "on lease"), ("waiting", "waiting"), ("held", "held")] {
        match model.gauge(name) {
            0 => {}
            value => spans.push(Span::from(format!("  {value} {label}"))),
        }
    }
    if app.is_paused {
        spans.push(Span::from("  paused").reversed());
    }
    Line::from(spans)
}

fn totals_line(model: &Model) -> Line<'static> {
    let requests = model.rate(&["admitted", "rejected"]);
    let rejected = model.rate(&["rejected"]);
    let share = rejected.zip(requests).and_then(|(of, all)| of.saturating_mul(100).checked_div(all));
    let fallback = model.rate(&["fallback"]);
    let text = format!("  {}/s fallback", shown(fallback));
    Line::from(vec![
        Span::from(format!("{}/s requests", shown(requests))),
        Span::from(format!("  {}/s rejected ({})", shown(rejected), percent(share))),
        Span::from(format!("  {}/s banned", shown(model.rate(&["banned"])))),
        if fallback.is_some_and(|rate| rate > 0) { Span::from(text).red() } else { Span::from(text) },
    ])
}

fn store_line(model: &Model) -> Line<'static> {
    let mut spans = vec![Span::from("store").bold()];
    match model.gauge("breaker_open") {
        0 if model.now.envoys == 0 => spans.push(Span::from("  breakers -")),
        0 => spans.push(Span::from("  breakers closed").green()),
        open => spans.push(Span::from(format!("  {open} breakers open")).red().bold()),
    }
    spans.push(Span::from(format!("  {}/s batches", shown(model.rate(&["batches"])))));
    if let Some(latency) = model.latency() {
        let text = format!("  p50 {}  p99 {}", micros(latency.p50), micros(latency.p99));
        spans.push(Span::from(text));
    }
    match &model.now.redis {
        None => {}
        Some(Ok(redis)) => spans.push(Span::from(format!("  ping {}", micros(redis.ping.0)))),
        Some(Err(why)) => spans.push(Span::from(format!("  {why}")).red()),
    }
    Line::from(spans)
}

fn draw_policies(frame: &mut Frame<'_>, app: &App, model: &Model, area: Rect) {
    let rows = app.policies(model);
    let block = titled(format!("policies by {}", app.order.name()));
    if rows.is_empty() {
        let why = if model.now.envoys == 0 {
            ""
        } else if model.now.stats.is_empty() {
            "no statistics of weir yet: it counts from its first request on"
        } else if app.filter.is_empty() {
            "this weir does not count by policy"
        } else {
            "no policy has this name"
        };
        return frame.render_widget(Paragraph::new(why).block(block), area);
    }
    let first = first(app, rows.len(), area);
    let line = |row: &super::model::Row| {
        let by = row.limits.first().map(|(name, _)| name.clone()).unwrap_or_default();
        let denied = Cell::from(right(shown(row.denied), 9));
        let hot = row.denied.is_some_and(|rate| rate > 0);
        Cells::new([
            Cell::from(row.name.clone()),
            Cell::from(right(shown(row.requests), 10)),
            if hot { denied.style(Style::new().fg(Color::Yellow)) } else { denied },
            Cell::from(right(percent(row.share()), 6)),
            Cell::from(right(shown(row.shadow), 8)),
            Cell::from(right(shown(row.fallback), 10)),
            Cell::from(by),
        ])
    };
    let head = ["POLICY", "REQUESTS/s", " DENIED/s", " SHARE", "SHADOW/s", "FALLBACK/s", "MOST BY"];
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(10),
        Constraint::Length(9),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    let table =
        Table::new(rows.iter().skip(first).map(line), widths).header(Cells::new(head).bold()).block(block);
    frame.render_widget(table, area);
}

fn draw_hot(frame: &mut Frame<'_>, app: &App, model: &Model, area: Rect) {
    let Some(Ok(redis)) = &model.now.redis else {
        let why = match model.now.redis {
            None if model.is_new() => "",
            None => "write --redis URL to see which subjects are denied most",
            _ => "Redis does not answer",
        };
        return frame.render_widget(Paragraph::new(why).block(titled("hot subjects".into())), area);
    };
    let mut title = format!("hot subjects, of the last {} denials", redis.denials);
    if redis.skipped > 0 {
        title.push_str(&format!(" ({} more are not in the journal)", redis.skipped));
    }
    let block = titled(title);
    let rows = app.hot(&redis.hot);
    if rows.is_empty() {
        let why = if redis.hot.is_empty() {
            "the journal has no denials; write \"journal\": {} into the configuration to switch it on"
        } else {
            "no subject has this name"
        };
        return frame.render_widget(Paragraph::new(why).block(block), area);
    }
    let first = first(app, rows.len(), area);
    let line = |of: &&super::model::HotSubject| {
        let share = of.denials.saturating_mul(100).checked_div(redis.denials);
        Cells::new([
            right(of.denials.to_string(), 8),
            right(percent(share), 6),
            of.last.clone(),
            of.subject.clone(),
            of.by.clone(),
        ])
    };
    let head = [" DENIALS", " SHARE", "LAST", "SUBJECT", "BY"];
    let widths = [
        Constraint::Length(8),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Fill(3),
        Constraint::Fill(1),
    ];
    let table =
        Table::new(rows.iter().skip(first).map(line), widths).header(Cells::new(head).bold()).block(block);
    frame.render_widget(table, area);
}

fn draw_failures(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let failures = model.failures();
    let mut spans = Vec::new();
    for failure in failures.iter().take(FAILURES) {
        let age = failure.last.map(|last| model.now.at.since(last));
        let mut text = format!("{} {}", failure.kind, failure.total);
        match age {
            Some(age) if age < Micros::from_secs(1) => text.push_str(" (now)"),
            Some(age) => text.push_str(&format!(" ({} ago)", words::span(age))),
            None => {}
        }
        let is_recent = age.is_some_and(|age| age < RECENT);
        spans.push(if is_recent { Span::from(text).red() } else { Span::from(text) });
        spans.push(Span::from("   "));
    }
    if spans.is_empty() && model.now.envoys > 0 {
        spans.push(Span::from("none"));
    }
    let block = titled(String::from("failures"));
    frame.render_widget(Paragraph::new(Line::from(spans)).block(block), area);
}

fn foot_line(app: &App) -> Line<'static> {
    if app.is_typing {
        return Line::from(vec![Span::from("/").bold(), Span::from(format!("{}█", app.filter))]);
    }
    let mut spans = Vec::new();
    for (key, what) in
        [("?", "help"), ("s", "order"), ("/", "filter"), ("p", "pause"), ("↓↑", "scroll"), ("q", "quit")]
    {
        spans.push(Span::from(format!(" {key} ")).reversed());
        spans.push(Span::from(format!(" {what}  ")));
    }
    if !app.filter.is_empty() {
        spans.push(Span::from(format!("only \"{}\"", app.filter)).bold());
    }
    Line::from(spans)
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let height = u16::try_from(HELP.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let width = 79.min(area.width);
    let inner = Rect {
        x: area.x.saturating_add(area.width.saturating_sub(width) / 2),
        y: area.y.saturating_add(area.height.saturating_sub(height) / 2),
        width,
        height,
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, inner);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("keys")), inner);
}

fn titled(title: String) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title.bold())
}

/// The number of rows above that are not shown. The last screen is full.
fn first(app: &App, rows: usize, area: Rect) -> usize {
    let fit = usize::from(area.height.saturating_sub(2));
    app.scroll.min(rows.saturating_sub(fit))
}

/// A rate, in four characters where it is below a million.
fn shown(rate: Rate) -> String {
    match rate {
        None => String::from("-"),
        Some(tenths) if tenths < 1_000 => format!("{}.{}", tenths / 10, tenths % 10),
        Some(tenths) if tenths < 1_000_000 => (tenths / 10).to_string(),
        Some(tenths) => format!("{}k", tenths / 10_000),
    }
}

fn percent(of: Option<u64>) -> String {
    of.map_or_else(|| String::from("-"), |of| format!("{of} %"))
}

fn micros(of: u64) -> String {
    match of {
        0..1_000 => format!("{of} µs"),
        1_000..10_000 => format!("{}.{} ms", of / 1_000, of / 100 % 10),
        _ => format!("{} ms", of / 1_000),
    }
}

fn right(text: String, width: usize) -> String {
    format!("{text:>width$}")
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::app::Order;
    use super::super::model::tests::stats;
    use super::super::model::{HotSubject, RedisView, Sample};
    use super::*;

    fn screen(app: &App, model: &Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app, model)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..height).map(|row| line(row).trim_end().to_owned() + "\n").collect()
    }

    fn busy() -> Model {
        let mut model = Model::default();
        let names = [
            "admitted",
            "rejected",
            "banned",
            "fallback",
            "batches",
            "policy.api.requests.allowed.redis",
            "policy.api.requests.denied.redis",
            "policy.api.limit.minute.requests.denied",
            "policy.login.requests.allowed.redis",
            "policy.login.requests.banned.redis",
            "policy.login.limit.tries.requests.denied",
            "policy.watch.requests.shadow_denied.redis",
            "policy.watch.requests.allowed.on_failure",
            "store.slow",
        ];
        let zero: Vec<_> = names.iter().map(|name| (*name, 1)).collect();
        model.take(Sample {
            at: Micros::from_secs(100),
            envoys: 2,
            stats: stats(&zero),
            ..Sample::default()
        });
        let grown = [2_469, 151, 7, 3, 201, 2_001, 101, 101, 31, 51, 41, 11, 4, 6];
        let mut more: Vec<_> = names.iter().zip(grown).map(|(name, value)| (*name, value)).collect();
        more.extend([("on_lease", 12), ("breaker_open", 0)]);
        let hot = |subject: &str, denials, by: &str| HotSubject {
            policy: "api".into(),
            subject: subject.into(),
            field: "subject",
            denials,
            last: "20:29:19".into(),
            by: by.into(),
        };
        let redis = RedisView {
            ping: Micros(312),
            denials: 200,
            skipped: 40,
            hot: vec![
                hot("{api|192.0.2.1}", 120, "minute"),
                hot("{login|ann|192.0.2.7}", 50, "banned"),
                hot("{api|2001:db8::1}", 30, "minute"),
            ],
        };
        let at = Micros::from_secs(102);
        model.take(Sample {
            at,
            envoys: 2,
            stats: stats(&more),
            redis: Some(Ok(redis)),
            ..Sample::default()
        });
        model
    }

    const SCREEN: &str = "\
weir top  2 of 2 Envoys answer  12 on lease
1309/s requests  75.0/s rejected (5 %)  3.0/s banned  1.0/s fallback
store  breakers closed  100/s batches  ping 312 µs
policies by denied──────────────────────────────────────────────────────────────
POLICY                REQUESTS/s  DENIED/s  SHARE SHADOW/s FALLBACK/s MOST BY
api                         1050      50.0    4 %      0.0        0.0 minute
login                       40.0      25.0   62 %      0.0        0.0 tries
watch                        6.5       0.0    0 %      5.0        1.5




hot subjects, of the last 200 denials (40 more are not in the journal)──────────
 DENIALS  SHARE LAST     SUBJECT                                   BY
     120   60 % 20:29:19 {api|192.0.2.1}                           minute
      50   25 % 20:29:19 {login|ann|192.0.2.7}                     banned
      30   15 % 20:29:19 {api|2001:db8::1}                         minute




failures────────────────────────────────────────────────────────────────────────
slow 6 (now)
 ?  help   s  order   /  filter   p  pause   ↓↑  scroll   q  quit
";

    #[test]
    fn all_is_on_a_small_terminal() {
        let found = screen(&App::default(), &busy(), 80, 24);
        assert_eq!(found, SCREEN, "\n{found}");
    }

    #[test]
    fn what_is_chosen_shows() {
        let line = |screen: &str, begin: &str| {
            screen.lines().find(|line| line.contains(begin)).unwrap_or_default().to_owned()
        };
        let app = App { order: Order::Share, filter: "LOGIN".into(), is_paused: true, ..App::default() };
        let found = screen(&app, &busy(), 80, 24);
        assert!(
            found.contains("policies by share")
                && found.contains("paused")
                && found.contains("only \"LOGIN\"")
        );
        assert!(found.contains("{login|ann|192.0.2.7}") && !found.contains("{api|192.0.2.1}"), "{found}");
        assert_eq!(line(&found, "1050"), "", "{found}");
        let app = App { is_typing: true, filter: "nobody".into(), ..App::default() };
        let found = screen(&app, &busy(), 80, 24);
        assert!(found.contains("/nobody█") && found.contains("no policy has this name"), "{found}");
        let app = App { shows_help: true, ..App::default() };
        let found = screen(&app, &busy(), 80, 24);
        assert!(HELP.iter().all(|help| found.contains(help)), "{found}");
        let app = App { scroll: 1_000, ..App::default() };
        let found = screen(&app, &busy(), 80, 16);
        assert!(found.contains("watch") && found.contains("2001:db8"), "the last screen is full: {found}");
    }

    #[test]
    fn what_is_wrong_shows() {
        let mut model = busy();
        let redis = Some(Err(String::from("Redis at redis:6379: Connection refused")));
        let silent = vec![String::from("127.0.0.1:9901: Connection refused")];
        let stats = stats(&[("breaker_open", 3), ("store.slow", 9), ("store.noauth", 2)]);
        model.take(Sample { at: Micros::from_secs(140), envoys: 1, silent, stats, redis });
        let found = screen(&App::default(), &model, 120, 24);
        for wanted in [
            "1 of 2 Envoys answer: 127.0.0.1:9901: Connection refused",
            "3 breakers open  -/s batches  Redis at redis:6379: Connection refused",
            "Redis does not answer",
            "this weir does not count by policy",
            "slow 9 (38 s ago)   noauth 2",
        ] {
            assert!(found.contains(wanted), "{wanted}: {found}");
        }
        let mut model = Model::default();
        model.take(Sample { envoys: 1, ..Sample::default() });
        let found = screen(&App::default(), &model, 80, 24);
        assert!(
            found.contains("no statistics of weir yet") && found.contains("write --redis URL"),
            "{found}"
        );
    }

    #[test]
    fn before_the_first_answer_nothing_is_claimed() {
        let found = screen(&App::default(), &Model::default(), 80, 24);
        assert!(found.contains("asking the Envoys"), "{found}");
        for claim in ["Envoys answer", "no statistics", "--redis", "none", "breakers closed"] {
            assert!(!found.contains(claim), "{claim}: {found}");
        }
    }

    #[test]
    fn any_size_of_terminal_is_drawn() {
        let help = App { shows_help: true, ..App::default() };
        for (width, height) in [(1, 1), (3, 2), (20, 5), (79, 23), (300, 100)] {
            screen(&App::default(), &busy(), width, height);
            screen(&help, &busy(), width, height);
        }
    }

    #[test]
    fn rates_stay_short() {
        let rows = [
            (None, "-"),
            (Some(0), "0.0"),
            (Some(999), "99.9"),
            (Some(1_000), "100"),
            (Some(1_234_567), "123k"),
        ];
        for (rate, wanted) in rows {
            assert_eq!(shown(rate), wanted);
        }
    }
}
