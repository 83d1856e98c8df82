// SPDX-License-Identifier: Apache-2.0
//! For Envoy Gateway: the limiter as an EnvoyExtensionPolicy, or as a filter that an EnvoyPatchPolicy adds, and the connection to Redis as an
//! EnvoyPatchPolicy.

use super::connections::Kind;
use super::istio::parts;
use super::shipped::{Shipped, code};
use super::{Failure, Rendering, Store, documents, host_and_port, resource};
use crate::tree::{Map, Tree};

const API: &str = "gateway.envoyproxy.io/v1alpha1";
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// The folder of the file that tells Envoy where the password is.
pub const PASSWORD_FOLDER: &str = "/etc/weir-config";
/// And that file.
pub const PASSWORD_SOURCE: &str = "/etc/weir-config/redis-password.yaml";

/// The first version in which listeners are named after their ports, unless it is told otherwise.
const NAMED_BY_PORT: (u32, u32) = (1, 10);

pub fn render(rendering: &Rendering<'_>) -> Result<String, Failure> {
    let arguments = rendering.arguments;
    let shipped = Shipped::new(rendering)?;
    let namespace = rendering.namespace("default");
    let mut made = vec![(proxy_comment(rendering), proxy(rendering, &shipped, &namespace))];
    if arguments.store == Store::Tls {
        made.push((Vec::new(), secret(&namespace, rendering.password_file())));
    }
    let mut patches = Vec::new();
    for (kind, value) in parts(rendering, &shipped) {
        let name = value.get("name").cloned().unwrap_or_else(|| "".into());
        let kind = if kind == Kind::Cluster { CLUSTER } else { LISTENER };
        let operation = Map::from([("op", "add".into()), ("path", "".into()), ("value", value.into())]);
        patches
            .push(Map::from([("type", kind.into()), ("name", name), ("operation", operation.into())]).into());
    }
    match &arguments.image {
        Some(image) if !rendering.reads_bodies() => {
            made.push((Vec::new(), extension(rendering, &namespace, image)))
        }
        Some(_) => {
            return Err(String::from(
                "--image: a policy reads bodies (`body_json`), which an EnvoyExtensionPolicy cannot be configured for; leave the option out",
            ));
        }
        None => {
            for listener in &arguments.listener {
                patches.push(insert(rendering, &shipped, &namespace, listener)?);
            }
        }
    }
    let spec = Map::from([
        ("targetRef", target(rendering).into()),
        ("type", "JSONPatch".into()),
        ("jsonPatches", patches.into()),
    ]);
    let comment = String::from(
        "Envoy Gateway applies it only with `extensionApis: {enableEnvoyPatchPolicy: true}` in its own configuration.",
    );
    made.push((
        vec![comment],
        resource(API, "EnvoyPatchPolicy", "weir", &namespace, vec![("spec", spec.into())]),
    ));
    if let Some((comment, _)) = made.first_mut() {
        comment.insert(
            0,
            String::from("Made by `weir render --for envoy-gateway`. Apply with `kubectl apply -f`."),
        );
    }
    Ok(documents(made))
}

fn target(rendering: &Rendering<'_>) -> Map {
    Map::from([
        ("group", "gateway.networking.k8s.io".into()),
        ("kind", "Gateway".into()),
        ("name", rendering.arguments.gateway.as_str().into()),
    ])
}

fn extension(rendering: &Rendering<'_>, namespace: &str, image: &str) -> Map {
    let image = Map::from([("url", image.trim_start_matches("oci://").into())]);
    let code = Map::from([("type", "Image".into()), ("image", image.into())]);
    let wasm = Map::from([
        ("name", "weir".into()),
        ("rootID", "weir.limiter".into()),
        ("failOpen", false.into()),
        ("code", code.into()),
        ("config", rendering.limiter.clone()),
    ]);
    let targets: Vec<Tree> = vec![target(rendering).into()];
    let wasms: Vec<Tree> = vec![wasm.into()];
    let spec = Map::from([("targetRefs", targets.into()), ("wasm", wasms.into())]);
    resource(API, "EnvoyExtensionPolicy", "weir", namespace, vec![("spec", spec.into())])
}

/// Puts the limiter before the router of a listener.
fn insert(
    rendering: &Rendering<'_>,
    shipped: &Shipped,
    namespace: &str,
    listener: &str,
) -> Result<Tree, Failure> {
    let (name, port) = host_and_port("listener", listener).map_err(|said| said.replace("HOST", "NAME"))?;
    let name = if rendering.version < NAMED_BY_PORT {
        format!("{namespace}/{}/{name}", rendering.arguments.gateway)
    } else {
        format!("tcp-{port}")
    };
    let filter = shipped.filter().ok_or("the shipped file has no limiter")?;
    // What JSONPath finds is where the patch adds: before the router, in each filter chain.
    let operation = Map::from([
        ("op", "add".into()),
        ("jsonPath", "..http_filters[?(@.name=='envoy.filters.http.router')]".into()),
        ("value", filter.into()),
    ]);
    Ok(Map::from([("type", LISTENER.into()), ("name", name.into()), ("operation", operation.into())]).into())
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
fn proxy(rendering: &Rendering<'_>, shipped: &Shipped, namespace: &str) -> Map {
    let folder = code(rendering);
    let folder = folder.rsplit_once('/').map_or("/etc/weir", |(folder, _)| folder);
    let mut volumes = vec![volume("weir-wasm", "configMap", "weir-wasm")];
    let mut mounts = vec![mount("weir-wasm", folder)];
    if rendering.arguments.store == Store::Tls {
        volumes.push(volume("weir", "configMap", "weir"));
        let secret = Map::from([("secretName", "weir-redis".into())]);
        volumes.push(Map::from([("name", "weir-redis".into()), ("secret", secret.into())]).into());
        mounts.push(mount("weir", PASSWORD_FOLDER));
        let folder =
            rendering.password_file().rsplit_once('/').map_or("/etc/weir-redis", |(folder, _)| folder);
        mounts.push(mount("weir-redis", folder));
    }
    let deployment = Map::from([
        ("pod", Map::from([("volumes", volumes.into())]).into()),
        ("container", Map::from([("volumeMounts", mounts.into())]).into()),
    ]);
    let kubernetes = Map::from([("envoyDeployment", deployment.into())]);
    let mut spec = Map::from([(
        "provider",
        Map::from([("type", "Kubernetes".into()), ("kubernetes", kubernetes.into())]).into(),
    )]);
    // The labels of metrics.
    let mut bootstrap = Map::new();
    if let Some(stats) = shipped.tree.get("stats_config") {
        bootstrap.set("stats_config", stats.clone());
    }
    if rendering.arguments.store == Store::Cluster {
        // The bridge leads to a listener inside of Envoy.
        let internal = Map::from([(
            "@type",
            "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener".into(),
        )]);
        let extension = Map::from([
            ("name", "envoy.bootstrap.internal_listener".into()),
            ("typed_config", internal.into()),
        ]);
        let extensions: Vec<Tree> = vec![extension.into()];
        bootstrap.set("bootstrap_extensions", extensions);
    }
    let value = Tree::from(bootstrap).yaml();
    spec.set("bootstrap", Map::from([("type", "Merge".into()), ("value", value.into())]));
    resource(API, "EnvoyProxy", "weir", namespace, vec![("spec", spec.into())])
}

fn volume(name: &str, kind: &str, source: &str) -> Tree {
    Map::from([("name", name.into()), (kind, Map::from([("name", source.into())]).into())]).into()
}

fn mount(name: &str, path: &str) -> Tree {
    Map::from([("name", name.into()), ("mountPath", path.into()), ("readOnly", true.into())]).into()
}

/// A file that tells Envoy where the password is. The password itself stays in a Secret that is mounted.
pub fn secret(namespace: &str, password_file: &str) -> Map {
    let source = Map::from([("secret", Map::from([("filename", password_file.into())]).into())]);
    let secret = Map::from([
        ("@type", "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".into()),
        ("name", "redis-password".into()),
        ("generic_secret", source.into()),
    ]);
    let resources: Vec<Tree> = vec![secret.into()];
    let text = Tree::from(Map::from([("resources", resources.into())])).yaml();
    let data = Map::from([("redis-password.yaml", text.into())]);
    resource("v1", "ConfigMap", "weir", namespace, vec![("data", data.into())])
}
