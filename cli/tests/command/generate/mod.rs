// SPDX-License-Identifier: Apache-2.0
//! `weir import` and `weir render`, where a transcript cannot show it.

mod nginx;

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

/// No text of a configuration becomes another part of YAML. The rest of `weir render` is in `transcripts/generate/render.txt`, and the result
/// in Envoy in `cli/tests/envoy/platforms/`.
#[test]
fn texts_are_data() {
    let text = "yes\u{7}: #[] \u{2028} no";
    let weir = serde_json::json!({"policies": [{"name": "p", "subject": [{"literal": text}, {"literal": "010"}, {"literal": "off"}],
        "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s"}]}]});
    let folder = Folder::with(&[("weir.json", &weir.to_string())]);
    for platform in ["envoy", "istio", "envoy-gateway"] {
        let (status, out, error) = folder.weir(&["render", "weir.json", "--for", platform]);
        assert_eq!((status, error.as_str()), (0, ""), "{platform}");
        let document =
            out.split("\n---\n").find(|document| document.contains("literal")).expect("the limiter");
        let read = weir_cli::envoys_reading("a.yaml", document).expect("YAML").to_string();
        let expected = weir["policies"].to_string();
        assert!(read.contains(&expected), "{platform}: {read}");
    }
}
