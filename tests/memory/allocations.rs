// SPDX-License-Identifier: Apache-2.0
//! The number of allocations of the core for a request.

use std::rc::Rc;

use crate::core::{Core, User, answer, limited};
use allocation_counter::measure;
use weir::body::{Fields, HtmlForm};
use weir::request::body::MAX_BODY_PATHS;

/// Rounds that are counted, after as many that fill what is kept between requests.
const ROUNDS: u64 = 1_000;

const API: User<'_> = User { path: "/api/things?page=2", name: "ann" };

const HOUR: i64 = 3_600_000_000;

/// Allocations in each of many equal rounds, rounded up.
fn per_round(mut round: impl FnMut()) -> u64 {
    (0..ROUNDS).for_each(|_| round());
    measure(|| (0..ROUNDS).for_each(|_| round())).count_total.div_ceil(ROUNDS)
}

/// The allocations of the core alone: this host lends the bytes of the request. Both hosts of Envoy copy them, which adds one allocation
/// for each attribute that is read.
#[test]
fn allocations_for_a_request() {
    const LEASE: &str = r#""lease": {"max": 1000000, "min": 1000000, "duration": "1m"},"#;
    let plain = limited("", "allow");

    let mut core = Core::new(&plain);
    let unmatched = per_round(|| assert_eq!(core.arrive(&User { path: "/", ..API }), Some(true)));

    let mut core = Core::new(&plain);
    core.arrive(&API);
    core.ask(&answer(0, HOUR, core.now));
    let denied = per_round(|| assert_eq!(core.arrive(&API), Some(false)));

    let mut core = Core::new(&limited(LEASE, "allow"));
    core.arrive(&API);
    core.ask(&answer(1_000_000, 0, core.now));
    let leased = per_round(|| assert_eq!(core.arrive(&API), Some(true)));

    let exact = |requests: usize| {
        let mut core = Core::new(&plain);
        let reply = answer(requests.try_into().expect("few"), 0, core.now);
        per_round(|| {
            (0..requests).for_each(|_| assert_eq!(core.arrive(&API), None));
            assert_eq!(core.ask(&reply), requests);
        })
    };
    let (alone, sixteen) = (exact(1), exact(16));

    for (case, counted, most) in [
        ("no policy matches", unmatched, 0),
        // Before each decision 2: the subject's tag, and the check. A rejection has five strings, a list of headers and a body.
        ("denied until", denied, 10),
        ("leased", leased, 2),
        // The bytes of the batch, and an outcome that is shared: two more.
        ("exact, alone", alone, 4),
        // Each has its tag and its check. For all of them: those two, and a list of the requests that wait for the answer, whose memory grows
        // three times.
        ("exact, sixteen of one subject", sixteen, 16 * 2 + 6),
    ] {
        println!("{case}: {counted}");
        assert!(counted <= most, "{case}: {counted} allocations, at most {most}");
    }
}

/// A lease that runs out all the time leaves nothing behind each time.
#[test]
fn a_busy_leased_subject_keeps_no_more_and_more() {
    let mut core = Core::new(&limited(r#""lease": {"max": 4, "min": 4, "duration": "1m"},"#, "allow"));
    let granted = answer(5, 0, core.now);
    let mut round = || {
        assert_eq!(core.arrive(&API), None);
        assert_eq!(core.ask(&granted), 1);
        (0..4).for_each(|_| assert_eq!(core.arrive(&API), Some(true)));
    };
    (0..10).for_each(|_| round());
    let kept = measure(|| (0..ROUNDS).for_each(|_| round())).bytes_current;
    assert_eq!(kept, 0, "bytes kept of {ROUNDS} leases");
}

/// However long a form is, and whatever is in it.
#[test]
fn a_form_takes_at_most_16_kib() {
    let names: Rc<[String]> = (0..MAX_BODY_PATHS).map(|field| format!("f{field}")).collect();
    let head = "Content-Disposition: form-data; name=";
    let parts = |body: &str| -> String {
        (0..MAX_BODY_PATHS).map(|field| format!("--x\r\n{head}\"f{field}\"\r\n\r\n{body}\r\n")).collect()
    };
    let long = "v".repeat(1_000_000);
    let names_of_3_kib = format!("--x\r\n{head}\"{}\"\r\n\r\n{long}\r\n", "n".repeat(3_000));
    let pairs: String = (0..MAX_BODY_PATHS).map(|field| format!("f{field}={}&", &long[..1_000])).collect();
    for (content_type, form) in [
        ("multipart/form-data; boundary=x", parts(&long)),
        (
            "multipart/form-data; boundary=x",
            [parts(&long[..1_000]), names_of_3_kib, format!("--x\r\n{long}")].concat(),
        ),
        ("multipart/form-data; boundary=x", format!("--x\r\n{long}")),
        ("application/x-www-form-urlencoded", format!("{pairs}{}={long}", "n".repeat(3_000))),
    ] {
        let kind = HtmlForm::of(content_type.as_bytes(), b"").expect("a form");
        let most = measure(|| {
            let mut fields = Fields::new(&kind, Rc::clone(&names));
            form.as_bytes().chunks(1_000).for_each(|chunk| fields.feed(chunk));
            fields.end();
        });
        assert!(most.bytes_max <= 16 * 1024, "{content_type}: {} bytes", most.bytes_max);
    }
}
