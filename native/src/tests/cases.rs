// SPDX-License-Identifier: Apache-2.0
//! Tests with an Envoy that re-enters the module and frees its objects at the earliest moment that it may.

use std::sync::Barrier;
use std::time::Duration;

use super::SET_BACK;
use super::envoy::{Answers, Within};
use super::world::{self, Limiter, Listener, Request, connections, turn, until};

/// A limiter with a store of its own, so that tests beside each other do not meet.
pub fn config(cluster: &str) -> String {
    format!(
        r#"{{"store": {{"cluster": "{cluster}", "deadline": "10s", "denial_ttl": "1h", "on_failure": "deny"}}, "policies": [{{"name": "p",
            "subject": [{{"header": {{"name": "x-user"}}}}], "settle": [{{"cost": {{"constant": 1}}}}],
            "limits": [{{"name": "l", "algorithm": "leaky_bucket", "rate": "1/d", "burst": 9}}]}}]}}"#
    )
}

/// A worker with a clock and an open connection to Redis.
pub struct World {
    cluster: String,
    pub store: Listener,
    clock: Listener,
}

impl World {
    pub fn new(name: &str) -> Self {
        Self::answering(name, Answers::Later)
    }

    fn answering(name: &str, answers: Answers) -> Self {
        let mut store = Listener::store(name);
        store.answers = answers;
        let world = Self { cluster: name.to_owned(), store, clock: Listener::clock() };
        until("a connection of each listener", &world.listeners(), || connections() >= 2);
        while turn(&world.listeners()) {}
        world
    }

    /// Redis accepts connections, and says nothing.
    fn silent(name: &str) -> Self {
        let mut world = Self::new(name);
        world::close_all();
        world.store.answers = Answers::Never;
        until("connections again", &world.listeners(), || connections() >= 2);
        while turn(&world.listeners()) {}
        world
    }

    /// Takes its turns for so many tenths of a second, in which statistics are exported.
    pub fn rests(&self, tenths: u32) {
        for _ in 0..tenths {
            std::thread::sleep(Duration::from_millis(100));
            while turn(&self.listeners()) {}
        }
    }

    pub fn listeners(&self) -> [&Listener; 2] {
        [&self.store, &self.clock]
    }

    fn limiter(&self) -> Limiter {
        Limiter::new(&config(&self.cluster))
    }

    pub fn answered(&self, requests: &[&Request]) -> Vec<u64> {
        until("an answer", &self.listeners(), || requests.iter().all(|request| request.status() > 0));
        requests.iter().map(|request| request.status()).collect()
    }
}

#[test]
fn requests_are_admitted_and_denied() {
    let world = World::new("plain");
    let limiter = world.limiter();
    let first = [limiter.request("ann", Within::End, None), limiter.request("denied", Within::End, None)];
    assert_eq!(world.answered(&[&first[0], &first[1]]), [200, 429]);
    // This worker knows the denial: it answers within the hook of the headers, and the stream ends there.
    assert_eq!(limiter.request("denied", Within::End, None).status(), 429);
}

#[test]
fn a_stream_that_ends_within_its_release_takes_all_others_along() {
    let world = World::new("together");
    let limiter = world.limiter();
    let first = limiter.request("ann", Within::EndAll, None);
    let others: Vec<_> =
        ["bob", "denied", "eve"].map(|user| limiter.request(user, Within::EndAll, None)).into();
    assert_eq!(world.answered(&[&first]), [200]);
    while turn(&world.listeners()) {}
    // The first one that is released ends the others: none of these is answered.
    assert!(others.iter().all(|request| request.status() == 0));
    assert_eq!(world.answered(&[&limiter.request("ann", Within::End, None)]), [200]);
}

#[test]
fn a_denial_that_ends_all_streams() {
    let world = World::new("denied");
    let limiter = world.limiter();
    let first = limiter.request("denied", Within::EndAll, None);
    let other = limiter.request("ann", Within::End, None);
    assert_eq!(world.answered(&[&first]), [429]);
    while turn(&world.listeners()) {}
    assert_eq!(other.status(), 0);
    let waiting = limiter.request("bob", Within::End, None);
    // Denied within the hook of the headers, and all that wait end there.
    assert_eq!(limiter.request("denied", Within::EndAll, None).status(), 429);
    while turn(&world.listeners()) {}
    assert_eq!(waiting.status(), 0);
}

#[test]
fn a_client_leaves_while_its_request_waits() {
    let world = World::new("cancelled");
    let limiter = world.limiter();
    let requests = ["ann", "bob", "ann"].map(|user| limiter.request(user, Within::End, None));
    requests[0].cancel();
    assert_eq!(world.answered(&[&requests[1], &requests[2]]), [200, 200]);
    let last = limiter.request("eve", Within::Stay, None);
    assert_eq!(world.answered(&[&last]), [200]);
    last.cancel();
    while turn(&world.listeners()) {}
}

#[test]
fn redis_answers_within_the_call_that_injects_the_commands() {
    let world = World::answering("within", Answers::Within);
    let limiter = world.limiter();
    let requests: Vec<_> =
        ["ann", "denied", "bob"].map(|user| limiter.request(user, Within::End, None)).into();
    assert_eq!(world.answered(&requests.iter().collect::<Vec<_>>()), [200, 429, 200]);
}

/// Batches that wait then take another connection. `Answers::Last` refuses those that do not.
#[test]
fn each_connection_ends_together_with_its_first_batch() {
    for later in [false, true] {
        let world = World::answering("last", Answers::Last { later });
        let limiter = world.limiter();
        for _ in 0..3 {
            let requests: Vec<_> = (0..if cfg!(miri) { 8 } else { 40 })
                .map(|user| limiter.request(&format!("user {user}"), Within::End, None))
                .collect();
            let statuses = world.answered(&requests.iter().collect::<Vec<_>>());
            assert!(statuses.contains(&200), "{statuses:?}");
            // What is in flight when Redis ends the connection is decided by `on_failure`.
            assert!(statuses.iter().all(|status| *status == 200 || later && *status == 503), "{statuses:?}");
        }
    }
}

#[test]
fn a_connection_closes_within_the_call_that_injects_the_commands() {
    let mut world = World::new("closes");
    let limiter = world.limiter();
    world::close_all();
    world.store.answers = Answers::Closes;
    let request = limiter.request("ann", Within::End, None);
    for _ in 0..50 {
        turn(&world.listeners());
    }
    world.store.answers = Answers::Later;
    let other = limiter.request("bob", Within::End, None);
    // Requests lost with a connection are decided by `on_failure`.
    let statuses = world.answered(&[&request, &other]);
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
}

#[test]
fn connections_close_while_requests_wait() {
    let mut world = World::new("silent");
    world::close_all();
    world.store.answers = Answers::Never;
    let limiter = world.limiter();
    let requests = ["ann", "bob"].map(|user| limiter.request(user, Within::EndAll, None));
    until("connections again", &world.listeners(), || connections() >= 2);
    while turn(&world.listeners()) {}
    world::close_all();
    world.store.answers = Answers::Later;
    until("an end", &world.listeners(), || requests.iter().any(|request| request.status() > 0));
    requests.iter().for_each(Request::cancel);
}

/// A worker that is so busy that a connection needs longer to open than a Redis that hangs would get.
#[cfg_attr(miri, ignore = "a turn takes seconds under Miri, and has several ticks")]
#[test]
fn a_connection_opens_in_a_few_turns_however_long_they_take() {
    let mut world = World::new("busy");
    world::close_all();
    world.store.answers = Answers::After(4);
    let limiter = world.limiter();
    let request = limiter.request("ann", Within::End, None);
    until("an answer", &world.listeners(), || {
        std::thread::sleep(Duration::from_millis(400));
        request.status() > 0
    });
    assert_eq!(request.status(), 200);
}

#[test]
fn a_configuration_ends_while_its_requests_wait() {
    let world = World::new("dropped");
    let (first, second) = (world.limiter(), world.limiter());
    let requests = [first.request("ann", Within::End, None), second.request("bob", Within::Stay, None)];
    drop(first);
    assert_eq!(world.answered(&[&requests[0], &requests[1]]), [200, 200]);
    drop(second);
    while turn(&world.listeners()) {}
    requests[1].cancel();
    let third = world.limiter();
    assert_eq!(world.answered(&[&third.request("ann", Within::End, None)]), [200]);
}

/// Another configuration subtracts them. Its requests wait for nothing, so nothing is due for it.
#[cfg_attr(miri, ignore = "Miri takes long until statistics are due")]
#[test]
fn a_configuration_ends_with_an_open_breaker_in_gauges() {
    let (world, next) = (World::new("gauges"), unmatched());
    drop(with_an_open_breaker(&world));
    // The other begins when nothing is due any more.
    world.rests(13);
    assert_eq!(next.request("ann", Within::End, None).status(), 200);
    until("its end", &world.listeners(), || next.values().iter().any(|value| *value < 0));
}

/// The same, and only another worker has the next configuration.
#[cfg_attr(miri, ignore = "Miri takes long until statistics are due")]
#[test]
fn a_configuration_ends_with_an_open_breaker_in_gauges_of_another_worker() {
    let (world, next, both) = (World::new("gauges"), unmatched(), Barrier::new(2));
    assert_eq!(next.request("ann", Within::End, None).status(), 200);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let world = World::new("gauges of another");
            drop(with_an_open_breaker(&world));
            both.wait();
            // Envoy has told all workers. The other one takes its turn first.
            both.wait();
            while turn(&world.listeners()) {}
        });
        both.wait();
        while turn(&world.listeners()) {}
        both.wait();
    });
    until("its end", &world.listeners(), || next.values().iter().any(|value| *value < 0));
}

/// A limiter that applies to no request.
fn unmatched() -> Limiter {
    let settled = r#""settle": [{"cost": {"constant": 1}}]"#;
    Limiter::new(&config("nowhere").replace(settled, r#""match": {"path": {"exact": "/other"}}"#))
}

/// A limiter whose store cannot be reached.
fn with_an_open_breaker(world: &World) -> Limiter {
    let limiter = Limiter::new(&config("nowhere").replace("10s", "5ms"));
    for _ in 0..20 {
        assert_eq!(world.answered(&[&limiter.request("ann", Within::End, None)]), [503]);
    }
    limiter
}

#[test]
fn listeners_end_before_their_connections() {
    let world = World::new("listeners");
    let limiter = world.limiter();
    let request = limiter.request("ann", Within::End, None);
    let World { store, clock, .. } = world;
    drop((store, clock));
    until("an answer", &[], || request.status() > 0);
    world::close_all();
    // Without a clock, a request has one of its own, which ends with it.
    let last = limiter.request("bob", Within::End, None);
    last.cancel();
    while turn(&[]) {}
}

/// A connection to a Redis that hangs closes after a second, and another takes its place.
#[cfg_attr(miri, ignore = "Miri has no other clock than the monotonic one")]
#[test]
fn connections_get_old_although_the_clock_of_the_host_is_set_back() {
    let world = World::silent("set back");
    let hangs = world::newest_of(&world.store);
    SET_BACK.set(Duration::from_hours(1));
    let limiter = world.limiter();
    let request = limiter.request("ann", Within::End, None);
    until("another connection", &world.listeners(), || world::newest_of(&world.store) > hangs);
    request.cancel();
}

/// Redis says nothing. The deadline holds, also when requests leave that could have got another clock.
#[test]
fn the_listener_of_the_clock_ends_while_requests_wait() {
    let world = World::silent("no clock");
    let limiter = Limiter::new(&config(&world.cluster).replace("10s", "50ms"));
    let requests = ["ann", "bob", "eve"].map(|user| limiter.request(user, Within::End, None));
    let World { store, clock, .. } = world;
    world::close_of(&clock);
    drop(clock);
    requests[..2].iter().for_each(Request::cancel);
    until("the deadline", &[&store], || requests[2].status() > 0);
    assert_eq!(requests[2].status(), 503);
}

#[test]
fn a_body_is_read_and_a_request_rejected_in_its_hook() {
    let world = World::new("bodies");
    let json = config(&world.cluster).replace(
        r#"{"header": {"name": "x-user"}}"#,
        r#"{"body_json": {"path": "user"}, "on_missing": "deny"}"#,
    );
    let limiter = Limiter::new(&json);
    let request = limiter.request("", Within::End, Some(r#"{"user": "ann"}"#));
    let denied = limiter.request("", Within::EndAll, Some(r#"{"user": 5, "user": 6}"#));
    assert_eq!(denied.status(), 403);
    while turn(&world.listeners()) {}
    assert_eq!(request.status(), 0, "it has ended with the other");
    assert_eq!(world.answered(&[&limiter.request("", Within::End, Some(r#"{"user": "bob"}"#))]), [200]);
}

#[test]
fn workers_share_a_configuration_that_ends_under_them() {
    let json = config("shared");
    let limiter = Shared(Limiter::new(&json));
    std::thread::scope(|scope| {
        let limiter = &limiter;
        let workers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let world = World::new("shared");
                    let request = limiter.get().request("ann", Within::Stay, None);
                    assert_eq!(world.answered(&[&request]), [200]);
                    request.cancel();
                    while turn(&world.listeners()) {}
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Envoy's workers share configurations.
struct Shared(Limiter);
unsafe impl Sync for Shared {}

impl Shared {
    fn get(&self) -> &Limiter {
        &self.0
    }
}
