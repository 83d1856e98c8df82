// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use super::*;

fn at(uptime: u64) -> Now {
    Now { host: Micros(uptime), uptime: Micros(uptime), loop_time: Micros(uptime) }
}

#[test]
fn what_an_idle_store_does_counts_from_the_next_batch() {
    let mut in_flight = InFlight::new(0, Micros::from_millis(50));
    for uptime in [1_000_000, 5_000_000] {
        in_flight.send(Slots::Normal, (Batch::new(), Vec::new()), at(uptime), Micros(uptime), false);
        assert_eq!(in_flight.batches[0].done.1, Micros(uptime));
        assert!(in_flight.complete(in_flight.batches[0].id).is_some());
    }
}
