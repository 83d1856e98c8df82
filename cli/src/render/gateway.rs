// SPDX-License-Identifier: Apache-2.0
//! For Envoy Gateway: the limiter as an EnvoyExtensionPolicy, or as a filter that an EnvoyPatchPolicy adds, and the connection to Redis as an
//! EnvoyPatchPolicy.

use super::connections::Kind;
use super::istio::parts;
use super::shipped::{Shipped, code};
use super::{Failure, Rendering, Store, documents, folder_of, host_and_port};
use crate::envoys::Version;
use crate::tree::{Map, Tree};

/// The folder of the file that tells Envoy where the password is.
pub const PASSWORD_FOLDER: &str = "/etc/weir-config";
/// And that file.
pub const PASSWORD_SOURCE: &str = "/etc/weir-config/redis-password.yaml";

/// The first version that names listeners after their ports by default.
const NAMED_BY_PORT: Version = Version(1, 10);

/// How many bytes of a body its listeners keep by default.
const BUFFER: usize = 32 * 1024;

const PATCHES: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyPatchPolicy
metadata: {name: weir, namespace: $namespace}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: $gateway}
  type: JSONPatch
  jsonPatches: $patches
";

const EXTENSION: &str = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyExtensionPolicy
metadata: {name: weir, namespace: $namespace}
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
metadata: {name: weir, namespace: $namespace}
spec:
  provider:
    type: Kubernetes
    kubernetes:
      envoyDeployment:
        pod: {volumes: $volumes}
        container: {volumeMounts: $mounts}
  bootstrap: {type: Merge, value: $bootstrap}
";

pub fn render(rendering: &Rendering<'_>) -> Result<String, Failure> {
    let arguments = rendering.arguments;
    let shipped = Shipped::new(rendering)?;
    let namespace = rendering.namespace("default");
    let mut values = vec![
        ("namespace", namespace.as_str().into()),
        ("gateway", arguments.gateway.as_str().into()),
        ("limiter", rendering.limiter.clone()),
    ];
    let mut made = vec![(proxy_comment(rendering), proxy(rendering, &shipped, &namespace))];
    if arguments.store == Store::Tls {
        made.push((Vec::new(), secret(&namespace, rendering.password_file())));
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
            made.push((Vec::new(), Tree::template(EXTENSION, &values)));
        }
        Some(_) => {
            return Err(String::from(
                "--image: a policy reads bodies (`body_json`), which an EnvoyExtensionPolicy cannot be configured for; leave the option out",
            ));
        }
        None => {
            for listener in &arguments.listener {
                patches.extend(listener_patches(rendering, &shipped, &namespace, listener)?);
            }
        }
    }
    values.push(("patches", patches.into()));
    let comment = String::from(
        "Envoy Gateway applies it only with `extensionApis: {enableEnvoyPatchPolicy: true}` in its own configuration.",
    );
    made.push((vec![comment], Tree::template(PATCHES, &values)));
    if let Some((comment, _)) = made.first_mut() {
        let head = "Made by `weir render --for envoy-gateway`. Apply with `kubectl apply -f`.";
        comment.insert(0, String::from(head));
    }
    Ok(documents(made))
}

/// Puts the limiter before the router of a listener. If a policy reads bodies, the listener also keeps as much of them.
fn listener_patches(
    rendering: &Rendering<'_>,
    shipped: &Shipped,
    namespace: &str,
    listener: &str,
) -> Result<Vec<Tree>, Failure> {
    let (name, port) = host_and_port("listener", listener).map_err(|said| said.replace("HOST", "NAME"))?;
    let name = if rendering.version < NAMED_BY_PORT {
        format!("{namespace}/{}/{name}", rendering.arguments.gateway)
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
    let mut lines = vec![
        "The proxies, with weir.wasm as a file, which the bridge is loaded from:",
        "  kubectl -n NAMESPACE-OF-THE-PROXIES create configmap weir-wasm --from-file=weir.wasm",
    ];
    if rendering.arguments.store == Store::Tls {
        lines.push("The password is one line in a file, `user:password`:");
        lines.push("  kubectl -n NAMESPACE-OF-THE-PROXIES create secret generic weir-redis --from-file=password=FILE");
    }
    lines.push("Name it in the Gateway's `infrastructure.parametersRef`, or add its parts to the EnvoyProxy that you have.");
    lines.into_iter().map(str::to_owned).collect()
}

/// The proxies: what is mounted, and what their bootstrap needs.
fn proxy(rendering: &Rendering<'_>, shipped: &Shipped, namespace: &str) -> Tree {
    let (volumes, mounts) = mounted(rendering);
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
        ("namespace", namespace.into()),
        ("volumes", volumes),
        ("mounts", mounts),
        ("bootstrap", Tree::from(bootstrap).yaml().into()),
    ];
    Tree::template(PROXY, &values)
}

/// The volumes of the proxies' pods, and where they are mounted.
pub fn mounted(rendering: &Rendering<'_>) -> (Tree, Tree) {
    let code = code(rendering);
    let values = [
        ("code", folder_of(&code).into()),
        ("config", PASSWORD_FOLDER.into()),
        ("password", folder_of(rendering.password_file()).into()),
    ];
    let mut volumes = String::from("- {name: weir-wasm, configMap: {name: weir-wasm}}\n");
    let mut mounts = String::from("- {name: weir-wasm, mountPath: $code, readOnly: true}\n");
    if rendering.arguments.store == Store::Tls {
        volumes += "- {name: weir, configMap: {name: weir}}\n- {name: weir-redis, secret: {secretName: weir-redis}}\n";
        mounts += "- {name: weir, mountPath: $config, readOnly: true}\n- {name: weir-redis, mountPath: $password, readOnly: true}\n";
    }
    (Tree::template(&volumes, &values), Tree::template(&mounts, &values))
}

/// A file that tells Envoy where the password is. The password itself stays in a Secret that is mounted.
pub fn secret(namespace: &str, password_file: &str) -> Tree {
    let yaml = r#"
resources:
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: redis-password
  generic_secret: {secret: {filename: $file}}
"#;
    let text = Tree::template(yaml, &[("file", password_file.into())]).yaml();
    let yaml = "
apiVersion: v1
kind: ConfigMap
metadata: {name: weir, namespace: $namespace}
data: {redis-password.yaml: $text}
";
    Tree::template(yaml, &[("namespace", namespace.into()), ("text", text.into())])
}
