//! Conditions on a request: in a policy's `match`, and in lists of requests to deny or to exempt.

use super::client_address::{networks, read_networks};
use super::schema::{
    Draft, Flag, HEADER, HOST, Items, List, METHOD, Nested, PATH, REGEX, TEXT, Text, Typed, View, Word,
    Words, flag, list, nested, object, text, word, words,
};
use crate::policy::index::MAX_CONDITIONS;
use crate::policy::matcher::{Condition, HostTest, PathPattern, PathTest, ValueTest};
use crate::policy::pattern::Pattern;
use crate::request::pairs::Semicolon;
use crate::request::path::TrailingSlash;

object! {
    static CONDITION: ConditionFields = "condition", "Holds when all of its fields hold; without fields it always does.";
    path: Option<Nested<PathTestFields>> = nested(&PATH_TEST).optional("The path, without its query."),
    method: Option<List<Text>> = list(&text(&METHOD), 1, 32)
        .optional("The method is one of these; capitals and small letters are the same."),
    host: Option<List<Text>> = list(&text(&HOST), 1, 256)
        .optional("The host, without its port, is one of these; `*.example.com` is every host below example.com."),
    header: Option<Nested<HeaderTestFields>> = nested(&HEADER_TEST).optional("A request header."),
    query: Option<Nested<QueryTestFields>> = nested(&QUERY_TEST).optional("A query parameter, decoded."),
    route: Option<List<Text>> = list(&text(&TEXT), 1, 256).optional("The name of the Envoy route is one of these."),
    client_address: Option<List<Text>> = networks(1024)
        .optional("The [client's address](#the-clients-address) lies in one of these networks."),
    all: Option<List<Nested<ConditionFields>>> = list(&nested(&CONDITION), 1, 64).optional("All of these hold."),
    any: Option<List<Nested<ConditionFields>>> = list(&nested(&CONDITION), 1, 64).optional("At least one of these holds."),
    not: Option<Nested<ConditionFields>> = nested(&CONDITION).optional("This does not hold."),
}

/// A list of conditions of which one is enough.
pub(super) const fn list_of() -> Typed<List<Nested<ConditionFields>>> {
    list(const { &nested(&CONDITION) }, 0, MAX_CONDITIONS)
}

pub(super) fn read_all(views: &Items<'_, Nested<ConditionFields>>) -> Vec<Condition> {
    views.iter().map(|view| read(&view)).collect()
}

/// Cheap tests come first, those that read more of the request after them, and regular expressions last.
pub(super) fn read(view: &View<'_, ConditionFields>) -> Condition {
    let mut all = Vec::new();
    if let Some(methods) = view.get(&CONDITION.method) {
        all.push(Condition::Method(bytes(&methods)));
    }
    if let Some(test) = view.get(&CONDITION.path).and_then(|test| path_test(&test)) {
        all.push(Condition::Path(test));
    }
    if let Some(hosts) = view.get(&CONDITION.host) {
        all.push(Condition::Host(hosts.iter().map(host_test).collect()));
    }
    if let Some(header) = view.get(&CONDITION.header) {
        all.push(header_test(&header));
    }
    if let Some(query) = view.get(&CONDITION.query) {
        all.push(query_test(&query));
    }
    if let Some(networks) = view.get(&CONDITION.client_address) {
        all.push(Condition::ClientAddress(read_networks(&networks)));
    }
    if let Some(routes) = view.get(&CONDITION.route) {
        all.push(Condition::Route(bytes(&routes)));
    }
    if let Some(each) = view.get(&CONDITION.all) {
        all.extend(read_all(&each));
    }
    if let Some(any) = view.get(&CONDITION.any) {
        all.push(Condition::Any(read_all(&any)));
    }
    if let Some(not) = view.get(&CONDITION.not) {
        all.push(Condition::Not(Box::new(read(&not))));
    }
    let (searches, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(Condition::searches);
    all.extend(searches);
    match <[Condition; 1]>::try_from(all) {
        Ok([only]) => only,
        Err(all) => Condition::All(all),
    }
}

fn bytes(texts: &Items<'_, Text>) -> Vec<Vec<u8>> {
    texts.iter().map(Into::into).collect()
}

fn host_test(host: &str) -> HostTest {
    let below = host.strip_prefix('*');
    below.map_or_else(|| HostTest::Exact(host.into()), |suffix| HostTest::Below(suffix.into()))
}

object! {
    static PATH_TEST: PathTestFields = "path_test", exactly_one(exact, prefix, regex),
        "A test on the path, in every spelling that an upstream may understand (see [readings](#readings)).";
    exact: Option<Text> = text(&PATH).optional("It is this path."),
    prefix: Option<Text> = text(&PATH)
        .optional("It is this path or lies below it: `/api` is a prefix of `/api` and `/api/x`, not of `/apiary`."),
    regex: Option<Text> = text(&REGEX).optional("The whole path matches."),
    trailing_slash: Word<TrailingSlash> = trailing_slash(),
}

/// Whether a slash at the end of a path makes another path.
pub(super) const fn trailing_slash() -> Draft<Word<TrailingSlash>> {
    word(&TRAILING_SLASH).default("\"ambiguous\"", "What a slash at the end of the path means.")
}

static TRAILING_SLASH: Words<TrailingSlash> = words! {
    "ambiguous" => TrailingSlash::Ambiguous, "Some upstreams take `/login/` for `/login`, others do not: both readings count \
        (see [readings](#readings)).";
    "distinct" => TrailingSlash::Distinct, "Your upstreams take `/login/` and `/login` for two paths.";
};

fn path_test(view: &View<'_, PathTestFields>) -> Option<PathTest> {
    let trailing_slash = view.get(&PATH_TEST.trailing_slash);
    if let Some(exact) = view.get(&PATH_TEST.exact) {
        return Some(PathTest::Exact(exact.into(), trailing_slash));
    }
    if let Some(prefix) = view.get(&PATH_TEST.prefix) {
        return Some(PathTest::Prefix(prefix.trim_end_matches('/').into()));
    }
    let exact = Pattern::new(view.get(&PATH_TEST.regex)?).ok()?;
    let with_slash = match trailing_slash {
        TrailingSlash::Ambiguous => exact.with_slash(),
        TrailingSlash::Distinct => None,
    };
    Some(PathTest::Regex(PathPattern { exact, with_slash }))
}

const fn exact() -> Draft<Option<Text>> {
    text(&TEXT).optional("Its value is this.")
}

const fn prefix() -> Draft<Option<Text>> {
    text(&TEXT).optional("Its value begins with this.")
}

const fn regex() -> Draft<Option<Text>> {
    text(&REGEX).optional("Its whole value matches.")
}

const fn present() -> Draft<Option<Flag>> {
    flag().optional("Whether it is there.")
}

object! {
    static HEADER_TEST: HeaderTestFields = "header_test", at_most_one(exact, prefix, regex, present),
        "A test on a header; with a name only: it is there.";
    name: Text = text(&HEADER).required("The header's name, in lower case."),
    exact: Option<Text> = exact(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
}

fn header_test(view: &View<'_, HeaderTestFields>) -> Condition {
    let test = value_test(
        view.get(&HEADER_TEST.exact),
        view.get(&HEADER_TEST.prefix),
        view.get(&HEADER_TEST.regex),
        view.get(&HEADER_TEST.present),
    );
    Condition::Header(view.get(&HEADER_TEST.name).to_owned(), test)
}

object! {
    static QUERY_TEST: QueryTestFields = "query_test", at_most_one(exact, prefix, regex, present),
        "A test on a query parameter; with a name only: it is there.";
    name: Text = text(&TEXT).required("The parameter's name, decoded."),
    exact: Option<Text> = exact(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    semicolon: Word<Semicolon> = semicolon(),
}

/// Whether a `;` ends a query parameter.
pub(super) const fn semicolon() -> Draft<Word<Semicolon>> {
    word(&SEMICOLON).default("\"ambiguous\"", "What a `;` in the query means.")
}

static SEMICOLON: Words<Semicolon> = words! {
    "ambiguous" => Semicolon::Ambiguous, "For some upstreams it ends a parameter as `&` does, for others not: both readings \
        count (see [readings](#readings)).";
    "literal" => Semicolon::Literal, "For your upstreams it is part of a value.";
};

fn query_test(view: &View<'_, QueryTestFields>) -> Condition {
    let test = value_test(
        view.get(&QUERY_TEST.exact),
        view.get(&QUERY_TEST.prefix),
        view.get(&QUERY_TEST.regex),
        view.get(&QUERY_TEST.present),
    );
    Condition::Query(view.get(&QUERY_TEST.name).into(), view.get(&QUERY_TEST.semicolon), test)
}

fn value_test(
    exact: Option<&str>,
    prefix: Option<&str>,
    regex: Option<&str>,
    present: Option<bool>,
) -> ValueTest {
    if let Some(exact) = exact {
        return ValueTest::Exact(exact.into());
    }
    if let Some(prefix) = prefix {
        return ValueTest::Prefix(prefix.into());
    }
    if let Some(regex) = regex.and_then(|regex| Pattern::new(regex).ok()) {
        return ValueTest::Regex(regex);
    }
    if present == Some(false) { ValueTest::Absent } else { ValueTest::Present }
}
