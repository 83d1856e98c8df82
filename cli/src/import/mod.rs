// SPDX-License-Identifier: Apache-2.0
//! `weir import`: configurations of other limiters as configurations of weir.

mod ingress;
mod kong;
mod nginx;
mod notes;
mod ratelimit;
mod real_ip;
mod test;

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::tree::{Map, Tree};
use super::{Ended, Found, failed};
pub(super) use nginx::name_of;
use notes::Notes;
use weir::config::{Config, Host};

/// What to import.
#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    from: From,
}

#[derive(Subcommand)]
enum From {
    /// nginx and OpenResty: limit_req, limit_conn, their zones, map and geo.
    ///
    /// Prints a configuration of weir in YAML. What it cannot carry over is listed on standard error, with its file and line, and what to
    /// do about it.
    Nginx(Nginx),
    /// ingress-nginx: the annotations limit-rps, limit-rpm, limit-connections, limit-burst-multiplier and limit-allowlist.
    ///
    /// Prints a configuration of weir in YAML. What it cannot carry over is listed on standard error, with its file and line, and what to
    /// do about it.
    Ingress(ingress::Arguments),
    /// Kong: the plugins rate-limiting and rate-limiting-advanced of a declarative file.
    ///
    /// Prints a configuration of weir in YAML. What it cannot carry over is listed on standard error, with its file and line, and what to
    /// do about it.
    Kong(kong::Arguments),
    /// The common rate-limit service (envoyproxy/ratelimit): its descriptors, and the actions of Envoy's routes.
    ///
    /// Prints a configuration of weir in YAML. What it cannot carry over is listed on standard error, with its file and line, and what to
    /// do about it.
    Ratelimit(ratelimit::Arguments),
}

#[derive(Args)]
struct Nginx {
    /// nginx's main file, or a file that its block http includes.
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// How the result is printed.
#[derive(Args)]
struct Output {
    /// Print one object of JSON: `configuration`, and `notes` with `file`, `line`, `what`, `why` and `instead`.
    #[arg(long)]
    json: bool,
    /// Exit with status 1 if something could not be carried over.
    #[arg(long)]
    strict: bool,
}

struct Imported {
    configuration: Map,
    files: Vec<String>,
    notes: Notes,
}

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    match &arguments.from {
        From::Nginx(nginx) => finish(nginx::import(&nginx.file)?, &nginx.output, "nginx", out),
        From::Ingress(arguments) => finish(ingress::import(arguments)?, &arguments.output, "ingress", out),
        From::Kong(arguments) => finish(kong::import(arguments)?, &arguments.output, "kong", out),
        From::Ratelimit(arguments) => {
            finish(ratelimit::import(arguments)?, &arguments.output, "ratelimit", out)
        }
    }
}

/// Prints the configuration and the notes. The filter's own reader has to accept it first.
fn finish(imported: Imported, output: &Output, from: &str, out: &mut impl io::Write) -> Result<Found, Ended> {
    let Imported { configuration, files, notes } = imported;
    let tree = Tree::from(configuration);
    let refused = Config::parse_for(Host::Wasm, tree.json().to_string().as_bytes()).err();
    if output.json {
        let refused = refused.iter().flatten().map(ToString::to_string).collect::<Vec<_>>();
        let mut whole = serde_json::json!({"configuration": tree.json(), "notes": notes.json(&files)});
        if !refused.is_empty()
            && let Some(whole) = whole.as_object_mut()
        {
            whole.insert(String::from("errors"), refused.into());
        }
        writeln!(out, "{whole}").map_err(failed)?;
    } else {
        let first = files.first().map(String::as_str).unwrap_or_default();
        let head = format!(
            "Made by `weir import {from}` from {first}. Try it with `weir check`, and with `mode: shadow` first."
        );
        writeln!(out, "# {}", super::words::printable(&head)).map_err(failed)?;
        out.write_all(tree.yaml().as_bytes()).map_err(failed)?;
        notes.print(&files, &mut io::stderr().lock()).map_err(failed)?;
    }
    if let Some(errors) = refused {
        let lines: Vec<_> = errors.iter().map(|error| format!("  {error}")).collect();
        return Err(format!(
            "the filter refuses what was made, so complete it by hand:\n{}",
            lines.join("\n")
        )
        .into());
    }
    Ok(if output.strict && !notes.is_empty() { Found::Something } else { Found::Nothing })
}
