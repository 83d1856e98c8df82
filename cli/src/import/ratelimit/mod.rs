// SPDX-License-Identifier: Apache-2.0
//! `weir import ratelimit`: the descriptors of the common rate-limit service as policies.
//!
//! | file | what is inside |
//! |---|---|
//! | `envoy.rs` | Envoy's routes: which request has which descriptors |
//! | `istio.rs` | the patches of EnvoyFilters: which requests they are for |
//! | `values.rs` | numbers and names in Envoy's configuration |
//! | `entries.rs` | where the value of an entry is in a request |
//! | `policies.rs` | the service's tree of descriptors, and the policies that it makes |

mod entries;
mod envoy;
mod istio;
mod policies;
mod values;

use std::path::PathBuf;

use clap::Args;

use super::notes::{Notes, Reader};
use super::{Imported, Output};
use crate::document::{Content, Node};
use crate::tree::{Map, Tree};
pub use entries::Source;
use envoy::{Descriptor, Filter};
pub use envoy::{
    chooser, clusters, domains, header_is, header_source, note_cluster, only_cluster, pseudo_header, routes,
    typed,
};
pub use istio::{
    Change, Proxies, Scope, changes_filter, is_where, note_chosen, note_differences, note_other,
    note_patched, note_selector, rank, replaced_filter, sort,
};
use policies::Service;
pub use policies::unit;
pub use values::{note_unreadable, number, percent};

/// The files to import.
#[derive(Args)]
pub struct Arguments {
    /// The service's configuration. Each file has one domain, or is a Kubernetes ConfigMap with the service's files in its `data`.
    /// Files that have `rate_limits`, such as Istio's EnvoyFilters, are read as `--envoy`, too.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Envoy's configuration, whose `rate_limits` say which requests have which descriptors. Of several domains, weir imports the one that
    /// Envoy's filter names.
    #[arg(long, value_name = "FILE")]
    envoy: Option<PathBuf>,
    /// The source of a key's value in a request, such as `user=header:x-user`. It overrides `--envoy`. SOURCE is one of `client_address`,
    /// `path`, `method`, `host`, `route`, `constant`, `header:NAME`, `query:NAME`, `cookie:NAME`, `jwt_claim:NAME` and
    /// `attribute:NAME/NAME`.
    #[arg(long, value_name = "KEY=SOURCE")]
    descriptor: Vec<String>,
    #[command(flatten)]
    pub output: Output,
}

pub fn import(arguments: &Arguments) -> Result<Imported, String> {
    let mut notes = Notes::default();
    let mut sources = Vec::new();
    for text in &arguments.descriptor {
        let (key, source) =
            text.split_once('=').ok_or_else(|| format!("--descriptor {text:?}: allowed: KEY=SOURCE"))?;
        let source = Source::parse(source).map_err(|said| format!("--descriptor {key}: {said}"))?;
        if sources.iter().any(|(other, _)| other == key) {
            return Err(format!("--descriptor {key}: it has two sources, allowed is one"));
        }
        sources.push((key.to_owned(), source));
    }
    let mut files = super::read(&arguments.files, 0, &mut notes)?;
    for (number, file) in files.iter_mut().enumerate() {
        file.documents.iter_mut().filter(|root| is_service(root)).for_each(|root| {
            note_unread(number, root, &mut notes);
            // The service knows no camel case.
            root.retain(&|name| !name.bytes().any(|byte| byte.is_ascii_uppercase()));
            as_written(root, &file.text);
        });
    }
    let other = arguments.envoy.iter().filter(|path| !arguments.files.contains(path)).cloned();
    let envoy = super::read(&other.collect::<Vec<_>>(), files.len(), &mut notes)?.pop();
    // A file may have both, such as the objects of a cluster.
    let has_service = files.iter().flat_map(|file| &file.documents).any(is_service);
    let envoys: Vec<(usize, &[Node])> = files
        .iter()
        .chain(&envoy)
        .enumerate()
        .map(|(number, file)| (number, file.documents.as_slice()))
        .filter(|(number, documents)| *number >= files.len() || has_service && envoy::sends(documents))
        .collect();
    let services: Vec<Service<'_>> = files
        .iter()
        .enumerate()
        .flat_map(|(number, file)| {
            let service = move |root| Service { file: number, name: &file.name, root };
            file.documents.iter().map(service)
        })
        .filter(|service| is_service(service.root))
        .collect();
    let (filter, sent) = sent(&envoys, &services, &mut notes);
    let is_asked = |service: &Service<'_>| {
        let domain = service.root.text_of("domain");
        let mut sent = sent.iter().flatten();
        filter.domain.as_ref().is_none_or(|wanted| wanted == domain)
            || sent.any(|descriptor| descriptor.domain.as_deref() == Some(domain))
    };
    let (wanted, others): (Vec<&Service<'_>>, Vec<_>) =
        services.iter().partition(|service| is_asked(service));
    for other in others {
        let what = format!("domain: {}", other.root.text_of("domain"));
        let why = "Envoy's filter asks for another domain, so it is not imported";
        notes.at(other.file, line(other.root, "domain"), &what, why, "");
    }
    note_domains(&wanted, filter.domain.is_some(), &mut notes);
    let mut policies = policies::Policies::new(&sources, &mut notes);
    for service in wanted {
        match &sent {
            Some(sent) => policies.as_sent(service, filter.domain.as_deref(), sent),
            None => policies.as_written(service),
        }
    }
    let found = policies.finish();
    for root in files.iter().flat_map(|file| &file.documents).filter(|root| is_service(root)) {
        notes.read(root);
    }
    notes.rest(files.iter().chain(&envoy));
    let names: Vec<String> = files.iter().chain(&envoy).map(|file| file.name.clone()).collect();
    if found.is_empty() {
        return Err(super::nothing(&names, &notes, "rate_limit"));
    }
    let mut configuration = Map::new();
    if filter.denies_on_failure {
        let comment = vec![String::from("failure_mode_deny")];
        configuration.commented("store", comment, Map::from([("on_failure", "deny".into())]));
    }
    let mut response = Map::new();
    if let Some(status) = filter.status {
        response.set("status", status);
    }
    if filter.domain.is_some() {
        response.set("headers", if filter.has_headers { "x_ratelimit" } else { "none" });
    }
    if !response.is_empty() {
        configuration.set("response", response.clone());
    }
    let policies = found.into_iter().map(|mut policy| {
        if policy.get("deny").is_some() {
            // It replaces the response of all policies.
            let mut own = response.clone();
            own.set("deny_status", filter.status.unwrap_or(429));
            policy.set("response", own);
        }
        if filter.is_shadow && policy.get("mode").is_none() {
            policy.set("mode", "shadow");
        }
        Tree::from(policy)
    });
    configuration.set("policies", policies.collect::<Vec<_>>());
    Ok(Imported { configuration, files: names, notes })
}

/// The filter that is imported, and the descriptors of the routes that it is for; none without a configuration of Envoy.
fn sent<'a>(
    envoys: &[(usize, &'a [Node])],
    services: &[Service<'_>],
    notes: &mut Notes,
) -> (Filter<'a>, Option<Vec<Descriptor>>) {
    let mut filters: Vec<(usize, Filter<'_>)> = envoys
        .iter()
        .map(|(number, documents)| (*number, envoy::filter(documents, *number, notes)))
        .collect();
    let first = filters.iter().position(|(_, filter)| filter.domain.is_some()).unwrap_or(0);
    if filters.is_empty() {
        return (Filter::default(), None);
    }
    let (_, mut filter) = filters.swap_remove(first);
    filter.domains = services.iter().map(|service| service.root.text_of("domain").to_owned()).collect();
    let settings = filter.node.map(Node::json);
    filters.retain(|(_, other)| {
        let is_same = other.node.map(Node::json) == settings;
        if is_same {
            filter.objects.extend(&other.objects);
        }
        !is_same && other.node.is_some()
    });
    let is_other = |number: usize| filters.iter().any(|(other, _)| *other == number);
    for (number, node) in filters.iter().filter_map(|(number, other)| Some((number, other.node?))) {
        let why = "it is a second filter of this kind, and the one of a file before is imported, without the limits of the routes beside \
            this one";
        notes.at(*number, node.place.line, "RateLimit", why, "Import one filter at a time");
    }
    let (skipped, taken): (Vec<_>, Vec<_>) =
        envoys.iter().copied().partition(|(number, _)| is_other(*number));
    skipped.into_iter().for_each(|(_, documents)| envoy::skip(documents, notes));
    let sent = envoy::descriptors(&taken, &filter, notes);
    (filter, Some(sent))
}

/// Notes the domains of files that are imported together. `is_asked` if Envoy's filter asks for each.
fn note_domains(services: &[&Service<'_>], is_asked: bool, notes: &mut Notes) {
    let domain = |service: &Service<'_>| service.root.text_of("domain").to_owned();
    for (number, service) in services.iter().enumerate() {
        let mut before = services.iter().take(number).map(|other| domain(other));
        let what = format!("domain: {}", domain(service));
        let mut add = |why: &str, instead: &str| {
            notes.at(service.file, line(service.root, "domain"), &what, why, instead);
        };
        if !is_asked && before.clone().any(|other| other != domain(service)) {
            let why = "it is another domain than in the files before, for which another filter of Envoy may ask; the policies of all domains \
                are for all requests";
            add(why, "Import one domain at a time, or add `--envoy FILE`");
        }
        if before.any(|other| other == domain(service)) {
            let why = "another file has this domain, too. The service merges them only with MERGE_DOMAIN_CONFIG, and then a value in one file \
                counts before its key in the other; weir applies both";
            add(why, "Import one file that has all descriptors");
        }
    }
}

/// True if a document is a configuration of the service.
fn is_service(root: &Node) -> bool {
    root.get("domain").is_some() || root.get("descriptors").is_some()
}

/// Gives the strings of the service the text that is written, also of what is a number or a truth value in YAML.
fn as_written(node: &mut Node, text: &str) {
    let place = node.place;
    match &mut node.content {
        Content::Scalar(value) if value.is_boolean() || value.is_number() => {
            let is_word = |next: &char| next.is_ascii_alphanumeric() || "+-_.".contains(*next);
            let line = text.lines().nth(place.line.saturating_sub(1)).unwrap_or_default();
            let rest: String = line.chars().skip(place.column.saturating_sub(1)).collect();
            // Before the value may be an anchor and a tag.
            let mut words =
                rest.split(' ').skip_while(|word| word.is_empty() || word.starts_with(['&', '!']));
            let written: String = words.next().unwrap_or_default().chars().take_while(is_word).collect();
            *value = if written.is_empty() { value.to_string() } else { written }.into();
        }
        Content::Scalar(_) => {}
        Content::List(items) => items.iter_mut().for_each(|item| as_written(item, text)),
        Content::Object(fields) => {
            let is_read =
                |name: &str| super::is_among(name, "domain key value name descriptors rate_limit replaces");
            let read = fields.iter_mut().filter(|(name, ..)| is_read(name));
            read.for_each(|(.., value)| as_written(value, text));
        }
    }
}

fn line(node: &Node, name: &str) -> usize {
    node.place_of(name).line
}

/// The fields of each level of the service's configuration.
const DESCRIPTOR: &str = "key value rate_limit descriptors shadow_mode quota_mode detailed_metric value_to_metric share_threshold metadata";
const RATE_LIMIT: &str = "unit requests_per_unit unlimited name replaces";

/// Adds a note for each name that the service does not have at its place: what is left out without a word may be a limit.
fn note_unread(file: usize, root: &Node, notes: &mut Notes) {
    notes.unread_by(&SERVICE, file, root, "domain descriptors");
    let mut open: Vec<&Node> = root.list("descriptors").iter().collect();
    while let Some(descriptor) = open.pop() {
        notes.unread_by(&SERVICE, file, descriptor, DESCRIPTOR);
        if let Some(limit) = descriptor.get("rate_limit") {
            notes.unread_by(&SERVICE, file, limit, RATE_LIMIT);
            for replaced in limit.list("replaces") {
                notes.unread_by(&SERVICE, file, replaced, "name");
            }
        }
        open.extend(descriptor.list("descriptors"));
    }
}

const SERVICE: Reader = Reader {
    why: "the service does not have it here, so it is not imported",
    instead: "If your service reads it, write the policy by hand; else remove it",
    camel: false,
};
