// SPDX-License-Identifier: Apache-2.0
//! Findings for programs: JSON, SARIF, and the commands of GitHub's workflows.

use std::io;

use serde_json::{Value, json};

use super::Report;
use crate::check::warning::code;
use crate::document::Place;
use crate::envoys;
use crate::finding::{Finding, Severity};
use crate::words;

/// The page with the sections about the codes.
const MANUAL: &str = "docs/command.md";

/// All findings, each with the name of its file.
fn all<'a>(reports: &'a [Report<'_>]) -> impl Iterator<Item = (&'a str, &'a Finding)> {
    reports
        .iter()
        .flat_map(|report| report.findings.iter().map(|finding| (report.source.name.as_str(), finding)))
}

/// One object: how many files and policies there are, and what was found.
pub fn json(reports: &[Report<'_>], out: &mut impl io::Write) -> io::Result<()> {
    let finding = |(file, finding): (&str, &Finding)| {
        json!({
            "severity": finding.severity.word(),
            "code": finding.code,
            "file": file,
            "line": finding.place.line,
            "column": finding.place.column,
            "message": finding.title(),
            "advice": finding.advice(),
        })
    };
    let file = |report: &Report<'_>| json!({"file": report.source.name, "policies": report.policies, "hash": report.hash});
    let files: Vec<Value> = reports.iter().map(file).collect();
    let findings: Vec<Value> = all(reports).map(finding).collect();
    writeln!(out, "{}", words::json(&json!({"files": files, "findings": findings})))
}

/// <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>
pub fn sarif(reports: &[Report<'_>], out: &mut impl io::Write) -> io::Result<()> {
    let errors = ["syntax", "configuration", "body-not-shown", "no-limiter", envoys::REFUSED]
        .iter()
        .map(|code| (code, "error", MANUAL.to_owned()));
    let level = |code: &str| if code == code::PLAIN_HASH { "note" } else { "warning" };
    let warnings = code::ALL.iter().map(|code| (code, level(code), format!("{MANUAL}#{code}")));
    let rule = |(code, level, manual): (&&str, &str, String)| json!({"id": code, "help": {"text": format!("See {manual}")}, "defaultConfiguration": {"level": level}});
    let rules: Vec<Value> = errors.chain(warnings).map(rule).collect();
    let result = |(file, finding): (&str, &Finding)| {
        let region = json!({"startLine": finding.place.line, "startColumn": finding.place.column});
        json!({
            "ruleId": finding.code,
            "level": finding.severity.word(),
            "message": {"text": finding.message()},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": uri(file)}, "region": region}}],
        })
    };
    let results: Vec<Value> = all(reports).map(result).collect();
    let driver = json!({"name": "weir", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
    let run = json!({"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results});
    let schema = "https://json.schemastore.org/sarif-2.1.0.json";
    writeln!(out, "{}", words::json(&json!({"$schema": schema, "version": "2.1.0", "runs": [run]})))
}

/// The name of a file as a reference (RFC 3986): relative as it was given, or of this machine.
fn uri(file: &str) -> String {
    let mut uri = String::from(if file.starts_with('/') { "file://" } else { "" });
    for byte in file.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

/// <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>
pub fn github(reports: &[Report<'_>], out: &mut impl io::Write) -> io::Result<()> {
    for (file, finding) in all(reports) {
        let (Place { line, column }, code) = (finding.place, finding.code);
        let level = if finding.severity == Severity::Note { "notice" } else { finding.severity.word() };
        let title = match finding.severity {
            Severity::Error => String::from("weir"),
            Severity::Warning | Severity::Note => format!("weir%3A {code}"),
        };
        let file = escaped(file).replace(':', "%3A").replace(',', "%2C");
        let message = escaped(&finding.message());
        writeln!(out, "::{level} file={file},line={line},col={column},title={title}::{message}")?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}
