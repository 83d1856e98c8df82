//! weir's configuration, stated once. Validation, the published JSON Schema and the field reference in the docs
//! are read off these tables, so none of them can disagree with another.

use super::shape::{Choice, Doc, Field, Kind, Need, Shape, Word, doc};
use super::text::{BODY, HEADER, HOST, METHOD, NAME, NETWORK, PATH, RATE, REGEX, TEXT};
use crate::limit::{MAX_LOG, MAX_UNITS, MAX_WINDOW, MIN_WINDOW};
use crate::script::MAX_LIMITS;
use crate::time::Micros;

/// The largest count: limits, bursts, capacities, costs.
pub const MAX_COUNT: u64 = MAX_UNITS;
/// The longest window, interval or time to live.
pub const MAX_SPAN: Micros = MAX_WINDOW;
/// The shortest window or interval.
pub const MIN_SPAN: Micros = MIN_WINDOW;
/// The most policies in a configuration.
pub const MAX_POLICIES: usize = 256;
/// The most limits in one policy or tier.
pub const MAX_LIMITS_EACH: usize = MAX_LIMITS;
/// The most parts in one subject.
pub const MAX_PARTS: usize = 8;

const fn field(name: &'static str, kind: Kind, need: Need, doc: Doc) -> Field {
    Field { name, kind, need, doc }
}

const fn word(name: &'static str, doc: Doc) -> Word {
    Word { name, doc }
}

const fn plain(name: &'static str, doc: Doc, fields: &'static [Field]) -> Shape {
    Shape { name, doc, fields, choice: Choice::Free }
}

/// The whole configuration.
pub static CONFIG: Shape = plain(
    "config",
    doc("A plugin configuration: what to limit, and how to reach the store."),
    &[
        field(
            "$schema",
            Kind::Text(&TEXT),
            Need::Optional,
            doc("Where `weir.schema.json` is, for editors. The filter does not read it."),
        ),
        field("store", Kind::Object(&STORE), Need::Default("{}"), doc("How limits are asked of Redis.")),
        field(
            "client_address",
            Kind::Object(&CLIENT_ADDRESS),
            Need::Default("{}"),
            doc("Whose word is taken for the client's address. The same for every policy."),
        ),
        field(
            "policies",
            Kind::List(&Kind::Object(&POLICY), 1, MAX_POLICIES),
            Need::Required,
            doc("What to limit. Every policy that matches a request must admit it."),
        ),
        field(
            "deny",
            Kind::List(&Kind::Object(&CONDITION), 0, 256),
            Need::Default("[]"),
            doc(
                "A request that meets one of these conditions is denied, before anything else and without Redis.",
            ),
        ),
        field(
            "exempt",
            Kind::List(&Kind::Object(&CONDITION), 0, 256),
            Need::Default("[]"),
            doc(
                "A request that meets one of these conditions, and is not denied, is admitted by all policies without Redis.",
            ),
        ),
        field(
            "response",
            Kind::Object(&RESPONSE),
            Need::Default("{}"),
            doc("How decisions are told to clients, unless a policy says otherwise."),
        ),
        field(
            "emit_filter_state",
            Kind::Flag,
            Need::Default("false"),
            doc(
                "Whether each decision is left in Envoy's filter state, as text, for access logs and later filters: `wasm.weir.policy`, `wasm.weir.limit`, `wasm.weir.outcome` (`admitted`, `delayed`, `rejected`, `shadow`, `unanswered`, or `denied` by a list or for what a subject lacks), `wasm.weir.remaining` and `wasm.weir.source` (`redis`, `lease`, `denied-until` or `fallback`). In an access log: `%FILTER_STATE(wasm.weir.outcome:PLAIN)%`.",
            ),
        ),
    ],
);

static STORE: Shape = plain(
    "store",
    doc("How limits are asked of Redis."),
    &[
        field(
            "cluster",
            Kind::Text(&TEXT),
            Need::Default("\"weir-bridge\""),
            doc("The Envoy cluster that leads to Redis, with weir's bridge as its filter."),
        ),
        field(
            "deadline",
            Kind::Span(MIN_SPAN, Micros::from_secs(10)),
            Need::Default("\"50ms\""),
            doc("How long a request is held for an answer. After that, `on_failure` decides."),
        ),
        field(
            "on_failure",
            Kind::Word(ON_FAILURE),
            Need::Default("\"allow\""),
            doc("What happens to a request that Redis does not answer in time, or not properly."),
        ),
        field(
            "topology",
            Kind::Word(TOPOLOGY),
            Need::Default("\"any\""),
            doc("Where the keys are. It never changes what is decided, only what it costs."),
        ),
        field(
            "workers",
            Kind::Count(1, 1_000_000),
            Need::Default("1"),
            doc(
                "How many workers there are: proxies times their worker threads. Only `on_failure: local` asks.",
            ),
        ),
        field(
            "denial_ttl",
            Kind::Span(Micros::ZERO, Micros::from_secs(3600)),
            Need::Default("\"1s\""),
            doc(
                "How long a worker denies a subject without asking Redis again: between this and twice this, so that workers and subjects do not all ask at once. The worker sees changes in Redis (`DEL`, `FLUSHALL`) by then. `0s` asks about every request. See Denials.",
            ),
        ),
    ],
);

static TOPOLOGY: &[Word] = &[
    word(
        "any",
        doc(
            "In one Redis or in several: a Redis Cluster, or servers that redis_proxy spreads keys over. Redis runs a script for each subject.",
        ),
    ),
    word(
        "single",
        doc(
            "All in one Redis, with or without replicas and Sentinel. Redis runs one script for up to 64 subjects that are asked about at the same time. A Redis Cluster refuses that (`CROSSSLOT`); where redis_proxy spreads keys over several servers it must not be set, for a subject would be counted on more than one.",
        ),
    ),
];

static ON_FAILURE: &[Word] = &[
    word("allow", doc("The request is admitted; nothing is counted.")),
    word("deny", doc("The request is rejected with status 503, and `Retry-After: 1`.")),
    word(
        "local",
        doc(
            "Each worker limits by itself: counts are the limit's divided by the store's `workers`, from when Redis failed.",
        ),
    ),
];

static CLIENT_ADDRESS: Shape = Shape {
    name: "client_address",
    doc: doc(
        "Whose word is taken for the client's address. Without fields it is the connection's. The left end of a \
         chain is never believed: it is what the client wrote.",
    ),
    fields: &[
        field(
            "header",
            Kind::Text(&HEADER),
            Need::Default("\"x-forwarded-for\""),
            doc("The header that proxies append to."),
        ),
        field(
            "trusted_hops",
            Kind::Count(0, 32),
            Need::Optional,
            doc(
                "How many proxies stand in front of Envoy, all trusted. The client is that many hops left of the \
                 connection; when the chain is shorter, it is the connection.",
            ),
        ),
        field(
            "trusted_networks",
            Kind::List(&Kind::Text(&NETWORK), 1, 256),
            Need::Optional,
            doc(
                "Where trusted proxies have their addresses. The client is the first hop, from the connection leftwards, \
                 that is not among them.",
            ),
        ),
    ],
    choice: Choice::AtMostOne(&["trusted_hops", "trusted_networks"]),
};

static POLICY: Shape = Shape {
    name: "policy",
    doc: doc("Which requests are limited, who shares a limit, and how much is allowed."),
    fields: &[
        field(
            "name",
            Kind::Text(&NAME),
            Need::Required,
            doc("Its name: in keys, headers, metrics and logs."),
        ),
        field(
            "match",
            Kind::Object(&CONDITION),
            Need::Default("{}"),
            doc(
                "Which requests it is about. By default all. In doubt (see Readings) it is about the request.",
            ),
        ),
        field(
            "subject",
            Kind::List(&Kind::Object(&PART), 1, MAX_PARTS),
            Need::Default(r#"[{"client_address": {}}]"#),
            doc(
                "Who is limited: requests with the same parts share the limits. By default each client address.",
            ),
        ),
        field(
            "limits",
            Kind::List(&LIMIT, 1, MAX_LIMITS_EACH),
            Need::Optional,
            doc("How much is allowed. All-or-nothing: a request that one limit denies is charged to none."),
        ),
        field("tiers", Kind::Object(&TIERS), Need::Optional, doc("Limits that depend on the request.")),
        field(
            "cost",
            Kind::Object(&COST),
            Need::Default(r#"{"constant": 1}"#),
            doc("How many units a request takes."),
        ),
        field(
            "deny",
            Kind::List(&Kind::Object(&CONDITION), 0, 256),
            Need::Default("[]"),
            doc("Matching requests that meet one of these conditions are denied without Redis."),
        ),
        field(
            "exempt",
            Kind::List(&Kind::Object(&CONDITION), 0, 256),
            Need::Default("[]"),
            doc(
                "Matching requests that meet one of these conditions, and are not denied, pass this policy without Redis.",
            ),
        ),
        field("mode", Kind::Word(MODE), Need::Default("\"enforce\""), doc("What a denial leads to.")),
        field(
            "enforce_percent",
            Kind::Count(0, 100),
            Need::Default("100"),
            doc(
                "For how many of a hundred subjects denials are enforced; the others are in shadow. Stable: a subject \
                 that is enforced stays so when the number grows.",
            ),
        ),
        field(
            "overrides",
            Kind::Flag,
            Need::Default("false"),
            doc("Whether limits of single subjects can be changed in Redis, without a new configuration."),
        ),
        field(
            "lease",
            Kind::Object(&LEASE),
            Need::Optional,
            doc(
                "Whether workers take requests in advance, to admit them without asking Redis. See [leases](#leases).",
            ),
        ),
        field(
            "on_failure",
            Kind::Word(ON_FAILURE),
            Need::Optional,
            doc("In place of the store's, for this policy."),
        ),
        field(
            "response",
            Kind::Object(&RESPONSE),
            Need::Optional,
            doc("In place of the configuration's, as a whole."),
        ),
    ],
    choice: Choice::One(&["limits", "tiers"]),
};

static MODE: &[Word] = &[
    word("enforce", doc("The request is rejected.")),
    word("shadow", doc("Everything is counted and reported, nothing is rejected.")),
];

static CONDITION: Shape = plain(
    "condition",
    doc("Holds when all of its fields hold; without fields it always does."),
    &[
        field("path", Kind::Object(&PATH_TEST), Need::Optional, doc("The path, without its query.")),
        field(
            "method",
            Kind::List(&Kind::Text(&METHOD), 1, 32),
            Need::Optional,
            doc("The method is one of these; capitals and small letters are the same."),
        ),
        field(
            "host",
            Kind::List(&Kind::Text(&HOST), 1, 256),
            Need::Optional,
            doc(
                "The host, without its port, is one of these; `*.example.com` is every host below example.com.",
            ),
        ),
        field("header", Kind::Object(&HEADER_TEST), Need::Optional, doc("A request header.")),
        field("query", Kind::Object(&QUERY_TEST), Need::Optional, doc("A query parameter, decoded.")),
        field(
            "route",
            Kind::List(&Kind::Text(&TEXT), 1, 256),
            Need::Optional,
            doc("The name of the Envoy route is one of these."),
        ),
        field(
            "client_address",
            Kind::List(&Kind::Text(&NETWORK), 1, 1024),
            Need::Optional,
            doc("The client's address (see `client_address`) lies in one of these networks."),
        ),
        field("all", Kind::List(&Kind::Object(&CONDITION), 1, 64), Need::Optional, doc("All of these hold.")),
        field(
            "any",
            Kind::List(&Kind::Object(&CONDITION), 1, 64),
            Need::Optional,
            doc("At least one of these holds."),
        ),
        field("not", Kind::Object(&CONDITION), Need::Optional, doc("This does not hold.")),
    ],
);

static TRAILING_SLASH: &[Word] = &[
    word(
        "ambiguous",
        doc("Some upstreams take `/login/` for `/login`, others do not: both readings count (see Readings)."),
    ),
    word("distinct", doc("Your upstreams take `/login/` and `/login` for two paths.")),
];

static SEMICOLON: &[Word] = &[
    word(
        "ambiguous",
        doc(
            "For some upstreams it ends a parameter as `&` does, for others not: both readings count (see Readings).",
        ),
    ),
    word("literal", doc("For your upstreams it is part of a value.")),
];

const fn trailing_slash() -> Field {
    field(
        "trailing_slash",
        Kind::Word(TRAILING_SLASH),
        Need::Default("\"ambiguous\""),
        doc("What a slash at the end of the path means."),
    )
}

const fn semicolon() -> Field {
    field(
        "semicolon",
        Kind::Word(SEMICOLON),
        Need::Default("\"ambiguous\""),
        doc("What a `;` in the query means."),
    )
}

static PATH_TEST: Shape = Shape {
    name: "path_test",
    doc: doc("What the path is like. Matched in every spelling an upstream may understand (see Readings)."),
    fields: &[
        field("exact", Kind::Text(&PATH), Need::Optional, doc("It is this path.")),
        field(
            "prefix",
            Kind::Text(&PATH),
            Need::Optional,
            doc(
                "It is this path or lies below it: `/api` is a prefix of `/api` and `/api/x`, not of `/apiary`.",
            ),
        ),
        field("regex", Kind::Text(&REGEX), Need::Optional, doc("The whole path matches.")),
        trailing_slash(),
    ],
    choice: Choice::One(&["exact", "prefix", "regex"]),
};

static HEADER_TEST: Shape = value_test(
    "header_test",
    doc("What a header is like; with a name only: it is there."),
    &[
        field("name", Kind::Text(&HEADER), Need::Required, doc("The header's name, in lower case.")),
        field("exact", Kind::Text(&TEXT), Need::Optional, doc("Its value is this.")),
        field("prefix", Kind::Text(&TEXT), Need::Optional, doc("Its value begins with this.")),
        field("regex", Kind::Text(&REGEX), Need::Optional, doc("Its whole value matches.")),
        field("present", Kind::Flag, Need::Optional, doc("It is there, or not there.")),
    ],
);

static QUERY_TEST: Shape = value_test(
    "query_test",
    doc("What a query parameter is like; with a name only: it is there."),
    &[
        field("name", Kind::Text(&TEXT), Need::Required, doc("The parameter's name, decoded.")),
        field("exact", Kind::Text(&TEXT), Need::Optional, doc("Its value is this.")),
        field("prefix", Kind::Text(&TEXT), Need::Optional, doc("Its value begins with this.")),
        field("regex", Kind::Text(&REGEX), Need::Optional, doc("Its whole value matches.")),
        field("present", Kind::Flag, Need::Optional, doc("It is there, or not there.")),
        semicolon(),
    ],
);

const fn value_test(name: &'static str, doc: Doc, fields: &'static [Field]) -> Shape {
    Shape { name, doc, fields, choice: Choice::AtMostOne(&["exact", "prefix", "regex", "present"]) }
}

static PART: Shape = Shape {
    name: "subject_part",
    doc: doc("One thing that tells subjects apart."),
    fields: &[
        field("client_address", Kind::Object(&ADDRESS_PART), Need::Optional, doc("The client's address.")),
        field("header", Kind::Object(&HEADER_NAME), Need::Optional, doc("A header's value.")),
        field("cookie", Kind::Object(&TEXT_NAME), Need::Optional, doc("A cookie's value.")),
        field("query", Kind::Object(&QUERY_NAME), Need::Optional, doc("A query parameter's value, decoded.")),
        field("path", Kind::Object(&PATH_PART), Need::Optional, doc("The resolved path, without its query.")),
        field(
            "path_segment",
            Kind::Object(&SEGMENT),
            Need::Optional,
            doc("One segment of the resolved path."),
        ),
        field("method", Kind::Object(&NOTHING), Need::Optional, doc("The method, in capitals.")),
        field(
            "host",
            Kind::Object(&NOTHING),
            Need::Optional,
            doc("The host, in lower case, without its port."),
        ),
        field("route", Kind::Object(&NOTHING), Need::Optional, doc("The name of the Envoy route.")),
        field(
            "jwt_claim",
            Kind::Object(&CLAIM),
            Need::Optional,
            doc("A claim of a token that Envoy's jwt_authn verified."),
        ),
        field(
            "tls_subject",
            Kind::Object(&NOTHING),
            Need::Optional,
            doc("The subject of the client's certificate (mTLS)."),
        ),
        field("attribute", Kind::Object(&PROPERTY), Need::Optional, doc("Any Envoy attribute.")),
        field("literal", Kind::Text(&TEXT), Need::Optional, doc("This text, for everybody.")),
        field(
            "on_missing",
            Kind::Word(&[
                word("share", doc("All requests without it share one subject.")),
                word("skip", doc("The policy does not apply.")),
                word("deny", doc("The request is denied, without Redis.")),
            ]),
            Need::Default("\"share\""),
            doc("What happens when the request does not have it."),
        ),
        field(
            "on_multiple",
            Kind::Word(&[
                word("deny", doc("The request is denied, without Redis.")),
                word("first", doc("The first value counts.")),
                word("last", doc("The last value counts.")),
                word("join", doc("All values count, joined by commas.")),
            ]),
            Need::Default("\"deny\""),
            doc(
                "What happens when a header is sent on several lines, or a cookie or query parameter several times. \
                 Upstreams differ in which one they take, so that a client could choose its subject.",
            ),
        ),
    ],
    choice: Choice::One(&[
        "client_address",
        "header",
        "cookie",
        "query",
        "path",
        "path_segment",
        "method",
        "host",
        "route",
        "jwt_claim",
        "tls_subject",
        "attribute",
        "literal",
    ]),
};

static NOTHING: Shape = plain("empty", doc("An empty object: the kind of part has no settings."), &[]);

static ADDRESS_PART: Shape = plain(
    "client_address_part",
    doc("How many bits of an address tell clients apart."),
    &[
        field(
            "ipv4_prefix",
            Kind::Count(8, 32),
            Need::Default("32"),
            doc("Of IPv4, and of IPv4-mapped IPv6."),
        ),
        field(
            "ipv6_prefix",
            Kind::Count(16, 128),
            Need::Default("64"),
            doc(
                "Of IPv6. One customer usually has a /64 or more, and could take a new address for each request.",
            ),
        ),
    ],
);

static HEADER_NAME: Shape = plain(
    "header_part",
    doc("A header."),
    &[field("name", Kind::Text(&HEADER), Need::Required, doc("The header's name, in lower case."))],
);

static TEXT_NAME: Shape = plain(
    "cookie_part",
    doc("A cookie."),
    &[field("name", Kind::Text(&TEXT), Need::Required, doc("Its name."))],
);

static QUERY_NAME: Shape = plain(
    "query_part",
    doc("A query parameter."),
    &[field("name", Kind::Text(&TEXT), Need::Required, doc("Its name, decoded.")), semicolon()],
);

static PATH_PART: Shape = plain("path_part", doc("The path."), &[trailing_slash()]);

static SEGMENT: Shape = plain(
    "path_segment_part",
    doc("One segment of the path."),
    &[field(
        "index",
        Kind::Count(1, 64),
        Need::Required,
        doc("Which one, from 1: in `/v1/users/7` the second is `users`."),
    )],
);

static CLAIM: Shape = plain(
    "jwt_claim_part",
    doc(
        "A claim of a verified token. It should be a string: other values are used as Envoy serialises them.",
    ),
    &[
        field(
            "payload",
            Kind::Text(&TEXT),
            Need::Default("\"jwt_payload\""),
            doc("Where jwt_authn puts the claims: its `payload_in_metadata`."),
        ),
        field(
            "claim",
            Kind::List(&Kind::Text(&TEXT), 1, 8),
            Need::Required,
            doc("The claim's name; for a claim inside another, the names on the way to it."),
        ),
    ],
);

static PROPERTY: Shape = plain(
    "attribute_part",
    doc("An Envoy attribute."),
    &[field(
        "path",
        Kind::List(&Kind::Text(&TEXT), 1, 16),
        Need::Required,
        doc("The names on the way to it: `[\"connection\", \"requested_server_name\"]`."),
    )],
);

static LIMIT: Kind = Kind::Tagged(
    "algorithm",
    &[&FIXED_WINDOW, &SLIDING_LOG, &SLIDING_WINDOW, &TOKEN_BUCKET, &LEAKY_BUCKET, &CONCURRENCY],
);

const fn limit_name() -> Field {
    field("name", Kind::Text(&NAME), Need::Required, doc("Its name: in keys, headers, metrics and logs."))
}

const fn limit_of(doc: Doc) -> Field {
    field("limit", Kind::Count(1, MAX_COUNT), Need::Required, doc)
}

const fn window(doc: Doc) -> Field {
    field("window", Kind::Span(MIN_SPAN, MAX_SPAN), Need::Required, doc)
}

static FIXED_WINDOW: Shape = plain(
    "fixed_window",
    doc("So many in each window. The cheapest; up to twice as many around the border of two windows."),
    &[
        limit_name(),
        limit_of(doc("The most units in a window.")),
        window(doc("How long a window is.")),
        field(
            "align",
            Kind::Word(&[
                word("clock", doc("Windows begin at multiples of their length: every full minute.")),
                word("first", doc("A window begins with the first request after the last one ended.")),
            ]),
            Need::Default("\"clock\""),
            doc("When windows begin."),
        ),
    ],
);

static SLIDING_LOG: Shape = plain(
    "sliding_log",
    doc("Exact: never more in any window, wherever it begins. Remembers every request, so for small limits."),
    &[
        limit_name(),
        field("limit", Kind::Count(1, MAX_LOG), Need::Required, doc("The most units in any window.")),
        window(doc("How long a window is.")),
    ],
);

static SLIDING_WINDOW: Shape = plain(
    "sliding_window",
    doc("Nearly exact, in little memory: counts in sub-windows, the oldest in proportion to its overlap."),
    &[
        limit_name(),
        limit_of(doc("The most units in any window.")),
        window(doc("How long a window is.")),
        field(
            "precision",
            Kind::Span(MIN_SPAN, MAX_SPAN),
            Need::Optional,
            doc(
                "How long a sub-window is: the window divided by a whole number. By default the window itself, which is \
                 the well-known two-window counter.",
            ),
        ),
    ],
);

static TOKEN_BUCKET: Shape = plain(
    "token_bucket",
    doc("A bucket that starts full, is emptied by requests and refilled by time. Bursts up to its capacity."),
    &[
        limit_name(),
        field(
            "capacity",
            Kind::Count(1, MAX_COUNT),
            Need::Required,
            doc("The most tokens it holds: the burst."),
        ),
        field(
            "refill",
            Kind::Count(1, MAX_COUNT),
            Need::Required,
            doc("How many tokens come back in an interval."),
        ),
        field("interval", Kind::Span(MIN_SPAN, MAX_SPAN), Need::Required, doc("How long an interval is.")),
        field(
            "mode",
            Kind::Word(&[
                word("continuous", doc("Tokens come back one by one, evenly.")),
                word("stepwise", doc("All of an interval's tokens come back at its end.")),
            ]),
            Need::Default("\"continuous\""),
            doc("How tokens come back."),
        ),
        field(
            "overdraft",
            Kind::Count(0, MAX_COUNT),
            Need::Default("0"),
            doc("How far below empty one request may go: take now, pay later."),
        ),
    ],
);

static LEAKY_BUCKET: Shape = plain(
    "leaky_bucket",
    doc(
        "A steady rate with a burst (GCRA, like nginx `limit_req`). Can hold requests back until their turn.",
    ),
    &[
        limit_name(),
        field("rate", Kind::Text(&RATE), Need::Required, doc("The steady rate.")),
        field("burst", Kind::Count(1, MAX_COUNT), Need::Default("1"), doc("How many may come at once.")),
        field(
            "max_delay",
            Kind::Span(Micros::ZERO, Micros::from_secs(60)),
            Need::Default("\"0s\""),
            doc("How long a request beyond the burst may be held until its turn; `0s` rejects it."),
        ),
    ],
);

static CONCURRENCY: Shape = plain(
    "concurrency",
    doc("So many requests in flight at once."),
    &[
        limit_name(),
        limit_of(doc("The most requests in flight.")),
        field(
            "ttl",
            Kind::Span(MIN_SPAN, MAX_SPAN),
            Need::Default("\"60s\""),
            doc(
                "After how long a request counts as finished when nobody said so: a crashed proxy leaks nothing.",
            ),
        ),
        field(
            "retry_after",
            Kind::Span(Micros::from_secs(1), Micros::from_secs(3600)),
            Need::Optional,
            doc(
                "What a client is told as `Retry-After` when all places are taken: your estimate of when one is free. By \
                 default the client is told no time, because a place is free when a request ends, and weir does not know when.",
            ),
        ),
    ],
);

static TIERS: Shape = plain(
    "tiers",
    doc(
        "Limits chosen by the request: a plan header or a claim names the tier. Each tier counts for itself.",
    ),
    &[
        field(
            "by",
            Kind::Object(&PART),
            Need::Required,
            doc("What names the tier. Its `on_missing` and `on_multiple` are not read."),
        ),
        field(
            "default",
            Kind::Text(&NAME),
            Need::Required,
            doc("The tier of requests that name none, or none that exists."),
        ),
        field(
            "limits",
            Kind::Map(&Kind::List(&LIMIT, 1, MAX_LIMITS_EACH), 1, 64),
            Need::Required,
            doc("The tiers: names, and the limits of each."),
        ),
    ],
);

static LEASE: Shape = plain(
    "lease",
    doc(
        "How many requests of one subject a worker may take in advance, and for how long. It takes more when it runs \
         out and less when it has some left. Not for policies with a `concurrency` limit or a `max_delay`.",
    ),
    &[
        field(
            "max",
            Kind::Count(1, 1_000_000),
            Need::Required,
            doc("The most requests that one worker holds in advance of one subject."),
        ),
        field(
            "min",
            Kind::Count(1, 1_000_000),
            Need::Default("1"),
            doc("The fewest that it takes in advance; at most `max`."),
        ),
        field(
            "duration",
            Kind::Span(MIN_SPAN, Micros::from_secs(60)),
            Need::Default("\"1s\""),
            doc("How long it may hold them. What is left then goes back."),
        ),
    ],
);

static COST: Shape = Shape {
    name: "cost",
    doc: doc("How many units a request takes from every limit of the policy."),
    fields: &[
        field(
            "constant",
            Kind::Count(0, MAX_COUNT),
            Need::Optional,
            doc("This many; 0 asks without taking."),
        ),
        field("header", Kind::Object(&COST_HEADER), Need::Optional, doc("What a header says.")),
        field("query", Kind::Object(&COST_QUERY), Need::Optional, doc("What a query parameter says.")),
        field(
            "content_length",
            Kind::Object(&COST_LENGTH),
            Need::Optional,
            doc("By the size of the request's body."),
        ),
    ],
    choice: Choice::One(&["constant", "header", "query", "content_length"]),
};

const fn cost_absent() -> Field {
    field(
        "on_missing",
        Kind::Count(0, MAX_COUNT),
        Need::Default("1"),
        doc("The cost when it is absent or no whole number."),
    )
}

const fn cost_min() -> Field {
    field("min", Kind::Count(0, MAX_COUNT), Need::Default("1"), doc("The cost is at least this."))
}

const fn cost_max() -> Field {
    field("max", Kind::Count(1, MAX_COUNT), Need::Default("1000000"), doc("The cost is at most this."))
}

static COST_HEADER: Shape = plain(
    "cost_header",
    doc("The cost is a whole number in a header."),
    &[
        field("name", Kind::Text(&HEADER), Need::Required, doc("The header's name, in lower case.")),
        cost_absent(),
        cost_min(),
        cost_max(),
    ],
);

static COST_QUERY: Shape = plain(
    "cost_query",
    doc("The cost is a whole number in a query parameter."),
    &[
        field("name", Kind::Text(&TEXT), Need::Required, doc("The parameter's name.")),
        cost_absent(),
        cost_min(),
        cost_max(),
    ],
);

static COST_LENGTH: Shape = plain(
    "cost_length",
    doc(
        "The cost is `content-length`, in units of so many bytes, rounded up. A body without `content-length` (chunked, HTTP/2, a WebSocket) costs `max`.",
    ),
    &[
        field("per", Kind::Count(1, MAX_COUNT), Need::Default("1"), doc("How many bytes are one unit.")),
        field(
            "on_missing",
            Kind::Count(0, MAX_COUNT),
            Need::Default("1"),
            doc("The cost of a request that has neither `content-length` nor a body."),
        ),
        cost_min(),
        cost_max(),
    ],
);

static RESPONSE: Shape = plain(
    "response",
    doc("How decisions are told to clients."),
    &[
        field(
            "status",
            Kind::Count(400, 599),
            Need::Default("429"),
            doc("The status of a request over its limit."),
        ),
        field(
            "deny_status",
            Kind::Count(400, 599),
            Need::Default("403"),
            doc("The status of a request on a deny list, or denied for an absent or ambiguous subject."),
        ),
        field(
            "format",
            Kind::Word(&[
                word(
                    "problem",
                    doc(
                        "`application/problem+json` (RFC 9457), type `quota-exceeded`, with `violated-policies`.",
                    ),
                ),
                word("json", doc("`application/json`: `body`, or a small object.")),
                word("text", doc("`text/plain`: `body`, or a sentence.")),
                word("empty", doc("No body.")),
            ]),
            Need::Default("\"problem\""),
            doc("What the body of a rejection is."),
        ),
        field(
            "body",
            Kind::Text(&BODY),
            Need::Optional,
            doc("The body of a rejection, for formats `json` and `text`."),
        ),
        field(
            "headers",
            Kind::Word(&[
                word(
                    "draft_11",
                    doc(
                        "`RateLimit-Policy` and `RateLimit`, as draft-ietf-httpapi-ratelimit-headers-11 has them.",
                    ),
                ),
                word(
                    "x_ratelimit",
                    doc(
                        "`X-RateLimit-Limit`, `-Remaining` and `-Reset` (the same seconds as `t`), of the limit nearest its end.",
                    ),
                ),
                word("none", doc("None. `Retry-After` is sent all the same.")),
            ]),
            Need::Default("\"draft_11\""),
            doc("Which headers tell a client where it stands, on rejected and on admitted responses."),
        ),
        field(
            "upstream_headers",
            Kind::Word(&[
                word("replace", doc("weir's stand in their place.")),
                word("keep", doc("They stay, and weir adds none of the same name.")),
                word("append", doc("Both are there, weir's after them.")),
            ]),
            Need::Default("\"replace\""),
            doc("What happens to headers of the same names that the upstream sends."),
        ),
        field(
            "retry_jitter",
            Kind::Span(Micros::ZERO, Micros::from_secs(3600)),
            Need::Default("\"0s\""),
            doc(
                "`Retry-After` is later than the truth by a random time up to this, so that clients do not all come back at once.",
            ),
        ),
    ],
);
