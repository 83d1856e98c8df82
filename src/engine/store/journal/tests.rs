// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::expect_used, clippy::unwrap_used)]

use super::*;

fn journal(sample_percent: u32, seed: u64) -> Journal {
    let config = format!(
        r#"{{"journal": {{"sample_percent": {sample_percent}}}, "policies": [{{"name": "p", "limits":
        [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 1}}]}}]}}"#
    );
    Journal::new(&Config::parse(config.as_bytes()).expect("valid"), seed).expect("a journal")
}

/// The configured percentage of denials is drawn, with any seed of a worker.
#[test]
fn as_many_denials_are_drawn_as_the_configuration_says() {
    const DENIALS: u32 = 20_000;
    for percent in [1, 10, 50, 90, 100] {
        for seed in [1, 2, 1 << 40, u64::MAX] {
            let mut journal = journal(percent, seed);
            let drawn = (0..DENIALS).filter(|_| journal.draws()).count();
            let drawn = u32::try_from(drawn).unwrap();
            let (expected, deviation) =
                (DENIALS / 100 * percent, f64::from(DENIALS * percent * (100 - percent)));
            // Six standard deviations.
            let bound = 6.0 * deviation.sqrt() / 100.0;
            assert!(f64::from(drawn.abs_diff(expected)) <= bound, "{percent} %, {seed}: {drawn}");
        }
    }
}

#[test]
fn a_batch_takes_as_many_entries_as_fit_for_certain() {
    let with_five = || {
        let mut journal = journal(100, 1);
        (0..5).for_each(|_| journal.denied_unasked("p", Denial::Listed(0), Micros::ZERO));
        journal
    };
    let one = with_five().waiting[0].bytes.len() + ADDED;
    // The bytes of the batch that are used, of three times what an entry may take.
    for (used, taken) in [(0, 3), (1, 2), (one, 2), (one * 2 + 1, 0), (one * 4, 0)] {
        let mut journal = with_five();
        let mut body = vec![b' '; used];
        let entries = journal.take(usize::MAX, one * 3, Micros::ZERO, &mut body);
        assert_eq!(entries.len(), taken, "{used}");
        assert!(body.len() <= used.max(one * 3));
        assert_eq!(journal.waiting.len(), 5 - taken, "{used}");
    }
}
