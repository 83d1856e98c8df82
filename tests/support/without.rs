// SPDX-License-Identifier: Apache-2.0
//! Shipped configurations, and what they become when a part of them is missing.

use super::envoy::Template;

/// The cluster leads straight to whatever is at its other end: gRPC without HTTP.
pub fn the_bridge(template: Template) -> Template {
    without(template, "        - name: weir\n          typed_config:", "        - name: codec\n")
}

/// The cluster speaks HTTP to whatever is at its other end, by way of the bridge.
pub fn upstream_config(template: Template) -> Template {
    without(template, "    upstream_config:\n", "    typed_extension_protocol_options:\n")
}

fn without(template: Template, from: &str, to: &str) -> Template {
    let part = part(&template, from, to);
    template.with(&part, "")
}

/// Returns the part that begins with the last line `from` and ends before the next `to`.
pub fn part(template: &Template, from: &str, to: &str) -> String {
    let config = template.config();
    let begin = config.rfind(&format!("\n{from}")).expect("where it begins") + 1;
    let length = config[begin..].find(to).expect("where it ends");
    config[begin..begin + length].to_owned()
}
