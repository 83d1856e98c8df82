// SPDX-License-Identifier: Apache-2.0
//! Requests that are held until their turn.

use weir::time::Micros;

use crate::worker::*;

#[test]
fn a_delay_holds_a_request_until_its_turn() {
    let mut worker = Worker::new(ALLOW, [policy(&delayed("1s"))]);
    worker.all_wait([1, 2], "ann");
    assert_eq!(worker.answer([granted(2).delay(ms(100))]), []);
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(100))));
    worker.idle(ms(99));
    assert_eq!(worker.released(), []);
    worker.idle(ms(1));
    assert_eq!(worker.released(), [(1, true)]);
    // The second one's turn would be a second later; its client does not wait for it.
    worker.close(2);
    worker.idle(secs(2));
    assert_eq!(worker.released(), []);
    assert_eq!(worker.next_tick(), None, "nothing waits for time to pass");
}

/// The host calls a worker when something is due, and not before. The worker does not see the time between two calls if the clock is set
/// back in it.
#[test]
fn a_clock_that_is_set_back_between_two_calls_delays_a_hold_by_a_second_at_most() {
    for back in [secs(1), secs(15), secs(3_600)] {
        let mut worker = Worker::new(ALLOW, [policy(&delayed("1m"))]);
        worker.all_wait([1], "ann");
        assert_eq!(worker.answer([granted(1).delay(secs(20))]), []);
        let (mut passed, mut is_set_back) = (Micros::ZERO, false);
        while worker.released().is_empty() {
            let step = worker.next_tick().expect("one is held").since(worker.now);
            passed = passed.plus(step);
            worker.skip(step);
            if passed > ms(9_500) && !is_set_back {
                is_set_back = true;
                worker.set_back(back);
            }
            worker.engine.tick(worker.now);
        }
        assert!((secs(20)..=secs(21)).contains(&passed), "{back:?}: {passed:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_does_not_prolong_a_hold() {
    let mut worker = Worker::new(ALLOW, [policy(&delayed("1s"))]);
    worker.all_wait([1], "ann");
    assert_eq!(worker.answer([granted(1).delay(ms(100))]), []);
    worker.set_back(secs(3_600));
    assert_eq!(worker.next_tick(), Some(worker.now.plus(ms(100))));
    worker.engine.tick(worker.now);
    worker.idle(ms(99));
    assert_eq!(worker.released(), []);
    worker.idle(ms(1));
    assert_eq!(worker.released(), [(1, true)]);
}
