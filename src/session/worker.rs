// SPDX-License-Identifier: Apache-2.0
//! The interfaces of the worker and of Envoy that a session needs. Each host implements both.

use crate::engine::{Engine, Export, Metrics, Report};
use crate::request::Attributes;
use crate::time::Micros;

/// The worker that has a request.
pub trait Worker {
    /// Envoy's statistics.
    type Metrics: Metrics;

    /// The engine, what was exported of it, and where that is exported to.
    fn parts(&mut self) -> (&mut Engine, &mut Report, &mut Self::Metrics);

    /// The time. It may be a call of the host, so nothing reads it without need.
    fn now(&self) -> Micros;

    /// Arms the timer for the next thing that is due.
    fn arm(&mut self, now: Micros);

    /// Arms the timer for a request that is about to wait. Returns false if no timer runs: then nothing would end the wait.
    fn wait(&mut self, now: Micros) -> bool;

    /// Asks for a turn soon: the engine has something to send.
    fn wake(&mut self, now: Micros);

    /// The engine.
    fn engine(&mut self) -> &mut Engine {
        self.parts().0
    }

    /// Exports the statistics if it is time, or arms the timer for it.
    fn report(&mut self, now: Micros) {
        let (engine, report, metrics) = self.parts();
        match report.look(engine, now) {
            Export::Now => report.export(engine, metrics, now),
            // Without a timer the next turn exports them.
            Export::At(_) => self.arm(now),
            Export::Nothing => {}
        }
    }

    /// After a part of the response, or the end of the stream: wakes the worker if the engine has something to send, a settlement, or
    /// permits to release. What has changed is exported, because no other turn may follow.
    fn follow_up(&mut self, now: Micros) {
        if self.engine().wants_to_send() {
            self.wake(now);
            self.arm(now);
        }
        self.report(now);
    }
}

/// The request as Envoy has it, in a callback of its headers, its body or its trailers.
pub trait Exchange: Attributes {
    /// Writes a value to the filter state, where access logs and later filters can read it.
    fn write_state(&self, name: &str, value: &str);

    /// The attributes that could not be read since this was last asked: a line of the log for each.
    fn take_failures(&self) -> Vec<String>;
}
