// SPDX-License-Identifier: Apache-2.0
//! `weir inspect`.

use serde_json::Value;

use super::world;

#[test]
fn a_subject_is_shown_as_the_filter_sees_it() {
    let Some(world) = world() else { return };
    let ann = "inspect FILE --path /login -H x-user:ann";
    let head = "policy login, subject {login|ann} in slot 14030\n";
    assert_eq!(
        world.prints(ann),
        format!(
            "{head}  limit tries: 2 of 2 left (2 per 1h, sliding log)\n  ban: none\n  \
             denials: 0 of the 3 within 10h that begin a ban\n"
        )
    );
    assert_eq!(world.requests("login", 0, "{login|ann}", 1).granted, 1);
    assert_eq!(
        world.prints(ann),
        format!(
            "{head}  limit tries: 1 of 2 left, full again in 1 h (2 per 1h, sliding log)\n  ban: none\n  \
             denials: 0 of the 3 within 10h that begin a ban\n"
        )
    );
    assert_eq!(world.requests("login", 0, "{login|ann}", 3).granted, 1);
    assert_eq!(
        world.prints(ann),
        format!(
            "{head}  limit tries: 0 of 2 left, a request passes in 1 h, full again in 1 h (2 per 1h, sliding log)\n  \
             ban: none\n  denials: 2 of the 3 within 10h that begin a ban\n"
        )
    );
    // To look changes nothing.
    assert_eq!(world.prints(ann), world.prints("inspect FILE --subject {login|ann}"));
    assert_eq!(world.requests("login", 0, "{login|ann}", 1).granted, 0);
    assert_eq!(
        world.prints("inspect FILE --subject edge:{login|ann}:tries"),
        format!(
            "{head}  limit tries: 0 of 2 left, a request passes in 1 h, full again in 1 h (2 per 1h, sliding log)\n  \
             ban: for another 2 h, begun by weir\n  denials: 0 of the 3 within 10h that begin a ban\n"
        )
    );
}

#[test]
fn limits_of_each_kind_are_in_words() {
    let Some(world) = world() else { return };
    let flying = world.requests("api", 0, "{api|ann}", 2);
    assert_eq!(flying.granted, 2);
    assert_eq!(world.requests("plans", 1, "{plans|ann}", 20).granted, 20);
    let rows = [
        (
            "permits",
            "--path /api -H x-user:ann",
            "policy api, subject {api|ann} in slot 14411\n  \
             limit hour: 8 of 10 left, full again in 1 h (10 per 1h, sliding log)\n  \
             limit flying: 0 of 2 permits free, a request passes when another ends, full again in 1 h N min at the latest \
             (2 at the same time, each for at most 1h, concurrency)\n  override: none\n",
        ),
        (
            "the tier that has counted",
            "--subject {plans|ann}",
            "policy plans, subject {plans|ann} in slot 2961\n  limit gold/bucket: 0 of 20 left, a request passes in 1 h, full \
             again in 20 h (1 per 1h, 20 at once, up to 5 in advance, token bucket)\n  override: none\n",
        ),
        (
            "the tier of a request",
            "--path /plans -H x-user:ann",
            "policy plans, subject {plans|ann} in slot 2961\n  limit free/day: 5 of 5 left (5 per 1d, sliding log)\n  override: none\n",
        ),
        (
            "a cost that never passes",
            "--path /dear",
            "policy dear, subject {dear|everybody} in slot 10253\n  limit bucket: 5 of 5 left, a request of cost 7 never passes \
             (1 per 1h, 5 at once, leaky bucket)\n",
        ),
        (
            "what is escaped in keys",
            "--path /login -H x-user:a|b}",
            "policy login, subject {login|a%7Cb%7D} in slot 1151\n  limit tries: 2 of 2 left (2 per 1h, sliding log)\n  ban: none\n  \
             denials: 0 of the 3 within 10h that begin a ban\n",
        ),
    ];
    for (row, flags, wanted) in rows {
        let out = world.prints(&format!("inspect FILE {flags}"));
        // Permits expire together with others, so a little later than their ttl.
        let out =
            (1..5).fold(out, |out, more| out.replace(&format!("1 h {more} min at the"), "1 h N min at the"));
        let of_slot = |text: &str| text.split(" in slot ").next().unwrap_or_default().to_owned();
        assert_eq!(of_slot(&out), of_slot(wanted), "{row}");
        let rest = |text: &str| text.split_once('\n').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        assert_eq!(rest(&out), rest(wanted), "{row}");
    }
}

#[test]
fn programs_get_what_people_get() {
    let Some(world) = world() else { return };
    assert_eq!(world.requests("api", 0, "{api|ann}", 2).granted, 2);
    world.says(&[
        "SET",
        "edge:{api|ann}:override",
        r#"{"hour": {"limit": 3}, "days": {}, "flying": {"limit": 0.5}}"#,
    ]);
    let out = world.prints("inspect FILE --path /api -H x-user:ann --json");
    let line: Value = serde_json::from_str(&out).expect("JSON");
    let limit = &line["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["quota"], &limit["remaining"], &limit["overridden"], &limit["passes"]),
        (&"hour".into(), &3.into(), &1.into(), &true.into(), &true.into())
    );
    assert_eq!(line["limits"][0]["key"], "edge:{api|ann}:hour");
    let flying = &line["limits"][1];
    assert_eq!(
        (&flying["remaining"], &flying["overridden"], &flying["passes"]),
        (&0.into(), &false.into(), &false.into())
    );
    let (reset, retry) = (flying["reset_ms"].as_u64().unwrap(), flying["retry_after_ms"].as_u64().unwrap());
    assert!((3_500_000..=3_900_000).contains(&reset) && retry <= reset, "{out}");
    assert_eq!(line["override"]["value"]["hour"]["limit"], 3);
    let ignored: Vec<_> =
        line["override"]["ignored"].as_array().unwrap().iter().map(|of| of.as_str().unwrap()).collect();
    assert_eq!(ignored, ["the policy has no limit \"days\"", "flying.limit=0.5 is out of bounds"]);
    assert_eq!((&line["ban"], &line["policy"]), (&Value::Null, &"api".into()));
}

#[test]
fn what_has_no_effect_is_said() {
    let Some(world) = world() else { return };
    for (key, value) in
        [("login|ann}:override", "{}"), ("api|ann}:ban", "scraper\x1b[2J"), ("api|ann}:override", "7")]
    {
        world.says(&["SET", &format!("edge:{{{key}"), value]);
    }
    let login = world.prints("inspect FILE --subject {login|ann}");
    assert!(
        login.contains("  override: {}, until it is removed\n    it has no effect: the policy has not \"overrides\": true\n"),
        "{login}"
    );
    let api = world.prints("inspect FILE --subject {api|ann}");
    assert!(
        api.contains("  ban: imposed: scraper\\x1b[2J\n    it has no effect: the policy has no `ban`\n")
            && api.contains("  override: 7, until it is removed\n    ignored: it is no JSON object\n"),
        "{api}"
    );
    // A value of another type is no value, for the script too.
    world.says(&["DEL", "edge:{api|ann}:override"]);
    world.says(&["LPUSH", "edge:{api|ann}:override", "x"]);
    assert!(world.prints("inspect FILE --subject {api|ann}").contains("  override: none\n"));
}

#[test]
fn subjects_that_cannot_be_meant_are_errors() {
    let Some(world) = world() else { return };
    let rows = [
        (
            "nobody",
            "",
            "which subject? Describe a request of it, such as --client 192.0.2.1, or write --subject",
        ),
        ("no braces", "--subject ann", "--subject \"ann\": it has no braces"),
        ("no policy", "--subject {ann}", "--subject \"{ann}\": it has no |"),
        ("empty", "--subject {login|}", "a byte in it is escaped in keys"),
        (
            "unescaped",
            "--subject {login|a\u{e9}}",
            "a byte in it is escaped in keys, such as %20 for a space",
        ),
        ("another policy", "--subject {logon|ann}", "no policy \"logon\", but login, api, plans, dear"),
        ("another prefix", "--subject weir:{login|ann}:tries", "the configuration's keys begin with edge:"),
        (
            "an unknown policy",
            "--path /api --policy app",
            "--policy \"app\": the configuration has login, api, plans, dear",
        ),
        (
            "a policy that does not match",
            "--path /api --policy login",
            "no policy counts this request under --policy login",
        ),
        ("no policy matches", "--path /", "no policy counts this request: `weir explain` says why"),
        ("both", "--subject {login|ann} --path /", "cannot be used with"),
        ("no address", "--client ann", "--client \"ann\": allowed is an address, with or without a port"),
        ("no header", "-H ann", "\"ann\" is not NAME: VALUE"),
    ];
    for (row, flags, wanted) in rows {
        let (status, failure) = world.fails(format!("inspect FILE {flags}").trim_end());
        assert!(status == 2 && failure.contains(wanted), "{row}: {failure}");
    }
}
