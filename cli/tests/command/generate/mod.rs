// SPDX-License-Identifier: Apache-2.0
//! `weir import` and `weir render`, where a transcript cannot show it.

mod nginx;
mod render;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::command::{command, run};

/// A folder with files; it goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn with(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("weir-generate-{}-{next}", std::process::id())));
        for (name, text) in files {
            let path = folder.0.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    /// Runs `weir` in it: exit status, standard output, standard error.
    pub fn weir(&self, arguments: &[&str]) -> (i32, String, String) {
        fs::create_dir_all(&self.0).expect("a folder");
        run(command(arguments).current_dir(&self.0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
