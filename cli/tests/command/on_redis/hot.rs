// SPDX-License-Identifier: Apache-2.0
//! `weir hot`.

use serde_json::Value;

use super::{World, world};

fn denials(world: &World, count: u64) {
    let mut redis = world.redis.connect();
    for at in 0..count {
        let id = format!("{}-1", 1_700_000_000_000 + at * 1_000);
        let subject = if at % 4 == 3 { "{login|bob\x1b}" } else { "{login|ann}" };
        let words = [
            "XADD",
            "edge:{journal}",
            &id,
            "policy",
            "login",
            "limit",
            "tries",
            "outcome",
            "rejected",
            "source",
            "redis",
            "subject",
            subject,
            "cost",
            "1",
            "age_ms",
            "0",
        ];
        redis.call(&words.map(str::as_bytes));
    }
    let list = [
        "XADD",
        "edge:{journal}",
        "1800000000000-1",
        "policy",
        "api",
        "outcome",
        "denied",
        "reason",
        "deny[0]",
        "age_ms",
        "0",
        "skipped",
        "5",
    ];
    redis.call(&list.map(str::as_bytes));
}

#[test]
fn subjects_are_counted_in_the_journal() {
    let Some(world) = world() else { return };
    assert!(
        world
            .prints("hot --prefix edge")
            .starts_with("no denials in edge:{journal}. If requests are denied, the journal is off")
    );
    denials(&world, 1_200);
    assert_eq!(
        world.prints("hot --prefix edge --policy login"),
        "1200 denials within 19 min 59 s, 2023-11-14T22:13:20.000Z to 2023-11-14T22:33:19.000Z\n     \
         900  75 %  {login|ann}  rejected by tries (policy login)\n     \
         300  25 %  {login|bob\\x1b}  rejected by tries (policy login)\n"
    );
    assert_eq!(
        world.prints("hot --prefix edge --top 1 --count 5"),
        "5 denials within 1157 d 10 h, 2023-11-14T22:33:16.000Z to 2027-01-15T08:00:00.000Z\n       \
         3  60 %  {login|ann}  rejected by tries (policy login)\nand 2 more subjects\n5 more denials are not in the journal (skipped), \
         so the shares are those of a sample\n"
    );
    assert_eq!(
        world.prints("hot --prefix edge --since 1h"),
        "1 denials within 0 ms, 2027-01-15T08:00:00.000Z to 2027-01-15T08:00:00.000Z\n       \
         1 100 %  deny[0]  denied (policy api)\n5 more denials are not in the journal (skipped), so the shares are those of a sample\n"
    );
    // The newest entry is 100,000,000 s after the first.
    let out = world.prints("hot --prefix edge --since 1666660m");
    assert!(out.starts_with("801 denials within") && out.contains("     600  74 %  {login|ann}"), "{out}");
    let out = world.prints("hot --prefix edge --json");
    let first: Value = serde_json::from_str(out.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["denials"], &first["of"], &first["skipped"]), (&900.into(), &1_201.into(), &5.into()));
    assert_eq!((&first["subject"], &first["limit"]), (&"{login|ann}".into(), &"tries".into()));
    let listed = out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let listed: Vec<Value> = listed.filter(|line: &Value| line["policy"] == "api").collect();
    assert_eq!(listed.len(), 1, "{out}");
    assert_eq!((&listed[0]["reason"], listed[0].get("subject")), (&"deny[0]".into(), None));
}

#[test]
fn without_a_journal_the_limits_say_who_has_used_most() {
    let Some(world) = world() else { return };
    assert_eq!(world.prints("hot --used FILE"), "no subject has used any of its limits\n");
    world.requests("login", 0, "{login|ann}", 1);
    world.requests("login", 0, "{login|bob}", 2);
    world.requests("plans", 1, "{plans|ann}", 5);
    world.requests("api", 0, "{api|ann}", 1);
    world.says(&["SET", "edge:{gone|ann}:tries", "of a policy that is gone"]);
    let wanted = " 100 %  {login|bob}  limit tries: 0 of 2 left (policy login)\n  50 %  {api|ann}  limit flying: 1 of 2 left (policy api)\n  \
        50 %  {login|ann}  limit tries: 1 of 2 left (policy login)\n  25 %  {plans|ann}  limit gold/bucket: 15 of 20 left (policy plans)\n";
    let out = world.prints("hot --used FILE --top 4");
    assert_eq!(out, wanted);
    assert_eq!(
        world.prints("hot --used FILE --policy plans"),
        format!("{}\n", wanted.lines().last().unwrap())
    );
    let line: Value =
        serde_json::from_str(world.prints("hot --used FILE --top 1 --json").trim()).expect("JSON");
    assert_eq!(
        (&line["used_percent"], &line["remaining"], &line["quota"]),
        (&100.into(), &0.into(), &2.into())
    );
    let (status, failure) = world.fails("hot --used FILE --policy app");
    assert!(status == 2 && failure.contains("no policy \"app\""), "{failure}");
}
