// SPDX-License-Identifier: Apache-2.0
//! The answers that nginx gives before it limits: `return`, a `rewrite` that redirects, and an `if` around them.

use std::collections::HashSet;

use super::super::notes::Notes;
use super::super::test::{PathTest, Test, wholes};
use super::syntax::{Block, Directive};
use super::variables::{as_written, equal_test, is_set_test, name_of_variable, search_test};

/// Requests that a block answers, and the status of a `return` without a body: an `error_page` may apply to it.
pub struct Answer<'a> {
    pub requests: Test,
    pub status: Option<u64>,
    /// The block of the `if` around it, which may have an `error_page` of its own.
    pub inside: Option<&'a [Directive]>,
}

/// Returns the immediate answers of a block. A path that a `rewrite` has changed is not known, so no test of the path behind it counts for
/// its requests.
pub fn of_block(block: &[Directive]) -> Vec<Answer<'_>> {
    let (mut answers, mut here, mut unchanged) = (Vec::new(), Test::Always, Test::Always);
    for directive in block {
        for answer in of(directive) {
            let known = if answer.requests.has_path() { unchanged.clone() } else { Test::Always };
            answers.push(Answer { requests: here.clone().and(known).and(answer.requests), ..answer });
        }
        let gone = leaving(directive).unwrap_or(Test::Always);
        let known = if gone.has_path() { unchanged.clone() } else { Test::Always };
        here = here.and(known).and(gone.negated());
        if directive.name == "rewrite" && !redirects(directive) {
            unchanged = unchanged.and(found(directive).map_or(Test::NEVER, Test::negated));
        }
    }
    answers.retain(|answer| !answer.requests.is_never());
    answers
}

/// Returns the `return` that answers all requests of a block. None of those after a `break` does.
pub fn of_all(block: &[Directive]) -> Option<&Directive> {
    let goes_on = |directive: &&Directive| leaving(directive).is_some_and(|gone| gone.is_never());
    block.iter().take_while(goes_on).find(|directive| directive.name == "return")
}

/// The requests that pass by all that follows this directive in its block; `None` if weir cannot tell.
fn leaving(directive: &Directive) -> Option<Test> {
    match directive.name.as_str() {
        "break" => Some(Test::Always),
        "rewrite" if ["last", "break"].contains(&directive.argument(2)) => found(directive),
        "if" => {
            let inner = directive.inner().iter().take_while(|directive| directive.name != "return");
            let gone = inner.map(leaving).try_fold(Test::NEVER, |gone, test| Some(gone.or(test?)));
            if gone.as_ref().is_some_and(Test::is_never) {
                gone
            } else {
                Some(condition(directive)?.and(gone?))
            }
        }
        _ => Some(Test::NEVER),
    }
}

/// True if answers follow this directive in its block, and weir cannot tell which requests pass by them.
pub fn leaves_unseen(directive: &Directive, block: &[Directive]) -> bool {
    let mut behind = block.iter().skip_while(|other| !core::ptr::eq(*other, directive)).skip(1);
    leaving(directive).is_none() && behind.any(|next| !of(next).is_empty())
}

/// The requests whose path a `rewrite` finds; `None` if weir cannot search for it.
fn found(rewrite: &Directive) -> Option<Test> {
    let pattern = rewrite.argument(0);
    let is_any =
        ["^", "^/", ".*", "^.*", "^.*$", "(.*)", "^(.*)", "^(.*)$", "^/(.*)", "^/(.*)$"].contains(&pattern);
    if is_any {
        return Some(Test::Always);
    }
    let regexes = wholes(pattern, false).ok()?.into_iter();
    Some(Test::any_of(regexes.map(|regex| Test::Path(PathTest::regex(regex)))))
}

/// The status of a directive `return` without a body.
pub fn bare_status(directive: &Directive) -> Option<u64> {
    let status = directive.argument(0).parse().ok();
    status.filter(|_| directive.name == "return" && directive.arguments.len() == 1)
}

/// Returns the answers of this directive; nothing if it does not answer, or weir cannot tell for which requests.
pub fn of<'a>(directive: &'a Directive) -> Vec<Answer<'a>> {
    match directive.name.as_str() {
        "return" => vec![Answer { requests: Test::Always, status: bare_status(directive), inside: None }],
        "rewrite" if redirects(directive) => {
            let Some(requests) = found(directive) else { return Vec::new() };
            vec![Answer { requests, status: None, inside: None }]
        }
        "if" => {
            let Some(requests) = condition(directive) else { return Vec::new() };
            let inner = of_block(directive.inner()).into_iter();
            let of = |answer: Answer<'a>| Answer {
                requests: requests.clone().and(answer.requests),
                inside: Some(directive.inner()),
                ..answer
            };
            inner.map(of).collect()
        }
        _ => Vec::new(),
    }
}

/// True if a block answers some requests.
pub fn answers(block: &[Directive]) -> bool {
    block
        .iter()
        .any(|directive| directive.name == "return" || directive.name == "rewrite" && redirects(directive))
}

/// True if a `rewrite` redirects the client.
pub fn redirects(rewrite: &Directive) -> bool {
    let target = rewrite.argument(1);
    ["permanent", "redirect"].contains(&rewrite.argument(2))
        || ["http://", "https://", "$scheme"].iter().any(|start| target.starts_with(start))
}

/// Marks each `if` on a variable to which one of these directives gives a value, and puts in the name of its server.
pub fn mark_own(directives: &mut [Directive]) {
    let mut names = HashSet::new();
    defined(directives, &mut names);
    mark(directives, &names, None);
}

fn defined(directives: &[Directive], names: &mut HashSet<String>) {
    for directive in directives {
        let name = match directive.name.as_str() {
            "set" | "auth_request_set" | "js_set" | "perl_set" => directive.argument(0),
            "map" | "split_clients" => directive.argument(1),
            "geo" => directive.arguments.last().map(String::as_str).unwrap_or_default(),
            name if name.starts_with("set_by_lua") => directive.argument(0),
            _ => "",
        };
        names.extend(name.strip_prefix('$').map(str::to_ascii_lowercase));
        defined(directive.inner(), names);
    }
}

fn mark(directives: &mut [Directive], names: &HashSet<String>, server: Option<&str>) {
    let own = directives.iter().find(|directive| directive.name == "server_name");
    let own = own.map(|directive| directive.argument(0).to_ascii_lowercase());
    let server = own.as_deref().or(server);
    for directive in directives {
        if directive.name == "if" {
            let is_own = |text: &str| {
                let name = text.strip_prefix('$').and_then(|text| text.split(' ').next());
                name.is_some_and(|name| names.contains(&name.to_ascii_lowercase()))
            };
            directive.is_on_own = compared(directive).is_some_and(|text| is_own(&text));
            // An expression stands for itself.
            let is_name = |name: &&str| !name.is_empty() && !name.starts_with(['~', '*', '.', '_', '$']);
            if let (Some(name), [_, operator, last]) =
                (server.filter(is_name), directive.arguments.as_mut_slice())
                && ["=", "!="].contains(&operator.as_str())
                && last == "$server_name)"
            {
                *last = format!("{name})");
            }
        }
        if let Some(Block::Directives(inner)) = &mut directive.block {
            mark(inner, names, server);
        }
    }
}

/// The text in the parentheses of an `if`.
fn compared(directive: &Directive) -> Option<String> {
    let text = directive.arguments.join(" ");
    Some(text.strip_prefix('(')?.strip_suffix(')')?.trim().to_owned())
}

/// The condition of an `if`; `None` if weir has no such test.
fn condition(directive: &Directive) -> Option<Test> {
    let text = compared(directive).filter(|_| !directive.is_on_own)?;
    let mut words = text.strip_prefix('$')?.splitn(3, ' ');
    let variable = name_of_variable(words.next()?);
    // Envoy tells a client's scheme by its own listener, which may have no TLS where nginx had, and writes some headers itself.
    if variable == "scheme" || Notes::of_header(&variable).is_some() {
        return None;
    }
    let (operator, text) = (words.next(), words.next());
    // nginx puts in the value of a variable on the right of `=`, and does not decode the parameter in which it searches.
    let is_other = match operator {
        Some("=" | "!=") => text.is_some_and(|text| text.contains('$')),
        _ => operator.is_some() && variable.starts_with("arg_"),
    };
    if is_other {
        return None;
    }
    let equal = |text: Option<&str>| {
        let text = text.unwrap_or_default();
        as_written(&variable, text, equal_test(&variable, text).ok()?)
    };
    match (operator, text) {
        (None, _) => is_set_test(&variable),
        (Some("="), text) => equal(text),
        (Some("!="), text) => equal(text).map(Test::negated),
        (Some("~"), Some(pattern)) => search_test(&variable, pattern, false).ok(),
        (Some("~*"), Some(pattern)) => search_test(&variable, pattern, true).ok(),
        (Some("!~"), Some(pattern)) => search_test(&variable, pattern, false).ok().map(Test::negated),
        (Some("!~*"), Some(pattern)) => search_test(&variable, pattern, true).ok().map(Test::negated),
        _ => None,
    }
}
