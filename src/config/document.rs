//! The whole configuration.

use super::client_address::{self, CLIENT_ADDRESS, ClientAddressFields};
use super::condition::{self, ConditionFields};
use super::policy::{self, POLICY, PolicyFields};
use super::response::{self, RESPONSE, ResponseFields};
use super::schema::{Errors, Flag, Json, List, Nested, TEXT, Text, View, flag, list, nested, object, text};
use super::store::{self, STORE, StoreFields};
use super::{Config, counters, names};
use crate::policy::index::{Index, MAX_CONDITIONS};
use crate::policy::list::Conditions;

object! {
    static DOCUMENT: DocumentFields = "config", "A plugin configuration: what to limit, and how to reach Redis.";
    schema as "$schema": Option<Text> = text(&TEXT)
        .optional("Where `weir.schema.json` is, for editors. The filter does not read it."),
    store: Nested<StoreFields> = nested(&STORE).default("{}", "How weir asks Redis about limits."),
    client_address: Nested<ClientAddressFields> = nested(&CLIENT_ADDRESS)
        .default("{}", "Which proxies are trusted to report the client's address. The same for every policy."),
    policies: List<Nested<PolicyFields>> = list(&nested(&POLICY), 1, MAX_CONDITIONS)
        .required("What to limit. Every policy that matches a request must admit it."),
    deny: List<Nested<ConditionFields>> = condition::list_of()
        .default("[]", "A request that meets one of these conditions is denied, before anything else and without Redis."),
    exempt: List<Nested<ConditionFields>> = condition::list_of()
        .default("[]", "A request that meets one of these conditions, and is not denied, is admitted by all policies without \
            Redis."),
    response: Nested<ResponseFields> = nested(&RESPONSE)
        .default("{}", "What clients see of decisions, unless a policy has a `response` of its own."),
    emit_filter_state: Flag = flag().default("false", "Whether weir writes each decision to Envoy's filter state, as text, for \
        access logs and later filters: `weir.policy`, `weir.limit`, `weir.outcome` (`admitted`, `delayed`, `rejected`, `banned`, \
        `shadow`, `unanswered`, or `denied` by a list or because of a missing or ambiguous part of the subject), `weir.remaining` and \
        `weir.source` (`redis`, `lease`, `denied-until` or `fallback`). Envoy puts `wasm.` before the names that `weir.wasm` \
        writes. In an access log: `%FILTER_STATE(wasm.weir.outcome:PLAIN)%` with `weir.wasm`, \
        `%FILTER_STATE(weir.outcome:PLAIN)%` with `libweir.so`."),
}

/// Reads a configuration that was checked against its shape.
pub(super) fn read(json: &Json, errors: &mut Errors) -> Config {
    let document = View::root(json, &DOCUMENT);
    let store = store::read(&document.get(&DOCUMENT.store));
    let response = response::read(&document.get(&DOCUMENT.response), errors);
    let views = document.get(&DOCUMENT.policies);
    let mut policies: Vec<_> =
        views.iter().map(|view| policy::read(&view, &store, &response, errors)).collect();
    names::qualify(&mut policies);
    if errors.found.is_empty() {
        names::check(&views, &policies, errors);
        counters::check(&views, &policies, errors);
    }
    Config {
        store,
        trust: client_address::read(&document.get(&DOCUMENT.client_address), errors),
        index: Index::new(policies.iter().map(|policy| &policy.matcher)),
        settles: policies.iter().any(|policy| !policy.settle.is_empty()),
        policies,
        deny: Conditions::new(condition::read_all(&document.get(&DOCUMENT.deny))),
        exempt: Conditions::new(condition::read_all(&document.get(&DOCUMENT.exempt))),
        response,
        emit_filter_state: document.get(&DOCUMENT.emit_filter_state),
    }
}
