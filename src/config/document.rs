// SPDX-License-Identifier: Apache-2.0
//! The whole configuration.

use super::client_address::{self, CLIENT_ADDRESS, ClientAddressFields};
use super::condition::{self, ConditionFields};
use super::journal::{self, JOURNAL, JournalFields, TOP, TopFields};
use super::policy::{self, POLICY, PolicyFields};
use super::quota::{self, QUOTA, QuotaFields};
use super::regions::{self, REGIONS, RegionsFields};
use super::request_body::{self, REQUEST_BODY, RequestBodyFields};
use super::response::{self, RESPONSE, ResponseFields};
use super::schema::{
    Errors, Flag, Json, List, Map, Nested, TEXT, Text, View, flag, list, nested, object, text,
};
use super::store::{self, STORE, StoreFields};
use super::usage::{self, TableFields};
use super::usage_journal::{self, USAGE_JOURNAL, UsageJournalFields};
use super::{Config, ban, counters, names};
use crate::policy::index::{Index, MAX_CONDITIONS};
use crate::policy::list::Conditions;

object! {
    static DOCUMENT: DocumentFields = "config", "A plugin configuration: what to limit, and how to reach Redis.";
    schema as "$schema": Option<Text> = text(&TEXT)
        .optional("Where `weir.schema.json` is, for editors. The filter does not read it."),
    store: Nested<StoreFields> = nested(&STORE).default("{}", "How weir asks Redis about limits."),
    regions: Option<Nested<RegionsFields>> = nested(&REGIONS)
        .optional("The regions that share limits. By default there is one."),
    client_address: Nested<ClientAddressFields> = nested(&CLIENT_ADDRESS)
        .default("{}", "Which proxies are trusted to report the client's address. The same for every policy."),
    request_body: Nested<RequestBodyFields> = nested(&REQUEST_BODY)
        .default("{}", "How `body_json` reads the bodies of requests."),
    policies: List<Nested<PolicyFields>> = list(&nested(&POLICY), 1, MAX_CONDITIONS)
        .required("What to limit. Every policy that matches a request must admit it."),
    prices: Map<Nested<TableFields>> = usage::tables()
        .default("{}", "What the tokens of language models cost: tables, by names of your choice. `usage` names one of them."),
    quota: Option<Nested<QuotaFields>> = nested(&QUOTA)
        .optional("With which request clients ask what is left of their quota. By default there is none."),
    deny: List<Nested<ConditionFields>> = condition::list_of()
        .default("[]", "A request that meets one of these conditions is denied, before anything else and without Redis."),
    exempt: List<Nested<ConditionFields>> = condition::list_of()
        .default("[]", "A request that meets one of these conditions, and is not denied, is admitted by all policies without \
            Redis."),
    response: Nested<ResponseFields> = nested(&RESPONSE)
        .default("{}", "What clients see of decisions, unless a policy has a `response` of its own."),
    journal: Option<Nested<JournalFields>> = nested(&JOURNAL)
        .optional("Whether weir writes each denial to a stream in Redis, with its subject, policy, limit and time. By default it does not."),
    usage_journal: Nested<UsageJournalFields> = nested(&USAGE_JOURNAL)
        .default("{}", "How what subjects have used is added up in Redis, for the policies that have `usage_journal: true`."),
    top_denied: Option<Nested<TopFields>> = nested(&TOP)
        .optional("Whether each worker logs the subjects that it denies most, without asking Redis. By default it does not."),
    top_used: Option<Nested<TopFields>> = nested(&TOP)
        .optional("Whether each worker logs the subjects that use most units, without asking Redis. By default it does not."),
    emit_filter_state: Flag = flag().default("false", "Whether weir writes each decision to Envoy's filter state, as text, for \
        access logs and later filters: `weir.policy`, `weir.limit`, `weir.outcome` (`admitted`, `delayed`, `rejected`, `banned`, \
        `shadow`, `unanswered`, `enquiry`, or `denied` by a list or because of a missing or ambiguous part of the subject), `weir.remaining` and \
        `weir.source` (`redis`, `lease`, `denied-until` or `fallback`). Envoy puts `wasm.` before the names that `weir.wasm` \
        writes. In an access log: `%FILTER_STATE(wasm.weir.outcome:PLAIN)%` with `weir.wasm`, \
        `%FILTER_STATE(weir.outcome:PLAIN)%` with `libweir.so`."),
}

/// Reads a configuration that was checked against its shape.
pub(super) fn read(json: &Json, errors: &mut Errors) -> Config {
    let document = View::root(json, &DOCUMENT);
    let store = store::read(&document.get(&DOCUMENT.store), errors);
    let response = response::read(&document.get(&DOCUMENT.response), errors);
    let views = document.get(&DOCUMENT.policies);
    let regions = regions::read(document.get(&DOCUMENT.regions).as_ref(), &store, errors);
    let tables = usage::read_tables(&document.get(&DOCUMENT.prices), errors);
    let beside = (&store, &regions, &tables);
    let mut policies: Vec<_> =
        views.iter().map(|view| policy::read(&view, beside, &response, errors)).collect();
    names::qualify(&mut policies);
    if errors.found.is_empty() {
        names::check(&views, &policies, errors);
        counters::check(&views, &mut policies, errors);
        ban::read_scopes(&views, &mut policies, errors);
    }
    let [deny, exempt] = [&DOCUMENT.deny, &DOCUMENT.exempt]
        .map(|list| Conditions::new(condition::read_all(&document.get(list))));
    let body = document.get(&DOCUMENT.request_body);
    Config {
        hash: json.hash(),
        quota: document.get(&DOCUMENT.quota).map(|view| quota::read(&view, &policies, errors)),
        request_body: request_body::read(&body, &policies, [&deny, &exempt], &response, errors),
        store,
        regions,
        trust: client_address::read(&document.get(&DOCUMENT.client_address), errors),
        index: Index::new(policies.iter().map(|policy| &policy.matcher)),
        queues: policies
            .iter()
            .flat_map(|policy| &policy.tiers.tiers)
            .any(|tier| tier.queues.iter().any(Option::is_some)),
        bans_close: policies.iter().any(|policy| !policy.closed_by.is_empty()),
        settles: policies.iter().any(|policy| !policy.settle.is_empty()),
        counts_uploads: policies.iter().any(|policy| policy.settle.counts_uploads()),
        policies,
        deny,
        exempt,
        response,
        journal: document.get(&DOCUMENT.journal).map(|view| journal::read(&view)),
        usage_journal: usage_journal::read(&document.get(&DOCUMENT.usage_journal), errors),
        top_denied: document.get(&DOCUMENT.top_denied).map(|view| journal::read_top(&view)),
        top_used: document.get(&DOCUMENT.top_used).map(|view| journal::read_top(&view)),
        emit_filter_state: document.get(&DOCUMENT.emit_filter_state),
    }
}
