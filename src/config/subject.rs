// SPDX-License-Identifier: Apache-2.0
//! `subject`: the parts of a request that tell subjects apart.

use super::condition::{
    Step, attribute_at, attribute_path, body_path, claim, claim_of, field, header_at, in_body, in_query,
    json_in_query, normal, normalize, payload, semicolon, trailing_slash,
};
use super::schema::{
    Count, Draft, Errors, Flag, HEADER, List, Nested, TEXT, Text, View, Word, Words, count, flag, list,
    nested, object, text, word, words,
};
use crate::policy::credential::Credential;
use crate::policy::key::ValueHasher;
use crate::policy::subject::{OnMissing, OnMultiple, OnUnreadable, Source, SubjectPart};
use crate::request::Property;
use crate::request::pairs::Semicolon;
use crate::request::path::TrailingSlash;

/// The most headers of a credential, and the most query parameters.
const MAX_PLACES: usize = 8;

object! {
    static PART: PartFields = "subject_part",
        exactly_one(client_address, header, cookie, query, credential, path, path_segment, method, host, route, jwt_claim, tls_subject,
            attribute, body_json, body_form, literal),
        "One part of a request that tells subjects apart.";
    client_address: Option<Nested<ClientAddressPartFields>> = nested(&CLIENT_ADDRESS_PART).optional("The client's address."),
    header: Option<Nested<HeaderPartFields>> = nested(&HEADER_PART).optional("A header's value."),
    cookie: Option<Nested<CookiePartFields>> = nested(&COOKIE_PART).optional("A cookie's value, without quotes around it and percent-decoded."),
    query: Option<Nested<QueryPartFields>> = nested(&QUERY_PART).optional("A query parameter's value, decoded."),
    credential: Option<Nested<CredentialPartFields>> = nested(&CREDENTIAL_PART)
        .optional("The API key or the token, wherever the client sends it. Keys in Redis always have its hash. See [credentials](subjects.md#credentials)."),
    path: Option<Nested<PathPartFields>> = nested(&PATH_PART).optional("The resolved path, without its query."),
    path_segment: Option<Nested<SegmentPartFields>> = nested(&SEGMENT_PART).optional("One segment of the resolved path."),
    method: Option<Nested<EmptyFields>> = nested(&EMPTY).optional("The method, in capitals."),
    host: Option<Nested<EmptyFields>> = nested(&EMPTY).optional("The host, in lower case, without its port."),
    route: Option<Nested<EmptyFields>> = nested(&EMPTY).optional("The name of the Envoy route."),
    jwt_claim: Option<Nested<ClaimPartFields>> = nested(&CLAIM_PART)
        .optional("A claim of a token that Envoy's jwt_authn verified."),
    tls_subject: Option<Nested<EmptyFields>> = nested(&EMPTY).optional("The subject of the client's certificate (mTLS)."),
    attribute: Option<Nested<AttributePartFields>> = nested(&ATTRIBUTE_PART).optional("Any Envoy attribute."),
    body_json: Option<Nested<BodyPartFields>> = nested(&BODY_PART)
        .optional("A value of the request's JSON body, for which the request waits. See [request bodies](bodies.md)."),
    body_form: Option<Nested<FieldPartFields>> = nested(&FIELD_PART)
        .optional("A field of the HTML form in the request's body (pairs, or `multipart/form-data`), for which the request waits. See [request bodies](bodies.md#html-forms)."),
    literal: Option<Text> = text(&TEXT).optional("This text, for every request."),
    on_missing: Word<OnMissing> = word(&ON_MISSING)
        .default("\"share\"", "What happens to a request that does not have this part."),
    on_multiple: Word<OnMultiple> = word(&ON_MULTIPLE)
        .default("\"deny\"", "What happens when a header is sent on several lines, or a cookie or query parameter several \
            times. Upstreams differ in which one they take, so that a client could choose its subject."),
    normalize: List<Word<Step>> = normalize(),
    hash: Option<Flag> = flag()
        .optional("Whether keys have a hash instead of the value, so that it is not in Redis in clear: by default false, and true for a \
            `credential`, which is always hashed. See [keys](subjects.md#keys)."),
}

static ON_MISSING: Words<OnMissing> = words! {
    "share" => OnMissing::Share, "All requests without it share one subject.";
    "skip" => OnMissing::Skip, "The policy does not apply.";
    "deny" => OnMissing::Deny, "The request is denied, without Redis.";
};

static ON_MULTIPLE: Words<OnMultiple> = words! {
    "deny" => OnMultiple::Deny, "The request is denied, without Redis.";
    "first" => OnMultiple::First, "The first value counts.";
    "last" => OnMultiple::Last, "The last value counts.";
    "join" => OnMultiple::Join, "All values count, joined by commas.";
};

/// Reads a part of a subject. `hasher` hashes it, if it is to be hashed.
pub(super) fn read(view: &View<'_, PartFields>, hasher: &ValueHasher, errors: &mut Errors) -> SubjectPart {
    let part = read_plain(view);
    let is_credential = matches!(part.source, Source::Credential(_));
    if matches!(&part.source, Source::Credential(credential) if credential.is_nowhere()) {
        errors.add(&view.path_of(&PART.credential), "no place", "at least one of `headers` or of `query`");
    }
    let is_text = matches!(
        part.source,
        Source::Header(_) | Source::Cookie(_) | Source::Query(..) | Source::Attribute(_) | Source::Body(..)
    );
    if !part.normalize.is_none() && !is_text {
        let allowed = "a header, cookie, query parameter, claim, attribute or body's value: these have spellings that are one value";
        errors.add(&view.path_of(&PART.normalize), "another part", allowed);
    }
    if !part.normalize.is_none() && part.on_multiple == OnMultiple::Join {
        let allowed = "deny, first or last: several values are not one address or name";
        errors.add(&view.path_of(&PART.on_multiple), "\"join\"", allowed);
    }
    let is_hashed = view.get(&PART.hash).unwrap_or(is_credential);
    if is_credential && !is_hashed {
        errors.add(&view.path_of(&PART.hash), "false", "true: a credential is always hashed");
    }
    if is_credential && part.on_multiple == OnMultiple::Join {
        let allowed = "deny, first or last: a client could join its credential with others, and be another subject each time";
        errors.add(&view.path_of(&PART.on_multiple), "\"join\"", allowed);
    }
    SubjectPart { hash: is_hashed.then(|| hasher.clone()), ..part }
}

/// Reads a part that is compared with names, so that it cannot be hashed.
pub(super) fn read_name(view: &View<'_, PartFields>, errors: &mut Errors) -> SubjectPart {
    let part = read_plain(view);
    if view.get(&PART.hash) == Some(true) {
        errors.add(&view.path_of(&PART.hash), "true", "false: the value names the tier, its hash does not");
    }
    if !part.normalize.is_none() {
        errors.add(
            &view.path_of(&PART.normalize),
            "steps",
            "none: the value is compared with names as it is",
        );
    }
    if matches!(part.source, Source::Credential(_)) {
        errors.add(&view.path_of(&PART.credential), "a credential", "another part: a credential is no name");
    }
    part
}

fn read_plain(view: &View<'_, PartFields>) -> SubjectPart {
    SubjectPart {
        hash: None,
        normalize: normal(&view.get(&PART.normalize)),
        source: source(view),
        on_missing: view.get(&PART.on_missing),
        on_multiple: view.get(&PART.on_multiple),
    }
}

fn source(view: &View<'_, PartFields>) -> Source {
    if let Some(address) = view.get(&PART.client_address) {
        return Source::ClientAddress {
            ipv4_prefix: address.get(&CLIENT_ADDRESS_PART.ipv4_prefix),
            ipv6_prefix: address.get(&CLIENT_ADDRESS_PART.ipv6_prefix),
        };
    }
    if let Some(header) = view.get(&PART.header) {
        return Source::Header(header.get(&HEADER_PART.name).to_owned());
    }
    if let Some(cookie) = view.get(&PART.cookie) {
        return Source::Cookie(cookie.get(&COOKIE_PART.name).into());
    }
    if let Some(query) = view.get(&PART.query) {
        return Source::Query(query.get(&QUERY_PART.name).into(), query.get(&QUERY_PART.semicolon));
    }
    if let Some(credential) = view.get(&PART.credential) {
        let (headers, parameters) =
            (credential.get(&CREDENTIAL_PART.headers), credential.get(&CREDENTIAL_PART.query));
        let semicolon = credential.get(&CREDENTIAL_PART.semicolon);
        return Source::Credential(Credential::new(headers.iter(), (parameters.iter(), semicolon)));
    }
    if let Some(path) = view.get(&PART.path) {
        return Source::Path(path.get(&PATH_PART.trailing_slash));
    }
    if let Some(segment) = view.get(&PART.path_segment) {
        return Source::PathSegment(segment.get(&SEGMENT_PART.index));
    }
    if view.get(&PART.method).is_some() {
        return Source::Method;
    }
    if view.get(&PART.host).is_some() {
        return Source::Host;
    }
    if view.get(&PART.route).is_some() {
        return attribute(&["xds", "route_name"]);
    }
    if let Some(claim) = view.get(&PART.jwt_claim) {
        return Source::Attribute(claim_of(claim.get(&CLAIM_PART.payload), &claim.get(&CLAIM_PART.claim)));
    }
    if view.get(&PART.tls_subject).is_some() {
        return attribute(&["connection", "subject_peer_certificate"]);
    }
    if let Some(part) = view.get(&PART.attribute) {
        let names = part.get(&ATTRIBUTE_PART.path);
        return header_at(&names).map_or_else(|| Source::Attribute(attribute_at(&names)), Source::Header);
    }
    if let Some(body) = view.get(&PART.body_json) {
        let path = in_body(body.get(&BODY_PART.in_query), body.get(&BODY_PART.path));
        return Source::Body(path, body.get(&BODY_PART.on_unreadable));
    }
    if let Some(field) = view.get(&PART.body_form) {
        let on_unreadable = field.get(&FIELD_PART.on_unreadable);
        let path = in_body(field.get(&FIELD_PART.in_query), field.get(&FIELD_PART.field));
        return Source::Body(path, on_unreadable);
    }
    Source::Literal(view.get(&PART.literal).unwrap_or_default().into())
}

fn attribute(path: &[&str]) -> Source {
    Source::Attribute(Property::new(path))
}

object! {
    static EMPTY: EmptyFields = "empty", "An empty object: this kind has no settings.";
}

object! {
    static CLIENT_ADDRESS_PART: ClientAddressPartFields = "client_address_part",
        "How many bits of an address tell clients apart.";
    ipv4_prefix: Count<u8> = count(8, 32).default("32", "Of IPv4, and of IPv4-mapped IPv6."),
    ipv6_prefix: Count<u8> = count(16, 128)
        .default("64", "Of IPv6. One customer usually has a /64 or more, and could take a new address for each request."),
}

object! {
    static HEADER_PART: HeaderPartFields = "header_part", "A header.";
    name: Text = text(&HEADER).required("The header's name, in lower case."),
}

object! {
    static COOKIE_PART: CookiePartFields = "cookie_part", "A cookie.";
    name: Text = text(&TEXT).required("The cookie's name."),
}

object! {
    static QUERY_PART: QueryPartFields = "query_part", "A query parameter.";
    name: Text = text(&TEXT).required("The parameter's name, decoded."),
    semicolon: Word<Semicolon> = semicolon(),
}

object! {
    static CREDENTIAL_PART: CredentialPartFields = "credential_part",
        "Where clients send their credential. Places that are empty, or that the request does not have, are passed over.";
    headers: List<Text> = list(&text(&HEADER), 0, MAX_PLACES)
        .default(r#"["authorization", "x-api-key", "api-key", "x-goog-api-key"]"#, "Headers, in lower case. Of `authorization` and \
            `proxy-authorization`, the word after the scheme counts: `bearer K` is `Bearer K`."),
    query: List<Text> = list(&text(&TEXT), 0, MAX_PLACES)
        .default(r#"["key"]"#, "Query parameters, decoded, which come after the headers."),
    semicolon: Word<Semicolon> = semicolon(),
}

object! {
    static PATH_PART: PathPartFields = "path_part", "The path.";
    trailing_slash: Word<TrailingSlash> = trailing_slash(),
}

object! {
    static SEGMENT_PART: SegmentPartFields = "path_segment_part", "One segment of the path.";
    index: Count<usize> = count(1, 64).required("Its number, from 1: in `/v1/users/7` the second is `users`."),
}

object! {
    static CLAIM_PART: ClaimPartFields = "jwt_claim_part",
        "A claim of a verified token. It should be a string: other values are used as Envoy serialises them.";
    payload: Text = payload(),
    claim: List<Text> = claim(),
}

object! {
    static ATTRIBUTE_PART: AttributePartFields = "attribute_part", "An Envoy attribute.";
    path: List<Text> = attribute_path(),
}

object! {
    static BODY_PART: BodyPartFields = "body_json_part",
        "A value of the request's JSON body: a string, a number below 10^12, `true` or `false`. `null` is no value.";
    path: Text = body_path(),
    in_query: Word<&'static str> = json_in_query(),
    on_unreadable: Word<OnUnreadable> = on_unreadable(),
}

object! {
    static FIELD_PART: FieldPartFields = "body_form_part", "A field of the HTML form in the request's body.";
    field: Text = field(),
    in_query: Word<&'static str> = in_query(),
    on_unreadable: Word<OnUnreadable> = on_unreadable(),
}

const fn on_unreadable() -> Draft<Word<OnUnreadable>> {
    word(&ON_UNREADABLE).default(
        "\"deny\"",
        "What happens to a request whose body cannot be read, or has the value several times.",
    )
}

static ON_UNREADABLE: Words<OnUnreadable> = words! {
    "deny" => OnUnreadable::Deny, "The request is denied, without Redis.";
    "missing" => OnUnreadable::Missing, "It counts as a request that does not have this part: see `on_missing`. So a client can choose to \
        be one of these.";
};
