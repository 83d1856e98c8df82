// SPDX-License-Identifier: Apache-2.0
//! The fields of a request that policies read, and a log may lack: a policy that never applies may only miss what the log does not have.

use std::collections::BTreeSet;

use crate::request;
use weir::config::Config;
use weir::policy::Policy;
use weir::policy::matcher::{Condition, OnAmbiguity};
use weir::policy::subject::{OnMissing, Source};
use weir::request::sample::Sample;
use weir::request::{Attributes as _, Request};

/// Something that a policy reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Header(String),
    /// One of these headers.
    OneOf(Vec<String>),
    Attribute(Vec<String>),
    Body,
}

impl Field {
    fn is_in(&self, request: &Sample) -> bool {
        match self {
            Self::Header(name) => matches!(request.header(name), Ok(Some(_))),
            Self::OneOf(names) => names.iter().any(|name| matches!(request.header(name), Ok(Some(_)))),
            Self::Attribute(path) => {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                matches!(request.property(&path), Ok(Some(_)))
            }
            Self::Body => request.body().is_some(),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Header(name) if name == "cookie" => String::from("cookies"),
            Self::Header(name) => format!("the header {name}"),
            Self::OneOf(names) => format!("the headers {}", names.join(", ")),
            Self::Attribute(path) => format!("the attribute {}", path.join(".")),
            Self::Body => String::from("a body"),
        }
    }
}

/// The fields that the policies read, and those of them that were in no request yet.
pub struct Wanted {
    by_policy: Vec<BTreeSet<Field>>,
    /// The fields without which a policy denies a request.
    required: Vec<BTreeSet<Field>>,
    unseen: BTreeSet<Field>,
    /// For each policy, true if a request met its `match`, as far as that asks for no such field, or if it has none.
    met: Vec<bool>,
}

impl Wanted {
    /// Collects the fields that the policies of `config` read.
    pub fn new(config: &Config) -> Self {
        let by_policy: Vec<_> = config.policies.iter().map(needs).collect();
        let required =
            config.policies.iter().map(|policy| parts(policy, |of| of == OnMissing::Deny)).collect();
        let unseen = by_policy.iter().flatten().cloned().collect();
        let met = by_policy.iter().map(BTreeSet::is_empty).collect();
        Self { by_policy, required, unseen, met }
    }

    /// Looks at a request of the trace, under the same configuration.
    pub fn look(&mut self, config: &Config, sample: &Sample) {
        self.unseen.retain(|field| !field.is_in(sample));
        if self.met.iter().all(|met| *met) {
            return;
        }
        let body = request::body(config, sample);
        let request = request::request(config, sample, body.as_ref());
        for (policy, met) in config.policies.iter().zip(&mut self.met).filter(|(_, met)| !**met) {
            *met = meets_rest(&policy.matcher, &request);
        }
    }

    /// Returns in words the fields that the policy of this index reads, and that no request has. None, if no request met the rest of its
    /// `match`: then this is why it applied to none.
    pub fn missing(&self, policy: usize) -> Vec<String> {
        self.unseen_of(self.by_policy.get(policy).filter(|_| self.met.get(policy) == Some(&true)))
    }

    /// The same of what the policy denies requests without.
    pub fn required(&self, policy: usize) -> Vec<String> {
        self.unseen_of(self.required.get(policy))
    }

    fn unseen_of(&self, fields: Option<&BTreeSet<Field>>) -> Vec<String> {
        let fields = fields.into_iter().flatten();
        fields.filter(|field| self.unseen.contains(field)).map(Field::words).collect()
    }
}

fn needs(policy: &Policy) -> BTreeSet<Field> {
    let mut fields = parts(policy, |on_missing| on_missing != OnMissing::Share);
    of_condition(&policy.matcher, &mut fields);
    fields
}

/// Returns the fields that the subject reads in the parts whose `on_missing` meets `that`.
fn parts(policy: &Policy, that: fn(OnMissing) -> bool) -> BTreeSet<Field> {
    let parts = policy.parts().map(|(_, part)| part).filter(|part| that(part.on_missing));
    let field = |source: &Source| match source {
        Source::Header(name) => Some(Field::Header(name.clone())),
        Source::Cookie(_) => Some(Field::Header(String::from("cookie"))),
        Source::Attribute(property) => Some(Field::Attribute(property.path.clone())),
        Source::Body(..) => Some(Field::Body),
        Source::Credential(credential) => {
            Some(Field::OneOf(credential.headers().map(String::from).collect()))
        }
        _ => None,
    };
    parts.filter_map(|part| field(&part.source)).collect()
}

fn of_condition(condition: &Condition, fields: &mut BTreeSet<Field>) {
    match condition {
        Condition::All(all) | Condition::Any(all) => all.iter().for_each(|each| of_condition(each, fields)),
        one => fields.extend(field(one)),
    }
}

/// True if a request meets a condition, whatever its fields are that a log may lack.
fn meets_rest<'a>(condition: &'a Condition, request: &Request<'a>) -> bool {
    match condition {
        Condition::All(all) => all.iter().all(|each| meets_rest(each, request)),
        Condition::Any(any) => any.iter().any(|each| meets_rest(each, request)),
        one => field(one).is_some() || one.holds(request, OnAmbiguity::Holds),
    }
}

/// The field that a single condition reads, if a log may lack it.
fn field(condition: &Condition) -> Option<Field> {
    Some(match condition {
        Condition::Header(name, _) => Field::Header(name.clone()),
        Condition::Cookie(..) => Field::Header(String::from("cookie")),
        Condition::Attribute(property, _) => Field::Attribute(property.path.clone()),
        Condition::Route(_) => Field::Attribute(vec![String::from("xds"), String::from("route_name")]),
        Condition::Body(..) => Field::Body,
        // Where a field is missing, `Not` holds. Each log has the others, or its summary says that it has not.
        Condition::All(_)
        | Condition::Any(_)
        | Condition::Not(_)
        | Condition::Path(_)
        | Condition::Method(_)
        | Condition::Host(_)
        | Condition::Query(..)
        | Condition::ClientAddress(_)
        | Condition::Time(_) => return None,
    })
}
