// SPDX-License-Identifier: Apache-2.0
//! The pictures and the table of `docs/concepts.md`: what each algorithm makes of the same arrivals. The core itself decides each
//! request, and the pictures show nothing else. `WEIR_UPDATE=1` writes them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use weir::limit::{
    Align, Ask, Concurrency, FixedWindow, LeakyBucket, Limit, Permits, Refill, SlidingLog, SlidingWindow,
    Subject, TokenBucket,
};
use weir::time::Micros;

mod picture;

/// The window of all limits in the table, which the pictures mark on the axis.
const WINDOW: Micros = Micros::from_secs(10);
/// The end of the pictures.
const END: Micros = Micros::from_secs(36);
/// The duration of each request. Only `concurrency` depends on it.
const LASTS: Micros = Micros::from_secs(2);
/// Begins a window, so that the axis and the windows of `align: clock` agree.
const EPOCH: Micros = Micros::from_secs(1_789_999_200);

const ONE: Ask = Ask::new(1, 1);

/// One algorithm of the page.
struct Case {
    /// The file's name, without its end.
    file: &'static str,
    title: &'static str,
    limit: Limit,
    /// True if the table compares what passes in 10 s: `concurrency` does not count over time.
    over_time: bool,
}

/// The decision about one request.
#[derive(Clone, Copy)]
pub struct Decision {
    pub arrives: Micros,
    /// The time at which it passes, if it does: later than it arrives if it is held.
    pub passes: Option<Micros>,
}

/// The decisions of a limit about the arrivals.
pub struct Run {
    pub decisions: Vec<Decision>,
    /// The units left, every 100 ms, of the most that can be left.
    pub left: Vec<(Micros, i64)>,
    pub quota: i64,
}

fn cases() -> Vec<Case> {
    let second = Micros::from_secs(1);
    let case = |file, title, limit| Case { file, title, limit, over_time: true };
    vec![
        case(
            "fixed_window",
            "fixed_window: limit 10, window 10s",
            FixedWindow::new(10, WINDOW, Align::Clock).unwrap().into(),
        ),
        case("sliding_log", "sliding_log: limit 10, window 10s", SlidingLog::new(10, WINDOW).unwrap().into()),
        case(
            "sliding_window",
            "sliding_window: limit 10, window 10s, precision 10s",
            SlidingWindow::new(10, WINDOW, WINDOW).unwrap().into(),
        ),
        case(
            "token_bucket",
            "token_bucket: capacity 10, refill 1 each 1s",
            TokenBucket::new(10, 1, second, Refill::Continuous, 0).unwrap().into(),
        ),
        case(
            "leaky_bucket",
            "leaky_bucket: rate 1/s, burst 1, max_delay 6s",
            LeakyBucket::new(1, second, 1, Micros::from_secs(6)).unwrap().into(),
        ),
        Case {
            over_time: false,
            ..case(
                "concurrency",
                "concurrency: limit 4, each request lasts 2 s",
                Concurrency::new(4, Micros::from_secs(60)).unwrap().into(),
            )
        },
    ]
}

/// Twelve requests before the end of the first window, twelve after its end, and then two each second.
fn arrivals() -> Vec<Micros> {
    let burst = |from: u64| (0..12).map(move |place| Micros::from_millis(from + 100 * place));
    let steady = (0..20).map(|place| Micros::from_millis(18_000 + 500 * place));
    burst(8_400).chain(burst(10_400)).chain(steady).collect()
}

/// Asks the limit about each arrival, in order.
fn run(limit: &Limit) -> Run {
    let limits = std::slice::from_ref(limit);
    let mut subject = Subject::default();
    let (mut decisions, mut left) = (Vec::new(), Vec::new());
    let mut held: Vec<(Micros, Vec<Permits>)> = Vec::new();
    let mut arrivals = arrivals().into_iter().peekable();
    for millis in (0..=END.0 / 1_000).step_by(100) {
        let now = Micros::from_millis(millis);
        for (_, permits) in held.extract_if(.., |(end, _)| *end <= now) {
            subject.release(&permits);
        }
        while let Some(arrives) = arrivals.next_if(|arrives| *arrives <= now) {
            let outcome = subject.check(limits, None, EPOCH.plus(arrives), ONE);
            let allotment = outcome.allotment(limits, 0, ONE);
            let passes = allotment.granted.then(|| arrives.plus(allotment.delay));
            if passes.is_some() {
                held.push((arrives.plus(LASTS), outcome.permits(1).collect()));
            }
            decisions.push(Decision { arrives, passes });
        }
        // A question without requests takes nothing.
        let outcome = subject.clone().check(limits, None, EPOCH.plus(now), Ask::new(0, 1));
        left.push((now, outcome.limits[0].remaining.max(0)));
    }
    assert_eq!(arrivals.next(), None, "every arrival is before the end");
    let ends = |decision: &Decision| decision.passes.is_none_or(|at| at < END);
    assert!(decisions.iter().all(ends), "a dot behind the end of the picture");
    Run { decisions, left, quota: i64::try_from(limit.quota()).unwrap() }
}

/// The most requests that pass within any ten seconds.
fn most_in_a_window(decisions: &[Decision]) -> usize {
    let passed: Vec<Micros> = decisions.iter().filter_map(|decision| decision.passes).collect();
    let within =
        |from: &Micros| passed.iter().filter(|at| (from.0..from.plus(WINDOW).0).contains(&at.0)).count();
    passed.iter().map(within).max().unwrap_or_default()
}

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(of)
}

fn updates() -> bool {
    std::env::var_os("WEIR_UPDATE").is_some()
}

#[test]
fn the_pictures_are_what_the_core_decides() {
    for case in cases() {
        let drawn = picture::draw(case.title, &run(&case.limit));
        let path = path(&format!("concepts/{}.svg", case.file));
        if updates() {
            fs::write(&path, &drawn).expect("written");
        }
        let shown = fs::read_to_string(&path).unwrap_or_default();
        assert!(shown == drawn, "{} is not what the core decides; WEIR_UPDATE=1 writes it", path.display());
    }
}

#[test]
fn the_table_is_what_the_core_decides() {
    let mut table = String::from(
        "| algorithm | pass at once | pass later | denied | the most that pass within any 10 s |\n|---|---|---|---|---|\n",
    );
    for case in cases() {
        let decisions = run(&case.limit).decisions;
        let count = |of: fn(&Decision) -> bool| decisions.iter().filter(|decision| of(decision)).count();
        let at_once = count(|decision| decision.passes == Some(decision.arrives));
        let later = count(|decision| decision.passes.is_some_and(|at| at > decision.arrives));
        let denied = count(|decision| decision.passes.is_none());
        assert_eq!(at_once + later + denied, arrivals().len());
        let most = if case.over_time { most_in_a_window(&decisions).to_string() } else { "–".to_owned() };
        let name = case.file;
        let _ = writeln!(table, "| [`{name}`](#{name}) | {at_once} | {later} | {denied} | {most} |");
    }
    let page = fs::read_to_string(path("concepts.md")).expect("the page");
    let (head, rest) = page.split_once("<!-- burst -->\n").expect("a mark");
    let (shown, tail) = rest.split_once("<!-- end -->\n").expect("its end");
    if updates() {
        let page = [head, "<!-- burst -->\n", &table, "<!-- end -->\n", tail].concat();
        fs::write(path("concepts.md"), page).expect("written");
    } else {
        assert_eq!(shown, table, "WEIR_UPDATE=1 writes the table");
    }
}

#[test]
fn the_page_says_what_the_pictures_show() {
    let most = |file: &str| {
        let case = cases().into_iter().find(|case| case.file == file).expect("a case");
        most_in_a_window(&run(&case.limit).decisions)
    };
    assert!(most("fixed_window") > 10, "a fixed window lets more than its limit pass around its end");
    assert_eq!(most("sliding_log"), 10, "a log lets no more than its limit pass");
    assert!(most("token_bucket") > 10, "a bucket lets its capacity and the refill pass");
    assert!(most("leaky_bucket") <= 11, "a bucket that paces lets its rate pass");
    let page = fs::read_to_string(path("concepts.md")).expect("the page");
    for case in cases() {
        let picture = format!("](concepts/{}.svg)", case.file);
        assert!(page.contains(&picture), "the page does not show {picture}");
    }
}
