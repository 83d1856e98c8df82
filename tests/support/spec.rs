// SPDX-License-Identifier: Apache-2.0
//! The limits as tables: when a request comes, and what the limits answer. The executable specification: the pure limits,
//! the Lua on Redis and a sample through Envoy all run these rows.
//!
//! A row reads: at this time (from the start of the table, which is a full hour), so many requests of such a
//! cost ask. So many are granted; then the least that any limit has left, when one more would pass, when all
//! limits are full again, and how long the first and the last request granted are held. `-` is not looked
//! at. After the cost may be `-20%` for what is kept for others, and `@ann` for the value of the requests. In place of requests, `+ 5` charges five units, and `- 5` refunds five of the last grant.

use weir::limit::{
    Align, Ask, Ban, Concurrency, Distinct, FixedWindow, LeakyBucket, Limit, Member, Outcome, Period, Refill,
    RetryAfter, SlidingLog, SlidingWindow, Subject, TokenBucket, UtcOffset,
};
use weir::time::Micros;

/// A full hour: 2026-09-21 14:00:00 UTC.
pub const START: Micros = Micros::from_secs(1_789_999_200);

/// A policy and a table of what it answers.
pub struct Table {
    pub name: &'static str,
    pub limits: Vec<Limit>,
    pub ban: Option<Ban>,
    pub rows: Vec<Row>,
}

impl Table {
    /// Holds each answer to its row. `answer` is given the receipt of the last grant too.
    pub fn holds(&self, mut answer: impl FnMut(&Row, &Outcome) -> Outcome) -> Result<(), String> {
        let mut receipt = Outcome { at: START, ..Outcome::NONE };
        for row in &self.rows {
            let outcome = answer(row, &receipt);
            row.holds(&self.limits, &outcome).map_err(|difference| format!("{}: {difference}", self.name))?;
            if outcome.granted > 0 {
                receipt = outcome;
            }
        }
        Ok(())
    }

    /// The same for the pure limits.
    pub fn holds_purely(&self) -> Result<(), String> {
        let mut subject = Subject::default();
        self.holds(|row, receipt| match row.settled {
            Some(units) => subject.settle(&self.limits, None, row.now, units, receipt),
            None => subject.check(&self.limits, self.ban.as_ref(), row.now, row.ask),
        })
    }
}

/// One question and its answer.
pub struct Row {
    /// Its line in the table.
    pub line: &'static str,
    pub now: Micros,
    pub ask: Ask,
    /// Units that are charged, or refunded if negative. Then nothing is asked.
    pub settled: Option<i64>,
    granted: Option<u32>,
    left: Option<i64>,
    retry: Option<RetryAfter>,
    reset: Option<Micros>,
    held: Option<(Micros, Micros)>,
}

impl Row {
    /// `at | requests x cost | granted | left | retry | reset | held`
    fn parse(line: &'static str) -> Self {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [at, ask, granted, left, retry, reset, held] = cells[..] else { panic!("seven columns: {line}") };
        let settled = ask.starts_with(['+', '-']).then(|| number(&ask.replace(['+', ' '], "")));
        let ask = if settled.is_some() { "0 x 0" } else { ask };
        let (ask, value) = ask.split_once('@').unwrap_or((ask, ""));
        let (ask, kept) = ask.split_once('-').unwrap_or((ask, "0%"));
        let (requests, cost) = ask.split_once('x').expect(line);
        let kept_percent = number(kept.trim().strip_suffix('%').expect(line));
        let known = |cell: &'static str| (cell != "-").then_some(cell);
        Self {
            line,
            now: START.plus(span(at)),
            ask: Ask {
                kept_percent,
                member: member(value),
                ..Ask::new(number(requests.trim()), number(cost.trim()))
            },
            settled,
            granted: known(granted).map(number),
            left: known(left).map(number),
            retry: known(retry).map(|cell| match cell {
                "now" => RetryAfter::Now,
                "never" => RetryAfter::Never,
                _ => RetryAfter::After(span(cell)),
            }),
            reset: known(reset).map(span),
            held: known(held).map(|cell| match cell.split_once("..") {
                Some((first, last)) => (span(first), span(last)),
                None => (span(cell), span(cell)),
            }),
        }
    }

    /// Holds an answer to the row.
    pub fn holds(&self, limits: &[Limit], outcome: &Outcome) -> Result<(), String> {
        let held = |index| outcome.allotment(limits, index, self.ask).delay;
        let same = [
            self.granted.is_none_or(|granted| granted == outcome.granted),
            self.left
                .is_none_or(|left| outcome.limits.iter().map(|answer| answer.remaining).min() == Some(left)),
            self.retry.is_none_or(|retry| retry == outcome.retry_after()),
            self.reset
                .is_none_or(|reset| outcome.limits.iter().map(|answer| answer.reset).max() == Some(reset)),
            self.held.is_none_or(|(first, last)| {
                outcome.granted > 0 && first == held(0) && last == held(outcome.granted - 1)
            }),
        ];
        if same == [true; 5] { Ok(()) } else { Err(format!("{}\n{outcome:#?}", self.line)) }
    }
}

/// A value of this name: the same for the same name.
pub fn member(name: &str) -> Member {
    let mut bytes = [0; 12];
    bytes.iter_mut().zip(name.bytes().cycle()).for_each(|(to, from)| *to = from);
    Member(bytes)
}

fn number<T: std::str::FromStr>(cell: &str) -> T {
    cell.replace('_', "").parse().unwrap_or_else(|_| panic!("a number: {cell}"))
}

/// `0`, `12us`, `34ms`, `5s`, `6m`, `7h`, `8d`, or a sum of these.
fn span(cell: &str) -> Micros {
    cell.split_whitespace().fold(Micros::ZERO, |sum, part| {
        let digits = part.find(|letter: char| letter.is_alphabetic()).unwrap_or(part.len());
        let unit = match &part[digits..] {
            "" | "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            other => panic!("a unit of time: {other}"),
        };
        sum.plus(Micros(number::<u64>(&part[..digits]) * unit))
    })
}

fn table(name: &'static str, limits: Vec<Limit>, rows: &'static str) -> Table {
    let lines = rows.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Table { name, limits, ban: None, rows: lines.map(Row::parse).collect() }
}

fn ban(after: u32, window: &str, duration: &str, factor: u32, max: &str) -> Option<Ban> {
    Some(Ban::new(after, span(window), span(duration), factor, span(max)).unwrap())
}

fn fixed(limit: u64, window: &str, align: Align) -> Limit {
    FixedWindow::new(limit, span(window), align).unwrap().into()
}

fn calendar(limit: u64, period: Period, minutes: i16) -> Limit {
    let align = Align::Calendar(period, UtcOffset::from_minutes(minutes));
    FixedWindow::new(limit, Micros::ZERO, align).unwrap().into()
}

fn log(limit: u64, window: &str) -> Limit {
    SlidingLog::new(limit, span(window)).unwrap().into()
}

fn sliding(limit: u64, window: &str, precision: &str) -> Limit {
    SlidingWindow::new(limit, span(window), span(precision)).unwrap().into()
}

fn token(capacity: u64, refill: u64, interval: &str, how: Refill, overdraft: u64) -> Limit {
    TokenBucket::new(capacity, refill, span(interval), how, overdraft).unwrap().into()
}

fn leaky(rate: u64, per: &str, burst: u64, max_delay: &str) -> Limit {
    LeakyBucket::new(rate, span(per), burst, span(max_delay)).unwrap().into()
}

fn indebted(limit: Limit, times: u32) -> Limit {
    limit.indebted(times).unwrap()
}

fn in_flight(limit: u64, ttl: &str) -> Limit {
    Concurrency::new(limit, span(ttl)).unwrap().into()
}

fn distinct(limit: u64, window: &str) -> Limit {
    Distinct::new(limit, span(window)).unwrap().into()
}

/// All tables.
#[rustfmt::skip]
pub fn tables() -> Vec<Table> {
    vec![
        table("fixed_window: windows begin on the clock", vec![fixed(3, "1m", Align::Clock)], "
            # at    | ask   | granted | left | retry | reset | held
            0       | 1 x 0 | 1       | 3    | now   | 0     | 0
            50s     | 2 x 1 | 2       | 1    | now   | 10s   | 0
            55s     | 2 x 1 | 1       | 0    | 5s    | 5s    | 0
            59999ms | 1 x 1 | 0       | 0    | 1ms   | 1ms   | -
            60s     | 4 x 1 | 3       | 0    | 60s   | 60s   | 0
            # Six in eleven seconds: around the end of a fixed window.
            61s     | 1 x 1 | 0       | 0    | 59s   | 59s   | -
            1h      | 1 x 1 | 1       | 2    | now   | 60s   | 0
        "),
        table("fixed_window: the first request begins a window (2 in 3 s: yes yes no, wait, yes yes)",
            vec![fixed(2, "3s", Align::First)], "
            1s           | 1 x 1 | 1 | 1 | now | 3s  | 0
            2s           | 1 x 1 | 1 | 0 | 2s  | 2s  | 0
            2s           | 1 x 1 | 0 | 0 | 2s  | 2s  | -
            3s 999999us  | 1 x 1 | 0 | 0 | 1us | 1us | -
            4s           | 1 x 1 | 1 | 1 | now | 3s  | 0
            4s           | 1 x 1 | 1 | 0 | 3s  | 3s  | 0
            # The next window begins with the next request, not with the clock.
            9s           | 1 x 1 | 1 | 1 | now | 3s  | 0
        "),
        table("fixed_window: days begin at midnight, two hours ahead of UTC", vec![calendar(3, Period::Day, 120)], "
            0          | 1 x 0 | 1 | 3 | now   | 0  | 0
            0          | 2 x 1 | 2 | 1 | now   | 8h | 0
            7h 59m 59s | 2 x 1 | 1 | 0 | 1s    | 1s | 0
            7h 59m 59s | 1 x 4 | 0 | 0 | never | 1s | -
            8h         | 1 x 1 | 1 | 2 | now   | 1d | 0
            1d 8h      | 1 x 0 | 1 | 3 | now   | 0  | 0
        "),
        // The tables begin on a Monday.
        table("fixed_window: weeks begin on Monday", vec![calendar(3, Period::Week, 0)], "
            0         | 3 x 1 | 3 | 0 | 6d 10h | 6d 10h | 0
            6d 9h 59m | 1 x 1 | 0 | 0 | 1m     | 1m     | -
            6d 10h    | 1 x 1 | 1 | 2 | now    | 7d     | 0
            13d 9h    | 3 x 1 | 2 | 0 | 1h     | 1h     | 0
            13d 10h   | 1 x 1 | 1 | 2 | now    | 7d     | 0
        "),
        table("fixed_window: weeks begin on Monday, twelve hours behind UTC", vec![calendar(3, Period::Week, -720)], "
            0         | 1 x 1 | 1 | 2 | now    | 6d 22h | 0
            6d 22h    | 3 x 1 | 3 | 0 | 7d     | 7d     | 0
        "),
        table("fixed_window: months are as long as they are", vec![calendar(3, Period::MONTH, 0)], "
            0                         | 2 x 1 | 2 | 1 | now    | 9d 10h | 0
            9d 9h 59m                 | 2 x 1 | 1 | 0 | 1m     | 1m     | 0
            # October
            9d 10h                    | 1 x 1 | 1 | 2 | now    | 31d    | 0
            # February of 2027
            132d 10h                  | 4 x 1 | 3 | 0 | 28d    | 28d    | 0
            160d 9h 59m 59s 999999us  | 1 x 1 | 0 | 0 | 1us    | 1us    | -
            160d 10h                  | 1 x 1 | 1 | 2 | now    | 31d    | 0
            # February of 2028, with its leap day
            497d 10h                  | 4 x 1 | 3 | 0 | 29d    | 29d    | 0
            525d 10h                  | 1 x 1 | 0 | 0 | 1d     | 1d     | -
            526d 10h                  | 1 x 1 | 1 | 2 | now    | 31d    | 0
        "),
        table("fixed_window: months begin at midnight, five and a half hours ahead of UTC", vec![calendar(3, Period::MONTH, 330)], "
            9d 4h 29m | 1 x 1 | 1 | 2 | now | 1m  | 0
            9d 4h 30m | 3 x 1 | 3 | 0 | 31d | 31d | 0
        "),
        table("fixed_window: months begin on the 31st, or on their last day", vec![calendar(3, Period::Month { anchor: 31 }, 0)], "
            0                         | 2 x 1 | 2 | 1 | now    | 8d 10h | 0
            8d 9h 59m                 | 2 x 1 | 1 | 0 | 1m     | 1m     | 0
            # 30 September
            8d 10h                    | 1 x 1 | 1 | 2 | now    | 31d    | 0
            # 31 October
            39d 10h                   | 1 x 1 | 1 | 2 | now    | 30d    | 0
            # 31 January of 2027, to 28 February
            131d 10h                  | 4 x 1 | 3 | 0 | 28d    | 28d    | 0
            159d 9h 59m 59s 999999us  | 1 x 1 | 0 | 0 | 1us    | 1us    | -
            159d 10h                  | 1 x 1 | 1 | 2 | now    | 31d    | 0
        "),
        table("fixed_window: months begin on the 15th at noon of UTC", vec![calendar(3, Period::Month { anchor: 15 }, -720)], "
            23d 21h 59m | 1 x 1 | 1 | 2 | now | 1m  | 0
            23d 22h     | 3 x 1 | 3 | 0 | 31d | 31d | 0
        "),
        table("fixed_window: cost, and a cost that never fits", vec![fixed(10, "1s", Align::Clock)], "
            0   | 2 x 4  | 2 | 2  | 1s    | 1s | 0
            0   | 1 x 4  | 0 | 2  | 1s    | 1s | -
            0   | 1 x 2  | 1 | 0  | 1s    | 1s | 0
            0   | 1 x 0  | 0 | 0  | 1s    | 1s | -
            0   | 1 x 11 | 0 | 0  | never | 1s | -
            1s  | 1 x 11 | 0 | 10 | never | 0  | -
        "),
        table("fixed_window: 10^12 a millisecond, more than fits one number",
            vec![fixed(1_000_000_000_000, "1ms", Align::Clock)], "
            0     | 3 x 400_000_000_000 | 2 | 200_000_000_000 | 1ms   | 1ms | 0
            999us | 1 x 200_000_000_000 | 1 | 0               | 1us   | 1us | 0
            1ms   | 1 x 1               | 1 | 999_999_999_999 | now   | 1ms | 0
        "),
        table("fixed_window: as many a window as one number tells from the next window",
            vec![fixed(1_999, "1ms", Align::Clock)], "
            0     | 1 x 1_999 | 1 | 0     | 1ms | 1ms | 0
            999us | 1 x 1     | 0 | 0     | 1us | 1us | -
            1ms   | 1 x 1     | 1 | 1_998 | now | 1ms | 0
        "),
        table("fixed_window: one more than that", vec![fixed(2_000, "1ms", Align::Clock)], "
            0     | 1 x 2_000 | 1 | 0     | 1ms | 1ms | 0
            999us | 1 x 1     | 0 | 0     | 1us | 1us | -
            1ms   | 1 x 1     | 1 | 1_999 | now | 1ms | 0
        "),
        table("sliding_log: never more than 2 in any second", vec![log(2, "1s")], "
            0        | 1 x 1 | 1 | 1 | now   | 1s    | 0
            600ms    | 2 x 1 | 1 | 0 | 400ms | 1s    | 0
            999999us | 1 x 1 | 0 | 0 | 1us   | 600001us | -
            1s       | 2 x 1 | 1 | 0 | 600ms | 1s    | 0
            1599ms   | 1 x 1 | 0 | 0 | 1ms   | 401ms | -
            1600ms   | 1 x 1 | 1 | 0 | 400ms | 1s    | 0
            1600ms   | 1 x 2 | 0 | 0 | 1s    | 1s    | -
            1600ms   | 1 x 3 | 0 | 0 | never | 1s    | -
            2600ms   | 1 x 2 | 1 | 0 | 1s    | 1s    | 0
        "),
        table("sliding_log: 1 a second and 5 a minute, all or nothing", vec![log(1, "1s"), log(5, "1m")], "
            0     | 1 x 1 | 1 | 0 | 1s    | 1m    | 0
            500ms | 1 x 1 | 0 | 0 | 500ms | -     | -
            1s    | 1 x 1 | 1 | 0 | 1s    | -     | 0
            1900ms| 1 x 1 | 0 | 0 | 100ms | -     | -
            2s    | 1 x 1 | 1 | 0 | 1s    | -     | 0
            3s    | 1 x 1 | 1 | 0 | 1s    | -     | 0
            # The five of this minute. The denied requests in between took nothing.
            4s    | 1 x 1 | 1 | 0 | 56s   | 1m    | 0
            5s    | 1 x 1 | 0 | 0 | 55s   | 59s   | -
            59s   | 1 x 1 | 0 | 0 | 1s    | 5s    | -
            60s   | 1 x 1 | 1 | 0 | 1s    | 1m    | 0
            60s   | 1 x 1 | 0 | 0 | 1s    | 1m    | -
            61s   | 1 x 1 | 1 | 0 | 1s    | 1m    | 0
        "),
        table("sliding_window: 42 last minute, 18 this minute, 15 s into it: 49.5 of 50", vec![sliding(50, "1m", "1m")], "
            59s   | 42 x 1 | 42 | 8  | now | 61s  | 0
            75s   | 18 x 1 | 18 | 0  | 714286us | 105s | 0
            75s   | 1 x 1  | 0  | 0  | 714286us | 105s | -
            75s 714285us | 1 x 1 | 0 | 0 | 1us | - | -
            75s 714286us | 1 x 1 | 1 | 0 | 1428572us | - | 0
        "),
        table("sliding_window: no double burst around the end of a minute", vec![sliding(10, "1m", "10s")], "
            59s   | 10 x 1 | 10 | 0 | 52s | 61s | 0
            60s   | 10 x 1 | 0  | 0 | 51s | 60s | -
            # The slot of 50 s to 60 s leaves between 110 s and 120 s, evenly: one unit a second.
            110s  | 1 x 1  | 0  | 0 | 1s  | 10s | -
            111s  | 5 x 1  | 1  | 0 | 1s  | 69s | 0
            115s  | 5 x 1  | 4  | 0 | 1s  | 65s | 0
            120s  | 9 x 1  | 5  | 0 | 52s | 70s | 0
            120s  | 1 x 10 | 0  | 0 | 70s | 70s | -
            120s  | 1 x 11 | 0  | 0 | never | 70s | -
        "),
        table("distinct: a value counts for one window from its first use", vec![distinct(2, "10m")], "
            0              | 1 x 1 @ann | 1 | 1 | now | 10m    | 0
            1m             | 1 x 1 @bob | 1 | 0 | now | 10m    | 0
            # A third value is denied, and the other two are not, whatever they cost.
            2m             | 1 x 1 @cat | 0 | 0 | 8m  | 9m     | -
            3m             | 9 x 7 @ann | 9 | 0 | now | 8m     | 0
            9m 59s 999999us | 1 x 1 @cat | 0 | 0 | 1us | 60s 1us | -
            10m            | 1 x 1 @cat | 1 | 0 | now | 10m    | 0
            # Its last use made it no longer.
            10m            | 1 x 1 @ann | 0 | 0 | 1m  | 10m    | -
            11m            | 1 x 0 @ann | 1 | 1 | now | 9m     | 0
            11m            | 1 x 0 @dan | 1 | 1 | now | 9m     | 0
            11m            | 1 x 9 @dan | 1 | 0 | now | 10m    | 0
            11m            | 1 x 0 @ann | 0 | 0 | 9m  | 10m    | -
            1h             | 0 x 1 @ann | 0 | 2 | now | 0      | -
        "),
        table("distinct: beside a rate, all or nothing", vec![distinct(2, "1m"), leaky(1, "1s", 1, "0")], "
            0    | 2 x 1 @ann | 1 | 0 | 1s    | 1m  | 0
            0    | 1 x 1 @bob | 0 | 0 | 1s    | 1m  | -
            # What was denied has used no value.
            1s   | 1 x 1 @cat | 1 | 0 | 1s    | 1m  | 0
            2s   | 1 x 1 @bob | 0 | 0 | 58s   | 59s | -
            # Nor has it used the rate.
            2s   | 1 x 1 @ann | 1 | 0 | 1s    | 59s | 0
            2s   | 1 x 2 @ann | 0 | 0 | never | 59s | -
        "),
        table("distinct: clock back: values of the future count as used now", vec![distinct(2, "1m")], "
            5m       | 1 x 1 @ann | 1 | 1 | now | 1m  | 0
            5m 10s   | 1 x 1 @bob | 1 | 0 | now | 1m  | 0
            5m 5s    | 0 x 1 @cat | 0 | 0 | 55s | 60s | -
            0        | 1 x 1 @cat | 0 | 0 | 1m  | 1m  | -
            59s      | 1 x 1 @ann | 1 | 0 | now | 1s  | 0
            1m       | 1 x 1 @cat | 1 | 1 | now | 1m  | 0
        "),
        table("distinct: clock back: before a window that has ended", vec![distinct(1, "1m")], "
            0        | 1 x 1 @ann | 1 | 0 | now | 1m  | 0
            2m       | 0 x 1 @bob | 0 | 1 | now | 0   | -
            30s      | 1 x 1 @bob | 0 | 0 | 30s | 30s | -
        "),
        table("token_bucket: starts full, refills evenly", vec![token(5, 2, "1s", Refill::Continuous, 0)], "
            0      | 1 x 3 | 1 | 2 | 500ms | 1500ms | 0
            0      | 3 x 1 | 2 | 0 | 500ms | 2500ms | 0
            499ms  | 1 x 1 | 0 | 0 | 1ms   | 2001ms | -
            500ms  | 1 x 1 | 1 | 0 | 500ms | 2500ms | 0
            2s     | 1 x 4 | 0 | 3 | 500ms | 1s     | -
            2500ms | 1 x 4 | 1 | 0 | 2s    | 2500ms | 0
            # Never more than the capacity, even after a long rest.
            1d     | 9 x 1 | 5 | 0 | 500ms | 2500ms | 0
            1d     | 1 x 6 | 0 | 0 | never | 2500ms | -
        "),
        table("token_bucket: refills in steps, counted from the first request", vec![token(5, 2, "1s", Refill::Stepwise, 0)], "
            300ms  | 4 x 1 | 4 | 1 | now    | 2s     | 0
            300ms  | 2 x 1 | 1 | 0 | 1s     | 3s     | 0
            1299ms | 1 x 1 | 0 | 0 | 1ms    | 2001ms | -
            1300ms | 5 x 1 | 2 | 0 | 1s     | 3s     | 0
            2800ms | 1 x 5 | 0 | 2 | 1500ms | 1500ms | -
            2800ms | 1 x 1 | 1 | 1 | now    | 1500ms | 0
            # Full since 4300 ms: the next interval begins with the next request.
            9s     | 1 x 5 | 1 | 0 | 3s     | 3s     | 0
            10s    | 1 x 1 | 1 | 1 | now    | 2s     | 0
        "),
        table("token_bucket: overdraft, take now and pay later", vec![token(10, 1, "1s", Refill::Continuous, 20)], "
            0   | 1 x 25 | 1 | -15 | 20s  | 25s | 0
            0   | 1 x 1  | 0 | -15 | 16s  | 25s | -
            15s | 1 x 1  | 0 | 0   | 1s   | 10s | -
            16s | 1 x 1  | 1 | 0   | 1s   | 10s | 0
            17s | 2 x 21 | 1 | -20 | 21s  | 30s | 0
            1h  | 1 x 31 | 0 | 10  | never | 0  | -
            1h  | 9 x 30 | 1 | -20 | 30s  | 30s | 0
        "),
        table("token_bucket: the largest cost that any limit can grant, and one more",
            vec![token(1_000_000_000_000, 1_000_000_000_000, "1d", Refill::Continuous, 1_000_000_000_000)], "
            0 | 1 x 2_000_000_000_001 | 0 | 1_000_000_000_000  | never | 0  | -
            0 | 1 x 2_000_000_000_000 | 1 | -1_000_000_000_000 | 2d    | 2d | 0
        "),
        table("leaky_bucket: GCRA with a burst of 5 and 1 a second (throttled, redis-cell)", vec![leaky(1, "1s", 5, "0")], "
            # You can never make a request larger than the maximum.
            0      | 1 x 6 | 0 | 5 | never | 0      | -
            0      | 1 x 1 | 1 | 4 | now   | 1s     | 0
            0      | 1 x 1 | 1 | 3 | now   | 2s     | 0
            0      | 1 x 1 | 1 | 2 | now   | 3s     | 0
            0      | 1 x 1 | 1 | 1 | now   | 4s     | 0
            0      | 1 x 1 | 1 | 0 | 1s    | 5s     | 0
            0      | 1 x 1 | 0 | 0 | 1s    | 5s     | -
            3s     | 1 x 1 | 1 | 2 | now   | 3s     | 0
            3100ms | 1 x 1 | 1 | 1 | now   | 3900ms | 0
            4s     | 1 x 1 | 1 | 1 | now   | 4s     | 0
            8s     | 1 x 1 | 1 | 4 | now   | 1s     | 0
            9500ms | 1 x 1 | 1 | 4 | now   | 1s     | 0
            # A cost of zero asks and takes nothing.
            9500ms | 1 x 0 | 1 | 4 | now   | 1s     | 0
            9500ms | 1 x 2 | 1 | 2 | now   | 3s     | 0
            9500ms | 1 x 5 | 0 | 2 | 3s    | 3s     | -
        "),
        table("leaky_bucket: 3 a second, of which none is lost and none is won", vec![leaky(3, "1s", 1, "0")], "
            0            | 1 x 1 | 1 | 0 | 333334us | 333334us | 0
            333333us     | 1 x 1 | 0 | 0 | 1us      | 1us      | -
            333334us     | 1 x 1 | 1 | 0 | 333334us | 333334us | 0
            1h           | 1 x 1 | 1 | 0 | 333334us | 333334us | 0
        "),
        table("leaky_bucket: max_delay queues (nginx limit_req, 10 a second, burst 20)", vec![leaky(10, "1s", 1, "2s")], "
            0     | 22 x 1 | 21 | 0 | 100ms | 2100ms | 0..2s
            50ms  | 1 x 1  | 0  | 0 | 50ms  | 2050ms | -
            100ms | 1 x 1  | 1  | 0 | 100ms | 2100ms | 2s
            1s    | 2 x 1  | 2  | 7 | now   | 1400ms | 1200ms..1300ms
            1m    | 1 x 1  | 1  | 20 | now  | 100ms  | 0
        "),
        table("leaky_bucket: a request of cost 0 takes no turn, so it goes with the one before it", vec![leaky(10, "1s", 1, "2s")], "
            0     | 4 x 1 | 4 | 17 | now | 400ms | 0..300ms
            0     | 1 x 0 | 1 | 17 | now | 400ms | 300ms
            0     | 1 x 1 | 1 | 16 | now | 500ms | 400ms
            0     | 16 x 1| 16| 0  | 100ms | 2100ms | 500ms..2s
            0     | 1 x 0 | 0 | 0  | 100ms | 2100ms | -
        "),
        table("leaky_bucket: a request larger than the burst never passes, held or not", vec![leaky(10, "1s", 2, "2s")], "
            0 | 1 x 3 | 0 | 22 | never | 0     | -
            0 | 1 x 2 | 1 | 20 | now   | 200ms | 0
        "),
        table("leaky_bucket: a burst goes at once, what follows is held", vec![leaky(2, "1s", 3, "1s")], "
            0     | 4 x 1 | 4 | 1 | now   | 2s     | 0..500ms
            0     | 4 x 1 | 1 | 0 | 500ms | 2500ms | 1s
            250ms | 1 x 1 | 0 | 0 | 250ms | 2250ms | -
            2500ms| 3 x 1 | 3 | 2 | now   | 1500ms | 0
        "),
        table("leaky_bucket: one a day", vec![leaky(1, "1d", 1, "0")], "
            0                    | 1 x 1 | 1 | 0 | 1d  | 1d  | 0
            23h 59m 59s 999999us | 1 x 1 | 0 | 0 | 1us | 1us | -
            1d                   | 1 x 1 | 1 | 0 | 1d  | 1d  | 0
        "),
        table("leaky_bucket: 10^6 a second", vec![leaky(1_000_000, "1s", 10, "0")], "
            0   | 20 x 1 | 10 | 0 | 1us | 10us | 0
            3us | 20 x 1 | 3  | 0 | 1us | 10us | 0
            1s  | 20 x 1 | 10 | 0 | 1us | 10us | 0
        "),
        table("concurrency: permits are held, whatever the cost, until they expire", vec![in_flight(3, "16s")], "
            0          | 2 x 9 | 2 | 1 | now | 16s | 0
            500ms      | 2 x 0 | 1 | 0 | 15s 500ms | 16s 500ms | 0
            1s         | 1 x 1 | 0 | 0 | 15s | 16s | -
            15999999us | 1 x 1 | 0 | 0 | 1us | 1s 1us | -
            16s        | 3 x 1 | 2 | 0 | 1s  | 16s | 0
        "),
        table("several limits: the tightest decides, and what one denies costs the others nothing",
            vec![fixed(100, "1h", Align::Clock), leaky(1, "1s", 2, "0"), in_flight(10, "1m")], "
            0  | 5 x 1  | 2 | 0 | 1s    | -  | 0
            0  | 5 x 1  | 0 | 0 | 1s    | -  | -
            1s | 1 x 1  | 1 | 0 | 1s    | -  | 0
            1m | 1 x 3  | 0 | 2 | never | -  | -
            1m | 2 x 1  | 2 | 0 | 1s    | -  | 0
        "),
        table("clock back: fixed_window counts on until the next window is over", vec![fixed(3, "1m", Align::Clock)], "
            59m   | 2 x 1 | 2 | 1 | now | 1m  | 0
            30m   | 2 x 1 | 1 | 0 | 2m  | 2m  | 0
            30m   | 1 x 1 | 0 | 0 | 2m  | 2m  | -
            31m   | 1 x 1 | 0 | 0 | 1m  | 1m  | -
            32m   | 1 x 1 | 1 | 2 | now | 1m  | 0
        "),
        table("clock back: fixed_window does so also when nothing is granted", vec![fixed(3, "1m", Align::Clock)], "
            59m   | 3 x 1 | 3 | 0 | 1m  | 1m  | 0
            30m   | 1 x 1 | 0 | 0 | 2m  | 2m  | -
            31m   | 1 x 1 | 0 | 0 | 1m  | 1m  | -
            32m   | 1 x 1 | 1 | 2 | now | 1m  | 0
        "),
        table("clock back by a moment: fixed_window does not open a window twice", vec![fixed(3, "1m", Align::Clock)], "
            59s          | 3 x 1 | 3 | 0 | 1s        | 1s        | 0
            60s          | 1 x 1 | 1 | 2 | now       | 1m        | 0
            59s 999999us | 9 x 1 | 2 | 0 | 1m 1us    | 1m 1us    | 0
            60s          | 1 x 1 | 0 | 0 | 1m        | 1m        | -
        "),
        table("clock back: fixed_window, more than fits one number, counts on until the next window is over",
            vec![fixed(120_000_000, "1m", Align::Clock)], "
            59m   | 1 x 100_000_000 | 1 | 20_000_000  | 1m  | 1m  | 0
            30m   | 1 x 20_000_000  | 1 | 0           | 2m  | 2m  | 0
            30m   | 1 x 1           | 0 | 0           | 2m  | 2m  | -
            31m   | 1 x 1           | 0 | 0           | 1m  | 1m  | -
            32m   | 1 x 1           | 1 | 119_999_999 | now | 1m  | 0
        "),
        table("clock back by a moment: fixed_window, more than fits one number, does not open a window twice",
            vec![fixed(120_000_000, "1m", Align::Clock)], "
            59s          | 1 x 120_000_000 | 1 | 0           | 1s     | 1s     | 0
            60s          | 1 x 1           | 1 | 119_999_999 | now    | 1m     | 0
            59s 999999us | 1 x 119_999_999 | 1 | 0           | 1m 1us | 1m 1us | 0
            60s          | 1 x 1           | 0 | 0           | 1m     | 1m     | -
        "),
        table("clock back by a moment: sliding_window does not forget a slot", vec![sliding(3, "1m", "1m")], "
            59s          | 2 x 1 | 2 | 1 | now       | 61s       | 0
            60s          | 1 x 1 | 1 | 0 | 30s       | 2m        | 0
            59s 999999us | 9 x 1 | 0 | 0 | 30s 1us   | 2m 1us    | -
            60s          | 1 x 1 | 0 | 0 | 30s       | 2m        | -
        "),
        table("clock back: fixed_window, month, counts on until the next month is over", vec![calendar(3, Period::MONTH, 0)], "
            40d 10h | 2 x 1 | 2 | 1 | now     | 30d     | 0
            0       | 2 x 1 | 1 | 0 | 40d 10h | 40d 10h | 0
            9d 10h  | 1 x 1 | 0 | 0 | 31d     | 31d     | -
            40d 10h | 1 x 1 | 1 | 2 | now     | 30d     | 0
        "),
        table("clock back by a moment: fixed_window, month, does not open a month twice", vec![calendar(3, Period::MONTH, 0)], "
            9d 9h   | 1 x 1 | 1 | 2 | now    | 1h     | 0
            9d 10h  | 1 x 1 | 1 | 2 | now    | 31d    | 0
            9d 9h   | 9 x 1 | 2 | 0 | 31d 1h | 31d 1h | 0
            9d 10h  | 1 x 1 | 0 | 0 | 31d    | 31d    | -
        "),
        table("clock back: fixed_window, day, does so also when nothing is granted", vec![calendar(3, Period::Day, 0)], "
            3d      | 3 x 1 | 3 | 0 | 10h    | 10h    | 0
            0       | 1 x 1 | 0 | 0 | 1d 10h | 1d 10h | -
            10h     | 1 x 1 | 0 | 0 | 1d     | 1d     | -
            1d 10h  | 1 x 1 | 1 | 2 | now    | 1d     | 0
        "),
        table("clock back: fixed_window, first, begins its window anew", vec![fixed(3, "1m", Align::First)], "
            59m   | 3 x 1 | 3 | 0 | 1m  | 1m  | 0
            30m   | 1 x 1 | 0 | 0 | 1m  | 1m  | -
            30m 59s | 1 x 1 | 0 | 0 | 1s  | 1s  | -
            31m   | 1 x 1 | 1 | 2 | now | 1m  | 0
        "),
        table("clock back: sliding_log dates its grants to now", vec![log(3, "10s")], "
            59m    | 1 x 1 | 1 | 2 | now | 10s | 0
            59m 5s | 2 x 1 | 2 | 0 | 5s  | 10s | 0
            30m    | 1 x 1 | 0 | 0 | 10s | 10s | -
            30m 9s | 1 x 1 | 0 | 0 | 1s  | 1s  | -
            30m 10s| 1 x 1 | 1 | 2 | now | 10s | 0
        "),
        table("clock back: sliding_window counts on in the next slot", vec![sliding(4, "1m", "30s")], "
            59m    | 3 x 1 | 3 | 1 | now | 90s | 0
            30m    | 4 x 1 | 1 | 0 | 97500ms | 2m | 0
            31m 30s| 1 x 1 | 0 | 0 | 7500ms | 30s | -
            32m    | 9 x 1 | 4 | 0 | 67500ms | 90s | 0
        "),
        table("clock back: sliding_window does so also when nothing is granted", vec![sliding(4, "1m", "30s")], "
            59m    | 4 x 1 | 4 | 0 | 67500ms | 90s | 0
            30m    | 1 x 1 | 0 | 0 | 97500ms | 2m  | -
            31m 30s| 1 x 1 | 0 | 0 | 7500ms  | 30s | -
        "),
        table("clock back: sliding_window has what is left at once", vec![sliding(4, "1m", "30s")], "
            59m    | 2 x 1 | 2 | 2 | now | 90s | 0
            30m    | 1 x 1 | 1 | 1 | now | 2m  | 0
        "),
        table("clock back: token_bucket owes no more than there is to owe", vec![token(5, 1, "1s", Refill::Continuous, 0)], "
            59m    | 3 x 1 | 3 | 2 | now | 3s | 0
            58m 59s| 1 x 1 | 1 | 0 | 1s  | 5s | 0
            30m    | 1 x 1 | 0 | 0 | 1s  | 5s | -
            30m 1s | 1 x 1 | 1 | 0 | 1s  | 5s | 0
        "),
        table("clock back: token_bucket, stepwise, begins its interval anew", vec![token(5, 1, "1s", Refill::Stepwise, 0)], "
            59m      | 5 x 1 | 5 | 0 | 1s    | 5s     | 0
            30m      | 1 x 1 | 0 | 0 | 1s    | 5s     | -
            30m 999ms| 1 x 1 | 0 | 0 | 1ms   | 4001ms | -
            30m 1s   | 1 x 1 | 1 | 0 | 1s    | 5s     | 0
        "),
        table("clock back: leaky_bucket owes no more than there is to owe", vec![leaky(1, "1s", 2, "3s")], "
            59m    | 4 x 1 | 4 | 1 | now | 4s | 0..2s
            30m    | 1 x 1 | 0 | 0 | 1s  | 5s | -
            30m 1s | 1 x 1 | 1 | 0 | 1s  | 5s | 3s
        "),
        table("clock back: concurrency, permits keep their expiry, by which they are released", vec![in_flight(3, "16s")], "
            59m     | 2 x 1 | 2 | 1 | now     | 16s     | 0
            30m     | 2 x 1 | 1 | 0 | 16s     | 29m 16s | 0
            30m 15s | 1 x 1 | 0 | 0 | 1s      | 29m 1s  | -
            30m 16s | 2 x 1 | 1 | 0 | 16s     | 29m     | 0
            59m 16s | 3 x 1 | 3 | 0 | 16s     | 16s     | 0
        "),
    ]
}

/// Tables of requests of two classes: what is kept for the other one is in percent, after the cost.
#[rustfmt::skip]
pub fn classes() -> Vec<Table> {
    vec![
        table("priority: fixed_window on the clock", vec![fixed(10, "1m", Align::Clock)], "
            # at | ask       | granted | left | retry | reset | held
            0    | 0 x 1 -20% | 0      | 10   | now   | 0     | -
            0    | 9 x 1 -20% | 8      | 2    | 1m    | 1m    | 0
            1s   | 1 x 0 -20% | 0      | 2    | 59s   | 59s   | -
            # What is kept for others is rounded up.
            2s   | 1 x 1 -11% | 0      | 2    | 58s   | 58s   | -
            2s   | 1 x 1 -10% | 1      | 1    | 58s   | 58s   | 0
            3s   | 3 x 1      | 1      | 0    | 57s   | 57s   | 0
            # More than is ever left to this class, and not to the other one.
            4s   | 1 x 9 -20% | 0      | 0    | never | 56s   | -
            4s   | 1 x 9      | 0      | 0    | 56s   | 56s   | -
            60s  | 1 x 8 -20% | 1      | 2    | 60s   | 60s   | 0
        "),
        table("priority: what is kept for several classes is rounded up once, as their sum", vec![fixed(10, "1m", Align::Clock)], "
            # 15 and 15 percent: three units, where each alone would be two.
            0    | 9 x 1 -30% | 7      | 3    | 1m    | 1m    | 0
            0    | 9 x 1 -15% | 1      | 2    | 1m    | 1m    | 0
        "),
        table("priority: fixed_window from the first request", vec![fixed(10, "1m", Align::First)], "
            5s   | 9 x 1 -20% | 8      | 2    | 1m    | 1m    | 0
            6s   | 1 x 3      | 0      | 2    | 59s   | 59s   | -
            6s   | 1 x 2      | 1      | 0    | 59s   | 59s   | 0
        "),
        table("priority: fixed_window of a month", vec![calendar(10, Period::MONTH, 0)], "
            0    | 9 x 1 -50% | 5      | 5    | 9d 10h | 9d 10h | 0
            0    | 1 x 6 -50% | 0      | 5    | never  | 9d 10h | -
            1h   | 6 x 1      | 5      | 0    | 9d 9h  | 9d 9h  | 0
        "),
        table("priority: one unit is for all, however much is kept", vec![fixed(2, "1m", Align::Clock)], "
            0    | 2 x 1 -99% | 1      | 1    | 1m    | 1m    | 0
            1m   | 2 x 1 -1%  | 1      | 1    | 1m    | 1m    | 0
        "),
        table("priority: of a single unit nothing is kept", vec![fixed(1, "1m", Align::Clock)], "
            0    | 2 x 1 -99% | 1      | 0    | 1m    | 1m    | 0
        "),
        table("priority: sliding_log", vec![log(5, "10s")], "
            0    | 1 x 1 -40% | 1      | 4    | now   | 10s   | 0
            1s   | 1 x 1 -40% | 1      | 3    | now   | 10s   | 0
            2s   | 2 x 1 -40% | 1      | 2    | 8s    | 10s   | 0
            3s   | 2 x 1      | 2      | 0    | 7s    | 10s   | 0
            # The third grant has to leave, until three units are left.
            3s   | 1 x 1 -40% | 0      | 0    | 9s    | 10s   | -
            12s  | 1 x 1 -40% | 1      | 2    | 1s    | 10s   | 0
            12s  | 1 x 4 -40% | 0      | 2    | never | 10s   | -
        "),
        table("priority: sliding_window", vec![sliding(10, "10s", "5s")], "
            0    | 9 x 1 -20% | 8      | 2    | 10625ms | 15s | 0
            1s   | 1 x 3      | 0      | 2    | 9625ms  | 14s | -
            1s   | 1 x 2      | 1      | 0    | 10s     | 14s | 0
            # Three of the ten have to be gone: three tenths of their slot.
            1s   | 1 x 1 -20% | 0      | 0    | 10500ms | 14s | -
            11500ms | 1 x 1 -20% | 1   | 2    | 500ms   | 13500ms | 0
            11500ms | 1 x 9 -20% | 0   | 2    | never   | 13500ms | -
        "),
        table("priority: token_bucket, continuous", vec![token(10, 1, "1s", Refill::Continuous, 0)], "
            0    | 9 x 1 -20% | 8      | 2    | 1s    | 8s    | 0
            0    | 3 x 1      | 2      | 0    | 1s    | 10s   | 0
            0    | 1 x 1 -20% | 0      | 0    | 3s    | 10s   | -
            0    | 1 x 8 -20% | 0      | 0    | 10s   | 10s   | -
            0    | 1 x 9 -20% | 0      | 0    | never | 10s   | -
            3s   | 1 x 1 -20% | 1      | 2    | 1s    | 8s    | 0
        "),
        table("priority: token_bucket, for large numbers",
            vec![token(1_000_000_000_000, 999_999_999_989, "1h", Refill::Continuous, 0)], "
            0    | 9 x 100_000_000_000 -20% | 8 | 200_000_000_000 | 6m 1us | - | 0
            0    | 1 x 900_000_000_000 -20% | 0 | 200_000_000_000 | never  | - | -
            0    | 3 x 100_000_000_000      | 2 | 0               | 6m 1us | - | 0
        "),
        table("priority: token_bucket, in steps", vec![token(10, 3, "1s", Refill::Stepwise, 0)], "
            0    | 9 x 1 -20% | 8      | 2    | 1s    | 3s    | 0
            0    | 3 x 1      | 2      | 0    | 1s    | 4s    | 0
            0    | 1 x 2 -20% | 0      | 0    | 2s    | 4s    | -
            0    | 1 x 9 -20% | 0      | 0    | never | 4s    | -
        "),
        table("priority: requests from which something is kept take nothing in advance",
            vec![token(10, 1, "1s", Refill::Continuous, 10)], "
            0    | 1 x 9 -20%  | 0     | 10   | never | 0     | -
            0    | 1 x 8 -20%  | 1     | 2    | 8s    | 8s    | 0
            0    | 1 x 12      | 1     | -10  | 12s   | 20s   | 0
        "),
        table("priority: nor do they of steps", vec![token(10, 1, "1s", Refill::Stepwise, 10)], "
            0    | 1 x 9 -20%  | 0     | 10   | never | 0     | -
            0    | 1 x 8 -20%  | 1     | 2    | 8s    | 8s    | 0
            0    | 1 x 12      | 1     | -10  | 12s   | 20s   | 0
        "),
        // Two at once, and eight more may wait.
        table("priority: leaky_bucket with max_delay keeps of the burst and of what waits",
            vec![leaky(1, "1s", 2, "8s")], "
            0    | 9 x 1 -20% | 8      | 2    | 1s    | 8s    | 0..6s
            0    | 3 x 1      | 2      | 0    | 1s    | 10s   | 7s..8s
            0    | 1 x 2 -20% | 0      | 0    | 4s    | 10s   | -
            0    | 1 x 3 -20% | 0      | 0    | never | 10s   | -
            # It fits the burst, and never beside what is kept.
            0    | 1 x 2 -90% | 0      | 0    | never | 10s   | -
        "),
        table("priority: concurrency keeps permits", vec![in_flight(5, "16s")], "
            0    | 4 x 7 -40% | 3      | 2    | 16s   | 16s   | 0
            2s   | 3 x 7      | 2      | 0    | 14s   | 16s   | 0
            2s   | 1 x 7 -40% | 0      | 0    | 14s   | 16s   | -
            16s  | 2 x 7 -40% | 1      | 2    | 2s    | 16s   | 0
        "),
        table("priority: distinct keeps values, and a value that counts passes", vec![distinct(5, "1m")], "
            0    | 1 x 1 -40% @ann | 1 | 4 | now | 1m  | 0
            1s   | 1 x 1 -40% @bob | 1 | 3 | now | 1m  | 0
            2s   | 1 x 1 -40% @cat | 1 | 2 | now | 1m  | 0
            3s   | 1 x 1 -40% @dan | 0 | 2 | 57s | 59s | -
            3s   | 1 x 1 @dan      | 1 | 1 | now | 1m  | 0
            3s   | 1 x 1 -40% @eve | 0 | 1 | 58s | 1m  | -
            3s   | 1 x 1 -40% @dan | 1 | 1 | now | 1m  | 0
        "),
        table("priority: of each limit its share", vec![fixed(10, "1m", Align::Clock), leaky(1, "1s", 4, "0")], "
            0    | 9 x 1 -50% | 2      | 2    | 1s    | 1m    | 0
            1s   | 9 x 1 -50% | 1      | 2    | 1s    | 59s   | 0
            1s   | 9 x 1      | 2      | 0    | 1s    | 59s   | 0
            9s   | 9 x 1 -50% | 0      | 4    | 51s   | 51s   | -
            9s   | 9 x 1      | 4      | 0    | 1s    | 51s   | 0
        "),
    ]
}

/// Limits that go into debt, and charges that take them there.
#[rustfmt::skip]
pub fn debts() -> Vec<Table> {
    vec![
        table("debt: a window's debt ends with the window", vec![indebted(fixed(3, "10s", Align::First), 2)], "
            # at | ask   | granted | left | retry | reset | held
            0    | 1 x 1 | 1       | 2    | now   | 10s   | 0
            1s   | + 5   | 0       | -3   | 9s    | 9s    | -
            1s   | 1 x 0 | 0       | -3   | 9s    | 9s    | -
            # At most twice the limit.
            2s   | + 9   | 0       | -6   | 8s    | 8s    | -
            2s   | + 1   | 0       | -6   | 8s    | 8s    | -
            9s   | 1 x 4 | 0       | -6   | never | 1s    | -
            10s  | 1 x 1 | 1       | 2    | now   | 10s   | 0
        "),
        table("debt: a charge begins a window", vec![indebted(fixed(3, "10s", Align::First), 1)], "
            1s   | + 4   | 0 | -1 | 10s | 10s | -
            11s  | 1 x 0 | 1 | 3  | now | 0   | 0
        "),
        table("debt: a window that follows the clock, and a refund", vec![indebted(fixed(3, "1m", Align::Clock), 2)], "
            0    | 2 x 1 | 2 | 1  | now | 1m  | 0
            10s  | + 4   | 0 | -3 | 50s | 50s | -
            20s  | - 2   | 0 | -1 | 40s | 40s | -
            20s  | 1 x 1 | 0 | -1 | 40s | 40s | -
            1m   | 4 x 1 | 3 | 0  | 1m  | 1m  | 0
        "),
        table("debt: clock back: a window's debt counts until the next window is over", vec![indebted(fixed(3, "1m", Align::Clock), 1)], "
            59m  | + 6   | 0 | -3 | 1m  | 1m  | -
            30m  | 1 x 1 | 0 | -3 | 2m  | 2m  | -
            31m  | 1 x 1 | 0 | -3 | 1m  | 1m  | -
            32m  | 1 x 1 | 1 | 2  | now | 1m  | 0
        "),
        table("debt: a month", vec![indebted(calendar(3, Period::MONTH, 0), 32)], "
            0      | + 1000 | 0 | -96 | 9d 10h | 9d 10h | -
            9d 10h | 1 x 1  | 1 | 2   | now    | 31d    | 0
        "),
        table("debt: the largest window", vec![indebted(fixed(1_000_000_000_000, "1ms", Align::Clock), 32)], "
            0 | + 2_000_000_000_000 | 0 | -1_000_000_000_000 | 1ms | 1ms | -
            0 | + 2_000_000_000_000 | 0 | -3_000_000_000_000 | 1ms | 1ms | -
            1ms | 1 x 1             | 1 | 999_999_999_999    | now | 1ms | 0
        "),
        table("debt: a log forgets a charge when its window is over", vec![indebted(log(3, "10s"), 1)], "
            0    | 2 x 1 | 2 | 1  | now | 10s | 0
            4s   | + 9   | 0 | -3 | 10s | 10s | -
            10s  | 1 x 1 | 0 | -1 | 4s  | 4s  | -
            14s  | 1 x 1 | 1 | 2  | now | 10s | 0
        "),
        table("debt: clock back: a log's charge counts from now", vec![indebted(log(3, "10s"), 1)], "
            20s  | + 5   | 0 | -2 | 10s | 10s | -
            5s   | 1 x 1 | 0 | -2 | 10s | 10s | -
            15s  | 1 x 1 | 1 | 2  | now | 10s | 0
        "),
        table("debt: a slot in debt leaves evenly", vec![indebted(sliding(4, "10s", "10s"), 1)], "
            0        | + 9   | 0 | -4 | 16250ms | 20s    | -
            10s      | 1 x 1 | 0 | -4 | 6250ms  | 10s    | -
            # Four of the eight units have left: so much may be charged again.
            15s      | 1 x 1 | 0 | 0  | 1250ms  | 5s     | -
            15s      | + 9   | 0 | -4 | 7500ms  | 15s    | -
            22s      | 1 x 1 | 0 | 0  | 500ms   | 8s     | -
            22500ms  | 1 x 1 | 1 | 0  | 2500ms  | 17500ms | 0
        "),
        table("debt: a bucket grants nothing until it has flowed back", vec![indebted(leaky(1, "1s", 5, "0"), 2)], "
            0    | 5 x 1 | 5 | 0   | 1s  | 5s  | 0
            0    | + 4   | 0 | -4  | 5s  | 9s  | -
            0    | - 2   | 0 | -2  | 3s  | 7s  | -
            # At most twice the burst.
            0    | + 100 | 0 | -10 | 11s | 15s | -
            10s  | 1 x 0 | 0 | 0   | 1s  | 5s  | -
            11s  | 2 x 1 | 1 | 0   | 1s  | 5s  | 0
        "),
        table("debt: what may wait is quota too", vec![indebted(leaky(1, "1s", 2, "3s"), 1)], "
            0    | + 9   | 0 | -4 | 5s    | 9s  | -
            0    | + 9   | 0 | -5 | 6s    | 10s | -
            6s   | 2 x 1 | 1 | 0  | 1s    | 5s  | 3s
            6s   | 1 x 3 | 0 | 0  | never | 5s  | -
        "),
        table("debt: clock back: a bucket owes no more than its whole debt", vec![indebted(leaky(1, "1s", 5, "0"), 2)], "
            10s  | + 8   | 0 | -3  | 4s  | 8s  | -
            8s   | 1 x 1 | 0 | -5  | 6s  | 10s | -
            0    | 1 x 1 | 0 | -10 | 11s | 15s | -
            11s  | 1 x 1 | 1 | 0   | 1s  | 5s  | 0
        "),
        table("debt: a charge goes below the overdraft, a request does not",
            vec![indebted(token(5, 1, "1s", Refill::Continuous, 3), 1)], "
            0    | 1 x 9 | 0 | 5  | never | 0   | -
            0    | 1 x 8 | 1 | -3 | 8s    | 8s  | 0
            0    | + 9   | 0 | -8 | 9s    | 13s | -
            8s   | 1 x 4 | 0 | 0  | 1s    | 5s  | -
            9s   | 1 x 4 | 1 | -3 | 4s    | 8s  | 0
        "),
        table("debt: wide numbers", vec![indebted(leaky(999_999_999_989, "1h", 1_000_000_000, "0"), 32)], "
            0            | + 2_000_000_000_000 | 0 | -32_000_000_000 | 115200001us | 118800001us | -
            115200001us  | 1 x 1               | 1 | -               | -           | -           | 0
        "),
        table("debt: steps bring it back", vec![indebted(token(5, 2, "1s", Refill::Stepwise, 0), 1)], "
            300ms  | + 8   | 0 | -3 | 2s  | 4s  | -
            1300ms | 1 x 1 | 0 | -1 | 1s  | 3s  | -
            2300ms | 1 x 1 | 1 | 0  | 1s  | 3s  | 0
            2300ms | + 8   | 0 | -5 | 3s  | 5s  | -
        "),
        table("debt: steps, after the clock went back", vec![indebted(token(5, 2, "1s", Refill::Stepwise, 0), 1)], "
            9s   | + 8   | 0 | -3 | 2s  | 4s  | -
            5s   | 1 x 1 | 0 | -3 | 2s  | 4s  | -
            7s   | 1 x 1 | 1 | 0  | 1s  | 3s  | 0
        "),
        table("debt: of several limits each takes what it may", vec![indebted(log(10, "1m"), 1), leaky(1, "1s", 2, "0")], "
            0    | + 15  | 0 | -5 | 1m  | 1m  | -
            2s   | 1 x 1 | 0 | -5 | 58s | 58s | -
            1m   | 1 x 1 | 1 | 1  | now | 1m  | 0
        "),
        table("distinct: a refund removes the value that its request has added", vec![distinct(2, "1m")], "
            0    | 1 x 1 @ann | 1 | 1 | now | 1m  | 0
            1s   | 1 x 1 @bob | 1 | 0 | now | 1m  | 0
            2s   | - 1        | 0 | 1 | now | 58s | -
            # Once.
            2s   | - 1        | 0 | 1 | now | 58s | -
            3s   | 1 x 1 @bob | 1 | 0 | now | 1m  | 0
            # Of one that had added nothing, nothing.
            4s   | 1 x 1 @ann | 1 | 0 | now | 59s | 0
            5s   | - 1        | 0 | 0 | 55s | 58s | -
            5s   | + 7        | 0 | 0 | 55s | 58s | -
        "),
        table("distinct: a value that another request has used stays", vec![distinct(2, "1m")], "
            0    | 2 x 1 @ann | 2 | 1 | now | 1m  | 0
            1s   | - 1        | 0 | 1 | now | 59s | -
        "),
        table("debt: a limit without it is emptied at most", vec![leaky(1, "1s", 2, "0"), fixed(3, "1m", Align::Clock)], "
            0    | + 15  | 0 | 0  | 1m  | 1m  | -
        "),
    ]
}

/// Tables of policies with a ban. `retry` is the ban's, if that is longer.
#[rustfmt::skip]
pub fn bans() -> Vec<Table> {
    let banning = |name, limit, ban, rows| Table { ban, ..table(name, vec![limit], rows) };
    vec![
        banning("ban: two denials in ten minutes, an hour, each time twice as long, three hours at most",
            fixed(5, "10m", Align::Clock), ban(2, "10m", "1h", 2, "3h"), "
            # at            | ask   | granted | left | retry | reset | held
            0               | 5 x 1 | 5       | 0    | 10m   | 10m   | 0
            0               | 1 x 1 | 0       | 0    | 10m   | 10m   | -
            1m              | 1 x 1 | 0       | 0    | 1h    | 9m    | -
            # What the limit has left does not matter, and requests do not make the ban longer.
            30m             | 9 x 1 | 0       | 5    | 31m   | 0     | -
            60m 59s 999999us | 1 x 1 | 0      | 5    | 1us   | 0     | -
            # Denials before the ban count no more.
            61m             | 6 x 1 | 5       | 0    | 9m    | 9m    | 0
            62m             | 1 x 1 | 0       | 0    | 2h    | 8m    | -
            # Two at once begin it too; what the limit has left is granted all the same.
            182m            | 7 x 1 | 5       | 0    | 3h    | 8m    | 0
            362m            | 5 x 1 | 5       | 0    | 8m    | 8m    | 0
            # Three hours after its end the last ban is forgotten, and not before.
            542m            | 7 x 1 | 5       | 0    | 1h    | 8m    | 0
            781m 59s 999999us | 7 x 1 | 5     | 0    | 2h    | -     | 0
        "),
        banning("ban: three denials within a minute from the first", fixed(1, "5m", Align::Clock),
            ban(3, "1m", "10m", 1, "10m"), "
            0            | 1 x 1 | 1 | 0 | 5m         | 5m | 0
            1s           | 1 x 1 | 0 | 0 | 4m 59s     | -  | -
            60s 999999us | 1 x 1 | 0 | 0 | 3m 59s 1us | -  | -
            61s          | 1 x 1 | 0 | 0 | 3m 59s     | -  | -
            62s          | 1 x 1 | 0 | 0 | 3m 58s     | -  | -
            # To ask for nothing is no denial.
            62s          | 0 x 1 | 0 | 0 | 3m 58s     | -  | -
            120s 999999us | 1 x 1 | 0 | 0 | 10m       | -  | -
            120s 999999us | 0 x 1 | 0 | 0 | 10m       | -  | -
        "),
        banning("ban: five failures, the sixth attempt begins it, and each ban is as long",
            log(5, "10m"), ban(1, "10m", "1h", 1, "1h"), "
            0    | 5 x 1 | 5 | 0 | 10m | 10m | 0
            1m   | 1 x 0 | 0 | 0 | 1h  | 9m  | -
            61m  | 5 x 1 | 5 | 0 | 10m | 10m | 0
            62m  | 1 x 9 | 0 | 0 | never | 9m | -
            62m  | 1 x 1 | 0 | 0 | 1h  | 9m  | -
        "),
        banning("ban: the denials before a ban do not count after it, nor does their window go on",
            fixed(1, "1m", Align::Clock), ban(2, "1h", "10m", 1, "10m"), "
            0      | 2 x 1 | 1 | 0 | 1m  | 1m  | 0
            1m     | 2 x 1 | 1 | 0 | 10m | 1m  | 0
            11m    | 2 x 1 | 1 | 0 | 1m  | 1m  | 0
            70m    | 2 x 1 | 1 | 0 | 10m | 1m  | 0
        "),
        banning("ban: when the clock goes back, no ban has more left than the longest",
            fixed(1, "1m", Align::Clock), ban(1, "1m", "1h", 1, "1h"), "
            3h              | 2 x 1 | 1 | 0 | 1h  | 1m | 0
            2h 30m          | 1 x 1 | 0 | - | 1h  | -  | -
            3h 29m 59s      | 1 x 1 | 0 | - | 1s  | -  | -
            3h 30m          | 1 x 1 | 1 | 0 | 60s | 60s | 0
        "),
    ]
}

/// One limit of each kind that a script treats differently.
pub fn each() -> Vec<(&'static str, Limit)> {
    vec![
        ("fixed_window, clock", fixed(5, "1m", Align::Clock)),
        ("fixed_window, first", fixed(5, "1m", Align::First)),
        ("fixed_window, month", calendar(5, Period::MONTH, 0)),
        ("fixed_window, more than fits one number", fixed(1_000_000_000_000, "1ms", Align::Clock)),
        ("sliding_log", log(5, "1m")),
        ("sliding_window, one slot", sliding(5, "1m", "1m")),
        ("sliding_window, six slots", sliding(5, "1m", "10s")),
        ("token_bucket, continuous", token(5, 1, "10s", Refill::Continuous, 3)),
        ("token_bucket, stepwise", token(5, 1, "10s", Refill::Stepwise, 3)),
        ("leaky_bucket", leaky(3, "1s", 5, "0")),
        ("leaky_bucket, max_delay", leaky(3, "1s", 5, "7s")),
        ("leaky_bucket, wide numbers", leaky(999_999_999_989, "1h", 1_000_000_000, "0")),
        ("concurrency", in_flight(5, "1m")),
        ("distinct", distinct(5, "1m")),
    ]
}

/// The same in debt, where there is one for each fragment that the linker knows.
pub fn each_indebted() -> Vec<(&'static str, Limit)> {
    let counts =
        each().into_iter().filter(|(_, limit)| !matches!(limit, Limit::Concurrency(_) | Limit::Distinct(_)));
    counts.map(|(name, limit)| (name, indebted(limit, 3))).collect()
}

/// Limits, and when to ask them so that their state has the size that docs/sizing.md states.
pub fn sizes() -> Vec<(&'static str, Limit, Vec<Micros>)> {
    let every = |step: &str, count: u64| (0..count).map(|i| START.plus(Micros(i * span(step).0))).collect();
    // The clock goes back by a ttl three times.
    let later = |back: u64| (0..16).map(move |i| START.plus(Micros::from_secs(16 * back + i)));
    vec![
        ("`fixed_window`, clock", fixed(100, "1m", Align::Clock), every("0", 2)),
        ("`fixed_window`, first, day, week, month", calendar(100, Period::MONTH, 0), every("0", 2)),
        ("`token_bucket`, `leaky_bucket`", leaky(3, "1s", 100, "0"), every("0", 2)),
        ("`sliding_window`, 1 slot", sliding(100, "1m", "1m"), every("1m", 2)),
        ("`sliding_window`, 10 slots", sliding(100, "1m", "6s"), every("6s", 11)),
        ("`sliding_window`, 60 slots", sliding(100, "1m", "1s"), every("1s", 61)),
        ("`concurrency`, 1 expiry", in_flight(100, "16s"), every("0", 2)),
        ("`concurrency`, 17 expiries (the most of one `ttl`)", in_flight(100, "16s"), every("1s", 17)),
        (
            "`concurrency`, 64 expiries (the most)",
            in_flight(100, "16s"),
            (0..4).rev().flat_map(later).collect(),
        ),
        ("`sliding_log`, 1 grant", log(10_000, "1h"), every("0", 1)),
        ("`sliding_log`, 100 grants", log(10_000, "1h"), every("1ms", 100)),
        ("`sliding_log`, 10000 grants", log(10_000, "1h"), every("1ms", 10_000)),
        ("`distinct`, 1 value", distinct(1_000, "1h"), every("1ms", 1)),
        ("`distinct`, 20 values", distinct(1_000, "1h"), every("1ms", 20)),
        ("`distinct`, 1000 values (the most)", distinct(1_000, "1h"), every("1ms", 1_000)),
    ]
}
