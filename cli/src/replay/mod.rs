// SPDX-License-Identifier: Apache-2.0
//! `weir replay`: runs a trace through the policies in simulated time, as fast as possible.

mod against;
#[cfg(not(target_arch = "wasm32"))]
mod command;
mod decision;
mod heaviest;
mod page;
mod run;
mod timeline;
mod totals;
mod wanted;

use std::collections::HashSet;

use super::Failure;
use super::store::Store;
use super::trace::Trace;
use against::Differences;
#[cfg(not(target_arch = "wasm32"))]
pub(super) use command::{Arguments, run};
use decision::Decision;
use page::{Page, Side};
pub(super) use run::Run;
use timeline::Steps;
pub(super) use totals::Totals;
pub(super) use wanted::Wanted;
use weir::config::Config;
use weir::policy::{Across, Policy};

/// The names of two configurations. Two files may have one name in two folders.
fn distinct([first, second]: [String; 2]) -> [String; 2] {
    if first != second {
        return [first, second];
    }
    [format!("{first} (first)"), format!("{second} (second)")]
}

/// Says what a replay leaves out that may decide the requests of a policy.
fn left_out(policy: &Policy) -> Vec<String> {
    let Policy { name, settle, regions, .. } = policy;
    let settles = (!settle.is_empty()).then(|| {
        format!(
            "policy {name}: `settle` is not simulated, because a log does not have the true cost: a request costs what it reserves"
        )
    });
    let borrows = (*regions == Across::Share).then(|| {
        format!(
            "policy {name}: loans are not simulated: under `regions: share`, the region has only its own part of each limit"
        )
    });
    settles.into_iter().chain(borrows).collect()
}

/// The decision about a request; and if there is another configuration, its decision, with `true` if both are the same.
type Decided = (Decision, Option<(Decision, bool)>);

/// A trace, and what one configuration or two decide about it.
pub(super) struct Replay {
    trace: Trace,
    wanted: Wanted,
    steps: Option<Steps>,
    first: Run,
    second: Option<(Run, Differences)>,
}

impl Replay {
    /// Replays a trace that was read once: `wanted` has seen it. `is_drawn`: charts are drawn. `config` counts in `store`.
    pub fn new(trace: Trace, wanted: Wanted, is_drawn: bool, (config, store): (Config, Store)) -> Self {
        let steps = trace.summary.span.filter(|_| is_drawn).map(Steps::of);
        let totals = Totals::new(&config, steps);
        Self { trace, wanted, steps, first: Run::new(config, store, totals), second: None }
    }

    /// Compares with another configuration.
    pub fn compare(&mut self, (config, store): (Config, Store)) {
        let totals = Totals::new(&config, self.steps);
        self.second = Some((Run::new(config, store, totals), Differences::default()));
    }

    /// Decides about the next request.
    pub fn next(&mut self) -> Result<Option<Decided>, Failure> {
        let Some(event) = self.trace.next()? else { return Ok(None) };
        let decision = self.first.decide(&event)?;
        let Some((second, differences)) = &mut self.second else { return Ok(Some((decision, None))) };
        let other = second.decide(&event)?;
        let is_same = differences.compare(&decision, &other);
        Ok(Some((decision, Some((other, is_same)))))
    }

    /// Returns the warnings for the operator, after the last request.
    fn warnings(&self) -> Vec<String> {
        let (first, wanted) = (&self.first, &self.wanted);
        let missing = first.totals.never(&first.config).map(|(index, name)| (name, wanted.missing(index)));
        let never = missing.filter(|(_, missing)| !missing.is_empty()).map(|(name, missing)| {
            let missing = missing.join(", ");
            format!("policy {name} applied to no request: no request of the trace has {missing}")
        });
        let required =
            first.totals.applied(&first.config).map(|(index, name)| (name, wanted.required(index)));
        let denied = required.filter(|(_, required)| !required.is_empty()).map(|(name, required)| {
            let required = required.join(", ");
            format!("policy {name} denied every request, because the trace lacks what its subject needs: {required}")
        });
        let mut all: Vec<String> = self.trace.disorder().into_iter().chain(never).chain(denied).collect();
        for run in [Some(first), self.second.as_ref().map(|(second, _)| second)].into_iter().flatten() {
            for (index, _) in run.totals.applied(&run.config) {
                let Some(policy) = run.config.policies.get(index) else { continue };
                all.extend(left_out(policy));
            }
        }
        let mut said = HashSet::new();
        all.retain(|warning| said.insert(warning.clone()));
        all
    }

    /// The page of it, after the last request: of the trace and the configurations of these names.
    pub fn page(&self, trace: String, names: [String; 2]) -> Result<String, Failure> {
        let [name, other] = distinct(names);
        let mut sides = vec![Side { name, config: &self.first.config, totals: &self.first.totals }];
        if let Some((second, _)) = &self.second {
            sides.push(Side { name: other, config: &second.config, totals: &second.totals });
        }
        let page = Page {
            trace,
            notes: self.trace.summary.notes(),
            warnings: self.trace.warnings().into_iter().chain(self.warnings()).collect(),
            sides,
            differences: self.second.as_ref().map(|(_, differences)| differences),
        };
        page.write()
    }
}
