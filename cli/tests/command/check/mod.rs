// SPDX-License-Identifier: Apache-2.0
//! `weir check`: what it finds in files, where, and how it says so. Run as an operator runs it.

mod documented;
mod documents;
mod formats;
mod policies;
mod spellings;
mod wiring;

use crate::command;
pub use crate::command::File;

/// Runs `weir check` with these arguments: exit status, standard output, standard error.
pub fn check(arguments: &[&str]) -> (i32, String, String) {
    command::weir(&[&["check"], arguments].concat())
}

/// A file that has a warning, and the nearest one that has not.
pub struct Row {
    pub code: &'static str,
    pub name: &'static str,
    /// The file. What stands between `«` and `»` in it is written so, and where `«` is, the warning is.
    pub file: String,
    /// What replaces it in the file that has no warning.
    pub instead: &'static str,
    /// What the warning says, among other things.
    pub says: &'static str,
}

impl Row {
    pub fn run(&self) {
        let Self { code, name, file, instead, says } = self;
        let (before, rest) = file.split_once('«').expect("a mark");
        let (marked, after) = rest.split_once('»').expect("its end");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let has = File::new("has.yaml", format!("{before}{marked}{after}"));
        let (status, out, error) = check(&[has.path()]);
        let first = out.lines().next().unwrap_or_default();
        let start = format!("{}:{line}:{column}: warning: ", has.path());
        assert!(first.starts_with(&start), "{code}, {name}: {start} in\n{out}{error}");
        assert!(
            first.ends_with(&format!(" [{code}]")) && first.contains(says),
            "{code}, {name}: {says}:\n{out}"
        );
        assert_eq!((status, out.lines().count()), (0, 2), "{code}, {name}: {out}");
        assert_eq!(check(&[has.path(), "--deny-warnings"]).0, 1, "{code}, {name}");
        let allowed = check(&[has.path(), "--deny-warnings", "--allow", code]);
        assert_eq!((allowed.0, allowed.1.contains("warning")), (0, false), "{code}, {name}");
        let has_not = File::new("has-not.yaml", format!("{before}{instead}{after}"));
        let (status, out, error) = check(&[has_not.path(), "--deny-warnings"]);
        assert_eq!((status, out.lines().count()), (0, 1), "without {code}, {name}: {out}{error}");
    }
}
