//! Shows the Lua that a limiter configuration (JSON, on standard input) runs in Redis: each script once, as a file named
//! by its SHA-1, what `SCRIPT EXISTS` and the slow log call it. `cargo run --example lua --no-default-features -- DIR`

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
    let into = PathBuf::from(env::args_os().nth(1).ok_or("name a directory to write the scripts to")?);
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
