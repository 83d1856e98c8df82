// SPDX-License-Identifier: Apache-2.0
//! `pack FOLDER` prints the files of a folder as lines of `fuzz/seeds/NAME.txt`, `pack FILE FOLDER` writes a file for each line of one.
//! `scripts/fuzz` compiles it.

use std::fs;
use std::path::Path;

mod seeds;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [folder] => {
            let files = fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path());
            let mut files: Vec<_> = files.collect();
            // Those that were unpacked have short names, and come first. cargo-fuzz names others by their hashes.
            files.sort_by_key(|file| (file.as_os_str().len(), file.clone()));
            files.iter().for_each(|file| println!("{}", fs::read(file).expect("a file").escape_ascii()));
        }
        [file, folder] => {
            for (number, seed) in seeds::read(Path::new(file)).iter().enumerate() {
                fs::write(Path::new(folder).join(format!("{number:04}")), seed).expect("written");
            }
        }
        _ => panic!("pack FOLDER, or pack FILE FOLDER"),
    }
}
