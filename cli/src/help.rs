// SPDX-License-Identifier: Apache-2.0
//! `weir help`: the commands by what they are for, with examples of each. docs/command.md shows the same.

use clap::Command;

/// A command, and its examples, which the transcripts run. `import nginx` is a command of the command `import`.
type Member = (&'static str, &'static [&'static str]);

/// The purpose of commands; the commands.
const GROUPS: [(&str, &[Member]); 5] = [
    (
        "Configure",
        &[
            ("init", &["weir init --by credential --limit 100/m --path /v1 --shadow >weir.yaml"]),
            ("check", &["weir check edge.yaml login.yaml"]),
            ("diff", &["weir diff old.yaml new.yaml"]),
            (
                "render",
                &[
                    "weir render --for envoy --redis redis.internal:6379 --upstream app:8080 weir.yaml >envoy.yaml",
                    "weir render --for envoy --files envoy --store cluster --redis r1:6379 --redis r2:6379 weir.yaml",
                    "weir render --for istio --store tls --redis redis.default:6380 weir.yaml >weir-istio.yaml",
                    "weir render --for envoy-gateway --version 1.9 --gateway eg --listener http:80 --listener https:443 weir.yaml >weir-gateway.yaml",
                ],
            ),
            ("schema", &["weir schema >weir.schema.json"]),
        ],
    ),
    (
        "Try",
        &[
            ("explain", &["weir explain weir.yaml --method POST --path /login --header 'x-user: ann'"]),
            ("replay", &["weir replay weir.yaml access.log --html report.html"]),
        ],
    ),
    (
        "Operate",
        &[
            ("top", &["weir top --redis redis://127.0.0.1:6379"]),
            ("hot", &["weir hot --since 10m"]),
            (
                "usage",
                &["weir usage weir.yaml --top 2", "weir usage weir.yaml --from 2026-11-01 --to 2026-12-01"],
            ),
            ("journal", &["weir journal --count 2"]),
            ("inspect", &["weir inspect weir.yaml --path /login --header 'x-user: ann'"]),
            ("reset", &["weir reset weir.yaml --subject '{login|ann}' --yes"]),
            ("override", &[]),
            (
                "override set",
                &["weir override set weir.yaml --subject '{api|bob}' hour.limit=1000 --for 12h --yes"],
            ),
            ("override get", &["weir override get weir.yaml --subject '{api|bob}'"]),
            ("override unset", &["weir override unset weir.yaml --subject '{api|bob}' hour --yes"]),
            (
                "ban",
                &[
                    "weir ban weir.yaml --subject '{login|ann}' --for 2h --reason 'ticket 4711' --yes",
                    "weir ban weir.yaml --policy login --path /login --header 'x-user: {}' --from list.txt --for 15m --yes",
                ],
            ),
            ("unban", &["weir unban weir.yaml --subject '{login|ann}' --yes"]),
            ("bans", &["weir bans"]),
            ("audit", &["weir audit weir.yaml"]),
        ],
    ),
    (
        "Migrate",
        &[
            ("import", &[]),
            ("import nginx", &["weir import nginx nginx.conf >weir.yaml"]),
            ("import ingress", &["weir import ingress ingress.yaml >weir.yaml"]),
            ("import apisix", &["weir import apisix apisix.yaml >weir.yaml"]),
            ("import envoy", &["weir import envoy envoy.yaml >weir.yaml"]),
            ("import kong", &["weir import kong kong.yaml >weir.yaml"]),
            (
                "import ratelimit",
                &["weir import ratelimit limits.yaml --descriptor user=header:x-user >weir.yaml"],
            ),
        ],
    ),
    ("Install", &[("completions", &["weir completions bash >weir.bash"]), ("man", &["weir man man1"])]),
];

/// The same command, with help by groups and with examples.
pub(super) fn with_groups(mut command: Command) -> Command {
    let mut listed = String::new();
    for (group, members) in GROUPS {
        listed.push_str(&format!("{group}:\n"));
        for (path, examples) in members {
            let shown = |of: Command| match examples {
                [] => of,
                [one] => of.after_help(format!("Example:\n  {one}")),
                more => of.after_help(format!("Examples:\n  {}", more.join("\n  "))),
            };
            let Some((name, inner)) = path.split_once(' ') else {
                command = command.mut_subcommand(path, shown);
                let about = command.find_subcommand(path).and_then(Command::get_about);
                let about = about.map(ToString::to_string).unwrap_or_default();
                // What comes after the first colon is in the help of the command itself.
                let about = about.split(": ").next().unwrap_or_default();
                listed.push_str(&format!("  {path:<12} {about}\n"));
                continue;
            };
            command = command.mut_subcommand(name, |of| of.mut_subcommand(inner, shown));
        }
        listed.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{listed}Options:\n{{options}}\n\n`weir COMMAND --help` shows the arguments of a command and an example."
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::{Arg, CommandFactory as _};
    use weir_support::{documented, root};

    use super::*;
    use crate::Arguments;

    fn members() -> impl Iterator<Item = Member> {
        GROUPS.iter().flat_map(|(_, members)| *members).copied()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<_> = members().map(|(path, _)| path.to_owned()).collect();
        let command = Arguments::command();
        let mut all = Vec::new();
        for of in command.get_subcommands() {
            all.push(of.get_name().to_owned());
            all.extend(of.get_subcommands().map(|inner| format!("{} {}", of.get_name(), inner.get_name())));
        }
        grouped.sort();
        all.sort();
        assert_eq!(grouped, all);
        let help = with_groups(command).render_help().to_string();
        assert_eq!(help.lines().find(|line| line.chars().count() > 80), None, "a terminal would break it");
    }

    /// Arguments of many commands, under headings of their own, each with a command that has them.
    const SHARED: [(&str, &str, &str); 4] = [
        ("Subject", "inspect", "[subject](#name-a-subject)"),
        ("Request", "inspect", "[request](#describe-a-request)"),
        ("Redis", "inspect", "[Redis](#redis)"),
        ("Output", "import nginx", "[all imports](#weir-import)"),
    ];

    /// An item of a list: an argument as it is written, and its meaning.
    fn row(argument: &Arg) -> String {
        let values: Vec<&str> =
            argument.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
        let values = if argument.get_action().takes_values() { values.join(" ") } else { String::new() };
        let repeats = argument.get_num_args().is_some_and(|of| of.max_values() > 1);
        let written = match (argument.get_long(), argument.get_short()) {
            (None, _) if argument.is_required_set() => {
                format!("`{values}{}`", if repeats { "..." } else { "" })
            }
            (None, _) => format!("`[{values}{}]`", if repeats { "..." } else { "" }),
            (Some(long), short) => {
                let short = short.map(|short| format!("`-{short}`, ")).unwrap_or_default();
                format!("{short}`{}`", format!("--{long} {values}").trim_end())
            }
        };
        let help =
            argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        let mut meaning = vec![format!("{}.", help.trim_end_matches('.'))];
        if argument.get_action().takes_values() && !argument.is_hide_possible_values_set() {
            let values = argument.get_possible_values();
            let (named, plain): (Vec<_>, Vec<_>) = values.iter().partition(|of| of.get_help().is_some());
            meaning.extend(named.iter().map(|of| {
                let help = of.get_help().map(ToString::to_string).unwrap_or_default();
                format!("\n  - `{}`: {}.", of.get_name(), help.trim_end_matches('.'))
            }));
            let plain: Vec<_> = plain.iter().map(|of| format!("`{}`", of.get_name())).collect();
            meaning.extend((!plain.is_empty()).then(|| format!("One of {}.", plain.join(", "))));
        }
        let defaults: Vec<_> = argument.get_default_values().iter().map(|of| of.to_string_lossy()).collect();
        if argument.get_action().takes_values() && !defaults.is_empty() {
            meaning.insert(1, format!("By default `{}`.", defaults.join("`, `")));
        }
        format!("- {written}: {}\n", meaning.join(" ").replace(" \n", "\n"))
    }

    /// The argument that the page explains once.
    const FILE: &str = "The configuration, or a configuration of Envoy that contains one";

    /// The items of these arguments, each heading before its own.
    fn list<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
        let is_told =
            |of: &&Arg| of.get_id() != "help" && of.get_help().is_none_or(|help| help.to_string() != FILE);
        let mut under: Option<String> = None;
        let item = |of: &Arg| {
            let heading =
                of.get_help_heading().filter(|heading| SHARED.iter().all(|(name, ..)| name != heading));
            let begins = heading != under.as_deref();
            under = heading.map(str::to_owned);
            let head = heading.filter(|_| begins).map(|heading| format!("\n{heading}:\n\n"));
            head.unwrap_or_default() + &row(of)
        };
        arguments.filter(is_told).map(item).collect()
    }

    fn found<'a>(command: &'a Command, path: &str) -> &'a Command {
        path.split(' ').fold(command, |of, name| of.find_subcommand(name).expect("a command"))
    }

    /// An example, and what it prints, as a transcript has it.
    fn shown(example: &str, transcripts: &str) -> String {
        let after = transcripts.split_once(&format!("\n  $ {example}\n")).map(|(_, after)| after);
        // The tests with an Envoy run it in a terminal.
        let after = after.unwrap_or_else(|| {
            assert!(example.starts_with("weir top "), "no transcript runs `{example}`");
            ""
        });
        let is_printed = |line: &&str| line.is_empty() || line.starts_with("  ") && !line.starts_with("  $ ");
        let is_status = |line: &&str| line.len() == 3 && line.starts_with('[') && line.ends_with(']');
        let printed = after.lines().take_while(is_printed);
        let printed =
            printed.map(|line| line.strip_prefix("  2> ").or(line.strip_prefix("  ")).unwrap_or(line));
        let lines: Vec<_> = printed.filter(|line| !is_status(line)).collect();
        let lines = lines.join("\n");
        let lines = lines.trim_end();
        let lines = if lines.is_empty() { String::new() } else { format!("{lines}\n") };
        format!("$ {example}\n{lines}")
    }

    #[test]
    fn the_page_says_the_same() {
        let mut command = with_groups(Arguments::command());
        command.build();
        let folder = root().join("cli/tests/command/transcripts");
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a transcript");
        let transcripts = read("arguments/examples.txt") + &read("redis/examples.txt");
        let part = |path: &str| {
            let of = found(&command, path);
            let about = of.get_long_about().or(of.get_about()).map(ToString::to_string).unwrap_or_default();
            let mut parts = vec![format!("{}.\n", about.trim_end_matches('.'))];
            let examples = members().find(|(name, _)| *name == path).map(|(_, examples)| examples);
            let examples: String =
                examples.into_iter().flatten().map(|example| shown(example, &transcripts)).collect();
            parts.extend((!examples.is_empty()).then(|| format!("```text\n{examples}```\n")));
            let shared =
                |of: &&Arg| SHARED.iter().any(|(heading, ..)| of.get_help_heading() == Some(heading));
            parts.push(list(of.get_arguments().filter(|argument| !shared(argument))));
            let more = SHARED.iter().filter(|(heading, ..)| {
                of.get_arguments().any(|argument| argument.get_help_heading() == Some(heading))
            });
            let more: Vec<_> = more.map(|(.., link)| *link).collect();
            parts.extend((!more.is_empty()).then(|| format!("More arguments: {}.\n", more.join(", "))));
            parts.retain(|part| !part.is_empty());
            parts.join("\n")
        };
        let shared = |heading: &str| {
            let (_, path, _) = SHARED.iter().find(|(name, ..)| *name == heading).expect("a heading");
            list(found(&command, path).get_arguments().filter(|of| of.get_help_heading() == Some(heading)))
        };
        let page = fs::read_to_string(root().join("docs/command.md")).expect("the page");
        let (page, mut shown) = documented::written(&page, "command", part);
        let (page, headings) = documented::written(&page, "arguments", shared);
        let mut all: Vec<_> = members().map(|(path, _)| path.to_owned()).collect();
        for names in [&mut shown, &mut all] {
            names.sort();
        }
        assert_eq!(shown, all);
        assert_eq!(headings.len(), SHARED.len());
        documented::published("docs/command.md", &page);
    }
}
