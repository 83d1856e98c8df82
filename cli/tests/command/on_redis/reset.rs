// SPDX-License-Identifier: Apache-2.0
//! `weir reset`.

use super::world;

#[test]
fn limits_are_full_again() {
    let Some(world) = world() else { return };
    let ann = "{login|ann}";
    world.requests("login", 0, ann, 3);
    world.requests("login", 0, "{login|bob}", 2);
    assert_eq!(
        world.prints("reset FILE --path /login -H x-user:ann --yes"),
        "{login|ann}: limits are full again. Workers see the change within 2 s.\n"
    );
    assert_eq!(world.says(&["KEYS", "*ann*"]), "*0\r\n", "the count of denials too");
    assert_eq!(world.requests("login", 0, ann, 2).granted, 2);
    assert_eq!(world.requests("login", 0, "{login|bob}", 1).granted, 0, "the other is as it was");
}

#[test]
fn a_ban_and_counts_of_ones_own_stay() {
    let Some(world) = world() else { return };
    world.requests("login", 0, "{login|ann}", 9);
    let out = world.prints("reset FILE --subject {login|ann} --yes");
    assert!(out.ends_with("It is still banned: use `weir unban`.\n"), "{out}");
    assert_eq!(world.requests("login", 0, "{login|ann}", 1).granted, 0);
    world.says(&["SET", "edge:{api|ann}:override", "{}"]);
    world.requests("api", 0, "{api|ann}", 1);
    let out = world.prints("reset FILE --subject {api|ann} --limit flying --json -y");
    let line: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(line["deleted"], serde_json::json!(["edge:{api|ann}:flying"]));
    assert_eq!(world.says(&["EXISTS", "edge:{api|ann}:override", "edge:{api|ann}:hour"]), ":2\r\n");
}

#[test]
fn nothing_is_deleted_without_consent() {
    let Some(world) = world() else { return };
    assert_eq!(world.prints("reset FILE --subject {login|ann}"), "{login|ann}: nothing is counted\n");
    world.requests("login", 0, "{login|ann}", 1);
    let (status, failure) = world.fails("reset FILE --subject {login|ann}");
    assert_eq!(
        (status, failure.as_str()),
        (
            2,
            "weir: Delete what is counted of {login|ann}: edge:{login|ann}:tries? There is no terminal to answer on: write --yes if you agree\n"
        )
    );
    assert_eq!(world.says(&["EXISTS", "edge:{login|ann}:tries"]), ":1\r\n");
    let (status, failure) = world.fails("reset FILE --subject {login|ann} --limit hour -y");
    assert!(status == 2 && failure.contains("--limit \"hour\": the subject has tries"), "{failure}");
}
