// SPDX-License-Identifier: Apache-2.0
//! For Envoy by itself: one bootstrap, or a bootstrap and files of listeners, clusters and the limiter, which Envoy watches.

use super::shipped::Shipped;
use super::{Failure, Rendering, watched, words};
use crate::Host;
use crate::tree::{Map, Tree};

pub fn render(rendering: &Rendering<'_>) -> Result<Vec<(String, String)>, Failure> {
    let shipped = Shipped::new(rendering)?;
    let explained = "The comments in envoy/*.yaml explain each part.\n";
    if rendering.arguments.files.is_none() {
        let text = format!("# Made by `weir render --for envoy`. {explained}{}", shipped.tree.yaml());
        return Ok(vec![(String::from("envoy.yaml"), text)]);
    }
    let text = |tree: Tree| format!("# {explained}{}", tree.yaml());
    let files = discovered(rendering, shipped)?;
    Ok(files.into_iter().map(|(name, tree)| (name.to_owned(), text(tree))).collect())
}

fn discovered(rendering: &Rendering<'_>, shipped: Shipped) -> Result<Vec<(&'static str, Tree)>, Failure> {
    let folder = rendering.arguments.files.clone().unwrap_or_default();
    // Envoy resolves a name against its own folder, so the name is whole.
    let folder =
        std::path::absolute(&folder).map_err(|error| format!("{}: {error}", words::file(&folder)))?;
    let source = |name: &str| watched(&folder.join(name).to_string_lossy());
    let filter_type = match rendering.arguments.host {
        Host::Wasm => "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
        Host::Native => {
            "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter"
        }
    };
    let mut extension =
        Map::from([("@type", "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig".into())]);
    extension.extend(shipped.filter().ok_or("the shipped file has no limiter")?);
    let mut bootstrap = shipped.tree;
    bootstrap.change(&mut |tree| {
        let is_limiter = tree.text_of("name") == "weir"
            && tree.get("typed_config").is_some_and(|config| {
                config.text_of("@type") == filter_type
                    && (config.text_of("filter_name") == "weir.limiter"
                        || config
                            .get("config")
                            .is_some_and(|config| config.text_of("root_id") == "weir.limiter"))
            });
        if is_limiter {
            let types: Vec<Tree> = vec![filter_type.into()];
            let discovery = Map::from([("config_source", source("ecds.yaml")), ("type_urls", types.into())]);
            *tree = Map::from([("name", "weir".into()), ("config_discovery", discovery.into())]).into();
        }
    });
    let mut take = |kind: &str| {
        let resources = bootstrap.at_mut(&["static_resources"]).and_then(Tree::map_mut);
        resources.and_then(|resources| resources.remove(kind))
    };
    let (listeners, clusters) = (take("listeners"), take("clusters"));
    let resources = |list: Option<Tree>, kind: &str| {
        let typed = |item: &Tree| {
            let mut whole = Map::from([("@type", kind.into())]);
            if let Tree::Map(map) = item {
                whole.extend(map.clone());
            }
            Tree::from(whole)
        };
        let list: Vec<Tree> = list.iter().flat_map(|list| list.items()).map(typed).collect();
        Tree::from(Map::from([("resources", list.into())]))
    };
    let lds = resources(listeners, "type.googleapis.com/envoy.config.listener.v3.Listener");
    let cds = resources(clusters, "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    let ecds = Tree::from(Map::from([("resources", vec![Tree::from(extension)].into())]));
    let mut whole = Map::new();
    // Envoy asks for discovered resources in the name of a node.
    whole.set("node", Map::from([("id", "weir".into()), ("cluster", "weir".into())]));
    if let Tree::Map(mut rest) = bootstrap {
        if rest
            .get("static_resources")
            .is_some_and(|resources| matches!(resources, Tree::Map(map) if map.is_empty()))
        {
            rest.remove("static_resources");
        }
        whole.extend(rest);
    }
    whole.set(
        "dynamic_resources",
        Map::from([("lds_config", source("lds.yaml")), ("cds_config", source("cds.yaml"))]),
    );
    Ok(vec![("bootstrap.yaml", whole.into()), ("lds.yaml", lds), ("cds.yaml", cds), ("ecds.yaml", ecds)])
}
