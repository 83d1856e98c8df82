// SPDX-License-Identifier: Apache-2.0
//! `weir completions` and `weir man`.

use super::{command, run};
use crate::support::TempFolder;

fn weir(words: &[&str]) -> (i32, String, String) {
    run(&mut command(&words.iter().map(ToString::to_string).collect::<Vec<_>>()))
}

#[test]
fn shells_learn_every_command() {
    let (_, help, _) = weir(&["help"]);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 10, "{help}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (status, out, failure) = weir(&["completions", shell]);
        assert_eq!((status, failure.as_str()), (0, ""), "{shell}");
        for name in &commands {
            assert!(out.contains(name), "{shell}: {name}");
        }
    }
    assert_eq!(weir(&["completions", "dash"]).0, 2);
}

#[test]
fn each_command_has_a_page() {
    let folder = TempFolder::new("man");
    let path = folder.path().join("man1").display().to_string();
    assert_eq!(weir(&["man", &path]), (0, String::new(), String::new()));
    for name in ["weir", "weir-check", "weir-inspect", "weir-override-set", "weir-bans"] {
        let page = std::fs::read_to_string(format!("{path}/{name}.1")).expect("a page");
        assert!(page.contains(".SH NAME"), "{page}");
    }
    let (status, out, _) = weir(&["man"]);
    assert!(status == 0 && out.contains("weir\\-inspect(1)"), "{out}");
    let (status, _, failure) = weir(&["man", "/dev/null/man"]);
    assert!(status == 2 && failure.starts_with("weir: /dev/null/man: "), "{failure}");
}
