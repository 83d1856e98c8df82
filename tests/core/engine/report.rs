// SPDX-License-Identifier: Apache-2.0
//! Statistics are exported on a tick: together, 100 ms after the first change at the latest, and nothing is lost.

use std::cell::RefCell;
use std::collections::BTreeMap;

use weir::config::Config;
use weir::engine::{Catalogue, Export, Kind, Metric, Metrics, Report, StreamId};

use crate::engine::regions::{DEBIT, worker};
use crate::worker::*;

/// The calls of a host: the values, and the number of calls.
pub struct Host {
    catalogue: Catalogue,
    pub values: BTreeMap<String, i64>,
    pub recorded: Vec<(String, i64)>,
    calls: usize,
    /// The metrics whose names contain this.
    refuses: Option<&'static str>,
}

impl Host {
    pub fn new(config: &Config) -> Self {
        let catalogue = Catalogue::of(config);
        Self { catalogue, values: BTreeMap::new(), recorded: Vec::new(), calls: 0, refuses: None }
    }

    fn name(&self, metric: Metric) -> String {
        self.catalogue.rows()[metric.place].name.to_string()
    }

    fn refuses(&self, name: &str) -> bool {
        self.refuses.is_some_and(|part| name.contains(part))
    }

    pub fn of(&self, name: &str) -> i64 {
        assert!(self.catalogue.rows().iter().any(|known| known.name == name), "{name} is no metric");
        self.values.get(name).copied().unwrap_or(0)
    }
}

impl Metrics for Host {
    fn add(&mut self, metric: Metric, value: i64) -> bool {
        let name = self.name(metric);
        let takes = !self.refuses(&name);
        if metric.kind == Kind::Histogram {
            self.recorded.push((name, value));
            return takes;
        }
        self.calls += 1;
        if takes {
            *self.values.entry(name).or_default() += value;
        }
        takes
    }
}

/// A worker, and the host that exports its statistics.
pub struct Exporting {
    pub worker: Worker,
    report: Report,
    pub host: Host,
}

impl Exporting {
    fn new(store: &str) -> Self {
        Self::of(Worker::new(store, [policy(BUCKET)]))
    }

    pub fn of(worker: Worker) -> Self {
        let config = worker.engine.config();
        let (report, host) = (Report::new(config), Host::new(config));
        Self { worker, report, host }
    }

    fn leasing() -> Self {
        Self::of(Worker::new(ALLOW, [leased(r#"{"max": 8, "min": 2, "duration": "1s"}"#, WINDOW)]))
    }

    pub fn look(&mut self) -> Export {
        let export = self.report.look(&self.worker.engine, self.worker.now);
        if export == Export::Now {
            self.report.export(&mut self.worker.engine, &mut self.host, self.worker.now);
        }
        export
    }

    /// The names of the gauges that contain something of this worker, and what, in order.
    pub fn gauges(&self) -> Vec<(String, u64)> {
        let gauges = self.report.gauges();
        let mut gauges: Vec<_> = gauges.map(|(metric, value)| (self.host.name(metric), value)).collect();
        gauges.sort_unstable();
        gauges
    }

    /// A turn in each millisecond.
    pub fn pass(&mut self, span: weir::time::Micros) {
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
    assert_eq!(counts, [9, 9, 9]);
    let of_policy = ["weir.policy.p0.requests.allowed.redis", "weir.policy.p0.limit.l.requests.allowed"];
    assert_eq!(of_policy.map(|name| exporting.host.of(name)), [9, 9]);
    let usage = ["weir.policy.p0.units_reserved", "weir.policy.p0.limit.l.asked.50"];
    assert_eq!(usage.map(|name| exporting.host.of(name)), [9, 9]);
    assert_eq!(exporting.host.calls - begin, 7, "a call for each that has changed");
}

#[test]
fn what_policies_decide_is_exported_each_time() {
    let mut exporting = Exporting::new(ALLOW);
    for decided in 1..=3 {
        exporting.admit(1);
        exporting.pass(ms(101));
        assert_eq!(exporting.host.of("weir.policy.p0.requests.allowed.redis"), decided);
    }
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
fn what_became_of_a_batch_is_exported_also_when_no_counter_changes() {
    for fails in [true, false] {
        let mut exporting = Exporting::new(ALLOW);
        exporting.worker.all_wait([1], "ann");
        let batch = exporting.worker.batch();
        exporting.worker.close(1);
        exporting.pass(ms(100));
        assert_eq!(exporting.report.due(), None);
        if fails {
            exporting.worker.fail(&batch);
        } else {
            exporting.worker.reply(&batch, [denied(ms(1))]);
        }
        exporting.pass(ms(100));
        assert_eq!(exporting.host.of("weir.store.refused"), i64::from(fails));
        let names: Vec<_> = exporting.host.recorded.iter().map(|(name, _)| name.as_str()).collect();
        let expected = ["weir.store_latency_us", "weir.batch_tasks"];
        assert_eq!(names, if fails { &[][..] } else { &expected });
    }
}

#[test]
fn a_gauge_is_exported_also_when_no_counter_changes() {
    let mut exporting = Exporting::leasing();
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

/// Of the engine, of a policy and its limit, of a region, and of a policy there.
#[test]
fn what_the_host_refuses_is_exported_later() {
    #[rustfmt::skip]
    let expected = [
        ("weir.batches", 1), ("weir.policy.p0.requests.allowed.redis", 1), ("weir.policy.p0.limit.l.requests.allowed", 1),
        ("weir.peer.bom.debits_waiting", 1), ("weir.peer.cle.debits_waiting", 1),
        ("weir.policy.p0.peer.bom.debits_unanswered", 1), ("weir.policy.p0.peer.cle.debits_unanswered", 1),
    ];
    for refused in [""].into_iter().chain(expected.map(|(name, _)| name)) {
        let mut exporting = Exporting::of(worker(&[DEBIT]));
        assert_eq!(exporting.worker.arrive_under(1, &[0]), None);
        exporting.worker.answer([granted(1)]);
        for refuses in [Some(refused), None] {
            exporting.host.refuses = refuses;
            for _ in 0..4 {
                exporting.worker.skip(ms(100));
                exporting.look();
            }
        }
        assert_eq!(expected.map(|(name, _)| (name, exporting.host.of(name))), expected, "{refused}");
    }
}

// --- The log ----------------------------------------------------------------------------------------------------------

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what each test logs apart: a test is a thread.
struct Log;

impl log::Log for Log {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Returns the log lines since the last call.
pub fn logged() -> Vec<String> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Log).expect("no other");
        log::set_max_level(log::LevelFilter::Trace);
    });
    LINES.take()
}

#[test]
fn a_kind_of_failure_is_logged_once_a_second_and_counted_each_time() {
    let mut exporting = Exporting::new(ALLOW);
    logged();
    let fail = |exporting: &mut Exporting, stream, text: &str| {
        // Of slots of its own, so that no breaker opens.
        assert_eq!(exporting.worker.arrive(stream, &[&format!("{stream}")]), None);
        exporting.worker.answer([error(text)]);
        exporting.worker.close(stream);
        exporting.pass(ms(100));
    };
    fail(&mut exporting, 1, "OOM command not allowed");
    let advice =
        "store: \"OOM command not allowed\": raise `maxmemory`, or set `maxmemory-policy volatile-ttl`";
    assert_eq!(logged(), [advice]);
    fail(&mut exporting, 2, "OOM command not allowed");
    fail(&mut exporting, 3, "READONLY You can't write");
    let other =
        "store: \"READONLY You can't write\": Envoy is connected to a replica: let it find the primary";
    assert_eq!(logged(), [other], "each kind by itself");
    exporting.pass(secs(1));
    fail(&mut exporting, 4, "OOM command not allowed");
    assert_eq!(logged(), [format!("{advice} (1 more of its kind since)")]);
    assert_eq!((exporting.host.of("weir.store.oom"), exporting.host.of("weir.store.readonly")), (3, 1));
    exporting.host.refuses = Some("");
    exporting.pass(secs(1));
    fail(&mut exporting, 5, "READONLY You can't write");
    assert!(
        logged().iter().any(|line| line.starts_with("this failure cannot be counted: store: \"READONLY"))
    );
}

/// Answers no request until the breaker opens. Returns the last request.
fn lose_the_store(exporting: &mut Exporting) -> StreamId {
    let mut stream = 0;
    while exporting.worker.engine.open_breakers() == 0 {
        stream += 1;
        if exporting.worker.arrive(stream, &["ann"]).is_none() {
            exporting.worker.lose();
        }
        exporting.worker.close(stream);
    }
    stream
}

#[test]
fn an_outage_is_logged_once_a_second_with_how_long_it_has_lasted() {
    let mut exporting = Exporting::new(ALLOW);
    logged();
    let mut stream = lose_the_store(&mut exporting);
    for _ in 0..35 {
        exporting.worker.idle(ms(100));
        exporting.report.export(&mut exporting.worker.engine, &mut exporting.host, exporting.worker.now);
    }
    let about: Vec<_> = logged().into_iter().filter(|line| line.starts_with("store unavailable")).collect();
    let line = |seconds: u8| format!("store unavailable for {seconds} s: limits are decided by `on_failure`");
    assert_eq!(about, [line(0), line(1), line(2), line(3)]);
    // It is over, and another begins: that is logged at once.
    let mut answered = false;
    while !answered {
        exporting.worker.idle(ms(10));
        stream += 1;
        if exporting.worker.arrive(stream, &["ann"]).is_none() {
            answered = exporting.worker.answer([granted(1)]) == [(stream, true)];
        }
        exporting.worker.close(stream);
    }
    exporting.report.export(&mut exporting.worker.engine, &mut exporting.host, exporting.worker.now);
    let said = logged();
    let [line] = said.as_slice() else { panic!("{said:?}") };
    let lasted = line.strip_prefix("store available again after ").and_then(|rest| rest.strip_suffix(" s"));
    let lasted = lasted.and_then(|seconds| seconds.parse::<u64>().ok()).expect(line);
    assert!((4..10).contains(&lasted), "{line}");
    // Once.
    exporting.report.export(&mut exporting.worker.engine, &mut exporting.host, exporting.worker.now);
    assert_eq!(logged(), [] as [String; 0]);
}

#[test]
fn a_store_about_which_no_request_asks_counts_as_no_outage() {
    let mut exporting = Exporting::new(ALLOW);
    let stream = lose_the_store(&mut exporting);
    let begun = exporting.worker.now;
    // Only when a tick is due.
    while let Some(due) = exporting.worker.next_tick() {
        assert_eq!(exporting.worker.engine.open_breakers(), 1, "{due:?}");
        exporting.worker.now = due;
        exporting.worker.engine.tick(due);
    }
    let lasted = exporting.worker.now.since(begun);
    assert!((secs(120)..secs(122)).contains(&lasted), "{lasted:?}");
    assert_eq!(exporting.worker.engine.open_breakers(), 0, "perhaps it is back, and nobody looks");
    assert_eq!(exporting.worker.arrive(stream + 1, &["ann"]), None, "a request is the probe");
    assert_eq!(exporting.worker.lose(), [(stream + 1, true)]);
    assert_eq!(exporting.worker.engine.open_breakers(), 1);
}

#[test]
fn an_outage_of_some_subjects_says_how_many() {
    let mut exporting = Exporting::new(ALLOW);
    for stream in 1..20 {
        if exporting.worker.arrive(stream, &["ann"]).is_none() {
            exporting.worker.answer([error("OOM command not allowed")]);
        }
        exporting.worker.close(stream);
    }
    logged();
    exporting.report.export(&mut exporting.worker.engine, &mut exporting.host, exporting.worker.now);
    let line = "store answers for some subjects only, for 0 s: `on_failure` decides the others (1 of 64 groups of subjects)";
    assert_eq!(logged().last().map(String::as_str), Some(line));
}

#[test]
fn an_attribute_that_cannot_be_read_is_counted_and_logged() {
    let mut exporting = Exporting::new(ALLOW);
    logged();
    exporting.report.unreadable(
        &["the attribute a", "the attribute b"],
        &mut exporting.host,
        exporting.worker.now,
    );
    assert_eq!(exporting.host.of("weir.attribute_unreadable"), 2);
    assert_eq!(logged(), ["the attribute a"], "the other within the same second");
}

/// When a worker ends, its host takes them out of the gauges that all workers share.
#[test]
fn a_report_knows_what_the_gauges_have_of_its_worker() {
    let mut exporting = Exporting::leasing();
    assert_eq!(exporting.gauges(), []);
    assert_eq!(exporting.worker.arrive(1, &["ann"]), None);
    exporting.worker.answer([granted(3).remaining(97).reset(MINUTE)]);
    exporting.pass(ms(100));
    assert_eq!(exporting.worker.engine.on_lease(), 2);
    assert_eq!(exporting.gauges(), [("weir.on_lease".to_owned(), 2)], "nothing waits any more");
}
