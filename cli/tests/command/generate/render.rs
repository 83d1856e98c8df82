// SPDX-License-Identifier: Apache-2.0
//! The output of `weir render`, as YAML that is read again. The rest is in `transcripts/generate/render.txt`, and the result in Envoy in
//! `cli/tests/envoy/platforms/`.

use super::Folder;

/// No text of a configuration becomes another part of YAML.
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
