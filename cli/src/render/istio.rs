// SPDX-License-Identifier: Apache-2.0
//! For Istio: the limiter as a WasmPlugin, or as a filter that an EnvoyFilter inserts, and the connection to Redis as an EnvoyFilter.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::connections::Kind;
use super::shipped::{Shipped, code};
use super::{Failure, Rendering, Store, documents, resource};
use crate::tree::{Map, Tree};

/// Which proxies.
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
const RELOADS: (u32, u32) = (1, 27);

pub fn render(rendering: &Rendering<'_>) -> Result<String, Failure> {
    let arguments = rendering.arguments;
    let shipped = Shipped::new(rendering)?;
    let namespace = rendering.namespace("istio-system");
    let (key, value) = arguments
        .selector
        .split_once('=')
        .ok_or_else(|| format!("--selector: found {:?}, allowed: KEY=VALUE", arguments.selector))?;
    let labels = Map::from([(key, value.into())]);
    let mut made = Vec::new();
    if arguments.store == Store::Tls {
        made.push((Vec::new(), super::gateway::secret(&namespace, rendering.password_file())));
    }
    let mut patches = connections(rendering, &shipped);
    // A WasmPlugin has no field for what `body_json` needs.
    if rendering.reads_bodies() {
        if arguments.image.is_some() {
            return Err(String::from(
                "--image: a policy reads bodies (`body_json`), which a WasmPlugin cannot be configured for; leave the option out",
            ));
        }
        let filter = shipped.filter().ok_or("the shipped file has no limiter")?;
        let router = Map::from([("name", "envoy.filters.http.router".into())]);
        let manager = Map::from([
            ("name", "envoy.filters.network.http_connection_manager".into()),
            ("subFilter", router.into()),
        ]);
        let chain = Map::from([("filterChain", Map::from([("filter", manager.into())]).into())]);
        let matches = Map::from([("context", arguments.context.word().into()), ("listener", chain.into())]);
        patches.push(patch("HTTP_FILTER", matches, "INSERT_BEFORE", filter));
    } else {
        made.push((plugin_comment(rendering), plugin(rendering, &namespace, &labels)));
    }
    let spec = Map::from([
        ("workloadSelector", Map::from([("labels", labels.into())]).into()),
        ("configPatches", patches.into()),
    ]);
    let filter = resource(
        "networking.istio.io/v1alpha3",
        "EnvoyFilter",
        "weir",
        &namespace,
        vec![("spec", spec.into())],
    );
    made.push((connections_comment(rendering, &namespace), filter));
    let head = String::from("Made by `weir render --for istio`. Apply with `kubectl apply -f`.");
    if let Some((comment, _)) = made.first_mut() {
        comment.insert(0, head);
    }
    Ok(documents(made))
}

/// What has to be mounted, and how.
fn connections_comment(rendering: &Rendering<'_>, namespace: &str) -> Vec<String> {
    let folder_of = |path: &str| path.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
    let volume = |name: &str, source: Value| {
        let mut volume = json!({ "name": name });
        if let (Some(volume), Value::Object(source)) = (volume.as_object_mut(), source) {
            volume.extend(source);
        }
        volume
    };
    let mount = |name: &str, path: String| json!({ "name": name, "mountPath": path, "readOnly": true });
    let mut volumes = vec![volume("weir-wasm", json!({ "configMap": { "name": "weir-wasm" } }))];
    let mut mounts = vec![mount("weir-wasm", folder_of(&code(rendering)))];
    let mut lines = vec![
        String::from(
            "The connection to Redis. The bridge's code is a file, because Istio's agent fetches images for WasmPlugins only. Mount it:",
        ),
        format!("  kubectl -n {namespace} create configmap weir-wasm --from-file=weir.wasm"),
    ];
    if rendering.arguments.store == Store::Tls {
        volumes.push(volume("weir", json!({ "configMap": { "name": "weir" } })));
        volumes.push(volume("weir-redis", json!({ "secret": { "secretName": "weir-redis" } })));
        mounts.push(mount("weir", super::gateway::PASSWORD_FOLDER.to_owned()));
        mounts.push(mount("weir-redis", folder_of(rendering.password_file())));
        lines.push(String::from("The password is one line in a file, `user:password`:"));
        lines.push(format!(
            "  kubectl -n {namespace} create secret generic weir-redis --from-file=password=FILE"
        ));
    }
    let (volumes, mounts) = (Value::from(volumes), Value::from(mounts));
    match rendering.arguments.context {
        Context::Gateway => {
            let proxy = json!({ "name": "istio-proxy", "volumeMounts": mounts });
            let pod = json!({ "volumes": volumes, "containers": [proxy] });
            let patch = json!({ "spec": { "template": { "spec": pod } } });
            lines.push(String::from(
                "Add the volumes to the gateway's Deployment, here DEPLOYMENT. Annotations for volumes have no effect in gateways:",
            ));
            lines.push(format!("  kubectl -n {namespace} patch deployment DEPLOYMENT --patch '{patch}'"));
        }
        Context::SidecarInbound => {
            lines.push(String::from("Annotate the pods, in the template of their Deployment, with"));
            lines.push(format!("  sidecar.istio.io/userVolume: '{volumes}'"));
            lines.push(format!("  sidecar.istio.io/userVolumeMount: '{mounts}'"));
        }
    }
    lines
}

fn plugin_comment(rendering: &Rendering<'_>) -> Vec<String> {
    if rendering.version < RELOADS {
        return vec![String::from(
            "Before Istio 1.27 there is no FAIL_RELOAD: after a trap, a proxy answers 503 until its configuration changes.",
        )];
    }
    Vec::new()
}

fn plugin(rendering: &Rendering<'_>, namespace: &str, labels: &Map) -> Map {
    let url = rendering.arguments.image.clone().unwrap_or_else(|| format!("file://{}", code(rendering)));
    let strategy = if rendering.version < RELOADS { "FAIL_CLOSE" } else { "FAIL_RELOAD" };
    let mut spec = Map::from([
        ("selector", Map::from([("matchLabels", labels.clone().into())]).into()),
        ("url", url.into()),
        ("pluginName", "weir.limiter".into()),
    ]);
    // Behind the filters that verify clients.
    spec.set("phase", "AUTHZ").set("failStrategy", strategy).set("pluginConfig", rendering.limiter.clone());
    resource("extensions.istio.io/v1alpha1", "WasmPlugin", "weir", namespace, vec![("spec", spec.into())])
}

/// The clusters and listeners between the limiter and Redis.
fn connections(rendering: &Rendering<'_>, shipped: &Shipped) -> Vec<Tree> {
    let context = rendering.arguments.context.word();
    // Clusters of inbound requests are looked for among all.
    let any = if context == "GATEWAY" { context } else { "ANY" };
    let matches = || Map::from([("context", any.into())]);
    let mut patches = Vec::new();
    for (kind, value) in parts(rendering, shipped) {
        let kind = if kind == Kind::Cluster { "CLUSTER" } else { "LISTENER" };
        patches.push(patch(kind, matches(), "ADD", value));
    }
    patches
}

fn patch(kind: &str, matches: Map, operation: &str, value: Map) -> Tree {
    let patch = Map::from([("operation", operation.into()), ("value", value.into())]);
    Map::from([("applyTo", kind.into()), ("match", matches.into()), ("patch", patch.into())]).into()
}

/// What is between the limiter and each Redis: the cluster with the bridge, and for a Redis Cluster what is behind it.
pub fn parts(rendering: &Rendering<'_>, shipped: &Shipped) -> Vec<(Kind, Map)> {
    // Control planes have no static secrets: the credential names its file of discovery.
    let with_secret = |part: Map| {
        let mut tree = Tree::from(part);
        tree.change(&mut |tree| {
            if tree.text_of("name") == "redis-password"
                && let Some(map) = tree.map_mut()
            {
                map.replace("sds_config", super::watched(super::gateway::PASSWORD_SOURCE));
            }
        });
        if let Tree::Map(part) = tree { part } else { Map::new() }
    };
    let is_secret = rendering.arguments.store == Store::Tls;
    shipped
        .connections()
        .map(|(kind, part)| (kind, if is_secret { with_secret(part) } else { part }))
        .collect()
}
