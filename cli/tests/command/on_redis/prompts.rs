// SPDX-License-Identifier: Apache-2.0
//! The questions of commands before they change something, on a terminal.

use super::world;
use crate::terminal::Terminal;

#[test]
fn nothing_changes_unless_the_operator_says_yes() {
    let Some(world) = world() else { return };
    let (file, url) = (world.file(), world.url());
    world.requests("{login|ann}", 1);
    world.says(&["SET", "edge:{login|bob}:ban", "scraper"]);
    world.says(&["SET", "edge:{api|ann}:override", r#"{"hour":{"limit":3}}"#]);
    #[rustfmt::skip]
    let rows: [(&str, &[&str], &str, &[&str]); 5] = [
        ("reset", &["reset", &file, "--subject", "{login|ann}", "--json"], "Delete what is counted of {login|ann}: edge:{login|ann}:tries? [y/N]",
         &["EXISTS", "edge:{login|ann}:tries"]),
        ("unban", &["unban", &file, "--subject", "{login|bob}"], "Lift the ban of {login|bob} that an operator imposed (no reason given)? [y/N]",
         &["EXISTS", "edge:{login|bob}:ban"]),
        ("ban", &["ban", &file, "--subject", "{login|bob}", "--for", "1h"],
         "Deny all requests of {login|bob} for 1 h? This replaces a ban until it is lifted (imposed: scraper). [y/N]",
         &["GET", "edge:{login|bob}:ban"]),
        ("override unset", &["override", "unset", &file, "--subject", "{api|ann}"],
         "Take from {api|ann} the counts {\"hour\":{\"limit\":4}}, so that it has none? [y/N]",
         &["EXISTS", "edge:{api|ann}:override"]),
        ("override set", &["override", "set", &file, "--subject", "{api|ann}", "hour.limit=4"],
         "Give {api|ann} the counts {\"hour\":{\"limit\":4}} until it is removed; now it has {\"hour\":{\"limit\":3}}? [y/N]",
         &["GET", "edge:{api|ann}:override"]),
    ];
    // In an order in which each finds what it changes.
    for place in [0, 2, 1, 4, 3] {
        let (row, words, question, state) = rows[place];
        let before = world.says(state);
        for (answer, agrees) in [("\n", false), ("no\n", false), ("\u{4}", false), ("yes\n", true)] {
            let mut terminal = Terminal::run(words, &url, (24, 200));
            terminal.shows(question);
            terminal.types(answer);
            let status = terminal.ends();
            assert_eq!(status, u32::from(!agrees), "{row}: {answer:?}");
            assert_eq!(world.says(state) != before, agrees, "{row}: {answer:?}");
            if !agrees {
                terminal.shows("Nothing was changed.");
            }
        }
    }
}

#[test]
fn what_has_changed_meanwhile_is_not_overwritten() {
    let Some(world) = world() else { return };
    let (file, url) = (world.file(), world.url());
    let words = ["override", "set", &file, "--subject", "{api|ann}", "hour.limit=4"];
    let mut terminal = Terminal::run(&words, &url, (24, 200));
    terminal.shows("[y/N]");
    world.says(&["SET", "edge:{api|ann}:override", "{}"]);
    terminal.types("y\n");
    assert_eq!(terminal.ends(), 2);
    terminal.shows("its counts have changed since they were read: look, and try again");
    assert_eq!(world.says(&["GET", "edge:{api|ann}:override"]), "$2\r\n{}\r\n");
}

/// Each operator learns the result: the counts are in force, or another operator has changed them. The script is not blamed for it.
#[test]
fn operators_who_set_overrides_at_once_learn_of_each_other() {
    let Some(world) = world() else { return };
    let is_known = |status: i32, failure: &str| match status {
        0 => failure.is_empty(),
        _ => ["its counts have changed since they were read", "somebody else has changed them since"]
            .iter()
            .any(|known| failure.contains(known)),
    };
    for round in 0..5 {
        let set = |operator: usize| {
            let count = format!("hour.limit={}", 10 * round + operator);
            world.run(&["override", "set", "FILE", "--subject", "{api|ann}", &count, "-y"])
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (1..=4).map(|operator| scope.spawn(move || set(operator))).collect();
            running.into_iter().map(|operator| operator.join().expect("no panic")).collect()
        });
        for (status, _, failure) in &ended {
            assert!(is_known(*status, failure), "{status}: {failure}");
        }
        assert!(ended.iter().any(|(_, _, failure)| !failure.contains("since they were read")), "{ended:?}");
        let value = world.says(&["GET", "edge:{api|ann}:override"]);
        assert!((1..=4).any(|operator| value.contains(&format!(":{}}}", 10 * round + operator))), "{value}");
    }
    // Each change began with what the one before it had written: none was overwritten unseen.
    let (_, audit, _) = world.run(&["audit", "FILE", "--json"]);
    let rows: Vec<serde_json::Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(rows.len() >= 5, "{audit}");
    for pair in rows.windows(2) {
        assert_eq!(pair[1]["before"], pair[0]["change"], "{audit}");
    }
}
