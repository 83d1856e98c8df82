// SPDX-License-Identifier: Apache-2.0
//! The configurations in `envoy/`, which the tests run, with another limiter, store and addresses.

use super::connections::{Kind, between, leading_to, nodes};
use super::{Failure, Platform, Rendering, Store, address_and_port, host_and_port};
use crate::Host;
use crate::check::longest_wait;
use crate::document::{Node, Syntax};
use crate::envoys;
use crate::tree::{Map, Tree};
use weir::config::Region;

pub struct Shipped {
    pub tree: Tree,
    /// The names of the parts between the limiter and each Redis.
    between: Vec<(Kind, String)>,
}

const fn text(host: Host, store: Store) -> &'static str {
    match (host, store) {
        (Host::Wasm, Store::Redis) => include_str!("../../../envoy/weir.yaml"),
        (Host::Wasm, Store::Tls) => include_str!("../../../envoy/tls.yaml"),
        (Host::Wasm, Store::Sentinel) => include_str!("../../../envoy/sentinel.yaml"),
        (Host::Wasm, Store::Cluster) => include_str!("../../../envoy/cluster.yaml"),
        (Host::Native, Store::Redis) => include_str!("../../../envoy/native.yaml"),
        (Host::Native, Store::Tls) => include_str!("../../../envoy/native-tls.yaml"),
        (Host::Native, Store::Sentinel) => include_str!("../../../envoy/native-sentinel.yaml"),
        (Host::Native, Store::Cluster) => include_str!("../../../envoy/native-cluster.yaml"),
    }
}

/// The place at which the shipped files have the authority of Redis's certificate.
pub const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

fn shipped(host: Host, store: Store) -> Result<Tree, Failure> {
    let documents = Node::parse(text(host, store), Syntax::Yaml).map_err(|(_, said)| said)?;
    Ok(documents.first().map(Tree::from).ok_or("no document")?)
}

impl Shipped {
    /// The one that these arguments ask for.
    pub fn new(rendering: &Rendering<'_>) -> Result<Self, Failure> {
        let arguments = rendering.arguments;
        let (host, store) = (arguments.host, arguments.store);
        let mut shipped = Self { tree: shipped(host, store)?, between: Vec::new() };
        if rendering.logs_in() && store != Store::Tls {
            shipped.log_in(host)?;
        }
        // Only for Envoy by itself: elsewhere, a cluster of weir may be called so.
        if arguments.platform != Platform::Envoy
            && let Some(Tree::List(clusters)) = shipped.tree.at_mut(&["static_resources", "clusters"])
        {
            clusters.retain(|cluster| cluster.text_of("name") != "upstream");
        }
        shipped.ends(rendering)?;
        let parts =
            between(host, store).iter().map(|(kind, name)| Some((*kind, shipped.named(*kind, name)?)));
        let parts = parts.collect::<Option<Vec<_>>>().ok_or("the shipped file has no connection to Redis")?;
        for region in &rendering.config.regions.all {
            let nodes = nodes(rendering, region)?;
            for (kind, part) in leading_to(region, &nodes, &parts, rendering) {
                shipped.add(kind, part, region, rendering)?;
            }
        }
        shipped.paths(rendering);
        shipped.failures(rendering);
        shipped.idle(rendering);
        // The last, because the limiter's texts are not to be changed.
        shipped.limiter(rendering);
        Ok(shipped)
    }

    /// Adds what the file for TLS has for a login.
    fn log_in(&mut self, host: Host) -> Result<(), Failure> {
        let mut tls = shipped(host, Store::Tls)?;
        let mut password = None;
        tls.change(&mut |tree| {
            if tree.text_of("name") == "password" {
                password = Some(tree.clone());
            }
        });
        let secrets = tls.get("static_resources").and_then(|resources| resources.get("secrets"));
        if let (Some(secrets), Some(Tree::Map(resources))) =
            (secrets, self.tree.at_mut(&["static_resources"]))
        {
            resources.set("secrets", secrets.clone());
        }
        self.tree.change(&mut |tree| {
            let filters = [
                "typed_extension_protocol_options",
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "http_filters",
            ];
            if tree.text_of("name") == "weir-bridge"
                && let (Some(password), Some(Tree::List(filters))) = (&password, tree.at_mut(&filters))
            {
                filters.insert(0, password.clone());
            }
            if tree.text_of("address") == "@weir-store"
                && let Some(map) = tree.map_mut()
                && map.get("cluster").is_some()
            {
                map.set("login_file", "");
            }
        });
        Ok(())
    }

    pub fn connections(&self) -> impl Iterator<Item = (Kind, Map)> {
        self.between.iter().filter_map(|(kind, name)| Some((*kind, self.named(*kind, name)?)))
    }

    /// Puts a part of the connection to a region's Redis in its place: those of this region are in the file already.
    fn add(
        &mut self,
        kind: Kind,
        part: Map,
        region: &Region,
        rendering: &Rendering<'_>,
    ) -> Result<(), Failure> {
        let shipped = between(rendering.arguments.host, rendering.arguments.store);
        let name = part.text_of("name").to_owned();
        let all = self.tree.at_mut(&["static_resources", kind.list()]);
        let Some(Tree::List(all)) = all else {
            return Err(String::from("the shipped file has no resources"));
        };
        let place = self.between.len();
        let old =
            shipped.get(place).and_then(|(_, old)| all.iter().position(|one| one.text_of("name") == *old));
        let mut others = all.iter().enumerate().filter(|(place, _)| Some(*place) != old);
        if others.any(|(_, one)| one.text_of("name") == name) {
            return Err(format!(
                "{}.cluster is {:?}, and another cluster is called so; allowed: another name",
                region.path, region.cluster
            ));
        }
        match old.and_then(|old| all.get_mut(old)) {
            Some(old) => *old = part.into(),
            None => all.push(part.into()),
        }
        self.between.push((kind, name));
        Ok(())
    }

    pub fn filter(&self) -> Option<Map> {
        let mut found = None;
        self.tree.clone().change(&mut |tree| {
            if tree.text_of("name") == "weir" && found.is_none() && tree.get("typed_config").is_some() {
                found = tree.map_mut().cloned();
            }
        });
        found
    }

    fn named(&self, kind: Kind, name: &str) -> Option<Map> {
        let all = self.tree.get("static_resources")?.get(kind.list())?.items();
        let found = all.iter().find(|one| one.text_of("name") == name)?;
        if let Tree::Map(map) = found { Some(map.clone()) } else { None }
    }

    fn limiter(&mut self, rendering: &Rendering<'_>) {
        let (limiter, reads_bodies) =
            (&rendering.limiter, rendering.reads_bodies() || rendering.is_template());
        let variable = rendering.secret_variable();
        self.tree.change(&mut |tree| {
            for (name, field) in [("root_id", "configuration"), ("filter_name", "filter_config")] {
                if tree.text_of(name) != "weir.limiter" {
                    continue;
                }
                if let Some(Tree::Map(configuration)) = tree.at_mut(&[field]) {
                    configuration.replace("value", limiter.clone());
                }
                if let (Some(variable), Some(Tree::Map(machine))) = (variable, tree.at_mut(&["vm_config"])) {
                    let yaml = "{host_env_keys: [$variable]}";
                    machine
                        .set("environment_variables", Tree::template(yaml, &[("variable", variable.into())]));
                }
                if reads_bodies
                    && name == "root_id"
                    && let Some(map) = tree.map_mut()
                {
                    map.set("allow_on_headers_stop_iteration", true);
                }
            }
        });
    }

    /// An Envoy without `failure_policy` refuses it. There a plugin that has trapped stays down, and never lets requests pass.
    fn failures(&mut self, rendering: &Rendering<'_>) {
        if rendering.envoy() >= envoys::RELOADS {
            return;
        }
        self.tree.change(&mut |tree| {
            if tree.get("vm_config").is_some()
                && let Some(map) = tree.map_mut()
                && map.remove("failure_policy").is_some()
            {
                map.set("fail_open", false);
            }
        });
    }

    /// Envoy must not end requests that weir holds.
    fn idle(&mut self, rendering: &Rendering<'_>) {
        let seconds = longest_wait(&rendering.config).as_millis_ceil().div_ceil(1000).saturating_add(1);
        self.tree.change(&mut |tree| {
            if let Some(map) =
                tree.map_mut().filter(|map| map.get("stream_idle_timeout").is_some() && seconds > 30)
            {
                map.replace("stream_idle_timeout", format!("{seconds}s"));
            }
        });
    }

    fn paths(&mut self, rendering: &Rendering<'_>) {
        let arguments = rendering.arguments;
        let code = code(rendering);
        self.tree.change(&mut |tree| {
            let Some(map) = tree.map_mut() else { return };
            if map.get("login_file").is_some() {
                map.replace("login_file", rendering.password_file());
            }
            let path = match map.text_of("filename") {
                "/etc/weir/weir.wasm" | "/etc/weir/libweir.so" => code.as_str(),
                "/run/secrets/redis-password" => rendering.password_file(),
                AUTHORITIES => arguments.ca_file.as_deref().unwrap_or(AUTHORITIES),
                _ => return,
            };
            map.replace("filename", path);
        });
    }

    /// Sets the addresses of the listener, of the upstream, and of Envoy's admin interface.
    fn ends(&mut self, rendering: &Rendering<'_>) -> Result<(), Failure> {
        let arguments = rendering.arguments;
        let listen = address_and_port("listen", arguments.listen.as_deref().unwrap_or("0.0.0.0:10000"))?;
        let upstream = host_and_port("upstream", arguments.upstream.as_deref().unwrap_or("upstream:8080"))?;
        let admin = arguments.admin.as_deref().unwrap_or("127.0.0.1:9901");
        let (host, port) = address_and_port("admin", admin)?;
        if (host, port) == listen {
            return Err(format!("--admin: found {admin:?}, the address of --listen, allowed: another port"));
        }
        self.tree.change(&mut |tree| {
            let (host, port) = match tree.text_of("address") {
                "0.0.0.0" => listen,
                "upstream" => upstream,
                _ => return,
            };
            if let Some(map) = tree.map_mut() {
                map.replace("address", host);
                map.replace("port_value", port);
            }
        });
        // Behind the others: it may have the address that the listener had.
        if let Some(Tree::Map(admin)) = self.tree.at_mut(&["admin", "address", "socket_address"]) {
            admin.replace("address", host);
            admin.replace("port_value", port);
        }
        Ok(())
    }
}

/// The path of weir's code in Envoy's file system.
pub fn code(rendering: &Rendering<'_>) -> String {
    let default = match (rendering.arguments.host, &rendering.arguments.image_volume) {
        // The image has the name that the agents of control planes look for.
        (Host::Wasm, Some(_)) => "/etc/weir/plugin.wasm",
        (Host::Wasm, None) => "/etc/weir/weir.wasm",
        (Host::Native, _) => "/etc/weir/libweir.so",
    };
    rendering.arguments.code.clone().unwrap_or_else(|| default.to_owned())
}
