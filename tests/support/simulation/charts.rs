// SPDX-License-Identifier: Apache-2.0
//! The plots of `docs/regions.md`.

use super::{Figures, Run, Setup, cases, figures};
use crate::plot::{Line, plot};

/// A plot of the requests admitted a second, in each half second.
fn over_time(title: &str, runs: &[(Setup, Run)]) -> String {
    let line = |(setup, run): &(Setup, Run)| Line {
        name: setup.way.name().to_owned(),
        points: figures::rates(setup, run, 500),
    };
    let lines: Vec<_> = runs.iter().map(line).collect();
    let (setup, _) = &runs[0];
    let top = lines.iter().flat_map(|line| &line.points).map(|(_, rate)| *rate).fold(0.0, f64::max);
    plot(title, ("seconds", "requests admitted a second"), (setup.seconds as f64, top * 1.1), &lines)
}

pub fn moving(runs: &[(Setup, Run)]) -> String {
    over_time("All clients move to another region at 4 s; the limit is 100 a second", runs)
}

pub fn flows(runs: &[(Setup, Run)]) -> String {
    over_time("Three flows at one limiter, seven at the other; the limit is 300 a second", runs)
}

/// A plot of the excess over the limit in regions that wake up at the same time.
pub fn woken(runs: &[(Setup, Figures)]) -> String {
    let mut lines = Vec::new();
    for regions in [2, 8] {
        let runs = || runs.iter().filter(move |(setup, _)| setup.regions == regions);
        let at = |setup: &Setup| setup.sync_interval as f64 / 1_000.0;
        let admitted = runs().map(|(setup, figures)| (at(setup), figures.excess as f64)).collect();
        let bound = runs().map(|(setup, _)| (at(setup), cases::bound(setup) as f64)).collect();
        lines.push(Line { name: format!("{regions} regions"), points: admitted });
        lines.push(Line { name: format!("{regions} regions, bound"), points: bound });
    }
    let top = lines.iter().flat_map(|line| &line.points).map(|(_, units)| *units).fold(0.0, f64::max);
    plot(
        "debit: all regions begin at once; the limit is 100 a second",
        ("sync_interval, ms", "units above the limit"),
        (1_000.0, top * 1.1),
        &lines,
    )
}

/// A plot of the utilisation of the limit with few or many regions.
pub fn spread(runs: &[(Setup, Figures)]) -> String {
    let bursts = [50, 200];
    let line = |burst: u64| {
        let runs = runs.iter().filter(|(setup, _)| setup.burst == burst);
        let points = runs.map(|(setup, figures)| (setup.regions as f64, figures.utilisation)).collect();
        Line { name: format!("burst {burst}"), points }
    };
    plot(
        "share: what is admitted of the limit of 100 a second",
        ("regions", "% of what one store admits"),
        (33.0, 110.0),
        &bursts.map(line),
    )
}
