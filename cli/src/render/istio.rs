// SPDX-License-Identifier: Apache-2.0
//! For Istio: the limiter as a filter that an EnvoyFilter inserts before the router, or from an image as a WasmPlugin; and the connection to Redis
//! as an EnvoyFilter. Istio puts all WasmPlugins before its cors and fault filters.

use clap::ValueEnum;
use serde_json::json;

use super::connections::Kind;
use super::mount::{Mounted, PASSWORD_SOURCE, by_hand, password_source};
use super::shipped::Shipped;
use super::{Document, Failure, Rendering};
use crate::envoys::Version;
use crate::tree::{Map, Tree};
use crate::{check, tell};

/// The proxies that get weir.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Context {
    /// Gateways.
    Gateway,
    /// Sidecars, for requests that come in.
    SidecarInbound,
}

impl Context {
    const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "GATEWAY",
            Self::SidecarInbound => "SIDECAR_INBOUND",
        }
    }
}

/// The first version that has `FAIL_RELOAD` in a WasmPlugin.
const RELOADS: Version = Version(1, 27);

// Behind the filters that verify and authorize clients, and before cors.
const PLUGIN: &str = "
apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: $name, namespace: $namespace}
spec:
  selector: {matchLabels: $labels}
  url: $url
  pluginName: weir.limiter
  phase: STATS
  failStrategy: $strategy
  pluginConfig: $limiter
";

const FILTER: &str = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: $name, namespace: $namespace}
spec:
  workloadSelector: {labels: $labels}
  configPatches: $patches
";

/// Refuses headers that an upstream may read under another name.
const UNDERSCORES: &str = r#"
applyTo: NETWORK_FILTER
match:
  context: $context
  listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}
patch:
  operation: MERGE
  value:
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      common_http_protocol_options: {headers_with_underscores_action: REJECT_REQUEST}
"#;

/// Inserts the limiter.
const INSERT: &str = "
applyTo: HTTP_FILTER
match:
  context: $context
  listener:
    filterChain:
      filter:
        name: envoy.filters.network.http_connection_manager
        subFilter: {name: envoy.filters.http.router}
patch: {operation: INSERT_BEFORE, value: $filter}
";

pub fn documents(rendering: &Rendering<'_>) -> Result<Vec<Document>, Failure> {
    let arguments = rendering.arguments;
    let shipped = Shipped::new(rendering)?;
    let namespace = rendering.namespace("istio-system");
    // In the namespace of Istio itself, a resource is for the pods of all. And no sidecar has the label of Istio's gateways.
    if arguments.context() == Context::SidecarInbound {
        for (option, is_given, allowed) in [
            ("--namespace", arguments.namespace.is_some() || arguments.helm.is_some(), "namespace"),
            ("--selector", arguments.selector.is_some(), "label"),
        ] {
            if !is_given {
                return Err(format!(
                    "{option}: found nothing, allowed: with --context sidecar-inbound, the {allowed} of the pods"
                ));
            }
        }
    }
    if arguments.context() == Context::SidecarInbound && check::reads_address(&rendering.config) {
        tell(&format!("weir: --context sidecar-inbound: {}", check::CHOSEN_IN_SIDECAR));
    }
    let labels = labels(arguments.selector.as_deref().unwrap_or("istio=ingressgateway"))?;
    let mut values = vec![
        ("name", arguments.name().into()),
        ("namespace", namespace.as_str().into()),
        ("labels", labels.into()),
        ("limiter", rendering.limiter.clone()),
    ];
    let mut made = Vec::new();
    if rendering.logs_in() {
        made.push((Vec::new(), password_source(rendering, &namespace)));
    }
    let mut patches = connections(rendering, &shipped);
    patches.push(Tree::template(UNDERSCORES, &[("context", arguments.context().word().into())]));
    if let Some(url) = &arguments.image {
        // A WasmPlugin has no field for what `body_json` needs.
        if rendering.reads_bodies() {
            return Err(String::from(
                "--image: a policy reads bodies (`body_json`), which a WasmPlugin cannot be configured for; leave the option out",
            ));
        }
        let reloads = rendering.version >= RELOADS;
        let strategy = if reloads { "FAIL_RELOAD" } else { "FAIL_CLOSE" };
        values.extend([("url", url.as_str().into()), ("strategy", strategy.into())]);
        let mut comment = vec![
            String::from(
                "Istio puts a WasmPlugin before its cors filter: preflight requests use up limits, and a browser does not show rejections to the page.",
            ),
            String::from(
                "Without --image, weir is behind cors. Or exempt preflights: `exempt: [{method: [OPTIONS]}]`.",
            ),
        ];
        if !reloads {
            comment.push(String::from(
                "Before Istio 1.27 there is no FAIL_RELOAD: after a trap, a proxy answers 503 until its configuration changes.",
            ));
        }
        let mut plugin = Tree::template(PLUGIN, &values);
        if let Some(Tree::Map(spec)) = plugin.at_mut(&["spec"]) {
            if let Some(variable) = rendering.secret_variable() {
                let yaml = "{env: [{name: $variable, valueFrom: HOST}]}";
                spec.set("vmConfig", Tree::template(yaml, &[("variable", variable.into())]));
            }
            // Otherwise the requests that the pods send would be limited, too.
            if arguments.context() == Context::SidecarInbound {
                spec.set("match", Tree::template("[{mode: SERVER}]", &[]));
            }
        }
        made.push((comment, plugin));
    } else {
        let filter = shipped.filter().ok_or("the shipped file has no limiter")?;
        let context = arguments.context().word().into();
        patches.push(Tree::template(INSERT, &[("context", context), ("filter", filter.into())]));
    }
    values.push(("patches", patches.into()));
    made.push((connections_comment(rendering, &namespace), Tree::template(FILTER, &values)));
    Ok(made)
}

/// The labels that a selector names: `app=web,istio=ingressgateway`.
fn labels(selector: &str) -> Result<Map, Failure> {
    let mut labels = Map::new();
    for pair in selector.split(',') {
        let found = pair.split_once('=').filter(|(key, value)| is_label(key, value));
        let (key, value) = found.filter(|(key, _)| labels.get(key).is_none()).ok_or_else(|| {
            format!(
                "--selector: found {pair:?}, allowed: KEY=VALUE, of letters, digits, -, _ and ., for each key once, with commas between several"
            )
        })?;
        labels.set(key, value);
    }
    Ok(labels)
}

/// True if an object of Kubernetes may have this label: `app.kubernetes.io/name=web`.
fn is_label(key: &str, value: &str) -> bool {
    let is_text = |text: &str, also: &str| {
        let is_plain = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
        is_plain(text.chars().next())
            && is_plain(text.chars().next_back())
            && text.chars().all(|next| next.is_ascii_alphanumeric() || also.contains(next))
    };
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_name = |text: &str| text.len() <= 63 && is_text(text, "-_.");
    let is_domain = |text: &str| {
        let is_lower = !text.contains(|next: char| next.is_ascii_uppercase());
        is_lower && text.len() <= 253 && text.split('.').all(|label| is_text(label, "-"))
    };
    domain.is_none_or(is_domain) && is_name(name) && is_name(value)
}

/// The comment above the connections: the files to mount, and the commands for that.
fn connections_comment(rendering: &Rendering<'_>, namespace: &str) -> Vec<String> {
    let mut lines = vec![
        String::from(
            "The connection to Redis. The bridge's code is a file, because Istio's agent fetches images for WasmPlugins only.",
        ),
        String::from(
            "Istio sets `stream_idle_timeout: 0s`: if weir traps, the requests paused in that worker wait for ever.",
        ),
        String::from(
            "If none of your streams is idle for 30 s, add `stream_idle_timeout: 30s` beside `common_http_protocol_options`.",
        ),
    ];
    if rendering.is_for_gitops() {
        return lines;
    }
    lines.push(String::from("Mount it:"));
    lines.extend(by_hand(rendering, namespace));
    let (context, mounted) = (rendering.arguments.context(), Mounted::of(rendering));
    match context {
        Context::Gateway => {
            let patch = json!({ "spec": { "template": mounted.template(context).json() } });
            lines.push(String::from(
                "Add the volumes to the gateway's Deployment, here DEPLOYMENT. Annotations for volumes have no effect in gateways:",
            ));
            lines.push(format!("  kubectl -n {namespace} patch deployment DEPLOYMENT --patch '{patch}'"));
        }
        Context::SidecarInbound => {
            lines.push(String::from("Annotate the pods, in the template of their Deployment, with"));
            lines.push(format!("  sidecar.istio.io/userVolume: '{}'", mounted.volumes.json()));
            lines.push(format!("  sidecar.istio.io/userVolumeMount: '{}'", mounted.mounts.json()));
        }
    }
    lines
}

/// The clusters and listeners between the limiter and Redis.
fn connections(rendering: &Rendering<'_>, shipped: &Shipped) -> Vec<Tree> {
    let context = rendering.arguments.context().word();
    // Clusters of inbound requests are looked for among all.
    let any = if context == "GATEWAY" { context } else { "ANY" };
    let patch = |(kind, value): (Kind, Map)| {
        let yaml = "{applyTo: $kind, match: {context: $context}, patch: {operation: ADD, value: $value}}";
        let kind = if kind == Kind::Cluster { "CLUSTER" } else { "LISTENER" };
        Tree::template(yaml, &[("kind", kind.into()), ("context", any.into()), ("value", value.into())])
    };
    parts(rendering, shipped).into_iter().map(patch).collect()
}

/// The parts between the limiter and each Redis: the cluster with the bridge, and for a Redis Cluster the parts behind it.
pub fn parts(rendering: &Rendering<'_>, shipped: &Shipped) -> Vec<(Kind, Map)> {
    // Control planes have no static secrets: the credential names its file of discovery.
    let with_secret = |part: Map| {
        let mut tree = Tree::from(part);
        tree.change(&mut |tree| {
            if tree.text_of("name") == "redis-password"
                && let Some(map) = tree.map_mut()
            {
                map.replace("sds_config", super::watched(PASSWORD_SOURCE));
            }
        });
        if let Tree::Map(part) = tree { part } else { Map::new() }
    };
    let is_secret = rendering.logs_in();
    shipped
        .connections()
        .map(|(kind, part)| (kind, if is_secret { with_secret(part) } else { part }))
        .collect()
}
