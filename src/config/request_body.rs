// SPDX-License-Identifier: Apache-2.0
//! `request_body`: how much of a request's body is read, and how long a request waits for it.

use std::rc::Rc;

use super::schema::{Count, Duration, Errors, View, count, duration, object};
use crate::limit::MIN_WINDOW;
use crate::policy::Policy;
use crate::policy::list::Conditions;
use crate::request::body::{MAX_BODY_PATHS, Wanted, field};
use crate::response::{Api, Body, Settings};
use crate::time::Micros;

/// The values of request bodies that policies need.
#[derive(Clone, Debug)]
pub struct RequestBody {
    /// The values, and how large a body may be; absent if no policy needs any.
    pub wanted: Option<Rc<Wanted>>,
    /// The time for which a request waits for its body.
    pub timeout: Micros,
}

object! {
    static REQUEST_BODY: RequestBodyFields = "request_body",
        "How `body_json` and `body_form` read the bodies of requests. See [request bodies](bodies.md).";
    max_bytes: Count<usize> = count(1, 1_048_576)
        .default("65536", "A larger body is not read. The value may be any then: see [readings](readings.md). At most the listener's \
            `per_connection_buffer_limit_bytes` (1 MiB unless set): Envoy stops reading from a client there, and a larger body never comes whole."),
    timeout: Duration = duration(MIN_WINDOW, Micros::from_secs(3600))
        .default("\"10s\"", "How long a request waits for its body. After that, it is rejected with the status 408. While very many wait, it is less: \
            see [request bodies](bodies.md)."),
}

pub(super) fn read(
    view: &View<'_, RequestBodyFields>,
    policies: &[Policy],
    lists: [&Conditions; 2],
    response: &Settings,
    errors: &mut Errors,
) -> RequestBody {
    let mut paths = Vec::<String>::new();
    let mut add = |path: &str| {
        if !paths.iter().any(|other| other == path) {
            paths.push(path.to_owned());
        }
    };
    policies.iter().for_each(|policy| policy.body_paths(&mut add));
    let listed = lists.into_iter().flat_map(|list| list.conditions());
    listed.for_each(|condition| condition.body_paths(&mut add));
    let fields = paths.iter().filter(|path| field(path).is_some()).count();
    let of_json = paths.len().saturating_sub(fields);
    for (found, what) in [(of_json, "paths of `body_json`"), (fields, "fields of `body_form`")] {
        if found > MAX_BODY_PATHS {
            let allowed = format!("up to {MAX_BODY_PATHS} different {what}, of all policies together");
            errors.add("policies", format_args!("{found} different {what}"), allowed);
        }
    }
    // A rejection in JSON-RPC names the calls that it answers, if a policy needs the body in any event.
    let responses = policies.iter().map(|policy| &policy.response).chain([response]);
    let names_calls = responses.into_iter().any(|response| response.body == Body::Api(Api::JsonRpc));
    let max_bytes = view.get(&REQUEST_BODY.max_bytes);
    let wanted = Some(paths).filter(|paths| !paths.is_empty());
    RequestBody {
        wanted: wanted
            .and_then(|paths| Wanted::new(paths, max_bytes))
            .map(|wanted| Rc::new(wanted.with_ids(names_calls))),
        timeout: view.get(&REQUEST_BODY.timeout),
    }
}
