// SPDX-License-Identifier: Apache-2.0
//! `weir help`: the commands by what they are for, with an example of each.

use clap::Command;

/// What commands are for; the commands, each with an example.
const GROUPS: [(&str, &[(&str, &str)]); 5] = [
    (
        "Configure",
        &[
            ("init", "weir init --by address --limit 100/m >weir.yaml"),
            ("check", "weir check envoy/weir.yaml --deny-warnings"),
            ("diff", "weir diff old.yaml new.yaml"),
            ("render", "weir render --for istio --redis redis:6379 weir.yaml"),
            ("schema", "weir schema >weir.schema.json"),
        ],
    ),
    (
        "Try",
        &[
            ("explain", "weir explain weir.yaml --path /login --header x-user:ann"),
            ("replay", "weir replay weir.yaml access.log --html report.html"),
        ],
    ),
    (
        "Operate",
        &[
            ("top", "weir top --redis redis://127.0.0.1:6379"),
            ("hot", "weir hot --redis redis://127.0.0.1:6379"),
            ("usage", "weir usage weir.yaml --policy tokens --csv"),
            ("journal", "weir journal --follow"),
            ("inspect", "weir inspect weir.yaml --header x-user:ann"),
            ("reset", "weir reset weir.yaml --header x-user:ann"),
            ("override", "weir override get weir.yaml --header x-user:ann"),
            ("ban", "weir ban weir.yaml --client 192.0.2.1 --for 1h --reason scraping"),
            ("unban", "weir unban weir.yaml --client 192.0.2.1"),
            ("bans", "weir bans weir.yaml"),
            ("audit", "weir audit weir.yaml"),
        ],
    ),
    ("Migrate", &[("import", "weir import nginx /etc/nginx/nginx.conf >weir.yaml")]),
    (
        "Install",
        &[("completions", "weir completions bash >/etc/bash_completion.d/weir"), ("man", "weir man man1")],
    ),
];

/// The same command, with help by groups and with examples.
pub(super) fn with_groups(mut command: Command) -> Command {
    let mut listed = String::new();
    for (group, members) in GROUPS {
        listed.push_str(&format!("{group}:\n"));
        for (name, example) in members {
            command = command.mut_subcommand(name, |of| of.after_help(format!("Example:\n  {example}")));
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            // What comes after the first colon is in the help of the command itself.
            let about = about.split(": ").next().unwrap_or_default();
            listed.push_str(&format!("  {name:<12} {about}\n"));
        }
        listed.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}\n\n`weir COMMAND --help` shows the arguments of a command and an example."
    ))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Arguments;

    #[test]
    fn each_command_is_in_one_group_and_its_example_is_read() {
        let members = || GROUPS.iter().flat_map(|(_, members)| *members);
        let mut grouped: Vec<_> = members().map(|(name, _)| (*name).to_owned()).collect();
        let mut all: Vec<_> =
            Arguments::command().get_subcommands().map(|of| of.get_name().to_owned()).collect();
        grouped.sort();
        all.sort();
        assert_eq!(grouped, all);
        let help = with_groups(Arguments::command()).render_help().to_string();
        assert_eq!(help.lines().find(|line| line.chars().count() > 80), None, "a terminal would break it");
        for (name, example) in members() {
            let (command, _) = example.split_once(" >").unwrap_or((example, ""));
            let words: Vec<_> = command.split_whitespace().collect();
            assert_eq!(words.get(..2), Some(&["weir", name][..]));
            Arguments::try_parse_from(words).map_err(|error| error.to_string()).expect(example);
        }
    }
}
