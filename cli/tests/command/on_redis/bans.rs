// SPDX-License-Identifier: Apache-2.0
//! `weir ban`, `weir unban` and `weir bans`.

use serde_json::Value;
use weir::limit::RetryAfter;
use weir::time::Micros;

use super::world;
use crate::support::eventually;

const ANN: &str = "{login|ann}";

#[test]
fn a_ban_holds_until_it_ends_or_is_lifted() {
    let Some(world) = world() else { return };
    let ban = || world.requests("login", 0, ANN, 0).ban;
    assert_eq!(
        world.prints("ban FILE --path /login -H x-user:ann -y"),
        "{login|ann}: banned until it is lifted. Workers see the change within 2 s.\n"
    );
    assert_eq!(ban(), RetryAfter::Never);
    let out = world.prints("inspect FILE --subject {login|ann}");
    assert!(out.contains("  ban: until it is lifted, imposed: no reason given\n"), "{out}");
    let out = world.prints("ban FILE --subject {login|ann} --for 2h --reason scraper --json -y");
    let line: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((&line["for_ms"], &line["reason"]), (&7_200_000.into(), &"scraper".into()));
    let RetryAfter::After(rest) = ban() else { panic!("{:?}", ban()) };
    assert!(Micros::from_secs(7_190) < rest && rest <= Micros::from_millis(7_200_001), "{rest}");
    assert_eq!(
        world.prints("unban FILE --subject {login|ann} -y"),
        "{login|ann}: the ban is lifted. Workers see the change within 2 s.\n"
    );
    assert_eq!(ban(), RetryAfter::Now);
    assert_eq!(world.prints("unban FILE --subject {login|ann}"), "{login|ann}: it is not banned\n");
    world.prints("ban FILE --subject {login|ann} --for 200ms -y");
    eventually("the ban to end", || (ban() == RetryAfter::Now).then_some(()));
}

#[test]
fn a_lifted_ban_whose_limit_still_denies_names_the_limit() {
    let Some(world) = world() else { return };
    let bob = "{login|bob}";
    let still = " Its limit tries still denies it: use `weir reset`, or it may soon be banned again.\n";
    for (requests, wanted) in [(1, false), (9, true)] {
        world.requests("login", 0, bob, requests);
        world.prints("ban FILE --subject {login|bob} -y");
        let out = world.prints("unban FILE --subject {login|bob} -y");
        assert_eq!(out.ends_with(still), wanted, "{requests}: {out}");
    }
    world.prints("reset FILE --subject {login|bob} -y");
    assert_eq!(world.requests("login", 0, bob, 2).granted, 2);
}

#[test]
fn bans_that_nobody_would_read_are_refused() {
    let Some(world) = world() else { return };
    let long = "x".repeat(1_025);
    let rows = [
        (
            "a policy without bans",
            "ban FILE --subject {api|ann} -y",
            "policy api: it has no `ban`, so weir reads no bans",
        ),
        ("the same", "unban FILE --subject {api|ann} -y", "policy api: it has no `ban`"),
        (
            "a text of weir's own",
            "ban FILE --subject {login|ann} -y --reason until\u{20}5",
            "unexpected argument",
        ),
        ("no text", "ban FILE --subject {login|ann} -y --reason=", "allowed are 1 to 1024 bytes"),
        (
            "a long one",
            &format!("ban FILE --subject {ANN} -y --reason {long}"),
            "allowed are 1 to 1024 bytes",
        ),
        (
            "no consent",
            "ban FILE --subject {login|ann}",
            "Deny all requests of {login|ann} until it is lifted? There is no terminal to answer on",
        ),
        (
            "no duration",
            "ban FILE --subject {login|ann} -y --for 1y",
            "allowed is a duration from 1ms to 366d, such as 90s",
        ),
    ];
    for (row, words, wanted) in rows {
        let (status, failure) = world.fails(words);
        assert!(status == 2 && failure.contains(wanted), "{row}: {failure}");
    }
    let (status, _, failure) = world.run(&["ban", "FILE", "--subject", ANN, "-y", "--reason", "until 5"]);
    assert!(status == 2 && failure.contains("weir's own bans have such a text: write another"), "{failure}");
    assert_eq!(world.says(&["DBSIZE"]), ":0\r\n", "nothing was written");
}

#[test]
fn all_bans_are_listed() {
    let Some(world) = world() else { return };
    assert_eq!(world.prints("bans FILE"), "no subject is banned\n");
    world.requests("login", 0, ANN, 9);
    world.prints("ban FILE --subject {login|bob} -y --reason scraper");
    world.says(&["SET", "edge:{api|eve}:ban", "of no effect\x07"]);
    world.says(&["SET", "weir:{login|eve}:ban", "of another prefix"]);
    world.says(&["SET", "edge:{login|eve}:banned", "of another name"]);
    // Many other keys, so that the scan takes several steps.
    for thousand in 0..3 {
        let script =
            "for i = 1, 1000 do redis.call('SET', 'edge:{api|' .. ARGV[1] .. i .. '}:hour', 'x') end";
        world.says(&["EVAL", script, "0", &thousand.to_string()]);
    }
    let wanted =
        "{login|ann} for another 2 h, begun by weir\n{login|bob} until it is lifted, imposed: scraper\n";
    assert_eq!(world.prints("bans FILE"), wanted);
    assert_eq!(world.prints("bans FILE --policy login"), wanted);
    assert_eq!(
        world.prints("bans --prefix edge"),
        format!("{{api|eve}} until it is lifted, imposed: of no effect\\x07\n{wanted}")
    );
    assert_eq!(world.prints("bans --prefix edge --policy logi"), "no subject is banned\n");
    assert_eq!(world.prints("bans"), "{login|eve} until it is lifted, imposed: of another prefix\n");
    let out = world.prints("bans FILE --json");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&lines[0]["by"], &lines[1]["by"]), (&"weir".into(), &"operator".into()));
    assert_eq!((&lines[1]["text"], &lines[1]["rest_ms"]), (&"scraper".into(), &Value::Null));
    let (status, out, failure) = world.run(&["bans", "FILE", "--count", "1"]);
    assert_eq!((status, out.lines().count()), (0, 1));
    assert!(
        failure.contains("there are more bans than 1: choose a policy with --policy, or raise --count"),
        "{failure}"
    );
    let (status, failure) = world.fails("bans FILE --policy api");
    assert!(status == 2 && failure.contains("no policy \"api\" with a `ban`"), "{failure}");
}
