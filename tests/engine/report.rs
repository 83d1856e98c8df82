//! Statistics are exported on a tick: together, 100 ms after the first change at the latest, and nothing is lost.

use std::collections::BTreeMap;

use weir::engine::{Export, MetricName, Metrics, Report};

use crate::worker::*;

/// What a host has been told, and in how many calls.
#[derive(Default)]
struct Host {
    values: BTreeMap<String, i64>,
    calls: usize,
    refuses: bool,
}

impl Host {
    fn add(&mut self, (prefix, name): MetricName, by: i64) -> bool {
        self.calls += 1;
        if !self.refuses {
            *self.values.entry(format!("{prefix}{name}")).or_default() += by;
        }
        !self.refuses
    }

    fn of(&self, name: &str) -> i64 {
        self.values.get(name).copied().unwrap_or(0)
    }
}

impl Metrics for Host {
    fn count(&mut self, name: MetricName, by: u64) -> bool {
        self.add(name, i64::try_from(by).expect("few"))
    }

    fn change(&mut self, name: MetricName, by: i64) -> bool {
        self.add(name, by)
    }
}

/// A worker, and the host that exports its statistics.
struct Exporting {
    worker: Worker,
    report: Report,
    host: Host,
}

impl Exporting {
    fn new(store: &str) -> Self {
        let worker = Worker::new(store, [policy(BUCKET)]);
        let mut new = Self { worker, report: Report::default(), host: Host::default() };
        // The first export makes the names known.
        new.pass(ms(100));
        new
    }

    fn look(&mut self) -> Export {
        let export = self.report.look(&self.worker.engine, self.worker.now);
        if export == Export::Now {
            self.report.export(&mut self.worker.engine, &mut self.host, self.worker.now);
        }
        export
    }

    /// A turn in each millisecond.
    fn pass(&mut self, span: weir::time::Micros) {
        self.look();
        let end = self.worker.now.plus(span);
        while self.worker.now < end {
            self.worker.idle(ms(1));
            self.look();
        }
    }

    /// A request is admitted.
    fn admit(&mut self, stream: u32) {
        self.worker.all_wait([stream], "ann");
        let batch = self.worker.batch();
        assert_eq!(self.worker.reply(&batch, [granted(1)]), [(stream, true)]);
        self.worker.close(stream);
    }
}

#[test]
fn the_first_export_makes_every_name_known() {
    let exporting = Exporting::new(ALLOW);
    let names: Vec<_> = exporting.host.values.into_iter().collect();
    let known = [
        "admitted",
        "banned",
        "batches",
        "bodies_unreadable",
        "breaker_open",
        "commands",
        "fallback",
        "on_lease",
        "rejected",
        "settlements_lost",
        "units_charged",
        "units_refunded",
    ];
    assert_eq!(names, known.map(|name| (format!("weir.{name}"), 0)));
}

#[test]
fn what_changes_is_exported_together_a_tick_after_the_first_change() {
    let mut exporting = Exporting::new(ALLOW);
    let begin = exporting.host.calls;
    exporting.admit(1);
    let due = exporting.worker.now.plus(ms(100));
    assert_eq!(exporting.look(), Export::At(due));
    assert_eq!(exporting.report.due(), Some(due), "the host's timer needs it");
    exporting.worker.skip(ms(99));
    for stream in 2..10 {
        exporting.admit(stream);
        assert_eq!(exporting.look(), Export::Nothing);
    }
    assert_eq!(exporting.host.calls, begin);
    exporting.worker.skip(ms(1));
    assert_eq!(exporting.look(), Export::Now);
    let counts = ["admitted", "batches", "commands"].map(|name| exporting.host.of(&format!("weir.{name}")));
    assert_eq!((counts, exporting.host.calls - begin), ([9, 9, 9], 3), "a call for each that has changed");
}

#[test]
fn an_idle_worker_exports_nothing_and_needs_no_tick() {
    let mut exporting = Exporting::new(ALLOW);
    exporting.admit(1);
    exporting.pass(ms(100));
    let begin = exporting.host.calls;
    for _ in 0..1_000 {
        exporting.worker.idle(ms(1));
        assert_eq!((exporting.look(), exporting.report.due()), (Export::Nothing, None));
    }
    assert_eq!(exporting.host.calls, begin);
}

#[test]
fn a_failure_is_exported_also_when_no_counter_changes() {
    let mut exporting = Exporting::new(ALLOW);
    exporting.worker.all_wait([1], "ann");
    let batch = exporting.worker.batch();
    exporting.worker.close(1);
    exporting.pass(ms(100));
    assert_eq!(exporting.report.due(), None);
    exporting.worker.fail(&batch);
    exporting.pass(ms(100));
    assert_eq!(exporting.host.of("weir.store.refused"), 1);
}

#[test]
fn a_gauge_is_exported_also_when_no_counter_changes() {
    let mut exporting = Exporting::new(ALLOW);
    exporting.worker = Worker::new(ALLOW, [leased(r#"{"max": 8, "min": 2, "duration": "1s"}"#, WINDOW)]);
    exporting.report = Report::default();
    assert_eq!(exporting.worker.arrive(1, &["ann"]), None);
    let batch = exporting.worker.batch();
    exporting.worker.reply(&batch, [granted(2).remaining(97).reset(MINUTE)]);
    exporting.pass(ms(100));
    let on_lease = exporting.worker.engine.on_lease();
    assert_eq!((on_lease, exporting.host.of("weir.on_lease")), (1, 1));
    // The lease ends by time.
    exporting.pass(secs(2));
    assert_eq!((exporting.worker.engine.on_lease(), exporting.host.of("weir.on_lease")), (0, 0));
}

/// A retired worker may have no later turn.
#[test]
fn a_retired_worker_exports_at_once() {
    let mut exporting = Exporting::new(ALLOW);
    exporting.admit(1);
    assert!(matches!(exporting.look(), Export::At(_)));
    exporting.worker.engine.retire();
    assert_eq!(exporting.look(), Export::Now, "what waited for its tick");
    assert_eq!(exporting.host.of("weir.admitted"), 1);
    exporting.admit(2);
    assert_eq!(exporting.look(), Export::Now);
    assert_eq!(exporting.host.of("weir.admitted"), 2);
    assert_eq!(exporting.look(), Export::Nothing);
}

#[test]
fn a_clock_that_is_set_back_delays_no_export() {
    for back in [ms(1), ms(99), secs(3_600)] {
        let mut exporting = Exporting::new(ALLOW);
        exporting.admit(1);
        exporting.look();
        exporting.worker.set_back(back);
        let begin = exporting.worker.now;
        while exporting.host.of("weir.admitted") == 0 {
            exporting.worker.skip(ms(1));
            exporting.look();
        }
        assert!(exporting.worker.now.since(begin) <= ms(200), "{back:?}");
    }
}

#[test]
fn what_the_host_refuses_is_exported_later() {
    let mut exporting = Exporting::new(ALLOW);
    exporting.host.refuses = true;
    exporting.admit(1);
    exporting.pass(ms(150));
    exporting.host.refuses = false;
    exporting.pass(ms(100));
    assert_eq!(exporting.host.of("weir.admitted"), 1);
}
