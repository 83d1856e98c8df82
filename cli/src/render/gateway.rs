// SPDX-License-Identifier: Apache-2.0
//! For Envoy Gateway: the limiter as an EnvoyExtensionPolicy, or as a filter that an EnvoyPatchPolicy adds, and the connection to Redis as an
//! EnvoyPatchPolicy.

use super::connections::Kind;
use super::istio::parts;
use super::mount::{Mounted, by_hand, password_source};
use super::shipped::Shipped;
use super::{Document, Failure, Rendering, Store, host_and_port};
use crate::envoys::Version;
use crate::tree::{Map, Tree};

/// The first version that names listeners after their ports by default.
const NAMED_BY_PORT: Version = Version(1, 10);
/// The first version that can merge an EnvoyProxy with that of the GatewayClass.
const MERGES: Version = Version(1, 8);

/// The bytes of a body that its listeners keep by default.
const BUFFER: usize = 32 * 1024;

const PATCHES: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: $name, namespace: $namespace}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: $gateway}
  type: JSONPatch
  jsonPatches: $patches
";

const EXTENSION: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: $name, namespace: $namespace}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: $gateway}]
  wasm:
  - name: weir
    rootID: weir.limiter
    failOpen: false
    code: {type: Image, image: {url: $url}}
    config: $limiter
";

const PROXY: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: $name, namespace: $namespace}
spec:
  provider:
    type: Kubernetes
    kubernetes:
      envoyDeployment:
        pod: {volumes: $volumes}
        container: {volumeMounts: $mounts}
  bootstrap: {type: Merge, value: $bootstrap}
";

/// Lets the Gateway use the EnvoyProxy.
const PARAMETERS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: $gateway, namespace: $namespace}
spec:
  infrastructure:
    parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: $name}
";

/// A patch of the Gateway.
pub fn parameters(rendering: &Rendering<'_>) -> Tree {
    let values = [
        ("name", rendering.arguments.name().into()),
        ("gateway", rendering.arguments.gateway().into()),
        ("namespace", rendering.namespace("default").into()),
    ];
    Tree::template(PARAMETERS, &values)
}

pub fn documents(rendering: &Rendering<'_>) -> Result<Vec<Document>, Failure> {
    let arguments = rendering.arguments;
    let shipped = Shipped::new(rendering)?;
    let namespace = rendering.namespace("default");
    let mut values = vec![
        ("name", arguments.name().into()),
        ("namespace", namespace.as_str().into()),
        ("gateway", arguments.gateway().into()),
        ("limiter", rendering.limiter.clone()),
    ];
    let mut made = vec![(proxy_comment(rendering), proxy(rendering, &shipped, &namespace))];
    if rendering.logs_in() {
        made.push((Vec::new(), password_source(rendering, arguments.proxy_namespace())));
    }
    let mut patches = Vec::new();
    for (kind, value) in parts(rendering, &shipped) {
        let yaml = "{type: $type, name: $name, operation: {op: add, path: \"\", value: $value}}";
        let name = value.get("name").cloned().unwrap_or_else(|| "".into());
        let values = [("type", kind.type_url().into()), ("name", name), ("value", value.into())];
        patches.push(Tree::template(yaml, &values));
    }
    match &arguments.image {
        Some(image) if !rendering.reads_bodies() => {
            values.push(("url", image.trim_start_matches("oci://").into()));
            let mut extension = Tree::template(EXTENSION, &values);
            if let (Some(variable), Some(Tree::List(plugins))) =
                (rendering.secret_variable(), extension.at_mut(&["spec", "wasm"]))
                && let Some(Tree::Map(plugin)) = plugins.first_mut()
            {
                let yaml = "{hostKeys: [$variable]}";
                plugin.set("env", Tree::template(yaml, &[("variable", variable.into())]));
            }
            made.push((Vec::new(), extension));
        }
        Some(_) => {
            return Err(String::from(
                "--image: a policy reads bodies (`body_json`), which an EnvoyExtensionPolicy cannot be configured for; leave the option out",
            ));
        }
        None => {
            for listener in listeners(&arguments.listener)? {
                patches.extend(listener_patches(rendering, &shipped, &namespace, listener)?);
            }
        }
    }
    values.push(("patches", patches.into()));
    let comment = String::from(
        "Envoy Gateway applies it only with `extensionApis: {enableEnvoyPatchPolicy: true}` in its own configuration.",
    );
    made.push((vec![comment], Tree::template(PATCHES, &values)));
    Ok(made)
}

/// The names and ports of listeners, each port once: listeners of one port are one listener of Envoy, which before 1.10 has the name of the
/// first.
fn listeners(given: &[String]) -> Result<Vec<(&str, u64)>, Failure> {
    if given.is_empty() {
        return Ok(vec![("http", 80)]);
    }
    let mut listeners: Vec<(&str, u64)> = Vec::new();
    for listener in given {
        let (name, port) =
            host_and_port("listener", listener).map_err(|said| said.replace("HOST", "NAME"))?;
        if let Some((_, other)) = listeners.iter().find(|(other, of)| *other == name && *of != port) {
            return Err(format!(
                "--listener: found {listener:?} and {name}:{other}, allowed: each listener of the Gateway once, with its port"
            ));
        }
        if listeners.iter().all(|(_, other)| *other != port) {
            listeners.push((name, port));
        }
    }
    Ok(listeners)
}

/// Puts the limiter before the router of a listener. If a policy reads bodies, the listener also keeps as much of them.
fn listener_patches(
    rendering: &Rendering<'_>,
    shipped: &Shipped,
    namespace: &str,
    (name, port): (&str, u64),
) -> Result<Vec<Tree>, Failure> {
    let name = if rendering.version < NAMED_BY_PORT {
        format!("{namespace}/{}/{name}", rendering.arguments.gateway())
    } else {
        format!("tcp-{port}")
    };
    let filter = shipped.filter().ok_or("the shipped file has no limiter")?;
    // What JSONPath finds is where the patch adds: before the router, in each filter chain.
    let yaml = r#"
type: $type
name: $name
operation: {op: add, jsonPath: "..http_filters[?(@.name=='envoy.filters.http.router')]", value: $filter}
"#;
    let values =
        [("type", Kind::Listener.type_url().into()), ("name", name.into()), ("filter", filter.into())];
    let mut patches = vec![Tree::template(yaml, &values)];
    if let Some(max_bytes) = rendering.max_body().filter(|max_bytes| *max_bytes > BUFFER) {
        let yaml = "
type: $type
name: $name
operation: {op: add, path: /per_connection_buffer_limit_bytes, value: $bytes}
";
        let [name, kind, _] = values;
        patches.push(Tree::template(yaml, &[kind, name, ("bytes", (max_bytes as u64).into())]));
    }
    Ok(patches)
}

fn proxy_comment(rendering: &Rendering<'_>) -> Vec<String> {
    if rendering.is_for_gitops() {
        return Vec::new();
    }
    let mut lines =
        vec![String::from("The proxies, with the plugin as a file, which the bridge is loaded from:")];
    lines.extend(by_hand(rendering, rendering.arguments.proxy_namespace()));
    lines.push(String::from(
        "Name it in the Gateway's `infrastructure.parametersRef`, or add its parts to the EnvoyProxy that you have.",
    ));
    lines
}

/// The proxies: what is mounted, and what their bootstrap needs.
fn proxy(rendering: &Rendering<'_>, shipped: &Shipped, namespace: &str) -> Tree {
    let mounted = Mounted::of(rendering);
    // The labels of metrics.
    let mut bootstrap = Map::new();
    if let Some(stats) = shipped.tree.get("stats_config") {
        bootstrap.set("stats_config", stats.clone());
    }
    if rendering.arguments.store == Store::Cluster {
        // The bridge leads to a listener inside of Envoy.
        let yaml = r#"
- name: envoy.bootstrap.internal_listener
  typed_config: {"@type": type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener}
"#;
        bootstrap.set("bootstrap_extensions", Tree::template(yaml, &[]));
    }
    let values = [
        ("name", rendering.arguments.name().into()),
        ("namespace", namespace.into()),
        ("volumes", mounted.volumes),
        ("mounts", mounted.mounts),
        ("bootstrap", Tree::from(bootstrap).yaml().into()),
    ];
    let mut proxy = Tree::template(PROXY, &values);
    // Otherwise it would replace the EnvoyProxy of the GatewayClass.
    if let Some(Tree::Map(spec)) = proxy.at_mut(&["spec"])
        && rendering.version >= MERGES
    {
        spec.set("mergeType", "StrategicMerge");
    }
    let container = proxy.at_mut(&["spec", "provider", "kubernetes", "envoyDeployment", "container"]);
    if let (Some(variables), Some(Tree::Map(container))) = (mounted.variables, container) {
        container.set("env", variables);
    }
    proxy
}
