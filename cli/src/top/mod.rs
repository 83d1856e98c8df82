// SPDX-License-Identifier: Apache-2.0
//! `weir top`: what weir does now, from Envoy's statistics and from Redis, on a terminal.

mod app;
mod model;
mod poll;
mod stats;
mod view;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;

use clap::Args;
use crossterm::cursor::Show;
use crossterm::event::{self, Event, KeyEventKind};
use crossterm::execute;
use serde_json::{Value, json};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use super::journal::prefix;
use super::store::Place;
use super::{Ended, Found, date, failed, words};
use app::App;
use model::{Model, Rate};
use poll::Sources;
use weir::time::Micros;

/// The time to wait for a key before the next sample is read.
const TURN: Duration = Duration::from_millis(100);

/// The Envoys and stores to show.
#[derive(Args)]
pub(super) struct Arguments {
    /// The admin port of an Envoy. Repeat it for several Envoys. While one does not answer, `top` shows no rates.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9901", value_parser = admin)]
    admin: Vec<String>,
    /// The time between two looks.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// The `store.key_prefix` of the configuration.
    #[arg(long, default_value = "weir", value_parser = prefix)]
    prefix: String,
    /// Print a line every interval, in place of the view.
    #[arg(long)]
    json: bool,
    /// End after so many lines of JSON.
    #[arg(long, value_name = "N", requires = "json", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    place: Place,
}

fn admin(text: &str) -> Result<String, String> {
    let place = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let is_plain = |of: char| of.is_ascii_alphanumeric() || "-._:[]".contains(of);
    let port = place.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match port {
        Some((host, _)) if !host.is_empty() && place.chars().all(is_plain) => Ok(place.to_owned()),
        _ => Err(String::from("allowed is host:port, such as 127.0.0.1:9901")),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let bounds = Micros::from_millis(100)..=Micros::from_secs(60);
    date::duration(text, bounds, "allowed is 100ms to 60s").map(|of| Duration::from_micros(of.0))
}

/// Looks, until the operator quits.
pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let has_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !arguments.json && !has_terminal {
        return Err(String::from("the view needs a terminal: elsewhere, write --json").into());
    }
    let place = arguments.place.clone();
    let sources = Sources {
        admins: arguments.admin.clone(),
        redis: place
            .is_given()
            .then(|| -> Box<dyn Fn() -> _ + Send> { Box::new(move || place.connect_quietly()) }),
        prefix: arguments.prefix.clone(),
        interval: arguments.interval,
        timeout: arguments.place.timeout(),
    };
    if arguments.json { lines(sources, arguments.count, out) } else { view(sources) }
}

/// Prints a line for each sample but the first, which has no rates.
fn lines(sources: Sources, count: Option<u64>, out: &mut impl io::Write) -> Result<Found, Ended> {
    let samples = poll::begin(sources);
    let (mut model, mut printed) = (Model::default(), 0_u64);
    let mut is_first = true;
    for sample in samples {
        model.take(sample);
        if core::mem::take(&mut is_first) {
            continue;
        }
        writeln!(out, "{}", words::json(&json(&model))).and_then(|()| out.flush()).map_err(failed)?;
        printed = printed.saturating_add(1);
        if count.is_some_and(|count| printed >= count) {
            break;
        }
    }
    Ok(Found::Nothing)
}

fn json(model: &Model) -> Value {
    // Rates are in tenths, and JSON has fractions.
    let rate = |of: Rate| of.and_then(|of| format!("{}.{}", of / 10, of % 10).parse::<f64>().ok());
    let policies = model.policies();
    let policies = policies.iter().map(|row| {
        json!({
            "policy": row.name,
            "requests_per_s": rate(row.requests),
            "denied_per_s": rate(row.denied),
            "shadow_per_s": rate(row.shadow),
            "fallback_per_s": rate(row.fallback),
        })
    });
    let failures = model.failures();
    let failures =
        failures.iter().map(|of| json!({"kind": of.kind, "total": of.total, "per_s": rate(of.rate)}));
    let redis = model.now.redis.as_ref().map(|redis| match redis {
        Err(why) => json!({ "error": why }),
        Ok(redis) => {
            let hot = redis.hot.iter().map(|of| json!({"policy": of.policy, (of.field): of.subject, "denials": of.denials}));
            json!({ "ping_us": redis.ping.0, "denials": redis.denials, "skipped": redis.skipped, "hot": hot.collect::<Vec<_>>() })
        }
    });
    let totals = ["admitted", "rejected", "banned", "fallback", "batches"];
    let totals = totals.map(|name| (format!("{name}_per_s"), json!(rate(model.rate(&[name])))));
    let gauges =
        ["breaker_open", "on_lease", "waiting"].map(|name| (name.to_owned(), model.gauge(name).into()));
    let mut line: serde_json::Map<String, Value> = totals.into_iter().chain(gauges).collect();
    line.extend([
        (String::from("envoys"), model.now.envoys.into()),
        (String::from("silent"), json!(model.now.silent)),
        (String::from("store_p50_us"), json!(model.latency().map(|of| of.p50))),
        (String::from("store_p99_us"), json!(model.latency().map(|of| of.p99))),
        (String::from("policies"), policies.collect()),
        (String::from("failures"), failures.collect()),
        (String::from("redis"), json!(redis)),
    ]);
    Value::Object(line)
}

/// The terminal as it was, however the view ends.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
        show_cursor();
    }
}

fn show_cursor() {
    // A failure here cannot be shown.
    let _ = execute!(io::stdout(), Show);
}

fn view(sources: Sources) -> Result<Found, Ended> {
    let is_told = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_told)).map_err(failed)?;
    }
    // `ratatui` restores the terminal after a panic, but for the cursor, where a panic does not unwind.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        show_cursor();
        hook(panic);
    }));
    let restored = Restored;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let samples = poll::begin(sources);
    let (mut app, mut model) = (App::default(), Model::default());
    let mut is_changed = true;
    while !app.is_over && !is_told.load(Ordering::Relaxed) {
        if is_changed {
            terminal.draw(|frame| view::draw(frame, &app, &model)).map_err(failed)?;
            panic_for_tests();
        }
        is_changed = event::poll(TURN).map_err(failed)?;
        if is_changed
            && let Event::Key(key) = event::read().map_err(failed)?
            && key.kind != KeyEventKind::Release
        {
            app.press(key);
        }
        match samples.try_recv() {
            Ok(_) if app.is_paused => {}
            Ok(sample) => {
                model.take(sample);
                is_changed = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(String::from("it has stopped asking Envoy and Redis").into());
            }
        }
    }
    drop(restored);
    Ok(Found::Nothing)
}

/// Lets a test see the terminal after a panic. The released command never panics here.
fn panic_for_tests() {
    #[cfg(debug_assertions)]
    #[expect(clippy::panic, reason = "that is what it is for")]
    if std::env::var_os("WEIR_TOP_PANICS").is_some() {
        panic!("WEIR_TOP_PANICS is set");
    }
}
