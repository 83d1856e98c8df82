// SPDX-License-Identifier: Apache-2.0
//! The benchmark judges targets by ratios of noisy figures. Here the noise is known, and so is what must be found in it.

#[allow(dead_code)]
#[path = "../../benches/edge/stats.rs"]
mod stats;

use stats::{median, ratio, spread};

/// A number between -1 and 1 for each round, without a pattern.
fn noise(seed: u64, round: u64) -> f64 {
    let mixed = (seed * 1_000 + round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) % 2_001) as f64 / 1_000.0 - 1.0
}

/// Sixty rounds in which a way adds 10 and its counterpart 20, both with noise of this size.
fn rounds(seed: u64, size: f64) -> Vec<[f64; 2]> {
    (0..60).map(|round| [10.0 + size * noise(seed, round), 20.0 + size * noise(seed + 1, round)]).collect()
}

#[test]
fn medians_and_spreads_are_those_of_the_figures() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), 1.0);
    assert!(median(&[]).is_nan());
}

#[test]
fn an_interval_contains_the_true_ratio_about_as_often_as_it_says() {
    let hits = (0..40).filter(|seed| {
        let found = ratio(&rounds(seed * 2, 5.0)).expect("rounds");
        found.low <= 0.5 && 0.5 <= found.high
    });
    // 95 % of 40, less three standard deviations.
    let hits = hits.count();
    assert!((34..=40).contains(&hits), "{hits} of 40");
}

#[test]
fn a_verdict_falls_only_where_the_interval_allows_one() {
    let quiet = ratio(&rounds(7, 0.5)).expect("rounds");
    assert_eq!(quiet.verdict(0.6), "met");
    assert_eq!(quiet.verdict(0.4), "missed");
    assert_eq!(quiet.verdict(quiet.is), "not decided");
    let noisy = ratio(&rounds(7, 15.0)).expect("rounds");
    assert_eq!(noisy.verdict(0.6), "not decided");
    assert!(noisy.noise() > quiet.noise());
}

#[test]
fn what_slows_down_whole_rounds_does_not_widen_the_interval() {
    // The machine makes each round up to five times as slow, both figures of it alike.
    let disturbed = |(round, [way, other]): (u64, [f64; 2])| {
        let factor = 3.0 + 2.0 * noise(99, round);
        [way * factor, other * factor]
    };
    let slow: Vec<_> = (0..).zip(rounds(3, 0.5)).map(disturbed).collect();
    let found = ratio(&slow).expect("rounds");
    assert!(found.low <= 0.5 && 0.5 <= found.high && found.noise() < 0.15, "{found:?}, {}", found.noise());
    // The same figures in other rounds are no pairs.
    let [ways, others] = [0, 1].map(|which| slow.iter().map(move |pair| pair[which]));
    let mixed: Vec<_> = ways.zip(others.cycle().skip(17)).map(|(way, other)| [way, other]).collect();
    let mixed = ratio(&mixed).expect("rounds");
    assert!(mixed.noise() > 2.0 * found.noise(), "{mixed:?} {found:?}");
}

#[test]
fn the_same_rounds_give_the_same_interval() {
    assert_eq!(ratio(&rounds(1, 5.0)), ratio(&rounds(1, 5.0)));
}

#[test]
fn few_rounds_and_a_vanishing_counterpart_decide_nothing() {
    let few = ratio(&rounds(1, 0.1)[..7]).expect("rounds");
    assert_eq!(few.verdict(10.0), "not decided: too few rounds");
    let vanished: Vec<_> = rounds(1, 0.1).into_iter().map(|[way, _]| [way, 0.0]).collect();
    assert_eq!(ratio(&vanished).expect("rounds").noise(), f64::INFINITY);
    assert_eq!(ratio(&[]), None);
}
