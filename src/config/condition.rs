// SPDX-License-Identifier: Apache-2.0
//! Conditions on a request: in a policy's `match`, and in lists of requests to deny or to exempt.

use super::client_address::{networks, read_networks};
use super::schema::{
    BODY_PATH, DAY_SPAN, Draft, Flag, HEADER, HOST, Items, List, METHOD, Nested, PATH, REGEX, TEXT, Text,
    Typed, UTC_OFFSET, View, Word, Words, day_span, flag, list, nested, object, text, utc_offset, word,
    words,
};
use crate::limit::UtcOffset;
use crate::policy::index::MAX_CONDITIONS;
use crate::policy::matcher::{Condition, HostTest, PathPattern, PathTest, TimeTest, ValueTest};
use crate::policy::normal::Normal;
use crate::policy::pattern::Pattern;
use crate::request::Property;
use crate::request::body::{FIELD, FIELD_APART, JSON_APART};
use crate::request::pairs::Semicolon;
use crate::request::path::TrailingSlash;
use crate::sorted_map::sorted;

object! {
    static CONDITION: ConditionFields = "condition", "Holds when all of its fields hold; without fields it always does.";
    path: Option<Nested<PathTestFields>> = nested(&PATH_TEST).optional("The path, without its query."),
    method: Option<List<Text>> = list(&text(&METHOD), 1, 32)
        .optional("The method is one of these; capitals and small letters are the same."),
    host: Option<List<Text>> = list(&text(&HOST), 1, 256)
        .optional("The host, without its port, is one of these; `*.example.com` is every host below example.com."),
    header: Option<Nested<HeaderTestFields>> = nested(&HEADER_TEST).optional("A request header."),
    query: Option<Nested<QueryTestFields>> = nested(&QUERY_TEST).optional("A query parameter, decoded."),
    cookie: Option<Nested<CookieTestFields>> = nested(&COOKIE_TEST).optional("A cookie."),
    jwt_claim: Option<Nested<ClaimTestFields>> = nested(&CLAIM_TEST)
        .optional("A claim of a token that Envoy's jwt_authn verified."),
    attribute: Option<Nested<AttributeTestFields>> = nested(&ATTRIBUTE_TEST).optional("Any Envoy attribute."),
    body_json: Option<Nested<BodyTestFields>> = nested(&BODY_TEST)
        .optional("A value of the request's JSON body, for which the request waits. See [request bodies](bodies.md)."),
    body_form: Option<Nested<FieldTestFields>> = nested(&FIELD_TEST)
        .optional("A field of the HTML form in the request's body (pairs, or `multipart/form-data`), for which the request waits. See [request bodies](bodies.md#html-forms)."),
    route: Option<List<Text>> = list(&text(&TEXT), 1, 256).optional("The name of the Envoy route is one of these."),
    client_address: Option<List<Text>> = networks(1024)
        .optional("The [client's address](subjects.md#the-clients-address) is in one of these networks."),
    time: Option<Nested<TimeTestFields>> = nested(&TIME_TEST).optional("The time at which the request comes."),
    all: Option<List<Nested<ConditionFields>>> = list(&nested(&CONDITION), 1, 64).optional("All of these hold."),
    any: Option<List<Nested<ConditionFields>>> = list(&nested(&CONDITION), 1, 64).optional("At least one of these holds."),
    not: Option<Nested<ConditionFields>> = nested(&CONDITION).optional("This does not hold."),
}

/// A list of alternative conditions.
pub(super) const fn list_of() -> Typed<List<Nested<ConditionFields>>> {
    list(const { &nested(&CONDITION) }, 0, MAX_CONDITIONS)
}

pub(super) fn read_all(views: &Items<'_, Nested<ConditionFields>>) -> Vec<Condition> {
    views.iter().map(|view| read(&view)).collect()
}

/// Puts the fastest tests first, then those that read more of the request, then regular expressions, and last those for which the request
/// waits.
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
        let (name, test) = header_test(&header);
        all.push(Condition::Header(name, test));
    }
    if let Some(query) = view.get(&CONDITION.query) {
        all.push(query_test(&query));
    }
    if let Some(cookie) = view.get(&CONDITION.cookie) {
        all.push(cookie_test(&cookie));
    }
    if let Some(claim) = view.get(&CONDITION.jwt_claim) {
        all.push(claim_test(&claim));
    }
    if let Some(attribute) = view.get(&CONDITION.attribute) {
        all.push(attribute_test(&attribute));
    }
    if let Some(body) = view.get(&CONDITION.body_json) {
        all.push(body_test(&body));
    }
    if let Some(field) = view.get(&CONDITION.body_form) {
        all.push(field_test(&field));
    }
    if let Some(networks) = view.get(&CONDITION.client_address) {
        all.push(Condition::ClientAddress(read_networks(&networks)));
    }
    if let Some(routes) = view.get(&CONDITION.route) {
        all.push(Condition::Route(bytes(&routes)));
    }
    if let Some(time) = view.get(&CONDITION.time) {
        all.push(Condition::Time(time_test(&time)));
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
    let (waits, all): (Vec<_>, Vec<_>) = all.into_iter().partition(Condition::reads_body);
    let (searches, mut all): (Vec<_>, Vec<_>) = all.into_iter().partition(Condition::searches);
    all.extend(searches);
    all.extend(waits);
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
    static TIME_TEST: TimeTestFields = "time_test",
        "A test on the time, by the clock of the proxy: a span of some days. Without daylight saving time.";
    days: List<Word<u8>> = list(const { &word(&DAYS) }, 1, 7).default(r#"["mon", "tue", "wed", "thu", "fri", "sat", "sun"]"#, "The days on which the span begins."),
    hours: Text = text(&DAY_SPAN).default("\"00:00-24:00\"", "The span. The second time is not part of it. `22:00-06:00` ends on the next day."),
    utc_offset: Text = text(&UTC_OFFSET).default("\"+00:00\"", "How far the local time is ahead of UTC."),
}

static DAYS: Words<u8> = words! {
    "mon" => 0, "Monday.";
    "tue" => 1, "Tuesday.";
    "wed" => 2, "Wednesday.";
    "thu" => 3, "Thursday.";
    "fri" => 4, "Friday.";
    "sat" => 5, "Saturday.";
    "sun" => 6, "Sunday.";
};

fn time_test(view: &View<'_, TimeTestFields>) -> TimeTest {
    TimeTest {
        days: view.get(&TIME_TEST.days).iter().fold(0, |days, day| days | 1 << day),
        span: day_span(view.get(&TIME_TEST.hours)).unwrap_or_default(),
        offset: utc_offset(view.get(&TIME_TEST.utc_offset)).unwrap_or(UtcOffset::UTC),
    }
}

object! {
    static PATH_TEST: PathTestFields = "path_test", exactly_one(exact, prefix, regex),
        "A test on the path, in every spelling that an upstream may understand (see [readings](readings.md)).";
    exact: Option<Text> = text(&PATH).optional("It is this path."),
    prefix: Option<Text> = text(&PATH)
        .optional("It is this path or lies below it: `/api` is a prefix of `/api` and `/api/x`, not of `/apiary`. A slash at its end \
            changes nothing, whatever `trailing_slash` says."),
    regex: Option<Text> = text(&REGEX).optional("The whole path matches."),
    trailing_slash: Word<TrailingSlash> = trailing_slash(),
}

/// The field that says whether a slash at the end of a path makes another path.
pub(super) const fn trailing_slash() -> Draft<Word<TrailingSlash>> {
    word(&TRAILING_SLASH).default("\"ambiguous\"", "What a slash at the end of the path means.")
}

static TRAILING_SLASH: Words<TrailingSlash> = words! {
    "ambiguous" => TrailingSlash::Ambiguous, "Some upstreams take `/login/` for `/login`, others do not: both readings count \
        (see [readings](readings.md)).";
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
    Some(PathTest::Regex(PathPattern::new(exact, trailing_slash)))
}

const fn exact() -> Draft<Option<Text>> {
    text(&TEXT).optional("Its value is this.")
}

const fn one_of() -> Draft<Option<List<Text>>> {
    list(const { &text(&TEXT) }, 1, 256).optional("Its value is one of these.")
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

/// A step of `normalize`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Trim,
    Lowercase,
    Email,
}

static STEPS: Words<Step> = words! {
    "trim" => Step::Trim, "Without spaces at its ends.";
    "lowercase" => Step::Lowercase, "Capital and small letters are the same, also beyond ASCII; `ß` is `ss`.";
    "email" => Step::Email, "The mailbox of an address: as with `trim` and `lowercase`, and without what follows a `+` in its name; for \
        gmail.com without dots.";
};

/// The field with the steps that make spellings of one value equal.
pub(super) const fn normalize() -> Draft<List<Word<Step>>> {
    list(const { &word(&STEPS) }, 0, 3).default("[]", "Spellings of one value that count as the same. See [normalised values](subjects.md#normalised-values).")
}

/// The steps of that field.
#[inline(never)]
pub(super) fn normal(steps: &Items<'_, Word<Step>>) -> Normal {
    let has = |step: Step| steps.iter().any(|other| other == step);
    Normal { trim: has(Step::Trim), lowercase: has(Step::Lowercase), email: has(Step::Email) }
}

/// The test of an object, by the fields that all tests on values have.
macro_rules! value_test {
    ($view:ident, $object:ident) => {
        value_test(
            $view.get(&$object.exact),
            $view.get(&$object.one_of),
            $view.get(&$object.prefix),
            $view.get(&$object.regex),
            $view.get(&$object.present),
        )
        .normalized(normal(&$view.get(&$object.normalize)))
    };
}

fn value_test(
    exact: Option<&str>,
    one_of: Option<Items<'_, Text>>,
    prefix: Option<&str>,
    regex: Option<&str>,
    present: Option<bool>,
) -> ValueTest {
    if let Some(exact) = exact {
        return ValueTest::Exact(exact.into());
    }
    if let Some(values) = one_of {
        return ValueTest::In(sorted(bytes(&values)));
    }
    if let Some(prefix) = prefix {
        return ValueTest::Prefix(prefix.into());
    }
    if let Some(regex) = regex.and_then(|regex| Pattern::new(regex).ok()) {
        return ValueTest::Regex(regex);
    }
    if present == Some(false) { ValueTest::Absent } else { ValueTest::Present }
}

object! {
    static HEADER_TEST: HeaderTestFields = "header_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on a header; with a name only: it is there.";
    name: Text = text(&HEADER).required("The header's name, in lower case."),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
}

pub(super) fn header_test(view: &View<'_, HeaderTestFields>) -> (String, ValueTest) {
    let test = value_test!(view, HEADER_TEST);
    (view.get(&HEADER_TEST.name).to_owned(), test)
}

object! {
    static QUERY_TEST: QueryTestFields = "query_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on a query parameter; with a name only: it is there.";
    name: Text = text(&TEXT).required("The parameter's name, decoded."),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
    semicolon: Word<Semicolon> = semicolon(),
}

/// The field that says whether a `;` ends a query parameter.
pub(super) const fn semicolon() -> Draft<Word<Semicolon>> {
    word(&SEMICOLON).default("\"ambiguous\"", "What a `;` in the query means.")
}

static SEMICOLON: Words<Semicolon> = words! {
    "ambiguous" => Semicolon::Ambiguous, "For some upstreams it ends a parameter as `&` does, for others not: both readings \
        count (see [readings](readings.md)).";
    "literal" => Semicolon::Literal, "For your upstreams it is part of a value.";
};

fn query_test(view: &View<'_, QueryTestFields>) -> Condition {
    let test = value_test!(view, QUERY_TEST);
    Condition::Query(view.get(&QUERY_TEST.name).into(), view.get(&QUERY_TEST.semicolon), test)
}

object! {
    static COOKIE_TEST: CookieTestFields = "cookie_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on a cookie; with a name only: it is there. Its value counts as it stands, without \
            quotes around it, and percent-decoded: each is a reading. A comma ends it as a `;` does.";
    name: Text = text(&TEXT).required("The cookie's name."),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
}

fn cookie_test(view: &View<'_, CookieTestFields>) -> Condition {
    Condition::Cookie(view.get(&COOKIE_TEST.name).into(), value_test!(view, COOKIE_TEST))
}

object! {
    static CLAIM_TEST: ClaimTestFields = "jwt_claim_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on a claim of a verified token; with a name only: it is there. It should be a string: other values are tested as \
            Envoy serialises them.";
    payload: Text = payload(),
    claim: List<Text> = claim(),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
}

fn claim_test(view: &View<'_, ClaimTestFields>) -> Condition {
    let claim = claim_of(view.get(&CLAIM_TEST.payload), &view.get(&CLAIM_TEST.claim));
    Condition::Attribute(claim, value_test!(view, CLAIM_TEST))
}

/// The field with the place in which jwt_authn puts the claims of a token.
pub(super) const fn payload() -> Draft<Text> {
    text(&TEXT).default("\"jwt_payload\"", "Where jwt_authn puts the claims: its `payload_in_metadata`.")
}

/// The names on the way to a claim.
pub(super) const fn claim() -> Draft<List<Text>> {
    list(const { &text(&TEXT) }, 1, 8)
        .required("The claim's name; for a claim inside another, the names on the way to it.")
}

/// The attribute that is the claim of these names.
pub(super) fn claim_of(payload: &str, names: &Items<'_, Text>) -> Property {
    let mut path = vec!["metadata", "filter_metadata", "envoy.filters.http.jwt_authn", payload];
    path.extend(names.iter());
    Property::new(&path)
}

object! {
    static ATTRIBUTE_TEST: AttributeTestFields = "attribute_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on an Envoy attribute; with a path only: it is there. An empty attribute is one that is not there; `request.headers.NAME` is read as the header.";
    path: List<Text> = attribute_path(),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
}

fn attribute_test(view: &View<'_, AttributeTestFields>) -> Condition {
    let (names, test) = (view.get(&ATTRIBUTE_TEST.path), value_test!(view, ATTRIBUTE_TEST));
    match header_at(&names) {
        Some(header) => Condition::Header(header, test),
        None => Condition::Attribute(attribute_at(&names), test),
    }
}

object! {
    static BODY_TEST: BodyTestFields = "body_json_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on a value of the request's JSON body; with a path only: it is there. `null` is no value.";
    path: Text = body_path(),
    in_query: Word<&'static str> = json_in_query(),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
}

fn body_test(view: &View<'_, BodyTestFields>) -> Condition {
    let path = in_body(view.get(&BODY_TEST.in_query), view.get(&BODY_TEST.path));
    Condition::Body(path, value_test!(view, BODY_TEST))
}

object! {
    static FIELD_TEST: FieldTestFields = "body_form_test", at_most_one(exact, one_of, prefix, regex, present),
        "A test on a field of the HTML form in the request's body; with a name only: it is there.";
    field: Text = field(),
    in_query: Word<&'static str> = in_query(),
    exact: Option<Text> = exact(),
    one_of as "in": Option<List<Text>> = one_of(),
    prefix: Option<Text> = prefix(),
    regex: Option<Text> = regex(),
    present: Option<Flag> = present(),
    normalize: List<Word<Step>> = normalize(),
}

fn field_test(view: &View<'_, FieldTestFields>) -> Condition {
    let field = in_body(view.get(&FIELD_TEST.in_query), view.get(&FIELD_TEST.field));
    Condition::Body(field, value_test!(view, FIELD_TEST))
}

/// The name of a form's field.
pub(super) const fn field() -> Draft<Text> {
    text(&TEXT).required("The field's name, decoded. In a form with a field of this name in other capitals, it cannot be read.")
}

/// The field for the meaning of a form's field that the query has, too: the beginning of the field's path.
pub(super) const fn in_query() -> Draft<Word<&'static str>> {
    word(&IN_QUERY).default("\"unreadable\"", "What a parameter of this name in the query means.")
}

/// The same for a value of JSON.
pub(super) const fn json_in_query() -> Draft<Word<&'static str>> {
    word(&JSON_IN_QUERY).default(
        "\"unreadable\"",
        "What a parameter of the query means that is named as the path's first key.",
    )
}

static JSON_IN_QUERY: Words<&'static str> = words! {
    "unreadable" => "", "Some servers join the query and the body, and read the parameter in place of the value: the value cannot be \
        read (see [request bodies](bodies.md)).";
    "ignored" => JSON_APART, "Your upstreams read this value in the body alone.";
};

static IN_QUERY: Words<&'static str> = words! {
    "unreadable" => FIELD, "Some servers join the query and the form, and read the parameter in place of the field: the field cannot be \
        read (see [HTML forms](bodies.md#html-forms)).";
    "ignored" => FIELD_APART, "Your upstreams read this field in the body alone.";
};

/// The path of a field or of a value of JSON, among those of values in a body.
pub(super) fn in_body(begins: &str, name: &str) -> String {
    [begins, name].concat()
}

/// The path of a value in a request's body.
pub(super) const fn body_path() -> Draft<Text> {
    text(&BODY_PATH).required("Where the value stands: `user.name`, `items[0].id`; a key with other characters is quoted: `['a.b']`.")
}

/// The names on the way to an attribute.
pub(super) const fn attribute_path() -> Draft<List<Text>> {
    list(const { &text(&TEXT) }, 1, 16)
        .required("The names on the way to it: `[\"connection\", \"requested_server_name\"]`.")
}

/// The header at the end of these names. Envoy joins its lines to one value, and some servers read only one of them.
pub(super) fn header_at(names: &Items<'_, Text>) -> Option<String> {
    match names.iter().collect::<Vec<_>>()[..] {
        // Those with a colon are of the request line.
        ["request", "headers", name] => (!name.contains(':')).then(|| name.to_ascii_lowercase()),
        _ => None,
    }
}

/// The attribute at the end of these names.
pub(super) fn attribute_at(names: &Items<'_, Text>) -> Property {
    Property::new(&names.iter().collect::<Vec<_>>())
}
