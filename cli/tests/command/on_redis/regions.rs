// SPDX-License-Identifier: Apache-2.0
//! Commands about subjects that another region counts.

use serde_json::Value;

use super::{World, command, run, world};

const REGIONS: &str = r#"
regions:
  here: ams
  all: [{name: ams, cluster: redis-ams}, {name: bom, cluster: redis-bom}, {name: cle, cluster: redis-cle}]
policies:
- name: home
  regions: {home: bom}
  match: {path: {exact: /home}}
  subject: [{header: {name: x-user}}]
  limits: [{name: tries, algorithm: sliding_log, limit: 2, window: 1h}]
  ban: {after: 3, window: 10h, duration: 2h}
  overrides: true
- name: debit
  regions: {debit: {}}
  subject: [{header: {name: x-user}}]
  limits: [{name: tries, algorithm: leaky_bucket, rate: 2/h, burst: 2}]
  ban: {after: 3, window: 10h, duration: 2h}
"#;

/// The Redis of `bom`, and a configuration of `ams`.
fn bom() -> Option<World> {
    let world = world()?;
    std::fs::write(world.file(), REGIONS).expect("a file");
    Some(world)
}

const ELSEWHERE: &str =
    "policy home is counted in the Redis of region bom: name that Redis with --redis, and write --region bom";

#[test]
fn a_redis_is_asked_only_about_what_it_counts() {
    let Some(world) = bom() else { return };
    for words in [
        "inspect FILE --subject {home|ann}",
        "reset FILE --subject {home|ann} --yes",
        "ban FILE --subject {home|ann} --yes",
        "unban FILE --subject {home|ann} --yes",
        "override get FILE --subject {home|ann}",
        "override set FILE --subject {home|ann} tries.limit=9 --yes",
        "override unset FILE --subject {home|ann} --yes",
        "bans FILE --policy home",
        "hot --used FILE --policy home",
    ] {
        let (status, failure) = world.fails(words);
        assert_eq!((status, failure.as_str()), (2, format!("weir: {ELSEWHERE}\n").as_str()), "{words}");
        assert_eq!(world.says(&["DBSIZE"]), ":0\r\n", "{words}");
    }
    // The request has a subject that is counted here, too.
    let (status, out, failure) = world.run(&["inspect", "FILE", "--path", "/home", "-H", "x-user:ann"]);
    assert_eq!((status, failure.as_str()), (0, format!("weir: not asked: {ELSEWHERE}\n").as_str()));
    assert!(out.starts_with("policy debit, ") && !out.contains("policy home"), "{out}");
    // Which region it is, only a configuration can say.
    for words in ["bans --region bom", "hot --region bom"] {
        assert!(world.fails(words).1.contains("--region: found no configuration, allowed: with "), "{words}");
    }
    let (status, failure) = world.fails("inspect FILE --subject {home|ann} --region fra");
    assert!(
        status == 2 && failure.contains("--region \"fra\": the configuration has ams, bom, cle"),
        "{failure}"
    );
}

#[test]
fn the_region_that_counts_is_asked() {
    let Some(world) = bom() else { return };
    let home = |words: &str| world.prints(&words.replace("HOME", "FILE --subject {home|ann} --region bom"));
    let banned = home("ban HOME --yes");
    assert!(
        banned.contains("banned until it is lifted. Workers see") && !banned.contains("only"),
        "{banned}"
    );
    let out = home("inspect HOME");
    assert!(
        out.contains("\n  counted in the Redis of region bom (cluster redis-bom), for all regions (home)\n  limit tries: 2 of 2 left")
            && out.contains("\n  ban: until it is lifted"),
        "{out}"
    );
    assert!(world.prints("bans FILE --policy home --region bom").contains("{home|ann} until"));
    assert!(home("unban HOME --yes").contains("the ban is lifted"));
    assert!(home("override set HOME tries.limit=9 --yes").contains("9 per 1h"));
    let line: Value = serde_json::from_str(&home("inspect HOME --json")).expect("JSON");
    assert_eq!((&line["region"], &line["limits"][0]["quota"]), (&"bom".into(), &9.into()));
    assert!(home("override unset HOME --yes").contains("override: none"));
    assert_eq!(world.requests_of(REGIONS, "home", "{home|ann}", 1), 1);
    assert!(world.prints("hot --used FILE --policy home --region bom").contains("{home|ann}"));
    assert!(home("reset HOME --yes").contains("limits are full again"));
}

/// A subject of `debit` has counts and bans in each region: what was done in one says so.
#[test]
fn a_change_in_one_region_says_so() {
    let Some(world) = bom() else { return };
    let only = |region: &str, others: &str| {
        format!(
            " This was in the Redis of region {region} only: to change {others} too, repeat it with --region and that Redis.\n"
        )
    };
    let ann = |words: &str| world.prints(&words.replace("ANN", "FILE --subject {debit|ann} --yes"));
    let said = ann("ban ANN");
    assert!(said.ends_with(&only("ams", "bom, cle")), "{said}");
    let said = ann("unban ANN --region cle");
    assert!(said.ends_with(&only("cle", "ams, bom")), "{said}");
    assert_eq!(world.requests_of(REGIONS, "debit", "{debit|ann}", 1), 1);
    let said = ann("reset ANN");
    assert!(said.ends_with(&only("ams", "bom, cle")), "{said}");
    let line: Value = serde_json::from_str(&ann("reset ANN --json")).expect("JSON");
    assert_eq!(line["region"], "ams");
    // Without regions there is none.
    let mut plain = command(&["inspect", &world.file(), "--subject", "{p|ann}", "--json"].map(str::to_owned));
    std::fs::write(
        world.file(),
        "policies: [{name: p, limits: [{name: l, algorithm: leaky_bucket, rate: 1/s}]}]\n",
    )
    .expect("a file");
    let (status, out, _) = run(plain.env("WEIR_REDIS", world.url()));
    let line: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((status, &line["region"]), (0, &Value::Null));
}
