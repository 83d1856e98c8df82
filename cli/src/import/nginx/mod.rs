// SPDX-License-Identifier: Apache-2.0
//! `weir import nginx`: the limits of nginx as a configuration of weir; and what `weir import ingress` has made of Ingresses.
//!
//! | file | what is inside |
//! |---|---|
//! | `syntax.rs`, `load.rs` | nginx's language, and the files that include each other |
//! | `limits.rs` | `limit_req`, `limit_conn` and their zones, and how blocks inherit them |
//! | `answers.rs` | what nginx answers before it limits |
//! | `locations.rs` | which block handles which request |
//! | `variables.rs` | keys, `map` and `geo` |
//! | `composite.rs` | texts of several variables |
//! | `policies.rs` | the policies that all of this makes |
//! | `others.rs` | what weir does not do |

mod answers;
mod composite;
mod limits;
mod load;
mod locations;
mod others;
mod policies;
mod syntax;
mod variables;

use std::path::PathBuf;

use super::Imported;
use super::notes::{Note, Notes};
use crate::tree::{Map, Tree};
use limits::Level;
use load::Loaded;
pub use policies::{SKELETON, duration, name_of, unique};
pub use syntax::{Block, Directive, parse};
use variables::Variables;
pub use variables::host_test;
use weir::request::client_ip::Network;

/// Imports the configuration whose main file is at the first of these paths, or that of several files of its block `http`.
pub fn import(paths: &[PathBuf]) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let Loaded { files, directives, .. } = load::load(paths, &mut notes)?;
    imported(directives, files, notes, "limit_req or limit_conn")
}

/// Imports these directives of these files. `nothing` says what was not found if there is no limit.
pub fn imported(
    directives: Vec<Directive>,
    files: Vec<String>,
    mut notes: Notes,
    nothing: &str,
) -> Result<Imported, String> {
    let mut loaded = Loaded { files, directives, ..Loaded::default() };
    answers::mark_own(&mut loaded.directives);
    if let Some(configuration) = configuration(&loaded, &mut notes) {
        return Ok(Imported { configuration, files: loaded.files, notes });
    }
    Err(super::nothing(&loaded.files, &notes, nothing))
}

/// The configuration of weir; none if there is no limit.
fn configuration(loaded: &Loaded, notes: &mut Notes) -> Option<Map> {
    // A file of `conf.d` has what the block `http` of another file includes.
    let inner = |directive: &Directive| match directive.name.as_str() {
        "http" => directive.inner().to_vec(),
        _ => vec![directive.clone()],
    };
    let http: Vec<Directive> = loaded.directives.iter().flat_map(inner).collect();
    others::note(&loaded.directives, notes);
    let zones = limits::zones(&http, notes);
    let level = Level::default().inside(&http, notes);
    let servers = locations::servers(&http, &level, notes);
    locations::ports(&servers, notes);
    let is_main = loaded.directives.iter().any(|directive| directive.name == "http");
    others::note_unused((&http, is_main), &zones, &servers, notes);
    let variables = Variables::of(&http);
    let mut configuration = client_address(&http, notes);
    let found = policies::policies(&zones, &servers, &variables, &loaded.files, notes);
    if found.policies.is_empty() {
        return None;
    }
    if let Some(response) = found.response {
        let comment = if response.get("status") == Some(&503_u64.into()) {
            vec![String::from(
                "What nginx answers; 429 says better what has happened (limit_req_status, limit_conn_status).",
            )]
        } else {
            Vec::new()
        };
        configuration.commented("response", comment, response);
    }
    configuration.set("policies", found.policies);
    Some(configuration)
}

/// The client's address, as the block `http` or a server in it finds it.
fn client_address(http: &[Directive], notes: &mut Notes) -> Map {
    let servers: Vec<_> = http.iter().filter(|directive| directive.name == "server").collect();
    let own = |server: &Directive| {
        let found = server.inner().iter().filter(|directive| directive.name.contains("real_ip_"));
        found.map(|directive| (directive.name.clone(), directive.arguments.clone())).collect::<Vec<_>>()
    };
    let differs =
        servers.iter().find(|server| servers.first().is_some_and(|first| own(first) != own(server)));
    if let Some(server) = differs {
        let why = "the servers find the client's address in different ways, and weir has one, which is made of all of them";
        notes.add(Note::new(server, why, "Check client_address"));
    }
    let of_block = |block: &[Directive], name: &str| {
        block.iter().filter(|directive| directive.name == name).cloned().collect::<Vec<_>>()
    };
    // A server that has one of its own inherits none.
    let named = |name: &str| {
        let outer = of_block(http, name);
        let inner: Vec<_> = servers.iter().map(|server| of_block(server.inner(), name)).collect();
        let is_inherited = inner.is_empty() || inner.iter().any(Vec::is_empty);
        let inherited = if is_inherited { outer } else { Vec::new() };
        inherited.into_iter().chain(inner.into_iter().flatten()).collect::<Vec<_>>()
    };
    let mut networks: Vec<String> = Vec::new();
    for from in &named("set_real_ip_from") {
        // nginx leaves out bits beyond the length.
        let network = match Network::parse(from.argument(0)) {
            Ok(_) => Some(from.argument(0).to_owned()),
            Err(meant) => meant.map(|network| network.to_string()),
        };
        match network {
            Some(network) if network.ends_with("/0") => notes.add(Note::new(
                from,
                "it trusts every address, so each client chooses its own. weir does not read that",
                "Write the networks of your proxies in client_address",
            )),
            Some(network) => {
                if !networks.contains(&network) {
                    networks.push(network);
                }
            }
            None => notes.add(Note::new(
                from,
                "it is no network",
                "Write the network of the proxy in client_address",
            )),
        }
    }
    let mut configuration = Map::new();
    let Some(first) = networks.first() else { return configuration };
    let header = named("real_ip_header");
    let header_name =
        header.first().map(|header| header.argument(0)).unwrap_or("X-Real-IP").to_ascii_lowercase();
    if header_name == "proxy_protocol" {
        if let Some(header) = header.first() {
            let instead = "Add the listener filter proxy_protocol to Envoy's listener; weir then sees the client's address";
            notes.add(Note::new(header, "Envoy reads the PROXY protocol, not weir", instead));
        }
        return configuration;
    }
    let is_recursive = named("real_ip_recursive").iter().any(|directive| directive.argument(0) == "on");
    if !is_recursive && let Some(header) = header.first() {
        let why = "without real_ip_recursive nginx takes the last address of the header, whoever sent it; weir passes over trusted proxies";
        notes.add(Note::new(header, why, ""));
    }
    let comment = format!("set_real_ip_from {first}{}", if networks.len() > 1 { " …" } else { "" });
    let networks: Vec<Tree> = networks.into_iter().map(Tree::from).collect();
    let settings = Map::from([("header", header_name.into()), ("trusted_networks", networks.into())]);
    configuration.commented("client_address", vec![comment], settings);
    configuration
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use weir::config::{Config, Host};

    /// A block of directives that mean something here, in any order and place.
    fn block() -> impl Strategy<Value = String> {
        let line = prop::sample::select(vec![
            "limit_req_zone $host zone=a:1m rate=5r/s;",
            "limit_req_zone $k zone=b:1m rate=7r/m;",
            "limit_req_zone \"$http_x$arg_y\" zone=c:1m rate=1r/s;",
            "limit_conn_zone $server_name zone=d:1m;",
            "limit_req zone=a burst=9 delay=3;",
            "limit_req zone=b burst=2 nodelay;",
            "limit_req zone=c;",
            "limit_conn d 4;",
            "limit_req_status 429;",
            "limit_req_dry_run on;",
            "map $g $k { default $remote_addr; 1 \"\"; ~^2 $cookie_z; }",
            "map $uri $g { default 0; /x 1; ~*\\.y$ 2; }",
            "geo $g { default 0; 10.0.0.0/8 1; ::1 2; }",
            "listen 81 default_server;",
            "server_name a .b ~^c;",
            "return 301;",
            "return 418;",
            "error_page 418 = @n;",
            "error_page 503 =429 @n;",
            "default_type application/json;",
            "return 429 '{\"a\": 1}';",
            "try_files $uri @n;",
            "try_files $uri /s/t?x;",
            "rewrite ^/x$ /y permanent;",
            "if ($request_method = POST) { return 204; }",
            "proxy_pass http://x;",
            "set_real_ip_from 10.0.0.0/8;",
        ]);
        let name = prop::sample::select(vec![
            "http",
            "server",
            "location /",
            "location = /e",
            "location ^~ /s/",
            "location /s/t",
            "location ~ ^/r",
            "location ~* x|y$",
            "location @n",
        ]);
        let lines = prop::collection::vec(line, 0..6).prop_map(|lines| lines.join("\n"));
        lines.prop_recursive(4, 24, 5, move |inner| {
            prop::collection::vec((name.clone(), inner), 0..5).prop_map(|blocks| {
                blocks.iter().map(|(name, inner)| format!("{name} {{\n{inner}\n}}\n")).collect()
            })
        })
    }

    proptest! {
        #[test]
        fn whatever_nginx_says_the_filter_reads_what_is_made(
            zones in block(), servers in block(), inner in block(), more in block(),
        ) {
            let text = format!("http {{\n{zones}\n{servers}\nserver {{\n{inner}\n{more}\n}}\n}}");
            let mut loaded = Loaded { files: vec![String::from("a")], ..Loaded::default() };
            loaded.directives = syntax::parse(&text, 0).unwrap();
            let mut notes = Notes::default();
            if let Some(made) = configuration(&loaded, &mut notes) {
                let made = Tree::from(made);
                let read = Config::parse_for(Host::Wasm, made.json().to_string().as_bytes());
                let errors = read.err().into_iter().flatten().map(|error| error.to_string()).collect::<Vec<_>>();
                prop_assert_eq!(errors, Vec::<String>::new(), "{}\n{}", text, made.yaml());
            }
        }
    }
}
