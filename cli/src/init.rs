// SPDX-License-Identifier: Apache-2.0
//! `weir init`: a first configuration, from three answers.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use super::tree::{Map, Tree};
use super::{Ended, Found, failed, tell};
use weir::config::{Config, Host};

/// The limit to write. On a terminal the command asks for each option that is not given; elsewhere it uses the default.
#[derive(Args)]
pub(super) struct Arguments {
    /// The subject: `address`, `credential` (an API key or a token), `header:NAME`, `cookie:NAME`, or `jwt_claim:NAME` behind Envoy's
    /// jwt_authn. By default `address`.
    #[arg(long, value_name = "WHAT")]
    by: Option<String>,
    /// So many requests, also at once: `100/m`, `10000/d`. By default `10/s`.
    #[arg(long, value_name = "NUMBER/UNIT")]
    limit: Option<String>,
    /// Limit this path, and all below it. By default `/`, which is all.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Reject nothing yet: only count and report.
    #[arg(long)]
    shadow: bool,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let question = "Whom does the limit count: address, credential, header:NAME, …?";
    let by = answer(arguments.by.as_ref(), question, "address")?;
    let limit = answer(arguments.limit.as_ref(), "How many requests: 10/s, 100/m, 10000/d, …?", "10/s")?;
    let path = answer(arguments.path.as_ref(), "For which paths: /v1, …, or / for all?", "/")?;
    let configuration = Tree::from(configuration(&by, &limit, &path, arguments.shadow)?);
    if let Err(errors) = Config::parse_for(Host::Wasm, configuration.json().to_string().as_bytes()) {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        return Err(Ended::Wrong(lines.join("\n")));
    }
    out.write_all(configuration.yaml().as_bytes()).map_err(failed)?;
    tell(
        "weir: next, with this in weir.yaml: `weir check weir.yaml`, `weir explain weir.yaml -- curl …`, `weir render --for envoy weir.yaml`",
    );
    Ok(Found::Nothing)
}

/// Returns the given value, or the answer of the operator on a terminal, or the default.
fn answer(given: Option<&String>, question: &str, default: &str) -> Result<String, String> {
    if let Some(given) = given {
        return Ok(given.clone());
    }
    let mut line = String::new();
    if io::stdin().is_terminal() {
        let mut err = io::stderr();
        write!(err, "{question} [{default}] ").and_then(|()| err.flush()).map_err(failed)?;
        io::stdin().lock().read_line(&mut line).map_err(failed)?;
    }
    Ok(Some(line.trim()).filter(|line| !line.is_empty()).unwrap_or(default).to_owned())
}

fn configuration(by: &str, limit: &str, path: &str, is_shadow: bool) -> Result<Map, String> {
    let (part, is_verified) = part(by)?;
    let (number, unit) = limit
        .split_once('/')
        .and_then(|(number, unit)| Some((number.trim().parse::<u64>().ok()?, unit.trim())))
        .filter(|(number, unit)| *number > 0 && ["s", "m", "h", "d"].contains(unit))
        .ok_or_else(|| {
            format!("--limit {limit:?}: allowed: a number from 1 on, and one of s, m, h and d, such as 10/s")
        })?;
    if !path.starts_with('/') {
        return Err(format!("--path {path:?}: allowed: a path, which begins with /"));
    }
    let bucket = |number: u64| {
        Tree::from(Map::from([
            ("name", "requests".into()),
            ("algorithm", "token_bucket".into()),
            ("capacity", number.into()),
            ("refill", number.into()),
            ("interval", format!("1{unit}").into()),
        ]))
    };
    let mut policies = vec![policy(by, path, Some(part), bucket(number), is_shadow)];
    if !is_verified {
        // A client that sends another value with each request is limited by this.
        let name = if by.ends_with(":address") { "client-address" } else { "address" };
        policies.push(policy(name, path, None, bucket(number.saturating_mul(10)), is_shadow));
    }
    let mut configuration = Map::new();
    let comment = "No request waits for Redis longer than `deadline`. Then it is allowed; `deny` and `local` are the other choices.";
    let store = Map::from([("deadline", "50ms".into()), ("on_failure", "allow".into())]);
    configuration.commented("store", vec![comment.to_owned()], store);
    configuration.set("policies", policies);
    Ok(configuration)
}

fn policy(by: &str, path: &str, part: Option<Tree>, limit: Tree, is_shadow: bool) -> Tree {
    let name = by.split(':').next_back().unwrap_or_default();
    let mut policy = Map::from([("name", super::import::name_of(&format!("per-{name}")).into())]);
    if path != "/" {
        let prefix = path.trim_end_matches('/');
        policy.set("match", Map::from([("path", Map::from([("prefix", prefix.into())]).into())]));
    }
    let part = part.unwrap_or_else(|| Map::from([("client_address", Map::new().into())]).into());
    policy.set("subject", vec![part]);
    policy.set("limits", vec![limit]);
    if is_shadow {
        let comment = String::from("Counts and reports. Remove this line to reject.");
        policy.commented("mode", vec![comment], "shadow");
    }
    policy.into()
}

/// The part of a subject, and whether clients cannot choose it freely.
fn part(by: &str) -> Result<(Tree, bool), String> {
    let nothing = || Tree::from(Map::new());
    let named = |kind: &str, name: &str| Map::from([(kind, Map::from([("name", name.into())]).into())]);
    let (mut part, is_verified) = match by.split_once(':') {
        None if by == "address" => return Ok((Map::from([("client_address", nothing())]).into(), true)),
        None if by == "credential" => (Map::from([("credential", nothing())]), false),
        Some(("header", name)) if !name.is_empty() => (named("header", &name.to_ascii_lowercase()), false),
        Some(("cookie", name)) if !name.is_empty() => (named("cookie", name), false),
        Some(("jwt_claim", name)) if !name.is_empty() => {
            let claim = name.split('/').map(Tree::from).collect::<Vec<_>>();
            (Map::from([("jwt_claim", Map::from([("claim", claim.into())]).into())]), true)
        }
        _ => {
            let allowed = "address, credential, header:NAME, cookie:NAME or jwt_claim:NAME";
            return Err(format!("--by {by:?}: allowed: {allowed}"));
        }
    };
    part.set("on_missing", "deny");
    if part.get("cookie").is_some() {
        // Most cookies that tell clients apart are secret.
        part.set("hash", true);
    }
    Ok((part.into(), is_verified))
}
