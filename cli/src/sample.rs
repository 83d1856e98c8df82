// SPDX-License-Identifier: Apache-2.0
//! A request that is written as flags.

use std::borrow::Cow;

use clap::Args;

use super::Failure;
use weir::request::sample::Sample;
use weir::request::{Attributes, client_ip};

/// A request.
#[derive(Args, Clone)]
pub(super) struct RequestFlags {
    /// The method. By default `GET`.
    #[arg(long, help_heading = "Request")]
    method: Option<String>,
    /// The path and query. By default `/`.
    #[arg(long, help_heading = "Request")]
    path: Option<String>,
    /// The host. By default `localhost`.
    #[arg(long, help_heading = "Request")]
    host: Option<String>,
    /// A header, or a pseudo-header such as `:scheme: https`. Repeat it for several, also of one name.
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", help_heading = "Request")]
    headers: Vec<String>,
    /// The address of the connection, as Envoy sees it. By default `127.0.0.1`.
    #[arg(long, value_name = "ADDRESS", help_heading = "Request")]
    client: Option<String>,
    /// The body.
    #[arg(long, value_name = "TEXT", help_heading = "Request")]
    body: Option<String>,
    /// An Envoy attribute, such as `xds.route_name=reports`. If names contain dots, separate them with `/`:
    /// `metadata/filter_metadata/envoy.filters.http.jwt_authn/jwt_payload/sub=alice`. weir derives the `request` attributes from the
    /// headers; `weir explain` names those that it lacks.
    #[arg(long = "attribute", value_name = "PATH=VALUE", help_heading = "Request")]
    properties: Vec<String>,
}

impl RequestFlags {
    /// The names of all these flags.
    pub const ALL: [&'static str; 7] = ["method", "path", "host", "headers", "client", "body", "properties"];

    pub const fn is_empty(&self) -> bool {
        let Self { method, path, host, headers, client, body, properties } = self;
        method.is_none()
            && path.is_none()
            && host.is_none()
            && headers.is_empty()
            && client.is_none()
            && body.is_none()
            && properties.is_empty()
    }

    /// A request of these, from 127.0.0.1.
    pub fn of(
        [method, path, host]: [String; 3],
        scheme: &str,
        headers: Vec<String>,
        body: Option<String>,
    ) -> Self {
        let [method, path, host] = [method, path, host].map(Some);
        let headers = core::iter::once(format!(":scheme: {scheme}")).chain(headers).collect();
        Self { method, path, host, headers, client: None, body, properties: Vec::new() }
    }

    /// This request of `other`, with what is said of it here: the client's address, attributes and further headers.
    pub fn over(&self, other: Self) -> Self {
        let first = |own: &Option<String>, other| own.clone().or(other);
        Self {
            method: first(&self.method, other.method),
            path: first(&self.path, other.path),
            host: first(&self.host, other.host),
            headers: other.headers.into_iter().chain(self.headers.iter().cloned()).collect(),
            client: first(&self.client, other.client),
            body: first(&self.body, other.body),
            properties: other.properties.into_iter().chain(self.properties.iter().cloned()).collect(),
        }
    }

    /// The same with `value` for each `{}`; `None` if there is none.
    pub fn filled(&self, value: &str) -> Option<Self> {
        let mut filled = self.clone();
        let Self { method, path, host, headers, client, body, properties } = &mut filled;
        let single = [method, path, host, client, body].into_iter().flatten();
        let mut is_found = false;
        for text in single.chain(headers).chain(properties).filter(|text| text.contains("{}")) {
            is_found = true;
            *text = text.replace("{}", value);
        }
        is_found.then_some(filled)
    }

    pub fn sample(&self) -> Result<Sample, Failure> {
        let client = self.client.as_deref().unwrap_or("127.0.0.1");
        if client_ip::connection(client.as_bytes()).is_none() {
            return Err(format!("--client {client:?}: allowed is an address, with or without a port"));
        }
        let mut sample = Sample::default().from(client);
        if let Some(method) = &self.method {
            sample = sample.method(method);
        }
        if let Some(path) = &self.path {
            sample = sample.path(path);
        }
        if let Some(host) = &self.host {
            sample = sample.host(host);
        }
        for line in &self.headers {
            // The name of a pseudo-header, such as `:scheme`, begins with a colon.
            let (colon, rest) =
                line.trim_start().strip_prefix(':').map_or(("", line.as_str()), |rest| (":", rest));
            let (name, value) =
                rest.split_once(':').ok_or_else(|| format!("--header {line:?}: allowed is NAME: VALUE"))?;
            sample = sample.header(&format!("{colon}{}", name.trim()), value.trim_matches([' ', '\t']));
        }
        if let Some(body) = &self.body {
            sample = sample.with_body(body);
        }
        let mut paths: Vec<Vec<&str>> = Vec::new();
        for line in &self.properties {
            let (path, value) =
                line.split_once('=').ok_or_else(|| format!("--attribute {line:?}: allowed is PATH=VALUE"))?;
            let path: Vec<&str> = path.split(if path.contains('/') { '/' } else { '.' }).collect();
            if paths.contains(&path) {
                return Err(format!("--attribute {}: it has two values, allowed is one", path.join(".")));
            }
            paths.push(path.clone());
            if path == ["request", "time"] {
                return Err(String::from(
                    "--attribute request.time: `weir explain --time` says the time of a request",
                ));
            }
            sample = sample.property(&path, value);
        }
        Ok(with_host(sample))
    }
}

/// A request as Envoy has it: the header `host` is `:authority`, which is found by both names.
pub(super) fn with_host(sample: Sample) -> Sample {
    let value = |name: &str| Attributes::header(&sample, name).ok().flatten().map(Cow::into_owned);
    match value("host").or_else(|| value(":authority")) {
        Some(host) => sample.without("host").header(":authority", &host).header("host", &host),
        None => sample,
    }
}
