// SPDX-License-Identifier: Apache-2.0
//! Traces in lines of JSON with weir's own names. A field that is not known is an error, and so is one that comes twice.

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::number::{Unit, micros};
use super::{Entry, Said, When};
use crate::Failure;
use weir::config;
use weir::request::sample::Sample;

const FIELDS: [&str; 9] =
    ["t_ms", "duration_ms", "method", "path", "host", "client", "headers", "attributes", "body"];

/// Reads `{"t_ms": 0, "method": …, "path": …, "host": …, "client": …, "headers": {"name": "value" or ["value", …]},
/// "attributes": {"xds.route_name": …}, "body": {…} or "text", "duration_ms": 0}`; all but `t_ms` may be missing.
pub fn read(line: &[u8]) -> Result<Said, Failure> {
    let mut fields = object(line)?;
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        let meant = config::nearest(unknown, FIELDS.into_iter());
        let meant = meant.map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
        let other =
            if fields.contains_key("t_ms") { "" } else { "; or the names of another log, with --map" };
        return Err(format!(
            "found the unknown field {unknown:?}, allowed: {}{meant}{other}",
            FIELDS.join(", ")
        ));
    }
    let at =
        fields.remove("t_ms").ok_or("there is no t_ms, which is when the request came, in milliseconds")?;
    let at = micros("t_ms", &at, Unit::Millis)?;
    let took =
        fields.remove("duration_ms").map(|took| micros("duration_ms", &took, Unit::Millis)).transpose()?;
    let mut text = |name: &str| match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("{name} is {other}, allowed: a string")),
    };
    let (method, path, host, client) = (text("method")?, text("path")?, text("host")?, text("client")?);
    let mut request = Sample::default();
    if let Some(method) = method {
        request = request.method(&method);
    }
    if let Some(path) = path {
        request = request.path(path);
    }
    let has_host = host.is_some();
    if let Some(host) = host {
        request = request.host(&host);
    }
    let mut object = |name: &str| match fields.remove(name) {
        None => Ok(Map::new()),
        Some(Value::Object(fields)) => Ok(fields),
        Some(other) => Err(format!("{name} is {other}, allowed: an object")),
    };
    let (headers, attributes) = (object("headers")?, object("attributes")?);
    for (name, value) in headers {
        request = with_header(request, &name, &value)?;
    }
    for (path, value) in attributes {
        request = with_attribute(request, &path, &value);
    }
    if let Some(body) = fields.remove("body") {
        request = request.with_body(plain(&body));
    }
    let client = client.map(String::into_bytes);
    let entry = Entry { when: When::Start(at), took, client, has_host, request };
    Ok(Said::Request(Box::new(entry)))
}

/// The request with the lines of a header.
pub fn with_header(mut request: Sample, name: &str, value: &Value) -> Result<Sample, Failure> {
    let lines = value.as_array().map_or_else(|| core::slice::from_ref(value), Vec::as_slice);
    for line in lines {
        if line.is_array() || line.is_object() {
            return Err(format!("the header {name} is {value}, allowed: a value or a list of values"));
        }
        request = request.header(name, plain(line));
    }
    Ok(request)
}

/// The request with an attribute of Envoy. Its names are separated by dots, or by slashes if they contain dots.
pub fn with_attribute(request: Sample, path: &str, value: &Value) -> Sample {
    let path: Vec<&str> = path.split(if path.contains('/') { '/' } else { '.' }).collect();
    request.property(&path, plain(value))
}

pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub fn object(line: &[u8]) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_slice::<Unique>(line) {
        Ok(Unique(Value::Object(fields))) => Ok(fields),
        Ok(Unique(other)) => Err(format!("found {other}, allowed: a JSON object")),
        Err(error) => {
            // The line of the text is the first and only one.
            let (said, column) = (error.to_string(), error.column());
            let said = said.split(" at line ").next().unwrap_or_default();
            Err(format!("it is not JSON, at column {column}: {said}"))
        }
    }
}

/// True if a line is the beginning of a JSON document.
pub fn is_cut_off(line: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(line).is_err_and(|error| error.is_eof())
}

/// A value in which no field comes twice.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field {name:?} comes twice")));
            }
            let Unique(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}
