// SPDX-License-Identifier: Apache-2.0
//! `weir check`: what is wrong with a configuration, and what will go wrong with one that loads.
//!
//! | file | what is inside |
//! |---|---|
//! | `policies.rs`, `limits.rs`, `conditions.rs`, `credentials.rs`, `regexes.rs` | warnings about a configuration of the limiter |
//! | `against.rs` | which subjects begin anew |
//! | `fix.rs` | present names for fields that were renamed |
//! | `wiring/` | warnings about Envoy's configuration around it |
//! | `formats/` | how findings are printed |
//! | `warning.rs` | the codes of all, and warnings before their place is known |

mod against;
mod conditions;
mod credentials;
mod fix;
mod formats;
mod limits;
mod policies;
mod regexes;
mod warning;
mod wiring;

use std::io;
use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::document::{Node, Place};
use super::envoys::{self, Version};
use super::finding::{Finding, Severity};
use super::source::{Limiter, Source, is_envoys, load_one};
use super::{Ended, Found, Host, failed};
use formats::Format;
use warning::code;
use weir::config::Config;
pub(super) use wiring::{CHOSEN_IN_SIDECAR, inside, longest_wait, reads_address};
use wiring::{Picture, Wired};

/// The files to check.
#[derive(Args)]
pub(super) struct Arguments {
    /// The files of one Envoy, or plugin configurations.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The host of a plugin configuration. The dynamic module refuses attributes that it cannot read. A configuration of Envoy names its
    /// host itself.
    #[arg(long, value_enum, default_value_t = Host::Wasm)]
    host: Host,
    /// Also report what an Envoy of this version refuses, and whether weir was ever run with it.
    #[arg(long, value_name = "X.Y")]
    envoy: Option<Version>,
    /// End with status 1 if there are warnings. Notes do not count.
    #[arg(long)]
    deny_warnings: bool,
    /// Do not report warnings of this code. Repeat it for several.
    #[arg(long, value_name = "CODE", hide_possible_values = true, value_parser = PossibleValuesParser::new(code::ALL))]
    allow: Vec<String>,
    /// Also report which subjects begin anew when this configuration replaces the one in OLD.
    #[arg(long, value_name = "OLD")]
    against: Option<PathBuf>,
    /// First write the new names of renamed fields into the files. Misspelled names stay.
    #[arg(long)]
    fix: bool,
    /// The format of the output.
    #[arg(long, value_enum, default_value_t = Format::Auto)]
    format: Format,
}

struct Report<'a> {
    source: &'a Source,
    policies: usize,
    /// The hash of the last configuration in it.
    hash: Option<u32>,
    findings: Vec<Finding>,
}

pub(super) use against::warnings as begins_anew;

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    if arguments.fix {
        arguments.files.iter().try_for_each(|path| fix::rename(path, arguments.host.into()))?;
    }
    let sources = arguments.files.iter().map(|path| Source::read(path)).collect::<Result<Vec<_>, _>>()?;
    let old = arguments.against.as_deref().map(load_one).transpose()?;
    let reports = reports(&sources, arguments.host, old.as_ref(), arguments.envoy, &arguments.allow);
    formats::print(arguments.format, &reports, out).map_err(failed)?;
    let mut findings = reports.iter().flat_map(|report| &report.findings);
    let fails = |finding: &Finding| match finding.severity {
        Severity::Error => true,
        Severity::Warning => arguments.deny_warnings,
        Severity::Note => false,
    };
    Ok(if findings.any(fails) { Found::Something } else { Found::Nothing })
}

/// Returns the findings in files that belong together, without warnings of the codes in `allow`.
fn reports<'a>(
    sources: &'a [Source],
    host: Host,
    old: Option<&Config>,
    envoy: Option<Version>,
    allow: &[String],
) -> Vec<Report<'a>> {
    let pictures: Vec<_> = sources.iter().map(Picture::of).collect();
    let limiters: Vec<_> = sources.iter().map(Source::limiters).collect();
    let has_limiter = limiters.iter().any(|of| !of.is_empty());
    let shared = wiring::shared(sources, &limiters, &pictures);
    let all: Vec<_> = limiters.iter().flatten().collect();
    let mut reports = Vec::new();
    for (file, ((source, picture), limiters)) in sources.iter().zip(&pictures).zip(&limiters).enumerate() {
        // A part of an Envoy whose limiter is in another file.
        let is_part = has_limiter && !picture.has_all_clusters && source.documents.iter().any(is_envoys);
        let mut report = check(source, limiters, host, old, picture, &pictures);
        report.findings.extend(wiring::discovered(source, picture, &all, host.into()));
        let has_error = report.findings.iter().any(|finding| finding.severity == Severity::Error);
        if !has_limiter && !has_error {
            report.findings.push(no_limiter(source));
        }
        let own = shared.iter().filter(|(of, _)| *of == file).map(|(_, finding)| finding.clone());
        report.findings.extend(own);
        let by_version = envoy.map(|version| envoys::findings(source, limiters, version));
        report.findings.extend(by_version.unwrap_or_default());
        report.findings.retain(|finding| !(is_part && finding.code == "no-limiter"));
        report.findings.retain(|finding| !allow.iter().any(|code| code == finding.code));
        // The order of the file.
        report.findings.sort_by_key(|finding| finding.place);
        reports.push(report);
    }
    reports
}

/// Returns the findings of one file, in JSON.
pub(super) fn json(source: Source) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    formats::print(Format::Json, &reports(&[source], Host::Wasm, None, None, &[]), &mut out)?;
    Ok(out)
}

/// Returns the findings in files that belong together, each with the name of its file.
pub(super) fn review(sources: &[Source]) -> Vec<(Finding, &str)> {
    let named = reports(sources, Host::Wasm, None, None, &[]).into_iter().flat_map(|report| {
        let name = report.source.name.as_str();
        report.findings.into_iter().map(move |finding| (finding, name))
    });
    named.collect()
}

/// Checks a file with these limiters. `own` is the picture that the file gives of Envoy, `all` are the pictures of all files.
fn check<'a>(
    source: &'a Source,
    limiters: &[Limiter<'_>],
    host: Host,
    old: Option<&Config>,
    own: &Picture<'_>,
    all: &[Picture<'_>],
) -> Report<'a> {
    let mut findings: Vec<Finding> = source.wrong.iter().cloned().collect();
    repeated(source, &mut findings);
    findings.extend(source.ignored.map(|place| {
        let reason = "Envoy reads only the first document of a file, and not this one";
        Finding::warning(code::IGNORED_DOCUMENT, place, "", reason, "Write it in a file of its own")
    }));
    if limiters.is_empty() && findings.is_empty() && !shows_weir(source) {
        findings.push(no_limiter(source));
    }
    let (mut policies, mut hashes, mut stores) = (0_usize, Vec::new(), Vec::new());
    for limiter in limiters {
        match limiter.config(host.into()) {
            Ok(config) => {
                // Each listener of an Envoy has its own copy.
                if !hashes.contains(&config.hash) {
                    hashes.push(config.hash);
                    policies = policies.saturating_add(config.policies.len());
                }
                findings.extend(warnings(limiter, &config, old));
                let wired = Wired::new(limiter, &config, own, all);
                findings.extend(wired.iter().flat_map(Wired::warnings));
                let clusters = config.regions.all.iter().map(|region| region.cluster.clone());
                stores.extend(wired.into_iter().flat_map(|_| clusters.clone()));
            }
            Err(errors) => findings.extend(errors),
        }
    }
    findings.extend(wiring::warnings(own, &source.documents, stores, all));
    Report { source, policies, hash: hashes.last().copied(), findings }
}

fn no_limiter(source: &Source) -> Finding {
    let place = source.documents.first().map_or(Place::START, |document| document.place);
    let said = if source.documents.iter().any(is_envoys) {
        "found no weir.limiter, allowed: one as `root_id` of a plugin, or as `filter_name` of the dynamic module"
    } else {
        "found no configuration of the limiter"
    };
    Finding::error("no-limiter", place, said)
}

/// Names that come twice. Of YAML Envoy takes the last, and JSON it refuses; of weir's own JSON the filter says so.
fn repeated(source: &Source, findings: &mut Vec<Finding>) {
    let is_json = source.is_json;
    for document in source.documents.iter().filter(|document| !is_json || is_envoys(document)) {
        findings.extend(document.repeated().into_iter().map(|(place, name)| {
            if is_json {
                let said = format!("{name}: found the same name twice, allowed: each name once");
                return Finding::error("syntax", place, said);
            }
            let reason = "the same name is here twice, and the last one counts";
            Finding::warning(code::DUPLICATE_NAME, place, name, reason, "Write it once")
        }));
    }
}

/// True if a file has a part of weir that is not the limiter: the bridge, or a listener of the dynamic module.
fn shows_weir(source: &Source) -> bool {
    let is_part = |node: &Node| {
        node.text_of("root_id") == "weir.bridge"
            || ["weir.store", "weir.clock"].contains(&node.text_of("filter_name"))
    };
    source.documents.iter().any(|document| !inside(document, &is_part).is_empty())
}

fn warnings(limiter: &Limiter<'_>, config: &Config, old: Option<&Config>) -> Vec<Finding> {
    let authenticates = limiter.carrier.as_ref().is_some_and(wiring::authenticates);
    let anew = old.map(|old| against::warnings(config, old)).unwrap_or_default();
    let is_written = |path: &[&str]| limiter.node().at(path).is_some();
    let found = policies::warnings(config, authenticates, &is_written).into_iter().chain(anew);
    let found = found.map(|found| Finding { place: limiter.place(&found.path), ..found });
    let radix = limiter.other_radix().into_iter().map(|(place, word, number)| {
        let reason = format!("YAML takes {word} for {number}");
        let advice = "Write the number in decimal, without a zero before it";
        Finding::warning(code::OTHER_RADIX, place, "", reason, advice)
    });
    found.chain(radix).collect()
}
