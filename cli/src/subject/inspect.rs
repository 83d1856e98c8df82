// SPDX-License-Identifier: Apache-2.0
//! `weir inspect`: what Redis holds of a subject.

use std::io;

use clap::Args;

use super::super::store::Place;
use super::super::{Ended, Found, failed, words};
use super::Selection;
use super::state::State;

/// Whose state to show.
#[derive(Args)]
pub(in super::super) struct Arguments {
    #[command(flatten)]
    selection: Selection,
    /// Print a line for each subject: `{"policy", "subject", "slot", "region", "limits", "override", "ban", "denials"}`. `region` is the
    /// region whose Redis counts it. A limit is `{"name", "tier", "limit", "quota", "overridden", "remaining", "retry_after_ms", "passes",
    /// "reset_ms", "cost", "key"}`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

pub(in super::super) fn run(arguments: &Arguments, out: &mut impl io::Write) -> Result<Found, Ended> {
    let config = arguments.selection.load()?;
    let subjects = arguments.selection.find_here(&config)?;
    let mut redis = arguments.place.connect()?;
    for subject in &subjects {
        let state = State::read(subject, &mut redis)?;
        let text = if arguments.json { words::json_line(&state.json(subject)) } else { state.text(subject) };
        out.write_all(text.as_bytes()).map_err(failed)?;
    }
    Ok(Found::Nothing)
}
