// SPDX-License-Identifier: Apache-2.0
//! `--kustomize`: a component of Kustomize. A kustomization that has the proxies' Deployment, or the Gateway, names its folder.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use super::gateway;
use super::istio::Context;
use super::mount::{Mounted, Names, password_source_file, plugin_file, secrets_by_hand};
use super::{Document, Failure, Platform, Rendering, text_of};
use crate::source::open;
use crate::tree::{Map, Tree};
use crate::words;

/// The most bytes that a ConfigMap holds.
const CONFIG_MAP: u64 = 1_048_576;

const COMPONENT: &str = "
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources: [$resources]
configMapGenerator: $maps
patches: [{path: $patch}]
";

/// The names of the ConfigMaps. Kustomize adds its hash to those of Istio's proxies, and writes it where a Deployment mounts them. Envoy Gateway's
/// are in another namespace than the EnvoyProxy that mounts them, where Kustomize finds no references. So their names have a hash already.
pub fn names(rendering: &Rendering<'_>, folder: &Path) -> Result<Names, Failure> {
    let plugin = match &rendering.arguments.image_volume {
        Some(_) => Vec::new(),
        None => plugin(&folder.join("weir.wasm"))?,
    };
    let names = Names::of(rendering.arguments.name());
    Ok(match rendering.arguments.platform {
        Platform::Istio => names,
        _ => names.hashed(&plugin, &password_source_file(rendering)),
    })
}

/// The plugin that the user has put into the folder.
fn plugin(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = words::file(path);
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(CONFIG_MAP.saturating_add(1)).read_to_end(&mut bytes));
    read.map_err(|error| {
        format!("{name}: {error}; allowed: the plugin of this release, or an image with it, --image-volume REFERENCE")
    })?;
    if !bytes.starts_with(b"\0asm") {
        return Err(format!("{name}: found no WebAssembly, allowed: the plugin of this release"));
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > CONFIG_MAP) {
        let length = fs::metadata(path).map_or(CONFIG_MAP, |about| about.len());
        return Err(format!(
            "{name}: found {length} bytes, allowed: {CONFIG_MAP}, what a ConfigMap holds, or an image with it, --image-volume REFERENCE"
        ));
    }
    Ok(bytes)
}

/// The files, of the documents of a platform.
pub fn files(
    rendering: &Rendering<'_>,
    resources: &str,
    documents: Vec<Document>,
) -> Result<Vec<(String, String)>, Failure> {
    let arguments = rendering.arguments;
    let is_istio = arguments.platform == Platform::Istio;
    let namespace = rendering.namespace("istio-system");
    let of_proxies = if is_istio { namespace.as_str() } else { arguments.proxy_namespace() };
    // Kustomize makes the ConfigMaps.
    let documents = documents.into_iter().filter(|(_, document)| document.text_of("kind") != "ConfigMap");
    let (patch, patched) = if is_istio {
        ("mount.yaml", mount(rendering, &namespace)?)
    } else {
        ("gateway.yaml", gateway::parameters(rendering))
    };
    let mut maps = Vec::new();
    let mut map = |name: &str, file: String| {
        let yaml = "{name: $name, namespace: $namespace, files: [$file]}";
        let values = [("name", name.into()), ("namespace", of_proxies.into()), ("file", file.into())];
        let mut map = Tree::template(yaml, &values);
        if let (Tree::Map(map), false) = (&mut map, is_istio) {
            map.set("options", Map::from([("disableNameSuffixHash", true.into())]));
        }
        maps.push(map);
    };
    if arguments.image_volume.is_none() {
        map(&rendering.names.plugin, plugin_file(rendering));
    }
    let mut files = Vec::new();
    if rendering.logs_in() {
        map(&rendering.names.password_source, String::from("redis-password.yaml"));
        files.push((String::from("redis-password.yaml"), password_source_file(rendering)));
    }
    let values = [("resources", resources.into()), ("maps", maps.into()), ("patch", patch.into())];
    let mut component = Tree::template(COMPONENT, &values);
    if let Tree::Map(component) = &mut component
        && component.get("configMapGenerator").is_some_and(|maps| maps.items().is_empty())
    {
        component.remove("configMapGenerator");
    }
    let component = text_of(vec![(comment(rendering, of_proxies), component)]);
    files.insert(0, (String::from("kustomization.yaml"), component));
    files.push((resources.to_owned(), text_of(documents.collect())));
    files.push((patch.to_owned(), patched.yaml()));
    Ok(files)
}

/// The patch that mounts the files in Istio's proxies. Kustomize refuses it, if the kustomization has no such Deployment.
fn mount(rendering: &Rendering<'_>, namespace: &str) -> Result<Tree, Failure> {
    let arguments = rendering.arguments;
    let deployment = match (arguments.context(), &arguments.deployment) {
        (_, Some(name)) => name.as_str(),
        (Context::Gateway, None) => "istio-ingressgateway",
        (Context::SidecarInbound, None) => {
            return Err(String::from(
                "--deployment: found nothing, allowed: with --context sidecar-inbound, the Deployment of the selected pods",
            ));
        }
    };
    let template = Mounted::of(rendering).template(arguments.context());
    let yaml = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: $deployment, namespace: $namespace}
spec: {template: $template}
";
    let values = [("deployment", deployment.into()), ("namespace", namespace.into()), ("template", template)];
    Ok(Tree::template(yaml, &values))
}

fn comment(rendering: &Rendering<'_>, namespace: &str) -> Vec<String> {
    let arguments = rendering.arguments;
    let what = if arguments.platform == Platform::Istio { "the proxies' Deployment" } else { "the Gateway" };
    let mut lines = vec![format!(
        "Name this folder under `components` of the kustomization that has {what}. That one is patched."
    )];
    lines.extend(rendering.second());
    if arguments.image_volume.is_none() {
        lines.push(String::from(
            "Apply it with `kubectl apply --server-side`: the ConfigMap of weir.wasm is too large for the annotation of a client-side apply.",
        ));
        lines.push(String::from(match arguments.platform {
            Platform::EnvoyGateway => {
                "After a change of weir.wasm, run `weir render` again: the ConfigMap gets another name, and new pods replace the old ones."
            }
            _ => "After a change of weir.wasm, the ConfigMap gets another name, and new pods replace the old ones.",
        }));
    }
    lines.extend(secrets_by_hand(rendering, namespace));
    lines
}
