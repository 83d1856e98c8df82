// SPDX-License-Identifier: Apache-2.0
//! `weir render`: a configuration of weir as a complete configuration of Envoy or of its control planes.
//!
//! | file | what is inside |
//! |---|---|
//! | `shipped.rs` | the configurations in `envoy/`, with this limiter, store and addresses |
//! | `connections.rs` | the connection from the limiter to the Redis of each region |
//! | `envoy.rs` | a bootstrap, or files that Envoy watches |
//! | `istio.rs` | WasmPlugin and EnvoyFilter |
//! | `mount.rs` | what the pods of the proxies need in Kubernetes |
//! | `gateway.rs` | EnvoyExtensionPolicy and EnvoyPatchPolicy |
//! | `helm.rs` | the same as a chart of Helm |
//! | `kustomize.rs` | the resources of one of these two, and what mounts the plugin, as a component of Kustomize |

mod connections;
mod envoy;
mod gateway;
mod helm;
mod istio;
mod kustomize;
mod mount;
mod shipped;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::check;
use super::document::Syntax;
use super::envoys::{self, Version};
use super::finding::{Finding, Severity};
use super::source::Source;
use super::tree::Tree;
use super::{Ended, Failure, Found, Host, failed, tell, words};
use weir::config::Config;

// Headings of arguments that only some platforms have.
const ENVOY: &str = "With --for envoy";
const KUBERNETES: &str = "With --for istio and --for envoy-gateway";
const ISTIO: &str = "With --for istio";
const GATEWAY: &str = "With --for envoy-gateway";

/// Reads a name to which others are made with an ending, such as `weir-wasm`.
fn name(text: &str) -> Result<String, String> {
    label(text, 40)
}

fn namespace(text: &str) -> Result<String, String> {
    label(text, 63)
}

/// Reads a name that Kubernetes takes, of so many characters.
fn label(text: &str, most: usize) -> Result<String, String> {
    let is_end = |end: Option<char>| end.is_some_and(|end| end.is_ascii_lowercase() || end.is_ascii_digit());
    let is_name = text.chars().all(|next| next == '-' || is_end(Some(next)));
    let fits =
        is_name && is_end(text.chars().next()) && is_end(text.chars().next_back()) && text.len() <= most;
    if fits { Ok(text.to_owned()) } else { Err(format!("allowed are up to {most} of a-z, 0-9 and - within")) }
}

/// The file to render, and its platform.
#[derive(Args)]
pub(super) struct Arguments {
    /// A configuration of weir.
    file: PathBuf,
    /// The platform.
    #[arg(long = "for", value_enum, value_name = "PLATFORM")]
    platform: Platform,
    /// The version of the platform, such as 1.27. By default the newest known. `weir render` writes what its Envoy knows (`fail_open:
    /// false` before Envoy 1.33), and refuses what that Envoy cannot do. From Envoy Gateway 1.10 on, listeners are named after their ports
    /// (`tcp-80`), before that after Gateway and listener (`default/eg/http`). If you set the flag `XDSNameSchemeV2` in an older one, write
    /// `1.10`.
    #[arg(long, value_name = "X.Y")]
    version: Option<Version>,
    /// The kind of store.
    #[arg(long, value_enum, default_value_t = Store::Redis)]
    store: Store,
    /// The address of Redis; repeat it for each node of a Redis Cluster, or with `--store sentinel` for the primary and each replica: Envoy asks no sentinel. By default `redis:6379`. With `regions`, `REGION=HOST:PORT` is the
    /// address of each region's Redis; a plain `HOST:PORT` is that of `regions.here`. All have the same kind of store, login and authority.
    #[arg(long, value_name = "[REGION=]HOST:PORT")]
    redis: Vec<String>,
    /// With `--store tls`: the path at which Envoy finds the authority of Redis's certificate. By default
    /// `/etc/ssl/certs/ca-certificates.crt`.
    #[arg(long, value_parser = NonEmpty::new(), value_name = "PATH")]
    ca_file: Option<String>,
    /// The path at which Envoy finds `user:password`. With `--store tls` it is by default `/run/secrets/redis-password`, and
    /// `/etc/weir-redis/password` in Kubernetes, where you mount it: comments in the resources say how. With `redis` and `sentinel`, weir
    /// logs in only if you write it.
    #[arg(long, value_parser = NonEmpty::new(), value_name = "PATH")]
    password_file: Option<String>,
    /// The path of weir.wasm or libweir.so in Envoy's file system.
    #[arg(long, value_parser = NonEmpty::new(), value_name = "PATH")]
    code: Option<String>,
    /// With `--files`, `--kustomize` and `--helm`: overwrite files that were edited, or that this command did not make. Without it, the
    /// command writes nothing then, and ends with status 2.
    #[arg(long, requires = "folder")]
    force: bool,
    /// The plugin or the dynamic module.
    #[arg(long, value_enum, default_value_t = Host::Wasm, help_heading = ENVOY)]
    host: Host,
    /// The address for clients. By default `0.0.0.0:10000`.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = ENVOY)]
    listen: Option<String>,
    /// The service behind Envoy. By default `upstream:8080`.
    #[arg(long, value_name = "HOST:PORT", help_heading = ENVOY)]
    upstream: Option<String>,
    /// The address of Envoy's admin port. Its clients can stop Envoy. By default `127.0.0.1:9901`.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = ENVOY)]
    admin: Option<String>,
    /// Write `bootstrap.yaml`, `lds.yaml`, `cds.yaml` and `ecds.yaml` into this folder. Envoy reads them from the same path, and watches
    /// the last three, also in a mounted ConfigMap.
    #[arg(long, value_name = "FOLDER", group = "folder", help_heading = ENVOY)]
    files: Option<PathBuf>,
    /// An OCI image with the plugin, for the limiter only. The bridge always comes from `--code`, because control planes do not fetch code
    /// for filters of clusters.
    #[arg(long, value_parser = NonEmpty::new(), value_name = "URL", help_heading = KUBERNETES)]
    image: Option<String>,
    /// Write a component of Kustomize into this folder. Put weir.wasm there first, or give `--image-volume`.
    #[arg(long, value_name = "FOLDER", group = "folder", help_heading = KUBERNETES)]
    kustomize: Option<PathBuf>,
    /// Write a chart of Helm into this folder. It needs `--image-volume`.
    #[arg(long, value_name = "FOLDER", group = "folder", help_heading = KUBERNETES)]
    helm: Option<PathBuf>,
    /// An OCI image with the plugin, `weir-wasm` of a release, which the pods mount as an image volume (Kubernetes 1.35 or newer; 1.33 and 1.34 need the feature gate `ImageVolume`). By
    /// default they mount a ConfigMap. Write the digest (`…@sha256:…`): with a new one, new pods replace the old ones.
    #[arg(long, value_parser = NonEmpty::new(), value_name = "REFERENCE", help_heading = KUBERNETES)]
    image_volume: Option<String>,
    /// The namespace of the resources. By default that of Istio's gateways, `istio-system`, or `default`.
    #[arg(long, value_parser = namespace, help_heading = KUBERNETES)]
    namespace: Option<String>,
    /// The name of the resources, with which those of ConfigMaps and Secrets begin: a second gateway in the namespace needs another one.
    /// By default `weir`.
    #[arg(long, value_parser = name, help_heading = KUBERNETES)]
    name: Option<String>,
    /// The label of the proxies, or several with commas between them. By default `istio=ingressgateway`.
    #[arg(long, value_name = "KEY=VALUE", help_heading = ISTIO)]
    selector: Option<String>,
    /// The kind of proxies. By default `gateway`.
    #[arg(long, value_enum, help_heading = ISTIO)]
    context: Option<istio::Context>,
    /// With `--kustomize`: the Deployment of the proxies. By default that of Istio's gateway, `istio-ingressgateway`.
    #[arg(long, value_parser = NonEmpty::new(), value_name = "NAME", help_heading = ISTIO)]
    deployment: Option<String>,
    /// The namespace of the proxies, where their ConfigMaps and Secrets are. By default `envoy-gateway-system`.
    #[arg(long, value_parser = namespace, value_name = "NAMESPACE", help_heading = GATEWAY)]
    proxy_namespace: Option<String>,
    /// The Gateway. By default `eg`.
    #[arg(long, value_parser = NonEmpty::new(), help_heading = GATEWAY)]
    gateway: Option<String>,
    /// A listener of the Gateway, and its port. Repeat it for several; of several with one port, name the first in the Gateway. By default
    /// `http:80`.
    #[arg(long, value_name = "NAME:PORT", help_heading = GATEWAY)]
    listener: Vec<String>,
}

impl Arguments {
    fn context(&self) -> istio::Context {
        self.context.unwrap_or(istio::Context::Gateway)
    }

    fn gateway(&self) -> &str {
        self.gateway.as_deref().unwrap_or("eg")
    }

    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("weir")
    }

    fn proxy_namespace(&self) -> &str {
        self.proxy_namespace.as_deref().unwrap_or("envoy-gateway-system")
    }
}

/// The platforms.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Platform {
    /// A bootstrap, as in `envoy/*.yaml`.
    Envoy,
    /// An `EnvoyFilter` with the connection to Redis and the limiter, right before the router. With `--image`, the limiter is a
    /// `WasmPlugin`.
    Istio,
    /// An `EnvoyPatchPolicy` with the connection to Redis and the limiter, and an `EnvoyProxy` that mounts `weir.wasm`. With `--image`, the
    /// limiter is an `EnvoyExtensionPolicy`.
    EnvoyGateway,
}

/// The kinds of stores.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Store {
    /// One Redis.
    Redis,
    /// One Redis over TLS, with a user for weir.
    Tls,
    /// A primary and its replicas, which Sentinel watches.
    Sentinel,
    /// A Redis Cluster.
    Cluster,
}

/// The configuration to render, checked.
struct Rendering<'a> {
    arguments: &'a Arguments,
    limiter: Tree,
    config: Config,
    /// The configuration as it is written.
    values: Value,
    /// The oldest version that the output is for, as numbers.
    version: Version,
    /// The names of the objects that the pods mount in Kubernetes.
    names: mount::Names,
}

/// A document, with lines of comment above it.
type Document = (Vec<String>, Tree);

impl Rendering<'_> {
    fn namespace(&self, default: &str) -> String {
        let default = if self.arguments.helm.is_some() { helm::NAMESPACE } else { default };
        self.arguments.namespace.clone().unwrap_or_else(|| default.to_owned())
    }

    /// True if the limiter is the word of a template, in whose place Helm writes the values.
    fn is_template(&self) -> bool {
        self.limiter == helm::limiter()
    }

    /// True for `--kustomize` and `--helm`: a GitOps tool applies these files, so their comments need no `kubectl` commands.
    const fn is_for_gitops(&self) -> bool {
        self.arguments.kustomize.is_some() || self.arguments.helm.is_some()
    }

    /// True if Envoy logs in to Redis.
    const fn logs_in(&self) -> bool {
        matches!(self.arguments.store, Store::Tls) || self.arguments.password_file.is_some()
    }

    /// The path of the password in Envoy's file system.
    fn password_file(&self) -> &str {
        let default = match self.arguments.platform {
            Platform::Envoy => "/run/secrets/redis-password",
            Platform::Istio | Platform::EnvoyGateway => "/etc/weir-redis/password",
        };
        self.arguments.password_file.as_deref().unwrap_or(default)
    }

    /// The variable of the proxies' environment with the secret of hashes, if the configuration names one.
    fn secret_variable(&self) -> Option<&str> {
        self.config.store.hash_secret_env.as_deref()
    }

    /// True if Envoy has to show the plugin the bodies of requests that wait.
    fn reads_bodies(&self) -> bool {
        self.max_body().is_some()
    }

    /// The Envoy of the platform: docs/compatibility.md lists which one each version of a control plane carries.
    fn envoy(&self) -> Version {
        let Version(major, minor) = self.version;
        match self.arguments.platform {
            Platform::Envoy => self.version,
            Platform::Istio => Version(major, minor.saturating_add(8)),
            Platform::EnvoyGateway => Version(major, minor.saturating_add(30)),
        }
    }

    /// Refuses what the Envoy of the platform cannot do, and says if it was never tried.
    fn fits(&self) -> Result<(), Failure> {
        let (envoy, given) = (self.envoy(), self.version);
        let refuse = |what: &str, since: Version| {
            Err(format!(
                "--version: found {given}, which has Envoy {envoy}, allowed: Envoy {since} or newer, because {what}"
            ))
        };
        if matches!(self.arguments.host, Host::Native) && envoy < envoys::LOADS_MODULE {
            return refuse("older ones do not load libweir.so", envoys::LOADS_MODULE);
        }
        if self.reads_bodies() && envoy < envoys::SHOWS_BODIES {
            return refuse("a policy reads bodies (`body_json`)", envoys::SHOWS_BODIES);
        }
        if envoy < envoys::TRIED {
            tell(&format!(
                "weir was not run with Envoy {envoy}, which is older than {}: try it first",
                envoys::TRIED
            ));
        }
        Ok(())
    }

    /// A line of comment: resources of one name replace each other.
    fn second(&self) -> Option<String> {
        let line =
            "For a second gateway in this namespace, write --name NAME, otherwise it replaces the first.";
        self.arguments.name.is_none().then(|| line.to_owned())
    }

    /// The largest body that a policy reads; `None` if no policy reads one.
    fn max_body(&self) -> Option<usize> {
        self.config.request_body.wanted.as_ref().map(|wanted| wanted.max_bytes())
    }
}

/// The reason to refuse a secret where Kubernetes keeps the rendered files.
const IN_CLEAR: &str = "store.hash_secret: found a secret, allowed: hash_secret_env, the name of a variable that has it, because whoever \
    may read the resources, or Git, would read the secret";

pub(super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let source = Source::read(&arguments.file)?;
    let limiters = source.limiters();
    let limiter = source.only(&limiters)?;
    let config = limiter.config(arguments.host.into()).map_err(|findings| source.refused(&findings))?;
    refuse_elsewhere(arguments)?;
    if arguments.platform != Platform::Envoy && config.store.hasher.has_secret() {
        let finding = Finding::error("configuration", limiter.place("store.hash_secret"), IN_CLEAR);
        return Err(source.refused(&[finding]));
    }
    if arguments.context() == istio::Context::SidecarInbound
        && let Some(variable) = &config.store.hash_secret_env
    {
        tell(&format!(
            "weir: --context sidecar-inbound: Istio takes no variable of a sidecar from a Secret. Add a container `istio-proxy` with {variable} to \
             the pods, as Istio's page about customizing injection shows"
        ));
    }
    if arguments.store == Store::Sentinel && arguments.password_file.is_some() {
        tell(
            "weir: --password-file: Envoy's health check does not log in, so let Redis answer it: \
             `ACL SETUSER default on nopass resetkeys -@all +role`, after Sentinel and the replicas have users of their own \
             (docs/stores.md)",
        );
    }
    let mut rendering = Rendering {
        arguments,
        limiter: Tree::from(limiter.node()),
        values: limiter.node().json(),
        config,
        version: version(arguments),
        names: mount::Names::of(arguments.name()),
    };
    if let Some(folder) = &arguments.kustomize {
        rendering.names = kustomize::names(&rendering, folder)?;
    }
    if arguments.helm.is_some() {
        rendering.names = helm::names(&rendering)?;
    }
    rendering.fits()?;
    if arguments.platform != Platform::Envoy {
        mount::fits(&rendering)?;
    }
    let mut files = made(&rendering)?;
    review(&source, &files)?;
    if arguments.helm.is_some() {
        let values = if limiter.carrier.is_some() { rendering.limiter.yaml() } else { source.text.clone() };
        rendering.limiter = helm::limiter();
        let (name, documents) = resources(&rendering)?;
        files = helm::files(&rendering, &values, name, documents);
    }
    let Some(folder) = [&arguments.files, &arguments.kustomize, &arguments.helm].into_iter().flatten().next()
    else {
        for (_, text) in &files {
            out.write_all(text.as_bytes()).map_err(failed)?;
        }
        return Ok(Found::Nothing);
    };
    let files: Vec<_> = files.into_iter().map(|(name, text)| sealed(arguments, name, text)).collect();
    if !arguments.force {
        refuse_edited(folder, &files)?;
    }
    write(folder, &files)?;
    for (name, _) in &files {
        writeln!(out, "{}", words::file(&folder.join(name))).map_err(failed)?;
    }
    if arguments.files.is_none() {
        remove_old(folder, option(arguments), &files)?;
    }
    Ok(Found::Nothing)
}

/// The options that have no effect on this platform, or beside others.
fn refuse_elsewhere(arguments: &Arguments) -> Result<(), Failure> {
    let is_envoy = arguments.platform == Platform::Envoy;
    if !is_envoy && matches!(arguments.host, Host::Native) {
        return Err(String::from(
            "--host native is for --for envoy: the control planes load plugins, not dynamic modules",
        ));
    }
    let (is_istio, is_gateway) =
        (arguments.platform == Platform::Istio, arguments.platform == Platform::EnvoyGateway);
    let (kustomize, both) = (arguments.kustomize.is_some(), "--for istio and envoy-gateway");
    let (is_tls, logs_in) = (arguments.store == Store::Tls, arguments.store != Store::Cluster);
    let options = [
        ("--files", arguments.files.is_some(), is_envoy, "--for envoy"),
        ("--listen", arguments.listen.is_some(), is_envoy, "--for envoy"),
        ("--upstream", arguments.upstream.is_some(), is_envoy, "--for envoy"),
        ("--admin", arguments.admin.is_some(), is_envoy, "--for envoy"),
        ("--kustomize", kustomize, !is_envoy, both),
        ("--helm", arguments.helm.is_some(), !is_envoy, both),
        ("--image-volume", arguments.image_volume.is_some(), !is_envoy, both),
        ("--image", arguments.image.is_some(), !is_envoy, both),
        ("--namespace", arguments.namespace.is_some(), !is_envoy, both),
        ("--name", arguments.name.is_some(), !is_envoy, both),
        ("--selector", arguments.selector.is_some(), is_istio, "--for istio"),
        ("--context", arguments.context.is_some(), is_istio, "--for istio"),
        ("--deployment", arguments.deployment.is_some(), is_istio && kustomize, "--for istio --kustomize"),
        ("--proxy-namespace", arguments.proxy_namespace.is_some(), is_gateway, "--for envoy-gateway"),
        ("--gateway", arguments.gateway.is_some(), is_gateway, "--for envoy-gateway"),
        ("--listener", !arguments.listener.is_empty(), is_gateway, "--for envoy-gateway"),
        (
            "--listener",
            !arguments.listener.is_empty(),
            arguments.image.is_none(),
            "--for envoy-gateway without --image: with it, the limiter is in all listeners of the Gateway",
        ),
        ("--ca-file", arguments.ca_file.is_some(), is_tls, "--store tls"),
        (
            "--password-file",
            arguments.password_file.is_some(),
            logs_in,
            "--store redis, tls and sentinel. For a Redis Cluster, write `auth_username` and `auth_password` into the cluster that leads to it, \
             as docs/stores.md says",
        ),
    ];
    let refused = options.iter().find(|(_, is_given, is_for, _)| *is_given && !is_for);
    refused.map_or(Ok(()), |(option, _, _, platforms)| Err(format!("{option} is for {platforms}")))
}

/// The files of the platform, each with its name.
fn made(rendering: &Rendering<'_>) -> Result<Vec<(String, String)>, Failure> {
    if rendering.arguments.platform == Platform::Envoy {
        return envoy::render(rendering);
    }
    let (name, mut made) = resources(rendering)?;
    if rendering.arguments.kustomize.is_some() {
        return kustomize::files(rendering, name, made);
    }
    if let Some((comment, _)) = made.first_mut() {
        let platform = name.trim_end_matches(".yaml");
        let head = format!("Made by `weir render --for {platform}`. Apply with `kubectl apply -f`.");
        comment.splice(0..0, core::iter::once(head).chain(rendering.second()));
    }
    Ok(vec![(name.to_owned(), text_of(made))])
}

/// The resources of Kubernetes, and the name of their file.
fn resources(rendering: &Rendering<'_>) -> Result<(&'static str, Vec<Document>), Failure> {
    Ok(match rendering.arguments.platform {
        Platform::EnvoyGateway => ("envoy-gateway.yaml", gateway::documents(rendering)?),
        _ => ("istio.yaml", istio::documents(rendering)?),
    })
}

/// Prints the findings of `weir check` for the files. An error is a mistake of this command, which then prints nothing else. A finding that
/// the given file has, too, is printed with its place there.
fn review(given: &Source, files: &[(String, String)]) -> Result<(), Failure> {
    let sources: Vec<Source> =
        files.iter().map(|(name, text)| Source::of(name.clone(), text.clone())).collect();
    let (made, given) = (check::review(&sources), check::review(core::slice::from_ref(given)));
    if made.iter().any(|(finding, _)| finding.severity == Severity::Error) {
        let lines: Vec<String> = made.iter().map(|(finding, name)| finding.line(name)).collect();
        return Err(format!("what was made is wrong:\n{}", lines.join("\n")));
    }
    for (finding, name) in &made {
        let says = |of: &Finding| of.code == finding.code && of.message() == finding.message();
        let (finding, name) =
            given.iter().find(|(of, _)| says(of)).map_or((finding, name), |(of, name)| (of, name));
        tell(&finding.line(name));
    }
    Ok(())
}

/// The line with the sum of all other lines begins with this, after the mark of a comment. The option and the sum follow.
const MADE: &str = "Made by `weir render ";

/// The text of a file with a line by which this command knows later whether it was edited: its first, or the first member of its JSON.
fn sealed(arguments: &Arguments, name: String, text: String) -> (String, String) {
    let said = format!("{MADE}{}`, sum {}", option(arguments), sum(&text));
    let text = match text.strip_prefix(OPENING).filter(|_| Syntax::of(&name) == Syntax::Json) {
        Some(members) => format!("{OPENING}  \"$comment\": \"{said}\",\n{members}"),
        None => format!("# {said}\n{text}"),
    };
    (name, text)
}

/// The option with which this command writes files.
const fn option(arguments: &Arguments) -> &'static str {
    match (&arguments.kustomize, &arguments.helm) {
        (Some(_), _) => "--kustomize",
        (_, Some(_)) => "--helm",
        _ => "--for envoy",
    }
}

/// The first line of an object in JSON.
const OPENING: &str = "{\n";

/// The option of the line that [`sealed`] has added, and true if its sum is that of the text. `None` if there is no such line.
fn made_by(text: &str) -> Option<(&str, bool)> {
    let (opening, lines) = text.strip_prefix(OPENING).map_or(("", text), |lines| (OPENING, lines));
    let (line, rest) = lines.split_once('\n')?;
    let (option, is) = line.split_once(MADE)?.1.split_once("`, sum ")?;
    Some((option, is.trim_end_matches("\",") == sum(&[opening, rest].concat())))
}

fn sum(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

fn refuse_edited(folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let is_edited = |(name, text): &&(String, String)| {
        let Ok(old) = fs::read(folder.join(name)) else { return false };
        let old = String::from_utf8_lossy(&old);
        !made_by(&old).is_some_and(|(_, is_as_made)| is_as_made) && old != *text
    };
    let edited: Vec<String> =
        files.iter().filter(is_edited).map(|(name, _)| words::file(&folder.join(name))).collect();
    if edited.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}: edited, or not made by this command, so nothing was written; allowed: another folder, or --force to overwrite",
        edited.join(", ")
    ))
}

/// Puts each file in place as a whole: Envoy watches for files that are moved there.
fn write(folder: &Path, files: &[(String, String)]) -> Result<(), Failure> {
    let said = |path: &Path, error: &io::Error| format!("{}: {error}", words::file(path));
    for (name, text) in files {
        let path = folder.join(name);
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{file}.partial"));
        let folder = path.parent().unwrap_or(folder);
        fs::create_dir_all(folder).map_err(|error| said(folder, &error))?;
        fs::write(&partial, text).map_err(|error| said(&partial, &error))?;
        fs::rename(&partial, &path).map_err(|error| said(&path, &error))?;
    }
    Ok(())
}

/// Removes what this command has written before into the folders of these files, with the same option, and writes no longer. It would be
/// applied, or hide a difference from Git. An edited file stays, and is named.
fn remove_old(folder: &Path, option: &str, files: &[(String, String)]) -> Result<(), Failure> {
    let written: BTreeSet<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    let folders: BTreeSet<&Path> = written.iter().filter_map(|path| path.parent()).collect();
    for folder in folders {
        let said = |error: io::Error| format!("{}: {error}", words::file(folder));
        let entries = fs::read_dir(folder).map_err(said)?.map(|entry| entry.map(|entry| entry.path()));
        for path in entries.collect::<io::Result<BTreeSet<PathBuf>>>().map_err(said)? {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let name = words::file(&path);
            match made_by(&text).filter(|(by, _)| *by == option && !written.contains(&path)) {
                Some((_, true)) => {
                    fs::remove_file(&path).map_err(|error| format!("{name}: {error}"))?;
                    tell(&format!(
                        "weir: {name}: removed, because `weir render {option}` no longer writes it"
                    ));
                }
                Some((_, false)) => tell(&format!(
                    "weir: {name}: edited, and `weir render {option}` no longer writes it: remove it if you do not need it"
                )),
                None => {}
            }
        }
    }
    Ok(())
}

/// The version of the platform. By default the newest one whose names are known here.
fn version(arguments: &Arguments) -> Version {
    arguments.version.unwrap_or(match arguments.platform {
        Platform::Envoy => Version(1, 40),
        Platform::Istio => Version(1, 31),
        Platform::EnvoyGateway => Version(1, 9),
    })
}

/// `HOST:PORT`, where the host is a name or an address. Nothing else gets into YAML.
fn host_and_port<'a>(option: &str, text: &'a str) -> Result<(&'a str, u64), Failure> {
    split(text)
        .filter(|(host, port)| is_host(host) && *port > 0)
        .ok_or_else(|| format!("--{option}: found {text:?}, allowed: HOST:PORT"))
}

/// `ADDRESS:PORT`, where Envoy listens. The port 0 is any that is free.
fn address_and_port<'a>(option: &str, text: &'a str) -> Result<(&'a str, u64), Failure> {
    split(text).filter(|(host, _)| host.parse::<IpAddr>().is_ok()).ok_or_else(|| {
        format!("--{option}: found {text:?}, allowed: ADDRESS:PORT, such as 127.0.0.1:9901 or [::1]:9901")
    })
}

/// A host, without the brackets of an IPv6 address, and a port.
fn split(text: &str) -> Option<(&str, u64)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare =
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).filter(|host| host.contains(':'));
    let is_number = port.chars().all(|next| next.is_ascii_digit());
    Some((bare.unwrap_or(host), port.parse::<u16>().ok().filter(|_| is_number)?.into()))
}

/// True for an address, or for a name whose last part is no number, perhaps with a dot at its end.
fn is_host(host: &str) -> bool {
    let is_part = |part: &str| {
        (1..=63).contains(&part.len())
            && part.chars().all(|next| next.is_ascii_alphanumeric() || "-_".contains(next))
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_number =
        name.rsplit('.').next().is_some_and(|last| last.chars().all(|next| next.is_ascii_digit()));
    host.parse::<IpAddr>().is_ok() || (!is_number && name.len() <= 253 && name.split('.').all(is_part))
}

/// A file that Envoy watches, also where a ConfigMap is mounted: there the file stays as it is, a link to another file, and what is moved
/// is a link in its folder.
fn watched(path: &str) -> Tree {
    let yaml =
        "{path_config_source: {path: $path, watched_directory: {path: $folder}}, resource_api_version: V3}";
    Tree::template(yaml, &[("path", path.into()), ("folder", folder_of(path).into())])
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(folder, _)| folder)
}

/// The text of a file with these documents.
fn text_of(documents: Vec<Document>) -> String {
    let mut text = String::new();
    for (comment, document) in documents {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        for line in comment {
            text.push_str(&format!("# {line}\n"));
        }
        text.push_str(&document.yaml());
    }
    text
}
