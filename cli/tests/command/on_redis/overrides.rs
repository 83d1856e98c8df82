// SPDX-License-Identifier: Apache-2.0
//! `weir override`.

use super::world;

#[test]
fn counts_are_set_changed_and_taken_away() {
    let Some(world) = world() else { return };
    let ann = "{api|ann}";
    let all = "--subject {api|ann} -y";
    assert_eq!(
        world.prints("override get FILE --subject {api|ann}"),
        "policy api, subject {api|ann}\n  override: none\n  limit hour: 10 per 1h, sliding log\n  limit flying: 2 at the same time, each for at most 1h, concurrency\n"
    );
    assert_eq!(
        world.prints(&format!("override set FILE {all} hour.limit=3")),
        "policy api, subject {api|ann}\n  override: {\"hour\":{\"limit\":3}}, until it is removed\n  limit hour: 3 per 1h, sliding log\n  \
         limit flying: 2 at the same time, each for at most 1h, concurrency\nWorkers see the change within 2 s.\n"
    );
    let limits = |permits: u64| {
        let outcome = world.requests("api", 0, ann, 0);
        let own = outcome.own.expect("counts of its own");
        assert_eq!((own[0].counts()[0], own[1].counts()[0]), (3, permits));
    };
    limits(2);
    // The other count stays, and all hold for as long as is said now.
    let out = world.prints(&format!("override set FILE {all} flying.limit=7 --for 2h"));
    assert!(
        out.contains("  override: {\"flying\":{\"limit\":7},\"hour\":{\"limit\":3}}, for another 2 h\n"),
        "{out}"
    );
    limits(7);
    // And as long as they hold already, unless something is said.
    let out = world.prints(&format!("override set FILE {all} flying.limit=8"));
    assert!(out.contains("for another 2 h\n"), "{out}");
    let out = world.prints(&format!("override unset FILE {all} flying"));
    assert!(out.contains("  override: {\"hour\":{\"limit\":3}}, for another 2 h\n"), "{out}");
    limits(2);
    let out = world.prints(&format!("override unset FILE {all} --json"));
    let line: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&line["override"], &line["limits"][0]["quota"]), (&serde_json::Value::Null, &10.into()));
    assert_eq!(world.requests("api", 0, ann, 0).own, None);
    assert_eq!(world.says(&["EXISTS", "edge:{api|ann}:override"]), ":0\r\n");
    // Once more changes nothing.
    assert!(world.prints(&format!("override unset FILE {all}")).contains("override: none"));
}

#[test]
fn counts_of_a_tier_have_its_name() {
    let Some(world) = world() else { return };
    let out =
        world.prints("override set FILE --path /plans -H x-user:ann -H x-plan:gold gold/bucket.capacity=2 gold/bucket.overdraft=0 -y");
    assert!(out.contains("limit gold/bucket: 1 per 1h, 2 at once, token bucket\n"), "{out}");
    assert_eq!(world.requests("plans", 1, "{plans|ann}", 9).granted, 2);
}

#[test]
fn what_weir_would_ignore_is_refused() {
    let Some(world) = world() else { return };
    let rows = [
        ("an unknown limit", "minute.limit=3", "\"minute.limit=3\": the limits are hour, flying"),
        ("an unknown count", "hour.burst=3", "\"hour.burst=3\": the counts of limit hour are limit"),
        ("no number", "hour.limit=many", "the count is no whole number"),
        ("not whole", "hour.limit=0.5", "the count is no whole number"),
        ("negative", "hour.limit=-1", "the count is no whole number"),
        ("too small", "hour.limit=0", "limit hour: limit is 0, allowed is 1 to 100000"),
        ("too large", "hour.limit=100001", "limit hour: limit is 100001, allowed is 1 to 100000"),
        ("no form", "hour", "allowed is LIMIT.COUNT=N, such as minute.limit=1000"),
        ("for ever", "hour.limit=3 --for 0s", "allowed is a duration from 1ms to 366d"),
    ];
    for (row, counts, wanted) in rows {
        let (status, failure) = world.fails(&format!("override set FILE --subject {{api|ann}} -y {counts}"));
        assert!(status == 2 && failure.contains(wanted), "{row}: {failure}");
    }
    let (status, failure) = world.fails("override set FILE --subject {login|ann} -y tries.limit=3");
    assert!(status == 2 && failure.contains("policy login: it has not \"overrides\": true"), "{failure}");
    let out = world.prints("override unset FILE --subject {api|ann} -y hour");
    assert!(out.contains("override: none"), "there is nothing to take away: {out}");
    assert_eq!(world.says(&["DBSIZE"]), ":0\r\n", "nothing was written");
}
