// SPDX-License-Identifier: Apache-2.0
//! Requests as text: the method and path, then a line per header. `@client` is the connection's address, `@a.b` an
//! Envoy attribute (a `/` in it is a dot of a word); a header after `-` is removed; what stands after `?` (a header, an attribute `a.b`) is unreadable.

use weir::request::sample::Sample;

/// The request that `text` describes.
pub fn request(text: &str) -> Sample {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (method, path) = lines.next().unwrap_or("GET /").split_once(' ').expect("METHOD PATH");
    let sample = Sample::default().method(method).path(path).from("192.0.2.1:4711");
    lines.fold(sample, |sample, line| {
        if let Some(name) = line.strip_prefix('-') {
            return sample.without(name);
        }
        if let Some(name) = line.strip_prefix('?') {
            return sample.unreadable(name);
        }
        let (name, value) = line.split_once(": ").unwrap_or((line.trim_end_matches(':'), ""));
        match name.strip_prefix('@') {
            Some("client") => sample.from(value),
            Some(path) => {
                let words: Vec<String> = path.split('.').map(|word| word.replace('/', ".")).collect();
                sample.property(&words.iter().map(String::as_str).collect::<Vec<_>>(), value)
            }
            None => sample.header(name, value),
        }
    })
}
