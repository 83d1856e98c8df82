// SPDX-License-Identifier: Apache-2.0
//! `weir import nginx` on large files. Its output is in `transcripts/generate/nginx.txt`.

use std::time::{Duration, Instant};

use super::Folder;

/// A file of the greatest size that is likely, and one with many cases, end soon.
#[test]
fn large_files_are_read() {
    let mut http = String::from("limit_req_zone $key zone=z:1m rate=1r/s; geo $free { default 1;\n");
    for number in 0..3_000 {
        http.push_str(&format!("10.{}.{}.0/24 0;\n", number / 256, number % 256));
    }
    http.push_str(
        "}\nmap $free $key { 0 \"\"; 1 $binary_remote_addr; }\nserver { limit_req zone=z; location / { }\n",
    );
    for number in 0..300 {
        http.push_str(&format!("location /a{number}/ {{ limit_req zone=z burst={}; }}\n", number % 3));
    }
    http.push_str("}\n");
    let folder = Folder::with(&[("nginx.conf", &http)]);
    let (_, out, error) = folder.weir(&["import", "nginx", "nginx.conf"]);
    assert_eq!(error, "");
    assert!(out.contains("10.11.183.0/24"), "{}", out.len());
}

/// Hundreds of regular expressions take about as long as they are many. Without looking at their ends, 400 took 25 times as long as 100.
#[test]
fn many_regular_expressions_are_read_in_proportion() {
    let file = |count: usize| {
        let locations: String = (0..count)
            .map(|number| {
                format!("location ~ ^/api/v{number}/\\d+$ {{ limit_req zone=z burst={}; }}\nlocation ~ ^/p{number}/.*\\.php$ {{ }}\n", number % 50)
            })
            .collect();
        Folder::with(&[(
            "a.conf",
            &format!(
                "limit_req_zone $host zone=z:1m rate=100r/s; server {{\nlimit_req zone=z;\n{locations}location / {{ }} }}"
            ),
        )])
    };
    let time = |count: usize| {
        let folder = file(count);
        let began = Instant::now();
        let (status, out, error) = folder.weir(&["import", "nginx", "a.conf"]);
        assert_eq!(status, 0, "{error}");
        assert!(out.len() < 400 * count + 20_000, "{count}: {} bytes", out.len());
        began.elapsed()
    };
    let few = time(100).max(Duration::from_millis(50));
    let many = time(400);
    assert!(many < few * 12, "100 take {few:?}, 400 {many:?}");
}
