// SPDX-License-Identifier: Apache-2.0
//! Tables in documents that a test makes, each between two marks: `<!-- NAME -->` and `<!-- end -->`.

use std::fs;
use std::path::Path;

/// The page has these tables, by the names of their marks. `WEIR_UPDATE=1` writes them.
pub fn published<'a>(page: &str, tables: impl IntoIterator<Item = (&'a str, String)>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    let mut document = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    for (name, table) in tables {
        let begin = format!("<!-- {name} -->\n");
        let (head, rest) = document.split_once(&begin).expect("a mark");
        let (found, tail) = rest.split_once("<!-- end -->\n").expect("its end");
        if std::env::var_os("WEIR_UPDATE").is_none() {
            assert_eq!(found, table, "{name}: WEIR_UPDATE=1 writes the table");
        }
        document = [head, &begin, &table, "<!-- end -->\n", tail].concat();
    }
    fs::write(path, document).expect("written");
}
