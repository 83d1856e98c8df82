// SPDX-License-Identifier: Apache-2.0
//! Hooks that panic: the module stays whole, `on_failure` decides the requests that wait, and Redis the next.

use super::cases::{World, config};
use super::envoy::{Answers, Within};
use super::world::{Limiter, Request, close_all, connections, turn, until};
use crate::instrumented::is_armed;

/// Each place, and whether Redis has decided by then the request whose hook panics.
const PLACES: &[(&str, bool)] = &[
    ("evaluation", false),
    ("evaluation,evaluation", false),
    ("evaluation,export", false),
    ("submission", false),
    ("submission,evaluation,evaluation", false),
    ("body", false),
    ("body,evaluation,evaluation", false),
    ("tick", false),
    ("turn", false),
    ("turn,evaluation,evaluation", false),
    ("reply", false),
    ("close", false),
    ("response", true),
    ("response body", true),
    ("response trailers", true),
    ("end", true),
];

/// The values of `on_failure`, and the status of each when it decides.
const FAILURES: [(&str, u64); 2] = [("deny", 503), ("allow", 200)];

/// A limiter; with `reads_bodies`, its requests wait for their bodies first.
fn limiter(world: &str, reads_bodies: bool, on_failure: &str) -> Limiter {
    let json = config(world).replace(r#""on_failure": "deny""#, &format!(r#""on_failure": "{on_failure}""#));
    let subject = r#"{"header": {"name": "x-user"}}"#;
    let body = r#"{"body_json": {"path": "user", "on_unreadable": "missing"}}"#;
    Limiter::new(&if reads_bodies { json.replace(subject, body) } else { json })
}

/// Two requests wait beside the one whose hook panics. The first request that is answered may end them all, also within their own hooks.
fn in_each_place(within: Within) {
    let name = format!("{within:?}");
    let mut world = World::new(&name);
    // Miri takes half a minute for each place, and as much to load a configuration: all places share two.
    for (on_failure, decided) in FAILURES.into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
        let limiters = [false, true].map(|reads_bodies| limiter(&name, reads_bodies, on_failure));
        for (place, is_late) in PLACES {
            let case = format!("{place}, {on_failure}, {within:?}");
            if *place == "tick" {
                world.store.answers = Answers::Never;
                close_all();
                until("connections", &world.listeners(), || connections() >= 2);
                while turn(&world.listeners()) {}
                world.store.answers = Answers::Later;
            }
            let reads_bodies = place.starts_with("body");
            let limiter = &limiters[usize::from(reads_bodies)];
            let body = reads_bodies.then_some(r#"{"user": "ann"}"#);
            let before = limiter.request("ann", within, body);
            let faulty = limiter.faulty(place, "bob", within, body);
            let after = limiter.request("eve", within, body);
            if *place == "close" {
                close_all();
            }
            let requests = [&before, &faulty, &after];
            let is_over = || !is_armed() && requests.iter().all(|request| request.has_ended());
            until(&case, &world.listeners(), is_over);
            for request in requests {
                let status = request.status();
                let is_answered = [200, decided].contains(&status);
                assert!(is_answered || (status == 0 && within == Within::EndAll), "{case}: {status}");
            }
            if within == Within::End {
                // The response of the first is the first one that reaches these places.
                let (first, expected) = if *is_late { (&before, 200) } else { (&faulty, decided) };
                assert_eq!(first.status(), expected, "{case}");
            }
            later_requests(&world, limiter, body);
        }
    }
}

/// The worker's connections and clock come again, and Redis decides.
fn later_requests(world: &World, limiter: &Limiter, body: Option<&str>) {
    until("connections", &world.listeners(), || connections() >= 2);
    while turn(&world.listeners()) {}
    let requests = [(), ()].map(|()| limiter.request("ann", Within::End, body));
    assert_eq!(world.answered(&[&requests[0], &requests[1]]), [200, 200]);
    assert!(!is_armed());
}

#[test]
fn on_failure_decides_and_later_requests_work() {
    in_each_place(Within::End);
}

#[test]
fn whoever_is_answered_first_ends_all() {
    in_each_place(Within::EndAll);
}

#[test]
fn a_request_whose_end_panics_while_it_waits_is_forgotten() {
    for (on_failure, decided) in FAILURES {
        let world = World::new(on_failure);
        let limiter = limiter(on_failure, false, on_failure);
        let requests = ["ann", "bob"].map(|user| limiter.request(user, Within::End, None));
        let faulty = limiter.faulty("end", "eve", Within::End, None);
        faulty.cancel();
        assert!(!is_armed(), "it has panicked");
        assert_eq!(requests.each_ref().map(Request::status), [decided; 2]);
        later_requests(&world, &limiter, None);
        assert_eq!(faulty.status(), 0);
    }
}

#[test]
fn the_end_of_a_configuration_panics() {
    let world = World::new("removal");
    let first = limiter("removal", false, "deny");
    let requests =
        [first.request("ann", Within::End, None), first.faulty("removal", "bob", Within::End, None)];
    drop(first);
    assert!(!is_armed(), "it has panicked");
    assert_eq!(world.answered(&[&requests[0], &requests[1]]), [200, 200]);
    later_requests(&world, &limiter("removal", false, "deny"), None);
}

/// The stream ends when nothing is due any more.
#[cfg_attr(miri, ignore = "Miri takes long until statistics are due")]
#[test]
fn a_panic_is_counted_without_a_further_request() {
    let world = World::new("counted");
    let limiter = limiter("counted", false, "deny");
    let faulty = limiter.faulty("end", "ann", Within::Stay, None);
    assert_eq!(world.answered(&[&faulty]), [200]);
    world.rests(5);
    faulty.cancel();
    assert!(!is_armed(), "it has panicked");
    let before = limiter.values();
    until("the count", &world.listeners(), || limiter.values() != before);
}
