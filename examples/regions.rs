// SPDX-License-Identifier: Apache-2.0
//! Simulates limits across regions, over more setups than `docs/regions.md` shows, and writes the figures to `target/regions/`.
//!
//! `cargo run --release --example regions`
#![allow(missing_docs)]

use weir_support::simulation;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use simulation::{Clients, Setup, Shape, Way, cases, figures, report};

fn main() -> std::io::Result<()> {
    seeds();
    let setups = sweep();
    let mut table = "way,algorithm,regions,delay_ms,sync_interval_ms,burst,demand,excess,bound,utilisation,fairness,messages_per_s\n".to_owned();
    for ((demand, setup), (_, figures)) in
        setups.iter().zip(cases::run_all(&setups.iter().map(|(_, setup)| setup.clone()).collect::<Vec<_>>()))
    {
        let Setup { way, shape, regions, delay, sync_interval, burst, .. } = setup;
        let (way, shape, bound) = (way.name(), shape.name(), cases::bound(setup));
        let _ = writeln!(
            table,
            "{way},{shape},{regions},{},{},{burst},{demand},{},{bound},{:.1},{:.3},{:.0}",
            delay / 1_000,
            sync_interval / 1_000,
            figures.excess,
            figures.utilisation,
            figures.fairness,
            figures.messages
        );
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/regions");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("sweep.csv"), &table)?;
    let report = report::simulate();
    for (name, content) in report.files() {
        fs::write(folder.join(name), content)?;
    }
    print!("{table}\n{}", report.tables());
    println!("The table is in {}.", folder.join("sweep.csv").display());
    Ok(())
}

/// The changes in the comparison of the ways with other seeds.
fn seeds() {
    let ways = [Way::One, Way::Debit, Way::Share, Way::RandomDrop, Way::FlowShare];
    let fast = |way| Setup { rate: 1_000, burst: 200, seconds: 30, from: 10, ..cases::flows(way) };
    let sets: [(&str, &dyn Fn(Way) -> Setup); 4] = [
        ("moving", &cases::moving),
        ("unequal demand", &cases::unequal),
        ("flows, 300 a second", &cases::flows),
        ("flows, 1,000 a second", &fast),
    ];
    for (name, make) in sets {
        for way in ways {
            let setups: Vec<_> = (1..=8).map(|seed| Setup { seed, ..make(way) }).collect();
            let runs = cases::run_all(&setups);
            let fairness: Vec<_> =
                runs.iter().map(|(_, figures)| format!("{:.2}", figures.fairness)).collect();
            let follows =
                setups.iter().zip(&runs).map(|(setup, (run, _))| figures::follows_after(setup, run, 4, 90));
            let after: Vec<_> = follows.map(|ms| ms.map_or("-".to_owned(), |ms| ms.to_string())).collect();
            let after = if name == "moving" { after.join(" ") } else { String::new() };
            println!("{name}, {}: fairness {} {after}", way.name(), fairness.join(" "));
        }
    }
}

/// All combinations that the configuration accepts.
fn sweep() -> Vec<(&'static str, Setup)> {
    let mut setups = Vec::new();
    for way in [Way::Home, Way::Debit, Way::Share] {
        for shape in Shape::ALL {
            for regions in [2, 8, 32] {
                for delay in [5_000, 50_000, 300_000] {
                    for sync_interval in [50_000, 200_000, 1_000_000, 5_000_000] {
                        for (demand, clients) in [
                            ("uniform", Clients::uniform(200, regions)),
                            ("zipf", Clients::zipf(200, regions)),
                            ("moving", Clients::moving(200, regions, 8)),
                        ] {
                            let usual = Setup::usual(way);
                            let setup = Setup {
                                shape,
                                regions,
                                delay,
                                sync_interval,
                                clients,
                                seconds: 16,
                                from: 6,
                                ..usual
                            };
                            setups.push((demand, setup));
                        }
                    }
                }
            }
        }
    }
    setups.retain(|(_, setup)| {
        setup.is_accepted() && (setup.way != Way::Home || setup.sync_interval == 200_000)
    });
    setups
}
