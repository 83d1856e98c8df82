// SPDX-License-Identifier: Apache-2.0
//! The connector and the workers that tell it what they have, in many interleavings: each worker gets a connection, and another when that
//! closes; connections are bounded; a listener that was removed gets no more.

use shuttle::thread::{JoinHandle, spawn};

use super::*;
use crate::tests::sockets::{Accepted, accept, close, listen};
use crate::threads::pass;

const WORKERS: u32 = 2;

/// Envoy's side of a listener: it gives connections to workers.
struct Envoy {
    events: Sender<Event>,
    listener: ListenerId,
    name: String,
    /// The connections of each worker.
    workers: Vec<Vec<Accepted>>,
}

impl Envoy {
    fn new(events: &Sender<Event>) -> Self {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let listener = IDS.fetch_add(1, Ordering::Relaxed);
        let name = format!("model-{listener}");
        let added = Listener::new(listener, &format!("@{name}"), WORKERS, None).unwrap();
        events.send(Event::Added(Box::new(added))).unwrap();
        let workers = (0..WORKERS).map(|_| Vec::new()).collect();
        Self { events: events.clone(), listener, name, workers }
    }

    /// Gives each waiting connection to the worker with the fewest. Returns their number.
    fn accept(&mut self) -> usize {
        let mut accepted = 0;
        while let Some(connection) = accept(&self.name) {
            let (place, worker) =
                self.workers.iter_mut().enumerate().min_by_key(|(_, worker)| worker.len()).unwrap();
            worker.push(connection);
            self.tell(Event::Accepted(self.listener, u32::try_from(place).unwrap()));
            accepted += 1;
        }
        assert!(self.workers.iter().map(Vec::len).sum::<usize>() <= MAX_PER_WORKER * self.workers.len());
        accepted
    }

    fn accept_until_each_worker_has_one(&mut self) {
        for _ in 0..10_000 {
            self.accept();
            if self.workers.iter().all(|worker| !worker.is_empty()) {
                return;
            }
            pass(Duration::from_millis(1));
        }
        panic!("a worker gets no connection");
    }

    fn close(&mut self, worker: u32) {
        if let Some(connection) = self.workers[worker as usize].pop() {
            drop(connection);
            self.tell(Event::Closed(self.listener, worker));
        }
    }

    fn tell(&self, event: Event) {
        self.events.send(event).unwrap();
    }
}

fn search(model: fn()) {
    shuttle::check_random(model, 1_000);
    shuttle::check_pct(model, 1_000, 3);
}

/// Workers that only ask.
fn asks(events: &Sender<Event>, listener: ListenerId) -> JoinHandle<()> {
    let events = events.clone();
    spawn(move || {
        events.send(Event::BatchWaits(listener)).unwrap();
        events.send(Event::SuccessorsWanted(listener)).unwrap();
    })
}

#[test]
fn each_worker_gets_a_connection_and_another_when_it_closes() {
    search(|| {
        let (events, _) = start();
        let mut envoy = Envoy::new(&events);
        let asks = asks(&events, envoy.listener);
        // Envoy listens a little later.
        pass(Duration::from_millis(3));
        listen(&envoy.name);
        envoy.accept_until_each_worker_has_one();
        for worker in 0..WORKERS {
            envoy.close(worker);
            envoy.accept_until_each_worker_has_one();
        }
        asks.join().unwrap();
        close(&envoy.name);
    });
}

#[test]
fn a_removed_listener_gets_no_connection() {
    search(|| {
        let (events, _) = start();
        let (mut removed, mut other) = (Envoy::new(&events), Envoy::new(&events));
        listen(&removed.name);
        removed.accept_until_each_worker_has_one();
        let asks = asks(&events, removed.listener);
        removed.close(0);
        removed.tell(Event::Removed(removed.listener));
        asks.join().unwrap();
        // The thread has taken all these events when the other listener has its connections again.
        listen(&other.name);
        other.accept_until_each_worker_has_one();
        (0..WORKERS).for_each(|worker| other.close(worker));
        other.accept_until_each_worker_has_one();
        removed.accept();
        pass(Duration::from_secs(5));
        other.accept();
        assert_eq!(removed.accept(), 0);
        close(&removed.name);
        close(&other.name);
    });
}
