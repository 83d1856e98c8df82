// SPDX-License-Identifier: Apache-2.0
//! Limits across regions, simulated with the real engines: what is admitted stays within the bound of each way, and is no less than
//! promised. `docs/proofs.md` and `docs/regions/` show the figures; `WEIR_UPDATE=1` writes them there.

use weir_support::simulation as simulated;

use std::path::Path;
use std::{env, fs};

use simulated::report::{self, BEGIN, END};
use simulated::{Clients, Figures, Setup, Shape, Way, cases, figures};

/// The cases of the table, for a tenth of their time.
#[test]
fn what_is_admitted_is_within_bounds() {
    let mut cases = cases::table();
    cases.iter_mut().for_each(|case| case.setup.seconds = case.setup.seconds.div_ceil(10));
    let setups: Vec<_> = cases.iter().map(|case| case.setup.clone()).collect();
    let figures = cases::run_all(&setups).into_iter().map(|(_, figures)| figures);
    let is_used_up = |of: &String| of.contains("% admitted, at least");
    let wrong: Vec<_> = beyond(cases.iter().zip(figures)).into_iter().filter(|of| !is_used_up(of)).collect();
    assert_eq!(wrong, Vec::<String>::new());
}

/// The cases that break a bound.
fn beyond<'a>(table: impl IntoIterator<Item = (&'a cases::Case, Figures)>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (case, figures) in table {
        let (name, bound) = (format!("{}, {}", case.setup.way.name(), case.name), cases::bound(&case.setup));
        if figures.excess > bound {
            wrong.push(format!("{name}: {} units above the limit, bound {bound}", figures.excess));
        }
        // If requests are charged before they are admitted, the total can never exceed what the limit gives.
        let gives = case.setup.burst + case.setup.rate * case.setup.seconds;
        let charged_before = case.setup.way != Way::Debit && case.setup.shape.is_bucket();
        if charged_before && figures.admitted > gives {
            wrong.push(format!("{name}: {} admitted, and the limit gives {gives}", figures.admitted));
        }
        if figures.utilisation < case.least {
            wrong.push(format!("{name}: {:.1} % admitted, at least {}", figures.utilisation, case.least));
        }
    }
    wrong
}

#[test]
fn the_documents_show_what_is_admitted() {
    let report = report::simulate();
    let table = report.table.iter().map(|(case, figures)| (case, *figures));
    assert_eq!(beyond(table), Vec::<String>::new());

    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let page = fs::read_to_string(docs.join("proofs.md")).expect("docs/proofs.md");
    let (head, rest) = page.split_once(BEGIN).expect("where the tables begin");
    let (_, tail) = rest.split_once(END).expect("where the tables end");
    published(&docs.join("proofs.md"), &[head, BEGIN, &report.tables(), END, tail].concat());
    for (name, content) in report.files() {
        published(&docs.join("regions").join(name), &content);
    }
}

/// Compares what is simulated with what is published. `WEIR_UPDATE=1` writes it instead.
fn published(path: &Path, simulated: &str) {
    if env::var_os("WEIR_UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        return fs::write(path, simulated).expect("the file");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(found == simulated, "{} is not what is simulated; WEIR_UPDATE=1 writes it", path.display());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for way in [Way::Home, Way::Debit, Way::Share, Way::RandomDrop, Way::FlowShare] {
        let setup = Setup { seconds: 2, ..Setup::usual(way) };
        let (one, two) = (simulated::run(&setup), simulated::run(&setup));
        assert_eq!((one.sent, one.admitted, one.messages), (two.sent, two.admitted, two.messages), "{way:?}");
        let other = simulated::run(&Setup { seed: 2, ..setup });
        assert_ne!(simulated::run(&Setup { seconds: 2, ..Setup::usual(way) }).sent, other.sent, "{way:?}");
    }
}

#[test]
fn how_far_requests_exceed_a_limit() {
    let at = |shape, burst, admitted: &[u64]| {
        let setup = Setup { shape, rate: 10, burst, ..Setup::usual(Way::One) };
        let admitted: Vec<_> = admitted.iter().map(|ms| (ms * 1_000, 0)).collect();
        figures::excess(&setup, &admitted)
    };
    let rows: [(&str, Shape, u64, &[u64], u64); 8] = [
        ("nothing", Shape::TokenBucket, 2, &[], 0),
        ("a burst", Shape::TokenBucket, 2, &[0, 0], 0),
        ("one more", Shape::TokenBucket, 2, &[0, 0, 0], 1),
        ("one more, a little later", Shape::TokenBucket, 2, &[0, 0, 50], 1),
        ("one more, when it has come back", Shape::TokenBucket, 2, &[0, 0, 100], 0),
        ("a window", Shape::SlidingWindow, 2, &[0, 199, 200], 0),
        ("one more in a window", Shape::SlidingWindow, 2, &[0, 100, 199], 1),
        ("two windows", Shape::FixedWindow, 2, &[190, 195, 205, 210, 215], 1),
    ];
    for (name, shape, burst, admitted, excess) in rows {
        assert_eq!(at(shape, burst, admitted), excess, "{name}");
    }
}

#[test]
fn one_store_serves_flows_alike() {
    let setup = Setup { clients: Clients::Flows(vec![3, 7]), ..cases::flows(Way::One) };
    let figures = simulated::Figures::new(&setup, &simulated::run(&setup));
    assert!(figures.fairness > 0.98 && figures.excess == 0, "{figures:?}");
}
