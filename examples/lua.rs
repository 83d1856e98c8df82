// SPDX-License-Identifier: Apache-2.0
//! Writes the Lua scripts of a limiter configuration (JSON, on standard input) to a directory. Each file has the script's
//! SHA-1 as its name, as in `SCRIPT EXISTS` and the slow log.
//!
//! `cargo run --example lua -- DIR <config.json`

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use weir::config::Config;

fn main() -> ExitCode {
    match write_scripts() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn write_scripts() -> Result<(), Box<dyn Error>> {
    let into = PathBuf::from(env::args_os().nth(1).ok_or("usage: lua DIRECTORY <config.json")?);
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    let config = Config::parse(&text)
        .map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let scripts: BTreeMap<_, _> = config
        .policies
        .iter()
        .flat_map(|policy| &policy.tiers.tiers)
        .flat_map(|tier| tier.plan.sources())
        .map(|source| (sha1_smol::Sha1::from(source).digest().to_string(), source))
        .collect();
    fs::create_dir_all(&into)?;
    for (sha, source) in scripts {
        fs::write(into.join(sha).with_extension("lua"), source)?;
    }
    Ok(())
}
