// SPDX-License-Identifier: Apache-2.0
//! Whatever happens, each grant is charged or refunded exactly once.
#![cfg(not(target_arch = "wasm32"))]

use proptest::prelude::*;

use crate::engine::ledger::{Fate, History, Step};

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![12 => Just(Fate::Replied), 1 => Just(Fate::LostUnread), 1 => Just(Fate::LostReply)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..=4usize, 0..3usize).prop_map(|(policies, subject)| Step::Arrive { policies, subject }),
        4 => (fate(), any::<u64>()).prop_map(|(fate, dice)| Step::Send { fate, dice }),
        3 => any::<usize>().prop_map(|which| Step::Reply { which }),
        3 => any::<usize>().prop_map(|which| Step::Close { which }),
        3 => (1..15u64).prop_map(|millis| Step::Pass { millis }),
    ]
}

proptest! {
    #![proptest_config(crate::tried::tried(400))]
    #[test]
    fn what_is_charged_and_not_refunded_was_admitted_or_left(
        steps in prop::collection::vec(step(), 1..120),
        apart in any::<bool>(),
        deny in any::<bool>(),
        single in any::<bool>(),
        lease in any::<bool>(),
        queue in any::<bool>(),
    ) {
        let topology = if single { "single" } else { "any" };
        let mut history = History::new(apart, topology, deny, lease && !apart, queue);
        steps.iter().for_each(|step| history.step(step));
        history.end();
        history.judge();
    }
}
