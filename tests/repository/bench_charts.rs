// SPDX-License-Identifier: Apache-2.0
//! The charts of `docs/bench` show what was measured. `WEIR_UPDATE=1` draws them again.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::bars;

#[test]
fn charts_are_drawn_from_the_measured_figures() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bench");
    let read = |name: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(folder.join(name)).expect(name)).expect(name)
    };
    let (services, summary) = (read("services.json"), read("summary.json"));
    let charts = [
        ("added.svg", bars::added(&services)),
        ("cpu.svg", bars::cpu(&summary)),
        ("latency.svg", bars::latency(&summary)),
    ];
    for (name, drawn) in charts {
        let path = folder.join(name);
        if std::env::var_os("WEIR_UPDATE").is_some() {
            fs::write(&path, &drawn).expect(name);
        }
        let is = fs::read_to_string(&path).unwrap_or_default();
        assert!(is == drawn, "{name} is not what its figures say; WEIR_UPDATE=1 draws it again");
    }
}
