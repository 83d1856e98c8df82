// SPDX-License-Identifier: Apache-2.0
//! The volumes that the pods of the proxies need in Kubernetes, and their mounts.

use sha1_smol::Sha1;

use super::istio::Context;
use super::shipped::{AUTHORITIES, code};
use super::{Failure, Rendering, folder_of};
use crate::tree::{Map, Tree};

/// The folder of the file that tells Envoy where the password is.
const PASSWORD_FOLDER: &str = "/etc/weir-config";
/// And that file.
pub const PASSWORD_SOURCE: &str = "/etc/weir-config/redis-password.yaml";

/// The names of the ConfigMaps and Secrets that are mounted.
pub struct Names {
    /// The plugin.
    pub plugin: String,
    /// The file [`PASSWORD_SOURCE`].
    pub password_source: String,
    /// The login of Redis.
    login: String,
    /// The secret of hashes.
    hash_secret: String,
}

impl Names {
    /// Those of the resources of this name.
    pub fn of(name: &str) -> Self {
        let [plugin, login, hash_secret] = ["wasm", "redis", "hash"].map(|what| format!("{name}-{what}"));
        Self { plugin, password_source: name.to_owned(), login, hash_secret }
    }

    /// The same, where those of ConfigMaps change with the content.
    pub fn hashed(self, plugin: &[u8], password_source: &str) -> Self {
        let hashed = |name: &str, content: &[u8]| {
            let hash = Sha1::from(content).digest().to_string();
            format!("{name}-{}", hash.get(..10).unwrap_or_default())
        };
        Self {
            plugin: hashed(&self.plugin, plugin),
            password_source: hashed(&self.password_source, password_source.as_bytes()),
            ..self
        }
    }
}

/// Refuses paths whose folders Kubernetes does not mount.
pub fn fits(rendering: &Rendering<'_>) -> Result<(), Failure> {
    let code = code(rendering);
    let mut files = vec![("--code", code.as_str())];
    if rendering.logs_in() {
        files.push(("--password-file", rendering.password_file()));
    }
    let mut folders = vec![PASSWORD_FOLDER];
    for (option, path) in files {
        let refuse = |allowed: &str| Err(format!("{option}: found {path:?}, allowed: {allowed}"));
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        let is_name = |next: char| next.is_ascii_alphanumeric() || "-._".contains(next);
        if !folder.starts_with('/') || folder.contains(':') || name.is_empty() || !name.chars().all(is_name) {
            return refuse("/FOLDER/FILE, because the pods mount the folder");
        }
        if option == "--code" && rendering.arguments.image_volume.is_some() && name != "plugin.wasm" {
            return refuse("FOLDER/plugin.wasm, the file of the image");
        }
        if folders.contains(&folder) {
            return refuse("another folder: the pods mount something else there");
        }
        folders.push(folder);
    }
    Ok(())
}

/// The additions to the pods of the proxies.
pub struct Mounted {
    pub volumes: Tree,
    /// Of Envoy's container.
    pub mounts: Tree,
    /// Of Envoy's container, if the configuration names one.
    pub variables: Option<Tree>,
}

impl Mounted {
    pub fn of(rendering: &Rendering<'_>) -> Self {
        let (arguments, names, code) = (rendering.arguments, &rendering.names, code(rendering));
        let mut volumes = Vec::new();
        let mut mounts = Vec::new();
        let mut add = |source: &str, path: &str, values: &[(&str, Tree)]| {
            let volume = Tree::template(source, values);
            let yaml = "{name: $name, mountPath: $path, readOnly: true}";
            let named = [("name", volume.text_of("name").into()), ("path", path.into())];
            mounts.push(Tree::template(yaml, &named));
            volumes.push(volume);
        };
        let plugin = match &arguments.image_volume {
            Some(_) => "{name: weir-wasm, image: {reference: $image, pullPolicy: IfNotPresent}}",
            None => "{name: weir-wasm, configMap: {name: $plugin}}",
        };
        let values = [
            ("image", arguments.image_volume.as_deref().unwrap_or_default().into()),
            ("plugin", names.plugin.as_str().into()),
            ("source", names.password_source.as_str().into()),
        ];
        add(plugin, folder_of(&code), &values);
        if rendering.logs_in() {
            add("{name: weir, configMap: {name: $source}}", PASSWORD_FOLDER, &values);
            let file = rendering.password_file();
            let name = file.rsplit('/').next().unwrap_or_default();
            let secret = match name {
                "password" => "{name: weir-redis, secret: {secretName: $login}}",
                _ => {
                    "{name: weir-redis, secret: {secretName: $login, items: [{key: password, path: $file}]}}"
                }
            };
            add(secret, folder_of(file), &[("login", names.login.as_str().into()), ("file", name.into())]);
        }
        let variables = rendering.secret_variable().map(|name| {
            let yaml = "[{name: $name, valueFrom: {secretKeyRef: {name: $secret, key: secret}}}]";
            let secret = names.hash_secret.as_str().into();
            Tree::template(yaml, &[("name", name.into()), ("secret", secret)])
        });
        Self { volumes: volumes.into(), mounts: mounts.into(), variables }
    }

    /// The same, for the template of pods of Istio's.
    pub fn template(self, context: Context) -> Tree {
        let Self { volumes, mounts, variables } = self;
        match context {
            Context::Gateway => {
                let mut proxy = Map::from([("name", "istio-proxy".into()), ("volumeMounts", mounts)]);
                if let Some(variables) = variables {
                    proxy.set("env", variables);
                }
                let yaml = "{spec: {volumes: $volumes, containers: [$proxy]}}";
                Tree::template(yaml, &[("volumes", volumes), ("proxy", proxy.into())])
            }
            // Istio adds the container, with the mounts of the annotation. Kustomize would not find the names of volumes in an annotation.
            Context::SidecarInbound => {
                let yaml = "{metadata: {annotations: {sidecar.istio.io/userVolumeMount: $mounts}}, spec: {volumes: $volumes}}";
                Tree::template(yaml, &[("volumes", volumes), ("mounts", mounts.json().to_string().into())])
            }
        }
    }
}

/// The ConfigMap of a file that tells Envoy where the password is. The password itself stays in a Secret that is mounted.
pub fn password_source(rendering: &Rendering<'_>, namespace: &str) -> Tree {
    let data = Map::from([("redis-password.yaml", password_source_file(rendering).into())]);
    let yaml = "
apiVersion: v1
kind: ConfigMap
metadata: {name: $name, namespace: $namespace}
data: $data
";
    let name = rendering.names.password_source.as_str().into();
    Tree::template(yaml, &[("name", name), ("namespace", namespace.into()), ("data", data.into())])
}

/// That file.
pub fn password_source_file(rendering: &Rendering<'_>) -> String {
    let yaml = r#"
resources:
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: redis-password
  generic_secret: {secret: {filename: $file}}
"#;
    Tree::template(yaml, &[("file", rendering.password_file().into())]).yaml()
}

/// The file of the plugin's ConfigMap: the key is the name that Envoy looks for.
pub fn plugin_file(rendering: &Rendering<'_>) -> String {
    match code(rendering).rsplit('/').next().unwrap_or_default() {
        "weir.wasm" => String::from("weir.wasm"),
        key => format!("{key}=weir.wasm"),
    }
}

/// The commands that make the mounted objects by hand, in the namespace of the proxies.
pub fn by_hand(rendering: &Rendering<'_>, namespace: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if rendering.arguments.image_volume.is_none() {
        let (name, file) = (&rendering.names.plugin, plugin_file(rendering));
        lines.push(format!("  kubectl -n {namespace} create configmap {name} --from-file={file}"));
    }
    lines.extend(secrets_by_hand(rendering, namespace));
    lines
}

/// The commands that make the Secrets, which no file has.
pub fn secrets_by_hand(rendering: &Rendering<'_>, namespace: &str) -> Vec<String> {
    let (mut lines, Names { login, hash_secret, .. }) = (Vec::new(), &rendering.names);
    if rendering.logs_in() {
        lines.extend([
            String::from("The password is one line in a file, `user:password`:"),
            format!("  kubectl -n {namespace} create secret generic {login} --from-file=password=FILE"),
        ]);
    }
    if let Some(path) = rendering.arguments.ca_file.as_ref().filter(|path| *path != AUTHORITIES) {
        lines.push(format!("Mount {path} in the proxies, too."));
    }
    if let Some(variable) = rendering.secret_variable() {
        lines.extend([
            format!("The variable {variable} is the secret of hashes, in one line of a file:"),
            format!("  kubectl -n {namespace} create secret generic {hash_secret} --from-file=secret=FILE"),
        ]);
    }
    lines
}
