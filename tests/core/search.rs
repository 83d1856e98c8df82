// SPDX-License-Identifier: Apache-2.0
//! The protocols that move units between parties, in all interleavings of small sizes: `make search` searches larger ones, and
//! `docs/bounds.md` shows how many.
//!
//! Each of these changes of the core, made by hand, was found by these searches; the last one only by the long ones:
//!
//! | protocol | change | what was found |
//! |---|---|---|
//! | `share`, lease | `settling.rs`: what is left of a lease is not refunded | units stay charged that nothing has used |
//! | lease | `lease.rs`: a request that is served takes nothing from the grant | fewer units are charged than were used |
//! | `debit` | `debits.rs`: what is charged is still owed | a store is charged with more than was granted |
//! | settle | `answered.rs`: a late grant is not settled at its true cost | the reserved units stay charged |
//! | queue | `answered.rs`: a permit for a client that has left is not released | a permit is held when all is over |
//! | `share` | `closed.rs`: a late grant beside a loan is not refunded when the request has ended | a request is charged twice |

use weir_support::search as searched;

use std::time::Duration;

use searched::{Scenario, scenarios};
use weir_support::is_full;

#[test]
fn no_interleaving_of_small_sizes_is_wrong() {
    let scenarios = if is_full() { scenarios::short() } else { scenarios::smallest() };
    for scenario in scenarios {
        let found = scenario.search(Duration::MAX);
        let row = format!("{} {:?}", scenario.name, scenario.sizes());
        if let Some((path, why)) = found.wrong {
            panic!("{row}: {why}\n{path:?}");
        }
        println!("{row}: {} states, {} paths, {:?}", found.states, found.paths, found.took);
        assert!(found.is_complete && found.states > 100, "{row}: {} states", found.states);
    }
}

#[test]
fn what_a_world_does_wrong_is_found() {
    for scenario in scenarios::wrong().into_iter().step_by(if is_full() { 1 } else { 3 }) {
        let found = scenario.search(Duration::MAX);
        let row = format!("{}, {:?}", scenario.name, scenario.defect);
        let Some((path, why)) = found.wrong else { panic!("{row}: not found on {} paths", found.paths) };
        println!("{row}: {why} after {} paths: {path:?}", found.paths);
    }
}

/// A state that was seen before leads to no state that is not searched anyway.
#[test]
fn searching_a_state_again_finds_no_other_states() {
    let scenario = scenarios::debit(2, &[0, 1]).with(1, 0);
    let all = Scenario { prunes: false, ..scenario.clone() };
    let (pruned, all) = (scenario.search(Duration::MAX), all.search(Duration::MAX));
    println!("{} paths with pruning, {} without", pruned.paths, all.paths);
    assert!(pruned.is_complete && all.is_complete && pruned.paths < all.paths);
    assert_eq!((pruned.states, pruned.longest), (all.states, all.longest));
}
