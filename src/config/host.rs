// SPDX-License-Identifier: Apache-2.0
//! The hosts of the core in Envoy, and the configurations that a host does not support.

use super::Config;
use super::schema::{ConfigError, Errors};
use crate::policy::list::Conditions;
use crate::policy::matcher::Condition;
use crate::policy::subject::{Source, SubjectPart};
use crate::request::Property;
use crate::request::module::{self, TEXTS};

/// The host of the core in Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// `weir.wasm`, the plugin. It carries every configuration.
    Wasm,
    /// `libweir.so`, the dynamic module.
    Native,
}

impl Config {
    /// Reads a configuration for this host; see [`Config::parse`].
    ///
    /// # Errors
    /// Everything that is wrong with the configuration, or else everything in it that the host cannot do; never empty.
    pub fn parse_for(host: Host, text: &[u8]) -> Result<Self, Vec<ConfigError>> {
        let config = Self::parse(text)?;
        let mut errors = Errors::default();
        if host == Host::Native {
            for (index, policy) in config.policies.iter().enumerate() {
                for (place, part) in policy.parts() {
                    refuse_unreadable(part, &format!("policies[{index}].{place}"), &mut errors);
                }
                if let Some(scale) = &policy.scale {
                    refuse_unreadable(&scale.from, &format!("policies[{index}].scale.from"), &mut errors);
                }
                if let Some(by) = &policy.tiers.by {
                    refuse_unreadable(by, &format!("policies[{index}].tiers.by"), &mut errors);
                }
                refuse_in(&policy.matcher, &format!("policies[{index}].match"), &mut errors);
                for (list, conditions) in [("deny", &policy.deny), ("exempt", &policy.exempt)] {
                    refuse_in_list(conditions, &format!("policies[{index}].{list}"), &mut errors);
                }
                for ((when, _), place) in policy.priority.iter().zip(0_usize..) {
                    refuse_in(when, &format!("policies[{index}].priority[{place}].when"), &mut errors);
                }
                for ((when, _), place) in policy.costs.iter().zip(0_usize..) {
                    refuse_in(when, &format!("policies[{index}].costs[{place}].when"), &mut errors);
                }
            }
            refuse_in_list(&config.deny, "deny", &mut errors);
            refuse_in_list(&config.exempt, "exempt", &mut errors);
        }
        if errors.found.is_empty() { Ok(config) } else { Err(errors.found) }
    }
}

fn refuse_in_list(conditions: &Conditions, list: &str, errors: &mut Errors) {
    for (condition, place) in conditions.conditions().iter().zip(0_usize..) {
        refuse_in(condition, &format!("{list}[{place}]"), errors);
    }
}

/// A condition on an attribute that a dynamic module cannot read would always be in doubt.
fn refuse_in(condition: &Condition, place: &str, errors: &mut Errors) {
    match condition {
        Condition::All(each) | Condition::Any(each) => {
            each.iter().for_each(|condition| refuse_in(condition, place, errors));
        }
        Condition::Not(condition) => refuse_in(condition, place, errors),
        Condition::Attribute(property, _) => refuse_property(property, place, errors),
        _ => {}
    }
}

/// An attribute that a dynamic module cannot read would make the policy deny every request.
fn refuse_unreadable(part: &SubjectPart, place: &str, errors: &mut Errors) {
    if let Source::Attribute(property) = &part.source {
        refuse_property(property, place, errors);
    }
}

fn refuse_property(property: &Property, place: &str, errors: &mut Errors) {
    let path: Vec<&str> = property.path.iter().map(String::as_str).collect();
    if module::reading(&path).is_some() {
        return;
    }
    let found = serde_json::Value::from(path.clone());
    if module::is_nested(&path) {
        errors.add(
            place,
            format_args!("{found}, a value inside another, which a dynamic module cannot read"),
            "an attribute [\"filter_state\", KEY], to which Envoy's filter set_filter_state copies the value: see \
             docs/subjects.md#in-the-dynamic-module",
        );
    } else {
        let texts: Vec<&str> = TEXTS.iter().map(|(name, _)| *name).collect();
        errors.add(
            place,
            format_args!("{found}, which a dynamic module cannot read"),
            format_args!(
                "request.headers.NAME, filter_state.KEY, metadata.filter_metadata.NAMESPACE.KEY, {}: see \
                 docs/subjects.md#in-the-dynamic-module",
                texts.join(", ")
            ),
        );
    }
}
