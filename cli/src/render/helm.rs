// SPDX-License-Identifier: Apache-2.0
//! `--helm`: a chart whose values are weir's configuration, and whose schema of values is weir's. The templates are the resources of a platform
//! with the values in place of the limiter. What else depends on the configuration is as when the chart was made, and other values are refused.

use serde_json::Value;

use super::gateway;
use super::istio::Context;
use super::mount::{Mounted, Names, password_source_file, secrets_by_hand};
use super::{Document, Failure, MADE, Platform, Rendering, Store, text_of};
use crate::tree::{Map, Tree};
use weir::config::json_schema;

/// The word that a template has in place of the values.
const VALUES: &str = "WEIR_VALUES";
/// The word that it has in place of the namespace.
pub const NAMESPACE: &str = "WEIR_NAMESPACE";

/// The line that Envoy needs only if a policy reads bodies.
const SHOWS_BODIES: &str = "allow_on_headers_stop_iteration: true";

/// Fields by which a policy may read bodies.
const READS_BODIES: [&str; 4] = ["body_json", "body_form", "calls", "usage"];

/// The values without what is read from responses.
const ASKED: &str = "{{- $asked := toJson (omit .Values.AsMap \"policies\") -}}
{{- range .Values.policies }}{{- $asked = print $asked (toJson (omit . \"settle\")) }}{{- end -}}
";

const CHART: &str = "
apiVersion: v2
name: weir
description: Limits HTTP traffic with Redis. The values are the configuration of weir
type: application
version: $version
appVersion: $version
";

/// The configuration that templates are made with.
pub fn limiter() -> Tree {
    VALUES.into()
}

/// The files. `values` is the configuration, as it is written, and `documents` have [`limiter`] in its place.
pub fn files(
    rendering: &Rendering<'_>,
    values: &str,
    resources: &str,
    documents: Vec<Document>,
) -> Vec<(String, String)> {
    let comment = vec![
        String::from("Render, lint or install it with Helm. `--values` is a configuration of weir."),
        String::from("proxies.yaml shows what the proxies need. A chart cannot change resources of others."),
    ];
    let chart = Tree::template(CHART, &[("version", env!("CARGO_PKG_VERSION").into())]);
    // This command wrote the first line, if it is there.
    let values = match values.split_once('\n') {
        Some((first, rest)) if first.starts_with(&format!("# {MADE}")) => rest,
        _ => values,
    };
    vec![
        (String::from("Chart.yaml"), text_of(vec![(comment, chart)])),
        (String::from("values.yaml"), values.to_owned()),
        (String::from("values.schema.json"), json_schema()),
        (String::from("proxies.yaml"), text_of(vec![proxies(rendering)]).replace(NAMESPACE, "NAMESPACE")),
        (format!("templates/{resources}"), template(rendering, &text_of(documents))),
    ]
}

/// The text of a template.
fn template(rendering: &Rendering<'_>, text: &str) -> String {
    let mut out: String = guards(rendering);
    for line in text.replace("{{", r#"{{ "{{" }}"#).split_inclusive('\n') {
        let line =
            line.replace(VALUES, "{{ toJson .Values }}").replace(NAMESPACE, "{{ .Release.Namespace }}");
        if line.trim() == SHOWS_BODIES {
            out.push_str(&format!("{{{{- if $bodies }}}}\n{line}{{{{- end }}}}\n"));
        } else {
            out.push_str(&line);
        }
    }
    out
}

/// Refuses values that the templates are not made for.
fn guards(rendering: &Rendering<'_>) -> String {
    let (config, arguments) = (&rendering.config, rendering.arguments);
    // The first action keeps the end of the line above it, which is a comment.
    let mut out = format!(
        "{{{{ $json := toJson .Values -}}}}\n{{{{- $bodies := {} -}}}}\n{ASKED}",
        has_one_of(&mut READS_BODIES.into_iter())
    );
    let mut refuse = |is_other: &str, said: &str| {
        out.push_str(&format!("{{{{- if {is_other} }}}}{{{{ fail {} }}}}{{{{ end -}}}}\n", quoted(said)));
    };
    let field = |path: &str, default: &str, value: &str| {
        let names: Vec<String> = path.split('.').map(quoted).collect();
        format!("ne (toJson (dig {} {default} .Values.AsMap)) (toJson {value})", names.join(" "))
    };
    refuse(
        r#"hasKey (default (dict) .Values.store) "hash_secret""#,
        "store.hash_secret: found a secret, allowed: hash_secret_env, the name of a variable that has it",
    );
    let mut guard = |is_other: &str, path: &str, made_for: &str| {
        let said = format!(
            "{path}: allowed: {made_for}, because the templates of this chart are made for that. For another value, make the chart again: \
             `weir render --helm`"
        );
        refuse(is_other, &said);
    };
    let mut same = |path: &str, default: &str, value: &str| {
        guard(&field(path, &quoted(default), &quoted(value)), path, &format!("{value:?}"));
    };
    same("store.cluster", "weir-bridge", &config.store.cluster);
    same("store.hash_secret_env", "", rendering.secret_variable().unwrap_or_default());
    if arguments.store == Store::Cluster {
        // As it is written: a template does not know that 1000ms is 1s.
        let written = rendering.values.pointer("/store/deadline").and_then(Value::as_str);
        same("store.deadline", "50ms", written.unwrap_or("50ms"));
    }
    let regions = rendering.values.get("regions").unwrap_or(&Value::Null);
    let is_other = if regions.is_null() {
        String::from(".Values.regions")
    } else {
        format!("ne (toJson .Values.regions) (toJson (fromJson {}))", quoted(&regions.to_string()))
    };
    guard(&is_other, "regions", "those that the chart was made with");
    match rendering.max_body() {
        _ if arguments.platform == Platform::Istio && arguments.image.is_none() => {}
        Some(max_bytes) => {
            let is_other = field("request_body.max_bytes", "65536", &max_bytes.to_string());
            guard(&format!("and $bodies ({is_other})"), "request_body.max_bytes", &max_bytes.to_string());
        }
        None => {
            // `settle` has some of them for responses, and a table of prices or a tier may be named so.
            let mut asked = rendering.values.clone();
            let policies = asked.get_mut("policies").and_then(Value::as_array_mut).into_iter().flatten();
            policies.filter_map(Value::as_object_mut).for_each(|policy| drop(policy.remove("settle")));
            let asked = asked.to_string();
            let mut names = READS_BODIES.into_iter().filter(|name| !asked.contains(&format!("\"{name}\":")));
            let is_other = has_one_of(&mut names).replace("$json", "$asked");
            guard(&is_other, "policies", "nothing that reads bodies of requests");
        }
    }
    out
}

/// A condition of Helm: true if the values have one of these fields.
fn has_one_of(names: &mut dyn Iterator<Item = &str>) -> String {
    let has = |name| format!("(contains {} $json)", quoted(&format!("\"{name}\":")));
    format!("or false {}", names.map(has).collect::<Vec<_>>().join(" "))
}

/// A string in a template, in the notation of Go.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The additions to the proxies, which are resources of others.
fn proxies(rendering: &Rendering<'_>) -> Document {
    let arguments = rendering.arguments;
    if arguments.platform == Platform::EnvoyGateway {
        let mut comment = vec![String::from(
            "The Gateway needs this reference, or your EnvoyProxy the parts of the chart's:",
        )];
        comment.extend(secrets_by_hand(rendering, arguments.proxy_namespace()));
        return (comment, gateway::parameters(rendering));
    }
    let mounted = Mounted::of(rendering);
    let namespace = arguments.namespace.as_deref().unwrap_or("NAMESPACE");
    let (what, tree) = match arguments.context() {
        Context::Gateway => {
            let mut values = Map::from([("volumes", mounted.volumes), ("volumeMounts", mounted.mounts)]);
            if let Some(variables) = mounted.variables {
                values.set("envVarFrom", variables);
            }
            ("These values are for Istio's chart `gateway`:", Tree::from(values))
        }
        Context::SidecarInbound => {
            let template = mounted.template(arguments.context());
            ("The selected pods need this in the template of their Deployment:", template)
        }
    };
    let mut comment = vec![String::from(what)];
    comment.extend(secrets_by_hand(rendering, namespace));
    (comment, tree)
}

/// The names of ConfigMaps.
pub fn names(rendering: &Rendering<'_>) -> Result<Names, Failure> {
    match rendering.arguments.image_volume {
        Some(_) => Ok(Names::of(rendering.arguments.name()).hashed(&[], &password_source_file(rendering))),
        None => Err(String::from(
            "--helm: found no --image-volume, allowed: an image with the plugin. Helm keeps a release in 1 MiB, which weir.wasm does not fit into",
        )),
    }
}
