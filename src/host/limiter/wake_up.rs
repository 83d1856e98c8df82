// SPDX-License-Identifier: Apache-2.0
//! The wake-up: a message on the worker's own shared queue, so that its root is called on a later turn of its event loop.

use proxy_wasm::{hostcalls, types};

use super::super::done;
use crate::shared::{self, Shared};
use crate::time::Micros;

/// A wake-up that has not arrived after this long is lost. The timer does its work, and the next one is sent.
const LOST_AFTER: Micros = Micros::from_secs(1);

/// The queue that wakes a worker's root, and the wake-up that is on its way.
#[derive(Default)]
pub(super) struct WakeUp {
    /// Absent until the first request.
    queue: Option<u32>,
    /// The time at which the wake-up that is on its way was sent.
    sent: Option<Micros>,
}

impl WakeUp {
    /// Sends a wake-up unless one is on its way. It may fail: then the timer does its work, some milliseconds later.
    pub fn send(&mut self, now: Micros) {
        if self.sent.is_some_and(|sent| sent <= now && now.since(sent) < LOST_AFTER) {
            return;
        }
        self.sent = Some(now);
        if self.queue.is_none() {
            self.queue = open_queue();
        }
        if let Some(queue) = self.queue {
            done("waking the worker", hostcalls::enqueue_shared_queue(queue, None));
        }
    }

    pub fn arrived(&mut self) {
        self.sent = None;
    }
}

/// Registers the queue that wakes this worker. A queue belongs to the thread that registered its name last, so
/// the name must be this worker's alone.
fn open_queue() -> Option<u32> {
    let queue = shared::draw(&Numbers)
        .and_then(|number| hostcalls::register_shared_queue(&format!("weir.wake.{number}")));
    queue.inspect_err(|status| log::error!("no queue can be registered to wake this worker: {status:?}")).ok()
}

/// The shared value from which all workers of this process draw their numbers.
struct Numbers;

impl Numbers {
    const KEY: &str = "weir.workers";
    /// Any value: only its version is used.
    const VALUE: &[u8] = b"1";
}

impl Shared for Numbers {
    type Error = types::Status;

    fn version(&self) -> Result<Option<u32>, types::Status> {
        hostcalls::get_shared_data(Self::KEY).map(|(_, version)| version)
    }

    fn write(&self) -> Result<(), types::Status> {
        hostcalls::set_shared_data(Self::KEY, Some(Self::VALUE), None)
    }

    fn replace(&self, version: u32) -> Result<bool, types::Status> {
        match hostcalls::set_shared_data(Self::KEY, Some(Self::VALUE), Some(version)) {
            Ok(()) => Ok(true),
            Err(types::Status::CasMismatch) => Ok(false),
            Err(status) => Err(status),
        }
    }
}
