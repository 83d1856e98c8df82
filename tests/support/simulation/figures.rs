// SPDX-License-Identifier: Apache-2.0
//! The figures of a run.

use std::collections::VecDeque;

use weir::limit::{Ask, Subject};
use weir::time::Micros;

use super::clients;
use super::{Clients, Run, Setup};
use crate::worker::START;

/// The run of one store that decides all requests at once.
pub fn central(setup: &Setup) -> Run {
    let (mut flows, mut random, mut run) =
        (clients::flows(setup), clients::random(setup.seed), Run::default());
    let (limits, mut subject) = ([setup.limit()], Subject::default());
    let mut events: std::collections::BTreeSet<(u64, usize)> =
        (0..flows.len()).map(|flow| (random.below(100_000), flow)).collect();
    while let Some((now, place)) = events.pop_first()
        && now < setup.micros()
    {
        let (sends, next) = flows[place].next(now, &mut random);
        events.extend(next.map(|next| (next, place)));
        if sends {
            let flow = u16::try_from(place).expect("few flows");
            run.sent.push((now, flow));
            let admitted = subject.check(&limits, None, Micros(START.0 + now), Ask::new(1, 1)).granted > 0;
            flows[place].decided(admitted, now);
            if admitted {
                run.admitted.push((now, flow));
            }
        }
    }
    run
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The most units by which what was admitted exceeds the limit, over any span.
    pub excess: u64,
    /// The number of admitted requests.
    pub admitted: u64,
    /// The admitted requests, in percent of what one store would admit of the same requests.
    pub utilisation: f64,
    /// Jain's index: 1 if all flows were admitted the same or, where flows send at given rates, the same part of what they sent.
    pub fairness: f64,
    /// Between regions, in a second.
    pub messages: f64,
}

impl Figures {
    pub fn new(setup: &Setup, run: &Run) -> Self {
        let later = |(at, _): &&(u64, u16)| *at >= setup.from * 1_000_000;
        let possible = admissible(setup, &run.sent);
        let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
        let (admitted, possible) =
            (run.admitted.iter().filter(later).count(), possible.iter().filter(later).count());
        Self {
            excess: excess(setup, &run.admitted),
            admitted: run.admitted.len() as u64,
            utilisation: share(admitted, possible),
            fairness: jain(setup, run),
            messages: run.messages as f64 / setup.seconds as f64,
        }
    }
}

/// The requests among these that one store would admit.
fn admissible(setup: &Setup, sent: &[(u64, u16)]) -> Vec<(u64, u16)> {
    let (limits, mut subject) = ([setup.limit()], Subject::default());
    let mut admits = |at| subject.check(&limits, None, Micros(START.0 + at), Ask::new(1, 1)).granted > 0;
    sent.iter().copied().filter(|(at, _)| admits(*at)).collect()
}

/// The most by which the admitted requests exceed the limit: for a bucket, how far below zero it would be; for a window, how many
/// more were admitted in any span of its length. A fixed window admits its limit at the end of one window and again at the beginning of the
/// next, so there it is twice the limit.
pub fn excess(setup: &Setup, admitted: &[(u64, u16)]) -> u64 {
    let mut worst = 0;
    if setup.shape.is_bucket() {
        // Units times a million.
        let (full, mut level, mut latest) = (u128::from(setup.burst) * 1_000_000, 0_i128, 0);
        let full = full.cast_signed();
        level += full;
        for (at, _) in admitted {
            level = full.min(level + i128::from((at - latest) * setup.rate)) - 1_000_000;
            latest = *at;
            worst = worst.max(-level);
        }
        return u64::try_from(worst.max(0)).expect("a count").div_ceil(1_000_000);
    }
    let windows = if setup.shape == super::Shape::FixedWindow { 2 } else { 1 };
    let (mut within, mut most) = (VecDeque::new(), 0);
    for (at, _) in admitted {
        within.push_back(*at);
        while within.front().is_some_and(|first| first + setup.window() <= *at) {
            within.pop_front();
        }
        most = most.max(within.len() as u64);
    }
    most.saturating_sub(windows * setup.burst)
}

/// Jain's fairness index.
fn jain(setup: &Setup, run: &Run) -> f64 {
    let count = |of: &[(u64, u16)]| {
        let mut each = vec![0.0_f64; clients::flows(setup).len()];
        for (_, flow) in of.iter().filter(|(at, _)| *at >= setup.from * 1_000_000) {
            each[usize::from(*flow)] += 1.0;
        }
        each
    };
    let mut each = count(&run.admitted);
    if !matches!(setup.clients, Clients::Flows(_)) {
        let sent = count(&run.sent);
        each = each
            .iter()
            .zip(sent)
            .filter(|(_, sent)| *sent > 0.0)
            .map(|(admitted, sent)| admitted / sent)
            .collect();
    }
    let (sum, squares): (f64, f64) = (each.iter().sum(), each.iter().map(|count: &f64| count * count).sum());
    if squares == 0.0 { 1.0 } else { sum * sum / (each.len() as f64 * squares) }
}

/// The requests admitted a second, in each span of so many milliseconds.
pub fn rates(setup: &Setup, run: &Run, span: u64) -> Vec<(f64, f64)> {
    let mut counts = vec![0_u64; (setup.seconds * 1_000 / span) as usize];
    for (at, _) in &run.admitted {
        if let Some(count) = counts.get_mut((at / 1_000 / span) as usize) {
            *count += 1;
        }
    }
    let rate = |(place, count): (usize, u64)| {
        (((place as u64 + 1) * span) as f64 / 1_000.0, count as f64 * 1_000.0 / span as f64)
    };
    counts.into_iter().enumerate().map(rate).collect()
}

/// The milliseconds from a time until the start of a second in which at least so many percent of the limit are admitted, and after which
/// this stays so.
pub fn follows_after(setup: &Setup, run: &Run, at: u64, percent: u64) -> Option<u64> {
    let start = at * 1_000;
    let steps: Vec<u64> =
        (0..).map(|step| start + step * 50).take_while(|ms| ms + 1_000 <= setup.seconds * 1_000).collect();
    let enough = |from: &u64| {
        let (from, to) = (from * 1_000, (from + 1_000) * 1_000);
        let admitted = run.admitted.iter().filter(|(at, _)| (from..to).contains(at)).count() as u64;
        admitted * 100 >= setup.rate * percent
    };
    let last_short = steps.iter().rposition(|from| !enough(from));
    match last_short {
        None => Some(0),
        Some(place) => steps.get(place + 1).map(|from| from - start),
    }
}
